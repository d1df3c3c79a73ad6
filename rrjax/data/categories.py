"""Categories: their number K, their numbers 0 … K − 1, and a fingerprint of their labels; JAX is not imported."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from rrjax.data.errors import ArgumentError

Values = TypeVar("Values", bound=Any)


def is_integer(value: Any, low: int, high: int) -> bool:
    """Whether a value is an integer (no boolean) from `low` to `high`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(low <= value <= high)


def check_num_categories(num_categories: int) -> None:
    """Raises `ValueError` unless K is an integer, at least 2, that an int32 holds."""
    if is_integer(num_categories, 2, 2**31 - 1):
        return
    number = isinstance(num_categories, int | np.integer) and not isinstance(num_categories, bool)
    wanted = f"from 2 to 2147483647, got {num_categories}" if number else f"an integer, got {num_categories!r}"
    raise ArgumentError(f"num_categories must be {wanted}", argument="num_categories", value=num_categories)


def as_integer(given: Any, name: str, low: int, high: int = 2**31 - 1, high_formula: str = "") -> int:
    """A static parameter as a Python integer; `ValueError` unless it is from `low` to `high`."""
    if not is_integer(given, low, high):
        raise ArgumentError(
            f"{name} must be an integer from {low} to {high_formula}{high:,}, got {given!r}", argument=name, value=given
        )
    return int(given)


def check_epsilon(epsilon: Any, name: str = "epsilon") -> None:
    """Raises `ValueError` for an ε that is not a positive number; the values of an array are not checked.

    An array may be traced: results for invalid ε are NaN.
    """
    if hasattr(epsilon, "ndim") and not isinstance(epsilon, np.generic):
        return
    if not isinstance(epsilon, int | float | np.number) or not epsilon > 0:
        raise ArgumentError(f"{name} must be a positive number of nats, got {epsilon!r}", argument=name, value=epsilon)


def check_integers(values: Values, num_categories: int, name: str) -> Values:
    """Category numbers in at least 32 bits; `ValueError` unless their dtype is an integer dtype."""
    if values.size == 0 and values.dtype == np.float64:  # the dtype of an empty list
        return values.astype(np.int32)
    if values.dtype.kind not in "iu":
        raise ArgumentError(
            f"{name} must be integers from 0 to {num_categories - 1}, got dtype {values.dtype}; "
            "labels live in rrjax.io and on the command line",
            argument=name,
        )
    return values.astype(np.int32) if values.dtype.itemsize < 4 else values


def check_in_domain(values: Any, num_categories: int, name: str) -> None:
    """Raises `ArgumentError` for a value outside 0 … K − 1 in a NumPy or JAX array.

    Logs keep messages, so the message has the position of a value, and the value itself only if it is a randomized
    report.
    """
    if values.size == 0 or (int(values.min()) >= 0 and int(values.max()) < num_categories):
        return
    flat = np.asarray(values).ravel()
    first = int(np.argmax((flat < 0) | (flat >= num_categories)))
    shown = int(flat[first]) if name == "reports" else None
    raise ArgumentError(
        f"{name} must be from 0 to {num_categories - 1}, got {'another number' if shown is None else shown} at "
        f"position {first}",
        argument=name,
        row=first,
        value=shown,
    )


class Fingerprint(str):
    """A digest of the labels of K categories in their order: a text of 64 hexadecimal digits.

    It is compared and hashed as a text, so that it can be a static field of a pytree at any K. A fingerprint from
    `Fingerprint.of` also has the labels; a fingerprint from its digits alone has none.

    Attributes:
        labels: A `range` of integers, or a tuple of texts; None if unknown.

    Example:
        >>> Fingerprint.of(["no", "yes"]) == Fingerprint.of(["yes", "no"])
        False
        >>> Fingerprint.of(["0", "1", "2"]) == Fingerprint.of(range(3))
        True
    """

    labels: range | tuple[str, ...] | None = None

    @classmethod
    def of(cls, labels: Iterable[Any]) -> Fingerprint:
        """The fingerprint of labels `[K]`, a `range`, numbers or texts; integers count as the texts of their digits."""
        known = labels if isinstance(labels, range) and labels.step == 1 else _as_range(tuple(map(str, labels)))
        hashed = [known.start, known.stop] if isinstance(known, range) else known
        made = cls(hashlib.sha256(json.dumps(hashed).encode()).hexdigest())
        made.labels = known
        return made


def as_fingerprint(domain: Any) -> Fingerprint | None:
    """The fingerprint of a domain (`rrjax.io.domain.Domain`) or of labels; a fingerprint or None unchanged."""
    if domain is None or isinstance(domain, Fingerprint):
        return domain
    if isinstance(domain, str):  # the form in an exported function
        if not re.fullmatch("[0-9a-f]{64}", domain):
            message = "domain must be labels or a domain, got a text; rrjax.io.read_domain makes a domain of a text"
            raise ArgumentError(message, argument="domain", value=domain)
        return Fingerprint(domain)
    return getattr(domain, "fingerprint", None) or Fingerprint.of(domain)


def difference(first: str, second: str, name: str = "one", other_name: str = "the other") -> str:
    """A text on the first difference between the labels of two fingerprints, with the names of their owners."""
    labels, others = (getattr(each, "labels", None) for each in (first, second))
    if labels is None or others is None:
        return f"their fingerprints are {first[:8]}… and {second[:8]}…"
    if len(labels) != len(others):
        return f"{name} has {len(labels):,} categories and {other_name} {len(others):,}"
    labels, others = (list(map(str, each)) for each in (labels, others))
    new = sorted(set(others) - set(labels))
    if new:
        return f"{new[0]!r} is a category of {other_name} and not of {name}"
    place = next(index for index, (a, b) in enumerate(zip(labels, others, strict=True)) if a != b)
    where = f"category {place} is {labels[place]!r} in {name} and {others[place]!r} in {other_name}"
    return f"both have the same labels, in another order: {where}"


def _as_range(labels: tuple[str, ...]) -> range | tuple[str, ...]:
    """Consecutive integers as a range, so that a list of them has the same fingerprint."""
    try:
        first = int(labels[0])
    except (ValueError, IndexError):
        return labels
    consecutive = all(label == str(number) for number, label in enumerate(labels, start=first))
    return range(first, first + len(labels)) if consecutive else labels
