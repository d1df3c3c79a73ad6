"""The pairs of laws that stand for a mechanism: the worst possible one, and pairs of real neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import Mechanism
from rrjax.privacy.shuffling_divergence import Pair


class Overlap(NamedTuple):
    """How the reports of users with different values overlap, for a mechanism whose reports support values.

    Any report has one of two probabilities, whose ratio is e^ε: the larger one for users whose value it supports.
    """

    one: float
    """Probability of a report that supports a value a and not b, of a user with b."""
    both: float
    """Probability of a report that supports a and b, of a user with either."""
    neither: float
    """Probability of a report that supports neither, of a user with either; 1 less the others would cancel."""
    bystander: float
    """As `one`, of a user with a third value, at least with the least informative one."""


def _randomized_response(mechanism: Mechanism) -> Overlap:
    q = mechanism.weights(math.expm1).q
    return Overlap(q, 0.0, (mechanism.num_categories - 2) * q, q)


def _unary_encoding(mechanism: Mechanism) -> Overlap:
    rates = mechanism.weights(math.expm1)
    return Overlap(rates.q * rates.not_p, rates.p * rates.q, rates.not_p * rates.not_q, rates.q * rates.not_q)


def _hadamard_response(mechanism: Mechanism) -> Overlap:
    # Categories 0, 1 and 2 are the columns' bits 1, 2 and 1 + 2: no column supports one of them and not the other two.
    rates = mechanism.weights(math.expm1)
    return Overlap(rates.not_p / 2, rates.p / 2, rates.not_p / 2, rates.not_p / 2)


def _subset_selection(mechanism: Mechanism) -> Overlap:
    rates, others = mechanism.weights(math.expm1), mechanism.num_categories - 1
    size = round(rates.p + others * rates.q)  # members of any report
    # Of a user with a third value: reports that support it, and reports that do not.
    with_it, without_it = rates.p * (size - 1) * (others + 1 - size), rates.not_p * size * (others - size)
    both, neither = rates.p * (size - 1) / others, rates.not_p * (others - size) / others
    bystander = (with_it + without_it) / (others * max(others - 1, 1))
    return Overlap(_one_of_design(mechanism), both, neither, bystander)


def _projective_geometry(mechanism: Mechanism) -> Overlap:
    # Points 0, 1 and 2 are on one line: a plane that holds one of them holds no other, or all three.
    rates, one = mechanism.weights(math.expm1), _one_of_design(mechanism)
    return Overlap(one, max(rates.q - one, 0.0), max(rates.not_p - one, 0.0), one)


def _one_of_design(mechanism: Mechanism) -> float:
    """`one` of any block design, where p − q = (e^ε − 1)·one and q = one + both."""
    return mechanism.weights(math.expm1).d / math.expm1(mechanism.epsilon)  # pyright: ignore[reportArgumentType]


OVERLAPS: dict[str, Callable[[Mechanism], Overlap]] = {
    "randomized-response": _randomized_response,
    "symmetric-unary-encoding": _unary_encoding,
    "optimized-unary-encoding": _unary_encoding,
    "hadamard-response": _hadamard_response,
    "subset-selection": _subset_selection,
    "projective-geometry-response": _projective_geometry,
}
"""By the name of the mechanism. Of any other mechanism only ε is known.

Local hashing is not here: how many of its 2³² seeds hash two categories into one bucket is not known exactly.
"""


def upper_pair(epsilon: float, mechanism: Mechanism | None) -> Pair:
    """The pair whose divergence bounds that of any two neighbouring collections from above.

    Every report of any user has at least its probability for either of the pair, over e^ε. Of an unknown mechanism the
    worst pair is always told apart, as by randomized response with two values: a silent report with P = Q = τ has
    ω ≥ τ/e^ε, so Z is (1 − e^ε_c)·e^ε with probability τ/e^ε, and 0 with the rest of τ. Given that, Z is smaller in the
    convex order than the Z of randomized response, which has the same mean and varies in both directions; and the order
    carries over to mixtures of kinds and to the sum of N.
    """
    e1 = math.expm1(epsilon)
    overlap = _overlap(mechanism)
    if overlap is None:
        return _pair(e1, 1 / (e1 + 2), (1 / (e1 + 2), 1 / (e1 + 2)), (), e1 / (e1 + 2))
    kinds = ((overlap.both, overlap.both / (e1 + 1)), (overlap.neither, overlap.neither))
    return _pair(e1, overlap.one, (overlap.one, overlap.one), kinds, 1 - 2 * overlap.one)


def lower_pairs(epsilon: float, mechanism: Mechanism | None) -> list[Pair]:
    """Pairs whose divergence bounds that of some two neighbouring collections from below.

    One user has either of two values, and all others one and the same value, so ω is the law of their reports.
    """
    e1 = math.expm1(epsilon)
    if mechanism is None:  # randomized response with three categories, all others have the third
        return [_bystanders(e1, 1 / (e1 + 3), 1 / (e1 + 3), 1 / (e1 + 3))]
    overlap = _overlap(mechanism)
    if overlap is None:  # whether the one value is supported, where all others have the other one
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


def _overlap(mechanism: Mechanism | None) -> Overlap | None:
    overlap_of = OVERLAPS.get(getattr(mechanism, "name", ""))
    return None if mechanism is None or overlap_of is None else overlap_of(mechanism)


def _bystanders(e1: float, one: float, silent: float, common: float) -> Pair:
    of_others = 1 - (common + common)
    return _pair(e1, one, (common, common), ((silent, of_others),), of_others)


def _pair(e1, one, common, silent, remainder):
    return Pair(e1 * one, (one, (e1 + 1) * one), common, tuple(kind for kind in silent if min(kind) > 0), remainder)
