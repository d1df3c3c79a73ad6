"""Iterative estimators: IBU (expectation maximization) with its accelerations, and smoothed EM.

IBU multiplies θ_i by D_i = Σ_j φ_j C_ij/μ_j, and converges to the maximum likelihood estimate. It is slow where d = p −
q is small: most of each report is uniform noise, which IBU distributes in proportion to θ. The deflated step is the EM
whose hidden variable is whether the report depended on the value. It leaves the noise out, is monotone as well, and
needs about 1/d times fewer steps.

For counts of k-ary randomized response `mle_star` gives the same estimate in closed form, and these are for comparison.
For the `Mixture` of another mechanism, these find the maximum: D_i = Σ_u φ_u (a_u + B_ui)/μ_u, and a_u is the noise.

**Newton's method** is an interior point (`numerics.solvers`) on L(θ) = Σ_u φ_u·log(a_u + (Bθ)_u) over the simplex.
The gradient is g = Bᵀ(φ/μ), and H = Bᵀ diag(φ/μ²) B the negative Hessian: a K×K matrix, diagonal if each report names
one category. It takes some twenty steps, each a solve with that matrix. EM takes thousands of products on a channel
that confuses neighbours.

The same system gives the derivatives of the maximum. If a parameter moves the gradient by ġ, the maximum moves by θ∘y
with (Θ H Θ + diag(θ∘s))·y = θ∘(ġ − λ̇) and Σ θ∘y = 0. On the support s = 0; outside it θ stays zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_counts_and_epsilon
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import LinearMap, Scaling, matrix_of
from rrjax.data.mixture import Mixture, NormalizedMixture, as_mixture
from rrjax.estimators.closed_form import mle_on_support, mle_star
from rrjax.estimators.likelihood import (
    certificate,
    certificate_of,
    certificate_of_slopes,
    rounding_of_score,
    rounding_of_slopes,
    shares,
)
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.solvers import cholesky_factor, cholesky_solve, interior_step, regularized, with_derivative
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

Acceleration: TypeAlias = Literal["anderson", "deflated", "newton", "none"]
MEMORY = 10
"""Number of past steps that Anderson's acceleration extrapolates from."""
LARGEST_LOG_FACTOR = 2.0
"""Limit of the change of a category's log share by the power of its factor, nats."""
MAX_NEWTON_STEPS = 200
"""Largest number of Newton steps. Rounding prevents a gap that these do not reach."""
MOST_NUMBERS = 2**16
"""Largest number of entries of a lift `[U, K]`, and of `[K, K]`, for a maximum by Newton's method: memory of a problem.
"""
REFINING_STEPS = 6
"""Number of Newton steps in float32 after the tolerance, which is for one report: 1e-5 nats are 100 for 10⁷ reports."""


@exportable
class EMResult(NamedTuple):
    """The result of an iterative estimator.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        gap: Scalar, nats per report: the gap of `certificate`.
        num_iters: Scalar integer: step evaluations made.
        converged: Scalar boolean: whether `gap` reached `tol`.
    """

    theta: Float[Array, " K"]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]


