"""`rrjax estimate` of a survey of two samples, in which an unknown share does not follow the rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import typer

from rrjax import inference, io
from rrjax.cli import show
from rrjax.cli.design import PANEL, SurveyDesign
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output, listed_in, refuse_flags
from rrjax.cli.reading import Files
from rrjax.data.errors import UsageError
from rrjax.io.rows import count_pairs

OF = {"complying": "of those who comply", "all": "of all", "least": "of all, at least"}
"""Of whom the share is, by the design."""


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
        """Refuses samples without a design of two, such a design without them, and with it flags that do not apply."""
        if design.of_two_samples and self.sample is None:
            raise UsageError(
                f"--mechanism {design.mechanism} has two samples: say with --sample COLUMN=FIRST,SECOND which sample a "
                "row is of",
                flag="--sample",
            )
        if not design.of_two_samples and (self.sample is not None or self.same_people):
            flag = "--sample" if self.sample is not None else "--same-people"
            raise UsageError(f"{flag} is for a --mechanism of two samples: leave it out", flag=flag)
        if design.of_two_samples:
            refuse_flags(others, f"--mechanism {design.mechanism}")


@ending_at_once()
def run(files: Files, design: SurveyDesign, samples: Samples, level: float, output: Output) -> None:
    """Estimates the share and who complies, and prints both."""
    made, domain = design.compliance(), files.domain
    if domain is None or domain.num_categories != 2:
        raise UsageError(
            f"--mechanism {design.mechanism} needs --domain, its two answers, yes first: give a file of labels",
            flag="--domain",
        )
    if files.source.metadata() is not None:
        raise UsageError(
            f"{files.name} says itself how it was randomized: leave --mechanism {design.mechanism} out",
            flag="--mechanism",
            value=design.mechanism,
        )
    counts, missing = _counted(files, samples.sample or "")
    found = inference.compliance(counts, made, level=level, same_people=samples.same_people)
    facts: dict[str, Any] = {name: float(value) for name, value in found._asdict().items() if name != "kinds"}
    facts |= {"kinds": np.asarray(found.kinds).tolist(), "share_is": OF[made.share]}
    if output.out is not None:
        numbers = {name: np.asarray([value]) for name, value in facts.items() if isinstance(value, float)}
        io.write_table(output.out, numbers)
    if output.json:
        record = {"command": "estimate", "mechanism": made.name, "counts": counts.tolist(), "num_missing": missing}
        show.record(record | {"level": level, "same_people": samples.same_people} | facts | output.files)
        return
    numbers = " and ".join(f"{number:,}" for number in counts.sum(axis=1))
    show.say(f"{numbers} answers of two samples, by {made.name}; answers: {domain.describe()}")
    if missing:
        show.warn([f"{show.number(missing, 'row has', 'rows have')} no answer or no sample, and are left out."])
    show.out.print()
    table = show.table()
    for title in ("", "estimate", "std. error", show.interval(level)):
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    errors = [facts[name] for name in ("standard_error", "not_complying_error")]
    errors = [show.percent(error) if math.isfinite(error) else "" for error in errors]
    between = show.between(facts["lower"], facts["upper"])
    table.add_row(f"have the attribute, {OF[made.share]}", show.percent(facts["share"]), errors[0], between)
    table.add_row("do not comply", show.percent(facts["not_complying"]), errors[1], "")
    table.add_row("have it, as if all complied", show.percent(facts["naive"]), "", "")
    show.show_table(table)
    show.out.print()
    show.say(
        f"That all comply has p = {show.at_most(facts['p_value'], 2)}. The interval is that of the profile likelihood."
    )
    show.show_files({"Estimates": output.out})


def _counted(files: Files, text: str) -> tuple[np.ndarray, int]:
    """The numbers of yes and no in each sample, `[2, 2]`, and that of rows without one."""
    column, equals, listed = text.partition("=")
    levels = listed_in("--sample", listed) if equals else []
    if len(levels) != 2 or levels[0] == levels[1] or not column:
        raise UsageError(
            f"--sample {text}: give COLUMN=FIRST,SECOND, such as question=sensitive,anchor", flag="--sample", value=text
        )
    if files.reading.column is None:
        raise UsageError("--sample needs --column, the column of the answers", flag="--column")
    pairs = count_pairs(files.source, (files.reading.column, column), (files.domain, None))
    known = [str(label) for label in pairs.domains[1].labels()]
    lacking = next((level for level in levels if level not in known), None)
    if lacking is not None or len(known) != 2:
        shown = ", ".join(map(repr, known[:5]))
        raise UsageError(
            f"--sample {text}: column {column!r} has the levels {shown}; two are wanted", flag="--sample", value=text
        )
    return pairs.counts.T[[known.index(level) for level in levels]], pairs.num_missing
