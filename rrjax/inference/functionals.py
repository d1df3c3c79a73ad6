"""Statements about a linear functional of the distribution: the mean of numeric categories, the share of a group."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import Estimand, as_probability, check_estimand, complement, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import Rates
from rrjax.data.tally import Evidence, Tally, evidence, of_tally
from rrjax.inference.intervals import exact_limits, intervals, log_tail, whole_counts
from rrjax.inference.scale import Estimate, Scale, as_numbers
from rrjax.inference.superquantile import conservative_limits, spread_of
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum

FunctionalMethod: TypeAlias = Literal["exact", "conservative", "normal"]


def linear_functional(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    *,
    values: ArrayLike,
    level: ArrayLike = 0.95,
    method: FunctionalMethod | None = None,
    estimand: Estimand = "distribution",
) -> Estimate:
    r"""Estimates Σ_i c_i·θ_i, such as the mean where categories are numbers, with a confidence interval.

    The estimate is c applied to the unbiased shares (`inv`). Its interval, cut to what any distribution can have:

    * "exact", where c takes two values: the number of reports within the group of categories that have the larger one
      is binomial, and its Clopper–Pearson limits are mapped. Of another mechanism, where one category is apart.
    * "conservative": holds for every N, ε and θ, too. Of all distributions with a mean the one on the smallest and the
      largest value spreads it most; a bound of Bentkus' kind for that one is inverted. Where noise dominates it is a
      fifth longer than "normal"; where ε is large, by as much more as the users' values spread less than extremes. Of
      a `Tally`, which does not tell how the supports of two categories depend on each other, what the exact intervals
      of all categories at once (`intervals` with Bonferroni) leave: far longer.
    * "normal": estimate ± quantile · standard error. The shortest. It covers where counts are large; where N is small,
      or c has a rare extreme value, less often than it says.
    * None: exact where there is such an interval, else conservative.

    Subgroups by a public column are `jax.vmap` over counts `[G, K]`.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not beside a tally.
        values: `[K]`, c, in any unit, two different ones at least.
        level: Scalar in (0, 1), of the interval.
        method: As above. Whether c takes two values must be known: where `values` are traced, None is "conservative".
        estimand: "distribution", that the users are independent draws of, or "users": of these very ones. "exact" and
            "normal" are then shorter by what drawing users adds; "conservative" is the same for both.

    Returns:
        `Estimate`, in the unit of `values`. The standard error is exact in expectation (its square), but for "users"
        of a tally, whose estimated shares are cut to [0, 1]: a seventh too small where a category has one user or
        none. NaN for a tally where more than one category is apart. "exact" limits are as accurate as `intervals`;
        "conservative" ones are longer by a fiftieth, for rounding among others, than the bound they compute. All NaN
        for unusable counts or ε, or (under tracing) values or a level that are none.

    Raises:
        ValueError: A wrong shape or dtype, values that are not numbers or all the same, a level outside (0, 1), or a
            method that does not go with the values, or with a tally.

    Example:
        >>> import rrjax
        >>> children = rrjax.inference.linear_functional([5_200, 2_900, 1_000, 900], epsilon=2.0, values=[0, 1, 2, 3])
        >>> print(f"{children.value:.3f} ± {children.standard_error:.3f}, {children.lower:.3f} to {children.upper:.3f}")
        0.297 ± 0.016, 0.253 to 0.342

    References:
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934; Bentkus, "On Hoeffding's inequalities",
        2004.
    """
    if method not in (None, *get_args(FunctionalMethod)):
        raise ArgumentError(
            f"method must be 'exact', 'conservative', 'normal' or None, got {method!r}", argument="method"
        )
    check_estimand(estimand)
    as_probability(level, "level", 0.95)
    data, is_tally = evidence(counts, epsilon), isinstance(counts, Tally)
    c = as_numbers(values, data.support.shape[0])
    apart = _apart(values, is_tally)
    if method == "exact" and apart is None:
        raise ArgumentError(_no_exact(values, is_tally), argument="method")
    method = method or ("conservative" if apart is None else "exact")
    if is_tally and method == "normal" and apart is None:
        raise ArgumentError(
            "support counts do not tell how the supports of two categories depend on each other, so a tally has no "
            "normal interval for values with more than one category apart: use method 'conservative', or the mean of "
            "mechanism.debias(reports) @ values over the reports themselves",
            argument="method",
        )
    miss = complement(level)
    box = intervals(counts, None, level, simultaneous="bonferroni") if is_tally and method == "conservative" else None
    whole = whole_counts(counts, epsilon)
    return _estimated(data, *aligned((whole, c)), apart, box, miss, method, is_tally, estimand)


@partial(jax.jit, static_argnums=(6, 7, 8))
def _estimated(data, whole, c, apart, box, miss, method, is_tally, estimand):
    scale, tail = Scale.of(c), log_tail(miss, None, 1)
    found = sample(data, scale.unit, is_tally, estimand)
    if method == "exact":
        lower, upper = _exact(data, whole, apart, tail, is_tally, estimand)
    elif method == "normal":
        half = -ndtri(miss / 2) * found.standard_error
        lower, upper = found.value - half, found.value + half
    elif is_tally:
        lower, upper = _left_by(box, scale.unit)
    else:
        lower, upper = conservative_limits(spread_of(scale.unit), found.value, data.num_users, data.rates.d, tail)
    usable = data.usable & scale.usable & (miss > 0) & (miss < 1)
    found = found._replace(lower=jnp.clip(lower, 0, 1), upper=jnp.clip(upper, 0, 1))
    return scale.mapped(found, usable, 1)


def group_share(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    *,
    members: ArrayLike,
    level: ArrayLike = 0.95,
    method: FunctionalMethod | None = None,
    estimand: Estimand = "distribution",
) -> Estimate:
    """Estimates the share of users whose category is in a group, with a confidence interval.

    `linear_functional` of ones and zeros. The interval of a group is shorter than the sum of those of its categories:
    what each of them gets too much of by chance, another one gets too little of.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not beside a tally.
        members: `[K]`, booleans: which categories are in the group; some, not all.
        level: Scalar in (0, 1), of the interval.
        method: As in `linear_functional`; None is "exact".
        estimand: "distribution" or "users".

    Returns:
        `Estimate`.

    Raises:
        ValueError: As `linear_functional`, or members that are not booleans, none or everybody.

    Example:
        >>> import rrjax
        >>> share = rrjax.inference.group_share([5_200, 2_900, 1_000, 900], 2.0, members=[False, True, True, True])
        >>> print(f"{share.value:.3f}, {share.lower:.3f} to {share.upper:.3f}")
        0.311, 0.295 to 0.327
    """
    members = members if isinstance(members, jax.Array) else np.asarray(members)
    if members.dtype != np.bool_:
        raise ArgumentError(
            f"members must be booleans, one for each category, got dtype {members.dtype}", argument="members"
        )
    if not isinstance(members, Tracer) and members.ndim == 1 and (members.all() or not members.any()):
        which = "everybody: its share is one" if members.all() else "nobody: its share is zero"
        raise ArgumentError(f"the group holds {which}, whatever the reports", argument="members")
    c = members.astype(float_dtype())
    return linear_functional(counts, epsilon, values=c, level=level, method=method, estimand=estimand)


def _apart(values, is_tally):
    """The categories whose share is all that counts, `[K]` booleans, on the host; None where there are none or traced.

    In a tally it must be one category.
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


