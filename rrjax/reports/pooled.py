"""The estimate from the reports of several parts together, such as rounds or groups."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

import numpy as np

import rrjax
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Tally
from rrjax.estimators.whole_reports import errors_of_whole_reports
from rrjax.reports.epsilon import LARGEST_EPSILON, SMALLEST_EPSILON


@dataclasses.dataclass(frozen=True)
class PooledEstimate:
    """The estimate from the reports of all parts together."""

    theta: np.ndarray
    """`[K]`, the shares."""
    standard_error: np.ndarray
    """`[K]`, their standard errors."""
    num_users: int

    def interval(self, level: float, *, simultaneous: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The interval of each share by the normal approximation, within [0, 1]; simultaneous by Bonferroni."""
        size = len(self.theta)
        if simultaneous and size > 2:  # two shares add up to one
            level = 1 - (1 - level) / size
        return normal_interval(self.theta, self.standard_error, level)


def normal_interval(share: np.ndarray, standard_error: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of shares by the normal approximation, within [0, 1]; NaN where a standard error is."""
    half = NormalDist().inv_cdf((1 + level) / 2) * standard_error
    return np.maximum(share - half, 0), np.minimum(share + half, 1)


def pooled_estimate(mixture: Mixture, shares: np.ndarray, variance: float, num_users: int) -> PooledEstimate:
    """Empirical Bayes from the likelihood of all whole reports, expanded at an unbiased estimate of the shares.

    The estimate is handed on as counts of randomized response, at an ε that has its error: at a smaller one the prior
    would move it further than the likelihood can move it back.
    """
    size = len(shares)
    low, high = SMALLEST_EPSILON, LARGEST_EPSILON
    for _ in range(60):
        middle = math.sqrt(low * high)
        noisy = rrjax.RandomizedResponse(size, middle).weights(math.expm1).variance(1 / size) > variance
        low, high = (middle, high) if noisy else (low, middle)
    rates = rrjax.RandomizedResponse(size, high).weights(math.expm1)
    rate = np.clip(rates.q + rates.d * shares, 0, 1)
    tally = Tally(
        np.rint(rate * num_users).astype(np.int32),
        np.int32(num_users),
        rates=rrjax.RandomizedResponse(size, high).rates,
    )
    theta = rrjax.empirical_bayes(tally, mixture=mixture).theta
    return PooledEstimate(np.asarray(theta), np.asarray(errors_of_whole_reports(theta, mixture)), num_users)
