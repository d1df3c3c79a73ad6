"""Text with delimiters: by whom it is read, and how, so that no row and no character is lost."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import count
from typing import IO, Any, Literal

import numpy as np

from rrjax.data.errors import DataError
from rrjax.io.database import Connection, connect, file_list, literal, opened, opener_of
from rrjax.io.lines import holds, num_lines
from rrjax.io.source import is_large, stamp_of

Reading = Literal["in parts", "whole", "by Python"]
"""How files are read: by DuckDB, parts of them at the same time or not, or by Python."""
_NOT_CLOSED = (
    "a double quote is never closed, or not doubled, or has characters after it; or a cell has over 131,072 characters."
)
_VIEWS = count()


def delimited(
    connection: Connection, files: Sequence[str], width: int, delimiter: str, header: bool, reading: Reading
) -> str:
    """The SQL of the cells of files with so many columns, as texts.

    Raises:
        DataError: Files that Python reads, and cannot.
    """
    if reading == "by Python":
        return " UNION ALL ".join(_by_python(connection, file, width, delimiter, header) for file in files)
    # Every column is text and every property is given: the sniffer of DuckDB would drop odd first lines.
    types = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(width))
    return (
        f"SELECT * FROM read_csv({file_list(files)}, columns={{{types}}}, auto_detect=false, "
        f"header={str(header).lower()}, delim={literal(delimiter)}, quote='\"', escape='\"', hive_partitioning=false, "
        f"parallel={str(reading == 'in parts').lower()})"
    )


def first_record(file: str, delimiter: str) -> tuple[list[str], bool]:
    """The cells of the first line, and whether it is odd.

    A cell has another line break than there is at the end, or any beside cells with spaces before quotes; or, after a
    byte order mark, any or a delimiter; or there are characters after its quotes, other than spaces.

    Raises:
        DataError: A file that cannot be read, is blank there, or never closes a quote there.
    """
    try:
        with opened(file) as stream:
            record, lines = _read_first(stream, delimiter)
    except csv.Error as error:
        raise _error_in(file, 1, f"{error}.") from error
    if not record:
        raise DataError.at(file, "the first line is blank; it must be a header or data.", row=1)
    try:
        next(_strict_reader(lines, delimiter))
    except csv.Error as error:
        if len(lines) > 1:
            raise _error_in(file, 1, _NOT_CLOSED) from error
        return record, True
    ends = {line[len(line.rstrip("\r\n")) :] for line in lines}
    is_padded = next(csv.reader(lines, delimiter=delimiter)) != record
    if len(lines) > 1 and (len(ends) > 1 or is_padded):
        return record, True
    return record, (len(lines) > 1 or any(delimiter in cell for cell in record)) and _is_marked(file)


def _is_marked(file: str) -> bool:
    """Whether a file that can be read begins with a byte order mark."""
    with opener_of(file)(file, "rb") as raw:
        return raw.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


def reading_of(file: str, width: int, delimiter: str, header: bool, *, is_odd: bool) -> Reading:
    """How to read a file; `is_odd` is of its first line, as of `first_record`.

    After an odd first line DuckDB may find no rows at all, or other ones, in silence: where it ends with another break,
    with a delimiter before quotes after a byte order mark, with a tab after quotes. After two spaces quotes are
    characters to it, and the lines of a cell rows. In parts it refuses files with line breaks in cells where a part
    begins within one, and loses rows where a part begins at a line break of another kind than the first.

    Raises:
        DataError: DuckDB finds another number of rows than others do.
    """
    if is_odd or _is_padded(file, delimiter, stamp_of(file)):
        return "by Python"
    return _found_alike(file, width, delimiter, header, stamp_of(file)) if is_large(file) else "in parts"


@lru_cache(maxsize=1 << 14)
def _is_padded(file: str, delimiter: str, _: object) -> bool:
    """Whether several spaces are before the quotes of a cell in a file with this stamp."""
    if delimiter == " " or not holds(file, b'  "'):
        return False
    begin = re.compile(rf'(?:^|{re.escape(delimiter)}) {{2,}}"')
    with opened(file) as stream:
        return any(map(begin.search, stream))


@lru_cache(maxsize=1 << 14)
def _found_alike(file: str, width: int, delimiter: str, header: bool, _: object) -> Reading:
    """The reading of a large file with this stamp in which DuckDB finds as many rows as are counted without it."""

    def read(connection: Connection, reading: Reading) -> str:
        return delimited(connection, [file], width, delimiter, header, reading)

    @cache
    def by_python() -> int | None:
        try:
            return sum(1 for _ in _rows(file, width, delimiter, header))
        except DataError:
            return None

    lines = num_lines(file, blank=width == 1, quoted=True)
    return _found(file, read, lambda: lines and lines - header, by_python)


def lines_of(files: Sequence[str]) -> str:
    """The SQL of the lines of files, as texts.

    Raises:
        DataError: DuckDB finds another number of lines than others do.
    """
    readings = {_lines_found_alike(file, stamp_of(file)) if is_large(file) else "in parts" for file in files}
    return _lines(files, "whole" if "whole" in readings else "in parts")


@lru_cache(maxsize=1 << 14)
def _lines_found_alike(file: str, _: object) -> Reading:
    """`_found_alike`, of lines."""
    lines = num_lines(file, blank=True, quoted=False)
    return _found(file, lambda _, reading: _lines([file], reading), lambda: lines, lambda: lines)


def _lines(files: Sequence[str], reading: Reading) -> str:
    # A line is one value: a delimiter that no text has, and no quotes.
    return (
        f"SELECT * FROM read_csv({file_list(files)}, columns={{'line': 'VARCHAR'}}, auto_detect=false, header=false, "
        r"delim=E'\x1f\x1e\x1d', quote='', escape='', hive_partitioning=false, "
        f"parallel={str(reading == 'in parts').lower()})"
    )


def _found(
    file: str,
    read: Callable[[Connection, Reading], str],
    by_quotes: Callable[[], int | None],
    by_python: Callable[[], int | None],
) -> Reading:
    """The first reading in which DuckDB finds as many rows as are counted otherwise.

    Counting quotes, which is fast, is no witness of a file in one part: as DuckDB does there, it takes all that follows
    a quote that is not closed for a cell. If there is none, it is a reading that DuckDB refuses.

    Raises:
        DataError: It refuses none, and finds other numbers.
    """
    import duckdb

    ways: list[tuple[Reading, tuple[Callable[[], int | None], ...]]]
    ways = [("in parts", (by_quotes, by_python)), ("whole", (by_python,))]
    refused: list[Reading] = []
    with connect() as connection:
        for reading, counts in ways:
            try:
                query = f"SELECT count(*) FROM ({read(connection, reading)})"
                found = connection.execute(query).fetchall()[0][0]
            except duckdb.Error:
                refused.append(reading)
                continue
            if any(found == count() for count in counts):
                return reading
    if refused:  # its message names the row
        return refused[-1]
    raise DataError.at(
        file, "its rows cannot be told apart: lines end in several ways. Save it again with one program."
    )


def _by_python(connection: Connection, file: str, width: int, delimiter: str, header: bool) -> str:
    """The SQL of the cells of a file that Python reads into memory."""
    cells = np.array([*_rows(file, width, delimiter, header)], object).reshape(-1, width)
    name = f"rows_{next(_VIEWS)}"  # names of views are equal but for case
    # Without None: DuckDB takes the type of objects from some of them.
    connection.register(name, {f"c{index}": cells[:, index] for index in range(width)})
    columns = ", ".join(f"nullif(CAST(c{index} AS VARCHAR), '') AS c{index}" for index in range(width))
    return f"SELECT {columns} FROM {name}"


def _rows(file: str, width: int, delimiter: str, header: bool) -> Iterator[list[str]]:
    """The rows of a file as Python's reader finds them; `DataError` where it finds none, or another width."""
    with opened(file) as stream:
        first = len(_read_first(stream, delimiter)[1]) if header else 0
        own: list[str] = []  # the lines of a row
        reader = _strict_reader((own.append(line) or line for line in stream), delimiter)
        try:
            for row in reader:
                if any('" ' in line for line in own):  # within quotes these spaces are part of the cell
                    row = next(csv.reader(own, delimiter=delimiter, skipinitialspace=True))
                own.clear()
                if not row and width > 1:
                    continue
                if len(row) == width + 1 and not row[-1]:  # as DuckDB does
                    row.pop()
                if len(row or [""]) != width:
                    shown = "one column" if len(row) == 1 else f"{len(row)} columns"
                    problem = f"{shown} where the first line has {width}. Correct the row."
                    raise _error_in(file, first + reader.line_num, problem)
                yield row or [""]
        except csv.Error as error:
            raise _error_in(file, first + reader.line_num, _NOT_CLOSED) from error


def _error_in(file: str, line: int, problem: str) -> DataError:
    return DataError(f"{file}, line {line:,}: {problem}", file=file, row=line)


def _strict_reader(lines: Iterable[str], delimiter: str) -> Any:
    """Python's reader of lines without spaces between quotes and a delimiter or the end of the line."""
    padding = re.compile(rf'" +(?=$|[\r\n]|{re.escape(delimiter)})')
    unpadded = (padding.sub('"', line) if '" ' in line else line for line in lines)
    return csv.reader(unpadded, delimiter=delimiter, strict=True, skipinitialspace=True)


def _read_first(stream: IO[str], delimiter: str) -> tuple[list[str], list[str]]:
    """The cells of the first line of a text, and its lines, as far as line breaks in cells make it several."""
    lines: list[str] = []
    read = (lines.append(line) or line for line in stream)
    return next(csv.reader(read, delimiter=delimiter, skipinitialspace=True), []), lines
