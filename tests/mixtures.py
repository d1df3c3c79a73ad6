"""Mixtures that are made up, and their maximum by a convex solver."""

import numpy as np
from scipy.optimize import minimize


def solved(weights, base, matrix):
    """The maximum of Σ w·log(a + Bθ) over the simplex, per report, by sequential quadratic programming."""
    weights, matrix = np.asarray(weights, float) / np.sum(weights), np.asarray(matrix, float)
    size = matrix.shape[1]
    base = np.broadcast_to(base, weights.shape).astype(float)
    best = -np.inf
    for start in (np.full(size, 1 / size), np.linspace(1, 2, size) / np.linspace(1, 2, size).sum()):
        found = minimize(
            lambda t: -weights @ np.log(np.maximum(base + matrix @ t, 1e-300)),
            start,
            jac=lambda t: -matrix.T @ (weights / np.maximum(base + matrix @ t, 1e-300)),
            bounds=[(0, 1)] * size,
            constraints={"type": "eq", "fun": lambda t: t.sum() - 1, "jac": lambda t: np.ones(size)},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 2000},
        )
        theta = np.maximum(found.x, 0) / np.maximum(found.x, 0).sum()
        best = max(best, weights @ np.log(base + matrix @ theta))
    return best


def random_mixture(seed, num_reports, num_categories):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 30, num_reports)
    weights[0] = 5
    matrix = rng.random((num_reports, num_categories)) ** 4
    return weights, rng.random(num_reports) * 0.2 + 0.01, matrix
