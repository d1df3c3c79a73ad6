"""Least squares with shares of at least zero, by accelerated projected gradients."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned


@exportable
class Regression(NamedTuple):
    """Shares of candidates by least squares.

    Attributes:
        theta: `[K]`, not negative. Their sum is below one if some users' values are no candidates.
        violation: Scalar: largest violation of the conditions of the minimum, in shares of users.
    """

    theta: Float[Array, " K"]
    violation: Float[Array, ""]


def least_squares(gram: Float[Array, "K K"], target: Float[Array, " K"], num_steps: int) -> Regression:
    """Minimizes θᵀGθ/2 − bᵀθ over θ ≥ 0.

    References:
        Nesterov, "A method for solving the convex programming problem with convergence rate O(1/k²)", 1983; O'Donoghue
        and Candès, "Adaptive restart for accelerated gradient schemes", 2015.
    """
    rate = 1 / jnp.max(jnp.sum(gram, axis=1))  # no entry is negative: row sums bound the largest eigenvalue

    def step(theta):
        return jnp.maximum(theta - rate * (matmul(gram, theta) - target), 0)

    def accelerated(_, state):
        theta, extrapolated, momentum = state
        new = step(extrapolated)
        # A restart where the momentum points uphill.
        momentum = jnp.where(jnp.sum((extrapolated - new) * (new - theta)) > 0, 1, momentum)
        next_momentum = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
        return new, new + (momentum - 1) / next_momentum * (new - theta), next_momentum

    start = jnp.zeros_like(target)
    state = aligned((start, start, jnp.ones((), target.dtype)), gram, target)
    theta, _, _ = lax.fori_loop(0, num_steps, accelerated, state)
    return Regression(theta, jnp.max(jnp.abs(theta - step(theta))))
