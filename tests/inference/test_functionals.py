"""Statements beyond shares: against exact laws, other solvers, definitions, and each other."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64, collect
from jax.scipy.special import entr
from refusals import refused
from scipy import optimize, stats

import rrjax
from rrjax import Tally
from rrjax.inference import (
    Posterior,
    covariance,
    difference,
    intervals,
    linear_functional,
    quantile,
    stratified,
)
from rrjax.inference.bounded_means import Collections, combined_limits, conservative_limits, spread_of

COUNTS = np.asarray([520, 290, 100, 90])
NUMBERS = np.asarray([0.0, 1.0, 2.0, 5.0], FLOAT)
RTOL = 1e-9 if X64 else 2e-5
EPSILON = 3.0
SMALL = np.asarray([0.0, 0.4, 1.0], FLOAT)
"""Values of three categories."""
LEVEL = 0.8
"""Low, so that intervals of few users exclude something."""
POPULATIONS = [
    np.asarray(theta) for theta in ([1, 0, 0], [0, 0, 1], [0, 1, 0], [1 / 3] * 3, [0.1, 0.1, 0.8], [0.5, 0, 0.5])
]
LINEAR = jax.jit(jax.vmap(partial(linear_functional, values=SMALL, level=LEVEL), (0, None)))
STRATIFIED = jax.jit(
    jax.vmap(partial(stratified, shares=np.asarray([0.7, 0.3], FLOAT), values=SMALL, level=LEVEL), (0, None))
)
DIFFERENCE = jax.jit(jax.vmap(partial(difference, values=SMALL, level=LEVEL), (0, 0, None)))


def reported(theta, epsilon):
    """The law of a report."""
    e1, size = math.expm1(epsilon), len(theta)
    return (1 + e1 * np.asarray(theta, float)) / (e1 + size)


def outcomes(number, size):
    """All counts of so many reports."""
    every = itertools.product(range(number + 1), repeat=size - 1)
    return np.asarray([(*first, number - sum(first)) for first in every if sum(first) <= number])


def covered(found, true, chances):
    """Probability that the interval covers."""
    slack = 1e-5
    inside = (np.asarray(found.lower) <= true + slack) & (true <= np.asarray(found.upper) + slack)
    return chances[inside].sum()


@pytest.mark.full
@pytest.mark.parametrize("estimand", ["distribution", "users"])
def test_one_category_has_its_own_interval(estimand):
    tally = Tally([60, 35, 30, 10], num_users=100, p=0.5, q=0.25)
    for given in ((COUNTS, EPSILON), (tally, None)):
        limits = intervals(*given, estimand=estimand)
        for category in range(2):
            share = linear_functional(*given, values=np.arange(4) == category, estimand=estimand)
            np.testing.assert_allclose([share.lower, share.upper], [limits.lower[category], limits.upper[category]],
                                       rtol=RTOL, atol=RTOL)  # fmt: skip
            assert float(share.value) == pytest.approx(float(rrjax.inv(*given)[category]), rel=RTOL)
            others = linear_functional(*given, values=np.arange(4) != category, estimand=estimand)
            np.testing.assert_allclose([others.lower, others.upper, others.value],
                                       [1 - share.upper, 1 - share.lower, 1 - share.value], atol=RTOL)  # fmt: skip


@pytest.mark.long
def test_a_group_has_the_limits_of_clopper_and_pearson():
    members = np.asarray([True, False, True, True])
    found = linear_functional(COUNTS, EPSILON, values=members, level=0.9)
    number, total = COUNTS[members].sum(), COUNTS.sum()
    e1 = math.expm1(EPSILON)
    for limit, chance in (
        (found.lower, stats.beta.ppf(0.05, number, total - number + 1)),
        (found.upper, stats.beta.ppf(0.95, number + 1, total - number)),
    ):
        assert float(limit) == pytest.approx((chance * (e1 + 4) - 3) / e1, rel=RTOL * 10)
    scaled = linear_functional(COUNTS, EPSILON, values=np.where(members, 7.0, -3.0), level=0.9)
    np.testing.assert_allclose(np.asarray(scaled), np.asarray(found) * 10 - np.asarray([3, 0, 3, 3]), rtol=RTOL * 10)


@pytest.mark.long
@pytest.mark.parametrize("estimand", ["distribution", "users"])
def test_values_and_errors_are_those_of_the_inversion(estimand):
    found = linear_functional(COUNTS, EPSILON, values=NUMBERS, method="normal", estimand=estimand)
    theta = np.asarray(rrjax.inv(COUNTS, EPSILON), float)
    assert float(found.value) == pytest.approx(theta @ NUMBERS, rel=RTOL)
    variance = NUMBERS @ np.asarray(covariance(theta.astype(FLOAT), 1000, EPSILON, estimand=estimand), float) @ NUMBERS
    if estimand == "distribution":
        variance *= 1000 / 999
    assert float(found.standard_error) == pytest.approx(math.sqrt(variance), rel=RTOL)
    half = stats.norm.ppf(0.975) * math.sqrt(variance)
    np.testing.assert_allclose([found.lower, found.upper], [found.value - half, found.value + half], rtol=RTOL)


@pytest.mark.full
@pytest.mark.parametrize("estimand", ["distribution", "users"])
def test_reports_that_are_all_the_same_have_an_error(estimand):
    """That of an empty category: q(1 − q)/(N·d²). Inside, by the same formula, it is that of the counts."""
    mechanism = rrjax.RandomizedResponse(3, EPSILON)
    q, d = float(mechanism.q), float(mechanism.p - mechanism.q)
    counts = np.asarray([0, 5, 0])
    tally = rrjax.Tally(counts, 5, rates=mechanism.rates)
    wanted = math.sqrt(q * (1 - q) / 5) / d
    for data, epsilon in ((counts, EPSILON), (tally, None)):
        for method in ("exact", "normal"):
            found = linear_functional(data, epsilon, values=[1, 0, 0], method=method, estimand=estimand)
            assert float(found.value) == pytest.approx(-q / d, rel=RTOL)
            assert float(found.standard_error) == pytest.approx(wanted, rel=RTOL)
            assert float(found.lower) < 0.01 < float(found.upper)
    if estimand == "users":
        return
    # A mean: reports of users who all hold the middle one are 0, 1, 2 with q, 1 − 2q, q.
    found = linear_functional(counts, EPSILON, values=[0, 1, 2], method="normal")
    assert float(found.standard_error) == pytest.approx(math.sqrt(2 * q / 5) / d, rel=RTOL)
    one = linear_functional([0, 1, 0], EPSILON, values=[1, 0, 0])
    assert math.isnan(one.standard_error)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [4.0, 12.0, 17.0, 20.0])
def test_users_have_the_noise_of_their_reports(epsilon):
    """At ε = 20 float32 has no digits of 1 − d: the error was .71 of this."""
    counts = [600, 400]
    q = 1 / (math.exp(epsilon) + 1)
    found = linear_functional(counts, epsilon, values=[0, 1], estimand="users").standard_error
    assert float(found) == pytest.approx(math.sqrt(q * (1 - q) / 1000) / (1 - 2 * q), rel=RTOL)


@pytest.mark.long
def test_the_unit_of_the_values_does_not_matter():
    for method in ("conservative", "normal"):
        plain = np.asarray(linear_functional(COUNTS, EPSILON, values=NUMBERS, method=method))
        moved = np.asarray(linear_functional(COUNTS, EPSILON, values=100 - 4 * NUMBERS, method=method))
        wanted = [100 - 4 * plain[0], 4 * plain[1], 100 - 4 * plain[3], 100 - 4 * plain[2]]
        np.testing.assert_allclose(moved, wanted, rtol=RTOL)


@pytest.mark.long
def test_conservative_intervals_cover_by_exact_laws():
    counts = outcomes(12, 3)
    for epsilon in (0.5, 1.5, 4.0):
        found = LINEAR(counts, epsilon)
        for theta in POPULATIONS:
            chances = stats.multinomial.pmf(counts, 12, reported(theta, epsilon))
            assert covered(found, theta @ SMALL, chances) >= LEVEL
            # Twelve users who are given: their reports are independent, and not alike.
            users = np.round(theta * 12).astype(int)
            users[1] += 12 - users.sum()
            assert covered(found, users @ SMALL / 12, fixed(users, counts, epsilon)) >= LEVEL
    assert np.asarray(found.upper - found.lower).min() < 0.4  # and not because they say nothing


def fixed(users, counts, epsilon):
    """Probabilities of counts where so many users hold each value."""
    law = {(0, 0, 0): 1.0}
    for value in np.repeat(np.arange(3), users):
        after = {}
        for seen, chance in law.items():
            for report, given in enumerate(reported(np.eye(3)[value], epsilon)):
                key = tuple(number + (report == place) for place, number in enumerate(seen))
                after[key] = after.get(key, 0) + chance * given
        law = after
    return np.asarray([law[tuple(row)] for row in counts.tolist()])


@pytest.mark.full
def test_differences_and_strata_cover_by_exact_laws():
    first, second = outcomes(6, 3), outcomes(4, 3)
    pairs = np.asarray(list(itertools.product(range(len(first)), range(len(second)))))
    counts = first[pairs[:, 0]], second[pairs[:, 1]]
    epsilons = np.asarray([4.0, 5.0], FLOAT)
    apart = DIFFERENCE(*counts, epsilons)
    strata = STRATIFIED(np.stack(counts, axis=1), epsilons)
    for theta, other in itertools.product(POPULATIONS, POPULATIONS):
        laws = (reported(theta, 4.0), reported(other, 5.0))
        alone = [stats.multinomial.pmf(c, c[0].sum(), law) for c, law in zip((first, second), laws, strict=True)]
        chances = np.outer(*alone).ravel()
        assert covered(apart, (theta - other) @ SMALL, chances) >= LEVEL
        assert covered(strata, 0.7 * theta @ SMALL + 0.3 * other @ SMALL, chances) >= LEVEL
    assert np.asarray(apart.upper - apart.lower).min() < 1  # of two
    assert np.asarray(strata.upper - strata.lower).min() < 0.6


def superquantile(x, number, kept, share, miss):
    """Of the sum whose users' x are 0 or 1, less its mean, by convolution; x are multiples of 1/8."""
    law = np.bincount(np.round(8 * x).astype(int), minlength=9) * (1 - kept) / len(x)
    law[0] += kept * (1 - share)
    law[8] += kept * share
    total = np.ones(1)
    for _ in range(number):
        total = np.convolve(total, law)
    places = np.arange(len(total)) / 8
    beyond = np.maximum(places[:, None] - places, 0).T @ total
    return (places + beyond / miss).min() - number * (kept * share + (1 - kept) * x.mean())


