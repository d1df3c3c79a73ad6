"""How close joint distributions of columns come that were randomized apart, on Adult's columns.

Every seed randomizes the columns of all 32,561 rows apart, by randomized response. Errors are squared, of the joint
shares of these rows, in relation to the projection of the joint inversion on the simplex. Beside the maximum of the
likelihood stands the EM of the literature, stopped where no cell changes by 0.001. Errors of the margins are in
relation to those of empirical Bayes from each column alone. Then single columns and pairs, with ε split among columns,
with sampled columns, and with fake answers, at one ε of a record.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from rrjax.mechanisms import Product, Sampled, SampledWithFakes
from validation.runner import FOLDER, Table, geometric_mean, progress, run, squared

COLUMNS = {"workclass": 1, "education": 3, "marital": 5, "occupation": 6, "relationship": 7, "race": 8, "sex": 9}
COLUMNS |= {"income": 14}
PAIRS = (
    ("education", "occupation"),
    ("marital", "relationship"),
    ("race", "income"),
    ("education", "income"),
    ("race", "sex"),
    ("workclass", "income"),
    ("occupation", "sex"),
    ("marital", "income"),
)
MORE = (
    ("marital", "relationship", "sex"),
    ("workclass", "education", "sex"),
    ("relationship", "race", "sex", "income"),
    ("marital", "race", "sex", "income"),
)
SIX = ("education", "occupation", "marital", "relationship", "race", "sex")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
LEAST_CHANGE = 1e-3


def adult(folder: Path) -> dict[str, np.ndarray]:
    """The columns' values, 0-based."""
    with gzip.open(folder / "adult.data.gz", "rt") as lines:
        rows = [line.strip().split(", ") for line in lines if line.strip()]
    return {
        name: np.unique([row[place] for row in rows], return_inverse=True)[1].astype(np.int32)
        for name, place in COLUMNS.items()
    }


@jax.jit
def stopped_em(mixture: rrjax.Mixture) -> jax.Array:
    """EM from equal shares until no share changes by `LEAST_CHANGE`."""
    counts, base = (jnp.asarray(each).astype(jnp.float64) for each in (mixture.weights, mixture.base))

    def step(carry):
        theta, _ = carry
        ratio = counts / (base + mixture.lift(theta))
        new = theta * (jnp.sum(base * ratio) + mixture.lift.transpose(ratio))
        new = new / jnp.sum(new)
        return new, jnp.max(jnp.abs(new - theta))

    size = mixture.num_categories
    start = jnp.full(size, 1 / size, jnp.float64), jnp.asarray(jnp.inf)
    return jax.lax.while_loop(lambda carry: carry[1] >= LEAST_CHANGE, step, start)[0]


def projected(vector: np.ndarray) -> np.ndarray:
    """The nearest point of the simplex."""
    falling = np.sort(vector)[::-1]
    levels = (np.cumsum(falling) - 1) / np.arange(1, vector.size + 1)
    return np.maximum(vector - levels[np.flatnonzero(falling > levels)[-1]], 0)


def product_of(values: Sequence[np.ndarray], epsilon: float, kind: Any = Product, **options: Any) -> Any:
    return kind([rrjax.RandomizedResponse(int(own.max()) + 1, epsilon) for own in values], **options)


def margins(product: Any, theta: Any) -> list[np.ndarray]:
    return [np.asarray(product.marginal(theta, [place])) for place in range(len(product.shape))]


def errors(values: Sequence[np.ndarray], epsilon: float, seed: int) -> dict[str, list[float]]:
    """Of the joint shares and of the margins."""
    product = product_of(values, epsilon)
    reports = product.randomize(jax.random.key(seed), tuple(values))
    counts = product.count(reports)
    mixture = product.mixture_of_counts(counts)
    truth = np.bincount(np.asarray(product.cells(tuple(values))), minlength=product.num_categories) / len(values[0])
    alone = [
        np.asarray(rrjax.empirical_bayes(c.tally(own)).theta) for c, own in zip(product.columns, reports, strict=True)
    ]
    newton = product.num_categories <= 512
    likeliest = rrjax.ibu(mixture, accelerate="newton" if newton else "anderson").theta
    estimates = [projected(np.asarray(product.inv(counts), float)), stopped_em(mixture), likeliest]
    estimates.append(rrjax.joint_bayes(mixture, product.shape).theta)
    true_margins = margins(product, jnp.asarray(truth))

    def of_margins(found: Sequence[np.ndarray]) -> float:
        return float(np.mean([squared(one, true) for one, true in zip(found, true_margins, strict=True)]))

    return {
        "joint": [squared(theta, truth) for theta in estimates],
        "margins": [of_margins(margins(product, jnp.asarray(theta))) for theta in estimates] + [of_margins(alone)],
    }


