"""Counts the steps, and times them, that iterative estimators need to a certified gap of 1e-10 nats.

Float64 throughout: the script enables it, as an application may. Compares rrjax's four
ways of `ibu` with IBU on a dense channel as multi-freq-ldpy runs it, in five settings at K = 500; then
the same ways on channels that are not randomized response; and batches of a thousand problems.
"""

from __future__ import annotations

import os
import sys

os.environ["JAX_ENABLE_X64"] = "1"

from typing import Any, get_args

import baselines
import jax
import jax.numpy as jnp
import numpy as np
import report
import timing
from report import Table
from timing import pretty

import rrjax
from rrjax import mechanisms
from rrjax.estimators.em import Acceleration

NUM_CATEGORIES = 500
TARGET = 1e-10
SETTINGS = [
    (10_000, 1.3, 0.5),
    (10_000, 1.3, 1.0),
    (10_000, 0.01, 1.0),
    (500_000, 1.3, 0.5),
    (500_000, 1.3, 2.0),
]
MOST = {"anderson": 10_000, "deflated": 100_000, "newton": 200}


def _random_rows(size: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(size), size)


CHANNELS = {
    "Hadamard, ε = 1": lambda size: mechanisms.HadamardResponse(size, 1.0),
    "random rows": lambda size: mechanisms.Channel(
        jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(size), size))
    ),
    "geometric, 0.1 a step": lambda size: mechanisms.Geometric(size, 0.1 * (size - 1)),
    "geometric, 1 a step": lambda size: mechanisms.Geometric(size, 1.0 * (size - 1)),
    "square wave, ε = 1": lambda size: mechanisms.SquareWave(size, 1.0),
}
NUM_USERS = 100_000
BATCH = 1000


def solve(problem: jax.Array | rrjax.Mixture, epsilon: float | None, how: Acceleration, most: int) -> rrjax.EMResult:
    result = rrjax.ibu(problem, epsilon, accelerate=how, tol=TARGET, max_iters=most)
    return jax.block_until_ready(result)


def run_ours(problem: jax.Array | rrjax.Mixture, epsilon: float | None, how: Acceleration, most: int) -> dict[str, Any]:
    """Steps, seconds and the gap that is reached; the run that is timed is the run that is reported."""
    first = timing.seconds(lambda: solve(problem, epsilon, how, 1))  # compiles
    results: list[rrjax.EMResult] = []
    runs: list[float] = []
    while not runs or (len(runs) < 7 and sum(runs) < 2):
        runs.append(timing.seconds(lambda: results.append(solve(problem, epsilon, how, most))))
    time = timing.summarize(runs, first)
    steps = int(results[0].num_iters)
    return {
        "method": f"rrjax {how}",
        "seconds": time,
        "steps": steps,
        "per_step": time.median / steps,
        "gap": float(results[0].gap),
        "converged": bool(results[0].converged),
    }


def gap_of(theta: np.ndarray, counts: np.ndarray, epsilon: float) -> float:
    return float(rrjax.certificate(theta, jnp.asarray(counts, jnp.int64), epsilon).gap)


def run_dense(counts: np.ndarray, epsilon: float) -> dict[str, Any]:
    """The dense baseline with its own stop: change below 1e-12, or 10,000 steps."""
    results: list[tuple[np.ndarray, int]] = []
    time = timing.seconds(lambda: results.append(baselines.dense_ibu(counts, epsilon)))
    theta, steps = results[0]
    gap = gap_of(theta, counts, epsilon)
    return {
        "method": "dense IBU, own stop",
        "seconds": timing.summarize([time]),
        "steps": steps,
        "per_step": time / steps,
        "gap": gap,
        "converged": gap <= TARGET,
    }


def run_package(counts: np.ndarray, epsilon: float) -> list[dict[str, Any]]:
    """multi-freq-ldpy itself with its defaults, where it can be imported."""
    try:
        from multi_freq_ldpy.pure_frequency_oracles.GRR import (  # pyright: ignore[reportMissingImports]
            GRR_Aggregator_IBU,
        )
    except ImportError:
        return []
    reports = np.repeat(np.arange(len(counts)), counts)
    few, most = 100, 10_000

    def call(num_iters: int) -> Any:
        return GRR_Aggregator_IBU(reports, len(counts), epsilon, num_iters, 1e-12, "max_abs")

    call(1)
    short = timing.seconds(lambda: call(few))
    thetas: list[Any] = []
    time = timing.seconds(lambda: thetas.append(call(most)))
    gap = gap_of(np.asarray(thetas[0]), counts, epsilon)
    row = {
        "method": "multi-freq-ldpy, own stop",
        "seconds": timing.summarize([time]),
        "steps": most,  # it does not say how many it made
        "per_step": (time - short) / (most - few),
        "gap": gap,
        "converged": gap <= TARGET,
    }
    return [row]


