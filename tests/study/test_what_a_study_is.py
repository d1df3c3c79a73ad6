"""What is computed, kept and shown is of the study that was asked for: its order, its ε, its settings, its draws."""

import concurrent.futures
import dataclasses
import functools
import importlib
import importlib.machinery
import py_compile
import sys
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xarray", reason="studies need xarray")

from refusals import refused

import rrjax
from rrjax.estimators.in_rows import own_in_rows
from rrjax.study import Study, StudyError, read_study
from rrjax.study.functions import abstract_key, build_mechanism

FLAT, STEEP = [0.25] * 4, [0.97, 0.01, 0.01, 0.01]
USERS = [25] * 4, [97, 1, 1, 1]
SIZES = "num_categories = 3\nnum_users = 10\nepsilon = 1.0\nzipf = 1.0\n"
QUICK = {"estimators": "inv", "epsilon": 1.0, "num_seeds": 4, "metrics": "mse"}


@pytest.mark.long
@pytest.mark.parametrize("given", [{"distributions": (FLAT, STEEP), "num_users": 100}, {"users": USERS}])
def test_a_folder_has_its_populations_in_one_order(given, tmp_path):
    name = next(iter(given))
    first, second = given[name]
    rest = {key: value for key, value in given.items() if key != name}
    Study(**QUICK, **rest, **{name: {"a": first, "b": second}}).run(folder=tmp_path)
    exchanged = Study(**QUICK, **rest, **{name: {"b": second, "a": first}})
    with refused("folder", error=StudyError, value=["order"]):
        exchanged.run(folder=tmp_path)


def unchanged_inv(counts, epsilon):
    return rrjax.inv(counts, epsilon)


def halved(num_categories, epsilon):
    return rrjax.RandomizedResponse(num_categories, float(epsilon) / 2)  # which no tracer survives


def unchanged(num_categories, epsilon):
    return rrjax.RandomizedResponse(num_categories, float(epsilon))


@pytest.mark.full  # two programs
def test_a_mechanism_keeps_an_epsilon_of_its_own():
    """One program serves all ε of a study, but a function may compute another one, in Python."""
    assert float(build_mechanism(halved, 4, jnp.float32(1), 1.0).epsilon) == 0.5
    own = jax.eval_shape(lambda epsilon: build_mechanism(unchanged, 4, epsilon, 1.0), jnp.float32(1))
    assert isinstance(own.epsilon, jax.ShapeDtypeStruct)  # the argument of the program

    def study(*functions):
        mechanisms = dict(zip("ab", functions, strict=True))
        return Study(**QUICK, mechanism=mechanisms, num_categories=4, num_users=100, zipf=1.0)

    names = study(halved, unchanged).describe()["mechanism"]
    assert names["a"].partition("#")[2] != names["b"].partition("#")[2]
    result = study(halved, unchanged).run()
    assert result.mse.sel(mechanism="a").item() > 2 * result.mse.sel(mechanism="b").item()


SETTINGS = [
    (jax.threefry_partitionable, False),
    (jax.default_prng_impl, "rbg"),
    (jax.default_matmul_precision, "highest"),
]


@pytest.mark.long
@pytest.mark.parametrize(("setting", "value"), SETTINGS)
def test_settings_of_the_callers_thread_hold_in_a_run(setting, value):
    seen = []

    def own(key, counts, epsilon):
        seen.append((jax.config.jax_threefry_partitionable, jax.config.jax_default_matmul_precision))
        other = jax.random.uniform(jax.random.key(7), counts.shape)
        return jax.random.uniform(key, counts.shape) + other

    study = Study(**(QUICK | {"estimators": {"own": own}}), num_categories=4, num_users=100, zipf=1.0)
    with setting(value):
        mse = study.run().mse.item()
    assert len(set(seen)) == 1
    assert (setting is jax.default_matmul_precision) == (mse == study.run().mse.item())


@pytest.mark.long
def test_a_run_in_the_precision_of_its_thread():
    study = Study(**QUICK, num_categories=4, num_users=100, zipf=1.0)
    with jax.enable_x64(True):
        assert study.run().attrs["precision"] == "float64"
    with jax.enable_x64(False):
        assert study.run().attrs["precision"] == "float32"


@pytest.mark.long
def test_a_folder_is_of_one_stream_of_random_numbers(tmp_path):
    study = Study(**QUICK, num_categories=4, num_users=100, zipf=1.0)
    study.run(folder=tmp_path)
    with jax.threefry_partitionable(False), refused("folder", error=StudyError, value=["jax_threefry_partitionable"]):
        study.run(folder=tmp_path)


