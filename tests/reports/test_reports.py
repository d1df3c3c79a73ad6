"""Reports that a notebook holds: what the command line says, and what people try first, works or says what to do."""

import os
from functools import partial
from pathlib import Path
from threading import Barrier

import jax
import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal  # noqa: E402
from refusals import refused  # noqa: E402

import rrjax  # noqa: E402
from rrjax import io  # noqa: E402
from rrjax import reports as answers  # noqa: E402
from rrjax.data.errors import ArgumentError, DataError  # noqa: E402
from rrjax.mechanisms import DESIGNS, MECHANISMS  # noqa: E402
from rrjax.reports.shares import side_by_side  # noqa: E402
from rrjax.reports.testing import check_contradictions  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
LABELS = ["red", "green", "blue", "<b>grey</b>"]
COUNTS = [600, 250, 150, 40]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [label for label, count in zip(LABELS, COUNTS, strict=True) for _ in range(count)]
    (tmp_path / "r.csv").write_text("colour\n" + "\n".join(rows) + "\n")
    (tmp_path / "colours.txt").write_text("\n".join(LABELS) + "\n")
    return polars.DataFrame({"colour": rows})


@pytest.mark.long
def test_files_frames_and_counts_give_one_answer(table):
    read = rrjax.read("r.csv", epsilon=2.0, domain=LABELS).shares()
    counted = table.group_by("colour").len("n")
    halves = [[600, 0, 0, 40], [0, 250, 150, 0]]
    one, other = (rrjax.Reports.of_counts(each, 2.0, LABELS, column="colour") for each in halves)
    for reports in (
        rrjax.read(["r.csv"], epsilon=2.0, domain="colours.txt", column="colour"),
        rrjax.read(table, epsilon=2.0, domain=LABELS),
        rrjax.read(table.lazy(), epsilon=2.0, domain=LABELS),
        rrjax.read(counted, epsilon=2.0, domain=LABELS, counts="n"),
        rrjax.Reports.of_counts(COUNTS, 2.0, LABELS, column="colour"),
        one + other,
    ):
        assert reports.shares().to_dict() | {"reports": None} == read.to_dict() | {"reports": None}


QUESTIONS = {
    "levels": lambda reports: reports.by("region", group={"warm": ["red"]}),
    "weights": lambda reports: reports.group({"warm": ["red"]}, weights="weight"),
    "regression": lambda reports: reports.regress(covariates=["weight", "region"], drop_missing=True),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("question", "design", "change"),
    [
        *[("levels", design, change) for design in (False, True) for change in ("order", "counts", "frame")],
        *[("weights", False, change) for change in ("order", "counts", "frame")],
        ("regression", False, "order"),
        ("regression", True, "frame"),
    ],
)
def test_rows_are_those_that_were_counted(tmp_path, question, design, change):
    """Shares of one state of the data and levels of another one would belong to nobody."""
    columns = {"colour": ["red"] * 60 + ["tan"] * 40, "region": ["n", "s"] * 50, "weight": [1.0, 2, 3, 4] * 25}
    frame, path = polars.DataFrame(columns).to_pandas(), tmp_path / "r.csv"
    frame.to_csv(path, index=False)
    made = {"mechanism": rrjax.mechanisms.ForcedResponse(0.8, [0.5, 0.5])} if design else {"epsilon": 1.0}
    given = frame if change == "frame" else path
    reports = rrjax.read(given, column="colour", domain=["red", "tan"], **made)
    if change == "frame":
        frame.loc[0, "colour"] = "tan"
    elif change == "order":
        frame.sample(frac=1, random_state=0).to_csv(path, index=False)
    else:  # in a file of the same size, time and number
        time = path.stat().st_mtime_ns
        path.write_text(path.read_text().replace("red", "tan", 1))
        os.utime(path, ns=(time, time))
    with refused(error=DataError, file=reports.files.files()[0]):
        QUESTIONS[question](reports)


@pytest.mark.long
def test_answers_by_respondent_are_those_that_were_counted(tmp_path):
    columns = {"answer": ["no", "yes"] * 60, "truth": ["0.2"] * 60 + ["0.8"] * 60, "age": [*range(60)] * 2}
    frame, path = polars.DataFrame(columns), tmp_path / "r.csv"
    frame.write_csv(path)
    made = {"mechanism": "warner", "parameters": {"truth_probability": "@truth"}}
    reports = rrjax.read(path, column="answer", domain=["no", "yes"], **made)
    frame.reverse().write_csv(path)
    with refused(error=DataError, file=str(path)):
        reports.regress(covariates=["age"])


