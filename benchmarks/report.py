"""What the scripts of `benchmarks/` and `validation/` share: options, tables, results with hardware and versions.

It lies in one of the two folders because a third one would hold nothing else. Python puts the folder of a script on its
path, so the scripts beside this file say `import report`; the editable install that they all need puts the repository
there too, so those of `validation/` say `from benchmarks import report`. Neither touches `sys.path`, and checkers find
both. Where results go follows from where the script lies.

Nothing here imports JAX at the top: `command_line.py` and `study.py` must stay small processes.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "jaxlib", "numpy", "numba", "optax", "duckdb", "multi-freq-ldpy")


def parser(description: str | None) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--quick", action="store_true", help="small sizes, to try the script; writes only with --out")
    result.add_argument("--out", type=Path, help="folder of the results; by default results/ beside the script")
    return result


def script() -> Path:
    return Path(sys.argv[0]).resolve()


def results(options: argparse.Namespace) -> Path:
    return options.out or script().parent / "results"


def num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        "num_cores": num_cores(),
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
    return " ".join(["python", f"{script().parent.name}/{script().name}", *arguments])


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def shape(size: Sequence[int]) -> str:
    """Of a batch of histograms, in words."""
    return f"[{size[0]:,} × {size[1]:,}]"


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


def publish(
    options: argparse.Namespace,
    name: str,
    title: str,
    tables: Sequence[Table],
    record: dict[str, Any],
    suffix: str = "",
) -> None:
    """Shows the tables; writes `name`-PLATFORM`suffix`.md, and .json (raw numbers), both with the environment."""
    for table in tables:
        table.show()
    if options.quick and options.out is None:
        return
    about = environment()
    name = f"{name}-{about['platform']}{suffix}"
    out = results(options)
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
    (out / f"{name}.md").write_text("\n".join([*head, *(table.markdown() for table in tables)]))
    print(f"wrote {name}.json and {name}.md")


def _numbers(record: Any) -> str:
    """Raw numbers on one line, to six digits."""

    def short(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.6g}")
        if isinstance(value, dict):
            return {key: short(one) for key, one in value.items()}
        return [short(one) for one in value] if isinstance(value, list | tuple) else value

    return json.dumps(short(json.loads(json.dumps(record, default=plain))), separators=(",", ":"))


def plain(value: Any) -> Any:
    """What JSON holds of a `Timing`, an array or a number of NumPy or JAX, or anything else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
