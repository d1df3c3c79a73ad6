"""Empty figures, scales, ticks and histograms."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """An empty figure of this size, inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def set_heading(figure: Figure, text: str) -> None:
    """Above all panels, in as many lines as its width needs."""
    lines = [textwrap.fill(line, int(11 * figure.get_figwidth())) for line in text.split("\n")]
    figure.suptitle("\n".join(lines), fontsize=10.5)


def set_grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Pale lines below all that is drawn."""
    axes.grid(axis=axis, color="0.93")
    axes.set_axisbelow(True)


def set_ticks(axis: Axis, text: Callable[[float], str]) -> None:
    """Says what stands at the ticks; at the minor ones nothing."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def set_share_ticks(axis: Axis) -> None:
    """Shares as per cent, on a linear axis."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1, decimals=None))


def per_cent(share: float) -> str:
    """A share, however small."""
    return f"{100 * share:g}%"


def in_words(value: float) -> str:
    """A number, from a million on in words."""
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:g}\n{name}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def as_power(value: float) -> str:
    """A number as a power of ten, times something if need be."""
    if not value > 0:
        return f"{value:g}"
    power = int(np.floor(np.log10(value) + 1e-9))
    factor = value / 10.0**power
    if abs(factor - 1) < 1e-6:
        return f"$10^{{{power}}}$"
    return f"{value:g}" if -2 <= power <= 2 else f"${factor:.4g}{{\\times}}10^{{{power}}}$"


def span_of(values: np.ndarray, log: bool) -> float:
    """How far values reach, on the scale of their axis."""
    low, high = float(values.min()), float(values.max())
    return float(np.log(high / low)) if log else high - low


def set_limits(axes: Axes, values: np.ndarray, *, log: bool, least: float = 0.04) -> None:
    """Limits and ticks of a vertical axis that show the values; `least` decades beyond them."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    if not len(values):
        axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center", va="center", color="0.5")
        axes.yaxis.set_major_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        return
    low, high = float(values.min()), float(values.max())
    if log:
        pad = 10 ** max(0.07 * np.log10(high / low), least)
        axes.set_ylim(low / pad, high * pad)
        set_log_ticks(axes.yaxis, low / pad, high * pad)
    else:
        pad = 0.07 * (high - low) or 0.01 * abs(high) or 0.01
        axes.set_ylim(low - pad, high + pad)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        set_ticks(axes.yaxis, lambda value: f"{value:.10g}".replace("-", "−"))


def set_x(axes: Axes, along: np.ndarray, name: str) -> None:
    """Limits and ticks of a horizontal axis, as its dimension has them."""
    from matplotlib.ticker import MaxNLocator

    if not len(along):
        return
    low, high = along.min(), along.max()
    if low > 0 and (name in ("num_users", "num_categories") or high / low > 30) and name != "zipf":
        pad = max((high / low) ** 0.05, 1.15)
        axes.set_xscale("log")
        axes.set_xlim(low / pad, high * pad)
        set_log_ticks(axes.xaxis, low / pad, high * pad)
    else:
        pad = 0.05 * (high - low) or 0.5
        axes.set_xlim(low - pad, high + pad)
        if 1 < len(along) <= 10 and np.diff(along).min() > 0.07 * (high - low):
            axes.set_xticks(along, [f"{value:g}" for value in along])
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6))


def set_log_ticks(axis: Axis, low: float, high: float) -> None:
    """Ticks for a logarithmic axis that spans little or much."""
    from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

    decades = np.log10(high / low)
    first, last = int(np.ceil(np.log10(low))), int(np.floor(np.log10(high)))
    minor = NullLocator()
    if last - first >= 1 and decades >= 1.5:
        step = -(-(last - first + 1) // 7)
        axis.set_major_locator(FixedLocator([10.0**power for power in range(first, last + 1, step)]))
        minor = LogLocator(subs=range(2, 10)) if decades <= 8 and step == 1 else minor
    elif decades >= 0.6:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axis.set_minor_locator(minor)
    set_ticks(axis, as_power)


def ranks_to_draw(size: int, most: int) -> np.ndarray:
    """Ranks from 1 to `size`, log-spaced: a million points look like a few hundred, and weigh as much less."""
    return np.unique(np.geomspace(1, max(size, 1), most).astype(int))


def draw_histogram(axes: Axes, shares: np.ndarray, *, ranked: bool = False) -> None:
    """Bars of all categories; of many, the tallest of each bin, so that none is lost to the eye."""
    size = len(shares)
    if ranked:
        rank = ranks_to_draw(size, 500)
        rank = rank[shares[rank - 1] > 0]
        single = {"marker": "o", "markersize": 4} if len(rank) == 1 else {}
        axes.plot(rank, shares[rank - 1], color="0.35", linewidth=1.5, **single)
        axes.set(xscale="log", yscale="log", xlim=(0.9, size * 1.1))
        set_limits(axes, shares[shares > 0], log=True, least=0.3)
        set_log_ticks(axes.xaxis, 0.9, size * 1.1)
        set_grid(axes)
        return
    from matplotlib.ticker import MaxNLocator

    edges = np.linspace(0, size, min(size, 1000) + 1).astype(int)
    axes.stairs(np.maximum.reduceat(shares, edges[:-1]), edges, fill=True, color="0.35", edgecolor="0.35")
    axes.set(xlim=(-0.01 * size, 1.01 * size), ylim=(0, 1.06 * float(shares.max())))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    set_ticks(axes.xaxis, "{:,.0f}".format)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    set_share_ticks(axes.yaxis)
    many = f"\n(the largest in each of {len(edges) - 1:,} bins)" if len(edges) - 1 < size else ""
    axes.set_ylabel(f"true share of users{many}", fontsize=9)
