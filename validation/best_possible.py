"""How far empirical Bayes is from the best that any estimator can do.

First beside the oracle of `accuracy.py`, which is told the shares but not whose they are, by number of categories: from
the rows that its last run kept. Then beside a bound that no estimator beats. Categories form pairs, and of each pair
one has (1 + δ)/K and one (1 − δ)/K, which of the two by a fair coin. Sums of pairs say nothing of the coins, and given
its sum the count of a category is binomial, so the least expected squared error of any estimator, which may know all
this, is a sum over two binomials. The largest squared error over these populations is no less; an estimator that treats
categories alike has the same in all of them. δ is what makes the bound largest.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from benchmarks import report
from validation import accuracy
from validation.runner import Table, geometric_mean, progress, run

ROWS = "accuracy-cpu.json"
SETTINGS = list(itertools.product((20, 200, 2000), (10_000, 1_000_000), (1.0, 4.0)))
QUICK = SETTINGS[:2]
RANGES = (
    *((2, 7), (8, 15), (16, 20), (21, 50), (51, 100), (101, 999), (1000, 1000)),
    *((1001, 9999), (10_000, 10_000), (10_001, 10**6)),
)
"""Numbers of categories that a row of the table takes together."""
DIFFERENCES = np.geomspace(0.001, 1, 61)


def bound(size: int, users: int, epsilon: float, difference: float) -> float:
    """The least expected squared error of the shares, over the coins."""
    e1 = math.expm1(epsilon)
    law = (1 + e1 / size * (1 + difference * np.array([1, -1]))) / (e1 + size)  # of a report naming either of a pair
    total = float(law.sum())
    middle, width = users * total, 8 * math.sqrt(users * total * (1 - total))
    sums = np.unique(np.linspace(max(0, middle - width), min(users, middle + width), 65).round()).astype(int)
    odds = math.log(law[0] / law[1]) if law[1] > 0 else math.inf
    unknown = []
    for number in sums:
        middle, width = number * law[0] / total, 4 * math.sqrt(number) + 8
        counts = np.arange(max(0, int(middle - width)), min(number, int(middle + width)) + 1)
        weight = stats.binom.pmf(counts, number, law[0] / total)
        # The mean of the coin, −1 or 1, is the hyperbolic tangent of half its log odds.
        unknown.append(np.sum(weight * (1 - np.tanh((2 * counts - number) * odds / 2) ** 2)))
    weights = stats.binom.pmf(sums, users, total)
    return size * (difference / size) ** 2 * float(np.average(unknown, weights=weights))


def measure(settings: Sequence[tuple[int, int, float]], num_seeds: int) -> list[dict[str, Any]]:
    rows = []
    for size, users, epsilon in settings:
        progress(f"K = {size:,}, N = {users:,}, ε = {epsilon:g}")
        bounds = [bound(size, users, epsilon, each) for each in DIFFERENCES]
        hardest = int(np.argmax(bounds))
        signs = np.where(np.arange(size) % 2, -1, 1)
        shares = jnp.asarray((1 + DIFFERENCES[hardest] * signs) / size, jnp.float32)
        keys = jax.random.split(jax.random.key(size), num_seeds)
        found, _ = accuracy.errors(keys, shares, jnp.int32(users), jnp.float32(epsilon))
        found = np.asarray(found, float)[:, 1, 0]  # squared errors against the population
        deviation = found.std(0, ddof=1) / math.sqrt(num_seeds) / bounds[hardest]
        rows.append(
            {"K": size, "N": users, "epsilon": epsilon, "difference": DIFFERENCES[hardest], "bound": bounds[hardest]}
            | {"mean": found.mean(0), "standard_error": deviation}
        )
    return rows


def beside_bound(rows: list[dict[str, Any]]) -> Table:
    lines = []
    for row in rows:
        ratios = row["mean"][:-1] / row["bound"]
        told = [f"{ratio:.2f} ± {error:.1g}" for ratio, error in zip(ratios, row["standard_error"], strict=False)]
        head = f"{row['K']:,}, {row['N']:,}, {row['epsilon']:g}"
        lines.append([head, f"{row['difference']:.2g}", f"{row['bound'] / row['mean'][-1]:.3f}", *told])
    return Table(
        "Squared error over a bound that no estimator beats",
        ["K, N, ε", "δ", "bound over the inversion's error", *accuracy.NAMES],
        lines,
        "Shares (1 ± δ)/K, against the population. The bound knows δ and the pairs; the oracle knows the set of shares "
        "and no pairs.",
    )


def beside_oracle(kept: dict[str, list[dict[str, Any]]]) -> Table:
    rows = [row for grid in kept.values() for row in grid]
    lines = []
    for low, high in RANGES:
        here = [np.array(row["mean"], float)[:, 0] for row in rows if low <= row["K"] <= high]
        if not here:
            continue
        error = np.stack(here)  # [settings, targets, estimators and the inversion]
        best = error[..., :3].min(-1)
        scale = np.maximum(best, accuracy.FLOOR * error[..., -1])
        closest, told = (np.maximum(error[..., at] / scale, accuracy.LEAST) for at in (3, 4))
        cells = [
            f"{geometric_mean(each[:, target]):.2f}" for each in (closest, told, closest / told) for target in (0, 1)
        ]
        span = f"{low:,} –" if high == 10**6 else f"{low:,} – {high:,}" if high > low else f"{low:,}"
        lines.append([span, str(len(here)), *cells])
    parts = [f"{name}, {against}" for name in ("Emp. Bayes", "oracle", "ratio") for against in ("users", "population")]
    return Table(
        "Squared error over the best of the three: geometric means by the number of categories",
        ["K", "settings", *parts],
        lines,
        f"All settings of accuracy. Where the best has less than {accuracy.FLOOR:.0%} of the inversion's error, we "
        f"divide by {accuracy.FLOOR:.0%}; ratios below {accuracy.LEAST} count as {accuracy.LEAST}. The last ratio is "
        "that of empirical Bayes to the oracle.",
    )


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    rows = measure(QUICK if options.quick else SETTINGS, options.number)
    tables = [beside_bound(rows)]
    kept = report.script().parent / "results" / ROWS
    if kept.exists():
        tables.insert(0, beside_oracle(json.loads(kept.read_text())["rows"]))
    return tables, {"num_seeds": options.number, "rows": rows}


if __name__ == "__main__":
    run(study, "How far from the best possible", ("num_seeds", 200, 20))
