"""Tails of counts, and the limits of the shares of fixed users, against exact laws and enumeration."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, ULP, X64
from scipy import special, stats

from rrjax.inference import intervals
from rrjax.inference.two_binomials import TwoKinds, fewest_holders, log_upper_tail
from rrjax.numerics.special import log1p_minus, log_survival, odds_of_tail

SURVIVAL = jax.jit(log_survival)
INVERSE = jax.jit(odds_of_tail)
FEWEST, UPPER = jax.jit(fewest_holders), jax.jit(log_upper_tail)
TOLERANCE = 1e-10 if X64 else 1e-5


def exact_survival(count, trials, probability):
    chance = Fraction(float(probability))
    terms = (math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(count, trials + 1))
    return sum(terms, Fraction(0))


def survival(count, trials, probability):
    """With the excess in exact arithmetic."""
    probability = FLOAT.type(probability)
    excess = [
        float(Fraction(int(c)) - int(n) * Fraction(float(probability))) for c, n in zip(count, trials, strict=True)
    ]
    arrays = (np.asarray(x, FLOAT) for x in (count, np.asarray(trials) - count, excess))
    return np.asarray(SURVIVAL(*arrays, probability), np.float64)


@pytest.mark.long
@pytest.mark.parametrize("trials", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("probability", [1e-6, 0.01, 0.3, 0.5, 0.97])
def test_tails_against_rational_arithmetic(trials, probability):
    counts = np.arange(trials + 1)
    found = survival(counts, np.full(trials + 1, trials), probability)
    for count, value in zip(counts.tolist(), found.tolist(), strict=True):
        exact = exact_survival(count, trials, FLOAT.type(probability))
        log_exact = math.log(exact) if exact < 0.5 else math.log1p(-float(1 - exact))
        assert abs(value - log_exact) <= (1e-14 if X64 else 2e-6) * max(1, abs(log_exact))


@pytest.mark.parametrize("probability", [3e-5, 0.002, 0.11, 0.6])
def test_tails_against_scipy_down_to_1e_300(probability):
    probability = float(FLOAT.type(probability))
    rng = np.random.default_rng(0)
    trials = np.floor(10 ** rng.uniform(0, 6, 500)).astype(np.int64)
    deviation = np.sqrt(trials * probability * (1 - probability))
    count = np.clip(np.round(trials * probability + rng.uniform(-8, 38, 500) * deviation), 0, trials).astype(np.int64)
    with np.errstate(divide="ignore"):
        expected = stats.binom.logsf(count - 1, trials, probability)
    known = expected > math.log(1e-300)
    found = survival(count, trials, probability)[known]
    assert known.sum() > 400
    assert expected[known].min() < -250
    np.testing.assert_allclose(found, expected[known], rtol=TOLERANCE, atol=TOLERANCE)


def test_tails_of_a_billion_trials():
    # Sums of the ratios of successive terms beside the largest one, in exact integers where it matters.
    trials, probability = 2_000_000_000, float(FLOAT.type(0.001))
    mean = trials * probability
    for deviations in (-6, -1, 0.5, 3, 20, 36):
        count = round(mean + deviations * math.sqrt(mean))
        expected = stats.binom.logsf(count - 1, trials, probability)
        found = survival([count], [trials], probability)[0]
        assert found == pytest.approx(expected, rel=1e-9 if X64 else 1e-5, abs=1e-9 if X64 else 1e-5)


@pytest.mark.parametrize("level", [0.4, 0.025, 1e-6, 1e-12, 1e-30])
def test_inverses_against_scipy(level):
    rng = np.random.default_rng(1)
    trials = np.floor(10 ** rng.uniform(0, 9, 1000))
    count = np.floor(trials ** rng.random(1000))
    count = np.where(rng.random(1000) < 0.5, trials - count, count)
    expected = special.betaincinv(count, trials - count + 1, level)
    known = (count > 0) & (expected > 1e-30)
    found = INVERSE(count.astype(FLOAT), (trials - count).astype(FLOAT), FLOAT.type(math.log(level)))
    found = np.asarray(found, np.float64)
    np.testing.assert_allclose((found / (1 + found))[known], expected[known], rtol=TOLERANCE)
    np.testing.assert_array_equal(found[count == 0], 0)


def test_logarithms_less_their_argument():
    x = np.concatenate([-np.geomspace(1e-12, 0.999, 200), np.geomspace(1e-12, 1e6, 200), [0.0]]).astype(FLOAT)
    expected = [float(np.log1p(np.longdouble(v)) - np.longdouble(v)) for v in x]
    series = sum((-1) ** (k + 1) * x.astype(float) ** k / k for k in range(12, 1, -1))
    expected = np.where(np.abs(x) < 0.01, series, expected)  # where long doubles cancel
    np.testing.assert_allclose(np.asarray(log1p_minus(jnp.asarray(x))), expected, rtol=8 * ULP, atol=0)


def sums_of_two(total, probabilities):
    """`[n, c]`, P(X = c) where n of the users are of the first kind."""
    first, second = probabilities
    return np.array(
        [
            np.convolve(
                stats.binom.pmf(np.arange(n + 1), n, first),
                stats.binom.pmf(np.arange(total - n + 1), total - n, second),
            )
            for n in range(total + 1)
        ]
    )


def two_kinds(counts, total, high, low, not_high):
    """The law as it is passed, c − N·b in integers and a fraction."""
    mean = Fraction(float(FLOAT.type(low))) * total
    whole = np.array([int(count) - math.floor(mean) for count in counts], INT)
    part = math.floor(mean) - mean
    return TwoKinds(
        whole,
        *(jnp.asarray(x, FLOAT) for x in (float(part),)),
        INT.type(total),
        *(jnp.asarray(x, FLOAT) for x in (high, low, not_high, 1 - low, high - low)),
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_categories", "epsilon"),
    [(2, 0.5), (2, 4.0), (20, 1.0), (200, 2.0), (1000, 6.0), (2, 8.0), (50, 8.0), (2, 10.0), (50, 12.0), (2, 25.0)],
)
@pytest.mark.parametrize("total", [1, 2, 7, 60])
def test_tails_of_a_sum_of_two_binomials(num_categories, epsilon, total):
    e1 = math.expm1(epsilon)
    high, low = (1 + e1) / (e1 + num_categories), 1 / (e1 + num_categories)
    rest = (num_categories - 1) / (e1 + num_categories)
    masses = sums_of_two(total, (high, low))
    tails = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1]
    counts = np.arange(total + 1)
    law = two_kinds(counts, total, high, low, rest)
    for level in (0.4, 0.025, 1e-4):
        # The fewest holders with a tail above the level, by looking at all.
        wanted = [int(np.argmax(column > level)) if (column > level).any() else total for column in tails.T]
        np.testing.assert_array_equal(FEWEST(counts.astype(INT), law, FLOAT.type(math.log(level))), wanted)
    for holders in range(0, total + 1, max(1, total // 5)):
        inner = counts[1:-1]
        exact = tails[holders, 1:-1]
        known = (exact < 0.6) & (exact > (1e-30 if X64 else 1e-8))
        part = law._replace(whole=law.whole[1:-1])
        found = np.asarray(UPPER(inner.astype(INT), np.full(len(inner), holders, INT), part), float)
        np.testing.assert_allclose(np.exp(found)[known], exact[known], rtol=1e-8 if X64 else 5e-3)
        assert (found[exact >= 0.6] > math.log(0.5)).all()


def tail_of_many(count, holders, total, high, low):
    """P(X ≥ count), by summing over those who hold it, nine standard deviations to either side."""
    if holders == 0:
        return stats.binom.sf(count - 1, total, low)
    mean, reach = holders * high, 9 * math.sqrt(holders * high * (1 - high))
    first = np.arange(max(0, int(mean - reach)), min(holders, int(mean + reach)) + 1)
    masses = stats.binom.pmf(first, holders, high) * stats.binom.sf(count - 1 - first, total - holders, low)
    return float(masses.sum())


@pytest.mark.parametrize("total", [10**7, *(pytest.param(many, marks=pytest.mark.full) for many in (10**9, 2**31 - 1))])
@pytest.mark.parametrize(("high", "low"), [(0.3, 0.15), (0.501, 0.5), (0.9, 1e-4)])
def test_tails_of_very_many_users(total, high, low):
    low, step = float(FLOAT.type(low)), float(FLOAT.type(high - low))
    high = low + step
    for holders in (0, total // 1000, total // 3):
        mean = holders * high + (total - holders) * low
        deviation = math.sqrt(holders * high * (1 - high) + (total - holders) * low * (1 - low))
        counts = np.array([int(mean + z * deviation) for z in (0.01, 0.7, 1.7, 2.5, 4.0, 5.2)], INT)
        exact = [tail_of_many(int(count), holders, total, high, low) for count in counts]
        law = two_kinds(counts, total, high, low, 1 - high)._replace(step=jnp.asarray(step, FLOAT))
        found = np.exp(np.asarray(UPPER(counts, np.full(len(counts), holders, INT), law), float))
        np.testing.assert_allclose(found, exact, rtol=1e-8 if X64 else 5e-3)


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_limits_of_very_many_users(epsilon):
    # Near the mean too, where next to everybody or nobody may hold a category.
    for total in (10**7, 2**31 - 1):
        e1 = float(np.expm1(FLOAT.type(epsilon)))
        low, step = 1 / (e1 + 3), e1 / (e1 + 3)
        for share in (0.0, 0.4, 1.0):
            mean = total * (low + step * share)
            count = int(mean + 0.3 * math.sqrt(total * low * (1 - low)))
            rest = (total - count) // 2
            lower, upper = intervals([count, rest, total - count - rest], epsilon, estimand="users")
            level = math.log(0.025)
            for limit, kinds, reached in (
                (float(lower[0]), (low + step, low), count),
                (1 - float(upper[0]), (1 - low, 1 - low - step), total - count),
            ):
                if 0 < limit < 1:
                    # Where it should be, to a part of a standard deviation and to the rounding of q + d·θ.
                    near = (2e-3 * math.sqrt(total * low * (1 - low)) + total * ULP) / step
                    around = [round(limit * total + side * near) for side in (-1, 1)]
                    tails = [math.log(tail_of_many(reached, holders, total, *kinds)) for holders in around]
                    assert tails[0] < level < tails[1]
                else:
                    holders = 0 if limit == 0 else total - 1
                    assert (tail_of_many(reached, holders, total, *kinds) > 0.024) == (limit == 0)


@pytest.mark.skipif(not X64, reason="a float32 cannot tell such limits apart")
@pytest.mark.parametrize(
    ("total", "num_categories", "epsilon", "level", "count", "expected"),
    [
        (2**31 - 1, 2, 24.0, 0.999999, 715_827_882, (-3, 3)),
        (10**8, 10, 22.9, 0.99, 10_000_000, (-1, 1)),
        (2**31 - 1, 2, 24.0, 0.95, 1_475_937_385, (0, 1)),
        (2**31 - 1, 10, 24.1, 0.999999, 214_748_364, (-4, 4)),
    ],
)
def test_limits_where_few_reports_are_no_truth(total, num_categories, epsilon, level, count, expected):
    # Few in billions slip: the tail is one of Poisson's, far from normal. Limits are those of an exact convolution.
    counts = np.full(num_categories, (total - count) // (num_categories - 1), INT)
    counts[0] = count
    counts[-1] += total - counts.sum()
    lower, upper = intervals(counts, epsilon, level, estimand="users")
    assert tuple(round(float(limit[0]) * total) - count for limit in (lower, upper)) == expected


@pytest.mark.long
def test_next_to_everybody_may_hold_it():
    # In float32 the upper limit was 0.99593: the mean of so many was known to a fifth of a standard deviation.
    lower, upper = intervals([3_556_416, 3_221_792, 3_221_792], 0.1, estimand="users")
    assert upper[0] == 1
    np.testing.assert_allclose(lower[0], 0.9832249, atol=2e-6)


@pytest.mark.full
@pytest.mark.parametrize(("num_categories", "epsilon"), [(2, 0.5), (2, 4.0), (20, 1.0), (50, 6.0)])
@pytest.mark.parametrize("total", [5, 60])
def test_every_fixed_population_enumerated_is_covered(num_categories, epsilon, total):
    counts = np.arange(total + 1)
    histograms = np.zeros((total + 1, num_categories), INT)
    histograms[:, 0], histograms[:, 1] = counts, total - counts
    limits = jax.vmap(lambda c: intervals(c, epsilon, 0.9, estimand="users"))(histograms)
    lower, upper = (np.asarray(leaf[:, 0], float) for leaf in limits)
    e1 = math.expm1(epsilon)
    masses = sums_of_two(total, ((1 + e1) / (e1 + num_categories), 1 / (e1 + num_categories)))
    for holders in range(total + 1):
        share = holders / total
        covers = (lower <= share + 1e-6) & (share <= upper + 1e-6)
        assert masses[holders][covers].sum() >= 0.9 - 1e-6
    drawn = jax.vmap(lambda c: intervals(c, epsilon, 0.9))(histograms)
    # Without those of counts that contradict the mechanism.
    assert np.nanmean(upper - lower) < float(np.nanmean(drawn.upper[:, 0] - drawn.lower[:, 0]))


@pytest.mark.full
def test_a_fixed_population_at_the_ends():
    for epsilon in (1e-6, 1.0):  # so many reports that say the same contradict these
        assert np.isnan(intervals([100, 0], epsilon, estimand="users").lower).all()
    for epsilon in (12.0, 25.0, 40.0, 800.0):
        lower, upper = intervals([100, 0], epsilon, estimand="users")
        assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()
    # At such an ε every report is the truth.
    np.testing.assert_allclose(lower, [1, 0])
    np.testing.assert_allclose(upper, [1, 0])


def tail_of_upper(holders, count, total, num_categories, epsilon):
    """P(X ≤ count), by the losses of the holders and SciPy's law of the gains of the others."""
    keeps, gains = (
        math.exp(epsilon) / (math.exp(epsilon) + num_categories - 1),
        1 / (math.exp(epsilon) + num_categories - 1),
    )
    lost = np.arange(int(3 * holders * (1 - keeps)) + 200)
    # The gains are so rare that a Poisson law has their digits.
    laws = (
        stats.binom.pmf(lost, holders, (num_categories - 1) * gains),
        stats.poisson.cdf(count - holders + lost, (total - holders) * gains),
    )
    return float((laws[0] * laws[1]).sum())


