"""Strict settings for the whole suite. JAX_ENABLE_X64 comes from outside; both values must pass."""

import hashlib
import os
import pathlib
from importlib.metadata import version
from importlib.util import find_spec


def compiling_quickly():
    """The value of XLA_FLAGS with which programs are not optimized."""
    given = os.environ.get("XLA_FLAGS", "")
    if not version("jaxlib").startswith("0.10."):  # XLA ends a process over a flag that it does not know
        return given
    flags = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    return given if flags in given else f"{given} {flags}".strip()


# Most of the time goes into compiling thousands of programs that run once, so that is done without optimization.
# `.ci/run` repeats what depends on it, compiled as users do.
if not os.environ.get("RRJAX_TESTS_OPTIMIZED"):
    os.environ["XLA_FLAGS"] = compiling_quickly()
# Every compiled program is kept for the next run, the other workers, and the processes that tests start: a folder for
# each jaxlib and each set of flags.
kept = hashlib.sha256(f"{version('jaxlib')} {os.environ.get('XLA_FLAGS', '')}".encode()).hexdigest()[:12]
compiled = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "compiled" / kept
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Nor do tests leave programs where the user has those of the command line.
os.environ.setdefault("RRJAX_NO_CACHE", "1")
# The command line needs rrjax[cli].
collect_ignore_glob = [] if find_spec("duckdb") and find_spec("typer") else ["cli/test_*.py"]
# A terminal's width, which tests set for themselves; parallel workers are given one.
os.environ.pop("COLUMNS", None)

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from examples import LONG  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("all", derandomize=True, deadline=None, max_examples=100, database=None)
settings.register_profile("quick", settings.get_profile("all"), max_examples=20)


def pytest_configure(config):
    settings.load_profile("quick" if config.option.markexpr == "not long" else "all")
    if jax.config.jax_enable_x64:
        config.option.doctestmodules = False  # examples print what float32 gives
    config.addinivalue_line("filterwarnings", "error")
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(items):
    for item in items:
        is_long_example = isinstance(item, pytest.DoctestItem) and item.name in LONG
        if is_long_example or item.get_closest_marker("full") or item.get_closest_marker("work"):
            item.add_marker(pytest.mark.long)


@pytest.fixture
def urandom(monkeypatch):
    """The random numbers of the operating system, but the same in every run."""
    monkeypatch.setattr("os.urandom", np.random.default_rng(0).bytes)


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forgets compiled programs before there are more than Linux lets a process map (65,530 regions)."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture
def quick_processes(monkeypatch):
    """Processes that the test starts compile quickly: for whole runs whose programs other tests compile as users do."""
    monkeypatch.setenv("XLA_FLAGS", compiling_quickly())


@pytest.fixture
def compilations():
    """A list that grows by one with every program that XLA compiles."""
    events = []

    def listen(event, duration, **kwargs):
        del duration, kwargs
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """`rrjax` in this process, in an empty folder: returns exit code, standard output and standard error.

    `invoke.error` is the error behind the last exit code, if there was one, with its `flag`, `file`, `row`, `value`.
    `invoke.done` is the output of a command that succeeds, `invoke.json` its JSON, read strictly. `invoke.said` is what
    a command says that ends with a code, the first argument; `invoke.refuses` that of one that refuses a flag.
    """
    import json

    from refusals import blames
    from typer.testing import CliRunner

    # rich fixes the width of a terminal whose COLUMNS are set when `show` is imported.
    import rrjax.cli.show  # noqa: F401
    from rrjax.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")

    def call(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        call.error = result.exception and result.exception.__context__
        return result.exit_code, result.stdout, result.stderr

    def done(*arguments):
        code, out, error = call(*arguments)
        assert code == 0, error
        return out

    def said(expected, *arguments):
        code, _, error = call(*arguments)
        assert code == expected, (arguments, error)
        return error

    def refuses(flag, *arguments):
        error = said(2, *arguments)
        assert blames(call.error, flag), (arguments, error)
        return error

    def fail(word):
        pytest.fail(f"{word} is no JSON")

    call.done, call.said, call.refuses = done, said, refuses
    call.json = lambda *arguments: json.loads(done(*arguments, "--json"), parse_constant=fail)
    return call


STUDY = """
num_categories = [4, 5]
num_users = 100
epsilon = 2
zipf = 1.0
num_seeds = 3
estimators = ["inv_n", "inv_p"]
"""


@pytest.fixture
def beside_files(invoke, monkeypatch):
    """`invoke` beside r.csv (reports, covariates), t.csv (their truth) and own.toml (a study), for every command."""
    import numpy as np

    from rrjax import io

    rng = np.random.default_rng(0)
    columns = {
        "answer": rng.choice(4, 2000, p=[0.45, 0.28, 0.15, 0.12]),
        "age": rng.integers(20, 60, 2000),
        "region": np.asarray(["north", "south"], object)[rng.integers(0, 2, 2000)],
    }
    io.write_table("r.csv", columns)
    io.write_table("t.csv", {"label": np.arange(4), "n": np.asarray([60, 30, 8, 2])})
    pathlib.Path("own.toml").write_text(STUDY)
    # JAX cannot be configured once more, and what is drawn and written is not looked at there.
    monkeypatch.setattr("rrjax.cli.study.Machine.settle", lambda self: None)
    monkeypatch.setattr("rrjax.cli.study._write", lambda *_: [pathlib.Path("report.html")])
    return invoke