def test_the_default_generator_is_no_part_of_a_study():
    """The keys of a run are of one kind, whatever JAX's default is."""
    with jax.default_prng_impl("rbg"):
        assert abstract_key().dtype == jax.random.key(0, impl="threefry2x32").dtype


def _studies(path, files):
    """Two folders with a study each, whose estimator is `est_in_A:own`, and the same files with another factor."""
    for folder, factor in (("a", 2), ("b", 3)):
        (path / folder).mkdir()
        (path / folder / "study.toml").write_text(SIZES + f'estimators = {{mine = "est_in_{folder}:own"}}\n')
        for name, text in files.items():
            file = path / folder / name.replace("FOLDER", folder)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text.replace("FACTOR", str(factor)).replace("FOLDER", folder))
    return path / "a" / "study.toml", path / "b" / "study.toml"


ESTIMATOR = "\n\ndef own(counts, epsilon):\n    return counts * "
HELPERS = {
    "a helper": {"est_in_FOLDER.py": f"import oh_h{ESTIMATOR}oh_h.one()\n", "oh_h.py": "def one(): return FACTOR\n"},
    "a number": {"est_in_FOLDER.py": f"from oh_number import x{ESTIMATOR}x\n", "oh_number.py": "x = FACTOR\n"},
    "deeper": {
        "est_in_FOLDER.py": f"from oh_mid_in_FOLDER import x{ESTIMATOR}x\n",
        "oh_mid_in_FOLDER.py": "from oh_deep import x\n",
        "oh_deep.py": "x = FACTOR\n",
    },
    "a package": {
        "est_in_FOLDER.py": f"from oh_pack.one import x{ESTIMATOR}x\n",
        "oh_pack/__init__.py": "",
        "oh_pack/one.py": "x = FACTOR\n",
        "oh_pack/of_FOLDER.py": "",
    },
    "a folder": {"est_in_FOLDER.py": f"from oh_space.one import x{ESTIMATOR}x\n", "oh_space/one.py": "x = FACTOR\n"},
}


@pytest.fixture
def imports(monkeypatch):
    before = {*sys.modules}
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in {*sys.modules} - before:
        if name.startswith(("oh_", "est_in_")):
            del sys.modules[name]


@pytest.mark.long
@pytest.mark.parametrize("files", HELPERS.values(), ids=HELPERS)
@pytest.mark.usefixtures("imports")
def test_helpers_of_one_name_are_not_confused(tmp_path, files):
    first, second = _studies(tmp_path, files)
    before = read_study(first)[0].estimators
    for _ in range(2):
        with refused("estimators", error=StudyError):
            read_study(second)
        assert read_study(first)[0].estimators == before  # its modules are back
    assert before["mine"](1, 1.0) == 2


@pytest.mark.usefixtures("imports")
def test_modules_of_one_name_are_not_confused(tmp_path, monkeypatch):
    paths = _studies(tmp_path, {"oh_est.py": f"import jax{ESTIMATOR}FACTOR\n"})
    (tmp_path / "oh_est.py").write_text("")
    for path in paths:
        path.write_text(SIZES + 'estimators = {mine = "oh_est:own"}\n')
    sys.path.insert(0, str(tmp_path))
    elsewhere = importlib.import_module("oh_est")
    for path in paths:
        with refused("estimators", error=StudyError, value="oh_est"):
            read_study(path)
        assert sys.modules["oh_est"] is elsewhere
    monkeypatch.setattr(elsewhere, "__file__", str(tmp_path / "site-packages" / "oh_est.py"))
    with refused("estimators", error=StudyError, value="oh_est"):
        read_study(paths[0])
    del sys.modules["oh_est"]
    assert read_study(paths[0])[0].estimators["mine"](1, 1.0) == 2
    with refused("estimators", error=StudyError, value="oh_est"):
        read_study(paths[1])


@pytest.mark.usefixtures("imports")
def test_a_name_that_a_study_does_not_import_is_no_conflict(tmp_path, monkeypatch):
    files = {"est_in_FOLDER.py": f"import jax{ESTIMATOR}FACTOR\n"}
    first, second = _studies(tmp_path, files | {"oh_unused.py": ""})
    read_study(first)
    importlib.import_module("oh_unused")
    monkeypatch.setitem(sys.modules, "oh_odd", types.SimpleNamespace(__path__=None))
    (second.parent / "oh_odd.py").write_text("")
    assert read_study(second)[0].estimators["mine"](1, 1.0) == 3
    assert sys.modules["oh_unused"].__file__ == str(tmp_path / "a" / "oh_unused.py")


