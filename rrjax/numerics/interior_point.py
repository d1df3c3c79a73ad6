"""A step of an interior point on weights that are positive and add up: what likeliest mixtures are found with.

Maximizes a concave f over θ ≥ 0 with Σ θ = 1 and perhaps other equations. At the maximum a multiplier λ leaves slacks
s = λ − ∇f ≥ 0 with θ∘s = 0. Newton's method is made on θ∘s = β, in the relative change y = Δθ/θ:

    (Θ H Θ + diag(θ∘s))·y = β + θ∘∇f − λ·θ,    H = −∇²f,    Θ = diag(θ),

and Mehrotra's predictor and corrector choose β, which goes to zero. The system keeps its scale where θ does not: a
factorization by Cholesky is as accurate whatever the scale of its rows.

References:
    Mehrotra, "On the Implementation of a Primal–Dual Interior Point Method", SIAM J. Optimization 2, 1992.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.numerics.sharding import one_by_one

_NEARLY = 0.99
"""Of the way to where a weight would vanish."""


def interior_step(
    theta: Float[Array, " M"],
    slack: Float[Array, " M"],
    towards: Callable[[Float[Array, " M"]], tuple[Float[Array, " M"], Array]],
    goal: Float[Array, ""],
) -> tuple[Float[Array, " M"], Float[Array, " M"], Array, Float[Array, ""]]:
    """Makes a predictor and a corrector step."""
    y, _ = towards(jnp.zeros_like(theta))
    change = -slack - slack * y
    far, near = _length(y), _length(change / slack)
    now = jnp.mean(slack)
    then = jnp.mean((1 + far * y) * (slack + near * change))
    bend = jnp.maximum((then / now) ** 3 * now, goal) - y * change
    y, multiplier = towards(bend)
    change = bend - slack - slack * y
    far, near = (jnp.minimum(1, _NEARLY * length) for length in (_length(y), _length(change / slack)))
    return theta * (1 + far * y), (slack + near * change) * (1 + far * y), multiplier, near


def _length(change):
    """How far a relative change can go before anything vanishes, at most all the way."""
    return jnp.minimum(1, 1 / jnp.maximum(jnp.max(-change), 1))


@one_by_one
def factored(matrix: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Cholesky's factor of a matrix."""
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


@one_by_one
def solved(factor: Float[Array, "M M"], right: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """Solves the system whose factor that is."""
    half = lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)
    return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
