"""Answers on the terminal and in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rrjax import io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output
from rrjax.reports.answer import Answer, Block, Caution, Cells, Heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def deliver(answer: Answer, command: str, output: Output) -> None:
    """Writes an answer to the files of --out and --plot, and prints it: as JSON, or for people.

    Args:
        answer: What to show.
        command: Name of the command, for JSON.
        output: The flags.
    """
    with show.status("Writing …"):
        if output.plot is not None and type(answer).figure is Answer.figure:
            answer.figure()  # says that there is none, before a file is written
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
    for line in answer.title.splitlines():
        show.say(line)
    show.warn(answer.warnings)
    show_blocks(answer.blocks(output.top))
    words = {}
    if output.explain:
        with ending_at_once():
            words = answer.words
    show.explain(words, output.explain, answer.page)
    show.show_files({answer.written: output.out, "Figure": output.plot})


def show_blocks(blocks: Iterable[Block]) -> None:
    """Prints the blocks of an answer, with an empty line around each table."""
    before: Block | None = None
    for block in blocks:
        if isinstance(block, Cells | Heading) or before is None or isinstance(before, Cells):
            show.out.print()
        if isinstance(block, Cells):
            show_cells(block)
        elif isinstance(block, Heading):
            show.out.print(Text(block.text, style="bold"))
        elif isinstance(block, Caution):
            show.beware(block.text)
        else:
            show.say(block)
        before = block


def show_cells(cells: Cells) -> None:
    """Prints a table of an answer."""
    named = cells.headings[:-2] if cells.bars else cells.headings
    headed = any(cells.headings)
    table = show.table(*map(Text, named), names=cells.names, max_width=cells.width, show_header=headed)
    for column in table.columns[headed : cells.names]:
        column.no_wrap = False  # sentences, and names beside the one that stands in every block
    for _ in range(2 * cells.bars):
        table.add_column("", no_wrap=True)
    for row in cells.rows:
        table.add_row(*map(Text, row))
    show.show_table(table, bars=cells.bars)
    if cells.rest:
        show.say(cells.rest, style="dim")


def draw(plot: Path, make: Callable[[], Figure]) -> None:
    """Draws a figure, and writes it."""
    with show.drawing():
        from rrjax.figures import save

        with ending_at_once():
            figure = make()
        save(figure, plot)
