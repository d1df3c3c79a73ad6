"""Uniformly random parts of a multiset, as counts: multivariate hypergeometric vectors and tables."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from rrjax.numerics.sharding import aligned
from rrjax.simulate.sampling.binomial import binomial
from rrjax.simulate.sampling.streams import Stream

_SITE_BITS = 12
"""So many sites a round: far more than rejection has turns."""
_ROUND_BITS = 10
"""So many rounds a part: each takes the square root of what is left, and a single item an even chance or so."""


def hypergeometric(
    stream: Stream, site: int | Int[Array, ""], items: Int[Array, " n"], number: Int[Array, ""]
) -> Int[Array, " n"]:
    """Draws so many items of a multiset without replacement.

    Every item is taken with the same chance, independently. Given how many were taken, they are a uniformly random
    part of that size; so where they are too few, the rest is drawn in the same way from those not taken, and where they
    are too many, what must go from those taken. What is still wrong falls to its square root with every round.

    Args:
        stream: Random words.
        site: The first of the sites to take them from; 2²² follow.
        items: `[n]`, int32, how many of each kind there are; below 2³¹ in all.
        number: Scalar, int32, how many to draw, at most all of them.

    Returns:
        `[n]`, int32, of the sum `number` exactly.
    """

    def unfinished(state):
        return state[-1] > 0

    def draw_round(state):
        turn, drawn, pool, sign, left = state
        size = jnp.sum(pool, dtype=jnp.int32).astype(jnp.result_type(float))
        # Any chance is right; this one is soonest done.
        chance = jnp.minimum(left.astype(size.dtype) / jnp.maximum(size, 1), 1)
        taken = binomial(stream, site + (turn << _SITE_BITS), pool, chance)
        total = jnp.sum(taken, dtype=jnp.int32)
        over = total > left
        drawn = drawn + sign * taken
        return (
            turn + 1,
            drawn,
            jnp.where(over, taken, pool - taken),
            jnp.where(over, -sign, sign),
            jnp.abs(left - total),
        )

    state = aligned((jnp.int32(0), jnp.zeros_like(items), items, jnp.int32(1), number), stream)
    return lax.while_loop(unfinished, draw_round, state)[1]


def marked(
    stream: Stream, site: int | Int[Array, ""], marks: Int[Array, " n"], size: Int[Array, ""], number: Int[Array, ""]
) -> Int[Array, " n"]:
    """Draws so many of `size` items, n times independently: how many of them are marked.

    In the way of `hypergeometric`, with two kinds and n vectors at once.

    Args:
        stream: Random words.
        site: The first of the sites to take them from; 2²² follow.
        marks: `[n]`, int32, how many items are marked, at most `size`.
        size: Scalar, int32, the items.
        number: Scalar, int32, how many to draw, at most `size`.

    Returns:
        `[n]`, int32.
    """

    def draw_round(state):
        turn, drawn, pool, sign, left = state
        total = jnp.sum(pool, axis=0).astype(jnp.result_type(float))
        chance = jnp.minimum(left.astype(total.dtype) / jnp.maximum(total, 1), 1)
        taken = binomial(stream, site + (turn << _SITE_BITS), pool.ravel(), jnp.tile(chance, 2)).reshape(2, -1)
        found = jnp.sum(taken, axis=0, dtype=jnp.int32)
        over = found > left
        drawn = drawn + sign * taken[0]
        return (
            turn + 1,
            drawn,
            jnp.where(over, taken, pool - taken),
            jnp.where(over, -sign, sign),
            jnp.abs(left - found),
        )

    pool = jnp.stack([marks, size - marks])
    nothing, one, left = jnp.zeros_like(marks), jnp.ones_like(marks), jnp.full_like(marks, number)
    state = aligned((jnp.int32(0), nothing, pool, one, left), stream)
    return lax.while_loop(lambda state: jnp.any(state[-1] > 0), draw_round, state)[1]


def table(stream: Stream, rows: Int[Array, " m"], columns: Int[Array, " n"]) -> Int[Array, "m n"]:
    """Draws a contingency table with given margins: what shuffling the items among the rows makes of them.

    Args:
        stream: Random words, not used for anything else.
        rows: `[m]`, int32, the sums of the rows; m is at most 1024.
        columns: `[n]`, int32, the sums of the columns; of the same total, below 2³¹.

    Returns:
        `[m, n]`, int32, of exactly those sums.
    """

    def draw_row(left, given):
        index, number = given
        drawn = hypergeometric(stream, index << (_SITE_BITS + _ROUND_BITS), left, number)
        return left - drawn, drawn

    last, drawn = lax.scan(
        draw_row, aligned(columns, stream, rows), (jnp.arange(rows.shape[0] - 1, dtype=jnp.int32), rows[:-1])
    )
    return jnp.concatenate([drawn, last[None]])
