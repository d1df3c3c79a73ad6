"""The pairs of laws that stand for a mechanism: the worst one that is possible, and what certainly is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import Mechanism
from rrjax.privacy.shuffling.divergence import Pair


class Overlap(NamedTuple):
    """How the reports of two users with different values overlap, for a mechanism whose reports support values.

    Any one report has one of two probabilities, e^ε apart: the larger one for the users whose value it supports.
    """

    one: float
    """That a report supports the one value and not the other, for a user who holds the other."""
    both: float
    """That it supports both, for a user who holds either."""
    neither: float
    """That it supports neither, for a user who holds either; not as what is left of one, which would cancel."""
    bystander: float
    """As `one`, for a user who holds a third value (one at least that is the least informative)."""


def _of_randomized_response(mechanism: Mechanism) -> Overlap:
    q = mechanism.weights(math.expm1).q
    return Overlap(q, 0.0, (mechanism.num_categories - 2) * q, q)


def _of_unary_encoding(mechanism: Mechanism) -> Overlap:
    rates = mechanism.weights(math.expm1)
    return Overlap(rates.q * rates.not_p, rates.p * rates.q, rates.not_p * rates.not_q, rates.q * rates.not_q)


def _of_hadamard_response(mechanism: Mechanism) -> Overlap:
    # Categories 0, 1 and 2 are the columns' bits 1, 2 and 1 + 2: no column supports one of them and not the other two.
    rates = mechanism.weights(math.expm1)
    return Overlap(rates.not_p / 2, rates.p / 2, rates.not_p / 2, rates.not_p / 2)


def _of_subset_selection(mechanism: Mechanism) -> Overlap:
    one, _ = _of_design(mechanism)
    rates, others = mechanism.weights(math.expm1), mechanism.num_categories - 1
    size = round(rates.p + others * rates.q)  # members of any report
    # Of a third value: with it among the members, which is likelier, or without.
    there, gone = rates.p * (size - 1) * (others + 1 - size), rates.not_p * size * (others - size)
    both, neither = rates.p * (size - 1) / others, rates.not_p * (others - size) / others
    return Overlap(one, both, neither, (there + gone) / (others * max(others - 1, 1)))


def _of_projective_geometry(mechanism: Mechanism) -> Overlap:
    # Points 0, 1 and 2 are on one line: a plane that holds one of them holds no other, or all three.
    one, both = _of_design(mechanism)
    return Overlap(one, both, max(mechanism.weights(math.expm1).not_p - one, 0.0), one)


def _of_design(mechanism: Mechanism) -> tuple[float, float]:
    """That a block supports one value only, or both: of any block design, p − q = (e^ε − 1)·one and q = one + both."""
    rates = mechanism.weights(math.expm1)
    one = rates.d / math.expm1(mechanism.epsilon)  # pyright: ignore[reportArgumentType]
    return one, max(rates.q - one, 0.0)


OVERLAPS: dict[str, Callable[[Mechanism], Overlap]] = {
    "randomized-response": _of_randomized_response,
    "symmetric-unary-encoding": _of_unary_encoding,
    "optimized-unary-encoding": _of_unary_encoding,
    "hadamard-response": _of_hadamard_response,
    "subset-selection": _of_subset_selection,
    "projective-geometry-response": _of_projective_geometry,
}
"""By name of the mechanism. Any other one is bounded as if nothing were known of it but ε.

Local hashing too: how many of its 2³² seeds put two categories into one bucket is not known exactly.
"""


def promised(epsilon: float, mechanism: Mechanism | None) -> Pair:
    """The pair whose divergence bounds that of any two neighbouring collections from above.

    Every report of any user has at least the probability that it has for the two of the pair, over e^ε. If nothing else
    is known, the worst pair is always told apart, as by randomized response with two values: a silent report with
    P = Q = τ has ω ≥ τ/e^ε, so Z is (1 − e^ε_c)·e^ε with probability τ/e^ε, and 0 with what remains of τ. Given that,
    it is smaller in the convex order than the Z of that mechanism, which has the same mean and spreads to either side;
    and the order passes to mixtures of kinds and to the sum of N.
    """
    e1 = math.expm1(epsilon)
    overlap = _overlap(mechanism)
    if overlap is None:
        return _pair(e1, 1 / (e1 + 2), (1 / (e1 + 2), 1 / (e1 + 2)), (), e1 / (e1 + 2))
    kinds = ((overlap.both, overlap.both / (e1 + 1)), (overlap.neither, overlap.neither))
    return _pair(e1, overlap.one, (overlap.one, overlap.one), kinds, 1 - 2 * overlap.one)


def certain(epsilon: float, mechanism: Mechanism | None) -> list[Pair]:
    """Pairs whose divergence bounds that of some two neighbouring collections from below.

    One user holds the one or the other value, and all others the same one, so ω is the law of their reports.
    """
    e1 = math.expm1(epsilon)
    if mechanism is None:  # randomized response with three categories, all others hold the third
        return [_bystanders(e1, 1 / (e1 + 3), 1 / (e1 + 3), 1 / (e1 + 3))]
    overlap = _overlap(mechanism)
    if overlap is None:  # whether the one value is supported, where all others hold the other one
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
    rest = overlap.both + overlap.neither
    pairs = [_pair(e1, one, (one, other), ((rest, rest),), rest)]
    if mechanism.num_categories > 2:
        pairs.append(_bystanders(e1, one, rest, overlap.bystander))
    return pairs


def _overlap(mechanism: Mechanism | None) -> Overlap | None:
    of = OVERLAPS.get(getattr(mechanism, "name", ""))
    return None if mechanism is None or of is None else of(mechanism)


def _bystanders(e1: float, one: float, rest: float, common: float) -> Pair:
    of_others = 1 - (common + common)
    return _pair(e1, one, (common, common), ((rest, of_others),), of_others)


def _pair(
    e1: float, one: float, common: tuple[float, float], silent: tuple[tuple[float, float], ...], rest: float
) -> Pair:
    return Pair(e1 * one, (one, (e1 + 1) * one), common, tuple(kind for kind in silent if min(kind) > 0), rest)
