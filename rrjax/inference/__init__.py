"""How sure: precision, intervals, discoveries and tests from randomized reports.

Every function solves one problem and batches through `jax.vmap`, as the estimators do. Counts must be integers here.
"""

from rrjax.inference.discovery import discoveries, p_values
from rrjax.inference.fit_test import goodness_of_fit_test
from rrjax.inference.intervals import Intervals, intervals
from rrjax.inference.monte_carlo import HypothesisTest
from rrjax.inference.permutation_tests import equality_test, independence_test, trend_test
from rrjax.inference.precision import covariance, standard_errors, variances
from rrjax.inference.profile import ProfileLikelihood, Surface, log_likelihood_surface, profile
from rrjax.inference.ratio_test import likelihood_ratio_test

__all__ = [
    "HypothesisTest",
    "Intervals",
    "ProfileLikelihood",
    "Surface",
    "covariance",
    "discoveries",
    "equality_test",
    "goodness_of_fit_test",
    "independence_test",
    "intervals",
    "likelihood_ratio_test",
    "log_likelihood_surface",
    "p_values",
    "profile",
    "standard_errors",
    "trend_test",
    "variances",
]
