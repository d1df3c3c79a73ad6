r"""Numbers within a class that was randomized: quantiles, means and the distribution of known values, class by class.

Record u has a known value T_u and a report of its class. The unbiased vector w_u of the report (`debias`) has the
expectation 1[class of u = j] in its entry w_uj. So Σ_u w_uj estimates the size of class j, Σ_u w_uj·1[T_u ≤ t] the
number of its records up to t, and for every fraction f that class j has up to t

    s(t, f) = Σ_u w_uj·(1[T_u ≤ t] − f)   has the expectation zero.

An interval is the set of all t, or all f, for which this test does not reject: |s| ≤ z·√v. The variance v is that under
the hypothesis. A report supports a class or does not, so w² = c₁·w + c₀; c₀ is the noise of one report. With C₋ and C₊
the sums of c₀ over the records up to t and above it,

    v(t, f) = f(1 − f)·Σ c₁·w + f²·C₊ + (1 − f)²·C₋.

Of a mechanism for each record (`ByRespondent`), c₁ and c₀ are those of its own: noisier records may be slower ones.

For a class that is not randomized c₀ = 0, and the interval is Wilson's. The sample variance of the terms is too small
where few of the class lie above t: with it the interval of the 95 % quantile of 60 records covered in 91 % of runs.

A difference has the limits of both classes, with the correlation r of their sums s, each at its own estimate. To first
order it is that of the estimates, whatever the densities. With a, b the estimates, l and u their limits,

    lower = a − b − √[(a − l_a)² + (u_b − b)² − 2r(a − l_a)(u_b − b)],   upper likewise with u_a and l_b.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_array, as_probability, as_real, complement, float_dtype, is_real
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.inference.intervals import Simultaneous, log_tail
from rrjax.mechanisms import ByRespondent, Mechanism, RandomizedResponse
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of


@exportable
class ClassEstimates(NamedTuple):
    """One number for each class, with its interval.

    Attributes:
        value: `[K]`, or a row `[K]` for each quantile or point; NaN for a class whose estimated size is not positive.
        lower: As `value`: confidence limit.
        upper: As `value`: confidence limit, not below `lower`. Of quantiles and means both are infinite for a class
            that may have no records, as far as the reports tell.
    """

    value: Float[Array, "*s K"]
    lower: Float[Array, "*s K"]
    upper: Float[Array, "*s K"]


def class_quantiles(
    values: ArrayLike,
    reports: ArrayLike,
    epsilon_or_mechanism: ArrayLike | Mechanism,
    quantile: ArrayLike = 0.5,
    *,
    num_categories: int | None = None,
    level: ArrayLike = 0.95,
    simultaneous: Simultaneous | None = None,
    where: ArrayLike | None = None,
    reference: int | None = None,
) -> ClassEstimates:
    r"""Estimates quantiles of known values within each class, where the class of each record was randomized.

    The estimate is the first value up to which the debiased class has the fraction `quantile`: the distribution
    Σ_u w_uj·1[T_u ≤ t]/Σ_u w_uj, made monotone by its running maximum. The interval has all t at which the test of
    Σ_u w_uj·(1[T_u ≤ t] − quantile) = 0 does not reject. It needs no density; its level is asymptotic.

    Args:
        values: `[N]`, finite numbers, not randomized, such as the time that a page took to load.
        reports: The N reports of the class, `[N]`, or `[N, K]` for reports of bits.
        epsilon_or_mechanism: ε in nats, of k-ary randomized response; or a mechanism whose reports have unbiased
            vectors (`debias`): a pure mechanism, a survey design, `ByRespondent` for a rate per record.
        quantile: Scalar or `[Q]`, in (0, 1).
        num_categories: K, with ε only.
        level: Scalar in (0, 1): the probability that the interval of one class and quantile covers.
        simultaneous: As for `intervals`: over all classes and quantiles.
        where: `[N]`, booleans: the records that count, such as those of one country; None for all. Parts of the records
            are then computed by one compiled program.
        reference: Number of a class, to estimate how far each class is above it; its own difference is zero.
            `simultaneous` is over the other classes then. None for the numbers themselves.

    Returns:
        `ClassEstimates`, `[K]`, or `[Q, K]` for several quantiles. All NaN under tracing for values that are not finite
        or reports that are none. Memory: N·K numbers.

    Raises:
        ValueError: Values that are not finite numbers, other than N reports, a mechanism without unbiased vectors, a
            level or quantile outside (0, 1), or a reference that is no class.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> slow = np.random.default_rng(0).random(4_000) < 0.3
        >>> seconds = np.random.default_rng(1).gamma(4.0, np.where(slow, 1.0, 0.5))
        >>> design = rrjax.mechanisms.Coin(2, rate=0.4)
        >>> labels = design.randomize(jax.random.key(0), slow.astype(int))
        >>> intervals = rrjax.inference.class_quantiles(seconds, labels, design, 0.75)
        >>> [f"{v:.2f} ({a:.2f} to {b:.2f})" for v, a, b in zip(*(each.tolist() for each in intervals))]
        ['2.53 (2.48 to 2.61)', '5.14 (4.92 to 5.29)']
        >>> intervals = rrjax.inference.class_quantiles(seconds, labels, design, 0.75, reference=0)
        >>> print(f"slower by {intervals.value[1]:.2f} ({intervals.lower[1]:.2f} to {intervals.upper[1]:.2f})")
        slower by 2.61 (2.37 to 2.77)

    References:
        Woodruff, "Confidence intervals for medians and other position measures", 1952; Wilson, "Probable inference, the
        law of succession, and statistical inference", 1927; of differences Zou and Donner, "Construction of confidence
        limits about effect measures: a general approach", 2008. The estimate is that of MDN's page on
        `PerformanceTimingConfidence`.
    """
    wanted = _as_points(quantile, "quantile")
    if not isinstance(wanted, Tracer) and not bool(jnp.all((wanted > 0) & (wanted < 1))):
        raise ArgumentError.about("quantile", f"must lie between 0 and 1, such as 0.75, got {quantile}")
    values, weights, inside = _records(values, reports, epsilon_or_mechanism, num_categories, where)
    number, place = _compared(reference, weights.shape[1])
    noise = _noise_of_each(epsilon_or_mechanism)
    z = _deviations(level, simultaneous, number * max(wanted.size, 1))
    # XLA sorts a million numbers on a CPU several times slower than NumPy.
    known = not isinstance(values, Tracer) and next(iter(values.devices())).platform == "cpu"
    order = jnp.asarray(np.argsort(np.asarray(values))) if known else jnp.argsort(values)
    return ClassEstimates(*_quantiles(*with_sharding_of((values, order, weights, inside, noise, wanted, z)), place))


def class_means(
    values: ArrayLike,
    reports: ArrayLike,
    epsilon_or_mechanism: ArrayLike | Mechanism,
    *,
    num_categories: int | None = None,
    level: ArrayLike = 0.95,
    simultaneous: Simultaneous | None = None,
    where: ArrayLike | None = None,
    reference: int | None = None,
) -> ClassEstimates:
    r"""Estimates means of known values within each class, where the class of each record was randomized.

    Σ_u w_uj·T_u/Σ_u w_uj. The interval has all m for which the test of Σ_u w_uj·(T_u − m) = 0, with the variance of its
    terms, does not reject (Fieller). Its level is asymptotic: of long-tailed values it covers less often for few
    records, as every interval of a mean does; `class_quantiles` does not.

    Args:
        values: As for `class_quantiles`.
        reports: As for `class_quantiles`.
        epsilon_or_mechanism: As for `class_quantiles`.
        num_categories: K, with ε only.
        level: Scalar in (0, 1).
        simultaneous: As for `intervals`: over all classes.
        where: As for `class_quantiles`.
        reference: As for `class_quantiles`.

    Returns:
        `ClassEstimates`, `[K]`; NaN as for `class_quantiles`.

    Raises:
        ValueError: As for `class_quantiles`.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> slow = np.random.default_rng(0).random(4_000) < 0.3
        >>> seconds = np.random.default_rng(1).gamma(4.0, np.where(slow, 1.0, 0.5))
        >>> design = rrjax.mechanisms.Coin(2, rate=0.4)
        >>> labels = design.randomize(jax.random.key(0), slow.astype(int))
        >>> intervals = rrjax.inference.class_means(seconds, labels, design)
        >>> [f"{v:.2f} ({a:.2f} to {b:.2f})" for v, a, b in zip(*(each.tolist() for each in intervals))]
        ['1.99 (1.92 to 2.05)', '3.93 (3.75 to 4.13)']

    References:
        Fieller, "Some problems in interval estimation", 1954.
    """
    values, weights, inside = _records(values, reports, epsilon_or_mechanism, num_categories, where)
    number, place = _compared(reference, weights.shape[1])
    z = _deviations(level, simultaneous, number)
    return ClassEstimates(*_means(*with_sharding_of((values, weights, inside, z)), place))


def class_cdf(
    values: ArrayLike,
    reports: ArrayLike,
    epsilon_or_mechanism: ArrayLike | Mechanism,
    points: ArrayLike,
    *,
    num_categories: int | None = None,
    level: ArrayLike = 0.95,
    simultaneous: Simultaneous | None = None,
    where: ArrayLike | None = None,
) -> ClassEstimates:
    r"""Estimates the distribution function of known values within each class, where the class was randomized.

    The fraction of each class with values up to a point, Σ_u w_uj·1[T_u ≤ t]/Σ_u w_uj, and the set of all fractions
    that the test of `class_quantiles` does not reject at this t.

    Args:
        values: As for `class_quantiles`.
        reports: As for `class_quantiles`.
        epsilon_or_mechanism: As for `class_quantiles`.
        points: Scalar or `[P]`: where the distribution functions are wanted.
        num_categories: K, with ε only.
        level: Scalar in (0, 1).
        simultaneous: As for `intervals`: over all classes and points.
        where: As for `class_quantiles`.

    Returns:
        `ClassEstimates`, `[K]`, or `[P, K]` for several points. The limits are the smallest and the largest of these
        fractions in [0, 1], and 0 and 1 if there is none. `value` is not cut, and not monotone in the points. NaN as
        for `class_quantiles`.

    Raises:
        ValueError: As for `class_quantiles`.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> slow = np.random.default_rng(0).random(4_000) < 0.3
        >>> seconds = np.random.default_rng(1).gamma(4.0, np.where(slow, 1.0, 0.5))
        >>> design = rrjax.mechanisms.Coin(2, rate=0.4)
        >>> labels = design.randomize(jax.random.key(0), slow.astype(int))
        >>> intervals = rrjax.inference.class_cdf(seconds, labels, design, 2.5)
        >>> [f"{v:.3f} ({a:.3f} to {b:.3f})" for v, a, b in zip(*(each.tolist() for each in intervals))]
        ['0.735 (0.712 to 0.757)', '0.259 (0.210 to 0.306)']

    References:
        Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    points = _as_points(points, "points")
    values, weights, inside = _records(values, reports, epsilon_or_mechanism, num_categories, where)
    z = _deviations(level, simultaneous, weights.shape[1] * max(points.size, 1))
    noise = _noise_of_each(epsilon_or_mechanism)
    return ClassEstimates(*_fractions(*with_sharding_of((values, weights, inside, noise, points, z))))


