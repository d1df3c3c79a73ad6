"""`rrjax test`: fit, equal, difference, trend, independent."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rrjax.cli import show
from rrjax.cli.design import SurveyDesign
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Command, Level, Output, StatementFlags, flags
from rrjax.cli.paths import READS
from rrjax.cli.reading import (
    PANEL,
    Epsilon,
    Files,
    Format,
    Reading,
    ReportFiles,
    other_files,
    parse_domain,
    read_answers,
    read_collection,
)
from rrjax.data.errors import UsageError

if TYPE_CHECKING:
    from rrjax.reports.reports import Reports

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def test() -> None:
    """Ask yes-or-no questions of the true distribution, from files of randomized reports: statistical tests.

    They keep their level at the boundary too: for randomized response they are simulated; for other mechanisms and
    survey designs every category is tested exactly, and the smallest p-value is multiplied by their number.
    """


NO_FILES = ("out", "plot", "top")
"""The flags of `Output` that tests do not have."""
_flag = partial(typer.Option, rich_help_panel="The test")


@dataclasses.dataclass(frozen=True)
class SimulatedTest:
    """The flags of a simulated test."""

    draws: Annotated[
        int | None,
        _flag(
            help="How many collections to simulate in which there is nothing to find; by default 9999, or as many as "
            "take about ten seconds."
        ),
    ] = None
    significance: Annotated[
        float, _flag(help="What the p-value is compared with: the chance of an alarm where there is nothing.")
    ] = 0.05
    seed: Annotated[int, _flag(min=0, max=2**63 - 1, help="Of the simulations.")] = 0

    def __post_init__(self) -> None:
        """Refuses flags that tell nothing, before files are read."""
        from rrjax.reports.testing import Simulation

        Simulation(**vars(self))


Epsilons = Annotated[
    list[float] | None,
    typer.Option("--epsilon", help="Privacy parameter ε, in nats: once for all collections, or once for each."),
]
Collections = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORTS",
        help="Files of randomized reports: each argument is a collection (a glob in quotes is one). The flags that say "
        "how to read hold for all.",
    ),
    READS,
]


@app.command(cls=Command)
@flags(without=NO_FILES)
def fit(
    reports: ReportFiles,
    *,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="The distribution to test: a file of true values, or of how many hold each category. Repeatable. "
            "Read with the flags --header, --delimiter, --items and --missing too."
        ),
        READS,
    ] = None,
    epsilon: Epsilon = None,
    design: SurveyDesign,
    reading: Reading,
    output: Output,
    options: SimulatedTest,
    against_column: Annotated[
        str | None, typer.Option(help="Column of the file of --against.", rich_help_panel=PANEL)
    ] = None,
    against_format: Annotated[
        Format | None, typer.Option(help="Format of the file of --against.", rich_help_panel=PANEL)
    ] = None,
    against_counts: Annotated[
        str | None,
        typer.Option(
            help="The file of --against holds counts, whole numbers: the column they are in.", rich_help_panel=PANEL
        ),
    ] = None,
) -> None:
    """Do the users come from a given distribution? Without one: can any have made these reports?

    rrjax test fit reports.parquet

    rrjax test fit reports.parquet --against census.csv --against-column city --against-counts people

    rrjax test fit dice.csv --domain yesno.txt --mechanism forced-response --parameter truth=2/3
    --parameter forced=1/2,1/2
    """
    other = other_files(reading, against, against_column, against_format, against_counts, "--against")
    with show.status("Counting …") as status:
        collection = read_collection(Files(reports, reading), epsilon, design)
        theta = None
        if other is not None:
            from rrjax.reports.comparison import read_truth

            theta = read_truth(other.source, other.reading.counts, collection, "against")
        status.update("Testing …")
        with ending_at_once():
            answer = collection.test_fit(theta, **vars(options))
    show.deliver(answer, "test fit", output)


@app.command(cls=Command)
@flags(without=NO_FILES)
def equal(
    reports: Collections,
    *,
    epsilon: Epsilons = None,
    design: SurveyDesign,
    reading: Reading,
    output: Output,
    options: SimulatedTest,
) -> None:
    """Do two collections, or more, come from the same distribution? Their ε, and their mechanisms, may differ.

    rrjax test equal before.parquet after.parquet
    """
    from rrjax.reports.hypotheses import test_equal

    with show.status("Counting …") as status:
        collections = _read_collections(reports, reading, epsilon or [], design)
        status.update("Testing …")
        with ending_at_once():
            answer = test_equal(collections, **vars(options))
    show.deliver(answer, "test equal", output)


@app.command(cls=Command)
@flags(
    without=("plot", "mean", "quantile", "group", "within", "normal", "total", "population"),
    panels=dict.fromkeys(("by", "weights", "strata", "clusters", "population_size"), "The samples"),
)
def difference(
    reports: Collections,
    *,
    epsilon: Epsilons = None,
    design: SurveyDesign,
    reading: Reading,
    output: Output,
    sample: StatementFlags,
    level: Level = 0.95,
) -> None:
    """By how much do two collections differ? Their ε, and their mechanisms, may differ.

    rrjax test difference this-year.parquet last-year.parquet

    rrjax test difference survey.csv --column answer --domain yes,no --mechanism @design --parameter innocuous=@p

    rrjax test difference survey.parquet --by sex --weights weight --clusters school

    Of one file: the two levels of --by, the respondents of its two designs, or its two groups.
    """
    from rrjax.reports.difference import test_difference

    with show.status("Counting …") as status:
        if design.by_respondent:
            if len(epsilon or []) or len(reports) != 1:
                raise UsageError("a --mechanism by respondent takes one file, and no --epsilon", flag="--mechanism")
            sides: list[Any] = [read_answers(Files(reports, reading), None, design)]
        else:
            sides = _read_collections(reports, reading, epsilon or [], design)
            if len(sides) != (2 if sample.by is None else 1):
                problem = f"give two collections, or one with --by; got {len(sides)}"
                raise UsageError(problem, flag="REPORTS", value=reports)
        status.update("Estimating …")
        with ending_at_once():
            answer = test_difference(*sides, level=level, **sample.given)
    show.deliver(answer, "test difference", output)


@app.command(cls=Command)
@flags(without=NO_FILES)
def trend(
    reports: Collections,
    *,
    category: Annotated[str | None, typer.Option(help="The label of one category; all by default.")] = None,
    time: Annotated[
        list[float] | None,
        typer.Option(help="When each was collected, in their order; 0, 1, … by default. Repeatable."),
    ] = None,
    epsilon: Epsilons = None,
    design: SurveyDesign,
    reading: Reading,
    output: Output,
    options: SimulatedTest,
) -> None:
    """Do shares rise or fall over collections, given in their order?

    rrjax test trend 2023.parquet 2024.parquet 2025.parquet --category Rome
    """
    from rrjax.reports.hypotheses import test_trend

    with show.status("Counting …") as status:
        collections = _read_collections(reports, reading, epsilon or [], design)
        status.update("Testing …")
        with ending_at_once():
            answer = test_trend(collections, time or None, category, **vars(options))
    show.deliver(answer, "test trend", output)


@app.command(cls=Command)
@flags(without=("probability", "column", "domain", "counts", "num_users", "items", *NO_FILES))
def independent(
    reports: ReportFiles,
    *,
    column: Annotated[
        list[str] | None,
        typer.Option(help="The columns of the two attributes; give it twice. A file of pairs names its own."),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            help="Their categories, each a range such as 0:99 or a file of labels; give it twice, or not at all."
        ),
        READS,
    ] = None,
    reading: Reading,
    output: Output,
    options: SimulatedTest,
) -> None:
    """Are two attributes of the same users independent?

    rrjax test independent pairs.parquet

    rrjax test independent reports.csv --column smokes --column income

    The first file holds pairs that `rrjax randomize` with two columns randomized as one value. The second file holds
    two reports in each row, which were randomized separately; no ε is needed then, because the reports are independent
    exactly if the values are. That holds for answers to survey designs too, without naming the design.
    """
    from rrjax.reports.hypotheses import independence_of, paired
    from rrjax.reports.testing import Simulation

    with show.status("Counting …") as status:
        data = paired(Files(reports, reading).source, column or (), [parse_domain(text) for text in domain or ()])
        status.update("Testing …")
        with ending_at_once():
            answer = independence_of(data, Simulation(**vars(options)))
    show.deliver(answer, "test independent", output)


def _read_collections(
    paths: Sequence[str], reading: Reading, epsilons: Sequence[float], design: SurveyDesign
) -> list[Reports]:
    """Counts the reports of several collections."""
    if len(epsilons) not in (0, 1, len(paths)):
        raise UsageError.about(
            "--epsilon", f"was given {len(epsilons)} times for {len(paths)} collections; give it once, or once for each"
        )
    given = list(epsilons) * (len(paths) if len(epsilons) == 1 else 1) or [None] * len(paths)
    return [
        read_collection(Files([path], reading), epsilon, design) for path, epsilon in zip(paths, given, strict=True)
    ]
