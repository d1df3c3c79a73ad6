"""How sure: precision, intervals, discoveries and tests from randomized reports.

Every function solves one problem and batches through `jax.vmap`, as the estimators do. Counts must be integers here.
"""

from rrjax.inference.combined import difference, stratified
from rrjax.inference.compare import MechanismErrors, compare_mechanisms
from rrjax.inference.contradiction import contradiction_test, repeated_seed_test
from rrjax.inference.discovery import discoveries, p_values
from rrjax.inference.functionals import group_share, linear_functional
from rrjax.inference.goodness_of_fit import goodness_of_fit_test
from rrjax.inference.intervals import Intervals, intervals
from rrjax.inference.likelihood_ratio import likelihood_ratio_test
from rrjax.inference.monte_carlo import HypothesisTest
from rrjax.inference.permutation import equality_test, independence_test, trend_test
from rrjax.inference.planning import (
    Power,
    detectable_share,
    epsilon_for_error,
    expected_rmse,
    expected_width,
    power,
    users_for_error,
    users_for_width,
)
from rrjax.inference.posterior import Posterior, credible_intervals, posterior
from rrjax.inference.precision import covariance, standard_errors, variances
from rrjax.inference.profile import ProfileLikelihood, Surface, log_likelihood_surface, profile
from rrjax.inference.quantiles import Quantile, credible_functional, quantile
from rrjax.inference.scale import Estimate
from rrjax.inference.surveys import survey_intervals, survey_standard_errors
from rrjax.inference.weighted import WeightedCounts, weighted_counts, weighted_functional, weighted_shares

__all__ = [
    "Estimate",
    "HypothesisTest",
    "Intervals",
    "MechanismErrors",
    "Posterior",
    "Power",
    "ProfileLikelihood",
    "Quantile",
    "Surface",
    "WeightedCounts",
    "compare_mechanisms",
    "contradiction_test",
    "covariance",
    "credible_functional",
    "credible_intervals",
    "detectable_share",
    "difference",
    "discoveries",
    "epsilon_for_error",
    "equality_test",
    "expected_rmse",
    "expected_width",
    "goodness_of_fit_test",
    "group_share",
    "independence_test",
    "intervals",
    "likelihood_ratio_test",
    "linear_functional",
    "log_likelihood_surface",
    "p_values",
    "posterior",
    "power",
    "profile",
    "quantile",
    "repeated_seed_test",
    "standard_errors",
    "stratified",
    "survey_intervals",
    "survey_standard_errors",
    "trend_test",
    "users_for_error",
    "users_for_width",
    "variances",
    "weighted_counts",
    "weighted_functional",
    "weighted_shares",
]