def _as_points(given: ArrayLike, name: str) -> Array:
    points = as_array(given, name)
    if points.ndim > 1 or not is_real(points):
        problem = f"must be a number, or a list of numbers, got dtype {points.dtype} of shape {points.shape}"
        raise ArgumentError.about(name, problem)
    return as_real(points, float_dtype())


def _compared(reference: int | None, size: int) -> tuple[int, int | None]:
    """The number of intervals of one statement, and the reference, checked."""
    return (size, None) if reference is None else (size - 1, as_integer(reference, "reference", 0, size - 1))


def _deviations(level: ArrayLike, simultaneous: Simultaneous | None, number: int) -> Array:
    as_probability(level, "level", 0.95)
    return -ndtri(jnp.exp(jnp.asarray(log_tail(complement(level), simultaneous, number))))


def _records(
    values: Any, reports: Any, given: Any, num_categories: int | None, where: Any
) -> tuple[Array, Array, Array]:
    """The values `[N]`, the unbiased vectors of the reports `[N, K]`, and which records count, `[N]`.

    The vectors are zero for records that do not count, and NaN under tracing for unusable ones.
    """
    values = as_array(values, "values")
    if values.ndim != 1 or len(values) < 2 or not is_real(values):
        problem = f"must be at least two numbers, [N], got dtype {values.dtype} of shape {values.shape}"
        raise ArgumentError.about("values", problem)
    if not isinstance(values, Tracer) and len(odd := np.flatnonzero(~np.isfinite(np.asarray(values, np.float64)))):
        problem = f"must be finite, but record {odd[0]} has {values[odd[0]]}: leave records without a value out"
        raise ArgumentError.about("values", problem)
    if isinstance(given, Mechanism):
        mechanism: Any = given
        if num_categories is not None:
            raise ArgumentError.about("num_categories", f"is the mechanism's; leave it out (got {num_categories})")
        if not hasattr(mechanism, "debias"):
            problem = f"is {type(mechanism).__name__}, whose reports have no unbiased vectors (debias)"
            raise ArgumentError.about("epsilon_or_mechanism", problem)
    elif num_categories is None:
        raise ArgumentError.about("num_categories", "is missing: the number of classes, which ε alone does not tell")
    else:
        mechanism = RandomizedResponse(num_categories, given)
    vectors = jnp.asarray(mechanism.debias(reports), float_dtype())
    if vectors.shape[:-1] != values.shape:
        problem = f"must be one for each of {len(values)} values, got those of shape {vectors.shape[:-1]}"
        raise ArgumentError.about("reports", problem)
    inside = jnp.ones(len(values), bool) if where is None else as_array(where, "where")
    if inside.shape != values.shape or inside.dtype != bool:
        problem = f"must be a boolean for each of {len(values)} values, got {inside.dtype} of shape {inside.shape}"
        raise ArgumentError.about("where", problem)
    values = as_real(values, float_dtype())
    vectors = jnp.where(jnp.isfinite(values)[:, None], vectors, jnp.nan)
    return values, jnp.where(inside[:, None], vectors, 0), jnp.asarray(inside)


