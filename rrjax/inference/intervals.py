"""Exact statements about each category: confidence intervals, p-values, and discoveries.

The result of a category depends on its count, N and the rates alone. So where counts are known, in the memory of the
host, it is computed once for each distinct count: a million categories have some hundreds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.scipy.special import ndtri
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import (
    Estimand,
    as_counts,
    as_counts_and_epsilon,
    as_probability,
    as_scalar,
    check_estimand,
    complement,
    float_dtype,
)
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import SupportData, Tally, as_tally, num_tests, support_data
from rrjax.inference.any_time import any_time_limits
from rrjax.inference.contradiction import log_above, log_below
from rrjax.inference.fakes import without_fakes
from rrjax.inference.profile import profile_limits
from rrjax.inference.two_binomials import ROUNDING_OF_TAIL, TwoKinds, beyond, fewest_holders
from rrjax.mechanisms.mechanism import Dependence
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.special import log_survival, odds_of_tail

Method: TypeAlias = Literal["clopper-pearson", "wilson", "profile"]
Simultaneous: TypeAlias = Literal["bonferroni", "sidak"]
Looks: TypeAlias = Literal["any"]

_REFUSED = {
    "bootstrap": "estimates on the simplex pile up at its boundary, and so do those of resampled reports: percentile "
    "intervals of MLE* cover far less often than their level",
    "normal": "an estimate at or near the boundary has no normal error: ± 1.96 standard errors of MLE* covered almost "
    "none of the shares whose estimate is zero",
}
_REFUSED["wald"] = _REFUSED["normal"]


@exportable
class Intervals(NamedTuple):
    """Confidence limits.

    Attributes:
        lower: `[K]`, in [0, 1]; NaN if no share explains the count of the category, as a test of all categories says.
        upper: `[K]`, in [0, 1], not below `lower`; NaN as `lower`.
    """

    lower: Float[Array, " K"]
    upper: Float[Array, " K"]


def intervals(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    level: ArrayLike = 0.95,
    *,
    method: Method = "clopper-pearson",
    simultaneous: Simultaneous | None = None,
    estimand: Estimand = "distribution",
    fakes: int = 0,
    looks: Looks | None = None,
    tuned_to: ArrayLike = 10_000,
) -> Intervals:
    r"""Confidence intervals for every θ_i, valid at the boundary, unlike intervals from asymptotic theory.

    The support count of a category is Binomial(N, q + d·θ_i), whatever the other shares are. So an interval for that
    probability, mapped by (· − q)/d and cut to [0, 1], is an interval for θ_i. For a survey design q differs by
    category (its tally knows):

    * "clopper-pearson": exact: it covers with at least its level for all N, K, ε and θ. The default.
    * "wilson": from the normal approximation of the count at the limit itself. Shorter; covers with its level on
      average over θ, and less often at some θ.
    * "profile": for comparison, and for randomized response only. Its limits are the points where the profile
        likelihood has fallen by half the χ² quantile. It warns, because it fails at the boundary and, with many
        categories, far from it.

    θ_i is the share in the distribution from which the users are independent draws (the estimand "distribution"), or
    among these users ("users"). If n_i of the given users hold the category, its count is a sum of two binomial
    variables; the exact test of every n_i is inverted. The interval is shorter, by the error that drawing the users
    adds. The intervals for the distribution cover the users' own shares too, because such a sum is less spread than the
    binomial variable of the same mean.

    With `fakes` = m, any m of the N reports may say anything, such as those of a bot, and θ is that of the other
    N − m users. Without the fakes a support count is between c − m and c. So the lower limit is that of c − m in N − m
    reports, the upper one that of c in N − m, and both hold whatever the fakes say. No fake is detected.

    With `looks` = "any" the limits hold at all numbers of users at once, so that a growing collection may be read every
    day, and stopped by what is seen: the probability that the interval of a category ever misses its θ_i is at most
    1 − level. An interval for one number of users, read daily for 90 days, misses at some look in about a third of all
    collections. The price is the width, about 1.6 times at the number of users `tuned_to`.

    Bootstrap and normal intervals are refused. The estimate of `mle_star` may lie outside its own exact interval: it is
    biased if K is large, the interval is not.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        level: Scalar in (0, 1): the probability that the interval of a category covers its θ_i; with `simultaneous`,
            that all intervals cover simultaneously.
        method: As above.
        simultaneous: "bonferroni" divides 1 − level by K and has no further assumption. "sidak" takes the K-th root of
            the level; it is slightly shorter, and holds for normal variables, so only for large counts. Of two
            categories, of which each report supports exactly one, the intervals hold together anyway: both are as None.
        estimand: As above; "users" requires "clopper-pearson".
        fakes: m, an integer from 0 to below N. Static.
        looks: None, for one number of users that was fixed beforehand, or "any", which requires "clopper-pearson", the
            distribution, and no fakes.
        tuned_to: Scalar ≥ 1, with looks "any": the number of users for which the limits are narrow. It must be fixed
            beforehand: if it follows the counts, the limits hold no longer.

    Returns:
        `Intervals`, each `[K]`. Limits are accurate to 1e-5 of their distance from the estimate, or to the rounding of
        q + d·θ, whichever is more, for N up to the largest integer. For the users' own shares they are the right whole
        numbers of users ÷ N, to the rounding of q + d·θ; if a tail is within 2e-4 (float32; 1e-8 in float64) of its
        level, they are the wider limits. If even the upper limit lies below zero, both are zero; if the lower limit
        lies above one, both are one: with many empty categories this happens to some by chance. Both are NaN if no
        share explains the count, by exact tests of all categories at once: fewer reports support the category than
        chance alone allows, or more than if all users held it. By chance this happens to any category with probability
        1 − level at most. Outside of transformations of JAX, each distinct count is computed once: a million categories
        take milliseconds, and differ from those under `jit` by at most a hundred units in the last place. All NaN for
        unusable counts or ε, or (under tracing) a level outside (0, 1).

    Raises:
        ValueError: A wrong shape or dtype, K < 2, a level outside (0, 1), a method that is unknown or refused, or
            fakes that are not from 0 to below N, or options that do not go together.

    Warns:
        UserWarning: For "profile".

    Example:
        >>> import rrjax
        >>> lower, upper = rrjax.inference.intervals([5_200, 2_900, 1_000, 900], epsilon=2.0)
        >>> [f"{a:.3f} to {b:.3f}" for a, b in zip(lower.tolist(), upper.tolist())]
        ['0.673 to 0.705', '0.301 to 0.330', '0.000 to 0.016', '0.000 to 0.000']
        >>> design = rrjax.mechanisms.ForcedResponse(4 / 6, [1 / 2, 1 / 2])
        >>> lower, upper = rrjax.inference.intervals(design.tally_of_counts([300, 700]))
        >>> [f"{a:.3f} to {b:.3f}" for a, b in zip(lower.tolist(), upper.tolist())]
        ['0.158 to 0.244', '0.756 to 0.842']
        >>> lower, upper = rrjax.inference.intervals(design.tally_of_counts([300, 700]), fakes=20)
        >>> [f"{a:.3f} to {b:.3f}" for a, b in zip(lower.tolist(), upper.tolist())]
        ['0.136 to 0.254', '0.746 to 0.864']
        >>> lower, upper = rrjax.inference.intervals([5_200, 2_900, 1_000, 900], epsilon=2.0, looks="any")
        >>> [f"{a:.3f} to {b:.3f}" for a, b in zip(lower.tolist(), upper.tolist())]
        ['0.664 to 0.714', '0.293 to 0.338', '0.000 to 0.021', '0.000 to 0.004']

    References:
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934; Wilson, "Probable inference, the law of
        succession, and statistical inference", 1927; Hoeffding, "On the distribution of the number of successes in
        independent trials", 1956, on a fixed population; Ville, "Étude critique de la notion de collectif", 1939, for
        any number of looks (`rrjax.inference.any_time`).
    """
    if method in _REFUSED:
        raise ArgumentError.about("method", f"{method!r} is refused: {_REFUSED[method]}; use 'clopper-pearson'")
    if method not in get_args(Method):
        raise ArgumentError.about("method", f"must be 'clopper-pearson', 'wilson' or 'profile', got {method!r}")
    check_estimand(estimand)
    if estimand == "users" and method != "clopper-pearson":
        raise ArgumentError.about(
            "method", f"{method!r} is for the distribution; for the users' own shares use 'clopper-pearson'"
        )
    if method == "profile":
        warnings.warn(
            "intervals from the profile likelihood fail at the boundary of the simplex and near it, most with many "
            "categories: for comparison only; 'clopper-pearson' covers everywhere",
            UserWarning,
            stacklevel=2,
        )
    as_probability(level, "level", 0.95)
    miss = complement(level)
    data = support_data(counts, epsilon)
    tail = log_tail(miss, simultaneous, num_tests(data))
    tuned = as_looks(looks, tuned_to, method == "clopper-pearson" and estimand == "distribution" and not fakes)
    if tuned is not None:
        support = whole_support(counts, epsilon)
        return once_per_count(lambda data, _: _at_any_time(data, miss, tail, tuned), support, data, tail, tuned)
    alone = log_tail(miss, "bonferroni", num_tests(data))
    if method == "profile":
        if as_integer(fakes, "fakes", 0):
            raise ArgumentError.about("fakes", "are for 'clopper-pearson' and 'wilson', not for 'profile'")
        return _cut(data, data, miss, alone, *profile_limits(*as_counts_and_epsilon(counts, epsilon), tail))
    sides = without_fakes(counts, epsilon, fakes) if as_integer(fakes, "fakes", 0) else ((counts, epsilon),)
    given = [(support_data(*each), whole_counts(*each) if estimand == "users" else None) for each in sides]
    support = whole_support(counts, epsilon)
    return once_per_count(lambda given, _: _limits(given, miss, tail, alone, method), support, given, tail)


def as_looks(looks: Looks | None, tuned_to: ArrayLike, alone: bool) -> Float[Array, ""] | None:
    """The number of users to which limits for any number of looks are tuned; None for one look.

    Raises `ValueError` for other looks, and for options that do not go with them, unless these are left `alone`.
    """
    if looks is None:
        return None
    if looks not in get_args(Looks):
        raise ArgumentError.about("looks", f"must be None or 'any', got {looks!r}")
    if not alone:
        problem = "'any' is for the default method, the distribution and no fakes; leave the other options out"
        raise ArgumentError.about("looks", problem)
    tuned = as_scalar(tuned_to, float_dtype(), "tuned_to")
    if not isinstance(tuned, Tracer) and not 1 <= float(tuned) < math.inf:
        raise ArgumentError.about("tuned_to", f"must be a number of users, at least 1, got {float(tuned):g}")
    return tuned


@partial(program, static_argnums=(4,))
def _limits(given, miss, tail, alone, method):
    """The lower limits of the first data, and the upper ones of the last."""

    def both(data, users):
        if method == "wilson":
            return tuple(data.rates.share(p) for p in _wilson(data.support, data.others, tail))
        return exact_limits(data, users, tail)

    limits = [both(*each) for each in given]
    return _cut(given[0][0], given[-1][0], miss, alone, limits[0][0], limits[-1][1])


@program
def _at_any_time(data, miss, tail, tuned_to):
    limits = any_time_limits(data, tail, tuned_to)
    some = data.usable & (miss > 0) & (miss < 1) & (tuned_to >= 1)
    return Intervals(*(jnp.where(some, jnp.clip(limit, 0, 1), jnp.nan) for limit in limits))


def _cut(least, most, miss, alone, lower, upper):
    """Limits cut to [0, 1], or NaN where the exact tail of any share is less than `alone`."""
    possible = (log_below(most, 0) >= alone) & (log_above(least, 1) >= alone)
    some = least.usable & most.usable & (miss > 0) & (miss < 1) & possible
    return Intervals(*(jnp.where(some, jnp.clip(limit, 0, 1), jnp.nan) for limit in (lower, upper)))


def within(lower: Any, upper: Any, least: Any = 0.0, most: Any = 1.0) -> tuple[Array, Array]:
    """Limits of a number, cut to its range; NaN if it has none between them: no distribution explains the reports."""
    some = (lower <= upper) & (lower <= most) & (upper >= least)
    lower, upper = jnp.clip(lower, least, most), jnp.clip(upper, least, most)
    return jnp.where(some, lower, jnp.nan), jnp.where(some, upper, jnp.nan)


def log_tail(
    miss: Float[Array | np.ndarray, ""], simultaneous: Simultaneous | None, number: int | Int[Array, ""]
) -> Float[Array, ""]:
    """Logarithm of the probability of either tail of one of `number` intervals that miss with probability `miss`."""
    if simultaneous not in (None, *get_args(Simultaneous)):
        raise ArgumentError.about("simultaneous", f"must be None, 'bonferroni' or 'sidak', got {simultaneous!r}")
    if isinstance(number, jax.Array):
        miss = jnp.asarray(miss)
        number = number.astype(miss.dtype)
    xp: Any = np if isinstance(miss, np.ndarray) else jnp  # JAX would compile a program for every operation
    if simultaneous == "bonferroni":
        miss = miss / number
    elif simultaneous == "sidak":
        miss = -xp.expm1(xp.log1p(-miss) / number)
    return xp.asarray(xp.log(miss / 2))


def exact_limits(
    data: SupportData, users: tuple[Int[Array, " K"], Int[Array, ""]] | None, log_tail: Float[Array, ""]
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Exact limits of every share, not cut to [0, 1]; of the users' own shares if `users` are given."""
    if users is not None:
        return _of_users(data, *users, log_tail)
    low, high = _clopper_pearson(data.support, data.others, log_tail)
    return data.rates.share(low), data.rates.share(high)


