"""The figure of the association of several columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.axes import new_figure
from rrjax.figures.style import BLUE, PALE_BLUE, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_WITH_NUMBERS = 16
"""Number of columns up to which the cells have numbers."""


def association_figure(
    names: Sequence[str],
    cramers_v: Mapping[tuple[str, str], float],
    *,
    significant: Iterable[tuple[str, str]] = (),
    title: str = "",
) -> Figure:
    """Draws Cramér's V of pairs of columns as a triangle of cells.

    Args:
        names: The columns, in the order to draw them.
        cramers_v: (column, column) → V, in [0, 1]; a pair in either order. Pairs that are absent stay empty.
        significant: The pairs to mark, such as those with a p-value below 0.05 after Holm's correction.
        title: Title above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: Fewer than two columns, or a pair of other columns.

    Example:
        >>> from rrjax.figures import association_figure
        >>> v = {("smokes", "drinks"): 0.24, ("smokes", "region"): 0.02, ("drinks", "region"): 0.0}
        >>> figure = association_figure(["smokes", "drinks", "region"], v, significant=[("smokes", "drinks")])
    """
    from matplotlib.colors import LinearSegmentedColormap

    number = len(names)
    if number < 2:
        raise ArgumentError(f"names must be those of two columns or more, got {number}", argument="names")
    places = {name: place for place, name in enumerate(names)}
    marked = {frozenset(pair) for pair in significant}
    for argument, pairs in (("cramers_v", set(map(frozenset, cramers_v))), ("significant", marked)):
        odd = next((pair for pair in pairs if len(pair) != 2 or not pair <= places.keys()), None)
        if odd is not None:
            raise ArgumentError(f"{argument} must have pairs of names, got {sorted(odd)}", argument=argument)
    table = np.full((number - 1, number - 1), np.nan)
    cells = []
    for pair, value in cramers_v.items():
        column, row = sorted(places[name] for name in pair)
        table[row - 1, column] = value
        cells.append((row - 1, column, value, frozenset(pair) in marked))

    side = max(0.55 * number, 3.4)
    figure = new_figure(side + 2.4, side + 0.9, title)
    axes = figure.subplots()
    # An own maximum, so that weak associations differ in colour, too.
    most = max(0.1, float(np.nanmax(table))) if cells else 1.0
    colours = LinearSegmentedColormap.from_list("association", ["white", PALE_BLUE, BLUE])
    drawn = axes.pcolormesh(
        np.ma.masked_invalid(table), cmap=colours, vmin=0, vmax=most, edgecolors="white", linewidth=1
    )
    axes.invert_yaxis()
    axes.set_aspect("equal")
    middle = np.arange(number - 1) + 0.5
    axes.set_xticks(middle, [shortened(name) for name in names[:-1]], rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(middle, [shortened(name) for name in names[1:]])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row, column, value, mark in cells:
        text = f"{value:.2f}" if number <= MOST_WITH_NUMBERS else ""
        text += ("\n●" if text else "●") * mark
        colour = "white" if value > 0.75 * most else "black"
        weight = "bold" if mark else "normal"
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize=8, fontweight=weight)
    if marked:
        axes.set_xlabel("● significant after correction for all pairs", fontsize=9)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.7, pad=0.03)
    bar.set_label("Cramér's V, corrected for noise")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure
