"""`rrjax test independent`."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from rrjax import inference
from rrjax.cli import show
from rrjax.cli.draws import Draws
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Command, Explain, Json, flags
from rrjax.cli.reading import Files, Reading, Reports, parse_domain, read_collection
from rrjax.cli.test import check_size, least_of_shuffles, tests
from rrjax.cli.verdicts import say
from rrjax.data.errors import UsageError
from rrjax.io.domain import Domain
from rrjax.io.metadata import Metadata
from rrjax.io.rows import count_pairs

_MOST_PAIRS = 2**14


@tests.command(cls=Command)
@flags(without=("column", "domain", "counts", "items"))
def independent(
    reports: Reports,
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
    ] = None,
    reading: Reading,
    explain: Explain = False,
    json: Json = False,
    draws: Draws,
) -> None:
    """Are two attributes of the same users independent?

    rrjax test independent pairs.parquet

    rrjax test independent reports.csv --column smokes --column income

    The first file holds pairs, randomized as one by `rrjax randomize` with two columns. The second holds two reports in
    each row, each attribute through a randomization of its own; no ε is needed then: independent values make
    independent reports, and only they do.
    """
    columns = column or []
    if columns and (len(columns) != 2 or columns[0] == columns[1]):
        raise UsageError(
            f"--column must be given twice, once for each attribute; got {', '.join(columns)}", flag="--column"
        )
    if domain and len(domain) != 2:
        raise UsageError("--domain must be given twice, in the order of the columns, or not at all", flag="--domain")
    first, second = [parse_domain(text) for text in domain or [None, None]]
    files = Files(reports, reading)
    metadata = files.source.metadata()
    if metadata is not None and metadata.columns is not None:
        _check(files.name, metadata, columns, (first, second))
        _of_pairs(files, metadata.columns, draws, json, explain)
        return
    if not columns:
        raise UsageError(
            f"--column must be given twice, once for each attribute: {files.name} is no file of pairs, as `rrjax "
            "randomize` makes of two columns",
            flag="--column",
        )
    with show.err.status("Counting …") as status:
        pairs = count_pairs(files.source, (columns[0], columns[1]), (first, second))
        number = int(pairs.counts.sum())
        check_size(number)
        status.update("Testing …")
        verdict = _independent(pairs.columns, pairs.counts, draws)
    shape = pairs.counts.shape
    if not json:
        for name, from_data in zip(pairs.columns, pairs.from_data, strict=True):
            if from_data:
                show.warn([f"The categories of {name!r} were taken from the data; --domain names them."])
        missing = show.number(pairs.num_missing, "row without is", "rows without are")
        show.say(
            f"{show.number(number, 'user', 'users')} with reports in both {_of(columns[0], shape[0])} and "
            f"{_of(columns[1], shape[1])}; {missing} left out"
        )
    more = {"columns": columns, "num_reports": number, "num_missing": pairs.num_missing}
    say("independent", [], [verdict], draws, json, explain, **more, num_categories=list(shape))


def _of(name: str, size: int) -> str:
    return f"{name!r} ({show.number(size, 'category', 'categories')})"


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


def _of_pairs(files: Files, columns: tuple[str, str], draws: Draws, json: bool, explain: bool) -> None:
    """Tests a file of pairs that were randomized as one."""
    with show.err.status("Counting …") as status:
        collection = read_collection(files, None)
        collection.check_counts("a test of pairs")
        check_size(collection.num_reports)
        shape = [factor.num_categories for factor in collection.counted.domain.factors or ()]
        counts = collection.counts.reshape(shape)
        if counts.size > _MOST_PAIRS:
            raise UsageError(
                f"the test is simulated, of at most {_MOST_PAIRS:,} pairs of categories; these are "
                f"{shape[0]:,} × {shape[1]:,}: coarser categories are needed",
                flag="REPORTS",
                value=counts.size,
            )
        status.update("Testing …")
        verdict = _independent(columns, counts, draws, collection.epsilon)
    say("independent", [collection], [verdict], draws, json, explain, columns=columns, num_categories=shape)


@ending_at_once()
def _independent(
    columns: tuple[str, str], counts: np.ndarray, draws: Draws, epsilon: float | None = None
) -> dict[str, Any]:
    """Whether two attributes are independent; with ε, whose pairs were randomized as one."""
    try:
        result = inference.independence_test(draws.key, counts, epsilon, **draws.options)
    except ValueError as error:
        raise UsageError(f"--column: {error}", flag="--column") from error
    question = f"Are {columns[0]} and {columns[1]} independent?"
    return draws.verdict(
        question, result, "No: they go together.", "Nothing speaks against it.", least_of_shuffles(counts)
    )
