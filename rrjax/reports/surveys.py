"""Statements about the population that a sample survey represents: weights, strata, clusters, population sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rrjax import io
from rrjax.data.errors import ArgumentError, option, refusal, reworded
from rrjax.inference.surveys import Sampling, Scores, estimated
from rrjax.io.rows import Covariate, note_of_thousands, read_covariate
from rrjax.reports import form
from rrjax.reports.functionals import (
    About,
    Functional,
    FunctionalEstimate,
    answered_in,
    check_public,
    population_shares,
    read_levels,
    read_weights,
    rows_of_levels,
)
from rrjax.reports.reports import levels_alike

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
        names = "weights", "strata", "clusters", *(["population_size"] * isinstance(self.population_size, str))
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def given(self) -> list[str]:
        """The arguments that were given."""
        return [name for name, value in vars(self).items() if value is not None and value is not False]


@dataclasses.dataclass(frozen=True, eq=False)
class Surveyed:
    """The rows of reports that tell how they were sampled."""

    rows: np.ndarray
    """The reports, as their mechanism takes them; any where a report is missing."""
    kept: np.ndarray
    """Which rows of the files these are, booleans."""
    mechanism: Any
    sampling: Sampling
    levels: list[tuple[str, int, np.ndarray]]
    """All users, then those of each level, if any has a weight above zero: name, number of reports, booleans."""
    num_left_out: int
    lacking: list[str]
    """The columns that the rows that are left out lack."""
    notes: list[str]

    @classmethod
    def of(cls, reports: Any, by: str | None, sample: Sample) -> Surveyed:
        """Reads the columns of a sample, and that of the levels."""
        columns = {**sample.columns, **({} if by is None else {"by": by})}
        check_public(reports, columns)
        source, values = reports.files, reports.reports(option(next(iter(columns), "normal")))
        read: dict[str, Covariate] = {}
        for argument, name in columns.items():
            of = dataclasses.replace(source, column=name)
            if argument in ("strata", "clusters"):
                read[argument] = read_covariate(of, factor=True, most_levels=None)
            elif argument == "by":
                read[argument] = read_levels(source, name)
            else:
                read[argument] = read_weights(of, argument)
        source.check_unchanged()
        answered = answered_in(values)
        # Rows without an answer or a level were sampled, too: they count in the design.
        kept = ~np.any([np.zeros(len(values), bool), *(read[name].missing for name in sample.columns)], axis=0)
        there = answered & kept if by is None else answered & kept & ~read["by"].missing
        sampling, levels = _sampling(reports, sample, read, kept), []
        rows, place = values[kept], np.cumsum(kept) - 1
        rows = np.maximum(rows, 0) if rows.ndim == 1 else rows
        for name, chosen in rows_of_levels(read.get("by"), there):
            mask = np.zeros(len(rows), bool)
            mask[place[chosen]] = True
            if sampling.weights[mask].any():
                levels.append((name, len(chosen), mask))
        if not levels:
            problem = f"no row has a report and {', '.join(columns)}" + ", and a weight above zero" * bool(
                sample.weights
            )
            raise io.DataError.at(source.files()[0], problem, column=sample.weights or by)
        designed = [read[argument] for argument in ("strata", "clusters") if argument in read]
        notes = [note for each in designed for note in levels_alike(each.name, each.levels or ())]
        notes += note_of_thousands(read["weights"]) if sample.total and sample.weights else []
        degrees = sampling.degrees(sampling.weights > 0)
        if number := int((sampling.weights[there[kept]] == 0).sum()):
            notes.append(f"{form.number(number, 'row has', 'rows have')} a weight of zero: no estimate is about them.")
        if sample.clusters is not None and degrees < FEW_DEGREES:
            notes.append(
                f"Clusters less strata are {degrees}. Where so few clusters are of unequal sizes, intervals are too "
                "short: some dozens are needed."
            )
        lacking = [name for argument, name in columns.items() if read[argument].missing.any()]
        number = int((answered & ~there).sum())
        return cls(rows, kept, reports.mechanism_of(kept), sampling, levels, number, lacking, notes)


def survey_estimates(
    reports: Any,
    functionals: Sequence[Functional],
    by: str | None,
    sample: Sample,
    level: float,
    normal: bool = False,
    population: Any = None,
) -> tuple[dict[Functional, list[FunctionalEstimate]], int, list[str], list[str]]:
    """Estimates functionals of all users, each level, two levels' difference and a population, from any reports.

    Returns the estimates of each, the number of reports left out, the columns they lack, and notes about the sample.
    """
    known = Surveyed.of(reports, by, sample)
    levels = known.levels
    asked: list[tuple[str, int, About, list]] = [(name, size, "users", [(1, mask)]) for name, size, mask in levels]
    if len(levels) == 3:
        (first, one, mask), (second, other, less) = levels[1:]
        asked.append((f"{first} less {second}", one + other, "difference", [(1, mask), (-1, less)]))
    if population is not None:
        shares = population_shares(population, [name for name, *_ in levels[1:]]).tolist()
        parts = [(share, mask) for share, (*_, mask) in zip(shares, levels[1:], strict=True)]
        asked.append(("population", levels[0][1], "population", parts))
    estimates = {}
    for functional in functionals:
        assert functional.values is not None  # quantiles are refused
        scores, estimates[functional] = Scores.of(known.rows, known.mechanism, functional.values), []
        for name, size, about, parts in asked:
            *each, effective, degrees = estimated(scores, known.sampling, parts, sample.total, level, normal)
            sampled = {"effective_size": effective, "degrees": degrees}
            estimates[functional].append(
                FunctionalEstimate(functional, name, size, *each, about=about, sampled=sampled)
            )
    return estimates, known.num_left_out, known.lacking, known.notes


def survey_differences(sides: Sequence[tuple[Surveyed, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The unbiased shares of two domains, booleans each, of one survey or two independent ones, and their difference.

    Returns shares and standard errors of both, `[2, 2, K]`, standard errors of the differences and Welch's degrees of
    freedom, `[K]` each; of one survey at most those of both domains together.
    """
    (first, mask), (second, less) = sides
    size = first.mechanism.num_categories
    estimates, errors, degrees = np.empty((2, 2, size)), np.empty(size), np.empty(size)
    for place in range(size):
        of_category = np.arange(size) == place
        one = Scores.of(first.rows, first.mechanism, of_category)
        other = one if second is first else Scores.of(second.rows, second.mechanism, of_category)

        def of_part(scores, survey, *parts):
            value, error, *_, known = estimated(scores, survey.sampling, parts, False, 0.95, True)
            return (value, error), known

        estimates[0, :, place], known = of_part(one, first, (1, mask))
        estimates[1, :, place], unknown = of_part(other, second, (1, less))
        variances = estimates[:, 1, place] ** 2
        errors[place], whole = np.sqrt(variances.sum()), math.inf
        if second is first:  # whose domains may share clusters
            (_, errors[place]), whole = of_part(one, first, (1, mask), (-1, less))
        apart = (variances**2 / np.maximum([known, unknown], 1)).sum()
        degrees[place] = min(whole, variances.sum() ** 2 / apart if apart > 0 else math.inf)
    return estimates, errors, degrees


def _sampling(reports: Any, sample: Sample, read: dict[str, Covariate], kept: np.ndarray) -> Sampling:
    """The sampling of the rows that are kept; its errors name the file and the column."""

    def coded(name):
        if name not in read:
            return None
        used, codes = np.unique(read[name].values[kept].astype(int), return_inverse=True)
        return np.asarray(read[name].levels, object)[used], codes

    weights, sizes = (read[name].values[kept] if name in read else None for name in ("weights", "population_size"))
    sizes = sample.population_size if sizes is None else sizes
    assert not isinstance(sizes, str)
    try:
        return Sampling.of(int(kept.sum()), weights, coded("strata"), coded("clusters"), sizes)
    except ArgumentError as error:
        argument = error.argument or "weights"
        if argument not in sample.columns:
            raise refusal(argument, f"{option(argument)}: {error}", value=error.value) from error
        column, file = sample.columns[argument], reports.files.files()[0]
        raise reworded(error, f"{file}, column {column!r}: {error}", io.DataError, file=file, column=column) from error
