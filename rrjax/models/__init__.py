"""Models through randomized response: losses that know how reports were made, regression, families, budgets."""

from rrjax.models.budget import BudgetSplit, split_budget
from rrjax.models.candidates import CandidateResponse, rr_with_prior
from rrjax.models.delta import DeltaEstimate, delta_method
from rrjax.models.dirichlet import DirichletFit, fit_dirichlet
from rrjax.models.families import FamilyFit, family_test, fit_family, geometric_logits, poisson_logits, zipf_logits
from rrjax.models.fitted import Regression
from rrjax.models.goodness import goodness_of_fit_test, score_test
from rrjax.models.loss import backward_loss, rr_loss
from rrjax.models.outcome import OutcomeRegression, fit_outcome
from rrjax.models.refusals import FitError
from rrjax.models.regression import fit, fit_in_batches
from rrjax.models.statements import ChiSquareTest, FTest, Prediction, likelihood_ratio_test, predict, summary, wald_test

__all__ = [
    "BudgetSplit",
    "CandidateResponse",
    "ChiSquareTest",
    "DeltaEstimate",
    "DirichletFit",
    "FTest",
    "FamilyFit",
    "FitError",
    "OutcomeRegression",
    "Prediction",
    "Regression",
    "backward_loss",
    "delta_method",
    "family_test",
    "fit",
    "fit_dirichlet",
    "fit_family",
    "fit_in_batches",
    "fit_outcome",
    "geometric_logits",
    "goodness_of_fit_test",
    "likelihood_ratio_test",
    "poisson_logits",
    "predict",
    "rr_loss",
    "rr_with_prior",
    "score_test",
    "split_budget",
    "summary",
    "wald_test",
    "zipf_logits",
]
