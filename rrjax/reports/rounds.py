"""Rounds of a longitudinal protocol: each round, all reports of each user together, and what users have spent."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np

from rrjax.estimators.whole_reports import MAX_CATEGORIES
from rrjax.io.metadata import Metadata
from rrjax.io.rounds import memos_of, reports_of_users, reports_per_user, users_of
from rrjax.io.source import Source
from rrjax.io.tallies import MAX_CELLS
from rrjax.mechanisms import PROTOCOLS
from rrjax.mechanisms.surveys import groups
from rrjax.reports import form
from rrjax.reports.parts import Parts, PartShares
from rrjax.reports.pooled import PooledEstimate, of_users, posterior_means, support_of_users
from rrjax.reports.reports import Reports

MOST_ROUNDS = 6
"""Rounds that a table shows, the last ones."""


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
        return sorted(self.parts)[-MOST_ROUNDS:]

    @property
    def main(self) -> Reports:
        return self.parts[max(self.parts)]

    @property
    def warnings(self) -> list[str]:
        """Those of the rounds; and one where they are of several memos, as far as their files say so."""
        memos = {*memos_of(each.files for each in self.parts.values()).values()}
        told = (
            f"The rounds are of {len(memos)} memos, so of different collections: a user of several spends ε∞ in each."
        )
        return [*super().warnings, *([told] if len(memos) > 1 else [])]

    @property
    def metadata(self) -> Metadata:
        """The metadata of the first round."""
        metadata = self.parts[min(self.parts)].counted.metadata
        assert metadata is not None
        return metadata

    def summary(self) -> str:
        main, metadata = self.main, self.metadata
        return (
            f"{form.number(len(self.parts), 'round', 'rounds')} of {metadata.mechanism.name} in column "
            f"{main.counted.column!r}; domain: {main.counted.domain.describe()}; ε = {main.epsilon:.6g} nats a report, "
            f"{metadata.epsilon:.6g} for all reports of one value"
        )

    def shares(self, level: float = 0.95, *, simultaneous: bool = False) -> RoundShares:
        # Users are read once, for the estimate and for what they have spent.
        sources = {number: dataclasses.replace(each.files, missing=()) for number, each in self.parts.items()}
        users = users_of(sources, self.metadata)
        estimates, pooled = self._estimated(partial(self._pooled, sources, users), level)
        for source in sources.values():
            source.check_unchanged()
        loss = PrivacyLoss(self.metadata, reports_per_user(users))
        return RoundShares(self, estimates, pooled, level, simultaneous, loss)

    def _pooled(self, sources: dict[int, Source], users: list[np.ndarray]) -> PooledEstimate | None:
        """The estimate from all reports of each user; None if its likelihood is too large."""
        metadata, size = self.metadata, self.metadata.num_categories
        if size > MAX_CATEGORIES or self.num_reports * size > MAX_CELLS:
            return None
        record: Any = metadata.mechanism
        protocol = PROTOCOLS[record.name](**record.parameters)
        own = reports_of_users(sources, metadata, users)
        mixture = groups.mixture([protocol.mixture(each) for each in own])
        support, least = support_of_users(protocol, own)
        number, rates = len(support), protocol.single_round.rates
        shares = (support.mean(axis=0) - np.asarray(rates.q, float)) / np.asarray(rates.d, float)
        # The permanent answers' variance stays in the mean of a user's reports; the rest is divided by their number.
        once, kept = (
            float(np.mean(type(protocol.single_round)(size, epsilon).rates.variance(1 / size)))
            for epsilon in (protocol.single_round.epsilon, protocol.epsilon)
        )
        theta = posterior_means(mixture, shares, kept + max(once - kept, 0) * least, number)
        return PooledEstimate(theta, of_users(support, rates, least, theta), number)


@dataclasses.dataclass(frozen=True)
class PrivacyLoss:
    """The reports of each user, and what they spend."""

    metadata: Metadata
    numbers: np.ndarray
    """`[N]`, the number of reports of each user."""

    @property
    def one_report(self) -> float:
        """ε₁, of a single report."""
        return float(self.metadata.mechanism.parameters["first_epsilon"])

    @property
    def one_value(self) -> float:
        """ε∞, of any number of reports of one value."""
        return self.metadata.epsilon

    def after(self, number: int) -> float:
        """The exact ε of this number of reports of one value."""
        record: Any = self.metadata.mechanism
        with jax.enable_x64(True):
            return float(PROTOCOLS[record.name](**record.parameters).epsilon_after(number))

    @property
    def median(self) -> int:
        """The median number of reports of a user; of two medians the larger one."""
        return median(self.numbers)

    @property
    def most(self) -> int:
        """The largest number of reports of a user."""
        return int(self.numbers.max())

    def facts(self) -> dict[str, Any]:
        return {
            "num_users": len(self.numbers),
            "reports_per_user": {"median": self.median, "most": self.most},
            "one_report": self.one_report,
            "unchanged": {"median": self.after(self.median), "most": self.after(self.most)},
            "one_value": self.one_value,
        }

    def sentence(self) -> str:
        """What users have spent, for a line under a table."""
        often, least = form.number(self.median, "report", "reports"), f"{self.after(self.median):.4g}"
        gave = (
            f"{often} (median), at most {self.most:,}; of one value these spend {least} and {self.after(self.most):.4g}"
        )
        if self.median == self.most:
            gave = f"{often} (median and maximum); of one value these spend {least}"
        return f"Spent: a user gave {gave} nats. A user whose value changed has spent up to {self.one_value:g} a value."


def median(numbers: np.ndarray) -> int:
    """The median of whole numbers; of two the larger one."""
    return int(np.quantile(numbers, 0.5, method="higher"))


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class RoundShares(PartShares):
    """The shares of all categories: from each round, and from all reports of each user together."""

    loss: PrivacyLoss
    """What users have spent."""

    @property
    def _results(self):
        mechanism = self.loss.metadata.mechanism
        return {
            "mechanism": mechanism.name,
            "parameters": mechanism.parameters,
            "rounds": {str(number): each.num_reports for number, each in self.reports.parts.items()},
            "num_users": None if self.pooled is None else self.pooled.num_users,
            "spent": self.loss.facts(),
        }

    @property
    def assumption(self) -> str:
        numbers = self.loss.numbers
        users = f"each of {len(numbers):,} users"
        told = f"from all reports of {users} together. It holds for users whose value did not change."
        if numbers.min() == numbers.max():
            return told
        return told + (
            " Each user counts once; where those of many reports hold other values than those of few, the estimates "
            "lean towards the former, and the intervals do not."
        )

    @property
    def sentences(self) -> list[str]:
        own = "A round is estimated from its own reports; reports of one user in two rounds depend on each other."
        return [*super().sentences, own, self.loss.sentence()]
