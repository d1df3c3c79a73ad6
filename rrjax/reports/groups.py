"""Reports of groups of users that were randomized differently: each group, and all of them together."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar

import numpy as np

from rrjax.data.errors import DataError
from rrjax.data.tally import Tally
from rrjax.estimators.em import EMResult
from rrjax.estimators.whole_reports import MAX_CATEGORIES
from rrjax.io.numbers import of_numbers
from rrjax.io.source import Source
from rrjax.mechanisms.surveys import groups
from rrjax.reports import form
from rrjax.reports.parts import Parts, PartShares, shares_of_parts
from rrjax.reports.pooled import PooledEstimate, pooled_estimate
from rrjax.reports.reports import Reports

MOST_SHOWN = 4
"""Groups that a table shows, the first ones."""


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
    found: dict[Any, list[str]] = {}
    meanings = set()
    for file in source.files():
        metadata = dataclasses.replace(source, paths=(file,)).metadata()
        if metadata is None or metadata.round is not None or of_numbers(metadata):
            return {}
        mechanism = metadata.mechanism
        key = (mechanism.name, repr(sorted(mechanism.parameters.items())), metadata.effective_epsilon)
        found.setdefault(key, []).append(file)
        meanings.add((metadata.column, metadata.columns, tuple(map(str, metadata.domain.labels()))))
    if len(found) < 2:
        return {}
    if len(meanings) > 1:
        paths = [each[0] for each in found.values()]
        raise DataError(
            f"{', '.join(paths[:3])}{' …' * (len(paths) > 3)} were randomized differently, and have different columns "
            "or domains. Files with one column and one domain are estimated together; estimate these apart.",
            file=paths[1],
            argument="domain",
        )
    return {number: dataclasses.replace(source, paths=tuple(each)) for number, each in enumerate(found.values(), 1)}


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
        """The first groups."""
        return list(self.parts)[:MOST_SHOWN]

    @property
    def main(self) -> Reports:
        return next(iter(self.parts.values()))

    def summary(self) -> str:
        named = ((f"group {number} ({each.name})", each) for number, each in self.parts.items())
        return "\n".join(each.summary(name) for name, each in named)

    def shares(self, level: float = 0.95, *, simultaneous: bool = False) -> GroupShares:
        """Estimates the shares of all categories, from each group and from all groups together.

        Args:
            level: Confidence level of the intervals of all groups together, in (0, 1).
            simultaneous: Whether all intervals hold their share together with that confidence, not each.

        Returns:
            `GroupShares`, computed in float64.

        Raises:
            ArgumentError: A level outside of (0, 1).
        """
        estimates, (pooled, likeliest) = shares_of_parts(self, partial(_pooled, list(self.parts.values())), level)
        return GroupShares(self, estimates, pooled, level, simultaneous, likeliest)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class GroupShares(PartShares):
    """The shares of all categories: from each group, and from all groups together."""

    likeliest: EMResult | None
    """The maximum of the likelihood of all groups; None if it is too large."""

    @property
    def beside(self) -> dict[str, np.ndarray]:
        """The likeliest shares."""
        return {} if self.likeliest is None else {"likeliest": np.asarray(self.likeliest.theta)}

    @property
    def facts(self) -> dict[str, Any]:
        gap = None if self.likeliest is None else float(self.likeliest.gap)
        return super().facts | {"groups": [_facts(each) for each in self.reports.parts.values()], "gap": gap}

    @property
    def assumption(self) -> str:
        """All reports, of samples of one population."""
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


def _facts(reports: Reports) -> dict[str, Any]:
    metadata = reports.counted.metadata
    return {
        "reports": reports.paths,
        "mechanism": reports.mechanism.name,
        "parameters": None if metadata is None else metadata.mechanism.parameters,
        "epsilon": reports.epsilon,
        "num_reports": reports.num_reports,
    }


def _pooled(parts: list[Reports]) -> tuple[PooledEstimate, EMResult] | tuple[None, None]:
    """The closest and the likeliest estimate from all groups; None if their likelihood is too large."""
    size = parts[0].num_categories
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
    mixture = groups.mixture(mixtures)
    number = sum(each.num_reports for each in parts)
    # The precisions of the groups add up.
    precision = sum(each.num_reports / float(np.mean(each.rates.variance(1 / size))) for each in parts)
    shares = np.asarray(groups.inv(tallies), float)
    return pooled_estimate(mixture, shares, number / precision, number), groups.mle(mixtures)
