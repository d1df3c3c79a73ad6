"""Longitudinal protocols: by enumeration of memo and reports, by their laws, and against written-out likelihoods."""

import itertools
import math

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64
from laws import check_frequencies
from protocols import OSUE, OUE, SOUE, SUE, TWO_STAGES, UNARY, channels, make, matrix, stages, two_stages
from refusals import refused

import rrjax
from rrjax.mechanisms.longitudinal import (
    LongitudinalBitFlipping,
    LongitudinalLocalHashing,
    LongitudinalRandomizedResponse,
    LongitudinalUnaryEncoding,
    Protocol,
    averaging_attack,
)

# Every unary one is the same program but for its rates, which are enumerated for all; local hashing is a chain too.
FIRST = (LongitudinalRandomizedResponse, OUE)
QUICK = [kind if kind in FIRST else pytest.param(kind, marks=pytest.mark.long) for kind in TWO_STAGES]
quick = pytest.mark.parametrize("kind", QUICK)
TIGHT = 1e-12 if X64 else 1e-5


def laws(protocol, rounds):
    """`[K, memos]` and `[memos, outputs of all rounds]`, and the outputs of one round, by enumeration."""
    first, second, outputs = channels(protocol)
    whole = second
    for _ in range(rounds - 1):
        whole = (whole[:, :, None] * second[:, None, :]).reshape(len(second), -1)
    return first, whole, outputs


def delivered(law):
    return float(np.log(law.max(0) / law.min(0)).max())


@two_stages
@pytest.mark.parametrize(("epsilon", "first"), [(2.0, 1.0), (0.02, 0.01), (6.0, 3.0), (1.0, 0.01)])
def test_epsilon_by_enumeration_of_all_outputs(kind, epsilon, first):
    protocol = make(kind, 4, epsilon, first)
    for rounds in (1, 2) if kind in UNARY else (1, 2, 3):
        memo, reports, _ = laws(protocol, rounds)
        spent = delivered(memo @ reports)
        # A ratio is known no better than its probabilities, in units of the smaller ones.
        assert float(protocol.epsilon_after(rounds)) == pytest.approx(spent, rel=TIGHT, abs=TIGHT)
        assert spent <= float(FLOAT.type(epsilon)) + TIGHT
        if rounds == 1:
            assert spent == pytest.approx(first, rel=TIGHT, abs=TIGHT)
            assert float(protocol.epsilon_after(1)) == pytest.approx(first, rel=16 * ULP)
        assert np.allclose((memo @ reports).sum(1), 1)
    assert delivered(memo) == pytest.approx(epsilon, rel=TIGHT, abs=TIGHT)
    assert float(protocol.epsilon_after(10**6)) == pytest.approx(epsilon, rel=1e-3)


@two_stages
@pytest.mark.parametrize("size", [2, 3, 4])
def test_one_round_is_a_mechanism_of_the_first_epsilon(kind, size):
    protocol = make(kind, size)
    memo, reports, outputs = laws(protocol, 1)
    law = memo @ reports
    single = protocol.single_round
    if kind in UNARY:
        supports = law @ outputs
    elif kind is LongitudinalRandomizedResponse:
        supports = law
    else:
        p, q = law.max(), law.min()
        assert float(single.rates.p) == pytest.approx(p, rel=TIGHT)
        assert float(single.rates.q) == pytest.approx(p / 3 + q * 2 / 3, rel=TIGHT)  # over all hash functions
        return
    np.testing.assert_allclose(np.diag(supports), float(single.rates.p), rtol=TIGHT)
    np.testing.assert_allclose(supports[~np.eye(size, dtype=bool)], float(single.rates.q), rtol=TIGHT)
    assert float(single.epsilon) == 1.0


