"""What importing does and does not do, and what every public name carries."""

import importlib
import inspect
import os
import pathlib
import pkgutil
import subprocess
import sys

import pytest
from refusals import refused

import rrjax
from rrjax.cli import main
from rrjax.data.errors import MissingPackage

pytestmark = pytest.mark.once  # nothing here depends on the precision

EDGES = ("cli", "figures", "io", "study")
"""Packages that need more than JAX."""
MODULES = [
    module.name
    for module in pkgutil.walk_packages(rrjax.__path__, "rrjax.")
    if module.name.split(".")[1] not in (*EDGES, "__main__")
]


def run(code, **environment):
    # As a user's interpreter: without what pytest has imported.
    root = str(pathlib.Path(rrjax.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"PYTHONPATH": root} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


IMPORT = """
import sys
import jax
from jax._src import xla_bridge

before = dict(jax.config.values)
import rrjax
for name in rrjax.__all__:
    if name not in ("io", "figures", "reports", "Reports", "plan", "read"):  # of files, frames and figures
        getattr(rrjax, name)
assert dict(jax.config.values) == before, "a setting of JAX changed"
assert not xla_bridge.backends_are_initialized(), "a device was touched, so an array was made"
heavy = {"duckdb", "matplotlib", "typer", "rich", "pandas", "pyarrow", "optax", "hypothesis", "mpmath", "scipy.stats"}
heavy |= {"narwhals", "polars", "pyspark"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
print(sorted(name for name in sys.modules if name.startswith("rrjax.")))
"""


@pytest.mark.long
@pytest.mark.parametrize("x64", ["0", pytest.param("1", marks=pytest.mark.long)])
def test_importing_touches_nothing(x64):
    loaded = run(IMPORT, JAX_ENABLE_X64=x64)
    assert "rrjax.estimators.closed_form" in loaded
    for edge in ("rrjax.cli", "rrjax.io"):
        assert edge not in loaded


def test_a_client_needs_no_jax():
    out = run(
        "import sys; sys.modules['jax'] = None\n"
        "import rrjax, rrjax.io\n"
        "print(rrjax.secure.client('randomized-response', 3, 30.0).randomize([0, 1, 2, 2]).tolist())"
    )
    assert out == "[0, 1, 2, 2]\n"  # at ε = 30 one report in 10^12 differs


@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("--help", 0), ("estimate", 1)])
def test_a_bare_install_says_what_the_command_line_needs(monkeypatch, capsys, argument, code):
    for name in ("rich", "rrjax.cli.app"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys, "argv", ["rrjax", argument])
    if code:
        with pytest.raises(SystemExit) as ended:
            main()
        said = str(ended.value.code)  # Python prints it, and exits with 1
    else:
        main()
        said = capsys.readouterr().out
        assert rrjax.__version__ in said
    assert "pip install '.[cli]'" in said


def test_a_missing_package_is_named_before_the_work(monkeypatch):
    called = []

    def estimator(counts, epsilon):
        called.append(counts)
        return rrjax.inv(counts, epsilon)

    study = rrjax.study.Study(
        estimators={"mine": estimator}, num_categories=3, num_users=10, epsilon=1.0, zipf=1.0, num_seeds=2
    )
    monkeypatch.setitem(sys.modules, "xarray", None)
    with refused(error=MissingPackage, value="xarray"):
        study.run()
    assert not called


@pytest.mark.parametrize(
    "command", [("estimate", "none.csv", "--plot", "estimate.png"), ("report", "none.csv"), ("demo",)]
)
def test_figures_that_cannot_be_drawn_are_refused_before_the_work(monkeypatch, invoke, command):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert invoke(*command)[0] == 2  # not 3: the file is not even opened
    assert isinstance(invoke.error, MissingPackage)
    assert invoke.error.value == "matplotlib"


@pytest.mark.parametrize(("file", "package"), [("x.xlsx", "xlsxwriter"), ("x.tex", "tabulate")])
def test_files_that_cannot_be_written_are_refused_before_the_work(monkeypatch, invoke, file, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert invoke("estimate", "none.csv", "--out", file)[0] == 2
    assert isinstance(invoke.error, MissingPackage)
    assert invoke.error.value == package


@pytest.mark.full
def test_the_snippet_of_the_readme_runs():
    readme = pathlib.Path(__file__).parents[1] / "README.md"
    snippet = readme.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert "mle_star" in snippet
    run(snippet)


def test_public_names_resolve():
    assert rrjax.__all__ == sorted(rrjax.__all__)
    for name in rrjax.__all__:
        assert hasattr(rrjax, name), name
    assert rrjax.__version__.count(".") == 2


def test_types_are_published():
    assert (pathlib.Path(rrjax.__file__).parent / "py.typed").is_file()


def functions_of(name, module):
    # A package says what is public; of a module everything is that it defines. (Examples of io need files.)
    names = (getattr(module, "__all__", None) if name != "io" else None) or [
        inner
        for inner, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not inner.startswith("_")
    ]
    for inner in names:
        thing = getattr(module, inner)
        if inspect.isfunction(thing):
            yield f"{name}.{inner}", thing
        elif inspect.ismodule(thing) and hasattr(thing, "__all__"):
            yield from functions_of(f"{name}.{inner}", thing)


def public():
    for name in rrjax.__all__:
        thing = getattr(rrjax, name)
        if inspect.ismodule(thing):
            yield from functions_of(name, thing)
        else:
            yield name, thing


@pytest.mark.parametrize(("name", "thing"), list(public()), ids=[name for name, _ in public()])
def test_public_names_are_documented(name, thing):
    doc = inspect.getdoc(thing)
    assert doc
    first = doc.splitlines()[0]
    assert first.rstrip().endswith((".", ":")), first
    if inspect.isfunction(thing):
        assert "Args:" in doc
        assert "Returns:" in doc
        for parameter in inspect.signature(thing).parameters:
            assert f"{parameter}:" in doc, parameter
    if not (isinstance(thing, type) and issubclass(thing, tuple)):  # a result has its example where it is made
        assert ">>>" in doc, "no example"


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_documented_and_free_of_module_level_arrays(module):
    import jax

    loaded = importlib.import_module(module)
    assert loaded.__doc__
    arrays = [name for name, value in vars(loaded).items() if isinstance(value, jax.Array)]
    assert not arrays
