"""`rrjax estimate` of a survey of two samples, with two unknown shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import typer

from rrjax.cli.design import PANEL, SurveyDesign
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output, refuse_flags
from rrjax.cli.outlets import deliver
from rrjax.cli.reading import Files
from rrjax.data.errors import UsageError
from rrjax.reports.two_samples import read_two_samples


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

    def check(self, design: SurveyDesign, others: Mapping[str, object]) -> None:
        """Refuses samples without a design of two, and with such a design flags that do not apply."""
        if not design.of_two_samples and (self.sample is not None or self.same_people):
            flag = "--sample" if self.sample is not None else "--same-people"
            raise UsageError(f"{flag} is for a --mechanism of two samples: leave it out", flag=flag)
        if design.of_two_samples:
            refuse_flags(others, f"--mechanism {design.mechanism}")


def run(files: Files, design: SurveyDesign, samples: Samples, level: float, output: Output) -> None:
    """Estimates both unknown shares."""
    with ending_at_once():
        made = design.two_samples()
        reports = read_two_samples(files.source, files.domain, made, design.yes, samples.sample)
        answer = reports.shares(level, same_people=samples.same_people)
    deliver(answer, "estimate", output)
