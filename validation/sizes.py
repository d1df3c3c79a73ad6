"""Whether the tests keep their level, and the intervals for the users' own shares their coverage, by simulation.

Same settings as `calibration.py`. Each test is run where its hypothesis is true:

* a given distribution, by likelihood ratio and by Pearson's statistic; two collections, the second with 1.5 times the
  ε; four collections in time; two attributes, the second binary: the tests themselves, with 19 draws each, of which a
  p-value of 0.05 takes none as large;
* the limit of the likelihood ratio, and the fit of any distribution: the tests' own statistics, of all collections of a
  setting against one set of 9,999 draws of the null.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from calibration import GRID, QUICK

import rrjax
from benchmarks import report
from rrjax import inference
from rrjax.inference.distribution_tests import chi_bar_square, lack_of_fit, likelihood_ratio
from rrjax.simulate.sampling import Stream, multinomial
from validation.runner import FLOAT, WHERE, Table, covers, error, on_host, population, run, settings, where

LEVEL = 0.05
DRAWS = 19
CELLS = 2**18
TESTED = ("ratio", "pearson", "equality", "trend", "independence")
"""Those that run as a whole for every collection."""
NAMES = {
    "ratio": "likelihood ratio, simulated null",
    "limit": "likelihood ratio, chi-bar-square",
    "pearson": "goodness of fit, given θ",
    "lack of fit": "goodness of fit, any θ",
    "equality": "two collections, ε and 1.5 ε",
    "trend": "trend over four collections",
    "independence": "two attributes",
}


def batched(function: Callable[[jax.Array], Any], key: jax.Array, number: int, width: int) -> Any:
    """`function` of so many keys, as many at a time as fit."""
    chunks = max(1, -(-number * width // CELLS))
    size = -(-number // chunks)
    keys = jax.random.split(key, (chunks, size))
    found = jax.lax.map(jax.vmap(function), keys)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:number], found)


def given(theta: jax.Array, users: jax.Array, epsilon: jax.Array, key: jax.Array, number: int) -> dict[str, jax.Array]:
    """Statistics of collections, and draws of the null of those tests that can share them."""
    vertex = (jnp.arange(theta.shape[0]) == 0).astype(theta.dtype)

    def one(key: jax.Array) -> dict[str, jax.Array]:
        first, second, third = jax.random.split(key, 3)
        counts = rrjax.simulate.counts(first, theta, users, epsilon)
        at_vertex = rrjax.simulate.counts(second, vertex, users, epsilon)
        return {
            "ratio": likelihood_ratio(counts, epsilon, theta),
            "lack of fit": lack_of_fit(counts, epsilon),
            "limit draws": chi_bar_square(third, epsilon, theta),
            "vertex draws": lack_of_fit(at_vertex, epsilon),
        }

    return batched(one, key, number, theta.shape[0])


def tests_of(theta: jax.Array, users: jax.Array, epsilon: jax.Array) -> dict[str, Callable[[jax.Array], jax.Array]]:
    """Functions of a key: the p-value of a test with draws of its own, of data where its hypothesis is true."""
    size = theta.shape[0]
    epsilons = epsilon * jnp.array([1, 1.5], theta.dtype)

    def given(test: Callable[..., inference.HypothesisTest]) -> Callable[[jax.Array], jax.Array]:
        def p_value(key: jax.Array) -> jax.Array:
            data, null = jax.random.split(key)
            counts = rrjax.simulate.counts(data, theta, users, epsilon)
            return test(null, counts, epsilon, theta, num_draws=DRAWS).p_value

        return p_value

    def equality(key: jax.Array) -> jax.Array:
        data, null = jax.random.split(key)
        keys = jax.random.split(data, 2)
        two = jax.vmap(lambda key, e: rrjax.simulate.counts(key, theta, users // 2, e))(keys, epsilons)
        return inference.equality_test(null, two, epsilons, num_draws=DRAWS).p_value

    def trend(key: jax.Array) -> jax.Array:
        data, null = jax.random.split(key)
        keys = jax.random.split(data, 4)
        four = jax.vmap(lambda key: rrjax.simulate.counts(key, theta, users // 4, epsilon))(keys)
        return inference.trend_test(null, four, epsilon, num_draws=DRAWS).p_value

    def independence(key: jax.Array) -> jax.Array:
        data, null = jax.random.split(key)
        # The reports of independent attributes: the product of their laws, the second one of ε = 1 and K = 2.
        second = jnp.array([0.7, 0.3], theta.dtype) @ rrjax.RandomizedResponse(2, 1.0).channel()
        first = (1 + jnp.expm1(epsilon) * theta) / (jnp.expm1(epsilon) + size)
        (cells,) = multinomial(Stream.of(data), users, jnp.outer(second, first).reshape(1, -1))
        return inference.independence_test(null, cells.reshape(2, -1), num_draws=DRAWS).p_value

    return {
        "ratio": given(inference.likelihood_ratio_test),
        "pearson": given(inference.goodness_of_fit_test),
        "equality": equality,
        "trend": trend,
        "independence": independence,
    }


def covered(theta: jax.Array, users: jax.Array, epsilon: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    """Whether the intervals for the users' own shares cover."""
    true, counts = rrjax.simulate.collect(key, theta, users, epsilon)
    share = true / users
    limits = inference.intervals(counts, epsilon, estimand="users")
    at_once = inference.intervals(counts, epsilon, estimand="users", simultaneous="bonferroni")
    # Whole numbers of users ÷ N round.
    return {"users": jnp.mean(covers(limits, share, FLOAT)), "users at once": jnp.all(covers(at_once, share, FLOAT))}


