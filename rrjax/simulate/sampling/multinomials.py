"""Integer vectors with a given sum, in O(length): multinomial, multivariate hypergeometric, contingency tables.

**Halving**: the number of trials in one half of the cells is binomial, and so on in each half.
A vector of n cells takes n − 1 binomial draws, where a Poisson round takes n draws and leaves trials for the next
round.

Batches are flattened: the draws of one level in all examples are lanes, and a loop takes a block of lanes in turn. Code
for small and for large expectations runs only if a lane of the block needs it; JAX's own batch of one vector's code
would run both for all.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, UInt

from rrjax.numerics.sharding import by_platform, is_explicit, repeat, take_at, with_sharding_of
from rrjax.numerics.solvers import first_place
from rrjax.numerics.threefry import scaled_word
from rrjax.simulate.sampling.streams import MAX_RATE_RATIO, Stream, binomial, poisson, rare_binomial

FEW_CATEGORIES = 1024
"""Largest number of categories for which trials are drawn by halving. At 1,000 categories that takes twice the time of
rounds for 1,000 trials, and 0.6 times for 10⁹; code for both would take twice the time to compile."""
BLOCK = 128
"""Number of lanes that are drawn together on a CPU."""
DEVIATIONS = 4.0
"""Standard deviations from the mean total of a round to its limit, which is exceeded with probability 3e-5."""
MIN_TRIALS_OF_ROUND = 64
"""Number of trials below which trials are drawn one by one, for any number of cells."""
MAX_ROUNDS = 6
"""Number of rounds. Each leaves 4√n of n trials: six leave fewer than 64 of 2⁶³."""
SITE_BITS = 12
"""A round has 2¹² sites: far more than the turns of rejection."""
ROUND_BITS = 10
"""A hypergeometric vector has 2¹⁰ rounds: each leaves the square root, and a single item with probability ½."""


def multinomial(
    stream: Stream,
    trials: Int[Array, ""],
    probabilities: Float[Array, "r n"],
    *,
    expected: Float[Array, ""] | None = None,
    followed: bool = False,
) -> Int[Array, "s n"]:
    """Draws a multinomial vector `[r, n]`, and where `followed` (static) a uniform row for the trials in its last row.

    The r rows sum to `trials` exactly, a further row to the sum of the row before: for users who do not keep their
    value and report any. `stream` is used for nothing else. If `trials` is itself binomial, `expected` is its
    expectation, which is common to a batch with different `trials`.
    """
    if probabilities.shape[1] <= FEW_CATEGORIES:
        return multinomial_by_halving(stream, trials, probabilities, followed=followed)
    return multinomial_in_rounds(stream, trials, probabilities, expected=expected, followed=followed)


def multinomial_in_rounds(
    stream: Stream,
    trials: Int[Array, ""],
    probabilities: Float[Array, "r n"],
    *,
    expected: Float[Array, ""] | None = None,
    followed: bool = False,
) -> Int[Array, "s n"]:
    """Draws as `multinomial`, all cells at a time.

    Independent Poisson cells, given their total, are multinomial. So cells with a total just below `trials` are drawn,
    then again with a total just below the number of trials left, while these are many, and the last ones one by one.
    Only totals decide whether a round is kept or rounds are repeated, which keeps the law exact.

    The expected number of trials decides the number of rounds and the code they run, so that these are common to a
    batch. Trials drawn one by one (all, if they are fewer than an eighth of the cells) have probabilities rounded to
    multiples of 2⁻³².
    """
    num_rows, width = probabilities.shape
    dtype, whole = probabilities.dtype, trials.dtype
    stream, trials, probabilities, expected = with_sharding_of((stream, trials, probabilities, expected))
    base = trials.astype(dtype) if expected is None else expected
    share = jnp.sum(probabilities[-1]) if followed else jnp.zeros((), dtype)
    first_following, waiting, waiting_following = _plan(base, share)
    rounds = jnp.sum(waiting[:-1] > max(num_rows * width / 8, MIN_TRIALS_OF_ROUND), dtype=jnp.int32)
    law = probabilities if not followed else jnp.pad(probabilities, ((0, 1), (0, 0)), constant_values=1 / width)

    def over_law(mean, mean_following):
        return (law * jnp.where(jnp.arange(law.shape[0]) < num_rows, mean, mean_following)[:, None]).ravel()

    def draw_round(index, state):
        turn, left, behind, cells = state
        # The means of this round, and their largest values in a batch.
        largest = jnp.where(index == 0, base, 2 * waiting[index])
        largest_following = jnp.where(index == 0, first_following, 2 * waiting_following[index])
        mean = _within(_mean_below(left.astype(dtype)), largest)
        following = _within(_mean_below(behind.astype(dtype)), largest_following)
        # In the first round no trials wait to follow.
        following = jnp.where(turn == 0, first_following, following)
        rates = over_law(mean, following), over_law(largest, largest_following)
        drawn = poisson(stream, turn << SITE_BITS, *rates, dtype=whole).reshape(law.shape)
        # A round is kept if it fits; a sum past the largest integer is negative.
        totals = jnp.sum(drawn, axis=1, dtype=whole)
        total = jnp.sum(totals[:num_rows], dtype=whole)
        fits = (total >= 0) & (total <= left)
        left = left - jnp.where(fits, total, 0)
        kept = jnp.full(num_rows, fits)
        if followed:
            behind = behind + jnp.where(fits, totals[num_rows - 1], 0)
            follows = totals[num_rows] <= behind
            behind = behind - jnp.where(follows, totals[num_rows], 0)
            kept = jnp.append(kept, follows)
        return turn + 1, left, behind, cells + jnp.where(kept[:, None], drawn, 0)

    def unfinished(state):
        turn, left, behind, _ = state
        # If a round did not fit, all rounds are repeated: one by one, millions of trials take seconds.
        many = 4 * law.size + 1024
        return (rounds > 0) & ((turn == 0) | (left > many) | (behind > many))

    zero = stream.zero.astype(whole)
    state = with_sharding_of((stream.zero, zero + trials, zero, zero + jnp.zeros(law.shape, whole)), probabilities)
    state = lax.while_loop(unfinished, lambda state: repeat(rounds, draw_round, state), state)
    # Upper estimates of the trials and followers that rounds leave: they only determine the number of draws of the
    # inner loops.
    num_left, num_following = (jnp.minimum(1.5 * each[rounds], base) for each in (waiting, waiting_following))
    num_following = jnp.where(rounds > 0, num_following, share * base)
    return _one_by_one(stream, state[1:], edges(probabilities.ravel()), num_left, num_following)


def _plan(base, share):
    """The mean number of followers in a first round; numbers of trials, and of followers, that wait for each round."""
    followed = share * _mean_below(base)
    # The number of followers varies by its own Poisson law and by that of the trials.
    first_following = jnp.maximum(followed - DEVIATIONS * jnp.sqrt(2 * followed), 0)
    trials, following = [base], [jnp.zeros_like(base), followed - first_following]
    for _ in range(MAX_ROUNDS):
        trials.append(DEVIATIONS * jnp.sqrt(trials[-1]))
        following.append(DEVIATIONS * jnp.sqrt(following[-1]) + share * trials[-1])
    # Added to each, so that all are a batch if one is: arrays must have one sharding to be stacked.
    zero = 0 * base + 0 * share
    return first_following, *(jnp.stack([each + zero for each in kind]) for kind in (trials, following[:-1]))


def _mean_below(number):
    """The mean of Poisson cells whose total almost never exceeds a number."""
    return jnp.maximum(number - DEVIATIONS * jnp.sqrt(number), 0)


def _within(mean, largest):
    """A mean that is at most the largest of a batch, and zero if it is much less."""
    mean = jnp.minimum(mean, largest)
    return jnp.where(mean * MAX_RATE_RATIO >= largest, mean, 0)


def edges(probabilities: Float[Array, " n"]) -> UInt[Array, " n"]:
    """Cumulative probabilities as integers, from probabilities that nearly sum to one."""
    size = probabilities.shape[0]
    # A sum of integers, exact but for the rounding of its terms: the edges must not wrap.
    halves = jnp.sum(jnp.round(probabilities * 2.0**31).astype(jnp.uint32), dtype=jnp.uint32)
    # Their sum is less than 2³² by more than rounding; words beyond the last edge have no cell.
    scale = (2.0**32 - (2 * size + 2.0**14)) / (halves.astype(probabilities.dtype) * 2.0**-31)
    shares = jnp.round(probabilities * scale).astype(jnp.uint32)
    zeros = with_sharding_of(jnp.zeros_like(shares), shares)

    def add(turn, sums):
        # Not `jnp.cumsum`: for one vector this is as fast, and a tenth of the program.
        return sums + lax.dynamic_slice(jnp.concatenate([zeros, sums]), (size - (1 << turn),), (size,))

    return lax.fori_loop(0, (size - 1).bit_length(), add, shares)


def find_cells(edges: UInt[Array, " n"], words: UInt[Array, " m"]) -> Int[Array, " m"]:
    """The cell of each word; n for words beyond the last edge."""
    size = edges.shape[0]

    def is_before(place):
        return words >= take_at(edges, jnp.minimum(place, size - 1))

    return first_place(is_before, with_sharding_of(jnp.zeros_like(words, jnp.int32), edges), size)


def _one_by_one(stream, state, edges, num_left, num_following):
    """Draws all trials that are left. The inner loops are common to a batch, the outer one is repeated if necessary."""
    left, behind, cells = state
    width, size = cells.shape[1], edges.shape[0]
    followed = cells.size > size
    block = min(max(size // 8, 32), 1024)
    position = jnp.arange(block, dtype=left.dtype)

    def words(turn):
        return stream.pair(position, (1 << 30) + turn)[0]  # sites beyond those of the rounds

    def put(flat, cell, wanted):
        return flat.at[jnp.where(wanted, cell, flat.shape[0])].add(1, mode="drop")

    def draw(_, state):
        turn, left, behind, flat = state
        cell = find_cells(edges, words(turn))
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
        state = repeat(turns(num_left), draw, state)
        return repeat(turns(num_following), follow, state) if followed else state

    state = stream.zero, left, behind, cells.ravel()
    state = lax.while_loop(lambda state: (state[1] > 0) | (state[2] > 0), body, state)
    return state[3].reshape(cells.shape)


class _Tree(NamedTuple):
    """A tree in the cells from `root` on: the root, then level by level, to the leaves.

    The cell j of a level is the sum of the cells j and j + h of the next level; the last one may be alone.
    """

    root: int
    size: int
    """Number of leaves."""

    @property
    def halves(self) -> list[int]:
        """The number of cells of each level above the leaves, h."""
        halves = [-(-self.size // 2)]
        while halves[-1] > 1:
            halves.append(-(-halves[-1] // 2))
        return halves[::-1]

    @property
    def levels(self) -> np.ndarray:
        """For each level above the leaves, where it begins, and h: `[L, 2]`."""
        halves = np.array(self.halves, np.int32)
        return np.stack([self.root + np.cumsum(halves, dtype=np.int32) - halves, halves], axis=1)

    @property
    def leaves(self) -> slice:
        """The places of the leaves."""
        start = self.root + sum(self.halves)
        return slice(start, start + self.size)

    def shares(self, law: Float[Array, " n"]) -> Float[Array, " m"]:
        """The smaller half's share of each cell above the leaves; negative if it is the second half's."""
        shares = []
        for half in reversed(self.halves):
            first, second = law[:half], jnp.pad(law[half:], (0, 2 * half - law.shape[0]))
            law = first + second
            # Of each half by itself: one minus a share near one has lost its digits.
            share = jnp.minimum(first, second) / jnp.where(law > 0, law, 1)
            shares.append(jnp.where(first <= second, share, -share))
        return jnp.concatenate(with_sharding_of([*reversed(shares), jnp.zeros(self.size, law.dtype)]))


def multinomial_by_halving(
    stream: Stream, trials: Int[Array, ""], probabilities: Float[Array, "r n"], *, followed: bool = False
) -> Int[Array, "s n"]:
    """Draws as `multinomial`: the trials by one tree, and those who follow the last row by another one."""
    rows, width = probabilities.shape
    trees = [_Tree(0, rows * width)]
    laws = [lax.stop_gradient(probabilities).ravel()]
    if followed:
        trees.append(_Tree(trees[0].leaves.stop, width))
        laws.append(with_sharding_of(jnp.ones_like(laws[0][:width]), laws[0]))
    shares = jnp.concatenate([tree.shares(law) for tree, law in zip(trees, laws, strict=True)])
    drawn = _batched(trees)(*with_sharding_of((stream.first[None], stream.second[None], trials[None], shares[None])))
    return drawn[0].reshape(-1, width)


def _batched(trees):
    """The function of keys `[B]`, `[B]`, trials `[B]` and shares `[1, m]` or `[B, m]` that draws all leaves `[B, s·n]`.

    Under `vmap` its batches become one.
    """

    def plain(first, second, trials, shares):
        def draw(block):
            return _draw(trees, Stream(first, second), trials, shares, block)

        lanes = trials.shape[0] * max(half for tree in trees for half in tree.halves)
        return by_platform(cpu=lambda: draw(min(BLOCK, lanes)), elsewhere=lambda: draw(lanes))

    function = jax.custom_batching.custom_vmap(plain)

    @function.def_vmap
    def _(number, batched, *given):
        if any(map(is_explicit, given)):  # a loop over blocks of lanes cannot be spread over devices
            return jax.vmap(plain, [0 if each else None for each in batched])(*given), True
        *keys_and_trials, shares = given
        examples = keys_and_trials[-1].shape[-1]
        merged = [jnp.broadcast_to(each, (number, examples)).ravel() for each in keys_and_trials]
        if batched[-1] or shares.shape[0] > 1:  # else one law serves all
            cells = shares.shape[-1]
            shares = jnp.broadcast_to(shares, (number, examples, cells)).reshape(number * examples, cells)
        drawn = function(*merged, shares)
        return drawn.reshape(number, examples, -1), True

    return function


def _draw(
    trees: list[_Tree],
    stream: Stream,
    trials: Int[Array, " B"],
    shares: Float[Array, "b m"],
    block: int,
) -> Int[Array, "B l"]:
    """The leaves of B examples, `block` lanes at a time; the examples of one cell are side by side."""
    examples, end = trials.shape[0], trees[-1].leaves.stop
    lane = jnp.arange(block, dtype=jnp.int32)
    levels = jnp.asarray(np.concatenate([tree.levels for tree in trees]))
    depths = [len(tree.halves) for tree in trees]
    # A block may reach beyond the last cell, and a cell that is alone has a second half beyond the last leaf.
    shares = jnp.pad(jnp.broadcast_to(shares.T, (end, examples)).ravel(), (0, block))
    cells = jnp.zeros((end + 1) * examples + block, trials.dtype)

    def part(array, start):
        return lax.dynamic_slice(array, (start,), (block,))

    def draw_level(level, cells):
        place, half = take_at(levels, level)
        parents, number = place * examples, half * examples

        def draw_block(turn, cells):
            begin = turn * block
            within = begin + lane
            there = within < number
            whole = jnp.where(there, part(cells, parents + begin), 0)
            share = part(shares, parents + begin)
            example = within % examples
            own = Stream(take_at(stream.first, example), take_at(stream.second, example))
            rare = rare_binomial(own, place + within // examples, 0, whole, jnp.abs(share))
            first = jnp.where(jnp.signbit(share), whole - rare, rare)
            for start, values in ((parents + number, first), (parents + 2 * number, whole - first)):
                kept = jnp.where(there, values, part(cells, start + begin))
                cells = lax.dynamic_update_slice(cells, kept, (start + begin,))
            return cells

        return repeat((number + block - 1) // block, draw_block, cells)

    def draw_tree(index, cells):
        if len(trees) == 1:
            root, roots = trials, 0
        else:
            # The followers are as many as the trials in the last row.
            stop = trees[0].leaves.stop
            row = cells[(stop - trees[1].size) * examples : stop * examples].reshape(-1, examples)
            root = jnp.where(index == 0, trials, jnp.sum(row, axis=0, dtype=cells.dtype))
            roots = jnp.where(index == 0, 0, stop * examples)
        cells = lax.dynamic_update_slice(cells, root, (roots,))
        first = jnp.where(index == 0, 0, depths[0])
        depth = jnp.where(index == 0, depths[0], depths[-1])
        return repeat(depth, lambda turn, cells: draw_level(first + turn, cells), cells)

    cells = repeat(jnp.int32(len(trees)), draw_tree, with_sharding_of(cells, (stream, trials, shares)))
    return (
        jnp.concatenate([cells[tree.leaves.start * examples : tree.leaves.stop * examples] for tree in trees])
        .reshape(-1, examples)
        .T
    )


def hypergeometric(
    stream: Stream, site: int | Int[Array, ""], items: Int[Array, " n *draws"], number: Int[Array, "*draws"]
) -> Int[Array, " n *draws"]:
    """Draws items of a multiset without replacement: the number of each kind, `[n]`, int32.

    Every item is taken with the same chance, independently. Given their number, they are a uniformly random subset of
    that size. If they are too few, the rest is drawn in the same way from the items not taken; if they are too many,
    the surplus is drawn from those taken. Every round leaves about the square root of the error. There are less than
    2³¹ items in all; 2²² sites follow the first one. A further axis is one of independent draws.
    """

    def draw_round(state):
        turn, drawn, pool, sign, left = state
        size = jnp.sum(pool, axis=0, dtype=jnp.int32).astype(jnp.result_type(float))
        # Any probability gives the right law; this one needs the fewest rounds.
        chance = jnp.minimum(left.astype(size.dtype) / jnp.maximum(size, 1), 1)
        chances = chance if pool.ndim == 1 else jnp.tile(chance, pool.shape[0])
        taken = binomial(stream, site + (turn << SITE_BITS), pool.ravel(), chances).reshape(pool.shape)
        total = jnp.sum(taken, axis=0, dtype=jnp.int32)
        over = total > left
        drawn = drawn + sign * taken
        pool, sign = jnp.where(over, taken, pool - taken), jnp.where(over, -sign, sign)
        return turn + 1, drawn, pool, sign, jnp.abs(left - total)

    state = with_sharding_of((jnp.int32(0), jnp.zeros_like(items), items, jnp.ones_like(number), number), stream)
    return lax.while_loop(lambda state: jnp.any(state[-1] > 0), draw_round, state)[1]


def table(stream: Stream, rows: Int[Array, " m"], columns: Int[Array, " n"]) -> Int[Array, "m n"]:
    """Draws a contingency table with given sums of rows and columns, as if its items were shuffled among the rows.

    There are at most 1024 rows and less than 2³¹ items. `stream` is used for nothing else.
    """

    def draw_row(left, given):
        index, number = given
        drawn = hypergeometric(stream, index << (SITE_BITS + ROUND_BITS), left, number)
        return left - drawn, drawn

    last, drawn = lax.scan(
        draw_row, with_sharding_of(columns, stream, rows), (jnp.arange(rows.shape[0] - 1, dtype=jnp.int32), rows[:-1])
    )
    return jnp.concatenate([drawn, last[None]])
