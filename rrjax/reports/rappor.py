"""Reports of RAPPOR, as google/rappor counts them: the shares of its candidates."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rrjax.data.errors import DataError, check_rate
from rrjax.io.rappor import Path, RapporCounts, read_rappor
from rrjax.io.source import Source
from rrjax.mechanisms.longitudinal import Rappor
from rrjax.models.results import normal_interval
from rrjax.reports import form
from rrjax.reports.answer import SHOWN
from rrjax.reports.functionals import Functional, FunctionalEstimate
from rrjax.reports.kind import Kind
from rrjax.reports.reading import in_float64
from rrjax.reports.shares import largest_of
from rrjax.reports.statements import Statements

NUM_STEPS = 20_000
"""Gradient steps of the decoder: for 300 candidates, the shares are within 1e-4 of the minimum, in all."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class RapporReports(Kind):
    """Counted reports of RAPPOR; files of `sum_bits`, of parameters, and of candidates."""

    called_kind: ClassVar[str] = "files of RAPPOR"
    estimate_is: ClassVar[str] = "the decoder's, by least squares with no share below zero"

    counted: RapporCounts
    source: Source
    warnings: Sequence[str] = ()

    @property
    def num_reports(self) -> int:
        return int(self.counted.users.sum())

    @property
    def mechanism(self) -> Rappor:
        """The parameters, and the Bloom filters of the candidates."""
        return self.counted.rappor

    @property
    def epsilon(self) -> float:
        """ε of one report, nats."""
        return float(self.mechanism.first_epsilon)

    def summary(self) -> str:
        known = self.facts()
        return (
            f"{self.called} of RAPPOR in {form.number(known['num_cohorts'], 'cohort', 'cohorts')} of "
            f"{known['num_bits']} bits; {known['num_categories']:,} candidates; ε = {self.epsilon:.6g} nats a report, "
            f"{known['epsilon']:.6g} for all reports of one value"
        )

    def facts(self) -> dict[str, Any]:
        cohorts, candidates, bits = np.shape(self.mechanism.filters)
        facts = {"reports": self.paths, "num_reports": self.num_reports, "num_categories": candidates}
        facts |= {"mechanism": "rappor", "num_cohorts": cohorts, "num_bits": bits, "first_epsilon": self.epsilon}
        return {**facts, "epsilon": float(self.mechanism.epsilon), "warnings": self.warnings}

    @in_float64
    def statements(self, *, level: float = 0.95, top: int | None = None) -> Statements:
        """Estimates the shares of the most frequent candidates, `top` of them; None is 10."""
        check_rate("level", level)
        counts, size = (self.counted.users, self.counted.counts), len(self.counted.words)
        theta = self.mechanism.regression(counts, num_steps=NUM_STEPS).theta
        errors = np.asarray(self.mechanism.standard_errors(counts, theta))
        shares, estimates = np.asarray(theta), []
        # A share of zero is at the boundary, where the normal approximation tells no limit.
        ends = zip((0, 1), normal_interval(shares, errors, level), strict=True)
        lower, upper = (np.where(shares > 0, each, end) for end, each in ends)
        for place in largest_of(shares, SHOWN if top is None else top):
            functional = Functional(form.printable(self.counted.words[place]), "share", np.arange(size) == place)
            numbers: list[Any] = [float(each[place]) for each in (shares, errors, lower, upper)]
            estimates.append(FunctionalEstimate(functional, "all", self.num_reports, *numbers))
        note = f"The shares of all {size:,} candidates add up to {form.percent(shares.sum())}"
        if zeros := int((shares == 0).sum()):
            note += f"; {form.number(zeros, 'is', 'are')} zero"
        return Statements(self, estimates, level, None, None, True, None, 0, [note + "."])


def rappor_reports(counts: Path, params: Path, candidates: Path) -> RapporReports:
    """Reads the files of google/rappor: see `io.read_rappor`."""
    source = Source(tuple(os.fspath(each) for each in (counts, params, candidates)))
    reports = RapporReports(read_rappor(counts, params, candidates), source)
    if reports.num_reports < 2:
        raise DataError(f"{counts} has {reports.num_reports} reports: shares need more", file=counts)
    return reports
