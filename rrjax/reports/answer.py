"""What every answer is: a table, facts, sentences and warnings, and how notebooks and data frames get them."""

from __future__ import annotations

import dataclasses
import html
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import check_installed
from rrjax.reports import form

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 10
"""Rows of a table that people read, unless they ask for another number."""


@dataclasses.dataclass(frozen=True)
class Cells:
    """A table for people, as text."""

    headings: list[str]
    rows: list[list[str]]
    """Without headings the last column holds bars, which may be left out, and the one before it marks."""
    rest: str = ""
    """What is not shown, in a sentence."""


class Answer:
    """The answer of reports to a question: frozen, and the same in every outlet.

    A subclass is a frozen dataclass that gives `columns`, `facts`, `sentences`, `warnings`, `words` and `cells`.
    """

    @property
    def title(self) -> str:
        """What was asked of which reports, in a sentence."""
        raise NotImplementedError

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
        raise NotImplementedError

    @property
    def cautions(self) -> list[str]:
        """Warnings against a wrong reading of the table."""
        return []

    @property
    def warnings(self) -> list[str]:
        """What is odd about the reports, among it whether they contradict their mechanism."""
        raise NotImplementedError

    @property
    def words(self) -> dict[str, str]:
        """What each column is, and what to publish."""
        raise NotImplementedError

    def cells(self, top: int = SHOWN) -> Cells:
        """The table for people: its first rows, or its largest."""
        raise NotImplementedError

    def rows(self, top: int = SHOWN) -> list[dict[str, Any]]:
        """The same rows as objects with the names of `columns`."""
        raise NotImplementedError

    def figure(self) -> Figure:
        """A figure of the answer."""
        raise NotImplementedError

    def to_dict(self, top: int = SHOWN) -> dict[str, Any]:
        """Everything but the whole table, as JSON has it: None for numbers that are infinite or undefined."""
        return form.plain({**self.facts, "top": self.rows(top)})

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
        """The title, the warnings, the table for people and what to conclude."""
        shown = self.cells()
        lines = [shown.headings, *shown.rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(shown.headings))]
        text = [
            "  ".join(
                cell.ljust(width) if place in (0, len(line) - 1) else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        warned = [f"Warning: {warning}" for warning in self.warnings]
        parts = [self.title, *warned, "", *text, *filter(None, [shown.rest]), "", *self.sentences]
        return "\n".join([*parts, *(f"! {caution}" for caution in self.cautions)])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        shown = self.cells()

        def line(cells, tag):
            aligned = ("left" if place in (0, len(cells) - 1) else "right" for place in range(len(cells)))
            one = (
                f'<{tag} style="text-align:{side}">{html.escape(form.printable(cell))}</{tag}>'
                for cell, side in zip(cells, aligned, strict=True)
            )
            return f"<tr>{''.join(one)}</tr>"

        def paragraphs(texts, before=""):
            return "".join(f"<p>{before}{html.escape(text)}</p>" for text in texts if text)

        table = f"<table><thead>{line(shown.headings, 'th')}</thead><tbody>"
        table += "".join(line(row, "td") for row in shown.rows) + "</tbody></table>"
        return (
            paragraphs([self.title])
            + paragraphs(self.warnings, "<b>Warning:</b> ")
            + table
            + paragraphs([shown.rest, *self.sentences])
            + paragraphs(self.cautions, "<b>!</b> ")
        )
