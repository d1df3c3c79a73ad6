"""The exact privacy loss between the reports of two histories, by enumeration in NumPy's float64.

A history is the value of one user in each round. Every report is made from a memo, and rounds with the same memo are
dependent. Rounds that share a memo in one of the two histories form a group. Groups are independent, so their losses
add up. Within a group only the counts of the answers matter, for each set of rounds whose two memos are the same (a
cell). The outputs enumerated are these counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import Rates

MOST_OUTPUTS = 1 << 20
"""Largest number of enumerated outputs of one group of rounds: some seconds, and some hundred MiB."""


class Loss(NamedTuple):
    """The largest log-ratio of the probabilities of one output, in both directions; independent losses add up."""

    forward: float
    backward: float

    @property
    def either(self) -> float:
        """The larger of the two directions."""
        return max(self)


class Logs(NamedTuple):
    """The logarithms of p, 1 − p, q and 1 − q."""

    p: float
    not_p: float
    q: float
    not_q: float

    @classmethod
    def of(cls, rates: Rates) -> Logs:
        """The logarithms of rates, in double precision.

        Raises:
            ArgumentError: Rates that are not numbers, or the largest of their dtype.
        """
        weights = np.stack([np.asarray(weight) for weight in rates])
        # An e^ε beyond the dtype was replaced by its largest number.
        if not np.max(weights) < np.finfo(weights.dtype).max / 16:
            raise ArgumentError.about(
                "epsilon", f"must be one whose exponential is a number in {weights.dtype}, and first_epsilon below it"
            )
        always, never, truth = weights.astype(float).tolist()
        parts = (always + truth, never, always, never + truth)
        return cls(*(math.log(part) - math.log(always + never + truth) if part > 0 else -math.inf for part in parts))


def checked(history: ArrayLike, other: ArrayLike, num_categories: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both histories as arrays `[T]`.

    Raises:
        ArgumentError: They are not integers in 0 … K − 1, or not of one length.
    """
    histories = np.asarray(history), np.asarray(other)
    for values, name in zip(histories, ("history", "other"), strict=True):
        if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "iu":
            raise ArgumentError(
                f"{name} must be integers of shape [T], the value in each of T rounds; got {values.dtype} of shape "
                f"{values.shape}",
                argument=name,
            )
        if values.min() < 0 or values.max() >= num_categories:
            raise ArgumentError(f"{name} must have values from 0 to {num_categories - 1}", argument=name)
    if histories[0].size != histories[1].size:
        raise ArgumentError(
            f"both histories must have one value a round, got {histories[0].size} and {histories[1].size} rounds",
            argument="other",
        )
    return histories


def loss_of_bits(
    history: NDArray[Any], other: NDArray[Any], permanent: Rates, instantaneous: Rates, held: NDArray[np.bool_]
) -> Loss:
    """The loss for a memo and reports of independent bits; `held` has the bits that each value sets."""
    first, second = Logs.of(permanent), Logs.of(instantaneous)
    again = np.array([[second.not_q, second.q], [second.not_p, second.p]])
    used = np.unique(np.concatenate([history, other]))
    # Bits that are set by the same values have the same loss.
    kinds, times = np.unique(held[used], axis=1, return_counts=True)
    forward = backward = 0.0
    for column, number in zip(kinds.T, times.tolist(), strict=True):
        memos = {
            int(value): np.array([first.not_p, first.p] if own else [first.not_q, first.q])
            for value, own in zip(used, column, strict=True)
        }
        loss = _summed_loss(history, other, memos, again)
        forward, backward = forward + number * loss.forward, backward + number * loss.backward
    return Loss(forward, backward)


def loss_of_answers(
    history: NDArray[Any], other: NDArray[Any], permanent: Rates, instantaneous: Rates, num_answers: int
) -> Loss:
    """The loss for a memo and reports that are one of g answers, both by randomized response."""
    first, second = Logs.of(permanent), Logs.of(instantaneous)
    # Answers that are in no history are interchangeable. T rounds can report T of them; the others stay unreported.
    used = np.unique(np.concatenate([history, other]))
    size = min(num_answers, used.size + history.size)
    again = np.where(np.eye(size, dtype=bool), second.p, second.q)
    memos = {int(answer): np.where(np.arange(size) == place, first.p, first.q) for place, answer in enumerate(used)}
    if num_answers > size:
        again = np.concatenate([again, np.full((1, size), second.q)])
        unreported = first.q + math.log(num_answers - size)
        memos = {answer: np.append(logs, unreported) for answer, logs in memos.items()}
    places = {int(answer): place for place, answer in enumerate(used)}
    return _summed_loss(history, other, memos, again, places)


