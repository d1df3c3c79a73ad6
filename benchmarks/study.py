"""Times the study engine: the paper's whole grid from a cold start, the samplers alone, and how the engine scales.

Every part is measured in processes of its own (`study_parts.py`). This one stays small and imports neither JAX nor
NumPy before the end: on Linux a child's peak memory includes what its parent held when it started. In each part a
function here starts the children and makes the tables.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import report
import timing
from report import Table
from study_parts import EPSILON, ESTIMATORS, EXPONENT, METRICS, WORDS
from timing import pretty

PARTS = Path(__file__).with_name("study_parts.py")
GOALS = {
    "seconds": 12,
    "kept": 7,
    "again": 5,
    "numpy": 2.5,
    "paper": 60,
    "memory": 4e9,
    "counts": 5,
    "collect": 4,
}
GOAL_AT = (10_000, 1_000_000)
"""K and N of the goals of the samplers."""


def child(name: str, given: dict[str, Any], words: str, kept: str | None = None) -> Any:
    """The answer of a function of `study_parts.py` in another process, which counts from here, `since`.

    It starts cold, or with the programs in `kept`, a folder that takes the place of the user's cache folder.
    """
    print(f"timing {words}", file=sys.stderr, flush=True)
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    if kept is None:
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    else:
        environment |= {"XDG_CACHE_HOME": kept, "JAX_ENABLE_COMPILATION_CACHE": "true"}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, str(PARTS), name, str(answer), json.dumps(given | {"since": time.time()})]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code != 0:
            sys.exit(f"the process for {words} ended with {code}")
        return json.loads(answer.read_text())


def verdict(reached: bool | None) -> str:
    return "" if reached is None else "yes" if reached else "no"


# --- The whole grid


def grid(options: argparse.Namespace) -> tuple[dict[str, Any], list[Table]]:
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
    means, number = studies[0]["means"], studies[0]["num_seeds"]
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
    size = f"{first['configurations']:,} configurations × {first['num_seeds']} seeds × {len(ESTIMATORS)} estimators"
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


# --- The samplers


def samplers(options: argparse.Namespace) -> tuple[list[Any], list[Table]]:
    """On one core, where that can be had, and as is."""
    found = [
        child("samplers", {"quick": options.quick, "alone": alone}, f"samplers, {threads(alone)}")
        for alone in (True, False)
    ]
    record = [one for one in found if one["rows"]]
    return record, [of_samplers(one) for one in record]


def threads(alone: bool) -> str:
    return "one core" if alone else "as is"


def of_samplers(found: dict[str, Any]) -> Table:
    lines: list[list[str]] = []
    goal = ""
    for row in found["rows"]:
        line = [f"{row['K']:,}, {row['N']:,}, {row['keys']}"]
        for mine, other in (("counts", "multinomial"), ("collect", "composition")):
            each = [
                row[name]["median"] / (row[keys] * row["K"]) * 1e9
                for name, keys in ((mine, "keys"), (other, "host_keys"))
            ]
            ratio = each[1] / each[0]
            line += [f"{each[0]:.3g}", f"{each[1]:.3g}", f"{ratio:.2f}"]
            if (row["K"], row["N"]) == GOAL_AT:
                goal += f" {mine}: {ratio:.1f}, reached: {verdict(ratio >= GOALS[mine])}."
        lines.append(line)
    return Table(
        f"samplers, nanoseconds per category, {threads(found['alone'])}",
        ["K, N, keys", "counts", "NumPy", "ratio", "collect", "NumPy", "ratio"],
        lines,
        f"A collection for each key in one call (vmap over keys, jitted; NumPy: size or an array of totals), Zipf "
        f"{EXPONENT}, ε = {EPSILON:g}. NumPy: Generator.multinomial on the law of the reports; for collect the "
        "three multinomials that it is composed of, beside a GPU for fewer keys. "
        "Goal: a ratio of 1 everywhere, and at K = 10,000, N = 1,000,000 of "
        f"{GOALS['counts']} for counts and {GOALS['collect']} for collect." + goal,
    )


# --- How it scales


def scaling(options: argparse.Namespace) -> tuple[dict[str, Any], list[Table]]:
    found = child("scaling", {"quick": options.quick, "devices": options.devices}, "scaling")
    return found, [of_scale(found, name) for name in WORDS]


def of_scale(found: dict[str, Any], name: str) -> Table:
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


def main() -> None:
    parts = {"grid": grid, "samplers": samplers, "scaling": scaling}
    parser = report.parser(__doc__)
    parser.add_argument("--full", action="store_true", help="run the NumPy pipeline on the whole grid")
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts), help="which parts to run")
    parser.add_argument("--rounds", type=int, default=3, help="cold starts, with a share of the competitors after each")
    parser.add_argument("--paper-seconds", type=float, default=60, help="budget of the paper's procedure, in all")
    parser.add_argument("--stride", type=int, default=7, help="competitors: every which pair (ε, s); no multiple of 3")
    parser.add_argument("--devices", type=int, default=os.cpu_count() or 1, help="CPU devices of the study")
    options = parser.parse_args()
    if options.stride < 1 or options.rounds < 1 or options.devices < 1:
        parser.error("--stride, --rounds and --devices must be at least 1")
    tables: list[Table] = []
    record: dict[str, Any] = {"goals": GOALS, "quick": options.quick}
    for name, part in parts.items():
        if name in options.parts:
            record[name], found = part(options)
            tables += found
    some = [f"-{name}" for name in parts if name in options.parts] if set(options.parts) != set(parts) else []
    report.publish(options, "study", "The study engine", tables, record, "".join(some))


if __name__ == "__main__":
    main()
