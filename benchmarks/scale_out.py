"""`Study.run` on more devices and more processes of one machine: seconds, speed-up and efficiency.

A large part of the paper's grid, on one device whose process is bound to one core, and on several: of one process, of
two processes that `jax.distributed` joined, and more devices than there may be cores. Every setting starts fresh
processes, in turns. Where no process is bound to a core, the results must be the same to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import report
from report import Table
from study_parts import ESTIMATORS, METRICS, start_jax
from timing import pretty

GRID: dict[str, Any] = {
    "num_categories": (1000, 10_000),
    "num_users": (100, 1000, 10_000, 100_000, 1_000_000),
    "epsilon": tuple(float(epsilon) for epsilon in range(1, 11)),
    "zipf": (0.01, 1.3, 2.5),
    "num_seeds": 100,
}
QUICK: dict[str, Any] = {
    "num_categories": (200,),
    "num_users": (1000, 100_000),
    "epsilon": (1.0, 4.0),
    "zipf": (0.01, 1.3),
    "num_seeds": 20,
}
NAMES = {"K": "num_categories", "N": "num_users"}
WARM = 3
"""Runs after the first one, in the same process."""


class Setting(NamedTuple):
    """On what a study runs."""

    processes: int
    devices: int
    """Of each process."""
    alone: bool = False
    """Whether the process is bound to one core."""

    @property
    def words(self) -> str:
        processes = f"{self.processes} process{'es' * (self.processes > 1)}"
        devices = f"{self.devices} device{'s' * (self.devices > 1)}"
        return f"{processes} × {devices}{', one core' * self.alone}"


SETTINGS = (Setting(1, 1, alone=True), Setting(1, 1), Setting(1, 2), Setting(2, 1), Setting(1, 4))
"""The first is what the others are compared with: XLA computes on one device with several threads."""


def measure(given: dict[str, Any]) -> dict[str, Any]:
    """What one process of a setting finds."""
    if given["alone"]:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before any thread pool is made
    jax = start_jax(given["devices"])
    if given["processes"] > 1:
        jax.distributed.initialize(given["address"], given["processes"], given["process"])
    from rrjax.study import Study

    study = Study(estimators=ESTIMATORS, metrics=METRICS, **(QUICK if given["quick"] else GRID))
    result = study.run(seed=0)
    cold = time.time() - given["since"]
    digest = hashlib.sha256()
    for name in sorted(map(str, result.data_vars)):
        digest.update(name.encode() + result[name].values.tobytes())
    times = []
    for seed in range(1, 1 + WARM):
        begin = time.perf_counter()
        study.run(seed=seed)
        times.append(time.perf_counter() - begin)
    count = jax.device_count()
    return {"cold": cold, "times": times, "digest": digest.hexdigest(), "devices": count}


def measured(setting: Setting, quick: bool) -> dict[str, Any]:
    """What process 0 of a setting finds, after all of them ended well and agreed."""
    print(f"timing {setting.words}", file=sys.stderr, flush=True)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # a cold start
    with tempfile.TemporaryDirectory() as folder:
        answers = [Path(folder) / f"{process}.json" for process in range(setting.processes)]
        given = setting._asdict() | {"quick": quick, "address": address, "since": time.time()}
        started = [
            subprocess.Popen(
                [sys.executable, __file__, "measure", str(answer), json.dumps(given | {"process": process})],
                env=environment,
                stdout=subprocess.DEVNULL,  # Gloo tells that it is connected
            )
            for process, answer in enumerate(answers)
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            sys.exit(f"{setting.words}: the processes ended with {', '.join(map(str, codes))}")
        found = [json.loads(answer.read_text()) for answer in answers]
    if found[0]["devices"] != setting.processes * setting.devices:
        sys.exit(f"{setting.words}: there were {found[0]['devices']} devices")
    if len({one["digest"] for one in found}) > 1:
        sys.exit(f"{setting.words}: the processes have different results")
    return found[0]


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--rounds", type=int, help="times that every setting is started; by default 3, or 1")
    options = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    rounds = options.rounds or (1 if options.quick else 3)
    settings = [one for one in SETTINGS if not one.alone or hasattr(os, "sched_setaffinity")]
    found: dict[Setting, list[dict[str, Any]]] = {setting: [] for setting in settings}
    for turn in range(rounds):
        shift = turn % len(settings)
        for setting in settings[shift:] + settings[:shift]:
            found[setting].append(measured(setting, options.quick))
    record = {"grid": QUICK if options.quick else GRID, "settings": rows(found)}
    digests = {setting: {one["digest"] for one in each} for setting, each in found.items()}
    # For XLA one core is another machine: there it compiles another program.
    if len(set.union(*(each for setting, each in digests.items() if not setting.alone))) > 1:
        table(record).show()
        each = (f"{setting.words}: {', '.join(sorted(one[:8] for one in digests[setting]))}" for setting in found)
        sys.exit(f"nothing is written, for the results differ: {'; '.join(each)}")
    whole = table(record)
    whole.note += " Where no process is bound to a core, all results were the same to the last bit."
    report.publish(options, "scale-out", "A study on more devices and processes", [whole], record)


def rows(found: dict[Setting, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Medians, and ratios to the first setting."""
    result: list[dict[str, Any]] = []
    for setting, each in found.items():
        times = [seconds for one in each for seconds in one["times"]]
        row: dict[str, Any] = {"words": setting.words, **setting._asdict()}
        row |= {"median": statistics.median(times), "least": min(times), "most": max(times), "runs": len(times)}
        row["cold"] = statistics.median(one["cold"] for one in each)
        row["speed-up"] = (result[0] if result else row)["median"] / row["median"]
        most = 1 if setting.alone else min(setting.processes * setting.devices, report.num_cores())
        row["efficiency"] = row["speed-up"] / most
        result.append(row)
    return result


def table(record: dict[str, Any]) -> Table:
    lines = [
        [
            row["words"],
            pretty(row["median"]),
            f"{pretty(row['least'])} – {pretty(row['most'])}",
            pretty(row["cold"]),
            f"{row['speed-up']:.2f}",
            f"{row['efficiency']:.0%}",
        ]
        for row in record["settings"]
    ]
    grid = record["grid"]
    sizes = [f"{name} = {', '.join(f'{value:,}' for value in grid[key])}" for name, key in NAMES.items()]
    runs = record["settings"][0]["runs"]
    return Table(
        "Study.run on more devices and processes",
        ["on", "median", "least – most", "cold", "speed-up", "efficiency"],
        lines,
        f"{'; '.join(sizes)}; ε = {', '.join(f'{e:g}' for e in grid['epsilon'])}; Zipf "
        f"{', '.join(f'{s:g}' for s in grid['zipf'])}; {grid['num_seeds']} seeds; {len(ESTIMATORS)} estimators; "
        f"{', '.join(METRICS)}. Median of {runs} runs that compile nothing of weight; cold: from the start of Python "
        "to the first result, imports and compilation included, without a compilation cache. Speed-up: against the "
        f"first row. Efficiency: speed-up / the lesser of devices and cores ({report.num_cores()}).",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        Path(sys.argv[2]).write_text(json.dumps(measure(json.loads(sys.argv[3]))))
    else:
        main()
