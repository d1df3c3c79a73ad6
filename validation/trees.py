"""How close Chow–Liu trees of columns that were randomized apart are, and whether the test of their fit keeps its size.

Five columns of 2 to 4 values are a random tree of edges of one strength, another one in each collection. The tables of
pairs come from `chow_liu_tree` (the maximum, shrunk), from the maximum alone, and from joint Bayes; the tree and the
tables of all pairs that follow from it are compared with the truth. The test is simulated on four of the columns, under
one tree, and where a share of the users have a last value that follows the first one as well, beside the tree.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from rrjax.inference import ChowLiuTree, chow_liu_tree, mutual_information, tree_fit_test
from rrjax.inference.chow_liu import pairs_of, strongest_tree
from rrjax.mechanisms import Product, Sampled
from validation.runner import Table, run

SIZES = (2, 3, 4, 3, 3)
SETTINGS = [(1.0, 5_000, 0.5, 0), (2.0, 2_000, 0.5, 0), (2.0, 20_000, 0.7, 0), (2.0, 20_000, 0.7, 2)]
"""ε of a column, users, the strength of the edges (0: independent), columns that a user reports (0: all)."""
WEIGHTS = (0.0, 0.2, 0.5)
"""Shares of the users whose last value follows the first."""
DRAWS = 99


def random_tree(sizes: tuple[int, ...], edges: tuple[tuple[int, int], ...], strength: float, rng: Any) -> ChowLiuTree:
    margins, tables = {0: rng.dirichlet(np.full(sizes[0], 3.0))}, []
    for u, v in edges:
        common, own = rng.dirichlet(np.full(sizes[v], 3.0)), rng.dirichlet(np.full(sizes[v], 0.5), size=sizes[u])
        tables.append(margins[u][:, None] * ((1 - strength) * common + strength * own))
        margins[v] = tables[-1].sum(axis=0)
    floats = [np.float32(margins[place]) for place in range(len(sizes))]
    return ChowLiuTree(tuple(floats), tuple(map(np.float32, tables)), edges)


def columns_of(epsilon: float, sizes: tuple[int, ...], together: int) -> Product:
    columns = tuple(rrjax.RandomizedResponse(size, epsilon) for size in sizes)
    return Sampled(columns, together) if together else Product(columns)


@cache
def estimators(shape: tuple[int, int]) -> dict[str, Any]:
    def of(function):
        return jax.jit(lambda part, counts: function(part.mixture_of_counts(counts)).theta.reshape(shape))

    return {"maximum": of(rrjax.ibu), "joint Bayes": of(lambda mixture: rrjax.joint_bayes(mixture, shape))}


def trees(reports: list[np.ndarray], product: Product) -> dict[str, ChowLiuTree]:
    found = {"chow_liu_tree": chow_liu_tree(reports, product)}
    tables: dict[str, dict[tuple[int, int], np.ndarray]] = {"maximum": {}, "joint Bayes": {}}
    for pair in itertools.combinations(range(len(reports)), 2):
        part: Any = product.part(pair)
        counts = part.count([reports[place] for place in pair])
        for name, function in estimators(part.shape).items():
            tables[name][pair] = np.asarray(function(part, counts))
            tables[name][pair[1], pair[0]] = tables[name][pair].T
    for name, own in tables.items():
        weights = np.zeros((len(reports),) * 2)
        for pair, each in own.items():
            weights[pair] = mutual_information(each)
        edges = strongest_tree(weights)
        found[name] = ChowLiuTree(found["chow_liu_tree"].margins, tuple(own[edge] for edge in edges), edges)
    return found


def distance(tree: ChowLiuTree, truth: ChowLiuTree) -> float:
    """Mean total variation of the tables of all pairs."""
    found, true = (pairs_of(each.edges, each.shape, each.tables) for each in (tree, truth))
    gap = np.abs(np.asarray(found - true))
    starts = np.cumsum([0, *truth.shape])
    pairs = itertools.combinations(range(len(truth.shape)), 2)
    blocks = [gap[starts[i] : starts[i + 1], starts[j] : starts[j + 1]].sum() / 2 for i, j in pairs]
    return float(np.mean(blocks))


def edges_of(tree: ChowLiuTree) -> set[tuple[int, ...]]:
    return {tuple(sorted(edge)) for edge in tree.edges}


def closeness(place: int, number: int) -> dict[str, Any]:
    epsilon, users, strength, together = SETTINGS[place]
    rng, product = np.random.default_rng(place), columns_of(epsilon, SIZES, together)
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(number):
        truth = random_tree(SIZES, tuple((int(rng.integers(0, v)), v) for v in range(1, len(SIZES))), strength, rng)
        of_values, of_reports = jax.random.split(jax.random.key(seed))
        reports = [np.asarray(each) for each in product.randomize(of_reports, truth.draw(of_values, users))]
        for name, tree in trees(reports, product).items():
            right = len(edges_of(tree) & edges_of(truth)) / len(truth.edges)
            found.setdefault(name, []).append((right, distance(tree, truth)))
    return {name: np.mean(each, axis=0).tolist() for name, each in found.items()}


def rooted(tree: ChowLiuTree) -> ChowLiuTree:
    """The same tree with column 0 as its root, so that few trees are compiled."""
    tables = dict(zip(tree.edges, tree.tables, strict=True))
    tables |= {(v, u): jnp.asarray(table).T for (u, v), table in tables.items()}
    order, edges = [0], []
    for u in order:
        joined = [v for v in range(len(tree.shape)) if (u, v) in tables and v not in order]
        edges += [(u, v) for v in joined]
        order += joined
    return ChowLiuTree(tree.margins, tuple(tables[edge] for edge in edges), tuple(edges))


def rejections(place: int, number: int) -> dict[str, Any]:
    epsilon, users, strength, together = SETTINGS[place]
    sizes, edges = SIZES[:4], ((0, 1), (1, 2), (1, 3))
    product = columns_of(epsilon, sizes, together)
    truth = random_tree(sizes, edges, strength, np.random.default_rng(0))
    found = {}
    for weight in WEIGHTS:
        p_values, right = [], 0
        for seed in range(number):
            of_values, of_reports, of_test = jax.random.split(jax.random.key(seed), 3)
            values = [np.asarray(each) for each in truth.draw(of_values, users)]
            follows = np.random.default_rng(seed).random(users) < weight
            values[3] = np.where(follows, values[0], values[3])
            reports = [np.asarray(each) for each in product.randomize(of_reports, values)]
            tree = rooted(chow_liu_tree(reports, product))
            right += edges_of(tree) == edges_of(truth)
            p_values.append(float(tree_fit_test(of_test, reports, tree, product, num_draws=DRAWS).p_value))
        found[str(weight)] = {"p_values": p_values, "right": right / number}
    return found


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    number, places = options.number, [1] if options.quick else range(len(SETTINGS))
    close = {place: closeness(place, number) for place in places}
    tested = {place: rejections(place, number) for place in places}

    def name(place):
        epsilon, users, strength, together = SETTINGS[place]
        return [f"{epsilon:g}", f"{users:,}", f"{strength:g}", f"{together or 'all'}"]

    first = ["ε of a column", "N", "strength", "columns a user"]
    methods = list(close[places[0]])
    tables = [
        Table(
            "Closeness",
            [*first, *(f"{each}: edges, distance" for each in methods)],
            [
                [*name(place), *(f"{100 * right:.0f} %, {far:.4f}" for right, far in close[place].values())]
                for place in places
            ],
            f"{number} collections in each setting. Edges: of the true tree, found. Distance: mean total variation of "
            "the tables of all pairs.",
        ),
        Table(
            "The test of fit",
            [*first, "edges found", *(f"p ≤ 0.05, 0.25, 0.5 at {weight:g}" for weight in WEIGHTS)],
            [
                [
                    *name(place), f"{100 * tested[place]['0.0']['right']:.0f} %",
                    *(
                        ", ".join(f"{np.mean(np.asarray(each['p_values']) <= q + 1e-6):.3f}" for q in (0.05, 0.25, 0.5))
                        for each in tested[place].values()
                    ),
                ]
                for place in places
            ],
            f"{number} collections of each share of users whose last value follows the first, and {DRAWS} draws of a "
            "test. At 0 the truth is a tree. Edges found: collections in which all are.",
        ),
    ]  # fmt: skip
    return tables, {"closeness": close, "tests": tested}


if __name__ == "__main__":
    run(study, "Chow–Liu trees of columns that were randomized apart", ("collections", 200, 4))
