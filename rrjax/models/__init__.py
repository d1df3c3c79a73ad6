"""Models trained through randomized response: losses that know how the reports were made, and regression."""

from rrjax.models.candidates import CandidateResponse, rr_with_prior
from rrjax.models.goodness import goodness_of_fit_test, score_test
from rrjax.models.loss import backward_loss, rr_loss
from rrjax.models.outcome import OutcomeRegression, fit_outcome
from rrjax.models.regression import Regression, fit, fit_in_batches
from rrjax.models.statements import (
    ChiSquareTest,
    Prediction,
    likelihood_ratio_test,
    predict,
    summary,
    wald_test,
)

__all__ = [
    "CandidateResponse",
    "ChiSquareTest",
    "OutcomeRegression",
    "Prediction",
    "Regression",
    "backward_loss",
    "fit",
    "fit_in_batches",
    "fit_outcome",
    "goodness_of_fit_test",
    "likelihood_ratio_test",
    "predict",
    "rr_loss",
    "rr_with_prior",
    "score_test",
    "summary",
    "wald_test",
]
