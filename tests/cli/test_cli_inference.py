"""Intervals, tests and plans on the command line."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from scipy import stats
from written import write_counts

import rrjax
from rrjax import io
from rrjax.cli import show
from rrjax.inference import discoveries, intervals
from rrjax.inference.distribution_tests import lack_of_fit
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.reports import testing
from rrjax.reports.testing import least_of_any, least_of_one, least_of_shuffles

pytestmark = pytest.mark.once  # nothing here depends on the precision

COUNTS = np.array([5200, 2900, 1000, 900])
DRAWS = ("--draws", "199")


READ = ("--column", "label", "--counts", "n", "--epsilon", "2")


@pytest.mark.full
def test_estimates_come_with_intervals_and_discoveries(invoke):
    write_counts("r.csv", COUNTS)
    result = invoke.json("estimate", "r.csv", *READ, "--level", "0.9", "--out", "e.csv")
    lower, upper = intervals(COUNTS, 2.0, 0.9)
    found = discoveries(COUNTS, 2.0, 0.05)
    assert result["level"] == 0.9
    assert result["num_discovered"] == int(found.sum())
    for index, row in enumerate(result["top"][:2]):
        assert row["lower"] == pytest.approx(float(lower[index]), rel=1e-5)
        assert row["upper"] == pytest.approx(float(upper[index]), rel=1e-5)
        assert row["discovered"] is True
    assert result["top"][3]["discovered"] is False


@pytest.mark.parametrize("command", [pytest.param(each, marks=pytest.mark.full) for each in ("estimate", "compare")])
def test_figures_draw_intervals_that_hold_all_at_once_and_mark_by_them(invoke, monkeypatch, command):
    drawn = {}
    monkeypatch.setattr("rrjax.figures.estimate_figure", lambda *_, **given: drawn.update(given))
    monkeypatch.setattr("rrjax.figures.save", lambda *_: None)
    counts = [300, 240, 205, 60, 60, 60, 60]
    write_counts("r.csv", counts)
    invoke.done(command, "r.csv", *READ, "--plot", "r.png")
    lower, upper = intervals(counts, 2.0, 0.95, simultaneous="bonferroni")
    np.testing.assert_allclose(drawn["limits"], (lower, upper), atol=1e-6)
    assert drawn["discovered"].tolist() == (np.asarray(lower) > 0).tolist()
    assert 0 < drawn["discovered"].sum() < len(counts)
    assert drawn["limits_label"].endswith("all at once")


@pytest.mark.full
def test_an_estimate_outside_its_interval_is_said(invoke):
    # 400 categories beside the one that all users hold.
    counts = np.array([60, *[2] * 200, *[0] * 200])
    io.write_table("r.csv", {"label": np.arange(401), "n": counts})
    line = ("estimate", "r.csv", *READ[:-1], "4")
    for flags, outside in ((("--estimator", "mle-star"), 1), ((), 0)):
        out = invoke.done(*line, *flags)
        warned = [row for row in out.splitlines() if row.startswith("! ") and "believe the interval" in row]
        assert len(warned) == outside
        assert invoke.json(*line, *flags)["num_discovered_outside_interval"] == outside


@pytest.mark.full
def test_a_fit_to_a_given_distribution(invoke):
    write_counts("r.csv", COUNTS)
    write_counts("census.csv", [70, 30, 0, 0])
    line = ("test", "fit", "r.csv", *READ, "--against", "census.csv", "--against-column", "label")
    result = invoke.json(*line, "--against-counts", "n", *DRAWS)
    assert [test["method"].split(",")[0] for test in result["tests"]] == ["likelihood ratio", "Pearson"]
    assert 0.03 < result["tests"][0]["p_value"] < 0.2
    Path("people.csv").write_text("label\n0\n1\nsecret\n")
    code, _, error = invoke(*line[:-3], "people.csv", *line[-2:], *DRAWS)
    assert (code, "secret" in error) == (3, False)
    invoke.refuses("--against", "test", "fit", "r.csv", *READ, "--against-counts", "n")


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "number"), [(3.0, 5), (1.0, 4), (6.0, 8)])
def test_the_least_p_values_that_tests_of_fit_can_have(epsilon, number):
    """Over all outcomes of few reports, by enumeration."""
    from types import SimpleNamespace

    mechanism = rrjax.RandomizedResponse(3, epsilon)
    collection = SimpleNamespace(rates=mechanism.rates_by(math.expm1), num_categories=3, num_reports=number)
    outcomes = [(a, b, number - a - b) for a in range(number + 1) for b in range(number + 1 - a)]
    q = 1 / (math.expm1(epsilon) + 3)
    d = 1 - 3 * q
    fit = jax.vmap(lambda counts: lack_of_fit(counts, jnp.asarray(epsilon, FLOAT)))
    for theta, of_any in (((1, 0, 0), True), ((0.5, 0.3, 0.2), False), ((0.6, 0.2, 0.2), False)):
        law = q + d * np.asarray(theta)
        chance = stats.multinomial.pmf(outcomes, number, law)
        if of_any:
            statistic = np.asarray(fit(np.asarray(outcomes)))
            found = least_of_any(collection)
        else:
            statistic = ((np.asarray(outcomes) - number * law) ** 2 / law).sum(1)
            found = least_of_one(collection, np.asarray(theta))
        largest = statistic >= statistic.max() * (1 - 1e-5)
        assert math.exp(found) == pytest.approx(chance[largest].sum(), rel=1e-4)


@pytest.mark.full
def test_a_test_that_can_find_nothing_says_so(invoke):
    write_counts("few.csv", [60, 30, 10, 0])
    flags = ("--column", "label", "--counts", "n", "--epsilon", "8", *DRAWS, "--json")
    for name, number, can in (("few.csv", 1, False), ("many.csv", 1000, True)):
        write_counts(name, [60 * number, 30 * number, 10 * number, 0])
        (test,) = json.loads(invoke.done("test", "fit", name, *flags))["tests"]
        assert (test["least_p_value"] <= 0.05) == can
        assert ("cannot be found out" in test["answer"]) != can
        assert test["p_value"] >= test["least_p_value"] - 4 * test["standard_error"] - 0.01
    assert math.exp(least_of_shuffles(np.asarray([[1, 0], [0, 1]]))) == pytest.approx(0.5)
    assert least_of_shuffles(np.asarray([[5, 0], [7, 0]])) == 0


@pytest.mark.full
def test_a_trend_and_its_direction(invoke):
    for name, first in (("a", 5200), ("b", 4900), ("c", 4600)):
        write_counts(f"{name}.csv", [first, 8100 - first, 1900])
    line = ("test", "trend", "a.csv", "b.csv", "c.csv", *READ, *DRAWS)
    out = invoke.done(*line, "--category", "a", "--time", "1", "--time", "2", "--time", "4")
    assert "downwards" in out
    for flags in (("--category", "z"), ("--time", "1", "--time", "nan", "--time", "2"), ("--time", "1")):
        invoke.refuses(flags[0], *line, *flags)


@pytest.mark.long
def test_markup_in_names_is_shown(invoke):
    io.write_table("r.csv", {"a[b]": np.arange(40) % 2, "c[/d]": np.arange(40) % 4 // 2})
    line = ("test", "independent", "r.csv", "--column", "a[b]", "--column", "c[/d]", *DRAWS)
    code, out, error = invoke(*line)
    assert code == 0, error
    assert "a[b]" in out
    assert "c[/d]" in out
    assert "'a[b]'" in error
    code, out, error = invoke(*line, "--json")
    assert json.loads(out)["num_categories"] == [2, 2]


@pytest.mark.full
def test_a_simulation_is_bounded_and_its_time_is_said(invoke, monkeypatch):
    """As many categories as take long are simulated less often, unless --draws says how often."""
    write_counts("r.csv", [5200, 2900, 1000, 900])
    monkeypatch.setattr(testing, "MOST_CELLS", 4 * 500)
    monkeypatch.setattr(show, "SECONDS_BETWEEN_LINES", 0.01)
    for flags, draws in (((), 500), (("--draws", 777), 777), (("--significance", 0.005), 1000)):
        code, out, error = invoke("test", "fit", "r.csv", *READ, *flags)
        assert code == 0, error
        assert f"from {draws:,} draws" in out
        assert ("are simulated in place of 9,999" in error) == (draws != 777)
        assert "Testing … (0 s so far)" in error
        found = invoke.json("test", "fit", "r.csv", *READ, *flags)
        assert found["num_draws"] == draws
        assert found["tests"][0]["p_value"] * (draws + 1) == pytest.approx(
            round(found["tests"][0]["p_value"] * (draws + 1)), abs=1e-3
        )
    tables = ("test", "equal", "r.csv", "r.csv", *READ)
    assert invoke.json(*tables)["num_draws"] == 250


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (("a.csv",), "REPORTS"),
        (("a.csv", "b.csv"), "--domain"),
        (("a.csv", "a.csv", "--epsilon", "1", "--epsilon", "3"), "--epsilon"),
        (("a.csv", "a.csv", "--significance", "0.95"), "--significance"),
        (("a.csv", "a.csv", "--significance", "95"), "--significance"),
        (("a.csv", "a.csv", "--significance", "1e-320"), "--significance"),
        (("a.csv", "a.csv", "--draws", "1000000000000"), "--draws"),
        (("a.csv", "c.csv"), "--domain"),
        (("a.parquet", "d.parquet"), "--domain"),
        (("a.csv", "e.csv"), "REPORTS"),
        (("a.csv", "a.csv", "--draws", "9"), "--draws"),
    ],
)
def test_collections_that_cannot_be_compared(invoke, flags, flag):
    write_counts("a.csv", COUNTS)
    write_counts("b.csv", COUNTS[:3])
    write_counts("c.csv", COUNTS, "abcx")
    write_counts("e.csv", np.full(4, 1_500_000_000))
    reports = np.array([0, 1, 2, 3, 3], np.int32)
    for name, labels in (("a.parquet", "abcd"), ("d.parquet", "dcab")):
        about = Metadata(
            MechanismRecord("randomized-response", {"num_categories": 4, "epsilon": 2.0}),
            2.0,
            Domain.of(list(labels)),
            "label",
            True,
            "0",
        )
        io.write_reports(name, reports, about)
    invoke.refuses(flag, "test", "equal", *flags, *(READ if "a.csv" in flags else ()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (("--categories", "10", "--users", "100"), "--epsilon"),
        (("--categories", "1", "--users", "100", "--epsilon", "1"), "--categories"),
        (("--categories", "10", "--users", "10", "--target-width", "0.001"), "--target-width"),
        (("--categories", "3", "--users", "500", "--target-rmse", "0.02"), "--target-rmse"),
        (("--categories", "10", "--epsilon", "1", "--users", "0"), "--users"),
        (("--categories", "10", "--epsilon", "1", "--users", "1" + "0" * 400), "--users"),
        (("--categories", "1" + "0" * 23, "--epsilon", "1", "--users", "10"), "--categories"),
        (("--categories", "10", "--epsilon", "1", "--target-width", "1e-9"), "--target-width"),
        (("--categories", "10", "--epsilon", "1", "--users", "5", "--share", "2"), "--share"),
        (("--categories", "10", "--target-rmse", "5", "--users", "5"), "--target-rmse"),
        (("--categories", "10", "--epsilon", "-1", "--users", "5"), "--epsilon"),
        (("--categories", "10", "--epsilon", "1", "--target-rmse", "0.1", "--target-width", "0.1"), "--target-width"),
    ],
)
def test_plans_that_cannot_be(invoke, flags, flag):
    invoke.refuses(flag, "plan", *flags)


@pytest.mark.long
def test_a_plan_is_for_the_population(invoke):
    """So is the number of people, as the widths are; and an ε that hides hardly anything is said to be one."""
    given = ("plan", "--categories", "3", "--epsilon", "8", "--target-rmse", "0.02")
    result = invoke.json(*given)
    assert 550 < result["num_users"] < 560
    assert result["rmse"] <= 0.02 < 25 * result["rmse_of_users"]
    assert 0.03 < result["share_width"] < 0.1
    for epsilon, warned in (("8", False), ("8.5", True)):
        _, out, error = invoke("plan", "--categories", "3", "--users", "1000", "--epsilon", epsilon)
        assert any(line.startswith("! ") for line in (out + error).splitlines()) == warned
