"""The start of a command: JAX is loaded and configured when its work begins, so that help comes without it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Start(NamedTuple):
    """How a command is to start."""

    alone: bool
    """Whether the process is the command's own, so that it may set 64 bits; a library may not."""
    keep: bool
    """Whether compiled programs are kept."""


_START: ContextVar[Start | None] = ContextVar("start", default=None)


@contextmanager
def starting(start: Start) -> Iterator[None]:
    """A context in which the first command starts so."""
    token = _START.set(start)
    try:
        yield
    finally:
        _START.reset(token)


@contextmanager
def started() -> Iterator[None]:
    """A context in which a command works; as it is where it was not called from the command line."""
    start = _START.get()
    if start is None:
        yield
        return
    # Imported modules stay to the end: searching them for garbage takes a tenth of the start.
    gc.disable()
    try:
        import jax

        if start.alone:  # certificates of 1e-10 and totals above 2³¹ need 64 bits
            jax.config.update("jax_enable_x64", True)
        from rrjax.cli.cache import keeping_programs
    finally:
        gc.freeze()
        gc.enable()
    with keeping_programs(keep=start.keep):
        yield
