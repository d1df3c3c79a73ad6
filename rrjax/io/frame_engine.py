"""What the engine of a data frame is asked, in the expressions of narwhals, and what is said where it cannot answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rrjax.data.errors import DataError, number
from rrjax.io.read import MAX_TOTAL

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

IN_MEMORY = ("PANDAS", "MODIN", "PYARROW")
"""Engines that have no expressions for lists, but whose values are here."""


def lazy(frame: Any) -> nw.LazyFrame:
    """A frame of any engine as a lazy one of narwhals, which must be installed."""
    try:
        import narwhals.stable.v2 as nw
        from narwhals.exceptions import DuplicateError
    except ImportError as error:
        raise DataError(
            "Counting in data frames needs narwhals. Install it with: pip install 'rrjax[frames]'"
        ) from error
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
    """The type of a column, which must be there once."""
    schema = frame.collect_schema()
    if column in schema:
        return schema[column]
    names = [str(name) for name in schema]
    near = get_close_matches(str(column), names, n=1)
    shown = ", ".join(repr(name) for name in names[:20]) + ", …" * (len(names) > 20)
    raise DataError(
        f"The frame has no column {column!r}{f'; did you mean {near[0]!r}?' if near else '.'} Its columns: {shown}.",
        argument="column",
    )


@contextmanager
def on_engine(frame, what: str) -> Iterator[None]:
    """Says of what an engine cannot do where it can be done."""
    try:
        yield
    except NotImplementedError as error:
        raise DataError(
            f"{what} cannot be counted by {frame.implementation.name.lower()}. Hand the data over to an engine that "
            "can, such as polars.from_arrow(table) or duckdb.from_arrow(table), or count arrays with mechanism.tally."
        ) from error


def rows_of(frame, column: str) -> list[Any]:
    """All values of a column, of an engine in memory; None for nulls."""
    import narwhals.stable.v2 as nw

    found = frame.select(report=nw.col(column)).collect()["report"]
    return _without_nulls(found)


def row_of(frame, **expressions) -> dict[str, int]:
    """Aggregates of all rows."""
    found = frame.select(**expressions).collect()
    return {name: int(found[name].to_list()[0] or 0) for name in expressions}


def groups_of(frame, most: int, column: str) -> tuple[list[Any], dict[str, list[int]]]:
    """The different values of column `report`, None for nulls, and the sums of other columns, or numbers of rows."""
    import narwhals.stable.v2 as nw

    sums = [name for name in frame.collect_schema().names() if name != "report"]
    amounts = [nw.col(name).sum() for name in sums] or [nw.len().alias("amount")]
    # Without an order the engine may stop at the first ones: a wrong column of N values must not come here.
    found = frame.group_by("report").agg(*amounts).head(most + 1).collect()
    if len(found) > most:
        raise DataError(
            f"Column {column!r} has more than {most:,} different values, such as {found['report'].to_list()[0]!r}: is "
            "it the column of reports?",
            column=column,
        )
    values = _without_nulls(found["report"])
    # Sums of DuckDB are decimals.
    return values, {name: [int(n) for n in found[name].to_list()] for name in sums or ["amount"]}


def _without_nulls(series) -> list[Any]:
    """The values, with None for what an engine has for nulls."""
    return [None if null else value for value, null in zip(series.to_list(), series.is_null().to_list(), strict=True)]


def amounts_of(frame, column: str, counts: str | None, most: int) -> tuple[list[Any], list[int]]:
    """The different values of a column, and how many reports have each."""
    import narwhals.stable.v2 as nw

    if frame.implementation.is_pyarrow() and type_of(frame, column) == nw.Categorical:
        frame = frame.with_columns(nw.col(column).cast(nw.String))  # its chunks may have dictionaries of their own
    if counts is None:
        values, sums = groups_of(frame.select(report=nw.col(column)), most, column)
        return values, sums["amount"]
    kind = type_of(frame, counts)
    if counts == column or not kind.is_integer():
        raise DataError(f"The counts must be integers in a column of their own, and {counts!r} holds {kind}: cast it.")
    # What is beyond is refused anyway, and Arrow casts to floats only what they hold.
    given = nw.col(counts).fill_null(0)  # before the cast, which Dask refuses nulls
    amount = given.cast(nw.Int64).clip(-1, MAX_TOTAL)
    refused = (nw.col(counts).is_null() | (given < 0)).cast(nw.Int64)
    # The rough sum tells where the exact one has wrapped.
    rows = frame.select(report=nw.col(column), amount=amount, rough=amount.cast(nw.Float64), refused=refused)
    values, sums = groups_of(rows, most, column)
    bad = sum(sums["refused"])
    if bad:
        raise DataError(
            f"The counts in {counts!r} must be whole numbers from 0 on: {number(bad, 'one is', 'are')} negative or "
            "missing. Correct them."
        )
    if sum(sums["rough"]) >= MAX_TOTAL:
        raise DataError(
            f"The counts in {counts!r} add up to 2^53 or more; are these really numbers of reports?", column=counts
        )
    if values and not any(sums["amount"]):
        raise DataError(f"The counts in {counts!r} are all 0.", column=counts)
    return values, sums["amount"]
