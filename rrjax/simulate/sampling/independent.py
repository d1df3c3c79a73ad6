"""Independent Poisson and binomial variables, for vectors of rates or trials, in a few nanoseconds each."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt

from rrjax.numerics.sharding import aligned, if_needed, looked_up
from rrjax.numerics.special import deviance, stirling_error
from rrjax.simulate.sampling.rejection import MIN_EXPECTATION, Law, in_blocks, reject
from rrjax.simulate.sampling.streams import TERMS, Stream, count_tails

T = TypeVar("T")
LARGE_RATE = 1024
"""Smallest Poisson rate that is drawn by rejection."""
MAX_RATE_RATIO = LARGE_RATE // MIN_EXPECTATION
"""Largest ratio of the rates of a batch."""


def binomial(
    stream: Stream,
    site: int | Int[Array, ""],
    trials: Int[Array, " n"],
    probability: Float[Array, ""] | Float[Array, " n"],
) -> Int[Array, " n"]:
    """Draws `[n]` from binomial laws of trials `[n]`, with a common probability or one each."""
    trials, probability = aligned((trials, probability))
    rare = jnp.minimum(probability, 1 - probability)
    drawn = rare_binomial(stream, jnp.arange(trials.shape[0]), site, trials, rare)
    return jnp.where(probability > 0.5, trials - drawn, drawn)


def rare_binomial(
    stream: Stream,
    places: Int[Array, " n"],
    site: int | Int[Array, ""],
    trials: Int[Array, " n"],
    probability: Float[Array, ""] | Float[Array, " n"],
) -> Int[Array, " n"]:
    """Draws `[n]` from binomial laws with probabilities of at most one half; the stream may be `[n]`, too."""
    stream, places, site, trials, probability = aligned((stream, places, site, trials, probability))
    expected = trials.astype(probability.dtype) * probability
    large = expected >= MIN_EXPECTATION

    def by_inversion():
        words, _ = stream.pair(places, site)
        return _binomial_by_inversion(words, jnp.where(large, 0, trials), probability).astype(trials.dtype)

    def by_rejection():
        return _binomial_by_rejection(stream, places, site + 1, trials, probability)

    none = jnp.zeros_like(trials)
    drawn = lax.cond(jnp.any((expected > 0) & ~large), by_inversion, lambda: none)
    return jnp.where(large, lax.cond(jnp.any(large), by_rejection, lambda: none), drawn)


def _binomial_by_inversion(words, trials, probability):
    size = trials.astype(probability.dtype)
    odds = probability / (1 - probability)
    at_zero = jnp.exp(size * jnp.log1p(-probability))

    def counted(terms):
        return lambda: count_tails(words, terms, at_zero, lambda k: jnp.maximum(size - (k - 1), 0) * (odds * (1 / k)))

    _, (small, few), (_, many) = TERMS
    return lax.cond(jnp.max(size * probability) < small, counted(few), counted(many))


def _binomial_by_rejection(stream, places, site, trials, probability):
    dtype = probability.dtype
    size, complement = trials.astype(dtype), 1 - probability
    mean = size * probability
    centre = jnp.floor(mean)
    part = mean - centre
    centre = centre.astype(trials.dtype)
    variance = mean * complement
    of_size = stirling_error(size)
    at_zero = size * jnp.log1p(-probability) + 0.5 * jnp.log(2 * math.pi * variance)

    def masses(offset):
        value = centre + offset.astype(trials.dtype)
        failures = trials - value
        x, y = (jnp.maximum(each, 1).astype(dtype) for each in (value, failures))
        saddle = (
            0.5 * jnp.log((mean / x) * (size * complement / y))
            + (of_size - stirling_error(x) - stirling_error(y))
            - mean * deviance((offset - part) / mean)
            - size * complement * deviance((part - offset) / (size * complement))
        )
        # A value of all trials has a probability below the resolution of a word.
        log_mass = jnp.where((value > 0) & (failures > 0), saddle, jnp.where(value == 0, at_zero, -jnp.inf))
        return log_mass, value.astype(dtype) / (failures + 1).astype(dtype) * (complement / probability)

    law = Law(part, jnp.sqrt(variance), complement - probability)
    drawn = reject(stream, site, places, mean >= MIN_EXPECTATION, law, masses)
    return centre + drawn.astype(trials.dtype)


def poisson(
    stream: Stream,
    site: int | Int[Array, ""],
    rate: Float[Array, " n"],
    largest: Float[Array, " n"] | None = None,
    dtype: jax.typing.DTypeLike = jnp.int32,
) -> Int[Array, " n"]:
    """Draws `[n]` from Poisson laws with rates `[n]`, well within the range of the dtype.

    Poisson variables add: whole multiples of sixteen and of one come from alias tables, the rest of the rate by
    inversion. Rates of `LARGE_RATE` and more are drawn by rejection. `largest`, by default the rates themselves, is
    common to a batch and determines the code: each rate is zero or from 1/`MAX_RATE_RATIO` of it to all of it.
    """
    largest = rate if largest is None else largest
    stream, site, rate, largest = aligned((stream, site, rate, largest))
    large = largest >= LARGE_RATE
    by_sum = jnp.where(large, 0, rate)
    whole = by_sum.astype(jnp.int32)
    place = jnp.arange(rate.shape[0])
    for_fraction, for_sixteens = stream.pair(place, site)
    drawn = _poisson_of_rest(for_fraction, by_sum - whole.astype(rate.dtype), 1)
    largest = jnp.max(jnp.where(large, 0, largest))

    for_ones, _ = stream.pair(place, site + 1)
    for tables, words in ((ONES, for_ones), (SIXTEENS, for_sixteens)):
        drawn = drawn + tables.draw_if(largest >= tables.step, words, whole)

    def by_rejection(cells):
        return _poisson_by_rejection(stream, site + 2, cells, looked_up(rate, cells), dtype)

    return in_blocks(large, by_rejection, drawn.astype(dtype))


def poisson_of_lanes(
    stream: Stream, places: Int[Array, "*#n"], site: int | Int[Array, "*#n"], rate: Float[Array, "*n"]
) -> Int[Array, "*n"]:
    """Draws int32 from Poisson laws with any rates, of any shape, to which all else is broadcast. Not for `vmap`.

    A lane's value depends on its own stream, place and rate; the lanes together determine only which code runs.
    """
    stream, places, rate = aligned((stream, places, rate))
    largest = jnp.max(rate)
    small = jnp.where(rate < LARGE_RATE, rate, 0)
    smaller = jnp.max(small)
    eighths = (small * 8).astype(jnp.int32)
    for_rest, for_eighths = apart(smaller > 0, lambda: stream.pair(places, site))
    drawn = _poisson_of_rest(for_rest, small - eighths.astype(rate.dtype) * (1 / 8), 1 / 8)
    drawn = drawn + EIGHTHS.draw_if(smaller >= EIGHTHS.step, for_eighths, eighths)
    many = smaller >= SIXTEENS.step
    for_sixteens, _ = apart(many, lambda: stream.pair(places, site + 1))
    drawn = drawn + SIXTEENS.draw_if(many, for_sixteens, eighths >> 3)

    def by_rejection():
        large = jnp.where(rate >= LARGE_RATE, rate, 0)
        return _poisson_by_rejection(stream, site + 2, places, large, jnp.int32)

    return drawn + if_needed(largest >= LARGE_RATE, by_rejection)


def _poisson_of_rest(words, rate, largest):
    """Draws from rates below the largest, a static number."""
    terms = next(terms for most, terms in TERMS if largest <= most)
    return count_tails(words, terms, jnp.exp(-rate), lambda k: rate * (1 / k))


class Tables(NamedTuple):
    """Alias tables of the Poisson laws of some multiples of a step."""

    step: float
    """A power of two."""
    shift: int
    """The step is 2^shift of the units in which `draw_if` is given rates."""
    number: int
    """Number of tables, a power of two."""
    bits: int
    """Each table has 2^bits cells: `bits` bits of a word choose a cell, the other bits a value in it."""

    def draw_if(self, needed: Bool[Array, ""], words: UInt[Array, "*n"], whole: Int[Array, "*n"]) -> Int[Array, "*n"]:
        """Draws from the laws of the multiples of the step in rates, given in whole units; zero if not needed."""
        entries, first = (aligned(jnp.asarray(each), whole) for each in alias_tables(self))
        multiples = (whole >> self.shift) & (self.number - 1)
        cell = (words >> (32 - self.bits)).astype(jnp.int32)
        place = apart(needed, lambda: (multiples << self.bits) + cell)
        entry = apart(needed, lambda: looked_up(entries, place))
        own = (words & jnp.uint32(2 ** (32 - self.bits) - 1)) < (entry >> self.bits)
        value = jnp.where(own, cell, (entry & jnp.uint32(2**self.bits - 1)).astype(jnp.int32))
        if alias_tables(self)[1].any():
            value = apart(needed, lambda: looked_up(first, multiples)) + value
        return jnp.where(multiples > 0, value, 0)


def apart(needed: Bool[Array, ""], compute: Callable[[], T]) -> T:
    """What `compute` returns, in memory before it is used; zeros if it is not needed.

    On a CPU XLA computes anew, in every loop that uses them, what it can fuse with it; and loops that look up are not
    vectorized there, with all that they compute. It fuses nothing across a branch.
    """
    return if_needed(needed, compute)


EIGHTHS = Tables(1 / 8, 0, 128, 6)
ONES = Tables(1, 0, 16, 6)
SIXTEENS = Tables(16, 4, LARGE_RATE // 16, 9)


@cache
def alias_tables(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Entries `[number · cells]`, a threshold above the other cell in one word, and the first values `[number]`."""
    cells, scale = 1 << tables.bits, 2 ** (32 - tables.bits)
    entries = np.zeros((tables.number, cells), np.uint32)
    first = np.zeros(tables.number, np.int32)
    for j in range(1, tables.number):
        rate = j * tables.step
        first[j] = max(0, rate - int(6.8 * math.sqrt(rate)) - 8)
        values = first[j] + np.arange(cells)
        mass = np.array([math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in values.tolist()])
        height, other = _alias(mass / mass.sum() * cells)
        # A full cell is its own other cell, so that an overflow of its threshold changes nothing.
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


def _poisson_by_rejection(stream, site, cells, rate, dtype):
    wanted = rate >= MIN_EXPECTATION / 2  # zero, or MIN_EXPECTATION up to rounding
    rate = jnp.where(wanted, rate, MIN_EXPECTATION)
    centre = jnp.floor(rate)
    part = rate - centre
    inverse = 1 / rate

    def masses(offset):
        value = centre + offset
        whole = jnp.maximum(value, 1)
        log_mass = -0.5 * jnp.log(whole * inverse) - stirling_error(whole) - rate * deviance((offset - part) * inverse)
        at_zero = jnp.where(value == 0, 0.5 * jnp.log(2 * math.pi * rate) - rate, -jnp.inf)
        return jnp.where(value > 0, log_mass, at_zero), value * inverse

    drawn = reject(stream, site, cells, wanted, Law(part, jnp.sqrt(rate), 1.0), masses)
    return jnp.where(wanted, centre.astype(dtype) + drawn.astype(dtype), 0)
