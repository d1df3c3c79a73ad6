"""`rrjax estimate`."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rrjax.catalogue import CLOSEST, CLOSEST_IN_ORDER, ESTIMATORS, LIKELIEST, MAXIMIZER
from rrjax.cli import show
from rrjax.cli.estimates import (
    FDR,
    Confidence,
    Estimate,
    draw,
    estimated,
    known,
    largest_rows,
    of_reports,
    show_largest,
    show_written,
    side_by_side,
    write,
)
from rrjax.cli.options import (
    SURE,
    WHICH,
    Explain,
    Json,
    Level,
    Ordered,
    Out,
    Plot,
    Top,
    estimator_name,
    estimator_names,
    flags,
)
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
from rrjax.errors import UsageError

PLAIN = {CLOSEST: "closest", CLOSEST_IN_ORDER: "closest", LIKELIEST: "likeliest", MAXIMIZER: "likeliest"}
"""What columns are headed by where nobody asked for an estimator."""


def leading(collection: Collection, ordered: bool = False) -> list[str]:
    """The closest estimate, and the likeliest one beside it, where the likelihood of these reports can be had."""
    likeliest = LIKELIEST if collection.tallied is None else MAXIMIZER
    able = collection.given(ESTIMATORS[likeliest]) is not None
    return [CLOSEST_IN_ORDER if ordered else CLOSEST] + [likeliest] * able


@flags()
def estimate(
    reports: Reports,
    *,
    epsilon: Epsilon = None,
    reading: Reading,
    out: Out = None,
    plot: Plot = None,
    top: Top = 20,
    explain: Explain = False,
    json: Json = False,
    asked: Asked,
    estimator: Annotated[
        str | None,
        typer.Option(
            parser=estimator_name,
            autocompletion=estimator_names,
            metavar="NAME",
            help=f"One estimator in place of {CLOSEST} (the closest) with {LIKELIEST} (the likeliest) beside it: "
            f"{', '.join(ESTIMATORS)}.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    ordered: Ordered = False,
    level: Level = 0.95,
    at_once: Annotated[
        bool,
        typer.Option("--at-once", help="Intervals that cover all at once, not each one.", rich_help_panel=SURE),
    ] = False,
    fdr: Annotated[
        float,
        typer.Option(
            help="False discovery rate: which part of the categories marked as there may be wrong, on average.",
            rich_help_panel=SURE,
        ),
    ] = FDR,
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
        state(collection, asked, level, (out, plot), json, top, explain=explain)
        return
    rates = level, at_once, fdr
    run(Files(reports, reading), epsilon, estimator, rates, (out, plot), top, json, ordered=ordered, explain=explain)


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
    explain: bool = False,
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
    headings = [PLAIN[each] if name is None else ESTIMATORS[each].title for each in names]
    show_largest(collection, estimates, top, sure=sure, headings=headings)
    show.out.print()
    for sentence in sureness(collection, sure):
        show.say(sentence)
    for sentence in cautions(collection, estimates, sure):
        show.beware(sentence)
    show.explain(explanations(collection, estimates, headings, sure), explain, "inference")
    show_written(out, plot)


def sureness(collection: Collection, sure: Confidence) -> list[str]:
    """Two sentences: which categories are there, and what the intervals are."""
    number, size = int(sure.found.sum()), collection.num_categories
    rate = show.in_full(sure.fdr)
    rest = "" if number == size else "; the others may be rare, or nobody's"
    there = (
        f"● marks the {number:,} of {size:,} categories that somebody holds, as the reports show (on average at most "
        f"{rate} of such marks are wrong){rest}."
        if number
        else f"The reports show of no category that somebody holds it (if at most {rate} of such marks may be wrong)."
    )
    level = f"{show.in_full(sure.level)} confidence"
    if sure.at_once:
        return [there, f"The intervals hold the true shares of all categories at once, with {level}."]
    return [
        there,
        f"Each interval holds the true share of its category with {level}; for the largest, picked after looking, use "
        "--at-once, whose intervals are wider.",
    ]


def cautions(collection: Collection, estimates: list[Estimate], sure: Confidence) -> list[str]:
    """What protects from a wrong reading of the table, where there is such a thing."""
    found, number, size = estimates[0], int(sure.found.sum()), collection.num_categories
    said = [each.caution for each in estimates if each.caution]
    contradicted = int(sure.contradicted.sum())
    if contradicted:
        alone = (1 - sure.level) / 2 / (size if sure.at_once else 1)
        said.append(
            f"{show.number(contradicted, 'interval is', 'intervals are')} a single end, 0 or "
            "100\N{NO-BREAK SPACE}%: no share explains so few reports, or so many. By chance at most "
            f"{show.percent(alone)} of the categories are like that. Where more are, or one by far: {collection.doubt}"
        )
    outside = int((sure.misses(found.theta) & sure.found).sum())
    if outside:
        of = "of the category that is" if number == 1 else f"for {outside:,} of the {number:,} that are"
        said.append(
            f"{found.title} lies outside the interval {of} there: an estimate makes all shares fit together, an "
            "interval is about one. For a share that was named beforehand believe the interval."
        )
    return said


def explanations(
    collection: Collection, estimates: list[Estimate], headings: list[str], sure: Confidence
) -> dict[str, str]:
    """What each column is, how far the likelihood is from its maximum, and how noisy the collection is."""
    found, names = estimates[-1], [_named(*each) for each in zip(headings, estimates, strict=True)]
    words = of_reports(collection) | {name: each.note for name, each in zip(names, estimates, strict=True)}
    # Of other mechanisms the likelihood is known up to a factor.
    nll = f"; negative log-likelihood {found.nll:.6f} nats per report" if collection.tallied is None else ""
    positive = (
        f"{found.num_positive:,} of {collection.num_categories:,} categories "
        f"{'has' if found.num_positive == 1 else 'have'} a positive share{nll}"
    )
    words[names[-1]] = f"{found.note}; {positive}" if found.note else positive
    return words | {
        "certificate": _certificate(collection, found),
        sure.title: "exact, also where the share is zero; it is about one share, and an estimate, which makes all "
        "shares fit together, may lie outside",
        "●": f"found with a false discovery rate of at most {show.in_full(sure.fdr)} (--fdr sets it); among many "
        "categories some intervals exclude zero by luck, and are not marked for it",
        "noise": f"a category that nobody holds is estimated with a standard error of "
        f"{show.percent(collection.standard_error)} (unbiased inversion)",
    }


def _named(heading: str, found: Estimate) -> str:
    return heading if heading == found.title else f"{heading} ({found.title})"


def _certificate(collection: Collection, found: Estimate) -> str:
    """How far an estimate is from the likeliest distribution, at most."""
    if collection.joint is None:
        return (
            "none: the likelihood of whole reports is left out, because there are too many for the categories "
            f"({collection.num_reports:,} × {collection.num_categories:,})"
        )
    if not found.proper:
        return "none: this estimate is not a distribution"
    near = found.certificate["l1_bound"] / 2
    bound = f"; total variation at most {show.at_most(min(near, 1))} from the maximum likelihood estimate"
    return (
        f"log-likelihood within {show.at_most(found.certificate['gap'])} of the maximum (nats per report)"
        f"{bound if math.isfinite(near) else ''}"
    )
