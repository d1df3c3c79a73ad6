"""What is read: counts, values, and counts of pairs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rrjax.io.domain import Domain
from rrjax.io.metadata import Metadata


@dataclass(frozen=True)
class CountedReports:
    """How often each category of a domain was reported.

    Attributes:
        counts: int64 `[K]`, reports per category.
        domain: The K categories.
        column: Name of the column that was read.
        num_rows: Reports read, those without an answer included: `counts.sum() + num_missing`.
        num_missing: Reports without an answer, left out of the counts.
        domain_from_data: Whether the domain is only what happened to be in the data. Categories that nobody reported
            are then unknown, which biases every estimate: K is too small.
        metadata: What the Parquet files say about their collection, where rrjax wrote them.
        missing: How many of the missing reports came as which value; "" is an empty cell or null.
        num_padded: Reports of a range that are written with leading zeros, such as 007, which counts as 7.
    """

    counts: np.ndarray
    domain: Domain
    column: str
    num_rows: int
    num_missing: int
    domain_from_data: bool
    metadata: Metadata | None = None
    missing: dict[str, int] = field(default_factory=dict)
    num_padded: int = 0


@dataclass(frozen=True)
class Values:
    """The category number of every row, in the order of the files.

    Attributes:
        indices: int32 `[N]`, 0-based category numbers; rows without an answer are left out.
        domain: The K categories.
        column: Name of the column that was read.
        num_missing: Rows without an answer.
        domain_from_data: Whether the domain is only what happened to be in the data.
        num_padded: Values of a range that are written with leading zeros, such as 007, which is taken for 7.
        present: Which rows of the files have an answer, booleans `[num_missing + N]`; None where all do.
    """

    indices: np.ndarray
    domain: Domain
    column: str
    num_missing: int
    domain_from_data: bool
    num_padded: int = 0
    present: np.ndarray | None = None


@dataclass(frozen=True)
class Pairs:
    """How often each pair of reports came from one row.

    Attributes:
        counts: int64 `[K, L]`.
        domains: The K categories of the first column and the L of the second.
        columns: Their names.
        num_rows: Rows read.
        num_missing: Rows without an answer in one of the columns, or both; they are left out.
        from_data: Which of the domains are only what happened to be in the data.
    """

    counts: np.ndarray
    domains: tuple[Domain, Domain]
    columns: tuple[str, str]
    num_rows: int
    num_missing: int
    from_data: tuple[bool, bool] = (False, False)
