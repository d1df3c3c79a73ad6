"""`rrjax randomize`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

import rrjax
from rrjax import io
from rrjax.cli import show
from rrjax.cli.collection import padded
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.longitudinal import Rounds, make_round, show_round
from rrjax.cli.options import Json, check_epsilon, did_you_mean, flags, split
from rrjax.cli.reading import Files, Reading, check_outputs, parse_domain
from rrjax.data.errors import UsageError, reworded
from rrjax.io.codings import CODINGS
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.rows import Values, read_pairs
from rrjax.io.tallies import mechanism_of
from rrjax.io.write import Kept, check_reports_name
from rrjax.mechanisms import MECHANISMS, PROTOCOLS
from rrjax.mechanisms.table import full_name

WRITTEN = "What is written"
KNOWN = [*MECHANISMS, *PROTOCOLS]


def _randomizer(text: str) -> str:
    """The name of a mechanism or of a longitudinal protocol."""
    name = full_name(text)
    if name not in KNOWN:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(KNOWN)}{did_you_mean(name, KNOWN)}")
    return name


@flags(without=("column", "domain", "counts"))
def randomize(
    values: Annotated[list[str], typer.Argument(metavar="VALUES", help="Files of true values; globs work.")],
    epsilon: Annotated[
        float, typer.Option(help="Privacy parameter ε, in nats: the smaller, the more private (0.5 to 8 is common).")
    ],
    out: Annotated[Path, typer.Option(help="The .parquet file of reports to write.")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Column to read: its name, or its number (from 1) where there is no header. Twice: the pairs of the "
            "two columns are randomized as one, with ε for the pair.",
        ),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            help="All categories: a range such as 0:99, both ends included, or a file of labels, one a line. Of two "
            "columns once for each, in their order.",
        ),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option(
            parser=_randomizer,
            autocompletion=lambda: KNOWN,
            metavar="NAME",
            help=f"How to randomize: {', '.join(MECHANISMS)} (`rrjax plan` says which is closest); or, for users who "
            f"report many times, {', '.join(PROTOCOLS)}.",
            rich_help_panel="Which mechanism",
        ),
    ] = rrjax.RandomizedResponse.name,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Simulate, reproducibly. Without it the system's secure random numbers are used.",
            rich_help_panel="Simulation",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Columns to write beside the reports, separated by commas, such as age,region: `--by` and `rrjax "
            "regress` use them. They are written as they are: nothing protects them.",
            rich_help_panel=WRITTEN,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace the file of --out. Reports cannot be made again without spending ε again: the ε of values "
            "that are randomized twice add up.",
            rich_help_panel=WRITTEN,
        ),
    ] = False,
    json: Json = False,
    *,
    rounds: Rounds,
    reading: Reading,
) -> None:
    """Randomize true values into a file of reports that carries its mechanism, ε, K and domain.

    rrjax randomize values.csv --column city --epsilon 2 --domain cities.txt --out reports.parquet

    rrjax randomize values.csv --column smokes --column income --epsilon 2 --out pairs.parquet

    rrjax randomize values.csv --column city --epsilon 2 --mechanism subset-selection --out reports.parquet

    rrjax randomize people.csv --column answer --keep age,region --epsilon 1 --out reports.parquet

    rrjax randomize monday.csv --column app --user id --mechanism longitudinal-randomized-response --epsilon 4
    --first-epsilon 2 --memo secret.parquet --out monday.parquet

    ε protects one row. A user with m rows is protected by m·ε only. The reports keep the order of the rows; rows
    without a value are left out. Columns of --keep are NOT protected, and may identify who answered, alone or together.
    """
    try:
        check_reports_name(out)
    except io.DataError as error:
        raise reworded(error, f"--out {error}", UsageError, flag="--out", value=out) from error
    columns, domains = column or [], domain or []
    pair = _pair(columns, domains)
    if pair is None:
        given = {"column": next(iter(columns), None), "domain": next(iter(domains), None)}
        reading = dataclasses.replace(reading, **given)
    files = Files(values, reading, true_values=True)
    check_outputs([files], out, force=True)
    if not force and os.path.lexists(out):
        raise UsageError(
            f"--out {out} is there already. Reports cannot be made again without spending ε again: of values that are "
            "randomized twice, the two ε add up. Write to another file, or replace it with --force",
            flag="--out",
            value=out,
        )
    if rounds.check(mechanism, out):
        if pair is not None or keep is not None:
            flag = "--keep" if pair is None else "--column"
            raise UsageError(f"{flag}: {mechanism} takes one column of values, and that of --user", flag=flag)
        with show.err.status("Randomizing …"):
            check_epsilon(epsilon)
            check_values(files)
            read = io.read_values(files.source, files.domain)
            made = make_round(files, read, out, rounds, mechanism, epsilon, seed)
        show_round(made, rounds, out, cautions(read, None, seed), json)
        return
    with show.err.status("Randomizing …"):
        kept = () if keep is None else tuple(split("--keep", keep))
        made = make_reports(files, out, Randomization(epsilon, seed, mechanism, pair, kept))
    show_made(made, out, json)


MOST_CELLS = 1 << 26
"""Limit of reports × categories that are held at a time."""

Pair = tuple[tuple[str, str], tuple[str | None, str | None]]
"""Two columns, and their domains as the flags give them."""


def _pair(columns: list[str], domains: list[str]) -> Pair | None:
    """The two columns that are randomized as one value; None if fewer are named."""
    if len(columns) < 2:
        if len(domains) > 1:
            raise UsageError(f"--domain was given {len(domains)} times for one column; give it once", flag="--domain")
        return None
    if len(columns) > 2:
        raise UsageError(
            f"--column was given {len(columns)} times ({', '.join(columns)}): one column is randomized, or the pairs "
            "of two. For more make one column of them first, or randomize each apart: who is in m files is protected "
            "by the sum of their ε",
            flag="--column",
        )
    if columns[0] == columns[1]:
        raise UsageError(f"--column {columns[0]} was given twice; name two different columns, or one", flag="--column")
    if len(domains) not in (0, 2):
        raise UsageError(
            f"--domain was given {show.number(len(domains), 'time', 'times')} for two columns; give it once for each, "
            "in their order, or not at all",
            flag="--domain",
        )
    first, second = domains or (None, None)
    return (columns[0], columns[1]), (first, second)


@dataclasses.dataclass(frozen=True)
class Randomization:
    """How values are randomized."""

    epsilon: float
    seed: int | None
    """Seed of a simulation; None for the system's secure random numbers."""
    mechanism: str = rrjax.RandomizedResponse.name
    pair: Pair | None = None
    """Two columns whose pairs are randomized as one value, so that ε protects the pair."""
    keep: tuple[str, ...] = ()
    """Columns that are written beside the reports, unprotected."""


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
        raise UsageError(
            "--items all would randomize every item of a user apart, and a user with m items would be protected by "
            "m·ε, not ε; randomize one item a user (--items first)",
            flag="--items",
        )
    if files.source.metadata() is not None:
        raise UsageError(
            f"{files.paths[0]} holds randomized reports already; randomized again they would not be what their "
            "metadata say. Start from the true values",
            value=files.paths[0],
        )


