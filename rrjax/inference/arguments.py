"""Checks of arguments that inference shares."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.numerics import as_scalar, float_dtype


def as_probability(value: ArrayLike, name: str, example: float) -> Float[Array, ""]:
    """Checks that a scalar lies strictly between 0 and 1, as far as it is known.

    What the host knows is checked in double precision, where 1 − 1e-9 is not one.

    Args:
        value: The scalar.
        name: What to call it in an error.
        example: What it could have been.

    Raises:
        ValueError: It does not, or is no scalar.
    """
    scalar = as_scalar(value, float_dtype(), name)
    if not isinstance(scalar, Tracer):
        known = float(np.asarray(value, np.float64))
        if not 0 < known < 1:
            raise ValueError(f"{name} must lie between 0 and 1, such as {example:g}, got {known:g}")
    return scalar


Population: TypeAlias = Literal["iid", "fixed"]
"""Users who are independent draws from θ, or who hold given values."""


def check_population(population: Population) -> None:
    """Raises `ValueError` for another word."""
    if population not in get_args(Population):
        raise ValueError(f"population must be 'iid' or 'fixed', got {population!r}")


def complement(value: ArrayLike) -> Float[Array, ""]:
    """1 − value; of what the host knows in double precision, because a float32 near one has few digits."""
    if isinstance(value, jax.Array):
        return 1 - value.astype(float_dtype())
    return jnp.asarray(1 - np.asarray(value, np.float64), float_dtype())
