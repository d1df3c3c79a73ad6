"""`rrjax compare`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
import typer

from rrjax.cli import numbers, show
from rrjax.cli.design import SurveyDesign
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import WHICH, Level, Ordered, Output, Top, check_rate, estimator_name, estimator_names, flags
from rrjax.cli.outlets import deliver
from rrjax.cli.paths import READS
from rrjax.cli.reading import PANEL, Epsilon, Files, Format, Reading, ReportFiles, other_files, read_collection
from rrjax.estimators.catalogue import ESTIMATORS
from rrjax.io.numbers import of_numbers
from rrjax.reports.comparison import everything
from rrjax.reports.reports import Reports
from rrjax.reports.truth import read_truth


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
            help=f"In place of all: {', '.join(everything(ordered=True))}. Or, by name only: "
            f"{', '.join(name for name, entry in ESTIMATORS.items() if entry.by_name)}. Repeatable.",
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
    true = other_files(reading, truth, truth_column, truth_format, truth_counts, "--truth")
    check_rate("--level", level)
    files = Files(reports, reading)
    if of_numbers(files.source.metadata()):
        numbers.refuse_others(
            files,
            {
                "--mechanism": design.mechanism,
                "--estimator": estimator,
                "--ordered": ordered,
                "--plot": output.plot,
                "--level": level != 0.95,
                "--top": output.top != ComparisonOutput.top,
                "--truth-counts": truth_counts,
            },
        )
        numbers.compare(numbers.read_numbers(files, epsilon), true, output)
        return
    with show.status("Counting …"):
        collection = read_collection(files, epsilon, design)
        shares = read_truth(true.source, true.reading.counts, collection) if true else None
    run(collection, shares, output, estimators=estimator, ordered=ordered, level=level)


def run(reports: Reports, truth: np.ndarray | None, output: Output, **asked: Any) -> None:
    """Runs the estimators, measures them against the truth, writes and prints the results."""
    with show.status("Estimating …"), ending_at_once():
        answer = reports.compare(truth, **asked)
    deliver(answer, "compare", output)
