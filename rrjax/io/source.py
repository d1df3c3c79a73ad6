"""Sources: files with their format; unreadable files are refused by name and first bytes."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from glob import glob, has_magic
from typing import Any, Literal, TypeAlias

from rrjax.data.errors import DataError, option
from rrjax.io.database import BAD_GZIP, Connection, connect, explaining, file_list, is_parquet, parquet, parquet_record
from rrjax.io.domain import BLANKS
from rrjax.io.metadata import KEY, Metadata, metadata_of

Format = Literal["csv", "tsv", "parquet", "jsonl", "transactions"]
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_FORMAT_OF_SUFFIX: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".dat": "transactions",
}
_FORMATS = tuple(dict.fromkeys(_FORMAT_OF_SUFFIX.values()))
_GZIP_MAGIC = b"\x1f\x8b"
_ENCODING_OF_ZEROS = {"x0x0": "UTF-16LE", "0x0x": "UTF-16BE", "x000": "UTF-32LE", "000x": "UTF-32BE"}
_SAVE = "which is not read: save it as CSV or Parquet"
_FOREIGN_FORMATS = {
    rb"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it with unzstd",
    rb"\xfd7zXZ\0": "compressed with xz: unpack it with unxz",
    rb"BZh[1-9]1AY&SY": "compressed with bzip2: unpack it with bunzip2",
    rb"\x04\x22\x4d\x18": "compressed with lz4: unpack it with unlz4",
    rb"PK\x03\x04": "a zip archive or a spreadsheet (.xlsx, .ods): unpack it, or save the sheet as CSV",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it",
    rb"\xd0\xcf\x11\xe0": "a document of Excel or Word: save the sheet as CSV",
    rb"SQLite format 3\0": f"an SQLite database, {_SAVE}",
    rb"ARROW1\0": f"an Arrow (Feather) file, {_SAVE}",
    rb"Obj\x01": f"an Avro file, {_SAVE}",
    rb"\x89HDF|CDF[\x01\x02\x05]": f"an HDF5 or NetCDF file, {_SAVE}",
    rb"%PDF-": "a PDF: give the table that it was made from",
}
"""Patterns of the first bytes of a file, the kind of the file, and advice."""
_COMPARED_BYTES = 1 << 16
"""Number of bytes of a text that tell it from nearly all others."""
_SMALL_BYTES = 1 << 22
"""Number of bytes of a text that DuckDB surely reads in one part (of 8 MB)."""
_START_BYTES = 256
"""Number of bytes of a file that are read for its format and encoding."""
_ENCODING_OF_MARK = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def sources_in(*given: Any) -> tuple[Source, ...]:
    """Those arguments that are files."""
    return tuple(each for each in given if isinstance(each, Source))


@dataclass(frozen=True)
class _Listing:
    """Files and metadata of paths, looked up once."""

    paths: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.stamps)

    @property
    def stamps(self) -> dict[str, tuple[int, int, int] | None]:
        """The stamp of each file when it was listed."""
        return self._listed[0]

    @property
    def real_files(self) -> tuple[str, ...]:
        """The files, each with its folder when it was listed, and links resolved."""
        return self._listed[1]

    @cached_property
    def _listed(self):
        names: dict[str, str] = {}  # each file, and the path or pattern that named it
        for path in self.paths:
            for file in _matching(path):
                if file in names:
                    _check_file(file)
                    by = f" (by {names[file]!r} and {path!r})" if path != file or names[file] != file else ""
                    raise DataError(f"{file} is named twice{by}: its rows would count twice. Name it once.", file=file)
                names[file] = path
        known: dict[tuple[int, int], str] = {}
        for file in names:
            _check_file(file)
            first = known.setdefault(identity(file), file)
            if first is not file:
                raise DataError(
                    f"{first} and {file} are the same file under two names: its rows would count twice. Give one of "
                    "them.",
                    file=file,
                )
        for first, file in copies(tuple(names)):
            raise DataError(
                f"{first} and {file} hold the same rows in the same order: those of a copy would count twice. Give one "
                "of them. If different people did answer alike, in the same order, make one file of the two.",
                file=file,
            )
        return {file: stamp_of(file) for file in names}, tuple(map(os.path.realpath, names))

    @cached_property
    def metadata(self) -> dict[str, Metadata]:
        with connect() as connection, explaining(self.files):
            return metadata_of(connection, self.files)


@dataclass(frozen=True)
class Source:
    """Files of reports, values or counts, with their format.

    A source looks up its files once, and `dataclasses.replace` keeps the result. For files added or changed later, make
    a new source.

    Blanks around a value (spaces, tabs, line ends) are removed in every format, quoted or not: " yes" in a Parquet
    file, in quotes in a CSV, and after a comma and a space all become "yes".

    Attributes:
        paths: One file name or several; each may be a glob such as `"reports/*.parquet"`.
        format: "csv", "tsv", "parquet", "jsonl" or "transactions" (one session per line, items separated by spaces, as
            in Kosarak's .dat); None takes it from the file names, which may end in .gz as well (all except Parquet).
        column: Name of the column; in a file without header its number, from "1". None takes the only column.
        header: Whether the first line of CSV and TSV names the columns. None expects a header and refuses a first line
            that looks like data.
        delimiter: Separator of CSV, TSV and transaction files, one character; None is that of the format.
        items: The "first" item of a transaction, or "all" of them.
        missing: Values that mean a missing answer, such as `("?",)`; empty cells and nulls always do. Where numbers
            are read (a range, a number as a covariate, any column of numbers in Parquet) 99 is 99.0.
        show_values: Whether errors repeat values of the column. Logs keep messages. So by default errors repeat
            randomized reports (`count_reports`, `read_counts`), but only row and column of true values (`read_values`)
            and covariates.

    Example:
        >>> Source("survey.csv", column="age", missing=("?",)).column
        'age'
    """

    paths: Paths
    format: Format | None = None
    column: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    items: Literal["first", "all"] = "first"
    missing: tuple[str, ...] = ()
    show_values: bool | None = None
    # A field, so that `dataclasses.replace` passes it on.
    _listing: _Listing = field(default=_Listing(()), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Converts the paths to one form and checks the options."""
        paths = (self.paths,) if isinstance(self.paths, str | os.PathLike) else self.paths
        listing = _Listing(tuple(os.fspath(path) for path in paths))
        object.__setattr__(self, "paths", listing.paths)
        if self._listing != listing:
            object.__setattr__(self, "_listing", listing)
        object.__setattr__(self, "missing", as_texts(self.missing))
        if self.column is not None:
            object.__setattr__(self, "column", str(self.column))
        if not self.paths:
            raise DataError("No file was given.", argument="paths")
        if self.format is not None and self.format not in _FORMATS:
            raise DataError(
                f"Format {self.format!r} is not one of {', '.join(_FORMATS)}.", argument="format", value=self.format
            )
        if not isinstance(self.header, bool | None):  # 0 is the first line for pandas, and "no" is true
            problem = f"header must be true or false, or None, which looks; got {self.header!r}."
            raise DataError(problem, argument="header", value=self.header)
        if self.items not in ("first", "all"):
            raise DataError(f"items must be 'first' or 'all', not {self.items!r}.", argument="items", value=self.items)
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0'
        ):
            problem = f"The delimiter must be one character, not {self.delimiter!r}."
            raise DataError(problem, argument="delimiter", value=self.delimiter)

    def confidential(self) -> Source:
        """The source with `show_values=False`, unless `show_values` was given."""
        return replace(self, show_values=False) if self.show_values is None else self

    def way_of_reading(self) -> dict[str, Any]:
        """What must be equal of files that one source may read together, by its name; not the column."""
        form = self.file_format()
        return {
            "formats": form,
            "missing=": {*self.missing} - {""},
            "header=": self.header is not False,
            "delimiter=": self.delimiter or {"csv": ",", "tsv": "\t"}.get(form),
            "items=": self.items,
        }

    def files(self) -> tuple[str, ...]:
        """The files, with globs expanded and sorted.

        Raises:
            DataError: A file is missing, empty or a folder, or a glob matches nothing.
        """
        return self._listing.files

    @property
    def real_files(self) -> tuple[str, ...]:
        """The files, each with its folder when it was listed, and links resolved."""
        return self._listing.real_files

    def check_unchanged(self) -> None:
        """Raises `DataError` if a file was changed or replaced since it was listed."""
        for file in self.files():
            if stamp_of(file) != self._listing.stamps[file]:
                raise changed(file)

    def metadata(self) -> Metadata | None:
        """The metadata common to all files; None if rrjax wrote none of them or they are not Parquet.

        Of a file with several columns of reports, those of `column`.

        Raises:
            DataError: Files that cannot be read, damaged metadata, files that disagree, or several columns of reports,
                of which `column` is none.
        """
        columns = self.columns()
        if len(columns) < 2:
            return next(iter(columns.values()), None)
        if self.column not in columns:
            file = self.files()[0]
            what = "name one of them with" if self.column is None else f"{self.column!r} is none of them; choose by"
            raise DataError(
                f"{file} holds the reports of several columns, {', '.join(map(repr, columns))}: {what} "
                f"{option('column')}.",
                file=file,
                argument="column",
                value=self.column,
            )
        return columns[self.column]

    def columns(self) -> dict[str, Metadata]:
        """The metadata of each column of reports; empty if rrjax wrote none of the files, or they are not Parquet."""
        return self._listing.metadata if self.file_format() == "parquet" else {}

    def file_format(self) -> Format:
        """The given format, or the one common to all file names.

        Raises:
            DataError: A name without a known format, or names with different formats.
        """
        if self.format is not None:
            return self.format
        files = self.files()
        formats: list[Format] = [_format_of_name(file) for file in files]
        for file, own in zip(files, formats, strict=True):
            if own != formats[0]:
                message = f"{files[0]} is {formats[0]} and {file} is {own}: give files of one format at a time."
                raise DataError(message, file=file)
        return formats[0]