@pytest.mark.long
def test_coded_reports_are_those_that_were_counted(tmp_path, invoke):
    text = "a,g\n" + "x,n\ny,s\nx,s\n" * 60
    for place in range(2):
        (tmp_path / f"{place}.csv").write_text(text)
        line = (
            "--column",
            "a",
            "--domain",
            "x,y",
            "--epsilon",
            1,
            "--mechanism",
            "oue",
            "--keep",
            "g",
            "--seed",
            place,
        )
        invoke.done("randomize", f"{place}.csv", *line, "--out", f"{place}.parquet")
    reports = rrjax.read("0.parquet")
    assert reports.by("g").columns["num_reports"][0] == 180
    (tmp_path / "1.parquet").replace(tmp_path / "0.parquet")
    with refused(error=DataError, file="0.parquet"):
        reports.by("g")


def test_counts_have_no_rows_to_regress_on(table):
    reports = rrjax.read(table.group_by("colour").len("n"), column="colour", domain=LABELS, epsilon=2.0, counts="n")
    with refused("counts"):
        reports.regress(covariates=["n"])


@pytest.mark.long
def test_values_that_are_no_labels_are_named():
    pandas = pytest.importorskip("pandas")
    times = pandas.date_range("2020-01-01", periods=100, tz="Europe/Paris")
    frame = pandas.DataFrame({"a": ["x", "y"] * 50, "band": pandas.cut(range(100), 4), "day": times[[0, 1] * 50]})
    frame["month"] = frame["day"].dt.tz_localize(None).dt.to_period("M")
    frame["stamp"] = frame["day"].astype("category")
    frame["kind"] = pandas.Categorical(frame["month"])
    for column in ("band", "stamp"):
        with refused(error=DataError):  # no TypeError
            rrjax.read(frame, column=column, epsilon=1.0)
    with refused(error=DataError):
        rrjax.read(frame, column="a", domain=list(frame["band"].cat.categories), epsilon=1.0)
    reports = rrjax.read(frame, column="a", epsilon=1.0)
    for column in ("band", "month", "kind"):
        with refused(error=DataError, column=column) as told:
            reports.by(column, group=["x"])
        assert "randomize" not in str(told.value)  # which no file of bands comes from
    assert {"2020-01-01 00:00:00", "2020-01-02 00:00:00"} < set(reports.by("day", group=["x"]).columns["of"])


@pytest.mark.long
def test_estimates_that_agree_are_reported():
    answer = rrjax.Reports.of_counts([500300, 499700], 2.0, ["no", "yes"]).shares()
    assert not answer.cautions  # the reports show that the shares are equal
    assert '"closest"' in answer.advice
    assert "unknown" not in answer.to_publish


@pytest.mark.full
@pytest.mark.parametrize(
    ("question", "design"),
    [("levels", False), ("levels", True), ("weights", False), ("regression", False), ("regression", True)],
)
def test_other_columns_of_a_frame_are_those_of_a_file(tmp_path, question, design):
    rng = np.random.default_rng(0)
    frame = polars.DataFrame(
        {
            "colour": rng.choice(["red", "blue", "?"], 900, p=[0.5, 0.45, 0.05]),
            "region": rng.choice(["north", "south", None], 900),
            "weight": rng.uniform(0.5, 2, 900),
        }
    )
    frame.write_parquet(tmp_path / "r.parquet")
    made = {"mechanism": rrjax.mechanisms.ForcedResponse(0.8, [0.5, 0.5])} if design else {"epsilon": 1.0}
    asked = {"column": "colour", "domain": ["red", "blue"], "missing": "?", **made}
    expected = QUESTIONS[question](rrjax.read(tmp_path / "r.parquet", **asked)).columns
    for given in (frame, frame.lazy(), frame.to_pandas(), frame.to_arrow()):
        found = QUESTIONS[question](rrjax.read(given, **asked)).columns
        assert list(found) == list(expected)
        for name, column in expected.items():
            np.testing.assert_array_equal(found[name], column)


