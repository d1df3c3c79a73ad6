"""Statistical tests of reports, in a notebook and at the command line."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal

import rrjax
from rrjax import io, reports
from rrjax.io.domain import Domain
from rrjax.mechanisms import DESIGNS

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
LABELS = ["red", "green", "blue"]
COUNTS = {"first": [600, 250, 150], "second": [500, 300, 200], "third": [450, 300, 250]}
DRAWS = {"draws": 199, "seed": 3}
FLAGS = ("--draws", "199", "--seed", "3")
READ = ("--column", "colour", "--counts", "n", "--epsilon", "2", "--domain", "colours.txt")


@pytest.fixture
def collections(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("colours.txt").write_text("\n".join(LABELS) + "\n")
    for name, counts in COUNTS.items():
        io.write_table(f"{name}.csv", {"colour": np.array(LABELS), "n": np.array(counts)})
    io.write_table("pairs.csv", {"a": np.arange(60) % 2, "b": np.arange(60) % 4 // 2})
    given = {"epsilon": 2.0, "domain": "colours.txt", "column": "colour", "counts": "n"}
    return [rrjax.read(f"{name}.csv", **given) for name in COUNTS]


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "ask"),
    [
        (("fit", "first.csv", *READ), lambda one, *_: one.test_fit(**DRAWS)),
        (
            ("fit", "first.csv", *READ, "--against", "second.csv", "--against-column", "colour"),
            lambda one, *_: one.test_fit([0.5, 0.3, 0.2], **DRAWS),
        ),
        (("equal", "first.csv", "second.csv", *READ), lambda *all_of: reports.test_equal(all_of[:2], **DRAWS)),
        (
            ("trend", "first.csv", "second.csv", "third.csv", *READ, "--category", "red"),
            lambda *all_of: reports.test_trend(all_of, category="red", **DRAWS),
        ),
        (
            ("independent", "pairs.csv", "--column", "a", "--column", "b"),
            lambda *_: reports.test_independence("pairs.csv", ["a", "b"], **DRAWS),
        ),
    ],
    ids=["any fit", "fit", "equal", "trend", "independent"],
)
def test_the_command_line_says_what_the_answer_says(collections, invoke, line, ask):
    more = ("--against-counts", "n") if "--against" in line else ()
    answer = ask(*collections)
    check_outlets(answer, invoke, "test", *line, *more, *FLAGS, tolerance=1e-12, spelt=("warnings",), out=False)
    assert answer.to_polars()["p_value"].to_list() == [test["p_value"] for test in answer.to_dict()["tests"]]
    code, out, error = invoke("test", *line, *more, *FLAGS)
    assert code == 0, error
    assert all(outcome.question in out for outcome in answer.outcomes)


@pytest.mark.long
def test_tests_of_a_design_are_exact():
    design = DESIGNS["forced-response"](2 / 3, [1 / 2, 1 / 2])
    one, other = (rrjax.Reports.of_counts(counts, design, ["yes", "no"]) for counts in ([420, 580], [520, 480]))
    for answer, label in (
        (one.test_fit([0.5, 0.5]), "yes"),
        (reports.test_equal([one, other]), "yes"),
        (reports.test_trend([one, other], category="yes", draws=999), "yes"),
    ):
        (outcome,) = answer.outcomes
        assert outcome.rejected
        assert outcome.category == answer.columns["category"][0] == label
    assert not one.test_fit([0.5, 0.5]).outcomes[0].simulated


@pytest.mark.long
def test_collections_without_files_have_numbers():
    one, other = (rrjax.Reports.of_counts(counts, 2.0, LABELS) for counts in ([0, 0, 500], COUNTS["first"]))
    answer = reports.test_equal([one, other], draws=99)
    assert len(answer.title.splitlines()) == 2
    assert [warning.partition(":")[0] for warning in answer.warnings] == ["collection 1"]  # which contradicts its ε
    assert len(reports.test_equal([one, other], draws=99).warnings) == 1  # tested once
    assert answer.outcomes[0].question in answer._repr_html_()


@pytest.mark.long
def test_pairs_that_are_randomized_as_one():
    answers = Domain.of(["no", "yes"])
    pairs = rrjax.Reports.of_counts([500, 150, 150, 200], 2.0, Domain.product(answers, answers))
    for columns in ([], ["smokes", "drinks"]):
        answer = reports.test_independence(pairs, columns, draws=199)
        assert answer.outcomes[0].rejected
        assert answer.facts["num_categories"] == [2, 2]
    assert answer.facts["columns"] == ["smokes", "drinks"]


@pytest.mark.parametrize(
    ("argument", "ask"),
    [
        ("significance", lambda one, *_: one.test_fit(significance=0.95)),
        ("significance", lambda one, *_: one.test_fit(significance=5)),
        ("draws", lambda one, *_: one.test_fit(draws=9)),
        ("draws", lambda one, *_: one.test_fit(draws=10**9)),
        ("seed", lambda one, *_: one.test_fit(seed=-1)),
        ("theta", lambda one, *_: one.test_fit([0.5, 0.5], draws=99)),
        ("collections", lambda one, *_: reports.test_equal([one])),
        ("domain", lambda one, *_: reports.test_equal([one, rrjax.Reports.of_counts([1, 2], 1.0)])),
        ("times", lambda *all_of: reports.test_trend(all_of, [1, 2])),
        ("times", lambda *all_of: reports.test_trend(all_of, [1, 1, 1])),
        ("category", lambda *all_of: reports.test_trend(all_of, category="rde")),
        ("data", lambda one, *_: reports.test_independence(one)),
        ("columns", lambda *_: reports.test_independence("pairs.csv")),
        ("columns", lambda *_: reports.test_independence("pairs.csv", ["a"])),
        ("domains", lambda *_: reports.test_independence("pairs.csv", ["a", "b"], ["0:1"])),
    ],
)
def test_errors_name_the_argument(collections, argument, ask):
    check_refusal(argument, lambda: ask(*collections))
