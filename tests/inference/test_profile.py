"""The profile likelihood against maximization category by category, surfaces, and what intervals make of them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, ULP
from refusals import refused
from scipy import optimize, stats

import rrjax
from rrjax.inference import intervals, log_likelihood_surface, profile


def threshold(counts, e1):
    """Of the maximum: the largest S/(e1 + m) over the m largest counts."""
    falling = np.sort(counts)[::-1]
    return max(falling[:m].sum() / (e1 + m) for m in range(1, len(counts) + 1)) if len(counts) else math.inf


def log_likelihood(counts, e1):
    """At its maximum, but for a constant."""
    if e1 == 0 or counts.sum() == 0:
        return 0.0
    return np.sum(counts * np.log(np.maximum(counts / threshold(counts, e1), 1)))


def exact_profile(counts, epsilon, category, shares):
    # Differences of large sums: in extended precision.
    counts = np.asarray(counts, np.longdouble)
    e1 = np.expm1(np.longdouble(epsilon))
    others = np.delete(counts, category)
    best = log_likelihood(counts, e1)
    return np.array(
        [
            float(counts[category] * np.log1p(e1 * t) + log_likelihood(others, e1 * (1 - t)) - best)
            for t in np.asarray(shares, np.longdouble)
        ]
    )


@pytest.mark.long
@pytest.mark.parametrize("num_categories", [2, 3, 30])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
def test_profiles_against_maximization(num_categories, epsilon):
    epsilon = float(FLOAT.type(epsilon))
    rng = np.random.default_rng(num_categories)
    for number in (3, 200, 1_000_000):
        counts = rng.multinomial(number, rng.dirichlet(np.full(num_categories, 0.3)))
        for category in {0, int(counts.argmin()), int(counts.argmax())}:
            likelihood = profile(counts, epsilon, category)
            near = float(likelihood.estimate) + rng.normal(0, 2, 20) / math.sqrt(number)
            shares = np.concatenate([[0, 1, float(likelihood.estimate)], rng.random(5), np.clip(near, 0, 1)])
            shares = shares.astype(FLOAT).astype(float)
            expected = exact_profile(counts, epsilon, category, shares)
            found = np.asarray(likelihood(shares.astype(FLOAT)), float)
            # The estimate is rounded to the dtype, and with it the place of the maximum.
            bound = 50 * ULP * math.sqrt(number)
            np.testing.assert_allclose(found, expected, rtol=100 * ULP, atol=bound)


@pytest.mark.long
def test_a_profile_is_a_maximum_over_the_others():
    counts, epsilon = np.array([60, 25, 10, 5]), 1.5
    e1 = math.expm1(epsilon)
    likelihood = profile(counts, epsilon, 1)

    def loss(weights, share):
        theta = np.insert((1 - share) * np.abs(weights) / np.abs(weights).sum(), 1, share)
        return -float(np.sum(counts * np.log1p(e1 * theta)))

    best = -loss(np.delete(np.asarray(rrjax.mle_star(counts, epsilon), float), 1), float(likelihood.estimate))
    for share in (0.05, 0.2, 0.5):
        result = optimize.minimize(loss, [1.0, 0.5, 0.2], (share,), method="Nelder-Mead", options={"xatol": 1e-9})
        assert likelihood(share) == pytest.approx(-result.fun - best, abs=1e-4)


@pytest.mark.full
def test_profiles_of_all_categories_in_one_batch():
    counts = np.array([60, 25, 10, 5, 0], INT)
    batch = jax.vmap(lambda i: profile(counts, 1.0, i)(0.2))(jnp.arange(5))
    loop = [profile(counts, 1.0, i)(0.2) for i in range(5)]
    np.testing.assert_allclose(batch, loop, rtol=10 * ULP)


@pytest.mark.long
def test_a_profile_has_derivatives():
    likelihood = profile([60, 25, 10, 5], 1.0, 1)
    slope = jax.grad(lambda share: likelihood(share))
    expected = (exact_profile([60, 25, 10, 5], 1.0, 1, [0.3 + 1e-5, 0.3 - 1e-5]) @ [1, -1]) / 2e-5
    assert slope(0.3) == pytest.approx(expected, rel=1e-4)
    assert likelihood(-0.1) == -np.inf
    assert likelihood(1.1) == -np.inf


@pytest.mark.full
@pytest.mark.parametrize("num_categories", [2, 10])
def test_intervals_end_where_the_profile_has_fallen(num_categories):
    rng = np.random.default_rng(0)
    mechanism, theta = rrjax.RandomizedResponse(num_categories, 1.5), rng.dirichlet(np.full(num_categories, 0.5))
    counts = rng.multinomial(5000, theta @ np.asarray(mechanism.channel(), float))
    with pytest.warns(UserWarning, match="fail at the boundary .* 'clopper-pearson' covers everywhere"):
        lower, upper = intervals(counts, 1.5, 0.9, method="profile")
    fall = -stats.chi2(1).ppf(0.9) / 2
    for category in range(num_categories):
        ends = [float(lower[category]), float(upper[category])]
        low, high = exact_profile(counts, 1.5, category, ends)
        assert ends[0] == 0 or low == pytest.approx(fall, abs=0.01)
        assert ends[1] == 1 or high == pytest.approx(fall, abs=0.01)
        assert ends[0] > 0 or low >= fall - 0.01


@pytest.mark.long
def test_a_surface_of_two_categories_and_its_band():
    counts, epsilon = np.array([620, 380]), 1.0
    surface = log_likelihood_surface(counts, epsilon, num_points=401)
    assert surface.theta.shape == (401, 2)
    np.testing.assert_allclose(surface.theta.sum(1), 1, rtol=4 * ULP)
    e1 = np.expm1(np.longdouble(epsilon))
    theta = np.asarray(surface.theta, np.longdouble)
    value = np.sum(counts * np.log((1 + e1 * theta) / (e1 + 2)), axis=1)
    best = np.sum(counts * np.log(counts / np.longdouble(1000)))
    expected = np.asarray(value - best, float)
    np.testing.assert_allclose(surface.log_likelihood, expected, rtol=20 * ULP, atol=20 * ULP * math.sqrt(1000))
    # Inside the simplex the band is Wilks' interval of a binomial share.
    low, high = float(surface.theta[surface.inside, 0].min()), float(surface.theta[surface.inside, 0].max())

    def fallen(share):
        t = np.array([share, 1 - share])
        return np.sum(counts * np.log((1 + e1 * t) / (e1 + 2))) - best + stats.chi2(1).ppf(0.95) / 2

    assert low == pytest.approx(optimize.brentq(fallen, 0.5, 0.75), abs=1 / 400)
    assert high == pytest.approx(optimize.brentq(fallen, 0.77, 0.99), abs=1 / 400)


@pytest.mark.long
def test_a_surface_of_three_categories():
    counts = np.array([620, 380, 400])
    surface = log_likelihood_surface(counts, 1.0, num_points=51, level=0.9)
    assert surface.theta.shape == (51 * 52 // 2, 3)
    np.testing.assert_allclose(surface.theta.sum(1), 1, rtol=4 * ULP)
    nearest = surface.theta[jnp.argmax(surface.log_likelihood)]
    assert np.abs(nearest - surface.estimate).max() <= 1 / 50
    ratio = 2 * 1400 * np.array([rrjax.nll(t, counts, 1.0) for t in surface.theta[::50]], float)
    ratio -= 2 * 1400 * float(rrjax.nll(surface.estimate, counts, 1.0))
    np.testing.assert_allclose(-2 * surface.log_likelihood[::50], ratio, rtol=1e-3, atol=1e-2)
    inside = np.asarray(surface.log_likelihood) >= -stats.chi2(2).ppf(0.9) / 2
    assert (inside == np.asarray(surface.inside)).mean() > 0.999


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: profile([1, 2], 1.0, 2), "category"),
        (lambda: profile([1, 2], 1.0, [0, 1]), "category"),
        (lambda: profile([0.5, 2], 1.0, 0), "counts"),
        (lambda: log_likelihood_surface([1, 2, 3, 4], 1.0), "counts"),
        (lambda: log_likelihood_surface([1, 2], 1.0, num_points=1), "num_points"),
        (lambda: log_likelihood_surface([1, 2], 1.0, level=1), "level"),
    ],
)
def test_bad_arguments(call, message):
    with refused(message):
        call()


@pytest.mark.long
def test_unusable_counts_give_nan():
    assert np.isnan(profile([0, 0], 1.0, 0)(0.5))
    assert np.isnan(profile([3, 4], -1.0, 0)(0.5))
    assert np.isnan(jax.jit(lambda i: profile([3, 4], 1.0, i)(0.5))(7))
    assert np.isnan(log_likelihood_surface([-1, 3], 1.0).log_likelihood).all()


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-6, 40.0, 800.0])
def test_extreme_epsilons_stay_finite(epsilon):
    value = np.asarray(profile([30, 4, 0], epsilon, 0)(np.linspace(0, 1, 11)))
    assert not np.isnan(value).any()
    assert (value <= 0).all()


def test_a_category_may_be_of_any_integer_dtype():
    for dtype in (np.int32, np.uint8):
        assert profile([6, 4, 2], 1.0, jnp.asarray(1, dtype))(0.3) == profile([6, 4, 2], 1.0, 1)(0.3)


@pytest.mark.long
def test_a_surface_at_a_large_epsilon_is_finite():
    assert np.isfinite(log_likelihood_surface([60, 40], 60.0, num_points=3).log_likelihood).all()
