"""Reports of one column in several parts: each part and all together; and groups that were randomized differently."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from rrjax import inference
from rrjax.data.errors import DataError, check_rate
from rrjax.data.tally import Tally
from rrjax.estimators.em import EMResult
from rrjax.estimators.names import CLOSEST
from rrjax.estimators.whole_reports import MAX_CATEGORIES
from rrjax.io.numbers import of_numbers
from rrjax.io.source import Source
from rrjax.mechanisms import ByRespondent
from rrjax.mechanisms.surveys import groups
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells, rest_of, rows_of_table, table_of
from rrjax.reports.kind import Kind
from rrjax.reports.pooled import PooledEstimate, of_groups, posterior_means
from rrjax.reports.reports import Reports
from rrjax.reports.shares import Estimate, estimated, largest_of, side_by_side
from rrjax.reports.testing import check_contradictions, check_domains

FEWEST_EXPECTED = 5
"""Fewest answers of each kind in each group, for the law of χ²."""
MISFIT, SMALLEST_P = 0.01, 1e-99
"""Largest p-value at which groups are said to contradict each other, and the smallest one that is written out."""
MOST_GROUPS = 4
"""Groups that a table shows, the first ones."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Parts(Kind):
    """Reports of one column and domain in several parts."""

    part: ClassVar[str]
    """What a part is called."""

    parts: dict[int, Reports]
    """The reports of each part, by its number."""

    def __post_init__(self) -> None:
        """Refuses parts of other categories: their counts are added by place."""
        check_domains([*self.parts.values()])

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
    def simulated(self) -> bool:
        return any(each.simulated for each in self.parts.values())

    @property
    def inputs(self) -> list[Source]:
        return [source for each in self.parts.values() for source in each.inputs]

    @property
    def warnings(self) -> list[str]:
        """The warnings of all parts, each once; one that is not about all of them names its parts."""
        numbers: dict[str, list[int]] = {}
        for number, each in self.parts.items():
            for warning in each.warnings:
                numbers.setdefault(warning, []).append(number)
        warnings = []
        for warning, of in numbers.items():
            named = f"{self.part.capitalize()}{'s' * (len(of) > 1)} {', '.join(map(str, of))}"
            warnings.append(warning if len(of) == len(self.parts) else f"{named}: {warning}")
        return warnings

    @property
    def contradicted(self) -> bool:
        """Whether a part contradicts its mechanism."""
        contradicted = [each.contradicted for each in self.parts.values()]  # all are tested
        return any(contradicted)

    def shares(self, level: float = 0.95, *, simultaneous: bool = False) -> PartShares:
        """Estimates the shares of all categories, from each part and from all parts together.

        Args:
            level: Confidence level of the intervals of all parts together, in (0, 1).
            simultaneous: Whether all intervals hold their share together with that confidence, not each.

        Returns:
            `RoundShares` or `GroupShares`, computed in float64.

        Raises:
            ArgumentError: A level outside of (0, 1).
        """
        raise NotImplementedError

    def _estimated(self, pool: Callable[[], Any], level: float) -> tuple[dict[int, Estimate], Any]:
        """The estimate of each part, and what `pool` returns; tests whether each part contradicts its mechanism."""
        check_rate("level", level)

        def tested(reports):
            check_contradictions(reports)
            return estimated(reports, CLOSEST)

        pooled, *estimates = side_by_side([pool, *(partial(tested, each) for each in self.parts.values())])
        return dict(zip(self.parts, estimates, strict=True)), pooled


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class PartShares(Answer):
    """The shares of all categories, from each part and from all parts together.

    `columns` are `[K]` each: label, the estimate of each part, that of all parts, the standard error of the unbiased
    share, and the limits of the interval around it, lower, upper.
    """

    reports: Parts
    estimates: dict[int, Estimate]
    """The estimate from each part, by its number."""
    pooled: PooledEstimate | None
    """The estimate from all parts together; None if its likelihood is too large."""
    level: float
    simultaneous: bool
    """Whether all intervals hold together at that level."""

    @property
    def theta(self) -> np.ndarray:
        """`[K]`, the leading estimate: of all parts or, without one, of the main part."""
        if self.pooled is not None:
            return self.pooled.theta
        parts = self.reports.parts.items()
        return next(self.estimates[number].theta for number, each in parts if each is self.reports.main)

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The limits of the shares of all parts together, `[K]` each; None without their estimate."""
        if self.pooled is None:
            return None
        return self.pooled.unbiased.limits(self.level, simultaneous=self.simultaneous)

    @property
    def heading(self) -> str:
        """The heading of the intervals."""
        return form.interval(self.level) + ", simultaneous" * self.simultaneous

    @property
    def beside(self) -> dict[str, np.ndarray]:
        """Further estimates from all parts together, by their names."""
        return {}

    @property
    def _table(self):
        part, columns = self.reports.part, {"label": self.reports.labels}
        columns |= {f"{part}_{number}": each.theta for number, each in self.estimates.items()}
        if self.pooled is not None and self.limits is not None:
            columns |= {f"all_{part}s": self.pooled.theta, f"all_{part}s_standard_error": self.pooled.standard_error}
            columns |= dict(zip(("lower", "upper"), self.limits, strict=True))
        return columns | self.beside

    @property
    def facts(self) -> dict[str, Any]:
        domain = self.reports.main.counted.domain.describe()
        facts = {"domain": domain, "level": self.level, "at_once": self.simultaneous, "warnings": self.warnings}
        return facts | self._results

    @property
    def assumption(self) -> str:
        """What the estimate of all parts is made from, and when it holds."""
        raise NotImplementedError

    @property
    def sentences(self) -> list[str]:
        part, hidden = self.reports.part, len(self.estimates) - len(self.reports.shown)
        intervals = "The intervals are around unbiased shares; the estimates may be outside of them."
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
        words = {f"{part} {self.reports.shown[0]}, …": f"posterior means from the reports of that {part} alone"}
        if self.pooled is None:
            return words
        return words | {
            f"all {part}s": f"posterior means from the reports of all {part}s together; the prior is estimated from "
            "the same reports",
            self.heading: f"of all {part}s: the true shares of which the reports are not in a tail; a dash if no "
            "share explains them",
        }

    def cells(self, top: int = SHOWN) -> Cells:
        part, places = self.reports.part, largest_of(self.theta, top)
        columns: list[Any] = [("category", self.reports.labels, form.printable)]
        columns += [(f"{part} {number}", self.estimates[number].theta, form.share) for number in self.reports.shown]
        if self.limits is not None:
            columns += [(f"all {part}s", self.theta, form.share)]
            columns += [(self.heading, np.transpose(self.limits), lambda each: form.between(*each))]
        columns += [(name, each, form.share) for name, each in self.beside.items()]
        return table_of(columns, places, rest=rest_of(len(self.theta) - len(places), "category", "categories"))

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        places = largest_of(self.theta, top)
        return {"top": rows_of_table({name: each[places] for name, each in self._table.items()})}


def text_of_p(p_value: float) -> str:
    """A p-value after its sign."""
    return f"= {p_value:.2g}" if p_value > SMALLEST_P else f"< {SMALLEST_P:g}"


def groups_of(source: Source) -> dict[int, Source]:
    """The files of each group, by its number from one, if files of one column and domain were randomized differently.

    Empty for files that were randomized alike, and for rounds, numbers and files without metadata.
    """
    try:
        source.columns()
    except DataError:
        pass
    else:
        return {}
    groups: dict[Any, list[str]] = {}
    meanings = set()
    for file in source.files():
        metadata = dataclasses.replace(source, paths=(file,)).metadata()
        if metadata is None or metadata.round is not None or of_numbers(metadata):
            return {}
        mechanism = metadata.mechanism
        key = (mechanism.name, repr(sorted(mechanism.parameters.items())), metadata.effective_epsilon)
        groups.setdefault(key, []).append(file)
        meanings.add((metadata.column, metadata.columns, tuple(map(str, metadata.domain.labels()))))
    if len(groups) < 2:
        return {}
    if len(meanings) > 1:
        paths = [each[0] for each in groups.values()]
        raise DataError(
            f"{', '.join(paths[:3])}{' …' * (len(paths) > 3)} were randomized differently, and have different columns "
            "or domains. Files with one column and one domain are estimated together; estimate these apart.",
            file=paths[1],
            argument="domain",
        )
    return {number: dataclasses.replace(source, paths=tuple(each)) for number, each in enumerate(groups.values(), 1)}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Groups(Parts):
    """Reports of one column and domain that were randomized differently: by another mechanism, or at another ε.

    `rrjax.read` makes them of such files. Each group is `groups.parts[number]`, which are `Reports`; the numbers begin
    with one.

    Example:
        >>> import rrjax
        >>> one, other = (
        ...     rrjax.Reports.of_counts(each, epsilon) for each, epsilon in (([60, 40], 1.0), ([70, 30], 2.0))
        ... )
        >>> groups = rrjax.reports.Groups({1: one, 2: other})
        >>> groups.num_reports, groups.questions()
        (200, ['shares'])
    """

    called_kind: ClassVar[str] = "reports that were randomized differently"
    instead: ClassVar[str] = "give the files of one"
    part: ClassVar[str] = "group"

    @property
    def shown(self) -> list[int]:
        return list(self.parts)[:MOST_GROUPS]

    @property
    def main(self) -> Reports:
        return next(iter(self.parts.values()))

    def summary(self) -> str:
        return "\n".join(each.summary(f"group {number} ({each.name})") for number, each in self.parts.items())

    def shares(self, level: float = 0.95, *, simultaneous: bool = False) -> GroupShares:
        estimates, (pooled, likeliest, fit) = self._estimated(lambda: (*self._pooled(), self._fit()), level)
        return GroupShares(self, estimates, pooled, level, simultaneous, likeliest, fit)

    def _fit(self) -> inference.DesignFit | None:
        """The test whether all groups tell of one distribution; None where too few answers of a kind are expected."""
        parts = list(self.parts.values())
        if not all(each.mechanism.names_one for each in parts):
            return None
        counts = np.stack([each.counts for each in parts])
        if np.outer(counts.sum(1), counts.sum(0)).min() < FEWEST_EXPECTED * counts.sum():
            return None
        return inference.design_fit_test(counts, ByRespondent([each.mechanism for each in parts]))

    def _pooled(self) -> tuple[PooledEstimate, EMResult] | tuple[None, None]:
        """The closest and the likeliest estimate from all groups; None if their likelihood is too large."""
        parts, size = list(self.parts.values()), self.main.num_categories
        mixtures, tallies = [], []
        for each in parts:
            if each.tallied is None:
                mixtures.append(groups.mixture(each.counts[None], np.asarray([each.epsilon])))
                tallies.append(Tally(each.counts, each.num_reports, rates=each.mechanism.rates))
            else:
                mixtures.append(each.tallied.mixture)
                tallies.append(dataclasses.replace(each.tallied.tally, domain=None))
        if size > MAX_CATEGORIES or any(each is None for each in mixtures):
            return None, None
        mixture, number = groups.mixture(mixtures), self.num_reports
        # The precisions of the groups add up.
        drawn = (1 - 1 / size) / size
        precision = sum(each.precision for each in parts)
        shares = np.asarray(groups.inv(tallies), float)
        theta = posterior_means(mixture, shares, number / precision - drawn, number)
        return PooledEstimate(theta, of_groups(parts, theta), number), groups.mle(mixtures)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class GroupShares(PartShares):
    """The shares of all categories: from each group, and from all groups together."""

    likeliest: EMResult | None
    """The maximum of the likelihood of all groups; None if it is too large."""
    fit: inference.DesignFit | None
    """The test whether all groups tell of one distribution; None if answers are too few for it, or name several."""

    @property
    def beside(self) -> dict[str, np.ndarray]:
        return {} if self.likeliest is None else {"likeliest": np.asarray(self.likeliest.theta)}

    @property
    def _results(self):
        rows = []
        for each in self.reports.parts.values():
            metadata = each.counted.metadata
            made: dict[str, Any] = {"reports": each.paths, "mechanism": each.mechanism.name}
            made["parameters"] = None if metadata is None else metadata.mechanism.parameters
            made |= {"note": each.mechanism.note} if metadata is None else {}
            rows.append(made | {"epsilon": each.epsilon, "num_reports": each.num_reports})
        results = {"groups": rows, "gap": None if self.likeliest is None else float(self.likeliest.gap)}
        if self.fit is not None:
            numbers = float(self.fit.statistic), int(self.fit.degrees), float(self.fit.p_value)
            results["fit"] = dict(zip(("statistic", "degrees", "p_value"), numbers, strict=True))
        return results

    @property
    def sentences(self) -> list[str]:
        if self.fit is None:
            return super().sentences
        p_value, degrees = float(self.fit.p_value), int(self.fit.degrees)
        told = (
            f"One distribution for all groups: G² = {self.fit.statistic:.4g} on {degrees} df, p {text_of_p(p_value)}."
        )
        return [*super().sentences, told]

    @property
    def warnings(self) -> list[str]:
        if self.fit is None or not float(self.fit.p_value) <= MISFIT:
            return super().warnings
        p_value = text_of_p(float(self.fit.p_value))
        told = (
            f"The groups contradict each other (p {p_value}): do not use the estimate of all. Are the parameters "
            "right, are the groups samples of one population, did all respondents follow the rules?"
        )
        return [*super().warnings, told]

    @property
    def assumption(self) -> str:
        return (
            f"from all {self.reports.num_reports:,} reports, by their own probabilities. It holds if the groups are "
            "samples of one population."
        )

    @property
    def words(self) -> dict[str, str]:
        if self.likeliest is None:
            return super().words
        gap = form.at_most(max(float(self.likeliest.gap), 0.0))
        likeliest = f"of all groups: at most {gap} below the maximum of the likelihood (nats per report)"
        return super().words | {"likeliest": likeliest}
