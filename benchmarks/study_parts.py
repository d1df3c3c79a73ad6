"""The processes of `study.py`: each runs one function here and writes its answer.

Nothing here imports JAX, NumPy or rrjax at the top: `study.py` imports this file, a cold start is timed, and the
samplers bind the process to a core before any thread pool is made.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import report
import timing

METRICS = ("mse", "nll", "bias2", "variance")
ESTIMATORS = ("mle_star", "inv_p", "inv_n", "inv")
KEYS, EPSILON, EXPONENT = 25, 4.0, 1.3
MORE_KEYS, FEW_CATEGORIES = 100, 1000
"""Small histograms are drawn in larger batches, too."""
CELLS, MOST_KEYS, HOST_CELLS = 10**7, 10_000, 10**5
"""On a GPU: categories of a batch, and its largest number of keys; categories of the batch that NumPy draws."""
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


def start_jax(devices: int) -> Any:
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    return jax


def make_study(quick: bool) -> Any:
    """The paper's study, or a tiny one of its kind."""
    from rrjax.study import Study, paper

    if not quick:
        return paper.study()
    return Study(
        estimators=ESTIMATORS,
        num_categories=200,
        num_users=(1000, 100_000),
        epsilon=(1.0, 4.0, 8.0),
        zipf=(0.01, 1.3, 2.5),
        num_seeds=20,
        metrics=METRICS,
    )


def grid(given: dict[str, Any]) -> dict[str, Any]:
    """The study from a cold start, then once more with another seed; or once, as the command line keeps programs."""
    jax = start_jax(given["devices"])
    import numpy as np

    from rrjax.cli.cache import keeping_programs

    compilations: list[tuple[float, float]] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append((time.time() - given["since"], duration))

    jax.monitoring.register_event_duration_secs_listener(listen)
    study = make_study(given["quick"])
    device = jax.devices()[0]
    ready = time.time() - given["since"]
    with keeping_programs():  # where JAX may: a cold start has its cache off
        result = study.run(seed=0)
    whole = time.time() - given["since"]
    if given["once"]:
        return {"seconds": whole}
    memory = peak_memory()
    cold = list(compilations)
    again = timing.seconds(lambda: study.run(seed=1))
    statistics_of = getattr(device, "memory_stats", lambda: None)() or {}
    number = len(study.configurations())
    names = [name for metric in ("mse", "nll") for name in (metric, f"{metric}_se")]
    return {
        "platform": device.platform,
        "devices": f"{jax.device_count()} × {device.device_kind}",
        "configurations": number,
        "num_seeds": study.num_seeds,
        "seconds": whole,
        "ready": ready,
        "last_compiled": max((when for when, _ in cold), default=ready),
        "compiling": sum(duration for _, duration in cold),  # of all threads
        "again": again,
        "compiled_again": len(compilations) - len(cold),
        "memory": memory,
        "memory_again": peak_memory(),
        "device_memory": statistics_of.get("peak_bytes_in_use"),
        # [configurations, estimators]
        "means": {name: np.asarray(result[name]).reshape(-1, number).T.tolist() for name in names},
    }


