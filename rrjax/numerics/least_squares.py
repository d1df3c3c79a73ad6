"""Least squares with no negative share, by accelerated projected gradients."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned


@exportable
class Regression(NamedTuple):
    """Shares of candidates by least squares.

    Attributes:
        theta: `[K]`, not negative; less than one in all where words are held that are no candidates.
        violation: Scalar: by how much the conditions of the minimum are missed, in shares of users.
    """

    theta: Float[Array, " K"]
    violation: Float[Array, ""]


def least_squares(gram: Float[Array, "K K"], target: Float[Array, " K"], num_steps: int) -> Regression:
    """Minimizes θᵀGθ/2 − bᵀθ over θ that are not negative.

    References:
        Nesterov, "A method for solving the convex programming problem with convergence rate O(1/k²)", 1983; O'Donoghue
        and Candès, "Adaptive restart for accelerated gradient schemes", 2015.
    """
    rate = 1 / jnp.max(jnp.sum(gram, axis=1))  # at least the largest eigenvalue, as no entry is negative

    def step(theta):
        return jnp.maximum(theta - rate * (jnp.matmul(gram, theta, precision="highest") - target), 0)

    def turn(_, state):
        theta, ahead, pace = state
        after = step(ahead)
        # Begun anew where the momentum points uphill.
        pace = jnp.where(jnp.sum((ahead - after) * (after - theta)) > 0, 1, pace)
        quicker = (1 + jnp.sqrt(1 + 4 * pace**2)) / 2
        return after, after + (pace - 1) / quicker * (after - theta), quicker

    start = jnp.zeros_like(target)
    state = aligned((start, start, jnp.ones((), target.dtype)), gram, target)
    theta, _, _ = lax.fori_loop(0, num_steps, turn, state)
    return Regression(theta, jnp.max(jnp.abs(theta - step(theta))))
