"""The commands of `rrjax`, together."""

from __future__ import annotations

from typing import Annotated

import typer

import rrjax
import rrjax.cli.independent
from rrjax.cli.audit import audit
from rrjax.cli.cache import keeping_programs
from rrjax.cli.compare import compare
from rrjax.cli.demo import demo
from rrjax.cli.estimate import estimate
from rrjax.cli.options import Command
from rrjax.cli.plan import plan
from rrjax.cli.randomize import randomize
from rrjax.cli.regress import regress
from rrjax.cli.report import report
from rrjax.cli.study import study
from rrjax.cli.test import tests

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The true distribution behind randomized reports: estimates with exact intervals, tests, regression, plans."
    "\n\nStart with `rrjax demo`, which shows it all on made-up data; each command has examples in its --help.",
    epilog="Exit codes: 0 done; 2 a flag is wrong or contradicts the file; 3 a file cannot be read, holds something "
    "wrong, or cannot be written; 4 another process of the same study was lost; 130 interrupted.",
)


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
    if not no_cache:
        context.with_resource(keeping_programs())


_REPORTS = "From reports to answers"
_PANELS = {
    _REPORTS: (estimate, report, compare, regress),
    "For a collection": (randomize, plan, audit),
    "More": (demo, study),
}
for panel, commands in _PANELS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(command)
app.add_typer(tests, name="test", rich_help_panel=_REPORTS)
