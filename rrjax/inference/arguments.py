"""Checks of arguments that inference shares."""

from __future__ import annotations

from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.numerics import as_scalar, float_dtype


def as_probability(value: ArrayLike, name: str, example: float) -> Float[Array, ""]:
    """Checks that a scalar lies strictly between 0 and 1, as far as it is known.

    Args:
        value: The scalar.
        name: What to call it in an error.
        example: What it could have been.

    Raises:
        ValueError: It does not, or is no scalar.
    """
    scalar = as_scalar(value, float_dtype(), name)
    if not isinstance(scalar, Tracer) and not 0 < float(scalar) < 1:
        raise ValueError(f"{name} must lie between 0 and 1, such as {example:g}, got {float(scalar):g}")
    return scalar
