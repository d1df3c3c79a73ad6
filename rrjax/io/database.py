"""DuckDB: a connection, errors in plain words, and SQL expressions over a column called `value`.

Values come in three kinds: "integer" and "number" columns of Parquet, and "text" for the rest, so that a label such as
007 stays a text.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import filterfalse
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from rrjax.data.errors import DataError, check_installed
from rrjax.data.number_text import NUMBER, plain

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

    from rrjax.io.domain import Domain
else:
    Connection = Any  # the type's name must not load DuckDB

_PARQUET = b"PAR1"
Kind = Literal["integer", "number", "text", "nested"]
"""Kind of a column; nested columns have lists, structs or maps, which are not labels."""

# DuckDB casts 12.5 to 13 and takes '1e3', '0x10' and '1_000' for integers, so integers have a pattern here. A BIGINT
# holds every number of 18 digits.
INTEGER_TEXT = r"[+-]?[0-9]{1,18}(\.0*)?"
LARGEST_EXACT_FLOAT = 2**53 - 1
"""Largest integer as a float64 that stands for no other integer: 2⁵³ + 1 is rounded to 2⁵³."""
# A text with an apostrophe gets another one, so that removing one restores every text.
_FORMULA = r"'*[=+\-@\t\r]"
_LARGEST_JSON = 2**26
"""Largest number of characters of a JSON text of several lines that are searched for an error."""
BAD_GZIP = "the gzip data are damaged or cut short. Download or copy the file again."
_NOT_UTF8 = "the text is not UTF-8. Convert it first, for example with: iconv -f latin1 -t utf-8"
_NO_OBJECT = "not valid JSON, or a key is empty. Every line must be one JSON object."
_TWICE = "an object has the key {0!r} more than once. Keep one of them."
_CHANGING = "its structure changes along the way. Save it again with one program."
_EXPLANATIONS = {
    r"GZIP|zlib|decompress": BAD_GZIP,
    r"string encoding": ("a text in it is not UTF-8. Write the column as UTF-8, or as numbers."),
    r"magic bytes|footer|thrift|Parquet file|Snappy|ZSTD": (
        "not a whole Parquet file, it is damaged or cut short. Download or copy it again."
    ),
    r"not utf-?8|invalid unicode|invalid utf|byte sequence": _NOT_UTF8,
    r"Expected Number of Columns: (\d+) Found: 1\b": ("one column where the first line has {0}. Correct the row."),
    r"Expected Number of Columns: (\d+) Found: (\d+)": (
        "{1} columns where the first line has {0}. Correct the row, "
        "or put values that hold the delimiter in double quotes."
    ),
    r"unterminated quote": "a double quote is opened and never closed, or not doubled.",
    r"has duplicate key \"(.*)\"": _TWICE,
    r"Malformed JSON|JSON transform|Expected.*object|non-record JSON": _NO_OBJECT,
    r"invalid state": _CHANGING,
    r"Maximum line size": "the line is longer than 2 MB; is this the right format and delimiter?",
    r"Out of Memory|failed to offload|temp(?:orary)? directory": (
        "not enough memory or temporary disk space. Free some, or point TMPDIR to a larger disk."
    ),
}
"""Patterns of DuckDB's errors, and the messages in their place."""


@contextmanager
def connect() -> Iterator[Connection]:
    """A connection to an in-memory database that spills to a temporary folder."""
    check_installed("files", "Reading or writing a file", "duckdb")
    import duckdb

    # By default an in-memory database would spill into .tmp of the current folder.
    with tempfile.TemporaryDirectory(prefix="rrjax-") as folder:
        connection = duckdb.connect(
            config={
                "temp_directory": folder,
                "autoinstall_known_extensions": False,
                # In DuckDB 2.0.0 a write that is interrupted, or finds the disk full, keeps a lock that the
                # asynchronous writer waits for: often a deadlock. Without that writer no write is slower.
                "async_threads": 0,
            }
        )
        try:
            # In a notebook without ipywidgets DuckDB refuses this setting, and shows no bar either.
            with contextlib.suppress(duckdb.InvalidInputException):
                connection.execute("SET enable_progress_bar = false")
            # A time is the same text, which may be a user's id, on machines of all time zones.
            connection.execute("SET TimeZone = 'UTC'")
            # A name in SQL must not refer to a Python variable.
            connection.execute("SET python_enable_replacements = false")
            yield connection
        except RuntimeError as error:
            # DuckDB turns Ctrl-C into this error.
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from error
            raise
        finally:
            connection.close()


