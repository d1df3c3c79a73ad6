"""Estimates of several parts of a collection side by side, such as rounds or groups, and of all of them together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

import rrjax
from rrjax.cli import show
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Tally
from rrjax.estimators.whole_reports import errors_of_whole_reports
from rrjax.reports import form
from rrjax.reports.epsilon import LARGEST_EPSILON, SMALLEST_EPSILON
from rrjax.reports.estimates import largest_of


@dataclasses.dataclass(frozen=True)
class Together:
    """The estimate from the reports of all parts together."""

    theta: np.ndarray
    standard_error: np.ndarray
    num_users: int

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The interval of each share by the normal approximation, within [0, 1]."""
        half = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        return np.maximum(self.theta - half, 0), np.minimum(self.theta + half, 1)


def estimated_together(mixture: Mixture, shares: np.ndarray, variance: float, num_users: int) -> Together:
    """Empirical Bayes from the likelihood of all whole reports, expanded at an unbiased estimate of the shares.

    The estimate is handed on as counts of randomized response, at an ε that has its error: at a smaller one the prior
    would move it further than the likelihood can move it back.

    Args:
        mixture: The likelihood.
        shares: `[K]`, unbiased, which may be negative.
        variance: That of one of these shares if all are equal, times the number of users.
        num_users: Their number.
    """
    size = len(shares)
    low, high = SMALLEST_EPSILON, LARGEST_EPSILON
    for _ in range(60):
        middle = math.sqrt(low * high)
        noisy = rrjax.RandomizedResponse(size, middle).weights(math.expm1).variance(1 / size) > variance
        low, high = (middle, high) if noisy else (low, middle)
    rates = rrjax.RandomizedResponse(size, high).weights(math.expm1)
    rate = np.clip(rates.q + rates.d * shares, 0, 1)
    tally = Tally(
        np.rint(rate * num_users).astype(np.int32),
        np.int32(num_users),
        rates=rrjax.RandomizedResponse(size, high).rates,
    )
    theta = rrjax.empirical_bayes(tally, mixture=mixture).theta
    return Together(np.asarray(theta), np.asarray(errors_of_whole_reports(theta, mixture)), num_users)


def top_rows(labels: np.ndarray, columns: Mapping[str, np.ndarray], by: np.ndarray, top: int) -> list[dict[str, Any]]:
    """The largest categories, as JSON objects."""
    return [
        {"label": str(labels[place])} | {name: float(each[place]) for name, each in columns.items()}
        for place in largest_of(by, top)
    ]


def show_side_by_side(
    labels: np.ndarray,
    parts: Mapping[str, np.ndarray],
    of_all: Mapping[str, Together],
    beside: Mapping[str, np.ndarray],
    by: np.ndarray,
    level: float,
    top: int,
) -> None:
    """Prints a table of the largest categories: parts, all together with its interval, and what stands beside it."""
    titles = [*parts, *(title for name in of_all for title in (name, form.interval(level))), *beside]
    table = show.table("category", *titles, max_width=40)
    limits = {name: each.interval(level) for name, each in of_all.items()}
    for place in largest_of(by, top):
        cells = [form.printable(labels[place]), *(form.share(each[place]) for each in parts.values())]
        for name, each in of_all.items():
            low, high = limits[name]
            cells += [form.share(each.theta[place]), form.between(low[place], high[place])]
        table.add_row(*cells, *(form.share(each[place]) for each in beside.values()))
    show.show_table(table)
    left = len(labels) - min(top, len(labels))
    if left:
        show.say(f"… and {form.number(left, 'more category', 'more categories')}", style="dim")
