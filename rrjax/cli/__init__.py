"""The command line: the only package that prints, reads flags or sets JAX's configuration."""

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import rrjax
from rrjax.cli.interrupt import ending_at_once

__all__ = ["main"]


def main() -> None:
    """Runs `rrjax` with the arguments of the process; see `rrjax --help`."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks ε or █ shows a question mark instead.
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        import rich  # noqa: F401

        from rrjax.cli.app import app
    except ImportError as error:
        missing = f"the command line needs {error.name}: pip install 'rrjax[cli]'"
        if {"--version", "--help", "-h"}.isdisjoint(sys.argv[1:]):
            sys.exit(f"rrjax: {missing}")
        print(f"rrjax {rrjax.__version__}: {missing}")
        return
    try:
        with ending_at_once():
            app(prog_name="rrjax", obj=_loading)
    finally:
        # The work is done: an interrupt now could only change the exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _loading() -> Iterator[None]:
    """Surrounds the import of a command."""
    # Imported modules stay to the end: searching them for garbage takes a tenth of the start.
    gc.disable()
    try:
        import jax

        # Certificates of 1e-10 and totals above 2³¹ need 64 bits; an application may set them, a library may not.
        jax.config.update("jax_enable_x64", True)
        yield
    finally:
        gc.freeze()
        gc.enable()
