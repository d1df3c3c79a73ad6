"""Public columns beside the reports, row by row: levels, survey weights, and sizes of levels in a population."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrjax import inference, io
from rrjax.data.errors import for_callers, for_commands, option, refusal
from rrjax.io.rows import Covariate, count_pairs, read_covariate, read_rows
from rrjax.io.scan import column_names
from rrjax.reports.reports import Reports

MOST_LEVELS = 100
MOST_WEIGHT = 1e100
"""Limit of the weight of one user: sums of squares of weights stay finite."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The users of one level of the public column, or all users: their counts, tally or weighted counts."""

    level: str
    num_reports: int
    data: Any
    rows: np.ndarray | None = None
    """The reports one by one, of mechanisms whose tallies do not tell how supports depend on each other."""


def parts_of(
    reports: Reports, by: str | None, weighted_by: str | None, one_by_one: bool = False
) -> tuple[list[Part], int]:
    """Returns all users, then those of each level; and the number of rows without a level or weight.

    With `one_by_one` the parts of other mechanisms hold every report.
    """
    tallied = reports.tallied is not None and reports.design is None
    if by is None and weighted_by is None:
        rows = reports.reports(option("normal=True", "--normal")) if tallied and one_by_one else None
        return [Part("all", reports.num_reports, reports.support_arguments[0], rows)], 0
    if weighted_by is not None:
        reports.check_counts(option("weights"))
    if reports.from_counts:
        what = for_commands(": leave out --counts") or for_callers(", and these were counted")
        raise refusal("counts", f"{option('by')} and {option('weights')} need a row for each report{what}")
    column, domain, source = reports.counted.column, reports.counted.domain, reports.files
    for argument, name in (("by", by), ("weights", weighted_by)):
        given = f"{option(argument)} {name!r}"
        if name == column:
            raise refusal(argument, f"{given} is the column of reports; it takes a public one", value=name)
        if name in source.columns():  # by reports the shares of levels would look more alike than they are
            raise refusal(
                argument,
                f"{given} is randomized, too, and {option(argument)} takes a public column: "
                f"{for_commands('`rrjax estimate --joint` and `rrjax regress` relate')}{for_callers('regress relates')}"
                " columns of reports",
                value=name,
            )
    if weighted_by is None and by is not None and tallied:
        return _tallies_of(reports, _levels(source, by))
    if weighted_by is None and by is not None:
        _levels(source, by)
        pairs = count_pairs(source, (column, by), (domain, None))
        levels = [str(label) for label in pairs.domains[1].labels()]
        counts = pairs.counts.T
        parts = [Part("all", int(counts.sum()), counts.sum(0))]
        parts += [Part(level, int(each.sum()), each) for level, each in zip(levels, counts, strict=True) if each.any()]
        if (design := reports.design) is not None:
            parts = [dataclasses.replace(part, data=design.tally_of_counts(part.data)) for part in parts]
        return parts, pairs.num_missing - reports.counted.num_missing
    values = read_rows(dataclasses.replace(source, column=column), domain).indices
    weights = read_weights(dataclasses.replace(source, column=weighted_by))
    there = (values >= 0) & ~weights.missing
    codes, levels = np.zeros(len(values)), []
    if by is not None:
        public = _levels(source, by)
        codes, levels = public.values, list(public.levels or [])
        there &= ~public.missing
    parts = []
    for name, chosen in [("all", there), *((level, there & (codes == code)) for code, level in enumerate(levels))]:
        if weights.values[chosen].any():
            counts = inference.weighted_counts(values[chosen], weights.values[chosen], domain.num_categories)
            parts.append(Part(name, int(chosen.sum()), counts))
        elif name == "all":
            raise io.DataError(
                f"{reports.name}, column {weights.name!r}: all weights are zero, or missing",
                file=source.files()[0],
                column=weights.name,
            )
    return parts, int(((values >= 0) & ~there).sum())


def _tallies_of(reports: Reports, public: Covariate) -> tuple[list[Part], int]:
    """All users, then those of each level, by the tallies of their reports."""
    given, mechanism = reports.reports(option("by")), reports.mechanism
    chosen = [("all", ~public.missing)]
    chosen += [(level, ~public.missing & (public.values == code)) for code, level in enumerate(public.levels or [])]
    parts = [(name, given[rows]) for name, rows in chosen if rows.any()]
    parts = [Part(name, len(rows), mechanism.tally(rows), rows) for name, rows in parts]
    return parts, int(public.missing.sum())


