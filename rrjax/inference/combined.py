"""Estimates of a population: differences of collections, and strata of known shares."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import (
    Estimand,
    as_counts,
    as_one_or_each,
    as_scalar,
    complement,
    float_dtype,
)
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Rates, SupportData, Tally, support_data
from rrjax.inference.bounded_means import Collections, combined_limits, conservative_limits, spread_of
from rrjax.inference.functionals import (
    Estimate,
    Scale,
    as_known_numbers,
    as_numbers,
    check_options,
    kind_of,
    linear_functional,
    normal_limits,
    unbiased_estimate,
)
from rrjax.inference.intervals import Looks, within
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.numerics.sharding import unsharded, with_sharding_of

CombinedMethod: TypeAlias = Literal["conservative", "normal"]

MISS_OF_RANGES = 1 / 20
"""Part of 1 − level for the ranges of the collections' own means."""
ROUNDING_OF_SUM = 1e-4
"""Allowed distance of the sum of a population's shares from one: published shares are rounded."""


def difference(
    first: ArrayLike | Tally,
    second: ArrayLike | Tally,
    epsilon: ArrayLike | tuple[ArrayLike | None, ArrayLike | None] | None = None,
    *,
    values: ArrayLike,
    level: ArrayLike = 0.95,
    method: CombinedMethod | None = None,
    estimand: Estimand = "distribution",
    mechanism: Mechanism | Sequence[Mechanism] | None = None,
    looks: Looks | None = None,
    tuned_to: ArrayLike = 10_000,
) -> Estimate:
    """Estimates the difference of Σ_i c_i·θ_i between two collections, with a confidence interval.

    The collections are independent, of different users; their sizes and their ε may differ.

    * "conservative", the default: holds for every N, ε and θ. It inverts a Chernoff bound for both together, at the
        worst pair of means (`rrjax.inference.bounded_means`). Of tallies whose reports may name several categories, or
        deny one, it is the difference of two intervals at the square root of the level.
    * "normal": estimate ± quantile · standard error, as in `linear_functional`.

    Args:
        first: `[K]`, integers, the reports per category; or a `Tally`.
        second: As `first`, of the same categories.
        epsilon: Nats: one for both, or a pair; None for a tally.
        values: `[K]`, c. For a group ones and zeros; for one category a one and zeros.
        level: Scalar in (0, 1), of the interval.
        method: As above.
        estimand: "distribution" or "users", as in `linear_functional`.
        mechanism: Of tallies, as in `linear_functional`: one for both, or a pair.
        looks: As in `linear_functional`: with "any" the interval holds at all sizes of both collections at once. It is
            the difference of two intervals at the square root of the level.
        tuned_to: As in `linear_functional`, of users of each collection.

    Returns:
        `Estimate` of the first minus the second. The limits are NaN if no distributions explain the reports, as in
            `linear_functional`. All NaN for unusable counts or ε.

    Raises:
        ValueError: As `linear_functional`, different categories, or more than two ε.

    Example:
        >>> import rrjax
        >>> before, after = [5_200, 2_900, 1_000, 900], [2_400, 1_700, 1_250, 1_150]
        >>> estimate = rrjax.inference.difference(after, before, (1.0, 2.0), values=[0, 1, 2, 3])
        >>> print(f"{estimate.value:.3f} ± {estimate.standard_error:.3f}, {estimate.lower:.3f} to {estimate.upper:.3f}")
        0.128 ± 0.049, -0.017 to 0.275

    References:
        Berger and Boos, "P values maximized over a confidence set for the nuisance parameter", 1994.
    """
    check_options(method, get_args(CombinedMethod), estimand, level)
    pair, signs = _pair(epsilon), jnp.asarray([1, -1], float_dtype())
    if looks is not None:
        how: Any = {"method": method, "estimand": estimand, "looks": looks, "tuned_to": tuned_to}
        each = mechanism if isinstance(mechanism, list | tuple) else (mechanism, mechanism)
        return _sum_of_intervals((first, second), pair, signs, values, level, each, **how)
    if isinstance(first, Tally) or isinstance(second, Tally):
        return _of_tallies((first, second), pair, signs, values, level, method, estimand, mechanism)
    counts = [as_counts(each, name, whole=True) for each, name in ((first, "first"), (second, "second"))]
    if counts[0].shape != counts[1].shape:
        sizes = " and of ".join(str(each.shape[0]) for each in counts)
        raise ArgumentError(
            f"collections of {sizes} categories have no difference: count both over all categories", argument="second"
        )
    c = as_numbers(values, counts[0].shape[0])
    epsilons = jnp.stack([as_scalar(each, float_dtype()) for each in pair])
    return _combine(_of_counts(jnp.stack(counts), epsilons), signs.astype(c.dtype), c, level, method, estimand)


