"""The paper's evaluation: its grid, and which of it each figure shows.

References:
    Pinzón et al., "Estimating the True Distribution of Data Collected with Randomized Response", AAAI 2026,
    arXiv:2601.08603, §6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from rrjax.study.study import Study

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

ESTIMATORS = ("mle_star", "inv_p", "inv_n", "inv")
CATEGORIES = (50, 100, 1000, 5000, 10_000)
USERS = (100, 1000, 10_000, 100_000, 1_000_000)
EPSILONS = tuple(float(epsilon) for epsilon in range(1, 11))
EXPONENTS = (0.01, 1.3, 2.5)
SHOWN_EPSILONS = (1.0, 2.0, 4.0, 10.0)
METRICS = ("mse", "nll", "bias2", "variance")
_K, _N, _EPSILON = 10_000, 1_000_000, 4.0

REAL_DATA, CONVERGENCE = 3, 4
"""The figures that are not drawn from the grid."""
FIGURES = tuple(range(1, 11))
# Figs. 5–10: exponent and metric.
_BY_CATEGORIES = {
    5: (0.01, "mse"),
    6: (1.3, "mse"),
    7: (2.5, "mse"),
    8: (0.01, "nll"),
    9: (1.3, "nll"),
    10: (2.5, "nll"),
}


def study(num_seeds: int = 100, figures: Iterable[int] = FIGURES, estimators: Any = ESTIMATORS) -> Study | None:
    """The paper's study, or the part of its grid that some figures show.

    Args:
        num_seeds: Simulated collections of every configuration.
        figures: Numbers from 1 to 10.
        estimators: As `Study` takes them.

    Returns:
        The study; None where none of the figures is drawn from the grid.
    """
    wanted = set(figures) - {REAL_DATA, CONVERGENCE}
    if not wanted:
        return None
    if wanted >= set(FIGURES) - {REAL_DATA, CONVERGENCE}:
        categories, users, epsilons, exponents = CATEGORIES, USERS, EPSILONS, EXPONENTS
    else:
        grids = wanted & set(_BY_CATEGORIES)
        overviews = wanted & {1, 2}
        categories = CATEGORIES if grids else (_K,)
        users = USERS if grids or 1 in wanted else (_N,)
        epsilons = EPSILONS if 2 in wanted else SHOWN_EPSILONS if grids else (_EPSILON,)
        exponents = EXPONENTS if overviews else tuple(sorted({_BY_CATEGORIES[number][0] for number in grids}))
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
    """A small study of the same kind, with the cross-validated estimator: under a minute from a cold start."""
    return Study(
        estimators=(*ESTIMATORS, "cv_threshold"),
        num_categories=(1000,),
        num_users=(100, 1000, 10_000, 100_000, 1_000_000),
        epsilon=(1.0, 2.0, 4.0, 8.0),
        zipf=EXPONENTS,
        num_seeds=num_seeds,
        metrics=METRICS,
    )


class Drawing(NamedTuple):
    """A figure to be drawn, and what a report says of it."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


def drawings(dataset: xr.Dataset, wanted: Iterable[int] = FIGURES) -> list[Drawing]:
    """The paper's figures that are drawn from the grid, and bias and variance, as far as the dataset goes.

    Args:
        dataset: Of `study`.
        wanted: Numbers from 1 to 10.

    Returns:
        In the paper's order; the figures are drawn when their `draw` is called.
    """
    from rrjax.study import figures

    wanted = set(wanted)
    bands = "Means over the seeds; bands are two standard errors."
    found = []
    if 1 in wanted:
        found.append(
            Drawing(
                "figure-1",
                f"Figure 1: against the number of users (K = {_K:,}, ε = {_EPSILON:g})",
                f"Mean squared error and negative log-likelihood by Zipf exponent. {bands}",
                lambda: figures.against_users(dataset, num_categories=_K, epsilon=_EPSILON),
            )
        )
    if 2 in wanted:
        found.append(
            Drawing(
                "figure-2",
                f"Figure 2: against ε (K = {_K:,}, N = {_N:,})",
                f"Mean squared error and negative log-likelihood by Zipf exponent. {bands}",
                lambda: figures.against_epsilon(dataset, num_categories=_K, num_users=_N),
            )
        )
    for number, (exponent, metric) in _BY_CATEGORIES.items():
        if number in wanted:
            found.append(
                Drawing(
                    f"figure-{number}",
                    f"Figure {number}: {'mean squared error' if metric == 'mse' else 'negative log-likelihood'}, "
                    f"Zipf exponent {exponent:g}",
                    f"The true histogram on the left, then the metric against the number of users for four ε. {bands}",
                    lambda exponent=exponent, metric=metric: figures.by_categories(
                        dataset, metric, zipf=exponent, epsilons=SHOWN_EPSILONS
                    ),
                )
            )
    if wanted >= {1, 2}:
        against_users: dict[str, Any] = {"epsilon": _EPSILON}
        against_epsilon: dict[str, Any] = {"num_users": _N}
        for name, at, words in (
            ("users", against_users, f"against the number of users (K = {_K:,}, ε = {_EPSILON:g})"),
            ("epsilon", against_epsilon, f"against ε (K = {_K:,}, N = {_N:,})"),
        ):
            found.append(
                Drawing(
                    f"decomposition-{name}",
                    f"Bias and variance {words}",
                    "Their sum is the mean squared error. With n seeds, an unbiased estimator shows a squared bias of "
                    "about a share 1/n of its variance.",
                    lambda at=at: figures.decomposition(dataset, num_categories=_K, **at),
                )
            )
    return found
