"""Linear functionals of the distribution: the mean of numeric categories, the share of a group."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import Estimand, as_probability, check_estimand, complement, float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import Rates
from rrjax.data.tally import SupportData, Tally, of_tally, support_data
from rrjax.inference.any_time import any_time_limits, any_time_mean_limits
from rrjax.inference.bounded_means import conservative_limits, spread_of
from rrjax.inference.intervals import Looks, as_looks, exact_limits, intervals, log_tail, whole_counts, within
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of, with_whole_axis
from rrjax.numerics.sums import accurate_sum

FunctionalMethod: TypeAlias = Literal["exact", "conservative", "normal"]
Kind: TypeAlias = Literal["counts", "named", "denied", "supports"]
"""The law of a collection: counts of randomized response; a tally of reports that name one category each, the user's
more often than others or less often; and any other tally."""


@exportable
class Estimate(NamedTuple):
    """An estimated number with its standard error and interval.

    Attributes:
        value: Scalar, the unbiased estimate, not cut to any range.
        standard_error: Scalar.
        lower: Scalar, confidence limit; NaN if no distribution explains the reports.
        upper: Scalar, not below `lower`; NaN as `lower`.
    """

    value: Float[Array, ""]
    standard_error: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]


def linear_functional(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    *,
    values: ArrayLike,
    level: ArrayLike = 0.95,
    method: FunctionalMethod | None = None,
    estimand: Estimand = "distribution",
    mechanism: Mechanism | None = None,
    looks: Looks | None = None,
    tuned_to: ArrayLike = 10_000,
) -> Estimate:
    r"""Estimates Σ_i c_i·θ_i, such as the mean of numeric categories, with a confidence interval.

    The estimate is c applied to the unbiased shares (`inv`). The methods for its interval, which is cut to the range of
    c:

    * "exact", if c takes two values: the number of reports in the group of categories with the larger value is
      binomial, and its Clopper–Pearson limits are mapped. For a `Tally` the group, or all others, must be one category,
      unless each report names one category.
    * "conservative": holds for every N, ε and θ, too. Of all distributions with a given mean, the one on the smallest
        and the largest value has the largest spread; a bound of Bentkus' kind for that one is inverted. If noise
        dominates, it is a fifth longer than "normal"; if ε is large, it is longer still, above all if the users' values
        spread little. It holds for survey designs too, if `mechanism` says that each report names one category, and the
        user's own more often than others. Another `Tally` does not contain the dependence between supports of two
        categories. For it, the limits follow from the exact simultaneous intervals (`intervals` with Bonferroni), and
        are far longer.
    * "normal": estimate ± quantile · standard error. The shortest. It covers if counts are large; if N is small, or c
        has a rare extreme value, it covers less often than its level.
    * None: "exact" if c takes two values, else "conservative".

    Subgroups by a public column are `jax.vmap` over counts `[G, K]`.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        values: `[K]`, c, in any unit, at least two different ones. Booleans ask for the share of a group of categories,
            whose interval is shorter than the sum of theirs, because their errors partly cancel.
        level: Scalar in (0, 1), of the interval.
        method: As above. If `values` are traced, None is "conservative".
        estimand: "distribution", from which the users are independent draws, or "users", their own shares. For "users"
            the intervals "exact" and "normal" are shorter; "conservative" is the same for both.
        mechanism: The mechanism of a tally. If its reports name one category each (survey designs, randomized
            response), their supports of several categories depend on each other in a known way: standard errors and
            intervals are as of counts. A tally alone does not tell.
        looks: As for `intervals`: with "any" the interval, "exact" or "conservative", holds at all numbers of users at
            once. Within a factor of 4 of `tuned_to` users it is longer by a half ("exact": three quarters) at most.
        tuned_to: As for `intervals`.

    Returns:
        `Estimate`, in the unit of `values`. The square of the standard error is exact in expectation while the value is
        possible. It is at least that of users who all hold one value, the possible one nearest to the estimate, so that
        it is not 0 where all reports are the same. For the estimand "users" of a tally estimated shares are cut to [0,
        1]: there it is a seventh too small if a category has at most one user. The standard error of a tally is NaN if
        "exact" does not apply and its reports may name several categories. "exact" limits are as accurate as
        `intervals`; "conservative" limits are a fiftieth longer than their bound, partly for rounding. The limits are
        NaN if the interval contains no value of a distribution: the reports contradict their mechanism, or chance has
        led there, with probability 1 − level at most. All NaN for unusable counts or ε, or (under tracing) unusable
        values or level.

    Raises:
        ValueError: A wrong shape or dtype, values that are not numbers or all the same, a level outside (0, 1), or a
            method that does not apply to the values, or to a tally.

    Example:
        >>> import rrjax
        >>> children = rrjax.inference.linear_functional([5_200, 2_900, 1_000, 900], epsilon=2.0, values=[0, 1, 2, 3])
        >>> print(f"{children.value:.3f} ± {children.standard_error:.3f}, {children.lower:.3f} to {children.upper:.3f}")
        0.297 ± 0.016, 0.253 to 0.342

    References:
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934; Bentkus, "On Hoeffding's inequalities",
        2004.
    """
    check_options(method, get_args(FunctionalMethod), estimand, level)
    data, kind = support_data(counts, epsilon), kind_of(counts, mechanism)
    is_tally = kind == "supports"
    c = as_numbers(values, data.support.shape[0])
    group = _exact_group(values, is_tally)
    if method == "exact" and group is None:
        raise ArgumentError(_no_exact_method(values, is_tally), argument="method")
    tuned = as_looks(looks, tuned_to, method != "normal" and estimand == "distribution")
    method = method or ("conservative" if group is None else "exact")
    if is_tally and method == "normal" and group is None:
        raise ArgumentError(
            "support counts do not tell how the supports of two categories depend on each other, so a tally has no "
            "normal interval for values with more than one category apart: give the mechanism, if its reports name one "
            "category each; use method 'conservative'; or the mean of mechanism.debias(reports) @ values over the "
            "reports themselves",
            argument="method",
        )
    boxed = method == "conservative" and kind in ("supports", "denied")
    how: Any = {"simultaneous": "bonferroni", "looks": looks, "tuned_to": tuned_to}
    box = intervals(counts, None, level, **how) if boxed else None
    whole, c = with_sharding_of((whole_counts(counts, epsilon), c))
    return _estimate((data, whole, group, box, tuned), c, complement(level), method, kind, estimand)


def kind_of(counts: ArrayLike | Tally, mechanism: Mechanism | None) -> Kind:
    """Which law a collection has."""
    if not isinstance(counts, Tally):
        return "counts"
    if mechanism is None or not mechanism.names_one:
        return "supports"
    if mechanism.num_categories != counts.num_categories:
        raise ArgumentError(
            f"mechanism has {mechanism.num_categories} categories, and the tally has {counts.num_categories}",
            argument="mechanism",
        )
    # Of two categories a denied one is the other one.
    return "denied" if counts.num_categories > 2 and mechanism.denies else "named"


def check_options(method: str | None, methods: tuple[str, ...], estimand: Estimand, level: ArrayLike) -> None:
    """Raises `ValueError` for an unknown method or estimand, or a level outside (0, 1)."""
    if method not in (None, *methods):
        names = ", ".join(map(repr, methods))
        raise ArgumentError(f"method must be {names} or None, got {method!r}", argument="method")
    check_estimand(estimand)
    as_probability(level, "level", 0.95)


@partial(jax.jit, static_argnums=(3, 4, 5))
def _estimate(given, c, miss, method, kind, estimand):
    """From a collection and its integers, the group of an exact interval, the limits of all shares, and the looks."""
    data, whole, group, box, tuned = given
    scale, tail = Scale.of(c), log_tail(miss, None, 1)
    estimate = unbiased_estimate(data, scale.unit, kind, estimand)
    if method == "exact":
        lower, upper = _exact_limits(data, whole, group, tail, tuned, kind, estimand)
    elif method == "normal":
        lower, upper = normal_limits(estimate.value, estimate.standard_error, miss)
    elif box is not None:
        lower, upper = _limits_within(box, scale.unit)
    else:
        spread, kept = spread_of(scale.unit, law_of(data, kind)), jnp.mean(data.rates.d)
        limits, looks = (conservative_limits, ()) if tuned is None else (any_time_mean_limits, (tuned,))
        lower, upper = limits(spread, estimate.value, data.num_users, kept, tail, *looks)
    usable = data.usable & scale.usable & (miss > 0) & (miss < 1)
    lower, upper = within(lower, upper)
    return scale.mapped(estimate._replace(lower=lower, upper=upper), usable, 1)


def _exact_group(values, is_tally):
    """The categories with the larger of two values, `[K]` booleans on the host; None if "exact" does not apply.

    For a tally, they or all others must be one category.
    """
    if isinstance(values, Tracer):
        return None
    values = np.asarray(values)
    high, low = values == values.max(), values == values.min()
    if not (high | low).all():
        return None
    if not is_tally or high.sum() == 1:
        return high
    return high if low.sum() == 1 else None


def _no_exact_method(values, is_tally):
    if isinstance(values, Tracer):
        return "method 'exact' needs values that are known, because it is for two different ones: they are traced here"
    kind = "with one category apart from all others" if is_tally else "that are two different ones, as of a group"
    return f"method 'exact' is for values {kind}; use 'conservative', which holds for all, or 'normal'"


def law_of(data: SupportData, kind: Kind) -> Float[Array, " K"] | None:
    """The probabilities at which a user without a category names it, `[K]`; None if they are equal."""
    return None if kind == "counts" else _law(data, kind)


def _law(data, kind):
    return jnp.broadcast_to(data.rates.not_q if kind == "denied" else data.rates.q, data.support.shape)


def unbiased_estimate(data: SupportData, x: Float[Array, " K"], kind: Kind, estimand: Estimand) -> Estimate:
    """Estimates x·θ with its standard error; the limits are the estimate itself."""
    size, number = x.shape[0], data.num_users
    shares = data.excess / (number * data.rates.d)
    # The shares of a tally do not add up to one, so a constant is subtracted rather than estimated.
    lone = [jnp.sum(x == end) == size - 1 for end in (0, 1)]
    centre = accurate_sum(x) / size
    if kind == "supports":
        centre = jnp.where(lone[0], 0, jnp.where(lone[1], 1, centre))
    deviations = x - centre
    value = centre + accurate_sum(deviations * shares)
    d = jnp.mean(data.rates.d)
    if kind == "supports":
        apart = jnp.argmax(jnp.abs(deviations))
        supported, held = data.support[apart] / number, jnp.clip(shares[apart], 0, 1)
        rates = rates_at(data.rates, apart)
        variance = supported * (data.others[apart] / number) * (number / (number - 1))
        variance = jnp.maximum(variance, (rates.q + rates.d * held) * (rates.not_q - rates.d * held)) / rates.d**2
        variance = variance - held * (1 - held) if estimand == "users" else variance
        variance = jnp.where(lone[0] | lone[1], variance, jnp.nan)
    else:
        variance = _variance_of_names(data, kind, estimand, deviations, shares, jnp.clip(value, 0, 1) - centre) / d**2
    return Estimate(value, jnp.sqrt(jnp.maximum(variance, 0) / number), value, value)


def _variance_of_names(data, kind, estimand, x, shares, mean):
    """The variance of x of the category that a report names, d² times that of its unbiased value."""
    law, d = _law(data, kind), jnp.mean(data.rates.d)
    kept = -d if kind == "denied" else d
    first, squares, rest = accurate_sum(law * x), accurate_sum(law * x**2), accurate_sum(law)  # 1 − kept would cancel

    def given(held):
        """That of given users with a mean square of x, averaged: Σ law·x² + kept·x² − (Σ law·x + kept·x)²."""
        return squares - first**2 - 2 * first * kept * mean + kept * rest * held

    least, most = jnp.min(x), jnp.max(x)
    # The least and the largest mean square of x, of users with this mean.
    alike, apart = mean**2, (least + most) * mean - least * most
    if estimand == "users":
        return given(jnp.clip(accurate_sum(x**2 * shares), alike, jnp.maximum(apart, alike)))
    reports, number = data.others if kind == "denied" else data.support, data.num_users
    named = accurate_sum(x * reports) / number
    variance = jnp.sum(reports * (x - named) ** 2) / (number - 1)
    return jnp.maximum(variance, given(alike) if kind != "denied" else given(apart) + d**2 * (apart - alike))


def normal_limits(value: Array, error: Array, miss: Any) -> tuple[Array, Array]:
    """Estimate ± quantile · standard error, not cut; infinite for the unknown error of a single report."""
    half = jnp.where(jnp.isnan(error), jnp.inf, -ndtri(miss / 2) * error)
    return value - half, value + half


def _exact_limits(data, whole, group, tail, tuned, kind, estimand):
    """Exact limits of the share of a group."""
    support, total = whole
    if kind == "supports":
        lone = jnp.sum(group) == 1
        place = jnp.argmax(group == lone)
        lower, upper = group_limits(support[place], total, rates_at(data.rates, place), tail, estimand, tuned)
        return jnp.where(lone, lower, 1 - upper), jnp.where(lone, upper, 1 - lower)
    if kind == "counts":
        named = jnp.sum(jnp.where(group, support, 0), dtype=support.dtype)
        return group_limits(named, total, group_rates(data.rates, jnp.sum(group)), tail, estimand, tuned)
    # A report supports the group by naming one of it or, if the own category is denied, none of it.
    denied, law = kind == "denied", _law(data, kind)
    inside, outside = (accurate_sum(jnp.where(chosen, law, 0)) for chosen in (group, ~group))
    reports = total - support if denied else support
    named = jnp.sum(jnp.where(group, reports, 0), dtype=reports.dtype)
    d = jnp.mean(data.rates.d)
    # The law adds up to 1 − d, or 1 + d.
    always, never = (outside - d, inside - d) if denied else (inside, outside)
    rates = Rates(jnp.maximum(always, 0), jnp.maximum(never, 0), d)
    return group_limits(total - named if denied else named, total, rates, tail, estimand, tuned)


def rates_at(rates: Rates, place: Int[Array, ""]) -> Rates:
    """The rates of one category."""
    return Rates(*(weight[place] if weight.ndim else weight for weight in rates))


def group_rates(rates: Rates, size: Int[Array, ""]) -> Rates:
    """The rates at which a report of randomized response names a group of `size` categories."""
    number = size.astype(rates.truth.dtype)
    return Rates(rates.always * number, rates.never - rates.always * (number - 1), rates.truth)


def group_limits(
    support: Int[Array, ""],
    total: Int[Array, ""],
    rates: Rates,
    log_tail: Float[Array, ""],
    estimand: Estimand,
    tuned: Float[Array, ""] | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Exact limits of the share of a group, not cut to [0, 1]; for any number of looks if `tuned` to a number."""
    tally = Tally(support[None], total, rates=rates)
    users = (tally.support, total) if estimand == "users" else None
    if tuned is not None:
        lower, upper = any_time_limits(of_tally(tally), log_tail, tuned)
    else:
        lower, upper = exact_limits(of_tally(tally), users, log_tail)
    return lower[0], upper[0]


