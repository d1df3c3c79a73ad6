"""Linear functionals of several independent collections: their difference, and what strata say of the whole."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import ndtri
from jaxtyping import ArrayLike

from rrjax.data.arguments import (
    Estimand,
    as_counts,
    as_one_or_each,
    as_probability,
    as_scalar,
    check_estimand,
    complement,
    float_dtype,
    is_real,
)
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Tally, evidence
from rrjax.inference.chernoff import Collections, combined_limits
from rrjax.inference.functionals import linear_functional, sample
from rrjax.inference.scale import Estimate, Scale, as_numbers
from rrjax.inference.superquantile import conservative_limits, spread_of
from rrjax.numerics.sharding import aligned, together

CombinedMethod: TypeAlias = Literal["conservative", "normal"]

_SPENT = 1 / 20
"""Of what the interval may miss, on the ranges that the collections' own means are searched in."""
_SUM = 1e-4
"""How far shares of a population may be from adding up to one: they are published rounded."""


def difference(
    first: ArrayLike | Tally,
    second: ArrayLike | Tally,
    epsilon: ArrayLike | tuple[ArrayLike | None, ArrayLike | None] | None = None,
    *,
    values: ArrayLike,
    level: ArrayLike = 0.95,
    method: CombinedMethod | None = None,
    estimand: Estimand = "distribution",
) -> Estimate:
    """Estimates Σ_i c_i·θ_i of one collection less that of another one, with a confidence interval.

    The collections are independent, of other users; their sizes and their ε may differ.

    * "conservative", the default: holds for every N, ε and θ. A Chernoff bound for both together, at the worst of the
      means that the collections leave (`rrjax.inference.chernoff`). Where a tally is among them, of each one's own
      interval at the square root of the level.
    * "normal": estimate ± quantile · standard error, as in `linear_functional`.

    Args:
        first: `[K]`, integers, the reports per category; or a `Tally`.
        second: Of the same categories.
        epsilon: Nats: one for both, or a pair; None for a tally.
        values: `[K]`, c. For a group ones and zeros; for one category a single one.
        level: Scalar in (0, 1), of the interval.
        method: As above.
        estimand: "distribution" or "users", as in `linear_functional`.

    Returns:
        `Estimate` of the first less the second. All NaN for unusable counts or ε.

    Raises:
        ValueError: As `linear_functional`, other categories, or more than two ε.

    Example:
        >>> import rrjax
        >>> before, after = [5_200, 2_900, 1_000, 900], [2_400, 1_700, 1_250, 1_150]
        >>> found = rrjax.inference.difference(after, before, (1.0, 2.0), values=[0, 1, 2, 3])
        >>> print(f"{found.value:.3f} ± {found.standard_error:.3f}, {found.lower:.3f} to {found.upper:.3f}")
        0.128 ± 0.049, -0.017 to 0.275

    References:
        Berger and Boos, "P values maximized over a confidence set for the nuisance parameter", 1994.
    """
    _check(level, method, estimand)
    pair = _pair(epsilon)
    if isinstance(first, Tally) or isinstance(second, Tally):
        return _each_apart((first, second), pair, values, level, method, estimand)
    counts = [as_counts(each, name, whole=True) for each, name in ((first, "first"), (second, "second"))]
    if counts[0].shape != counts[1].shape:
        sizes = " and of ".join(str(each.shape[0]) for each in counts)
        raise ArgumentError(
            f"collections of {sizes} categories have no difference: count both over all categories", argument="second"
        )
    c = as_numbers(values, counts[0].shape[0])
    epsilons = jnp.stack([as_scalar(each, float_dtype()) for each in pair])
    weights = jnp.asarray([1, -1], c.dtype)
    return _combined(*aligned((jnp.stack(counts), epsilons, weights, c)), complement(level), method, estimand)


def stratified(
    counts: ArrayLike,
    epsilon: ArrayLike,
    *,
    shares: ArrayLike,
    values: ArrayLike,
    level: ArrayLike = 0.95,
    method: CombinedMethod | None = None,
    estimand: Estimand = "distribution",
) -> Estimate:
    """Estimates Σ_i c_i·θ_i of a population from collections in its strata, of known shares: Σ_s W_s·(c·θ_s).

    Strata may be sampled at any rates: what each says is weighted by its share of the population, not of the users.
    Their ε may differ.

    Args:
        counts: `[S, K]`, integers, the reports per category in each of two or more strata.
        epsilon: Nats: scalar, or `[S]`.
        shares: `[S]`, W, of the population; not negative, one in sum.
        values: `[K]`, c. For a group ones and zeros; for one category a single one.
        level: Scalar in (0, 1), of the interval.
        method: "conservative", the default, or "normal", as in `difference`.
        estimand: "distribution" or "users", as in `linear_functional`.

    Returns:
        `Estimate`. All NaN for unusable counts, ε or (under tracing) shares.

    Raises:
        ValueError: As `linear_functional`, fewer than two strata, or (not under tracing) one without reports, or shares
            that are none, with the row.

    Example:
        >>> import rrjax
        >>> counts = [[520, 290, 100, 90], [2_400, 1_700, 1_250, 1_150]]
        >>> found = rrjax.inference.stratified(counts, 2.0, shares=[0.8, 0.2], values=[0, 1, 2, 3])
        >>> print(f"{found.value:.3f} ± {found.standard_error:.3f}, {found.lower:.3f} to {found.upper:.3f}")
        0.432 ± 0.040, 0.307 to 0.568

    References:
        Cochran, "Sampling techniques", 3rd edition, 1977, chapter 5.
    """
    _check(level, method, estimand)
    counts = counts if isinstance(counts, jax.Array) else np.asarray(counts)
    if counts.ndim != 2 or counts.shape[0] < 2 or counts.shape[1] < 2:
        raise ArgumentError(
            f"counts must have shape [S, K], a row for each of two strata or more, got {tuple(counts.shape)}; for one "
            "collection see `linear_functional`",
            argument="counts",
        )
    shape = counts.shape
    counts = as_counts(together(counts).reshape(-1), whole=True, summed=False).reshape(shape)
    if not isinstance(counts, Tracer):
        empty = np.flatnonzero(np.asarray(counts).sum(axis=1) <= 0)
        if empty.size:
            raise ArgumentError(
                f"row {empty[0]} of counts has no reports: merge this stratum with another one", argument="counts"
            )
    c = as_numbers(values, shape[1])
    shares = _as_shares(shares, shape[0])
    epsilons = jnp.broadcast_to(as_one_or_each(epsilon, shape[0], "strata"), shape[:1])
    return _combined(*aligned((counts, epsilons, shares, c)), complement(level), method, estimand)


