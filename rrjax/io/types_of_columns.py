"""Types of columns: those of one column in several files, with expressions of one type that holds all values exactly.

A column is its expression in SQL, its kind, and its type in DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rrjax.io.database import LARGEST_EXACT_FLOAT, NAN, Kind, text

Column = tuple[str, Kind, str]
INTEGERS = {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "HUGEINT": 39}
"""Types of integers, which may have a U before them, and their digits."""
FLOATS = ("FLOAT", "DOUBLE")
_LARGE = "LARGE "
"""Before a type of floats of which one may stand for several integers."""


def kind_of(type_name: str) -> Kind:
    """The kind of a type of DuckDB."""
    if type_name.endswith("]") or type_name.startswith(("STRUCT", "MAP", "UNION")):
        return "nested"
    if type_name.removeprefix("U") in INTEGERS:
        return "integer"
    return "number" if type_name in FLOATS or type_name.startswith("DECIMAL") else "text"


def plain_type(type_name: str) -> str:
    """The type without the unit of times, on which their texts do not depend."""
    return type_name.replace("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE").removesuffix("_NS")


def type_of_values(type_name: str, largest: Any) -> str:
    """The type that values need whose largest size is given: fewer digits of integers and DECIMAL, or `_LARGE`."""
    if type_name in FLOATS:
        return _LARGE * (largest > LARGEST_EXACT_FLOAT) + type_name
    if kind_of(type_name) not in ("integer", "number"):
        return type_name
    _, scale = _digits(type_name)
    return f"DECIMAL({min(len(str(int(largest))) + scale, 38)},{scale})"


def joined(columns: Sequence[Column]) -> tuple[Kind, list[str]] | None:
    """The kind and the expressions of columns whose types DuckDB joins, or that a type of numbers holds, exactly.

    DuckDB would join DECIMAL(38,0) and DECIMAL(10,2) as the former, and DECIMAL and FLOAT as FLOAT, which round.
    """
    kinds: set[Kind] = {kind for _, kind, _ in columns}
    types = {type_name for _, _, type_name in columns}
    if len(kinds) == 1 and (len(types) == 1 or kinds == {"integer"} or len({*map(_with_bigint, types)}) == 1):
        return kinds.pop(), [own for own, _, _ in columns]
    if kinds <= {"integer", "number"} and (joint := _joint_type(types)) is not None:
        return "number", [_cast(own, type_name, joint) for own, _, type_name in columns]
    return None


def as_texts(columns: Sequence[Column]) -> tuple[Kind, list[str]] | None:
    """The kind and the expressions of whole numbers beside texts or floats, as texts: each has one text."""
    others = {type_name for *_, type_name in columns if not _is_whole(type_name)}
    if not (others == {"VARCHAR"} or others <= {*FLOATS}):
        return None
    texts = [(text(kind, own), kind) for own, kind, _ in columns]
    # Data frames write a missing number as NaN, which is no text. (`isnan` is false of some that Parquet files hold.)
    return "text", [f"CASE WHEN {one} NOT IN {NAN} THEN {one} END" if kind == "number" else one for one, kind in texts]


def _cast(own: str, type_name: str, joint: str) -> str:
    """A number as one of another type; a fraction that is a FLOAT as the number that its text is, such as 0.1."""
    cast = f"CAST({own} AS {joint})"
    if type_name.removeprefix(_LARGE) != "FLOAT":
        return cast
    return f"CASE WHEN {own} = trunc({own}) THEN {cast} ELSE CAST(CAST({own} AS VARCHAR) AS {joint}) END"


def _joint_type(types: set[str]) -> str | None:
    """The type that holds the numbers of these types of integers, DECIMAL, FLOAT and DOUBLE exactly, or None."""
    exact = [_digits(each) for each in types if each.removeprefix(_LARGE) not in FLOATS]
    if len(exact) < len(types):  # some are floats
        return "DOUBLE" if all(digits <= 15 for digits, _ in exact) else None
    scale = max(each for _, each in exact)
    digits = scale + max(digits - each for digits, each in exact)
    return f"DECIMAL({digits},{scale})" if digits <= 38 else None


def _with_bigint(type_name: str) -> str:
    """A nested type with BIGINT in place of all integers that it holds."""
    integers = r'("[^"]*")|\b(?:U?TINYINT|U?SMALLINT|U?INTEGER)\b'  # or a name of a field
    return re.sub(integers, lambda match: match[1] or "BIGINT", type_name)


def _digits(type_name: str) -> tuple[int, int]:
    """The number of digits of a type of integers or DECIMAL, and of those after the point."""
    if type_name.startswith("DECIMAL"):
        digits, scale = map(int, re.findall("[0-9]+", type_name))
        return digits, scale
    return INTEGERS[type_name.removeprefix("U")] + (type_name == "UBIGINT"), 0


def _is_whole(type_name: str) -> bool:
    return kind_of(type_name) == "integer" or (type_name.startswith("DECIMAL") and _digits(type_name)[1] == 0)
