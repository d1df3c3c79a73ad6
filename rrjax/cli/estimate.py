"""`rrjax estimate`."""

from __future__ import annotations

from typing import Annotated

import typer

from rrjax.cli import numbers, show
from rrjax.cli.compliance import Samples
from rrjax.cli.compliance import run as run_compliance
from rrjax.cli.design import SurveyDesign
from rrjax.cli.interrupt import ending_at_once
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
from rrjax.cli.outlets import deliver
from rrjax.cli.parts import run as run_parts
from rrjax.cli.reading import Epsilon, Files, Reading, ReportFiles, read_collection
from rrjax.data.errors import UsageError
from rrjax.estimators.catalogue import CLOSEST, CLOSEST_IN_ORDER, ESTIMATORS, LIKELIEST
from rrjax.io.numbers import of_numbers
from rrjax.reports.groups import Groups, groups_of
from rrjax.reports.reports import Reports
from rrjax.reports.rounds import Rounds, several_rounds


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
            **asked.flags,
        }
    ):
        run_joint(files, joint, confidence.level, output)
        return
    chosen = {"--estimator": estimator, "--ordered": ordered, "--at-once": confidence.at_once}
    if groups := groups_of(files.source):
        others = {"--epsilon": epsilon, "--mechanism": design.mechanism, "--counts": reading.counts}
        refuse_flags(
            others | chosen | {"--plot": output.plot} | asked.flags,
            "files that were randomized differently",
            "give one of them, or ",
        )
        run_parts(Groups, groups, files, confidence.level, output)
        return
    if rounds := several_rounds(files.source):
        refuse_flags(chosen | {"--plot": output.plot} | asked.flags, "several rounds", "give the file of one, or ")
        run_parts(Rounds, rounds, files, confidence.level, output)
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
                "--population": asked.population,
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
        run(collection, estimator, output, confidence, ordered=ordered)


def run(
    collection: Reports, estimator: str | None, output: Output, confidence: Confidence, *, ordered: bool = False
) -> None:
    """Estimates the shares of all categories, by one estimator or the leading ones."""
    with show.status("Estimating …"), ending_at_once():
        answer = collection.shares(
            confidence.level,
            simultaneous=confidence.at_once,
            fdr=confidence.fdr,
            estimator=estimator,
            ordered=ordered,
        )
    deliver(answer, "estimate", output)


def run_statements(collection: Reports, asked: Asked, level: float, output: Output) -> None:
    """Estimates means, quantiles and shares of groups."""
    with show.status("Estimating …"), ending_at_once():
        answer = collection.statements(**asked.given, level=level, top=output.top)
    deliver(answer, "estimate", output)