@jax.jit
def _clopper_pearson(count, other, log_tail):
    # The upper limit is one minus the lower limit of all other categories together.
    low, high = odds_of_tail(jnp.stack([count, other]), jnp.stack([other, count]), log_tail)
    return low / (1 + low), 1 / (1 + high)


def whole_counts(counts: ArrayLike | Tally, epsilon: ArrayLike | None) -> tuple[Int[Array, " K"], Int[Array, ""]]:
    """The integers in the evidence: support counts, and the number of users."""
    support = whole_support(counts, epsilon)
    return support, as_tally(counts, epsilon).num_users if isinstance(counts, Tally) else jnp.sum(support)


def whole_support(counts: ArrayLike | Tally, epsilon: ArrayLike | None) -> Int[Array, " K"]:
    """The support counts as integers."""
    return as_tally(counts, epsilon, whole=True).support if isinstance(counts, Tally) else as_counts(counts, whole=True)


@jax.jit
def _of_users(data: SupportData, support, total, log_tail):
    p, q, d = data.rates.p, data.q, data.rates.d
    not_q, not_p = data.rates.not_q, jnp.maximum(data.rates.not_p, jnp.finfo(d.dtype).tiny)
    word = np.promote_types(support.dtype, f"int{jnp.finfo(d.dtype).bits}")  # as wide as the rates, for exact products
    support, total = jnp.where(data.usable, support, 1).astype(word), jnp.where(data.usable, total, 2).astype(word)
    held = fewest_holders(support, TwoKinds(*beyond(support, total, q, not_q), total, p, q, not_p, not_q, d), log_tail)
    # The users without the category, counted by the reports that name another one.
    others = total - support
    turned = TwoKinds(*beyond(others, total, not_p, p), total, not_q, not_p, q, p, d)
    not_held = fewest_holders(others, turned, log_tail)
    size = total.astype(d.dtype)
    lower, upper = held.astype(d.dtype) / size, jnp.maximum(total - not_held, held).astype(d.dtype) / size
    # Both limits are out of range if the count is too small, or too large, for every number of holders.
    surely = log_tail - ROUNDING_OF_TAIL[d.dtype.name]
    shift = jnp.where(log_below(data, 0) < surely, -2.0, jnp.where(log_above(data, 1) < surely, 2.0, 0.0))
    return lower + shift, upper + shift


