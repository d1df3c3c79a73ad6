"""Limits and findings with fake reports: all attacks on small collections, one by one."""

import itertools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import X64
from refusals import refused
from scipy import stats

import rrjax
from rrjax.inference import fakes_to_overturn, intervals, p_values
from rrjax.mechanisms import NegativeQuestion, OptimizedUnaryEncoding, SubsetSelection

RTOL = 1e-9 if X64 else 3e-5
LEVEL = 0.9
RR = rrjax.RandomizedResponse(4, 2.0)
OUE = OptimizedUnaryEncoding(3, 2.0)
SS = SubsetSelection(4, 0.5)


def kinds(mechanism):
    """All reports as the categories that they support, `[R, K]`."""
    size = mechanism.num_categories
    every = np.asarray(list(itertools.product((0, 1), repeat=size)))
    if mechanism is RR:
        return np.eye(size, dtype=int)
    return every[every.sum(axis=1) == 2] if mechanism is SS else every


def attacks(number, mechanism, among=None):
    """The support of every multiset of so many reports, `[A, K]`; only of those `among` the counts of the kinds."""
    rows = kinds(mechanism)
    for places in itertools.combinations_with_replacement(range(len(rows)), number):
        if among is None or all(among[place] >= times for place, times in Counter(places).items()):
            yield rows[list(places)].sum(axis=0)


def collected(mechanism, seed, number=24):
    """How many reports of each kind came, where half of the users have the first category."""
    values = np.random.default_rng(seed).choice(mechanism.num_categories, number, p=skewed(mechanism.num_categories))
    reports = np.asarray(mechanism.supports(mechanism.randomize(jax.random.key(seed), values))).astype(int)
    rows = kinds(mechanism)
    return np.asarray([(reports == row).all(axis=1).sum() for row in rows])


def skewed(size):
    return np.asarray([0.6, *[0.4 / (size - 1)] * (size - 1)])


def tail(support, number, mechanism):
    """P(Binomial(N, q) ≥ c) by scipy."""
    return stats.binom.sf(np.asarray(support) - 1, number, float(mechanism.rates.q))


def tally(support, number, mechanism):
    return rrjax.Tally(np.asarray(support), number, rates=mechanism.rates)


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [RR, OUE, SS], ids=["k-RR", "unary encoding", "subset selection"])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_smaller_attack_overturns_a_finding(mechanism, seed):
    came = collected(mechanism, seed)
    support, number = came @ kinds(mechanism), int(came.sum())
    found = fakes_to_overturn(tally(support, number, mechanism), None, np.arange(len(support)), level=LEVEL)
    significant = tail(support, number, mechanism) <= 1 - LEVEL
    assert np.asarray(found.significant).tolist() == significant.tolist()
    np.testing.assert_allclose(found.share, np.asarray(found.number) / number, rtol=1e-6)
    for m in range(1, 5):
        # Reports that were fakes, and further reports.
        without = np.asarray([support - fake for fake in attacks(m, mechanism, came)])
        more = np.asarray([support + fake for fake in attacks(m, mechanism)])
        gone = (tail(without, number - m, mechanism) > 1 - LEVEL).any(axis=0)
        made = (tail(more, number + m, mechanism) <= 1 - LEVEL).any(axis=0)
        overturned = np.where(significant, gone, made)
        assert overturned.tolist() == (np.asarray(found.number) <= m).tolist()


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [RR, OUE, SS], ids=["k-RR", "unary encoding", "subset selection"])
def test_limits_are_the_extremes_over_all_attacks(mechanism):
    came = collected(mechanism, 3)
    support, number = came @ kinds(mechanism), int(came.sum())
    limits = jax.jit(lambda c, n: intervals(rrjax.Tally(c, n, rates=mechanism.rates), level=LEVEL))
    for m in (1, 2, 3):
        honest = np.unique([support - fake for fake in attacks(m, mechanism, came)], axis=0)
        every = [limits(each, number - m) for each in honest]
        found = intervals(tally(support, number, mechanism), level=LEVEL, fakes=m)
        np.testing.assert_allclose(found.lower, np.min([each.lower for each in every], axis=0), atol=10 * RTOL)
        np.testing.assert_allclose(found.upper, np.max([each.upper for each in every], axis=0), atol=10 * RTOL)


@pytest.mark.long
def test_limits_widen_with_the_fakes_and_match_the_definition():
    counts, before = [520, 290, 100, 90], intervals([520, 290, 100, 90], 2.0)
    q, d = 1 / (math.e**2 + 3), (math.e**2 - 1) / (math.e**2 + 3)
    for m in (1, 10, 200):
        found = intervals(counts, 2.0, fakes=m)
        assert ((found.lower <= before.lower) & (found.upper >= before.upper)).all()
        before, n = found, 1000 - m
        low, high = (np.clip(each, 0, n) for each in (np.asarray(counts) - m, np.asarray(counts)))
        lower = np.where(low > 0, stats.beta.ppf(0.025, low, n - low + 1), 0)
        upper = np.where(high < n, stats.beta.ppf(0.975, high + 1, n - high), 1)
        np.testing.assert_allclose(found.lower, np.clip((lower - q) / d, 0, 1), atol=3 * RTOL)
        np.testing.assert_allclose(found.upper, np.clip((upper - q) / d, 0, 1), atol=3 * RTOL)


@pytest.mark.full
def test_shares_of_the_honest_users_are_covered_too():
    of_users = intervals([520, 290, 100, 90], 2.0, fakes=5, estimand="users")
    sides = [intervals(tally(np.asarray([520, 290, 100, 90]) - less, 995, RR), estimand="users") for less in (5, 0)]
    np.testing.assert_allclose(of_users.lower, sides[0].lower)
    np.testing.assert_allclose(of_users.upper, sides[1].upper)


