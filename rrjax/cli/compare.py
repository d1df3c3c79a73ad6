"""`rrjax compare`."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Annotated

import numpy as np
import typer

from rrjax import io
from rrjax.cli import numbers, show
from rrjax.cli.design import SurveyDesign
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import WHICH, Level, Ordered, Output, Top, check_rate, estimator_name, estimator_names, flags
from rrjax.cli.outlets import draw, show_cells
from rrjax.cli.paths import READS
from rrjax.cli.reading import PANEL, Epsilon, Files, Format, Reading, ReportFiles, other_files, read_collection
from rrjax.cli.truth import read_truth
from rrjax.data.errors import UsageError
from rrjax.estimators.catalogue import ESTIMATORS, MAXIMIZER, METRICS
from rrjax.io.numbers import of_numbers
from rrjax.numerics.programs import program
from rrjax.reports import form
from rrjax.reports.contradictions import check_contradictions
from rrjax.reports.estimates import (
    Estimate,
    cells_of,
    estimated,
    of_reports,
    rows_of,
    share_figure,
    side_by_side,
    too_large,
)
from rrjax.reports.reports import Reports

SHOWN = ("empirical_bayes", "ordered_bayes", "mle_star", MAXIMIZER, "inv_p")
"""Estimators whose shares are printed if more than four were run; the file of --out holds all."""
MOST_SHOWN = 4
ERRORS = {"mse": "squared", "tv": "TV", "kl": "KL", "max_error": "max"}
"""Metrics of a single estimate, and their headings."""


def everything(ordered: bool = False) -> list[str]:
    """Estimators that run unless some are named; those for ordered categories only if the order means something."""
    return [name for name, entry in ESTIMATORS.items() if not entry.by_name and (ordered or not entry.ordered)]


def able(collection: Reports, ordered: bool = False) -> list[str]:
    """The estimators of `everything` that can be run on these reports."""
    names = everything(ordered)
    if collection.tallied is not None:  # whose maximum may have a closed form
        names = [MAXIMIZER if name == "ibu" else name for name in names]
    return [name for name in names if collection.arguments_for(ESTIMATORS[name]) is not None]


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
    if estimator and ordered:
        raise UsageError(
            "--ordered adds ordered_bayes to all estimators, --estimator picks some: give one of the two",
            flag="--ordered",
            value=estimator,
        )
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
                "--explain": output.explain,
                "--truth-counts": truth_counts,
            },
        )
        numbers.compare(numbers.read_numbers(files, epsilon), true, output)
        return
    with show.status("Counting …"):
        collection = read_collection(files, epsilon, design)
        shares = read_truth(true, collection, "--truth") if true else None
    run(collection, shares, list(dict.fromkeys(estimator or able(collection, ordered))), output, level)


def run(collection: Reports, truth: np.ndarray | None, names: list[str], output: Output, level: float) -> None:
    """Runs the named estimators, measures them against the truth, writes and prints the results."""
    with show.status("Estimating …") as status:
        tasks = [partial(estimated, collection, name) for name in names]
        with ending_at_once():
            *estimates, _ = side_by_side([*tasks, partial(check_contradictions, collection)])
        shown = [found for name in SHOWN for found in estimates if found.estimator.name == name]
        shown = (shown or estimates[:MOST_SHOWN]) if len(estimates) > MOST_SHOWN else estimates
        errors = None if truth is None else [_errors(found, truth) for found in estimates]
        status.update("Writing …")
        columns = {found.estimator.name: found.theta for found in estimates}
        if output.out is not None:
            table = {"label": collection.labels, "count": collection.counts} | columns
            io.write_table(output.out, collection.table(table | ({} if truth is None else {"truth": truth})))
        if output.plot is not None:
            draw(output.plot, partial(share_figure, collection, shown, truth, level))
    if output.json:
        rows = [found.facts() for found in estimates]
        if errors is not None:
            rows = [row | {"errors": error} for row, error in zip(rows, errors, strict=True)]
        show.record(
            {"command": "compare"}
            | collection.facts()
            | {"standard_error": collection.standard_error}
            | output.files
            | {
                "estimators": rows,
                "top": rows_of(collection, {shown[0].estimator.name: shown[0].theta} | columns, output.top, truth),
            }
        )
        return
    show.say(collection.summary())
    show.warn(collection.warnings)
    show.out.print()
    _show_comparison(collection, estimates, errors)
    show.out.print()
    show_cells(cells_of(collection, shown, [each.title for each in shown], output.top, truth))
    show.explain(_explanations(collection, estimates, measured=truth is not None), output.explain, "choose/estimator")
    show.show_files({"All categories": output.out, "Figure": output.plot})


@ending_at_once()
def _errors(found: Estimate, truth: np.ndarray) -> dict[str, float]:
    """The distances of an estimate from the truth, by name."""
    distances = _distances(found.theta, truth)  # a program's dictionary comes back in another order
    return {name: found.measured(name, distances[name]) for name in ERRORS}


@program
def _distances(theta, truth):
    measures = {name: METRICS[name].measure for name in ERRORS}
    return {name: measure(theta, truth, None, None) for name, measure in measures.items() if measure is not None}


def _show_comparison(collection: Reports, estimates: list[Estimate], errors: list[dict[str, float]] | None) -> None:
    """Prints one row per estimator: likelihood, certificate and, if the truth is known, errors."""
    table = show.table("", "> 0", "< 0", "NLL", "gap", *(ERRORS.values() if errors is not None else ()))
    for row, found in enumerate(estimates):
        cells = [
            found.title,
            f"{found.num_positive:,}",
            f"{int((found.theta < 0).sum()):,}",
            "–" if math.isnan(found.nll) else f"{found.nll:.6f}",
            form.at_most(found.certificate["gap"], 2) if found.proper else "–",
        ]
        if errors is not None:
            values = [errors[row][name] for name in ERRORS]
            cells += ["–" if math.isnan(value) else "∞" if math.isinf(value) else f"{value:.3g}" for value in values]
        table.add_row(*cells)
    show.show_table(table)
    constant = "" if collection.tallied is None or collection.design is not None else ", up to a constant"
    reasons = ["not computed"] * (collection.likelihood_arguments is None)
    reasons += ["not a distribution"] * any(not found.proper for found in estimates)
    undefined = f" (–:\N{NO-BREAK SPACE}{' or '.join(reasons)})" if reasons else ""
    show.say(
        "> 0, < 0: categories with a positive or negative share; NLL: negative log-likelihood of the reports"
        f"{constant} (nats per report); gap: upper bound on NLL minus the smallest of any distribution{undefined}."
    )
    show.say(
        "The smallest NLL is the likeliest estimate, which need not be the closest to the truth: --truth FILE measures "
        "the distance."
        if errors is None
        else "squared, TV, KL (nats), max: distances from the truth; smaller is closer."
    )
    for found in estimates:
        if found.caution:
            show.beware(found.caution)


def _explanations(collection: Reports, estimates: list[Estimate], *, measured: bool) -> dict[str, str]:
    """Explains each row and each column."""
    words = {found.title: found.note for found in estimates}
    words["NLL"] = ""
    if collection.likelihood_arguments is None:
        words["NLL"] = f"not computed: {too_large(collection)}"
    elif collection.tallied is not None and collection.design is None:
        words["NLL"] = (
            "a constant is left out for reports of this mechanism, so NLL may be negative; differences between rows "
            "do not depend on it"
        )
    words["gap"] = "a certificate of the estimate: no distribution has an NLL that is smaller by more (nats per report)"
    if measured:
        words |= {
            "squared": "sum of the squared errors of all categories",
            "TV": "total variation: half the sum of the absolute errors, a share of the users",
            "KL": "Kullback–Leibler divergence from the truth, nats; ∞ if an estimate is zero and the category is not "
            "empty",
            "max": "the largest error of a category, a share",
        }
    improper = [found.title for found in estimates if not found.proper]
    if improper:
        undefined = " and KL" if measured else ""
        words["–"] = (
            f"{', '.join(improper)}: shares are negative or do not sum to one, so this is not a distribution; NLL, gap"
            f"{undefined} are defined for distributions only"
        )
    return words | of_reports(collection)
