"""Regression on randomized covariates: bias, coverage and tests over many simulated surveys.

Three categories of a randomized outcome depend on a known covariate of three values, and on two randomized ones of two
and three categories. These depend on the known covariate and on each other. N = 10,000 users report all three columns,
each by randomized response; or two of the three, drawn at random. For comparison the reports of the covariates are
regressed on as if they were true. A survey is drawn as the counts of all combinations of known covariate and reports,
with their exact probabilities.
"""

from __future__ import annotations

import itertools
import math
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from rrjax.mechanisms import RandomizedResponse
from rrjax.models import fit, fit_randomized_covariates, likelihood_ratio_test, wald_test
from validation.runner import Coefficients, Table, run

N = 10_000
COEFFICIENTS = [[-0.2, 0.2], [0.5, -0.4], [0.8, 0.3], [-0.5, 0.6], [0.0, 0.0]]
"""Intercept, known covariate, dummies of the two randomized ones; the last one means nothing."""
SIZES = (2, 3, 3)
EPSILONS = (2.0, 3.0)
"""Of each column."""
TESTS = ("Wald", "likelihood ratio")
BATCH = 50


def combinations(epsilon: float, number: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """The known covariate, the reports of the three columns, and the probability of each combination of them."""
    known = np.asarray([-1.0, 0.0, 1.0])
    x, first = np.broadcast_arrays(known[:, None], np.arange(2))
    of_first = special.expit((2 * first - 1) * (0.5 * x - 0.3))
    of_second = special.softmax(np.stack([0 * x, 0.4 * first - 0.2, 0.3 * x], axis=2), axis=2)
    x, first, second = np.broadcast_arrays(known[:, None, None], np.arange(2)[:, None], np.arange(3))
    logits = np.stack([np.ones(x.shape), x, first, second == 1, second == 2], axis=3) @ np.asarray(COEFFICIENTS)
    of_outcome = special.softmax(np.concatenate([0 * logits[..., :1], logits], axis=3), axis=3)
    table = (of_first[..., None] * of_second)[..., None] * of_outcome / len(known)
    parts, total = [], math.comb(3, number)
    for chosen in itertools.combinations(range(3), number):
        whole = table
        for axis, size in enumerate(SIZES):
            channel = np.full((size, size), 1.0) + (math.exp(epsilon) - 1) * np.eye(size)
            channel = channel / channel.sum(1) if axis in chosen else np.ones((size, 1))
            whole = np.moveaxis(np.tensordot(whole, channel, (axis + 1, 0)), -1, axis + 1)
        places = np.indices(whole.shape).reshape(4, -1)
        reports = [each if axis in chosen else np.full_like(each, -1) for axis, each in enumerate(places[1:])]
        parts.append((known[places[0]], reports, whole.ravel() / total))
    reports = [np.concatenate(each).astype(np.int32) for each in zip(*(part[1] for part in parts), strict=True)]
    return np.concatenate([part[0] for part in parts]), reports, np.concatenate([part[2] for part in parts])


def one(key: jax.Array, epsilon: float, number: int) -> dict[str, jax.Array]:
    """One survey; each user reports `number` of the three columns."""
    known, reports, shares = combinations(epsilon, number)
    counts = jax.random.multinomial(key, N, jnp.asarray(shares))
    laws = [RandomizedResponse(size, epsilon) for size in SIZES]
    randomized = list(zip(reports[:2], laws[:2], strict=True))
    whole = fit_randomized_covariates(known, randomized, reports[2], laws[2], weights=counts)
    within = fit_randomized_covariates(known, randomized, reports[2], laws[2], weights=counts, left_out=[3])
    found = {
        "coefficients": whole.coefficients,
        "errors": whole.standard_errors,
        "converged": whole.converged & within.converged,
        "Wald": wald_test(whole, 3).p_value,
        "likelihood ratio": likelihood_ratio_test(whole, within).p_value,
    }
    if number == len(SIZES):
        as_if_true = np.stack([known, reports[0], reports[1] == 1, reports[1] == 2], axis=1)
        found["naive"] = fit(as_if_true, reports[2], laws[2], weights=counts).coefficients
    return found


@partial(jax.jit, static_argnums=(1, 2))
def many(keys: jax.Array, epsilon: float, number: int) -> dict[str, jax.Array]:
    return jax.lax.map(lambda key: one(key, epsilon, number), keys, batch_size=BATCH)


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    surveys = options.number
    rows, tests, record = [], [], []
    true = np.asarray(COEFFICIENTS)
    for place, (number, epsilon) in enumerate((number, epsilon) for number in (3, 2) for epsilon in EPSILONS):
        begin = time.perf_counter()
        keys = jax.random.split(jax.random.key(place), surveys)
        found = {name: np.asarray(leaf, float) for name, leaf in many(keys, epsilon, number).items()}
        seconds = time.perf_counter() - begin
        kept = found["converged"] > 0
        part = {name: leaf[kept] for name, leaf in found.items()}
        count, each = int(kept.sum()), Coefficients(true, part["coefficients"], part["errors"])
        ratio = part["errors"].mean(0) / each.deviation
        naive = part["naive"].mean(0) if number == len(SIZES) else np.full_like(true, np.nan)
        low, high = np.sort(naive[2:4].ravel() / true[2:4].ravel())[[0, -1]]
        attenuation = f"{low:.2f} – {high:.2f}" if number == len(SIZES) else "–"
        sizes = {name: (part[name] <= 0.05).mean() for name in TESTS}
        rows.append([
            f"{number}", f"{epsilon:g}", f"{count:,} of {surveys:,}", f"{np.abs(each.away).max():.1f}", *each.cells(),
            f"{ratio.min():.2f} – {ratio.max():.2f}", attenuation,
        ])  # fmt: skip
        tests.append([f"{number}", f"{epsilon:g}", *(f"{each:.3f}" for each in sizes.values()), f"{seconds:.0f} s"])
        record.append({"columns_reported": number, "epsilon": epsilon, "surveys": surveys, "converged": count,
                       "true": COEFFICIENTS, "mean": each.mean,
                       "standard_errors_away": each.away, "coverage": each.coverage,
                       "naive_mean": naive if number == len(SIZES) else None,
                       "size": sizes, "seconds": seconds})  # fmt: skip
    return [
        Table(
            "coefficients",
            ["columns", "ε", "converged", "worst mean, s.e.", "coverage", "of each coefficient",
             "error / deviation", "naive / true"],
            rows,
            f"N = {N:,} users; each reports so many of the three columns, with this ε in each. The mean of each "
            "coefficient less the true one, in standard errors of the simulation: the largest of ten. Coverage of 95 % "
            "Wald intervals. The mean standard error over the standard deviation of the estimates. The coefficients of "
            "the randomized covariates if the reports of these are taken as true, over the true ones.",
        ),
        Table(
            "tests at 5 %",
            ["columns", "ε", *TESTS, "time"],
            tests,
            "How often each rejects that the last dummy means nothing. Time of all surveys, each fitted three times, "
            "compilation included.",
        ),
    ], {"settings": record}  # fmt: skip


if __name__ == "__main__":
    run(study, "Regression on randomized covariates", ("surveys", 1000, 200))
