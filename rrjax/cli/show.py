"""Output on the terminal and in files: answers, tables, sentences, JSON, and errors with an exit code."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rrjax import io
from rrjax.cli.interrupt import INTERRUPTED, MESSAGE, ending_at_once, unwinding
from rrjax.data.errors import NUMBER_SPACES, Contradiction, MissingPackage, UsageError
from rrjax.reports import form
from rrjax.reports.answer import Answer, Block, Caution, Cells, Heading
from rrjax.reports.form import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rrjax.cli.options import Output

USAGE, BAD_DATA = 2, 3
_HELD = {"\N{NO-BREAK SPACE}": "\ue000", " ": "\ue001"}
"""Placeholders of spaces while lines are broken, because rich breaks lines at no-break spaces."""
_GAP = 2  # between columns
_SHORTEST_NAME = 12


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Ends without an error if the reader of the output is gone (`rrjax … | head`)."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)


class _Prose:
    """A text whose line breaks do not separate numbers from their units."""

    def __init__(self, text: Text) -> None:
        self._text = text.copy()
        held = NUMBER_SPACES.sub(_HELD[" "], text.plain).replace("\N{NO-BREAK SPACE}", _HELD["\N{NO-BREAK SPACE}"])
        self._text.plain = held

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._text.wrap(console, options.max_width):
            plain = line.plain
            for blank, held in _HELD.items():
                plain = plain.replace(held, blank)
            line.plain = plain.rstrip()
            yield line

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._text)


class _Whole:
    """A table of this width, in a narrower terminal too, which then breaks its lines: no digit is left out."""

    def __init__(self, table: Table, width: int) -> None:
        self._table, self._width = table, width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self._table, options.update(width=max(self._width, options.max_width)))


out = _Console(highlight=False)
err = Console(stderr=True, highlight=False)


SECONDS_BETWEEN_LINES = 10.0
"""Seconds from one line of progress to the next, where no terminal shows it."""


class Lines:
    """Lines of progress on stderr, for long computations whose spinner or bar nobody can see."""

    def __init__(self, text: str) -> None:
        """Begins with a text, which `update` replaces."""
        self.text, self.begin, self.over = text, time.monotonic(), threading.Event()

    def update(self, text: str) -> None:
        """Sets the text of the next line."""
        self.text = text

    def run(self) -> None:
        """Prints the text and the seconds since the beginning, again and again."""
        while not self.over.wait(SECONDS_BETWEEN_LINES):
            err.print(Text(f"{self.text} ({time.monotonic() - self.begin:.0f} s so far)"), soft_wrap=True)


@contextmanager
def lines(text: str) -> Iterator[Lines]:
    """Prints a line of progress every ten seconds, if stderr is no terminal."""
    said = Lines(text)
    thread = threading.Thread(target=said.run, daemon=True)
    if not err.is_terminal:
        thread.start()
    try:
        yield said
    finally:
        said.over.set()


@contextmanager
def status(text: str) -> Iterator[Any]:
    """Shows what is being done: a spinner or, if stderr is no terminal, lines; its `update` takes another text."""
    with err.status(text) if err.is_terminal else lines(text) as shown:
        yield shown


@contextmanager
def reporting() -> Iterator[None]:
    """Prints errors as a sentence on the standard error and exits with their code."""
    try:
        with unwinding():
            yield
    except (UsageError, Contradiction, MissingPackage) as error:
        fail(str(error), USAGE)
    except io.DataError as error:
        fail(str(error), BAD_DATA)
    except BrokenPipeError:  # from --json
        out.on_broken_pipe()
    except MemoryError:
        fail("there is not enough memory; is the domain really that large?", BAD_DATA)
    except OSError as error:
        fail(f"cannot write: {error.strerror}", BAD_DATA)
    except KeyboardInterrupt as error:
        fail(str(error) or MESSAGE, INTERRUPTED)


@contextmanager
def drawing() -> Iterator[None]:
    """Prints the warnings of figures."""
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        yield
    warn([str(warning.message) for warning in caught])


def fail(message: str, code: int) -> NoReturn:
    """Prints a sentence on the standard error, and exits."""
    err.print(_Prose(Text("rrjax: ", style="bold red").append(form.sentence(message), style="not bold default")))
    raise SystemExit(code)


def warn(messages: list[str]) -> None:
    """Prints warnings on the standard error."""
    for message in messages:
        err.print(_Prose(Text("Warning: ", style="bold yellow").append(message, style="not bold default")))


def record(result: Mapping[str, Any]) -> None:
    """Prints one JSON object. Numbers that are infinite or undefined are null, because JSON has no such numbers."""
    text, how = plain(result), {"indent": 2, "allow_nan": False}
    said = json.dumps(text, ensure_ascii=False, **how)
    try:
        said.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # escapes keep labels apart, which question marks do not
        said = json.dumps(text, **how)
    print(said, flush=True)


def table(*titles: str | Text, names: int = 1, max_width: int | None = None, **options: Any) -> Table:
    """An empty table in the style of all tables: columns of names, the first one at most so wide, then of numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", **options)
    for place, title in enumerate(titles):
        side = "left" if place < names else "right"
        made.add_column(title, justify=side, no_wrap=True, max_width=None if place else max_width)
    return made