@jax.jit
def _wilson(count, other, log_tail):
    z2 = ndtri(jnp.exp(log_tail)) ** 2
    total = count + other
    half = jnp.sqrt(z2 * (count * (other / total) + z2 / 4))
    # The lower root from the product of the roots, so that it keeps its digits.
    upper = (count + z2 / 2 + half) / (total + z2)
    lower = count * (count / total) / (count + z2 / 2 + half)
    return lower, upper


def p_values(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None, *, log: bool = False) -> Float[Array, " K"]:
    """Exact p-values of the hypotheses that a category is empty, θ_i = 0 against θ_i > 0.

    P(Binomial(N, q) ≥ c_i): the probability that an empty category has this count or a larger one.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        log: Whether to return natural logarithms, which do not underflow.

    Returns:
        `[K]`, in [0, 1]. Logarithms are accurate to 2e-6 (float32; 1e-14 in float64) of the larger of one and
        themselves, at any N and however far the tail. Each distinct count is computed once. All NaN for unusable counts
        or ε.

    Raises:
        ValueError: A wrong shape or dtype, or K < 2.

    Example:
        >>> import rrjax
        >>> [f"{p:.2g}" for p in rrjax.inference.p_values([40, 22, 15, 13], epsilon=2.0).tolist()]
        ['9.5e-18', '3.4e-05', '0.025', '0.09']
    """
    data = support_data(counts, epsilon)
    return once_per_count(lambda data, _: _p_values(data, log), whole_support(counts, epsilon), data)