@pytest.mark.parametrize("size", [2, 3, 5, 50])
@pytest.mark.parametrize(("epsilon", "first"), [(2.0, 1.0), (5.0, 0.5), (0.3, 0.2), (40.0, 20.0)])
def test_the_chain_of_randomized_responses_is_one(size, epsilon, first):
    protocol = LongitudinalRandomizedResponse(size, epsilon, first)
    p1, q1, p2, q2 = stages(protocol)
    p = p1 * p2 + (size - 1) * q1 * q2
    q = q1 * p2 + p1 * q2 + (size - 2) * q1 * q2
    wanted = rrjax.RandomizedResponse(size, first)
    assert p == pytest.approx(float(wanted.p), rel=8 * ULP)
    assert q == pytest.approx(float(wanted.q), rel=1e-12 if X64 else 2e-6)
    assert p / q == pytest.approx(math.exp(first), rel=1e-11 if X64 else 1e-5)


def test_the_calibration_without_the_last_term_delivers_another_epsilon():
    """p1·p2 + q1·q2 = e^ε₁·(p1·q2 + q1·p2) is right for two categories; for five a report says less than it may."""
    found = {}
    for size in (2, 5):
        p1 = math.exp(2) / (math.exp(2) + size - 1)
        q1 = (1 - p1) / (size - 1)
        ratio = (math.e * p1 - q1) / (p1 - math.e * q1)  # p2/q2
        p2 = ratio / (ratio + size - 1)
        found[size] = delivered(matrix(size, p1, q1) @ matrix(size, p2, (1 - p2) / (size - 1)))
    assert found[2] == pytest.approx(1.0, abs=1e-12)
    assert found[5] == pytest.approx(0.8596, abs=1e-4)


@pytest.mark.parametrize("kind", [OUE, SOUE])
def test_the_largest_first_epsilon(kind):
    s = math.exp(1.0)
    most = {
        OUE: math.log((2 * math.exp(2) + 1) / 3),
        SOUE: math.log(s * (2 * s + 1) / (s + 2)),
    }[kind]
    protocol = kind(3, 2.0, most - 1e-3)
    assert 0 < float(protocol.instantaneous.q) < 1e-3
    assert float(protocol.epsilon_after(1)) == pytest.approx(most - 1e-3, abs=1e-5)
    with refused("first_epsilon", value=most + 1e-3):
        kind(3, 2.0, most + 1e-3)
    assert np.isnan(jax.jit(lambda first: kind(3, 2.0, first).single_round.rates.p)(most + 1e-3))


def codes(protocol, reports):
    """Reports of all rounds `[N, T, …]` as numbers, in the order of `laws`."""
    reports = np.asarray(reports).astype(np.int64)
    if reports.ndim == 3:
        reports = reports @ (1 << np.arange(protocol.num_categories)[::-1])
        base = 1 << protocol.num_categories
    else:
        base = protocol.num_categories
    return reports[:, 0] * base + reports[:, 1], base**2


@pytest.mark.long
@pytest.mark.parametrize("kind", [QUICK[0], *QUICK[2:]])
def test_two_rounds_have_the_law_of_memo_and_reports(kind):
    protocol, number = make(kind, 3), 20_000
    values = np.repeat(np.arange(3), number)
    memo = protocol.memoize(jax.random.key(0), values)
    rounds = jnp.stack([protocol.report(jax.random.key(turn), memo) for turn in (1, 2)], axis=1)
    seen, size = codes(protocol, rounds)
    stage, reports, _ = laws(protocol, 2)
    for value in range(3):
        check_frequencies(np.bincount(seen[values == value], minlength=size), (stage @ reports)[value])


@pytest.mark.long
def test_two_rounds_of_local_hashing_have_the_law_of_the_buckets():
    protocol, number = make(LongitudinalLocalHashing, 4), 60_000
    memo = protocol.memoize(jax.random.key(0), np.full(number, 2))
    reports = np.stack([protocol.report(jax.random.key(turn), memo) for turn in (1, 2)], axis=1)
    assert (reports[:, 0, 0] == reports[:, 1, 0]).all()
    assert len(np.unique(reports[:, 0, 0])) > 0.999 * number
    own = np.argmax(hashed(reports[:, 0, 0], 4, 3)[:, 2], axis=1)
    away = (reports[..., 1].astype(int) - own[:, None]) % 3
    p1, q1, p2, q2 = stages(protocol)
    law = matrix(3, p1, q1)[0] @ np.einsum("za,zb->zab", matrix(3, p2, q2), matrix(3, p2, q2)).reshape(3, 9)
    check_frequencies(np.bincount(away[:, 0] * 3 + away[:, 1], minlength=9), law)


