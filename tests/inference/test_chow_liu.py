"""Chow–Liu trees beside dense tables, recovered from reports, and the test of their fit."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from cases import FLOAT
from refusals import refused
from scipy.sparse.csgraph import minimum_spanning_tree

import rrjax
from rrjax.inference import ChowLiuTree, chow_liu_tree, tree_fit_test
from rrjax.inference.chow_liu import _fitted_to_margins, channel_of, pairs_of, strongest_tree
from rrjax.mechanisms import Product, RandomizedResponse, Sampled

EDGES = ((1, 0), (1, 2), (2, 3))


def random_tree(sizes, edges, seed, noise=0.5):
    """A tree, and its dense joint table."""
    rng = np.random.default_rng(seed)
    margins = {edges[0][0]: rng.dirichlet(np.full(sizes[edges[0][0]], 5.0))}
    tables, letters, terms = [], "abcdefgh", [margins[edges[0][0]]]
    for u, v in edges:
        common = rng.dirichlet(np.full(sizes[v], 5.0))
        given = noise * common + (1 - noise) * rng.dirichlet(np.full(sizes[v], 0.3), size=sizes[u])
        tables.append(margins[u][:, None] * given)
        margins[v] = margins[u] @ given
        terms.append(given)
    names = [letters[edges[0][0]], *(letters[u] + letters[v] for u, v in edges)]
    dense = np.einsum(",".join(names) + "->" + letters[: len(sizes)], *terms)
    tree = ChowLiuTree(
        tuple(margins[place].astype(FLOAT) for place in range(len(sizes))),
        tuple(table.astype(FLOAT) for table in tables),
        edges,
    )
    return tree, dense


def edges_of(tree):
    return {tuple(sorted(edge)) for edge in tree.edges}


@pytest.mark.long
def test_tables_and_probabilities_are_those_of_the_dense_table():
    tree, dense = random_tree((2, 3, 4, 3), EDGES, 0)
    for columns in [(0, 1, 2, 3), (3, 0), (1,)]:
        others = tuple(set(range(4)) - set(columns))
        kept = sorted(columns)
        expected = np.transpose(dense.sum(axis=others), [kept.index(each) for each in columns])
        np.testing.assert_allclose(tree.table(columns), expected, atol=1e-6)
    values = np.indices(dense.shape)
    np.testing.assert_allclose(tree.probability(tuple(values)), dense, atol=1e-6)
    outside = jax.jit(lambda value: tree.probability((value, jnp.int32(0), jnp.int32(0), jnp.int32(0))))
    assert np.isnan(outside(2))
    assert np.isnan(outside(-1))
    assert float(tree.margin_error) < 1e-6


@pytest.mark.long
def test_all_pairs_at_once():
    tree, dense = random_tree((2, 3, 4, 3), EDGES, 0)
    pairs = pairs_of(tree.edges, tree.shape, tree.tables)
    np.testing.assert_allclose(pairs[:2, 9:], dense.sum(axis=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(np.diag(pairs)[2:5], tree.margins[1], atol=1e-6)


@pytest.mark.long
def test_a_category_without_a_share():
    tree = ChowLiuTree(([1.0, 0.0], [0.5, 0.5]), ([[0.5, 0.5], [0.0, 0.0]],), ((0, 1),))
    np.testing.assert_allclose(tree.table((0, 1)), [[0.5, 0.5], [0, 0]])
    assert float(tree.probability((1, 0))) == 0
    assert not np.asarray(tree.draw(jax.random.key(0), 100)[0]).any()


@pytest.mark.long
def test_draws_follow_the_tree():
    tree, dense = random_tree((2, 3, 2), ((1, 0), (1, 2)), 1)
    drawn = tree.draw(jax.random.key(3), 20_000)
    counts = np.bincount(np.ravel_multi_index([np.asarray(each) for each in drawn], dense.shape), minlength=12)
    assert scipy.stats.chisquare(counts, 20_000 * dense.ravel()).pvalue > 0.01
    several = jax.vmap(lambda key: jnp.stack(tree.draw(key, 5)))(jax.random.split(jax.random.key(0), 4))
    assert several.shape == (4, 3, 5)


def test_the_strongest_tree():
    rng = np.random.default_rng(0)
    for number in (2, 5, 9):
        weights = rng.random((number, number))
        weights = weights + weights.T
        edges = strongest_tree(weights)
        reached = {edges[0][0]}
        for u, v in edges:
            assert u in reached
            assert v not in reached
            reached.add(v)
        most = -minimum_spanning_tree(-np.triu(weights, 1)).sum()
        assert sum(weights[edge] for edge in edges) == pytest.approx(most)
        assert weights[edges[0]] == np.triu(weights, 1).max()


def test_proportional_fitting_keeps_odds_ratios():
    rng = np.random.default_rng(0)
    table, rows, columns = rng.dirichlet(np.ones(6)).reshape(2, 3), np.array([0.9, 0.1]), np.array([0.2, 0.3, 0.5])
    found = np.asarray(_fitted_to_margins(*(each.astype(FLOAT) for each in (table, rows, columns))), np.float64)
    np.testing.assert_allclose(found.sum(axis=1), rows, atol=2e-6)
    np.testing.assert_allclose(found.sum(axis=0), columns, atol=2e-6)
    ratios = [each[0, 0] * each[1, 1:] / (each[1, 0] * each[0, 1:]) for each in (found, table)]
    np.testing.assert_allclose(*ratios, rtol=1e-4)


def reports_of(tree, mechanism, number, seed):
    of_values, of_reports = jax.random.split(jax.random.key(seed))
    return [np.asarray(each) for each in mechanism.randomize(of_reports, tree.draw(of_values, number))]


@pytest.mark.full
def test_a_known_tree_is_recovered():
    """Of 40,000 nearly true reports; a share has at most the standard error 0.0025."""
    tree, dense = random_tree((3, 3, 3, 3), EDGES, 2)
    product = Product([RandomizedResponse(3, 9.0)] * 4)
    reports = reports_of(tree, product, 40_000, 0)
    found = chow_liu_tree(reports, product)
    assert edges_of(found) == edges_of(tree)
    assert list(found.edges[0]) in [[u, v] for u, v in itertools.permutations(range(4), 2)]
    assert float(found.margin_error) < 1e-5
    for place, margin in enumerate(found.margins):
        alone = rrjax.mle_star(np.bincount(reports[place], minlength=3), 9.0)
        np.testing.assert_allclose(margin, alone, atol=1e-4)
    for edge, table in zip(found.edges, found.tables, strict=True):
        others = tuple(set(range(4)) - set(edge))
        expected = dense.sum(axis=others)
        np.testing.assert_allclose(table, expected if edge[0] < edge[1] else expected.T, atol=5 * 0.0025)
    assert int(np.argmax(found.information)) == 0


@pytest.mark.full
@pytest.mark.parametrize("sampled", [False, True])
def test_missing_reports(sampled):
    """Users count by the columns that they report, at random: a third of all pairs is complete."""
    tree, dense = random_tree((2, 2, 2), ((0, 1), (1, 2)), 4, noise=0.2)
    columns = [RandomizedResponse(size, 4.0) for size in tree.shape]
    mechanism = Sampled(columns, 2) if sampled else Product(columns)
    reports = reports_of(tree, mechanism, 60_000, 1)
    if not sampled:
        gone = np.random.default_rng(0).random((3, 60_000)) < 0.4
        reports = [np.where(lost, -1, each) for lost, each in zip(gone, reports, strict=True)]
    found = chow_liu_tree(reports, mechanism)
    assert edges_of(found) == edges_of(tree)
    np.testing.assert_allclose(found.table((0, 1, 2)), dense, atol=0.02)
    fit = tree_fit_test(jax.random.key(0), reports, found, mechanism, num_draws=99)
    assert float(fit.p_value) > 0.05
    assert np.isnan(np.asarray(fit.pair_statistics)).sum() == 7


@pytest.mark.long
def test_channels_are_those_of_the_mechanisms():
    mechanism = rrjax.mechanisms.Channel(np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))
    np.testing.assert_allclose(channel_of(mechanism, 3), mechanism.matrix.T, atol=1e-6)
    response = RandomizedResponse(4, 1.5)
    expected = np.full((4, 4), float(response.q)) + np.eye(4) * float(response.p - response.q)
    np.testing.assert_allclose(channel_of(response, 4), expected, atol=1e-6)


@pytest.mark.work
def test_p_values_are_about_uniform_under_a_tree_and_small_for_a_cycle():
    """Of 40 collections, with 99 draws each; Kolmogorov's test at 1 %."""
    tree, _ = random_tree((2, 2, 2), ((0, 1), (1, 2)), 5, noise=0.2)
    product = Product([RandomizedResponse(2, 2.0)] * 3)
    found = []
    for seed in range(40):
        reports = reports_of(tree, product, 1000, seed)
        estimated = chow_liu_tree(reports, product)
        if estimated.edges != tree.edges:  # one compilation
            estimated = tree
        found.append(float(tree_fit_test(jax.random.key(seed), reports, estimated, product, num_draws=99).p_value))
    assert scipy.stats.kstest(found, "uniform").pvalue > 0.01
    # Two independent columns, which both decide the third.
    first, second = np.random.default_rng(0).integers(0, 2, (2, 4000))
    reports = product.randomize(jax.random.key(1), (first, second, first | second))
    estimated = chow_liu_tree(reports, product)
    fit = tree_fit_test(jax.random.key(0), reports, estimated, product, num_draws=99)
    assert float(fit.p_value) == pytest.approx(0.01)
    (outside,) = set(itertools.combinations(range(3), 2)) - edges_of(estimated)
    assert float(fit.pair_p_values[outside]) == pytest.approx(0.01)
    assert float(fit.pair_statistics[outside]) > 3