def test_what_is_wrong_in_a_frame_is_said_of_it():
    frame = polars.DataFrame({"colour": ["red", "blue"] * 9, "region": ["north", "south"] * 9})
    reports = rrjax.read(frame, column="colour", domain=["red", "blue"], epsilon=1.0)
    with refused(error=DataError, column="regions") as told:
        reports.by("regions", group={"warm": ["red"]})
    assert str(told.value).startswith("the data frame: there is no column 'regions'; did you mean 'region'?")
    mixed = frame.to_pandas().assign(region=[1, "south"] * 9)
    with refused("data", error=DataError):
        rrjax.read(mixed, column="colour", domain=["red", "blue"], epsilon=1.0).by("region", group={"warm": ["red"]})
    with refused("counts"):
        rrjax.read(frame.group_by("colour").len("n"), domain=["red", "blue"], epsilon=1.0, counts="n").by(
            "region", group={"warm": ["red"]}
        )


@pytest.mark.full
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"simultaneous": True, "level": 0.8, "fdr": 0.2},
        {"estimator": "inv_p"},
        {"looks": "any", "tuned_to": 500},
        {"fakes": True, "fdr": 0.1},
    ],
)
def test_the_command_line_says_what_the_answer_says(table, invoke, more):
    answer = rrjax.read("r.csv", epsilon=4.0, domain="colours.txt").shares(**more)
    named = {"simultaneous": ("--at-once",), "looks": ("--at-any-time",), "fakes": ("--fakes",)}
    flags = [named.get(key, (f"--{key.replace('_', '-')}", str(value))) for key, value in more.items()]
    asked = ("estimate", "r.csv", "--epsilon", "4", "--domain", "colours.txt", *sum(flags, ()))
    check_outlets(answer, invoke, *asked, "--top", "10", tolerance=1e-12, skipped=("certificate",))
    assert all(set(each.certificate) == set(rrjax.Certificate._fields) for each in answer.estimates)


@pytest.mark.long
def test_answers_for_any_time_have_its_limits_everywhere():
    counts = [600, 250, 150, 140]
    reports = rrjax.Reports.of_counts(counts, 2.0)
    shares = reports.shares(looks="any", tuned_to=300, simultaneous=True)
    with jax.enable_x64(True):
        wanted = rrjax.inference.intervals(counts, 2.0, simultaneous="bonferroni", looks="any", tuned_to=300)
    np.testing.assert_array_equal(shares.columns["upper"], wanted.upper)
    np.testing.assert_array_equal(shares.columns["discovered"], np.asarray(wanted.lower) > 0)
    limits = " – ".join(f"{100 * float(each[0]):.2f}" for each in wanted)
    assert f"{limits}\N{NO-BREAK SPACE}%" in reports.shares(looks="any", tuned_to=300).to_publish
    usual = reports.shares(simultaneous=True)
    assert (shares.columns["upper"] > usual.columns["upper"]).all()
    assert len(shares.sentences) == len(usual.sentences) + 1
    assert shares.facts["tuned_to"] == 300
    assert reports.shares(looks="any").facts["tuned_to"] == 10_000
    (axes, *_) = shares.figure().axes
    drawn = np.concatenate([np.asarray(each)[:, 0] for part in axes.collections for each in part.get_segments()])
    assert np.isclose(drawn, float(wanted.upper[0]), atol=1e-9).any()


@pytest.mark.full
@pytest.mark.parametrize("made", ["randomized response", "unary encoding"])
def test_so_many_fakes_change_a_mark_and_no_fewer(made):
    counts = np.asarray([600, 250, 140, 100, 60])
    oue = rrjax.mechanisms.OptimizedUnaryEncoding(5, epsilon=2.0)

    def reports(changed, number):
        if made == "randomized response":
            return rrjax.Reports.of_counts(changed, 2.0)
        return rrjax.Reports.of_tally(rrjax.Tally(changed, number, rates=oue.rates), oue)

    number = int(counts.sum())
    shares = reports(counts, number).shares(fakes=True)
    marked, fakes = shares.columns["discovered"], shares.columns["fakes"]
    assert 0 < marked.sum() < 5
    for place, (mark, many) in enumerate(zip(marked, fakes, strict=True)):
        # The other marks are taken as they are: the step-up method compares with this rank.
        bound = 0.05 * (marked.sum() + (not mark)) / 5
        for fewer in (0, 1):
            moved = (many - fewer) * (-1 if mark else 1)
            tally = reports(counts + moved * (np.arange(5) == place), number + moved).tally()
            assert (float(rrjax.inference.p_values(tally)[place]) <= bound) == (mark if fewer else not mark)
    assert f"{fakes[marked].min():,} of" in shares.words["fakes"]
    assert reports(counts, number).shares(looks="any").words["fakes"] == ""


