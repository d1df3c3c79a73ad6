"""Queries on the engine of a data frame, in the expressions of narwhals; and the labels that they return."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rrjax.data.errors import DataError, check_installed, number
from rrjax.io.database import integer_of
from rrjax.io.domain import Domain
from rrjax.io.read import MAX_TOTAL

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

IN_MEMORY = ("PANDAS", "MODIN", "PYARROW")
"""Engines with values in memory, without expressions for lists."""


def column_error(column: str, problem: str, **attributes: Any) -> DataError:
    """The error whose message is the column and the problem."""
    return DataError(f"Column {column!r}{problem}", column=column, **attributes)


def lazy(frame: Any) -> nw.LazyFrame:
    """A frame of any engine as a lazy frame of narwhals, which must be installed."""
    check_installed("frames", "Counting in a data frame", "narwhals")
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        return nw.from_native(frame).lazy()
    except DuplicateError as error:
        raise DataError(f"Columns of the frame have the same name: rename one. {error}", argument="frame") from error
    except TypeError as error:
        raise DataError(
            "A data frame is wanted (pandas, Polars, PyArrow, DuckDB, PySpark, Dask, …), not a "
            f"{type(frame).__name__}. For arrays there is mechanism.tally, for files read_tally.",
            argument="frame",
        ) from error


def type_of(frame, column):
    """The type of a column of the frame."""
    schema = frame.collect_schema()
    if column in schema:
        return schema[column]
    names = [str(name) for name in schema]
    similar = get_close_matches(str(column), names, n=1)
    shown = ", ".join(repr(name) for name in names[:20]) + ", …" * (len(names) > 20)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    raise DataError(f"The frame has no column {column!r}{hint} Its columns: {shown}.", argument="column")


@contextmanager
def on_engine(frame, operation: str) -> Iterator[None]:
    """Raises a `DataError` with advice for an operation that the engine does not have."""
    try:
        yield
    except NotImplementedError as error:
        raise DataError(
            f"{operation} cannot be counted by {frame.implementation.name.lower()}. Hand the data over to an engine "
            "that can, such as polars.from_arrow(table) or duckdb.from_arrow(table), or count arrays with "
            "mechanism.tally."
        ) from error


def rows_of(frame, column: str) -> list[Any]:
    """All values of a column of an engine in memory; None for nulls."""
    import narwhals.stable.v2 as nw

    return _without_nulls(frame.select(report=nw.col(column)).collect()["report"])


def row_of(frame, **expressions) -> dict[str, int]:
    """Aggregates of all rows."""
    found = frame.select(**expressions).collect()
    return {name: int(found[name].to_list()[0] or 0) for name in expressions}


def groups_of(frame, most: int, column: str) -> tuple[list[Any], dict[str, list[int]]]:
    """The different values of `report` (None for nulls), with sums of the other columns or numbers of rows."""
    import narwhals.stable.v2 as nw

    sums = [name for name in frame.collect_schema().names() if name != "report"]
    amounts = [nw.col(name).sum() for name in sums] or [nw.len().alias("amount")]
    # Without an order the engine may stop early: only a few of the N values of a wrong column are fetched.
    found = frame.group_by("report").agg(*amounts).head(most + 1).collect()
    if len(found) > most:
        example = found["report"].to_list()[0]
        raise column_error(
            column, f" has more than {most:,} different values, such as {example!r}: is it the column of reports?"
        )
    # Sums of DuckDB are decimals.
    return _without_nulls(found["report"]), {
        name: [int(n) for n in found[name].to_list()] for name in sums or ["amount"]
    }


def _without_nulls(series) -> list[Any]:
    """The values, with None for the nulls of the engine."""
    return [None if null else value for value, null in zip(series.to_list(), series.is_null().to_list(), strict=True)]


def amounts_of(frame, column: str, counts: str | None, most: int) -> tuple[list[Any], list[int]]:
    """The different values of a column, and the number of reports of each."""
    import narwhals.stable.v2 as nw

    if frame.implementation.is_pyarrow() and type_of(frame, column) == nw.Categorical:
        frame = frame.with_columns(nw.col(column).cast(nw.String))  # its chunks may have different dictionaries
    if counts is None:
        values, sums = groups_of(frame.select(report=nw.col(column)), most, column)
        return values, sums["amount"]
    kind = type_of(frame, counts)
    if counts == column or not kind.is_integer():
        raise DataError(f"The counts must be integers in a column of their own, and {counts!r} holds {kind}: cast it.")
    # Larger counts are refused anyway, and Arrow casts to floats only exact values.
    given = nw.col(counts).fill_null(0)  # before the cast, because Dask casts no nulls
    amount = given.cast(nw.Int64).clip(-1, MAX_TOTAL)
    refused = (nw.col(counts).is_null() | (given < 0)).cast(nw.Int64)
    # The rough sum shows whether the exact one has wrapped.
    rows = frame.select(report=nw.col(column), amount=amount, rough=amount.cast(nw.Float64), refused=refused)
    values, sums = groups_of(rows, most, column)
    bad = sum(sums["refused"])
    if bad:
        raise DataError(
            f"The counts in {counts!r} must be whole numbers from 0 on: {number(bad, 'one is', 'are')} negative or "
            "missing. Correct them."
        )
    if sum(sums["rough"]) >= MAX_TOTAL:
        message = f"The counts in {counts!r} add up to 2^53 or more; are these really numbers of reports?"
        raise DataError(message, column=counts)
    if values and not any(sums["amount"]):
        raise DataError(f"The counts in {counts!r} are all 0.", column=counts)
    return values, sums["amount"]


def check_labels(kind, column) -> None:
    """Refuses a column whose values are not labels."""
    import narwhals.stable.v2 as nw

    if kind.is_numeric() or kind == nw.Boolean or is_text(kind):
        return
    advice = "cast it to integers or text."
    if kind == nw.Binary:
        advice = "count it from the Parquet files (read_tally, rrjax estimate)."
    elif kind in (nw.List, nw.Array):
        advice = "lists are reports of unary encodings and of subset selection."
    raise column_error(column, f" holds {kind}, and reports that are labels are integers or text: {advice}")


def is_text(kind: Any) -> bool:
    """Whether a type of narwhals is a type of text."""
    import narwhals.stable.v2 as nw

    return kind in (nw.String, nw.Categorical, nw.Enum)


def placed(labels: Counter[str | int], domain: Domain, column: str) -> np.ndarray:
    """Counts over a domain, which must have all labels; different spellings of a label are added up."""
    if domain.is_range:
        first, last = domain.ends
        numbers = ((label, integer_of(label)) for label in labels)
        places = {label: n - first for label, n in numbers if n is not None and first <= n <= last}
    else:
        places = {label: place for place, label in enumerate(domain.listed or ())}
        places |= {label: places[str(label)] for label in labels if isinstance(label, int) and str(label) in places}
    outside = {label: amount for label, amount in labels.items() if label not in places}
    if outside:
        _refuse_outside(outside, domain, column)
    counts = np.zeros(domain.num_categories, np.int64)
    where = np.fromiter((places[label] for label in labels), np.int64, len(labels))
    np.add.at(counts, where, np.fromiter(labels.values(), np.int64, len(labels)))
    return counts


def _refuse_outside(outside: dict[str | int, int], domain: Domain, column: str) -> NoReturn:
    total = sum(outside.values())
    often = sorted(outside, key=lambda label: (-outside[label], str(label)))[:4]
    shown = ", ".join(repr(str(label)[:60]) for label in often)
    raise column_error(
        column,
        f": {number(total, 'report is', 'reports are')} not in the domain {domain.describe()}: "
        f"{shown}{', …' * (len(outside) > 4)}. Give a domain that holds every possible answer (domain=), or correct "
        "the data.",
    )


def domain_of(labels: Counter[str | int], column: str) -> Domain:
    """The different labels as a domain, in numeric order if all are integers."""
    numeric = all(isinstance(label, int) or re.fullmatch("-?[0-9]{1,18}", label) for label in labels)
    found = {str(label): None for label in labels}
    if len(found) < 2:
        raise column_error(
            column,
            f": every report is {next(iter(found))!r}, which does not tell the domain. Give all answers that were "
            "possible (domain=): a range such as 0:99 or a file of labels.",
        )
    return Domain.of(sorted(found, key=lambda label: (int(label), label)) if numeric else sorted(found))
