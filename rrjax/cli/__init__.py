"""The command line: the only place that prints, reads flags or touches JAX's configuration."""

import gc
import signal
import sys

from rrjax.cli.interrupt import ending_at_once

__all__ = ["main"]


def main() -> None:
    """Runs `rrjax` with the arguments of the process; see `rrjax --help`."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks ε or █ shows a question mark instead.
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with ending_at_once():
            _load()(prog_name="rrjax")
    finally:
        # All is done: an interrupted exit could only spoil its code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _load():
    # What is loaded here stays to the end: to look through it for garbage, again and again, takes a tenth of the start.
    gc.disable()
    try:
        return _loaded()
    finally:
        gc.freeze()
        gc.enable()


def _loaded():
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.exit(f"rrjax: the command line needs {error.name}: pip install 'rrjax[cli]'")

    import jax

    # Certificates of 1e-10 and totals beyond 2³¹ need 64 bits; an application may ask for them, a library not.
    jax.config.update("jax_enable_x64", True)

    from rrjax.cli.app import app

    return app
