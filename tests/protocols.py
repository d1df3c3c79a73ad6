"""Longitudinal protocols of all kinds, and their two stages by enumeration."""

import functools
import itertools

import numpy as np
import pytest

from rrjax.mechanisms.longitudinal import (
    LongitudinalLocalHashing,
    LongitudinalRandomizedResponse,
    LongitudinalUnaryEncoding,
)


def unary(permanent, instantaneous):
    return functools.partial(
        LongitudinalUnaryEncoding, permanent_encoding=permanent, instantaneous_encoding=instantaneous
    )


SUE, OUE = unary("symmetric", "symmetric"), unary("optimized", "optimized")
OSUE, SOUE = unary("optimized", "symmetric"), unary("symmetric", "optimized")
UNARY = [SUE, OUE, OSUE, SOUE]
TWO_STAGES = [LongitudinalRandomizedResponse, LongitudinalLocalHashing, *UNARY]
two_stages = pytest.mark.parametrize("kind", TWO_STAGES)
BUCKETS = np.array([0, 1, 0, 2])
"""Of the categories, for a user of local hashing."""


def make(kind, size, epsilon=2.0, first=1.0):
    return kind(size, epsilon, first, 3) if kind is LongitudinalLocalHashing else kind(size, epsilon, first)


def stages(protocol):
    """p1, q1, p2, q2 in double precision."""
    rates = protocol.permanent, protocol.instantaneous
    return [float(each) for stage in rates for each in (np.float64(stage.p), np.float64(stage.q))]


def matrix(size, p, q):
    return np.where(np.eye(size, dtype=bool), p, q)


def channels(protocol, buckets=BUCKETS):
    """`[K, memos]` and `[memos, outputs]` of the two mechanisms, and the outputs of one round, by enumeration."""
    p1, q1, p2, q2 = stages(protocol)
    size = protocol.num_categories
    if isinstance(protocol, (LongitudinalRandomizedResponse, LongitudinalLocalHashing)):
        number = protocol.num_answers
        first = matrix(number, p1, q1)
        if isinstance(protocol, LongitudinalLocalHashing):
            first = first[buckets[:size]]
        return first, matrix(number, p2, q2), np.arange(number)
    outputs = np.array(list(itertools.product([0, 1], repeat=size)))
    set_, again = matrix(size, p1, q1)[:, None, :], np.where(outputs, p2, q2)[:, None, :]
    return *(np.where(outputs, each, 1 - each).prod(-1) for each in (set_, again)), outputs
