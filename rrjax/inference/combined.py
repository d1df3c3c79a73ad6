"""Estimates of a population: differences of collections, strata of known shares, and weighted reports."""

from __future__ import annotations

import dataclasses
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
    as_probability,
    as_scalar,
    as_values,
    complement,
    float_dtype,
    is_real,
)
from rrjax.data.categories import check_num_categories
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
    least_variance,
    linear_functional,
    normal_limits,
    unbiased_estimate,
)
from rrjax.inference.intervals import within
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.numerics.pytrees import register
from rrjax.numerics.sharding import unsharded, with_sharding_of
from rrjax.numerics.special import odds_of_tail
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

CombinedMethod: TypeAlias = Literal["conservative", "normal"]

MISS_OF_RANGES = 1 / 20
"""Part of 1 − level for the ranges of the collections' own means."""
ROUNDING_OF_SUM = 1e-4
"""Allowed distance of the sum of a population's shares from one: published shares are rounded."""
SMALLEST_EFFECTIVE_SIZE = 2.0
"""Smallest effective sample size for a standard error; below it one report has nearly all the weight."""


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

    Returns:
        `Estimate` of the first minus the second. The limits are NaN if no distributions explain the reports, as in
            `linear_functional`. All NaN for unusable counts or ε.

    Raises:
        ValueError: As `linear_functional`, different categories, or more than two ε.

    Example:
        >>> import rrjax
        >>> before, after = [5_200, 2_900, 1_000, 900], [2_400, 1_700, 1_250, 1_150]
        >>> found = rrjax.inference.difference(after, before, (1.0, 2.0), values=[0, 1, 2, 3])
        >>> print(f"{found.value:.3f} ± {found.standard_error:.3f}, {found.lower:.3f} to {found.upper:.3f}")
        0.128 ± 0.049, -0.017 to 0.275

    References:
        Berger and Boos, "P values maximized over a confidence set for the nuisance parameter", 1994.
    """
    check_options(method, get_args(CombinedMethod), estimand, level)
    pair = _pair(epsilon)
    if isinstance(first, Tally) or isinstance(second, Tally):
        signs = jnp.asarray([1, -1], float_dtype())
        return _of_tallies((first, second), pair, signs, values, level, method, estimand, mechanism)
    counts = [as_counts(each, name, whole=True) for each, name in ((first, "first"), (second, "second"))]
    if counts[0].shape != counts[1].shape:
        sizes = " and of ".join(str(each.shape[0]) for each in counts)
        raise ArgumentError(
            f"collections of {sizes} categories have no difference: count both over all categories", argument="second"
        )
    c = as_numbers(values, counts[0].shape[0])
    epsilons = jnp.stack([as_scalar(each, float_dtype()) for each in pair])
    return _combine(_of_counts(jnp.stack(counts), epsilons), jnp.asarray([1, -1], c.dtype), c, level, method, estimand)


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
        >>> found = rrjax.inference.stratified(counts, 2.0, shares=[0.8, 0.2], values=[0, 1, 2, 3])
        >>> print(f"{found.value:.3f} ± {found.standard_error:.3f}, {found.lower:.3f} to {found.upper:.3f}")
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
    return _sum_of_intervals(collections, epsilons, weights, values, level, method, estimand, each)


def _sum_of_intervals(collections, epsilons, weights, values, level, method, estimand, mechanisms):
    """The weighted sum of independent intervals that cover together with the level."""
    power = 1 / len(collections)
    own = level**power if isinstance(level, Tracer) else float(np.asarray(level, np.float64) ** power)
    each = [
        linear_functional(one, epsilon, values=values, level=own, method=method, estimand=estimand, mechanism=mechanism)
        for one, epsilon, mechanism in zip(collections, epsilons, mechanisms, strict=True)
    ]
    found, errors, lower, upper = (jnp.stack(leaves) for leaves in zip(*each, strict=True))
    value, error = jnp.sum(weights * found), jnp.sqrt(jnp.sum((weights * errors) ** 2))
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
    found = Estimate(value, error, *within(lower, upper, least, most))
    return scale.mapped(found, usable, jnp.sum(weights))


@register(data_fields=["total", "squares", "num_reports"])
@dataclasses.dataclass(frozen=True)
class WeightedCounts:
    """Sums of the weights of randomized reports. A pytree; `+` adds those of two parts.

    Attributes:
        total: `[K]`, the sum of the weights of the reports that name each category.
        squares: `[K]`, the sum of the squared weights.
        num_reports: Scalar, the number of reports with a weight above zero.
    """

    total: Float[Array, " K"]
    squares: Float[Array, " K"]
    num_reports: Float[Array, ""]

    @property
    def effective_size(self) -> Float[Array, ""]:
        """Kish's effective sample size, (Σ w)²/Σ w². Scalar."""
        return jnp.sum(self.total) ** 2 / jnp.sum(self.squares)

    def __add__(self, other: WeightedCounts) -> WeightedCounts:
        """The weighted counts of both parts together; `ValueError` for different numbers of categories."""
        if not isinstance(other, WeightedCounts):
            return NotImplemented
        if self.total.shape != other.total.shape:
            raise ArgumentError(
                f"weighted counts of {self.total.shape[-1]} and of {other.total.shape[-1]} categories cannot be added",
                argument="other",
            )
        return jax.tree.map(jnp.add, self, other)

    def __radd__(self, other: Any) -> WeightedCounts:
        """The weighted counts for `sum`, which starts at 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented


def weighted_counts(reports: ArrayLike, weights: ArrayLike, num_categories: int) -> WeightedCounts:
    """Sums of the weights of the reports of randomized response.

    Args:
        reports: `[N]`, integers in 0 … K − 1.
        weights: `[N]`, not negative, in any unit in which the dtype holds their squares: one over the probability that
            the user was sampled, or any other survey weight.
        num_categories: K, at least 2. Static.

    Returns:
        `WeightedCounts`; summed in double precision if the values are known. Under tracing, NaN for an invalid weight
        or a report outside the domain.

    Raises:
        ValueError: K < 2, shapes that differ, or (not under tracing) an invalid report or weight, with its row, or
            weights that are all zero, or all too small or too large.

    Example:
        >>> import rrjax
        >>> counts = rrjax.inference.weighted_counts([0, 1, 1, 2], [1.0, 0.5, 0.5, 2.0], num_categories=3)
        >>> counts.total.tolist(), counts.squares.tolist(), round(float(counts.effective_size), 2)
        ([1.0, 1.0, 2.0], [1.0, 0.5, 4.0], 2.91)
    """
    check_num_categories(num_categories)
    reports = as_values(reports, num_categories, "reports")
    weights = weights if isinstance(weights, jax.Array) else np.asarray(weights)
    if reports.ndim != 1 or weights.shape != reports.shape or not (is_real(weights) or weights.dtype == bool):
        raise ArgumentError(
            f"reports and weights must both have shape [N], one weight for each report; got {tuple(reports.shape)} and "
            f"{tuple(weights.shape)} of {weights.dtype}",
            argument="weights",
        )
    if isinstance(reports, Tracer) or isinstance(weights, Tracer):
        weights = jnp.asarray(weights).astype(float_dtype())
        return _traced(*with_sharding_of((unsharded(reports), unsharded(weights))), num_categories)
    known = np.asarray(weights, np.float64)
    wrong = np.flatnonzero(~(np.isfinite(known) & (known >= 0)))
    if wrong.size:
        raise ArgumentError(
            f"row {wrong[0]} of weights is {known[wrong[0]]:g}: weights are finite and not negative "
            f"({wrong.size} {'row is' if wrong.size == 1 else 'rows are'} not)",
            argument="weights",
        )
    if not known.any():
        raise ArgumentError("all weights are zero: no report is left to estimate from", argument="weights")
    largest, info = known.max(), jnp.finfo(float_dtype())
    if not (info.tiny / info.eps) ** 0.5 < largest < float(info.max) ** 0.5 / (4 * len(known)):
        raise ArgumentError(
            f"the largest of the weights is {largest:g}, and sums of their squares are no {float_dtype()}: multiply "
            "all weights by one number, so that the largest is near one; only their ratios count",
            argument="weights",
            value=largest,
        )
    sums = (np.bincount(np.asarray(reports), power, num_categories) for power in (known, known**2))
    return WeightedCounts(*(jnp.asarray(each, float_dtype()) for each in (*sums, np.count_nonzero(known))))


def _traced(reports, weights, num_categories):
    valid = (reports >= 0) & (reports < num_categories) & (weights >= 0) & jnp.isfinite(weights)
    weights = jnp.where(valid, weights, jnp.nan)
    named = jnp.where(valid, reports, 0)
    total, squares = (jnp.bincount(named, power, length=num_categories) for power in (weights, weights**2))
    return WeightedCounts(total, squares, jnp.sum(weights > 0, dtype=weights.dtype))


def weighted_functional(
    counts: WeightedCounts, epsilon: ArrayLike, *, values: ArrayLike, level: ArrayLike = 0.95
) -> Estimate:
    r"""Estimates Σ_i c_i·θ_i of the population that the weights represent.

    The estimate is the weighted mean of the debiased reports V_u, Hájek's ratio Σ w_u·V_u / Σ w_u. Its variance is that
    of sampling with replacement, by linearization: n/(n − 1) · Σ w_u²·(V_u − ratio)² / (Σ w_u)² with n the effective
    sample size. It includes the sampling of users and the randomization of their values.

    The interval is Clopper and Pearson's for a mean of n' reports of 0 and 1, with n' such that its variance equals the
    estimated one (Korn and Graubard). With two values n' is at most the effective sample size. With more values the
    variance assumes −log((1 − level)/2) more reports with the most extreme value, because as many may be missing by
    chance. So the interval covers even if few reports have most of the weight, few name a category, or few users have
    an extreme value: in 95 % or more of simulations with weights independent of the values, from an effective sample
    size of 5 on. It does not cover if only users of unusually large weight hold a category. Strata and clusters of the
    design are ignored; for strata of known shares see `stratified`.

    Args:
        counts: `WeightedCounts`.
        epsilon: Scalar, nats.
        values: `[K]`, c. For a group ones and zeros.
        level: Scalar in (0, 1), of the interval.

    Returns:
        `Estimate`, its limits cut to the range of the values. The standard error is NaN if the effective sample size is
        below two: then one report has nearly all the weight, and the limits are nearly the whole range. Otherwise it is
        above zero, as in `linear_functional`. The limits are NaN if no distribution explains the reports. All NaN for
        unusable counts or ε.

    Raises:
        ValueError: Not `WeightedCounts`, values that are not numbers or all the same, or a level outside (0, 1).

    Example:
        >>> import rrjax
        >>> counts = rrjax.inference.weighted_counts([0, 0, 1, 2, 0, 1] * 50, [1, 1, 2, 2, 1, 1] * 50, 3)
        >>> found = rrjax.inference.weighted_functional(counts, 3.0, values=[0, 1, 2])
        >>> print(f"{found.value:.3f} ± {found.standard_error:.3f}, {found.lower:.3f} to {found.upper:.3f}")
        0.855 ± 0.056, 0.744 to 0.969

    References:
        Särndal, Swensson and Wretman, "Model assisted survey sampling", 1992, sections 5.7 and 2.9; Korn and Graubard,
        "Confidence intervals for proportions with small expected number of positive counts estimated from survey data",
        1998.
    """
    _check(counts, level)
    c = as_numbers(values, counts.total.shape[0])
    return _weighted(*with_sharding_of((counts, as_scalar(epsilon, float_dtype()), c)), complement(level))


def weighted_shares(counts: WeightedCounts, epsilon: ArrayLike, *, level: ArrayLike = 0.95) -> Estimate:
    """Estimates every share of the population that the weights represent: `weighted_functional` of each category.

    Args:
        counts: `WeightedCounts`.
        epsilon: Scalar, nats.
        level: Scalar in (0, 1), of the interval of each category.

    Returns:
        `Estimate` of `[K]`: unbiased estimates, limits from 0 to 1.

    Raises:
        ValueError: Not `WeightedCounts`, or a level outside (0, 1).

    Example:
        >>> import rrjax
        >>> counts = rrjax.inference.weighted_counts([0, 0, 1, 2, 0, 1] * 50, [1, 1, 2, 2, 1, 1] * 50, 3)
        >>> [round(value, 3) for value in rrjax.inference.weighted_shares(counts, 3.0).value.tolist()]
        [0.382, 0.382, 0.237]
    """
    _check(counts, level)
    return _weighted(*with_sharding_of((counts, as_scalar(epsilon, float_dtype()), None)), complement(level))


def _check(counts, level):
    if not isinstance(counts, WeightedCounts):
        raise ArgumentError(
            f"counts must be WeightedCounts, as of `weighted_counts`, got {type(counts).__name__}", argument="counts"
        )
    as_probability(level, "level", 0.95)


@jax.jit
def _weighted(counts, epsilon, c, miss):
    size = counts.total.shape[0]
    total, e1 = accurate_sum(counts.total), expm1_epsilon(epsilon)
    usable = jnp.isfinite(total) & (total > 0) & (jnp.min(counts.total) >= 0) & (e1 > 0) & (miss > 0) & (miss < 1)
    total = jnp.where(usable, total, 1)
    gain = 1 + size / e1  # 1/d
    share = counts.total / total

    squares = accurate_sum(counts.squares)
    effective = jnp.maximum(total**2 / jnp.where(usable, squares, 1), 1)
    correction = 1 / jnp.sqrt(jnp.where(effective >= SMALLEST_EFFECTIVE_SIZE, 1 - 1 / effective, jnp.nan))

    def estimate(mean, error, variance, centre, spread):
        """The estimate from the mean of the reports, its squared error × (Σ w)², and the variance of the reports.

        The last two are the mean and the variance of x over the categories.
        """
        error = correction * jnp.sqrt(jnp.maximum(error, 0)) / total
        size = _equivalent_size(mean, jnp.where(jnp.isnan(error), 0, error), variance, effective, -jnp.log(miss / 2))
        limits = within(*(centre + gain * (limit - centre) for limit in _limits(mean, size, miss)))
        value = centre + gain * (mean - centre)
        least = jnp.sqrt(squares * least_variance(value, centre, spread, 1 / gain))
        return Estimate(value, gain * jnp.maximum(error, least / total), *limits)

    if c is None:
        # A report names a category or does not.
        error = counts.squares * (1 - share) ** 2 + (squares - counts.squares) * share**2
        found = estimate(share, error, share * (1 - share), 1 / size, (1 - 1 / size) / size)
        return jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), found)
    scale = Scale.of(c)
    mean = accurate_sum(share * scale.unit)
    squared = (scale.unit - mean) ** 2
    law = jnp.mean(scale.unit), jnp.var(scale.unit)
    found = estimate(mean, accurate_sum(counts.squares * squared), accurate_sum(share * squared), *law)
    return scale.mapped(found, usable & scale.usable, 1)


def _equivalent_size(mean, error, variance, effective, unseen):
    """The number of reports of equal weight, each 0 or 1, whose mean is as precise; rounded down."""
    binary = mean * (1 - mean)
    # The smaller of two. One has the estimated error. The other assumes that weights and values are independent; few
    # reports estimate the variance poorly, so `unseen` more reports get an extreme value (three to four at 95 %).
    independent = effective * (effective * binary + unseen) / (effective * variance + unseen)
    known = (error > 0) & (binary > 0)
    estimated = jnp.where(known, binary / jnp.where(known, error, 1) ** 2, jnp.inf)
    return jnp.floor(jnp.maximum(jnp.minimum(independent, estimated), 1))


def _limits(mean, size, miss):
    """Clopper and Pearson's limits of a mean of `size` reports; interpolated between whole counts."""
    count = mean * size
    below = jnp.minimum(jnp.floor(count), size)
    whole = jnp.stack([below, jnp.minimum(below + 1, size)])
    lower, upper = (
        odds / (1 + odds)
        for odds in odds_of_tail(jnp.stack([whole, size - whole]), jnp.stack([size - whole, whole]), jnp.log(miss / 2))
    )
    part = count - below
    return tuple(each[0] + part * (each[1] - each[0]) for each in (lower, 1 - upper))
