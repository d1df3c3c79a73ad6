"""Newton's method, damped where it does not gain, for functions of a few numbers, and the derivatives of where it ends.

What is maximized depends on something given (counts, ε, a budget); where the slope in the point stays zero, the point
moves by H⁻¹·(∂slope/∂given), H the curvature: that is its derivative, in both modes, with no step differentiated.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.numerics.interior_point import factored, solved
from rrjax.numerics.sharding import aligned


class Problem(Protocol):
    """What is maximized. Hashable, and equal where it is the same: programs are compiled by it."""

    def value(self, point: Float[Array, " P"], given: Any) -> Float[Array, ""]:
        """What is to be large."""
        ...

    def gain(self, new: Float[Array, " P"], old: Float[Array, " P"], given: Any) -> Float[Array, ""]:
        """By how much the first has more, as accurately as is known."""
        ...


class Ascent(NamedTuple):
    """Where the iteration is.

    Attributes:
        point: `[P]`.
        curvature: `[P, P]`, the Hessian with its sign changed, where the last step began.
        damping: Scalar: the share of its diagonal that the curvature is raised by; zero is Newton's step.
        gap: Scalar: half of Newton's decrement, what the maximum has more, as far as it is quadratic.
        num_iters: Scalar.
        converged: Scalar.
    """

    point: Float[Array, " P"]
    curvature: Float[Array, "P P"]
    damping: Float[Array, ""]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]


class Verdict(NamedTuple):
    """What is made of a step that was tried: whether it is taken, and how the next one is damped."""

    better: Bool[Array, ""]
    damping: Float[Array, ""]
    gap: Float[Array, ""]
    converged: Bool[Array, ""]


def judged(
    change: Float[Array, " P"],
    gap: Float[Array, ""],
    gained: Float[Array, ""],
    damping: Float[Array, ""],
    tol: Float[Array, ""],
) -> Verdict:
    """Takes a step that gains, or that is so near the maximum that rounding hides whether it does."""
    usable = jnp.all(jnp.isfinite(change)) & (gap >= 0)
    better = usable & jnp.isfinite(gained) & ((gained > 0) | (gap <= tol))
    less = jnp.where(damping < 0.01, 0, damping / 8)
    return Verdict(
        better,
        jnp.where(better, less, jnp.maximum(8 * damping, 1 / 64)),
        jnp.where(usable, gap, jnp.inf),
        better & (damping == 0) & (gap <= tol),
    )


def ascend(problem: Problem, start: Float[Array, " P"], given: Any, tol: Float[Array, ""], max_iters: int) -> Ascent:
    """Maximizes."""
    state = _ascended(problem, *lax.stop_gradient((start, given)), tol, max_iters)
    return state._replace(point=_at_maximum(problem, state.point, state.curvature, given))


@partial(jax.jit, static_argnums=(0, 4))
def _ascended(problem, start, given, tol, max_iters):
    def sloped(point):
        slope = jax.grad(problem.value)(point, given)
        return slope, slope

    def step(state):
        # Here and nowhere else, because second derivatives take long to compile.
        bend, slope = jax.jacfwd(sloped, has_aux=True)(state.point)
        curvature = -bend
        size = jnp.abs(jnp.diagonal(curvature))
        # On a plateau there is no curvature, and the damping needs some scale: of steps no longer than a thousand.
        size = jnp.maximum(size, 1e-3 * jnp.abs(slope))
        change = solved(factored(curvature + jnp.diag(state.damping * size)), slope[:, None])[:, 0]
        gap = slope @ change / 2
        point = state.point + jnp.where(jnp.all(jnp.isfinite(change)), change, 0)
        seen = judged(change, gap, problem.gain(point, state.point, given), state.damping, tol)
        point = jnp.where(seen.better, point, state.point)
        return Ascent(point, curvature, seen.damping, seen.gap, state.num_iters + 1, seen.converged)

    zero = jnp.zeros((), start.dtype)
    nothing = jnp.zeros((start.size, start.size), start.dtype)
    state = Ascent(start, nothing, zero, zero + jnp.inf, jnp.int32(0), jnp.asarray(False))
    return lax.while_loop(
        lambda state: ~state.converged & (state.num_iters < max_iters), step, aligned(state, start, given)
    )


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _at_maximum(problem, point, curvature, given):
    del problem, curvature, given
    return point


@_at_maximum.defjvp
def _at_maximum_jvp(problem, primals, tangents):
    point, curvature, given = primals
    _, change = jax.jvp(lambda given: jax.grad(problem.value)(point, given), (given,), tangents[2:])
    factor = factored(curvature)
    moved = lax.custom_linear_solve(
        lambda y: curvature @ y, change, lambda _, right: solved(factor, right[:, None])[:, 0], symmetric=True
    )
    return point, moved
