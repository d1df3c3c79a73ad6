"""Tallies and mixtures of the reports in files; and tallies on disk, for later sums."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rrjax.data.errors import ArgumentError, DataError, option, refusal
from rrjax.io.database import Connection, connect, explaining, identifier, parquet, parquet_record, some
from rrjax.io.domain import Domain
from rrjax.io.metadata import TALLY_KEY, Metadata
from rrjax.io.read import CountedReports, as_source, count_reports
from rrjax.io.source import Source, only_file
from rrjax.io.write import CODINGS, copy, replacing
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
    return _make_mechanism(metadata.mechanism.name, parameters, file, wrote)


def _make_mechanism(name: str, parameters: dict[str, Any], file: str, wrote: str = "") -> SupportMechanism:
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


@dataclass(frozen=True)
class StoredTally:
    """A tally from a file, with its mechanism and domain.

    Attributes:
        tally: The tally, equal to the stored one.
        mechanism: Mechanism of the reports, at the ε delivered; None if it was not stored.
        domain: The labels of the categories; None if the tally had none.
    """

    tally: Tally
    mechanism: SupportMechanism | None
    domain: Domain | None


def save_tally(path: str | PathLike[str], tally: Tally, mechanism: SupportMechanism | None = None) -> None:
    """Writes a tally to a Parquet file for `load_tally`.

    The file has a row for each category: its label or its number, and its support. Its metadata are the number of
    users, the rates, the fingerprint of the domain and the mechanism.

    Args:
        path: A .parquet file; a tally that it holds is replaced.
        tally: The tally.
        mechanism: Mechanism of the reports, of `rrjax.mechanisms.MECHANISMS`. None stores only the rates.

    Raises:
        ArgumentError: What `read_tally` or `load_tally` return: their tally is an attribute. Labels with blanks around
            them, which no file keeps.
        DataError: Another format, a mechanism without a name in files, with other rates or another K than the tally, or
            a file that cannot be written.

    Example:
        >>> import tempfile, rrjax
        >>> from rrjax.io import load_tally, save_tally
        >>> mechanism = rrjax.RandomizedResponse(3, epsilon=1.0)
        >>> monday = rrjax.Tally([50, 30, 20], num_users=100, rates=mechanism.rates, domain=["no", "yes", "unsure"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_tally(f"{folder}/monday.parquet", monday, mechanism)
        ...     stored = load_tally(f"{folder}/monday.parquet")
        >>> stored.tally == monday, stored.mechanism == mechanism
        (True, True)
    """
    if not os.fspath(path).lower().endswith(".parquet"):
        message = f"{os.fspath(path)}: a tally is written as .parquet, which has a place for its rates."
        raise DataError(message, file=path)
    if isinstance(tally, Tallied | StoredTally):
        problem = f"is a {type(tally).__name__}, which holds one: give its .tally, and its .mechanism after it"
        raise ArgumentError.about("tally", problem)
    support, number = np.asarray(tally.support), np.asarray(tally.num_users)
    if support.ndim != 1:
        raise DataError(f"{os.fspath(path)}: a file holds one tally, not those of shape {support.shape}.", file=path)
    domain = domain_of(tally.domain)
    if domain is not None and domain.fingerprint != tally.domain:
        problem = "has labels that no file keeps, such as with blanks around them: give it a domain without them"
        raise ArgumentError.about("tally", problem)
    record = {
        "num_users": number.item(),
        "rates": {
            # A number on the host is stored as one, without a dtype.
            name: [
                np.asarray(weight).astype(float).tolist(),
                None if isinstance(weight, int | float) else np.asarray(weight).dtype.name,
            ]
            for name, weight in tally.rates._asdict().items()
        },
        "fingerprint": tally.domain,
        "labelled": domain is not None,
        "mechanism": None if mechanism is None else _record_of(mechanism, tally),
    }
    labels = np.arange(support.size) if domain is None else domain.labels()
    columns = {"label": labels.astype(object) if labels.dtype.kind == "T" else labels, "support": support}
    with replacing(path, over=("tally",)) as aside, connect() as connection:
        connection.register("tally", columns)
        copy(connection, "SELECT label, support FROM tally", aside, TALLY_KEY, json.dumps(record))


def load_tally(path: str | PathLike[str]) -> StoredTally:
    """The tally in a file of `save_tally`, equal to the written one, with its mechanism and domain: a `StoredTally`.

    Raises:
        DataError: A file that cannot be read or is no tally, a mechanism that this version of rrjax does not have, or
            more reports than the default integers of JAX can count.
    """
    import jax
    import jax.numpy as jnp

    from rrjax.data.mechanism_parameters import Rates
    from rrjax.data.tally import Tally

    file = only_file(Source(os.fspath(path), format="parquet"))
    with connect() as connection, explaining([file]):
        text = parquet_record(connection, file, TALLY_KEY)
        if text is None:
            raise DataError(f"{file} holds no tally. Reports are counted by read_tally.", file=file)
        columns = connection.execute(f"SELECT label, support FROM {parquet([file])}").fetchnumpy()
    record = json.loads(text)
    domain, labels = None, columns["label"]
    if record["labelled"]:
        ends = labels.dtype.kind in "iu" and (int(labels[0]), int(labels[-1]))
        domain = Domain.range(*ends) if ends else Domain.of(map(str, labels))
    if domain is not None and domain.fingerprint != record["fingerprint"]:
        raise DataError(f"{file}: the labels are not those that the tally was stored with.", file=file, column="label")
    support = np.asarray(columns["support"])
    number = np.asarray(record["num_users"], support.dtype)
    if support.dtype.kind == "f":
        support, number = (jnp.asarray(x, jax.dtypes.canonicalize_dtype(x.dtype)) for x in (support, number))
    else:
        support, number = as_jax_integers(support), as_jax_integers(number)
    weights = {
        name: value if dtype is None else jnp.asarray(value, jax.dtypes.canonicalize_dtype(dtype))
        for name, (value, dtype) in record["rates"].items()
    }
    tally = Tally(support, number, rates=Rates(**weights), domain=record["fingerprint"] if domain is None else domain)
    described = record["mechanism"]
    mechanism = None if described is None else _make_mechanism(described["name"], described["parameters"], file)
    return StoredTally(tally, mechanism, domain)


def check_stored(source: Source, counts: str | None, design: SupportMechanism | None = None, **given: Any) -> None:
    """Refuses files of `save_tally` whose mechanism, ε or number of users, of all files, are others than those `given`.

    The rates must be those of a `design`, in its order or another one.

    Raises:
        ArgumentError: About one of these, or `counts` if no column of counts is given.
        DataError: A file that cannot be read.
    """
    if source.file_format() != "parquet":
        return
    files = source.files()
    with connect() as connection, explaining(files):
        texts = [parquet_record(connection, file, TALLY_KEY) for file in files]
    records = {file: json.loads(text) for file, text in zip(files, texts, strict=True) if text is not None}
    of_all = sum(record["num_users"] for record in records.values()) if len(records) == len(files) else None
    for file, record in records.items():
        if counts is None:
            raise refusal("counts", f"{file} is a tally: its counts are in the column support ({option('counts')})")
        described = record["mechanism"] or {"name": None, "parameters": {}}
        epsilon = described["parameters"].get("epsilon")
        for name, said in (("mechanism", described["name"]), ("epsilon", epsilon), ("num_users", of_all)):
            value = given.get(name, said)
            if said is None or said == value or (name == "epsilon" and value and np.isclose(said, value, rtol=1e-6)):
                continue
            shown = f"{said:g}" if isinstance(said, float) else said
            whose = f"{some(files)}: the tally" if name == "num_users" else f"{file}: the tally"
            other = "; give it" if value is None else f", not {value}"
            raise refusal(name, f"{whose} has {name} = {shown}{other} ({option(name)})", value=value)
        weights = [np.asarray(weight, float) for weight, _ in record["rates"].values()]
        if design is not None and not _are_of(design, weights):
            said = ", ".join(f"{name} = {value}" for name, value in described["parameters"].items())
            problem = f"{file} is a tally with other rates, those of {said or 'other parameters'}"
            raise refusal("mechanism", problem, value=design)


def _are_of(design: SupportMechanism, weights: Sequence[np.ndarray]) -> bool:
    """Whether rates of these weights are those of a design, in any order of the categories."""
    own = [np.asarray(weight, float) for weight in design.rates]
    pairs = (np.stack(np.broadcast_arrays(*each)).reshape(len(each), -1) for each in (own, weights))
    ours, theirs = (np.sort(pair / (pair[0] + pair[1] + pair[2]), axis=1) for pair in pairs)
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def _written(rate) -> str:
    return ", ".join(f"{float(each):.9g}" for each in np.ravel(np.asarray(rate)))


def domain_of(fingerprint: Any) -> Domain | None:
    """The domain of the labels that a tally knows; None if it knows none."""
    labels = getattr(fingerprint, "labels", None)
    if labels is None:
        return None
    return Domain.range(labels.start, labels.stop - 1) if isinstance(labels, range) else Domain.of(labels)


def _record_of(mechanism: SupportMechanism, tally: Tally) -> dict[str, Any]:
    from rrjax.data.tally import equal_rates
    from rrjax.mechanisms import DESIGNS, MECHANISMS

    if type(mechanism) is not (MECHANISMS | DESIGNS).get(getattr(mechanism, "name", "")):
        raise DataError(f"Files have no name for {type(mechanism).__name__}: leave the mechanism out.")
    if mechanism.num_categories != tally.num_categories or not equal_rates(mechanism.rates, tally.rates):
        ours, theirs = (
            f"{each.num_categories:,} categories, p = {_written(each.rates.p)} and q = {_written(each.rates.q)}"
            for each in (tally, mechanism)
        )
        raise DataError(f"The tally has {ours}; the mechanism has {theirs}: they are not of one collection.")
    parameters = {field.name: getattr(mechanism, field.name) for field in fields(cast("Any", mechanism))}
    numbers = {name: np.asarray(value).tolist() for name, value in parameters.items() if not isinstance(value, int)}
    return {"name": mechanism.name, "parameters": parameters | numbers}
