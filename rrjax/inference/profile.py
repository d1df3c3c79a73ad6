r"""Profile log-likelihood of one category, and likelihood surfaces for two and three categories.

With θ_i = t given, the others sum to 1 − t, and their maximum is that of K − 1 categories with e1·(1 − t) in place of
e1 = e^ε − 1: the largest m of them are active, c_(k) among them if Σ_{j<k} (c_(j) − c_(k)) < e1·(1 − t)·c_(k), which is
monotone in k. So one sort and cumulative sums serve every category and every t, by a binary search.

Log-likelihoods are relative to the maximum, and every sum starts there: from m̂ to m active categories the terms are
small near m̂, so that float32 keeps its digits at any N.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_category, as_counts_and_epsilon, as_probability, complement
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.estimators.closed_form import mle_star
from rrjax.inference.distribution_tests import likelihood_ratio
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.solvers import bisected, first_place, with_derivative_of_root
from rrjax.numerics.special import log1p_minus
from rrjax.numerics.sums import expm1_epsilon, ratio


class Sorted(NamedTuple):
    """Sorted counts and their sums, for the profiles of all categories.

    Attributes:
        counts: `[K]`, descending, integers.
        lacks: `[K]`, integers: Σ_{j<k} (c_(j) − c_(k)).
        sums: `[K + 1]`: of the largest 0 … K counts.
        deviances: `[K + 1]`: Σ c_(j)·log(c_(j)/τ₀) − c_(j) + τ₀ over the categories from m₀ to 0 … K, signed.
        lifts: `[K + 1]`: Σ (τ₀ − c_(j)) over the same.
        start: Scalar, integer, m₀: the number of active categories at the maximum.
        base: Scalar, τ₀: the threshold at m₀, τ̂.
        threshold: Scalar, τ̂: c_i/(1 + e1·θ̂_i) of every category that is active at the maximum.
        e1: Scalar, e^ε − 1.
    """

    counts: Int[Array, " K"]
    lacks: Int[Array, " K"]
    sums: Float[Array, " K+1"]
    deviances: Float[Array, " K+1"]
    lifts: Float[Array, " K+1"]
    start: Int[Array, ""]
    base: Float[Array, ""]
    threshold: Float[Array, ""]
    e1: Float[Array, ""]


@exportable
class ProfileLikelihood(NamedTuple):
    """The profile log-likelihood of the share of one category; call it with shares.

    Attributes:
        estimate: Scalar: the maximum likelihood estimate of the share.
        reports: Scalar: the number of reports that name the category.
        place: Scalar: its place among the sorted counts.
        shared: `Sorted`.
    """

    estimate: Float[Array, ""]
    reports: Float[Array, ""]
    place: Int[Array, ""]
    shared: Sorted

    def __call__(self, share: ArrayLike) -> Float[Array, "*s"]:
        """The profile log-likelihood at shares.

        Args:
            share: `[*s]`, values for θ_i.

        Returns:
            `[*s]`, nats: the largest log-likelihood with this θ_i minus the overall maximum; zero at the estimate, −∞
            outside [0, 1]. Derivatives in the share.
        """
        return _relative(self.shared, self.estimate, self.reports, self.place, jnp.asarray(share, self.estimate.dtype))


def profile(counts: ArrayLike, epsilon: ArrayLike, category: ArrayLike) -> ProfileLikelihood:
    """The profile log-likelihood of one category's share: its maximum over all other shares.

    One sort, then O(log K) for each share. It is for figures and for comparing shares. Intervals bounded by a fall of
    half a χ² quantile fail at the boundary (`intervals` warns), above all if many categories are near it.

    Args:
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.
        category: Scalar integer, 0 … K − 1; traced, so that all categories compile once.

    Returns:
        `ProfileLikelihood`, a function of the share: `profile(counts, epsilon, 3)([0.1, 0.2])` is the total
        log-likelihood, nats, minus its maximum. Absolute error some machine epsilons times √N within a few nats of the
        maximum; relative error some machine epsilons far from it. NaN for unusable counts or ε, or (under tracing) a
        category outside 0 … K − 1.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or (not under tracing) no such category.

    Example:
        >>> import rrjax
        >>> likelihood = rrjax.inference.profile([5_200, 2_900, 1_000, 900], 2.0, category=1)
        >>> [f"{value:.2f}" for value in likelihood([0.27, likelihood.estimate, 0.33]).tolist()]
        ['-17.55', '0.00', '-3.17']
    """
    counts, epsilon = as_counts_and_epsilon(counts, epsilon, whole=True)
    return _profile(counts, epsilon, with_sharding_of(as_category(category, counts.shape[0]), counts))


@jax.jit
def _profile(counts, epsilon, category):
    shared, estimate, place = prepared(counts, epsilon, category)
    inside = (category >= 0) & (category < counts.shape[0])
    share = jnp.where(inside, estimate[category], jnp.nan)
    return ProfileLikelihood(share, counts[category].astype(epsilon.dtype), place[category], shared)


def prepared(
    counts: Int[Array, " K"], epsilon: Float[Array, ""], category: Int[Array, ""] | None = None
) -> tuple[Sorted, Float[Array, " K"], Int[Array, " K"]]:
    """Sorted counts and their sums, MLE*, and the place of each category.

    If one category alone is active at the maximum, its own profile starts elsewhere: with its share below one, others
    must be active, the largest first, with thresholds that begin at their count and not at τ̂. So `category` must be
    given for the profile of one category; without it, the result serves all others.
    """
    estimate = mle_star(counts, epsilon)
    order = jnp.argsort(-counts, stable=True)
    place = jnp.zeros(counts.shape[0], jnp.int32).at[order].set(jnp.arange(counts.shape[0], dtype=jnp.int32))
    falling = counts[order]
    sums = jnp.cumsum(falling)
    number = jnp.arange(1, counts.shape[0] + 1, dtype=counts.dtype)
    active = jnp.sum(estimate > 0, dtype=jnp.int32)
    # Exactly one if one category alone is active: the likelihood has a slope there.
    estimate = jnp.where((estimate > 0) & (active == 1), 1, estimate)
    e1 = expm1_epsilon(epsilon)
    kept = jnp.sum(jnp.where(estimate > 0, counts, 0)).astype(e1.dtype)
    threshold = ratio(kept, e1 + active.astype(e1.dtype))
    weights = falling.astype(e1.dtype)
    alone = (
        jnp.zeros((), bool)
        if category is None
        else (order[0].astype(category.dtype) == category) & (active == 1) & (falling[1] > 0)
    )
    start, base = jnp.where(alone, 2, active), jnp.where(alone, weights[1], threshold)
    zero = jnp.zeros_like(weights[:1])
    shared = Sorted(
        counts=falling,
        lacks=sums - number * falling,
        sums=jnp.concatenate([zero, sums.astype(e1.dtype)]),
        deviances=_outward(_deviance(weights, base), start),
        lifts=_outward(base - weights, start),
        start=start,
        base=base,
        threshold=threshold,
        e1=e1,
    )
    return shared, estimate, place


def _deviance(count, threshold):
    """c·log(c/τ) − c + τ, without cancellation."""
    change = ratio(count - threshold, threshold)
    small = jnp.where((count > 0) & (change < 1), change, 0)
    of_small = threshold * ((1 + small) * log1p_minus(small) + small**2)
    of_large = count * jnp.log1p(jnp.maximum(change, 0)) - (count - threshold)
    return jnp.where(count > 0, jnp.where(change < 1, of_small, of_large), threshold)


def _outward(terms, start):
    """`[K + 1]`, the sums of terms between a place and every other one, negative below it."""
    index = jnp.arange(terms.shape[0], dtype=jnp.int32)
    zero = jnp.zeros_like(terms[:1])
    above = jnp.cumsum(jnp.where(index >= start, terms, 0))
    below = jnp.cumsum(jnp.where(index < start, terms, 0)[::-1])[::-1]
    return jnp.concatenate([zero, above]) - jnp.concatenate([below, zero])


def _relative(shared, estimate, count, place, share):
    """The profile log-likelihood at shares, of the categories given by estimate, count and place: all broadcast."""
    dtype = shared.e1.dtype
    left = shared.e1 * (1 - lax.stop_gradient(share))
    size = shared.counts.shape[0]
    whole = count.astype(shared.counts.dtype)

    def fits(number):
        """Whether the category at a place is active, with all larger ones except the given one."""
        c = shared.counts[jnp.clip(number, 0, size - 1)]
        lack = shared.lacks[jnp.clip(number, 0, size - 1)] - jnp.where(place < number, whole - c, 0)
        # The given category does not count among the others; in the first place it must not stop the search.
        return (lack.astype(dtype) < left * c.astype(dtype)) | ((number == 0) & (place == 0))

    shape = jnp.broadcast_shapes(share.shape, place.shape)
    number = first_place(fits, with_sharding_of(jnp.zeros(shape, jnp.int32), shared, place, share), size)
    inside = (place < number).astype(dtype)
    moved = inside - (place < shared.start).astype(dtype)
    deviance = shared.deviances[number] - moved * _deviance(count, shared.base)
    lift = shared.lifts[number] - moved * (shared.base - count)
    total = shared.sums[number] - inside * count
    step = shared.e1 * (share - estimate)
    # 1 + e1·θ̂ is c/τ̂ if the category is active.
    positive = (estimate > 0) & (count > 0)
    change = step * jnp.where(positive, shared.threshold / jnp.where(positive, count, 1), 1)
    # τ₀/τ − 1 of the others, from τ = S/(e + m) and S = τ₀·(e + m) at the maximum.
    some = total > 0
    push = jnp.where(some, (lift - shared.base * step) / jnp.where(some, total, 1), 0)
    # The linear parts of c·log(1 + change) + S·log(1 + push) + Σ c·log(c/τ₀) cancel if the category is active. The
    # remainder is small, so the logarithms are taken without their linear parts.
    linear = (jnp.where(positive, shared.threshold, count) - shared.base) * step
    alone = count * change - lift  # all others at zero
    value = deviance + jnp.where(some, linear, alone) + total * log1p_minus(push)
    change = jnp.where(count > 0, jnp.maximum(change, -1), 0)
    value = value + jnp.where(count > 0, count * log1p_minus(change), 0)
    value = jnp.where((share >= 0) & (share <= 1), jnp.minimum(value, 0), -jnp.inf)
    return jnp.where(jnp.isnan(estimate), jnp.nan, value)


@jax.jit
def profile_limits(
    counts: Int[Array, " K"], epsilon: Float[Array, ""], log_tail: Float[Array, ""]
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """The shares where the profiles of all categories have fallen by half the χ² quantile of two tails."""
    bound = -(ndtri(jnp.exp(log_tail)) ** 2) / 2
    above = _above(lax.stop_gradient((counts, epsilon, bound)))
    estimate = lax.stop_gradient(prepared(counts, epsilon)[1])

    def search(outer):
        limit = bisected(lambda share: above(share) >= 0, estimate, outer, jnp.finfo(estimate.dtype).nmant + 6)[1]
        limit = with_derivative_of_root(lambda share, given: _above(given)(share), limit, (counts, epsilon, bound))
        return jnp.where(above(outer) >= 0, outer, limit)

    return search(jnp.zeros_like(estimate)), search(jnp.ones_like(estimate))


def _above(given):
    """The function of shares `[K]` that returns how far the profiles of all categories are above a bound."""
    counts, epsilon, bound = given
    shared, estimate, place = prepared(counts, epsilon)
    weights = counts.astype(estimate.dtype)
    largest = jnp.argmax(counts)
    of_largest = _profile(counts, epsilon, largest)

    def above(share):
        value = _relative(shared, estimate, weights, place, share)
        return value.at[largest].set(of_largest(share[largest])) - bound

    return above


@exportable
class Surface(NamedTuple):
    """The log-likelihood over a grid of the simplex.

    Attributes:
        theta: `[M, K]`, the points.
        log_likelihood: `[M]`, nats, total, minus its maximum over the simplex.
        inside: `[M]`, whether the point is in the likelihood-ratio region at the level.
        estimate: `[K]`, the maximum likelihood estimate.
    """

    theta: Float[Array, "M K"]
    log_likelihood: Float[Array, " M"]
    inside: Bool[Array, " M"]
    estimate: Float[Array, " K"]


def log_likelihood_surface(
    counts: ArrayLike, epsilon: ArrayLike, *, num_points: int = 101, level: ArrayLike = 0.95
) -> Surface:
    """The log-likelihood of two or three categories over the whole simplex, for figures.

    Args:
        counts: `[K]`, integers, the reports per category; K is 2 or 3.
        epsilon: Scalar, nats.
        num_points: Grid points along an edge, at least 2; a triangle has num_points·(num_points + 1)/2. Static.
        level: Scalar in (0, 1), of the likelihood-ratio region: where the log-likelihood lies within half the χ²
            quantile (K − 1 degrees of freedom) of its maximum. It covers θ with about its level inside the simplex, but
            not near its boundary; `intervals` and `likelihood_ratio_test` are valid there too.

    Returns:
        `Surface`; for two categories in the order of a rising θ_1. For unusable counts or ε the log-likelihood and the
        estimate are NaN, and no point is inside.

    Raises:
        ValueError: A wrong shape or dtype, K other than 2 or 3, fewer than 2 points, or a level outside (0, 1).

    Example:
        >>> import rrjax
        >>> surface = rrjax.inference.log_likelihood_surface([620, 380], epsilon=1.0, num_points=201)
        >>> band = surface.theta[surface.inside, 0]
        >>> print(f"{band.min():.3f} to {band.max():.3f}")
        0.695 to 0.820

    References:
        Wilks, "The large-sample distribution of the likelihood ratio", 1938.
    """
    as_probability(level, "level", 0.95)
    counts, epsilon = as_counts_and_epsilon(counts, epsilon, whole=True)
    if counts.shape[0] not in (2, 3):
        raise ArgumentError(
            f"a surface can be drawn of 2 or 3 categories, got K = {counts.shape[0]}; see `profile`", argument="counts"
        )
    num_points = as_integer(num_points, "num_points", 2)
    return _surface(counts, epsilon, complement(level), num_points)


@partial(jax.jit, static_argnums=3)
def _surface(counts, epsilon, miss, num_points):
    last = num_points - 1
    grid = np.arange(num_points)
    if counts.shape[0] == 2:
        points = np.stack([grid, last - grid], axis=1)
    else:
        first, second = np.divmod(np.arange(num_points**2), num_points)
        points = np.stack([first, second, last - first - second], axis=1)[first + second <= last]
    theta = jnp.asarray(points / last, epsilon.dtype)
    estimate = mle_star(counts, epsilon)
    value = -jax.vmap(lambda point: likelihood_ratio(counts, epsilon, point))(theta) / 2
    # Half the χ² quantile with one or with two degrees of freedom.
    bound = -(ndtri(miss / 2) ** 2) / 2 if counts.shape[0] == 2 else jnp.log(miss)
    return Surface(theta, value, value >= bound, estimate)
