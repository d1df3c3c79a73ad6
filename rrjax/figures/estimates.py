"""Figures of estimates with their limits: shares of one distribution, rows of estimates, distributions of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.estimators.catalogue import Style
from rrjax.figures import axes as canvas
from rrjax.figures.style import BLUE, PALE_BLUE, estimator_title, line_at, shortened, styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _check_lengths(size: int, of: str, given: Mapping[str, Any]) -> None:
    for name, array in given.items():
        if array is not None and len(array) != size:
            problem = f"all must have one length: {size} {of}, {name} has {len(array)}"
            raise ArgumentError(problem, argument=name)


def estimate_figure(
    labels: Sequence[object] | np.ndarray,
    estimates: Mapping[str, np.ndarray],
    *,
    standard_error: float,
    truth: np.ndarray | None = None,
    limits: tuple[np.ndarray, np.ndarray] | None = None,
    limits_label: str = "interval",
    discovered: np.ndarray | None = None,
    top: int = 20,
    title: str = "",
    titles: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws estimates of one distribution: the largest categories, and, of ten or more, all of them by rank.

    Args:
        labels: `[K]`, the names of the categories.
        estimates: Name → `[K]`, shares; the first one determines the order. A name of the catalogue ("mle_star") gets
            its title and colour; any other is the title itself.
        standard_error: Standard error of the unbiased estimate of an empty category
            (`RandomizedResponse.standard_error`); drawn as a band of ±2 standard errors.
        truth: `[K]`, the true shares, if known.
        limits: Two arrays `[K]`, such as `rrjax.inference.intervals` returns; drawn as error bars.
        limits_label: The name of the limits in the legend.
        discovered: `[K]`, whether each category is significantly above zero; then its name is bold. Use a criterion
            that agrees with the limits, such as a lower limit above zero.
        top: Number of the largest categories to draw.
        title: Title above the figure.
        titles: Titles of estimates in place of their own, such as {"mle_star": "likeliest"}.
        ax: The axes to draw the largest categories into; None makes a figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: Labels, estimates, truth, limits and discovered are not of one length.

    Example:
        >>> import numpy as np, rrjax
        >>> from rrjax.figures import estimate_figure
        >>> theta = np.asarray(rrjax.mle_star([60, 20, 10, 10], 1.0))
        >>> figure = estimate_figure("abcd", {"mle_star": theta}, standard_error=0.2)
    """
    from matplotlib.ticker import MaxNLocator

    estimates = {name: np.asarray(theta) for name, theta in estimates.items()}
    first = next(iter(estimates.values()))
    truth = None if truth is None else np.asarray(truth)
    given: dict[str, Any] = {**estimates, "labels": labels, "truth": truth, "discovered": discovered}
    given |= dict(zip(("the lower limits", "the upper limits"), limits or (None, None), strict=True))
    _check_lengths(len(first), "categories in the first estimate", given)
    styles = styles_of(estimates)
    named = {name: estimator_title(name) for name in estimates} | dict(titles or {})
    drawn = [(theta, shortened(named[name], 60), styles[name]) for name, theta in estimates.items()]
    top = min(top, len(first))
    largest = np.argsort(-first, kind="stable")[:top]
    height, right = 1.9 + 0.24 * top, None
    if ax is None and len(first) >= 10:
        figure = canvas.new_figure(11, height, title)
        left, right = figure.subplots(1, 2)
        shown = f"The {top} largest of {len(first):,} categories" if top < len(first) else "All categories"
        left.set_title(shown, fontsize=10)
    else:
        figure, left = canvas.one_panel(6.5, height, title, ax)

    place = np.arange(top)
    left.axvspan(-2 * standard_error, 2 * standard_error, color=PALE_BLUE, zorder=0)
    if truth is not None:
        left.barh(place, truth[largest], height=0.75, color="0.72", zorder=1, label="truth")
    if limits is not None:
        lower, upper = (np.asarray(limit)[largest] for limit in limits)
        _draw_intervals(left, place, lower, upper, 1.4, limits_label)
    shifts = np.linspace(-0.22, 0.22, len(drawn)) if len(drawn) > 1 else [0.0]
    for (theta, name, style), shift in zip(drawn, shifts, strict=True):
        face = style.colour if theta is first else "white"
        look = {"color": style.colour, "markerfacecolor": face, "markersize": 5, "zorder": 3}
        left.plot(theta[largest], place + shift, style.marker, **look, label=name)
    left.set_yticks(place, [shortened(labels[index]) for index in largest])
    if discovered is not None:
        for text, index in zip(left.get_yticklabels(), largest, strict=True):
            text.set_fontweight("bold" if discovered[index] else "normal")
            text.set_color("black" if discovered[index] else "0.45")
    left.set_ylim(top - 0.4, -0.6)
    left.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    canvas.set_share_ticks(left.xaxis)
    # `discovered` may come from another criterion than the limits: the words name it.
    above = discovered is not None and limits is not None and np.array_equal(discovered, np.asarray(limits[0]) > 0)
    bold = "" if discovered is None else f";\nbold: {'its interval is' if above else 'significantly'} above zero"
    left.set_xlabel(f"share of users\n(blue band: ±2 standard errors of an empty category{bold})")
    canvas.set_grid(left, "x")
    if right is not None:
        _draw_ranks(right, drawn, truth, standard_error)
    # Below both panels: inside, the legend would cover data.
    drawn_in = [left] if right is None else [right, left]
    handles = {
        label: handle for axes in drawn_in for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    canvas.legend_below(figure, list(handles.values()), ax=ax)
    return figure


def _draw_ranks(
    axes: Axes, estimates: Sequence[tuple[np.ndarray, str, Style]], truth: np.ndarray | None, standard_error: float
) -> None:
    """Draws each estimate's positive shares by rank, on logarithmic axes."""
    from matplotlib.ticker import LogLocator

    curves: list[tuple[np.ndarray, dict[str, Any]]] = [
        (theta, {"color": style.colour, "linestyle": style.dash, "linewidth": 1.6, "label": name})
        for theta, name, style in estimates
    ]
    if truth is not None:
        curves.insert(0, (truth, {"color": "0.72", "linewidth": 4, "label": "truth"}))
    most = 2
    for theta, look in curves:
        positive = np.sort(theta[theta > 0])[::-1]
        most = max(most, len(positive))
        rank = canvas.ranks_to_draw(len(positive), 2000)[: len(positive)]
        marker = {"marker": ".", "markersize": 4} if len(positive) < 50 else {}
        axes.plot(rank, positive[rank - 1], **look, **marker)
    axes.axhline(2 * standard_error, color="0.4", linewidth=0.8, linestyle=":", label="2 standard errors")
    axes.set(xscale="log", yscale="log", xlabel="rank (every curve by its own order)", ylabel="share of users")
    # Shares below a thousandth of the standard error are noise, and would fill most of the axis.
    floor = standard_error / 1000 if truth is None else min(standard_error / 1000, truth[truth > 0].min(initial=1))
    low, high = axes.get_ylim()
    if low < floor < high:
        low, high = axes.set_ylim(bottom=floor)
    figure = axes.get_figure(root=True)
    assert figure is not None
    three_a_decade = 3 * math.log10(high / low) < min(15, 2.5 * figure.get_figheight())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if three_a_decade else (1,)))
    canvas.set_share_ticks(axes.yaxis)
    axes.set_xlim(0.9, 1.1 * most)
    canvas.set_log_ticks(axes.xaxis, 0.9, 1.1 * most, canvas.in_words)
    axes.set_title("All categories, by rank", fontsize=10)
    canvas.set_grid(axes)


