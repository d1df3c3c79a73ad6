"""Randomized response by integers.

One 64-bit integer u is drawn for a value and compared with an integer threshold:

    report = value                 if u < keep,
             (u − keep) mod K      otherwise,

where 2⁶⁴ − keep is a multiple of K, so that the second line is exactly uniform. Then d = p − q = keep/2⁶⁴ exactly.
`keep` is rounded down, so that the ε delivered never exceeds the ε asked for.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from rrjax.checks import check_num_categories
from rrjax.secure.thresholds import ALL, FEWEST, as_epsilon, check, log_down, rounded_up


def keep_threshold(num_categories: int, epsilon: float) -> int:
    """Returns the threshold `keep`, which delivers ε or a little less and leaves a multiple of K.

    Args:
        num_categories: K, at least 2.
        epsilon: Nats.

    Returns:
        An integer in (0, 2⁶⁴).

    Raises:
        ValueError: K < 2, ε not a positive number, or an ε that 64 random bits cannot deliver, too large (no
            randomness would be left) or too small (no report would ever be kept).

    Example:
        >>> import math
        >>> round(keep_threshold(2, math.log(3)) / 2**64, 12)
        0.5
    """
    check_num_categories(num_categories)
    epsilon = as_epsilon(epsilon)
    rest = rounded_up(num_categories, 1, num_categories - 1, epsilon)
    rest += -rest % num_categories
    differs = rest >= num_categories * FEWEST  # q has twelve bits
    largest = math.log(max(ALL // FEWEST - num_categories + 1, 2))
    check(epsilon, num_categories, depends=rest < ALL, differs=differs, largest=largest)
    return ALL - rest


def effective_epsilon(num_categories: int, keep: int) -> float:
    """Returns the ε that a threshold delivers, log(p/q) = log(1 + K·keep/(2⁶⁴ − keep)).

    Args:
        num_categories: K, at least 2.
        keep: From `keep_threshold`.

    Returns:
        Nats.

    Example:
        >>> 1 - 1e-12 < effective_epsilon(4, keep_threshold(4, 1.0)) <= 1
        True
    """
    return log_down(1 + Fraction(num_categories * keep, ALL - keep))


def kept(draws: np.ndarray, own: np.ndarray, keep: int, number: int) -> np.ndarray:
    """The own number where the draw is below the threshold, else a uniform one of 0 … number − 1.

    Args:
        draws: `[N]`, uint64.
        own: `[N]`, integers.
        keep: From `keep_threshold`, of that many categories.
        number: Of categories.

    Returns:
        `[N]`, of the dtype of `own`.
    """
    bound = np.uint64(keep)
    return np.where(draws < bound, own, ((draws - bound) % np.uint64(number)).astype(own.dtype))