def ibu(
    counts: ArrayLike | Mixture,
    epsilon: ArrayLike | None = None,
    *,
    accelerate: Acceleration = "anderson",
    tol: float | None = None,
    max_iters: int = 10_000,
) -> EMResult:
    """Maximum likelihood estimate by iterative Bayesian update (IBU), until its certificate reaches a tolerance.

    It starts from the uniform distribution. A step takes O(K), without a K×K channel; for a mixture, the products of
    its lift.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not with a mixture.
        accelerate: "anderson" (extrapolated deflated steps), "deflated", or "none", the IBU of the literature. Or
            "newton", an interior point, which needs some fifteen steps for any channel, each a solve with a K×K matrix
            (diagonal if each report names one category).
        tol: Stop at this certified gap, nats per report. None is 1e-10, or four times the smallest gap that rounding
            lets the dtype certify, if that is more (in float32, 64 machine epsilons of the largest d·φ_i/μ_i; for a
            mixture 256). With None, "newton" in float32 makes six more steps after it: 1e-5 nats
            per report are 100 nats for 10⁷ reports.
        max_iters: Largest number of step evaluations; with "newton" never more than 200.

    Returns:
        An `EMResult`. All-NaN theta and gap, not converged, for unusable counts or ε.
        Derivatives of theta are those of the maximum likelihood estimate, in both modes, for counts even if the
        iteration stopped earlier; for a mixture in its weights, its base and the numbers of its lift, with a K×K
        matrix. The other fields have none.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an unknown acceleration, `tol` or `max_iters` not positive, or an ε
            with a mixture.

    Example:
        >>> import rrjax
        >>> result = rrjax.ibu([50, 30, 10, 10], epsilon=1.0)
        >>> [round(t, 2) for t in result.theta.tolist()], bool(result.converged)
        ([0.77, 0.23, 0.0, 0.0], True)

    References:
        Agrawal and Aggarwal, "On the design and quantification of privacy preserving data mining algorithms",
        2001 (the step); Walker and Ni, "Anderson acceleration for fixed-point iterations", 2011.
    """
    given = _checked(counts, epsilon, accelerate)
    _check_tol(tol)
    result = _solve(lax.stop_gradient(given), tol, as_integer(max_iters, "max_iters", 1), accelerate)
    if isinstance(counts, Mixture):
        return result._replace(theta=with_derivative(motion_of_maximum, result.theta, given[1]))
    return result._replace(theta=with_derivative(_motion_on_support, result.theta, given))


def ibu_path(
    counts: ArrayLike | Mixture,
    epsilon: ArrayLike | None = None,
    num_iters: int = 100,
    *,
    accelerate: Acceleration = "anderson",
    observe: Callable[[Float[Array, " K"]], Any] | None = None,
) -> Any:
    """The estimates of `ibu` after each of a fixed number of steps, or a function of them.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not with a mixture.
        num_iters: Number of step evaluations. Static.
        accelerate: As in `ibu`.
        observe: A JAX function of θ `[K]`, whose value is recorded; None records θ. A scalar keeps long paths small.

    Returns:
        The values of `observe`, stacked: leading axis `num_iters + 1`, the start included.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an unknown acceleration, or an ε with a mixture.

    Example:
        >>> import rrjax
        >>> counts, epsilon = [60, 20, 10, 10], 1.0
        >>> gaps = rrjax.ibu_path(counts, epsilon, 100, observe=lambda t: rrjax.certificate(t, counts, epsilon).gap)
        >>> gaps.shape
        (101,)
    """
    given = _checked(counts, epsilon, accelerate)
    if num_iters < 0:
        raise ArgumentError(f"num_iters must not be negative, got {num_iters}", argument="num_iters", value=num_iters)
    observe = observe or (lambda theta: theta)
    problem = _problem(*given)
    start, advance = _iteration(problem, accelerate)

    def body(state, _):
        return advance(state, problem.view(state[0])), observe(state[0])

    last, path = lax.scan(body, with_sharding_of(start, given), length=num_iters)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), path, observe(last[0]))


def ems(mixture: Mixture, *, tol: float = 1e-3, max_iters: int = 10_000) -> EMResult:
    """Estimates shares by smoothed EM: after each step, each category is averaged with its two neighbours.

    The weights are (1, 2, 1)/4, and (2, 1)/3 at the ends. Its limit is **not** the maximum of the likelihood (see
    `ibu`), nor of any other known function: it is smoother, and its gap stays positive.

    Args:
        mixture: The likelihood; its categories are in order.
        tol: Stop if a step changes the log-likelihood of all reports by less, nats; the authors' code has 1e-3. In
            float32, with more than some ten thousand reports, the change is below rounding.
        max_iters: Largest number of steps.

    Returns:
        An `EMResult`: `gap` bounds the distance from the largest log-likelihood, nats per report, and `converged` is
        whether the change was below `tol`. NaN for an unusable mixture. No derivatives.

    Raises:
        ValueError: `tol` or `max_iters` not positive.

    Example:
        >>> import jax, rrjax
        >>> from rrjax.estimators.em import ems
        >>> mechanism = rrjax.mechanisms.SquareWave(num_categories=32, epsilon=1.0)
        >>> values = jax.random.beta(jax.random.key(0), 2.0, 5.0, (5_000,))
        >>> mixture = mechanism.mixture(mechanism.randomize(jax.random.key(1), values))
        >>> likeliest, smooth = rrjax.ibu(mixture, accelerate="newton"), ems(mixture)
        >>> int((likeliest.theta > 1e-3).sum()), int((smooth.theta > 1e-3).sum())
        (10, 32)

    References:
        Silverman, Jones, Wilson and Nychka, "A smoothed EM approach to indirect estimation problems", JRSS B 52, 1990;
        Li et al., "Estimating numerical distributions under local differential privacy", 2020, §5.5.
    """
    _check_tol(tol)
    max_iters = as_integer(max_iters, "max_iters", 1)
    total = jnp.sum(jnp.asarray(mixture.weights))
    start, reports = lax.stop_gradient(as_mixture(mixture, None))
    return _solve_smoothed(start, reports, total.astype(start.dtype), tol, max_iters)


