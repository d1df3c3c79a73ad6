"""What a collection would know: errors against users and ε."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrjax.figures.axes import as_power, in_words, new_figure, set_grid, set_share_ticks, set_ticks
from rrjax.figures.style import COLOURS, RED, line_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plan_figure(
    num_categories: int, epsilon: float, num_users: float, *, target: float | None = None, title: str = ""
) -> Figure:
    """Draws the expected root mean squared error of a share against N, for some ε, and against ε, for each mechanism.

    Errors are from the distribution that the users are drawn from (`inference.expected_rmse`).

    Args:
        num_categories: K.
        epsilon: Nats; its curve is among those on the left, and a line on the right.
        num_users: N; a line on the left, and that of the right.
        target: An error to mark, or None.
        title: Above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Example:
        >>> from rrjax.figures import plan_figure
        >>> figure = plan_figure(100, epsilon=1.0, num_users=350_000, target=0.01)
    """
    from rrjax import inference

    figure = new_figure(11, 4.4, title)
    left, right = figure.subplots(1, 2, sharey=True)
    users = np.geomspace(max(num_users / 300, 10), num_users * 300, 120)
    for place, value in enumerate(sorted(epsilon * factor for factor in (1 / 4, 1 / 2, 1, 2, 4))):
        # The error falls with the root of N: one value tells a curve.
        error = float(inference.expected_rmse(num_categories, 1, value)) / np.sqrt(users)
        left.plot(users, error, **line_at(place), linewidth=2.2 if value == epsilon else 1.4, label=f"ε = {value:g}")
    left.axvline(num_users, color="0.5", linewidth=0.9, linestyle=":")
    left.set(xlabel="users, N", ylabel="expected root mean squared error of a share")
    left.set_title("randomized response, unbiased inversion", fontsize=10)

    grid = np.geomspace(epsilon / 8, min(8 * epsilon, 30), 120)
    many = max(round(num_users), 1)

    def errors(value: float) -> dict[str, float]:
        return {row.name: row.expected_rmse for row in inference.compare_mechanisms(num_categories, many, value)}

    rows = [errors(value) for value in grid]
    for place, name in enumerate(errors(epsilon)):
        right.plot(grid, [row[name] for row in rows], **line_at(place), label=name)
    right.axvline(epsilon, color="0.5", linewidth=0.9, linestyle=":")
    right.set_xlabel("ε, nats")
    right.set_title(f"{num_users:,.0f} users, each mechanism's unbiased estimate", fontsize=10)
    for axes in (left, right):
        _set_scales(axes)
        if target is not None:
            axes.axhline(target, color=RED, linewidth=0.9, linestyle="--", label="target")
        axes.legend(fontsize=8)
    return figure


def two_category_figure(epsilons: Sequence[float] = (0.1, 0.5, 1.0, 2.0)) -> Figure:
    """Draws the error of two categories, 1/(2·sinh(ε/2)·√N), beside its well-known form for small ε, 1/(ε√N).

    Errors are from the users' own shares.

    Args:
        epsilons: Nats, a curve each.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Example:
        >>> from rrjax.figures import two_category_figure
        >>> figure = two_category_figure([0.5, 2.0])
    """
    from rrjax import inference

    figure = new_figure(6.2, 4.4)
    axes = figure.subplots()
    users = np.geomspace(100, 1e7, 60)
    for place, value in enumerate(epsilons):
        colour = COLOURS[place % len(COLOURS)]
        exact = float(inference.expected_rmse(2, 1, value, estimand="users")) / np.sqrt(users)
        axes.plot(users, exact, color=colour, label=f"ε = {value:g}")
        axes.plot(users, 1 / (value * np.sqrt(users)), color=colour, linestyle=":")
    axes.plot([], [], color="0.4", linestyle=":", label="1/(ε√N)")
    axes.set(xlabel="users, N", ylabel="standard error of a share")
    _set_scales(axes)
    axes.legend(fontsize=8)
    return figure


def _set_scales(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator

    axes.set(xscale="log", yscale="log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1e3 else (1,)))
    set_ticks(axes.xaxis, in_words if low > 1e-4 else as_power)
    set_share_ticks(axes.yaxis)
    set_grid(axes)
