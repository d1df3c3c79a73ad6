"""`rrjax estimate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rrjax.cli import options, show
from rrjax.cli.design import PANEL, Sample, SurveyDesign
from rrjax.cli.options import Confidence, Ordered, Output, StatementFlags, ask, flags
from rrjax.cli.paths import READS
from rrjax.cli.reading import Epsilon, Files, Reading, ReportFiles, read_any
from rrjax.data.errors import UsageError
from rrjax.estimators.names import CLOSEST, LIKELIEST, NAMES

if TYPE_CHECKING:
    from rrjax.reports.rappor import RapporReports

COLUMNS, RAPPOR = "Several columns", "Counts of RAPPOR"


@dataclasses.dataclass(frozen=True)
class Joint:
    """The flags of several columns."""

    joint: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,COLUMN,…",
            help="The joint distribution of columns of `rrjax randomize --apart`.",
            rich_help_panel=COLUMNS,
        ),
    ] = None
    all_pairs: Annotated[
        bool,
        typer.Option(
            "--all-pairs", help="Which columns go together: the association of all pairs.", rich_help_panel=COLUMNS
        ),
    ] = False
    tree: Annotated[
        bool,
        typer.Option(
            "--tree",
            help="A tree of the strongest pairs (Chow–Liu), without the joint table: of all columns, or those of "
            "--joint.",
            rich_help_panel=COLUMNS,
        ),
    ] = False

    def __post_init__(self) -> None:
        """Refuses two questions at once."""
        if self.all_pairs and (self.joint is not None or self.tree):
            flag = "--tree" if self.tree else "--joint"
            raise UsageError(f"{flag} and --all-pairs are two questions: give one of them", flag="--all-pairs")

    @property
    def question(self) -> str | None:
        """The question about several columns, if one is asked."""
        if self.all_pairs:
            return "pairs"
        return "tree" if self.tree else None if self.joint is None else "joint"

    @property
    def columns(self) -> list[str] | None:
        """The columns that are named; None for all."""
        return None if self.joint is None else options.split("--joint", self.joint)


@dataclasses.dataclass(frozen=True)
class RapporFiles:
    """The files of google/rappor beside its counts."""

    params: Annotated[
        Path | None,
        typer.Option(
            metavar="PARAMS.csv",
            help="REPORTS is the file of counts of google/rappor, and this that of its parameters k, h, m, p, q, f.",
            rich_help_panel=RAPPOR,
        ),
        READS,
    ] = None
    map: Annotated[
        Path | None,
        typer.Option(
            metavar="MAP.csv", help="Its candidates, each with the bits that it sets.", rich_help_panel=RAPPOR
        ),
        READS,
    ] = None

    def read(self, reports: list[str], others: Iterable[str | None]) -> RapporReports | None:
        """Reads the files, if they are given; refuses other flags about reading."""
        if (self.params is None) is not (self.map is None):
            flag = "--params" if self.params is None else "--map"
            raise UsageError.about(flag, "is missing: counts of RAPPOR need --params and --map")
        if self.params is None or self.map is None:
            return None
        if (odd := next(filter(None, others), None)) is not None:
            raise UsageError.about(odd, "does not apply to files of RAPPOR: leave it out")
        if len(reports) != 1:
            raise UsageError(f"REPORTS is one file of counts of RAPPOR, got {len(reports)}", flag="REPORTS")
        from rrjax.reports.rappor import rappor_reports

        return rappor_reports(reports[0], self.params, self.map)


@flags()
def estimate(
    reports: ReportFiles,
    *,
    epsilon: Epsilon = None,
    design: SurveyDesign,
    sample: Sample = None,
    same_people: Annotated[
        bool,
        typer.Option(
            "--same-people",
            help="Both samples are answers of the same people, such as to a sensitive and an anchor question.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    joint: Joint,
    rappor: RapporFiles,
    reading: Reading,
    output: Output,
    asked: StatementFlags,
    estimator: Annotated[
        str | None,
        typer.Option(
            parser=options.estimator_name,
            autocompletion=options.estimator_names,
            metavar="NAME",
            help=f"One estimator in place of {CLOSEST} (the closest) with {LIKELIEST} (the likeliest) beside it: "
            f"{', '.join(NAMES)}.",
            rich_help_panel=options.WHICH,
        ),
    ] = None,
    ordered: Ordered = False,
    confidence: Confidence,
) -> None:
    """Estimate the true distribution from randomized reports: the closest and the likeliest estimate, and intervals.

    rrjax estimate reports.parquet

    rrjax estimate reports.csv --column answer --epsilon 1 --domain answers.txt --out estimate.csv

    rrjax estimate survey.csv --column age --epsilon 1 --domain 0:99 --mean --group "young=0:29" --by region

    rrjax estimate timings.csv --column confidence --within load_time --quantile 0.75
    --domain low,high --mechanism coin --parameter rate=@rate

    rrjax estimate ages.parquet --quantile 0.5 --mean --plot ages.png

    rrjax estimate survey.parquet --joint smokes,income

    rrjax estimate survey.parquet --tree

    rrjax estimate dice.csv --domain yesno.txt --mechanism forced-response --parameter truth=2/3
    --parameter forced=1/2,1/2

    rrjax estimate counts.csv --params params.csv --map map.csv
    """
    from rrjax.reports.by_respondent import ByRespondentReports
    from rrjax.reports.numbers import Numbers
    from rrjax.reports.reports import Reports

    if not design.of_two_samples and (sample is not None or same_people):
        flag = "--sample" if sample is not None else "--same-people"
        raise UsageError(f"{flag} is for a --mechanism of two samples: leave it out", flag=flag)
    with show.status("Counting …"):
        kind = {"--epsilon": epsilon, "--mechanism": design.mechanism, "--parameter": design.parameter}
        others = [reading.first_flag(), *(flag for flag, value in kind.items() if value is not None)]
        known = rappor.read(reports, others)
        known = known or read_any(Files(reports, reading), epsilon, design, joint.question, sample)
    given = {"estimator": estimator, "ordered": ordered, "same_people": same_people, **confidence.given}
    if joint.question is not None:
        answer = ask(known, joint.question, columns=joint.columns, **given, **asked.given)
    elif asked.within is not None:
        answer = ask(known, "within", **asked.given, **given)
    elif asked.any() or isinstance(known, Numbers) or rappor.params is not None:
        alone = isinstance(known, Reports | ByRespondentReports) and not (asked.mean or asked.quantile or asked.group)
        top = output.top if alone or rappor.params is not None or output.top != Output.top else None
        answer = ask(known, "statements", **asked.given, top=top, **given)
    else:
        answer = ask(known, "shares", **given)
    show.deliver(answer, "estimate", output)
