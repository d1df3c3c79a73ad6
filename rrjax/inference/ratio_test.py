"""Tests of hypotheses about the whole distribution, by likelihood ratios with simulated nulls."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax import simulate
from rrjax.estimators import mle_star
from rrjax.inference.arguments import as_probability
from rrjax.numerics import accurate_sum, as_counts, as_distribution, as_scalar, float_dtype, odds

_CELLS = 2**18
"""Draws × categories at a time."""
_OFF = 1e-4
"""So far from one may a distribution sum, because of rounding."""


class RatioTest(NamedTuple):
    """A likelihood-ratio test.

    Attributes:
        statistic: Scalar: twice the log-likelihood ratio, nats; zero where the hypothesis is the maximum itself.
        p_value: Scalar: of as large a statistic, or a larger one, under the hypothesis.
        standard_error: Scalar: of the p-value, from the finite number of draws.
    """

    statistic: Float[Array, ""]
    p_value: Float[Array, ""]
    standard_error: Float[Array, ""]


def likelihood_ratio_test(
    key: Array,
    counts: ArrayLike,
    epsilon: ArrayLike,
    theta: ArrayLike,
    *,
    num_draws: int = 9999,
    level: float = 0.05,
) -> RatioTest:
    r"""Tests whether the users are drawn from a given θ₀.

    The statistic is 2·Σ c_i·log(μ̂_i/μ₀_i), μ = q + d·θ, with μ̂ at the maximum of the likelihood (`mle_star`).
    Collections of as many users are drawn under θ₀, and the p-value is (1 + #{as large}) / (1 + num_draws): a Monte
    Carlo test, whose size is at most its level whatever N, K, ε and θ₀. The χ² law with K − 1 degrees of freedom is no
    substitute: where θ₀ has zeros it rejects much less often than it says.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.
        theta: `[K]`, the hypothesis θ₀, a distribution.
        num_draws: Simulated collections. Static.
        level: The level that the p-value will be compared with, in (0, 1); it must be within reach of so many draws.
            Static.

    Returns:
        `RatioTest`. The statistic is accurate to about N·1e-8 in float32 (the test keeps its size all the same, because
        those of the null are computed alike). All NaN for unusable counts or ε, and (under tracing) for a θ₀ that is
        no distribution.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, a θ₀ off the simplex, a level outside (0, 1), or too few draws for
            it.

    Example:
        >>> import jax, rrjax
        >>> counts = [5_200, 2_900, 1_000, 900]
        >>> result = rrjax.inference.likelihood_ratio_test(jax.random.key(0), counts, 2.0, [0.7, 0.3, 0.0, 0.0])
        >>> bool(0.07 < result.p_value < 0.11)
        True

    References:
        Dwass, "Modified randomization tests for nonparametric hypotheses", 1957, for the p-value.
    """
    as_probability(level, "level", 0.05)
    if num_draws < 1 or (num_draws + 1) * level < 1:
        raise ValueError(
            f"num_draws = {num_draws} is too few for the level {level:g}: the least p-value would be "
            f"{1 / (max(num_draws, 0) + 1):.2g}; take at least {int(np.ceil(1 / level)) - 1}"
        )
    counts = as_counts(counts, whole=True)
    theta = as_distribution(theta, counts.shape[0])
    if not isinstance(theta, Tracer):
        known = np.asarray(theta, np.float64)
        total, least = known.sum(), known.min()
        if not (least >= 0 and abs(total - 1) <= _OFF):
            raise ValueError(
                f"theta must be a distribution; it sums to {total:.6g}, and its least entry is {least:.3g}"
            )
    return _tested(key, counts, as_scalar(epsilon, float_dtype()), theta.astype(float_dtype()), num_draws)


def _statistic(counts, epsilon, theta):
    estimate = mle_star(counts, epsilon)
    e1 = odds(epsilon)
    # μ̂/μ₀ − 1 without the difference of two that are near each other.
    change = e1 * (estimate - theta) / (1 + e1 * theta)
    # At the maximum it is zero, which rounding must not take below.
    return jnp.maximum(2 * accurate_sum(counts.astype(epsilon.dtype) * jnp.log1p(change)), 0)


@partial(jax.jit, static_argnums=4)
def _tested(key, counts, epsilon, theta, num_draws):
    statistic = _statistic(counts, epsilon, theta)
    number = jnp.sum(counts)
    size = max(1, min(num_draws, _CELLS // counts.shape[0]))
    chunks = -(-num_draws // size)

    def as_large(start):
        keys = jax.vmap(partial(jax.random.fold_in, key))(start + jnp.arange(size, dtype=jnp.uint32))
        drawn = jax.vmap(lambda key: simulate.counts(key, theta, number, epsilon))(keys)
        null = jax.vmap(lambda c: _statistic(c.astype(counts.dtype), epsilon, theta))(drawn)
        # Equal statistics must count, whatever they round to.
        reached = null >= statistic - 8 * jnp.finfo(null.dtype).eps * jnp.maximum(jnp.abs(statistic), 1)
        return jnp.sum(reached & (start + jnp.arange(size, dtype=jnp.uint32) < num_draws), dtype=jnp.int32)

    found = jnp.sum(lax.map(as_large, jnp.arange(chunks, dtype=jnp.uint32) * size)).astype(epsilon.dtype)
    p_value = (1 + found) / (1 + num_draws)
    error = jnp.sqrt(p_value * (1 - p_value) / num_draws)
    usable = jnp.isfinite(statistic) & (jnp.min(theta) >= 0) & (jnp.abs(accurate_sum(theta) - 1) <= _OFF)
    return RatioTest(*(jnp.where(usable, value, jnp.nan) for value in (statistic, p_value, error)))
