"""What a randomized answer depends on: multinomial logistic regression of the true values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rrjax import io
from rrjax.data.arguments import as_probability
from rrjax.data.errors import ArgumentError, Located, option, refusal
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Block, Caution, Cells, Heading
from rrjax.reports.contradictions import check_contradictions
from rrjax.reports.covariates import Rows, few_clusters, read_regression_rows
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import Reports

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rrjax.models import FitError

MOST_COEFFICIENTS = 2000
"""Limit of the number of coefficients: their information matrix takes 32 MB."""
MISFIT_LEVEL = 0.01
"""Level of the test of fit below which the model is reported to miss something."""
FEWEST_FOR_FIT = 200
"""Rows below which fit is not tested: the law of the test holds in ten groups of some size."""
_NUMBERS = ("estimate", "lower", "upper")


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Regression(Answer):
    """A regression: log-odds of each category to the reference, tests of the covariates, and a test of fit."""

    written: ClassVar[str] = "Coefficients"
    page: ClassVar[str] = "models"

    reports: Reports
    coefficients: dict[str, np.ndarray]
    """The table of all coefficients, by column."""
    reference: str
    hidden: list[str]
    """Covariates that are randomized, too."""
    covariance: str
    """The standard errors: observed (information), or sandwich."""
    num_rows: int
    num_dropped: int
    num_clusters: int | None
    level: float
    tests: list[dict[str, Any]]
    """Of each covariate: covariate, statistic, degrees, p_value."""
    goodness_of_fit: dict[str, Any] | None
    """Statistic, degrees and p_value of the test of fit; None where its law does not hold."""
    log_likelihood: float
    deviance: float
    aic: float
    num_iters: int
    gap: float
    """Distance of the log-likelihood from its maximum, nats of all reports."""
    notes: Sequence[str] = ()
    """Warnings about few clusters."""

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A row for each coefficient: category, term, estimate, standard_error, lower, upper, p_value."""
        return self.reports.table(self.coefficients)

    @property
    def facts(self) -> dict[str, Any]:
        """The reports, the rows, the kind of the errors, the tests, and the likelihood with its certificate."""
        names = [field.name for field in dataclasses.fields(self)]
        own = {name: getattr(self, name) for name in names if name not in ("reports", "coefficients", "notes")}
        return self.reports.facts() | {"warnings": self.warnings} | own

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        """All coefficients."""
        del top
        table = self.coefficients
        return {"coefficients": [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]}

    @property
    def words(self) -> dict[str, str]:
        """What each column is, the likelihood and the certificate."""
        clusters, fit = self.num_clusters, self.goodness_of_fit
        ways = {
            "observed": "by how much estimates are off, typically, if the model is right",
            "sandwich": "standard errors are robust: by how much estimates are off, typically, even of a wrong model",
        }
        student = "" if clusters is None else f" and clusters (Student's t of {clusters - 1:,} degrees)"
        wald = (
            "Wald's χ²; df: how many there are"
            if clusters is None
            else "Wald's F; df: how many there are, and clusters less one"
        )
        return {
            "(intercept)": "log-odds where all covariates are zero, or at their first levels",
            self._error: ways[self.covariance],
            form.interval(self.level): "estimate ± a multiple of the error: holds each one with this confidence, for "
            f"many users{student}",
            "p": "of the first tables: of a single estimate; of the last one: of all estimates of a covariate together "
            f"({wald})",
            "fit": "" if fit is None or self._misfits else f"nothing speaks against the model, {self._fitness}",
            "users": f"{self.num_rows:,}",
            # The likelihood of hidden covariates depends on which they are.
            "likelihood": ""
            if self.hidden
            else f"deviance {self.deviance:,.2f}, AIC {self.aic:,.2f} (of models of the same "
            "answers the smaller is better)",
            "certificate": f"log-likelihood within {form.at_most(max(self.gap, 1e-300))} nats of its maximum",
        }

    def blocks(self, top: int = SHOWN) -> list[Block]:
        """A table for each category, the tests, and how to read them."""
        del top
        blocks: list[Block] = []
        reference = form.printable(self.reference)
        if self.num_dropped:
            left_out = form.number(self.num_dropped, "row is", "rows are")
            blocks.append(
                f"{left_out} left out for want of a covariate, a weight or a cluster; {self.num_rows:,} are left."
            )
        if self.hidden:
            blocks.append(
                f"Randomized, too: {', '.join(map(form.printable, self.hidden))}. Their true values are estimated with "
                "the coefficients, and each category is compared with the first one."
            )
        for label in self._others:
            blocks.append(Heading(f"{form.printable(label)}, compared with {reference} (log-odds)"))
            blocks.append(self._cells_of(label))
        blocks.append(
            "An estimate is the change of the log-odds for one unit more of a covariate, the others as they are: "
            f"0.69 doubles the odds of the answer against {reference}, −0.69 halves them."
        )
        blocks += [self.cells(), f"p: how likely so large a {self._statistic} would be if the covariate meant nothing."]
        if self._misfits:
            blocks.append(Caution(f"The model misses something: {self._fitness}."))
        return blocks

    def cells(self, top: int = SHOWN) -> Cells:
        """The tests of the covariates."""
        del top
        rows = []
        for test in self.tests:
            statistic, degrees = test["statistic"], f"{test['degrees']}"
            freedom = degrees if self.num_clusters is None else f"{degrees}, {self.num_clusters - 1:,}"
            value = "–" if math.isnan(statistic) else f"{statistic:.4g}"
            rows.append([form.printable(test["covariate"]), value, freedom, _chance(test["p_value"])])
        return Cells(["does it matter?", self._statistic, "df", "p"], rows)

    def _cells_of(self, label: str) -> Cells:
        """The coefficients of a category, with as many decimals as show two digits of the standard error."""
        rows = []
        for row in np.flatnonzero(self.coefficients["category"] == label):
            term, error, p_value = (self.coefficients[name][row] for name in ("term", "standard_error", "p_value"))
            digits = form.decimals(error)
            estimate, lower, upper = (f"{self.coefficients[name][row]:.{digits}f}" for name in _NUMBERS)
            shown = [estimate, f"{error:.{digits}f}", f"{lower} to {upper}", _chance(p_value)]
            rows.append([form.printable(term), *shown])
        return Cells(["", "estimate", self._error, form.interval(self.level), "p"], rows, width=30)

    def figure(self, ax: Axes | None = None) -> Figure:
        """The coefficients of the covariates, a panel for each category."""
        from rrjax.figures import forest_figure
        from rrjax.figures.estimates import Statements

        table, panels = self.coefficients, {}
        for label in self._others:
            rows = (table["category"] == label) & (table["term"] != "(intercept)")
            values, lower, upper = (table[name][rows] for name in _NUMBERS)
            names = [str(term) for term in table["term"][rows]]
            panels[f"{label}, not {self.reference}"] = Statements(names, values, lower, upper, mark=0)
        users = f"{self.num_rows:,} {'simulated ' if self.reports.simulated else ''}users"
        return forest_figure(panels, level=self.level, title=f"Log-odds per unit of each covariate; {users}", ax=ax)

    @property
    def _others(self):
        """The categories but the reference, in their order."""
        return list(dict.fromkeys(self.coefficients["category"].tolist()))

    @property
    def _error(self):
        return "robust error" if self.covariance == "sandwich" else "std. error"

    @property
    def _statistic(self):
        return "χ²" if self.num_clusters is None else "F"

    @cached_property
    def _misfits(self):
        return self.goodness_of_fit is not None and self.goodness_of_fit["p_value"] < MISFIT_LEVEL

    @property
    def _fitness(self):
        """The test of fit in words."""
        statistic, degrees, p_value = (self.goodness_of_fit or {}).values()
        return f"by a score test of ten groups of users χ² = {statistic:.4g} on {degrees} df, p {_compared(p_value)}"


