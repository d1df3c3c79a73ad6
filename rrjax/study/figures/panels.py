"""Panels of estimators' curves, and their legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.plots import shortened
from rrjax.study.figures.axes import new_figure, set_heading, set_limits, set_x, span_of
from rrjax.study.figures.selection import fix, population_of, prepared, spread_over
from rrjax.study.figures.styles import AXES, METRICS, estimator_title, line_of, styles_of
from rrjax.study.figures.words import listed_values, metric_label, panel_title, seeds_note, words_for

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Legend:
    """Which estimators were drawn, and how; one legend for all panels."""

    def __init__(self, dataset: xr.Dataset):
        """For the estimators of a dataset."""
        self.styles = styles_of(dataset)
        self.drawn: set[str] = set()
        self.bands = False
        self.leaves = False

    def draw(self, figure: Figure) -> None:
        """Draws it below the panels."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Any] = [
            Line2D([], [], **line_of(style), label=shortened(estimator_title(name)))
            for name, style in self.styles.items()
            if name in self.drawn
        ]
        if self.bands:
            handles.append(Patch(facecolor="0.5", alpha=0.3, label="±2 standard errors"))
        if not handles:
            return
        legend_below(figure, handles, "Inv, which is no distribution, may leave a panel" if self.leaves else None)


def legend_below(figure: Figure, handles: list[Any], title: str | None = None) -> None:
    """Draws one legend below all panels."""
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 7),
        frameon=False,
        fontsize=9,
        title=title,
        title_fontsize=8,
        handlelength=3.2,
    )


def grid_of_panels(dataset, metrics, x, *, sharey="none", **fixed) -> Figure:
    """Rows of metrics, a panel for every population, against x."""
    dataset = prepared(dataset, metrics)
    population = population_of(dataset)
    here, at = fix(dataset, **fixed)
    values = spread_over(here[population].values, 6)
    figure = new_figure(max(3.3 * len(values), 4.5) + 0.6, 2.5 * len(metrics) + 1.1)
    panels = figure.subplots(len(metrics), len(values), squeeze=False, sharex=True)
    legend = Legend(dataset)
    for column, value in enumerate(values):
        cell = here.sel({population: value})
        seen = [draw_panel(panels[row, column], cell, metric, x, legend) for row, metric in enumerate(metrics)]
        if "nll" in metrics:
            magnify(panels[list(metrics).index("nll"), column], cell, "nll", x, legend)
        if sharey == "col":
            for axes in panels[:, column]:
                set_limits(axes, np.concatenate(seen), log=True)
        panels[0, column].set_title(panel_title(dataset, population, value), fontsize=10)
        panels[-1, column].set_xlabel(AXES[x])
    for metric, row in zip(metrics, panels, strict=True):
        row[0].set_ylabel(metric_label(metric), fontsize=9)
    left = dataset.sizes[population] - len(values)
    note = f"\n({len(values)} of {len(values) + left} populations are drawn)" if left else ""
    head = ", ".join(words_for(name, value) for name, value in at.items()) + seeds_note(dataset)
    set_heading(figure, head.removeprefix("; ") + note)
    legend.draw(figure)
    return figure


