"""Writing of reports and tables, as whole files or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from rrjax.data.errors import Contradiction, DataError, check_installed
from rrjax.io.database import (
    Connection,
    connect,
    explaining,
    identifier,
    is_parquet,
    literal,
    parquet_record,
    safe_cell,
)
from rrjax.io.domain import Domain
from rrjax.io.metadata import KEY, MEMO_KEY, TALLY_KEY, Metadata, columns_from_json, columns_to_json
from rrjax.io.scan import selected
from rrjax.io.source import Source, identity
from rrjax.mechanisms.table import TABLE, Coding
from rrjax.privacy.clients.locking import NOTE, sync_folder

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

CODINGS: dict[str, Coding] = {name: entry.coding for name, entry in TABLE.items() if entry.coding is not None}
"""Mechanism name → coding."""

_DTYPES: dict[Coding, type] = {"labels": np.int32, "numbers": np.int32, "bits": np.uint8, "hashes": np.uint32}
"""Type of the array that `coded` returns."""
_FORMATS = {
    ".csv": "FORMAT csv, HEADER true, DELIMITER ','",
    ".tsv": "FORMAT csv, HEADER true, DELIMITER E'\\t'",
    ".jsonl": "FORMAT json",
    ".ndjson": "FORMAT json",
    ".parquet": "FORMAT parquet, COMPRESSION zstd",
}
_PACKAGES = {".xlsx": "xlsxwriter", ".tex": "tabulate"}
"""What the other formats need."""
_SHEET = 1_048_576, 32_767
"""Largest numbers of rows of a sheet of Excel, and of characters in a cell."""
ROUND = "round"
"""Name of the column of rounds in a file of a longitudinal protocol."""
# `replacing` already makes a temporary file; one of DuckDB would remain after a failure.
_IN_PLACE = "USE_TMP_FILE false"
Commit: TypeAlias = Callable[[Path, Path], None]
"""What is done between the writing of a temporary file, the first argument, and its move to the second."""
REPORTS = ("reports", "simulated")
"""Kinds of files that new reports replace."""
STALE_AFTER_SECONDS = 86_400.0
"""Age from which on an unfinished file is not being written any more: its process was killed."""
_ASIDE = re.compile(r"\.rrjax-[0-9a-f]{16}(\..*)?")
_AGAIN = "which cannot be made again without spending ε again"
_KEPT = {
    "lock": "is the lock of a memo, which shows whether a memo is the one that was written last",
    "memo": "is a memo of permanent answers, which cannot be drawn again without spending ε∞ again",
    "reports": f"holds randomized reports, {_AGAIN}: of values that are randomized twice, the two ε add up",
    "simulated": "holds simulated reports",
    "tally": f"holds a tally of reports, {_AGAIN}",
    "unreadable": "is a Parquet file that cannot be read, and may hold reports or a memo",
}
"""What is said of files that results do not replace, by their kind."""
DAMAGED_MEMO = (
    "is damaged: it does not hold what was written. Bring back a whole copy of it: answers that are lost would be "
    "drawn again, which spends ε∞ again"
)
_INPUTS: ContextVar[Mapping[tuple[int, int], str]] = ContextVar("inputs", default=MappingProxyType({}))
_NEW: ContextVar[frozenset[Path]] = ContextVar("new", default=frozenset())
_TELL: ContextVar[Commit | None] = ContextVar("tell", default=None)


@contextmanager
def creating(path: str | PathLike[str]) -> Iterator[None]:
    """A context in which this file is written only where there is none, be it from another process meanwhile."""
    token = _NEW.set(_NEW.get() | {Path(os.path.realpath(path))})
    try:
        yield
    finally:
        _NEW.reset(token)


@contextmanager
def protecting(inputs: Mapping[str, str]) -> Iterator[None]:
    """A context in which no file is written over one of these, under whatever name; and what is said of each."""
    known = dict(_INPUTS.get())
    for file, said in inputs.items():
        with contextlib.suppress(OSError):  # it is not there any more, or cannot be read either
            known[identity(file)] = said
    token = _INPUTS.set(known)
    try:
        yield
    finally:
        _INPUTS.reset(token)


@contextmanager
def telling(tell: Commit) -> Iterator[None]:
    """A context in which `tell` has each complete temporary file, and the path to which it will be moved."""
    token = _TELL.set(tell)
    try:
        yield
    finally:
        _TELL.reset(token)


def kind_of(path: str | PathLike[str]) -> str | None:
    """What a file holds that results must not replace, one of `_KEPT`; None for other files, and without a file."""
    try:
        with open(path, "rb") as stream:
            start = stream.read(64)
    except FileNotFoundError:
        return None
    if b'"rrjax memo ' in start:  # of a single user, as JSON
        return "memo"
    if start.startswith(NOTE):
        return "lock"
    if not is_parquet(path):
        return None
    file = os.fspath(path)
    try:
        with connect() as connection, explaining([file]):
            kinds = {MEMO_KEY: "memo", TALLY_KEY: "tally"}
            kind = next((kind for key, kind in kinds.items() if parquet_record(connection, file, key)), None)
            text = parquet_record(connection, file, KEY)
    except DataError:
        return "unreadable"
    if text is None:
        return kind
    try:
        simulated = all(metadata.simulated for metadata in columns_from_json(text).values())
    except DataError:  # damaged metadata
        simulated = False
    return "simulated" if simulated else "reports"


@contextmanager
def replacing(path: str | PathLike[str], *, over: Collection[str] = (), commit: Commit | None = None) -> Iterator[Path]:
    """A temporary file next to the path, which is moved to the path when it is complete and on disk.

    `over` is that of `check_writable`, which is asked again before `commit` and the move, while no other process that
    is `creating` a file in the folder can do so. After an error the temporary file is removed, unless `commit` has
    returned.

    Raises:
        Contradiction: As `check_writable`.
        DataError: The file cannot be written, with the reason and advice. Other errors of the body are unchanged.
    """
    place = check_writable(path, over=over)
    # Named before it is created, so that no file remains after an interrupt at any time.
    aside = place.parent / f".rrjax-{secrets.token_hex(8)}{''.join(place.suffixes[-2:])}"
    committed = False
    try:
        replaces = place.exists()
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if replaces else 0o666))
        yield aside
        if replaces:
            shutil.copymode(place, aside)
        with open(aside, "rb+") as stream:
            os.fsync(stream.fileno())
        with _checked_again(path, place, over):
            if commit is not None:
                commit(aside, place)
                committed = True
            if (tell := _TELL.get()) is not None:
                tell(aside, place)
            os.replace(aside, place)
        sync_folder(place.parent)
        if over or _TELL.get() is not None:
            sweep(place.parent)
    except OSError as error:
        raise _failure(path, error) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb"):
            raise _failure(path, error) from error
        raise
    finally:
        if not committed:
            with contextlib.suppress(OSError):  # as of a folder that cannot be written, whose own error says more
                aside.unlink(missing_ok=True)


def sweep(folder: Path, age: float = STALE_AFTER_SECONDS) -> None:
    """Deletes unfinished files of processes that were killed: reports and memos, which are secret, tables and figures.

    `age` is that from which on no process is still writing, in seconds.

    Complete reports stay: they may be those of a round whose memo is to move them, from whatever folder.
    """
    with contextlib.suppress(OSError):  # of a folder that cannot be listed: the file that was asked for is written
        for stray in folder.glob(".rrjax-*"):
            with contextlib.suppress(OSError):  # another process deleted it
                abandoned = time.time() - stray.stat().st_mtime > age
                if _ASIDE.fullmatch(stray.name) and abandoned and kind_of(stray) not in REPORTS:
                    stray.unlink()


@contextmanager
def _checked_again(path: str | PathLike[str], place: Path, over: Collection[str]) -> Iterator[None]:
    """For a file of `creating` a context in which no other process makes it: both ask, one after the other."""
    if place not in _NEW.get():
        yield
        return
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # of file systems without locks of folders: it is checked at least
                held = os.open(place.parent, os.O_RDONLY)
                stack.callback(os.close, held)
                fcntl.flock(held, fcntl.LOCK_EX)
        check_writable(path, over=over)
        yield


@dataclass(frozen=True)
class Kept:
    """Columns that are written with reports, unchanged and unprotected.

    Attributes:
        source: The files of the columns; the reports have the same rows.
        columns: Names of the columns.
        present: Whether each row has a report, booleans; None if all do.

    Example:
        >>> values = read_values("people.parquet")  # doctest: +SKIP
        >>> kept = Kept(Source("people.parquet"), ("age", "region"), values.present)  # doctest: +SKIP
        >>> write_reports("r.parquet", client.randomize(values.indices), metadata, kept=kept)  # doctest: +SKIP
    """

    source: Source
    columns: tuple[str, ...]
    present: np.ndarray | None = None

    def check(self, reported: Sequence[str]) -> None:
        """Raises `DataError` for a column that is missing, named twice, or one of the randomized columns."""
        taken = {name.casefold() for name in reported}
        for name in self.columns:
            if name in reported:
                problem = "was randomized to protect it; beside its reports it would be disclosed."
            elif name.casefold() in taken:
                problem = "cannot be kept: another one has the same name, or differs in capitals alone."
            else:
                taken.add(name.casefold())
                continue
            raise DataError(f"column {name!r} {problem}", column=name, argument="kept")
        with connect() as connection, explaining(self.source.files()):
            selected(connection, self.source, self.columns)


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


def write_reports(
    path: str | PathLike[str],
    reports: np.ndarray,
    metadata: Metadata,
    *,
    kept: Kept | None = None,
    commit: Commit | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Writes reports with the metadata that estimates need.

    Args:
        path: A .parquet file; other formats have no place for ε.
        reports: For randomized response integers `[N]`, 0-based category numbers, which are written as labels; for
            another mechanism the arrays of `coded`.
        metadata: The metadata, an `rrjax.io.metadata.Metadata`; its domain has the written labels.
        kept: Columns to write with them, unchanged and unprotected, an `rrjax.io.write.Kept`.
        commit: Called with the complete temporary file and its destination before the move, which does not happen if it
            raises an error.
        check: Called when all is written, before `commit`; after an error of it no file is left.

    Raises:
        Contradiction: The file is a memo or a tally.
        DataError: Another format, other reports, columns that cannot be kept, or a file that cannot be written.
    """
    check_reports_name(path)
    reports = np.asarray(reports)
    coding = CODINGS.get(metadata.mechanism.name, "labels")
    check_coded(coding, reports, metadata.num_categories)
    column = identifier(metadata.column)
    if kept is not None:
        kept.check((metadata.column, *(metadata.columns or ())))
    with replacing(path, over=REPORTS, commit=commit) as aside, connect() as connection:
        query = query_of(connection, coding, reports, metadata.domain, column)
        if metadata.round is not None:
            query = f"SELECT *, {metadata.round} AS {identifier(ROUND)} FROM ({query})"
        if kept is not None:
            query = _beside(connection, query, len(reports), kept)
        copy(connection, query, aside, KEY, metadata.to_json())
        if check is not None:
            check()


