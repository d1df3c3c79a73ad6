"""Measures of the association of two attributes, from their joint shares."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import float_of
from rrjax.data.errors import ArgumentError
from rrjax.numerics.sums import accurate_sum


def cramers_v(theta: ArrayLike) -> Float[Array, ""]:
    """Cramér's V of a joint distribution: zero for independent attributes, one if one determines the other.

    V² = Σ_ij (θ_ij − a_i·b_j)²/(a_i·b_j)/(min(K, L) − 1), with a and b the margins.

    Args:
        theta: `[K, L]`, joint shares, such as of `Product.marginal`.

    Returns:
        Scalar. Of an estimated table it is too large on average, because noise is association, too. Differentiable
        except at independence.

    Raises:
        ValueError: Another shape.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.cramers_v([[0.4, 0.1], [0.1, 0.4]]):.3f}")
        0.600

    References:
        Cramér, "Mathematical methods of statistics", 1946, §21.9.
    """
    theta, expected = _margins(theta)
    terms = jnp.where(expected > 0, (theta - expected) ** 2 / jnp.where(expected > 0, expected, 1), 0)
    return jnp.sqrt(accurate_sum(terms.ravel()) / (min(theta.shape) - 1))


def mutual_information(theta: ArrayLike) -> Float[Array, ""]:
    """Mutual information of a joint distribution, Σ θ_ij·log(θ_ij/(a_i·b_j)), nats.

    Args:
        theta: `[K, L]`, joint shares, none negative.

    Returns:
        Scalar, not negative up to rounding; zero for independent attributes. NaN for negative shares.

    Raises:
        ValueError: Another shape.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.mutual_information([[0.4, 0.1], [0.1, 0.4]]):.3f}")
        0.193
    """
    theta, expected = _margins(theta)
    held = theta > 0
    ratio = jnp.where(held, theta, 1) / jnp.where(held, expected, 1)
    terms = jnp.where(held, theta * jnp.log(ratio), jnp.where(theta < 0, jnp.nan, 0))
    return accurate_sum(terms.ravel())


def _margins(theta):
    theta = jnp.asarray(theta)
    if theta.ndim != 2 or min(theta.shape) < 2:
        raise ArgumentError(f"theta must have shape [K, L], both at least 2; got {theta.shape}", argument="theta")
    theta = theta.astype(float_of(theta))
    return theta, jnp.sum(theta, axis=1)[:, None] * jnp.sum(theta, axis=0)
