"""Whether inference keeps its word: coverage of intervals, size of p-values, false discoveries, by simulation.

Every setting is a population, K, N and ε. Its collections are drawn exactly, from users who are independent draws of
the population. What `rrjax` promises is set beside what is often used in its place: the support of MLE* as a list of
the categories that are there, and the normal interval of MLE* (estimate ± 1.96 standard errors where there is one).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from rrjax import inference
from validation.runner import WHERE, Table, covers, error, population, run, settings, where

LEVEL, FDR = 0.95, 0.05
GRID = {
    "K": (2, 5, 20, 50, 200, 1000),
    "population": ("dense", "sparse", "point mass"),
    "N": (1_000, 100_000),
    "epsilon": (0.5, 1.0, 2.0, 4.0),
}
QUICK = {"K": (2, 20), "population": ("dense", "point mass"), "N": (1_000,), "epsilon": (1.0, 4.0)}
CELLS = 2**18
"""Collections × categories in a chunk."""
LISTED = 12
COLUMNS = ("exact", "worst_category", "bonferroni", "sidak", "wilson", "normal", "size", "fdp", "support_fdp", "power")


@jax.jit
def judge(keys: jax.Array, theta: jax.Array, num_users: jax.Array, epsilon: jax.Array) -> dict[str, jax.Array]:
    """Sums over chunks of collections, `[chunks, size]` keys."""

    def one(key: jax.Array) -> dict[str, jax.Array]:
        counts = rrjax.simulate.counts(key, theta, num_users, epsilon)

        def covered(**options: Any) -> jax.Array:
            return covers(inference.intervals(counts, epsilon, LEVEL, **options), theta)

        def false_share(listed: jax.Array) -> jax.Array:
            return jnp.sum(listed & absent) / jnp.maximum(jnp.sum(listed), 1)

        absent = theta == 0
        estimate = rrjax.mle_star(counts, epsilon)
        half = 1.96 * jnp.nan_to_num(inference.standard_errors(counts, epsilon))
        found = inference.discoveries(counts, epsilon, FDR)
        strict = inference.discoveries(counts, epsilon, FDR, dependence="any")
        return {
            "exact": covered(),
            "wilson": covered(method="wilson"),
            "normal": jnp.abs(estimate - theta) <= half,
            "bonferroni": jnp.all(covered(simultaneous="bonferroni")),
            "sidak": jnp.all(covered(simultaneous="sidak")),
            "rejected": (inference.p_values(counts, epsilon) <= 0.05) & absent,
            "fdp": false_share(found),
            "fdp_squared": false_share(found) ** 2,
            "strict_fdp": false_share(strict),
            "support_fdp": false_share(estimate > 0),
            "power": jnp.sum(found & ~absent) / jnp.sum(~absent),
        }

    def chunk(keys: jax.Array) -> dict[str, jax.Array]:
        return jax.tree.map(lambda leaf: jnp.sum(leaf.astype(jnp.float32), axis=0), jax.vmap(one)(keys))

    return jax.lax.map(chunk, keys)


def measure(grid: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """A row for each setting, of means over its collections."""
    rows: list[dict[str, Any]] = []
    for setting in settings(grid):
        theta = population(setting["population"], setting["K"])
        chunks = max(1, math.ceil(number * theta.size / CELLS))
        size = math.ceil(number / chunks)
        keys = jax.random.split(jax.random.key(theta.size), (chunks, size))
        sums = judge(keys, theta, jnp.int32(setting["N"]), jnp.float32(setting["epsilon"]))
        mean = {key: np.asarray(value, np.float64).sum(0) / (chunks * size) for key, value in sums.items()}
        absent = theta == 0
        means = {key: float(value.mean()) for key, value in mean.items() if key not in ("rejected", "fdp_squared")}
        rows.append(
            {**setting, "collections": chunks * size, **means}
            | {
                "worst_category": float(mean["exact"].min()),
                "worst_normal": float(mean["normal"].min()),
                "size": float(mean["rejected"][absent].mean()) if absent.any() else None,
                "fdp_se": math.sqrt(max(mean["fdp_squared"] - mean["fdp"] ** 2, 0) / (chunks * size)),
            }
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> Table:
    number = rows[0]["collections"]
    sparse = [row for row in rows if row["size"] is not None]

    def line(name: str, key: str, rows: list[dict[str, Any]], goal: str, kept: bool, least: bool) -> list[str]:
        values = [row[key] for row in rows]
        worst = min(values) if least else max(values)
        return [name, f"{np.mean(values):.4f}", f"{worst:.4f}", goal, "yes" if kept else "no"]

    def coverage(name: str, key: str, promised: bool = True) -> list[str]:
        kept = all(row[key] >= 0.945 for row in rows)
        return line(name, key, rows, "≥ 0.945" if promised else "", kept, True)

    def rate(name: str, key: str, promised: bool = True) -> list[str]:
        kept = all(row[key] <= FDR + 3 * max(row["fdp_se"], 1e-9) for row in sparse)
        return line(name, key, sparse, f"≤ {FDR} + 3 s.e." if promised else "", kept, False)

    lines = [
        coverage("Clopper–Pearson, 0.95, the default", "exact"),
        coverage("… of the category where it is least", "worst_category", False),
        coverage("Clopper–Pearson with Bonferroni, all at once", "bonferroni"),
        coverage("Clopper–Pearson with Šidák, all at once", "sidak"),
        coverage("Wilson, 0.95", "wilson", False),
        coverage("MLE* ± 1.96 standard errors", "normal", False),
        coverage("… of the category where it is least", "worst_normal", False),
        line("p-value ≤ 0.05, category absent", "size", sparse, "≤ 0.05 + 3 s.e.",
             all(row["size"] <= 0.05 + 3 * error(0.05, number) for row in sparse), False),
        rate("discoveries, false share", "fdp"),
        rate("discoveries (any dependence), false share", "strict_fdp"),
        rate("support of MLE*, false share", "support_fdp", False),
    ]  # fmt: skip
    return Table(
        "coverage and errors",
        ["", "mean over settings", "worst setting", "goal", "kept everywhere"],
        lines,
        f"{len(rows)} settings, {number:,} collections each (standard error of a coverage of 0.95: "
        f"{error(0.95, number):.4f}); K = {', '.join(f'{k:,}' for k in sorted({row['K'] for row in rows}))}. Coverage "
        "of a category is that of its own interval, averaged over the categories but where it says the least, which of "
        "a thousand is some three standard errors too low by chance; false shares are means of false ÷ listed, in "
        "settings where some category is absent. Kept: ≥ 0.945, or ≤ 0.05 + 3 standard errors.",
    )


def worst(rows: list[dict[str, Any]], title: str, key: str, least: bool) -> Table:
    order = sorted((row for row in rows if row[key] is not None), key=lambda row: row[key] * (1 if least else -1))
    lines = [[where(row), *("" if row[c] is None else f"{row[c]:.4f}" for c in COLUMNS)] for row in order[:LISTED]]
    return Table(title, [WHERE, *(name.replace("_", " ") for name in COLUMNS)], lines)


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    rows = measure(QUICK if options.quick else GRID, options.number)
    tables = [
        summary(rows),
        worst(rows, "where the default covers least", "exact", True),
        worst(rows, "where simultaneous intervals cover least", "bonferroni", True),
        worst(rows, "where discoveries are false most often", "fdp", False),
    ]
    return tables, {"level": LEVEL, "fdr": FDR, "rows": rows}


if __name__ == "__main__":
    run(study, "Calibration of the inference", ("collections", 10_000, 500))
