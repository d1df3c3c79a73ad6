"""Times what inference promises: intervals for 1,423,000 categories, tests with 10,000 simulated nulls at K = 1,000.

No package does these for K categories, so there is no competitor but scipy, which gives the same limits and tails one
vector at a time (`betaincinv`, `binom.logsf`, float64).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import report
import timing
from report import Table
from scipy import special, stats
from timing import pretty

import rrjax
from rrjax import inference

EPSILON = 4.0
NUM_USERS = 1_000_000
DRAWS = 9999


def timed(call: Callable[[], Any], rounds: int) -> timing.Timing:
    def run() -> None:
        jax.block_until_ready(call())

    first = timing.seconds(run)
    return timing.summarize([timing.seconds(run) for _ in range(rounds)], first)


def collection(num_categories: int, seed: int = 0) -> jax.Array:
    theta = rrjax.simulate.zipf(num_categories, 1.3)
    return rrjax.simulate.counts(jax.random.key(seed), theta, NUM_USERS, EPSILON)


def with_scipy(counts: np.ndarray, level: float = 0.95) -> Callable[[], Any]:
    total, tail = counts.sum(), (1 - level) / 2

    def limits() -> tuple[np.ndarray, np.ndarray]:
        return (
            special.betaincinv(counts, total - counts + 1, tail),
            special.betaincinv(counts + 1, total - counts, 1 - tail),
        )

    return limits


def vectors(num_categories: int, rounds: int) -> list[tuple[str, timing.Timing]]:
    counts = collection(num_categories)
    host = np.asarray(counts, np.float64)
    q = 1 / (math.expm1(EPSILON) + num_categories)
    rows = [
        ("intervals", timed(lambda: inference.intervals(counts, EPSILON), rounds)),
        ("intervals, scipy's betaincinv", timed(with_scipy(host), 1)),
        ("p_values, logarithms", timed(lambda: inference.p_values(counts, EPSILON, log=True), rounds)),
        ("p_values, scipy's binom.logsf", timed(lambda: stats.binom.logsf(host - 1, NUM_USERS, q), 1)),
        ("discoveries", timed(lambda: inference.discoveries(counts, EPSILON), rounds)),
    ]
    if num_categories <= 10_000:
        of_users = timed(lambda: inference.intervals(counts, EPSILON, estimand="users"), 1)
        rows.append(("intervals, of the users' own shares", of_users))
    return rows


def tests(num_categories: int, rounds: int) -> list[tuple[str, timing.Timing]]:
    theta = rrjax.simulate.zipf(num_categories, 1.3)
    first, second = collection(num_categories), collection(num_categories, 1)
    key, both = jax.random.key(0), jnp.stack([first, second])
    ratio, fit = inference.likelihood_ratio_test, inference.goodness_of_fit_test
    calls: dict[str, Callable[[], Any]] = {
        "likelihood_ratio_test": lambda: ratio(key, first, EPSILON, theta, num_draws=DRAWS),
        "likelihood_ratio_test, chi-bar-square": lambda: ratio(
            key, first, EPSILON, theta, null="chi-bar-square", num_draws=DRAWS
        ),
        "goodness_of_fit_test, given θ": lambda: fit(key, first, EPSILON, theta, num_draws=DRAWS),
        "goodness_of_fit_test, any θ": lambda: fit(key, first, EPSILON, num_draws=DRAWS),
        "equality_test, two collections": lambda: inference.equality_test(key, both, EPSILON, num_draws=DRAWS),
        "trend_test, two collections": lambda: inference.trend_test(key, both, EPSILON, num_draws=DRAWS),
        "posterior, 4 × 1,500 steps": lambda: inference.posterior(key, first, EPSILON, prior=1.0).mean,
    }
    return [(name, timed(call, rounds)) for name, call in calls.items()]


def table(title: str, rows: list[tuple[str, timing.Timing]], note: str) -> Table:
    lines = [[name, pretty(row.median), "" if "scipy" in name else pretty(row.compilation)] for name, row in rows]
    return Table(title, ["", "median", "compilation"], lines, note)


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    sizes = (100,) if options.quick else (1_000, 1_423_000)
    found = {size: vectors(size, rounds) for size in sizes}
    of_tests = tests(sizes[0], rounds)
    tables = [table(f"K = {size:,}", rows, f"N = {NUM_USERS:,}, ε = {EPSILON:g}.") for size, rows in found.items()]
    note = f"N = {NUM_USERS:,} in each collection, {DRAWS:,} draws of the null."
    tables.append(table(f"tests at K = {sizes[0]:,}", of_tests, note))
    record = {f"K = {size}": dict(rows) for size, rows in found.items()} | {"tests": dict(of_tests)}
    report.publish(options, "inference", "Inference", tables, record)


if __name__ == "__main__":
    main()
