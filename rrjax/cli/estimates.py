"""Estimates of a collection, and intervals of its shares: computed, printed as tables, written and drawn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

import rrjax
from rrjax import inference, io
from rrjax.cli import show
from rrjax.cli.contradictions import check_contradictions
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Confidence
from rrjax.data.errors import UsageError
from rrjax.data.tally import evidence, num_tests
from rrjax.estimators.catalogue import ESTIMATORS, MAXIMIZER, METRICS, Estimator
from rrjax.io.tallies import MAX_CELLS
from rrjax.reports import form
from rrjax.reports.reports import Reports

SIMPLEX_TOLERANCE = {"float64": 1e-9, "float32": 1e-6}
"""Limit of the distance of a distribution from the simplex, which rounding explains."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimate of one estimator, with its likelihood."""

    estimator: Estimator
    theta: np.ndarray
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
        """As fields of a JSON object."""
        return {
            "estimator": self.estimator.name,
            "num_positive": self.num_positive,
            "nll": self.nll,
            "certificate": self.certificate,
        }


@ending_at_once()
def estimated(collection: Reports, name: str) -> Estimate:
    """Runs one estimator of the catalogue, with key 0 if it needs one."""
    entry = ESTIMATORS[name]
    given, joint = collection.given(entry), collection.joint
    if given is None:
        raise UsageError(_unable(collection, entry), flag="--estimator", value=name)
    theta, found = entry.found(*given, collection.whole)
    certificate, nll = dict.fromkeys(rrjax.Certificate._fields, math.nan), math.nan
    if joint is not None:
        certificate = {key: float(value) for key, value in rrjax.certificate(theta, *joint)._asdict().items()}
        nll = float(rrjax.nll(theta, *joint))
    note, caution = entry.texts(given[0], found, certificate["gap"])
    if entry.whole_reports and collection.tallied is not None and collection.design is None:
        note += "; from whole reports" if collection.whole is not None else "; from support counts, not whole reports"
    undetermined = bool(getattr(found, "undetermined", False))
    estimate = Estimate(entry, np.asarray(theta), nll, certificate, note, caution, undetermined)
    if estimate.proper:
        return estimate
    off = {"simplex_violation": certificate["simplex_violation"]}
    certificate = dict.fromkeys(certificate, math.nan) | off
    return dataclasses.replace(estimate, nll=estimate.measured("nll", nll), certificate=certificate)


def _unable(collection: Reports, entry: Estimator) -> str:
    """The reason why an estimator cannot be run on these reports."""
    if entry.needs == "counts":
        return (
            f"--estimator {entry.name} is for {rrjax.RandomizedResponse.name} only; {collection.name} was made "
            f"by {collection.mechanism.name}. For maximum likelihood use --estimator {MAXIMIZER}"
        )
    return (
        f"--estimator {entry.name} needs the likelihood of whole reports; {too_large(collection)}. Choose one of "
        f"{', '.join(other.name for other in ESTIMATORS.values() if other.needs == 'tally' and not other.by_name)}"
    )


def too_large(collection: Reports) -> str:
    """The reason why the likelihood of whole reports is not computed."""
    return (
        f"{collection.num_reports:,} reports × {collection.num_categories:,} categories are more than the limit of "
        f"{MAX_CELLS:,}"
    )


@ending_at_once()
def side_by_side(tasks: Iterable[Callable[[], Any]]) -> list[Any]:
    """The results of independent tasks: while one is traced, XLA compiles or runs another."""
    with ThreadPoolExecutor(2) as pool:
        return [running.result() for running in [pool.submit(task) for task in tasks]]


@dataclasses.dataclass(frozen=True)
class ShareIntervals:
    """Exact intervals of all shares, and which categories are significantly above zero."""

    confidence: Confidence
    lower: np.ndarray
    upper: np.ndarray
    found: np.ndarray
    """Which categories are significantly above zero, at the false discovery rate."""
    num_tests: int
    """Number of categories that say something of their own: one of two, whose shares add up to one."""

    @property
    def level(self) -> float:
        """The confidence level of the intervals."""
        return self.confidence.level

    @property
    def fdr(self) -> float:
        """The false discovery rate."""
        return self.confidence.fdr

    def misses(self, theta: np.ndarray) -> np.ndarray:
        """Which shares of an estimate lie outside their intervals, by more than rounding."""
        slack = 1e-9
        return (theta < self.lower - slack) | (theta > self.upper + slack)

    @property
    def simultaneous(self) -> bool:
        """Whether all intervals hold together at their level."""
        return self.confidence.at_once or self.num_tests == 1

    @property
    def contradicted(self) -> np.ndarray:
        """Which categories have no interval, because no share explains so few or so many reports."""
        return np.isnan(self.lower)

    @property
    def title(self) -> str:
        """The heading of their column."""
        return form.interval(self.level)


@ending_at_once()
def share_intervals(collection: Reports, confidence: Confidence) -> ShareIntervals:
    """Computes exact intervals and discoveries; adds warnings to the collection if no share explains its reports."""
    given = collection.marginal
    simultaneous = "bonferroni" if confidence.at_once else None
    lower, upper = map(np.asarray, inference.intervals(*given, confidence.level, simultaneous=simultaneous))
    found = np.asarray(inference.discoveries(*given, confidence.fdr, dependence=collection.mechanism.dependence))
    check_contradictions(collection)
    return ShareIntervals(confidence, lower, upper, found, int(num_tests(evidence(*given))))


