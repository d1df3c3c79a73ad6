"""The one way in which commands read: flags to a source, a source to counts, counts to a collection."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

import rrjax
from rrjax import io
from rrjax.cli.checks import LARGEST_EPSILON, SMALLEST_EPSILON, check_epsilon, padded
from rrjax.cli.checks import check_rate as check_rate
from rrjax.cli.interrupt import ending_at_once
from rrjax.data.errors import UsageError, reworded
from rrjax.data.mechanism_parameters import Rates
from rrjax.estimators.catalogue import Estimator
from rrjax.io.domain import Domain
from rrjax.io.read import CountedReports
from rrjax.io.tallies import Tallied, mechanism_of
from rrjax.io.write import check_reports, check_writable
from rrjax.mechanisms import Mechanism

PANEL = "Reading"

Format = Literal["csv", "tsv", "parquet", "jsonl", "transactions"]
Items = Literal["first", "all"]
Epsilon = Annotated[
    float | None,
    typer.Option(help="Privacy parameter ε of the collection, in nats; files of `rrjax randomize` carry it."),
]
Reports = Annotated[list[str], typer.Argument(metavar="REPORTS", help="Files of randomized reports; globs work.")]


_flag = partial(typer.Option, rich_help_panel=PANEL)


@dataclasses.dataclass(frozen=True)
class Reading:
    """The flags that say how to read files, for `options.flags`."""

    column: Annotated[
        str | None, typer.Option(help="Column to read: its name, or its number (from 1) where there is no header.")
    ] = None
    domain: Annotated[
        str | None,
        typer.Option(help="All categories: a range such as 0:99, both ends included, or a file of labels, one a line."),
    ] = None
    counts: Annotated[str | None, _flag(help="The file holds counts already: the column they are in.")] = None
    format: Annotated[Format | None, _flag(help="Format, where the file's name does not tell.")] = None
    header: Annotated[bool | None, _flag("--header/--no-header", help="Whether a CSV starts with column names.")] = None
    delimiter: Annotated[str | None, _flag(help="What separates the columns of a CSV (one character, or 'tab').")] = (
        None
    )
    items: Annotated[Items, _flag(help="Which items of a transaction count.")] = "first"
    missing: Annotated[
        list[str] | None, _flag(help="A text that stands for a missing value, such as '?'. Repeatable.")
    ] = None
    show_values: Annotated[
        bool,
        _flag(
            "--show-values",
            help="Repeat true values and covariates that cannot be used in messages, which logs may keep.",
        ),
    ] = False

    def first_flag(self) -> str | None:
        """The first of the flags that was given."""
        given = (
            field.name for field in dataclasses.fields(self) if getattr(self, field.name) not in (field.default, [])
        )
        return next((f"--{name.replace('_', '-')}" for name in given), None)


@dataclasses.dataclass(frozen=True)
class Files:
    """Files and how to read them."""

    paths: list[str]
    reading: Reading = Reading()
    true_values: bool = False
    """Whether they hold what nobody has randomized, so that messages must not repeat it."""

    @property
    def name(self) -> str:
        """What to call them in a message: the first one."""
        return Path(self.source.files()[0]).name

    @cached_property
    def source(self) -> io.Source:
        """As `rrjax.io` wants them; it lists them and reads their metadata once."""
        flags = self.reading
        try:
            return io.Source(
                self.paths,
                format=flags.format,
                column=flags.column,
                header=flags.header,
                delimiter={"\\t": "\t", "tab": "\t"}.get(flags.delimiter or "", flags.delimiter),
                items=flags.items,
                missing=tuple(flags.missing or ()),
                show_values=True if flags.show_values else False if self.true_values else None,
            )
        except io.DataError as error:  # no file was looked at yet
            flag = error.argument and f"--{error.argument}"
            raise reworded(error, str(error), UsageError, flag=flag) from error

    @cached_property
    def domain(self) -> Domain | None:
        """That of the flag, if it was given."""
        return parse_domain(self.reading.domain)

    def count(self, domain: Domain | None, column: str | None = None) -> CountedReports:
        """The counts over a domain, of a column that the flags do not name."""
        source = self.source if column is None else dataclasses.replace(self.source, column=column)
        if self.reading.counts is not None:
            return io.read_counts(source, self.reading.counts, domain)
        return io.count_reports(source, domain)


@dataclasses.dataclass(frozen=True)
class Collection:
    """Counted reports and their ε; those of other mechanisms than randomized response with their tally."""

    files: Files
    counted: CountedReports
    epsilon: float
    warnings: list[str]
    tallied: Tallied | None = None
    metadata_tests: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    """Whether the reports contradict their metadata, by test: statistic and p-value."""

    @property
    def counts(self) -> np.ndarray:
        """How many reports name, or support, each category, `[K]`."""
        return self.counted.counts

    @property
    def num_reports(self) -> int:
        """N, the reports that are there."""
        return self.counted.num_rows - self.counted.num_missing

    @property
    def marginal(self) -> tuple[Any, float | None]:
        """What statements about single categories take: counts and ε, or a tally and nothing."""
        return (self.counts, self.epsilon) if self.tallied is None else (self.tallied.tally, None)

    @property
    def joint(self) -> tuple[Any, float | None] | None:
        """What the likelihood takes: counts and ε, or a mixture and nothing; None where that would be too large."""
        if self.tallied is None:
            return self.counts, self.epsilon
        return None if self.tallied.mixture is None else (self.tallied.mixture, None)

    def given(self, entry: Estimator) -> tuple[Any, float | None] | None:
        """What an estimator takes of these reports; None where it is not made for them."""
        if self.tallied is None or entry.needs == "tally":
            return self.marginal
        return self.joint if entry.needs == "mixture" else None

    @property
    def doubt(self) -> str:
        """What to ask of reports that no users explain."""
        if self.tallied is None:
            return "Is ε right, are reports missing, was it another mechanism? See `rrjax test fit`."
        return "Are reports missing, or was the file changed after it was written?"

    def check_counts(self, what: str) -> None:
        """Refuses reports of other mechanisms than randomized response for what is known for that one alone."""
        if self.tallied is not None:
            raise UsageError(
                f"{self.files.name} was made by {self.mechanism.name}, and only reports of "
                f"{rrjax.RandomizedResponse.name} can be used for {what}"
            )

    @property
    def simulated(self) -> bool:
        """Whether the files say that their reports were made from a seed, which protects nobody."""
        return self.counted.metadata is not None and self.counted.metadata.simulated

    @property
    def called(self) -> str:
        """How many reports there are, in words for titles."""
        return f"{self.num_reports:,} {'simulated reports (they protect nobody)' if self.simulated else 'reports'}"

    def table(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The columns of a table to be written; one more says of every row that its reports are simulated."""
        number = len(next(iter(columns.values())))
        return {**columns, **({"simulated": np.full(number, True)} if self.simulated else {})}

    @property
    def num_categories(self) -> int:
        """K."""
        return self.counted.domain.num_categories

    @cached_property
    def labels(self) -> np.ndarray:
        """The names of the categories, `[K]`."""
        return self.counted.domain.labels()

    @property
    def mechanism(self) -> Mechanism:
        """How the reports were made."""
        if self.tallied is not None:
            return self.tallied.mechanism
        return rrjax.RandomizedResponse(self.num_categories, self.epsilon)

    @property
    def rates(self) -> Rates:
        """Those of the mechanism, as plain numbers: JAX would compile a program for every operation on them."""
        return self.mechanism.weights(math.expm1)

    @property
    def standard_error(self) -> float:
        """Standard error of the unbiased estimate of a category that nobody holds, a share."""
        return math.sqrt(self.rates.variance(0) / self.num_reports)

    def facts(self) -> dict[str, Any]:
        """As fields of a JSON object."""
        return {
            "reports": self.files.paths,
            "column": self.counted.column,
            "num_reports": self.num_reports,
            "num_missing": self.counted.num_missing,
            "num_categories": self.num_categories,
            "domain": self.counted.domain.describe(),
            "mechanism": self.mechanism.name,
            "epsilon": self.epsilon,
            "simulated": self.simulated,
            "metadata_tests": self.metadata_tests,
            "warnings": self.warnings,
        }

    def summary(self, name: str = "") -> str:
        """What was counted, and in which file where there are several."""
        of = "" if self.tallied is None else f" of {self.mechanism.name}"
        return (
            f"{name + ': ' if name else ''}{self.called}{of} in column {self.counted.column!r}; domain: "
            f"{self.counted.domain.describe()}; ε = {self.epsilon:.6g} nats"
        )


