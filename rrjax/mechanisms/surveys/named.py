"""Survey designs from their names and parameters, as files and flags give them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import DESIGNS, TWO_SAMPLES, Design
from rrjax.mechanisms.table import TABLE


def parameters_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a survey design as numbers.

    Args:
        name: Name of a design, a key of `rrjax.mechanisms.DESIGNS` or `TWO_SAMPLES`.
        given: Its parameters: numbers, lists of them, or texts such as "2/3" or "1/2, 1/2".

    Returns:
        Floats, and arrays where several numbers are given.

    Raises:
        ValueError: A parameter that the design does not have, one that is missing, or a value that is no number.
    """
    known = TABLE[name].parameters or ()
    for key in given:
        if key not in known:
            raise ArgumentError(f"{name} has no parameter {key!r}; it has {', '.join(known)}", argument=key)
    for field in dataclasses.fields(cast("Any", DESIGNS.get(name) or TWO_SAMPLES[name])):
        if field.name in known and field.name not in given and field.default is dataclasses.MISSING:
            raise ArgumentError(f"{name} lacks its parameter {field.name!r}", argument=field.name)
    return {key: _numbers(key, value) for key, value in given.items()}


def make_design(name: str, given: Mapping[str, Any], num_categories: int | None = None) -> Design:
    """A survey design from its name and parameters.

    Args:
        name: A key of `rrjax.mechanisms.DESIGNS`.
        given: As in `parameters_of`.
        num_categories: K, for a design whose other parameters leave it open.

    Raises:
        ValueError: As `parameters_of`, parameters that make no design, or an open K.
    """
    values = parameters_of(name, given)
    if any(field.name == "num_categories" for field in dataclasses.fields(cast("Any", DESIGNS[name]))):
        if num_categories is None:
            raise ArgumentError(f"{name} needs the number of answers", argument="num_categories")
        values["num_categories"] = num_categories
    return DESIGNS[name](**values)


def _numbers(name: str, value: Any) -> float | np.ndarray:
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    numbers = []
    for part in parts:
        try:
            numbers.append(float(Fraction(part.strip()) if isinstance(part, str) else part))
        except (TypeError, ValueError, ZeroDivisionError):
            numbers.append(math.nan)
    if not np.isfinite(numbers).all():
        raise ArgumentError.about(
            name, f"= {value}: give numbers such as 0.25 or 1/4, with commas between several", value=value
        )
    return np.asarray(numbers) if len(numbers) > 1 else numbers[0]