def _noise_of_each(given: Any) -> tuple[Array, Array] | None:
    """The c₁ and c₀ of each record, `[N, K]`, where records have mechanisms of their own."""
    if not isinstance(given, ByRespondent):
        return None
    vectors = jnp.stack([each.debias(jnp.arange(given.num_categories)) for each in given.designs])
    # Entries have two values: (w − high)·(w − low) = 0. If a design has more, this is an upper bound of w².
    high, low = (jnp.asarray(ends, float_dtype()) for ends in (vectors.max(axis=1), vectors.min(axis=1)))
    which = jnp.clip(jnp.asarray(given.which), 0, len(given.designs) - 1)
    return (high + low)[which], (-high * low)[which]


def _noise(weights, inside, of_each):
    """The size W of each class, Σ c₁·w, not negative, and c₀, `[K]` or `[N, K]`.

    Without `of_each` the latter are fitted by least squares, which is exact of one mechanism for all records.
    """

    def mean(terms):
        return jnp.mean(terms, axis=0, where=inside[:, None])

    if of_each is not None:
        own = jnp.sum(of_each[0] * weights, axis=0)
        return jnp.sum(weights, axis=0), jnp.maximum(own, 0), jnp.where(inside[:, None], of_each[1], 0)
    first, second = mean(weights), mean(weights**2)
    centred = weights - first
    spread = mean(centred**2)
    flat = spread <= 1e-9 * second
    slope = mean(centred * weights**2) / jnp.where(flat, 1, spread)
    slope = jnp.where(flat, second / jnp.where(first == 0, 1, first), slope)
    size = jnp.sum(weights, axis=0)
    return size, slope * jnp.maximum(size, 0), second - slope * first


