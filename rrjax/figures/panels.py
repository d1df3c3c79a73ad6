"""Panels of estimators' curves, and their legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.estimators.catalogue import METRICS
from rrjax.figures import style
from rrjax.figures.axes import set_grid, set_heading, set_limits, set_ticks, set_x, span_of
from rrjax.figures.selection import fix

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Legend:
    """Which estimators were drawn, and how; one legend for all panels."""

    def __init__(self, dataset: xr.Dataset):
        """For the estimators of a dataset."""
        self.styles = style.styles_of(dataset["estimator"].values)
        self.drawn: set[str] = set()
        self.bands = False
        self.leaves = False

    def draw(self, figure: Figure) -> None:
        """Draws it below the panels."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Any] = [
            Line2D([], [], **style.line_of(look), label=style.shortened(style.estimator_title(name)))
            for name, look in self.styles.items()
            if name in self.drawn
        ]
        if self.bands:
            handles.append(Patch(facecolor="0.5", alpha=0.3, label="±2 standard errors"))
        if handles:
            leaves = f"{style.estimator_title('inv')}, which is no distribution, may leave a panel"
            legend_below(figure, handles, leaves if self.leaves else None)


def legend_below(figure: Figure, handles: list[Any], title: str | None = None) -> None:
    """Draws one legend below all panels, in as many rows as it takes."""
    # A column is as wide as its longest name, its line, and the space around them.
    widths = [len(str(handle.get_label())) * 0.6 * 9 / 72 + 0.75 for handle in handles]
    room = figure.get_figwidth()
    columns = len(handles) if sum(widths) <= room else max(1, int(room / max(widths)))
    long = {"handlelength": 3.2, "frameon": False, "fontsize": 9, "title_fontsize": 8}
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, title=title, **long)


def finish(figure: Figure, legend: Legend, dataset: xr.Dataset, *said: str, drawn: Sequence[str] = ()) -> None:
    """Heading and legend; where not all is drawn, what is, and where the rest is to be found."""
    note = f"\n(drawn: {'; '.join(drawn)}; the dataset has them all)" if drawn else ""
    set_heading(figure, "; ".join(filter(None, [*said, style.seeds_note(dataset)])) + note)
    legend.draw(figure)


def listed(at: Mapping[str, Any]) -> str:
    """Coordinates and their values, in words."""
    return ", ".join(style.words_for(name, value) for name, value in at.items())


def draw_panels(
    panels: np.ndarray,
    here: xr.Dataset,
    rows: Sequence[tuple[str, str, Mapping[str, Any]]],
    columns: Sequence[tuple[str, Mapping[str, Any]]],
    x: str,
    legend: Legend,
    *,
    small: bool = True,
) -> list[list[np.ndarray]]:
    """Draws rows (label, metric, coordinates) and columns (title, coordinates); returns what the limits must hold."""
    seen = [
        [
            draw_panel(axes, fix(here, **along, **down)[0], metric, x, legend)
            for axes, (_, down) in zip(line, columns, strict=True)
        ]
        for line, (_, metric, along) in zip(panels, rows, strict=True)
    ]
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
    return seen


def draw_panel(axes: Axes, here: xr.Dataset, metric: str, x: str, legend: Legend) -> np.ndarray:
    """Draws all estimators of a dataset that has only estimator and x left; returns what the limits must hold."""
    if x not in here.dims:
        raise ArgumentError(f"nothing to draw against: {x} is no dimension of this dataset", argument="dataset")
    # An own metric may be negative.
    log = metric != "nll" and (metric in METRICS or not bool((here[metric] < 0).any()))
    along = np.asarray(here[x].values, float)
    seen, apart, bands = [np.empty(0)], [np.empty(0)], []
    for name in here["estimator"].values:
        at = here.sel(estimator=name)
        rest = [dim for dim in at[metric].dims if dim != x]
        if rest:
            raise ArgumentError(
                f"too much for one curve: choose a value of {style.listed_values(rest)}", argument=str(rest[0])
            )
        mean = np.asarray(at[metric].values, float)
        error = np.asarray(at[f"{metric}_se"].values, float) if f"{metric}_se" in at else np.full(mean.shape, np.nan)
        look = legend.styles[str(name)]
        good = np.isfinite(along) & np.isfinite(mean) & ((mean > 0) | (not log))
        if not good.any():
            continue
        legend.drawn.add(str(name))
        axes.plot(along[good], mean[good], **style.line_of(look))
        band = good & np.isfinite(error) & (error > 0)
        half = 2 * np.where(band, error, 0)
        low, high = mean - half, mean + half
        (apart if str(name) == "inv" else seen).extend([mean[good], high[band], low[band & ((low > 0) | (not log))]])
        if band.any():
            bands.append((band, low, high, look.colour))
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
    set_grid(axes)
    return values


def magnify(axes: Axes, here: xr.Dataset, metric: str, x: str, legend: Legend) -> None:
    """Where no limits of the panel can separate the curves: one x, at a scale of its own."""
    from matplotlib.ticker import MaxNLocator

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
        inset.plot([place], [mean[place, most]], **style.line_of(legend.styles[name]))
    pad = 0.25 * apart[most]
    inset.set(xlim=(-0.6, len(names) - 0.4), ylim=(mean[:, most].min() - pad, mean[:, most].max() + pad), xticks=[])
    inset.yaxis.set_major_locator(MaxNLocator(3))
    set_ticks(inset.yaxis, "{:.10g}".format)
    inset.tick_params(labelsize=7, length=2)
    inset.set_title(f"magnified, at {style.words_for(x, along[most])}", fontsize=7, pad=2)
