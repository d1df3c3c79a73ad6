"""Numbers within a class that was randomized: means and quantiles of a public column, class by class."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rrjax import inference, io
from rrjax.data.errors import check_rate, option, refusal
from rrjax.io.rows import Covariate, note_of_thousands, read_covariate
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells, rows_of_table
from rrjax.reports.functionals import answered_in, check_public, read_levels, rows_left_out, rows_of_levels
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import levels_alike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CELLS = 1 << 25
"""Limit of records × classes: a matrix of them takes 256 MiB."""
MOST_CURVES, CURVE_POINTS = 4, 100
"""Number of classes whose distributions are drawn; and of the points of their bands."""
MOST_NAMED = 3
"""Rows without limits that are named."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ClassStatements(Answer):
    """Means and quantiles of numbers that were not randomized, within each class, which was; with intervals.

    `columns` are a row for each statement, level and class, of two classes also for their difference, which has no
    share: statement, of, class, num_reports, share, value, lower, upper. Limits are infinite where the reports do not
    show that the class has records beyond some number.
    """

    written: ClassVar[str] = "Statements"

    reports: Any
    table: dict[str, np.ndarray]
    """The columns."""
    within: str
    """The column of the numbers."""
    by: str | None
    level: float
    simultaneous: bool
    quantiles: Sequence[float]
    """The quantiles, if no mean is asked for."""
    num_left_out: int
    """Number of reports without a number, or without a level."""
    notes: Sequence[str] = ()

    @property
    def _table(self):
        return self.table

    @property
    def _unlimited(self) -> np.ndarray:
        """Which rows have an infinite limit."""
        return np.isinf(self.table["lower"]) | np.isinf(self.table["upper"])

    @property
    def _of_classes(self) -> np.ndarray:
        """Which rows are about one class; the others are differences."""
        return ~np.isnan(self.table["share"])

    @property
    def _results(self):
        return {
            "within": self.within,
            "by": self.by,
            "level": self.level,
            "at_once": self.simultaneous,
            "num_left_out": self.num_left_out,
            "num_unlimited": int(self._unlimited.sum()),
        }

    @property
    def sentences(self) -> list[str]:
        level = f"{form.in_full(self.level)} confidence"
        which = f"The intervals are simultaneous: all of them hold the true numbers, with {level}."
        if not self.simultaneous:
            which = f"Each interval holds the true number of its class with {level}, each row for itself."
        tails = "; those of means with a long tail, thousands" if "mean" in self.table["statement"] else ""
        return [which, f"The intervals need some hundreds of records{tails}."]

    @property
    def cautions(self) -> list[str]:
        rows = np.flatnonzero(self._unlimited & self._of_classes)
        if not len(rows):
            return []
        names = list(dict.fromkeys(self._names(rows)))
        listed = "; ".join(map(form.printable, names[:MOST_NAMED])) + "; …" * (len(names) > MOST_NAMED)
        return [f"∞: no limit ({listed}). The reports do not show that the class has records beyond some number."]

    def _names(self, rows):
        """The classes of some rows, with their levels."""
        of, label = self.table["of"], self.table["class"]
        return [f"{label[row]}" + f", {of[row]}" * (self.by is not None) for row in rows]

    @property
    def words(self) -> dict[str, str]:
        estimate = "of quantiles the first number up to which the class, its randomization undone, has this fraction; "
        return {
            "reports": "number of records",
            "share": "share of the class among these records: unbiased, so it may be negative",
            "estimate": f"{estimate}of means the mean of the numbers, each weighted by its unbiased class",
            form.interval(self.level): "all numbers that a test at this level does not reject (of quantiles Woodruff's "
            "inversion with Wilson's variance, of means Fieller's)",
            "… less …": ""
            if self._of_classes.all()
            else "the difference between the classes; they differ, at this level, if its interval does not hold 0",
            "all": "the records of all levels together" if self.by is not None else "",
        }

    def cells(self, top: int = SHOWN) -> Cells:
        rows, by = [], [] if self.by is None else [self.by]
        for row in rows_of_table(self.table):
            value, lower, upper = row["value"], row["lower"], row["upper"]
            width = (upper - lower) / 4 if math.isfinite(upper - lower) else abs(value) / 100
            digits = form.decimals(width)
            limits = "–" if math.isnan(lower) else f"{_text(lower, digits)} – {_text(upper, digits)}"
            names = map(form.printable, [row["class"], *([row["of"]] if by else [])])
            share = "" if math.isnan(row["share"]) else form.percent(row["share"])
            numbers = f"{row['num_reports']:,}", share, _text(value, digits)
            rows.append([row["statement"], *names, *numbers, limits])
        names = [self.within, self.reports.counted.column, *by]
        heads = ["reports", "share", "estimate", form.interval(self.level)]
        return Cells([*map(form.printable, names), *heads], rows, names=len(names), width=30)

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"statements": rows_of_table(self.table)}

    def figure(self, ax: Axes | None = None) -> Figure:
        """The distributions of few classes with bands; with means or levels, a panel for each statement.

        An interval with an infinite limit is not drawn.
        """
        from rrjax.figures import distributions_figure, forest_figure

        title = f"{self.reports.called}, by the true {self.reports.counted.column}"
        if self.quantiles and self.by is None and self.reports.num_categories <= MOST_CURVES:
            label = f"{100 * self.level:g} % bands, {'all points at once' if self.simultaneous else 'point by point'}"
            given = {"quantiles": self.quantiles, "band_label": label, "name": self.within, "title": title}
            return distributions_figure(*_distributions(self), **given, ax=ax)
        panels = {}
        for statement in dict.fromkeys(self.table["statement"]):
            rows = np.flatnonzero((self.table["statement"] == statement) & self._of_classes)
            limits = (np.where(self._unlimited, np.nan, self.table[name])[rows] for name in ("lower", "upper"))
            panels[f"{statement} of {self.within}"] = self._names(rows), self.table["value"][rows], *limits
        return forest_figure(panels, level=self.level, title=title, ax=ax)


