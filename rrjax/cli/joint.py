"""The flags of several columns that were randomized separately."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from rrjax.cli.options import split
from rrjax.data.errors import UsageError

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

    def __post_init__(self) -> None:
        """Refuses two questions at once."""
        if self.all_pairs and (self.joint is not None or self.tree):
            flag = "--tree" if self.tree else "--joint"
            raise UsageError(f"{flag} and --all-pairs are two questions: give one of them", flag="--all-pairs")

    @property
    def question(self) -> str | None:
        """The question about several columns, if one is asked."""
        if self.all_pairs:
            return "pairs"
        return "tree" if self.tree else None if self.joint is None else "joint"

    @property
    def columns(self) -> list[str] | None:
        """The columns that are named; None for all."""
        return None if self.joint is None else split("--joint", self.joint)
