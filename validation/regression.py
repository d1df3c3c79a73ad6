"""Whether regressions of randomized answers keep their word: bias, coverage of Wald intervals, and size of all tests.

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
from rrjax.models import fit, goodness_of_fit_test, likelihood_ratio_test, score_test, wald_test
from validation.runner import Coefficients, Table, run

N = 5000
EPSILONS = (1.0, 2.0)
COEFFICIENTS = {
    2: [[-0.5], [0.7], [0.5], [0.0]],
    5: [[0.3, -0.2, 0.2, -0.4], [0.5, -0.4, 0.3, 0.0], [-0.3, 0.5, 0.2, 0.4], [0.0, 0.0, 0.0, 0.0]],
}
TESTS = ("Wald", "likelihood ratio", "score", "goodness of fit")
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
    reduced = fit(covariates, reports, epsilon, num_categories=size, reduce_bias=True)
    return {
        "likeliest": whole.coefficients,
        "coefficients": reduced.coefficients,
        "errors": whole.standard_errors,
        "converged": whole.converged & within.converged,
        "Wald": wald_test(whole, 2).p_value,
        "likelihood ratio": likelihood_ratio_test(whole, within).p_value,
        "score": score_test(within, covariates[:, :2], covariates[:, 2], reports, epsilon).p_value,
        "goodness of fit": goodness_of_fit_test(whole, covariates, reports, epsilon).p_value,
    }


@partial(jax.jit, static_argnums=2)
def many(keys: jax.Array, epsilons: jax.Array, size: int) -> dict[str, jax.Array]:
    coefficients = jnp.asarray(COEFFICIENTS[size])
    return jax.lax.map(lambda each: one(each[0], each[1], coefficients), (keys, epsilons), batch_size=BATCH)


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    number = options.number
    rows, tests, times, record = [], [], [], []
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
            errors, number_kept = part["errors"][kept], int(kept.sum())
            found_of = {name: Coefficients(true, part[name][kept], errors) for name in ("likeliest", "coefficients")}
            sizes = {name: (part[name][kept] <= 0.05).mean() for name in TESTS}
            for each, title in zip(found_of.values(), ("as it is", "reduced"), strict=True):
                rows.append([
                    f"{size}", f"{epsilon:g}", title, f"{number_kept:,} of {number:,}",
                    f"{np.abs(each.away).max():.1f}", f"{np.sqrt((each.away**2).mean()):.1f}", *each.cells(),
                ])  # fmt: skip
            tests.append([f"{size}", f"{epsilon:g}", *(f"{each:.3f}" for each in sizes.values())])
            record.append({"num_categories": size, "epsilon": epsilon, "regressions": number,
                           "converged": number_kept, "true": coefficients,
                           "mean": {name: each.mean for name, each in found_of.items()},
                           "standard_errors_away": {name: each.away for name, each in found_of.items()},
                           "coverage": {name: each.coverage for name, each in found_of.items()},
                           "size": sizes, "seconds": seconds})  # fmt: skip
    return [
        Table(
            "coefficients",
            ["K", "ε", "bias", "converged", "worst mean, s.e.", "means, s.e.", "coverage", "of each coefficient"],
            rows,
            f"N = {N:,} users. The mean of each coefficient less the true one, in standard errors of the simulation: "
            "the largest, and the root of the mean square, which is one without bias. Coverage of 95 % Wald intervals.",
        ),
        Table(
            "tests at 5 %",
            ["K", "ε", *TESTS],
            tests,
            "How often each rejects that the third covariate means nothing, or that the model fits (ten groups).",
        ),
        Table(
            "seconds",
            ["", "collections, each fitted three times and tested", "time", "each"],
            times,
            "Compilation included.",
        ),
    ], {"settings": record}


if __name__ == "__main__":
    run(study, "Regression", ("regressions", 1000, 100))
