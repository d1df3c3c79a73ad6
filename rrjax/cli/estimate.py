"""`rrjax estimate`."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Annotated

import typer

from rrjax.cli import numbers, show
from rrjax.cli.advice import advice, heading, publication
from rrjax.cli.compliance import Samples
from rrjax.cli.compliance import run as run_compliance
from rrjax.cli.design import SurveyDesign
from rrjax.cli.estimates import (
    Estimate,
    ShareIntervals,
    draw,
    estimated,
    largest_rows,
    of_reports,
    share_intervals,
    show_largest,
    side_by_side,
    too_large,
    write,
)
from rrjax.cli.groups import groups_in
from rrjax.cli.groups import run as run_groups
from rrjax.cli.joint import Joint
from rrjax.cli.joint import run as run_joint
from rrjax.cli.options import (
    WHICH,
    Asked,
    Confidence,
    Ordered,
    Output,
    estimator_name,
    estimator_names,
    flags,
    refuse_flags,
)
from rrjax.cli.reading import Epsilon, Files, Reading, ReportFiles, read_collection
from rrjax.cli.rounds import rounds_in
from rrjax.cli.rounds import run as run_rounds
from rrjax.cli.statements import run as run_statements
from rrjax.cli.tree import run as run_tree
from rrjax.data.errors import UsageError
from rrjax.estimators.catalogue import CLOSEST, CLOSEST_IN_ORDER, ESTIMATORS, LIKELIEST, MAXIMIZER
from rrjax.io.numbers import of_numbers
from rrjax.reports import form
from rrjax.reports.reports import Reports


def leading(collection: Reports, ordered: bool = False) -> list[str]:
    """The closest estimator and, if the likelihood of these reports can be computed, the likeliest one."""
    likeliest = LIKELIEST if collection.tallied is None else MAXIMIZER
    able = collection.given(ESTIMATORS[likeliest]) is not None
    return [CLOSEST_IN_ORDER if ordered else CLOSEST] + [likeliest] * able


@flags()
def estimate(
    reports: ReportFiles,
    *,
    epsilon: Epsilon = None,
    design: SurveyDesign,
    samples: Samples,
    joint: Joint,
    reading: Reading,
    output: Output,
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
    confidence: Confidence,
) -> None:
    """Estimate the true distribution from randomized reports: the closest and the likeliest estimate, and intervals.

    rrjax estimate reports.parquet

    rrjax estimate reports.csv --column answer --epsilon 1 --domain answers.txt --out estimate.csv

    rrjax estimate survey.csv --column age --epsilon 1 --domain 0:99 --mean --group "young=0:29" --by region

    rrjax estimate ages.parquet --quantile 0.5 --mean --plot ages.png

    rrjax estimate survey.parquet --joint smokes,income

    rrjax estimate survey.parquet --tree

    rrjax estimate dice.csv --domain yesno.txt --mechanism forced-response --parameter truth=2/3
    --parameter forced=1/2,1/2
    """
    if estimator is not None and ordered:
        raise UsageError(
            f"--ordered asks for {CLOSEST_IN_ORDER}, --estimator for {estimator}: give one of the two",
            flag="--ordered",
            value=estimator,
        )
    if asked.any():
        chosen = {"--estimator": estimator, "--ordered": ordered, "--at-once": confidence.at_once}
        odd = next((flag for flag, given in chosen.items() if given), None)
        if odd is not None:
            raise UsageError(
                f"{odd} applies to the table of all categories, which is not printed with --mean, --quantile, --group, "
                f"--by or --weights: leave {odd} out",
                flag=odd,
            )
    samples.check(
        design,
        {
            "--epsilon": epsilon,
            "--estimator": estimator,
            "--ordered": ordered,
            "--at-once": confidence.at_once,
            "--plot": output.plot,
            "--counts": reading.counts,
            **asked.flags,
        },
    )
    files = Files(reports, reading)
    if design.of_two_samples:
        run_compliance(files, design, samples, confidence.level, output)
        return
    if joint.check(
        {
            "--epsilon": epsilon,
            "--mechanism": design.mechanism,
            "--column": reading.column,
            "--domain": reading.domain,
            "--counts": reading.counts,
            "--estimator": estimator,
            "--ordered": ordered,
            "--at-once": confidence.at_once,
            "--plot": joint.flag != "--all-pairs" and output.plot,
            **asked.flags,
        }
    ):
        (run_tree if joint.tree else run_joint)(files, joint, confidence.level, output)
        return
    chosen = {"--estimator": estimator, "--ordered": ordered, "--at-once": confidence.at_once}
    if parts := groups_in(files):
        others = {"--epsilon": epsilon, "--mechanism": design.mechanism, "--counts": reading.counts}
        refuse_flags(
            others | chosen | {"--plot": output.plot} | asked.flags,
            "files that were randomized differently",
            "give one of them, or ",
        )
        run_groups(parts, confidence.level, output)
        return
    if rounds := rounds_in(files):
        refuse_flags(chosen | {"--plot": output.plot} | asked.flags, "several rounds", "give the file of one, or ")
        run_rounds(files, rounds, confidence.level, output)
        return
    if of_numbers(files.source.metadata()):
        numbers.refuse_others(
            files,
            {
                "--mechanism": design.mechanism,
                "--estimator": estimator,
                "--ordered": ordered,
                "--at-once": confidence.at_once,
                "--fdr": confidence.fdr != Confidence.fdr,
                "--top": output.top != Output.top,
                "--group": asked.group,
                "--by": asked.by,
                "--weights": asked.weights,
                "--normal": asked.normal,
            },
        )
        numbers.run(numbers.read_numbers(files, epsilon), asked, confidence.level, output)
        return
    with show.status("Counting …"):
        collection = read_collection(files, epsilon, design)
    if asked.any():
        run_statements(collection, asked, confidence.level, output)
    else:
        run(collection, None if estimator is None else [estimator], output, confidence, ordered=ordered)


def run(
    collection: Reports, chosen: list[str] | None, output: Output, confidence: Confidence, *, ordered: bool = False
) -> None:
    """Runs the chosen estimators or the leading ones, writes and prints the estimates."""
    names = chosen or leading(collection, ordered)
    with show.status("Estimating …") as status:
        tasks = [partial(estimated, collection, name) for name in names]
        *estimates, intervals = side_by_side([*tasks, partial(share_intervals, collection, confidence)])
        found, *beside = estimates
        headings = [each.title if chosen else heading(each) for each in estimates]
        advised = None if chosen or collection.contradicted else advice(collection, estimates, headings)
        to_publish = publication(collection, found, intervals) if found.proper and not collection.contradicted else ""
        columns = {"estimate": found.theta} | {other.estimator.name: other.theta for other in beside}
        status.update("Writing …")
        if output.out is not None:
            write(
                output.out,
                collection,
                columns | {"lower": intervals.lower, "upper": intervals.upper, "found": intervals.found},
            )
        if output.plot is not None:
            draw(output.plot, collection, estimates, None, intervals.level)
    if output.json:
        show.record(
            {"command": "estimate"}
            | collection.facts()
            | {"standard_error": collection.standard_error}
            | output.files
            | found.facts()
            | {other.estimator.name: other.facts() for other in beside}
            | {
                **dataclasses.asdict(confidence),
                "num_found": int(intervals.found.sum()),
                "num_contradicted": int(intervals.contradicted.sum()),
                "num_outside_interval": int(intervals.misses(found.theta).sum()),
                "num_found_outside_interval": int((intervals.misses(found.theta) & intervals.found).sum()),
                "advice": advised,
                "to_publish": to_publish,
                "top": largest_rows(collection, columns, output.top, intervals=intervals),
            }
        )
        return
    show.say(collection.summary())
    show.warn(collection.warnings)
    show.out.print()
    show_largest(collection, estimates, output.top, intervals=intervals, headings=headings)
    show.out.print()
    for sentence in [*confidence_sentences(collection, intervals), *([] if advised is None else [advised])]:
        show.say(sentence)
    for sentence in cautions(collection, estimates, intervals, headings[0]):
        show.beware(sentence)
    words = explanations(collection, estimates, headings, intervals) | {"to publish": to_publish}
    show.explain(words, output.explain, "inference")
    show.show_files({"All categories": output.out, "Figure": output.plot})


def confidence_sentences(collection: Reports, intervals: ShareIntervals) -> list[str]:
    """Two sentences: which categories are significantly above zero, and which intervals these are."""
    number, size = int(intervals.found.sum()), collection.num_categories
    rate = f"false discovery rate {form.in_full(intervals.fdr)}"
    rest = "" if number == size else "; the others may be rare or empty"
    significant = (
        f"● {number:,} of {size:,} categories {'is' if number == 1 else 'are'} significantly above zero ({rate}){rest}."
        if number
        else f"No category is significantly above zero ({rate})."
    )
    level = f"{form.in_full(intervals.level)} confidence"
    if intervals.simultaneous:
        return [significant, f"The intervals are simultaneous: all of them hold the true shares, with {level}."]
    return [
        significant,
        f"Each interval holds the true share of its category with {level}; for categories picked after looking, such "
        "as the largest, use --at-once: simultaneous intervals, which are wider.",
    ]


def cautions(collection: Reports, estimates: list[Estimate], intervals: ShareIntervals, heading: str) -> list[str]:
    """Warnings that prevent a wrong reading of the table."""
    found = estimates[0]
    said = [each.caution for each in estimates if each.caution]
    contradicted = int(intervals.contradicted.sum())
    if contradicted:
        said.append(
            collection.without_interval(
                contradicted, "category (marked !)", "categories (marked !)", 1 - intervals.level, "in any category"
            )
        )
    number, outside = int(intervals.found.sum()), int((intervals.misses(found.theta) & intervals.found).sum())
    if outside:
        of = "the category" if number == 1 else f"{outside:,} of the {number:,} categories"
        said.append(
            f"{_named(heading, found)} lies outside the interval of {of} marked ●. An estimate makes all shares "
            "fit together; an interval is about one share. For a category that you chose before looking, believe the "
            "interval."
        )
    return said


def explanations(
    collection: Reports, estimates: list[Estimate], headings: list[str], intervals: ShareIntervals
) -> dict[str, str]:
    """Explains each column, the certificate and the noise of the collection."""
    found, names = estimates[-1], [_named(*each) for each in zip(headings, estimates, strict=True)]
    words = of_reports(collection) | {name: each.note for name, each in zip(names, estimates, strict=True)}
    # The likelihood of other mechanisms is known up to a factor only.
    has_nll = (collection.tallied is None or collection.design is not None) and found.proper
    nll = f"; negative log-likelihood {found.nll:.6f} nats per report" if has_nll else ""
    positive = (
        f"{found.num_positive:,} of {collection.num_categories:,} categories "
        f"{'has' if found.num_positive == 1 else 'have'} a positive share{nll}"
    )
    words[names[-1]] = f"{found.note}; {positive}" if found.note else positive
    return words | {
        "certificate": _certificate(collection, found),
        intervals.title: "exact, also where the share is zero; an interval is about one share, and an estimate, which "
        "makes all shares fit together, may lie outside",
        "●": f"significantly above zero: of the marked categories at most {form.in_full(intervals.fdr)} are empty, on "
        "average (--fdr sets this false discovery rate); among many categories some intervals exclude zero by chance, "
        "and these have no mark",
        "noise": "standard error of the unbiased estimate of an empty category: "
        f"{form.percent(collection.standard_error)}",
    }


def _named(heading: str, found: Estimate) -> str:
    return heading if heading == found.title else f"{heading} ({found.title})"


def _certificate(collection: Reports, found: Estimate) -> str:
    """A sentence that bounds the distance of an estimate from the maximum of the likelihood."""
    if collection.joint is None:
        return f"none: the likelihood of whole reports is not computed, {too_large(collection)}"
    if not found.proper:
        return "none: this estimate is not a distribution"
    near = found.certificate["l1_bound"] / 2
    bound = f"; total variation at most {form.at_most(min(near, 1))} from the maximum likelihood estimate"
    return (
        f"log-likelihood within {form.at_most(found.certificate['gap'])} of the maximum (nats per report)"
        f"{bound if math.isfinite(near) else ''}"
    )
