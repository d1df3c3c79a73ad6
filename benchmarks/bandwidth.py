"""What memory allows: the time of one read and one write, the least that any estimate does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from report import Table, shape
from timing import pretty

LARGE = (100_000, 10_000)  # on a GPU with the memory for it
LARGE_QUICK = (400, 100)
LARGE_ARRAYS = 6  # of the input's size: counts, weights, an estimate or two, and a scaled copy
GOAL = 2.0  # times one read and one write, at the large size
ONCE = "one read, one write"


def once(device: jax.Array) -> Callable[[], Any]:
    """Adds one to the counts: reads and writes as much as an estimate must."""
    function = jax.jit(lambda counts: counts + 1)
    return lambda: function(device).block_until_ready()


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def table(rows: list[dict[str, Any]]) -> Table:
    """How far `mle_star` is from one read and one write, and whether that is the goal."""
    here = [row for row in rows if row["problem"] == "mle_star"]
    least = {tuple(row["size"]): row for row in here if row["name"] == ONCE}
    lines: list[list[str]] = []
    for row in here:
        if not row["name"].startswith("rrjax newton"):
            continue
        base = least[tuple(row["size"])]
        lines.append(
            [
                f"{shape(row['size'])}{row['name'].removeprefix('rrjax newton')}",
                pretty(row["seconds"].median),
                pretty(base["seconds"].median),
                f"{base['bytes_per_second'] / 1e9:,.0f} GB/s",
                f"{1 / row['of_bandwidth']:.2f}×",
            ]
        )
    found = [1 / row["of_bandwidth"] for row in here if tuple(row["size"]) == LARGE and row["name"] == "rrjax newton"]
    verdict = f"{found[0]:.2f}×: {'met' if found[0] <= GOAL else 'not met'}" if found else "not measured here"
    note = (
        "Newton against adding one to the counts: one read and one write of as many bytes, measured between its "
        "runs (small arrays stay in caches). Goal, on a GPU: "
        f"{shape(LARGE)} within {GOAL:g}× of one read and one write; {verdict}."
    )
    header = ["size", "mle_star", ONCE, "that is", "times"]
    return Table("mle_star and the memory's bandwidth", header, lines, note)


def large(quick: bool) -> tuple[int, int] | None:
    """The large size, where the device is a GPU with memory for it; a small one to try the script anywhere."""
    if quick:
        return LARGE_QUICK
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    needed = LARGE_ARRAYS * LARGE[0] * LARGE[1] * jnp.result_type(int).itemsize
    return LARGE if device.platform == "gpu" and limit >= needed else None
