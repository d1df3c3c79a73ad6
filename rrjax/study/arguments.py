"""What `Study` accepts, and what it says to the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rrjax.study.errors import StudyError


def named(given: Any, known: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Label → function, of names, functions, or a mapping of labels to either."""
    if isinstance(given, str) or callable(given):
        given = [given]
    if not isinstance(given, Mapping):
        labels = [value.replace("-", "_") if isinstance(value, str) else label_of(value, kind) for value in given]
        if len(set(labels)) < len(labels):
            raise StudyError(f"two {kind}s have one name: {', '.join(labels)}; give a mapping of labels to them")
        given = dict(zip(labels, given, strict=True))
    if not given:
        raise StudyError(f"at least one {kind} is needed")
    found = {}
    for label, value in given.items():
        if isinstance(value, str):
            name = value.replace("-", "_")
            if name not in known:
                raise StudyError(f"unknown {kind} {value!r}; known are {', '.join(known)}, or give a function")
            value = known[name]
        elif not callable(value) and not (value is None and label in known):  # a metric without a function of its own
            raise StudyError(f"{kind} {label!r} must be a name or a function, got {value!r}")
        elif label in known and value is not known[label]:
            raise StudyError(f"{kind} {label!r} is a name of its own; call yours something else")
        found[str(label)] = value
    return found


def label_of(function: Any, kind: str) -> str:
    """What a function without a label is called."""
    name = getattr(inspect.unwrap(getattr(function, "func", function)), "__name__", None)
    if name is None or name == "<lambda>":
        raise StudyError(f"an {kind} without a name: give a mapping, such as {{'mine': function}}")
    return name


def categories_of(distributions: Mapping[str, Any], num_categories: Any) -> Any:
    """K of the arrays among the distributions; `num_categories` as it is where there are none."""
    if not isinstance(distributions, Mapping) or not distributions:
        raise StudyError("distributions must map labels to arrays [K], at least one")
    shapes = {name: np.shape(value) for name, value in distributions.items() if not callable(value)}
    if not shapes:
        return num_categories
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        found = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
        raise StudyError(f"distributions must be arrays [K] of one length, got {found}; study each K alone")
    size = next(iter(shapes.values()))[0]
    if num_categories is not None and tuple(np.atleast_1d(num_categories).tolist()) != (size,):
        raise StudyError(f"distributions have K = {size}, num_categories says {num_categories}")
    return size


def several(name: str, value: Any, settle: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """One value or several as a tuple, each settled by `settle(name, value)`."""
    values = tuple(settle(name, one) for one in np.atleast_1d(np.asarray(value)).tolist())
    if not values:
        raise StudyError(f"{name} is empty: the grid has no configurations")
    if len(set(values)) < len(values):
        raise StudyError(f"{name} names a value twice: {', '.join(map(str, values))}")
    return values


def integer(name: str, value: Any, low: int = 1, high: int = 2**31 - 1) -> int:
    """An integer in range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise StudyError(f"{name} must be an integer from {low} to {high}, got {value!r}")
    return int(value)


def positive(name: str, value: Any) -> float:
    """A positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise StudyError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def exponent(name: str, value: Any) -> float:
    """A Zipf exponent."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise StudyError(f"{name} must be a number from 0 to infinity, got {value!r}")
    return float(value)
