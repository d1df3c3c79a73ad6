"""What the figures of a study are made of: styles, words, selections, panels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rrjax.plots import _shortened as _text

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {
    "mle_star": "MLE*",
    "inv_p": "InvP",
    "inv_n": "InvN",
    "inv": "Inv",
    "cv_threshold": "CV threshold",
    "ibu": "IBU",
}
METRICS = {
    "mse": "mean squared error,\nsummed over categories",
    "nll": "negative log-likelihood\n(nats per report)",
    "tv": "total variation",
    "max_error": "largest error of a category",
    "kl": "Kullback–Leibler divergence\n(nats)",
    "bias2": "squared bias,\nsummed over categories",
    "variance": "variance,\nsummed over categories",
}
SYMBOLS = {"num_users": "N", "epsilon": "ε", "num_categories": "K", "zipf": "s"}
SHORT = {"mse": "MSE", "nll": "NLL", "tv": "total variation", "max_error": "largest error", "kl": "KL divergence"}
AXES = {
    "num_users": "users N",
    "epsilon": "privacy ε (nats)",
    "num_categories": "categories K",
    "zipf": "Zipf exponent s",
}


class Style(NamedTuple):
    """How an estimator is drawn."""

    colour: str
    dash: Any
    marker: str
    size: float
    filled: bool = False


# Large and hollow to small and filled: where estimates coincide, each one still shows.
STYLES = {
    "mle_star": Style("#1b4f8a", "-", "s", 7.5),
    "inv_p": Style("#d9702b", "--", "o", 5),
    "inv_n": Style("#3d8b57", "-.", "D", 3.2, filled=True),
    "inv": Style("#808080", ":", "x", 5),
    "cv_threshold": Style("#8a3f8f", (0, (5, 1, 1, 1, 1, 1)), "^", 5),
    "ibu": Style("#7a6a2f", (0, (8, 2)), "v", 5),
}
OWN_STYLES = (
    Style("#000000", (0, (1, 1)), "*", 6),
    Style("#c23b6e", (0, (3, 1, 1, 1)), "P", 5),
    Style("#2a9aa8", (0, (6, 1, 2, 1)), "<", 5),
    Style("#9c6b3c", (0, (4, 2)), ">", 5),
)


def estimator_title(name: object) -> str:
    """How an estimator is called in figures and tables; one without a title of its own keeps its name.

    Args:
        name: As in the coordinate `estimator`.

    Returns:
        The title, unescaped.

    Example:
        >>> from rrjax.study.figures import estimator_title
        >>> estimator_title("inv_p"), estimator_title("mine")
        ('InvP', 'mine')
    """
    return TITLES.get(str(name), str(name))


def measured(dataset: xr.Dataset) -> list[str]:
    """The metrics of a dataset, without bias2 and variance: those known here, then one's own, which have a `_se`.

    Args:
        dataset: Of a study.

    Returns:
        Names of variables.
    """
    known = [name for name in METRICS if name in dataset and name not in ("bias2", "variance")]
    own = [str(name) for name in dataset.data_vars if f"{name}_se" in dataset and not str(name).endswith("_difference")]
    return known + [name for name in own if name not in METRICS]


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
            Line2D([], [], **line_of(style), label=_text(estimator_title(name)))
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


def span_of(values: np.ndarray, log: bool) -> float:
    """How far values reach, on the scale of their axis."""
    low, high = float(values.min()), float(values.max())
    return float(np.log(high / low)) if log else high - low


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


def line_of(style: Style) -> dict[str, Any]:
    """A style as matplotlib's keywords."""
    return {
        "color": style.colour,
        "linestyle": style.dash,
        "linewidth": 1.5,
        "marker": style.marker,
        "markersize": style.size,
        "markerfacecolor": style.colour if style.filled else "none",
        "markeredgewidth": 1.2,
    }


