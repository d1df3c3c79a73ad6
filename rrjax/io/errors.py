"""What reading and writing complain with."""


class DataError(ValueError):
    """Data that cannot be used as they are.

    The message is for a person: it names the file, the column, row or value, says what came, and what to do about it.
    """


def number(count: int, one: str, many: str) -> str:
    """How many of what, in words: 1 category, 12 categories."""
    return f"{count:,} {one if count == 1 else many}"


class Contradiction(DataError):  # noqa: N818
    """What was asked for is not what a file says of itself."""
