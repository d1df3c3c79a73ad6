"""Intervals, p-values and discoveries against exact laws, scipy, and enumeration."""

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64
from refusals import refused
from scipy import special, stats

import rrjax
from rrjax.data.tally import support_data
from rrjax.inference import (
    covariance,
    discoveries,
    intervals,
    likelihood_ratio_test,
    p_values,
    standard_errors,
    variances,
)
from rrjax.numerics.sums import expm1_epsilon

TOLERANCE = 1e-10 if X64 else 1e-5


@pytest.mark.parametrize("total", [100, 10**6, LARGEST])
@pytest.mark.parametrize("num_categories", [2, 50, 20_000])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 9.0])
def test_the_excess_over_noise_is_exact(total, num_categories, epsilon):
    epsilon = FLOAT.type(epsilon)
    e1 = Fraction(float(expm1_epsilon(epsilon)))
    noise = total / (e1 + num_categories)
    counts = np.zeros(num_categories, INT)
    near = [int(noise), int(noise) + 1, 0][: num_categories - 1]
    counts[: len(near)] = near
    rest = total - int(counts.sum(dtype=object))
    share, last = divmod(rest, num_categories - len(near))
    counts[len(near) :] = share
    counts[-1] += last
    found = np.asarray(support_data(counts, epsilon).excess, np.float64)
    for index in [*range(len(near)), num_categories - 1]:
        exact = int(counts[index]) - noise
        assert abs(Fraction(found[index]) - exact) <= 4 * Fraction(ULP) * max(1, abs(exact))


def coverage(limits, counts, trials, probability, theta):
    inside = (limits.lower <= theta) & (theta <= limits.upper)
    return stats.binom.pmf(counts[inside], trials, probability).sum()


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("num_users", [5, 60])
@pytest.mark.parametrize("num_categories", [2, 20])
def test_every_collection_enumerated_the_default_covers(epsilon, num_users, num_categories):
    # The count of a category has a law of its own, whatever the rest of the histogram.
    counts = np.arange(num_users + 1)
    histograms = np.zeros((num_users + 1, num_categories), INT)
    histograms[:, 0], histograms[:, 1] = counts, num_users - counts
    limits = jax.vmap(lambda c: intervals(c, epsilon, 0.9))(histograms)
    limits = jax.tree.map(lambda leaf: np.asarray(leaf[:, 0], np.float64), limits)
    mechanism = rrjax.RandomizedResponse(num_categories, epsilon)
    least = min(
        coverage(limits, counts, num_users, float(mechanism.q) + float(mechanism.d) * theta, theta)
        for theta in np.linspace(0, 1, 401)
    )
    assert least >= 0.9 - 1e-6


@pytest.mark.long
@pytest.mark.parametrize("estimand", ["users", "distribution"])
def test_a_level_next_to_zero_is_one(estimand):
    lower, upper = intervals([400, 600], 1.0, 1e-12, estimand=estimand)
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()


