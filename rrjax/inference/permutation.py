"""Tests by permutation: collections against each other, for any change or for a trend.

Where all collections have the same distribution, the reports are exchangeable between them, whatever the distribution.
So the null needs no estimate of it: the reports are shuffled, which is to draw a contingency table of the given
margins, and the size is exact at the boundary of the simplex too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax import simulate
from rrjax.data.arguments import as_category, as_counts, as_one_or_each, check_key, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.estimators.closed_form import mle_star
from rrjax.inference.distribution_tests import ratio
from rrjax.inference.monte_carlo import (
    HypothesisTest,
    Null,
    check_draws,
    monte_carlo_test,
    rounding_of_pearson,
    simulable,
)
from rrjax.numerics.sums import expm1_epsilon
from rrjax.simulate.sampling import Stream, table

MOST_ROWS = 1024
"""Rows of a table that can be shuffled."""


def equality_test(
    key: Array,
    counts: Sequence[ArrayLike] | ArrayLike,
    epsilon: ArrayLike,
    *,
    num_draws: int = 9999,
    level: float = 0.05,
) -> HypothesisTest:
    r"""Tests whether two or more collections come from the same distribution.

    The statistic is the likelihood ratio, 2·(Σ_g max log L_g − max log L), with the maxima in closed form (`mle_star`).
    The null shuffles the reports among the collections. Where their ε differ, all reports are first randomized further,
    down to the smallest ε, as if they had been collected with it. That keeps the test exact, and costs the precision
    of the larger ε: collect with one ε where you can.

    Args:
        key: A typed key, `jax.random.key(seed)`; also for the further randomization.
        counts: `[G, K]`, or a sequence of G arrays `[K]`: integers, the reports per category.
        epsilon: Scalar, or `[G]`, nats.
        num_draws: Shuffles. Static.
        level: The level that the p-value will be compared with, in (0, 1). Static.

    Returns:
        `HypothesisTest`. The size is at most the level, whatever N, K, ε and θ. All NaN for unusable counts or ε, or a
        collection without reports.

    Raises:
        ValueError: Fewer than two collections, or more than 1024; of different K; a wrong shape or dtype; a level
            outside (0, 1), or too few draws for it.

    Example:
        >>> import jax, rrjax
        >>> last_year, this_year = [520, 290, 100, 90], [440, 350, 110, 100]
        >>> result = rrjax.inference.equality_test(jax.random.key(0), [last_year, this_year], epsilon=2.0)
        >>> bool(0.0005 < result.p_value < 0.005)
        True

    References:
        Lehmann and Romano, "Testing statistical hypotheses", 3rd edition, §15.2, for permutation tests.
    """
    check_key(key)
    check_draws(num_draws, level)
    counts = _as_collections(counts)
    return _test_equality(key, counts, as_one_or_each(epsilon, counts.shape[0], "collections"), num_draws)


def trend_test(
    key: Array,
    counts: Sequence[ArrayLike] | ArrayLike,
    epsilon: ArrayLike,
    times: ArrayLike | None = None,
    *,
    category: int | Int[Array, ""] | None = None,
    num_draws: int = 9999,
    level: float = 0.05,
) -> HypothesisTest:
    r"""Tests whether shares rise or fall over ordered collections.

    With t̄ and s² the mean and variance of the times over all reports, z_i = Σ_g (t_g − t̄)·c_gi / s measures how the
    reports c_gi of a category move with time; c_i are its reports in all collections.

    * For one category: the statistic is z_i/sqrt(c_i·(1 − c_i/N)), Cochran's and Armitage's, positive where the share
      rises; the test is two-sided.
    * For all: Σ z_i²/c_i, large where any share moves in one direction.

    The null shuffles the reports among the collections, and different ε are treated as by `equality_test`. That test
    detects changes of any kind, but a trend with less power.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        counts: `[G, K]`, or a sequence of G arrays `[K]`: integers, the reports per category.
        epsilon: Scalar, or `[G]`, nats.
        times: `[G]`, of the collections, or any scores; 0, 1, … by default.
        category: Scalar integer, 0 … K − 1, traced; or None for all.
        num_draws: Shuffles. Static.
        level: The level that the p-value will be compared with, in (0, 1). Static.

    Returns:
        `HypothesisTest`. The size is at most the level, whatever N, K, ε and θ. All NaN for unusable counts or ε,
        a collection without reports, or times that are not finite.

    Raises:
        ValueError: As `equality_test`; a wrong number of times, or times that are all the same; no such category.

    Example:
        >>> import jax, rrjax
        >>> years = [[520, 290, 190], [500, 300, 200], [460, 330, 210]]
        >>> result = rrjax.inference.trend_test(jax.random.key(0), years, epsilon=2.0, category=0)
        >>> bool(result.statistic < -2.5 and result.p_value < 0.02)
        True

    References:
        Armitage, "Tests for linear trends in proportions and frequencies", 1955.
    """
    check_key(key)
    check_draws(num_draws, level)
    counts = _as_collections(counts)
    groups, num_categories = counts.shape
    times = _as_times(np.arange(groups) if times is None else times, groups)
    epsilons = as_one_or_each(epsilon, groups, "collections")
    one = None if category is None else as_category(category, num_categories).astype(jnp.int32)
    return _test_trend(key, counts, epsilons, times, one, num_draws)


def _as_collections(counts) -> Int[Array, "G K"]:
    rows = list(counts) if isinstance(counts, list | tuple) else counts
    if not isinstance(rows, list):
        rows = rows if isinstance(rows, jax.Array) else np.asarray(rows)
        if rows.ndim != 2:
            raise ArgumentError(
                f"counts must have shape [G, K], a row for each collection; got shape {rows.shape}", argument="counts"
            )
    if not 2 <= len(rows) <= MOST_ROWS:
        raise ArgumentError(f"counts must be of 2 to {MOST_ROWS} collections, got {len(rows)}", argument="counts")
    rows = [as_counts(rows[index], f"counts of collection {index}", whole=True) for index in range(len(rows))]
    for index, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise ArgumentError(
                f"all collections must have the same categories: collection 0 has K = {rows[0].shape[0]}, "
                f"collection {index} has K = {row.shape[0]}",
                argument="counts",
            )
    return jnp.stack(rows)


def _as_times(times, groups) -> Float[Array, " G"]:
    times = times if isinstance(times, jax.Array) else np.asarray(times)
    if times.shape != (groups,):
        raise ArgumentError(
            f"times must be one for each of {groups} collections, got shape {times.shape}", argument="times"
        )
    if not isinstance(times, Tracer):
        known = np.asarray(times, np.float64)
        if not np.isfinite(known).all() or np.ptp(known) == 0:
            raise ArgumentError(
                f"times must be finite numbers, not all the same, got {known.tolist()}", argument="times"
            )
        # Dates as large numbers keep their differences.
        times = (known - known.min()) / np.ptp(known)
    return jnp.asarray(times).astype(float_dtype())


def _leveled(key, counts, epsilons):
    """Randomizes all collections down to the smallest ε; returns their counts, that ε, and whether they are usable."""
    e1 = jax.vmap(expm1_epsilon)(jnp.atleast_1d(epsilons))
    least = jnp.min(e1)
    lowered = counts
    if epsilons.ndim:
        # RR of e after one of e1 is RR of least: with d = e1/(e1 + K), d(e) = d(least)/d(e1).
        further = least * (e1 + counts.shape[1]) / (e1 - least)
        keys = jax.random.split(key, counts.shape[0])
        lowered = jax.vmap(simulate.randomized)(keys, counts, jnp.log1p(further)).astype(counts.dtype)
        lowered = jnp.where((e1 == least)[:, None], counts, lowered)
    _, usable = simulable(counts)
    usable = usable & (jnp.min(jnp.max(counts, axis=1)) > 0) & jnp.isfinite(least)
    return jnp.where(usable, lowered, 1), jnp.log1p(least), usable


def shuffled(statistic: Callable[[Array], Array], counts: Int[Array, "G K"], num_draws: int, method: str) -> Null:
    """The null of a statistic of a table: tables with the margins of `counts`, at random."""
    rows, columns = (jnp.sum(counts, axis=axis).astype(jnp.int32) for axis in (1, 0))
    return Null(lambda key: statistic(table(Stream.of(key), rows, columns)), num_draws, counts.size, method)


@partial(jax.jit, static_argnums=3)
def _test_equality(key, counts, epsilons, num_draws):
    lower, shuffle = jax.random.split(key)
    leveled, epsilon, usable = _leveled(lower, counts, epsilons)
    together = mle_star(jnp.sum(leveled, axis=0), epsilon)

    def statistic(groups):
        return jnp.sum(jax.vmap(lambda row: ratio(row, epsilon, together))(groups.astype(counts.dtype)))

    found = jnp.where(usable, statistic(leveled), jnp.nan)
    return monte_carlo_test(shuffle, found, shuffled(statistic, leveled, num_draws, "likelihood ratio, permutation"))


@partial(jax.jit, static_argnums=5)
def _test_trend(key, counts, epsilons, times, category, num_draws):
    lower, shuffle = jax.random.split(key)
    leveled, _, usable = _leveled(lower, counts, epsilons)
    share = jnp.sum(leveled, axis=1).astype(times.dtype)
    number = jnp.sum(share)
    share = share / number
    centred = times - jnp.sum(share * times)
    centred = centred / jnp.sqrt(jnp.sum(share * centred**2))
    pooled = jnp.sum(leveled, axis=0).astype(times.dtype)
    usable = usable & jnp.all(jnp.isfinite(centred))

    def statistic(groups):
        if category is None:
            moved = jnp.sum(centred[:, None] * groups.astype(times.dtype), axis=0)
            return jnp.sum(moved**2 / jnp.maximum(pooled, 1))
        moved = jnp.sum(centred * jnp.take(groups, category, axis=1).astype(times.dtype))
        variance = pooled[category] * (1 - pooled[category] / number)
        return jnp.where(variance > 0, moved / jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)

    found = jnp.where(usable, statistic(leveled), jnp.nan)
    method = "linear trend of all shares" if category is None else "Cochran–Armitage"
    null = shuffled(lambda groups: jnp.abs(statistic(groups)), leveled, num_draws, f"{method}, permutation")
    rounding = rounding_of_pearson(found if category is None else jnp.ones_like(found), number)
    return dataclasses.replace(monte_carlo_test(shuffle, jnp.abs(found), null, rounding=rounding), statistic=found)
