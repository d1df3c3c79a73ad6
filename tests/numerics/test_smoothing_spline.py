"""The smooth curve: against dense matrices, and what it does with smooth, rough and outstanding values."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT

from rrjax.numerics.smoothing_spline import _curve, _cutoffs, _gains, smoothed


def cosines(size):
    """`[K, K]`, rows the orthonormal cosines."""
    rows = np.sqrt(2 / size) * np.cos(np.pi * np.arange(size)[:, None] * (np.arange(size) + 0.5) / size)
    rows[0] /= np.sqrt(2)
    return rows


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 8, 3, 37])
def test_curve_and_parts_against_dense_matrices(size):
    values = jnp.asarray(np.random.default_rng(size).normal(3, 2, size), FLOAT)
    cutoffs = jnp.asarray(_cutoffs(size), FLOAT)
    curve = _curve(values, values, cutoffs)
    rows = cosines(size)
    gains = np.append(1, _gains(jnp.asarray(rows @ np.asarray(values), FLOAT)[1:], cutoffs))
    smoother = rows.T @ (gains[:, None] * rows)
    np.testing.assert_allclose(curve.level, smoother @ np.asarray(values), atol=2e-5)
    np.testing.assert_allclose(curve.leverage, np.minimum(np.diag(smoother), 0.99), atol=2e-5)


def test_what_the_others_say_is_the_curve_without_a_value():
    """With the variances of the cosines held, and a flat prior on the level, as another computation of it."""
    size, left_out = 12, 4
    rows = cosines(size)
    values = np.random.default_rng(1).normal(0, 1, size) + np.linspace(0, 5, size)
    variance = np.append(1e7, 20 / np.arange(1, size) ** 2.0)
    prior = rows.T @ (variance[:, None] * rows)
    others = np.delete(np.arange(size), left_out)
    gain = prior[left_out, others] @ np.linalg.inv(prior[np.ix_(others, others)] + np.eye(size - 1))
    smoother = rows.T @ ((variance / (1 + variance))[:, None] * rows)
    own = smoother[left_out, left_out]
    level = smoother[left_out] @ values
    assert (level - own * values[left_out]) / (1 - own) == pytest.approx(gain @ values[others], rel=1e-5)


@pytest.mark.long
def test_it_follows_a_bell_and_not_the_noise():
    place = np.arange(200)
    bell = 30 * np.exp(-(((place - 90) / 25) ** 2) / 2)
    noise = np.random.default_rng(0).normal(size=200)
    curve = smoothed(jnp.asarray(bell + noise, FLOAT))
    assert ((np.asarray(curve.level) - bell) ** 2).mean() < 0.15
    # Predictions of each by the others are as good as their variance says.
    scores = (bell + noise - np.asarray(curve.left_out)) * np.sqrt(1 - np.asarray(curve.leverage))
    assert scores.std() == pytest.approx(1, abs=3 / np.sqrt(400))
    pure = smoothed(jnp.asarray(noise, FLOAT))
    assert (np.asarray(pure.level) ** 2).mean() < 0.05


@pytest.mark.full
def test_single_values_that_stand_out_do_not_bend_it():
    place = np.arange(100)
    bell = 20 * np.exp(-(((place - 40) / 15) ** 2) / 2)
    noise = np.random.default_rng(2).normal(size=100)
    heaped = bell + noise + 200.0 * (place % 17 == 5)
    without = smoothed(jnp.asarray(bell + noise, FLOAT)).level
    assert np.abs(np.asarray(smoothed(jnp.asarray(heaped, FLOAT)).level) - np.asarray(without)).max() < 1.5


@pytest.mark.full
def test_it_is_finite_where_nothing_is_smooth():
    rough = np.random.default_rng(3).permutation(np.geomspace(1, 1e4, 50))
    for values in (rough, np.zeros(50), np.tile([0.0, 1e4], 25), np.array([0.0, 1e5])):
        curve = smoothed(jnp.asarray(values, FLOAT))
        for leaf in curve:
            assert np.isfinite(np.asarray(leaf)).all()
        assert curve.leverage.min() >= 0
        assert curve.leverage.max() <= 0.99 + 1e-6
        assert curve.interpolates == (np.ptp(values) > 0)
