"""Files of reports of a longitudinal protocol: a file holds one round, users have reports in several rounds."""

from __future__ import annotations

import dataclasses

import numpy as np

from rrjax.data.errors import DataError
from rrjax.io.codings import CODINGS, read_reports
from rrjax.io.metadata import Metadata
from rrjax.io.rows import read_rows
from rrjax.io.source import Source


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
    """The name of the user of each row, texts `[N]`.

    Raises:
        DataError: A row without a user, or a user with two rows.
    """
    rows = read_rows(dataclasses.replace(source, column=column, missing=()), None)
    file = source.files()[0]
    if rows.num_missing:
        row = int(np.argmin(rows.indices)) + 1
        raise DataError(f"{file}, column {column!r}, row {row:,}: no user", file=file, column=column, row=row)
    different, first = np.unique(rows.indices, return_index=True)
    if len(different) < len(rows.indices):
        again = np.ones(len(rows.indices), bool)
        again[first] = False
        row = int(np.argmax(again)) + 1
        raise DataError(
            f"{file}, column {column!r}, row {row:,}: a second row of the same user; each user has one report a round",
            file=file,
            column=column,
            row=row,
        )
    return np.asarray([str(label) for label in rows.domain.labels()], object)[rows.indices]


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
