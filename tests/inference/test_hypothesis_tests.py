"""Tests of hypotheses: their statistics against direct formulas, their p-values against enumeration, their sizes."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, ULP, X64
from laws import check_covariance
from refusals import refused
from scipy import stats

import rrjax
from rrjax.inference import equality_test, goodness_of_fit_test, independence_test, likelihood_ratio_test, trend_test
from rrjax.inference.distribution_tests import chi_bar_square
from rrjax.simulate.sampling import Stream, hypergeometric, table

KEY = jax.random.key(0)
LEVELS = (0.05, 0.2, 0.5)
DRAWS = 39
"""So many where more show nothing else: levels are then reached exactly, and programs are shared. They take seconds."""


def keeps_its_level(p_values, levels=LEVELS):
    p_values = np.asarray(p_values)
    for level in levels:
        error = math.sqrt(level * (1 - level) / len(p_values))
        assert (p_values <= level + 1e-6).mean() <= level + 3 * error, level


@partial(jax.jit, static_argnums=0)
def p_values(test, *given):
    """p-values of a function of two keys, one for the data and one for the null, and of what is given."""
    return jax.vmap(lambda key: test(*jax.random.split(key), *given).p_value)(jax.random.split(KEY, 2000))


def nll(theta, counts, epsilon):
    theta, counts = np.asarray(theta, float), np.asarray(counts, float)
    e1 = math.expm1(epsilon)
    return -float(np.sum(counts * np.log((1 + e1 * theta) / (e1 + len(theta)))))


def exact_mle(counts, epsilon):
    counts, e1 = np.asarray(counts, float), math.expm1(epsilon)
    falling = np.sort(counts)[::-1]
    threshold = max(falling[:m].sum() / (e1 + m) for m in range(1, len(counts) + 1))
    return np.maximum(counts / threshold - 1, 0) / e1


# --- shuffles


@jax.jit
def parts(keys, items, number):
    return jax.vmap(lambda key: hypergeometric(Stream.of(key), 0, items, number))(keys)


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("number", [0, 1, 7, 13, 20])
def test_parts_of_a_multiset_have_the_hypergeometric_law(number):
    items = np.array([5, 3, 0, 2, 10], np.int32)
    drawn = np.asarray(parts(jax.random.split(KEY, 20_000), items, jnp.int32(number)))
    assert (drawn.sum(1) == number).all()
    assert ((drawn >= 0) & (drawn <= items)).all()
    share = items / 20
    covariance = number * (20 - number) / 19 * (np.diag(share) - np.outer(share, share))
    if 0 < number < 20:
        check_covariance(drawn, number * share, covariance)


@pytest.mark.long
def test_large_parts_of_a_multiset():
    items = np.array([10**9, 3, 10**6, 0, 40_000], np.int32)
    keys = jax.random.split(KEY, 200)
    for number in (1, 10**5, 10**9):
        drawn = np.asarray(parts(keys, items, jnp.int32(number)), np.int64)
        assert (drawn.sum(1) == number).all()
        assert ((drawn >= 0) & (drawn <= items)).all()
        law = stats.hypergeom(int(items.sum(dtype=np.int64)), int(items[2]), number)
        assert abs(drawn[:, 2].mean() - law.mean()) <= 5 * law.std() / math.sqrt(200) + 1e-9


@pytest.mark.long
@pytest.mark.once
def test_tables_have_their_margins_and_their_law():
    rows, columns = np.array([2, 3, 1], np.int32), np.array([4, 2], np.int32)
    keys = jax.random.split(KEY, 30_000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: table(Stream.of(key), rows, columns)))(keys))
    assert (drawn.sum(2) == rows).all()
    assert (drawn.sum(1) == columns).all()
    # All ways to deal four of one kind and two of the other to six places.
    seen = {}
    for places in itertools.combinations(range(6), 2):
        of_second = np.add.reduceat(np.isin(np.arange(6), places).astype(int), [0, 2, 5])
        seen[tuple(of_second)] = seen.get(tuple(of_second), 0) + 1 / 15
    for cells, mass in seen.items():
        share = (drawn[:, :, 1] == cells).all(1).mean()
        assert abs(share - mass) <= 5 * math.sqrt(mass * (1 - mass) / 30_000)


# --- a given distribution


@pytest.mark.long
def test_the_limit_has_the_chi_square_law_inside_the_simplex():
    theta = jnp.array([0.5, 0.3, 0.2], FLOAT)
    keys = jax.random.split(KEY, 20_000)
    drawn = np.asarray(jax.vmap(lambda key: chi_bar_square(key, FLOAT.type(1.0), theta))(keys))
    assert stats.kstest(drawn, stats.chi2(2).cdf).pvalue > 1e-3


@pytest.mark.long
def test_the_limit_is_half_a_chi_square_at_an_end():
    # One free direction and one zero: the projection is zero half of the time.
    keys = jax.random.split(KEY, 20_000)
    theta = jnp.array([1.0, 0.0], FLOAT)
    drawn = np.asarray(jax.vmap(lambda key: chi_bar_square(key, FLOAT.type(1.0), theta))(keys))
    # What cancels is not zero to the last digit.
    assert abs((drawn < 1e-9).mean() - 0.5) <= 4 * math.sqrt(0.25 / 20_000)
    assert stats.kstest(drawn[drawn > 1e-9], stats.chi2(1).cdf).pvalue > 1e-3


@pytest.mark.full
@pytest.mark.once
def test_the_limit_is_the_law_of_many_users():
    theta, epsilon = jnp.array([0.5, 0.3, 0.2, 0, 0, 0], FLOAT), 1.0
    counts = rrjax.simulate.counts(jax.random.key(5), theta, 2_000_000, epsilon)
    simulated = likelihood_ratio_test(KEY, counts, epsilon, theta)
    limit = likelihood_ratio_test(KEY, counts, epsilon, theta, null="chi-bar-square")
    assert simulated.statistic == limit.statistic
    assert abs(simulated.p_value - limit.p_value) <= 4 * math.hypot(simulated.standard_error, limit.standard_error)
    assert "chi-bar-square" in limit.method


@pytest.mark.long
@pytest.mark.once
def test_the_limit_keeps_its_level_at_the_boundary():
    theta = jnp.array([0.6, 0.4, 0, 0, 0], FLOAT)

    def test(data, null):
        counts = rrjax.simulate.counts(data, theta, 50_000, 1.0)
        return likelihood_ratio_test(null, counts, 1.0, theta, null="chi-bar-square", num_draws=DRAWS)

    keeps_its_level(p_values(test))


@pytest.mark.long
def test_pearson_against_its_formula_and_chi_square():
    counts, theta, epsilon = [5_200, 2_900, 1_000, 900], [0.7, 0.3, 0.0, 0.0], 2.0
    e1 = math.expm1(epsilon)
    expected = 10_000 * (1 + e1 * np.array(theta)) / (e1 + 4)
    reference = stats.chisquare(counts, expected)
    result = goodness_of_fit_test(KEY, counts, epsilon, theta)
    assert result.statistic == pytest.approx(reference.statistic, rel=1e-12 if X64 else 1e-5)
    # In the reports nothing is at a boundary, and with such counts the χ² law is right.
    assert abs(result.p_value - reference.pvalue) <= 4 * result.standard_error


@pytest.mark.long
def test_lack_of_fit_against_its_formula():
    counts, epsilon = np.array([5_200, 4_300, 500]), 2.0
    result = goodness_of_fit_test(KEY, counts, epsilon, num_draws=DRAWS)
    theta = exact_mle(counts, epsilon)
    saturated = -float(np.sum(counts * np.log(counts / counts.sum())))
    assert result.statistic == pytest.approx(2 * (nll(theta, counts, epsilon) - saturated), rel=1e-6 if X64 else 1e-4)
    assert result.p_value == pytest.approx(1 / (DRAWS + 1))
    # Where the inversion has no negative share, everything fits.
    fine = goodness_of_fit_test(KEY, [40, 30, 30], 1.0, num_draws=DRAWS)
    assert fine.statistic == pytest.approx(0, abs=1e-5)
    assert fine.p_value == 1


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("theta", [[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.9, 0.1, 0, 0]])
def test_lack_of_fit_keeps_its_level_at_every_distribution(theta):
    keeps_its_level(p_values(lack_of_fit, jnp.array(theta, FLOAT)))


def lack_of_fit(data, null, theta):
    return goodness_of_fit_test(null, rrjax.simulate.counts(data, theta, 400, 1.0), 1.0, num_draws=DRAWS)


# --- collections


@pytest.mark.long
def test_the_ratio_of_collections_against_its_formula():
    collections = np.array([[520, 290, 100, 90], [440, 350, 110, 100], [30, 10, 10, 0]])
    result = equality_test(KEY, collections, 2.0, num_draws=DRAWS)
    together = collections.sum(0)
    pooled = exact_mle(together, 2.0)
    expected = 2 * sum(nll(pooled, row, 2.0) - nll(exact_mle(row, 2.0), row, 2.0) for row in collections)
    assert result.statistic == pytest.approx(expected, rel=1e-10 if X64 else 1e-4)


@pytest.mark.full
@pytest.mark.once
def test_two_small_collections_against_enumeration():
    # All ways to deal 12 reports to collections of 5 and 7.
    collections, epsilon = np.array([[4, 1, 0], [1, 3, 3]]), 1.0

    def statistic(first):
        rows = np.array([first, collections.sum(0) - first])
        pooled = exact_mle(rows.sum(0), epsilon)
        return 2 * sum(nll(pooled, row, epsilon) - nll(exact_mle(row, epsilon), row, epsilon) for row in rows)

    observed, exact = statistic(collections[0]), 0.0
    together = collections.sum(0)
    for first in itertools.product(*(range(n + 1) for n in together)):
        if sum(first) == 5:
            chance = math.prod(math.comb(int(n), k) for n, k in zip(together, first, strict=True)) / math.comb(12, 5)
            exact += chance * (statistic(np.array(first)) >= observed - 1e-9)
    result = equality_test(KEY, collections, epsilon)
    assert abs(result.p_value - exact) <= 1e-4 + 4 * math.sqrt(exact * (1 - exact) / 9999)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("epsilons", [(1.0, 1.0), (0.7, 3.0)])
@pytest.mark.parametrize("theta", [[1, 0, 0], [0.6, 0.3, 0.1]])
def test_equal_collections_are_seldom_told_apart(epsilons, theta):
    keeps_its_level(p_values(equality, jnp.array(theta, FLOAT), jnp.array(epsilons, FLOAT)))


def equality(data, null, theta, epsilons):
    drawn = jax.vmap(rrjax.simulate.counts, in_axes=(0, None, 0, 0))
    groups = drawn(jax.random.split(data), theta, jnp.array([150, 400], jnp.int32), epsilons)
    return equality_test(null, groups, epsilons, num_draws=DRAWS)


@pytest.mark.full
def test_further_randomization_is_that_of_the_smaller_epsilon():
    from rrjax.inference.contingency_tables import _leveled

    theta = jnp.array([0.6, 0.3, 0.1, 0], FLOAT)
    keys = jax.random.split(KEY, 20_000)

    def lowered(key):
        data, further = jax.random.split(key)
        drawn = rrjax.simulate.counts(data, theta, 1000, 3.0)
        counts, epsilon, usable = _leveled(further, jnp.stack([drawn, drawn]), jnp.array([3.0, 1.2], FLOAT))
        return counts[0], epsilon, usable

    counts, epsilon, usable = jax.jit(jax.vmap(lowered))(keys)
    assert usable.all()
    assert epsilon[0] == pytest.approx(1.2, rel=4 * ULP)
    law = np.asarray(theta, float) @ np.asarray(rrjax.RandomizedResponse(4, 1.2).channel(), float)
    check_covariance(np.asarray(counts), 1000 * law, 1000 * (np.diag(law) - np.outer(law, law)))


@pytest.mark.full
@pytest.mark.once
def test_different_collections_are_found():
    first = rrjax.simulate.counts(jax.random.key(1), jnp.array([0.5, 0.3, 0.2], FLOAT), 5000, 2.0)
    second = rrjax.simulate.counts(jax.random.key(2), jnp.array([0.4, 0.3, 0.3], FLOAT), 5000, 3.0)
    assert equality_test(KEY, [first, second], [2.0, 3.0], num_draws=199).p_value == pytest.approx(1 / 200)


@pytest.mark.long
def test_trends_against_their_formula():
    collections, times = np.array([[52, 29, 19], [50, 30, 20], [46, 33, 21]]), np.array([2015.0, 2016, 2020])
    number = collections.sum()
    for category in range(3):
        result = trend_test(KEY, collections, 2.0, times, category=category, num_draws=DRAWS)
        # Cochran and Armitage's score: the correlation of the indicator with time.
        who = np.repeat(times, collections.sum(1))
        is_it = np.concatenate([np.repeat([1, 0], [row[category], row.sum() - row[category]]) for row in collections])
        expected = np.corrcoef(who, is_it)[0, 1] * math.sqrt(number)
        assert result.statistic == pytest.approx(expected, rel=1e-10 if X64 else 1e-4)
    everything = trend_test(KEY, collections, 2.0, times, num_draws=DRAWS)
    sigma = who.std()
    moved = (times - who.mean()) @ collections / sigma
    assert everything.statistic == pytest.approx(np.sum(moved**2 / collections.sum(0)), rel=1e-10 if X64 else 1e-4)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("category", [None, 0, 2])
def test_no_trend_is_seldom_found(category):
    keeps_its_level(p_values(trend, *(() if category is None else (category,))))


def trend(data, null, category=None):
    theta = jnp.array([0.7, 0.3, 0], FLOAT)
    groups = jax.vmap(lambda key: rrjax.simulate.counts(key, theta, 120, 1.5))(jax.random.split(data, 4))
    return trend_test(null, groups, 1.5, category=category, num_draws=DRAWS)


@pytest.mark.long
@pytest.mark.once
def test_a_trend_is_found_and_its_direction():
    shares = [[0.5, 0.5, 0], [0.47, 0.5, 0.03], [0.44, 0.5, 0.06], [0.41, 0.5, 0.09]]
    groups = [rrjax.simulate.counts(jax.random.key(i), jnp.array(t, FLOAT), 8000, 2.0) for i, t in enumerate(shares)]
    assert trend_test(KEY, groups, 2.0, num_draws=199).p_value == pytest.approx(1 / 200)
    assert trend_test(KEY, groups, 2.0, category=0, num_draws=199).statistic < -3
    assert trend_test(KEY, groups, 2.0, category=2, num_draws=199).statistic > 3


# --- two attributes


@pytest.mark.long
def test_independence_against_scipy():
    counts = np.array([[30, 20, 10], [20, 30, 40]])
    reference = stats.chi2_contingency(counts, correction=False)
    result = independence_test(KEY, counts, num_draws=DRAWS)
    assert result.statistic == pytest.approx(reference.statistic, rel=1e-10 if X64 else 1e-5)
    turned = independence_test(KEY, counts.T, num_draws=DRAWS)
    assert turned.statistic == pytest.approx(reference.statistic, rel=1e-10 if X64 else 1e-5)
    small = np.array([[7, 2], [1, 6]])
    exact = stats.fisher_exact(small).pvalue  # for these margins the same order of tables
    found = independence_test(KEY, small).p_value
    assert abs(found - exact) <= 1e-4 + 4 * math.sqrt(exact * (1 - exact) / 9999)


@pytest.mark.full
@pytest.mark.once
def test_independent_attributes_are_seldom_called_dependent():
    # Each randomized on its own: the reports' joint law is the product of both reports' laws.
    laws = [
        jnp.asarray(np.asarray(t) @ np.asarray(rrjax.RandomizedResponse(len(t), e).channel(), float), FLOAT)
        for t, e in (([0.8, 0.2, 0], 1.0), ([1.0, 0.0], 2.0))
    ]

    def test(data, null):
        from rrjax.simulate.sampling import multinomial

        (cells,) = multinomial(Stream.of(data), jnp.int32(200), jnp.outer(*laws).ravel()[None])
        return independence_test(null, cells.reshape(3, 2), num_draws=DRAWS)

    keeps_its_level(p_values(test))


# --- all of them

COUNTS = [50, 30, 20]
TESTS = {
    "ratio": lambda **more: likelihood_ratio_test(KEY, COUNTS, 1.0, [0.5, 0.3, 0.2], **more),
    "fit": lambda **more: goodness_of_fit_test(KEY, COUNTS, 1.0, [0.5, 0.3, 0.2], **more),
    "any fit": lambda **more: goodness_of_fit_test(KEY, COUNTS, 1.0, **more),
    "equality": lambda **more: equality_test(KEY, [COUNTS] * 3, 1.0, **more),
    "trend": lambda **more: trend_test(KEY, [COUNTS] * 3, 1.0, **more),
    "independence": lambda **more: independence_test(KEY, [COUNTS, COUNTS], **more),
}


# Every one compiles for seconds: the quick suite takes what is cheap, the long one all.
QUICK = [pytest.param(name, marks=() if name in ("ratio", "independence") else pytest.mark.long) for name in TESTS]


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("name", QUICK)
def test_results_say_what_they_are(name):
    result = TESTS[name](num_draws=DRAWS)
    assert result.method
    assert 0 < result.p_value <= 1
    share = float(result.p_value)
    assert result.standard_error == pytest.approx(math.sqrt(share * (1 - share) / DRAWS), rel=1e-5)


@pytest.mark.parametrize("name", TESTS)
def test_too_few_draws_and_levels_that_are_none(name):
    with refused("num_draws"):
        TESTS[name](num_draws=18)
    with refused("level"):
        TESTS[name](level=0)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("name", TESTS)
def test_p_values_do_not_depend_on_how_draws_are_batched(name, monkeypatch):
    from rrjax.inference import contingency_tables, distribution_tests, monte_carlo

    compiled = {
        "ratio": distribution_tests._test_ratio,
        "fit": distribution_tests._test_pearson,
        "any fit": distribution_tests._test_any,
        "equality": contingency_tables._test_equality,
        "trend": contingency_tables._test_trend,
        "independence": contingency_tables._test_independence,
    }[name]
    expected = TESTS[name](num_draws=DRAWS).p_value
    compiled.clear_cache()
    monkeypatch.setattr(monte_carlo, "CELLS_AT_A_TIME", 40)  # 4 to 13 draws at a time
    assert TESTS[name](num_draws=DRAWS).p_value == expected
    assert compiled._cache_size() == 1
    compiled.clear_cache()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: equality_test(KEY, [[1, 2], [1, 2, 3]], 1.0), "collection 0 has K = 2, collection 1 has K = 3"),
        (lambda: equality_test(KEY, [[1, 2]], 1.0), "2 to 1024 collections, got 1"),
        (lambda: equality_test(KEY, np.array([1, 2]), 1.0), r"shape \[G, K\]"),
        (lambda: equality_test(KEY, [[1, 2], [1.5, 2]], 1.0), "counts of collection 1 must be integers"),
        (lambda: equality_test(KEY, [[1, 2], [3, 2]], [1.0, 1.0, 1.0]), "one for each of 2 collections"),
        (lambda: trend_test(KEY, [[1, 2], [3, 2]], 1.0, [1, 2, 3]), "one for each of 2 collections"),
        (lambda: trend_test(KEY, [[1, 2], [3, 2]], 1.0, [1, 1]), "not all the same"),
        (lambda: trend_test(KEY, [[1, 2], [3, 2]], 1.0, category=2), "category must be from 0 to 1"),
        (lambda: independence_test(KEY, [1, 2]), r"shape \[K, L\]"),
        (lambda: independence_test(KEY, [[1.0, 2], [3, 4]]), "must be integers"),
        (lambda: likelihood_ratio_test(KEY, [1, 2], 1.0, [0.5, 0.5], null="chi-square"), "refused: on the boundary"),
        (lambda: likelihood_ratio_test(KEY, [1, 2], 1.0, [0.5, 0.5], null="exact"), "null must be"),
        (lambda: goodness_of_fit_test(KEY, [1, 2], 1.0, [0.5, 0.6]), "theta must be a distribution"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.full
@pytest.mark.parametrize(
    "call",
    [
        lambda: equality_test(KEY, [[1, 2, 3], [2, 2, 2], [0, 0, 0]], 1.0, num_draws=DRAWS),
        lambda: equality_test(KEY, [[1, 2, 3], [2, 2, 2], [-1, 3, 4]], 1.0, num_draws=DRAWS),
        lambda: equality_test(KEY, [[1, 2, 3], [1, 3, 2]], [1.0, np.nan], num_draws=199),
        lambda: trend_test(KEY, [[1, 2, 3], [2, 2, 2], [1, 3, 2]], 0.0, num_draws=DRAWS),
        lambda: independence_test(KEY, [[0, 0, 0], [0, 0, 0]], num_draws=DRAWS),
        lambda: independence_test(KEY, [[1, 2, 3], [-1, 3, 4]], num_draws=DRAWS),
        lambda: goodness_of_fit_test(KEY, [0, 0, 0], 1.0, num_draws=DRAWS),
        lambda: goodness_of_fit_test(KEY, [-1, 3, 4], 1.0, [0.5, 0.3, 0.2], num_draws=DRAWS),
        lambda: goodness_of_fit_test(KEY, [5, 3, 4], -1.0, num_draws=DRAWS),
    ],
)
def test_what_cannot_be_refused_gives_nan(call):
    result = call()
    assert np.isnan(result.statistic)
    assert np.isnan(result.p_value)


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [1e-8, 40.0, 800.0])
def test_extreme_epsilons_stay_finite(epsilon):
    for result in (
        equality_test(KEY, [[5, 2, 0], [3, 3, 1], [4, 1, 1]], epsilon, num_draws=DRAWS),
        goodness_of_fit_test(KEY, [5, 2, 0], epsilon, num_draws=DRAWS),
        goodness_of_fit_test(KEY, [5, 2, 0], epsilon, [0.7, 0.3, 0], num_draws=DRAWS),
        likelihood_ratio_test(KEY, [5, 2, 0], epsilon, [0.7, 0.3, 0], num_draws=DRAWS),
        likelihood_ratio_test(KEY, [5, 2, 0], epsilon, [0.7, 0.3, 0], null="chi-bar-square", num_draws=DRAWS),
    ):
        assert 0 < result.p_value <= 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["ratio", "fit", "any fit"])
def test_more_reports_than_can_be_simulated_give_nan(name):
    # Not a p-value among collections that could not be drawn.
    counts = jnp.array([2**31 - 1, 2**31 - 1, 300])
    given = {
        "ratio": lambda: likelihood_ratio_test(KEY, counts, 1.0, [0.5, 0.5, 0.0], num_draws=DRAWS),
        "fit": lambda: goodness_of_fit_test(KEY, counts, 1.0, [0.5, 0.5, 0.0], num_draws=DRAWS),
        "any fit": lambda: goodness_of_fit_test(KEY, counts, 1.0, num_draws=DRAWS),
    }
    assert np.isnan(given[name]().p_value)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [30.0, 60.0, 800.0])
def test_what_is_all_but_impossible_has_the_least_p_value(epsilon):
    for test in (likelihood_ratio_test, goodness_of_fit_test):
        result = test(KEY, [90, 10, 0], epsilon, [1.0, 0.0, 0.0], num_draws=DRAWS)
        assert result.statistic > 100
        assert result.p_value == pytest.approx(1 / (DRAWS + 1))


@pytest.mark.long
def test_a_hypothesis_is_normalized():
    theta = np.array([0.5, 0.3, 0.2])
    one = likelihood_ratio_test(KEY, [520, 290, 190], 2.0, theta, num_draws=DRAWS).statistic
    other = likelihood_ratio_test(KEY, [520, 290, 190], 2.0, theta * (1 + 9e-5), num_draws=DRAWS).statistic
    assert float(one) == pytest.approx(float(other), rel=1e-4)


@pytest.mark.long
def test_what_cannot_be_compared_does_not_reject():
    from rrjax.inference.monte_carlo import Null, monte_carlo_test

    result = monte_carlo_test(KEY, jnp.ones((), FLOAT), Null(lambda key: jnp.full((), jnp.nan, FLOAT), 39, 1, ""))
    assert result.p_value == 1


@pytest.mark.full  # 400 collections, each with its own simulation
@pytest.mark.once
@pytest.mark.parametrize("shares", [[0.6, 0.3, 0.1], [1, 0, 0]])
def test_independent_values_randomized_as_pairs_are_seldom_called_dependent(shares):
    # Most pairs are noise, and shares are zero: with margins of their own for each table, too.
    size, number, epsilon = 9, 500, 1.5
    d = math.expm1(epsilon) / (math.expm1(epsilon) + size)
    law = (d * np.outer(shares, shares) + (1 - d) / size).ravel()
    tables = np.random.default_rng(0).multinomial(number, law / law.sum(), 400).reshape(-1, 3, 3).astype(INT)
    keys = jax.random.split(jax.random.key(0), 400)
    test = jax.jit(jax.vmap(lambda key, table: independence_test(key, table, epsilon, num_draws=199).p_value))
    p_values = np.asarray(test(keys, tables))
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p_values <= level) <= level + 4 * np.sqrt(level * (1 - level) / 400)


@pytest.mark.full
def test_dependent_values_randomized_as_pairs_are_found_and_nonsense_is_nan():
    key, epsilon = jax.random.key(1), 2.0
    d = math.expm1(epsilon) / (math.expm1(epsilon) + 6)
    joint = np.array([[0.4, 0.1, 0.1], [0.05, 0.25, 0.1]])
    table = np.round(20_000 * (d * joint + (1 - d) / 6)).astype(INT)
    found = independence_test(key, table, epsilon, num_draws=199)
    assert found.p_value == pytest.approx(1 / 200)
    # Which attribute comes first does not matter.
    turned = independence_test(key, table.T, epsilon, num_draws=199)
    assert float(turned.statistic) == pytest.approx(float(found.statistic), rel=1e-4)
    # What is no more than the randomization does is no dependence.
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    alone = np.round(20_000 * (d * product + (1 - d) / 6)).astype(INT)
    assert independence_test(key, alone, epsilon, num_draws=199).p_value > 0.9
    assert np.isnan(independence_test(key, -table, epsilon, num_draws=199).p_value)
    assert np.isnan(independence_test(key, table, -1.0, num_draws=199).p_value)
    with refused("epsilon"):
        independence_test(key, table, [1.0, 2.0])


@pytest.mark.full
@pytest.mark.parametrize("table", [[[30, 0], [20, 0]], [[30, 10], [20, 40]], [[9, 0], [0, 0]]])
def test_pairs_that_are_all_true(table):
    assert 0 < independence_test(KEY, table, math.inf, num_draws=39).p_value <= 1


@pytest.mark.full
def test_derivatives_of_simulated_tests_are_refused():
    """The p-value counts draws, so that its derivative would be zero in silence."""
    key, counts, others = jax.random.key(0), [520, 290, 190], [500, 300, 200]
    theta = np.asarray([0.5, 0.3, 0.2], FLOAT)

    def tally(supports, epsilon):
        return rrjax.Tally(supports, 1000, rates=rrjax.mechanisms.OptimizedUnaryEncoding(3, epsilon).rates)

    for p_value in (
        lambda e: likelihood_ratio_test(key, counts, e, theta, num_draws=19).p_value,
        lambda e: goodness_of_fit_test(key, counts, e, num_draws=19).p_value,
        lambda e: goodness_of_fit_test(key, counts, e, theta, num_draws=19).p_value,
        lambda e: equality_test(key, [counts, others], e, num_draws=19).p_value,
        lambda e: equality_test(key, [tally(counts, e), tally(others, 2.0)]).p_value,
    ):
        with pytest.raises(NotImplementedError):
            jax.grad(p_value)(1.0)
        assert 0 < float(jax.jit(p_value)(1.0)) <= 1
