"""`rrjax estimate`."""

from __future__ import annotations

from typing import Annotated

import typer

from rrjax.cli import show
from rrjax.cli.asking import ask
from rrjax.cli.design import SurveyDesign
from rrjax.cli.joint import Joint
from rrjax.cli.options import WHICH, Asked, Confidence, Ordered, Output, estimator_name, estimator_names, flags
from rrjax.cli.outlets import deliver
from rrjax.cli.reading import Epsilon, Files, Reading, ReportFiles, read_any
from rrjax.cli.samples import Samples
from rrjax.estimators.names import CLOSEST, LIKELIEST, NAMES


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
            f"{', '.join(NAMES)}.",
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
    from rrjax.reports.numbers import Numbers
    from rrjax.reports.reports import Reports

    samples.check(design)
    with show.status("Counting …"):
        found = read_any(Files(reports, reading), epsilon, design, joint.question, samples.sample)
    given = {"estimator": estimator, "ordered": ordered, "same_people": samples.same_people, **confidence.given}
    if joint.question is not None:
        answer = ask(found, joint.question, columns=joint.columns, **given, **asked.given)
    elif asked.any() or isinstance(found, Numbers):
        listed = isinstance(found, Reports) and not (asked.mean or asked.quantile or asked.group)
        top = output.top if listed or output.top != Output.top else None
        answer = ask(found, "statements", **asked.given, top=top, **given)
    else:
        answer = ask(found, "shares", **given)
    deliver(answer, "estimate", output)
