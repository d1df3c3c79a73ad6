"""The rows of a regression: reports, covariates that are public or randomized, too, weights and clusters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rrjax import io
from rrjax.data.errors import option, refusal
from rrjax.io.rows import Covariate, read_covariate, read_covariates, read_rows
from rrjax.io.tallies import mechanism_of
from rrjax.mechanisms import Mechanism
from rrjax.reports import form
from rrjax.reports.public_columns import read_weights
from rrjax.reports.reports import Reports

FEW_CLUSTERS = 20


@dataclasses.dataclass(frozen=True)
class Hidden:
    """A covariate that was randomized apart."""

    name: str
    labels: np.ndarray
    mechanism: Mechanism
    reports: np.ndarray
    """Its reports, −1 where one is missing."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Reports and covariates of the users with both."""

    reports: np.ndarray
    matrix: np.ndarray
    """The columns of the public covariates."""
    columns: list[str]
    """Names of the columns: those of the public covariates, and the dummies of the randomized ones."""
    of: list[tuple[str, list[int]]]
    """Each covariate, and its columns."""
    weights: np.ndarray | None
    clusters: np.ndarray | None
    num_dropped: int
    hidden: list[Hidden]
    """The randomized covariates."""


def read_regression_rows(
    reports: Reports,
    covariates: Sequence[str],
    factors: Sequence[str],
    weights: str | None,
    clusters: str | None,
    drop_missing: bool,
) -> Rows:
    """Reads reports, covariates, weights and clusters. Rows that lack one are dropped or refused.

    With randomized covariates, rows without a report of the outcome remain.
    """
    outcome, source = reports.counted.column, reports.files
    randomized = source.columns()
    others = [*(("factors", name) for name in factors), ("weights", weights), ("clusters", clusters)]
    for argument, name in (*(("covariates", name) for name in covariates), *others):
        if name == outcome:
            problem = f"column {outcome!r} is the outcome; it cannot be used for another purpose, too"
        elif name in randomized and argument != "covariates":
            problem = f"column {name!r} is randomized; it can be the outcome or one of {option('covariates')}"
        else:
            continue
        raise refusal(argument, f"{option(argument)}: {problem}", value=name)
    public = [name for name in covariates if name not in randomized]
    values = reports.reports("a regression")
    hidden = _read_hidden(reports, values, [name for name in covariates if name in randomized])
    odd = next((name for name in factors if name not in public), None)
    if odd is not None:
        problem = f"{odd!r} is not among the covariates {', '.join(map(repr, public))}"
        raise refusal("factors", f"{option('factors')}: {problem}", value=odd)
    known = read_covariates(source, public, factors)
    of_weight, of_cluster = (
        None if name is None else dataclasses.replace(source, column=name) for name in (weights, clusters)
    )
    weight = None if of_weight is None else read_weights(of_weight)
    cluster = None if of_cluster is None else read_covariate(of_cluster, factor=True, most_levels=None)
    answered = values >= 0 if values.ndim == 1 else np.ones(len(values), bool)
    answered = np.logical_or.reduce([answered, *(each.reports >= 0 for each in hidden)])
    used = [*known, *(each for each in (weight, cluster) if each is not None)]
    lacking = np.logical_or.reduce([np.zeros(len(values), bool), *(each.missing for each in used)])
    if (answered & lacking).any() and not drop_missing:
        raise _missing(reports, used, answered)
    kept = answered & ~lacking
    if not kept.any():
        raise io.DataError(f"{reports.name}: no row has a report and all covariates", file=reports.name)
    parts = [each.of_rows(kept).columns() for each in known]
    named = [(each.name, labels) for each, (_, labels) in zip(known, parts, strict=True)]
    named += [(each.name, [f"{each.name}: {label}" for label in each.labels[1:]]) for each in hidden]
    ends = np.cumsum([0, *(len(labels) for _, labels in named)])
    return Rows(
        values[kept],
        np.concatenate([np.zeros((int(kept.sum()), 0)), *(matrix for matrix, _ in parts)], axis=1),
        [label for _, labels in named for label in labels],
        [(name, list(range(*ends[place : place + 2]))) for place, (name, _) in enumerate(named)],
        None if weight is None else weight.values[kept],
        None if cluster is None else cluster.values[kept],
        int((answered & lacking).sum()),
        [dataclasses.replace(each, reports=each.reports[kept]) for each in hidden],
    )


def _read_hidden(reports: Reports, values: np.ndarray, names: Sequence[str]) -> list[Hidden]:
    """Reads the reports of randomized covariates."""
    if not names:
        return []
    from rrjax.models.hidden import MOST_CELLS

    metadata = [reports.files.columns()[name] for name in names]
    cells = math.prod(each.num_categories for each in metadata)
    if cells > MOST_CELLS:
        sizes = " × ".join(f"{each.num_categories:,}" for each in metadata)
        raise refusal(
            "covariates",
            f"{option('covariates')}: the randomized columns have {sizes} = {cells:,} combinations of values, and the "
            f"limit is {MOST_CELLS}: name fewer of them",
            value=cells,
        )
    found = []
    for name, each in zip(names, metadata, strict=True):
        own = read_rows(dataclasses.replace(reports.files, column=each.column), each.domain).indices
        if not ((values >= 0) & (own >= 0)).any():
            raise refusal(
                "covariates",
                f"{option('covariates')}: nobody in {reports.name} reports both {name!r} and the outcome, so the "
                "reports do not tell how the two go together",
                value=name,
            )
        found.append(Hidden(name, each.domain.labels(), mechanism_of(each, reports.name), own))
    return found


def _missing(reports: Reports, used: Sequence[Covariate], answered: np.ndarray) -> io.DataError:
    row, name = min(
        (int(np.argmax(each.missing & answered)), each.name) for each in used if (each.missing & answered).any()
    )
    number = int((np.any([each.missing for each in used], axis=0) & answered).sum())
    # The number of a row counts through all files, so it names no row of one of several.
    alone = len(reports.files.files()) == 1
    where = f", row {row + 1:,}" if alone else ""
    return io.DataError(
        f"{reports.name}, column {name!r}{where}: no value; "
        f"{form.number(number, 'row lacks', 'rows lack')} a covariate, a weight or a cluster. Fill them in, or leave "
        f"such rows out with {option('drop_missing=True', '--drop-missing')}",
        file=reports.name,
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
