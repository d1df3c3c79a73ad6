"""Reports of numbers: quantiles, the mean and the distribution function, in the data's unit."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from rrjax import inference, io, metrics
from rrjax.data.errors import check_rate, option, refusal
from rrjax.estimators.catalogue import ENTRIES
from rrjax.io.domain import Domain
from rrjax.io.numbers import NumberReports
from rrjax.io.source import Source, sources_in
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells, rows_of_table
from rrjax.reports.comparison import true_shares, with_source
from rrjax.reports.kind import Kind
from rrjax.reports.parameters import check_epsilon, check_true
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import FALSE_ALARM, simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rrjax.reports.comparison import Truth

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Probabilities of the quantiles that are estimated unless others are named."""
ESTIMATORS_OF_NUMBERS = {entry.name: entry for entry in ENTRIES if entry.needs == "numbers"}
"""Estimators of numbers, by name; the first one is the default."""
DEFAULT = next(iter(ESTIMATORS_OF_NUMBERS))
LEAST_SPAN, MOST_SPAN = 1e-9, 1e15
"""Ranges whose numbers are printed without an exponent."""
ROUNDING = 1e-6
"""Limit of a difference between the estimated distribution function and its band that rounding explains."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Numbers(Kind):
    """Counted reports of numbers, with their mechanism and the range of the numbers.

    Made by `rrjax.read` of files that `rrjax randomize` wrote with a mechanism for numbers: `square-wave` or
    `geometric`. Methods are questions, which compute in float64 and change no setting.

    Example:
        >>> import rrjax
        >>> numbers = rrjax.read("ages.parquet")  # doctest: +SKIP
        >>> numbers.quantile(0.5, mean=True)  # doctest: +SKIP
    """

    called_kind: ClassVar[str] = "reports of numbers"

    counted: NumberReports
    source: Source
    warnings: list[str]

    @property
    def num_reports(self) -> int:
        return self.counted.num_reports

    @property
    def simulated(self) -> bool:
        return self.counted.metadata.simulated

    @property
    def integers(self) -> bool:
        """Whether the numbers are integers, not bins."""
        return self.counted.metadata.range is None

    @property
    def middles(self) -> np.ndarray:
        """The middle of each bin, or the integer itself, `[K]`."""
        return (self.counted.lower + self.counted.upper) / 2

    @cached_property
    def contradicted(self) -> bool:
        """Whether no distribution explains the reports; by chance it is so with probability 1 % at most."""
        return bool(np.isnan(self._mean_limits(1 - FALSE_ALARM)).any())

    @in_float64
    def _mean_limits(self, level):
        counted = self.counted
        return inference.mean_limits(counted.counts, counted.mechanism, counted.lower, counted.upper, level=level)

    def _theta(self, estimator=DEFAULT):
        mixture = self.counted.mechanism.channel().mixture_of_counts(self.counted.counts)
        return np.asarray(ESTIMATORS_OF_NUMBERS[estimator].function(mixture), float)

    def summary(self) -> str:
        """The number of reports, their range, mechanism, column and ε."""
        counted, metadata = self.counted, self.counted.metadata
        size, width = metadata.num_categories, self.middles[1] - self.middles[0]
        of = f"{size:,} integers" if self.integers else f"{size:,} bins of width {width:.6g}"
        return (
            f"{self.called} of numbers from {counted.lower[0]:.12g} to {counted.upper[-1]:.12g}, "
            f"by {metadata.mechanism.name} on {of}, in column {metadata.column!r}; "
            f"ε = {metadata.effective_epsilon:.6g} nats"
        )

    def in_words(self, value: float) -> str:
        """A number, rounded to about a thousandth of the range; whole if it is one of the integers."""
        span = float(self.counted.upper[-1] - self.counted.lower[0])
        if not LEAST_SPAN < span < MOST_SPAN:
            return f"{value:.4g}"
        whole = self.integers and value == round(value)
        return f"{value:.{0 if whole else form.decimals(span / 50)}f}"

    def facts(self) -> dict[str, Any]:
        metadata = self.counted.metadata
        return {
            "reports": self.paths,
            "column": metadata.column,
            "num_reports": self.num_reports,
            "num_missing": self.counted.num_missing,
            "num_categories": metadata.num_categories,
            "domain": metadata.domain.describe(),
            "yes": None,
            "range": metadata.range,
            "mechanism": metadata.mechanism.name,
            "epsilon": metadata.effective_epsilon,
            "simulated": metadata.simulated,
            "round": None,
            "metadata_tests": {},
            "warnings": self.warnings,
        }

    @in_float64
    def statements(
        self, *, mean: bool = False, quantile: Sequence[float] = (), level: float = 0.95
    ) -> NumberStatements:
        """Estimates quantiles and the mean, with limits that hold together; and the distribution function.

        Args:
            mean: Whether the mean is asked for.
            quantile: Probabilities of quantiles, in (0, 1); 0.5 is the median. Without it and without the mean, five
                quantiles and the mean are estimated.
            level: Confidence level of all limits together, in (0, 1).

        Returns:
            `NumberStatements`, computed in float64.

        Raises:
            ArgumentError: A level or a probability outside of (0, 1).

        Example:
            >>> import rrjax
            >>> rrjax.read("ages.parquet").statements().to_dict()["mean"]  # doctest: +SKIP
        """
        check_rate("level", level)
        for probability in quantile:
            check_rate("quantile", probability)
        if usual := not mean and not quantile:
            quantile = QUANTILES
        counted, theta = self.counted, self._theta()
        band = inference.cdf_band(counted.counts, counted.mechanism, level=level)
        rows = _quantiles(counted, theta, band, quantile) if quantile else []
        if mean or usual:
            rows.append(Statement("mean", None, float(theta @ self.middles), *self._mean_limits(level)))
        return NumberStatements(self, theta, band, rows, level)

    def quantile(self, *probabilities: float, mean: bool = False, level: float = 0.95) -> NumberStatements:
        """Estimates quantiles, with limits that hold together; see `statements`."""
        return self.statements(mean=mean, quantile=probabilities or QUANTILES, level=level)

    def mean(self, level: float = 0.95) -> NumberStatements:
        """Estimates the mean, with limits; see `statements`."""
        return self.statements(mean=True, level=level)

    @in_float64
    def compare(self, truth: Truth | None = None) -> NumberComparison:
        """Runs all estimators of numbers, and measures them against the truth if it is given.

        Args:
            truth: K true shares or counts; a mapping of the labels of bins, or of integers, to counts; or a file of
                true numbers.

        Returns:
            `NumberComparison`, computed in float64. Of the true numbers it has the shares only.

        Raises:
            ArgumentError: True values that are not those of the bins or integers.
            DataError: A file of true numbers that cannot be used.

        Example:
            >>> import rrjax
            >>> rrjax.read("ages.parquet").compare("true-ages.csv")  # doctest: +SKIP
        """
        thetas = {name: self._theta(name) for name in ESTIMATORS_OF_NUMBERS}
        if truth is None:
            return NumberComparison(self, thetas, None, {})
        given: Any = with_source(truth)
        shares = true_shares(given, self.counted.metadata.domain, self.shares_in)
        width = float(self.middles[1] - self.middles[0])
        distances = {"wasserstein": partial(metrics.wasserstein, width=width), "kolmogorov": metrics.kolmogorov}
        errors = {
            name: {metric: float(distance(theta, shares)) for metric, distance in distances.items()}
            for name, theta in thetas.items()
        }
        return NumberComparison(self, thetas, shares, errors, sources_in(given))

    def shares_in(self, source: Source, counts: str | None = None) -> np.ndarray:
        """The shares of the true numbers in files, `[K]`."""
        check_true(source)
        if counts is not None:
            flag = "--truth-counts"
            problem = f"{option('counts', flag)} does not apply to {self.called_kind}: leave it out"
            raise refusal("counts", problem, flag=flag, value=counts)
        metadata = self.counted.metadata
        if metadata.range is None:
            amounts = io.count_reports(source, metadata.domain).counts
        else:
            values = io.read_bins(source, io.Bins(*metadata.range, metadata.num_categories))
            amounts = np.bincount(values.indices, minlength=metadata.num_categories)
        return amounts / amounts.sum()


class Statement(NamedTuple):
    """A quantile or the mean, with its limits."""

    name: str
    probability: float | None
    estimate: float
    lower: float
    upper: float

    def facts(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if name != "name" and value is not None}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class NumberStatements(Answer):
    """Quantiles and the mean of numbers, and their distribution function, with limits that hold together.

    `columns` are `[K]` each: from, to, share, cdf (the distribution function at the end), its limits lower and upper.
    """

    written: ClassVar[str] = "All values"
    page: ClassVar[str] = "guides/numbers"

    reports: Numbers
    theta: np.ndarray
    """`[K]`, the estimated shares of the bins or integers."""
    band: inference.CdfBand
    """Limits of the distribution function."""
    statements: list[Statement]
    level: float
    """Confidence level of all limits together."""

    @property
    def _table(self):
        counted = self.reports.counted
        return {
            "from": counted.lower,
            "to": counted.upper,
            "share": self.theta,
            "cdf": np.minimum(np.cumsum(self.theta), 1),
            "lower": self.band.lower,
            "upper": self.band.upper,
        }

    @property
    def num_outside(self) -> int:
        """The number of values at which the estimated distribution function is outside its limits."""
        function, band = np.cumsum(self.theta), self.band
        return int(((function < band.lower - ROUNDING) | (function > band.upper + ROUNDING)).sum())

    @property
    def _results(self):
        return {
            "estimator": DEFAULT,
            "level": self.level,
            "feasible": bool(self.band.feasible),
            "num_outside_band": self.num_outside,
            "quantiles": [each.facts() for each in self.statements if each.probability is not None],
            "mean": next((each.facts() for each in self.statements if each.probability is None), None),
        }

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"bins": rows_of_table(self._table)}

    @property
    def warnings(self) -> list[str]:
        if self.band.feasible:
            return self.reports.warnings
        return [*self.reports.warnings, _unexplained(self.level, ", so there are no limits")]

    @property
    def sentences(self) -> list[str]:
        return [
            f"All limits hold together with {form.in_full(self.level)} confidence, at any number of reports, and "
            "assume nothing about the distribution.",
            "The estimates assume that neighbouring shares are similar, as far as the reports confirm it.",
        ]

    @property
    def cautions(self) -> list[str]:
        if not self.num_outside:
            return []
        places = f"{self.num_outside:,} of {len(self.theta):,} {'integers' if self.reports.integers else 'bins'}"
        return [
            f"The estimated distribution function leaves its limits at {places}: the distribution is not as smooth as "
            "the estimate. There believe the limits."
        ]

    @property
    def words(self) -> dict[str, str]:
        spread = ", with numbers evenly spread within their bin; the limits do not assume this"
        return {
            "estimate": f"{ESTIMATORS_OF_NUMBERS[DEFAULT].title}: {ESTIMATORS_OF_NUMBERS[DEFAULT].note}",
            "quantile": "the quantile of the estimated shares" + spread * (not self.reports.integers),
            "limits": "of all distributions that agree with the reports; the distribution of the reports is known "
            f"within {form.percent(float(self.band.radius))} everywhere, and each report and run of reports within "
            "exact limits; finer bins make the limits wider",
        }

    def cells(self, top: int = SHOWN) -> Cells:
        rows, said = [], self.reports.in_words
        for name, _, estimate, lower, upper in self.statements:
            limits = "–" if np.isnan(lower) else f"{said(lower)} – {said(upper)}"
            rows.append([name, said(estimate), limits])
        return Cells(["", "estimate", f"{form.in_full(self.level)} limits"], rows)

    def figure(self, ax: Axes | None = None) -> Figure:
        """The distribution function with its limits, and the shares."""
        from rrjax.figures import cdf_figure
        from rrjax.figures.axes import refuse_axes

        refuse_axes(ax)
        counted, metadata = self.reports.counted, self.reports.counted.metadata
        return cdf_figure(
            counted.lower,
            counted.upper,
            self.theta,
            band=(self.band.lower, self.band.upper) if self.band.feasible else None,
            band_label=f"{form.in_full(self.level)} limits, all together",
            name=metadata.column,
            title=f"{counted.num_reports:,} reports, {metadata.mechanism.name.replace('-', ' ')}, "
            f"ε = {metadata.effective_epsilon:.4g}",
        )


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class NumberComparison(Answer):
    """The estimates of all estimators of numbers, and their distances from the truth if it is known.

    `columns` are `[K]` each: from, to, the share by each estimator, and the true share if it is known.
    """

    written: ClassVar[str] = "All values"
    page: ClassVar[str] = "guides/numbers"

    reports: Numbers
    thetas: dict[str, np.ndarray]
    """`[K]` each, the shares by each estimator."""
    truth: np.ndarray | None
    """`[K]`, true shares."""
    errors: dict[str, dict[str, float]]
    """The distances of each estimate from the truth, by metric; empty if it is not known."""
    sources: Sequence[Source] = ()

    @property
    def _table(self):
        columns = {"from": self.reports.counted.lower, "to": self.reports.counted.upper, **self.thetas}
        return columns if self.truth is None else columns | {"truth": self.truth}

    @property
    def _results(self):
        return {}

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        rows = {name: {"estimator": name, "mean": self._mean(theta)} for name, theta in self.thetas.items()}
        for name, errors in self.errors.items():
            rows[name]["errors"] = errors
        return {"estimators": [*rows.values()]}

    def _mean(self, theta):
        return float(theta @ self.reports.middles)

    @property
    def warnings(self) -> list[str]:
        if not self.reports.contradicted:
            return self.reports.warnings
        return [*self.reports.warnings, _unexplained(1 - FALSE_ALARM, ": do not use these estimates")]

    @property
    def sentences(self) -> list[str]:
        if not self.errors:
            return [f"{option('truth', '--truth FILE')} measures the distance of each estimate from the truth."]
        return [
            "Wasserstein: mean distance, in the unit of the numbers, by which an estimate is off; Kolmogorov: largest "
            "error of the distribution function. Smaller is closer."
        ]

    @property
    def words(self) -> dict[str, str]:
        return {entry.title: str(entry.note) for entry in ESTIMATORS_OF_NUMBERS.values()}

    def cells(self, top: int = SHOWN) -> Cells:
        headings, said = ["", "mean"], self.reports.in_words
        rows = [[ESTIMATORS_OF_NUMBERS[name].title, said(self._mean(theta))] for name, theta in self.thetas.items()]
        if self.truth is not None:
            headings += ["Wasserstein", "Kolmogorov"]
            for row, error in zip(rows, self.errors.values(), strict=True):
                row += [f"{error['wasserstein']:.3g}", form.percent(error["kolmogorov"])]
            rows.append(["truth", said(self._mean(self.truth)), "", ""])
        return Cells(headings, rows)


def read_numbers(source: Source, epsilon: float | None, domain: Domain | None, given: Mapping[str, Any]) -> Numbers:
    """Counts the reports in files of numbers; `given` are other arguments by name, none of which applies."""
    metadata, name = source.metadata(), os.path.basename(source.files()[0])
    assert metadata is not None
    if epsilon is not None:
        check_epsilon(epsilon)
    metadata.check(name, column=source.column, epsilon=epsilon, domain=domain)
    for argument, value in {**given, "missing": source.missing}.items():
        if value:
            problem = f"{option(argument)} does not apply to {name}, which holds reports of numbers: leave it out"
            raise refusal(argument, problem, value=value)
    counted = io.read_number_reports(source)
    warnings = simulation(metadata.simulated)
    if counted.num_missing:
        warnings.append(f"Left out: {form.number(counted.num_missing, 'row', 'rows')} without a report.")
    return Numbers(counted, source, warnings)


def _quantiles(counted, theta, band, probabilities):
    function, rows = np.minimum(np.cumsum(theta), 1), []
    first, last = inference.quantile_limits(band, np.asarray(probabilities))
    for probability, low, high in zip(probabilities, first, last, strict=True):
        place = min(int(np.searchsorted(function, probability - 1e-9)), len(theta) - 1)
        before = function[place] - theta[place]
        part = (probability - before) / theta[place] if theta[place] > 0 else 1.0
        low_end, high_end = counted.lower[place], counted.upper[place]
        estimate = float(low_end + (high_end - low_end) * min(max(part, 0.0), 1.0))
        limits = (float(counted.lower[low]), float(counted.upper[high])) if band.feasible else (np.nan, np.nan)
        name = "median" if probability == 0.5 else f"{form.in_full(probability)} quantile"
        rows.append(Statement(name, probability, estimate, *limits))
    return rows


def _unexplained(level, rest):
    return (
        f"No distribution explains these reports with {form.in_full(level)} confidence{rest}. "
        "Are reports missing, or was the file changed after it was written?"
    )