def largest_of(theta: np.ndarray, top: int) -> np.ndarray:
    """Numbers of the categories with the largest shares, in decreasing order; ties in the order of the domain."""
    if top >= len(theta):
        return np.argsort(-theta, kind="stable")
    least = np.partition(theta, len(theta) - top)[len(theta) - top]
    at_least = np.flatnonzero(~(theta < least))  # NaN included
    return at_least[np.argsort(-theta[at_least], kind="stable")][:top]


def largest_rows(
    collection: Reports,
    columns: dict[str, np.ndarray],
    top: int,
    truth: np.ndarray | None = None,
    intervals: ShareIntervals | None = None,
) -> list[dict[str, Any]]:
    """The largest categories by the first estimate, as JSON objects."""
    rows = []
    for index in largest_of(next(iter(columns.values())), top):
        row = {"label": collection.labels[index], "count": collection.counts[index]}
        row |= {column: theta[index] for column, theta in columns.items()}
        if intervals is not None:
            row |= {
                "lower": intervals.lower[index],
                "upper": intervals.upper[index],
                "found": bool(intervals.found[index]),
            }
            row["contradicted"] = bool(intervals.contradicted[index])
        if truth is not None:
            row["truth"] = truth[index]
        rows.append(row)
    return rows


def show_largest(
    collection: Reports,
    estimates: list[Estimate],
    top: int,
    truth: np.ndarray | None = None,
    intervals: ShareIntervals | None = None,
    headings: list[str] | None = None,
) -> None:
    """Prints a table of the largest categories by the first estimate."""
    first = estimates[0].theta
    largest = largest_of(first, top)
    titles = list(of_reports(collection))
    titles += headings or [estimate.title for estimate in estimates]
    titles += [intervals.title] if intervals is not None else []
    titles += ["truth"] if truth is not None else []
    table = show.table("category", *titles, max_width=40)
    bars = intervals is not None
    for _ in range(2 * bars):  # marks and bars
        table.add_column("", no_wrap=True)
    width = 16
    widest = max(float(first[largest[0]]), 1e-300)
    for index in largest:
        count = collection.counts[index]
        cells = [
            Text(form.printable(collection.labels[index])),
            f"{count:,}",
            form.percent(count / collection.num_reports),
            *(form.share(estimate.theta[index]) for estimate in estimates),
        ]
        if intervals is not None:
            marks = "●" * bool(intervals.found[index]) + "!" * bool(intervals.contradicted[index])
            cells += [form.between(intervals.lower[index], intervals.upper[index]), marks]
        if truth is not None:
            cells.append(form.percent(truth[index]))
        if bars:
            cells.append("█" * round(width * max(float(first[index]), 0) / widest))
        table.add_row(*cells)
    show.show_table(table, bars=bars)
    left = collection.num_categories - len(largest)
    if left:
        rest = form.percent(1 - float(first[largest].sum()))
        show.say(f"… and {form.number(left, 'more category', 'more categories')} with {rest} together", style="dim")


def write(out: Path, collection: Reports, columns: dict[str, np.ndarray]) -> None:
    """Writes a table of all categories: label, count, and more columns."""
    io.write_table(out, collection.table({"label": collection.labels, "count": collection.counts} | columns))


def draw(plot: Path, collection: Reports, estimates: list[Estimate], truth: np.ndarray | None, level: float) -> None:
    """Draws estimates with simultaneous intervals, because the figure shows the largest categories.

    A category is marked if its interval excludes zero, so that mark and interval agree.
    """
    with show.drawing():
        from rrjax.figures import estimate_figure, save

        with ending_at_once():
            limits = inference.intervals(*collection.marginal, level, simultaneous="bonferroni")
        lower, upper = np.asarray(limits.lower), np.asarray(limits.upper)
        figure = estimate_figure(
            collection.labels,
            {estimate.estimator.name: estimate.theta for estimate in estimates},
            standard_error=collection.standard_error,
            truth=truth,
            limits=(lower, upper),
            limits_label=f"{form.interval(level)}, all at once",
            found=lower > 0,
            title=f"{collection.called} in column {collection.counted.column}, "
            f"K = {collection.num_categories:,}, ε = {collection.epsilon:.4g}",
        )
        save(figure, plot)


def of_reports(collection: Reports) -> dict[str, str]:
    """Explains the two columns of counts, by their headings."""
    if collection.design is not None:
        d = collection.design.affine.truth
        return {
            "answers": f"how many of the {collection.num_reports:,} answers name the category; the probability of an "
            f"answer is affine in the share of its category, with the slope {form.percent(float(d))}",
            "raw share": "the share of all answers that name the category; it is not an estimate, because the "
            "randomization is not undone",
        }
    p, q = form.percent(float(collection.rates.p)), form.percent(float(collection.rates.q))
    number = collection.num_reports
    if collection.tallied is None:
        return {
            "reports": f"how many of the {number:,} reports name the category; a report names its user's category "
            f"with probability {p} and each other category with probability {q}",
            "raw share": "the share of all reports that name the category; it is not an estimate, because the "
            "randomization is not undone",
        }
    return {
        "support": f"how many of the {number:,} reports support the category; a report supports its user's category "
        f"with probability {p} and each other category with probability {q}",
        "support rate": "the share of all reports that support the category; a report may support several categories, "
        "so the rates may sum to more than 100\N{NO-BREAK SPACE}%; it is not an estimate, because the randomization is "
        "not undone",
    }
