"""The likelihood ratio of a distribution to the maximum, without cancellation, and its test with a simulated null."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Shaped

from rrjax import simulate
from rrjax.data.arguments import as_survey, check_key
from rrjax.data.errors import ArgumentError
from rrjax.estimators.closed_form import mle_star
from rrjax.inference.monte_carlo import HypothesisTest, as_hypothesis, check_draws, compared, is_on_simplex, simulable
from rrjax.numerics.sharding import aligned
from rrjax.numerics.special import log1p_minus
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

Null: TypeAlias = Literal["simulated", "chi-bar-square"]


def likelihood_ratio_test(
    key: Array,
    counts: ArrayLike,
    epsilon: ArrayLike,
    theta: ArrayLike,
    *,
    null: Null = "simulated",
    num_draws: int = 9999,
    level: float = 0.05,
) -> HypothesisTest:
    r"""Tests whether the users are drawn from a given θ₀.

    The statistic is 2·Σ c_i·log(μ̂_i/μ₀_i), μ = q + d·θ, with μ̂ at the maximum of the likelihood (`mle_star`). It is
    compared with

    * "simulated": those of collections of as many users, drawn under θ₀: a Monte Carlo test, whose size is at most its
      level whatever N, K, ε and θ₀. The default.
    * "chi-bar-square": draws of its limit for many users, the squared length of a normal vector projected on the cone
      of directions that keep the zeros of θ₀ from becoming negative. It needs no counts drawn, and shares of θ₀ that
      are zero or many standard errors away from it: for small ones it rejects too rarely.

    The χ² law with K − 1 degrees of freedom is no substitute and is refused: where θ₀ has zeros it rejects much less
    often than it says.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.
        theta: `[K]`, the hypothesis θ₀, a distribution.
        null: As above.
        num_draws: Simulated statistics. Static.
        level: The level that the p-value will be compared with, in (0, 1); it must be within reach of so many draws.
            Static.

    Returns:
        `HypothesisTest`, the statistic to some machine epsilons of itself. All NaN for unusable counts or ε, and (under
        tracing) for a θ₀ that is no distribution; also for 2³¹ reports or more.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, a θ₀ off the simplex, an unknown null, a level outside (0, 1), or too
            few draws for it.

    Example:
        >>> import jax, rrjax
        >>> counts = [5_200, 2_900, 1_000, 900]
        >>> result = rrjax.inference.likelihood_ratio_test(jax.random.key(0), counts, 2.0, [0.7, 0.3, 0.0, 0.0])
        >>> bool(0.07 < result.p_value < 0.11)
        True

    References:
        Dwass, "Modified randomization tests for nonparametric hypotheses", 1957, for the p-value; Self and Liang,
        "Asymptotic properties of maximum likelihood estimators and likelihood ratio tests under nonstandard
        conditions", 1987, for the limit.
    """
    check_key(key)
    if null == "chi-square":
        raise ArgumentError(
            "null = 'chi-square' is refused: on the boundary of the simplex the statistic has no χ² law, and the test "
            "would reject much less often than it says; use 'simulated', or 'chi-bar-square'",
            argument="null",
        )
    if null not in ("simulated", "chi-bar-square"):
        raise ArgumentError(f"null must be 'simulated' or 'chi-bar-square', got {null!r}", argument="null")
    check_draws(num_draws, level)
    counts, epsilon = as_survey(counts, epsilon, whole=True)
    theta = as_hypothesis(theta, counts.shape[0])
    return _tested(key, counts, epsilon, theta, null, num_draws)


@partial(jax.jit, static_argnums=(4, 5))
def _tested(key, counts, epsilon, theta, null, num_draws):
    number, usable = simulable(counts)
    usable = usable & is_on_simplex(theta)
    theta = theta / accurate_sum(theta)

    def simulated(key):
        drawn = simulate.counts(key, theta, number, epsilon)
        return ratio(drawn.astype(counts.dtype), epsilon, theta)

    draw = simulated if null == "simulated" else lambda key: chi_bar_square(key, epsilon, theta)
    statistic = jnp.where(usable, ratio(counts, epsilon, theta), jnp.nan)
    return compared(key, statistic, draw, num_draws, theta.shape[0], f"likelihood ratio, {null} null")


def ratio(counts: Shaped[Array, " K"], epsilon: Float[Array, ""], theta: Float[Array, " K"]) -> Float[Array, ""]:
    """Twice the logarithm of the likelihood at its maximum over that at θ.

    With y = μ/μ̂ − 1 it is −2·Σ c·log(1 + y). The linear part Σ c·y needs no sum over the active categories, where
    c = τ·(1 + e1·θ̂): it is Σ (c − τ)·e1·θ over the others. So all terms are positive, and none cancels.
    """
    estimate = mle_star(counts, epsilon)
    e1 = expm1_epsilon(epsilon)
    active = estimate > 0
    weights = counts.astype(epsilon.dtype)
    kept = jnp.sum(jnp.where(active, counts, 0)).astype(epsilon.dtype)
    threshold = kept / (e1 + jnp.sum(active, dtype=epsilon.dtype))
    change = e1 * (theta - estimate) / (1 + e1 * estimate)
    # Where μ is next to nothing beside μ̂, their quotient has lost it, not so its logarithm.
    far = jnp.log(1 + e1 * theta) - jnp.log(1 + e1 * estimate) - change
    bend = jnp.where(weights > 0, -weights * jnp.where(change < -0.5, far, log1p_minus(change)), 0)
    terms = bend + jnp.where(active, 0, (threshold - weights) * (e1 * theta))
    return jnp.where(jnp.any(active), 2 * accurate_sum(terms), jnp.nan)


def chi_bar_square(key: Array, epsilon: Float[Array, ""], theta: Float[Array, " K"]) -> Float[Array, ""]:
    """One draw from the limit of the likelihood ratio at θ for many users.

    x ~ N(0, diag(μ) − μμᵀ) is what the scaled shares of the reports become; its projection δ on the cone {Σδ = 0,
    δ_i ≥ 0 where θ_i = 0} in the metric 1/μ is x − λμ, cut at zero where θ_i = 0, and Σδ²/μ is the draw. λ comes from
    Newton steps on a convex piecewise linear equation, from below, which end after finitely many.
    """
    e1 = expm1_epsilon(epsilon)
    law = (1 + e1 * theta) / (e1 + theta.shape[0])
    normal = jax.random.normal(key, theta.shape, theta.dtype)
    # x/√μ, standard normal but for its part along √μ.
    root = jnp.sqrt(law)
    standard = normal - root * jnp.sum(root * normal)
    free = theta > 0

    def step(state):
        level, _, _ = state
        kept = free | (standard > level * root)
        rise = jnp.sum(jnp.where(kept, root * standard, 0)) / jnp.sum(jnp.where(kept, law, 0))
        return rise, level, jnp.sum(kept, dtype=jnp.int32)

    # With every direction kept λ is zero, which is not above the solution.
    zero = jnp.zeros((), theta.dtype)
    start = aligned((zero, zero - 1, jnp.int32(0)), standard)
    level, *_ = lax.while_loop(lambda state: state[0] > state[1], step, start)
    length = standard - level * root
    return jnp.sum(jnp.where(free | (length > 0), length, 0) ** 2)
