"""Independent binomial variables, one for each of a vector of trials."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from rrjax.numerics.sharding import aligned
from rrjax.numerics.special import deviance, stirling_error
from rrjax.simulate.sampling.inversion import TERMS, count_tails
from rrjax.simulate.sampling.rejection import LEAST, Law, reject
from rrjax.simulate.sampling.streams import Stream

LARGE = LEAST
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
    by_rejection = lax.cond(
        jnp.any(large), lambda: _by_rejection(stream, site + 1, trials, rare), lambda: jnp.zeros_like(drawn)
    )
    drawn = jnp.where(large, by_rejection, drawn)
    return jnp.where(probability > 0.5, trials - drawn, drawn)


def _by_inversion(bits, trials, probability):
    size = trials.astype(probability.dtype)
    odds = probability / (1 - probability)
    at_zero = jnp.exp(size * jnp.log1p(-probability))

    def counted(terms):
        return lambda: count_tails(bits, terms, at_zero, lambda k: jnp.maximum(size - (k - 1), 0) * (odds * (1 / k)))

    (least, few), (_, many) = TERMS
    return lax.cond(jnp.max(size * probability) < least, counted(few), counted(many))


def _by_rejection(stream, site, trials, probability):
    dtype = probability.dtype
    size, rest = trials.astype(dtype), 1 - probability
    mean = size * probability
    centre = jnp.floor(mean)
    part = mean - centre
    centre = centre.astype(trials.dtype)
    variance = mean * rest

    def masses(offset):
        value = centre + offset.astype(trials.dtype)
        left = trials - value
        x, y = (jnp.maximum(each, 1).astype(dtype) for each in (value, left))
        saddle = (
            0.5 * jnp.log((mean / x) * (size * rest / y))
            + (stirling_error(size) - stirling_error(x) - stirling_error(y))
            - mean * deviance((offset - part) / mean)
            - size * rest * deviance((part - offset) / (size * rest))
        )
        at_zero = size * jnp.log1p(-probability) + 0.5 * jnp.log(2 * math.pi * variance)
        # All of them at once are rarer than a word can tell.
        log_mass = jnp.where((value > 0) & (left > 0), saddle, jnp.where(value == 0, at_zero, -jnp.inf))
        return log_mass, value.astype(dtype) / (left + 1).astype(dtype) * (rest / probability)

    law = Law(part, jnp.sqrt(variance), rest - probability)
    drawn = reject(stream, site, jnp.arange(trials.shape[0]), mean >= LARGE, law, masses)
    return centre + drawn.astype(trials.dtype)
