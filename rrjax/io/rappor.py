"""Counts, parameters and candidates of RAPPOR, in the files of the published implementation (google/rappor)."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rrjax.data.errors import DataError
from rrjax.data.number_text import plain
from rrjax.io.database import opened

if TYPE_CHECKING:
    from rrjax.mechanisms.longitudinal import Rappor

PARAMETERS = ("k", "h", "m", "p", "q", "f")


@dataclass(frozen=True)
class RapporCounts:
    """What three files of RAPPOR say.

    Attributes:
        rappor: The mechanism, with the Bloom filters of the candidates.
        words: The K candidates.
        users: int64 `[m]`, the number of reports of each cohort.
        counts: int64 `[m, k]`, those whose bit is set.
    """

    rappor: Rappor
    words: list[str]
    users: np.ndarray
    counts: np.ndarray


def read_rappor(
    counts: str | os.PathLike[str], params: str | os.PathLike[str], candidates: str | os.PathLike[str]
) -> RapporCounts:
    """Reads the files of `sum_bits`, of the parameters, and of `hash_candidates` of google/rappor.

    Args:
        counts: A line for each cohort: the number of its reports, then how many of them set each bit. No header.
        params: The names k, h, m, p, q, f, and under them their values.
        candidates: The map: a line for each candidate, the word and then the bits that it sets in all cohorts,
            numbered from one through the m·k bits. No header.

    Returns:
        `RapporCounts`. Shares: `found.rappor.regression((found.users, found.counts))`; their errors:
        `found.rappor.standard_errors`.

    Raises:
        DataError: A file, a line or a number that cannot be used.

    Example:
        >>> found = read_rappor("counts.csv", "params.csv", "map.csv")  # doctest: +SKIP
        >>> theta = found.rappor.regression((found.users, found.counts)).theta  # doctest: +SKIP
    """
    from rrjax.mechanisms.longitudinal import Rappor

    table, given = _rows(counts), _parameters(params)
    size, hashes, cohorts = (_whole(params, 2, name, given[name]) for name in ("k", "h", "m"))
    numbers = [[_whole(counts, line, "a count", cell) for cell in cells] for line, cells in table]
    odd = next((line for line, cells in table if len(cells) != size + 1), None)
    if odd is not None or len(numbers) != cohorts:
        problem = f"has {len(numbers)} lines, and {params} says m = {cohorts} cohorts"
        if odd is not None:
            problem = (
                f"has {len(dict(table)[odd])} numbers, not {size + 1}: those of the reports, and of k = {size} bits"
            )
        raise DataError(f"{counts}{'' if odd is None else f', line {odd}'} {problem}", file=counts, row=odd)
    words, filters = [], []
    for line, (word, *bits) in _rows(candidates):
        places = np.asarray([_whole(candidates, line, "a bit", cell) for cell in bits], np.int64)
        if not bits or places.min() < 1 or places.max() > cohorts * size:
            problem = f"the bits of a candidate are numbers from 1 to m·k = {cohorts * size:,}"
            raise DataError(f"{candidates}, line {line}: {problem}", file=candidates, row=line)
        held = np.zeros(cohorts * size, bool)
        held[places - 1] = True
        words.append(word)
        filters.append(held.reshape(cohorts, size))
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise DataError.at(os.fspath(candidates), f"the candidate {twice!r} is there twice.", value=twice)
    probabilities = {name: _probability(params, name, given[name]) for name in ("p", "q", "f")}
    try:
        rappor = Rappor(np.stack(filters, axis=1), hashes, **probabilities)
    except ValueError as error:
        raise DataError.at(os.fspath(params), f"{error}.") from error
    whole = np.asarray(numbers, np.int64)
    more = np.argwhere(whole[:, 1:] > whole[:, :1])
    if more.size:
        line = table[more[0, 0]][0]
        problem = f"bit {more[0, 1] + 1} is set in more reports than the cohort has"
        raise DataError(f"{counts}, line {line}: {problem}", file=counts, row=line)
    return RapporCounts(rappor, words, whole[:, 0], whole[:, 1:])


def _rows(path: str | os.PathLike[str]) -> list[tuple[int, list[str]]]:
    """The lines of a CSV that are not blank, with their numbers."""
    with opened(os.fspath(path)) as stream:
        reader = csv.reader(stream)
        try:
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells)]
        except csv.Error as error:
            raise DataError.at(os.fspath(path), f"line {reader.line_num}: {error}.") from error
    if not rows:
        raise DataError.at(os.fspath(path), "is empty.")
    return rows


def _parameters(path: str | os.PathLike[str]) -> dict[str, str]:
    rows = _rows(path)
    names = rows[0][1]
    if len(rows) != 2 or sorted(names) != sorted(PARAMETERS) or len(rows[1][1]) != len(names):
        problem = f"wants two lines: the names {', '.join(PARAMETERS)}, and their values."
        raise DataError.at(os.fspath(path), problem, row=1)
    return dict(zip(names, rows[1][1], strict=True))


def _whole(path: str | os.PathLike[str], line: int, name: str, cell: str) -> int:
    if not cell.isdecimal() or not cell.isascii():
        problem = f"{name} is a whole number, got {cell!r}"
        raise DataError(f"{path}, line {line}: {problem}", file=path, row=line, value=cell)
    return int(cell)


def _probability(path: str | os.PathLike[str], name: str, cell: str) -> float:
    try:
        return float(plain(cell))
    except ValueError:
        problem = f"{name} is a probability, got {cell!r}"
        raise DataError(f"{path}, line 2: {problem}", file=path, row=2, value=cell) from None
