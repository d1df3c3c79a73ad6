"""RAPPOR: its Bloom filters, laws, privacy by enumeration, and both decoders against written-out references."""

import hashlib
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from laws import check_frequencies
from refusals import refused
from scipy import optimize

import rrjax
from rrjax.mechanisms.longitudinal import CohortBits, Rappor, bloom_filters

WORDS = ["red", "green", "blue", "black", "white", "grün"]
TIGHT = 1e-12 if X64 else 1e-5
# Four bits, two hashes: two words with nothing in common, one with a bit of either, one whose hashes are equal.
SMALL = np.array([[[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 0, 0, 1]], [[1, 0, 0, 1], [0, 1, 1, 0]] * 2], bool)


def law(rappor, cohort, rounds=1):
    """`[K, outputs]` of one cohort, by enumeration of the memo; and the outputs of one round."""
    f, p, q = float(FLOAT.type(rappor.f)), float(FLOAT.type(rappor.p)), float(FLOAT.type(rappor.q))
    outputs = np.array(list(itertools.product([0, 1], repeat=4)))
    set_ = np.where(rappor.filters[cohort], 1 - f / 2, f / 2)[:, None, :]
    memo = np.where(outputs, set_, 1 - set_).prod(-1)
    again = np.where(outputs, q, p)[:, None, :]
    report = np.where(outputs, again, 1 - again).prod(-1)
    whole = report
    for _ in range(rounds - 1):
        whole = (whole[:, :, None] * report[:, None, :]).reshape(16, -1)
    return memo @ whole, outputs


@pytest.mark.once
def test_bloom_filters_are_those_of_the_published_client():
    filters = bloom_filters(WORDS, 32, 3, 5)
    assert filters.shape == (5, 6, 32)
    for cohort, (place, word) in itertools.product(range(5), enumerate(WORDS)):
        digest = hashlib.md5(bytes([0, 0, 0, cohort]) + word.encode("utf-8")).digest()
        assert set(np.flatnonzero(filters[cohort, place])) == {digest[i] % 32 for i in range(3)}
    # The cohort has four bytes: 00 00 01 2c is number 300.
    one = bloom_filters(["red", "blue"], 256, 1, 301)[300, 0]
    assert np.flatnonzero(one).tolist() == [hashlib.md5(b"\x00\x00\x01\x2cred").digest()[0]]


@pytest.mark.parametrize(("f", "p", "q"), [(0.5, 0.5, 0.75), (0.25, 0.35, 0.65), (0.9, 0.1, 0.2), (0, 0.5, 0.75)])
def test_epsilon_by_enumeration_of_all_outputs(f, p, q):
    rappor = Rappor(SMALL, 2, f, p, q)
    for rounds in (1, 2):
        ratios = [np.log(table.max(0) / table.min(0)).max() for table in (law(rappor, c, rounds)[0] for c in (0, 1))]
        assert float(rappor.epsilon_after(rounds)) == pytest.approx(max(ratios), rel=TIGHT)
        assert max(ratios) < float(rappor.epsilon)
        if rounds == 1:
            assert float(rappor.first_epsilon) == pytest.approx(max(ratios), rel=TIGHT)
    permanent = 4 * math.log((1 - f / 2) / (f / 2)) if f else math.inf
    assert float(rappor.epsilon) == pytest.approx(permanent, rel=TIGHT)
    chained = [0.5 * f * (p + q) + (1 - f) * each for each in (p, q)]
    published = 2 * math.log(chained[1] * (1 - chained[0]) / (chained[0] * (1 - chained[1])))
    assert float(rappor.first_epsilon) == pytest.approx(published, rel=TIGHT)
    many = float(rappor.epsilon) if f else 10**6 * published  # without a permanent randomization ε adds up
    assert float(rappor.epsilon_after(10**6)) == pytest.approx(many, rel=1e-5)


@pytest.mark.once
@pytest.mark.parametrize("f", [0.5, 0])
def test_the_loss_of_two_histories_is_that_of_all_outputs(f):
    rappor, histories = Rappor(SMALL, 2, f), [(0, 0), (0, 1), (1, 0), (2, 1), (3, 3), (1, 2)]
    worst = np.zeros((len(histories),) * 2)
    for cohort in (0, 1):
        same = law(rappor, cohort, 2)[0]
        apart = [np.einsum("a,b->ab", *(law(rappor, cohort)[0][word] for word in history)) for history in histories]
        table = np.log([same[h[0]] if h[0] == h[1] else each.ravel() for h, each in zip(histories, apart, strict=True)])
        worst = np.maximum(worst, np.abs(table[:, None] - table[None]).max(2))
    found = [[rappor.history_loss(one, other) for other in histories] for one in histories]
    np.testing.assert_allclose(found, worst, rtol=1e-5, atol=1e-6)
    loss, one_report = rappor.history_loss([0, 0], [0, 1]), float(rappor.epsilon_after(1))
    assert loss > one_report if f else loss == pytest.approx(one_report)


