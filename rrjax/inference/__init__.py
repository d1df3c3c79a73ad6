"""Precision, intervals, discoveries, tests and plans from randomized reports.

Every function solves one problem; batches go through `jax.vmap`, as for the estimators. Counts must be integers here.
"""

from rrjax.inference.association import Association as Association
from rrjax.inference.association import Limits, association, cramers_v, mutual_information, odds_ratios
from rrjax.inference.chow_liu import ChowLiuTree, chow_liu_tree, tree_fit_test
from rrjax.inference.chow_liu import TreeFit as TreeFit
from rrjax.inference.classes import ClassEstimates, class_cdf, class_means, class_quantiles
from rrjax.inference.combined import difference, stratified
from rrjax.inference.contingency_tables import equality_test, independence_test, trend_test
from rrjax.inference.contradiction import ContradictionTest, Excess, contradiction_test, repeated_seed_test
from rrjax.inference.distribution_tests import DesignFit as DesignFit
from rrjax.inference.distribution_tests import design_fit_test, goodness_of_fit_test, likelihood_ratio_test
from rrjax.inference.fakes import Fakes as Fakes
from rrjax.inference.fakes import fakes_to_overturn
from rrjax.inference.functionals import Estimate, group_share, linear_functional
from rrjax.inference.intervals import Intervals, discoveries, intervals, p_values
from rrjax.inference.marginal_tests import CategoryTest
from rrjax.inference.monte_carlo import HypothesisTest, power
from rrjax.inference.monte_carlo import Power as Power
from rrjax.inference.planning import MechanismErrors as MechanismErrors
from rrjax.inference.planning import SplitErrors as SplitErrors
from rrjax.inference.planning import (
    compare_mechanisms,
    compare_splits,
    detectable_share,
    expected_width,
    users_for_width,
)
from rrjax.inference.posterior import Posterior, posterior
from rrjax.inference.precision import (
    covariance,
    epsilon_for_error,
    expected_rmse,
    standard_errors,
    users_for_error,
    variances,
)
from rrjax.inference.profile import ProfileLikelihood as ProfileLikelihood
from rrjax.inference.profile import Surface as Surface
from rrjax.inference.profile import log_likelihood_surface, profile
from rrjax.inference.quantiles import CdfBand as CdfBand
from rrjax.inference.quantiles import Quantile as Quantile
from rrjax.inference.quantiles import cdf_band, mean_limits, quantile, quantile_limits
from rrjax.inference.surveys import SurveyEstimate as SurveyEstimate
from rrjax.inference.surveys import survey_estimate
from rrjax.inference.two_sample_designs import ComplianceEstimate as ComplianceEstimate
from rrjax.inference.two_sample_designs import UnrelatedQuestionEstimate as UnrelatedQuestionEstimate
from rrjax.inference.two_sample_designs import compliance, unrelated_question

__all__ = [
    "association",
    "cdf_band",
    "chow_liu_tree",
    "class_cdf",
    "class_means",
    "class_quantiles",
    "compare_mechanisms",
    "compare_splits",
    "compliance",
    "contradiction_test",
    "covariance",
    "cramers_v",
    "design_fit_test",
    "detectable_share",
    "difference",
    "discoveries",
    "epsilon_for_error",
    "equality_test",
    "expected_rmse",
    "expected_width",
    "fakes_to_overturn",
    "goodness_of_fit_test",
    "group_share",
    "independence_test",
    "intervals",
    "likelihood_ratio_test",
    "linear_functional",
    "log_likelihood_surface",
    "mean_limits",
    "mutual_information",
    "odds_ratios",
    "p_values",
    "posterior",
    "power",
    "profile",
    "quantile",
    "quantile_limits",
    "repeated_seed_test",
    "standard_errors",
    "stratified",
    "survey_estimate",
    "tree_fit_test",
    "trend_test",
    "unrelated_question",
    "users_for_error",
    "users_for_width",
    "variances",
]
# Results of several functions; a result of one function is documented with it.
__all__ += [
    "CategoryTest",
    "ChowLiuTree",
    "ClassEstimates",
    "ContradictionTest",
    "Estimate",
    "Excess",
    "HypothesisTest",
    "Intervals",
    "Limits",
    "Posterior",
]
