"""The samplers alone: `simulate.counts` and `simulate.collect`, batched over keys, against NumPy's multinomial."""

from __future__ import annotations

import argparse
import math
import os
import sys
from typing import Any

import timing
from report import Table
from study_process import GOALS, child, verdict

GOAL_AT = (10_000, 1_000_000)
KEYS, EPSILON, EXPONENT = 25, 4.0, 1.3
MORE_KEYS, FEW_CATEGORIES = 100, 1000
"""Small histograms are drawn in larger batches, too."""
CELLS, MOST_KEYS, HOST_CELLS = 10**7, 10_000, 10**5
"""On a GPU: categories of a batch, and its largest number of keys; categories of the batch that NumPy draws."""


def measure(given: dict[str, Any]) -> dict[str, Any]:
    quick, alone = given["quick"], given["alone"]
    if alone and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before any thread pool is made
    import baselines
    import jax
    import numpy as np

    from rrjax import simulate

    answer: dict[str, Any] = {"platform": jax.default_backend(), "alone": alone, "rows": []}
    if alone and (answer["platform"] != "cpu" or not hasattr(os, "sched_setaffinity")):
        return answer
    rng = np.random.default_rng(0)
    counts, collect = (jax.jit(jax.vmap(f, (0, None, None, None))) for f in (simulate.counts, simulate.collect))

    def row(num_categories: int, num_users: int, number: int) -> dict[str, Any]:
        keys = jax.random.split(jax.random.key(0), number)
        theta = jax.numpy.asarray(simulate.zipf(num_categories, EXPONENT))
        law = baselines.zipf(num_categories, EXPONENT)
        reported = 1 + math.expm1(EPSILON) * law
        reported /= reported.sum()

        host = number if answer["platform"] == "cpu" else max(1, min(KEYS, HOST_CELLS // num_categories))

        def ours(sampler: Any) -> Any:
            return jax.block_until_ready(sampler(keys, theta, np.int32(num_users), np.float32(EPSILON)))

        def inspect(name: str, result: Any) -> None:
            for one in jax.tree.leaves(result):
                if not (np.asarray(one).sum(1, dtype=np.int64) == num_users).all() or np.asarray(one).min() < 0:
                    sys.exit(f"{name} lost users, N = {num_users:,}")

        calls = {
            "counts": lambda: ours(counts),
            "multinomial": lambda: rng.multinomial(num_users, reported, size=host),
            "collect": lambda: ours(collect),
            "composition": lambda: baselines.collect(rng, law, num_users, EPSILON, host),
        }
        times = timing.interleaved(calls, 3 if quick else 7, inspect, patience=2.0)
        return {"K": num_categories, "N": num_users, "keys": number, "host_keys": host, **times}

    def batches(num_categories: int) -> tuple[int, ...]:
        if answer["platform"] != "cpu":
            return (min(MOST_KEYS, CELLS // num_categories),)
        return (KEYS, MORE_KEYS) if num_categories <= FEW_CATEGORIES else (KEYS,)

    sizes, users = ((200,), (1000, 10**6)) if quick else ((50, 1000, 10_000, 100_000), (10**3, 10**6, 10**9))
    answer["rows"] = [
        row(num_categories, num_users, number)
        for num_categories in sizes
        for num_users in users
        for number in batches(num_categories)
    ]
    return answer


def run(options: argparse.Namespace) -> tuple[list[Any], list[Table]]:
    """On one core, where that can be had, and as is."""
    found = [
        child("samplers", {"quick": options.quick, "alone": alone}, f"samplers, {threads(alone)}")
        for alone in (True, False)
    ]
    record = [one for one in found if one["rows"]]
    return record, [table(one) for one in record]


def threads(alone: bool) -> str:
    return "one core" if alone else "as is"


def table(found: dict[str, Any]) -> Table:
    lines: list[list[str]] = []
    goal = ""
    for row in found["rows"]:
        line = [f"{row['K']:,}, {row['N']:,}, {row['keys']}"]
        for mine, other in (("counts", "multinomial"), ("collect", "composition")):
            each = [
                row[name]["median"] / (row[keys] * row["K"]) * 1e9
                for name, keys in ((mine, "keys"), (other, "host_keys"))
            ]
            ratio = each[1] / each[0]
            line += [f"{each[0]:.3g}", f"{each[1]:.3g}", f"{ratio:.2f}"]
            if (row["K"], row["N"]) == GOAL_AT:
                goal += f" {mine}: {ratio:.1f}, reached: {verdict(ratio >= GOALS[mine])}."
        lines.append(line)
    return Table(
        f"samplers, nanoseconds per category, {threads(found['alone'])}",
        ["K, N, keys", "counts", "NumPy", "ratio", "collect", "NumPy", "ratio"],
        lines,
        f"A collection for each key in one call (vmap over keys, jitted; NumPy: size or an array of totals), Zipf "
        f"{EXPONENT}, ε = {EPSILON:g}. NumPy: Generator.multinomial on the law of the reports; for collect the "
        "three multinomials that it is composed of, beside a GPU for fewer keys. "
        "Goal: a ratio of 1 everywhere, and at K = 10,000, N = 1,000,000 of "
        f"{GOALS['counts']} for counts and {GOALS['collect']} for collect." + goal,
    )
