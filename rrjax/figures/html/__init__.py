"""HTML pages that need no other file: for light and dark screens, wide and narrow, and for paper; without a script.

A page's drawings are SVG in the page's own colours, with text next to them: they follow the reader's colour scheme,
their labels keep their size on narrow screens, and a million categories take no more space than fifty. Figures of
matplotlib are PNG on white.
"""

from rrjax.figures.html.drawings import Tick, profile, round_step, strip, ticks
from rrjax.figures.html.page import (
    Markup,
    contents,
    details,
    figure,
    heading,
    is_page,
    joined,
    listing,
    markup,
    pairs,
    paragraph,
    prose,
    table,
    versions,
    write_page,
)

__all__ = [
    "Markup",
    "Tick",
    "contents",
    "details",
    "figure",
    "heading",
    "is_page",
    "joined",
    "listing",
    "markup",
    "pairs",
    "paragraph",
    "profile",
    "prose",
    "round_step",
    "strip",
    "table",
    "ticks",
    "versions",
    "write_page",
]