def acceleration_for(mixture: Mixture) -> Acceleration:
    """The method for the maximum of a mixture: "newton" for a small one, else "anderson", which needs no matrix.

    Newton's method takes a dozen steps whatever the channel. In float32 it goes on below the smallest gap that float32
    can certify, which leaves several nats of 10⁷ reports.
    """
    return "newton" if max(mixture.lift.shape) * mixture.num_categories <= MOST_NUMBERS else "anderson"


def _checked(counts, epsilon, accelerate):
    """The uniform distribution and the reports of a mixture, or counts and ε."""
    if accelerate not in get_args(Acceleration):
        raise ArgumentError.about(
            "accelerate", f"must be 'anderson', 'deflated', 'newton' or 'none', got {accelerate!r}", value=accelerate
        )
    return as_mixture(counts, epsilon) if isinstance(counts, Mixture) else as_counts_and_epsilon(counts, epsilon)


def _check_tol(tol):
    if isinstance(tol, int | float) and not tol > 0:
        raise ArgumentError(f"tol must be positive, got {tol}", argument="tol", value=tol)


class _EMProblem(NamedTuple):
    """The functions of a likelihood that the iterations need.

    A step and its certificate need the same products, so both are made from one view of θ. The gain sums the
    differences of the terms: near the maximum the difference of the sums is rounding alone.
    """

    start: Float[Array, " K"]
    view: Callable[[Array], Any]  # θ → what the next three need of it
    plain: Callable[[Array, Any], Array]  # θ and its view → the step of IBU, up to its sum
    deflated: Callable[[Array, Any], Array]  # θ and its view → the step that leaves the noise out, up to its sum
    judge: Callable[[Array, Any], tuple[Array, Array]]  # θ and its view → the certified gap, and the rounding in it
    gain: Callable[[Array, Array], Array]  # (new, old) → the log-likelihood gained
    reports: NormalizedMixture


def _problem(*given) -> _EMProblem:
    return _of_reports(*given) if isinstance(given[1], NormalizedMixture) else _of_counts(*given)


def _of_reports(theta, reports):
    """The problem of a mixture, given by its uniform distribution and its reports."""

    def view(theta):
        return _slopes_and_floor(reports, reports.probabilities(theta))

    def judge(theta, view):
        return certificate_of_slopes(theta, view[0]).gap, rounding_of_slopes(view[0])

    def deflated(theta, view):
        slope, _ = view
        return jnp.where(jnp.max(slope) == 0, theta, theta * slope)  # reports without information leave θ unchanged

    def gain(new, old):
        known = jnp.where(reports.shares > 0, reports.probabilities(old), 1)
        return accurate_sum(reports.shares * jnp.log1p(reports.lift(new - old) / known))

    def plain(theta, view):
        return theta * (view[1] + view[0])

    start = jnp.where(reports.usable, theta, jnp.nan)
    return _EMProblem(start, view, plain, deflated, judge, gain, reports)


