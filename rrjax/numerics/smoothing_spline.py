"""A smooth curve through values with noise of unit variance; the values themselves determine its smoothness.

A Gaussian process on the cosines: the k-th coefficient has variance a/(1 + (k/b)⁴), the spectrum of a smoothing spline
with a level. Each pair (a, b) of a grid is weighted by its likelihood, and the curve is the average of all. Every step
is a fast cosine transform or a sum over the grid: O(K·log K).

References:
    Wahba, "A Comparison of GCV and GML for Choosing the Smoothing Parameter in the Generalized Spline Smoothing
    Problem", Annals of Statistics 13, 1985.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.fft import dct
from jaxtyping import Array, Bool, Float

from rrjax.numerics.products import matmul
from rrjax.numerics.sharding import with_sharding_of

DECAY = 4
"""Power of the frequency in the fall of a cosine's variance."""
NUM_CUTOFFS = 12
AMPLITUDES = np.geomspace(0.1, 1e8, 28)
"""Variances of the slowest cosine, a, in noise variances of one value."""
OUTLIER_SCORE = 4.0
"""Standard deviations from the prediction by its neighbours beyond which a value is not used for the curve."""
NUM_OUTLIER_PASSES = 3
LARGEST_LEVERAGE = 0.99
"""Largest weight of a value in its own prediction; beyond it the other values hardly matter."""


class Curve(NamedTuple):
    """A smooth curve."""

    level: Float[Array, " K"]
    leverage: Float[Array, " K"]  # the weight of each value in the curve at its own place, and the variance there
    left_out: Float[Array, " K"]  # the prediction of each value by the others alone
    log_likelihood: Float[Array, ""]  # variance of each value, given all others
    interpolates: Bool[Array, ""]  # whether it follows every value, so that no value is predicted by the others


def smoothed(values: Float[Array, " K"]) -> Curve:
    """The smooth curve through values. Outliers, such as a spike at a round number, do not affect it."""
    cutoffs = jnp.asarray(_cutoffs(values.shape[0]), values.dtype)
    before = jnp.append(values[1], values[:-1])
    after = jnp.append(values[1:], values[-2])
    # A difference from the nearer one of two neighbours has a variance of at most two.
    margin = OUTLIER_SCORE * np.sqrt(2)
    outlier = (values > jnp.maximum(before, after) + margin) | (values < jnp.minimum(before, after) - margin)
    kept = jnp.where(outlier, (before + after) / 2, values)
    for _ in range(NUM_OUTLIER_PASSES):
        curve = _curve(values, kept, cutoffs)
        outlier = jnp.abs(values - curve.left_out) * jnp.sqrt(1 - curve.leverage) > OUTLIER_SCORE
        kept = jnp.where(outlier, curve.left_out, values)
    return _curve(values, kept, cutoffs)


def _cutoffs(number: int) -> np.ndarray:
    """Frequencies b from which the variance falls, in half waves over all values."""
    return np.geomspace(0.25, max(number / 4, 1), NUM_CUTOFFS)


def _curve(values, kept, cutoffs) -> Curve:
    mean = jnp.mean(kept)
    coefficients = dct(kept - mean, norm="ortho")
    gains = jnp.concatenate([jnp.ones_like(coefficients[:1]), _gains(coefficients[1:], cutoffs)])
    number = values.shape[0]
    scale = jnp.asarray(np.sqrt(np.append(1, np.full(number - 1, 2)) / number), values.dtype)
    level = _cosine_sums(gains * coefficients * scale) + mean
    # The diagonal of the smoother, Σ_k gains_k·(scale_k·cos)², from cos² = (1 + cos of twice the angle)/2.
    freedom = jnp.sum(gains)
    leverage = (freedom + _cosine_sums(gains, twice=True) - gains[0]) / number
    leverage = jnp.clip(leverage, 0, LARGEST_LEVERAGE)
    left_out = (level - leverage * kept) / (1 - leverage)
    variance = 1 / (1 - leverage)
    likelihood = -jnp.sum((values - left_out) ** 2 / variance + jnp.log(variance)) / 2
    return Curve(level, leverage, left_out, likelihood, freedom > LARGEST_LEVERAGE * number)


def _gains(coefficients, cutoffs):
    """The part `[K − 1]` of each coefficient that belongs to the curve: the average over the grid, by likelihood."""
    amplitudes = jnp.asarray(AMPLITUDES, coefficients.dtype)[:, None]

    def signal(cutoff):
        """The variance of each coefficient, `[amplitudes, K − 1]`."""
        frequency = lax.iota(coefficients.dtype, coefficients.shape[0]) + 1
        return amplitudes / (1 + (frequency / cutoff) ** DECAY)

    def log_likelihood(cutoff):
        variance = 1 + signal(cutoff)
        return -jnp.sum(coefficients**2 / variance + jnp.log(variance), axis=1) / 2

    likelihoods = lax.map(log_likelihood, cutoffs)
    level_alone = -jnp.sum(coefficients**2) / 2
    weights = jax.nn.softmax(jnp.append(likelihoods.ravel(), level_alone))[:-1].reshape(likelihoods.shape)

    def add(gains, grid):
        cutoff, weight = grid
        variance = signal(cutoff)
        return gains + matmul(weight, variance / (1 + variance)), None

    return lax.scan(add, with_sharding_of(jnp.zeros_like(coefficients), (cutoffs, weights)), (cutoffs, weights))[0]


def _cosine_sums(coefficients, *, twice: bool = False):
    """Σ_k c_k·cos(π·k·(i + ½)/K) at each i, or with twice the angle."""
    number = coefficients.shape[0]
    angle = jnp.asarray(np.pi / (1 if twice else 2) * np.arange(number) / number, coefficients.dtype)
    waves = lax.complex(coefficients * jnp.cos(angle), coefficients * jnp.sin(angle))
    if not twice:
        waves = jnp.concatenate([waves, jnp.zeros_like(waves)])
    return jnp.real(jnp.fft.ifft(waves))[:number] * waves.shape[0]
