"""The command line: the only package that prints, reads flags or sets JAX's configuration."""

import os
import signal
import sys

import rrjax
from rrjax.cli.interrupt import ending_at_once
from rrjax.data.errors import how_to_install

__all__ = ["main"]


def main() -> None:
    """Runs `rrjax` with the arguments of the process; see `rrjax --help`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it is closed, as that of a service may be
            stream = open(os.devnull, "w")  # noqa: SIM115
            setattr(sys, name, stream)
        # A terminal that lacks ε or █ shows a question mark instead.
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with ending_at_once():
            import rich  # noqa: F401

            from rrjax.cli.app import app
    except ImportError as error:
        missing = f"the command line needs {error.name}: {how_to_install('cli')}"
        if {"--version", "--help", "-h"}.isdisjoint(sys.argv[1:]):
            sys.exit(f"rrjax: {missing}")
        print(f"rrjax {rrjax.__version__}: {missing}")
        return
    try:
        with ending_at_once():
            app(prog_name="rrjax", obj=True)
    except BrokenPipeError:
        raise
    except OSError as error:  # from --help or --version; commands say it themselves
        print(f"rrjax: cannot write: {error.strerror}.", file=sys.stderr)
        raise SystemExit(3) from None
    finally:
        # The work is done: an interrupt now could only change the exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
