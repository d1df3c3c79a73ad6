"""Groups of users who randomized differently: one distribution from the reports of all groups.

Groups of any mechanisms and survey designs over the same K categories are given by their mixtures or tallies: the
log-likelihood is the sum of the groups', and the rows of the mixtures stand on top of each other. Groups of k-ary
randomized response at different ε are given by counts and ε, and their maximum needs one equation.

Group g reports by k-ary randomized response at ε_g. With e_g = e^ε_g − 1, a user of group g who reports category i has
a likelihood proportional to 1 + e_g·θ_i. The slope of the log-likelihood in θ_i,

    h_i(θ_i) = Σ_g e_g·c_gi/(1 + e_g·θ_i),

depends on no other category. At the maximum it equals one number λ for all θ_i > 0, and is at most λ for the others. So
the maximum is one equation for s = 1/λ, Σ_i θ_i(s) = 1, where θ_i(s) solves 1/h_i = s, or is zero if 1/h_i(0) is above
s. Both Newton iterations converge monotonically: 1/h_i is concave and increasing (h_i is a Stieltjes function), so
steps towards s from below never pass it, and Σ θ_i(s) is convex, so steps from above never pass the root. For one group
1/h_i is linear, and the steps are those of `mle_star`'s passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_counts, count_summary, float_dtype, float_of, is_real
from rrjax.data.categories import difference
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Concatenated
from rrjax.data.mixture import Mixture, as_mixture
from rrjax.data.tally import Tally
from rrjax.estimators import closed_form
from rrjax.estimators.em import EMResult, ibu
from rrjax.estimators.likelihood import certificate_of, rounding_of_slopes
from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import unsharded, with_sharding_of
from rrjax.numerics.solvers import with_derivative
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

MAX_OUTER_STEPS = 100
"""Largest number of Newton steps on s; about ten are needed."""

MAX_NEWTON_CATEGORIES = 512
"""Largest K for Newton steps on mixtures, each of which solves a K×K system."""

INNER_STEPS = 6
"""Number of Newton steps to θ_i(s), from θ_i at the last s; with two the certificates are the same."""

Part = TypeVar("Part")

__all__ = ["inv", "mixture", "mle"]


@pytree("num_categories")
class Stacked:
    """The linear map of G groups whose reports name one category each: multiples of I on top of each other."""

    scales: Float[Array, " G"]
    num_categories: int

    @property
    def shape(self) -> tuple[int, int]:
        """G·K and K."""
        return self.scales.shape[0] * self.num_categories, self.num_categories

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        return (self.scales.astype(theta.dtype)[:, None] * theta).ravel()

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        parts = self.scales.astype(weights.dtype)[:, None] * weights.reshape(-1, self.num_categories)
        return jax.vmap(accurate_sum, in_axes=1)(parts)


def mle(
    counts: ArrayLike | Sequence[Mixture], epsilons: ArrayLike | None = None, *, tol: float | None = None
) -> EMResult:
    """Maximum likelihood estimate from groups of users who randomized differently.

    All users are draws from one distribution. For counts group g reported by k-ary randomized response at ε_g: Newton
    steps on one number, the common slope of the likelihood, until it stops changing. For mixtures the groups reported
    by any mechanisms or survey designs: `rrjax.ibu` of `mixture`, by Newton steps up to K = 512. The result is
    certified.

    Args:
        counts: `[G, K]`, integers or floats: the reports of each group per category. A group may be empty. Or a list of
            G mixtures over the same K categories.
        epsilons: `[G]`, nats; not with mixtures.
        tol: `converged` is whether the certified gap is at most this, nats per report. As in `rrjax.ibu`, None is
            1e-10, or the smallest gap that the dtype can certify, if that is more.

    Returns:
        An `EMResult`; its `num_iters` are steps on that number. For one group theta is that of `mle_star` up to the
        rounding of q + d·θ. All-NaN theta and gap, not converged, for unusable counts or an ε that is not positive.
        Derivatives of theta in float counts and in the epsilons by the implicit function on the support, of
        every order and in both modes, at a category about to enter, the one-sided derivatives with it absent. The other
        fields have none. For mixtures `num_iters` and derivatives are those of `rrjax.ibu`.

    Raises:
        ValueError: Shapes that do not fit, K < 2, a wrong dtype, a `tol` that is not positive, mixtures of different K,
            or ε with mixtures.

    Example:
        >>> import rrjax
        >>> counts = [[50, 30, 10, 10], [400, 80, 10, 10]]  # 100 users at ε = 1, 500 at ε = 3
        >>> result = rrjax.surveys.groups.mle(counts, epsilons=[1.0, 3.0])
        >>> [round(t, 2) for t in result.theta.tolist()], bool(result.converged)
        ([0.87, 0.13, 0.0, 0.0], True)

        The same survey with two dice:

        >>> fair, loaded = (rrjax.mechanisms.ForcedResponse(truth, [0.5, 0.5]) for truth in (2 / 3, 0.9))
        >>> parts = [fair.mixture_of_counts([300, 700]), loaded.mixture_of_counts([115, 385])]
        >>> [round(t, 2) for t in rrjax.surveys.groups.mle(parts).theta.tolist()]
        [0.2, 0.8]
    """
    if _listed(Mixture, counts) is not None:
        likelihood = mixture(counts, epsilons)
        few = likelihood.num_categories <= MAX_NEWTON_CATEGORIES
        return ibu(likelihood, accelerate="newton" if few else "anderson", tol=tol)
    if isinstance(tol, int | float) and not tol > 0:
        raise ArgumentError(f"tol must be positive, got {tol}", argument="tol", value=tol)
    counts, epsilons = with_sharding_of(_checked(counts, epsilons))
    result = _solve(lax.stop_gradient(counts), lax.stop_gradient(epsilons), tol)
    return result._replace(theta=with_derivative(_tangent, result.theta, (counts, epsilons)))


def inv(counts: ArrayLike | Sequence[Tally], epsilons: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates shares from several groups by the weighted mean of their inversions: unbiased, often negative.

    θ_i = Σ_g d_g·(c_gi − N_g·q_g) / Σ_g N_g·d_g². Each group's own inversion has the total variance
    (1 − Σ_i μ_gi²)/(N_g·d_g²), which is largest for the uniform distribution, in all groups; the weights N_g·d_g²
    minimize this largest variance, and do not depend on the answers. Groups of other mechanisms have the weights
    N_g/v_g, where v_g is the total variance of one report for the uniform distribution.

    Args:
        counts: `[G, K]`, integers or floats: the reports of each group per category. A group may be empty. Or a list of
            G tallies over the same K categories.
        epsilons: `[G]`, nats; not with tallies.

    Returns:
        `[K]`, not confined to [0, 1]; it sums to one if each group's inversion does. All NaN for unusable counts or
        an ε that is not positive.
        Derivatives in floats and in the epsilons.

    Raises:
        ValueError: Shapes that do not fit, K < 2, a wrong dtype, tallies of different categories, or ε with tallies.

    Example:
        >>> import rrjax
        >>> counts = [[50, 30, 10, 10], [400, 80, 10, 10]]
        >>> [round(t, 2) for t in rrjax.surveys.groups.inv(counts, epsilons=[1.0, 3.0]).tolist()]
        [0.92, 0.15, -0.03, -0.03]
    """
    if (tallies := _listed(Tally, counts)) is not None:
        _check_alike(tallies, epsilons, [part.support.shape[0] for part in tallies])
        return _pooled(tallies)
    return _inverted(*with_sharding_of(_checked(counts, epsilons)))


