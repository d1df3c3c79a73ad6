"""Quantiles of ordered categories, and simultaneous bands of the distribution function of ordered values.

A band holds for any channel and every sample size. Two exact statements bound the error of the distribution G of the
reports, for every N and G. The Dvoretzky–Kiefer–Wolfowitz inequality, with Massart's constant, bounds that of the
distribution function everywhere at once: the largest |Ĝ − G| exceeds √(log(2/p)/(2N)) with probability p at most.
Clopper and Pearson's limits, by Bonferroni's inequality, bound the probabilities of single reports and of runs of 2, 4,
8 … neighbours. Each takes half of the error 1 − level. G is linear in the shares θ. The set of all distributions θ
whose G keeps both bounds therefore holds the true one with probability `level`, and so do the limits, over this set, of
all linear functions of θ together. Each limit is a linear program.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import Estimand, as_counts_and_epsilon, as_probability, check_estimand, complement
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Rates, SupportData, Tally, as_tally, support_data
from rrjax.estimators.closed_form import inv_p, mle_star
from rrjax.inference.contradiction import log_generator
from rrjax.inference.functionals import group_limits, group_rates
from rrjax.inference.intervals import log_tail
from rrjax.mechanisms.channel import Channel
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.mechanisms.ordered import DiscreteSquareWave, Geometric, SquareWave
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of

NUM_TILTS = 128
"""Number of exponents at which Chernoff's bound is inverted. It holds at each; the best would be 1 % better."""


@exportable
class Quantile(NamedTuple):
    """Category numbers: a quantile of ordered categories and its confidence interval.

    Attributes:
        value: Scalar, the estimate.
        lower: Scalar, confidence limit; −1 if no distribution explains the reports, as the others.
        upper: Scalar, confidence limit, not below `lower`.
    """

    value: Int[Array, ""]
    lower: Int[Array, ""]
    upper: Int[Array, ""]


def quantile(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    probability: ArrayLike = 0.5,
    *,
    mechanism: Mechanism | None = None,
    level: ArrayLike = 0.95,
    estimand: Estimand = "distribution",
) -> Quantile:
    r"""Estimates a quantile: the first of the ordered categories at which the cumulative share reaches a probability.

    A quantile lies above category k if and only if the share of users up to k is less than the probability. That share
    has exact limits (`linear_functional`). The interval omits a category if the share up to it is significantly too
    small, or the share before it significantly large enough. So it covers with at least its level for every N, K, ε and
    θ.

    The limits of the share F of the first k categories, from a `Tally`, depend on how their supports depend on each
    other, which the mechanism tells:

    * Survey designs: an answer names one category, so the number of answers that name one of the k is binomial, and the
      limits are exact.
    * Unary encoding and local hashing, whose supports are independent, and subset selection, where they are negatively
      associated: the number of supported categories among the k has, for every s, a generating function of at most
      (1 + q·x)^k·(1 + F·d·x/(1 + q·x)), x = e^s − 1. Chernoff's bound of the sum of all reports, solved for F.
    * Other mechanisms, and None: the same bound for supports that always occur together, the worst case. The interval
      is longer, by a factor up to the square root of k.

    Of the first k and the other K − k categories, the fewer are used.

    Args:
        counts: `[K]`, integers, the reports per category of randomized response, in the order of the categories; or a
            `Tally`.
        epsilon: Scalar, nats; not with a tally.
        probability: Scalar in (0, 1); ½ is the median.
        mechanism: The mechanism of a tally, if known.
        level: Scalar in (0, 1), of the interval.
        estimand: "distribution", from which the users are drawn, or "users", their own shares.

    Returns:
        `Quantile`. Its value is the quantile of `mle_star` (of a tally, `inv_p`), moved to the nearer limit if it lies
        outside the interval, because that estimate is biased if K is large. All −1 if no category can be the
        quantile, because no distribution explains the reports; for unusable counts or ε; or (under tracing) for a
        probability or level outside (0, 1).

    Raises:
        ValueError: A wrong shape or dtype, or a probability or level outside (0, 1).

    Example:
        >>> import jax, rrjax
        >>> median = rrjax.inference.quantile([600, 750, 850, 900, 740, 660], epsilon=1.0)
        >>> print(median.value, median.lower, median.upper)
        3 2 3
        >>> mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(6, 2.0)
        >>> tally = mechanism.collect(jax.random.key(0), [600, 750, 850, 900, 740, 660])
        >>> median = rrjax.inference.quantile(tally, mechanism=mechanism)
        >>> print(median.value, median.lower, median.upper)
        2 2 3

    References:
        Thompson, "On confidence ranges for the median and other expectation distributions", 1936; Chernoff, "A measure
        of asymptotic efficiency for tests of a hypothesis based on the sum of observations", 1952; Joag-Dev and
        Proschan, "Negative association of random variables with applications", 1983; Borcea, Brändén and Liggett,
        "Negative dependence and the geometry of polynomials", 2009, for subsets of a fixed size.
    """
    check_estimand(estimand)
    as_probability(level, "level", 0.95)
    probability = as_probability(probability, "probability", 0.5)
    if isinstance(counts, Tally):
        tally = as_tally(counts, epsilon, whole=True)
        return _of_tally(*with_sharding_of((tally, probability, complement(level))), mechanism, estimand)
    return _quantile(
        *with_sharding_of((*as_counts_and_epsilon(counts, epsilon, whole=True), probability, complement(level))),
        estimand,
    )


