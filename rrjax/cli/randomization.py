"""Randomization of files of true values into files of reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

import rrjax
from rrjax import io
from rrjax.cli import show
from rrjax.cli.design import Randomizer
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import taken
from rrjax.cli.reading import Files, parse_domain
from rrjax.data.errors import ArgumentError, UsageError, reworded
from rrjax.data.number_text import plain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.rows import Values, read_pairs, read_rows, unseen_missing
from rrjax.io.write import CODINGS, Kept, write_columns
from rrjax.privacy.clients.base import Client, random_words
from rrjax.privacy.clients.table import Answers
from rrjax.reports import form
from rrjax.reports.parameters import check_epsilon, check_true

if TYPE_CHECKING:
    import jax

    from rrjax.mechanisms import Design

SIMULATION = "This is a simulation: its randomness comes from --seed, and it protects nobody."
MOST_CELLS = 1 << 26
"""Limit of reports × categories that are held at a time."""

Pair = tuple[tuple[str, str], tuple[str | None, str | None]]
"""Two columns, and their domains as the flags give them."""


@dataclasses.dataclass(frozen=True)
class Randomized:
    """The reports that were written."""

    metadata: Metadata
    num_reports: int
    num_missing: int
    warnings: list[str]
    kept: tuple[str, ...] = ()


def check_values(files: Files) -> None:
    """Refuses files whose values cannot be randomized with ε for a user."""
    if files.reading.items == "all":
        raise UsageError.about(
            "--items",
            "all would randomize every item of a user apart, and a user with m items would be protected by "
            "m·ε, not ε; randomize one item a user (--items first)",
        )
    check_true(files.source, "values", "VALUES")


def cautions(values: Values, pair: Pair | None, seed: int | None) -> list[str]:
    """Warnings about the values and their randomness."""
    num_categories, warnings = values.domain.num_categories, []
    if seed is not None:
        warnings.append(SIMULATION)
    if values.domain_from_data:
        warnings.append(
            f"The domain was taken from the values ({num_categories:,} categories), and it is written into the "
            "file: which categories are there is disclosed without any privacy, and estimates will leave out those "
            f"that nobody holds. Give --domain{'' if pair is None else ', once for each column'}."
        )
    from rrjax.reports.reports import padded, written_alike

    warnings += written_alike(values.domain, values.domain_from_data, named=not values.domain_from_data)
    warnings += padded(values.num_padded, "value")
    if values.num_missing:
        warnings.append(
            f"{form.number(values.num_missing, 'row without a value is', 'rows without a value are')} left out."
        )
    return warnings


def make_reports(
    files: Files,
    out: Path,
    epsilon: float | None,
    seed: int | None,
    randomizer: Randomizer | None = None,
    pair: Pair | None = None,
    keep: tuple[str, ...] = (),
    bins: io.Bins | None = None,
) -> Randomized:
    """Randomizes files of true values and writes the reports with all that is needed to estimate from them.

    ε is None for a survey design, and the seed for secure random numbers; of a `pair` of columns the pairs are
    randomized as one value; `keep` are columns that are written beside the reports, unprotected; `bins` are for the
    square wave.
    """
    import jax

    from rrjax.mechanisms import MECHANISMS, ORDERED

    randomizer = randomizer or Randomizer()
    name = randomizer.name
    randomizer.check_epsilon(epsilon)
    check_values(files)
    if bins is not None:
        columns, values = None, io.read_bins(files.source, bins)
    elif pair is None:
        columns, values = None, io.read_values(files.source, files.domain)
    else:
        columns, (first, second) = pair
        values = read_pairs(files.source, columns, (parse_domain(first), parse_domain(second)))
    num_categories = values.domain.num_categories
    beside = kept_of(files, keep, (values.column, *(columns or ())), values.present) if keep else None
    warnings = cautions(values, pair, seed)
    if columns is None and bins is None:
        warnings += [
            f"--missing {form.printable(each)}: no value is that. Is it written as in the file?"
            for each in unseen_missing(files.source, values)
        ]
    if beside is not None:
        named = ", ".join(map(form.printable, keep))
        warnings.append(f"Kept as they are, and protected by nothing: {named}. ε is about column {values.column!r}.")
    coding = CODINGS[name]
    design = randomizer.made(values.domain) if randomizer.is_design else None
    client = client_of(name, num_categories, epsilon) if design is None else client_of_design(design)

    def kept(reports: Any) -> np.ndarray:
        return io.coded(coding, reports, num_categories)

    if seed is None:
        reports = [kept(client.randomize(part)) for part in _parts(values.indices, coding, num_categories)]
        effective = client.effective_epsilon
    else:
        with ending_at_once():
            mechanism = design or {**MECHANISMS, **ORDERED}[name](**client.parameters)
            key = jax.random.key(seed)
            parts = _parts(values.indices, coding, num_categories)
            keys = [key] if len(parts) == 1 else jax.random.split(key, len(parts))
            reports = [kept(mechanism.randomize(own, part)) for own, part in zip(keys, parts, strict=True)]
            # The ε asked for, because a simulation protects nobody.
            simple = isinstance(mechanism, rrjax.RandomizedResponse)
            effective = float(mechanism.effective_epsilon) if simple else float(client.epsilon)
    ends = None if bins is None else (bins.low, bins.high)
    record = MechanismRecord(name, client.parameters)
    metadata = metadata_of(values, record, effective, seed, columns=columns, range=ends)
    reports = np.concatenate(reports)
    # Two columns, and those that are kept, were read one after the other.
    io.write_reports(out, reports, metadata, kept=beside, check=files.source.check_unchanged)
    return Randomized(metadata, len(reports), values.num_missing, warnings, keep)


def metadata_of(values: Values, record: MechanismRecord, effective: float, seed: int | None, **more: Any) -> Metadata:
    """The metadata of reports of these values; `more` are its optional fields."""
    return Metadata(
        mechanism=record,
        effective_epsilon=effective,
        domain=values.domain,
        column=values.column,
        simulated=seed is not None,
        version=rrjax.__version__,
        domain_from_data=values.domain_from_data,
        **more,
    )


def randomness(metadata: Metadata) -> str:
    """The source of the random numbers, in words."""
    return "simulated from a seed" if metadata.simulated else "from the system's secure random numbers"


def client_of(name: str, num_categories: int, epsilon: float | None, flag: str = "--mechanism") -> Client:
    """The client of a mechanism; `UsageError` for parameters that it cannot have, of `flag` if of no other one."""
    assert epsilon is not None
    check_epsilon(epsilon)
    try:
        return rrjax.secure.client(name, num_categories, epsilon)
    except ArgumentError as error:
        own = {"epsilon": "--epsilon", "name": "--mechanism"}.get(error.argument or "", flag)
        raise UsageError(str(error), flag=own, value=error.value) from error
    except ValueError as error:
        raise UsageError(str(error), flag=flag, value=num_categories) from error


def client_of_design(design: Design) -> Answers:
    """The client of a survey design."""
    fields = [field.name for field in dataclasses.fields(cast("Any", design))]
    parameters = {name: np.asarray(getattr(design, name)).tolist() for name in fields}
    if parameters.get("yes_category") == 0:
        del parameters["yes_category"]  # files without it have the yes first
    return Answers(design.name, np.asarray(design.channel(), np.float64), parameters)


def kept_of(files: Files, names: Sequence[str], reported: Sequence[str], present: np.ndarray | None) -> Kept:
    """The columns of --keep; refused before anything is randomized."""
    kept = Kept(files.source, tuple(names), present)
    try:
        kept.check(reported)
    except io.DataError as error:
        # A missing column is a fault of the file, anything else of the flag.
        kind = io.DataError if error.argument is None else UsageError
        raise reworded(error, f"--keep: {error}", kind, flag="--keep") from error
    return kept


def _parts(values: np.ndarray, coding: str, num_categories: int) -> list[np.ndarray]:
    """The values in parts, because unary reports have a cell for each category."""
    size = max(1, MOST_CELLS // num_categories) if coding == "bits" else max(len(values), 1)
    return [values[start : start + size] for start in range(0, max(len(values), 1), size)]


PANEL = "Several columns"


@dataclasses.dataclass(frozen=True)
class SeparateColumnFlags:
    """The flags of several columns that are randomized apart."""

    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="Randomize each --column by itself, by randomized response; --epsilon is that of all columns "
            "together. `rrjax estimate --joint` estimates their joint distribution.",
            rich_help_panel=PANEL,
        ),
    ] = False
    split: Annotated[
        str | None,
        typer.Option(
            metavar="W,W,…",
            help="With --apart, if all users report all columns: how to split ε, such as 2,1,1 for half of it in the "
            "first one. By default evenly.",
            rich_help_panel=PANEL,
        ),
    ] = None

    columns_per_user: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="With --apart: each user reports so many of the columns, drawn at random, and --epsilon is split "
            "among these. `rrjax plan --columns` says which number is best.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def check(self, columns: Sequence[str], domains: Sequence[str], others: dict[str, Any]) -> bool:
        """Whether columns are randomized apart; refuses columns, domains and flags that do not fit."""
        if not self.apart:
            refuse = {"--split": self.split, "--columns-per-user": self.columns_per_user}
            flag = next((flag for flag, value in refuse.items() if value is not None), None)
            if flag is not None:
                raise UsageError(f"{flag} is for --apart: leave it out", flag=flag)
            return False
        if self.split is not None and self.columns_per_user is not None:
            problem = "is for columns that all users report; with --columns-per-user each has the same ε: leave one out"
            raise UsageError.about("--split", problem, value=self.split)
        if self.columns_per_user is not None and self.columns_per_user > len(columns):
            problem = f"{self.columns_per_user}: there are {len(columns)} columns; give a number up to that"
            raise UsageError.about("--columns-per-user", problem, value=self.columns_per_user)
        taken(make_apart, "--apart", **others)
        twice = next((name for name in columns if list(columns).count(name) > 1), None)
        if len(columns) < 2 or twice is not None:
            problem = f"names {twice!r} twice" if twice is not None else "is given fewer than two times"
            raise UsageError.about("--column", f"{problem}: --apart takes different columns, two or more")
        if len(domains) not in (0, len(columns)):
            raise UsageError.about(
                "--domain",
                f"was given {form.number(len(domains), 'time', 'times')} for {len(columns)} columns; give it "
                "once for each, in their order, or not at all",
            )
        return True

    def epsilons(self, total: float, number: int) -> list[float]:
        """The ε of each column; their sum is at most the total."""
        weights = [Fraction(1)] * number
        if self.split is not None:
            try:
                weights = [Fraction(plain(part.strip())) for part in self.split.split(",")]
            except (ValueError, ZeroDivisionError):
                weights = []
            if len(weights) != number or not all(weight > 0 for weight in weights):
                problem = f"{self.split}: give a positive number for each of {number} columns, with commas between"
                raise UsageError.about("--split", problem, value=self.split)
        among = sum(weights) if self.columns_per_user is None else self.columns_per_user
        exact = [Fraction(total) * weight / among for weight in weights]
        return [own if own <= part else math.nextafter(own, 0) for part in exact for own in [float(part)]]


def make_apart(
    files: Files,
    out: Path,
    columns: Sequence[str],
    domains: Sequence[str],
    epsilons: list[float],
    seed: int | None,
    sample: int | None,
    keep: Sequence[str] = (),
) -> tuple[list[Metadata], list[int], int, list[str]]:
    """Randomizes each column and writes the reports; returns metadata, reports of each, users, and warnings."""
    import jax

    check_values(files)
    read: list[Values] = []
    for place, column in enumerate(columns):
        source = dataclasses.replace(files.source, column=column).confidential()
        read.append(read_rows(source, parse_domain(domains[place] if domains else None)))
    present = np.logical_or.reduce([values.indices >= 0 for values in read])
    if not present.any():
        raise io.DataError(f"{files.name}: no row has a value in any of {', '.join(columns)}", file=files.name)
    beside = kept_of(files, keep, columns, present) if keep else None  # refused before anything is randomized
    num_users = int(present.sum())
    with ending_at_once():
        key = None if seed is None else jax.random.key(seed)
        kept = np.full((num_users, len(read)), True) if sample is None else _drawn(num_users, len(read), sample, key)
    made, warnings = [], []
    if num_users < len(present):
        lacking = form.number(len(present) - num_users, "row without any value is", "rows without any value are")
        warnings.append(f"{lacking} left out.")
    for place, (values, epsilon) in enumerate(zip(read, epsilons, strict=True)):
        size, own = values.domain.num_categories, values.indices[present]
        known = kept[:, place] & (own >= 0)
        reports = np.full(num_users, -1, np.int32)
        with ending_at_once():
            client = client_of(rrjax.RandomizedResponse.name, size, epsilon)
            if key is None:
                reports[known] = client.randomize(own[known])
            else:
                mechanism = rrjax.RandomizedResponse(size, epsilon)
                reports[known] = mechanism.randomize(jax.random.fold_in(key, place), own[known])
        record = MechanismRecord(client.name, client.parameters)
        made.append((reports, metadata_of(values, record, client.effective_epsilon, seed, sampled=sample)))
        missing = int((own < 0).sum())
        if missing:
            warnings.append(
                f"Column {values.column!r} has no value in {form.number(missing, 'row', 'rows')}, and no report there: "
                "who has no value is not protected."
            )
        warnings += [
            f"{values.column}: {caution}"
            for caution in cautions(dataclasses.replace(values, num_missing=0), None, None)
        ]
    if seed is not None:
        warnings.insert(0, SIMULATION)
    if keep:
        named = ", ".join(map(form.printable, keep))
        warnings.append(f"Kept as they are, and protected by nothing: {named}. ε is about the other columns.")
    write_columns(out, made, kept=beside, check=files.source.check_unchanged)  # columns were read one after the other
    numbers = [int((reports >= 0).sum()) for reports, _ in made]
    return [metadata for _, metadata in made], numbers, num_users, warnings


def _drawn(num_users: int, num_columns: int, number: int, key: jax.Array | None) -> np.ndarray:
    """Which columns each user reports, `[N, d]`, `number` each."""
    import jax

    from rrjax.mechanisms.product import drawn_columns

    if key is not None:
        own = jax.random.fold_in(key, num_columns)
        return np.asarray(drawn_columns(own, (num_users,), num_columns, number))
    words = random_words(num_users, num_columns)
    return words.argsort(axis=1).argsort(axis=1) < number


def show_apart(
    made: list[Metadata], numbers: list[int], num_users: int, warnings: list[str], out: Path, json: bool
) -> None:
    """Prints what was written."""
    from rrjax.reports.separate_columns import epsilon_of_user

    sample = made[0].sampled
    delivered = epsilon_of_user([metadata.effective_epsilon for metadata in made], sample)
    if json:
        columns = [
            {
                "column": metadata.column,
                "num_categories": metadata.num_categories,
                "epsilon": metadata.epsilon,
                "effective_epsilon": metadata.effective_epsilon,
                "num_reports": number,
            }
            for metadata, number in zip(made, numbers, strict=True)
        ]
        record = {"command": "randomize", "out": out, "num_reports": num_users, "simulated": made[0].simulated}
        record["sampled"] = sample
        show.record(record | {"columns": columns, "effective_epsilon": delivered, "warnings": warnings})
        return
    show.warn(warnings)
    users = form.number(num_users, "user", "users")
    each = "" if sample is None else f", each in {sample} of them, drawn at random"
    show.say(
        f"Reports of {users} in {len(made)} columns{each}, {randomness(made[0])}; ε = {delivered:.6g} nats for all "
        "columns together."
    )
    table = show.table("column", "reports", "categories", "ε", "truth")
    for metadata, number in zip(made, numbers, strict=True):
        p = float(rrjax.RandomizedResponse(metadata.num_categories, metadata.epsilon).p)
        size, epsilon = f"{metadata.num_categories:,}", f"{metadata.epsilon:.4g}"
        table.add_row(form.printable(metadata.column), f"{number:,}", size, epsilon, form.percent(p))
    show.show_table(table)
    show.say("truth: the probability that a report is the true value.")
    show.show_files({"Reports": out})
