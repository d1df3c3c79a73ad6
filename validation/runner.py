"""What the scripts of this folder share: one way to run them, the data, populations, and numbers of many settings."""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import report
from benchmarks.report import Table as Table

FOLDER = Path(os.environ.get("RRJAX_DATA", Path(__file__).parents[2] / "shared" / "data"))
"""Folder of the real data."""
BEGIN = time.perf_counter()
FLOAT = 1e-6
"""Allowed distance of a limit from a true value in float32."""


def run(
    study: Callable[[Any], tuple[list[Table], dict[str, Any]]],
    title: str,
    number: tuple[str, int, int] | None = None,
    flags: Mapping[str, str] | None = None,
) -> None:
    """Runs a script: its study, a function of the options, returns the tables and the raw numbers.

    `number` has a flag for the number of simulations in each setting, its default, and the most with --quick; the
    study finds it as `options.number`. `flags` are further ones, with their help.
    """
    parser = report.parser(sys.modules["__main__"].__doc__)
    if number is not None:
        flag = f"--{number[0].replace('_', '-')}"
        parser.add_argument(flag, dest="number", type=int, default=number[1], help="in each setting")
    for name, words in (flags or {}).items():
        parser.add_argument(f"--{name}", action="store_true", help=words)
    options = parser.parse_args()
    if number is not None and options.quick:
        options.number = min(options.number, number[2])
    tables, record = study(options)
    again = [f"-{name}" for name in flags or {} if getattr(options, name)]
    report.publish(options, report.script().stem, title, tables, record, "".join(again))


def progress(words: str) -> None:
    print(f"{words}: at {time.perf_counter() - BEGIN:.0f} s", file=sys.stderr)


def settings(grid: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """All combinations, the last one fastest; says when the first one changes."""
    name, last = next(iter(grid)), None
    for each in itertools.product(*grid.values()):
        if each[0] != last:
            progress(f"{name} = {each[0]}")
        last = each[0]
        yield dict(zip(grid, each, strict=True))


def where(row: Mapping[str, Any]) -> str:
    return f"{row['K']:,}, {row['N']:,}, {row['epsilon']:g}, {row['population']}"


WHERE = "K, N, ε, population"


def chosen(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def population(name: str, num_categories: int) -> np.ndarray:
    """Shares of a population.

    Dense: all categories hold something, by a Zipf law of exponent ½. Sparse: a tenth of them, at least one, equally.
    Spiked: one half at the last one, the rest equally. Point mass: on the first one, an extreme value.
    """
    rank = np.arange(num_categories)
    weights = {
        "dense": 1 / np.sqrt(rank + 1.0),
        "sparse": (rank < max(1, num_categories // 10)).astype(float),
        "uniform": np.ones(num_categories),
        "Zipf": 1 / (rank + 1.0),
        "spiked": np.where(rank == num_categories - 1, num_categories - 1.0, 1.0),
        "point mass": (rank == 0).astype(float),
    }[name]
    return (weights / weights.sum()).astype(np.float32)


def covers(limits: Any, value: Any, slack: Any = 0) -> Any:
    return (limits.lower <= value + slack) & (value <= limits.upper + slack)


def error(share: float, number: int) -> float:
    """The standard error of a share of so many simulations."""
    return math.sqrt(share * (1 - share) / number)


def ratio_of_means(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The ratio of two means over the same collections, and its standard error."""
    ratio = one.mean() / other.mean()
    return ratio, (one - ratio * other).std(ddof=1) / math.sqrt(len(one)) / other.mean()


def geometric_mean(ratios: Any) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def squared(found: Any, truth: np.ndarray) -> float:
    return float(np.sum((np.asarray(found, float) - truth) ** 2))


def on_host(found: Any) -> Any:
    """Arrays of NumPy in float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), found)


class Coefficients:
    """Estimates `[S, …]` of coefficients and their standard errors, of the regressions that have a maximum."""

    def __init__(self, true: Any, estimates: np.ndarray, errors: np.ndarray) -> None:
        self.mean, self.deviation = estimates.mean(0), estimates.std(0, ddof=1)
        self.away = (self.mean - true) / (self.deviation / np.sqrt(len(estimates)))
        """Of the mean from the truth, in standard errors of the simulation."""
        self.coverage = (np.abs(estimates - true) <= 1.959964 * errors).mean(0)

    def cells(self) -> list[str]:
        """The coverage of 95 % Wald intervals: its mean, and of each coefficient."""
        return [f"{self.coverage.mean():.4f}", f"{self.coverage.min():.3f} – {self.coverage.max():.3f}"]
