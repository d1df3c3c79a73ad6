"""How close ordered Bayes comes where categories have an order, and what it loses where the order means nothing.

Populations whose neighbours are alike (two real ones where the data are there), populations with a few that stand out,
and shuffled ones. Every seed draws the users' reports exactly, from the same users. An error is that of the mean over
the seeds against the users' own shares, and is related to that of empirical Bayes, which knows no order. Beside it
what the best curve of one fixed width comes to, chosen by who knows the answer, and the oracle that is told all
shares, but not who holds which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accuracy
import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from validation.runner import FOLDER, Table, geometric_mean, progress, ratio_of_means, run

NAMES = ("InvP", "MLE*", "Emp. Bayes", "Ordered Bayes", "best fixed width", "oracle without order")
PLAIN, ORDERED, WIDTH = 2, 3, 4
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)
WIDTHS = (1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 10.0, 15.0, 25.0, 40.0, 70.0)
"""Standard deviations of a Gaussian window over the inversion, in categories."""


def bell(size: int, *parts: tuple[float, float, float]) -> np.ndarray:
    """Normal curves: weight, middle and width in parts of the domain."""
    place = (np.arange(size) + 0.5) / size
    return np.sum([weight * np.exp(-(((place - middle) / width) ** 2) / 2) for weight, middle, width in parts], axis=0)


def heaped(size: int) -> np.ndarray:
    """A skewed curve; three in ten name the nearest multiple of ten."""
    place = np.arange(1, size + 1)
    curve = np.exp(-(((np.log(place) - 3.5) / 0.6) ** 2) / 2) / place
    curve = curve / curve.sum()
    return 0.7 * curve + 0.3 * np.where(place % 10 == 0, curve, 0) / curve[9::10].sum()


def shuffled(shares: np.ndarray) -> np.ndarray:
    return np.random.default_rng(len(shares)).permutation(shares)


def populations(folder: Path) -> dict[str, tuple[int, np.ndarray, bool]]:
    """Name: users, shares, and whether their order means something."""
    found = {}
    for name, shares in accuracy.real(folder).items():
        if name.startswith("Adult"):
            found[name] = 32_561, shares, True
    curves = {
        "bell": (100_000, bell(100, (1, 0.45, 0.12))),
        "two bells": (100_000, bell(100, (1, 0.25, 0.05), (0.5, 0.7, 0.1))),
        "two bells, K = 1,000": (1_000_000, bell(1000, (1, 0.4, 0.09), (0.3, 0.8, 0.03))),
        "steps": (100_000, np.repeat([1.0, 5.0, 2.0, 8.0], 25)),
        "heaped": (100_000, heaped(100)),
        "Zipf 1 in its order": (100_000, accuracy.zipf(1.0)(100)),
    }
    found |= {name: (number, np.asarray(shares), True) for name, (number, shares) in curves.items()}
    for size, number in ((20, 10_000), (100, 100_000), (1000, 1_000_000)):
        for exponent in (0.5, 1.0, 1.5, 2.5):
            name = f"Zipf {exponent:g} shuffled, K = {size:,}"
            found[name] = number, shuffled(accuracy.zipf(exponent)(size)), False
    found["uniform"] = 100_000, np.ones(100), False
    found["one in three holds one"] = 100_000, np.where(np.arange(100) == 50, 50.0, 1.0), False
    found["Dirichlet 1"] = 100_000, accuracy.dirichlet(1.0)(100), False
    for size, number in ((50, 1_000_000), (20, 100_000_000)):
        place = np.arange(size)
        for name, shares in {"3 : 1 in turn": 1.0 + 2 * (place % 2), "every other one empty": place % 2}.items():
            found[f"{name}, K = {size}, N = {number:,}"] = number, shares, False
        shares = shuffled(-np.log1p(-(place + 0.5) / size))
        found[f"exponential shuffled, K = {size}, N = {number:,}"] = number, shares, False
    return {name: (number, shares / shares.sum(), means) for name, (number, shares, means) in found.items()}


@jax.jit
def errors(keys: jax.Array, true: jax.Array, epsilon: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`[seeds, estimators + widths]` squared errors, and `[seeds, 3]` beliefs."""
    size = true.shape[0]
    truth = true / jnp.sum(true)
    place = jnp.arange(size)
    windows = [jnp.exp(-(((place[:, None] - place) / width) ** 2) / 2) for width in WIDTHS]
    windows = [window / jnp.sum(window, axis=1, keepdims=True) for window in windows]

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        counts = rrjax.simulate.randomized(key, true, epsilon)
        ordered = rrjax.ordered_bayes(counts, epsilon)
        inverted = rrjax.inv(counts, epsilon)
        estimates = [
            rrjax.inv_p(counts, epsilon),
            rrjax.mle_star(counts, epsilon),
            rrjax.empirical_bayes(counts, epsilon).theta,
            ordered.theta,
            *(window @ inverted for window in windows),
            accuracy.oracle(counts, epsilon, truth, "users"),
        ]
        return jnp.stack([rrjax.metrics.squared_error(theta, truth) for theta in estimates]), ordered.beliefs

    return jax.lax.map(one, keys)