def hashed(seeds, size, number):
    """`[N, K, g]`, whether a seed puts a category into a bucket, from what reports of it support."""
    mechanism = rrjax.mechanisms.LocalHashing(size, 1.0, number)
    pairs = [np.stack([seeds, np.full_like(seeds, bucket)], axis=1) for bucket in range(number)]
    return np.stack([np.asarray(mechanism.supports(pair)) for pair in pairs], axis=2)


@pytest.mark.long
@quick
def test_a_memo_is_kept_for_each_value(kind):
    protocol, key = make(kind, 4, 1.0, 0.5), jax.random.key(7)
    monday, tuesday = np.zeros(500, int), np.where(np.arange(500) < 250, 0, 1)
    first, second, third = (np.asarray(protocol.memoize(key, day)) for day in (monday, tuesday, monday))
    np.testing.assert_array_equal(first, third)
    np.testing.assert_array_equal(first[:250], second[:250])
    changed = (first[250:] != second[250:]).reshape(250, -1).any(1)
    assert 0.3 < changed.mean() < 1 if kind is not LongitudinalLocalHashing else 0.2 < changed.mean() < 0.6
    assert len(np.unique(first[:250], axis=0)) > 1  # users differ
    other = np.asarray(protocol.memoize(jax.random.key(8), monday))
    assert (first != other).any()
    shaped = protocol.memoize(key, monday.reshape(5, 100))
    np.testing.assert_array_equal(np.asarray(shaped).reshape(first.shape), first)
    assert protocol.num_memos == (3 if kind is LongitudinalLocalHashing else 4)


@pytest.mark.long
@quick
def test_the_inversion_of_a_round_is_unbiased(kind):
    """10⁵ users, each with a memo and one report of it, to four standard errors."""
    protocol, number = make(kind, 4), 100_000
    shares = np.array([0.5, 0.3, 0.2, 0.0])
    values = np.repeat(np.arange(4), (number * shares).astype(int))
    reports = protocol.report(jax.random.key(1), protocol.memoize(jax.random.key(0), values))
    tally = protocol.tally(reports)
    found = np.asarray(rrjax.inv(tally), float)
    error = np.sqrt(np.array([float(tally.rates.variance(share)) for share in shares]) / number)
    assert (np.abs(found - shares) < 4 * error).all()
    np.testing.assert_allclose(np.asarray(protocol.debias(reports), float).mean(0), found, atol=1e-4)


def written_out(protocol, reports, theta, seeds=None):
    """Mean log-likelihood per user, summed over all memos."""
    total = 0.0
    for user, history in enumerate(np.asarray(reports).astype(int)):
        buckets = None if seeds is None else np.argmax(seeds[user], axis=1)
        first, second, outputs = channels(protocol, buckets)
        if outputs.ndim == 2:
            history = (history[:, None] == outputs).all(-1).argmax(1)
        elif seeds is not None:
            history = history[:, 1]
        total += math.log(theta @ first @ second[:, history].prod(1))
    return total / len(reports)


