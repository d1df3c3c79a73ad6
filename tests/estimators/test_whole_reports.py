"""The information of whole reports: one step of Newton's method, the equivalent tally, and how close it comes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused

import rrjax
from rrjax import Mixture, empirical_bayes, ordered_bayes
from rrjax.data.linear_maps import Dense, Scaling
from rrjax.data.mixture import as_mixture
from rrjax.data.tally import support_data
from rrjax.estimators import whole_reports
from rrjax.estimators.whole_reports import MAX_CATEGORIES, equivalent
from rrjax.mechanisms import MECHANISMS, OptimizedUnaryEncoding, SymmetricUnaryEncoding


def collection(mechanism, seed, number, shares):
    """The true shares, the tally and the mixture of a simulated collection."""
    values = np.random.default_rng(seed).choice(len(shares), number, p=np.asarray(shares, float) / np.sum(shares))
    reports = mechanism.randomize(jax.random.key(seed), values)
    return np.bincount(values, minlength=len(shares)) / number, mechanism.tally(reports), mechanism.mixture(reports)


SHARES = np.array([0.4, 0.25, 0.15, 0.1, 0.07, 0.03])


@pytest.mark.full
@pytest.mark.parametrize("name", ["optimized-unary-encoding", "subset-selection", "hadamard-response"])
def test_the_step_against_dense_algebra(name):
    """x = θ + C·g with the covariance of the plane, from the matrix of the lift itself."""
    mechanism = MECHANISMS[name](6, 1.5)
    _, _, mixture = collection(mechanism, 1, 4000, SHARES)
    theta = np.array([0.35, 0.25, 0.2, 0.1, 0.08, 0.02])
    _, reports = as_mixture(mixture, None)
    x, spread = whole_reports._step(jnp.asarray(theta, FLOAT), reports)
    lift = np.asarray(jax.vmap(reports.lift, out_axes=1)(jnp.eye(6, dtype=FLOAT)), float)
    mixed = np.asarray(reports.base, float) + lift @ theta
    weights = np.asarray(reports.shares, float)
    gradient = lift.T @ (weights / mixed)
    inverse = np.linalg.inv(lift.T @ (lift * (weights / mixed**2)[:, None]))
    answer = inverse.sum(1)
    covariance = inverse - np.outer(answer, answer) / answer.sum()
    np.testing.assert_allclose(x, theta + covariance @ gradient, atol=1e-9 if X64 else 2e-5)
    np.testing.assert_allclose(spread, np.diag(covariance), rtol=1e-8 if X64 else 1e-3)
    assert abs(float(jnp.sum(x)) - 1) < (1e-12 if X64 else 1e-5)


@pytest.mark.once
@pytest.mark.full  # 300 collections
def test_the_equivalent_tally_has_the_variance_of_the_maximum():
    """Over 300 collections: the spread of its inversion is that of the maximum of the likelihood, and that claimed."""
    mechanism, number = SymmetricUnaryEncoding(6, 1.5), 4000
    found, best, claimed, plain = [], [], [], []
    for seed in range(300):
        true, tally, mixture = collection(mechanism, seed, number, SHARES)
        rows = mixture.lift.shape[0]
        padded = np.zeros((64, 6), bool)  # one program for all
        padded[:rows] = np.asarray(mixture.lift.matrix)
        weights = np.zeros(64, int)
        weights[:rows] = np.asarray(mixture.weights)
        mixture = Mixture(weights, 1.0, Dense(padded, mixture.lift.scale))
        data = support_data(tally, None)
        new = equivalent(data, jnp.asarray(SHARES, FLOAT), as_mixture(mixture, None)[1])
        found.append(np.asarray(new.excess / (new.num_users * new.rates.d)) - true)
        best.append(np.asarray(rrjax.ibu(mixture, accelerate="newton").theta) - true)
        plain.append(np.asarray(rrjax.inv(tally)) - true)
        claimed.append(np.asarray(new.rates.variance(jnp.asarray(SHARES, FLOAT)) / new.num_users))
    total, likeliest, unbiased = (np.sum(np.square(each)) / 300 for each in (found, best, plain))
    assert abs(total / likeliest - 1) < 0.03  # the same up to the boundary, which few reach here
    assert total < 0.85 * unbiased  # 0.77 by the variances that both claim
    assert abs(total / np.sum(claimed) * 300 - 1) < 0.15  # with the users' variance at N, not at more users
    # Unbiased: within four standard errors.
    assert np.all(np.abs(np.mean(found, 0)) < 4 * np.std(found, 0) / np.sqrt(300))


@pytest.mark.full
@pytest.mark.parametrize("name", ["optimized-unary-encoding", "symmetric-unary-encoding"])
def test_it_is_as_close_as_the_maximum_beside_it(name):
    mechanism = MECHANISMS[name](5, 2.0)
    shares = np.array([0.3333, 0.0002, 0.0253, 0.3121, 0.3291])
    errors = []
    for seed in range(20):
        true, tally, mixture = collection(mechanism, seed, 20_000, shares)
        thetas = (
            empirical_bayes(tally, mixture=mixture).theta,
            rrjax.ibu(mixture, accelerate="newton").theta,
            empirical_bayes(tally).theta,
        )
        errors.append([float(jnp.sum((theta - true) ** 2)) for theta in thetas])
    whole, likeliest, counts = np.mean(errors, axis=0)
    assert whole < 1.25 * likeliest
    # Over 120 collections 0.90 for the first one.
    assert whole < {"optimized-unary-encoding": 1, "symmetric-unary-encoding": 0.8}[name] * counts


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full) for name in MECHANISMS])
@pytest.mark.parametrize("epsilon", [1e-6, 2.0, 1000.0])
def test_it_is_on_the_simplex_for_every_mechanism(name, epsilon):
    _, tally, mixture = collection(MECHANISMS[name](9, epsilon), 3, 50, np.full(9, 1 / 9))
    for estimator in (empirical_bayes, ordered_bayes):
        found = estimator(tally, mixture=mixture)
        assert np.isfinite(found.theta).all()
        assert np.isfinite(found.variances).all()
        assert float(found.theta.min()) >= 0
        assert abs(float(jnp.sum(found.theta)) - 1) < 1e-5


@pytest.mark.long
@pytest.mark.once
def test_reports_of_one_category_each_say_no_more_than_their_counts():
    counts = np.array([300, 200, 100, 50])
    mixture = Mixture(counts, 1.0, Scaling(np.expm1(1.0), 4))
    one, other = empirical_bayes(counts, 1.0), empirical_bayes(counts, 1.0, mixture=mixture)
    assert (one.theta == other.theta).all()


@pytest.mark.full
def test_fewer_reports_than_categories_are_used_by_their_counts():
    """Their information is singular: nothing is gained, and nothing lost but by rounding."""
    _, tally, mixture = collection(OptimizedUnaryEncoding(12, 1.0), 0, 6, np.full(12, 1 / 12))
    whole, counted = (empirical_bayes(tally, mixture=each).theta for each in (mixture, None))
    # Twelve collections differed by 0 to 4.3 units of float32, by processor and optimization; by none of float64.
    np.testing.assert_allclose(whole, counted, rtol=(4 if X64 else 16) * np.finfo(counted.dtype).eps)


@pytest.mark.full
@pytest.mark.once
def test_mixtures_of_other_reports_are_refused():
    mechanism = OptimizedUnaryEncoding(6, 1.0)
    _, tally, _ = collection(mechanism, 0, 100, SHARES)
    _, _, less = collection(mechanism, 0, 99, SHARES)
    _, _, wider = collection(OptimizedUnaryEncoding(7, 1.0), 0, 100, np.full(7, 1 / 7))
    large = OptimizedUnaryEncoding(MAX_CATEGORIES + 1, 1.0)
    _, many, most = collection(large, 0, 20, np.full(MAX_CATEGORIES + 1, 1.0))
    for given, whole in ((tally, less), (tally, wider), (many, most)):
        for estimator in (empirical_bayes, ordered_bayes):
            with refused("mixture"):
                estimator(given, mixture=whole)


@pytest.mark.once
@pytest.mark.full  # three programs
def test_batches_and_programs_change_nothing():
    mechanism = OptimizedUnaryEncoding(6, 1.5)
    values = np.random.default_rng(0).choice(6, (3, 200), p=SHARES)
    reports = jax.vmap(mechanism.randomize)(jax.random.split(jax.random.key(0), 3), values)

    def estimate(reports):
        return empirical_bayes(mechanism.tally(reports), mixture=mechanism.mixture(reports)).theta

    together = jax.jit(jax.vmap(estimate))(reports)
    for row, each in zip(together, reports, strict=True):
        np.testing.assert_allclose(row, estimate(each), atol=1e-4)
