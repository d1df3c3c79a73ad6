"""Reports in memory to counts, and whether counts are any. For reports in files, see `rrjax.io`."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Int, Shaped

from rrjax.data.checks import check_domain, check_integers, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.numerics.sharding import together


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

    Raises:
        ValueError: Not integers, or (not under tracing) one outside 0 … K − 1.
    """
    array = check_integers(values if isinstance(values, jax.Array) else np.asarray(values), num_categories, name)
    if not isinstance(array, jax.core.Tracer):
        with jax.ensure_compile_time_eval():  # known values may be met while something else is traced
            check_domain(array, num_categories, name)
    return jnp.asarray(array)


def _count(reports, num_categories):
    reports = together(reports).ravel()
    inside = (reports >= 0) & (reports < num_categories)
    counts = jnp.bincount(jnp.where(inside, reports, 0), length=num_categories)
    return jnp.where(jnp.all(inside), counts, -1)


_count = jax.jit(_count, static_argnums=1)


class Survey(NamedTuple):
    """What one look through counts tells.

    Attributes:
        total: Scalar, their sum.
        bound: Scalar: a lower bound of the largest one, half of it or more; zero for floats.
        valid: Scalar: none is negative or NaN, and their sum did not wrap.
    """

    total: Shaped[Array, ""]
    bound: Shaped[Array, ""]
    valid: Bool[Array, ""]

    @property
    def usable(self) -> Bool[Array, ""]:
        """Whether there is a distribution to estimate from them."""
        return self.valid & (self.total > 0)

    @property
    def simulable(self) -> Bool[Array, ""]:
        """Whether collections of as many reports can be drawn."""
        return self.usable & (self.total <= jnp.iinfo(jnp.int32).max)

    @property
    def drawable(self) -> Bool[Array, ""]:
        """Whether what as many users report can be drawn: of no users, nothing."""
        return self.simulable | (self.valid & (self.total == 0))


def survey(counts: Shaped[Array, " K"]) -> Survey:
    """Looks through counts once: the one check of values that tracing hides.

    Raises:
        ValueError: So many integers that a sum of them may wrap unnoticed.
    """
    if jnp.issubdtype(counts.dtype, jnp.floating):
        total = jnp.sum(counts)
        return Survey(total, jnp.zeros_like(total), (jnp.min(counts) >= 0) & jnp.isfinite(total))
    bits = jnp.iinfo(counts.dtype).bits
    if counts.shape[0] >= 2 ** (bits - 8):
        raise ArgumentError(
            f"K = {counts.shape[0]} is too many categories for {counts.dtype.name} counts: "
            "enable 64-bit mode (JAX_ENABLE_X64=1)",
            argument="counts",
        )
    # A wrapped total shows against sums of the counts' high parts: whatever the total, one of the three is not
    # wrapped itself and too large, because the low parts of so few categories cannot make up for a wrap. One OR
    # tells whether any count is negative, and the largest one to within a factor of two. All in one pass.
    zero = jnp.zeros((), counts.dtype)
    total, *high, union = lax.reduce(
        (counts, counts >> 8, counts >> 16, counts >> 24, counts),
        (zero,) * 5,
        lambda a, b: (*(x + y for x, y in zip(a[:4], b[:4], strict=True)), a[4] | b[4]),
        (0,),
    )
    largest = jnp.iinfo(counts.dtype).max
    lag = (total >> 8) - high[0]
    valid = (union >= 0) & (total >= 0) & (lag >= 0) & (lag <= counts.shape[0])
    for part, shift in zip(high, (8, 16, 24), strict=True):
        valid = valid & (part >= 0) & (part <= largest >> shift)
    bound = counts.dtype.type(1) << (bits - 1 - lax.clz(jnp.maximum(union, 1)))
    return Survey(total, bound, valid)
