"""Many vectors of one length in rows of one array: sums, largest numbers, and where each number lies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, elsewhere
from layout import laid

from rrjax.numerics.rows import MOST_AT_ONCE, WIDTH, Rows

HEIGHT = 48
SIZES = [(1, 1), (5, 48), (128, 7), (129, 24), (500, 10), (6144, 1)]


def reduced(length, number, whole, real):
    rows = Rows(HEIGHT, length, number)
    return rows.count(whole, whole * 2), rows.sum(real, -real), rows.max(whole, real.astype(whole.dtype))


def roots(length, number, values):
    return Rows(HEIGHT, length, number).each(lambda each: jnp.sqrt(each) + 1, values)


HERE, ELSEWHERE = ([jax.jit(way(each)) for each in (reduced, roots)] for way in (lambda f: f, elsewhere))
"""As compiled for this platform, and for an accelerator."""


@pytest.mark.parametrize(("length", "number"), SIZES)
def test_sums_and_largest_numbers_are_those_of_each_vector(length, number):
    # One program for all sizes.
    rng = np.random.default_rng(length)
    whole = rng.integers(0, 1000, (number, length)).astype(np.int32)
    real = rng.random((number, length)).astype(FLOAT)
    given = jnp.int32(length), jnp.int32(number), laid(HEIGHT, whole), laid(HEIGHT, real)

    def check(found, expected, rtol=0.0):
        np.testing.assert_allclose(found[:number], expected, rtol=rtol)
        assert not np.asarray(found[number:]).any()

    for way, _ in (HERE, ELSEWHERE):
        counts, sums, most = way(*given)
        check(counts[0], whole.sum(1))
        check(counts[1], 2 * whole.sum(1))
        for found, sign in zip(sums, (1, -1), strict=True):
            check(found, sign * real.sum(1, dtype=np.float64), 8 * np.finfo(FLOAT).eps)
        check(most[0], whole.max(1))
        assert not np.asarray(most[1]).any()


@pytest.mark.long
def test_vectors_of_many_parts_take_turns_elsewhere():
    most, number = 2 * MOST_AT_ONCE + 3, 5
    vectors = np.random.default_rng(0).integers(0, 9, (number, most * WIDTH)).astype(np.int32)
    array = jnp.asarray(laid(most * number, vectors))
    for given in (most, 4 * most):
        rows = Rows(most * number, jnp.int32(most * WIDTH), jnp.int32(number), given)
        (found,) = elsewhere(rows.count)(array)
        np.testing.assert_array_equal(found[:number], vectors.sum(1))


@pytest.mark.parametrize("number", [1, 24, 48])
def test_a_function_of_each_vector(number):
    values = np.arange(HEIGHT).astype(FLOAT)
    for _, each in (HERE, ELSEWHERE):
        found = each(jnp.int32(5), jnp.int32(number), values)
        np.testing.assert_allclose(found[:number], np.sqrt(values[:number]) + 1, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(("length", "number"), SIZES)
def test_each_number_has_its_cell(length, number):
    rows = Rows(HEIGHT, jnp.int32(length), jnp.int32(number))
    vectors = np.arange(1, number * length + 1).reshape(number, length).astype(np.int32)
    array = laid(HEIGHT, vectors)
    np.testing.assert_array_equal(np.asarray(rows.used), array > 0)
    cells = rows.cell(*(each.astype(np.int32) for each in np.ogrid[:number, :length]))
    np.testing.assert_array_equal(array.ravel()[np.asarray(cells)], vectors)
    np.testing.assert_array_equal(rows.separate(jnp.asarray(array), number, length), vectors)
    own = rows.spread(jnp.arange(HEIGHT, dtype=jnp.int32) * 10)
    vector, place = np.divmod(array - 1, length)
    np.testing.assert_array_equal(np.broadcast_to(own, array.shape)[array > 0], 10 * vector[array > 0])
    np.testing.assert_array_equal(np.asarray(rows.places)[array > 0], place[array > 0])


@pytest.mark.long
def test_a_vector_that_is_not_finite_leaves_the_others_alone():
    rows = Rows(HEIGHT, jnp.int32(200), jnp.int32(3))
    vectors = np.ones((3, 200), FLOAT)
    vectors[0, 150], vectors[2, 3] = np.nan, np.inf
    (sums,) = rows.sum(jnp.asarray(laid(HEIGHT, vectors)))
    np.testing.assert_array_equal(sums[:3], [np.nan, 200, np.inf])


@pytest.mark.long
def test_sums_of_many_parts_keep_their_digits():
    # In the order of the rows, a plain sum of these loses two digits of float32.
    number = HEIGHT
    rows = Rows(HEIGHT * 4096, jnp.int32(4096 * WIDTH), jnp.int32(number))
    array = np.full((HEIGHT * 4096, WIDTH), 1 / 3, FLOAT)
    (sums,) = rows.sum(jnp.asarray(array))
    exact = 4096 * WIDTH * np.float64(array[0, 0])
    np.testing.assert_allclose(sums[:number], exact, rtol=2 * np.finfo(FLOAT).eps)
