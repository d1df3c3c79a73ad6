"""One multinomial vector in O(length), whatever the number of trials."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt

from rrjax.placement import aligned, looked_up, repeat
from rrjax.sampling.poisson import RANGE, poisson
from rrjax.sampling.words import Stream

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
    probabilities: Float[Array, " n"],
    *,
    expected: Float[Array, ""] | None = None,
    followers: int = 0,
) -> tuple[Int[Array, " n"], Int[Array, " followers"]]:
    """Draws a multinomial vector, and for the trials in its last cells a uniform one.

    Independent Poisson cells, given their total, are multinomial. So cells with a total just short of `trials` are
    drawn, then again with a total just short of what is left, as long as there is enough, and the rest one by one. A
    round is taken or dropped, and all rounds are repeated, by totals alone, which keeps the law exact.

    Args:
        stream: Random words, not used for anything else.
        trials: Scalar, int32, not negative.
        probabilities: `[n]`, not negative, summing to one.
        expected: Where `trials` is itself binomial, its expectation. It settles the number of the rounds and which code
            they run, so that these are common to a batch in which `trials` differs.
        followers: Static. Each trial that falls into one of so many last cells also falls into one of so many
            further cells, with equal chances: a user who does not keep the value reports any.

    Returns:
        `[n]` and `[followers]`, int32. The first sums to `trials` exactly, the second to the sum of the last cells.
        What is drawn one by one (all, where trials are fewer than an eighth of the cells) has probabilities rounded to
        multiples of 2⁻³².
    """
    size, dtype = probabilities.shape[0], probabilities.dtype
    stream, trials, probabilities, expected = aligned((stream, trials, probabilities, expected))
    base = trials.astype(dtype) if expected is None else expected
    followed = jnp.sum(probabilities[size - followers :]) if followers else jnp.zeros((), dtype)
    first = _short(base)
    # How many follow is as uncertain again as the Poisson total.
    first_following = jnp.maximum(followed * first - _ROOM * jnp.sqrt(2 * followed * first), 0)
    waiting, waiting_following = _plan(base, first, first_following, followed)
    rounds = jnp.sum(waiting[:-1] > max(size / 8, _FEW), dtype=jnp.int32)
    law = jnp.concatenate([probabilities, jnp.full(followers, 1 / max(followers, 1), dtype)])

    def rates(turn, index, left, behind):
        """The means of a round, of trials and of those who follow, and what they are at most in a batch."""
        start = index == 0
        most = jnp.where(start, base, 2 * waiting[index])
        most_following = jnp.where(start, first_following, 2 * waiting_following[index])
        mean = _within(_short(left.astype(dtype)), most)
        following = _within(_short(behind.astype(dtype)), most_following)
        # Of those who follow in the first round nobody waits yet.
        return (mean, jnp.where(turn == 0, first_following, following)), (most, most_following)

    def over_law(each):
        one, other = each
        return law * jnp.where(jnp.arange(size + followers) < size, one, other)

    def draw_round(index, state):
        turn, left, cells, behind, following = state
        means, most = rates(turn, index, left, behind)
        drawn = poisson(stream, turn << _SITE_BITS, over_law(means), over_law(most))
        left, added = _taken(left, drawn[:size])
        behind = behind + jnp.sum(added[size - followers :], dtype=jnp.int32)
        behind, added_following = _taken(behind, drawn[size:])
        return turn + 1, left, cells + added, behind, following + added_following

    def unfinished(state):
        turn, left, _, behind, _ = state
        # Where a first round did not fit, all is done again, because one by one millions take seconds.
        few = 4 * size + 1024
        again = (first > few) & (2 * left.astype(dtype) >= first)
        again_following = (first_following > few) & (2 * behind.astype(dtype) >= first_following)
        return (rounds > 0) & ((turn == 0) | again | again_following)

    nothing = jnp.zeros(size, jnp.int32), jnp.int32(0), jnp.zeros(followers, jnp.int32)
    state = aligned((jnp.int32(0), trials, *nothing), probabilities)
    _, *state = lax.while_loop(unfinished, lambda state: repeat(rounds, draw_round, state), state)
    # What the rounds are expected to leave, generously; it only decides how often the loops below look up.
    rest, rest_following = (jnp.minimum(1.5 * each[rounds], base) for each in (waiting, waiting_following))
    rest_following = jnp.where(rounds > 0, rest_following, followed * base)
    return _one_by_one(stream, state, edges(probabilities), rest, rest_following)


def _short(number):
    """What Poisson cells may have in the mean, so that their total is hardly ever above a number."""
    return jnp.maximum(number - _ROOM * jnp.sqrt(number), 0)


def _within(mean, most):
    """A mean that is at most what a batch has in common, and zero where it is much less."""
    mean = jnp.minimum(mean, most)
    return jnp.where(mean * RANGE >= most, mean, 0)


def _plan(base, first, first_following, followed):
    """How many trials, and how many who follow, are expected to wait before each round, and after the last."""
    trials, following = [base], [followed * 0]
    for index in range(_MOST_ROUNDS):
        late = following[-1] if index else followed * first - first_following
        following.append(_ROOM * jnp.sqrt(late) + followed * trials[-1] if index else late)
        trials.append(_ROOM * jnp.sqrt(trials[-1]))
    return jnp.stack(trials), jnp.stack(following)


def _taken(left, drawn):
    """Takes a round if it fits: what is left then, and what is added."""
    total = jnp.sum(drawn, dtype=jnp.int32)
    fits = (total >= 0) & (total <= left)  # a sum past 2³¹ is negative
    return left - jnp.where(fits, total, 0), jnp.where(fits, drawn, 0)


class Edges(NamedTuple):
    """Cumulative probabilities as integers, and where to start looking."""

    upper: UInt[Array, " n"]
    start: Int[Array, " buckets"]
    shift: int
    halvings: Int[Array, ""]
    """How often the largest bucket must be halved."""


def edges(probabilities: Float[Array, " n"]) -> Edges:
    """Prepares draws of single cells, from probabilities that nearly sum to one."""
    size = probabilities.shape[0]
    # A sum of integers, exact but for the rounding of its terms: the edges must not wrap.
    halves = jnp.sum(jnp.round(probabilities * 2.0**31).astype(jnp.uint32), dtype=jnp.uint32)
    # So much less than 2³² is shared out that rounding cannot exceed it; words beyond the last edge find no cell.
    scale = (2.0**32 - (2 * size + 2.0**14)) / (halves.astype(probabilities.dtype) * 2.0**-31)
    upper = jnp.cumsum(jnp.round(probabilities * scale).astype(jnp.uint32))
    shift = 32 - max(size - 1, 1).bit_length()
    ends = (
        aligned(jnp.zeros((1 << (32 - shift)) + 1, jnp.int32), probabilities)
        .at[(upper >> shift) + 1]
        .add(1, mode="drop")
    )
    start = jnp.cumsum(ends)  # the cells that end before a bucket
    return Edges(upper, start, shift, 32 - lax.clz(jnp.max(ends)))


def find(edges: Edges, words: UInt[Array, " m"]) -> Int[Array, " m"]:
    """The cell of each word; the number of cells where a word is beyond all."""
    bucket = (words >> edges.shift).astype(jnp.int32)
    low = looked_up(edges.start, bucket)
    high = looked_up(edges.start, bucket + 1)
    last = edges.upper.shape[0] - 1

    def halve(_, span):
        low, high = span
        middle = (low + high) >> 1
        above = (low < high) & (words >= looked_up(edges.upper, jnp.minimum(middle, last)))
        return jnp.where(above, middle + 1, low), jnp.where(above, high, middle)

    return repeat(edges.halvings, halve, (low, high))[0]


def _one_by_one(stream, state, edges, rest, rest_following):
    """Draws all that is left. The inner loops are common to a batch, the outer one is run again for stragglers."""
    size, followers = state[1].shape[0], state[3].shape[0]
    half = min(max(size // 16, 16), 512)
    position = jnp.arange(2 * half, dtype=jnp.int32)

    def words(turn):
        return jnp.concatenate(stream.pair(position[:half], (1 << 30) + turn))  # sites that no round reaches

    def draw(_, state):
        turn, left, cells, behind, following = state
        cell = find(edges, words(turn))
        take = (cell < size) & (position < left)
        cells = cells.at[jnp.where(take, cell, size)].add(1, mode="drop")
        left = left - jnp.sum(take, dtype=jnp.int32)
        behind = behind + jnp.sum(take & (cell >= size - followers), dtype=jnp.int32)
        return turn + 1, left, cells, behind, following

    def follow(_, state):
        turn, left, cells, behind, following = state
        cell = jnp.where(position < behind, _scaled(words(turn), followers), followers)
        following = following.at[cell].add(1, mode="drop")
        return turn + 1, left, cells, jnp.maximum(behind - 2 * half, 0), following

    def turns(number):
        return 1 + (number / (2 * half)).astype(jnp.int32)

    def body(state):
        state = repeat(turns(rest), draw, state)
        return repeat(turns(rest_following), follow, state) if followers else state

    state = lax.while_loop(lambda state: (state[1] > 0) | (state[3] > 0), body, aligned((jnp.int32(0), *state)))
    return state[2], state[4]


def _scaled(words, number):
    """⌊word · number / 2³²⌋ for a number below 2³¹, in halves of words."""
    low, high = jnp.uint32(number & 0xFFFF), jnp.uint32(number >> 16)
    word_low, word_high = words & jnp.uint32(0xFFFF), words >> 16
    middle = word_high * low + ((word_low * low) >> 16)
    carry = ((middle & jnp.uint32(0xFFFF)) + word_low * high) >> 16
    return (word_high * high + (middle >> 16) + carry).astype(jnp.int32)