def set_limits(axes: Axes, values: np.ndarray, *, log: bool) -> None:
    """Limits and ticks of a vertical axis that show the values."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    if not len(values):
        axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center", va="center", color="0.5")
        axes.yaxis.set_major_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        return
    low, high = float(values.min()), float(values.max())
    if log:
        pad = 10 ** max(0.07 * np.log10(high / low), 0.04)
        axes.set_ylim(low / pad, high * pad)
        log_ticks(axes.yaxis, low / pad, high * pad)
    else:
        pad = 0.07 * (high - low) or 0.01 * abs(high) or 0.01
        axes.set_ylim(low - pad, high + pad)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}".replace("-", "−")))


def set_x(axes: Axes, along: np.ndarray, name: str) -> None:
    """Limits and ticks of a horizontal axis, with the words of its dimension."""
    from matplotlib.ticker import MaxNLocator, NullFormatter

    if not len(along):
        return
    low, high = along.min(), along.max()
    if low > 0 and (name in ("num_users", "num_categories") or high / low > 30) and name != "zipf":
        pad = max((high / low) ** 0.05, 1.15)
        axes.set_xscale("log")
        axes.set_xlim(low / pad, high * pad)
        log_ticks(axes.xaxis, low / pad, high * pad)
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        pad = 0.05 * (high - low) or 0.5
        axes.set_xlim(low - pad, high + pad)
        if len(along) <= 10 and len(along) > 1 and np.diff(along).min() > 0.07 * (high - low):
            axes.set_xticks(along, [f"{value:g}" for value in along])
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6))


def log_ticks(axis, low: float, high: float) -> None:
    """Ticks for a logarithmic axis that spans little or much."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    decades = np.log10(high / low)
    first, last = int(np.ceil(np.log10(low))), int(np.floor(np.log10(high)))
    if last - first >= 1 and decades >= 1.5:
        step = -(-(last - first + 1) // 7)
        axis.set_major_locator(FixedLocator([10.0**power for power in range(first, last + 1, step)]))
        axis.set_minor_locator(LogLocator(subs=range(2, 10)) if decades <= 8 and step == 1 else NullLocator())
    elif decades >= 0.6:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_label(value)))
    axis.set_minor_formatter(NullFormatter())


def power_label(value: float) -> str:
    """A number as a power of ten, times something if need be."""
    if not value > 0:
        return f"{value:g}"
    power = int(np.floor(np.log10(value) + 1e-9))
    factor = value / 10.0**power
    if abs(factor - 1) < 1e-6:
        return f"$10^{{{power}}}$"
    return f"{value:g}" if -2 <= power <= 2 else f"${factor:.4g}{{\\times}}10^{{{power}}}$"


def draw_histogram(axes: Axes, shares: np.ndarray, *, ranked: bool = False) -> None:
    """Bars of all categories; of many, the tallest of each bin, so that none is lost to the eye."""
    size = len(shares)
    if ranked:
        rank = np.unique(np.geomspace(1, size, 500).astype(int))
        rank = rank[shares[rank - 1] > 0]
        single = {"marker": "o", "markersize": 4} if len(rank) == 1 else {}
        axes.plot(rank, shares[rank - 1], color="0.35", linewidth=1.5, **single)
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = float(shares[shares > 0].min()), float(shares.max())
        pad = 10 ** max(0.07 * np.log10(high / low), 0.3)
        axes.set_ylim(low / pad, high * pad)
        axes.set_xlim(0.9, size * 1.1)
        log_ticks(axes.xaxis, 0.9, size * 1.1)
        log_ticks(axes.yaxis, low / pad, high * pad)
        axes.grid(color="0.93")
        return
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

    edges = np.linspace(0, size, min(size, 1000) + 1).astype(int)
    axes.stairs(np.maximum.reduceat(shares, edges[:-1]), edges, fill=True, color="0.35", edgecolor="0.35")
    axes.set_xlim(-0.01 * size, 1.01 * size)
    axes.set_ylim(0, 1.06 * float(shares.max()))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    many = f"\n(the largest in each of {len(edges) - 1:,} bins)" if len(edges) - 1 < size else ""
    axes.set_ylabel(f"true share of users{many}", fontsize=9)


def zipf_shares(num_categories: int, exponent: float) -> np.ndarray:
    """The Zipf distribution, `[K]`."""
    shares = np.arange(1, num_categories + 1) ** -float(exponent)
    return shares / shares.sum()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size, inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def set_heading(figure: Figure, text: str) -> None:
    """Above all panels, in as many lines as its width needs."""
    lines = [textwrap.fill(line, int(11 * figure.get_figwidth())) for line in text.split("\n")]
    figure.suptitle("\n".join(lines), fontsize=10.5)


def styles_of(dataset: xr.Dataset) -> dict[str, Style]:
    """Fixed by the name; an own estimator's by its place among those of the dataset."""
    names = [str(name) for name in dataset["estimator"].values]
    own = [name for name in names if name not in STYLES]
    styles = {name: STYLES.get(name) or OWN_STYLES[own.index(name) % len(OWN_STYLES)] for name in names}
    # The large and hollow are drawn first.
    return {name: styles[name] for name in sorted(names, key=lambda name: (name not in STYLES, rank_of(name)))}


def rank_of(name: str) -> int:
    """Where an estimator stands among those known by name."""
    return list(STYLES).index(name) if name in STYLES else 0


def population_of(dataset: xr.Dataset) -> str:
    """The dimension that populations are along: zipf or distribution."""
    for name in ("zipf", "distribution"):
        if name in dataset.dims or name in dataset.coords:
            return name
    raise ValueError(f"there is no dimension zipf or distribution; there are: {listed_values(dataset.dims)}")


