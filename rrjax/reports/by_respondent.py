"""Answers of which each respondent had an own design: a column of the file says which, or its parameters."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from functools import cached_property, reduce
from operator import add
from typing import Any, ClassVar

import numpy as np

from rrjax.data.errors import ArgumentError, DataError, UsageError, option, refusal, reworded
from rrjax.io.domain import Domain
from rrjax.io.read import CountedReports, count_by, error_at_cells
from rrjax.io.rows import read_cells, read_rows
from rrjax.io.source import Source
from rrjax.mechanisms import DESIGNS, ByRespondent, Design
from rrjax.mechanisms.table import TABLE, full_name
from rrjax.reports.kind import ColumnQuestions
from rrjax.reports.parameters import place_of_yes
from rrjax.reports.parts import Groups
from rrjax.reports.reading import check_design, design_of, in_float64, of_design
from rrjax.reports.reports import Reports, left_out, refuse_single, warned

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
        (['innocuous 0.25', 'innocuous 0.75'], ['shares', 'mean', 'group', 'by', 'statements', 'within', 'regress'])
    """

    called_kind: ClassVar[str] = "answers to several designs"
    instead: ClassVar[str] = "give one design for all"

    source: Source
    """The files, or the data frame."""
    counted: CountedReports
    """The answers of all respondents."""
    told_by: tuple[str, ...]
    """The columns that tell the design of a row."""
    groups: dict[tuple[str, ...], int]
    """The group of the texts in these columns."""
    from_counts: bool

    def summary(self) -> str:
        return "\n".join(
            each.summary(f"group {number} ({each.mechanism.note or 'the answer itself, without protection'})")
            for number, each in self.parts.items()
        )

    @property
    def inputs(self) -> list[Source]:
        return [self.source, *super().inputs]

    @property
    def warnings(self) -> list[str]:
        return [*left_out(self.counted), *super().warnings]

    def facts(self) -> dict[str, Any]:
        return {
            "reports": self.paths,
            "column": self.counted.column,
            "num_reports": self.num_reports,
            "num_missing": self.counted.num_missing,
            "num_categories": self.num_categories,
            "domain": self.counted.domain.describe(),
            "groups": [
                {"mechanism": each.mechanism.name, "note": each.mechanism.note, "num_reports": each.num_reports}
                for each in self.parts.values()
            ],
            "warnings": self.warnings,
        }

    # What regressions, statements and numbers within classes ask of reports; see `regression_of`, `survey_estimates`.
    @property
    def files(self) -> Source:
        """The files, or the data frame."""
        if self.from_counts:
            raise refusal("counts", f"{option('counts')}: this question needs a row for each answer")
        return dataclasses.replace(self.source, column=self.counted.column)

    @property
    def num_categories(self) -> int:
        """K."""
        return self.main.num_categories

    @property
    def tallied(self) -> Any:
        """Not None: the answers are those of designs."""
        return self.main.tallied

    @property
    def design(self) -> Any:
        """The design of the first group."""
        return self.main.design

    @property
    def epsilon(self) -> float:
        """The largest ε of all designs."""
        return max(each.epsilon for each in self.parts.values())

    @cached_property
    def _which(self):
        """The place of the group of each row, −1 for rows of none."""
        return np.asarray([self.groups.get(cells, 0) - 1 for cells in read_cells(self.files, self.told_by)])

    def reports(self, what: str) -> np.ndarray:
        """All answers in the order of their rows; −1 for a missing one."""
        # Both columns are read here, before it is checked that the files are unchanged.
        return np.where(self._which >= 0, read_rows(self.files, self.counted.domain).indices, -1)

    def mechanism_of(self, kept: np.ndarray) -> ByRespondent:
        """The designs of some rows, booleans `[N]`."""
        return ByRespondent([each.mechanism for each in self.parts.values()], np.maximum(self._which[kept], 0))

    def in_groups(self, numbers: Iterable[int]) -> np.ndarray:
        """Which rows are of some groups, booleans `[N]`."""
        return np.isin(self._which + 1, [*numbers])

    regress, statements, within = ColumnQuestions.regress, ColumnQuestions.statements, ColumnQuestions.within
    mean, group, by = ColumnQuestions.mean, ColumnQuestions.group, ColumnQuestions.by
    possible_causes, without_interval = Reports.possible_causes, Reports.without_interval


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
    assert domain is not None
    if source.column is None:
        raise refusal("column", f"{option('column')} is missing: the column of the answers")
    if parameters.get("yes") is not None and "yes" not in columns:
        _ = place_of_yes(domain, mechanism, str(parameters["yes"]))  # which refuses a label that is none
    told_by = tuple(dict.fromkeys(columns.values()))
    answers, designs, groups, used = {}, {}, {}, {"mechanism"}
    counted = count_by(source, told_by, domain, counts)
    for key, each in counted.items():
        if not each.counts.any():
            continue
        made, has = _made(source, domain, given, columns, dict(zip(told_by, key, strict=True)))
        used |= has
        law = made.affine
        same = made.name, float(law.truth), *law.always.tolist()
        _ = designs.setdefault(same, made)
        answers[same] = answers[same] + each if same in answers else each
        groups[key] = [*designs].index(same) + 1
    odd = next((name for name in given if name not in used), None)
    if odd is not None:
        flag = option("parameters", "--parameter")
        raise refusal("parameters", f"{flag} {odd}: no design with answers has it", flag="--parameter", value=odd)
    parts = {}
    for number, (same, each) in enumerate(answers.items(), 1):
        known = dataclasses.replace(each, num_rows=int(each.counts.sum()), num_missing=0, missing={}, num_padded=0)
        parts[number] = warned(of_design(known, designs[same]))
    every = reduce(add, counted.values())
    return refuse_single(ByRespondentReports(parts, source, every, told_by, groups, counts is not None))


