"""Statements about the population that a sample survey represents: weights, strata, clusters, population sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from rrjax import io
from rrjax.data.errors import ArgumentError, option, refusal, reworded
from rrjax.inference.surveys import Sampling, Scores, estimated
from rrjax.io.rows import Covariate, read_covariate
from rrjax.reports import form
from rrjax.reports.functionals import (
    Functional,
    FunctionalEstimate,
    answered_in,
    check_public,
    read_levels,
    read_weights,
    rows_of_levels,
)

FEW_DEGREES = 20
"""Degrees of freedom below which unequal clusters make intervals too short."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """The columns that say how users were sampled, and what is asked of them."""

    weights: str | None = None
    strata: str | None = None
    clusters: str | None = None
    population_size: str | float | None = None
    total: bool = False

    @property
    def columns(self) -> dict[str, Any]:
        """The columns, by their arguments."""
        return {name: value for name, value in vars(self).items() if isinstance(value, str)}

    @property
    def given(self) -> list[str]:
        """The arguments that were given."""
        return [name for name, value in vars(self).items() if value is not None and value is not False]


def survey_estimates(
    reports: Any, functionals: Sequence[Functional], by: str | None, sample: Sample, level: float, normal: bool
) -> tuple[list[FunctionalEstimate], int, list[str]]:
    """Estimates functionals of all users and each level, and of two levels the difference, of reports of any mechanism.

    Returns the estimates, the number of reports that are left out, and notes about the sample.
    """
    columns = {**sample.columns, **({} if by is None else {"by": by})}
    check_public(reports, columns)
    source, values = reports.files, reports.reports(option(next(iter(columns), "group")))
    read: dict[str, Covariate] = {}
    for argument, name in columns.items():
        of = dataclasses.replace(source, column=name)
        if argument in ("strata", "clusters"):
            read[argument] = read_covariate(of, factor=True, most_levels=None)
        else:
            read[argument] = read_levels(source, name) if argument == "by" else read_weights(of, argument)
    source.check_unchanged()
    lacking = np.any(
        [np.zeros(len(values), bool), *(each.missing for key, each in read.items() if key != "by")], axis=0
    )
    kept, answered = ~lacking, answered_in(values)
    if not kept.any():
        raise io.DataError(f"{reports.name}: no row has all of {', '.join(map(repr, columns.values()))}")
    sampling = _sampling(reports, sample, {key: each.values[kept] for key, each in read.items()}, read, int(kept.sum()))
    there = answered & ~lacking & ~(read["by"].missing if by is not None else lacking)
    # Rows without an answer, a level or a weight were sampled, too: they count in the design only.
    rows, mechanism = values[kept], reports.mechanism_of(kept)
    rows = np.maximum(rows, 0) if rows.ndim == 1 else rows
    levels = []
    for name, chosen in rows_of_levels(read.get("by"), there):
        mask = np.zeros(len(values), bool)
        mask[chosen] = True
        if (sampling.weights * mask[kept]).any():
            levels.append((name, len(chosen), mask[kept]))
    if not levels:
        of = sample.weights if by is None else by
        problem = "all weights are zero, or missing" if by is None else "no row has a level, a weight and a report"
        raise io.DataError.at(source.files()[0], problem, column=of)
    asked = [(name, number, mask, None) for name, number, mask in levels]
    if len(levels) == 3:
        (_, *_), (first, one, mask), (second, other, less) = levels
        asked.append((f"{first} less {second}", one + other, mask, less))
    found = []
    for functional in functionals:
        assert functional.values is not None
        scores = Scores.of(rows, mechanism, functional.values)
        for name, number, mask, less in asked:
            how: dict[str, Any] = {"total": sample.total, "level": level, "normal": normal}
            *each, effective, degrees = estimated(scores, sampling, mask, less, **how)
            about = "users" if less is None else "difference"
            known = {"effective_size": effective, "degrees": degrees}
            found.append(FunctionalEstimate(functional, name, number, *each, about=about, sampled=known))
    notes, degrees = [], int(found[0].sampled["degrees"])
    if number := int((sampling.weights[there[kept]] == 0).sum()):
        notes.append(f"{form.number(number, 'row has', 'rows have')} a weight of zero: no estimate is about them.")
    if sample.clusters is not None and degrees < FEW_DEGREES:
        freedom = form.number(degrees, "degree", "degrees")
        notes.append(
            f"There {'is' if degrees == 1 else 'are'} {freedom} of freedom (clusters less strata). Where so few clusters "
            "are of unequal sizes, intervals are too short: some dozens are needed."
        )
    return found, int((answered & ~there).sum()), notes


def _sampling(
    reports: Any, sample: Sample, kept: dict[str, np.ndarray], read: dict[str, Covariate], number: int
) -> Sampling:
    """The sampling of the rows that are kept; its errors name the file and the column."""

    def coded(name):
        if name not in read:
            return None
        used, codes = np.unique(kept[name].astype(int), return_inverse=True)
        return np.asarray(read[name].levels, object)[used], codes

    sizes = kept.get("population_size", sample.population_size)
    try:
        return Sampling.of(number, kept.get("weights"), coded("strata"), coded("clusters"), sizes)
    except ArgumentError as error:
        argument = error.argument or "weights"
        if argument not in sample.columns:
            raise refusal(argument, f"{option(argument)}: {error}", value=error.value) from error
        column, file = sample.columns[argument], reports.files.files()[0]
        raise reworded(error, f"{file}, column {column!r}: {error}", io.DataError, file=file, column=column) from error
