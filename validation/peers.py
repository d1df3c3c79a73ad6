"""Errors of mechanisms against published ones, and against another package's on the same users.

* Feldman, Nelson, Nguyen and Talwar publish results with their code (`minilek/private_frequency_oracles`, folder
  `experiments/results`): mean squared errors of counts over 10 collections of N = 1,000 users. The numbers here are
  those of `zipf1.0.var` (K = 22,000) and `spike1.var` (K = 1,024), and the parameters are those of that code: subsets
  of ⌈K/(e^ε + 1)⌉, the least prime from ⌈e^ε + 1⌉ on. Their Hadamard responses are other ones than ours. All ε of a
  line are run with the same ten seeds there, so what is apart in one is apart in its neighbours.
* multi-freq-ldpy, where it can be imported (local hashing takes xxhash below 4: it hashes strings, which later ones
  refuse): the same users, with its clients and ours, and its reports counted here.
* What that package gets wrong, by enumeration, and what comes out here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import numpy as np

import rrjax
from rrjax.mechanisms import MECHANISMS, ProjectiveGeometry, SubsetSelection, SupportMechanism
from rrjax.mechanisms.longitudinal import LongitudinalRandomizedResponse
from validation.runner import Table, run, squared

USERS, TURNS = 1000, 10
EPSILONS = [2 + 2 * step / 7 for step in range(8)]
PUBLISHED = [
    ("subset-selection", 22_000, "zipf", EPSILONS,
     [722.094, 504.54, 358.717, 258.62, 188.996, 139.412, 103.253, 76.4775]),
    ("projective-geometry-response", 22_000, "zipf", EPSILONS,
     [745.868, 505.207, 362.438, 259.189, 190.326, 139.62, 102.148, 76.0303]),
    ("optimized-unary-encoding", 1024, "spike", [2 + step / 2 for step in range(8)],
     [716.582, 388.907, 219.913, 129.008, 77.3218, 45.9746, 28.0302, 17.392]),
    ("projective-geometry-response", 1024, "spike", [2 + step / 2 for step in range(8)],
     [746.437, 411.593, 222.378, 143.818, 82.2774, 45.9846, 29.0451, 19.4043]),
]  # fmt: skip
"""SupportMechanism, K, population, ε, and the published errors."""
SIZE, THEIR_USERS, EPSILON = 20, 2000, 1.0


def prime(least: int) -> int:
    while any(least % factor == 0 for factor in range(2, math.isqrt(least) + 1)):
        least += 1
    return least


def theirs(name: str, size: int, epsilon: float) -> SupportMechanism:
    """A mechanism with the parameters of the published code."""
    if name == "subset-selection":
        return SubsetSelection(size, epsilon, subset_size=math.ceil(size / (math.exp(epsilon) + 1)))
    if name == "projective-geometry-response":
        return ProjectiveGeometry(size, epsilon, field_order=prime(math.ceil(math.exp(epsilon) + 1)))
    return MECHANISMS[name](size, epsilon)


def users_of(population: str, size: int, number: int) -> np.ndarray:
    shares = 1 / np.arange(1.0, size + 1) if population == "zipf" else np.eye(size)[0]
    return np.random.default_rng(0).multinomial(number, shares / shares.sum())


def errors_of(mechanism: SupportMechanism, true: np.ndarray, turns: int) -> np.ndarray:
    """`[turns]`: mean squared errors of counts."""
    draw = jax.jit(lambda key: rrjax.inv(mechanism.collect(key, true)))
    number = true.sum()
    found = [np.asarray(draw(key), float) for key in jax.random.split(jax.random.key(1), turns)]
    return np.asarray([((each * number - true) ** 2).mean() for each in found])


def published(quick: bool) -> tuple[Table, list[dict[str, Any]]]:
    rows, record = [], []
    for name, size, population, epsilons, errors in PUBLISHED:
        for epsilon, wanted in list(zip(epsilons, errors, strict=True))[:: 4 if quick else 1]:
            mechanism = theirs(name, size, epsilon)
            expected = mechanism.rates_by(math.expm1).total_variance(size) / size * USERS
            turns = 10 if name == "subset-selection" else 100
            found = errors_of(mechanism, users_of(population, size, USERS), 4 if quick else turns)
            spread = found.std(ddof=1)
            error = spread / math.sqrt(TURNS)
            distance, own = (wanted - expected) / error, (found.mean() - expected) / (spread / math.sqrt(len(found)))
            rows.append(
                [name, f"{size:,}", population, f"{epsilon:.3g}", f"{wanted:g}", f"{expected:.5g}",
                 f"{distance:+.1f}", f"{found.mean():.5g}", f"{own:+.1f}"]
            )  # fmt: skip
            record.append({"mechanism": name, "K": size, "epsilon": epsilon, "published": wanted,
                           "expected": expected, "error": error, "simulated": found.mean()})  # fmt: skip
    return Table(
        f"Published errors, N = {USERS:,}",
        ["", "K", "population", "ε", "published", "expected here", "apart, s.e.", "simulated here", "apart, s.e."],
        rows,
        "Mean squared errors of counts. Standard errors of the published means of ten from the spread of the "
        "simulation. Populations are drawn anew: the error of a pure mechanism does not depend on them.",
    ), record


def package() -> dict[str, tuple[Callable[[int], Any], Callable[[list[Any]], np.ndarray]]]:
    """Client and aggregation of multi-freq-ldpy, by the names of mechanisms; empty where it cannot be imported."""
    try:
        parts = {
            name: import_module(f"multi_freq_ldpy.pure_frequency_oracles.{name}") for name in ("GRR", "UE", "LH", "SS")
        }
    except ImportError:
        return {}
    calls = {}
    for name, part, options in (
        ("randomized-response", "GRR", ()),
        ("symmetric-unary-encoding", "UE", (False,)),
        ("optimized-unary-encoding", "UE", (True,)),
        ("optimized-local-hashing", "LH", (True,)),
        ("subset-selection", "SS", ()),
    ):
        client, sums = (getattr(parts[part], f"{part}_{what}") for what in ("Client", "Aggregator_MI"))
        of_size = () if part == "UE" else (SIZE,)
        calls[name] = (
            lambda value, client=client, options=options: client(value, SIZE, EPSILON, *options),
            lambda reports, sums=sums, of_size=of_size, options=options: sums(reports, *of_size, EPSILON, *options),
        )
    return calls


def same_users(num_seeds: int) -> tuple[Table, list[dict[str, Any]]]:
    true = np.random.default_rng(0).multinomial(THEIR_USERS, 1 / np.arange(1, SIZE + 1) / sum(1 / np.arange(1, 21)))
    values, shares = np.repeat(np.arange(SIZE), true), true / true.sum()
    rows, record = [], []
    for name, (client, sums) in package().items():
        mechanism = MECHANISMS[name](SIZE, EPSILON)
        np.random.seed(0)  # noqa: NPY002 - it is what the package draws from, where it does not compile
        errors, apart = [], 0.0
        for _ in range(num_seeds):
            reports = [client(int(value)) for value in values]
            estimate = np.asarray(sums(reports))
            errors.append(squared(estimate, shares))
            if "hashing" not in name:  # its hash is another one
                mine = np.asarray(rrjax.inv_n(mechanism.tally(np.asarray(reports).astype(np.int32))), float)
                apart = max(apart, float(np.abs(mine - estimate).max()))
        keys = jax.random.split(jax.random.key(2), 2000)
        draw = jax.jit(lambda key, mechanism=mechanism: rrjax.inv_n(mechanism.collect(key, true)))
        own = ((np.asarray(jax.lax.map(draw, keys), float) - shares) ** 2).sum(1)
        means = np.mean(errors), own.mean()
        error = math.hypot(np.std(errors, ddof=1) / math.sqrt(len(errors)), own.std(ddof=1) / math.sqrt(len(own)))
        rows.append(
            [name, f"{means[0]:.4g}", f"{means[1]:.4g}", f"{(means[0] - means[1]) / error:+.1f}",
             "–" if "hashing" in name else f"{apart:.1e}"]
        )  # fmt: skip
        record.append({"mechanism": name, "theirs": means[0], "here": means[1], "error": error, "apart": apart})
    return Table(
        f"multi-freq-ldpy, K = {SIZE}, N = {THEIR_USERS:,}, ε = {EPSILON:g}",
        ["", "their squared error", "here", "apart, s.e.", "their reports, counted by both"],
        rows,
        "Squared errors of InvN, summed over the categories. The last column is the largest difference of a share "
        "between their aggregation and ours.",
    ), record


def said(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return ", ".join(f"{share:.3g}" for share in np.asarray(call(), float))
        except (ValueError, ZeroDivisionError, FloatingPointError) as error:
            return f"refused: {str(error)[:70]}"


def chained_epsilon(size: int, first: float, single: float) -> float:
    """What one report of their L-GRR delivers, by its two channels multiplied."""
    p = math.exp(first) / (math.exp(first) + size - 1)
    q, ratio = (1 - p) / (size - 1), math.exp(single)
    other = (q - ratio * p) / (-p * ratio + size * q * ratio - q * ratio - p * (size - 1) + q)
    rest = (1 - other) / (size - 1)
    channels = [np.full((size, size), low) + (high - low) * np.eye(size) for high, low in ((p, q), (other, rest))]
    law = channels[0] @ channels[1]
    return math.log((law.max(0) / law.min(0)).max())


def wrong_cases() -> tuple[Table, list[list[str]]]:
    rows = []
    for size in (2, 3, 20):
        mine = LongitudinalRandomizedResponse(size, epsilon=2.0, first_epsilon=1.0).single_round
        rows.append(
            [f"ε of one L-GRR report, K = {size}, ε∞ = 2, ε₁ = 1", f"{chained_epsilon(size, 2.0, 1.0):.4f}",
             f"{math.log(float(mine.p) / float(mine.q)):.4f}"]
        )  # fmt: skip
    if package():
        grr = import_module("multi_freq_ldpy.pure_frequency_oracles.GRR")
        mi = import_module("multi_freq_ldpy.estimators.Histogram_estimator").MI
        counts = np.asarray([6, 3, 1])
        reports = np.repeat(np.arange(3), counts)
        for what, call, mine in (
            ("ε = 800", lambda: grr.GRR_Aggregator_MI(reports, 3, 800.0), lambda: rrjax.inv_n(counts, 800.0)),
            ("no reports", lambda: grr.GRR_Aggregator_MI([], 3, 1.0), lambda: rrjax.inv_n(np.zeros(3, int), 1.0)),
            ("p = q", lambda: mi(counts, 10, 0.5, 0.5), lambda: rrjax.inv_n(rrjax.Tally(counts, 10, p=0.5, q=0.5))),
            ("all below q", lambda: mi(np.asarray([2, 2, 1]), 10, 0.75, 0.25),
             lambda: rrjax.inv_n(rrjax.Tally(np.asarray([2, 2, 1]), 10, p=0.75, q=0.25))),
        ):  # fmt: skip
            rows.append([what, said(call), said(mine)])
    return Table(
        "Known cases",
        ["", "multi-freq-ldpy", "here"],
        rows,
        "L-GRR: by multiplying the two channels with the parameters of its client, three counts otherwise.",
    ), rows


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    errors, of_errors = published(options.quick)
    users, of_users = same_users(options.number)
    cases, of_cases = wrong_cases()
    return [errors, users, cases], {"published": of_errors, "same_users": of_users, "wrong_cases": of_cases}


if __name__ == "__main__":
    run(study, "Against published errors, and another package", ("num_seeds", 100, 4))
