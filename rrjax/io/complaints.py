"""What to say about values that cannot be used: where the first one is, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from rrjax.io.domain import Domain
from rrjax.io.errors import DataError, number
from rrjax.io.expressions import integer, is_missing, position, text
from rrjax.io.scan import Scan, scan


def outside(chosen: Scan, domain: Domain) -> DataError:
    """Values outside the domain, which the table `placed` (position, label, amount) holds."""
    place, _ = _first_place(
        chosen,
        lambda one: f"NOT {is_missing(one.kind, one.source.missing)} AND ({position(one.kind, domain)}) IS NULL",
        lambda one: text(one.kind),
    )
    bad = "FROM placed WHERE position IS NULL"
    total, different = chosen.query(f"SELECT CAST(sum(amount) AS BIGINT), count(*) {bad}")[0]
    examples = chosen.query(f"SELECT label {bad} ORDER BY amount DESC, label LIMIT 4")
    several = f", such as {', '.join(_shown(label) for (label,) in examples)}"
    return DataError(
        f"{place} is not in the domain {domain.describe()}; "
        f"{number(total, 'such value', 'such values')}{several * (different > 1)}. "
        "Give a domain that holds every possible answer (domain=, --domain), correct the data, or "
        "name the values that mean no answer (missing=, --missing)."
    )


def no_count(chosen: Scan, counts_column: str, refused: int) -> DataError:
    """Counts that are negative, fractional, missing or no numbers."""

    def is_refused(one: Scan) -> str:
        amount = integer(one.amount_kind, "amount")
        return f"({amount}) IS NULL OR ({amount}) < 0"

    place, shown = _first_place(chosen, is_refused, lambda one: text(one.amount_kind, "amount"), counts_column)
    what = "is too large" if _is_whole(shown) else "is not a count"
    return DataError(
        f"{place} {what}; {number(refused, 'such row', 'such rows')}. "
        f"Counts are whole numbers from 0 to {2**63 - 1:,}: correct the table."
    )


def _is_whole(shown: str | None) -> bool:
    """Whether a text is a whole number, in digits or as DuckDB writes large ones."""
    return shown is not None and re.fullmatch(r"\+?[0-9]+(\.0*)?|[0-9.]+e\+[0-9]+", shown) is not None


def nothing(chosen: Scan, num_missing: int) -> DataError:
    """No report at all."""
    what = f"all {num_missing:,} values are missing" if num_missing > 1 else "the one value is missing"
    return DataError(f"{chosen.where()}: {what if num_missing else 'there are no rows'}.")


def _first_place(
    chosen: Scan, condition: Callable[[Scan], str], shown: Callable[[Scan], str], counts_column: str | None = None
) -> tuple[str, str | None]:
    """File, column, row and value of the first row that fulfils a condition, as words; and the value as it is."""
    chosen.query("SET preserve_insertion_order = true")
    source, column = chosen.source, None if chosen.transactions else chosen.column
    # Row numbers count within a file, so the files are read again, one by one.
    for file in chosen.files:
        part = replace(source, paths=file, format=source.format_of(chosen.files), column=column)
        one = scan(chosen.connection, part, counts_column, chosen.filters)
        found = one.query(f"SELECT row, {shown(one)} FROM ({one.sql}) WHERE {condition(one)} ORDER BY row LIMIT 1")
        if found:
            named = f", column {counts_column or column!r}, row" if column else ", line"
            row, value = found[0]
            return f"{file}{named} {row:,}: {_shown(value)}", value
    return f"{chosen.where()}: a value", None


def _shown(value: str | None) -> str:
    if value is None:
        return "an empty cell"
    return repr(value if len(value) <= 60 else value[:57] + "…")
