"""Answers of which each respondent had an own design: a column of the file says which, or its parameters."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from rrjax.data.errors import ArgumentError, DataError, Located, UsageError, option, refusal, reworded
from rrjax.io.domain import Domain
from rrjax.io.read import count_by, error_at_cells
from rrjax.io.rows import read_cells, read_rows
from rrjax.io.source import Source
from rrjax.mechanisms import DESIGNS, ByRespondent
from rrjax.mechanisms.table import TABLE, full_name, names_in
from rrjax.reports.kind import ColumnQuestions
from rrjax.reports.parts import Groups
from rrjax.reports.reading import check_design, design_of, in_float64, of_design
from rrjax.reports.reports import checked

COLUMN = "@"
"""What a name of a column begins with, in place of a design or of a parameter."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ByRespondentReports(Groups):
    """Answers of one survey whose respondents had different designs, or parameters: a group for each.

    `rrjax.read` makes them where the mechanism, or a parameter, is "@" and the name of a column.

    Example:
        >>> import polars, rrjax
        >>> frame = polars.DataFrame({"answer": [1, 0] * 300, "p": [0.25] * 200 + [0.75] * 400})
        >>> reports = rrjax.read(
        ...     frame, column="answer", domain="0:1", mechanism="crosswise", parameters={"innocuous": "@p"}
        ... )
        >>> [each.mechanism.note for each in reports.parts.values()], reports.questions()
        (['innocuous 0.25', 'innocuous 0.75'], ['shares', 'regress'])
    """

    called_kind: ClassVar[str] = "answers to several designs"
    instead: ClassVar[str] = "give one design for all"

    source: Source
    """The files, or the data frame."""
    told_by: tuple[str, ...]
    """The columns that tell the design of a row."""
    cells: tuple[tuple[str, ...], ...]
    """The texts in these columns, for each group."""
    of_counts: bool

    def summary(self) -> str:
        return "\n".join(
            each.summary(f"group {number} ({each.mechanism.note or 'the answer itself, without protection'})")
            for number, each in self.parts.items()
        )

    def facts(self) -> dict[str, Any]:
        main = self.main.counted
        return {
            "reports": self.paths,
            "column": main.column,
            "num_reports": self.num_reports,
            "num_missing": sum(each.counted.num_missing for each in self.parts.values()),
            "num_categories": self.main.num_categories,
            "domain": main.domain.describe(),
            "groups": [
                {"mechanism": each.mechanism.name, "note": each.mechanism.note, "num_reports": each.num_reports}
                for each in self.parts.values()
            ],
            "warnings": self.warnings,
        }

    # What a regression asks of reports; see `regression_of`.
    @property
    def files(self) -> Source:
        """The files, or the data frame."""
        if self.of_counts:
            raise refusal("counts", f"{option('counts')}: a regression needs a row for each answer")
        return self.source

    @property
    def counted(self) -> Any:
        """Column and domain of the answers."""
        return self.main.counted

    @property
    def num_categories(self) -> int:
        """K."""
        return self.main.num_categories

    @property
    def tallied(self) -> Any:
        """Not None: the answers are those of designs."""
        return self.main.tallied

    @cached_property
    def _which(self):
        """The group of each row, −1 for rows of none."""
        places = {cells: place for place, cells in enumerate(self.cells)}
        rows = read_cells(dataclasses.replace(self.files, column=self.counted.column), self.told_by)
        return np.asarray([places.get(cells, -1) for cells in rows])

    def reports(self, what: str) -> np.ndarray:
        """All answers in the order of their rows; −1 for a missing one."""
        source = dataclasses.replace(self.files, column=self.counted.column)
        return np.where(self._which >= 0, read_rows(source, self.counted.domain).indices, -1)

    def mechanism_of(self, kept: np.ndarray) -> ByRespondent:
        """The designs of some rows, booleans `[N]`."""
        return ByRespondent([each.mechanism for each in self.parts.values()], np.maximum(self._which[kept], 0))

    regress = ColumnQuestions.regress


def column_in(value: Any) -> str | None:
    """The column that a text names, as in "@rate"; None for others."""
    return value[len(COLUMN) :].strip() if isinstance(value, str) and value.startswith(COLUMN) else None


def is_by_respondent(mechanism: Any, parameters: Mapping[str, Any] | None) -> bool:
    """Whether the design, or a parameter, is in a column."""
    named = isinstance(mechanism, str) and [mechanism, *(parameters or {}).values()]
    return any(column_in(each) is not None for each in named or ())


@in_float64
def read_by_respondent(
    source: Source,
    domain: Domain | None,
    mechanism: str,
    parameters: Mapping[str, Any],
    epsilon: float | None = None,
    counts: str | None = None,
) -> ByRespondentReports:
    """Counts the answers to each design; arguments and errors are as of `rrjax.read`."""
    given = {"mechanism": mechanism, **parameters}
    columns = {name: column for name, value in given.items() if (column := column_in(value)) is not None}
    check_design(source, os.path.basename(source.files()[0]), epsilon, domain, mechanism)
    if source.column is None:
        raise refusal("column", f"{option('column')} is missing: the column of the answers")
    told_by = tuple(dict.fromkeys(columns.values()))
    parts, cells, used = {}, [], set()
    for key, counted in count_by(source, told_by, domain, counts).items():
        if counted.num_rows == counted.num_missing:
            continue
        found = dict(zip(told_by, key, strict=True))
        own = {name: found[columns[name]] if name in columns else value for name, value in given.items()}
        name = own.pop("mechanism")
        if "mechanism" in columns and full_name(name) not in DESIGNS:
            known = ", ".join(names_in("DESIGNS"))
            raise _at(source, found, columns["mechanism"], f"names no design; there are {known}")
        name = full_name(name)
        has = [*(TABLE[name].parameters or ()), *(["yes"] if hasattr(DESIGNS[name], "yes") else [])]
        used |= {"mechanism", *has}
        own = {parameter: value for parameter, value in own.items() if parameter in has}
        blank = next((parameter for parameter, value in own.items() if parameter in columns and not value), None)
        if blank is not None:
            raise _at(source, found, columns[blank], f"where {name} needs its parameter {blank}")
        try:
            made = design_of(name, own)(domain)
        except (ArgumentError, UsageError) as error:
            varying = next((each for each in (error.argument, *own) if each in columns), None)
            if varying is None:
                raise
            raise _at(source, found, columns[varying], f"makes no design: {error}", error) from error
        parts[len(parts) + 1] = checked(of_design(counted, made), least=1)
        cells.append(key)
    if sum(each.num_reports for each in parts.values()) < 2:
        problem = f"column {source.column!r} holds fewer than two answers: a distribution cannot be estimated from them"
        raise DataError.at(source.files()[0], problem, column=source.column)
    odd = next((name for name in given if name not in used), None)
    if odd is not None:
        flag = option("parameters", "--parameter")
        raise refusal("parameters", f"{flag} {odd}: no design here has it", flag="--parameter", value=odd)
    return ByRespondentReports(parts, source, told_by, tuple(cells), counts is not None)


def _at(source: Source, found: Mapping[str, str], column: str, problem: str, cause: Located | None = None) -> DataError:
    """The error about a column in the first row with these cells."""
    error = error_at_cells(
        source, found, column, f"{repr(found[column]) if found[column] else 'an empty cell'} {problem}"
    )
    return error if cause is None else reworded(cause, str(error), DataError, **vars(error))
