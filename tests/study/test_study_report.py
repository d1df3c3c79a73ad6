"""What a study tells: who wins, how long it took, what its settings were, how far it is."""

import io
import json
import re
from html import unescape

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")
pytest.importorskip("xarray", reason="studies need xarray")
pytest.importorskip("typer")

import jax
import xarray as xr
from rich.console import Console
from studies import study as made_up

import rrjax.study.tile
from rrjax import figures
from rrjax.cli.running import Bar, progress_bar
from rrjax.cli.show import Lines
from rrjax.figures import files
from rrjax.study import Study, drawings
from rrjax.study.arguments import Progress
from rrjax.study.checkpoint import computing_time
from rrjax.study.report import ranking, ranking_note, ranking_rows, write_report

pytestmark = pytest.mark.once  # nothing here depends on the precision

EPS = float(np.finfo(np.float32).eps)


def compared(values, precision="float32", metric="mse", error=0.0):
    """A dataset of values [estimators, configurations], with paired differences of this standard error."""
    values = np.asarray(values, float)
    names = ["mle_star", "inv_n", "empirical_bayes"][: len(values)]
    pair = values[:, None] - values[None]
    return xr.Dataset(
        {
            metric: (("estimator", "num_users"), values),
            f"{metric}_difference": (("estimator", "versus", "num_users"), pair),
            f"{metric}_difference_se": (("estimator", "versus", "num_users"), np.full_like(pair, error)),
        },
        {"estimator": names, "versus": names, "num_users": 10 ** np.arange(values.shape[1])},
        {"precision": precision},
    )


@pytest.mark.parametrize(
    ("metric", "best", "factor", "shared"),
    [
        ("mse", 1e-2, 1 + 5 * EPS, True),
        ("mse", 1e-2, 1 + 1e-4, False),
        ("mse", 1e-8, 1 + 5e-4, True),  # of shares that are rounded: eps/√1e-8 = 1.2e-3
        ("mse", 1e-8, 1 + 5e-3, False),
        ("nll", 4.0, 1 + 7 * EPS, True),
        ("nll", 4.0, 1 + 20 * EPS, False),
        ("tv", 1e-6, 1 + 0.1, True),
        ("tv", 1e-3, 1 + 1e-3, False),
        ("mine", 1e-8, 1 + 7 * EPS, True),
        ("mine", 1e-8, 1 + 5e-4, False),  # of what it is made is not known
    ],
)
def test_what_rounding_makes_is_no_win(metric, best, factor, shared):
    dataset = compared([[best * factor, 1.0], [best, 2.0]], metric=metric)
    ranked = ranking(dataset, metric)
    assert ranked["best"].values.tolist() == ([2, 1] if shared else [1, 1])
    assert ranked["shared"].values.tolist() == ([1, 1] if shared else [0, 0])
    assert ranked["worst"].values.tolist() == ([0, 1] if shared else [1, 1])
    assert ranked["beyond"].values.tolist() == ([0, 1] if shared else [1, 1])  # standard errors are zero
    # In double precision the same difference is one.
    assert ranking(dataset.assign_attrs(precision="float64"), metric).attrs["num_shared"] == 0


def test_a_map_of_wins_has_no_sign_for_rounding():
    values = np.reshape([[1e-2 * (1 + 5 * EPS), 1e-2 / 2], [1e-2, 1e-2]], (2, 1, 2, 1, 1))
    names, dims = ["mle_star", "inv_n"], ("estimator", "num_categories", "num_users", "epsilon", "zipf")
    dataset = xr.Dataset(
        {
            "mse": (dims, values),
            "mse_difference": ((dims[0], "versus", *dims[1:]), values[:, None] - values[None]),
            "mse_difference_se": ((dims[0], "versus", *dims[1:]), 0 * (values[:, None] - values[None])),
        },
        {"estimator": names, "versus": names, "num_users": [10, 100], "epsilon": [1.0], "zipf": [1.3]},
        {"precision": "float32"},
    )
    for given in (dataset, dataset[["mse"]]):
        figure = figures.wins(given, estimator="mle_star")
        assert [text.get_text() for text in figure.axes[0].texts] == ["−"]
        assert "1 win and 0 losses in 2 configurations" in " ".join(figure.get_suptitle().split())
        assert "equal up to rounding" in " ".join(figure.legends[0].get_title().get_text().split())


def test_ties_are_said():
    ranked = ranking(compared([[1.0, 2.0, 3.0], [1.0, 2.0, 2.0], [2.0, 3.0, 4.0]]))
    assert int(ranked["best"].sum()) == 5  # in three configurations
    assert ranking_note(ranked) == (
        "In 2 of 3 configurations the best share the win: no further apart than float32 rounds."
    )
    rows = {row["estimator"]: (row["best"], row["shared"]) for row in ranking_rows(ranked)}
    assert rows == {"MLE*": ("2 of 3", "2"), "InvN": ("3 of 3", "2"), "Emp. Bayes": ("0 of 3", "0")}
    apart = ranking(compared([[1.0, 2.0], [2.0, 1.0]]))
    assert ranking_note(apart) == ""
    assert "shared" not in ranking_rows(apart)[0]