@partial(jax.jit, static_argnums=4)
def _quantile(counts, epsilon, probability, miss, estimand):
    data = support_data(counts, epsilon)
    size = counts.shape[0]
    counts = jnp.where(data.usable, counts, 1)
    named = jnp.cumsum(counts)
    tail = log_tail(miss, None, 1)
    numbers = with_sharding_of(jnp.arange(1, size), named)
    limits = jax.vmap(lambda n, k: group_limits(n, named[-1], group_rates(data.rates, k), tail, estimand))
    lower, upper = limits(named[:-1], numbers)
    return _within(lower, upper, jnp.cumsum(mle_star(counts, epsilon)), data, probability, miss)


def _within(lower, upper, shares, data, probability, miss):
    """The quantile of an estimate with cumulative shares `[K]`, by limits of the first K − 1 of them."""
    dtype = shares.dtype
    probability = probability.astype(dtype)
    # The share up to the last category is one, that before the first one zero.
    true = with_sharding_of(jnp.ones(1, bool), upper)
    reached, before = jnp.append(upper >= probability, true), jnp.append(true, lower < probability)
    first, last = jnp.argmax(reached), shares.shape[0] - 1 - jnp.argmax(before[::-1])
    value = jnp.clip(jnp.argmax((shares >= probability - 8 * jnp.finfo(dtype).eps).at[-1].set(True)), first, last)
    # A category is possible if some distribution agrees with the limits of both shares.
    possible = reached & before & jnp.append(lower <= 1, true) & jnp.append(true, upper >= 0)
    usable = data.usable & (miss > 0) & (miss < 1) & (probability > 0) & (probability < 1) & jnp.any(possible)
    return Quantile(*(jnp.where(usable, each, -1).astype(jnp.int32) for each in (value, first, last)))


@partial(jax.jit, static_argnums=4)
def _of_tally(tally, probability, miss, mechanism, estimand):
    data, tail = support_data(tally, None), log_tail(miss, None, 1)
    if mechanism is not None and mechanism.names_one:
        lower, upper = _named_limits(tally, data, mechanism, tail, estimand)
    else:
        # Supports of one number of categories are negatively associated.
        at_most = mechanism is not None and (mechanism.independent or mechanism.same_size)
        lower, upper = _chernoff_limits(data, at_most, tail)
    return _within(lower, upper, jnp.cumsum(inv_p(tally)), data, probability, miss)


