"""HTML pages that need no other file: for light and dark screens, wide and narrow, and for paper; without a script.

A page's drawings are SVG in the page's own colours, with text next to them: they follow the reader's colour scheme,
their labels keep their size on narrow screens, and a million categories take no more space than fifty. Coordinates are
thousandths of the width and of the height; strokes keep their width. Figures of matplotlib are PNG on white.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rrjax.data.errors import NUMBER_SPACES

_GENERATOR = '<meta name="generator" content="rrjax">'
"""Mark of a page that rrjax wrote."""
_SIZE = 1000
_MOST_BARS_WITH_GAPS = 40
LIGHT = {
    "paper": "#ffffff",
    "card": "#f1f5fa",
    "ink": "#1a1a1a",
    "soft": "#444444",
    "link": "#1b4f8a",
    "rule": "#cccccc",
    "edge": "#6b7075",
    "mark": "#123f73",
    "span": "#6f97c4",
}
DARK = {
    "paper": "#14171b",
    "card": "#1f252c",
    "ink": "#e8e8e4",
    "soft": "#b9bec3",
    "link": "#93c0f7",
    "rule": "#3d444b",
    "edge": "#8b9299",
    "mark": "#d5e7ff",
    "span": "#4d7fb5",
}
"""Colours by use: ink, soft and link for text, paper and card for backgrounds, mark and span for drawings."""
_LIGHT, _DARK = (" ".join(f"--{name}: {colour};" for name, colour in each.items()) for each in (LIGHT, DARK))
STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }}
  img {{ background: #fff; padding: .5rem; border-radius: .4rem; }} }}
*, ::before, ::after {{ box-sizing: border-box; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.4; }} h2 {{ font-size: 1.25rem; margin-top: 2.2rem; }}
h3 {{ font-size: 1.05rem; }} h1, h2, h3, p, li {{ overflow-wrap: break-word; }}
p, li {{ max-width: 46rem; }} p.lead {{ font-size: 1.1rem; }}
a {{ color: var(--link); }} p.note, figcaption, caption, footer {{ color: var(--soft); font-size: .92rem; }}
code {{ font: .92em ui-monospace, monospace; overflow-wrap: anywhere; }}
code.flag {{ white-space: nowrap; }}
code span {{ display: inline-block; max-width: 100%; }}
ul {{ padding-left: 1.3rem; }} li {{ margin: .3rem 0; }}
nav ul {{ padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }}
.card {{ background: var(--card); border-left: .3rem solid var(--edge); padding: .1rem 1rem; margin: 1rem 0; }}
.card p, .card li {{ max-width: none; }}
div.wide {{ overflow-x: auto; margin: 1rem 0; }}
:focus-visible {{ outline: 2px solid var(--link); outline-offset: 2px; }}
table {{ border-collapse: collapse; font-size: .92rem; }}
table.pairs {{ margin: 1rem 0; }}
caption {{ text-align: left; padding-bottom: .4rem; }}
caption span {{ display: block; width: max-content; max-width: min(46rem, 100vw - 2rem); position: sticky; left: 0; }}
th, td {{ padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; }}
thead th {{ border-bottom: 2px solid var(--edge); vertical-align: bottom; }}
.wide tbody th {{ min-width: 5.5rem; max-width: 20rem; overflow-wrap: break-word; }}
.pairs th {{ min-width: 6.5rem; font-weight: 600; }} .pairs td {{ overflow-wrap: anywhere; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
td.number {{ white-space: nowrap; }}
figure {{ margin: 1.5rem 0 2.5rem; break-inside: avoid; }} img {{ max-width: 100%; height: auto; }}
details {{ margin: 1rem 0; }} summary {{ cursor: pointer; color: var(--link); }}
svg {{ display: block; overflow: visible; forced-color-adjust: none; }}
svg path {{ fill: none; vector-effect: non-scaling-stroke; }}
svg .span {{ stroke: var(--span); stroke-width: 7; }} svg .box {{ fill: var(--span); }}
svg .mark {{ stroke: var(--mark); stroke-width: 3; }} svg .line {{ stroke: var(--rule); stroke-width: 1; }}
table:has(.strip) {{ width: 100%; }} th:has(> .ends) {{ width: 45%; }}
th .ends {{ display: flex; justify-content: space-between; gap: 1rem; font-weight: normal; white-space: nowrap; }}
svg.strip {{ width: 100%; min-width: 9rem; height: 1.4rem; border-left: 1px solid var(--edge); }}
@media screen and (max-width: 40rem) {{ .wide th, .wide td {{ padding-right: .5rem; }}
  svg.strip, .wide tbody th {{ min-width: 4.5rem; }} th .ends {{ gap: .3rem; }}
  td:has(> .strip), th:has(> .ends) {{ position: sticky; right: 0; padding: .25rem 0 .25rem .5rem;
    background: var(--paper); }}
  td:has(> .strip)::before, th:has(> .ends)::before {{ content: ""; position: absolute; inset: 0 100% 0 auto;
    width: .5rem; background: linear-gradient(to left, var(--paper), transparent); }} }}
.plot {{ display: grid; grid-template: 16rem 1.8rem / 3.6rem 1fr; margin: .8rem 1rem .5rem 0; max-width: 60rem;
  font-size: .85rem; line-height: 1; color: var(--soft); }}
.plot svg {{ width: 100%; height: 100%; border-left: 1px solid var(--edge); border-bottom: 1px solid var(--edge); }}
.plot .across, .plot .up {{ position: relative; }} .plot .across {{ grid-column: 2; }}
.plot .up span {{ position: absolute; right: .5rem; transform: translateY(50%); white-space: nowrap; }}
.plot .across span {{ position: absolute; top: .5rem; transform: translateX(-50%); white-space: nowrap; }}
@media print {{ body {{ font-size: 10pt; margin: 0; max-width: none; }} h2 {{ break-after: avoid; }}
  table {{ break-inside: avoid; }} div.wide {{ overflow: visible; }} nav {{ display: none; }}
  details::details-content {{ content-visibility: visible; block-size: auto; }}
  svg, .card {{ print-color-adjust: exact; }} }}
@page {{ margin: 1.5cm; }}
"""
"""The look of all pages."""


