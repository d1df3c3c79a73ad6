"""`rrjax randomize --apart`: several columns, each randomized by itself, in one file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import rrjax
from rrjax import io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import refuse_flags
from rrjax.cli.randomization import SIMULATION, cautions, check_values, client_of, kept_of, metadata_of, randomness
from rrjax.cli.reading import Files, parse_domain
from rrjax.data.errors import UsageError
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.rows import Values, read_rows
from rrjax.io.write import write_columns
from rrjax.privacy.clients.base import random_words
from rrjax.reports import form

if TYPE_CHECKING:
    import jax

PANEL = "Several columns"


@dataclasses.dataclass(frozen=True)
class Apart:
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
        """Whether columns are randomized apart.

        Raises:
            UsageError: Fewer than two columns, a column twice, another number of domains or weights, or flags that do
                not apply.
        """
        if not self.apart:
            refuse = {"--split": self.split, "--columns-per-user": self.columns_per_user}
            flag = next((flag for flag, value in refuse.items() if value is not None), None)
            if flag is not None:
                raise UsageError(f"{flag} is for --apart: leave it out", flag=flag)
            return False
        if self.split is not None and self.columns_per_user is not None:
            raise UsageError.about(
                "--split",
                "is for columns that all users report; with --columns-per-user each has the same ε: leave one out",
                value=self.split,
            )
        if self.columns_per_user is not None and self.columns_per_user > len(columns):
            raise UsageError.about(
                "--columns-per-user",
                f"{self.columns_per_user}: there are {len(columns)} columns; give a number up to that",
                value=self.columns_per_user,
            )
        refuse_flags(others, "--apart")
        twice = next((name for name in columns if list(columns).count(name) > 1), None)
        if len(columns) < 2 or twice is not None:
            problem = f"names {twice!r} twice" if twice is not None else "is given fewer than two times"
            raise UsageError(f"--column {problem}: --apart takes different columns, two or more", flag="--column")
        if len(domains) not in (0, len(columns)):
            raise UsageError(
                f"--domain was given {form.number(len(domains), 'time', 'times')} for {len(columns)} columns; give it "
                "once for each, in their order, or not at all",
                flag="--domain",
            )
        return True

    def epsilons(self, total: float, number: int) -> list[float]:
        """The ε of each column; their sum is at most the total."""
        weights = [Fraction(1)] * number
        if self.split is not None:
            try:
                weights = [Fraction(part.strip()) for part in self.split.split(",")]
            except (ValueError, ZeroDivisionError):
                weights = []
            if len(weights) != number or not all(weight > 0 for weight in weights):
                raise UsageError(
                    f"--split {self.split}: give a positive number for each of {number} columns, with commas between",
                    flag="--split",
                    value=self.split,
                )
        among = sum(weights) if self.columns_per_user is None else self.columns_per_user
        exact = [Fraction(total) * weight / among for weight in weights]
        return [own if own <= part else math.nextafter(own, 0) for part in exact for own in [float(part)]]


@ending_at_once()
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
    """Randomizes each column and writes the reports.

    Returns the metadata, the number of reports in each column, that of users, and warnings.
    """
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
    key = None if seed is None else jax.random.key(seed)
    num_users = int(present.sum())
    kept = np.full((num_users, len(read)), True) if sample is None else _drawn(num_users, len(read), sample, key)
    made, warnings = [], []
    if num_users < len(present):
        lacking = form.number(len(present) - num_users, "row without any value is", "rows without any value are")
        warnings.append(f"{lacking} left out.")
    for place, (values, epsilon) in enumerate(zip(read, epsilons, strict=True)):
        size, own = values.domain.num_categories, values.indices[present]
        known = kept[:, place] & (own >= 0)
        reports = np.full(num_users, -1, np.int32)
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
    write_columns(out, made, kept=beside, check=files.check_unchanged)  # columns were read one after the other
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
