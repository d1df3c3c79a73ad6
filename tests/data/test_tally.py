"""Tallies: marginal statements of any pure mechanism, against rationals, plain NumPy, and what counts and ε say."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64, collect
from jax.test_util import check_grads
from refusals import refused
from scipy import stats

import rrjax
from rrjax import RandomizedResponse, Tally, inference
from rrjax.data.tally import Rates, of_tally, support_data

ESTIMATORS = {
    "inv": rrjax.inv,
    "inv_n": rrjax.inv_n,
    "inv_p-newton": lambda tally: rrjax.inv_p(tally, solver="newton"),
    "inv_p-sort": lambda tally: rrjax.inv_p(tally, solver="sort"),
}
every = pytest.mark.parametrize("name", ESTIMATORS)
# Rates whose p − q and 1 − p are exact in either dtype.
P, Q = 0.75, 0.25


def projected(x):
    """The Euclidean projection of Fractions on the simplex."""
    ordered, total, level = sorted(x, reverse=True), Fraction(0), Fraction(0)
    for number, value in enumerate(ordered, 1):
        if value - (total + value - 1) / number > 0:
            level = (total + value - 1) / number
        total += value
    return [max(value - level, Fraction(0)) for value in x]


def exact(name, support, number, p, q):
    inverted = [(Fraction(int(c), int(number)) - q) / (p - q) for c in support]
    if name == "inv":
        return inverted
    if name == "inv_n":
        above = [max(value, Fraction(0)) for value in inverted]
        return [value / sum(above) for value in above]
    return projected(inverted)


CASES = {
    "plain": ([60, 40, 30, 30], 100),
    "none above": ([25, 24, 20, 3], 100),
    "below zero together": ([20, 10, 0, 0], 1000),  # τ of InvP is −0.1175 N: every category gains
    "nothing supported": ([0, 0, 0], 50),
    "everything supported": ([50, 50, 50], 50),
    "two": ([7, 1], 9),
    "far beyond the users": (np.full(1000, 70).tolist(), 100),
    "large": ([LARGEST // 3, LARGEST // 4, LARGEST // 4 + 1, LARGEST // 5], LARGEST),
}


@pytest.mark.long
@every
@pytest.mark.parametrize("case", CASES)
def test_against_rationals(name, case):
    support, number = CASES[case]
    if name == "inv_n" and max(support) <= Q * number:
        pytest.skip("InvN has nothing to keep: tested below")
    found = np.asarray(ESTIMATORS[name](Tally(support, number, P, Q)), np.float64)
    wanted = np.array([float(x) for x in exact(name, support, number, Fraction(3, 4), Fraction(1, 4))])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=40 * ULP * max(1, np.abs(wanted).max()))
    if name != "inv":
        assert (found >= 0).all()
        assert abs(found.sum() - 1) <= 10 * ULP


def test_a_negative_threshold_lifts_every_category():
    theta = np.asarray(rrjax.inv_p(Tally([20, 10, 0, 0], 1000, P, Q)))
    assert (theta > 0).all()
    # Differences are those of the inversion, (c_i − c_j)/(N·d).
    np.testing.assert_allclose(theta[0] - theta[3], 20 / 500, rtol=20 * ULP)


def test_where_no_category_is_above_the_noise_inv_n_keeps_the_largest():
    np.testing.assert_array_equal(rrjax.inv_n(Tally([20, 25, 25, 3], 100, P, Q)), [0, 0.5, 0.5, 0])
    # That is what the threshold leaves as it rises towards the largest count.
    above = np.asarray(rrjax.inv_n(Tally([200, 251, 251, 30], 1000, P, Q)))
    np.testing.assert_allclose(above, [0, 0.5, 0.5, 0], atol=2 * ULP)


@pytest.mark.full
@pytest.mark.parametrize(("size", "number", "epsilon"), [(2, 100, 0.3), (20, 10_000, 1.0), (500, 1_000_000, 4.0)])
def test_the_tally_of_randomized_response_is_counts_and_epsilon(size, number, epsilon):
    counts = collect(size, size, number, epsilon).astype(INT)
    tally = Tally(counts, number, rates=RandomizedResponse(size, epsilon).rates)
    for name in ("inv", "inv_n", "inv_p-newton", "inv_p-sort"):
        wanted = np.asarray(getattr(rrjax, name.split("-")[0])(counts, epsilon))
        np.testing.assert_allclose(ESTIMATORS[name](tally), wanted, atol=30 * ULP * max(1, np.abs(wanted).max()))
    np.testing.assert_allclose(inference.p_values(tally), inference.p_values(counts, epsilon), rtol=1e-4)
    np.testing.assert_array_equal(inference.discoveries(tally), inference.discoveries(counts, epsilon))
    for options in ({}, {"simultaneous": "bonferroni"}, {"method": "wilson"}, {"estimand": "users"}):
        ours, theirs = inference.intervals(tally, **options), inference.intervals(counts, epsilon, **options)
        for side in (0, 1):
            np.testing.assert_allclose(ours[side], theirs[side], atol=3e-4 if not X64 else 1e-9)


@pytest.mark.long
def test_counted_reports_are_a_tally():
    mechanism = RandomizedResponse(4, 1.0)
    tally = mechanism.tally([0, 1, 1, 3, 3, 3])
    np.testing.assert_array_equal(tally.support, [1, 2, 0, 3])
    assert int(tally.num_users) == 6
    assert tally.num_categories == 4
    for name in ("p", "q", "d"):
        assert getattr(tally, name) == getattr(mechanism, name)
    drawn = mechanism.collect(jax.random.key(0), [700, 200, 100, 0])
    np.testing.assert_array_equal(
        drawn.support, rrjax.simulate.randomized(jax.random.key(0), [700, 200, 100, 0], epsilon=1.0)
    )
    assert int(drawn.num_users) == 1000


def test_parts_add_up():
    parts = [Tally([10 * i, 7, 5], 10 * i + 20, 0.5, 0.2) for i in range(5)]
    whole = sum(parts)
    np.testing.assert_array_equal(whole.support, [100, 35, 25])
    assert int(whole.num_users) == 200
    added = jax.jit(lambda a, b: rrjax.inv(a + b))(parts[1], parts[2])
    np.testing.assert_allclose(added, rrjax.inv(parts[1] + parts[2]), rtol=4 * ULP)


def test_other_tallies_do_not_add_up():
    tally = Tally([3, 2, 1], 10, 0.5, 0.2)
    with refused("rates"):
        tally + Tally([3, 2, 1], 10, 0.6, 0.2)
    with refused("other"):
        tally + Tally([3, 2], 10, 0.5, 0.2)
    with pytest.raises(TypeError):
        tally + 1
    large = Tally([3, 2, 1], LARGEST, 0.5, 0.2)
    with refused("num_users"):
        large + tally
    # Under tracing nothing can be refused, and nothing plausible comes of it.
    for other in (Tally([3, 2, 1], 10, 0.6, 0.2), large):
        assert np.isnan(jax.jit(lambda a, b: rrjax.inv_p(a + b))(tally, other)).all()


@pytest.mark.parametrize("p", [0.5, 0.5 + 1e-6, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("step", [1e-9, 0.1, 0.4])
def test_rates_do_not_cancel(p, step):
    q = p - step
    rates = Tally([1, 2], 3, p, q).rates.astype(FLOAT)
    exact_p, exact_q = Fraction(p), Fraction(q)
    for found, wanted in (
        (rates.p, exact_p),
        (rates.q, exact_q),
        (rates.d, exact_p - exact_q),
        (rates.not_p, 1 - exact_p),
        (rates.not_q, 1 - exact_q),
    ):
        assert abs(Fraction(float(found)) - wanted) <= 8 * Fraction(ULP) * wanted + Fraction(1, 10**25)


@pytest.mark.parametrize("number", [100, 10**6, LARGEST])
@pytest.mark.parametrize("q", [1e-6, 0.11, 0.5])
def test_the_excess_over_noise_is_exact(number, q):
    q = float(FLOAT.type(q))
    noise = number * Fraction(q)
    support = np.array([int(noise), min(int(noise) + 1, number), 0, number // 2], INT)
    # These weights sum to one exactly, so q is the one above.
    rates = Rates(q, 0.0, 1 - q).astype(FLOAT)
    assert float(rates.q) == q
    found = np.asarray(of_tally(Tally(jnp.asarray(support), jnp.asarray(number, INT), rates=rates)).excess, np.float64)
    for value, count in zip(found, support.tolist(), strict=True):
        wanted = count - noise
        assert abs(Fraction(value) - wanted) <= 4 * Fraction(ULP) * max(1, abs(wanted))


@pytest.mark.long
@every
def test_jit_and_batches(name):
    function = ESTIMATORS[name]
    rng = np.random.default_rng(0)
    support = rng.integers(0, 100, (6, 20)).astype(INT)
    tallies = [Tally(row, 100, 0.5, 0.3) for row in support]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tallies)
    found = jax.vmap(function)(batch)
    for index, tally in enumerate(tallies):
        np.testing.assert_allclose(function(tally), found[index], atol=20 * ULP)
        np.testing.assert_allclose(jax.jit(function)(tally), function(tally), atol=20 * ULP)


@pytest.mark.long
@every
def test_what_makes_no_sense_is_nan_under_tracing(name):
    function = jax.jit(ESTIMATORS[name])
    good = Tally([5, 4, 3], 10, 0.5, 0.2)
    assert not np.isnan(function(good)).any()
    rates = good.rates.astype(FLOAT)
    for support, number, weights in (
        ([11, 4, 3], 10, rates),  # more support than users
        ([-1, 4, 3], 10, rates),
        ([5, 4, 3], -10, rates),
        ([0, 0, 0], 0, rates),
        ([5, 4, 3], 10, rates._replace(truth=FLOAT.type(0))),
        ([5, 4, 3], 10, rates._replace(truth=FLOAT.type(-0.1))),
        ([5, 4, 3], 10, rates._replace(always=FLOAT.type(np.nan))),
        ([5, 4, 3], 10, rates._replace(never=FLOAT.type(np.inf))),
    ):
        tally = Tally(jnp.asarray(support, INT), jnp.asarray(number, INT), rates=weights)
        assert np.isnan(function(tally)).all(), (support, number, weights)
        assert np.isnan(inference.p_values(tally)).all()
        assert np.isnan(inference.intervals(tally).lower).all()
        assert not inference.discoveries(tally).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tally([1, 2, 11], 10, 0.5, 0.2), "support"),
        (lambda: Tally([1, -2, 3], 10, 0.5, 0.2), "support"),
        (lambda: Tally([1, 2, np.nan], 10.0, 0.5, 0.2), "support"),
        (lambda: Tally([1, 2], 10, np.nan, 0.2), "p"),
        (lambda: Tally([1, 2], 10, 0.2, 0.5), "p"),
        (lambda: Tally([1, 2], 10, 0.5, 0.5), "p"),
        (lambda: Tally([1, 2], 10, 1.5, 0.5), "p"),
        (lambda: Tally([1, 2], 10, 0.5), "p"),
        (lambda: Tally([1, 2], 10, [0.5, 0.6, 0.7], 0.2), "p"),
        (lambda: Tally([1, 2], 10.5, 0.5, 0.2), "num_users"),
        (lambda: Tally([1, 2], [10, 20], 0.5, 0.2), "num_users"),
        (lambda: Tally([1, 2], -1, 0.5, 0.2), "num_users"),
        (lambda: Tally([1, 2], 2**63, 0.5, 0.2), "num_users"),
        (lambda: Tally([[1, 2]], 10, 0.5, 0.2), "support"),
        (lambda: Tally([1], 10, 0.5, 0.2), "support"),
        (lambda: rrjax.inv(Tally([1, 2], 10, 0.5, 0.2), 1.0), "epsilon"),
        (lambda: rrjax.inv_p(Tally([1, 2], 10, 0.5, 0.2), epsilon=1.0), "epsilon"),
        (lambda: inference.intervals(Tally([1, 2], 10, 0.5, 0.2), 1.0), "epsilon"),
        (lambda: rrjax.inv([1, 2]), "epsilon"),
        (lambda: inference.p_values([1, 2]), "epsilon"),
        (lambda: inference.p_values(Tally([1.0, 2.0], 10.0, 0.5, 0.2)), "support"),
        (lambda: rrjax.inv_p(Tally([1, 2], 10, 0.5, 0.2), solver="bisect"), "solver"),
    ],
)
def test_bad_input_is_named(call, message):
    with refused(message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda tally: rrjax.mle_star(tally, 1.0),
        lambda tally: rrjax.certificate([0.5, 0.5], tally, 1.0),
        lambda tally: inference.standard_errors(tally, 1.0),
        lambda tally: inference.profile(tally, 1.0, 0),
        lambda tally: inference.log_likelihood_surface(tally, 1.0),
        lambda tally: inference.likelihood_ratio_test(jax.random.key(0), tally, 1.0, [0.5, 0.5]),
        lambda tally: inference.posterior(jax.random.key(0), tally, 1.0),
    ],
)
def test_what_holds_for_randomized_response_alone_says_so(call):
    with pytest.raises(ValueError, match="must be those of k-ary randomized response, not a Tally"):
        call(Tally([1, 2], 10, 0.5, 0.2))


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
@pytest.mark.parametrize("name", ["inv", "inv_n", "inv_p-newton"])
@pytest.mark.parametrize("support", [[60.0, 45.0, 30.0, 22.0], [20.0, 10.0, 3.0, 1.0]])
def test_derivatives_in_weights_and_rates(name, support):
    if name == "inv_n" and support[0] == 20:
        pytest.skip("equal shares of the largest have none")

    def estimate(support, number, p, q):
        return ESTIMATORS[name](Tally(support, number, rates=Rates.of(p, q)))

    check_grads(estimate, (jnp.asarray(support), jnp.asarray(100.0), jnp.asarray(0.6), jnp.asarray(0.25)), order=2)


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
def test_derivatives_in_epsilon_through_a_mechanism():
    counts = np.array([500, 300, 150, 50])

    def of_tally_(epsilon):
        return rrjax.inv_p(Tally(counts, 1000, rates=RandomizedResponse(4, epsilon).rates))

    found, wanted = jax.jacobian(of_tally_)(1.3), jax.jacobian(lambda e: rrjax.inv_p(counts, e))(1.3)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_an_epsilon_sweep_compiles_once(compilations):
    @jax.jit
    def estimate(support, epsilon):
        return rrjax.inv_p(Tally(support, 100, rates=RandomizedResponse(3, epsilon).rates))

    estimate(jnp.array([50, 30, 20]), 1.0)
    before = len(compilations)
    for epsilon in (0.5, 2.0, 3.0):
        estimate(jnp.array([50, 30, 20]), epsilon)
    assert len(compilations) == before


@pytest.mark.full
@pytest.mark.parametrize("q", [0.1, 0.4])
def test_intervals_cover_whatever_the_share(q):
    """Every support count enumerated."""
    number, p = 40, 0.7
    support = np.arange(number + 1)
    tally = Tally(support, number, p, q)
    for share in (0.0, 0.03, 0.3, 0.8, 1.0):
        masses = stats.binom.pmf(support, number, q + (p - q) * share)
        lower, upper = inference.intervals(tally, level=0.9)
        assert masses[(lower <= share + 1e-6) & (share - 1e-6 <= upper)].sum() >= 0.9
    for holders in (0, 3, 17, 40):
        masses = np.convolve(stats.binom.pmf(support, holders, p), stats.binom.pmf(support, number - holders, q))
        lower, upper = inference.intervals(tally, level=0.9, estimand="users")
        inside = (lower <= holders / number + 1e-6) & (holders / number - 1e-6 <= upper)
        assert masses[: number + 1][inside].sum() >= 0.9


@pytest.mark.long
def test_p_values_are_binomial_tails():
    support = np.array([5, 12, 30, 40])
    tally = Tally(support, 100, 0.6, 0.2)
    wanted = stats.binom.logsf(support - 1, 100, float(FLOAT.type(0.2)))
    np.testing.assert_allclose(inference.p_values(tally, log=True), wanted, rtol=1e-9 if X64 else 1e-4)
    assert inference.discoveries(tally).tolist() == [False, False, True, True]


def test_evidence_of_counts_has_the_rates_of_randomized_response():
    found = support_data([50, 30, 20], 1.0).rates
    for ours, theirs in zip(found, RandomizedResponse(3, 1.0).rates, strict=True):
        assert ours == theirs
