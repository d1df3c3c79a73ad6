"""Domains from a text: a range, labels, or a file of labels; and labels from values."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from os import PathLike, fspath
from typing import Any, TypeAlias

import numpy as np

from rrjax.data.errors import DataError, option, refusal, reworded
from rrjax.io.database import LARGEST_EXACT_FLOAT, as_written, connect, explaining, opened
from rrjax.io.database import text as text_of
from rrjax.io.domain import BLANKS, Domain
from rrjax.io.scan import scan
from rrjax.io.source import Source, only_file

Labels: TypeAlias = Domain | str | PathLike[str] | Iterable[Any]
"""A domain as an argument: a `Domain`, a text that `read_domain` reads, or the labels in their order."""
MISSING = {"na", "n/a", "nan", "null", "none", "nil", "missing", "?", ".", "-", "–", "<na>", "#n/a"}
"""Labels that often stand for a missing answer, in lower case."""
_RANGE = re.compile(r"\s*([+-]?[0-9]+)\s*:\s*([+-]?[0-9]+)\s*")
_TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".json")


def read_domain(text: str | PathLike[str]) -> Domain:
    """The domain of a text: a range, labels, or a file of labels.

    Args:
        text: `"0:1484705"` (both ends included); labels with commas between them, such as `"yes,no"`, those that hold
            a comma in double quotes; or the path of a file: text with one label per line, or a table (.csv, .tsv,
            .parquet, .jsonl, also .gz) with a column called "label"; the only column of Parquet and JSON lines may
            have any name, that of CSV not, because its first line may be a label.

    Returns:
        The domain, an `rrjax.io.domain.Domain`; labels of a file keep their order.

    Raises:
        DataError: Neither a range, nor labels, nor a file that can be read; blank lines, duplicate labels.

    Example:
        >>> read_domain("0:1484705").num_categories, read_domain("yes,no").describe()
        (1484706, "2 labels ('yes', 'no')")
    """
    if (listed := labels_in(text)) is not None:
        return Domain.of(listed)
    text = fspath(text)
    match = _RANGE.fullmatch(text)
    if match:
        return Domain.range(int(match[1]), int(match[2]))
    source = Source(text)
    try:
        file = only_file(source)
    except DataError as error:
        if os.path.isfile(text):
            raise
        message = (
            f"The domain {text!r} is neither a range of integers such as 0:99, nor labels such as yes,no, nor a file "
            f"of labels that can be read: {error}"
        )
        raise reworded(error, message, argument="domain", value=text) from error
    table = file.lower().removesuffix(".gz").endswith(_TABLES)
    labels = _labels_of_table(source, file) if table else _labels_of_text(file)
    try:
        return replace(Domain.of(labels), sources=(source,))
    except DataError as error:
        raise reworded(error, f"{file}: {error}", file=file) from error


def labels_in(text: str | PathLike[str]) -> list[str] | None:
    """The labels of a text with commas between them; None for the name of a file, and for all other texts."""
    if not isinstance(text, str) or "," not in text or "\n" in text or os.path.lexists(text):
        return None
    if text.lower().removesuffix(".gz").endswith((".txt", *_TABLES)):  # a file that is not there
        return None
    return next(csv.reader([text], skipinitialspace=True))


def as_domain(domain: Labels | None) -> Domain | None:
    """The domain of a `Domain`, of a text for `read_domain`, or of labels in order; None for None."""
    if domain is None or isinstance(domain, Domain):
        return domain
    if isinstance(domain, str | PathLike):
        return read_domain(domain)
    if isinstance(domain, set | frozenset):
        raise DataError("A domain is a list of labels in their order, and a set has none: give a list.")
    if hasattr(domain, "columns"):
        raise DataError("A domain is a list of labels, and this is a data frame: give its column of labels.")
    try:
        labels = [label_of(label) for label in getattr(domain, "categories", domain)]
    except TypeError as error:
        raise DataError(
            f"A domain is a list of labels, a range such as 0:99, or a file of labels, not a {type(domain).__name__}."
        ) from error
    first = labels[0] if labels else None
    if isinstance(first, int) and labels == list(range(first, first + len(labels))):
        return Domain.range(first, first + len(labels) - 1)
    return Domain.of(map(str, labels))


def label_of(value: Any) -> str | int:
    """A value as an integer or the text of a label; whole numbers lose `.0`, missing values become ''."""
    if hasattr(value, "as_py"):
        value = value.as_py()  # a scalar of PyArrow
    elif getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        of_numpy = np.asarray(value)[()]  # a scalar of NumPy, JAX or xarray
        is_short = of_numpy.dtype.kind == "f" and of_numpy.dtype.itemsize < 8  # 0.1, not 0.10000000149011612
        value = float(str(of_numpy)) if is_short else value.item()
    if isinstance(value, str):
        return value.strip(BLANKS)
    if value is None or (value.is_nan() if isinstance(value, Decimal) else value != value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return value
    if not hasattr(value, "__float__"):
        raise DataError(f"{value!r} ({type(value).__name__}) is no label: labels are integers or text. Make it text.")
    if -LARGEST_EXACT_FLOAT <= value <= LARGEST_EXACT_FLOAT and value == int(value):
        return int(value)
    if not isinstance(value, Decimal):
        return str(value)
    plain = f"{value:f}"  # `normalize` would round it to the digits of the context
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def label_text(value: Any) -> str:
    """The text of a label that an argument names: 1.0 is "1", True is "true"; others as they are written."""
    return str(label_of(value) if isinstance(value, str) or hasattr(value, "__float__") else value)


def by_label(numbers: Any, domain: Domain | None = None) -> dict[str, Any] | None:
    """The numbers of a mapping, or of a series of pandas or xarray with labels, by their texts; None for others.

    The numbering from zero is what pandas gives to a series without labels; it is one if it is the domain's labels.
    """
    if isinstance(numbers, Mapping):
        pairs = numbers.items()
    else:
        labels, listed = _labels_of_series(numbers), None if domain is None else domain.listed
        numbering = (getattr(labels, "start", None), getattr(labels, "step", None)) == (0, 1)
        if labels is None or (numbering and (listed is None or {*map(str, labels)} != {*listed})):
            return None
        pairs = zip(labels, numbers.to_numpy().tolist(), strict=True)
    by_name: dict[str, Any] = {}
    for label, number in pairs:
        name = label_text(label)
        if name in by_name:
            raise DataError(f"the label {name!r} has two numbers: give it one.", value=label)
        by_name[name] = number
    return by_name


def _labels_of_series(numbers: Any) -> Any:
    """The labels of a series of pandas, or of an array of xarray with one dimension; None without."""
    if getattr(numbers, "ndim", None) != 1:
        return None
    if hasattr(numbers, "coords"):
        along = {name: each.values for name, each in numbers.coords.items() if each.dims == numbers.dims}
        return along.get(numbers.dims[0], next(iter(along.values()), None))
    index = getattr(numbers, "index", None)
    return index if hasattr(index, "is_unique") else None


def listed_in(flag: str, text: str) -> list[str]:
    """Splits the text of a flag, one short line, at its commas; commas within quotes do not count."""
    try:
        rows = list(csv.reader([text], skipinitialspace=True))
    except csv.Error as error:
        argument = flag.removeprefix("--")
        problem = f"{option(argument)} wants one short line, with commas between: {error}"
        raise refusal(argument, problem, value=text) from error
    return [each.strip() for each in next(iter(rows), [])]


def _labels_of_text(file: str) -> list[str]:
    with opened(file) as stream:
        labels = [line.strip(BLANKS) for line in stream]
    while labels and not labels[-1]:
        labels.pop()
    if "" in labels:
        row = labels.index("") + 1
        raise DataError(f"{file}, line {row}: a label is empty; remove the line.", file=file, row=row)
    return labels


def _labels_of_table(source: Source, file: str) -> list[str]:
    with connect() as connection, explaining([file]):
        try:
            chosen = scan(connection, replace(source, column="label", header=True))
        except DataError:
            try:
                chosen = scan(connection, source)
            except DataError as error:
                # Names of columns are not repeated: without a header they are labels, which may be values.
                why = "it has several, none of that name" if error.argument == "column" else error
                problem = f"a table of labels needs one column, or one that is called 'label' ({why})"
                raise DataError.at(file, problem) from error
            if source.file_format() in ("csv", "tsv"):
                problem = (
                    "is its first line the name of the column, or a label? If it is the name make it 'label'; if it is "
                    "a label give the file a name that ends in .txt."
                )
                raise DataError.at(file, problem, row=1) from None
        label = text_of(chosen.kind)
        label = as_written(label) if source.file_format() in ("csv", "tsv") else label
        labels = [label for (label,) in chosen.query(f"SELECT {label} FROM ({chosen.sql})")]
    row = next((row for row, label in enumerate(labels, start=1) if not label), None)
    if row is not None:
        raise DataError.at(file, f"the label in row {row} is empty; remove it.", column=chosen.column, row=row)
    return labels