def measure(folder: Path, quick: bool, num_seeds: int) -> list[dict[str, Any]]:
    rows = []
    for number, (name, (num_users, shares, means)) in enumerate(populations(folder).items()):
        if quick and len(shares) > 100:
            continue
        progress(name)
        true = np.random.default_rng(number).multinomial(num_users, shares)
        for epsilon in EPSILONS[1:3] if quick else EPSILONS:
            keys = jax.random.split(jax.random.key(number), num_seeds)
            found, beliefs = errors(keys, jnp.asarray(true, jnp.int32), jnp.float32(epsilon))
            found = np.asarray(found, float)
            widths = found[:, WIDTH:-1]
            best = widths[:, widths.mean(0).argmin()]
            found = np.concatenate([found[:, :WIDTH], best[:, None], found[:, -1:]], axis=1)
            row = {"population": name, "K": len(shares), "N": num_users, "epsilon": epsilon, "ordered": means}
            rows.append(row | {"errors": found, "beliefs": np.asarray(beliefs, float).mean(0)})
    return rows


def table(rows: list[dict[str, Any]], title: str) -> Table:
    lines, ratios = [], []
    for row in rows:
        ratio, error = ratio_of_means(row["errors"][:, ORDERED], row["errors"][:, PLAIN])
        ratios.append(ratio)
        means = [f"{x:.2g}" for x in row["errors"].mean(0)]
        beliefs = ", ".join(f"{x:.2f}" for x in row["beliefs"])
        lines.append([row["population"], f"{row['epsilon']:g}", *means, f"{ratio:.2f} ± {error:.2f}", beliefs])
    mean, quantile = geometric_mean(ratios), np.quantile(ratios, 0.9)
    return Table(
        title,
        ["population", "ε", *NAMES, "Ordered / Emp. Bayes", "beliefs"],
        lines,
        f"Mean squared errors, summed over the categories. Ratio: geometric mean {mean:.2f}, 90 % quantile "
        f"{quantile:.2f}, largest {max(ratios):.2f}. Beliefs: no order, a curve, a curve that some stand out from.",
    )


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    rows = measure(FOLDER, options.quick, options.number)
    tables = [
        table([row for row in rows if row["ordered"]], "Where neighbours are alike"),
        table([row for row in rows if not row["ordered"]], "Where the order means nothing"),
    ]
    names = ("population", "K", "N", "epsilon", "ordered")
    plain = [accuracy.kept(row, *names) | {"beliefs": row["beliefs"].round(4)} for row in rows]
    return tables, {"num_seeds": options.number, "estimators": NAMES, "rows": plain}


if __name__ == "__main__":
    run(study, "How close ordered Bayes comes", ("num_seeds", 40, 4))
