"""Times the closed-form estimators against what one would write or install without rrjax.

All numbers of a table come from one run of this script, and competitors take turns, so that ratios
mean something on a machine that is not quiet. Every result is compared with a float64 reference
first. No method can be faster than the memory: each is also compared with a program that only adds
one to the counts, which reads and writes as much as an estimate must.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import bandwidth
import baselines
import jax
import jax.numpy as jnp
import numpy as np
import report
import timing
from bandwidth import ONCE
from report import Table, shape
from timing import Timing, pretty

import rrjax

EPSILON = 4.0
NUM_USERS = 1_000_000
EXPONENT = 1.3
SIZES = [(20_000, 50), (1_000, 1_000), (100, 10_000), (10, 100_000), (1, 1_423_000)]
QUICK = [(200, 50), (2, 10_000)]
DRAWN = 100  # histograms of the large size that are drawn; the others repeat them
MEMORY_SIZES = [(100, 10_000), (1, 1_423_000)]
TOLERANCE = 1e-5  # total variation
SOLVERS = ("newton", "sort")
LONGEST = 20.0  # seconds: beyond this the paper's loop runs on a sample of the rows

Call = Callable[[], Any]


def jitted(estimator: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.vmap(estimator, in_axes=(0, None)))


def on_device(estimator: Callable[..., Any], counts: jax.Array) -> Call:
    function = jitted(estimator)
    return lambda: function(counts, EPSILON).block_until_ready()


def on_the_device(device: jax.Array) -> dict[str, dict[str, Call]]:
    """The estimators of rrjax, by problem."""
    solvers = {
        problem: {f"rrjax {solver}": on_device(partial(estimator, solver=solver), device) for solver in SOLVERS}
        for problem, estimator in (("mle_star", rrjax.mle_star), ("inv_p", rrjax.inv_p))
    }
    return {
        **solvers,
        "inv_n": {"rrjax": on_device(rrjax.inv_n, device)},
        "inv": {"rrjax": on_device(rrjax.inv, device)},
    }


def competitors(counts: np.ndarray, device: jax.Array) -> dict[str, dict[str, Call]]:
    """What is timed, by problem; the first of each problem is what ratios refer to."""
    dtype = jnp.result_type(float)
    on_host: dict[str, baselines.Estimator | None] = {
        "numpy float32": baselines.numpy_float32,
        "numpy float64": baselines.numpy_float64,
        "numpy int32": partial(baselines.numpy_int32, dtype=dtype),
        "numba": baselines.numba_loop(dtype),
    }
    others = {name: partial(function, counts, EPSILON) for name, function in on_host.items() if function is not None}
    optax = baselines.optax_projection()
    projection = {} if optax is None else {"optax": on_device(optax, device)}
    added = {
        "mle_star": others,
        "inv_p": projection,
        "inv_n": {f"numpy {dtype}": partial(baselines.clipped, counts, EPSILON, dtype)},
    }
    return {problem: {**calls, **added.get(problem, {})} for problem, calls in on_the_device(device).items()}


def references(counts: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "mle_star": baselines.numpy_float64(counts, EPSILON),
        "inv_p": baselines.projected_float64(counts, EPSILON),
        "inv_n": baselines.clipped(counts, EPSILON, np.float64),
        "inv": baselines.clipped(counts, EPSILON, np.float64, clip=False),
    }


def distance(theta: Any, reference: np.ndarray) -> float:
    """Largest total variation over the rows; of Inv relative to the magnitudes, which may sum to hundreds."""
    difference = np.asarray(theta, np.float64) - reference
    return float((np.abs(difference).sum(axis=1) / np.abs(reference).sum(axis=1)).max() / 2)


def paper_loop(counts: np.ndarray) -> tuple[np.ndarray, Timing, int]:
    """Times the paper's loop: three runs, fewer or a sample of the rows where it is slow.

    Returns its estimates, the seconds (of a sample: scaled up), and how many rows they are of.
    """
    sample = min(10, len(counts))
    one = timing.seconds(lambda: baselines.paper_loop(counts[:sample], EPSILON)) / sample
    rows = len(counts) if one * len(counts) < LONGEST else max(1, int(LONGEST / 2 / one))
    runs = 3 if one * rows < LONGEST / 4 else 1
    scale = len(counts) / rows
    times = [scale * timing.seconds(lambda: baselines.paper_loop(counts[:rows], EPSILON)) for _ in range(runs)]
    return baselines.paper_loop(counts[:rows], EPSILON), timing.summarize(times), rows


def measure(size: tuple[int, int], rounds: int, device_only: bool) -> list[dict[str, Any]]:
    counts = baselines.zipf_counts(*size, EPSILON, NUM_USERS, EXPONENT)
    device = jax.device_put(jnp.asarray(counts, jnp.result_type(int))).block_until_ready()
    lines: list[dict[str, Any]] = []
    expected = references(counts)
    for problem, calls in (on_the_device(device) if device_only else competitors(counts, device)).items():
        times, errors = timed(size, {**calls, ONCE: bandwidth.once(device)}, expected[problem], rounds)
        rows = size[0]
        if problem == "mle_star" and not device_only:
            theta, loop, rows = paper_loop(counts)
            errors["paper's loop"] = checked(size, "paper's loop", theta, expected[problem][:rows])
            times |= {"paper's loop": loop, ONCE: times.pop(ONCE)}  # in this order
        lines += lines_of(size, problem, times, errors, device, {"paper's loop": rows})
    return lines


def repeated(size: tuple[int, int]) -> tuple[np.ndarray, jax.Array]:
    """Some drawn histograms `[DRAWN, K]`, and on the device `[R, K]` as many as asked for, which repeat them."""
    few = baselines.zipf_counts(min(DRAWN, size[0]), size[1], EPSILON, NUM_USERS, EXPONENT)
    tiled = jax.jit(lambda few: jnp.tile(few, (-(-size[0] // len(few)), 1))[: size[0]])
    return few, tiled(jnp.asarray(few, jnp.result_type(int))).block_until_ready()


def measure_large(size: tuple[int, int], rounds: int) -> list[dict[str, Any]]:
    """Newton alone, on more rows than hosts can keep up with."""
    counts, device = repeated(size)
    weights = device.astype(jnp.result_type(float))
    expected = references(counts)
    problems: dict[str, dict[str, Call]] = {
        "mle_star": {
            "rrjax newton": on_device(rrjax.mle_star, device),
            "rrjax newton, weights": on_device(rrjax.mle_star, weights),
        },
        "inv_p": {"rrjax newton": on_device(rrjax.inv_p, device)},
        **{problem: {"rrjax": on_device(getattr(rrjax, problem), device)} for problem in ("inv_n", "inv")},
    }
    lines: list[dict[str, Any]] = []
    for problem, calls in problems.items():
        times, errors = timed(size, {**calls, ONCE: bandwidth.once(device)}, expected[problem], rounds)
        lines += lines_of(size, problem, times, errors, device)
    return lines


def checked(size: tuple[int, int], name: str, theta: Any, reference: np.ndarray) -> float:
    error = distance(theta, reference)
    if not error < TOLERANCE:
        sys.exit(f"{size}: {name} is {error:.1e} from the float64 reference")
    return error


def timed(
    size: tuple[int, int], calls: dict[str, Call], reference: np.ndarray, rounds: int
) -> tuple[dict[str, Timing], dict[str, float]]:
    """Times, and the total variation of the rows that there is a reference of."""
    errors: dict[str, float] = {}

    def check(name: str, theta: Any) -> None:
        if name != ONCE:
            errors[name] = checked(size, name, theta[: len(reference)], reference)

    return timing.interleaved(calls, rounds, check), errors


def lines_of(
    size: tuple[int, int],
    problem: str,
    times: dict[str, Timing],
    errors: dict[str, float],
    device: jax.Array,
    rows_timed: dict[str, int] | None = None,
) -> list[dict[str, Any]]:
    base, least = next(iter(times.values())).median, times[ONCE].median
    return [
        {
            "size": list(size),
            "problem": problem,
            "name": name,
            "rows_timed": (rows_timed or {}).get(name, size[0]),
            "seconds": time,
            "ratio": time.median / base,
            # Estimates are as wide as counts, so that all read and write as much.
            "of_bandwidth": least / time.median,
            "bytes_per_second": 2 * device.nbytes / time.median,
            "total_variation": errors.get(name),
        }
        for name, time in times.items()
    ]


def memory(size: tuple[int, int]) -> list[dict[str, Any]]:
    """Extra memory of the compiled program, in arrays of the input's size."""
    rows: list[dict[str, Any]] = []
    dtype = jnp.result_type(int)
    shape = jax.ShapeDtypeStruct(size, dtype)
    epsilon = jax.ShapeDtypeStruct((), jnp.result_type(float))
    for solver in SOLVERS:
        function: Any = jitted(partial(rrjax.mle_star, solver=solver))
        analysis = function.lower(shape, epsilon).compile().memory_analysis()
        used = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
        row = {"size": list(size), "solver": solver, "bytes": used}
        rows.append(row | {"arrays": used / (size[0] * size[1] * dtype.itemsize)})
    return rows