def as_texts(missing: Any) -> tuple[str, ...]:
    """What means a missing answer, one or several, as texts without blanks around them."""
    listed = [missing] if isinstance(missing, str) or not isinstance(missing, Iterable) else missing
    return tuple("" if each is None else str(each).strip(BLANKS) for each in listed)


class FrameRows:
    """The rows of a data frame of any engine, gathered when they are first read."""

    def __init__(self, frame: Any) -> None:
        """The frame is kept, not copied."""
        self.frame = frame

    @cached_property
    def table(self) -> Any:
        """The rows as a table of PyArrow; `DataError` for columns that have no one type."""
        from rrjax.io.frames import lazy

        try:
            table = lazy(self.frame).collect("pyarrow").to_native()
            for place, field in enumerate(table.schema):
                if getattr(field.type, "tz", None) is not None:  # DuckDB writes times in UTC, of another day perhaps
                    from pyarrow.compute import call_function

                    table = table.set_column(place, field.name, call_function("local_timestamp", [table.column(place)]))
            return table
        except (TypeError, ValueError, NotImplementedError) as error:  # as those of Arrow are
            problem = "its rows cannot be read one by one: give each column one type"
            raise DataError(f"the data frame: {problem} ({error})", argument="data") from error


@dataclass(frozen=True)
class FrameSource(Source):
    """A data frame as a source, for what needs single reports; its name in messages is "the data frame".

    Attributes:
        rows: The rows, which `dataclasses.replace` keeps.
    """

    paths: Paths = "the data frame"
    rows: FrameRows = field(default=FrameRows(None), compare=False, repr=False)

    def files(self) -> tuple[str, ...]:
        """The name in messages."""
        return self._listing.paths

    @property
    def real_files(self) -> tuple[str, ...]:
        """None: a frame is no file."""
        return ()

    def check_unchanged(self) -> None:
        """Nothing: a frame has no stamp."""

    def columns(self) -> dict[str, Metadata]:
        """No metadata."""
        return {}

    def file_format(self) -> Any:
        """No format of files."""
        return "frame"


