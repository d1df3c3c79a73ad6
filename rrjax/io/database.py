"""DuckDB: a connection that leaves nothing behind, and its errors in plain words."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rrjax.data.errors import DataError
from rrjax.io.plaintext import BAD_GZIP, NOT_UTF8, broken_json_line, odd_line_end

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection
else:
    Connection = Any  # naming the type must not load DuckDB

_NO_OBJECT = "not valid JSON. Every line must be one JSON object."
_CHANGING = "its structure changes along the way. Save it again with one program."
_EXPLANATIONS = (
    (r"GZIP|zlib|decompress", BAD_GZIP),
    (
        r"magic bytes|footer|thrift|Parquet file|Snappy|ZSTD",
        "not a whole Parquet file, it is damaged or cut short. Download or copy it again.",
    ),
    (r"not utf-?8|invalid unicode|invalid utf|byte sequence", NOT_UTF8),
    (
        r"Expected Number of Columns: (\d+) Found: 1\b",
        "one column where the first line has {0}. Correct the row.",
    ),
    (
        r"Expected Number of Columns: (\d+) Found: (\d+)",
        "{1} columns where the first line has {0}. Correct the row, "
        "or put values that hold the delimiter in double quotes.",
    ),
    (r"unterminated quote", "a double quote is opened and never closed, or not doubled."),
    (r"has duplicate key \"(.*)\"", "an object has the key {0!r} more than once. Keep one of them."),
    (r"Malformed JSON|JSON transform|Expected.*object|non-record JSON", _NO_OBJECT),
    (r"invalid state", _CHANGING),
    (r"Maximum line size", "the line is longer than 2 MB; is this the right format and delimiter?"),
    (
        r"Out of Memory|failed to offload|temp(?:orary)? directory",
        "not enough memory or temporary disk space. Free some, or point TMPDIR to a larger disk.",
    ),
)
"""What DuckDB says, as a pattern, and what a person is told."""


@contextmanager
def connect() -> Iterator[Connection]:
    """Connects to an in-memory database that spills to a folder of its own."""
    try:
        import duckdb
    except ImportError as error:
        raise DataError(
            "Reading and writing files needs DuckDB. Install it with: pip install 'rrjax[files]'"
        ) from error
    # By default an in-memory database would spill into .tmp of the current folder.
    with tempfile.TemporaryDirectory(prefix="rrjax-") as folder:
        connection = duckdb.connect(
            config={
                "temp_directory": folder,
                "autoinstall_known_extensions": False,
                # DuckDB 2.0.0 stops a write that is interrupted, or for which the disk has no room, with a lock held
                # that its asynchronous writer waits for: often, neither goes on. Without that writer none is slower.
                "async_threads": 0,
            }
        )
        try:
            # In a notebook without ipywidgets DuckDB refuses to be told, and shows no bar either.
            with contextlib.suppress(duckdb.InvalidInputException):
                connection.execute("SET enable_progress_bar = false")
            # What the code names is what is meant, never a Python variable of the same name.
            connection.execute("SET python_enable_replacements = false")
            yield connection
        except RuntimeError as error:
            # What DuckDB makes of Ctrl-C.
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from error
            raise
        finally:
            connection.close()


@contextmanager
def explaining(files: Sequence[str]) -> Iterator[None]:
    """Turns DuckDB's errors while these files are read into a `DataError` for the person whose files they are."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise _explained(str(error), files) from error


def _explained(text: str, files: Sequence[str]) -> DataError:
    named = [file for file in files if file in text]
    file = max(named, key=len) if named else files[0] if len(files) == 1 else None
    where = file or some(files)
    line = re.search(r"(?:CSV Error on Line: |in line |at line )(\d+)", text)
    row = int(line[1]) if line else None
    for pattern, message in _EXPLANATIONS:
        found = re.search(pattern, text, re.IGNORECASE)
        if found and message is _NO_OBJECT:
            # DuckDB names the line where it noticed, and does not count blank ones.
            number = broken_json_line(file) if file else None
            at = "" if number is None else f", line {number:,}"
            return DataError(f"{where}{at}: {message}", file=file, row=number)
        if found and message is _CHANGING and file and (odd := odd_line_end(file)):
            return DataError(
                f"{where}, line {odd[0]:,}: {odd[1]}. Save it again with one program.", file=file, row=odd[0]
            )
        if found:
            at = f", line {line[1]}" if line else ""
            return DataError(f"{where}{at}: " + message.format(*found.groups()), file=file, row=row)
    where += f", line {line[1]}" if line else ""
    first_line = text.split("\n", 1)[0]
    return DataError(f"{where}: {first_line.split(': ', 1)[-1].strip()}", file=file, row=row)


def some(files: Sequence[str]) -> str:
    """The first files of several, for a message."""
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return ", ".join(files[:3]) + more


def literal(text: str) -> str:
    """A string as an SQL literal."""
    if "\0" in text:
        raise DataError(f"A null character cannot be part of a name or value: {text!r}.")
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A column name as an SQL identifier."""
    if "\0" in name:
        raise DataError(f"A null character cannot be part of a name: {name!r}.")
    return '"' + name.replace('"', '""') + '"'


def file_list(files: Sequence[str]) -> str:
    """File names as an SQL list, with nothing in them read as a pattern."""
    escaped = (re.sub(r"([\[*?])", r"[\1]", file) for file in files)
    return "[" + ", ".join(literal(file) for file in escaped) + "]"
