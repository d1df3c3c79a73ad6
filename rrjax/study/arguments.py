"""What `Study` accepts, and what it says to the rest."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rrjax.data.errors import StudyError


def underscored(name: str) -> str:
    """A name as the catalogue has it, whatever the case and the dashes."""
    return name.lower().replace("-", "_")


def named(
    given: Any, known: Mapping[str, Any], argument: str, settled: Callable[[str], str] = underscored
) -> dict[str, Any]:
    """Label → function, of names, functions, or a mapping of labels to either; `settled` spells names as `known`."""
    kind = argument.removesuffix("s")
    if isinstance(given, str) or callable(given) or not isinstance(given, Iterable):
        given = [given]
    if not isinstance(given, Mapping):
        given = list(given)
        labels = [settled(value) if isinstance(value, str) else label_of(value, argument) for value in given]
        if len(set(labels)) < len(labels):
            raise StudyError(
                f"two {kind}s have one name: {', '.join(labels)}; name each once, or give a mapping of labels to them",
                argument=argument,
                value=given,
            )
        given = dict(zip(labels, given, strict=True))
    if not given:
        raise StudyError(f"at least one {kind} is needed", argument=argument, value=given)
    found = {}
    for label, value in as_texts(given, argument).items():
        if isinstance(value, str):
            name = settled(value)
            if name not in known:
                raise StudyError(
                    f"unknown {kind} {value!r}; known are {', '.join(known)}, or give a function",
                    argument=argument,
                    value=value,
                )
            if label != name and (label in known or known[name] is None):
                raise StudyError(
                    f"{kind} {name!r} keeps its name, and is not to be called {label!r}", argument=argument, value=label
                )
            value = known[name]
        elif not callable(value) and not (value is None and label in known):  # a metric without a function of its own
            raise StudyError(
                f"{kind} {label!r} must be a name or a function, got {value!r}", argument=argument, value=value
            )
        elif label in known and value is not known[label]:
            raise StudyError(
                f"{kind} {label!r} is a name of its own; call yours something else", argument=argument, value=label
            )
        found[label] = value
    return found


def as_texts(given: Mapping[Any, Any], argument: str) -> dict[str, Any]:
    """The mapping with its labels as texts, of which no two may be the same."""
    found = {str(label): value for label, value in given.items()}
    if len(found) < len(given):
        raise StudyError(
            f"{argument}: two have one label: {', '.join(repr(label) for label in given)}",
            argument=argument,
            value=list(given),
        )
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
                f"is none of {', '.join(_TAKEN)}, and does not end in {', '.join(_SUFFIXES)}",
                argument="metrics",
                value=label,
            )
    return metrics


def label_of(function: Any, argument: str) -> str:
    """What a function without a label is called."""
    kind = argument.removesuffix("s")
    if not callable(function):
        raise StudyError(f"{kind} must be a name or a function, got {function!r}", argument=argument, value=function)
    name = getattr(inspect.unwrap(getattr(function, "func", function)), "__name__", None)
    if name is None or name == "<lambda>":
        raise StudyError(
            f"{kind} without a name: give a mapping, such as {{'mine': function}}", argument=argument, value=function
        )
    return name


def categories_of(distributions: Mapping[str, Any], num_categories: Any, what: str) -> Any:
    """K of the arrays among the distributions (or users); `num_categories` as it is where there are none."""
    if not isinstance(distributions, Mapping) or not distributions:
        raise StudyError(f"{what} must map labels to arrays [K], at least one", argument=what, value=distributions)
    try:
        shapes = {name: np.shape(value) for name, value in distributions.items() if not callable(value)}
    except ValueError as error:
        raise StudyError(f"{what} must be arrays [K]: {error}", argument=what) from error
    if not shapes:
        return num_categories
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        found = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
        raise StudyError(f"{what} must be arrays [K] of one length, got {found}; study each K alone", argument=what)
    size = next(iter(shapes.values()))[0]
    if num_categories is not None and tuple(np.atleast_1d(num_categories).tolist()) != (size,):
        raise StudyError(
            f"{what} have K = {size}, num_categories says {num_categories}",
            argument="num_categories",
            value=num_categories,
        )
    return size


def several(name: str, value: Any, settle: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """One value or several as a tuple, each settled by `settle(name, value)`."""
    try:
        given = np.atleast_1d(np.asarray(value)).tolist()
    except ValueError as error:
        raise StudyError(
            f"{name} must be one value or a list of values, got {value!r}", argument=name, value=value
        ) from error
    values = tuple(settle(name, one) for one in given)
    if not values:
        raise StudyError(f"{name} is empty: the grid has no configurations", argument=name, value=value)
    if len(set(values)) < len(values):
        raise StudyError(f"{name} names a value twice: {', '.join(map(str, values))}", argument=name, value=value)
    return values


def integer(name: str, value: Any, low: int = 1, high: int = 2**31 - 1) -> int:
    """An integer in range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise StudyError(f"{name} must be an integer from {low} to {high}, got {value!r}", argument=name, value=value)
    return int(value)


def positive(name: str, value: Any) -> float:
    """A positive number."""
    return _number(name, value, "be a positive number", lambda x: x > 0)


def exponent(name: str, value: Any) -> float:
    """A Zipf exponent."""
    return _number(name, value, "be a number from 0 to infinity", lambda x: x >= 0)


def share(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    return _number(name, value, "lie in [0, 1]", lambda x: 0 <= x <= 1)


def _number(name: str, value: Any, must: str, allowed: Callable[[float], bool]) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:  # an integer beyond all floats
        number = math.nan
    if not allowed(number):
        raise StudyError(f"{name} must {must}, got {value!r}", argument=name, value=value)
    return number


def check_run(
    *, seed: Any = 0, batch_size: Any = None, keep_seeds: Any = False, quantiles: Any = ()
) -> tuple[float, ...]:
    """Checks what a file may say of a run, beside its study; returns the quantiles as a tuple."""
    integer("seed", seed, 0, 2**63 - 1)  # what NetCDF holds
    if batch_size is not None:
        integer("batch_size", batch_size)
    if not isinstance(keep_seeds, bool):
        raise StudyError(
            f"keep_seeds must be true or false, got {keep_seeds!r}", argument="keep_seeds", value=keep_seeds
        )
    none = isinstance(quantiles, list | tuple | np.ndarray) and len(quantiles) == 0
    return () if none else several("quantiles", quantiles, share)
