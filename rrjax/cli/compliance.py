"""`rrjax estimate` of a survey of two samples, with two unknown shares."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, cast

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
from rrjax.mechanisms import Compliance, UnrelatedQuestionTwoSamples
from rrjax.reports import form
from rrjax.reports.yes_or_no import said

OF = {"complying": "of those who comply", "all": "of all", "least": "of all, at least"}
"""Of whom the share is, by the design."""
MISFIT = 0.01
"""Largest p-value at which the answers are said not to fit the design."""


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
    """Estimates both unknown shares, and prints them."""
    made, domain = design.two_samples(), files.domain
    if domain is None or domain.num_categories != 2:
        raise UsageError(
            f"--mechanism {design.mechanism} needs --domain, its two answers: give 0:1 or a file of labels, one a line",
            flag="--domain",
        )
    yes = design.place_of_yes(domain)
    if files.source.metadata() is not None:
        raise UsageError(
            f"{files.name} says itself how it was randomized: leave --mechanism {design.mechanism} out",
            flag="--mechanism",
            value=design.mechanism,
        )
    if samples.same_people and not isinstance(made, Compliance):
        raise UsageError(
            f"--same-people: the samples of --mechanism {design.mechanism} must be of different people: leave it out",
            flag="--same-people",
        )
    counts, missing = _counted(files, samples.sample or "", yes)
    facts, rows, note = (
        _complying(counts, made, level, samples.same_people)
        if isinstance(made, Compliance)
        else _unrelated(counts, cast("UnrelatedQuestionTwoSamples", made), level)
    )
    warnings = _warnings(facts, samples.sample or "")
    if missing:
        warnings.insert(0, f"{form.number(missing, 'row has', 'rows have')} no answer or no sample, and are left out.")
    if output.out is not None:
        numbers = {name: np.asarray([value]) for name, value in facts.items() if isinstance(value, float)}
        io.write_table(output.out, numbers)
    if output.json:
        record = {"command": "estimate", "mechanism": made.name, "counts": counts.tolist(), "num_missing": missing}
        record |= {"yes": str(domain.labels()[yes]), "warnings": warnings, "level": level}
        show.record(record | {"same_people": samples.same_people} | facts | output.files)
        return
    numbers = " and ".join(f"{number:,}" for number in counts.sum(axis=1))
    show.say(f"{numbers} answers of two samples, by {made.name}{said(domain, yes)}")
    show.warn(warnings)
    show.out.print()
    table = show.table("", "estimate", "std. error", form.interval(level))
    between = form.between(facts["lower"], facts["upper"])
    for place, (title, name, error) in enumerate(rows):
        value = facts.get(error, math.nan)
        cells = [form.percent(each) if math.isfinite(each) else "" for each in (facts[name], value)]
        table.add_row(title, *cells, "" if place else between)
    show.show_table(table)
    show.out.print()
    show.say(
        f"{note}Test that the answers fit the design: p = {facts['fit_p_value']:.2g}. The interval is that of the "
        "profile likelihood."
    )
    show.show_files({"Estimates": output.out})


Rows = list[tuple[str, str, str]]
"""Titles of the rows of the table, and the fields of their shares and standard errors."""


def _complying(
    counts: np.ndarray, design: Compliance, level: float, same_people: bool
) -> tuple[dict[str, Any], Rows, str]:
    found = inference.compliance(counts, design, level=level, same_people=same_people)
    facts: dict[str, Any] = {name: float(value) for name, value in found._asdict().items() if name != "kinds"}
    facts |= {"kinds": np.asarray(found.kinds).tolist(), "share_is": OF[design.share]}
    rows = [
        (f"have the attribute, {OF[design.share]}", "share", "standard_error"),
        ("do not comply", "not_complying", "not_complying_error"),
        ("have it, as if all complied", "naive", ""),
    ]
    return facts, rows, f"Test that everybody follows the rules: p = {facts['p_value']:.2g}. "


def _unrelated(
    counts: np.ndarray, design: UnrelatedQuestionTwoSamples, level: float
) -> tuple[dict[str, Any], Rows, str]:
    found = inference.unrelated_question(counts, design, level=level)
    facts = {name: float(value) for name, value in found._asdict().items()}
    rows = [
        ("have the attribute", "share", "standard_error"),
        ("say yes to the unrelated question", "unrelated", "unrelated_error"),
    ]
    return facts, rows, ""


def _warnings(facts: dict[str, Any], sample: str) -> list[str]:
    """Sentences on answers that do not fit the design, and on an estimate at the boundary."""
    sentences = []
    if facts["fit_p_value"] <= MISFIT:
        sentences.append(
            f"No shares explain these answers (p = {facts['fit_p_value']:.2g}): do not use the estimates. Check "
            "--parameter, which answer is yes, and --sample."
        )
        if facts["swapped_p_value"] > MISFIT:
            column, _, levels = sample.partition("=")
            swapped = ",".join(reversed(listed_in("--sample", levels)))
            sentences.append(
                f"With the two samples exchanged they fit (p = {facts['swapped_p_value']:.2g}): give --sample "
                f"{column}={swapped} if the parameters are in that order."
            )
    if not math.isfinite(facts["share"]):
        sentences.append("By these answers nobody follows the rules, so they say nothing of those who do.")
    elif not math.isfinite(facts["standard_error"]):
        sentences.append("The estimate is at the boundary of possible shares, and has no standard errors.")
    return sentences


def _counted(files: Files, text: str, yes: int) -> tuple[np.ndarray, int]:
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
        shown = ", ".join(map(repr, known[:5])) + " …" * (len(known) > 5)
        problem = f"two are wanted, and it has {len(known):,}" if lacking is None else f"no row has {lacking!r}"
        raise UsageError.about(
            "--sample", f"{text}: {files.name}, column {column!r}: {problem}; its levels are {shown}", value=text
        )
    return pairs.counts.T[[known.index(level) for level in levels]][:, [yes, 1 - yes]], pairs.num_missing
