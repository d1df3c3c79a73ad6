"""Figures into files."""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrjax.figures.fonts import choose_fonts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNDATED = {"png": None, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 150) -> tuple[Path, ...]:
    """Writes a figure, each file whole or not at all; the same figure gives the same bytes.

    Args:
        figure: To be written.
        path: Of one file, where it ends in .png, .pdf or .svg. Else without suffix: "fig1" makes fig1.png and fig1.pdf.
        dpi: Dots per inch of a PNG.

    Returns:
        The files.

    Raises:
        DataError: They cannot be written; says why.

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
    """What files of a figure would hold, "png", "pdf" or "svg", all of one layout."""
    streams = [io.BytesIO() for _ in suffixes]
    with _laid_out(figure, dpi) as write:
        for stream, suffix in zip(streams, suffixes, strict=True):
            write(stream, suffix)
    return [stream.getvalue() for stream in streams]


@contextmanager
def _laid_out(figure: Figure, dpi: float) -> Iterator[Callable[[Any, str], None]]:
    """What writes a figure in any format, with everything in its place.

    Left to itself, matplotlib lays it out for every file anew, and goes through all of it once more without drawing.
    """
    from matplotlib import rc_context

    def write(target: Any, suffix: str) -> None:
        figure.savefig(target, format=suffix, metadata=_UNDATED[suffix], dpi=dpi if suffix == "png" else "figure")

    engine, dots = figure.get_layout_engine(), figure.dpi
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    choose_fonts(figure)
    settings: Any = {"pdf.fonttype": 42, "svg.hashsalt": "rrjax"}
    settings |= {"figure.autolayout": False, "figure.constrained_layout.use": False}  # or no engine would mean one
    with warnings.catch_warnings(), rc_context(settings):
        # Said already, and by name; and that a font for a label is not bold matters to nobody.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        log.setLevel(logging.ERROR)
        try:
            if engine is not None and figure.axes:
                figure.dpi = dpi  # by which texts are a little wider or narrower
                engine.execute(figure)
                figure.dpi = dots
                figure.set_layout_engine(None)
            yield write
        finally:
            log.setLevel(level)
            figure.dpi = dots
            figure.set_layout_engine(engine)
