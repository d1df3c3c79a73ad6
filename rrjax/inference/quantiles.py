"""Quantiles of ordered categories, with exact confidence intervals."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import Estimand, as_probability, as_survey, check_estimand, complement
from rrjax.data.tally import Evidence, Rates, Tally, as_tally, evidence
from rrjax.estimators.closed_form import inv_p, mle_star
from rrjax.inference.contradiction import log_generator
from rrjax.inference.functionals import group_limits, group_rates
from rrjax.inference.intervals import log_tail
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned

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
    has exact limits (`group_share`). The interval omits a category if the share up to it is significantly too small, or
    the share before it significantly large enough. So it covers with at least its level for every N, K, ε and θ.

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
        return _of_tally(*aligned((tally, probability, complement(level))), mechanism, estimand)
    return _quantile(*aligned((*as_survey(counts, epsilon, whole=True), probability, complement(level))), estimand)


@partial(jax.jit, static_argnums=4)
def _quantile(counts, epsilon, probability, miss, estimand):
    data = evidence(counts, epsilon)
    size = counts.shape[0]
    counts = jnp.where(data.usable, counts, 1)
    named = jnp.cumsum(counts)
    tail = log_tail(miss, None, 1)
    numbers = aligned(jnp.arange(1, size), named)
    limits = jax.vmap(lambda n, k: group_limits(n, named[-1], group_rates(data.rates, k), tail, estimand))
    lower, upper = limits(named[:-1], numbers)
    return _within(lower, upper, jnp.cumsum(mle_star(counts, epsilon)), data, probability, miss)


def _within(lower, upper, shares, data, probability, miss):
    """The quantile of an estimate with cumulative shares `[K]`, by limits of the first K − 1 of them."""
    dtype = shares.dtype
    probability = probability.astype(dtype)
    # The share up to the last category is one, that before the first one zero.
    true = aligned(jnp.ones(1, bool), upper)
    reached, before = jnp.append(upper >= probability, true), jnp.append(true, lower < probability)
    first, last = jnp.argmax(reached), shares.shape[0] - 1 - jnp.argmax(before[::-1])
    value = jnp.clip(jnp.argmax((shares >= probability - 8 * jnp.finfo(dtype).eps).at[-1].set(True)), first, last)
    # A category is possible if some distribution agrees with the limits of both shares.
    possible = reached & before & jnp.append(lower <= 1, true) & jnp.append(true, upper >= 0)
    usable = data.usable & (miss > 0) & (miss < 1) & (probability > 0) & (probability < 1) & jnp.any(possible)
    return Quantile(*(jnp.where(usable, each, -1).astype(jnp.int32) for each in (value, first, last)))


@partial(jax.jit, static_argnums=4)
def _of_tally(tally, probability, miss, mechanism, estimand):
    data, tail = evidence(tally, None), log_tail(miss, None, 1)
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


def _chernoff_limits(data: Evidence, independent: bool, tail: Float[Array, ""]):
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
        found = jax.lax.map(lambda tilt: bound(sign * tilt, gain), tilts)
        # If a generating function overflows, the bound says nothing.
        return better(jnp.where(jnp.isfinite(found), found, (1 - sign) / 2), axis=0)

    lower, upper = best(1, jnp.max(d), jnp.max), best(-1, jnp.min(d), jnp.min)
    return jnp.where(turned, 1 - upper, lower), jnp.where(turned, 1 - lower, upper)
