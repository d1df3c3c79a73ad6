"""Reading the labels of a domain from a file."""

import gzip
import zlib

from rrjax.io.database import connect, explaining
from rrjax.io.errors import DataError
from rrjax.io.expressions import text
from rrjax.io.scan import scan
from rrjax.io.source import Source

__all__ = ["read_labels"]

_TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".json")


def read_labels(path: str) -> list[str]:
    """The labels a file lists, in its order.

    Args:
        path: a table with one column, or one called "label"; or any other text, a label a line.

    Returns:
        The labels; that they are different is the domain's own check.

    Raises:
        DataError: no such file, an empty one, or a row without label.
    """
    try:
        (file,) = Source([path]).files()
    except DataError as error:
        raise DataError(
            f"The domain {path!r} is neither a range of integers such as 0:99 nor a file of "
            f"labels that can be read: {error}"
        ) from error
    if file.lower().removesuffix(".gz").endswith(_TABLES):
        return _labels_of_table(file)
    return _labels_of_text(file)


def _labels_of_text(file: str) -> list[str]:
    opener = gzip.open if file.lower().endswith(".gz") else open
    try:
        with opener(file, "rt", encoding="utf-8-sig") as stream:
            labels = [line.strip() for line in stream]
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{file}: cannot be read: {error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: the text is not UTF-8. "
            "Convert it first, for example with: iconv -f latin1 -t utf-8"
        ) from error
    while labels and not labels[-1]:
        labels.pop()
    if "" in labels:
        raise DataError(f"{file}, line {labels.index('') + 1}: a label is empty; remove the line.")
    return labels


def _labels_of_table(file: str) -> list[str]:
    with connect() as connection, explaining([file]):
        try:
            chosen = scan(connection, Source(file, column="label", header=True))
        except DataError:
            chosen = scan(connection, Source(file))
        rows = connection.execute(f"SELECT {text(chosen.kind)} FROM ({chosen.sql})").fetchall()
    for row, (label,) in enumerate(rows, start=1):
        if not label:
            raise DataError(
                f"{file}, column {chosen.column!r}: the label in row {row} is empty; remove it."
            )
    return [label for (label,) in rows]
