"""What the commands do, without a word on the terminal: flags in, results out."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import jax
import numpy as np

import rrjax
from rrjax import io, metrics
from rrjax.cli.interrupt import ending_at_once

MECHANISM = "randomized-response"
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 36.0

ESTIMATORS: dict[str, Callable[..., Any]] = {
    "mle-star": rrjax.mle_star,
    "inv-p": rrjax.inv_p,
    "inv-n": rrjax.inv_n,
    "inv": rrjax.inv,
}
"""The closed forms, by their names on the command line."""

TITLES = {"mle-star": "MLE*", "inv-p": "InvP", "inv-n": "InvN", "inv": "Inv", "ibu": "IBU"}
"""All estimators, the default first, and what tables call them."""


class UsageError(Exception):
    """A flag that is wrong in itself or contradicts the data; the message is for a person."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """The flags that say which files and how to read them."""

    paths: list[str]
    column: str | None = None
    domain: str | None = None
    counts: str | None = None
    format: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    items: Literal["first", "all"] = "first"
    missing: list[str] = dataclasses.field(default_factory=list)

    def first_flag(self) -> str | None:
        """The first of the flags that was given; the paths are none."""
        for field in dataclasses.fields(self):
            if field.name != "paths" and getattr(self, field.name) not in (None, [], "first"):
                return f"--{field.name}"
        return None

    def source(self, default_column: str | None = None) -> io.Source:
        """The files, as `rrjax.io` wants them."""
        return io.Source(
            self.paths,
            format=cast(Any, self.format),
            column=self.column or default_column,
            header=self.header,
            delimiter={"\\t": "\t", "tab": "\t"}.get(self.delimiter or "", self.delimiter),
            items=self.items,
            missing=tuple(self.missing),
        )

    def count(self, domain: io.Domain | None, default_column: str | None = None) -> io.CountedReports:
        """The counts over the domain."""
        source = self.source(default_column)
        if self.counts is not None:
            return io.read_counts(source, self.counts, domain)
        return io.count_reports(source, domain)


@dataclasses.dataclass(frozen=True)
class Collection:
    """Counted reports and the ε they were randomized with."""

    counted: io.CountedReports
    epsilon: float
    warnings: list[str]

    @property
    def num_reports(self) -> int:
        """N, the reports that are there."""
        return int(self.counted.counts.sum())

    @property
    def num_categories(self) -> int:
        """K."""
        return self.counted.domain.num_categories

    @property
    @ending_at_once()
    def standard_error(self) -> float:
        """Standard error of the unbiased estimate of a category that nobody holds, a share."""
        return float(self.mechanism.standard_error(self.num_reports))

    @property
    def mechanism(self) -> rrjax.RandomizedResponse:
        """How the reports were made."""
        return rrjax.RandomizedResponse(self.num_categories, self.epsilon)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What one estimator says of a collection."""

    name: str
    theta: np.ndarray
    nll: float
    certificate: dict[str, float]
    note: str = ""

    @property
    def num_positive(self) -> int:
        """Categories with a positive share."""
        return int((self.theta > 0).sum())


def check_epsilon(epsilon: float) -> float:
    """Returns ε, or raises `UsageError` where it makes no sense for a collection."""
    if not epsilon > 0:
        raise UsageError(f"--epsilon must be a positive number of nats, got {epsilon:g}")
    if epsilon < SMALLEST_EPSILON:
        raise UsageError(
            f"--epsilon {epsilon:g} is below {SMALLEST_EPSILON:g}: reports say nothing about the values then, not "
            "even those of two billion users. Is it in nats?"
        )
    if epsilon > LARGEST_EPSILON:
        raise UsageError(
            f"--epsilon {epsilon:g} is above {LARGEST_EPSILON:g}: no report would differ from its value, and nothing "
            "would be private. Is it in nats? (A common choice is 0.5 to 8.)"
        )
    return float(epsilon)


def check_outputs(inputs: list[Reading], *outputs: Path | None) -> None:
    """Refuses, before any work is done, files that cannot be written or that would replace what is read."""
    taken = {
        os.path.realpath(file): "is read by this command" for reading in inputs for file in reading.source().files()
    }
    for path in outputs:
        if path is None:
            continue
        target = str(io.check_target(path))
        if target in taken:
            raise UsageError(f"{path} {taken[target]}; write to another file")
        taken[target] = "is written twice"


def check_formats(out: Path | None, plot: Path | None) -> None:
    """Refuses, before any work is done, names that tell no format."""
    if plot is not None and plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise UsageError(f"--plot {plot}: figures are written as .png, .pdf or .svg")
    if out is not None:
        try:
            io.table_suffix(out)
        except io.DataError as error:
            raise UsageError(f"--out {error}") from error


