"""How fast EM approaches the exact maximum: the paper's Fig. 4, and what deflation and acceleration change."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
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
from rrjax.study.arguments import integer
from rrjax.study.runner import compile_

if TYPE_CHECKING:
    import xarray as xr

VARIANTS: Mapping[Acceleration, int] = {"none": 40_000, "deflated": 4_000, "anderson": 400}
"""How `ibu` is accelerated, and how many steps are followed. The paper follows 40,000 of its own."""


def convergence(
    *,
    num_categories: int = 500,
    num_users: Sequence[int] = (10_000, 500_000),
    epsilon: Sequence[float] = (0.5, 1.0, 2.0),
    zipf: Sequence[float] = (0.01, 1.3),
    steps: Mapping[Acceleration, int] = VARIANTS,
    seed: int = 0,
) -> xr.Dataset:
    """Follows IBU and its accelerated variants towards MLE*, on one simulated collection a setting.

    Args:
        num_categories: K.
        num_users: N, several.
        epsilon: ε in nats, several.
        zipf: Exponents of the populations.
        steps: Acceleration of `rrjax.ibu` → number of steps.
        seed: Of the collections.

    Returns:
        `distance` with the dimensions `(variant, zipf, num_users, epsilon, iteration)`: Σ_i (θ_i − MLE*_i)² after so
        many steps (iterations are spaced evenly on a logarithmic scale, from 0). NaN beyond the steps of a variant.
        The variant "none" is called "ibu".

    Raises:
        StudyError: A number of users that is none.

    Example:
        >>> from rrjax.study.em_convergence import convergence
        >>> short = convergence(num_users=[1000], epsilon=[1.0], zipf=[1.3], steps={"none": 10, "anderson": 10})
        >>> short.distance.dims
        ('variant', 'zipf', 'num_users', 'epsilon', 'iteration')
    """
    import xarray as xr

    settings = [(s, integer("num_users", n), e) for s in zipf for n in num_users for e in epsilon]
    key, dtype = jax.random.key(seed), float_dtype()
    cells, longest = len(settings) * num_categories, max(steps.values())
    shares = {s: simulate.zipf(num_categories, s) for s in zipf}
    epsilons = np.array([e for _, _, e in settings], dtype)
    grid = len(settings), num_categories
    counts, exact = np.zeros(grid, np.int32), np.zeros(grid, dtype)
    # All at once, since what is compiled first would keep the others waiting.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:

        def program(work: int, function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
            compiled = pool.submit(lambda: compile_(jax.jit(function).lower(*given), jax.default_backend(), work))
            return lambda *given: compiled.result()(*given)

        draw = program(cells, simulate.counts, key, shares[zipf[0]], np.int32(1), epsilons[0])
        maximize = program(longest * cells, jax.vmap(rrjax.mle_star), counts, epsilons)
        paths = [
            program(number * cells, jax.vmap(partial(_path, acceleration, number)), counts, epsilons, exact)
            for acceleration, number in steps.items()
        ]
        counts = jnp.stack([
            draw(jax.random.fold_in(key, place), shares[s], np.int32(n), e)
            for place, ((s, n, _), e) in enumerate(zip(settings, epsilons, strict=True))
        ])  # fmt: skip
        exact = maximize(counts, epsilons)
        followed = [path(counts, epsilons, exact) for path in paths]
    iterations = np.unique(np.round(np.geomspace(1, longest, 400)).astype(int))
    iterations = np.concatenate([[0], iterations])
    distance = np.full((len(steps), len(settings), len(iterations)), np.nan)
    for row, (number, path) in enumerate(zip(steps.values(), followed, strict=True)):
        seen = iterations <= number
        distance[row][:, seen] = np.asarray(path)[:, iterations[seen]]
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


def _path(acceleration: Acceleration, number: int, counts: Array, epsilon: Array, exact: Array) -> Array:
    return rrjax.ibu_path(
        counts, epsilon, number, accelerate=acceleration, observe=lambda theta: metrics.squared_error(theta, exact)
    )
