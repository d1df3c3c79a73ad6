"""What a randomized answer depends on: multinomial logistic regression of the true values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rrjax import io
from rrjax.data.errors import ArgumentError, Located, check_rate, option, refusal
from rrjax.io.labels import label_text
from rrjax.io.rows import Covariate, read_covariate, read_covariates, read_rows
from rrjax.io.tallies import mechanism_of
from rrjax.mechanisms import Mechanism
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Block, Caution, Cells, Heading, rows_of_table
from rrjax.reports.functionals import read_weights
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import Reports, levels_alike
from rrjax.reports.two_sample_designs import TwoSampleReports

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
FEW_CLUSTERS = 20
_NUMBERS = ("estimate", "lower", "upper")


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Regression(Answer):
    """A regression: log-odds of each category to the reference, tests of the covariates, and a test of fit.

    `columns` have a row for each coefficient: category, term, estimate, standard_error, lower, upper, p_value.
    """

    written: ClassVar[str] = "Coefficients"
    page: ClassVar[str] = "models"

    reports: Reports
    coefficients: dict[str, np.ndarray]
    """The table of all coefficients, by column."""
    reference: str
    randomized_covariates: list[str]
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
    second: dict[str, Any] | None = None
    """The second share of two samples: called, share, standard_error, lower, upper, p_value (that everybody follows the
    rule), naive (the coefficients if so), and whether all limits are those of the profile likelihood."""
    notes: Sequence[str] = ()

    @property
    def _table(self):
        return self.coefficients

    @property
    def _results(self):
        names = [field.name for field in dataclasses.fields(self)]
        left_out = "reports", "coefficients", "notes", *(["second"] if self.second is None else [])
        return {name: getattr(self, name) for name in names if name not in left_out}

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"coefficients": rows_of_table(self.coefficients)}

    @property
    def words(self) -> dict[str, str]:
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
        of_profile = self.second is not None and self.second["profile"]
        limits = "limits of the profile likelihood" if of_profile else "estimate ± a multiple of the error"
        return {
            "(intercept)": "log-odds where all covariates are zero, or at their first levels",
            self._error: ways[self.covariance],
            form.interval(self.level): f"{limits}: holds each one with this confidence, for many users{student}",
            "p": "of the first tables: of a single estimate; of the last one: of all estimates of a covariate together "
            f"({wald})",
            "fit": "" if fit is None or self._misfits else f"nothing speaks against the model, {self._fitness}",
            "users": f"{self.num_rows:,}",
            # The likelihood of randomized covariates depends on which they are.
            "likelihood": ""
            if self.randomized_covariates
            else f"deviance {self.deviance:,.2f}, AIC {self.aic:,.2f} (of models of the same "
            "answers the smaller is better)",
            "certificate": f"log-likelihood within {form.at_most(max(self.gap, 1e-300))} nats of its maximum",
        }

    def blocks(self, top: int = SHOWN) -> list[Block]:
        blocks: list[Block] = []
        reference, table = form.printable(self.reference), self.coefficients
        if self.num_dropped:
            left_out = form.number(self.num_dropped, "row is", "rows are")
            blocks.append(
                f"{left_out} left out for want of a covariate, a weight or a cluster; {self.num_rows:,} are left."
            )
        if self.randomized_covariates:
            names = ", ".join(map(form.printable, self.randomized_covariates))
            blocks.append(
                f"Randomized, too: {names}. Their true values are estimated with the coefficients, and each category "
                "is compared with the first one."
            )
        for label in self._others:
            rows = []
            for row in np.flatnonzero(table["category"] == label):
                error = table["standard_error"][row]
                digits = form.decimals(error)  # show two digits of the error
                estimate, lower, upper = (f"{table[name][row]:.{digits}f}" for name in _NUMBERS)
                shown = [estimate, f"{error:.{digits}f}", f"{lower} to {upper}", _chance(table["p_value"][row])]
                rows.append([form.printable(table["term"][row]), *shown])
            titles = ["", "estimate", self._error, form.interval(self.level), "p"]
            compared = "" if self._is_second(label) else f", compared with {reference}"
            blocks.append(Heading(f"{form.printable(label)}{compared} (log-odds)"))
            blocks.append(Cells(titles, rows, width=30))
        blocks.append(
            "An estimate is the change of the log-odds for one unit more of a covariate, the others as they are: "
            f"0.69 doubles the odds of the answer against {reference}, −0.69 halves them."
        )
        blocks += [self.cells(), f"p: how likely so large a {self._statistic} would be if the covariate meant nothing."]
        if self.second is not None and isinstance(self.reports, TwoSampleReports):
            blocks += self.reports.second_blocks(self.second, self.level)
        if self._misfits:
            blocks.append(Caution(f"The model misses something: {self._fitness}."))
        return blocks

    def cells(self, top: int = SHOWN) -> Cells:
        rows = []
        for test in self.tests:
            statistic, degrees = test["statistic"], f"{test['degrees']}"
            freedom = degrees if self.num_clusters is None else f"{degrees}, {self.num_clusters - 1:,}"
            value = "–" if math.isnan(statistic) else f"{statistic:.4g}"
            rows.append([form.printable(test["covariate"]), value, freedom, _chance(test["p_value"])])
        return Cells(["does it matter?", self._statistic, "df", "p"], rows)

    def figure(self, ax: Axes | None = None) -> Figure:
        """The coefficients of the covariates, a panel for each category."""
        from rrjax.figures import forest_figure
        from rrjax.figures.estimates import Statements

        table, panels = self.coefficients, {}
        for label in self._others:
            rows = (table["category"] == label) & (table["term"] != "(intercept)")
            values, lower, upper = (table[name][rows] for name in _NUMBERS)
            names = [str(term) for term in table["term"][rows]]
            panels[label if self._is_second(label) else f"{label}, not {self.reference}"] = Statements(
                names, values, lower, upper, mark=0
            )
        users = f"{self.num_rows:,} {'simulated ' if self.reports.simulated else ''}users"
        return forest_figure(panels, level=self.level, title=f"Log-odds per unit of each covariate; {users}", ax=ax)

    @property
    def _others(self):
        """The categories but the reference, in their order."""
        return list(dict.fromkeys(self.coefficients["category"].tolist()))

    def _is_second(self, label):
        return self.second is not None and label == self.second["called"]

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
    factors: Iterable[str],
    reference: str | None,
    weights: str | None,
    clusters: str | None,
    robust: bool,
    drop_missing: bool,
    ridge: float,
    nuisance: list[str],
    level: float,
) -> Regression:
    """See `Reports.regress`."""
    from rrjax.mechanisms.mechanism import Reordered
    from rrjax.models import FitError, fit, fit_randomized_covariates, goodness_of_fit_test
    from rrjax.models.regression import MOST_RIDGE

    check_rate("level", level)
    if not 0 <= ridge <= MOST_RIDGE:
        problem = f"must be a number from 0 to {MOST_RIDGE:g}, got {ridge:g}"
        raise refusal("ridge", f"{option('ridge')} {problem}", value=ridge)
    names = [covariates] if isinstance(covariates, str) else list(covariates)
    if not names or len(set(names)) < len(names):
        problem = f"names columns, each once, got {names}"
        raise refusal("covariates", f"{option('covariates')} {problem}", value=names)
    two = reports if isinstance(reports, TwoSampleReports) else None
    if nuisance and two is None:
        raise refusal("nuisance", f"{option('nuisance')} is of {option('mechanism')} with two samples", value=nuisance)
    every = [*names, *(name for name in nuisance if name not in names)]
    rows = read_regression_rows(reports, every, list(factors), weights, clusters, drop_missing)
    others = rows
    if two is not None:
        if rows.randomized:
            raise refusal("covariates", f"{option('covariates')} of two samples cannot be randomized, too", value=names)
        others, rows = rows.of_columns(nuisance), rows.of_columns(names)
    number = (len(rows.columns) + 1) * (reports.num_categories - 1)
    if number > MOST_COEFFICIENTS:
        raise refusal(
            "covariates",
            f"{reports.num_categories:,} categories and {len(rows.columns)} columns make {number:,} coefficients, "
            f"more than {MOST_COEFFICIENTS:,}: merge categories before the collection is made, or use rrjax.models.fit",
            value=number,
        )
    order = _reordered(reports, reference)
    labels = [str(reports.labels[place]) for place in order]
    values, plain = rows.reports, reports.tallied is None
    if plain:
        values = np.where(values < 0, -1, np.argsort(order)[values])
    kind = "sandwich" if robust or weights is not None or clusters is not None else "observed"
    law = None if two else reports.epsilon if plain else Reordered(reports.mechanism_of(rows.kept), tuple(order))
    observed: Any = values, law
    how: Any = {"weights": rows.weights, "clusters": rows.clusters, "covariance": kind, "ridge": ridge}
    how |= {"num_categories": len(labels) if plain else None}
    if two is not None:
        observed = (values != two.yes).astype(np.int32), two.design
        how |= {"sample": two.samples[rows.kept], "nuisance": others.matrix if nuisance else None}
    try:
        if rows.randomized:
            pairs = [(each.reports, each.mechanism) for each in rows.randomized]
            result = fit_randomized_covariates(rows.matrix if rows.matrix.size else None, pairs, *observed, **how)
        else:
            result = fit(rows.matrix, *observed, **how)
    except FitError as error:
        raise _told(error, reports.name, rows.columns, labels) from error
    if two is not None:
        result, table, second, misfit = two.regression(result, rows.columns, others.columns, labels, level)
    else:
        given = result.coefficients, result.standard_errors, result.num_clusters
        table, second, misfit = coefficient_table(*given, rows.columns, labels, level), None, []
    fitness = None
    # The law of the test holds for independent users of equal weight, in ten groups of some size.
    if kind == "observed" and len(values) >= FEWEST_FOR_FIT and not rows.randomized and two is None:
        try:
            fitness = _facts(goodness_of_fit_test(result, rows.matrix, *observed))
        except FitError:
            fitness = None  # too few distinct values for groups
    _ = reports.contradicted  # which warns
    return Regression(
        reports,
        table,
        reference=labels[0],
        randomized_covariates=[each.name for each in rows.randomized],
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
        second=second,
        notes=[*rows.notes, *misfit, *([] if rows.clusters is None else _few_clusters(rows, number))],
    )


def _reordered(reports: Reports, reference: str | None) -> list[int]:
    """The numbers of the categories, that of the reference first."""
    labels = [str(label) for label in reports.labels]
    if reference is None:
        return list(range(len(labels)))
    if (reference := label_text(reference)) not in labels:
        shown = ", ".join(map(repr, labels[:10])) + ", …" * (len(labels) > 10)
        problem = f"{reference!r} is none of the categories {shown}"
        raise refusal("reference", f"{option('reference')} {problem}", value=reference)
    place = labels.index(reference)
    return [place, *(other for other in range(len(labels)) if other != place)]


def coefficient_table(
    coefficients: Any, errors: Any, clusters: int | None, columns: list[str], labels: list[str], level: float
) -> dict[str, np.ndarray]:
    """Coefficients `[D, K − 1]` with Wald's limits and tests, by column of a table; the intercept is the first."""
    from rrjax.models.results import critical_value, two_sided_p_values

    estimates, errors = (np.asarray(each, np.float64).T.ravel() for each in (coefficients, errors))
    width = critical_value(level, clusters) * errors
    terms = ["(intercept)", *columns]
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


