"""Transformed rejection with a squeeze, for the cells whose expectation is too large to count up to.

Everything is relative to a whole centre near the mode, so that the arithmetic stays exact where a float holds no
integers of that size, and the logarithm of a probability is its saddle-point form, in which nothing cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.placement import aligned, repeat
from rrjax.sampling.words import Stream, unit

BLOCK = 128
_PROPOSALS = 4
_FAR = 2.0**23


class Hat(NamedTuple):
    """The envelope of Hörmann's transformed rejection, for a vector of distributions.

    A proposal is centre + ⌊(2a/us + b)·u + shift⌋ with u uniform on (−½, ½) and us = ½ − |u|.

    References:
        Hörmann, "The transformed rejection method for generating Poisson random variables", 1993;
        "The generation of binomial random variates", 1993.
    """

    a: Float[Array, " n"]
    b: Float[Array, " n"]
    shift: Float[Array, " n"]
    squeeze: Float[Array, " n"]
    """Below it, a second uniform accepts at once where us is at least 0.07."""
    scale: Float[Array, " n"]
    """Accepted if v · scale / (a/us² + b) is at most the mass at the proposal over that at the reference point."""


def reject(
    stream: Stream,
    site: int | Int[Array, ""],
    cells: Int[Array, " n"],
    wanted: Bool[Array, " n"],
    hat: Hat,
    log_mass: Callable[[Float[Array, "*s"]], Float[Array, "*s"]],
) -> Int[Array, " n"]:
    """Draws one integer from each of n distributions, relative to their centres.

    Args:
        stream: Random words.
        site: The first of the sites to take them from; as many follow as there are turns.
        cells: `[n]`, what tells the distributions apart: each takes words of its own.
        wanted: `[n]`, which draws are wanted. The others are anything, and no turn waits for them: the envelope of a
            small expectation may never accept.
        hat: The envelopes, right for those that are wanted.
        log_mass: Offset from the centre `[_, n]` → logarithm of the mass there over that at the reference
            point; −inf outside the range.

    Returns:
        `[n]`, int32, offsets from the centres.
    """
    dtype = hat.a.dtype
    # Proposals of one cell are far apart, whatever the cells.
    places = cells.astype(jnp.uint32) + (jnp.arange(_PROPOSALS, dtype=jnp.uint32) << 30)[:, None]

    def body(state):
        turn, offset, done = state
        side, height = stream.pair(places, site + turn)
        # The distance from the edge is drawn, and the side by the lowest bit, so that the tails keep their digits.
        edge = unit(side & ~jnp.uint32(1), dtype) / 2
        u = jnp.where((side & 1) == 1, 0.5 - edge, edge - 0.5)
        v = unit(height, dtype)
        place = jnp.floor((2 * hat.a / edge + hat.b) * u + hat.shift)
        place = jnp.clip(place, -_FAR, _FAR)
        bound = jnp.log(v * hat.scale / (hat.a / edge**2 + hat.b))
        accept = ((edge >= 0.07) & (v <= hat.squeeze)) | (bound <= log_mass(place))
        accept = accept & (jnp.abs(place) < _FAR)
        first = jnp.argmax(accept, axis=0)
        found = jnp.zeros_like(offset)
        for row in range(_PROPOSALS):
            found = jnp.where(first == row, place[row].astype(jnp.int32), found)
        return turn + 1, jnp.where(done, offset, found), done | jnp.any(accept, axis=0)

    state = aligned((jnp.int32(0), jnp.zeros_like(cells), ~wanted), stream, hat)
    return lax.while_loop(lambda state: ~jnp.all(state[2]), body, state)[1]


def on_selected(
    selected: Bool[Array, " n"], draw: Callable[[Int[Array, " block"]], Int[Array, " block"]]
) -> Int[Array, " n"]:
    """Runs `draw(cells)` on blocks of the selected cells only; zero elsewhere.

    The last block is filled up with cell 0, selected or not.
    """
    size = selected.shape[0]
    block = min(size, BLOCK)
    padded = -(-size // block) * block
    nothing = aligned(jnp.zeros(padded, jnp.int32), selected)

    def some():
        rank = jnp.cumsum(selected, dtype=jnp.int32) - 1
        place = jnp.where(selected, rank, padded)
        cells = nothing.at[place].set(jnp.arange(size, dtype=jnp.int32), mode="drop")

        def body(index, packed):
            values = draw(lax.dynamic_slice(cells, (index * block,), (block,)))
            return lax.dynamic_update_slice(packed, values, (index * block,))

        packed = repeat((rank[-1] + block) // block, body, nothing)
        return jnp.where(selected, packed.at[rank].get(mode="clip"), 0)

    return lax.cond(jnp.any(selected), some, lambda: nothing[:size])
