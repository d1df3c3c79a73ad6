"""Rejection from a normal law, for integers whose expectation is too large for inversion.

A normal variable z is transformed by the law's skewness (Cornish and Fisher) into a proposal y of known density. The
target is not the law of the integers at ⌊y⌋, a staircase that no density follows, but the polygon through its
probabilities: a point at the share t of the way from one integer to the next is accepted as the first with weight
1 − t, as the second with weight t, and each integer then comes with its probability. Polygon and density differ by less
than 0.72 over the variance, relatively; so at a variance of 16 four proposals of a hundred are rejected, at 1000 one of
two thousand.

Values are relative to a whole centre near the mean, so that the arithmetic stays exact even if integers of that size
exceed a float. The logarithm of a probability is in its saddle-point form, without cancellation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt

from rrjax.numerics.sharding import aligned, repeat
from rrjax.simulate.sampling.streams import Stream, normal, unit

MIN_EXPECTATION = 16
"""Smallest expectation for which the bounds were checked, with binomial probabilities of at most one half."""
POLYGON_EXCESS = 0.72
"""No polygon is above (1 + POLYGON_EXCESS/variance) times the density of its proposals."""
BLOCK = 256
"""Number of cells that are drawn by rejection together."""
_REJECTED = jnp.iinfo(jnp.int32).min


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
        found = below.astype(jnp.int32) + (height <= above).astype(jnp.int32)
        # One number for acceptance and value, so that XLA makes one loop and not two.
        return turn + 1, jnp.where(offset == _REJECTED, jnp.where(height <= both, found, _REJECTED), offset)

    start = stream.zero + jnp.where(wanted, jnp.int32(_REJECTED), 0)
    state = aligned((stream.zero, start), law)
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
