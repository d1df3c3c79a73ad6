"""Whether statements beyond shares keep their word: coverage and width of their intervals, by simulation.

Every setting is K, N, ε and a population; its collections are drawn exactly, from users who are independent draws of
it. The mean is that of the category numbers, 0 … K − 1; the group are the odd ones; the quantile is the median. A
difference is that of two collections of one population, of N users at ε and of N/2 at 2ε; four strata of it have N,
N/2, N/5 and N/10 users at ε, and shares of 0.4, 0.3, 0.2 and 0.1.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr
from scipy import stats

import rrjax
from rrjax import inference
from validation.runner import WHERE, Table, covers, error, population, progress, run, settings, where

LEVEL = 0.95
GOAL = 0.945
GRID = {
    "K": (2, 5, 20, 100),
    "population": ("uniform", "Zipf", "spiked", "point mass"),
    "N": (200, 2_000, 50_000),
    "epsilon": (0.5, 1.0, 3.0),
}
QUICK = {"K": (5,), "population": ("Zipf", "point mass"), "N": (200, 2_000), "epsilon": (1.0, 3.0)}
COMBINED = 2_000
"""N of differences and strata."""
PARTS, SHARES = (1.0, 0.5, 0.2, 0.1), (0.4, 0.3, 0.2, 0.1)
NORMAL = {
    "group, exact": "group, normal",
    "mean, conservative": "mean, normal",
    "difference, conservative": "difference, normal",
    "strata, conservative": "strata, normal",
}
RIGOROUS = (*NORMAL, "median")
ALONE = ("group, exact", "group, normal", "mean, conservative", "mean, normal", "median")
TOGETHER = ("difference, conservative", "difference, normal", "strata, conservative", "strata, normal")
POSTERIOR = {"K": (5, 20), "epsilon": (2.0,), "population": ("prior", "Zipf", "spiked")}
CHAIN = {"num_draws": 50, "num_warmup": 200, "thin": 5}
LISTED = 12
OUTCOMES = 1500
"""Of a binomial law: six standard deviations to either side."""


@partial(jax.jit, static_argnums=4)
def drawn(keys: jax.Array, theta: jax.Array, num_users: jax.Array, epsilon: jax.Array, parts: int) -> jax.Array:
    """Counts `[size, parts, K]` of collections of one population."""
    numbers = jnp.maximum(num_users * jnp.asarray(PARTS[:parts]), 1).astype(jnp.int32)

    def one(key: jax.Array) -> jax.Array:
        each = jax.random.split(key, parts)
        return jax.vmap(lambda key, number: rrjax.simulate.counts(key, theta, number, epsilon))(each, numbers)

    return jax.vmap(one)(keys)


def judge(found: inference.Estimate, true: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Whether it covers, and its width; the true value is a sum in float32."""
    return covers(found, true, 2e-7 * size), found.upper - found.lower


@partial(jax.jit, static_argnums=3)
def alone(counts: jax.Array, theta: jax.Array, epsilon: jax.Array, method: str) -> tuple[jax.Array, jax.Array]:
    """Of one collection each."""
    size = theta.shape[0]
    what, kind = method.split(", ") if ", " in method else (method, "")
    if what == "median":
        true = jnp.argmax(jnp.cumsum(theta) >= 0.5 - 1e-6)
        found = jax.vmap(lambda c: inference.quantile(c, epsilon, level=LEVEL))(counts[:, 0])
        return covers(found, true), found.upper - found.lower
    numbers = np.arange(size) % 2 if what == "group" else np.arange(size)
    options: dict[str, Any] = {"values": numbers.astype(np.float32), "level": LEVEL, "method": kind}
    estimate = partial(inference.linear_functional, **options)
    found = jax.vmap(lambda c: estimate(c, epsilon))(counts[:, 0])
    return judge(found, jnp.sum(numbers.astype(np.float32) * theta), size)


@partial(jax.jit, static_argnums=4)
def together(
    counts: jax.Array, others: jax.Array, theta: jax.Array, epsilon: jax.Array, method: str
) -> tuple[jax.Array, jax.Array]:
    """Of several collections each."""
    size = theta.shape[0]
    what, kind = method.split(", ")
    options: dict[str, Any] = {"values": np.arange(size, dtype=np.float32), "level": LEVEL, "method": kind}
    if what == "difference":
        pair = (epsilon, 2 * epsilon)
        found = jax.vmap(lambda a, b: inference.difference(a, b, pair, **options))(counts[:, 0], others)
        return judge(found, jnp.zeros(()), size)
    shares = np.asarray(SHARES, np.float32)
    found = jax.vmap(lambda c: inference.stratified(c, epsilon, shares=shares, **options))(counts)
    return judge(found, jnp.sum(np.arange(size, dtype=np.float32) * theta), size)