def table_of(problem: str, rows: list[dict[str, Any]]) -> Table:
    compiled = ("rrjax", "optax", "numba")
    lines: list[list[str]] = []
    for row in rows:
        if row["problem"] != problem:
            continue
        time: Timing = row["seconds"]
        compilation = pretty(time.compilation) if row["name"].startswith(compiled) else ""
        whole = row["rows_timed"] == row["size"][0]
        scaled = "" if whole else f" (scaled from {row['rows_timed']} rows)"
        lines.append(
            [
                f"{shape(row['size'])} {row['name']}{scaled}",
                pretty(time.median),
                timing.spread(time),
                str(time.runs),
                f"{row['ratio']:.2f}" if row["ratio"] < 10 else f"{row['ratio']:,.0f}",
                bandwidth.percent(row["of_bandwidth"]),
                compilation,
                "" if row["total_variation"] is None else f"{row['total_variation']:.0e}",
            ]
        )
    header = ["size, method", "median", "range", "runs", "ratio", "of bandwidth", "compilation", "error"]
    note = (
        f"ε = {EPSILON:g}, N = {NUM_USERS:,}, Zipf({EXPONENT}). Ratio: median over that of the "
        "first line of the size (above 1: rrjax is faster). Of bandwidth: the median of adding one to "
        "the counts, compiled by XLA, over this one. Error: largest total variation from the float64 "
        "reference (of inv relative to the sum of its magnitudes). Compilation: first call less the median."
    )
    return Table(problem, header, lines, note)


