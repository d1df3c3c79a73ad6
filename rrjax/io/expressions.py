"""SQL expressions over a column called `value`: its text, its integer, its category number.

Values come in three kinds: "integer" and "number" columns of Parquet, and "text" for the rest, so that a label such as
007 stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from rrjax.io.database import literal
from rrjax.io.domain import Domain

Kind = Literal["integer", "number", "text", "nested"]
"""Of a column; nested are lists, structs and maps, which are no labels."""

# DuckDB casts 12.5 to 13 and takes '1e3', '0x10' and '1_000' for integers, so what counts as an integer is said here. A
# BIGINT holds every number of 18 digits.
INTEGER_TEXT = r"[+-]?[0-9]{1,18}(\.0*)?"
LARGEST_EXACT_FLOAT = 2**53
# An apostrophe that is there already gets another one, so that taking one away gives every text back.
_FORMULA = r"'*[=+\-@\t\r]"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


def integer_of(label: str | int) -> int | None:
    """The integer that a label writes, as `integer` finds it in SQL; or None."""
    if isinstance(label, int):
        return label
    return int(label.partition(".")[0]) if re.fullmatch(INTEGER_TEXT, label) else None


def text(kind: Kind, value: str = "value") -> str:
    """The value as the text of a label; whole numbers lose their `.0`."""
    if kind == "text":
        return value
    as_text = f"CAST({value} AS VARCHAR)"
    return as_text if kind == "integer" else f"coalesce(CAST({_whole(value)} AS VARCHAR), {as_text})"


def integer(kind: Kind, value: str = "value") -> str:
    """The value as a BIGINT, NULL where it is no integer."""
    if kind == "integer":
        return f"TRY_CAST({value} AS BIGINT)"
    if kind == "number":
        return _whole(value)
    # Most text is a plain integer, which the first branch tells four times faster.
    return (
        f"CASE WHEN CAST(TRY_CAST({value} AS BIGINT) AS VARCHAR) = {value} "
        f"THEN TRY_CAST({value} AS BIGINT) "
        f"WHEN regexp_full_match({value}, {literal(INTEGER_TEXT)}) "
        f"THEN TRY_CAST(split_part({value}, '.', 1) AS BIGINT) END"
    )


def _whole(value: str) -> str:
    # NaN equals its own trunc in DuckDB, and is larger than every number.
    is_whole = f"{value} = trunc({value}) AND abs({value}) <= {LARGEST_EXACT_FLOAT}"
    return f"CASE WHEN {is_whole} THEN CAST({value} AS BIGINT) END"


def is_padded(label: str) -> str:
    """Whether the text of an integer begins with a zero that it does not need, as in codes such as 007."""
    return f"regexp_full_match({label}, '[+-]?0[0-9]+(\\.0*)?')"


def shown_to_spreadsheets(text: str) -> str:
    """A text as a cell that a spreadsheet does not run as a formula: with an apostrophe in front, as is customary."""
    formula = len(text) > 1 and re.match(_FORMULA, text) and not re.fullmatch(_NUMBER, text)
    return f"'{text}" if formula else text


def as_written(value: str) -> str:
    """The text of a cell, without the apostrophe of `shown_to_spreadsheets`."""
    return f"regexp_replace({value}, '^''(''*[=+@\\t\\r-])', '\\1')"


def is_integer_label(label: str) -> str:
    """Whether the text of a label is an integer as people write it."""
    return f"regexp_full_match({label}, '-?[0-9]{{1,18}}')"


def is_missing(kind: Kind, tokens: Sequence[str], value: str = "value") -> str:
    """Whether the value stands for a missing answer; never NULL."""
    listed = ", ".join(literal(token) for token in ("", *tokens))
    # NaN is how data frames write a missing number.
    nan = f"isnan(CAST({value} AS DOUBLE)) OR " if kind == "number" else ""
    return f"({value} IS NULL OR {nan}{text(kind, value)} IN ({listed}))"


def position(kind: Kind, domain: Domain, value: str = "value") -> str:
    """The value's 0-based category number, NULL where the domain does not have it.

    For listed labels the connection must have the type that listed domains need (`read._declare`).
    """
    if not domain.is_range:
        return f"CAST(enum_code(TRY_CAST({text(kind, value)} AS category)) AS BIGINT)"
    first, last = domain.ends
    number = integer(kind, value)
    return f"CASE WHEN {number} BETWEEN {first} AND {last} THEN {number} - ({first}) END"
