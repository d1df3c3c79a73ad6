"""Errors that say, as data too, where something is wrong and what came; their message is for a person."""

from __future__ import annotations

from typing import Any


class Located(Exception):  # noqa: N818
    """The base of all errors here: programs read the attributes, people the message.

    Args:
        message: What is wrong, where, what came, and what to do.
        argument: Name of the argument of a function, or of the field of a file of settings.
        flag: Flag of the command line, with its dashes.
        file: Path as it was given.
        column: Name of the column.
        row: Number of the row or line of a file, from one; place in an array, from zero.
        value: The value that was refused. It is not part of the message where it may be a user's true value.
    """

    def __init__(
        self,
        message: str = "",
        *,
        argument: str | None = None,
        flag: str | None = None,
        file: Any = None,
        column: str | None = None,
        row: int | None = None,
        value: Any = None,
    ) -> None:
        """Keeps the message as the only positional argument, so that the error can be pickled."""
        super().__init__(message)
        self.argument = argument
        self.flag = flag
        self.file = file
        self.column = column
        self.row = row
        self.value = value


class ArgumentError(Located, ValueError):
    """An argument of a function that cannot be used as it is."""


class DataError(Located, ValueError):
    """Data that cannot be used as they are: `file`, `column`, `row`."""


class Contradiction(DataError):  # noqa: N818
    """The request contradicts what a file says of itself."""


class UsageError(Located):
    """A flag that is wrong in itself or contradicts the data: `flag`."""


class StudyError(Located):
    """A study that cannot be run, or went wrong: `argument`."""


class PeerError(StudyError):
    """Another process of the study ended, or cannot be reached."""
