"""Means, quantiles and groups in a notebook: the numbers and words of the command line, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal  # noqa: E402

import rrjax  # noqa: E402
from rrjax.data.errors import ArgumentError, DataError  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
READ = ("--column", "visits", "--epsilon", "2", "--domain", "0:5")
COUNTS = [400, 300, 200, 100]


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """Reports with a public column, of which one value is missing, and weights."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    region = rng.choice(["north", "south"], 900).tolist()
    region[7] = None
    visits = np.minimum(rng.poisson(2, 900), 5)
    columns = {"visits": visits, "region": region, "weight": rng.uniform(0.5, 2, 900)}
    polars.DataFrame(columns).write_csv("s.csv")
    Path("p.csv").write_text("region,people\nsouth,100\nnorth,300\n")
    return rrjax.read("s.csv", column="visits", epsilon=2.0, domain="0:5")


@pytest.mark.long
@pytest.mark.parametrize(
    ("ask", "flags"),
    [
        (
            lambda reports: reports.statements(mean=True, quantile=[0.5, 0.9], group="often=3:9", level=0.9),
            ("--mean", "--quantile", "0.5", "--quantile", "0.9", "--group", "often=3:9", "--level", "0.9"),
        ),
        (
            lambda reports: reports.by("region", mean=True, population={"north": 3, "south": 1}, normal=True),
            ("--by", "region", "--mean", "--population", "p.csv", "--normal"),
        ),
        (
            lambda reports: reports.group({"few": [0, 1]}, by="region", weights="weight"),
            ("--group", "few=0,1", "--by", "region", "--weights", "weight"),
        ),
        (lambda reports: reports.statements(top=2), None),
    ],
)
def test_the_command_line_says_what_the_answer_says(survey, invoke, ask, flags):
    answer = ask(survey)
    assert answer.columns["value"].dtype == np.float64
    if flags is not None:
        check_outlets(answer, invoke, "estimate", "s.csv", *READ, *flags)
    assert len(repr(answer).splitlines()) < 30
    assert answer.title in repr(answer)


@pytest.mark.long
def test_quantiles_of_labels_are_texts_and_of_integers_numbers():
    named = rrjax.Reports.of_counts(COUNTS, 2.0, ["none", "one", "2", "more"]).quantile(0.5)
    numbered = rrjax.Reports.of_counts(COUNTS, 2.0).quantile(0.5)
    assert named.columns["value"].tolist() == ["one"]
    assert numbered.columns["value"].tolist() == [1]
    with pytest.raises(ArgumentError) as caught:
        named.figure()
    assert caught.value.argument == "plot"


def test_groups_are_texts_or_labels_by_name():
    reports = rrjax.Reports.of_counts(COUNTS, 2.0)
    found = reports.group("a=2,3", "2:3", {"b": [2, 3], "c": range(2, 4), "d": "2:3"}, "e=2:inf")
    assert len(set(found.columns["value"].tolist())) == 1
    assert not found.warnings
    odd = rrjax.Reports.of_counts(COUNTS, 2.0, ["a=b", "a,b", "1:2", "c"])
    assert odd.group("a=b", "x=a,b", "1:2").columns["statement"].tolist() == ["a=b", "x", "1:2"]


@pytest.mark.parametrize("held", ["2:9", "-3:1", "3:1000"])
def test_a_range_beyond_the_domain_is_said(held):
    found = rrjax.Reports.of_counts(COUNTS, 2.0).group(f"x={held}")
    assert len(found.warnings) == len(found.notes) == 1
    assert found.facts["warnings"] == found.warnings


@pytest.mark.long
def test_reports_that_contradict_their_mechanism_say_so():
    found = rrjax.Reports.of_counts([1000, 0, 0, 0], 1.0).statements(mean=True, group="x=1")
    assert len(found.warnings) == len(found.cautions) == 1
    assert np.isnan(found.columns["lower"]).all()
    assert found.facts["num_contradicted"] == 2


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("quantile", {"quantile": 50}),
        ("quantile", {"quantile": 0.5, "weights": "weight"}),
        ("population", {"mean": True, "population": "p.csv"}),
        ("population", {"by": "region", "weights": "weight", "population": "p.csv"}),
        ("population", {"by": "region", "quantile": 0.5, "population": "p.csv"}),
        ("population", {"by": "region", "population": {"north": 1}}),
        ("population", {"by": "region", "population": {"north": 1, "south": 1, "west": 1}}),
        ("population", {"by": "region", "population": {"north": -1, "south": 1}}),
        ("group", {"group": "x=7:9"}),
        ("group", {"group": {"x": [1, 12]}}),
        ("group", {"group": ["x=1", "x=2"]}),
        ("by", {"by": "visits"}),
        ("by", {"by": "weight"}),
        ("level", {"mean": True, "level": 95}),
        ("top", {"top": 0}),
        ("top", {"group": "x=1", "top": 3}),
        ("normal", {"quantile": 0.5, "normal": True}),
    ],
)
def test_errors_name_the_argument(survey, argument, asked):
    check_refusal(argument, lambda: survey.statements(**asked))


def test_columns_of_reports_that_were_counted_are_refused(survey):
    with pytest.raises(ArgumentError):
        rrjax.Reports.of_counts(COUNTS, 2.0).by("region")
    with pytest.raises(ArgumentError):
        rrjax.Reports.of_counts(COUNTS, 2.0, list("abcd")).mean()
    with pytest.raises(DataError):
        survey.by("land")