@pytest.mark.long
def test_limits_invert_the_superquantile():
    x = np.asarray([0, 0.125, 0.5, 1, 0.25, 0.25])
    find = jax.jit(lambda *a: conservative_limits(spread_of(jnp.asarray(x, FLOAT)), *a))
    for number, kept, estimate in itertools.product((3, 20, 100), (0.3, 0.9), (0.2, 0.6, 0.97)):
        lower = float(find(*np.asarray([estimate, number, kept, math.log(0.025)], FLOAT))[0])

        def refuses(share, number=number, kept=kept, estimate=estimate):
            return number * kept * (estimate - share) >= superquantile(x, number, kept, share, 0.025)

        exact, far = 0.0, estimate
        if refuses(0.0):
            for _ in range(12):
                middle = (exact + far) / 2
                exact, far = (middle, far) if refuses(middle) else (exact, middle)
        # On the safe side, and by no more than the noise that makes it computable.
        assert lower <= far
        assert estimate - lower <= 1.05 * (estimate - exact)


@pytest.mark.long
def test_widths_do_not_depend_on_how_many_users_there_are():
    """Beside the normal interval: longer by the superquantile of a normal law and by what is added to the spread."""
    values = np.arange(20).astype(FLOAT)
    kept = math.expm1(1.0) / (math.expm1(1.0) + 20)
    spread = np.var(np.linspace(0, 1, 20))
    more = math.sqrt(((1 - kept) * spread + kept / 4) / spread * (1 + 0.2**2))
    for number in (10_000, 1_000_000, 80_000_000):
        found, normal = (
            linear_functional(np.full(20, number), 1.0, values=values, method=method)
            for method in ("conservative", "normal")
        )
        distance = float(found.value - found.lower) / float(normal.standard_error)
        assert distance == pytest.approx(stats.norm.pdf(1.959964) / 0.025 * more, rel=0.003)
        assert float(found.upper - found.value) / float(normal.standard_error) == pytest.approx(distance, rel=1e-3)


