"""The commands of `rrjax`: flags, and the order of things."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rrjax
from rrjax.cli import confidence, results, show, work
from rrjax.cli.inference import plan, tests
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
    Level,
    Missing,
    Name,
    Out,
    Plot,
    Reports,
    Top,
)
from rrjax.cli.study import study

FDR = 0.05

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The true distribution behind randomized reports: exact maximum likelihood for randomized response.",
    epilog="Exit codes: 0 done; 2 a flag is wrong or contradicts the file; 3 a file cannot be read, holds something "
    "wrong, or cannot be written; 130 interrupted.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"rrjax {rrjax.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


@app.command()
def randomize(
    values: Annotated[list[str], typer.Argument(metavar="VALUES...", help="Files of true values; globs work.")],
    epsilon: Annotated[float, typer.Option(help="Privacy parameter, in nats.")],
    out: Annotated[Path, typer.Option(help="The .parquet file of reports to write.")],
    column: Column = None,
    domain: DomainOption = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**63 - 1, help="Simulate, reproducibly. Without it the system's secure random numbers are used."
        ),
    ] = None,
    format: FormatOption = None,  # noqa: A002
    header: Header = None,
    delimiter: Delimiter = None,
    items: ItemsOption = "first",
    missing: Missing = None,
    json: Json = False,
) -> None:
    """Randomize true values into a file of reports that carries its ε, K and domain.

    rrjax randomize values.csv --column city --epsilon 2 --domain cities.txt --out reports.parquet

    ε holds for one row a user: who has several rows is protected by that many times ε. The reports keep the order of
    the rows; rows without a value are left out.
    """
    reading = work.Reading(values, column, domain, None, format, header, delimiter, items, missing or [])
    with show.reporting():
        work.check_outputs([reading], out)
        with show.err.status("Randomizing …"):
            result = work.randomize(reading, epsilon, out, seed)
        _show_randomized(result, out, json)


def _show_randomized(result: work.Randomized, out: Path, json: bool) -> None:
    metadata = result.metadata
    mechanism = rrjax.RandomizedResponse(metadata.num_categories, metadata.effective_epsilon)
    if json:
        show.record(
            {
                "command": "randomize",
                "out": str(out),
                "num_reports": result.num_reports,
                "num_missing": result.num_missing,
                "num_categories": metadata.num_categories,
                "epsilon": metadata.epsilon,
                "effective_epsilon": metadata.effective_epsilon,
                "simulated": metadata.simulated,
                "p": float(mechanism.p),
                "q": float(mechanism.q),
                "warnings": result.warnings,
            }
        )
        return
    show.warn(result.warnings)
    how = "simulated from a seed" if metadata.simulated else "from the system's secure random numbers"
    show.out.print(
        f"{result.num_reports:,} reports {how}; domain: {metadata.domain.describe()}; "
        f"ε = {metadata.epsilon:g} nats asked for, {metadata.effective_epsilon:.12g} delivered.",
        markup=False,
    )
    show.out.print(
        f"A report is the truth with probability {show.percent(float(mechanism.p))} and any one other category with "
        f"{show.percent(float(mechanism.q))}."
    )
    show.written("Reports", out)


@app.command()
def estimate(
    reports: Reports,
    column: Column = None,
    epsilon: Epsilon = None,
    domain: DomainOption = None,
    estimator: Annotated[
        Name, typer.Option(help="Which estimator; mle-star is the exact maximum likelihood.")
    ] = "mle-star",
    level: Level = 0.95,
    at_once: Annotated[
        bool,
        typer.Option("--at-once", help="Intervals that cover all at once, not each one.", rich_help_panel=RESULT),
    ] = False,
    fdr: Annotated[
        float, typer.Option(help="False discovery rate of the categories marked as there.", rich_help_panel=RESULT)
    ] = FDR,
    counts: Counts = None,
    format: FormatOption = None,  # noqa: A002
    header: Header = None,
    delimiter: Delimiter = None,
    items: ItemsOption = "first",
    missing: Missing = None,
    out: Out = None,
    plot: Plot = None,
    top: Top = 20,
    json: Json = False,
) -> None:
    """Estimate the true distribution from randomized reports, with intervals and a certificate.

    rrjax estimate reports.parquet

    rrjax estimate reports.csv --column answer --epsilon 1 --domain answers.txt --out estimate.csv
    """
    reading = work.Reading(reports, column, domain, counts, format, header, delimiter, items, missing or [])
    with show.reporting():
        work.check_rate("--level", level)
        work.check_rate("--fdr", fdr)
        _estimate(reading, epsilon, estimator, (level, at_once, fdr), out, plot, top, json)


def _estimate(
    reading: work.Reading,
    epsilon: float | None,
    estimator: Name,
    rates: tuple[float, bool, float],
    out: Path | None,
    plot: Path | None,
    top: int,
    json: bool,
) -> None:
    work.check_formats(out, plot)
    work.check_outputs([reading], out, plot)
    with show.err.status("Counting …") as status:
        collection = work.collect(reading, epsilon)
        status.update("Estimating …")
        estimate = work.estimate(collection, estimator)
        sure = confidence.find(collection, *rates)
        status.update("Writing …")
        if out is not None:
            columns = {"estimate": estimate.theta, "lower": sure.lower, "upper": sure.upper, "found": sure.found}
            results.write(out, collection, columns)
        if plot is not None:
            results.draw(plot, collection, [estimate], None, sure)
    if json:
        show.record(
            {"command": "estimate"}
            | results.facts(collection, reading, out, plot)
            | results.judged(estimate)
            | results.certain(estimate, sure)
            | {"top": results.top_rows(collection, [estimate], top, None, sure)}
        )
        return
    show.summary(collection)
    show.warn(collection.warnings)
    show.out.print()
    show.top_table(collection, [estimate], top, sure=sure)
    show.out.print()
    show.sureness(collection, estimate, sure)
    show.verdict(collection, estimate)
    _say_written(out, plot)


@app.command()
def compare(
    reports: Reports,
    truth: Annotated[list[str] | None, typer.Option(help="A file of the true values; repeatable, globs work.")] = None,
    truth_column: Annotated[str | None, typer.Option(help="Its column.", rich_help_panel=READ)] = None,
    truth_format: Annotated[Format | None, typer.Option(help="Its format.", rich_help_panel=READ)] = None,
    truth_counts: Annotated[
        str | None, typer.Option(help="It holds counts already: the column they are in.", rich_help_panel=READ)
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
    level: Level = 0.95,
    out: Out = None,
    plot: Plot = None,
    top: Top = 10,
    json: Json = False,
) -> None:
    """Run all estimators on the same reports, and measure them against the truth where one is given.

    rrjax compare reports.parquet --truth values.csv --truth-column city

    --header, --delimiter, --items and --missing hold for both files.
    """
    reading = work.Reading(reports, column, domain, counts, format, header, delimiter, items, missing or [])
    true = None
    if truth:
        true = work.Reading(
            truth, truth_column, None, truth_counts, truth_format, header, delimiter, items, missing or []
        )
    with show.reporting():
        if true is None and (truth_column or truth_format or truth_counts):
            raise work.UsageError("--truth-column, --truth-format and --truth-counts describe the file of --truth")
        work.check_rate("--level", level)
        _compare(reading, epsilon, true, level, out, plot, top, json)


def _compare(
    reading: work.Reading,
    epsilon: float | None,
    true: work.Reading | None,
    level: float,
    out: Path | None,
    plot: Path | None,
    top: int,
    json: bool,
) -> None:
    work.check_formats(out, plot)
    work.check_outputs([reading, true] if true else [reading], out, plot)
    with show.err.status("Counting …") as status:
        collection = work.collect(reading, epsilon)
        truth = work.read_truth(true, collection) if true else None
        estimates = []
        for name in work.TITLES:
            status.update(f"Estimating: {work.TITLES[name]} …")
            estimates.append(work.estimate(collection, name))
        errors = None
        if truth is not None:
            errors = [work.errors(estimate.theta, truth) for estimate in estimates]
        status.update("Writing …")
        if out is not None:
            columns = {estimate.name.replace("-", "_"): estimate.theta for estimate in estimates}
            results.write(out, collection, columns | ({} if truth is None else {"truth": truth}))
        if plot is not None:
            drawn = [estimate for estimate in estimates if estimate.name in ("mle-star", "inv-n", "inv-p")]
            # The figure picks the largest categories, of which intervals for each one on its own would hold fewer.
            results.draw(plot, collection, drawn, truth, confidence.find(collection, level, True, FDR))
    if json:
        rows = [results.judged(estimate) for estimate in estimates]
        if errors is not None:
            rows = [row | {"errors": error} for row, error in zip(rows, errors, strict=True)]
        show.record(
            {"command": "compare"}
            | results.facts(collection, reading, out, plot)
            | {"estimators": rows, "top": results.top_rows(collection, estimates, top, truth)}
        )
        return
    show.summary(collection)
    show.warn(collection.warnings)
    show.out.print()
    show.comparison(estimates, errors)
    show.out.print()
    show.top_table(collection, estimates, top, truth)
    _say_written(out, plot)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where to write the files and the figure.")] = Path("rrjax-demo"),
    categories: Annotated[int, typer.Option(min=2, help="K.")] = 50,
    users: Annotated[int, typer.Option(min=2, help="N.")] = 100_000,
    epsilon: Annotated[float, typer.Option(help="Privacy parameter, in nats.")] = 2.0,
    exponent: Annotated[float, typer.Option(min=0, help="Of the Zipf population.")] = 1.3,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the population and its simulated reports.")] = 0,
) -> None:
    """Show it all on a built-in population: randomize, count, estimate, compare.

    The same path as the other commands, whose lines it prints.
    """
    with show.reporting():
        work.check_epsilon(epsilon)
        values, reports = folder / "values.parquet", folder / "reports.parquet"
        table, figure = folder / "estimate.csv", folder / "estimate.png"
        work.make_folder(folder)
        work.write_population(values, categories, users, exponent, seed)
        show.out.print(
            f"[bold]A population[/bold] of {users:,} users, each holding one of {categories:,} items, Zipf with "
            f"exponent {exponent:g}: {values}"
        )
        domain = f"1:{categories}"
        show.command(f"rrjax randomize {values} --epsilon {epsilon:g} --domain {domain} --seed {seed} --out {reports}")
        result = work.randomize(work.Reading([str(values)], domain=domain), epsilon, reports, seed)
        _show_randomized(result, reports, False)
        show.command(f"rrjax estimate {reports} --out {table}")
        reading = work.Reading([str(reports)])
        _estimate(reading, None, "mle-star", (0.95, False, FDR), table, None, 10, False)
        show.command(f"rrjax compare {reports} --truth {values} --plot {figure}")
        _compare(reading, None, work.Reading([str(values)]), 0.95, None, figure, 5, False)


def _say_written(out: Path | None, plot: Path | None) -> None:
    if out is not None:
        show.written("All categories", out)
    if plot is not None:
        show.written("Figure", plot)


app.command()(study)
app.command()(plan)
app.add_typer(tests, name="test")
