"""What `Study` accepts, and what it says to the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rrjax.errors import StudyError


def named(given: Any, known: Mapping[str, Any], kind: str, *, dash: str = "_") -> dict[str, Any]:
    """Label → function, of names, functions, or a mapping of labels to either; `dash` is what known names have."""

    def settled(name: str) -> str:
        return name.replace("-", dash).replace("_", dash)

    if isinstance(given, str) or callable(given) or not isinstance(given, Iterable):
        given = [given]
    if not isinstance(given, Mapping):
        labels = [settled(value) if isinstance(value, str) else label_of(value, kind) for value in given]
        if len(set(labels)) < len(labels):
            raise StudyError(
                f"two {kind}s have one name: {', '.join(labels)}; name each once, or give a mapping of labels to them"
            )
        given = dict(zip(labels, given, strict=True))
    if not given:
        raise StudyError(f"at least one {kind} is needed")
    found = {}
    for label, value in as_texts(given, kind).items():
        if isinstance(value, str):
            name = settled(value)
            if name not in known:
                raise StudyError(f"unknown {kind} {value!r}; known are {', '.join(known)}, or give a function")
            if label != name and (label in known or known[name] is None):
                raise StudyError(f"{kind} {name!r} keeps its name, and is not to be called {label!r}")
            value = known[name]
        elif not callable(value) and not (value is None and label in known):  # a metric without a function of its own
            raise StudyError(f"{kind} {label!r} must be a name or a function, got {value!r}")
        elif label in known and value is not known[label]:
            raise StudyError(f"{kind} {label!r} is a name of its own; call yours something else")
        found[label] = value
    return found


def as_texts(given: Mapping[Any, Any], kind: str) -> dict[str, Any]:
    """The mapping with its labels as texts, of which no two may be the same."""
    found = {str(label): value for label, value in given.items()}
    if len(found) < len(given):
        raise StudyError(f"two {kind}s have one label: {', '.join(repr(label) for label in given)}")
    return found


_TAKEN = (
    "estimator",
    "mechanism",
    "num_categories",
    "num_users",
    "epsilon",
    "zipf",
    "distribution",
    "versus",
    "quantile",
    "seed",
)
_SUFFIXES = ("_se", "_difference", "_difference_se", "_quantile", "_seeds")


def variables(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics whose labels can be variables of a dataset, beside those made of them."""
    for label in metrics:
        if not label.isidentifier() or label in _TAKEN or label.endswith(_SUFFIXES):
            raise StudyError(
                f"metric {label!r} cannot be a variable of the result: a label is made of letters, digits and _, "
                f"is none of {', '.join(_TAKEN)}, and does not end in {', '.join(_SUFFIXES)}"
            )
    return metrics


def label_of(function: Any, kind: str) -> str:
    """What a function without a label is called."""
    if not callable(function):
        raise StudyError(f"{kind} must be a name or a function, got {function!r}")
    name = getattr(inspect.unwrap(getattr(function, "func", function)), "__name__", None)
    if name is None or name == "<lambda>":
        raise StudyError(f"{kind} without a name: give a mapping, such as {{'mine': function}}")
    return name


def categories_of(distributions: Mapping[str, Any], num_categories: Any, what: str) -> Any:
    """K of the arrays among the distributions (or users); `num_categories` as it is where there are none."""
    if not isinstance(distributions, Mapping) or not distributions:
        raise StudyError(f"{what} must map labels to arrays [K], at least one")
    try:
        shapes = {name: np.shape(value) for name, value in distributions.items() if not callable(value)}
    except ValueError as error:
        raise StudyError(f"{what} must be arrays [K]: {error}") from error
    if not shapes:
        return num_categories
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        found = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
        raise StudyError(f"{what} must be arrays [K] of one length, got {found}; study each K alone")
    size = next(iter(shapes.values()))[0]
    if num_categories is not None and tuple(np.atleast_1d(num_categories).tolist()) != (size,):
        raise StudyError(f"{what} have K = {size}, num_categories says {num_categories}")
    return size


def several(name: str, value: Any, settle: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """One value or several as a tuple, each settled by `settle(name, value)`."""
    try:
        given = np.atleast_1d(np.asarray(value)).tolist()
    except ValueError as error:
        raise StudyError(f"{name} must be one value or a list of values, got {value!r}") from error
    values = tuple(settle(name, one) for one in given)
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


def share(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise StudyError(f"{name} must lie in [0, 1], got {value!r}")
    return float(value)
