"""Randomization for real collection: exact integer probabilities and the operating system's random numbers.

No JAX here, and no floating point between the random bits and the report. Randomized response draws one 64-bit
integer u a value and compares it with an integer threshold:

    report = value                 if u < keep,
             (u − keep) mod K      otherwise,

where 2⁶⁴ − keep is a multiple of K, so that the second line is exactly uniform. Then d = p − q = keep/2⁶⁴ exactly.
`keep` is rounded down, so that the ε delivered never exceeds the ε asked for.
"""

from __future__ import annotations

import math
import os

import numpy as np

from rrjax.checks import check_domain, check_integers, check_num_categories

CHUNK = 1 << 20
"""Values randomized at a time: 8 MiB of random bits."""


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
        >>> round(keep_threshold(2, math.log(3)) / 2**64, 12)
        0.5
    """
    check_num_categories(num_categories)
    epsilon = float(epsilon)
    if not epsilon > 0:
        raise ValueError(f"epsilon must be a positive number of nats, got {epsilon}")
    # Both d and 1 − d to full relative precision, each with a margin for its few roundings.
    noise = num_categories * math.exp(-epsilon) / (1 + (num_categories - 1) * math.exp(-epsilon))
    kept = -math.expm1(-epsilon) / (1 + (num_categories - 1) * math.exp(-epsilon))
    margin = 2.0**-50
    if noise > 0.5:
        rest = 2**64 - math.floor(math.ldexp(kept * (1 - margin), 64))
    else:
        rest = math.ceil(math.ldexp(noise * (1 + margin), 64))
    rest += -rest % num_categories
    if rest >= 2**64:
        raise ValueError(
            f"epsilon = {epsilon:g} is too small for K = {num_categories}: "
            "with 64 random bits no report would depend on its value"
        )
    if rest < num_categories * 2**12:  # q in fewer than twelve bits
        raise ValueError(
            f"epsilon = {epsilon:g} is too large: no report would differ from its value, and nothing would be "
            "private. The largest that 64 random bits deliver well is 36"
        )
    return 2**64 - rest


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
    return math.log1p(num_categories * keep / (2**64 - keep))


def randomize(values: np.typing.ArrayLike, num_categories: int, epsilon: float) -> np.ndarray:
    """Randomizes true values for a real collection, with the operating system's cryptographic random numbers.

    Cannot be seeded, on purpose; for simulations use `RandomizedResponse.randomize`.

    Args:
        values: Integers in 0 … K − 1, any shape.
        num_categories: K, at least 2.
        epsilon: Nats.

    Returns:
        Reports, int32, the shape of `values`. Each satisfies ε-local differential privacy, with the ε of
        `effective_epsilon(num_categories, keep_threshold(num_categories, epsilon))`, never more than asked.

    Raises:
        ValueError: As `keep_threshold`; values that are not integers or lie outside the domain.

    Example:
        >>> reports = randomize([0, 3, 2], num_categories=4, epsilon=1.0)
        >>> reports.shape, bool((reports < 4).all())
        ((3,), True)
    """
    keep = np.uint64(keep_threshold(num_categories, epsilon))
    values = check_integers(np.asarray(values), num_categories, "values")
    check_domain(values, num_categories, "values")
    reports = np.empty(values.shape, np.int32)
    source, target = values.reshape(-1), reports.reshape(-1)
    for begin in range(0, source.size, CHUNK):
        part = slice(begin, begin + CHUNK)
        size = source[part].size
        bits = np.frombuffer(os.urandom(8 * size), np.uint64)
        uniform = (bits - keep) % np.uint64(num_categories)
        target[part] = np.where(bits < keep, source[part].astype(np.int32), uniform.astype(np.int32))
    return reports