def rejected(theta: jax.Array, users: jax.Array, epsilon: jax.Array, key: jax.Array, number: int) -> dict[str, Any]:
    """All p-values and coverages of so many collections, a collection of its own for each test."""
    tests = tests_of(theta, users, epsilon)

    def one(key: jax.Array) -> dict[str, jax.Array]:
        keys = jax.random.split(key, len(tests) + 1)
        found = {name: test(key) for (name, test), key in zip(tests.items(), keys, strict=False)}
        return found | covered(theta, users, epsilon, keys[-1])

    return batched(one, key, number, 20 * theta.shape[0])


def again(rows: list[dict[str, Any]], number: int) -> Table:
    """The tests beyond three standard errors once more: with other collections, and as many as asked for."""
    lines = []
    for name in TESTED:
        for row in rows:
            if row[name] <= LEVEL + 3 * error(LEVEL, row["tested"]):
                continue
            theta = jnp.asarray(population(row["population"], row["K"]))
            arguments = theta, jnp.int32(row["N"]), jnp.float32(row["epsilon"])

            def p_values(key: jax.Array, arguments: Any = arguments, name: str = name) -> jax.Array:
                return batched(tests_of(*arguments)[name], key, number, 20 * arguments[0].shape[0])

            found = np.asarray(jax.jit(p_values)(jax.random.key(8)), np.float64)
            size = float((found <= LEVEL * (1 + 1e-6)).mean())
            before, over = f"{row[name]:.4f} of {row['tested']:,}", (size - LEVEL) / error(LEVEL, number)
            lines.append([NAMES[name], where(row), before, f"{size:.4f}", f"{over:.1f}"])
            print(*lines[-1], sep=" | ", file=sys.stderr)
    return Table(
        "settings beyond three standard errors, simulated again",
        ["test", WHERE, "before", "again", "in s.e. above 0.05"],
        lines,
        f"{number:,} other collections each.",
    )


def size_against(statistics: np.ndarray, null: np.ndarray) -> float:
    """How often the Monte Carlo p-value against these draws is at most the level."""
    tolerance = 1e-5 * np.maximum(np.abs(statistics), 1)
    reached = len(null) - np.searchsorted(np.sort(null), statistics - tolerance, side="left")
    return float(((1 + reached) / (1 + len(null)) <= LEVEL).mean())


