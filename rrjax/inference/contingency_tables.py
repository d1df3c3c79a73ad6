"""Tests on contingency tables: collections against each other, and two attributes of the same users.

Under these hypotheses reports are exchangeable between collections (or the reports of one attribute between users), for
any distribution. So the null needs no estimate of it: the reports are shuffled, which draws a table of the given
margins. The size is exact at the boundary of the simplex too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int

from rrjax import simulate
from rrjax.data.arguments import (
    as_category,
    as_counts,
    as_one_or_each,
    as_scalar,
    check_key,
    count_summary,
    float_dtype,
)
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Rates, Tally
from rrjax.estimators.closed_form import inv_p, mle_star
from rrjax.inference.distribution_tests import likelihood_ratio
from rrjax.inference.functionals import as_known_numbers
from rrjax.inference.marginal_tests import (
    alike,
    as_tallies,
    equality_of_tallies,
    linear_trend,
    num_tests_of,
    shuffled,
    trend_of_tallies,
)
from rrjax.inference.monte_carlo import HypothesisTest, Null, check_draws, monte_carlo_test, pearson_rounding, simulable
from rrjax.numerics.products import matmul
from rrjax.numerics.sharding import refuse_spread, with_sharding_of
from rrjax.numerics.sums import accurate_sum, expm1_epsilon
from rrjax.simulate.sampling import Stream
from rrjax.simulate.sampling.multinomials import multinomial

MOST_ROWS = 1024
"""Largest number of rows of a table that can be shuffled."""


def equality_test(
    key: Array,
    counts: Sequence[ArrayLike | Tally] | ArrayLike,
    epsilon: ArrayLike | None = None,
    *,
    num_draws: int = 9999,
    level: float = 0.05,
) -> HypothesisTest:
    r"""Tests whether two or more collections come from the same distribution.

    The statistic is the likelihood ratio, 2·(Σ_g max log L_g − max log L), with the maxima in closed form (`mle_star`).
    The null shuffles the reports among the collections. If their ε differ, all reports are first randomized further,
    down to the smallest ε, as if collected with it. That keeps the test exact, but loses the precision of the larger ε:
    collect with one ε if possible.

    Tallies are tested category by category, by the exact hypergeometric law of the support count of one collection
    given that of all; the smallest p-value of all categories (and collections, if more than two) is multiplied by their
    number. Two categories, of which each report supports exactly one, as in a survey of yes and no, are one test. If
    the mechanisms or ε of tallies differ, supports are first thinned to one p and q. This detects a change of one
    category best, and many small changes less well than the likelihood ratio does.

    Args:
        key: A typed key, `jax.random.key(seed)`; also for the further randomization.
        counts: `[G, K]`, or a sequence of G arrays `[K]`: integers, the reports per category; or of G tallies.
        epsilon: Scalar, or `[G]`, nats; not with tallies.
        num_draws: Shuffles; none for tallies. Static.
        level: The level that the p-value will be compared with, in (0, 1). Static.

    Returns:
        `HypothesisTest`; of tallies a `CategoryTest`, which says which category differs most. The size is at most the
        level for all N, K, ε and θ. p-values of tallies are accurate to 1e-4 of themselves (float32; 1e-10 in float64)
        below a million reports. All NaN for unusable counts or ε, a collection without reports or, of tallies, 2³¹
        reports or more.

    Raises:
        ValueError: Fewer than two collections, or more than 1024; of different K or labels; a wrong shape or dtype; a
            level outside (0, 1), or too few draws for it.

    Example:
        >>> import jax, rrjax
        >>> last_year, this_year = [520, 290, 100, 90], [440, 350, 110, 100]
        >>> result = rrjax.inference.equality_test(jax.random.key(0), [last_year, this_year], epsilon=2.0)
        >>> bool(0.0005 < result.p_value < 0.005)
        True
        >>> design = rrjax.mechanisms.ForcedResponse(4 / 6, [1 / 2, 1 / 2])
        >>> tallies = [design.tally_of_counts(counts) for counts in ([300, 700], [250, 750])]
        >>> result = rrjax.inference.equality_test(jax.random.key(0), tallies)
        >>> print(f"{result.p_value:.3f}")
        0.014

    References:
        Lehmann and Romano, "Testing statistical hypotheses", 3rd edition, §15.2, for permutation tests; Fisher, "The
        logic of inductive inference", 1935, for the exact test of a table.
    """
    check_key(key)
    check_draws(num_draws, level)
    if tallies := as_tallies(counts, epsilon, MOST_ROWS):
        return equality_of_tallies(key, tallies, alike(tallies))
    counts = _as_collections(counts)
    return _test_equality(key, counts, as_one_or_each(epsilon, counts.shape[0], "collections"), num_draws)


def trend_test(
    key: Array,
    counts: Sequence[ArrayLike | Tally] | ArrayLike,
    epsilon: ArrayLike | None = None,
    times: ArrayLike | None = None,
    *,
    category: int | Int[Array, ""] | None = None,
    num_draws: int = 9999,
    level: float = 0.05,
) -> HypothesisTest:
    r"""Tests whether shares rise or fall over ordered collections.

    With t̄ and s² the mean and variance of the times over all reports, z_i = Σ_g (t_g − t̄)·c_gi / s measures how the
    reports c_gi of a category move with time; c_i are its reports in all collections.

    * For one category: the statistic is z_i/sqrt(c_i·(1 − c_i/N)), Cochran's and Armitage's, positive if the share
        rises; the test is two-sided.
    * For all categories: Σ z_i²/c_i, large if any share moves in one direction.

    The null shuffles the reports among the collections, and different ε are treated as by `equality_test`. That test
    detects changes of any kind, but a trend with less power. Of tallies, the category with the
    largest statistic is shuffled, and its p-value multiplied by the number of tests, as by `equality_test`.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        counts: `[G, K]`, or a sequence of G arrays `[K]`: integers, the reports per category; or of G tallies.
        epsilon: Scalar, or `[G]`, nats; not with tallies.
        times: `[G]`, times of the collections, or any scores; 0, 1, … by default.
        category: Scalar integer, 0 … K − 1, traced; or None for all.
        num_draws: Shuffles. Static.
        level: The level that the p-value will be compared with, in (0, 1). Static.

    Returns:
        `HypothesisTest`; of all categories of tallies a `CategoryTest`. The size is at most the level for all N, K, ε
        and θ. All NaN for unusable counts or ε, a collection without reports, or times that are not finite.

    Raises:
        ValueError: As `equality_test`; a wrong number of times, or times that are all the same; no such category; too
            few draws for the level divided by the number of categories of tallies.

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
    tallies = as_tallies(counts, epsilon, MOST_ROWS)
    stacked = None if tallies else _as_collections(counts)
    groups, size = (len(tallies), tallies[0].num_categories) if stacked is None else stacked.shape
    tests = 1 if stacked is not None or category is not None else num_tests_of(tallies)
    check_draws(num_draws, level, tests if isinstance(tests, int) else size)
    times, known = as_known_numbers(np.arange(groups) if times is None else times, "times", groups, "collections")
    if known is not None:
        if not np.isfinite(known).all() or np.ptp(known) == 0:
            raise ArgumentError.about("times", f"must be finite numbers, not all the same, got {known.tolist()}")
        # The differences of dates, as large numbers, keep their digits.
        times = (known - known.min()) / np.ptp(known)
    times = jnp.asarray(times).astype(float_dtype())
    place = None if category is None else as_category(category, size).astype(jnp.int32)
    if stacked is None:
        return trend_of_tallies(key, tallies, times, place, alike(tallies), num_draws)
    return _test_trend(key, stacked, as_one_or_each(epsilon, groups, "collections"), times, place, num_draws)


