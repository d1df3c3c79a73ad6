"""Newton's method for likelihoods with something hidden, damped towards the steps of EM where it does not gain.

The information that reports give is what the hidden values would give, less what the reports leave open. The first, the
complete information, is always positive, and a step by it is EM's, which gains; a step by the difference, the observed
information, is Newton's, which is quick near the maximum and may lead anywhere far from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.numerics.interior_point import factored, solved
from rrjax.numerics.newton import judged
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum

_BLOCK = 4096
"""Users whose information is added up at a time."""


class View(NamedTuple):
    """What there is to see at some parameters `[P]`.

    Attributes:
        log_probabilities: `[N]`, of each user's reports, each times the weight.
        log_prior: Scalar.
        slope: `[P]`, of the sum of all these.
        observed: `[P, P]`, information.
        complete: `[P, P]`, what it would be were the values known.
    """

    log_probabilities: Float[Array, " N"]
    log_prior: Float[Array, ""]
    slope: Float[Array, " P"]
    observed: Float[Array, "P P"]
    complete: Float[Array, "P P"]


class State(NamedTuple):
    """Where the iteration is: parameters `[P]`; damping 0 is Newton's step, 1 is EM's, above it is shorter.

    The gap is half of Newton's decrement, nats of all reports.
    """

    parameters: Float[Array, " P"]
    view: View
    damping: Float[Array, ""]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]


def ascended(
    look: Callable[[Float[Array, " P"]], View], start: Float[Array, " P"], tol: Float[Array, ""], max_iters: int
) -> State:
    """Climbs to a maximum."""

    def step(state):
        view, damping = state.view, state.damping
        mixed = (1 - damping) * view.observed + damping * view.complete
        system = jnp.where(damping < 1, mixed, damping * view.complete)
        change = solved(factored(system), view.slope[:, None])[:, 0]
        gap = view.slope @ change / 2
        moved = state.parameters + jnp.where(jnp.all(jnp.isfinite(change)), change, 0)
        there = look(moved)
        # User by user: the difference of two sums would have lost the digits that count near the maximum.
        gain = accurate_sum(there.log_probabilities - view.log_probabilities) + (there.log_prior - view.log_prior)
        seen = judged(change, gap, gain, damping, tol)
        moved, view = jax.tree.map(
            lambda new, old: jnp.where(seen.better, new, old), (moved, there), (state.parameters, view)
        )
        return State(moved, view, seen.damping, seen.gap, state.num_iters + 1, seen.converged)

    zero = jnp.zeros((), start.dtype)
    state = State(start, look(start), zero, zero + jnp.inf, jnp.int32(0), jnp.asarray(False))
    return lax.while_loop(lambda state: ~state.converged & (state.num_iters < max_iters), step, aligned(state))


def blocks_of(data: Any) -> Any:
    """Rows in blocks, the last one filled up with zeros: users whose weight is zero."""
    number = jax.tree.leaves(data)[0].shape[0]
    block = min(number, _BLOCK)

    def cut(leaf):
        padded = jnp.pad(leaf, ((0, -number % block), *((0, 0),) * (leaf.ndim - 1)))
        return padded.reshape(-1, block, *leaf.shape[1:])

    return jax.tree.map(cut, data)


def added_up(function: Callable[[Any], tuple[Any, Any]], blocks: Any, *others: Any) -> tuple[Any, Any]:
    """Of a function of a block that returns sums and rows: the sums of all, and all rows."""
    first = jax.tree.map(lambda leaf: leaf[0], blocks)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, first)[0])

    def one(total, block):
        sums, rows = function(block)
        return jax.tree.map(jnp.add, total, sums), rows

    total, rows = lax.scan(one, aligned(zeros, blocks, others), blocks)
    return total, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