@contextmanager
def explaining(files: Sequence[str]) -> Iterator[None]:
    """Turns errors of DuckDB about these files into a `DataError`."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise _explained(str(error), files) from error


def _explained(text: str, files: Sequence[str]) -> DataError:
    named = [file for file in files if file in text]
    file = max(named, key=len) if named else files[0] if len(files) == 1 else None
    line = re.search(r"(?:CSV Error on Line: |in line |at line )(\d+)", text)
    row = int(line[1]) if line else None
    pattern = next((pattern for pattern in _EXPLANATIONS if re.search(pattern, text, re.IGNORECASE)), None)
    if pattern is None:
        message = text.split("\n", 1)[0].split(": ", 1)[-1].strip()
    else:
        message = _EXPLANATIONS[pattern]
        if message in (_NO_OBJECT, _TWICE):
            # DuckDB's line number is where it noticed the error, without blank lines.
            find = _broken_json_line if message is _NO_OBJECT else _line_of_a_key_twice
            row = find(file) if file else None
        if message is _CHANGING and file and (ends := _odd_line_end(file)):
            row, end, usual = ends
            message = f"it ends with {end!r} where the first line ends with {usual!r}. Save it again with one program."
        else:
            message = message.format(*cast(re.Match, re.search(pattern, text, re.IGNORECASE)).groups())
    where = (file or some(files)) + ("" if row is None else f", line {row:,}")
    return DataError(f"{where}: {message}", file=file, row=row)


def parquet_record(connection: Connection, file: str, key: str) -> str | None:
    """The text of a key in the metadata of a Parquet file, or None."""
    query = f"SELECT value FROM parquet_kv_metadata({file_list([file])}) WHERE key = ?"
    records = connection.execute(query, [key.encode()]).fetchall()
    return records[0][0].decode("utf-8", "replace") if records else None


def some(files: Sequence[str]) -> str:
    """The names of the first of several files, for a message."""
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return ", ".join(files[:3]) + more


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return _quoted(text, "'")


def identifier(name: str) -> str:
    """A column name as an SQL identifier."""
    return _quoted(name, '"')


def _quoted(text: str, quote: str) -> str:
    if "\0" in text:
        raise DataError(f"A null character cannot be part of a name or value: {text!r}.")
    check_unicode(text)
    return quote + text.replace(quote, quote * 2) + quote


def check_unicode(text: str) -> None:
    """Raises `DataError` for a text of bytes that are not UTF-8, as the names of files and words of a shell may be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = text.encode(errors="replace").decode()
        raise DataError(f"{shown!r} is not UTF-8, and so cannot be used as a name or value: rename it.") from None


