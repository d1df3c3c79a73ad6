"""Tallies and mixtures of the reports in files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import DataError
from rrjax.io.database import Connection, connect, explaining, identifier, parquet, some
from rrjax.io.domain import Domain
from rrjax.io.metadata import Metadata
from rrjax.io.read import CountedReports, as_source, count_reports
from rrjax.io.source import Source
from rrjax.io.write import CODINGS
from rrjax.mechanisms.table import TABLE, Coding

if TYPE_CHECKING:
    from jaxtyping import Array

    from rrjax.data.mixture import Mixture
    from rrjax.data.tally import Tally
    from rrjax.mechanisms import SupportMechanism

_TYPES: dict[Coding, str] = {
    "numbers": "INTEGER",
    "bits": "BLOB",
    "hashes": "STRUCT(seed UINTEGER, bucket UINTEGER)",
}
"""Type of the column in DuckDB."""
_REPORTS_PER_CHUNK = 1 << 16
"""Number of reports that are read at a time."""
MAX_CELLS = 1 << 24
"""Largest matrix, reports × categories, for the likelihood of whole reports."""
MAX_SEEDS = 1 << 20
"""Largest number of seeds of local hashing that are compared with each other."""


@dataclass(frozen=True)
class Tallied:
    """The tally and the likelihood of the reports of any mechanism.

    Attributes:
        counted: Support counts, domain and metadata.
        mechanism: Mechanism of the reports, at the ε delivered.
        tally: The support counts with the rates of the mechanism.
        mixture: The likelihood of whole reports; None if it would need more than `MAX_CELLS` cells.
        seeds: For local hashing, among the first reports, the number with their most frequent seed, and the number of
            these reports; else None.
    """

    counted: CountedReports
    mechanism: SupportMechanism
    tally: Tally
    mixture: Mixture | None
    seeds: tuple[int, int] | None = None


def read_tally(source: Source | str) -> Tallied:
    """The tally of reports of any mechanism, from Parquet files with metadata.

    Args:
        source: Files that `rrjax randomize` or `write_reports` wrote; a plain path is `Source(path)`.

    Returns:
        A `Tallied` with the tally, and the likelihood of whole reports if it is small enough.

    Raises:
        DataError: Files that cannot be read, have no metadata, or have reports that contradict it.

    Example:
        >>> tallied = read_tally("reports.parquet")  # doctest: +SKIP
        >>> rrjax.empirical_bayes(tallied.tally, mixture=tallied.mixture).theta  # doctest: +SKIP
    """
    source = as_source(source)
    metadata = source.metadata()
    if metadata is None:
        raise DataError(
            f"{source.files()[0]} does not say how it was randomized. Count it (rrjax.io.count_reports) and give the "
            "mechanism yourself.",
            file=source.files()[0],
        )
    mechanism = mechanism_of(metadata, source.files()[0])
    if TABLE[mechanism.name].ordered:
        problem = f"reports of numbers, by {mechanism.name}, have no tally: read them with read_number_reports."
        raise DataError.at(source.files()[0], problem)
    try:
        return _READERS[CODINGS[metadata.mechanism.name]](source, metadata, mechanism)
    except DataError:
        raise
    except ValueError as error:  # of a mechanism, about reports of another one
        raise DataError.at(source.files()[0], str(error)) from error


def mechanism_of(metadata: Metadata, file: str) -> SupportMechanism:
    """The mechanism in the metadata of a file, at the ε delivered; of a longitudinal protocol, one round at ε₁."""
    parameters: dict[str, Any] = dict(metadata.mechanism.parameters)
    if not metadata.mechanism.is_design:
        parameters["epsilon"] = metadata.effective_epsilon
    wrote = f" (the file was written by {metadata.version})"
    return make_mechanism(metadata.mechanism.name, parameters, file, wrote)


def make_mechanism(name: str, parameters: dict[str, Any], file: str, wrote: str = "") -> SupportMechanism:
    """The mechanism of a name with these parameters; `DataError` for one that this version of rrjax does not have."""
    import rrjax
    from rrjax.mechanisms import DESIGNS, MECHANISMS, ORDERED, PROTOCOLS

    known = {**MECHANISMS, **DESIGNS, **ORDERED, **PROTOCOLS}
    if name not in known:
        raise DataError(
            f"{file} was made by the mechanism {name!r}, which rrjax {rrjax.__version__} does not know{wrote}; it "
            f"knows {', '.join([*MECHANISMS, *ORDERED])}. A newer version of rrjax may"
        )
    try:
        made = known[name](**parameters)
        return made.single_round if name in PROTOCOLS else made
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{parameter} = {value}" for parameter, value in parameters.items())
        why = "it has other parameters" if isinstance(error, TypeError) else str(error)
        raise DataError(
            f"{file} was made by {name} with {given}, which rrjax {rrjax.__version__} cannot make: {why}"
        ) from error


def _of_labels(source, metadata, mechanism):
    return tallied_answers(count_reports(source), mechanism)


def tallied_answers(counted: CountedReports, mechanism: SupportMechanism) -> Tallied:
    """The tally and the likelihood of counted answers: labels of randomized response or of a survey design."""
    tally = tally_of_columns(counted.counts, mechanism, counted.domain)
    return Tallied(counted, mechanism, tally, mechanism.mixture_of_counts(counted.counts))  # pyright: ignore[reportAttributeAccessIssue]


def _of_numbers(source, metadata, mechanism):
    columns = count_numbers(source, metadata, mechanism.num_columns)
    tally = tally_of_columns(columns, mechanism, metadata.domain)
    return Tallied(_counted(tally, metadata), mechanism, tally, mechanism.mixture_of_counts(columns))


def _of_bits(source, metadata, mechanism):
    kept, support, number = [], np.zeros(metadata.num_categories, np.int64), 0
    set_size = getattr(mechanism, "subset_size", None)
    for bits in read_bits(source, metadata):
        sizes = bits.sum(axis=1) if set_size is not None else None
        if sizes is not None and (sizes != set_size).any():
            row = int(np.argmax(sizes != set_size))
            problem = f"report {number + row + 1:,} has {sizes[row]:,} members"
            raise DataError.at(source.files()[0], f"{problem}, and subsets of {set_size:,} were reported.")
        support += bits.sum(axis=0)
        number += len(bits)
        if number * bits.shape[1] <= MAX_CELLS:
            kept.append(bits)
    return _summed(source, support, number, kept, metadata, mechanism)


def _of_hashes(source, metadata, mechanism):
    kept, support, number = [], np.zeros(metadata.num_categories, np.int64), 0
    first = np.zeros(0, np.uint32)
    for hashes in read_hashes(source, metadata):
        support += np.asarray(mechanism.tally(hashes).support)
        number += len(hashes)
        first = np.concatenate([first, hashes[: MAX_SEEDS - len(first), 0]])
        if number * metadata.num_categories <= MAX_CELLS:
            kept.append(np.asarray(mechanism.supports(hashes)))
    tally = _summed(source, support, number, kept, metadata, mechanism)
    return replace(tally, seeds=(int(np.unique(first, return_counts=True)[1].max()), len(first)))


_READERS = {"labels": _of_labels, "numbers": _of_numbers, "bits": _of_bits, "hashes": _of_hashes}


def _summed(source, support, number, kept, metadata, mechanism):
    """The tally of support counts, and the mixture of reports if all were kept."""
    from rrjax.mechanisms.mechanism import mixture_of_supports

    if number == 0:
        raise no_report(source)
    tally = tally_of_support(support, number, mechanism, metadata.domain)
    fits = number * metadata.num_categories <= MAX_CELLS
    mixture = mixture_of_supports(np.concatenate(kept), mechanism.expm1_epsilon) if fits else None
    return Tallied(_counted(tally, metadata), mechanism, tally, mixture)


def count_numbers(source: Source, metadata: Metadata, end: int) -> np.ndarray:
    """Counts of reports that are numbers below `end`, out of core; `DataError` for others."""
    with _reading(source, metadata, "numbers") as (connection, column, table):
        groups = connection.execute(
            f"SELECT {column} AS number, count(*) AS times FROM {table} GROUP BY 1"
        ).fetchnumpy()
    numbers, times = np.ma.filled(groups["number"], -1), np.asarray(groups["times"])
    if not times.size:
        raise no_report(source)
    wrong = (numbers < 0) | (numbers >= end)
    if wrong.any():
        raise _error(
            source,
            f"a report must be a number from 0 to {end - 1:,}, and {times[wrong].sum():,} are not, such as "
            f"{numbers[wrong][0]}: they are not of the mechanism that the metadata name.",
            column=metadata.column,
            value=int(numbers[wrong][0]),
        )
    counts = np.zeros(end, np.int64)
    counts[numbers] = times
    return counts


def read_bits(source: Source, metadata: Metadata) -> Iterator[np.ndarray]:
    """Chunks of reports that are K bits; `DataError` for others."""
    size = metadata.num_categories
    width = -(-size // 8)
    before = 0
    with _reading(source, metadata, "bits") as (connection, column, table):
        connection.execute(f"SELECT {column} FROM {table}")
        while rows := connection.fetchmany(max(1, min(_REPORTS_PER_CHUNK, (1 << 27) // size))):
            lengths = np.asarray([-1 if row is None else len(row) for (row,) in rows])
            if (lengths != width).any():
                row = int(np.argmax(lengths != width))
                came = "nothing" if lengths[row] < 0 else f"{lengths[row]:,} bytes"
                problem = f"report {before + row + 1:,} is {came}; a report on {size:,} categories has {width:,} bytes."
                raise _error(source, problem, column=metadata.column, row=before + row + 1)
            packed = np.frombuffer(b"".join(row for (row,) in rows), np.uint8).reshape(-1, width)
            beyond = np.flatnonzero(packed[:, -1] & ((1 << (8 * width - size)) - 1))
            if beyond.size:
                row = before + int(beyond[0]) + 1
                raise _error(
                    source,
                    f"report {row:,} has bits beyond its {size:,} categories; was the file changed after it was "
                    "written?",
                    column=metadata.column,
                    row=row,
                )
            yield np.unpackbits(packed, axis=1, count=size).astype(bool)
            before += len(rows)


def read_hashes(source: Source, metadata: Metadata) -> Iterator[np.ndarray]:
    """Chunks of reports that are a seed and a bucket; `DataError` for missing ones."""
    with _reading(source, metadata, "hashes") as (connection, column, table):
        query = f"SELECT {column}.seed AS seed, {column}.bucket AS bucket FROM {table}"
        columns = connection.execute(query).fetchnumpy()
    missing = sum(int(np.ma.count_masked(part)) for part in columns.values())
    if missing:
        raise _error(source, f"{missing:,} reports lack their seed or their bucket.", column=metadata.column)
    reports = np.stack([np.asarray(columns[name], np.uint32) for name in ("seed", "bucket")], axis=1)
    for start in range(0, len(reports), _REPORTS_PER_CHUNK):
        yield reports[start : start + _REPORTS_PER_CHUNK]


def read_reports(source: Source, metadata: Metadata, set_size: int | None = None) -> np.ndarray:
    """All coded reports in the order of their rows, as their mechanism takes them: numbers, bits or hashes.

    For a mechanism whose bits are subsets of `set_size` members, these; `DataError` for reports of another coding.
    """
    coding = CODINGS[metadata.mechanism.name]
    if coding == "numbers":
        with _reading(source, metadata, "numbers") as (connection, column, table):
            numbers = connection.execute(f"SELECT {column} AS number FROM {table}").fetchnumpy()["number"]
        return np.ma.filled(numbers, -1).astype(np.int32)
    chunks = list((read_bits if coding == "bits" else read_hashes)(source, metadata))
    if not chunks:
        raise no_report(source)
    reports = np.concatenate(chunks)
    return reports if set_size is None else np.nonzero(reports)[1].reshape(-1, set_size).astype(np.int32)


@contextmanager
def _reading(source: Source, metadata: Metadata, coding: Coding) -> Iterator[tuple[Connection, str, str]]:
    """An open connection, with the column of coded reports and its table, in SQL."""
    files = source.files()
    table = parquet(files)
    with connect() as connection, explaining(files):
        described = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
        kind = {name: kind for name, kind, *_ in described}.get(metadata.column)
        if kind != _TYPES[coding]:
            came = "is not there" if kind is None else f"holds {kind}"
            raise _error(
                source,
                f"the reports of {metadata.mechanism.name} are {_TYPES[coding]} in column {metadata.column!r}, which "
                f"{came}. Was the file changed after it was written?",
                column=metadata.column,
            )
        yield connection, identifier(metadata.column), table


def no_report(source: Source) -> DataError:
    """The error for files without a report."""
    return _error(source, "there is no report in it.")


def _error(source: Source, problem: str, **attributes: Any) -> DataError:
    return DataError(f"{some(source.files())}: {problem}", file=source.files()[0], **attributes)


def tally_of_support(
    support: np.ndarray, number: int, mechanism: SupportMechanism, domain: Domain | None = None
) -> Tally:
    """The tally of support counts and a number of reports; `DataError` beyond the integers of JAX."""
    from rrjax.data.tally import Tally

    return Tally(as_jax_integers(support), as_jax_integers(np.int64(number)), rates=mechanism.rates, domain=domain)


def tally_of_columns(columns: np.ndarray, mechanism: SupportMechanism, domain: Domain | None = None) -> Tally:
    """The tally from the number of reports of each kind; `DataError` beyond the integers of JAX."""
    counted = as_jax_integers(columns)
    as_jax_integers(columns.sum())
    tally = mechanism.tally_of_counts(counted)  # pyright: ignore[reportAttributeAccessIssue]
    return replace(tally, domain=domain)


def as_jax_integers(counts: np.ndarray | np.integer) -> Array:
    """Counts in the default integers of JAX; `DataError` for counts beyond these."""
    import jax.numpy as jnp

    from rrjax.data.arguments import int_dtype

    if int(np.max(counts, initial=0)) > jnp.iinfo(int_dtype()).max:
        raise DataError(f"{np.max(counts):,} reports are more than 32 bits can count: set JAX_ENABLE_X64=1.")
    return jnp.asarray(counts, int_dtype())


def _counted(tally, metadata):
    support, number = np.asarray(tally.support, np.int64), int(tally.num_users)
    return CountedReports(support, metadata.domain, metadata.column, number, 0, metadata.domain_from_data, metadata)


def domain_of(fingerprint: Any) -> Domain | None:
    """The domain of the labels that a tally knows; None if it knows none."""
    labels = getattr(fingerprint, "labels", None)
    if labels is None:
        return None
    return Domain.range(labels.start, labels.stop - 1) if isinstance(labels, range) else Domain.of(labels)