def _slopes_and_floor(reports, probabilities):
    """The slopes `[K]`, and the part of IBU's factor that all categories share; the factor is their sum."""
    ratio = reports.shares / probabilities
    return reports.lift.transpose(ratio), accurate_sum(reports.base * ratio)


def reports_of(counts: Shaped[Array, " K"], epsilon: Float[Array, ""]) -> NormalizedMixture:
    """Counts of k-ary randomized response as a mixture whose products take O(K); its a + Bθ is q + d·θ."""
    phi, usable = shares(counts, epsilon)
    e1, size = expm1_epsilon(epsilon), counts.shape[0]
    return NormalizedMixture(phi, 1 / (e1 + size), Scaling(e1 / (e1 + size), size), usable)


def _of_counts(counts, epsilon):
    """The problem of k-ary randomized response."""
    reports = reports_of(counts, epsilon)
    assert isinstance(reports.lift, Scaling)
    phi, noise, kept = reports.shares, reports.base, reports.lift.scale
    uniform = jnp.where(reports.usable, jnp.full_like(phi, 1 / counts.shape[0]), jnp.nan)

    def ratios(theta):
        """φ/μ, zero for categories without reports."""
        return jnp.where(phi > 0, phi / jnp.where(phi > 0, noise + kept * theta, 1), 0)

    def plain(theta, ratio):
        return theta * (noise * accurate_sum(ratio) + kept * ratio)

    def judge(theta, _):
        return certificate(theta, counts, epsilon).gap, rounding_of_score(theta, counts, epsilon)

    return _EMProblem(
        uniform,
        ratios,
        plain,
        lambda theta, ratio: theta * ratio,
        judge,
        lambda new, old: accurate_sum(phi * jnp.log1p(kept * (new - old) / (noise + kept * old))),
        reports,
    )


def _iteration(problem, accelerate):
    """The start, a pair (θ, state), and the function that makes one step from it and the view of its θ."""
    if accelerate == "newton":
        start, advance = newton(problem.start, problem.reports)
        return start, lambda state, _: advance(state)
    climb = problem.plain if accelerate == "none" else problem.deflated

    def step(state, view):
        image = normalized(climb(state[0], view))
        return anderson(image, problem.gain, *state) if accelerate == "anderson" else (image, None)

    return (problem.start, no_history(problem.start) if accelerate == "anderson" else None), step


@partial(program, static_argnums=(3,))
def _solve(given, tol, max_iters, accelerate):
    problem = _problem(*given)
    start, advance = _iteration(problem, accelerate)
    most = jnp.minimum(max_iters, MAX_NEWTON_STEPS) if accelerate == "newton" else max_iters

    def judge(theta):
        view = problem.view(theta)
        gap, rounding = problem.judge(theta, view)
        return view, gap, gap <= (jnp.maximum(1e-10, 4 * rounding) if tol is None else tol)

    def body(carry):
        state, view, _, _, num_iters = carry
        state = advance(state, view)
        return state, *judge(state[0]), num_iters + 1

    def unfinished(carry):
        *_, gap, converged, num_iters = carry
        return ~converged & (num_iters < most) & ~jnp.isnan(gap)

    start = with_sharding_of((start, *judge(start[0]), jnp.int32(0)), given)
    carry = lax.while_loop(unfinished, body, start)
    state, _, gap, converged, num_iters = carry
    if accelerate == "newton" and tol is None and state[0].dtype == jnp.float32:
        refined = lax.fori_loop(0, REFINING_STEPS, lambda _, state: advance(state, None), state)
        _, new_gap, still = judge(refined[0])
        better = converged & still & (num_iters + REFINING_STEPS <= most)
        state = jax.tree.map(lambda new, old: jnp.where(better, new, old), refined, state)
        gap, num_iters = jnp.where(better, new_gap, gap), jnp.where(better, num_iters + REFINING_STEPS, num_iters)
    # A likelihood that is no number has no maximum: not the start.
    return EMResult(jnp.where(jnp.isnan(gap), gap, state[0]), gap, num_iters, converged)


def _motion_on_support(theta, given, tangents):
    """The tangent of the maximum of k-ary randomized response, to which `theta` converges."""
    del theta
    active = lax.stop_gradient(mle_star(*given)) > 0
    return jax.jvp(lambda counts, epsilon: mle_on_support(counts, epsilon, active), given, tangents)[1]