@pytest.mark.full
@quick
@pytest.mark.parametrize("rounds", [1, 4])
def test_the_likelihood_is_the_one_that_is_written_out(kind, rounds):
    protocol = make(kind, 4, 2.5, 1.5)
    values = np.random.default_rng(3).integers(0, 4, 30)
    memo = protocol.memoize(jax.random.key(0), values)
    reports = jnp.stack([protocol.report(jax.random.key(turn), memo) for turn in range(1, rounds + 1)], axis=1)
    seeds = hashed(np.asarray(reports)[:, 0, 0], 4, 3) if kind is LongitudinalLocalHashing else None
    one, other = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.0, 0.1, 0.1, 0.8])
    wanted = written_out(protocol, reports, one, seeds) - written_out(protocol, reports, other, seeds)
    mixture = protocol.mixture(reports)

    def apart(mixture):
        return rrjax.nll(other.astype(FLOAT), mixture) - rrjax.nll(one.astype(FLOAT), mixture)

    assert float(apart(mixture)) == pytest.approx(wanted, rel=1e-9 if X64 else 2e-5)
    assert mixture.num_categories == 4
    if rounds == 4:
        traced = jax.jit(lambda reports: apart(protocol.mixture(reports)))
        assert float(traced(reports)) == pytest.approx(wanted, rel=1e-9 if X64 else 2e-5)
    elif kind in (SUE, LongitudinalRandomizedResponse, LongitudinalLocalHashing):
        assert float(apart(protocol.single_round.mixture(reports[:, 0]))) == pytest.approx(wanted, rel=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("share", [0.95, 1.0, 1.14, 2.0])
def test_an_epsilon_beyond_the_largest_number_leaves_no_range(share):
    """Of reports without noise the estimate was one category, and said to have converged; bits were refused."""
    largest = 709.0 if X64 else 88.0
    protocol = LongitudinalRandomizedResponse(4, share * largest, first_epsilon=0.98 * share * largest)
    result = rrjax.ibu(protocol.mixture(np.repeat(np.arange(4), [500, 300, 199, 1])[:, None]))
    assert bool(result.converged)
    np.testing.assert_allclose(result.theta, [0.5, 0.3, 0.199, 0.001], atol=1e-5)
    flipping = [LongitudinalBitFlipping(4, epsilon, num_bits=2).single_round for epsilon in (30.0, share * largest)]
    reports = flipping[0].randomize(jax.random.key(1), np.repeat(np.arange(4), [60, 60, 50, 30]))
    moderate, large = (rrjax.ibu(each.mixture(reports)) for each in flipping)
    assert bool(large.converged)
    np.testing.assert_allclose(large.theta, moderate.theta, atol=1e-4)


@pytest.mark.long
def test_many_rounds_stay_finite():
    """e^{T·ε₂} is no float: the memo is known, and the likelihood is that of randomized response at ε∞."""
    protocol = LongitudinalRandomizedResponse(3, 2.0, 1.9)
    reports = np.tile(np.array([[0], [0], [0], [1]]), (1, 2000))
    theta = np.array([0.6, 0.3, 0.1], FLOAT)
    once = rrjax.RandomizedResponse(3, 2.0).mixture(reports[:, 0])
    np.testing.assert_allclose(
        rrjax.score(theta, protocol.mixture(reports)), rrjax.score(theta, once), rtol=1e-4, atol=1e-6
    )
    bits = np.tile(np.eye(3, dtype=int)[[0, 0, 0, 1]][:, None], (1, 2000, 1))
    unary = SUE(3, 2.0, 1.9)
    once = rrjax.mechanisms.SymmetricUnaryEncoding(3, 2.0).mixture(bits[:, 0])
    np.testing.assert_allclose(rrjax.score(theta, unary.mixture(bits)), rrjax.score(theta, once), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "size", "epsilon"),
    [
        pytest.param(LongitudinalRandomizedResponse, 30, 3.0, marks=pytest.mark.full),
        pytest.param(OSUE, 20, 4.0, marks=pytest.mark.full),
        pytest.param(SUE, 20, 4.0, marks=pytest.mark.full),
    ],
)
def test_the_reports_of_each_user_together_say_more_than_those_of_each_round(kind, size, epsilon):
    """Twenty rounds: the likelihood of each user's reports against the best that the sum of all tallies is good for."""
    protocol, rounds = make(kind, size, epsilon, 1.0), 20
    counts = np.round(1000 * np.arange(1, size + 1) ** -1.5 / 2).astype(int)
    values, shares = np.repeat(np.arange(size), counts), counts / counts.sum()

    @jax.jit
    def estimates(key):
        memo = protocol.memoize(key, values)
        keys = jax.random.split(jax.random.fold_in(key, 1), rounds)
        reports = jax.vmap(lambda key: protocol.report(key, memo), out_axes=1)(keys)
        result = rrjax.ibu(protocol.mixture(reports))
        flat = reports.reshape(-1, *reports.shape[2:])
        return result.theta, rrjax.inv_p(protocol.tally(flat)), result.converged

    together, apart, converged = zip(*(estimates(key) for key in jax.random.split(jax.random.key(0), 8)), strict=True)
    assert all(converged)
    errors = [((np.asarray(each, float) - shares) ** 2).sum(1) for each in (together, apart)]
    saved = errors[1] - errors[0]  # of 48 collections, the mean is .32 to .53 of the error of the rounds
    assert saved.mean() > 3 * saved.std(ddof=1) / math.sqrt(len(saved))


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [LongitudinalRandomizedResponse, SUE],
)
def test_averaging_reveals_a_value_without_a_memo_and_no_more_than_epsilon_with_one(kind):
    protocol = make(kind, 4, 1.5, 1.0)
    attack = averaging_attack(jax.random.key(0), protocol, 60, num_users=2000)
    bound = math.exp(1.5) / (math.exp(1.5) + 3)
    assert float(attack.bound) == pytest.approx(bound, rel=1e-6)
    error = math.sqrt(0.25 / 2000)
    assert attack.with_memo.shape == (60,)
    assert float(attack.with_memo.max()) < bound + 4 * error
    assert float(attack.without_memo[-1]) > 0.98
    assert float(attack.without_memo[0]) == pytest.approx(float(attack.with_memo[0]), abs=6 * error)
    if kind is LongitudinalRandomizedResponse:
        # One report is right with p of ε₁, and all of them together with that of ε∞.
        assert float(attack.with_memo[0]) == pytest.approx(float(protocol.single_round.p), abs=4 * error)
        assert float(attack.with_memo[-1]) == pytest.approx(bound, abs=4 * error)


