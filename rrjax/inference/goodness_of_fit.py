"""Goodness of fit: do the reports look like those of a given distribution, or of any at all?"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax import simulate
from rrjax.data.arguments import as_survey, check_key
from rrjax.estimators.closed_form import mle_star
from rrjax.inference.monte_carlo import (
    HypothesisTest,
    as_hypothesis,
    check_draws,
    compared,
    is_on_simplex,
    rounding_of_pearson,
    simulable,
)
from rrjax.numerics.special import deviance
from rrjax.numerics.sums import accurate_sum, expm1_epsilon


def goodness_of_fit_test(
    key: Array,
    counts: ArrayLike,
    epsilon: ArrayLike,
    theta: ArrayLike | None = None,
    *,
    num_draws: int = 9999,
    level: float = 0.05,
) -> HypothesisTest:
    r"""Tests whether reports fit a given distribution, or whether any distribution can have brought them about.

    * With θ₀: Pearson's Σ (c_i − N·μ_i)²/(N·μ_i) with μ = q + d·θ₀, against collections drawn under θ₀. It asks about
      the reports alone, and so also notices what no θ explains; `likelihood_ratio_test` looks for other distributions
      only, and finds those better.
    * Without: twice the logarithm of the likelihood of the reports' own shares over the largest one that randomized
      response allows. It is zero where the unbiased inversion has no negative share. Categories that are named less
      often than by chance (a wrong ε, another mechanism, lost reports) make it large. The null is drawn at a point
      mass, where the statistic is largest for large counts: then no distribution rejects more often than its level.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.
        theta: `[K]`, the hypothesis θ₀, or None.
        num_draws: Simulated collections. Static.
        level: The level that the p-value will be compared with, in (0, 1). Static.

    Returns:
        `HypothesisTest`. With θ₀ its size is at most its level, whatever N, K and ε. Without, it is so for large
        counts, and simulations of small ones found no exception (`validation/results/sizes-cpu.md`). All NaN for
        unusable counts or ε, 2³¹ reports or more, and (under tracing) for a θ₀ that is no distribution.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, a θ₀ off the simplex, a level outside (0, 1), or too few draws for
            it.

    Example:
        >>> import jax, rrjax
        >>> counts = [5_200, 3_900, 500, 400]  # at ε = 2 every category is named by 961 of 10,000 on average, or more
        >>> result = rrjax.inference.goodness_of_fit_test(jax.random.key(0), counts, epsilon=2.0)
        >>> bool(result.p_value < 0.001)
        True

    References:
        Pearson, "On the criterion …", 1900; Perlman, "One-sided testing problems in multivariate analysis", 1969, for
        the least favourable point of a cone.
    """
    check_key(key)
    check_draws(num_draws, level)
    counts, epsilon = as_survey(counts, epsilon, whole=True)
    if theta is None:
        return _any_tested(key, counts, epsilon, num_draws)
    return _tested(key, counts, epsilon, as_hypothesis(theta, counts.shape[0]), num_draws)


@partial(jax.jit, static_argnums=4)
def _tested(key, counts, epsilon, theta, num_draws):
    number, usable = simulable(counts)
    usable = usable & is_on_simplex(theta)
    theta = theta / accurate_sum(theta)
    expected = _expected(theta, epsilon, number)

    def pearson(counts):
        excess = counts.astype(theta.dtype) - expected
        return accurate_sum(excess / expected * excess)

    statistic = jnp.where(usable, pearson(counts), jnp.nan)
    return compared(
        key,
        statistic,
        lambda key: pearson(simulate.counts(key, theta, number, epsilon)),
        num_draws,
        theta.shape[0],
        "Pearson, simulated null",
        rounding=rounding_of_pearson(statistic, number),
    )


@partial(jax.jit, static_argnums=3)
def _any_tested(key, counts, epsilon, num_draws):
    number, usable = simulable(counts)
    vertex = (jnp.arange(counts.shape[0]) == 0).astype(epsilon.dtype)
    return compared(
        key,
        jnp.where(usable, lack_of_fit(counts, epsilon), jnp.nan),
        lambda key: lack_of_fit(simulate.counts(key, vertex, number, epsilon).astype(counts.dtype), epsilon),
        num_draws,
        counts.shape[0],
        "likelihood ratio of the unrestricted shares, null simulated at a point mass",
    )


def lack_of_fit(counts: Int[Array, " K"], epsilon: Float[Array, ""]) -> Float[Array, ""]:
    """Twice the logarithm of the likelihood of the reports' own shares over that of MLE*; NaN where that is."""
    theta = mle_star(counts, epsilon)
    expected = _expected(theta, epsilon, jnp.sum(counts))
    # Not Σ c·log(c/m), but Σ m·(the deviance of c/m), of the same total: its terms are positive, so that none cancels.
    change = (counts.astype(theta.dtype) - expected) / expected
    return 2 * accurate_sum(expected * deviance(change))


def _expected(theta, epsilon, number):
    e1 = expm1_epsilon(epsilon)
    law = 1 / (e1 + theta.shape[0]) + e1 / (e1 + theta.shape[0]) * theta
    # Where q is beyond the dtype, a little more.
    return jnp.maximum(law, jnp.finfo(theta.dtype).tiny) * number.astype(theta.dtype)
