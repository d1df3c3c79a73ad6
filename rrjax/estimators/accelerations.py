"""The accelerations of `ibu`: Anderson's extrapolation of EM's steps, and Newton's method.

**Newton's method** is an interior point (`rrjax.numerics.newton`) on L(θ) = Σ_u φ_u·log(a_u + (Bθ)_u) over the simplex.
The gradient is g = Bᵀ(φ/μ), and H = Bᵀ diag(φ/μ²) B the negative Hessian: a K×K matrix, diagonal if each report names
one category. It takes some twenty steps, each a solve with that matrix. EM takes thousands of products on a channel
that confuses neighbours.

The same system gives the derivatives of the maximum. If a parameter moves the gradient by ġ, the maximum moves by θ∘y
with (Θ H Θ + diag(θ∘s))·y = θ∘(ġ − λ̇) and Σ θ∘y = 0. On the support s = 0; outside it θ stays zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from rrjax.data.linear_maps import Dense, Lift, Scaling
from rrjax.data.mixture import Reports
from rrjax.numerics.newton import factored, interior_step, raised, solved
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.sums import accurate_sum

MEMORY = 10
"""Number of past steps that Anderson's acceleration extrapolates from."""
LARGEST_LOG_FACTOR = 2.0
"""Limit of the change of a category's log share by the power of its factor, nats."""
MAX_NEWTON_STEPS = 200
"""Largest number of Newton steps. Rounding prevents a gap that these do not reach."""


class History(NamedTuple):
    """The last point and step, the differences of the `MEMORY` before them (a ring), and the power to try."""

    image: Float[Array, " K"]
    residual: Float[Array, " K"]
    images: Float[Array, "M K"]
    residuals: Float[Array, "M K"]
    length: Int[Array, ""]
    power: Float[Array, ""]


def no_history(theta: Float[Array, " K"]) -> History:
    """The empty history that `anderson` starts from at `theta` `[K]`."""
    ring = jnp.zeros((MEMORY, theta.shape[0]), theta.dtype)
    return History(theta, theta, ring, ring, jnp.int32(-1), jnp.ones((), theta.dtype))


def anderson(
    image: Float[Array, " K"],
    gain: Callable[[Float[Array, " K"], Float[Array, " K"]], Float[Array, ""]],
    theta: Float[Array, " K"],
    history: History,
) -> tuple[Float[Array, " K"], History]:
    """Makes one accelerated step of a monotone EM on the simplex, of which `image` is the plain step from `theta`.

    The extrapolation is kept inside the simplex, and taken only if its likelihood is at least that of the plain step.
    Otherwise the plain step is taken and the history begins anew, so the likelihood never falls. A step hardly moves a
    category at the edge of the support, whose share is almost zero: the differences of its steps are rounding. So each
    category is also moved by a power of its own factor, which grows while that gains.
    """
    residual = image - theta
    slot = jnp.mod(history.length, MEMORY)
    known = history.length >= 0

    def record(ring, difference):
        return jnp.where(known, ring.at[slot].set(difference), ring)

    images = record(history.images, image - history.image)
    residuals = record(history.residuals, residual - history.residual)
    length = history.length + 1

    gram = matmul(residuals, residuals.T)
    # Empty slots are zero rows; the ridge keeps the system regular for them too.
    ridge = jnp.finfo(theta.dtype).eps ** 0.75 * jnp.trace(gram)
    gram = gram + jnp.where(ridge > 0, ridge, 1) * jnp.eye(MEMORY, dtype=theta.dtype)
    weights = jnp.linalg.solve(gram, matmul(residuals, residual))
    # A share that EM raises is never lowered, and others by no more than a tenth: EM alone would need thousands of
    # steps to undo a chain of extrapolations, and could never leave zero.
    candidate = normalized(jnp.maximum(image - matmul(weights, images), jnp.where(residual > 0, image, 0.1 * image)))
    factor = residual / jnp.where(theta > 0, theta, 1)
    log_factor = jnp.clip(history.power * jnp.log1p(factor), -LARGEST_LOG_FACTOR, LARGEST_LOG_FACTOR)
    further = image * jnp.exp(log_factor)
    further = jnp.where(residual > 0, jnp.maximum(candidate, further), jnp.minimum(candidate, further))
    further = normalized(further)
    better = known & (gain(further, candidate) > 0)
    candidate = jnp.where(better, further, candidate)
    power = jnp.where(
        better, jnp.minimum(4 * history.power, jnp.finfo(theta.dtype).eps ** -0.5), jnp.maximum(history.power / 8, 1)
    )
    gained = known & (gain(candidate, image) >= 0)
    fresh = no_history(theta)
    keep = gained | ~known
    images, residuals = jnp.where(keep, images, fresh.images), jnp.where(keep, residuals, fresh.residuals)
    after = History(image, residual, images, residuals, jnp.where(keep, length, 0), power)
    return jnp.where(gained, candidate, image), after