@pytest.mark.long
@pytest.mark.parametrize("method", ["clopper-pearson", "wilson"])
@pytest.mark.parametrize("estimand", ["distribution", "users"])
def test_limits_are_missing_only_where_all_categories_together_reject_every_share(method, estimand):
    if method == "wilson" and estimand == "users":
        return
    size, number, level = 1000, 200_000, 0.95
    mechanism = rrjax.RandomizedResponse(size, 2.0)
    chance = stats.binom(number, float(mechanism.q))
    alone, together = (int(chance.ppf(0.025 / tests)) for tests in (1, size))  # the smallest possible counts

    def limits(count):
        counts = np.full(size, (number - count) // (size - 1), INT)
        counts[1] += number - count - counts[1:].sum()
        counts[0] = count
        return [float(limit[0]) for limit in intervals(counts, 2.0, level, method=method, estimand=estimand)]

    assert limits(alone + 2)[1] > 0
    assert limits(together + 1) == limits(alone - 5) == [0, 0]
    assert np.isnan(limits(together - 1)).all()


@pytest.mark.long
def test_wilson_is_the_score_interval():
    counts, epsilon = np.array([5200, 2900, 1000, 900], INT), 2.0
    lower, upper = intervals(counts, epsilon, 0.9, method="wilson")
    mechanism = rrjax.RandomizedResponse(4, epsilon)
    q, d = float(mechanism.q), float(mechanism.d)
    for index, count in enumerate(counts.tolist()):
        expected = stats.binomtest(count, 10_000).proportion_ci(0.9, method="wilson")
        assert lower[index] == pytest.approx(min(max((expected.low - q) / d, 0), 1), abs=20 * ULP)
        assert upper[index] == pytest.approx(min(max((expected.high - q) / d, 0), 1), abs=20 * ULP)


@pytest.mark.long
def test_simultaneous_intervals_share_the_level():
    counts = np.array([5200, 2900, 1000, 900], INT)
    bonferroni = intervals(counts, 2.0, 0.9, simultaneous="bonferroni")
    sidak = intervals(counts, 2.0, 0.9, simultaneous="sidak")
    for one, level in ((bonferroni, 1 - 0.1 / 4), (sidak, 0.9**0.25)):
        alone = intervals(counts, 2.0, level)
        np.testing.assert_allclose(one.lower, alone.lower, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one.upper, alone.upper, rtol=1e-5, atol=1e-6)
    assert (sidak.upper[:3] < bonferroni.upper[:3]).all()
    assert (sidak.lower[:2] > bonferroni.lower[:2]).all()


@pytest.mark.long
@pytest.mark.parametrize("simultaneous", ["bonferroni", "sidak"])
def test_intervals_of_two_shares_that_add_up_to_one_hold_together(simultaneous):
    counts, design = np.array([700, 300], INT), rrjax.mechanisms.ForcedResponse(0.7, [0.4, 0.6])
    for given in ((counts, 1.0), (design.tally_of_counts(counts), None)):
        alone = intervals(*given)
        for together in (
            intervals(*given, simultaneous=simultaneous),
            jax.jit(lambda given: intervals(*given, simultaneous=simultaneous))(given),
        ):
            np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(alone.lower, 1 - alone.upper[::-1], rtol=1e-4, atol=1e-6)
    # Counts that are separate data, at the same p and q, or counts that add up to N at others.
    for given in (rrjax.Tally(counts, 1001, p=0.75, q=0.25), rrjax.Tally(counts, 1000, p=0.75, q=0.2)):
        alone, together = intervals(given), intervals(given, simultaneous=simultaneous)
        assert together.lower[0] < alone.lower[0] - 1e-3


@pytest.mark.long
def test_limits_at_the_ends():
    lower, upper = intervals([100, 0], 4.0)
    mechanism = rrjax.RandomizedResponse(2, 4.0)
    reported = 0.025 ** (1 / 100)
    assert lower[0] == pytest.approx((reported - float(mechanism.q)) / float(mechanism.d), rel=20 * ULP)
    assert upper[0] == 1
    assert lower[1] == 0
    assert upper[1] == pytest.approx(1 - float(lower[0]), abs=20 * ULP)


@pytest.mark.long
def test_p_values_are_the_tails():
    counts, epsilon = np.array([40, 22, 15, 13], INT), 2.0
    q = 1 / (np.expm1(2.0) + 4)
    expected = stats.binom.sf(counts - 1, 90, q)
    np.testing.assert_allclose(p_values(counts, epsilon), expected, rtol=20 * TOLERANCE)
    np.testing.assert_allclose(p_values(counts, epsilon, log=True), np.log(expected), rtol=TOLERANCE)


def step_up(p, fdr):
    order = np.argsort(p)
    passed = np.nonzero(p[order] <= fdr * np.arange(1, len(p) + 1) / len(p))[0]
    marks = np.zeros(len(p), bool)
    if len(passed):
        marks[order[: passed[-1] + 1]] = True
    return marks


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("exponent", [0.01, 1.3])
def test_discoveries_are_those_of_the_sorted_list(seed, exponent):
    theta = rrjax.simulate.zipf(200, exponent)
    counts = rrjax.simulate.counts(jax.random.key(seed), theta, 20_000, 2.0)
    p = np.asarray(p_values(counts, 2.0), np.float64)
    found = np.asarray(discoveries(counts, 2.0, 0.1))
    np.testing.assert_array_equal(found, step_up(p, 0.1))
    harmonic = np.sum(1 / np.arange(1, 201))
    np.testing.assert_array_equal(discoveries(counts, 2.0, 0.1, dependence="any"), step_up(p, 0.1 / harmonic))


@pytest.mark.full
@pytest.mark.once
def test_few_discoveries_are_false():
    num_categories, epsilon, number = 100, 2.0, 2000
    theta = jnp.where(jnp.arange(num_categories) < 20, 0.05, 0).astype(FLOAT)
    keys = jax.random.split(jax.random.key(0), number)
    counts = jax.jit(jax.vmap(lambda key: rrjax.simulate.counts(key, theta, 20_000, epsilon)))(keys)
    found = np.asarray(jax.jit(jax.vmap(lambda c: discoveries(c, epsilon, 0.1)))(counts))
    share = found[:, 20:].sum(1) / np.maximum(found.sum(1), 1)
    assert found[:, :20].mean() > 0.5  # not by finding nothing
    assert share.mean() <= 0.1 + 3 * share.std() / math.sqrt(number)
    # The support of the maximum likelihood estimate is no list of discoveries.
    support = np.asarray(jax.vmap(lambda c: rrjax.mle_star(c, epsilon))(counts)) > 0
    assert (support[:, 20:].sum(1) / support.sum(1)).mean() > 0.3


FUNCTIONS = {"intervals": lambda c, e: intervals(c, e), "p_values": p_values, "discoveries": discoveries}


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_are_loops(name):
    counts = np.random.default_rng(0).integers(0, 50, (6, 30)).astype(INT)
    batch = jax.vmap(lambda c: FUNCTIONS[name](c, 1.0))(counts)
    loop = [FUNCTIONS[name](c, 1.0) for c in counts]
    for one, other in zip(jax.tree.leaves(batch), zip(*map(jax.tree.leaves, loop), strict=True), strict=True):
        np.testing.assert_allclose(one, np.stack(other), rtol=100 * ULP)


@pytest.mark.long
@pytest.mark.parametrize("name", ["intervals", "p_values"])
@pytest.mark.parametrize("counts", [[-1, 5, 3], [0, 0, 0]])
def test_unusable_counts_give_nan(name, counts):
    for leaf in jax.tree.leaves(FUNCTIONS[name](counts, 1.0)):
        assert np.isnan(leaf).all()
    assert not discoveries(counts, 1.0).any()


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan])
def test_an_impossible_epsilon_gives_nan(epsilon):
    assert np.isnan(p_values([3, 4, 5], epsilon)).all()
    assert np.isnan(intervals([3, 4, 5], epsilon).upper).all()
    assert not discoveries([3, 4, 5], epsilon).any()


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-30, 1e-6, 40.0, 800.0, np.inf])
def test_extreme_epsilons_stay_finite(epsilon):
    counts = [12, 11, 11] if epsilon < 1 else [30, 4, 0]
    lower, upper = intervals(counts, epsilon)
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()
    p = np.asarray(p_values(counts, epsilon))
    assert ((p >= 0) & (p <= 1)).all()