def _draw_intervals(
    axes: Axes, rows: np.ndarray, lower: np.ndarray, upper: np.ndarray, width: float, label: str = ""
) -> None:
    """Draws horizontal bars with ends."""
    axes.hlines(rows, lower, upper, color="0.35", linewidth=width, zorder=2, label=label)
    for ends in (lower, upper):
        axes.plot(ends, rows, "|", color="0.35", markersize=7, zorder=2)


class Statements(NamedTuple):
    """The rows of one panel of `forest_figure`.

    Attributes:
        names: Names of the rows.
        values: A number for each row.
        lower: Lower confidence limits.
        upper: Upper confidence limits.
        are_shares: Whether the numbers are shares, drawn in per cent.
        mark: A number to mark with a line, such as zero for no difference.
    """

    names: Sequence[object]
    values: Sequence[float] | np.ndarray
    lower: Sequence[float] | np.ndarray
    upper: Sequence[float] | np.ndarray
    are_shares: bool = False
    mark: float | None = None


def forest_figure(
    panels: Mapping[str, Statements | tuple[Any, ...]], *, level: float = 0.95, title: str = "", ax: Axes | None = None
) -> Figure:
    """Draws estimates with their intervals, a row each, in one panel for each kind.

    Args:
        panels: Title → `(names, values, lower, upper, are_shares, mark)`, of which the last two may be omitted: the
            names of the rows, a number and two confidence limits for each, whether they are shares, and a number to
            mark with a line. Rows with equal names are at the same height.
        level: Level of the intervals.
        title: Title above the figure.
        ax: The axes to draw one panel into; None makes a figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: No panel, several for `ax`, or numbers and names of different lengths.

    Example:
        >>> from rrjax.figures import forest_figure
        >>> ages = (["north", "south"], [38.9, 47.2], [32.6, 41.0], [45.3, 53.1])
        >>> figure = forest_figure({"mean age": ages})
    """
    if not panels:
        raise ArgumentError("there is nothing to draw: give at least one panel", argument="panels", value=panels)
    given = {name: panel if isinstance(panel, Statements) else Statements(*panel) for name, panel in panels.items()}
    for name, panel in given.items():
        if len({len(part) for part in panel[:4]}) > 1:
            raise ArgumentError(
                f"{name}: all must have one length; got {[len(part) for part in panel[:4]]}",
                argument="panels",
                value=name,
            )
    from matplotlib.ticker import MaxNLocator

    rows = list(dict.fromkeys(str(name) for panel in given.values() for name in panel.names))
    columns = min(len(panels), 3)
    lines = -(-len(panels) // columns)
    interval = f"estimate, and its {100 * level:.12g} % interval"
    if ax is None:
        figure = canvas.new_figure(1.6 + 3.2 * columns, lines * (1.1 + 0.28 * len(rows)) + 0.4, title)
        drawn = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        figure.supxlabel(interval, fontsize=10)
    else:
        (figure, _), drawn = canvas.one_panel(0, 0, title, ax, len(panels)), [ax]
        ax.set_xlabel(interval)
    height = {name: place for place, name in enumerate(rows)}
    for axes, (name, panel) in zip(drawn, given.items(), strict=False):
        heights = np.asarray([height[str(row)] for row in panel.names])
        values, lower, upper = (np.asarray(part, float) for part in panel[1:4])
        if panel.mark is not None:
            axes.axvline(panel.mark, color="0.6", linewidth=1, linestyle="--", zorder=1)
        _draw_intervals(axes, heights, lower, upper, 1.6)
        axes.plot(values, heights, "o", color=BLUE, markersize=5, zorder=3)
        if panel.are_shares:
            canvas.set_share_ticks(axes.xaxis)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.set_title(f"{axes.get_title()}\n{shortened(name, 40)}".strip(), fontsize=10)
        canvas.set_grid(axes, "x")
    for axes in drawn[len(panels) :]:
        axes.set_visible(False)
    drawn[0].set_yticks(range(len(rows)), [shortened(row) for row in rows])
    drawn[0].set_ylim(len(rows) - 0.4, -0.6)
    return figure


@canvas.no_axes
def cdf_figure(
    lower: Sequence[float] | np.ndarray,
    upper: Sequence[float] | np.ndarray,
    shares: np.ndarray,
    *,
    band: tuple[np.ndarray, np.ndarray] | None = None,
    band_label: str = "band",
    name: str = "",
    title: str = "",
) -> Figure:
    """Draws the distribution function of numbers with its band, and their shares.

    Args:
        lower: `[K]`, the least number of each bin, or the integer itself.
        upper: `[K]`, the largest number of each bin, or the integer itself.
        shares: `[K]`, an estimate.
        band: Two arrays `[K]`, limits of the distribution function, as from `rrjax.inference.cdf_band`.
        band_label: The name of the band in the legend.
        name: The name of the numbers, for the horizontal axes.
        title: Title above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: The arrays are not of one length.

    Example:
        >>> import numpy as np
        >>> from rrjax.figures import cdf_figure
        >>> figure = cdf_figure([0, 10, 20], [10, 20, 30], np.array([0.2, 0.5, 0.3]), name="age")
    """
    low, high, theta = (np.asarray(each, float) for each in (lower, upper, shares))
    given = {"upper": high, "shares": theta, "band": None if band is None else band[0]}
    _check_lengths(len(low), "numbers in lower", given)
    figure = canvas.new_figure(10, 4, title)
    left, right = figure.subplots(1, 2)
    integers = bool((low == high).all())
    along = high if integers else np.append(low[0], high)
    summed = np.cumsum(theta) if integers else np.append(0, np.cumsum(theta))
    if band is not None:
        # Between the ends of a bin the function is between the limit before and the limit behind.
        below, above = np.asarray(band[0], float), np.asarray(band[1], float)
        if not integers:
            below, above = np.append(0, below), np.append(above, 1)
        left.fill_between(along, below, above, step="post", color=PALE_BLUE, label=band_label)
    left.plot(along, summed, color=BLUE, label="estimate", drawstyle="steps-post" if integers else "default")
    left.set(xlabel=name, ylabel="share of users up to here", ylim=(0, 1))
    left.legend(fontsize=8, loc="upper left")
    width = 0.9 if integers else high - low
    right.bar((low + high) / 2, theta, width=width, color=BLUE, alpha=0.6, label="estimate")
    right.set(xlabel=name, ylabel="share of users" if integers else "share of users in the bin")
    for axes in (left, right):
        canvas.set_share_ticks(axes.yaxis)
        canvas.set_grid(axes)
    return figure


def distributions_figure(
    points: Sequence[float] | np.ndarray,
    distributions: Mapping[str, Sequence[np.ndarray] | np.ndarray],
    *,
    quantiles: Sequence[float] = (),
    band_label: str = "bands",
    name: str = "",
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draws the distribution functions of several classes, with their bands.

    Args:
        points: `[P]`, numbers in ascending order.
        distributions: Name → estimate, lower and upper limits of the distribution function at the points, `[P]` each,
            as from `rrjax.inference.class_cdf`. The estimate is drawn with its running maximum, cut to [0, 1].
        quantiles: Fractions in (0, 1), each marked with a line: a band there has the interval of the quantile.
        band_label: What the bands are, for the heading of the legend.
        name: The name of the numbers, for the horizontal axis.
        title: Title above the figure.
        ax: The axes to draw into; None makes a figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: The arrays are not of one length.

    Example:
        >>> import numpy as np
        >>> from rrjax.figures import distributions_figure
        >>> fast, slow = np.array([[0.4, 0.3, 0.5], [0.8, 0.7, 0.9]]).T, np.array([[0.1, 0, 0.2], [0.5, 0.4, 0.6]]).T
        >>> figure = distributions_figure([1, 2], {"fast": fast, "slow": slow}, quantiles=[0.75], name="seconds")
    """
    along = np.asarray(points, float)
    for each in distributions.values():
        _check_lengths(len(along), "points", dict(zip(("value", "lower", "upper"), each, strict=True)))
    figure, axes = canvas.one_panel(7.2, 4.4, title, ax)
    for place, (label, (value, lower, upper)) in enumerate(distributions.items()):
        look = line_at(place)
        axes.fill_between(along, np.asarray(lower), np.asarray(upper), color=look["color"], alpha=0.16, linewidth=0)
        axes.plot(along, np.maximum.accumulate(np.clip(value, 0, 1)), **look, label=shortened(label, 60))
    for fraction in quantiles:
        axes.axhline(fraction, color="0.5", linewidth=0.9, linestyle=":")
    axes.set(xlabel=shortened(name, 60), ylabel="share of the class up to here", ylim=(0, 1))
    canvas.set_share_ticks(axes.yaxis)
    canvas.set_grid(axes)
    canvas.legend_below(figure, axes.get_legend_handles_labels()[0], band_label, ax=ax)
    return figure
