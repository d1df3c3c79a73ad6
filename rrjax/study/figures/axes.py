"""Scales, ticks, histograms and empty figures."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def span_of(values: np.ndarray, log: bool) -> float:
    """How far values reach, on the scale of their axis."""
    low, high = float(values.min()), float(values.max())
    return float(np.log(high / low)) if log else high - low


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
