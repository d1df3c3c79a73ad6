"""Times the study engine: the paper's whole grid from a cold start, the samplers alone, and how the engine scales.

Every part runs in a process of its own. This one stays small and imports neither JAX nor NumPy before the end: on Linux
a child's peak memory includes what its parent held when it started.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import timing
from timing import Table, pretty

PARTS = ("grid", "samplers", "scaling")
GOALS = {"seconds": 30, "aim": 15, "numpy": 4, "paper": 60, "memory": 4e9, "sampler": 2, "sampler aim": 5}
METRICS = ("mse", "nll", "bias2", "variance")
ESTIMATORS = ("mle_star", "inv_p", "inv_n", "inv")
SAMPLER_AT = (10_000, 1_000_000)  # where the goal of the samplers is set
SAMPLER_KEYS, SAMPLER_EPSILON, EXPONENT = 25, 4.0, 1.3


def main() -> None:
    parser = timing.parser(__doc__)
    parser.set_defaults(out=None)
    parser.add_argument("--quick", action="store_true", help="everything on a tiny grid; writes only with --out")
    parser.add_argument("--full", action="store_true", help="run the NumPy pipeline on the whole grid")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="which parts to run")
    parser.add_argument("--rounds", type=int, default=3, help="cold starts, with a share of the competitors after each")
    parser.add_argument("--paper-seconds", type=float, default=60, help="budget of the paper's procedure, in all")
    parser.add_argument("--stride", type=int, default=7, help="competitors: every which pair (ε, s); no multiple of 3")
    parser.add_argument("--devices", type=int, default=os.cpu_count() or 1, help="CPU devices of the study")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)  # what to do, and the file for the answer
    parser.add_argument("--given", type=json.loads, default={}, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        answer = CHILDREN[options.child[0]](options.given)
        Path(options.child[1]).write_text(json.dumps(answer))
        return
    if options.stride < 1 or options.rounds < 1 or options.devices < 1:
        parser.error("--stride, --rounds and --devices must be at least 1")

    quick = {"quick": options.quick}
    tables: list[Table] = []
    record: dict[str, Any] = {"goals": GOALS, "quick": options.quick}
    platforms: set[str] = set()
    if "grid" in options.parts:
        found = run_grid(options)
        record["grid"] = found
        platforms.add(found["studies"][0]["platform"])
        tables.extend(grid_tables(found))
    if "samplers" in options.parts:
        record["samplers"] = []
        for alone in (True, False):
            found = child("samplers", quick | {"alone": alone}, f"samplers, {threads(alone)}")
            platforms.add(found["platform"])
            if found["rows"]:
                record["samplers"].append(found)
                tables.append(sampler_table(found))
    if "scaling" in options.parts:
        found = child("scaling", quick | {"devices": options.devices}, "scaling")
        record["scaling"] = found
        platforms.add(found["platform"])
        tables.extend(scaling_tables(found))
    for table in tables:
        table.show()
    out = options.out or (None if options.quick else timing.RESULTS)
    if out is not None:
        timing.write(out, f"study-{platforms.pop()}", "The study engine", tables, record)


def child(name: str, given: dict[str, Any], words: str) -> Any:
    """What another process answers; `seconds` in it counts from here, the start of the interpreter included."""
    print(f"timing {words}", file=sys.stderr, flush=True)
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # a cold start
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        given = given | {"since": time.time()}
        command = [sys.executable, __file__, "--child", name, str(answer), "--given", json.dumps(given)]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code != 0:
            sys.exit(f"the process for {words} ended with {code}")
        return json.loads(answer.read_text())


# The whole grid.


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


def start_jax(devices: int) -> Any:
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    return jax


def study_child(given: dict[str, Any]) -> dict[str, Any]:
    """The study from a cold start, then once more with another seed."""
    jax = start_jax(given["devices"])
    import numpy as np

    compilations: list[tuple[float, float]] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append((time.time() - given["since"], duration))

    jax.monitoring.register_event_duration_secs_listener(listen)
    study = make_study(given["quick"])
    device = jax.devices()[0]
    ready = time.time() - given["since"]
    result = study.run(seed=0)
    whole = time.time() - given["since"]
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
        "seeds": study.num_seeds,
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


def run_grid(options: argparse.Namespace) -> dict[str, Any]:
    """Cold starts of the study, and after each a share of the competitors' sample."""
    rounds = 1 if options.quick else options.rounds
    given = {
        "quick": options.quick,
        "devices": options.devices,
        "rounds": rounds,
        "stride": min(options.stride, 2) if options.quick else options.stride,
        "full": options.full,
        "budget": (min(options.paper_seconds, 3) if options.quick else options.paper_seconds) / rounds,
    }
    studies: list[Any] = []
    competitors: list[Any] = []
    for turn in range(rounds):
        words = f"round {turn + 1} of {rounds}"
        studies.append(child("study", given, f"the study, {words}"))
        competitors.append(child("competitors", given | {"round": turn}, f"the competitors, {words}"))
    deviations = {name: deviation(name, studies, competitors) for name in ("paper", "numpy")}
    for study in studies:
        del study["means"]
    for found in competitors:
        for name in deviations:
            for sample in found[name]:
                del sample["mse"], sample["nll"]
    return {"studies": studies, "competitors": competitors, "deviations": deviations, "full": options.full}


