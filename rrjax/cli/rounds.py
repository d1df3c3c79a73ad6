"""`rrjax estimate` of several rounds of a longitudinal protocol: each round, and all reports of a user together."""

from __future__ import annotations

import dataclasses
from statistics import NormalDist
from typing import Any

import jax.numpy as jnp
import numpy as np

import rrjax
from rrjax import io
from rrjax.cli import show
from rrjax.cli.collection import Collection, read_collection
from rrjax.cli.estimates import Estimate, estimated, largest_of
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output
from rrjax.cli.reading import Files
from rrjax.data.linear_maps import Dense
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import CLOSEST
from rrjax.estimators.whole_reports import MAX_CATEGORIES, errors_of_whole_reports
from rrjax.io.rounds import reports_of_users, rounds_of
from rrjax.io.source import Source
from rrjax.io.tallies import MAX_CELLS
from rrjax.mechanisms import PROTOCOLS

MOST_ROUNDS = 6
"""Rounds that a table shows, the last ones."""


@dataclasses.dataclass(frozen=True)
class Together:
    """The estimate from all reports of each user together, of users whose value did not change."""

    theta: np.ndarray
    standard_error: np.ndarray
    num_users: int


def run(files: Files, rounds: dict[int, Source], level: float, output: Output) -> None:
    """Estimates every round and all of them together, writes and prints the estimates."""
    with show.err.status("Estimating …"):
        collections = {number: read_collection(_of(files, source), None) for number, source in rounds.items()}
        estimates = {number: estimated(each, CLOSEST) for number, each in collections.items()}
        together = _together(rounds, list(collections.values()))
    last = collections[max(collections)]
    columns = {f"round_{number}": each.theta for number, each in estimates.items()}
    if together is not None:
        columns |= {"all_rounds": together.theta, "all_rounds_standard_error": together.standard_error}
    if output.out is not None:
        io.write_table(output.out, last.table({"label": last.labels} | columns))
    first = last.counted.metadata
    assert first is not None
    if output.json:
        order = largest_of(_shown(estimates, together), output.top)
        show.record(
            {
                "command": "estimate",
                "mechanism": first.mechanism.name,
                "parameters": first.mechanism.parameters,
                "domain": last.counted.domain.describe(),
                "rounds": {number: each.num_reports for number, each in collections.items()},
                "num_users": None if together is None else together.num_users,
                "top": [
                    {"label": str(last.labels[place])} | {name: float(each[place]) for name, each in columns.items()}
                    for place in order
                ],
                "warnings": [warning for each in collections.values() for warning in each.warnings],
            }
            | output.files
        )
        return
    show.say(
        f"{show.number(len(rounds), 'round', 'rounds')} of {first.mechanism.name} in column {last.counted.column!r}; "
        f"domain: {last.counted.domain.describe()}; ε = {last.epsilon:.6g} nats a report, {first.epsilon:.6g} for all "
        "reports of one value"
    )
    show.warn(list(dict.fromkeys(warning for each in collections.values() for warning in each.warnings)))
    show.out.print()
    _show(last, estimates, together, level, output.top)
    show.out.print()
    if together is not None:
        show.say(
            f"All rounds: from all reports of each of {together.num_users:,} users together. It holds for users whose "
            "value did not change; its interval is that of the normal approximation."
        )
    show.say("A round is estimated from its own reports; reports of one user in two rounds depend on each other.")
    show.show_files({"All categories": output.out})


def _of(files: Files, source: Source) -> Files:
    return Files(list(source.files()), files.reading)


def _shown(estimates: dict[int, Estimate], together: Together | None) -> np.ndarray:
    return estimates[max(estimates)].theta if together is None else together.theta


@ending_at_once()
def _together(rounds: dict[int, Source], collections: list[Collection]) -> Together | None:
    """The estimate from all reports of each user; None if its likelihood is too large."""
    first, size = collections[0], collections[0].num_categories
    if size > MAX_CATEGORIES or sum(each.num_reports for each in collections) * size > MAX_CELLS:
        return None
    metadata: Any = first.counted.metadata
    protocol = PROTOCOLS[metadata.mechanism.name](**metadata.mechanism.parameters)
    groups = reports_of_users(rounds, metadata)
    parts = [protocol.mixture(group) for group in groups]
    mixture = Mixture(
        jnp.concatenate([jnp.asarray(part.weights) for part in parts]),
        1.0,
        Dense(jnp.concatenate([jnp.asarray(part.lift.matrix) for part in parts])),  # pyright: ignore[reportAttributeAccessIssue]
    )
    number = sum(len(group) for group in groups)
    # One report a user, on average over the rounds, from where the likelihood of all reports is expanded.
    rate = np.mean([each.counts / each.num_reports for each in collections], axis=0)
    tally = Tally(np.rint(rate * number).astype(np.int32), np.int32(number), rates=protocol.single_round.rates)
    theta = rrjax.empirical_bayes(tally, mixture=mixture).theta
    errors = errors_of_whole_reports(theta, mixture)
    return Together(np.asarray(theta), np.asarray(errors), number)


def _show(last: Collection, estimates: dict[int, Estimate], together: Together | None, level: float, top: int) -> None:
    table = show.table()
    table.add_column("category", no_wrap=True, max_width=40)
    numbers = sorted(estimates)[-MOST_ROUNDS:]
    titles = [f"round {number}" for number in numbers]
    titles += [] if together is None else ["all rounds", show.interval(level)]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    shown = _shown(estimates, together)
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    for place in largest_of(shown, top):
        cells = [show.printable(last.labels[place]), *(show.share(estimates[each].theta[place]) for each in numbers)]
        if together is not None:
            value, half = together.theta[place], quantile * together.standard_error[place]
            cells += [show.share(value), show.between(max(value - half, 0), min(value + half, 1))]
        table.add_row(*cells)
    show.show_table(table)
    left = last.num_categories - min(top, last.num_categories)
    if left:
        show.say(f"… and {show.number(left, 'more category', 'more categories')}", style="dim")


def rounds_in(files: Files) -> dict[int, Source]:
    """The files of each round, if there are several rounds of a longitudinal protocol; else empty."""
    metadata = files.source.metadata()
    found = {} if metadata is None or metadata.round is None else rounds_of(files.source)
    return found if len(found) > 1 else {}