def _averaged(theta: Float[Array, " K"]) -> Float[Array, " K"]:
    """Averages each category with its neighbours, by (1, 2, 1)/4, at the ends by (2, 1)/3; the sum stays one."""
    inner = (theta[:-2] + 2 * theta[1:-1] + theta[2:]) / 4
    first, last = (2 * theta[0] + theta[1]) / 3, (2 * theta[-1] + theta[-2]) / 3
    smooth = jnp.concatenate([first[None], inner, last[None]])
    return smooth / accurate_sum(smooth)


@jax.jit
def _solve_smoothed(start, reports, total, tol, max_iters):
    def body(carry):
        theta, old, _, number = carry
        slopes, floor = _slopes_and_floor(reports, old)
        theta = _averaged(theta * (floor + slopes))
        new = reports.probabilities(theta)
        # The sum of the terms' differences is more accurate than the difference of two sums.
        change = accurate_sum(reports.shares * jnp.log1p((new - old) / old)) * total
        return theta, new, change, number + 1

    def unfinished(carry):
        _, _, change, number = carry
        return (jnp.abs(change) >= tol) & (number < max_iters)

    carry = start, reports.probabilities(start), jnp.asarray(jnp.inf, start.dtype), jnp.int32(0)
    theta, _, change, number = lax.while_loop(unfinished, body, with_sharding_of(carry, (reports, total)))
    theta = jnp.where(reports.usable, theta, jnp.nan)
    return EMResult(theta, certificate_of(theta, reports).gap, number, jnp.abs(change) < tol)


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


def newton(start: Float[Array, " K"], reports: NormalizedMixture) -> tuple[tuple[Array, Array], Callable[[Any], Any]]:
    """The start of Newton's method, θ and θ∘s `[K]` each, and the function that makes a step."""
    lift = numbers_of(reports.lift, start.dtype)
    level = accurate_sum(start * reports.slopes(start))
    level = jnp.where(level > 0, level, 1)  # without information in the reports there are no slopes
    goal = 2.0**-52 / start.shape[0] * level  # an epsilon of float32 would cost one nat in 10⁷ reports

    def advance(state):
        theta, slack = state
        theta, slack, _, _ = interior_step(theta, slack, _newton_direction(theta, slack, reports, lift), goal)
        return theta / accurate_sum(theta), slack

    return (start, start * level), advance


def numbers_of(lift: LinearMap, dtype: Any) -> Any:
    """The matrix `[U, K]` of a lift; a diagonal one stays as it is."""
    return lift if isinstance(lift, Scaling) and lift.others is None else matrix_of(lift, dtype)


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


def curvature_of(theta: Float[Array, " K"], reports: NormalizedMixture, lift: Any) -> Float[Array, "*shape"]:
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
    factor = cholesky_factor(lax.stop_gradient(regularized(curvature, slack)))
    return lambda x: lax.custom_linear_solve(
        lambda y: einsum("ij,j->i", curvature, y) + slack * y,
        x,
        lambda _, right: cholesky_solve(factor, right[:, None])[:, 0],
        symmetric=True,
    )


@jax.jit
def motion_of_maximum(theta: Float[Array, " K"], reports: NormalizedMixture, tangent: Any) -> Float[Array, " K"]:
    """The tangent of the maximum of a likelihood, given that of the reports."""
    slope, change = jax.jvp(lambda reports: reports.slopes(theta), (reports,), (tangent,))
    # Outside the support θ stays zero, for any slack.
    slack = jnp.where(theta > 0, theta * (jnp.max(slope) - slope), 1)
    slack = lax.stop_gradient(jnp.maximum(slack, jnp.finfo(theta.dtype).tiny))
    solve = _solver(curvature_of(theta, reports, numbers_of(reports.lift, theta.dtype)), slack)
    right, answer = solve(theta * (change - matmul(theta, change))), solve(theta)
    return theta * (right - matmul(theta, right) / matmul(theta, answer) * answer)