def draw_panel(axes: Axes, here: xr.Dataset, metric: str, x: str, legend: Legend) -> np.ndarray:
    """Draws all estimators of a dataset that has only estimator and x left; returns what the limits must hold."""
    if x not in here.dims:
        raise ValueError(f"nothing to draw against: {x} is no dimension of this dataset")
    # An own metric may be negative.
    log = metric != "nll" and (metric in METRICS or not bool((here[metric] < 0).any()))
    along = np.asarray(here[x].values, float)
    seen, apart, bands = [np.empty(0)], [np.empty(0)], []
    for name in here["estimator"].values:
        at = here.sel(estimator=name)
        rest = [dim for dim in at[metric].dims if dim != x]
        if rest:
            raise ValueError(f"too much for one curve: choose a value of {listed_values(rest)}")
        mean = np.asarray(at[metric].values, float)
        error = np.asarray(at[f"{metric}_se"].values, float) if f"{metric}_se" in at else np.full(mean.shape, np.nan)
        style = legend.styles[str(name)]
        good = np.isfinite(along) & np.isfinite(mean) & ((mean > 0) | (not log))
        if not good.any():
            continue
        legend.drawn.add(str(name))
        axes.plot(along[good], mean[good], **line_of(style))
        band = good & np.isfinite(error) & (error > 0)
        half = 2 * np.where(band, error, 0)
        low, high = mean - half, mean + half
        (apart if str(name) == "inv" else seen).extend([mean[good], high[band], low[band & ((low > 0) | (not log))]])
        if band.any():
            bands.append((band, low, high, style.colour))
    values, raw = np.concatenate(seen), np.concatenate(apart)
    # Raw inversion is no distribution: its errors, and its likelihood, can hide what separates the others.
    if not len(values) or (len(raw) and span_of(np.concatenate([values, raw]), log) <= 2 * span_of(values, log)):
        values = np.concatenate([values, raw])
    elif len(raw):
        legend.leaves = True
    if log:
        axes.set_yscale("log")
    set_limits(axes, values, log=log)
    set_x(axes, along[np.isfinite(along)], x)
    for band, low, high, colour in bands:
        legend.bands = True
        if log:  # where the band reaches zero, to the edge of the panel
            low = np.where(low > 0, low, min(axes.get_ylim()[0], np.nanmin(high[band])))
        if band.sum() > 1:
            axes.fill_between(along, low, high, where=band, color=colour, alpha=0.16, linewidth=0, zorder=1)
        else:
            axes.vlines(along[band], low[band], high[band], color=colour, linewidth=1, zorder=1)
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    return values


def magnify(axes: Axes, here: xr.Dataset, metric: str, x: str, legend: Legend) -> None:
    """Where no limits of the panel can separate the curves: one x, at a scale of its own."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    names = [str(name) for name in here["estimator"].values if str(name) != "inv"]
    mean = np.asarray(here[metric].sel(estimator=names).transpose("estimator", x).values, float)
    whole = np.isfinite(mean).all(axis=0)
    mean, along = mean[:, whole], np.asarray(here[x].values, float)[whole]
    low, high = axes.get_ylim()
    if len(names) < 2 or mean.shape[1] < 2:
        return
    apart = mean.max(axis=0) - mean.min(axis=0)
    most = int(np.argmax(apart))
    if not 1e-9 * abs(high) < apart[most] < 0.06 * (high - low):
        return
    steps = np.linspace(0, mean.shape[1] - 1, 200)
    to_panel = (axes.transScale + axes.transLimits).transform
    corners = to_panel(np.column_stack([np.tile(along, len(names)), mean.ravel()])).reshape(len(names), -1, 2)
    across, up = (
        np.concatenate([np.interp(steps, range(mean.shape[1]), line[:, axis]) for line in corners]) for axis in (0, 1)
    )
    for left, bottom in ((0.2, 0.1), (0.57, 0.1), (0.57, 0.46), (0.2, 0.46)):
        # With its title above and the numbers on its left.
        inside = (across > left - 0.19) & (across < left + 0.42) & (up > bottom - 0.04) & (up < bottom + 0.54)
        if not inside.any():
            break
    else:
        return
    inset = axes.inset_axes((left, bottom, 0.4, 0.4))
    for place, name in enumerate(names):
        inset.plot([place], [mean[place, most]], **line_of(legend.styles[name]))
    inset.set_xlim(-0.6, len(names) - 0.4)
    pad = 0.25 * apart[most]
    inset.set_ylim(mean[:, most].min() - pad, mean[:, most].max() + pad)
    inset.set_xticks([])
    inset.yaxis.set_major_locator(MaxNLocator(3))
    inset.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}"))
    inset.tick_params(labelsize=7, length=2)
    inset.set_title(f"magnified, at {words_for(x, along[most])}", fontsize=7, pad=2)
