"""Intervals of all shares, which categories are significantly above zero, and how many fakes would overturn that."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from rrjax import inference
from rrjax.data.errors import option, refusal
from rrjax.data.tally import num_tests, support_data
from rrjax.reports import form
from rrjax.reports.reports import Reports
from rrjax.reports.testing import check_contradictions

TUNED_TO = 10_000
"""Number of users at which intervals for any time are narrow, unless another one is given."""

ANY_TIME = "at all numbers of users together: the reports may be read again whenever some are added."


def tuned_of(looks: str | None, tuned_to: float | None, others: Mapping[str, object]) -> float | None:
    """The number of users to which intervals for any number of looks are tuned; None for a single look.

    `others` are arguments that do not go with them.
    """
    any_time = option('looks="any"', "--at-any-time")
    odd = next((name for name, value in others.items() if value), None)
    if odd is not None and looks is not None:
        problem = f"{option(odd)} does not apply to {any_time}: leave one of the two out"
        raise refusal(odd, problem, value=others[odd])
    if looks not in (None, "any"):
        raise refusal("looks", f"{option('looks')} is None or 'any', got {looks!r}", value=looks)
    if looks is None and tuned_to is not None:
        problem = f"{option('tuned_to')} applies to {any_time} only: give both, or leave it out"
        raise refusal("tuned_to", problem, value=tuned_to)
    return None if looks is None else TUNED_TO if tuned_to is None else tuned_to


@dataclasses.dataclass(frozen=True)
class ShareIntervals:
    """Exact intervals of all shares, and which categories are significantly above zero."""

    level: float
    fdr: float
    at_once: bool
    lower: np.ndarray
    """`[K]`, lower limits of the shares; NaN without an interval."""
    upper: np.ndarray
    discovered: np.ndarray
    """`[K]`, which categories are significantly above zero, at the false discovery rate."""
    num_tests: int
    """Number of categories that say something of their own: one of two, whose shares add up to one."""
    tuned_to: float | None = None
    """Of intervals that hold at any time, the number of users for which they are narrow; None for a single look."""

    def misses(self, theta: np.ndarray) -> np.ndarray:
        """Which shares of an estimate lie outside their intervals, by more than rounding."""
        slack = 1e-9
        return (theta < self.lower - slack) | (theta > self.upper + slack)

    @property
    def simultaneous(self) -> bool:
        """Whether all intervals hold together at their level."""
        return self.at_once or self.num_tests == 1

    @property
    def contradicted(self) -> np.ndarray:
        """Which categories have no interval, because no share explains so few or so many reports."""
        return np.isnan(self.lower)

    @property
    def title(self) -> str:
        """The heading of their column."""
        return form.interval(self.level)


def share_intervals(
    reports: Reports, level: float, fdr: float, at_once: bool, tuned_to: float | None = None
) -> ShareIntervals:
    """Computes exact intervals and discoveries; adds warnings to the reports if no share explains its reports."""
    given = reports.support_arguments
    lower, upper = share_limits(reports, level, at_once, tuned_to)
    if tuned_to is None:
        discovered = np.asarray(inference.discoveries(*given, fdr, dependence=reports.mechanism.dependence))
    else:  # no empty category is ever marked, with probability 1 − fdr, which is more than a false discovery rate
        discovered = share_limits(reports, 1 - fdr, True, tuned_to)[0] > 0
    check_contradictions(reports)
    number = int(num_tests(support_data(*given)))
    return ShareIntervals(level, fdr, at_once, lower, upper, discovered, number, tuned_to)


def share_limits(
    reports: Reports, level: float, at_once: bool = True, tuned_to: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The limits of all shares, `[K]` each, which hold together unless `at_once` is false."""
    how: Any = {"simultaneous": "bonferroni" if at_once else None}
    how |= {} if tuned_to is None else {"looks": "any", "tuned_to": tuned_to}
    with jax.enable_x64(True):
        limits = inference.intervals(*reports.support_arguments, level, **how)
    return np.asarray(limits.lower), np.asarray(limits.upper)


def fakes_of(reports: Reports, intervals: ShareIntervals, places: np.ndarray | None = None) -> np.ndarray:
    """How many fake reports would overturn the marks of some categories, or their absence; −1 if none would.

    The other marks are taken as they are. Then the step-up method marks a category if its p-value is at most a multiple
    of its rank: the number of marked ones or, of a category without a mark, one more.
    """
    size, marked, again = reports.num_categories, intervals.discovered, None
    if places is None and reports.design is None:  # of equal rates, the result depends on the count alone
        _, places, again = np.unique(reports.counts, return_index=True, return_inverse=True)
    places = np.arange(size) if places is None else places
    harmonic = (1 / np.arange(1, size + 1)).sum() if reports.mechanism.dependence == "any" else 1.0
    ranks = max(int(marked.sum()), 1), min(int(marked.sum()) + 1, size)
    with jax.enable_x64(True):
        levels = [1 - intervals.fdr * rank / size / harmonic for rank in ranks]
        fakes = [inference.fakes_to_overturn(*reports.support_arguments, places, level=level) for level in levels]
    numbers = np.where(marked[places], *(np.asarray(each.number) for each in fakes))
    return numbers if again is None else numbers[again]
