"""A smooth curve through values with noise of unit variance, as smooth as the values themselves say.

A Gaussian process on the cosines: the k-th coefficient has variance a/(1 + (k/b)⁴), the spectrum of a smoothing spline
with a level. For a grid of a and b, the values' own likelihood says how much to believe each; the curve is the average
of all. Every step is a fast cosine transform or a sum over the grid: O(K·log K).

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
from jaxtyping import Array, Float

from rrjax.numerics.sharding import aligned

_POWER = 4
_BENDS = 12
_AMPLITUDES = np.geomspace(0.1, 1e8, 28)
"""Variances of the slowest cosine, in those of the noise of one value."""
_OUTLIER = 4.0
"""Standard deviations from what its neighbours say, at which a value is left out of the curve."""
_PASSES = 3
_OWN = 0.99
"""The most that a curve may follow each value: beyond, its neighbours say nothing about it."""


class Curve(NamedTuple):
    """A smooth curve.

    Attributes:
        level: `[K]`, the curve.
        own: `[K]`, the part that each value has in the curve at its own place: also the variance of the curve there.
        without: `[K]`, what the other values alone say about each.
        log_likelihood: Scalar, nats: of each value, given all others.
    """

    level: Float[Array, " K"]
    own: Float[Array, " K"]
    without: Float[Array, " K"]
    log_likelihood: Float[Array, ""]


def smoothed(values: Float[Array, " K"]) -> Curve:
    """Draws the curve. Values that stand out from it, such as a spike at a round number, do not bend it."""
    bends = jnp.asarray(_bends(values.shape[0]), values.dtype)
    before = jnp.append(values[1], values[:-1])
    after = jnp.append(values[1:], values[-2])
    # A difference from the nearer one of two neighbours has a variance of at most two.
    apart = _OUTLIER * np.sqrt(2)
    alone = (values > jnp.maximum(before, after) + apart) | (values < jnp.minimum(before, after) - apart)
    kept = jnp.where(alone, (before + after) / 2, values)
    for _ in range(_PASSES):
        curve = _drawn(values, kept, bends)
        out = jnp.abs(values - curve.without) * jnp.sqrt(1 - curve.own) > _OUTLIER
        kept = jnp.where(out, curve.without, values)
    return _drawn(values, kept, bends)


def _bends(number: int) -> np.ndarray:
    """`[S]`, from which cosine on the variance falls, in half waves over all values."""
    return np.geomspace(0.25, max(number / 4, 1), _BENDS)


def _drawn(values, kept, bends) -> Curve:
    middle = jnp.mean(kept)
    filtered = dct(kept - middle, norm="ortho")
    passed = jnp.concatenate([jnp.ones_like(filtered[:1]), _passed(filtered[1:], bends)])
    number = values.shape[0]
    scale = jnp.asarray(np.sqrt(np.append(1, np.full(number - 1, 2)) / number), values.dtype)
    level = _summed(passed * filtered * scale) + middle
    # The diagonal of the smoother, Σ_k passed_k·(scale_k·cos)², by what the square of a cosine is.
    own = (jnp.sum(passed) + _summed(passed, twice=True) - passed[0]) / number
    own = jnp.clip(own, 0, _OWN)
    without = (level - own * kept) / (1 - own)
    spread = 1 / (1 - own)
    likelihood = -jnp.sum((values - without) ** 2 / spread + jnp.log(spread)) / 2
    return Curve(level, own, without, likelihood)


def _passed(coefficients, bends):
    """`[K − 1]`, what part of each coefficient belongs to the curve: the average over the grid, by likelihood."""
    amplitudes = jnp.asarray(_AMPLITUDES, coefficients.dtype)[:, None]

    def signal(bend):
        """`[A, K − 1]`, the variance of each coefficient, which falls from a frequency on."""
        frequency = lax.iota(coefficients.dtype, coefficients.shape[0]) + 1
        return amplitudes / (1 + (frequency / bend) ** _POWER)

    def believed(bend):
        variance = 1 + signal(bend)
        return -jnp.sum(coefficients**2 / variance + jnp.log(variance), axis=1) / 2

    likelihoods = lax.map(believed, bends)
    flat = -jnp.sum(coefficients**2) / 2
    every = jax.nn.softmax(jnp.append(likelihoods.ravel(), flat))

    def add(passed, part):
        bend, weight = part
        of_signal = signal(bend)
        return passed + weight @ (of_signal / (1 + of_signal)), None

    parts = bends, every[:-1].reshape(likelihoods.shape)
    return lax.scan(add, aligned(jnp.zeros_like(coefficients), parts), parts)[0]


def _summed(coefficients, *, twice: bool = False):
    """Σ_k c_k·cos(π·k·(i + ½)/K) at each i; or with twice the angle."""
    number = coefficients.shape[0]
    angle = jnp.asarray(np.pi / (1 if twice else 2) * np.arange(number) / number, coefficients.dtype)
    waves = lax.complex(coefficients * jnp.cos(angle), coefficients * jnp.sin(angle))
    if not twice:
        waves = jnp.concatenate([waves, jnp.zeros_like(waves)])
    return jnp.real(jnp.fft.ifft(waves))[:number] * waves.shape[0]
