"""Whether the errors of the ways to spend ε on several columns are those that `rrjax plan --columns` expects.

Every collection draws its users anew and randomizes them by each way: all columns, some of them drawn at random, or one
among fake answers. Errors are of the unbiased estimates of columns and of pairs, from the population. It has equal
shares and independent columns, as the plan supposes, or shares that fall like 1/rank and columns of which half of the
users hold one rank in all. Beside them stands the number of columns that the rule of `docs/choose/mechanism.md` takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import rrjax
from rrjax.inference import compare_splits
from rrjax.mechanisms import Product, Sampled, SampledWithFakes
from validation.runner import Table, progress, run

COLUMNS = ((4, 10, 16), (2, 2, 3, 2, 3), (16, 16, 16, 16))
EPSILONS = (1.0, 4.0, 12.0)
POPULATIONS = ("equal", "falling")
USERS = 20_000


def population(sizes: Sequence[int], kind: str) -> list[np.ndarray]:
    """The shares of each column."""
    shares = [np.ones(size) if kind == "equal" else 1 / np.arange(1, size + 1) for size in sizes]
    return [own / own.sum() for own in shares]


def drawn(rng: np.random.Generator, shares: Sequence[np.ndarray], kind: str) -> list[np.ndarray]:
    """The values of the users in each column."""
    places = rng.random((len(shares), USERS))
    if kind == "falling":  # half of the users are at one quantile of all columns
        places[:, : USERS // 2] = places[0, : USERS // 2]
    return [
        np.searchsorted(np.cumsum(own)[:-1], place, "right").astype(np.int32)
        for own, place in zip(shares, places, strict=True)
    ]


def pair_of(first: np.ndarray, second: np.ndarray, kind: str) -> np.ndarray:
    """The joint shares of two columns."""
    apart = np.outer(first, second)
    if kind == "equal":
        return apart.ravel()
    ends = [np.concatenate([[0], np.cumsum(own)]) for own in (first, second)]
    low = np.maximum(ends[0][:-1, None], ends[1][None, :-1])
    high = np.minimum(ends[0][1:, None], ends[1][None, 1:])
    return (0.5 * apart + 0.5 * np.maximum(high - low, 0)).ravel()


def ways(sizes: Sequence[int], epsilon: float) -> dict[int, Any]:
    """The mechanism of each number of columns; 0 is one among fake answers."""

    def columns(own: float) -> tuple[rrjax.RandomizedResponse, ...]:
        return tuple(rrjax.RandomizedResponse(size, own) for size in sizes)

    found: dict[int, Any] = {g: Sampled(columns(epsilon / g), number=g) for g in range(1, len(sizes))}
    return found | {len(sizes): Product(columns(epsilon / len(sizes))), 0: SampledWithFakes(columns(epsilon))}


def squares(way: int, mechanism: Any, reports: Sequence[np.ndarray], kind: str) -> tuple[float, float]:
    """Mean squared errors of shares and of cells in one collection, each of a column's (a pair's) own mean."""
    number, shares = len(reports), population(mechanism.shape, kind)
    columns = mechanism.columns if way else [mechanism.column(place) for place in range(number)]
    single, pairs = [], []
    for column, own, true in zip(columns, reports, shares, strict=True):
        counts = np.bincount(own[own >= 0], minlength=true.size)
        single.append(np.mean((np.asarray(rrjax.inv(counts, column.epsilon)) - true) ** 2))
    for one, other in itertools.combinations(range(number), 2) if way > 1 else ():
        pair = mechanism.part([one, other])
        # Who misses one of the two is left out; arrays of one length are compiled once.
        counts = pair.count([reports[one], reports[other]])
        pairs.append(np.mean((np.asarray(pair.inv(counts)) - pair_of(shares[one], shares[other], kind)) ** 2))
    return float(np.mean(single)), float(np.mean(pairs)) if pairs else math.nan


def rule(sizes: Sequence[int], epsilon: float, constant: float, least: int) -> int:
    """How many columns to report, by the rule of the documentation."""
    own = 1.3 * math.log(math.prod(sizes)) / len(sizes) + constant
    return min(max(round(epsilon / own), least), len(sizes))


def setting(sizes: Sequence[int], epsilon: float, kind: str, num_seeds: int) -> dict[str, Any]:
    """Expected and simulated errors of each way."""
    expected = {0 if row.name == "among fakes" else row.number: row for row in compare_splits(sizes, USERS, epsilon)}
    shares, rows = population(sizes, kind), {}
    for way, mechanism in ways(sizes, epsilon).items():
        found = []
        for seed in range(num_seeds):
            place = [seed, way, *sizes, round(epsilon), POPULATIONS.index(kind)]
            rng = np.random.default_rng(place)
            values, key = drawn(rng, shares, kind), jax.random.key(int(rng.integers(2**32)))
            reports = [np.asarray(own) for own in mechanism.randomize(key, values)]
            found.append(squares(way, mechanism, reports, kind))
        plan = expected[way]
        rows[way] = {"expected": [plan.share, plan.cell if way > 1 else None], "squares": found}
    rules = [rule(sizes, epsilon, 1.25, 1), rule(sizes, epsilon, 0.5, 2)]
    return {"columns": sizes, "epsilon": epsilon, "population": kind, "rule": rules, "ways": rows}


def ratio(squared: np.ndarray, expected: float) -> tuple[float, float]:
    """The simulated root mean squared error over the expected one, and its standard error."""
    mean = float(np.mean(squared))
    own = math.sqrt(mean) / expected
    return own, own * float(np.std(squared, ddof=1)) / math.sqrt(len(squared)) / mean / 2


def tables(rows: list[dict[str, Any]]) -> list[Table]:
    body, summary = [], {(kind, what): [] for kind in POPULATIONS for what in ("share", "cell")}
    regrets = {key: [] for key in summary}
    for row in rows:
        for way, found in row["ways"].items():
            names = {0: "1, among fake answers", len(row["columns"]): "all columns"}
            cells = [", ".join(map(str, row["columns"])), f"{row['epsilon']:g}", row["population"]]
            cells.append(names.get(way, f"{way}, drawn at random"))
            for place, what in enumerate(("share", "cell")):
                expected = found["expected"][place]
                if expected is None:
                    cells += ["", ""]
                    continue
                own, error = ratio(np.array(found["squares"])[:, place], expected)
                summary[row["population"], what].append(own)
                cells += [f"{100 * expected:.3g} %", f"{own:.3f} ± {error:.3f}"]
            body.append(cells)
        for place, what in enumerate(("share", "cell")):
            mean = {
                way: np.mean(np.array(found["squares"])[:, place]) for way, found in row["ways"].items() if way > place
            }
            regrets[row["population"], what].append(math.sqrt(mean[row["rule"][place]] / min(mean.values())))
    short = [
        [
            *(kind, what, f"{len(found)}"),
            f"{np.mean(found):.3f} ± {np.std(found, ddof=1) / math.sqrt(len(found)):.3f}",
            f"{min(found):.3f} – {max(found):.3f}",
            f"{max(regrets[kind, what]):.2f}",
        ]
        for (kind, what), found in summary.items()
        if found
    ]
    return [
        Table(
            "Simulated error over the expected one, and the rule's number of columns over the best one",
            ["population", "error of a", "ways", "mean ratio", "ratios", "rule / best, at most"],
            short,
        ),
        Table(
            f"Expected errors of {USERS:,} users, and the simulated one in relation to it",
            ["K", "ε", "population", "a user reports", "share", "simulated / expected", "cell", "simulated / expected"],
            body,
        ),
    ]


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    settings, rows = list(itertools.product(COLUMNS, EPSILONS, POPULATIONS)), []
    for sizes, epsilon, kind in settings[:2] if options.quick else settings:
        progress(f"{sizes}, ε = {epsilon:g}, {kind}")
        rows.append(setting(sizes, epsilon, kind, options.number))
    return tables(rows), {"settings": rows}


if __name__ == "__main__":
    title = "How well the errors of the ways to spend ε on several columns are foreseen"
    run(study, title, ("num_seeds", 20, 3))