def parse_domain(text: str | None) -> io.Domain | None:
    """Reads the domain of a flag."""
    if text is None:
        return None
    try:
        return io.read_domain(text)
    except io.DataError as error:
        raise UsageError(f"--domain: {error}") from error


def read_metadata(reading: Reading) -> io.Metadata | None:
    """What the files say about their collection, if they do."""
    source = reading.source()
    files = source.files()
    return io.read_metadata(list(files)) if source.format_of(files) == "parquet" else None


def collect(reading: Reading, epsilon: float | None) -> Collection:
    """Counts reports and settles their ε, from the flag or from the metadata that travel with the file."""
    if epsilon is not None:
        check_epsilon(epsilon)
    domain = parse_domain(reading.domain)
    metadata = read_metadata(reading)
    name = Path(reading.source().files()[0]).name
    if metadata is not None:
        _check_against(metadata, name, reading, epsilon, domain)
        epsilon = metadata.effective_epsilon
    if epsilon is None:
        raise UsageError(
            f"{name} does not say how it was randomized: give --epsilon, the privacy parameter of the collection "
            "in nats (files written by `rrjax randomize` carry it)"
        )
    counted = reading.count(domain, metadata.column if metadata else None)
    collection = Collection(counted, epsilon, [])
    if collection.num_reports < 2:
        raise io.DataError(
            f"{name} holds one report: a distribution cannot be estimated from it. "
            "Were all files given, and is the column right?"
        )
    return dataclasses.replace(collection, warnings=_warnings(collection))


def _check_against(
    metadata: io.Metadata, name: str, reading: Reading, epsilon: float | None, domain: io.Domain | None
) -> None:
    """Refuses flags that contradict what a file says of itself."""
    if metadata.mechanism != MECHANISM:
        raise UsageError(
            f"{name} was made by {metadata.mechanism!r}, which this command does not estimate; it knows {MECHANISM!r}"
        )
    if reading.column is not None and reading.column != metadata.column:
        raise UsageError(
            f"--column {reading.column} contradicts {name}, whose reports are in {metadata.column!r}; "
            "leave --column out"
        )
    if epsilon is not None and not math.isclose(epsilon, metadata.epsilon, rel_tol=1e-9):
        raise UsageError(
            f"--epsilon {epsilon:g} contradicts {name}, which was randomized with epsilon = "
            f"{metadata.epsilon:g}; leave --epsilon out"
        )
    if domain is not None and domain != metadata.domain:
        raise UsageError(
            f"--domain contradicts {name}, which was collected with the domain {metadata.domain.describe()}, not "
            f"{domain.describe()}; leave --domain out"
        )


@ending_at_once()
def _warnings(collection: Collection) -> list[str]:
    """What a person should know about a collection before believing its estimate."""
    counted, num_reports = collection.counted, collection.num_reports
    warnings = []
    if counted.domain_from_data:
        warnings.append(
            f"The domain was taken from the data ({counted.domain.num_categories:,} categories). Categories that "
            "nobody reported are unknown, K is too small, and the estimate is biased: give --domain."
        )
    if counted.num_missing:
        kinds = ", ".join(
            f"{number:,} {'empty' if token == '' else repr(token)}" for token, number in counted.missing.items()
        )
        warnings.append(
            f"{counted.num_missing:,} of {counted.num_rows:,} rows hold no report ({kinds}); they are left out."
        )
    squared_error = float(collection.mechanism.expected_squared_error(num_reports))
    if squared_error > 1:
        needed = math.ceil(100 * num_reports * squared_error)
        warnings.append(
            f"These {num_reports:,} reports carry little information at this ε and K: summed over the categories, "
            f"the squared error of the unbiased estimate is expected to be {squared_error:.3g}, and between two "
            f"distributions it is never more than 2. To expect 0.01, collect {needed:,} reports."
        )
    if counted.metadata is not None and counted.metadata.simulated:
        warnings.append("The reports are a simulation (made with --seed); they protect nobody.")
    return warnings


@ending_at_once()
def estimate(collection: Collection, name: str) -> Estimate:
    """Runs one estimator."""
    counts, epsilon = collection.counted.counts, collection.epsilon
    note = ""
    if name == "ibu":
        result = rrjax.ibu(counts, epsilon)
        theta, note = result.theta, "IBU has no exact zeros: small shares are what its last step left."
        if not result.converged:
            note = f"IBU stopped after {int(result.num_iters):,} steps, before its certificate reached 1e-10."
    else:
        theta = ESTIMATORS[name](counts, epsilon)
    certificate = rrjax.certificate(theta, counts, epsilon)
    return Estimate(
        name,
        np.asarray(theta),
        float(rrjax.nll(theta, counts, epsilon)),
        {key: float(value) for key, value in certificate._asdict().items()},
        note,
    )