@pytest.mark.long
def test_questions_compute_in_float64_and_change_no_setting():
    before = jax.config.jax_enable_x64
    shares = rrjax.Reports.of_counts(COUNTS, 2.0).shares()
    assert shares.columns["closest"].dtype == shares.columns["lower"].dtype == np.float64
    assert jax.config.jax_enable_x64 == before
    assert shares.estimates[1].certificate["gap"] < 1e-12


@pytest.mark.long
def test_frames_and_arrow_hold_the_whole_table(table):
    import duckdb

    shares = rrjax.read(table, epsilon=2.0, domain=LABELS).shares()
    assert shares.to_polars().columns == list(shares.to_pandas().columns) == list(shares.columns)
    assert shares.to_polars()["label"].to_list() == LABELS
    assert float(shares.to_xarray().closest.sel(label="red")) == shares.columns["closest"][0]
    assert duckdb.sql("select sum(count) from shares").fetchall() == [(sum(COUNTS),)]


@pytest.mark.long
def test_the_figure_calls_estimates_as_the_table_does():
    pytest.importorskip("matplotlib")
    shares = rrjax.Reports.of_counts(COUNTS, 2.0).shares()
    (legend,) = shares.figure().legends
    assert {"closest", "likeliest"} <= {text.get_text() for text in legend.get_texts()}


@pytest.mark.full
def test_a_notebook_shows_the_table_and_no_markup_of_labels(table):
    shares = rrjax.read(table, epsilon=2.0, domain=LABELS).shares()
    page = shares._repr_html_()
    assert "&lt;b&gt;grey" in page
    assert "<b>grey" not in page
    assert "\\x" not in page  # spaces before units are no control characters
    assert len(repr(shares).splitlines()) < 20
    many = rrjax.Reports.of_counts(np.arange(1, 5001), 2.0).shares()
    assert len(repr(many).splitlines()) < 30


ODD = ["50%_#${}~^&", "[18,30)", "*", "a\\b\tc"]


@pytest.mark.long
def test_a_table_for_latex_is_that_of_the_terminal(tmp_path, invoke):
    pytest.importorskip("tabulate", reason="tables of LaTeX need rrjax[tables]")
    shares = rrjax.Reports.of_counts([600, 250, 150, 140], 2.0, ODD).shares()
    shares.write(tmp_path / "s.tex", top=3)
    lines = (tmp_path / "s.tex").read_text("utf-8").splitlines()
    assert lines[0] == f"% {shares.title}"
    shown = [line for line in lines if line and not line.startswith("%")]
    assert shown[0] == r"\begin{tabular}{lrrrrrr}"
    assert "interval" in shown[2]
    rows = [line.removesuffix(r" \\").strip() for line in shown[4:-2]]
    labels = [r"50\%\_\#\$\{\}\textasciitilde{}\^{}\&", "{}[18,30)", "{}*"]
    for row, label, cells in zip(rows, labels, shares.cells(3).rows, strict=True):
        numbers = [cell.replace("%", r"\%").replace("●", r"$\bullet$") for cell in cells[1:-1]]
        assert [cell.strip() for cell in row.removeprefix(label).split(" & ")] == ["", *numbers]
    assert lines[lines.index(r"\end{tabular}") + 1] == f"% {shares.cells(3).rest}"
    assert shares.to_latex().count(r"a\textbackslash{}b") == 1
    paired = rrjax.Reports.of_counts([5, 6, 7, 8], 2.0, ["18---24", "a''", "``b", "?`!`"]).shares().to_latex()
    for label in ("18-{}-{}-24", "a'{}'", "`{}`b", "?{}`!{}`"):  # or TeX makes dashes, quotes and other marks of them
        assert label in paired
    io.write_table(tmp_path / "c.csv", {"answer": np.array(ODD), "n": np.array([600, 250, 150, 140])})
    line = ("estimate", tmp_path / "c.csv", "--counts", "n", "--epsilon", 2, "--top", 3, "--out", tmp_path / "c.tex")
    invoke.done(*line)
    assert [each for each in (tmp_path / "c.tex").read_text("utf-8").splitlines() if " & " in each] == [
        line for line in lines if " & " in line
    ]


