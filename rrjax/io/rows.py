"""Columns of files row by row: category numbers, pairs of category numbers, and covariates of a regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rrjax.data.errors import DataError, option
from rrjax.data.errors import number as count_of
from rrjax.io.database import double, has_no_answer, is_named, position, spelling, text
from rrjax.io.domain import PAIR, Domain
from rrjax.io.labels import Labels, as_domain
from rrjax.io.read import as_source, count_padded, count_scan, declare_category, no_values, settled_domain
from rrjax.io.scan import Scan, error_at, scanning
from rrjax.io.source import Source

MAX_LEVELS = 100
"""Largest number of levels of a factor; a column with more is probably no factor."""
MAX_PAIR_COUNTS = 2**26
"""Largest number of cells of a table of counts of pairs."""


@dataclass(frozen=True)
class Values:
    """The category number of every row, in the order of the files.

    Attributes:
        indices: int32 `[N]`, 0-based category numbers; rows without an answer are omitted.
        domain: The K categories.
        column: Name of the column.
        num_missing: Number of rows without an answer.
        domain_from_data: Whether the domain is only the different values in the data.
        num_padded: Number of values of a range with leading zeros, such as 007, which counts as 7.
        present: Whether each row of the files has an answer, booleans `[num_missing + N]`; None if all do.
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
    """The number of rows with each pair of reports: `counts` is int64 `[K, L]`, over two `domains`.

    Rows without an answer in a column, or both, are omitted (`num_missing`). `from_data` says of each domain whether it
    is only the different values in the data.
    """

    counts: np.ndarray
    domains: tuple[Domain, Domain]
    columns: tuple[str, str]
    num_rows: int
    num_missing: int
    from_data: tuple[bool, bool] = (False, False)
    simulated: bool = False


def read_values(source: Source | str, domain: Labels | None = None) -> Values:
    """The category number of every row.

    Args:
        source: The files with their format.
        domain: The K categories; None as in `count_reports`.

    Returns:
        The values, a `Values` of 4 bytes per row; errors as of `count_reports`.
    """
    values = read_rows(as_source(source).confidential(), as_domain(domain))
    if not values.num_missing:
        return values
    present = values.indices >= 0
    return replace(values, indices=values.indices[present], present=present)


def count_pairs(source: Source | str, columns: tuple[str, str], domains: tuple[Labels | None, Labels | None]) -> Pairs:
    """The counts of the pairs of two columns of reports; `DataError` also without a row with both answers."""
    first, second, both = _read_both(as_source(source), columns, domains)
    shape = first.domain.num_categories, second.domain.num_categories
    if shape[0] * shape[1] > MAX_PAIR_COUNTS:
        pairs = f"{columns[0]!r} and {columns[1]!r} have {shape[0]:,} × {shape[1]:,} pairs of categories"
        message = f"{pairs}, more than {MAX_PAIR_COUNTS:,}; coarser categories are needed."
        raise DataError(message, column=columns[0])
    cells = first.indices[both].astype(np.int64) * shape[1] + second.indices[both]
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
    from_data = first.domain_from_data, second.domain_from_data
    return Pairs(counts, (first.domain, second.domain), columns, len(both), int((~both).sum()), from_data)


def read_pairs(source: Source | str, columns: tuple[str, str], domains: tuple[Labels | None, Labels | None]) -> Values:
    """Two columns as one column of pairs (`Domain.product`); rows need both answers."""
    first, second, both = _read_both(as_source(source).confidential(), columns, domains)
    domain = Domain.product(first.domain, second.domain)
    indices = first.indices[both] * np.int32(second.domain.num_categories) + second.indices[both]
    from_data = first.domain_from_data or second.domain_from_data
    present = None if both.all() else both
    padded = first.num_padded + second.num_padded
    return Values(indices, domain, PAIR.join(columns), int((~both).sum()), from_data, padded, present)


def _read_both(
    source: Source, columns: tuple[str, str], domains: tuple[Labels | None, Labels | None]
) -> tuple[Values, Values, np.ndarray]:
    """Two columns row by row, and whether each row has both answers."""
    if columns[0] == columns[1]:
        message = f"two columns are wanted, and {columns[0]!r} was named twice."
        raise DataError(message, column=columns[0], argument="columns")
    known = [as_domain(domain) for domain in domains]
    first, second = (
        read_rows(replace(source, column=column), domain) for column, domain in zip(columns, known, strict=True)
    )
    both = (first.indices >= 0) & (second.indices >= 0)
    if not both.any():
        file = source.files()[0]
        message = f"{file}: no row has an answer in both {columns[0]!r} and {columns[1]!r}."
        raise DataError(message, file=file, column=columns[0])
    return first, second, both


