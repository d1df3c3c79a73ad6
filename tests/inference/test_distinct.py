"""Statements are made once for each count that there is, and are those that every category would get by itself."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rrjax
from rrjax import inference
from rrjax.data.arguments import int_dtype
from rrjax.inference.intervals import FEWEST_CATEGORIES, distinct_counts

SIZE = 1_031  # odd, so that no vector of a processor holds the last ones


def zipf(seed=0):
    """What chance gives every category at an ε of 5, and more for some."""
    weights = np.arange(1, SIZE + 1) ** -1.2
    return np.random.default_rng(seed).poisson(20 + 3_000 * weights / weights.sum()).astype(np.int64)


HISTOGRAMS = {
    "from zero": zipf(),
    "far from zero": zipf() + 1_000_000,
    "a few of them far from the others": np.where(np.arange(SIZE) % 300 == 7, 10_000_000 + np.arange(SIZE), zipf()),
    "all alike": np.full(SIZE, 12),
    "below zero": zipf() - 12,
    "as far apart as can be": np.where(np.arange(SIZE) % 2, np.iinfo(int_dtype()).max, np.iinfo(int_dtype()).min),
}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_every_category_is_with_its_count(name):
    counts = HISTOGRAMS[name]
    alike = distinct_counts(jnp.asarray(counts, int_dtype()))
    assert alike is not None
    np.testing.assert_array_equal(counts[alike.example][alike.place], counts)
    found, times = np.unique(counts, return_counts=True)
    order = np.argsort(counts[alike.example[: len(found)]])
    np.testing.assert_array_equal(counts[alike.example[: len(found)]][order], found)
    np.testing.assert_array_equal(alike.times[: len(found)][order], times)
    assert not alike.times[len(found) :].any()
    assert (alike.example[len(found) :] == alike.example[0]).all()
    assert len(alike.example) == 256


@pytest.mark.parametrize("number", [256, 257, 512, 513])
def test_the_number_is_a_power_of_two(number):
    alike = distinct_counts(jnp.asarray(np.arange(4 * 513) % number, int_dtype()))
    assert alike is not None
    assert len(alike.example) == 1 << (number - 1).bit_length()


def test_where_it_is_not_worth_it():
    assert distinct_counts(jnp.zeros(FEWEST_CATEGORIES - 1, int)) is None
    assert distinct_counts(jnp.zeros(FEWEST_CATEGORIES, int)) is not None
    assert distinct_counts(jnp.arange(SIZE) // 3) is None
    assert distinct_counts(jnp.arange(SIZE) // 5) is not None


STATEMENTS = {
    "clopper-pearson": lambda given: inference.intervals(*given),
    "all at once": lambda given: inference.intervals(*given, level=0.8, simultaneous="bonferroni"),
    "wilson": lambda given: inference.intervals(*given, method="wilson"),
    "p-values": lambda given: inference.p_values(*given),
    "logarithms": lambda given: inference.p_values(*given, log=True),
    "discoveries": lambda given: inference.discoveries(*given, fdr=0.2),
    "any dependence": lambda given: inference.discoveries(*given, fdr=0.2, dependence="any"),
}
COLLECTIONS = {
    "counts": lambda: (zipf(), 5.0),
    "tally": lambda: (rrjax.Tally(20 * zipf(seed=1) + 8_600, num_users=1_000_000, p=0.5, q=0.009),),
}


USERS = {"users": lambda given: inference.intervals(*given, estimand="users")}


@pytest.mark.long
@pytest.mark.parametrize("collection", COLLECTIONS)
@pytest.mark.parametrize("name", [*STATEMENTS, pytest.param("users", marks=pytest.mark.full)])
def test_statements_are_those_of_every_category_by_itself(name, collection, monkeypatch):
    given = COLLECTIONS[collection]()
    counts = given[0].support if collection == "tally" else jnp.asarray(given[0], int_dtype())
    assert distinct_counts(counts) is not None
    state = (STATEMENTS | USERS)[name]
    together = state(given)
    monkeypatch.setattr(sys.modules["rrjax.inference.intervals"], "FEWEST_CATEGORIES", SIZE + 1)
    alone = state(given)
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape == (SIZE,)
        assert one.sharding == other.sharding
        assert len(np.unique(one)) > 1
        if one.dtype == bool:
            np.testing.assert_array_equal(one, other)
        else:
            # XLA takes the logarithms at the end of an array, less than a vector of them, by another function.
            slack = 128 * float(jnp.finfo(one.dtype).eps)
            np.testing.assert_allclose(one, other, rtol=slack, atol=slack / 10)


@pytest.mark.full
@pytest.mark.parametrize("name", STATEMENTS)
def test_under_transformations_every_category_has_its_own(name):
    counts = jnp.asarray(zipf(), int_dtype())
    state = STATEMENTS[name]
    known = state((counts, 5.0))
    traced = jax.jit(lambda counts, epsilon: state((counts, epsilon)))(counts, 5.0)
    batch = jax.vmap(lambda epsilon: state((counts, epsilon)))(jnp.asarray([5.0, 4.0]))
    slack = 128 * float(jnp.finfo(jnp.result_type(float)).eps)
    for one, other, third in zip(*map(jax.tree.leaves, (known, traced, batch)), strict=True):
        np.testing.assert_allclose(one, other, rtol=slack, atol=slack / 10)
        np.testing.assert_allclose(one, third[0], rtol=slack, atol=slack / 10)


@pytest.mark.long
@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("counts", [HISTOGRAMS["below zero"], np.zeros(SIZE, int)], ids=["below zero", "none"])
def test_of_unusable_counts_nothing_is_known(name, counts):
    for leaf in jax.tree.leaves(STATEMENTS[name]((counts, 2.0))):
        assert not leaf.any() if leaf.dtype == bool else np.isnan(leaf).all()


@pytest.mark.long
def test_another_collection_compiles_nothing(compilations):
    for seed, epsilon in ((0, 5.0), (1, 4.0)):
        counts = zipf(seed=seed)
        compilations.clear()
        inference.intervals(counts, epsilon)
        inference.intervals(counts, epsilon, level=0.9)
        inference.p_values(counts, epsilon)
        inference.discoveries(counts, epsilon)
    assert not compilations