@pytest.mark.long
def test_memos_and_two_rounds_have_their_law():
    rappor, number = Rappor(SMALL, 2), 40_000
    values = np.repeat([0, 2], number)
    key = jax.random.key(0)
    memo = rappor.memoize(key, values)
    cohorts = np.asarray(memo.cohorts)
    check_frequencies(np.bincount(cohorts), [0.5, 0.5])
    rounds = [rappor.report(jax.random.key(turn), memo) for turn in (1, 2)]
    code = sum(np.asarray(each.bits) @ [8, 4, 2, 1] * scale for each, scale in zip(rounds, (16, 1), strict=True))
    for cohort, value in itertools.product((0, 1), (0, 2)):
        seen = code[(cohorts == cohort) & (values == value)]
        check_frequencies(np.bincount(seen, minlength=256), law(rappor, cohort, 2)[0][value])
    # The cohort is of the user, the bits are of the user and the word.
    again, other = rappor.memoize(key, values[:1000]), rappor.memoize(key, np.full(1000, 3))
    np.testing.assert_array_equal(again.bits, memo.bits[:1000])
    np.testing.assert_array_equal(other.cohorts, cohorts[:1000])
    assert 0.5 < np.asarray(other.bits != again.bits).any(1).mean() < 1


def collected(rappor, shares, number, seed=0):
    values = np.repeat(np.arange(len(shares)), np.round(np.asarray(shares) * number).astype(int))
    return rappor.report(jax.random.key(seed + 1), rappor.memoize(jax.random.key(seed), values))


@pytest.mark.long
@pytest.mark.parametrize("f", [0.5, 0])
def test_the_likelihood_is_the_one_that_is_written_out(f):
    rappor = Rappor(SMALL, 2, f)
    memo = rappor.memoize(jax.random.key(0), np.arange(40) % 4)
    rounds = [rappor.report(jax.random.key(turn), memo).bits for turn in (1, 2)]
    one, other = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.0, 0.1, 0.1, 0.8])
    tables = [law(rappor, cohort, 2)[0] for cohort in (0, 1)]
    codes = sum(np.asarray(bits) @ [8, 4, 2, 1] * scale for bits, scale in zip(rounds, (16, 1), strict=True))
    rows = np.array([tables[c][:, code] for c, code in zip(np.asarray(memo.cohorts), codes, strict=True)])
    wanted = np.mean(np.log(rows @ one) - np.log(rows @ other))
    reports = CohortBits(memo.cohorts, jnp.stack(rounds, axis=1))

    def apart(reports):
        mixture = rappor.mixture(reports)
        return rrjax.nll(other.astype(FLOAT), mixture) - rrjax.nll(one.astype(FLOAT), mixture)

    assert float(apart(reports)) == pytest.approx(wanted, rel=1e-9 if X64 else 2e-5)
    assert float(jax.jit(apart)(reports)) == pytest.approx(wanted, rel=1e-9 if X64 else 2e-5)


@pytest.mark.long
def test_the_regression_is_that_of_scipy():
    rappor = Rappor(bloom_filters(WORDS, 16, 2, 4), 2)
    reports = collected(rappor, [0.6, 0.25, 0.15, 0, 0, 0], 5000)
    found = rappor.regression(reports)
    users, counts = (np.asarray(each, float) for each in rappor.bit_counts(reports))
    assert users.sum() == 5000
    f, p, q = 0.5, 0.5, 0.75
    shares = (counts / users[:, None] - (p + 0.5 * f * q - 0.5 * f * p)) / ((1 - f) * (q - p))
    scale = np.sqrt(users / users.sum())
    design = (rappor.filters * scale[:, None, None]).transpose(0, 2, 1).reshape(-1, 6)
    wanted, _ = optimize.nnls(design, (shares * scale[:, None]).ravel())
    np.testing.assert_allclose(found.theta, wanted, atol=1e-7 if X64 else 2e-5)
    assert float(found.violation) < 1e-5
    assert (wanted == 0).any()  # or the sign would not be tested


def test_without_permanent_noise_the_memo_is_the_filter():
    values = np.arange(40) % 4
    cohorts, bits = Rappor(SMALL, 2, f=0).memoize(jax.random.key(0), values)
    np.testing.assert_array_equal(bits, SMALL[np.asarray(cohorts), values])


@pytest.mark.long
def test_counts_are_as_good_as_reports_and_a_candidate_without_bits_has_no_share():
    filters = SMALL.copy()
    filters[:, 2] = [[0, 0, 0, 0], [0, 1, 0, 0]]  # no bit in cohort 0
    filters[:, 3] = False
    rappor = Rappor(filters, 2, f=0)
    reports = collected(rappor, [0.4, 0.3, 0.2, 0.1], 2000)
    counts = rappor.bit_counts(reports)
    regression = jax.jit(lambda counts: rappor.regression(counts).theta)
    for theta in (rappor.regression(counts).theta, regression(counts)):
        np.testing.assert_allclose(theta, rappor.regression(reports).theta, atol=1e-6)
        assert np.isnan(theta).tolist() == [False, False, False, True]
    # Without users in the cohort where it has bits, nothing is known of candidate 2, either.
    users, ones = (np.asarray(each) * [[1], [0]] for each in (counts[0][:, None], counts[1]))
    assert np.isnan(rappor.regression((users[:, 0], ones)).theta).tolist() == [False, False, True, True]
    assert np.isnan(regression((counts[0], counts[1].at[0, 1].set(counts[0][0] + 1)))).all()


