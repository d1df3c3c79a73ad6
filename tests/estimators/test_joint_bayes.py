"""Joint Bayes: on the simplex, closer than the maximum where columns interact little, free where they do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from refusals import refused

import rrjax
from rrjax.estimators.joint_bayes import MAX_CELLS, _curves
from rrjax.mechanisms import Product, RandomizedResponse

SIZES = (4, 3)
FIRST, SECOND = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.6, 0.3, 0.1])
TABLES = {
    "independent": np.outer(FIRST, SECOND),
    "close": 0.9 * np.outer(FIRST, SECOND) + 0.1 * np.eye(4, 3) / 3,
    "one tells the other": np.array([[0.4, 0, 0], [0.3, 0, 0], [0, 0.2, 0], [0, 0, 0.1]]),
}


def product_of(epsilon):
    return Product([RandomizedResponse(size, epsilon) for size in SIZES])


def counts_of(product, table, number, seed):
    """Counted reports, drawn from their law."""
    law = np.asarray(table, float)
    for place, column in enumerate(product.columns):
        size, p, q = column.num_categories, float(column.p), float(column.q)
        channel = np.full((size, size), q) + (p - q) * np.eye(size)
        law = np.moveaxis(np.tensordot(channel, law, (1, place)), 0, place)
    return np.random.default_rng(seed).multinomial(number, law.ravel() / law.sum()).reshape(product.shape)


@pytest.mark.long  # 24 collections
@pytest.mark.parametrize(("name", "most"), [("independent", 0.4), ("close", 0.7), ("one tells the other", 1.3)])
def test_it_is_closer_than_the_maximum(name, most):
    product, errors = product_of(1.0), []
    for seed in range(8):
        mixture = product.mixture_of_counts(counts_of(product, TABLES[name], 10_000, seed))
        found = rrjax.joint_bayes(mixture, product.shape)
        assert float(found.theta.sum()) == pytest.approx(1, abs=1e-5)
        assert float(found.theta.min()) >= 0
        assert found.beliefs.shape == (1, 9)
        both = (found.theta, rrjax.ibu(mixture, accelerate="newton").theta)
        errors.append([float(((np.asarray(theta) - TABLES[name].ravel()) ** 2).sum()) for theta in both])
    ours, theirs = np.mean(errors, axis=0)
    assert ours < most * theirs  # .18, .45 and 1.11 when it was written


@pytest.mark.long
def test_the_prior_is_forgotten_with_many_reports():
    product = product_of(4.0)
    mixture = product.mixture_of_counts(counts_of(product, TABLES["close"], 10_000_000, 1))
    found, likeliest = rrjax.joint_bayes(mixture, product.shape), rrjax.ibu(mixture, accelerate="newton")
    np.testing.assert_allclose(found.theta, likeliest.theta, atol=3e-4)


@pytest.mark.long
def test_one_trace_serves_all_counts_and_batches():
    product = product_of(2.0)
    counts = np.stack([counts_of(product, TABLES["close"], 5000, seed) for seed in range(2)])

    def theta_of(each):
        return rrjax.joint_bayes(product.mixture_of_counts(each), product.shape).theta

    for row, each in zip(jax.vmap(theta_of)(jnp.asarray(counts)), counts, strict=True):
        np.testing.assert_allclose(row, theta_of(each), atol=2e-4)  # where Newton's method stops


@pytest.mark.long
def test_what_it_refuses():
    product = product_of(1.0)
    mixture = product.mixture_of_counts(np.ones(SIZES, int))
    for shape in ((4,), (4, 4), (12,), (12, 1)):
        with refused("shape"):
            rrjax.joint_bayes(mixture, shape)
    large = Product([RandomizedResponse(MAX_CELLS // 2 + 1, 1.0), RandomizedResponse(2, 1.0)])
    with refused("mixture"):
        rrjax.joint_bayes(large.mixture_of_counts(np.ones(large.shape, int)), large.shape)

    def share(weights):
        return rrjax.joint_bayes(rrjax.Mixture(weights, mixture.base, mixture.lift), SIZES).theta[0]

    ones = jnp.ones(12, FLOAT)
    with pytest.raises(NotImplementedError):
        jax.grad(share)(ones)
    assert np.isnan(jax.jit(share)(0 * ones))


@pytest.mark.once
@pytest.mark.parametrize("sizes", [(2, 2), (4, 3), (2, 3, 4)])
def test_curves_of_each_set_of_columns_have_variance_one(sizes):
    curves, numbers = _curves(sizes)
    size = int(np.prod(sizes))
    assert curves.shape == (size, size - 1)
    np.testing.assert_allclose(curves.sum(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(curves.T @ curves, np.diag(np.diag(curves.T @ curves)), atol=1e-9)
    sets = {number: int((numbers == number).sum()) for number in np.unique(numbers)}
    assert sets[1] == sum(sizes) - len(sizes)
    assert (curves**2).mean(axis=0).sum() == pytest.approx(2 ** len(sizes) - 1)