def test_local_hashing_chooses_its_buckets():
    assert LongitudinalLocalHashing(50, 4.0, 2.0).num_buckets == 8
    assert LongitudinalLocalHashing(50, 4.0, 2.0, 2).num_memos == 2
    variances = {
        number: float(LongitudinalLocalHashing(50, 4.0, 2.0, number).single_round.rates.total_variance(50))
        for number in range(2, 20)
    }
    assert min(variances, key=lambda number: variances[number]) == 8
    with pytest.raises(ValueError):  # noqa: PT011 (a parameter that tracing hides)
        jax.jit(lambda first: LongitudinalLocalHashing(50, 4.0, first).memoize(jax.random.key(0), jnp.arange(3)))(2.0)


@pytest.mark.long
def test_bit_flipping_by_enumeration():
    protocol, number = LongitudinalBitFlipping(4, 1.5, num_bits=2), 30_000
    s = math.exp(0.75)
    p, q = s / (s + 1), 1 / (s + 1)
    single = protocol.single_round
    assert float(single.rates.p) == pytest.approx(p / 2, rel=8 * ULP)
    assert float(single.rates.q) == pytest.approx(q / 2, rel=8 * ULP)
    # Of a user with a set of two categories, and of all sets: e^ε between two of them, or e^{ε/2} to one that is not.
    outputs = [
        (pair, bits) for pair in itertools.combinations(range(4), 2) for bits in itertools.product([0, 1], repeat=2)
    ]
    law = np.array(
        [
            [
                math.prod(abs(bit - 1 + (p if place == v else q)) for place, bit in zip(*each, strict=True)) / 6
                for each in outputs
            ]
            for v in range(4)
        ]
    )
    np.testing.assert_allclose(law.sum(1), 1)
    assert delivered(law) == pytest.approx(1.5, abs=1e-12)
    assert float(protocol.epsilon_after(7)) == 1.5
    memo = np.asarray(protocol.memoize(jax.random.key(0), np.full(number, 1)))
    np.testing.assert_array_equal(protocol.report(jax.random.key(1), memo), memo)
    rows = [[dict(zip(*each, strict=True)).get(k, -1) for k in range(4)] for each in outputs]
    seen = [int((memo == row).all(1).sum()) for row in rows]
    assert sum(seen) == number
    check_frequencies(seen, law[1])
    # The likelihood of these reports, against the law.
    theta, other = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.0, 0.1, 0.1, 0.8])
    wanted = np.array(seen) @ (np.log(theta @ law) - np.log(other @ law)) / number
    mixture = protocol.mixture(memo[:, None])
    found = rrjax.nll(other.astype(FLOAT), mixture) - rrjax.nll(theta.astype(FLOAT), mixture)
    assert float(found) == pytest.approx(wanted, rel=1e-9 if X64 else 2e-5)


