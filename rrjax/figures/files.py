"""Figures into files."""

from __future__ import annotations

import io
import logging
import os
import warnings
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
    from rrjax.io import replacing

    path = Path(path)
    alone = path.suffix.lower()[1:] in _UNDATED
    files = (path,) if alone else (Path(f"{path}.png"), Path(f"{path}.pdf"))
    engine = figure.get_layout_engine()
    try:
        for file in files:
            with replacing(file) as aside:
                _write(figure, aside, file.suffix.lower()[1:], dpi)
            figure.set_layout_engine("none")  # the panels are placed, which takes as long as drawing them
    finally:
        figure.set_layout_engine(engine)
    return files


def as_png(figure: Figure, dpi: float = 150) -> bytes:
    """A figure as what a PNG file would hold."""
    stream = io.BytesIO()
    _write(figure, stream, "png", dpi)
    return stream.getvalue()


def _write(figure: Figure, target: Any, suffix: str, dpi: float) -> None:
    from matplotlib import rc_context

    choose_fonts(figure)
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    with warnings.catch_warnings(), rc_context({"pdf.fonttype": 42, "svg.hashsalt": "rrjax"}):
        # Said already, and by name; and that a font for a label is not bold matters to nobody.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        log.setLevel(logging.ERROR)
        try:
            figure.savefig(target, format=suffix, metadata=_UNDATED[suffix], dpi=dpi if suffix == "png" else "figure")
        finally:
            log.setLevel(level)