@partial(jax.jit, static_argnums=7)
def _quantiles(values, order, weights, inside, of_each, quantile, z, reference):
    size, own, noise = _noise(weights, inside, of_each)
    places, values = len(values), values[order]
    infinite = jnp.full(1, jnp.inf, values.dtype)
    ends = jnp.concatenate([-infinite, values, infinite])
    # Of equal values only the last one has a sum over all of them.
    last = (ends[1:] > ends[:-1])[:, None]
    weights = weights[order]
    below = jnp.concatenate([jnp.zeros_like(weights[:1]), jnp.cumsum(weights, axis=0)])
    if of_each is None:
        # Whole numbers are added without rounding; float32 would stop at 2²⁴.
        counted = jnp.cumsum(inside[order])
        before = noise * jnp.concatenate([jnp.zeros_like(counted[:1]), counted]).astype(values.dtype)[:, None]
    else:
        before = jnp.concatenate([jnp.zeros_like(noise[:1]), jnp.cumsum(noise[order], axis=0)])
    rounding = 8 * jnp.finfo(values.dtype).eps * size

    def one(part):
        s = below - part * size
        spread = part**2 * (before[-1] - before) + (1 - part) ** 2 * before
        reach = z * jnp.sqrt(jnp.maximum(spread + own * part * (1 - part), 0))
        value = ends[jnp.argmax(last & (s >= -rounding), axis=0)]
        lower = ends[jnp.argmax(last & (s >= -reach), axis=0)]
        upper = ends[places + 1 - jnp.argmax((last & (s <= reach))[::-1], axis=0)]
        none = jnp.isnan(size) | ~((part > 0) & (part < 1)) | jnp.isnan(z)
        # No sum lies within its reach at an end: a class of significantly negative size.
        lower = jnp.where(jnp.any(last & (s >= -reach), axis=0), lower, -jnp.inf)
        upper = jnp.where(jnp.any(last & (s <= reach), axis=0), upper, jnp.inf)
        value = jnp.where(size > 0, value, jnp.nan)
        limits = tuple(jnp.where(none, jnp.nan, each) for each in (value, lower, upper))
        if reference is None:
            return limits
        return _differences(weights * jnp.where(values[:, None] <= value, 1 - part, -part), reference, *limits)

    return lax.map(one, quantile) if quantile.ndim else one(quantile)


