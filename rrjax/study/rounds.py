"""Longitudinal protocols among the mechanisms of a study: several rounds of the same users."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from jaxtyping import Array, ArrayLike

from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError, StudyError
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms import PROTOCOLS
from rrjax.mechanisms.longitudinal import Protocol
from rrjax.mechanisms.longitudinal.protocol import MOST_REPORTS


@dataclasses.dataclass(frozen=True)
class SeveralRounds:
    """T rounds of a protocol, of users whose values do not change: their tallies, added up."""

    protocol: Protocol
    num_rounds: int

    @property
    def rates(self) -> Rates:
        """The rates of one report."""
        return self.protocol.single_round.rates

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """Draws the tally of all rounds."""
        return self.protocol.collect(key, true_counts, self.num_rounds)


@dataclasses.dataclass(frozen=True)
class RoundsFactory:
    """A function of K and ε∞ that returns `SeveralRounds`."""

    name: str
    parameters: Mapping[str, Any]
    """Of the protocol, besides K and ε∞: `first_epsilon`, …"""
    num_rounds: int

    def __call__(self, num_categories: int, epsilon: Any) -> SeveralRounds:
        """The protocol for K categories and ε∞."""
        return SeveralRounds(PROTOCOLS[self.name](num_categories, epsilon, **self.parameters), self.num_rounds)

    @property
    def __name__(self) -> str:
        """The name of the protocol."""
        return self.name


def rounds_of(name: str, table: Mapping[str, Any], of: str, label: str | None) -> RoundsFactory:
    """The factory of a table with a protocol, its parameters, and `rounds`, by default one.

    Raises:
        StudyError: Parameters that the protocol does not have, or a number of rounds that is none.
    """
    fields = [each.name for each in dataclasses.fields(PROTOCOLS[name]) if each.init]
    known = [each for each in fields if each not in ("num_categories", "epsilon")]
    given = {key: value for key, value in table.items() if key not in ("mechanism", "rounds")}
    odd = next((key for key in given if key not in known), None)
    if odd is not None or "first_epsilon" not in given:
        wrong = f"has no {odd}" if odd is not None else "needs first_epsilon, the ε of one report"
        raise StudyError(
            f"{of}: {name} {wrong}; its parameters are {', '.join(known)}, and rounds; epsilon, of all reports of one "
            "value, is that of the study",
            argument="mechanism",
            value=label,
        )
    try:
        return RoundsFactory(name, given, as_integer(table.get("rounds", 1), "rounds", 1))
    except ArgumentError as error:
        raise StudyError(f"{of}: {error}", argument="mechanism", value=label) from error


def check_rounds(
    mechanisms: Mapping[str, Any] | None, sizes: Iterable[int], epsilons: Iterable[float], most_users: int
) -> None:
    """Refuses protocols that cannot be made for a K and ε of the study, and too many reports.

    Raises:
        StudyError: There is one.
    """
    factories = {label: each for label, each in (mechanisms or {}).items() if isinstance(each, RoundsFactory)}
    for label, factory in factories.items():
        try:
            for size in sizes:
                for epsilon in epsilons:
                    factory(size, epsilon)
        except (ArgumentError, TypeError) as error:
            raise StudyError(f"mechanism {label!r}: {error}", argument="mechanism", value=label) from error
        if most_users * factory.num_rounds > MOST_REPORTS:
            raise StudyError(
                f"mechanism {label!r}: {factory.num_rounds:,} rounds of {most_users:,} users are more than "
                f"{MOST_REPORTS:,} reports",
                argument="num_users",
                value=most_users,
            )
