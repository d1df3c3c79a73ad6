"""The names of the estimators in the catalogue, for flags and their completion; without JAX."""

USUAL = ("mle_star", "inv_p", "inv_n", "inv", "empirical_bayes", "ordered_bayes", "ibu")
"""Estimators that run unless some are named; that for ordered categories only if the order means something."""
BY_NAME = ("mle", "base_pos", "base_cut", "norm", "norm_cut", "power", "power_ns", "mixture_reduction")
"""Estimators that run only if they are named."""
NAMES = (*USUAL, *BY_NAME)
LIKELIEST, CLOSEST, CLOSEST_IN_ORDER = "mle_star", "empirical_bayes", "ordered_bayes"
"""Default estimators of the command line: maximum likelihood, empirical Bayes, and that for categories in order."""
MAXIMIZER = "mle"
"""The estimator that maximizes the likelihood of any mechanism."""
