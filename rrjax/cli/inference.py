"""`rrjax test` and `rrjax plan`: flags, and the order of things."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rrjax import io
from rrjax.cli import inference_work, results, show, work
from rrjax.cli.inference_work import Draws, Plan, Verdict
from rrjax.cli.options import (
    READ,
    RESULT,
    Column,
    Counts,
    Delimiter,
    DomainOption,
    Epsilon,
    Format,
    FormatOption,
    Header,
    ItemsOption,
    Json,
    Missing,
    Plot,
    Reports,
)

tests = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Test hypotheses about the true distribution, from files of randomized reports. All tests are simulated, and "
    "keep their level at the boundary too.",
)

Number = Annotated[int, typer.Option("--draws", help="Simulations of the null.", rich_help_panel=RESULT)]
Significance = Annotated[
    float,
    typer.Option(help="What the p-value is compared with: the chance to be wrong.", rich_help_panel=RESULT),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the simulations.", rich_help_panel=RESULT)]
Epsilons = Annotated[
    list[float] | None,
    typer.Option(
        "--epsilon",
        help="Privacy parameter, in nats: once for all collections, or once for each.",
        rich_help_panel=READ,
    ),
]
Collections = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORTS...",
        help="Files of randomized reports: each argument is a collection (a glob in quotes is one). The flags that say "
        "how to read hold for all.",
    ),
]


@tests.command()
def fit(
    reports: Reports,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="The distribution to test: a file of true values, or of how many hold each category. Repeatable. "
            "Read with the flags --header, --delimiter, --items and --missing too."
        ),
    ] = None,
    against_column: Annotated[
        str | None, typer.Option(help="Column of the file of --against.", rich_help_panel=READ)
    ] = None,
    against_format: Annotated[
        Format | None, typer.Option(help="Format of the file of --against.", rich_help_panel=READ)
    ] = None,
    against_counts: Annotated[
        str | None,
        typer.Option(
            help="The file of --against holds counts, whole numbers: the column they are in.", rich_help_panel=READ
        ),
    ] = None,
    column: Column = None,
    epsilon: Epsilon = None,
    domain: DomainOption = None,
    counts: Counts = None,
    format: FormatOption = None,  # noqa: A002
    header: Header = None,
    delimiter: Delimiter = None,
    items: ItemsOption = "first",
    missing: Missing = None,
    draws: Number = 9999,
    significance: Significance = 0.05,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Do the users come from a given distribution? Without one: can any have made these reports?

    rrjax test fit reports.parquet

    rrjax test fit reports.parquet --against census.csv --against-column city --against-counts people
    """
    reading = work.Reading(reports, column, domain, counts, format, header, delimiter, items, missing or [])
    with show.reporting():
        simulation = _draws(draws, significance, seed)
        if not against and (against_column or against_format or against_counts):
            raise work.UsageError(
                "--against-column, --against-format and --against-counts describe the file of --against"
            )
        with show.err.status("Counting …") as status:
            collection = work.collect(reading, epsilon)
            inference_work.check_size(collection.num_reports)
            verdicts = []
            if against:
                other = work.Reading(
                    against,
                    against_column,
                    None,
                    against_counts,
                    against_format,
                    header,
                    delimiter,
                    items,
                    missing or [],
                )
                theta = work.read_truth(other, collection, "--against")
                status.update("Testing …")
                verdicts = inference_work.fits(collection, theta, simulation)
            else:
                status.update("Testing …")
                verdicts = [inference_work.fits_any(collection, simulation)]
        _say("fit", [reading], [collection], verdicts, simulation, json)


