"""Random words by counter, and independent variables: uniform, normal, Poisson and binomial.

Any word of a stream is available at any time, without splitting keys. Threefry-2x32 is the function behind JAX's own
keys, written out so that it fuses with the use of the words; `jax.random.bits` keeps a rolled loop on a CPU, uses half
of the words, and compiles several times slower. Simulations take 13 of its rounds, the clients of real collections all.

Integers of small expectations are drawn by inversion of single words, all in a few nanoseconds each. Those of large
ones are drawn by **rejection from a normal law**. A normal variable z is transformed by the law's skewness (Cornish and
Fisher) into a proposal y of known density. The target is not the law of the integers at ⌊y⌋, a staircase that no
density follows, but the polygon through its probabilities: a point at the share t of the way from one integer to the
next is accepted as the first with weight 1 − t, as the second with weight t, and each integer then comes with its
probability. Polygon and density differ by less than 0.72 over the variance, relatively; so at a variance of 16 four
proposals of a hundred are rejected, at 1000 one of two thousand. Values are relative to a whole centre near the mean,
so that the arithmetic stays exact even if integers of that size exceed a float. The logarithm of a probability is in
its saddle-point form, without cancellation.

References:
    Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, UInt

from rrjax.numerics.sharding import if_needed, repeat, take_at, with_sharding_of
from rrjax.numerics.special import deviance, stirling_error
from rrjax.numerics.threefry import threefry

ROUNDS = 13
"""Rounds of Threefry: the fewest for which Salmon et al. found no failure in TestU01's BigCrush, a third less work than
the 20 with a margin."""
_threefry = jax.jit(partial(threefry, rounds=ROUNDS))  # traced once for all arrays of a shape

TERMS = ((1 / 8, 6), (1.0, 13), (16.0, 48))
"""Largest expectation, and number of terms beyond which a Poisson or binomial law has less than 2⁻³³."""
MIN_EXPECTATION = 16
"""Smallest expectation for which the bounds were checked, with binomial probabilities of at most one half."""
POLYGON_EXCESS = 0.72
"""No polygon is above (1 + POLYGON_EXCESS/variance) times the density of its proposals."""
BLOCK = 256
"""Number of cells that are drawn by rejection together."""
_REJECTED = jnp.iinfo(jnp.int32).min
LARGE_RATE = 1024
"""Smallest Poisson rate that is drawn by rejection."""
MAX_RATE_RATIO = LARGE_RATE // MIN_EXPECTATION
"""Largest ratio of the rates of a batch."""


class Stream(NamedTuple):
    """A stream of words, addressed by a place (a cell) and a site (the use of the word)."""

    first: UInt[Array, ""]
    second: UInt[Array, ""]

    @classmethod
    def of(cls, key: Array) -> Stream:
        """The stream of a typed key of any implementation."""
        words = jax.random.key_data(key)
        if words.shape != (2,):
            words = jax.random.bits(key, (2,), jnp.uint32)
        return cls(words[0], words[1])

    @property
    def zero(self) -> Int[Array, ""]:
        """A zero, int32, that is a batch if the stream is one, for the first state of a loop.

        Under `vmap` JAX traces the body of a loop anew for every part of the state that turns out to be a batch, and
        the bodies of loops within as often again.
        """
        return (self.first & jnp.uint32(0)).astype(jnp.int32)

    def pair(self, place: ArrayLike, site: ArrayLike) -> tuple[UInt[Array, "*s"], UInt[Array, "*s"]]:
        """Two independent words for every place, at one site."""
        x, y = (jnp.asarray(each).astype(jnp.uint32) for each in (place, site))
        return _threefry(self.first, self.second, x, y)


def unit(words: UInt[Array, "*s"], dtype) -> Array:
    """Uniform variables, the middles of the words' intervals of (0, 1); small ones keep all their digits."""
    return (words.astype(dtype) + 0.5) * 2.0**-32


# Giles' polynomials for the inverse error function in float32, highest degree first, in w − 2.5 and in √w − 3 for
# w = −log(1 − x²) below 5 and above.
_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503)
_CENTRE += (-0.00417768164, 0.246640727, 1.50140941)
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613)
_TAIL += (0.00943887047, 1.00167406, 2.83297682)