def cautions(values: Values, pair: Pair | None, seed: int | None) -> list[str]:
    """Warnings about the values and their randomness."""
    num_categories, warnings = values.domain.num_categories, []
    if seed is not None:
        warnings.append("This is a simulation: its randomness comes from --seed, and it protects nobody.")
    if values.domain_from_data:
        warnings.append(
            f"The domain was taken from the values ({num_categories:,} categories), and it is written into the "
            "file: which categories are there is disclosed without any privacy, and estimates will leave out those "
            f"that nobody holds. Give --domain{'' if pair is None else ', once for each column'}."
        )
    warnings += padded(values.num_padded, "value")
    if values.num_missing:
        warnings.append(
            f"{show.number(values.num_missing, 'row without a value is', 'rows without a value are')} left out."
        )
    return warnings


def make_reports(files: Files, out: Path, how: Randomization) -> Randomized:
    """Randomizes files of true values and writes the reports with all that is needed to estimate from them."""
    epsilon, seed, name, pair, keep = how.epsilon, how.seed, how.mechanism, how.pair, how.keep
    check_epsilon(epsilon)
    check_values(files)
    if pair is None:
        columns, values = None, io.read_values(files.source, files.domain)
    else:
        columns, (first, second) = pair
        values = read_pairs(files.source, columns, (parse_domain(first), parse_domain(second)))
    num_categories = values.domain.num_categories
    beside = _kept(files, keep, (values.column, *(columns or ())), values.present) if keep else None
    warnings = cautions(values, pair, seed)
    if beside is not None:
        named = ", ".join(map(show.printable, keep))
        warnings.append(f"Kept as they are, and protected by nothing: {named}. ε is about column {values.column!r}.")
    coding = CODINGS.get(name)
    if coding is None:
        raise UsageError(
            f"reports of {name} have no file format: add it to CODINGS, or choose one of {', '.join(CODINGS)}",
            flag="--mechanism",
            value=name,
        )
    try:
        client = rrjax.secure.client(name, num_categories, epsilon)
    except ValueError as error:
        raise UsageError(str(error), flag="--mechanism", value=name) from error

    def kept(reports: Any) -> np.ndarray:
        return io.coded(coding, reports, num_categories)

    if seed is None:
        reports = [kept(client.randomize(part)) for part in _parts(values.indices, coding, num_categories)]
        effective = client.effective_epsilon
    else:
        with ending_at_once():
            mechanism = MECHANISMS[name](**client.parameters)
            key = jax.random.key(seed)
            parts = _parts(values.indices, coding, num_categories)
            keys = [key] if len(parts) == 1 else jax.random.split(key, len(parts))
            reports = [kept(mechanism.randomize(own, part)) for own, part in zip(keys, parts, strict=True)]
            # The ε asked for, because a simulation protects nobody.
            simple = isinstance(mechanism, rrjax.RandomizedResponse)
            effective = float(mechanism.effective_epsilon) if simple else epsilon
    metadata = Metadata(
        mechanism=MechanismRecord(name, client.parameters),
        effective_epsilon=effective,
        domain=values.domain,
        column=values.column,
        simulated=seed is not None,
        version=rrjax.__version__,
        domain_from_data=values.domain_from_data,
        columns=columns,
    )
    reports = np.concatenate(reports)
    io.write_reports(out, reports, metadata, kept=beside)
    return Randomized(metadata, len(reports), values.num_missing, warnings, keep)


