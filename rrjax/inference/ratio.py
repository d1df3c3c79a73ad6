"""The likelihood ratio of a distribution to the maximum, without cancellation."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from rrjax.estimators import mle_star
from rrjax.numerics import accurate_sum, odds
from rrjax.special import log1p_minus


def ratio(counts: Shaped[Array, " K"], epsilon: Float[Array, ""], theta: Float[Array, " K"]) -> Float[Array, ""]:
    """Twice the logarithm of the likelihood at its maximum over that at θ.

    With y = μ/μ̂ − 1 it is −2·Σ c·log(1 + y). The linear part Σ c·y needs no sum over the active categories, where
    c = τ·(1 + e1·θ̂): it is Σ (c − τ)·e1·θ over the others. So all terms are positive, and none cancels.

    Args:
        counts: `[K]`.
        epsilon: Scalar, nats.
        theta: `[K]`, a distribution.

    Returns:
        Scalar, nats, to some machine epsilons of itself; NaN for unusable counts or ε.
    """
    estimate = mle_star(counts, epsilon)
    e1 = odds(epsilon)
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