def _named_limits(tally, data, mechanism, tail, estimand):
    """Exact limits of cumulative shares, of reports that name one category: the own one rather than others, or less."""
    size, total, rates = tally.num_categories, tally.num_users, data.rates
    not_q, q, d = (jnp.broadcast_to(each, (size,)) for each in (rates.not_q, rates.q, rates.d))
    denied = size > 2 and mechanism.denies
    support = jnp.where(data.usable, tally.support, 1)
    named = jnp.cumsum(jnp.where(denied, total - support, support))[:-1]
    # A report that names its own category less often supports the first k if it names none of them.
    support = jnp.where(denied, total - named, named)
    law = jnp.where(denied, not_q, q)
    before, after = jnp.cumsum(law)[:-1], jnp.cumsum(law[::-1])[::-1][1:]
    always, never = jnp.where(denied, after - d[0], before), jnp.where(denied, before - d[0], after)
    each = Rates(jnp.maximum(always, 0), jnp.maximum(never, 0), d[:-1])
    return jax.vmap(lambda n, rates: group_limits(n, total, rates, tail, estimand))(support, each)


def _chernoff_limits(data: SupportData, independent: bool, tail: Float[Array, ""]):
    """Limits of cumulative shares from the generating function of the number of supported categories."""
    size, number, dtype = data.excess.shape[0], data.num_users, data.excess.dtype
    q, d = (jnp.broadcast_to(each, (size,)) for each in (data.rates.q, data.rates.d))
    before = jnp.arange(1, size, dtype=dtype)
    turned = before > size / 2

    def of_fewer(x):
        sums = jnp.cumsum(x)
        return jnp.where(turned, sums[-1] - sums[:-1], sums[:-1])

    many = jnp.where(turned, size - before, before)
    # Supports that occur together are one, with k times the weight and the mean rate.
    parts, scale = (many, 1) if independent else (jnp.ones_like(many), many)
    excess, chance = of_fewer(data.excess) / scale, of_fewer(q) / many
    tilts = jnp.geomspace(1e-7, 60, NUM_TILTS, dtype=dtype)

    def bound(tilt, gain):
        """The share at which the bound is the tail probability."""
        x = jnp.expm1(tilt)
        slope = gain / scale * x / (1 + chance * x)
        change = jnp.expm1((tilt * excess + tail) / number - parts * log_generator(chance, tilt))
        return change / slope

    def best(sign, gain, better):
        bounds = jax.lax.map(lambda tilt: bound(sign * tilt, gain), tilts)
        # If a generating function overflows, the bound says nothing.
        return better(jnp.where(jnp.isfinite(bounds), bounds, (1 - sign) / 2), axis=0)

    lower, upper = best(1, jnp.max(d), jnp.max), best(-1, jnp.min(d), jnp.min)
    return jnp.where(turned, 1 - upper, lower), jnp.where(turned, 1 - lower, upper)


MOST_GROUPS = 64
"""Largest number of variables of a linear program; more values are grouped with their neighbours."""
MOST_PLACES = 64
"""Largest number of places at which a band is computed; between them it is that of the neighbouring places."""
SOLVER_TOLERANCE = 1e-7
"""HiGHS's tolerance of constraints and of optimality; limits are widened by it."""
INFEASIBLE = 2
"""HiGHS's status of a program without a solution, as SciPy numbers it."""


@exportable
class CdfBand(NamedTuple):
    """A simultaneous band of a distribution function.

    Attributes:
        lower: `[K]`, lower limits of F_k = θ_1 + … + θ_k; not decreasing.
        upper: `[K]`, upper limits; not decreasing.
        feasible: Whether any distribution is in the band. If not, the reports contradict the mechanism, and the
            limits are NaN; by chance this happens with probability 1 − level at most.
        radius: The largest error of the distribution function of the reports.
    """

    lower: Float[np.ndarray, " K"]
    upper: Float[np.ndarray, " K"]
    feasible: bool
    radius: float


