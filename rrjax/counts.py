"""Reports in memory to counts. For reports in files, see `rrjax.io`."""

from __future__ import annotations

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int

from rrjax.checks import check_domain, check_integers, check_num_categories


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
    return _count(as_values(reports, num_categories, "reports"), num_categories)


def as_values(values: ArrayLike, num_categories: int, name: str) -> Array:
    """Checks that values are category numbers, as far as they can be looked at.

    Args:
        values: Integers, any shape.
        num_categories: K.
        name: What to call them in an error.

    Returns:
        The values as a JAX array.

    Raises:
        ValueError: Not integers, or (not under tracing) one outside 0 … K − 1.
    """
    array = check_integers(values if isinstance(values, jax.Array) else np.asarray(values), num_categories, name)
    if not isinstance(array, jax.core.Tracer):
        check_domain(array, num_categories, name)
    return jnp.asarray(array)


def _count(reports, num_categories):
    reports = reports.ravel()
    inside = (reports >= 0) & (reports < num_categories)
    counts = jnp.bincount(jnp.where(inside, reports, 0), length=num_categories)
    return jnp.where(jnp.all(inside), counts, -1)


_count = jax.jit(_count, static_argnums=1)
