"""Quantiles of ordered categories, with exact confidence intervals."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int

from rrjax.data.arguments import Estimand, as_probability, as_survey, check_estimand, complement
from rrjax.data.tally import evidence
from rrjax.estimators.closed_form import mle_star
from rrjax.inference.functionals import group_limits, group_rates
from rrjax.inference.intervals import log_tail
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned


@exportable
class Quantile(NamedTuple):
    """Category numbers: a quantile of ordered categories and its confidence interval.

    Attributes:
        value: Scalar, the estimate.
        lower: Scalar, confidence limit.
        upper: Scalar, confidence limit, not below `lower`.
    """

    value: Int[Array, ""]
    lower: Int[Array, ""]
    upper: Int[Array, ""]


def quantile(
    counts: ArrayLike,
    epsilon: ArrayLike,
    probability: ArrayLike = 0.5,
    *,
    level: ArrayLike = 0.95,
    estimand: Estimand = "distribution",
) -> Quantile:
    """Estimates a quantile: the first of the ordered categories at which the cumulative share reaches a probability.

    A quantile lies above category k if and only if the share of users up to k is less than the probability. That share
    has exact limits (`group_share`). The interval omits a category if the share up to it is significantly too small, or
    the share before it significantly large enough. So it covers with at least its level for every N, K, ε and θ.

    Args:
        counts: `[K]`, integers, the reports per category of randomized response, in the order of the categories.
        epsilon: Scalar, nats.
        probability: Scalar in (0, 1); ½ is the median.
        level: Scalar in (0, 1), of the interval.
        estimand: "distribution", from which the users are drawn, or "users", their own shares.

    Returns:
        `Quantile`. Its value is the quantile of `mle_star`, moved to the nearer limit if it lies outside the interval,
        because that estimate is biased if K is large. All −1 for unusable counts or ε, or (under tracing) a probability
        or level outside (0, 1).

    Raises:
        ValueError: A wrong shape or dtype, or a probability or level outside (0, 1).

    Example:
        >>> import rrjax
        >>> median = rrjax.inference.quantile([600, 750, 850, 900, 740, 660], epsilon=1.0)
        >>> print(median.value, median.lower, median.upper)
        3 2 3

    References:
        Thompson, "On confidence ranges for the median and other expectation distributions", 1936.
    """
    check_estimand(estimand)
    as_probability(level, "level", 0.95)
    probability = as_probability(probability, "probability", 0.5)
    return _quantile(*aligned((*as_survey(counts, epsilon, whole=True), probability, complement(level))), estimand)


@partial(jax.jit, static_argnums=4)
def _quantile(counts, epsilon, probability, miss, estimand):
    data = evidence(counts, epsilon)
    size, dtype = counts.shape[0], epsilon.dtype
    probability = probability.astype(dtype)
    counts = jnp.where(data.usable, counts, 1)
    named = jnp.cumsum(counts)
    tail = log_tail(miss, None, 1)
    numbers = aligned(jnp.arange(1, size), named)
    limits = jax.vmap(lambda n, k: group_limits(n, named[-1], group_rates(data.rates, k), tail, estimand))
    lower, upper = limits(named[:-1], numbers)
    # The share up to the last category is one.
    true, false = aligned((jnp.ones(1, bool), jnp.zeros(1, bool)), upper)
    first = jnp.argmax(jnp.append(upper >= probability, true))
    last = size - 1 - jnp.argmax(jnp.append(lower < probability, false)[::-1])
    last = jnp.where(jnp.any(lower < probability), last + 1, 0)
    shares = jnp.cumsum(mle_star(counts, epsilon))
    value = jnp.clip(jnp.argmax((shares >= probability - 8 * jnp.finfo(dtype).eps).at[-1].set(True)), first, last)
    usable = data.usable & (miss > 0) & (miss < 1) & (probability > 0) & (probability < 1)
    return Quantile(*(jnp.where(usable, each, -1).astype(jnp.int32) for each in (value, first, last)))
