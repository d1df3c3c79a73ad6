"""The blocks of an answer as HTML, and a page of such parts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

import rrjax
from rrjax.figures import html
from rrjax.figures.html import Markup
from rrjax.io.metadata import Metadata
from rrjax.reports import form
from rrjax.reports.answer import Answer, Block, Caution, Cells
from rrjax.reports.shares import largest_of

MOST_IN_TABLE = 100
"""Limit of the number of characters of a name."""
ELSEWHERE = ("noise", "fakes", "to publish")
"""Words of answers that have a place of their own on a page."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A page about reports."""

    title: str
    lead: str
    """What the reports are, in sentences."""
    warnings: list[str]
    """What is odd about them, which stands first."""
    parts: dict[str, list[Markup]]
    """The parts by their headings; empty ones are left out."""
    made: dict[str, object]
    """How reports and estimates were made, by name."""

    def write(self, path: Path, title: str | None = None, command: Sequence[str] = (), about: str = "") -> None:
        """Writes the page, whole or not at all, with the words of the command that made it, and its first file."""
        # Lines break only between the words of a command.
        typed = " ".join(f"<span>{html.markup(form.printable(word))}</span>" for word in command)
        made = {"Command": Markup(f"<code>{typed}</code>"), **self.made}
        made["Versions"] = html.versions("rrjax", "jax", "numpy", "duckdb")
        made["Made on"] = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
        parts = self.parts | {"How this page was made": [html.pairs(made, "Command, data, mechanism and versions")]}
        given = [(f"part-{at}", name, part) for at, (name, part) in enumerate(parts.items(), 1) if part]
        body = [
            Markup("\n".join(["<section>", html.heading(name, at), *part, "</section>"])) for at, name, part in given
        ]
        head = [html.paragraph(self.lead, kind="lead")]
        if self.warnings:
            said = html.paragraph("Before you believe this:") + html.listing(self.warnings)
            head.append(Markup(f'<div class="card">{said}</div>'))
        head.append(html.contents("On this page", [(at, name) for at, name, _ in given]))
        foot = f"Made by rrjax {rrjax.__version__}. Nothing on this page is loaded from elsewhere."
        html.write_page(path, title or self.title, body, head=head, foot=foot, about=about)


def shown(
    blocks: Iterable[Block],
    caption: str,
    limits: Sequence[Sequence[float]] = (),
    unit: Callable[[float], str] = form.percent,
    end: float = 0.0,
) -> list[Markup]:
    """The blocks of an answer as HTML; drawings of intervals end at their largest limit, or at a larger `end`."""
    content: list[Markup] = []
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, str | Caution):
            texts.append(block if isinstance(block, str) else f"! {block.text}")
            continue
        content += [html.listing(texts)] if texts else []
        content.append(
            _table(block, caption, limits, unit, end) if isinstance(block, Cells) else html.heading(block.text, level=3)
        )
        texts = []
    return content + ([html.listing(texts)] if texts else [])


def _table(
    cells: Cells, caption: str, limits: Sequence[Sequence[float]], unit: Callable[[float], str], end: float
) -> Markup:
    """A table of an answer, with drawn intervals in place of its bars."""
    headings: list[object] = [*cells.headings[:-2], "●"] if cells.bars else [*cells.headings]
    rows = [[*map(label, row[: cells.names]), *row[cells.names : len(headings)]] for row in cells.rows]
    if limits:
        end = max([end, *(number for each in limits for number in each if number == number)])
        headings.append(Markup(f'drawn<span class="ends"><span>0</span><span>{unit(end)}</span></span>'))
        for row, (value, lower, upper) in zip(rows, limits, strict=True):
            row.append("" if math.isnan(value) else html.strip(value, lower, upper, end))
        caption += " A stroke is an estimate, the bar behind it the interval."
    whole = html.table(headings, rows, caption)
    return html.joined(whole, "\n", html.paragraph(cells.rest, kind="note")) if cells.rest else whole


def limits_of(answer: Answer, top: int, *names: str) -> list[list[float]]:
    """The numbers to draw in each row of an answer's table: a value and its limits, by their names."""
    (rows,) = answer.rows(top).values()
    return [[row[name] for name in names] for row in rows]


def explained(words: Mapping[str, str]) -> Markup:
    """What the columns of a table are, which opens on a click."""
    points = [form.sentence(f"{name}: {text}") for name, text in words.items() if text and name not in ELSEWHERE]
    return html.details("How to read this table", html.listing(points))


def caption_of(size: int, top: int) -> str:
    """The caption of a table of the largest categories."""
    which = f"The {top:,} largest of {size:,} categories" if top < size else f"All {size:,} categories"
    return f"{which}, by the estimated share of the people who hold them."


def in_words(
    labels: np.ndarray, theta: np.ndarray, limits: tuple[np.ndarray, np.ndarray] | None, top: int = 3
) -> Markup:
    """The largest categories with their estimated shares and intervals."""
    named = []
    for at in largest_of(theta, top):
        between = ""
        if limits is not None and not np.isnan(limits[0][at]):
            between = f" ({form.between(limits[0][at], limits[1][at])})"
        named.append(f"<strong>{label(labels[at])}</strong> with about {html.prose(form.share(theta[at]) + between)}")
    return Markup(", ".join(named))


def label(name: object) -> Markup:
    """A name as markup: escaped, with its own text direction, and cut if it is too long."""
    return Markup(f"<bdi>{html.markup(cut(name))}</bdi>")


def cut(name: object, longest: int = MOST_IN_TABLE) -> str:
    """A name with escaped control characters, cut if it is too long."""
    text = form.printable(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def quoted(name: object) -> str:
    """A name in quotation marks."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{form.printable(name)}\N{RIGHT DOUBLE QUOTATION MARK}"


def how_made(
    files: Sequence[str], summary: str, metadata: Metadata | None, own: Mapping[str, object]
) -> dict[str, object]:
    """How reports were made, by name; `own` is what there is to say about mechanism and estimate."""
    names = [form.printable(Path(file).name) for file in files]
    listed = ", ".join(names[:5]) + f" … ({len(names):,} files)" * (len(names) > 5)
    rows: dict[str, object] = {"Read": listed, "Reports": form.printable(summary), **own}
    if metadata is None:
        return rows | {"Known from": "the command; the file does not say how its reports were made"}
    return rows | {
        "Known from": "the file, which says how its reports were made",
        "Randomness": "simulated from a seed, which protects nobody"
        if metadata.simulated
        else "of the system's secure source",
        "Reports by": f"rrjax {metadata.version}",
    }
