"""`rrjax report`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rrjax.cli import show
from rrjax.cli.design import SurveyDesign
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.longitudinal import PANEL
from rrjax.cli.options import Level, Ordered, StatementFlags, flags, taken
from rrjax.cli.paths import READS, WRITES
from rrjax.cli.reading import Epsilon, Files, Reading, ReportFiles, read_any, read_collection
from rrjax.data.errors import UsageError, check_installed, check_rate

MOST_ROWS = 5000


@flags()
def report(
    context: typer.Context,
    reports: ReportFiles,
    *,
    epsilon: Epsilon = None,
    design: SurveyDesign,
    reading: Reading,
    memo: Annotated[
        Path | None,
        typer.Option(
            help="The memo of a longitudinal protocol: the page then says how many permanent answers users have. "
            "Nothing else of it is shown.",
            rich_help_panel=PANEL,
        ),
        READS,
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write (.html). By default NAME-report.html in the current folder, where NAME is that of "
            "the first file."
        ),
        WRITES,
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file of --out even where it is no page of rrjax.")
    ] = False,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    top: Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="How many of the largest categories to list.")] = 20,
    asked: StatementFlags,
    ordered: Ordered = False,
    level: Level = 0.95,
) -> None:
    """Make one HTML page about a file of reports, for readers who do not use the command line.

    rrjax report reports.parquet

    rrjax report survey.csv --column age --epsilon 1 --domain 0:99 --ordered --group "young=0:29" --title "How old?"

    rrjax report monday.parquet tuesday.parquet --memo memo.parquet

    The page shows shares with intervals, a test of the reports, the meaning of ε, and how it was made. Of several
    columns that were randomized apart it shows the shares of each, and which go together. It is readable on screens,
    phones and paper.
    """
    check_installed("plots", "A page with figures", "matplotlib")
    from rrjax.figures.html import is_page
    from rrjax.io.rounds import several_rounds
    from rrjax.io.write import check_writable
    from rrjax.reports.pages.kinds import column_page, columns_page, rounds_page
    from rrjax.reports.reports import Reports
    from rrjax.reports.rounds import Rounds
    from rrjax.reports.separate_columns import SeparateColumns

    check_rate("level", level)
    files = Files(reports, reading)
    about, by_default = os.path.realpath(files.source.files()[0]), out is None
    name = Path(files.name.removesuffix(".gz")).stem.lstrip(".") or "rrjax"
    out = Path(f"{name}-report.html") if out is None else out
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError.about("--out", f"{out}: a page is written as .html", value=out)
    check_writable(out)  # also where it has the default name
    if not force and out.exists() and not is_page(out):
        raise UsageError.about(
            "--out",
            f"{out} is there already, and rrjax did not make it: write to another file, or replace it with --force",
            value=out,
        )
    if not force and by_default and out.exists() and not is_page(out, about):
        problem = "is a page about other reports: write to another file, or replace it with --force"
        raise UsageError.about("--out", f"{out} {problem}", value=out)
    source = files.source
    columns = source.column is None and len(source.columns()) > 1
    metadata = None if columns else source.metadata()
    rounds = metadata is not None and bool(several_rounds(source))
    kind, page_of = (
        (SeparateColumns, columns_page) if columns else (Rounds, rounds_page) if rounds else (Reports, column_page)
    )
    given = taken(page_of, kind.called_kind, kind.instead, ordered=ordered, asked=asked.given, memo=memo)
    if memo is not None and (metadata is None or metadata.round is None):
        problem = f"{memo} is of a longitudinal protocol, and {files.name} holds other reports: leave it out"
        raise UsageError.about("--memo", problem, value=memo)
    with show.status("Counting …") as status:
        collection: Any = (read_collection if kind is Reports else read_any)(files, epsilon, design)
        status.update("Estimating …")
        with ending_at_once():
            page = page_of(collection, level, top, **given)
        status.update("Writing …")
        line = ("rrjax", str(context.info_name), *_words_of(context))
        page.write(out, title, [shlex.quote(word) for word in line], about)
    show.say(collection.summary())
    show.warn(page.warnings)
    show.show_files({"Page": out})


def _words_of(context: typer.Context) -> Iterator[str]:
    """The words of the command as it was given, with file names in place of paths."""
    for parameter in context.command.params:
        value: Any = context.params.get(parameter.name or "")
        source = context.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE":
            continue
        is_argument = parameter.param_type_name == "argument"
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, bool):
                yield (parameter.opts if each else parameter.secondary_opts)[-1]
                continue
            text = f"{each:.12g}" if isinstance(each, float) else str(each)
            is_path = is_argument or isinstance(each, Path) or (os.sep in text and os.path.lexists(text))
            yield from ([] if is_argument else [parameter.opts[-1]])
            yield Path(text).name if is_path else text
