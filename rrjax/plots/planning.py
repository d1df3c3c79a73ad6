"""What a collection would know: errors against users and ε."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#1b4f8a", "#c4572f", "#4a8f5b", "#8a5a9e", "#7a6a2f", "#444444")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


def plan_figure(
    num_categories: int,
    epsilon: float,
    num_users: float,
    *,
    target: float | None = None,
    title: str = "",
) -> Figure:
    """Draws the expected root mean squared error of a share against N, for some ε, and against ε, for each mechanism.

    Args:
        num_categories: K.
        epsilon: Nats; its curve is among those on the left, and a line on the right.
        num_users: N; a line on the left, and that of the right.
        target: An error to mark, or None.
        title: Above the figure.

    Returns:
        The figure; `figure.savefig(path)` writes it.

    Example:
        >>> from rrjax.plots import plan_figure
        >>> figure = plan_figure(100, epsilon=1.0, num_users=350_000, target=0.01)
    """
    from matplotlib.figure import Figure

    from rrjax import inference

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    if title:
        figure.suptitle(title, fontsize=11)
    users = np.geomspace(max(num_users / 300, 10), num_users * 300, 120)
    # The error falls with the root of N: one value tells a curve.
    for value, colour, dash in zip(
        sorted({epsilon / 4, epsilon / 2, epsilon, 2 * epsilon, 4 * epsilon}), _COLOURS, _DASHES, strict=False
    ):
        error = float(inference.expected_rmse(num_categories, 1, value)) / np.sqrt(users)
        left.plot(
            users,
            error,
            color=colour,
            linestyle=dash,
            linewidth=2.2 if value == epsilon else 1.4,
            label=f"ε = {value:g}",
        )
    left.axvline(num_users, color="0.5", linewidth=0.9, linestyle=":")
    left.set_xlabel("users, N")
    left.set_ylabel("expected root mean squared error of a share")
    left.set_title("randomized response, unbiased inversion", fontsize=10)

    grid = np.geomspace(epsilon / 8, min(8 * epsilon, 30), 120)
    rows = [
        {
            row.name: row.expected_rmse
            for row in inference.compare_mechanisms(num_categories, max(round(num_users), 1), value)
        }
        for value in grid
    ]
    names = [row.name for row in inference.compare_mechanisms(num_categories, 1, epsilon)]
    for name, colour, dash in zip(names, _COLOURS, _DASHES, strict=True):
        right.plot(grid, [row[name] for row in rows], color=colour, linestyle=dash, label=name)
    right.axvline(epsilon, color="0.5", linewidth=0.9, linestyle=":")
    right.set_xlabel("ε, nats")
    right.set_title(f"{num_users:,.0f} users, each mechanism's unbiased estimate", fontsize=10)
    for axes in (left, right):
        _logarithmic(axes)
        if target is not None:
            axes.axhline(target, color="#c4572f", linewidth=0.9, linestyle="--", label="target")
        axes.legend(fontsize=8)
    return figure


def two_category_figure(epsilons: Sequence[float] = (0.1, 0.5, 1.0, 2.0)) -> Figure:
    """Draws the error of two categories, 1/(2·sinh(ε/2)·√N), beside its well-known form for small ε, 1/(ε√N).

    Args:
        epsilons: Nats, a curve each.

    Returns:
        The figure; `figure.savefig(path)` writes it.

    Example:
        >>> from rrjax.plots import two_category_figure
        >>> figure = two_category_figure([0.5, 2.0])
    """
    from matplotlib.figure import Figure

    from rrjax import inference

    figure = Figure(figsize=(6.2, 4.4), layout="constrained")
    axes = figure.subplots()
    users = np.geomspace(100, 1e7, 60)
    for number, value in enumerate(epsilons):
        colour = _COLOURS[number % len(_COLOURS)]
        exact = float(inference.expected_rmse(2, 1, value)) / np.sqrt(users)
        axes.plot(users, exact, color=colour, label=f"ε = {value:g}")
        axes.plot(users, 1 / (value * np.sqrt(users)), color=colour, linestyle=":")
    axes.plot([], [], color="0.4", linestyle=":", label="1/(ε√N)")
    axes.set_xlabel("users, N")
    axes.set_ylabel("standard error of a share")
    _logarithmic(axes)
    axes.legend(fontsize=8)
    return figure


def _number(value: float) -> str:
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:g}\n{name}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _logarithmic(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1e3 else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _number(x)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g}%"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="0.93")
