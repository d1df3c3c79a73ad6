"""The channels of mechanisms, written out from their definitions: every report, and how likely each value makes it.

In fractions, so that nothing but e^ε itself is rounded: sums over reports would otherwise lose more than is tested.
"""

import fractions
import itertools
import math

import numpy as np
from scipy import linalg


def power(exponent):
    return fractions.Fraction(math.exp(exponent))


def randomized_response(size, epsilon, mechanism):
    return blocks(np.arange(size), np.eye(size, dtype=bool), epsilon)


def bits(size, p, q):
    reports = np.asarray(list(itertools.product([0, 1], repeat=size)), bool)
    own = np.eye(size, dtype=bool)[:, None]
    law = np.where(own, np.where(reports, p, 1 - p), np.where(reports, q, 1 - q)).prod(2)
    return reports, law, reports


def symmetric_unary_encoding(size, epsilon, mechanism):
    p = power(epsilon / 2) / (power(epsilon / 2) + 1)
    return bits(size, p, 1 - p)


def optimized_unary_encoding(size, epsilon, mechanism):
    return bits(size, fractions.Fraction(1, 2), 1 / (power(epsilon) + 1))


def subset_selection(size, epsilon, mechanism):
    reports = np.asarray(list(itertools.combinations(range(size), mechanism.subset_size)))
    return blocks(reports, (reports[:, :, None] == np.arange(size)).any(1), epsilon)


def hadamard_response(size, epsilon, mechanism):
    there = linalg.hadamard(1 << size.bit_length())[:, 1 : size + 1] > 0
    return blocks(np.arange(len(there)), there, epsilon)


def projective_geometry_response(size, epsilon, mechanism):
    order, dimension = mechanism.field_order, 2
    while (order**dimension - 1) // (order - 1) < size:
        dimension += 1
    # In the order of their numbers in base s: points and planes alike.
    vectors = [v for v in itertools.product(range(order), repeat=dimension) if any(v) and next(x for x in v if x) == 1]
    there = np.asarray(vectors) @ np.asarray(vectors).T % order == 0
    return blocks(np.arange(len(vectors)), there[:, :size], epsilon)


def blocks(reports, there, epsilon):
    return reports, 1 + (power(epsilon) - 1) * there.T.astype(int), there


CHANNELS = {
    function.__name__.replace("_", "-"): function
    for function in (
        randomized_response,
        symmetric_unary_encoding,
        optimized_unary_encoding,
        subset_selection,
        hadamard_response,
        projective_geometry_response,
    )
}
"""All but those of local hashing, whose reports are too many."""


def channel(mechanism):
    """Reports `[R, …]`, the law of them given each value `[K, R]`, and which values each of them supports `[R, K]`."""
    reports, law, there = exact_channel(mechanism)
    return reports, law.astype(float), there


def exact_channel(mechanism):
    epsilon = float(np.asarray(mechanism.epsilon))
    reports, law, there = CHANNELS[mechanism.name](mechanism.num_categories, epsilon, mechanism)
    return reports, law / law.sum(1, keepdims=True), np.asarray(there, bool)