@pytest.mark.long
def test_reports_that_contradict_their_mechanism_say_so_and_advise_nothing():
    shares = rrjax.Reports.of_counts([1000, 1000, 1000, 0], 0.5).shares()
    assert shares.reports.contradicted
    assert shares.advice is None
    assert shares.to_publish == ""
    assert len(shares.warnings) == 1
    assert len(shares.reports.shares().warnings) == 1  # tested once


@pytest.mark.long
@pytest.mark.parametrize("name", ["optimized-unary-encoding", "subset-selection"])
def test_tallies_of_parts_add_up(name):
    mechanism = MECHANISMS[name](4, 2.0)
    tallies = [mechanism.collect(jax.random.key(seed), np.array([50, 30, 15, 5])) for seed in range(2)]
    one, other = (rrjax.Reports.of_tally(tally, mechanism) for tally in tallies)
    assert (one + other).num_reports == 200
    assert (one + other).shares().reports.counts.tolist() == (one.counts + other.counts).tolist()


@pytest.mark.full
def test_a_survey_design_by_name_and_by_itself():
    frame = polars.DataFrame({"smokes": ["yes"] * 420 + ["no"] * 580})
    named = rrjax.read(frame, domain=["no", "yes"], mechanism="warner", parameters={"truth_probability": "0.7"})
    made = DESIGNS["warner"](0.7)
    itself = rrjax.Reports.of_counts([420, 580], made, ["yes", "no"], column="smokes")
    share = named.shares().columns["likeliest"]
    # (share of yes − .3) / (.7 − .3), in the order of the domain.
    np.testing.assert_allclose(share, [0.7, 0.3], atol=1e-6)
    np.testing.assert_allclose(itself.shares().columns["likeliest"], share[::-1], atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(
    ("argument", "make"),
    [
        ("epsilon", lambda: rrjax.read("r.csv", domain=LABELS)),
        ("epsilon", lambda: rrjax.read("r.csv", domain=LABELS, epsilon=-1.0)),
        ("epsilon", lambda: rrjax.read("r.csv", domain=LABELS, epsilon=1.0, mechanism="kuk", parameters={})),
        ("mechanism", lambda: rrjax.read("r.csv", domain=LABELS, mechanism="nonsense")),
        ("parameters", lambda: rrjax.read("r.csv", domain=LABELS, epsilon=1.0, parameters={"truth": 0.5})),
        ("domain", lambda: rrjax.read("r.csv", mechanism="forced-response", parameters={"truth": 0.5})),
        ("counts", lambda: rrjax.Reports.of_counts([1.5, 2], 1.0)),
        ("domain", lambda: rrjax.Reports.of_counts([1, 2], 1.0, ["a", "b", "c"])),
        ("level", lambda: rrjax.Reports.of_counts([1, 2], 1.0).shares(95)),
        ("estimator", lambda: rrjax.Reports.of_counts([1, 2], 1.0).shares(estimator="best")),
        ("ordered", lambda: rrjax.Reports.of_counts([1, 2], 1.0).shares(estimator="inv", ordered=True)),
        ("looks", lambda: rrjax.Reports.of_counts([1, 2], 1.0).shares(looks="daily")),
        ("tuned_to", lambda: rrjax.Reports.of_counts([1, 2], 1.0).shares(tuned_to=100)),
        ("tuned_to", lambda: rrjax.Reports.of_counts([1, 2], 1.0).shares(looks="any", tuned_to=0)),
        ("fakes", lambda: rrjax.Reports.of_counts([1, 2], 1.0).shares(looks="any", fakes=True)),
        ("top", lambda: rrjax.Reports.of_counts([1, 2], 1.0).shares().cells(0)),
        ("epsilon", lambda: rrjax.Reports.of_counts([1, 2], "one")),
        ("epsilon", lambda: rrjax.Reports.of_counts([1, 2], True)),
        ("counts", lambda: rrjax.Reports.of_counts(np.array([2**63, 5], np.uint64), 1.0)),
        ("epsilon_or_mechanism", lambda: rrjax.Reports.of_counts([1, 2], MECHANISMS["hadamard-response"](2, 1.0))),
        ("data", lambda: rrjax.read([])),
        ("header", lambda: rrjax.read(polars.DataFrame({"x": ["a"]}), epsilon=1.0, header=False)),
    ],
)
def test_errors_name_the_argument(table, argument, make):
    check_refusal(argument, make)


@pytest.mark.long
def test_reports_that_are_not_others_are_not_added(table, invoke):
    for name, seed in (("real", ()), ("drawn", ("--seed", "1"))):
        line = ("randomize", "r.csv", "--epsilon", "2", "--domain", "colours.txt", *seed, "--out", f"{name}.parquet")
        assert invoke(*line)[0] == 0
    Path("copy.csv").write_bytes(Path("r.csv").read_bytes())
    real, drawn = rrjax.read("real.parquet"), rrjax.read("drawn.parquet")
    plain, copy, again = (rrjax.read(file, epsilon=2.0) for file in ("r.csv", "copy.csv", "r.csv"))
    for one, other in ((real, real), (real, drawn), (drawn, real), (plain, copy), (plain, again)):
        with pytest.raises(ArgumentError):
            one + other
    Path("more.csv").write_text(Path("r.csv").read_text() + "red\n")
    both = sum([plain, rrjax.read("more.csv", epsilon=2.0)])
    assert both.num_reports == 2 * sum(COUNTS) + 1
    assert len(both.paths) == 2


@pytest.mark.long
def test_files_that_are_read_in_different_ways_are_not_added(tmp_path):
    """One way of reading would take the `?` of the second file for a region."""
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("answer;region\n" + "yes;north\nno;south\n" * 9)
    second.write_text("answer;region\n" + "yes;?\nno;north\n" * 5)
    asked = {"column": "answer", "epsilon": 1.0, "domain": ["yes", "no"], "delimiter": ";"}
    one, other = rrjax.read(first, **asked), rrjax.read(second, missing=["?"], **asked)
    for pair in ((one, other), (other, one)):
        with pytest.raises(ArgumentError):
            sum(pair)
    alike = one + rrjax.read(second, **asked)
    assert alike.counts.tolist() == [14, 14]
    assert "?" in alike.by("region", group="yes").columns["of"]


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "shown"), [(5.0, True), (1.0, False)])
def test_equal_shares_that_the_reports_show_rest_on_no_assumption(epsilon, shown):
    found = rrjax.Reports.of_counts([500, 501, 499, 500], epsilon).shares()
    assert found.estimate.undetermined == (not shown)
    assert bool(found.cautions) == (not shown)
    assert ("intervals, not an estimate" in found.advice) == (not shown)


