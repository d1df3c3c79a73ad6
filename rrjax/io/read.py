"""Reports, values and ready counts from files, through DuckDB, out of core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rrjax.data.errors import DataError, option
from rrjax.io.complaints import no_count, nothing, outside
from rrjax.io.counted import CountedReports, Pairs, Values
from rrjax.io.domain import PAIR, Domain
from rrjax.io.expressions import (
    as_written,
    integer,
    integer_of,
    is_integer_label,
    is_missing,
    is_padded,
    position,
    text,
)
from rrjax.io.labels import Labels, as_domain
from rrjax.io.scan import Filter, Scan, scanning
from rrjax.io.source import Source

MAX_TOTAL = 2**53
"""Every total up to here is exact in float64 as well."""
_MAX_CELLS = 2**26


def count_reports(source: Source | str, domain: Labels | None = None) -> CountedReports:
    """Counts a column of reports, or of true values.

    The rows are counted where they are: memory grows with the number of different values, not with the number of rows.

    Args:
        source: The files and how to read them; a plain path is `Source(path)`.
        domain: The K categories: a `Domain`, a list of labels, or a text that `read_domain` reads. None takes the
            domain from the metadata of Parquet files that rrjax wrote, else from the values in the data (see
            `domain_from_data`).

    Returns:
        The counts. A range takes whole numbers in any notation without exponent ("12", "12.0", 12.0); listed labels are
        compared as text.

    Raises:
        DataError: Files that cannot be read, a missing column, values outside the domain, or no report at all.
        Contradiction: Metadata with another domain.

    Example:
        >>> counted = count_reports(Source("survey.csv", column="age"), Domain.range(0, 99))
        ... # doctest: +SKIP
        >>> counted.counts.sum() + counted.num_missing == counted.num_rows  # doctest: +SKIP
        True
    """
    return count_filtered(_as_source(source), as_domain(domain))


def count_filtered(source: Source, domain: Domain | None, filters: Sequence[Filter] = ()) -> CountedReports:
    """Counts as `count_reports`, of the rows that pass all filters."""
    with scanning(source, filters=filters) as chosen:
        _tally(chosen)
        return _counted(chosen, domain)


def read_counts(source: Source | str, counts_column: str, domain: Labels | None = None) -> CountedReports:
    """Reads ready counts: a column of labels and a column of counts.

    Args:
        source: The files and how to read them; its column is the one of the labels.
        counts_column: Name of the column of counts (its number in a file without header).
        domain: The K categories; None as in `count_reports`.

    Returns:
        The counts; those of a label that is there twice are added up, labels of the domain that are not there have
        none.

    Raises:
        DataError: As `count_reports`, and for counts that are negative, fractional, missing or no numbers, or add up to
            more than 2**53.
    """
    domain = as_domain(domain)
    with scanning(_as_source(source), counts_column) as chosen:
        # Tables that rrjax wrote are read, too.
        value = as_written("value") if chosen.source.format_of(chosen.files) in ("csv", "tsv") else "value"
        _tally(
            chosen,
            "sum(CASE WHEN number >= 0 THEN number ELSE 0 END) AS amount, "
            "count(*) FILTER (WHERE number IS NULL OR number < 0) AS refused",
            f"SELECT {value} AS value, {integer(chosen.amount_kind, 'amount')} AS number FROM ({chosen.sql})",
        )
        refused = chosen.scalar("SELECT coalesce(sum(refused), 0) FROM tally")
        if refused:
            raise no_count(chosen, counts_column, refused)
        if chosen.scalar("SELECT sum(amount) FROM tally") == 0:
            raise DataError(
                f"{chosen.where()}: the counts in {counts_column!r} are all 0.",
                file=chosen.files[0],
                column=counts_column,
            )
        return _counted(chosen, domain)


def read_values(source: Source | str, domain: Labels | None = None) -> Values:
    """Reads the category number of every row.

    Args:
        source: The files and how to read them.
        domain: The K categories; None as in `count_reports`.

    Returns:
        The values: 4 bytes a row.

    Raises:
        DataError: As `count_reports`.
    """
    values = read_rows(_as_source(source).confidential(), as_domain(domain))
    if not values.num_missing:
        return values
    present = values.indices >= 0
    return replace(values, indices=values.indices[present], present=present)


def count_pairs(source: Source | str, columns: tuple[str, str], domains: tuple[Labels | None, Labels | None]) -> Pairs:
    """Counts the pairs of two columns of reports, row by row.

    Raises:
        DataError: As `count_reports`, for either column; a column that is named twice; no row with both answers.
    """
    first, second, both = _read_both(_as_source(source), columns, domains)
    shape = first.domain.num_categories, second.domain.num_categories
    if shape[0] * shape[1] > _MAX_CELLS:
        raise DataError(
            f"{columns[0]!r} and {columns[1]!r} have {shape[0]:,} × {shape[1]:,} pairs of categories, more than "
            f"{_MAX_CELLS:,}; coarser categories are needed.",
            column=columns[0],
        )
    cells = first.indices[both].astype(np.int64) * shape[1] + second.indices[both]
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
    return Pairs(
        counts,
        (first.domain, second.domain),
        columns,
        len(both),
        int((~both).sum()),
        (first.domain_from_data, second.domain_from_data),
    )


def read_pairs(source: Source | str, columns: tuple[str, str], domains: tuple[Labels | None, Labels | None]) -> Values:
    """Reads two columns as one, whose categories are their pairs (`Domain.product`).

    Args:
        source: The files and how to read them; its own column is not looked at.
        columns: Names of the two columns.
        domains: Their categories; None as in `count_reports`.

    Returns:
        The pairs of the rows that have both answers.

    Raises:
        DataError: As `count_pairs`, and `Domain.product`.
    """
    first, second, both = _read_both(_as_source(source).confidential(), columns, domains)
    domain = Domain.product(first.domain, second.domain)
    indices = first.indices[both] * np.int32(second.domain.num_categories) + second.indices[both]
    from_data = first.domain_from_data or second.domain_from_data
    present = None if both.all() else both
    padded = first.num_padded + second.num_padded
    return Values(indices, domain, PAIR.join(columns), int((~both).sum()), from_data, padded, present)


def _read_both(
    source: Source, columns: tuple[str, str], domains: tuple[Labels | None, Labels | None]
) -> tuple[Values, Values, np.ndarray]:
    """Two columns, row by row, and which rows have both answers."""
    if columns[0] == columns[1]:
        raise DataError(
            f"two columns are wanted, and {columns[0]!r} was named twice.", column=columns[0], argument="columns"
        )
    first, second = (
        read_rows(replace(source, column=column), domain)
        for column, domain in zip(columns, [as_domain(domain) for domain in domains], strict=True)
    )
    both = (first.indices >= 0) & (second.indices >= 0)
    if not both.any():
        raise DataError(
            f"{source.files()[0]}: no row has an answer in both {columns[0]!r} and {columns[1]!r}.",
            file=source.files()[0],
            column=columns[0],
        )
    return first, second, both


def _as_source(source: Source | str) -> Source:
    return source if isinstance(source, Source) else Source(source)


def _settled(chosen: Scan, domain: Domain | None) -> tuple[Domain | None, bool]:
    """The domain to count over, None for that of the data, and whether it is only what happened to be in the data."""
    metadata = chosen.source.metadata()
    if metadata is None or metadata.column != chosen.column:
        return domain, domain is None
    metadata.check(chosen.files[0], domain=domain)
    return metadata.domain, metadata.domain_from_data


def read_rows(source: Source, domain: Domain | None) -> Values:
    """Reads as `read_values`, but rows without an answer are there too, as −1."""
    with scanning(source) as chosen:
        known, from_data = _settled(chosen, domain)
        if known is None:
            _tally(chosen)
            known = _counted(chosen, None).domain
        _declare(chosen, known)
        chosen.query("SET preserve_insertion_order = true")
        found = chosen.connection.execute(
            f"SELECT CAST(CASE WHEN {is_missing(chosen.kind, source.missing)} THEN -1 "
            f"ELSE coalesce({position(chosen.kind, known)}, -2) END AS INTEGER) AS indices FROM ({chosen.sql})"
        ).fetchnumpy()
        indices = np.ascontiguousarray(found["indices"], dtype=np.int32)
        if indices.min(initial=0) == -2:
            _tally(chosen)
            _counted(chosen, known)
        num_missing = int((indices < 0).sum())
        if num_missing == len(indices):
            raise nothing(chosen, num_missing)
        padded = 0
        if known.is_range and chosen.kind == "text":
            padded = int(chosen.scalar(f"SELECT count(*) FROM ({chosen.sql}) WHERE {is_padded('value')}"))
    return Values(indices, known, chosen.column, num_missing, from_data, padded)


def _tally(chosen: Scan, amounts: str = "count(*) AS amount", rows: str | None = None) -> None:
    """Makes the table `tally`: the different values, and the amount of each."""
    chosen.query("SET preserve_insertion_order = false")
    chosen.query(
        f"CREATE OR REPLACE TEMP TABLE tally AS SELECT value, {amounts} FROM ({rows or chosen.sql}) GROUP BY value"
    )


def _counted(chosen: Scan, domain: Domain | None) -> CountedReports:
    """Turns the table `tally` into counts over the domain."""
    is_none = is_missing(chosen.kind, chosen.source.missing)
    tokens = chosen.query(
        f"SELECT coalesce({text(chosen.kind)}, '') AS token, sum(amount) FROM tally "
        f"WHERE {is_none} GROUP BY token ORDER BY token"
    )
    missing = {str(token): int(amount) for token, amount in tokens}
    num_missing = sum(missing.values())
    num_rows = int(chosen.scalar("SELECT coalesce(sum(amount), 0) FROM tally"))
    if num_rows > MAX_TOTAL:
        raise DataError(
            f"{chosen.where()}: the counts add up to {num_rows:,}, more than 2^53; are these really numbers of "
            "reports?",
            file=chosen.files[0],
            column=chosen.column,
        )
    if num_rows == num_missing:
        raise nothing(chosen, num_missing)
    known, from_data = _settled(chosen, domain)
    if known is None:
        known, counts = _domain_of_data(chosen, is_none)
    else:
        _check_missing(chosen, known, missing)
        counts = _placed(chosen, known, is_none)
    metadata = chosen.source.metadata()
    padded = 0
    if known.is_range and chosen.kind == "text":
        padded = int(chosen.scalar(f"SELECT coalesce(sum(amount), 0) FROM tally WHERE {is_padded('value')}"))
    return CountedReports(counts, known, chosen.column, num_rows, num_missing, from_data, metadata, missing, padded)


def _holds(domain: Domain, label: str) -> bool:
    if domain.first is None or domain.last is None:
        return label in (domain.listed or ())
    number = integer_of(label)
    return number is not None and domain.first <= number <= domain.last


def _check_missing(chosen: Scan, domain: Domain, missing: Mapping[str, int]) -> None:
    """Refuses to leave out reports of a category because they are called missing."""
    both = next((token for token in chosen.source.missing if missing.get(token) and _holds(domain, token)), None)
    if both is not None:
        raise DataError(
            f"{chosen.where()}: {both!r} is a category of the domain and cannot stand for missing values, too "
            f"({option('missing')}). If it means that there is no report, take it out of the domain.",
            file=chosen.files[0],
            column=chosen.column,
            argument="missing",
        )


def _placed(chosen: Scan, domain: Domain, is_none: str) -> np.ndarray:
    """The counts of the table `tally` over a domain, which must hold all its values."""
    values = f"SELECT value, {text(chosen.kind)} AS label, amount FROM tally WHERE NOT {is_none}"
    if domain.is_range:
        chosen.query(
            f"CREATE TEMP TABLE placed AS SELECT {position(chosen.kind, domain)} AS position, label, amount "
            f"FROM ({values})"
        )
    else:  # a join takes a fraction of the time of a type with a million labels, and the order is of no account here
        places = np.arange(domain.num_categories)
        chosen.connection.register("labels", {"label": domain.labels().astype(object), "position": places})
        chosen.query(
            f"CREATE TEMP TABLE placed AS SELECT position, label, amount FROM ({values}) LEFT JOIN labels USING (label)"
        )
        chosen.connection.unregister("labels")
    if chosen.scalar("SELECT count(*) FROM placed WHERE position IS NULL"):
        _declare(chosen, domain)
        raise outside(chosen, domain)
    found = chosen.connection.execute(
        "SELECT position, CAST(sum(amount) AS BIGINT) AS amount FROM placed GROUP BY position"
    ).fetchnumpy()
    counts = np.zeros(domain.num_categories, dtype=np.int64)
    counts[np.asarray(found["position"])] = np.asarray(found["amount"])
    return counts


def _domain_of_data(chosen: Scan, is_none: str) -> tuple[Domain, np.ndarray]:
    """The different values as a domain, in numeric order if all are integers, and their counts."""
    groups = (
        f"SELECT {text(chosen.kind)} AS label, CAST(sum(amount) AS BIGINT) AS amount "
        f"FROM tally WHERE NOT {is_none} GROUP BY label"
    )
    numeric = chosen.scalar(f"SELECT bool_and({is_integer_label('label')}) FROM ({groups})")
    order = "CAST(label AS BIGINT), label" if numeric else "label"
    found = chosen.connection.execute(f"{groups} ORDER BY {order}").fetchnumpy()
    labels = found["label"]
    if len(labels) < 2:
        shown = "the same" if chosen.confidential else repr(labels[0])
        raise DataError(
            f"{chosen.where()}: every value is {shown}, which does not tell the domain. Give all answers that "
            f"were possible ({option('domain')}): a range such as 0:99 or a file of labels.",
            file=chosen.files[0],
            column=None if chosen.transactions else chosen.column,
            argument="domain",
        )
    return Domain.of(labels), np.asarray(found["amount"], dtype=np.int64)


def _declare(chosen: Scan, domain: Domain) -> None:
    """Makes the SQL type `category` of a listed domain; a range needs none."""
    if domain.is_range:
        return
    chosen.connection.register("labels", {"label": domain.labels().astype(object)})
    chosen.query("DROP TYPE IF EXISTS category")
    chosen.query("CREATE TYPE category AS ENUM (SELECT label FROM labels)")
    chosen.connection.unregister("labels")
