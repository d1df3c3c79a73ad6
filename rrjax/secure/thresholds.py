"""Probabilities as integers out of 2⁶⁴, on the safe side of ε, and the ε that integers deliver.

e^ε is taken to 60 digits, and every rounding goes towards less ε.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

ALL = 2**64
"""What thresholds are compared with is a uniform number below this."""

FEWEST = 2**12
"""Draws that whatever happens must have: with fewer its probability would not have three digits."""

_DOWN, _UP = (Context(prec=60, rounding=rounding) for rounding in (ROUND_FLOOR, ROUND_CEILING))


def as_epsilon(epsilon: float) -> float:
    """Checks ε.

    Raises:
        ValueError: It is not a positive number.
    """
    epsilon = float(epsilon)
    if not epsilon > 0:
        raise ValueError(f"epsilon must be a positive number of nats, got {epsilon}")
    return epsilon


def rounded_up(part: int, own: int, others: int, epsilon: float) -> int:
    """2⁶⁴·part/(own·e^ε + others), rounded up.

    Args:
        part: Integer.
        own: Integer.
        others: Integer.
        epsilon: Nats; from 1000 on as 1000.
    """
    # The exponential is the nearest one of 60 digits whatever the context says, so a step down is below the true one.
    power = _DOWN.next_minus(_DOWN.exp(Decimal(min(epsilon, 1000.0))))
    power = max(power, Decimal(1))
    total = _DOWN.add(_DOWN.multiply(Decimal(own), power), Decimal(others))
    return math.ceil(_UP.divide(Decimal(part * ALL), total))


def threshold(own: int, others: int, epsilon: float, num_categories: int, draws: int = 1) -> int:
    """The number of draws, of 2⁶⁴, on which a report is one of those that support the user's value.

    They are own·e^ε/(own·e^ε + others) of all, rounded down, where `own` reports support the value and `others` do not,
    and each is uniform among its own kind.

    Args:
        own: Integer.
        others: Integer.
        epsilon: Nats.
        num_categories: K, for messages.
        draws: By how many independent ones, with the same threshold, a report differs: each has its part of ε.

    Returns:
        An integer in (0, 2⁶⁴).

    Raises:
        ValueError: An ε that 64 random bits cannot deliver, too large or too small.
    """
    rest = rounded_up(others, own, others, epsilon / draws)
    depends, differs = (ALL - rest) * others > rest * own, rest >= FEWEST
    largest = draws * math.log((ALL // FEWEST - 1) * others / own)
    check(epsilon, num_categories, depends=depends, differs=differs, largest=largest)
    return ALL - rest


def check(epsilon: float, num_categories: int, *, depends: bool, differs: bool, largest: float) -> None:
    """Raises `ValueError` where reports would not depend on values, or would not differ from them often enough."""
    if not depends:
        raise ValueError(
            f"epsilon = {epsilon:g} is too small for K = {num_categories}: "
            "with 64 random bits no report would depend on its value"
        )
    if not differs:
        raise ValueError(
            f"epsilon = {epsilon:g} is too large: no report would differ from its value, and nothing would be "
            f"private. The largest that 64 random bits deliver well is {math.floor(10 * largest) / 10:g}"
        )


def log_down(ratio: Fraction) -> float:
    """The logarithm of a ratio above one, rounded down: of likelihoods, the ε delivered."""
    quotient = _DOWN.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    logarithm = _DOWN.next_minus(_DOWN.ln(quotient))
    nearest = float(logarithm)
    return nearest if Decimal(nearest) <= logarithm else math.nextafter(nearest, 0.0)
