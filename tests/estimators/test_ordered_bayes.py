"""Ordered Bayes: its contract, and what it wins where neighbours are alike and loses where they are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, ULP, X64
from refusals import refused
from test_empirical_bayes import MANY

import rrjax
from rrjax import Tally, empirical_bayes, ordered_bayes
from rrjax.estimators.ordered_bayes import CATEGORIES_IN_BLOCK, _mapped
from rrjax.mechanisms import OptimizedUnaryEncoding


@pytest.mark.long
@pytest.mark.parametrize("counts", MANY)
def test_it_is_on_the_simplex_whatever_the_reports(counts):
    counts = np.array(counts, INT)
    for epsilon in (1e-6, 0.01, 1.0, 6.0, 36.0):
        for estimand in ("users", "distribution") if len(counts) == 7 else ("users",):
            found = ordered_bayes(counts, epsilon, estimand=estimand)
            theta = np.asarray(found.theta)
            assert theta.dtype == FLOAT
            assert theta.shape == counts.shape
            assert theta.min() > 0
            assert abs(theta.astype(np.longdouble).sum() - 1) <= 16 * ULP, epsilon
            for leaf in found:
                assert np.isfinite(np.asarray(leaf, float)).all(), (epsilon, found)
            assert found.variances.min() >= 0
            assert float(found.beliefs.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.long
def test_what_cannot_be_refused_gives_nan():
    estimate = jax.jit(lambda counts, epsilon: ordered_bayes(counts, epsilon))
    for counts, epsilon in (([0, 0, 0], 1.0), ([-1, 5, 5], 1.0), ([1, 2, 3], -1.0), ([1, 2, 3], np.nan)):
        assert np.isnan(estimate(np.array(counts), epsilon).theta).all()


def test_what_makes_no_sense_is_refused():
    with refused("counts"):
        ordered_bayes([0.5, 0.5, 1.0], 1.0)
    with refused("estimand"):
        ordered_bayes([3, 4, 5], 1.0, estimand="population")
    with refused("epsilon"):
        ordered_bayes(Tally([3, 4], 10, p=0.5, q=0.25), 1.0)


def bell(size, middle=0.45, width=0.12):
    shares = np.exp(-((((np.arange(size) + 0.5) / size - middle) / width) ** 2) / 2)
    return shares / shares.sum()


@jax.jit
def _errors(keys, true, epsilon):
    def one(key):
        counts = rrjax.simulate.randomized(key, true, epsilon)
        both = ordered_bayes(counts, epsilon).theta, empirical_bayes(counts, epsilon).theta
        return jnp.stack([rrjax.metrics.squared_error(theta, true / jnp.sum(true)) for theta in both])

    return jax.lax.map(one, keys)


def errors(shares, number, epsilon):
    """Squared errors of both among the same users, `[10, 2]`."""
    true = np.random.default_rng(0).multinomial(number, shares).astype(INT)
    return np.asarray(_errors(jax.random.split(jax.random.key(0), 10), true, jnp.asarray(epsilon, FLOAT)))


@pytest.mark.long
@pytest.mark.full
@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_where_neighbours_are_alike_it_is_three_times_as_close(epsilon):
    found = errors(bell(100), 100_000, epsilon)
    assert found[:, 0].mean() < found[:, 1].mean() / 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("s", "epsilon"),
    [(1.0, 3.0), (0.5, 1.0), (1.0, 1.0), (2.0, 2.0)],
)
def test_an_order_that_means_nothing_costs_little(s, epsilon):
    shuffled = np.random.default_rng(4).permutation(np.asarray(rrjax.simulate.zipf(100, s), float))
    found = errors(shuffled / shuffled.sum(), 100_000, epsilon)
    slack = (found[:, 0] - 1.1 * found[:, 1]).std(ddof=1) / np.sqrt(len(found))
    assert found[:, 0].mean() <= 1.1 * found[:, 1].mean() + 3 * slack


@pytest.mark.long  # a program of its own
def test_a_spike_on_a_smooth_curve_is_kept():
    shares = 0.7 * bell(100)
    shares[30] += 0.3
    true = np.random.default_rng(0).multinomial(100_000, shares).astype(INT)
    counts = rrjax.simulate.randomized(jax.random.key(0), true, 2.0)
    found = ordered_bayes(counts, 2.0)
    assert float(found.theta[30]) == pytest.approx(true[30] / 100_000, abs=0.02)
    assert abs(float(found.theta[31]) - true[31] / 100_000) < 0.01
    # As unsure as its count is.
    rates = rrjax.RandomizedResponse(100, 2.0).rates
    noise = float(jnp.sqrt(rates.p * (1 - rates.p) * 0.3 / 100_000) / rates.d)
    assert noise / 2 < float(found.variances[30]) ** 0.5 < 2 * noise
    assert found.beliefs[2] > 0.9


@pytest.mark.long
@pytest.mark.full
def test_batches_and_reflections_and_tallies_change_nothing():
    counts = rrjax.simulate.counts(jax.random.key(0), bell(60), 20_000, 1.5)
    whole = ordered_bayes(counts, 1.5)
    slack = 0.02 * float(np.sqrt(whole.variances.max()))
    np.testing.assert_allclose(ordered_bayes(counts[::-1], 1.5).theta[::-1], whole.theta, atol=slack)
    batch = jax.vmap(lambda c: ordered_bayes(c, 1.5).theta)(jnp.stack([counts, counts[::-1]]))
    np.testing.assert_allclose(batch[0], whole.theta, atol=slack)
    tally = rrjax.RandomizedResponse(60, 1.5).tally(np.repeat(np.arange(60), counts))
    np.testing.assert_allclose(ordered_bayes(tally).theta, whole.theta, atol=slack)


@pytest.mark.long
def test_other_mechanisms_through_their_tally():
    mechanism = OptimizedUnaryEncoding(100, 1.0)
    true = np.random.default_rng(0).multinomial(50_000, bell(100)).astype(INT)
    total = np.zeros(2)
    for seed in range(6):
        tally = mechanism.collect(jax.random.key(seed), true)
        for place, theta in enumerate((ordered_bayes(tally).theta, empirical_bayes(tally).theta)):
            total[place] += float(rrjax.metrics.squared_error(theta, true / 50_000))
    assert total[0] < total[1] / 3


def test_many_categories_are_read_in_blocks():
    values = jnp.arange(2 * CATEGORIES_IN_BLOCK + 7, dtype=FLOAT)
    np.testing.assert_array_equal(_mapped(lambda x: 2 * x + 1, values), 2 * values + 1)


@pytest.mark.long
def test_many_categories():
    shares = bell(20_000)
    counts = rrjax.simulate.counts(jax.random.key(0), jnp.asarray(shares, FLOAT), 3_000_000, 4.0)
    both = [
        float(((np.asarray(f(counts, 4.0, estimand="distribution").theta, float) - shares) ** 2).sum())
        for f in (ordered_bayes, empirical_bayes)
    ]
    assert both[0] < both[1] / 5


@pytest.mark.skipif(not X64, reason="asks both precisions")
def test_float32_is_as_close():
    true = np.random.default_rng(0).multinomial(100_000, bell(100)).astype(INT)
    counts = rrjax.simulate.randomized(jax.random.key(0), true, 1.0)
    tally = rrjax.RandomizedResponse(100, jnp.float32(1.0)).tally(np.repeat(np.arange(100), counts))
    data = rrjax.data.tally.evidence(tally, None)
    data = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else leaf.astype(jnp.float32), data)
    with jax.numpy_dtype_promotion("standard"):
        low = rrjax.estimators.ordered_bayes._estimated(data, "users")
    high = ordered_bayes(counts, 1.0)
    slack = 0.02 * float(np.sqrt(high.variances.max()))
    np.testing.assert_allclose(np.asarray(low.theta, float), high.theta, atol=slack)
