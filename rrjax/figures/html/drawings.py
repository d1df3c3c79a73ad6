"""SVG drawings that stretch with the page, with labels of a fixed size next to them.

Coordinates are thousandths of the width and of the height; strokes keep their width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rrjax.figures.html.page import Markup, markup

_SIZE = 1000
_MOST_BARS_WITH_GAPS = 40


class Tick(NamedTuple):
    """A label of an axis."""

    place: float
    """Place on the axis, from 0 to 1."""
    text: str


def ticks(end: float, most: int = 5) -> list[float]:
    """Round numbers from zero to at most an end.

    Example:
        >>> from rrjax.figures.html import ticks
        >>> ticks(0.33)
        [0.0, 0.1, 0.2, 0.3]
    """
    if not (math.isfinite(end) and end > 0):
        return [0.0]
    step = round_step(end, most)
    return [float(f"{number * step:.6g}") for number in range(int(end / step * (1 + 1e-9)) + 1)]


def round_step(span: float, most: int) -> float:
    """The smallest step, 1, 2 or 5 times a power of ten, with at most `most` steps in a span.

    Example:
        >>> from rrjax.figures.html import round_step
        >>> round_step(17_034, 40)
        500.0
    """
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if span / (power * factor) <= most)


def strip(value: float, lower: float, upper: float, end: float) -> Markup:
    """A number as a stroke on its interval, a bar, along an axis from zero to an end."""
    low, high = (_at(limit, end) for limit in (lower, upper))
    bar = f'<path class="span" d="M{low:g} 5H{high:g}"/>' if high > low else ""
    place = _at(value, end)
    return Markup(
        f'<svg class="strip" viewBox="0 0 {_SIZE} 10" preserveAspectRatio="none" aria-hidden="true">{bar}'
        f'<path class="mark" d="M{place:g} 0V10"/></svg>'
    )


def profile(
    values: np.ndarray, limits: tuple[np.ndarray, np.ndarray] | None, across: Iterable[Tick], words: str
) -> Markup:
    """Shares in order, side by side: strokes on their intervals, which are bars."""
    from rrjax.figures.axes import per_cent

    number = len(values)
    end = float(max(np.max(values), np.nanmax(limits[1], initial=0) if limits else 0, 1e-12)) * 1.04
    up = [Tick(share / end, per_cent(share)) for share in ticks(end, 6)]
    lines = "".join(f"M0 {_down(tick.place):g}H{_SIZE}" for tick in up if tick.place)
    gap = 0.0 if number > _MOST_BARS_WITH_GAPS else 0.12
    sides = [(round(_SIZE * (k + gap) / number, 2), round(_SIZE * (k + 1 - gap) / number, 2)) for k in range(number)]
    drawn = [f'<path class="line" d="{lines}"/>'] if lines else []
    if limits is not None:
        drawn.append(f'<path class="box" d="{_boxes(sides, *limits, end)}"/>')
    strokes = "".join(
        f"M{left:g} {_down(_share(value, end)):g}H{right:g}" for (left, right), value in zip(sides, values, strict=True)
    )
    drawn.append(f'<path class="mark" d="{strokes}"/>')
    return Markup(
        f'<div class="plot" role="img" aria-label="{markup(words)}">'
        f'<div class="up">{_labels("bottom", up)}</div>'
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none" aria-hidden="true">{"".join(drawn)}</svg>'
        f'<div class="across">{_labels("left", across)}</div></div>'
    )


def _boxes(sides: Sequence[tuple[float, float]], lower: np.ndarray, upper: np.ndarray, end: float) -> str:
    parts = []
    for (left, right), low, high in zip(sides, lower, upper, strict=True):
        bottom, top = _down(_share(low, end)), _down(_share(high, end))
        if bottom > top:
            parts.append(f"M{left:g} {bottom:g}H{right:g}V{top:g}H{left:g}Z")
    return "".join(parts)


def _labels(side: str, labels: Iterable[Tick]) -> str:
    return "".join(f'<span style="{side}:{100 * tick.place:.4g}%">{markup(tick.text)}</span>' for tick in labels)


def _share(value: float, end: float) -> float:
    """The place of a value on an axis from 0 to `end`, in [0, 1]; NaN is at 0."""
    return min(max(float(value) / end, 0.0), 1.0) if value == value and end > 0 else 0.0


def _at(value: float, end: float) -> float:
    return round(_SIZE * _share(value, end), 1)


def _down(place: float) -> float:
    """The vertical coordinate, which SVG counts from the top."""
    return round(_SIZE * (1 - place), 1)
