"""Reports in memory to counts. For reports in files, see `rrjax.io`."""

from __future__ import annotations

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int


def count(reports: ArrayLike, num_categories: int) -> Int[Array, " K"]:
    """Counts how many reports name each category.

    Counts of parts add up to the counts of the whole, categories that nobody reported included; so a stream or
    many files are counted part by part and summed.

    Args:
        reports: Integers in 0 … K − 1, any shape.
        num_categories: K, at least 2. Static.

    Returns:
        `[K]`, in the default integer dtype. Under tracing, where a report outside the domain cannot be refused,
        one makes all counts −1, which every estimator turns into NaN.

    Raises:
        ValueError: K < 2, reports that are not integers, or (not under tracing) one outside the domain.

    Example:
        >>> import rrjax
        >>> rrjax.count([0, 2, 2, 1, 2], num_categories=4)
        Array([1, 1, 3, 0], dtype=int32)
    """
    check_num_categories(num_categories)
    reports = check_values(reports, num_categories, "reports")
    return _count(jnp.asarray(reports), num_categories)


def check_num_categories(num_categories: int) -> None:
    """Raises `ValueError` unless K is an integer, at least 2, that an int32 holds."""
    if isinstance(num_categories, bool) or not isinstance(num_categories, int | np.integer):
        raise ValueError(f"num_categories must be an integer, got {num_categories!r}")
    if not 2 <= num_categories < 2**31:
        raise ValueError(f"num_categories must be from 2 to 2147483647, got {num_categories}")


def check_values(values: ArrayLike, num_categories: int, name: str) -> np.ndarray | jax.Array:
    """Checks that values are category numbers, as far as they can be looked at.

    Args:
        values: Integers, any shape.
        num_categories: K.
        name: What to call them in an error.

    Returns:
        The values; a JAX array as it came, anything else as a NumPy array.

    Raises:
        ValueError: Not integers, or (not under tracing) one outside 0 … K − 1.
    """
    if not isinstance(values, jax.Array):
        values = np.asarray(values)
        if values.size == 0:
            values = values.astype(np.int32)
    if not jnp.issubdtype(values.dtype, jnp.integer):
        raise ValueError(
            f"{name} must be integers from 0 to {num_categories - 1}, got dtype {values.dtype}; "
            "labels live in rrjax.io and on the command line"
        )
    if values.dtype.itemsize < 4:  # too narrow to be compared with K
        values = values.astype(np.int32)
    if isinstance(values, jax.core.Tracer) or values.size == 0:
        return values
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= num_categories:
        flat = np.asarray(values).ravel()
        first = int(np.argmax((flat < 0) | (flat >= num_categories)))
        raise ValueError(f"{name} must be from 0 to {num_categories - 1}, got {flat[first]} at position {first}")
    return values


def _count(reports, num_categories):
    reports = reports.ravel()
    inside = (reports >= 0) & (reports < num_categories)
    counts = jnp.bincount(jnp.where(inside, reports, 0), length=num_categories)
    return jnp.where(jnp.all(inside), counts, -1)


_count = jax.jit(_count, static_argnums=1)
