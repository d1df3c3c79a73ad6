"""Checks of the parameters of survey designs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rrjax.data.arguments import as_array, float_dtype, is_real
from rrjax.data.errors import ArgumentError

SUM_TOLERANCE = 1e-6
"""Allowed distance of the sum of known probabilities from one."""


def together(*values: Any) -> tuple[Any, ...]:
    """Numbers ready for arithmetic: NumPy float64 if all are known on the host, else JAX arrays."""
    if any(isinstance(value, jax.Array) for value in values):
        return tuple(jnp.asarray(value).astype(float_dtype()) for value in values)
    return tuple(np.asarray(value, np.float64) for value in values)


def is_known(value: Any) -> bool:
    """Whether a value is on the host. A JAX array may be traced; impossible values in it give NaN."""
    return isinstance(value, int | float | np.number | np.ndarray)


def check_real(value: Any, name: str) -> None:
    """Raises `ValueError` unless a value is a real number, or an array of them (a batch, for `jax.vmap`)."""
    if not (is_known(value) or isinstance(value, jax.Array)) or not is_real(as_array(value, name)):
        raise ArgumentError(f"{name} must be a real number, or an array of them, got {value!r}", argument=name)


def check_probability(value: Any, name: str, example: float, *, closed: bool = False) -> None:
    """Raises `ValueError` unless a value is a real number, between 0 and 1 if it is known; `closed` allows both."""
    check_real(value, name)
    if not is_known(value) or np.ndim(value) > 0:  # a batch, for jax.vmap
        return
    inside = 0 <= float(value) <= 1 if closed else 0 < float(value) < 1
    if not inside:
        raise ArgumentError.about(name, f"must lie between 0 and 1, such as {example:g}, got {float(value):g}")


def check_different(first: Any, second: Any, name: str, why: str) -> None:
    """Raises `ValueError` if two known probabilities are equal, so that answers say nothing."""
    known = is_known(first) and is_known(second) and np.ndim(first) == np.ndim(second) == 0
    if known and float(first) == float(second):
        raise ArgumentError(f"{name} must not be {float(first):g}{why}: answers say nothing then", argument=name)


def strictly_inside(value: Any) -> Any:
    """A probability; NaN in JAX's arrays unless it is strictly between 0 and 1."""
    return jnp.where((value > 0) & (value < 1), value, jnp.nan) if isinstance(value, jax.Array) else value


def check_scalar(value: Any, name: str) -> None:
    """Raises `ValueError` for several numbers."""
    if np.ndim(value) != 0:
        raise ArgumentError(
            f"{name} must be a scalar (use jax.vmap for several designs), got shape {np.shape(value)}", argument=name
        )


def as_known_distribution(value: Any, name: str) -> Any:
    """A distribution over the categories, checked as far as its values are known.

    Raises:
        ValueError: A wrong shape, or no distribution.
    """
    if isinstance(value, list | tuple):
        value = as_array(value, name)
    if not isinstance(value, np.ndarray | jax.Array):
        raise ArgumentError(f"{name} must have shape [K], one probability a category, got {value!r}", argument=name)
    if np.ndim(value) == 0 or (np.ndim(value) == 1 and len(value) < 2):
        raise ArgumentError(
            f"{name} must have shape [K] with K >= 2, one probability a category, got {np.shape(value)}", argument=name
        )
    if not is_real(value):
        raise ArgumentError(f"{name} must be probabilities, got dtype {value.dtype}", argument=name)
    if is_known(value) and value.ndim == 1:
        entries = np.asarray(value, np.float64)
        if not (entries >= 0).all():
            raise ArgumentError.about(name, f"must be probabilities, none negative or NaN, got {entries.min():g}")
        if not abs(entries.sum() - 1) <= SUM_TOLERANCE:
            raise ArgumentError(
                f"{name} must be probabilities that sum to one, got a sum of {entries.sum():.6g}: give the "
                "distribution of the answers that are not truthful",
                argument=name,
            )
    return value
