"""Small multiples of a study's dataset: curves and histograms in panels, with one heading and one legend."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.estimators.catalogue import METRICS
from rrjax.figures import axes as canvas
from rrjax.figures import style
from rrjax.figures.selection import fix

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Size = tuple[float, float]
"""Width and height, inches."""
_LABEL_SIZES, _LABEL_LENGTH, _LABELS_WIDTH = (8, 6.5), 18, 4.3
"""Of a histogram: font sizes of labels, points (the smaller only if then all fit); characters; inches for them all."""


class Facets:
    """A figure of small multiples of one dataset."""

    panels: np.ndarray
    """The axes, by row and column."""

    def __init__(self, dataset: xr.Dataset):
        """No panels yet."""
        self.dataset = dataset
        self.figure = canvas.new_figure(1, 1)
        self.styles = style.styles_of(dataset["estimator"].values)
        self.estimators: set[str] = set()
        """Those that any panel shows."""
        self.values: dict[Axes, tuple[np.ndarray, np.ndarray]] = {}
        """What is drawn in each panel, Inv's apart."""
        self.has_bands = self.inv_leaves_panel = False

    def add_panels(self, rows: int, columns: int, cell: Size, margin: Size, least: float = 0.0) -> None:
        """Adds empty panels; the sizes of each and of what is around them, and the least width, are in inches."""
        self.figure.set_size_inches(max(cell[0] * columns, least) + margin[0], cell[1] * rows + margin[1])
        self.panels = self.figure.subplots(rows, columns, squeeze=False)

    def draw(
        self,
        x: str,
        metrics: Sequence[str],
        columns: tuple[str, Sequence[Any]],
        rows: tuple[str, Sequence[Any]] | None = None,
        *,
        cell: Size,
        margin: Size,
        least: float = 0.0,
        first: int = 0,
        small: bool = True,
        one_scale: bool = False,
    ) -> None:
        """Draws curves against x, a column for each of the values of a dimension, with labels and titles.

        A row is a value of another dimension, for one metric, or a metric. The panels of a row, or all, have one scale,
        unless a linear one hides the differences within a panel. Columns before the `first` stay empty.
        """
        across, values = columns
        lines: list[tuple[str, str, dict[str, Any]]] = [(style.metric_label(metric), metric, {}) for metric in metrics]
        if rows is not None:
            (metric,), (down, sizes) = metrics, rows
            words = f"\n\n{style.short_label(metric)}"
            lines = [(style.words_for(down, size) + words, metric, {down: size}) for size in sizes]
        self.add_panels(len(lines), first + len(values), cell, margin, least)
        panels = self.panels[:, first:]
        for line, (label, metric, along) in zip(panels, lines, strict=True):
            for axes, value in zip(line, values, strict=True):
                self.draw_curves(axes, fix(self.dataset, **{across: value}, **along)[0], metric, x)
            line[0].set_ylabel(label, fontsize=9)
        for line in [panels.ravel()] if one_scale else panels:
            own = [self.values[axes][0] for axes in line]
            smallest = min(np.ptp(drawn) if len(drawn) else -1 for drawn in own)
            is_log = all(axes.get_yscale() == "log" for axes in line)
            together = smallest >= 0 and (is_log or smallest >= 0.25 * np.ptp(np.concatenate(own)))
            for group in [line] if together else [[axes] for axes in line]:
                self.set_scale(group)
            for axes in line if together else ():
                axes.tick_params(labelleft=axes in panels[:, 0])
        for axes, value in zip(panels[0], values, strict=True):
            axes.set_title(style.panel_title(self.dataset, across, value), fontsize=10)
        for axes in panels[:-1].flat:
            axes.tick_params(labelbottom=False)
        for axes in panels[-1]:
            axes.set_xlabel(style.AXES[x], fontsize=9 if small else 10)
        for axes in panels.flat if small else ():
            axes.tick_params(labelsize=8)

    def draw_curves(self, axes: Axes, dataset: xr.Dataset, metric: str, x: str) -> None:
        """Draws all estimators of a dataset over estimator and x; `set_scale` sets the vertical limits."""
        if x not in dataset.dims:
            raise ArgumentError(f"nothing to draw against: {x} is no dimension of this dataset", argument="dataset")
        # A metric of the user may be negative.
        log = metric != "nll" and (metric in METRICS or not bool((dataset[metric] < 0).any()))
        along = np.asarray(dataset[x].values, float)
        values_of_others, values_of_inv = [np.empty(0)], [np.empty(0)]
        canvas.set_x(axes, along[np.isfinite(along)], x)
        if log:
            axes.set_yscale("log")
        for name in map(str, dataset["estimator"].values):
            curve = dataset.sel(estimator=name)
            others = [dim for dim in curve[metric].dims if dim != x]
            if others:
                raise ArgumentError(
                    f"too much for one curve: choose a value of {style.listed_values(others)}", argument=str(others[0])
                )
            mean = np.asarray(curve[metric].values, float)
            good = np.isfinite(along) & np.isfinite(mean) & ((mean > 0) | (not log))
            if not good.any():
                continue
            self.estimators.add(name)
            axes.plot(along[good], mean[good], **style.line_of(self.styles[name]))
            error = np.asarray(curve[f"{metric}_se"].values, float) if f"{metric}_se" in curve else 0 * mean
            band = good & np.isfinite(error) & (error > 0)
            half = 2 * np.where(band, error, 0)
            low, high = mean - half, mean + half
            values = values_of_inv if name == "inv" else values_of_others
            values += [mean[good], high[band], low[band & ((low > 0) | (not log))]]
            if log:  # a band that reaches zero leaves the panel
                low = np.maximum(low, np.finfo(float).tiny)
            colour = self.styles[name].colour
            if band.sum() > 1:
                axes.fill_between(along, low, high, where=band, color=colour, alpha=0.16, linewidth=0, zorder=1)
            elif band.any():
                axes.vlines(along[band], low[band], high[band], color=colour, linewidth=1, zorder=1)
            self.has_bands |= bool(band.any())
        canvas.set_grid(axes)
        self.values[axes] = np.concatenate(values_of_others), np.concatenate(values_of_inv)

    def set_scale(self, panels: Iterable[Axes]) -> None:
        """Sets the vertical limits of panels to those of all that is drawn in them."""
        panels = list(panels)
        log = all(axes.get_yscale() == "log" for axes in panels)
        values, of_inv = map(np.concatenate, zip(*(self.values[axes] for axes in panels), strict=True))
        both = np.concatenate([values, of_inv])
        # Inv may be no distribution: with limits for its errors, the differences of the others could be invisible.
        if not len(values) or (len(of_inv) and canvas.span_of(both, log) <= 2 * canvas.span_of(values, log)):
            values = both
        elif len(of_inv):
            self.inv_leaves_panel = True
        for axes in panels:
            axes.set_yscale("log" if log else "linear")
            canvas.set_limits(axes, values, log=log)

    def finish(self, *heading: str, drawn: Sequence[str] = ()) -> Figure:
        """Writes heading and legend; `drawn` describes the part of the dataset that is drawn, if not all."""
        title = "; ".join(filter(None, [*heading, style.seeds_note(self.dataset)]))
        canvas.set_heading(self.figure, title[:1].upper() + title[1:] if title.isascii() else title)
        return self.add_legend(f"drawn: {'; '.join(drawn)}; the dataset has them all" if drawn else "")

    def add_legend(self, note: str = "") -> Figure:
        """Draws one legend below the panels, with a note above it; returns the figure."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Any] = [
            Line2D([], [], **style.line_of(look), label=style.shortened(style.estimator_title(name)))
            for name, look in self.styles.items()
            if name in self.estimators
        ]
        if self.has_bands:
            handles.append(Patch(facecolor="0.5", alpha=0.3, label="±2 standard errors"))
        of_inv = f"{style.estimator_title('inv')}, which is no distribution, may leave a panel"
        canvas.legend_below(self.figure, handles, "\n".join(filter(None, [note, of_inv * self.inv_leaves_panel])))
        return self.figure

    def magnify(self, axes: Axes, dataset: xr.Dataset, metric: str, x: str) -> None:
        """Adds an inset with the x at which the curves are furthest apart, if the panel does not separate them."""
        from matplotlib.ticker import MaxNLocator

        names = [str(name) for name in dataset["estimator"].values if str(name) != "inv"]
        mean = np.asarray(dataset[metric].sel(estimator=names).transpose("estimator", x).values, float)
        finite = np.isfinite(mean).all(axis=0)
        mean, along = mean[:, finite], np.asarray(dataset[x].values, float)[finite]
        low, high = axes.get_ylim()
        if len(names) < 2 or mean.shape[1] < 2:
            return
        distance = np.ptp(mean, axis=0)
        most = int(np.argmax(distance))
        if not 1e-9 * abs(high) < distance[most] < 0.06 * (high - low):
            return
        steps = np.linspace(0, mean.shape[1] - 1, 200)
        to_panel = (axes.transScale + axes.transLimits).transform
        corners = to_panel(np.column_stack([np.tile(along, len(names)), mean.ravel()])).reshape(len(names), -1, 2)
        across, up = (
            np.concatenate([np.interp(steps, range(mean.shape[1]), line[:, axis]) for line in corners])
            for axis in (0, 1)
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
            inset.plot([place], [mean[place, most]], **style.line_of(self.styles[name]))
        pad = 0.25 * distance[most]
        inset.set(xlim=(-0.6, len(names) - 0.4), ylim=(mean[:, most].min() - pad, mean[:, most].max() + pad), xticks=[])
        inset.yaxis.set_major_locator(MaxNLocator(3))
        canvas.set_ticks(inset.yaxis, "{:.10g}".format)
        inset.tick_params(labelsize=7, length=2)
        inset.set_title(f"magnified, at {style.words_for(x, along[most])}", fontsize=7, pad=2)


def draw_ranked(axes: Axes, shares: np.ndarray) -> None:
    """Draws shares, the largest first, by rank, on logarithmic axes."""
    size = len(shares)
    rank = canvas.ranks_to_draw(size, 500)
    rank = rank[shares[rank - 1] > 0]
    single = {"marker": "o", "markersize": 4} if len(rank) == 1 else {}
    axes.plot(rank, shares[rank - 1], color="0.35", linewidth=1.5, **single)
    last = 1.1 * max(size, 2)
    axes.set(xscale="log", yscale="log", xlim=(0.9, last))
    canvas.set_limits(axes, shares[shares > 0], log=True, margin=0.3)
    canvas.set_log_ticks(axes.xaxis, 0.9, last, canvas.in_words)
    canvas.set_grid(axes)


def draw_histogram(axes: Axes, shares: np.ndarray, labels: np.ndarray | None = None) -> float:
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
        step, below = _draw_labels(axes, labels)
        named = f" (one in {step:,} is named)" if step > 1 else ""
    else:
        # No thousands separators: the integers may be years.
        axes.xaxis.set_major_locator(MaxNLocator(min(size + 1, 9), integer=True, steps=[1, 2, 5, 10]))
        canvas.set_ticks(axes.xaxis, lambda value: f"{value:.0f}".replace("-", "−"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    canvas.set_ticks(axes.yaxis, canvas.per_cent)
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


def _draw_labels(axes: Axes, labels: np.ndarray) -> tuple[int, float]:
    """Labels every n-th category, as many as fit; returns n and the height of upright labels, inches."""
    sample = [style.shortened(label, _LABEL_LENGTH) for label in labels[:: max(len(labels) // 500, 1)]]
    # In ems, approximately; East Asian characters are wide.
    longest = max(sum(1.05 if ord(character) > 0x2E7F else 0.62 for character in text) for text in sample)
    # (rotation, font size, ems per label). The first that fits all labels; else some of them, horizontal if short.
    ways = [(0, _LABEL_SIZES[0], longest + 1), *((90, size, 1.12) for size in _LABEL_SIZES)]
    fitting = [way for way in ways if len(labels) * way[2] * way[1] / 72 <= _LABELS_WIDTH]
    short = 5 * (longest + 1) * _LABEL_SIZES[0] / 72 <= _LABELS_WIDTH
    rotation, size, each = (fitting or [ways[0] if short else ways[1]])[0]
    step = max(int(np.ceil(len(labels) * each * size / 72 / _LABELS_WIDTH)), 1)
    texts = [style.shortened(label, _LABEL_LENGTH) for label in labels[::step]]
    axes.set_xticks(range(0, len(labels), step), texts, rotation=rotation, fontsize=size)
    return step, longest * size / 72 if rotation else 0.0
