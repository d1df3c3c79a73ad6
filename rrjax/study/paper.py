"""The paper's evaluation: its grid, and the EM of its Fig. 4 (`rrjax.study.drawings` draws its figures).

References:
    Pinzón et al., "Estimating the True Distribution of Data Collected with Randomized Response", AAAI 2026,
    arXiv:2601.08603, §6.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import rrjax
from rrjax import simulate
from rrjax.data.arguments import float_dtype
from rrjax.estimators import metrics
from rrjax.estimators.em import Acceleration
from rrjax.numerics.programs import compiled
from rrjax.numerics.settings import carried
from rrjax.study.arguments import integer
from rrjax.study.functions import KIND_OF_KEYS
from rrjax.study.study import Study

if TYPE_CHECKING:
    import xarray as xr

ESTIMATORS = ("mle_star", "inv_p", "inv_n", "inv")
ADAPTING = ("empirical_bayes",)
"""Adaptive estimators of rrjax, not of the paper: the reports determine their shrinkage."""
CATEGORIES = (50, 100, 1000, 5000, 10_000)
USERS = (100, 1000, 10_000, 100_000, 1_000_000)
EPSILONS = tuple(float(epsilon) for epsilon in range(1, 11))
EXPONENTS = (0.01, 1.3, 2.5)
SHOWN_EPSILONS = (1.0, 2.0, 4.0, 10.0)
METRICS = ("mse", "nll", "bias2", "variance")
K, N, EPSILON = 10_000, 1_000_000, 4.0
"""The values of Figs. 1 and 2."""

REAL_DATA, CONVERGENCE = 3, 4
"""The figures that do not use the grid."""
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
    """The paper's study, or the part of its grid for some figures; None for Figs. 3 and 4 alone."""
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
    """A small study of the same kind, with `ADAPTING`: under a minute from a cold start."""
    return Study(
        estimators=(*ESTIMATORS, *ADAPTING),
        num_categories=(1000,),
        num_users=(100, 1000, 10_000, 100_000, 1_000_000),
        epsilon=(1.0, 2.0, 4.0, 8.0),
        zipf=EXPONENTS,
        num_seeds=num_seeds,
        metrics=METRICS,
    )


EM_STEPS: Mapping[Acceleration, int] = {"none": 40_000, "deflated": 4_000, "anderson": 400}
"""Acceleration of `ibu` → number of steps. The paper has 40,000 steps of plain EM."""


def convergence(
    *,
    num_categories: int = 500,
    num_users: Sequence[int] = (10_000, 500_000),
    epsilon: Sequence[float] = (0.5, 1.0, 2.0),
    zipf: Sequence[float] = (0.01, 1.3),
    steps: Mapping[Acceleration, int] = EM_STEPS,
    seed: int = 0,
) -> xr.Dataset:
    """Distances of IBU and its accelerated variants from MLE*, on one simulated collection for each setting.

    Args:
        num_categories: K.
        num_users: Values of N.
        epsilon: Values of ε in nats.
        zipf: Exponents of the Zipf populations.
        steps: Acceleration of `rrjax.ibu` → number of steps.
        seed: The random seed of the collections.

    Returns:
        `distance` with the dimensions `(variant, zipf, num_users, epsilon, iteration)`: Σ_i (θ_i − MLE*_i)² after each
        number of steps (0, then evenly spaced on a logarithmic scale). NaN beyond the steps of a variant. The variant
        "none" is called "ibu".

    Raises:
        StudyError: A number of users that is no positive integer.

    Example:
        >>> from rrjax.study import convergence
        >>> short = convergence(num_users=[1000], epsilon=[1.0], zipf=[1.3], steps={"none": 10, "anderson": 10})
        >>> short.distance.dims
        ('variant', 'zipf', 'num_users', 'epsilon', 'iteration')
    """
    import xarray as xr

    settings = [(s, integer("num_users", n), e) for s in zipf for n in num_users for e in epsilon]
    key, dtype = jax.random.key(seed, impl=KIND_OF_KEYS), float_dtype()
    cells, longest = len(settings) * num_categories, max(steps.values())
    shares = {s: simulate.zipf(num_categories, s) for s in zipf}
    epsilons = np.array([e for _, _, e in settings], dtype)
    grid = len(settings), num_categories
    counts, exact = np.zeros(grid, np.int32), np.zeros(grid, dtype)
    # All programs compile at the same time.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:

        def program(name: Hashable, work: int, function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
            future = pool.submit(carried(compiled), ("convergence", name), function, given, work, jax.devices()[:1])
            return lambda *given: future.result()(*given)

        draw = program("draw", cells, simulate.counts, key, shares[zipf[0]], np.int32(1), epsilons[0])
        maximize = program("maximize", longest * cells, jax.vmap(rrjax.mle_star), counts, epsilons)
        paths = [
            program((way, number), number * cells, jax.vmap(partial(_distances, way, number)), counts, epsilons, exact)
            for way, number in steps.items()
        ]
        counts = jnp.stack([
            draw(jax.random.fold_in(key, place), shares[s], np.int32(n), e)
            for place, ((s, n, _), e) in enumerate(zip(settings, epsilons, strict=True))
        ])  # fmt: skip
        exact = maximize(counts, epsilons)
        followed = [path(counts, epsilons, exact) for path in paths]
    iterations = np.unique([0, *np.round(np.geomspace(1, longest, 400)).astype(int)])
    distance = np.full((len(steps), len(settings), len(iterations)), np.nan)
    for row, (number, path) in enumerate(zip(steps.values(), followed, strict=True)):
        within = iterations <= number
        distance[row][:, within] = np.asarray(path)[:, iterations[within]]
    return xr.Dataset(
        {
            "distance": (
                ("variant", "zipf", "num_users", "epsilon", "iteration"),
                distance.reshape(-1, len(zipf), len(num_users), len(epsilon), len(iterations)),
            )
        },
        {
            "variant": ["ibu" if name == "none" else name for name in steps],
            "zipf": list(zipf),
            "num_users": list(num_users),
            "epsilon": list(epsilon),
            "iteration": iterations,
        },
        {"num_categories": num_categories, "seed": seed},
    )


def _distances(acceleration: Acceleration, number: int, counts: Array, epsilon: Array, exact: Array) -> Array:
    return rrjax.ibu_path(
        counts, epsilon, number, accelerate=acceleration, observe=lambda theta: metrics.squared_error(theta, exact)
    )