def normalized(x: Float[Array, " K"]) -> Float[Array, " K"]:
    """Weights as shares that sum to one."""
    return x / accurate_sum(x)


def newton(start: Float[Array, " K"], reports: Reports) -> tuple[tuple[Array, Array], Callable[[Any], Any]]:
    """The start of Newton's method, θ and θ∘s `[K]` each, and the function that makes a step."""
    lift = numbers_of(reports.lift, start.dtype)
    level = accurate_sum(start * reports.slopes(start))
    level = jnp.where(level > 0, level, 1)  # without information in the reports there are no slopes
    goal = jnp.finfo(start.dtype).eps / start.shape[0] * level

    def advance(state):
        theta, slack = state
        theta, slack, _, _ = interior_step(theta, slack, _newton_direction(theta, slack, reports, lift), goal)
        return theta / accurate_sum(theta), slack

    return (start, start * level), advance


def numbers_of(lift: Lift, dtype: Any) -> Any:
    """The matrix `[U, K]` of a lift; a diagonal one stays as it is."""
    return lift if isinstance(lift, Scaling) else matrix_of(lift, dtype)


def matrix_of(lift: Lift, dtype: Any) -> Float[Array, "U K"]:
    """The matrix of a lift."""
    if isinstance(lift, Dense):
        return jnp.asarray(lift.scale, dtype) * lift.matrix.astype(dtype)
    return jax.vmap(lift, out_axes=1)(jnp.eye(lift.shape[1], dtype=dtype))


def _newton_direction(theta, slack, reports, lift):
    """Solves Newton's system for β, with its constraint eliminated."""
    slope = reports.slopes(theta)
    solve = _solver(curvature_of(theta, reports, lift), slack)
    # A common part of all slopes has no effect, but would cost their differences digits.
    slope = slope - accurate_sum(theta * slope)
    plain, answer = solve(theta * slope), solve(theta)

    def towards(barrier):
        """The relative change, and the multiplier of the sum."""
        change = plain + solve(barrier)
        level = (matmul(theta, change) - (1 - jnp.sum(theta))) / matmul(theta, answer)
        return change - level * answer, level

    return towards


def curvature_of(theta: Float[Array, " K"], reports: Reports, lift: Any) -> Float[Array, "*shape"]:
    """Θ H Θ, `[K, K]`; if it is diagonal, its diagonal `[K]`."""
    root = jnp.sqrt(reports.shares) / reports.probabilities(theta)
    if isinstance(lift, Scaling):
        return jnp.square(root * lift(theta))
    rows = lift * root[:, None] * theta
    return einsum("ui,uj->ij", rows, rows)


def _solver(curvature, slack):
    """Solves (curvature + diag(slack))·y = x for y."""
    if curvature.ndim == 1:
        return lambda x: x / (curvature + slack)
    factor = factored(lax.stop_gradient(raised(curvature, slack)))
    return lambda x: lax.custom_linear_solve(
        lambda y: einsum("ij,j->i", curvature, y) + slack * y,
        x,
        lambda _, right: solved(factor, right[:, None])[:, 0],
        symmetric=True,
    )


@jax.jit
def motion_of_maximum(theta: Float[Array, " K"], reports: Reports, tangent: Any) -> Float[Array, " K"]:
    """The tangent of the maximum of a likelihood, given that of the reports."""
    slope, change = jax.jvp(lambda reports: reports.slopes(theta), (reports,), (tangent,))
    # Outside the support θ stays zero, for any slack.
    slack = jnp.where(theta > 0, theta * (jnp.max(slope) - slope), 1)
    slack = lax.stop_gradient(jnp.maximum(slack, jnp.finfo(theta.dtype).tiny))
    solve = _solver(curvature_of(theta, reports, numbers_of(reports.lift, theta.dtype)), slack)
    right, answer = solve(theta * (change - matmul(theta, change))), solve(theta)
    return theta * (right - matmul(theta, right) / matmul(theta, answer) * answer)