@pytest.mark.long
def test_a_sweep_compiles_once(compilations):
    counts = np.random.default_rng(0).integers(0, 50, 37).astype(INT)
    jax.block_until_ready((intervals(counts, 1.0), p_values(counts, 1.0), discoveries(counts, 1.0)))
    before = len(compilations)
    for epsilon in (0.5, 2.0, 3.0):
        jax.block_until_ready((intervals(counts, epsilon), p_values(counts, epsilon), discoveries(counts, epsilon)))
    assert len(compilations) == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: intervals([1, 2], 1.0, 95), "level"),
        (lambda: intervals([1, 2], 1.0, np.nan), "level"),
        (lambda: intervals([1, 2], 1.0, method="wald"), "method"),
        (lambda: intervals([1, 2], 1.0, method="bootstrap"), "method"),
        (lambda: intervals([1, 2], 1.0, method="jeffreys"), "method"),
        (lambda: intervals([1, 2], 1.0, estimand="all"), "estimand"),
        (lambda: intervals([1, 2], 1.0, method="wilson", estimand="users"), "method"),
        (lambda: intervals([1, 2], 1.0, simultaneous="holm"), "simultaneous"),
        (lambda: intervals([1.5, 2], 1.0), "counts"),
        (lambda: discoveries([1, 2], 1.0, 0), "fdr"),
        (lambda: discoveries([1, 2], 1.0, dependence="positive"), "dependence"),
        (lambda: p_values([[1, 2]], 1.0), "counts"),
        (lambda: p_values([1], 1.0), "counts"),
    ],
)
def test_bad_arguments(call, message):
    with refused(message):
        call()


