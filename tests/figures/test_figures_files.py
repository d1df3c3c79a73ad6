"""Figures on their way into files: laid out once, and as matplotlib itself would draw them."""

import io

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, NullLocator

from rrjax.figures import estimate_figure, save
from rrjax.figures.axes import set_grid, set_log_ticks, set_minor_ticks
from rrjax.figures.files import as_bytes
from rrjax.io import DataError

pytestmark = pytest.mark.once  # nothing here depends on the precision

PLACES = [digit * 10.0**power for power in range(4) for digit in range(2, 10)]


LOOKS = ({}, {"bottom": False}, {"length": 3, "color": "red"})
"""Of minor ticks."""


def panels(place, looks=LOOKS[:1]):
    """Logarithmic panels on one horizontal axis, the first and one a look; `place(axis)` makes the minor ticks."""
    figure = Figure(figsize=(2.5 + 2.5 * len(looks), 2.5), layout="constrained")
    for axes, look in zip(figure.subplots(1, 1 + len(looks), sharex=True), ({}, *looks), strict=True):
        axes.plot([1, 100, 5000], [3, 200, 4000])
        axes.set(xscale="log", yscale="log", xlim=(0.9, 6000), ylim=(1.5, 9000))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
            place(axis)
        set_grid(axes)
        axes.tick_params(which="minor", **look)
    return figure


def pixels(figure):
    return imread(io.BytesIO(as_bytes(figure, "png")[0]))


@pytest.mark.long
def test_minor_ticks_are_those_of_matplotlib():
    ours = pixels(panels(lambda axis: set_minor_ticks(axis, PLACES), LOOKS))
    theirs = pixels(panels(lambda axis: axis.set_minor_locator(FixedLocator(PLACES)), LOOKS))
    none = pixels(panels(lambda axis: None, LOOKS))
    assert np.abs(ours - theirs).max() < 0.05  # where lines cross, which of them comes first
    for panel in np.array_split(np.abs(none - theirs).max(axis=-1), 1 + len(LOOKS), axis=1):
        assert (panel > 0.3).sum() > 50


def test_minor_ticks_take_the_place_of_those_before():
    figure = Figure()
    axes = figure.subplots()
    axes.set(xscale="log", xlim=(1, 1e4))
    for _ in range(2):
        set_log_ticks(axes.xaxis, 1, 1e4)
        assert len(axes.artists) == 1
        assert axes.get_lines()[:] == []  # which are for what is drawn
    set_log_ticks(axes.xaxis, 1, 2)
    assert len(axes.artists) == 0


@pytest.mark.long
def test_a_figure_is_laid_out_once(tmp_path, monkeypatch):
    figure = panels(lambda axis: set_minor_ticks(axis, PLACES))
    done, engine, dots = [], figure.get_layout_engine(), figure.dpi
    execute, draw = ConstrainedLayoutEngine.execute, Figure.draw
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda *given: done.append("layout") or execute(*given))
    monkeypatch.setattr(Figure, "draw", lambda *given: done.append("drawn") or draw(*given))
    files = save(figure, tmp_path / "figure", dpi=130)
    assert done == ["layout", "drawn", "drawn"]
    assert figure.get_layout_engine() is engine
    assert figure.dpi == dots
    # The same panels, in the same places, as matplotlib left to itself would have them.
    alone = io.BytesIO()
    panels(lambda axis: set_minor_ticks(axis, PLACES)).savefig(alone, format="png", metadata=None, dpi=130)
    assert files[0].read_bytes() == alone.getvalue()
    # Bytes are those of the files.
    figure = panels(lambda axis: set_minor_ticks(axis, PLACES))
    assert as_bytes(figure, "png", "pdf", dpi=130) == [file.read_bytes() for file in files]


class Broken(Figure):
    def savefig(self, path, **_):
        if hasattr(path, "write_bytes"):
            path.write_bytes(b"half")
        raise RuntimeError("stopped")


def test_what_stops_a_drawing_leaves_the_figure_as_it_was():
    figure = Broken(layout="constrained")
    figure.subplots()
    engine, dots = figure.get_layout_engine(), figure.dpi
    with pytest.raises(RuntimeError, match="stopped"):
        as_bytes(figure, "png", dpi=10)
    assert (figure.get_layout_engine(), figure.dpi) == (engine, dots)


@pytest.mark.long
@pytest.mark.parametrize("name", ["a.png", "a.pdf", "a.svg", "a.PNG", "fig.1"])
def test_files_are_whole_reproducible_and_named_by_their_suffix(tmp_path, name):
    def write():
        figure = estimate_figure("abcd", {"MLE*": [0.6, 0.3, 0.1, 0.0]}, standard_error=0.1)
        files = save(figure, tmp_path / name)
        assert figure.get_layout_engine() is not None
        return {file.name: file.read_bytes() for file in files}

    written = write()
    assert list(written) == ([name] if name != "fig.1" else ["fig.1.png", "fig.1.pdf"])
    for file, content in written.items():
        assert content.startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[file.lower()[-3:]])
        assert b"CreationDate" not in content
    assert write() == written
    with pytest.raises(RuntimeError, match="stopped"):
        save(Broken(), tmp_path / name)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == written
    with pytest.raises(DataError, match="is not there"):
        save(Figure(), tmp_path / "no" / name)


def test_dots_per_inch_are_those_asked_for(tmp_path):
    for name, options, dots in (("a", {}, 150), ("b", {"dpi": 130}, 130)):
        (png, _) = save(Figure(figsize=(2, 1)), tmp_path / name, **options)
        assert int.from_bytes(png.read_bytes()[16:20], "big") == 2 * dots
