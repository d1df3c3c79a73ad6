"""Handlers of Ctrl-C: end the process at once while JAX computes, raise an exception while files are open."""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import cast

INTERRUPTED = 130
MESSAGE = "interrupted; no partial file is left behind"
AT_IMPORT = "interrupted twice while a module was imported; an unfinished file may be left, named .rrjax-…"
WHILE_FINISHING = "interrupted twice while a round was finished; unfinished files may be left, named .rrjax-…"
SECONDS_BETWEEN_TRIES = 0.02
"""Time until an interrupt that came while a module was imported comes again."""


@contextmanager
def ending_at_once(message: str = MESSAGE) -> Iterator[None]:
    """Lets Ctrl-C end the process at once with a message, while no file is open.

    A KeyboardInterrupt inside XLA's callbacks or during the import of extension modules may be swallowed, hang, or
    crash the interpreter at its exit.
    """
    with _handling(partial(_end, message)):
        yield


@contextmanager
def unwinding() -> Iterator[None]:
    """Lets Ctrl-C raise KeyboardInterrupt while files are read and written, so that they are cleaned up.

    While a module is imported it waits, because extension modules crash on an exception in their first lines. A second
    Ctrl-C then ends the process, in case that the module does not end.
    """
    with _handling(_AfterImports()):
        yield


@contextmanager
def finishing() -> Iterator[None]:
    """Lets Ctrl-C wait for files that must all be written once the first of them is; a second one ends the process.

    The work is done then: the interrupt has no further effect.
    """
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if came:
            _end(WHILE_FINISHING, number, frame)
        came.append(number)

    with _handling(handle):
        yield


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # where signals cannot be handled
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _AfterImports:
    """A handler that raises KeyboardInterrupt; while a module is imported, it lets one interrupt come again soon."""

    def __init__(self) -> None:
        self._waits, self._is_again = False, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_again, self._is_again = self._is_again, False
        if not _imports(frame):
            self._waits = False
            signal.default_int_handler(number, frame)
        if self._waits and not is_again:
            _end(AT_IMPORT, number, frame)
        self._waits = True
        timer = threading.Timer(SECONDS_BETWEEN_TRIES, self._again)
        timer.daemon = True
        timer.start()

    def _again(self) -> None:
        if not self._waits:  # the next Ctrl-C came after the import, and was raised
            return
        self._is_again = True
        if hasattr(signal, "pthread_kill"):
            # A signal wakes the main thread where it waits, for a lock or for a file; `interrupt_main` does not.
            signal.pthread_kill(cast("int", threading.main_thread().ident), signal.SIGINT)
        else:
            _thread.interrupt_main()


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported in this frame or around it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end(message: str, number: int, frame: FrameType | None) -> None:
    del number, frame
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a spinner hides it
    os.write(sys.stderr.fileno(), f"{show_cursor}\nrrjax: {message}\n".encode())
    os._exit(INTERRUPTED)
