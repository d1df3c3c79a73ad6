"""Distances of an estimate from a distribution: scalars of two arrays `[K]`; smaller is better.

Accurate to the dtype at any K. NaN in, NaN out. Batches through `jax.vmap`. All raise `ValueError` if shapes differ or
K < 2.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_distribution
from rrjax.numerics.sums import accurate_sum, largest

__all__ = [
    "kl_divergence",
    "kolmogorov",
    "max_error",
    "squared_error",
    "total_variation",
    "wasserstein",
]


def squared_error(estimate: ArrayLike, truth: ArrayLike) -> Float[Array, ""]:
    """Sum of the squared errors of all categories; its mean over seeds is the paper's MSE.

    Args:
        estimate: `[K]`.
        truth: `[K]`, the true distribution.

    Returns:
        Scalar, squared probability; at most 2 between distributions.

    Example:
        >>> import rrjax
        >>> rrjax.metrics.squared_error([0.75, 0.25], [0.5, 0.5])
        Array(0.125, dtype=float32)
    """
    estimate, truth = _pair(estimate, truth)
    return accurate_sum((estimate - truth) ** 2)


def total_variation(estimate: ArrayLike, truth: ArrayLike) -> Float[Array, ""]:
    """Total variation, ½ Σ |error|: the largest error of the probability of any event.

    Args:
        estimate: `[K]`.
        truth: `[K]`, the true distribution.

    Returns:
        Scalar, probability; at most 1 between distributions.

    Example:
        >>> import rrjax
        >>> rrjax.metrics.total_variation([0.75, 0.25], [0.5, 0.5])
        Array(0.25, dtype=float32)
    """
    estimate, truth = _pair(estimate, truth)
    return accurate_sum(jnp.abs(estimate - truth)) / 2


def max_error(estimate: ArrayLike, truth: ArrayLike) -> Float[Array, ""]:
    """Largest absolute error of a category.

    Args:
        estimate: `[K]`.
        truth: `[K]`, the true distribution.

    Returns:
        Scalar, probability.

    Example:
        >>> import rrjax
        >>> rrjax.metrics.max_error([0.75, 0.25], [0.5, 0.5])
        Array(0.25, dtype=float32)
    """
    estimate, truth = _pair(estimate, truth)
    return largest(jnp.abs(estimate - truth))


def kl_divergence(estimate: ArrayLike, truth: ArrayLike) -> Float[Array, ""]:
    """Kullback–Leibler divergence of the estimate from the truth, Σ θ_i log(θ_i / estimate_i).

    Args:
        estimate: `[K]`.
        truth: `[K]`, the true distribution.

    Returns:
        Scalar, nats. Infinite if the estimate of a category that is not empty is zero; NaN if any share is negative.
        Derivatives where it is finite. If a sum is not one it is no divergence, and may be negative: then studies and
        `rrjax compare` omit it.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.metrics.kl_divergence([0.75, 0.25], [0.5, 0.5]):.4f}")
        0.1438
    """
    estimate, truth = _pair(estimate, truth)
    present = truth > 0
    # Where θ is zero both arguments are replaced by one, or the derivative there would be NaN.
    log_ratio = jnp.log(jnp.where(present, truth, 1)) - jnp.log(jnp.where(present, estimate, 1))
    divergence = accurate_sum(jnp.where(present, truth * log_ratio, 0))
    return jnp.where(jnp.all(truth >= 0) & jnp.all(estimate >= 0), divergence, jnp.nan)


def wasserstein(estimate: ArrayLike, truth: ArrayLike, width: ArrayLike = 1.0) -> Float[Array, ""]:
    """Wasserstein distance W₁ of distributions over categories in order: Σ |F − F̂| of the distribution functions.

    The smallest mean distance by which shares must be moved to make one distribution the other.

    Args:
        estimate: `[K]`, in order.
        truth: `[K]`, the true distribution.
        width: Scalar, the distance of neighbouring categories, such as the width of a bin.

    Returns:
        Scalar, in the unit of `width`; at most (K − 1)·width between distributions. The total of both is not compared.

    Example:
        >>> import rrjax
        >>> rrjax.metrics.wasserstein([0.5, 0.5, 0.0], [0.5, 0.0, 0.5], width=10.0)
        Array(5., dtype=float32)
    """
    gaps = _cumulative_gaps(estimate, truth)
    return accurate_sum(gaps) * jnp.asarray(width, gaps.dtype)


def kolmogorov(estimate: ArrayLike, truth: ArrayLike) -> Float[Array, ""]:
    """Kolmogorov distance of distributions over categories in order: the largest |F − F̂|.

    Args:
        estimate: `[K]`, in order.
        truth: `[K]`, the true distribution.

    Returns:
        Scalar, probability.

    Example:
        >>> import rrjax
        >>> rrjax.metrics.kolmogorov([0.5, 0.5, 0.0], [0.5, 0.0, 0.5])
        Array(0.5, dtype=float32)
    """
    return largest(_cumulative_gaps(estimate, truth))


def _cumulative_gaps(estimate, truth):
    """|F − F̂| `[K − 1]`, without the last one, which is that of the totals."""
    estimate, truth = _pair(estimate, truth)
    sums = jnp.cumsum(estimate - truth)
    return jnp.where(jnp.isnan(sums[-1]), jnp.nan, jnp.abs(sums[:-1]))


def _pair(estimate, truth):
    truth = as_distribution(truth)
    estimate = as_distribution(estimate, truth.shape[0], "estimate")
    dtype = np.promote_types(estimate.dtype, truth.dtype)
    return estimate.astype(dtype), truth.astype(dtype)
