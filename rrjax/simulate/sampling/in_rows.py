"""Collections of many configurations at once, with any number of categories, in rows of one array.

The law is that of `rrjax.simulate.collect`, drawn in the same way as by `multinomial_in_rounds`: independent Poisson
cells just below the number of trials, while that is large, and the last trials one by one. On a CPU blocks of rows are
drawn in turn, and whether a block needs code for large rates depends on its rows; elsewhere all rows are drawn at once.
What is drawn depends on nothing but the collection.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, UInt

from rrjax.numerics.rows import WIDTH, Rows, num_parts
from rrjax.numerics.sharding import by_platform, if_needed, repeat, take_at
from rrjax.numerics.sums import reciprocal
from rrjax.numerics.threefry import product, scaled_word
from rrjax.simulate.sampling.multinomials import DEVIATIONS, SITE_BITS
from rrjax.simulate.sampling.streams import Stream, poisson_of_lanes

BLOCK = 64
"""Rows that are drawn together on a CPU."""
LANES = 8192
"""Trials that are drawn one by one together on a CPU."""
TOGETHER = 32
"""Collections that these are of, at most."""
TRIALS_PER_CELL = 1
"""A round takes the time of one trial by itself for each cell of a vector."""


class Laws(NamedTuple):
    """Distributions of one number of categories, one after the other, each filled up to the same number of rows."""

    shares: Float[Array | np.ndarray, "n W"]
    own: UInt[Array | np.ndarray, " n*W"]
    """Of each category's cell in the alias table, the part that is its own, in units of 2⁻³²."""
    other: Int[Array | np.ndarray, " n*W"]
    """The category that has the rest of the cell."""

    @classmethod
    def of(cls, shares: np.ndarray) -> Laws:
        """The laws of distributions `[P, K]`."""
        number, size = shares.shape
        parts = num_parts(size)
        tables = [_alias(each) for each in shares]
        own, other = (np.stack(each) for each in zip(*tables, strict=True))

        def filled(array):
            return np.pad(array, ((0, 0), (0, parts * WIDTH - size)))

        return cls(filled(shares).reshape(number * parts, WIDTH), filled(own).ravel(), filled(other).ravel())

    def in_rows(self, rows: Rows, first: Int[Array, " R"]) -> Float[Array, "R W"]:
        """The law of each vector, given the law's first row; zero in cells that are not used."""
        place = take_at(first, rows.vector) + jnp.minimum(rows.part, rows.parts - 1)
        return jnp.where(rows.used, jnp.asarray(self.shares).at[place].get(mode="promise_in_bounds"), 0)


class Users(NamedTuple):
    """The users of each collection, arrays `[R]`."""

    stream: Stream
    law: Int[Array, " R"]
    """The first row of its law."""
    number: Int[Array, " R"]
    keep: Float[Array, " R"]
    """The probability that a user keeps the value."""
    drop: Float[Array, " R"]
    """That it does not, and reports any category."""