def read_rows(source: Source, domain: Domain | None) -> Values:
    """The values as by `read_values`, with −1 for rows without an answer."""
    with scanning(source) as chosen:
        known, from_data = settled_domain(chosen, domain)
        numbers = known is not None and known.is_range  # of a domain of the data the texts were told apart
        if known is None:
            known = count_scan(chosen, None).domain
        declare_category(chosen, known)
        chosen.query("SET preserve_insertion_order = true")
        is_none = has_no_answer(chosen.kind, source.missing, numbers=numbers)
        place = f"CASE WHEN {is_none} THEN -1 ELSE coalesce({position(chosen.kind, known)}, -2) END"
        rows = chosen.connection.execute(f"SELECT CAST({place} AS INTEGER) AS indices FROM ({chosen.sql})").fetchnumpy()
        indices = np.ascontiguousarray(rows["indices"], dtype=np.int32)
        if indices.min(initial=0) == -2:
            count_scan(chosen, known)  # raises the error that names the values
        num_missing = int((indices < 0).sum())
        if num_missing == len(indices):
            raise no_values(chosen, num_missing)
        padded = count_padded(chosen, known, f"(SELECT value, 1 AS amount FROM ({chosen.sql}))")
    return Values(indices, known, chosen.column, num_missing, from_data, padded)