def write_columns(
    path: str | PathLike[str],
    columns: Sequence[tuple[np.ndarray, Metadata]],
    *,
    kept: Kept | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Writes several columns of labels that were randomized apart, a row for each user; the rest as `write_reports`.

    Each column is its reports, `[N]` category numbers or −1 for a missing one, and its metadata.
    """
    check_reports_name(path)
    names = [metadata.column for _, metadata in columns]
    if len({name.casefold() for name in names}) < len(names) or len({len(reports) for reports, _ in columns}) != 1:
        raise DataError(f"columns {', '.join(map(repr, names))} must have different names and one length")
    arrays = {}
    for place, (reports, metadata) in enumerate(columns):
        missing = reports == -1
        check_coded("labels", np.where(missing, 0, reports), metadata.num_categories)
        labels = metadata.domain.labels()[reports]
        arrays[f"c{place}"] = np.ma.masked_array(labels, missing) if metadata.domain.is_range else labels.astype(object)
        if not metadata.domain.is_range:
            arrays[f"c{place}"][missing] = None
    if kept is not None:
        kept.check(names)
    with replacing(path, over=REPORTS) as aside, connect() as connection:
        connection.register("columns", arrays)
        named = ", ".join(f"c{place} AS {identifier(name)}" for place, name in enumerate(names))
        query = f"SELECT {named} FROM columns"
        if kept is not None:
            query = _beside(connection, query, len(columns[0][0]), kept)
        copy(connection, query, aside, KEY, columns_to_json([metadata for _, metadata in columns]))
        if check is not None:
            check()


def copy(connection: Connection, query: str, file: Path, key: str, record: str) -> None:
    """Writes the rows of a query as Parquet, with a record in its metadata."""
    options = f"{_FORMATS['.parquet']}, {_IN_PLACE}, KV_METADATA {{{key}: {literal(record)}}}"
    connection.execute(f"COPY ({query}) TO {literal(str(file))} ({options})")


def _beside(connection: Connection, query: str, number: int, kept: Kept) -> str:
    """The query of reports with the kept columns, row by row."""
    with explaining(kept.source.files()):
        connection.execute("SET preserve_insertion_order = true")
        rows = selected(connection, kept.source, kept.columns)
        num_rows = connection.execute(f"SELECT count(*) FROM ({rows})").fetchall()[0][0]
    if num_rows != (number if kept.present is None else len(kept.present)):
        file = kept.source.files()[0]
        raise DataError(f"{file} was changed while it was randomized: do it again.", file=file)
    names = ", ".join(f"kept.k{place} AS {identifier(name)}" for place, name in enumerate(kept.columns))
    if kept.present is not None:
        connection.register("present", {"present": np.ascontiguousarray(kept.present)})
        rows = f"SELECT * FROM ({rows}) AS r POSITIONAL JOIN present WHERE present"
    return f"SELECT reports.*, {names} FROM ({query}) AS reports POSITIONAL JOIN ({rows}) AS kept"


def write_table(path: str | PathLike[str], columns: Mapping[str, np.ndarray]) -> None:
    """Writes columns of equal length as a table.

    Args:
        path: .csv, .tsv, .jsonl, .ndjson (each also .gz), .parquet or .xlsx, whose numbers have 16 digits. In JSON an
            infinite or undefined number is null, in .xlsx an empty cell.
        columns: Name → array `[N]` of numbers or text. In CSV and TSV a text that a spreadsheet would run as a formula,
            because it begins with =, +, -, @, a tab or a carriage return and is no number, gets an apostrophe in front;
            `read_counts` and `read_domain` remove it.

    Raises:
        DataError: Another format, columns of different lengths, or a file that cannot be written.
        MissingPackage: .xlsx without XlsxWriter.
    """
    name = os.fspath(path).lower()
    suffix = table_suffix(path)
    arrays = {label: np.asarray(array) for label, array in columns.items()}
    lengths = {array.shape for array in arrays.values()}
    if len(lengths) != 1 or len(lengths.pop()) != 1:
        shapes = {label: array.shape for label, array in arrays.items()}
        raise DataError(f"The columns of a table must have one length; they have {shapes}.", argument="columns")
    if suffix == ".xlsx":
        _write_sheet(path, arrays)
        return
    if suffix in (".csv", ".tsv"):
        arrays = {safe_cell(label): _without_formulas(array) for label, array in arrays.items()}
    options = f"{_FORMATS[suffix]}, {_IN_PLACE}"
    if name.endswith(".gz"):
        options += ", COMPRESSION gzip"
    with replacing(path) as aside, connect() as connection:
        # DuckDB reads Python strings, but not those of NumPy, and no strided views. c0, c1 … cannot clash with names.
        connection.register(
            "columns",
            {
                f"c{index}": array.astype(object) if array.dtype.kind in "TU" else np.ascontiguousarray(array)
                for index, array in enumerate(arrays.values())
            },
        )
        # JSON has no infinity and no NaN.
        finite = "CASE WHEN isfinite({0}) THEN {0} END" if suffix in (".jsonl", ".ndjson") else "{0}"
        selected = ", ".join(
            f"{(finite if array.dtype.kind == 'f' else '{0}').format(f'c{index}')} AS {identifier(label)}"
            for index, (label, array) in enumerate(arrays.items())
        )
        connection.execute(f"COPY (SELECT {selected} FROM columns) TO {literal(str(aside))} ({options})")


def _write_sheet(path: str | PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a workbook of Excel with one sheet."""
    workbook = import_module("xlsxwriter").Workbook
    columns = [[name, *array.tolist()] for name, array in arrays.items()]
    if len(columns[0]) > _SHEET[0] or any(isinstance(one, str) and len(one) > _SHEET[1] for c in columns for one in c):
        limits = f"{_SHEET[0]:,} rows, and a cell {_SHEET[1]:,} characters"
        raise DataError.at(os.fspath(path), f"a sheet of Excel has at most {limits}: write .csv or .parquet.")
    written = io.BytesIO()
    with workbook(written, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as book:
        sheet = book.add_worksheet()
        for place, column in enumerate(columns):
            finite = (None if isinstance(one, float) and not np.isfinite(one) else one for one in column)
            sheet.write_column(0, place, finite)
    with replacing(path) as aside:
        aside.write_bytes(written.getvalue())


def _without_formulas(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "TUO":
        return array
    return np.asarray([safe_cell(each) if isinstance(each, str) else each for each in array], object)


def check_reports_name(path: str | PathLike[str]) -> None:
    """Raises `DataError` for a file of reports that is not .parquet."""
    if not os.fspath(path).lower().endswith(".parquet"):
        raise DataError.at(
            os.fspath(path),
            "reports are written as .parquet, because ε, the domain and the mechanism must travel with the data and "
            "other formats have no place for them.",
        )


def table_suffix(path: str | PathLike[str], *, people: bool = False) -> str:
    """The suffix of a table, such as ".csv", or also ".tex" of one for `people`.

    Raises:
        DataError: A format that cannot be written.
        MissingPackage: A format whose package is not installed.
    """
    name = os.fspath(path).lower()
    suffix = os.path.splitext(name.removesuffix(".gz"))[1]
    others = [each for each in _PACKAGES if people or each != ".tex"]
    if suffix not in [*_FORMATS, *others] or (suffix in (".parquet", *others) and name.endswith(".gz")):
        *more, last = [".parquet", *others]
        problem = f"the name must end in .csv, .tsv, .jsonl (or these and .gz), {', '.join(more)} or {last}, to tell "
        problem += "the format."
        raise DataError.at(os.fspath(path), problem)
    if suffix in others:
        check_installed("tables", os.fspath(path), _PACKAGES[suffix])
    return suffix


def check_writable(path: str | PathLike[str], *, over: Collection[str] = ()) -> Path:
    """The path of a file to write, with links resolved; `over` are kinds of files (`kind_of`) that it may replace.

    Raises:
        Contradiction: The file is an input (`protecting`), under whatever name, is of another kind in `_KEPT`,
            or is there although it is to be new (`creating`).
        DataError: No file can be there, or a memo is damaged.
    """
    place = Path(os.path.realpath(path))
    try:
        if place.is_dir():
            raise DataError(f"{path} is a folder: name a file in it.", file=os.fspath(path))
        if place.exists() and not place.is_file():
            raise DataError(f"{path} is no regular file; write to a file.", file=os.fspath(path))
        if not place.parent.is_dir():
            raise DataError(f"{path}: the folder {place.parent} is not there. Make it first.", file=os.fspath(path))
        kind = kind_of(place)
        said = _INPUTS.get().get(identity(place)) if place.exists() else None
    except OSError as error:  # of a file that may be anything, or of its name
        if isinstance(error, PermissionError) and os.path.isfile(place):
            problem = "is a file that you may not read, so that what it holds is not known; write to another file."
            raise DataError(f"{os.fspath(path)} {problem}", file=os.fspath(path)) from error
        raise _failure(path, error) from error
    if said is not None:
        problem = said
    elif place in _NEW.get() and os.path.lexists(place):
        problem = "was written by another process meanwhile, and is not replaced; this command made no reports"
    elif kind is None or kind in over:
        return place
    elif kind == "unreadable" and "memo" in over:  # with another file the answers would be drawn again
        raise DataError(f"{os.fspath(path)} {DAMAGED_MEMO}.", file=os.fspath(path))
    else:
        problem = _KEPT[kind]
    raise Contradiction(f"{os.fspath(path)} {problem}; write to another file.", file=os.fspath(path))


def make_folder(path: str | PathLike[str]) -> None:
    """Creates a folder for results, with its parents; `DataError` if it cannot be created."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise DataError.at(os.fspath(path), f"cannot be made: {error.strerror}") from error


def _failure(path: str | PathLike[str], error: Exception) -> DataError:
    name = os.fspath(path)
    text = str(error).lower()
    number = error.errno if isinstance(error, OSError) else None
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if number in full or any(os.strerror(code).lower() in text for code in full):
        problem = "there is no room left to write it. Free some disk space; no partial file was left"
        return DataError.at(name, f"{problem} behind.")
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DataError.at(name, "no permission to write there. Choose another folder.")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    reason = reason.split("\n", 1)[0]
    return DataError.at(name, f"cannot be written: {reason}. No partial file was left behind.")
