"""The estimators again, in exact rationals and plain NumPy: slow, simple, independent of rrjax.

Exact functions take Python integers and a rational e1 (the odds e^ε − 1) and return `fractions.Fraction`s.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np


def exact_odds(epsilon: float, digits: int = 60) -> Fraction:
    """e^ε − 1 to `digits` digits, for the ε that the float holds."""
    with mpmath.workdps(digits):
        value = mpmath.expm1(mpmath.mpf(float(epsilon)))
        return Fraction(int(mpmath.floor(value * mpmath.mpf(10) ** digits)), 10**digits)


def exact_mle(counts, e1: Fraction) -> tuple[list[int], Fraction, Fraction]:
    """Active categories, τ and height of the maximum likelihood estimate, by the paper's Algorithm 1.

    In shares φ = c/N it drops the smallest while q·s > φ·(1 − i·q); with q = 1/(e1 + K) and everything
    multiplied by N·(e1 + K) that is s > c·(e1 + K − i), s the sum of the counts still in.
    """
    order = sorted(range(len(counts)), key=lambda i: counts[i])
    total, dropped = Fraction(sum(counts)), 0
    num = len(counts)
    while dropped < num and total >= counts[order[dropped]] * (e1 + num - dropped):
        total -= counts[order[dropped]]
        dropped += 1
    tau = total / (e1 + num - dropped)
    return order[dropped:], tau, total - (num - dropped) * tau


def exact_inv_p(counts, e1: Fraction) -> tuple[list[int], Fraction, Fraction]:
    """Active categories, τ and height of the projection of the inversion on the simplex."""
    order = sorted(range(len(counts)), key=lambda i: counts[i])
    num, size = len(counts), sum(counts)
    kept = size * e1 / (e1 + num)
    total, dropped = Fraction(size), 0
    while total - (num - dropped) * counts[order[dropped]] >= kept:
        total -= counts[order[dropped]]
        dropped += 1
    tau = (total - kept) / (num - dropped)
    return order[dropped:], tau, kept


def exact_inv_n(counts, e1: Fraction) -> tuple[list[int], Fraction, Fraction]:
    """Active categories, τ and height of the clipped and renormalized inversion."""
    tau = Fraction(sum(counts)) / (e1 + len(counts))
    active = [i for i, c in enumerate(counts) if c > tau]
    return active, tau, sum((counts[i] - tau for i in active), Fraction(0))


def exact_theta(counts, solution: tuple[list[int], Fraction, Fraction]) -> list[Fraction]:
    active, tau, height = solution
    theta = [Fraction(0)] * len(counts)
    for i in active:
        theta[i] = (counts[i] - tau) / height
    return theta


def total_variation(theta, exact: list[Fraction]) -> float:
    """Total variation of floats from exact numbers, itself exact until the last step."""
    return float(sum(abs(Fraction(float(a)) - b) for a, b in zip(theta, exact, strict=True)) / 2)


def big_mle(counts: np.ndarray, e1: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """The maximum likelihood estimate of a large histogram: support exact, values in long doubles.

    The number of active categories is found in Python integers on the distinct values, so that K in the
    millions takes a second; with e1 = a/b the condition is one of integers.
    """
    values, sizes = np.unique(counts, return_counts=True)
    a, b = e1.numerator, e1.denominator
    total, number = sum(int(v) * int(s) for v, s in zip(values, sizes, strict=True)), len(counts)
    for value, size in zip(values.tolist(), sizes.tolist(), strict=True):
        if total * b < value * (a + number * b):
            break
        total -= value * size
        number -= size
    level = total * b // (a + number * b)
    rest = Fraction(total) / (e1 + number) - level
    height = np.longdouble(total - number * level) - number * _long(rest)
    active = counts > level
    above = (counts - level).astype(np.longdouble) - _long(rest)
    return active, np.where(active, above / height, np.longdouble(0))


def _long(value: Fraction) -> np.longdouble:
    scaled = value.numerator * 2**80 // value.denominator
    high, low = divmod(scaled, 2**40)
    return (np.longdouble(high) + np.longdouble(low) / np.longdouble(2**40)) / np.longdouble(2**40)
