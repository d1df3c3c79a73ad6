"""Interleaved timing, and seconds in words."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FAST = 0.25  # seconds: below this a run is preceded by an untimed one, which warms the caches


@dataclass(frozen=True)
class Timing:
    """Seconds of one competitor; `first` is its very first call, compilation included."""

    median: float
    least: float
    most: float
    runs: int
    first: float
    compilation: float


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def processor_seconds(call: Callable[[], Any]) -> float:
    """Seconds that all threads of this process compute."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def summarize(times: Sequence[float], first: float | None = None) -> Timing:
    median = statistics.median(times)
    first = times[0] if first is None else first
    return Timing(median, min(times), max(times), len(times), first, max(first - median, 0.0))


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


def pretty(value: float) -> str:
    """Seconds, in the unit that reads best."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def spread(time: Timing) -> str:
    return f"{pretty(time.least)} – {pretty(time.most)}"