@pytest.mark.full
def test_estimates_of_bit_flipping_and_its_memos():
    protocol, number = LongitudinalBitFlipping(6, 2.0, num_bits=2), 100_000
    shares = np.array([0.5, 0.2, 0.2, 0.1, 0.0, 0.0])
    values = np.repeat(np.arange(6), (number * shares).astype(int))
    reports = protocol.report(jax.random.key(1), protocol.memoize(jax.random.key(0), values))
    tally, vectors = protocol.tally(reports), np.asarray(protocol.debias(reports), float)
    error = np.sqrt(np.array([float(tally.rates.variance(share)) for share in shares]) / number)
    assert (np.abs(np.asarray(rrjax.inv(tally), float) - shares) < 4 * error).all()
    closer = vectors.std(0) / math.sqrt(number)
    assert (np.abs(vectors.mean(0) - shares) < 4 * closer).all()
    assert (closer[4:] < 0.95 * error[4:]).all()
    # Of one user, as many memos as there are bits, and one for all other categories.
    memos = {tuple(np.asarray(protocol.memoize(jax.random.key(3), [value])[0]).tolist()) for value in range(6)}
    assert len(memos) <= protocol.num_memos == 3
    assert len({tuple(place for place, bit in enumerate(memo) if bit >= 0) for memo in memos}) == 1
    assert LongitudinalBitFlipping(6, 2.0, num_bits=6).num_memos == 6


@pytest.mark.long
def test_traced_parameters():
    sweep = jax.jit(jax.vmap(lambda first: LongitudinalRandomizedResponse(3, 2.0, first).instantaneous.p))
    swept = sweep(jnp.array([0.5, 1.0, 2.0, 3.0, -1.0]))
    assert 1 / 3 < swept[0] < swept[1] < 1
    assert np.isnan(swept[2:]).all()
    theta = np.full(3, 1 / 3, FLOAT)
    hashing, bits = make(LongitudinalLocalHashing, 3), LongitudinalBitFlipping(3, 2.0, 1)
    likelihoods = jax.jit(
        lambda *of: [rrjax.nll(theta, each.mixture(reports)) for each, reports in zip(all_of, of, strict=True)]
    )
    all_of = LongitudinalRandomizedResponse(3, 2.0, 1.0), hashing, hashing, bits
    good = np.array([[0, 1]]), np.array([[[5, 1], [5, 2]]]), np.array([[[5, 0], [5, 0]]]), np.array([[[-1, 1, -1]] * 2])
    bad = np.array([[0, 3]]), np.array([[[5, 1], [6, 2]]]), np.array([[[5, 0], [5, 3]]]), np.array([[[1, 1, 1]] * 2])
    assert np.isfinite(likelihoods(*good)).all()
    assert np.isnan(likelihoods(*bad)).all()
    marked = jax.jit(lambda values: make(LongitudinalLocalHashing, 3).memoize(jax.random.key(0), values))
    assert marked(jnp.array([0, 3, -1]))[1:, 1].tolist() == [2**32 - 1] * 2


@pytest.mark.full
@pytest.mark.parametrize("kind", [QUICK[0], *TWO_STAGES[1:]])
def test_an_impossible_epsilon_poisons_what_comes_of_it(kind):
    values = jnp.array([0, 1, 2, 0])

    @jax.jit
    @jax.vmap
    def estimate(first):
        protocol = make(kind, 3, 2.0, first)
        reports = protocol.report(jax.random.key(0), protocol.memoize(jax.random.key(1), values))
        return rrjax.inv(protocol.tally(reports)), protocol.epsilon_after(2)

    estimates, spent = estimate(jnp.array([1.0, 2.5, 0.0]))
    assert np.isfinite(estimates[0]).all()
    assert np.isnan(estimates[1:]).all()
    assert np.isnan(spent[1:]).all()