@tests.command()
def equal(
    reports: Collections,
    column: Column = None,
    epsilon: Epsilons = None,
    domain: DomainOption = None,
    counts: Counts = None,
    format: FormatOption = None,  # noqa: A002
    header: Header = None,
    delimiter: Delimiter = None,
    items: ItemsOption = "first",
    missing: Missing = None,
    draws: Number = 9999,
    significance: Significance = 0.05,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Do two collections, or more, come from the same distribution? Their ε may differ.

    rrjax test equal before.parquet after.parquet
    """
    with show.reporting():
        simulation = _draws(draws, significance, seed)
        readings = [
            work.Reading([path], column, domain, counts, format, header, delimiter, items, missing or [])
            for path in reports
        ]
        with show.err.status("Counting …") as status:
            collections = inference_work.collect_all(readings, epsilon or [])
            status.update("Testing …")
            verdict = inference_work.equal(collections, simulation)
        _say("equal", readings, collections, [verdict], simulation, json)


@tests.command()
def trend(
    reports: Collections,
    category: Annotated[str | None, typer.Option(help="The label of one category; all by default.")] = None,
    time: Annotated[
        list[float] | None,
        typer.Option(help="When each was collected, in their order; 0, 1, … by default. Repeatable."),
    ] = None,
    column: Column = None,
    epsilon: Epsilons = None,
    domain: DomainOption = None,
    counts: Counts = None,
    format: FormatOption = None,  # noqa: A002
    header: Header = None,
    delimiter: Delimiter = None,
    items: ItemsOption = "first",
    missing: Missing = None,
    draws: Number = 9999,
    significance: Significance = 0.05,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Do shares rise or fall over collections, given in their order?

    rrjax test trend 2023.parquet 2024.parquet 2025.parquet --category Rome
    """
    with show.reporting():
        simulation = _draws(draws, significance, seed)
        readings = [
            work.Reading([path], column, domain, counts, format, header, delimiter, items, missing or [])
            for path in reports
        ]
        with show.err.status("Counting …") as status:
            collections = inference_work.collect_all(readings, epsilon or [])
            status.update("Testing …")
            verdict = inference_work.trend(collections, time or [], category, simulation)
        _say("trend", readings, collections, [verdict], simulation, json, category=category, times=time)


@tests.command()
def independent(
    reports: Reports,
    column: Annotated[list[str], typer.Option(help="The columns of the two attributes; give it twice.")],
    domain: Annotated[
        list[str] | None,
        typer.Option(help="Their categories, as elsewhere; give it twice, or not at all.", rich_help_panel=READ),
    ] = None,
    format: FormatOption = None,  # noqa: A002
    header: Header = None,
    delimiter: Delimiter = None,
    missing: Missing = None,
    draws: Number = 9999,
    significance: Significance = 0.05,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Are two attributes of the same users independent, each reported through a randomization of its own?

    rrjax test independent reports.csv --column smokes --column income

    No ε is needed: independent values make independent reports, and only they do.
    """
    with show.reporting():
        simulation = _draws(draws, significance, seed)
        if len(column) != 2 or column[0] == column[1]:
            raise work.UsageError(f"--column must be given twice, once for each attribute; got {', '.join(column)}")
        if domain and len(domain) != 2:
            raise work.UsageError("--domain must be given twice, in the order of the columns, or not at all")
        domains = [work.parse_domain(text) for text in domain or [None, None]]
        reading = work.Reading(reports, None, None, None, format, header, delimiter, "first", missing or [])
        with show.err.status("Counting …") as status:
            pairs = io.count_pairs(reading.source(), (column[0], column[1]), (domains[0], domains[1]))
            inference_work.check_size(int(pairs.counts.sum()))
            status.update("Testing …")
            verdict = inference_work.independent(pairs, simulation)
        shape = pairs.counts.shape
        if not json:
            for name, from_data in zip(pairs.columns, pairs.from_data, strict=True):
                if from_data:
                    show.warn([f"The categories of {name!r} were taken from the data; --domain names them."])
            show.out.print(
                f"{pairs.counts.sum():,} users with reports in both {column[0]!r} ({shape[0]:,} categories) and "
                f"{column[1]!r} ({shape[1]:,} categories); {pairs.num_missing:,} rows without are left out",
                markup=False,
            )
        more = {"columns": column, "num_reports": pairs.counts.sum(), "num_missing": pairs.num_missing}
        _say("independent", [], [], [verdict], simulation, json, **more, num_categories=list(shape))


def plan(
    categories: Annotated[int, typer.Option(help="K, how many categories there are.")],
    epsilon: Annotated[float | None, typer.Option(help="Privacy parameter, in nats.")] = None,
    users: Annotated[int | None, typer.Option(help="N, how many of them.")] = None,
    target_rmse: Annotated[
        float | None,
        typer.Option(help="Root mean squared error of a share that is wanted (0.01 is one percent point)."),
    ] = None,
    target_width: Annotated[
        float | None, typer.Option(help="Width of an exact interval that is wanted, where --share hold it.")
    ] = None,
    share: Annotated[float, typer.Option(help="True share of the category that the width is for.")] = 0.1,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Plan a collection: how many users, which ε, what it would know, which mechanism.

    rrjax plan --categories 100 --epsilon 1 --target-rmse 0.01

    Give two of --epsilon, --users and a target; the third is computed.
    """
    with show.reporting():
        work.check_formats(None, plot)
        if plot is not None:
            io.check_target(plot)
        with show.err.status("Planning …"):
            found = inference_work.plan(categories, epsilon, users, target_rmse, target_width, share, level)
            if plot is not None:
                results.draw_plan(plot, found)
        if json:
            mechanisms = [row._asdict() for row in found.mechanisms]
            record = dataclasses.asdict(found) | {"mechanisms": mechanisms, "plot": None if plot is None else str(plot)}
            show.record({"command": "plan"} | record)
            return
        _show_plan(found)
        if plot is not None:
            show.written("Figure", plot)


def _show_plan(found: Plan) -> None:
    solved = {
        "users": f"{found.num_users:,.0f} users are needed",
        "epsilon": f"ε = {found.epsilon:.4g} nats is needed",
        "target": "What the collection would know",
    }[found.solved]
    show.out.print(
        f"[bold]{solved}[/bold]: K = {found.num_categories:,}, ε = {found.epsilon:.4g} nats, N = {found.num_users:,.0f}"
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right", no_wrap=True)
    level = f"{100 * found.level:g} %"
    for text, value in (
        ("Root mean squared error of a share, unbiased inversion", found.rmse),
        (f"Width of the exact {level} interval of a category that nobody holds", found.width),
        (f"Width of the exact {level} interval of a share of {show.percent(found.share)}", found.share_width),
        ("Smallest share found with 80 % power, one category, p ≤ 0.05", found.detectable),
        ("Smallest share found with 80 % power, among all categories", found.detectable_among_all),
    ):
        table.add_row(text, show.percent(value) if value <= 1 else "more than 100 %")
    show.out.print(table)
    show.out.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("mechanism", no_wrap=True)
    for title in ("error of a share", "bits a report"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for row in found.mechanisms:
        table.add_row(row.name, show.percent(row.expected_rmse), f"{row.bits:,.0f}", row.note)
    show.out.print(table)
    best, own = found.mechanisms[0], next(row for row in found.mechanisms if row.name == "randomized response")
    more = (own.expected_rmse / best.expected_rmse) ** 2
    if more > 1.05:
        show.out.print(
            f"For the same error randomized response needs {more:.2g} times the users of {best.name} (unbiased "
            "estimates compared). rrjax estimates from randomized response."
        )


def _draws(number: int, level: float, seed: int) -> Draws:
    draws = Draws(number, level, seed)
    inference_work.check_draws(draws)
    return draws


def _say(
    name: str,
    readings: list[work.Reading],
    collections: list[work.Collection],
    verdicts: list[Verdict],
    draws: Draws,
    json: bool,
    **more: Any,
) -> None:
    if json:
        show.record(
            {
                "command": f"test {name}",
                "significance": draws.level,
                "num_draws": draws.number,
                "seed": draws.seed,
                "collections": [
                    {
                        "reports": reading.paths,
                        "column": one.counted.column,
                        "num_reports": one.num_reports,
                        "num_missing": one.counted.num_missing,
                        "num_categories": one.num_categories,
                        "domain": one.counted.domain.describe(),
                        "epsilon": one.epsilon,
                        "warnings": one.warnings,
                    }
                    for reading, one in zip(readings, collections, strict=True)
                ],
                **more,
                "tests": [dataclasses.asdict(verdict) for verdict in verdicts],
            }
        )
        return
    several = len(collections) > 1
    for file, collection in zip(inference_work.names(readings), collections, strict=True):
        show.summary(collection, file if several else "")
        show.warn([f"{file}: {warning}" if several else warning for warning in collection.warnings])
    show.warn(inference_work.repeated(readings))
    for verdict in verdicts:
        show.out.print()
        show.out.print(Text(show.printable(verdict.question), style="bold"))
        show.out.print(
            f"{verdict.answer} p = {verdict.p_value:.2g} (± {verdict.standard_error:.1g} from {draws.number:,} draws), "
            f"significance {draws.level:g}; statistic {verdict.statistic:.4g}: {verdict.method}.",
            markup=False,
        )
