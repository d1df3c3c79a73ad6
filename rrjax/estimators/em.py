"""Iterative estimators: IBU (expectation maximization), its deflated form, Anderson acceleration, Newton's method.

IBU multiplies θ_i by D_i = Σ_j φ_j C_ij/μ_j. It climbs to the maximum likelihood estimate, at a speed damped by
d = p − q: most of each report is the uniform noise that IBU shares out in proportion to θ. The deflated step
takes "the report did not depend on the value" for the missing flag instead, and leaves that noise out; it is a
monotone EM as well and needs about 1/d times fewer steps. Anderson acceleration extrapolates its last steps and
falls back on the plain step wherever the extrapolation does not gain.

For counts of k-ary randomized response `mle_star` gives the same estimate at once, and these are for comparing. For the
`Mixture` of another mechanism they are how the maximum is found: D_i = Σ_u φ_u (a_u + B_ui)/μ_u, and a_u is the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_survey
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Scaling
from rrjax.data.mixture import Mixture, Reports, as_mixture
from rrjax.estimators.closed_form import mle_on_support, mle_star
from rrjax.estimators.likelihood import (
    certificate,
    certificate_of_slopes,
    rounding_of_score,
    rounding_of_slopes,
    shares,
)
from rrjax.estimators.newton import MOST_STEPS, at_maximum, newton
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

Acceleration: TypeAlias = Literal["anderson", "deflated", "newton", "none"]

MEMORY = 10
"""How many past steps Anderson acceleration extrapolates from."""
_FURTHEST = 2.0
"""Nats by which a power of EM's factor takes a category at most."""


@exportable
class EMResult(NamedTuple):
    """What an iterative estimator returns.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        gap: Scalar, nats per report: that of `certificate`.
        num_iters: Scalar integer: step evaluations made.
        converged: Scalar boolean: whether `gap` reached `tol`.
    """

    theta: Float[Array, " K"]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]


class History(NamedTuple):
    """The last point and step, the differences of the `MEMORY` before them (a ring), and the power to try."""

    image: Float[Array, " K"]
    residual: Float[Array, " K"]
    images: Float[Array, "M K"]
    residuals: Float[Array, "M K"]
    length: Int[Array, ""]
    power: Float[Array, ""]


def ibu(
    counts: ArrayLike | Mixture,
    epsilon: ArrayLike | None = None,
    *,
    accelerate: Acceleration = "anderson",
    tol: float | None = None,
    max_iters: int = 10_000,
) -> EMResult:
    """Maximizes the likelihood by iterative Bayesian update, until the certificate says it is done.

    Starts from the uniform distribution. A step takes O(K) and no K×K channel; of a mixture, the products of its lift.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not beside a mixture.
        accelerate: "anderson" (extrapolated deflated steps), "deflated", or "none", the IBU of the literature; or
            "newton", in place of them: an interior point that needs some fifteen steps whatever the channel, each a
            solve with a matrix of K² numbers (a diagonal one where a report names one category).
        tol: Stop at this certified gap, nats per report. None is 1e-10, or four times what rounding lets the dtype
            certify if that is more (in float32, 64 machine epsilons of the largest d·φ_i/μ_i; of a mixture 256).
        max_iters: Most step evaluations; with "newton" never more than 200.

    Returns:
        An `EMResult`. All-NaN theta and gap, not converged, for unusable counts or ε.
        Derivatives of theta are those of the maximum likelihood estimate that it converges to, in both modes, and for
        counts also where it was stopped before; of a mixture in its weights, its base and the numbers of its lift, with
        a matrix of K² numbers. The other fields have none.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an unknown acceleration, `tol` or `max_iters` not positive, or an ε
            beside a mixture.

    Example:
        >>> import rrjax
        >>> result = rrjax.ibu([50, 30, 10, 10], epsilon=1.0)
        >>> [round(t, 2) for t in result.theta.tolist()], bool(result.converged)
        ([0.77, 0.23, 0.0, 0.0], True)

    References:
        Agrawal and Aggarwal, "On the design and quantification of privacy preserving data mining algorithms",
        2001 (the step); Walker and Ni, "Anderson acceleration for fixed-point iterations", 2011.
    """
    _check(accelerate)
    if isinstance(tol, int | float) and not tol > 0:
        raise ArgumentError(f"tol must be positive, got {tol}", argument="tol", value=tol)
    max_iters = as_integer(max_iters, "max_iters", 1)
    if isinstance(counts, Mixture):
        given = as_mixture(counts, epsilon)
        result = _solve(lax.stop_gradient(given), tol, max_iters, accelerate)
        return result._replace(theta=at_maximum(result.theta, given[1]))
    given = as_survey(counts, epsilon)
    result = _solve(lax.stop_gradient(given), tol, max_iters, accelerate)
    return result._replace(theta=_at_maximum(result.theta, *given))