def _chance(p_value: float) -> str:
    return "–" if math.isnan(p_value) else _compared(p_value).removeprefix("= ")


def _compared(p_value: float) -> str:
    return "< 0.0001" if p_value < 1e-4 else f"= {p_value:.4f}"


@in_float64
def regression_of(
    reports: Reports,
    covariates: str | Iterable[str],
    *,
    factors: Iterable[str],
    reference: str | None,
    weights: str | None,
    clusters: str | None,
    robust: bool,
    drop_missing: bool,
    ridge: float,
    level: float,
) -> Regression:
    """See `Reports.regress`."""
    from rrjax.mechanisms.mechanism import Reordered
    from rrjax.models import FitError, fit, fit_hidden, goodness_of_fit_test
    from rrjax.models.regression import MOST_RIDGE

    as_probability(level, "level", 0.95)
    if not 0 <= ridge <= MOST_RIDGE:
        problem = f"must be a number from 0 to {MOST_RIDGE:g}, got {ridge:g}"
        raise refusal("ridge", f"{option('ridge')} {problem}", value=ridge)
    names = [covariates] if isinstance(covariates, str) else list(covariates)
    if not names or len(set(names)) < len(names):
        problem = f"names columns, each once, got {names}"
        raise refusal("covariates", f"{option('covariates')} {problem}", value=names)
    rows = read_regression_rows(reports, names, list(factors), weights, clusters, drop_missing)
    notes = _check_size(rows, reports)
    labels = [str(label) for label in reports.labels]
    order = _reordered(labels, reference)
    labels = [labels[place] for place in order]
    values, plain = rows.reports, reports.tallied is None
    if plain:
        values = np.where(values < 0, -1, np.argsort(order)[values])
    kind = "sandwich" if robust or weights is not None or clusters is not None else "observed"
    observed = values, reports.epsilon if plain else Reordered(reports.mechanism, tuple(order))
    how: Any = {"weights": rows.weights, "clusters": rows.clusters, "covariance": kind, "ridge": ridge}
    how |= {"num_categories": len(labels) if plain else None}
    try:
        if rows.hidden:
            pairs = [(each.reports, each.mechanism) for each in rows.hidden]
            result = fit_hidden(rows.matrix if rows.matrix.size else None, pairs, *observed, **how)
        else:
            result = fit(rows.matrix, *observed, **how)
    except FitError as error:
        raise _told(error, reports.name, rows.columns, labels) from error
    fitness = None
    # The law of the test holds for independent users of equal weight, in ten groups of some size.
    if kind == "observed" and len(values) >= FEWEST_FOR_FIT and not rows.hidden:
        try:
            fitness = _facts(goodness_of_fit_test(result, rows.matrix, *observed))
        except FitError:
            fitness = None  # too few distinct values for groups
    check_contradictions(reports)
    return Regression(
        reports,
        _coefficients(result, rows, labels, level),
        reference=labels[0],
        hidden=[each.name for each in rows.hidden],
        covariance=kind,
        num_rows=len(values),
        num_dropped=rows.num_dropped,
        num_clusters=result.num_clusters,
        level=level,
        tests=[{"covariate": name, **_tested(result, columns)} for name, columns in rows.of],
        goodness_of_fit=fitness,
        log_likelihood=float(result.log_likelihood),
        deviance=float(result.deviance),
        aic=float(result.aic),
        num_iters=int(result.num_iters),
        gap=float(result.gap),
        notes=notes,
    )


