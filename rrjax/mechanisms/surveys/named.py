"""Survey designs from their names and parameters, as files and flags give them."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.data.number_text import plain
from rrjax.mechanisms import DESIGNS, TWO_SAMPLES, Design, TwoSamples
from rrjax.mechanisms.table import IN_R, TABLE

LEAST_TOLD = 1e-6
"""Smallest |d| of a design from flags or files: a share has a standard error of at least 0.5/(d·√N)."""
ROUNDING = 1e-3
"""Allowed distance from one of the sum of the truth and the probabilities of all other answers."""


def parameters_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a survey design as numbers.

    Args:
        name: Name of a design, a key of `rrjax.mechanisms.DESIGNS` or `TWO_SAMPLES`.
        given: Its parameters: numbers, lists of them, or texts such as "2/3" or "1/2, 1/2". The probabilities of
            answers that are not truthful may be those of all respondents, so that the truth is the remainder to one.

    Returns:
        Floats, and arrays for parameters of several numbers.

    Raises:
        ValueError: A parameter that the design does not have, one that is missing, a value that is no number, or
            several numbers where one is wanted.

    Example:
        >>> parameters_of("forced-response", {"forced": "1/6, 1/6"})
        {'forced': array([0.5, 0.5]), 'truth': 0.6666666666666667}
    """
    entry = TABLE[name]
    known = entry.parameters or ()
    for key in given:
        if key not in known:
            named = f" (RRreg: {IN_R[name]})" if name in IN_R else ""
            raise ArgumentError(f"{name} has no parameter {key!r}; it has {', '.join(known)}{named}", argument=key)
    values = {key: as_numbers(key, value, key in entry.vectors) for key, value in given.items()}
    if name in DESIGNS:
        for key in entry.vectors:
            values |= _with_remainder(key, values)
    for field in dataclasses.fields(cast("Any", DESIGNS.get(name) or TWO_SAMPLES[name])):
        if field.name in known and field.name not in values and field.default is dataclasses.MISSING:
            raise ArgumentError(f"{name} lacks its parameter {field.name!r}", argument=field.name)
    return values


def make_design(name: str, given: Mapping[str, Any], num_categories: int | None = None) -> Design:
    """A survey design from its name and parameters.

    Args:
        name: A key of `rrjax.mechanisms.DESIGNS`.
        given: As in `parameters_of`.
        num_categories: K, for a design whose other parameters leave it open.

    Raises:
        ValueError: As `parameters_of`, parameters that make no design, or one whose answers hardly depend on the
            respondents, or an open K.
    """
    values = parameters_of(name, given)
    if any(field.name == "num_categories" for field in dataclasses.fields(cast("Any", DESIGNS[name]))):
        if num_categories is None:
            raise ArgumentError(f"{name} needs the number of answers", argument="num_categories")
        values["num_categories"] = num_categories
    made = DESIGNS[name](**values)
    if not abs(told := float(made.affine.truth)) >= LEAST_TOLD:
        raise ArgumentError(
            f"with these parameters the answer of {name} depends on its respondent with probability {abs(told):.2g}, "
            f"below {LEAST_TOLD:g}: it says nothing, not even of two billion respondents",
            argument="parameters",
        )
    return made


def make_two_samples(name: str, given: Mapping[str, Any]) -> TwoSamples:
    """As `make_design`, for two samples; refuses parameters that do not identify the shares."""
    made = TWO_SAMPLES[name](**parameters_of(name, given))
    _ = made.yes  # which checks that both shares are identified
    return made


def _with_remainder(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The distribution `name`, and the truth, of probabilities that sum to one with it; empty for all others."""
    total = float(np.sum(values.get(name, 1.0)))
    rest = 1 - total
    if rest > ROUNDING and total > 0 and abs(values.get("truth", rest) - rest) <= ROUNDING:
        return {name: values[name] / total, "truth": values.get("truth", rest)}
    return {}


def as_numbers(name: str, value: Any, several: bool) -> Any:
    """A parameter as a float or, for several numbers, an array; refuses other values."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    numbers = []
    for part in parts:
        try:
            numbers.append(float(Fraction(plain(part.strip())) if isinstance(part, str) else part))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            numbers.append(math.nan)
    if not np.isfinite(numbers).all() or (len(numbers) > 1) is not several:
        wanted = (
            "several numbers such as 0.25 or 1/4, with commas between them"
            if several
            else "one number such as 0.25 or 1/4, with a point for its decimals"
        )
        raise ArgumentError.about(name, f"= {value}: give {wanted}", value=value)
    numbers = [0.0 if abs(number) < sys.float_info.min else number for number in numbers]  # as XLA takes them
    return np.asarray(numbers) if several else numbers[0]
