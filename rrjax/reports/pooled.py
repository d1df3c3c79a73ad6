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
from rrjax.data.tally import Tally, num_tests, support_data
from rrjax.inference.share_differences import PartCounts, share_limits
from rrjax.reports.parameters import LARGEST_EPSILON, SMALLEST_EPSILON

if TYPE_CHECKING:
    from rrjax.reports.reports import Reports

FEW_USERS = 50
"""Number of users at which a category's own variance counts as much as the largest one that is possible."""


@dataclasses.dataclass(frozen=True)
class Unbiased:
    """Unbiased shares of all categories: weighted means of the inversions of parts."""

    shares: np.ndarray
    """`[K]`, which may be negative."""
    parts: Sequence[PartCounts]
    """The support counts that they are made from."""
    num_tests: int
    """As of `rrjax.data.tally.num_tests`."""

    def standard_error(self, theta: np.ndarray) -> np.ndarray:
        """`[K]`, of the unbiased shares at these true ones."""
        return np.sqrt(sum(np.square(each.weight) * variance_of(each, theta) for each in self.parts))

    def limits(self, level: float, *, simultaneous: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The true shares of which the reports are not in a tail, `[K]` each; NaN where no share explains them."""
        return share_limits(self.parts, level, self.num_tests, simultaneous=simultaneous)


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


def variance_of(part: PartCounts, theta: np.ndarray) -> np.ndarray:
    """`[K]`, that of the inversion of a part's support counts, which are binomial."""
    chance = np.clip(part.q + part.d * theta, 0, 1)
    return chance * (1 - chance) / (part.num_users * np.square(part.d))


def of_groups(parts: Sequence[Reports], theta: np.ndarray) -> Unbiased:
    """The mean of the groups' inversions, weighted by their precisions at these shares `[K]`, which are above zero."""
    shares = np.stack([np.asarray(rrjax.inv(*each.support_arguments), float) for each in parts])
    counts = [counts_of(*each, 1.0) for each in zip(parts, shares, strict=True)]
    weights = 1 / np.maximum([variance_of(each, theta) for each in counts], 1e-300)
    weights /= weights.sum(axis=0)
    weighted = [each._replace(weight=weight) for each, weight in zip(counts, weights, strict=True)]
    tests = int(num_tests(*(support_data(*each.support_arguments) for each in parts)))
    return Unbiased((weights * shares).sum(axis=0), weighted, tests)


def counts_of(part: Reports, shares: np.ndarray, weight: float) -> PartCounts:
    """The support counts of a part, from its inversion, `[K]`."""
    q, d = np.asarray(part.rates.q, float), np.asarray(part.rates.d, float)
    return PartCounts(part.num_reports * (q + d * shares), part.num_reports, q, d, weight)


def support_of_users(protocol: Any, own: Sequence[np.ndarray]) -> tuple[np.ndarray, float]:
    """The mean support of each user's reports `[N, K]`, and the mean of one over their numbers.

    `own` are those of `reports_of_users`.
    """
    support = np.concatenate([np.asarray(protocol.supports(each), float).mean(axis=1) for each in own])
    return support, sum(each.shape[0] / each.shape[1] for each in own) / len(support)


def of_users(support: np.ndarray, rates: Any, least: float, theta: np.ndarray) -> Unbiased:
    """The mean over the users of the mean inversion of each one's reports: shares of users, however often they report.

    The reports of a user depend on each other, in a way of each protocol: the spread of the users' means tells how
    much. They are worth one at least, and their number at most: then the variance is `least` times that of one report
    of each user. `support` and `least` are those of `support_of_users`.
    """
    q, d = np.asarray(rates.q, float), np.asarray(rates.d, float)
    number, mean = len(support), support.mean(axis=0)
    alone = variance_of(PartCounts(number * mean, number, q, d, 1.0), theta)
    spread = support.var(axis=0) / d**2 / max(number - 1, 1) / alone
    # Few users with a support, or without one, tell little of it.
    few = number * np.minimum(mean, 1 - mean)
    known = few / (few + FEW_USERS)
    excess = np.clip(known * spread + (1 - known), least, 1)
    # As of so many independent reports.
    counts = PartCounts(number * mean / excess, number / excess, q, d, 1.0)
    one = len(theta) == 2 and np.allclose(support.sum(axis=1), 1) and np.allclose(2 * q + d, 1)
    return Unbiased((mean - q) / d, [counts], 1 if one else len(theta))


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
