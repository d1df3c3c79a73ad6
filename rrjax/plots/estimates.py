"""Estimates of one distribution, with what is known of every share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Told apart in grey by shape and by dash.
_MARKS = ("o", "s", "^", "D", "x")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_COLOURS = ("#1b4f8a", "#c4572f", "#4a8f5b", "#8a5a9e", "#7a6a2f")


def estimate_figure(
    labels: Sequence[object] | np.ndarray,
    estimates: Mapping[str, np.ndarray],
    *,
    standard_error: float,
    truth: np.ndarray | None = None,
    limits: tuple[np.ndarray, np.ndarray] | None = None,
    limits_label: str = "interval",
    found: np.ndarray | None = None,
    top: int = 20,
    title: str = "",
) -> Figure:
    """Draws estimates of one distribution: the largest categories, and all of them by rank.

    Args:
        labels: `[K]`, the names of the categories.
        estimates: Name → `[K]`, shares; the first one decides the order.
        standard_error: Of the unbiased estimate of a category that nobody holds
            (`RandomizedResponse.standard_error`); drawn as a band, below which a share cannot be told from zero.
        truth: `[K]`, the true shares, where they are known.
        limits: Two arrays `[K]`, such as `rrjax.inference.intervals` returns; drawn as error bars.
        limits_label: What to call them.
        found: `[K]`, which categories are there (`rrjax.inference.discoveries`): their names are drawn bold.
        top: How many of the largest categories to draw.
        title: Above the figure.

    Raises:
        ValueError: Labels, estimates, truth, limits and found are not of one length.

    Returns:
        The figure; `figure.savefig(path)` writes it.

    Example:
        >>> import numpy as np, rrjax
        >>> from rrjax.plots import estimate_figure
        >>> theta = np.asarray(rrjax.mle_star([60, 20, 10, 10], 1.0))
        >>> figure = estimate_figure("abcd", {"MLE*": theta}, standard_error=0.2)
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

    estimates = {name: np.asarray(theta) for name, theta in estimates.items()}
    first = next(iter(estimates.values()))
    truth = None if truth is None else np.asarray(truth)
    given: dict[str, Any] = {**estimates, "labels": labels, "truth": truth, "found": found}
    if limits is not None:
        given |= {"the lower limits": limits[0], "the upper limits": limits[1]}
    for name, shares in given.items():
        if shares is None:
            continue
        if len(shares) != len(first):
            raise ValueError(
                f"all of one length, please: {len(first)} categories in the first estimate, {name} has {len(shares)}"
            )
    top = min(top, len(first))
    largest = np.argsort(-first, kind="stable")[:top]
    figure = Figure(figsize=(11, 1.9 + 0.24 * top), layout="constrained")
    left, right = figure.subplots(1, 2)
    if title:
        figure.suptitle(title, fontsize=11)

    place = np.arange(top)
    left.axvspan(-2 * standard_error, 2 * standard_error, color="#dde8f5", zorder=0)
    if truth is not None:
        left.barh(place, truth[largest], height=0.75, color="0.72", zorder=1, label="truth")
    if limits is not None:
        lower, upper = (np.asarray(limit)[largest] for limit in limits)
        left.hlines(place, lower, upper, color="0.35", linewidth=1.4, zorder=2, label=limits_label)
        for ends in (lower, upper):
            left.plot(ends, place, "|", color="0.35", markersize=7, zorder=2)
    spread = np.linspace(-0.22, 0.22, len(estimates)) if len(estimates) > 1 else [0.0]
    for (name, theta), shift, mark, colour in zip(estimates.items(), spread, _MARKS, _COLOURS, strict=False):
        face = colour if theta is first else "white"
        left.plot(
            theta[largest],
            place + shift,
            mark,
            color=colour,
            markerfacecolor=face,
            markersize=5,
            zorder=3,
            label=name,
        )
    left.set_yticks(place, [shortened(labels[index]) for index in largest])
    if found is not None:
        for text, index in zip(left.get_yticklabels(), largest, strict=True):
            text.set_fontweight("bold" if found[index] else "normal")
            text.set_color("black" if found[index] else "0.45")
    left.set_ylim(top - 0.4, -0.6)
    left.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    left.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    bold = "" if found is None else "; bold: it is there"
    left.set_xlabel(f"share of users\n(blue band: ±2 standard errors of an absent category{bold})")
    left.set_title(
        f"The {top} largest of {len(first):,} categories" if top < len(first) else "All categories", fontsize=10
    )
    left.set_axisbelow(True)
    left.grid(axis="x", color="0.93")
    left.legend(fontsize=8, loc="best")

    if truth is not None:
        _ranked(right, truth, color="0.72", linewidth=4, label="truth")
    for (name, theta), dash, colour in zip(estimates.items(), _DASHES, _COLOURS, strict=False):
        _ranked(right, theta, color=colour, linestyle=dash, linewidth=1.6, label=name)
    right.axhline(2 * standard_error, color="0.4", linewidth=0.8, linestyle=":", label="2 standard errors")
    right.set_xscale("log")
    right.set_yscale("log")
    right.xaxis.set_major_formatter(FuncFormatter(lambda rank, _: f"{rank:,.0f}"))
    right.xaxis.set_minor_formatter(NullFormatter())
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    right.yaxis.set_minor_formatter(NullFormatter())
    right.set_xlabel("rank (every curve by its own order)")
    right.set_ylabel("share of users")
    right.set_title("All categories, by rank", fontsize=10)
    right.grid(color="0.93")
    right.legend(fontsize=8, loc="upper right")
    return figure


def _ranked(axes, theta, **style):
    positive = np.sort(theta[theta > 0])[::-1]
    # A million points look like a few thousand, log-spaced, and weigh as much less.
    rank = np.unique(np.geomspace(1, max(len(positive), 1), 2000).astype(int))
    if len(positive) < 50:
        style |= {"marker": ".", "markersize": 4}
    axes.plot(rank[: len(positive)], positive[rank[: len(positive)] - 1], **style)


def shortened(label: object, width: int = 24) -> str:
    """Makes a label what a figure can show: printable, escaped, and not too long.

    Args:
        label: Anything with a text.
        width: The most characters it may have.

    Returns:
        The text.

    Example:
        >>> from rrjax.plots import shortened
        >>> shortened("a very long label", width=8)
        'a very …'
    """
    text = "".join(c if c.isprintable() else "?" for c in str(label)).replace("$", r"\$")
    return text if len(text) <= width else text[: width - 1] + "…"