@pytest.mark.long
def test_a_level_that_is_none_under_tracing_gives_nan():
    assert np.isnan(jax.jit(lambda level: intervals([3, 4], 1.0, level))(1.5).lower).all()


@pytest.mark.long
def test_the_covariance_is_that_of_all_collections():
    # Every report of three users, with its probability.
    epsilon, held = 1.0, (0, 0, 2)
    channel = np.asarray(rrjax.RandomizedResponse(3, epsilon).channel(), np.float64)

    def moments(laws):
        total, square = np.zeros(3), np.zeros((3, 3))
        for reports_ in itertools.product(range(3), repeat=3):
            chance = math.prod(law[report] for law, report in zip(laws, reports_, strict=True))
            estimate = np.asarray(rrjax.inv(np.bincount(reports_, minlength=3).astype(INT), epsilon), np.float64)
            total += chance * estimate
            square += chance * np.outer(estimate, estimate)
        return square - np.outer(total, total)

    theta = np.bincount(held, minlength=3) / 3
    fixed = covariance(theta, 3, epsilon, estimand="users")
    np.testing.assert_allclose(fixed, moments([channel[v] for v in held]), rtol=50 * ULP, atol=50 * ULP)
    drawn = covariance(theta, 3, epsilon)
    np.testing.assert_allclose(drawn, moments([theta @ channel] * 3), rtol=50 * ULP, atol=50 * ULP)
    for estimand, matrix in (("users", fixed), ("distribution", drawn)):
        np.testing.assert_allclose(variances(theta, 3, epsilon, estimand=estimand), np.diag(matrix), rtol=4 * ULP)
        np.testing.assert_allclose(matrix.sum(1), 0, atol=20 * ULP)


def test_the_total_variance_of_the_inversion():
    # Simulated elsewhere: 59.47 at K = 500, ε = 0.5, N = 10,000; the published formula gives 0.077.
    total = variances(rrjax.simulate.zipf(500, 1.0), 10_000, 0.5, estimand="users").sum()
    assert total == pytest.approx(59.44, abs=0.01)
    assert total == pytest.approx(float(rrjax.RandomizedResponse(500, 0.5).expected_squared_error(10_000)), rel=1e-5)


@pytest.mark.long
@pytest.mark.once
def test_standard_errors_are_the_spread_of_the_estimates():
    theta, epsilon, num_users = jnp.array([0.5, 0.3, 0.15, 0.05], FLOAT), 2.0, 20_000
    keys = jax.random.split(jax.random.key(1), 4000)
    counts = jax.vmap(lambda key: rrjax.simulate.counts(key, theta, num_users, epsilon))(keys)
    spread = np.asarray(jax.vmap(lambda c: rrjax.mle_star(c, epsilon))(counts)).std(0)
    errors = np.asarray(jax.vmap(lambda c: standard_errors(c, epsilon))(counts))
    # The standard deviation of 4000 draws has a relative error of 1/sqrt(8000).
    np.testing.assert_allclose(errors.mean(0), spread, rtol=4 / math.sqrt(8000))


