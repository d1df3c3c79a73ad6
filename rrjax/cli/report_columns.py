"""The page of `rrjax report` of several columns that were randomized apart: their shares, and how they go together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from rrjax.cli import report_shares, report_trust, show
from rrjax.cli.findings import Findings, find
from rrjax.cli.options import Asked, refuse_flags
from rrjax.cli.reading import Files
from rrjax.cli.report_shares import label
from rrjax.figures.html import Markup, details, joined, listing, paragraph, prose, strip, table, versions
from rrjax.figures.html import pairs as definitions
from rrjax.reports import form
from rrjax.reports.pairs import SIGNIFICANT, Pairs, measured
from rrjax.reports.separate_columns import SeparateColumns


@dataclasses.dataclass(frozen=True)
class ColumnFindings:
    """Everything that the page shows."""

    columns: SeparateColumns
    findings: list[Findings]
    """Of each column."""
    pairs: Pairs | None
    """The association of all pairs; None if each user reports one column."""

    @property
    def warnings(self) -> list[str]:
        """Those of the columns, and pairs that are left out."""
        return self.columns.warnings if self.pairs is None else self.pairs.warnings


def find_columns(
    files: Files, given: Mapping[str, object], level: float, top: int, status: Any
) -> ColumnFindings | None:
    """Computes the contents of the page; None if the files have no several columns, or one of them was chosen.

    Raises:
        UsageError: A flag was given, with its value in `given`, that applies to a single column.
    """
    if files.reading.column is not None or len(files.source.columns()) < 2:
        return None
    refuse_flags(given, "several columns", "name one with --column, or ")
    columns, found = SeparateColumns.of_source(files.source), []
    for name in columns.names:
        status.update(f"Estimating {form.printable(name)} …")
        found.append(find(columns.column(name), Asked(), level, top, ordered=False))
    status.update("Estimating the association …")
    return ColumnFindings(columns, found, None if columns.sampled == 1 else columns.pairs(level=level))


def say_columns(found: ColumnFindings) -> None:
    """Prints which columns these are, and their warnings."""
    show.say(found.columns.summary())
    show.warn(found.warnings)
    show.out.print()


def parts_of(found: ColumnFindings, context: typer.Context) -> dict[str, list[Markup]]:
    """The parts of the page, by heading."""
    return (
        {"In short": _in_short(found), "Which columns go together": _together(found)}
        | {
            f"The column {report_trust.quoted(name)}": _column(own)
            for name, own in zip(_names(found), found.findings, strict=True)
        }
        | {
            f"What ε = {found.columns.epsilon:.4g} means": _meaning(found),
            "How this page was made": _how_made(found, context),
        }
    )


def lead_of(found: ColumnFindings) -> str:
    """The first paragraph."""
    columns = found.columns
    return (
        f"{columns.num_users:,} people gave reports on {len(columns.names):,} columns. Each report was made partly at "
        "random, apart from the others, which protects who gave it (how far, is said below); from all of them "
        f"together the shares can be estimated{', and which columns go together' * (found.pairs is not None)}."
    )


def title_of(found: ColumnFindings) -> str:
    """The heading of the page."""
    names = [report_trust.quoted(name) for name in _names(found)[:3]]
    listed = ", ".join(names) + " …" if len(found.columns.names) > 3 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"What {found.columns.num_users:,} people say about {listed}"


def cautions_of(found: ColumnFindings) -> list[Markup]:
    """Warnings that precede the page."""
    warnings = [*found.warnings]
    for name, own in zip(_names(found), found.findings, strict=True):
        if own.misfit or own.collection.contradicted:
            warnings.append(
                f"The reports of {report_trust.quoted(name)} do not fit the mechanism and ε that are stated: see "
                f"{report_trust.quoted('How far to believe it')} below."
            )
    return report_trust.card(warnings)


def _names(found: ColumnFindings) -> list[str]:
    return [form.printable(name) for name in found.columns.names]


def _in_short(found: ColumnFindings) -> list[Markup]:
    points: list[object] = []
    for name, own in zip(found.columns.names, found.findings, strict=True):
        place = own.largest[0]
        value = form.share(own.found.theta[place])
        limits = form.between(own.intervals.lower[place], own.intervals.upper[place])
        category = joined(Markup("<strong>"), label(own.collection.labels[place]), Markup("</strong>"))
        points.append(joined("The largest share of ", label(name), ": ", category, f" with about {value} ({limits})."))
    return [listing([*points, *([] if found.pairs is None else [found.pairs.conclusion])])]


def _together(found: ColumnFindings) -> list[Markup]:
    """The matrix of associations, and a table of all pairs."""
    pairs, names = found.pairs, found.columns.names
    if pairs is None:
        return [paragraph("Each person answered one question, so how they go together is not in the reports.")]
    by_names = {frozenset(pair["columns"]): pair for pair in pairs.pairs}

    def cell(one: str, other: str) -> Markup | str:
        pair = by_names.get(frozenset((one, other)))
        if pair is None:  # its table is too large
            return ""
        # Markup is aligned to the left, as the empty cells above it are.
        mark = " ●" * (pair["adjusted_p_value"] <= SIGNIFICANT)
        return Markup(f"<span>{measured(pair, 'cramers_v', 2)[0]}{mark}</span>")

    matrix = [
        [label(row), *(cell(row, column) if place > before else "" for before, column in enumerate(names[:-1]))]
        for place, row in enumerate(names)
        if place
    ]
    cells = pairs.cells(len(pairs.pairs))
    _, v, interval, information, *_, p = cells.headings
    scale = Markup('Drawn<span class="ends"><span>0</span><span>1</span></span>')
    rows = []
    for (name, value, limits, *_, p_value), pair in zip(cells.rows, pairs.pairs, strict=True):
        v_and_limits = pair["cramers_v"], pair["cramers_v_lower"], pair["cramers_v_upper"]
        drawn = "" if math.isnan(pair["cramers_v"]) else strip(*v_and_limits, 1.0)
        rows.append([label(name), value, limits, drawn, p_value])
    points = [form.sentence(f"{name}: {text}") for name, text in pairs.words.items() if name != information]
    return [
        table(["", *map(label, names[:-1])], matrix, "Cramér's V of all pairs; ● marks those with p of at most 0.05."),
        table(["Columns", v, interval, scale, p], rows, "All pairs, the strongest first"),
        listing(points),
    ]


def _column(own: Findings) -> list[Markup]:
    shares, reading = report_shares.largest(own)
    believed = details("How far to believe it", *report_trust.believed(own))
    return [shares, details("How to read this table", reading), believed]


def _meaning(found: ColumnFindings) -> list[Markup]:
    columns = found.columns
    rows = [
        [label(each.column), f"{each.effective_epsilon:.4g}", f"{math.exp(each.effective_epsilon):.4g}"]
        for each in columns.metadata
    ]
    factor = math.exp(columns.epsilon)
    sampled = columns.sampled
    several = "all answers" if sampled is None else form.number(sampled, "answer", "answers")
    return [
        paragraph(
            f"The protection of a person who gave {several} is bounded by ε = {columns.epsilon:.4g}: whatever somebody "
            "believed about that person before, seeing the person's reports changes the odds by a factor of at most "
            f"e^ε = {factor:.4g}. ε = 0 would disclose nothing. Who gave no answer to a question is not protected."
        ),
        table(["Column", "ε of its report", "Largest factor"], rows, "What one report discloses at most"),
    ]


def _how_made(found: ColumnFindings, context: typer.Context) -> list[Markup]:
    columns, first = found.columns, found.findings[0].collection
    files = [form.printable(Path(file).name) for file in first.files.files()]
    metadata = columns.metadata[0]
    rows: dict[str, object] = {
        "Command": prose(f"`{' '.join(map(form.printable, report_trust.command_line(context)))}`"),
        "Read": ", ".join(files[:5]) + (f" … ({len(files):,} files)" if len(files) > 5 else ""),
        "People": f"{columns.num_users:,}, {columns.num_complete:,} of them with a report in every column",
    }
    for name, each in zip(_names(found), columns.metadata, strict=True):
        rows[name] = f"{each.mechanism.name}, ε = {each.effective_epsilon:.12g} nats, {each.domain.describe()}"
    made = datetime.now().astimezone()
    rows |= {
        "Randomness": "simulated from a seed, which protects nobody"
        if metadata.simulated
        else "of the system's secure source",
    }
    if found.pairs is not None:
        by = f"intervals by inversion of simulated tests, {form.in_full(found.pairs.level)}"
        rows["Association"] = f"{by}, of those who report both columns; p by permutation"
    rows |= {
        "Reports by": f"rrjax {metadata.version}",
        "Versions": versions("rrjax", "jax", "numpy", "duckdb"),
        "Made on": made.strftime("%Y-%m-%d %H:%M %Z"),
    }
    return [definitions(rows, "Command, data, mechanisms and versions")]