def discoveries(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    fdr: ArrayLike = 0.05,
    *,
    dependence: Dependence = "negative",
) -> Bool[Array, " K"]:
    """Marks categories that are significantly above zero, at a false discovery rate.

    Among the sorted exact `p_values`, the largest p_(k) ≤ k·fdr/K and all below are significant (Benjamini and
    Hochberg). The support of `mle_star` does not bound the false discovery rate: most of it may be empty categories,
    because about half of the empty categories whose counts are above their expectation have a positive estimate.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        fdr: Scalar in (0, 1): the false discovery rate, a bound on the expected share of empty categories among the
            marked ones.
        dependence: "negative": the method unchanged. Counts of one collection of randomized response are negatively
            associated; for them the bound is proven up to a constant factor, and holds without it in simulations.
            Counts of unary encoding are independent for given users, and the bound is proven. "any": the method of
            Benjamini and Yekutieli, which divides fdr by 1 + 1/2 + … + 1/K and is proven for any dependence.

    Returns:
        `[K]`, booleans. All false for unusable counts or ε.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an fdr outside (0, 1), or an unknown dependence.

    Example:
        >>> import rrjax
        >>> rrjax.inference.discoveries([5_200, 2_900, 1_000, 900], epsilon=2.0).tolist()
        [True, True, False, False]

    References:
        Benjamini and Hochberg, "Controlling the false discovery rate", 1995; Benjamini and Yekutieli, "The control of
        the false discovery rate in multiple testing under dependency", 2001, Theorem 1.3; Chi, Ramdas and Wang,
        "Multiple testing under negative dependence", arXiv:2212.09706.
    """
    if dependence not in ("negative", "any"):
        raise ArgumentError(f"dependence must be 'negative' or 'any', got {dependence!r}", argument="dependence")
    bound = as_probability(fdr, "fdr", 0.05)
    data = support_data(counts, epsilon)
    size = data.support.shape[0]
    divisor = float(np.sum(1 / np.arange(1, size + 1))) if dependence == "any" else 1.0
    return once_per_count(
        lambda data, times: _step_up(data, times, size, bound, divisor), whole_support(counts, epsilon), data, bound
    )