@pytest.mark.full
def test_standard_errors_of_channels_and_groups_are_those_of_their_information():
    channel = rrjax.mechanisms.Channel(np.asarray(rrjax.RandomizedResponse(4, 2.0).channel()))
    errors = jax.jit(jax.vmap(lambda counts: standard_errors(channel.mixture_of_counts(counts))))
    counts = np.array([[5200, 2900, 1000, 1500], [5200, 2900, 1000, 900]], INT)
    wanted = [standard_errors(each, 2.0) for each in counts]
    np.testing.assert_allclose(errors(counts), wanted, rtol=1e-7 if X64 else 5e-3)
    np.testing.assert_allclose(
        standard_errors(channel.mixture_of_counts(counts[0])), wanted[0], rtol=1e-7 if X64 else 5e-3
    )
    design = rrjax.mechanisms.ForcedResponse(0.6, [0.5, 0.3, 0.2])
    mixture = design.mixture_of_counts([500, 430, 170])
    groups = rrjax.surveys.groups.mixture([mixture, mixture])
    np.testing.assert_allclose(standard_errors(groups), np.asarray(standard_errors(mixture)) / math.sqrt(2), rtol=1e-3)
    large = rrjax.surveys.groups.mixture(np.ones((2, 600), int), np.array([1.0, 2.0]))
    for unusable in (large, design.mixture_of_counts([500.0, 430.0, 170.0])):
        with refused("counts"):
            standard_errors(unusable)


def test_a_point_mass_has_no_standard_error():
    assert np.isnan(standard_errors([100, 0, 0], 2.0)).all()


def test_standard_errors_exist_on_the_support_only():
    counts = np.array([5200, 2900, 1000, 900], INT)
    np.testing.assert_array_equal(np.isnan(standard_errors(counts, 2.0)), np.asarray(rrjax.mle_star(counts, 2.0)) == 0)
    assert np.isnan(standard_errors([0, 0], 1.0)).all()
    with refused("estimand"):
        covariance([0.5, 0.5], 10, 1.0, estimand="all")


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_derivatives_in_epsilon(epsilon):
    counts = np.array([430, 210, 200, 160] if epsilon > 1 else [300, 250, 235, 215], INT)

    def logarithms(epsilon):
        return p_values(counts, epsilon, log=True)

    step = 1e-6
    for function in (logarithms, lambda epsilon: jnp.concatenate(intervals(counts, epsilon))):
        expected = (function(epsilon + step) - function(epsilon - step)) / (2 * step)
        for transform in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(transform(function)(epsilon), expected, rtol=1e-6, atol=1e-8)


def test_a_level_next_to_one_keeps_its_digits():
    counts = np.array([430, 210, 200, 160], INT)
    upper = np.asarray(intervals(counts, 2.0, 1 - 1e-9).upper, np.float64)
    mechanism = rrjax.RandomizedResponse(4, 2.0)
    limits = special.betaincinv(counts + 1, 1000 - counts, 1 - 0.5e-9)
    np.testing.assert_allclose(upper, (limits - float(mechanism.q)) / float(mechanism.d), rtol=1e-5)


@pytest.mark.long
def test_an_impossible_rate_under_tracing_finds_nothing():
    found = jax.jit(lambda fdr: discoveries([900, 10, 10], 1.0, fdr))
    assert found(0.05).any()
    assert not found(1.5).any()
    assert not found(-1.0).any()


def ratio(counts, epsilon, theta):
    """Twice the log-likelihood ratio for two categories, by bounded maximization in closed form."""
    counts, theta = np.asarray(counts, float), np.asarray(theta, float)
    q, d = 1 / (math.expm1(epsilon) + 2), math.expm1(epsilon) / (math.expm1(epsilon) + 2)
    best = np.clip((counts[0] / counts.sum() - q) / d, 0, 1)
    mu, mu_0 = q + d * np.array([best, 1 - best]), q + d * theta
    return 2 * float(np.sum(counts * np.log(mu / mu_0)))


