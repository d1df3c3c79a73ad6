"""Probabilities as integers out of 2¹²⁸, on the safe side of ε, and the ε that integers deliver.

e^ε is taken to 120 digits, and every rounding goes towards less ε. What is delivered is never more than what was asked
for, and less by at most 2⁻³⁰ of it: an ε of which these bits would deliver less is refused.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from rrjax.data.errors import ArgumentError

BITS = 128
"""Of the uniform numbers that thresholds are compared with: two words."""

ALL = 2**BITS
"""Thresholds are out of so many."""

FEWEST = 2**76
"""Draws that whatever happens must have: what happens less often than once in 2⁵² reports protects nobody."""

CLOSE = Fraction(1, 2**30)
"""The largest part of ε that rounding may take."""

DIGITS = 120
"""Of intermediate results."""

DOWN, UP = (Context(prec=DIGITS, rounding=rounding) for rounding in (ROUND_FLOOR, ROUND_CEILING))


def as_epsilon(epsilon: Any, name: str = "epsilon") -> float:
    """An ε as a float that is not above it.

    Raises:
        ArgumentError: It is not a positive number.
    """
    try:
        if isinstance(epsilon, str | bytes | bool | np.bool_):
            raise TypeError
        nearest = float(epsilon)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"{name} must be a positive number of nats, got {epsilon!r}", argument=name, value=epsilon
        ) from error
    if not nearest > 0:
        raise ArgumentError(f"{name} must be a positive number of nats, got {nearest}", argument=name, value=epsilon)
    # A decimal or a fraction between two floats.
    return math.nextafter(nearest, 0.0) if nearest > epsilon else nearest


def float_down(number: Decimal) -> float:
    """The largest float that is not above a number."""
    nearest = float(number)
    return nearest if Decimal(nearest) <= number else math.nextafter(nearest, -math.inf)


def rounded_up(part: int, own: int, others: int, epsilon: float) -> int:
    """2¹²⁸·part/(own·e^ε + others), rounded up."""
    # The exponential is the nearest one of its digits whatever the context says, so a step down is below the true one.
    power = DOWN.next_minus(DOWN.exp(Decimal(min(epsilon, 1000.0))))
    power = max(power, Decimal(1))
    total = DOWN.add(DOWN.multiply(Decimal(own), power), Decimal(others))
    return math.ceil(UP.divide(Decimal(part * ALL), total))


def threshold(own: int, others: int, epsilon: float, num_categories: int, draws: int = 1) -> int:
    """The number of draws, of 2¹²⁸, on which a report is one of those that support the user's value.

    They are own·e^ε/(own·e^ε + others) of all, rounded down, where `own` reports support the value and `others` do not,
    and each is uniform among its own kind.

    Raises:
        ArgumentError: An ε that 128 random bits cannot deliver, too large or too small.
    """
    rest = rounded_up(others, own, others, epsilon / draws)
    largest = draws * math.log((ALL // FEWEST - 1) * others / own)
    ratio = Fraction((ALL - rest) * others, rest * own)
    check(epsilon, num_categories, ratio=ratio, draws=draws, differs=rest >= FEWEST, largest=largest)
    return ALL - rest


def check(epsilon: float, num_categories: int, *, ratio: Fraction, draws: int, differs: bool, largest: float) -> None:
    """Refuses what random bits cannot deliver.

    Raises:
        ArgumentError: Reports would not differ from their values often enough, or the ratio delivers too little.
    """
    if not differs:
        raise ArgumentError(
            f"epsilon = {epsilon:g} is too large: no report would differ from its value, and nothing would be "
            f"private. The largest that {BITS} random bits deliver well is {math.floor(10 * largest) / 10:g}",
            argument="epsilon",
            value=epsilon,
        )
    if ratio <= 1 or draws * Fraction(log_down(ratio)) < (1 - CLOSE) * Fraction(epsilon):
        raise ArgumentError(
            f"epsilon = {epsilon:g} is too small for K = {num_categories}: {BITS} random bits deliver less than that",
            argument="epsilon",
            value=epsilon,
        )


def log_down(ratio: Fraction) -> float:
    """The logarithm of a ratio above one, rounded down: of likelihoods, the ε delivered."""
    quotient = DOWN.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    # The logarithm itself is the nearest one of its digits.
    return max(0.0, float_down(DOWN.next_minus(DOWN.ln(quotient))))
