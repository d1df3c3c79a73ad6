"""What XLA makes of functions for an H100, which need not be there: kernels, bytes moved, waits of the host.

JAX compiles for a device of which it is told the properties (`h100.txtpb`, those that XLA itself finds on the card).
The text of the compiled program names every kernel with its operands, so the bytes that it moves can be added up. Time
is at least bytes over bandwidth, and more where a kernel computes longer than it reads; `estimators-gpu.md` has those
of a card. `--check` compares with the kept table, and fails where a function needs more.

It needs an environment of its own, with plugins of the version of JAX that is installed:

    pip install -e . && pip install --no-deps jax-cuda12-plugin==VERSION jax-cuda12-pjrt==VERSION nvidia-cuda-nvcc-cu12

This script uses private modules of JAX, the library does not. Complaints of plugins that find no driver are harmless.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["JAX_PLATFORMS"] = "cuda,cpu"

import jax
import report
from closed_forms import BANDWIDTH, KEPT, QUICK, SIZES, cases
from jax._src import xla_bridge
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
from report import Table, shape

HERE = Path(__file__).parent
SLACK = 1.01
"""Bytes may grow by this factor: other versions of XLA add some small arrays."""
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
NO_KERNEL = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id"}
INSTRUCTION = re.compile(r"(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][a-z\-]*)\((.*)")


@dataclass
class Cost:
    """What a program costs; loops whose number of turns depends on data are counted once, in `turn`."""

    kernels: int = 0
    bytes: float = 0
    turn: float = 0
    waits: int = 0
    """Loops and branches of which the host awaits the condition."""

    def add(self, other: Cost, times: int = 1) -> None:
        self.kernels += times * other.kernels
        self.bytes += times * other.bytes
        self.turn += times * other.turn
        self.waits += other.waits


def device() -> SingleDeviceSharding:
    """The H100 that is not there; the process believes that it has one."""
    xla_bridge.discover_pjrt_plugins()
    config = (HERE / "h100.txtpb").read_text()
    topology = topologies.get_topology_desc("", "cuda", target_config=config, topology="1x1x1")
    jax.config.update("jax_platforms", "cpu")
    jax.default_backend = lambda: "gpu"
    return SingleDeviceSharding(topology.devices[0])


def size_of(types: str) -> int:
    """Bytes of the arrays of a type, or of several in a tuple."""
    found = re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", types)
    return sum(BYTES.get(kind, 0) * math.prod(int(axis) for axis in axes.split(",") if axis) for kind, axes in found)


def computations(text: str) -> tuple[dict[str, list[tuple[str, str, str, str]]], str]:
    """The instructions of each computation, as name, type, operation and the rest of the line; and the entry's name."""
    found: dict[str, list[tuple[str, str, str, str]]] = {}
    entry = name = ""
    for line in text.splitlines():
        if start := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            name = start[2]
            found[name] = []
            entry = name if start[1] else entry
        elif name and (part := INSTRUCTION.match(line.strip())):
            found[name].append((part[1], part[2], part[3], part[4]))
    return found, entry


def read_of(instructions: list[tuple[str, str, str, str]], place: int, whole: int) -> int:
    """Bytes that a fusion reads of its operand: those of the slices, if it uses nothing else of it."""
    name = next(
        (name for name, _, op, rest in instructions if op == "parameter" and rest.startswith(f"{place})")), None
    )
    uses = [(kind, op) for _, kind, op, rest in instructions if name and re.search(rf"%{re.escape(name)}\b", rest)]
    if uses and all(op in {"slice", "dynamic-slice", "gather"} for _, op in uses):
        return min(whole, sum(size_of(kind) for kind, _ in uses))
    return whole