def independence_test(
    key: Array, counts: ArrayLike, epsilon: ArrayLike | None = None, *, num_draws: int = 9999, level: float = 0.05
) -> HypothesisTest:
    r"""Tests whether two attributes of the same users are independent.

    Attributes that were randomized separately need no ε. The joint law of the reports is A·θ·Bᵀ with the channels A and
    B, which are invertible: it is a product if and only if θ is one. So independence of the values is independence of
    the reports, and a shuffle of one attribute among the users is an exact null.

    Pairs that were randomized as one, by k-ary randomized response with a category for each pair, need their ε. Then
    independent values make dependent reports, so the null is simulated at the estimated margins. The part that other
    margins could explain is subtracted from Pearson's statistic, so in large collections it does not depend on the
    margins.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        counts: `[K, L]`, integers: how many users reported i for the first attribute and j for the second.
        epsilon: Scalar, nats, for pairs that were randomized as one; None for two randomizations.
        num_draws: Shuffles. Static.
        level: The level that the p-value will be compared with, in (0, 1). Static.

    Returns:
        `HypothesisTest` with Pearson's statistic of the table. The size is at most the level for all margins. For pairs
        that were randomized as one it is near the level: 0.02 to 0.08 at 0.05 in sixteen settings, and up to 0.09 in
        three settings with nearly empty cells, or with ε near zero. NaN for negative counts, or no reports.

    Raises:
        ValueError: A wrong shape or dtype, K or L < 2, both above 1024, a level outside (0, 1), or too few draws for
            it.

    Example:
        >>> import jax, rrjax
        >>> table = [[30, 20, 10], [20, 30, 40]]
        >>> bool(rrjax.inference.independence_test(jax.random.key(0), table).p_value < 0.001)
        True

    References:
        Pearson, "On the criterion …", 1900; Freeman and Halton, "Note on an exact treatment of contingency, goodness of
        fit and other problems of significance", 1951.
    """
    check_key(key)
    check_draws(num_draws, level)
    counts = counts if isinstance(counts, jax.Array) else np.asarray(counts)
    if counts.ndim != 2 or min(counts.shape) < 2:
        raise ArgumentError(
            f"counts must have shape [K, L], a row for each category of the first attribute and a column for each of "
            f"the second, at least two; got shape {counts.shape}",
            argument="counts",
        )
    if min(counts.shape) > MOST_ROWS:
        raise ArgumentError(
            f"one of the attributes must have at most {MOST_ROWS} categories, got {counts.shape}", argument="counts"
        )
    shape = counts.shape
    counts = as_counts(counts.ravel(), whole=True).reshape(shape)
    if epsilon is not None:
        counts = refuse_spread(counts, "independence_test of pairs")
        counts, epsilon = with_sharding_of((counts, as_scalar(epsilon, float_dtype())))
        return _test_pairs(key, counts if shape[0] >= shape[1] else counts.T, epsilon, num_draws)
    # Tables are drawn row by row.
    return _test_independence(key, counts if shape[0] <= shape[1] else counts.T, num_draws)


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


