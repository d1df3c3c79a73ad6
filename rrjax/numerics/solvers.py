"""Solvers for `jit` and `vmap`, and derivatives of what they find: bisection, Newton's method, least squares.

Newton's method is damped, for a function of a few numbers or a likelihood with hidden values; and the interior point.

**Damped ascent** (`ascend`). The gradient stays zero at the maximum, so the maximum moves by H⁻¹·(∂gradient/∂given),
    with H the negative Hessian. This is its derivative, in both modes; no step is differentiated.

**Hidden values** (`ascended`). The complete information, which the hidden values would give, is always positive, and a
    step by it is a step of EM, which never lowers the likelihood. The observed information is less, by the missing
    information. A step by it is Newton's: fast near the maximum, and without guarantee far from it. The damping
    interpolates between the two.

**Interior point** (`interior_step`). Maximizes a concave f over θ ≥ 0 with Σ θ = 1 and perhaps other equations. At the
maximum a multiplier λ leaves slacks s = λ − ∇f ≥ 0 with θ∘s = 0. Newton's method solves θ∘s = β in the relative change
y = Δθ/θ:

    (Θ H Θ + diag(θ∘s))·y = β + θ∘∇f − λ·θ,    H = −∇²f,    Θ = diag(θ),

and Mehrotra's predictor and corrector choose β, which goes to zero. The system keeps its scale even if θ does not, and
a Cholesky factorization is equally accurate for any scale of its rows.

References:
    Mehrotra, "On the Implementation of a Primal–Dual Interior Point Method", SIAM J. Optimization 2, 1992.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import one_by_one, with_sharding_of
from rrjax.numerics.sums import accurate_sum

T = TypeVar("T")

LARGEST_STEP = 0.99
"""Largest length of an interior step, as a part of the way to the boundary, where a weight would be zero."""
DIAGONAL_EPSILONS = 8
"""Relative increase of a diagonal, in machine epsilons, so that rounding leaves the matrix positive."""
USERS_IN_BLOCK = 4096
"""Number of users whose information is summed at a time."""


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def with_derivative(rule: Callable[[Array, Any, Any], Array], solution: Array, given: Any) -> Array:
    """The solution itself, with the derivative in `given` by a rule.

    `rule(solution, given, given_tangent)` returns the tangent of the solution. It solves the linear system of the
    implicit function theorem and is itself differentiable, so derivatives of every order exist, forward and reverse.
    """
    del rule, given
    return solution


@with_derivative.defjvp
def _jvp(rule, primals, tangents):
    solution, given = with_derivative(rule, *primals), primals[1]
    return solution, rule(solution, given, tangents[1])


def with_derivative_of_root(
    residual: Callable[[Array, Any], Array], found: Float[Array, "*s"], given: Any
) -> Float[Array, "*s"]:
    """The roots that a search found, with their derivatives in `given`; each residual depends on its own root alone.

    Where the residual does not change with the root, which is no root then, the derivative is zero.
    """
    return with_derivative(partial(_motion_of_root, residual), lax.stop_gradient(found), given)


def _motion_of_root(residual, root, given, tangent):
    moved = jax.jvp(lambda given: residual(root, given), (given,), (tangent,))[1]
    slope = jax.jvp(lambda root: residual(root, given), (root,), (jnp.ones_like(root),))[1]
    return jnp.where(slope == 0, 0, -moved / jnp.where(slope == 0, 1, slope))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def without_derivative(values: T, message: str) -> T:
    """The values themselves; a NotImplementedError with the message if a derivative is taken."""
    del message
    return values


@without_derivative.defjvp
def _refuse(message, primals, tangents):
    del primals, tangents
    raise NotImplementedError(message)


def arithmetic_mean(low: Array, high: Array) -> Array:
    """The middle of an interval."""
    return (low + high) / 2


def geometric_mean(low: Array, high: Array) -> Array:
    """The middle of an interval on a logarithmic scale."""
    return jnp.sqrt(low * high)


def bisected(
    is_too_low: Callable[[Array], Bool[Array, "*s"]],
    low: Array,
    high: Array,
    num_steps: int,
    middle: Callable[[Array, Array], Array] = arithmetic_mean,
) -> tuple[Array, Array]:
    """Both ends of intervals `[low, high]`, halved repeatedly around the point where `is_too_low` becomes false."""

    def halve(_, interval):
        low, high = interval
        point = middle(low, high)
        too_low = is_too_low(point)
        return jnp.where(too_low, point, low), jnp.where(too_low, high, point)

    return lax.fori_loop(0, num_steps, halve, (low, high))


def first_place(is_before: Callable[[Array], Bool[Array, "*s"]], start: Int[Array, "*s"], size: int) -> Array:
    """The first of the places `start, …, size` for which `is_before` is false; it must be true before and false after.

    After the end of the search `is_before` is also called with `size`, and its result is not used.
    """

    def halve(_, span):
        low, high = span
        middle = (low + high) >> 1
        before = (low < high) & is_before(middle)
        return jnp.where(before, middle + 1, low), jnp.where(before, high, middle)

    return lax.fori_loop(0, size.bit_length(), halve, (start, jnp.full_like(start, size)))[0]


@exportable
class LeastSquares(NamedTuple):
    """Shares of candidates by least squares.

    Attributes:
        theta: `[K]`, not negative. Their sum is below one if some users' values are no candidates.
        violation: Scalar: largest violation of the conditions of the minimum, in shares of users.
    """

    theta: Float[Array, " K"]
    violation: Float[Array, ""]


def least_squares(gram: Float[Array, "K K"], target: Float[Array, " K"], num_steps: int) -> LeastSquares:
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
    state = with_sharding_of((start, start, jnp.ones((), target.dtype)), gram, target)
    theta, _, _ = lax.fori_loop(0, num_steps, accelerated, state)
    return LeastSquares(theta, jnp.max(jnp.abs(theta - step(theta))))


def regularized(matrix: Float[Array, "M M"], diagonal: Float[Array, " M"]) -> Float[Array, "M M"]:
    """A positive matrix plus a diagonal, and as much more as rounding needs for a Cholesky factor."""
    return matrix + jnp.diag(diagonal + DIAGONAL_EPSILONS * jnp.finfo(matrix.dtype).eps * jnp.diagonal(matrix))


@one_by_one
def cholesky_factor(matrix: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The Cholesky factor of a matrix."""
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


