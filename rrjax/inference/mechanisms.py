"""Which mechanism of local differential privacy: their expected errors side by side. On the host, in plain floats."""

from __future__ import annotations

import math
from typing import NamedTuple

from rrjax.checks import check_num_categories


class Mechanism(NamedTuple):
    """How one mechanism of local differential privacy would do.

    Attributes:
        name: Of the mechanism.
        expected_rmse: Root mean squared error of the unbiased estimate of a share, over the categories.
        bits: Of a report, at the least.
        note: What its parameter is, where it has one.
    """

    name: str
    expected_rmse: float
    bits: float
    note: str


def mechanisms(num_categories: int, num_users: int, epsilon: float) -> list[Mechanism]:
    """Which mechanism for K, N and ε: the error of each one's unbiased estimate, the least first.

    A report supports the user's own value with probability p* and any other one with q*; over N users the squared
    error, summed over the categories, is (p*(1−p*) + (K−1)·q*(1−q*))/(N·(p*−q*)²) in expectation, for all of them.

    Args:
        num_categories: K, an integer, at least 2.
        num_users: N, at least 1.
        epsilon: Nats, positive.

    Returns:
        A list of `Mechanism`: randomized response, symmetric and optimized unary encoding, optimized local hashing,
        subset selection, Hadamard response. rrjax estimates the first one.

    Raises:
        ValueError: One of them is out of range.

    Example:
        >>> import rrjax
        >>> [m.name for m in rrjax.inference.mechanisms(24, 10_000, 2.0)][:3]
        ['subset selection', 'optimized local hashing', 'optimized unary encoding']

    References:
        Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation", 2017; Ye and
        Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", 2018; Acharya,
        Sun and Zhang, "Hadamard response", 2019.
    """
    check_num_categories(num_categories)
    if not num_users >= 1:
        raise ValueError(f"num_users must be at least 1, got {num_users}")
    if not epsilon > 0:
        raise ValueError(f"epsilon must be a positive number of nats, got {epsilon}")
    size, e1 = num_categories, math.expm1(min(epsilon, 300))
    ratio, half = e1 + 1, math.exp(min(epsilon, 300) / 2)
    values = max(2, min(round(ratio) + 1, 2**62))  # of a hash
    subset = max(1, min(round(size / (ratio + 1)), size - 1))
    weight = subset * ratio / (subset * ratio + size - subset)
    order = 1 << size.bit_length()  # the smallest power of two above K
    choices = math.lgamma(size + 1) - math.lgamma(subset + 1) - math.lgamma(size - subset + 1)

    # Name, p*, q*, p* − q* without cancellation, bits, and the parameter.
    rows = [
        ("randomized response", ratio / (e1 + size), 1 / (e1 + size), e1 / (e1 + size), math.log2(size), ""),
        ("symmetric unary encoding", half / (half + 1), 1 / (half + 1), math.tanh(min(epsilon, 300) / 4), size, ""),
        ("optimized unary encoding", 0.5, 1 / (ratio + 1), e1 / (2 * (ratio + 1)), size, ""),
        (
            "optimized local hashing",
            ratio / (ratio + values - 1),
            1 / values,
            e1 * (values - 1) / (values * (ratio + values - 1)),
            math.log2(values) + 64,
            f"{values:,} hash values, a 64-bit seed",
        ),
        (
            "subset selection",
            weight,
            (subset - weight) / (size - 1),
            subset * e1 * (size - subset) / (subset * ratio + size - subset) / (size - 1),
            choices / math.log(2),
            f"subsets of {subset:,}",
        ),
        ("Hadamard response", ratio / (ratio + 1), 0.5, e1 / (2 * (ratio + 1)), math.log2(order), f"order {order:,}"),
    ]
    found = []
    for name, p, q, step, bits, note in rows:
        deviation = math.sqrt((p * (1 - p) + (size - 1) * q * (1 - q)) / (num_users * size))
        found.append(Mechanism(name, deviation / step, bits, note))
    # Subsets of one are randomized response itself: equal but for rounding, they keep their order.
    return sorted(found, key=lambda row: float(f"{row.expected_rmse:.9e}"))