def ways(values: Sequence[np.ndarray], epsilon: float, seed: int) -> dict[str, list[float]]:
    """Errors of columns (by empirical Bayes) and of pairs (projected inversion), for each way to spend ε."""
    number = len(values)
    found: dict[str, list[float]] = {}
    kinds: dict[str, Any] = {
        f"{g} of {number}": product_of(values, epsilon / g, Sampled, number=g) for g in range(1, number + 1)
    }
    kinds["among fakes"] = product_of(values, epsilon, SampledWithFakes)
    for place, (name, product) in enumerate(kinds.items()):
        key = jax.random.fold_in(jax.random.key(seed), place)
        reports = [np.asarray(each) for each in product.randomize(key, tuple(values))]
        columns = [product.column(each) for each in range(number)] if name == "among fakes" else product.columns
        single = []
        for column, own, value in zip(columns, reports, values, strict=True):
            truth = np.bincount(value, minlength=column.num_categories) / value.size
            single.append(squared(rrjax.empirical_bayes(column.tally(own[own >= 0])).theta, truth))
        pairs = []
        if name != "among fakes" and product.number > 1:
            for one, other in itertools.combinations(range(number), 2):
                pair = product.part([one, other])
                both = (values[one], values[other])
                truth = np.bincount(np.asarray(pair.cells(both)), minlength=pair.num_categories) / both[0].size
                counts = pair.count([reports[one], reports[other]])
                pairs.append(squared(rrjax.joint_bayes(pair.mixture_of_counts(counts), pair.shape).theta, truth))
        found[name] = [float(np.mean(single)), float(np.mean(pairs)) if pairs else np.nan]
    return found


def table(rows: list[dict[str, Any]]) -> Table:
    names = ("EM, stopped", "MLE", "joint Bayes")
    body, ratios = [], {"2": [], "more": []}
    for row in rows:
        joint, edge = np.mean(row["joint"], axis=0), np.mean(row["margins"], axis=0)
        over, beside = joint[1:] / joint[0], edge[2:4] / edge[4]
        ratios["2" if len(row["columns"]) == 2 else "more"].append([*over, *beside])
        cells = [" × ".join(row["columns"]), f"{row['cells']:,}", f"{row['epsilon']:g}", f"{joint[0]:.2g}"]
        body.append([*cells, *(f"{each:.2f}" for each in (*over, *beside))])
    for title, found in (("pairs", ratios["2"]), ("three and four columns", ratios["more"])):
        if found:
            means = [f"**{geometric_mean(each):.2f}**" for each in np.transpose(found)]
            body.append([f"**{title}, geometric mean**", "", "", "", *means])
    head = ["columns", "cells", "ε of each", "InvP", *(f"{name} / InvP" for name in names)]
    head += ["margins, MLE", "margins, joint Bayes"]
    title = "Squared error of joint shares, over that of the projected inversion; of margins, over columns alone"
    return Table(title, head, body)


def table_of_ways(rows: list[dict[str, Any]]) -> Table:
    body = []
    for row in rows:
        mean = {name: np.mean([seed[name] for seed in row["ways"]], axis=0) for name in row["ways"][0]}
        first = mean[next(iter(mean))]
        for name, (single, pair) in mean.items():
            cells = [", ".join(row["columns"]), f"{row['epsilon']:g}", name, f"{single:.2g}"]
            body.append([*cells, f"{single / first[0]:.2f}", "" if np.isnan(pair) else f"{pair:.2g}"])
    head = ["columns", "ε of a record", "a user reports", "columns", "over one of all", "pairs"]
    return Table("Squared error of single columns and of pairs, by the way to spend ε", head, body)


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    jax.config.update("jax_enable_x64", True)
    data, seeds, quick = adult(FOLDER), range(options.number), options.quick
    rows, spent = [], []
    some = EPSILONS[1:2] if quick else EPSILONS
    for columns, epsilon in itertools.product(PAIRS[2:3] + MORE[3:] if quick else PAIRS + MORE, some):
        progress(f"{columns}, ε = {epsilon:g}")
        values = [data[name] for name in columns]
        found = [errors(values, epsilon, seed) for seed in seeds]
        cells = int(np.prod([own.max() + 1 for own in values]))
        parts = {name: [each[name] for each in found] for name in ("joint", "margins")}
        rows.append({"columns": columns, "cells": cells, "epsilon": epsilon, **parts})
    for columns, epsilon in itertools.product((SIX[-2:],) if quick else (SIX[3:], SIX), some if quick else some[1:]):
        progress(f"{len(columns)} columns, ε = {epsilon:g}")
        found = [ways([data[name] for name in columns], epsilon, seed) for seed in seeds]
        spent.append({"columns": columns, "epsilon": epsilon, "ways": found})
    return [table(rows), table_of_ways(spent)], {"joint": rows, "ways": spent}


if __name__ == "__main__":
    if (FOLDER / "adult.data.gz").exists():
        run(study, "How close joint distributions come", ("num_seeds", 10, 2))
    else:
        print(f"left out: {FOLDER / 'adult.data.gz'} is not there (see RRJAX_DATA)")
