"""Counts of reports in a data frame, made by its engine: DuckDB, Polars, pandas, Arrow, or Spark on a cluster.

The engine returns one row for each different report, and never more rows than the mechanism has different reports. So
ten billion rows on a cluster become one vector. DuckDB, which reads files, does not read frames of Spark and Dask, and
is not there on every machine that has frames.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rrjax.data.errors import DataError, check_installed, number, option
from rrjax.data.number_text import NUMBER
from rrjax.io.database import PADDED, integer_of, number_of
from rrjax.io.domain import Domain
from rrjax.io.labels import Labels, as_domain, label_of
from rrjax.io.read import AMBIGUOUS, MAX_TOTAL, CountedReports
from rrjax.io.source import as_texts
from rrjax.io.tallies import tally_of_columns, tally_of_support
from rrjax.io.write import CODINGS
from rrjax.mechanisms.table import TABLE

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw
    from narwhals.stable.v2.typing import IntoFrame

    from rrjax.data.tally import Tally
    from rrjax.mechanisms import SupportMechanism

COUNTABLE = {name: coding for name, coding in CODINGS.items() if not TABLE[name].ordered}
"""Mechanism with a tally → coding."""
_MAX_EXTRA_VALUES = 10_000
"""Largest number of different values beyond 2·K: other spellings, and values outside the domain."""
_MAX_LABELS = 1 << 22
"""Largest number of different values for a domain from data."""


def tally_frame(
    frame: IntoFrame,
    mechanism: SupportMechanism,
    *,
    column: str | Sequence[str] = "report",
    domain: Labels | None = None,
    counts: str | None = None,
) -> Tally:
    """The tally of the reports in a data frame, counted by its engine.

    The form of reports in the frame depends on the mechanism:

    * Randomized response: a column of labels, as for `count_frame`.
    * Hadamard and projective geometry response: a column of numbers from 0 to M − 1, as from `randomize`.
    * Unary encodings and subset selection: a column of lists of the supported categories, or K columns, in the order of
      the categories, of booleans or of 0 and 1. Polars, DuckDB and Spark count lists themselves, and Spark several
      times faster than columns. Lists of pandas and PyArrow are counted one by one in Python, and Dask has no lists.
      For files of packed bits, as from `rrjax randomize`, use `read_tally`.
    * Local hashing: refused. Each report must be hashed with all categories: by `read_tally`, or by `mechanism.tally`
      on each part of the data; tallies of parts add up.

    Args:
        frame: A frame of pandas, Polars (lazy too), PyArrow, PySpark or Dask, a relation of DuckDB, or another one
            that narwhals supports.
        mechanism: Mechanism of the reports.
        column: Name of the column of reports; or the K names of columns of bits.
        domain: The labels of the K categories, if reports name categories: a `Domain`, a list of labels, or a text that
            `read_domain` reads. The tally has their fingerprint. None is the numbers 0 … K − 1, without a fingerprint.
        counts: Name of a column of integers: the number of reports of each row, for labels and numbers.

    Returns:
        `Tally`. Tallies of parts add up.

    Raises:
        DataError: A frame that narwhals does not support, a column that is missing or of another type, missing reports,
            reports of another mechanism, no report at all, a mechanism that is refused, or more reports than the
            default integers of JAX can count (2³¹ − 1, without `JAX_ENABLE_X64=1`).

    Example:
        >>> import polars, rrjax
        >>> from rrjax.io import tally_frame
        >>> frame = polars.DataFrame({"report": [0, 2, 2, 1, 2, 2, 0, 2]})
        >>> tally = tally_frame(frame, rrjax.RandomizedResponse(3, epsilon=2.0))
        >>> tally.support.tolist(), int(tally.num_users)
        ([2, 1, 5], 8)
        >>> rows = frame.lazy().group_by("report").len("n")
        >>> tally_frame(rows, rrjax.RandomizedResponse(3, epsilon=2.0), counts="n").support.tolist()
        [2, 1, 5]
        >>> sets = polars.DataFrame({"report": [[0, 2], [], [2]]})
        >>> tally_frame(sets, rrjax.mechanisms.OptimizedUnaryEncoding(3, epsilon=2.0)).support.tolist()
        [1, 0, 2]
    """
    coding = COUNTABLE.get(getattr(mechanism, "name", ""))
    if coding is None or coding == "hashes":
        raise _uncountable(mechanism, coding)
    size = mechanism.num_categories
    given = as_domain(domain)
    known = given or Domain.range(0, size - 1)
    if known.num_categories != size:
        message = f"The mechanism has {size:,} categories, and the domain has {known.describe()}."
        raise DataError(message, argument="domain")
    opened = lazy(frame)
    if coding == "bits":
        if counts is not None:
            raise DataError(
                f"Reports of {mechanism.name} are counted row by row: leave counts={counts!r} out, and give every "
                "report a row.",
                argument="counts",
            )
        set_size = getattr(mechanism, "subset_size", None)
        if isinstance(column, str):
            support, total = _support_of_lists(opened, column, known, set_size)
        else:
            support, total = _support_of_columns(opened, column, known, set_size)
        return tally_of_support(support, total, mechanism, given)
    if not isinstance(column, str):
        message = f"Reports of {mechanism.name} are in one column, and {len(column):,} were named."
        raise DataError(message, argument="column")
    if coding == "numbers":
        known = Domain.range(0, mechanism.num_columns - 1)  # pyright: ignore[reportAttributeAccessIssue]
    counted = _counted(opened, column, known, counts, ())
    if counted.num_missing:
        raise column_error(
            column,
            f": {number(counted.num_missing, 'report is', 'reports are')} missing. Leave such rows out of the frame, "
            "or count with count_frame, which returns their number.",
        )
    return tally_of_columns(counted.counts, mechanism, given)


def count_frame(
    frame: IntoFrame,
    domain: Labels | None = None,
    *,
    column: str = "report",
    counts: str | None = None,
    missing: Sequence[str] = (),
) -> CountedReports:
    """The counts of a column of reports, or of true values, in a data frame, by its engine.

    The rules are those of `count_reports` for files: a range takes whole numbers in any notation without exponent
    ("12", "12.0", 12.0), listed labels are compared as text, and blanks around a value are removed.

    Args:
        frame: A frame as for `tally_frame`.
        domain: The K categories: a `Domain`, a list of labels, or a text that `read_domain` reads. None takes the
            values in the data (see `CountedReports.domain_from_data`).
        column: Name of the column: of integers, text, categories, booleans, or floats that are whole numbers.
        counts: Name of a column of integers: the number of answers of each row.
        missing: Values that stand for a missing answer, such as `("?",)`; nulls, NaN and empty text always do.

    Returns:
        `CountedReports` with the counts, int64 `[K]`, exact below 2⁵³ reports in all.

    Raises:
        DataError: A frame that narwhals does not support, a column that is missing or of another type, values outside
            the domain, counts that are not whole numbers, or no report at all.

    Example:
        >>> import polars, rrjax
        >>> from rrjax.io import count_frame
        >>> frame = polars.DataFrame({"answer": ["yes", "no", None, "yes"], "people": [30, 50, 9, 20]})
        >>> counted = count_frame(frame, ["no", "yes"], column="answer", counts="people")
        >>> counted.counts.tolist(), counted.num_missing
        ([50, 50], 9)
        >>> [round(t, 2) for t in rrjax.mle_star(counted.counts, 1.0).tolist()]
        [0.5, 0.5]
    """
    return _counted(lazy(frame), column, as_domain(domain), counts, as_texts(missing))


def _uncountable(mechanism, coding) -> DataError:
    if coding == "hashes":
        return DataError(
            f"Reports of {mechanism.name} are not counted in a data frame: each must be hashed with all categories, "
            "which its engine cannot. Write them to Parquet and count the files (read_tally, rrjax estimate); or call "
            "mechanism.tally on each part where it is, and add the tallies up.",
            argument="mechanism",
        )
    name = getattr(mechanism, "name", type(mechanism).__name__)
    known = ", ".join(name for name, kind in COUNTABLE.items() if kind != "hashes")
    return DataError(
        f"Reports of {name!r} have no known form in a data frame; those of these mechanisms have: {known}. Where a "
        "report is one label, count_frame counts them, and mixture_of_counts takes the counts of a channel.",
        argument="mechanism",
    )


def _counted(frame, column: str, domain: Domain | None, counts: str | None, missing: Sequence[str]) -> CountedReports:
    """The counts of a column over a domain, or over its own values."""
    kind = type_of(frame, column)
    check_labels(kind, column)
    most = _MAX_LABELS if domain is None else 2 * domain.num_categories + _MAX_EXTRA_VALUES
    with on_engine(frame, f"Values of type {kind}"):
        values, amounts = amounts_of(frame, column, counts, most)
    tokens = {"", *missing}
    numbers = {number_of(token) for token in tokens} - {None}
    as_numbers = kind.is_numeric() or (domain is not None and domain.is_range)
    absent: Counter[str] = Counter()
    labels: Counter[str | int] = Counter()
    for value, amount in zip(values, amounts, strict=True):
        label = label_of(value)
        if str(label) in tokens or (as_numbers and number_of(str(label)) in numbers):
            absent[str(label)] += amount
        else:
            labels[label] += amount
    both = next((token for token in absent if token and domain is not None and domain.has(token)), None)
    if both is not None:
        raise column_error(column, f": {AMBIGUOUS.format(both, option('missing'))}", argument="missing")
    num_missing = absent.total()
    num_rows = num_missing + labels.total()
    if not labels.total():
        raise column_error(column, f": all {num_rows:,} reports are missing." if num_rows else ": there are no rows.")
    known = domain_of(labels, column) if domain is None else domain
    zeros = known.is_range and {label for label in labels if isinstance(label, str) and re.fullmatch(PADDED, label)}
    padded = sum(labels[label] for label in zeros or ())
    counted = placed(labels, known, column)
    return CountedReports(counted, known, column, num_rows, num_missing, domain is None, None, dict(absent), padded)


def _support_of_lists(frame, column: str, domain: Domain, set_size: int | None) -> tuple[np.ndarray, int]:
    """The support counts and the number of reports, from lists of categories."""
    import narwhals.stable.v2 as nw

    kind = type_of(frame, column)
    if frame.implementation.name in IN_MEMORY and kind in (nw.Object, nw.List, nw.Array):
        return _support_of_rows(rows_of(frame, column), column, domain, set_size)
    if kind == nw.Binary:
        raise column_error(
            column,
            " holds bytes. Packed bits are counted from the Parquet files (read_tally, rrjax estimate); in a data "
            "frame, reports are lists of categories or K columns of bits (column=[…]).",
        )
    inner = kind.inner if isinstance(kind, nw.List | nw.Array) else None
    if inner is None or not (inner.is_integer() or is_text(inner)):
        raise column_error(
            column,
            f" holds {kind}, and such reports are lists of the categories that they support, integers or text, or K "
            "columns of bits (column=[…]).",
        )
    members = nw.col(column)
    if kind == nw.Array:
        members = members.cast(nw.List(inner))
    length = members.list.len()
    aggregates = {
        "rows": nw.len(),
        "missing": members.is_null().cast(nw.Int64).sum(),
        "twice": (members.list.unique().list.len() != length).fill_null(value=False).cast(nw.Int64).sum(),
    }
    if set_size is not None:
        aggregates["odd"] = (length != set_size).fill_null(value=False).cast(nw.Int64).sum()
    with on_engine(frame, "Lists"):
        totals = row_of(frame, **aggregates)
        _check_sets(totals, f"Column {column!r}", set_size)
        exploded = frame.select(report=members).filter(nw.col("report").list.len() > 0).explode("report")
        values, amounts = groups_of(exploded, 2 * domain.num_categories + _MAX_EXTRA_VALUES, column)
    labels: Counter[str | int] = Counter()
    for value, amount in zip(values, amounts["amount"], strict=True):
        labels[label_of(value)] += amount
    return _support_of_members(labels, totals["rows"], column, domain)


def _support_of_rows(rows: list[Any], column: str, domain: Domain, set_size: int | None) -> tuple[np.ndarray, int]:
    """The same, by lists in memory one by one: pandas and PyArrow have no expressions for elements of a list."""
    labels: Counter[str | int] = Counter()
    totals = {"rows": len(rows), "missing": 0, "twice": 0, "odd": 0}
    for place, row in enumerate(rows):
        if row is None:
            totals["missing"] += 1
            continue
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise column_error(
                column,
                f", row {place + 1:,} holds a {type(row).__name__}, and such reports are lists of the categories that "
                "they support, or K columns of bits (column=[…]).",
                row=place + 1,
            )
        members = [label_of(member) for member in row]
        totals["twice"] += len(set(members)) != len(members)
        totals["odd"] += set_size is not None and len(members) != set_size
        labels.update(members)
    _check_sets(totals, f"Column {column!r}", set_size)
    return _support_of_members(labels, len(rows), column, domain)


def _support_of_members(labels: Counter[str | int], rows: int, column: str, domain: Domain) -> tuple[np.ndarray, int]:
    """The number of lists with each category, and of all lists."""
    if "" in labels:
        raise column_error(column, f": in lists {number(labels[''], 'category is', 'categories are')} missing.")
    support = placed(labels, domain, column)
    if int(support.max()) > rows:  # one category in two spellings
        raise column_error(column, ": a report names a category more than once.")
    return support, rows


def _support_of_columns(frame, columns: Sequence[str], domain: Domain, set_size: int | None) -> tuple[np.ndarray, int]:
    """The support counts and the number of reports, from K columns of bits."""
    import narwhals.stable.v2 as nw

    size = domain.num_categories
    if len(columns) != size or len(set(columns)) != size:
        raise DataError(
            f"The mechanism has {size:,} categories, so {size:,} different columns of bits are wanted, in their order; "
            f"{len(columns):,} were named, {len(set(columns)):,} of them different.",
            argument="column",
        )
    bits, aggregates = [], {"rows": nw.len()}
    for place, column in enumerate(columns):
        kind = type_of(frame, column)
        cells = nw.col(column)
        aggregates[f"missing{place}"] = cells.is_null().cast(nw.Int64).sum()
        if kind == nw.Boolean:
            bits.append(cells.fill_null(value=False).cast(nw.Int64))
        elif kind.is_integer():
            bits.append(cells.fill_null(0).cast(nw.Int64))
            aggregates[f"least{place}"], aggregates[f"most{place}"] = bits[-1].min(), bits[-1].max()
        else:
            raise column_error(column, f" holds {kind}, and bits are booleans or integers 0 and 1: cast it.")
        aggregates[f"support{place}"] = bits[-1].sum()
    if set_size is not None:
        aggregates["odd"] = (nw.sum_horizontal(*bits) != set_size).cast(nw.Int64).sum()
    totals = row_of(frame, **aggregates)
    for place, column in enumerate(columns):
        missing, least, most = (totals.get(f"{name}{place}", 0) for name in ("missing", "least", "most"))
        if missing:
            raise column_error(column, f": {number(missing, 'bit is', 'bits are')} missing.")
        if least < 0 or most > 1:
            raise column_error(column, f": bits are 0 and 1, and it holds numbers from {least:,} to {most:,}.")
    _check_sets(totals, "The columns of bits", set_size)
    return np.asarray([totals[f"support{place}"] for place in range(size)], np.int64), totals["rows"]


def _check_sets(totals: dict[str, int], where: str, set_size: int | None) -> None:
    if not totals["rows"]:
        raise DataError(f"{where}: there are no rows.")
    for name, one, many in (
        ("missing", "report is missing: leave its row out", "reports are missing: leave such rows out"),
        ("twice", "report names a category more than once", "reports name a category more than once"),
        ("odd", f"report has other than {set_size} members", f"reports have other than {set_size} members"),
    ):
        if totals.get(name):
            raise DataError(f"{where}: {number(totals[name], one, many)}.")


IN_MEMORY = ("PANDAS", "MODIN", "PYARROW")
"""Engines with values in memory, without expressions for lists."""


def column_error(column: str, problem: str, **attributes: Any) -> DataError:
    """The error whose message is the column and the problem."""
    return DataError(f"Column {column!r}{problem}", column=column, **attributes)


def lazy(frame: Any) -> nw.LazyFrame:
    """A frame of any engine as a lazy frame of narwhals, which must be installed."""
    check_installed("frames", "Counting in a data frame", "narwhals")
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        return nw.from_native(frame).lazy()
    except DuplicateError as error:
        raise DataError(f"Columns of the frame have the same name: rename one. {error}", argument="frame") from error
    except TypeError as error:
        raise DataError(
            "A data frame is wanted (pandas, Polars, PyArrow, DuckDB, PySpark, Dask, …), not a "
            f"{type(frame).__name__}. For arrays there is mechanism.tally, for files read_tally.",
            argument="frame",
        ) from error


def type_of(frame, column):
    """The type of a column of the frame."""
    schema = frame.collect_schema()
    if isinstance(column, str) and column in schema:
        return schema[column]
    names = [str(name) for name in schema]
    if str(column) in names:
        other = next(name for name in schema if str(name) == str(column))
        problem = f"The name of a column must be a text: {column!r} is none, give {other!r}."
        if not isinstance(other, str):
            problem = (
                f"The frame names a column {other!r} ({type(other).__name__}), and a name must be a text: rename it, "
                "such as by frame.columns = frame.columns.astype(str)."
            )
        raise DataError(problem, argument="column")
    similar = get_close_matches(str(column), names, n=1)
    shown = ", ".join(repr(name) for name in names[:20]) + ", …" * (len(names) > 20)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    raise DataError(f"The frame has no column {column!r}{hint} Its columns: {shown}.", argument="column")


@contextmanager
def on_engine(frame, operation: str) -> Iterator[None]:
    """Raises a `DataError` with advice for an operation that the engine does not have."""
    try:
        yield
    except NotImplementedError as error:
        raise DataError(
            f"{operation} cannot be counted by {frame.implementation.name.lower()}. Hand the data over to an engine "
            "that can, such as polars.from_arrow(table) or duckdb.from_arrow(table), or count arrays with "
            "mechanism.tally."
        ) from error


def rows_of(frame, column: str) -> list[Any]:
    """All values of a column of an engine in memory; None for nulls."""
    import narwhals.stable.v2 as nw

    return _without_nulls(frame.select(report=nw.col(column)).collect()["report"])


def row_of(frame, **expressions) -> dict[str, int]:
    """Aggregates of all rows."""
    row = frame.select(**expressions).collect()
    return {name: int(row[name].to_list()[0] or 0) for name in expressions}


def groups_of(frame, most: int, column: str) -> tuple[list[Any], dict[str, list[int]]]:
    """The different values of `report` (None for nulls), with sums of the other columns or numbers of rows."""
    import narwhals.stable.v2 as nw

    sums = [name for name in frame.collect_schema().names() if name != "report"]
    amounts = [nw.col(name).sum() for name in sums] or [nw.len().alias("amount")]
    # Without an order the engine may stop early: only a few of the N values of a wrong column are fetched.
    groups = frame.group_by("report").agg(*amounts).head(most + 1).collect()
    if len(groups) > most:
        example = groups["report"].to_list()[0]
        raise column_error(
            column, f" has more than {most:,} different values, such as {example!r}: is it the column of reports?"
        )
    # Sums of DuckDB are decimals.
    return _without_nulls(groups["report"]), {
        name: [int(n) for n in groups[name].to_list()] for name in sums or ["amount"]
    }


def _without_nulls(series) -> list[Any]:
    """The values, with None for the nulls of the engine; floats of 32 bits as they are written: 0.1."""
    import narwhals.stable.v2 as nw

    categories = getattr(getattr(series.to_native(), "dtype", None), "categories", None)  # of pandas, of any type
    is_short = series.dtype == nw.Float32 or str(getattr(categories, "dtype", "")) in ("float32", "float[pyarrow]")
    values = zip(series.to_list(), series.is_null().to_list(), strict=True)
    return [None if null else float(str(np.float32(value))) if is_short else value for value, null in values]


def _decoded(frame, column: str):
    """A frame of Arrow in which a dictionary, whose chunks may have different ones, is a column of numbers or texts."""
    import narwhals.stable.v2 as nw
    from pyarrow.types import is_decimal, is_floating

    table = frame.collect().to_native()
    kind = table.schema.field(column).type.value_type
    if is_decimal(kind) or is_floating(kind):
        place = table.schema.get_field_index(column)
        return nw.from_native(table.set_column(place, column, table.column(place).cast(kind))).lazy()
    return frame.with_columns(nw.col(column).cast(nw.String))


def amounts_of(frame, column: str, counts: str | None, most: int) -> tuple[list[Any], list[int]]:
    """The different values of a column, and the number of reports of each."""
    import narwhals.stable.v2 as nw

    if frame.implementation.is_pyarrow() and type_of(frame, column) == nw.Categorical:
        frame = _decoded(frame, column)
    if counts is None:
        values, sums = groups_of(frame.select(report=nw.col(column)), most, column)
        return values, sums["amount"]
    kind = type_of(frame, counts)
    if counts == column or not kind.is_integer():
        raise DataError(f"The counts must be integers in a column of their own, and {counts!r} holds {kind}: cast it.")
    # Larger counts are refused anyway, and Arrow casts to floats only exact values.
    given = nw.col(counts).fill_null(0)  # before the cast, because Dask casts no nulls
    amount = given.cast(nw.Int64).clip(-1, MAX_TOTAL)
    refused = (nw.col(counts).is_null() | (given < 0)).cast(nw.Int64)
    # The rough sum shows whether the exact one has wrapped.
    rows = frame.select(report=nw.col(column), amount=amount, rough=amount.cast(nw.Float64), refused=refused)
    values, sums = groups_of(rows, most, column)
    bad = sum(sums["refused"])
    if bad:
        raise DataError(
            f"The counts in {counts!r} must be whole numbers from 0 on: {number(bad, 'one is', 'are')} negative or "
            "missing. Correct them."
        )
    if sum(sums["rough"]) >= MAX_TOTAL:
        message = f"The counts in {counts!r} add up to 2^53 or more; are these really numbers of reports?"
        raise DataError(message, column=counts)
    if values and not any(sums["amount"]):
        raise DataError(f"The counts in {counts!r} are all 0.", column=counts)
    return values, sums["amount"]


def check_labels(kind, column) -> None:
    """Refuses a column whose values are not labels."""
    import narwhals.stable.v2 as nw

    if kind.is_numeric() or kind == nw.Boolean or is_text(kind):
        return
    advice = "cast it to integers or text."
    if kind == nw.Binary:
        advice = "count it from the Parquet files (read_tally, rrjax estimate)."
    elif kind in (nw.List, nw.Array):
        advice = "lists are reports of unary encodings and of subset selection."
    raise column_error(column, f" holds {kind}, and reports that are labels are integers or text: {advice}")


def is_text(kind: Any) -> bool:
    """Whether a type of narwhals is a type of text."""
    import narwhals.stable.v2 as nw

    return kind in (nw.String, nw.Categorical, nw.Enum)


def placed(labels: Counter[str | int], domain: Domain, column: str) -> np.ndarray:
    """Counts over a domain, which must have all labels; different spellings of a label are added up."""
    if domain.is_range:
        first, last = domain.ends
        numbers = ((label, integer_of(label)) for label in labels)
        places = {label: n - first for label, n in numbers if n is not None and first <= n <= last}
    else:
        places = {label: place for place, label in enumerate(domain.listed or ())}
        places |= {label: places[str(label)] for label in labels if isinstance(label, int) and str(label) in places}
    outside = {label: amount for label, amount in labels.items() if label not in places}
    if outside:
        _refuse_outside(outside, domain, column)
    counts = np.zeros(domain.num_categories, np.int64)
    where = np.fromiter((places[label] for label in labels), np.int64, len(labels))
    np.add.at(counts, where, np.fromiter(labels.values(), np.int64, len(labels)))
    return counts


def _refuse_outside(outside: dict[str | int, int], domain: Domain, column: str) -> NoReturn:
    total = sum(outside.values())
    often = sorted(outside, key=lambda label: (-outside[label], str(label)))[:4]
    shown = ", ".join(repr(str(label)[:60]) for label in often)
    raise column_error(
        column,
        f": {number(total, 'report is', 'reports are')} not in the domain {domain.describe()}: "
        f"{shown}{', …' * (len(outside) > 4)}. Give a domain that holds every possible answer (domain=), or correct "
        "the data.",
    )


def domain_of(labels: Counter[str | int], column: str) -> Domain:
    """The different labels as a domain, in numeric order if all are numbers."""
    numeric = all(isinstance(label, int) or re.fullmatch(NUMBER, label) for label in labels)
    names = {str(label): None for label in labels}
    if len(names) < 2:
        raise column_error(
            column,
            f": every report is {next(iter(names))!r}, which does not tell the domain. Give all answers that were "
            "possible (domain=): a range such as 0:99 or a file of labels.",
        )
    return Domain.of(sorted(names, key=lambda label: (Decimal(label), label)) if numeric else sorted(names))
