"""What every answer is: a table, facts, sentences and warnings, and how notebooks and data frames get them."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from rrjax.data.errors import check_installed, for_commands, refusal
from rrjax.reports import form

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SHOWN = 10
"""Rows of a table that people read, unless they ask for another number."""


@dataclasses.dataclass(frozen=True)
class Cells:
    """A table for people, as text."""

    headings: list[str]
    """The titles of the columns; all empty for a table without them, whose first column holds sentences."""
    rows: list[list[str]]
    rest: str = ""
    """What is not shown, in a sentence."""
    names: int = 1
    """How many of the first columns are names, not numbers."""
    width: int | None = 40
    """The largest number of characters of the first column, before it is cut; None to leave it whole."""
    bars: bool = False
    """Whether the last two columns are marks and bars, without headings; the bars may be left out."""


@dataclasses.dataclass(frozen=True)
class Heading:
    """The title of what follows in an answer."""

    text: str


@dataclasses.dataclass(frozen=True)
class Caution:
    """A warning against a wrong reading of what stands before it."""

    text: str


Block: TypeAlias = Cells | Heading | str | Caution
"""A part of an answer as people read it: a table, a heading, a sentence, or a caution."""


class Answer:
    """The answer of reports to a question: frozen, and the same in every outlet.

    A subclass is a frozen dataclass that gives `reports`, `columns`, `facts`, `words` and `cells`; where it has them,
    `sentences`, `cautions`, `rows` and `figure`; and `title` and `warnings` where they are not those of the reports.
    One with several tables gives `blocks`.
    """

    written: ClassVar[str] = "All categories"
    """What the whole table is called, where its file is named."""
    page: ClassVar[str] = "inference"
    """The page of the documentation that says more."""
    reports: Any
    """The reports that were asked, of any kind."""
    notes: Sequence[str] = ()
    """Warnings about the question, beside those about the reports."""

    @property
    def title(self) -> str:
        """What was asked of which reports, in a sentence: their number, column, domain, mechanism and ε."""
        return self.reports.summary()

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The whole table: arrays of one length by their names."""
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, Any]:
        """All numbers beside the table."""
        raise NotImplementedError

    @property
    def sentences(self) -> list[str]:
        """What to conclude."""
        return []

    @property
    def cautions(self) -> list[str]:
        """Warnings against a wrong reading of the table."""
        return []

    @property
    def warnings(self) -> list[str]:
        """What is odd about the reports, among it whether they contradict their mechanism, and about the question."""
        return [*self.reports.warnings, *self.notes]

    @property
    def words(self) -> dict[str, str]:
        """What each column is, and what to publish."""
        raise NotImplementedError

    def cells(self, top: int = SHOWN) -> Cells:
        """The table for people: its first rows, or its largest."""
        raise NotImplementedError

    def blocks(self, top: int = SHOWN) -> list[Block]:
        """The tables for people, with the sentences and cautions about them, in their order."""
        return [self.cells(top), *self.sentences, *map(Caution, self.cautions)]

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        """The rows that people see, as objects, by the name of their table."""
        return {}

    def figure(self) -> Figure:
        """A figure of the answer.

        Raises:
            ArgumentError, UsageError: There is none.
        """
        more = for_commands("; leave --plot out")
        raise refusal("plot", f"there is no figure of this answer{more}")

    def to_dict(self, top: int = SHOWN) -> dict[str, Any]:
        """Everything but the whole table, as JSON has it: None for numbers that are infinite or undefined."""
        return form.plain({**self.facts, **self.rows(top)})

    def to_pandas(self) -> Any:
        """The whole table as a data frame of pandas.

        Raises:
            MissingPackage: pandas is not installed.
        """
        check_installed("frames", "A data frame of pandas", "pandas")
        import pandas

        return pandas.DataFrame(self.columns)

    def to_polars(self) -> Any:
        """The whole table as a data frame of Polars.

        Raises:
            MissingPackage: Polars is not installed.
        """
        check_installed("frames", "A data frame of Polars", "polars")
        import polars

        return polars.DataFrame(self.columns)

    def to_xarray(self) -> Any:
        """The whole table as a dataset of xarray, along the labels; the facts that are numbers or text are attributes.

        Raises:
            MissingPackage: xarray is not installed.
        """
        check_installed("study", "A dataset of xarray", "xarray")
        import xarray

        label, *others = self.columns
        attributes = {key: value for key, value in self.facts.items() if isinstance(value, int | float | str)}
        coordinates = {label: self.columns[label]}
        return xarray.Dataset({key: (label, self.columns[key]) for key in others}, coordinates, attributes)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The whole table for whatever reads Arrow: DuckDB, Polars, pandas, PyArrow."""
        check_installed("frames", "A table of Arrow", "pyarrow")
        import pyarrow

        return pyarrow.table(dict(self.columns)).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """The title, the warnings, and the blocks for people."""
        parts = [self.title, *(f"Warning: {warning}" for warning in self.warnings)]
        before: Block | None = None
        for block in self.blocks():
            if isinstance(block, Cells | Heading) or before is None or isinstance(before, Cells):
                parts.append("")
            parts += _lines(block)
            before = block
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        parts = [_paragraph(self.title), *(_paragraph(warning, "<b>Warning:</b> ") for warning in self.warnings)]
        return "".join([*parts, *map(_markup, self.blocks())])


def _lines(block: Block) -> list[str]:
    if isinstance(block, str):
        return [block]
    if isinstance(block, Heading):
        return [block.text]
    if isinstance(block, Caution):
        return [f"! {block.text}"]
    lines = [*([block.headings] if any(block.headings) else []), *block.rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(block.headings))]
    named = {*range(block.names), *([len(widths) - 1] if block.bars else [])}
    text = [
        "  ".join(
            cell.ljust(width) if place in named else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return text + [block.rest] * bool(block.rest)


def _paragraph(text: str, before: str = "") -> str:
    return f"<p>{before}{html.escape(text)}</p>" if text else ""


def _markup(block: Block) -> str:
    if isinstance(block, str):
        return _paragraph(block)
    if isinstance(block, Heading):
        return f"<p><b>{html.escape(block.text)}</b></p>"
    if isinstance(block, Caution):
        return _paragraph(block.text, "<b>!</b> ")
    named = {*range(block.names), *([len(block.headings) - 1] if block.bars else [])}

    def line(cells, tag):
        one = (
            f'<{tag} style="text-align:{"left" if place in named else "right"}">'
            f"{html.escape(form.printable(cell))}</{tag}>"
            for place, cell in enumerate(cells)
        )
        return f"<tr>{''.join(one)}</tr>"

    head = f"<thead>{line(block.headings, 'th')}</thead>" if any(block.headings) else ""
    table = f"<table>{head}<tbody>" + "".join(line(row, "td") for row in block.rows) + "</tbody></table>"
    return table + _paragraph(block.rest)
