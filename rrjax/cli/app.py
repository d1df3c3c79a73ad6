"""The commands of `rrjax`. A command's module is imported when its help is asked or it runs, JAX when it runs."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

import rrjax
from rrjax.cli.interrupt import ending_at_once


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
        with ending_at_once():
            import jax

        if start.alone:  # certificates of 1e-10 and totals above 2³¹ need 64 bits
            jax.config.update("jax_enable_x64", True)
        from rrjax.cli.cache import keeping_programs
    finally:
        gc.freeze()
        gc.enable()
    with keeping_programs(keep=start.keep):
        yield


COMMANDS = {
    "From reports to answers": ("estimate", "report", "compare", "regress", "test"),
    "For a collection": ("randomize", "plan", "audit"),
    "More": ("demo", "study"),
}
"""Names of the commands, by panel of the help. The module `rrjax.cli.NAME` holds the command, a function `NAME`; if it
holds a group of commands, `app`, the function is the callback of the group."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The true distribution behind randomized reports: estimates with exact intervals, tests, regression, plans."
    "\n\nStart with `rrjax demo`, which shows it all on made-up data; each command has examples in its --help.",
    epilog="Exit codes: 0 done; 2 a flag is wrong or contradicts the file; 3 a file cannot be read, holds something "
    "wrong, or cannot be written; 4 another process of the same study was lost (or 134, if JAX noticed it); 130 "
    "interrupted.",
)


class LazyCommand(TyperCommand):
    """A command that is imported when it is used; its help is read from its file."""

    @property
    def loaded(self) -> Any:
        """The command itself."""
        module = import_module(f"rrjax.cli.{self.name}")
        group = getattr(module, "app", None)
        if group is None:
            from rrjax.cli.options import Command

            group = typer.Typer(add_completion=False, rich_markup_mode="rich")
            group.command(self.name, cls=Command)(getattr(module, str(self.name)))
        return typer.main.get_command(group)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself."""
        return self.loaded.make_context(info_name, args, parent=parent, **extra)


def _help_of(name: str) -> str:
    """The docstring of a command, without importing its module."""
    tree = ast.parse(files("rrjax.cli").joinpath(f"{name}.py").read_text(encoding="utf-8"))
    (function,) = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name)
    return ast.get_docstring(function) or ""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"rrjax {rrjax.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache",
            envvar="RRJAX_NO_CACHE",
            help="Neither use nor keep compiled programs, which make the next run start faster; they are in the user's "
            "cache folder, under rrjax.",
        ),
    ] = False,
) -> None:
    del version
    context.with_resource(starting(Start(alone=bool(context.obj), keep=not no_cache)))


for _panel, _names in COMMANDS.items():
    for _name in _names:
        app.command(_name, cls=LazyCommand, help=_help_of(_name), rich_help_panel=_panel)(lambda: None)
