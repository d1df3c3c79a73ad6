"""Figures of `rrjax.inference`: the likelihood of one collection, and the expected errors of a planned one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures import axes as canvas
from rrjax.figures.style import BLUE, COLOURS, PALE_BLUE, RED, estimator_title, line_at, mechanism_line, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rrjax.inference import ProfileLikelihood, SplitErrors, Surface
    from rrjax.mechanisms import Design, MechanismFactory

_DEPTH = 12.0
"""Depth of a figure below the maximum, nats."""
_MAXIMUM = f"maximum ({estimator_title('mle_star')})"
_HALF_QUANTILE = 1.9207
"""Half the 0.95 quantile of χ² with one degree of freedom."""
MOST_NUMBERS = 5
"""Largest number of curves for numbers of columns."""
_MOST_WORDS = 3
"""Largest number of crossovers that all have words; of more, the first and the last."""


def likelihood_figure(
    surface: Surface, labels: Sequence[object] = (), *, level: float = 0.95, title: str = "", ax: Axes | None = None
) -> Figure:
    """Draws the log-likelihood of two categories as a curve, of three over the triangle of their shares.

    The curve is against the share of yes, if a label means yes, else against that of the first category.

    Args:
        surface: From `rrjax.inference.log_likelihood_surface`.
        labels: The names of the categories; their numbers by default.
        level: Confidence level of the surface's likelihood-ratio region, for its label.
        title: Title above the figure.
        ax: The axes to draw into; None makes a figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: The number of labels is not the number of categories.

    Example:
        >>> import rrjax
        >>> from rrjax.figures import likelihood_figure
        >>> surface = rrjax.inference.log_likelihood_surface([620, 380], epsilon=1.0)
        >>> figure = likelihood_figure(surface, ["yes", "no"])
    """
    theta = np.asarray(surface.theta, float)
    names = [shortened(label) for label in labels] or [str(number) for number in range(theta.shape[1])]
    if len(names) != theta.shape[1]:
        raise ArgumentError(f"there are {theta.shape[1]} categories and {len(names)} labels", argument="labels")
    draw, height, kind = (_curve, 4.2, "band") if len(names) == 2 else (_triangle, 5.4, "region")
    figure, axes = canvas.one_panel(6.2, height, title, ax)
    draw(axes, theta, surface, names, f"{100 * level:g} % likelihood-ratio {kind}")
    return figure


def _curve(axes: Axes, theta: np.ndarray, surface: Surface, names: list[str], region: str) -> None:
    value, inside = np.asarray(surface.log_likelihood, float), np.asarray(surface.inside)
    from rrjax.io.domain import YES

    drawn = next((place for place, name in enumerate(names) if name.casefold() in YES), 0)
    share = theta[:, drawn]
    axes.plot(share, value, color=BLUE, label="log-likelihood")
    axes.axvline(float(surface.estimate[drawn]), color="0.4", linestyle=":", linewidth=1, label=_MAXIMUM)
    if inside.any():
        axes.axvspan(share[inside].min(), share[inside].max(), color=PALE_BLUE, zorder=0, label=region)
        axes.axhline(value[inside].min(), color="0.6", linewidth=0.8, linestyle="--")
    axes.set_ylim(-_DEPTH, 0.5)
    canvas.set_share_ticks(axes.xaxis)
    axes.set(xlabel=f"share of users with {names[drawn]}", ylabel="log-likelihood below its maximum, nats")
    canvas.set_grid(axes)
    axes.legend(fontsize=8, loc="lower center")


def _triangle(axes: Axes, theta: np.ndarray, surface: Surface, names: list[str], region: str) -> None:
    from matplotlib.lines import Line2D

    corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])
    value = np.maximum(np.asarray(surface.log_likelihood, float), -_DEPTH)
    x, y = (theta @ corners).T
    filled = axes.tricontourf(x, y, value, levels=np.linspace(-_DEPTH, 0, 13), cmap="Blues")
    axes.figure.colorbar(filled, ax=axes, shrink=0.75, label="log-likelihood below its maximum, nats")
    inside = np.asarray(surface.inside)
    if inside.any() and not inside.all():
        axes.tricontour(x, y, value, levels=[value[inside].min()], colors=RED, linewidths=1.4)
    axes.plot(*np.vstack([corners, corners[:1]]).T, color="0.3", linewidth=1)
    axes.plot(*(np.asarray(surface.estimate, float) @ corners), "o", color=RED, markersize=5)
    for corner, name, place in zip(corners.tolist(), names, ("top", "top", "bottom"), strict=True):
        axes.annotate(name, corner, (0, -6 if place == "top" else 5), textcoords="offset points", ha="center", va=place)
    handles = [
        Line2D([], [], color=RED, label=region),
        Line2D([], [], color=RED, marker="o", linestyle="", label=_MAXIMUM),
    ]
    axes.legend(handles=handles, fontsize=8, loc="upper left")
    axes.set_title(axes.get_title(), fontsize=10, pad=22)
    axes.set_aspect("equal")
    axes.axis("off")


def profile_figure(
    profiles: Mapping[str, ProfileLikelihood],
    *,
    limits: Mapping[str, tuple[float, float]] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draws profile log-likelihoods, one curve for each category.

    Args:
        profiles: Name → result of `rrjax.inference.profile`.
        limits: Name → limits of the share, such as those of `rrjax.inference.intervals`; drawn as bars below the
            curves. Near the boundary the likelihood-ratio interval, where a curve crosses the dashed line, does not
            hold its level.
        title: Title above the figure.
        ax: The axes to draw into; None makes a figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Example:
        >>> import rrjax
        >>> from rrjax.figures import profile_figure
        >>> counts = [5_200, 2_900, 1_000, 900]
        >>> figure = profile_figure({name: rrjax.inference.profile(counts, 2.0, i) for i, name in enumerate("abcd")})
    """
    figure, axes = canvas.one_panel(7.2, 4.4, title, ax)
    for number, (name, profile) in enumerate(profiles.items()):
        colour = COLOURS[number % len(COLOURS)]
        share = _shares_to_draw(profile)
        axes.plot(
            share,
            np.asarray(profile(share), float),
            color=colour,
            label=shortened(name, 60),
            linestyle=("-", "--")[number % 2],
        )
        if limits is not None and name in limits:
            height = -_DEPTH * 0.9 - 0.3 * number
            axes.plot(limits[name], [height, height], color=colour, linewidth=2.5, solid_capstyle="butt")
    axes.axhline(-_HALF_QUANTILE, color="0.6", linewidth=0.8, linestyle="--", label="half the 95 % quantile of χ²")
    axes.set_ylim(-_DEPTH - 0.3 * len(profiles) * (limits is not None), 0.5)
    canvas.set_share_ticks(axes.xaxis)
    bars = "" if limits is None else " (bars: exact intervals)"
    axes.set(xlabel=f"share of users{bars}", ylabel="profile log-likelihood, nats")
    canvas.set_grid(axes)
    canvas.legend_below(figure, axes.get_legend_handles_labels()[0], ax=ax)
    return figure