@pytest.mark.once
def test_a_tree_is_exported_with_its_edges():
    pytest.importorskip("flatbuffers")
    tree, _ = random_tree((2, 3, 2), ((0, 1), (1, 2)), 0)
    exported = jax.export.export(jax.jit(lambda tree: tree))(tree)
    assert jax.export.deserialize(exported.serialize()).call(tree) == tree


def test_what_is_refused():
    product = Product([RandomizedResponse(2, 1.0)] * 3)
    good = [np.array([0, 1, 1, 0])] * 3
    tree, _ = random_tree((2, 2, 2), ((0, 1), (1, 2)), 0)
    for reports in (good[:2], [*good[:2], good[2][:3]], [np.ones((2, 2), int)] * 3):
        with refused("reports"):
            chow_liu_tree(reports, product)
    with refused("reports"):
        chow_liu_tree([*good[:2], np.full(4, -1)], product)
    for odd in (good[2] + 1, good[2] - 2, good[2] * 1.0):
        with refused("reports of column 2"):
            chow_liu_tree([*good[:2], odd], product)
    for mechanism in (Product(product.columns[:1]), Sampled(product.columns), RandomizedResponse(2, 1.0)):
        with refused("mechanism"):
            chow_liu_tree(good, mechanism)
    with refused("mechanism"):
        chow_liu_tree(good, Product([*product.columns[:2], rrjax.mechanisms.LocalHashing(2, 1.0)]))
    with refused("mechanism"):
        tree_fit_test(jax.random.key(0), good[:2], tree, product.part((0, 1)))
    with refused("tree"):
        tree_fit_test(jax.random.key(0), good, random_tree((2, 3, 2), ((0, 1), (1, 2)), 0)[0], product)
    with refused("num_draws"):
        tree_fit_test(jax.random.key(0), good, tree, product, num_draws=9)
    for columns in ((), (0, 0)):
        with refused("columns"):
            tree.table(columns)
    with refused("columns"):
        tree.table((3,))
    many, _ = random_tree((2,) * 5, tuple((k, k + 1) for k in range(4)), 0)
    wide = ChowLiuTree(many.margins * 6, many.tables[:1] * 29, tuple((k, k + 1) for k in range(29)))
    with refused("columns"):
        wide.table(range(30))
    assert wide.table((0, 29)).shape == (2, 2)
    with refused("edges"):
        ChowLiuTree(tree.margins, tree.tables, ((0, 1), (0, 1)))
    with refused("tables"):
        ChowLiuTree(tree.margins, tree.tables[:1], ((0, 1),))