def file_list(files: Sequence[str]) -> str:
    """File names as an SQL list of literals without patterns."""
    # From a folder called ~ DuckDB would read the file of the home folder.
    own = (os.path.abspath(file) if re.match(r"(\./)*~", file) else file for file in files)
    escaped = (re.sub(r"([\[*?])", r"[\1]", file) for file in own)
    return "[" + ", ".join(literal(file) for file in escaped) + "]"


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as Parquet does, or has its end: DuckDB reads one whose beginning is damaged. `OSError`."""
    with open(path, "rb") as stream:
        if stream.read(4) == _PARQUET:
            return True
        try:
            stream.seek(-8, os.SEEK_END)
        except OSError:  # a pipe, or a short file
            return False
        end, size = stream.read(8), stream.tell()
        return end[4:] == _PARQUET and 12 < int.from_bytes(end[:4], "little") + 12 <= size


def parquet(files: Sequence[str], *options: str) -> str:
    """The rows of Parquet files in SQL.

    By itself DuckDB takes a folder called `answer=3` for a partition: column `answer` is then 3 in all rows of its
    files, whatever they hold.
    """
    return f"read_parquet({', '.join([file_list(files), 'hive_partitioning=false', *options])})"


def opener_of(file: str) -> Callable[..., Any]:
    """The function that opens a file of this name, compressed or not."""
    return gzip.open if file.lower().endswith(".gz") else open


@contextmanager
def opened(file: str) -> Iterator[IO[str]]:
    """An open text file, compressed or not; errors become a `DataError`."""
    try:
        with opener_of(file)(file, "rt", encoding="utf-8-sig", newline="") as stream:
            yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError.at(file, f"{BAD_GZIP}") from error
    except UnicodeDecodeError as error:
        raise DataError.at(file, f"{_NOT_UTF8}") from error
    except OSError as error:
        raise DataError.at(file, f"cannot be read: {error.strerror}.") from error


def _broken_json_line(file: str) -> int | None:
    """The number, from 1, of the first line that is not a JSON object; None if unknown."""
    try:
        with opened(file) as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip() and not _is_object(line):
                    if number > 1 or line.lstrip()[0] not in "[{":
                        return number
                    break
            else:
                return None
        # An array of objects, or objects over several lines.
        with opened(file) as stream:
            return _broken_record(stream.read(_LARGEST_JSON))
    except DataError:
        return None


def _odd_line_end(file: str) -> tuple[int, str, str] | None:
    """The number, from 1, of the first line whose end differs from that of line 1, and both ends; or None."""
    first = None
    try:
        with opened(file) as stream:
            for number, line in enumerate(stream, start=1):
                end = line[len(line.rstrip("\r\n")) :]
                first = first or end
                if end not in (first, ""):
                    return number, end, first
    except DataError:
        pass
    return None


def _is_object(line: str) -> bool:
    try:
        value = json.loads(line)
        return isinstance(value, dict) and "" not in value
    except (ValueError, RecursionError):  # brackets within brackets
        return False


def _line_of_a_key_twice(file: str) -> int | None:
    """The number, from 1, of the first line that is a JSON object with a key more than once; None if unknown."""
    try:
        with opened(file) as stream:
            return next((number for number, line in enumerate(stream, start=1) if _has_a_key_twice(line)), None)
    except DataError:
        return None


def _has_a_key_twice(line: str) -> bool:
    try:
        pairs = json.loads(line, object_pairs_hook=tuple)  # lists are arrays
    except (ValueError, RecursionError):
        return False
    return isinstance(pairs, tuple) and len({key for key, _ in pairs}) < len(pairs)


def _broken_record(text: str) -> int | None:
    """The line of the first JSON error in a text of objects or of one array of them."""
    decoder, blanks, place = json.JSONDecoder(), re.compile(r"\s*"), 0
    while (place := cast(re.Match, blanks.match(text, place)).end()) < len(text):
        try:
            _, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            return None if len(text) == _LARGEST_JSON else error.lineno
        except RecursionError:
            return None
    return None


def integer_of(label: str | int) -> int | None:
    """The integer of a label, as `integer` in SQL, or None."""
    if isinstance(label, int):
        return label
    return int(label.partition(".")[0]) if re.fullmatch(INTEGER_TEXT, label) else None


def text(kind: Kind, value: str = "value") -> str:
    """The value as the text of a label: of whole numbers without `.0`, of 0.10 and .1 it is 0.1."""
    if kind == "text":
        return value
    as_text = f"CAST({value} AS VARCHAR)"
    if kind != "number":
        return as_text
    of_decimal = f"CASE WHEN typeof({value}) LIKE 'DECIMAL%' THEN {float_text(as_text)} ELSE {as_text} END"
    return f"coalesce(CAST({_whole(value)} AS VARCHAR), {of_decimal})"


_ZEROS = r"^([+-]?[0-9]*)(?:\.0*|(\.[0-9]*[1-9])0+)$"
"""Pattern of numbers with zeros at the end of their decimals."""


def float_text(value: str) -> str:
    """The text of a number as that of floats: 0.1 of 0.10 and .10, 1 of 1.00, and other texts unchanged."""
    with_zero = rf"regexp_replace({value}, '^([+-]?)\.([0-9])', '\10.\2')"
    return rf"regexp_replace({with_zero}, {literal(_ZEROS)}, '\1\2')"


def declare_spelling(connection: Connection) -> None:
    """Gives the connection the function `spelled`, which `user_name` needs."""
    connection.create_function("spelled", _spelled, ["VARCHAR"], "VARCHAR")  # pyright: ignore[reportArgumentType]


_WHOLE = r"^(-?(?:0|[1-9][0-9]*))\.0*$"
"""Pattern of a whole number with decimals that are zero."""


_HYPHENS = dict.fromkeys(map(ord, "‐‑‒–−"), "-")  # noqa: RUF001 - they look alike, which is why
"""What stands for a hyphen or a minus."""
_ROUNDED = r"\s*'?[+-]?([0-9]+([.,][0-9]*)?[eE][+]|[1-9][.,][0-9]+[eE])[0-9]{1,3}\s*"
"""Pattern of a large number as spreadsheets and floats show it."""
_LONG = r"\s*'?[+-]?([0-9]{16,})[.,]0*\s*"
"""Pattern of a whole number with decimals that may be too large for a float."""


def _spelled(name: str) -> str:
    """A text in one of its Unicode forms (NFKC), without invisible characters, and without blanks around it.

    Digits of all scripts, and hyphens of all kinds, are those of ASCII.
    """
    # Characters that are not printable are blanks other than " ", controls and what is invisible.
    if not (name.isprintable() and unicodedata.is_normalized("NFKC", name)):
        name = unicodedata.normalize("NFKC", "".join(filterfalse(_is_invisible, name)))
    if not name.isascii():
        name = re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), name.translate(_HYPHENS))
    return name.strip()


def _is_invisible(character: str) -> bool:
    """Of marks for a program, such as a soft hyphen, and of controls that are no blanks, as zero bytes."""
    return unicodedata.category(character) in ("Cf", "Cc") and not character.isspace()


def spelling(label: str) -> str:
    """What labels that look the same have in common: a form of Unicode, without blanks; and 1.0 is 1.

    pandas writes whole numbers as 1.0 where one of them is missing, which may be so in one of several files.
    """
    return re.sub(_WHOLE, r"\1", _spelled(label))


def user_name(kind: Kind, value: str = "value") -> str:
    """The text of a user's id, NULL without one: 3 in a CSV, "3.0" in another one, and 3.0 in Parquet are one user.

    So are texts that look the same, by `declare_spelling`.
    """
    name = text(kind, value)
    if kind == "text":  # of ASCII texts without blanks around them the spelling is known, without a call of Python
        name = f"CASE WHEN regexp_full_match({name}, '[!-~]([ -~]*[!-~])?') THEN {name} ELSE spelled({name}) END"
    name = rf"nullif(regexp_replace({name}, {literal(_WHOLE)}, '\1'), '')"
    return f"CASE WHEN NOT {is_missing(kind, value)} THEN {name} END"


def is_rounded(kind: Kind, value: str = "value") -> str:
    """Whether a number may stand for several integers: a large float, or a text with fewer digits, as 1.23457E+12."""
    if kind == "number":
        exact = f"WHEN 'DOUBLE' THEN abs({value}) > {LARGEST_EXACT_FLOAT} WHEN 'FLOAT' THEN abs({value}) > {2**24 - 1}"
        return f"CASE typeof({value}) {exact} ELSE false END"
    if kind != "text":
        return "false"
    known, power = (f"regexp_extract({value}, '{part}', 1)" for part in (r"[.,]([0-9]*)[eE]", r"[eE]\+?([0-9]+)\s*$"))
    digits = f"TRY_CAST({power} AS INTEGER) > length({known})"
    shown = f"regexp_full_match({value}, {literal(_ROUNDED)}) AND {digits}"
    # As of a float that is written in full.
    whole = f"TRY_CAST(regexp_extract({value}, {literal(_LONG)}, 1) AS DOUBLE)"
    return f"({shown} OR (regexp_full_match({value}, {literal(_LONG)}) AND {whole} > {LARGEST_EXACT_FLOAT}))"


def integer(kind: Kind, value: str = "value") -> str:
    """The value as a BIGINT, NULL if it is not an integer."""
    if kind == "integer":
        return f"TRY_CAST({value} AS BIGINT)"
    if kind == "number":
        return _whole(value)
    # Most texts are plain integers, for which the first branch is four times faster.
    return (
        f"CASE WHEN CAST(TRY_CAST({value} AS BIGINT) AS VARCHAR) = {value} "
        f"THEN TRY_CAST({value} AS BIGINT) "
        f"WHEN regexp_full_match({value}, {literal(INTEGER_TEXT)}) "
        f"THEN TRY_CAST(split_part({value}, '.', 1) AS BIGINT) END"
    )


def _whole(value: str) -> str:
    # NaN equals its own trunc in DuckDB. It is larger than every number, too, but the statistics of Parquet, which do
    # not include it, may answer the comparison; and a CAST of NaN is an error.
    # A DECIMAL with many digits after the point has no room for an integer to compare with.
    is_whole = f"{value} = trunc({value}) AND abs({value}) <= {LARGEST_EXACT_FLOAT}::DOUBLE"
    return f"CASE WHEN {is_whole} THEN TRY_CAST({value} AS BIGINT) END"


def double(kind: Kind) -> str:
    """`value` as a DOUBLE; NULL for a text that is no `NUMBER`."""
    number = f"TRY_CAST({text(kind)} AS DOUBLE)"
    return f"CASE WHEN regexp_full_match(value, {literal(NUMBER)}) THEN {number} END" if kind == "text" else number


PADDED = r"[+-]?0[0-9]+(\.0*)?"
"""Pattern of an integer with leading zeros, as in codes such as 007."""


def is_padded(label: str) -> str:
    """Whether the text of an integer has leading zeros."""
    return f"regexp_full_match({label}, {literal(PADDED)})"


def safe_cell(text: str) -> str:
    """A text as a cell that no spreadsheet runs as a formula: with an apostrophe in front."""
    formula = len(text) > 1 and re.match(_FORMULA, text) and not re.fullmatch(NUMBER, text)
    return f"'{text}" if formula else text


def as_written(value: str) -> str:
    """The text of a cell without the apostrophe of `safe_cell`."""
    return f"regexp_replace({value}, '^''(''*[=+@\\t\\r-])', '\\1')"


def is_integer_label(label: str) -> str:
    """Whether the text of a label is an integer in plain digits."""
    return f"regexp_full_match({label}, '-?[0-9]{{1,18}}')"


NAN = ("nan", "-nan")
"""The texts of NaN, of which the result of 0/0 has a sign."""


def is_missing(kind: Kind, value: str = "value") -> str:
    """Whether the value means a missing answer by itself; never NULL."""
    # Data frames write a missing number as NaN. The statistics of Parquet leave it out, and by them DuckDB says that no
    # number is NaN, but not that none has its text.
    listed = ", ".join(literal(token) for token in ("", *(NAN if kind == "number" else ())))
    return f"({value} IS NULL OR CAST({value} AS VARCHAR) IN ({listed}))"


def position(kind: Kind, domain: Domain, value: str = "value") -> str:
    """The value's 0-based category number, NULL if it is not in the domain.

    For listed labels the connection must have the type `category` (`read.declare_category`); of numbers 0.10 is 0.1.
    """
    if not domain.is_range:
        return f"CAST(enum_code(TRY_CAST({text(kind, value)} AS category)) AS BIGINT)"
    first, last = domain.ends
    number = integer(kind, value)
    return f"CASE WHEN {number} BETWEEN {first} AND {last} THEN {number} - ({first}) END"


def has_no_answer(kind: Kind, tokens: Sequence[str], *, numbers: bool = False) -> str:
    """Whether `value` means a missing answer, by itself or by `is_named`; never NULL."""
    named = f" OR {is_named(kind, tokens, numbers=numbers)}" if tokens else ""
    return f"({is_missing(kind)}{named})"


def is_named(kind: Kind, tokens: Sequence[str], *, numbers: bool = False) -> str:
    """Whether `value` is one of the tokens: as a number where numbers are read, so that 99 is 99.0, else as text."""
    named = f"{text(kind)} IN ({', '.join(map(literal, tokens))})"
    given = [f"{number!r}::DOUBLE" for token in tokens if (number := number_of(token)) is not None]
    if given and (kind in ("integer", "number") or (kind == "text" and numbers)):
        named += f" OR coalesce({double(kind)} IN ({', '.join(given)}), false)"
    return f"({named})"


def number_of(token: str) -> float | None:
    """The number that a text names ("99.0"); None for other texts, and for numbers that floats do not tell apart."""
    try:
        number = float(plain(token))
    except ValueError:
        return None
    return number if abs(number) <= LARGEST_EXACT_FLOAT else None
