"""Populations, and the histograms of collections from them."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64
from laws import (
    SIGMAS,
    binomial_masses,
    check_covariance,
    check_frequencies,
    check_joint,
    check_sample,
    chi_square_bound,
    joint_law,
    report_law,
)
from refusals import refused

import rrjax
from rrjax.simulate.populations import _as_users

BIG = 1_423_000


@pytest.mark.parametrize("num_categories", [2, 50, BIG])
@pytest.mark.parametrize("exponent", [0.0, 0.01, 1.0, 2.5, 40.0])
def test_zipf(num_categories, exponent):
    theta = np.asarray(rrjax.simulate.zipf(num_categories, exponent))
    assert theta.dtype == FLOAT
    assert theta.shape == (num_categories,)
    assert abs(theta.astype(np.longdouble).sum() - 1) <= 2 * ULP
    assert (np.diff(theta) <= 0).all()
    exact = np.exp(-float(FLOAT.type(exponent)) * np.log(np.arange(1.0, num_categories + 1)))
    exact /= exact.sum()
    # s·log(i) is rounded, in the exponent.
    tolerance = (8 + 2 * exponent * np.log(num_categories)) * ULP
    np.testing.assert_allclose(theta, exact, rtol=tolerance, atol=1e-37)


def test_zipf_at_its_ends():
    np.testing.assert_array_equal(rrjax.simulate.zipf(5, np.inf), [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(rrjax.simulate.zipf(4, 0), [0.25] * 4)
    for bad in (1, 0, 2.5, True):
        with refused("num_categories"):
            rrjax.simulate.zipf(bad, 1.0)


def test_zipf_has_a_derivative_and_a_batch():
    slope = jax.jacfwd(lambda s: rrjax.simulate.zipf(5, s))(FLOAT.type(1.0))
    theta, log_rank = np.asarray(rrjax.simulate.zipf(5, 1.0)), np.log(np.arange(1, 6))
    np.testing.assert_allclose(slope, -theta * (log_rank - theta @ log_rank), atol=8 * ULP)
    both = jax.vmap(lambda s: rrjax.simulate.zipf(5, s))(np.array([0.5, 2.0], FLOAT))
    np.testing.assert_allclose(both[1], rrjax.simulate.zipf(5, 2.0), rtol=8 * ULP)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 3.0])
def test_values_are_as_frequent_as_told(exponent):
    num_users = 200_000
    theta = rrjax.simulate.zipf(50, exponent)
    values = rrjax.simulate.values(jax.random.key(0), theta, num_users)
    assert values.dtype == np.int32
    assert values.shape == (num_users,)
    frequency = np.bincount(values, minlength=50) / num_users
    theta = np.asarray(theta, float)
    error = np.abs(frequency - theta)
    # Categories that expect a report or less are bounded by a Poisson count instead of a normal.
    assert (error <= SIGMAS * np.sqrt(theta / num_users) + 5 / num_users).all()
    assert np.bincount(values, minlength=50).size == 50


def test_values_of_probability_zero_never_come():
    theta = [0.0, 0.3, 0.0, 0.7, 0.0, 0.0]
    values = np.asarray(rrjax.simulate.values(jax.random.key(1), theta, 100_000))
    assert set(values.tolist()) == {1, 3}
    one = rrjax.simulate.values(jax.random.key(1), [0, 0, 1], 1000)
    assert (np.asarray(one) == 2).all()


def test_values_need_not_be_normalized_and_depend_on_the_key_alone():
    theta = np.array([1, 2, 3, 4])
    first, again, other = (np.asarray(rrjax.simulate.values(jax.random.key(k), theta, 10_000)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    error = np.bincount(first, minlength=4) / 10_000 - theta / 10
    assert np.abs(error).max() < SIGMAS * np.sqrt(0.25 / 10_000)


def test_bad_populations_are_refused():
    for theta in ([[0.5, 0.5]], 0.5, [1.0], ["a", "b"]):
        with refused("theta"):
            rrjax.simulate.values(jax.random.key(0), theta, 10)


@pytest.mark.long
def test_randomized_and_estimated_a_population_comes_back():
    # The whole way: draw, randomize, count, estimate. Expected error by the variance of the inversion.
    K, num_users, epsilon = 20, 200_000, 2.0
    theta = rrjax.simulate.zipf(K, 1.0)
    value_key, report_key = jax.random.split(jax.random.key(0))
    values = rrjax.simulate.values(value_key, theta, num_users)
    reports = rrjax.RandomizedResponse(K, epsilon).randomize(report_key, values)
    counts = rrjax.count(reports, K)
    r = np.exp(epsilon)
    expected = (K - 1) * (K - 2 + 2 * r) / (num_users * (r - 1) ** 2) + 1 / num_users
    for estimator in (rrjax.inv, rrjax.inv_n, rrjax.mle_star, rrjax.inv_p):
        # A sum of K squares: its standard deviation is about sqrt(2/K) of its mean, projecting only gains.
        error = float(rrjax.metrics.squared_error(estimator(counts, epsilon), theta))
        assert error < expected * (1 + SIGMAS * np.sqrt(2 / K))


# --- draws of what a collection brings

SIZES = [0, 1, 2, 3, 10, 100, 10_000, 10**6, 10**9, 2**31 - 1]
EPSILONS = [1e-6, 0.5, 4.0, np.inf]
counts, collect, randomized = rrjax.simulate.counts, rrjax.simulate.collect, rrjax.simulate.randomized


def check_totals(num_categories, sizes=SIZES, epsilons=EPSILONS):
    for theta in (rrjax.simulate.zipf(num_categories, 1.3), np.arange(num_categories)[::-1] % 2):
        possible = np.asarray(theta) > 0
        for number, num_users in enumerate(sizes):
            for epsilon in epsilons:
                key = jax.random.key(number)
                reports = np.asarray(counts(key, theta, num_users, epsilon))
                truth, collected = map(np.asarray, collect(key, theta, num_users, epsilon))
                again = np.asarray(randomized(key, truth, epsilon))
                for histogram in (reports, truth, collected, again):
                    assert histogram.dtype == np.int32
                    assert histogram.shape == (num_categories,)
                    assert histogram.min() >= 0
                    assert histogram.sum(dtype=np.int64) == num_users
                assert not truth[~possible].any()
                if epsilon == np.inf:
                    assert not reports[~possible].any()
                    np.testing.assert_array_equal(collected, truth)
                    np.testing.assert_array_equal(again, truth)


@pytest.mark.long
def test_totals_are_exact():
    check_totals(3)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("num_categories", [2, 50, 1000, 10_000])
def test_totals_are_exact_for_more_sizes(num_categories):
    check_totals(num_categories)


@pytest.mark.full
@pytest.mark.work
@pytest.mark.once
def test_totals_are_exact_for_very_many_categories():
    check_totals(BIG, [1000, 10**6, 2**31 - 1], [1.0, np.inf])


BATCH = 20_000


def batch(function):
    return jax.jit(lambda seed, *args: jax.vmap(lambda key: function(key, *args))(keys_of(seed)))


def keys_of(seed):
    return jax.random.split(jax.random.key(seed), BATCH)


many_counts, many_collect, many_randomized = batch(counts), batch(collect), batch(randomized)

# For each K, what is expected of few users exactly.
THETAS = {2: np.array([0.8, 0.2], FLOAT), 3: np.array([0.6, 0.0, 0.4], FLOAT)}
THETAS_AND_USERS = [(2, 1), (2, 5), (2, 40), (2, 100), (3, 3), (3, 6)]


def unit_vector(i, number):
    return tuple(int(i == j) for j in range(number))


def pair_steps(theta, epsilon):
    """One user: what is added to the true counts and to the reports."""
    law, number = report_law(theta, epsilon), len(theta)
    return {
        unit_vector(i, number) + unit_vector(j, number): law[i, j]
        for i in range(number)
        for j in range(number)
        if law[i, j] > 0
    }


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("num_categories", [2, 3])
def test_histograms_have_their_joint_law(num_categories):
    theta = THETAS[num_categories]
    for (number, num_users), epsilon in itertools.product(THETAS_AND_USERS, (0.3, 2.0)):
        if number == num_categories:
            truth, reports = many_collect(0, theta, jnp.int32(num_users), epsilon)
            law = joint_law([pair_steps(theta, epsilon)] * num_users)
            check_joint(np.concatenate([truth, reports], axis=1), law)


@pytest.mark.full
@pytest.mark.once
def test_counts_have_their_joint_law():
    theta = THETAS[3]
    for num_users, epsilon in ((3, 1.0), (6, 3.0), (40, 0.5), (100, 2.0)):
        law = report_law(theta, epsilon).sum(0)
        user = {unit_vector(j, 3): law[j] for j in range(3)}
        check_joint(many_counts(1, theta, jnp.int32(num_users), epsilon), joint_law([user] * num_users))


@pytest.mark.full
@pytest.mark.once
def test_randomized_populations_have_their_joint_law():
    for truth, epsilon in (([3, 0, 1], 1.0), ([0, 0, 5], 3.0), ([40, 30, 1], 0.7), ([1, 60, 20], 4.0)):
        channel = report_law(np.ones(3), epsilon)
        users = [{unit_vector(j, 3): channel[i, j] for j in range(3)} for i in range(3) for _ in range(truth[i])]
        check_joint(many_randomized(2, np.array(truth, np.int32), epsilon), joint_law(users))


def moments_of_a_user(theta, epsilon):
    """The mean and covariance of what a user adds to (true counts, reports), `[2K]`."""
    law = report_law(theta, epsilon)
    mean = np.concatenate([law.sum(1), law.sum(0)])
    second = np.block([[np.diag(law.sum(1)), law], [law.T, np.diag(law.sum(0))]])
    return mean, second - np.outer(mean, mean)


@pytest.mark.work
@pytest.mark.once
@pytest.mark.parametrize(
    ("num_users", "epsilon"),
    [(200, 1e-6), (200, 6.0), (10_000, 1.0), (10**6, 1e-6), (10**6, 6.0), (10**9, 3.0), (2**31 - 1, 1.0)],
)
def test_truth_and_reports_vary_together_as_they_should(num_users, epsilon):
    theta = THETAS[3]
    truth, reports = many_collect(3, theta, jnp.int32(num_users), epsilon)
    mean, covariance = moments_of_a_user(theta.astype(float) / theta.astype(float).sum(), epsilon)
    check_covariance(np.concatenate([truth, reports], axis=1), num_users * mean, num_users * covariance)


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("num_users", [10_000, 10**6])
def test_single_categories_are_binomial(num_users):
    theta, epsilon = THETAS[3].astype(float), 1.5
    law = report_law(theta, epsilon).sum(0)
    truth, collected = many_collect(4, THETAS[3], jnp.int32(num_users), epsilon)
    reports = many_counts(5, THETAS[3], jnp.int32(num_users), epsilon)
    for i in range(3):
        check_sample(reports[:, i], *binomial_masses(num_users, law[i]))
        check_sample(collected[:, i], *binomial_masses(num_users, law[i]))
        check_sample(truth[:, i], *binomial_masses(num_users, theta[i]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("truth", "epsilon"),
    # The last keeps all but 10⁻⁸: the others are few, and must not be lost to the rounding of one minus them.
    [([9_000, 1_000, 0], 1.0), ([10**6, 0, 7], 3.0), ([10**9, 5 * 10**8, 20], 0.1), ([2 * 10**9, 10, 10**8], 18.4)],
)
def test_randomized_populations_vary_as_they_should(truth, epsilon):
    reports = np.asarray(many_randomized(6, np.array(truth, np.int32), epsilon))
    channel = report_law(np.ones(3), float(FLOAT.type(epsilon)))
    mean = truth @ channel
    covariance = sum(n * (np.diag(row) - np.outer(row, row)) for n, row in zip(truth, channel, strict=True))
    check_covariance(reports, mean, covariance)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("num_users", [12, 1000, 10**6])
def test_many_categories_vary_as_they_should(num_users):
    # Unbatched, as most calls are: what a batch makes of the same programs is other code.
    draws, number, epsilon = 2000, 50, 3.0
    theta = np.asarray(rrjax.simulate.zipf(number, 1.0), float)
    keys = jax.random.split(jax.random.key(7), draws)
    pairs = [np.concatenate(collect(key, theta.astype(FLOAT), num_users, epsilon)) for key in keys]
    reports = np.stack([counts(key, theta.astype(FLOAT), num_users, epsilon) for key in keys])
    mean, covariance = moments_of_a_user(theta, epsilon)
    check_frequencies(np.sum(pairs, axis=0, dtype=np.int64)[:number], theta)
    check_frequencies(np.sum(pairs, axis=0, dtype=np.int64)[number:], mean[number:])
    check_frequencies(reports.sum(0, dtype=np.int64), mean[number:])
    if num_users >= 1000:
        check_covariance(np.stack(pairs), num_users * mean, num_users * covariance)
        check_covariance(reports, num_users * mean[number:], num_users * covariance[number:, number:])


@pytest.mark.long
@pytest.mark.once
def test_they_agree_with_users_one_by_one():
    # Not with a formula, but with the other way through the library: every user simulated.
    theta, num_users, epsilon = THETAS[3], 60, 1.2
    mechanism = rrjax.RandomizedResponse(3, epsilon)

    def collect_users(key):
        value_key, report_key = jax.random.split(key)
        values = rrjax.simulate.values(value_key, theta, num_users)
        return rrjax.count(values, 3), rrjax.count(mechanism.randomize(report_key, values), 3)

    one = np.concatenate(jax.jit(jax.vmap(collect_users))(keys_of(8)), axis=1)
    other = np.concatenate(many_collect(9, theta, jnp.int32(num_users), epsilon), axis=1)
    check_same_law(one, other)
    check_same_law(one[:, 3:], np.asarray(many_counts(10, theta, jnp.int32(num_users), epsilon)))


def check_same_law(one, other):
    """Two samples of vectors by the chi-square of homogeneity."""
    values, place = np.unique(np.concatenate([one, other]), axis=0, return_inverse=True)
    place = place.ravel()
    first, second = (np.bincount(part, minlength=len(values)) for part in (place[: len(one)], place[len(one) :]))
    often = first + second >= 20
    first, second = (np.append(part[often], part[~often].sum()).astype(float) for part in (first, second))
    square = ((first - second) ** 2 / np.maximum(first + second, 1)).sum()  # of samples of equal size
    assert square <= chi_square_bound(len(first) - 1)


@pytest.mark.long
@pytest.mark.once
def test_keys_are_independent():
    theta, num_users = THETAS[3], 10_000
    truth, reports = map(np.asarray, many_collect(11, theta, jnp.int32(num_users), 1.0))
    other = np.asarray(many_counts(11, theta, jnp.int32(num_users), 1.0))
    rows = np.concatenate([truth, reports], axis=1).astype(float)
    rows = rows[:, rows.std(0) > 0]
    rows = (rows - rows.mean(0)) / rows.std(0)
    lagged = rows[:-1].T @ rows[1:] / (len(rows) - 1)
    assert np.abs(lagged).max() < SIGMAS / np.sqrt(len(rows))
    assert len(np.unique(np.concatenate([truth, reports], axis=1), axis=0)) > 0.9 * BATCH
    assert (other != reports).any()


@pytest.mark.long
def test_histograms_of_point_masses_and_scaled_populations():
    key = jax.random.key(0)
    for num_users in (5, 10**6, 2**31 - 1):
        truth, reports = collect(key, [0, 0, 1], num_users, np.inf)
        np.testing.assert_array_equal(truth, [0, 0, num_users])
        np.testing.assert_array_equal(reports, [0, 0, num_users])
        np.testing.assert_array_equal(counts(key, [0, 0, 1], num_users, np.inf), [0, 0, num_users])
        truth, reports = collect(key, [0, 0, 1], num_users, 0.1)
        np.testing.assert_array_equal(truth, [0, 0, num_users])
        assert (reports > 0).all() or num_users == 5
    # Powers of two leave the same bits.
    theta = np.array([0.5, 0.25, 0.25], FLOAT)
    for scaled in (theta * 4, theta * FLOAT.type(2.0**-100), theta * FLOAT.type(2.0**100), [2, 1, 1]):
        for one, other in zip(collect(key, scaled, 10**6, 1.0), collect(key, theta, 10**6, 1.0), strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(counts(key, scaled, 10**6, 1.0), counts(key, theta, 10**6, 1.0))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.uint8])
def test_populations_of_other_dtypes(dtype):
    theta = np.array([1, 3, 4], dtype)
    truth, reports = collect(jax.random.key(0), theta, 10**6, 1.0)
    assert int(truth.sum()) == int(reports.sum()) == 10**6
    assert np.abs(np.asarray(truth) / 10**6 - theta / 8).max() < SIGMAS * np.sqrt(0.25 / 10**6)
    assert int(counts(jax.random.key(0), theta, np.uint8(200), np.float32(1)).sum()) == 200


@pytest.mark.long
def test_what_makes_no_sense_is_minus_one():
    key = jax.random.key(0)
    for theta in (
        [0.5, -0.1, 0.6],
        [np.nan, 0.5, 0.5],
        [0.0, 0.0, 0.0],
        [np.inf, 1.0, 1.0],
        np.full(3, np.finfo(FLOAT).max / 3, FLOAT),
    ):
        assert (np.asarray(counts(key, theta, 100, 1.0)) == -1).all()
        assert (np.asarray(collect(key, theta, 100, 1.0)) == -1).all()
    for epsilon in (0.0, -1.0, np.nan, -np.inf):
        assert (np.asarray(counts(key, [0.2, 0.3, 0.5], 100, epsilon)) == -1).all()
        assert (np.asarray(collect(key, [0.2, 0.3, 0.5], 100, epsilon)) == -1).all()
        assert (np.asarray(randomized(key, [20, 30, 50], epsilon)) == -1).all()
    assert (np.asarray(randomized(key, [20, -1, 50], 1.0)) == -1).all()
    assert np.isnan(rrjax.mle_star(counts(key, [0.2, 0.3, -0.5], 100, 1.0), 1.0)).all()
    # Traced, the number of users is a value too.
    for bad in (-1, -(2**31)):
        assert (np.asarray(many_counts(0, THETAS[3], jnp.int32(bad), 1.0)) == -1).all()
        assert (np.asarray(many_collect(0, THETAS[3], jnp.int32(bad), 1.0)) == -1).all()
    assert int(jax.jit(_as_users)(np.uint32(2**31 + 5))) < 0
    assert int(jax.jit(_as_users)(np.int8(100))) == 100
    assert (np.asarray(many_randomized(0, np.array([2**30, 2**30, 2], np.int32), 1.0)) == -1).all()
    wraps = jnp.array([2**31 - 1, 2**31 - 1, 10], np.int32)  # to 8
    assert (np.asarray(many_randomized(0, wraps, 1.0)) == -1).all()


@pytest.mark.skipif(not X64, reason="integers of 64 bits")
def test_wider_integers_do_not_wrap():
    key = jax.random.key(0)
    for bad in (2**31, 2**32 + 5, 2**40, -(2**32) + 5):
        assert int(jax.jit(_as_users)(np.int64(bad))) < 0
        assert (np.asarray(many_randomized(0, np.array([bad, 1, 1]), 1.0)) == -1).all()
    assert (np.asarray(randomized(key, [2**32 + 5, -(2**32) + 7, 1], 1.0)) == -1).all()


@pytest.mark.skipif(not X64, reason="integers of 64 bits")
@pytest.mark.parametrize("num_users", [2**31, 10**12, 2**53])
def test_more_users_than_32_bits_count(num_users):
    theta = np.array([0.6, 0.3, 0.1, 0.0])
    keys = jax.random.split(jax.random.key(3), 400)
    true, reports = map(np.asarray, jax.jit(jax.vmap(lambda key: collect(key, theta, num_users, 1.0)))(keys))
    alone = np.asarray(jax.jit(jax.vmap(lambda key: counts(key, theta, num_users, 1.0)))(keys))
    d = math.expm1(1) / (math.expm1(1) + 4)
    for drawn, law in ((true, theta), (reports, (1 - d) / 4 + d * theta), (alone, (1 - d) / 4 + d * theta)):
        assert drawn.dtype == np.int64
        assert (drawn >= 0).all()
        assert (drawn.sum(1) == num_users).all()
        deviation = np.sqrt(num_users * law * (1 - law))
        score = (drawn - num_users * law) / np.where(deviation > 0, deviation, 1)
        assert np.abs(score.mean(0)).max() <= 4.5 / math.sqrt(400)
        spread = (score**2).mean(0)[law > 0]
        assert np.abs(spread - 1).max() <= 4.5 * math.sqrt(2 / 400)
    # Who kept the value is part of the truth: the two vary together.
    score = [
        (each[:, 0] - each[:, 0].mean()) / each[:, 0].std() for each in (true.astype(float), reports.astype(float))
    ]
    p = (1 - d) / 4 + d * 0.6
    expected = d * math.sqrt(0.6 * 0.4 / (p * (1 - p)))
    assert abs((score[0] * score[1]).mean() - expected) <= 4.5 / math.sqrt(400)


def test_bad_arguments_of_histograms_are_refused():
    key, theta = jax.random.key(0), [0.2, 0.3, 0.5]
    for draw in (counts, collect):
        for bad in (-1, 2**54, 2**70, np.int64(2**60), -(2**70)):
            with refused("num_users"):
                draw(key, theta, bad, 1.0)
        if not X64:
            for wide in (2**31, 2**40, np.int64(2**33)):
                with refused("num_users"):
                    draw(key, theta, wide, 1.0)
        for bad in (1e6, np.float32(5), True, [1, 2], None):
            with refused("num_users"):
                draw(key, theta, bad, 1.0)
        for bad in ([[0.5, 0.5]], 0.5, [1.0], ["a", "b"], []):
            with refused("theta"):
                draw(key, bad, 10, 1.0)
        for bad in ([1.0, 2.0], "a", None):
            with refused("epsilon"):
                draw(key, theta, 10, bad)
    for bad, said in (
        ([0.5, 0.5], "must be integers, numbers of users, got dtype float"),
        ([[1, 2]], r"must have shape \[K\]"),
        ([1], "K >= 2"),
        (["a", "b"], "must be integers"),
        ([2**31 - 1, 1], "2147483648"),
    ):
        with pytest.raises(ValueError, match=f"true_counts.*{said}"):
            randomized(key, bad, 1.0)
    with refused("epsilon"):
        randomized(key, [1, 2], [1.0, 2.0])


@pytest.mark.long
def test_batches_are_loops_and_jit_changes_nothing():
    theta = THETAS[3]
    keys = jax.random.split(jax.random.key(0), BATCH)[:30]
    for num_users in (4, 1000, 10**6):
        batched = [np.asarray(part)[:30] for part in many_collect(0, theta, jnp.int32(num_users), 1.0)]
        looped = [np.stack(part) for part in zip(*(collect(key, theta, num_users, 1.0) for key in keys), strict=True)]
        np.testing.assert_array_equal(batched, looped)
        batched = many_counts(0, theta, jnp.int32(num_users), 1.0)[:30]
        np.testing.assert_array_equal(batched, np.stack([counts(key, theta, num_users, 1.0) for key in keys]))
        truth = looped[0][0]
        batched = many_randomized(0, truth, 1.0)[:30]
        np.testing.assert_array_equal(batched, np.stack([randomized(key, truth, 1.0) for key in keys]))
    jitted = jax.jit(counts)(keys[0], theta, num_users, 1.0)
    np.testing.assert_array_equal(jitted, counts(keys[0], theta, num_users, 1.0))


@pytest.mark.full
def test_batches_over_users_epsilon_and_populations():
    # One of them has a small cell first, which rejection never accepts: it must not be waited for.
    key = jax.random.key(0)
    users = np.array([0, 7, 5000, 10**6, 2**31 - 1], np.int32)
    epsilons = np.array([1e-3, 1.0, 16.0, 5.0, np.inf], FLOAT)
    thetas = np.array([[1, 0, 0], [0.5, 0.5, 0], [1e-7, 0.5, 0.5], [1e-6, 0.9, 0.1], [0.3, 0.3, 0.4]], FLOAT)
    truth, reports = jax.vmap(collect, in_axes=(None, 0, 0, 0))(key, thetas, users, epsilons)
    assert (np.asarray(truth).sum(1, dtype=np.int64) == users).all()
    assert (np.asarray(reports).sum(1, dtype=np.int64) == users).all()
    again = jax.vmap(randomized, in_axes=(None, 0, 0))(key, truth, epsilons)
    assert (np.asarray(again).sum(1, dtype=np.int64) == users).all()
    for i in range(len(users)):
        one = collect(key, thetas[i], users[i], epsilons[i])
        np.testing.assert_array_equal([truth[i], reports[i]], one)
        np.testing.assert_array_equal(again[i], randomized(key, truth[i], epsilons[i]))


@pytest.mark.long
@pytest.mark.once
def test_sweeps_compile_once(compilations):
    key, theta = jax.random.key(0), rrjax.simulate.zipf(3, 1.0)
    truth = np.array([5, 6, 7])

    def sweep(num_users, epsilon):
        counts(key, theta, num_users, epsilon)
        collect(key, theta, num_users, epsilon)
        randomized(key, truth * (num_users // 20), epsilon)

    sweep(20, 1.0)
    del compilations[:]
    for num_users, epsilon in itertools.product((0, 500, 10**6), (0.5, 2.0, 8.0)):
        sweep(num_users, epsilon)
    assert not compilations


@pytest.mark.long
def test_keys_of_other_kinds_draw_histograms_too():
    key = jax.random.key(0, impl="rbg")
    reports = counts(key, THETAS[3], 10**6, 1.0)
    assert int(reports.sum()) == 10**6
    check_frequencies(reports, report_law(THETAS[3], 1.0).sum(0))
