"""The page of `rrjax report` of several columns that were randomized apart: their shares, and how they go together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from rrjax.cli import report_shares, report_trust
from rrjax.cli.design import SurveyDesign
from rrjax.cli.findings import Findings, find
from rrjax.cli.joint import SIGNIFICANT, Columns, associations, read_columns, show_head, written
from rrjax.cli.options import Asked, refuse_flags
from rrjax.cli.reading import Files, read_collection
from rrjax.cli.report_shares import label
from rrjax.figures.html import Markup, details, joined, listing, pairs, paragraph, prose, strip, table, versions
from rrjax.reports import form


@dataclasses.dataclass(frozen=True)
class ColumnFindings:
    """Everything that the page shows."""

    columns: Columns
    findings: list[Findings]
    """Of each column."""
    pairs: list[dict[str, Any]]
    """The association of all pairs, the largest first; empty if each user reports one column."""
    level: float


def find_columns(
    files: Files, design: SurveyDesign, given: Mapping[str, object], level: float, top: int, status: Any
) -> ColumnFindings | None:
    """Computes the contents of the page; None if the files have no several columns, or one of them was chosen.

    Raises:
        UsageError: A flag was given, with its value in `given`, that applies to a single column.
    """
    known = {} if files.reading.column is not None else files.source.columns()
    if len(known) < 2:
        return None
    refuse_flags(given, "several columns", "name one with --column, or ")
    found = []
    for name in known:
        status.update(f"Estimating {form.printable(name)} …")
        own = Files(files.paths, dataclasses.replace(files.reading, column=name))
        found.append(find(read_collection(own, None, design), Asked(), level, top, ordered=False))
    status.update("Estimating the association …")
    columns = read_columns(files, list(known.values()))
    alone = columns.metadata[0].sampled == 1
    return ColumnFindings(columns, found, [] if alone else associations(columns, level), level)


def say_columns(found: ColumnFindings) -> None:
    """Prints which columns these are, and their warnings."""
    show_head(found.columns, _warnings(found))


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
        f"together the shares can be estimated{', and which columns go together' * bool(found.pairs)}."
    )


def title_of(found: ColumnFindings) -> str:
    """The heading of the page."""
    names = [report_trust.quoted(name) for name in _names(found)[:3]]
    listed = ", ".join(names) + " …" if len(found.columns.names) > 3 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"What {found.columns.num_users:,} people say about {listed}"


def cautions_of(found: ColumnFindings) -> list[Markup]:
    """Warnings that precede the page."""
    warnings = _warnings(found)
    for name, own in zip(_names(found), found.findings, strict=True):
        if own.misfit or own.collection.contradicted:
            warnings.append(
                f"The reports of {report_trust.quoted(name)} do not fit the mechanism and ε that are stated: see "
                f"{report_trust.quoted('How far to believe it')} below."
            )
    return report_trust.card(warnings)


def _names(found: ColumnFindings) -> list[str]:
    return [form.printable(name) for name in found.columns.names]


def _warnings(found: ColumnFindings) -> list[str]:
    """Those that all columns have are said once, and the others with their column."""
    own = {name: each.collection.warnings for name, each in zip(_names(found), found.findings, strict=True)}
    common = [warning for warning in next(iter(own.values())) if all(warning in each for each in own.values())]
    return common + [f"{name}: {each}" for name, all_of in own.items() for each in all_of if each not in common]


def _in_short(found: ColumnFindings) -> list[Markup]:
    points: list[object] = []
    for name, own in zip(found.columns.names, found.findings, strict=True):
        place = own.largest[0]
        value = form.share(own.found.theta[place])
        limits = form.between(own.intervals.lower[place], own.intervals.upper[place])
        category = joined(Markup("<strong>"), label(own.collection.labels[place]), Markup("</strong>"))
        points.append(joined("The largest share of ", label(name), ": ", category, f" with about {value} ({limits})."))
    significant = [pair for pair in found.pairs if pair["adjusted_p_value"] <= SIGNIFICANT]
    if significant:
        first = significant[0]
        points.append(
            joined(
                f"{len(significant):,} of {form.number(len(found.pairs), 'pair', 'pairs')} of columns "
                f"{'goes' if len(significant) == 1 else 'go'} together significantly; most of all ",
                *_pair(first),
                f" (Cramér's V {written(first, 'cramers_v', 2)[0]}).",
            )
        )
    elif found.pairs:
        points.append("No two columns go together significantly.")
    return [listing(points)]


def _pair(pair: dict[str, Any]) -> list[Markup | str]:
    return [label(pair["columns"][0]), " and ", label(pair["columns"][1])]


def _together(found: ColumnFindings) -> list[Markup]:
    """The matrix of associations, and a table of all pairs."""
    if not found.pairs:
        return [paragraph("Each person answered one question, so how they go together is not in the reports.")]
    names = found.columns.names
    by_names = {frozenset(pair["columns"]): pair for pair in found.pairs}

    def cell(one: str, other: str) -> Markup | str:
        pair = by_names.get(frozenset((one, other)))
        if pair is None:  # its table is too large
            return ""
        # Markup is aligned to the left, as the empty cells above it are.
        mark = " ●" * (pair["adjusted_p_value"] <= SIGNIFICANT)
        return Markup(f"<span>{written(pair, 'cramers_v', 2)[0]}{mark}</span>")

    matrix = [
        [label(row), *(cell(row, column) if place > before else "" for before, column in enumerate(names[:-1]))]
        for place, row in enumerate(names)
        if place
    ]
    percent = form.in_full(found.level)
    rows = [
        [
            joined(*_pair(pair)),
            *written(pair, "cramers_v", 3),
            ""
            if math.isnan(pair["cramers_v"])
            else strip(pair["cramers_v"], pair["cramers_v_lower"], pair["cramers_v_upper"], 1.0),
            f"{pair['adjusted_p_value']:.2g}",
        ]
        for pair in found.pairs
    ]
    scale = Markup('Drawn<span class="ends"><span>0</span><span>1</span></span>')
    headings: list[object] = ["Columns", "Cramér's V", f"{percent} interval", scale, "p"]
    points = [
        "Cramér's V is 0 if two columns are independent, and 1 if one determines the other. The estimate is corrected "
        "for the noise of the reports, which looks like association.",
        f"Interval: it holds the true V of its pair with {percent} confidence. An interval from zero on says that the "
        "two columns may be independent.",
        "p: how often independent columns would seem to go together as much as these or more, corrected for all pairs "
        "(Holm).",
    ]
    return [
        table(["", *map(label, names[:-1])], matrix, "Cramér's V of all pairs; ● marks those with p of at most 0.05."),
        table(headings, rows, "All pairs, the strongest first"),
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
    sampled = columns.metadata[0].sampled
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
    if found.pairs:
        by = f"intervals by inversion of simulated tests, {form.in_full(found.level)}, of those who report both columns"
        rows["Association"] = f"{by}; p by permutation"
    rows |= {
        "Reports by": f"rrjax {metadata.version}",
        "Versions": versions("rrjax", "jax", "numpy", "duckdb"),
        "Made on": made.strftime("%Y-%m-%d %H:%M %Z"),
    }
    return [pairs(rows, "Command, data, mechanisms and versions")]
