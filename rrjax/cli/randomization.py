"""Randomization of files of true values into files of reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import rrjax
from rrjax import io
from rrjax.cli.design import Randomizer
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.reading import Files, parse_domain
from rrjax.data.errors import ArgumentError, UsageError, reworded
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.rows import Values, read_pairs, unseen_missing
from rrjax.io.write import CODINGS, Kept
from rrjax.privacy.clients.answers import Answers
from rrjax.privacy.clients.base import Client
from rrjax.reports import form
from rrjax.reports.epsilon import check_epsilon

if TYPE_CHECKING:
    from rrjax.mechanisms import Design

SIMULATION = "This is a simulation: its randomness comes from --seed, and it protects nobody."
MOST_CELLS = 1 << 26
"""Limit of reports × categories that are held at a time."""

Pair = tuple[tuple[str, str], tuple[str | None, str | None]]
"""Two columns, and their domains as the flags give them."""


@dataclasses.dataclass(frozen=True)
class Randomization:
    """How values are randomized."""

    epsilon: float | None
    """ε; None for a survey design, whose parameters determine it."""
    seed: int | None
    """Seed of a simulation; None for the system's secure random numbers."""
    randomizer: Randomizer = dataclasses.field(default_factory=Randomizer)
    pair: Pair | None = None
    """Two columns whose pairs are randomized as one value, so that ε protects the pair."""
    keep: tuple[str, ...] = ()
    """Columns that are written beside the reports, unprotected."""
    bins: io.Bins | None = None
    """Bins of numbers, for the square wave."""


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
    if files.source.metadata() is not None:
        raise UsageError(
            f"{files.paths[0]} holds randomized reports already; randomized again they would not be what their "
            "metadata say. Start from the true values",
            value=files.paths[0],
        )
    _ = files.stamps  # from here on values are read


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
    from rrjax.reports.reports import padded

    warnings += padded(values.num_padded, "value")
    if values.num_missing:
        warnings.append(
            f"{form.number(values.num_missing, 'row without a value is', 'rows without a value are')} left out."
        )
    return warnings


def make_reports(files: Files, out: Path, how: Randomization) -> Randomized:
    """Randomizes files of true values and writes the reports with all that is needed to estimate from them."""
    import jax

    from rrjax.mechanisms import MECHANISMS, ORDERED

    seed, name, pair, keep = how.seed, how.randomizer.name, how.pair, how.keep
    how.randomizer.check_epsilon(how.epsilon)
    check_values(files)
    if how.bins is not None:
        columns, values = None, io.read_bins(files.source, how.bins)
    elif pair is None:
        columns, values = None, io.read_values(files.source, files.domain)
    else:
        columns, (first, second) = pair
        values = read_pairs(files.source, columns, (parse_domain(first), parse_domain(second)))
    num_categories = values.domain.num_categories
    beside = kept_of(files, keep, (values.column, *(columns or ())), values.present) if keep else None
    warnings = cautions(values, pair, seed)
    if columns is None and how.bins is None:
        warnings += [
            f"--missing {form.printable(each)}: no value is that. Is it written as in the file?"
            for each in unseen_missing(files.source, values)
        ]
    if beside is not None:
        named = ", ".join(map(form.printable, keep))
        warnings.append(f"Kept as they are, and protected by nothing: {named}. ε is about column {values.column!r}.")
    coding = CODINGS[name]
    design = how.randomizer.made(values.domain) if how.randomizer.is_design else None
    client = client_of(name, num_categories, how.epsilon) if design is None else client_of_design(design)

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
    bins = None if how.bins is None else (how.bins.low, how.bins.high)
    record = MechanismRecord(name, client.parameters)
    metadata = metadata_of(values, record, effective, seed, columns=columns, range=bins)
    reports = np.concatenate(reports)
    # Two columns, and those that are kept, were read one after the other.
    io.write_reports(out, reports, metadata, kept=beside, check=files.check_unchanged)
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
