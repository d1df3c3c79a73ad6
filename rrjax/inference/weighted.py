"""Estimates from weighted reports, such as those with survey weights of their users."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_probability, as_scalar, as_values, complement, float_dtype, is_real
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.inference.functionals import Estimate, Scale, as_numbers, least_variance
from rrjax.inference.intervals import within
from rrjax.numerics.pytrees import register
from rrjax.numerics.sharding import aligned, together
from rrjax.numerics.special import odds_of_tail
from rrjax.numerics.sums import accurate_sum, expm1_epsilon


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
        """The weighted counts of both parts together.

        Raises:
            ValueError: Different numbers of categories.
        """
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
        weights: `[N]`, not negative, in any unit: one over the probability that the user was sampled, or any other
            survey weight.
        num_categories: K, at least 2. Static.

    Returns:
        `WeightedCounts`; summed in double precision if the values are known. Under tracing, NaN for an invalid weight
        or a report outside the domain.

    Raises:
        ValueError: K < 2, shapes that differ, or (not under tracing) an invalid report or weight, with its row, or
            weights that are all zero.

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
        return _traced(*aligned((together(reports), together(weights))), num_categories)
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
    return _weighted(*aligned((counts, as_scalar(epsilon, float_dtype()), c)), complement(level))


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
    return _weighted(*aligned((counts, as_scalar(epsilon, float_dtype()), None)), complement(level))


def _check(counts, level):
    if not isinstance(counts, WeightedCounts):
        raise ArgumentError(
            f"counts must be WeightedCounts, as of `weighted_counts`, got {type(counts).__name__}", argument="counts"
        )
    as_probability(level, "level", 0.95)


SMALLEST_EFFECTIVE_SIZE = 2.0
"""Smallest effective sample size for a standard error; below it one report has nearly all the weight."""


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
