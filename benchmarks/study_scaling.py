"""How the engine scales: `Study.run` with everything compiled, over one size at a time."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import timing
from report import Table
from study_process import ESTIMATORS, METRICS, child, start_jax
from timing import pretty

BASE: dict[str, Any] = {
    "num_categories": 10_000,
    "num_users": 100_000,
    "epsilon": (1.0, 4.0, 10.0),
    "zipf": (0.01, 1.3, 2.5),
    "num_seeds": 100,
}
SCALES: dict[str, list[Any]] = {
    "num_categories": [50, 100, 1000, 5000, 10_000, 100_000],
    "num_users": [100, 1000, 10_000, 100_000, 10**6, 10**9],
    "num_seeds": [2, 10, 30, 100, 300, 1000],
    "batch_size": [1, 2, 4, 8, None],
}
QUICK_SCALES: dict[str, list[Any]] = {
    "num_categories": [200],
    "num_users": [1000, 100_000],
    "num_seeds": [20],
    "batch_size": [5, None],  # on two devices 5 is the default
}
WORDS = {"num_categories": "K", "num_users": "N", "num_seeds": "seeds", "batch_size": "batch_size"}


def measure(given: dict[str, Any]) -> dict[str, Any]:
    jax = start_jax(given["devices"])
    from rrjax.study import Study

    quick = given["quick"]
    base = BASE | ({"num_categories": 200, "num_seeds": 20} if quick else {})
    rows: list[dict[str, Any]] = []

    def caller(study: Study, batch_size: int | None) -> Callable[[], Any]:
        seeds = itertools.count()
        return lambda: study.run(seed=next(seeds), batch_size=batch_size)

    for name, values in (QUICK_SCALES if quick else SCALES).items():
        calls: dict[str, Callable[[], Any]] = {}
        cells: dict[str, int] = {}
        for value in values:
            setting: dict[str, Any] = base if name == "batch_size" else base | {name: value}
            study = Study(estimators=ESTIMATORS, metrics=METRICS, **setting)
            calls[str(value)] = caller(study, value if name == "batch_size" else None)
            cells[str(value)] = len(study.configurations()) * study.num_seeds * study.num_categories[0]
        times = timing.interleaved(calls, 3 if quick else 7)
        rows.extend(
            {"scale": name, "value": value, "cells": cells[str(value)], "seconds": times[str(value)]}
            for value in values
        )
    devices = f"{jax.device_count()} × {jax.devices()[0].device_kind}"
    return {"platform": jax.default_backend(), "devices": devices, "base": base, "rows": rows}


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[Table]]:
    found = child("scaling", {"quick": options.quick, "devices": options.devices}, "scaling")
    return found, [table(found, name) for name in WORDS]


def table(found: dict[str, Any], name: str) -> Table:
    base, word = found["base"], WORDS[name]
    lines: list[list[str]] = []
    for row in found["rows"]:
        if row["scale"] != name:
            continue
        time = timing.Timing(**row["seconds"])
        size = "default" if row["value"] is None else f"{row['value']:,}"
        each = f"{time.median / row['cells'] * 1e9:.1f}"
        lines.append([size, pretty(time.median), timing.spread(time), each, pretty(time.first)])
    rest = [f"{WORDS[key]} = {base[key]:,}" for key in ("num_categories", "num_users", "num_seeds") if key != name]
    return Table(
        f"Study.run against {word}, without compilation",
        [word, "median", "least – most", "ns per collection and category", "first call"],
        lines,
        f"{', '.join(rest)}; ε = {', '.join(f'{e:g}' for e in base['epsilon'])}; Zipf "
        f"{', '.join(f'{s:g}' for s in base['zipf'])}; {len(ESTIMATORS)} estimators, "
        f"{', '.join(METRICS)}; {found['devices']}. The first call compiles, unless an earlier one compiled "
        "the same program. A study has fixed costs, which the smallest sizes show.",
    )
