"""How sure: precision, intervals, discoveries and tests from randomized reports.

Every function solves one problem and batches through `jax.vmap`, as the estimators do. Counts must be integers here.
"""

from rrjax.inference.discovery import discoveries, p_values
from rrjax.inference.intervals import Intervals, intervals
from rrjax.inference.precision import covariance, standard_errors, variances
from rrjax.inference.ratio_test import RatioTest, likelihood_ratio_test

__all__ = [
    "Intervals",
    "RatioTest",
    "covariance",
    "discoveries",
    "intervals",
    "likelihood_ratio_test",
    "p_values",
    "standard_errors",
    "variances",
]
