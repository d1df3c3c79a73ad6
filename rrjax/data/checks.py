"""Checks of arguments that need no JAX, shared by the randomizers."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from rrjax.data.errors import ArgumentError

Values = TypeVar("Values", bound=Any)


def check_num_categories(num_categories: int) -> None:
    """Raises `ValueError` unless K is an integer, at least 2, that an int32 holds."""
    if isinstance(num_categories, bool) or not isinstance(num_categories, int | np.integer):
        raise ArgumentError(
            f"num_categories must be an integer, got {num_categories!r}",
            argument="num_categories",
            value=num_categories,
        )
    if not 2 <= num_categories < 2**31:
        raise ArgumentError(
            f"num_categories must be from 2 to 2147483647, got {num_categories}",
            argument="num_categories",
            value=num_categories,
        )


def as_integer(given: Any, name: str, low: int, high: int = 2**31 - 1, most: str = "") -> int:
    """A static parameter as a plain integer.

    Raises:
        ValueError: It is none, or out of range.
    """
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not low <= given <= high:
        raise ArgumentError(
            f"{name} must be an integer from {low} to {most}{high:,}, got {given!r}", argument=name, value=given
        )
    return int(given)


def check_integers(values: Values, num_categories: int, name: str) -> Values:
    """Checks the dtype of category numbers.

    Raises:
        ValueError: They are not integers.
    """
    if values.size == 0 and values.dtype == np.float64:  # what NumPy makes of []
        return values.astype(np.int32)
    if values.dtype.kind not in "iu":
        raise ArgumentError(
            f"{name} must be integers from 0 to {num_categories - 1}, got dtype {values.dtype}; "
            "labels live in rrjax.io and on the command line",
            argument=name,
        )
    return values.astype(np.int32) if values.dtype.itemsize < 4 else values


def check_domain(values: Any, num_categories: int, name: str) -> None:
    """Raises `ArgumentError` for a value outside 0 … K − 1; looks at the values of a NumPy or JAX array.

    Logs keep messages, so of a value only its position is said; reports are randomized, and are repeated.
    """
    if values.size == 0:
        return
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= num_categories:
        flat = np.asarray(values).ravel()
        first = int(np.argmax((flat < 0) | (flat >= num_categories)))
        came = flat[first] if name == "reports" else "another number"
        raise ArgumentError(
            f"{name} must be from 0 to {num_categories - 1}, got {came} at position {first}",
            argument=name,
            row=first,
            value=int(flat[first]) if name == "reports" else None,
        )