def read_metadata(path: Paths) -> Metadata | None:
    """The metadata common to Parquet files, one, several or globs; None if rrjax wrote none of them.

    Raises:
        DataError: Files that cannot be read, damaged metadata, or files that disagree.
    """
    return Source(path, format="parquet").metadata()


def only_file(source: Source) -> str:
    """The file of a source that must be one file."""
    first, *others = source.files()
    if others:
        raise DataError(f"{first} is one of {len(others) + 1} files, and a single one is wanted.", file=first)
    return first


def _format_of_name(file: str) -> Format:
    root, suffix = os.path.splitext(file.lower())
    if suffix == ".gz":
        suffix = os.path.splitext(root)[1]
        if suffix == ".parquet":
            raise DataError.at(file, "Parquet inside gzip cannot be read; unpack it with gunzip.")
    if suffix not in _FORMAT_OF_SUFFIX:
        raise DataError.at(
            file, f"the name does not tell the format. Say which it is ({option('format')}): {', '.join(_FORMATS)}."
        )
    return _FORMAT_OF_SUFFIX[suffix]


def _matching(path: str) -> list[str]:
    """The file of a path, or the files of a pattern."""
    # The name of an existing file with [ or * is that file, not a pattern.
    if not has_magic(path) or os.path.lexists(path):
        return [path]
    files = sorted(file for file in glob(path, recursive=True) if os.path.isfile(file))
    if not files:
        raise DataError(f"No file matches {path!r}.", file=path)
    return files


