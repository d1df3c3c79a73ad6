"""How fast EM approaches the exact maximum: the paper's Fig. 4, and what deflation and acceleration change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from rrjax import metrics, simulate
from rrjax.em import Acceleration

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

    Example:
        >>> from rrjax.study.em_convergence import convergence
        >>> short = convergence(num_users=[1000], epsilon=[1.0], zipf=[1.3], steps={"none": 10, "anderson": 10})
        >>> short.distance.dims
        ('variant', 'zipf', 'num_users', 'epsilon', 'iteration')
    """
    import xarray as xr

    settings = [(s, n, e) for s in zipf for n in num_users for e in epsilon]
    key = jax.random.key(seed)
    counts = jnp.stack([
        simulate.counts(jax.random.fold_in(key, number), simulate.zipf(num_categories, s), n, e)
        for number, (s, n, e) in enumerate(settings)
    ])  # fmt: skip
    epsilons = jnp.asarray([e for _, _, e in settings], rrjax.arguments.float_dtype())
    longest = max(steps.values())
    iterations = np.unique(np.round(np.geomspace(1, longest, 400)).astype(int))
    iterations = np.concatenate([[0], iterations])
    distance = np.full((len(steps), len(settings), len(iterations)), np.nan)
    for row, (acceleration, number) in enumerate(steps.items()):

        def path(counts, epsilon, acceleration: Acceleration = acceleration, number: int = number):
            exact = rrjax.mle_star(counts, epsilon)
            return rrjax.ibu_path(
                counts,
                epsilon,
                number,
                accelerate=acceleration,
                observe=lambda theta: metrics.squared_error(theta, exact),
            )

        followed = np.asarray(jax.jit(jax.vmap(path))(counts, epsilons))
        seen = iterations <= number
        distance[row][:, seen] = followed[:, iterations[seen]]
    grid = (len(zipf), len(num_users), len(epsilon))
    return xr.Dataset(
        {
            "distance": (
                ("variant", "zipf", "num_users", "epsilon", "iteration"),
                distance.reshape(-1, *grid, len(iterations)),
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
