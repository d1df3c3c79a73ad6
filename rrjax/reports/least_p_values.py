"""The smallest p-values that reports of a number can have: above the significance, a test cannot find anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rrjax.data.tally import Tally
from rrjax.inference.marginal_tests import alike, num_tests_of
from rrjax.reports.reports import Reports


def least_of_any(reports: Reports) -> float:
    """Logarithm of the smallest p-value of the test whether any distribution fits.

    It is reached where all reports name one category, which a point mass makes with p^N.
    """
    rates, size, number = reports.rates, reports.num_categories, reports.num_reports
    held, other = math.log1p(-float(rates.not_p)), math.log(max(float(rates.q), 1e-300))
    return float(np.logaddexp(number * held, math.log(size - 1) + number * other))


def least_of_one(reports: Reports, theta: np.ndarray) -> float:
    """Logarithm of the smallest p-value of the test of one distribution: all reports name its rarest category."""
    law = float(reports.rates.q) + float(reports.rates.d) * theta / theta.sum()
    rarest = max(float(law.min()), 1e-300)
    return math.log(np.sum(law <= rarest * (1 + 1e-9))) + reports.num_reports * math.log(rarest)


def least_of_fit(reports: Reports, theta: np.ndarray | None) -> float:
    """Logarithm of the smallest p-value of an exact test of fit: all reports support a category, or none does."""
    rates = reports.rates
    if theta is None and not (reports.num_categories == 2 and reports.mechanism.same_size):
        return -math.inf  # all categories together are tested too
    if theta is None:
        law = np.minimum(rates.p, rates.not_q)
    else:
        reported = np.asarray(rates.q + rates.d * (theta / theta.sum()))
        law = np.minimum(reported, 1 - reported)
    return math.log(2 * int(num_tests_of([reports.tally()]))) + reports.num_reports * math.log(
        max(float(np.min(law)), 1e-300)
    )


def least_of_shuffles(counts: np.ndarray, epsilon: Any = None) -> float:
    """Logarithm of the smallest p-value of a shuffle of reports among collections `[G, K]`.

    Each way to share them out is equally likely. Where the ε differ, reports are randomized further, and there is no
    bound.
    """
    if np.ndim(epsilon):
        return -math.inf
    if np.count_nonzero(counts.sum(axis=0)) < 2 or np.count_nonzero(counts.sum(axis=1)) < 2:
        return 0.0  # every shuffle is the same
    sizes = counts.sum(axis=1)
    return sum(math.lgamma(size + 1) for size in sizes) - math.lgamma(sizes.sum() + 1)


def least_of_tables(tallies: Sequence[Tally]) -> float:
    """Logarithm of the smallest p-value of the exact test of collections, given the support of all of them.

    Where the rates differ, supports are randomized further, and there is no bound.
    """
    from scipy.special import gammaln

    if not alike(tallies):
        return -math.inf
    support = np.stack([np.asarray(each.support, np.float64) for each in tallies])
    number = np.asarray([[float(each.num_users)] for each in tallies])
    marked, total = support.sum(axis=0), number.sum()

    def log_ways(of, chosen):
        return gammaln(of + 1) - gammaln(chosen + 1) - gammaln(of - chosen + 1)

    fewest, most = np.maximum(0, number + marked - total), np.minimum(number, marked)
    mass = [log_ways(marked, x) + log_ways(total - marked, number - x) for x in (fewest, most)]
    least = np.where(fewest < most, np.minimum(*mass) - log_ways(total, number), 0)
    groups = len(tallies)
    tests = int(num_tests_of(tallies)) * (1 if groups == 2 else groups)
    return math.log(2 * tests) + float(least.min())
