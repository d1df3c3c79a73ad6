"""Reports, values and ready counts from files, through DuckDB, out of core."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rrjax.io.complaints import no_count, nothing, outside, where
from rrjax.io.database import connect, explaining
from rrjax.io.domain import Domain
from rrjax.io.errors import DataError
from rrjax.io.expressions import integer, is_integer_label, is_missing, position, text
from rrjax.io.labels import read_domain
from rrjax.io.metadata import Metadata, metadata_of
from rrjax.io.scan import Filter, Scan, scan
from rrjax.io.source import Source

if TYPE_CHECKING:
    import duckdb

__all__ = ["CountedReports", "Pairs", "Values", "count_pairs", "count_reports", "read_counts", "read_values"]

# Every total up to here is exact in float64 as well.
MAX_TOTAL = 2**53
MAX_CELLS = 2**26


@dataclass(frozen=True)
class CountedReports:
    """How often each category of a domain was reported.

    Attributes:
        counts: int64 `[K]`, reports per category.
        domain: the K categories.
        column: name of the column that was read.
        num_rows: reports read, those without an answer included: `counts.sum() + num_missing`.
        num_missing: reports without an answer, left out of the counts.
        domain_from_data: whether the domain is only what happened to be in the data. Categories
            that nobody reported are then unknown, which biases every estimate: K is too small.
        metadata: what the Parquet files say about their collection, where rrjax wrote them.
        missing: how many of the missing reports came as which value; "" is an empty cell or null.
    """

    counts: np.ndarray
    domain: Domain
    column: str
    num_rows: int
    num_missing: int
    domain_from_data: bool
    metadata: Metadata | None = None
    missing: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Values:
    """The category number of every row, in the order of the files.

    Attributes:
        indices: int32 `[N]`, 0-based category numbers; rows without an answer are left out.
        domain: the K categories.
        column: name of the column that was read.
        num_missing: rows without an answer.
        domain_from_data: whether the domain is only what happened to be in the data.
    """

    indices: np.ndarray
    domain: Domain
    column: str
    num_missing: int
    domain_from_data: bool


@dataclass(frozen=True)
class Pairs:
    """How often each pair of reports came from one row.

    Attributes:
        counts: int64 `[K, L]`.
        domains: the K categories of the first column and the L of the second.
        columns: their names.
        num_rows: rows read.
        num_missing: rows without an answer in one of the columns, or both; they are left out.
        from_data: which of the domains are only what happened to be in the data.
    """

    counts: np.ndarray
    domains: tuple[Domain, Domain]
    columns: tuple[str, str]
    num_rows: int
    num_missing: int
    from_data: tuple[bool, bool] = (False, False)


def count_reports(source: Source | str, domain: Domain | str | None = None) -> CountedReports:
    """Count a column of reports, or of true values.

    The rows are counted where they are: memory grows with the number of different values, not
    with the number of rows.

    Args:
        source: the files and how to read them; a plain path is `Source(path)`.
        domain: the K categories; a text is what `read_domain` reads. None takes the domain from the metadata of
            Parquet files that rrjax wrote, else from the values in the data (see `domain_from_data`).

    Returns:
        The counts. A range takes whole numbers in any notation without exponent ("12", "12.0",
        12.0); listed labels are compared as text.

    Raises:
        DataError: files that cannot be read, a missing column, values outside the domain, no
            report at all, or a domain that contradicts the metadata.

    Example:
        >>> counted = count_reports(Source("survey.csv", column="age"), Domain.range(0, 99))
        ... # doctest: +SKIP
        >>> counted.counts.sum() + counted.num_missing == counted.num_rows  # doctest: +SKIP
        True
    """
    return count_filtered(_as_source(source), _as_domain(domain))


def count_filtered(source: Source, domain: Domain | None, filters: Sequence[Filter] = ()) -> CountedReports:
    """As `count_reports`, of the rows that pass all filters."""
    with connect() as connection, explaining(source.files()):
        chosen = scan(connection, source, filters=filters)
        connection.execute("SET preserve_insertion_order = false")
        _tally(connection, chosen)
        return _counted(connection, source, chosen, domain)


def read_counts(source: Source | str, counts_column: str, domain: Domain | str | None = None) -> CountedReports:
    """Read ready counts: a column of labels and a column of counts.

    Args:
        source: the files and how to read them; its column is the one of the labels.
        counts_column: name of the column of counts (its number in a file without header).
        domain: the K categories; None as in `count_reports`.

    Returns:
        The counts; those of a label that is there twice are added up, labels of the domain that
        are not there have none.

    Raises:
        DataError: as `count_reports`, and for counts that are negative, fractional, missing or no
            numbers, or add up to more than 2**53.
    """
    source, domain = _as_source(source), _as_domain(domain)
    with connect() as connection, explaining(source.files()):
        chosen = scan(connection, source, counts_column)
        amount = integer(chosen.amount_kind, "amount")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(
            "CREATE TEMP TABLE tally AS SELECT value, "
            "sum(CASE WHEN number >= 0 THEN number ELSE 0 END) AS amount, "
            "count(*) FILTER (WHERE number IS NULL OR number < 0) AS refused "
            f"FROM (SELECT value, {amount} AS number FROM ({chosen.sql})) GROUP BY value"
        )
        refused = _scalar(connection, "SELECT coalesce(sum(refused), 0) FROM tally")
        if refused:
            raise no_count(connection, source, chosen, counts_column, refused)
        total = _scalar(connection, "SELECT sum(amount) FROM tally")
        if total == 0:
            raise DataError(f"{where(chosen)}: the counts in {counts_column!r} are all 0.")
        return _counted(connection, source, chosen, domain)


def read_values(source: Source | str, domain: Domain | str | None = None) -> Values:
    """Read the category number of every row.

    Args:
        source: the files and how to read them.
        domain: the K categories; None takes them from the data.

    Returns:
        The values: 4 bytes a row.

    Raises:
        DataError: as `count_reports`.
    """
    source, domain = _as_source(source), _as_domain(domain)
    counted = count_reports(source) if domain is None else None
    if counted is not None:
        domain = counted.domain
    assert domain is not None
    indices, column = _positions(source, domain)
    answered = indices >= 0
    num_missing = len(indices) - int(answered.sum())
    from_data = counted.domain_from_data if counted is not None else False
    return Values(indices[answered] if num_missing else indices, domain, column, num_missing, from_data)


def count_pairs(
    source: Source | str, columns: tuple[str, str], domains: tuple[Domain | str | None, Domain | str | None]
) -> Pairs:
    """Count the pairs of two columns of reports, row by row.

    Args:
        source: the files and how to read them; its own column is not looked at.
        columns: names of the two columns.
        domains: their categories; None takes them from the data.

    Returns:
        The counts of the rows that have both answers.

    Raises:
        DataError: as `count_reports`, for either column; a column that is named twice; no row with both answers.
    """
    source = _as_source(source)
    if columns[0] == columns[1]:
        raise DataError(f"two columns are wanted, and {columns[0]!r} was named twice.")
    sources = [replace(source, column=column) for column in columns]
    known = [_as_domain(domain) or count_reports(own).domain for own, domain in zip(sources, domains, strict=True)]
    shape = known[0].num_categories, known[1].num_categories
    if shape[0] * shape[1] > MAX_CELLS:
        raise DataError(
            f"{columns[0]!r} and {columns[1]!r} have {shape[0]:,} × {shape[1]:,} pairs of categories, more than "
            f"{MAX_CELLS:,}; coarser categories are needed."
        )
    first, second = (_positions(own, domain)[0] for own, domain in zip(sources, known, strict=True))
    both = (first >= 0) & (second >= 0)
    if not both.any():
        raise DataError(f"{source.files()[0]}: no row has an answer in both {columns[0]!r} and {columns[1]!r}.")
    cells = first[both].astype(np.int64) * shape[1] + second[both]
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
    from_data = domains[0] is None, domains[1] is None
    return Pairs(counts, (known[0], known[1]), columns, len(first), int((~both).sum()), from_data)


def _positions(source: Source, domain: Domain) -> tuple[np.ndarray, str]:
    """The category number of every row, −1 where it has no answer, and the name of the column."""
    with connect() as connection, explaining(source.files()):
        chosen = scan(connection, source)
        _declare(connection, domain)
        found = connection.execute(
            f"SELECT CAST(CASE WHEN {is_missing(chosen.kind, source.missing)} THEN -1 "
            f"ELSE coalesce({position(chosen.kind, domain)}, -2) END AS INTEGER) AS indices "
            f"FROM ({chosen.sql})"
        ).fetchnumpy()
        indices = np.ascontiguousarray(found["indices"], dtype=np.int32)
        lowest = indices.min(initial=0)
        if lowest == -2 or not len(indices):
            _tally(connection, chosen)
            _counted(connection, source, chosen, domain)
        if indices.max(initial=-1) < 0:
            raise nothing(chosen, len(indices))
    return indices, chosen.column


def _as_source(source: Source | str) -> Source:
    return source if isinstance(source, Source) else Source(source)


def _as_domain(domain: Domain | str | None) -> Domain | None:
    return domain if domain is None or isinstance(domain, Domain) else read_domain(domain)


def _tally(connection: "duckdb.DuckDBPyConnection", chosen: Scan) -> None:
    """Make the table `tally` of the different values and how often each is there."""
    connection.execute(
        f"CREATE TEMP TABLE tally AS SELECT value, count(*) AS amount FROM ({chosen.sql}) GROUP BY value"
    )


def _counted(
    connection: "duckdb.DuckDBPyConnection", source: Source, chosen: Scan, domain: Domain | None
) -> CountedReports:
    """Turn the table `tally` (value, amount) into counts over the domain."""
    missing_value = is_missing(chosen.kind, source.missing)
    missing: dict[str, int] = {
        token: int(amount)
        for token, amount in connection.execute(
            f"SELECT coalesce({text(chosen.kind)}, '') AS token, sum(amount) FROM tally "
            f"WHERE {missing_value} GROUP BY token ORDER BY token"
        ).fetchall()
    }
    num_missing = sum(missing.values())
    num_rows = int(_scalar(connection, "SELECT coalesce(sum(amount), 0) FROM tally"))
    if num_rows > MAX_TOTAL:
        raise DataError(
            f"{where(chosen)}: the counts add up to {num_rows:,}, more than 2^53; are these really numbers of reports?"
        )
    if num_rows == num_missing:
        raise nothing(chosen, num_missing)

    metadata = metadata_of(connection, chosen.files) if chosen.format == "parquet" else None
    from_data = False
    if metadata is not None and metadata.column == chosen.column:
        if domain is not None and domain != metadata.domain:
            raise DataError(
                f"{chosen.files[0]} was collected with the domain {metadata.domain.describe()}, "
                f"which is not the one given, {domain.describe()}. Leave the domain out."
            )
        domain, from_data = metadata.domain, metadata.domain_from_data
    if domain is None:
        domain, counts = _domain_of_data(connection, chosen, missing_value)
        return CountedReports(counts, domain, chosen.column, num_rows, num_missing, True, metadata, missing)

    _declare(connection, domain)
    connection.execute(
        f"CREATE TEMP TABLE placed AS SELECT {position(chosen.kind, domain)} AS position, "
        f"{text(chosen.kind)} AS label, amount FROM tally WHERE NOT {missing_value}"
    )
    if _scalar(connection, "SELECT count(*) FROM placed WHERE position IS NULL"):
        raise outside(connection, source, chosen, domain)
    found = connection.execute(
        "SELECT position, CAST(sum(amount) AS BIGINT) AS amount FROM placed GROUP BY position"
    ).fetchnumpy()
    counts = np.zeros(domain.num_categories, dtype=np.int64)
    counts[np.asarray(found["position"])] = np.asarray(found["amount"])
    return CountedReports(counts, domain, chosen.column, num_rows, num_missing, from_data, metadata, missing)


def _domain_of_data(
    connection: "duckdb.DuckDBPyConnection", chosen: Scan, missing_value: str
) -> tuple[Domain, np.ndarray]:
    """The different values as a domain, in numeric order if all are integers, and their counts."""
    groups = (
        f"SELECT {text(chosen.kind)} AS label, CAST(sum(amount) AS BIGINT) AS amount "
        f"FROM tally WHERE NOT {missing_value} GROUP BY label"
    )
    numeric = _scalar(connection, f"SELECT bool_and({is_integer_label('label')}) FROM ({groups})")
    order = "CAST(label AS BIGINT), label" if numeric else "label"
    found = connection.execute(f"{groups} ORDER BY {order}").fetchnumpy()
    labels = found["label"]
    if len(labels) < 2:
        raise DataError(
            f"{where(chosen)}: every report is {labels[0]!r}, which does not tell the domain. "
            "Give all answers that were possible (domain=, --domain): a range such as 0:99 or a "
            "file of labels."
        )
    return Domain.of(labels), np.asarray(found["amount"], dtype=np.int64)


def _declare(connection: "duckdb.DuckDBPyConnection", domain: Domain) -> None:
    """Make the SQL type `category` of a listed domain; a range needs none."""
    if domain.listed is None:
        return
    labels = np.empty(len(domain.listed), dtype=object)
    labels[:] = domain.listed
    connection.register("labels", {"label": labels})
    connection.execute("DROP TYPE IF EXISTS category")
    connection.execute("CREATE TYPE category AS ENUM (SELECT label FROM labels)")
    connection.unregister("labels")


def _scalar(connection: "duckdb.DuckDBPyConnection", query: str) -> int:
    return connection.execute(query).fetchall()[0][0]