@dataclasses.dataclass(frozen=True)
class RandomizedCovariate:
    """A covariate that was randomized apart."""

    name: str
    labels: np.ndarray
    mechanism: Mechanism
    reports: np.ndarray
    """Its reports, −1 where one is missing."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Reports and covariates of the users with both."""

    reports: np.ndarray
    matrix: np.ndarray
    columns: list[str]
    """Names of the columns: those of the public covariates, and the dummies of the randomized ones."""
    of: list[tuple[str, list[int]]]
    """Each covariate, and its columns."""
    weights: np.ndarray | None
    clusters: np.ndarray | None
    num_dropped: int
    randomized: list[RandomizedCovariate]
    kept: np.ndarray
    """Which rows of the files these are."""
    notes: list[str]
    """What is odd about the columns."""

    def of_columns(self, names: Sequence[str]) -> Rows:
        """The rows with these covariates alone."""
        places = [place for name, columns in self.of if name in names for place in columns]
        of = [(name, [places.index(place) for place in columns]) for name, columns in self.of if name in names]
        columns = [self.columns[place] for place in places]
        return dataclasses.replace(self, matrix=self.matrix[:, places], columns=columns, of=of)


def read_regression_rows(
    reports: Reports,
    covariates: Sequence[str],
    factors: Sequence[str],
    weights: str | None,
    clusters: str | None,
    drop_missing: bool,
) -> Rows:
    """Reads reports, covariates, weights and clusters. Rows that lack one are dropped or refused.

    With randomized covariates, rows without a report of the outcome remain.
    """
    outcome, source = reports.counted.column, reports.files
    randomized = source.columns()
    others = [*(("factors", name) for name in factors), ("weights", weights), ("clusters", clusters)]
    for argument, name in (*(("covariates", name) for name in covariates), *others):
        if name == outcome:
            problem = f"column {outcome!r} is the outcome; it cannot be used for another purpose, too"
        elif name in randomized and argument != "covariates":
            problem = f"column {name!r} is randomized; it can be the outcome or one of {option('covariates')}"
        else:
            continue
        raise refusal(argument, f"{option(argument)}: {problem}", value=name)
    public = [name for name in covariates if name not in randomized]
    values = reports.reports("a regression")
    chosen = _read_randomized(reports, values, [name for name in covariates if name in randomized])
    odd = next((name for name in factors if name not in public), None)
    if odd is not None:
        problem = f"{odd!r} is not among the covariates {', '.join(map(repr, public))}"
        raise refusal("factors", f"{option('factors')}: {problem}", value=odd)
    known = read_covariates(source, public, factors)
    of_weight, of_cluster = (
        None if name is None else dataclasses.replace(source, column=name) for name in (weights, clusters)
    )
    weight = None if of_weight is None else read_weights(of_weight)
    cluster = None if of_cluster is None else read_covariate(of_cluster, factor=True, most_levels=None)
    source.check_unchanged()
    answered = values >= 0 if values.ndim == 1 else np.ones(len(values), bool)
    answered = np.logical_or.reduce([answered, *(each.reports >= 0 for each in chosen)])
    used = [*known, *(each for each in (weight, cluster) if each is not None)]
    lacking = np.logical_or.reduce([np.zeros(len(values), bool), *(each.missing for each in used)])
    if (answered & lacking).any() and not drop_missing:
        raise _missing(reports, used, answered)
    kept = answered & ~lacking
    if not kept.any():
        raise io.DataError(f"{reports.name}: no row has a report and all covariates", file=reports.name)
    parts = [each.of_rows(kept).columns() for each in known]
    named = [(each.name, labels) for each, (_, labels) in zip(known, parts, strict=True)]
    named += [(each.name, [f"{each.name}: {label}" for label in each.labels[1:]]) for each in chosen]
    ends = np.cumsum([0, *(len(labels) for _, labels in named)])
    return Rows(
        values[kept],
        np.concatenate([np.zeros((int(kept.sum()), 0)), *(matrix for matrix, _ in parts)], axis=1),
        [label for _, labels in named for label in labels],
        [(name, list(range(*ends[place : place + 2]))) for place, (name, _) in enumerate(named)],
        None if weight is None else weight.values[kept],
        None if cluster is None else cluster.values[kept],
        int((answered & lacking).sum()),
        [dataclasses.replace(each, reports=each.reports[kept]) for each in chosen],
        kept,
        [note for each in used for note in levels_alike(each.name, each.levels or ())],
    )


