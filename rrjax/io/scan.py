"""From a source to the SQL that reads its column."""

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from typing import TYPE_CHECKING

from rrjax.io.database import file_list, identifier, literal
from rrjax.io.errors import DataError
from rrjax.io.expressions import Kind, text
from rrjax.io.source import Format, Source

if TYPE_CHECKING:
    import duckdb

__all__ = ["Filter", "Scan", "scan"]

# A column, a comparison, and the number to compare with.
Filter = tuple[str, str, float]

_BLANKS = r"E' \t\r\n'"
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_FLOATS = ("FLOAT", "DOUBLE")


@dataclass(frozen=True)
class Scan:
    """How to read one column of a source.

    Attributes:
        files: the files, in the order they are read.
        format: their format.
        column: name of the column.
        kind: the kind of its values.
        sql: a query with the columns `row` (from 1 within its file, where a single file is read),
            `value` and, where counts were asked for, `amount`.
        amount_kind: the kind of the counts.
        filters: what a row fulfils to be read.
    """

    files: tuple[str, ...]
    format: Format
    column: str
    kind: Kind
    sql: str
    amount_kind: Kind = "text"
    filters: Sequence[Filter] = ()


@dataclass(frozen=True)
class _Relation:
    """Files that can be read together: they have the same columns of the same types."""

    files: tuple[str, ...]
    sql: str
    columns: tuple[tuple[str, str, Kind], ...]  # name, expression, kind

    def column(self, name: str) -> tuple[str, Kind]:
        names = [column[0] for column in self.columns]
        if names.count(name) > 1:
            raise DataError(f"{self.files[0]}: {names.count(name)} columns are called {name!r}.")
        if name not in names:
            near = get_close_matches(name, names, n=1)
            raise DataError(
                f"{self.files[0]}: there is no column {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else ".")
                + f" Its columns: {_listing(names)}."
                + (
                    " If the file has no header line, say so (header=False, --no-header)."
                    if name.isdigit() and "1" not in names
                    else ""
                )
            )
        return next((expression, kind) for label, expression, kind in self.columns if label == name)


def scan(
    connection: "duckdb.DuckDBPyConnection",
    source: Source,
    counts_column: str | None = None,
    filters: Sequence[Filter] = (),
) -> Scan:
    """The query that reads a source's column, and its counts column where one is named.

    Args:
        connection: where the files' own schemas are looked up.
        source: the files and how to read them.
        counts_column: name of a second column, of ready counts.
        filters: read only the rows that fulfil all of these.

    Returns:
        The scan; nothing but the beginning of each file was read.

    Raises:
        DataError: files that cannot be read, or a column that is not there.
    """
    files = source.files()
    form = source.format_of(files)
    relations = list(_relations(connection, source, files, form))
    if counts_column:
        relations[0].column(counts_column)
    column = source.column or _only_column(relations[0], counts_column)
    if column == counts_column:
        raise DataError(f"{files[0]}: column {column!r} cannot hold both the labels and their counts.")
    chosen = [relation.column(column) for relation in relations]
    kind = _common_kind(chosen)
    amounts = [relation.column(counts_column) for relation in relations] if counts_column else []
    amount_kind = _common_kind(amounts)
    selects = []
    for index, relation in enumerate(relations):
        own, own_kind = chosen[index]
        selected = own if own_kind == kind else text(own_kind, own)
        amount = ""
        if amounts:
            own, own_kind = amounts[index]
            amount = f", {own if own_kind == amount_kind else text(own_kind, own)} AS amount"
        conditions = [
            f"TRY_CAST({relation.column(name)[0]} AS DOUBLE) {comparison} {number}"
            for name, comparison, number in filters
        ]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        selects.append(f"SELECT row, {selected} AS value{amount} FROM ({relation.sql}){where}")
    return Scan(files, form, column, kind, " UNION ALL ".join(selects), amount_kind, filters)


def _common_kind(columns: list[tuple[str, Kind]]) -> Kind:
    kinds: set[Kind] = {kind for _, kind in columns}
    return kinds.pop() if len(kinds) == 1 else "text"


def _only_column(relation: _Relation, counts_column: str | None) -> str:
    names = [name for name, _, _ in relation.columns if name != counts_column]
    if len(names) == 1:
        return names[0]
    raise DataError(
        f"{relation.files[0]} has {len(names)} columns; say which one to read (column=, --column): {_listing(names)}."
    )


def _listing(names: Sequence[str]) -> str:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name) for name in names[:20]) + more


def _relations(
    connection: "duckdb.DuckDBPyConnection", source: Source, files: tuple[str, ...], form: Format
) -> Iterator[_Relation]:
    if form in ("csv", "tsv"):
        delimiter = source.delimiter or ("," if form == "csv" else "\t")
        # Only neighbours are read together, so that rows keep the order of the files.
        for names, group in groupby(files, lambda file: _column_names(file, delimiter, source)):
            yield _delimited(tuple(group), names, delimiter, source.header is not False)
    elif form == "parquet":
        for schema, group in groupby(files, lambda file: _schema(connection, file)):
            yield _parquet(tuple(group), schema)
    elif form == "jsonl":
        yield _json_lines(connection, files, source.column)
    else:
        if source.column is not None:
            raise DataError(f"{files[0]}: a transaction file has no columns; leave out {source.column!r}.")
        yield _transactions(files, source)


