"""`rrjax estimate` of several columns that were randomized apart: their joint distribution, all pairs, and a tree."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output, refuse_flags, split
from rrjax.cli.outlets import deliver
from rrjax.cli.reading import Files
from rrjax.data.errors import UsageError
from rrjax.reports.separate_columns import SeparateColumns

PANEL = "Several columns"


@dataclasses.dataclass(frozen=True)
class Joint:
    """The flags of several columns."""

    joint: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,COLUMN,…",
            help="The joint distribution of columns of `rrjax randomize --apart`.",
            rich_help_panel=PANEL,
        ),
    ] = None
    all_pairs: Annotated[
        bool,
        typer.Option(
            "--all-pairs", help="Which columns go together: the association of all pairs.", rich_help_panel=PANEL
        ),
    ] = False
    tree: Annotated[
        bool,
        typer.Option(
            "--tree",
            help="A tree of the strongest pairs (Chow–Liu), without the joint table: of all columns, or those of "
            "--joint.",
            rich_help_panel=PANEL,
        ),
    ] = False

    def check(self, others: dict[str, Any]) -> bool:
        """Whether several columns are to be estimated; `UsageError` for flags that do not apply."""
        if self.joint is None and not self.all_pairs and not self.tree:
            return False
        if self.all_pairs and self.flag != "--all-pairs":
            raise UsageError(f"{self.flag} and --all-pairs are two questions: give one of them", flag="--all-pairs")
        refuse_flags(others, self.flag)
        return True

    @property
    def flag(self) -> str:
        """The flag that asks for several columns."""
        return "--tree" if self.tree else "--joint" if self.joint is not None else "--all-pairs"


def run(files: Files, joint: Joint, level: float, output: Output) -> None:
    """Estimates the joint distribution, all pairs or a tree, and prints it."""
    names = None if joint.joint is None else split("--joint", joint.joint)
    if joint.flag == "--joint" and len(names or ()) > 2:
        refuse_flags({"--plot": output.plot}, "the joint table of more than two columns")
    with show.status("Estimating …"), ending_at_once():
        columns = SeparateColumns.of_source(files.source, joint.flag)
        if joint.all_pairs:
            answer = columns.pairs(level)
        else:
            answer = (columns.tree if joint.tree else columns.joint)(names, level)
    deliver(answer, "estimate", output)