def _read_randomized(reports: Reports, values: np.ndarray, names: Sequence[str]) -> list[RandomizedCovariate]:
    """Reads the reports of randomized covariates."""
    if not names:
        return []
    from rrjax.models.randomized_covariates import MOST_CELLS

    metadata = [reports.files.columns()[name] for name in names]
    cells = math.prod(each.num_categories for each in metadata)
    if cells > MOST_CELLS:
        sizes = " × ".join(f"{each.num_categories:,}" for each in metadata)
        raise refusal(
            "covariates",
            f"{option('covariates')}: the randomized columns have {sizes} = {cells:,} combinations of values, and the "
            f"limit is {MOST_CELLS}: name fewer of them",
            value=cells,
        )
    columns = []
    for name, each in zip(names, metadata, strict=True):
        own = read_rows(dataclasses.replace(reports.files, column=each.column), each.domain).indices
        if not ((values >= 0) & (own >= 0)).any():
            raise refusal(
                "covariates",
                f"{option('covariates')}: nobody in {reports.name} reports both {name!r} and the outcome, so the "
                "reports do not tell how the two go together",
                value=name,
            )
        columns.append(RandomizedCovariate(name, each.domain.labels(), mechanism_of(each, reports.name), own))
    return columns


def _missing(reports: Reports, used: Sequence[Covariate], answered: np.ndarray) -> io.DataError:
    row, name = min(
        (int(np.argmax(each.missing & answered)), each.name) for each in used if (each.missing & answered).any()
    )
    number = int((np.any([each.missing for each in used], axis=0) & answered).sum())
    # The number of a row counts through all files, so it names no row of one of several.
    alone = len(reports.files.files()) == 1
    where = f", row {row + 1:,}" if alone else ""
    return io.DataError(
        f"{reports.name}, column {name!r}{where}: no value; "
        f"{form.number(number, 'row lacks', 'rows lack')} a covariate, a weight or a cluster. Fill them in, or leave "
        f"such rows out with {option('drop_missing=True', '--drop-missing')}",
        file=reports.name,
        column=name,
        row=row + 1 if alone else None,
    )


def _few_clusters(rows: Rows, coefficients: int) -> list[str]:
    """Warnings about standard errors that are too small because of few clusters."""
    names, group = np.unique(np.asarray(rows.clusters), return_inverse=True)
    clusters = len(names)
    if clusters <= coefficients:
        return []
    if clusters < FEW_CLUSTERS:
        return [f"There are {clusters} clusters. Standard errors of so few are too small: some dozens are needed."]
    said = []
    for name, values in zip(rows.columns, rows.matrix.T, strict=False):  # randomized columns come after the known ones
        low, high = np.full(clusters, np.inf), np.full(clusters, -np.inf)
        np.minimum.at(low, group, values)
        np.maximum.at(high, group, values)
        counts = np.unique(low, return_counts=True)[1]
        if (low == high).all() and len(counts) == 2 and (fewer := counts.min()) < FEW_CLUSTERS / 2:
            said.append(
                f"Covariate {name!r} is the same within each cluster, and only {fewer} of {clusters} have its "
                "rarer value: its standard error is too small."
            )
    return said
