"""How far counts are above what an absent category receives: exactly, for integers of any size."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.estimators import survey
from rrjax.numerics import as_counts, as_scalar, float_dtype, split_product


class Reports(NamedTuple):
    """A histogram of reports, ready for binomial laws.

    Attributes:
        counts: `[K]`, floats.
        others: `[K]`, floats: the reports of all other categories.
        excess: `[K]`: counts − N·q, to a few units in the last place of the larger of one and itself.
        e1: Scalar: e^ε − 1.
        usable: Scalar: whether counts and epsilon make sense; harmless numbers stand in where they do not.
    """

    counts: Float[Array, " K"]
    others: Float[Array, " K"]
    excess: Float[Array, " K"]
    e1: Float[Array, ""]
    usable: Bool[Array, ""]

    @property
    def q(self) -> Float[Array, ""]:
        """What a category that nobody holds receives of the reports; a little more where the dtype ends."""
        return jnp.maximum(1 / (self.e1 + self.counts.shape[0]), jnp.finfo(self.e1.dtype).tiny)

    def share(self, reported: Float[Array, " K"]) -> Float[Array, " K"]:
        """The share of the users that hold a category, from the probability that a report names it; may be negative."""
        return reported + (self.counts.shape[0] * reported - 1) / self.e1


def reports(counts: ArrayLike, epsilon: ArrayLike) -> Reports:
    """Checks counts, which must be integers here, and prepares them.

    Raises:
        ValueError: A wrong shape or dtype, or K < 2.
    """
    counts = as_counts(counts, whole=True)
    return _prepared(counts, as_scalar(epsilon, float_dtype()))


@jax.jit
def _prepared(counts, epsilon):
    total, _, e1, usable = survey(counts, epsilon)
    counts, total = jnp.where(usable, counts, 1), jnp.where(usable, total, counts.shape[0])
    other = (total - counts).astype(e1.dtype)
    return Reports(counts.astype(e1.dtype), other, _excess(counts, total, e1), e1, usable)


def _excess(counts: Int[Array, " K"], total: Int[Array, ""], e1: Float[Array, ""]) -> Float[Array, " K"]:
    """(c·e1 + c·K − N) / (e1 + K)."""
    num_categories = counts.shape[0]
    noise = total.astype(e1.dtype) / (e1 + num_categories)
    rough = counts.astype(e1.dtype) - noise
    # Where the difference is smaller than its terms, it lies within an integer, and wrap-around arithmetic is exact.
    whole, fraction, _ = split_product(counts, e1)
    integer = whole.astype(total.dtype) + (counts * jnp.asarray(num_categories, counts.dtype) - total)
    exact = (integer.astype(e1.dtype) + fraction) / (e1 + num_categories)
    # The rough one has the derivative in ε; it differs from the exact one by rounding alone.
    return rough + lax.stop_gradient(jnp.where(jnp.abs(rough) < noise / 2, exact - rough, 0))