@pytest.mark.usefixtures("imports")
def test_a_module_imports_what_it_says(tmp_path):
    """Whatever else is in the folder, and not imported."""
    own = (
        f"import os, sys\nsys.path.insert(0, os.path.dirname(__file__) + '/oh_sub')\nimport oh_tools{ESTIMATOR}FACTOR\n"
    )
    files = {"est_in_FOLDER.py": own, "oh_tools.py": "raise ValueError", "oh_sub/oh_tools.py": ""}
    first, _ = _studies(tmp_path, files)
    assert read_study(first)[0].estimators["mine"](1, 1.0) == 2


@pytest.mark.usefixtures("imports")
def test_a_module_that_two_folders_share_is_one(tmp_path):
    first, second = _studies(tmp_path, {"est_in_FOLDER.py": f"from oh_shared import x{ESTIMATOR}x\n"})
    (tmp_path / "shared.py").write_text("x = 5\n")
    for path in (first, second):
        (path.parent / "oh_shared.py").symlink_to(tmp_path / "shared.py")
    assert [read_study(path)[0].estimators["mine"](1, 1.0) for path in (first, second)] == [5, 5]


@pytest.mark.usefixtures("imports")
def test_a_module_that_was_compiled_beside_its_source_is_its_own(tmp_path, monkeypatch):
    first, _ = _studies(tmp_path, {"est_in_FOLDER.py": f"import jax{ESTIMATOR}FACTOR\n"})
    read_study(first)
    compiled = str(tmp_path / "a" / f"est_in_a{importlib.machinery.EXTENSION_SUFFIXES[0]}")
    monkeypatch.setattr(sys.modules["est_in_a"], "__file__", compiled)
    assert read_study(first)[0].estimators["mine"](1, 1.0) == 2


@pytest.mark.usefixtures("imports")
@pytest.mark.parametrize("name", ["oh_model.py", "oh_model/__init__.py"])
def test_a_module_in_a_folder_of_its_name_is_another_one(tmp_path, name):
    """A study in a subfolder that has the name of one of its modules showed its results."""
    first = tmp_path / "study.toml"
    second = tmp_path / "oh_model" / "study.toml"
    second.parent.mkdir()
    for path, file, factor in ((second, second.parent / "oh_model.py", 3), (first, tmp_path / name, 2)):
        file.write_text(f"import jax{ESTIMATOR}{factor}\n")
        path.write_text(SIZES + 'estimators = {mine = "oh_model:own"}\n')
    assert read_study(second)[0].estimators["mine"](1, 1.0) == 3
    with refused("estimators", error=StudyError, value="oh_model"):
        read_study(first)


@pytest.mark.usefixtures("imports")
def test_compiled_modules_of_one_name_are_not_confused(tmp_path):
    paths = _studies(tmp_path, {"oh_compiled.py": f"import jax{ESTIMATOR}FACTOR\n"})
    for path in paths:
        path.write_text(SIZES + 'estimators = {mine = "oh_compiled:own"}\n')
        source = path.parent / "oh_compiled.py"
        py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc")))
        source.unlink()
    for _ in range(2):
        assert read_study(paths[0])[0].estimators["mine"](1, 1.0) == 2
        with refused("estimators", error=StudyError, value="oh_compiled"):
            read_study(paths[1])


def test_a_package_of_a_module_is_that_of_the_study(tmp_path, monkeypatch):
    """Beside a file of the same name Python imports the package."""
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("import rrjax\n\nown = rrjax.inv_p\n")
    (tmp_path / "own_package.py").write_text("import rrjax\n\nown = rrjax.inv\n")
    text = SIZES + 'estimators = {mine = "own_package:own"}\n'
    (tmp_path / "study.toml").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert read_study(tmp_path / "study.toml")[0].estimators["mine"] is rrjax.inv_p
    monkeypatch.delitem(sys.modules, "own_package")


@pytest.mark.long
@pytest.mark.parametrize("given", [{"mechanism": "optimized-unary-encoding"}, {"estimators": {"own": unchanged_inv}}])
def test_the_decomposition_alone(given):
    """It needs the squared error, which is not asked for."""
    result = Study(**(QUICK | given | {"metrics": "bias2"}), num_categories=4, num_users=100, zipf=1.0).run()
    assert (*result.data_vars,) == ("bias2",)
    assert 0 <= result.bias2.item() < 1


@pytest.mark.long
def test_the_settings_of_a_run_are_written(tmp_path):
    with jax.threefry_partitionable(False):
        result = Study(**QUICK, num_categories=4, num_users=100, zipf=1.0).run()
    assert result.attrs["jax_threefry_partitionable"] == "False"
    result.to_netcdf(tmp_path / "r.nc")


