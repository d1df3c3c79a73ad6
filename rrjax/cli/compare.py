"""`rrjax compare`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from rrjax.cli import show
from rrjax.cli.design import SurveyDesign
from rrjax.cli.options import WHICH, Level, Ordered, Output, Top, ask, estimator_name, estimator_names, flags
from rrjax.cli.paths import READS
from rrjax.cli.reading import PANEL, Epsilon, Files, Format, Reading, ReportFiles, other_files, read_any
from rrjax.estimators.names import BY_NAME, USUAL


@dataclasses.dataclass(frozen=True)
class ComparisonOutput(Output):
    """Output with fewer rows, because they are wider."""

    top: Top = 10


@flags()
def compare(
    reports: ReportFiles,
    *,
    truth: Annotated[
        list[str] | None, typer.Option(help="A file of the true values; repeatable, globs work."), READS
    ] = None,
    epsilon: Epsilon = None,
    design: SurveyDesign,
    reading: Reading,
    output: ComparisonOutput,
    truth_column: Annotated[
        str | None, typer.Option(help="Column of the file of --truth.", rich_help_panel=PANEL)
    ] = None,
    truth_format: Annotated[
        Format | None, typer.Option(help="Format of the file of --truth.", rich_help_panel=PANEL)
    ] = None,
    truth_counts: Annotated[
        str | None,
        typer.Option(help="The file of --truth holds counts already: the column they are in.", rich_help_panel=PANEL),
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            parser=estimator_name,
            autocompletion=estimator_names,
            metavar="NAME",
            help=f"In place of all: {', '.join(USUAL)}. Or, by name only: {', '.join(BY_NAME)}. Repeatable.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    ordered: Ordered = False,
    level: Level = 0.95,
) -> None:
    """Run all estimators on the same reports, and measure them against the truth if it is given.

    rrjax compare reports.parquet --truth values.csv --truth-column city

    --header, --delimiter, --items and --missing apply to both files.
    """
    from rrjax.reports.numbers import Numbers
    from rrjax.reports.reports import Reports

    design.check_one_sample()
    true = other_files(reading, truth, truth_column, truth_format, truth_counts, "--truth")
    with show.status("Counting …"):
        known = read_any(Files(reports, reading), epsilon, design)
        shares = None
        if true is not None and isinstance(known, Reports | Numbers):
            shares = known.shares_in(true.source, true.reading.counts)
    given = {"estimators": estimator, "ordered": ordered, "level": None if level == 0.95 else level}
    show.deliver(ask(known, "compare", truth=shares, **given), "compare", output)
