"""`rrjax estimate`."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rrjax.cli import show
from rrjax.cli.asked import Asked
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
    too_large,
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
from rrjax.cli.reading import Collection, Epsilon, Files, Reading, Reports, check_outputs, check_rate, read_collection
from rrjax.cli.statements import run as state
from rrjax.data.errors import UsageError
from rrjax.estimators.catalogue import CLOSEST, CLOSEST_IN_ORDER, ESTIMATORS, LIKELIEST, MAXIMIZER

PLAIN = {CLOSEST: "closest", CLOSEST_IN_ORDER: "closest", LIKELIEST: "likeliest", MAXIMIZER: "likeliest"}
"""Headings of the columns where no estimator is named."""


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
        typer.Option(
            "--at-once",
            help="Simultaneous intervals: all of them hold the true shares with the confidence of --level, not each.",
            rich_help_panel=SURE,
        ),
    ] = False,
    fdr: Annotated[
        float,
        typer.Option(
            help="False discovery rate: the share of categories marked ● that are empty in truth, on average at most.",
            rich_help_panel=SURE,
        ),
    ] = FDR,
) -> None:
    """Estimate the true distribution from randomized reports: the closest and the likeliest estimate, and intervals.

    rrjax estimate reports.parquet

    rrjax estimate reports.csv --column answer --epsilon 1 --domain answers.txt --out estimate.csv

    rrjax estimate survey.csv --column age --epsilon 1 --domain 0:99 --mean --group "young=0:29" --by region
    """
    check_rate("--level", level)
    check_rate("--fdr", fdr, small=True)
    if estimator is not None and ordered:
        raise UsageError(
            f"--ordered asks for {CLOSEST_IN_ORDER}, --estimator for {estimator}: give one of the two",
            flag="--ordered",
            value=estimator,
        )
    if asked.any():
        chosen = {"--estimator": estimator, "--ordered": ordered, "--at-once": at_once}
        odd = next((flag for flag, given in chosen.items() if given), None)
        if odd is not None:
            raise UsageError(
                f"{odd} applies to the table of all categories, which is not printed with --mean, --quantile, --group, "
                f"--by or --weights: leave {odd} out",
                flag=odd,
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
    """Two sentences: which categories are significantly above zero, and what the intervals are."""
    number, size = int(sure.found.sum()), collection.num_categories
    rate = f"false discovery rate {show.in_full(sure.fdr)}"
    rest = "" if number == size else "; the others may be rare or empty"
    significant = (
        f"● {number:,} of {size:,} categories {'is' if number == 1 else 'are'} significantly above zero ({rate}){rest}."
        if number
        else f"No category is significantly above zero ({rate})."
    )
    level = f"{show.in_full(sure.level)} confidence"
    if sure.at_once:
        return [significant, f"The intervals are simultaneous: all of them hold the true shares, with {level}."]
    return [
        significant,
        f"Each interval holds the true share of its category with {level}; for categories picked after looking, such "
        "as the largest, use --at-once: simultaneous intervals, which are wider.",
    ]


def cautions(collection: Collection, estimates: list[Estimate], sure: Confidence) -> list[str]:
    """Warnings that prevent a wrong reading of the table."""
    found, size = estimates[0], collection.num_categories
    said = [each.caution for each in estimates if each.caution]
    contradicted = int(sure.contradicted.sum())
    if contradicted:
        alone = (1 - sure.level) / 2 / (size if sure.at_once else 1)
        said.append(
            f"{show.number(contradicted, 'interval is', 'intervals are')} a single point, 0 or "
            "100\N{NO-BREAK SPACE}% (marked !): no share explains so few or so many reports. By chance this happens to "
            f"at most {show.percent(alone)} of the categories. If it happens to more: {collection.doubt}"
        )
    marked = sure.found & ~sure.contradicted  # an interval that is a single point is not to be believed
    number, outside = int(marked.sum()), int((sure.misses(found.theta) & marked).sum())
    if outside:
        of = "the category" if number == 1 else f"{outside:,} of the {number:,} categories"
        said.append(
            f"{found.title} lies outside the interval of {of} marked ●. An estimate makes all shares fit together; an "
            "interval is about one share. For a category that you chose before looking, believe the interval."
        )
    return said


def explanations(
    collection: Collection, estimates: list[Estimate], headings: list[str], sure: Confidence
) -> dict[str, str]:
    """What each column is, how far the likelihood is from its maximum, and how noisy the collection is."""
    found, names = estimates[-1], [_named(*each) for each in zip(headings, estimates, strict=True)]
    words = of_reports(collection) | {name: each.note for name, each in zip(names, estimates, strict=True)}
    # For other mechanisms the likelihood is known up to a factor.
    has_nll = collection.tallied is None and found.proper
    nll = f"; negative log-likelihood {found.nll:.6f} nats per report" if has_nll else ""
    positive = (
        f"{found.num_positive:,} of {collection.num_categories:,} categories "
        f"{'has' if found.num_positive == 1 else 'have'} a positive share{nll}"
    )
    words[names[-1]] = f"{found.note}; {positive}" if found.note else positive
    return words | {
        "certificate": _certificate(collection, found),
        sure.title: "exact, also where the share is zero; an interval is about one share, and an estimate, which makes "
        "all shares fit together, may lie outside",
        "●": f"significantly above zero: of the marked categories at most {show.in_full(sure.fdr)} are empty, on "
        "average (--fdr sets this false discovery rate); among many categories some intervals exclude zero by chance, "
        "and these have no mark",
        "noise": "standard error of the unbiased estimate of an empty category: "
        f"{show.percent(collection.standard_error)}",
    }


def _named(heading: str, found: Estimate) -> str:
    return heading if heading == found.title else f"{heading} ({found.title})"


def _certificate(collection: Collection, found: Estimate) -> str:
    """How far an estimate is from the likeliest distribution, at most."""
    if collection.joint is None:
        return f"none: the likelihood of whole reports is not computed, {too_large(collection)}"
    if not found.proper:
        return "none: this estimate is not a distribution"
    near = found.certificate["l1_bound"] / 2
    bound = f"; total variation at most {show.at_most(min(near, 1))} from the maximum likelihood estimate"
    return (
        f"log-likelihood within {show.at_most(found.certificate['gap'])} of the maximum (nats per report)"
        f"{bound if math.isfinite(near) else ''}"
    )
