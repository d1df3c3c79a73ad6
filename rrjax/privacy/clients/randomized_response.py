"""Randomized response by integers.

One 128-bit integer u is drawn for a value and compared with an integer threshold:

    report = value                 if u < keep,
             (u − keep) mod K      otherwise,

where 2¹²⁸ − keep is a multiple of K, so that the second line is exactly uniform. Then d = p − q = keep/2¹²⁸ exactly.
`keep` is rounded down, so that the ε delivered never exceeds the ε asked for. (Of 64 bits there would not be enough:
at K = 2³¹ the multiple of K alone takes more than `keep` is at ε = 0.1.)
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.privacy.clients.thresholds import ALL, FEWEST, as_epsilon, check, log_down, rounded_up


def keep_threshold(num_categories: int, epsilon: float) -> int:
    """Returns the threshold `keep`, which delivers ε or a little less and leaves a multiple of K.

    Args:
        num_categories: K, at least 2.
        epsilon: Nats.

    Returns:
        An integer in (0, 2¹²⁸).

    Raises:
        ValueError: K < 2.
        ArgumentError: ε not a positive number, or one that 128 random bits cannot deliver, too large (no randomness
            would be left) or too small (they would deliver less than (1 − 2⁻³⁰)·ε).

    Example:
        >>> import math
        >>> round(keep_threshold(2, math.log(3)) / 2**128, 12)
        0.5
    """
    check_num_categories(num_categories)
    epsilon = as_epsilon(epsilon)
    rest = rounded_up(num_categories, 1, num_categories - 1, epsilon)
    rest += -rest % num_categories
    differs = rest >= num_categories * FEWEST  # q has twelve bits
    largest = math.log(max(ALL // FEWEST - num_categories + 1, 2))
    ratio = 1 + Fraction(num_categories * max(0, ALL - rest), rest)
    check(epsilon, num_categories, ratio=ratio, draws=1, differs=differs, largest=largest)
    return ALL - rest


def effective_epsilon(num_categories: int, keep: int) -> float:
    """Returns the ε that a threshold delivers, log(p/q) = log(1 + K·keep/(2¹²⁸ − keep)).

    Args:
        num_categories: K, at least 2.
        keep: From `keep_threshold`.

    Returns:
        Nats, rounded down.

    Raises:
        ArgumentError: K is no integer, or below 2; `keep` is no integer in [0, 2¹²⁸).

    Example:
        >>> 1 - 1e-12 < effective_epsilon(4, keep_threshold(4, 1.0)) <= 1
        True
    """
    check_num_categories(num_categories)
    if isinstance(keep, bool) or not isinstance(keep, int) or not 0 <= keep < ALL:
        raise ArgumentError(f"keep must be an integer from 0 to 2^128 - 1, got {keep!r}", argument="keep", value=keep)
    return log_down(1 + Fraction(num_categories * keep, ALL - keep))


def kept(draws: np.ndarray, own: np.ndarray, keep: int, number: int) -> np.ndarray:
    """The own number where the draw is below the threshold, else a uniform one of 0 … number − 1."""
    high, low = draws[:, 0], draws[:, 1]
    first, second = (np.uint64(word) for word in divmod(keep, 2**64))
    below = (high < first) | ((high == first) & (low < second))
    # (u − keep) modulo the number, by words; nothing reaches 2⁶⁴.
    modulus = np.uint64(number)
    whole = high % modulus * np.uint64(2**64 % number) + low % modulus + np.uint64(-keep % number)
    return np.where(below, own, (whole % modulus).astype(own.dtype))
