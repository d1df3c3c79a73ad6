"""SQL expressions for values that mean a missing answer by their name."""

from __future__ import annotations

from collections.abc import Sequence

from rrjax.io.database import LARGEST_EXACT_FLOAT, Kind, is_missing, literal, text


def has_no_answer(kind: Kind, tokens: Sequence[str], *, numbers: bool = False) -> str:
    """Whether `value` means a missing answer, by itself or by `is_named`; never NULL."""
    named = f" OR {is_named(kind, tokens, numbers=numbers)}" if tokens else ""
    return f"({is_missing(kind, ())}{named})"


def is_named(kind: Kind, tokens: Sequence[str], *, numbers: bool = False) -> str:
    """Whether `value` is one of the tokens: in columns of numbers as a number, so that 99 is 99.0, else as text.

    Args:
        kind: Kind of the column.
        tokens: At least one.
        numbers: Whether the texts of a column of texts are read as numbers.
    """
    named = f"{text(kind)} IN ({', '.join(map(literal, tokens))})"
    given = [f"{number!r}::DOUBLE" for token in tokens if (number := number_of(token)) is not None]
    if given and (kind in ("integer", "number") or (kind == "text" and numbers)):
        named += f" OR coalesce(TRY_CAST(value AS DOUBLE) IN ({', '.join(given)}), false)"
    return f"({named})"


def number_of(token: str) -> float | None:
    """The number that a text names; None for other texts, and for numbers that floats do not tell apart.

    Example:
        >>> number_of("99.0"), number_of("?")
        (99.0, None)
    """
    try:
        number = float(token)
    except ValueError:
        return None
    return number if abs(number) < LARGEST_EXACT_FLOAT else None
