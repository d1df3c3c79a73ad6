"""The shares of all categories: what reports answer first."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import rrjax
from rrjax import inference
from rrjax.data.errors import check_rate, option, refusal
from rrjax.estimators.catalogue import ESTIMATORS
from rrjax.estimators.names import CLOSEST, CLOSEST_IN_ORDER, LIKELIEST, MAXIMIZER
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells
from rrjax.reports.estimates import (
    Estimate,
    ShareIntervals,
    cells_of,
    check_estimator,
    estimated,
    of_reports,
    rows_of,
    share_figure,
    share_intervals,
    side_by_side,
    too_large,
)
from rrjax.reports.reports import Reports

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLAIN = {CLOSEST: "closest", CLOSEST_IN_ORDER: "closest", LIKELIEST: "likeliest", MAXIMIZER: "likeliest"}
"""Headings of the columns if no estimator is named."""
NO_DIFFERENCE = 0.25
"""Limit of a difference between two estimates, in standard errors, below which it does not matter which is reported."""
HIDING = 0.25
"""Standard error of a share from which an interval is about as wide as all possible shares."""
ROUNDING = 1e-9
"""Limit of a difference between two shares that rounding explains."""


def heading(estimate: Estimate) -> str:
    """The heading of an estimate that runs by default; the closest is called so only if the reports determine it."""
    return estimate.title if estimate.undetermined else PLAIN[estimate.estimator.name]


def advice(reports: Reports, estimates: list[Estimate], headings: list[str]) -> str:
    """A sentence that says which of the leading estimates to report, or that none is worth it, and why."""
    closest, quoted = estimates[0], [f'"{each}"' for each in headings]
    average, noise = 1 / reports.num_categories, reports.standard_error
    noisy = f"the noise of a share ({form.percent(noise)})"
    if noise >= HIDING:
        return f"Report the intervals, not an estimate: {noisy} hides shares up to {form.percent(min(2 * noise, 1))}."
    if closest.undetermined:
        return "Report the intervals, not an estimate: the reports hardly determine it, so it rests on assumptions."
    larger = f"{noisy} is larger than an average share ({form.percent(average)})" if noise > average else ""
    if len(estimates) == 1:
        return f"Report {quoted[0]}{larger and f': {larger}'}; likeliest is not computed: {too_large(reports)}."
    apart = float(np.max(np.abs(closest.theta - estimates[1].theta)))
    if apart <= ROUNDING:
        return f"Report {quoted[0]}; {quoted[1]} is the same."
    if apart <= NO_DIFFERENCE * noise:
        return f"Report {quoted[0]}; {quoted[1]} differs by at most {form.percent(apart)}, little beside {noisy}."
    why = larger or "its expected error is smaller"
    follows = "the noise" if larger else noisy
    return f"Report {quoted[0]}: {why}; {quoted[1]} follows {follows}, and differs by up to {form.percent(apart)}."


def publication(reports: Reports, estimate: Estimate, intervals: ShareIntervals) -> str:
    """A sentence to publish with a simultaneous interval: on the largest category or, of yes and no, on yes."""
    place = int(np.argmax(estimate.theta)) if reports.yes is None else reports.yes
    limits: tuple[np.ndarray, np.ndarray] = (intervals.lower, intervals.upper)
    if not intervals.simultaneous:  # the largest was picked after looking
        found = inference.intervals(*reports.support_arguments, intervals.level, simultaneous="bonferroni")
        limits = np.asarray(found.lower), np.asarray(found.upper)
    interval = form.between(limits[0][place], limits[1][place])
    about = "an unknown share" if estimate.undetermined else form.share(estimate.theta[place])
    note = "" if reports.design is None else f" ({reports.design.note})"
    users = f"{reports.num_reports:,} {'simulated ' if reports.simulated else ''}users"
    return (
        f"{about} of these {users} have {form.printable(reports.labels[place])} as {reports.counted.column} "
        f"({form.in_full(intervals.level)} confidence interval {interval}, simultaneous for all "
        f"{reports.num_categories:,} categories; it holds for the population too, if the users are a random sample "
        f"of it). Each value was randomized by {reports.mechanism.name}{note} with ε = {reports.epsilon:.4g}; "
        f"the estimate is that of {estimate.estimator.name} in rrjax {rrjax.__version__}."
    )


def leading(reports: Reports, ordered: bool = False) -> list[str]:
    """The closest estimator and, if the likelihood of these reports can be computed, the likeliest one."""
    likeliest = LIKELIEST if reports.tallied is None else MAXIMIZER
    able = reports.arguments_for(ESTIMATORS[likeliest]) is not None
    return [CLOSEST_IN_ORDER if ordered else CLOSEST] + [likeliest] * able


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Shares(Answer):
    """The shares of all categories: the closest and the likeliest estimate, or one that was named, and intervals."""

    reports: Reports
    estimates: list[Estimate]
    """The closest and the likeliest estimate, or the one that was named."""
    intervals: ShareIntervals
    named: bool = False
    """Whether the estimator was named."""

    @property
    def estimate(self) -> Estimate:
        """The estimate that comes first."""
        return self.estimates[0]

    @property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """The limits of all shares, `[K]` each."""
        return self.intervals.lower, self.intervals.upper

    @cached_property
    def headings(self) -> list[str]:
        """The names of the estimates in tables."""
        return [each.title if self.named else heading(each) for each in self.estimates]

    @cached_property
    def names(self) -> list[str]:
        """The names of the estimates in columns and facts: closest and likeliest, or that of the estimator."""
        return [each.estimator.name if self.named else PLAIN[each.estimator.name] for each in self.estimates]

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """`[K]` each: label, count, the estimates, lower, upper, discovered."""
        found = {"label": self.reports.labels, "count": self.reports.counts, **self._thetas}
        limits = {"lower": self.intervals.lower, "upper": self.intervals.upper}
        return self.reports.table(found | limits | {"discovered": self.intervals.discovered})

    @property
    def _thetas(self):
        return {name: each.theta for name, each in zip(self.names, self.estimates, strict=True)}

    @property
    def advice(self) -> str | None:
        """Which estimate to report, and why; None where one was named, or the reports contradict their mechanism."""
        if self.named or self.reports.contradicted:
            return None
        return advice(self.reports, self.estimates, self.headings)

    @cached_property
    def to_publish(self) -> str:
        """A sentence to publish; empty where the reports contradict their mechanism, or the estimate is none."""
        if self.reports.contradicted or not self.estimate.proper:
            return ""
        with jax.enable_x64(True):
            return publication(self.reports, self.estimate, self.intervals)

    @property
    def facts(self) -> dict[str, Any]:
        intervals, theta = self.intervals, self.estimate.theta
        misses = intervals.misses(theta)
        return {
            **self.reports.facts(),
            "standard_error": self.reports.standard_error,
            **{name: each.facts() for name, each in zip(self.names, self.estimates, strict=True)},
            "level": intervals.level,
            "at_once": intervals.at_once,
            "fdr": intervals.fdr,
            "num_discovered": int(intervals.discovered.sum()),
            "num_contradicted": int(intervals.contradicted.sum()),
            "num_outside_interval": int(misses.sum()),
            "num_discovered_outside_interval": int((misses & intervals.discovered).sum()),
            "advice": self.advice,
            "to_publish": self.to_publish,
        }

    @property
    def sentences(self) -> list[str]:
        return [*confidence_sentences(self.reports, self.intervals), *filter(None, [self.advice])]

    @property
    def cautions(self) -> list[str]:
        return cautions(self.reports, self.estimates, self.intervals, self.headings[0])

    @property
    def words(self) -> dict[str, str]:
        found = explanations(self.reports, self.estimates, self.headings, self.intervals)
        return found | {"to publish": self.to_publish}

    def cells(self, top: int = SHOWN) -> Cells:
        return cells_of(self.reports, self.estimates, self.headings, top, intervals=self.intervals)

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"top": rows_of(self.reports, self._thetas, top, intervals=self.intervals)}

    def figure(self, ax: Axes | None = None) -> Figure:
        """The largest categories with simultaneous intervals, and all shares by rank."""
        titles = {each.estimator.name: named for each, named in zip(self.estimates, self.headings, strict=True)}
        return share_figure(self.reports, self.estimates, None, self.intervals.level, titles, ax)


def shares_of(
    reports: Reports, level: float, simultaneous: bool, fdr: float, estimator: str | None, ordered: bool
) -> Shares:
    """See `Reports.shares`."""
    check_rate("level", level)
    check_rate("fdr", fdr, small=True)
    if estimator is not None:
        check_estimator(estimator)
    if estimator is not None and ordered:
        problem = f"{option('estimator')} names one, {option('ordered')} asks for another one: give one of the two"
        raise refusal("ordered", problem, value=estimator)
    names = leading(reports, ordered) if estimator is None else [estimator]
    tasks = [partial(estimated, reports, name) for name in names]
    *estimates, intervals = side_by_side(
        [*tasks, partial(share_intervals, reports, level, fdr, at_once=simultaneous)],
    )
    return Shares(reports, estimates, intervals, estimator is not None)


def confidence_sentences(reports: Reports, intervals: ShareIntervals) -> list[str]:
    """Two sentences: which categories are significantly above zero, and which intervals these are."""
    number, size = int(intervals.discovered.sum()), reports.num_categories
    rate = f"false discovery rate {form.in_full(intervals.fdr)}"
    rest = "" if number == size else "; the others may be rare or empty"
    significant = (
        f"● {number:,} of {size:,} categories {'is' if number == 1 else 'are'} significantly above zero ({rate}){rest}."
        if number
        else f"No category is significantly above zero ({rate})."
    )
    level = f"{form.in_full(intervals.level)} confidence"
    if intervals.simultaneous:
        return [significant, f"The intervals are simultaneous: all of them hold the true shares, with {level}."]
    return [
        significant,
        f"Each interval holds the true share of its category with {level}; for categories picked after looking, such "
        f"as the largest, use {option('simultaneous=True', '--at-once')}: simultaneous intervals, which are wider.",
    ]


def cautions(reports: Reports, estimates: list[Estimate], intervals: ShareIntervals, heading: str) -> list[str]:
    """Warnings that prevent a wrong reading of the table."""
    found = estimates[0]
    said = [each.caution for each in estimates if each.caution]
    contradicted = int(intervals.contradicted.sum())
    if contradicted:
        said.append(
            reports.without_interval(
                contradicted, "category (marked !)", "categories (marked !)", 1 - intervals.level, "in any category"
            )
        )
    number, outside = int(intervals.discovered.sum()), int((intervals.misses(found.theta) & intervals.discovered).sum())
    if outside:
        of = "the category" if number == 1 else f"{outside:,} of the {number:,} categories"
        said.append(
            f"{_named(heading, found)} lies outside the interval of {of} marked ●. An estimate makes all shares "
            "fit together; an interval is about one share. For a category that you chose before looking, believe the "
            "interval."
        )
    return said


def explanations(
    reports: Reports, estimates: list[Estimate], headings: list[str], intervals: ShareIntervals
) -> dict[str, str]:
    """Explains each column, the certificate and the noise of the reports."""
    found, names = estimates[-1], [_named(*each) for each in zip(headings, estimates, strict=True)]
    words = of_reports(reports) | {name: each.note for name, each in zip(names, estimates, strict=True)}
    # The likelihood of other mechanisms is known up to a factor only.
    has_nll = (reports.tallied is None or reports.design is not None) and found.proper
    nll = f"; negative log-likelihood {found.nll:.6f} nats per report" if has_nll else ""
    positive = (
        f"{found.num_positive:,} of {reports.num_categories:,} categories "
        f"{'has' if found.num_positive == 1 else 'have'} a positive share{nll}"
    )
    words[names[-1]] = f"{found.note}; {positive}" if found.note else positive
    marks = "a mark may stand beside an interval from zero on, because simultaneous intervals promise more"
    if not intervals.simultaneous:
        marks = "among many categories some intervals exclude zero by chance, and these have no mark"
    return words | {
        "certificate": _certificate(reports, found),
        intervals.title: "exact, also where the share is zero; an interval is about one share, and an estimate, which "
        "makes all shares fit together, may lie outside",
        "●": f"significantly above zero: of the marked categories at most {form.in_full(intervals.fdr)} are empty, on "
        f"average (false discovery rate: {option('fdr', '`rrjax estimate --fdr`')} sets it); {marks}",
        "noise": "standard error of the unbiased estimate of an empty category: "
        f"{form.percent(reports.standard_error)}",
    }


def _named(heading: str, found: Estimate) -> str:
    return heading if heading == found.title else f"{heading} ({found.title})"


def _certificate(reports: Reports, found: Estimate) -> str:
    """A sentence that bounds the distance of an estimate from the maximum of the likelihood."""
    if reports.likelihood_arguments is None:
        return f"none: the likelihood of whole reports is not computed, {too_large(reports)}"
    if not found.proper:
        return "none: this estimate is not a distribution"
    near = found.certificate["l1_bound"] / 2
    bound = f"; total variation at most {form.at_most(min(near, 1))} from the maximum likelihood estimate"
    return (
        f"log-likelihood within {form.at_most(found.certificate['gap'])} of the maximum (nats per report)"
        f"{bound if math.isfinite(near) else ''}"
    )