def deviation(name: str, studies: list[Any], competitors: list[Any]) -> float:
    """Largest standardized deviation, over estimators and metrics, of a competitor's results from the study's.

    Both draw at random. Each sampled configuration gives a difference of means over its standard error, and these are
    added up over the configurations. Ends the script where chance does not explain it.
    """
    means, number = studies[0]["means"], studies[0]["seeds"]
    worst = 0.0
    for metric in ("mse", "nll"):
        for estimator, label in enumerate(ESTIMATORS):
            scores: list[float] = []
            for sample in (sample for found in competitors for sample in found[name]):
                mean = means[metric][sample["configuration"]][estimator]
                spread = means[f"{metric}_se"][sample["configuration"]][estimator] * math.sqrt(number)
                spread = max(spread, 1e-4 * abs(mean), 1e-9)  # float32 shows where nothing else varies
                score = (sample[metric][estimator] - mean) / spread
                score /= math.sqrt(1 / sample["collections"] + 1 / number)
                scores.append(min(max(score, -10.0), 10.0))
            total = abs(sum(scores)) / math.sqrt(len(scores))
            if total > 6:
                sys.exit(f"{name}: the {metric} of {label} is {total:.1f} standard errors from the study's")
            worst = max(worst, total)
    return worst


# The competitors. They need the grid from rrjax, and nothing else.


