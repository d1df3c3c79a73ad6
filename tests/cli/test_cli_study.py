"""`rrjax study` as a user runs it."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from cases import X64

from rrjax.data.errors import StudyError
from rrjax.study.arguments import Progress

xr = pytest.importorskip("xarray")

pytestmark = pytest.mark.once  # nothing here depends on the precision


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Compiled programs, for the processes that the tests start."""
    return tmp_path_factory.mktemp("compiled")


def start(*arguments, cache=None, cwd=None):
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    if cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-m", "rrjax", "study", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, cwd=cwd)


def rrjax(*arguments, code=0, **options):
    with start(*arguments, **options) as process:
        said, complaint = process.communicate()
    assert process.returncode == code, said + complaint
    return " ".join((said if code == 0 else complaint).split())


TOML = """
num_categories = 20
num_users = [100, 1000]
epsilon = [1, 2]
zipf = [0.5, 1.5]
num_seeds = 20
seed = 3
quantiles = [0.25, 0.75]

[estimators]
inv_n = "inv_n"
mine = "mine:smoothed"
"""
MODULE = """
def smoothed(counts, epsilon):
    import rrjax
    return 0.9 * rrjax.inv_n(counts, epsilon) + 0.1 / counts.shape[0]
"""


@pytest.fixture
def settled(invoke, monkeypatch):
    """`invoke`, with JAX left as it is: it cannot be configured once more."""
    monkeypatch.setattr("rrjax.cli.study.Machine.settle", lambda self: None)
    return invoke


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # that of another test, of the same process
    (tmp_path / "own.toml").write_text(TOML)
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path / "own.toml"


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_a_study_of_ones_own(own, tmp_path, cache):
    out = tmp_path / "out"
    # Killed while it writes tables and figures, it goes on.
    with start(own, "--out", out, cache=cache) as process:
        while process.poll() is None and not (out / "study.nc").exists():
            time.sleep(0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    (out / "figures").mkdir(exist_ok=True)
    (out / "figures" / ".rrjax-0123456789abcdef.png").write_bytes(b"unfinished")
    said = rrjax(own, "--out", out, cache=cache)
    assert "study: 8 configurations × 20 seeds, inv_n, mine" in said
    assert "Report:" in said
    names = {file.name for file in out.iterdir()}
    assert {"study.nc", "study.parquet", "study-differences.parquet", "report.html", "figures", "study"} <= names
    with xr.open_dataset(out / "study.nc", engine="h5netcdf") as dataset:
        assert dataset.mse.dims == ("estimator", "num_categories", "num_users", "epsilon", "zipf")
        assert dataset.attrs["seed"] == 3
        assert dataset.attrs["precision"] == ("float64" if X64 else "float32")  # as the environment wishes
        assert dataset["quantile"].values.tolist() == [0.25, 0.75]
        first = dataset.mse.load()
    import duckdb

    rows = duckdb.sql(f"select * from '{out / 'study.parquet'}' where estimator = 'mine' order by num_users, epsilon")
    assert len(rows.fetchall()) == 8
    assert {"mse", "mse_se", "nll", "nll_se", "zipf"} <= set(rows.columns)
    for name in ("overview-mse", "overview-nll"):
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    report = (out / "report.html").read_text()
    assert "own.toml" in report
    # Again: nothing left to compute, the same numbers; as JSON, on one device.
    record = json.loads(rrjax(own, "--out", out, "--json", "--devices", 1, cache=cache))
    assert record["what"].endswith("own.toml")
    with xr.open_dataset(out / "study.nc", engine="h5netcdf") as dataset:
        np.testing.assert_array_equal(dataset.mse, first)
    # Another study is refused, and nothing of it is lost.
    complaint = rrjax(own, "--out", out, "--num-seeds", 21, code=2)
    assert "holds another study: num_seeds is 21, there 20" in complaint
    assert (out / "study.nc").exists()


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_a_file_of_true_values(tmp_path, cache):
    values = np.repeat(np.arange(20), np.arange(20, 0, -1))
    (tmp_path / ".values.csv").write_text("\n".join(["page", *map(str, values)]))  # of which the point is no part
    out = tmp_path / "out"
    arguments = [
        "data",
        tmp_path / ".values.csv",
        "--column",
        "page",
        "--domain",
        "0:19",
        "--epsilon",
        1,
        "--epsilon",
        2,
    ]
    said = rrjax(*arguments, "--num-seeds", 10, "--estimator", "inv_n", "--estimator", "inv", "--out", out, cache=cache)
    assert "values: 2 configurations × 10 seeds" in said
    with xr.open_dataset(out / "values.nc", engine="h5netcdf") as dataset:
        assert dataset.num_users.values.tolist() == [210]
        assert dataset.attrs["estimand"] == "users"
        assert "users" in dataset.attrs
    assert (out / "figures" / "data-values.png").exists()


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_a_flag_comes_before_what_a_file_says(own, tmp_path, cache):
    record = rrjax(own, "--seed", 9, "--num-seeds", 2, "--json", cache=cache, cwd=tmp_path)
    assert json.loads(record)["what"].endswith("own.toml")
    # The folder is called after the file.
    with xr.open_dataset(tmp_path / "rrjax-study-own" / "study.nc", engine="h5netcdf") as dataset:
        assert dataset.attrs["seed"] == 9
        assert dataset.attrs["num_seeds"] == 2


@pytest.mark.parametrize(
    ("arguments", "flag", "value"),
    [
        (["papers"], None, "papers"),
        (["paper", "--figure", 11], "--figure", 11),
        (["paper", "--figure", 3], "--figure", 3),
        (["quick", "--figure", 1], "--figure", None),
        (["quick", "extra.csv"], None, "extra.csv"),
        (["quick", "--epsilon", 1], "--epsilon", None),
        (["quick", "--estimator", "mly"], "--estimator", "mly"),
        (["quick", "--num-seeds", 1], "--num-seeds", 1),
        (["quick", "--devices", 0], "--devices", 0),
        (["quick", "--processes", 2], "--processes", None),
        *((["quick", "--coordinator", at], "--coordinator", at) for at in ("localhost", "localhost:0", "a:65536")),
        (["quick", "--timeout", 60], "--timeout", None),
        (["paper", "--figure", 1, "--kosarak", "k.dat"], "--kosarak", None),
        (["quick", "--domain", "1:3"], "--domain", None),
        (["quick", "--items", "all"], "--items", None),
        (["quick", "--estimator", "inv", "--estimator", "INV"], "--estimator", ["inv", "INV"]),
        (["data"], None, None),
    ],
)
def test_wrong_flags_are_explained(arguments, flag, value, tmp_path, settled):
    code, _, complaint = settled("study", *arguments)
    assert code == 2
    assert (settled.error.flag, settled.error.value) == (flag, value)
    assert flag is None or flag in complaint
    assert list(tmp_path.iterdir()) == []


def test_another_spelling_of_the_number_of_seeds_is_told_the_right_one(settled):
    assert settled("study", "quick", "--seeds", 20)[0] == 2
    assert "--num-seeds" in settled.error.possibilities


def test_memory_is_a_number(settled):
    assert settled("study", "quick", "--memory", "nan")[0] == 2
    assert settled.error.flag == "--memory"


def test_warnings_of_a_run_are_said_in_words(settled, own, monkeypatch):
    def run(self, **arguments):
        warnings.warn("k20-0-1.npz is damaged.", stacklevel=2)
        raise StudyError("another study", argument="folder", file=arguments["folder"])

    monkeypatch.setattr("rrjax.study.Study.run", run)
    code, _, said = settled("study", own, "--out", "out")
    assert code == 2
    assert said.splitlines()[0] == "Warning: k20-0-1.npz is damaged."
    assert "warn(" not in said
    assert settled.error.flag == "--out"
    assert settled.error.file.as_posix() == "out/study"


@pytest.mark.long
def test_a_run_says_how_far_it_is_where_no_terminal_shows_it(settled, own, monkeypatch):
    """A line before the first batch, and one with the part that is done and the time that is left."""

    def run(self, folder, progress, **arguments):
        for done, seconds in ((0, 0), (25, 10.0), (50, 70.0)):
            progress(Progress(done, 100, 0, seconds))
            time.sleep(0.2)
        raise StudyError("another study", argument="folder", file=folder)

    monkeypatch.setattr("rrjax.study.Study.run", run)
    monkeypatch.setattr("rrjax.cli.show.SECONDS_BETWEEN_LINES", 0.02)
    code, _, said = settled("study", own, "--out", "out")
    assert code == 2
    for part in ("compiling … (0 s so far)", ": 25 % (0 s so far)", ": 50 %, 0:02:00 left (0 s so far)"):
        assert part in said.replace("\N{NO-BREAK SPACE}", " ")


def test_a_study_that_is_not_there(settled):
    code, _, complaint = settled("study", "missing.toml")
    assert code == 3
    assert str(settled.error.file) == "missing.toml"
    assert "missing.toml" in complaint


@pytest.mark.parametrize(
    ("change", "argument", "value"),
    [
        (("epsilon", "epsilom"), "epsilom", None),
        (("epsilon = [1, 2]", ""), "epsilon", None),
        (("mine:smoothed", "mine:other"), "estimators", "mine:other"),
        (("mine:smoothed", "nowhere:other"), "estimators", "nowhere:other"),
        (("= 20\n", "= = 20\n"), None, None),
        (("num_users = [100, 1000]", "num_users = [0]"), "num_users", 0),
    ],
)
def test_wrong_files_are_explained(own, change, argument, value, settled):
    own.write_text(TOML.replace(*change))
    code, _, complaint = settled("study", own, "--out", "out")
    assert code == 3
    assert (settled.error.argument, settled.error.value, settled.error.file) == (argument, value, own)
    assert "own.toml" in complaint


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_figures_of_the_paper(tmp_path, cache):
    said = rrjax("paper", "--figure", 1, "--num-seeds", 4, "--out", tmp_path, cache=cache)
    assert "study: 15 configurations × 4 seeds" in said
    assert (tmp_path / "figures" / "figure-1.pdf").exists()
    report = (tmp_path / "report.html").read_text()
    assert "Ranking by" in report
    assert base64.b64encode((tmp_path / "figures" / "figure-1.png").read_bytes()).decode() in report


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_quick(tmp_path):
    said = rrjax("quick", "--num-seeds", 4, "--out", tmp_path)
    assert "Emp. Bayes" in said
    assert {"overview-mse.png", "empirical-bayes.png"} <= {file.name for file in (tmp_path / "figures").iterdir()}