def cdf_band(
    counts: ArrayLike, mechanism: Channel | DiscreteSquareWave | Geometric | SquareWave, *, level: float = 0.95
) -> CdfBand:
    """The simultaneous band of the distribution function of ordered values.

    All F_k lie between their limits with probability at least `level`, for every N, K, ε and θ; limits of quantiles
    (`quantile_limits`) and of the mean (`mean_limits`) at the same level hold together with them. For `SquareWave` this
    includes any distribution of numbers within their bins: the probability of each set of reports is between its least
    and its largest value over the bin. For the other mechanisms a report depends on the bin or the integer alone.

    The band assumes nothing about smoothness, so finer bins make it wider: randomization hides fine detail.

    Args:
        counts: `[M]`, integers, the reports of each kind, in order; of `SquareWave` and others `mechanism.count(…)`.
        mechanism: The mechanism, with a known ε, or a `Channel` whose reports are in order.
        level: In (0, 1), of the whole band.

    Returns:
        A `CdfBand`. On the host, by two linear programs of HiGHS for each of at most 64 places (0.5 s for K = 32, 5 s
        for K = 100), accurate to 1e-6 and rounded outwards; valid between the places, too. Of more than 64 values,
        neighbours are grouped. Not for `jit`.

    Raises:
        ValueError: A wrong number of counts, counts that are no integers or negative, no reports, or a level outside
            (0, 1).

    Example:
        >>> import rrjax
        >>> mechanism = rrjax.mechanisms.Geometric(num_categories=4, epsilon=3.0)
        >>> band = rrjax.inference.cdf_band([2462, 3035, 2444, 2059], mechanism)
        >>> print(band.lower.round(2), band.upper.round(2))
        [0.08 0.57 0.87 1.  ] [0.14 0.64 0.93 1.  ]

    References:
        Massart, "The tight constant in the Dvoretzky–Kiefer–Wolfowitz inequality", Annals of Probability 18, 1990;
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934.
    """
    programs = _Programs.of(counts, mechanism, level)
    size = programs.num_values
    if not programs.feasible():
        nothing = np.full(size, np.nan)
        return CdfBand(nothing, nothing.copy(), False, programs.radius)
    lower, upper = np.zeros(size), np.ones(size)
    last = np.append(programs.starts[1:], size) - 1  # of each group
    places = np.unique(np.linspace(0, len(last) - 1, min(len(last), MOST_PLACES)).astype(int))
    # Up to the next place the share is no smaller than here, and from the place before on no larger.
    for place, following in itertools.pairwise(places):
        lower[last[place] : last[following]] = programs.limit(np.arange(len(last)) <= place, 1.0, 0.0)
    for before, place in zip(np.append(-1, places), places[:-1], strict=False):
        begin = 0 if before < 0 else last[before] + 1
        upper[begin : last[place] + 1] = programs.limit(np.arange(len(last)) <= place, -1.0, 1.0)
    lower[-1] = 1.0
    lower, upper = np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
    return CdfBand(lower, upper, True, programs.radius)


def quantile_limits(band: CdfBand, probabilities: ArrayLike) -> tuple[Int[np.ndarray, "*s"], Int[np.ndarray, "*s"]]:
    """Limits of quantiles by a band: for all probabilities at once, at the level of the band.

    Args:
        band: From `cdf_band`.
        probabilities: In (0, 1), any shape; 0.5 is the median.

    Returns:
        Two arrays of value numbers, from 0: the first value at which the distribution function may reach the
        probability, and the first one at which it surely does. −1 for a band that is not feasible.

    Raises:
        ValueError: A probability outside (0, 1).

    Example:
        >>> import rrjax
        >>> mechanism = rrjax.mechanisms.Geometric(num_categories=4, epsilon=3.0)
        >>> band = rrjax.inference.cdf_band([2462, 3035, 2444, 2059], mechanism)
        >>> [limit.tolist() for limit in rrjax.inference.quantile_limits(band, [0.5, 0.9])]
        [[1, 2], [1, 3]]
    """
    chosen = np.asarray(probabilities, float)
    if not ((chosen > 0) & (chosen < 1)).all():
        raise ArgumentError("probabilities must lie between 0 and 1", argument="probabilities")
    if not band.feasible:
        return np.full(chosen.shape, -1), np.full(chosen.shape, -1)
    return np.searchsorted(band.upper, chosen), np.searchsorted(band.lower, chosen)


