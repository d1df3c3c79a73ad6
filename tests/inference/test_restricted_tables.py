"""Tables that fit reports best among all of one association, beside SciPy's search."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import rrjax
from rrjax.inference import cramers_v, mutual_information
from rrjax.inference.restricted_tables import beginnings, lengths, misfit_about, nearest
from rrjax.mechanisms import Product

USERS = 1000


def channel(size, epsilon=2.0):
    return (np.eye(size) * np.expm1(epsilon) + 1) / (np.exp(epsilon) + size - 1)


def only_together(share, size=3):
    """A table whose last row and last column occur only together; the others are independent."""
    theta = np.full((size, size), (1 - share) / (size - 1) ** 2)
    theta[-1], theta[:, -1] = 0, 0
    theta[-1, -1] = share
    return theta


def searched(reports, likeliest, measure, length, epsilon=2.0):
    """The table, and how much worse it fits, χ²."""
    channels = tuple(jnp.asarray(channel(size, epsilon)) for size in reports.shape)
    misfit = misfit_about(jnp.asarray(likeliest), jnp.asarray(reports), channels, jnp.asarray(USERS, float))
    starts = beginnings(jnp.asarray(likeliest), jnp.full(likeliest.shape, 0.007))
    table, value = jax.jit(lambda length: nearest(misfit, starts, jnp.asarray(measure), length))(jnp.asarray(length))
    return np.asarray(table, float), USERS * float(value)


def test_lengths_are_those_of_the_measures():
    theta = np.random.default_rng(0).dirichlet(np.ones(12)).reshape(3, 4)
    expected = [float(cramers_v(theta)), np.sqrt(float(mutual_information(theta)))]
    np.testing.assert_allclose(np.asarray(lengths(jnp.asarray(theta))), expected, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("measure", "length"), [(0, 0.05), (0, 0.2), (0, 0.45), (0, 0.69), (1, 0.1), (1, 0.3)])
def test_none_that_scipy_finds_fits_better(measure, length):
    theta = 0.7 * np.outer([0.5, 0.4, 0.1], [0.3, 0.6, 0.1]) + 0.3 * np.diag([0.5, 0.4, 0.1])
    law = channel(3) @ theta @ channel(3).T
    table, value = searched(law, theta, measure, length)
    assert float(lengths(jnp.asarray(table))[measure]) == pytest.approx(length, abs=2e-3)
    assert table.sum() == pytest.approx(1, abs=1e-5)
    assert table.min() >= 0

    def misfit(cells):
        return USERS * ((channel(3) @ cells.reshape(3, 3) @ channel(3).T - law) ** 2 / law).sum()

    def length_of(cells):
        cells = np.maximum(cells, 1e-12).reshape(3, 3)
        expected = np.outer(cells.sum(axis=1), cells.sum(axis=0))
        nats = (cells * np.log(cells / expected)).sum()
        return np.sqrt(max([((cells - expected) ** 2 / expected).sum() / 2, nats][measure], 0) + 1e-12)

    equations = [
        {"type": "eq", "fun": lambda cells: cells.sum() - 1},
        {"type": "eq", "fun": lambda cells: length_of(cells) - length},
    ]
    rng = np.random.default_rng(0)
    least = np.inf
    for start in [theta.ravel(), *rng.dirichlet(np.full(9, 0.5), size=8)]:
        found = minimize(misfit, start, bounds=[(0, 1)] * 9, constraints=equations, method="SLSQP")
        if max(abs(each["fun"](found.x)) for each in equations) < 1e-4:
            least = min(least, found.fun)
    assert value <= 1.02 * least + 0.05


@pytest.mark.long
def test_a_rare_pair_is_found_where_the_estimate_shows_none():
    """A row and a column of 1 % of independent columns: V = 0.7 is half a standard error away, not 30."""
    theta = np.outer([0.495, 0.495, 0.01], [0.495, 0.495, 0.01])
    law = channel(3) @ theta @ channel(3).T
    table, value = searched(law, theta, 0, 0.7)
    assert float(cramers_v(table)) == pytest.approx(0.7, abs=0.01)
    assert value < 3.84
    # The other way round it is excluded: no row is rare.
    even = np.full((3, 3), 1 / 9)
    assert searched(channel(3) @ even @ channel(3).T, even, 0, 0.7)[1] > 30


@pytest.mark.long
def test_a_table_of_this_length_is_its_own_nearest():
    theta = only_together(0.03)
    table, value = searched(channel(3) @ theta @ channel(3).T, theta, 0, float(cramers_v(theta)))
    assert value < 0.05
    np.testing.assert_allclose(table, theta, atol=2e-3)


@pytest.mark.long
def test_beginnings_have_rows_and_columns_that_occur_only_together():
    theta = 0.9 * only_together(0.03) + 0.1 / 9
    starts = np.asarray(beginnings(jnp.asarray(theta), jnp.full((3, 3), 0.007)))
    np.testing.assert_allclose(starts[0, 1], theta, rtol=1e-6)
    np.testing.assert_allclose(starts.sum(axis=(2, 3)), 1, rtol=1e-5)
    rare = starts[1, 1]
    assert rare[2, 2] == pytest.approx(theta[2, 2], rel=1e-5)
    np.testing.assert_allclose(rare[2, :2] + rare[:2, 2], 0, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("length", [0.9, 0.95, 0.999])
def test_tables_of_strong_association_are_found_in_strong_noise(length):
    """One column determines the other; that cells go to zero must not turn their x around."""
    first, second = channel(2, 0.3), channel(12, 0.3)
    law = first @ (np.tile(np.eye(2), 6) / 12) @ second.T
    counts = np.random.default_rng(3).multinomial(10**6, (law / law.sum()).ravel()).reshape(law.shape)
    product = Product([rrjax.RandomizedResponse(2, 0.3), rrjax.RandomizedResponse(12, 0.3)])
    likeliest = jnp.asarray(rrjax.ibu(product.mixture_of_counts(counts), accelerate="newton").theta.reshape(2, 12))
    users = jnp.asarray(1e6, likeliest.dtype)
    channels = jnp.asarray(first, likeliest.dtype), jnp.asarray(second, likeliest.dtype)
    misfit = misfit_about(likeliest, jnp.asarray(counts / 1e6, likeliest.dtype), channels, users)
    starts = beginnings(likeliest, jnp.full((2, 12), 0.05, likeliest.dtype))
    table, value = jax.jit(lambda length: nearest(misfit, starts, jnp.asarray(0), length))(jnp.asarray(length))
    assert float(lengths(table)[0]) == pytest.approx(length, abs=2e-4)
    # Some units of χ²: the truth has V = 1. Else thousands.
    assert float(users * (value - misfit.value(likeliest))) < 40


@pytest.mark.long
@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (5, 3)])
def test_the_last_beginning_has_the_most_association(shape):
    theta = jnp.asarray(np.random.default_rng(0).dirichlet(np.full(math.prod(shape), 5)).reshape(shape))
    less, more = beginnings(theta, jnp.full(shape, 0.01))[-1]
    np.testing.assert_array_equal(less, theta)
    assert float(lengths(more)[0]) == pytest.approx(1, abs=1e-5)
    assert float(lengths(more)[1]) == pytest.approx(np.sqrt(np.log(min(shape))), abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("length", [0.02, 0.18, 0.26, 0.34, 0.42, 0.98])
def test_where_all_hold_one_pair_every_table_near_it_fits(length):
    """A row and a column are empty: others next to nobody have any V, and fit as well."""
    theta = np.array([[0, 1.0], [0, 0]])
    table, value = searched(channel(2, 1.0) @ theta @ channel(2, 1.0).T, theta, 0, length, 1.0)
    assert float(cramers_v(table)) == pytest.approx(length, abs=1e-3)
    assert value < 0.5
