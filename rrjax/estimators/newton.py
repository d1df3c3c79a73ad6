"""Newton's method for the likelihood of a mixture, and the derivatives of where it leads.

An interior point (`interior`) on L(θ) = Σ_u φ_u·log(a_u + (Bθ)_u) over the simplex. Its slope is g = Bᵀ(φ/μ), and
H = Bᵀ diag(φ/μ²) B its curvature: a matrix of K² numbers, diagonal where reports name one category each. It takes some
twenty steps, each a solve with that matrix, where EM on a channel that confuses neighbours takes thousands of products.

The same system has the derivatives of the maximum: where a parameter moves the slope by ġ, the maximum moves by θ∘y
with (Θ H Θ + diag(θ∘s))·y = θ∘(ġ − λ̇) and Σ θ∘y = 0. On the support s = 0; beside it θ = 0, and nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.data.linear_maps import Dense, Lift, Scaling
from rrjax.data.mixture import Reports
from rrjax.numerics.interior_point import factored, interior_step, solved
from rrjax.numerics.sums import accurate_sum

MOST_STEPS = 200
"""That help: where these do not reach a gap, it is beyond what rounding allows."""
_DAMPING = 8
"""Machine epsilons of its own that the diagonal is raised by, so that rounding leaves it positive."""


class Place(NamedTuple):
    """Where the iteration is.

    Attributes:
        theta: `[K]`, positive, with sum one.
        slack: `[K]`, θ∘s.
    """

    theta: Float[Array, " K"]
    slack: Float[Array, " K"]


def newton(start: Float[Array, " K"], reports: Reports) -> tuple[Place, Callable[[Place], Place]]:
    """Prepares the iteration."""
    lift = reports.lift if isinstance(reports.lift, Scaling) else entries(reports.lift, start.dtype)
    level = accurate_sum(start * reports.slopes(start))
    level = jnp.where(level > 0, level, 1)  # reports that say nothing have no slopes
    goal = jnp.finfo(start.dtype).eps / start.shape[0] * level

    def advance(place):
        theta, slack = place
        system = _System.of(theta, slack, reports, lift)
        theta, slack, _, _ = interior_step(theta, slack, system.towards, goal)
        return Place(theta / accurate_sum(theta), slack)

    return Place(start, start * level), advance


def entries(lift: Lift, dtype: jnp.dtype) -> Float[Array, "U K"]:
    """The numbers of a lift."""
    if isinstance(lift, Dense):
        return jnp.asarray(lift.scale, dtype) * lift.matrix.astype(dtype)
    return jax.vmap(lift, out_axes=1)(jnp.eye(lift.shape[1], dtype=dtype))


class _System(NamedTuple):
    """Newton's system, with its constraint eliminated.

    Attributes:
        solve: Solves it for a right side `[K]`.
        plain: `[K]`, the solution for the slopes alone.
        answer: `[K]`, for the constraint.
        theta: `[K]`.
    """

    solve: Callable[[Float[Array, " K"]], Float[Array, " K"]]
    plain: Float[Array, " K"]
    answer: Float[Array, " K"]
    theta: Float[Array, " K"]

    @classmethod
    def of(cls, theta, slack, reports, lift):
        slope = reports.slopes(theta)
        solve = _solver(_curvature(theta, reports, lift), slack)
        # What all slopes have in common moves nothing, and would take the digits of what they have not.
        slope = slope - accurate_sum(theta * slope)
        return cls(solve, solve(theta * slope), solve(theta), theta)

    def towards(self, bend):
        """The relative change, and the multiplier of the sum."""
        change = self.plain + self.solve(bend)
        level = (self.theta @ change - (1 - jnp.sum(self.theta))) / (self.theta @ self.answer)
        return change - level * self.answer, level


def _curvature(theta, reports, lift):
    """Θ H Θ, `[K, K]`; or its diagonal `[K]`, where there is nothing else."""
    root = jnp.sqrt(reports.shares) / reports.probabilities(theta)
    if isinstance(lift, Scaling):
        return jnp.square(root * lift(theta))
    rows = lift * root[:, None] * theta
    return jnp.einsum("ui,uj->ij", rows, rows, precision="highest")


def _solver(curvature, slack):
    """Solves (curvature + diag(slack))·y = x for y."""
    if curvature.ndim == 1:
        return lambda x: x / (curvature + slack)
    raised = slack + _DAMPING * jnp.finfo(slack.dtype).eps * jnp.diagonal(curvature)
    factor = factored(lax.stop_gradient(curvature + jnp.diag(raised)))
    return lambda x: lax.custom_linear_solve(
        lambda y: jnp.einsum("ij,j->i", curvature, y, precision="highest") + slack * y,
        x,
        lambda _, right: solved(factor, right[:, None])[:, 0],
        symmetric=True,
    )


@jax.custom_jvp
def at_maximum(theta: Float[Array, " K"], reports: Reports) -> Float[Array, " K"]:
    """The maximum of the likelihood, with the derivatives that it has in what it is the maximum of."""
    del reports
    return theta


@at_maximum.defjvp
def _at_maximum_jvp(primals, tangents):
    theta = at_maximum(*primals)
    return theta, _motion(theta, primals[1], tangents[1])


@jax.jit
def _motion(theta, reports, moved):
    slope, change = jax.jvp(lambda reports: reports.slopes(theta), (reports,), (moved,))
    # Where nothing is nothing moves, and the system needs some number.
    slack = jnp.where(theta > 0, theta * (jnp.max(slope) - slope), 1)
    slack = lax.stop_gradient(jnp.maximum(slack, jnp.finfo(theta.dtype).tiny))
    lift = reports.lift if isinstance(reports.lift, Scaling) else entries(reports.lift, theta.dtype)
    solve = _solver(_curvature(theta, reports, lift), slack)
    right, answer = solve(theta * (change - theta @ change)), solve(theta)
    return theta * (right - (theta @ right) / (theta @ answer) * answer)