def _delimited(files: tuple[str, ...], names: tuple[str, ...], delimiter: str, header: bool) -> _Relation:
    # Every column is text and every property is given: the sniffer would drop odd first lines.
    types = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(len(names)))
    sql = (
        f"SELECT row_number() OVER () AS row, * FROM read_csv({file_list(files)}, "
        f"columns={{{types}}}, auto_detect=false, header={str(header).lower()}, "
        f"delim={literal(delimiter)}, quote='\"', escape='\"', strict_mode=true)"
    )
    columns: list[tuple[str, str, Kind]] = [
        (name, f"trim(c{index}, {_BLANKS})", "text") for index, name in enumerate(names)
    ]
    return _Relation(files, sql, tuple(columns))


def _column_names(file: str, delimiter: str, source: Source) -> tuple[str, ...]:
    record = _first_record(file, delimiter)
    other = next((mark for mark in ";\t|," if mark != delimiter and mark in record[0]), None)
    if source.delimiter is None and len(record) == 1 and other is not None:
        raise DataError(
            f"{file}: the first line, {record[0][:60]!r}, is one column. "
            f"Is the delimiter {other!r} (delimiter=, --delimiter)? "
            f"If it is one column, give {delimiter!r}."
        )
    if source.header is False:
        return tuple(str(number) for number in range(1, len(record) + 1))
    names = tuple(name.strip() for name in record)
    if source.header is None:
        odd = next((name for name in names if not name or _is_number(name)), None)
        if odd is not None:
            raise DataError(
                f"{file}: is the first line a header? It holds {odd!r}. If it names the columns "
                "say so (header=True, --header), if it is data say that (header=False, "
                "--no-header) and give the column by its number, from 1."
            )
    return names


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _first_record(file: str, delimiter: str) -> list[str]:
    opener = gzip.open if file.lower().endswith(".gz") else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            record = next(csv.reader(stream, delimiter=delimiter), [])
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file}: the gzip data are damaged or cut short. Download or copy the file again.") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: the text is not UTF-8. Convert it first, for example with: iconv -f latin1 -t utf-8"
        ) from error
    except csv.Error as error:
        raise DataError(f"{file}, line 1: {error}.") from error
    if not record:
        raise DataError(f"{file}: the first line is blank; it must be a header or data.")
    return record


def _schema(connection: "duckdb.DuckDBPyConnection", file: str) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(
        f"DESCRIBE SELECT * FROM read_parquet({file_list([file])}, binary_as_string=true)"
    ).fetchall()
    return tuple((name, type_name) for name, type_name, *_ in rows)


def _parquet(files: tuple[str, ...], schema: tuple[tuple[str, str], ...]) -> _Relation:
    # Files of different types are not read together: DuckDB would cast, and round, the later ones
    # to the types of the first.
    columns: list[tuple[str, str, Kind]] = []
    for index, (name, type_name) in enumerate(schema):
        column = f"c{index}"
        if type_name.removeprefix("U") in _INTEGERS:
            columns.append((name, column, "integer"))
        elif type_name in _FLOATS or type_name.startswith("DECIMAL"):
            columns.append((name, column, "number"))
        else:
            columns.append((name, f"CAST({column} AS VARCHAR)", "text"))
    sql = (
        f"SELECT row_number() OVER () AS row, {_renamed(name for name, _ in schema)} "
        f"FROM read_parquet({file_list(files)}, binary_as_string=true)"
    )
    return _Relation(files, sql, tuple(columns))


def _renamed(names: Iterable[str]) -> str:
    """All columns under names of our own, which cannot clash with the number of the row."""
    return ", ".join(f"{identifier(name)} AS c{index}" for index, name in enumerate(names))


def _json_lines(connection: "duckdb.DuckDBPyConnection", files: tuple[str, ...], column: str | None) -> _Relation:
    def names_in(sample: str) -> list[str]:
        found = connection.execute(
            f"DESCRIBE SELECT * FROM read_json({file_list(files)}, format='auto', "
            f"maximum_depth=1, union_by_name=true{sample})"
        ).fetchall()
        return [row[0] for row in found]

    names = names_in("")
    if column is not None and column not in names:
        names = names_in(", sample_size=-1")
    types = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    sql = (
        f"SELECT row_number() OVER () AS row, {_renamed(names)} "
        f"FROM read_json({file_list(files)}, format='auto', columns={{{types}}})"
    )
    return _Relation(files, sql, tuple((name, f"c{index}", "text") for index, name in enumerate(names)))


def _transactions(files: tuple[str, ...], source: Source) -> _Relation:
    delimiter = literal(source.delimiter or " ")
    # Where spaces separate, tabs do as well.
    line = "line" if source.delimiter else r"translate(line, E'\t', ' ')"
    # A line is one value: no delimiter that text holds, and no quotes.
    lines = (
        f"SELECT row_number() OVER () AS row, trim({line}, {_BLANKS}) AS line "
        f"FROM read_csv({file_list(files)}, columns={{'line': 'VARCHAR'}}, "
        "auto_detect=false, header=false, delim=E'\\x1f', quote='', escape='')"
    )
    if source.items == "first":
        sql = f"SELECT row, trim(split_part(line, {delimiter}, 1), {_BLANKS}) AS item FROM ({lines})"
    else:
        sql = (
            "SELECT row, trim(item) AS item FROM (SELECT row, unnest(string_split(line, "
            f"{delimiter})) AS item FROM ({lines})) WHERE trim(item) <> ''"
        )
    return _Relation(files, sql, (("item", "item", "text"),))