def _limits_within(box, x):
    """The smallest and the largest x·θ of all distributions within limits of the shares; NaN if there is none."""

    def least(x):
        order = jnp.argsort(x)
        lower, length = box.lower[order], (box.upper - box.lower)[order]
        before = jnp.cumsum(length) - length
        # The share above the lower limits goes to the smallest x, up to their upper limits.
        return jnp.sum(x[order] * (lower + jnp.clip(1 - jnp.sum(lower) - before, 0, length)))

    rounding = 8 * jnp.finfo(x.dtype).eps
    some = (accurate_sum(box.lower) <= 1 + rounding) & (accurate_sum(box.upper) >= 1 - rounding)
    lower, upper = least(x), 1 - least(1 - x)
    return jnp.where(some, lower, jnp.nan), jnp.where(some, jnp.maximum(lower, upper), jnp.nan)


class Scale(NamedTuple):
    """Values of categories mapped to [0, 1] (`unit`), their range, and whether they are finite and not all the same."""

    unit: Float[Array, " K"]
    least: Float[Array, ""]
    length: Float[Array, ""]
    usable: Bool[Array, ""]

    @classmethod
    def of(cls, values: Float[Array, " K"]) -> Scale:
        """The mapping of values `[K]` to [0, 1]."""
        least, length = jnp.min(values), jnp.max(values) - jnp.min(values)
        usable = jnp.isfinite(length) & (length > 0)
        return cls(jnp.where(usable, (values - least) / jnp.where(usable, length, 1), 0.5), least, length, usable)

    def mapped(self, estimate: Estimate, usable: Bool[Array, ""], weight: ArrayLike) -> Estimate:
        """An estimate for the unit values, mapped to the values; `weight` is the sum of the collections' weights."""
        value, lower, upper = (
            each * self.length + weight * self.least for each in (estimate.value, estimate.lower, estimate.upper)
        )
        moved = Estimate(value, estimate.standard_error * self.length, lower, upper)
        return jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), moved)


