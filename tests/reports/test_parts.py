"""Several rounds, files that were randomized differently, and two samples: the command line says what answers say."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal  # noqa: E402

import rrjax  # noqa: E402
from rrjax import io  # noqa: E402
from rrjax.data.errors import ArgumentError, DataError, naming_flags  # noqa: E402
from rrjax.io.domain import Domain  # noqa: E402
from rrjax.mechanisms import TWO_SAMPLES, AnchoredCrosswise  # noqa: E402
from rrjax.reports import Groups, Rounds, TwoSampleReports, TwoSampleShares  # noqa: E402
from rrjax.reports.kind import NoSuchQuestion  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
APPS = ["maps", "news", "chat"]
COUNTS = {"sensitive": (1427, 573), "anchor": (1541, 459)}
SAMPLE = "question=sensitive,anchor"
ANCHORED = {"innocuous": 0.15, "anchor": "0.15"}


def checked(invoke, ask, *line):
    """Compares an answer with the JSON and with the file of a command line, and returns it."""
    with naming_flags():
        answer = ask()
        check_outlets(answer, invoke, "estimate", *line, "--top", "10", tolerance=1e-6, absolute=1e-9)
    assert invoke("estimate", *line, "--explain")[0] == 0
    return answer


@pytest.fixture
def collected(invoke):
    """Two rounds of one protocol, and two files of one column that were randomized differently."""
    Path("apps.txt").write_text("\n".join(APPS) + "\n")
    for day in (1, 2):
        apps = np.repeat(APPS, (600, 300, 100))
        io.write_table("values.csv", {"id": np.arange(1000), "app": apps})
        line = ("randomize", "values.csv", "--column", "app", "--domain", "apps.txt", "--seed", day)
        protocol = ("--mechanism", "longitudinal-randomized-response", "--first-epsilon", 2, "--user", "id")
        memo = ("--epsilon", 4, "--memo", "memo.parquet")
        assert invoke(*line, *protocol, *memo, "--out", f"day{day}.parquet")[0] == 0
        assert invoke(*line, "--epsilon", day, "--out", f"way{day}.parquet")[0] == 0
    return invoke


@pytest.mark.long
@pytest.mark.parametrize(("names", "kind"), [("day", Rounds), ("way", Groups)])
def test_parts_say_the_same_in_all_outlets(collected, names, kind):
    files = [f"{names}{place}.parquet" for place in (1, 2)]
    reports = rrjax.read(files)
    assert isinstance(reports, kind)
    assert reports.questions() == ["shares"]
    with pytest.raises(NoSuchQuestion):
        reports.mean()
    shares = checked(collected, lambda: rrjax.read(files).shares(), *files)
    columns = shares.columns
    assert columns["simulated"].all()
    assert len(shares.warnings) == 1  # of both parts, said once
    every = columns[f"all_{shares.reports.part}s"]
    np.testing.assert_allclose(every, [0.6, 0.3, 0.1], atol=0.12)
    assert (columns["lower"] < every).all()
    wider = reports.shares(simultaneous=True).columns
    assert (wider["upper"] > columns["upper"]).all()
    assert len(shares.cells(2).rows) == 2
    assert APPS[0] in repr(shares)
    check_refusal("level", lambda: reports.shares(95))


@pytest.mark.long
def test_a_part_that_contradicts_its_mechanism_is_named(collected):
    reports = rrjax.read(["way1.parquet", "way2.parquet"])
    odd = rrjax.Reports.of_counts([1000, 1000, 0], 0.5, APPS)
    shares = Groups({1: reports.parts[1], 2: odd}).shares()
    assert odd.contradicted
    assert f"Group 2: {odd.warnings[0]}" in shares.warnings


@pytest.mark.long
def test_arguments_that_contradict_the_files_are_refused(collected):
    files = ["day1.parquet", "day2.parquet"]
    with pytest.raises(DataError):
        rrjax.read(files, epsilon=0.1)
    with pytest.raises(ArgumentError):
        rrjax.read(files, mechanism="warner", parameters={"truth_probability": 0.7}, domain=APPS)


@pytest.fixture
def asked(invoke):
    """The answers of two samples."""
    said = [label for yes, no in COUNTS.values() for label in ["same"] * yes + ["other"] * no]
    questions = [name for name, pair in COUNTS.items() for _ in range(sum(pair))]
    io.write_table("two.csv", {"question": np.array(questions), "said": np.array(said)})
    Path("same.txt").write_text("same\nother\n")
    return invoke


def read_two(**changed):
    given = {"column": "said", "domain": "same.txt", "sample": SAMPLE, "mechanism": "anchored-crosswise"}
    return rrjax.read("two.csv", **(given | {"parameters": ANCHORED | {"yes": "same"}} | changed))


@pytest.mark.long
def test_two_samples_say_the_same_in_all_outlets(asked):
    reports = read_two()
    assert isinstance(reports, TwoSampleReports)
    assert reports.counts.tolist() == [list(pair) for pair in COUNTS.values()]
    line = ["two.csv", "--column", "said", "--domain", "same.txt", "--mechanism", "anchored-crosswise"]
    for name, value in {**ANCHORED, "yes": "same"}.items():
        line += ["--parameter", f"{name}={value}"]
    line += ["--sample", SAMPLE, "--same-people"]
    shares = checked(asked, lambda: reports.shares(same_people=True), *line)
    assert f"{shares.numbers['share']:.4f} {shares.numbers['standard_error']:.4f}" == "0.1054 0.0222"
    assert read_two(mechanism=AnchoredCrosswise(0.15, 0.15), parameters={"yes": "same"}).shares().warnings == []
    exchanged = read_two(sample="question=anchor,sensitive").shares()
    assert len(exchanged.warnings) >= 2
    assert SAMPLE in exchanged.warnings[1]


@pytest.mark.long
def test_the_figure_of_two_samples_has_both_unknown_shares(asked):
    pytest.importorskip("matplotlib")
    (axes,) = read_two().shares().figure().axes
    assert len(axes.get_yticks()) == 2
    line = ("two.csv", "--column", "said", "--domain", "same.txt", "--sample", SAMPLE)
    cheating = ("--mechanism", "cheating-detection", "--parameter", "forced=0.25,0.75", "--parameter", "yes=same")
    assert asked("estimate", *line, *cheating, "--plot", "two.png")[0] == 0
    assert Path("two.png").exists()


@pytest.mark.parametrize(
    ("argument", "changed"),
    [
        ("sample", {"sample": None}),
        ("sample", {"sample": "question"}),
        ("sample", {"sample": "question=anchor,anchor"}),
        ("sample", {"sample": "question=anchor,nobody"}),
        ("sample", {"mechanism": "warner", "parameters": {"truth_probability": 0.7}}),
        ("domain", {"domain": None}),
        ("domain", {"domain": ["a", "b", "c"]}),
        ("domain", {"parameters": ANCHORED}),
        ("parameters", {"parameters": ANCHORED | {"yes": "nobody"}}),
        ("column", {"column": None}),
        ("counts", {"counts": "n"}),
        ("epsilon", {"epsilon": 1.0}),
    ],
)
def test_two_samples_are_refused_by_argument(asked, argument, changed):
    check_refusal(argument, lambda: read_two(**changed))


def test_two_samples_of_the_same_people_where_they_must_differ():
    design = TWO_SAMPLES["unrelated-question-two-samples"]([0.7, 0.3])
    sample = ("die", "a", "b")
    reports = TwoSampleReports(design, np.array([[26, 74], [34, 66]]), Domain.of(["yes", "no"]), 0, sample, 1)
    check_refusal("same_people", lambda: reports.shares(same_people=True))
    assert isinstance(reports.shares(), TwoSampleShares)
    assert len(reports.warnings) == 1