@partial(jax.jit, static_argnums=3)
def _test_equality(key, counts, epsilons, num_draws):
    lower, shuffle = jax.random.split(key)
    leveled, epsilon, usable = _leveled(lower, counts, epsilons)
    together = mle_star(jnp.sum(leveled, axis=0), epsilon)

    def statistic(groups):
        return jnp.sum(jax.vmap(lambda row: likelihood_ratio(row, epsilon, together))(groups.astype(counts.dtype)))

    observed = jnp.where(usable, statistic(leveled), jnp.nan)
    return monte_carlo_test(shuffle, observed, shuffled(statistic, leveled, num_draws, "likelihood ratio, permutation"))


@partial(jax.jit, static_argnums=5)
def _test_trend(key, counts, epsilons, times, category, num_draws):
    lower, shuffle = jax.random.split(key)
    leveled, _, usable = _leveled(lower, counts, epsilons)
    return linear_trend(shuffle, leveled, usable, times, category, num_draws)


@partial(jax.jit, static_argnums=2)
def _test_independence(key, counts, num_draws):
    dtype = float_dtype()
    _, usable = simulable(counts)
    counts = jnp.where(usable, counts, 1)
    rows, columns = (jnp.sum(counts.astype(dtype), axis=axis) for axis in (1, 0))
    expected = rows[:, None] * (columns / jnp.sum(rows))

    def pearson(counts):
        return jnp.sum((counts.astype(dtype) - expected) ** 2 / jnp.where(expected > 0, expected, 1))

    observed = jnp.where(usable, pearson(counts), jnp.nan)
    null = shuffled(pearson, counts, num_draws, "Pearson, permutation")
    return monte_carlo_test(key, observed, null, rounding=pearson_rounding(observed, jnp.sum(rows)))