def ibu_path(
    counts: ArrayLike | Mixture,
    epsilon: ArrayLike | None = None,
    num_iters: int = 100,
    *,
    accelerate: Acceleration = "anderson",
    observe: Callable[[Float[Array, " K"]], Any] | None = None,
) -> Any:
    """Records the path of `ibu`, step by step, for a fixed number of steps.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not beside a mixture.
        num_iters: Number of step evaluations. Static.
        accelerate: As in `ibu`.
        observe: What to record of each θ `[K]`, a JAX function; None records θ itself. Recording a scalar keeps
            long paths small.

    Returns:
        What `observe` returns, stacked: leading axis `num_iters + 1`, the start included.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an unknown acceleration, or an ε beside a mixture.

    Example:
        >>> import rrjax
        >>> counts, epsilon = [60, 20, 10, 10], 1.0
        >>> gaps = rrjax.ibu_path(counts, epsilon, 100, observe=lambda t: rrjax.certificate(t, counts, epsilon).gap)
        >>> gaps.shape
        (101,)
    """
    _check(accelerate)
    if num_iters < 0:
        raise ArgumentError(f"num_iters must not be negative, got {num_iters}", argument="num_iters", value=num_iters)
    observe = observe or (lambda theta: theta)
    given = as_mixture(counts, epsilon) if isinstance(counts, Mixture) else as_survey(counts, epsilon)
    start, advance = _iteration(_problem(*given), accelerate)

    def body(state, _):
        return advance(state), observe(state[0])

    last, path = lax.scan(body, aligned(start, given), length=num_iters)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), path, observe(last[0]))


def _check(accelerate):
    if accelerate not in get_args(Acceleration):
        raise ArgumentError(
            f"accelerate must be 'anderson', 'deflated', 'newton' or 'none', got {accelerate!r}",
            argument="accelerate",
            value=accelerate,
        )


class _Problem(NamedTuple):
    """What the engine climbs.

    Attributes:
        start: `[K]`, where it starts.
        plain: θ → the step of IBU, up to its sum.
        deflated: θ → the step that leaves the noise out, up to its sum.
        gain: (θ, other θ) → by how much the first has more log-likelihood, from the differences of the terms: near the
            maximum that of the sums is rounding alone.
        judge: θ → the certified gap, and how far rounding may move it.
        reports: The same as a mixture.
    """

    start: Float[Array, " K"]
    plain: Callable[[Array], Array]
    deflated: Callable[[Array], Array]
    gain: Callable[[Array, Array], Array]
    judge: Callable[[Array], tuple[Array, Array]]
    reports: Reports


def _problem(*given) -> _Problem:
    return _of_reports(*given) if isinstance(given[1], Reports) else _of_counts(*given)


def _of_reports(theta, reports):
    """Of a mixture, given by its uniform distribution and its reports."""

    def plain(theta):
        over = reports.shares / reports.probabilities(theta)
        return theta * (accurate_sum(reports.base * over) + reports.lift.transpose(over))

    def judge(theta):
        slope = reports.slopes(theta)  # once: two products
        return certificate_of_slopes(theta, slope).gap, rounding_of_slopes(slope)

    def deflated(theta):
        slope = reports.slopes(theta)
        return jnp.where(jnp.max(slope) == 0, theta, theta * slope)  # reports that say nothing leave θ where it is

    def gain(new, old):
        known = jnp.where(reports.shares > 0, reports.probabilities(old), 1)
        return accurate_sum(reports.shares * jnp.log1p(reports.lift(new - old) / known))

    start = jnp.where(reports.usable, theta, jnp.nan)
    return _Problem(start, plain, deflated, gain, judge, reports)


def reports_of(counts: Shaped[Array, " K"], epsilon: Float[Array, ""]) -> Reports:
    """Counts of k-ary randomized response as a mixture, in which everything takes O(K); its a + Bθ is q + d·θ."""
    phi, usable = shares(counts, epsilon)
    kept, noise = _kept_and_noise(epsilon, counts.shape[0])
    return Reports(phi, noise, Scaling(kept, counts.shape[0]), usable)


def _kept_and_noise(epsilon, num_categories):
    e1 = expm1_epsilon(epsilon)
    return e1 / (e1 + num_categories), 1 / (e1 + num_categories)


def _of_counts(counts, epsilon):
    """Of k-ary randomized response."""
    reports = reports_of(counts, epsilon)
    phi = reports.shares
    kept, noise = _kept_and_noise(epsilon, counts.shape[0])
    uniform = jnp.where(reports.usable, jnp.full_like(phi, 1 / counts.shape[0]), jnp.nan)

    def weights(theta):  # φ/μ; where nothing was reported, nothing is divided
        return jnp.where(phi > 0, phi / jnp.where(phi > 0, noise + kept * theta, 1), 0)

    def plain(theta):
        over = weights(theta)
        return theta * (noise * accurate_sum(over) + kept * over)

    def judge(theta):
        return certificate(theta, counts, epsilon).gap, rounding_of_score(theta, counts, epsilon)

    return _Problem(
        uniform,
        plain,
        lambda theta: theta * weights(theta),
        lambda new, old: accurate_sum(phi * jnp.log1p(kept * (new - old) / (noise + kept * old))),
        judge,
        reports,
    )


