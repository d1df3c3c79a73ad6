"""`rrjax test independent`."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from rrjax import inference
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import flags
from rrjax.cli.paths import READS
from rrjax.cli.reading import Files, Reading, ReportFiles, parse_domain, read_collection
from rrjax.cli.testing import SimulatedTest, check_size, least_of_shuffles, show_outcomes
from rrjax.data.errors import UsageError
from rrjax.io.domain import Domain
from rrjax.io.metadata import Metadata
from rrjax.io.rows import count_pairs
from rrjax.reports import form

MOST_PAIRS = 2**14
"""Limit of the number of pairs of categories, because the test is simulated."""


@flags(without=("column", "domain", "counts", "items"))
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
    options: SimulatedTest,
) -> None:
    """Are two attributes of the same users independent?

    rrjax test independent pairs.parquet

    rrjax test independent reports.csv --column smokes --column income

    The first file holds pairs that `rrjax randomize` with two columns randomized as one value. The second file holds
    two reports in each row, which were randomized separately; no ε is needed then, because the reports are independent
    exactly if the values are. That holds for answers to survey designs too, without naming the design.
    """
    columns = column or []
    if columns and (len(columns) != 2 or columns[0] == columns[1]):
        raise UsageError.about("--column", f"must be given twice, once for each attribute; got {', '.join(columns)}")
    if domain and len(domain) != 2:
        raise UsageError("--domain must be given twice, in the order of the columns, or not at all", flag="--domain")
    first, second = [parse_domain(text) for text in domain or [None, None]]
    files = Files(reports, reading)
    apart = files.source.columns()
    metadata = None if len(apart) > 1 else files.source.metadata()
    if metadata is not None and metadata.columns is not None:
        _check(files.name, metadata, columns, (first, second))
        _of_pairs(files, metadata.columns, options)
        return
    if not columns:
        raise UsageError(
            f"--column must be given twice, once for each attribute: {files.name} is no file of pairs, as `rrjax "
            "randomize` makes of two columns",
            flag="--column",
        )
    if len(apart) > 1:
        lacking = next((name for name in columns if name not in apart), None)
        if lacking is not None:
            raise UsageError.about("--column", f"{lacking}: {files.name} has reports in {', '.join(map(repr, apart))}")
        first, second = (apart[name].domain for name in columns)
    with show.status("Counting …") as status:
        pairs = count_pairs(files.source, (columns[0], columns[1]), (first, second))
        number = int(pairs.counts.sum())
        check_size(number)
        options = options.bounded(pairs.counts.size, warnings := [])
        status.update("Testing …")
        outcome = _independent(pairs.columns, pairs.counts, options)
    shape = pairs.counts.shape
    if not options.json:
        show.warn(warnings)
        for name, from_data in zip(pairs.columns, pairs.from_data, strict=True):
            if from_data:
                show.warn([f"The categories of {name!r} were taken from the data; --domain names them."])
        missing = form.number(pairs.num_missing, "row without is", "rows without are")
        show.say(
            f"{form.number(number, 'user', 'users')} with reports in both {_of(columns[0], shape[0])} and "
            f"{_of(columns[1], shape[1])}; {missing} left out"
        )
    more = {"columns": columns, "num_reports": number, "num_missing": pairs.num_missing}
    show_outcomes("independent", [], [outcome], options, **more, num_categories=list(shape))


def _of(name: str, size: int) -> str:
    return f"{name!r} ({form.number(size, 'category', 'categories')})"


def _check(name: str, metadata: Metadata, columns: list[str], domains: tuple[Domain | None, ...]) -> None:
    """Refuses flags that contradict a file of pairs."""
    if columns and tuple(columns) != metadata.columns:
        raise UsageError(
            f"--column {' --column '.join(columns)} contradicts {name}, which holds pairs of "
            f"{' and '.join(map(repr, metadata.columns or ()))}; leave it out",
            flag="--column",
        )
    for own, given in zip(metadata.domain.factors or (), domains, strict=True):
        if given is not None and given != own:
            raise UsageError(
                f"--domain contradicts {name}, which was collected with the domain {own.describe()}, not "
                f"{given.describe()}; leave it out",
                flag="--domain",
            )


def _of_pairs(files: Files, columns: tuple[str, str], options: SimulatedTest) -> None:
    """Tests a file of pairs that were randomized as one value."""
    with show.status("Counting …") as status:
        collection = read_collection(files, None)
        collection.check_counts("a test of pairs")
        check_size(collection.num_reports)
        shape = [factor.num_categories for factor in collection.counted.domain.factors or ()]
        counts = collection.counts.reshape(shape)
        if counts.size > MOST_PAIRS:
            raise UsageError(
                f"the test is simulated, of at most {MOST_PAIRS:,} pairs of categories; these are "
                f"{shape[0]:,} × {shape[1]:,}: coarser categories are needed",
                flag="REPORTS",
                value=counts.size,
            )
        options = options.bounded(counts.size, collection.warnings)
        status.update("Testing …")
        outcome = _independent(columns, counts, options, collection.epsilon)
    show_outcomes("independent", [collection], [outcome], options, columns=columns, num_categories=shape)


@ending_at_once()
def _independent(
    columns: tuple[str, str], counts: np.ndarray, options: SimulatedTest, epsilon: float | None = None
) -> dict[str, Any]:
    """Tests whether two attributes are independent; ε is given if their pairs were randomized as one value."""
    try:
        result = inference.independence_test(options.key, counts, epsilon, **options.arguments)
    except ValueError as error:
        raise UsageError(f"--column: {error}", flag="--column") from error
    question = f"Are {columns[0]} and {columns[1]} independent?"
    return options.outcome(
        question, result, "No: they go together.", "Nothing speaks against it.", least_of_shuffles(counts)
    )
