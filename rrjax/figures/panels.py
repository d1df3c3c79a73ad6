"""Panels of curves and of histograms, and their legend."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.estimators.catalogue import METRICS
from rrjax.figures import style
from rrjax.figures.axes import (
    in_words,
    per_cent,
    ranks_to_draw,
    set_grid,
    set_heading,
    set_limits,
    set_log_ticks,
    set_ticks,
    set_x,
    span_of,
)
from rrjax.figures.selection import fix

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL_SIZES, _LABEL_LENGTH = (8, 6.5), 18
"""Font sizes of a histogram's labels, points (the smaller only if then all labels fit); and characters."""


class Layout(NamedTuple):
    """Small multiples of one dataset."""

    rows: Sequence[tuple[str, str, Mapping[str, Any]]]
    """Label, metric and coordinates of each row."""
    columns: Sequence[tuple[str, Mapping[str, Any]]]
    """Title and coordinates of each column."""
    x: str
    """The dimension along the horizontal axes."""


class Legend:
    """One legend for all panels of a figure, with the estimators drawn in any panel."""

    def __init__(self, dataset: xr.Dataset):
        """An empty legend for the estimators of a dataset."""
        self.styles = style.styles_of(dataset["estimator"].values)
        self.drawn: set[str] = set()
        self.has_bands = False
        self.inv_leaves_panel = False

    def draw(self, figure: Figure, note: str = "") -> None:
        """Draws the legend below the panels, with a note above it."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Any] = [
            Line2D([], [], **style.line_of(look), label=style.shortened(style.estimator_title(name)))
            for name, look in self.styles.items()
            if name in self.drawn
        ]
        if self.has_bands:
            handles.append(Patch(facecolor="0.5", alpha=0.3, label="±2 standard errors"))
        of_inv = f"{style.estimator_title('inv')}, which is no distribution, may leave a panel"
        legend_below(figure, handles, "\n".join(filter(None, [note, of_inv * self.inv_leaves_panel])))


def legend_below(figure: Figure, handles: list[Any], title: str = "", ax: Axes | None = None) -> None:
    """Draws one legend below all panels, in as many columns as fit, with a title above; of given axes, inside them."""
    if ax is not None:
        ax.legend(handles=handles, fontsize=8)
    if ax is not None or not (handles or title):
        return
    # Approximate inches: text, line and space of each entry.
    widths = [len(str(handle.get_label())) * 0.6 * 9 / 72 + 0.75 for handle in handles]
    available = figure.get_figwidth()
    columns = len(handles) or 1 if sum(widths) <= available else max(1, int(available / max(widths)))
    look = {"handlelength": 3.2, "frameon": False, "fontsize": 9, "title_fontsize": 8}
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, title=title, **look)


def finish(figure: Figure, legend: Legend, dataset: xr.Dataset, *heading: str, drawn: Sequence[str] = ()) -> None:
    """Writes the heading and the legend; `drawn` describes the part of the dataset that is drawn, if not all."""
    title = "; ".join(filter(None, [*heading, style.seeds_note(dataset)]))
    set_heading(figure, title[:1].upper() + title[1:] if title.isascii() else title)
    legend.draw(figure, f"drawn: {'; '.join(drawn)}; the dataset has them all" if drawn else "")


def listed(coordinates: Mapping[str, Any]) -> str:
    """Coordinates and their values, in words."""
    return ", ".join(style.words_for(name, value) for name, value in coordinates.items())


def draw_panels(
    panels: np.ndarray, dataset: xr.Dataset, layout: Layout, legend: Legend, *, small: bool = True, shared: bool = False
) -> None:
    """Draws the curves of each panel with labels and titles.

    The panels of a row, or all, have one scale, unless a linear one hides the differences within a panel.
    """
    rows, columns, x = layout
    drawn = [
        [
            draw_panel(axes, fix(dataset, **along, **down)[0], metric, x, legend)
            for axes, (_, down) in zip(line, columns, strict=True)
        ]
        for line, (_, metric, along) in zip(panels, rows, strict=True)
    ]
    whole = [([*panels.flat], [each for of_row in drawn for each in of_row])]
    for line, values in whole if shared else zip(panels, drawn, strict=True):
        least = min(np.ptp(own) if len(own) else -1 for own, _ in values)
        is_log = all(axes.get_yscale() == "log" for axes in line)
        if least >= 0 and (is_log or least >= 0.25 * np.ptp(np.concatenate([own for own, _ in values]))):
            set_scale(line, values, legend)
            for axes in line:
                axes.tick_params(labelleft=axes in list(panels[:, 0]))
        else:
            for axes, own in zip(line, values, strict=True):
                set_scale([axes], [own], legend)
    for line, (label, _, _) in zip(panels, rows, strict=True):
        line[0].set_ylabel(label, fontsize=9)
    for axes, (title, _) in zip(panels[0], columns, strict=True):
        axes.set_title(title, fontsize=10)
    for axes in panels[:-1].flat:
        axes.tick_params(labelbottom=False)
    for axes in panels[-1]:
        axes.set_xlabel(style.AXES[x], fontsize=9 if small else 10)
    for axes in panels.flat if small else ():
        axes.tick_params(labelsize=8)


def set_scale(panels: Sequence[Axes], drawn: Sequence[tuple[np.ndarray, np.ndarray]], legend: Legend) -> None:
    """Sets the limits of panels to those of all that `draw_panel` has drawn in them."""
    log = all(axes.get_yscale() == "log" for axes in panels)
    values, of_inv = map(np.concatenate, zip(*drawn, strict=True))
    # Inv may be no distribution: with limits for its errors, the differences of the others could be invisible.
    if not len(values) or (len(of_inv) and span_of(np.concatenate([values, of_inv]), log) <= 2 * span_of(values, log)):
        values = np.concatenate([values, of_inv])
    elif len(of_inv):
        legend.inv_leaves_panel = True
    for axes in panels:
        axes.set_yscale("log" if log else "linear")
        set_limits(axes, values, log=log)


def draw_panel(axes: Axes, dataset: xr.Dataset, metric: str, x: str, legend: Legend) -> tuple[np.ndarray, np.ndarray]:
    """Draws all estimators of a dataset over estimator and x; returns the values for `set_scale`, Inv's apart."""
    if x not in dataset.dims:
        raise ArgumentError(f"nothing to draw against: {x} is no dimension of this dataset", argument="dataset")
    # A metric of the user may be negative.
    log = metric != "nll" and (metric in METRICS or not bool((dataset[metric] < 0).any()))
    along = np.asarray(dataset[x].values, float)
    values_of_others, values_of_inv = [np.empty(0)], [np.empty(0)]
    set_x(axes, along[np.isfinite(along)], x)
    if log:
        axes.set_yscale("log")
    for name in dataset["estimator"].values:
        curve = dataset.sel(estimator=name)
        others = [dim for dim in curve[metric].dims if dim != x]
        if others:
            raise ArgumentError(
                f"too much for one curve: choose a value of {style.listed_values(others)}", argument=str(others[0])
            )
        mean = np.asarray(curve[metric].values, float)
        has_error = f"{metric}_se" in curve
        error = np.asarray(curve[f"{metric}_se"].values, float) if has_error else np.full(mean.shape, np.nan)
        look = legend.styles[str(name)]
        good = np.isfinite(along) & np.isfinite(mean) & ((mean > 0) | (not log))
        if not good.any():
            continue
        legend.drawn.add(str(name))
        axes.plot(along[good], mean[good], **style.line_of(look))
        band = good & np.isfinite(error) & (error > 0)
        half = 2 * np.where(band, error, 0)
        low, high = mean - half, mean + half
        values = values_of_inv if str(name) == "inv" else values_of_others
        values += [mean[good], high[band], low[band & ((low > 0) | (not log))]]
        if not band.any():
            continue
        legend.has_bands = True
        if log:  # a band that reaches zero leaves the panel
            low = np.maximum(low, np.finfo(float).tiny)
        if band.sum() > 1:
            axes.fill_between(along, low, high, where=band, color=look.colour, alpha=0.16, linewidth=0, zorder=1)
        else:
            axes.vlines(along[band], low[band], high[band], color=look.colour, linewidth=1, zorder=1)
    set_grid(axes)
    return np.concatenate(values_of_others), np.concatenate(values_of_inv)


