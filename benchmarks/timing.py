"""What the benchmark scripts share: interleaved timing, the machine in words, tables.

Nothing here imports JAX at the top: `command_line.py` must stay a small process.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("jax", "jaxlib", "numpy", "numba", "optax", "duckdb", "multi-freq-ldpy")
FAST = 0.25  # seconds: below this a run is preceded by an untimed one, which warms the caches


@dataclass(frozen=True)
class Timing:
    """Seconds of one competitor; `first` is its very first call, compilation included."""

    median: float
    least: float
    most: float
    runs: int
    first: float

    @property
    def compilation(self) -> float:
        return max(self.first - self.median, 0.0)


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def summarize(times: Sequence[float], first: float | None = None) -> Timing:
    return Timing(
        median=statistics.median(times),
        least=min(times),
        most=max(times),
        runs=len(times),
        first=times[0] if first is None else first,
    )


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    inspect: Callable[[str, Any], None] = lambda name, result: None,
    patience: float = 3.0,
) -> dict[str, Timing]:
    """Times competitors in turns, so that what slows the machine down for a while slows all.

    Every competitor is called once, for its compilation; `inspect(name, result)` may abort there.
    Then each round times one run of each, and starts with another one than the round before. A run
    that takes less than `FAST` follows an untimed run of the same competitor. One that has used up
    `patience` seconds after three rounds drops out.
    """
    first: dict[str, float] = {}
    for name, call in calls.items():
        begin = time.perf_counter()
        result = call()
        first[name] = time.perf_counter() - begin
        inspect(name, result)
        # A result that lived on would keep the allocator from handing its memory to the next call.
        del result
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            spent = times[name]
            if len(spent) >= 3 and sum(spent) > patience:
                continue
            if (spent[-1] if spent else first[name]) < FAST:
                calls[name]()
            spent.append(seconds(calls[name]))
    return {name: summarize(times[name], first[name]) for name in calls}


def environment() -> dict[str, Any]:
    """Describes hardware and versions, without names or paths of this machine."""
    import jax
    import numpy as np

    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    device = jax.devices()[0]
    config: Any = np.show_config(mode="dicts")
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": command(),
        "platform": device.platform,
        "device": device.device_kind,
        "num_devices": jax.device_count(),
        "cpu": cpu_model(),
        "num_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        # NumPy's sort is several times faster where it finds AVX-512.
        "numpy_simd": config.get("SIMD Extensions", {}).get("found", []),
        "x64": bool(jax.config.read("jax_enable_x64")),
        "versions": versions,
    }


def command() -> str:
    arguments: list[str] = []
    given = iter(sys.argv[1:])
    for argument in given:
        if argument == "--out":
            next(given, None)
        elif not argument.startswith("--out="):
            arguments.append(argument)
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def parser(description: str | None) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return result


@dataclass
class Table:
    """A titled table, for the terminal and for Markdown."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        lines = [f"## {self.title}", ""]
        lines.append("| " + " | ".join(self.header) + " |")
        lines.append("|" + "---|" + "---:|" * (len(self.header) - 1))
        lines.extend("| " + " | ".join(row) + " |" for row in self.rows)
        if self.note:
            lines.extend(["", self.note])
        return "\n".join(lines) + "\n"

    def show(self) -> None:
        try:
            from rich.console import Console
            from rich.table import Table as RichTable
        except ImportError:
            print(self.markdown())
            return
        table = RichTable(title=self.title, caption=self.note or None)
        for position, name in enumerate(self.header):
            table.add_column(name, justify="left" if position == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        Console(width=None if sys.stdout.isatty() else 140).print(table)


def _numbers(record: Any) -> str:
    """Raw numbers on one line, to six digits."""

    def short(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.6g}")
        if isinstance(value, dict):
            return {key: short(one) for key, one in value.items()}
        return [short(one) for one in value] if isinstance(value, list | tuple) else value

    return json.dumps(short(json.loads(json.dumps(record, default=_plain))), separators=(",", ":"))


def write(out: Path, name: str, title: str, tables: Sequence[Table], record: Any) -> None:
    """Writes `name`.json (raw numbers) and `name`.md (the tables), both with the environment."""
    about = environment()
    out.mkdir(parents=True, exist_ok=True)
    lines = (f"{json.dumps(key)}: {_numbers(value)}" for key, value in {"environment": about, **record}.items())
    (out / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    head = [
        f"# {title}\n",
        f"`{about['command']}`, {about['date']}. Device: {about['platform']} ({about['device']}); "
        f"host: {about['cpu']}, {about['num_cores']} cores, {about['memory_gib']} GiB; "
        f"load average at the end {about['load_average']}. {versions}. "
        f"NumPy found {', '.join(about['numpy_simd']) or 'no SIMD extensions'}.\n",
    ]
    page = "\n".join([*head, *(table.markdown() for table in tables)])
    (out / f"{name}.md").write_text(page)
    print(f"wrote {name}.json and {name}.md")


def _plain(value: Any) -> Any:
    if isinstance(value, Timing):
        return asdict(value) | {"compilation": value.compilation}
    return value.item() if hasattr(value, "item") else str(value)


def pretty(value: float) -> str:
    """Seconds, in the unit that reads best."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"
