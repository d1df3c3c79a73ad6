"""Which mechanism of local differential privacy: their expected errors side by side. On the host, in plain floats."""

from __future__ import annotations

import math
from typing import NamedTuple

from rrjax.data.arguments import Estimand
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.inference.planning import drawing_error
from rrjax.mechanisms import MECHANISMS


class MechanismErrors(NamedTuple):
    """How one mechanism of local differential privacy would do.

    Attributes:
        name: Of the mechanism.
        expected_rmse: Root mean squared error of the unbiased estimate of a share, over the categories.
        bits: Of a report, at the least.
        note: What its parameter is, where it has one.
        operations: Of the server, to count the reports, roughly: `Mechanism.server_operations`.
    """

    name: str
    expected_rmse: float
    bits: float
    note: str
    operations: float


def compare_mechanisms(
    num_categories: int, num_users: int, epsilon: float, *, estimand: Estimand = "distribution"
) -> list[MechanismErrors]:
    """Which mechanism for K, N and ε: the error of each one's unbiased estimate, the least first.

    A report supports the user's own value with probability p* and any other one with q*; over N users the squared
    error, summed over the categories, is (p*(1−p*) + (K−1)·q*(1−q*))/(N·(p*−q*)²) in expectation, for all of them. To
    that of the distribution that users are drawn from, drawing them adds (1 − 1/K)/N at most (see `expected_rmse`).

    Args:
        num_categories: K, an integer, at least 2.
        num_users: N, at least 1.
        epsilon: Nats, positive.
        estimand: "distribution" or "users": what the errors are from, as in `expected_rmse`.

    Returns:
        A list of `MechanismErrors`, one for each of `rrjax.mechanisms`.

    Raises:
        ValueError: One of them is out of range, or an unknown estimand.

    Example:
        >>> import rrjax
        >>> [m.name for m in rrjax.inference.compare_mechanisms(24, 10_000, 2.0)][:3]
        ['subset selection', 'projective geometry response', 'optimized local hashing']

    References:
        Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation", 2017; Ye and
        Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", 2018.
    """
    check_num_categories(num_categories)
    if not num_users >= 1:
        raise ArgumentError(f"num_users must be at least 1, got {num_users}", argument="num_users", value=num_users)
    if not epsilon > 0:
        raise ArgumentError(
            f"epsilon must be a positive number of nats, got {epsilon}", argument="epsilon", value=epsilon
        )
    epsilon, drawn = min(epsilon, 300), drawing_error(num_categories, estimand)
    found = []
    for kind in MECHANISMS.values():
        try:
            mechanism = kind(num_categories, epsilon)
        except ArgumentError:  # more categories than it can decode
            continue
        variance = mechanism.weights(math.expm1).total_variance(num_categories) + drawn
        error = math.sqrt(variance / num_users / num_categories)
        name, operations = kind.name.replace("-", " "), float(mechanism.server_operations(num_users))
        found.append(MechanismErrors(name, error, mechanism.bits, mechanism.note, operations))
    # Subsets of one are randomized response itself: equal but for rounding, they keep their order.
    return sorted(found, key=lambda row: float(f"{row.expected_rmse:.9e}"))