def _made(source, domain, given, columns, cells) -> tuple[Design, set[str]]:
    """The design that these cells tell, and the parameters that it has; its error names the first row with them."""

    def refused(name, problem, cause=None):
        cell = cells[columns[name]]
        error = error_at_cells(source, cells, columns[name], f"{repr(cell) if cell else 'an empty cell'} {problem}")
        return error if cause is None else reworded(cause, str(error), DataError, **vars(error))

    own = {name: cells[columns[name]] if name in columns else value for name, value in given.items()}
    name = full_name(own.pop("mechanism"))
    if name not in DESIGNS:
        known = f"names no survey design of one sample: {', '.join(DESIGNS)}"
        if "mechanism" in columns:
            raise refused("mechanism", known)
        raise refusal("mechanism", f"{option('mechanism')} {name} {known}", value=name)
    has = {*(TABLE[name].parameters or ()), *(["yes"] if hasattr(DESIGNS[name], "yes") else [])}
    odd = next((parameter for parameter in own if parameter not in has), None)
    if odd is not None and "mechanism" not in columns:
        known = f"is no parameter of {name}, which has {', '.join(TABLE[name].parameters or ())}"
        flag = option("parameters", "--parameter")
        raise refusal("parameters", f"{flag} {odd} {known}", flag="--parameter", value=odd)
    own = {parameter: value for parameter, value in own.items() if parameter in has}
    blank = next((parameter for parameter, value in own.items() if parameter in columns and not value), None)
    if blank is not None:
        raise refused(blank, f"where {name} needs its parameter {blank}")
    try:
        return design_of(name, own)(domain), has
    except (ArgumentError, UsageError) as error:
        # The cell of the parameter that it is about, or, if this has none and is sound by itself, another one's.
        about, alone = error.argument, error.value is not None or error.argument not in own
        others = () if about in {"mechanism", "domain"} or (about in has and alone) else own
        varying = next((each for each in (about, *others) if each in columns), None)
        if varying is None and isinstance(error, UsageError):
            raise
        if varying is None:
            flag = option("parameters", "--parameter")
            raise refusal("parameters", f"{flag}: {error}", flag="--parameter", value=error.value) from error
        raise refused(varying, f"makes no design: {error}", error) from error
