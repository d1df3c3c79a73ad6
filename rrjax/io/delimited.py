"""Text with delimiters as DuckDB reads it: how, so that no row and no character is lost."""

from __future__ import annotations

import codecs
import csv
import gzip
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from rrjax.data.errors import DataError
from rrjax.io.database import connect, file_list, literal, opened
from rrjax.io.source import is_large_and_quoted, stamp_of

_ROWS_AT_A_TIME = 10_000


class Reading(NamedTuple):
    """How DuckDB reads a file: parts of it at the same time, and strictly."""

    in_parts: bool = True
    strict: bool = True


def delimited(files: Sequence[str], width: int, delimiter: str, header: bool, reading: Reading) -> str:
    """The SQL of the cells of files with so many columns, as texts."""
    # Every column is text and every property is given: the sniffer of DuckDB would drop odd first lines.
    types = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(width))
    return (
        f"read_csv({file_list(files)}, columns={{{types}}}, auto_detect=false, header={str(header).lower()}, "
        f"delim={literal(delimiter)}, quote='\"', escape='\"', strict_mode={str(reading.strict).lower()}, "
        f"hive_partitioning=false, parallel={str(reading.in_parts).lower()})"
    )


def first_record(file: str, delimiter: str) -> tuple[list[str], bool]:
    """The cells of the first line, and whether it is broken.

    It is if there is a line break in one of them other than the one at its end, or any after a byte order mark, with
    which DuckDB takes a quoted first cell for two lines.
    """
    ends: list[str] = []
    try:
        with opened(file) as stream:
            lines = (ends.append(line[len(line.rstrip("\r\n")) :]) or line for line in stream)
            record = next(csv.reader(lines, delimiter=delimiter), [])
    except csv.Error as error:
        raise DataError(f"{file}, line 1: {error}.", file=file, row=1) from error
    if not record:
        raise DataError.at(file, "the first line is blank; it must be a header or data.", row=1)
    return record, len(ends) > 1 and (len({*ends}) > 1 or _is_marked(file))


def _is_marked(file: str) -> bool:
    """Whether a file that can be read begins with a byte order mark."""
    with (gzip.open if file.lower().endswith(".gz") else open)(file, "rb") as raw:
        return raw.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


def reading_of(file: str, width: int, delimiter: str, header: bool, *, is_broken: bool) -> Reading:
    """How to read a file; `is_broken` is of its first line, as of `first_record`.

    All files are read in parts but some with line breaks in cells: a part may begin within a cell, whose lines it then
    takes for rows, and refuses the file. If a strict DuckDB sees another line break in the first line than its end it
    finds no rows at all, in silence.

    Raises:
        DataError: The first line is broken, and DuckDB reads other cells than Python.
    """
    form = file, width, delimiter, header, stamp_of(file)
    if is_broken:
        if not _is_read_alike(*form):
            problem = "a cell of the first line has a line break, so the rows cannot be told apart. Remove the break."
            raise DataError.at(file, problem, row=1)
        return Reading(in_parts=False, strict=False)
    return Reading(in_parts=not is_large_and_quoted(file) or not _only_whole(*form))


@lru_cache(maxsize=1 << 14)
def _only_whole(file: str, width: int, delimiter: str, header: bool, _: object) -> bool:
    """Whether DuckDB reads a file with this stamp, but not in parts.

    In one part it is silent where the last quote is not closed, so another reader must find as many rows.
    """
    import duckdb

    def count(reading):
        return f"SELECT count(*) FROM {delimited([file], width, delimiter, header, reading)}"

    with connect() as connection:
        try:
            connection.execute(count(Reading()))
        except duckdb.Error:
            try:
                num_rows = connection.execute(count(Reading(in_parts=False))).fetchall()[0][0]
                with opened(file) as stream:
                    rows = csv.reader(stream, delimiter=delimiter, strict=True)
                    return num_rows == sum(bool(row) or width == 1 for row in rows) - header
            except (duckdb.Error, csv.Error, DataError):
                return False
    return False


@lru_cache(maxsize=1 << 14)
def _is_read_alike(file: str, width: int, delimiter: str, header: bool, _: object) -> bool:
    """Whether DuckDB, if it is not strict, finds the cells of a file with this stamp that Python finds."""
    import duckdb

    read = delimited([file], width, delimiter, header, Reading(in_parts=False, strict=False))
    try:
        with connect() as connection, opened(file) as stream:
            found = connection.execute(f"SELECT * FROM {read}")
            batches = iter(lambda: found.fetchmany(_ROWS_AT_A_TIME), [])
            rows = csv.reader(stream, delimiter=delimiter, strict=True)
            expected = ([cell or None for cell in row or [""]] for row in rows if row or width == 1)
            if header:
                next(expected)
            every = zip_longest((row for batch in batches for row in batch), expected)
            return all(row and other and [cell or None for cell in row] == other for row, other in every)
    except (duckdb.Error, csv.Error, DataError):
        return False
