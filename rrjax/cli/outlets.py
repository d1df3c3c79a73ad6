"""Answers on the terminal and in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rrjax import io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output
from rrjax.reports.answer import Answer, Cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def deliver(answer: Answer, command: str, output: Output, page: str = "") -> None:
    """Writes an answer to the files of --out and --plot, and prints it: as JSON, or for people.

    Args:
        answer: What to show.
        command: Name of the command, for JSON.
        output: The flags.
        page: The page of the documentation that --explain names.
    """
    with show.status("Writing …"):
        if output.out is not None:
            io.write_table(output.out, answer.columns)
        if output.plot is not None:
            draw(output.plot, answer.figure)
        record: dict[str, Any] = {}
        if output.json:
            with ending_at_once():
                record = answer.to_dict(output.top)
    if output.json:
        show.record({"command": command, **record, **output.files})
        return
    show.say(answer.title)
    show.warn(answer.warnings)
    show.out.print()
    show_cells(answer.cells(output.top))
    show.out.print()
    for sentence in answer.sentences:
        show.say(sentence)
    for caution in answer.cautions:
        show.beware(caution)
    words = {}
    if output.explain:
        with ending_at_once():
            words = answer.words
    show.explain(words, output.explain, page)
    show.show_files({"All categories": output.out, "Figure": output.plot})


def show_cells(cells: Cells) -> None:
    """Prints a table of an answer."""
    bars = cells.headings[-1] == ""
    named = len(cells.headings) - 2 * bars
    table = show.table(*cells.headings[:named], max_width=40)
    for _ in range(2 * bars):  # marks and bars
        table.add_column("", no_wrap=True)
    for first, *others in cells.rows:
        table.add_row(Text(first), *others)
    show.show_table(table, bars=bars)
    if cells.rest:
        show.say(cells.rest, style="dim")


def draw(plot: Path, make: Callable[[], Figure]) -> None:
    """Draws a figure, and writes it."""
    with show.drawing():
        from rrjax.figures import save

        with ending_at_once():
            figure = make()
        save(figure, plot)