def text_of(page):
    """A page as it is read, its tables' cells with bars between them."""
    page = re.sub(r"<style>.*?</style>|base64,[A-Za-z0-9+/=]+", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", "", re.sub(r"</t[hd]>\s*<t[hd][^>]*>", " | ", page)))


def test_a_report_tells_settings_in_words(tmp_path):
    dataset = made_up().assign_attrs(
        estimators=json.dumps({"mle_star": "rrjax.estimators.closed_form.mle_star", "mine": "own.mine#5cb0a9dd4e3b"}),
        metrics=json.dumps({"mse": "", "nll": ""}),
        num_users=json.dumps([100, 10_000, 1_000_000]),
        precision="float32",
        platform="gpu",
        devices="1 × H100",
        rrjax="0.1",
        jax="0.2",
        jaxlib="0.3",
        seconds=61.25,
        runs=3,
        nested=json.dumps({"a": [1, 2], "b": "", "c": None}),
        empty="",
    )
    dataset["mse"][{"estimator": 1}] = dataset["mse"][{"estimator": 0}]
    given = dataset.isel(zipf=0, drop=True).expand_dims(distribution=["visits"])
    given.attrs |= {"users": json.dumps({"visits": ["0123456789abcdef"]})}
    page = write_report(tmp_path / "r.html", title="x", summary={}, datasets={"one": dataset, "two": given}).read_text()
    text = text_of(page)
    for row in (
        "estimators | InvN, MLE*, mine, Emp. Bayes, InvP",
        "names of one's own | mine (own.mine#5cb0a9dd4e3b)",
        "users N | 100; 10,000; 1,000,000",
        "estimates are compared with | the histogram of the users drawn, who vary from seed to seed",
        "estimates are compared with | the histogram of the users given",
        "digests of the users given | visits: 0123456789abcdef",
        "computed with | rrjax 0.1, jax 0.2, jaxlib 0.3",
        "devices | 1 × H100",
        "computing time | 61.2 s, in 3 runs",
        "nested | a: 1, 2; b; c",
        "random seed | 3",
    ):
        assert row in text, row
    assert re.search(r"metrics \| mean squared error.*; negative log-likelihood.*; squared bias.*; variance", text)
    assert not re.search(r'[{}\[\]]|""', text.split("Rankings")[0])
    assert not re.search(r"\| *$", text, re.MULTILINE)  # no setting without a value
    assert "the best share the win: no further apart than float32 rounds." in text


class StopError(Exception):
    pass


@pytest.mark.long
def test_the_seconds_of_all_runs_are_told(tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setitem(rrjax.study.tile._CELLS, "cpu", 2**8)  # one configuration a tile
    grid = {"num_categories": 3, "num_users": 10, "epsilon": [1.0, 2.0, 3.0], "zipf": 1.0}
    study = Study(estimators="inv_n", **grid, num_seeds=2, metrics=["mse"])
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))

    def stop(progress):
        if progress.done > progress.resumed:
            raise StopError

    def run(**arguments):
        result = study.run(folder=tmp_path, batch_size=1, **arguments)
        return result, {name: result.attrs.get(name) for name in ("seconds", "runs")}

    def kept():
        return json.loads((tmp_path / "checkpoint" / "runs.json").read_text())["seconds"]

    with pytest.raises(StopError):
        run(progress=stop, devices=jax.devices()[:1])
    first = kept()
    assert len(first) == 1
    assert first[0] > 0
    whole, told = run(devices=jax.devices()[:1])
    assert len(kept()) == 2
    assert kept()[0] == first[0]
    assert told == {"seconds": sum(kept()), "runs": 2}
    assert computing_time([whole.attrs]) == f"{sum(kept()):.1f} s, in 2 runs"
    # A run that finds all of it there has taken no part.
    again, same = run()
    assert same == told
    np.testing.assert_array_equal(again["mse"], whole["mse"])
    # A missing or damaged file: no time is known.
    for content in (None, "[", '{"seconds": "x"}'):
        file = tmp_path / "checkpoint" / "runs.json"
        file.unlink() if content is None else file.write_text(content)
        older, told = run()
        assert told == {"seconds": 0.0, "runs": 0}
        assert computing_time([older.attrs]) == "not known"
    part = sorted((tmp_path / "checkpoint").glob("k3-*.npz"))[-1]
    part.unlink()
    # A run that computes a part does not know the time of the others.
    mended, told = run(devices=jax.devices()[:1])
    assert told == {"seconds": 0.0, "runs": 0}
    assert computing_time([mended.attrs]) == "not known"
    np.testing.assert_array_equal(mended["mse"], whole["mse"])
    assert "runs" not in json.loads((tmp_path / "checkpoint" / "study.json").read_text())


