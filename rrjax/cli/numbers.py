"""`rrjax estimate` and `rrjax compare` of files of reports of numbers: quantiles and the mean, in the data's unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import rrjax
from rrjax import inference, io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Asked, Output, refuse_flags
from rrjax.cli.reading import Files
from rrjax.data.errors import UsageError
from rrjax.estimators.em import ems
from rrjax.io.numbers import NumberReports
from rrjax.reports import form
from rrjax.reports.epsilon import check_epsilon
from rrjax.reports.statements import check_quantile

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
ESTIMATORS = {
    "smooth_bayes": ("Smooth Bayes", lambda mixture: rrjax.smooth_bayes(mixture).theta),
    "ems": ("EMS", lambda mixture: ems(mixture).theta),
    "mle": ("MLE", lambda mixture: rrjax.ibu(mixture, accelerate="newton").theta),
}
"""Estimators of numbers, by name: title, and function of the likelihood; the first one is the default."""
DEFAULT = next(iter(ESTIMATORS))
LEAST_SPAN, MOST_SPAN = 1e-9, 1e15
"""Ranges whose numbers are printed without an exponent."""


def refuse_others(files: Files, given: Mapping[str, object]) -> None:
    """Refuses flags that do not apply to reports of numbers; `given` has their values."""
    refuse_flags(given, f"{files.name}, which holds reports of numbers")


@dataclasses.dataclass(frozen=True)
class NumberCollection:
    """Counted reports of numbers."""

    files: Files
    reports: NumberReports
    warnings: list[str]

    @property
    def mixture(self) -> rrjax.Mixture:
        """The likelihood of the reports."""
        return self.reports.mechanism.channel().mixture_of_counts(self.reports.counts)

    @property
    def integers(self) -> bool:
        """Whether the numbers are integers, not bins."""
        return self.reports.metadata.range is None

    @property
    def middles(self) -> np.ndarray:
        """The middle of each bin, or the integer itself, `[K]`."""
        return (self.reports.lower + self.reports.upper) / 2

    @property
    def unit(self) -> float:
        """The width of a bin; one for integers."""
        return float(self.middles[1] - self.middles[0])

    def summary(self) -> str:
        """A sentence about the collection."""
        found, metadata = self.reports, self.reports.metadata
        kind = "simulated reports (they protect nobody)" if metadata.simulated else "reports"
        size = metadata.num_categories
        of = f"{size:,} integers" if self.integers else f"{size:,} bins of width {self.unit:.6g}"
        return (
            f"{found.num_reports:,} {kind} of numbers from {found.lower[0]:.12g} to {found.upper[-1]:.12g}, "
            f"by {metadata.mechanism.name} on {of}, in column {metadata.column!r}; "
            f"ε = {metadata.effective_epsilon:.6g} nats"
        )

    def number(self, value: float) -> str:
        """A number, rounded to about a thousandth of the range; whole if it is one of the integers."""
        span = float(self.reports.upper[-1] - self.reports.lower[0])
        if not LEAST_SPAN < span < MOST_SPAN:
            return f"{value:.4g}"
        whole = self.integers and value == round(value)
        return f"{value:.{0 if whole else form.decimals(span / 50)}f}"

    def facts(self) -> dict[str, Any]:
        """As fields of a JSON object."""
        found, metadata = self.reports, self.reports.metadata
        return {
            "reports": self.files.paths,
            "column": metadata.column,
            "num_reports": found.num_reports,
            "num_missing": found.num_missing,
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


def read_numbers(files: Files, epsilon: float | None) -> NumberCollection:
    """Counts the reports of a file of numbers; flags that contradict it are refused."""
    metadata = files.source.metadata()
    assert metadata is not None
    if epsilon is not None:
        check_epsilon(epsilon)
    metadata.check(files.name, column=files.reading.column, epsilon=epsilon, domain=files.domain)
    refuse_others(files, {"--counts": files.reading.counts, "--missing": files.reading.missing})
    reports = io.read_number_reports(files.source)
    warnings = ["The reports are a simulation (made with --seed); they protect nobody."] * metadata.simulated
    if reports.num_missing:
        warnings.append(f"Left out: {form.number(reports.num_missing, 'row', 'rows')} without a report.")
    return NumberCollection(files, reports, warnings)


class Statement(NamedTuple):
    """A quantile or the mean, with its limits."""

    name: str
    probability: float | None
    estimate: float
    lower: float
    upper: float

    def facts(self) -> dict[str, Any]:
        """As fields of a JSON object."""
        return {name: value for name, value in self._asdict().items() if name != "name" and value is not None}


@ending_at_once()
def run(collection: NumberCollection, asked: Asked, level: float, output: Output) -> None:
    """Estimates the distribution, its quantiles and its mean, writes and prints them."""
    found = collection.reports
    with show.status("Estimating …"):
        theta = np.asarray(ESTIMATORS[DEFAULT][1](collection.mixture), float)
        band = inference.cdf_band(found.counts, found.mechanism, level=level)
        statements = _statements(collection, theta, band, asked, level)
    outside = _outside(theta, band)
    if not band.feasible:
        collection.warnings.append(
            f"No distribution explains these reports with {form.in_full(level)} confidence, so there are no limits. "
            "Are reports missing, or was the file changed after it was written?"
        )
    table = {
        "from": found.lower,
        "to": found.upper,
        "share": theta,
        "cdf": np.minimum(np.cumsum(theta), 1),
        "lower": band.lower,
        "upper": band.upper,
    }
    if output.out is not None:
        simulated = {"simulated": np.full(len(theta), True)} if found.metadata.simulated else {}
        io.write_table(output.out, table | simulated)
    if output.plot is not None:
        _draw(collection, theta, band, level, output)
    if output.json:
        rows = [
            dict(zip(table, row, strict=True)) for row in zip(*(each.tolist() for each in table.values()), strict=True)
        ]
        record = {"command": "estimate"} | collection.facts() | output.files | {"estimator": DEFAULT, "level": level}
        record |= {"feasible": bool(band.feasible), "num_outside_band": outside}
        record |= {"quantiles": [each.facts() for each in statements if each.probability is not None]}
        record |= {"mean": next((each.facts() for each in statements if each.probability is None), None)}
        show.record(record | {"bins": rows})
        return
    show.say(collection.summary())
    show.warn(collection.warnings)
    show.out.print()
    _show(collection, statements, level)
    show.out.print()
    show.say(
        f"All limits hold together with {form.in_full(level)} confidence, at any number of reports, and assume nothing "
        "about the distribution."
    )
    show.say("The estimates assume that neighbouring shares are similar, as far as the reports confirm it.")
    if outside:
        places = f"{outside:,} of {len(theta):,} {'integers' if collection.integers else 'bins'}"
        show.beware(
            f"The estimated distribution function leaves its limits at {places}: the distribution is not as smooth as "
            "the estimate. There believe the limits."
        )
    show.explain(_explanations(collection, band), output.explain, "guides/numbers")
    show.show_files({"All values": output.out, "Figure": output.plot})


def _statements(collection, theta, band, asked, level):
    """The quantiles and the mean that were asked for, or the usual ones."""
    found, function = collection.reports, np.minimum(np.cumsum(theta), 1)
    chosen = [check_quantile(each) for each in asked.quantile or []] or ([] if asked.mean else list(QUANTILES))
    rows = []
    if chosen:
        first, last = inference.quantile_limits(band, np.asarray(chosen))
        for probability, low, high in zip(chosen, first, last, strict=True):
            place = min(int(np.searchsorted(function, probability - 1e-9)), len(theta) - 1)
            before = function[place] - theta[place]
            part = (probability - before) / theta[place] if theta[place] > 0 else 1.0
            low_end, high_end = found.lower[place], found.upper[place]
            estimate = float(low_end + (high_end - low_end) * min(max(part, 0.0), 1.0))
            limits = (float(found.lower[low]), float(found.upper[high])) if band.feasible else (np.nan, np.nan)
            name = "median" if probability == 0.5 else f"{form.in_full(probability)} quantile"
            rows.append(Statement(name, probability, estimate, *limits))
    if asked.mean or not asked.quantile:
        limits = inference.mean_limits(found.counts, found.mechanism, found.lower, found.upper, level=level)
        rows.append(Statement("mean", None, float(theta @ collection.middles), *limits))
    return rows


def _outside(theta, band):
    """The number of values at which the estimated distribution function is outside its band."""
    function = np.cumsum(theta)
    return int(((function < band.lower - 1e-6) | (function > band.upper + 1e-6)).sum())


def _show(collection, statements, level):
    table = show.table("", "estimate", f"{form.in_full(level)} limits")
    for each in statements:
        limits = (
            f"{collection.number(each.lower)} – {collection.number(each.upper)}" if each.lower == each.lower else "–"
        )
        table.add_row(each.name, collection.number(each.estimate), limits)
    show.show_table(table)


def _explanations(collection, band):
    uniform = (
        "the quantile of the estimated shares"
        if collection.integers
        else "the quantile of the estimated shares, with numbers evenly spread within their bin; the limits do not "
        "assume this"
    )
    return {
        "estimate": "Smooth Bayes: the most probable smooth distribution, averaged over strengths of smoothing by the "
        "probability that each gives to the reports",
        "quantile": uniform,
        "limits": "of all distributions that agree with the reports; the distribution of the reports is known within "
        f"{form.percent(float(band.radius))} everywhere, and each report and run of reports within exact limits; finer "
        "bins make the limits wider",
    }


def _draw(collection, theta, band, level, output):
    found = collection.reports
    with show.drawing():
        from rrjax.figures import cdf_figure, save

        limits = (band.lower, band.upper) if band.feasible else None
        label = f"{form.in_full(level)} limits, all together"
        epsilon = f"ε = {found.metadata.effective_epsilon:.4g}"
        title = f"{found.num_reports:,} reports, {found.metadata.mechanism.name}, {epsilon}"
        column = found.metadata.column
        save(
            cdf_figure(found.lower, found.upper, theta, band=limits, band_label=label, name=column, title=title),
            output.plot,
        )


@ending_at_once()
def compare(collection: NumberCollection, true: Files | None, output: Output) -> None:
    """Runs all estimators of numbers, measures them against the truth, and prints their quantiles side by side."""
    found = collection.reports
    truth = None if true is None else _truth(collection, true)
    with show.status("Estimating …"):
        mixture = collection.mixture
        thetas = {name: np.asarray(function(mixture), float) for name, (_, function) in ESTIMATORS.items()}
    errors = None if truth is None else {name: _errors(collection, theta, truth) for name, theta in thetas.items()}
    columns = thetas | ({} if truth is None else {"truth": truth})
    if output.out is not None:
        simulated = {"simulated": np.full(len(found.lower), True)} if found.metadata.simulated else {}
        io.write_table(output.out, {"from": found.lower, "to": found.upper} | columns | simulated)
    if output.json:
        rows = [{"estimator": name, "mean": float(theta @ collection.middles)} for name, theta in thetas.items()]
        if errors is not None:
            rows = [row | {"errors": errors[row["estimator"]]} for row in rows]
        show.record({"command": "compare"} | collection.facts() | output.files | {"estimators": rows})
        return
    show.say(collection.summary())
    show.warn(collection.warnings)
    show.out.print()
    table = show.table("", "mean", *(["Wasserstein", "Kolmogorov"] if errors else []))
    for name, theta in thetas.items():
        measured = [] if errors is None else list(errors[name].values())
        cells = [f"{measured[0]:.3g}", form.percent(measured[1])] if measured else []
        table.add_row(ESTIMATORS[name][0], collection.number(float(theta @ collection.middles)), *cells)
    if truth is not None:
        table.add_row("truth", collection.number(float(truth @ collection.middles)), "", "")
    show.show_table(table)
    show.out.print()
    show.say(
        "--truth FILE measures the distance of each estimate from the truth."
        if errors is None
        else "Wasserstein: mean distance, in the unit of the numbers, by which an estimate is off; Kolmogorov: largest "
        "error of the distribution function. Smaller is closer."
    )
    show.show_files({"All values": output.out})


def _errors(collection, theta, truth):
    wasserstein = rrjax.metrics.wasserstein(theta, truth, collection.unit)
    return {"wasserstein": float(wasserstein), "kolmogorov": float(rrjax.metrics.kolmogorov(theta, truth))}


def _truth(collection: NumberCollection, true: Files) -> np.ndarray:
    """The shares of the true numbers, `[K]`."""
    metadata = collection.reports.metadata
    if true.source.metadata() is not None:
        raise UsageError(
            f"--truth {true.paths[0]} holds randomized reports, not true values", flag="--truth", value=true.paths[0]
        )
    if metadata.range is None:
        counts = true.count(metadata.domain).counts
    else:
        values = io.read_bins(true.source, io.Bins(*metadata.range, metadata.num_categories))
        counts = np.bincount(values.indices, minlength=metadata.num_categories)
    return counts / counts.sum()
