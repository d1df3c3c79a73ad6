"""`docs/gallery.md` has every figure, with the images that `docs/gallery.py` draws."""

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from rrjax import figures

pytestmark = pytest.mark.once  # nothing here depends on the precision

DOCS = Path(__file__).parents[2] / "docs"
IMAGE = r"### .+\n\n!\[(.+)\]\(gallery/(.+)\.png\)\n\n"
ENTRY = IMAGE + r"\* \*\*Shows\*\*: (.+)\n\* \*\*Use it\*\*: .+\n\* \*\*Call\*\*: `.+`"
LARGEST = 400_000
"""Bytes of all images together."""


def test_the_gallery_has_every_figure():
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    entries = re.findall(ENTRY, page)
    assert len(entries) == page.count("\n### ")
    assert all(words == shows for words, _, shows in entries)
    assert [name for _, name, _ in entries] == list(gallery.FIGURES)
    assert not [name for name in figures.__all__ if name != "save" and f"figures.{name}" not in page]
    images = list((DOCS / "gallery").iterdir())
    assert {image.stem for image in images} == set(gallery.FIGURES)
    assert sum(image.stat().st_size for image in images) < LARGEST
