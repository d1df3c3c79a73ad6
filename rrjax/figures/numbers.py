"""Figures of distributions of numbers: the distribution function with its band, and the density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.axes import new_figure, no_axes, set_grid, set_share_ticks
from rrjax.figures.style import BLUE, PALE_BLUE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@no_axes
def cdf_figure(
    lower: Sequence[float] | np.ndarray,
    upper: Sequence[float] | np.ndarray,
    shares: np.ndarray,
    *,
    band: tuple[np.ndarray, np.ndarray] | None = None,
    band_label: str = "band",
    name: str = "",
    truth: np.ndarray | None = None,
    title: str = "",
) -> Figure:
    """Draws the distribution function of numbers with its band, and their shares.

    Args:
        lower: `[K]`, the least number of each bin, or the integer itself.
        upper: `[K]`, the largest number of each bin, or the integer itself.
        shares: `[K]`, an estimate.
        band: Two arrays `[K]`, limits of the distribution function, as from `rrjax.inference.cdf_band`.
        band_label: The name of the band in the legend.
        name: The name of the numbers, for the horizontal axes.
        truth: `[K]`, the true shares, if known.
        title: Title above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: The arrays are not of one length.

    Example:
        >>> import numpy as np
        >>> from rrjax.figures import cdf_figure
        >>> figure = cdf_figure([0, 10, 20], [10, 20, 30], np.array([0.2, 0.5, 0.3]), name="age")
    """
    low, high, theta = (np.asarray(each, float) for each in (lower, upper, shares))
    given = {"upper": high, "shares": theta, "truth": truth, "band": None if band is None else band[0]}
    for label, array in given.items():
        if array is not None and len(array) != len(low):
            problem = f"all must have one length: {len(low)} numbers in lower, {label} has {len(array)}"
            raise ArgumentError(problem, argument=label)
    figure = new_figure(10, 4, title)
    left, right = figure.subplots(1, 2)
    integers = bool((low == high).all())
    along = high if integers else np.append(low[0], high)

    def function(part: np.ndarray) -> np.ndarray:
        summed = np.cumsum(part)
        return summed if integers else np.append(0, summed)

    steps = {"drawstyle": "steps-post"} if integers else {}
    if band is not None:
        # Between the ends of a bin the function is between the limit before and the limit behind.
        below, above = np.asarray(band[0], float), np.asarray(band[1], float)
        if not integers:
            below, above = np.append(0, below), np.append(above, 1)
        left.fill_between(along, below, above, step="post", color=PALE_BLUE, label=band_label)
    if truth is not None:
        left.plot(along, function(np.asarray(truth, float)), color="0.6", linewidth=3, label="truth", **steps)
    left.plot(along, function(theta), color=BLUE, label="estimate", **steps)
    left.set(xlabel=name, ylabel="share of users up to here", ylim=(0, 1))
    left.legend(fontsize=8, loc="upper left")
    width = 0.9 if integers else high - low
    middle = (low + high) / 2
    if truth is not None:
        right.bar(middle, np.asarray(truth, float), width=width, color="0.8", label="truth")
    right.bar(middle, theta, width=width, color=BLUE, alpha=0.6, label="estimate")
    right.set(xlabel=name, ylabel="share of users" if integers else "share of users in the bin")
    for axes in (left, right):
        set_share_ticks(axes.yaxis)
        set_grid(axes)
    return figure
