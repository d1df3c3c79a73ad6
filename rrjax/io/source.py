"""Which files to read, and how."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from typing import Literal

from rrjax.io.errors import DataError

__all__ = ["FORMATS", "Source"]

Format = Literal["csv", "tsv", "parquet", "jsonl", "transactions"]
FORMATS: tuple[Format, ...] = ("csv", "tsv", "parquet", "jsonl", "transactions")

_FORMAT_OF_SUFFIX: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".dat": "transactions",
}
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """Files of reports, values or counts, and how to read them.

    Attributes:
        paths: one file name or several; each may be a glob such as `"reports/*.parquet"`.
        format: "csv", "tsv", "parquet", "jsonl" or "transactions" (a session a line, its items
            separated by spaces, as in Kosarak's .dat); None takes it from the file names, which
            may end in .gz as well (all but Parquet).
        column: name of the column; in a file without header its number, from "1". None takes the
            only column there is.
        header: whether the first line of CSV and TSV names the columns. None expects a header and
            refuses a first line that looks like data.
        delimiter: separator of CSV, TSV and transaction files, one character; None is the
            format's own.
        items: of a transaction, its "first" item or "all" of them.
        missing: values that stand for a missing answer, such as `("?",)`; empty cells and nulls
            always do.

    Example:
        >>> Source("survey.csv", column="age", missing=("?",)).column
        'age'
    """

    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    format: Format | None = None
    column: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    items: Literal["first", "all"] = "first"
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Bring the paths into one shape and refuse what no file can satisfy."""
        object.__setattr__(self, "paths", _as_tuple(self.paths))
        missing = (self.missing,) if isinstance(self.missing, str) else self.missing
        object.__setattr__(self, "missing", tuple(missing))
        if not self.paths:
            raise DataError("No file was given.")
        if self.format is not None and self.format not in FORMATS:
            raise DataError(f"Format {self.format!r} is not one of {', '.join(FORMATS)}.")
        if self.items not in ("first", "all"):
            raise DataError(f"items must be 'first' or 'all', not {self.items!r}.")
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0'
        ):
            raise DataError(f"The delimiter must be one character, not {self.delimiter!r}.")

    def files(self) -> tuple[str, ...]:
        """The files that are there, globs expanded and sorted.

        Raises:
            DataError: a file is missing, empty or a folder, or a glob matches nothing.
        """
        files: list[str] = []
        for path in _as_tuple(self.paths):
            # A plain file whose name holds [ or * is that file, not a pattern.
            if has_magic(path) and not os.path.lexists(path):
                found = sorted(file for file in glob(path, recursive=True) if os.path.isfile(file))
                if not found:
                    raise DataError(f"No file matches {path!r}.")
                files += found
            else:
                files.append(path)
        # Two patterns that overlap must not count a file twice.
        files = list(dict.fromkeys(files))
        for file in files:
            _check_file(file)
        return tuple(files)

    def format_of(self, files: Sequence[str]) -> Format:
        """The format given, or the one that all file names agree on.

        Raises:
            DataError: a name says nothing, or two names disagree.
        """
        if self.format is not None:
            return self.format
        formats: dict[str, Format] = {file: _format_of_name(file) for file in files}
        first = files[0]
        for file, found in formats.items():
            if found != formats[first]:
                raise DataError(
                    f"{first} is {formats[first]} and {file} is {found}: give files of one format at a time."
                )
        return formats[first]


def _as_tuple(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[str, ...]:
    if isinstance(paths, str | os.PathLike):
        paths = (paths,)
    return tuple(os.fspath(path) for path in paths)


def _format_of_name(file: str) -> Format:
    root, suffix = os.path.splitext(file.lower())
    if suffix == ".gz":
        suffix = os.path.splitext(root)[1]
        if suffix == ".parquet":
            raise DataError(f"{file}: Parquet inside gzip cannot be read; unpack it with gunzip.")
    if suffix not in _FORMAT_OF_SUFFIX:
        raise DataError(
            f"{file}: the name does not tell the format. Say which it is (format=, --format): {', '.join(FORMATS)}."
        )
    return _FORMAT_OF_SUFFIX[suffix]


def _check_file(file: str) -> None:
    if os.path.isdir(file):
        raise DataError(f"{file} is a folder: name its files, for example {file.rstrip('/')}/*.csv")
    if not os.path.exists(file):
        raise DataError(f"{file}: there is no such file.")
    if not os.path.isfile(file):
        raise DataError(f"{file} is a pipe or a device, which cannot be read twice: save it to a file first.")
    try:
        with open(file, "rb") as stream:
            magic = stream.read(2)
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}.") from error
    if not magic:
        raise DataError(f"{file} is empty (0 bytes).")
    if magic == _GZIP_MAGIC and not file.lower().endswith(".gz"):
        raise DataError(f"{file} is compressed with gzip: give it a name that ends in .gz.")