def read_collection(files: Files, epsilon: float | None) -> Collection:
    """Counts reports and settles their ε, from the flag or from the metadata that travel with the files."""
    if epsilon is not None:
        check_epsilon(epsilon)
    metadata = files.source.metadata()
    if metadata is not None:
        mechanism = mechanism_of(metadata, files.name)
        metadata.check(files.name, column=files.reading.column, epsilon=epsilon, domain=files.domain)
        epsilon = metadata.effective_epsilon
        if not 0.99 * SMALLEST_EPSILON < epsilon <= LARGEST_EPSILON:
            raise io.DataError(
                f"{files.name} says that it was randomized with ε = {epsilon:g} nats, and collections have one from "
                f"{SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}: was the file changed after it was written?",
                file=files.name,
                argument="epsilon",
                value=epsilon,
            )
        if mechanism.name != rrjax.RandomizedResponse.name:
            return _checked(_tallied(files, epsilon))
    if epsilon is None:
        raise UsageError(
            f"{files.name} does not say how it was randomized: give --epsilon, the privacy parameter of the collection "
            "in nats (files written by `rrjax randomize` carry it)",
            flag="--epsilon",
        )
    return _checked(Collection(files, files.count(files.domain, metadata.column if metadata else None), epsilon, []))


@ending_at_once()
def _tallied(files: Files, epsilon: float) -> Collection:
    """Reports of another mechanism than randomized response."""
    if files.reading.counts is not None:
        raise UsageError(
            f"--counts is for files of counts, and {files.name} holds reports",
            flag="--counts",
            value=files.reading.counts,
        )
    if files.reading.missing:
        raise UsageError(
            f"--missing is for files of labels, and {files.name} holds reports of a mechanism, none of them missing",
            flag="--missing",
            value=files.reading.missing[0],
        )
    tallied = io.read_tally(files.source)
    return Collection(files, tallied.counted, epsilon, [], tallied)