def read_cells(source: Source, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The texts of every row in some columns, "" for an empty cell."""
    with scanning(source, keys=columns) as chosen:
        chosen.query("SET preserve_insertion_order = true")
        return chosen.query(f"SELECT {chosen.key_texts} FROM ({chosen.sql})")


def unseen_missing(source: Source, values: Values) -> list[str]:
    """The texts that are named as missing, and that no value of the column is: perhaps they are misspelt."""
    if not source.missing:
        return []
    numbers = not values.domain_from_data and values.domain.is_range
    with scanning(source) as chosen:
        named = ", ".join(f"bool_or({is_named(chosen.kind, [each], numbers=numbers)})" for each in source.missing)
        seen = chosen.query(f"SELECT {named} FROM ({chosen.sql})")[0]
    return [token for token, was_seen in zip(source.missing, seen, strict=True) if not was_seen]


@dataclass(frozen=True)
class Covariate:
    """A column as a covariate, row by row: numbers, or a factor as columns of zeros and ones.

    `values`, float64 `[N]`, are numbers, or the numbers of the `levels` of a factor; NaN if the value is missing.
    `all_thousands`: numbers are written as 1.200, no other has decimals, and so all may be thousands.
    """

    name: str
    values: np.ndarray
    levels: tuple[str, ...] | None = None
    all_thousands: bool = False

    @property
    def missing(self) -> np.ndarray:
        """Whether each row has no value, `[N]`."""
        return np.isnan(self.values)

    def of_rows(self, kept: np.ndarray) -> Covariate:
        """The covariate of some rows, booleans `[N]`, with their levels; `DataError` for a single level."""
        values = self.values[kept]
        if self.levels is None:
            return replace(self, values=values)
        present, codes = np.unique(values, return_inverse=True)
        if len(present) == 1:
            raise DataError(f"column {self.name!r} has one value in all rows: leave it out.", column=self.name)
        return replace(self, values=codes.astype(float), levels=tuple(self.levels[int(code)] for code in present))

    def columns(self) -> tuple[np.ndarray, list[str]]:
        """Numbers `[N, D]` and D names: the numbers, or an indicator of each level except the first."""
        if self.levels is None:
            return self.values[:, None], [self.name]
        codes = np.arange(1, len(self.levels))
        columns = np.where(self.missing[:, None], np.nan, self.values[:, None] == codes)
        return columns, [f"{self.name}: {level}" for level in self.levels[1:]]


def read_covariate(source: Source, *, factor: bool = False, most_levels: int | None = MAX_LEVELS) -> Covariate:
    """A column as a covariate.

    `DataError`: files that cannot be read, a column that is missing, has no value or one text in all rows, numbers
    mixed with texts, infinities or "nan", numbers that may be thousands, or texts of too many levels.
    """
    with scanning(source) as chosen:
        is_none = has_no_answer(chosen.kind, source.missing, numbers=not factor)
        if not factor:
            numbers, missing, is_unsure, thousands = numbers_of(chosen, is_none)
            usable = np.isfinite(numbers)
            if usable[~missing].all():
                if is_unsure:
                    raise thousands_error(chosen, factors=most_levels is not None)
                return Covariate(chosen.column, numbers, all_thousands=thousands)
            if usable.any():
                raise _no_number(chosen, ~usable & ~missing, factors=most_levels is not None)
        different = chosen.query(f"SELECT DISTINCT {text(chosen.kind)} FROM ({chosen.sql}) WHERE NOT {is_none} LIMIT 2")
        if len(different) == 1:
            raise chosen.error("all rows have one value, so the column tells nothing: leave it out, or name another.")
    values = read_rows(source, None)
    levels, codes = _levels_of(values)
    if most_levels is not None and len(levels) > most_levels:
        file = source.files()[0]
        raise DataError(
            f"{file}, column {values.column!r}, has {len(levels):,} levels, more than {most_levels}. "
            f"Correct the column, name the values that mean no answer ({option('missing')}), or leave it out.",
            file=file,
            column=values.column,
        )
    return Covariate(values.column, codes, levels)


def _levels_of(values: Values) -> tuple[tuple[str, ...], np.ndarray]:
    """The levels of a factor, those of one `spelling` as one; and the number of that of each row, NaN without."""
    levels = tuple(str(level) for level in values.domain.labels())
    places: dict[str, int] = {}
    merged = np.asarray([places.setdefault(spelling(level), len(places)) for level in levels])
    codes = np.where(values.indices < 0, np.nan, merged[values.indices])
    return (levels if len(places) == len(levels) else tuple(places)), codes


class Numbers(NamedTuple):
    """The number of every row `[N]`, NaN for other texts and without a value.

    Attributes:
        values: The numbers.
        missing: Whether a row has no value, `[N]`.
        unsure: Whether some, such as 1.200 beside 800, may be thousands.
        thousands: Whether some may be, if it does not matter that all are written so.
    """

    values: np.ndarray
    missing: np.ndarray
    unsure: bool
    thousands: bool


def numbers_of(chosen: Scan, is_none: str) -> Numbers:
    """The numbers of a column; `DataError` if no row has a value."""
    chosen.query("SET preserve_insertion_order = true")
    decimals = "99"
    if chosen.kind == "text" and not chosen.are_numbers:  # exponents have any number
        after = "CASE strpos(value, '.') WHEN 0 THEN -1 ELSE length(rtrim(value)) - strpos(value, '.') END"
        decimals = f"CASE WHEN contains(value, 'e') OR contains(value, 'E') THEN 99 ELSE {after} END"
    rows = chosen.connection.execute(
        f"SELECT CASE WHEN NOT {is_none} THEN {double(chosen.kind)} END AS number, {is_none} AS missing, "
        f"CAST({decimals} AS INTEGER) AS decimals FROM ({chosen.sql})"
    ).fetchnumpy()
    missing = np.asarray(rows["missing"], bool)
    if missing.all():
        raise no_values(chosen, len(missing))
    numbers = np.ma.filled(np.ma.asarray(rows["number"], np.float64), np.nan)
    decimals = np.ma.filled(rows["decimals"], -1)
    return Numbers(numbers, missing, *(maybe_thousands(numbers, decimals, whole=whole) for whole in (True, False)))


def maybe_thousands(numbers: np.ndarray, decimals: np.ndarray, *, whole: bool) -> bool:
    """Whether some numbers have three decimals and may be thousands, because no other has any.

    `whole`: only beside numbers without a point, whose decimals are −1.
    """
    given = np.isfinite(numbers)
    size, decimals = np.abs(numbers[given]), decimals[given]
    three = (decimals == 3) & (size >= 1) & (size < 1000)
    beside = ((decimals < 0) & (size > 0)).any() or not whole
    return bool(three.any() and beside and not ((decimals >= 0) & ~three).any())


def thousands_error(chosen: Scan, *, factors: bool) -> DataError:
    """The error for numbers that may be thousands; `factors` if the column may be a factor instead."""
    factor = f", or make the column a factor ({option('factor=True', '--factors')})" if factors else ""
    return chosen.error(
        "numbers are written as 2.000, and no other has decimals: is it 2 or two thousand? Write thousands without a "
        f"point, or decimals as 2.0000; or name what means no value ({option('missing')}){factor}."
    )


def note_of_thousands(covariate: Covariate) -> list[str]:
    """The warning about absolute numbers that all may be thousands, if they are written so."""
    if not covariate.all_thousands:
        return []
    return [
        f"Numbers of {covariate.name!r} are written as 1.200, which is taken as 1.2. If it is 1,200, write them "
        "without points."
    ]


def _no_number(chosen: Scan, refused: np.ndarray, *, factors: bool) -> DataError:
    """The error for a column of numbers with other values in some rows; `factors` if it may be a factor instead."""
    first = int(np.argmax(refused))
    shown, value = "the value", None
    if chosen.source.show_values:
        value = chosen.scalar(f"SELECT {text(chosen.kind)} FROM ({chosen.sql}) LIMIT 1 OFFSET {first}")
        shown = repr(value)
    factor = f", or make the column a factor ({option('factor=True', '--factors')})" if factors else ""
    such = count_of(int(refused.sum()), "such value", "such values")
    correct = f"Correct it{',' if factors else ' or'} name what means no value ({option('missing')}){factor}."
    problem = f"{shown} is no number, and others are ({such}). {correct}"
    return error_at(chosen, first, problem, value=value)


def read_covariates(source: Source, names: Sequence[str], factors: Sequence[str] = ()) -> list[Covariate]:
    """Several columns by `read_covariate`; `DataError` also for a repeated column, or an unknown factor."""
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise DataError(f"column {twice!r} was named twice among the covariates.", column=twice, argument="names")
    odd = next((name for name in factors if name not in names), None)
    if odd is not None:
        listed = ", ".join(map(repr, names))
        message = f"the factor {odd!r} is not among the covariates {listed}."
        raise DataError(message, column=odd, argument="factors")
    return [read_covariate(replace(source, column=name), factor=name in factors) for name in names]
