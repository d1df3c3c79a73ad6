"""What every answer is: a table, facts, sentences and warnings, and how notebooks and data frames get them."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from rrjax.data.errors import check_installed, for_commands, refusal
from rrjax.io.write import protecting, replacing, table_suffix, write_table
from rrjax.reports import form

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rrjax.io.source import Source

_MATH = {
    "●": "bullet",
    "ε": "varepsilon",
    "χ": "chi",
    "∞": "infty",
    "≤": "leq",
    "≥": "geq",
}
"""Characters of tables that pdflatex does not know, and their symbols."""
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

    @property
    def left(self) -> list[bool]:
        """Which columns are aligned to the left: names and bars."""
        number = len(self.headings)
        return [place < self.names or (self.bars and place == number - 1) for place in range(number)]


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


def table_of(
    columns: Iterable[tuple[str, Sequence[Any] | np.ndarray, Callable[[Any], str]]], places: Iterable[int], **more: Any
) -> Cells:
    """The table of some places of columns, each of which has a heading, values, and how a value is written."""
    headings, values, texts = zip(*columns, strict=True)
    rows = [[text(each[place]) for each, text in zip(values, texts, strict=True)] for place in places]
    return Cells([*headings], rows, **more)


def rest_of(left: int, one: str, many: str, share: float | None = None) -> str:
    """A sentence about rows that are not shown, and their share together; empty where all are shown."""
    more = f"… and {form.number(left, f'more {one}', f'more {many}')}"
    more += "" if share is None else f" with {form.percent(share)} together"
    return more if left else ""


def rows_of_table(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a whole table, as objects."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


class Answer:
    """The answer of reports to a question: frozen, and the same in every outlet.

    A subclass is a frozen dataclass that gives `reports`, `_table`, `_results`, `words` and `cells`; where it has
    them, `sentences`, `cautions`, `rows` and `figure`; and `title`, `warnings` and `facts` where they are not those of
    the reports. One with several tables gives `blocks`.
    """

    written: ClassVar[str] = "All categories"
    """What the whole table is called, where its file is named."""
    page: ClassVar[str] = "inference"
    """The page of the documentation that says more."""
    reports: Any
    """The reports that were asked, of any kind."""
    notes: Sequence[str] = ()
    """Warnings about the question, beside those about the reports."""
    sources: Sequence[Source] = ()
    """Files that were read for the question, not for the reports: of a truth, of columns, of a population."""

    @property
    def title(self) -> str:
        """What was asked of which reports, in a sentence: their number, column, domain, mechanism and ε."""
        return self.reports.summary()

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The whole table: arrays of one length by their names; with `simulated` where the reports are."""
        return self.reports.table(self._table)

    @property
    def _table(self) -> dict[str, Any]:
        """The columns without `simulated`."""
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, Any]:
        """All numbers beside the table: the reports, what is odd about them, what was asked and what was found."""
        return {**self.reports.facts(), "warnings": self.warnings, **self._results}

    @property
    def _results(self) -> dict[str, Any]:
        """What was asked and what was found, as fields of a JSON object."""
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

    def figure(self, ax: Axes | None = None) -> Figure:
        """A figure of the answer, on `ax` if it is given.

        Raises:
            ArgumentError, UsageError: There is none.
        """
        more = for_commands("; leave --plot out")
        raise refusal("plot", f"there is no figure of this answer{more}")

    def to_dict(self, top: int = SHOWN) -> dict[str, Any]:
        """Everything but the whole table, as JSON has it: None for numbers that are infinite or undefined."""
        return form.plain({**self.facts, **self.rows(top)})

    def to_latex(self, top: int = SHOWN) -> str:
        """The tables for people as LaTeX, for `booktabs`, without bars; all other blocks are comments.

        Raises:
            MissingPackage: tabulate is not installed.
        """
        lines = [*self.title.splitlines(), *(f"Warning: {warning}" for warning in self.warnings)]
        parts = [f"% {line}" for line in lines]
        for block in self.blocks(top):
            if isinstance(block, Cells):
                parts += ["", _tabular(block), *([f"% {block.rest}"] if block.rest else [])]
            else:
                parts += [f"% {line}" for each in _lines(block) for line in each.splitlines()]
        return "\n".join([*parts, ""])

    def write(self, path: str | PathLike[str], top: int = SHOWN) -> None:
        """Writes a file, whose ending says how.

        Args:
            path: A format of `io.write_table`, for the whole table; or .tex, for `to_latex`.
            top: How many of the largest categories a .tex shows.

        Raises:
            DataError: Another format, or a file that cannot be written.
            Contradiction: The file is one that the reports, their labels, a truth or a population were read from, or it
                holds other reports, a memo or a tally.
            MissingPackage: .tex without tabulate, or .xlsx without XlsxWriter.

        Example:
            >>> import pathlib, rrjax, tempfile
            >>> shares = rrjax.Reports.of_counts([600, 400], 1.0, ["no", "yes"]).shares()
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     shares.write(f"{folder}/shares.csv")
            ...     pathlib.Path(folder, "shares.csv").read_text().splitlines()[0]
            'label,count,closest,likeliest,lower,upper,discovered'
        """
        files = [file for source in self._inputs for file in source.real_files]
        with protecting(dict.fromkeys(files, "is an input of this answer")):
            if table_suffix(path, people=True) != ".tex":
                write_table(path, self.columns)
                return
            text = self.to_latex(top)
            with replacing(path) as aside:
                aside.write_text(text, "utf-8")

    @property
    def _inputs(self) -> list[Source]:
        """All that was read."""
        return [*(source for each in self._asked for source in each.inputs), *self.sources]

    @property
    def _asked(self) -> Sequence[Any]:
        """All reports that were asked; none for a plan."""
        return [self.reports] if hasattr(self, "reports") else []

    def to_pandas(self) -> Any:
        """The whole table as a data frame of pandas.

        Raises:
            MissingPackage: pandas is not installed.
        """
        return _installed("frames", "A data frame of pandas", "pandas").DataFrame(self.columns)

    def to_polars(self) -> Any:
        """The whole table as a data frame of Polars.

        Raises:
            MissingPackage: Polars is not installed.
        """
        return _installed("frames", "A data frame of Polars", "polars").DataFrame(self.columns)

    def to_xarray(self) -> Any:
        """The whole table as a dataset of xarray, along the labels; the facts that are numbers or text are attributes.

        Raises:
            MissingPackage: xarray is not installed.
        """
        label, *others = self.columns
        attributes = {key: value for key, value in self.facts.items() if isinstance(value, int | float | str)}
        return self._dataset(
            {key: (label, self.columns[key]) for key in others}, {label: self.columns[label]}, attributes
        )

    def _dataset(self, *parts: Any) -> Any:
        return _installed("study", "A dataset of xarray", "xarray").Dataset(*parts)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The whole table for whatever reads Arrow: DuckDB, Polars, pandas, PyArrow."""
        table = _installed("frames", "A table of Arrow", "pyarrow").table(dict(self.columns))
        return table.__arrow_c_stream__(requested_schema)

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


def _installed(extra: str, what: str, package: str) -> Any:
    check_installed(extra, what, package)
    return import_module(package)


def _printable(cell: str) -> str:
    """A cell with escaped control characters; a space that does not break lines stays."""
    blank = "\N{NO-BREAK SPACE}"
    return blank.join(map(form.printable, cell.split(blank)))


def _tabular(cells: Cells) -> str:
    tabulate = _installed("tables", "A table of LaTeX", "tabulate").tabulate
    number = len(cells.headings) - cells.bars
    lines = [[*map(_printable, line[:number])] for line in (cells.headings, *cells.rows)]
    sides = ["left" if left else "right" for left in cells.left[:number]]
    headings = lines[0] if any(lines[0]) else ()
    made = tabulate(lines[1:], headings, "latex_booktabs", disable_numparse=True, colalign=sides)
    made = re.sub(r"\n ([\[*])", r"\n {}\1", made)  # after the end of a row both would be part of the command
    made = re.sub(r"(?<=-)-|(?<=')'|(?<=[`?!])`", r"{}\g<0>", made)  # TeX makes one character of two
    return made.translate({ord(each): f"$\\{name}$" for each, name in _MATH.items()})


def _lines(block: Block) -> list[str]:
    if isinstance(block, str):
        return [block]
    if isinstance(block, Heading | Caution):
        return ["! " * isinstance(block, Caution) + block.text]
    lines = [*([block.headings] if any(block.headings) else []), *block.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        [
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(line, widths, block.left, strict=True)
        ]
        for line in lines
    ]
    return [*("  ".join(line).rstrip() for line in padded), *filter(None, [block.rest])]


def _paragraph(text: str, before: str = "") -> str:
    return f"<p>{before}{html.escape(text)}</p>" if text else ""


def _markup(block: Block) -> str:
    if isinstance(block, str):
        return _paragraph(block)
    if isinstance(block, Heading):
        return f"<p><b>{html.escape(block.text)}</b></p>"
    if isinstance(block, Caution):
        return _paragraph(block.text, "<b>!</b> ")

    def line(cells, tag):
        one = (
            f'<{tag} style="text-align:{"left" if left else "right"}">{html.escape(_printable(cell))}</{tag}>'
            for cell, left in zip(cells, block.left, strict=True)
        )
        return f"<tr>{''.join(one)}</tr>"

    head = f"<thead>{line(block.headings, 'th')}</thead>" if any(block.headings) else ""
    table = f"<table>{head}<tbody>" + "".join(line(row, "td") for row in block.rows) + "</tbody></table>"
    return table + _paragraph(block.rest)