def mixture(counts: ArrayLike | Sequence[Mixture], epsilons: ArrayLike | None = None) -> Mixture:
    """The likelihood of groups of users who randomized differently, for `nll`, `score`, `certificate` and `ibu`.

    Args:
        counts: As of `mle`.
        epsilons: As of `mle`.

    Returns:
        `Mixture`, a row for each category of each group: a = q_g and B = (p_g − q_g)·I; or the rows of all mixtures.

    Raises:
        ValueError: As `mle`, or (not under tracing) invalid counts.

    Example:
        >>> import rrjax
        >>> counts = [[50, 30, 10, 10], [400, 80, 10, 10]]
        >>> likelihood = rrjax.surveys.groups.mixture(counts, epsilons=[1.0, 3.0])
        >>> [round(t, 2) for t in rrjax.ibu(likelihood).theta.tolist()]
        [0.87, 0.13, 0.0, 0.0]
    """
    if (parts := _listed(Mixture, counts)) is not None:
        _check_alike(parts, epsilons, [part.num_categories for part in parts])
        weights = [jnp.asarray(part.weights) for part in parts]
        dtype = jnp.result_type(*weights) if len({each.dtype for each in weights}) == 1 else float_dtype()
        bases = [jnp.broadcast_to(jnp.asarray(part.base, float_dtype()), part.lift.shape[:1]) for part in parts]
        lift = Concatenated(tuple(part.lift for part in parts))
        return Mixture(jnp.concatenate([each.astype(dtype) for each in weights]), jnp.concatenate(bases), lift)
    counts, epsilons = _checked(counts, epsilons)
    return _mixture(*with_sharding_of((counts, epsilons)))