@pytest.mark.long
def test_a_run_that_ends_right_after_its_first_part_is_told(tmp_path, monkeypatch):
    study = Study(estimators="inv_n", num_categories=3, num_users=10, epsilon=1.0, zipf=1.0, num_seeds=2)
    write = rrjax.study.checkpoint._write

    def write_and_end(file, how):
        write(file, how)
        if file.suffix == ".npz":
            raise StopError

    monkeypatch.setattr("rrjax.study.checkpoint._write", write_and_end)
    with pytest.raises(StopError):
        study.run(folder=tmp_path)
    monkeypatch.undo()
    assert len(list((tmp_path / "checkpoint").glob("k3-*.npz"))) == 1
    # Nothing is left to compute, and the time is that of the run that ended.
    told = study.run(folder=tmp_path).attrs
    assert told["runs"] == 1
    assert told["seconds"] > 0


def test_a_study_without_a_folder_is_one_run():
    assert computing_time([{"seconds": 1234.56}], 1.0) == "1,235.6 s"
    assert computing_time([]) == "0.0 s"


@pytest.mark.full
def test_the_command_line_tells_ages_and_all_seconds(tmp_path, invoke, monkeypatch):
    monkeypatch.setattr("rrjax.cli.study.Machine.settle", lambda self: None)
    grid = {"distribution": ["ages"], "num_categories": [3], "num_users": [4], "epsilon": [2.0]}
    result = made_up(**grid).assign_attrs(seconds=1061.25, runs=2, devices="1 × cpu", precision="float32")
    result["mse"][{"estimator": 1}] = result["mse"][{"estimator": 0}]
    monkeypatch.setattr(Study, "run", lambda self, **given: result)
    (tmp_path / "ages.csv").write_text("age\n" + "17\n18\n18\n19\n")
    drawn = []
    real_data = drawings.real_data
    monkeypatch.setattr(
        drawings, "real_data", lambda *given, **named: drawn.append(named) or real_data(*given, **named)
    )
    labels = "🦄" if files._font_with(frozenset("🦄")) is None else ""
    monkeypatch.setattr(files, "_warned", set())
    command = ["study", "data", "ages.csv", "--epsilon", 2, "--num-seeds", 2, "--out", "out"]
    code, said, _ = invoke(*command, "--domain", "17:19")
    assert code == 0
    np.testing.assert_array_equal(drawn[0]["labels"]["ages"], [17, 18, 19])
    assert "Computing: 1,061.2 s, in 2 runs" in said
    assert "In 1 of 1 configuration the best share the win: no further apart than float32 rounds." in said
    text = text_of((tmp_path / "out" / "report.html").read_text())
    assert text.count("computing time | 1,061.2 s, in 2 runs") == 2
    (tmp_path / "ages.csv").write_text(f"age\nold\n{labels}young\n{labels}young\nall\n")
    code, record, complaint = invoke(*command, "--json")
    assert code == 0
    assert json.loads(record)["seconds"] == 1061.25
    assert ("Warning: no installed font has these emoji characters: 🦄" in complaint) == bool(labels)


def seen(bar):
    """What the bar shows."""
    console = Console(width=120, file=io.StringIO())
    console.print(bar.get_renderable())
    return console.file.getvalue()


def test_no_time_is_left_before_one_is_known():
    bar = progress_bar()
    line = Bar(bar, Lines("study"), "study", "study")
    for begin in (None, Progress(0, 100, 0, 0.0)):
        if begin is not None:
            line(begin)
        assert "study: compiling …" in seen(bar)
        assert "%" not in seen(bar)
        assert "left" not in seen(bar)
    line(Progress(10, 100, 0, 20.0))  # of which the compiler took most
    assert "compiling" not in seen(bar)
    assert "10 %" in seen(bar)
    assert "left" not in seen(bar)
    line(Progress(20, 100, 0, 21.0))
    assert "20 %" in seen(bar)
    assert "0:00:08 left" in seen(bar)


def test_a_resumed_study_shows_what_is_there():
    bar = progress_bar()
    line = Bar(bar, Lines("study"), "study", "study")
    line(Progress(40, 100, 40, 0.0))
    assert "study: compiling …" in seen(bar)
    assert "40 %" in seen(bar)
    assert "left" not in seen(bar)
    line(Progress(100, 100, 40, 9.0))
    assert "100 %" in seen(bar)
    finished = progress_bar()
    Bar(finished, Lines("study"), "study", "study")(Progress(100, 100, 100, 0.0))
    assert "compiling" not in seen(finished)
    em = progress_bar()
    em.add_task("Figure 4: EM", total=None, rate="")
    assert "%" not in seen(em)
