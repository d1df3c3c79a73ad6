"""The likelihood itself: curves and the triangle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

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
        The figure; `figure.savefig(path)` writes it.

    Raises:
        ValueError: As many labels as categories are needed.

    Example:
        >>> import rrjax
        >>> from rrjax.plots import likelihood_figure
        >>> surface = rrjax.inference.log_likelihood_surface([620, 380], epsilon=1.0)
        >>> figure = likelihood_figure(surface, ["yes", "no"])
    """
    from matplotlib.figure import Figure

    theta = np.asarray(surface.theta, float)
    names = [str(label) for label in labels] or [str(number) for number in range(theta.shape[1])]
    if len(names) != theta.shape[1]:
        raise ValueError(f"there are {theta.shape[1]} categories and {len(names)} labels")
    figure = Figure(figsize=(6.2, 4.2 if len(names) == 2 else 5.4), layout="constrained")
    axes = figure.subplots()
    draw = _curve if len(names) == 2 else _triangle
    draw(axes, theta, surface, names, f"{100 * level:g} % likelihood-ratio {'band' if len(names) == 2 else 'region'}")
    if title:
        axes.set_title(title, fontsize=10, pad=6 if len(names) == 2 else 22)
    return figure


def _curve(axes: Axes, theta: np.ndarray, surface: Surface, names: list[str], region: str) -> None:
    from matplotlib.ticker import PercentFormatter

    value, inside = np.asarray(surface.log_likelihood, float), np.asarray(surface.inside)
    share = theta[:, 0]
    axes.plot(share, value, color="#1b4f8a", label="log-likelihood")
    axes.axvline(float(surface.estimate[0]), color="0.4", linestyle=":", linewidth=1, label="maximum (MLE*)")
    if inside.any():
        axes.axvspan(share[inside].min(), share[inside].max(), color="#dde8f5", zorder=0, label=region)
        axes.axhline(value[inside].min(), color="0.6", linewidth=0.8, linestyle="--")
    axes.set_ylim(-_SHOWN, 0.5)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.set_xlabel(f"share of users with {names[0]}")
    axes.set_ylabel("log-likelihood below its maximum, nats")
    axes.grid(color="0.93")
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
        bound = value[inside].min()
        axes.tricontour(x, y, value, levels=[bound], colors="#c4572f", linewidths=1.4)
    axes.plot(*np.vstack([corners, corners[:1]]).T, color="0.3", linewidth=1)
    best = np.asarray(surface.estimate, float) @ corners
    axes.plot(*best, "o", color="#c4572f", markersize=5)
    for (cx, cy), name, place in zip(corners.tolist(), names, ("top", "top", "bottom"), strict=True):
        axes.annotate(
            name, (cx, cy), (0, -6 if place == "top" else 5), textcoords="offset points", ha="center", va=place
        )
    axes.legend(
        handles=[
            Line2D([], [], color="#c4572f", label=region),
            Line2D([], [], color="#c4572f", marker="o", linestyle="", label="maximum (MLE*)"),
        ],
        fontsize=8,
        loc="upper left",
    )
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
        The figure; `figure.savefig(path)` writes it.

    Example:
        >>> import rrjax
        >>> from rrjax.plots import profile_figure
        >>> counts = [5_200, 2_900, 1_000, 900]
        >>> figure = profile_figure({name: rrjax.inference.profile(counts, 2.0, i) for i, name in enumerate("abcd")})
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    colours = ("#1b4f8a", "#c4572f", "#4a8f5b", "#8a5a9e", "#7a6a2f")
    for number, (name, profile) in enumerate(profiles.items()):
        colour = colours[number % len(colours)]
        share = _where_it_matters(profile)
        axes.plot(share, np.asarray(profile(share), float), color=colour, label=name, linestyle=("-", "--")[number % 2])
        if limits is not None and name in limits:
            low, high = limits[name]
            axes.plot(
                [low, high], [-_SHOWN * 0.9 - 0.3 * number] * 2, color=colour, linewidth=2.5, solid_capstyle="butt"
            )
    axes.axhline(-_HALF_QUANTILE, color="0.6", linewidth=0.8, linestyle="--", label="half the 95 % quantile of χ²")
    axes.set_ylim(-_SHOWN - 0.3 * len(profiles) * (limits is not None), 0.5)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.set_xlabel("share of users" + ("" if limits is None else " (bars: exact intervals)"))
    axes.set_ylabel("profile log-likelihood, nats")
    axes.grid(color="0.93")
    figure.legend(fontsize=8, loc="outside right upper")
    if title:
        axes.set_title(title, fontsize=10)
    return figure


def _where_it_matters(profile: ProfileLikelihood) -> np.ndarray:
    """Shares between which the profile is not too far below its maximum."""
    share = np.linspace(0, 1, 4001)
    share = share[np.asarray(profile(share), float) >= -1.3 * _SHOWN]
    low, high = (share.min(), share.max()) if len(share) else (float(profile.estimate),) * 2
    return np.linspace(max(low - 3e-4, 0), min(high + 3e-4, 1), 400)