def competitors_child(given: dict[str, Any]) -> dict[str, Any]:
    """One round: the NumPy pipeline on some whole configurations, the paper's procedure on single collections."""
    import numpy as np

    study = make_study(given["quick"])
    configurations = study.configurations()
    pairs = len(study.epsilon) * len(study.zipf)
    turn, stride = given["round"], given["stride"]
    sampled = range(turn * max(1, stride // given["rounds"]) % stride % pairs, pairs, stride)
    numpy_sampled = sampled
    if given["full"]:
        numpy_sampled = [i for i in range(pairs) if (i + i // len(study.zipf)) % given["rounds"] == turn]

    def places(some: Any) -> Iterator[tuple[int, Any, Any]]:
        for pair in some:
            for index in range(pair, len(configurations), pairs):
                c = configurations[index]
                law = np.arange(1, c.num_categories + 1, dtype=np.float64) ** -c.population
                yield index, c, law / law.sum()

    check_competitors(configurations)
    measured: dict[str, list[Any]] = {"paper": [], "numpy": []}

    def measure(
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
        numpy_pipeline(np.random.default_rng(0), law, c.num_users, c.epsilon, 2)
        paper_procedure(np.random.default_rng(0), law, c.num_users, c.epsilon, 1)
    spent = 0.0
    for index, c, law in places(sampled):
        spent += measure("paper", paper_procedure, index, c, law, 1, 0)
        if not given["full"]:
            measure("numpy", numpy_pipeline, index, c, law, study.num_seeds, 0)
    if given["full"]:
        for index, c, law in places(numpy_sampled):
            measure("numpy", numpy_pipeline, index, c, law, study.num_seeds, 0)
    once, start = spent, 1
    while spent + once <= given["budget"] and start < study.num_seeds:  # more seeds of all, or of none
        spent += sum(measure("paper", paper_procedure, *place, 1, start) for place in places(sampled))
        start += 1
    per_cell = pairs * study.num_seeds  # collections of the grid that have the same K and N
    cells = [[k, n, per_cell] for k in study.num_categories for n in study.num_users]
    return {"cells": cells, **measured}


def paper_procedure(rng: Any, law: Any, num_users: int, epsilon: float, number: int) -> tuple[Any, Any]:
    """Collection by collection and user by user, in float64: values, reports, histograms, estimates, metrics.

    Arrays hold the users, each of whom draws a value and randomizes it. MSE and NLL come as `[number, 4]`.
    """
    import baselines
    import numpy as np

    num_categories = len(law)
    q = 1 / (math.exp(epsilon) + num_categories - 1)
    p = math.exp(epsilon) * q
    mse, nll = np.zeros((2, number, len(ESTIMATORS)))
    for row in range(number):
        values = rng.choice(num_categories, size=num_users, p=law)
        truthful = rng.random(num_users) < p
        others = rng.integers(0, num_categories - 1, num_users)
        others += others >= values
        reports = np.where(truthful, values, others)
        truth = np.bincount(values, minlength=num_categories) / num_users
        counts = np.bincount(reports, minlength=num_categories)
        phi = counts / num_users
        inversion = (phi - q) / (p - q)
        positive = np.maximum(inversion, 0)
        estimates = (
            baselines.paper_loop(counts[None], epsilon)[0],
            project(inversion),
            positive / positive.sum(),
            inversion,
        )
        seen = phi > 0
        for column, theta in enumerate(estimates):
            mse[row, column] = np.sum((theta - truth) ** 2)
            nll[row, column] = -np.sum(phi[seen] * np.log(q + (p - q) * theta[seen]))
    return mse, nll


def project(theta: Any) -> Any:
    """The closest point of the simplex, by a sort."""
    import numpy as np

    ordered = np.sort(theta)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(theta) + 1)
    return np.maximum(theta - excess[np.flatnonzero(ordered > excess)[-1]], 0)


def numpy_pipeline(rng: Any, law: Any, num_users: int, epsilon: float, number: int) -> tuple[Any, Any]:
    """All collections of a configuration at once, from sufficient statistics, in float32 as rrjax.

    MSE and NLL come as `[number, 4]`.
    """
    import numpy as np

    num_categories = len(law)
    d = math.expm1(epsilon) / (math.expm1(epsilon) + num_categories)
    q = np.float32((1 - d) / num_categories)
    kappa = rng.binomial(num_users, d, size=number)
    kept = rng.multinomial(kappa, law)
    true_counts = rng.multinomial(num_users - kappa, law)
    true_counts += kept
    counts = rng.multinomial(num_users - kappa, np.full(num_categories, 1 / num_categories))
    counts += kept
    truth = true_counts.astype(np.float32)
    truth *= np.float32(1 / num_users)
    counts = counts.astype(np.int32)
    phi = counts * np.float32(1 / num_users)
    mse, nll = np.zeros((2, number, len(ESTIMATORS)))
    for column, theta in enumerate(numpy_estimates(counts, epsilon)):
        difference = theta - truth
        mse[:, column] = np.einsum("ij,ij->i", difference, difference)
        theta *= np.float32(d)
        theta += q
        np.maximum(theta, np.float32(1e-30), out=theta)  # the inversion's are zero where nobody reports
        nll[:, column] = -np.einsum("ij,ij->i", phi, np.log(theta, out=theta))
    return mse, nll


def numpy_estimates(counts: Any, epsilon: float) -> Iterator[Any]:
    """MLE*, InvP, InvN and inversion of `[rows, K]`, one after the other, in new arrays, float32.

    MLE* and InvP share one sort and one cumulative sum, of integers, as in `baselines.numpy_int32`.
    """
    import numpy as np

    e1 = math.expm1(epsilon)
    num_rows, num_categories = counts.shape
    ordered = np.sort(counts, axis=1)
    sums = np.cumsum(ordered, axis=1, dtype=np.int32)
    rows, total = np.arange(num_rows), sums[:, -1]
    kept = total * (e1 / (e1 + num_categories))

    def support(drop: Callable[[Any, Any, Any], Any]) -> tuple[Any, Any]:
        """The number of counts that are not dropped, and their sum."""
        low, high = np.zeros(num_rows, np.int64), np.full(num_rows, num_categories - 1)
        for _ in range((num_categories - 1).bit_length()):
            middle = (low + high) >> 1
            count = ordered[rows, middle]
            dropped = drop(total - sums[rows, middle] + count, count, num_categories - middle)
            low = np.where(dropped, middle + 1, low)
            high = np.where(dropped, high, middle)
        np.minimum(low, num_categories - 1, out=low)
        return num_categories - low, total - sums[rows, low] + ordered[rows, low]

    def filled(tau: Any, height: Any, clip: bool = True) -> Any:
        theta = np.subtract(counts, tau.astype(np.float32)[:, None], dtype=np.float32, casting="unsafe")
        if clip:
            np.maximum(theta, 0, out=theta)
        theta *= (1 / (theta.sum(1) if height is None else height)).astype(np.float32)[:, None]
        return theta

    size, mass = support(lambda mass, count, size: mass > count * (e1 + size))
    tau = mass / (e1 + size)
    yield filled(tau, mass - size * tau)
    size, mass = support(lambda mass, count, size: mass - size * count > kept)
    yield filled((mass - kept) / size, kept)
    tau = total / (e1 + num_categories)
    yield filled(tau, None)
    yield filled(tau, kept, clip=False)


def check_competitors(configurations: list[Any]) -> None:
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
        found = {f"NumPy {name}": x for name, x in zip(references, numpy_estimates(counts, c.epsilon), strict=True)}
        found["paper's InvP"] = np.stack([project(row) for row in inversion])
        found["paper's MLE*"] = baselines.paper_loop(counts, c.epsilon)
        for name, theta in found.items():
            reference = references[name.split()[-1]]
            distance = np.abs(theta - reference).sum(1) / np.abs(reference).sum(1) / 2
            if not distance.max() < (1e-3 if name == "NumPy InvP" else 1e-5):
                sys.exit(f"{name} is {distance.max():.1e} from the reference, {c.describe()}")


def extrapolate(competitors: list[Any], name: str) -> dict[str, Any]:
    """Seconds on the whole grid: of every K and N, the mean over what was measured times its collections."""
    cells: list[dict[str, Any]] = []
    for num_categories, num_users, collections in competitors[0]["cells"]:
        samples = [x for found in competitors for x in found[name] if x["cell"] == [num_categories, num_users]]
        number, seconds = sum(x["collections"] for x in samples), sum(x["seconds"] for x in samples)
        cells.append(
            {
                "cell": (num_categories, num_users),
                "seconds": seconds / number * collections,
                "measured": number,
                "collections": collections,
                "spent": seconds,
            }
        )
    return {
        "seconds": sum(cell["seconds"] for cell in cells),
        "measured": sum(cell["measured"] for cell in cells),
        "collections": sum(cell["collections"] for cell in cells),
        "spent": sum(cell["spent"] for cell in cells),
        "cells": cells,
    }


def grid_tables(found: dict[str, Any]) -> list[Table]:
    studies, competitors = found["studies"], found["competitors"]
    first = studies[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found["cores"] = cores

    def row(
        label: str, values: list[float], goal: str = "", reached: bool | None = None, show: Any = pretty
    ) -> list[str]:
        spread = f"{show(min(values))} – {show(max(values))}" if len(values) > 1 else ""
        return [label, show(statistics.median(values)), spread, goal, verdict(reached)]

    def of(name: str) -> list[float]:
        return [study[name] for study in studies]

    def gigabytes(value: float) -> str:
        return f"{value / 1e9:.2f} GB"

    cold, again = statistics.median(of("seconds")), statistics.median(of("again"))
    lines = [
        row("from the start of Python to the result", of("seconds"), "≤ 30 s", cold <= GOALS["seconds"]),
        row("… aim", of("seconds"), "≤ 15 s", cold <= GOALS["aim"]),
        row("of it: imports, devices", of("ready")),
        row("until the last program was compiled", of("last_compiled")),
        row("compiling, all threads together", of("compiling")),
        row("again in this process, another seed: all but compilation", of("again")),
        row("peak memory", of("memory"), "≤ 4 GB", max(of("memory")) <= GOALS["memory"], gigabytes),
        row("peak memory, second run included", of("memory_again"), show=gigabytes),
    ]
    if first["device_memory"] is not None:
        lines.append(row("peak memory, the first device", of("device_memory"), show=gigabytes))
    title = (
        f"the study: {first['configurations']:,} configurations × {first['seeds']} seeds × {len(ESTIMATORS)} estimators"
    )
    tables = [
        Table(
            title,
            ["", "median", "least – most", "goal", "reached"],
            lines,
            f"Metrics: {', '.join(METRICS)}. {first['devices']}; {len(studies)} fresh processes without a compilation "
            f"cache. Programs compiled in the second run: {first['compiled_again']}.",
        )
    ]

    lines = []
    for name, label in (("paper", "(a) the paper's procedure"), ("numpy", "(b) NumPy, sufficient statistics")):
        total = extrapolate(competitors, name)
        found[name] = total
        rounds = [
            extrapolate([one], name)["seconds"] / study["seconds"]
            for one, study in zip(competitors, studies, strict=True)
        ]
        ratio = total["seconds"] / cold
        total["ratio"], total["ratios"] = ratio, rounds
        share = total["measured"] / total["collections"]
        goal = GOALS[name]
        lines.append(
            [
                label + (", extrapolated" if share < 1 else ""),
                pretty(total["seconds"]),
                f"{share:.2%} in {pretty(total['spent'])}",
                f"{ratio:.3g}" + (f" ({min(rounds):.3g} – {max(rounds):.3g})" if len(rounds) > 1 else ""),
                f"≥ {goal}",
                verdict(ratio >= goal),
                f"{ratio / cores:.3g}",
                f"{total['seconds'] / again:.3g}",
            ]
        )
    tables.append(
        Table(
            "against NumPy, on the whole grid",
            [
                "",
                "time",
                "collections measured",
                "ratio (rounds)",
                "goal",
                "reached",
                f"if on {cores} cores perfectly",
                "ratio to the second run",
            ],
            lines,
            "Extrapolated: of every K and N, the mean over the measured collections times all collections of this K "
            "and N, added up. The sample takes every K and N and a systematic part of the pairs (ε, s); after "
            "every cold start another part. (a): arrays of single users who draw and randomize, float64, the published "
            "loop; (b): all seeds of a configuration at once, float32. Both use one core, and compute MSE and NLL only "
            "(the study also bias and variance). A ratio is their time over the study's from a cold start, compilation "
            "included. Means of MSE and NLL differ from the study's by at most "
            f"{found['deviations']['paper']:.1f} (a) and {found['deviations']['numpy']:.1f} (b) standard errors.",
        )
    )
    cells = {name: {tuple(c["cell"]): c["seconds"] for c in found[name]["cells"]} for name in ("paper", "numpy")}
    users = sorted({n for _, n in cells["paper"]})
    tables.append(
        Table(
            "seconds of (a) | (b) by K and N",
            ["K", *(f"N = {n:,}" for n in users), "all"],
            [
                [
                    f"{k:,}",
                    *(f"{cells['paper'][k, n]:.3g} | {cells['numpy'][k, n]:.3g}" for n in users),
                    " | ".join(f"{sum(cells[name][k, n] for n in users):.3g}" for name in ("paper", "numpy")),
                ]
                for k in sorted({k for k, _ in cells["paper"]})
            ],
            "Extrapolated as above.",
        )
    )
    return tables


def verdict(reached: bool | None) -> str:
    return "" if reached is None else "yes" if reached else "no"


# The samplers.


def samplers_child(given: dict[str, Any]) -> dict[str, Any]:
    """`simulate.counts` and `simulate.collect`, batched over keys, against NumPy's multinomial."""
    if given["alone"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before any thread pool is made
    import jax
    import numpy as np

    from rrjax import simulate

    answer: dict[str, Any] = {"platform": jax.default_backend(), "alone": given["alone"], "rows": []}
    if given["alone"] and (answer["platform"] != "cpu" or not hasattr(os, "sched_setaffinity")):
        return answer
    sizes, users = ((200,), (1000, 10**6)) if given["quick"] else ((50, 1000, 10_000, 100_000), (10**3, 10**6, 10**9))
    keys = jax.random.split(jax.random.key(0), SAMPLER_KEYS)
    rng = np.random.default_rng(0)
    batched = {
        name: jax.jit(jax.vmap(function, in_axes=(0, None, None, None)))
        for name, function in (("counts", simulate.counts), ("collect", simulate.collect))
    }
    for num_categories in sizes:
        theta = jax.numpy.asarray(simulate.zipf(num_categories, EXPONENT))
        law = np.arange(1, num_categories + 1, dtype=np.float64) ** -EXPONENT
        law /= law.sum()
        d = math.expm1(SAMPLER_EPSILON) / (math.expm1(SAMPLER_EPSILON) + num_categories)
        uniform = np.full(num_categories, 1 / num_categories)
        reported = d * law + (1 - d) * uniform
        reported /= reported.sum()
        for num_users in users:

            def ours(name: str, theta: Any = theta, num_users: int = num_users) -> Any:
                return jax.block_until_ready(
                    batched[name](keys, theta, np.int32(num_users), np.float32(SAMPLER_EPSILON))
                )

            def compose(law: Any = law, num_users: int = num_users, d: float = d, uniform: Any = uniform) -> Any:
                kappa = rng.binomial(num_users, d, size=SAMPLER_KEYS)
                kept = rng.multinomial(kappa, law)
                true_counts = rng.multinomial(num_users - kappa, law)
                true_counts += kept
                kept += rng.multinomial(num_users - kappa, uniform)
                return true_counts, kept

            def inspect(name: str, result: Any, num_users: int = num_users) -> None:
                for one in jax.tree.leaves(result):
                    if not (np.asarray(one).sum(1, dtype=np.int64) == num_users).all() or np.asarray(one).min() < 0:
                        sys.exit(f"{name} lost users, N = {num_users:,}")

            calls = {
                "counts": lambda ours=ours: ours("counts"),
                "multinomial": lambda n=num_users, law=reported: rng.multinomial(n, law, size=SAMPLER_KEYS),
                "collect": lambda ours=ours: ours("collect"),
                "composition": compose,
            }
            times = timing.interleaved(calls, 3 if given["quick"] else 7, inspect, patience=2.0)
            answer["rows"].append(
                {"K": num_categories, "N": num_users, **{name: asdict(time) for name, time in times.items()}}
            )
    return answer


def threads(alone: bool) -> str:
    return "one core" if alone else "as is"


def sampler_table(found: dict[str, Any]) -> Table:
    lines: list[list[str]] = []
    goal = ""
    for row in found["rows"]:
        line = [f"{row['K']:,}, {row['N']:,}"]
        for mine, other in (("counts", "multinomial"), ("collect", "composition")):
            each = [row[name]["median"] / (SAMPLER_KEYS * row["K"]) * 1e9 for name in (mine, other)]
            ratio = each[1] / each[0]
            line += [f"{each[0]:.1f}", f"{each[1]:.1f}", f"{ratio:.2f}"]
            if (row["K"], row["N"]) == SAMPLER_AT:
                reached = f"{verdict(ratio >= GOALS['sampler'])} (aim: {verdict(ratio >= GOALS['sampler aim'])})"
                goal += f" {mine}: {ratio:.1f}, reached: {reached}."
        lines.append(line)
    return Table(
        f"samplers, nanoseconds per category, {threads(found['alone'])}",
        ["K, N", "counts", "NumPy", "ratio", "collect", "NumPy", "ratio"],
        lines,
        f"{SAMPLER_KEYS} collections in one call (vmap over keys, jitted; NumPy: size or an array of totals), Zipf "
        f"{EXPONENT}, ε = {SAMPLER_EPSILON:g}. NumPy: Generator.multinomial on the law of the reports; for collect the "
        "three multinomials that it is composed of. Goal at K = 10,000, N = 1,000,000: a ratio of 2, aim 5." + goal,
    )


# How the engine scales.

BASE: dict[str, Any] = {
    "num_categories": 10_000,
    "num_users": 100_000,
    "epsilon": (1.0, 4.0, 10.0),
    "zipf": (0.01, 1.3, 2.5),
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


def scaling_child(given: dict[str, Any]) -> dict[str, Any]:
    """`Study.run` with everything compiled, over one size at a time."""
    jax = start_jax(given["devices"])
    from rrjax.study import Study

    quick = given["quick"]
    base = BASE | ({"num_categories": 200, "num_seeds": 20} if quick else {"num_seeds": 100})
    rows: list[dict[str, Any]] = []
    for name, values in (QUICK_SCALES if quick else SCALES).items():
        calls: dict[str, Callable[[], Any]] = {}
        cells: dict[str, int] = {}
        for value in values:
            setting: dict[str, Any] = base
            batch_size = value if name == "batch_size" else None
            if name != "batch_size":
                setting = setting | {name: value}
            study = Study(estimators=ESTIMATORS, metrics=METRICS, **setting)
            seeds = iter(range(10**6))
            calls[str(value)] = lambda study=study, seeds=seeds, batch=batch_size: study.run(
                seed=next(seeds), batch_size=batch
            )
            cells[str(value)] = len(study.configurations()) * study.num_seeds * study.num_categories[0]
        times = timing.interleaved(calls, 3 if quick else 7)
        rows.extend(
            {"scale": name, "value": value, "cells": cells[str(value)], "seconds": asdict(times[str(value)])}
            for value in values
        )
    return {
        "platform": jax.default_backend(),
        "devices": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "base": base,
        "rows": rows,
    }


def scaling_tables(found: dict[str, Any]) -> list[Table]:
    base = found["base"]
    words = {"num_categories": "K", "num_users": "N", "num_seeds": "seeds", "batch_size": "batch_size"}
    tables: list[Table] = []
    for name, word in words.items():
        lines: list[list[str]] = []
        for row in found["rows"]:
            if row["scale"] != name:
                continue
            time = row["seconds"]
            lines.append(
                [
                    "default" if row["value"] is None else f"{row['value']:,}",
                    pretty(time["median"]),
                    f"{pretty(time['least'])} – {pretty(time['most'])}",
                    f"{time['median'] / row['cells'] * 1e9:.1f}",
                    pretty(time["first"]),
                ]
            )
        rest = [f"{words[key]} = {base[key]:,}" for key in ("num_categories", "num_users", "num_seeds") if key != name]
        tables.append(
            Table(
                f"Study.run against {word}, without compilation",
                [word, "median", "least – most", "ns per collection and category", "first call"],
                lines,
                f"{', '.join(rest)}; ε = {', '.join(f'{e:g}' for e in base['epsilon'])}; Zipf "
                f"{', '.join(f'{s:g}' for s in base['zipf'])}; {len(ESTIMATORS)} estimators, "
                f"{', '.join(METRICS)}; {found['devices']}. The first call compiles, unless an earlier one compiled "
                "the same program. A study has fixed costs, which the smallest sizes show.",
            )
        )
    return tables


CHILDREN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "study": study_child,
    "competitors": competitors_child,
    "samplers": samplers_child,
    "scaling": scaling_child,
}


if __name__ == "__main__":
    main()
