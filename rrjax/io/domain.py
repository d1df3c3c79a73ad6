"""The categories a report can name, in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import Any, Self

import numpy as np

from rrjax.data.categories import Fingerprint
from rrjax.data.errors import DataError, number

BLANKS = " \t\r\n"
"""Around a value or a label they are no part of it, whatever the format of the file."""
PAIR = " × "
"""Between the two labels, or the two names of columns, of a pair."""
_MAX_PAIRS = 2**22
_MAX_CATEGORIES = 2**31 - 1
"""Category numbers are int32 throughout the library."""
_INT64 = 2**63


@dataclass(frozen=True)
class Domain:
    """The K categories in order, and a label for each.

    Either a range of integers, kept as its two ends however large it is, or a list of labels. Make one with
    `Domain.range`, `Domain.of`, `Domain.product` or `read_domain`.

    Attributes:
        first: First integer of a range, None for listed labels.
        last: Last integer of a range (included), None for listed labels.
        listed: The labels of a listed domain, None for a range.
        factors: The two domains whose pairs these are, None where they are no pairs.

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

    def __post_init__(self) -> None:
        """Refuses what is not a domain of at least two different categories."""
        if self.listed is None:
            _check_range(self.first, self.last)
        elif self.first is not None or self.last is not None:
            raise DataError("A domain is either a range or a list of labels, not both.", argument="listed")
        else:
            _check_labels(self.listed)

    @classmethod
    def range(cls, first: int, last: int) -> Self:
        """The integers from `first` to `last`, both included, as labels of `last - first + 1` categories.

        Raises:
            DataError: Fewer than 2 categories, or more than 2**31 - 1.
        """
        return cls(first=index(first), last=index(last))

    @classmethod
    def of(cls, labels: Iterable[str]) -> Self:
        """The given labels, different and not empty, in the given order; blanks around one are no part of it.

        Raises:
            DataError: Fewer than 2 labels, an empty one, a duplicate, or one that is no text.
        """
        return cls(listed=tuple(label.strip(BLANKS) if isinstance(label, str) else label for label in labels))

    @classmethod
    def product(cls, first: Domain, second: Domain) -> Self:
        """All pairs of a category of the first domain and one of the second, the second changing fastest.

        Raises:
            DataError: More than 2**22 pairs, or labels that hold what stands between the two labels of a pair.

        Example:
            >>> Domain.product(Domain.of(["no", "yes"]), Domain.range(1, 2)).listed
            ('no × 1', 'no × 2', 'yes × 1', 'yes × 2')
        """
        sizes = first.num_categories, second.num_categories
        if sizes[0] * sizes[1] > _MAX_PAIRS:
            raise DataError(
                f"{sizes[0]:,} × {sizes[1]:,} pairs of categories are more than {_MAX_PAIRS:,}: coarser categories are "
                "needed.",
                argument="domain",
            )
        labels = [[str(label) for label in domain.labels()] for domain in (first, second)]
        for which, side in zip(("first", "second"), labels, strict=True):
            # At an end too: what is cut at its first PAIR must be the two again.
            odd = next((place for place, label in enumerate(side, start=1) if PAIR in f" {label} "), None)
            if odd is not None:
                raise DataError(
                    f"Label {odd} of the {which} domain holds {PAIR!r}, or an end of it, which stands between the "
                    "labels of a pair: rename it.",
                    row=odd,
                )
        return cls(
            listed=tuple(f"{one}{PAIR}{other}" for one in labels[0] for other in labels[1]), factors=(first, second)
        )

    @property
    def num_categories(self) -> int:
        """The number of categories, K."""
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
        """What tells a tally of these labels from one of others, or of the same in another order."""
        return Fingerprint.of(self.listed if self.listed is not None else range(self.ends[0], self.ends[1] + 1))

    def labels(self) -> np.ndarray:
        """The labels of all categories, `[K]`: int64 for a range, NumPy's variable-length strings for listed ones."""
        if self.listed is not None:
            return np.array(self.listed, dtype=np.dtypes.StringDType())
        first, last = self.ends
        return np.arange(first, last + 1, dtype=np.int64)

    def describe(self) -> str:
        """The domain in a few words, for messages and headings.

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
        """Where two domains that are not equal differ, for a message.

        Args:
            other: The other domain.
            name: What to call whose domain this is.
            other_name: What to call whose domain the other is.

        Example:
            >>> Domain.of(["no", "yes"]).difference(Domain.of(["no", "oui"]), "a.csv", "b.csv")
            "'oui' is a category of b.csv and not of a.csv"
        """
        first, second = ([str(label) for label in domain.labels()] for domain in (self, other))
        if len(first) != len(second) or first == second:  # integers, and the same as labels
            return f"{name} has {self.describe()}, {other_name} has {other.describe()}"
        only = sorted(set(second) - set(first))
        if only:
            return f"{only[0]!r} is a category of {other_name} and not of {name}"
        place = next(index for index, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        return (
            f"{name} and {other_name} have the same labels in another order (at place {place + 1}: {first[place]!r} "
            f"and {second[place]!r})"
        )

    def to_metadata(self) -> dict[str, Any]:
        """The domain as a JSON-able dictionary; a range stays two numbers, pairs stay their two domains."""
        if self.factors is not None:
            return {"factors": [factor.to_metadata() for factor in self.factors]}
        if self.listed is None:
            return {"first": self.first, "last": self.last}
        return {"labels": list(self.listed)}

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any]) -> Self:
        """The domain that `to_metadata` described.

        Raises:
            DataError: The dictionary does not describe a domain.
        """
        factors = metadata.get("factors")
        if (
            set(metadata) == {"factors"}
            and isinstance(factors, list)
            and len(factors) == 2
            and all(isinstance(factor, dict) and "factors" not in factor for factor in factors)
        ):
            return cls.product(*(cls.from_metadata(factor) for factor in factors))
        if set(metadata) not in ({"first", "last"}, {"labels"}):
            raise DataError(f"A domain was expected, not {str(metadata)[:80]}.", argument="domain")
        if "labels" not in metadata:
            return cls(first=metadata["first"], last=metadata["last"])
        if not isinstance(metadata["labels"], list):
            raise DataError("The labels of a domain must be a list.", argument="domain")
        return cls.of(metadata["labels"])


def _check_range(first: object, last: object) -> None:
    if type(first) is not int or type(last) is not int:
        raise DataError(f"The ends of a range must be integers, not {first!r} and {last!r}.", argument="domain")
    num_categories = last - first + 1
    if num_categories < 2:
        hint = f" Did you mean {last}:{first}?" if last < first else ""
        raise DataError(
            f"The range {first}:{last} has {number(max(num_categories, 0), 'category', 'categories')}; "
            f"randomized response needs at least 2.{hint}",
            argument="domain",
        )
    if num_categories > _MAX_CATEGORIES or first < -_INT64 or last >= _INT64:
        raise DataError(
            f"The range {first}:{last} is too large: at most {_MAX_CATEGORIES:,} categories, within 64-bit integers.",
            argument="domain",
        )


def _check_labels(labels: tuple[str, ...]) -> None:
    seen: dict[str, int] = {}
    for position, label in enumerate(labels, start=1):
        if not isinstance(label, str):
            raise DataError(
                f"Label {position} of the domain is no text but {type(label).__name__}.",
                row=position,
                argument="domain",
            )
        if not label:
            raise DataError(f"Label {position} of the domain is empty; remove it.", row=position, argument="domain")
        if label in seen:
            # By number, not by name: what was taken for a file of labels may be one of values.
            raise DataError(
                f"Label {position} of the domain is the same as label {seen[label]}; remove one.",
                row=position,
                argument="domain",
            )
        seen[label] = position
    if len(labels) < 2:
        raise DataError(
            f"The domain has {number(len(labels), 'label', 'labels')}; randomized response "
            "needs at least 2: list every answer that was possible.",
            argument="domain",
        )
