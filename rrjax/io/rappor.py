"""Counts, parameters and candidates of RAPPOR, in the files of the published implementation (google/rappor)."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rrjax.data.errors import ArgumentError, DataError
from rrjax.data.number_text import plain
from rrjax.io.database import opened

if TYPE_CHECKING:
    from rrjax.mechanisms.longitudinal import Rappor

Path: TypeAlias = str | os.PathLike[str]
PARAMETERS = ("k", "h", "m", "p", "q", "f")
MOST_DIGITS = 15
"""Of a whole number: all counts are below 2⁵³."""


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


def read_rappor(counts: Path, params: Path, candidates: Path) -> RapporCounts:
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
    size, hashes, cohorts = (_whole(params, 2, name, given[name], least=1) for name in ("k", "h", "m"))
    numbers = [[_whole(counts, line, "a count", cell) for cell in cells] for line, cells in table]
    for (line, _), (users, *bits) in zip(table, numbers, strict=True):
        if len(bits) != size:
            wanted = f"not {size + 1}: those of the reports, and of k = {size} bits"
            raise _error(counts, f"it has {len(bits) + 1} numbers, {wanted}", line)
        if max(bits) > users:
            raise _error(counts, f"bit {bits.index(max(bits)) + 1} is set in more reports than the cohort has", line)
    if len(numbers) != cohorts:
        raise _error(counts, f"it has {len(numbers)} lines, and {params} says m = {cohorts} cohorts")
    filters: dict[str, np.ndarray] = {}
    for line, (word, *bits) in _rows(candidates):
        places = np.asarray([_whole(candidates, line, "a bit", cell) for cell in bits])
        if not bits or places.min() < 1 or places.max() > cohorts * size:
            raise _error(candidates, f"the bits of a candidate are numbers from 1 to m·k = {cohorts * size:,}", line)
        if word in filters:
            raise _error(candidates, f"the candidate {word!r} is there twice", line, word)
        held = np.zeros(cohorts * size, bool)
        held[places - 1] = True
        numbers_set = held.reshape(cohorts, size).sum(axis=1)
        if (odd := (numbers_set < 1) | (numbers_set > hashes)).any():
            cohort = int(np.argmax(odd))
            problem = (
                f"the candidate sets {numbers_set[cohort]} bits in cohort {cohort + 1} of {cohorts}, not 1 to h = "
            )
            problem += f"{hashes}: the map is cut short, or that of other parameters than {params}"
            raise _error(candidates, problem, line, word)
        filters[word] = held.reshape(cohorts, size)
    probabilities = {name: _decimal(params, name, given[name]) for name in ("p", "q", "f")}
    try:
        rappor = Rappor(np.stack(list(filters.values()), axis=1), hashes, **probabilities)
    except ArgumentError as error:
        raise _error(candidates if error.argument == "filters" else params, str(error), value=error.value) from error
    whole = np.asarray(numbers)
    return RapporCounts(rappor, list(filters), whole[:, 0], whole[:, 1:])


def _error(path: Path, problem: str, line: int | None = None, value: Any = None) -> DataError:
    where = path if line is None else f"{path}, line {line}"
    return DataError(f"{where}: {problem}.", file=path, row=line, value=value)


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """The lines of a CSV that are not blank, with their numbers."""
    with opened(os.fspath(path)) as stream:
        reader = csv.reader(stream)
        try:
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells)]
        except csv.Error as error:
            raise _error(path, str(error), reader.line_num) from error
    if not rows:
        raise _error(path, "it is empty")
    return rows


def _parameters(path: Path) -> dict[str, str]:
    (_, names), *values = _rows(path)
    if len(values) != 1 or sorted(names) != sorted(PARAMETERS) or len(values[0][1]) != len(names):
        raise _error(path, f"two lines are wanted: the names {', '.join(PARAMETERS)}, and their values", 1)
    return dict(zip(names, values[0][1], strict=True))


def _whole(path: Path, line: int, name: str, cell: str, least: int = 0) -> int:
    if not (cell.isdecimal() and cell.isascii() and len(cell) <= MOST_DIGITS and int(cell) >= least):
        raise _error(
            path, f"{name} is a whole number {f'from {least} and ' * least}below 10¹⁵, got {cell!r}", line, cell
        )
    return int(cell)


def _decimal(path: Path, name: str, cell: str) -> float:
    try:
        return float(plain(cell))
    except ValueError as error:
        raise _error(path, f"{name} is a probability, such as 0.25, got {cell!r}", 2, cell) from error
