"""Reports and covariates, row by row: what `rrjax regress` reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from rrjax import io
from rrjax.cli import show
from rrjax.cli.reading import Collection
from rrjax.cli.subgroups import listed_in, read_weights
from rrjax.data.errors import UsageError
from rrjax.io.rows import Covariate, read_covariate, read_covariates, read_rows


def split(flag: str, text: str) -> list[str]:
    """The names of columns in a flag, with commas between them."""
    names = listed_in(flag, text)
    if not names or not all(names):
        raise UsageError(f"{flag} wants names of columns with commas between them, got {text!r}", flag=flag, value=text)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{flag} names column {twice!r} twice", flag=flag, value=text)
    return names


@dataclasses.dataclass(frozen=True)
class Rows:
    """Reports and covariates of the users who have both."""

    reports: np.ndarray
    matrix: np.ndarray
    columns: list[str]
    of: list[tuple[str, list[int]]]
    """Each covariate, and its columns."""
    weights: np.ndarray | None
    clusters: np.ndarray | None
    num_dropped: int


def read(
    collection: Collection,
    names: Sequence[str],
    factors: Sequence[str],
    others: tuple[str | None, str | None],
    drop: bool,
) -> Rows:
    """Reads reports, covariates, weights and clusters (the two others); drops or refuses rows that lack one."""
    source, domain = collection.files.source, collection.counted.domain
    reports = read_rows(dataclasses.replace(source, column=collection.counted.column), domain).indices
    odd = next((name for name in factors if name not in names), None)
    if odd is not None:
        raise UsageError(
            f"--factors: {odd!r} is not among the covariates {', '.join(map(repr, names))}", flag="--factors", value=odd
        )
    covariates = read_covariates(source, names, factors)
    of_weight, of_cluster = (None if name is None else dataclasses.replace(source, column=name) for name in others)
    weight = None if of_weight is None else read_weights(of_weight)
    cluster = None if of_cluster is None else read_covariate(of_cluster, factor=True, most_levels=None)
    answered = reports >= 0
    used = [*covariates, *(each for each in (weight, cluster) if each is not None)]
    lacking = np.any([each.missing for each in used], axis=0)
    if (answered & lacking).any() and not drop:
        raise _missing(collection, used, answered)
    kept = answered & ~lacking
    if not kept.any():
        raise io.DataError(
            f"{collection.files.name}: no row has a report and all covariates", file=collection.files.name
        )
    parts = [each.of_rows(kept).columns() for each in covariates]
    ends = np.cumsum([0, *(len(labels) for _, labels in parts)])
    return Rows(
        reports[kept],
        np.concatenate([matrix for matrix, _ in parts], axis=1),
        [label for _, labels in parts for label in labels],
        [(each.name, list(range(*ends[place : place + 2]))) for place, each in enumerate(covariates)],
        None if weight is None else weight.values[kept],
        None if cluster is None else cluster.values[kept],
        int((answered & lacking).sum()),
    )


def _missing(collection: Collection, used: Sequence[Covariate], answered: np.ndarray) -> io.DataError:
    first = min(
        (int(np.argmax(each.missing & answered)), each.name) for each in used if (each.missing & answered).any()
    )
    row, name = first
    number = int((np.any([each.missing for each in used], axis=0) & answered).sum())
    # Rows are counted through all files.
    alone = len(collection.files.source.files()) == 1
    where = f", row {row + 1:,}" if alone else ""
    return io.DataError(
        f"{collection.files.name}, column {name!r}{where}: no value; "
        f"{show.number(number, 'row lacks', 'rows lack')} a covariate, a weight or a cluster. Fill them in, or leave "
        "such rows out with --drop-missing",
        file=collection.files.name,
        column=name,
        row=row + 1 if alone else None,
    )