def check_rate(flag: str, value: float, *, small: bool = False) -> None:
    """Refuses a level or a rate that is no probability; a small one is the chance of an error."""
    if not 0 < value < 1:
        meant = 1 - value / 100 if small and value >= 50 else value / 100
        hint = f"; did you mean {meant:g}?" if 1 < value < 100 else ""
        raise UsageError(f"{flag} must lie between 0 and 1, got {value:g}{hint}")


def read_truth(reading: Reading, collection: Collection, flag: str = "--truth") -> np.ndarray:
    """Shares of the true values, over the domain of the reports. `[K]`, float64."""
    if read_metadata(reading) is not None:
        raise UsageError(f"{flag} {reading.paths[0]} holds randomized reports, not true values")
    domain = collection.counted.domain
    try:
        try:
            counted = reading.count(domain)
        except io.DataError:
            # Of several columns, the one that is called like the reports'.
            if reading.column is not None:
                raise
            counted = dataclasses.replace(reading, column=collection.counted.column).count(domain)
    except io.DataError as error:
        hint = f"Its own flags are {flag}-column, {flag}-format and {flag}-counts"
        if collection.counted.domain_from_data:
            hint += "; the domain was taken from the reports, --domain sets it for both"
        raise io.DataError(f"{error} ({hint}.)") from error
    return counted.counts / counted.counts.sum()


def errors(theta: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """The distances of an estimate from the truth, by name."""
    return {
        "squared_error": float(metrics.squared_error(theta, truth)),
        "total_variation": float(metrics.total_variation(theta, truth)),
        "kl_divergence": float(metrics.kl_divergence(theta, truth)),
        "max_error": float(metrics.max_error(theta, truth)),
    }


@dataclasses.dataclass(frozen=True)
class Randomized:
    """What `randomize` wrote."""

    metadata: io.Metadata
    num_reports: int
    num_missing: int
    warnings: list[str]


def randomize(reading: Reading, epsilon: float, out: Path, seed: int | None) -> Randomized:
    """Randomizes a file of true values and writes the reports with all that it takes to estimate from them."""
    check_epsilon(epsilon)
    if reading.items == "all":
        raise UsageError(
            "--items all would randomize every item of a user apart, and a user with m items would be protected by "
            "m·ε, not ε; randomize one item a user (--items first)"
        )
    if read_metadata(reading) is not None:
        raise UsageError(
            f"{reading.paths[0]} holds randomized reports already; randomized again they would not be what their "
            "metadata say. Start from the true values"
        )
    domain = parse_domain(reading.domain)
    values = io.read_values(reading.source(), domain)
    num_categories = values.domain.num_categories
    warnings = []
    if values.domain_from_data:
        warnings.append(
            f"The domain was taken from the values ({num_categories:,} categories), and it is written into the "
            "file: which categories are there is disclosed without any privacy, and estimates will leave out those "
            "that nobody holds. Give --domain."
        )
    if values.num_missing:
        warnings.append(f"{values.num_missing:,} rows without a value are left out.")
    try:
        keep = rrjax.secure.keep_threshold(num_categories, epsilon)
    except ValueError as error:
        raise UsageError(f"--epsilon: {error}") from error
    if seed is None:
        reports = rrjax.secure.randomize(values.indices, num_categories, epsilon)
        effective = rrjax.secure.effective_epsilon(num_categories, keep)
    else:
        mechanism = rrjax.RandomizedResponse(num_categories, epsilon)
        with ending_at_once():
            reports = np.asarray(mechanism.randomize(jax.random.key(seed), values.indices))
            effective = float(mechanism.effective_epsilon)
    metadata = io.Metadata(
        mechanism=MECHANISM,
        epsilon=epsilon,
        effective_epsilon=effective,
        domain=values.domain,
        column=values.column,
        simulated=seed is not None,
        version=rrjax.__version__,
        domain_from_data=values.domain_from_data,
    )
    io.write_reports(out, reports, metadata)
    return Randomized(metadata, len(reports), values.num_missing, warnings)


def make_folder(folder: Path) -> None:
    """Makes a folder for results, if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise io.DataError(f"{folder}: cannot be made: {error.strerror}") from error


def write_population(path: Path, num_categories: int, num_users: int, exponent: float, seed: int) -> None:
    """Writes the true values of a Zipf population, items numbered from 1."""
    theta = rrjax.simulate.zipf(num_categories, exponent)
    # Another stream than the one that `randomize --seed` draws from the same number.
    key = jax.random.fold_in(jax.random.key(seed), 1)
    values = np.asarray(rrjax.simulate.values(key, theta, num_users))
    io.write_table(path, {"item": values + 1})