@one_by_one
def half_solve(factor: Float[Array, "M M"], right: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """L⁻¹·right for a Cholesky factor L: the squares of its columns sum to the quadratic forms of the inverse."""
    return lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)


@one_by_one
def cholesky_solve(factor: Float[Array, "M M"], right: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """The solution of the linear system with this Cholesky factor."""
    half = lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)
    return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)


@runtime_checkable
class Problem(Protocol):
    """A function to maximize. Hashable; equal problems share a compiled program."""

    def value(self, point: Float[Array, " P"], given: Any) -> Float[Array, ""]:
        """The function to maximize."""
        ...

    def gain(self, new: Float[Array, " P"], old: Float[Array, " P"], given: Any) -> Float[Array, ""]:
        """The value at `new` less that at `old`, as accurately as possible."""
        ...


class Ascent(NamedTuple):
    """The state of the damped iteration."""

    point: Float[Array, " P"]
    curvature: Float[Array, "P P"]  # the negative Hessian where the last step began
    damping: Float[Array, ""]  # the relative increase of the diagonal; zero is Newton's step
    gap: Float[Array, ""]  # half of Newton's decrement: to second order, the distance of the value from the maximum
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]


def _step(system, gradient, point):
    """Newton's step: the change, half of its decrement, and the new point."""
    change = cholesky_solve(cholesky_factor(system), gradient[:, None])[:, 0]
    return change, matmul(gradient, change) / 2, point + jnp.where(jnp.all(jnp.isfinite(change)), change, 0)


