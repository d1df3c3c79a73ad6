"""Clients for numbers: the square wave on bins, and geometric noise on a range of integers.

Both report integers. Noise in floating point shows more of the value than its real law does, by its last bits.

References:
    Mironov, "On significance of the least significant bits for differential privacy", CCS 2012;
    Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", 2012.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import half_width_of
from rrjax.privacy.clients.base import Client, below, numbers_below
from rrjax.privacy.clients.thresholds import (
    DENOMINATOR,
    DOWN,
    SMALLEST_THRESHOLD,
    UP,
    check_delivered,
    threshold,
)

MOST_INTEGERS = 1 << 20
"""Largest number of integers of geometric noise; each has a threshold."""
MARGIN = Fraction(1, 2**36)
"""Part of ε that geometric noise leaves unused, for the rounding of its thresholds."""


class _SquareWave(Client):
    """One draw decides whether the report is in the window of the value, another one which place it has there."""

    name = "square-wave"
    parameter = "half_width"

    def __init__(self, num_categories, epsilon, half_width=None):
        super().__init__(num_categories, epsilon)
        self.half_width = half_width_of(half_width, self.num_categories, self.epsilon)
        self._window, others = 2 * self.half_width + 1, self.num_categories - 1
        self._threshold = threshold(self._window, others, self.epsilon, self.num_categories)
        self.likelihood_ratio = Fraction(self._threshold * others, (DENOMINATOR - self._threshold) * self._window)

    def _made(self, values, draws):
        near = below(draws[:, 0], self._threshold)
        bounds = np.where(near, np.uint64(self._window), np.uint64(self.num_categories - 1))
        place = numbers_below(draws[:, 1], bounds).astype(np.int32)
        outside = np.where(place < values, place, place + np.int32(self._window))
        return np.where(near, values + place, outside)

    def supports(self, reports, value):
        return (reports >= value) & (reports <= value + 2 * self.half_width)


class _Geometric(Client):
    """One number of 128 bits is compared with the tail of the noise, by bisection; one bit is the side.

    P(noise ≥ k) = P(noise ≤ −k) = t_k/2¹²⁸ for k ≥ 1, with integers t_k: r^k/(1 + r), r = e^(−ε/(K−1)), rounded.
    """

    name = "geometric"
    num_words = 3

    def __init__(self, num_categories, epsilon):
        super().__init__(num_categories, epsilon)
        if self.num_categories > MOST_INTEGERS:
            raise ArgumentError(
                f"num_categories = {self.num_categories} is more than geometric noise takes, {MOST_INTEGERS}: report "
                "wider bins by the square wave",
                argument="num_categories",
                value=self.num_categories,
            )
        tails = _tails(self.num_categories, self.epsilon)
        self.likelihood_ratio = _largest_ratio(tails)
        quotient = UP.divide(Decimal(self.likelihood_ratio.numerator), Decimal(self.likelihood_ratio.denominator))
        kept = UP.next_plus(UP.ln(quotient)) <= Decimal(self.epsilon)
        largest = math.log(DENOMINATOR // SMALLEST_THRESHOLD / (1 + math.exp(-36 / (self.num_categories - 1))))
        check_delivered(
            self.epsilon,
            self.num_categories,
            ratio=self.likelihood_ratio if kept else Fraction(1),
            draws=1,
            largest=None if tails[-1] >= SMALLEST_THRESHOLD else largest,
        )
        words = [divmod(2 * tail, 2**64) for tail in tails]
        self._tails = tails
        self._high, self._low = (np.asarray(each, np.uint64) for each in zip(*words, strict=True))

    def _made(self, values, draws):
        high, low = draws[:, 0], draws[:, 1]
        steps, most = np.zeros(len(draws), np.int32), np.full(len(draws), len(self._high), np.int32)
        for _ in range(len(self._high).bit_length()):  # the number of tails above the draw
            middle = (steps + most + 1) // 2
            place = np.maximum(middle - 1, 0)
            above = (high < self._high[place]) | ((high == self._high[place]) & (low < self._low[place]))
            steps, most = np.where(above, middle, steps), np.where(above, most, np.maximum(middle - 1, steps))
        upwards = (draws[:, 2] & np.uint64(1)).astype(bool)
        last = np.int32(self.num_categories - 1)
        return np.where(upwards, np.minimum(values + steps, last), np.maximum(values - steps, 0)).astype(np.int32)

    def supports(self, reports, value):
        return reports == value


def _tails(num_categories, epsilon):
    """The integers t_1 … t_(K−1)."""
    used = DOWN.multiply(Decimal(epsilon), Decimal(1) - Decimal(1) / Decimal(MARGIN.denominator))
    ratio = DOWN.exp(DOWN.divide(used, Decimal(num_categories - 1)).copy_negate())
    level = DOWN.divide(Decimal(DENOMINATOR), DOWN.add(ratio, Decimal(1)))
    tails = []
    for _ in range(num_categories - 1):
        level = DOWN.multiply(level, ratio)
        tails.append(int(level))
    return tails


def _largest_ratio(tails):
    """The largest ratio of the probabilities of one report under two values, exactly.

    An inner report is at all distances up to K − 2 from values; a report at an end has the probabilities of all tails.
    """
    steps = [DENOMINATOR - 2 * tails[0], *(tail - beyond for tail, beyond in itertools.pairwise(tails))]
    ends = Fraction(DENOMINATOR - tails[0], max(tails[-1], 1))
    inner = Fraction(max(steps), max(min(steps), 1)) if len(tails) > 1 else ends
    return max(ends, inner)


ORDERED_CLIENTS: tuple[type[Client], ...] = (_SquareWave, _Geometric)
"""The clients for numbers."""
