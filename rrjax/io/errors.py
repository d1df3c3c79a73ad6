"""The errors of reading and writing, how they count, and what they call an option."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rrjax.data.errors import Contradiction as Contradiction
from rrjax.data.errors import DataError as DataError
from rrjax.data.errors import Located

_FLAGS = ContextVar("flags", default=False)


def number(count: int, one: str, many: str) -> str:
    """How many of what, in words: 1 category, 12 categories."""
    return f"{count:,} {one if count == 1 else many}"


def reworded(error: Located, message: str, kind: type[Located] = DataError, **attributes: Any) -> Any:
    """An error of this kind that says more than another one, about the same place."""
    return kind(message, **{**vars(error), **attributes})


@contextmanager
def naming_flags() -> Iterator[None]:
    """In here messages name the flags of the command line, outside the arguments of the library."""
    token = _FLAGS.set(True)
    try:
        yield
    finally:
        _FLAGS.reset(token)


def for_callers(text: str) -> str:
    """Advice that only a caller of the library can follow; nothing at the command line."""
    return "" if _FLAGS.get() else text


def option(argument: str, flag: str | None = None) -> str:
    """What a message calls an option: "domain=" of a caller, "--domain" of somebody at the command line."""
    if _FLAGS.get():
        return flag or f"--{argument}"
    return argument if "=" in argument else f"{argument}="
