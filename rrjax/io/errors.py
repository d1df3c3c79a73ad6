"""The one error that reading and writing raise."""

__all__ = ["DataError"]


class DataError(ValueError):
    """Data that cannot be used as they are.

    The message is for a person: it names the file, the column, row or value, says what came, and
    what to do about it.
    """