def cost_of(found: dict[str, list[tuple[str, str, str, str]]], name: str) -> Cost:
    total, types = Cost(), {}
    for result, kind, op, rest in found[name]:
        types[result] = kind
        if op in NO_KERNEL:
            continue
        if op in {"while", "conditional", "call"}:
            inner = re.findall(r"(?:body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)", rest)
            if branches := re.search(r"branch_computations=\{([^}]*)\}", rest):
                inner = re.findall(r"[\w.\-]+", branches[1])
            costs = [cost_of(found, each) for each in inner]
            turns = re.search(r'known_trip_count":\{"n":"(\d+)', rest)
            if op == "conditional":
                costs = [min(costs, key=lambda each: each.bytes)]
            if op == "while" and not turns:
                total.turn += sum(each.bytes + each.turn for each in costs)
                total.waits += sum(each.waits for each in costs)
            else:
                for each in costs:
                    total.add(each, int(turns[1]) if turns else 1)
            total.waits += op == "conditional" or (op == "while" and not turns)
            continue
        fused = re.search(r"calls=%?([\w.\-]+)", rest)
        operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
        total.kernels += 1
        total.bytes += size_of(kind)
        for place, each in enumerate(operands):
            whole = size_of(types.get(each, ""))
            total.bytes += read_of(found[fused[1]], place, whole) if fused and fused[1] in found else whole
    return total


def measure(sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    card, rows = device(), []
    for size in sizes:
        for name, function, arguments, least in cases(size):
            program = jax.jit(function, in_shardings=card, out_shardings=card)
            compiled = program.trace(*arguments).lower(lowering_platforms=("cuda",)).compile()
            cost = cost_of(*computations(compiled.as_text() or ""))
            memory = compiled.memory_analysis()
            temporary = 0 if memory is None else memory.temp_size_in_bytes
            row = {"function": name, "size": list(size), **asdict(cost), "temporary": temporary, "least": least}
            print(
                f"{name} {shape(size)}: {cost.kernels} kernels, {cost.bytes / least:.2f} times",
                file=sys.stderr,
                flush=True,
            )
            rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    lines = []
    for row in rows:
        moved = row["bytes"]
        numbers = f"{moved / 1e9:.3g}", f"{moved / row['least']:.2f}", f"{moved / BANDWIDTH * 1e3:.3g}"
        rest = f"{row['turn'] / 1e9:.2g}", str(row["waits"]), f"{row['temporary'] / 1e9:.2g}"
        lines.append([f"{row['function']} {shape(row['size'])}", str(row["kernels"]), *numbers, *rest])
    header = ["", "kernels", "GB", "of the least", "ms at 3.35 TB/s", "GB a further turn", "waits", "temporary GB"]
    note = (
        "Integers unless weights are named, one epsilon for all rows. The least: each argument read once, each result "
        "written once. A further turn: of a loop that nearly always has none, for integers. Compiled, not run: what a "
        "card takes stands in closed-forms-gpu."
    )
    return Table("By the compiler", header, lines, note)


def worse(rows: list[dict[str, Any]]) -> list[str]:
    """What needs more kernels, bytes or waits than the kept table has."""
    kept = {(row["function"], *row["size"]): row for row in json.loads(KEPT.read_text())["rows"]}
    found = []
    for row in rows:
        before = kept.get((row["function"], *row["size"]))
        if before and (
            row["bytes"] > SLACK * before["bytes"]
            or row["kernels"] > before["kernels"]
            or row["waits"] > before["waits"]
        ):
            told = [
                f"{each['kernels']} kernels, {each['bytes'] / 1e9:.3g} GB, {each['waits']} waits"
                for each in (before, row)
            ]
            found.append(f"{row['function']} {shape(row['size'])}: {told[0]} before, {told[1]} now")
    return found


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the kept table and write nothing")
    options = parser.parse_args()
    rows = measure(QUICK if options.quick else SIZES)
    if options.check:
        if found := worse(rows):
            sys.exit("XLA makes more of these for an H100:\n" + "\n".join(found))
        return
    record = {"rows": rows, "bandwidth": BANDWIDTH}
    report.publish(options, "h100-compiled", "What XLA makes of the closed forms for an H100", [table(rows)], record)


if __name__ == "__main__":
    main()
