"""What to say about values that cannot be used: where the first one is, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from rrjax.data.errors import DataError, number, option
from rrjax.io.domain import Domain
from rrjax.io.expressions import integer, is_missing, position, text
from rrjax.io.scan import Scan, scan


def outside(chosen: Scan, domain: Domain) -> DataError:
    """Values outside the domain, which the table `placed` (position, label, amount) holds."""
    place = _first_place(
        chosen,
        lambda one: f"NOT {is_missing(one.kind, one.source.missing)} AND ({position(one.kind, domain)}) IS NULL",
        lambda one: text(one.kind),
    )
    bad = "FROM placed WHERE position IS NULL"
    total, different = chosen.query(f"SELECT CAST(sum(amount) AS BIGINT), count(*) {bad}")[0]
    examples = chosen.query(f"SELECT label {bad} ORDER BY amount DESC, label LIMIT 4")
    several = f", such as {', '.join(_shown(label) for (label,) in examples)}"
    more = ""
    if chosen.confidential:
        showing = option("show_values=True", "--show-values")
        several, more = "", f" Logs keep messages, so values are not repeated here: {showing} names them."
    return place.error(
        f"is not in the domain {domain.describe()}; "
        f"{number(total, 'such value', 'such values')}{several * (different > 1)}. "
        f"Give a domain that holds every possible answer ({option('domain')}), correct the data, or "
        f"name the values that mean no answer ({option('missing')}).{more}"
    )


def no_count(chosen: Scan, counts_column: str, refused: int) -> DataError:
    """Counts that are negative, fractional, missing or no numbers."""

    def is_refused(one: Scan) -> str:
        amount = integer(one.amount_kind, "amount")
        return f"({amount}) IS NULL OR ({amount}) < 0"

    place = _first_place(chosen, is_refused, lambda one: text(one.amount_kind, "amount"), counts_column)
    what = "is too large" if _is_whole(place.value) else "is not a count"
    return place.error(
        f"{what}; {number(refused, 'such row', 'such rows')}. "
        f"Counts are whole numbers from 0 to {2**63 - 1:,}: correct the table."
    )


def _is_whole(shown: str | None) -> bool:
    """Whether a text is a whole number, in digits or as DuckDB writes large ones."""
    return shown is not None and re.fullmatch(r"\+?[0-9]+(\.0*)?|[0-9.]+e\+[0-9]+", shown) is not None


def nothing(chosen: Scan, num_missing: int) -> DataError:
    """No report at all."""
    what = f"all {num_missing:,} values are missing" if num_missing > 1 else "the one value is missing"
    return DataError(
        f"{chosen.where()}: {what if num_missing else 'there are no rows'}.",
        file=chosen.files[0],
        column=None if chosen.transactions else chosen.column,
    )


@dataclass(frozen=True)
class _Place:
    """Where a value is that cannot be used."""

    where: str
    confidential: bool
    file: str
    column: str | None = None
    row: int | None = None
    value: str | None = None

    def error(self, rest: str) -> DataError:
        """Says what is wrong with it."""
        shown = "a value" if self.row is None else "the value" if self.confidential else _shown(self.value)
        return DataError(
            f"{self.where}: {shown} {rest}",
            file=self.file,
            column=self.column,
            row=self.row,
            value=None if self.confidential else self.value,
        )


def _first_place(
    chosen: Scan, condition: Callable[[Scan], str], shown: Callable[[Scan], str], counts_column: str | None = None
) -> _Place:
    """Where the first row is that fulfils a condition."""
    chosen.query("SET preserve_insertion_order = true")
    source, column = chosen.source, None if chosen.transactions else chosen.column
    # Row numbers count within a file, so the files are read again, one by one.
    for file in chosen.files:
        part = replace(source, paths=file, format=source.format_of(chosen.files), column=column)
        one = scan(chosen.connection, part, counts_column, chosen.filters)
        found = one.query(f"SELECT row, {shown(one)} FROM ({one.sql}) WHERE {condition(one)} ORDER BY row LIMIT 1")
        if found:
            name = counts_column or column
            named = f", column {name!r}, row" if name else ", line"
            row, value = found[0]
            # Counts are no values of single users.
            confidential = chosen.confidential and counts_column is None
            return _Place(f"{file}{named} {row:,}", confidential, file, name, row, value)
    return _Place(chosen.where(), chosen.confidential, chosen.files[0], counts_column or column)


def _shown(value: str | None) -> str:
    if value is None:
        return "an empty cell"
    return repr(value if len(value) <= 60 else value[:57] + "…")
