"""Files of reports of a longitudinal protocol: a file holds one round, users have reports in several rounds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal

import numpy as np

from rrjax.data.errors import DataError
from rrjax.io.codings import CODINGS, read_reports
from rrjax.io.database import declare_spelling, user_name
from rrjax.io.metadata import Metadata
from rrjax.io.rows import place_of, read_rows
from rrjax.io.scan import Scan, scanning
from rrjax.io.source import Source

_NUMBER = r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,9})?"
_PLAIN = r"0|-?[1-9][0-9]*"


def rounds_of(source: Source) -> dict[int, Source]:
    """The files of each round, in the order of the rounds; empty if they are not of a longitudinal protocol."""
    found: dict[int, list[str]] = {}
    for file in source.files():
        metadata = Source(file).metadata() if source.file_format() == "parquet" else None
        if metadata is None or metadata.round is None:
            return {}
        found.setdefault(metadata.round, []).append(file)
    return {number: Source(found[number]) for number in sorted(found)}


def read_users(source: Source, column: str) -> np.ndarray:
    """The name of the user of each row, texts `[N]`, the same for 3, "3.0" and 3.0, and for all forms of Unicode.

    Raises:
        DataError: As `check_users`.
    """
    with _scanned(source, column) as (chosen, names):
        return np.asarray(chosen.connection.execute(names).fetchnumpy()["name"], object)


def check_users(source: Source, column: str) -> None:
    """Raises `DataError` for a row without a user, or with an id that is not exact, and for a user with two rows."""
    with _scanned(source, column):
        pass


def one_number(users: Iterable[str]) -> list[list[str]]:
    """The groups of different ids that are one number, such as 7, 007 and +7, or 1000 and 1e3.

    Example:
        >>> one_number(["7", "8", "x7", "007", "1e3"])
        [['7', '007']]
    """
    names = dict.fromkeys(users)
    numbers = [name for name in names if re.fullmatch(_NUMBER, name)]
    if all(re.fullmatch(_PLAIN, name) for name in numbers):  # the usual case: no two are one number
        return []
    groups: dict[Decimal, list[str]] = {}
    for name in numbers:
        groups.setdefault(Decimal(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


@contextmanager
def _scanned(source: Source, column: str) -> Iterator[tuple[Scan, str]]:
    """The scan of a column of users, checked, and the query of their names in the order of the rows."""
    with scanning(dataclasses.replace(source, column=column, missing=())) as chosen:
        chosen.query("SET preserve_insertion_order = true")
        declare_spelling(chosen.connection)
        names = f"SELECT {user_name(chosen.kind)} AS name FROM ({chosen.sql})"
        odd = chosen.query(
            "SELECT name IS NULL, min(place) AS first, max(place) FROM (SELECT row_number() OVER () - 1 AS place, name "
            f"FROM ({names})) GROUP BY name HAVING name IS NULL OR count(*) > 1 ORDER BY first LIMIT 1"
        )
        if odd:
            raise _unfit(chosen, *odd[0])
        yield chosen, names


def _unfit(chosen: Scan, nameless: bool, first: int, last: int) -> DataError:
    """The error about the first row without a name, or about the first and the last row of one name."""
    file, row = place_of(chosen, first)
    problem = "no user, or a number that is too large to be exact as a float"
    if not nameless:
        problem = f"another row of the user of {file}, row {row:,}; each user has one report a round"
        file, row = place_of(chosen, last)
    where = f"{file}, column {chosen.column!r}, row {row:,}"
    return DataError(f"{where}: {problem}", file=file, column=chosen.column, row=row)


def users_of(rounds: dict[int, Source], metadata: Metadata) -> list[np.ndarray]:
    """The names of the users of each round, in the order of its rows."""
    return [read_users(source, metadata.user or "") for source in rounds.values()]


def reports_per_user(users: list[np.ndarray]) -> np.ndarray:
    """The number of reports of each user in all rounds together, `[N]`; `users` as from `users_of`."""
    return np.unique(np.concatenate(users).astype(str), return_counts=True)[1]


def reports_of_users(rounds: dict[int, Source], metadata: Metadata, users: list[np.ndarray]) -> list[np.ndarray]:
    """The reports of each user in all rounds together: arrays `[N, T, …]`, one for each number T of rounds."""
    reports = []
    for source in rounds.values():
        if CODINGS[metadata.mechanism.name] == "labels":
            column = dataclasses.replace(source, column=metadata.column)
            reports.append(read_rows(column, metadata.domain).indices)
        else:
            reports.append(read_reports(source, metadata))
    codes = np.unique(np.concatenate(users).astype(str), return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    rows, numbers = np.concatenate(reports)[order], np.bincount(codes)
    firsts = np.cumsum(numbers) - numbers
    return [rows[firsts[numbers == each][:, None] + np.arange(each)] for each in np.unique(numbers)]
