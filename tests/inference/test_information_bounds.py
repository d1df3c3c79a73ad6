"""Bounds of the mutual information of tables with many cells: they hold where noise is as large as the cells."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rrjax
from rrjax.inference import association, mutual_information
from rrjax.inference.information_bounds import _half_of, information_bounds
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
    (13, 13, 0.0, 0.5, 2_000),
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


def found_in(theta, epsilon, users, number):
    """Values, lower and upper limits of so many collections, and the information of the shares."""
    product, counts = collections(theta, epsilon, users, number)
    keys = jax.random.split(jax.random.key(0), number)
    found = jax.jit(lambda *all: jax.lax.map(lambda each: bounds_of(*each, product), all))(keys, jnp.asarray(counts))
    return *np.asarray(found).T, float(mutual_information(theta))


@pytest.mark.long
def test_they_hold_where_no_report_shows_rare_pairs():
    """With limits of one half alone in 0.89."""
    _, lower, upper, true = found_in(np.diag([0.001] * 8 + [0.992]), None, 550, 200)
    assert np.mean((lower <= true) & (true <= upper)) >= 0.97


@pytest.mark.long
@pytest.mark.parametrize(("shape", "users"), [((2, 100), 100_000), ((20, 20), 20_000)])
def test_the_estimate_is_right_where_limits_are_wide(shape, users):
    """The middle of the limits' tables was 0.25 for 0.18, and 0.94 for 0.91."""
    theta = partly_equal(*shape, 0.5) if shape == (20, 20) else np.random.default_rng(6).dirichlet(np.ones(200))
    value, _, _, true = found_in(np.reshape(theta, shape), 3.0 if shape == (20, 20) else 2.5, users, 40)
    assert value.mean() == pytest.approx(true, abs=3 * value.std() / np.sqrt(40))


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


@pytest.mark.long
def test_a_little_information_of_billions_keeps_its_digits():
    """Sums near one of rounded numbers made intervals without a width, in float32."""
    theta = partly_equal(9, 9, 1e-3)
    product, counts = collections(theta, None, 2 * 10**9, 20)
    true = float(mutual_information(theta.astype(np.float64)))
    keys = jax.random.split(jax.random.key(0), len(counts))
    with jax.enable_x64(False):
        found = [np.asarray(bounds_of(*each, product), float) for each in zip(keys, counts, strict=True)]
    # Rounding of the unbiased table is some 1e-7.
    assert min(upper - lower for _, lower, upper in found) > 1e-8
    assert np.mean([lower - 1e-7 <= true <= upper + 1e-7 for _, lower, upper in found]) >= 0.9


@pytest.mark.long
def test_halves_are_binomial():
    """Of few users from bits, of many normal: both sides of the largest number of bits, and near none."""
    counts = jnp.asarray([[1, 2, 31, 32, 33], [255, 256, 257, 10**6, 2 * 10**9]], jnp.int32)
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.vmap(lambda key: _half_of(key, counts))(keys), float)
    number = np.asarray(counts, float)
    errors = (drawn.mean(axis=0) - number / 2) / np.sqrt(number / 4 / 4000)
    assert np.abs(errors).max() < 4
    np.testing.assert_allclose(drawn.var(axis=0) / (number / 4), 1, atol=4 * np.sqrt(2 / 4000))
    assert (drawn >= 0).all()
    assert (drawn <= number).all()
