"""Multinomial vectors by halving: the number of trials in one half of the cells is binomial, and so on in each half.

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
from jaxtyping import Array, Float, Int

from rrjax.numerics.sharding import aligned, by_platform, is_explicit, looked_up, repeat
from rrjax.simulate.sampling.independent import rare_binomial
from rrjax.simulate.sampling.streams import Stream

BLOCK = 128
"""Number of lanes that are drawn together on a CPU."""


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
        found = []
        for half in reversed(self.halves):
            first, second = law[:half], jnp.pad(law[half:], (0, 2 * half - law.shape[0]))
            law = first + second
            # Of each half by itself: one minus a share near one has lost its digits.
            share = jnp.minimum(first, second) / jnp.where(law > 0, law, 1)
            found.append(jnp.where(first <= second, share, -share))
        return jnp.concatenate(aligned([*reversed(found), jnp.zeros(self.size, law.dtype)]))


def multinomial_by_halving(
    stream: Stream, trials: Int[Array, ""], probabilities: Float[Array, "r n"], *, followed: bool = False
) -> Int[Array, "s n"]:
    """Draws as `multinomial`: the trials by one tree, and those who follow the last row by another one."""
    rows, width = probabilities.shape
    trees = [_Tree(0, rows * width)]
    laws = [lax.stop_gradient(probabilities).ravel()]
    if followed:
        trees.append(_Tree(trees[0].leaves.stop, width))
        laws.append(aligned(jnp.ones_like(laws[0][:width]), laws[0]))
    shares = jnp.concatenate([tree.shares(law) for tree, law in zip(trees, laws, strict=True)])
    drawn = _batched(trees)(*aligned((stream.first[None], stream.second[None], trials[None], shares[None])))
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
        place, half = looked_up(levels, level)
        parents, number = place * examples, half * examples

        def draw_block(turn, cells):
            begin = turn * block
            within = begin + lane
            there = within < number
            whole = jnp.where(there, part(cells, parents + begin), 0)
            share = part(shares, parents + begin)
            example = within % examples
            own = Stream(looked_up(stream.first, example), looked_up(stream.second, example))
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

    cells = repeat(jnp.int32(len(trees)), draw_tree, aligned(cells, (stream, trials, shares)))
    return (
        jnp.concatenate([cells[tree.leaves.start * examples : tree.leaves.stop * examples] for tree in trees])
        .reshape(-1, examples)
        .T
    )
