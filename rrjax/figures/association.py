"""Figures of several columns: the association of all pairs, the joint table of two, and a tree."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import ArrayLike

from rrjax.data.errors import ArgumentError
from rrjax.figures import axes as canvas
from rrjax.figures.style import BLUE, PALE_BLUE, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure

MOST_WITH_NUMBERS = 16
"""Number of columns, or categories, up to which the cells have numbers."""
MOST_CATEGORIES = 40
"""Number of categories of a column up to which a joint table shows all; of more it shows those with most users."""


def association_figure(
    names: Sequence[str],
    cramers_v: Mapping[tuple[str, str], float],
    *,
    significant: Iterable[tuple[str, str]] = (),
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draws Cramér's V of pairs of columns as a triangle of cells.

    Args:
        names: The columns, in the order to draw them.
        cramers_v: (column, column) → V, in [0, 1]; a pair in either order. Pairs that are absent stay empty.
        significant: The pairs to mark, such as those with a p-value below 0.05 after Holm's correction.
        title: Title above the figure.
        ax: The axes to draw into; None makes a figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: Fewer than two columns, or a pair of other columns.

    Example:
        >>> from rrjax.figures import association_figure
        >>> v = {("smokes", "drinks"): 0.24, ("smokes", "region"): 0.02, ("drinks", "region"): 0.0}
        >>> figure = association_figure(["smokes", "drinks", "region"], v, significant=[("smokes", "drinks")])
    """
    number = len(names)
    if number < 2:
        raise ArgumentError(f"names must be those of two columns or more, got {number}", argument="names")
    places = {name: place for place, name in enumerate(names)}
    marked = {frozenset(pair) for pair in significant}
    for argument, pairs in (("cramers_v", set(map(frozenset, cramers_v))), ("significant", marked)):
        odd = next((pair for pair in pairs if len(pair) != 2 or not pair <= places.keys()), None)
        if odd is not None:
            raise ArgumentError(f"{argument} must have pairs of names, got {sorted(odd)}", argument=argument)
    table, texts = np.full((number - 1, number - 1), np.nan), {}
    for pair, value in cramers_v.items():
        column, row = sorted(places[name] for name in pair)
        table[row - 1, column] = value
        parts = [f"{value:.2f}"] * (number <= MOST_WITH_NUMBERS) + ["●"] * (frozenset(pair) in marked)
        texts[row - 1, column] = "\n".join(parts)
    side = max(0.55 * number, 3.4)
    figure, axes = canvas.one_panel(side + 2.4, side + 0.9, title, ax)
    # An own maximum, so that weak associations differ in colour, too.
    most = max(0.1, float(np.nanmax(table))) if texts else 1.0
    _draw_cells(axes, table, most, [names[1:], names[:-1]], "Cramér's V, corrected for noise", texts)
    if marked:
        axes.set_xlabel("● significant after correction for all pairs", fontsize=9)
    return figure


