"""Independent Poisson variables, one for each of a vector of rates, in a few nanoseconds each."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt

from rrjax.numerics.sharding import aligned, looked_up
from rrjax.numerics.special import deviance, stirling_error
from rrjax.simulate.sampling.inversion import TERMS, count_tails
from rrjax.simulate.sampling.rejection import LEAST, Law, in_blocks, reject
from rrjax.simulate.sampling.streams import Stream

LARGE = 1024
"""From here on, rejection."""
RANGE = LARGE // LEAST
"""How far the rates of a batch may be apart."""


def poisson(
    stream: Stream,
    site: int | Int[Array, ""],
    rate: Float[Array, " n"],
    most: Float[Array, " n"] | None = None,
    dtype: jax.typing.DTypeLike = jnp.int32,
) -> Int[Array, " n"]:
    """Draws from Poisson laws.

    Poissons add: the whole sixteens of a rate and the ones that are left come from alias tables, the rest by inversion,
    counting the upper tails that exceed one random word. Rates of `LARGE` and more are drawn by rejection.

    Args:
        stream: Random words.
        site: The first of the sites to take them from.
        rate: `[n]`, not negative, well within what `dtype` holds.
        most: `[n]`, what the rates of a batch have in common: none is above, and each is zero or at least 1/`RANGE` of
            it. Which code runs is settled by these, once for the batch. The rates themselves by default.
        dtype: Of the integers.

    Returns:
        `[n]`, of that dtype.
    """
    most = rate if most is None else most
    stream, site, rate, most = aligned((stream, site, rate, most))
    large = most >= LARGE
    by_sum = jnp.where(large, 0, rate)
    whole = by_sum.astype(jnp.int32)
    rest = by_sum - whole.astype(rate.dtype)
    place = jnp.arange(rate.shape[0])
    for_rest, for_sixteens = stream.pair(place, site)
    drawn = count_tails(for_rest, TERMS[0][1], jnp.exp(-rest), lambda k: rest * (1 / k))
    most = jnp.max(jnp.where(large, 0, most))

    for_ones, _ = stream.pair(place, site + 1)
    for tables, words in ((ONES, for_ones), (SIXTEENS, for_sixteens)):
        drawn = drawn + tables.draw_if(most >= 1 << tables.shift, words, (whole >> tables.shift) & (tables.number - 1))

    def by_rejection(cells):
        return _by_rejection(stream, site + 2, cells, looked_up(rate, cells), dtype)

    return in_blocks(large, by_rejection, drawn.astype(dtype))


class Tables(NamedTuple):
    """Alias tables of the Poisson laws of some multiples of a step."""

    shift: int
    """The step is 2^shift."""
    number: int
    """A power of two."""
    bits: int
    """Each has 2^bits cells, that one word chooses from by so many bits; with the others it chooses what is in it."""

    def draw_if(
        self, any_of_them: Bool[Array, ""], words: UInt[Array, " n"], multiples: Int[Array, " n"]
    ) -> Int[Array, " n"]:
        """Draws from the laws of these multiples of the step, less than `number`; zero where they are zero."""
        entries, first = aligned(tuple(map(jnp.asarray, _made(self))), multiples)

        def draw():
            cell = (words >> (32 - self.bits)).astype(jnp.int32)
            entry = looked_up(entries, (multiples << self.bits) + cell)
            own = (words & jnp.uint32(2 ** (32 - self.bits) - 1)) < (entry >> self.bits)
            value = jnp.where(own, cell, (entry & jnp.uint32(2**self.bits - 1)).astype(jnp.int32))
            return jnp.where(multiples > 0, looked_up(first, multiples) + value, 0)

        return lax.cond(any_of_them, draw, lambda: jnp.zeros_like(multiples))


ONES = Tables(0, 16, 6)
SIXTEENS = Tables(4, LARGE // 16, 9)


@cache
def _made(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Entries `[number · cells]`, a threshold above the other cell in one word, and the first values `[number]`."""
    cells, scale = 1 << tables.bits, 2 ** (32 - tables.bits)
    entries = np.zeros((tables.number, cells), np.uint32)
    first = np.zeros(tables.number, np.int32)
    for j in range(1, tables.number):
        rate = j << tables.shift
        first[j] = max(0, rate - int(6.8 * math.sqrt(rate)) - 8)
        values = first[j] + np.arange(cells)
        mass = np.array([math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in values.tolist()])
        height, other = _alias(mass / mass.sum() * cells)
        # A cell that is full has itself as the other, so that nothing is lost where its threshold has no room.
        threshold = np.minimum(np.round(height * scale), scale - 1).astype(np.uint32)
        entries[j] = (threshold << tables.bits) | other.astype(np.uint32)
    return entries.ravel(), first


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


def _by_rejection(stream, site, cells, rate, dtype):
    wanted = rate >= LEAST / 2  # zero, or LEAST up to rounding
    rate = jnp.where(wanted, rate, LEAST)
    centre = jnp.floor(rate)
    part = rate - centre
    least = 1 / rate

    def masses(offset):
        value = centre + offset
        whole = jnp.maximum(value, 1)
        log_mass = -0.5 * jnp.log(whole * least) - stirling_error(whole) - rate * deviance((offset - part) * least)
        at_zero = jnp.where(value == 0, 0.5 * jnp.log(2 * math.pi * rate) - rate, -jnp.inf)
        return jnp.where(value > 0, log_mass, at_zero), value * least

    drawn = reject(stream, site, cells, wanted, Law(part, jnp.sqrt(rate), 1.0), masses)
    return jnp.where(wanted, centre.astype(dtype) + drawn.astype(dtype), 0)