@pytest.mark.full
def test_both_decoders_find_the_shares_and_words_that_are_no_candidates_are_left_out():
    shares, number = np.array([0.5, 0.3, 0.2, 0.0]), 20_000
    rappor = Rappor(bloom_filters(WORDS[:4], 32, 2, 8), 2)
    fewer = Rappor(rappor.filters[:, :2], 2)
    values = np.repeat(np.arange(4), (number * shares).astype(int))

    @jax.jit
    def decoded(key):
        reports = rappor.report(jax.random.fold_in(key, 1), rappor.memoize(key, values))
        result = rrjax.ibu(rappor.mixture(reports), max_iters=300)
        found = [rappor.regression(reports).theta, fewer.regression(reports).theta]
        return result.theta, result.gap, *found

    found = zip(*(decoded(key) for key in jax.random.split(jax.random.key(0), 4)), strict=True)
    likelihood, gap, regression, without = (np.array(each) for each in found)
    assert gap.max() < 1e-4
    # A bit has a standard error of at most √(¼/N), over (1 − f)(q − p) = ⅛; a word has two of them.
    error = np.sqrt(0.25 / number) * 8
    assert np.abs(likelihood - shares).max() < 4 * error / np.sqrt(2)
    assert np.abs(regression - shares).max() < 4 * error / np.sqrt(2)
    assert (without.sum(1) < 0.95).all()


@pytest.mark.long
def test_traced_parameters():
    @jax.jit
    def marked(values):
        rappor = Rappor(SMALL, 2)
        reports = rappor.report(jax.random.key(1), rappor.memoize(jax.random.key(0), values))
        likelihood = rrjax.nll(np.full(4, 0.25, FLOAT), rappor.mixture(reports))
        return reports.cohorts, likelihood, rappor.regression(reports, num_steps=10).theta

    cohorts, likelihood, theta = marked(jnp.array([0, 4]))
    assert cohorts[0] >= 0
    assert cohorts[1] == -1
    assert np.isnan(likelihood)
    assert np.isnan(theta).all()

    def of(f):
        rappor = Rappor(SMALL, 2, f, 0.5, 0.75)
        return rappor.epsilon, rappor.regression(reports, num_steps=10).theta

    reports = collected(Rappor(SMALL, 2), [0.25] * 4, 100)
    epsilon, theta = jax.jit(jax.vmap(of))(jnp.array([0.5, 0.25, 1.5]))
    assert epsilon[0] < epsilon[1]
    assert np.isnan(epsilon[2])
    assert np.isfinite(theta[:2]).all()
    assert np.isnan(theta[2]).all()


KEY = jax.random.key(0)


@pytest.mark.once
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: bloom_filters(["a", "a"], 16, 2, 4), "words"),
        (lambda: bloom_filters(WORDS, 300, 2, 4), "num_bits"),
        (lambda: bloom_filters(WORDS, 16, 17, 4), "num_hashes"),
        (lambda: Rappor(SMALL, 1), "num_hashes"),
        (lambda: Rappor(SMALL[0], 2), "filters"),
        (lambda: Rappor(SMALL[:, :1], 2), "filters"),
        (lambda: Rappor(SMALL, 2, f=1.0), "f"),
        (lambda: Rappor(SMALL, 2, p=0.0), "p"),
        (lambda: Rappor(SMALL, 2).regression(([5, 5], [[1, 2, 3, 6], [0, 0, 0, 0]])), "reports"),
        (lambda: Rappor(SMALL, 2).regression(([5.0, 5.0], np.zeros((2, 4), int))), "reports"),
        (lambda: Rappor(SMALL, 2).regression(([5], np.zeros((2, 4), int))), "reports"),
        (lambda: Rappor(SMALL, 2, p=0.8), "p"),
        (lambda: Rappor(SMALL, 2).epsilon_after(0), "num_reports"),
        (lambda: Rappor(SMALL, 2).memoize(KEY, [[0]]), "values"),
        (lambda: Rappor(SMALL, 2).memoize(KEY, [0, 4]), "values"),
        (lambda: Rappor(SMALL, 2).mixture(CohortBits([0, 2], np.zeros((2, 4), int))), "cohorts"),
        (lambda: Rappor(SMALL, 2).mixture(CohortBits([0], np.zeros((1, 5), int))), "reports"),
        (lambda: Rappor(SMALL, 2).report(KEY, CohortBits([0], np.full((1, 4), 2))), "bits"),
        (lambda: Rappor(SMALL, 2).report(KEY, CohortBits([0], np.zeros((1, 4)))), "bits"),
        (lambda: Rappor(SMALL, 2).mixture(CohortBits(np.zeros(0, int), np.zeros((0, 1, 4), int))), "reports"),
    ],
)
def test_bad_input_is_named(call, argument):
    with refused(argument):
        call()