def magnify(axes: Axes, dataset: xr.Dataset, metric: str, x: str, legend: Legend) -> None:
    """Adds an inset with the x at which the curves are furthest apart, if the panel does not separate them."""
    from matplotlib.ticker import MaxNLocator

    names = [str(name) for name in dataset["estimator"].values if str(name) != "inv"]
    mean = np.asarray(dataset[metric].sel(estimator=names).transpose("estimator", x).values, float)
    finite = np.isfinite(mean).all(axis=0)
    mean, along = mean[:, finite], np.asarray(dataset[x].values, float)[finite]
    low, high = axes.get_ylim()
    if len(names) < 2 or mean.shape[1] < 2:
        return
    distance = mean.max(axis=0) - mean.min(axis=0)
    most = int(np.argmax(distance))
    if not 1e-9 * abs(high) < distance[most] < 0.06 * (high - low):
        return
    steps = np.linspace(0, mean.shape[1] - 1, 200)
    to_panel = (axes.transScale + axes.transLimits).transform
    corners = to_panel(np.column_stack([np.tile(along, len(names)), mean.ravel()])).reshape(len(names), -1, 2)
    across, up = (
        np.concatenate([np.interp(steps, range(mean.shape[1]), line[:, axis]) for line in corners]) for axis in (0, 1)
    )
    for left, bottom in ((0.2, 0.1), (0.57, 0.1), (0.57, 0.46), (0.2, 0.46)):
        # A place is free where no curve crosses the inset, its title above and the numbers on its left.
        inside = (across > left - 0.19) & (across < left + 0.42) & (up > bottom - 0.04) & (up < bottom + 0.54)
        if not inside.any():
            break
    else:
        return
    inset = axes.inset_axes((left, bottom, 0.4, 0.4))
    for place, name in enumerate(names):
        inset.plot([place], [mean[place, most]], **style.line_of(legend.styles[name]))
    pad = 0.25 * distance[most]
    inset.set(xlim=(-0.6, len(names) - 0.4), ylim=(mean[:, most].min() - pad, mean[:, most].max() + pad), xticks=[])
    inset.yaxis.set_major_locator(MaxNLocator(3))
    set_ticks(inset.yaxis, "{:.10g}".format)
    inset.tick_params(labelsize=7, length=2)
    inset.set_title(f"magnified, at {style.words_for(x, along[most])}", fontsize=7, pad=2)


