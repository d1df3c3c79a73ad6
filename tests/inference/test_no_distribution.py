"""Reports that no distribution explains have no interval: limits are NaN beside an estimate, and never cross."""

import jax
import numpy as np
import pytest
from cases import FLOAT, INT, X64

import rrjax
from rrjax import Tally
from rrjax.inference import (
    difference,
    intervals,
    linear_functional,
    quantile,
    stratified,
    survey_estimate,
)

NUMBERS = np.asarray([0, 1, 2, 3], FLOAT)
LAST = np.asarray([False, False, False, True])
DESIGN = rrjax.mechanisms.ForcedResponse(0.5, [0.25] * 4)
ONE_ANSWER = np.asarray([0, 0, 0, 1000], INT)
"""Impossible at ε = 1, and of the design: chance alone names each category."""


def has_no_interval(found):
    limits = np.asarray([found.lower, found.upper])
    value = getattr(found, "value", 0.0)
    return bool(np.isnan(limits).all() and np.isfinite(value).all())


@pytest.mark.long
@pytest.mark.parametrize("each", [900, 30])
def test_tallies_with_too_many_or_too_few_supports(each):
    tally = Tally([each] * 4, num_users=1000, p=0.9, q=0.1)
    assert has_no_interval(linear_functional(tally, values=NUMBERS))
    assert has_no_interval(linear_functional(tally, values=[True, True, False, False]))
    assert has_no_interval(difference(tally, tally, values=NUMBERS))
    assert has_no_interval(stratified([tally, tally], shares=[0.5, 0.5], values=NUMBERS))
    if each == 30:  # impossible for each category alone
        assert has_no_interval(intervals(tally))
        assert has_no_interval(linear_functional(tally, values=LAST))
        assert [int(limit) for limit in quantile(tally)] == [-1] * 3


@pytest.mark.full
@pytest.mark.parametrize("estimand", ["distribution", "users"])
def test_counts_of_one_category_alone(estimand):
    for method in ("exact", "conservative", "normal"):
        found = linear_functional(ONE_ANSWER, 1.0, values=LAST, method=method, estimand=estimand)
        assert has_no_interval(found), method
    assert has_no_interval(intervals(ONE_ANSWER, 1.0, estimand=estimand))
    assert [int(limit) for limit in quantile(ONE_ANSWER, 1.0, estimand=estimand)] == [-1] * 3
    tally = DESIGN.tally_of_counts(ONE_ANSWER)
    assert [int(limit) for limit in quantile(tally, mechanism=DESIGN, estimand=estimand)] == [-1] * 3
    rest = [300, 200, 250, 250]
    for method in ("conservative", "normal"):
        options = {"values": NUMBERS, "method": method, "estimand": estimand}
        assert has_no_interval(difference(ONE_ANSWER, rest, 1.0, **options))
        assert has_no_interval(difference(rest, ONE_ANSWER, 1.0, **options))
        assert has_no_interval(stratified([rest, ONE_ANSWER], 1.0, shares=[0.5, 0.5], **options))
        # A stratum that the population lacks decides nothing.
        assert not has_no_interval(stratified([rest, ONE_ANSWER], 1.0, shares=[1.0, 0.0], **options))
        options["values"] = LAST.astype(FLOAT)
        assert has_no_interval(difference(tally, tally, **options))
        assert has_no_interval(stratified([tally, tally], shares=[0.5, 0.5], **options))


@pytest.mark.long
def test_wilson_and_weighted_reports():
    assert has_no_interval(intervals(ONE_ANSWER, 1.0, method="wilson"))
    for values in (NUMBERS, np.eye(4)):
        assert has_no_interval(survey_estimate(np.full(1000, 3, INT), 1.0, values=values))


@pytest.mark.full
def test_limits_never_cross():
    """Of any supports, also those that only some of the tests refuse."""
    rng = np.random.default_rng(0)
    supports = rng.integers(0, 101, (400, 4)).astype(INT)

    @jax.jit
    @jax.vmap
    def found(support):
        tally = Tally(support, np.asarray(100, INT), p=0.8, q=0.2)
        counts = support.at[3].add(1)
        return (
            linear_functional(tally, values=NUMBERS)[2:],
            linear_functional(tally, values=LAST)[2:],
            difference(tally, tally, values=NUMBERS)[2:],
            linear_functional(counts, 0.5, values=NUMBERS, method="normal")[2:],
            intervals(counts, 0.5),
            quantile(counts, 0.5)[1:],
            quantile(tally)[1:],
        )

    for lower, upper in found(supports):
        lower, upper = np.asarray(lower), np.asarray(upper)
        assert ((lower <= upper) | (np.isnan(lower) & np.isnan(upper))).all()
        refused = (lower < 0).any() if lower.dtype.kind == "i" else np.isnan(lower).any()
        assert refused
    assert not np.isnan(found(supports)[0][0]).all()


@pytest.mark.long
def test_a_share_that_is_known_exactly_is_no_contradiction():
    lower, upper = intervals([10**9, 0], 20.0)  # in float32 both limits of the first round to one
    assert float(upper[0]) == 1
    assert (float(lower[0]) == 1) != X64
    assert np.isfinite([lower, upper]).all()
    lower, upper = intervals([30, 4, 0], 40.0, estimand="users")
    np.testing.assert_allclose(lower, np.asarray([30, 4, 0]) / 34, rtol=1e-6)
    np.testing.assert_array_equal(lower, upper)


@pytest.mark.long
def test_one_report_has_every_value_in_its_normal_interval():
    for found in (
        linear_functional([0, 1, 0, 0], 1.0, values=NUMBERS, method="normal"),
        difference([0, 1, 0, 0], [3, 3, 3, 3], 1.0, values=NUMBERS, method="normal"),
    ):
        assert np.isnan(found.standard_error)
        assert float(found.upper - found.lower) in (3, 6)
