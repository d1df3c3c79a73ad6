"""Posterior variances of empirical Bayes are the mean squared errors, also where shares, users and reports add up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT

import rrjax
from rrjax import Tally, empirical_bayes
from rrjax.mechanisms import RandomizedResponse, SymmetricUnaryEncoding


@pytest.mark.full
def test_variances_are_those_of_the_errors():
    """Realized squared errors over the sums of the variances; their means within a factor of two."""
    for size, number, epsilon, s in ((14, 30_000, 1.0, 1.0), (1000, 100_000, 2.0, 1.3), (100, 30_000, 1.0, 0.0)):

        def one(key, size=size, number=number, epsilon=epsilon, s=s):
            true, counts = rrjax.simulate.collect(key, rrjax.simulate.zipf(size, s), number, epsilon)
            found = empirical_bayes(counts, epsilon)
            return rrjax.metrics.squared_error(found.theta, true / number), jnp.sum(found.variances)

        error, claim = jax.lax.map(one, jax.random.split(jax.random.key(2), 20))
        assert float(error.sum()) <= 2 * float(claim.sum()), size
        if s:
            assert float(error.sum()) >= 0.5 * float(claim.sum()), size


@pytest.mark.long
@pytest.mark.parametrize("estimand", ["users", "distribution"])
def test_variances_of_two_categories_are_those_of_the_inversion(estimand):
    """The two errors add up to zero by themselves: of users, that was taken into account twice, and halved both."""
    q = 1 / (np.exp(1.0) + 1)
    p = 1 - q
    found = empirical_bayes(np.array([1750, 1250]), 1.0, estimand=estimand)
    np.testing.assert_allclose(found.theta, rrjax.inv(np.array([1750, 1250]), 1.0), rtol=1e-5)
    per_user = p * q if estimand == "users" else 1750 / 3000 * 1250 / 3000
    np.testing.assert_allclose(found.variances, per_user / 3000 / (p - q) ** 2, rtol=1e-3)
    # The two counts of unary encoding are apart, also where they add up to nearly as many as there are users.
    found = empirical_bayes(Tally([600_010, 399_991], 10**6, 0.62, 0.38), estimand=estimand)
    share = float(found.theta[0])
    drawn = 0 if estimand == "users" else share * (1 - share)
    np.testing.assert_allclose(found.variances, (0.62 * 0.38 / 0.24**2 / 2 + drawn) / 10**6, rtol=1e-3)


@pytest.mark.full  # hundreds of estimates
@pytest.mark.parametrize(
    ("mechanism", "number", "estimand"),
    [
        (RandomizedResponse(3, 1.0), 3000, "users"),
        (RandomizedResponse(10, 4.0), 20_000, "users"),
        (SymmetricUnaryEncoding(3, 8.0), 5000, "distribution"),
        (SymmetricUnaryEncoding(10, 8.0), 5000, "distribution"),
    ],
)
def test_variances_of_few_categories_are_those_of_the_errors(mechanism, number, estimand):
    """Of the largest share, within four standard errors of their mean square: they were .7 to .8 of it."""
    shares = jnp.asarray(0.65 ** np.arange(mechanism.num_categories), FLOAT)
    shares = shares / shares.sum()

    def one(keys):
        true = number * shares
        if estimand == "distribution":
            true = rrjax.simulate.collect(keys[0], shares, number, 20.0)[0]
        found = empirical_bayes(mechanism.collect(keys[1], jnp.round(true).astype(int)), estimand=estimand)
        truth = jnp.round(true)[0] / number if estimand == "users" else shares[0]
        return (found.theta[0] - truth) ** 2, found.variances[0]

    squares, claims = map(np.asarray, jax.lax.map(one, jax.random.split(jax.random.key(3), (800, 2))))
    assert abs(squares.mean() - claims.mean()) < 4 * squares.std() / 800**0.5
