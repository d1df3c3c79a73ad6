"""Seconds of empirical Bayes, and of three solvers for the spread that it estimates, with what each is still missing.

The solvers are given the same likelihoods and the same constraint: plain EM (whose every pass keeps the mean by a
multiplier), the same with Anderson acceleration (`rrjax.estimators.em`), and the interior point of rrjax.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import report
import timing
from jax import lax
from report import Table
from timing import pretty, spread

import rrjax
from rrjax.data.tally import support_data
from rrjax.estimators.em import anderson, no_history
from rrjax.estimators.histogram import NUM_ATOMS, NUM_CELLS, Histogram
from rrjax.estimators.prior import WEAKEST, Prior, gap_of, npmle, start_of

SIZES = [(50, 10_000, 1.0), (10_000, 1_000_000, 2.0), (1_423_000, 10_000_000, 4.0)]
BATCH = 100
SETTINGS = [
    (50, 1000, 1.0, 1.3),
    (1000, 100_000, 2.0, 1.3),
    (10_000, 1_000_000, 4.0, 2.5),
    (10_000, 1_000_000, 2.0, 1.3),
]
PASSES = {"EM": (100, 1000, 10_000), "EM, Anderson": (30, 100, 1000)}


def collected(size: int, users: int, epsilon: float, exponent: float = 1.3, seed: int = 0) -> jax.Array:
    return rrjax.simulate.collect(jax.random.key(seed), rrjax.simulate.zipf(size, exponent), users, epsilon)[1]


def kept(n: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The weights that a pass of EM gives, with the mean that they must have, and its multiplier."""
    low, high = -1 / jnp.max(t), -1 / jnp.min(t)

    def halve(_: Any, state: Any) -> Any:
        low, high, level = state
        up = n @ (t / (1 + level * t)) > 0
        low, high = jnp.where(up, level, low), jnp.where(up, high, level)
        return low, high, (low + high) / 2

    level = lax.fori_loop(0, 30, halve, (low, high, jnp.zeros_like(low)))[2]
    g = n / (1 + level * t)
    return g / jnp.sum(g), level


class Problem(NamedTuple):
    table: jax.Array
    weight: jax.Array
    smoothing: jax.Array
    t: jax.Array

    def value(self, g: jax.Array) -> jax.Array:
        """The smoothed log-likelihood of all counts, less a constant."""
        return self.weight @ jnp.log(self.table @ g) + jnp.sum(self.weight) * (self.smoothing @ jnp.log(g))


def problem_of(counts: jax.Array, epsilon: float) -> Problem:
    """The prior of mean 1/K, as `empirical_bayes` solves for it."""
    histogram, size = Histogram.of(support_data(counts, epsilon), "users"), counts.shape[0]
    base = Prior.of(histogram).base
    return Problem(histogram.table, histogram.weight, WEAKEST / size * base, histogram.atoms.share * size - 1)


@partial(jax.jit, static_argnums=(1, 2))
def climbed(problem: Problem, passes: int, fast: bool) -> Any:
    """Log-likelihood and certified gap after so many passes."""
    table, weight, smoothing, t = problem
    total = jnp.sum(weight)
    w = weight / total

    def posterior(g: jax.Array) -> jax.Array:
        return g * ((w / (table @ g)) @ table) + smoothing

    def step(y: jax.Array) -> jax.Array:
        return kept(posterior(kept(y, t)[0]), t)[0]

    def gain(new: jax.Array, old: jax.Array) -> jax.Array:
        new, old = kept(new, t)[0], kept(old, t)[0]
        return w @ jnp.log((table @ new) / (table @ old)) + smoothing @ jnp.log(new / old)

    start = kept(jnp.full_like(t, 1 / t.shape[0]), t)[0]
    if fast:
        body: Any = lambda _, state: anderson(step(state[0]), gain, *state)  # noqa: E731
        y, _ = lax.fori_loop(0, passes, body, (start, no_history(start)))
    else:
        y = lax.fori_loop(0, passes, lambda _, y: step(y), start)
    g, _ = kept(y, t)
    mass = 1 + jnp.sum(smoothing)
    _, level = kept(posterior(g) / mass, t)
    slopes = posterior(g) / g - mass * level * t
    return problem.value(g), total * mass * jnp.log(jnp.max(slopes) / mass)


