"""`rrjax estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rrjax.catalogue import ESTIMATORS
from rrjax.cli import show
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
    write,
)
from rrjax.cli.options import PANEL, Json, Level, Out, Plot, Top, estimator_name, flags
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

DEFAULT = next(iter(ESTIMATORS))


@flags()
def estimate(
    reports: Reports,
    reading: Reading,
    epsilon: Epsilon = None,
    estimator: Annotated[
        str,
        typer.Option(
            parser=estimator_name,
            metavar="NAME",
            help=f"Which estimator: {', '.join(ESTIMATORS)}; mle_star is the exact maximum likelihood.",
        ),
    ] = DEFAULT,
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
    """Estimate the true distribution from randomized reports, with intervals and a certificate.

    rrjax estimate reports.parquet

    rrjax estimate reports.csv --column answer --epsilon 1 --domain answers.txt --out estimate.csv
    """
    check_rate("--level", level)
    check_rate("--fdr", fdr, small=True)
    run(Files(reports, reading), epsilon, estimator, (level, at_once, fdr), (out, plot), top, json)


def run(
    files: Files,
    epsilon: float | None,
    estimator: str,
    rates: tuple[float, bool, float],
    outputs: tuple[Path | None, Path | None],
    top: int,
    json: bool,
) -> None:
    """Reads, estimates, writes and says it."""
    out, plot = outputs
    show.check_formats(out, plot)
    check_outputs([files], out, plot)
    with show.err.status("Counting …") as status:
        collection = read_collection(files, epsilon)
        status.update("Estimating …")
        found = estimated(collection, estimator)
        sure = known(collection, *rates)
        status.update("Writing …")
        if out is not None:
            columns = {"estimate": found.theta, "lower": sure.lower, "upper": sure.upper, "found": sure.found}
            write(out, collection, columns)
        if plot is not None:
            draw(plot, collection, [found], None, sure.level)
    if json:
        show.record(
            {"command": "estimate"}
            | collection.facts()
            | {"standard_error": collection.standard_error, "out": out, "plot": plot}
            | found.facts()
            | {
                "level": sure.level,
                "at_once": sure.at_once,
                "fdr": sure.fdr,
                "num_found": int(sure.found.sum()),
                "num_contradicted": int(sure.contradicted.sum()),
                "num_outside_interval": int(sure.misses(found.theta).sum()),
                "top": largest_rows(collection, [found], top, sure=sure),
            }
        )
        return
    show.say(collection.summary())
    show.warn(collection.warnings)
    show.out.print()
    show_largest(collection, [found], top, sure=sure)
    show.out.print()
    _show_sureness(collection, found, sure)
    _show_verdict(collection, found)
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
            f"Intervals are exact, at zero too, and hold each one with {level}; of those that are picked because they "
            "came out largest, fewer hold: --at-once is for them."
        )
    contradicted = int(sure.contradicted.sum())
    if contradicted:
        alone = (1 - sure.level) / 2 / (size if sure.at_once else 1)
        show.out.print(
            f"! {show.number(contradicted, 'interval is', 'intervals are')} a single end, 0 or "
            "100\N{NO-BREAK SPACE}%: no share explains so few reports, or so many. By chance at most "
            f"{show.percent(alone)} of the categories are like that; where more are, or one by far, is ε right? See "
            "rrjax test fit."
        )
    outside = sure.misses(found.theta)
    if outside.any():
        show.out.print(
            f"{found.title} lies outside the interval of {int(outside.sum()):,} of {size:,} categories, "
            f"{int((outside & sure.found).sum()):,} of those that are there: an interval is about one category, an "
            "estimate makes all of them fit together, and with many categories that costs bias. For a share that was "
            "named beforehand believe the interval."
        )


def _show_verdict(collection: Collection, found: Estimate) -> None:
    """The certificate in words, and how noisy the collection is."""
    show.out.print(
        f"{found.title}: {found.num_positive:,} of {collection.num_categories:,} categories "
        f"{'has' if found.num_positive == 1 else 'have'} a positive share; "
        f"negative log-likelihood {found.nll:.6f} nats per report."
    )
    if found.proper:
        certificate = found.certificate
        show.out.print(
            f"Certificate: log-likelihood within {show.at_most(certificate['gap'])} of the maximum (nats per report); "
            f"total variation at most {show.at_most(min(certificate['l1_bound'] / 2, 1))} from the maximum likelihood "
            "estimate."
        )
    else:
        show.out.print("No certificate: this estimate is not a distribution (it has negative shares).")
    show.out.print(
        f"Noise: a category that nobody holds is estimated with a standard error of "
        f"{show.percent(collection.standard_error)} (unbiased inversion)."
    )
    if found.note:
        show.out.print(found.note)
