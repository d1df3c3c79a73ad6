"""The flags of a survey of two samples, with two unknown shares."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from rrjax.cli.design import PANEL, SurveyDesign
from rrjax.data.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Samples:
    """The flags of the two samples."""

    sample: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN=FIRST,SECOND",
            help="For a --mechanism of two samples: the column that says which sample (or question) a row is of, and "
            "its two levels in the order of the parameters.",
            rich_help_panel=PANEL,
        ),
    ] = None
    same_people: Annotated[
        bool,
        typer.Option(
            "--same-people",
            help="Both samples are answers of the same people, such as to a sensitive and an anchor question.",
            rich_help_panel=PANEL,
        ),
    ] = False

    def check(self, design: SurveyDesign) -> None:
        """Refuses samples without a design of two."""
        if not design.of_two_samples and (self.sample is not None or self.same_people):
            flag = "--sample" if self.sample is not None else "--same-people"
            raise UsageError(f"{flag} is for a --mechanism of two samples: leave it out", flag=flag)
