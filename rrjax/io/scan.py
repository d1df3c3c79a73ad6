"""Scans: SQL queries of a column of a source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from rrjax.data.errors import DataError, option
from rrjax.data.number_text import plain
from rrjax.io.database import (
    Connection,
    Kind,
    connect,
    explaining,
    file_list,
    is_missing,
    literal,
    parquet,
    some,
    text,
)
from rrjax.io.delimited import Reading, delimited, first_record, lines_of, reading_of
from rrjax.io.source import Format, FrameSource, Source
from rrjax.io.types_of_columns import (
    INTEGERS,
    Column,
    as_texts,
    joined,
    kind_of,
    plain_type,
    type_of_values,
)

_BLANKS = r"E' \t\r\n'"
"""SQL literal of `domain.BLANKS`."""
# As in `database.parquet`, no reader takes columns from the names of folders.
_JSON = "format='auto', records=true, hive_partitioning=false"


@dataclass(frozen=True)
class Scan:
    """The query of one column of a source.

    `sql` has the columns `row` (from 1 within its file, for one file), `value`, with a column of counts `amount`, and
    further columns, key0, key1 and so on.
    """

    connection: Connection
    source: Source
    column: str
    kind: Kind
    sql: str
    amount_kind: Kind
    unsure: bool = False
    """Whether the name of the column comes from a first line that may be confidential data instead of a header."""
    key_kinds: Sequence[Kind] = ()
    are_numbers: bool = False
    """Whether the files say that texts are numbers, as JSON does, as far as a sample of its rows shows."""

    @property
    def key_texts(self) -> str:
        """The further columns as texts, empty where there is no value, under their names: numbers are grouped first."""
        kinds = enumerate(self.key_kinds)
        return ", ".join(f"coalesce({text(kind, f'key{place}')}, '') AS key{place}" for place, kind in kinds)

    @property
    def shown(self) -> str:
        """The column in messages."""
        return "its only column" if self.unsure and self.source.column is None else f"column {self.column!r}"

    @property
    def files(self) -> tuple[str, ...]:
        """The files, in the order of reading."""
        return self.source.files()

    @property
    def transactions(self) -> bool:
        """Whether the files have no columns."""
        return self.source.file_format() == "transactions"

    @property
    def confidential(self) -> bool:
        """Whether messages must not repeat values."""
        return self.source.show_values is False

    def error(self, problem: str, **attributes: Any) -> DataError:
        """The error whose message is the files, the column and the problem."""
        where = some(self.files) + ("" if self.transactions else f", {self.shown}")
        place = {"file": self.files[0], "column": None if self.transactions else self.column}
        return DataError(f"{where}: {problem}", **{**place, **attributes})

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.connection.execute(sql).fetchall()

    def scalar(self, sql: str) -> Any:
        """The single value of a query."""
        return self.query(sql)[0][0]


@contextmanager
def scanning(source: Source, counts_column: str | None = None, keys: Sequence[str] = ()) -> Iterator[Scan]:
    """A scan as by `scan`, with its own connection; errors of DuckDB become a `DataError`."""
    with connect() as connection, explaining(source.files()):
        yield scan(connection, source, counts_column, keys)


def scan(connection: Connection, source: Source, counts_column: str | None = None, keys: Sequence[str] = ()) -> Scan:
    """The query of the column of a source, of its column of counts if one is named, and of further columns.

    Only the start of each file is read, and columns whose types differ between files. `DataError` for files that cannot
    be read, a missing column, or types that cannot be joined.
    """
    relations = list(_relations(connection, source, [*keys, *filter(None, [counts_column])]))
    if counts_column:
        relations[0].column(counts_column)
    column = source.column or _reported(source, relations[0]) or _only_column(relations[0], counts_column)
    if column == counts_column:
        raise relations[0].error(f"column {column!r} cannot hold both the labels and their counts.", column=column)
    for relation in relations:
        if relation.column(column)[1] == "nested":
            advice = (
                "Make them text."
                if isinstance(source, FrameSource)
                else "If they are reports of a mechanism, read the file that `rrjax randomize` wrote, with its "
                "metadata, or count them with the mechanism's `tally`."
            )
            problem = f"column {column!r} holds lists, records or intervals, and a label is one text or number."
            raise relation.error(f"{problem} {advice}", column=column)
    kind, values = _alike(connection, relations, column)
    amount_kind, amounts = _alike(connection, relations, counts_column) if counts_column else ("text", [])
    others = [_alike(connection, relations, name) for name in keys]
    selects = []
    for index, relation in enumerate(relations):
        more = f", {amounts[index]} AS amount" if amounts else ""
        more += "".join(f", {each[index]} AS key{place}" for place, (_, each) in enumerate(others))
        selects.append(f"SELECT row, {values[index]} AS value{more} FROM ({relation.sql})")
    query = " UNION ALL ".join(selects)
    kinds: list[Kind] = [kind_of_key for kind_of_key, _ in others]
    are_numbers = all(kind_of(relation.column(column)[2]) in ("integer", "number") for relation in relations)
    return Scan(connection, source, column, kind, query, amount_kind, relations[0].unsure, kinds, are_numbers)


THOUSANDS = "are written as 12.000, which may be 12 or twelve thousand: write whole numbers without a point"
"""What is said of whole numbers that may be thousands."""


def all_thousands(text: str, ends: tuple[int, int]) -> str:
    """Whether all texts of numbers with a point are such as 12.000, and thousands within the ends; NULL without any."""
    has_point = f"regexp_full_match({text}, '[+-]?([0-9]+[.][0-9]*|[.][0-9]+)')"
    three = f"regexp_full_match({text}, '[+-]?[1-9][0-9]{{0,2}}[.][0-9]{{3}}')"
    within = f"1000 * TRY_CAST({text} AS DOUBLE) BETWEEN {ends[0]} AND {ends[1]}"
    return f"bool_and({three} AND {within}) FILTER (WHERE {has_point})"


def place_of(chosen: Scan, place: int) -> tuple[str, int]:
    """The file, and the row in it from 1, of a place among the rows of all files."""
    for file in chosen.files[:-1]:
        part = replace(chosen.source, paths=file, column=chosen.column)
        rows = chosen.scalar(f"SELECT count(*) FROM ({scan(chosen.connection, part).sql})")
        if place < rows:
            return file, place + 1
        place -= rows
    return chosen.files[-1], place + 1


def error_at(chosen: Scan, place: int, problem: str, **attributes: Any) -> DataError:
    """The error whose message is the row at a place among the rows of all files, and the problem."""
    file, row = place_of(chosen, place)
    where = f"{file}, column {chosen.column!r}, row {row:,}"
    return DataError(f"{where}: {problem}", file=file, column=chosen.column, row=row, **attributes)


def selected(connection: Connection, source: Source, columns: Sequence[str]) -> str:
    """The query of some columns, unchanged and row by row, under the names k0, k1 and so on."""
    relations = list(_relations(connection, source, columns))
    kept = []
    for name in columns:
        types = {relation.column(name)[2] for relation in relations}
        # DuckDB joins them as HUGEINT, which it writes to Parquet as DOUBLE.
        wide = "UBIGINT" in types and not types.isdisjoint(INTEGERS)
        kind, own = _alike(connection, relations, name)
        kept.append([f"CAST({one} AS DECIMAL(20,0))" for one in own] if kind == "integer" and wide else own)
    if len(relations) == 1:  # columns of one type keep it, and their blanks
        (relation,) = relations
        names = [name for name, *_ in relation.columns]
        if source.file_format() != "transactions":
            kept = [[f"c{names.index(name)}"] for name in columns]
    return " UNION ALL ".join(
        f"SELECT {', '.join(f'{each[place]} AS k{number}' for number, each in enumerate(kept))} FROM ({relation.sql})"
        for place, relation in enumerate(relations)
    )


def check_header(chosen: Scan, is_answer: Callable[[str], bool]) -> None:
    """Refuses a header that nobody asked for and that is an answer: its line is probably the first row of the data."""
    source = chosen.source
    asked = source.header is not None or source.column is not None
    name = chosen.column
    spelled = {name, name.lower(), name.upper(), name.capitalize()}
    if asked or source.file_format() not in ("csv", "tsv") or not any(map(is_answer, spelled)):
        return
    file = chosen.files[0]
    raise DataError.at(
        file,
        "is the first line a header? It holds an answer. If it names the columns say so "
        f"({option('header=True', '--header')}), if it is data say that ({option('header=False', '--no-header')}).",
        row=1,
        argument="header",
    )


def column_names(source: Source) -> list[str]:
    """The column names of the first file of a source."""
    with connect() as connection, explaining(source.files()):
        return [name for name, *_ in next(_relations(connection, source)).columns]


def _alike(connection: Connection, relations: Sequence[_Relation], name: str) -> tuple[Kind, list[str]]:
    """The kind of a column in all relations, and its expression of that kind in each.

    A relation without a value there has no say. `DataError` for types that are not joined exactly.
    """
    columns = [relation.column(name) for relation in relations]
    if (one := joined(columns)) is not None:
        return one
    said = [_said(connection, relation, name) for relation in relations]
    filled = [column for column in said if column is not None]
    if (one := joined(filled or columns[:1]) or as_texts(filled)) is None:
        raise _of_two_types([each for each, column in zip(relations, said, strict=True) if column is not None], name)
    if not filled:
        return "text", ["CAST(NULL AS VARCHAR)"] * len(said)
    kind, own = one
    nothing, left = "CAST(NULL AS VARCHAR)" if kind == "text" else "NULL", iter(own)
    return kind, [nothing if column is None else next(left) for column in said]


def _said(connection: Connection, relation: _Relation, name: str) -> Column | None:
    """The column with the type that its values need, as by `type_of_values`; None without a value."""
    own, kind, type_name = relation.column(name)
    missing = f"{own} IS NULL" if kind == "nested" else is_missing(kind, own)
    largest = f"max(abs({f'CAST({own} AS HUGEINT)' if kind == 'integer' else own}))"
    size = largest if kind in ("integer", "number") else "any_value(1)"
    value = connection.execute(f"SELECT {size} FROM ({relation.sql}) WHERE NOT {missing}").fetchall()[0][0]
    return None if value is None else (own, kind, type_of_values(type_name, value))


def _of_two_types(relations: Sequence[_Relation], name: str) -> DataError:
    """The error for a column of types that are not joined exactly, of relations with different ones."""
    files = {relation.column(name)[2]: relation.files[0] for relation in reversed(relations)}
    (first, file), (second, other), *_ = reversed(files.items())
    return DataError(
        f"{other}: column {name!r} has the type {second}, and {first} in {file}. Joined, one value could count as "
        "two, or be changed: write the column with one type in all files.",
        file=other,
        column=name,
    )


@dataclass(frozen=True)
class _Relation:
    """Files with the same columns of the same types, which are read together."""

    files: tuple[str, ...]
    sql: str
    columns: list[tuple[str, str, Kind, str]]
    """Name, expression, kind, and type in DuckDB."""
    unsure: bool = False
    """Whether the names come from a first line that may be confidential data instead of a header."""
    differs: bool = False
    """Whether that is because it differs from the first lines of other files."""

    def error(self, problem: str, **attributes: Any) -> DataError:
        return DataError(f"{self.files[0]}: {problem}", file=self.files[0], **attributes)

    def column(self, name: str) -> tuple[str, Kind, str]:
        name = str(name)
        named = [column[1:] for column in self.columns if column[0] == name]
        if len(named) == 1:
            return named[0]
        names = [label for label, *_ in self.columns]
        if named:
            raise self.equal_names(name)
        similar = [] if self.unsure else get_close_matches(name, names, n=1)
        message = f"there is no column {name!r}" + (f"; did you mean {similar[0]!r}?" if similar else ".")
        # A number as a name means a file without header: its first line is confidential.
        if self.unsure:
            message += self.hidden
        elif not name.isdigit() or "1" in names:
            message += f" Its columns: {_listing(names)}."
        else:
            message += f" If the file has no header line, say so ({option('header=False', '--no-header')})."
        raise self.error(message, column=name)

    @property
    def hidden(self) -> str:
        """What is said instead of names that may be data."""
        if not self.differs:
            return (
                f" Its first line was taken for the names of {len(self.columns)} columns. If it is, see them with "
                f"{option('header=True', '--header')}; if it is data, say so ({option('header=False', '--no-header')})."
            )
        return (
            f" Its first line is not that of the other files. Is it a header? It is not repeated here, because it may "
            f"be data: {option('show_values=True', '--show-values')} shows it."
        )

    def equal_names(self, name: str) -> DataError:
        *places, last = (str(place) for place, (other, *_) in enumerate(self.columns, start=1) if other == name)
        if self.unsure:  # the name may be a value
            return self.error(f"columns {', '.join(places)} and {last} seem to have the same name.{self.hidden}")
        return self.error(
            f"columns {', '.join(places)} and {last} have the same name, {name!r}, so that it cannot be told which "
            "one is meant. Rename them in the file.",
            column=name,
        )


def _reported(source: Source, relation: _Relation) -> str | None:
    """The column of reports in the metadata, if there are several columns."""
    if len(relation.columns) < 2:
        return None
    metadata = source.metadata()
    names = [name for name, *_ in relation.columns]
    return metadata.column if metadata is not None and metadata.column in names else None


def _only_column(relation: _Relation, counts_column: str | None) -> str:
    names = [name for name, *_ in relation.columns if name != counts_column]
    if len(names) == 1:
        return names[0]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise relation.equal_names(twice)
    if not names:
        problem = f"{relation.files[0]} has one column, {counts_column!r}, the counts; labels must stand beside it."
        raise DataError(problem, file=relation.files[0], column=counts_column)
    message = f"has {len(names)} columns; say which one to read ({option('column')})"
    message += "." + relation.hidden if relation.unsure else f": {_listing(names)}."
    raise DataError(f"{relation.files[0]} {message}", file=relation.files[0], argument="column")


def _listing(names: Sequence[str]) -> str:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name) for name in names[:20]) + more


def _relations(connection: Connection, source: Source, others: Sequence[str] = ()) -> Iterator[_Relation]:
    files = source.files()
    form: Format = source.file_format()
    # Only neighbouring files are read together, so that rows keep the order of the files.
    if form in ("csv", "tsv"):
        delimiter = source.delimiter or ("," if form == "csv" else "\t")
        form_of = delimiter, source.header is not False

        def kind_of(file: str) -> tuple[tuple[str, ...], Reading]:
            record, is_odd = first_record(file, delimiter)
            names = _column_names(file, record, delimiter, source)
            return names, reading_of(file, len(names), *form_of, is_odd=is_odd)

        groups = [(tuple(group), *kind) for kind, group in groupby(files, kind_of)]
        # Of lines that are all said to be headers, one that differs from the others may be data all the same.
        differ = source.header is True and len({names for _, names, *_ in groups}) > 1
        unsure = source.show_values is False and (source.header is None or differ)
        for group, names, reading in groups:
            relation = _delimited(group, names, delimited(connection, group, len(names), *form_of, reading))
            yield replace(relation, unsure=unsure, differs=unsure and differ)
    elif form == "parquet":
        for schema, same in groupby(files, lambda file: _schema(connection, file)):
            group = tuple(same)
            yield _typed(group, schema, parquet(group, "binary_as_string=true"))
    elif isinstance(source, FrameSource):
        connection.register("frame", source.rows.table)
        described = connection.execute("DESCRIBE SELECT * FROM frame").fetchall()
        fields = zip(source.rows.table.schema, described, strict=True)
        # Periods and intervals of pandas are numbers there, which do not name them.
        own = [(field.name, "STRUCT" if _extension(field).startswith("pandas.") else row[1]) for field, row in fields]
        yield _typed(files, own, "frame")
    elif form == "jsonl":
        yield _json_lines(connection, files, {*filter(None, [source.column]), *others})
    else:
        if source.column is not None:
            message = f"{files[0]}: a transaction file has no columns; leave out {source.column!r}."
            raise DataError(message, file=files[0], column=source.column)
        yield _transactions(files, source)


def _delimited(files: tuple[str, ...], names: tuple[str, ...], read: str) -> _Relation:
    sql = f"SELECT row_number() OVER () AS row, * FROM ({read})"
    return _Relation(files, sql, [(name, _trimmed(f"c{index}"), "text", "VARCHAR") for index, name in enumerate(names)])


def _trimmed(value: str) -> str:
    """The value without blanks around it: a CSV has them after commas, and DuckDB does not distinguish quoted ones."""
    return f"trim({value}, {_BLANKS})"


def _column_names(file: str, record: list[str], delimiter: str, source: Source) -> tuple[str, ...]:
    if source.header is not False and re.fullmatch("sep=.?", record[0].strip().lower()):
        also = "" if source.delimiter else f", and name the delimiter ({option('delimiter')})"
        raise DataError.at(file, f"the first line is one for Excel, 'sep=': delete it{also}", row=1, argument="data")
    marks = [mark for mark in ";\t|," if mark != delimiter and mark in record[0]]
    other = max(marks, key=record[0].count, default=None)
    # A delimiter within a quoted name parts it if another one delimits: the first half has its beginning.
    parted = other is not None and record[0].count('"') % 2 == 1 and re.search(rf'{re.escape(other)} *"', record[0])
    if source.delimiter is None and other is not None and (len(record) == 1 or parted):
        line = delimiter.join(record)
        shown = "" if source.show_values is False else f", {line[:60]!r},"
        columns = "one column" if len(record) == 1 else f"{len(record)} columns"
        raise DataError.at(
            file,
            f"the first line{shown} is {columns}. Is the delimiter {other!r} ({option('delimiter')})? If it is "
            f"{columns}, give {delimiter!r}.",
            row=1,
            argument="delimiter",
        )
    if source.header is False:
        return tuple(str(number) for number in range(1, len(record) + 1))
    names = tuple(name.strip() for name in record)
    odd = next((name for name in names if not name or _is_number(name)), None)
    # pandas and R write the names of rows first, under none.
    if odd == "" and source.column in names[1:] and all(name and not _is_number(name) for name in names[1:]):
        odd = None
    if source.header is None and odd is not None:
        shown = "a number, or an empty name" if source.show_values is False else repr(odd)
        raise DataError.at(
            file,
            f"is the first line a header? It holds {shown}. If it names the columns say so "
            f"({option('header=True', '--header')}), if it is data say that ({option('header=False', '--no-header')}) "
            "and give the column by its number, from 1.",
            row=1,
            argument="header",
        )
    return names


def _is_number(name: str) -> bool:
    try:
        float(plain(name))
    except ValueError:
        return False
    return True


def _schema(connection: Connection, file: str) -> list[tuple[str, str]]:
    query = f"DESCRIBE SELECT * FROM {parquet([file], 'binary_as_string=true')}"
    kinds = [kind for _, kind, *_ in connection.execute(query).fetchall()]
    # DuckDB renames a column whose name is that of an earlier one but for case. Members of nested columns follow them.
    listed = f"SELECT name, coalesce(num_children, 0) FROM parquet_schema({file_list([file])})"
    names: list[str] = []
    left = 0
    for name, members in connection.execute(listed).fetchall()[1:]:
        if not left:
            names.append(name)
        left = max(left - 1, 0) + members
    return list(zip(names, kinds, strict=True))


def _typed(files: tuple[str, ...], schema: list[tuple[str, str]], read: str) -> _Relation:
    # Files of different types are not read together: DuckDB would cast, and round, the later ones to the types of the
    # first.
    columns: list[tuple[str, str, Kind, str]] = []
    for index, (name, type_name) in enumerate(schema):
        kind = kind_of(type_name)
        own = _trimmed(f"CAST(c{index} AS VARCHAR)") if kind == "text" else f"c{index}"
        columns.append((name, own, kind, plain_type(type_name)))
    return _Relation(files, _numbered(len(schema), read), columns)


def _extension(field: Any) -> str:
    """The name of the extension type of a field of Arrow, or of its categories; "" without one."""
    return getattr(getattr(field.type, "value_type", field.type), "extension_name", "")


def _numbered(number: int, read: str) -> str:
    """The query of all columns, by their places, as c0, c1 …, names that cannot clash with the number of the row."""
    columns = ", ".join(f"c{index}" for index in range(number))
    return f"SELECT row_number() OVER () AS row, {columns} FROM {read} AS columns ({columns})"


def _json_lines(connection: Connection, files: tuple[str, ...], wanted: set[str]) -> _Relation:
    def types_in(sample: str) -> dict[str, str]:
        options = f"{_JSON}, maximum_depth=2, union_by_name=true{sample}"
        columns = connection.execute(f"DESCRIBE SELECT * FROM read_json({file_list(files)}, {options})").fetchall()
        return {row[0]: row[1] for row in columns}

    names = types_in("")
    if not wanted <= names.keys():
        names = types_in(", sample_size=-1")
    _check_keys(connection, files, names)
    types = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    read = f"read_json({file_list(files)}, {_JSON}, columns={{{types}}})"
    columns: list[tuple[str, str, Kind, str]] = [
        (name, _trimmed(f"c{index}"), "nested" if kind_of(type_name) == "nested" else "text", type_name)
        for index, (name, type_name) in enumerate(names.items())
    ]
    return _Relation(files, _numbered(len(names), read), columns)


def _check_keys(connection: Connection, files: tuple[str, ...], names: Iterable[str]) -> None:
    """Refuses keys that are equal but for case: DuckDB renames one, to NAME_1, and finds no value under that name."""
    known = set(names)
    bases = {re.sub(r"_[0-9]+$", "", name) for name in known} - known
    if {base.lower() for base in bases}.isdisjoint(name.lower() for name in known):
        return
    keys = f"SELECT DISTINCT unnest(json_keys(json)) FROM read_json_objects({file_list(files)}, format='auto')"
    first: dict[str, str] = {}
    for (key,) in sorted(connection.execute(keys).fetchall()):
        if (other := first.setdefault(key.lower(), key)) != key:
            problem = f"the keys {other!r} and {key!r} differ in capitals alone. Give one of them another name."
            raise DataError.at(files[0], problem, column=key)


def _transactions(files: tuple[str, ...], source: Source) -> _Relation:
    delimiter = literal(source.delimiter or " ")
    # If spaces separate items, tabs do as well.
    line = "line" if source.delimiter else r"translate(line, E'\t', ' ')"
    lines = f"SELECT row_number() OVER () AS row, trim({line}, {_BLANKS}) AS line FROM ({lines_of(files)})"
    if source.items == "first":
        sql = f"SELECT row, trim(split_part(line, {delimiter}, 1), {_BLANKS}) AS item FROM ({lines})"
    else:
        sql = (
            f"SELECT row, item FROM (SELECT row, trim(unnest(string_split(line, {delimiter})), {_BLANKS}) AS item "
            f"FROM ({lines})) WHERE item <> ''"
        )
    return _Relation(files, sql, [("item", "item", "text", "VARCHAR")])
