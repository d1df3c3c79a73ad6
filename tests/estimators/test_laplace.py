"""Smooth and joint Bayes: on the simplex, closer than EM and the maximum, one trace, NaN for nothing, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from refusals import refused

import rrjax
from rrjax.estimators.em import ems
from rrjax.estimators.laplace import MAX_CATEGORIES, _bases, _curves
from rrjax.mechanisms import DiscreteSquareWave, Product, RandomizedResponse

SIZES = (4, 3)
FIRST, SECOND = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.6, 0.3, 0.1])
TABLES = {
    "independent": np.outer(FIRST, SECOND),
    "close": 0.9 * np.outer(FIRST, SECOND) + 0.1 * np.eye(4, 3) / 3,
    "one tells the other": np.array([[0.4, 0, 0], [0.3, 0, 0], [0, 0.2, 0], [0, 0, 0.1]]),
}
SIZE = 24
SHARES = np.exp(-(((np.arange(SIZE) - 15) / 4.0) ** 2) / 2)
SHARES = SHARES / SHARES.sum()


def mixture_of(number, seed=0):
    mechanism = DiscreteSquareWave(SIZE, 1.0)
    law = SHARES @ np.asarray(mechanism.channel().matrix, float)
    counts = np.random.default_rng(seed).multinomial(number, law / law.sum())
    return mechanism.channel().mixture_of_counts(counts)


@pytest.mark.full  # four fits, and EM beside each
def test_smooth_bayes_is_closer_than_em_with_a_fixed_window():
    distances = []
    for seed in range(4):
        mixture = mixture_of(20_000, seed)
        found = rrjax.smooth_bayes(mixture)
        np.testing.assert_allclose(float(found.theta.sum()), 1, atol=1e-5)
        np.testing.assert_allclose(float(found.beliefs.sum()), 1, atol=1e-5)
        assert float(found.theta.min()) >= 0
        pair = (found.theta, ems(mixture).theta)
        distances.append([float(rrjax.metrics.wasserstein(theta, SHARES)) for theta in pair])
    ours, theirs = np.mean(distances, axis=0)
    assert ours < 0.8 * theirs  # 0.4 when it was written


@pytest.mark.long
def test_an_end_that_stands_out_is_kept():
    """A twentieth of the users have the largest number or more."""
    mechanism = DiscreteSquareWave(SIZE, 3.0)
    shares = 0.95 * SHARES[::-1] + 0.05 * (np.arange(SIZE) == SIZE - 1)
    law = shares @ np.asarray(mechanism.channel().matrix, float)
    counts = np.random.default_rng(0).multinomial(50_000, law / law.sum())
    theta = rrjax.smooth_bayes(mechanism.channel().mixture_of_counts(counts)).theta
    assert float(theta[-1]) == pytest.approx(0.05, abs=0.01)
    assert float(theta[-3]) < 0.005


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
def test_joint_bayes_is_closer_than_the_maximum(name, most):
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


def smooth_of(counts):
    return rrjax.smooth_bayes(DiscreteSquareWave(8, 1.0).channel().mixture_of_counts(counts)).theta


def joint_of(counts):
    product = product_of(2.0)
    return rrjax.joint_bayes(product.mixture_of_counts(counts), product.shape).theta


@pytest.mark.long
@pytest.mark.parametrize("theta_of", [smooth_of, joint_of])
def test_one_trace_serves_all_counts_and_batches(theta_of):
    shape = SIZES if theta_of is joint_of else (DiscreteSquareWave(8, 1.0).channel().num_reports,)
    counts = np.random.default_rng(0).integers(50, 500, (2, *shape))
    for row, each in zip(jax.vmap(theta_of)(jnp.asarray(counts)), counts, strict=True):
        np.testing.assert_allclose(row, theta_of(each), atol=2e-4)  # where Newton's method stops


@pytest.mark.long
@pytest.mark.parametrize("name", ["smooth_bayes", "joint_bayes"])
def test_what_they_refuse(name):
    product = product_of(1.0)
    mixture = mixture_of(100) if name == "smooth_bayes" else product.mixture_of_counts(np.ones(SIZES, int))
    more = () if name == "smooth_bayes" else (SIZES,)

    def share(weights):
        return getattr(rrjax, name)(rrjax.Mixture(weights, mixture.base, mixture.lift), *more).theta[0]

    ones = jnp.ones(len(mixture.weights), FLOAT)
    with pytest.raises(NotImplementedError):
        jax.grad(share)(ones)
    assert np.isnan(jax.jit(share)(0 * ones))
    if name == "smooth_bayes":
        many = DiscreteSquareWave(MAX_CATEGORIES + 1, 1.0)
        with refused("mixture"):
            rrjax.smooth_bayes(many.channel().mixture_of_counts(np.ones(many.num_reports, int)))
        return
    for shape in ((4,), (4, 4), (12,), (12, 1)):
        with refused("shape"):
            rrjax.joint_bayes(mixture, shape)
    large = Product([RandomizedResponse(MAX_CATEGORIES // 2 + 1, 1.0), RandomizedResponse(2, 1.0)])
    with refused("mixture"):
        rrjax.joint_bayes(large.mixture_of_counts(np.ones(large.shape, int)), large.shape)


@pytest.mark.once
@pytest.mark.parametrize("size", [2, 3, 5, 100])
def test_curves_have_the_variance_that_they_say(size):
    curves, rough, factors = _bases(size)
    assert np.isfinite(curves).all()
    assert curves.shape == (3, size, min(size - 1, 64))
    for basis, grows, factor in zip(curves, rough, factors, strict=True):
        if grows.any():
            assert (basis[:, grows] ** 2).sum(axis=1).mean() == pytest.approx(1)
        np.testing.assert_allclose(np.linalg.norm(basis[:, grows], axis=0) * factor[grows], 1)


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
