"""`rrjax estimate`."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rrjax.catalogue import CLOSEST, CLOSEST_IN_ORDER, ESTIMATORS, LIKELIEST, MAXIMIZER
from rrjax.cli import show
from rrjax.cli.errors import UsageError
from rrjax.cli.estimates import (
    FDR,
    Confidence,
    Estimate,
    draw,
    estimated,
    known,
    largest_rows,
    show_largest,
    show_written,
    side_by_side,
    write,
)
from rrjax.cli.options import PANEL, Json, Level, Ordered, Out, Plot, Top, estimator_name, flags
from rrjax.cli.reading import (
    Collection,
    Epsilon,
    Files,
    Reading,
    Reports,
    check_outputs,
    check_rate,
    read_collection,
)
from rrjax.cli.statements import Asked
from rrjax.cli.statements import run as state


def leading(collection: Collection, ordered: bool = False) -> list[str]:
    """The closest estimate, and the likeliest one beside it, where the likelihood of these reports can be had."""
    likeliest = LIKELIEST if collection.tallied is None else MAXIMIZER
    able = collection.given(ESTIMATORS[likeliest]) is not None
    return [CLOSEST_IN_ORDER if ordered else CLOSEST] + [likeliest] * able


@flags()
def estimate(
    reports: Reports,
    reading: Reading,
    asked: Asked,
    epsilon: Epsilon = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            parser=estimator_name,
            metavar="NAME",
            help=f"One estimator in place of {CLOSEST} (the closest) with {LIKELIEST} (the likeliest) beside it: "
            f"{', '.join(ESTIMATORS)}.",
        ),
    ] = None,
    ordered: Ordered = False,
    level: Level = 0.95,
    at_once: Annotated[
        bool,
        typer.Option("--at-once", help="Intervals that cover all at once, not each one.", rich_help_panel=PANEL),
    ] = False,
    fdr: Annotated[
        float, typer.Option(help="False discovery rate of the categories marked as there.", rich_help_panel=PANEL)
    ] = FDR,
    out: Out = None,
    plot: Plot = None,
    top: Top = 20,
    json: Json = False,
) -> None:
    """Estimate the true distribution from randomized reports: the closest estimate, the likeliest, and intervals.

    rrjax estimate reports.parquet

    rrjax estimate reports.csv --column answer --epsilon 1 --domain answers.txt --out estimate.csv

    rrjax estimate survey.csv --column age --epsilon 1 --domain 0:99 --mean --group "young=0:29" --by region
    """
    check_rate("--level", level)
    check_rate("--fdr", fdr, small=True)
    if estimator is not None and ordered:
        raise UsageError(f"--ordered leads with {CLOSEST_IN_ORDER}, --estimator with {estimator}: give one of the two")
    if asked.any():
        chosen = {"--estimator": estimator, "--ordered": ordered, "--at-once": at_once}
        odd = next((flag for flag, given in chosen.items() if given), None)
        if odd is not None:
            raise UsageError(
                f"{odd} is about the shares of all categories; --mean, --quantile, --group, --by and --weights are not"
            )
        files = Files(reports, reading)
        show.check_formats(out, plot)
        others = [] if asked.population is None else [Files([str(asked.population)])]
        check_outputs([files, *others], out, plot)
        with show.err.status("Counting …"):
            collection = read_collection(files, epsilon)
        state(collection, asked, level, (out, plot), json, top)
        return
    run(Files(reports, reading), epsilon, estimator, (level, at_once, fdr), (out, plot), top, json, ordered=ordered)


def run(
    files: Files,
    epsilon: float | None,
    name: str | None,
    rates: tuple[float, bool, float],
    outputs: tuple[Path | None, Path | None],
    top: int,
    json: bool,
    *,
    ordered: bool = False,
) -> None:
    """Reads, estimates, writes and says it."""
    out, plot = outputs
    show.check_formats(out, plot)
    check_outputs([files], out, plot)
    with show.err.status("Counting …") as status:
        collection = read_collection(files, epsilon)
        status.update("Estimating …")
        names = leading(collection, ordered) if name is None else [name]
        tasks = [partial(estimated, collection, each) for each in names]
        *estimates, sure = side_by_side([*tasks, partial(known, collection, *rates)])
        found, *beside = estimates
        columns = {"estimate": found.theta} | {other.estimator.name: other.theta for other in beside}
        status.update("Writing …")
        if out is not None:
            write(out, collection, columns | {"lower": sure.lower, "upper": sure.upper, "found": sure.found})
        if plot is not None:
            draw(plot, collection, estimates, None, sure.level)
    if json:
        show.record(
            {"command": "estimate"}
            | collection.facts()
            | {"standard_error": collection.standard_error, "out": out, "plot": plot}
            | found.facts()
            | {other.estimator.name: other.facts() for other in beside}
            | {
                "level": sure.level,
                "at_once": sure.at_once,
                "fdr": sure.fdr,
                "num_found": int(sure.found.sum()),
                "num_contradicted": int(sure.contradicted.sum()),
                "num_outside_interval": int(sure.misses(found.theta).sum()),
                "num_found_outside_interval": int((sure.misses(found.theta) & sure.found).sum()),
                "top": largest_rows(collection, columns, top, sure=sure),
            }
        )
        return
    show.say(collection.summary())
    show.warn(collection.warnings)
    show.out.print()
    show_largest(collection, estimates, top, sure=sure)
    show.out.print()
    _show_sureness(collection, found, sure)
    _show_verdict(collection, estimates)
    show_written(out, plot)


def _show_sureness(collection: Collection, found: Estimate, sure: Confidence) -> None:
    """How many categories are there, what the intervals are, and where the estimate contradicts them."""
    number, size = int(sure.found.sum()), collection.num_categories
    rest = "" if number == size else "; of the others the reports do not tell"
    show.out.print(
        f"● {number:,} of {size:,} categories {'is' if number == 1 else 'are'} there, at a false discovery rate of "
        f"{show.percent(sure.fdr)}{rest}."
    )
    level = f"{100 * sure.level:.12g}\N{NO-BREAK SPACE}% confidence"
    if sure.at_once:
        show.out.print(f"Intervals are exact, at zero too, and hold all at once with {level}.")
    else:
        show.out.print(
            f"Intervals are exact, at zero too, and hold each one with {level}; of those picked because they came out "
            "largest, fewer hold: --at-once is for them."
        )
    contradicted = int(sure.contradicted.sum())
    if contradicted:
        alone = (1 - sure.level) / 2 / (size if sure.at_once else 1)
        show.out.print(
            f"! {show.number(contradicted, 'interval is', 'intervals are')} a single end, 0 or "
            "100\N{NO-BREAK SPACE}%: no share explains so few reports, or so many. By chance at most "
            f"{show.percent(alone)} of the categories are like that. Where more are, or one by far: {collection.doubt}"
        )
    outside = int((sure.misses(found.theta) & sure.found).sum())
    if outside:
        of = "of the category that is" if number == 1 else f"for {outside:,} of the {number:,} that are"
        show.out.print(
            f"{found.title} lies outside the interval {of} there: an estimate makes all shares fit together, an "
            "interval is about one. For a share that was named beforehand believe the interval."
        )


def _show_verdict(collection: Collection, estimates: list[Estimate]) -> None:
    """What each estimate is, with its certificate in words, and how noisy the collection is."""
    for found in estimates:
        if found.note:
            show.out.print(found.note)
        if found is estimates[0] and len(estimates) > 1:
            continue  # it is not made to be likely; its figures are in the JSON object
        # Of other mechanisms the likelihood is known up to a factor.
        nll = f"; negative log-likelihood {found.nll:.6f} nats per report" if collection.tallied is None else ""
        show.out.print(
            f"{found.title}: {found.num_positive:,} of {collection.num_categories:,} categories "
            f"{'has' if found.num_positive == 1 else 'have'} a positive share{nll}."
        )
        if collection.joint is None:
            show.out.print(
                "No certificate: the likelihood of whole reports is left out, because there are too many for the "
                f"categories ({collection.num_reports:,} × {collection.num_categories:,})."
            )
        elif found.proper:
            certificate = found.certificate
            near = certificate["l1_bound"] / 2
            bound = f"; total variation at most {show.at_most(min(near, 1))} from the maximum likelihood estimate"
            show.out.print(
                f"Certificate: log-likelihood within {show.at_most(certificate['gap'])} of the maximum (nats per "
                f"report){bound if math.isfinite(near) else ''}."
            )
        else:
            show.out.print("No certificate: this estimate is not a distribution (it has negative shares).")
    show.out.print(
        f"Noise: a category that nobody holds is estimated with a standard error of "
        f"{show.percent(collection.standard_error)} (unbiased inversion)."
    )