def _judged(change, gap, gain, damping, tol):
    """Accepts a step that gains, or that is so near the maximum that its gain is below rounding.

    Returns whether it is accepted, the next damping, the gap, and whether the iteration has converged.
    """
    usable = jnp.all(jnp.isfinite(change)) & (gap >= 0)
    accepted = usable & jnp.isfinite(gain) & ((gain > 0) | (gap <= tol))
    less = jnp.where(damping < 0.01, 0, damping / 8)
    converged = accepted & (damping == 0) & (gap <= tol)
    damping = jnp.where(accepted, less, jnp.maximum(8 * damping, 1 / 64))
    return accepted, damping, jnp.where(usable, gap, jnp.inf), converged


def _repeated(step, state, max_iters):
    return lax.while_loop(lambda state: ~state.converged & (state.num_iters < max_iters), step, state)


def ascend(problem: Problem, start: Float[Array, " P"], given: Any, tol: Float[Array, ""], max_iters: int) -> Ascent:
    """Maximizes `problem.value` from `start`; the point found has its first derivatives in `given`."""
    state = _ascended(problem, *lax.stop_gradient((start, given)), tol, max_iters)
    point = with_derivative(partial(_motion, problem), state.point, (state.curvature, given))
    return state._replace(point=point)


@partial(jax.jit, static_argnums=(0, 4))
def _ascended(problem, start, given, tol, max_iters):
    def gradient_twice(point):
        gradient = jax.grad(problem.value)(point, given)
        return gradient, gradient

    def step(state):
        # Second derivatives take long to compile, so they occur only here.
        hessian, gradient = jax.jacfwd(gradient_twice, has_aux=True)(state.point)
        curvature = -hessian
        size = jnp.abs(jnp.diagonal(curvature))
        # A plateau has no curvature; there the damping gets a scale that limits steps to a thousand.
        size = jnp.maximum(size, 1e-3 * jnp.abs(gradient))
        change, gap, new = _step(curvature + jnp.diag(state.damping * size), gradient, state.point)
        gain = problem.gain(new, state.point, given)
        accepted, damping, gap, converged = _judged(change, gap, gain, state.damping, tol)
        point = jnp.where(accepted, new, state.point)
        return Ascent(point, curvature, damping, gap, state.num_iters + 1, converged)

    zero = jnp.zeros((), start.dtype)
    no_curvature = jnp.zeros((start.size, start.size), start.dtype)
    state = Ascent(start, no_curvature, zero, zero + jnp.inf, jnp.int32(0), jnp.asarray(False))
    return _repeated(step, with_sharding_of(state, start, given), max_iters)


def _motion(problem, point, inputs, tangents):
    """The tangent of the maximum."""
    curvature, given = inputs
    _, change = jax.jvp(lambda given: jax.grad(problem.value)(point, given), (given,), tangents[1:])
    factor = cholesky_factor(curvature)
    return lax.custom_linear_solve(
        lambda y: matmul(curvature, y),
        change,
        lambda _, right: cholesky_solve(factor, right[:, None])[:, 0],
        symmetric=True,
    )


class View(NamedTuple):
    """The log-likelihood and its derivatives at some parameters `[P]`."""

    log_probabilities: Float[Array, " N"]  # log-likelihood of each user's reports, times the weight
    log_prior: Float[Array, ""]
    slope: Float[Array, " P"]  # the gradient of the sum of all these
    observed: Float[Array, "P P"]  # the observed information
    complete: Float[Array, "P P"]  # the information if the hidden values were known


class State(NamedTuple):
    """The state of the iteration with hidden values."""

    parameters: Float[Array, " P"]
    view: View
    damping: Float[Array, ""]  # 0 is Newton's step, 1 is the step of EM, and above 1 the step is shorter
    gap: Float[Array, ""]  # half of Newton's decrement, nats of all reports
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]


