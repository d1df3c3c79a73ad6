"""Errors, with place and value as attributes, and parts of messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from importlib.util import find_spec
from numbers import Real
from typing import Any, ClassVar, TypeVar

# `DataError` is a name of `rrjax.io`, `StudyError` of `rrjax.study`.
__all__ = ["ArgumentError", "Contradiction", "Located", "MissingPackage", "PeerError", "UsageError"]

# Not `Self`: runtime checks of types by jaxtyping's import hook decorate functions, which know no class.
_LocatedT = TypeVar("_LocatedT", bound="Located")
_DataErrorT = TypeVar("_DataErrorT", bound="DataError")
NUMBER_SPACES = re.compile(r"(?<=\d) (?=[^\W\d_]|[–×] \d)|(?<=[=≤≥<±–×]) (?=\d)|(?<=\S) (?=[=≤≥<±] \d)")
"""Spaces at which a line is not broken: between a number and its unit, and around the sign before a number."""
_NAMES_FLAGS = ContextVar("names_flags", default=False)


class Located(Exception):  # noqa: N818
    """Base of all errors of rrjax: the attributes are for programs, the message is for people.

    Args:
        message: What is wrong, where, what came, and what to do.
        argument: Name of the argument of a function, or of the field of a file of settings.
        flag: Flag of the command line, with its dashes.
        file: Path as given.
        column: Name of the column.
        row: Number of the row or line of a file, from one; place in an array, from zero.
        value: The value that was refused. It is not part of the message if it may be a user's true value.
    """

    kind_of_subject: ClassVar[str] = "argument"
    """The attribute that `about` fills with the subject of the message."""

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

    @classmethod
    def about(cls: type[_LocatedT], subject: str, problem: str, **attributes: Any) -> _LocatedT:
        """The error whose message is the name of the argument, or of the flag, and the problem."""
        named: dict[str, Any] = {cls.kind_of_subject: subject, **attributes}
        return cls(f"{subject} {problem}", **named)


class ArgumentError(Located, ValueError):
    """An argument of a function that cannot be used as it is."""


class DataError(Located, ValueError):
    """Data that cannot be used as they are: `file`, `column`, `row`."""

    @classmethod
    def at(cls: type[_DataErrorT], file: str, problem: str, **attributes: Any) -> _DataErrorT:
        """The error whose message is the file, the column (if given) and the problem."""
        place = file if attributes.get("column") is None else f"{file}, column {attributes['column']!r}"
        return cls(f"{place}: {problem}", file=file, **attributes)


class Contradiction(DataError):  # noqa: N818
    """A request that contradicts the metadata of a file."""


class UsageError(Located):
    """A flag that is invalid or contradicts the data: `flag`."""

    kind_of_subject = "flag"


class StudyError(Located):
    """A study that cannot be run, or failed: `argument`."""


class PeerError(StudyError):
    """Another process of the study ended, or cannot be reached."""


class MissingPackage(Located, ImportError):  # noqa: N818
    """A package that an extra of rrjax installs, and that is not there: `value` is its name."""


def check_installed(extra: str, purpose: str, *packages: str) -> None:
    """Raises `MissingPackage` unless all packages are installed; `purpose` is the subject of the message.

    Called before the work, not where its result is written: what was computed would be lost.

    Example:
        >>> check_installed("study", "A study", "json")
        >>> check_installed("study", "A study", "no_such_package")
        Traceback (most recent call last):
        ...
        rrjax.data.errors.MissingPackage: A study needs no_such_package: pip install '.[study]' in a checkout of rrjax
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        message = f"{purpose} needs {' and '.join(missing)}: {how_to_install(extra)}"
        raise MissingPackage(message, value=missing[0])


def how_to_install(extra: str) -> str:
    """The command that installs an extra; it works without a published package."""
    return f"pip install '.[{extra}]' in a checkout of rrjax"


def number(count: int, one: str, many: str) -> str:
    """A number with its noun: 1 category, 12 categories."""
    return f"{count:,} {one if count == 1 else many}"


def reworded(error: Located, message: str, kind: type[Located] = DataError, **attributes: Any) -> Any:
    """An error of this kind with another message and the attributes of the given error."""
    return kind(message, **{**vars(error), **attributes})


@contextmanager
def naming_flags() -> Iterator[None]:
    """A context in which messages name flags of the command line in place of arguments of the library."""
    token = _NAMES_FLAGS.set(True)
    try:
        yield
    finally:
        _NAMES_FLAGS.reset(token)


def for_callers(text: str) -> str:
    """The text, which is advice for callers of the library; empty at the command line."""
    return "" if _NAMES_FLAGS.get() else text


def for_commands(text: str) -> str:
    """The text, which is advice at the command line; empty in the library."""
    return text if _NAMES_FLAGS.get() else ""


def refusal(argument: str, message: str, *, flag: str | None = None, value: Any = None) -> ArgumentError | UsageError:
    """The error about an argument of the library or, at the command line, about its flag, with one message."""
    if _NAMES_FLAGS.get():
        return UsageError(message, argument=argument, flag=flag or _flag_of(argument), value=value)
    return ArgumentError(message, argument=argument, value=value)


def option(argument: str, flag: str | None = None) -> str:
    """The name of an option in a message: "domain=" in the library, "--domain" at the command line."""
    if _NAMES_FLAGS.get():
        return flag or _flag_of(argument)
    return argument if "=" in argument else f"{argument}="


def _flag_of(argument):
    return f"--{argument.replace('_', '-')}"


def check_rate(argument: str, value: float, *, small: bool = False) -> None:
    """Refuses a level or rate outside of (0, 1); `small` if it is the probability of an error, for the hint."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise refusal(argument, f"{option(argument)} must be a number between 0 and 1, got {value!r}", value=value)
    if not 0 < value < 1:
        meant = 1 - value / 100 if small and value >= 50 else value / 100
        hint = f"; did you mean {meant:g}?" if (1 if small else 50) <= value < 100 else ""
        raise refusal(argument, f"{option(argument)} must lie between 0 and 1, got {value:g}{hint}", value=value)


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A hint to the known name that is most similar to a text; empty if none is."""
    near = get_close_matches(text, known, n=1, cutoff=0.4)
    return f"; did you mean {near[0]!r}?" if near else ""
