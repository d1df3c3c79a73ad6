"""Tests of tallies: their tails against SciPy, their levels by enumeration and simulation, their thinning's law."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, stats

import rrjax
from rrjax import Tally
from rrjax.inference import equality_test, goodness_of_fit_test, quantile, stratified, trend_test
from rrjax.inference.marginal_tests import hypergeometric_test, thinned
from rrjax.mechanisms import (
    ForcedResponse,
    HadamardResponse,
    Kuk,
    LocalHashing,
    NegativeQuestion,
    OptimizedUnaryEncoding,
    SubsetSelection,
    SymmetricUnaryEncoding,
    Warner,
)

KEY = jax.random.key(0)
LEVELS = (0.05, 0.2, 0.5)
FORCED = ForcedResponse(0.5, [0.5, 0.3, 0.2])
NEGATIVE = NegativeQuestion(3, 0.1)
"""A design with negative d: its answers support the other categories."""


def keeps_its_level(p_values, chances=None):
    p_values = np.asarray(p_values, float)
    for level in LEVELS:
        rejected = p_values <= level * (1 + 1e-5)
        if chances is None:
            assert rejected.mean() <= level + 4 * math.sqrt(level * (1 - level) / len(p_values)), level
        else:
            assert np.sum(chances * rejected) <= level * (1 + 1e-4), level


def outcomes(number, size):
    """All counts `[M, size]` of so many answers."""
    every = itertools.product(range(number + 1), repeat=size - 1)
    return np.array([(*row, number - sum(row)) for row in every if sum(row) <= number])


def law_of(design, theta):
    return np.asarray(design.affine.always, float) + float(design.affine.truth) * np.asarray(theta)


def tails(low, high):
    return np.minimum(1, 2 * np.minimum(low, high))


# --- tails


@pytest.mark.long
@pytest.mark.parametrize("total", [6, 1000, 10**6, pytest.param(2 * 10**9, marks=pytest.mark.long)])
def test_hypergeometric_tails_against_scipy(total):
    rng = np.random.default_rng(total)
    number, marked = rng.integers(1, total, 40), rng.integers(1, total, 40)
    marked[:10] = rng.integers(1, min(total, 30), 10)
    law = stats.hypergeom(total, marked, number)
    spread = np.sqrt(number / total * (1 - number / total) * marked * (1 - marked / total) * (total / (total - 1)))
    support = np.round(number / total * marked + rng.normal(size=40) * 3 * spread).astype(int)
    support = np.clip(support, np.maximum(0, number + marked - total), np.minimum(number, marked))
    found, distance = hypergeometric_test(*(jnp.asarray(x) for x in (support, number, marked, total)))
    above = support >= number / total * marked
    expected = np.minimum(2 * np.where(above, law.sf(support - 1), law.cdf(support)), 1)
    # SciPy loses digits of many items.
    rtol = (1e-9 if total <= 10**6 else 2e-6) if X64 else (1e-4 if total <= 10**6 else 2e-3)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-30)
    np.testing.assert_allclose(distance, (support - number / total * marked) / spread, rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_fixed_and_empty_tables_have_nothing_to_find():
    given = (np.array([0, 5, 3, 4]), np.array([5, 5, 3, 4]), np.array([0, 12, 3, 4]))
    found, distance = hypergeometric_test(*(jnp.asarray(x) for x in given), jnp.asarray(12))
    np.testing.assert_allclose(found, [1, 1, 2 / 220, 2 / 495], rtol=1e-5)
    assert distance[:2].tolist() == [0, 0]


@pytest.mark.full
@pytest.mark.parametrize("theta", [[0.6, 0.3, 0.1], [1, 0, 0]])
def test_fits_against_scipy(theta):
    for tally in (
        FORCED.tally_of_counts([330, 100, 70]),
        NEGATIVE.tally_of_counts([90, 200, 210]),
        Tally([280, 130, 90], num_users=500, p=0.7, q=0.2),
    ):
        p, q = (np.broadcast_to(np.asarray(each, float), 3) for each in (tally.p, tally.q))
        support, law = np.asarray(tally.support), stats.binom(500, q + (p - q) * theta)
        result = goodness_of_fit_test(KEY, tally, theta=theta)
        expected = tails(law.cdf(support), law.sf(support - 1))
        np.testing.assert_allclose(result.p_values, expected, rtol=1e-10 if X64 else 1e-4)
        assert float(result.p_value) == pytest.approx(min(1, 3 * expected.min()), rel=1e-4)
        assert int(result.category) == expected.argmin()
        at_most = tails(stats.binom(500, q).cdf(support), stats.binom(500, p).sf(support - 1))
        np.testing.assert_allclose(goodness_of_fit_test(KEY, tally).p_values, at_most, rtol=1e-4)


@pytest.mark.long
def test_two_collections_have_fishers_test():
    first, second = np.array([300, 120, 80]), np.array([240, 150, 90])
    result = equality_test(KEY, [FORCED.tally_of_counts(first), FORCED.tally_of_counts(second)])
    for place in range(3):
        table = [[x[place], x.sum() - x[place]] for x in (first, second)]
        expected = min(stats.fisher_exact(table, alternative=way).pvalue for way in ("less", "greater"))
        assert float(result.p_values[place]) == pytest.approx(2 * expected, rel=1e-9 if X64 else 1e-4)
    assert int(result.category) == 0
    assert float(result.p_value) == pytest.approx(3 * float(result.p_values[0]), rel=1e-5)
    assert result.statistic > 0


@pytest.mark.full
@pytest.mark.parametrize("design", [Warner(0.2), Kuk(0.8, 0.3)], ids=lambda each: each.name)
def test_a_yes_or_a_no_is_one_test(design):
    """Whichever is named, and whether d is negative; but two support counts that are separate data are two tests."""
    counts = [[300, 200], [240, 240]]
    tallies = [design.tally_of_counts(each) for each in counts]
    table = 2 * stats.fisher_exact(counts, alternative="greater").pvalue
    for test in (equality_test, jax.jit(lambda key, tallies: equality_test(key, tallies))):
        assert float(test(KEY, tallies).p_value) == pytest.approx(table, rel=1e-4)
    apart = [Tally(each, sum(each) + 1, rates=design.rates) for each in counts]
    assert float(equality_test(KEY, apart).p_value) > 1.9 * table
    trend = trend_test(KEY, tallies, num_draws=19)
    assert float(trend.p_value) == pytest.approx(0.05)
    with refused("num_draws"):
        trend_test(KEY, apart, num_draws=19)
    shares = np.asarray(design.rates.q + design.rates.d * np.array([0.3, 0.7]))
    fit = goodness_of_fit_test(KEY, tallies[0], theta=[0.3, 0.7])
    support = np.asarray(tallies[0].support)
    expected = tails(stats.binom(500, shares).cdf(support), stats.binom(500, shares).sf(support - 1))
    assert float(fit.p_value) == pytest.approx(expected[0], rel=1e-3)


@pytest.mark.long
def test_supports_of_unary_encoding_are_two_tests():
    """Even at the rates of randomized response, where p + q = 1."""
    mechanism = SymmetricUnaryEncoding(2, 2.0)
    first, second = (Tally(support, 500, rates=mechanism.rates) for support in ([300, 190], [240, 270]))
    found = equality_test(KEY, [first, second])
    assert float(found.p_value) == pytest.approx(2 * float(found.p_values.min()), rel=1e-5)


# --- levels


@pytest.mark.full
@pytest.mark.parametrize("design", [FORCED, NEGATIVE], ids=lambda design: design.name)
@pytest.mark.parametrize("theta", [[1, 0, 0], [0.5, 0.3, 0.2], [0.6, 0.4, 0]])
def test_levels_by_enumeration(design, theta):
    counts = outcomes(9, 3)
    chances = stats.multinomial.pmf(counts, 9, law_of(design, theta))
    fit = jax.jit(jax.vmap(lambda c: goodness_of_fit_test(KEY, design.tally_of_counts(c), theta=theta).p_value))
    keeps_its_level(fit(counts), chances)
    fit = jax.jit(jax.vmap(lambda c: goodness_of_fit_test(KEY, design.tally_of_counts(c), mechanism=design).p_value))
    keeps_its_level(fit(counts), chances)
    first, second = outcomes(5, 3), outcomes(4, 3)
    pairs = [np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))]
    law = law_of(design, theta)
    chances = np.prod([stats.multinomial.pmf(each, each[0].sum(), law) for each in pairs], axis=0)
    equal = jax.jit(jax.vmap(lambda *c: equality_test(KEY, [design.tally_of_counts(each) for each in c]).p_value))
    keeps_its_level(equal(*pairs), chances)


def drawn(mechanism, key, theta, number):
    of_users, of_reports = jax.random.split(key)
    values = jax.random.choice(of_users, len(theta), (number,), p=jnp.asarray(theta, FLOAT))
    return mechanism.collect(of_reports, jnp.bincount(values, length=len(theta)))


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("theta", [[1, 0, 0, 0], [0.5, 0.3, 0.2, 0]])
@pytest.mark.parametrize(
    "pair",
    [
        (SymmetricUnaryEncoding(4, 1.0), OptimizedUnaryEncoding(4, 2.0)),
        (LocalHashing(4, 1.0), SubsetSelection(4, 1.0)),
        (HadamardResponse(4, 1.0), HadamardResponse(4, 3.0)),
    ],
    ids=lambda pair: f"{pair[0].name}, {pair[1].name}",
)
def test_levels_by_simulation(pair, theta):
    @jax.jit
    @jax.vmap
    def p_values(key):
        one, other, test = jax.random.split(key, 3)
        tallies = [drawn(pair[0], one, theta, 60), drawn(pair[1], other, theta, 90)]
        fit = goodness_of_fit_test(test, tallies[0], theta=theta)
        free = goodness_of_fit_test(test, tallies[0], mechanism=pair[0])
        return fit.p_value, free.p_value, equality_test(test, tallies).p_value

    for each in p_values(jax.random.split(KEY, 2000)):
        keeps_its_level(each)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("place", [0, 1])
def test_thinned_supports_have_one_law(place):
    pair = (OptimizedUnaryEncoding(3, 2.0), NEGATIVE)
    theta, number = [0.5, 0.3, 0.2], 12

    @jax.jit
    @jax.vmap
    def supports(key):
        one, other, thinning = jax.random.split(key, 3)
        return thinned(thinning, [drawn(pair[0], one, theta, number), drawn(pair[1], other, theta, number)], False)

    found = np.asarray(supports(jax.random.split(KEY, 20_000)).support)[:, place]
    rates = [each.rates_by(math.expm1) for each in pair]
    always, never = (
        np.max([np.broadcast_to(x, 3) for x in each], axis=0)
        for each in ([each.always / each.truth for each in rates], [each.never / each.truth for each in rates])
    )
    law = (always + np.asarray(theta)) / (always + never + 1)
    for category in range(3):
        expected = stats.binom(number, law[category]).pmf(np.arange(number + 1)) * 20_000
        seen = np.bincount(found[:, category], minlength=number + 1)
        kept = expected > 5
        pooled = [np.append(each[kept], each[~kept].sum()) for each in (seen, expected)]
        assert stats.chisquare(*pooled).pvalue > 1e-3


# --- what they find


@pytest.mark.full
@pytest.mark.once
def test_differences_are_found_and_named():
    first = LocalHashing(5, 1.0).collect(KEY, [4000, 3000, 2000, 500, 500])
    second = OptimizedUnaryEncoding(5, 2.0).collect(jax.random.key(1), [4000, 3000, 1000, 1500, 500])
    result = equality_test(KEY, [first, second])
    assert result.p_value < 1e-3
    assert int(result.category) in (2, 3)
    assert "thinned" in result.method
    result = goodness_of_fit_test(KEY, second, theta=[0.4, 0.3, 0.2, 0.05, 0.05])
    assert result.p_value < 1e-9
    again = trend_test(KEY, [first, second, second], num_draws=199)
    assert again.p_value <= 0.05
    assert int(again.category) in (2, 3)


@pytest.mark.full
def test_another_epsilon_is_found_by_the_sum_of_shares():
    made, said = SymmetricUnaryEncoding(30, 1.0), SymmetricUnaryEncoding(30, 0.9)
    tally = made.collect(KEY, [300] * 30)
    wrong = Tally(tally.support, tally.num_users, rates=said.rates)
    assert goodness_of_fit_test(KEY, tally, mechanism=made).p_value > 0.05
    result = goodness_of_fit_test(KEY, wrong, mechanism=said)
    assert result.p_value < 1e-3 < goodness_of_fit_test(KEY, wrong).p_value
    assert int(result.category) == -1


@pytest.mark.full
def test_a_trend_of_one_category_is_that_of_its_table():
    counts = np.array([[300, 100, 100], [280, 110, 110], [250, 130, 120]])
    tallies = [FORCED.tally_of_counts(row) for row in counts]
    for category in range(3):
        found = trend_test(KEY, tallies, times=[1, 2, 4], category=category, num_draws=999)
        expected = trend_test(KEY, counts, 1.0, [1, 2, 4], category=category, num_draws=999)
        assert float(found.statistic) == pytest.approx(float(expected.statistic), rel=1e-4)
        assert abs(found.p_value - expected.p_value) <= 4 * math.hypot(found.standard_error, expected.standard_error)
    every = trend_test(KEY, tallies, times=[1, 2, 4], num_draws=999)
    assert int(every.category) == 0
    assert float(every.p_value) == pytest.approx(3 * float(every.p_values[0]), rel=1e-5)
    assert np.isnan(every.p_values[1:]).all()


# --- arguments


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda t: goodness_of_fit_test(KEY, t, 1.0), "epsilon"),
        (lambda t: goodness_of_fit_test(KEY, t, theta=[0.5, 0.4, 0.2]), "theta"),
        (lambda t: goodness_of_fit_test(KEY, [5, 3, 2]), "epsilon"),
        (lambda t: equality_test(KEY, t), "counts"),
        (lambda t: equality_test(KEY, [t]), "counts"),
        (lambda t: equality_test(KEY, [t, t], 1.0), "epsilon"),
        (lambda t: equality_test(KEY, [t, [5, 3, 2]]), "counts"),
        (lambda t: equality_test(KEY, [[5, 3, 2], [5, 3, 2]]), "epsilon"),
        (lambda t: equality_test(KEY, [t, Tally([5, 3], num_users=10, p=0.5, q=0.2)]), "counts"),
        (lambda t: trend_test(KEY, [t, t], num_draws=58), "num_draws"),
        (lambda t: trend_test(KEY, [t, t], times=[1, 1]), "times"),
        (lambda t: quantile(t, 1.0), "epsilon"),
        (lambda t: rrjax.inference.likelihood_ratio_test(KEY, t, 1.0, [0.5, 0.3, 0.2]), "counts"),
    ],
)
def test_bad_arguments(call, argument):
    with refused(argument):
        call(FORCED.tally_of_counts([5, 3, 2]))


def test_other_labels_are_refused():
    one, other = (Tally([5, 3], num_users=10, p=0.5, q=0.2, domain=labels) for labels in (["a", "b"], ["b", "a"]))
    with refused("counts"):
        equality_test(KEY, [one, other])


@pytest.mark.full
def test_unusable_tallies_give_nan():
    good = FORCED.tally_of_counts([5, 3, 2])
    none = FORCED.tally_of_counts([0, 0, 0])
    wrong = Tally(jnp.array([-1, 3, 2]), jnp.array(10), rates=good.rates)
    for bad in (none, wrong):
        for result in (
            goodness_of_fit_test(KEY, bad),
            goodness_of_fit_test(KEY, bad, theta=[1, 0, 0]),
            equality_test(KEY, [good, bad]),
            trend_test(KEY, [good, bad], num_draws=59),
        ):
            assert np.isnan([result.statistic, result.p_value, *result.p_values]).all()
            assert int(result.category) == -1
        assert np.isnan(trend_test(KEY, [good, bad], category=1).p_value)
        assert [int(each) for each in quantile(bad, mechanism=FORCED)] == [-1] * 3
        assert [int(each) for each in quantile(bad)] == [-1] * 3
    no_distribution = jax.jit(lambda theta: goodness_of_fit_test(KEY, good, theta=theta).p_value)
    assert np.isnan(no_distribution(jnp.array([0.5, 0.3, 0.1], FLOAT)))


@pytest.mark.full
def test_reports_that_give_values_away():
    """Rates of zero and one: p = 1, and at a large ε q = 0."""
    design = rrjax.mechanisms.Mangat(0.7)
    assert goodness_of_fit_test(KEY, design.tally_of_counts([40, 60]), theta=[0.1, 0.9]).p_value <= 1
    sure = Tally([9, 1], num_users=10, p=1.0, q=0.0)
    assert float(goodness_of_fit_test(KEY, sure).p_value) == 1
    assert float(goodness_of_fit_test(KEY, sure, theta=[1, 0]).p_value) < 1e-30
    assert float(goodness_of_fit_test(KEY, sure, theta=[0.9, 0.1]).p_value) == 1
    assert float(equality_test(KEY, [sure, design.tally_of_counts([40, 60])]).p_value) <= 1


# --- quantiles and populations


@pytest.mark.full
@pytest.mark.parametrize("estimand", ["distribution", "users"])
def test_quantiles_of_designs_cover_by_enumeration(estimand):
    counts = outcomes(8, 4)
    for design in (ForcedResponse(0.6, [0.4, 0.3, 0.2, 0.1]), NegativeQuestion(4, 0.05)):

        def found_of(counts, design=design):
            tally = design.tally_of_counts(counts)
            return quantile(tally, mechanism=design, level=0.8, estimand=estimand)

        found = jax.jit(jax.vmap(found_of))(counts)
        for theta in ([0.25] * 4, [0.5, 0, 0, 0.5], [0, 0, 1, 0], [0.49, 0.02, 0.49, 0]):
            true = int(np.argmax(np.cumsum(theta) >= 0.5))
            chances = stats.multinomial.pmf(counts, 8, law_of(design, theta))
            inside = (np.asarray(found.lower) <= true) & (true <= np.asarray(found.upper))
            assert estimand == "users" or chances[inside].sum() >= 0.8
        assert (np.asarray(found.upper - found.lower) < 2).any()


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(
    "mechanism",
    [OptimizedUnaryEncoding(5, 2.0), LocalHashing(5, 2.0), SubsetSelection(5, 1.0), HadamardResponse(5, 3.0)],
    ids=lambda mechanism: mechanism.name,
)
def test_quantiles_of_mechanisms_cover(mechanism):
    for theta in ([0.2] * 5, [0.49, 0.02, 0.49, 0, 0], [0, 0, 0.5, 0, 0.5]):
        true = int(np.argmax(np.cumsum(theta) >= 0.5))

        @jax.jit
        @jax.vmap
        def found(key, theta=theta):
            return quantile(drawn(mechanism, key, theta, 150), mechanism=mechanism, level=0.8)

        limits = found(jax.random.split(KEY, 3000))
        inside = (np.asarray(limits.lower) <= true) & (true <= np.asarray(limits.upper))
        assert inside.mean() >= 0.8 - 4 * 0.4 / math.sqrt(3000)


@pytest.mark.long
def test_limits_of_cumulative_shares_solve_chernoffs_bound():
    from rrjax.data.tally import support_data
    from rrjax.inference.quantiles import _chernoff_limits

    mechanism, miss = OptimizedUnaryEncoding(6, 1.5), 0.025
    tally = mechanism.collect(KEY, [200, 300, 100, 150, 50, 200])
    lower, upper = (np.asarray(x) for x in _chernoff_limits(support_data(tally, None), True, jnp.log(FLOAT.type(miss))))
    p, q, support = float(tally.p), float(tally.q), np.asarray(tally.support)

    def log_bound(share, number, total, sign):
        def at(tilt):
            x = math.expm1(sign * tilt)
            mixed = number * math.log1p(q * x) + math.log1p(share * (p - q) * x / (1 + q * x))
            return 1000 * mixed - sign * tilt * total

        return optimize.minimize_scalar(at, bounds=(1e-6, 3), method="bounded", options={"xatol": 1e-9}).fun

    for k in (1, 2, 3):
        total = int(support[:k].sum())
        for limit, sign in ((lower, 1), (upper, -1)):
            exact = optimize.brentq(lambda s, k=k, t=total, w=sign: log_bound(s, k, t, w) - math.log(miss), 0, 1)
            assert sign * (exact - limit[k - 1]) == pytest.approx(0, abs=0.01 * float(upper[k - 1] - lower[k - 1]))
            assert sign * (exact - limit[k - 1]) >= -1e-4  # the grid of exponents makes it wider


@pytest.mark.long
def test_a_quantile_of_any_mechanism_is_wider():
    mechanism = OptimizedUnaryEncoding(40, 1.0)
    tally = mechanism.collect(KEY, np.round(4000 * np.exp(-((np.arange(40) - 15) ** 2) / 100)).astype(int))
    known, unknown = quantile(tally, mechanism=mechanism), quantile(tally)
    assert int(unknown.lower) < int(known.lower) <= int(known.value) <= int(known.upper) < int(unknown.upper)


@pytest.mark.full
def test_populations_of_tallies_are_sums_of_intervals():
    tallies, values = [FORCED.tally_of_counts(c) for c in ([330, 100, 70], [200, 150, 100])], np.arange(3.0)
    found = stratified(tallies, shares=[0.25, 0.75], values=values)
    each = [rrjax.inference.linear_functional(t, values=values, level=math.sqrt(0.95)) for t in tallies]
    for name in ("value", "lower", "upper"):
        expected = 0.25 * float(getattr(each[0], name)) + 0.75 * float(getattr(each[1], name))
        assert float(getattr(found, name)) == pytest.approx(expected, rel=1e-5)