def normal(words: UInt[Array, "*s"], dtype) -> Array:
    """Standard normal variables of words; the lowest bit is the sign, so that tails keep their digits.

    They are off by less than 1e-6, in float32 beyond 5.6 by at most 0.005, which rejection allows.

    References:
        Giles, "Approximating the erfinv function", 2010.
    """
    both_tails = unit(words & ~jnp.uint32(1), dtype)
    if dtype == jnp.float32:
        w = -jnp.log(both_tails * (2 - both_tails))  # 1 − x² keeps its digits
        is_central = w < 5
        u = jnp.where(is_central, w - 2.5, jnp.sqrt(w) - 3)
        series = jnp.zeros_like(u)
        for centre, tail in zip(_CENTRE, _TAIL, strict=True):
            series = series * u + jnp.where(is_central, jnp.float32(centre), jnp.float32(tail))
        size = math.sqrt(2) * series * (1 - both_tails)
    else:
        size = math.sqrt(2) * lax.erf_inv(1 - both_tails)
    return jnp.where((words & 1) == 1, size, -size)


def count_tails(
    words: UInt[Array, " n"], terms: int, at_zero: Float[Array, " n"], ratio: Callable[[int], Float[Array, " n"]]
) -> Int[Array, " n"]:
    """Integers `[n]`, int32, of laws with small expectations: the number of upper tails above the uniform variable.

    Tails P(X ≥ k) are summed from their small ends, so that rare values keep their relative precision. `terms` is the
    largest value (see `TERMS`), `at_zero` is P(X = 0), `ratio(k)` is P(X = k)/P(X = k − 1).
    """
    uniform = unit(words, at_zero.dtype)
    mass = [at_zero]
    for k in range(1, terms + 1):
        mass.append(mass[-1] * ratio(k))
    drawn = jnp.zeros_like(words, jnp.int32)
    tail = jnp.zeros_like(uniform)
    for k in range(terms, 0, -1):
        tail = tail + mass[k]
        drawn = drawn + (uniform < tail).astype(jnp.int32)
    return drawn


class Law(NamedTuple):
    """A law on the integers, relative to a whole number near its mean.

    Attributes:
        mean: The fractional part of the mean, in [0, 1).
        deviation: Its standard deviation.
        skew: Skewness times standard deviation: 1 for a Poisson law, 1 − 2p for a binomial one.
    """

    mean: Float[Array, "*n"]
    deviation: Float[Array, "*n"]
    skew: Float[Array, "*n"] | float


Masses = Callable[[Float[Array, "*n"]], tuple[Float[Array, "*n"], Float[Array, "*n"]]]
"""Whole offset from the centre → the logarithm of √(2π) · deviation · P there, −∞ outside the range; and the ratio of
the probability one below to the one there, arbitrary where that is zero."""


def _weights(z, law, masses):
    """Proposals of normal variables: the integer below, the weight of the one above, the weight of both, at most 1."""
    point = law.mean + law.deviation * z + law.skew * ((z * z - 1) * (1 / 6))
    below = jnp.floor(point)
    share = point - below
    log_mass, ratio = masses(below + 1)
    inverse = 1 / law.deviation
    # The density of the proposals, relative to the normal one, by the slope of the transformation.
    density = (1 + law.skew * z * inverse * (1 / 3)) / (1 + POLYGON_EXCESS * inverse * inverse)
    weight = jnp.exp(log_mass + 0.5 * z * z) * density
    above = weight * share
    return below, above, above + weight * (1 - share) * ratio


def reject(
    stream: Stream,
    site: int | Int[Array, "*#n"],
    places: UInt[Array, " n"] | Int[Array, " n"],
    wanted: Bool[Array, " n"],
    law: Law,
    masses: Masses,
) -> Int[Array, " n"]:
    """Draws one integer from each of n laws, as an offset `[n]`, int32, from its centre.

    Laws and draws that are not wanted are arbitrary, and cause no further turns. Each turn takes the next site.
    """

    def body(state):
        turn, offset = state
        for_point, for_weight = stream.pair(places, site + turn)
        below, above, both = _weights(normal(for_point, law.deviation.dtype), law, masses)
        height = unit(for_weight, above.dtype)
        candidate = below.astype(jnp.int32) + (height <= above).astype(jnp.int32)
        # One number for acceptance and value, so that XLA makes one loop and not two.
        return turn + 1, jnp.where(offset == _REJECTED, jnp.where(height <= both, candidate, _REJECTED), offset)

    start = stream.zero + jnp.where(wanted, jnp.int32(_REJECTED), 0)
    state = with_sharding_of((stream.zero, start), law)
    return lax.while_loop(lambda state: jnp.any(state[1] == _REJECTED), body, state)[1]