def prepared(dataset: xr.Dataset, metrics: Sequence[str]) -> xr.Dataset:
    """The dataset, with dimensions that a selection had dropped, and estimators in drawing order."""
    for metric in metrics:
        if metric not in dataset:
            there = [name for name in METRICS if name in dataset]
            raise ValueError(f"{metric} is not in the dataset, which has: {listed_values(there or dataset.data_vars)}")
    for name in ("estimator", "num_categories", "num_users", "epsilon", population_of(dataset)):
        if name not in dataset.dims and name in dataset.coords and dataset[name].ndim == 0:
            dataset = dataset.expand_dims(name)
    if "estimator" not in dataset.dims:
        raise ValueError(f"there is no dimension estimator; there are: {listed_values(dataset.dims)}")
    names = {str(name): index for index, name in enumerate(dataset["estimator"].values)}
    return dataset.isel(estimator=[names[name] for name in styles_of(dataset)])


def fix(dataset: xr.Dataset, **values: Any) -> tuple[xr.Dataset, dict[str, Any]]:
    """The dataset at given values, and the values; None stands for the only one."""
    at: dict[str, Any] = {}
    for name, value in values.items():
        if name not in dataset.dims:
            if name in dataset.coords and dataset[name].ndim == 0:
                at[name] = dataset[name].item()
                there = np.atleast_1d(dataset[name].values)
                if value is not None and not found_in(there, value).any():
                    raise ValueError(f"{name} {value} is not in the dataset, which has: {listed_values(there)}")
            elif value is not None:
                raise ValueError(f"{name} is no dimension of this dataset; there are: {listed_values(dataset.dims)}")
            continue
        there = dataset[name].values
        if value is None:
            if len(there) != 1:
                raise ValueError(f"which {name}? The dataset has: {listed_values(there)}")
            value = there[0]
        found = np.nonzero(found_in(there, value))[0]
        if not len(found):
            raise ValueError(f"{name} {value} is not in the dataset, which has: {listed_values(there)}")
        dataset = dataset.isel({name: int(found[0])})
        at[name] = there[found[0]]
    return dataset, at


def found_in(there: np.ndarray, value: Any) -> np.ndarray:
    """Which of the values there are the one asked for."""
    if there.dtype.kind in "iuf":
        try:
            return np.isclose(there.astype(float), float(value), rtol=1e-9, atol=0)
        except ValueError:
            return np.zeros(len(there), bool)
    return there.astype(str) == str(value)


def only_users(here: xr.Dataset, metric: str) -> Any:
    """The number of users of a data set: the one that has values."""
    if here.sizes.get("num_users", 1) == 1:
        return None
    others = [name for name in here[metric].dims if name != "num_users"]
    held = here["num_users"].values[here[metric].notnull().any(others).values]
    return held[0] if len(held) == 1 else None


def spread_over(values: Any, most: int) -> list[Any]:
    """At most so many of the values, evenly spread."""
    places = np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int))
    return [values[place] for place in places]


def panel_title(dataset: xr.Dataset, name: str, value: Any) -> str:
    """What a panel shows; a data set with its own K says so."""
    title = words_for(name, value)
    if name == "distribution" and "num_categories" in dataset.coords:
        size = dataset["num_categories"]
        title += f", K = {size.sel(distribution=value).item():,.0f}" if size.dims == ("distribution",) else ""
    return title


def words_for(name: str, value: Any) -> str:
    """A coordinate and its value, in words."""
    if name == "distribution":
        return _text(value)
    if name == "zipf":
        return f"Zipf exponent s = {value:g}".replace("inf", "∞")
    if name == "epsilon":
        return f"ε = {value:g}".replace("inf", "∞")
    return f"{'K' if name == 'num_categories' else 'N'} = {value:,.0f}"


def metric_label(metric: str) -> str:
    """What an axis calls a metric."""
    return METRICS.get(metric) or _text(metric)


def short_label(metric: str) -> str:
    """What a title calls a metric."""
    return SHORT.get(metric) or _text(metric)


def seeds_note(dataset: xr.Dataset) -> str:
    """How many seeds, in words."""
    seeds = dataset.attrs.get("num_seeds")
    return "" if seeds is None else f"; {int(seeds):,} seed{'' if seeds == 1 else 's'}"


def listed_values(values: Any) -> str:
    """Values in a row, for a message."""
    shown = [f"{value:g}" if isinstance(value, float | np.floating) else str(value) for value in values]
    return ", ".join(shown[:20]) + (" …" if len(shown) > 20 else "") if shown else "none"