def test_a_wrapper_is_not_in_rows_what_it_wraps():
    def own(counts, epsilon):
        return rrjax.inv_n(counts, epsilon)

    own.in_rows = functools.partial(jnp.multiply, 0)

    @functools.wraps(own)
    def squared(counts, epsilon):
        return own(counts, epsilon) ** 2

    assert own_in_rows(own) is own.in_rows
    assert own_in_rows(jax.jit(own)) is own.in_rows
    assert own_in_rows(squared) is None
    assert own_in_rows(jax.jit(squared)) is None
    jitted = jax.jit(squared)
    jitted.in_rows = functools.partial(jnp.multiply, 1)
    assert own_in_rows(jitted) is jitted.in_rows


BAD_USERS = {
    "another number": lambda size: np.full(size, 1000),
    "no integers": lambda size: np.full(size, 1000) if size == 4 else np.full(size, 500.0),
    "too many": lambda size: np.full(size, 2**31 // size),
}


@pytest.mark.parametrize("users", BAD_USERS.values(), ids=BAD_USERS)
def test_users_of_every_k_are_as_many(users):
    with refused("users" if users is not BAD_USERS["too many"] else "num_users", error=StudyError):
        Study(**QUICK, num_categories=[4, 8], users={"a": users})
    Study(**QUICK, num_categories=[4, 8], users={"a": lambda size: np.full(size, 4000 // size)})


@pytest.mark.parametrize("name", ["users", "distributions"])
def test_arrays_are_those_that_were_given(name):
    array = np.full(4, 1000)
    study = Study(**QUICK, num_users=None if name == "users" else 4000, **{name: {"a": array}})
    described, held = study.describe(), study.shares("a", 4).copy()
    array[0] = 1
    assert study.describe() == described
    np.testing.assert_array_equal(study.shares("a", 4), held)
    assert study.num_users == (4000,)
    given = {name: {"a": [1000] * 4}, "num_users": None if name == "users" else 4000}
    assert Study(**QUICK, **given) == Study(**QUICK, **given)


def test_drawn_users_stay_in_a_study_with_other_settings():
    random = np.random.default_rng(0)
    study = Study(**QUICK, num_categories=4, users={"a": lambda size: random.poisson(1000, size)})
    more = dataclasses.replace(study, num_seeds=8)
    np.testing.assert_array_equal(more.shares("a", 4), study.shares("a", 4))
    assert (more.num_users, more.num_seeds) == (study.num_users, 8)


def test_threads_see_one_draw():
    random = np.random.default_rng(0)

    def drawn(size):
        time.sleep(0.1)
        return random.dirichlet(np.ones(size))

    study = Study(**QUICK, num_categories=4, num_users=10, distributions={"a": drawn})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: study.shares("a", 4), range(2))
    np.testing.assert_array_equal(first, second)


class Scaled:
    """Estimators whose call JAX traces by the object, which may change."""

    def __init__(self, scale):
        self.scale, self.cleared = scale, False

    @functools.partial(jax.jit, static_argnums=0)
    def __call__(self, counts, epsilon):
        return self.scale * rrjax.inv(counts, epsilon)

    def clear_cache(self):
        self.cleared = True


@pytest.mark.long
def test_an_object_with_another_state_is_another_estimator(tmp_path):
    own = Scaled(1.0)
    study = Study(**(QUICK | {"estimators": {"own": own}}), num_categories=4, num_users=1000, zipf=1.0)
    first, name = study.run(folder=tmp_path).mse.item(), study.describe()["estimators"]
    own.scale = 3.0
    assert study.describe()["estimators"] != name
    with refused("folder", error=StudyError):
        study.run(folder=tmp_path)
    assert study.run().mse.item() > 2 * first
    assert not own.cleared  # it has a method of this name for something else


def test_a_population_that_is_drawn_is_drawn_once():
    random = np.random.default_rng(0)
    drawn = {"drawn": lambda size: random.dirichlet(np.ones(size))}
    study = Study(**QUICK, num_categories=[4, 5], num_users=100, distributions=drawn)
    described = study.describe()
    np.testing.assert_array_equal(study.shares("drawn", 4), study.shares("drawn", 4))
    held = Study(**QUICK, num_categories=4, users={"a": lambda size: np.full(size, 25)}).shares("a", 4)
    with pytest.raises(ValueError):  # noqa: PT011 - NumPy's
        held[0] = 0
    assert study.describe() == described
