"""How close estimates of distributions of numbers come: smooth Bayes beside EMS, by Wasserstein distance; in float64.

Every seed draws the reports of N users of a distribution, by the exact law of the square wave on bins. EMS is the
published estimator, EM smoothed after every step; its window is three bins wide, so its result depends on the width of
the bins. The maximum of the likelihood is beside both. Distances are between the estimate and the distribution that the
users were drawn from, in units of the range (Beta) or in years (age).
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import accuracy
import jax
import numpy as np
from scipy.stats import beta

import rrjax
from rrjax.estimators.em import ems
from rrjax.mechanisms import DiscreteSquareWave
from validation.runner import FOLDER, Table, chosen, geometric_mean, progress, ratio_of_means, run

NAMES = ("EMS", "smooth Bayes", "MLE")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
USERS = (10_000, 100_000)


def populations(folder: Path, quick: bool) -> dict[str, tuple[np.ndarray, float]]:
    """Name: shares of the bins, and the width of a bin."""

    def of_beta(size: int) -> np.ndarray:
        return np.diff(beta(5, 2).cdf(np.linspace(0, 1, size + 1)))

    found = {f"Beta(5, 2), K = {size}": (of_beta(size), 1 / size) for size in ((32,) if quick else (32, 128))}
    ages = accuracy.real(folder).get("Adult's age")
    if ages is not None:
        found[f"Adult's age, K = {len(ages)}"] = np.asarray(ages, float) / np.sum(ages), 1.0
    return found


def distances(shares: np.ndarray, width: float, num_users: int, epsilon: float, num_seeds: int) -> np.ndarray:
    """`[seeds, estimators]` Wasserstein distances."""
    mechanism = DiscreteSquareWave(len(shares), epsilon)
    channel = mechanism.channel()
    law = shares @ np.asarray(channel.matrix, float)
    rows = []
    for seed in range(num_seeds):
        counts = np.random.default_rng([len(shares), num_users, seed]).multinomial(num_users, law / law.sum())
        mixture = channel.mixture_of_counts(counts)
        estimates = [ems(mixture).theta, rrjax.smooth_bayes(mixture).theta]
        estimates.append(rrjax.ibu(mixture, accelerate="newton").theta)
        rows.append([float(rrjax.metrics.wasserstein(theta, shares, width)) for theta in estimates])
    return np.asarray(rows)


def table(rows: list[dict[str, Any]]) -> Table:
    lines, ratios = [], []
    for row in rows:
        found = row["distances"]
        mean, error = found.mean(0), found.std(0, ddof=1) / math.sqrt(len(found))
        ratio, rest = ratio_of_means(found[:, 1], found[:, 0])
        ratios.append(ratio)
        cells = [f"{one:.3g} ± {other:.1g}" for one, other in zip(mean, error, strict=True)]
        setting = [row["population"], f"{row['N']:,}", f"{row['epsilon']:g}"]
        lines.append([*setting, *cells, f"{ratio:.2f} ± {rest:.2f}"])
    note = (
        f"Means over {len(rows[0]['distances'])} seeds ± standard errors. Ratio: geometric mean "
        f"{geometric_mean(ratios):.2f}, largest {max(ratios):.2f}."
    )
    columns = ["population", "N", "ε", *NAMES, "smooth Bayes / EMS"]
    return Table("Wasserstein distance to the distribution", columns, lines, note)


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    jax.config.update("jax_enable_x64", True)
    rows = []
    for name, (shares, width) in populations(FOLDER, options.quick).items():
        progress(name)
        some = (USERS[:1], EPSILONS[1:3]) if options.quick else (USERS, EPSILONS)
        for users, epsilon in itertools.product(*some):
            found = distances(shares, width, users, epsilon, options.number)
            rows.append({"population": name, "K": len(shares), "N": users, "epsilon": epsilon, "distances": found})
    names = ("population", "K", "N", "epsilon")
    plain = [chosen(row, *names) | {"mean": row["distances"].mean(0).round(9)} for row in rows]
    return [table(rows)], {"num_seeds": options.number, "estimators": NAMES, "rows": plain}


if __name__ == "__main__":
    run(study, "How close estimates of numbers come", ("num_seeds", 20, 3))
