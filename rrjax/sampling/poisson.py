"""Independent Poisson variables, one for each of a vector of rates, in a few nanoseconds each."""

from __future__ import annotations

import math
from functools import cache

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from rrjax.placement import aligned, looked_up
from rrjax.sampling.inversion import count_tails
from rrjax.sampling.rejection import Hat, on_selected, reject
from rrjax.sampling.words import Stream
from rrjax.special import deviance, stirling_error

STEP = 16
"""Rates of the tables are multiples of it; what is left of a rate is below."""
LARGE = 1024
"""From here on, rejection."""
_CELLS = 512
_BITS = 32 - 9


def poisson(stream: Stream, site: int | Int[Array, ""], rate: Float[Array, " n"]) -> Int[Array, " n"]:
    """Draws from Poisson laws.

    Poissons add: the whole sixteens of a rate come from one of 63 alias tables, the rest by inversion, counting the
    upper tails that exceed one random word. Rates of `LARGE` and more are drawn by rejection, in blocks.

    Args:
        stream: Random words.
        site: The first of the sites to take them from.
        rate: `[n]`, not negative, below 2³¹.

    Returns:
        `[n]`, int32.
    """
    stream, site, rate = aligned((stream, site, rate))
    large = rate >= LARGE
    steps = jnp.where(large, 0, rate / STEP).astype(jnp.int32)
    rest = jnp.where(large, 0, rate - (STEP * steps).astype(rate.dtype))
    for_rest, for_table = stream.pair(jnp.arange(rate.shape[0]), site)
    drawn = count_tails(for_rest, jnp.max(rest), jnp.exp(-rest), lambda k: rest * (1 / k))
    tables = aligned(tuple(map(jnp.asarray, _tables())), steps)
    drawn = drawn + lax.cond(
        jnp.any(steps > 0), lambda: _by_table(for_table, steps, tables), lambda: jnp.zeros_like(for_table, jnp.int32)
    )
    return drawn + on_selected(large, lambda cells: _by_rejection(stream, site + 1, cells, rate[cells]))


@cache
def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Alias tables of Poisson(16·j), j = 1 … 63: thresholds and values `[64, 512]`, computed in float64."""
    thresholds = np.zeros((LARGE // STEP, _CELLS), np.uint32)
    first = np.zeros(LARGE // STEP, np.int64)
    alias = np.zeros((LARGE // STEP, _CELLS), np.int32)
    for j in range(1, LARGE // STEP):
        rate = STEP * j
        first[j] = max(0, rate - int(6.8 * math.sqrt(rate)) - 8)
        values = first[j] + np.arange(_CELLS)
        mass = np.array([math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in values.tolist()])
        height, other = _alias(mass / mass.sum() * _CELLS)
        thresholds[j] = np.minimum(np.round(height * 2**_BITS), 2**_BITS)
        alias[j] = first[j] + other
    return thresholds.ravel(), alias.ravel(), first.astype(np.int32)


def _alias(height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vose's method: fills every cell up to one with one other value."""
    height, other = height.copy(), np.arange(len(height))
    low = [i for i, h in enumerate(height) if h < 1]
    high = [i for i, h in enumerate(height) if h >= 1]
    while low and high:
        i, j = low.pop(), high[-1]
        other[i] = j
        height[j] -= 1 - height[i]
        if height[j] < 1:
            low.append(high.pop())
    height[[*low, *high]] = 1
    return height, other


def _by_table(bits, steps, tables):
    thresholds, alias, first = tables
    cell = (bits >> _BITS).astype(jnp.int32)
    entry = steps * _CELLS + cell
    own = (bits & jnp.uint32(2**_BITS - 1)) < looked_up(thresholds, entry)
    value = jnp.where(own, looked_up(first, steps) + cell, looked_up(alias, entry))
    return jnp.where(steps > 0, value, 0)


def _by_rejection(stream, site, cells, rate):
    centre = jnp.floor(rate)
    part = rate - centre
    b = 0.931 + 2.53 * jnp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    hat = Hat(a, b, part + 0.43, 0.9277 - 3.6224 / (b - 2), 1.1239 + 1.1328 / (b - 3.4))

    def log_mass(offset):
        value = centre + offset
        return jnp.where(
            value >= 1,
            -0.5 * jnp.log(2 * math.pi * jnp.maximum(value, 1))
            - stirling_error(jnp.maximum(value, 1))
            - rate * deviance((offset - part) / rate),
            -jnp.inf,
        )

    return centre.astype(jnp.int32) + reject(stream, site, cells, rate >= LARGE, hat, log_mass)
