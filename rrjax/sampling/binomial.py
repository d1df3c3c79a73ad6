"""Independent binomial variables, one for each of a vector of trials."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rrjax.placement import aligned
from rrjax.sampling.inversion import count_tails
from rrjax.sampling.rejection import Hat, on_selected, reject
from rrjax.sampling.words import Stream
from rrjax.special import deviance, stirling_error

LARGE = 16
"""From this expectation on, rejection."""


def binomial(
    stream: Stream,
    site: int | Int[Array, ""],
    trials: Int[Array, " n"],
    probability: Float[Array, ""] | Float[Array, " n"],
) -> Int[Array, " n"]:
    """Draws from binomial laws, with a common probability or one each.

    Args:
        stream: Random words.
        site: The first of the sites to take them from.
        trials: `[n]`, int32, not negative.
        probability: Scalar or `[n]`, in [0, 1].

    Returns:
        `[n]`, int32, at most `trials`.
    """
    stream, site, trials, probability = aligned((stream, site, trials, probability))
    rare = jnp.minimum(probability, 1 - probability)
    large = trials.astype(rare.dtype) * rare >= LARGE
    words, _ = stream.pair(jnp.arange(trials.shape[0]), site)
    drawn = _by_inversion(words, jnp.where(large, 0, trials), rare)

    def draw(cells):
        return _by_rejection(stream, site + 1, cells, trials[cells], rare[cells] if rare.ndim else rare)

    drawn = drawn + on_selected(large, draw)
    return jnp.where(probability > 0.5, trials - drawn, drawn)


def _by_inversion(bits, trials, probability):
    size = trials.astype(probability.dtype)
    odds = probability / (1 - probability)
    return count_tails(
        bits,
        jnp.max(size * probability),
        jnp.exp(size * jnp.log1p(-probability)),
        lambda k: jnp.maximum(size - (k - 1), 0) * (odds * (1 / k)),
    )


def _by_rejection(stream, site, cells, trials, probability):
    dtype = probability.dtype
    size = trials.astype(dtype)
    rest = 1 - probability
    mean = size * probability
    centre = jnp.floor(mean)
    part = mean - centre
    centre = centre.astype(jnp.int32)
    deviation = jnp.sqrt(mean * rest)
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * probability
    hat = Hat(a, b, part + 0.5, 0.92 - 4.2 / b, (2.83 + 5.1 / b) * deviation)

    def log_probability(offset):
        value = centre + offset.astype(jnp.int32)
        left = trials - value
        inner = (value > 0) & (left > 0)
        x, y = (jnp.maximum(part_, 1).astype(dtype) for part_ in (value, left))
        saddle = (
            0.5 * jnp.log(size / (2 * math.pi * x * y).astype(dtype))
            + (stirling_error(size) - stirling_error(x) - stirling_error(y))
            - mean * deviance((offset - part) / mean)
            - size * rest * deviance((part - offset) / (size * rest))
        )
        edge = jnp.where(value == 0, size * jnp.log1p(-probability), size * jnp.log(probability))
        return jnp.where((value < 0) | (left < 0), -jnp.inf, jnp.where(inner, saddle, edge))

    mode = jnp.floor(part + probability)  # the mode is ⌊(trials + 1)·p⌋
    reference = log_probability(mode)
    return centre + reject(stream, site, cells, mean >= LARGE, hat, lambda offset: log_probability(offset) - reference)