def stratified(
    counts: ArrayLike | Sequence[Tally],
    epsilon: ArrayLike | None = None,
    *,
    shares: ArrayLike,
    values: ArrayLike,
    level: ArrayLike = 0.95,
    method: CombinedMethod | None = None,
    estimand: Estimand = "distribution",
    mechanism: Mechanism | Sequence[Mechanism] | None = None,
) -> Estimate:
    """Estimates Σ_s W_s·(c·θ_s), the mean of c over a population, from collections in strata of known shares W_s.

    Strata may be sampled at any rates: each is weighted by its share of the population, not of the users. Their ε may
    differ. From tallies whose reports may name several categories, or deny one, the interval is the sum of those of the
    strata, each at the S-th root of the level; it is far longer.

    Args:
        counts: `[S, K]`, integers, the reports per category in each of two or more strata; or a sequence of S tallies.
        epsilon: Nats: scalar, or `[S]`; not with tallies.
        shares: `[S]`, W, shares of the strata in the population; not negative, with a sum of one.
        values: `[K]`, c. For a group ones and zeros; for one category a one and zeros.
        level: Scalar in (0, 1), of the interval.
        method: "conservative", the default, or "normal", as in `difference`.
        estimand: "distribution" or "users", as in `linear_functional`.
        mechanism: Of tallies, as in `linear_functional`: one for all, or a sequence.

    Returns:
        `Estimate`. The limits are NaN if no distributions explain the reports, as in `linear_functional`. All NaN for
            unusable counts, ε or (under tracing) shares.

    Raises:
        ValueError: As `linear_functional`, fewer than two strata, or (not under tracing) a stratum without reports or
            with an invalid share, with its row.

    Example:
        >>> import rrjax
        >>> counts = [[520, 290, 100, 90], [2_400, 1_700, 1_250, 1_150]]
        >>> estimate = rrjax.inference.stratified(counts, 2.0, shares=[0.8, 0.2], values=[0, 1, 2, 3])
        >>> print(f"{estimate.value:.3f} ± {estimate.standard_error:.3f}, {estimate.lower:.3f} to {estimate.upper:.3f}")
        0.432 ± 0.040, 0.307 to 0.568

    References:
        Cochran, "Sampling techniques", 3rd edition, 1977, chapter 5.
    """
    check_options(method, get_args(CombinedMethod), estimand, level)
    if isinstance(counts, list | tuple) and len(counts) > 1 and all(isinstance(each, Tally) for each in counts):
        weights = _as_shares(shares, len(counts))
        return _of_tallies(counts, [epsilon] * len(counts), weights, values, level, method, estimand, mechanism)
    counts = counts if isinstance(counts, jax.Array) else np.asarray(counts)
    if counts.ndim != 2 or counts.shape[0] < 2 or counts.shape[1] < 2:
        raise ArgumentError(
            f"counts must have shape [S, K], a row for each of two strata or more, got {tuple(counts.shape)}; for one "
            "collection see `linear_functional`",
            argument="counts",
        )
    shape = counts.shape
    counts = as_counts(unsharded(counts).reshape(-1), whole=True, summed=False).reshape(shape)
    if not isinstance(counts, Tracer):
        empty = np.flatnonzero(np.asarray(counts).sum(axis=1) <= 0)
        if empty.size:
            raise ArgumentError(
                f"row {empty[0]} of counts has no reports: merge this stratum with another one", argument="counts"
            )
    c = as_numbers(values, shape[1])
    shares = _as_shares(shares, shape[0])
    epsilons = jnp.broadcast_to(as_one_or_each(epsilon, shape[0], "strata"), shape[:1])
    return _combine(_of_counts(counts, epsilons), shares, c, level, method, estimand)


def _pair(epsilon: Any) -> tuple[Any, Any]:
    several = isinstance(epsilon, tuple | list) or (isinstance(epsilon, jax.Array | np.ndarray) and epsilon.ndim > 0)
    if several and len(epsilon) != 2:
        raise ArgumentError.about(
            "epsilon", f"must be one number or a pair, for the first and the second; got {len(epsilon)}"
        )
    return (epsilon[0], epsilon[1]) if several else (epsilon, epsilon)


def _as_shares(shares, number):
    shares, known = as_known_numbers(shares, "shares", number, "strata")
    if known is not None:
        wrong = np.flatnonzero(~(np.isfinite(known) & (known >= 0)))
        if wrong.size:
            raise ArgumentError(
                f"the share of stratum {wrong[0]} is {known[wrong[0]]:g}: shares are from 0 to 1", argument="shares"
            )
        if abs(known.sum() - 1) > ROUNDING_OF_SUM:
            raise ArgumentError.about("shares", f"add up to {known.sum():g}, not to one: divide them by their sum")
    return jnp.asarray(shares).astype(float_dtype())


