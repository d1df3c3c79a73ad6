"""Estimates of one distribution, with what is known of every share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.axes import in_words, new_figure, ranks_to_draw, set_grid, set_log_ticks, set_share_ticks
from rrjax.figures.panels import legend_below
from rrjax.figures.style import PALE_BLUE, estimator_title, shortened, styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def estimate_figure(
    labels: Sequence[object] | np.ndarray,
    estimates: Mapping[str, np.ndarray],
    *,
    standard_error: float,
    truth: np.ndarray | None = None,
    limits: tuple[np.ndarray, np.ndarray] | None = None,
    limits_label: str = "interval",
    found: np.ndarray | None = None,
    top: int = 20,
    title: str = "",
) -> Figure:
    """Draws estimates of one distribution: the largest categories, and all of them by rank.

    Args:
        labels: `[K]`, the names of the categories.
        estimates: Name → `[K]`, shares; the first one decides the order. A name of the catalogue ("mle_star") stands
            for its title and colour, any other for itself.
        standard_error: Of the unbiased estimate of a category that nobody holds
            (`RandomizedResponse.standard_error`); drawn as a band, below which a share cannot be told from zero.
        truth: `[K]`, the true shares, where they are known.
        limits: Two arrays `[K]`, such as `rrjax.inference.intervals` returns; drawn as error bars.
        limits_label: What to call them.
        found: `[K]`, which categories are there: their names are drawn bold. By the same reckoning as the limits, such
            as a lower one above zero, or names and bars contradict each other.
        top: How many of the largest categories to draw.
        title: Above the figure.

    Raises:
        ArgumentError: Labels, estimates, truth, limits and found are not of one length.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Example:
        >>> import numpy as np, rrjax
        >>> from rrjax.figures import estimate_figure
        >>> theta = np.asarray(rrjax.mle_star([60, 20, 10, 10], 1.0))
        >>> figure = estimate_figure("abcd", {"mle_star": theta}, standard_error=0.2)
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    estimates = {name: np.asarray(theta) for name, theta in estimates.items()}
    first = next(iter(estimates.values()))
    truth = None if truth is None else np.asarray(truth)
    given: dict[str, Any] = {**estimates, "labels": labels, "truth": truth, "found": found}
    if limits is not None:
        given |= {"the lower limits": limits[0], "the upper limits": limits[1]}
    for name, shares in given.items():
        if shares is not None and len(shares) != len(first):
            raise ArgumentError(
                f"all must have one length: {len(first)} categories in the first estimate, {name} has {len(shares)}",
                argument=name,
            )
    styles = styles_of(estimates)
    named = {name: shortened(estimator_title(name), 60) for name in estimates}
    top = min(top, len(first))
    largest = np.argsort(-first, kind="stable")[:top]
    figure = new_figure(11, 1.9 + 0.24 * top, title)
    left, right = figure.subplots(1, 2)

    place = np.arange(top)
    left.axvspan(-2 * standard_error, 2 * standard_error, color=PALE_BLUE, zorder=0)
    if truth is not None:
        left.barh(place, truth[largest], height=0.75, color="0.72", zorder=1, label="truth")
    if limits is not None:
        lower, upper = (np.asarray(limit)[largest] for limit in limits)
        left.hlines(place, lower, upper, color="0.35", linewidth=1.4, zorder=2, label=limits_label)
        for ends in (lower, upper):
            left.plot(ends, place, "|", color="0.35", markersize=7, zorder=2)
    spread = np.linspace(-0.22, 0.22, len(estimates)) if len(estimates) > 1 else [0.0]
    for (name, theta), shift in zip(estimates.items(), spread, strict=True):
        colour = styles[name].colour
        look = {"color": colour, "markerfacecolor": colour if theta is first else "white", "markersize": 5}
        left.plot(theta[largest], place + shift, styles[name].marker, **look, zorder=3, label=named[name])
    left.set_yticks(place, [shortened(labels[index]) for index in largest])
    if found is not None:
        for text, index in zip(left.get_yticklabels(), largest, strict=True):
            text.set_fontweight("bold" if found[index] else "normal")
            text.set_color("black" if found[index] else "0.45")
    left.set_ylim(top - 0.4, -0.6)
    left.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    set_share_ticks(left.xaxis)
    # The marks of a table may go by another reckoning, and must not seem to contradict these.
    above = found is not None and limits is not None and np.array_equal(found, np.asarray(limits[0]) > 0)
    bold = "" if found is None else ";\nbold: its interval is above zero" if above else ";\nbold: it is there"
    left.set_xlabel(f"share of users\n(blue band: ±2 standard errors of an absent category{bold})")
    shown = f"The {top} largest of {len(first):,} categories" if top < len(first) else "All categories"
    left.set_title(shown, fontsize=10)
    set_grid(left, "x")

    if truth is not None:
        _ranked(right, truth, color="0.72", linewidth=4, label="truth")
    for name, theta in estimates.items():
        style = styles[name]
        _ranked(right, theta, color=style.colour, linestyle=style.dash, linewidth=1.6, label=named[name])
    right.axhline(2 * standard_error, color="0.4", linewidth=0.8, linestyle=":", label="2 standard errors")
    right.set(xscale="log", yscale="log", xlabel="rank (every curve by its own order)", ylabel="share of users")
    # Shares far below the noise say nothing, and would take all the room.
    floor = standard_error / 1000 if truth is None else min(standard_error / 1000, truth[truth > 0].min(initial=1))
    low, high = right.get_ylim()
    if low < floor < high:
        low, high = right.set_ylim(bottom=floor)
    room = 3 * math.log10(high / low) < min(15, 2.5 * figure.get_figheight())  # for three labels a decade
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if room else (1,)))
    set_share_ticks(right.yaxis)
    ranks = max(2, *(int((theta > 0).sum()) for theta in (*estimates.values(), *(() if truth is None else (truth,)))))
    right.set_xlim(0.9, 1.1 * ranks)
    set_log_ticks(right.xaxis, 0.9, 1.1 * ranks, in_words)
    right.set_title("All categories, by rank", fontsize=10)
    set_grid(right)
    # Below both, because within them it would hide what it explains.
    known = {
        label: handle for axes in (right, left) for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    legend_below(figure, list(known.values()))
    return figure


def _ranked(axes: Axes, theta: np.ndarray, **style: Any) -> None:
    positive = np.sort(theta[theta > 0])[::-1]
    rank = ranks_to_draw(len(positive), 2000)
    if len(positive) < 50:
        style |= {"marker": ".", "markersize": 4}
    axes.plot(rank[: len(positive)], positive[rank[: len(positive)] - 1], **style)
