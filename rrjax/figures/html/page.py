"""The parts of a page (text, lists, tables, figures), and the whole page."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from rrjax.figures.html.style import STYLE

_GENERATOR = '<meta name="generator" content="rrjax">'
"""Mark of a page that rrjax wrote."""


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
    """A sentence, with code between backticks; HTML is unchanged."""
    if isinstance(text, Markup):
        return text
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", markup(text)))


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
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{found}, Python {platform.python_version()}"


def is_page(path: str | os.PathLike[str]) -> bool:
    """Whether `write_page` wrote a file, so that it may be overwritten."""
    try:
        with open(path, "rb") as stream:
            return _GENERATOR.encode() in stream.read(1000)
    except OSError:
        return False


def write_page(
    path: str | os.PathLike[str], title: str, main: Iterable[Markup], *, head: Iterable[Markup] = (), foot: str = ""
) -> Path:
    """Writes a page, whole or not at all: title, `head` below it, the parts, and a footer.

    Raises:
        DataError: The file cannot be written; the message has the reason.
    """
    from rrjax.io.write import replacing

    footer = [f"<footer>{paragraph(foot)}</footer>"] if foot else []
    page = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        _GENERATOR,
        f"<title>{markup(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        *("<header>", f"<h1>{markup(title)}</h1>", *head, "</header>"),
        *("<main>", *main, "</main>", *footer),
        "</body>\n</html>\n",
    ]
    with replacing(path) as aside:
        # File names may have bytes that are no text.
        aside.write_bytes("\n".join(page).encode("utf-8", errors="backslashreplace"))
    return Path(path)


def _caption(text: str) -> str:
    return f"<caption><span>{markup(text)}</span></caption>" if text else ""


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _looks_numeric(text: str) -> bool:
    return text.startswith(("&lt;", *"0123456789−–∞+.-≤≥"))
