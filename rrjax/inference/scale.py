"""Numbers that categories stand for, brought to [0, 1], and estimates of what they add up to, brought back."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import gathered


@exportable
class Estimate(NamedTuple):
    """A number that is estimated, and how well.

    Attributes:
        value: Scalar, the unbiased estimate; of any size.
        standard_error: Scalar.
        lower: Scalar, confidence limit.
        upper: Scalar, not below `lower`.
    """

    value: Float[Array, ""]
    standard_error: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]


class Scale(NamedTuple):
    """Values brought to [0, 1].

    Attributes:
        unit: `[K]`, from 0 to 1, both there.
        least: Scalar.
        length: Scalar, of their range.
        usable: Scalar, whether they are finite, and not all the same.
    """

    unit: Float[Array, " K"]
    least: Float[Array, ""]
    length: Float[Array, ""]
    usable: Bool[Array, ""]

    @classmethod
    def of(cls, values: Float[Array, " K"]) -> Scale:
        """Of values `[K]`."""
        least, length = jnp.min(values), jnp.max(values) - jnp.min(values)
        usable = jnp.isfinite(length) & (length > 0)
        return cls(jnp.where(usable, (values - least) / jnp.where(usable, length, 1), 0.5), least, length, usable)

    def mapped(self, found: Estimate, usable: Bool[Array, ""], weight: ArrayLike) -> Estimate:
        """An estimate for the unit values as one for the values; NaN where it is of no use.

        Args:
            found: For the unit values.
            usable: Scalar.
            weight: How often the least value counts: the sum of the weights of the collections.
        """
        numbers = [
            found.standard_error * self.length
            if name == "standard_error"
            else value * self.length + weight * self.least
            for name, value in found._asdict().items()
        ]
        return Estimate(*(jnp.where(usable, number, jnp.nan) for number in numbers))


def as_numbers(values: ArrayLike, num_categories: int) -> Float[Array, " K"]:
    """Checks numbers that categories stand for.

    Raises:
        ValueError: Another shape than `[K]`, no real numbers, or (not under tracing) one that is not finite, or all the
            same.
    """
    given = values if isinstance(values, jax.Array) else np.asarray(values)
    if given.shape != (num_categories,) or not (is_real(given) or given.dtype == bool):
        raise ArgumentError(
            f"values must be numbers of shape [{num_categories}], one for each category; got {given.dtype} of shape "
            f"{tuple(given.shape)}",
            argument="values",
        )
    if not isinstance(given, Tracer):
        known = np.asarray(given, np.float64)
        wrong = np.flatnonzero(~np.isfinite(known))
        if wrong.size:
            raise ArgumentError(
                f"the value of category {wrong[0]} is {known[wrong[0]]}: give every category a number",
                argument="values",
            )
        if (known == known[0]).all():
            raise ArgumentError(
                f"all values are {known[0]:g}, whatever the users hold: give two different ones", argument="values"
            )
        if not isinstance(given, jax.Array):
            return jnp.asarray(known, float_dtype())
    return gathered(given.astype(float_dtype()))
