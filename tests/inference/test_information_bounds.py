"""Bounds of the mutual information of tables with many cells: they hold where noise is as large as the cells."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rrjax
from rrjax.inference import association, mutual_information
from rrjax.inference.information_bounds import information_bounds
from rrjax.inference.two_columns import as_table
from rrjax.mechanisms import Direct, Product


def partly_equal(rows, columns, weight):
    theta = np.full((rows, columns), (1 - weight) / (rows * columns))
    theta[np.arange(rows), np.arange(rows)] += weight / rows
    return theta


def collections(theta, epsilon, users, number):
    """The product of both columns, which are not randomized without ε, and counts of so many collections."""
    columns = [Direct(size) if epsilon is None else rrjax.RandomizedResponse(size, epsilon) for size in theta.shape]
    first, second = (np.asarray(each.channel(), float) for each in columns)
    law = first.T @ theta @ second
    drawn = np.random.default_rng(0).multinomial(users, (law / law.sum()).ravel(), size=number)
    return Product(columns), drawn.reshape(number, *theta.shape).astype(np.int32)


@partial(jax.jit, static_argnums=2)
def bounds_of(key, counts, product):
    counts, *vectors = as_table(counts, product)
    dtype = vectors[0].dtype
    return information_bounds(key, counts, tuple(vectors), jnp.asarray(0.05, dtype))


NOISY = [  # the number of rows and columns, the part that is equal, ε, users
    (20, 20, 0.5, 3.0, 20_000),
    (13, 13, 0.3, 2.0, 50_000),
    (13, 13, 0.0, 2.0, 50_000),
    (9, 9, 0.5, 3.0, 2_000),
    (5, 13, 0.5, None, 300),
    (13, 20, 0.7, 0.3, 10_000),
]


@pytest.mark.long
@pytest.mark.parametrize(("rows", "columns", "weight", "epsilon", "users"), NOISY)
def test_they_hold_in_noise(rows, columns, weight, epsilon, users):
    """Intervals from the information of the unbiased table held in 6 of 60 collections of the first setting."""
    theta = partly_equal(rows, columns, weight)
    product, counts = collections(theta, epsilon, users, 40)
    keys = jax.random.split(jax.random.key(0), len(counts))
    found = jax.vmap(lambda key, counts: bounds_of(key, counts, product))(keys, jnp.asarray(counts))
    value, lower, upper = np.asarray(found).T
    true = max(float(mutual_information(theta)), 0)
    assert np.mean((lower <= true + 1e-6) & (true <= upper)) >= 0.95
    assert ((lower <= value) & (value <= upper) & (lower >= 0) & (upper <= np.log(min(theta.shape)) + 1e-6)).all()


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [None, 4.0])
@pytest.mark.parametrize("shape", [(9, 9), (20, 12)])
def test_both_sides_meet_where_there_is_little_noise(epsilon, shape):
    theta = np.random.default_rng(1).dirichlet(np.full(shape[0] * shape[1], 3.0)).reshape(shape)
    product, counts = collections(theta, epsilon, 2 * 10**9, 1)
    value, lower, upper = bounds_of(jax.random.key(0), counts[0], product)
    assert float(value) == pytest.approx(float(mutual_information(theta)), rel=0.01)
    assert upper - lower < 0.05 * value


@pytest.mark.long
@pytest.mark.parametrize("users", [1, 2, 3])
def test_a_few_reports_say_nothing(users):
    counts = np.zeros((9, 9), int)
    counts[0, 0] = users
    _, lower, upper = bounds_of(jax.random.key(0), counts, Product([rrjax.RandomizedResponse(9, 1.0)] * 2))
    assert (float(lower), float(upper)) == (0, pytest.approx(np.log(9)))


@pytest.mark.full  # two programs
@pytest.mark.parametrize("width", [8, 9])
def test_tables_on_both_sides_of_the_number_of_cells(width):
    theta = partly_equal(8, width, 0.5)
    product, counts = collections(theta, 4.0, 300_000, 1)
    value, lower, upper = association(jax.random.key(0), counts[0], product, num_draws=199).mutual_information
    assert lower < mutual_information(theta) < upper
    assert float(value) == pytest.approx(float(mutual_information(theta)), rel=0.02)
    assert upper - lower < 0.15 * value
