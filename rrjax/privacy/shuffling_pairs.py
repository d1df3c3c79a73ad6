"""Pairs of laws for a mechanism: the worst possible pair, and pairs of real neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import SupportMechanism
from rrjax.privacy.shuffling_divergence import Pair


class Overlap(NamedTuple):
    """The overlap of the reports of users with different values, for a mechanism whose reports support values.

    Any report has one of two probabilities, whose ratio is e^ε: the larger one for users whose value it supports.
    """

    one: float
    """Probability that a report of a user with value b supports a and not b."""
    both: float
    """Probability that a report of a user with a or b supports both."""
    neither: float
    """Probability that a report of a user with a or b supports neither; 1 less the others would cancel."""
    bystander: float
    """As `one`, for a user with a third value, the least informative one."""


def _randomized_response(mechanism: SupportMechanism) -> Overlap:
    q = mechanism.weights(math.expm1).q
    return Overlap(q, 0.0, (mechanism.num_categories - 2) * q, q)


def _unary_encoding(mechanism: SupportMechanism) -> Overlap:
    rates = mechanism.weights(math.expm1)
    return Overlap(rates.q * rates.not_p, rates.p * rates.q, rates.not_p * rates.not_q, rates.q * rates.not_q)


def _hadamard_response(mechanism: SupportMechanism) -> Overlap:
    # Categories 0, 1 and 2 are the columns' bits 1, 2 and 1 + 2: no column supports one of them and not the other two.
    rates = mechanism.weights(math.expm1)
    return Overlap(rates.not_p / 2, rates.p / 2, rates.not_p / 2, rates.not_p / 2)


def _subset_selection(mechanism: SupportMechanism) -> Overlap:
    rates, others = mechanism.weights(math.expm1), mechanism.num_categories - 1
    size = round(rates.p + others * rates.q)  # members of any report
    # For a user with a third value: reports that support it, and reports that do not.
    with_it, without_it = rates.p * (size - 1) * (others + 1 - size), rates.not_p * size * (others - size)
    both, neither = rates.p * (size - 1) / others, rates.not_p * (others - size) / others
    bystander = (with_it + without_it) / (others * max(others - 1, 1))
    return Overlap(_one_of_design(mechanism), both, neither, bystander)


def _projective_geometry(mechanism: SupportMechanism) -> Overlap:
    # Points 0, 1 and 2 are on one line: a plane contains at most one of them, or all three.
    rates, one = mechanism.weights(math.expm1), _one_of_design(mechanism)
    return Overlap(one, max(rates.q - one, 0.0), max(rates.not_p - one, 0.0), one)


def _one_of_design(mechanism: SupportMechanism) -> float:
    """`one` of any block design, with p − q = (e^ε − 1)·one and q = one + both."""
    return mechanism.weights(math.expm1).d / math.expm1(mechanism.epsilon)  # pyright: ignore[reportArgumentType]


OVERLAPS: dict[str, Callable[[SupportMechanism], Overlap]] = {
    "randomized-response": _randomized_response,
    "symmetric-unary-encoding": _unary_encoding,
    "optimized-unary-encoding": _unary_encoding,
    "hadamard-response": _hadamard_response,
    "subset-selection": _subset_selection,
    "projective-geometry-response": _projective_geometry,
}
"""The overlaps by mechanism name. For other mechanisms only ε is known.

Local hashing is missing: the number of its 2³² seeds that hash two categories to one bucket is not known exactly.
"""


def upper_pair(epsilon: float, mechanism: SupportMechanism | None) -> Pair:
    """The pair whose divergence is an upper bound for any two neighbouring collections.

    The probability of a report of any user is at least its probability under either law of the pair, over e^ε. For an
    unknown mechanism the worst pair has only telling reports, as in randomized response with two values: a silent
    report with P = Q = τ has ω ≥ τ/e^ε, so Z is (1 − e^ε_c)·e^ε with probability τ/e^ε, and 0 with the rest of τ. Given
    that, Z is smaller in the convex order than the Z of randomized response, which has the same mean and varies in both
    directions; and the order carries over to mixtures of kinds and to the sum of N.
    """
    e1 = math.expm1(epsilon)
    overlap = _overlap(mechanism)
    if overlap is None:
        return _pair(e1, 1 / (e1 + 2), (1 / (e1 + 2), 1 / (e1 + 2)), (), e1 / (e1 + 2))
    kinds = ((overlap.both, overlap.both / (e1 + 1)), (overlap.neither, overlap.neither))
    return _pair(e1, overlap.one, (overlap.one, overlap.one), kinds, 1 - 2 * overlap.one)


def lower_pairs(epsilon: float, mechanism: SupportMechanism | None) -> list[Pair]:
    """Pairs whose divergence is a lower bound for some two neighbouring collections.

    One user has either of two values, and all others one and the same value, so ω is the law of their reports.
    """
    e1 = math.expm1(epsilon)
    if mechanism is None:  # randomized response with three categories, all others have the third
        return [_bystanders(e1, 1 / (e1 + 3), 1 / (e1 + 3), 1 / (e1 + 3))]
    overlap = _overlap(mechanism)
    if overlap is None:  # whether a report supports the first value; all others have the second
        if not callable(getattr(mechanism, "weights", None)):
            raise ArgumentError(
                f"mechanism must be one whose reports support values, with p and q, such as RandomizedResponse; of "
                f"{type(mechanism).__name__} it is not known what it leaks",
                argument="mechanism",
            )
        rates = mechanism.weights(math.expm1)
        either = (rates.q, rates.not_q)
        return [Pair(rates.d, either, either, (), 0.0)]
    one, other = overlap.one, overlap.one * (e1 + 1)
    silent = overlap.both + overlap.neither
    pairs = [_pair(e1, one, (one, other), ((silent, silent),), silent)]
    if mechanism.num_categories > 2:
        pairs.append(_bystanders(e1, one, silent, overlap.bystander))
    return pairs


def _overlap(mechanism: SupportMechanism | None) -> Overlap | None:
    overlap_of = OVERLAPS.get(getattr(mechanism, "name", ""))
    return None if mechanism is None or overlap_of is None else overlap_of(mechanism)


def _bystanders(e1: float, one: float, silent: float, common: float) -> Pair:
    of_others = 1 - (common + common)
    return _pair(e1, one, (common, common), ((silent, of_others),), of_others)


def _pair(e1, one, common, silent, remainder):
    return Pair(e1 * one, (one, (e1 + 1) * one), common, tuple(kind for kind in silent if min(kind) > 0), remainder)