def bounded(x, data, difference, log_tilts):
    """The Chernoff bound of a difference of two collections, by brute force over both λ and the means."""
    estimates, number, kept, weights = data
    shares = np.linspace(0, 1, 1001)
    other = shares - difference
    inside = (other >= 0) & (other <= 1)
    best = 0.0
    for tilt in np.exp(log_tilts):
        s = tilt * weights / (number * kept)
        if not inside.any() or np.abs(s).max() > 20:
            continue
        total = 0
        for k, share in enumerate((shares[inside], other[inside])):
            mean = kept[k] * estimates[k] + (1 - kept[k]) * x.mean()
            power = share * np.exp(s[k] * (1 - mean)) + (1 - share) * np.exp(-s[k] * mean)
            total = total + number[k] * np.log((1 - kept[k]) * np.exp(s[k] * (x - mean)).mean() + kept[k] * power)
        best = min(best, total.max())
    return best


@pytest.mark.long
@pytest.mark.parametrize("estimates", [(0.5, 0.4), (0.9, 0.05), (1.05, 0.3)])
def test_limits_of_a_difference_invert_a_chernoff_bound(estimates):
    x = np.linspace(0, 1, 7)
    data = tuple(np.asarray(part, float) for part in (estimates, (300, 50), (0.5, 0.9), (1, -1)))
    given = Collections(*(part.astype(FLOAT) for part in (*data, np.zeros(2), np.ones(2))))
    lower, _ = combined_limits(spread_of(jnp.asarray(x, FLOAT)), given, np.log(0.025).astype(FLOAT))
    tilts = np.linspace(1, 7, 300)
    low, high = -1.0, min(estimates[0] - estimates[1], 1.0)
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if bounded(x, data, middle, tilts) <= math.log(0.025) else (low, middle)
    assert float(lower) == pytest.approx(low, abs=5e-4)


