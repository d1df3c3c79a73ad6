"""Times closed forms, likelihoods and certificates beside what the compiler predicts for an H100.

`compiled.py` tells, without a card, how many bytes each program moves; this script runs the same programs on the device
at hand. A program takes at least its bytes over the bandwidth, which is measured between its runs by adding one to the
counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bandwidth
import jax
import jax.numpy as jnp
import report
import timing
from estimators import EPSILON, EXPONENT, NUM_USERS, repeated
from report import Table, shape
from timing import pretty

import rrjax

KEPT = Path(__file__).parent / "results" / "h100-compiled-cpu.json"
BANDWIDTH = 3.35e12
"""Bytes a second, of an H100 by its data sheet."""
SIZES = [(100_000, 10_000), (16_000, 10_000), (1000, 10_000), (16_000, 4096), (100_000, 1000), (200_000, 50)]
QUICK = [(1000, 50)]
TIMED = [(100_000, 10_000), (1000, 10_000), (200_000, 50)]


def squared_error(counts: jax.Array, epsilon: jax.Array, truth: jax.Array) -> jax.Array:
    return rrjax.metrics.squared_error(rrjax.mle_star(counts, epsilon), truth)


def cases(size: tuple[int, int]) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...], float]]:
    """Name, function and arguments, and the bytes that must move: each argument once, and each result."""
    whole, part, epsilon = (
        jax.ShapeDtypeStruct(*given) for given in ((size, "int32"), (size, "float32"), ((), "float32"))
    )
    array = 4.0 * math.prod(size)
    for name in ("mle_star", "inv_p", "inv_n", "inv"):
        yield name, jax.vmap(getattr(rrjax, name), (0, None)), (whole, epsilon), 2 * array
        yield f"{name}, weights", jax.vmap(getattr(rrjax, name), (0, None)), (part, epsilon), 2 * array
    yield "squared error of mle_star", jax.vmap(squared_error, (0, None, 0)), (whole, epsilon, part), 2 * array
    for name in ("nll", "score", "certificate"):
        least = 3 * array if name == "score" else 2 * array
        yield name, jax.vmap(getattr(rrjax, name), (0, 0, None)), (part, whole, epsilon), least


def measure(size: tuple[int, int], rounds: int) -> list[dict[str, Any]]:
    _, counts = repeated(size)
    theta = jax.jit(jax.vmap(rrjax.mle_star, (0, None)))(counts, EPSILON)
    rows: list[dict[str, Any]] = []
    for name, function, shapes, least in cases(size):
        program = jax.jit(function)
        # Of two arrays one is counts and one a distribution; of one, counts or the same as weights.
        several = sum(each.ndim == 2 for each in shapes) > 1
        given = [
            jnp.float32(EPSILON) if each.ndim == 0 else counts if each.dtype == counts.dtype else theta
            for each in shapes
        ]
        if not several and shapes[0].dtype != counts.dtype:
            given[0] = counts.astype(shapes[0].dtype)

        def call(program: Callable[..., Any] = program, given: list[jax.Array] = given) -> None:
            jax.block_until_ready(program(*given))

        times = timing.interleaved({name: call, bandwidth.ONCE: bandwidth.once(counts)}, rounds)
        once = 2 * counts.nbytes / times[bandwidth.ONCE].median
        row = {"function": name, "size": list(size), "seconds": times[name], "least": least, "bytes_per_second": once}
        print(f"{name} {shape(size)}: {pretty(times[name].median)}", flush=True)
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    kept = (
        {(row["function"], *row["size"]): row for row in json.loads(KEPT.read_text())["rows"]} if KEPT.exists() else {}
    )
    lines = []
    for row in rows:
        compiled = kept.get((row["function"], *row["size"]))
        time = row["seconds"].median
        predicted = compiled["bytes"] / row["bytes_per_second"] if compiled else math.nan
        ideal = row["least"] / row["bytes_per_second"]
        numbers = [pretty(ideal), "" if compiled is None else pretty(predicted), pretty(time), f"{time / ideal:.2f}"]
        lines.append([f"{row['function']} {shape(row['size'])}", *numbers])
    header = ["", "least", "by its bytes", "measured", "of the least"]
    note = (
        f"Zipf({EXPONENT}), N = {NUM_USERS:,}, ε = {EPSILON:g}. The least: each argument read once and each result "
        "written once, at the bandwidth of adding one to the counts, measured between the runs. By its bytes: what the "
        "compiled program moves by h100-compiled, at the same bandwidth, without further turns of loops. Small arrays "
        "stay in caches."
    )
    return Table("measured beside predicted", header, lines, note)


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="runs of each")
    options = parser.parse_args()
    sizes = TIMED if bandwidth.large(options.quick) == bandwidth.LARGE else QUICK if options.quick else TIMED[1:]
    rows = [row for size in sizes for row in measure(size, options.rounds)]
    report.publish(options, "closed-forms", "Closed forms, likelihoods and certificates", [table(rows)], {"rows": rows})


if __name__ == "__main__":
    main()
