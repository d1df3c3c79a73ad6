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

INTERRUPTED = 130
MESSAGE = "interrupted; no partial file is left behind"
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

    While a module is imported it waits: extension modules crash on an exception in their first lines.
    """
    with _handling(_raise_after_imports):
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


def _raise_after_imports(number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt; while a module is imported, lets the interrupt come again soon."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            again = threading.Timer(SECONDS_BETWEEN_TRIES, _thread.interrupt_main)
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    signal.default_int_handler(number, frame)


def _end(message: str, number: int, frame: FrameType | None) -> None:
    del number, frame
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a spinner hides it
    os.write(sys.stderr.fileno(), f"{show_cursor}\nrrjax: {message}\n".encode())
    os._exit(INTERRUPTED)