def _check(level, method, estimand):
    if method not in (None, *get_args(CombinedMethod)):
        raise ArgumentError(f"method must be 'conservative', 'normal' or None, got {method!r}", argument="method")
    check_estimand(estimand)
    as_probability(level, "level", 0.95)


def _pair(epsilon: Any) -> tuple[Any, Any]:
    several = isinstance(epsilon, tuple | list) or (isinstance(epsilon, jax.Array | np.ndarray) and epsilon.ndim > 0)
    if several and len(epsilon) != 2:
        raise ArgumentError(
            f"epsilon must be one number or a pair, for the first and the second; got {len(epsilon)}",
            argument="epsilon",
        )
    return (epsilon[0], epsilon[1]) if several else (epsilon, epsilon)


def _as_shares(shares, number):
    shares = shares if isinstance(shares, jax.Array) else np.asarray(shares)
    if shares.shape != (number,) or not is_real(shares):
        raise ArgumentError(
            f"shares must be numbers of shape [{number}], one for each stratum; got {shares.dtype} of shape "
            f"{tuple(shares.shape)}",
            argument="shares",
        )
    if not isinstance(shares, Tracer):
        known = np.asarray(shares, np.float64)
        wrong = np.flatnonzero(~(np.isfinite(known) & (known >= 0)))
        if wrong.size:
            raise ArgumentError(
                f"the share of stratum {wrong[0]} is {known[wrong[0]]:g}: shares are from 0 to 1", argument="shares"
            )
        if abs(known.sum() - 1) > _SUM:
            raise ArgumentError(
                f"shares add up to {known.sum():g}, not to one: divide them by their sum", argument="shares"
            )
    return jnp.asarray(shares).astype(float_dtype())


def _each_apart(collections, pair, values, level, method, estimand):
    """The difference of two intervals that cover at once with the level, because they are independent."""
    if method != "normal":
        level = jnp.sqrt(level) if isinstance(level, Tracer) else float(np.sqrt(np.asarray(level, np.float64)))
    first, second = (
        linear_functional(each, epsilon, values=values, level=level, method=method, estimand=estimand)
        for each, epsilon in zip(collections, pair, strict=True)
    )
    value, error = first.value - second.value, jnp.hypot(first.standard_error, second.standard_error)
    if method != "normal":
        return Estimate(value, error, first.lower - second.upper, first.upper - second.lower)
    length = jnp.max(jnp.asarray(values)) - jnp.min(jnp.asarray(values))
    half = -ndtri(complement(level) / 2) * error
    return Estimate(value, error, jnp.maximum(value - half, -length), jnp.minimum(value + half, length))


@partial(jax.jit, static_argnums=(5, 6))
def _combined(counts, epsilons, weights, c, miss, method, estimand):
    scale = Scale.of(c)
    x, spread = scale.unit, spread_of(scale.unit)
    data = jax.vmap(evidence)(counts, epsilons)
    each = jax.vmap(lambda one: sample(one, x, False, estimand))(data)
    value = jnp.sum(weights * each.value)
    error = jnp.sqrt(jnp.sum((weights * each.standard_error) ** 2))
    least, most = jnp.sum(jnp.minimum(weights, 0)), jnp.sum(jnp.maximum(weights, 0))
    if method == "normal":
        half = -ndtri(miss / 2) * error
        lower, upper = value - half, value + half
    else:
        spent, tail = jnp.log(miss * _SPENT / (2 * counts.shape[0])), jnp.log(miss * (1 - _SPENT) / 2)
        number, kept = jax.vmap(lambda one: one.num_users)(data), data.rates.d
        ranges = jax.vmap(conservative_limits, (None, 0, 0, 0, None))(spread, each.value, number, kept, spent)
        lower, upper = combined_limits(spread, Collections(each.value, number, kept, weights, *ranges), tail)
    usable = jnp.all(data.usable) & scale.usable & (miss > 0) & (miss < 1)
    usable = usable & jnp.all(jnp.isfinite(weights))
    found = Estimate(value, error, jnp.clip(lower, least, most), jnp.clip(upper, least, most))
    return scale.mapped(found, usable, jnp.sum(weights))
