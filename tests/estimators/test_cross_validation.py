"""The cross-validated threshold: its contract, what it is a member of, and how well it chooses."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64, collect
from refusals import refused

import rrjax
from rrjax.estimators.cross_validation import NUM_FOLDS, Z_SCORES, _filler, _Law, _risks, _splitter
from rrjax.simulate.sampling import Stream

KEY = jax.random.key(0)
SIGMAS = 5

# Few lengths, because each costs a compilation of seconds.
HISTOGRAMS = {
    "two": [60, 40],
    "one report": [0, 0, 1, 0, 0, 0, 0],
    "three reports": [1, 0, 2, 0, 0, 0, 0],
    "point mass": [0, 0, 123_456_789, 0, 0, 0, 0],
    "all equal": [1000] * 7,
    "collected": collect(0, 7, 10_000, 1.0).tolist(),
    "sparse": collect(1, 100, 100_000, 1.0, 2.5).tolist(),
    "thin": collect(2, 100, 30, 1.0).tolist(),
    "full": [2**31 - 7, 1, 1, 1, 1, 1, 1],
}


def candidates(counts, epsilon):
    """F(τ) for every candidate, in plain float64."""
    c = np.asarray(counts, float)
    e1 = np.expm1(np.minimum(float(FLOAT.type(epsilon)), 709 if X64 else 88))
    total, q = c.sum(), 1 / (e1 + c.size)
    z = np.array(Z_SCORES)
    for tau in total * q + z * np.sqrt(total * q * (1 - q)) + np.maximum(z, 0) ** 2 / 6:
        above = np.maximum(c - tau, 0) if tau < c.max() else (c == c.max()).astype(float)
        yield above / above.sum()
    for estimator in (rrjax.mle_star, rrjax.inv_p):
        yield np.asarray(estimator(counts, epsilon), float)


@pytest.mark.long
@pytest.mark.parametrize("counts", HISTOGRAMS.values(), ids=HISTOGRAMS)
def test_it_is_one_of_the_family_and_on_the_simplex(counts):
    counts = np.array(counts, INT)
    for epsilon in (1e-30, 1e-3, 0.5, 2.0, 6.0, 800.0, np.inf):
        theta = np.asarray(rrjax.cv_threshold(KEY, counts, epsilon))
        assert theta.dtype == FLOAT
        assert theta.shape == counts.shape
        assert theta.min() >= 0
        assert abs(theta.astype(np.longdouble).sum() - 1) <= 8 * ULP
        distance = min(np.abs(theta - other).sum() / 2 for other in candidates(counts, epsilon))
        # The threshold itself is rounded, by as much as shows where all counts are near it.
        assert distance <= (1e-12 if X64 else 1e-4), epsilon


@pytest.mark.long
def test_what_cannot_be_checked_gives_nan():
    good = np.array([50, 30, 20, 0, 0, 0, 0], INT)
    for counts, epsilon in (
        (np.array([50, -1, 20, 0, 0, 0, 0], INT), 1.0),
        (np.zeros(7, INT), 1.0),
        (jnp.array([LARGEST, LARGEST, 1, 0, 0, 0, 0], INT), 1.0),
        (good, 0.0),
        (good, -1.0),
        (good, np.nan),
    ):
        assert np.isnan(rrjax.cv_threshold(KEY, counts, epsilon)).all()
    if X64:
        assert np.isnan(rrjax.cv_threshold(KEY, np.array([2**31, 5, 5, 0, 0, 0, 0]), 1.0)).all()
        assert not np.isnan(rrjax.cv_threshold(KEY, np.array([2**31 - 1] * 7), 1.0)).any()


def test_what_can_be_checked_is_refused():
    with refused("counts", value=FLOAT.name):
        rrjax.cv_threshold(KEY, np.array([1.0, 2.0], FLOAT), 1.0)
    for counts in ([[1, 2], [3, 4]], [3], 3, ["a", "b"]):
        with refused("counts"):
            rrjax.cv_threshold(KEY, counts, 1.0)
    with refused("epsilon"):
        rrjax.cv_threshold(KEY, [1, 2], [1.0, 2.0])


@pytest.mark.long
def test_batches_are_loops_and_one_compilation_serves_a_sweep(compilations):
    counts = np.stack([collect(seed, 100, 20_000, 2.0) for seed in range(4)]).astype(INT)
    keys = jax.random.split(KEY, 4)
    epsilons = np.array([0.5, 1.0, 2.0, 4.0], FLOAT)
    loop = [rrjax.cv_threshold(*row) for row in zip(keys, counts, epsilons, strict=True)]
    before = len(compilations)
    for epsilon in (0.7, 3.0):
        rrjax.cv_threshold(KEY, counts[0], FLOAT.type(epsilon))
    assert len(compilations) == before
    batch = jax.vmap(rrjax.cv_threshold)(keys, counts, epsilons)
    np.testing.assert_allclose(batch, np.stack(loop), atol=16 * ULP)
    same = jax.jit(rrjax.cv_threshold)(keys[1], counts[1], epsilons[1])
    np.testing.assert_allclose(same, loop[1], atol=16 * ULP)


def with_keys(seed, counts, epsilon, number):
    return np.stack(
        [rrjax.cv_threshold(key, counts, epsilon) for key in jax.random.split(jax.random.key(seed), number)]
    )


@pytest.mark.long
@pytest.mark.once
def test_the_key_alone_is_random():
    counts = collect(6, 100, 10_000, 1.0).astype(INT)
    np.testing.assert_array_equal(rrjax.cv_threshold(KEY, counts, 1.0), rrjax.cv_threshold(KEY, counts, 1.0))
    assert len({row.tobytes() for row in with_keys(0, counts, 1.0, 40)}) > 1


@pytest.mark.long
@pytest.mark.once
def test_the_risks_estimate_without_bias():
    # For thresholds fixed beforehand: the mean over collections and folds of what is minimized, against the error that
    # the same thresholds have on ⅘ of the reports, up to ‖θ‖², which no choice depends on.
    num_categories, num_users, epsilon = 30, 2_000, FLOAT.type(1.5)
    theta = rrjax.simulate.zipf(num_categories, 1.0)
    mechanism = rrjax.RandomizedResponse(num_categories, epsilon)
    law = _Law(mechanism.q, mechanism.d)
    scores = jnp.array([-3.0, 0.0, 1.5], FLOAT)

    def one(key):
        draw, fresh, deal = jax.random.split(key, 3)
        counts = rrjax.simulate.counts(draw, theta, num_users, epsilon).astype(INT)
        split = _splitter(Stream.of(deal), counts, epsilon, law, scores)
        risk = _risks(split, counts.astype(jnp.int32), law.d)[:3]
        size = num_users * (NUM_FOLDS - 1) // NUM_FOLDS
        train = rrjax.simulate.counts(fresh, theta, size, epsilon).astype(INT)
        fits = jax.vmap(_filler(train))(law.threshold(scores, jnp.asarray(size, INT)))
        true = jnp.sum((fits - theta) ** 2, axis=1) - jnp.sum(theta**2)
        # Differences, because the risks are up to a constant.
        return (risk[1:] - risk[0]) / law.d - (true[1:] - true[0])

    difference = np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(KEY, 1000)), float)
    error = difference.std(0) / np.sqrt(len(difference))
    # The number of training reports is itself random, which moves the error by less than this.
    assert (np.abs(difference.mean(0)) <= SIGMAS * error).all()


@pytest.mark.long
@pytest.mark.once
def test_the_order_of_the_categories_does_not_matter_in_distribution():
    counts = collect(6, 100, 10_000, 1.0).astype(INT)
    order = np.random.default_rng(0).permutation(100)
    straight, permuted = with_keys(1, counts, 1.0, 200), with_keys(2, counts[order], 1.0, 200)
    # Some keys choose otherwise than others, or there would be nothing to compare.
    assert (straight != straight[0]).any()
    for statistic in (lambda x: (x**2).sum(1), lambda x: (x > 0).sum(1), lambda x: x.max(1)):
        a, b = statistic(straight).astype(float), statistic(permuted).astype(float)
        assert abs(a.mean() - b.mean()) <= SIGMAS * np.sqrt((a.var() + b.var()) / 200) + 4 * ULP


@jax.jit
def _squared_errors(keys, theta, num_users, epsilon):
    def one(key):
        draw, deal = jax.random.split(key)
        true_counts, counts = rrjax.simulate.collect(draw, theta, num_users, epsilon)
        truth = true_counts.astype(FLOAT) / num_users.astype(FLOAT)
        functions = (rrjax.inv_n, rrjax.mle_star, rrjax.inv_p, partial(rrjax.cv_threshold, deal))
        return jnp.stack([rrjax.metrics.squared_error(function(counts, epsilon), truth) for function in functions])

    return jax.lax.map(one, keys)


def squared_errors(num_categories, num_users, epsilon, exponent, num_seeds=20):
    """`[4, seeds]`: InvN, MLE*, InvP, cv_threshold."""
    theta = rrjax.simulate.zipf(num_categories, exponent)
    keys = jax.random.split(KEY, num_seeds)
    return np.asarray(_squared_errors(keys, theta, np.int32(num_users), FLOAT.type(epsilon)), float).T


def above(difference):
    """By how many standard errors the mean exceeds zero."""
    return difference.mean() / (difference.std(ddof=1) / np.sqrt(len(difference)))


@pytest.mark.long
@pytest.mark.once
def test_many_empty_categories():
    inv_n, mle, inv_p, chosen = squared_errors(10_000, 1_000_000, 4.0, 2.5)
    np.testing.assert_allclose([inv_n.mean(), mle.mean(), inv_p.mean()], [0.448, 0.0164, 4.6e-4], rtol=0.5)
    assert above(inv_n / 100 - chosen) > SIGMAS
    assert above(mle / 10 - chosen) > SIGMAS
    assert above(chosen - 1.5 * inv_p) < SIGMAS
    assert chosen.mean() < 1.5 * inv_p.mean()


@pytest.mark.long
@pytest.mark.once
def test_a_dense_population():
    *three, chosen = squared_errors(100, 100_000, 3.0, 0.5)
    best = min(three, key=np.mean)
    assert above(chosen - 1.25 * best) < -2


@pytest.mark.long
@pytest.mark.once
def test_a_point_mass_is_often_found_exactly():
    # In 42 % of 3,000 collections, by this sampler and by the one before it.
    inv_n, _, _, chosen = squared_errors(100, 20_000, 3.0, np.inf, num_seeds=400)
    assert abs((chosen < 1e-12).mean() - 0.42) <= SIGMAS * math.sqrt(0.42 * 0.58 / 400)
    assert above(inv_n / 4 - chosen) > SIGMAS


@pytest.mark.skipif(not X64, reason="differences need digits")
def test_derivatives_are_those_at_the_chosen_threshold():
    counts = collect(5, 100, 100_000, 2.0).astype(INT)
    weights = np.arange(100) / 100

    def value(epsilon):
        return jnp.sum(rrjax.cv_threshold(KEY, counts, epsilon) * weights)

    step = 1e-6
    slope = (value(2.0 + step) - value(2.0 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(value)(2.0), slope, rtol=1e-5)


@pytest.mark.long
def test_a_million_categories():
    counts = collect(6, 1_000_000, 3_000_000, 6.0).astype(INT)
    theta = np.asarray(rrjax.cv_threshold(KEY, counts, 6.0))
    assert abs(theta.astype(np.longdouble).sum() - 1) <= 1e-6
    assert theta.min() >= 0
