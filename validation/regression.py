"""Whether regressions of randomized answers keep their word: bias, coverage of Wald intervals, and size of the tests.

Users have three covariates, a normal one, a binary one and a normal one that means nothing; K = 2 and K = 5 categories
depend on the first two; N = 5,000 users report by randomized response with ε = 1 and ε = 2.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from benchmarks import report
from benchmarks.report import Table
from rrjax.models import fit, likelihood_ratio_test, wald_test

N = 5000
EPSILONS = (1.0, 2.0)
COEFFICIENTS = {
    2: [[-0.5], [0.7], [0.5], [0.0]],
    5: [[0.3, -0.2, 0.2, -0.4], [0.5, -0.4, 0.3, 0.0], [-0.3, 0.5, 0.2, 0.4], [0.0, 0.0, 0.0, 0.0]],
}
BATCH = 20
"""Regressions that are fitted side by side."""


def one(key: jax.Array, epsilon: jax.Array, coefficients: jax.Array) -> dict[str, jax.Array]:
    """One collection, fitted with and without the covariate that means nothing."""
    size = coefficients.shape[1] + 1
    for_normal, for_binary, for_values, for_reports = jax.random.split(key, 4)
    normal = jax.random.normal(for_normal, (N, 2))
    binary = jax.random.bernoulli(for_binary, 0.4, (N, 1)).astype(normal.dtype)
    covariates = jnp.concatenate([normal[:, :1], binary, normal[:, 1:]], axis=1)
    logits = coefficients[0] + covariates @ coefficients[1:]
    logits = jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1)
    values = jax.random.categorical(for_values, logits)
    reports = rrjax.RandomizedResponse(size, epsilon).randomize(for_reports, values)
    whole = fit(covariates, reports, epsilon, num_categories=size)
    within = fit(covariates[:, :2], reports, epsilon, num_categories=size)
    return {
        "coefficients": whole.coefficients,
        "errors": whole.standard_errors,
        "converged": whole.converged & within.converged,
        "wald": wald_test(whole, 2).p_value,
        "likelihood ratio": likelihood_ratio_test(whole, within).p_value,
    }


@partial(jax.jit, static_argnums=2)
def many(keys: jax.Array, epsilons: jax.Array, size: int) -> dict[str, jax.Array]:
    coefficients = jnp.asarray(COEFFICIENTS[size])
    return jax.lax.map(lambda each: one(each[0], each[1], coefficients), (keys, epsilons), batch_size=BATCH)


def simulated(number: int) -> tuple[list[Table], list[dict[str, Any]]]:
    rows, times, record = [], [], []
    for size, coefficients in COEFFICIENTS.items():
        keys = jax.random.split(jax.random.key(size), (len(EPSILONS), number))
        epsilons = jnp.broadcast_to(jnp.asarray(EPSILONS)[:, None], keys.shape)
        begin = time.perf_counter()
        found = jax.block_until_ready(many(keys.ravel(), epsilons.ravel(), size))
        seconds = time.perf_counter() - begin
        times.append([f"K = {size}", f"{keys.size:,}", f"{seconds:.1f} s", f"{seconds / keys.size * 1e3:.1f} ms"])
        found = {name: np.asarray(leaf, float).reshape(len(EPSILONS), number, *leaf.shape[1:])
                 for name, leaf in found.items()}  # fmt: skip
        true = np.asarray(coefficients)
        for place, epsilon in enumerate(EPSILONS):
            part = {name: leaf[place] for name, leaf in found.items()}
            kept = part["converged"] > 0
            estimates, errors = part["coefficients"][kept], part["errors"][kept]
            away = (estimates.mean(0) - true) / (estimates.std(0, ddof=1) / np.sqrt(len(estimates)))
            covered = (np.abs(estimates - true) <= 1.959964 * errors).mean(0)
            sizes = {name: (part[name][kept] <= 0.05).mean() for name in ("wald", "likelihood ratio")}
            rows.append([
                f"{size}", f"{epsilon:g}", f"{len(estimates):,} of {number:,}", f"{np.abs(away).max():.1f}",
                f"{covered.mean():.4f}", f"{covered.min():.3f} – {covered.max():.3f}",
                f"{sizes['wald']:.3f}", f"{sizes['likelihood ratio']:.3f}",
            ])  # fmt: skip
            record.append({"num_categories": size, "epsilon": epsilon, "regressions": number,
                           "converged": int(kept.sum()), "mean": estimates.mean(0).tolist(),
                           "true": coefficients, "standard_errors_away": away.tolist(),
                           "coverage": covered.tolist(), "size": sizes, "seconds": seconds})  # fmt: skip
    return [
        Table(
            "regressions of randomized answers",
            ["K", "ε", "converged", "worst mean, s.e.", "coverage", "of each coefficient", "size, Wald", "size, LR"],
            rows,
            f"N = {N:,} users. The mean of each coefficient in standard errors of the simulation; coverage of 95 % "
            "Wald intervals; how often tests at 5 % reject that the third covariate means nothing.",
        ),
        Table("seconds", ["", "regressions, each fitted twice", "time", "each"], times, "Compilation included."),
    ], record


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--regressions", type=int, default=1000, help="in each setting")
    options = parser.parse_args()
    tables, record = simulated(100 if options.quick else options.regressions)
    report.publish(options, "regression", "Regression", tables, {"settings": record})


if __name__ == "__main__":
    main()