def _listed(kind: type[Part], parts: Any) -> list[Part] | None:
    """A list of mixtures, or of tallies; None for other arguments."""
    listed = isinstance(parts, list | tuple) and len(parts) > 0 and all(isinstance(part, kind) for part in parts)
    return list(parts) if listed else None


def _check_alike(parts, epsilons, sizes):
    if epsilons is not None:
        message = "mixtures and tallies have their own probabilities: leave epsilons out"
        raise ArgumentError(message, argument="epsilons")
    if len(set(sizes)) > 1:
        raise ArgumentError(f"the groups must have the same categories, got K = {sizes}", argument="counts")
    domains = [part.domain for part in parts if isinstance(part, Tally) and part.domain is not None]
    other = next((each for each in domains if each != domains[0]), None)
    if other is not None:
        raise ArgumentError(
            f"the groups have other labels: {difference(domains[0], other)}. Count all with one domain",
            argument="counts",
        )


def _checked(counts, epsilons):
    if epsilons is None:
        raise ArgumentError("epsilons is missing: counts need it, [G]; lists of mixtures do not", argument="epsilons")
    if not isinstance(counts, jax.Array):
        counts = np.asarray(counts)
    if counts.ndim != 2 or counts.shape[0] < 1 or counts.shape[1] < 2:
        raise ArgumentError.about(
            "counts", f"must have shape [G, K], a row a group, with K >= 2 categories; got {counts.shape}"
        )
    shape = counts.shape
    counts = as_counts(unsharded(counts).reshape(-1)).reshape(shape)
    epsilons = epsilons if isinstance(epsilons, jax.Array) else np.asarray(epsilons)
    if epsilons.shape != shape[:1]:
        raise ArgumentError.about("epsilons", f"must have shape [{shape[0]}], one a group; got {epsilons.shape}")
    if not is_real(epsilons):
        raise ArgumentError(f"epsilons must be real numbers, got dtype {epsilons.dtype}", argument="epsilons")
    return counts, jnp.asarray(epsilons).astype(float_of(counts))


def _mixture(counts, epsilons):
    kept, noise = _rates(epsilons, counts.shape[1])
    return Mixture(counts.ravel(), jnp.repeat(noise, counts.shape[1]), Stacked(kept, counts.shape[1]))


def _rates(epsilons, num_categories):
    """D = p − q and q of every group."""
    e1 = jax.vmap(expm1_epsilon)(epsilons)
    return e1 / (e1 + num_categories), 1 / (e1 + num_categories)


@jax.jit
def _slopes(theta, counts, epsilons):
    """h_i/E and −h_i'/E², and E: one, or the largest e_g if that is less, so that both stay within the dtype."""
    # A probability below the square of the machine epsilon is negligible compared with the share of one user.
    e1 = jnp.minimum(jax.vmap(expm1_epsilon)(epsilons), jnp.finfo(epsilons.dtype).eps ** -2.0)
    unit = lax.stop_gradient(jnp.minimum(jnp.max(e1), 1))
    over = (e1 / unit)[:, None] / (1 + e1[:, None] * theta)
    parts = counts.astype(theta.dtype) * over
    return jnp.sum(parts, axis=0), jnp.sum(parts * over, axis=0), unit