def _draw_cells(
    axes: Axes,
    table: np.ndarray,
    most: float,
    names: Sequence[Sequence[object]],
    what: str,
    texts: Mapping[tuple[int, int], str],
) -> Colorbar:
    """Draws a table of numbers as cells with texts, and the names of its rows and columns; returns the colour bar."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("association", ["white", PALE_BLUE, BLUE])
    drawn = axes.pcolormesh(
        np.ma.masked_invalid(table), cmap=colours, vmin=0, vmax=most, edgecolors="white", linewidth=1
    )
    axes.invert_yaxis()
    axes.set_aspect("equal")
    rows, columns = ([shortened(name) for name in of_axis] for of_axis in names)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (row, column), text in texts.items():
        look = {"color": "white" if table[row, column] > 0.75 * most else "black", "fontsize": 8}
        look["fontweight"] = "bold" if text.endswith("●") else "normal"
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", **look)
    bar = axes.figure.colorbar(drawn, ax=axes, shrink=0.7, pad=0.03)
    bar.set_label(what)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return bar


def joint_figure(
    names: Sequence[str], labels: Sequence[Sequence[Any]], shares: ArrayLike, *, title: str = "", ax: Axes | None = None
) -> Figure:
    """Draws the joint table of two columns as a heat map.

    Args:
        names: The two columns; the categories of the first one are rows.
        labels: The labels of the K and of the L categories.
        shares: `[K, L]`, joint shares. Of more than 40 categories those with the largest shares are drawn.
        title: Title above the figure.
        ax: The axes to draw into; None makes a figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: Other shapes.

    Example:
        >>> from rrjax.figures import joint_figure
        >>> figure = joint_figure(["smokes", "drinks"], [["no", "yes"], ["no", "yes"]], [[0.5, 0.1], [0.1, 0.3]])
    """
    table = np.asarray(shares, float)
    sizes = tuple(map(len, labels))
    if len(names) != 2 or len(sizes) != 2 or table.shape != sizes:
        raise ArgumentError(
            f"shares must be of two columns with labels, got {table.shape} for {sizes}", argument="shares"
        )
    kept, along = [], []
    for axis, name in enumerate(names):
        places = np.sort(np.argsort(-table.sum(axis=1 - axis), kind="stable")[:MOST_CATEGORIES])
        left = sizes[axis] - len(places)
        along.append(shortened(name) + (f" ({len(places)} of {sizes[axis]:,} categories)" if left else ""))
        kept.append(places)
    table = table[np.ix_(*kept)]
    height, width = (max(0.55 * number, 2.2) for number in table.shape)
    figure, axes = canvas.one_panel(max(width + 2.8, 5), height + 1.4, title, ax)
    shown = [[of[place] for place in places] for of, places in zip(labels, kept, strict=True)]
    few = max(table.shape) <= MOST_WITH_NUMBERS
    texts = {cell: canvas.per_cent(round(float(share), 3)) for cell, share in np.ndenumerate(table) if few}
    bar = _draw_cells(axes, table, float(table.max()), shown, "estimated share", texts)
    bar.ax.yaxis.set_major_formatter(lambda share, _: canvas.per_cent(share))
    axes.set(xlabel=along[1], ylabel=along[0])
    return figure


def tree_figure(
    names: Sequence[str], cramers_v: Mapping[tuple[str, str], float], *, title: str = "", ax: Axes | None = None
) -> Figure:
    """Draws a tree of columns: each edge with its Cramér's V, and the thicker the larger it is.

    Args:
        names: The columns.
        cramers_v: (column, column) → V of each edge, in [0, 1]; the edges join all columns without a circle.
        title: Title above the figure.
        ax: The axes to draw into; None makes a figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: The edges are no tree of these columns.

    Example:
        >>> from rrjax.figures import tree_figure
        >>> figure = tree_figure(["age", "smokes", "drinks"], {("smokes", "drinks"): 0.24, ("age", "smokes"): 0.1})
    """
    near: dict[str, list[str]] = {name: [] for name in names}
    for one, other in cramers_v:
        if one not in near or other not in near:
            raise ArgumentError(f"cramers_v must have pairs of names, got {(one, other)}", argument="cramers_v")
        near[one].append(other)
        near[other].append(one)
    depths = {name: _depths(near, name) for name in names}
    if len(cramers_v) != len(names) - 1 or any(len(own) < len(names) for own in depths.values()):
        raise ArgumentError("cramers_v must have the edges of one tree of all names", argument="cramers_v")
    # From the column in the middle to the right; each leaf has a line of its own.
    depth, lines = min(depths.values(), key=lambda own: max(own.values())), itertools.count()
    heights: dict[str, float] = {}
    for name in reversed(depth):  # branches before the columns that they begin at
        beyond = [heights[other] for other in near[name] if depth[other] > depth[name]]
        heights[name] = float(np.mean(beyond)) if beyond else next(lines)
    figure, axes = canvas.one_panel(max(2 + 2.8 * max(depth.values()), 6.5), 1.2 + 0.55 * next(lines), title, ax)
    for pair, v in cramers_v.items():
        x, y = [depth[name] for name in pair], [heights[name] for name in pair]
        known = 0.0 if np.isnan(v) else v
        axes.plot(x, y, color=BLUE, linewidth=1 + 7 * known, alpha=0.3 + 0.7 * known, solid_capstyle="round", zorder=1)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        text = "unknown" if np.isnan(v) else f"{v:.2f}"
        axes.text(sum(x) / 2, sum(y) / 2, text, ha="center", va="center", fontsize=8, bbox=box, zorder=2)
    for name, height in heights.items():
        box = {"boxstyle": "round,pad=0.4", "facecolor": PALE_BLUE, "edgecolor": BLUE}
        axes.text(depth[name], height, shortened(name), ha="center", va="center", fontsize=9, bbox=box, zorder=3)
    axes.margins(0.16, 0.2)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_xlabel("Cramér's V of each edge, corrected for noise", fontsize=9)
    return figure


def _depths(near: Mapping[str, Sequence[str]], root: str) -> dict[str, int]:
    """The number of edges from a column to each that it reaches, branch by branch."""
    depths: dict[str, int] = {}
    stack = [(root, 0)]
    while stack:
        name, depth = stack.pop()
        if name not in depths:
            depths[name] = depth
            stack += [(other, depth + 1) for other in near[name]]
    return depths