def peak_memory() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def competitors(given: dict[str, Any]) -> dict[str, Any]:
    """One round: the NumPy pipeline on some whole configurations, the paper's procedure on single collections.

    They need the grid from rrjax, and nothing else.
    """
    import baselines
    import numpy as np

    study = make_study(given["quick"])
    configurations = study.configurations()
    pairs = len(study.epsilon) * len(study.zipf)
    turn, stride = given["round"], given["stride"]
    sampled = range(turn * max(1, stride // given["rounds"]) % stride % pairs, pairs, stride)
    numpy_sampled = sampled
    if given["full"]:
        numpy_sampled = [i for i in range(pairs) if (i + i // len(study.zipf)) % given["rounds"] == turn]

    def places(some: Iterable[int]) -> Iterator[tuple[int, Any, Any]]:
        for pair in some:
            for index in range(pair, len(configurations), pairs):
                c = configurations[index]
                yield index, c, baselines.zipf(c.num_categories, c.population)

    check(configurations)
    measured: dict[str, list[Any]] = {"paper": [], "numpy": []}

    def time_one(
        name: str, procedure: Callable[..., Any], index: int, c: Any, law: Any, number: int, start: int
    ) -> float:
        rng = np.random.default_rng([turn, index, start, len(name)])
        begin = time.perf_counter()
        mse, nll = procedure(rng, law, c.num_users, c.epsilon, number)
        seconds = time.perf_counter() - begin
        measured[name].append(
            {
                "configuration": index,
                "cell": [c.num_categories, c.num_users],
                "collections": number,
                "seconds": seconds,
                "mse": np.mean(mse, axis=0).tolist(),
                "nll": np.mean(nll, axis=0).tolist(),
            }
        )
        return seconds

    for _, c, law in list(places(sampled))[:2]:  # both touch their memory and caches once
        baselines.numpy_pipeline(np.random.default_rng(0), law, c.num_users, c.epsilon, 2)
        baselines.paper_procedure(np.random.default_rng(0), law, c.num_users, c.epsilon, 1)
    spent = 0.0
    for place in places(sampled):
        spent += time_one("paper", baselines.paper_procedure, *place, 1, 0)
        if not given["full"]:
            time_one("numpy", baselines.numpy_pipeline, *place, study.num_seeds, 0)
    if given["full"]:
        for place in places(numpy_sampled):
            time_one("numpy", baselines.numpy_pipeline, *place, study.num_seeds, 0)
    once, start = spent, 1
    while spent + once <= given["budget"] and start < study.num_seeds:  # more seeds of all, or of none
        spent += sum(time_one("paper", baselines.paper_procedure, *place, 1, start) for place in places(sampled))
        start += 1
    per_cell = pairs * study.num_seeds  # collections of the grid that have the same K and N
    cells = [[k, n, per_cell] for k in study.num_categories for n in study.num_users]
    return {"cells": cells, **measured}


def check(configurations: list[Any]) -> None:
    """Compares the estimates with float64 references before anything is timed.

    The pipeline's InvP subtracts a threshold just below a count, in float32: where N·d is below one, it is off by 1e-4.
    """
    import baselines
    import numpy as np

    for c in configurations[:: max(1, len(configurations) // 40)]:
        counts = baselines.zipf_counts(2, c.num_categories, c.epsilon, c.num_users, c.population)
        q = 1 / (math.exp(c.epsilon) + c.num_categories - 1)
        inversion = (counts / c.num_users - q) / (math.expm1(c.epsilon) * q)
        references = {
            "MLE*": baselines.numpy_float64(counts, c.epsilon),
            "InvP": baselines.projected_float64(counts, c.epsilon),
            "InvN": baselines.clipped(counts, c.epsilon, np.float64),
            "Inv": inversion,
        }
        estimates = zip(references, baselines.numpy_estimates(counts, c.epsilon), strict=True)
        found = {f"NumPy {name}": theta for name, theta in estimates}
        found["paper's InvP"] = np.stack([baselines.project(row) for row in inversion])
        found["paper's MLE*"] = baselines.paper_loop(counts, c.epsilon)
        for name, theta in found.items():
            reference = references[name.split()[-1]]
            distance = np.abs(theta - reference).sum(1) / np.abs(reference).sum(1) / 2
            if not distance.max() < (1e-3 if name == "NumPy InvP" else 1e-5):
                sys.exit(f"{name} is {distance.max():.1e} from the reference, {c.describe()}")


def samplers(given: dict[str, Any]) -> dict[str, Any]:
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


def scaling(given: dict[str, Any]) -> dict[str, Any]:
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


if __name__ == "__main__":
    _, name, answer, given = sys.argv
    measure = {"grid": grid, "competitors": competitors, "samplers": samplers, "scaling": scaling}[name]
    Path(answer).write_text(json.dumps(measure(json.loads(given)), default=report.plain))