def in_blocks(
    wanted: Bool[Array, " n"], draw: Callable[[Int[Array, " block"]], Int[Array, " block"]], drawn: Int[Array, " n"]
) -> Int[Array, " n"]:
    """`drawn`, replaced by `draw(cells)` where wanted; blocks without such cells are skipped.

    The last block overlaps the one before it: `draw` must give a cell the same value in both.
    """
    size = wanted.shape[0]
    block = min(size, BLOCK)

    def body(index, drawn):
        start = jnp.minimum(index * block, size - block)
        here, old = (lax.dynamic_slice(each, (start,), (block,)) for each in (wanted, drawn))
        cells = start + jnp.arange(block, dtype=jnp.int32)
        new = lax.cond(jnp.any(here), lambda: jnp.where(here, draw(cells), old), lambda: old)
        return lax.dynamic_update_slice(drawn, new, (start,))

    return lax.cond(jnp.any(wanted), lambda: repeat(jnp.int32(-(-size // block)), body, drawn), lambda: drawn)


def binomial(
    stream: Stream,
    site: int | Int[Array, ""],
    trials: Int[Array, " n"],
    probability: Float[Array, ""] | Float[Array, " n"],
) -> Int[Array, " n"]:
    """Draws `[n]` from binomial laws of trials `[n]`, with a common probability or one each."""
    trials, probability = with_sharding_of((trials, probability))
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
    stream, places, site, trials, probability = with_sharding_of((stream, places, site, trials, probability))
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
    stream, site, rate, largest = with_sharding_of((stream, site, rate, largest))
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
        return _poisson_by_rejection(stream, site + 2, cells, take_at(rate, cells), dtype)

    return in_blocks(large, by_rejection, drawn.astype(dtype))


def poisson_of_lanes(
    stream: Stream, places: Int[Array, "*#n"], site: int | Int[Array, "*#n"], rate: Float[Array, "*n"]
) -> Int[Array, "*n"]:
    """Draws int32 from Poisson laws with any rates, of any shape, to which all else is broadcast. Not for `vmap`.

    A lane's value depends on its own stream, place and rate; the lanes together determine only which code runs.
    """
    stream, places, rate = with_sharding_of((stream, places, rate))
    largest = jnp.max(rate)
    small = jnp.where(rate < LARGE_RATE, rate, 0)
    smaller = jnp.max(small)
    eighths = (small * 8).astype(jnp.int32)
    for_rest, for_eighths = if_needed(smaller > 0, lambda: stream.pair(places, site))
    drawn = _poisson_of_rest(for_rest, small - eighths.astype(rate.dtype) * (1 / 8), 1 / 8)
    drawn = drawn + EIGHTHS.draw_if(smaller >= EIGHTHS.step, for_eighths, eighths)
    many = smaller >= SIXTEENS.step
    for_sixteens, _ = if_needed(many, lambda: stream.pair(places, site + 1))
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
        entries, first = (with_sharding_of(jnp.asarray(each), whole) for each in alias_tables(self))
        multiples = (whole >> self.shift) & (self.number - 1)
        cell = (words >> (32 - self.bits)).astype(jnp.int32)
        place = if_needed(needed, lambda: (multiples << self.bits) + cell)
        entry = if_needed(needed, lambda: take_at(entries, place))
        own = (words & jnp.uint32(2 ** (32 - self.bits) - 1)) < (entry >> self.bits)
        value = jnp.where(own, cell, (entry & jnp.uint32(2**self.bits - 1)).astype(jnp.int32))
        if alias_tables(self)[1].any():
            value = if_needed(needed, lambda: take_at(first, multiples)) + value
        return jnp.where(multiples > 0, value, 0)


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
