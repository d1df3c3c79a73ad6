"""The drawing of all categories in their order, or of bands if there are many."""

from __future__ import annotations

from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from rrjax import inference
from rrjax.data.tally import Tally
from rrjax.figures import html
from rrjax.figures.html import Markup, Tick
from rrjax.inference.functionals import group_rates
from rrjax.reports import form
from rrjax.reports.pages.parts import cut, label
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import Reports
from rrjax.reports.shares import Shares

MOST_SINGLE = 120
"""Limit of the number of ordered categories that are drawn one by one; more are drawn in bands."""
NUM_BANDS = 40
MOST_IN_DRAWING = 14
"""Limit of the number of characters of a name below a drawing."""


def in_order(shares: Shares, ordered: bool) -> list[Markup]:
    """All categories in order, or bands if there are many; nothing if the order means nothing."""
    reports, intervals = shares.reports, shares.intervals
    labels, size = reports.labels, reports.num_categories
    if not (reports.counted.domain.is_range or ordered):
        return []
    caption = " to ".join(cut(labels[place], MOST_IN_DRAWING) for place in (0, -1))
    if size <= MOST_SINGLE:
        edges, values, limits, what = np.arange(size + 1), shares.estimate.theta, shares.limits, "category"
        caption = f"Every category, from {caption}. "
    else:
        edges, values, limits = _bands(reports, intervals.level)
        what = "band"
        caption = f"All {size:,} categories, from {caption}, in {len(values)} bands, each estimated by itself. "
    numbers, columns = [[form.share(value)] for value in values], [what, "share"]
    if limits is None:
        caption += "A stroke is an estimate; for this mechanism there are no exact intervals of bands."
    else:
        numbers = [[*row, form.between(*both)] for row, *both in zip(numbers, *limits, strict=True)]
        columns.append(intervals.title)
        caption += (
            "A stroke is an estimate, the bar behind it its interval; the intervals are simultaneous, with "
            f"{form.in_full(intervals.level)} confidence."
        )
    ends = [[labels[place] for place in dict.fromkeys((first, after - 1))] for first, after in pairwise(edges)]
    most = int(np.argmax(values))
    words = f"The largest {what}: {' – '.join(map(cut, ends[most]))}, {', '.join(numbers[most])}."
    words = f"{caption} {words} All numbers are in the table below."
    rows = [[Markup(" – ".join(map(label, name))), *row] for name, row in zip(ends, numbers, strict=True)]
    whole = html.table(columns, rows, f"Shares by {what}, in their order")
    drawing = html.profile(np.asarray(values), limits, _across(reports), words)
    return [html.figure("in-order", drawing, caption), html.details("The numbers of this figure", whole)]


def _across(reports: Reports) -> list[Tick]:
    """A few labels below the drawing; at round numbers if the categories are integers."""
    domain, size = reports.counted.domain, reports.num_categories
    first, step = 0, -(-size // 4)
    if domain.is_range:
        first, last = domain.ends
        step = max(int(html.round_step(size, 6 if len(str(last)) < 6 else 3)), 1)
    places = range(-(-first // step) * step - first, size, step)
    return [Tick((place + 0.5) / size, cut(reports.labels[place], MOST_IN_DRAWING)) for place in places]


@in_float64
def _bands(reports: Reports, level: float) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """The first categories of the bands, and K; their shares; exact simultaneous limits, or None without."""
    domain, size, number, rates = reports.counted.domain, reports.num_categories, reports.num_reports, reports.rates
    edges = np.linspace(0, size, NUM_BANDS + 1).astype(int)
    if domain.is_range:  # bands begin at round numbers
        first, last = domain.ends
        width = int(html.round_step(size, NUM_BANDS))
        edges = np.unique([0, *(edge - first for edge in range(width * (first // width + 1), last + 1, width)), size])
    by_chance = np.add.reduceat(np.broadcast_to(rates.q, size), edges[:-1])
    support = np.add.reduceat(np.asarray(reports.counts, np.int64), edges[:-1])
    values = np.clip((support / number - by_chance) / rates.d, 0, 1)
    if reports.tallied is not None:
        return edges, values, None
    of_bands = group_rates(reports.mechanism.rates, jnp.asarray(np.diff(edges)))
    tally = Tally(jnp.asarray(support), jnp.asarray(number), rates=of_bands)
    lower, upper = inference.intervals(tally, level=level, simultaneous="bonferroni")
    return edges, values, (np.asarray(lower), np.asarray(upper))
