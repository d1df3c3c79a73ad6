"""Estimates of the shares of all categories, and their intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import rrjax
from rrjax import inference
from rrjax.data.errors import ArgumentError, option, refusal
from rrjax.data.tally import evidence, num_tests
from rrjax.estimators.catalogue import ESTIMATORS, METRICS, Estimator
from rrjax.estimators.names import MAXIMIZER
from rrjax.io.tallies import MAX_CELLS
from rrjax.reports import form
from rrjax.reports.answer import Cells, rest_of, rows_of_table, table_of
from rrjax.reports.reports import Reports
from rrjax.reports.testing import check_contradictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIMPLEX_TOLERANCE = {"float64": 1e-9, "float32": 1e-6}
"""Limit of the distance of a distribution from the simplex, which rounding explains."""
ESTIMATOR_FLAG = "--estimator"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimate of one estimator, with its likelihood."""

    estimator: Estimator
    theta: np.ndarray
    """`[K]`, shares in [0, 1] where it is a distribution."""
    nll: float
    """Negative log-likelihood, nats per report; NaN if it cannot be computed or the estimate is not a distribution."""
    certificate: dict[str, float]
    """Bounds on its distance from the maximum likelihood, NaN as `nll` is; and its distance from the simplex."""
    note: str
    """An explanation that follows its title and a colon."""
    caution: str
    """A warning against a wrong reading, if it needs one."""
    undetermined: bool = False
    """Whether the reports hardly determine it, so that it rests on general assumptions."""

    @property
    def title(self) -> str:
        """Its name in tables."""
        return self.estimator.title

    @property
    def num_positive(self) -> int:
        """The number of categories with a positive share."""
        return int((self.theta > 0).sum())

    @property
    def proper(self) -> bool:
        """Whether it is a distribution: shares of at least zero that sum to one, up to rounding."""
        return bool(max(abs(self.theta.sum() - 1), -self.theta.min()) <= SIMPLEX_TOLERANCE[self.theta.dtype.name])

    def measured(self, metric: str, value: Any) -> float:
        """The value of a metric of the catalogue; NaN if it is defined for distributions only and this is none."""
        return float(value) if self.proper or not METRICS[metric].simplex else math.nan

    def facts(self) -> dict[str, Any]:
        return {
            "estimator": self.estimator.name,
            "num_positive": self.num_positive,
            "nll": self.nll,
            "certificate": self.certificate,
        }


def check_estimator(name: str, argument: str = "estimator") -> None:
    """Refuses a name that is not in the catalogue."""
    if name not in ESTIMATORS:
        problem = f"{option(argument, ESTIMATOR_FLAG)} must be one of {', '.join(ESTIMATORS)}; got {name!r}"
        raise refusal(argument, problem, flag=ESTIMATOR_FLAG, value=name)


def estimated(reports: Reports, name: str, argument: str = "estimator") -> Estimate:
    """Runs one estimator of the catalogue, with key 0 if it needs one; `argument` is what it was named with."""
    entry = ESTIMATORS[name]
    given, joint = reports.arguments_for(entry), reports.likelihood_arguments
    if given is None:
        called, others = option(argument, ESTIMATOR_FLAG), ESTIMATORS.values()
        able = ", ".join(other.name for other in others if other.needs == "tally" and not other.by_name)
        problem = f"needs the likelihood of whole reports; {too_large(reports)}. Choose one of {able}"
        if entry.needs == "counts":
            problem = (
                f"is for {rrjax.RandomizedResponse.name} only; {reports.name} was made by {reports.mechanism.name}. "
                f"For maximum likelihood use {called} {MAXIMIZER}"
            )
        raise refusal(argument, f"{called} {name} {problem}", flag=ESTIMATOR_FLAG, value=name)
    theta, found = entry.found(*given, reports.whole)
    certificate, nll = dict.fromkeys(rrjax.Certificate._fields, math.nan), math.nan
    if joint is not None:
        certificate = {key: float(value) for key, value in rrjax.certificate(theta, *joint)._asdict().items()}
        nll = float(rrjax.nll(theta, *joint))
    note, caution = entry.texts(given[0], found, certificate["gap"])
    if entry.whole_reports and reports.tallied is not None and reports.design is None:
        note += "; from whole reports" if reports.whole is not None else "; from support counts, not whole reports"
    undetermined = bool(getattr(found, "undetermined", False))
    estimate = Estimate(entry, np.asarray(theta), nll, certificate, note, caution, undetermined)
    if estimate.proper:
        return estimate
    off = {"simplex_violation": certificate["simplex_violation"]}
    certificate = dict.fromkeys(certificate, math.nan) | off
    return dataclasses.replace(estimate, nll=estimate.measured("nll", nll), certificate=certificate)


def too_large(reports: Reports) -> str:
    """The reason why the likelihood of whole reports is not computed."""
    if reports.num_reports * reports.num_categories <= MAX_CELLS:
        return "only their support counts are known"
    return (
        f"{reports.num_reports:,} reports × {reports.num_categories:,} categories are more than the limit of "
        f"{MAX_CELLS:,}"
    )


