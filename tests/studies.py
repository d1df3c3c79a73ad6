"""Made-up datasets of studies."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="studies need xarray")

DIMS = ("estimator", "num_categories", "num_users", "epsilon", "zipf")
COORDS = {
    "estimator": ["inv_n", "mle_star", "mine", "empirical_bayes", "inv_p"],
    "num_categories": [50, 1000],
    "num_users": [100, 10_000, 1_000_000],
    "epsilon": [1.0, 2.0, 4.0, 10.0],
    "zipf": [0.01, 1.3, 2.5],
}


def study(metrics=("mse", "nll"), seeds=8, **coords):
    """A made-up study: errors that fall with N and ε, in the order of the estimators."""
    coords = COORDS | coords
    population = "distribution" if "distribution" in coords else "zipf"
    dims = (*DIMS[:4], population)
    values = [np.asarray(coords[name]) for name in dims]
    rng = np.random.default_rng(1)
    place = [np.arange(len(value)) if value.dtype.kind == "U" else value.astype(float) for value in values]
    name, size, users, epsilon, shape = np.meshgrid(*place, indexing="ij")
    variables = {}
    for metric in (*metrics, "bias2", "variance"):
        level = (
            (1 + 0.3 * name) * (1 + 0.1 * np.minimum(shape, 9)) * size / (np.exp(np.minimum(epsilon, 20)) * users**0.5)
        )
        if metric == "nll":
            level = np.log(size) + 1e-4 * level
        samples = level[..., None] * np.exp((1e-6 if metric == "nll" else 0.2) * rng.normal(size=(*level.shape, seeds)))
        pair = samples[:, None] - samples[None]
        variables[metric] = (dims, samples.mean(-1))
        if metric in metrics:
            variables[f"{metric}_se"] = (dims, samples.std(-1, ddof=1) / seeds**0.5)
            paired = ("estimator", "versus", *dims[1:])
            variables[f"{metric}_difference"] = (paired, pair.mean(-1))
            variables[f"{metric}_difference_se"] = (paired, pair.std(-1, ddof=1) / seeds**0.5)
    labels = {name: coords[name] for name in dims} | {"versus": coords["estimator"]}
    return xr.Dataset(variables, labels, {"num_seeds": seeds, "seed": 3, "estimand": "users"})


def iterates():
    iteration = np.unique(np.r_[0, np.geomspace(1, 40_000, 30).astype(int)])
    distance = np.empty((3, 2, 2, 3, len(iteration)))
    for variant, rate in enumerate((1e-3, 1e-2, 1.0)):
        distance[variant] = 0.1 * np.exp(-rate * iteration)
    distance[2, ..., iteration > 30] = np.nan
    return xr.Dataset(
        {"distance": (("variant", "zipf", "num_users", "epsilon", "iteration"), distance)},
        {
            "variant": ["ibu", "deflated", "anderson"],
            "zipf": [0.01, 1.3],
            "num_users": [10_000, 500_000],
            "epsilon": [0.5, 1.0, 2.0],
            "iteration": iteration,
        },
        {"num_categories": 500},
    )