def summary_of(rows: list[dict[str, Any]]) -> Table:
    """How the paper's loop, NumPy and numba compare with the newton solver of `mle_star`."""
    sorting = f"numpy {jnp.result_type(float)}"
    lines: list[list[str]] = []
    # The large size has no competitors.
    sizes = {tuple(row["size"]): None for row in rows if row["name"] == sorting}
    for size in sizes:
        here = [r for r in rows if r["problem"] == "mle_star" and tuple(r["size"]) == size]
        plain = {r["name"]: r["ratio"] for r in here}
        numpy = {name: plain[name] for name in (sorting, "numpy int32")}
        best = min(numpy, key=lambda name: numpy[name])
        loop = next(ratio for name, ratio in plain.items() if name.startswith("paper"))
        fastest = min(("newton", "sort"), key=lambda solver: plain[f"rrjax {solver}"])
        lines.append(
            [
                shape(size),
                f"{loop:,.0f}×",
                f"{plain[sorting]:.2f}×",
                f"{numpy[best]:.2f}× ({best})",
                f"{plain['numba']:.2f}×" if "numba" in plain else "",
                fastest,
            ]
        )
    header = ["size", "paper's loop", sorting, "best NumPy", "numba", "fastest solver"]
    note = (
        "How many times faster mle_star's newton solver is (below 1: slower), and which of rrjax's "
        "solvers is the faster one."
    )
    return Table("summary: mle_star", header, lines, note)


def fastest_solvers(rows: list[dict[str, Any]]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for row in rows:
        if row["name"] == "rrjax sort":
            solver = "newton" if row["ratio"] > 1 else "sort"
            chosen[f"{row['problem']} {shape(row['size'])}"] = solver
    return chosen


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--x64", action="store_true", help="float64 estimates from int64 counts")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each, at least 7")
    parser.add_argument(
        "--device-only", action="store_true", help="rrjax and the memory alone, no competitors of the host"
    )
    options = parser.parse_args()
    if options.x64:
        jax.config.update("jax_enable_x64", True)
    sizes = QUICK if options.quick else SIZES
    jax.block_until_ready(rrjax.inv(np.array([1, 2]), EPSILON))  # starts the backend
    rows: list[dict[str, Any]] = []
    for size in sizes:
        print(f"timing {shape(size)}", file=sys.stderr)
        rows.extend(measure(size, max(7, options.rounds), options.device_only))
    large = bandwidth.large(options.quick)
    if large is not None:
        print(f"timing {shape(large)}", file=sys.stderr)
        rows.extend(measure_large(large, max(7, options.rounds)))
    used = [row for size in MEMORY_SIZES for row in memory(size)]
    memory_table = Table(
        "peak extra memory of mle_star",
        ["size, solver", "arrays of the input's size"],
        [[f"{shape(row['size'])} {row['solver']}", f"{row['arrays']:.2f}"] for row in used],
        "Temporary buffers and output of the compiled program, by XLA's own account.",
    )
    problems = ("mle_star", "inv_p", "inv_n", "inv")
    tables = [bandwidth.table(rows), *(table_of(problem, rows) for problem in problems), memory_table]
    if not options.device_only:
        tables.insert(0, summary_of(rows))
    fastest = fastest_solvers(rows)
    record = {"rows": rows, "memory": used, "fastest_solver": fastest}
    suffix = "-x64" * options.x64 + "-quick" * options.quick
    report.publish(options, "estimators", "Closed-form estimators", tables, record, suffix)
    print("fastest solver by size: " + ", ".join(f"{k}: {v}" for k, v in fastest.items()))


if __name__ == "__main__":
    main()