def _check_size(rows: Rows, reports: Reports) -> list[str]:
    """Refuses too many coefficients; warnings about few clusters."""
    number = (len(rows.columns) + 1) * (reports.num_categories - 1)
    if number > MOST_COEFFICIENTS:
        raise refusal(
            "covariates",
            f"{reports.num_categories:,} categories and {len(rows.columns)} columns make {number:,} coefficients, "
            f"more than {MOST_COEFFICIENTS:,}: merge categories before the collection is made, or use rrjax.models.fit",
            value=number,
        )
    if rows.clusters is None or number >= len(clusters := np.unique(rows.clusters)):
        return []
    return few_clusters(rows, len(clusters))


def _reordered(labels: list[str], reference: str | None) -> list[int]:
    """The numbers of the categories, that of the reference first."""
    if reference is None:
        return list(range(len(labels)))
    if reference not in labels:
        shown = ", ".join(map(repr, labels[:10])) + ", …" * (len(labels) > 10)
        problem = f"{reference!r} is none of the categories {shown}"
        raise refusal("reference", f"{option('reference')} {problem}", value=reference)
    place = labels.index(reference)
    return [place, *(other for other in range(len(labels)) if other != place)]


def _coefficients(result: Any, rows: Rows, labels: list[str], level: float) -> dict[str, np.ndarray]:
    """All coefficients, in one column."""
    from rrjax.models.results import critical_value, two_sided_p_values

    estimates, errors = (
        np.asarray(each, np.float64).T.ravel() for each in (result.coefficients, result.standard_errors)
    )
    clusters = result.num_clusters
    width = critical_value(level, clusters) * errors
    terms = ["(intercept)", *rows.columns]
    return {
        "category": np.repeat(np.asarray(labels[1:], object), len(terms)),
        "term": np.tile(np.asarray(terms, object), len(labels) - 1),
        "estimate": estimates,
        "standard_error": errors,
        "lower": estimates - width,
        "upper": estimates + width,
        "p_value": two_sided_p_values(estimates / errors, clusters),
    }