def _no_exact(values, is_tally):
    if isinstance(values, Tracer):
        return "method 'exact' needs values that are known, because it is for two different ones: they are traced here"
    what = "with one category apart from all others" if is_tally else "that are two different ones, as of a group"
    return f"method 'exact' is for values {what}; use 'conservative', which holds for all, or 'normal'"


def sample(data: Evidence, x, is_tally, estimand):
    """Estimate and standard error of x·θ."""
    size, number = x.shape[0], data.num_users
    shares = data.excess / (number * data.rates.d)
    # The shares of another mechanism do not add up to one: a constant is better known than estimated.
    lone = [jnp.sum(x == end) == size - 1 for end in (0, 1)]
    centre = accurate_sum(x) / size
    if is_tally:
        centre = jnp.where(lone[0], 0, jnp.where(lone[1], 1, centre))
    away = x - centre
    value = centre + accurate_sum(away * shares)
    if is_tally:
        one = jnp.argmax(jnp.abs(away))
        chance, of_users = data.support[one] / number, jnp.clip(shares[one], 0, 1)
        error = chance * (data.others[one] / number) / data.rates.d**2 * (number / (number - 1))
        error = error - of_users * (1 - of_users) if estimand == "users" else error
        error = jnp.where(lone[0] | lone[1], error, jnp.nan)
    elif estimand == "users":
        # Of a user with x: (1 − d)·(d·x² + the mean of all x²)/d², x from the mean of all.
        lost = 1 - data.rates.d
        squares = jnp.sum(away**2) / size
        held = jnp.clip(squares + jnp.sum((away**2 - squares) * shares), 0, jnp.max(away**2))
        error = lost * (held / data.rates.d + squares / data.rates.d**2)
    else:
        named = accurate_sum(away * data.support) / number
        error = jnp.sum(data.support * (away - named) ** 2) / (number - 1) / data.rates.d**2
    return Estimate(value, jnp.sqrt(jnp.maximum(error, 0) / number), value, value)


def _exact(data, whole, apart, tail, is_tally, estimand):
    """Limits of the share of those who are apart."""
    support, total = whole
    if is_tally:
        lone = jnp.sum(apart) == 1
        lower, upper = group_limits(support[jnp.argmax(apart == lone)], total, data.rates, tail, estimand)
        return jnp.where(lone, lower, 1 - upper), jnp.where(lone, upper, 1 - lower)
    named = jnp.sum(jnp.where(apart, support, 0), dtype=support.dtype)
    return group_limits(named, total, group_rates(data.rates, jnp.sum(apart)), tail, estimand)


def group_rates(rates: Rates, size: Int[Array, ""]) -> Rates:
    """How often a report of randomized response names a group of so many categories."""
    number = size.astype(rates.truth.dtype)
    return Rates(rates.always * number, rates.never - rates.always * (number - 1), rates.truth)


def group_limits(
    support: Int[Array, ""], total: Int[Array, ""], rates: Rates, log_tail: Float[Array, ""], estimand: Estimand
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Exact limits of the share of a group, not cut to [0, 1]."""
    tally = Tally(support[None], total, rates=rates)
    users = (tally.support, total) if estimand == "users" else None
    lower, upper = exact_limits(of_tally(tally), users, log_tail)
    return lower[0], upper[0]


def _left_by(box, x):
    """The least and the largest x·θ of all distributions within limits of the shares."""

    def least(x):
        order = jnp.argsort(x)
        lower, room = box.lower[order], (box.upper - box.lower)[order]
        before = jnp.cumsum(room) - room
        # What is left goes where x is least, as far as there is room.
        return jnp.sum(x[order] * (lower + jnp.clip(1 - jnp.sum(lower) - before, 0, room)))

    return least(x), 1 - least(1 - x)
