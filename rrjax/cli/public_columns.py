"""Public columns beside the reports, row by row: levels of --by, weights, covariates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rrjax import inference, io
from rrjax.data.errors import UsageError
from rrjax.io.rows import Covariate, count_pairs, read_covariate, read_covariates, read_rows
from rrjax.io.scan import column_names
from rrjax.reports import form
from rrjax.reports.reports import Reports

MOST_LEVELS = 100
FEW_CLUSTERS = 20
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
    collection: Reports, by: str | None, weighted_by: str | None, one_by_one: bool = False
) -> tuple[list[Part], int]:
    """Returns all users, then those of each level; and the number of rows without a level or weight.

    With `one_by_one` the parts of other mechanisms hold every report.
    """
    tallied = collection.tallied is not None and collection.design is None
    if by is None and weighted_by is None:
        rows = collection.reports("--normal") if tallied and one_by_one else None
        return [Part("all", collection.num_reports, collection.support_arguments[0], rows)], 0
    if weighted_by is not None:
        collection.check_counts("--weights")
    if collection.from_counts:
        raise UsageError("--by and --weights need a row for each report: leave out --counts", flag="--counts")
    column, domain, source = collection.counted.column, collection.counted.domain, collection.files
    for flag, name in (("--by", by), ("--weights", weighted_by)):
        if name == column:
            raise UsageError(f"{flag} {name!r} is the column of reports; it takes a public one", flag=flag, value=name)
        if name in source.columns():  # by reports the shares of levels would look more alike than they are
            raise UsageError(
                f"{flag} {name!r} is randomized, too, and {flag} takes a public column: `rrjax estimate --joint` and "
                "`rrjax regress` relate columns of reports",
                flag=flag,
                value=name,
            )
    if weighted_by is None and by is not None and tallied:
        return _tallies_of(collection, _levels(source, by))
    if weighted_by is None and by is not None:
        _levels(source, by)
        pairs = count_pairs(source, (column, by), (domain, None))
        levels = [str(label) for label in pairs.domains[1].labels()]
        counts = pairs.counts.T
        parts = [Part("all", int(counts.sum()), counts.sum(0))]
        parts += [Part(level, int(each.sum()), each) for level, each in zip(levels, counts, strict=True) if each.any()]
        if (design := collection.design) is not None:
            parts = [dataclasses.replace(part, data=design.tally_of_counts(part.data)) for part in parts]
        return parts, pairs.num_missing - collection.counted.num_missing
    reports = read_rows(dataclasses.replace(source, column=column), domain).indices
    weights = read_weights(dataclasses.replace(source, column=weighted_by))
    there = (reports >= 0) & ~weights.missing
    codes, levels = np.zeros(len(reports)), []
    if by is not None:
        public = _levels(source, by)
        codes, levels = public.values, list(public.levels or [])
        there &= ~public.missing
    parts = []
    for name, chosen in [("all", there), *((level, there & (codes == code)) for code, level in enumerate(levels))]:
        if weights.values[chosen].any():
            counts = inference.weighted_counts(reports[chosen], weights.values[chosen], domain.num_categories)
            parts.append(Part(name, int(chosen.sum()), counts))
        elif name == "all":
            raise io.DataError(
                f"{collection.name}, column {weights.name!r}: all weights are zero, or missing",
                file=source.files()[0],
                column=weights.name,
            )
    return parts, int(((reports >= 0) & ~there).sum())


def _tallies_of(collection: Reports, public: Covariate) -> tuple[list[Part], int]:
    """All users, then those of each level, by the tallies of their reports."""
    reports, mechanism = collection.reports("--by"), collection.mechanism
    chosen = [("all", ~public.missing)]
    chosen += [(level, ~public.missing & (public.values == code)) for code, level in enumerate(public.levels or [])]
    parts = [(name, reports[rows]) for name, rows in chosen if rows.any()]
    parts = [Part(name, len(rows), mechanism.tally(rows), rows) for name, rows in parts]
    return parts, int(public.missing.sum())


def _levels(source: io.Source, by: str) -> Covariate:
    """Reads the public column, row by row."""
    public = read_covariate(dataclasses.replace(source, column=by), factor=True, most_levels=None)
    number = len(public.levels or ())
    if number > MOST_LEVELS:
        raise UsageError(
            f"--by {by!r} has {number:,} levels, more than {MOST_LEVELS}: give a column of fewer, such as regions",
            flag="--by",
            value=by,
        )
    return public


def shares_of(path: Path, parts: list[Part]) -> np.ndarray:
    """Reads the shares of the levels in the population, in the order of the parts."""
    source = io.Source(str(path))
    names = column_names(source)
    if len(names) != 2:
        raise io.DataError(
            f"{path} has {len(names)} columns; two are wanted, under a line with their names and with commas between "
            "them: the level, and its size in the population",
            file=str(path),
        )
    levels = read_covariate(dataclasses.replace(source, column=names[0]), factor=True, most_levels=None)
    sizes = read_covariate(dataclasses.replace(source, column=names[1]), most_levels=None)
    if sizes.levels is not None or not (sizes.values >= 0).all() or not 0 < sizes.values.sum() < np.inf:
        raise io.DataError(
            f"{path}, column {names[1]!r}: sizes are numbers, none of them missing, negative or too large to add up",
            file=str(path),
            column=names[1],
        )
    if levels.missing.any():
        row = int(np.argmax(levels.missing)) + 1
        raise io.DataError(
            f"{path}, column {names[0]!r}, row {row}: no level", file=str(path), column=names[0], row=row
        )
    listed = [(levels.levels or ())[int(code)] for code in levels.values]
    twice = next((name for name in listed if listed.count(name) > 1), None)
    if twice is not None:
        raise io.DataError(f"{path} names {twice!r} twice: give each level one size", file=str(path), value=twice)
    known = dict(zip(listed, sizes.values, strict=True))
    lacking = next((part.level for part in parts if part.level not in known), None)
    if lacking is not None:
        raise io.DataError(
            f"{path} does not say how large {lacking!r} is in the population", file=str(path), value=lacking
        )
    unseen = [name for name in known if name not in {part.level for part in parts} and known[name]]
    if unseen:
        raise io.DataError(
            f"{path} names {unseen[0]!r}, of which there are no reports: nothing is known of that part of the "
            "population",
            file=str(path),
            value=unseen[0],
        )
    shares = np.asarray([known[part.level] for part in parts])
    return shares / shares.sum()


def read_weights(source: io.Source) -> Covariate:
    """Reads a column of survey weights, row by row; missing ones are NaN.

    Raises:
        DataError: Weights that are no numbers, or negative, with the row.
    """
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


@dataclasses.dataclass(frozen=True)
class Rows:
    """Reports and covariates of the users with both."""

    reports: np.ndarray
    matrix: np.ndarray
    columns: list[str]
    of: list[tuple[str, list[int]]]
    """Each covariate, and its columns of the matrix."""
    weights: np.ndarray | None
    clusters: np.ndarray | None
    num_dropped: int
    hidden: tuple[np.ndarray, ...] = ()
    """Reports of randomized covariates, −1 where one is missing."""


def read_rows_of(
    collection: Reports,
    names: Sequence[str],
    factors: Sequence[str],
    others: tuple[str | None, str | None],
    drop: bool,
    hidden: Sequence[np.ndarray] = (),
) -> Rows:
    """Reads reports, covariates, and `others`: weights and clusters. Rows that lack one are dropped or refused.

    `hidden` are the reports of randomized covariates. With them, rows without a report of the outcome remain.
    """
    source, reports = collection.files, collection.reports("a regression")
    odd = next((name for name in factors if name not in names), None)
    if odd is not None:
        raise UsageError(
            f"--factors: {odd!r} is not among the covariates {', '.join(map(repr, names))}", flag="--factors", value=odd
        )
    covariates = read_covariates(source, names, factors)
    of_weight, of_cluster = (None if name is None else dataclasses.replace(source, column=name) for name in others)
    weight = None if of_weight is None else read_weights(of_weight)
    cluster = None if of_cluster is None else read_covariate(of_cluster, factor=True, most_levels=None)
    answered = reports >= 0 if reports.ndim == 1 else np.ones(len(reports), bool)
    answered = np.logical_or.reduce([answered, *(each >= 0 for each in hidden)])
    used = [*covariates, *(each for each in (weight, cluster) if each is not None)]
    lacking = np.logical_or.reduce([np.zeros(len(reports), bool), *(each.missing for each in used)])
    if (answered & lacking).any() and not drop:
        raise _missing(collection, used, answered)
    kept = answered & ~lacking
    if not kept.any():
        raise io.DataError(f"{collection.name}: no row has a report and all covariates", file=collection.name)
    parts = [each.of_rows(kept).columns() for each in covariates]
    ends = np.cumsum([0, *(len(labels) for _, labels in parts)])
    return Rows(
        reports[kept],
        np.concatenate([np.zeros((int(kept.sum()), 0)), *(matrix for matrix, _ in parts)], axis=1),
        [label for _, labels in parts for label in labels],
        [(each.name, list(range(*ends[place : place + 2]))) for place, each in enumerate(covariates)],
        None if weight is None else weight.values[kept],
        None if cluster is None else cluster.values[kept],
        int((answered & lacking).sum()),
        tuple(each[kept] for each in hidden),
    )


def _missing(collection: Reports, used: Sequence[Covariate], answered: np.ndarray) -> io.DataError:
    first = min(
        (int(np.argmax(each.missing & answered)), each.name) for each in used if (each.missing & answered).any()
    )
    row, name = first
    number = int((np.any([each.missing for each in used], axis=0) & answered).sum())
    # The number of a row counts through all files, so it names no row of one of several.
    alone = len(collection.files.files()) == 1
    where = f", row {row + 1:,}" if alone else ""
    return io.DataError(
        f"{collection.name}, column {name!r}{where}: no value; "
        f"{form.number(number, 'row lacks', 'rows lack')} a covariate, a weight or a cluster. Fill them in, or leave "
        "such rows out with --drop-missing",
        file=collection.name,
        column=name,
        row=row + 1 if alone else None,
    )


def few_clusters(rows: Rows, clusters: int) -> list[str]:
    """Warnings about standard errors that are too small because of few clusters."""
    if clusters < FEW_CLUSTERS:
        return [f"There are {clusters} clusters. Standard errors of so few are too small: some dozens are needed."]
    said, group = [], np.unique(np.asarray(rows.clusters), return_inverse=True)[1]
    for name, values in zip(rows.columns, rows.matrix.T, strict=False):  # hidden columns come after the known ones
        low, high = np.full(clusters, np.inf), np.full(clusters, -np.inf)
        np.minimum.at(low, group, values)
        np.maximum.at(high, group, values)
        counts = np.unique(low, return_counts=True)[1]
        if (low == high).all() and len(counts) == 2 and (fewer := counts.min()) < FEW_CLUSTERS / 2:
            said.append(
                f"Covariate {name!r} is the same within each cluster, and only {fewer} of {clusters} have its "
                "rarer value: its standard error is too small."
            )
    return said