def draw_ranked(axes: Axes, shares: np.ndarray) -> None:
    """Draws shares, the largest first, by rank, on logarithmic axes."""
    size = len(shares)
    rank = ranks_to_draw(size, 500)
    rank = rank[shares[rank - 1] > 0]
    single = {"marker": "o", "markersize": 4} if len(rank) == 1 else {}
    axes.plot(rank, shares[rank - 1], color="0.35", linewidth=1.5, **single)
    last = 1.1 * max(size, 2)
    axes.set(xscale="log", yscale="log", xlim=(0.9, last))
    set_limits(axes, shares[shares > 0], log=True, margin=0.3)
    set_log_ticks(axes.xaxis, 0.9, last, in_words)
    set_grid(axes)


def draw_histogram(axes: Axes, shares: np.ndarray, labels: np.ndarray | None = None, *, width: float = 4.3) -> float:
    """Draws a bar for each category (over 1000: for each bin); returns the height of the labels, inches."""
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
        # No thousands separators: the integers may be years.
        axes.xaxis.set_major_locator(MaxNLocator(min(size + 1, 9), integer=True, steps=[1, 2, 5, 10]))
        set_ticks(axes.xaxis, lambda value: f"{value:.0f}".replace("-", "−"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    set_ticks(axes.yaxis, per_cent)
    many = f"\n(the largest in each of {len(bars):,} bins)" if len(bars) < size else ""
    axes.set_xlabel(f"category{named}")
    axes.set_ylabel(f"true share of users{many}", fontsize=9)
    return below


def _first_of_range(labels: np.ndarray) -> int | None:
    """The first label, if they are consecutive integers and can be places on the axis; else None."""
    if labels.dtype.kind not in "iu":
        if not all(re.fullmatch(r"-?(0|[1-9]\d{0,15})", str(label)) for label in labels):
            return None
        labels = np.array([int(str(label)) for label in labels])
    # Beyond 2⁵³ floats cannot distinguish them.
    consecutive = bool((np.diff(labels) == 1).all()) and abs(int(labels[0])) < 2**53
    return int(labels[0]) if consecutive else None


def _draw_labels(axes: Axes, labels: np.ndarray, width: float) -> tuple[int, float]:
    """Labels every n-th category, as many as fit; returns n and the height of upright labels, inches."""
    sample = labels[:: max(len(labels) // 500, 1)]
    longest = max(_em(style.shortened(label, _LABEL_LENGTH)) for label in sample)
    # (rotation, font size, ems per label). The first that fits all labels; else some of them, horizontal if short.
    ways = [(0, _LABEL_SIZES[0], longest + 1), *((90, size, 1.12) for size in _LABEL_SIZES)]
    fitting = [way for way in ways if len(labels) * way[2] * way[1] / 72 <= width]
    short = 5 * (longest + 1) * _LABEL_SIZES[0] / 72 <= width
    rotation, size, each = (fitting or [ways[0] if short else ways[1]])[0]
    step = max(int(np.ceil(len(labels) * each * size / 72 / width)), 1)
    texts = [style.shortened(label, _LABEL_LENGTH) for label in labels[::step]]
    axes.set_xticks(range(0, len(labels), step), texts, rotation=rotation, fontsize=size)
    return step, longest * size / 72 if rotation else 0.0


def _em(text: str) -> float:
    """The approximate width of a text, in ems; East Asian characters are wide."""
    return sum(1.05 if ord(character) > 0x2E7F else 0.62 for character in text)
