"""The estimate from all parts of a collection together: posterior means, and intervals around unbiased shares.

Posterior means are closer to the true shares than unbiased ones in all, because each is moved to what the others tell
of the distribution. A share far from the others is moved too far, so intervals around it would not hold the true one.
These are around the unbiased shares.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import rrjax
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Tally
from rrjax.models.results import critical_value
from rrjax.reports.parameters import LARGEST_EPSILON, SMALLEST_EPSILON

if TYPE_CHECKING:
    from rrjax.reports.reports import Reports


@dataclasses.dataclass(frozen=True)
class Unbiased:
    """Unbiased shares of all categories, and their variances as polynomials of the true share."""

    shares: np.ndarray
    """`[K]`, which may be negative."""
    variance: np.ndarray
    """`[3, K]`, the coefficients of 1, θ and θ²."""

    def standard_error(self, theta: np.ndarray) -> np.ndarray:
        """Of the unbiased shares, at these true ones."""
        none, linear, square = self.variance
        return np.sqrt(np.maximum(none + theta * (linear + theta * square), 0))

    def limits(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Score intervals in [0, 1]: the true shares at which the unbiased one is not too many standard errors away."""
        quantile = critical_value(level, None) ** 2
        none, linear, square = quantile * self.variance
        middle, width = self.shares + linear / 2, 1 - square
        root = np.sqrt(np.maximum(middle**2 - width * (self.shares**2 - none), 0))
        return np.clip((middle - root) / width, 0, 1), np.clip((middle + root) / width, 0, 1)


@dataclasses.dataclass(frozen=True)
class PooledEstimate:
    """The estimate from the reports of all parts together."""

    theta: np.ndarray
    """`[K]`, the posterior means."""
    unbiased: Unbiased
    num_users: int

    @property
    def standard_error(self) -> np.ndarray:
        """`[K]`, that of the unbiased shares."""
        return self.unbiased.standard_error(self.theta)


def polynomial(rates: Any) -> np.ndarray:
    """The variance of one unbiased report, (q + dθ)(1 − q − dθ)/d², as the coefficients of 1, θ and θ²."""
    q, d, not_q = (np.asarray(each, float) for each in (rates.q, rates.d, rates.not_q))
    return np.stack(np.broadcast_arrays(q * not_q / d**2, (not_q - q) / d, -1.0))


def of_groups(parts: Sequence[Reports], theta: np.ndarray) -> Unbiased:
    """The mean of the groups' inversions, weighted by their precisions at these shares, which are above zero."""
    shares = np.stack([np.asarray(rrjax.inv(*each.support_arguments), float) for each in parts])
    powers = np.stack([np.ones_like(theta), theta, theta**2])
    one = np.stack([np.broadcast_to(polynomial(each.rates).reshape(3, -1), powers.shape) for each in parts])
    variances = one / np.asarray([each.num_reports for each in parts])[:, None, None]
    weights = 1 / np.maximum((variances * powers).sum(axis=1), np.finfo(float).tiny)
    weights /= weights.sum(axis=0)
    return Unbiased((weights * shares).sum(axis=0), (weights[:, None] ** 2 * variances).sum(axis=0))


def of_rounds(parts: Sequence[Reports], protocol: Any, own: Sequence[np.ndarray], theta: np.ndarray) -> Unbiased:
    """The mean of the rounds' inversions, weighted by their numbers of reports.

    The reports of a user depend on each other, which the squares of the users' sums tell, of any protocol; a category
    has at least the mean excess of all, because few reports tell little. `own` are those of `reports_of_users`.
    """
    sizes = np.asarray([each.num_reports for each in parts], float)
    inversions = np.stack([np.asarray(rrjax.inv(*each.support_arguments), float) for each in parts])
    shares, number = sizes @ inversions / sizes.sum(), sizes.sum()
    rates, size = protocol.single_round.rates, len(theta)
    expected, truth = np.asarray(rates.q, float) + np.asarray(rates.d, float) * shares, np.asarray(rates.d, float)
    squares, users = np.zeros(size), 0
    for reports in own:
        sums = (np.asarray(protocol.supports(reports), float) - expected).sum(axis=1) / truth
        squares, users = squares + (sums**2).sum(axis=0), users + len(sums)
    one = polynomial(rates).reshape(3, -1)
    independent = (one * np.stack([np.ones(size), theta, theta**2])).sum(axis=0) / number
    variances = squares / number**2 * users / max(users - 1, 1)
    excess = np.maximum(variances / independent, variances.sum() / independent.sum())
    return Unbiased(shares, excess * one / number)


def posterior_means(mixture: Mixture, shares: np.ndarray, variance: float, num_users: int) -> np.ndarray:
    """Empirical Bayes from the likelihood of all whole reports, expanded at unbiased shares, which may be negative.

    `variance` is that of one of these shares if all are equal, times the number of users. The estimate is handed on as
    counts of randomized response, at an ε that has its error: at a smaller one the prior would move it further than the
    likelihood can move it back.
    """
    size = len(shares)
    low, high = SMALLEST_EPSILON, LARGEST_EPSILON
    for _ in range(60):
        middle = math.sqrt(low * high)
        noisy = rrjax.RandomizedResponse(size, middle).rates_by(math.expm1).variance(1 / size) > variance
        low, high = (middle, high) if noisy else (low, middle)
    mechanism = rrjax.RandomizedResponse(size, high)
    rates = mechanism.rates_by(math.expm1)
    support = np.rint(np.clip(rates.q + rates.d * shares, 0, 1) * num_users).astype(np.int32)
    tally = Tally(support, np.int32(num_users), rates=mechanism.rates)
    return np.asarray(rrjax.empirical_bayes(tally, mixture=mixture).theta)