def mean_limits(
    counts: ArrayLike,
    mechanism: Channel | DiscreteSquareWave | Geometric | SquareWave,
    lower: ArrayLike,
    upper: ArrayLike | None = None,
    *,
    level: float = 0.95,
) -> tuple[float, float]:
    """Limits of the mean of numbers, at the level of `cdf_band` and together with it.

    Args:
        counts: As in `cdf_band`.
        mechanism: As in `cdf_band`.
        lower: `[K]`, the least number of each bin, or the integer itself.
        upper: `[K]`, the largest number of each bin; None is `lower`.
        level: In (0, 1).

    Returns:
        The lower and the upper limit, in the unit of the numbers; NaN if no distribution is in the band.

    Raises:
        ValueError: As `cdf_band`, or other than K numbers.

    Example:
        >>> import rrjax
        >>> mechanism = rrjax.mechanisms.Geometric(num_categories=4, epsilon=3.0)
        >>> limits = rrjax.inference.mean_limits([2462, 3035, 2444, 2059], mechanism, [0, 1, 2, 3])
        >>> print([round(limit, 2) for limit in limits])
        [1.33, 1.44]
    """
    programs = _Programs.of(counts, mechanism, level)
    low = np.asarray(lower, float)
    high = low if upper is None else np.asarray(upper, float)
    for name, numbers in (("lower", low), ("upper", high)):
        if numbers.shape != (programs.num_values,):
            problem = f"must have a number for each of {programs.num_values} values, got shape {numbers.shape}"
            raise ArgumentError.about(name, problem)
    if not programs.feasible():
        return math.nan, math.nan
    span = max(float(high.max() - low.min()), np.finfo(float).tiny)
    least = (np.minimum.reduceat(low, programs.starts) - low.min()) / span
    most = (np.maximum.reduceat(high, programs.starts) - low.min()) / span
    return (
        float(low.min() + span * programs.limit(least, 1.0, 0.0)),
        float(low.min() + span * programs.limit(most, -1.0, 1.0)),
    )