def identity(file: str | os.PathLike[str]) -> tuple[int, int]:
    """Device and number of a file, which are common to all its names and links; `OSError` without a file."""
    status = os.stat(file)
    return status.st_dev, status.st_ino


def stamp_of(file: str) -> tuple[int, int, int] | None:
    """Size, time of the last change and number of a file; None if it is not there."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def changed(file: str) -> DataError:
    """The error for data of which one part was read before a change, and another one after it."""
    problem = "it was changed since it was first read, so that its rows may not belong together: read it again."
    return DataError.at(file, problem)


def copies(files: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of a file and a later one with the same rows in the same order.

    Files of text are compared unpacked, without their line ends and byte-order marks, those of Parquet by their cells.
    Most files differ in their number of rows or at their starts, and are read no further. The chance that small
    files are equal is not considered: who reads them twice would not notice it.
    """
    parquet, texts = [], []
    for file in files:
        with contextlib.suppress(OSError):  # it is refused when it is read
            (parquet if is_parquet(file) else texts).append(file)
    groups = _alike(texts, _start_of_text, _whole_text)
    if len(parquet) > 1:
        with connect() as connection:
            cells = partial(_cells, connection)
            groups += _alike(parquet, partial(_shape, connection), partial(cells, where="file_row_number < 64"), cells)
    return [(group[0], other) for group in groups for other in group[1:]]


def _alike(files: Sequence[str], *digests: Callable[[str], Any]) -> list[list[str]]:
    """The groups of several files of which all digests are equal; a later one is made only of those in groups."""
    groups = [list(files)]
    for digest in digests:
        finer: list[dict[Any, list[str]]] = []
        for group in groups:
            if len(group) > 1:
                finer.append({})
                for file in group:
                    finer[-1].setdefault(digest(file), []).append(file)
        groups = [group for parts in finer for group in parts.values() if len(group) > 1]
    return groups


def _start_of_text(file: str) -> bytes:
    # With all line ends of two bytes, this many have as many bytes of text as are compared.
    return b"".join(_text(file, 2 * _COMPARED_BYTES + 8, once=True))[:_COMPARED_BYTES]


def _whole_text(file: str) -> bytes:
    digest = hashlib.sha256()
    for part in _text(file, 1 << 20):
        digest.update(part)
    return digest.digest()


def _text(file: str, size: int, *, once: bool = False) -> Iterator[bytes]:
    """Parts of a text without its byte-order mark and last line ends, lines ending in one byte; the name if damaged."""
    held, mark = b"", b"\xef\xbb\xbf"
    try:
        with gzip.open(file) if _is_gzip(file) else open(file, "rb") as stream:
            while part := stream.read(size):
                text = (held + part.removeprefix(mark)).replace(b"\r\n", b"\n")
                kept, mark = text.rstrip(b"\r\n"), b""
                held = text[len(kept) :]
                yield kept
                if once:
                    return
    except (OSError, EOFError, zlib.error):
        yield os.fsencode(file)


def _is_gzip(file: str) -> bool:
    with open(file, "rb") as stream:
        return stream.read(2) == _GZIP_MAGIC


def _shape(connection: Connection, file: str) -> tuple[Any, ...]:
    """The number of rows, the columns and the record of a Parquet file; its name if it is damaged, or has no rows."""
    import duckdb

    try:
        rows = connection.execute(f"SELECT num_rows FROM parquet_file_metadata({file_list([file])})").fetchall()
        columns = connection.execute(f"SELECT * FROM {parquet([file])} LIMIT 0").description
        record = parquet_record(connection, file, KEY)  # of files that disagree the message is another one
    except duckdb.Error:
        return (file,)
    return (rows[0][0], record, *(name for name, *_ in columns or ())) if rows[0][0] else (file,)


