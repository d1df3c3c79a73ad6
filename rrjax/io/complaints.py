"""What to say about values that cannot be used: where the first one is, and what to do."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rrjax.io.domain import Domain
from rrjax.io.errors import DataError
from rrjax.io.expressions import integer, is_missing, position, text
from rrjax.io.scan import Scan, scan
from rrjax.io.source import Source

if TYPE_CHECKING:
    import duckdb

__all__ = ["no_count", "nothing", "outside", "where"]


def outside(connection: "duckdb.DuckDBPyConnection", source: Source, chosen: Scan, domain: Domain) -> DataError:
    """Values outside the domain, which the table `placed` (position, label, amount) holds."""
    total, different = connection.execute(
        "SELECT CAST(sum(amount) AS BIGINT), count(*) FROM placed WHERE position IS NULL"
    ).fetchall()[0]
    examples = connection.execute(
        "SELECT label FROM placed WHERE position IS NULL ORDER BY amount DESC, label LIMIT 4"
    ).fetchall()
    place = _first_place(
        connection,
        source,
        chosen,
        chosen.column,
        lambda one: f"NOT {is_missing(one.kind, source.missing)} AND ({position(one.kind, domain)}) IS NULL",
        lambda one: text(one.kind),
    )
    several = f", such as {', '.join(_shown(label) for (label,) in examples)}"
    return DataError(
        f"{place} is not in the domain {domain.describe()}; {total:,} such "
        f"report{'s' * (total != 1)}{several * (different > 1)}. "
        "Give a domain that holds every possible answer (domain=, --domain), correct the data, or "
        "name the values that mean no answer (missing=, --missing)."
    )


def no_count(
    connection: "duckdb.DuckDBPyConnection",
    source: Source,
    chosen: Scan,
    counts_column: str,
    refused: int,
) -> DataError:
    """Counts that are negative, fractional, missing or no numbers."""

    def is_refused(one: Scan) -> str:
        number = integer(one.amount_kind, "amount")
        return f"({number}) IS NULL OR ({number}) < 0"

    place = _first_place(
        connection,
        source,
        chosen,
        counts_column,
        is_refused,
        lambda one: text(one.amount_kind, "amount"),
        counts_column,
    )
    return DataError(
        f"{place} is not a count; {refused:,} such row{'s' * (refused != 1)}. "
        "Counts are whole numbers, 0 or more: correct the table."
    )


def nothing(chosen: Scan, num_missing: int) -> DataError:
    """No report at all."""
    if num_missing:
        return DataError(f"{where(chosen)}: all {num_missing:,} values are missing.")
    return DataError(f"{where(chosen)}: there are no rows.")


def where(chosen: Scan) -> str:
    """The files and the column, for a message."""
    files = ", ".join(chosen.files[:3])
    more = f" and {len(chosen.files) - 3} more" if len(chosen.files) > 3 else ""
    named = "" if chosen.format == "transactions" else f", column {chosen.column!r}"
    return f"{files}{more}{named}"


def _first_place(
    connection: "duckdb.DuckDBPyConnection",
    source: Source,
    chosen: Scan,
    column: str,
    condition: Callable[[Scan], str],
    shown: Callable[[Scan], str],
    counts_column: str | None = None,
) -> str:
    """File, column, row and value of the first row that fulfils a condition."""
    connection.execute("SET preserve_insertion_order = true")
    transactions = chosen.format == "transactions"
    # Row numbers count within a file, so the files are read again, one by one.
    for file in chosen.files:
        part = replace(
            source,
            paths=(file,),
            format=chosen.format,
            column=None if transactions else chosen.column,
        )
        one = scan(connection, part, counts_column, chosen.filters)
        found = connection.execute(
            f"SELECT row, {shown(one)} FROM ({one.sql}) WHERE {condition(one)} ORDER BY row LIMIT 1"
        ).fetchall()
        if found:
            named = ", line" if transactions else f", column {column!r}, row"
            return f"{file}{named} {found[0][0]:,}: {_shown(found[0][1])}"
    return f"{where(chosen)}: a value"


def _shown(value: str | None) -> str:
    if value is None:
        return "an empty cell"
    return repr(value if len(value) <= 60 else value[:57] + "…")
