"""Models trained through randomized response: losses that know how the reports were made, and regression."""

from rrjax.models.loss import backward_loss, rr_loss
from rrjax.models.regression import Regression, fit
from rrjax.models.statements import (
    ChiSquareTest,
    Prediction,
    likelihood_ratio_test,
    predict,
    summary,
    wald_test,
)

__all__ = [
    "ChiSquareTest",
    "Prediction",
    "Regression",
    "backward_loss",
    "fit",
    "likelihood_ratio_test",
    "predict",
    "rr_loss",
    "summary",
    "wald_test",
]
