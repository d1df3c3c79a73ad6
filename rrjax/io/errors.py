"""The errors of reading and writing, and how they count."""

from rrjax.errors import Contradiction as Contradiction
from rrjax.errors import DataError as DataError


def number(count: int, one: str, many: str) -> str:
    """How many of what, in words: 1 category, 12 categories."""
    return f"{count:,} {one if count == 1 else many}"
