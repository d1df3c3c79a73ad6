"""`docs/gallery.md` is what `docs/gallery.py` writes, and has every figure."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from rrjax import figures

pytestmark = pytest.mark.once  # nothing here depends on the precision

DOCS = Path(__file__).parents[2] / "docs"
LARGEST = 400_000
"""Bytes of all images together."""


def test_the_gallery_has_every_figure():
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert page == gallery.page(), "run python docs/gallery.py"
    assert not [name for name in figures.__all__ if name != "save" and f"figures.{name}" not in page]
    images = list((DOCS / "gallery").iterdir())
    assert {image.stem for image in images} == {name for entries in gallery.PARTS.values() for name in entries}
    assert sum(image.stat().st_size for image in images) < LARGEST