def test_files_that_are_read_alike_in_other_words_are_added(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("answer\n" + "yes\nno\n" * (7 + ord(name)))
    asked = {"epsilon": 1.0, "domain": ["yes", "no"]}
    one = rrjax.read(tmp_path / "a.csv", missing=["?"], **asked)
    other = {"column": "answer", "header": True, "delimiter": ",", "missing": ["", "?", "?"]}
    both = one + rrjax.read(tmp_path / "b.csv", **other, **asked)
    assert both.counts.tolist() == [104 + 105] * 2


def test_a_tally_keeps_its_labels_and_its_rates():
    oue = MECHANISMS["optimized-unary-encoding"](2, 2.0)
    tally = rrjax.Tally([388, 230], 1000, rates=oue.rates, domain=["no", "yes"])
    assert rrjax.Reports.of_tally(tally, oue).labels.tolist() == ["no", "yes"]
    for given in ({"domain": ["yes", "no"]}, {"mechanism": MECHANISMS["optimized-unary-encoding"](2, 3.0)}):
        with pytest.raises(ArgumentError) as caught:
            rrjax.Reports.of_tally(tally, **({"mechanism": oue} | given))
        assert [caught.value.argument] == list(given)


@pytest.mark.full
def test_the_yes_of_a_design_is_that_of_the_domain():
    kuk = DESIGNS["kuk"](have=0.8, lack=0.3)
    frame = polars.DataFrame({"smokes": ["yes"] * 700 + ["no"] * 300})
    with pytest.raises(ArgumentError) as caught:
        rrjax.read(frame, domain=["no", "yes"], mechanism=kuk)
    assert caught.value.argument == "mechanism"
    asked = {"mechanism": "kuk", "parameters": {"have": 0.8, "lack": 0.3}}
    for domain in (["no", "yes"], ["yes", "no"]):
        shares = rrjax.read(frame, domain=domain, **asked).shares()
        assert shares.columns["likeliest"][domain.index("yes")] == pytest.approx(0.8, abs=1e-6)
        assert shares.to_publish.startswith("80.00")
    with pytest.raises(ArgumentError):
        rrjax.read(frame, **asked)  # not without a domain


@pytest.mark.long
def test_contradictions_are_known_before_a_question():
    reports = rrjax.Reports.of_counts([10_000, 1, 1], 1.0)
    assert reports.contradicted
    assert len(reports.warnings) == 1


@pytest.mark.long
def test_arrays_go_back_in_the_precision_at_hand():
    made = DESIGNS["forced-response"](0.5, [0.2, 0.3, 0.5])
    reports = rrjax.Reports.of_counts([200, 300, 500], made)
    assert rrjax.inv(reports.tally()).dtype == jax.numpy.result_type(float)
    assert rrjax.Reports.of_counts([60, 40], rrjax.RandomizedResponse(2, 1.0)).epsilon == pytest.approx(1)


def test_a_file_that_is_not_there():
    with pytest.raises(DataError):
        rrjax.read("nowhere.csv", epsilon=1.0)


def test_reports_of_different_making_are_not_added():
    one = rrjax.Reports.of_counts([10, 20], 1.0)
    for other in (
        rrjax.Reports.of_counts([10, 20], 2.0),
        rrjax.Reports.of_counts([10, 20], 1.0, ["a", "b"]),
        rrjax.Reports.of_counts([10, 20], 1.0, column="other"),
        rrjax.Reports.of_counts([10, 20], DESIGNS["warner"](0.7)),
    ):
        with pytest.raises(ArgumentError):
            one + other


@pytest.mark.long
def test_an_answer_does_not_depend_on_the_questions_before():
    first, second = (rrjax.Reports.of_counts([400, 300, 300], 1.0) for _ in range(2))
    assert not second.contradicted
    assert first.test_fit(draws=19).to_dict() == second.test_fit(draws=19).to_dict()


@pytest.mark.long
def test_columns_of_a_file_that_was_replaced_are_refused(invoke):
    """They had the ε of the file before."""
    Path("v.csv").write_text("a,b\n" + "0,1\n1,1\n0,0\n" * 30)
    line = ("randomize", "v.csv", "--apart", "--column", "a", "--column", "b", "--domain", "0:1", "--domain", "0:1")
    for epsilon, out in ((6, "r.parquet"), (0.2, "other.parquet")):
        invoke.done(*line, "--epsilon", epsilon, "--seed", "1", "--out", out)
    reports = rrjax.read("r.parquet")
    Path("other.parquet").replace("r.parquet")
    with refused(error=rrjax.io.DataError, file="r.parquet"):
        reports.column("a")


@pytest.mark.full
def test_columns_that_were_randomized_separately(tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    rows = ["a,b", *(f"{'yes' if place % 3 else 'no'},{place % 4}" for place in range(400))]
    (tmp_path / "v.csv").write_text("\n".join(rows) + "\n")
    made = ("randomize", "v.csv", "--apart", "--column", "a", "--column", "b", "--epsilon", "4", "--seed", "1")
    assert invoke(*made, "--out", "r.parquet")[0] == 0
    found = rrjax.read("r.parquet")
    assert "simulation" in repr(found)
    joint, named = found.joint("a,b"), found.joint(["a", "b"])
    assert joint.to_dict() == named.to_dict()
    assert joint.columns["simulated"].all()
    assert found.tree().columns["simulated"].all()
    test = answers.test_independence(found, ["a", "b"], draws=99)
    assert not [warning for warning in test.warnings if "domains=" in warning]
    with pytest.raises(ArgumentError):
        answers.test_independence(found, ["a", "b"], [["no", "yes"], ["0", "1"]], draws=99)
    with pytest.raises(ArgumentError):
        found.pairs(level=3)


@pytest.mark.long
def test_questions_side_by_side_warn_of_a_contradiction_once(monkeypatch):
    barrier, test = Barrier(2), rrjax.inference.contradiction_test

    def at_the_same_time(*given):
        barrier.wait(60)
        return test(*given)

    monkeypatch.setattr(rrjax.inference, "contradiction_test", at_the_same_time)
    reports = rrjax.Reports.of_counts([10_000, 1, 1], 1.0)
    side_by_side([partial(check_contradictions, reports)] * 2)
    assert len(reports.warnings) == 1
