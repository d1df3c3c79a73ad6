"""Empty figures, headings and legends, scales and ticks."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.style import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

P = ParamSpec("P")


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """An empty figure of this size, inches; the title is plain text, never a formula."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        set_heading(figure, _plain(title))
    return figure


def one_panel(width: float, height: float, title: str, ax: Axes | None, wanted: int = 1) -> tuple[Figure, Axes]:
    """The given axes with this title, and their figure, if one panel is wanted; without axes a new figure."""
    if ax is None:
        figure = new_figure(width, height, title)
        return figure, figure.subplots()
    refuse_axes(ax if wanted > 1 else None)
    figure = ax.get_figure(root=True)
    assert figure is not None
    if title:
        ax.set_title(_plain(title), fontsize=10)
    return figure, ax


def no_axes(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Makes a figure of several panels refuse `ax`, axes to draw into, which figures of one panel take."""

    @wraps(draw)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Figure:
        refuse_axes(kwargs.pop("ax", None))
        return draw(*args, **kwargs)

    return checked


def refuse_axes(ax: object) -> None:
    """Refuses axes for a figure of several panels."""
    if ax is not None:
        raise ArgumentError("this figure has several panels, and ax is one: leave ax out", argument="ax")


def _plain(title: str) -> str:
    return "\n".join(shortened(line, 300) for line in title.split("\n"))


def set_heading(figure: Figure, text: str) -> None:
    """Writes a text above all panels, wrapped to the figure's width."""
    lines = [textwrap.fill(line, int(11 * figure.get_figwidth())) for line in text.split("\n")]
    figure.suptitle("\n".join(lines), fontsize=10.5)


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


def set_grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Draws pale grid lines below the data."""
    axes.grid(axis=axis, color="0.93")
    axes.set_axisbelow(True)


def set_ticks(axis: Axis, text: Callable[[float], str]) -> None:
    """Labels the major ticks by a function of their value, and no minor ticks."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def set_share_ticks(axis: Axis) -> None:
    """Labels shares in per cent; as powers of ten on a logarithmic axis that begins below 1e-9."""
    low = axis.get_view_interval()[0]
    set_ticks(axis, as_power if axis.get_scale() == "log" and low < 1e-9 else per_cent)


def per_cent(share: float) -> str:
    """A share in per cent, with separators of thousands and without an exponent."""
    return f"{Decimal(f'{100 * share:.6g}'):,f}\N{NO-BREAK SPACE}%".replace("-", "−")


def in_words(value: float, gap: str = "\n") -> str:
    """A count (users, categories, steps) or ε, written out; from a million on in words."""
    if not np.isfinite(value):
        return "∞"
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:g}{gap}{name}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def as_power(value: float) -> str:
    """A number as a power of ten, with a factor unless the factor is one."""
    if not value > 0:
        return f"{value:g}".replace("-", "−")
    power = int(np.floor(np.log10(value) + 1e-9))
    factor = value / 10.0**power
    return f"$10^{{{power}}}$" if abs(factor - 1) < 1e-6 else f"${factor:.4g}{{\\times}}10^{{{power}}}$"


def span_of(values: np.ndarray, log: bool) -> float:
    """The distance from the smallest to the largest value, on the scale of their axis."""
    low, high = float(values.min()), float(values.max())
    return float(np.log(high / low)) if log else high - low


def set_limits(axes: Axes, values: np.ndarray, *, log: bool, margin: float = 0.04) -> None:
    """Sets limits and ticks of a vertical axis for the values, with a margin of at least `margin` decades."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    if not len(values):
        axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center", va="center", color="0.5")
        axes.yaxis.set_major_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        return
    low, high = float(values.min()), float(values.max())
    if log:
        pad = 10 ** max(0.07 * np.log10(high / low), margin)
        axes.set_ylim(low / pad, high * pad)
        set_log_ticks(axes.yaxis, low / pad, high * pad)
    else:
        pad = 0.07 * (high - low) or 0.01 * abs(high) or 0.01
        axes.set_ylim(low - pad, high + pad)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        set_ticks(axes.yaxis, lambda value: f"{value:.10g}".replace("-", "−"))


def set_x(axes: Axes, along: np.ndarray, name: str) -> None:
    """Sets limits and ticks of a horizontal axis, by the dimension of its values."""
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
    """Sets ticks of a logarithmic axis: powers of ten over 1.5 decades or more, else 1, 2, 5 or evenly spaced."""
    from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

    decades = np.log10(high / low)
    first, last = int(np.ceil(np.log10(low))), int(np.floor(np.log10(high)))
    powers = [10.0**power for power in range(first, last + 1)]
    axis.set_minor_locator(NullLocator())
    set_minor_ticks(axis, [])
    if last - first >= 1 and decades >= 1.5:
        step = -(-len(powers) // 7)
        ticks = named = powers[::step]
        if axis is axis.axes.xaxis and text is in_words:
            widths = {power: max(map(len, text(power).split("\n"))) * 0.65 * 8 / 72 + 0.1 for power in powers}
            while len(named) > 2 and sum(widths[power] for power in named) > _width(axis):
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


def _width(axis: Axis) -> float:
    """The approximate width of a horizontal axis, inches."""
    place = axis.axes.get_subplotspec()
    figure = axis.axes.get_figure(root=True)
    assert figure is not None
    return 0.75 * figure.get_figwidth() / (1 if place is None else place.get_gridspec().ncols)


def ranks_to_draw(size: int, number: int) -> np.ndarray:
    """About `number` ranks from 1 to `size`, evenly spaced on a logarithmic scale."""
    return np.unique(np.geomspace(1, max(size, 1), number).astype(int))


def set_minor_ticks(axis: Axis, places: Sequence[float]) -> None:
    """Replaces the minor ticks of an axis.

    They look like matplotlib's own. matplotlib makes five artists for every tick and computes the extent of each
    several times; a logarithmic panel has dozens. That takes 40 % more processor time for the paper's figures.
    """
    from matplotlib.artist import Artist

    name = f"minor ticks {'x' if axis is axis.axes.xaxis else 'y'}"
    for artist in list(axis.axes.artists):
        if artist.get_gid() == name:
            artist.remove()
    if not len(places):
        return
    artist = Artist()
    artist.draw = partial(_draw_minor_ticks, axis, np.asarray(places, float))
    artist.set_gid(name)
    artist.set_in_layout(False)
    artist.set_zorder(0.5)  # that of `set_axisbelow`
    axis.axes.add_artist(artist)


def _draw_minor_ticks(axis: Axis, places: np.ndarray, renderer: Any) -> None:
    low, high = np.sort(axis.get_view_interval())
    shown = places[(places >= low) & (places <= high)]
    tick = axis.get_minor_ticks(1)[0]  # one of matplotlib's ticks, for look and visibility
    for line in (tick.tick1line, tick.tick2line):
        (line.set_xdata if axis is axis.axes.xaxis else line.set_ydata)(shown)
        line.draw(renderer)