@pytest.mark.long
def test_combinations_are_sums():
    first, second = COUNTS, COUNTS[::-1].copy()
    each = [linear_functional(c, e, values=NUMBERS, method="normal") for c, e in ((first, 2.0), (second, 3.0))]
    pair = np.asarray([2.0, 3.0], FLOAT)
    for method in ("conservative", "normal"):
        found = difference(first, second, (2.0, 3.0), values=NUMBERS, method=method)
        assert float(found.value) == pytest.approx(float(each[0].value - each[1].value), rel=RTOL)
        error = math.hypot(each[0].standard_error, each[1].standard_error)
        assert float(found.standard_error) == pytest.approx(error, rel=RTOL)
        turned = difference(second, first, (3.0, 2.0), values=NUMBERS, method=method)
        np.testing.assert_allclose([turned.lower, turned.upper], [-found.upper, -found.lower], rtol=RTOL * 10)
        strata = stratified(np.stack([first, second]), pair, shares=[0.25, 0.75], values=NUMBERS, method=method)
        assert float(strata.value) == pytest.approx(float(each[0].value + 3 * each[1].value) / 4, rel=RTOL)
        error = math.hypot(each[0].standard_error / 4, 3 * each[1].standard_error / 4)
        assert float(strata.standard_error) == pytest.approx(error, rel=RTOL)
        assert strata.lower < strata.value < strata.upper