@pytest.mark.long
def test_counts_that_fakes_explain_are_no_contradiction():
    counts = [700, 0, 150, 150]  # more than randomization allows, if all reports are honest
    assert np.isnan(intervals(counts, 1.0).lower[:2]).all()
    found = intervals(counts, 1.0, fakes=400)
    assert np.isfinite([found.lower[0], found.upper[0]]).all()
    assert np.isnan(found.upper[1])  # no report supports it, and fakes cannot take reports away
    many = intervals(np.tile([40, 60, 51, 49], 500), 1.0, fakes=30)  # each distinct count is computed once
    few = intervals(rrjax.Tally([40, 60, 51, 49], 100_000, rates=rrjax.RandomizedResponse(2_000, 1.0).rates), fakes=30)
    np.testing.assert_allclose(many.upper[:4], few.upper, rtol=1e-4)


@pytest.mark.long
def test_the_finding_is_that_of_the_exact_test():
    counts = np.asarray([5_200, 2_900, 1_000, 900])
    tails = np.asarray(p_values(counts, 2.0))
    found = fakes_to_overturn(counts, 2.0, [[0, 1], [2, 3]])
    assert found.number.shape == (2, 2)
    assert np.asarray(found.significant).ravel().tolist() == (tails <= 0.05).tolist()
    q, d = float(RR.rates.q), float(RR.rates.d)
    for share in (0.0, 0.2, 0.6):
        for place, count in enumerate(counts):
            one = fakes_to_overturn(counts, 2.0, place, share=share, level=0.99)
            m, law = int(one.number), q + d * share
            sign = -1 if one.significant else 1
            before, after = (stats.binom.sf(count + sign * k - 1, 10_000 + sign * k, law) for k in (m - 1, m))
            assert (before <= 0.01) == bool(one.significant)
            assert (after <= 0.01) != bool(one.significant)


@pytest.mark.long
def test_a_lower_limit_falls_with_the_number_of_fakes():
    counts = [5_200, 2_900, 1_000, 900]
    number = int(fakes_to_overturn(counts, 2.0, 1, share=0.25, level=0.975).number)
    assert intervals(counts, 2.0, fakes=number - 1).lower[1] >= 0.25 > intervals(counts, 2.0, fakes=number).lower[1]


@pytest.mark.long
def test_a_finding_of_as_many_reports_as_an_integer_holds():
    """Reports are taken away from it, but no number was found: none can be added."""
    for most in (2**31 - 2, 2**31 - 1):
        fakes = fakes_to_overturn(np.array([most - 2**29, 2**29]), 1.0, 0)
        assert bool(fakes.significant)
        assert float(fakes.number) == pytest.approx(1_413_081_927, rel=1e-6)


@pytest.mark.full
def test_transformations_and_unusable_counts():
    counts = jnp.asarray([520, 290, 100, 90])
    run = jax.jit(lambda c, e: (intervals(c, e, fakes=5), fakes_to_overturn(c, e, 1)))
    limits, found = run(counts, 2.0)
    plain = fakes_to_overturn(counts, 2.0, 1)
    np.testing.assert_allclose(limits, intervals(counts, 2.0, fakes=5), rtol=RTOL)
    assert (int(found.number), bool(found.significant)) == (int(plain.number), bool(plain.significant))
    batch = jax.vmap(lambda c: fakes_to_overturn(c, 2.0, 1).number)(jnp.stack([counts, counts[::-1]]))
    assert batch.tolist() == [int(plain.number), int(fakes_to_overturn(counts[::-1], 2.0, 1).number)]
    for bad in (counts.at[0].set(-1), jnp.asarray([1, 1, 1, 1]) * 0):
        limits, found = run(bad, 2.0)
        assert np.isnan(limits).all()
        assert (int(found.number), bool(found.significant)) == (-1, False)
    assert np.isnan(run(jnp.asarray([2, 1, 1, 1]), 2.0)[0]).all()  # as many fakes as reports, under tracing
    alone = fakes_to_overturn([10, 0], 8.0, 0)  # without them no report is left
    assert alone.significant
    assert 0 < int(alone.number) <= 10


@pytest.mark.long
def test_of_designs_that_deny():
    design = NegativeQuestion(3, 0.0)
    counts = design.tally_of_counts([10, 45, 45])
    found = intervals(counts, fakes=3)
    sides = [intervals(tally(np.asarray(counts.support) - less, 97, design)) for less in (3, 0)]
    np.testing.assert_allclose(found.lower, sides[0].lower, rtol=RTOL)
    np.testing.assert_allclose(found.upper, sides[1].upper, rtol=RTOL)


@pytest.mark.once
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: intervals([5, 5], 1.0, fakes=-1), "fakes"),
        (lambda: intervals([5, 5], 1.0, fakes=10), "fakes"),
        (lambda: intervals([5, 5], 1.0, fakes=1.5), "fakes"),
        (lambda: intervals([5, 5], 1.0, fakes=1, method="profile"), "fakes"),
        (lambda: fakes_to_overturn([5, 5], 1.0, 2), "category"),
        (lambda: fakes_to_overturn([5, 5], 1.0, 0, share=1.0), "share"),
        (lambda: fakes_to_overturn([5, 5], 1.0, 0, level=0.0), "level"),
        (lambda: fakes_to_overturn([5, 5], None, 0), "epsilon"),
    ],
)
@pytest.mark.filterwarnings("ignore:intervals from the profile")
def test_impossible_arguments_are_refused(call, argument):
    with refused(argument):
        call()