def _cells(connection: Connection, file: str, where: str = "true") -> Any:
    """A digest of the cells of rows of a Parquet file, and of their places, whatever the types; its name if damaged."""
    import duckdb

    read = f"{parquet([file], 'binary_as_string=true', 'file_row_number=true')} AS line WHERE {where}"
    try:
        return connection.execute(f"SELECT bit_xor(hash(CAST(line AS VARCHAR))) FROM {read}").fetchall()[0][0]
    except duckdb.Error:
        return file


def _check_file(file: str) -> None:
    if os.path.isdir(file):
        raise DataError(f"{file} is a folder: name its files, for example {file.rstrip('/')}/*.csv", file=file)
    if not os.path.exists(file):
        if file == "-":
            raise DataError.at(file, "standard input cannot be read twice, as counting does: save it to a file first.")
        raise DataError.at(file, "there is no such file.")
    if not os.path.isfile(file):
        message = f"{file} is a pipe or a device, which cannot be read twice: save it to a file first."
        raise DataError(message, file=file)
    try:
        with open(file, "rb") as stream:
            start = stream.read(_START_BYTES)
    except OSError as error:
        raise DataError.at(file, f"cannot be read: {error.strerror}.") from error
    if not start:
        raise DataError(f"{file} is empty (0 bytes).", file=file)
    if start[:2] != _GZIP_MAGIC and file.lower().endswith(".gz"):
        raise DataError(f"{file} is not compressed, as its name says: rename it without .gz.", file=file)
    if start[:2] == _GZIP_MAGIC:
        if not file.lower().endswith(".gz"):
            raise DataError(f"{file} is compressed with gzip: give it a name that ends in .gz.", file=file)
        if (unpacked := _unpacked(file, stamp_of(file))) is None:
            raise DataError.at(file, f"{BAD_GZIP}")
        start, _ = unpacked
    _check_format(file, start)


@lru_cache(maxsize=1 << 14)
def _unpacked(file: str, _: object) -> tuple[bytes, bool] | None:
    """The first bytes of a gzip file with this stamp, and whether it `is_large`; None if damaged.

    DuckDB does not compare the checksum, so that a changed bit would change values in silence.
    """
    try:
        with gzip.open(file) as stream:
            part = start = stream.read(_START_BYTES)
            size = 0
            while part:
                size += len(part)
                part = stream.read(1 << 20)
    except (OSError, EOFError, zlib.error):
        return None
    return start, size > _SMALL_BYTES


def is_large(file: str) -> bool:
    """Whether a text has more than `_SMALL_BYTES`, unpacked."""
    if file.lower().endswith(".gz"):
        unpacked = _unpacked(file, stamp_of(file))
        return unpacked is not None and unpacked[1]
    return os.path.getsize(file) > _SMALL_BYTES


def _check_format(file: str, start: bytes) -> None:
    """Refuses files of other formats, and text in UTF-16 and UTF-32, by their first bytes."""
    kind = next((kind for mark, kind in _FOREIGN_FORMATS.items() if re.match(mark, start)), None)
    if kind is not None:
        raise DataError(f"{file} is {kind}.", file=file)
    encoding = next((name for mark, name in _ENCODING_OF_MARK.items() if start.startswith(mark)), None)
    if encoding is None:
        # Without a byte-order mark, the zero bytes among Latin letters show the encoding.
        encoding = _ENCODING_OF_ZEROS.get("".join("0" if byte == 0 else "x" for byte in start[:4]))
    if encoding is not None:
        raise DataError.at(
            file,
            f"the text is {encoding}, and must be UTF-8. Save it as UTF-8, or convert it, for example with: "
            f"iconv -f {encoding} -t utf-8",
        )
    if b"\0" in start and not is_parquet(file):
        raise DataError.at(
            file,
            "there are zero bytes in it, so it is UTF-16, UTF-32 or no text at all, and must be UTF-8. "
            "Save it as that, or convert it, for example with: iconv -f utf-16le -t utf-8",
        )
