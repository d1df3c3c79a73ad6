"""Populations."""

import jax
import numpy as np
import pytest
from cases import FLOAT, ULP

import rrjax

SIGMAS = 5
BIG = 1_423_000


@pytest.mark.parametrize("num_categories", [2, 50, BIG])
@pytest.mark.parametrize("exponent", [0.0, 0.01, 1.0, 2.5, 40.0])
def test_zipf(num_categories, exponent):
    theta = np.asarray(rrjax.simulate.zipf(num_categories, exponent))
    assert theta.dtype == FLOAT
    assert theta.shape == (num_categories,)
    assert abs(theta.astype(np.longdouble).sum() - 1) <= 2 * ULP
    assert (np.diff(theta) <= 0).all()
    exact = np.exp(-float(FLOAT.type(exponent)) * np.log(np.arange(1.0, num_categories + 1)))
    exact /= exact.sum()
    # s·log(i) is rounded, in the exponent.
    tolerance = (8 + 2 * exponent * np.log(num_categories)) * ULP
    np.testing.assert_allclose(theta, exact, rtol=tolerance, atol=1e-37)


def test_zipf_at_its_ends():
    np.testing.assert_array_equal(rrjax.simulate.zipf(5, np.inf), [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(rrjax.simulate.zipf(4, 0), [0.25] * 4)
    for bad in (1, 0, 2.5, True):
        with pytest.raises(ValueError, match="num_categories"):
            rrjax.simulate.zipf(bad, 1.0)


def test_zipf_has_a_derivative_and_a_batch():
    slope = jax.jacfwd(lambda s: rrjax.simulate.zipf(5, s))(FLOAT.type(1.0))
    theta, log_rank = np.asarray(rrjax.simulate.zipf(5, 1.0)), np.log(np.arange(1, 6))
    np.testing.assert_allclose(slope, -theta * (log_rank - theta @ log_rank), atol=8 * ULP)
    both = jax.vmap(lambda s: rrjax.simulate.zipf(5, s))(np.array([0.5, 2.0], FLOAT))
    np.testing.assert_allclose(both[1], rrjax.simulate.zipf(5, 2.0), rtol=8 * ULP)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 3.0])
def test_values_are_as_frequent_as_told(exponent):
    num_users = 200_000
    theta = rrjax.simulate.zipf(50, exponent)
    values = rrjax.simulate.values(jax.random.key(0), theta, num_users)
    assert values.dtype == np.int32
    assert values.shape == (num_users,)
    frequency = np.bincount(values, minlength=50) / num_users
    theta = np.asarray(theta, float)
    error = np.abs(frequency - theta)
    # Categories that expect a report or less are bounded by a Poisson count instead of a normal.
    assert (error <= SIGMAS * np.sqrt(theta / num_users) + 5 / num_users).all()
    assert np.bincount(values, minlength=50).size == 50


def test_values_of_probability_zero_never_come():
    theta = [0.0, 0.3, 0.0, 0.7, 0.0, 0.0]
    values = np.asarray(rrjax.simulate.values(jax.random.key(1), theta, 100_000))
    assert set(values.tolist()) == {1, 3}
    one = rrjax.simulate.values(jax.random.key(1), [0, 0, 1], 1000)
    assert (np.asarray(one) == 2).all()


def test_values_need_not_be_normalized_and_depend_on_the_key_alone():
    theta = np.array([1, 2, 3, 4])
    first, again, other = (np.asarray(rrjax.simulate.values(jax.random.key(k), theta, 10_000)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    error = np.bincount(first, minlength=4) / 10_000 - theta / 10
    assert np.abs(error).max() < SIGMAS * np.sqrt(0.25 / 10_000)


def test_bad_populations_are_refused():
    for theta in ([[0.5, 0.5]], 0.5, [1.0], ["a", "b"]):
        with pytest.raises(ValueError, match="theta must"):
            rrjax.simulate.values(jax.random.key(0), theta, 10)


def test_randomized_and_estimated_a_population_comes_back():
    # The whole way: draw, randomize, count, estimate. Expected error by the variance of the inversion.
    K, num_users, epsilon = 20, 200_000, 2.0
    theta = rrjax.simulate.zipf(K, 1.0)
    value_key, report_key = jax.random.split(jax.random.key(0))
    values = rrjax.simulate.values(value_key, theta, num_users)
    reports = rrjax.RandomizedResponse(K, epsilon).randomize(report_key, values)
    counts = rrjax.count(reports, K)
    r = np.exp(epsilon)
    expected = (K - 1) * (K - 2 + 2 * r) / (num_users * (r - 1) ** 2) + 1 / num_users
    for estimator in (rrjax.inv, rrjax.inv_n, rrjax.mle_star, rrjax.inv_p):
        # A sum of K squares: its standard deviation is about sqrt(2/K) of its mean, projecting only gains.
        error = float(rrjax.metrics.squared_error(estimator(counts, epsilon), theta))
        assert error < expected * (1 + SIGMAS * np.sqrt(2 / K))
