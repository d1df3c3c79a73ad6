"""Compares results of this machine's accelerator, of its CPU and of float64 in one run.

Speed means nothing where results are wrong: a GPU may multiply in TF32, order its sums otherwise, or compile another
branch. Every function runs on the same inputs on the default device, on the CPU, and on the CPU in float64. Without an
accelerator the first two are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import baselines
import jax
import jax.numpy as jnp
import numpy as np
import report
from report import Table, shape

import rrjax
from rrjax import inference, mechanisms, simulate

EPSILON = 3.0
NUM_USERS = 1_000_000
SIZES = [(1000, 50), (20, 10_000), (2, 100_000)]
QUICK = [(20, 50), (2, 2000)]
REPORTS, REPORTED = 5000, 200
"""Users and categories of the likelihoods of whole reports."""


@dataclass(frozen=True)
class Case:
    """A function of arrays, and how far its results may differ: the contract of float32 for it."""

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    allowed: float
    how: str = "total variation"


def total_variation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum(-1).max() / 2)


def largest(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max())


DISTANCES = {"total variation": total_variation, "largest difference": largest}


def of_counts(size: tuple[int, int]) -> Iterator[Case]:
    counts = baselines.zipf_counts(*size, EPSILON, NUM_USERS, 1.3)
    law = np.tile(baselines.zipf(size[1], 1.3), (size[0], 1))
    for name, estimator in (("mle_star", rrjax.mle_star), ("inv_p", rrjax.inv_p), ("inv_n", rrjax.inv_n)):
        yield Case(f"{name} {shape(size)}", rows(estimator), (counts, EPSILON), 1e-6)
    weights = (counts.astype(float), EPSILON)
    yield Case(f"mle_star, weights {shape(size)}", rows(rrjax.mle_star), weights, 1e-5)
    per_report = jax.vmap(rrjax.nll, in_axes=(0, 0, None))
    yield Case(f"nll {shape(size)}", per_report, (law, counts, EPSILON), 1e-5, "largest difference")
    certified = jax.vmap(lambda *given: rrjax.certificate(*given).gap, in_axes=(0, 0, None))
    yield Case(f"certificate {shape(size)}", certified, (law, counts, EPSILON), 1e-3, "largest difference")
    few = (counts[:2], EPSILON)
    for name, most in (("empirical_bayes", 10_000), ("ibu", 1000)):
        if size[1] <= most:  # more categories take long to compile or to run
            theta = rows(lambda *given, name=name: getattr(rrjax, name)(*given).theta)
            yield Case(f"{name} [2 × {size[1]:,}]", theta, few, 1e-3)
    limits = jax.vmap(lambda *given: jnp.stack(inference.intervals(*given)), in_axes=(0, None))
    yield Case(f"intervals [2 × {size[1]:,}]", limits, few, 1e-5, "largest difference")


def rows(estimator: Callable[..., Any]) -> Callable[..., Any]:
    return jax.vmap(estimator, in_axes=(0, None))


def of_reports() -> Iterator[Case]:
    """Likelihoods of whole reports: products of matrices, where TF32 would show."""
    values = np.random.default_rng(0).choice(REPORTED, REPORTS, p=baselines.zipf(REPORTED, 1.3))
    for name in ("OptimizedUnaryEncoding", "SubsetSelection", "HadamardResponse", "LocalHashing"):
        mechanism = getattr(mechanisms, name)(REPORTED, 2.0)
        reports = jax.tree.map(np.asarray, mechanism.randomize(jax.random.key(0), values))

        def support(reports: Any, mechanism: Any = mechanism) -> Any:
            return mechanism.tally(reports).support

        def likelihood(theta: Any, reports: Any, mechanism: Any = mechanism) -> Any:
            return rrjax.nll(theta, mechanism.mixture(reports))

        law = baselines.zipf(REPORTED, 1.3)
        yield Case(f"tally, {name}", support, (reports,), 0, "largest difference")
        yield Case(f"nll of whole reports, {name}", likelihood, (law, reports), 1e-5, "largest difference")


def narrowed(arguments: Any, x64: bool) -> Any:
    """The same numbers, in the dtypes that JAX would give them."""

    def one(value: Any) -> Any:
        value = np.asarray(value)
        wide = {"f": (np.float32, np.float64), "i": (np.int32, np.int64)}.get(value.dtype.kind)
        return value if wide is None or value.dtype.itemsize < 4 else value.astype(wide[x64])

    return jax.tree.map(one, arguments)


def results(case: Case, device: Any, x64: bool = False) -> np.ndarray:
    with jax.enable_x64(x64), jax.default_device(device):
        given = jax.device_put(narrowed(case.arguments, x64), device)
        return np.asarray(jax.jit(case.call)(*given), np.float64)


def compared(case: Case) -> dict[str, Any]:
    here, host = jax.devices()[0], jax.devices("cpu")[0]
    distance = DISTANCES[case.how]
    on_host = results(case, host)
    on_device = on_host if here == host else results(case, here)
    exact = results(case, host, x64=True)
    return {
        "name": case.name,
        "how": case.how,
        "allowed": case.allowed,
        "devices": distance(on_device, on_host),
        "float64": distance(on_device, exact),
        "host_float64": distance(on_host, exact),
    }


def measure(cases: Iterator[Case]) -> list[dict[str, Any]]:
    """Most of the time is compilation, which runs beside that of others."""
    with ThreadPoolExecutor(min(8, report.num_cores())) as pool:
        return list(pool.map(compared, cases))


def table(found: list[dict[str, Any]]) -> Table:
    lines = [
        [
            row["name"],
            *(f"{row[key]:.1e}" for key in ("devices", "float64", "host_float64")),
            f"{row['allowed']:.0e}",
            row["how"],
            "yes" if agrees(row) else "no",
        ]
        for row in found
    ]
    header = ["", "device – CPU", "device – float64", "CPU – float64", "allowed", "distance", "agree"]
    note = "float32, and the same function on the CPU in float64. Total variation: the largest over the rows."
    return Table("results of the device and of the CPU", header, lines, note)


def agrees(row: dict[str, Any]) -> bool:
    return max(row["devices"], row["float64"]) <= row["allowed"]


def draws(sizes: list[tuple[int, int]]) -> tuple[list[dict[str, Any]], Table]:
    """Simulated collections of the same keys: the share of cells that are equal, and whether users are lost."""
    here, host = jax.devices()[0], jax.devices("cpu")[0]
    found: list[dict[str, Any]] = []
    for number, size in sizes:
        for name, sampler in (("counts", simulate.counts), ("collect", lambda *given: simulate.collect(*given)[1])):
            batch = jax.jit(jax.vmap(sampler, in_axes=(0, None, None, None)))
            both: list[np.ndarray] = []
            for device in (here, host):
                with jax.default_device(device):
                    keys = jax.device_put(jax.random.split(jax.random.key(0), number), device)
                    both.append(np.asarray(batch(keys, simulate.zipf(size, 1.3), NUM_USERS, EPSILON)))
            lost = [not (one.sum(-1, dtype=np.int64) == NUM_USERS).all() or one.min() < 0 for one in both]
            same, name = float((both[0] == both[1]).mean()), f"{name} [{number:,} × {size:,}]"
            deviation = standardized(both[0], size)
            found.append({"name": name, "equal": same, "lost": any(lost), "deviation": deviation})
    lines = [
        [row["name"], f"{row['equal']:.2%}", f"{row['deviation']:.2f}", "yes" if row["lost"] else "no"] for row in found
    ]
    header = ["", "cells equal on device and CPU", "largest deviation of a mean, s.e.", "users lost"]
    note = (
        "Same keys. Rounding of a law may move single users, so equal cells are no promise; equal sums are. The "
        "deviation of a category's mean count over the rows is from its law, on the device, where ten are expected."
    )
    return found, Table("simulated collections", header, lines, note)


def standardized(counts: np.ndarray, size: int) -> float:
    law = 1 + np.expm1(EPSILON) * baselines.zipf(size, 1.3)
    expected = NUM_USERS * law / law.sum()
    error = np.sqrt(expected * (1 - expected / NUM_USERS) / len(counts))
    score = np.abs(counts.mean(0) - expected) / error
    return float(score[expected >= 10].max())


def main() -> None:
    options = report.parser(__doc__).parse_args()
    sizes = QUICK if options.quick else SIZES

    def cases() -> Iterator[Case]:
        for size in sizes:
            yield from of_counts(size)
        yield from of_reports()

    found = measure(cases())
    drawn, of_draws = draws(sizes)
    record = {"results": found, "draws": drawn}
    report.publish(options, "agreement", "Results on this device", [table(found), of_draws], record)
    wrong = [row["name"] for row in found if not agrees(row)]
    wrong += [row["name"] for row in drawn if row["lost"] or row["deviation"] > 6]
    if wrong:
        sys.exit(f"beyond what is allowed: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
