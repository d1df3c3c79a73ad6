"""Columns of a file as covariates of a regression: numbers as they are, texts as columns of zeros and ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rrjax.data.errors import DataError, option
from rrjax.data.errors import number as count_of
from rrjax.io.complaints import nothing
from rrjax.io.expressions import is_missing, text
from rrjax.io.read import read_rows
from rrjax.io.scan import Scan, scan, scanning
from rrjax.io.source import Source

MAX_LEVELS = 100
"""Levels of a factor; more are hardly meant."""


@dataclass(frozen=True)
class Covariate:
    """A column, row by row.

    Attributes:
        name: Of the column.
        values: `[N]`, float64: numbers, or the number of the level; NaN where the value is missing.
        levels: Of a factor, in order; None for numbers.
    """

    name: str
    values: np.ndarray
    levels: tuple[str, ...] | None = None

    @property
    def missing(self) -> np.ndarray:
        """Which rows have no value, `[N]`."""
        return np.isnan(self.values)

    def of_rows(self, kept: np.ndarray) -> Covariate:
        """Those of some rows `[N]`, booleans, with the levels that they have.

        Raises:
            DataError: All have the same level.
        """
        values = self.values[kept]
        if self.levels is None:
            return replace(self, values=values)
        there, codes = np.unique(values, return_inverse=True)
        if len(there) == 1:
            raise DataError(f"column {self.name!r} has one value in all rows: leave it out.", column=self.name)
        return replace(self, values=codes.astype(float), levels=tuple(self.levels[int(code)] for code in there))

    def columns(self) -> tuple[np.ndarray, list[str]]:
        """`[N, D]` and their names: itself, or whether it has each level but the first."""
        if self.levels is None:
            return self.values[:, None], [self.name]
        codes = np.arange(1, len(self.levels))
        columns = np.where(self.missing[:, None], np.nan, self.values[:, None] == codes)
        return columns, [f"{self.name}: {level}" for level in self.levels[1:]]


def read_covariate(source: Source, *, factor: bool = False, most_levels: int | None = MAX_LEVELS) -> Covariate:
    """Reads a column as a covariate.

    Raises:
        DataError: Files that cannot be read, a column that is not there, holds no value or the same text for everybody,
            numbers among which are texts, infinities or "nan", or texts of too many levels.
    """
    with scanning(source) as chosen:
        is_none = is_missing(chosen.kind, source.missing)
        if not factor:
            chosen.query("SET preserve_insertion_order = true")
            found = chosen.connection.execute(
                f"SELECT CASE WHEN NOT {is_none} THEN TRY_CAST({text(chosen.kind)} AS DOUBLE) END AS number, "
                f"{is_none} AS missing FROM ({chosen.sql})"
            ).fetchnumpy()
            missing = np.asarray(found["missing"], bool)
            if missing.all():
                raise nothing(chosen, len(missing))
            numbers = np.ma.filled(np.ma.asarray(found["number"], np.float64), np.nan)
            usable = np.isfinite(numbers)
            if usable[~missing].all():
                return Covariate(chosen.column, np.where(missing, np.nan, numbers))
            if usable.any():
                raise _no_number(chosen, int(np.argmax(~usable & ~missing)), int((~usable & ~missing).sum()))
        only = chosen.query(f"SELECT DISTINCT {text(chosen.kind)} FROM ({chosen.sql}) WHERE NOT {is_none} LIMIT 2")
        if len(only) == 1:
            raise DataError(
                f"{chosen.where()}: no value is a number, and all are the same, so the column tells nothing.",
                file=chosen.files[0],
                column=chosen.column,
            )
    values = read_rows(source, None)
    levels = tuple(str(level) for level in values.domain.labels())
    if most_levels is not None and len(levels) > most_levels:
        raise DataError(
            f"{source.files()[0]}, column {values.column!r}, has {len(levels):,} levels, more than {most_levels}. "
            f"Correct the column, name the values that mean no answer ({option('missing')}), or leave it out.",
            file=source.files()[0],
            column=values.column,
        )
    return Covariate(values.column, np.where(values.indices < 0, np.nan, values.indices), levels)


def _no_number(chosen: Scan, place: int, number: int) -> DataError:
    """What to say of a column of numbers that holds something else, at a place among its rows."""
    shown, value, file, row = "the value", None, *place_of(chosen, place)
    if chosen.source.show_values:
        value = chosen.scalar(f"SELECT {text(chosen.kind)} FROM ({chosen.sql}) LIMIT 1 OFFSET {place}")
        shown = repr(value)
    return DataError(
        f"{file}, column {chosen.column!r}, row {row:,}: {shown} is no number, and others are "
        f"({count_of(number, 'such value', 'such values')}). Correct it, name what means no value "
        f"({option('missing')}), or make the column a factor ({option('factor=True', '--factors')}).",
        file=file,
        column=chosen.column,
        row=row,
        value=value,
    )


def place_of(chosen: Scan, place: int) -> tuple[str, int]:
    """The file, and the row in it from 1, of a place among the rows of all files."""
    for file in chosen.files[:-1]:
        part = replace(chosen.source, paths=file, format=chosen.source.format_of(chosen.files), column=chosen.column)
        rows = chosen.scalar(f"SELECT count(*) FROM ({scan(chosen.connection, part).sql})")
        if place < rows:
            return file, place + 1
        place -= rows
    return chosen.files[-1], place + 1


def read_covariates(source: Source, names: Sequence[str], factors: Sequence[str] = ()) -> list[Covariate]:
    """Reads several columns, as `read_covariate` each.

    Raises:
        DataError: As `read_covariate`; a column that is named twice, or a factor that is none of them.
    """
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise DataError(f"column {twice!r} was named twice among the covariates.", column=twice, argument="names")
    odd = next((name for name in factors if name not in names), None)
    if odd is not None:
        raise DataError(
            f"the factor {odd!r} is not among the covariates {', '.join(map(repr, names))}.",
            column=odd,
            argument="factors",
        )
    return [read_covariate(replace(source, column=name), factor=name in factors) for name in names]
