"""How the reports of each mechanism stand in a file: as labels, numbers, bits, or hashes.

A report of randomized response is a label of the domain, and its file is like any other. What the reports of other
mechanisms mean only their metadata tell: they are the number of a column, a string of K bits that says which
categories are supported, or a seed with a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rrjax.io.database import Connection, connect, explaining, file_list, identifier, some
from rrjax.io.errors import DataError
from rrjax.io.metadata import Metadata
from rrjax.io.source import Source
from rrjax.mechanisms.table import TABLE, Coding

CODINGS: dict[str, Coding] = {name: entry.coding for name, entry in TABLE.items() if entry.coding is not None}
"""By the name of the mechanism."""

_TYPES: dict[Coding, str] = {
    "numbers": "INTEGER",
    "bits": "BLOB",
    "hashes": "STRUCT(seed UINTEGER, bucket UINTEGER)",
}
"""What DuckDB calls them."""
_CHUNK = 1 << 16
"""Reports that are read at a time."""


def coded(coding: Coding, reports: Any, num_categories: int) -> np.ndarray:
    """Reports as they are kept until they are written.

    Args:
        coding: Of their mechanism.
        reports: As the mechanism makes them: `[N]` numbers, `[N, K]` bits, `[N, ω]` members, or `[N, 2]` hashes.
        num_categories: K.

    Returns:
        `[N]` integers; `[N, ⌈K/8⌉]` bytes, whose first bit is that of category 0; or `[N, 2]` words.
    """
    reports = np.asarray(reports)
    if coding == "bits":
        if reports.dtype != bool:
            members = reports
            reports = np.zeros((len(members), num_categories), bool)
            np.put_along_axis(reports, members, True, axis=1)
        return np.packbits(reports, axis=1)
    return reports.astype(np.uint32 if coding == "hashes" else np.int32)


def check_coded(coding: Coding, reports: np.ndarray, num_categories: int) -> None:
    """Raises `DataError` for what `coded` does not make: the file would be read as something else."""
    wanted = {
        "numbers": (np.int32, ()),
        "bits": (np.uint8, (-(-num_categories // 8),)),
        "hashes": (np.uint32, (2,)),
    }
    dtype, cells = wanted[coding]
    if reports.ndim == 0 or reports.dtype != dtype or reports.shape[1:] != cells:
        shape = ", ".join(["N", *map(str, cells)])
        raise DataError(
            f"Reports that are {coding} must be {np.dtype(dtype)} of shape [{shape}], as rrjax.io.coded makes them, "
            f"not {reports.dtype} of shape {reports.shape}.",
            argument="reports",
        )


def query_of(connection: Connection, coding: Coding, reports: np.ndarray, column: str) -> str:
    """Declares coded reports to DuckDB, and returns the query that selects them."""
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
    return f"SELECT report AS {column} FROM reports"


def count_numbers(source: Source, metadata: Metadata, end: int) -> np.ndarray:
    """Counts reports that are numbers, out of core.

    Raises:
        DataError: Files that cannot be read, or a report that is no such number.
    """
    with _reading(source, metadata, "numbers") as (connection, column, table):
        found = connection.execute(f"SELECT {column} AS number, count(*) AS times FROM {table} GROUP BY 1").fetchnumpy()
    numbers, times = np.ma.filled(found["number"], -1), np.asarray(found["times"])
    if not times.size:
        raise DataError(f"{some(source.files())}: there is no report in it.", file=source.files()[0])
    wrong = (numbers < 0) | (numbers >= end)
    if wrong.any():
        raise DataError(
            f"{some(source.files())}: a report must be a number from 0 to {end - 1:,}, and {times[wrong].sum():,} are "
            f"not, such as {numbers[wrong][0]}: they are not of the mechanism that the metadata name.",
            file=source.files()[0],
            column=metadata.column,
            value=int(numbers[wrong][0]),
        )
    counts = np.zeros(end, np.int64)
    counts[numbers] = times
    return counts


def read_bits(source: Source, metadata: Metadata) -> Iterator[np.ndarray]:
    """Reads reports that are bits, some at a time.

    Raises:
        DataError: Files that cannot be read, or a report that is not K bits.
    """
    size = metadata.num_categories
    width = -(-size // 8)
    before = 0
    with _reading(source, metadata, "bits") as (connection, column, table):
        connection.execute(f"SELECT {column} FROM {table}")
        while rows := connection.fetchmany(max(1, min(_CHUNK, (1 << 27) // size))):
            lengths = np.asarray([-1 if row is None else len(row) for (row,) in rows])
            if (lengths != width).any():
                row = int(np.argmax(lengths != width))
                came = "nothing" if lengths[row] < 0 else f"{lengths[row]:,} bytes"
                raise DataError(
                    f"{some(source.files())}: report {before + row + 1:,} is {came}; a report on {size:,} categories "
                    f"has {width:,} bytes.",
                    file=source.files()[0],
                    column=metadata.column,
                    row=before + row + 1,
                )
            packed = np.frombuffer(b"".join(row for (row,) in rows), np.uint8).reshape(-1, width)
            beyond = np.flatnonzero(packed[:, -1] & ((1 << (8 * width - size)) - 1))
            if beyond.size:
                row = before + int(beyond[0]) + 1
                raise DataError(
                    f"{some(source.files())}: report {row:,} has bits beyond its {size:,} categories; was the file "
                    "changed after it was written?",
                    file=source.files()[0],
                    column=metadata.column,
                    row=row,
                )
            yield np.unpackbits(packed, axis=1, count=size).astype(bool)
            before += len(rows)


def read_hashes(source: Source, metadata: Metadata) -> Iterator[np.ndarray]:
    """Reads reports that are a seed and a bucket, some at a time.

    Raises:
        DataError: Files that cannot be read, or a report that is not there.
    """
    with _reading(source, metadata, "hashes") as (connection, column, table):
        query = f"SELECT {column}.seed AS seed, {column}.bucket AS bucket FROM {table}"
        found = connection.execute(query).fetchnumpy()
    missing = sum(int(np.ma.count_masked(part)) for part in found.values())
    if missing:
        raise DataError(
            f"{some(source.files())}: {missing:,} reports lack their seed or their bucket.",
            file=source.files()[0],
            column=metadata.column,
        )
    reports = np.stack([np.asarray(found[name], np.uint32) for name in ("seed", "bucket")], axis=1)
    for start in range(0, len(reports), _CHUNK):
        yield reports[start : start + _CHUNK]


@contextmanager
def _reading(source: Source, metadata: Metadata, coding: Coding) -> Iterator[tuple[Connection, str, str]]:
    """A connection to coded reports, the expression of their column, and the table that it is in."""
    files = source.files()
    table = f"read_parquet({file_list(files)})"
    with connect() as connection, explaining(files):
        described = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
        kind = {name: kind for name, kind, *_ in described}.get(metadata.column)
        if kind != _TYPES[coding]:
            came = "is not there" if kind is None else f"holds {kind}"
            raise DataError(
                f"{some(files)}: the reports of {metadata.mechanism.name} are {_TYPES[coding]} in column "
                f"{metadata.column!r}, which {came}. Was the file changed after it was written?",
                file=files[0],
                column=metadata.column,
            )
        yield connection, identifier(metadata.column), table
