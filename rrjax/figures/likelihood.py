"""The likelihood itself: curves and the triangle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.axes import new_figure, set_grid, set_share_ticks
from rrjax.figures.style import BLUE, COLOURS, PALE_BLUE, RED, estimator_title, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rrjax.inference import ProfileLikelihood, Surface

_SHOWN = 12.0
"""Nats below the maximum that a figure shows."""
_HALF_QUANTILE = 1.9207
"""Half the 0.95 quantile of χ² with one degree of freedom."""


def likelihood_figure(
    surface: Surface, labels: Sequence[object] = (), *, level: float = 0.95, title: str = ""
) -> Figure:
    """Draws the log-likelihood of two categories as a curve, of three over the triangle of their shares.

    Args:
        surface: What `rrjax.inference.log_likelihood_surface` returned.
        labels: The names of the categories; their numbers by default.
        level: Of the likelihood-ratio region, as the surface was made with; it is only named here.
        title: Above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Raises:
        ArgumentError: As many labels as categories are needed.

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
    draw, height, pad, kind = (_curve, 4.2, 6, "band") if len(names) == 2 else (_triangle, 5.4, 22, "region")
    figure = new_figure(6.2, height)
    axes = figure.subplots()
    draw(axes, theta, surface, names, f"{100 * level:g} % likelihood-ratio {kind}")
    if title:
        axes.set_title(shortened(title, 300), fontsize=10, pad=pad)
    return figure


def _maximum() -> str:
    return f"maximum ({estimator_title('mle_star')})"


def _curve(axes: Axes, theta: np.ndarray, surface: Surface, names: list[str], region: str) -> None:
    value, inside = np.asarray(surface.log_likelihood, float), np.asarray(surface.inside)
    share = theta[:, 0]
    axes.plot(share, value, color=BLUE, label="log-likelihood")
    axes.axvline(float(surface.estimate[0]), color="0.4", linestyle=":", linewidth=1, label=_maximum())
    if inside.any():
        axes.axvspan(share[inside].min(), share[inside].max(), color=PALE_BLUE, zorder=0, label=region)
        axes.axhline(value[inside].min(), color="0.6", linewidth=0.8, linestyle="--")
    axes.set_ylim(-_SHOWN, 0.5)
    set_share_ticks(axes.xaxis)
    axes.set(xlabel=f"share of users with {names[0]}", ylabel="log-likelihood below its maximum, nats")
    set_grid(axes)
    axes.legend(fontsize=8, loc="lower center")


def _triangle(axes: Axes, theta: np.ndarray, surface: Surface, names: list[str], region: str) -> None:
    from matplotlib.lines import Line2D

    corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])
    value = np.maximum(np.asarray(surface.log_likelihood, float), -_SHOWN)
    x, y = (theta @ corners).T
    filled = axes.tricontourf(x, y, value, levels=np.linspace(-_SHOWN, 0, 13), cmap="Blues")
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
        Line2D([], [], color=RED, marker="o", linestyle="", label=_maximum()),
    ]
    axes.legend(handles=handles, fontsize=8, loc="upper left")
    axes.set_aspect("equal")
    axes.axis("off")


def profile_figure(
    profiles: Mapping[str, ProfileLikelihood],
    *,
    limits: Mapping[str, tuple[float, float]] | None = None,
    title: str = "",
) -> Figure:
    """Draws profile log-likelihoods, one curve a category.

    Args:
        profiles: Name → what `rrjax.inference.profile` returned.
        limits: Name → limits of the share, such as those of `rrjax.inference.intervals`; drawn under the curves,
            because where the curve falls by the dashed line is no valid interval near the boundary.
        title: Above the figure.

    Returns:
        The figure; `rrjax.figures.save(figure, path)` writes it.

    Example:
        >>> import rrjax
        >>> from rrjax.figures import profile_figure
        >>> counts = [5_200, 2_900, 1_000, 900]
        >>> figure = profile_figure({name: rrjax.inference.profile(counts, 2.0, i) for i, name in enumerate("abcd")})
    """
    figure = new_figure(7.2, 4.4)
    axes = figure.subplots()
    for number, (name, profile) in enumerate(profiles.items()):
        colour = COLOURS[number % len(COLOURS)]
        share = _where_it_matters(profile)
        axes.plot(
            share,
            np.asarray(profile(share), float),
            color=colour,
            label=shortened(name, 60),
            linestyle=("-", "--")[number % 2],
        )
        if limits is not None and name in limits:
            height = -_SHOWN * 0.9 - 0.3 * number
            axes.plot(limits[name], [height, height], color=colour, linewidth=2.5, solid_capstyle="butt")
    axes.axhline(-_HALF_QUANTILE, color="0.6", linewidth=0.8, linestyle="--", label="half the 95 % quantile of χ²")
    axes.set_ylim(-_SHOWN - 0.3 * len(profiles) * (limits is not None), 0.5)
    set_share_ticks(axes.xaxis)
    bars = "" if limits is None else " (bars: exact intervals)"
    axes.set(xlabel=f"share of users{bars}", ylabel="profile log-likelihood, nats")
    set_grid(axes)
    figure.legend(fontsize=8, loc="outside right upper")
    if title:
        axes.set_title(shortened(title, 300), fontsize=10)
    return figure


def _where_it_matters(profile: ProfileLikelihood) -> np.ndarray:
    """Shares between which the profile is not too far below its maximum."""
    share = np.linspace(0, 1, 4001)
    share = share[np.asarray(profile(share), float) >= -1.3 * _SHOWN]
    low, high = (share.min(), share.max()) if len(share) else (float(profile.estimate),) * 2
    return np.linspace(max(low - 3e-4, 0), min(high + 3e-4, 1), 400)