class Markup(str):
    """HTML, inserted unchanged; every other text is escaped."""

    __slots__ = ()


def markup(value: object) -> Markup:
    """A text, escaped unless it is `Markup`."""
    return value if isinstance(value, Markup) else Markup(escape(str(value), quote=True))


def joined(*parts: object) -> Markup:
    """Texts and HTML, one after the other."""
    return Markup("".join(markup(part) for part in parts))


def prose(text: object) -> Markup:
    """A sentence, with code between backticks; lines part no flags and no numbers from units; HTML is unchanged."""
    if isinstance(text, Markup):
        return text
    held = markup(NUMBER_SPACES.sub("\N{NO-BREAK SPACE}", str(text)))

    def code(match: re.Match[str]) -> str:
        return f"<code>{match[1]}</code>" if match[1] else f'<code class="flag">{match[0]}</code>'

    return Markup(re.sub(r"`([^`]+)`|(?<![\w-])--[a-z][a-z-]*", code, held))


def heading(text: object, place: str = "", level: int = 2) -> Markup:
    """The heading of a part; `place` is its id, for links."""
    name = f' id="{place}"' if place else ""
    return Markup(f"<h{level}{name}>{markup(text)}</h{level}>")


def paragraph(*parts: object, kind: str = "") -> Markup:
    """Sentences; `kind` is a class of the style sheet: "lead", "note"."""
    return Markup(f"<p{_class(kind)}>{' '.join(map(prose, parts))}</p>")


def listing(items: Iterable[object]) -> Markup:
    """A list of sentences, one point each."""
    return Markup("<ul>\n" + "\n".join(f"<li>{prose(item)}</li>" for item in items) + "\n</ul>")


