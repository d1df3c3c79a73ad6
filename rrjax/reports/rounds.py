"""Reports of several rounds of a longitudinal protocol: each round, and all reports of each user together."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar

import numpy as np

import rrjax
from rrjax.estimators.whole_reports import MAX_CATEGORIES
from rrjax.io.metadata import Metadata
from rrjax.io.rounds import reports_of_users, reports_per_user, rounds_of, users_of
from rrjax.io.source import Source
from rrjax.io.tallies import MAX_CELLS
from rrjax.mechanisms import PROTOCOLS
from rrjax.mechanisms.surveys import groups
from rrjax.reports import form
from rrjax.reports.parts import Parts, PartShares, shares_of_parts
from rrjax.reports.pooled import PooledEstimate, pooled_estimate
from rrjax.reports.privacy_loss import PrivacyLoss
from rrjax.reports.reports import Reports

MOST_SHOWN = 6
"""Rounds that a table shows, the last ones."""


def several_rounds(source: Source) -> dict[int, Source]:
    """The files of each round by its number, if there are several rounds of a longitudinal protocol; else empty."""
    metadata = source.metadata()
    found = {} if metadata is None or metadata.round is None else rounds_of(source)
    if len(found) < 2:
        return {}
    return {number: dataclasses.replace(source, paths=each.files()) for number, each in found.items()}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Rounds(Parts):
    """Reports of several rounds of a longitudinal protocol, of users who report again and again.

    `rrjax.read` makes them of the files of several rounds. Each round is `rounds.parts[number]`, which are `Reports`.
    """

    called_kind: ClassVar[str] = "reports of several rounds"
    instead: ClassVar[str] = "give the file of one"
    part: ClassVar[str] = "round"

    @property
    def shown(self) -> list[int]:
        """The last rounds."""
        return sorted(self.parts)[-MOST_SHOWN:]

    @property
    def main(self) -> Reports:
        return self.parts[max(self.parts)]

    @property
    def metadata(self) -> Metadata:
        """The metadata of the first round."""
        found = self.parts[min(self.parts)].counted.metadata
        assert found is not None
        return found

    def summary(self) -> str:
        main, metadata = self.main, self.metadata
        return (
            f"{form.number(len(self.parts), 'round', 'rounds')} of {metadata.mechanism.name} in column "
            f"{main.counted.column!r}; domain: {main.counted.domain.describe()}; ε = {main.epsilon:.6g} nats a report, "
            f"{metadata.epsilon:.6g} for all reports of one value"
        )

    def shares(self, level: float = 0.95, *, simultaneous: bool = False) -> RoundShares:
        """Estimates the shares of all categories, from each round and from all reports of each user together.

        Args:
            level: Confidence level of the intervals of all rounds together, in (0, 1).
            simultaneous: Whether all intervals hold their share together with that confidence, not each.

        Returns:
            `RoundShares`, computed in float64.

        Raises:
            ArgumentError: A level outside of (0, 1).
        """
        # Users are read once, for the estimate and for what they have spent.
        sources = {number: dataclasses.replace(each.files, missing=()) for number, each in self.parts.items()}
        users = users_of(sources, self.metadata)
        estimates, pooled = shares_of_parts(self, partial(_pooled, self, sources, users), level)
        loss = PrivacyLoss(self.metadata, reports_per_user(users))
        return RoundShares(self, estimates, pooled, level, simultaneous, loss)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class RoundShares(PartShares):
    """The shares of all categories: from each round, and from all reports of each user together."""

    loss: PrivacyLoss
    """What users have spent."""

    @property
    def facts(self) -> dict[str, Any]:
        mechanism = self.loss.metadata.mechanism
        return super().facts | {
            "mechanism": mechanism.name,
            "parameters": mechanism.parameters,
            "rounds": {str(number): each.num_reports for number, each in self.reports.parts.items()},
            "num_users": None if self.pooled is None else self.pooled.num_users,
            "spent": self.loss.facts(),
        }

    @property
    def assumption(self) -> str:
        """All reports of a user, whose value did not change."""
        number = len(self.loss.numbers)
        return f"from all reports of each of {number:,} users together. It holds for users whose value did not change."

    @property
    def sentences(self) -> list[str]:
        own = "A round is estimated from its own reports; reports of one user in two rounds depend on each other."
        return [*super().sentences, own, self.loss.sentence()]


def _pooled(reports: Rounds, sources: dict[int, Source], users: list[np.ndarray]) -> PooledEstimate | None:
    """The estimate from all reports of each user; None if its likelihood is too large."""
    metadata, size = reports.metadata, reports.metadata.num_categories
    if size > MAX_CATEGORIES or reports.num_reports * size > MAX_CELLS:
        return None
    record: Any = metadata.mechanism
    protocol = PROTOCOLS[record.name](**record.parameters)
    own = reports_of_users(sources, metadata, users)
    mixture = groups.mixture([protocol.mixture(each) for each in own])
    number, single = sum(map(len, own)), protocol.single_round
    shares = np.mean([rrjax.inv(*each.support_arguments) for each in reports.parts.values()], axis=0)
    # The permanent answers' variance stays in the average of the rounds; the rest of it is divided by their number.
    kept, once = (
        float(np.mean(type(single)(size, epsilon).rates.variance(1 / size)))
        for epsilon in (protocol.epsilon, single.epsilon)
    )
    return pooled_estimate(mixture, shares, kept + max(once - kept, 0) / (reports.num_reports / number), number)
