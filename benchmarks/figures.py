"""Times the drawing of a study: the paper's twelve figures as PNG and PDF, and the report that holds them.

The dataset is made up, in the shape of the paper's. Compared are one process and what `rrjax study` does: it starts
others beside its own, for as many cores as there are, and waits for what they load.
"""

from __future__ import annotations

import resource
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import report
import timing
import xarray as xr
from timing import pretty, spread

from rrjax.study import drawings, paper, write_report
from rrjax.study.drawings import pictures
from rrjax.study.report import write_figures

ROUNDS, GOAL = 5, 10.0
CATEGORIES, USERS = 41_270, 8_019_015
"""Of Kosarak."""


def study(**coords: Any) -> xr.Dataset:
    """Errors that fall with N and ε, over a grid."""
    coords = {"estimator": list(paper.ESTIMATORS), **{name: list(values) for name, values in coords.items()}}
    sizes = [len(values) for values in coords.values()]
    rng = np.random.default_rng(1)
    dims = tuple(coords)
    users = np.asarray(coords["num_users"], float).reshape([-1 if name == "num_users" else 1 for name in dims])
    epsilon = np.asarray(coords["epsilon"]).reshape([-1 if name == "epsilon" else 1 for name in dims])
    level = np.exp(-epsilon) / np.sqrt(users) * rng.uniform(0.5, 2, sizes)
    variables: dict[str, Any] = dict.fromkeys(("mse", "bias2", "variance"), (dims, level))
    variables |= {"nll": (dims, 8 + level), "mse_se": (dims, 0.1 * level), "nll_se": (dims, 0.1 * level)}
    return xr.Dataset(variables, coords, {"num_seeds": 100, "seed": 0})


def listed(figures: tuple[int, ...]) -> list[drawings.Drawing]:
    """What `rrjax study paper` would draw, with one data set."""
    grid = study(num_categories=paper.CATEGORIES, num_users=paper.USERS, epsilon=paper.EPSILONS, zipf=paper.EXPONENTS)
    found = drawings.of_paper(grid, figures)
    if paper.REAL_DATA in figures:
        counts = np.random.default_rng(2).permutation(np.arange(1, CATEGORIES + 1) ** -1.3)
        counts = np.maximum(counts / counts.sum() * USERS, 1).astype(int)
        given = study(num_categories=[CATEGORIES], num_users=[USERS], epsilon=paper.EPSILONS, distribution=["Kosarak"])
        found += drawings.of_users(given, "Kosarak", counts, "kosarak", paper.REAL_DATA)
    if paper.CONVERGENCE in figures:
        iteration = np.unique(np.geomspace(1, 40_000, 400).astype(int))
        names = {"variant": ["ibu", "deflated", "anderson"], "zipf": [0.01, 1.3], "num_users": [10_000, 500_000]}
        coords: dict[str, Any] = {**names, "epsilon": [0.5, 1.0, 2.0], "iteration": iteration}
        rates = np.array([1e-4, 1e-3, 1e-2]).reshape(-1, 1, 1, 1, 1)
        distance = np.broadcast_to(0.1 * np.exp(-rates * iteration), [len(values) for values in coords.values()])
        found += drawings.of_em(xr.Dataset({"distance": (tuple(coords), distance)}, coords, {"num_categories": 500}))
    return drawings.ordered(found)


def processor_seconds() -> float:
    """Of this process, and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    options = report.parser(__doc__).parse_args()
    wanted = listed((1, 4) if options.quick else paper.FIGURES)
    drawn = list(pictures(wanted, processes=0))
    used: dict[str, list[float]] = {}

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)

        def report_of(figures: Any) -> None:
            write_report(place / "report.html", title="figures", summary={}, datasets=xr.Dataset(), figures=figures)

        def alone() -> None:
            if [picture.files for picture in pictures(wanted, processes=0)] != [picture.files for picture in drawn]:
                raise SystemExit("the same figures gave other bytes")

        def command() -> None:
            with closing(write_figures(place / "figures", wanted)) as found:
                report_of(found)

        def timed(name: str, call: Any) -> Any:
            def measured() -> None:
                begin = processor_seconds()
                call()
                used.setdefault(name, []).append(processor_seconds() - begin)

            return measured

        calls = {
            "one process": alone,
            "as `rrjax study` does, files and report included": command,
            "the report alone": lambda: report_of(
                [(one.title, one.caption, picture) for one, picture in zip(wanted, drawn, strict=True)]
            ),
        }
        calls = {name: timed(name, call) for name, call in calls.items()}
        times = timing.interleaved(calls, 1 if options.quick else ROUNDS, patience=60)
    number = len(wanted)
    rows = [[name, pretty(time.median), spread(time), pretty(min(used[name]))] for name, time in times.items()]
    note = f"{number} figures, as PNG and PDF. Goal: {GOAL:g} s for the paper's twelve. Processor: least of the runs."
    tables = [report.Table("drawing a study", ["what", "median", "range", "processor"], rows, note)]
    record = {"number": number, "goal": GOAL, "times": times, "processor": used}
    report.publish(options, "figures", "Figures of a study", tables, record)


if __name__ == "__main__":
    main()
