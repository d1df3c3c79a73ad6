"""Times whole processes: the command line on ten million reports, how it starts, the imports, and a sweep over ε.

This process stays small and imports neither JAX nor NumPy before the end: on Linux a child's peak memory
includes what its parent held when it started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import report
import timing
from report import Table
from timing import pretty

NUM_CATEGORIES = 41_270
EPSILON = 4.0
EXPONENT = 1.3
PROCESSES = 7
IMPORTS = """
import time
a = time.perf_counter()
import jax
b = time.perf_counter()
import rrjax
for name in set(rrjax.__all__) - {"io", "plots"}:  # names load their modules when they are used
    getattr(rrjax, name)
print(b - a, time.perf_counter() - b)
"""


class Start(NamedTuple):
    """A command that is to be quick, and in how many seconds."""

    label: str
    goal: float
    num_categories: int = 0
    num_reports: int = 0
    """Of the file that is estimated from; none for `rrjax demo`."""


STARTS = (
    Start("rrjax estimate, 10,000 reports, K = 100", 2.0, 100, 10_000),
    Start("rrjax estimate, 10,000,000 reports, K = 1,500,000", 3.5, 1_500_000, 10_000_000),
    Start("rrjax report, 10,000,000 reports, K = 1,500,000", 5.0, 1_500_000, 10_000_000),
    Start("rrjax demo", 6.0),
)
QUICK = (Start("rrjax estimate, 10,000 reports, K = 100", 2.0, 100, 10_000),)


def write_file(path: str, num_reports: int, num_categories: int) -> None:
    """Writes simulated reports to Parquet. Runs in a process of its own."""
    import baselines
    import numpy as np

    import rrjax
    from rrjax.io import write_reports
    from rrjax.io.domain import Domain
    from rrjax.io.metadata import MechanismRecord, Metadata

    counts = baselines.zipf_counts(1, num_categories, EPSILON, num_reports, EXPONENT)[0]
    reports = np.repeat(np.arange(num_categories, dtype=np.int32), counts)
    np.random.default_rng(1).shuffle(reports)
    mechanism = rrjax.RandomizedResponse(num_categories, EPSILON)
    metadata = Metadata(
        mechanism=MechanismRecord("randomized-response", {"num_categories": num_categories, "epsilon": EPSILON}),
        effective_epsilon=float(mechanism.effective_epsilon),
        domain=Domain.range(0, num_categories - 1),
        column="report",
        simulated=True,
        version=rrjax.__version__,
    )
    write_reports(path, reports, metadata)


def run(command: list[str], **environment: str) -> tuple[float, float]:
    """Returns the wall seconds and the peak resident MiB of one process, both of it alone."""
    with tempfile.TemporaryFile() as said:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=os.environ | environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command[1:4])} failed:\n{said.read().decode(errors='replace')}")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return wall, usage.ru_maxrss / unit


def make(file: str, num_reports: int, num_categories: int) -> None:
    sizes = ["--reports", str(num_reports), "--categories", str(num_categories)]
    run([sys.executable, __file__, "--write", file, *sizes])


def start(what: Start, runs: int) -> dict[str, Any]:
    """Times the first run of a command in an empty cache folder, and those that find all compiled."""
    with tempfile.TemporaryDirectory(prefix="rrjax-benchmark-") as folder:
        file = str(Path(folder) / "reports.parquet")
        arguments = ["demo", "--folder", str(Path(folder) / "demo")]
        if what.num_reports:
            make(file, what.num_reports, what.num_categories)
            page = ["--out", str(Path(folder) / "page.html")] if what.label.startswith("rrjax report") else []
            arguments = ["report" if page else "estimate", file, *page]
        command = [sys.executable, "-m", "rrjax"]
        homes = [
            dict.fromkeys(("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"), str(Path(folder) / f"home {turn}"))
            for turn in range(runs)
        ]
        compiling = [run([*command, *arguments], **home) for home in homes]
        found = [run([*command, *arguments], **home) for home in homes]
    return {
        "label": what.label,
        "goal": what.goal,
        "compiling": timing.summarize([wall for wall, _ in compiling]),
        "with_cache": timing.summarize([wall for wall, _ in found]),
        "peak_mib": max(peak for _, peak in compiling + found),
    }


def estimate(num_reports: int, runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rrjax-benchmark-") as folder:
        file = str(Path(folder) / "reports.parquet")
        make(file, num_reports, NUM_CATEGORIES)
        size = Path(file).stat().st_size
        target = str(Path(folder) / "estimate.csv")
        command = [sys.executable, "-m", "rrjax", "--no-cache", "estimate", file, "--out", target]
        results = [run(command) for _ in range(runs)]
    walls, peaks = zip(*results, strict=True)
    return {
        "num_reports": num_reports,
        "file_mib": size / 2**20,
        "seconds": timing.summarize(walls),
        "peak_mib": max(peaks),
    }


def imports(processes: int) -> dict[str, Any]:
    pairs: list[tuple[float, float]] = []
    for _ in range(processes + 1):
        said = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True).stdout
        first, second = said.split()
        pairs.append((float(first), float(second)))
    alone, beyond = zip(*pairs[1:], strict=True)  # the first one filled the disk cache
    return {"jax": timing.summarize(alone), "rrjax_beyond_jax": timing.summarize(beyond)}


def sweep(num_values: int = 100) -> dict[str, Any]:
    """Estimates at many ε through the public function, counting compilations. Imports JAX."""
    import baselines
    import jax
    import jax.numpy as jnp
    import numpy as np

    import rrjax

    compilations: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        del duration_secs, kwargs
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    counts = jnp.asarray(baselines.zipf_counts(1, 10_000, EPSILON, 1_000_000, EXPONENT)[0])
    epsilons: list[float] = [float(e) for e in np.linspace(0.5, 10, num_values)]
    compilations.clear()
    first = timing.seconds(lambda: rrjax.mle_star(counts, epsilons[0]).block_until_ready())
    at_first = len(compilations)
    rest = timing.seconds(lambda: [rrjax.mle_star(counts, e).block_until_ready() for e in epsilons[1:]])
    after = len(compilations) - at_first
    function: Any = jax.jit(rrjax.mle_star)
    whole = timing.seconds(lambda: [function(counts, e).block_until_ready() for e in epsilons])
    return {
        "num_values": num_values,
        "num_categories": 10_000,
        "first_call_seconds": first,
        "other_calls_seconds": rest,
        "compilations_at_first_call": at_first,
        "compilations_after": after,
        "jitted_sweep_seconds": whole,
        "jitted_programs": function._cache_size(),
    }


def table_of(record: dict[str, Any]) -> Table:
    imported, swept = record["imports"], record["sweep"]
    rows: list[list[str]] = []

    def line(label: str, time: timing.Timing, also: str) -> None:
        rows.append([label, pretty(time.median), f"{pretty(time.least)} to {pretty(time.most)}", also])

    if "estimate" in record:
        done = record["estimate"]
        label = f"rrjax estimate, {done['num_reports']:,} reports, K = {NUM_CATEGORIES:,}"
        line(label, done["seconds"], f"peak {done['peak_mib']:,.0f} MiB, file {done['file_mib']:,.0f} MiB")
    for name, label in (("jax", "import jax"), ("rrjax_beyond_jax", "import rrjax and all its functions, beyond it")):
        line(label, imported[name], f"{imported[name].runs} processes")
    number = swept["num_values"]
    at_first, after = (f"{swept[f'compilations_{when}']} programs compiled" for when in ("at_first_call", "after"))
    cached = f"{swept['jitted_programs']} program in its cache"
    rows += [
        ["mle_star, first ε", pretty(swept["first_call_seconds"]), "", at_first],
        [f"mle_star, {number - 1} other ε", pretty(swept["other_calls_seconds"]), "", after],
        [f"jax.jit(mle_star), {number} ε", pretty(swept["jitted_sweep_seconds"]), "", cached],
    ]
    note = f"Sweep at K = {swept['num_categories']:,}, ε from 0.5 to 10, compilation included."
    return Table("whole processes", ["what", "median", "range", "also"], rows, note)


def table_of_starts(starts: list[dict[str, Any]]) -> Table:
    rows: list[list[str]] = []
    for done in starts:
        found, goal = done["with_cache"], done["goal"]
        reached = "reached" if found.median <= goal else "missed"
        rows.append(
            [f"{done['label']}, compiling", pretty(done["compiling"].median), timing.spread(done["compiling"]), ""]
        )
        also = f"goal {goal:g} s: {reached}; peak {done['peak_mib']:,.0f} MiB"
        rows.append([f"{done['label']}, compiled before", pretty(found.median), timing.spread(found), also])
    note = "Whole processes. The first row: in an empty cache folder; the second: again, in the same one."
    return Table("starts", ["what", "median", "range", "also"], rows, note)


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--reports", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--skip-estimate", action="store_true", help="imports and sweep only")
    parser.add_argument("--skip-starts", action="store_true", help="not the small file, the many categories, the demo")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--categories", type=int, default=NUM_CATEGORIES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_file(options.write, options.reports, options.categories)
        return
    if options.quick:
        options.reports, options.runs = min(options.reports, 100_000), 1
    record: dict[str, Any] = {}
    if not options.skip_estimate:
        record["estimate"] = estimate(options.reports, options.runs)
    tables: list[Table] = []
    if not options.skip_starts:
        record["starts"] = [start(each, options.runs) for each in (QUICK if options.quick else STARTS)]
        tables.append(table_of_starts(record["starts"]))
    record["imports"] = imports(1 if options.quick else PROCESSES)
    record["sweep"] = sweep()
    report.publish(options, "command-line", "Command line, imports, sweep", [table_of(record), *tables], record)


if __name__ == "__main__":
    main()