@pytest.mark.long
@pytest.mark.once
def test_a_row_of_the_likelihood_is_a_kind_of_user():
    protocol = make(LongitudinalRandomizedResponse, 1000)
    mixture = protocol.mixture(np.array([[7, 7, 3], [3, 7, 7], [7, 3, 7], [3, 3, 7], [1, 2, 3]]))
    assert sorted(np.asarray(mixture.weights).tolist()) == [1, 1, 3]
    assert mixture.lift.shape == (3, 1000)


KEY = jax.random.key(0)


@pytest.mark.once
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: LongitudinalRandomizedResponse(3, 1.0, 1.0), "first_epsilon"),
        (lambda: SUE(3, 1.0, 2.0), "first_epsilon"),
        (lambda: LongitudinalUnaryEncoding(3, 2.0, 1.0, permanent_encoding="sue"), "permanent_encoding"),
        (lambda: LongitudinalRandomizedResponse(3, 1.0, 0.0), "first_epsilon"),
        (lambda: OUE(3, -1.0, 0.5), "epsilon"),
        (lambda: LongitudinalBitFlipping(3, 1.0, 4), "num_bits"),
        (lambda: LongitudinalBitFlipping(3, 1.0, 1.5), "num_bits"),
        (lambda: make(LongitudinalRandomizedResponse, 3).epsilon_after(0), "num_reports"),
        (lambda: make(LongitudinalRandomizedResponse, 3).mixture([0, 1]), "reports"),
        (lambda: make(LongitudinalRandomizedResponse, 3).mixture(np.zeros((0, 2), int)), "reports"),
        (lambda: make(SUE, 3).mixture(np.zeros((5, 3), int)), "reports"),
        (lambda: make(LongitudinalLocalHashing, 3).mixture([[[1, 0], [2, 0]]]), "reports"),
        (lambda: LongitudinalBitFlipping(3, 1.0, 2).tally([[0, 0, 0]]), "reports"),
        (lambda: LongitudinalBitFlipping(3, 1.0, 2).tally([[0, 2, -1]]), "reports"),
        (lambda: LongitudinalBitFlipping(3, 1.0, 2).tally([[0, 1]]), "reports"),
        (lambda: LongitudinalBitFlipping(3, 1.0, 1).mixture([[[-1, -1, 0], [-1, -1, 1]]]), "reports"),
        (lambda: averaging_attack(KEY, make(LongitudinalRandomizedResponse, 3), 0), "num_reports"),
        (lambda: LongitudinalRandomizedResponse(1, 1.0, 0.5), "num_categories"),
        (lambda: LongitudinalLocalHashing(3, 1.0, 0.5, 1), "num_buckets"),
        (lambda: make(LongitudinalRandomizedResponse, 3).memoize(KEY, [0, 3]), "values"),
        (lambda: make(LongitudinalRandomizedResponse, 3).report(KEY, [0, 3]), "memo"),
        (lambda: make(SUE, 3).report(KEY, np.zeros((5, 4), int)), "memo"),
        (lambda: make(LongitudinalLocalHashing, 3).report(KEY, [[1, 3]]), "buckets"),
    ],
)
def test_bad_input_is_named(call, argument):
    with refused(argument):
        call()


@pytest.mark.full
@pytest.mark.once
def test_memos_are_exported_for_any_number_of_users():
    protocol = LongitudinalRandomizedResponse(4, 2.0, 1.0)
    values = np.arange(70, dtype=np.int32) % 4
    given = jax.random.key(0), jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), values.dtype)
    exported = jax.export.export(jax.jit(protocol.memoize))(*given)
    for number in (1, 70):
        wanted = protocol.memoize(given[0], values[:number])
        np.testing.assert_array_equal(exported.call(given[0], values[:number]), wanted)