def measure(grid: dict[str, Any], number: int) -> list[dict[str, Any]]:
    compiled = {"given": jax.jit(given, static_argnums=4), "rejected": jax.jit(rejected, static_argnums=4)}
    rows: list[dict[str, Any]] = []
    chosen = list(settings(grid))
    for place, setting in enumerate(chosen):
        size, index = setting["K"], place % (len(chosen) // len(grid["K"]))
        # Tests with draws of their own cost as many simulations: a share of the collections must do.
        tested = max(200, min(number // 5, 20 * number // size + number // 30))
        theta = jnp.asarray(population(setting["population"], size))
        key = jax.random.fold_in(jax.random.key(7), 1000 * size + index)
        arguments = theta, jnp.int32(setting["N"]), jnp.float32(setting["epsilon"]), key
        drawn = on_host(compiled["given"](*arguments, number))
        found = on_host(compiled["rejected"](*arguments, tested))
        rows.append(
            {**setting, "collections": number, "tested": tested}
            | {
                "limit": size_against(drawn["ratio"], drawn["limit draws"][: number - 1]),
                "lack of fit": size_against(drawn["lack of fit"], drawn["vertex draws"][: number - 1]),
            }
            | {k: float((found[k] <= LEVEL * (1 + 1e-6)).mean()) for k in TESTED}
            | {k: float(found[k].mean()) for k in ("users", "users at once")}
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> Table:
    lines = []
    for name, title in NAMES.items():
        kind = "tested" if name in TESTED else "collections"
        sizes = [row[name] for row in rows]
        bounds = [LEVEL + 3 * error(LEVEL, row[kind]) for row in rows]
        kept = all(size <= bound for size, bound in zip(sizes, bounds, strict=True))
        numbers = sorted({row[kind] for row in rows})
        drawn = f"{numbers[0]:,}" + (f" to {numbers[-1]:,}" if len(numbers) > 1 else "")
        over = max((s - LEVEL) / error(LEVEL, row[kind]) for s, row in zip(sizes, rows, strict=True))
        lines.append(
            [title, f"{np.mean(sizes):.4f}", f"{max(sizes):.4f}", f"{over:.1f}", drawn, "yes" if kept else "no"]
        )
    return Table(
        "sizes of tests",
        ["test at level 0.05", "mean over settings", "largest", "in s.e. above 0.05", "collections", "≤ 0.05 + 3 s.e."],
        lines,
        f"{len(rows)} settings. The largest of so many sizes is some three standard errors above its mean by chance.",
    )


def coverage(rows: list[dict[str, Any]]) -> Table:
    lines = []
    for name, title in (("users", "exact, 0.95"), ("users at once", "… with Bonferroni, all at once")):
        values = [row[name] for row in rows]
        lowest = min(range(len(rows)), key=values.__getitem__)
        row = rows[lowest]
        where = f"K = {row['K']:,}, N = {row['N']:,}, ε = {row['epsilon']:g}, {row['population']}"
        lines.append([title, f"{np.mean(values):.4f}", f"{values[lowest]:.4f}", where, f"{row['tested']:,}"])
    header = ["", "mean over settings", "worst setting", "which", "its collections"]
    return Table("coverage of the users' own shares", header, lines)


def worst(rows: list[dict[str, Any]]) -> Table:
    lines = []
    for name, title in NAMES.items():
        most = sorted(rows, key=lambda row: -row[name])[:3]
        lines.extend([title, where(row), f"{row[name]:.4f}"] for row in most)
    return Table("where each test rejects most often", ["test", WHERE, "size"], lines)


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    if options.again:
        last = report.results(options) / f"sizes-{jax.default_backend()}.json"
        table = again(json.loads(last.read_text())["rows"], options.number)
        return [table], {"again": table.rows}
    quick = QUICK | {"K": (20,), "epsilon": (1.0,), "population": ("point mass",)}
    rows = measure(quick if options.quick else GRID, options.number)
    return [summary(rows), worst(rows), coverage(rows)], {"level": LEVEL, "names": NAMES, "rows": rows}


if __name__ == "__main__":
    flags = {"again": "only what the last run found beyond three standard errors"}
    run(study, "Sizes of tests", ("collections", 10_000, 400), flags)
