"""Squared errors of the cross-validated threshold, relative to the best of InvN, MLE* and InvP in each setting.

Every setting is a population (Zipf, uniform or a point mass), K, N and ε; every seed draws the users and their reports
exactly. The best of the three is that of the least mean over the seeds, which nobody who holds one collection knows.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from benchmarks import report
from benchmarks.report import Table

NAMES = ("InvN", "MLE*", "InvP", "cv_threshold")
TARGETS = ("the shares of the users who reported", "the population they were drawn from")
GRID = {
    "K": (20, 500, 10_000),
    "N": (3_000, 30_000, 300_000, 3_000_000),
    "epsilon": (0.5, 1.5, 3.0, 5.0, 7.0),
    "s": (0.0, 0.01, 1.3, 2.5, math.inf),
}
QUICK = {"K": (20, 200), "N": (3_000, 300_000), "epsilon": (0.5, 3.0), "s": (0.0, 1.3, math.inf)}
LEAST = 0.01
"""Smaller ratios count as this much in the mean: a point mass can be found exactly, with an error of zero."""
LISTED = 12


@jax.jit
def errors(populations: jax.Array, problems: tuple[jax.Array, ...]) -> jax.Array:
    """`[problems, targets, estimators]`."""

    def one(problem: tuple[jax.Array, ...]) -> jax.Array:
        key, which, num_users, epsilon = problem
        draw, deal = jax.random.split(key)
        theta = populations[which]
        true_counts, counts = rrjax.simulate.collect(draw, theta, num_users, epsilon)
        estimators = (rrjax.inv_n, rrjax.mle_star, rrjax.inv_p, partial(rrjax.cv_threshold, deal))
        estimates = [estimator(counts, epsilon) for estimator in estimators]
        targets = true_counts / num_users, theta
        return jnp.stack([jnp.stack([rrjax.metrics.squared_error(x, target) for x in estimates]) for target in targets])

    # In chunks of one: under vmap the samplers' branches are all taken, which is slower on a CPU.
    return jax.lax.map(one, problems)


def measure(grid: dict[str, Any], num_seeds: int) -> list[dict[str, Any]]:
    """A row for each setting, with its `errors` `[targets, estimators, seeds]`."""
    rows: list[dict[str, Any]] = []
    for num_categories in grid["K"]:
        begin = time.perf_counter()
        settings = list(itertools.product(range(len(grid["s"])), grid["N"], grid["epsilon"]))
        which, num_users, epsilon = (np.repeat(column, num_seeds) for column in zip(*settings, strict=True))
        keys = jax.random.split(jax.random.key(num_categories), len(which))
        populations = jnp.stack([rrjax.simulate.zipf(num_categories, s) for s in grid["s"]])
        problems = keys, which.astype(np.int32), num_users.astype(np.int32), epsilon.astype(np.float32)
        found = np.asarray(errors(populations, problems), float)
        found = found.reshape(len(settings), num_seeds, *found.shape[1:]).transpose(0, 2, 3, 1)
        for (index, users, privacy), here in zip(settings, found, strict=True):
            rows.append({"K": num_categories, "N": users, "epsilon": privacy, "s": grid["s"][index], "errors": here})
        print(f"K = {num_categories:,}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return rows


def relate(row: dict[str, Any], target: int) -> dict[str, Any]:
    """Means, and the ratios to the best of the three with their standard errors, paired over the seeds."""
    error = row["errors"][target]
    mean = error.mean(1)
    best = int(mean[:3].argmin())
    # An estimate that is exact up to rounding is no better than one that is exact.
    scale = max(mean[best], 1e-13)
    ratio = np.maximum(mean, 1e-13) / scale
    rest = error - ratio[:, None] * error[best]
    deviation = rest.std(1, ddof=1) / math.sqrt(error.shape[1]) / scale
    return {"mean": mean, "best": best, "ratio": ratio, "standard_error": deviation}


def summary(related: list[dict[str, Any]], target: int) -> Table:
    ratios = np.array([row["ratio"] for row in related])
    lines = []
    for index, name in enumerate(NAMES):
        one = ratios[:, index]
        lines.append(
            [
                name,
                f"{math.exp(np.log(np.maximum(one, LEAST)).mean()):.2f}",
                f"{np.median(one):.2f}",
                f"{np.quantile(one, 0.9):.2f}",
                f"{np.quantile(one, 0.99):.3g}",
                f"{one.max():.3g}",
                f"{(one <= 1.05).mean():.0%}",
            ]
        )
    return Table(
        f"squared error relative to the best of the three, against {TARGETS[target]}",
        ["", "geometric mean", "median", "90 % quantile", "99 % quantile", "max", "within 5 % of the best"],
        lines,
        f"Over {len(related)} settings; means over the seeds, then ratios. Ratios below {LEAST} enter the geometric "
        f"mean as {LEAST}.",
    )


def extremes(rows: list[dict[str, Any]], related: list[dict[str, Any]], target: int, losses: bool) -> Table:
    ratio = np.array([row["ratio"][3] for row in related])
    order = np.argsort(-ratio if losses else ratio)[:LISTED]
    lines = []
    for index in order:
        row, found = rows[index], related[index]
        lines.append(
            [
                f"{row['K']:,}, {row['N']:,}, {row['epsilon']:g}, {population(row['s'])}",
                *(f"{x:.2g}" for x in found["mean"]),
                NAMES[found["best"]],
                f"{found['ratio'][3]:.3g} ± {found['standard_error'][3]:.2g}",
            ]
        )
    return Table(
        f"where cv_threshold {'loses' if losses else 'wins'} most, against {TARGETS[target]}",
        ["K, N, ε, population", *NAMES, "best of three", "ratio ± standard error"],
        lines,
        "Mean squared errors, summed over the categories; the ratio is that of cv_threshold to the best of the three.",
    )


def population(exponent: float) -> str:
    if exponent == 0:
        return "uniform"
    return "point mass" if math.isinf(exponent) else f"Zipf {exponent:g}"


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="collections drawn in each setting")
    options = parser.parse_args()
    seeds = min(options.seeds, 4) if options.quick else options.seeds
    rows = measure(QUICK if options.quick else GRID, seeds)
    related = [[relate(row, target) for row in rows] for target in range(2)]
    tables = [summary(related[target], target) for target in range(2)]
    for target in range(2):
        tables.extend(extremes(rows, related[target], target, losses) for losses in (True, False))
    record = [
        {key: row[key] if key != "s" else population(row[key]) for key in ("K", "N", "epsilon", "s")}
        | {
            name: {key: np.asarray(value).tolist() for key, value in found[index].items()}
            for name, found in zip(("users", "population"), related, strict=True)
        }
        for index, row in enumerate(rows)
    ]
    data = {"seeds": seeds, "estimators": NAMES, "rows": record}
    report.publish(options, "cv-threshold", "The threshold chosen by the data", tables, data)


if __name__ == "__main__":
    main()
