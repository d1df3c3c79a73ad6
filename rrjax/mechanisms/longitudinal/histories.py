"""The exact privacy loss between the reports of two histories, by enumeration in NumPy's float64.

A history is the value of one user in each round. Every report is made from a memo, and rounds with the same memo are
dependent. Rounds that share a memo in one of the two histories form a group. Groups are independent, so their losses
add up. Within a group only the counts of the answers matter, for each set of rounds whose two memos are the same (a
cell). The outputs enumerated are these counts.

A loss is two numbers: the largest log-ratio of the probabilities of one output, in both directions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import Rates

MOST_OUTPUTS = 1 << 20
"""Largest number of enumerated outputs of one group of rounds: some seconds, and some hundred MiB."""


def numbered(
    history: ArrayLike, other: ArrayLike, num_categories: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Both histories as arrays `[T]` of the places of their values in the third array, which has each value once.

    Raises:
        ArgumentError: They are not integers in 0 … K − 1, or not of one length.
    """
    both = np.asarray(history), np.asarray(other)
    for values, name in zip(both, ("history", "other"), strict=True):
        if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "iu":
            raise ArgumentError(
                f"{name} must be integers of shape [T], the value in each of T rounds; got {values.dtype} of shape "
                f"{values.shape}",
                argument=name,
            )
        if values.min() < 0 or values.max() >= num_categories:
            raise ArgumentError(f"{name} must have values from 0 to {num_categories - 1}", argument=name)
    if both[0].size != both[1].size:
        raise ArgumentError(
            f"both histories must have one value a round, got {both[0].size} and {both[1].size} rounds",
            argument="other",
        )
    values, places = np.unique(np.concatenate([each.astype(np.int64) for each in both]), return_inverse=True)
    return places[: both[0].size], places[both[0].size :], values


def loss_of_bits(
    history: NDArray[Any], other: NDArray[Any], permanent: Rates, instantaneous: Rates, held: NDArray[np.bool_]
) -> NDArray[Any]:
    """The loss for a memo and reports of independent bits; `held`, `[V, M]`, has the bits that each value sets."""
    first, again = _logs(permanent), _logs(instantaneous)
    # Bits that are set by the same values have the same loss.
    columns, times = np.unique(held, axis=1, return_counts=True)
    return times @ [_summed_loss(history, other, first[column.astype(int)], again) for column in columns.T]


def loss_of_answers(
    history: NDArray[Any], other: NDArray[Any], permanent: Rates, instantaneous: Rates, num_answers: int
) -> NDArray[Any]:
    """The loss for a memo and reports that are one of g answers, both by randomized response."""
    first, second = _logs(permanent)[:, 1], _logs(instantaneous)[:, 1]
    # Answers that are in no history are interchangeable. T rounds can report T of them; the others stay unreported.
    used = 1 + int(max(history.max(), other.max()))
    size = min(num_answers, used + history.size)
    alike = np.eye(size, dtype=int)
    memos, again = first[alike[:used]], second[alike]
    if num_answers > size:
        memos = np.pad(memos, ((0, 0), (0, 1)), constant_values=first[0] + math.log(num_answers - size))
        again = np.pad(again, ((0, 1), (0, 0)), constant_values=second[0])
    return _summed_loss(history, other, memos, again, used)


def _logs(rates: Rates) -> NDArray[Any]:
    """The logarithms [[1 − q, q], [1 − p, p]], in double precision."""
    weights = np.stack([np.asarray(weight) for weight in rates])
    # An e^ε beyond the dtype was replaced by that of `odds_of_rates`.
    if not np.max(weights) < np.finfo(weights.dtype).max / 34:
        raise ArgumentError.about(
            "epsilon", f"must be one whose exponential is a number in {weights.dtype}, and first_epsilon below it"
        )
    always, never, truth = weights.astype(float)
    with np.errstate(divide="ignore"):  # of an impossible answer
        parts = np.log([[never + truth, always], [never, always + truth]])
    return parts - math.log(always + never + truth)


def groupings(number: int, most: int) -> Iterator[list[int]]:
    """All ways to put `number` things into at most `most` groups, as the group of each thing."""

    def extended(start: list[int]) -> Iterator[list[int]]:
        if len(start) == number:
            yield start
            return
        for group in range(min(max(start, default=-1) + 2, most)):
            yield from extended([*start, group])

    return extended([])


def _summed_loss(history, other, memos, again, num_answers=0):
    """The loss of all rounds, summed over the groups.

    `memos` `[V, Z]` has the logarithms of the probabilities of the memo of each value, `again` `[Z, Y]` those of the
    reports from each memo. Of answers, the first `num_answers` memos and reports are those of the values.
    """
    pairs, times = np.unique(np.stack([history, other]), axis=1, return_counts=True)
    groups: list[list[tuple[int, int, int]]] = []
    for cell in zip(*pairs.tolist(), times.tolist(), strict=True):  # they are merged where they share a memo
        touching = [group for group in groups if any(cell[0] == each[0] or cell[1] == each[1] for each in group)]
        groups = [group for group in groups if group not in touching]
        groups.append([*itertools.chain(*touching), cell])
    return np.sum([_loss_of_group(group, memos, again, num_answers) for group in groups], axis=0)


def _loss_of_group(cells, memos, again, num_answers):
    if len(cells) == 1 and cells[0][0] == cells[0][1]:
        return np.zeros(2)
    num_reports = again.shape[1]
    if len(cells) == 1 and num_answers:
        # The ratio is extreme if all reports name one memo, or all name the other.
        one, two, number = cells[0]
        given = [number * np.eye(num_reports)[[one, two]]]
    else:
        given = _outputs([number for *_, number in cells], num_reports, num_answers or num_reports)
    chosen = [counts @ again.T for counts in given]
    with np.errstate(divide="ignore", invalid="ignore"):  # impossible outputs
        apart = _log_law(cells, chosen, memos, 0) - _log_law(cells, chosen, memos, 1)
    return np.array([np.nanmax(apart), np.nanmax(-apart)])


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


def _log_law(cells, chosen, memos, which):
    """The log-probability of outputs under one of the two histories, summed over the states of each memo."""
    law = 0.0
    for memo in {cell[which] for cell in cells}:
        states = memos[memo] + sum(rows for rows, cell in zip(chosen, cells, strict=True) if cell[which] == memo)
        largest = np.maximum(states.max(axis=1, keepdims=True), -1e300)
        law = law + largest[:, 0] + np.log(np.exp(states - largest).sum(axis=1))
    return law