@pytest.mark.long
def test_tallies_leave_what_their_shares_leave():
    tally = Tally([330, 280, 270, 225], num_users=1000, p=0.5, q=0.2)
    found = linear_functional(tally, values=NUMBERS)
    limits = intervals(tally, simultaneous="bonferroni")
    bounds = list(zip(np.asarray(limits.lower, float), np.asarray(limits.upper, float), strict=True))
    for limit, sign in ((found.lower, 1), (found.upper, -1)):
        solved = optimize.linprog(sign * NUMBERS, A_eq=np.ones((1, 4)), b_eq=[1], bounds=bounds)
        assert float(limit) == pytest.approx(sign * solved.fun, rel=1e-4)
    # A constant is known, and not estimated from shares that do not add up to one.
    moved = linear_functional(tally, values=NUMBERS + 50)
    assert float(moved.value) == pytest.approx(float(found.value) + 50, rel=RTOL)
    assert math.isnan(found.standard_error)
    apart = difference(tally, COUNTS, (None, EPSILON), values=NUMBERS)
    root = math.sqrt(0.95)
    one = linear_functional(tally, values=NUMBERS, level=root)
    other = linear_functional(COUNTS, EPSILON, values=NUMBERS, level=root)
    wanted = [one.lower - other.upper, one.upper - other.lower]
    np.testing.assert_allclose([apart.lower, apart.upper], wanted, rtol=RTOL)
    with refused("method"):
        linear_functional(tally, values=NUMBERS, method="normal")
    with refused("method"):
        linear_functional(tally, values=[0, 0, 1, 1], method="exact")


@pytest.mark.long
def test_quantiles_cover_by_exact_laws():
    counts = outcomes(12, 4)
    for epsilon in (1.0, 4.0):
        found = QUANTILE(counts, epsilon)
        for theta in ([0.25] * 4, [0.5, 0, 0, 0.5], [0, 0, 1, 0], [0.49, 0.02, 0.49, 0]):
            true = int(np.argmax(np.cumsum(theta) >= 0.5))
            chances = stats.multinomial.pmf(counts, 12, reported(theta, epsilon))
            inside = (np.asarray(found.lower) <= true) & (true <= np.asarray(found.upper))
            assert chances[inside].sum() >= LEVEL
    assert (np.asarray(found.upper - found.lower) == 0).any()  # some say something


QUANTILE = jax.jit(jax.vmap(lambda counts, epsilon: quantile(counts, epsilon, level=LEVEL), (0, None)))


@pytest.mark.long
def test_a_quantile_lies_in_its_interval():
    counts = np.random.default_rng(0).multinomial(2000, np.full(100, 0.01), 50)
    found = jax.jit(jax.vmap(lambda counts: quantile(counts, 1.0, 0.9, level=0.5)))(counts)
    assert ((found.lower <= found.value) & (found.value <= found.upper)).all()


@pytest.mark.full
def test_quantiles_of_many_users_and_of_none():
    counts = collect(0, 4, 100_000, 30.0, skew=0.5)
    shares = counts.cumsum() / counts.sum()
    for probability in (0.1, 0.5, 0.95):
        found = quantile(counts, 30.0, probability, estimand="users")
        assert int(found.value) == int(found.lower) == int(found.upper) == np.argmax(shares >= probability)
    wide = quantile(np.full(4, 10), 1e-3)
    assert (int(wide.lower), int(wide.upper)) == (0, 3)
    assert np.asarray(quantile([3, -1, 2, 4], 1.0)).tolist() == [-1] * 3
    with refused("probability"):
        quantile(counts, 1.0, 1.0)


@pytest.mark.long
def test_functions_of_draws():
    draws = np.random.default_rng(0).dirichlet([0.5, 2, 3, 4], size=(2, 500)).astype(FLOAT)
    result = Posterior(jnp.asarray(draws), *[jnp.zeros(4, FLOAT)] * 4)
    shares = result.credible_functional(lambda theta: theta, 0.9)
    limits = result.credible_intervals(0.9)
    np.testing.assert_allclose([shares.lower, shares.upper], [limits.lower, limits.upper], rtol=RTOL)
    np.testing.assert_allclose(shares.value, draws.mean((0, 1)), rtol=1e-5)
    entropy = Posterior.of(draws).credible_functional(lambda theta: entr(theta).sum())
    values = stats.entropy(draws.reshape(-1, 4).astype(float), axis=1)
    np.testing.assert_allclose([entropy.lower, entropy.upper], np.quantile(values, [0.025, 0.975]), rtol=1e-4)
    assert float(entropy.standard_error) == pytest.approx(values.std(), rel=1e-4)
    with refused("level"):
        result.credible_functional(lambda theta: theta, 90)


