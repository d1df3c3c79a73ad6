"""Domains: the categories that a report can name, in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.categories import Fingerprint, difference
from rrjax.data.errors import DataError, number
from rrjax.io.database import check_unicode, integer_of

if TYPE_CHECKING:
    from rrjax.io.source import Source

BLANKS = " \t\r\n"
"""Characters that are removed around every value and label, in every format."""
PAIR = " × "
"""Separator of the two labels, or the two names of columns, of a pair."""
MAX_PAIR_LABELS = 2**22
"""Largest number of pairs of two domains, whose labels are listed."""
YES = {"1", "yes", "y", "true", "t", "ja", "j", "oui", "sí", "si", "sì", "sim"}
"""Labels that mean yes, whatever their case: English, German, Dutch, French, Spanish, Italian, Portuguese."""
NO = {"0", "no", "n", "false", "f", "nein", "nee", "non", "não", "nao"}
"""Labels that mean no."""
_MAX_CATEGORIES = 2**31 - 1
"""Largest K: category numbers are int32 throughout the library."""
_INT64 = 2**63


@dataclass(frozen=True)
class Domain:
    """The K categories in order, with a label for each.

    A domain is a range of integers, stored as its two ends, or a list of labels. Use `Domain.range`, `Domain.of`,
    `Domain.product` or `read_domain`.

    Attributes:
        first: First integer of a range, None for listed labels.
        last: Last integer of a range (included), None for listed labels.
        listed: The labels of a listed domain, None for a range.
        factors: The two domains of a domain of pairs, None otherwise.
        sources: The files that the labels were read from.

    Example:
        >>> Domain.range(0, 99).num_categories
        100
        >>> Domain.of(["no", "yes"]).describe()
        "2 labels ('no', 'yes')"
    """

    first: int | None = None
    last: int | None = None
    listed: tuple[str, ...] | None = None
    factors: tuple[Domain, Domain] | None = field(default=None, compare=False)
    sources: tuple[Source, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        """Checks that there are at least two different categories."""
        if self.listed is None:
            _check_range(self.first, self.last)
        elif self.first is not None or self.last is not None:
            raise DataError("A domain is either a range or a list of labels, not both.", argument="listed")
        else:
            _check_labels(self.listed)

    @classmethod
    def range(cls, first: int, last: int) -> Domain:
        """The domain of the integers from `first` to `last`, both included.

        Raises:
            DataError: Fewer than 2 categories, or more than 2**31 - 1.
        """
        return cls(first=index(first), last=index(last))

    @classmethod
    def of(cls, labels: Iterable[str]) -> Domain:
        """The domain of labels in their order; blanks around a label are removed.

        Raises:
            DataError: Fewer than 2 labels, an empty one, a duplicate, or one that is no text.
        """
        return cls(listed=tuple(label.strip(BLANKS) if isinstance(label, str) else label for label in labels))

    @classmethod
    def product(cls, first: Domain, second: Domain) -> Domain:
        """The domain of all pairs of a category of each domain; the second changes fastest.

        Raises:
            DataError: More than 2**22 pairs, or a label with the separator of pairs.

        Example:
            >>> Domain.product(Domain.of(["no", "yes"]), Domain.range(1, 2)).listed
            ('no × 1', 'no × 2', 'yes × 1', 'yes × 2')
        """
        sizes = first.num_categories, second.num_categories
        if sizes[0] * sizes[1] > MAX_PAIR_LABELS:
            pairs = f"{sizes[0]:,} × {sizes[1]:,} pairs of categories"
            message = f"{pairs} are more than {MAX_PAIR_LABELS:,}: coarser categories are needed."
            raise DataError(message, argument="domain")
        labels = [[str(label) for label in domain.labels()] for domain in (first, second)]
        for which, side in zip(("first", "second"), labels, strict=True):
            # Also at an end: a pair that is split at its first PAIR must give the two labels.
            odd = next((place for place, label in enumerate(side, start=1) if PAIR in f" {label} "), None)
            if odd is not None:
                problem = f"holds {PAIR!r}, or an end of it, which separates the labels of a pair: rename it."
                raise DataError(f"Label {odd} of the {which} domain {problem}", row=odd)
        pairs = tuple(f"{one}{PAIR}{other}" for one in labels[0] for other in labels[1])
        return cls(listed=pairs, factors=(first, second), sources=first.sources + second.sources)

    @property
    def num_categories(self) -> int:
        """Number of categories, K."""
        if self.listed is not None:
            return len(self.listed)
        first, last = self.ends
        return last - first + 1

    @property
    def is_range(self) -> bool:
        """Whether the categories are a range of integers."""
        return self.listed is None

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last integer of a range.

        Raises:
            DataError: The domain is a list of labels.
        """
        if self.first is None or self.last is None:
            raise DataError("A list of labels has no first and last integer.")
        return self.first, self.last

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """A digest of the labels in their order, for comparisons of tallies."""
        return Fingerprint.of(self.listed if self.listed is not None else range(self.ends[0], self.ends[1] + 1))

    def has(self, text: str) -> bool:
        """Whether a text is read as one of the categories.

        Example:
            >>> Domain.range(0, 9).has("7.0"), Domain.of(["no", "yes"]).has("?")
            (True, False)
        """
        if self.listed is not None:
            return text in self.listed
        whole = integer_of(text)
        return whole is not None and self.ends[0] <= whole <= self.ends[1]

    @property
    def place_of_yes(self) -> int | None:
        """The category number of yes, if one of two labels is in `YES` and the other in `NO`; else None.

        Example:
            >>> Domain.range(0, 1).place_of_yes, Domain.of(["Oui", "Non"]).place_of_yes, Domain.range(1, 2).place_of_yes
            (1, 0, None)
        """
        if self.num_categories != 2:
            return None
        first, second = (str(label).casefold() for label in self.labels())
        return 0 if first in YES and second in NO else 1 if first in NO and second in YES else None

    def labels(self) -> np.ndarray:
        """The labels, `[K]`: int64 for a range, variable-length strings of NumPy for a list."""
        if self.listed is not None:
            return np.array(self.listed, dtype=np.dtypes.StringDType())
        first, last = self.ends
        return np.arange(first, last + 1, dtype=np.int64)

    def describe(self) -> str:
        """A short text on the domain, for messages and headings.

        Example:
            >>> Domain.range(0, 1484705).describe()
            '0:1484705 (1,484,706 integers)'
        """
        if self.listed is None:
            return f"{self.first}:{self.last} ({self.num_categories:,} integers)"
        shown = ", ".join(repr(label) for label in self.listed[:3])
        more = ", …" if len(self.listed) > 3 else ""
        return f"{len(self.listed):,} {'labels' if self.factors is None else 'pairs'} ({shown}{more})"

    def difference(self, other: Domain, name: str, other_name: str) -> str:
        """A text on the first difference between two domains, with the names of their owners.

        Example:
            >>> Domain.of(["no", "yes"]).difference(Domain.of(["no", "oui"]), "a.csv", "b.csv")
            "'oui' is a category of b.csv and not of a.csv"
        """
        if self.num_categories != other.num_categories or self.fingerprint == other.fingerprint:
            return f"{name} has {self.describe()}, {other_name} has {other.describe()}"
        return difference(self.fingerprint, other.fingerprint, name, other_name)

    def to_metadata(self) -> dict[str, Any]:
        """A dictionary for JSON: the two ends of a range, the labels of a list, or the two domains of pairs."""
        if self.factors is not None:
            return {"factors": [factor.to_metadata() for factor in self.factors]}
        if self.listed is None:
            return {"first": self.first, "last": self.last}
        return {"labels": list(self.listed)}

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any]) -> Domain:
        """The domain from a dictionary of `to_metadata`.

        Raises:
            DataError: The dictionary is not one of a domain.
        """
        match metadata:
            case {"first": first, "last": last} if len(metadata) == 2:
                return cls(first=first, last=last)
            case {"labels": list() as labels} if len(metadata) == 1:
                return cls.of(labels)
            case {"factors": [dict() as first, dict() as second]} if len(metadata) == 1:
                if "factors" not in {**first, **second}:
                    return cls.product(cls.from_metadata(first), cls.from_metadata(second))
        raise DataError(f"A domain was expected, not {str(metadata)[:80]}.", argument="domain")


