"""Symmetric and optimized unary encoding: probabilities, laws, and the estimates that come of them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, ULP, X64
from laws import check_frequencies
from mixtures import solved
from refusals import refused

import rrjax
from rrjax import inference
from rrjax.mechanisms import OptimizedUnaryEncoding, RandomizedResponse, SymmetricUnaryEncoding

KINDS = [SymmetricUnaryEncoding, OptimizedUnaryEncoding]
both = pytest.mark.parametrize("kind", KINDS)
PUBLISHED = {
    SymmetricUnaryEncoding: lambda e: (math.exp(e / 2) / (math.exp(e / 2) + 1), 1 / (math.exp(e / 2) + 1)),
    OptimizedUnaryEncoding: lambda e: (0.5, 1 / (math.exp(e) + 1)),
}


@both
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 4.0, 30.0])
def test_probabilities_and_the_epsilon_that_they_deliver(kind, epsilon):
    mechanism = kind(7, epsilon)
    p, q = PUBLISHED[kind](epsilon)
    assert float(mechanism.rates.p) == pytest.approx(p, rel=8 * ULP)
    assert float(mechanism.rates.q) == pytest.approx(q, rel=8 * ULP)
    rates = mechanism.rates
    # Values differ in two bits: e^ε is the odds ratio of one, p(1 − q)/(q(1 − p)).
    delivered = np.log1p(np.float64(rates.truth) * np.float64(rates.total) / (float(rates.always) * float(rates.never)))
    assert delivered == pytest.approx(float(FLOAT.type(epsilon)), rel=1e-12 if X64 else 8 * ULP)
    plain = mechanism.rates_by(math.expm1)
    assert plain.p == pytest.approx(p, rel=1e-15)
    assert mechanism.bits == 7


@pytest.mark.full
@pytest.mark.once
@both
def test_collections_have_the_law_of_randomized_users(kind):
    """Both ways of drawing against the exact law, the convolution of two binomials, category by category."""
    size, epsilon = 3, 1.0
    mechanism = kind(size, epsilon)
    true_counts = np.array([6, 3, 0])
    values = jnp.asarray(np.repeat(np.arange(size), true_counts))
    p, q = PUBLISHED[kind](epsilon)
    number = int(true_counts.sum())

    def binomial(trials, chance):
        return np.array([math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(trials + 1)])

    keys = jax.random.split(jax.random.key(1), 20_000)
    one_by_one = jax.vmap(lambda key: mechanism.tally(mechanism.randomize(key, values)).support)(keys)
    together = jax.vmap(lambda key: mechanism.collect(key, true_counts).support)(keys)
    for drawn in (np.asarray(one_by_one), np.asarray(together)):
        for category, held in enumerate(true_counts.tolist()):
            law = np.convolve(binomial(held, p), binomial(number - held, q))
            check_frequencies(np.bincount(drawn[:, category], minlength=number + 1), law)
        # Bits of one report are independent, so are the support counts given the users.
        correlation = np.corrcoef(drawn.T)[np.triu_indices(size, 1)]
        assert np.abs(correlation).max() <= 5 / math.sqrt(len(keys))


@pytest.mark.long
@both
def test_large_collections_have_their_moments(kind):
    mechanism = kind(4, 2.0)
    true_counts = jnp.asarray([10**9, 5 * 10**8, 5 * 10**8, 0], INT)
    support = np.stack(
        [np.asarray(mechanism.collect(key, true_counts).support) for key in jax.random.split(jax.random.key(2), 40)]
    ).astype(float)
    p, q = PUBLISHED[kind](2.0)
    held = np.asarray(true_counts, float)
    mean = held * p + (held.sum() - held) * q
    variance = held * p * (1 - p) + (held.sum() - held) * q * (1 - q)
    # Probabilities are rounded to the dtype: some units in the last place of the mean.
    slack = 8 * ULP * mean
    assert (np.abs(support.mean(0) - mean) <= 5 * np.sqrt(variance / 40) + slack).all()
    spread = ((support - support.mean(0)) ** 2).sum(0) / 39 / variance
    assert (np.abs(spread - 1) <= 5 * math.sqrt(2 / 39)).all()


@pytest.mark.long
@both
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_maximum_likelihood_of_whole_reports(kind, epsilon):
    mechanism = kind(5, epsilon)
    values = np.repeat(np.arange(5), [60, 40, 15, 5, 0])
    reports = mechanism.randomize(jax.random.key(4), values)
    mixture = mechanism.mixture(reports)
    assert int(np.sum(mixture.weights)) == 120
    assert len(mixture.weights) == len({tuple(row) for row in np.asarray(reports).tolist()})
    result = rrjax.ibu(mixture)
    assert bool(result.converged)
    bits, e1 = np.asarray(reports, float), math.expm1(float(FLOAT.type(epsilon)))
    best = solved(np.ones(120), 1.0, e1 * bits)
    assert abs(best + float(rrjax.nll(result.theta, mixture))) <= (1e-6 if X64 else 2e-5)
    assert best + float(rrjax.nll(result.theta, mixture)) <= float(result.gap) + 1e-9
    # Under tracing every report is a row of its own: the same likelihood.
    traced = jax.jit(lambda r: rrjax.nll(result.theta, mechanism.mixture(r)))(reports)
    assert float(traced) == pytest.approx(float(rrjax.nll(result.theta, mixture)), abs=20 * ULP)


@pytest.mark.long  # programs that compile for seconds
def test_plans_for_any_mechanism():
    for kind in (*KINDS, RandomizedResponse):
        p, q = (float(x) for x in (kind(100, 1.0).rates.p, kind(100, 1.0).rates.q))
        wanted = math.sqrt((p * (1 - p) + 99 * q * (1 - q) + 0.99 * (p - q) ** 2) / (100 * 10_000 * (p - q) ** 2))
        assert float(inference.expected_rmse(100, 10_000, 1.0, mechanism=kind)) == pytest.approx(wanted, rel=1e-5)
        number = float(inference.users_for_error(100, 1.0, wanted, mechanism=kind))
        assert number == pytest.approx(10_000, rel=1e-4)
        epsilon = float(inference.epsilon_for_error(100, 10_000, wanted, mechanism=kind))
        assert epsilon == pytest.approx(1.0, rel=1e-4)
        width = float(inference.expected_width(100, 10_000, 1.0, 0.2, mechanism=kind))
        assert 3.9 * math.sqrt((q + (p - q) * 0.2) * (1 - q - (p - q) * 0.2) / 10_000) / (p - q) == pytest.approx(
            width, rel=0.03
        )
        users = float(inference.users_for_width(100, 1.0, width, 0.2, mechanism=kind))
        assert users == pytest.approx(10_000, rel=1e-2)
        share = float(inference.detectable_share(100, 10_000, 1.0, mechanism=kind))
        assert 2 < share * (p - q) / math.sqrt(q * (1 - q) / 10_000) < 3.2
    assert np.isinf(inference.epsilon_for_error(10, 5, 1e-3, mechanism=OptimizedUnaryEncoding))
    assert np.isnan(inference.epsilon_for_error(10, -5, 1e-3, mechanism=OptimizedUnaryEncoding))


@both
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.tally([[1, 0]]), r"reports must have shape \[N, 3\]"),
        (lambda m: m.tally([1, 0]), r"reports must have shape \[N, 3\]"),
        (lambda m: m.tally([[0.5, 0, 0]]), "reports must be booleans"),
        (lambda m: m.tally([[2, 0, 0]]), "reports must be 0 and 1, .* from 0 to 2"),
    ],
)
def test_bad_input_is_named(kind, call, message):
    with refused("reports"):
        call(kind(3, 1.0))


@pytest.mark.long
@both
def test_reports_of_any_shape_and_many(kind, monkeypatch):
    mechanism = kind(4, 1.0)
    assert mechanism.randomize(jax.random.key(0), np.zeros((2, 3), int)).shape == (2, 3, 4)
    assert mechanism.randomize(jax.random.key(0), np.zeros(0, int)).shape == (0, 4)
    # More than are drawn at a time.
    monkeypatch.setattr("rrjax.mechanisms.unary.CELLS", 40)
    many = np.asarray(mechanism.randomize(jax.random.key(0), np.zeros(95, int)))
    assert many.shape == (95, 4)
    assert 20 < many[:, 0].sum() < 90
    assert not (many[:10] == many[10:20]).all()
