"""The paper's evaluation: its grid, and which of it each figure shows (`rrjax.study.drawings` draws them).

References:
    Pinzón et al., "Estimating the True Distribution of Data Collected with Randomized Response", AAAI 2026,
    arXiv:2601.08603, §6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rrjax.study.study import Study

ESTIMATORS = ("mle_star", "inv_p", "inv_n", "inv")
ADAPTING = ("cv_threshold", "empirical_bayes")
"""Not of the paper: they choose by the reports how much to shrink."""
CATEGORIES = (50, 100, 1000, 5000, 10_000)
USERS = (100, 1000, 10_000, 100_000, 1_000_000)
EPSILONS = tuple(float(epsilon) for epsilon in range(1, 11))
EXPONENTS = (0.01, 1.3, 2.5)
SHOWN_EPSILONS = (1.0, 2.0, 4.0, 10.0)
METRICS = ("mse", "nll", "bias2", "variance")
K, N, EPSILON = 10_000, 1_000_000, 4.0
"""Where Figs. 1 and 2 cut the grid."""

REAL_DATA, CONVERGENCE = 3, 4
"""The figures that are not drawn from the grid."""
FIGURES = tuple(range(1, 11))
BY_CATEGORIES = {
    5: (0.01, "mse"),
    6: (1.3, "mse"),
    7: (2.5, "mse"),
    8: (0.01, "nll"),
    9: (1.3, "nll"),
    10: (2.5, "nll"),
}
"""Figs. 5–10: exponent and metric."""


def study(num_seeds: int = 100, figures: Iterable[int] = FIGURES, estimators: Any = ESTIMATORS) -> Study | None:
    """The paper's study, or the part of its grid that some figures show."""
    wanted = set(figures) - {REAL_DATA, CONVERGENCE}
    if not wanted:
        return None
    if wanted >= set(FIGURES) - {REAL_DATA, CONVERGENCE}:
        categories, users, epsilons, exponents = CATEGORIES, USERS, EPSILONS, EXPONENTS
    else:
        grids = wanted & set(BY_CATEGORIES)
        overviews = wanted & {1, 2}
        categories = CATEGORIES if grids else (K,)
        users = USERS if grids or 1 in wanted else (N,)
        epsilons = EPSILONS if 2 in wanted else SHOWN_EPSILONS if grids else (EPSILON,)
        exponents = EXPONENTS if overviews else tuple(sorted({BY_CATEGORIES[number][0] for number in grids}))
    return Study(
        estimators=estimators,
        num_categories=categories,
        num_users=users,
        epsilon=epsilons,
        zipf=exponents,
        num_seeds=num_seeds,
        metrics=METRICS,
    )


def quick(num_seeds: int = 20) -> Study:
    """A small study of the same kind, with the estimators that adapt: under a minute from a cold start."""
    return Study(
        estimators=(*ESTIMATORS, *ADAPTING),
        num_categories=(1000,),
        num_users=(100, 1000, 10_000, 100_000, 1_000_000),
        epsilon=(1.0, 2.0, 4.0, 8.0),
        zipf=EXPONENTS,
        num_seeds=num_seeds,
        metrics=METRICS,
    )
