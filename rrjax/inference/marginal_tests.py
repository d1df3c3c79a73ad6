r"""Tests of tallies, category by category: exact for the support count of each, combined by the union bound.

With users drawn from θ, the support count of one category is S_j ~ Binomial(N, q_j + d_j·θ_j), for every mechanism. A
tally does not tell how the support counts of different categories depend on each other. So each category is tested
exactly, and the smallest of K p-values is multiplied by K (Bonferroni): this holds for any dependence, at any N. Two
categories of which every report supports exactly one, as in a survey of yes and no, are one test (`num_tests`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from rrjax.data.arguments import float_dtype, is_distribution
from rrjax.data.categories import difference
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Rates, Tally, as_tally, equal_rates, num_tests, of_tally, support_data
from rrjax.inference.contradiction import contradiction_test, log_above, log_below, standardized
from rrjax.inference.monte_carlo import NO_DERIVATIVES, HypothesisTest, Null, monte_carlo_test, pearson_rounding
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.solvers import without_derivative
from rrjax.numerics.special import Cells, log_hypergeometric_survival
from rrjax.numerics.sums import accurate_sum
from rrjax.numerics.threefry import product
from rrjax.simulate.sampling import Stream, binomial, table

ROUNDING_OF_SUM = 1e-4
"""Allowed distance of the sum of a distribution from one, for rounding."""


@pytree("method")
class CategoryTest(HypothesisTest):
    """The result of a test of every category. A pytree; `method` is static.

    Attributes:
        statistic: Scalar: distance of the support count of `category` from its expectation under the hypothesis, in
            standard deviations; with several collections, the distance that is most significant.
        p_value: Scalar: that of `category`, times the number of tests: K, or one of two categories of which every
            report supports exactly one; at most one.
        standard_error: Scalar: its standard error; zero, if it is not simulated.
        category: Scalar, integer: the category that differs most, with the smallest p-value; −1 if all categories
            together decide (`contradiction_test`), or for unusable tallies.
        p_values: `[K]`, the p-value of each category alone; NaN if it was not simulated.
        method: The statistic and the null distribution that it is compared with.
    """

    category: Int[Array, ""]
    p_values: Float[Array, " K"]


def _combined(
    p_values: Float[Array, " K"],
    statistics: Float[Array, " K"],
    number: int | Int[Array, ""],
    usable: Bool[Array, ""],
    method: str,
) -> CategoryTest:
    """The test of all categories together, by exact p-values of each; of a number of one, the first decides alone."""
    p_values = jnp.where(number == 1, p_values[0], p_values)
    place = jnp.argmin(p_values)
    zero = jnp.zeros_like(statistics[0])
    return _as_test(place, p_values[place], statistics[place], zero, p_values, number, method, usable)


def _as_test(place, p_value, statistic, error, p_values, number, method, usable):
    """The result from the p-value of one category and its place."""
    number = jnp.asarray(number).astype(p_value.dtype)
    whole = number * p_value
    error = jnp.where(whole < 1, number * error, 0)
    whole = jnp.clip(whole, jnp.finfo(whole.dtype).tiny, 1)
    statistic, whole, error, p_values = (jnp.where(usable, x, jnp.nan) for x in (statistic, whole, error, p_values))
    return CategoryTest(statistic, whole, error, method, jnp.where(usable, place, -1).astype(jnp.int32), p_values)


def fit_of_tally(tally: Tally, epsilon: Any, theta: Array | None, mechanism: Mechanism | None) -> CategoryTest:
    """Tests whether a tally fits a given distribution or, without one, any distribution."""
    data = support_data(tally, epsilon)
    if theta is not None:
        return _test_given(data, theta)
    summed = None
    if mechanism is not None and not (tally.num_categories == 2 and mechanism.same_size):
        summed = contradiction_test(tally, mechanism).p_value
    return _test_any(data, summed)


@jax.jit
def _test_given(data, theta):
    usable = data.usable & is_distribution(theta, ROUNDING_OF_SUM)  # a traced one was not refused
    share = jnp.where(usable, theta / accurate_sum(theta), 1 / theta.shape[0])
    _, _, statistics = standardized(data, share)
    tail = jnp.minimum(log_above(data, share), log_below(data, share))
    p_values = jnp.minimum(2 * jnp.exp(tail), 1)
    return _combined(p_values, statistics, num_tests(data), usable, f"exact binomial test of {_every(theta.shape[0])}")


@jax.jit
def _test_any(data, summed):
    # A support count is least likely too small if nobody holds the category, and too large if everybody does.
    below, above = log_below(data, 0), log_above(data, 1)
    statistics = jnp.where(below <= above, *(standardized(data, share)[2] for share in (0, 1)))
    p_values = jnp.minimum(2 * jnp.exp(jnp.minimum(below, above)), 1)
    number, method = num_tests(data), f"exact binomial bounds of {_every(p_values.shape[0])}"
    if summed is None:
        return _combined(p_values, statistics, number, data.usable, method)
    method = f"{method}, and bounds of all together"
    single = _combined(p_values, statistics, number, data.usable, method)
    whole = jnp.minimum(2 * jnp.minimum(single.p_value, summed), 1)
    decided = summed < single.p_value
    return dataclasses.replace(single, p_value=whole, category=jnp.where(decided, -1, single.category))


def _every(size):
    return "every category, Bonferroni" if size > 2 else "both categories, Bonferroni if their counts are separate data"


def as_tallies(counts: Any, epsilon: Any, most: int) -> tuple[Tally, ...]:
    """Checked tallies of the same categories; none, if the collections are counts."""
    if isinstance(counts, Tally):
        raise ArgumentError(
            "counts must be of two or more collections: give a sequence of tallies, one for each", argument="counts"
        )
    kinds = {isinstance(each, Tally) for each in counts} if isinstance(counts, list | tuple) else {False}
    if len(kinds) > 1:
        raise ArgumentError(
            "counts must be tallies for all collections or for none; a tally of counts of randomized response is "
            "Tally(counts, sum of counts, rates=RandomizedResponse(K, epsilon).rates)",
            argument="counts",
        )
    if kinds != {True}:
        return ()
    if not 2 <= len(counts) <= most:
        raise ArgumentError(f"counts must be of 2 to {most} collections, got {len(counts)}", argument="counts")
    tallies = tuple(as_tally(each, epsilon, whole=True) for each in counts)
    first = tallies[0]
    for index, (each, given) in enumerate(zip(tallies, counts, strict=True)):
        if each.support.shape != first.support.shape:
            raise ArgumentError(
                f"all collections must have the same categories: collection 0 has K = {first.num_categories}, "
                f"collection {index} has K = {each.num_categories}",
                argument="counts",
            )
        own, other = counts[0].domain, given.domain
        if own is not None and other is not None and own != other:
            names = "collection 0", f"collection {index}"
            raise ArgumentError(
                f"all collections must have the same labels: {difference(own, other, *names)}", argument="counts"
            )
    return tallies


def alike(tallies: Sequence[Tally]) -> bool:
    """Whether all rates are known to be equal, so that supports need not be thinned."""
    leaves = jax.tree.leaves([each.rates for each in tallies])
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return False
    first = tallies[0].rates
    return all(
        bool(jnp.shape(each.rates.truth) == jnp.shape(first.truth) and equal_rates(first, each.rates))
        for each in tallies
    )


class Supports(NamedTuple):
    """Support counts of collections at one p and q, int32, and whether they are usable; else they are replaced."""

    support: Int[Array, "G K"]
    num_users: Int[Array, " G"]
    usable: Bool[Array, ""]


def thinned(key: Array, tallies: Sequence[Tally], same: bool) -> Supports:
    r"""Randomizes the supports of each category further, so that all collections have one p and q.

    Let a = q/d and c = (1 − p)/d. Supports of a collection are lost with probability (C − c)/(A + C + 1), and other
    reports become supports with probability (A − a)/(A + C + 1), where A and C are the largest a and c of all
    collections. Then q/d = A and (1 − p)/d = C in all of them. No other thinning has a larger d, because it lowers
    neither ratio. Each category is thinned on its own: their joint law is not used.
    """
    size = tallies[0].num_categories
    seen = [of_tally(each) for each in tallies]
    numbers = jnp.stack([each.num_users for each in tallies])
    total = jnp.sum(numbers.astype(seen[0].excess.dtype))
    usable = jnp.all(jnp.stack([each.usable for each in seen])) & (total < 2.0**31)
    support = jnp.stack([each.support for each in tallies])
    support = jnp.where(usable, support, 1).astype(jnp.int32)
    numbers = jnp.where(usable, numbers, 2).astype(jnp.int32)
    if same:
        return Supports(support, numbers, usable)

    def ratios(rates: Rates):
        return [jnp.broadcast_to(weight / rates.truth, (size,)) for weight in (rates.always, rates.never)]

    rates = without_derivative([each.rates for each in seen], NO_DERIVATIVES)
    always, never = (jnp.stack(each) for each in zip(*map(ratios, rates), strict=True))
    most_always, most_never = jnp.max(always, axis=0), jnp.max(never, axis=0)
    whole = most_always + most_never + 1
    usable = usable & jnp.all(jnp.isfinite(whole))

    def draw(key, support, number, lost, gained):
        losing, gaining = jax.random.split(key)
        fewer = binomial(Stream.of(losing), 0, support, lost)
        return support - fewer + binomial(Stream.of(gaining), 0, number - support, gained)

    lost, gained = ((most - own) / whole for most, own in ((most_never, never), (most_always, always)))
    lost, gained = (jnp.where(usable, jnp.clip(each, 0, 1), 0) for each in (lost, gained))
    keys = jax.random.split(key, len(tallies))
    return Supports(jax.vmap(draw)(keys, support, numbers, lost, gained), numbers, usable)


def num_tests_of(tallies: Sequence[Tally]) -> int | Int[Array, ""]:
    """The number of tests (`num_tests`) of several tallies together."""
    return num_tests(*(support_data(each, None) for each in tallies))


@partial(jax.jit, static_argnums=2)
def equality_of_tallies(key: Array, tallies: tuple[Tally, ...], same: bool) -> CategoryTest:
    """Tests every collection against all others, by category.

    Under the hypothesis its support count, given that of all, is hypergeometric.
    """
    supports = thinned(key, tallies, same)
    support, numbers = supports.support, supports.num_users[:, None]
    marked, total = jnp.sum(support, axis=0, dtype=jnp.int32), jnp.sum(numbers, dtype=jnp.int32)
    # Of two collections one has what the other has not.
    groups = 1 if len(tallies) == 2 else len(tallies)
    p_values, statistics = hypergeometric_test(support[:groups], numbers[:groups], marked[None], total)
    place = jnp.argmin(p_values, axis=0)[None]
    least, statistic = (jnp.take_along_axis(each, place, axis=0)[0] for each in (p_values, statistics))
    thinning = "" if same else ", supports thinned to equal rates"
    method = f"exact hypergeometric test of {_every(support.shape[1])}{thinning}"
    return _combined(jnp.minimum(groups * least, 1), statistic, num_tests_of(tallies), supports.usable, method)


def hypergeometric_test(
    support: Int[Array, "*s"], number: Int[Array, "*s"], marked: Int[Array, "*s"], total: Int[Array, ""]
) -> tuple[Float[Array, "*s"], Float[Array, "*s"]]:
    """Two-sided p-values, twice the smaller tail, of hypergeometric counts, and their standardized distances."""
    dtype = float_dtype()
    support, number, marked = jnp.broadcast_arrays(support, number, marked)
    whole = (support, number - support, marked - support, total - number - marked + support)
    cells = Cells(*(cell.astype(dtype) for cell in whole))
    determinant = _difference(product(*_words(whole[0], whole[3])), product(*_words(whole[1], whole[2])), dtype)
    up = determinant >= 0
    chosen = Cells(*(jnp.where(up, one, other) for one, other in zip(cells, cells.turned, strict=True)))
    tail = log_hypergeometric_survival(chosen, jnp.abs(determinant))
    (taken, rest), (kind, others) = cells.margins
    size = total.astype(dtype)
    spread = jnp.sqrt(taken / size * rest * (kind / jnp.maximum(size - 1, 1)) * (others / size))
    statistic = jnp.where(spread > 0, determinant / size / jnp.where(spread > 0, spread, 1), 0)
    return jnp.minimum(2 * jnp.exp(tail), 1), statistic


def _words(one, other):
    return one.astype(jnp.uint32), other.astype(jnp.uint32)


def _difference(first, second, dtype):
    """The difference of two products of two words each, without cancellation."""
    (high, low), (other_high, other_low) = first, second
    less = (high < other_high) | ((high == other_high) & (low < other_low))
    high, other_high = jnp.where(less, other_high, high), jnp.where(less, high, other_high)
    low, other_low = jnp.where(less, other_low, low), jnp.where(less, low, other_low)
    borrowed = (low < other_low).astype(jnp.uint32)
    size = (high - other_high - borrowed).astype(dtype) * 2.0**32 + (low - other_low).astype(dtype)
    return jnp.where(less, -size, size)


@partial(jax.jit, static_argnums=(4, 5))
def trend_of_tallies(
    key: Array, tallies: tuple[Tally, ...], times: Float[Array, " G"], category: Any, same: bool, draws: int
) -> HypothesisTest:
    """Tests whether support counts rise or fall with time: of one category or, without one, of any.

    Of all categories, only the one with the largest statistic of Cochran and Armitage is shuffled. Its p-value is not
    below the smallest one, so the union bound holds for it too; and shuffles of all would take K times as long.
    """
    lower, shuffle = jax.random.split(key)
    support, numbers, usable = thinned(lower, tallies, same)
    size, place, one = support.shape[1], category, num_tests_of(tallies) == 1
    if category is None:
        pooled, number = (jnp.sum(each, axis=0).astype(times.dtype) for each in (support, numbers))
        expected = numbers[:, None].astype(times.dtype) * (pooled / number)
        spread = pooled * (1 - pooled / number)
        moved = jnp.abs(matmul(times, support.astype(times.dtype) - expected))
        place = jnp.argmax(jnp.where(spread > 0, moved / jnp.sqrt(jnp.where(spread > 0, spread, 1)), 0))
        place = jnp.where(one, 0, place)
    supported = jnp.take(support, place, axis=1)
    groups = jnp.stack([supported, numbers - supported], axis=1)
    trend = linear_trend(shuffle, groups, usable, times, jnp.zeros((), jnp.int32), draws)
    if category is not None:
        return trend
    p_values = jnp.where((jnp.arange(size) == place) | one, trend.p_value, jnp.nan)
    numbers = place, trend.p_value, trend.statistic, trend.standard_error, p_values, jnp.where(one, 1, size)
    method = f"Cochran–Armitage, permutation, of {_every(size)}"
    return _as_test(*numbers, method, usable & ~jnp.isnan(trend.p_value))


def linear_trend(
    key: Array,
    groups: Int[Array, "G K"],
    usable: Bool[Array, ""],
    times: Float[Array, " G"],
    category: Int[Array, ""] | None,
    num_draws: int,
) -> HypothesisTest:
    """The test of `trend_test` on counts of equal rates, of one category or of all together."""
    groups = jnp.where(usable, groups, 1)
    share = jnp.sum(groups, axis=1).astype(times.dtype)
    number = jnp.sum(share)
    share = share / number
    centred = times - jnp.sum(share * times)
    centred = centred / jnp.sqrt(jnp.sum(share * centred**2))
    pooled = jnp.sum(groups, axis=0).astype(times.dtype)
    usable = usable & jnp.all(jnp.isfinite(centred))

    def statistic(groups):
        if category is None:
            moved = jnp.sum(centred[:, None] * groups.astype(times.dtype), axis=0)
            return jnp.sum(moved**2 / jnp.maximum(pooled, 1))
        moved = jnp.sum(centred * jnp.take(groups, category, axis=1).astype(times.dtype))
        variance = pooled[category] * (1 - pooled[category] / number)
        return jnp.where(variance > 0, moved / jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)

    observed = jnp.where(usable, statistic(groups), jnp.nan)
    method = "linear trend of all shares" if category is None else "Cochran–Armitage"
    null = shuffled(lambda groups: jnp.abs(statistic(groups)), groups, num_draws, f"{method}, permutation")
    rounding = pearson_rounding(observed if category is None else jnp.ones_like(observed), number)
    return dataclasses.replace(monte_carlo_test(key, jnp.abs(observed), null, rounding=rounding), statistic=observed)


def shuffled(statistic: Callable[[Array], Array], counts: Int[Array, "G K"], num_draws: int, method: str) -> Null:
    """The null of a statistic of a table: random tables with the margins of `counts`."""
    rows, columns = (jnp.sum(counts, axis=axis).astype(jnp.int32) for axis in (1, 0))
    return Null(lambda key: statistic(table(Stream.of(key), rows, columns)), num_draws, counts.size, method)
