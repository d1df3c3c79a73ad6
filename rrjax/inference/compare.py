"""Which mechanism of local differential privacy: their expected errors side by side. On the host, in plain floats."""

from __future__ import annotations

import math
from typing import NamedTuple

from rrjax.checks import check_num_categories
from rrjax.mechanisms import MECHANISMS
from rrjax.tally import Rates


class MechanismErrors(NamedTuple):
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


def compare_mechanisms(num_categories: int, num_users: int, epsilon: float) -> list[MechanismErrors]:
    """Which mechanism for K, N and ε: the error of each one's unbiased estimate, the least first.

    A report supports the user's own value with probability p* and any other one with q*; over N users the squared
    error, summed over the categories, is (p*(1−p*) + (K−1)·q*(1−q*))/(N·(p*−q*)²) in expectation, for all of them.

    Args:
        num_categories: K, an integer, at least 2.
        num_users: N, at least 1.
        epsilon: Nats, positive.

    Returns:
        A list of `MechanismErrors`: those of `rrjax.mechanisms`, and of optimized local hashing and subset selection.

    Raises:
        ValueError: One of them is out of range.

    Example:
        >>> import rrjax
        >>> [m.name for m in rrjax.inference.compare_mechanisms(24, 10_000, 2.0)][:3]
        ['subset selection', 'optimized local hashing', 'optimized unary encoding']

    References:
        Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation", 2017; Ye and
        Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", 2018.
    """
    check_num_categories(num_categories)
    if not num_users >= 1:
        raise ValueError(f"num_users must be at least 1, got {num_users}")
    if not epsilon > 0:
        raise ValueError(f"epsilon must be a positive number of nats, got {epsilon}")
    epsilon = min(epsilon, 300)
    rows = [(name.replace("-", " "), *_of(kind(num_categories, epsilon)), "") for name, kind in MECHANISMS.items()]
    rows += _others(num_categories, math.expm1(epsilon))
    found = [
        MechanismErrors(name, math.sqrt(rates.total_variance(num_categories) / num_users / num_categories), bits, note)
        for name, rates, bits, note in rows
    ]
    # Subsets of one are randomized response itself: equal but for rounding, they keep their order.
    return sorted(found, key=lambda row: float(f"{row.expected_rmse:.9e}"))


def _of(mechanism):
    return mechanism.weights(math.expm1), mechanism.bits


def _others(size: int, e1: float) -> list[tuple[str, Rates, float, str]]:
    """Name, rates, bits and parameter of those that rrjax knows by their rates alone."""
    values = max(2, min(round(e1 + 1) + 1, 2**62))  # of a hash
    subset = max(1, min(round(size / (e1 + 2)), size - 1))
    choices = math.lgamma(size + 1) - math.lgamma(subset + 1) - math.lgamma(size - subset + 1)
    # Of a subset of ω that holds the value with p = ωe^ε/(ωe^ε + K − ω), another category is in it with (ω − p)/(K −
    # 1).
    others = Rates(
        always=subset * (subset * (e1 + 1) - (e1 + 1) + size - subset) / (size - 1),
        never=size - subset,
        truth=subset * e1 * (size - subset) / (size - 1),
    )
    return [
        (
            "optimized local hashing",
            Rates(always=(e1 + values) / (values - 1), never=values, truth=e1),
            math.log2(values) + 64,
            f"{values:,} hash values, a 64-bit seed",
        ),
        ("subset selection", others, choices / math.log(2), f"subsets of {subset:,}"),
    ]