@jax.jit
def _solve(counts, epsilons, tol):
    usable = count_summary(counts.ravel()).usable & jnp.all(epsilons > 0)
    counts, epsilons = jnp.where(usable, counts, 1), jnp.where(usable, epsilons, 1)

    def toward(s, theta):
        """Newton steps from below to the solutions θ_i of E/h_i = s."""

        def step(_, theta):
            h, fall, unit = _slopes(theta, counts, epsilons)
            reported = h > 0
            rise = h * (s * h - 1) / jnp.where(reported, fall, 1) / unit
            return jnp.where(reported, jnp.clip(theta + rise, 0, 1), 0)  # no s exceeds the first, so no θ_i exceeds 1

        return lax.fori_loop(0, INNER_STEPS, step, theta)

    def advance(carry):
        s, _, theta, num_iters = carry
        theta = toward(s, theta)
        h, fall, unit = _slopes(theta, counts, epsilons)
        speed = jnp.where(theta > 0, h * (h / jnp.where(theta > 0, fall, 1)), 0)  # E·dθ/ds = h²/−h'
        next_s = s - (accurate_sum(theta) - 1) / accurate_sum(speed) * unit
        return next_s, s, theta, num_iters + 1

    def falls(carry):
        s, previous, _, num_iters = carry
        return (s < previous) & (num_iters < MAX_OUTER_STEPS)

    uniform = jnp.full(counts.shape[1], 1 / counts.shape[1], epsilons.dtype)
    # At this s the leading category has θ_i = 1 and the others at least 0, so the root is at or below.
    first = 1 / jnp.max(_slopes(jnp.ones_like(uniform), counts, epsilons)[0])
    start = with_sharding_of(
        (first, jnp.full_like(first, jnp.inf), jnp.zeros_like(uniform), jnp.int32(0)), counts, epsilons
    )
    _, _, theta, num_iters = lax.while_loop(falls, advance, start)
    # For ε so small that no share differs from zero in the dtype, the leading category gets the share one.
    slope = _slopes(jnp.zeros_like(theta), counts, epsilons)[0]
    theta = jnp.where(jnp.any(theta > 0), theta, (slope == jnp.max(slope)).astype(theta.dtype))
    theta = theta / accurate_sum(theta)

    _, reports = as_mixture(_mixture(counts, epsilons), None, theta)
    gap = certificate_of(theta, reports).gap
    rounding = rounding_of_slopes(reports.slopes(theta))
    converged = usable & (gap <= (jnp.maximum(1e-10, 4 * rounding) if tol is None else tol))
    return EMResult(jnp.where(usable, theta, jnp.nan), jnp.where(usable, gap, jnp.nan), num_iters, converged)


def _pooled(tallies):
    size = tallies[0].support.shape[0]
    # The estimate of an empty group is NaN.
    shares = jnp.stack([jnp.where(part.num_users > 0, closed_form.inv(part), 0) for part in tallies])
    numbers = jnp.stack([jnp.asarray(part.num_users).astype(shares.dtype) for part in tallies])
    spreads = [part.rates.astype(shares.dtype).variance_of_drawn(size) for part in tallies]
    spreads = jnp.stack([jnp.mean(jnp.broadcast_to(each, (size,))) for each in spreads])
    weights = numbers * (jnp.min(spreads) / spreads)
    return matmul(weights / jnp.sum(weights), shares)


@jax.jit
def _inverted(counts, epsilons):
    usable = count_summary(counts.ravel()).usable & jnp.all(epsilons > 0)
    kept, noise = _rates(epsilons, counts.shape[1])
    weights = counts.astype(epsilons.dtype)
    numbers = jax.vmap(accurate_sum)(weights)
    scale = jnp.max(kept)  # a square of kept/scale underflows only if it is negligible
    part = kept / scale
    above = part[:, None] * (weights - (numbers * noise)[:, None])
    return jnp.where(usable, jnp.sum(above, axis=0) / jnp.sum(numbers * part**2) / scale, jnp.nan)


def _tangent(theta, given, given_tangent):
    """The tangent of θ in the counts and epsilons, by the implicit function theorem on the support."""
    _, moved = jax.jvp(lambda counts, epsilons: _slopes(theta, counts, epsilons)[0], given, given_tangent)
    return _shifted(theta, *given, moved)


@jax.jit
def _shifted(theta, counts, epsilons, moved):
    """The tangent of θ: it keeps all h_i/E equal on the support and the sum of θ, if h_i/E moves by `moved`."""
    active = lax.stop_gradient(theta) > 0
    _, fall, unit = _slopes(theta, counts, epsilons)
    response = jnp.where(active, 1 / jnp.where(active, fall, 1), 0)
    common = jnp.sum(response * moved) / jnp.sum(response)
    return jnp.where(active, response * (moved - common) / unit, 0)
