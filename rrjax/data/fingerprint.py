"""Which labels the categories of a tally have, and in which order; JAX is not imported."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from rrjax.data.errors import ArgumentError


class Fingerprint(str):
    """The labels of K categories in their order, as a digest: a text of 64 hexadecimal digits.

    It is compared and hashed as a text, so that it can be a static field of a pytree at any K. A fingerprint that
    `Fingerprint.of` made has the labels beside it; one that was read from its digits alone has none.

    Attributes:
        labels: A `range` of integers, or a tuple of texts; None where they are not known.

    Example:
        >>> Fingerprint.of(["no", "yes"]) == Fingerprint.of(["yes", "no"])
        False
        >>> Fingerprint.of(["0", "1", "2"]) == Fingerprint.of(range(3))
        True
    """

    labels: range | tuple[str, ...] | None = None

    @classmethod
    def of(cls, labels: Iterable[Any]) -> Fingerprint:
        """Makes one of the labels.

        Args:
            labels: `[K]`, in the order of the categories: a `range`, or numbers or texts.

        Returns:
            The fingerprint. Integers are the texts of their digits.
        """
        known = labels if isinstance(labels, range) and labels.step == 1 else _as_range(tuple(map(str, labels)))
        said = [known.start, known.stop] if isinstance(known, range) else known
        made = cls(hashlib.sha256(json.dumps(said).encode()).hexdigest())
        made.labels = known
        return made


def as_fingerprint(domain: Any) -> Fingerprint | None:
    """A fingerprint as it was given, that of a domain (`rrjax.io.Domain`), or that of labels; None is none.

    Raises:
        ValueError: A text that is none.
    """
    if domain is None or isinstance(domain, Fingerprint):
        return domain
    if isinstance(domain, str):  # as an exported function has it
        if not re.fullmatch("[0-9a-f]{64}", domain):
            message = "domain must be labels, or an rrjax.io.Domain; rrjax.io.read_domain makes one of a text"
            raise ArgumentError(message, argument="domain", value=domain)
        return Fingerprint(domain)
    return getattr(domain, "fingerprint", None) or Fingerprint.of(domain)


def difference(first: str, second: str) -> str:
    """Where the labels of two fingerprints that are not equal differ, for a message."""
    ours, theirs = (getattr(each, "labels", None) for each in (first, second))
    if ours is None or theirs is None:
        return f"their fingerprints are {first[:8]}… and {second[:8]}…"
    if len(ours) != len(theirs):
        return f"one has {len(ours):,} categories and the other {len(theirs):,}"
    place = next(index for index, (a, b) in enumerate(zip(ours, theirs, strict=True)) if str(a) != str(b))
    found = f"category {place} is {str(ours[place])!r} in one and {str(theirs[place])!r} in the other"
    if set(map(str, ours)) == set(map(str, theirs)):
        return f"both have the same labels, in another order: {found}"
    return found


def _as_range(labels: tuple[str, ...]) -> range | tuple[str, ...]:
    """Consecutive integers as a range, so that a list of them has the same fingerprint."""
    try:
        first = int(labels[0])
    except (ValueError, IndexError):
        return labels
    same = all(label == str(number) for number, label in enumerate(labels, start=first))
    return range(first, first + len(labels)) if same else labels
