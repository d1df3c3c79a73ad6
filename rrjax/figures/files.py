"""Files of figures, with one layout for all formats, and fonts for labels in any script."""

from __future__ import annotations

import io
import logging
import os
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNDATED = {"png": None, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
_PREFERRED = (
    *("Noto Sans CJK", "Source Han Sans", "Noto Sans", "IPAGothic", "IPAexGothic", "WenQuanYi", "Droid Sans Fallback"),
    *("Hiragino", "PingFang", "Yu Gothic", "Meiryo", "MS Gothic", "Microsoft YaHei", "SimHei", "Malgun Gothic"),
    *("Arial Unicode", "Noto Emoji", "Symbola", "Segoe UI", "FreeSans", "Unifont"),
)
"""Prefixes of the names of preferred fonts."""
_UNUSABLE = ("color", "lastresort", "last resort")
"""Parts of the names of unsuitable fonts: their glyphs are coloured layers, or empty boxes."""
_ADVICE = {"CJK": "Noto Sans CJK", "emoji": "Noto Emoji, the one without colours"}
_warned: set[str] = set()
"""Scripts for which a warning of missing fonts was given."""


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 150) -> tuple[Path, ...]:
    """Writes a figure, each file whole or not at all; the same figure gives the same bytes.

    Args:
        figure: The figure.
        path: One file, if it ends in .png, .pdf or .svg. Without such a suffix, "fig1" makes fig1.png and fig1.pdf.
        dpi: Dots per inch of a PNG.

    Returns:
        The files.

    Raises:
        DataError: A file cannot be written; the message has the reason.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from rrjax.figures import save
        >>> save(Figure(), "figure")  # doctest: +SKIP
        (PosixPath('figure.png'), PosixPath('figure.pdf'))
    """
    from rrjax.io.write import replacing

    path = Path(path)
    alone = path.suffix.lower()[1:] in _UNDATED
    files = (path,) if alone else (Path(f"{path}.png"), Path(f"{path}.pdf"))
    with _laid_out(figure, dpi) as write:
        for file in files:
            with replacing(file) as aside:
                write(aside, file.suffix.lower()[1:])
    return files


def as_bytes(figure: Figure, *suffixes: str, dpi: float = 150) -> list[bytes]:
    """The contents of a figure's files ("png", "pdf" or "svg"), all of one layout."""
    streams = [io.BytesIO() for _ in suffixes]
    with _laid_out(figure, dpi) as write:
        for stream, suffix in zip(streams, suffixes, strict=True):
            write(stream, suffix)
    return [stream.getvalue() for stream in streams]


@contextmanager
def _laid_out(figure: Figure, dpi: float) -> Iterator[Callable[[Any, str], None]]:
    """A function that writes the figure in any format, after its layout is computed once.

    matplotlib computes the layout for each file: 30 % more processor time for the paper's figures as PNG and PDF.
    """
    from matplotlib import rc_context

    def write(target: Any, suffix: str) -> None:
        figure.savefig(target, format=suffix, metadata=_UNDATED[suffix], dpi=dpi if suffix == "png" else "figure")

    engine, figure_dpi = figure.get_layout_engine(), figure.dpi
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    choose_fonts(figure)
    settings: Any = {"pdf.fonttype": 42, "svg.hashsalt": "rrjax"}
    settings |= {"figure.autolayout": False, "figure.constrained_layout.use": False}  # the user's settings may differ
    with warnings.catch_warnings(), rc_context(settings):
        # `choose_fonts` has warned. A font without a bold face needs no warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        log.setLevel(logging.ERROR)
        try:
            if engine is not None and figure.axes:
                figure.dpi = dpi  # the width of a text depends on it a little
                engine.execute(figure)
                figure.dpi = figure_dpi
                figure.set_layout_engine(None)
            yield write
        finally:
            log.setLevel(level)
            figure.dpi = figure_dpi
            figure.set_layout_engine(engine)


def choose_fonts(figure: Figure) -> None:
    """Adds to the font of each text installed fonts for the characters that it lacks.

    Characters that no installed font has are drawn as boxes. The first time for each script, a warning names a font to
    install.
    """
    from matplotlib.font_manager import findfont
    from matplotlib.text import Text

    missing: set[str] = set()
    for text in figure.findobj(Text):
        lacking = {character for character in text.get_text() if not character.isspace()}
        if not lacking or max(lacking) < "\u0250":  # Latin: every font has it
            continue
        lacking -= _characters(findfont(text.get_fontproperties()))
        families = list(text.get_fontfamily())
        while lacking and (font := _font_with(frozenset(lacking))) is not None:
            families.append(font[0])
            lacking -= _characters(font[1])
        text.set_fontfamily(list(dict.fromkeys(families)))
        missing |= lacking
    _warn_of(missing)


def _warn_of(missing: Iterable[str]) -> None:
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
    """The script of a character, in a word."""
    name = unicodedata.name(character, "")
    if name.startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH", "BOPOMOFO")):
        return "CJK"
    if unicodedata.category(character) == "So" or 0x1F000 <= ord(character) < 0x20000:
        return "emoji"
    return name.split(" ")[0].capitalize() or "unnamed"


@cache
def _characters(file: str) -> frozenset[str]:
    """The characters of a font; none of a bitmap font, which matplotlib cannot scale."""
    from matplotlib.font_manager import get_font

    font = get_font(file)
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()


@cache
def _font_with(wanted: frozenset[str]) -> tuple[str, str] | None:
    """Family and file of the font with most of these characters, among equals a preferred one; None if none has any."""
    from matplotlib.font_manager import fontManager

    fonts = {(entry.name, entry.fname) for entry in fontManager.ttflist if entry.style == "normal"}
    most, best = 0, None
    for family, file in sorted(fonts, key=lambda font: (not font[0].startswith(_PREFERRED), font)):
        if any(word in family.lower() for word in _UNUSABLE):
            continue
        try:
            number = len(wanted & _characters(file))
        except (OSError, RuntimeError, ValueError):  # matplotlib cannot read this font
            continue
        if number > most:
            most, best = number, (family, file)
        if number == len(wanted):
            break
    return best