@jax.jit
def inside(problem: Problem) -> Any:
    table, weight, smoothing, t = problem
    found = npmle(table, weight, smoothing, lambda *_: t, start_of(t))
    total = jnp.sum(weight)
    return problem.value(found.weights), total * gap_of(table, weight / total, smoothing, t, found)


def solvers(quick: bool) -> tuple[Table, list[dict[str, Any]]]:
    rows, record = [], []
    for size, users, epsilon, exponent in SETTINGS[: 1 if quick else None]:
        problem = problem_of(collected(size, users, epsilon, exponent), epsilon)
        found = {"interior point": partial(inside, problem)}
        for name, numbers in PASSES.items():
            for passes in numbers[: 1 if quick else None]:
                found[f"{name}, {passes:,} passes"] = partial(climbed, problem, passes, name != "EM")
        calls = {name: partial(_done, call) for name, call in found.items()}
        times = timing.interleaved(calls, 3 if quick else 7)
        for name, call in calls.items():
            likelihood, gap = (float(x) for x in call())
            rows.append([f"{size:,}, {users:,}, {epsilon:g}, {exponent:g}", name, spread(times[name]),
                         f"{likelihood:,.2f}", f"{gap:.3g}"])  # fmt: skip
            record.append({"setting": [size, users, epsilon, exponent], "solver": name, "seconds": times[name],
                           "log_likelihood": likelihood, "gap": gap})  # fmt: skip
    return Table(
        "solvers of the spread",
        ["K, N, ε, s", "solver", "time", "log-likelihood", "certified gap (nats)"],
        rows,
        f"Float32, {NUM_CELLS} cells, {NUM_ATOMS} atoms. The gap is of the whole sample.",
    ), record


def _done(call: Any) -> Any:
    return jax.block_until_ready(call())


def speed(quick: bool) -> tuple[Table, list[dict[str, Any]]]:
    calls: dict[str, Any] = {}
    for size, users, epsilon in SIZES[: 1 if quick else None]:
        counts = collected(size, users, epsilon)
        calls[f"{size:,} categories"] = lambda counts=counts, epsilon=epsilon: jax.block_until_ready(
            rrjax.empirical_bayes(counts, epsilon)
        )
        calls[f"{size:,} categories, MLE*"] = lambda counts=counts, epsilon=epsilon: jax.block_until_ready(
            rrjax.mle_star(counts, epsilon)
        )
    if not quick:
        size, users, epsilon = SIZES[1]
        counts = jnp.stack([collected(size, users, epsilon, seed=seed) for seed in range(BATCH)])
        batch = jax.jit(jax.vmap(lambda counts: rrjax.empirical_bayes(counts, epsilon).theta))
        calls[f"{BATCH} × {size:,} categories, vmap"] = lambda: jax.block_until_ready(batch(counts))
    times = timing.interleaved(calls, 3 if quick else 9)
    rows = [[name, spread(time), pretty(time.compilation)] for name, time in times.items()]
    return Table(
        "empirical Bayes, warm",
        ["", "time", "first call beyond that"],
        rows,
        "Zipf 1.3; the prior of each size its own.",
    ), [{"name": name, "seconds": time} for name, time in times.items()]


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--skip-solvers", action="store_true", help="time empirical Bayes alone")
    options = parser.parse_args()
    fast, times = speed(options.quick)
    tables, record = [fast], {"speed": times}
    if not options.skip_solvers:
        table, record["solvers"] = solvers(options.quick)
        tables.append(table)
    report.publish(options, "shrinkage", "Empirical Bayes", tables, record)


if __name__ == "__main__":
    main()