def side_by_side(tasks: Iterable[Callable[[], Any]]) -> list[Any]:
    """The results of independent tasks in float64: while one is traced, XLA compiles or runs another."""

    def wide(task):
        with jax.enable_x64(True):  # of the thread that computes
            return task()

    with ThreadPoolExecutor(2) as pool:
        # A thread has no context of its own, such as whether messages name flags.
        running = [pool.submit(copy_context().run, wide, task) for task in tasks]
        return [each.result() for each in running]


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


def share_intervals(reports: Reports, level: float, fdr: float, at_once: bool) -> ShareIntervals:
    """Computes exact intervals and discoveries; adds warnings to the reports if no share explains its reports."""
    given = reports.support_arguments
    simultaneous = "bonferroni" if at_once else None
    lower, upper = map(np.asarray, inference.intervals(*given, level, simultaneous=simultaneous))
    discovered = np.asarray(inference.discoveries(*given, fdr, dependence=reports.mechanism.dependence))
    check_contradictions(reports)
    return ShareIntervals(level, fdr, at_once, lower, upper, discovered, int(num_tests(evidence(*given))))


def simultaneous_limits(reports: Reports, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The limits of all shares, `[K]` each, which hold together."""
    with jax.enable_x64(True):
        found = inference.intervals(*reports.support_arguments, level, simultaneous="bonferroni")
    return np.asarray(found.lower), np.asarray(found.upper)


def largest_of(theta: np.ndarray, top: int) -> np.ndarray:
    """Numbers of the categories with the largest shares, in decreasing order; ties in the order of the domain."""
    if top < 1:
        raise ArgumentError.about("top", f"must be at least 1, got {top}", value=top)
    if top >= len(theta):
        return np.argsort(-theta, kind="stable")
    least = np.partition(theta, len(theta) - top)[len(theta) - top]
    at_least = np.flatnonzero(~(theta < least))  # NaN included
    return at_least[np.argsort(-theta[at_least], kind="stable")][:top]


def rows_of(columns: Mapping[str, np.ndarray], leading: np.ndarray, top: int) -> list[dict[str, Any]]:
    """The largest categories by the leading estimate, as JSON objects."""
    places = largest_of(leading, top)
    return rows_of_table({name: each[places] for name, each in columns.items()})


def cells_of(
    reports: Reports, estimates: Sequence[tuple[str, np.ndarray]], top: int, more: Sequence[Any], *, bars: bool = False
) -> Cells:
    """The largest categories by the first estimate: counts, estimates by their headings, and more columns."""
    counts, first = reports.counts, estimates[0][1]
    places = largest_of(first, top)
    columns: list[Any] = [("category", reports.labels, form.printable)]
    counted = (counts, "{:,}".format), (counts / reports.num_reports, form.percent)
    columns += [(name, *each) for name, each in zip(of_reports(reports), counted, strict=True)]
    columns += [(name, theta, form.share) for name, theta in estimates]
    left = reports.num_categories - len(places)
    rest = rest_of(left, "category", "categories", 1 - float(first[places].sum()))
    return table_of([*columns, *more], places, rest=rest, bars=bars)


def share_figure(
    reports: Reports,
    estimates: list[Estimate],
    truth: np.ndarray | None,
    level: float,
    titles: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws estimates with simultaneous intervals, because the figure shows the largest categories.

    Of a design with a yes it shows the share of yes alone. A category is marked if its interval excludes zero, so that
    mark and interval agree.
    """
    from rrjax.figures import estimate_figure

    drawn = slice(None) if reports.yes is None else [reports.yes]
    lower, upper = (limit[drawn] for limit in simultaneous_limits(reports, level))
    return estimate_figure(
        reports.labels[drawn],
        {estimate.estimator.name: estimate.theta[drawn] for estimate in estimates},
        standard_error=reports.standard_error,
        truth=None if truth is None else truth[drawn],
        limits=(lower, upper),
        limits_label=f"{form.interval(level)}, all at once",
        found=lower > 0,
        title=f"{reports.called} in column {reports.counted.column}, "
        f"K = {reports.num_categories:,}, ε = {reports.epsilon:.4g}",
        titles=titles,
        ax=ax,
    )


def of_reports(reports: Reports) -> dict[str, str]:
    """Explains the two columns of counts, by their headings."""
    number = f"how many of the {reports.num_reports:,}"
    what = "answers" if reports.design is not None else "reports"
    share = f"the share of all {what} that name the category; it is not an estimate, because the randomization is not "
    share += "undone"
    if reports.design is not None:
        slope = form.percent(float(reports.design.affine.truth))
        return {
            "answers": f"{number} answers name the category; the probability of an answer is affine in the share of "
            f"its category, with the slope {slope}",
            "raw share": share,
        }
    p, q = form.percent(float(reports.rates.p)), form.percent(float(reports.rates.q))
    law = f"its user's category with probability {p} and each other category with probability {q}"
    if reports.tallied is None:
        return {"reports": f"{number} reports name the category; a report names {law}", "raw share": share}
    return {
        "support": f"{number} reports support the category; a report supports {law}",
        "support rate": "the share of all reports that support the category; a report may support several categories, "
        "so the rates may sum to more than 100\N{NO-BREAK SPACE}%; it is not an estimate, because the randomization is "
        "not undone",
    }
