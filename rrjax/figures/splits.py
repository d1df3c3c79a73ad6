"""The figure of the ways to spend ε on several columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrjax.figures.axes import in_words, new_figure, no_axes, set_grid, set_log_ticks, set_share_ticks
from rrjax.figures.style import line_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rrjax.inference import SplitErrors

MOST_NUMBERS = 5
"""Largest number of curves for numbers of columns."""
_MOST_WORDS = 3
"""Largest number of crossovers that all have words; of more, the first and the last."""


@no_axes
def splits_figure(num_categories: Sequence[int], epsilon: float, num_users: int, *, title: str = "") -> Figure:
    """Draws the expected errors of the ways to spend ε on several columns, against ε.

    On the left is the error of a share in a column, on the right that of a cell in the table of two columns, as from
    `rrjax.inference.compare_splits`. Dots mark the ε from which more columns are best. Up to five numbers of columns
    have a curve; all numbers count for the dots.

    Args:
        num_categories: `[d]`, K of each column, at least two columns.
        epsilon: Of everything that a user reports, nats; the vertical line.
        num_users: N, at least 1.
        title: Title above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ValueError: As `rrjax.inference.compare_splits`.

    Example:
        >>> from rrjax.figures import splits_figure
        >>> figure = splits_figure([4, 10, 16], epsilon=2.0, num_users=50_000)
    """
    from rrjax.inference import compare_splits
    from rrjax.inference.planning import LARGEST_COMPARED_EPSILON

    given = {_way(row): row for row in compare_splits(num_categories, num_users, epsilon)}
    number = len(num_categories)
    centre = min(epsilon, LARGEST_COMPARED_EPSILON)
    # To where all columns are best, beyond 1.3·log K + 1.25 for each of them.
    last = max(2 * centre, number * (3 + 1.5 * np.log(max(num_categories))))
    grid = np.geomspace(min(centre / 8, 0.5), last, 80 if number <= 8 else 40)
    rows = [{_way(row): row for row in compare_splits(num_categories, num_users, e)} for e in grid]
    numbers = range(1, number + 1)
    drawn = np.unique(np.geomspace(1, number, min(number, MOST_NUMBERS)).round().astype(int)).tolist()

    figure = new_figure(11, 4.4, title)
    left, right = figure.subplots(1, 2)
    for axes, what in ((left, "share"), (right, "cell")):
        errors = {way: np.array([getattr(row[way], what) for row in rows]) for way in given}
        for place, way in enumerate([*drawn, 0]):
            if np.isfinite(errors[way]).all():
                axes.plot(grid, errors[way], **line_at(place), linewidth=1.6, label=_words(way, number))
        _mark_crossovers(axes, grid, np.array([errors[way] for way in numbers]))
        axes.axvline(centre, color="0.5", linewidth=0.9, linestyle=":", label=f"ε = {epsilon:.4g}")
        axes.set(xscale="log", yscale="log", xlabel="ε of all that a user reports, nats")
        low, high = axes.get_xlim()
        set_log_ticks(axes.xaxis, low, high, in_words)
        # A curve above 100 % tells nothing; the best at the given ε is always shown.
        axes.set_ylim(top=min(axes.get_ylim()[1], max(2, 2 * min(getattr(row, what) for row in given.values()))))
        set_share_ticks(axes.yaxis)
        set_grid(axes)
        axes.legend(fontsize=8, title="a user reports", title_fontsize=8)
    left.set_ylabel("expected root mean squared error")
    left.set_title("Share in a column", fontsize=10)
    right.set_title("Cell in the table of two columns", fontsize=10)
    return figure


def _way(row: SplitErrors) -> int:
    """The number of columns that a user reports; 0 is one among fake answers."""
    return 0 if row.name == "among fakes" else row.number


def _words(way: int, number: int) -> str:
    if way in (0, number):
        return "all columns" if way else "1, among fake answers"
    return f"{way}, drawn at random"


def _mark_crossovers(axes: Axes, grid: np.ndarray, errors: np.ndarray) -> None:
    """Marks where another number of columns is best; `errors` is `[d, ε]`."""
    best = np.argmin(errors, axis=0)
    places = np.flatnonzero(np.diff(best))
    for count, place in enumerate(places):
        before, after = best[place], best[place + 1]
        old, new = np.log(errors[[before, after], place : place + 2])
        part = (new - old)[0] / np.subtract(*(new - old))  # of the step, where the two are equal
        epsilon = grid[place] ** (1 - part) * grid[place + 1] ** part
        error = np.exp((1 - part) * old[0] + part * old[1])
        axes.plot([epsilon], [error], "o", color="black", markersize=4.5, zorder=3)
        if len(places) <= _MOST_WORDS or count in (0, len(places) - 1):
            text, offset = f"{after + 1} from ε = {epsilon:.2g}", (-4, -4)
            axes.annotate(text, (epsilon, error), offset, textcoords="offset points", ha="right", va="top", fontsize=8)
    if len(places):
        axes.plot([], [], "o", color="black", markersize=4.5, label="more columns are best from here")