def as_known_numbers(values: ArrayLike, name: str, number: int, things: str) -> tuple[Any, np.ndarray | None]:
    """Numbers `[number]`, checked, one for each thing; also as known float64, or None if traced."""
    values = values if isinstance(values, jax.Array) else np.asarray(values)
    if values.shape != (number,) or not (is_real(values) or values.dtype == bool):
        raise ArgumentError(
            f"{name} must be numbers of shape [{number}], one for each of {number} {things}; got {values.dtype} of "
            f"shape {tuple(values.shape)}",
            argument=name,
        )
    return values, None if isinstance(values, Tracer) else np.asarray(values, np.float64)


def as_numbers(values: ArrayLike, num_categories: int) -> Float[Array, " K"]:
    """The values of categories, checked: finite numbers `[K]`, at least two different ones."""
    given, known = as_known_numbers(values, "values", num_categories, "categories")
    if known is not None:
        wrong = np.flatnonzero(~np.isfinite(known))
        if wrong.size:
            raise ArgumentError(
                f"the value of category {wrong[0]} is {known[wrong[0]]}: give every category a number",
                argument="values",
            )
        if (known == known[0]).all():
            raise ArgumentError(
                f"all values are {known[0]:g}, whatever the users hold: give two different ones", argument="values"
            )
        if not isinstance(given, jax.Array):
            return jnp.asarray(known, float_dtype())
    return with_whole_axis(given.astype(float_dtype()))
