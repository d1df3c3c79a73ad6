"""HTML pages that need no other file: for light and dark screens, wide and narrow, and for paper; without a script.

A page's drawings are SVG in the page's own colours, beside words: they follow the reader's scheme, their labels keep
their size where room is short, and a million categories cost them no more than fifty. What matplotlib draws is a PNG,
which stays on white paper.
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
