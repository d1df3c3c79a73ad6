"""`rrjax estimate` of several rounds of a longitudinal protocol: each round, and all reports of a user together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import rrjax
from rrjax import io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output
from rrjax.cli.reading import Files, read_collection
from rrjax.cli.spending import Spending
from rrjax.cli.together import Together, estimated_together, show_side_by_side, top_rows
from rrjax.estimators.catalogue import CLOSEST
from rrjax.estimators.whole_reports import MAX_CATEGORIES
from rrjax.io.metadata import Metadata
from rrjax.io.rounds import reports_of_users, reports_per_user, rounds_of, users_of
from rrjax.io.source import Source
from rrjax.io.tallies import MAX_CELLS
from rrjax.mechanisms import PROTOCOLS
from rrjax.mechanisms.surveys import groups
from rrjax.reports import form
from rrjax.reports.estimates import Estimate, estimated
from rrjax.reports.reports import Reports

MOST_ROUNDS = 6
"""Rounds that a table shows, the last ones."""


@dataclasses.dataclass(frozen=True)
class FoundRounds:
    """Several rounds: the reports and the estimate of each, that of all together, and what users have spent."""

    collections: dict[int, Reports]
    estimates: dict[int, Estimate]
    together: Together | None
    spending: Spending

    @property
    def last(self) -> Reports:
        """The reports of the last round."""
        return self.collections[max(self.collections)]

    @property
    def theta(self) -> np.ndarray:
        """The leading estimate: of all rounds, or of the last one if the likelihood of all is too large."""
        return self.estimates[max(self.estimates)].theta if self.together is None else self.together.theta

    @property
    def shown(self) -> list[int]:
        """The rounds that a table shows."""
        return sorted(self.estimates)[-MOST_ROUNDS:]

    @property
    def warnings(self) -> list[str]:
        """The warnings of all rounds, each once."""
        return list(dict.fromkeys(warning for each in self.collections.values() for warning in each.warnings))

    def summary(self) -> str:
        """A sentence about the rounds."""
        spending, last = self.spending, self.last
        return (
            f"{form.number(len(self.collections), 'round', 'rounds')} of {spending.metadata.mechanism.name} in column "
            f"{last.counted.column!r}; domain: {last.counted.domain.describe()}; ε = {last.epsilon:.6g} nats a report, "
            f"{spending.one_value:.6g} for all reports of one value"
        )


def find_rounds(files: Files, rounds: dict[int, Source]) -> FoundRounds:
    """Estimates every round, and all of them together."""
    collections = {number: read_collection(_of(files, source), None) for number, source in rounds.items()}
    estimates = {number: estimated(each, CLOSEST) for number, each in collections.items()}
    metadata = collections[min(collections)].counted.metadata
    assert metadata is not None
    users = users_of(rounds, metadata)
    together = _together(rounds, list(collections.values()), metadata, users)
    return FoundRounds(collections, estimates, together, Spending(metadata, reports_per_user(users)))


def run(files: Files, rounds: dict[int, Source], level: float, output: Output) -> None:
    """Estimates every round and all of them together, writes and prints the estimates."""
    with show.status("Estimating …"):
        found = find_rounds(files, rounds)
    last, together = found.last, found.together
    columns = {f"round_{number}": each.theta for number, each in found.estimates.items()}
    if together is not None:
        columns |= {"all_rounds": together.theta, "all_rounds_standard_error": together.standard_error}
    if output.out is not None:
        io.write_table(output.out, last.table({"label": last.labels} | columns))
    if output.json:
        mechanism = found.spending.metadata.mechanism
        show.record(
            {
                "command": "estimate",
                "mechanism": mechanism.name,
                "parameters": mechanism.parameters,
                "domain": last.counted.domain.describe(),
                "rounds": {number: each.num_reports for number, each in found.collections.items()},
                "num_users": None if together is None else together.num_users,
                "spent": found.spending.facts(),
                "top": top_rows(last.labels, columns, found.theta, output.top),
                "warnings": found.warnings,
            }
            | output.files
        )
        return
    show.say(found.summary())
    show.warn(found.warnings)
    show.out.print()
    shown = {f"round {number}": found.estimates[number].theta for number in found.shown}
    of_all = {} if together is None else {"all rounds": together}
    show_side_by_side(last.labels, shown, of_all, {}, found.theta, level, output.top)
    show.out.print()
    if together is not None:
        show.say(
            f"All rounds: from all reports of each of {together.num_users:,} users together. It holds for users whose "
            "value did not change; its interval is that of the normal approximation."
        )
    show.say("A round is estimated from its own reports; reports of one user in two rounds depend on each other.")
    show.say(found.spending.sentence())
    show.show_files({"All categories": output.out})


def _of(files: Files, source: Source) -> Files:
    return Files(list(source.files()), files.reading)


@ending_at_once()
def _together(
    rounds: dict[int, Source], collections: list[Reports], metadata: Metadata, users: list[np.ndarray]
) -> Together | None:
    """The estimate from all reports of each user; None if its likelihood is too large."""
    size = metadata.num_categories
    if size > MAX_CATEGORIES or sum(each.num_reports for each in collections) * size > MAX_CELLS:
        return None
    record: Any = metadata.mechanism
    protocol = PROTOCOLS[record.name](**record.parameters)
    own = reports_of_users(rounds, metadata, users)
    mixture = groups.mixture([protocol.mixture(each) for each in own])
    number, single = sum(map(len, own)), protocol.single_round
    shares = np.mean([rrjax.inv(*each.support_arguments) for each in collections], axis=0)
    # The permanent answers' variance stays in the average of the rounds; the rest of it is divided by their number.
    rounds_of_user = sum(each.num_reports for each in collections) / number
    kept, once = (
        float(np.mean(type(single)(size, epsilon).rates.variance(1 / size)))
        for epsilon in (protocol.epsilon, single.epsilon)
    )
    return estimated_together(mixture, shares, kept + max(once - kept, 0) / rounds_of_user, number)


def rounds_in(files: Files) -> dict[int, Source]:
    """The files of each round, if there are several rounds of a longitudinal protocol; else empty."""
    metadata = files.source.metadata()
    found = {} if metadata is None or metadata.round is None else rounds_of(files.source)
    return found if len(found) > 1 else {}
