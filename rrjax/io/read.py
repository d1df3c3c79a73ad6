"""Counts of reports or of true values in files, through DuckDB, out of core."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rrjax.data.errors import DataError, number, option
from rrjax.data.number_text import NUMBER
from rrjax.io.database import (
    as_written,
    float_text,
    has_no_answer,
    integer,
    is_integer_label,
    is_named,
    is_padded,
    literal,
    number_of,
    position,
    spelling,
    text,
)
from rrjax.io.domain import Domain
from rrjax.io.labels import Labels, as_domain
from rrjax.io.metadata import Metadata
from rrjax.io.scan import THOUSANDS, Scan, all_thousands, check_header, error_at, scan, scanning
from rrjax.io.source import Source

MAX_TOTAL = 2**53
"""Largest total; up to it totals are exact in float64 as well."""
MAX_KEYS = 1000
"""Largest number of combinations of `count_by`, each of which is counted and estimated by itself."""
AMBIGUOUS = (
    "{!r} is among the possible answers, and cannot stand for missing values, too ({}). If it means that there is no "
    "answer, take it out of the domain; otherwise do not name it."
)
"""What is said of a value that is named as missing and is an answer."""


@dataclass(frozen=True)
class CountedReports:
    """The number of reports of each category of a domain.

    Attributes:
        counts: int64 `[K]`, reports per category.
        domain: The K categories.
        column: Name of the column.
        num_rows: Number of all reports, `counts.sum() + num_missing`.
        num_missing: Number of reports without an answer, which are not in the counts.
        domain_from_data: Whether the domain is only the different values in the data. Categories without a report are
            then unknown, which biases every estimate: K is too small.
        metadata: Metadata of Parquet files that rrjax wrote; None otherwise.
        missing: Value that means a missing answer → number of such reports; "" is an empty cell or null.
        num_padded: Number of reports of a range with leading zeros, such as 007, which counts as 7.
    """

    counts: np.ndarray
    domain: Domain
    column: str
    num_rows: int
    num_missing: int
    domain_from_data: bool
    metadata: Metadata | None = None
    missing: dict[str, int] = field(default_factory=dict)
    num_padded: int = 0

    def __add__(self, other: CountedReports) -> CountedReports:
        """The counts of both, of one column and domain."""
        return replace(
            self,
            counts=self.counts + other.counts,
            num_rows=self.num_rows + other.num_rows,
            num_missing=self.num_missing + other.num_missing,
            domain_from_data=self.domain_from_data or other.domain_from_data,
            missing=dict(Counter(self.missing) + Counter(other.missing)),
            num_padded=self.num_padded + other.num_padded,
        )


def count_reports(source: Source | str, domain: Labels | None = None) -> CountedReports:
    """The counts of a column of reports, or of true values.

    DuckDB counts the rows. Memory grows with the number of different values, not with the number of rows.

    Args:
        source: The files with their format; a plain path is `Source(path)`.
        domain: The K categories: a `Domain`, a list of labels, or a text that `read_domain` reads. None takes the
            domain from the metadata of Parquet files that rrjax wrote, else from the values in the data (see
            `domain_from_data`).

    Returns:
        The counts, a `CountedReports`. A range takes whole numbers in any notation without exponent ("12", "12.0",
        12.0); listed labels are compared as text.

    Raises:
        DataError: Files that cannot be read, a missing column, values outside the domain, or no report at all.
        Contradiction: Metadata with another domain.

    Example:
        >>> counted = count_reports(Source("survey.csv", column="age"), "0:99")  # doctest: +SKIP
        >>> counted.counts.sum() + counted.num_missing == counted.num_rows  # doctest: +SKIP
        True
    """
    domain = as_domain(domain)
    with scanning(as_source(source)) as chosen:
        return count_scan(chosen, domain)


def count_scan(chosen: Scan, domain: Domain | None) -> CountedReports:
    """The counts of the rows of a scan over the domain."""
    _group(chosen, "count(*) AS amount", chosen.sql)
    return _counted(chosen, domain)


def read_counts(source: Source | str, counts_column: str, domain: Labels | None = None) -> CountedReports:
    """The counts in files with a column of labels and a column of counts.

    Args:
        source: The files with their format; its column is the column of labels.
        counts_column: Name of the column of counts (its number in a file without header).
        domain: The K categories; None as in `count_reports`.

    Returns:
        The counts, a `CountedReports`. Counts of a label in several rows are added up; a label of the domain without a
        row has the count zero.

    Raises:
        DataError: As `count_reports`, and for counts that are negative, fractional, missing or no numbers, or add up to
            more than 2**53.
    """
    domain = as_domain(domain)
    with scanning(as_source(source), counts_column) as chosen:
        _group_counts(chosen, counts_column)
        return _counted(chosen, domain)


def count_by(
    source: Source, columns: Sequence[str], domain: Domain, counts_column: str | None = None
) -> dict[tuple[str, ...], CountedReports]:
    """The counts of a column for each combination of the texts in other columns, in one pass over the rows.

    Args:
        source: The files with their format; its column is that of reports or, with a column of counts, of labels.
        columns: Names of the other columns. The text of an empty cell is "".
        domain: The K categories.
        counts_column: Name of a column of counts, as in `read_counts`.

    Returns:
        The counts of each combination that occurs, in the order of their texts. All are zero where it has no value.

    Raises:
        DataError: As `count_reports` and `read_counts`, and for more than 1,000 combinations.
    """
    keys = [f"key{place}" for place in range(len(columns))]
    with scanning(source, counts_column, columns) as chosen:
        if counts_column is None:
            _group(chosen, "count(*) AS amount", chosen.sql, keys)
        else:
            _group_counts(chosen, counts_column, keys)
        chosen.query(f"CREATE TEMP TABLE tallies AS SELECT value, {chosen.key_texts}, amount FROM tally")
        groups = chosen.query(f"SELECT DISTINCT {', '.join(keys)} FROM tallies ORDER BY ALL LIMIT {MAX_KEYS + 1}")
        if len(groups) > MAX_KEYS:
            listed = ", ".join(map(repr, columns))
            raise chosen.error(f"{listed} have more than {MAX_KEYS:,} combinations; round their numbers.")
        count_padded(chosen, settled_domain(chosen, domain)[0], "tallies")  # thousands are seen from all values
        counted = {}
        for key in groups:
            of_key = " AND ".join(f"{name} = {literal(cell)}" for name, cell in zip(keys, key, strict=True))
            chosen.query(f"CREATE OR REPLACE TEMP TABLE tally AS SELECT value, amount FROM tallies WHERE {of_key}")
            counted[key] = _counted(chosen, domain, empty=True)
        if not any(each.counts.any() for each in counted.values()):
            raise no_values(chosen, sum(each.num_missing for each in counted.values()))
    return counted


def error_at_cells(source: Source, cells: Mapping[str, str], column: str, problem: str) -> DataError:
    """The error about a column in the first row with these texts, by the names of their columns."""
    with scanning(replace(source, column=column, missing=()), keys=[*cells]) as chosen:
        chosen.query("SET preserve_insertion_order = true")
        same = " AND ".join(f"key{place} = {literal(cell)}" for place, cell in enumerate(cells.values()))
        rows = f"SELECT row_number() OVER () - 1 AS place, {chosen.key_texts} FROM ({chosen.sql})"
        place = chosen.scalar(f"SELECT min(place) FROM ({rows}) WHERE {same}")
        return error_at(chosen, place, problem, value=cells[column])


def as_source(source: Source | str) -> Source:
    """A source unchanged, or the source of a path."""
    return source if isinstance(source, Source) else Source(source)


def settled_domain(chosen: Scan, domain: Domain | None) -> tuple[Domain | None, bool]:
    """The domain for the counts, None for that of the data, and whether it was made from data.

    Refuses metadata with another domain, and a category that the column holds and that is named as missing, too.
    """
    metadata = chosen.source.columns().get(chosen.column)
    if metadata is not None:
        metadata.check(chosen.files[0], domain=domain)
    # Of two that are equal, that of the metadata knows its factors, and the other one its file.
    known = domain if metadata is None else replace(metadata.domain, sources=() if domain is None else domain.sources)
    if known is not None:
        check_header(chosen, known.has)
        check_missing(chosen, _has(known, chosen), numbers=known.is_range)
    return known, domain is None if metadata is None else metadata.domain_from_data


def _has(domain: Domain, chosen: Scan) -> Callable[[str], bool]:
    """Whether a domain has a text; in a column of numbers by its value."""
    if chosen.kind != "number" or domain.is_range:
        return domain.has
    return lambda token: domain.has(token) or number_of(token) in {*map(number_of, domain.listed or ())} - {None}


def check_missing(chosen: Scan, has: Callable[[str], bool], *, numbers: bool) -> None:
    """Refuses values as missing that are answers, too (`has`), if the column holds one; `numbers` as in `is_named`."""
    tokens = []
    for token in chosen.source.missing:
        value = number_of(token) if numbers or chosen.kind != "text" else None
        if token and (has(token) or (value is not None and has(f"{value:.0f}" if value.is_integer() else repr(value)))):
            tokens.append(token)
    if not tokens:
        return
    named = is_named(chosen.kind, tokens, numbers=numbers)
    ambiguous = chosen.query(f"SELECT {text(chosen.kind)} FROM ({chosen.sql}) WHERE {named} LIMIT 1")
    if ambiguous:
        raise chosen.error(AMBIGUOUS.format(ambiguous[0][0], option("missing")), argument="missing")


def _group(chosen: Scan, amounts: str, rows: str, keys: Sequence[str] = ()) -> None:
    """Creates the table `tally`: the different values, with different keys, and the amount of each."""
    chosen.query("SET preserve_insertion_order = false")
    columns = ", ".join(["value", *keys])
    chosen.query(f"CREATE OR REPLACE TEMP TABLE tally AS SELECT {columns}, {amounts} FROM ({rows}) GROUP BY {columns}")


def _group_counts(chosen: Scan, counts_column: str, keys: Sequence[str] = ()) -> None:
    """`_group` for a column of counts; refuses counts that are none, and those that are all zero."""
    # Undoes the apostrophes of `write_table`.
    value = as_written("value") if chosen.source.file_format() in ("csv", "tsv") else "value"
    columns = ", ".join([f"{value} AS value", *keys])
    _group(
        chosen,
        "sum(CASE WHEN number >= 0 THEN number ELSE 0 END) AS amount, "
        "count(*) FILTER (WHERE number IS NULL OR number < 0) AS refused",
        f"SELECT {columns}, {integer(chosen.amount_kind, 'amount')} AS number FROM ({chosen.sql})",
        keys,
    )
    if chosen.amount_kind == "text" and chosen.scalar(
        f"SELECT {all_thousands('trim(amount)', (0, MAX_TOTAL))} FROM ({chosen.sql})"
    ):
        raise chosen.error(f"counts in {counts_column!r} {THOUSANDS}.", column=counts_column)
    refused = chosen.scalar("SELECT coalesce(sum(refused), 0) FROM tally")
    if refused:
        raise _refused_counts(chosen, counts_column, refused)
    if chosen.scalar("SELECT sum(amount) FROM tally") == 0:
        raise chosen.error(f"the counts in {counts_column!r} are all 0.", column=counts_column)


def _counted(chosen: Scan, domain: Domain | None, *, empty: bool = False) -> CountedReports:
    """The counts over the domain, from the table `tally`, which may be `empty`, one of several, if it is known."""
    known, from_data = settled_domain(chosen, domain)
    numbers = known is not None and known.is_range
    is_none = has_no_answer(chosen.kind, chosen.source.missing, numbers=numbers)
    tokens = chosen.query(
        f"SELECT coalesce({text(chosen.kind)}, '') AS token, sum(amount) FROM tally "
        f"WHERE {is_none} GROUP BY token ORDER BY token"
    )
    missing = {str(token): int(amount) for token, amount in tokens}
    num_missing = sum(missing.values())
    num_rows = int(chosen.scalar("SELECT coalesce(sum(amount), 0) FROM tally"))
    if num_rows > MAX_TOTAL:
        raise chosen.error(f"the counts add up to {num_rows:,}, more than 2^53; are these really numbers of reports?")
    if num_rows == num_missing and not empty:
        raise no_values(chosen, num_missing)
    if known is None:
        known, counts = _domain_of_data(chosen, is_none)
    else:
        counts = _placed(chosen, known, is_none)
    padded = count_padded(chosen, known, "tally", ask=not empty)
    columns = chosen.source.columns()
    # Beside several columns of reports, others may have been kept.
    metadata = chosen.source.metadata() if len(columns) < 2 else columns.get(chosen.column)
    return CountedReports(counts, known, chosen.column, num_rows, num_missing, from_data, metadata, missing, padded)


def _placed(chosen: Scan, domain: Domain, is_none: str) -> np.ndarray:
    """The counts of the table `tally` over a domain, which must have all its values."""
    place = position(chosen.kind, domain)
    rows = f"(SELECT value, {text(chosen.kind)} AS label, amount FROM tally WHERE NOT {is_none})"
    if not domain.is_range:  # a join is many times faster than a type with a million labels; it keeps no order
        place, rows = "position", f"{rows} LEFT JOIN {_labels_of(chosen, domain)} USING (label)"
    chosen.query(f"CREATE OR REPLACE TEMP TABLE placed AS SELECT {place} AS position, label, amount FROM {rows}")
    if chosen.scalar("SELECT count(*) FROM placed WHERE position IS NULL"):
        declare_category(chosen, domain)
        raise _outside(chosen, domain)
    amounts = chosen.connection.execute(
        "SELECT position, CAST(sum(amount) AS BIGINT) AS amount FROM placed GROUP BY position"
    ).fetchnumpy()
    counts = np.zeros(domain.num_categories, dtype=np.int64)
    counts[np.asarray(amounts["position"])] = np.asarray(amounts["amount"])
    return counts


def count_padded(chosen: Scan, domain: Domain | None, rows: str, *, ask: bool = True) -> int:
    """The sum of the `amount` of values of a range with leading zeros; asks about values that may be thousands."""
    if domain is None or domain.first is None or domain.last is None or chosen.kind != "text":
        return 0
    ask = ask and not chosen.are_numbers
    thousands = all_thousands("value", (domain.first, domain.last)) if ask else "false"
    padded = f"coalesce(sum(amount) FILTER (WHERE {is_padded('value')}), 0)"
    odd = f"contains(value, '.') OR {is_padded('value')}"  # the others are passed over quickly
    number, unsure = chosen.query(f"SELECT {padded}, {thousands} FROM {rows} WHERE {odd}")[0]
    if unsure:
        raise chosen.error(f"values {THOUSANDS}.")
    return int(number)


def _domain_of_data(chosen: Scan, is_none: str) -> tuple[Domain, np.ndarray]:
    """The different values as a domain, in numeric order if all are numbers, and their counts."""
    groups = (
        f"SELECT {text(chosen.kind)} AS label, CAST(sum(amount) AS BIGINT) AS amount "
        f"FROM tally WHERE NOT {is_none} GROUP BY label"
    )
    check_header(
        chosen, lambda name: chosen.scalar(f"SELECT coalesce(bool_or(label = {literal(name)}), false) FROM ({groups})")
    )
    numeric, whole = f"regexp_full_match(label, {literal(NUMBER)})", is_integer_label("label")
    numeric, whole = chosen.query(f"SELECT bool_and({numeric}), bool_and({whole}) FROM ({groups})")[0]
    order = f"TRY_CAST(label AS {'BIGINT' if whole else 'DOUBLE'}), label" if numeric else "label"
    columns = chosen.connection.execute(f"{groups} ORDER BY {order}").fetchnumpy()
    labels = columns["label"]
    if len(labels) < 2:
        shown = "the same" if chosen.confidential else repr(labels[0])
        raise chosen.error(
            f"every value is {shown}, which does not tell the domain. Give all answers that were possible "
            f"({option('domain')}): a range such as 0:99 or a file of labels.",
            argument="domain",
        )
    return Domain.of(labels), np.asarray(columns["amount"], dtype=np.int64)


def declare_category(chosen: Scan, domain: Domain) -> None:
    """Creates the SQL type `category` of a listed domain; a range needs none."""
    if domain.is_range:
        return
    chosen.query("DROP TYPE IF EXISTS category")
    chosen.query(f"CREATE TYPE category AS ENUM (SELECT label FROM {_labels_of(chosen, domain)} ORDER BY position)")


def _labels_of(chosen: Scan, domain: Domain) -> str:
    """The relation of the labels of a domain and their positions; among numbers 0.10 is 0.1."""
    names = {"label": domain.labels().astype(object), "position": np.arange(domain.num_categories)}
    chosen.connection.register("labels", names)
    if chosen.kind != "number":
        return "labels"
    alike = f"GROUP BY {float_text('label')} HAVING count(*) > 1 LIMIT 1"
    for first, second in chosen.query(f"SELECT min(label), max(label) FROM labels {alike}"):
        problem = (
            f"{first!r} and {second!r} are one number, and column {chosen.column!r} holds numbers: name one of them."
        )
        raise chosen.error(problem, value=second)
    return f"(SELECT {float_text('label')} AS label, position FROM labels)"


def no_values(chosen: Scan, num_missing: int) -> DataError:
    """The error for a column without a value."""
    missing = f"all {num_missing:,} values are missing" if num_missing > 1 else "the one value is missing"
    return chosen.error(f"{missing if num_missing else 'there are no rows'}.")


def _outside(chosen: Scan, domain: Domain) -> DataError:
    """The error for values outside the domain, of the table `placed` (position, label, amount)."""
    outside = "FROM placed WHERE position IS NULL"
    total, different = chosen.query(f"SELECT CAST(sum(amount) AS BIGINT), count(*) {outside}")[0]
    examples = chosen.query(f"SELECT label {outside} ORDER BY amount DESC, label LIMIT 4")
    several = f", such as {', '.join(_shown(label) for (label,) in examples)}" if different > 1 else ""
    said = number(total, "such value", "such values") if total else "no report names it, but it is listed"
    more = ""
    if chosen.confidential:
        showing = option("show_values=True", "--show-values")
        several, more = "", f" Logs keep messages, so values are not repeated here: {showing} names them."
    named = {spelling(label) for (label,) in examples if not label.isascii()}
    alike = named and named.intersection(map(spelling, domain.listed or ()))
    if alike and not chosen.confidential:
        several += f"; the domain has {next(iter(alike))!r} in another form of Unicode, or with characters unseen"
    problem = (
        f"is not in the domain {domain.describe()}; {said}{several}. "
        f"Give a domain that holds every possible answer ({option('domain')}), correct the data, or "
        f"name the values that mean no answer ({option('missing')}).{more}"
    )
    return _first_error(
        chosen,
        lambda one: (
            f"NOT {has_no_answer(one.kind, one.source.missing, numbers=domain.is_range)} "
            f"AND ({position(one.kind, domain)}) IS NULL"
        ),
        lambda _: problem,
    )


def _refused_counts(chosen: Scan, counts_column: str, refused: int) -> DataError:
    """The error for counts that are negative, fractional, missing or no numbers."""

    def is_refused(one: Scan) -> str:
        amount = integer(one.amount_kind, "amount")
        return f"({amount}) IS NULL OR ({amount}) < 0"

    def problem(value: str | None) -> str:
        # A whole number, in digits or as DuckDB writes large ones.
        whole = re.fullmatch(r"\+?[0-9]+(\.0*)?|[0-9.]+e\+[0-9]+", value or "")
        return (
            f"is {'too large' if whole else 'not a count'}; {number(refused, 'such row', 'such rows')}. "
            f"Counts are whole numbers from 0 to {2**63 - 1:,}: correct the table."
        )

    return _first_error(chosen, is_refused, problem, counts_column)


def _first_error(
    chosen: Scan,
    condition: Callable[[Scan], str],
    problem: Callable[[str | None], str],
    counts_column: str | None = None,
) -> DataError:
    """The error about the value, or the count, of the first row that fulfils a condition."""
    chosen.query("SET preserve_insertion_order = true")
    column = None if chosen.transactions else chosen.column
    # Row numbers count within a file, so the files are read again, one by one.
    for file in chosen.files:
        part = replace(chosen.source, paths=file, column=column)
        one = scan(chosen.connection, part, counts_column)
        kind, cell = (one.kind, "value") if counts_column is None else (one.amount_kind, "amount")
        rows = one.query(f"SELECT row, {text(kind, cell)} FROM ({one.sql}) WHERE {condition(one)} ORDER BY row LIMIT 1")
        if rows:
            name = counts_column or column
            row, value = rows[0]
            shown = chosen.shown if counts_column is None else f"column {counts_column!r}"
            where = f"{file}, {shown}, row {row:,}" if name else f"{file}, line {row:,}"
            # Counts are not values of single users.
            if chosen.confidential and counts_column is None:
                return DataError(f"{where}: the value {problem(value)}", file=file, column=name, row=row)
            shown = "NaN, a missing number," if kind == "number" and value == "nan" else _shown(value)
            message = f"{where}: {shown} {problem(value)}"
            return DataError(message, file=file, column=name, row=row, value=value)
    return chosen.error(f"a value {problem(None)}", column=counts_column or column)


def _shown(value: str | None) -> str:
    if value is None:
        return "an empty cell"
    return repr(value if len(value) <= 60 else value[:57] + "…")
