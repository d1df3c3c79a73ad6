"""Figures into files."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure, path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Writes a figure as PNG (130 dpi) and PDF, each whole or not at all; the same figure gives the same bytes.

    Args:
        figure: To be written.
        path: Without suffix: "fig1" makes fig1.png and fig1.pdf.

    Returns:
        The two paths.

    Raises:
        DataError: They cannot be written; says why.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from rrjax.study.figures import save
        >>> save(Figure(), "figure")  # doctest: +SKIP
        (PosixPath('figure.png'), PosixPath('figure.pdf'))
    """
    from matplotlib import rc_context

    from rrjax.io import replacing

    png, pdf = Path(f"{os.fspath(path)}.png"), Path(f"{os.fspath(path)}.pdf")
    with warnings.catch_warnings(), rc_context({"pdf.fonttype": 42}):
        # A name in a script that the font lacks is drawn as boxes; the tables have it whole.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        with replacing(png) as aside:
            figure.savefig(aside, format="png", dpi=130)
        engine = figure.get_layout_engine()
        figure.set_layout_engine("none")  # the panels are placed, which takes as long as drawing them
        try:
            with replacing(pdf) as aside:
                figure.savefig(aside, format="pdf", metadata={"CreationDate": None})
        finally:
            figure.set_layout_engine(engine)
    return png, pdf
