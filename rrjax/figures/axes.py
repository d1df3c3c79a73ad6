"""Empty figures, scales and ticks."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np

from rrjax.figures.style import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """An empty figure of this size, inches; its title is shown, not obeyed, whatever it holds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle("\n".join(shortened(line, 300) for line in title.split("\n")), fontsize=11)
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
    """Shares as per cent; those of an axis that reaches where zeros would have to be counted, as powers of ten."""
    low = axis.get_view_interval()[0]
    set_ticks(axis, as_power if axis.get_scale() == "log" and low < 1e-9 else per_cent)


def per_cent(share: float) -> str:
    """A share, however small."""
    digits = np.format_float_positional(float(f"{100 * share:.6g}"), trim="-")
    return f"{digits.replace('-', '−')}\N{NO-BREAK SPACE}%"


def in_words(value: float, gap: str = "\n") -> str:
    """What is counted (users, categories, steps) or ε, written out; from a million on in words."""
    if not np.isfinite(value):
        return "∞"
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:g}{gap}{name}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def as_power(value: float) -> str:
    """A number as a power of ten, times something if need be: all of an axis alike."""
    if not value > 0:
        return f"{value:g}".replace("-", "−")
    power = int(np.floor(np.log10(value) + 1e-9))
    factor = value / 10.0**power
    return f"$10^{{{power}}}$" if abs(factor - 1) < 1e-6 else f"${factor:.4g}{{\\times}}10^{{{power}}}$"


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
        set_log_ticks(axes.xaxis, low / pad, high * pad, in_words if low > 1e-4 else as_power)
    else:
        pad = 0.05 * (high - low) or 0.5
        axes.set_xlim(low - pad, high + pad)
        if 1 < len(along) <= 10 and np.diff(along).min() > 0.07 * (high - low):
            axes.set_xticks(along, [f"{value:g}" for value in along])
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6))


def set_log_ticks(axis: Axis, low: float, high: float, text: Callable[[float], str] = as_power) -> None:
    """Ticks for a logarithmic axis that spans little or much; with labels as wide as they are, where it is horizontal.

    What `in_words` writes is counted, or an ε, and never zero.
    """
    from matplotlib.axis import XAxis
    from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

    from rrjax.figures.minor_ticks import set_minor_ticks

    decades = np.log10(high / low)
    first, last = int(np.ceil(np.log10(low))), int(np.floor(np.log10(high)))
    powers = [10.0**power for power in range(first, last + 1)]
    axis.set_minor_locator(NullLocator())
    set_minor_ticks(axis, [])
    if last - first >= 1 and decades >= 1.5:
        step = -(-len(powers) // 7)
        ticks = named = powers[::step]
        if isinstance(axis, XAxis) and text is in_words:
            while len(named) > 2 and _width(map(text, named)) > _room(axis):
                step += 1
                named = powers[::step]
        axis.set_major_locator(FixedLocator(ticks))
        set_ticks(axis, lambda value: text(value) if value in named else "")
        if decades <= 8:
            between = [digit * power for power in [powers[0] / 10, *powers] for digit in range(1, 10)]
            set_minor_ticks(axis, [value for value in between if low <= value <= high])
        return
    if decades >= 0.6:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=text is in_words and low > 0.5))
    set_ticks(axis, text)


def _width(texts: Iterable[str]) -> float:
    """Inches that tick labels take in a row, at the size that small panels have."""
    return sum(max(map(len, text.split("\n"))) * 0.65 * 8 / 72 + 0.1 for text in texts)


def _room(axis: Axis) -> float:
    """About the inches that a horizontal axis will have."""
    place = axis.axes.get_subplotspec()
    figure = axis.axes.get_figure(root=True)
    assert figure is not None
    return 0.75 * figure.get_figwidth() / (1 if place is None else place.get_gridspec().ncols)


def ranks_to_draw(size: int, most: int) -> np.ndarray:
    """Ranks from 1 to `size`, log-spaced: a million points look like a few hundred, and weigh as much less."""
    return np.unique(np.geomspace(1, max(size, 1), most).astype(int))
