"""Codings: the form of the reports of each mechanism in a file: labels, numbers, bits, or hashes.

A report of randomized response is a label of the domain. Reading reports of other mechanisms requires metadata: a
report is the number of a column, a string of K bits of the supported categories, or a seed with a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rrjax.data.errors import DataError
from rrjax.io.database import Connection, connect, explaining, identifier, parquet, some
from rrjax.io.domain import Domain
from rrjax.io.metadata import Metadata
from rrjax.io.source import Source
from rrjax.mechanisms.table import TABLE, Coding

CODINGS: dict[str, Coding] = {name: entry.coding for name, entry in TABLE.items() if entry.coding is not None}
"""Mechanism name → coding."""

_TYPES: dict[Coding, str] = {
    "numbers": "INTEGER",
    "bits": "BLOB",
    "hashes": "STRUCT(seed UINTEGER, bucket UINTEGER)",
}
"""Type of the column in DuckDB."""
_DTYPES: dict[Coding, type] = {"labels": np.int32, "numbers": np.int32, "bits": np.uint8, "hashes": np.uint32}
"""Type of the array that `coded` returns."""
_REPORTS_PER_CHUNK = 1 << 16
"""Number of reports that are read at a time."""


def coded(coding: Coding, reports: Any, num_categories: int) -> np.ndarray:
    """Reports, packed into arrays for `write_reports`.

    Args:
        coding: Coding of their mechanism: "labels", "numbers", "bits" or "hashes".
        reports: Reports of `randomize`: `[N]` numbers, `[N, K]` bits, `[N, ω]` members, or `[N, 2]` hashes.
        num_categories: K.

    Returns:
        `[N]` integers; `[N, ⌈K/8⌉]` bytes, with category 0 in the first bit; or `[N, 2]` words.
    """
    reports = np.asarray(reports)
    if coding == "bits":
        if reports.dtype != bool:
            members = reports
            reports = np.zeros((len(members), num_categories), bool)
            np.put_along_axis(reports, members, True, axis=1)
        return np.packbits(reports, axis=1)
    return reports.astype(_DTYPES[coding])


def check_coded(coding: Coding, reports: np.ndarray, num_categories: int) -> None:
    """Raises `DataError` for reports that `coded` cannot make: such a file would be unreadable."""
    if coding == "labels":
        if reports.ndim != 1 or reports.dtype.kind not in "iu":
            message = f"Reports must be a row of integers, not {reports.dtype} of shape {reports.shape}."
            raise DataError(message, argument="reports")
        if reports.size and (reports.min() < 0 or reports.max() >= num_categories):
            limits = f"from {reports.min():,} to {reports.max():,}"
            message = f"Reports must be category numbers from 0 to {num_categories - 1:,}; they run {limits}."
            raise DataError(message, argument="reports")
        return
    cells = {"numbers": (), "bits": (-(-num_categories // 8),), "hashes": (2,)}[coding]
    if reports.ndim == 0 or reports.dtype != _DTYPES[coding] or reports.shape[1:] != cells:
        shape = ", ".join(["N", *map(str, cells)])
        raise DataError(
            f"Reports that are {coding} must be {np.dtype(_DTYPES[coding])} of shape [{shape}], as rrjax.io.coded "
            f"makes them, not {reports.dtype} of shape {reports.shape}.",
            argument="reports",
        )


def query_of(connection: Connection, coding: Coding, reports: np.ndarray, domain: Domain, column: str) -> str:
    """The query for coded reports, which are registered in DuckDB."""
    if coding == "bits":
        width = reports.shape[1]
        whole = np.ascontiguousarray(reports).tobytes()
        rows = np.empty(len(reports), object)
        rows[:] = [whole[start : start + width] for start in range(0, len(whole), width)]
        connection.register("reports", {"report": rows})
        return f"SELECT CAST(report AS BLOB) AS {column} FROM reports"
    if coding == "hashes":
        seeds, buckets = (np.ascontiguousarray(part) for part in reports.T)
        connection.register("reports", {"seed": seeds, "bucket": buckets})
        return f"SELECT struct_pack(seed := seed, bucket := bucket) AS {column} FROM reports"
    connection.register("reports", {"report": np.ascontiguousarray(reports)})
    if coding == "numbers":
        return f"SELECT report AS {column} FROM reports"
    if domain.is_range:
        return f"SELECT CAST(report AS BIGINT) + ({domain.ends[0]}) AS {column} FROM reports"
    # A list keeps the order of the reports; joins of DuckDB do not.
    labels = domain.labels().astype(object)
    connection.register("labels", {"position": np.arange(len(labels)), "label": labels})
    listed = "(SELECT list(label ORDER BY position) FROM labels)"
    return f"SELECT {listed}[CAST(report AS BIGINT) + 1] AS {column} FROM reports"


def count_numbers(source: Source, metadata: Metadata, end: int) -> np.ndarray:
    """Counts of reports that are numbers below `end`, out of core; `DataError` for others."""
    with _reading(source, metadata, "numbers") as (connection, column, table):
        found = connection.execute(f"SELECT {column} AS number, count(*) AS times FROM {table} GROUP BY 1").fetchnumpy()
    numbers, times = np.ma.filled(found["number"], -1), np.asarray(found["times"])
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
                raise _error(
                    source,
                    f"report {before + row + 1:,} is {came}; a report on {size:,} categories has {width:,} bytes.",
                    column=metadata.column,
                    row=before + row + 1,
                )
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
        found = connection.execute(query).fetchnumpy()
    missing = sum(int(np.ma.count_masked(part)) for part in found.values())
    if missing:
        raise _error(source, f"{missing:,} reports lack their seed or their bucket.", column=metadata.column)
    reports = np.stack([np.asarray(found[name], np.uint32) for name in ("seed", "bucket")], axis=1)
    for start in range(0, len(reports), _REPORTS_PER_CHUNK):
        yield reports[start : start + _REPORTS_PER_CHUNK]


def read_reports(source: Source, metadata: Metadata, set_size: int | None = None) -> np.ndarray:
    """All coded reports in the order of their rows, as their mechanism takes them: numbers, bits, members or hashes.

    Args:
        source: The files.
        metadata: Their metadata.
        set_size: The number of members of each report, for a mechanism whose bits are subsets; else None.

    Raises:
        DataError: Reports that are not of this coding.
    """
    coding = CODINGS[metadata.mechanism.name]
    if coding == "numbers":
        with _reading(source, metadata, "numbers") as (connection, column, table):
            found = connection.execute(f"SELECT {column} AS number FROM {table}").fetchnumpy()["number"]
        return np.ma.filled(found, -1).astype(np.int32)
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