@pytest.mark.long
@pytest.mark.parametrize("theta", [(0.3, 0.7), (0.0, 1.0)])
@pytest.mark.parametrize("count", [5, 11, 19])
def test_the_likelihood_ratio_of_two_categories_against_enumeration(theta, count):
    epsilon, users = 1.0, 30
    q, d = 1 / (math.expm1(1.0) + 2), math.expm1(1.0) / (math.expm1(1.0) + 2)
    all_statistics = np.array([ratio([c, users - c], epsilon, theta) for c in range(users + 1)])
    law = stats.binom.pmf(np.arange(users + 1), users, q + d * theta[0])
    exact = min(1.0, law[all_statistics >= all_statistics[count] - 1e-9].sum())
    result = likelihood_ratio_test(jax.random.key(3), [count, users - count], epsilon, theta, num_draws=4999)
    assert result.statistic == pytest.approx(all_statistics[count], abs=1e-10 if X64 else 2e-5)
    assert abs(float(result.p_value) - exact) <= 1 / 5000 + 4 * math.sqrt(exact * (1 - exact) / 4999)
    found = float(result.p_value)
    assert result.standard_error == pytest.approx(math.sqrt(found * (1 - found) / 4999), rel=1e-5)


@pytest.mark.full
@pytest.mark.once
def test_the_likelihood_ratio_keeps_its_level_at_the_boundary():
    theta = jnp.array([0.6, 0.4, 0, 0, 0], FLOAT)

    def p_value(key):
        collection, null = jax.random.split(key)
        counts = rrjax.simulate.counts(collection, theta, 500, 1.0)
        return likelihood_ratio_test(null, counts, 1.0, theta, num_draws=99).p_value

    found = np.asarray(jax.jit(jax.vmap(p_value))(jax.random.split(jax.random.key(0), 2000)))
    for level in (0.05, 0.2, 0.5):
        assert (found <= level + 1e-6).mean() <= level + 3 * math.sqrt(level * (1 - level) / 2000)
    # And it rejects what is not so.
    counts = rrjax.simulate.counts(jax.random.key(1), theta[::-1], 500, 1.0)
    assert likelihood_ratio_test(jax.random.key(2), counts, 1.0, theta, num_draws=99).p_value == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"theta": [0.5, 0.6]}, "theta"),
        ({"theta": [1.5, -0.5]}, "theta"),
        ({"theta": [0.5, 0.25, 0.25]}, "theta"),
        ({"num_draws": 0}, "num_draws"),
        ({"counts": [0.5, 1.0]}, "counts"),
    ],
)  # fmt: skip
def test_bad_hypotheses(arguments, message):
    given = {"counts": [5, 6], "epsilon": 1.0, "theta": [0.5, 0.5]} | arguments
    with refused(message):
        likelihood_ratio_test(jax.random.key(0), **given)


@pytest.mark.full
def test_unusable_counts_have_no_ratio():
    result = likelihood_ratio_test(jax.random.key(0), [0, 0], 1.0, [0.5, 0.5])
    assert all(np.isnan(leaf) for leaf in jax.tree.leaves(result))


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [20.0, 40.0, 800.0])
def test_where_every_report_is_the_truth_the_users_are_known(epsilon):
    for counts in ([3, 4], [15, 10, 5], [1, 0]):
        lower, upper = intervals(counts, epsilon, estimand="users")
        np.testing.assert_allclose(lower, np.array(counts) / sum(counts), rtol=1e-6)
        np.testing.assert_allclose(upper, np.array(counts) / sum(counts), rtol=1e-6)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(
    "statement",
    [
        rrjax.empirical_bayes,
        rrjax.ordered_bayes,
        intervals,
        discoveries,
        p_values,
        standard_errors,
        rrjax.inference.quantile,
        lambda counts, epsilon: rrjax.inference.posterior(jax.random.key(0), counts, epsilon),
        lambda counts, epsilon: rrjax.inference.linear_functional(counts, epsilon, values=np.arange(4)),
    ],
)
def test_weights_are_refused_by_the_name_of_what_takes_them(statement):
    with refused("counts") as error:
        statement(np.array([50.5, 30, 10, 9.5], np.float32), 1.0)
    assert "survey_estimate" in str(error.value)