def _text(number: float, digits: int) -> str:
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return "–" if math.isnan(number) else f"{number:,.{digits}f}"


@in_float64
def within_of(
    reports: Any,
    within: str,
    mean: bool,
    quantile: float | Iterable[float],
    by: str | None,
    level: float,
    simultaneous: bool,
) -> ClassStatements:
    """See `Reports.within`."""
    check_rate("level", level)
    quantiles = [quantile] if isinstance(quantile, int | float) else list(dict.fromkeys(quantile))
    for each in quantiles:
        check_rate("quantile", each)
    if not (mean or quantiles):
        quantiles = [0.5]
    numbers, public, values, there = _read(reports, within, by)
    number, size, labels = int(there.sum()), reports.num_categories, [str(label) for label in reports.labels]
    if number < 2:
        problem = f"{form.number(number, 'row has', 'rows have')} a number and a report; two are needed"
        raise io.DataError.at(reports.name, problem, column=within)
    if number * size > MOST_CELLS:
        most = f"{number:,} records × {size:,} classes are more than the limit of {MOST_CELLS:,}"
        raise refusal("within", f"{option('within')}: {most}", value=within)
    answers, mechanism, values = values, reports.mechanism_of(there), values[there]
    place = np.cumsum(there) - 1
    parts = [(level, place[rows]) for level, rows in rows_of_levels(public, there) if len(rows)]
    names = ["mean"] * mean + [*map(form.quantile, quantiles)]
    labels += [f"{labels[0]} less {labels[1]}"] * (size == 2)
    shape = len(names), len(parts), len(labels)
    tail = (1 - level) / (math.prod(shape) if simultaneous else 1)
    given = numbers.values[there], values, mechanism
    statements, vectors = np.empty((3, *shape)), np.asarray(mechanism.debias(values))
    shares = np.full(shape[1:], np.nan)
    for part, (_, rows) in enumerate(parts):
        how: dict[str, Any] = {"level": 1 - tail, "where": np.isin(np.arange(number), rows)}
        shares[part, :size] = vectors[rows].mean(axis=0)
        statements[:, :, part, :size] = _numbers(given, mean, quantiles, **how)
        if size == 2:
            statements[:, :, part, size] = _numbers(given, mean, quantiles, **how, reference=1)[..., 0]
    own = {
        "statement": np.asarray(names, object)[:, None, None],
        "of": np.asarray([level for level, _ in parts], object)[:, None],
        "class": np.asarray(labels, object),
        "num_reports": np.asarray([len(rows) for _, rows in parts])[:, None],
        "share": shares,
        **dict(zip(("value", "lower", "upper"), statements, strict=True)),
    }
    table = {name: np.broadcast_to(each, shape).ravel() for name, each in own.items()}
    lacking = [each.name for each in (numbers, public) if each is not None and each.missing.any()]
    notes = rows_left_out(left_out := int(answered_in(answers).sum()) - number, lacking)
    notes += levels_alike(by, [level for level, _ in parts]) + note_of_thousands(numbers)
    _ = reports.contradicted  # which warns
    curves = [] if mean else quantiles
    return ClassStatements(reports, table, within, by, level, simultaneous, curves, left_out, notes)


def _numbers(given: tuple[Any, Any, Any], mean: bool, quantiles: Sequence[float], **how: Any) -> np.ndarray:
    """The means and quantiles of the classes, with their limits, `[3, statements, K]`."""
    intervals = [np.asarray(inference.class_means(*given, **how))[:, None]] if mean else []
    intervals += [np.asarray(inference.class_quantiles(*given, np.asarray(quantiles), **how))] if quantiles else []
    return np.concatenate(intervals, axis=1)


@in_float64
def _distributions(answer: ClassStatements) -> tuple[np.ndarray, dict[str, list[np.ndarray]]]:
    """Points, and the distributions of the classes there, with their limits."""
    reports = answer.reports
    numbers, _, values, there = _read(reports, answer.within, None)
    known = numbers.values[there]
    points = np.quantile(known, np.linspace(0.005, 0.995, CURVE_POINTS // 2))
    points = np.union1d(points, np.linspace(points[0], points[-1], CURVE_POINTS // 2))
    how: dict[str, Any] = {"level": answer.level, "simultaneous": "bonferroni" if answer.simultaneous else None}
    curves = inference.class_cdf(known, values[there], reports.mechanism_of(there), points, **how)
    return points, {str(label): [np.asarray(each)[:, k] for each in curves] for k, label in enumerate(reports.labels)}


def _read(reports: Any, within: str, by: str | None) -> tuple[Covariate, Covariate | None, np.ndarray, np.ndarray]:
    """The numbers, the levels and the reports, row by row; and the rows that have all of them."""
    check_public(reports, {"within": within, **({} if by is None else {"by": by})})
    source, values = reports.files, reports.reports(option("within"))
    numbers = read_covariate(dataclasses.replace(source, column=within), most_levels=None)
    if numbers.levels is not None:
        raise io.DataError.at(reports.name, "no value is a number, and numbers are wanted", column=within)
    public = None if by is None else read_levels(source, by)
    source.check_unchanged()
    given = [each for each in (numbers, public) if each is not None]
    return numbers, public, values, np.logical_and.reduce([answered_in(values), *(~each.missing for each in given)])