def measure(grid: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """A row for each setting and method."""
    rows: list[dict[str, Any]] = []
    for setting in settings(grid):
        keys = jax.random.split(jax.random.key(setting["K"]), number)
        theta, e = population(setting["population"], setting["K"]), jnp.float32(setting["epsilon"])
        counts = drawn(keys, theta, jnp.int32(setting["N"]), e, len(PARTS))
        found = {method: alone(counts, theta, e, method) for method in ALONE}
        if setting["N"] == COMBINED:
            # Of the same keys, but other parts of them than the first collection.
            twice = drawn(keys, theta, jnp.int32(setting["N"]), 2 * e, len(PARTS))[:, 1]
            found |= {method: together(counts, twice, theta, e, method) for method in TOGETHER}
        means = {name: [float(np.mean(np.asarray(part, np.float64))) for part in each] for name, each in found.items()}
        for method, (coverage, width) in means.items():
            normal = means[NORMAL[method]][1] if method in NORMAL else 0.0
            relative = width / normal if normal > 0 else None
            rows.append({**setting, "method": method, "coverage": coverage, "width": width, "relative": relative})
    return rows


def exact_coverage(num_categories: int, users: int, epsilon: float, theta: np.ndarray) -> float:
    """Of the exact interval of a group, from the binomial law of the reports that name it: no simulation."""
    odd = np.arange(num_categories) % 2 == 1
    share, e1 = float(theta[odd].sum(dtype=float)), math.expm1(epsilon)
    chance = (odd.sum() + e1 * share) / (e1 + num_categories)
    named = np.unique(np.clip(round(users * chance) + np.arange(-OUTCOMES // 2, OUTCOMES // 2), 0, users))
    named = np.pad(named, (0, OUTCOMES - len(named)), mode="edge")  # one shape, and a repeated one has no weight
    counts = np.zeros((OUTCOMES, num_categories), np.int32)
    counts[:, 1], counts[:, 0] = named, users - named
    inside, _ = alone(jnp.asarray(counts)[:, None], jnp.asarray(theta), jnp.float32(epsilon), "group, exact")
    first = np.append(True, named[1:] > named[:-1])
    return float((stats.binom.pmf(named, users, chance) * (np.asarray(inside) & first)).sum())


def exact_groups(grid: dict[str, Any]) -> tuple[Table, list[dict[str, Any]]]:
    rows = list(settings(grid))
    for row in rows:
        row["coverage"] = exact_coverage(row["K"], row["N"], row["epsilon"], population(row["population"], row["K"]))
    order = sorted(rows, key=lambda row: row["coverage"])[:LISTED]
    lines = [[where(row), f"{row['coverage']:.5f}"] for row in order]
    note = f"The least of {len(rows)} settings, from the binomial law itself: by it, no setting may be below 0.95."
    return Table("group, exact: coverage without simulation", [WHERE, "coverage"], lines, note), rows


def summary(rows: list[dict[str, Any]], number: int) -> Table:
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        here = [row for row in rows if row["method"] == method]
        coverage, relative = [row["coverage"] for row in here], [row["relative"] for row in here if row["relative"]]
        rigorous = method in RIGOROUS
        spread = (f"{np.mean(relative):.2f}", f"{min(relative):.2f} – {max(relative):.2f}") if relative else ("", "")
        lines.append([
            method, f"{len(here)}", f"{np.mean(coverage):.4f}", f"{min(coverage):.4f}",
            f"≥ {GOAL:g}" if rigorous else "", f"{sum(each < GOAL for each in coverage)}", *spread,
        ])  # fmt: skip
    return Table(
        "coverage and width",
        ["interval, 0.95", "settings", "mean coverage", "worst", "goal", f"below {GOAL:g}", "width ÷ normal", "range"],
        lines,
        f"{number:,} collections in each setting (standard error of a coverage of 0.95: {error(0.95, number):.4f}), "
        "of the same keys in settings of one K: where the coverage itself is 0.95, simulation puts some settings below "
        f"{GOAL:g}. That of groups is known without simulation: next table. "
        f"Differences and strata at N = {COMBINED:,}.",
    )


def listed(rows: list[dict[str, Any]], title: str, methods: tuple[str, ...], number: int) -> Table:
    order = sorted((row for row in rows if row["method"] in methods), key=lambda row: row["coverage"])[:LISTED]
    lines = [[f"{row['method']}: {where(row)}",
              f"{row['coverage']:.4f}", f"{error(row['coverage'], number):.4f}", f"{row['width']:.4g}"]
             for row in order]  # fmt: skip
    return Table(title, [f"interval: {WHERE}", "coverage", "s.e.", "mean width"], lines)


def widths(rows: list[dict[str, Any]]) -> Table:
    """Of the mean's rigorous interval, by what matters: ε and the population."""
    sizes = sorted({row["K"] for row in rows if row["K"] > 2})
    here = [row for row in rows if row["method"] == "mean, conservative" and row["relative"]]
    lines = []
    for epsilon, name in itertools.product(*(sorted({row[key] for row in here}) for key in ("epsilon", "population"))):
        chosen = [row for row in here if row["epsilon"] == epsilon and row["population"] == name]
        found = [[row["relative"] for row in chosen if row["K"] == k] for k in sizes]
        lines.append([f"{epsilon:g}, {name}", *(f"{np.mean(each):.2f}" for each in found)])
    note = "Averages over N. Limits are cut to the range of the values, which shortens both where N is small."
    return Table("mean, conservative: width ÷ normal", ["ε, population", *(f"K = {k}" for k in sizes)], lines, note)


@partial(jax.jit, static_argnums=3)
def entropies(keys: jax.Array, theta: jax.Array, epsilon: jax.Array, prior: bool) -> tuple[jax.Array, jax.Array]:
    """Coverage of the entropy by the posterior under a uniform prior: of one population, or of draws from the prior."""

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        of_theta, of_counts, of_posterior = jax.random.split(key, 3)
        true = jax.random.dirichlet(of_theta, jnp.ones_like(theta)) if prior else theta
        counts = rrjax.simulate.counts(of_counts, true, COMBINED, epsilon)
        result = inference.posterior(of_posterior, counts, epsilon, **CHAIN)
        found = result.credible_functional(lambda theta: jnp.sum(entr(theta)), LEVEL)
        return covers(found, jnp.sum(entr(true))), found.upper - found.lower

    return jax.vmap(one)(keys)


def of_posterior(number: int) -> tuple[Table, list[dict[str, Any]]]:
    rows = []
    progress("posterior")
    for size, epsilon, name in itertools.product(*POSTERIOR.values()):
        theta = population("uniform" if name == "prior" else name, size)
        keys = jax.random.split(jax.random.key(size), number)
        coverage, width = entropies(keys, theta, jnp.float32(epsilon), name == "prior")
        rows.append({"K": size, "epsilon": epsilon, "population": name, "coverage": float(coverage.mean()),
                     "width": float(width.mean())})  # fmt: skip
    lines = [[f"{row['K']}, {row['epsilon']:g}, {row['population']}", f"{row['coverage']:.3f}",
              f"{error(row['coverage'], number):.3f}", f"{row['width']:.3f}"] for row in rows]  # fmt: skip
    note = (
        f"`credible_functional` of the entropy, nats, N = {COMBINED:,}, {number:,} collections each; the prior is "
        "uniform, and where the population is drawn from it the interval must cover with its level."
    )
    return Table(
        "entropy from draws of the posterior", ["K, ε, population", "coverage", "s.e.", "width"], lines, note
    ), rows


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    number, grid = options.number, QUICK if options.quick else GRID
    rows = measure(grid, number)
    draws, posterior = of_posterior(min(number // 2, 300))
    groups, exact = exact_groups(grid)
    tables = [
        summary(rows, number),
        groups,
        widths(rows),
        listed(rows, "where rigorous intervals cover least", RIGOROUS, number),
        listed(rows, "where normal intervals cover least", tuple(NORMAL.values()), number),
        draws,
    ]
    parts = {"rows": rows, "exact": exact, "posterior": posterior}
    return tables, {"level": LEVEL, "collections": number, **parts}


if __name__ == "__main__":
    run(study, "Statements beyond shares", ("collections", 4_000, 400))