def moments_of_rounds(protocol, users, rounds):
    """Mean and variance of each support count of T rounds of these users, from the rates of both randomizations."""
    p1, q1, p2, q2 = stages(protocol)
    size = protocol.num_categories
    mean, variance = np.zeros(size), np.zeros(size)
    for category in range(size):
        for value, number in enumerate(users):
            holds = p1 if value == category else q1  # the memo supports the category
            once = holds * p2 + (1 - holds) * q2
            both = holds * p2**2 + (1 - holds) * q2**2
            mean[category] += number * rounds * once
            variance[category] += number * (rounds * once + rounds * (rounds - 1) * both - (rounds * once) ** 2)
    return mean, variance


@pytest.mark.full  # the law of all rounds together
@pytest.mark.parametrize("kind", [LongitudinalRandomizedResponse, OSUE])
def test_several_rounds_are_collected_by_their_law(kind):
    protocol, users, rounds, draws = make(kind, 3), np.array([300, 150, 50]), 5, 2000
    keys = jax.random.split(jax.random.key(7), draws)
    tallies = jax.vmap(lambda key: protocol.collect(key, users, rounds))(keys)
    support = np.asarray(tallies.support, float)
    assert set(np.asarray(tallies.num_users).tolist()) == {2500}
    mean, variance = moments_of_rounds(protocol, users, rounds)
    assert (np.abs(support.mean(0) - mean) < 4 * np.sqrt(variance / draws)).all()
    assert (np.abs(support.var(0) / variance - 1) < 4 * np.sqrt(2 / draws)).all()
    rates = protocol.single_round.rates
    shares = (mean / 2500 - np.float64(rates.q)) / np.float64(rates.d)  # `inv` of the mean is the truth
    np.testing.assert_allclose(shares, users / 500, rtol=10 * TIGHT, atol=10 * TIGHT)


@pytest.mark.full
@pytest.mark.parametrize("kind", [LongitudinalRandomizedResponse, SOUE])
def test_simulated_users_have_the_law_of_several_rounds(kind):
    protocol, users, draws = make(kind, 3), jnp.asarray([30, 15, 5]), 1000
    keys = jax.random.split(jax.random.key(9), draws)
    support = np.asarray(jax.vmap(lambda key: Protocol._collect(protocol, key, users, 4)[0])(keys), float)
    mean, variance = moments_of_rounds(protocol, np.asarray(users), 4)
    assert (np.abs(support.mean(0) - mean) < 4 * np.sqrt(variance / draws)).all()
    assert (np.abs(support.var(0) / variance - 1) < 4 * np.sqrt(2 / draws)).all()


@pytest.mark.full
@pytest.mark.parametrize("kind", [LongitudinalLocalHashing, None])
def test_rounds_of_simulated_users_are_unbiased(kind):
    protocol = LongitudinalBitFlipping(3, 2.0, 2) if kind is None else make(kind, 3)
    users = np.array([30, 15, 5])
    tallies = jax.vmap(lambda key: protocol.collect(key, users, 4))(jax.random.split(jax.random.key(8), 1000))
    estimates = np.asarray(jax.vmap(rrjax.inv)(tallies))
    assert (np.abs(estimates.mean(0) - users / 50) < 4 * estimates.std(0) / np.sqrt(1000)).all()


@pytest.mark.full
def test_rounds_that_cannot_be_collected():
    protocol, key = make(LongitudinalRandomizedResponse, 3), jax.random.key(0)
    with refused("num_rounds"):
        protocol.collect(key, [1, 2, 3], 0)
    with refused("num_rounds"):
        protocol.collect(key, [2**29, 1, 1], 4)
    for kind in (LongitudinalRandomizedResponse, OSUE):
        traced = jax.jit(lambda users, kind=kind: make(kind, 3).collect(key, users, 4))
        for users in ([2**29, 1, 1], [-1, 1, 1]):
            assert np.isnan(rrjax.inv(traced(jnp.asarray(users)))).all()