def details(summary: str, *parts: Markup) -> Markup:
    """Parts that open on a click."""
    return Markup("\n".join([f"<details><summary>{markup(summary)}</summary>", *parts, "</details>"]))


def contents(name: str, links: Iterable[tuple[str, str]]) -> Markup:
    """Links into the page, `(id, text)`; the name distinguishes this list from others."""
    items = "".join(f'<li><a href="#{markup(place)}">{markup(text)}</a></li>' for place, text in links)
    return Markup(f'<nav aria-label="{markup(name)}"><ul>{items}</ul></nav>')


def pairs(rows: Mapping[str, object], caption: str = "") -> Markup:
    """A table of names and values, which wraps on a narrow screen."""
    lines = "\n".join(
        f'<tr><th scope="row">{markup(name)}</th><td>{markup(value)}</td></tr>' for name, value in rows.items()
    )
    return Markup(f'<table class="pairs">{_caption(caption)}<tbody>\n{lines}\n</tbody></table>')


def table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str) -> Markup:
    """A table, which scrolls if it is wider than the page."""
    texts = [[markup(cell) for cell in row] for row in rows]
    numeric = [index > 0 and all(_looks_numeric(row[index]) for row in texts) for index in range(len(columns))]
    kinds = [_class("number") if number else "" for number in numeric]
    head = "".join(f'<th scope="col"{kind}>{markup(column)}</th>' for column, kind in zip(columns, kinds, strict=True))

    def line(row: Sequence[Markup]) -> str:
        cells = "".join(f"<td{kind}>{text}</td>" for text, kind in zip(row[1:], kinds[1:], strict=True))
        return f'<tr><th scope="row">{row[0]}</th>{cells}</tr>'

    inside = "\n".join(map(line, texts))
    name = markup(caption.partition(". ")[0])
    return Markup(
        f'<div class="wide" role="group" tabindex="0" aria-label="{name}"><table>{_caption(caption)}\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{inside}\n</tbody></table></div>"
    )


def figure(place: str, picture: Markup, caption: object) -> Markup:
    """A picture with its caption below."""
    return Markup(f'<figure id="{place}">{picture}\n<figcaption>{markup(caption)}</figcaption></figure>')


def versions(*packages: str) -> str:
    """The versions of installed packages, and of Python, in words."""
    names = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{names}, Python {platform.python_version()}"


def is_page(path: str | os.PathLike[str], about: str = "") -> bool:
    """Whether `write_page` wrote a file, about this if it is given, so that it may be overwritten."""
    try:
        with open(path, "rb") as stream:
            return (_GENERATOR + _about(about)).encode() in stream.read(1000)
    except OSError:
        return False


def _about(about: str) -> str:
    """What a page is about, as a digest, which tells nothing else of a path."""
    digest = hashlib.sha256(os.fsencode(about)).hexdigest()[:16]
    return f'\n<meta name="rrjax-about" content="{digest}">' if about else ""


def write_page(
    path: str | os.PathLike[str],
    title: str,
    main: Iterable[Markup],
    *,
    head: Iterable[Markup] = (),
    foot: str = "",
    about: str = "",
) -> Path:
    """Writes a page, whole or not at all: title, `head` below it, the parts, and a footer; see `is_page` for `about`.

    Raises:
        DataError: The file cannot be written; the message has the reason.
    """
    from rrjax.io.write import replacing

    footer = [f"<footer>{paragraph(foot)}</footer>"] if foot else []
    page = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        _GENERATOR + _about(about),
        f"<title>{markup(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        *("<header>", f"<h1>{markup(title)}</h1>", *head, "</header>"),
        *("<main>", *main, "</main>", *footer),
        "</body>\n</html>\n",
    ]
    with replacing(path) as aside:
        # File names may have bytes that are no text.
        aside.write_bytes("\n".join(page).encode("utf-8", errors="backslashreplace"))
    return Path(path)


class Tick(NamedTuple):
    """A label of an axis."""

    place: float
    """Place on the axis, from 0 to 1."""
    text: str