def _alias(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The alias table of a distribution `[K]`: `own` and `other` of `Laws`.

    Light categories are filled up in turn from the first heavy one that has more than its cell holds; one that gave
    too much is filled up from the next.
    """
    heights = shares / shares.sum(dtype=np.float64) * len(shares)
    own, other = np.minimum(heights, 1), np.arange(len(shares), dtype=np.int32)
    light, heavy = np.flatnonzero(heights < 1), np.flatnonzero(heights >= 1)
    if len(light) and len(heavy):  # else all are one, up to rounding
        ends, spare = np.cumsum(1 - heights[light]), np.cumsum(heights[heavy] - 1)
        begins = ends - (1 - heights[light])
        other[light] = heavy[np.minimum(np.searchsorted(spare, begins, side="right"), len(heavy) - 1)]
        # The light category that takes more than the rest of what a heavy one can spare, but for the last one.
        taker = np.minimum(np.searchsorted(ends, spare[:-1], side="right"), len(light) - 1)
        gave = np.flatnonzero((begins[taker] < spare[:-1]) & (ends[taker] > spare[:-1]))
        own[heavy[gave]] = np.maximum(1 + spare[gave] - ends[taker[gave]], 0)
        other[heavy[gave]] = heavy[gave + 1]
    return np.minimum(np.round(own * 2.0**32), 2.0**32 - 1).astype(np.uint32), other


def collect_in_rows(
    rows: Rows, laws: Laws, users: Users, most: int = TOGETHER
) -> tuple[Int[Array, "R W"], Int[Array, "R W"]]:
    """Draws the true counts and the counts of the reports of all collections; a collection with no users is zero.

    `rows.length` is K. `most` collections are there at most, if it is less than `TOGETHER`.
    """
    number = jnp.where(rows.there, users.number, 0)
    limit = TRIALS_PER_CELL * WIDTH * rows.parts
    shares = laws.in_rows(rows, users.law)
    draw_cells = _rounds(rows, shares, users.stream)
    dtype = shares.dtype
    each = reciprocal(rows.length.astype(dtype))

    def unfinished(state):
        _, left, behind, _ = state
        return jnp.any(left + behind > limit)

    def draw_round(state):
        turn, left, behind, counts = state
        size, wait = left.astype(dtype), behind.astype(dtype)
        active = left + behind > limit
        mean = jnp.where(active, _below(size, size), 0)
        dropped = users.drop * mean
        # The number of followers varies by its own Poisson law, and by that of those who drop their value now.
        pool = wait + dropped
        following = jnp.where(active, _below(pool, pool + dropped), 0)
        means = jnp.stack([users.keep * mean, dropped, following * each])
        drawn = draw_cells(turn, jnp.where(rows.there, means, 0))
        kept, gone, others = rows.count(*drawn)
        total = kept + gone
        # A round is kept if it fits; a sum past the largest integer is negative.
        fits = (total >= 0) & (total <= left)
        left = left - jnp.where(fits, total, 0)
        behind = behind + jnp.where(fits, gone, 0)
        follow = others <= behind
        behind = behind - jnp.where(follow, others, 0)
        fit, follow = (rows.spread(each.astype(jnp.int32)) for each in (fits, follow))
        counts = counts[0] + fit * (drawn[0] + drawn[1]), counts[1] + fit * drawn[0] + follow * drawn[2]
        return turn + 1, left, behind, counts

    zeros = jnp.zeros((rows.height, WIDTH), jnp.int32)
    state = jnp.int32(0), number, jnp.zeros_like(number), (zeros, zeros)
    _, left, behind, counts = lax.while_loop(unfinished, draw_round, state)
    return _one_by_one(rows, laws, users, left, behind, counts, min(most, TOGETHER))


def _below(number, variance):
    """The mean of a total that almost never exceeds a number, its variance given."""
    return jnp.maximum(number - DEVIATIONS * jnp.sqrt(variance), 0)


def _rounds(rows, shares, stream):
    """The function of a turn and of means `[3, R]` that draws the cells of those who keep, drop and follow."""
    first, second = (take_at(each, rows.vector) for each in stream)

    def site_of(turn, kind):
        return (turn * 3 + kind) << SITE_BITS

    def factors_of(means):
        return take_at(means.reshape(-1), jnp.arange(3, dtype=jnp.int32)[:, None] * rows.height + rows.vector)

    def in_blocks(turn, means):
        size = min(BLOCK, rows.height)
        blocks = (rows.parts * rows.number + size - 1) // size
        factors = factors_of(means)

        def draw_block(index, drawn):
            kind, start = index // blocks, index % blocks * size

            def part(array):
                return lax.dynamic_slice_in_dim(array, start, size)

            law = jnp.where(kind < 2, part(shares), part(rows.used).astype(shares.dtype))
            rate = part(lax.dynamic_index_in_dim(factors, kind, keepdims=False))[:, None] * law
            own = Stream(*(part(each)[:, None] for each in (first, second)))
            values = poisson_of_lanes(own, part(rows.places), site_of(turn, kind), rate)
            return lax.dynamic_update_slice(drawn, values[None], (kind, start, jnp.int32(0)))

        return repeat(3 * blocks, draw_block, jnp.zeros((3, *shares.shape), jnp.int32))

    def at_once(turn, means):
        rates = factors_of(means)[:, :, None] * jnp.stack([shares, shares, rows.used.astype(shares.dtype)])
        sites = site_of(turn, jnp.arange(3, dtype=jnp.int32)[:, None, None])
        return poisson_of_lanes(Stream(first[:, None], second[:, None]), rows.places, sites, rates)

    return lambda *given: by_platform(*given, cpu=in_blocks, elsewhere=at_once)


def _one_by_one(rows, laws, users, left, behind, so_far, collections):
    """Draws the trials that are left, and who follows; the words of a trial are those of its number."""
    trials = LANES // collections
    number = left + behind
    # A probability near one has lost the digits of the other one.
    rare = jnp.minimum(users.keep, users.drop)
    threshold = jnp.round(rare * 2.0**32).astype(jnp.uint32)
    values = (*users.stream, users.law, left, number, threshold, users.keep <= users.drop)
    end, size, some = rows.height * WIDTH, rows.length.astype(jnp.uint32), rows.number > 0

    def draw(here, vector, place, flat):
        """Adds the trials of these numbers to the flattened counts; `here` are the values of their vectors."""
        first, second, law, left, number, threshold, keeps_rarely = here
        stream, site = Stream(first, second), 1 << 30  # beyond those of the rounds

        def words():
            for_value, for_keeping = stream.pair(place, site)
            cell, part = product(for_value, size)
            return law * WIDTH + cell.astype(jnp.int32), cell.astype(jnp.int32), part, for_keeping

        index, cell, part, for_keeping = if_needed(some, words)
        own, other = if_needed(some, lambda: [take_at(jnp.asarray(each), index) for each in laws[1:]])

        def cells():
            value = jnp.where(part < own, cell, other)
            keeps = (for_keeping < threshold) == keeps_rarely
            uniform = scaled_word(stream.pair(place, site + 1)[0], size).astype(jnp.int32)
            report = jnp.where(keeps & (place < left), value, uniform)
            put = jnp.where(place < left, rows.cell(vector, value), end)
            return put, jnp.where(place < number, rows.cell(vector, report), end)

        wanted = if_needed(some, cells)
        return tuple(all_.at[cell.ravel()].add(1, mode="drop") for all_, cell in zip(flat, wanted, strict=True))

    def in_turns(*flat):
        padded = [jnp.pad(each, (0, collections)) for each in values]

        def draw_collections(index, flat):
            start = index * collections
            here = [lax.dynamic_slice_in_dim(each, start, collections)[:, None] for each in padded]
            vector = (start + jnp.arange(collections, dtype=jnp.int32))[:, None]

            def draw_trials(turn, flat):
                return draw(here, vector, turn * trials + jnp.arange(trials, dtype=jnp.int32), flat)

            return repeat((jnp.max(number) + trials - 1) // trials, draw_trials, flat)

        return repeat((rows.number + collections - 1) // collections, draw_collections, flat)

    def at_once(*flat):
        # No collection has more trials than cells.
        return draw([rows.spread(each) for each in values], rows.vector[:, None], rows.places, flat)

    flat = by_platform(*(each.ravel() for each in so_far), cpu=in_turns, elsewhere=at_once)
    true_counts, counts = (each.reshape(rows.height, WIDTH) for each in flat)
    return true_counts, counts
