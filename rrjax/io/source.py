"""Which files to read, and how."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import glob, has_magic
from typing import Literal, TypeAlias

from rrjax.data.errors import DataError, option
from rrjax.io.database import connect, explaining
from rrjax.io.domain import BLANKS
from rrjax.io.metadata import Metadata, metadata_of
from rrjax.io.plaintext import GZIP_MAGIC, START, check_encoding

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


@dataclass(frozen=True)
class _Listing:
    """What paths turned out to be, looked up once."""

    paths: tuple[str, ...]

    @cached_property
    def files(self) -> tuple[str, ...]:
        found: dict[str, str] = {}
        # Each file, and the path or pattern that named it.
        for path in self.paths:
            for file in _matching(path):
                if file in found:
                    by = f" (by {found[file]!r} and {path!r})" if path != file or found[file] != file else ""
                    raise DataError(f"{file} is named twice{by}: its rows would count twice. Name it once.", file=file)
                found[file] = path
        known: dict[tuple[int, int], str] = {}
        for file in found:
            first = known.setdefault(_identity(file), file)
            if first is not file:
                raise DataError(
                    f"{first} and {file} are the same file under two names: its rows would count twice. Give one of "
                    "them.",
                    file=file,
                )
        files = list(found)
        return tuple(files)

    @cached_property
    def metadata(self) -> Metadata | None:
        with connect() as connection, explaining(self.files):
            return metadata_of(connection, self.files)


@dataclass(frozen=True)
class Source:
    """Files of reports, values or counts, and how to read them.

    What is found on disk is remembered, by what `dataclasses.replace` makes of a source too: files that came or changed
    since take a new one.

    Blanks around a value (spaces, tabs, line ends) are no part of it, in any format, quoted or not: " yes" in a Parquet
    file, in quotes in a CSV, and after a comma and a space all are "yes".

    Attributes:
        paths: One file name or several; each may be a glob such as `"reports/*.parquet"`.
        format: "csv", "tsv", "parquet", "jsonl" or "transactions" (a session a line, its items separated by spaces, as
            in Kosarak's .dat); None takes it from the file names, which may end in .gz as well (all but Parquet).
        column: Name of the column; in a file without header its number, from "1". None takes the only column there is.
        header: Whether the first line of CSV and TSV names the columns. None expects a header and refuses a first line
            that looks like data.
        delimiter: Separator of CSV, TSV and transaction files, one character; None is the format's own.
        items: Of a transaction, its "first" item or "all" of them.
        missing: Values that stand for a missing answer, such as `("?",)`; empty cells and nulls always do.
        show_values: Whether errors repeat values of the column. Logs keep messages, so by default they do for reports
            (`count_reports`, `read_counts`, `count_pairs`), which are randomized, and not for what is about to be
            (`read_values`, `read_pairs`) nor for covariates: these errors name the row and the column alone.

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
    # A field, so that `dataclasses.replace` hands it on.
    _listing: _Listing = field(default=_Listing(()), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Brings the paths into one shape and refuses what no file can satisfy."""
        paths = (self.paths,) if isinstance(self.paths, str | os.PathLike) else self.paths
        listing = _Listing(tuple(os.fspath(path) for path in paths))
        object.__setattr__(self, "paths", listing.paths)
        if self._listing != listing:
            object.__setattr__(self, "_listing", listing)
        missing = (self.missing,) if isinstance(self.missing, str) else self.missing
        object.__setattr__(self, "missing", tuple(token.strip(BLANKS) for token in missing))
        if not self.paths:
            raise DataError("No file was given.", argument="paths")
        if self.format is not None and self.format not in _FORMATS:
            raise DataError(
                f"Format {self.format!r} is not one of {', '.join(_FORMATS)}.", argument="format", value=self.format
            )
        if self.items not in ("first", "all"):
            raise DataError(f"items must be 'first' or 'all', not {self.items!r}.", argument="items", value=self.items)
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0'
        ):
            raise DataError(
                f"The delimiter must be one character, not {self.delimiter!r}.",
                argument="delimiter",
                value=self.delimiter,
            )

    def confidential(self) -> Source:
        """The same source, whose values no message repeats unless that was asked for."""
        return replace(self, show_values=False) if self.show_values is None else self

    def files(self) -> tuple[str, ...]:
        """The files that are there, globs expanded and sorted.

        Raises:
            DataError: A file is missing, empty or a folder, or a glob matches nothing.
        """
        return self._listing.files

    def metadata(self) -> Metadata | None:
        """What the files say about their collection, None where rrjax wrote none of them or they are not Parquet.

        Raises:
            DataError: Files that cannot be read, damaged metadata, or files that disagree.
        """
        return self._listing.metadata if self.format_of(self.files()) == "parquet" else None

    def format_of(self, files: Sequence[str]) -> Format:
        """The format given, or the one that all file names agree on.

        Raises:
            DataError: A name says nothing, or two names disagree.
        """
        if self.format is not None:
            return self.format
        first = _format_of_name(files[0])
        for file in files:
            if (found := _format_of_name(file)) != first:
                raise DataError(
                    f"{files[0]} is {first} and {file} is {found}: give files of one format at a time.", file=file
                )
        return first


def read_metadata(path: Paths) -> Metadata | None:
    """Reads what Parquet files say about their collection.

    Args:
        path: One file or several, or globs.

    Returns:
        The metadata that all files agree on, None where rrjax wrote none of them.

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
            raise DataError(f"{file}: Parquet inside gzip cannot be read; unpack it with gunzip.", file=file)
    if suffix not in _FORMAT_OF_SUFFIX:
        raise DataError(
            f"{file}: the name does not tell the format. Say which it is ({option('format')}): {', '.join(_FORMATS)}.",
            file=file,
        )
    return _FORMAT_OF_SUFFIX[suffix]


def _matching(path: str) -> list[str]:
    """The file of a path, or the files of a pattern."""
    # A plain file whose name holds [ or * is that file, not a pattern.
    if not has_magic(path) or os.path.lexists(path):
        return [path]
    found = sorted(file for file in glob(path, recursive=True) if os.path.isfile(file))
    if not found:
        raise DataError(f"No file matches {path!r}.", file=path)
    return found


def _identity(file: str) -> tuple[int, int]:
    """Device and number of a file that can be read: what its names, links among them, have in common."""
    _check_file(file)
    status = os.stat(file)
    return status.st_dev, status.st_ino


def _check_file(file: str) -> None:
    if os.path.isdir(file):
        raise DataError(f"{file} is a folder: name its files, for example {file.rstrip('/')}/*.csv", file=file)
    if not os.path.exists(file):
        if file == "-":
            raise DataError(
                "-: standard input cannot be read twice, which counting takes: save it to a file first.", file=file
            )
        raise DataError(f"{file}: there is no such file.", file=file)
    if not os.path.isfile(file):
        raise DataError(
            f"{file} is a pipe or a device, which cannot be read twice: save it to a file first.", file=file
        )
    try:
        with open(file, "rb") as stream:
            start = stream.read(START)
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}.", file=file) from error
    if not start:
        raise DataError(f"{file} is empty (0 bytes).", file=file)
    if start[:2] == GZIP_MAGIC and not file.lower().endswith(".gz"):
        raise DataError(f"{file} is compressed with gzip: give it a name that ends in .gz.", file=file)
    check_encoding(file, start)
