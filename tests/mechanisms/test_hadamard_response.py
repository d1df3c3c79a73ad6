"""The transform of Hadamard response, against the matrix; what it has in common with others is in test_mechanisms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from scipy import linalg

import rrjax
from rrjax.data.linear_maps import Dense
from rrjax.data.mixture import Mixture
from rrjax.mechanisms import HadamardResponse
from rrjax.mechanisms.columns import Columns, even_sums


def there(size):
    """`[K, M]`, whether category i is there in column z, from the matrix itself."""
    order = 1 << size.bit_length()
    return linalg.hadamard(order)[1 : size + 1] > 0


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 30])
def test_any_two_categories_are_together_in_a_quarter(size):
    shown = there(size)
    together = shown.astype(int) @ shown.T.astype(int)
    columns = shown.shape[1]
    assert columns == HadamardResponse(size, 1.0).num_columns == 2 ** int(np.log2(size) + 1)
    np.testing.assert_array_equal(together, np.where(np.eye(size, dtype=bool), columns // 2, columns // 4))


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 2, 8, pytest.param(64, marks=pytest.mark.long)])
def test_even_sums_against_the_matrix(size):
    values = np.random.default_rng(size).integers(0, 100, size)
    wanted = (linalg.hadamard(size) > 0) @ values
    np.testing.assert_array_equal(even_sums(jnp.asarray(values)), wanted)
    # Nothing is subtracted: a tiny sum keeps its digits beside a huge one.
    one = np.zeros(size)
    one[-1] = 1e-20
    one[size // 2] = 1.0
    np.testing.assert_allclose(
        even_sums(jnp.asarray(one, FLOAT)), (linalg.hadamard(size) > 0) @ one, rtol=4 * np.finfo(FLOAT).eps
    )


@pytest.mark.full
def test_the_likelihood_is_that_of_the_dense_matrix():
    mechanism = HadamardResponse(6, 1.0)
    reports = mechanism.randomize(jax.random.key(3), np.repeat(np.arange(6), [40, 30, 20, 5, 5, 0]))
    mixture = mechanism.mixture(reports)
    e1 = np.expm1(1.0)
    dense = Mixture(np.bincount(np.asarray(reports), minlength=8), 1.0, Dense(there(6).T, e1))
    theta = np.array([0.3, 0.3, 0.2, 0.1, 0.05, 0.05], FLOAT)
    assert float(rrjax.nll(theta, mixture)) == pytest.approx(float(rrjax.nll(theta, dense)), rel=1e-6)
    np.testing.assert_allclose(rrjax.score(theta, mixture), rrjax.score(theta, dense), rtol=1e-5)
    found, wanted = rrjax.ibu(mixture), rrjax.ibu(dense)
    assert found.converged
    assert float(rrjax.nll(found.theta, dense)) == pytest.approx(float(rrjax.nll(wanted.theta, dense)), abs=1e-6)
    weights = np.random.default_rng(0).uniform(size=8).astype(FLOAT)
    lift = Columns(mechanism, e1)
    assert lift.shape == (8, 6)
    np.testing.assert_allclose(lift.transpose(weights), e1 * there(6) @ weights, rtol=1e-6)