def _check_range(first: object, last: object) -> None:
    if type(first) is not int or type(last) is not int:
        raise _invalid(f"The ends of a range must be integers, not {first!r} and {last!r}.")
    num_categories = last - first + 1
    if num_categories < 2:
        hint = f" Did you mean {last}:{first}?" if last < first else ""
        raise _invalid(
            f"The range {first}:{last} has {number(max(num_categories, 0), 'category', 'categories')}; "
            f"randomized response needs at least 2.{hint}"
        )
    if num_categories > _MAX_CATEGORIES or first < -_INT64 or last >= _INT64:
        limits = f"at most {_MAX_CATEGORIES:,} categories, within 64-bit integers"
        raise _invalid(f"The range {first}:{last} is too large: {limits}.")


def _check_labels(labels: tuple[str, ...]) -> None:
    seen: dict[str, int] = {}
    for place, label in enumerate(labels, start=1):
        if not isinstance(label, str):
            raise _invalid(f"Label {place} of the domain is no text but {type(label).__name__}.", place)
        if not label:
            raise _invalid(f"Label {place} of the domain is empty; remove it.", place)
        check_unicode(label)
        if label in seen:
            # By number, not by name: the file may have confidential values instead of labels.
            raise _invalid(f"Label {place} of the domain is the same as label {seen[label]}; remove one.", place)
        seen[label] = place
    if len(labels) < 2:
        raise _invalid(
            f"The domain has {number(len(labels), 'label', 'labels')}; randomized response needs at least 2: list "
            "every answer that was possible."
        )


def _invalid(message: str, row: int | None = None) -> DataError:
    return DataError(message, argument="domain", row=row)
