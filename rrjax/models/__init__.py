"""Models of randomized reports: losses, regressions, parametric families, privacy budgets, and the delta method."""

from rrjax.models.budget import split_budget
from rrjax.models.coefficient_tests import goodness_of_fit_test, likelihood_ratio_test, score_test, wald_test
from rrjax.models.delta import delta_method
from rrjax.models.dirichlet import fit_dirichlet
from rrjax.models.families import family_test, fit_family, geometric_logits, poisson_logits, zipf_logits
from rrjax.models.loss import CandidateResponse, backward_loss, rr_loss, rr_with_prior
from rrjax.models.outcome import fit_outcome
from rrjax.models.randomized_covariates import fit_randomized_covariates
from rrjax.models.regression import fit, fit_in_batches
from rrjax.models.results import FitError, OutcomeRegression, Regression, predict, summary

__all__ = [  # noqa: RUF022 - the order of the reference page: functions by question, classes after them
    "rr_loss",
    "backward_loss",
    "rr_with_prior",
    "fit",
    "fit_in_batches",
    "fit_randomized_covariates",
    "fit_outcome",
    "summary",
    "predict",
    "wald_test",
    "likelihood_ratio_test",
    "score_test",
    "goodness_of_fit_test",
    "fit_family",
    "family_test",
    "zipf_logits",
    "geometric_logits",
    "poisson_logits",
    "fit_dirichlet",
    "delta_method",
    "split_budget",
    "CandidateResponse",
    "Regression",
    "OutcomeRegression",
    "FitError",
]
