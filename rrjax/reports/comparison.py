"""All estimators side by side: their likelihoods, certificates and, if the truth is known, errors; and the truth."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import jax
import numpy as np

from rrjax import io
from rrjax.data.errors import ArgumentError, check_rate, for_commands, option, refusal, reworded
from rrjax.estimators.catalogue import ESTIMATORS, METRICS
from rrjax.estimators.names import MAXIMIZER
from rrjax.io.domain import Domain
from rrjax.io.labels import by_label
from rrjax.io.rows import count_pairs
from rrjax.io.source import Source, identity, sources_in
from rrjax.numerics.programs import program
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Block, Caution, Cells
from rrjax.reports.parameters import check_true
from rrjax.reports.reading import count_source
from rrjax.reports.reports import Reports, may_be_counts, of_order
from rrjax.reports.shares import (
    ORDERED,
    Estimate,
    cells_of,
    check_estimator,
    estimated,
    of_reports,
    rows_of,
    share_figure,
    side_by_side,
    too_large,
)
from rrjax.reports.testing import check_contradictions

if TYPE_CHECKING:
    from jaxtyping import ArrayLike
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Truth: TypeAlias = ArrayLike | Mapping[Any, float] | str | os.PathLike[str]
    """K shares or counts; a share or count for each label, a mapping or a series; or a file of true values."""

LEADING = ("empirical_bayes", "ordered_bayes", "mle_star", MAXIMIZER, "inv_p")
"""Estimators whose shares people see if more than `MOST_SHOWN` were run; the whole table has all."""
MOST_SHOWN = 4
ERRORS = {"mse": "squared", "tv": "TV", "kl": "KL", "max_error": "max"}
"""Metrics of a single estimate, and their headings."""
SUM_TOLERANCE = 1e-6
"""Limit of the distance of the sum of true shares from one, which rounding explains."""


def everything(ordered: bool = False) -> list[str]:
    """Estimators that run unless some are named; those for ordered categories only if the order means something."""
    return [name for name, entry in ESTIMATORS.items() if not entry.by_name and (ordered or not entry.ordered)]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Comparison(Answer):
    """The estimates of several estimators from the same reports, and their distances from the truth if it is known.

    `columns` are `[K]` each: label, count, the share by each estimator, and the true share if it is known.
    """

    page: ClassVar[str] = "choose/estimator"

    reports: Reports
    estimates: list[Estimate]
    truth: np.ndarray | None
    """`[K]`, true shares."""
    errors: list[dict[str, float]] | None
    """The distances of each estimate from the truth, by metric."""
    level: float
    """Confidence level of the intervals in the figure."""
    notes: Sequence[str] = ()
    sources: Sequence[Source] = ()

    @property
    def shown(self) -> list[Estimate]:
        """The estimates whose shares people see: all if they are few, or the leading ones."""
        if len(self.estimates) <= MOST_SHOWN:
            return self.estimates
        leading = [each for name in LEADING for each in self.estimates if each.estimator.name == name]
        return leading or self.estimates[:MOST_SHOWN]

    @property
    def _thetas(self):
        return {each.estimator.name: each.theta for each in self.estimates}

    @property
    def _true(self):
        return {} if self.truth is None else {"truth": self.truth}

    @property
    def _table(self):
        return {"label": self.reports.labels, "count": self.reports.counts, **self._thetas, **self._true}

    @property
    def _results(self):
        return {"standard_error": self.reports.standard_error}

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        estimators = [each.facts() for each in self.estimates]
        if self.errors is not None:
            estimators = [row | {"errors": error} for row, error in zip(estimators, self.errors, strict=True)]
        first = self.shown[0]
        columns = {"label": self.reports.labels, "count": self.reports.counts, first.estimator.name: first.theta}
        return {"estimators": estimators, "top": rows_of(columns | self._table, first.theta, top)}

    @property
    def sentences(self) -> list[str]:
        constant = "" if self.reports.tallied is None or self.reports.design is not None else ", up to a constant"
        reasons = ["not computed"] * (self.reports.likelihood_arguments is None)
        reasons += ["not a distribution"] * any(not each.proper for each in self.estimates)
        undefined = f" –:\N{NO-BREAK SPACE}{' or '.join(reasons)}." if reasons else ""
        return [
            "> 0, < 0: categories with a positive or negative share; NLL: negative log-likelihood of the reports"
            f"{constant} (nats per report); gap: at most this far below the maximum of the likelihood (nats per "
            f"report).{undefined}",
            "The smallest NLL is the likeliest estimate, which need not be the closest to the truth: "
            f"{option('truth', '--truth FILE')} measures the distance."
            if self.errors is None
            else "squared, TV, KL (nats), max: distances from the truth; smaller is closer.",
        ]

    @property
    def cautions(self) -> list[str]:
        return [each.caution for each in self.estimates if each.caution]

    @property
    def words(self) -> dict[str, str]:
        words = {each.title: each.note for each in self.estimates}
        if self.reports.likelihood_arguments is None:
            words["NLL"] = f"not computed: {too_large(self.reports)}"
        elif self.reports.tallied is not None and self.reports.design is None:
            words["NLL"] = (
                "a constant is left out for reports of this mechanism, so NLL may be negative; differences between "
                "rows do not depend on it"
            )
        words["gap"] = (
            "a certificate of the estimate: no distribution has an NLL that is smaller by more (nats per report)"
        )
        if self.errors is not None:
            words |= {
                "squared": "sum of the squared errors of all categories",
                "TV": "total variation: half the sum of the absolute errors, a share of the users",
                "KL": "Kullback–Leibler divergence from the truth, nats; ∞ if an estimate is zero and the category is "
                "not empty",
                "max": "the largest error of a category, a share",
            }
        improper = [each.title for each in self.estimates if not each.proper]
        if improper:
            undefined = "" if self.errors is None else " and KL"
            words["–"] = (
                f"{', '.join(improper)}: shares are negative or do not sum to one, so this is not a distribution; NLL, "
                f"gap{undefined} are defined for distributions only"
            )
        return words | of_reports(self.reports)

    def cells(self, top: int = SHOWN) -> Cells:
        true = [(name, shares, form.percent) for name, shares in self._true.items()]
        return cells_of(self.reports, [(each.title, each.theta) for each in self.shown], top, true)

    def blocks(self, top: int = SHOWN) -> list[Block]:
        rows = [
            [
                each.title,
                f"{each.num_positive:,}",
                f"{int((each.theta < 0).sum()):,}",
                "–" if math.isnan(each.nll) else f"{each.nll:.6f}",
                form.at_most(each.certificate["gap"], 2) if each.proper else "–",
            ]
            for each in self.estimates
        ]
        measures = Cells(["", "> 0", "< 0", "NLL", "gap"], rows)
        if self.errors is not None:
            measures.headings.extend(ERRORS.values())
            for row, error in zip(measures.rows, self.errors, strict=True):
                row += [
                    "–" if math.isnan(each) else "∞" if math.isinf(each) else f"{each:.3g}" for each in error.values()
                ]
        return [measures, *self.sentences, *map(Caution, self.cautions), self.cells(top)]

    def figure(self, ax: Axes | None = None) -> Figure:
        """The largest categories by the leading estimates and in truth, with simultaneous intervals; shares by rank."""
        return share_figure(self.reports, self.shown, self.truth, self.level, ax=ax)


def compared(
    reports: Reports, truth: Truth | None, estimators: Sequence[str] | None, ordered: bool, level: float
) -> Comparison:
    """See `Reports.compare`."""
    check_rate("level", level)
    if estimators and ordered:
        named = option("estimators", "--estimator")
        problem = f"{option('ordered')} adds ordered_bayes to all estimators, {named} picks some: give one of the two"
        raise refusal("ordered", problem, value=estimators)
    names = [estimators] if isinstance(estimators, str) else estimators
    if not names:
        every = everything(ordered)
        if reports.tallied is not None:  # whose maximum may have a closed form
            every = [MAXIMIZER if name == "ibu" else name for name in every]
        names = [name for name in every if reports.arguments_for(ESTIMATORS[name]) is not None]
    for name in names:
        check_estimator(name, "estimators")
    truth = with_source(truth)
    shares = None if truth is None else true_shares(truth, reports.counted.domain, reports.shares_in)
    tasks = [partial(estimated, reports, name, "estimators") for name in dict.fromkeys(names)]
    *estimates, _ = side_by_side([*tasks, partial(check_contradictions, reports)])
    with jax.enable_x64(True):
        errors = None if shares is None else [_errors(each, shares) for each in estimates]
    notes = of_order(reports, ORDERED) if any(ESTIMATORS[name].ordered for name in names) else []
    return Comparison(reports, estimates, shares, errors, level, notes, sources_in(truth))


def _errors(estimate: Estimate, truth: np.ndarray) -> dict[str, float]:
    distances = _distances(estimate.theta, truth)  # a program's dictionary comes back in another order
    return {name: estimate.measured(name, distances[name]) for name in ERRORS}


@program
def _distances(theta, truth):
    measures = {name: METRICS[name].measure for name in ERRORS}
    return {name: measure(theta, truth, None, None) for name, measure in measures.items() if measure is not None}


def with_source(truth: Any) -> Any:
    """A truth, where it is a file its source, whose values no message repeats."""
    source = Source(truth) if isinstance(truth, str | os.PathLike) else truth
    return source.confidential() if isinstance(source, Source) else truth


def true_shares(
    truth: Truth | Source, domain: Domain, read: Callable[[Source], np.ndarray], argument: str = "truth"
) -> np.ndarray:
    """The shares of all categories, `[K]`, float64; `read` reads those in a file. No message repeats a value."""
    if isinstance(truth := with_source(truth), Source):
        return read(truth)
    if (named := by_label(truth, domain)) is not None:
        amounts = [named.pop(str(label), 0) for label in domain.labels()]
        if named:
            raise ArgumentError.about(argument, f"has {len(named):,} labels that are not in {domain.describe()}")
    else:
        amounts = truth
    try:
        shares = np.asarray(amounts, np.float64)
    except (TypeError, ValueError):
        raise ArgumentError.about(argument, "must be numbers: K shares or counts") from None
    size = domain.num_categories
    if shares.shape != (size,) or not (np.isfinite(shares) & (shares >= 0)).all() or not shares.any():
        problem = f"must be {size:,} shares or counts, one for each category, none of them negative, and not all zero"
        raise ArgumentError.about(argument, problem)
    total = shares.sum()
    if shares.max() < 1 and abs(total - 1) > SUM_TOLERANCE:
        raise ArgumentError.about(argument, f"has shares that must sum to 1, and sum to {total:g}")
    return shares / total


def read_truth(source: Source, counts: str | None, reports: Reports, argument: str = "truth") -> np.ndarray:
    """The shares of the true values in files, or of those in a column of counts, `[K]`, float64."""
    check_true(source, argument)
    same = {*map(identity, source.files())} & {*map(identity, reports.source.files() if reports.source else ())}
    if same and counts is None and source.column in (None, reports.counted.column):
        problem = f"{option(argument)} {source.files()[0]} is the file of the reports: name another file, or its column"
        raise refusal(argument, problem, value=source.files()[0])
    flag, counted = option(argument), reports.counted
    domain, metadata = counted.domain, counted.metadata
    try:
        if metadata is not None and metadata.columns and domain.factors and (source.column or counts) is None:
            pairs = count_pairs(source, metadata.columns, domain.factors)
            return pairs.counts.ravel() / pairs.counts.sum()
        try:
            true = count_source(source, domain, counts)
        except io.DataError:
            # Of several columns, take the one with the name of the column of reports.
            if source.column is not None:
                raise
            true = count_source(dataclasses.replace(source, column=counted.column), domain, counts)
        if counts is None and may_be_counts(source, true):
            file = source.files()[0]
            raise refusal(
                argument,
                f"{flag} {file} names each of its categories once, and has more columns. If one of them holds counts, "
                + (for_commands(f"name it with {flag}-counts") or "give a count for each label"),
                flag=f"{flag}-counts",
                value=file,
            )
    except io.DataError as error:
        hints = [for_commands(f"Its own flags are {flag}-column, {flag}-format and {flag}-counts")]
        if counted.domain_from_data:
            hints.append(f"the domain was taken from the reports, {option('domain')} sets it for both")
        said = "; ".join(filter(None, hints))
        raise reworded(error, f"{error} ({said}.)" if said else str(error)) from error
    return true.counts / true.counts.sum()
