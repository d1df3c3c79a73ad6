"""Minor ticks, all of an axis at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axis import Axis, XAxis


class _MinorTicks(Artist):
    """Marks at fixed places, which look as matplotlib's minor ticks of the same axis would.

    matplotlib makes five artists of every tick and asks all of them for their extent, time and again. On logarithmic
    axes there are dozens a panel, and they took most of the time of a figure.
    """

    def __init__(self, axis: Axis, places: Sequence[float]) -> None:
        super().__init__()
        self.ticked, self.places = axis, np.asarray(places, float)
        self.set_in_layout(False)
        self.set_zorder(0.5)  # as `set_axisbelow` has it

    def draw(self, renderer: Any) -> None:
        low, high = np.sort(self.ticked.get_view_interval())
        shown = self.places[(self.places >= low) & (self.places <= high)]
        # One of its own has the look, and knows whether there shall be any.
        tick = self.ticked.get_minor_ticks(1)[0]
        for line in (tick.tick1line, tick.tick2line):
            (line.set_xdata if isinstance(self.ticked, XAxis) else line.set_ydata)(shown)
            line.draw(renderer)


def set_minor_ticks(axis: Axis, places: Sequence[float]) -> None:
    """Marks places on an axis without words, in place of those that were marked so before."""
    for artist in list(axis.axes.artists):
        if isinstance(artist, _MinorTicks) and artist.ticked is axis:
            artist.remove()
    if len(places):
        axis.axes.add_artist(_MinorTicks(axis, places))