def _tested(result: Any, columns: list[int]) -> dict[str, Any]:
    """Wald's test that all coefficients of a covariate are zero."""
    from rrjax.models import wald_test

    try:
        return _facts(wald_test(result, columns))
    except ArgumentError:  # of a singular covariance
        degrees = len(columns) * result.standard_coefficients.shape[1]
        return {"statistic": math.nan, "degrees": degrees, "p_value": math.nan}


def _facts(test: Any) -> dict[str, Any]:
    return {"statistic": float(test.statistic), "degrees": test.degrees, "p_value": float(test.p_value)}


def _told(error: FitError, file: str, columns: list[str], labels: list[str]) -> Located:
    """The reason why there is no regression, with the names of covariates and categories, and options that help."""
    names = ["the intercept" if number < 0 else f"covariate {columns[number]!r}" for number in error.columns]
    column = next((columns[number] for number in error.columns if number >= 0), None)
    listed, name = ", ".join(names), names[0] if names else "a coefficient"
    number = 0 if error.number is None else error.number
    of = "" if error.category is None else f" of category {labels[error.category]!r}"
    given, prior = option("covariates"), f"give a prior, such as {option('ridge=0.1', '--ridge 0.1')}"
    said = {
        "missing": f"{name} has a value that is no finite number; {form.number(int(number), 'row', 'rows')} in all. "
        "Correct them, or leave them out as missing values",
        "scale": f"{name} has values up to {number:.3g}, at the end of what floats hold: give it in another unit",
        "constant": f"{name} is the same for everybody: leave it out of {given}",
        "dependent": f"covariates depend on each other linearly ({listed}): leave one of them out of {given}",
        "users": f"{form.number(int(number), 'row', 'rows')} are fewer than coefficients: leave covariates out",
        "weights": f"the {option('weights')} count as {number:.3g} users of equal weight, too few for "
        f"{form.number(len(columns), 'column', 'columns')} and {len(labels)} categories: trim the weights, or leave "
        "covariates out",
        "unbounded": f"{name}{of} runs off or is hardly determined. A covariate may separate the reports, no report "
        "may speak for a category, or the reports may say next to nothing at this ε: merge categories, leave the "
        f"covariate out, or {prior}",
        "steps": f"no maximum was found in {int(number)} steps: {prior}",
    }
    if error.reason == "clusters":
        return refusal(
            "clusters",
            f"{option('clusters')}: {int(number)} clusters are too few for {(error.needed or 1) - 1:.0f} coefficients; "
            "there must be more clusters than coefficients. Leave covariates out, or give smaller clusters",
            value=number,
        )
    message = said.get(error.reason, str(error))
    return io.DataError(f"{file}: {message}", file=file, column=column, value=error.value)
