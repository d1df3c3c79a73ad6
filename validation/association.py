"""Whether the intervals for the association of two columns keep their word, and the test of independence its size.

Tables of 2 × 2, 3 × 4 and 6 × 6 values have uneven margins and are independent, weakly or strongly associated: a
mixture of the product of the margins and of the most concentrated table near a diagonal with these margins. In further
tables rare cells carry the association, a category is empty, or cells are many and as small as their noise. Both
columns are randomized response with one ε. NumPy draws the reports from the channels as written here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from rrjax.inference import association, cramers_v, independence_test, mutual_information, odds_ratios
from rrjax.mechanisms import Product
from validation.runner import FLOAT, Table, covers, error, run

SHAPES = {(2, 2): 2_000, (3, 4): 5_000, (6, 6): 20_000}
"""K × L, and the number of users."""
EPSILONS = (1.0, 2.0)
STRENGTHS = {"independent": 0.0, "weak": 0.1, "strong": 0.6}
"""The weight of the concentrated table."""


def only_together(*shares: float) -> np.ndarray:
    """A table whose last rows and columns occur only together, with these shares; the first two are independent."""
    return np.diag([0.0, 0.0, *shares]) + np.pad(np.full((2, 2), (1 - sum(shares)) / 4), (0, len(shares)))


HARD = {
    "a cell of 1 %": (only_together(0.01), 1_000),
    "a cell of 3 %": (only_together(0.03), 1_000),
    "cells of 2 %, 3 %": (only_together(0.02, 0.03), 3_000),
    "a row of 3 %": (np.array([[0.25, 0.25, 0.03], [0.2, 0.2, 0.04], [0, 0, 0.03]]), 1_000),
    "a category empty": (np.outer([0.4, 0.35, 0.25], [0.5, 0.5, 0]), 1_000),
    "two categories empty": (only_together(0.0), 1_000),
}
"""Tables with rare or empty categories, and the number of users; ε = 2. The last two are independent."""
MODERATE: dict[str, tuple[np.ndarray, int, float]] = {"V = .2": (np.full((4, 4), 0.05) + 0.05 * np.eye(4), 300, 3.0)}
"""Tables of equal margins, the number of users, and ε."""
ALTERNATING = np.tile(np.eye(2), 6) / 12
EXTREMES: dict[str, tuple[np.ndarray, int, float]] = {
    "V = 1, noise": (ALTERNATING, 30_000, 0.3),
    "V = .9, noise": (0.9 * ALTERNATING + 0.1 / 24, 30_000, 0.3),
    "a cell of 30 %": (only_together(0.3), 1_000_000, 10.0),
}
"""Tables in strong noise, and in hardly any; the number of users, and ε."""


def partly_equal(size: int, weight: float) -> np.ndarray:
    """Equal margins, and a part of the users with the same value in both columns."""
    return np.full((size, size), (1 - weight) / size**2) + weight * np.eye(size) / size


LARGE: dict[str, tuple[np.ndarray, int, float]] = {
    "10 × 10": (partly_equal(10, 0.3), 15_000, 2.0),
    "13 × 13": (partly_equal(13, 0.5), 50_000, 2.0),
    "one long side": (np.random.default_rng(6).dirichlet(np.ones(200)).reshape(2, 100), 10_000, 2.5),
}
"""Tables of so many cells that the information has bounds; in the last two V is not searched for."""
FEWER = 4
"""One collection in so many has intervals of V and the information, which take most of the time."""
DRAWS = 499
SHUFFLES = 199


def table(shape: tuple[int, int], weight: float) -> np.ndarray:
    """The true joint shares."""
    rng = np.random.default_rng(0)
    rows, columns = (rng.dirichlet(np.full(size, 3.0)) for size in shape)
    near = np.full(shape, 1e-3)
    for place in range(max(shape)):
        near[place % shape[0], place % shape[1]] += 1
    for _ in range(2000):
        near *= (rows / near.sum(axis=1))[:, None]
        near *= columns / near.sum(axis=0)
    return (1 - weight) * np.outer(rows, columns) + weight * near


def reports(theta: np.ndarray, users: int, epsilon: float, number: int, seed: int) -> np.ndarray:
    """So many collections of reports, `[number, K, L]`."""
    first, second = ((np.eye(size) * np.expm1(epsilon) + 1) / (np.exp(epsilon) + size - 1) for size in theta.shape)
    law = first @ theta @ second.T
    drawn = np.random.default_rng(seed).multinomial(users, (law / law.sum()).ravel(), size=number)
    return drawn.reshape(number, *theta.shape)


@jax.jit
def intervals(keys: jax.Array, counts: jax.Array, product: Product) -> Any:
    """The association of each collection."""

    def one(given):
        key, counts = given
        return association(jax.random.split(key)[0], counts, product, num_draws=DRAWS)

    return jax.lax.map(one, (keys, counts), batch_size=20)


@partial(jax.jit, static_argnums=3)
def others(keys: jax.Array, counts: jax.Array, product: Product, is_null: bool) -> Any:
    """Of each collection the odds ratios, V of the unbiased table, and the p-value of independence."""

    def one(given):
        key, counts = given
        plain = jnp.maximum(product.inv(counts), 0).reshape(counts.shape)
        of_test = jax.random.split(key)[1]
        test = independence_test(of_test, counts, num_draws=SHUFFLES).p_value if is_null else jnp.float32(1)
        return odds_ratios(counts, product), cramers_v(plain / jnp.sum(plain)), test

    return jax.lax.map(one, (keys, counts), batch_size=4)


def of_intervals(theta: np.ndarray, keys: jax.Array, counts: jax.Array, product: Product) -> dict[str, Any]:
    """Coverage and width of the intervals for V and the mutual information, and estimates of V."""
    found = jax.tree.map(np.asarray, intervals(keys, counts, product))
    true = {"v": float(cramers_v(theta)), "information": max(float(mutual_information(theta)), 0.0)}

    def of(limits, value):
        return {
            "coverage": float(covers(limits, value, FLOAT).mean()),
            "too_high": float((limits.lower > value + FLOAT).mean()),
            "too_low": float((limits.upper < value - FLOAT).mean()),
            "width": float(np.median(limits.upper - limits.lower)),
        }

    return {
        "true": true, "v": of(found.cramers_v, true["v"]),
        "information": of(found.mutual_information, true["information"]),
        "mean_v": float(found.cramers_v.value.mean()), "median_v": float(np.median(found.cramers_v.value)),
    }  # fmt: skip


def setting(name: str, theta: np.ndarray, users: int, epsilon: float, number: int, seed: int) -> dict[str, Any]:
    """Coverage and size over so many collections."""
    counts = jnp.asarray(reports(theta, users, epsilon, number, seed), jnp.int32)
    product = Product(tuple(rrjax.RandomizedResponse(size, epsilon) for size in theta.shape))
    is_null = bool(np.allclose(theta, np.outer(theta.sum(axis=1), theta.sum(axis=0))))
    few = number // FEWER
    key = jax.random.key(seed)
    found = of_intervals(theta, jax.random.split(key, few), counts[:few], product)
    ratios, plain, p_values = jax.tree.map(np.asarray, others(jax.random.split(key, number), counts, product, is_null))
    has_ratios = bool((theta > 0).all())
    odds = theta * theta[0, 0] / np.where(has_ratios, theta[:, :1] * theta[0], 1)
    own = (slice(None), slice(1, None), slice(1, None))
    inside = (ratios.lower[own] <= odds[own[1:]]) & (odds[own[1:]] <= ratios.upper[own])
    return {
        "shape": theta.shape, "users": users, "epsilon": epsilon, "strength": name, "collections": number, **found,
        "odds_ratios": [float(inside.mean(axis=0).min()), float(inside.mean())] if has_ratios else None,
        "mean_plain_v": float(plain.mean()),
        "size": float((p_values <= 0.05 * (1 + 1e-6)).mean()) if is_null else None,
    }  # fmt: skip


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    number, shapes = options.number, [(2, 2)] if options.quick else SHAPES
    settings = [
        (name, table(shape, STRENGTHS[name]), SHAPES[shape], epsilon)
        for shape in shapes
        for epsilon in EPSILONS
        for name in STRENGTHS
    ]
    if not options.quick:
        settings += [(name, *given, 2.0) for name, given in HARD.items()]
        settings += [(name, *given) for name, given in (MODERATE | EXTREMES | LARGE).items()]
    found = [setting(*given, number, seed) for seed, given in enumerate(settings)]
    names = [
        [f"{row['shape'][0]} × {row['shape'][1]}", f"{row['users']:,}", f"{row['epsilon']:g}", row["strength"]]
        for row in found
    ]
    ratios = [row["odds_ratios"] for row in found]
    covered = [
        [
            *name, f"{row['true']['v']:.3f}", f"{row['v']['coverage']:.3f}",
            f"{row['v']['too_high']:.3f}, {row['v']['too_low']:.3f}", f"{row['v']['width']:.3f}",
            f"{row['information']['coverage']:.3f}", f"{row['information']['width']:.3f}",
            "" if odds is None else f"{odds[1]:.3f}, {odds[0]:.3f}",
            "" if row["size"] is None else f"{row['size']:.3f}",
        ]
        for name, row, odds in zip(names, found, ratios, strict=True)
    ]  # fmt: skip
    values = [
        [*name, *(f"{each:.3f}" for each in (row["true"]["v"], row["median_v"], row["mean_v"], row["mean_plain_v"]))]
        for name, row in zip(names, found, strict=True)
    ]
    first = ["table", "N", "ε", "columns", "V"]
    tables = [
        Table(
            "Coverage of 95 % intervals, and size of the test of independence at 0.05",
            [*first, "of V", "above, below", "width", "of the information", "width", "of odds ratios", "size"],
            covered,
            f"{number:,} collections in each setting, {number // FEWER:,} of them for the intervals of V and the "
            f"information, in float32; {DRAWS} draws of an interval, {SHUFFLES} of a test. A coverage or a size has a "
            f"standard error of {error(0.95, number):.4f}, one of V or the information of "
            f"{error(0.95, number // FEWER):.4f}. Above, below: intervals that lie above and below the true V. Widths "
            "are medians. Odds ratios: against the first row and column, the mean of all cells and the smallest.",
        ),
        Table(
            "Estimates of V",
            [*first, "median of estimates", "mean of estimates", "mean of V of the unbiased table"],
            values,
            "The unbiased table is taken without its negative cells.",
        ),
    ]
    return tables, {"settings": found}


if __name__ == "__main__":
    run(study, "Association of columns that were randomized apart", ("collections", 2000, 120))
