"""Randomized columns as covariates of `rrjax regress`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rrjax.cli.public_columns import Rows
from rrjax.cli.reading import Files
from rrjax.data.errors import UsageError
from rrjax.mechanisms import Mechanism
from rrjax.reports.reports import Reports
from rrjax.reports.separate_columns import SeparateColumns


@dataclasses.dataclass(frozen=True)
class Hidden:
    """Covariates that were randomized apart, and their reports, −1 where one is missing."""

    names: list[str]
    labels: list[np.ndarray]
    mechanisms: Sequence[Mechanism]
    reports: list[np.ndarray]


def hidden_columns(files: Files, collection: Reports, names: Sequence[str]) -> Hidden | None:
    """Reads the reports of randomized covariates; None without any.

    Raises:
        UsageError: There are too many combinations of values, or nobody reports a column together with the outcome.
    """
    if not names:
        return None
    from rrjax.models.hidden import MOST_CELLS

    known = files.source.columns()
    metadata = [known[name] for name in names]
    cells = math.prod(each.num_categories for each in metadata)
    if cells > MOST_CELLS:
        sizes = " × ".join(f"{each.num_categories:,}" for each in metadata)
        raise UsageError(
            f"--covariates: the randomized columns have {sizes} = {cells:,} combinations of values, and the limit is "
            f"{MOST_CELLS}: name fewer of them",
            flag="--covariates",
            value=cells,
        )
    outcome = collection.reports("a regression") >= 0
    columns = SeparateColumns(files.source, tuple(names))
    for name, own in zip(names, columns.reports, strict=True):
        if not (outcome & (own >= 0)).any():
            raise UsageError(
                f"--covariates: nobody in {files.name} reports both {name!r} and the outcome, so the reports do not "
                "tell how the two go together",
                flag="--covariates",
                value=name,
            )
    return Hidden(list(names), [each.domain.labels() for each in metadata], columns.mechanism.columns, columns.reports)


def with_hidden(rows: Rows, hidden: Hidden) -> Rows:
    """The rows, with the dummies of the hidden covariates after the columns of the known ones."""
    columns, of = list(rows.columns), list(rows.of)
    for name, labels in zip(hidden.names, hidden.labels, strict=True):
        of.append((name, list(range(len(columns), len(columns) + len(labels) - 1))))
        columns += [f"{name}: {label}" for label in labels[1:]]
    return dataclasses.replace(rows, columns=columns, of=of)
