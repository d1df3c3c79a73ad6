"""Numbers in files: values in bins of a range, and counts of reports of numbers with their mechanism."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import DataError, number, reworded
from rrjax.data.number_text import plain
from rrjax.io.database import has_no_answer
from rrjax.io.domain import Domain
from rrjax.io.metadata import MOST_NUMBER, Metadata
from rrjax.io.read import as_source, check_missing, count_reports
from rrjax.io.rows import Values, numbers_of, thousands_error
from rrjax.io.scan import error_at, scanning
from rrjax.io.source import Source
from rrjax.io.tallies import count_numbers, mechanism_of
from rrjax.mechanisms.table import TABLE

if TYPE_CHECKING:
    from rrjax.mechanisms import DiscreteSquareWave, Geometric


@dataclass(frozen=True)
class Bins:
    """Bins of equal width, in order; a number on an edge is in the bin above it, the largest one in the last bin.

    Attributes:
        low: Least number.
        high: Largest number.
        num_bins: K.

    Raises:
        DataError: Numbers that are not finite, not in order or beyond 1e300, or fewer than 2 bins.

    Example:
        >>> Bins(0, 100, 4).edges.tolist()
        [0.0, 25.0, 50.0, 75.0, 100.0]
    """

    low: float
    high: float
    num_bins: int

    def __post_init__(self) -> None:
        """Checks that there are at least two bins."""
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            hint = f" Did you mean {self.high:g},{self.low:g}?" if self.high < self.low else ""
            problem = f"The range {self.low:g},{self.high:g} must be two numbers, the smaller one first.{hint}"
            raise DataError(problem, argument="range")
        if max(-self.low, self.high) > MOST_NUMBER:
            problem = f"The range {self.low:g},{self.high:g} is too wide: numbers may be from -1e300 to 1e300."
            raise DataError(problem, argument="range")
        if self.num_bins < 2:
            message = f"There must be at least 2 bins, and {number(self.num_bins, 'bin was', 'bins were')} asked for."
            raise DataError(message, argument="bins", value=self.num_bins)

    @property
    def edges(self) -> np.ndarray:
        """The K + 1 edges."""
        low, width = Fraction(self.low), Fraction(self.high) - Fraction(self.low)
        return np.asarray([float(low + width * place / self.num_bins) for place in range(self.num_bins + 1)])

    def has(self, text: str) -> bool:
        """Whether a text is a number of the range."""
        try:
            return self.low <= float(plain(text)) <= self.high
        except ValueError:
            return False

    def domain(self) -> Domain:
        """The domain of the bins; labels are such as "0 to 25"."""
        edges = [f"{edge:.12g}" for edge in self.edges]
        try:
            return Domain.of(f"{low} to {high}" for low, high in itertools.pairwise(edges))
        except DataError as error:
            message = f"The range {self.low:g},{self.high:g} is too narrow for {self.num_bins:,} bins."
            raise reworded(error, message, argument="bins") from error


def read_bins(source: Source | str, bins: Bins) -> Values:
    """The bin of the number in every row, as `read_values`.

    Raises:
        DataError: Files that cannot be read, a column that is missing or has no value, and numbers outside the range or
            other texts: the first one by its row, and not shown.
    """
    source = as_source(source).confidential()
    with scanning(source) as chosen:
        check_missing(chosen, bins.has, numbers=True)
        numbers, absent, unsure, thousands = numbers_of(
            chosen, has_no_answer(chosen.kind, source.missing, numbers=True)
        )
        present = ~absent
        wrong = present & ~((numbers >= bins.low) & (numbers <= bins.high))
        if wrong.any():
            first = int(np.argmax(wrong))
            shown = "the value" if chosen.confidential else repr(float(numbers[first]))
            problem = (
                f"{shown} is no number from {bins.low:g} to {bins.high:g} "
                f"({number(int(wrong.sum()), 'such value', 'such values')}). Correct it, or choose a range that holds "
                "all numbers that are possible."
            )
            raise error_at(chosen, first, problem)
        # Of numbers that all are written so, the range tells whether most of them may be thousands.
        middle = 1000 * np.median(np.abs(numbers[present]))
        if unsure or (thousands and middle <= max(abs(bins.low), abs(bins.high))):
            raise thousands_error(chosen, factors=False)
    edges, kept = bins.edges, numbers[present]
    indices = np.clip(np.searchsorted(edges, kept, side="right") - 1, 0, bins.num_bins - 1).astype(np.int32)
    missing = int((~present).sum())
    return Values(indices, bins.domain(), chosen.column, missing, False, present=present if missing else None)


@dataclass(frozen=True)
class NumberReports:
    """Counted reports of numbers.

    Attributes:
        counts: `[M]`, int64, the number of reports of each kind.
        mechanism: The mechanism of the reports, at the ε delivered.
        metadata: The metadata of the files.
        lower: `[K]`, the least number of each bin, or the integer itself.
        upper: `[K]`, the largest number of each bin, or the integer itself.
        num_missing: Number of rows without a report.
    """

    counts: np.ndarray
    mechanism: DiscreteSquareWave | Geometric
    metadata: Metadata
    lower: np.ndarray
    upper: np.ndarray
    num_missing: int = 0

    @property
    def num_reports(self) -> int:
        """N, the number of reports."""
        return int(self.counts.sum())


def read_number_reports(source: Source | str) -> NumberReports:
    """The counts of reports of numbers, from files of `rrjax randomize` with a mechanism for numbers.

    Raises:
        DataError: Files that cannot be read, have no metadata or another mechanism, or have reports that contradict it.

    Example:
        >>> found = read_number_reports("ages.parquet")  # doctest: +SKIP
        >>> rrjax.inference.cdf_band(found.counts, found.mechanism).lower  # doctest: +SKIP
    """
    source = as_source(source)
    metadata, file = source.metadata(), source.files()[0]
    if metadata is None or not of_numbers(metadata):
        came = "does not say how it was randomized" if metadata is None else f"was made by {metadata.mechanism.name}"
        known = " or ".join(name for name, entry in TABLE.items() if entry.ordered)
        raise DataError(f"{file} {came}: reports of numbers are made by {known}.", file=file)
    mechanism: Any = mechanism_of(metadata, file)
    if metadata.range is not None:
        edges = Bins(*metadata.range, metadata.num_categories).edges
        counts = count_numbers(source, metadata, mechanism.num_reports)
        return NumberReports(counts, mechanism, metadata, edges[:-1], edges[1:])
    if not metadata.domain.is_range:
        raise DataError.at(file, "the metadata have no range of numbers.", argument="range")
    labels = metadata.domain.labels().astype(float)
    counted = count_reports(replace(source, column=metadata.column))
    return NumberReports(counted.counts, mechanism, metadata, labels, labels, counted.num_missing)


def of_numbers(metadata: Metadata | None) -> bool:
    """Whether a file holds reports of numbers."""
    return metadata is not None and metadata.mechanism.name in TABLE and TABLE[metadata.mechanism.name].ordered