def _log_p_values(data):
    value = log_survival(data.support, data.others, data.excess, data.q)
    return jnp.where(data.usable, value, jnp.nan)


@partial(jax.jit, static_argnames="log")
def _p_values(data, log):
    value = _log_p_values(data)
    return value if log else jnp.exp(value)


@program
def _step_up(data, times, size, bound, divisor):
    log_p_value = _log_p_values(data)
    bound = jnp.where((bound > 0) & (bound < 1), bound, jnp.nan)  # under tracing; no p-value is below NaN
    log_unit = jnp.log(bound / divisor / size)
    each = 1 if times is None else times

    def count(k):
        return jnp.sum(jnp.where(log_p_value <= log_unit + jnp.log(k.astype(log_unit.dtype)), each, 0), dtype=jnp.int32)

    # The largest k with k p-values at most k·unit: from k = K down, every count of them is the next k.
    start = with_sharding_of(jnp.asarray(size, jnp.int32), log_p_value, log_unit)
    _, number = lax.while_loop(lambda s: s[1] < s[0], lambda s: (s[1], count(s[1])), (start + 1, start))
    return log_p_value <= log_unit + jnp.log(number.astype(log_unit.dtype))


FEWEST_CATEGORIES = 1024
"""Number of categories below which every category is computed: it is as fast."""
FEWEST_CATEGORIES_A_COUNT = 4
"""Mean number of categories per count below which every category is computed."""
SMALLEST_BATCH = 256
"""Smallest number of distinct counts in a batch, so that few programs are compiled."""