def ticks(end: float, most: int = 5) -> list[float]:
    """Round numbers from zero to at most an end.

    Example:
        >>> from rrjax.figures.html import ticks
        >>> ticks(0.33)
        [0.0, 0.1, 0.2, 0.3]
    """
    if not (math.isfinite(end) and end > 0):
        return [0.0]
    step = round_step(end, most)
    return [float(f"{number * step:.6g}") for number in range(int(end / step * (1 + 1e-9)) + 1)]


def round_step(span: float, most: int) -> float:
    """The smallest step, 1, 2 or 5 times a power of ten, with at most `most` steps in a span.

    Example:
        >>> from rrjax.figures.html import round_step
        >>> round_step(17_034, 40)
        500.0
    """
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if span / (power * factor) <= most)


def strip(value: float, lower: float, upper: float, end: float) -> Markup:
    """A number as a stroke on its interval, a bar, along an axis from zero to an end."""
    place, low, high = np.round(_SIZE * _shares([value, lower, upper], end), 1)
    bar = f'<path class="span" d="M{low:g} 5H{high:g}"/>' if high > low else ""
    return Markup(
        f'<svg class="strip" viewBox="0 0 {_SIZE} 10" preserveAspectRatio="none" aria-hidden="true">{bar}'
        f'<path class="mark" d="M{place:g} 0V10"/></svg>'
    )


def profile(
    values: np.ndarray, limits: tuple[np.ndarray, np.ndarray] | None, across: Iterable[Tick], words: str
) -> Markup:
    """Shares in order, side by side: strokes on their intervals, which are bars."""
    from rrjax.figures.axes import per_cent

    number = len(values)
    end = float(max(np.max(values), np.nanmax(limits[1], initial=0) if limits else 0, 1e-12)) * 1.04

    def down(shares: ArrayLike) -> np.ndarray:  # SVG counts from the top
        return np.round(_SIZE * (1 - _shares(shares, end)), 1)

    marks = ticks(end, 6)
    up = [Tick(share / end, per_cent(share)) for share in marks]
    gap = 0.0 if number > _MOST_BARS_WITH_GAPS else 0.12
    sides = [(round(_SIZE * (k + gap) / number, 2), round(_SIZE * (k + 1 - gap) / number, 2)) for k in range(number)]
    paths = {"line": "".join(f"M0 {height:g}H{_SIZE}" for height in down(marks[1:]))}
    if limits is not None:
        paths["box"] = "".join(
            f"M{left:g} {bottom:g}H{right:g}V{top:g}H{left:g}Z" if bottom > top else ""
            for (left, right), bottom, top in zip(sides, *map(down, limits), strict=True)
        )
    paths["mark"] = "".join(
        f"M{left:g} {height:g}H{right:g}" for (left, right), height in zip(sides, down(values), strict=True)
    )
    drawn = "".join(f'<path class="{name}" d="{path}"/>' for name, path in paths.items() if path or name != "line")
    return Markup(
        f'<div class="plot" role="img" aria-label="{markup(words)}">'
        f'<div class="up">{_labels("bottom", up)}</div>'
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'
        f'<div class="across">{_labels("left", across)}</div></div>'
    )


def _shares(values: ArrayLike, end: float) -> np.ndarray:
    """The places of values on an axis from 0 to `end`, in [0, 1]; NaN is at 0."""
    values = np.asarray(values, float)
    return np.clip(np.nan_to_num(values / end), 0, 1) if end > 0 else np.zeros_like(values)


def _labels(side: str, labels: Iterable[Tick]) -> str:
    return "".join(f'<span style="{side}:{100 * tick.place:.4g}%">{markup(tick.text)}</span>' for tick in labels)


def _caption(text: str) -> str:
    return f"<caption><span>{markup(text)}</span></caption>" if text else ""


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _looks_numeric(text: str) -> bool:
    return text.startswith(("&lt;", *"0123456789−–∞+.-≤≥"))
