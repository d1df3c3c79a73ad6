"""One multinomial vector in O(length), whatever the number of trials."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt

from rrjax.numerics.sharding import aligned, looked_up, repeat
from rrjax.numerics.threefry import scaled_word
from rrjax.simulate.sampling.poisson import RANGE, poisson
from rrjax.simulate.sampling.streams import Stream

_ROOM = 4.0
"""Standard deviations between the mean of a round and what it must not exceed: a chance of 3e-5."""
_FEW = 64
"""So many trials are drawn one by one, however few the cells."""
_MOST_ROUNDS = 6
"""Each leaves 4√ of what it found: of 2⁶³ so many leave fewer than 64."""
_SITE_BITS = 12
"""So many sites a round: far more than rejection has turns."""


def multinomial(
    stream: Stream,
    trials: Int[Array, ""],
    probabilities: Float[Array, "r n"],
    *,
    expected: Float[Array, ""] | None = None,
    followed: bool = False,
) -> Int[Array, "s n"]:
    """Draws a multinomial vector, and for the trials in its last row a uniform one.

    Independent Poisson cells, given their total, are multinomial. So cells with a total just short of `trials` are
    drawn, then again with a total just short of what is left, as long as there is enough, and the rest one by one. A
    round is taken or dropped, and all rounds are repeated, by totals alone, which keeps the law exact.

    Args:
        stream: Random words, not used for anything else.
        trials: Scalar, int32 or int64, not negative.
        probabilities: `[r, n]`, not negative, summing to one.
        expected: Where `trials` is itself binomial, its expectation. It settles the number of the rounds and which code
            they run, so that these are common to a batch in which `trials` differs.
        followed: Static. Each trial that falls into the last row also falls into a cell of a further one, with equal
            chances: a user who does not keep the value reports any.

    Returns:
        `[s, n]`, of the dtype of `trials`, s = r, or r + 1 where followed. The first r rows sum to `trials` exactly,
        the further one to the sum of the row before. What is drawn one by one (all, where trials are fewer than an
        eighth of the cells) has probabilities rounded to multiples of 2⁻³².
    """
    num_rows, width = probabilities.shape
    dtype, whole = probabilities.dtype, trials.dtype
    stream, trials, probabilities, expected = aligned((stream, trials, probabilities, expected))
    base = trials.astype(dtype) if expected is None else expected
    share = jnp.sum(probabilities[-1]) if followed else jnp.zeros((), dtype)
    first_following, waiting, waiting_following = _plan(base, share)
    rounds = jnp.sum(waiting[:-1] > max(num_rows * width / 8, _FEW), dtype=jnp.int32)
    law = probabilities if not followed else jnp.pad(probabilities, ((0, 1), (0, 0)), constant_values=1 / width)

    def over_law(mean, mean_following):
        return (law * jnp.where(jnp.arange(law.shape[0]) < num_rows, mean, mean_following)[:, None]).ravel()

    def draw_round(index, state):
        turn, left, behind, cells = state
        # The means of this round, and what they are at most in a batch.
        most = jnp.where(index == 0, base, 2 * waiting[index])
        most_following = jnp.where(index == 0, first_following, 2 * waiting_following[index])
        mean = _within(_short(left.astype(dtype)), most)
        following = _within(_short(behind.astype(dtype)), most_following)
        # Of those who follow in the first round nobody waits yet.
        following = jnp.where(turn == 0, first_following, following)
        rates = over_law(mean, following), over_law(most, most_following)
        drawn = poisson(stream, turn << _SITE_BITS, *rates, dtype=whole).reshape(law.shape)
        # A round is taken if it fits; a sum past the largest integer is negative.
        totals = jnp.sum(drawn, axis=1, dtype=whole)
        total = jnp.sum(totals[:num_rows], dtype=whole)
        fits = (total >= 0) & (total <= left)
        left = left - jnp.where(fits, total, 0)
        taken = jnp.full(num_rows, fits)
        if followed:
            behind = behind + jnp.where(fits, totals[num_rows - 1], 0)
            follows = totals[num_rows] <= behind
            behind = behind - jnp.where(follows, totals[num_rows], 0)
            taken = jnp.append(taken, follows)
        return turn + 1, left, behind, cells + jnp.where(taken[:, None], drawn, 0)

    def unfinished(state):
        turn, left, behind, _ = state
        # Where a round did not fit, all are done again for what is left, because one by one millions take seconds.
        many = 4 * law.size + 1024
        return (rounds > 0) & ((turn == 0) | (left > many) | (behind > many))

    none = stream.zero.astype(whole)
    state = aligned((stream.zero, none + trials, none, none + jnp.zeros(law.shape, whole)), probabilities)
    _, left, behind, cells = lax.while_loop(unfinished, lambda state: repeat(rounds, draw_round, state), state)
    # What the rounds are expected to leave, generously; it only decides how often the loops below look up.
    rest, rest_following = (jnp.minimum(1.5 * each[rounds], base) for each in (waiting, waiting_following))
    rest_following = jnp.where(rounds > 0, rest_following, share * base)
    return _one_by_one(stream, left, behind, cells, edges(probabilities.ravel()), rest, rest_following)


def _plan(base, share):
    """How many may follow in the mean in a first round; how many trials, and who follow, wait for each round."""
    followed = share * _short(base)
    # How many follow is as uncertain again as the Poisson total.
    first_following = jnp.maximum(followed - _ROOM * jnp.sqrt(2 * followed), 0)
    trials, following = [base], [jnp.zeros_like(base), followed - first_following]
    for _ in range(_MOST_ROUNDS):
        trials.append(_ROOM * jnp.sqrt(trials[-1]))
        following.append(_ROOM * jnp.sqrt(following[-1]) + share * trials[-1])
    # Added to each, so that all are a batch where one is: on a mesh, what is stacked must live in one place.
    nothing = 0 * base + 0 * share
    return first_following, *(jnp.stack([each + nothing for each in kind]) for kind in (trials, following[:-1]))


def _short(number):
    """What Poisson cells may have in the mean, so that their total is hardly ever above a number."""
    return jnp.maximum(number - _ROOM * jnp.sqrt(number), 0)


def _within(mean, most):
    """A mean that is at most what a batch has in common, and zero where it is much less."""
    mean = jnp.minimum(mean, most)
    return jnp.where(mean * RANGE >= most, mean, 0)


def edges(probabilities: Float[Array, " n"]) -> UInt[Array, " n"]:
    """Cumulative probabilities as integers, from probabilities that nearly sum to one."""
    size = probabilities.shape[0]
    # A sum of integers, exact but for the rounding of its terms: the edges must not wrap.
    halves = jnp.sum(jnp.round(probabilities * 2.0**31).astype(jnp.uint32), dtype=jnp.uint32)
    # So much less than 2³² is shared out that rounding cannot exceed it; words beyond the last edge find no cell.
    scale = (2.0**32 - (2 * size + 2.0**14)) / (halves.astype(probabilities.dtype) * 2.0**-31)
    shares = jnp.round(probabilities * scale).astype(jnp.uint32)
    nothing = aligned(jnp.zeros_like(shares), shares)

    def add(turn, sums):
        # Not `jnp.cumsum`: of a vector alone this is as quick, and a tenth of the program.
        return sums + lax.dynamic_slice(jnp.concatenate([nothing, sums]), (size - (1 << turn),), (size,))

    return lax.fori_loop(0, (size - 1).bit_length(), add, shares)


def find(edges: UInt[Array, " n"], words: UInt[Array, " m"]) -> Int[Array, " m"]:
    """The cell of each word; the number of cells where a word is beyond all."""
    size = edges.shape[0]

    def halve(_, span):
        low, high = span
        middle = (low + high) >> 1
        above = (low < high) & (words >= looked_up(edges, jnp.minimum(middle, size - 1)))
        return jnp.where(above, middle + 1, low), jnp.where(above, high, middle)

    span = aligned((jnp.zeros_like(words, jnp.int32), jnp.full_like(words, size, jnp.int32)), edges)
    return lax.fori_loop(0, size.bit_length(), halve, span)[0]


def _one_by_one(stream, left, behind, cells, edges, rest, rest_following):
    """Draws all that is left. The inner loops are common to a batch, the outer one is run again for stragglers."""
    width, size = cells.shape[1], edges.shape[0]
    followed = cells.size > size
    block = min(max(size // 8, 32), 1024)
    position = jnp.arange(block, dtype=left.dtype)

    def words(turn):
        return stream.pair(position, (1 << 30) + turn)[0]  # sites that no round reaches

    def put(flat, cell, wanted):
        return flat.at[jnp.where(wanted, cell, flat.shape[0])].add(1, mode="drop")

    def draw(_, state):
        turn, left, behind, flat = state
        cell = find(edges, words(turn))
        take = (cell < size) & (position < left)
        counts = jnp.sum(jnp.stack([take, take & (cell >= size - width)]), axis=1, dtype=left.dtype)
        behind = behind + counts[1] if followed else behind
        return turn + 1, left - counts[0], behind, put(flat, cell, take)

    def follow(_, state):
        turn, left, behind, flat = state
        cell = size + scaled_word(words(turn), jnp.uint32(width)).astype(jnp.int32)
        return turn + 1, left, jnp.maximum(behind - block, 0), put(flat, cell, position < behind)

    def turns(number):
        return 1 + (number / block).astype(jnp.int32)

    def body(state):
        state = repeat(turns(rest), draw, state)
        return repeat(turns(rest_following), follow, state) if followed else state

    state = stream.zero, left, behind, cells.ravel()
    state = lax.while_loop(lambda state: (state[1] > 0) | (state[2] > 0), body, state)
    return state[3].reshape(cells.shape)
