"""Numbers in texts: one notation for Python and SQL."""

NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""Pattern of a finite number, for SQL: DuckDB also takes 1_000 and +-1, and 18_24 is a label."""


def plain(text: str) -> str:
    """The text, for `float` and `Fraction`, which then take `NUMBER` (and words: inf, nan).

    `ValueError` for what they take besides: 1_000, and digits that are not ASCII.
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is no number in plain digits")
    return text