def _of_tallies(collections, epsilons, weights, values, level, method, estimand, mechanism):
    """The estimate from collections of which some are tallies."""
    each = mechanism if isinstance(mechanism, list | tuple) else [mechanism] * len(collections)
    if len(each) != len(collections):
        raise ArgumentError.about("mechanism", f"must be one, or {len(collections)}, got {len(each)}")
    kinds = {kind_of(one, own) for one, own in zip(collections, each, strict=True)}
    sizes = {one.num_categories for one in collections if isinstance(one, Tally)}
    if kinds == {"named"} and len(sizes) == 1:
        data = [support_data(one, epsilon) for one, epsilon in zip(collections, epsilons, strict=True)]
        # The rates of designs are `[K]`, those of randomized response scalars.
        data = [one._replace(rates=Rates(*(jnp.broadcast_to(w, one.support.shape) for w in one.rates))) for one in data]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
        return _combine(stacked, weights, as_numbers(values, *sizes), level, method, estimand, "named")
    return _sum_of_intervals(collections, epsilons, weights, values, level, each, method, estimand=estimand)


def _sum_of_intervals(collections, epsilons, weights, values, level, mechanisms, method, **how):
    """The weighted sum of independent intervals that cover together with the level."""
    power = 1 / len(collections)
    own = level**power if isinstance(level, Tracer) else float(np.asarray(level, np.float64) ** power)
    each = [
        linear_functional(one, epsilon, values=values, level=own, method=method, mechanism=mechanism, **how)
        for one, epsilon, mechanism in zip(collections, epsilons, mechanisms, strict=True)
    ]
    estimates, errors, lower, upper = (jnp.stack(leaves) for leaves in zip(*each, strict=True))
    value, error = jnp.sum(weights * estimates), jnp.sqrt(jnp.sum((weights * errors) ** 2))
    if method == "normal":
        ends = jnp.min(jnp.asarray(values)), jnp.max(jnp.asarray(values))
        lower, upper = (jnp.where(jnp.isnan(lower), jnp.nan, end) for end in ends)
    ends = weights * lower.astype(weights.dtype), weights * upper.astype(weights.dtype)
    least, most = jnp.sum(jnp.minimum(*ends)), jnp.sum(jnp.maximum(*ends))
    if method != "normal":
        return Estimate(value, error, least, most)
    return Estimate(value, error, *within(*normal_limits(value, error, complement(level)), least, most))


@jax.jit
def _of_counts(counts: Int[Array, "S K"], epsilons: Float[Array, " S"]) -> SupportData:
    return jax.vmap(support_data)(counts, epsilons)


def _combine(data, weights, c, level, method, estimand, kind="counts"):
    return _combined(*with_sharding_of((data, weights, c)), complement(level), method, estimand, kind)


@partial(jax.jit, static_argnums=(4, 5, 6))
def _combined(data, weights, c, miss, method, estimand, kind):
    scale = Scale.of(c)
    x, laws = scale.unit, None if kind == "counts" else data.rates.q
    spread, of_each = (spread_of(x), None) if laws is None else (jax.vmap(spread_of, (None, 0))(x, laws), 0)
    each = jax.vmap(lambda one: unbiased_estimate(one, x, kind, estimand))(data)
    value = jnp.sum(weights * each.value)
    error = jnp.sqrt(jnp.sum((weights * each.standard_error) ** 2))
    least, most = jnp.sum(jnp.minimum(weights, 0)), jnp.sum(jnp.maximum(weights, 0))
    if method == "normal":
        lower, upper = normal_limits(value, error, miss)
        own = -jnp.expm1(jnp.log1p(-miss) / weights.shape[0])
        ranges = within(*normal_limits(each.value, each.standard_error, own))
    else:
        tail_of_ranges = jnp.log(miss * MISS_OF_RANGES / (2 * weights.shape[0]))
        tail = jnp.log(miss * (1 - MISS_OF_RANGES) / 2)
        number, kept = jax.vmap(lambda one: (one.num_users, jnp.mean(one.rates.d)))(data)
        in_batch = jax.vmap(conservative_limits, (of_each, 0, 0, 0, None))
        ranges = within(*in_batch(spread, each.value, number, kept, tail_of_ranges))
        lower, upper = combined_limits(spread, Collections(each.value, number, kept, weights, *ranges), tail)
    lower = jnp.where(jnp.any(jnp.isnan(ranges[0]) & (weights != 0)), jnp.nan, lower)
    usable = jnp.all(data.usable) & scale.usable & (miss > 0) & (miss < 1)
    usable = usable & jnp.all(jnp.isfinite(weights))
    estimate = Estimate(value, error, *within(lower, upper, least, most))
    return scale.mapped(estimate, usable, jnp.sum(weights))
