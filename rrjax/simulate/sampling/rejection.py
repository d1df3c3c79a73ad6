"""Rejection from a normal law, for integers whose expectation is too large to count up to.

A normal variable z is bent by what the law's skewness asks for (Cornish and Fisher), which makes a proposal y of known
density. What is accepted is not the law of the integers at ⌊y⌋, a staircase that no density follows, but the polygon
through its probabilities: a point at the share t of the way from one integer to the next is accepted as the one
with weight 1 − t, as the other with weight t, and each integer then comes as often as it should. Polygon and
density differ by less than 0.72 over the variance, relatively; so of a hundred proposals at a variance of 16 four are
in vain, at 1000 one in two thousand.

Everything is relative to a whole centre near the mean, so that the arithmetic stays exact where a float holds no
integers of that size, and the logarithm of a probability is its saddle-point form, in which nothing cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt

from rrjax.numerics.sharding import aligned, repeat
from rrjax.simulate.sampling.streams import Stream, normal, unit

LEAST = 16
"""The least expectation for which the bounds here were checked, of binomials with a chance of one half at most."""
ROOM = 0.72
"""No polygon is above (1 + ROOM/variance) times the density of its proposals."""
BLOCK = 256
_MISSED = jnp.iinfo(jnp.int32).min


class Law(NamedTuple):
    """A law on the integers, relative to a whole number near its mean.

    Attributes:
        mean: The rest of the mean, in [0, 1).
        deviation: Its standard deviation.
        bend: Skewness times standard deviation: 1 for a Poisson law, 1 − 2p for a binomial one.
    """

    mean: Float[Array, "*n"]
    deviation: Float[Array, "*n"]
    bend: Float[Array, "*n"] | float


Masses = Callable[[Float[Array, "*n"]], tuple[Float[Array, "*n"], Float[Array, "*n"]]]
"""Whole offset from the centre → the logarithm of √(2π) · deviation · P there, −∞ outside the range; and the ratio of
the probability one below to the one there, anything where that is zero."""


def weights(
    z: Float[Array, "*n"], law: Law, masses: Masses
) -> tuple[Float[Array, "*n"], Float[Array, "*n"], Float[Array, "*n"]]:
    """A proposal, and what is accepted of it.

    Args:
        z: Standard normal variables.
        law: Of each.
        masses: Of each.

    Returns:
        The integer below the proposal, relative to the centre; the weight of the integer above, and that weight and its
        own together, over the most that they can be.
    """
    point = law.mean + law.deviation * z + law.bend * ((z * z - 1) * (1 / 6))
    below = jnp.floor(point)
    share = point - below
    log_mass, fall = masses(below + 1)
    # By the density of the proposals, of which the bend takes or adds a part.
    least = 1 / law.deviation
    density = (1 + law.bend * z * least * (1 / 3)) / (1 + ROOM * least * least)
    weight = jnp.exp(log_mass + 0.5 * z * z) * density
    above = weight * share
    return below, above, above + weight * (1 - share) * fall


def reject(
    stream: Stream,
    site: int | Int[Array, ""],
    places: UInt[Array, " n"] | Int[Array, " n"],
    wanted: Bool[Array, " n"],
    law: Law,
    masses: Masses,
) -> Int[Array, " n"]:
    """Draws one integer from each of n laws, relative to their centres.

    Args:
        stream: Random words.
        site: The first of the sites to take them from; as many follow as there are turns.
        places: `[n]`, what tells the laws apart: each takes words of its own.
        wanted: `[n]`, which draws are wanted. The others are anything, and no turn waits for them.
        law: The laws, right for those that are wanted.
        masses: Their probabilities.

    Returns:
        `[n]`, int32, offsets from the centres.
    """

    def body(state):
        turn, offset = state
        for_point, for_weight = stream.pair(places, site + turn)
        below, above, both = weights(normal(for_point, law.deviation.dtype), law, masses)
        height = unit(for_weight, above.dtype)
        found = below.astype(jnp.int32) + (height <= above).astype(jnp.int32)
        # One number says whether and what, so that the compiler makes one loop of it and not two.
        return turn + 1, jnp.where(offset == _MISSED, jnp.where(height <= both, found, _MISSED), offset)

    start = stream.zero + jnp.where(wanted, jnp.int32(_MISSED), 0)
    state = aligned((stream.zero, start), law)
    return lax.while_loop(lambda state: jnp.any(state[1] == _MISSED), body, state)[1]


def in_blocks(
    wanted: Bool[Array, " n"], draw: Callable[[Int[Array, " block"]], Int[Array, " block"]], drawn: Int[Array, " n"]
) -> Int[Array, " n"]:
    """`drawn`, with `draw(cells)` in place of it where wanted; whole blocks are passed over where nothing is.

    The last block reaches back into the one before it; a cell must be drawn alike in both.
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
