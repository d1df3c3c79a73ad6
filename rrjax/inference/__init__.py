"""How sure: precision, intervals and discoveries from randomized reports.

Every function solves one problem and batches through `jax.vmap`, as the estimators do. Counts must be integers here.
"""

from rrjax.inference.discovery import discoveries, p_values
from rrjax.inference.intervals import Intervals, intervals
from rrjax.inference.precision import covariance, standard_errors, variances

__all__ = ["Intervals", "covariance", "discoveries", "intervals", "p_values", "standard_errors", "variances"]
