"""Smooth Bayes: on the simplex, close where neighbours are alike, NaN for nothing, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from refusals import refused

import rrjax
from rrjax.estimators.em import ems
from rrjax.estimators.smooth_bayes import MAX_CATEGORIES, _bases
from rrjax.mechanisms import DiscreteSquareWave

SIZE = 24
SHARES = np.exp(-(((np.arange(SIZE) - 15) / 4.0) ** 2) / 2)
SHARES = SHARES / SHARES.sum()


def mixture_of(number, seed=0):
    mechanism = DiscreteSquareWave(SIZE, 1.0)
    law = SHARES @ np.asarray(mechanism.channel().matrix, float)
    counts = np.random.default_rng(seed).multinomial(number, law / law.sum())
    return mechanism.channel().mixture_of_counts(counts)


@pytest.mark.long  # four fits, and EM beside each
def test_it_is_closer_than_em_with_a_fixed_window():
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


@pytest.mark.long
def test_one_trace_serves_all_counts_and_batches():
    channel = DiscreteSquareWave(8, 1.0).channel()
    counts = np.random.default_rng(0).integers(50, 500, (2, channel.num_reports))
    batch = jax.vmap(lambda each: rrjax.smooth_bayes(channel.mixture_of_counts(each)).theta)(jnp.asarray(counts))
    for row, each in zip(batch, counts, strict=True):
        one = rrjax.smooth_bayes(channel.mixture_of_counts(each)).theta
        np.testing.assert_allclose(row, one, atol=2e-4)  # where Newton's method stops


@pytest.mark.long
def test_what_it_refuses():
    mixture = mixture_of(100)

    def share(weights):
        return rrjax.smooth_bayes(rrjax.Mixture(weights, mixture.base, mixture.lift)).theta[0]

    ones = jnp.ones(len(mixture.weights), FLOAT)
    with pytest.raises(NotImplementedError):
        jax.grad(share)(ones)
    assert np.isnan(jax.jit(share)(0 * ones))
    many = DiscreteSquareWave(MAX_CATEGORIES + 1, 1.0)
    with refused("mixture"):
        rrjax.smooth_bayes(many.channel().mixture_of_counts(np.ones(many.num_reports, int)))


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
