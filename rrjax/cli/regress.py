"""`rrjax regress`."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from rrjax import io
from rrjax.cli import show
from rrjax.cli.design import SurveyDesign
from rrjax.cli.fit_errors import told
from rrjax.cli.hidden_columns import Hidden, hidden_columns, with_hidden
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Level, Output, check_rate, flags, split
from rrjax.cli.paths import READS, WRITES
from rrjax.cli.public_columns import Rows, few_clusters, read_rows_of
from rrjax.cli.reading import Epsilon, Files, Reading, read_collection
from rrjax.data.errors import UsageError
from rrjax.reports import form
from rrjax.reports.reports import Reports

MOST_COEFFICIENTS = 2000
"""Limit of the number of coefficients: their information matrix takes 32 MB."""
MISFIT_LEVEL = 0.01
"""Level of the test of fit below which the model is reported to miss something."""
_NUMBERS = ("estimate", "lower", "upper")

_flag = partial(typer.Option, rich_help_panel="The model")


@dataclasses.dataclass(frozen=True)
class RegressionOutput(Output):
    """Output with a table of coefficients in place of categories."""

    out: Annotated[
        Path | None, typer.Option(help="Write all coefficients to this .csv, .tsv, .parquet or .jsonl."), WRITES
    ] = None


@flags(without=("column", "counts", "items", "top"))
def regress(
    reports: Annotated[list[str], typer.Argument(metavar="FILES", help="Files of rows; globs work."), READS],
    outcome: Annotated[str, typer.Option(help="Column of randomized reports.")],
    covariates: Annotated[
        str,
        typer.Option(
            help="Columns that it may depend on, separated by commas: numbers, texts as factors, or columns of "
            "`rrjax randomize --apart`, whose true values are estimated too."
        ),
    ],
    epsilon: Epsilon = None,
    *,
    design: SurveyDesign,
    reading: Reading,
    output: RegressionOutput,
    factors: Annotated[
        str | None, _flag(help="Covariates whose numbers are names of levels, separated by commas.")
    ] = None,
    reference: Annotated[
        str | None, _flag(help="The category that others are compared with, in place of the first one.")
    ] = None,
    weights: Annotated[str | None, _flag(help="Column of survey weights; errors are robust then.")] = None,
    clusters: Annotated[
        str | None, _flag(help="Column of clusters, within which users may depend on each other.")
    ] = None,
    robust: Annotated[
        bool, _flag("--robust", help="Standard errors that hold where the model is wrong, too (sandwich).")
    ] = False,
    drop_missing: Annotated[
        bool, _flag("--drop-missing", help="Leave out rows that lack a covariate, a weight or a cluster.")
    ] = False,
    ridge: Annotated[float, _flag(help="Precision of a normal prior on standardized coefficients.")] = 0.0,
    level: Level = 0.95,
) -> None:
    """Find what a randomized answer depends on: multinomial logistic regression of the true values.

    rrjax regress survey.csv --outcome uses --covariates age,region --epsilon 1

    rrjax regress survey.parquet --outcome smokes --covariates income,age

    Each row holds a report of any mechanism, or an answer to the survey design of --mechanism, and the covariates of
    who made it: as they are, or randomized, too, by `rrjax randomize --apart`.
    """
    check_rate("--level", level)
    from rrjax.models.regression import MOST_RIDGE

    if not 0 <= ridge <= MOST_RIDGE:
        raise UsageError.about("--ridge", f"must be a number from 0 to {MOST_RIDGE:g}, got {ridge:g}", value=ridge)
    files = Files(reports, dataclasses.replace(reading, column=outcome))
    names, listed = split("--covariates", covariates), [] if factors is None else split("--factors", factors)
    purposes = [*(("--covariates", name) for name in names), ("--weights", weights), ("--clusters", clusters)]
    for flag, name in purposes:
        if name == outcome:
            raise UsageError(
                f"{flag}: column {outcome!r} is the outcome; it cannot be used for another purpose, too",
                flag=flag,
                value=name,
            )
    with show.status("Reading …") as status:
        collection = read_collection(files, epsilon, design)
        randomized = [] if design.mechanism is not None else [*files.source.columns()]
        for flag, name in (*(("--factors", each) for each in listed), *purposes[len(names) :]):
            if name in randomized:
                raise UsageError(
                    f"{flag}: column {name!r} is randomized; it can be the outcome or one of --covariates",
                    flag=flag,
                    value=name,
                )
        hidden = hidden_columns(files, collection, [name for name in names if name in randomized])
        known = [name for name in names if name not in randomized]
        reports_of = [] if hidden is None else hidden.reports
        rows = read_rows_of(collection, known, listed, (weights, clusters), drop_missing, reports_of)
        rows = rows if hidden is None else with_hidden(rows, hidden)
        _check_size(rows, collection)
        status.update("Fitting …")
        found = _fitted(rows, collection, reference, ridge, robust, hidden)
        if output.out is not None:
            io.write_table(output.out, collection.table(found.table(level)))
        if output.plot is not None:
            found.draw(output.plot, level, simulated=collection.simulated)
    if output.json:
        show.record({"command": "regress"} | collection.facts() | found.facts(level) | output.files)
        return
    show.say(collection.summary())
    show.warn(collection.warnings)
    found.show(level, explain=output.explain)
    show.show_files({"Coefficients": output.out, "Figure": output.plot})


def _check_size(rows: Rows, collection: Reports) -> None:
    number = (len(rows.columns) + 1) * (collection.num_categories - 1)
    if number > MOST_COEFFICIENTS:
        raise UsageError(
            f"{collection.num_categories:,} categories and {len(rows.columns)} columns make {number:,} coefficients, "
            f"more than {MOST_COEFFICIENTS:,}: merge categories before the collection is made, or use rrjax.models.fit",
            flag="--covariates",
            value=number,
        )
    if rows.clusters is not None and number < len(clusters := np.unique(rows.clusters)):
        collection.warnings.extend(few_clusters(rows, len(clusters)))


@dataclasses.dataclass(frozen=True)
class _Found:
    """A regression, with the names of its covariates and categories."""

    result: Any
    rows: Rows
    labels: list[str]
    tests: list[tuple[str, float, int, float]]
    fit: tuple[float, int, float] | None
    kind: str
    hidden: list[str]

    def table(self, level: float) -> dict[str, np.ndarray]:
        """All coefficients, in one column."""
        from rrjax.models.results import critical_value, two_sided_p_values

        estimates, errors = (
            np.asarray(each, np.float64).T.ravel() for each in (self.result.coefficients, self.result.standard_errors)
        )
        clusters = self.result.num_clusters
        width = critical_value(level, clusters) * errors
        terms = ["(intercept)", *self.rows.columns]
        return {
            "category": np.repeat(np.asarray(self.labels[1:], object), len(terms)),
            "term": np.tile(np.asarray(terms, object), len(self.labels) - 1),
            "estimate": estimates,
            "standard_error": errors,
            "lower": estimates - width,
            "upper": estimates + width,
            "p_value": two_sided_p_values(estimates / errors, clusters),
        }

    def facts(self, level: float) -> dict[str, Any]:
        """As fields of a JSON object."""
        table = self.table(level)
        return {
            "reference": self.labels[0],
            "hidden": self.hidden,
            "covariance": self.kind,
            "num_rows": len(self.rows.reports),
            "num_dropped": self.rows.num_dropped,
            "num_clusters": self.result.num_clusters,
            "level": level,
            "coefficients": [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)],
            "tests": [
                dict(zip(("covariate", "statistic", "degrees", "p_value"), test, strict=True)) for test in self.tests
            ],
            "goodness_of_fit": self.fit and dict(zip(("statistic", "degrees", "p_value"), self.fit, strict=True)),
            "log_likelihood": float(self.result.log_likelihood),
            "deviance": float(self.result.deviance),
            "aic": float(self.result.aic),
            "num_iters": int(self.result.num_iters),
            "gap": float(self.result.gap),
        }

    def draw(self, plot: Path, level: float, *, simulated: bool) -> None:
        """Draws the coefficients of the covariates, a panel for each category."""
        with show.drawing():
            from rrjax.figures import forest_figure, save
            from rrjax.figures.estimates import Statements

            table = self.table(level)
            panels = {}
            for label in self.labels[1:]:
                rows = (table["category"] == label) & (table["term"] != "(intercept)")
                values, lower, upper = (table[name][rows] for name in _NUMBERS)
                names = [str(term) for term in table["term"][rows]]
                panels[f"{label}, not {self.labels[0]}"] = Statements(names, values, lower, upper, mark=0)
            users = f"{len(self.rows.reports):,} {'simulated ' if simulated else ''}users"
            title = f"Log-odds per unit of each covariate; {users}"
            save(forest_figure(panels, level=level, title=title), plot)

    def show(self, level: float, *, explain: bool) -> None:
        """Prints a table for each category, the tests, and how to read them."""
        table = self.table(level)
        terms = len(self.rows.columns) + 1
        if self.rows.num_dropped:
            show.say(
                f"{form.number(self.rows.num_dropped, 'row is', 'rows are')} left out for want of a covariate, a "
                f"weight or a cluster; {len(self.rows.reports):,} are left."
            )
        if self.hidden:
            show.say(
                f"Randomized, too: {', '.join(map(form.printable, self.hidden))}. Their true values are estimated with "
                "the coefficients, and each category is compared with the first one."
            )
        robust = "robust error" if self.kind == "sandwich" else "std. error"
        for place, label in enumerate(self.labels[1:]):
            show.out.print()
            show.say(f"{form.printable(label)}, compared with {form.printable(self.labels[0])} (log-odds)")
            drawn = show.table("", "estimate", robust, form.interval(level), "p", max_width=30)
            for row in range(place * terms, (place + 1) * terms):
                drawn.add_row(
                    Text(form.printable(table["term"][row])),
                    *_written(table["standard_error"][row], *(table[name][row] for name in _NUMBERS)),
                    _chance(table["p_value"][row]),
                )
            show.show_table(drawn)
        show.say(
            "An estimate is the change of the log-odds for one unit more of a covariate, the others as they are: "
            f"0.69 doubles the odds of the answer against {form.printable(self.labels[0])}, −0.69 halves them."
        )
        show.out.print()
        clusters = self.result.num_clusters
        statistic_title = "χ²" if clusters is None else "F"
        drawn = show.table("does it matter?", statistic_title, "df", "p", max_width=40)
        for name, statistic, degrees, p_value in self.tests:
            written = "–" if math.isnan(statistic) else f"{statistic:.4g}"
            freedom = f"{degrees}" if clusters is None else f"{degrees}, {clusters - 1:,}"
            drawn.add_row(Text(form.printable(name)), written, freedom, _chance(p_value))
        show.show_table(drawn)
        show.say(f"p: how likely so large a {statistic_title} would be if the covariate meant nothing.")
        if self.fit is not None and self.fit[-1] < MISFIT_LEVEL:
            show.beware(f"The model misses something: {self._fitness()}.")
        show.explain(self._explanations(level, robust), explain, "models")

    def _fitness(self) -> str:
        """The test of fit in words."""
        assert self.fit is not None
        statistic, degrees, p_value = self.fit
        return f"by a score test of ten groups of users χ² = {statistic:.4g} on {degrees} df, p {_compared(p_value)}"

    def _explanations(self, level: float, robust: str) -> dict[str, str]:
        """Explains each column; adds the likelihood and the certificate."""
        clusters = self.result.num_clusters
        ways = {
            "observed": "by how much estimates are off, typically, if the model is right",
            "sandwich": "standard errors are robust: by how much estimates are off, typically, even of a wrong model",
        }
        return {
            "(intercept)": "log-odds where all covariates are zero, or at their first levels",
            robust: ways[self.kind],
            form.interval(
                level
            ): "estimate ± a multiple of the error: holds each one with this confidence, for many users"
            + (f" and clusters (Student's t of {clusters - 1:,} degrees)" if clusters is not None else ""),
            "p": "of the first tables: of a single estimate; of the last one: of all estimates of a covariate together "
            + (
                "(Wald's χ²; df: how many there are)"
                if clusters is None
                else "(Wald's F; df: how many there are, and clusters less one)"
            ),
            "fit": f"nothing speaks against the model, {self._fitness()}"
            if self.fit and self.fit[-1] >= MISFIT_LEVEL
            else "",
            "users": f"{len(self.rows.reports):,}",
            # The likelihood of hidden covariates depends on which they are.
            "likelihood": ""
            if self.hidden
            else f"deviance {float(self.result.deviance):,.2f}, AIC {float(self.result.aic):,.2f} (of models of the "
            "same answers the smaller is better)",
            "certificate": f"log-likelihood within {form.at_most(max(float(self.result.gap), 1e-300))} nats of its "
            "maximum",
        }


def _written(error: float, estimate: float, lower: float, upper: float) -> tuple[str, str, str]:
    """Numbers with as many decimals as show two digits of the standard error."""
    digits = form.decimals(error)
    return f"{estimate:.{digits}f}", f"{error:.{digits}f}", f"{lower:.{digits}f} to {upper:.{digits}f}"


def _chance(p_value: float) -> str:
    return "–" if math.isnan(p_value) else _compared(p_value).removeprefix("= ")


def _compared(p_value: float) -> str:
    return "< 0.0001" if p_value < 1e-4 else f"= {p_value:.4f}"


@ending_at_once()
def _fitted(
    rows: Rows, collection: Reports, reference: str | None, ridge: float, robust: bool, hidden: Hidden | None
) -> _Found:
    from rrjax.mechanisms.reordered import Reordered
    from rrjax.models import FitError, fit, fit_hidden, goodness_of_fit_test

    labels = [str(label) for label in collection.labels]
    order = _reordered(labels, reference)
    reports, plain = rows.reports, collection.tallied is None
    if plain:
        reports = np.where(reports < 0, -1, np.argsort(order)[reports])
    labels = [labels[place] for place in order]
    kind = "sandwich" if robust or rows.weights is not None or rows.clusters is not None else "observed"
    size = len(labels) if plain else None
    observed = reports, collection.epsilon if plain else Reordered(collection.mechanism, tuple(order))
    given = (rows.matrix, *observed)
    how = {"num_categories": size, "weights": rows.weights, "clusters": rows.clusters, "covariance": kind}
    try:
        if hidden is None:
            result = fit(*given, ridge=ridge, **how)
        else:
            pairs = list(zip(rows.hidden, hidden.mechanisms, strict=True))
            result = fit_hidden(rows.matrix if rows.matrix.size else None, pairs, *observed, ridge=ridge, **how)
    except FitError as error:
        raise told(error, collection.name, rows.columns, labels) from error
    tests = [(name, *_tested(result, columns)) for name, columns in rows.of]
    fitness = None
    # The law of the test holds for independent users of equal weight, in ten groups of some size.
    if kind == "observed" and len(reports) >= 200 and hidden is None:
        try:
            test = goodness_of_fit_test(result, *given)
            fitness = float(test.statistic), test.degrees, float(test.p_value)
        except FitError:
            fitness = None  # too few distinct values for groups
    return _Found(result, rows, labels, tests, fitness, kind, [] if hidden is None else hidden.names)


def _tested(result: Any, columns: list[int]) -> tuple[float, int, float]:
    from rrjax.data.errors import ArgumentError
    from rrjax.models import wald_test

    try:
        test = wald_test(result, columns)
    except ArgumentError:  # of a singular covariance
        return math.nan, len(columns) * result.standard_coefficients.shape[1], math.nan
    return float(test.statistic), test.degrees, float(test.p_value)


def _reordered(labels: list[str], reference: str | None) -> list[int]:
    if reference is None:
        return list(range(len(labels)))
    if reference not in labels:
        shown = ", ".join(map(repr, labels[:10])) + ", …" * (len(labels) > 10)
        raise UsageError.about("--reference", f"{reference!r} is none of the categories {shown}", value=reference)
    place = labels.index(reference)
    return [place, *(other for other in range(len(labels)) if other != place)]