@pytest.mark.full
def test_what_cannot_be_is_nan():
    bad = np.asarray([[5, -1, 3], [0, 0, 0], [4, 4, 4]])
    found = np.asarray(LINEAR(bad, 1.5))
    assert np.isnan(found[:, :2]).all()
    assert np.isfinite(found[:, 2]).all()
    assert np.isnan(np.asarray(LINEAR(bad, -1.0))).all()
    assert np.isnan(np.asarray(DIFFERENCE(bad, bad[::-1], np.asarray([1.0, 1.0], FLOAT)))).all()
    flat = jax.jit(lambda values: linear_functional(COUNTS, 1.0, values=values))(np.full(4, 2, FLOAT))
    assert np.isnan(np.asarray(flat)).all()


@pytest.mark.long
def test_batches_are_loops_and_extremes_are_finite():
    groups = np.stack([COUNTS, COUNTS[::-1], np.asarray([10_000_000, 5, 0, 0])])
    for epsilon in (1e-6, 2.0, 300.0):
        together = jax.vmap(lambda c, e=epsilon: linear_functional(c, e, values=NUMBERS))(groups)
        assert np.isfinite(np.asarray(together[:2])).all()
        # At a small ε no distribution explains counts that differ so much.
        assert np.isnan(together.lower).tolist() == [epsilon < 1, epsilon < 1, epsilon < 100]
        for place, counts in enumerate(groups):
            one = linear_functional(counts, epsilon, values=NUMBERS)
            np.testing.assert_allclose([leaf[place] for leaf in together], np.asarray(one), rtol=1e-4, atol=1e-6)
            assert np.isnan([one.lower, one.upper]).all() or 0 <= float(one.lower) <= float(one.upper) <= 5
    traced = jax.jit(lambda values: linear_functional(COUNTS, 2.0, values=values))(NUMBERS)
    np.testing.assert_allclose(
        np.asarray(traced), np.asarray(linear_functional(COUNTS, 2.0, values=NUMBERS)), rtol=1e-4
    )


@pytest.mark.once
def test_what_is_wrong_is_named():
    linear = partial(linear_functional, COUNTS, 1.0)
    with refused("values"):
        linear(values=[1, 2, 3])
    with refused("values"):
        linear(values=[1, 2, math.nan, 3])
    with refused("values"):
        linear(values=[2, 2, 2, 2])
    with refused("method"):
        linear(values=[1, 2, 3, 4], method="exact")
    with refused("method"):
        jax.jit(lambda values: linear(values=values, method="exact"))(NUMBERS)
    with refused("method"):
        linear(values=[1, 2, 3, 4], method="wald")
    with refused("level"):
        linear(values=[1, 2, 3, 4], level=95)
    with refused("second"):
        difference(COUNTS, COUNTS[:3], 1.0, values=NUMBERS)
    with refused("epsilon"):
        difference(COUNTS, COUNTS, (1.0, 2.0, 3.0), values=NUMBERS)
    strata = partial(stratified, np.stack([COUNTS, COUNTS]), 1.0, values=NUMBERS)
    with refused("shares"):
        strata(shares=[0.5, 0.4])
    with refused("shares"):
        strata(shares=[1.5, -0.5])
    with refused("shares"):
        strata(shares=[1.0])
    with refused("counts"):
        stratified(COUNTS[None], 1.0, shares=[1.0], values=NUMBERS)
    with refused("counts"):
        stratified(np.stack([COUNTS, 0 * COUNTS]), 1.0, shares=[0.5, 0.5], values=NUMBERS)
