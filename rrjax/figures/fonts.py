"""Fonts for labels in any script."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PREFERRED = (
    *("Noto Sans CJK", "Source Han Sans", "Noto Sans", "IPAGothic", "IPAexGothic", "WenQuanYi", "Droid Sans Fallback"),
    *("Hiragino", "PingFang", "Yu Gothic", "Meiryo", "MS Gothic", "Microsoft YaHei", "SimHei", "Malgun Gothic"),
    *("Arial Unicode", "Noto Emoji", "Symbola", "Segoe UI", "FreeSans", "Unifont"),
)
"""Beginnings of the names of fonts that are looked at first; of the others any will do that has the characters."""
_UNUSABLE = ("color", "lastresort", "last resort")
"""In the names of fonts whose glyphs have layers of colour, or are boxes."""
_ADVICE = {"CJK": "Noto Sans CJK", "emoji": "Noto Emoji, the one without colours"}
_warned: set[str] = set()


def choose_fonts(figure: Figure) -> None:
    """Lets every text of a figure use, after its own font, installed ones that have the characters that one lacks.

    What no font has is drawn as boxes, and said once, with what to install: a figure does not fail for a name.
    """
    from matplotlib.font_manager import findfont
    from matplotlib.text import Text

    missing: set[str] = set()
    for text in figure.findobj(Text):
        wanted = {character for character in text.get_text() if not character.isspace()}
        if not wanted or max(wanted) < "\u0250":  # Latin, which every font has, and most texts are
            continue
        lacking = wanted - _characters(findfont(text.get_fontproperties()))
        families = []
        while lacking and (found := _font_with(frozenset(lacking))) is not None:
            family, file = found
            families.append(family)
            lacking -= _characters(file)
        if families:
            own = text.get_fontfamily()
            text.set_fontfamily([*own, *(family for family in families if family not in own)])
        missing |= lacking
    _tell(missing)


def _tell(missing: Iterable[str]) -> None:
    by_script: dict[str, list[str]] = {}
    for character in sorted(missing):
        by_script.setdefault(_script(character), []).append(character)
    for script, characters in by_script.items():
        if script in _warned:
            continue
        _warned.add(script)
        shown = " ".join(characters[:8]) + (" …" if len(characters) > 8 else "")
        warnings.warn(
            f"no installed font has these {script} characters: {shown}. Figures show boxes in their place (tables have "
            f"the labels whole): install a font such as {_ADVICE.get(script, 'Noto Sans')}, and draw again",
            stacklevel=2,
        )


def _script(character: str) -> str:
    """Of what a character is, in a word."""
    name = unicodedata.name(character, "")
    if name.startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH", "BOPOMOFO")):
        return "CJK"
    if unicodedata.category(character) == "So" or 0x1F000 <= ord(character) < 0x20000:
        return "emoji"
    return name.split(" ")[0].capitalize() or "unnamed"


@cache
def _characters(file: str) -> frozenset[str]:
    """All that a font has; none where it is of bitmaps, which matplotlib would not draw at other sizes."""
    from matplotlib.font_manager import get_font

    font = get_font(file)
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()


@cache
def _font_with(wanted: frozenset[str]) -> tuple[str, str] | None:
    """Family and file of the font that has most of these characters, if any has some; of equals the preferred one."""
    from matplotlib.font_manager import fontManager

    fonts = {(entry.name, entry.fname) for entry in fontManager.ttflist if entry.style == "normal"}
    most, best = 0, None
    for family, file in sorted(fonts, key=lambda font: (not font[0].startswith(_PREFERRED), font)):
        if any(word in family.lower() for word in _UNUSABLE):
            continue
        try:
            number = len(wanted & _characters(file))
        except (OSError, RuntimeError, ValueError):  # a font that matplotlib cannot read is none
            continue
        if number > most:
            most, best = number, (family, file)
        if number == len(wanted):
            break
    return best
