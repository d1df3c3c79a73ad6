"""Hadamard response: by enumeration, by its law, and by what it is to all that takes tallies and mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT
from scipy import linalg, stats

import rrjax
from rrjax.mechanisms import MECHANISMS, HadamardResponse
from rrjax.mechanisms.hadamard_response import Columns, even_sums
from rrjax.mixture import Dense, Mixture


def there(size):
    """`[K, M]`, whether category i is there in column z, from the matrix itself."""
    order = 1 << size.bit_length()
    return linalg.hadamard(order)[1 : size + 1] > 0


def channel(mechanism):
    p = float(mechanism.rates.p)
    columns = mechanism.num_columns
    return np.where(there(mechanism.num_categories), p, 1 - p) * 2 / columns


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 30])
def test_any_two_categories_are_together_in_a_quarter(size):
    shown = there(size)
    together = shown.astype(int) @ shown.T.astype(int)
    columns = shown.shape[1]
    assert columns == HadamardResponse(size, 1.0).num_columns == 2 ** int(np.log2(size) + 1)
    np.testing.assert_array_equal(together, np.where(np.eye(size, dtype=bool), columns // 2, columns // 4))
    rates = HadamardResponse(size, 1.3).rates
    rows = channel(HadamardResponse(size, 1.3))
    np.testing.assert_allclose(rows.sum(1), 1)
    assert rows.max() / rows.min() == pytest.approx(np.exp(1.3), rel=1e-6)
    supports = rows @ shown.T
    np.testing.assert_allclose(np.diag(supports), float(rates.p), rtol=1e-6)
    np.testing.assert_allclose(supports[~np.eye(size, dtype=bool)], float(rates.q), rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 8, 64])
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


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_reports_have_the_law_of_the_channel(epsilon):
    mechanism = HadamardResponse(5, epsilon)
    rows = channel(mechanism)
    reports = mechanism.randomize(jax.random.key(0), np.repeat(np.arange(5), 20_000).reshape(5, -1))
    assert reports.shape == (5, 20_000)
    for value in range(5):
        seen = np.bincount(np.asarray(reports[value]), minlength=8)
        assert stats.chisquare(seen, rows[value] * 20_000).pvalue > 1e-3


def test_tallies_of_reports_against_counting():
    mechanism = HadamardResponse(6, 1.0)
    reports = np.random.default_rng(0).integers(0, 8, 500)
    tally = mechanism.tally(reports)
    np.testing.assert_array_equal(tally.support, there(6)[:, reports].sum(1))
    assert int(tally.num_users) == 500
    parts = mechanism.tally(reports[:200]) + mechanism.tally(reports[200:])
    np.testing.assert_array_equal(parts.support, tally.support)


def test_collections_have_the_law_of_their_reports():
    """Means, variances and covariances of the support counts: two categories are not independent, as in unary ones."""
    mechanism, true = HadamardResponse(6, 1.0), np.array([50, 20, 10, 5, 5, 0], INT)
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = np.asarray(jax.vmap(lambda key: mechanism.collect(key, true).support)(keys), float)
    rows, shown = channel(mechanism), there(6).astype(float)
    mean = true @ rows @ shown.T
    covariance = sum(
        number * (shown @ (np.diag(row) - np.outer(row, row)) @ shown.T) for number, row in zip(true, rows, strict=True)
    )
    deviation = np.sqrt(np.diag(covariance))
    assert (np.abs(drawn.mean(0) - mean) < 4 * deviation / np.sqrt(len(drawn))).all()
    apart = np.abs(np.cov(drawn.T) - covariance) / np.outer(deviation, deviation)
    assert apart.max() < 4 * np.sqrt(2 / len(drawn))


def test_a_large_collection_and_none():
    mechanism = HadamardResponse(3, 2.0)
    tally = mechanism.collect(jax.random.key(0), np.array([200_000, 50_000, 0], INT))
    assert int(tally.num_users) == 250_000
    estimate = np.asarray(rrjax.inv(tally))
    error = np.sqrt(0.25 / 250_000) / float(mechanism.rates.d)
    np.testing.assert_allclose(estimate, [0.8, 0.2, 0], atol=4 * error)
    empty = mechanism.collect(jax.random.key(0), np.zeros(3, INT))
    assert int(empty.num_users) == 0
    assert np.isnan(rrjax.inv_p(mechanism.collect(jax.random.key(0), np.array([-1, 5, 5], INT)))).all()


def test_the_total_error_is_what_its_rates_say():
    mechanism, true = HadamardResponse(20, 1.5), np.array([500, 300, 200] + [0] * 17, INT)
    keys = jax.random.split(jax.random.key(2), 1000)
    errors = jax.vmap(
        lambda key: rrjax.metrics.squared_error(rrjax.inv(mechanism.collect(key, true)), true / true.sum())
    )(keys)
    wanted = float(mechanism.rates.total_variance(20)) / true.sum()
    assert float(errors.mean()) == pytest.approx(wanted, abs=4 * float(errors.std()) / np.sqrt(1000))


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
    lift = Columns(e1, 6)
    assert lift.shape == (8, 6)
    np.testing.assert_allclose(lift.transpose(weights), e1 * there(6) @ weights, rtol=1e-6)


def test_it_serves_whatever_takes_a_tally():
    assert MECHANISMS["hadamard-response"] is HadamardResponse
    tally = HadamardResponse(40, 1.0).collect(jax.random.key(0), np.array([30_000, *[500] * 39], INT))
    for theta in (rrjax.inv_n(tally), rrjax.empirical_bayes(tally).theta):
        assert float(theta[0]) == pytest.approx(30_000 / 49_500, abs=0.05)
    limits = rrjax.inference.intervals(tally)
    assert float(limits.lower[0]) < 30_000 / 49_500 < float(limits.upper[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.tally([0, 9]), "from 0 to 7, got 9"),
        (lambda m: m.tally([0.5]), "integers"),
        (lambda m: m.randomize(jax.random.key(0), [0, 6]), "values must be from 0 to 5, got 6"),
        (lambda m: m.collect(jax.random.key(0), [1, 2]), r"true_counts must have shape \[6\]"),
        (lambda m: m.mixture(np.zeros(0, int)), "not all zero"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(HadamardResponse(6, 1.0))


def test_under_tracing_what_cannot_be_refused_is_marked():
    run = jax.jit(lambda values, epsilon: HadamardResponse(6, epsilon).randomize(jax.random.key(0), values))
    assert run(jnp.array([0, 6, -1]), 1.0).tolist()[1:] == [-1, -1]
    assert run(jnp.array([0, 1, 2]), -1.0).tolist() == [-1, -1, -1]
