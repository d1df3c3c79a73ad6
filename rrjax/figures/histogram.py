"""Histograms of the truth, with the labels of the data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.axes import in_words, per_cent, ranks_to_draw, set_grid, set_limits, set_log_ticks, set_ticks
from rrjax.figures.style import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZES, _LONGEST = (8, 6.5), 18
"""Of labels: points, the smaller where all fit just so; and characters."""


def draw_ranked(axes: Axes, shares: np.ndarray) -> None:
    """Shares by rank, on logarithmic axes; the first is the largest."""
    size = len(shares)
    rank = ranks_to_draw(size, 500)
    rank = rank[shares[rank - 1] > 0]
    single = {"marker": "o", "markersize": 4} if len(rank) == 1 else {}
    axes.plot(rank, shares[rank - 1], color="0.35", linewidth=1.5, **single)
    last = 1.1 * max(size, 2)
    axes.set(xscale="log", yscale="log", xlim=(0.9, last))
    set_limits(axes, shares[shares > 0], log=True, least=0.3)
    set_log_ticks(axes.xaxis, 0.9, last, in_words)
    set_grid(axes)


def draw_histogram(axes: Axes, shares: np.ndarray, labels: np.ndarray | None = None, *, width: float = 4.3) -> float:
    """Bars of all categories; of many, the tallest of each bin, so that none is lost to the eye."""
    from matplotlib.ticker import MaxNLocator

    size = len(shares)
    labels = np.arange(size) if labels is None else np.asarray(labels)
    if len(labels) != size:
        raise ArgumentError(
            f"each category needs one label: there are {len(labels)} labels and {size} shares", argument="labels"
        )
    first = _first_of_range(labels)
    start = -0.5 + (first or 0)
    edges = np.linspace(0, size, min(size, 1000) + 1).astype(int)
    bars = np.maximum.reduceat(shares, edges[:-1])
    axes.stairs(bars, edges + start, fill=True, color="0.35", edgecolor="0.35")
    axes.set(xlim=(start - 0.01 * size, start + 1.01 * size), ylim=(0, 1.06 * float(shares.max())))
    named, below = "", 0.0
    if first is None:
        step, below = _draw_labels(axes, labels, width)
        named = f" (one in {step:,} is named)" if step > 1 else ""
    else:
        # As they are in the file: a year has no comma.
        axes.xaxis.set_major_locator(MaxNLocator(min(size + 1, 9), integer=True, steps=[1, 2, 5, 10]))
        set_ticks(axes.xaxis, lambda value: f"{value:.0f}".replace("-", "−"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    set_ticks(axes.yaxis, per_cent)
    many = f"\n(the largest in each of {len(bars):,} bins)" if len(bars) < size else ""
    axes.set_xlabel(f"category{named}")
    axes.set_ylabel(f"true share of users{many}", fontsize=9)
    return below


def _first_of_range(labels: np.ndarray) -> int | None:
    """The first one, where the labels are integers in a row; so they are their places on the axis."""
    if labels.dtype.kind not in "iu":
        if not all(re.fullmatch(r"-?(0|[1-9]\d{0,15})", str(label)) for label in labels):
            return None
        labels = np.array([int(str(label)) for label in labels])
    # Beyond 2⁵³ an axis could not tell them apart.
    in_row = bool((np.diff(labels) == 1).all()) and abs(int(labels[0])) < 2**53
    return int(labels[0]) if in_row else None


def _draw_labels(axes: Axes, labels: np.ndarray, width: float) -> tuple[int, float]:
    """Names as many categories as there is room for, one in so many; and the inches that takes below."""
    some = labels[:: max(len(labels) // 500, 1)]
    longest = max(_em(shortened(label, _LONGEST)) for label in some)
    # Beside each other, upright, upright and small: whatever fits first; then some of them, beside each other if short.
    ways = [(0, _SIZES[0], longest + 1), *((90, size, 1.12) for size in _SIZES)]
    fitting = [way for way in ways if len(labels) * way[2] * way[1] / 72 <= width]
    short = 5 * (longest + 1) * _SIZES[0] / 72 <= width
    rotation, size, each = (fitting or [ways[0] if short else ways[1]])[0]
    step = max(int(np.ceil(len(labels) * each * size / 72 / width)), 1)
    texts = [shortened(label, _LONGEST) for label in labels[::step]]
    axes.set_xticks(range(0, len(labels), step), texts, rotation=rotation, fontsize=size)
    return step, longest * size / 72 if rotation else 0.0


def _em(text: str) -> float:
    """About how wide a text is, in its font's size: what is wide in a terminal is wide here."""
    return sum(1.05 if ord(character) > 0x2E7F else 0.62 for character in text)
