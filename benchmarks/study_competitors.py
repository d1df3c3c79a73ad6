"""The child of the grid's competitors: one round of the paper's procedure and of the NumPy pipeline.

They need the grid from rrjax, and nothing else.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import baselines
import numpy as np
from study_grid import make_study


def measure(given: dict[str, Any]) -> dict[str, Any]:
    """The NumPy pipeline on some whole configurations, the paper's procedure on single collections."""
    study = make_study(given["quick"])
    configurations = study.configurations()
    pairs = len(study.epsilon) * len(study.zipf)
    turn, stride = given["round"], given["stride"]
    sampled = range(turn * max(1, stride // given["rounds"]) % stride % pairs, pairs, stride)
    numpy_sampled = sampled
    if given["full"]:
        numpy_sampled = [i for i in range(pairs) if (i + i // len(study.zipf)) % given["rounds"] == turn]

    def places(some: Iterable[int]) -> Iterator[tuple[int, Any, np.ndarray]]:
        for pair in some:
            for index in range(pair, len(configurations), pairs):
                c = configurations[index]
                yield index, c, baselines.zipf(c.num_categories, c.population)

    check(configurations)
    measured: dict[str, list[Any]] = {"paper": [], "numpy": []}

    def time_one(
        name: str, procedure: Callable[..., Any], index: int, c: Any, law: np.ndarray, number: int, start: int
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
