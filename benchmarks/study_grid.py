"""The whole grid of the paper, from a cold start; `study_competitors.py` runs what it is compared with."""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import report
import timing
from report import Table
from study_process import ESTIMATORS, GOALS, METRICS, child, start_jax, verdict
from timing import pretty


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


def measure(given: dict[str, Any]) -> dict[str, Any]:
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


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[Table]]:
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
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            words = f"round {turn + 1} of {rounds}"
            studies.append(child("grid", given | {"once": False}, f"the study, {words}"))
            if turn == 0:
                child("grid", given | {"once": True}, "the study, which keeps its programs", folder)
            again = child("grid", given | {"once": True}, f"the study with its programs, {words}", folder)
            studies[-1]["kept"] = again["seconds"]
            competitors.append(child("competitors", given | {"round": turn}, f"the competitors, {words}"))
    deviations = {name: deviation(name, studies, competitors) for name in ("paper", "numpy")}
    for study in studies:
        del study["means"]
    for found in competitors:
        for name in deviations:
            for sample in found[name]:
                del sample["mse"], sample["nll"]
    cores = report.num_cores()
    totals = {name: total_of(name, studies, competitors) for name in deviations}
    record = {"studies": studies, "competitors": competitors, "deviations": deviations, "full": options.full}
    tables = [of_the_study(studies), against(totals, deviations, studies, cores), by_size(totals)]
    return record | {"cores": cores, **totals}, tables


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


def extrapolate(competitors: list[Any], name: str) -> dict[str, Any]:
    """Seconds on the whole grid: of every K and N, the mean over what was measured times its collections."""
    cells: list[dict[str, Any]] = []
    for num_categories, num_users, collections in competitors[0]["cells"]:
        samples = [x for found in competitors for x in found[name] if x["cell"] == [num_categories, num_users]]
        measured, spent = (sum(x[key] for x in samples) for key in ("collections", "seconds"))
        cell = {"cell": (num_categories, num_users), "seconds": spent / measured * collections}
        cells.append(cell | {"measured": measured, "collections": collections, "spent": spent})
    total = {key: sum(cell[key] for cell in cells) for key in ("seconds", "measured", "collections", "spent")}
    return total | {"cells": cells}


def total_of(name: str, studies: list[Any], competitors: list[Any]) -> dict[str, Any]:
    """What `extrapolate` finds of all rounds, and the ratios to the study, of all rounds and of each."""
    total = extrapolate(competitors, name)
    cold = statistics.median(study["seconds"] for study in studies)
    pairs = zip(competitors, studies, strict=True)
    rounds = [extrapolate([one], name)["seconds"] / study["seconds"] for one, study in pairs]
    return total | {"ratio": total["seconds"] / cold, "ratios": rounds}


def of_the_study(studies: list[Any]) -> Table:
    first = studies[0]
    lines: list[list[str]] = []

    def line(
        label: str,
        name: str,
        goal: str = "",
        reached: Callable[[list[float]], bool] | None = None,
        show: Callable[[float], str] = pretty,
    ) -> None:
        values = [study[name] for study in studies]
        spread = f"{show(min(values))} – {show(max(values))}" if len(values) > 1 else ""
        kept = verdict(None if reached is None else reached(values))
        lines.append([label, show(statistics.median(values)), spread, goal, kept])

    def gigabytes(value: float) -> str:
        return f"{value / 1e9:.2f} GB"

    whole = "from the start of Python to the result"
    line(whole, "seconds", "≤ 12 s", lambda cold: statistics.median(cold) <= GOALS["seconds"])
    line("of it: imports, devices", "ready")
    line("until the last program was compiled", "last_compiled")
    line("compiling, all threads together", "compiling")
    with_programs = "from the start of Python, with the programs of a run before in the user's cache"
    line(with_programs, "kept", "≤ 7 s", lambda seconds: statistics.median(seconds) <= GOALS["kept"])
    again = "again in this process, another seed: all but compilation"
    line(again, "again", "≤ 5 s", lambda warm: statistics.median(warm) <= GOALS["again"])
    line("peak memory", "memory", "≤ 4 GB", lambda memory: max(memory) <= GOALS["memory"], gigabytes)
    line("peak memory, second run included", "memory_again", show=gigabytes)
    if first["device_memory"] is not None:
        line("peak memory, the first device", "device_memory", show=gigabytes)
    size = f"{first['configurations']:,} configurations × {first['seeds']} seeds × {len(ESTIMATORS)} estimators"
    return Table(
        f"the study: {size}",
        ["", "median", "least – most", "goal", "reached"],
        lines,
        f"Metrics: {', '.join(METRICS)}. {first['devices']}; {len(studies)} fresh processes without a compilation "
        f"cache. Programs compiled in the second run: {first['compiled_again']}.",
    )


def against(totals: dict[str, Any], deviations: dict[str, float], studies: list[Any], cores: int) -> Table:
    again = statistics.median(study["again"] for study in studies)
    lines: list[list[str]] = []
    for name, label in (("paper", "(a) the paper's procedure"), ("numpy", "(b) NumPy, sufficient statistics")):
        total, goal = totals[name], GOALS[name]
        ratio, rounds = total["ratio"], total["ratios"]
        share = total["measured"] / total["collections"]
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
    header = ["", "time", "collections measured", "ratio (rounds)", "goal", "reached"]
    return Table(
        "against NumPy, on the whole grid",
        [*header, f"if on {cores} cores perfectly", "ratio to the second run"],
        lines,
        "Extrapolated: of every K and N, the mean over the measured collections times all collections of this K "
        "and N, added up. The sample takes every K and N and a systematic part of the pairs (ε, s); after "
        "every cold start another part. (a): arrays of single users who draw and randomize, float64, the published "
        "loop; (b): all seeds of a configuration at once, float32. Both use one core, and compute MSE and NLL only "
        "(the study also bias and variance). A ratio is their time over the study's from a cold start, compilation "
        "included. Means of MSE and NLL differ from the study's by at most "
        f"{deviations['paper']:.1f} (a) and {deviations['numpy']:.1f} (b) standard errors.",
    )


def by_size(totals: dict[str, Any]) -> Table:
    both = [{cell["cell"]: cell["seconds"] for cell in totals[name]["cells"]} for name in ("paper", "numpy")]
    categories, users = (sorted(set(column)) for column in zip(*both[0], strict=True))

    def line(num_categories: int) -> list[str]:
        rows = [[seconds[num_categories, num_users] for num_users in users] for seconds in both]
        cells = [*zip(*rows, strict=True), [sum(row) for row in rows]]
        return [f"{num_categories:,}", *(" | ".join(f"{seconds:.3g}" for seconds in cell) for cell in cells)]

    header = ["K", *(f"N = {num_users:,}" for num_users in users), "all"]
    rows = [line(num_categories) for num_categories in categories]
    return Table("seconds of (a) | (b) by K and N", header, rows, "Extrapolated as above.")