def _levels(source: io.Source, by: str) -> Covariate:
    """Reads the public column, row by row."""
    public = read_covariate(dataclasses.replace(source, column=by), factor=True, most_levels=None)
    number = len(public.levels or ())
    if number > MOST_LEVELS:
        problem = f"has {number:,} levels, more than {MOST_LEVELS}: give a column of fewer, such as regions"
        raise refusal("by", f"{option('by')} {by!r} {problem}", value=by)
    return public


def population_shares(population: str | os.PathLike[str] | Mapping[Any, float], levels: Sequence[str]) -> np.ndarray:
    """The shares of the levels in the population, in their order, from a table of sizes or from sizes by level."""
    of_file = not isinstance(population, Mapping)
    name = str(population) if of_file else option("population")
    known = _sizes_in(name) if of_file else {str(level): float(size) for level, size in population.items()}
    problem = value = None
    if not of_file and _impossible(np.asarray([*known.values()])):
        problem = f": {_SIZES}"
    elif (value := next((level for level in levels if level not in known), None)) is not None:
        problem = f" does not say how large {value!r} is in the population"
    elif (value := next((level for level in known if level not in levels and known[level]), None)) is not None:
        problem = f" names {value!r}, of which there are no reports: nothing is known of that part of the population"
    if problem is not None and of_file:
        raise io.DataError(name + problem, file=name, value=value)
    if problem is not None:
        raise refusal("population", name + problem, value=value)
    shares = np.asarray([known[level] for level in levels])
    return shares / shares.sum()


_SIZES = "sizes are numbers, none of them missing, negative or too large to add up"


def _impossible(sizes: np.ndarray) -> bool:
    return not (sizes >= 0).all() or not 0 < sizes.sum() < np.inf


def _sizes_in(path: str) -> dict[str, float]:
    """The levels and their sizes in a table."""
    source = io.Source(path)
    names = column_names(source)
    if len(names) != 2:
        raise io.DataError(
            f"{path} has {len(names)} columns; two are wanted, under a line with their names and with commas between "
            "them: the level, and its size in the population",
            file=path,
        )
    levels = read_covariate(dataclasses.replace(source, column=names[0]), factor=True, most_levels=None)
    sizes = read_covariate(dataclasses.replace(source, column=names[1]), most_levels=None)
    if sizes.levels is not None or _impossible(sizes.values):
        raise io.DataError.at(path, _SIZES, column=names[1])
    if levels.missing.any():
        row = int(np.argmax(levels.missing)) + 1
        raise io.DataError(f"{path}, column {names[0]!r}, row {row}: no level", file=path, column=names[0], row=row)
    listed = [(levels.levels or ())[int(code)] for code in levels.values]
    twice = next((name for name in listed if listed.count(name) > 1), None)
    if twice is not None:
        raise io.DataError(f"{path} names {twice!r} twice: give each level one size", file=path, value=twice)
    return dict(zip(listed, sizes.values.tolist(), strict=True))


def read_weights(source: io.Source) -> Covariate:
    """Reads a column of survey weights, row by row; missing ones are NaN."""
    weights = read_covariate(source, most_levels=None)
    file = source.files()[0]
    place = f"{file}, column {weights.name!r}"
    if weights.levels is not None:
        raise io.DataError(f"{place}: weights are numbers, and there is none", file=file, column=weights.name)
    wrong = np.flatnonzero(weights.values < 0)
    if wrong.size:
        row = int(wrong[0]) + 1 if len(source.files()) == 1 else None
        raise io.DataError(
            f"{place}{'' if row is None else f', row {row:,}'}: a weight is negative; weights are not",
            file=file,
            column=weights.name,
            row=row,
        )
    # Variances are sums of squares of weights.
    largest = np.nanmax(weights.values, initial=0)
    if largest > MOST_WEIGHT or 0 < largest < 1 / MOST_WEIGHT:
        raise io.DataError(
            f"{place}: the largest weight is {largest:g}, and sums of squares would be no numbers. Multiply all "
            f"weights by one number, so that it lies between {1 / MOST_WEIGHT:g} and {MOST_WEIGHT:g}: only their "
            "ratios count",
            file=file,
            column=weights.name,
        )
    return weights