def _kept(files: Files, names: Sequence[str], reported: Sequence[str], present: np.ndarray | None) -> Kept:
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


def show_made(made: Randomized, out: Path, json: bool) -> None:
    """Prints what was written."""
    metadata = made.metadata
    rates = mechanism_of(metadata, str(out)).rates
    if json:
        show.record(
            {
                "command": "randomize",
                "out": out,
                "num_reports": made.num_reports,
                "num_missing": made.num_missing,
                "column": metadata.column,
                "columns": metadata.columns,
                "kept": made.kept,
                "mechanism": metadata.mechanism.name,
                "num_categories": metadata.num_categories,
                "epsilon": metadata.epsilon,
                "effective_epsilon": metadata.effective_epsilon,
                "simulated": metadata.simulated,
                "parameters": metadata.mechanism.parameters,
                "p": float(rates.p),
                "q": float(rates.q),
                "warnings": made.warnings,
            }
        )
        return
    show.warn(made.warnings)
    how = "simulated from a seed" if metadata.simulated else "from the system's secure random numbers"
    show.say(
        f"{show.number(made.num_reports, 'report', 'reports')} {how}; domain: {metadata.domain.describe()}; "
        f"ε = {metadata.epsilon:g} nats asked for, {metadata.effective_epsilon:.12g} delivered."
    )
    one = "category" if metadata.columns is None else "pair"
    p, q = show.percent(float(rates.p)), show.percent(float(rates.q))
    if metadata.mechanism.name == rrjax.RandomizedResponse.name:
        show.say(f"A report is the truth with probability {p} and any one other {one} with {q}.")
    else:
        show.say(
            f"By {described(metadata)}: a report supports its user's {one} with probability {p} and any one other "
            f"with {q}."
        )
    show.show_files({"Reports": out})


def described(metadata: Metadata) -> str:
    """A mechanism with the parameters that ε chose."""
    chosen = {
        name.replace("_", " "): value
        for name, value in metadata.mechanism.parameters.items()
        if name not in ("num_categories", "epsilon")
    }
    more = ", ".join(f"{name} {value:,}" for name, value in chosen.items())
    return metadata.mechanism.name + (f" ({more})" if more else "")
