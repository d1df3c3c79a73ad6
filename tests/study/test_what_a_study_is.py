"""What is computed, kept and shown is of the study that was asked for: its order, its ε, its settings, its draws."""

import functools
import sys

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


def test_modules_of_one_name_are_not_confused(tmp_path, monkeypatch):
    text = f'{SIZES}[estimators]\nmine = "a_module_of_two:own"\n'
    for folder, factor in (("a", 1), ("b", 2), (".", 3)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "study.toml").write_text(text)
        own = f"import rrjax\n\ndef own(*given):\n    return {factor} * rrjax.inv(*given)\n"
        (tmp_path / folder / "a_module_of_two.py").write_text(own)
    monkeypatch.setattr(sys, "path", [*sys.path])
    first, _ = read_study(tmp_path / "a" / "study.toml")
    again, _ = read_study(tmp_path / "a" / "study.toml")
    assert first.estimators == again.estimators
    for folder in ("b", "."):
        with refused("estimators", error=StudyError, value="a_module_of_two"):
            read_study(tmp_path / folder / "study.toml")
    monkeypatch.delitem(sys.modules, "a_module_of_two")


def test_helpers_of_one_name_are_not_confused_either(tmp_path, monkeypatch):
    for folder, factor in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        text = f'{SIZES}estimators = "inv"\n[metrics]\nmine = "mine_in_{folder}:own"\n'
        (tmp_path / folder / "study.toml").write_text(text)
        own = "import a_helper_of_two as helper\n\ndef own(one, other):\n    return helper.FACTOR * one[0]\n"
        (tmp_path / folder / f"mine_in_{folder}.py").write_text(own)
        (tmp_path / folder / "a_helper_of_two.py").write_text(f"FACTOR = {factor}\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    read_study(tmp_path / "a" / "study.toml")
    with refused("metrics", error=StudyError, value="a_helper_of_two"):
        read_study(tmp_path / "b" / "study.toml")
    for name in ("a_helper_of_two", "mine_in_a", "mine_in_b"):
        monkeypatch.delitem(sys.modules, name)


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
