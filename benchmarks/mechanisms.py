"""Seconds of clients and of counting for every mechanism, against multi-freq-ldpy where it has them.

Its clients take one user a call, its counting of hashes one report and category at a time: both are timed on some of
the users, and their time is multiplied up. Then processor seconds: whole reports of unary encoding against a stored
float32 matrix, and the counting of hashes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import report
import timing
from report import Table
from timing import pretty, spread

import rrjax
from rrjax.data.linear_maps import Dense, LinearMap
from rrjax.mechanisms import MECHANISMS, LocalHashing, OptimizedUnaryEncoding, ProjectiveGeometry, PureMechanism
from rrjax.numerics.pytrees import pytree

SIZE, USERS, EPSILON = 10_000, 100_000, 1.0
POINTS, MANY = 20_000, 1_000_000
"""Of projective geometry response alone."""


def peers(size: int) -> dict[str, tuple[Callable[[int], Any], Callable[[list[Any]], Any]]]:
    """Client and aggregation of multi-freq-ldpy, where it can be imported, by the names of mechanisms."""
    try:
        protocols = import_module("multi_freq_ldpy.pure_frequency_oracles")
    except ImportError:
        return {}
    GRR_Client, GRR_Aggregator_MI, LH_Client, LH_Aggregator_MI = (
        getattr(import_module(f"{protocols.__name__}.{module}"), f"{module}_{what}")
        for module in ("GRR", "LH")
        for what in ("Client", "Aggregator_MI")
    )
    UE_Client, UE_Aggregator_MI, SS_Client, SS_Aggregator_MI = (
        getattr(import_module(f"{protocols.__name__}.{module}"), f"{module}_{what}")
        for module in ("UE", "SS")
        for what in ("Client", "Aggregator_MI")
    )
    return {
        "randomized-response": (
            lambda value: GRR_Client(value, size, EPSILON),
            lambda reports: GRR_Aggregator_MI(reports, size, EPSILON),
        ),
        "symmetric-unary-encoding": (
            lambda value: UE_Client(value, size, EPSILON, False),
            lambda reports: UE_Aggregator_MI(reports, EPSILON, False),
        ),
        "optimized-unary-encoding": (
            lambda value: UE_Client(value, size, EPSILON, True),
            lambda reports: UE_Aggregator_MI(reports, EPSILON, True),
        ),
        "binary-local-hashing": (
            lambda value: LH_Client(value, size, EPSILON, False),
            lambda reports: LH_Aggregator_MI(reports, size, EPSILON, False),
        ),
        "optimized-local-hashing": (
            lambda value: LH_Client(value, size, EPSILON, True),
            lambda reports: LH_Aggregator_MI(reports, size, EPSILON, True),
        ),
        "subset-selection": (
            lambda value: SS_Client(value, size, EPSILON),
            lambda reports: SS_Aggregator_MI(reports, size, EPSILON),
        ),
    }


def _done(call: Callable[[], Any]) -> Any:
    return jax.block_until_ready(call())


def measured(mechanism: PureMechanism, values: np.ndarray, rounds: int) -> tuple[timing.Timing, timing.Timing]:
    """Of making reports for a simulation, and of counting them."""
    key = jax.random.key(0)
    reports = mechanism.randomize(key, values)
    calls = {
        "client": partial(_done, lambda: mechanism.randomize(key, values)),
        "tally": partial(_done, lambda: mechanism.tally(reports).support),
    }
    times = timing.interleaved(calls, rounds, patience=20)
    return times["client"], times["tally"]


def run(quick: bool) -> tuple[Table, list[dict[str, Any]]]:
    size, users = (200, 2000) if quick else (SIZE, USERS)
    values = np.random.default_rng(0).integers(0, size, users)
    others = peers(size)
    rows, record = [], []
    for name, kind in MECHANISMS.items():
        mechanism = kind(size, EPSILON)
        client, tally = measured(mechanism, values, 1 if quick else 2)
        secure = timing.summarize([timing.seconds(_secure(name, size, values))])
        row = [name, spread(client), spread(secure), spread(tally)]
        facts: dict[str, Any] = {"mechanism": name, "client": client, "secure": secure, "tally": tally}
        if name in others:
            theirs, sums = _theirs(*others[name], values, 20 if quick else 200, 20 if "hashing" in name else 200)
            row += [pretty(theirs), f"{theirs / client.median:,.3g} ×", pretty(sums), f"{sums / tally.median:,.3g} ×"]
            facts |= {"their_client": theirs, "their_tally": sums}
        else:
            row += ["–"] * 4
        rows.append(row)
        record.append(facts)
    return Table(
        f"K = {size:,}, N = {users:,}, ε = {EPSILON:g}",
        [
            "",
            "client (simulation)",
            "client (secure)",
            "counting",
            "their client",
            "ratio",
            "their counting",
            "ratio",
        ],
        rows,
        "Theirs: multi-freq-ldpy, on some of the users, multiplied up. Ratios are to the client of simulations, as "
        "theirs is seeded too.",
    ), record


def _theirs(
    make: Callable[[int], Any], aggregate: Callable[[list[Any]], Any], values: np.ndarray, few: int, counted: int
) -> tuple[float, float]:
    """Seconds of their clients and of their counting for all users, from some of them."""
    aggregate([make(int(value)) for value in values[:2]])  # compiled by then
    made: list[Any] = []
    client = timing.seconds(lambda: made.extend(make(int(value)) for value in values[:few]))
    made = made[:counted]
    return client * len(values) / few, timing.seconds(lambda: aggregate(made)) * len(values) / len(made)


def _secure(name: str, size: int, values: np.ndarray) -> Callable[[], Any]:
    client = rrjax.secure.client(name, num_categories=size, epsilon=EPSILON)
    return lambda: client.randomize(values)


def planes(quick: bool) -> tuple[Table, list[dict[str, Any]]]:
    size, users = (200, 2000) if quick else (POINTS, MANY)
    values = np.random.default_rng(0).integers(0, size, users)
    rows, record = [], []
    for epsilon in (1.0, 3.0) if quick else (1.0, 2.0, 3.0, 4.0):
        mechanism = ProjectiveGeometry(size, epsilon)
        client, tally = measured(mechanism, values, 1 if quick else 5)
        bound = 4 * math.exp(epsilon) * size / math.expm1(epsilon) ** 2
        ratio = mechanism.rates_by(math.expm1).total_variance(size) / bound
        rows.append([f"{epsilon:g}", f"{mechanism.field_order}", f"{mechanism.num_columns:,}", f"{ratio:.3f}",
                     spread(client), spread(tally), pretty(tally.compilation)])  # fmt: skip
        record.append({"epsilon": epsilon, "client": client, "tally": tally})
    return Table(
        f"projective geometry response, K = {size:,}, N = {users:,}",
        ["ε", "field", "planes", "error over 4e^εK/(N(e^ε−1)²)", "client", "decoding", "first call beyond that"],
        rows,
    ), record


@pytree()
class Stored(LinearMap):
    """The baseline: a matrix of floats and `@`, without a promise of accuracy."""

    matrix: jax.Array
    scale: Any

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def __call__(self, theta: jax.Array) -> jax.Array:
        return self.scale * (self.matrix @ theta)

    def transpose(self, weights: jax.Array) -> jax.Array:
        return self.scale * (weights @ self.matrix)


def processor(call: Callable[[], Any], rounds: int) -> timing.Timing:
    first = timing.processor_seconds(lambda: _done(call))
    return timing.summarize([timing.processor_seconds(lambda: _done(call)) for _ in range(rounds)], first)


def whole_reports(quick: bool) -> tuple[Table, list[dict[str, Any]]]:
    users, size = (1000, 100) if quick else (20_000, 1000)
    mechanism = OptimizedUnaryEncoding(size, EPSILON)
    shares = 1 / np.arange(1, size + 1)
    values = np.random.default_rng(0).choice(size, users, p=shares / shares.sum())
    ours = mechanism.mixture(mechanism.randomize(jax.random.key(0), values))
    assert isinstance(ours.lift, Dense)
    stored = dataclasses.replace(ours, lift=Stored(ours.lift.matrix.astype(jnp.float32), ours.lift.scale))
    uniform = jnp.full(size, 1 / size, jnp.float32)
    weights = jnp.full(ours.lift.shape[0], 1 / users, jnp.float32)
    forth, back = jax.jit(lambda lift: lift(uniform)), jax.jit(lambda lift: lift.transpose(weights))
    rows, record = [], []
    for name, lift, mixture in (("rrjax", ours.lift, ours), ("stored float32", stored.lift, stored)):
        result = rrjax.ibu(mixture)
        times = [
            processor(partial(forth, lift), 20),
            processor(partial(back, lift), 20),
            processor(partial(rrjax.ibu, mixture), 1 if quick else 3),
        ]
        steps, gap = int(result.num_iters), float(result.gap)
        rows.append([name, *map(spread, times), f"{steps}", f"{gap:.1e}"])
        record.append({"lift": name, "forth": times[0], "back": times[1], "ibu": times[2], "steps": steps, "gap": gap})
    return Table(
        f"processor time of whole reports of optimized unary encoding, K = {size:,}, N = {users:,}, ε = {EPSILON:g}",
        ["", "B·θ", "Bᵀ·w", "ibu", "steps", "gap"],
        rows,
        "float32, all threads, without compilation. The baseline stores the bits as float32 and multiplies by `@`.",
    ), record


def hashes(quick: bool) -> tuple[Table, list[dict[str, Any]]]:
    users, size = (1000, 2000) if quick else (100_000, 100_000)
    mechanism = LocalHashing(size, EPSILON)
    reports = np.array(mechanism.randomize(jax.random.key(0), np.random.default_rng(0).integers(0, size, users)))
    few = reports.copy()
    few[:, 0] %= 100
    rows, record = [], []
    for name, given in (("a seed each", reports), ("100 seeds", few)):
        time = processor(lambda given=given: mechanism.tally(given).support, 1)
        rows.append([name, spread(time), f"{time.median / users / size * 1e9:.2g} ns"])
        record.append({"seeds": name, "tally": time})
    return Table(
        f"processor time of counting, optimized local hashing, K = {size:,}, N = {users:,}, ε = {EPSILON:g}",
        ["", "counting", "per report and category"],
        rows,
    ), record


def main() -> None:
    options = report.parser(__doc__).parse_args()
    table, record = run(options.quick)
    decoding, decoded = planes(options.quick)
    whole, of_whole = whole_reports(options.quick)
    counting, counted = hashes(options.quick)
    values = {"mechanisms": record, "planes": decoded, "whole_reports": of_whole, "hashes": counted}
    report.publish(options, "mechanisms", "Mechanisms", [table, decoding, whole, counting], values)


if __name__ == "__main__":
    main()