class _Programs(NamedTuple):
    """Linear programs over the distributions whose reports are close to the reports that were made."""

    matrix: np.ndarray  # probabilities of sets of reports `[C, G]`
    lower: np.ndarray
    upper: np.ndarray
    starts: np.ndarray  # the first value of each group
    num_values: int
    radius: float

    @classmethod
    def of(cls, counts, mechanism, level):
        as_probability(level, "level", 0.95)
        size, kinds = mechanism.num_categories, mechanism.num_reports
        numbers = np.asarray(counts)
        if numbers.shape != (kinds,) or numbers.dtype.kind not in "iu" or (numbers < 0).any() or not numbers.any():
            raise ArgumentError(
                f"counts must be {kinds} integers, the reports of each kind, from 0 and not all 0; got "
                f"{numbers.dtype} of shape {numbers.shape}",
                argument="counts",
            )
        cuts = np.unique(np.linspace(0, kinds, min(kinds, 2 * MOST_GROUPS) + 1).astype(int))
        number, total = len(cuts) - 1, int(numbers.sum())
        reported = np.append(0, np.cumsum(numbers, dtype=np.int64))[cuts]
        # Half of the error goes to the parts below each end, half to all runs of 1, 2, 4 … neighbours.
        miss = (1 - float(level)) / 2
        radius = math.sqrt(math.log(2 / miss) / (2 * total))
        runs = [
            (begin, begin + length)
            for length in (1 << power for power in range((number - 1).bit_length()))
            for begin in range(0, number - length + 1, length)
        ]
        sets = np.asarray([*((0, end) for end in range(1, number)), *runs]).reshape(-1, 2)
        inside = reported[sets[:, 1]] - reported[sets[:, 0]]
        lower, upper = clopper_pearson(inside, total, miss / max(len(runs), 1))
        below = slice(0, number - 1)
        lower[below], upper[below] = inside[below] / total - radius, inside[below] / total + radius
        starts = np.unique(np.linspace(0, size, min(size, MOST_GROUPS), endpoint=False).astype(int))
        least, most = _chances(mechanism, cuts[sets])
        low, high = np.minimum.reduceat(least, starts, axis=1), np.maximum.reduceat(most, starts, axis=1)
        free = np.full(len(sets), np.inf)
        matrix, floor, ceiling = (
            (low, lower, upper)
            if np.array_equal(low, high)
            else (np.concatenate([low, high]), np.append(-free, lower), np.append(upper, free))
        )
        return cls(matrix, floor - SOLVER_TOLERANCE, ceiling + SOLVER_TOLERANCE, starts, size, radius)

    def feasible(self) -> bool:
        """Whether any distribution is in the set."""
        return self._solved(np.zeros(len(self.starts))).status != INFEASIBLE

    def limit(self, values, sign, otherwise):
        """The least (sign 1) or the largest (−1) mean of values in [0, 1] over the set, rounded outwards."""
        solution = self._solved(sign * values)
        # If the solver gives up, the limit is the trivial one.
        value = sign * solution.fun if solution.status == 0 else otherwise
        return float(np.clip(value - sign * SOLVER_TOLERANCE, 0, 1))

    def _solved(self, costs):
        from scipy.optimize import Bounds, LinearConstraint, milp

        # `milp` without integers is a linear program with limits on both sides, half the rows of `linprog`.
        lower, upper = np.append(self.lower, 1), np.append(self.upper, 1)
        matrix = np.concatenate([self.matrix, np.ones((1, len(self.starts)))])
        rows: Any = LinearConstraint(matrix, lower, upper)  # pyright: ignore[reportArgumentType]
        return milp(costs, constraints=rows, bounds=Bounds(0, 1))


def clopper_pearson(numbers: np.ndarray, total: int, miss: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact limits of probabilities from binomial numbers out of `total`; both miss with probability `miss` at most."""
    from scipy.special import betaincinv

    lower = np.where(numbers > 0, betaincinv(np.maximum(numbers, 1), total - numbers + 1, miss / 2), 0.0)
    upper = np.where(numbers < total, betaincinv(numbers + 1, np.maximum(total - numbers, 1), 1 - miss / 2), 1.0)
    return lower, upper


def _chances(mechanism, sets):
    """The least and the largest probability of sets of reports, from one edge to another, given each value `[C, K]`."""
    starts, ends = sets[:, :1], sets[:, 1:]
    if isinstance(mechanism, SquareWave):
        edges = np.arange(mechanism.num_categories + 1) / mechanism.num_categories
        left, right = edges[:-1], edges[1:]
        reach = float(mechanism.reach)
        middle = (starts + ends) / 2 * (1 + 2 * reach) / mechanism.num_reports - reach
        far = np.where(np.abs(left - middle) > np.abs(right - middle), left, right)
        return mechanism.chances(far, starts, ends), mechanism.chances(np.clip(middle, left, right), starts, ends)
    channel = mechanism if isinstance(mechanism, Channel) else mechanism.channel()
    below = np.cumsum(np.pad(np.asarray(channel.matrix, np.float64), ((0, 0), (1, 0))), axis=1)
    chances = (below[:, ends[:, 0]] - below[:, starts[:, 0]]).T
    return chances, chances