Result = TypeVar("Result")


class DistinctCounts(NamedTuple):
    """The distinct counts of a collection."""

    example: np.ndarray  # `[D]`, a category with each; the first repeated up to a power of two, to compile few programs
    times: np.ndarray  # `[D]`, number of categories with it; zero for the repetitions
    place: np.ndarray  # `[K]`, the place of each category's count

    def pick(self, leaf: Any) -> Any:
        """The entries `[D]` of the examples in an array `[K]`; anything else unchanged."""
        if np.shape(leaf) != self.place.shape:
            return leaf
        return jax.device_put(np.asarray(leaf)[self.example], leaf.sharding)

    def spread(self, leaf: Array) -> Array:
        """The results `[K]` of all categories, from results `[D]`."""
        return jax.device_put(np.asarray(leaf)[self.place], leaf.sharding)


def once_per_count(
    function: Callable[[Any, np.ndarray | None], Result], counts: Int[Array, " K"], given: Any, *others: Any
) -> Result:
    """Calls a function of `given`, a pytree with arrays `[K]`, on one category of each distinct count.

    The function's second argument is the number of categories with each count, or None if every category is computed.
    `others` are its further inputs: if one is traced, every category is computed.
    """
    distinct = distinct_counts(counts, given, *others)
    if distinct is None:
        return function(given, None)
    return jax.tree.map(distinct.spread, function(jax.tree.map(distinct.pick, given), distinct.times))


def distinct_counts(counts: Int[Array, " K"], *others: object) -> DistinctCounts | None:
    """The distinct counts, in time O(K); None if they are traced, not on the host, few or not repeated."""
    size = counts.shape[0]
    if size < FEWEST_CATEGORIES or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((counts, others))):
        return None
    if not isinstance(counts.sharding, SingleDeviceSharding) or next(iter(counts.devices())).platform != "cpu":
        return None
    known = np.asarray(counts)
    above = known - known.min()  # counts of many reports are far from zero
    small = np.flatnonzero((above >= 0) & (above < 2 * size))  # a table serves these; unusable counts wrapped below 0
    seen = np.zeros(2 * size, bool)
    seen[above[small]] = True
    place_of_small = np.cumsum(seen, dtype=np.int32) - 1
    large = np.ones(size, bool)
    large[small] = False
    values, place_of_large = np.unique(above[large], return_inverse=True)
    number = int(place_of_small[-1]) + 1 + len(values)
    if number * FEWEST_CATEGORIES_A_COUNT > size:
        return None
    place = np.empty(size, np.int32)
    place[small] = place_of_small[above[small]]
    place[large] = place_of_large + place_of_small[-1] + 1
    padded = max(SMALLEST_BATCH, 1 << (number - 1).bit_length())
    example = np.empty(padded, np.int64)
    example[place] = np.arange(size)
    example[number:] = example[0]
    return DistinctCounts(example, np.bincount(place, minlength=padded).astype(np.int32), place)
