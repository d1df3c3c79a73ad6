"""Statements side by side: a point and an interval each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.axes import new_figure, set_grid, set_share_ticks
from rrjax.figures.style import BLUE, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Statements(NamedTuple):
    """What one panel shows.

    Attributes:
        names: Of the rows.
        values: As many numbers.
        lower: Confidence limits.
        upper: Confidence limits.
        are_shares: Whether the numbers are shares, which are drawn as per cent.
        mark: A number that a line is drawn at, such as no difference.
    """

    names: Sequence[object]
    values: Sequence[float] | np.ndarray
    lower: Sequence[float] | np.ndarray
    upper: Sequence[float] | np.ndarray
    are_shares: bool = False
    mark: float | None = None


def forest_figure(panels: Mapping[str, Statements], *, level: float = 0.95, title: str = "") -> Figure:
    """Draws estimates with their intervals, a row each, in one panel for each kind.

    Args:
        panels: Title → `Statements`. Rows of the same names stand at the same height.
        level: Of the intervals.
        title: Above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: No panel, or numbers and names of different lengths.

    Example:
        >>> from rrjax.figures import Statements, forest_figure
        >>> ages = Statements(["north", "south"], [38.9, 47.2], [32.6, 41.0], [45.3, 53.1])
        >>> figure = forest_figure({"mean age": ages})
    """
    if not panels:
        raise ArgumentError("there is nothing to draw: give at least one panel", argument="panels", value=panels)
    for name, panel in panels.items():
        if len({len(part) for part in panel[:4]}) > 1:
            raise ArgumentError(
                f"{name}: all must have one length; got {[len(part) for part in panel[:4]]}",
                argument="panels",
                value=name,
            )
    rows = list(dict.fromkeys(str(name) for panel in panels.values() for name in panel.names))
    columns = min(len(panels), 3)
    lines = -(-len(panels) // columns)
    figure = new_figure(1.6 + 3.2 * columns, lines * (1.1 + 0.28 * len(rows)) + 0.4, title)
    drawn = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    place = {name: height for height, name in enumerate(rows)}
    for axes, (name, panel) in zip(drawn, panels.items(), strict=False):
        at = np.asarray([place[str(row)] for row in panel.names])
        values, lower, upper = (np.asarray(part, float) for part in panel[1:4])
        if panel.mark is not None:
            axes.axvline(panel.mark, color="0.6", linewidth=1, linestyle="--", zorder=1)
        axes.hlines(at, lower, upper, color="0.35", linewidth=1.6, zorder=2)
        for ends in (lower, upper):
            axes.plot(ends, at, "|", color="0.35", markersize=7, zorder=2)
        axes.plot(values, at, "o", color=BLUE, markersize=5, zorder=3)
        if panel.are_shares:
            set_share_ticks(axes.xaxis)
        axes.set_title(shortened(name, 40), fontsize=10)
        set_grid(axes, "x")
    for axes in drawn[len(panels) :]:
        axes.set_visible(False)
    drawn[0].set_yticks(range(len(rows)), [shortened(row) for row in rows])
    drawn[0].set_ylim(len(rows) - 0.4, -0.6)
    figure.supxlabel(f"estimate, and its {100 * level:.12g} % interval", fontsize=10)
    return figure
