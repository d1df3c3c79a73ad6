"""Times the joint maximum of columns that were randomized apart: a step by the number of cells, six columns of Adult.

In float32, as users have it. A step is one of accelerated EM, which takes two products with the Kronecker lift and two
more for its check. Memory is the largest of the process so far.
"""

from __future__ import annotations

import gzip
import math
import os
import resource
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import report
import timing
from report import Table
from timing import pretty

import rrjax
from rrjax.mechanisms import Product, RandomizedResponse

SHAPES = ((10, 10, 10), (10, 10, 10, 10), (10, 10, 10, 10, 10), (14, 10, 10, 10, 10, 10))
COLUMNS = {"education": 3, "occupation": 6, "marital": 5, "relationship": 7, "race": 8, "sex": 9}
USERS, EPSILON = 32_561, 2.0
FEW, MOST = 2, 12


def peak() -> float:
    """GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def step(shape: tuple[int, ...]) -> dict[str, Any]:
    """The time of a step, from runs with few and with more of them."""
    product = Product(tuple(RandomizedResponse(size, EPSILON) for size in shape))
    rng = np.random.default_rng(0)
    values = tuple(rng.choice(size, USERS, p=rng.dirichlet(np.ones(size))).astype(np.int32) for size in shape)
    mixture = product.mixture_of_counts(product.count(product.randomize(jax.random.key(0), values)))

    def run(number: int) -> float:
        return timing.seconds(lambda: jax.block_until_ready(rrjax.ibu(mixture, tol=1e-30, max_iters=number)))

    first = run(FEW)
    times = [(run(MOST) - run(FEW)) / (MOST - FEW) for _ in range(5)]
    product_of = jax.jit(lambda lift, theta: lift(theta))
    theta = jnp.full(product.num_categories, 1 / product.num_categories)
    once = [timing.seconds(lambda: jax.block_until_ready(product_of(mixture.lift, theta))) for _ in range(12)][2:]
    cells = math.prod(shape)
    return {
        "shape": shape,
        "cells": cells,
        "first": first,
        "step": float(np.median(times)),
        "product": min(once),
        "peak": peak(),
    }


def adult(folder: Path) -> dict[str, Any] | None:
    """Six columns of Adult, to the certificate."""
    if not (folder / "adult.data.gz").exists():
        return None
    with gzip.open(folder / "adult.data.gz", "rt") as lines:
        rows = [line.strip().split(", ") for line in lines if line.strip()]
    values = tuple(
        np.unique([row[k] for row in rows], return_inverse=True)[1].astype(np.int32) for k in COLUMNS.values()
    )
    product = Product(tuple(RandomizedResponse(int(own.max()) + 1, EPSILON) for own in values))
    reports = product.randomize(jax.random.key(0), values)
    results: list[rrjax.EMResult] = []

    def run() -> None:
        results.append(jax.block_until_ready(rrjax.ibu(product.mixture_of_counts(product.count(reports)))))

    first, again = timing.seconds(run), timing.seconds(run)
    found = results[-1]
    facts = {"cells": product.num_categories, "first": first, "again": again, "steps": int(found.num_iters)}
    return facts | {"gap": float(found.gap), "converged": bool(found.converged), "peak": peak()}


def main() -> None:
    parser = report.parser(__doc__)
    options = parser.parse_args()
    folder = Path(os.environ.get("RRJAX_DATA", Path(__file__).parents[2] / "shared" / "data"))
    steps = [step(shape) for shape in (SHAPES[:1] if options.quick else SHAPES)]
    body = [
        [
            " × ".join(map(str, row["shape"])), f"{row['cells']:,}", pretty(row["product"]), pretty(row["step"]),
            f"{1e9 * row['step'] / row['cells']:.0f} ns", pretty(row["first"]), f"{row['peak']:.1f} GiB",
        ]
        for row in steps
    ]  # fmt: skip
    head = ["columns", "cells", "a product", "a step", "a step, by cell", "first run", "memory"]
    tables = [Table(f"A step of the joint maximum, N = {USERS:,}, ε = {EPSILON:g} a column", head, body)]
    six = None if options.quick else adult(folder)
    if six is not None:
        row = [f"{six['cells']:,}", pretty(six["first"]), pretty(six["again"]), f"{six['steps']:,}"]
        row += [f"{six['gap']:.1e}", "yes" if six["converged"] else "no", f"{six['peak']:.1f} GiB"]
        head = ["cells", "first time", "again", "steps", "gap, nats per report", "certified", "memory"]
        tables.append(
            Table(f"Six columns of Adult, N = 32,561, ε = {EPSILON:g} a column, to the certificate", head, [row])
        )
    report.publish(options, "joint", "Joint distributions", tables, {"steps": steps, "adult": six})


if __name__ == "__main__":
    main()
