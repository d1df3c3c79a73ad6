"""The shares of all categories: estimates, exact intervals, and the table of both, what reports answer first."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import rrjax
from rrjax.data.errors import ArgumentError, check_rate, option, refusal
from rrjax.estimators.catalogue import ESTIMATORS, METRICS, Estimator
from rrjax.estimators.names import CLOSEST, CLOSEST_IN_ORDER, LIKELIEST, MAXIMIZER
from rrjax.io.tallies import MAX_CELLS
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells, rest_of, rows_of_table, table_of
from rrjax.reports.intervals import ANY_TIME, ShareIntervals, fakes_of, share_intervals, share_limits, tuned_of
from rrjax.reports.reports import Reports, of_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rrjax.inference.intervals import Looks

SIMPLEX_TOLERANCE = {"float64": 1e-9, "float32": 1e-6}
"""Limit of the distance of a distribution from the simplex, which rounding explains."""
ESTIMATOR_FLAG = "--estimator"
PLAIN = {CLOSEST: "closest", CLOSEST_IN_ORDER: "closest", LIKELIEST: "likeliest", MAXIMIZER: "likeliest"}
"""Headings of the columns if no estimator is named."""
NO_DIFFERENCE = 0.25
"""Limit of a difference between two estimates, in standard errors, below which it does not matter which is reported."""
HIDING = 0.25
"""Standard error of a share from which an interval is about as wide as all possible shares."""
EQUAL = 0.1
"""Largest noise, in average shares, with which counts that hold but one share show that all are about equal."""
ROUNDING = 1e-9
"""Limit of a difference between two shares that rounding explains."""
ORDERED = "estimates of ordered categories"
"""What follows the order of the domain, for messages."""
BAR = 16
"""Width of the bar of the largest share."""


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
    theta, result = entry.with_result(*given, reports.whole)
    certificate, nll = dict.fromkeys(rrjax.Certificate._fields, math.nan), math.nan
    if joint is not None:
        certificate = {key: float(value) for key, value in rrjax.certificate(theta, *joint)._asdict().items()}
        nll = float(rrjax.nll(theta, *joint))
    note, caution = entry.texts(given[0], result, certificate["gap"])
    if entry.whole_reports and reports.tallied is not None and reports.design is None:
        note += "; from whole reports" if reports.whole is not None else "; from support counts, not whole reports"
    undetermined = bool(getattr(result, "undetermined", False))
    if undetermined and reports.standard_error <= EQUAL / reports.num_categories:
        undetermined, caution = False, ""  # the reports show it
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
    tuned_to: float | None = None,
) -> Figure:
    """Draws estimates with simultaneous intervals, because the figure shows the largest categories.

    Of a design with a yes it shows the share of yes alone. A category is marked if its interval excludes zero, so that
    mark and interval agree.
    """
    from rrjax.figures import estimate_figure

    drawn = slice(None) if reports.yes is None else [reports.yes]
    lower, upper = (limit[drawn] for limit in share_limits(reports, level, tuned_to=tuned_to))
    return estimate_figure(
        reports.labels[drawn],
        {estimate.estimator.name: estimate.theta[drawn] for estimate in estimates},
        standard_error=reports.standard_error,
        truth=None if truth is None else truth[drawn],
        limits=(lower, upper),
        limits_label=f"{form.interval(level)}, all at once" + " and at any time" * (tuned_to is not None),
        discovered=lower > 0,
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


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Shares(Answer):
    """The shares of all categories: the closest and the likeliest estimate, or one that was named, and intervals.

    `columns` are `[K]` each: label, count, the estimates, lower, upper, discovered and, if they are asked for, fakes.
    """

    reports: Reports
    estimates: list[Estimate]
    """The closest and the likeliest estimate, or the one that was named."""
    intervals: ShareIntervals
    named: bool = False
    """Whether the estimator was named."""
    fakes: np.ndarray | None = None
    """`[K]`, how many fake reports would overturn each mark, or its absence, if that was asked for."""
    notes: Sequence[str] = ()

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
        """The names of the estimates in tables; the closest is called so only if the reports determine it."""
        return [
            each.title if self.named or (each.undetermined and self._undetermined) else PLAIN[each.estimator.name]
            for each in self.estimates
        ]

    @cached_property
    def names(self) -> list[str]:
        """The names of the estimates in columns and facts: closest and likeliest, or that of the estimator."""
        return [each.estimator.name if self.named else PLAIN[each.estimator.name] for each in self.estimates]

    @property
    def _table(self):
        thetas = {name: each.theta for name, each in zip(self.names, self.estimates, strict=True)}
        columns = {"label": self.reports.labels, "count": self.reports.counts, **thetas}
        limits = {"lower": self.intervals.lower, "upper": self.intervals.upper}
        columns |= limits | {"discovered": self.intervals.discovered}
        return columns | ({} if self.fakes is None else {"fakes": self.fakes})

    @property
    def _apart(self) -> float:
        """The largest difference between the closest and the likeliest estimate; infinite with one estimate."""
        thetas = [each.theta for each in self.estimates]
        return float(np.max(np.abs(thetas[0] - thetas[1]))) if len(thetas) > 1 else math.inf

    @property
    def _undetermined(self) -> bool:
        """Whether the closest estimate rests on assumptions: the reports hardly determine it, nor is it likeliest."""
        return self.estimate.undetermined and self._apart > ROUNDING

    @property
    def advice(self) -> str | None:
        """Which estimate to report, and why; None where one was named, or the reports contradict their mechanism."""
        if self.named or self.reports.contradicted:
            return None
        quoted = [f'"{each}"' for each in self.headings]
        average, noise = 1 / self.reports.num_categories, self.reports.standard_error
        noisy = f"the noise of a share ({form.percent(noise)})"
        if noise >= HIDING:
            hidden = form.percent(min(2 * noise, 1))
            return f"Report the intervals, not an estimate: {noisy} hides shares up to {hidden}."
        if self._undetermined:
            return "Report the intervals, not an estimate: the reports hardly determine it, so it rests on assumptions."
        larger = f"{noisy} is larger than an average share ({form.percent(average)})" if noise > average else ""
        if len(self.estimates) == 1:
            why = larger and f": {larger}"
            return f"Report {quoted[0]}{why}; likeliest is not computed: {too_large(self.reports)}."
        apart = self._apart
        if apart <= ROUNDING:
            return f"Report {quoted[0]}; {quoted[1]} is the same."
        if apart <= NO_DIFFERENCE * noise:
            return f"Report {quoted[0]}; {quoted[1]} differs by at most {form.percent(apart)}, little beside {noisy}."
        why, follows = larger or "its expected error is smaller", "the noise" if larger else noisy
        return f"Report {quoted[0]}: {why}; {quoted[1]} follows {follows}, and differs by up to {form.percent(apart)}."

    @cached_property
    def to_publish(self) -> str:
        """A sentence to publish, with a simultaneous interval: on the largest category or, of yes and no, on yes.

        Empty where the reports contradict their mechanism, or the estimate is no distribution.
        """
        reports, estimate, intervals = self.reports, self.estimate, self.intervals
        if reports.contradicted or not estimate.proper:
            return ""
        place = int(np.argmax(estimate.theta)) if reports.yes is None else reports.yes
        limits = self.limits
        if not intervals.simultaneous:  # the largest was picked after looking
            limits = share_limits(reports, intervals.level, tuned_to=intervals.tuned_to)
        interval = form.between(limits[0][place], limits[1][place])
        sample = "; it holds for the population too, if the users are a random sample of it"
        if intervals.tuned_to is not None:
            sample = " and all numbers of users, of the population of which these are a random sample"
        about = "an unknown share" if self._undetermined else form.share(estimate.theta[place])
        note = "" if reports.design is None else f" ({reports.design.note})"
        made = f"was randomized by {reports.mechanism.name}{note} with ε = {reports.epsilon:.4g}"
        made = made if reports.standard_error else "was told directly, without protection"
        users = f"{reports.num_reports:,} {'simulated ' if reports.simulated else ''}users"
        return (
            f"{about} of these {users} have {form.printable(reports.labels[place])} as {reports.counted.column} "
            f"({form.in_full(intervals.level)} confidence interval {interval}, simultaneous for all "
            f"{reports.num_categories:,} categories{sample}). Each value {made}; the estimate "
            f"is that of {estimate.estimator.name} in rrjax {rrjax.__version__}."
        )

    @property
    def _results(self):
        intervals, misses = self.intervals, self.intervals.misses(self.estimate.theta)
        return {
            "standard_error": self.reports.standard_error,
            **{name: each.facts() for name, each in zip(self.names, self.estimates, strict=True)},
            "level": intervals.level,
            "at_once": intervals.at_once,
            "tuned_to": intervals.tuned_to,
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
        intervals, size, rate = self.intervals, self.reports.num_categories, self._rate
        number = int(intervals.discovered.sum())
        rest = "" if number == size else "; the others may be rare or empty"
        are = "is" if number == 1 else "are"
        significant = f"● {number:,} of {size:,} categories {are} significantly above zero ({rate}){rest}."
        if not number:
            significant = f"No category is significantly above zero ({rate})."
        level = f"{form.in_full(intervals.level)} confidence"
        which = f"The intervals are simultaneous: all of them hold the true shares, with {level}."
        if not intervals.simultaneous:
            which = (
                f"Each interval holds the true share of its category with {level}; for categories picked after "
                f"looking, such as the largest, use {option('simultaneous=True', '--at-once')}: simultaneous "
                "intervals, which are wider."
            )
        if intervals.contradicted.all():
            return []
        said = [significant, which, *([] if intervals.tuned_to is None else [f"This holds {ANY_TIME}"])]
        return [*said, *filter(None, [self.advice])]

    @property
    def _rate(self):
        """The error of the marks, in words."""
        rate = form.in_full(self.intervals.fdr)
        if self.intervals.tuned_to is None:
            return f"false discovery rate {rate}"
        return f"at any time; a mark of an empty category ever appears with probability {rate} at most"

    @property
    def cautions(self) -> list[str]:
        intervals, said = self.intervals, [each.caution for each in self.estimates if each.caution]
        if contradicted := int(intervals.contradicted.sum()):
            marked = "category (marked !)", "categories (marked !)", 1 - intervals.level, "in any category"
            said.append(self.reports.without_interval(contradicted, *marked))
        number = int(intervals.discovered.sum())
        if outside := int((intervals.misses(self.estimate.theta) & intervals.discovered).sum()):
            of = "the category" if number == 1 else f"{outside:,} of the {number:,} categories"
            said.append(
                f"{self._called[0]} lies outside the interval of {of} marked ●. An estimate makes all shares "
                "fit together; an interval is about one share. For a category that you chose before looking, believe "
                "the interval."
            )
        return said

    @property
    def _called(self):
        """The headings of the estimates, with the names of their estimators."""
        both = zip(self.headings, self.estimates, strict=True)
        return [heading if heading == each.title else f"{heading} ({each.title})" for heading, each in both]

    @property
    def words(self) -> dict[str, str]:
        reports, intervals, estimate, names = self.reports, self.intervals, self.estimates[-1], self._called
        words = of_reports(reports) | {name: each.note for name, each in zip(names, self.estimates, strict=True)}
        # The likelihood of other mechanisms is known up to a factor only.
        has_nll = (reports.tallied is None or reports.design is not None) and estimate.proper
        nll = f"; negative log-likelihood {estimate.nll:.6f} nats per report" if has_nll else ""
        positive = (
            f"{estimate.num_positive:,} of {reports.num_categories:,} categories "
            f"{'has' if estimate.num_positive == 1 else 'have'} a positive share{nll}"
        )
        words[names[-1]] = f"{estimate.note}; {positive}" if estimate.note else positive
        marks = "a mark may stand beside an interval from zero on, because simultaneous intervals promise more"
        if not intervals.simultaneous:
            marks = "among many categories some intervals exclude zero by chance, and these have no mark"
        any_time, average = "", f"of the marked categories at most {form.in_full(intervals.fdr)} are empty, on average"
        marked = f"{average} (false discovery rate: {option('fdr', '`rrjax estimate --fdr`')} sets it); {marks}"
        if intervals.tuned_to is not None:
            marked, any_time = self._rate, f"for any number of looks, narrow at {intervals.tuned_to:,.0f} users; "
        empty = "an empty category" if reports.yes is None else "the share of yes where it is zero"
        return words | {
            "certificate": self._certificate,
            intervals.title: f"{any_time}exact, also where the share is zero; an interval is about one share, and an "
            "estimate, which makes all shares fit together, may lie outside",
            "●": f"significantly above zero: {marked}",
            "noise": f"standard error of the unbiased estimate of {empty}: {form.percent(reports.standard_error)}",
            "fakes": self._of_fakes,
            "to publish": self.to_publish,
        }

    @property
    def _of_fakes(self):
        """How many fakes would be enough for a finding, in words; empty for intervals that hold at any time."""
        reports, intervals = self.reports, self.intervals
        if intervals.tuned_to is not None:
            return ""
        others, marked = np.flatnonzero(~intervals.discovered), np.flatnonzero(intervals.discovered)
        # A category with as many reports as most of those without a mark, and the marked one that is nearest to zero.
        usual = others[np.argsort(reports.counts[others], kind="stable")[len(others) // 2 : len(others) // 2 + 1]]
        weakest = marked[np.argsort(intervals.lower[marked], kind="stable")[:1]]
        places, said = np.concatenate([usual, weakest]), []
        numbers = fakes_of(reports, intervals, places) if self.fakes is None else self.fakes[places]
        for place, number in zip(places, numbers, strict=True):
            total, share = f"{reports.num_reports:,}", form.percent(number / reports.num_reports)
            if number >= 0 and intervals.discovered[place]:
                name = form.printable(reports.labels[place])
                fakes = f"{number:,} of {total} reports ({share})"
                said.append(f"if {fakes} were fakes, {name}, the weakest marked category, could be empty")
            elif number >= 0:
                fakes = f"{form.number(number, 'more report', 'more reports')} ({share} of {total})"
                said.append(f"{fakes} would be enough to create a mark, of a category with the median count")
        column = ["how many would overturn the mark of a category, or its absence"] * (self.fakes is not None)
        return "; ".join([*column, *said, "fakes are not detected"]) if said else ""

    @property
    def _certificate(self):
        """The distance of the last estimate from the maximum of the likelihood, in words."""
        estimate = self.estimates[-1]
        if self.reports.likelihood_arguments is None:
            return f"none: the likelihood of whole reports is not computed, {too_large(self.reports)}"
        if not estimate.proper:
            return "none: this estimate is not a distribution"
        said = f"log-likelihood within {form.at_most(estimate.certificate['gap'])} of the maximum (nats per report)"
        near = estimate.certificate["l1_bound"] / 2
        bound = f"; total variation at most {form.at_most(min(near, 1))} from the maximum likelihood estimate"
        return said + bound * math.isfinite(near)

    def cells(self, top: int = SHOWN) -> Cells:
        intervals, first = self.intervals, self.estimate.theta
        widest = max(float(first.max()), 1e-300)
        more = [
            (intervals.title, np.transpose(self.limits), lambda limits: form.between(*limits)),
            (
                "",
                np.transpose([intervals.discovered, intervals.contradicted]),
                lambda on: "●" * bool(on[0]) + "!" * bool(on[1]),
            ),
            ("", first, lambda share: "█" * round(BAR * max(float(share), 0) / widest)),
        ]
        if self.fakes is not None:
            more.insert(1, ("fakes", self.fakes, lambda number: f"{number:,}" if number >= 0 else "–"))
        shown = [(heading, each.theta) for heading, each in zip(self.headings, self.estimates, strict=True)]
        return cells_of(self.reports, shown, top, more, bars=True)

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        contradicted = {"contradicted": self.intervals.contradicted}
        return {"top": rows_of(self._table | contradicted, self.estimate.theta, top)}

    def figure(self, ax: Axes | None = None) -> Figure:
        """The largest categories with simultaneous intervals, and all shares by rank."""
        titles = {each.estimator.name: named for each, named in zip(self.estimates, self.headings, strict=True)}
        intervals = self.intervals
        return share_figure(self.reports, self.estimates, None, intervals.level, titles, ax, intervals.tuned_to)


def shares_of(
    reports: Reports,
    level: float,
    simultaneous: bool,
    fdr: float,
    estimator: str | None,
    ordered: bool,
    looks: Looks | None,
    tuned_to: float | None,
    fakes: bool,
) -> Shares:
    """See `Reports.shares`."""
    tuned_to = tuned_of(looks, tuned_to, {"fakes": fakes})
    check_rate("level", level)
    check_rate("fdr", fdr, small=True)
    if estimator is not None:
        check_estimator(estimator)
    if estimator is not None and ordered:
        problem = f"{option('estimator')} names one, {option('ordered')} asks for another one: give one of the two"
        raise refusal("ordered", problem, value=estimator)
    names = [estimator or (CLOSEST_IN_ORDER if ordered else CLOSEST)]
    likeliest = LIKELIEST if reports.tallied is None else MAXIMIZER
    if estimator is None and reports.arguments_for(ESTIMATORS[likeliest]) is not None:
        names.append(likeliest)
    tasks: list[Any] = [partial(estimated, reports, name) for name in names]
    tasks.append(partial(share_intervals, reports, level, fdr, simultaneous, tuned_to))
    *estimates, intervals = side_by_side(tasks)
    overturning = fakes_of(reports, intervals) if fakes else None
    notes = of_order(reports, ORDERED) if ESTIMATORS[names[0]].ordered else []
    return Shares(reports, estimates, intervals, estimator is not None, overturning, notes)