@partial(jax.jit, static_argnums=4)
def _means(values, weights, inside, z, reference):
    number, centre = jnp.sum(inside, dtype=values.dtype), jnp.mean(values, where=inside)
    away = (values - centre)[:, None]
    size, total = jnp.sum(weights, axis=0), jnp.sum(weights * away, axis=0)
    squares = [jnp.sum(weights**2 * away**power, axis=0) for power in range(3)]
    share = 1 + z**2 / number
    quadratic = share * size**2 - z**2 * squares[0]
    half = share * size * total - z**2 * squares[1]
    roots = _roots(quadratic, half, share * total**2 - z**2 * squares[2])
    # Unbounded: zero may be the size of the class, or it is significantly negative.
    limits = (
        jnp.where((quadratic > 0) & (size > 0), each, sign * jnp.inf) for each, sign in zip(roots, (-1, 1), strict=True)
    )
    none = jnp.isnan(quadratic)
    value, *limits = jnp.where(size > 0, total / size, jnp.nan), *(jnp.where(none, jnp.nan, each) for each in limits)
    intervals = [centre + each for each in (value, *limits)]
    return intervals if reference is None else _differences(weights * (away - value), reference, *intervals)


def _differences(terms, reference, value, lower, upper):
    """Each class less the reference; `terms` `[N, K]` are those of the sums that the limits invert."""
    scale = jnp.sqrt(jnp.sum(terms**2, axis=0))
    correlation = jnp.sum(terms * terms[:, reference, None], axis=0) / (scale * scale[reference])
    correlation = jnp.where(jnp.isnan(correlation), 0, jnp.clip(correlation, -1, 1))
    below = jnp.where(jnp.isinf(lower), jnp.inf, value - lower)
    above = jnp.where(jnp.isinf(upper), jnp.inf, upper - value)

    def limit(sign, own, other):
        reach = jnp.sqrt(jnp.maximum(own**2 + other**2 - 2 * correlation * own * other, 0))
        unlimited = jnp.isinf(own) | jnp.isinf(other)
        return jnp.where(unlimited, sign * jnp.inf, value - value[reference] + sign * reach)

    limits = limit(-1, below, above[reference]), limit(1, above, below[reference])
    itself = (jnp.arange(len(value)) == reference) & ~jnp.isnan(lower)
    return tuple(jnp.where(itself, 0, each) for each in (value - value[reference], *limits))


@jax.jit
def _fractions(values, weights, inside, of_each, points, z):
    size, own, noise = _noise(weights, inside, of_each)

    def noise_of(chosen):
        if of_each is None:
            return noise * jnp.sum(chosen, dtype=values.dtype)
        return jnp.sum(jnp.where(chosen[:, None], noise, 0), axis=0)

    def one(point):
        below = inside & (values <= point)
        named, before = jnp.sum(jnp.where(below[:, None], weights, 0), axis=0) + 0 * size, noise_of(below)
        quadratic = size**2 + z**2 * (own - noise_of(inside))
        linear = named * size + z**2 * (own / 2 - before)
        constant = named**2 - z**2 * before
        # Of a class that may have no records, all fractions outside of the roots are accepted.
        ends = (constant <= 0, 0), (quadratic - 2 * linear + constant <= 0, 1)
        roots = zip(_roots(quadratic, linear, constant), ends, strict=True)
        lower, upper = (jnp.where(kept, end, jnp.clip(root, 0, 1)) for root, (kept, end) in roots)
        lower, upper = jnp.where(lower > upper, 0, lower), jnp.where(lower > upper, 1, upper)
        return jnp.where(size > 0, named / size, jnp.nan), lower, upper

    return lax.map(one, points) if points.ndim else one(points)


def _roots(quadratic, half, constant):
    """The two x with quadratic·x² − 2·half·x + constant = 0, in the order of their numerators."""
    divisor = jnp.where(quadratic == 0, jnp.finfo(quadratic.dtype).tiny, quadratic)
    middle = half / divisor
    reach = jnp.sqrt(jnp.maximum(middle**2 - constant / divisor, 0)) * jnp.sign(divisor)
    return middle - reach, middle + reach
