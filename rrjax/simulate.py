"""Populations to simulate collections from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.checks import check_num_categories
from rrjax.numerics import accurate_sum, as_distribution, as_scalar, float_dtype


def zipf(num_categories: int, exponent: ArrayLike) -> Float[Array, " K"]:
    """The Zipf distribution over K categories, θ_i ∝ (i + 1)^−s, the paper's synthetic population.

    Args:
        num_categories: K, at least 2. Static.
        exponent: Scalar s ≥ 0; 0 is uniform, infinity the point mass on category 0.

    Returns:
        `[K]`, decreasing, sums to one. Derivatives in the exponent. All NaN for a negative one.

    Raises:
        ValueError: K < 2, or an exponent that is not one real number.

    Example:
        >>> import rrjax
        >>> print(rrjax.simulate.zipf(4, 1.0).round(2))
        [0.48 0.24 0.16 0.12]
    """
    check_num_categories(num_categories)
    rank = jnp.arange(1, num_categories + 1, dtype=float_dtype())
    exponent = as_scalar(exponent, rank.dtype, "exponent")
    # The first rank is exactly one whatever the exponent, also where the product would be 0 · ∞.
    log_rank = jnp.where(rank == 1, 0, jnp.log(rank))
    weights = jnp.where(rank == 1, 1, jnp.exp(-exponent * log_rank))
    return jnp.where(exponent >= 0, weights / accurate_sum(weights), jnp.nan)


def values(key: Array, theta: ArrayLike, num_users: int) -> Int[Array, " N"]:
    """Draws the true values of independent users.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        theta: `[K]`, the distribution to draw from.
        num_users: N. Static.

    Returns:
        `[N]`, int32, category numbers. By inversion of the cumulative sums: probabilities are exact to the dtype's
        rounding of those. All −1 where theta has a negative entry, NaN, or no mass: estimates from them are NaN.

    Raises:
        ValueError: A wrong shape, K < 2, or a negative number of users.

    Example:
        >>> import jax, rrjax
        >>> rrjax.simulate.values(jax.random.key(0), [0.5, 0.5], 1000).shape
        (1000,)
    """
    if num_users < 0:
        raise ValueError(f"num_users must not be negative, got {num_users}")
    theta = as_distribution(theta)
    edges = jnp.cumsum(theta)
    uniform = jax.random.uniform(key, (num_users,), theta.dtype) * edges[-1]
    drawn = jnp.minimum(jnp.searchsorted(edges, uniform, side="right"), theta.shape[0] - 1)
    usable = (jnp.min(theta) >= 0) & (edges[-1] > 0) & jnp.isfinite(edges[-1])
    return jnp.where(usable, drawn, -1).astype(jnp.int32)