def groupings(number: int, most: int) -> Iterator[list[int]]:
    """All ways to put `number` things into at most `most` groups, as the group of each thing."""

    def extended(start: list[int]) -> Iterator[list[int]]:
        if len(start) == number:
            yield start
            return
        for group in range(min(max(start, default=-1) + 2, most)):
            yield from extended([*start, group])

    return extended([])


def _summed_loss(
    history: NDArray[Any],
    other: NDArray[Any],
    memos: dict[int, NDArray[Any]],
    again: NDArray[Any],
    places: dict[int, int] | None = None,
) -> Loss:
    """The loss of all rounds, summed over the groups."""
    pairs, times = np.unique(np.stack([history, other]), axis=1, return_counts=True)
    cells = [(int(one), int(two), int(number)) for one, two, number in zip(*pairs, times, strict=True)]
    losses = [_of_group(group, memos, again, places) for group in _groups(cells)]
    return Loss(math.fsum(loss.forward for loss in losses), math.fsum(loss.backward for loss in losses))


def _groups(cells):
    """The cells, merged where they share a memo."""
    groups: list[list[tuple[int, int, int]]] = []
    for cell in cells:
        touching = [group for group in groups if any(cell[0] == each[0] or cell[1] == each[1] for each in group)]
        groups = [group for group in groups if group not in touching]
        groups.append([*itertools.chain(*touching), cell])
    return groups


def _of_group(cells, memos, again, places):
    if len(cells) == 1 and cells[0][0] == cells[0][1]:
        return Loss(0.0, 0.0)
    num_reports = again.shape[1]
    if len(cells) == 1 and places is not None:
        # The ratio is extreme if all reports name one memo, or all name the other.
        one, two, number = cells[0]
        given = [number * np.eye(num_reports)[[places[one], places[two]]]]
    else:
        given = _outputs([number for *_, number in cells], num_reports, len(places or again))
    chosen = [counts @ again.T for counts in given]
    with np.errstate(divide="ignore", invalid="ignore"):  # impossible outputs
        apart = _log_law(cells, chosen, memos, 0) - _log_law(cells, chosen, memos, 1)
    return Loss(float(np.nanmax(apart)), float(np.nanmax(-apart)))


def _outputs(numbers: Sequence[int], num_reports: int, known: int) -> list[NDArray[np.int64]]:
    """The counts of each report in each cell, `[U, Y]` a cell, for all outputs that differ in their probability.

    Reports from number `known` on are interchangeable, so one output represents all that differ by an exchange of them.
    """
    codes, unit, units = np.zeros((1, num_reports), np.int64), 1, []
    for number in numbers:
        for _ in range(number):
            if len(codes) * num_reports > MOST_OUTPUTS:
                raise ArgumentError(
                    f"a group of rounds that share memos has more than {MOST_OUTPUTS:,} different outputs: give "
                    "shorter histories, or parts of them that share no memo",
                    argument="history",
                )
            codes = (codes[:, None] + unit * np.eye(num_reports, dtype=np.int64)).reshape(-1, num_reports)
            codes[:, known:].sort(axis=1)
            codes = np.unique(codes, axis=0)
        units.append((unit, number + 1))
        unit *= number + 1
    return [codes // place % radix for place, radix in units]


def _log_law(cells: Sequence[tuple[int, int, int]], chosen, memos, which):
    """The log-probability of outputs under one of the two histories, summed over the states of each memo."""
    law = 0.0
    for memo in {cell[which] for cell in cells}:
        states = memos[memo] + sum(rows for rows, cell in zip(chosen, cells, strict=True) if cell[which] == memo)
        largest = np.maximum(states.max(axis=1, keepdims=True), -1e300)
        law = law + largest[:, 0] + np.log(np.exp(states - largest).sum(axis=1))
    return law
