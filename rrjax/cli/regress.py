"""`rrjax regress`."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rrjax.cli import show
from rrjax.cli.design import Sample, SurveyDesign
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import FORMATS, Level, Output, flags, split
from rrjax.cli.paths import READS, WRITES
from rrjax.cli.reading import Epsilon, Files, Reading, read_answers, read_any, read_collection
from rrjax.data.errors import UsageError

_flag = partial(typer.Option, rich_help_panel="The model")


@dataclasses.dataclass(frozen=True)
class RegressionOutput(Output):
    """Output with a table of coefficients in place of categories."""

    out: Annotated[Path | None, typer.Option(help=f"Write all coefficients to this {FORMATS}."), WRITES] = None


@flags(without=("column", "counts", "num_users", "items", "top"))
def regress(
    reports: Annotated[list[str], typer.Argument(metavar="FILES", help="Files of rows; globs work."), READS],
    outcome: Annotated[str, typer.Option(help="Column of randomized reports.")],
    covariates: Annotated[
        str,
        typer.Option(
            help="Columns that it may depend on, separated by commas: numbers, texts as factors, or columns of "
            "`rrjax randomize --apart`, whose true values are estimated too."
        ),
    ],
    epsilon: Epsilon = None,
    *,
    design: SurveyDesign,
    reading: Reading,
    output: RegressionOutput,
    factors: Annotated[
        str | None, _flag(help="Covariates whose numbers are names of levels, separated by commas.")
    ] = None,
    reference: Annotated[
        str | None, _flag(help="The category that others are compared with, in place of the first one.")
    ] = None,
    weights: Annotated[str | None, _flag(help="Column of survey weights; errors are robust then.")] = None,
    clusters: Annotated[
        str | None, _flag(help="Column of clusters, within which users may depend on each other.")
    ] = None,
    robust: Annotated[
        bool, _flag("--robust", help="Standard errors that hold where the model is wrong, too (sandwich).")
    ] = False,
    drop_missing: Annotated[
        bool, _flag("--drop-missing", help="Leave out rows that lack a covariate, a weight or a cluster.")
    ] = False,
    ridge: Annotated[float, _flag(help="Precision of a normal prior on standardized coefficients.")] = 0.0,
    sample: Sample = None,
    nuisance: Annotated[
        str | None,
        _flag(
            help="For a --mechanism of two samples: covariates of its second share, such as that of respondents who do "
            "not follow the rule, separated by commas. By default it is the same for all."
        ),
    ] = None,
    level: Level = 0.95,
) -> None:
    """Find what a randomized answer depends on: multinomial logistic regression of the true values.

    rrjax regress survey.csv --outcome uses --covariates age,region --epsilon 1

    rrjax regress survey.parquet --outcome smokes --covariates income,age

    rrjax regress dice.csv --outcome said --covariates age --domain yes,no --mechanism cheating-detection
    --parameter forced=0.25,0.75 --sample die=A,B --reference no

    Each row holds a report of any mechanism, or an answer to the survey design of --mechanism, and the covariates of
    who made it: as they are, or randomized, too, by `rrjax randomize --apart`.
    """
    files = Files(reports, dataclasses.replace(reading, column=outcome))
    names, listed = split("--covariates", covariates), [] if factors is None else split("--factors", factors)
    with show.status("Reading …") as status:
        if design.of_two_samples:
            collection: Any = read_any(files, epsilon, design, sample=sample)
        elif sample is not None:
            raise UsageError("--sample is for a --mechanism of two samples: leave it out", flag="--sample")
        else:
            collection = (read_answers if design.by_respondent else read_collection)(files, epsilon, design)
        status.update("Fitting …")
        with ending_at_once():
            answer = collection.regress(
                names,
                factors=listed,
                reference=reference,
                weights=weights,
                clusters=clusters,
                robust=robust,
                drop_missing=drop_missing,
                ridge=ridge,
                nuisance=[] if nuisance is None else split("--nuisance", nuisance),
                level=level,
            )
    show.deliver(answer, "regress", output)
