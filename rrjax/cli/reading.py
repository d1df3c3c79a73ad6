"""Flags to files: which files a command reads, and how."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from contextlib import nullcontext
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rrjax import io
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import QUESTIONS
from rrjax.cli.paths import READS
from rrjax.data.errors import UsageError, reworded
from rrjax.data.number_text import plain
from rrjax.io.domain import Domain
from rrjax.io.labels import labels_in
from rrjax.mechanisms.table import RANDOMIZED_RESPONSE
from rrjax.reports.parameters import epsilon_of

if TYPE_CHECKING:
    from rrjax.cli.design import SurveyDesign
    from rrjax.reports.by_respondent import ByRespondentReports
    from rrjax.reports.kind import Kind
    from rrjax.reports.reports import Reports

PANEL = "Reading"

Format = Literal["csv", "tsv", "parquet", "jsonl", "transactions"]
Items = Literal["first", "all"]
_LOGARITHM = re.compile(r"(?:log|ln)\s*(?:\((.+)\)|\s(.+))", re.IGNORECASE)


def nats(text: str) -> float:
    """The number of nats of a text: a number, a fraction such as 3/2, or a natural logarithm such as log(3)."""
    inner = _LOGARITHM.fullmatch(text.strip())
    try:
        value = float(Fraction(plain((inner[1] or inner[2]) if inner else text)))
        return math.log(value) if inner else value
    except (ValueError, ZeroDivisionError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no number of nats, such as 1.1, 3/2 or 'log(3)'") from None


def fraction(text: str) -> float:
    """The number of a text, such as 0.7 or 2/3."""
    try:
        return float(Fraction(plain(text)))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no number, such as 0.7 or 2/3") from None


Epsilon = Annotated[
    float | None,
    typer.Option(
        parser=nats,
        metavar="NATS",
        help="Privacy parameter ε of the collection, such as 1.1 or 'log(3)'; files of `rrjax randomize` carry it.",
    ),
]
ReportFiles = Annotated[
    list[str], typer.Argument(metavar="REPORTS", help="Files of randomized reports; globs work."), READS
]


_flag = partial(typer.Option, rich_help_panel=PANEL)


@dataclasses.dataclass(frozen=True)
class Reading:
    """The flags for reading files."""

    probability: Annotated[
        float | None,
        _flag(
            parser=fraction,
            metavar="P",
            help="In place of --epsilon: the probability that a report is the true category, such as 0.7 or 2/3.",
        ),
    ] = None
    column: Annotated[
        str | None, typer.Option(help="Column to read: its name or, without a header, its number from 1.")
    ] = None
    domain: Annotated[
        str | None,
        typer.Option(
            help="All categories: a range such as 0:99, both ends included; labels such as yes,no; or a file of "
            "labels, one a line."
        ),
        READS,
    ] = None
    counts: Annotated[str | None, _flag(help="The file holds counts already: the column they are in.")] = None
    num_users: Annotated[
        int | None,
        _flag(min=1, help="The counts are support counts of a --mechanism of K and ε: the number of users."),
    ] = None
    format: Annotated[Format | None, _flag(help="Format, if the name of the file does not tell it.")] = None
    header: Annotated[bool | None, _flag("--header/--no-header", help="Whether a CSV starts with column names.")] = None
    delimiter: Annotated[str | None, _flag(help="The character between the columns of a CSV, or 'tab'.")] = None
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
        """The first flag that was given; None if none was."""
        given = (
            field.name for field in dataclasses.fields(self) if getattr(self, field.name) not in (field.default, [])
        )
        return next((f"--{name.replace('_', '-')}" for name in given), None)


@dataclasses.dataclass(frozen=True)
class Files:
    """Files and the flags for reading them."""

    paths: list[str]
    reading: Reading = Reading()
    true_values: bool = False
    """Whether they hold values that were not randomized, which messages must not repeat."""

    @property
    def name(self) -> str:
        """The name of the first file, for messages."""
        return Path(self.source.files()[0]).name

    @cached_property
    def source(self) -> io.Source:
        """The files for `rrjax.io`, which lists them and reads their metadata once."""
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
        """The domain of the flag, if it was given."""
        return parse_domain(self.reading.domain)

    def epsilon_of(self, epsilon: float | None, design: SurveyDesign | None) -> float | None:
        """ε of the flag --epsilon, or of --probability."""
        probability = self.reading.probability
        if probability is None:
            return epsilon
        size = None if self.domain is None else self.domain.num_categories
        named = None if design is None else design.mechanism
        both = epsilon is not None
        return epsilon_of(probability, size, epsilon=both, mechanism=named, data=self.source.columns())


def read_any(
    files: Files, epsilon: float | None, design: SurveyDesign, joint: str | None = None, sample: str | None = None
) -> Kind:
    """Counts reports of the kind that flags and metadata tell; `joint` is a question about several columns."""
    from rrjax.reports.reading import columns_of, kind_of
    from rrjax.reports.two_sample_designs import read_two_samples

    if files.reading.num_users is not None:
        return read_collection(files, epsilon, design)
    source, counts, epsilon = files.source, files.reading.counts, files.epsilon_of(epsilon, design)
    with ending_at_once():
        if design.of_two_samples:
            two = design.two_samples(), design.yes, sample
            return read_two_samples(source, files.domain, *two, epsilon, counts)
        if design.by_respondent:
            return read_answers(files, epsilon, design)
        if joint is not None and source.column is None:
            given = {"epsilon": epsilon, "mechanism": design.mechanism, "domain": files.domain, "counts": counts}
            return columns_of(source, given, QUESTIONS[joint])
        return kind_of(source, epsilon, files.domain, counts, *design.maker)


def read_collection(files: Files, epsilon: float | None, design: SurveyDesign | None = None) -> Reports:
    """Counts reports; their ε comes from the flag or from the metadata in the files, or they are of a survey design."""
    from rrjax.reports.reading import read_source, read_support

    epsilon = files.epsilon_of(epsilon, design)
    if (num_users := files.reading.num_users) is not None:
        name = None if design is None else design.mechanism
        with ending_at_once():
            return read_support(files.source, epsilon, files.domain, files.reading.counts, name, num_users)
    made = (None, "") if design is None else design.maker
    metadata = files.source.metadata()
    # JAX computes the tally of most mechanisms, and their files are read by DuckDB.
    computed = metadata is not None and metadata.mechanism.name != RANDOMIZED_RESPONSE
    with ending_at_once() if computed or made[0] is not None else nullcontext():
        return read_source(files.source, epsilon, files.domain, files.reading.counts, *made)


def read_answers(files: Files, epsilon: float | None, design: SurveyDesign) -> ByRespondentReports:
    """Counts the answers of respondents who had different designs."""
    from rrjax.reports.by_respondent import read_by_respondent

    name, given = design.mechanism, design.given
    if name is None:
        raise UsageError.about("--parameter", "is one of a survey design: name it with --mechanism")
    epsilon = files.epsilon_of(epsilon, design)
    return read_by_respondent(files.source, files.domain, name, given, epsilon, files.reading.counts)


def parse_domain(text: str | None) -> Domain | None:
    """Reads the domain of a flag. An error is one of the flag if it names no file, and one of the file otherwise."""
    if text is None:
        return None
    try:
        return io.read_domain(text)
    except io.DataError as error:
        of_flag = labels_in(text) is not None or (":" in text and not os.path.lexists(text))
        kind = UsageError if of_flag else io.DataError
        raise reworded(error, f"--domain: {error}", kind, flag="--domain", value=text) from error


def other_files(
    reading: Reading, paths: list[str] | None, column: str | None, form: Format | None, counts: str | None, flag: str
) -> Files | None:
    """A second set of files, such as --truth, with its own column, format and counts; other flags apply to both."""
    if paths:
        own = dataclasses.replace(reading, column=column, domain=None, counts=counts, format=form)
        return Files(paths, own, true_values=True)
    if column or form or counts:
        raise UsageError(f"{flag}-column, {flag}-format and {flag}-counts describe the file of {flag}", flag=flag)
    return None