def mixture_of(mechanism: Any) -> rrjax.Mixture:
    """Reports of users whose values are of two normal laws on a range, with a spike at a round number."""
    size = mechanism.num_categories
    rng = np.random.default_rng(1)
    where = np.concatenate([rng.normal(0.3, 0.05, NUM_USERS // 2), rng.normal(0.7, 0.1, NUM_USERS // 2)])
    where[: NUM_USERS // 20] = 0.5
    values = np.clip(where, 0, 1 - 1e-9)
    if not isinstance(mechanism, mechanisms.SquareWave):
        values = (values * size).astype(int)
    return mechanism.mixture(mechanism.randomize(jax.random.key(0), values))


def run_batch(counts: np.ndarray, how: Acceleration, dtype: Any) -> dict[str, Any]:
    """Many problems of randomized response at once; weights have their own precision, whatever that of the process."""
    run = jax.jit(jax.vmap(lambda c: rrjax.ibu(c, 1.0, accelerate=how)))
    device = jnp.asarray(counts, dtype)
    results: list[rrjax.EMResult] = []
    times = [timing.seconds(lambda: results.append(jax.block_until_ready(run(device)))) for _ in range(6)]
    time = timing.summarize(times[1:], times[0])
    steps = int(results[0].num_iters.max())
    return {
        "setting": f"{len(counts):,} problems, {jnp.dtype(dtype).name}",
        "method": f"rrjax {how}",
        "seconds": time,
        "steps": steps,
        "per_step": time.median / steps,
        "gap": float(results[0].gap.max()),
        "converged": bool(results[0].converged.all()),
    }


def line_of(row: dict[str, Any]) -> list[str]:
    head = f"{row['setting']}: {row['method']}"
    if "seconds" not in row:
        return [head, "not run", "", "", "", ""]
    time: timing.Timing = row["seconds"]
    compiled = row["method"].startswith("rrjax")
    return [
        head,
        f"{row['steps']:,}" if row["converged"] else f"> {row['steps']:,}",
        pretty(time.median),
        f"{row['per_step'] * 1e6:.1f} µs",
        f"{row['gap']:.1e}",
        pretty(time.first) if compiled else "",
    ]


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--plain-iters", type=int, default=700_000, help="cap of plain IBU")
    parser.add_argument("--other-iters", type=int, default=5_000, help="cap of EM on other channels")
    parser.add_argument("--plain-settings", type=int, default=1, help="settings plain IBU runs on")
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="how many settings of randomized response")
    parser.add_argument("--channels", type=int, default=len(CHANNELS), help="how many other channels")
    options = parser.parse_args()
    plain_iters = min(options.plain_iters, 1000) if options.quick else options.plain_iters
    rows: list[dict[str, Any]] = []
    for position, (num_users, exponent, epsilon) in enumerate(SETTINGS[: options.settings]):
        print(f"timing n = {num_users:,}, s = {exponent}, ε = {epsilon}", file=sys.stderr)
        counts = baselines.zipf_counts(1, NUM_CATEGORIES, epsilon, num_users, exponent)[0]
        here: list[dict[str, Any]] = []
        for how in get_args(Acceleration):
            device = jnp.asarray(counts, jnp.int64)
            if how != "none":
                here.append(run_ours(device, epsilon, how, MOST[how]))
            elif position < options.plain_settings:
                here.append(run_ours(device, epsilon, how, plain_iters))
            else:
                here.append({"method": "rrjax none"})
        here.append(run_dense(counts, epsilon))
        here += run_package(counts, epsilon)
        setting = f"{num_users:,}, {exponent:g}, {epsilon:g}"
        rows.extend({"setting": setting, **row} for row in here)
    size, number = (60, 20) if options.quick else (NUM_CATEGORIES, BATCH)
    others: list[dict[str, Any]] = []
    for name, make in list(CHANNELS.items())[: options.channels]:
        print(f"timing {name}", file=sys.stderr)
        mixture = mixture_of(make(size))
        for how in get_args(Acceleration):
            most = MOST["newton"] if how == "newton" else min(options.other_iters, 100 if options.quick else 10**9)
            others.append({"setting": name, **run_ours(mixture, None, how, most)})
    print("timing batches", file=sys.stderr)
    counts = baselines.zipf_counts(number, size, 1.0, 10_000, 1.3)
    batches = [run_batch(counts, "newton", dtype) for dtype in (jnp.float64, jnp.float32)]
    table = Table(
        "to a certified gap of 1e-10",
        ["n, s, ε: method", "steps", "time", "per step", "gap", "first call, 1 step"],
        [line_of(row) for row in rows],
        f"K = {NUM_CATEGORIES}, float64. A step of rrjax includes its certificate. The dense baseline and "
        "multi-freq-ldpy stop when no entry changes by 1e-12 or after 10,000 steps, without a certificate; "
        "the gap is what rrjax certifies for their result. '>': the target was not reached.",
    )
    columns = ["steps", "time", "per step", "gap", "first call, 1 step"]
    channels = Table(
        "other channels, to a certified gap of 1e-10",
        ["channel: method", *columns],
        [line_of(row) for row in others],
        f"K = {size}, {NUM_USERS:,} users, float64, at most {options.other_iters:,} steps of EM. A step of newton "
        "factors a K × K matrix.",
    )
    many = Table(
        "many problems of randomized response at once",
        ["problems: method", *columns],
        [line_of(row) for row in batches],
        f"K = {size}, ε = 1, 10,000 users each, jit(vmap(ibu)) at its own tolerance; steps and gap are the largest.",
    )
    values = {"rows": rows, "channels": others, "batches": batches}
    report.publish(options, "em", "Iterative estimators", [table, channels, many], values)


if __name__ == "__main__":
    main()