@pytest.mark.once
@pytest.mark.long
@pytest.mark.parametrize(
    ("total", "num_categories", "epsilon", "count"),
    [(10**6, 1000, 16.0, 9999), (10**8, 10, 16.0, 1_000_010), (10**9, 10, 16.0, 10_000_101), (10**9, 10, 12.0, 6144)],
)
def test_a_probability_near_one_has_its_digits_for_many_users(total, num_categories, epsilon, count):
    """Users who keep their value with probability 1 − 10⁻⁶: of 10⁹, the rounding of this number is some sixty."""
    histogram = np.full(num_categories, (total - count) // (num_categories - 1))
    histogram[0] = count
    histogram[-1] += total - histogram.sum()
    limits = intervals(histogram.astype(np.int32), epsilon, estimand="users")
    lower, upper = (round(float(limit[0]) * total) for limit in limits)
    assert lower < upper
    assert tail_of_upper(upper, count, total, num_categories, epsilon) > 0.025 * (1 - 1e-3)
    assert tail_of_upper(upper + 1, count, total, num_categories, epsilon) < 0.025 * (1 + 1e-3)
    with jax.enable_x64(True):
        wide = intervals(histogram, epsilon, estimand="users")
    assert [round(float(limit[0]) * total) for limit in wide] == [lower, upper]