@partial(jax.jit, static_argnums=3)
def _test_pairs(key, counts, epsilon, num_draws):
    """Pearson's statistic of reported pairs against independent values, simulated at the estimated margins.

    A report is the truth in both attributes or in none. So independent values with margins a and b make dependent
    reports: the pair (i, j) is reported with probability d·a_i·b_j + (1 − d)/KL.
    """
    seen, e1 = count_summary(counts.ravel()), expm1_epsilon(epsilon)
    usable = seen.simulable & (e1 > 0)
    counts = jnp.where(usable, counts, 1)
    # Above this ε, the probability of an empty pair is below the smallest float: its weight would be infinite.
    e1 = jnp.where(usable, jnp.minimum(e1, jnp.finfo(e1.dtype).max ** 0.5), 1)
    number = jnp.where(usable, seen.total, counts.size).astype(jnp.int32)
    statistic, law = _pearson(counts, number, e1)
    law = (law / accurate_sum(law.ravel())).ravel()

    def draw(key):
        (cells,) = multinomial(Stream.of(key), number, law[None])
        return _pearson(cells.reshape(counts.shape), number, e1)[0]

    method = "Pearson's statistic against independent values, simulated at their estimated margins"
    statistic = jnp.where(usable, statistic, jnp.nan)
    return monte_carlo_test(key, statistic, Null(draw, num_draws, counts.size, method))


def _pearson(table, number, e1):
    """Pearson's statistic against independent values, and their law `[K, L]`.

    The part that other margins could explain is subtracted from the difference to the law with unbiased margins, of any
    sign (one Gauss–Newton step towards the most likely margins). The remainder has (K − 1)(L − 1) degrees of freedom
    for all margins, also at zero; so a simulation at estimated margins keeps its level.
    """
    num_rows, num_columns = table.shape
    size = table.size
    d, noise = e1 / (e1 + size), 1 / (e1 + size)
    users = number.astype(e1.dtype)
    # For one attribute alone, a report names the user's value with the chance of L (or K) pairs plus d.
    of_rows = Tally(jnp.sum(table, axis=1), number, rates=Rates(num_columns, size - num_columns, e1).astype(e1.dtype))
    of_columns = Tally(jnp.sum(table, axis=0), number, rates=Rates(num_rows, size - num_rows, e1).astype(e1.dtype))
    plain = [_inverted(tally, users, d) for tally in (of_rows, of_columns)]
    difference = table.astype(e1.dtype) / users - (d * jnp.outer(*plain) + noise)
    rows, columns = inv_p(of_rows), inv_p(of_columns)
    law = d * jnp.outer(rows, columns) + noise
    # Least squares of x·columns + rows·y, weighted by 1/law, over changes x and y that sum to 0 each: x is eliminated.
    weights = 1 / law
    x_wanted, y_wanted = matmul(difference * weights, columns), matmul(rows, difference * weights)
    across = jnp.outer(rows, columns) * weights
    inverse = 1 / matmul(weights, columns**2)

    def eliminated(right):
        """The changes x `[K, M]` that sum to 0 and explain each column of the right side best."""
        raw = inverse[:, None] * right
        return raw - inverse[:, None] * (jnp.sum(raw, axis=0) / jnp.sum(inverse))

    square = jnp.diag(matmul(rows**2, weights)) - matmul(across.T, eliminated(across))
    one = jnp.ones((num_columns, 1), square.dtype)
    bordered = jnp.block([[square, one], [one.T, jnp.zeros((1, 1), square.dtype)]])
    x = eliminated(x_wanted[:, None])
    y_left = jnp.append(y_wanted - matmul(across.T, x)[:, 0], 0)
    explained = matmul(x_wanted, x[:, 0]) + matmul(y_left, jnp.linalg.solve(bordered, y_left))
    return users * (jnp.sum(difference**2 * weights) - explained), law


def _inverted(tally, users, d):
    """The unbiased share of every category, of any sign."""
    return (tally.support.astype(users.dtype) / users - tally.rates.q) / d