def _shares_to_draw(profile: ProfileLikelihood) -> np.ndarray:
    """Shares for which the profile is at most 1.3 times the depth of the figure below its maximum."""
    share = np.linspace(0, 1, 4001)
    share = share[np.asarray(profile(share), float) >= -1.3 * _DEPTH]
    low, high = (share.min(), share.max()) if len(share) else (float(profile.estimate),) * 2
    return np.linspace(max(low - 3e-4, 0), min(high + 3e-4, 1), 400)


@canvas.no_axes
def plan_figure(
    num_categories: int,
    epsilon: float,
    num_users: float,
    *,
    target: float | None = None,
    design: Design | None = None,
    title: str = "",
) -> Figure:
    """Draws the expected root mean squared error of a share against N, for some ε, and against ε, for each mechanism.

    Errors are from the distribution that the users are drawn from (`rrjax.inference.expected_rmse`).

    Args:
        num_categories: K.
        epsilon: ε in nats; one of the curves on the left, and the vertical line on the right.
        num_users: N; the vertical line on the left, and the sample size on the right.
        target: An error to mark, or None.
        design: A survey design in place of randomized response, with its ε.
        title: Title above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Example:
        >>> from rrjax.figures import plan_figure
        >>> figure = plan_figure(100, epsilon=1.0, num_users=350_000, target=0.01)
    """
    from rrjax import RandomizedResponse, inference

    figure = canvas.new_figure(11, 4.4, title)
    left, right = figure.subplots(1, 2, sharey=True)
    users = np.geomspace(max(num_users / 300, 10), num_users * 300, 120)
    kind: MechanismFactory = RandomizedResponse if design is None else lambda *_: design
    factors = (1 / 4, 1 / 2, 1, 2, 4) if design is None else (1,)
    for place, value in enumerate(sorted(epsilon * factor for factor in factors)):
        error = float(inference.expected_rmse(num_categories, 1, value, mechanism=kind)) / np.sqrt(users)
        width = 2.2 if value == epsilon else 1.4
        left.plot(users, error, **line_at(place), linewidth=width, label=f"ε = {value:.4g}")
    left.axvline(num_users, color="0.5", linewidth=0.9, linestyle=":")
    left.set(xlabel="users, N", ylabel="expected root mean squared error of a share")
    name = "randomized response" if design is None else design.name.replace("-", " ")
    left.set_title(f"{name.capitalize()}, unbiased inversion", fontsize=10)

    centre = epsilon if np.isfinite(epsilon) else 1.0  # mechanisms of finite ε
    grid = np.geomspace(centre / 8, min(8 * centre, 30), 120)
    whole_users = max(round(num_users), 1)

    def errors(value: float) -> dict[str, float]:
        return {row.name: row.expected_rmse for row in inference.compare_mechanisms(num_categories, whole_users, value)}

    rows = [errors(value) for value in grid]
    for place, name in enumerate(errors(centre)):
        look = mechanism_line(name) | {"markevery": (2 * place, 16)}  # no two markers at one place
        right.plot(grid, [row[name] for row in rows], **look, linewidth=1.3, label=name)
    if design is not None and np.isfinite(epsilon):
        error = float(inference.expected_rmse(num_categories, whole_users, epsilon, mechanism=kind))
        right.plot([epsilon], [error], "o", color="black", label=design.name.replace("-", " "))
    if np.isfinite(epsilon):
        right.axvline(epsilon, color="0.5", linewidth=0.9, linestyle=":")
    right.set_xlabel("ε, nats")
    right.set_title(f"Unbiased estimates of {num_users:,.0f} users, by mechanism", fontsize=10)
    for axes in (left, right):
        _set_scales(axes)
        if target is not None:
            axes.axhline(target, color=RED, linewidth=0.9, linestyle="--", label="target")
        axes.legend(fontsize=7, labelspacing=0.3, loc="lower left")
    return figure