def show_table(table: Table, *, bars: bool = False) -> None:
    """Prints a table that shows every number in full, however narrow the terminal.

    If the terminal is too narrow, the bars of the last column are left out; then names are cut, in a first column with
    a `max_width`; then the remaining columns follow in further blocks, each with the names again.
    """
    first, *others = table.columns
    for column in others:
        texts = [str(cell) for cell in (column.header, *column.cells)]
        words = texts if column.no_wrap else [word for text in texts for word in text.split()]
        column.min_width = max(map(cell_len, words), default=0)
    names = max(cell_len(str(cell)) for cell in (first.header, *first.cells))
    names = min(names, first.max_width or names)
    if bars and names + sum(_GAP + (column.min_width or 0) for column in others) > out.width:
        others.pop()
    if first.max_width is not None:
        room = out.width - sum(_GAP + (column.min_width or 0) for column in others)
        names = min(names, max(room, _SHORTEST_NAME))
        first.max_width = names
    while others:
        room, block = out.width - names, []
        while others and (not block or _GAP + (others[0].min_width or 0) <= room):
            block.append(others.pop(0))
            room -= _GAP + (block[-1].min_width or 0)
        table.columns = [first, *block]
        for place, column in enumerate(table.columns):
            column._index = place  # rich pads all columns but the last, by this number
        numbers = out.width - room - names
        out.print(_Whole(table, min(names, _SHORTEST_NAME) + numbers), crop=False)
        if others:
            out.print()


def say(text: str, style: str = "") -> None:
    """Prints a sentence; nothing in it is markup."""
    out.print(_Prose(Text(text, style=style)))


def beware(text: str) -> None:
    """Prints a warning about the table above."""
    out.print(_Prose(Text("! ", style="bold yellow").append(text, style="not bold default")))


def explain(words: Mapping[str, str], wanted: bool, page: str = "") -> None:
    """Prints the explanations of a table with --explain, and a hint to that flag without it."""
    if not wanted:
        out.print("--explain says more.", style="dim")
        return
    explained = table(show_header=False)
    explained.add_column(no_wrap=True, style="bold")
    explained.add_column()
    for name, text in words.items():
        if text:
            explained.add_row(Text(name), _Prose(Text(text)))
    out.print()
    out.print(explained)
    if page:
        show_files({"Documentation": f"docs/{page}.md"})


def command(line: str) -> None:
    """Prints a command line."""
    out.print()
    out.print(Text("$ " + line, style="bold cyan"), soft_wrap=True)


def show_files(files: Mapping[str, object]) -> None:
    """Prints the files that were written, by their contents; leaves out those that are None."""
    for name, path in files.items():
        if path is not None:
            out.print(Text(f"{name}: {path}", style="dim"), soft_wrap=True)


def deliver(answer: Answer, command: str, output: Output) -> None:
    """Writes an answer to the files of --out and --plot, and prints it: as JSON, or for people."""
    with status("Writing …"):
        if output.plot is not None and type(answer).figure is Answer.figure:
            answer.figure()  # says that there is none, before a file is written
        if output.out is not None:
            answer.write(output.out, output.top)
        if output.plot is not None:
            draw(output.plot, answer.figure)
        facts: dict[str, Any] = {}
        if output.json:
            with ending_at_once():
                facts = answer.to_dict(output.top)
    if output.json:
        record({"command": command, **facts, **output.files})
        return
    for line in answer.title.splitlines():
        say(line)
    warn(answer.warnings)
    show_blocks(answer.blocks(output.top))
    words = {}
    if output.explain:
        with ending_at_once():
            words = answer.words
    explain(words, output.explain, answer.page)
    of_people = output.out is not None and output.out.suffix.lower() == ".tex"
    show_files({"Table" if of_people else answer.written: output.out, "Figure": output.plot})


def show_blocks(blocks: Iterable[Block]) -> None:
    """Prints the blocks of an answer, with an empty line around each table."""
    before: Block | None = None
    for block in blocks:
        if isinstance(block, Cells | Heading) or before is None or isinstance(before, Cells):
            out.print()
        if isinstance(block, Cells):
            show_cells(block)
        elif isinstance(block, Heading):
            out.print(Text(block.text, style="bold"))
        elif isinstance(block, Caution):
            beware(block.text)
        else:
            say(block)
        before = block


def show_cells(cells: Cells) -> None:
    """Prints a table of an answer."""
    named = cells.headings[:-2] if cells.bars else cells.headings
    headed = any(cells.headings)
    made = table(*map(Text, named), names=cells.names, max_width=cells.width, show_header=headed)
    for column in made.columns[headed : cells.names]:
        column.no_wrap = False  # sentences, and names beside the one that stands in every block
    for _ in range(2 * cells.bars):
        made.add_column("", no_wrap=True)
    for row in cells.rows:
        made.add_row(*map(Text, row))
    show_table(made, bars=cells.bars)
    if cells.rest:
        say(cells.rest, style="dim")


def draw(plot: Path, make: Callable[[], Figure]) -> None:
    """Draws a figure, and writes it."""
    with drawing():
        from rrjax.figures import save

        with ending_at_once():
            figure = make()
        save(figure, plot)