def _checked(collection: Collection) -> Collection:
    if collection.num_reports < 2:
        raise io.DataError(
            f"{collection.files.name} holds one report: a distribution cannot be estimated from it. "
            "Were all files given, and is the column right?",
            file=collection.files.name,
            column=collection.counted.column,
        )
    collection.warnings.extend(_warnings(collection))
    return collection


def _warnings(collection: Collection) -> list[str]:
    """What a person should know about a collection before believing its estimate."""
    counted, num_reports = collection.counted, collection.num_reports
    warnings = []
    if counted.domain_from_data and counted.metadata is None:  # with metadata, K is what the mechanism used
        warnings.append(
            f"The domain was taken from the data ({counted.domain.num_categories:,} categories). Categories that "
            "nobody reported are unknown, K is too small, and the estimate is biased: give --domain."
        )
    if counted.num_missing:
        kinds = ", ".join(
            f"{number:,} {'empty' if token == '' else repr(token)}" for token, number in counted.missing.items()
        )
        warnings.append(
            f"{counted.num_missing:,} of {counted.num_rows:,} rows hold{'s' * (counted.num_missing == 1)} no report "
            f"({kinds}), and {'is' if counted.num_missing == 1 else 'are'} left out."
        )
    warnings += padded(counted.num_padded, "report")
    squared_error = collection.rates.total_variance(collection.num_categories) / num_reports
    if squared_error > 1:
        needed = math.ceil(100 * num_reports * squared_error)
        warnings.append(
            f"These {num_reports:,} reports carry little information at this ε and K: summed over the categories, "
            f"the squared error of the unbiased estimate is expected to be {squared_error:.3g}, and between two "
            f"distributions it is never more than 2. To expect 0.01, collect {needed:,} reports."
        )
    if collection.simulated:
        warnings.append("The reports are a simulation (made with --seed); they protect nobody.")
    return warnings


def parse_domain(text: str | None) -> Domain | None:
    """Reads the domain of a flag: wrong in itself where it is a range, else a file that is."""
    if text is None:
        return None
    try:
        return io.read_domain(text)
    except io.DataError as error:
        is_range = ":" in text and not os.path.lexists(text)
        kind = UsageError if is_range else io.DataError
        raise reworded(error, f"--domain: {error}", kind, flag="--domain", value=text) from error


def check_outputs(inputs: list[Files], *outputs: Path | None, force: bool = False) -> None:
    """Refuses, before any work is done, files that cannot be written or would replace what is read, or reports."""
    taken = {os.path.realpath(file): "is read by this command" for files in inputs for file in files.source.files()}
    for flag, path in zip(("--out", "--plot", "--plot", "--plot"), outputs, strict=False):
        if path is None:
            continue
        target = str(check_writable(path))
        if target in taken:
            raise UsageError(f"{flag} {path} {taken[target]}; write to another file", flag=flag, value=path)
        if not force:
            try:
                check_reports(path)
            except io.DataError as error:
                raise reworded(error, f"{flag} {error}", UsageError, flag=flag, value=path) from error
        taken[target] = "is written twice"