def _iteration(problem, accelerate):
    """Returns the start (theta, history) and the function that advances it by one step evaluation."""
    if accelerate == "newton":
        return newton(problem.start, problem.reports)
    climb = problem.plain if accelerate == "none" else problem.deflated

    def step(theta):
        return _normalized(climb(theta))

    if accelerate == "anderson":
        return (problem.start, no_history(problem.start)), lambda state: anderson(step, problem.gain, *state)
    return (problem.start, None), lambda state: (step(state[0]), None)


def _normalized(x):
    return x / accurate_sum(x)


def no_history(theta: Float[Array, " K"]) -> History:
    """Returns the empty history that `anderson` starts from at `theta` `[K]`."""
    ring = jnp.zeros((MEMORY, theta.shape[0]), theta.dtype)
    return History(theta, theta, ring, ring, jnp.int32(-1), jnp.ones((), theta.dtype))


def anderson(
    step: Callable[[Float[Array, " K"]], Float[Array, " K"]],
    gain: Callable[[Float[Array, " K"], Float[Array, " K"]], Float[Array, ""]],
    theta: Float[Array, " K"],
    history: History,
) -> tuple[Float[Array, " K"], History]:
    """Makes one accelerated step of a monotone EM on the simplex, with one evaluation of `step`.

    The extrapolation is kept inside the simplex and taken only if there is no loss against the plain step; otherwise
    the plain step is taken and the history begins anew. So what is climbed never falls, whatever the extrapolation
    does. A category at the edge of the support has almost no share, which moves by almost nothing a step: what the
    differences of steps say of it is rounding. So beyond the extrapolation each category is also taken by a power of
    its own factor, which grows while that gains.
    """
    image = step(theta)
    residual = image - theta
    slot = jnp.mod(history.length, MEMORY)
    known = history.length >= 0

    def record(ring, difference):
        return jnp.where(known, ring.at[slot].set(difference), ring)

    images = record(history.images, image - history.image)
    residuals = record(history.residuals, residual - history.residual)
    length = history.length + 1

    gram = residuals @ residuals.T
    # Slots not filled yet are zero rows; the ridge keeps the system regular for them too.
    ridge = jnp.finfo(theta.dtype).eps ** 0.75 * jnp.trace(gram)
    gram = gram + jnp.where(ridge > 0, ridge, 1) * jnp.eye(MEMORY, dtype=theta.dtype)
    weights = jnp.linalg.solve(gram, residuals @ residual)
    # What EM raises is never taken down, and the rest by no more than a tenth: from where a chain of extrapolations had
    # taken a category, EM alone would need thousands of steps to bring it back, and from zero it never would.
    candidate = _normalized(jnp.maximum(image - weights @ images, jnp.where(residual > 0, image, 0.1 * image)))
    factor = residual / jnp.where(theta > 0, theta, 1)
    further = image * jnp.exp(jnp.clip(history.power * jnp.log1p(factor), -_FURTHEST, _FURTHEST))
    further = jnp.where(residual > 0, jnp.maximum(candidate, further), jnp.minimum(candidate, further))
    further = _normalized(further)
    better = known & (gain(further, candidate) > 0)
    candidate = jnp.where(better, further, candidate)
    power = jnp.where(
        better, jnp.minimum(4 * history.power, jnp.finfo(theta.dtype).eps ** -0.5), jnp.maximum(history.power / 8, 1)
    )
    gained = known & (gain(candidate, image) >= 0)
    fresh = no_history(theta)
    after = History(
        image,
        residual,
        jnp.where(gained | ~known, images, fresh.images),
        jnp.where(gained | ~known, residuals, fresh.residuals),
        jnp.where(gained | ~known, length, 0),
        power,
    )
    return jnp.where(gained, candidate, image), after


@partial(jax.jit, static_argnames="accelerate")
def _solve(given, tol, max_iters, accelerate):
    problem = _problem(*given)
    start, advance = _iteration(problem, accelerate)
    most = jnp.minimum(max_iters, MOST_STEPS) if accelerate == "newton" else max_iters

    def judge(theta):
        gap, rounding = problem.judge(theta)
        return gap, gap <= (jnp.maximum(1e-10, 4 * rounding) if tol is None else tol)

    def body(carry):
        state, _, _, num_iters = carry
        state = advance(state)
        return state, *judge(state[0]), num_iters + 1

    def unfinished(carry):
        _, gap, converged, num_iters = carry
        return ~converged & (num_iters < most) & ~jnp.isnan(gap)

    start = aligned((start, *judge(start[0]), jnp.int32(0)), given)
    carry = lax.while_loop(unfinished, body, start)
    (theta, _), gap, converged, num_iters = carry
    return EMResult(theta, gap, num_iters, converged)


@jax.custom_jvp
def _at_maximum(theta, counts, epsilon):
    del counts, epsilon
    return theta


@_at_maximum.defjvp
def _at_maximum_jvp(primals, tangents):
    theta, counts, epsilon = primals
    active = lax.stop_gradient(mle_star(counts, epsilon)) > 0
    _, tangent = jax.jvp(lambda c, e: mle_on_support(c, e, active), (counts, epsilon), tangents[1:])
    return _at_maximum(theta, counts, epsilon), tangent
