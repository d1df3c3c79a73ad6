"""Reports of one column in several parts, such as rounds or groups: the estimate of each part, and of all together."""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from rrjax.data.errors import check_rate
from rrjax.estimators.names import CLOSEST
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells
from rrjax.reports.contradictions import check_contradictions
from rrjax.reports.estimates import Estimate, estimated, largest_of, side_by_side
from rrjax.reports.kind import Kind
from rrjax.reports.pooled import PooledEstimate
from rrjax.reports.reports import Reports


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Parts(Kind):
    """Reports of one column and domain in several parts."""

    part: ClassVar[str]
    """What a part is called."""

    parts: dict[int, Reports]
    """The reports of each part, by its number."""

    @property
    def shown(self) -> list[int]:
        """The parts that a table shows."""
        raise NotImplementedError

    @property
    def main(self) -> Reports:
        """The reports whose estimate orders the categories where there is none of all parts."""
        raise NotImplementedError

    @property
    def labels(self) -> np.ndarray:
        """The names of the categories, `[K]`."""
        return self.main.labels

    @property
    def num_reports(self) -> int:
        """The number of reports of all parts."""
        return sum(each.num_reports for each in self.parts.values())

    @property
    def warnings(self) -> list[str]:
        """The warnings of all parts, each once; one that is not about all of them names its parts."""
        numbers: dict[str, list[int]] = {}
        for number, each in self.parts.items():
            for warning in each.warnings:
                numbers.setdefault(warning, []).append(number)
        return [
            warning if len(of) == len(self.parts) else f"{self.named(of).capitalize()}: {warning}"
            for warning, of in numbers.items()
        ]

    def named(self, numbers: list[int]) -> str:
        """Some of the parts: round 3, rounds 1, 3."""
        return f"{self.part}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class PartShares(Answer):
    """The shares of all categories, from each part and from all parts together."""

    reports: Parts
    estimates: dict[int, Estimate]
    """The estimate from each part, by its number."""
    pooled: PooledEstimate | None
    """The estimate from all parts together; None if its likelihood is too large."""
    level: float
    """The confidence level of the interval of `pooled`."""
    simultaneous: bool
    """Whether all intervals hold together at that level."""

    @property
    def theta(self) -> np.ndarray:
        """`[K]`, the leading estimate: of all parts or, without one, of the main part."""
        if self.pooled is not None:
            return self.pooled.theta
        return next(self.estimates[number].theta for number, each in self._parts if each is self.reports.main)

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The limits of the shares of all parts together, `[K]` each; None without their estimate."""
        return None if self.pooled is None else self.pooled.interval(self.level, simultaneous=self.simultaneous)

    @property
    def heading(self) -> str:
        """The heading of the intervals."""
        return form.interval(self.level) + ", simultaneous" * self.simultaneous

    @property
    def beside(self) -> dict[str, np.ndarray]:
        """Further estimates from all parts together, by their names."""
        return {}

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """`[K]` each: label, the estimate of each part, that of all parts with its standard error, lower, upper."""
        part = self.reports.part
        found = {"label": self.reports.labels}
        found |= {f"{part}_{number}": each.theta for number, each in self.estimates.items()}
        if self.pooled is not None and self.limits is not None:
            found |= {f"all_{part}s": self.pooled.theta, f"all_{part}s_standard_error": self.pooled.standard_error}
            found |= dict(zip(("lower", "upper"), self.limits, strict=True))
        simulated = (each for _, each in self._parts if each.simulated)
        return next(simulated, self.reports.main).table(found | self.beside)

    @property
    def facts(self) -> dict[str, Any]:
        domain = self.reports.main.counted.domain
        return {
            "domain": domain.describe(),
            "level": self.level,
            "at_once": self.simultaneous,
            "warnings": self.warnings,
        }

    @property
    def assumption(self) -> str:
        """What the estimate of all parts is made from, and when it holds."""
        raise NotImplementedError

    @property
    def sentences(self) -> list[str]:
        part, hidden = self.reports.part, len(self.estimates) - len(self.reports.shown)
        intervals = "The intervals are those of the normal approximation."
        if self.simultaneous:
            level = form.in_full(self.level)
            intervals += f" They are simultaneous: all of them hold the true shares, with {level} confidence."
        return [
            f"All {part}s: {self.assumption} {intervals}"
            if self.pooled is not None
            else f"All {part}s together are not estimated: their likelihood is too large to be computed.",
            *([f"{form.number(hidden, f'{part} is', f'{part}s are')} not shown."] if hidden else []),
        ]

    @property
    def words(self) -> dict[str, str]:
        part = self.reports.part
        found = {f"{part} {self.reports.shown[0]}, …": f"posterior means from the reports of that {part} alone"}
        if self.pooled is None:
            return found
        return found | {
            f"all {part}s": f"posterior means from the reports of all {part}s together; the prior is estimated from "
            "the same reports",
            self.heading: f"of all {part}s: the estimate plus and minus a multiple of its standard error, "
            "within 0 and 100\N{NO-BREAK SPACE}%",
        }

    def cells(self, top: int = SHOWN) -> Cells:
        part = self.reports.part
        shown = {f"{part} {number}": self.estimates[number].theta for number in self.reports.shown}
        headings, rows = ["category", *shown], []
        if self.pooled is not None:
            headings += [f"all {part}s", self.heading]
        for place in largest_of(self.theta, top):
            row = [form.printable(self.reports.labels[place]), *(form.share(each[place]) for each in shown.values())]
            if self.pooled is not None and self.limits is not None:
                row += [form.share(self.pooled.theta[place]), form.between(*(each[place] for each in self.limits))]
            rows.append([*row, *(form.share(each[place]) for each in self.beside.values())])
        left = len(self.theta) - len(rows)
        rest = f"… and {form.number(left, 'more category', 'more categories')}" if left else ""
        return Cells([*headings, *self.beside], rows, rest)

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        columns = {name: each for name, each in self.columns.items() if name != "simulated"}
        places = largest_of(self.theta, top)
        return {"top": [{name: each[place] for name, each in columns.items()} for place in places]}

    @property
    def _parts(self):
        return self.reports.parts.items()


def shares_of_parts(reports: Parts, pool: Any, level: float) -> tuple[dict[int, Estimate], Any]:
    """The estimate of each part, and what `pool` returns; tests whether each part contradicts its mechanism."""
    check_rate("level", level)
    parts = reports.parts.values()
    pooled, *estimates = side_by_side([pool, *(partial(_tested, each) for each in parts)])
    return dict(zip(reports.parts, estimates, strict=True)), pooled


def _tested(reports: Reports) -> Estimate:
    check_contradictions(reports)
    return estimated(reports, CLOSEST)