def _set_scales(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator

    axes.set(xscale="log", yscale="log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1e3 else (1,)))
    canvas.set_ticks(axes.xaxis, canvas.in_words if low > 1e-4 else canvas.as_power)
    canvas.set_share_ticks(axes.yaxis)
    canvas.set_grid(axes)


@canvas.no_axes
def splits_figure(num_categories: Sequence[int], epsilon: float, num_users: int, *, title: str = "") -> Figure:
    """Draws the expected errors of the ways to spend ε on several columns, against ε.

    On the left is the error of a share in a column, on the right that of a cell in the table of two columns, as from
    `rrjax.inference.compare_splits`. Dots mark the ε from which more columns are best. Up to five numbers of columns
    have a curve; all numbers count for the dots.

    Args:
        num_categories: `[d]`, K of each column, at least two columns.
        epsilon: Of everything that a user reports, nats; the vertical line.
        num_users: N, at least 1.
        title: Title above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ValueError: As `rrjax.inference.compare_splits`.

    Example:
        >>> from rrjax.figures import splits_figure
        >>> figure = splits_figure([4, 10, 16], epsilon=2.0, num_users=50_000)
    """
    from rrjax.inference import compare_splits
    from rrjax.inference.planning import LARGEST_COMPARED_EPSILON

    def by_number(epsilon: float) -> dict[int, SplitErrors]:
        """The errors by the number of columns that a user reports; 0 is one among fake answers."""
        rows = compare_splits(num_categories, num_users, epsilon)
        return {0 if row.name == "among fakes" else row.number: row for row in rows}

    given, number = by_number(epsilon), len(num_categories)
    words = {way: f"{way}, drawn at random" for way in given} | {0: "1, among fake answers", number: "all columns"}
    centre = min(epsilon, LARGEST_COMPARED_EPSILON)
    # To where all columns are best, beyond 1.3·log K + 1.25 for each of them.
    last = max(2 * centre, number * (3 + 1.5 * np.log(max(num_categories))))
    grid = np.geomspace(min(centre / 8, 0.5), last, 80 if number <= 8 else 40)
    rows = [by_number(value) for value in grid]
    drawn = np.unique(np.geomspace(1, number, min(number, MOST_NUMBERS)).round().astype(int)).tolist()

    figure = canvas.new_figure(11, 4.4, title)
    left, right = figure.subplots(1, 2)
    for axes, what in ((left, "share"), (right, "cell")):
        errors = {way: np.array([getattr(row[way], what) for row in rows]) for way in given}
        for place, way in enumerate([*drawn, 0]):
            if np.isfinite(errors[way]).all():
                axes.plot(grid, errors[way], **line_at(place), linewidth=1.6, label=words[way])
        _mark_crossovers(axes, grid, np.array([errors[way] for way in range(1, number + 1)]))
        axes.axvline(centre, color="0.5", linewidth=0.9, linestyle=":", label=f"ε = {epsilon:.4g}")
        _set_scales(axes)
        # A curve above 100 % tells nothing; the best at the given ε is always shown.
        axes.set_ylim(top=min(axes.get_ylim()[1], max(2, 2 * min(getattr(row, what) for row in given.values()))))
        axes.set_xlabel("ε of all that a user reports, nats")
        axes.legend(fontsize=8, title="a user reports", title_fontsize=8)
    left.set_ylabel("expected root mean squared error")
    left.set_title("Share in a column", fontsize=10)
    right.set_title("Cell in the table of two columns", fontsize=10)
    return figure


def _mark_crossovers(axes: Axes, grid: np.ndarray, errors: np.ndarray) -> None:
    """Marks where another number of columns is best; `errors` is `[d, ε]`."""
    best = np.argmin(errors, axis=0)
    places = np.flatnonzero(np.diff(best))
    for count, place in enumerate(places):
        before, after = best[place], best[place + 1]
        old, new = np.log(errors[[before, after], place : place + 2])
        part = (new - old)[0] / np.subtract(*(new - old))  # of the step, where the two are equal
        epsilon = grid[place] ** (1 - part) * grid[place + 1] ** part
        error = np.exp((1 - part) * old[0] + part * old[1])
        axes.plot([epsilon], [error], "o", color="black", markersize=4.5, zorder=3)
        if len(places) <= _MOST_WORDS or count in (0, len(places) - 1):
            text, offset = f"{after + 1} from ε = {epsilon:.2g}", (-4, -4)
            axes.annotate(text, (epsilon, error), offset, textcoords="offset points", ha="right", va="top", fontsize=8)
    if len(places):
        axes.plot([], [], "o", color="black", markersize=4.5, label="more columns are best from here")