def ascended(
    look: Callable[[Float[Array, " P"]], View],
    start: Float[Array, " P"],
    tol: Float[Array, ""],
    max_iters: int,
    longest: float | None = None,
) -> State:
    """Maximizes a likelihood with hidden values; `look` gives its `View` at parameters.

    No step moves a parameter by more than `longest`: where the likelihood levels off far from its maximum, as in the
    log-odds of a share, one long step that gains by another parameter would end the search there.
    """

    def step(state):
        view, damping = state.view, state.damping
        mixed = (1 - damping) * view.observed + damping * view.complete
        system = jnp.where(damping < 1, mixed, damping * view.complete)
        change, gap, new = _step(system, view.slope, state.parameters)
        if longest is not None:
            most = jnp.max(jnp.abs(new - state.parameters))
            new = state.parameters + (new - state.parameters) * (longest / jnp.maximum(most, longest))
        new_view = look(new)
        # User by user: near the maximum the difference of two sums loses its digits.
        gain = accurate_sum(new_view.log_probabilities - view.log_probabilities) + (new_view.log_prior - view.log_prior)
        accepted, damping, gap, converged = _judged(change, gap, gain, damping, tol)
        new, view = jax.tree.map(
            lambda new, old: jnp.where(accepted, new, old), (new, new_view), (state.parameters, view)
        )
        return State(new, view, damping, gap, state.num_iters + 1, converged)

    zero = jnp.zeros((), start.dtype)
    state = State(start, look(start), zero, zero + jnp.inf, jnp.int32(0), jnp.asarray(False))
    return _repeated(step, with_sharding_of(state), max_iters)


def blocks_of(data: Any, most: int = USERS_IN_BLOCK) -> Any:
    """Rows in blocks of users, `most` each; the last one is filled up with zeros, which are users of weight zero."""
    number = jax.tree.leaves(data)[0].shape[0]
    block = min(number, most)

    def cut(leaf):
        padded = jnp.pad(leaf, ((0, -number % block), *((0, 0),) * (leaf.ndim - 1)))
        return padded.reshape(-1, block, *leaf.shape[1:])

    return jax.tree.map(cut, data)


def added_up(function: Callable[[Any], tuple[Any, Any]], blocks: Any, *others: Any) -> tuple[Any, Any]:
    """The sums over all blocks, and all rows, of a function of a block that returns sums and rows."""
    first = jax.tree.map(lambda leaf: leaf[0], blocks)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, first)[0])

    def add(total, block):
        sums, rows = function(block)
        return jax.tree.map(jnp.add, total, sums), rows

    total, rows = lax.scan(add, with_sharding_of(zeros, blocks, others), blocks)
    return total, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)


def interior_step(
    theta: Float[Array, " M"],
    slack: Float[Array, " M"],
    towards: Callable[[Float[Array, " M"]], tuple[Float[Array, " M"], Array]],
    goal: Float[Array, ""],
) -> tuple[Float[Array, " M"], Float[Array, " M"], Array, Float[Array, ""]]:
    """Makes a predictor and a corrector step; returns θ, θ∘s, the multiplier, and the length of the step in it.

    `slack` is θ∘s. `towards(β)` solves Newton's system; it returns y and the multiplier. `goal` is the smallest β.
    """
    y, _ = towards(jnp.zeros_like(theta))
    change = -slack - slack * y
    primal, dual = length_within(y), length_within(change / slack)
    barrier = jnp.mean(slack)
    predicted = jnp.mean((1 + primal * y) * (slack + dual * change))
    target = jnp.maximum((predicted / barrier) ** 3 * barrier, goal) - y * change
    y, multiplier = towards(target)
    change = target - slack - slack * y
    primal, dual = (
        jnp.minimum(1, LARGEST_STEP * length) for length in (length_within(y), length_within(change / slack))
    )
    return theta * (1 + primal * y), (slack + dual * change) * (1 + primal * y), multiplier, dual


def length_within(change: Float[Array, " M"]) -> Float[Array, ""]:
    """The largest part of a relative change, at most one, before any weight is zero."""
    return jnp.minimum(1, 1 / jnp.maximum(jnp.max(-change), 1))
