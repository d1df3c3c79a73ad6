"""All estimators side by side, in a notebook and at the command line."""

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal  # noqa: E402

import rrjax  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
LABELS = ["red", "green", "blue"]
COUNTS = [600, 250, 150]
TRUTH = [70, 20, 10]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    polars.DataFrame({"colour": LABELS, "n": COUNTS}).write_csv("r.csv")
    polars.DataFrame({"colour": [label for label, n in zip(LABELS, TRUTH, strict=True) for _ in range(n)]}).write_csv(
        "truth.csv"
    )
    (tmp_path / "colours.txt").write_text("\n".join(LABELS))
    return rrjax.read("r.csv", column="colour", counts="n", epsilon=2.0, domain="colours.txt")


@pytest.mark.long
@pytest.mark.parametrize("truth", [None, "truth.csv"])
def test_the_command_line_says_what_the_answer_says(table, invoke, truth):
    answer = table.compare(truth, level=0.9)
    flags = ("--level", "0.9", *(("--truth", truth) if truth else ()))
    read = ("r.csv", "--column", "colour", "--counts", "n", "--epsilon", "2", "--domain", "colours.txt")
    rounded = {"tolerance": 1e-6, "absolute": 1e-9, "skipped": ("certificate",)}
    check_outlets(answer, invoke, "compare", *read, *flags, **rounded)


@pytest.mark.long
def test_true_values_are_shares_however_they_are_given(table):
    named = {"green": 20, "red": 70, "blue": 10}
    found = [
        table.compare(truth, estimators=["inv_p"])
        for truth in (TRUTH, np.array(TRUTH) / 100, named, "truth.csv", {"red": 0.7, "green": 0.2, "blue": 0.1})
    ]
    for each in found:
        np.testing.assert_allclose(each.columns["truth"], [0.7, 0.2, 0.1], rtol=1e-12)
        assert each.errors[0] == pytest.approx(found[0].errors[0])
    assert table.compare(estimators="inv_p").truth is None


@pytest.mark.long
def test_few_or_the_leading_estimators_are_shown(table):
    everything = table.compare()
    assert len(everything.shown) < len(everything.estimates)
    assert set(everything.columns) == {"label", "count", *(each.estimator.name for each in everything.estimates)}
    two = table.compare(estimators=["inv", "inv_n", "inv"])
    assert [each.estimator.name for each in two.shown] == ["inv", "inv_n"]
    assert len(two.blocks()[0].rows) == 2
    assert len(two.blocks(1)[-1].rows) == 1


@pytest.mark.long
def test_reports_that_contradict_their_mechanism_say_so():
    found = rrjax.Reports.of_counts([1000, 1000, 1000, 0], 0.5).compare(estimators=["inv"])
    assert len(found.warnings) == len(found.to_dict()["warnings"]) == 1


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("truth", {"truth": [1, 2]}),
        ("truth", {"truth": [1, -2, 3]}),
        ("truth", {"truth": [0, 0, 0]}),
        ("truth", {"truth": [0.5, 0.2, 0.1]}),
        ("truth", {"truth": [1, np.nan, 3]}),
        ("truth", {"truth": ["a", "b", "c"]}),
        ("truth", {"truth": {"secret": 1, "red": 2}}),
        ("level", {"level": 95}),
        ("estimators", {"estimators": ["best"]}),
        ("ordered", {"estimators": ["inv"], "ordered": True}),
    ],
)
def test_errors_name_the_argument_and_no_true_value(argument, asked):
    refused = check_refusal(argument, lambda: rrjax.Reports.of_counts(COUNTS, 2.0, LABELS).compare(**asked))
    assert "secret" not in str(refused)


def test_estimators_that_these_reports_do_not_allow():
    oue = rrjax.mechanisms.OptimizedUnaryEncoding(2, epsilon=2.0)
    reports = rrjax.Reports.of_tally(rrjax.Tally([388, 230], 1000, rates=oue.rates), oue)
    assert "estimator=" not in str(check_refusal("estimators", lambda: reports.compare(estimators=["mle"])))
