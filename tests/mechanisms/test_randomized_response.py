"""Probabilities, integer thresholds, and the statistics of both randomizers. Keys are fixed."""

import math
import re
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from cases import FLOAT, INT, ULP, X64
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refused

import rrjax
from rrjax import secure
from rrjax.mechanisms.randomized_response import RandomizedResponse, _keep_threshold, _remainder, _words

BIG = 1_423_000
SIGMAS = 5  # of a normal: about 6e-7, and the keys are fixed
sizes = st.one_of(st.sampled_from([2, 3, 4, 255, 256, 41_270, BIG]), st.integers(2, BIG))


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0, 8.0, 800.0])
@pytest.mark.parametrize("num_categories", [2, 5, BIG])
def test_probabilities(num_categories, epsilon):
    mechanism = RandomizedResponse(num_categories, epsilon)
    with mpmath.workdps(50):
        r = mpmath.exp(mpmath.mpf(float(FLOAT.type(epsilon))))
        total = r + num_categories - 1
        exact = {"p": r / total, "q": 1 / total, "d": (r - 1) / total}
        for name, value in exact.items():
            assert abs(float(getattr(mechanism, name)) - value) <= max(4 * ULP * value, 1e-37), name


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 8.0])
def test_the_channel_is_that_of_both_readings(epsilon):
    mechanism = RandomizedResponse(5, epsilon)
    channel = np.asarray(mechanism.channel())
    np.testing.assert_allclose(channel.sum(axis=1), 1, rtol=4 * ULP)
    assert (np.diag(channel) == mechanism.p).all()
    # Keep with d, else draw uniformly from all; or keep with p, else from the others.
    np.testing.assert_allclose(
        channel, mechanism.d * np.eye(5, dtype=FLOAT) + (1 - mechanism.d) / 5, rtol=0, atol=2 * ULP
    )
    np.testing.assert_allclose(1 - mechanism.p, 4 * mechanism.q, rtol=0, atol=2 * ULP)
    # The privacy itself: no two values' probabilities of a report differ by more than e^ε.
    assert channel.max() / channel.min() == pytest.approx(np.exp(float(FLOAT.type(epsilon))), rel=8 * ULP)


def threshold(mechanism):
    high, low = _keep_threshold(mechanism.expm1_epsilon, mechanism.num_categories)
    return int(high) * 2**32 + int(low)


def delivered(num_categories, keep, whole=2**64):
    """log(p/q), to 40 digits."""
    with mpmath.workdps(40):
        return mpmath.log1p(mpmath.mpf(num_categories) * keep / (whole - keep))


@pytest.mark.long
@given(st.sampled_from([2, 3, 7, 256, 41_270, BIG]), st.floats(1e-4, 30))  # K is static
@settings(max_examples=300)
@example(BIG, 1.0)
@example(1_048_577, 1.0)
@example(2, math.log(3))
@example(BIG, 1e-4)
def test_simulated_epsilon_never_exceeds_the_one_asked_for(num_categories, epsilon):
    mechanism = RandomizedResponse(num_categories, epsilon)
    keep = threshold(mechanism)
    assert 0 < keep < 2**64
    assert (2**64 - keep) % num_categories == 0  # or the uniform choice would be biased
    effective, asked = delivered(num_categories, keep), float(FLOAT.type(epsilon))
    assert effective <= asked
    # A few roundings of d or 1 − d, and what a multiple of K takes off.
    lost = (asked - effective) / min(asked, 1)
    steps = Fraction(num_categories * (math.ceil(math.exp(epsilon)) + num_categories), 2**64)
    assert lost <= 12 * ULP + 2 * float(steps / Fraction(min(asked, 1.0)))
    assert float(mechanism.effective_epsilon) == pytest.approx(float(effective), rel=4 * ULP, abs=4 * ULP)


@pytest.mark.long
@settings(max_examples=300)
@given(sizes, st.floats(1e-4, 30))
@example(BIG, 1.0)
@example(BIG, 18.0)
@example(2, math.log(3))
@example(2, 35.0)
def test_secure_epsilon_never_exceeds_the_one_asked_for(num_categories, epsilon):
    keep = secure.base.keep_threshold(num_categories, epsilon)
    assert 0 < keep < 2**128
    assert (2**128 - keep) % num_categories == 0
    effective = delivered(num_categories, keep, 2**128)
    assert effective <= epsilon
    assert (epsilon - effective) / epsilon < 2**-40
    found = secure.client("randomized-response", num_categories, epsilon).effective_epsilon
    assert found <= epsilon
    assert found == pytest.approx(float(effective), rel=1e-14)


@pytest.mark.parametrize("epsilon", [50.0, 800.0, math.inf])
def test_simulated_thresholds_at_huge_epsilon(epsilon):
    for num_categories in (2, 5, BIG):
        mechanism = RandomizedResponse(num_categories, epsilon)
        keep = threshold(mechanism)
        assert (2**64 - keep) % num_categories == 0
        assert 2**64 - num_categories * 5 <= keep < 2**64 or epsilon == 50
        assert delivered(num_categories, keep) <= epsilon
        values = jnp.arange(2, dtype=jnp.int32)
        np.testing.assert_array_equal(mechanism.randomize(jax.random.key(0), values), values)


def test_simulated_thresholds_at_tiny_epsilon_keep_nothing():
    reports = RandomizedResponse(BIG, 1e-25).randomize(jax.random.key(0), jnp.zeros(1000, jnp.int32))
    assert (reports > 0).mean() > 0.99


@pytest.mark.long
@given(st.lists(st.integers(0, 2**64 - 1), min_size=8, max_size=8))
@settings(max_examples=50)
def test_remainders_match_python_integers(words):
    high = jnp.array([w >> 32 for w in words], jnp.uint32)
    low = jnp.array([w & (2**32 - 1) for w in words], jnp.uint32)
    for divisor in (2, 3, 7, 65_536, 65_537, BIG, 2**30, 2**31 - 1):
        assert _remainder(high, low, divisor).tolist() == [w % divisor for w in words]


# --- Statistics ------------------------------------------------------------------------------------------------


def simulated(values, num_categories, epsilon):
    return np.asarray(RandomizedResponse(num_categories, epsilon).randomize(jax.random.key(1), values))


def collected(values, num_categories, epsilon, monkeypatch):
    rng = np.random.default_rng(1)
    monkeypatch.setattr("os.urandom", rng.bytes)
    return secure.client("randomized-response", num_categories, epsilon).randomize(values)


@pytest.fixture(params=["simulated", "collected"])
def randomizer(request, monkeypatch):
    if request.param == "simulated":
        return simulated
    return lambda *arguments: collected(*arguments, monkeypatch)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_reports_follow_the_channel(randomizer, epsilon):
    K, each = 5, 40_000
    values = np.repeat(np.arange(K), each)
    reports = randomizer(values, K, epsilon)
    assert reports.dtype == np.int32
    r = math.exp(epsilon)
    channel = (np.ones((K, K)) + (r - 1) * np.eye(K)) / (r + K - 1)
    table = np.zeros((K, K))
    np.add.at(table, (values, reports), 1)
    error = (table / each - channel) / np.sqrt(channel * (1 - channel) / each)
    assert np.abs(error).max() < SIGMAS
    # Pearson's statistic has mean and variance K(K − 1) and twice that.
    statistic = ((table - each * channel) ** 2 / (each * channel)).sum()
    freedom = K * (K - 1)
    assert abs(statistic - freedom) < SIGMAS * math.sqrt(2 * freedom)


@pytest.mark.long
def test_a_million_categories_are_kept_as_often_as_they_should_be(randomizer):
    # A float32 uniform has steps of 2^-23: at ε = 1 it would keep 5 % too many of 1.2e-6.
    K, num_users, epsilon = BIG, 2_000_000, 14.0
    values = np.random.default_rng(0).integers(0, K, num_users, dtype=np.int32)
    reports = randomizer(values, K, epsilon)
    p = math.exp(epsilon) / (math.exp(epsilon) + K - 1)
    error = (reports == values).mean() - p
    assert abs(error) < SIGMAS * math.sqrt(p * (1 - p) / num_users)
    noise = reports[reports != values]
    # The others are uniform: in mean, in spread, and to the last category but a few.
    assert abs(noise.mean() - (K - 1) / 2) < SIGMAS * K / math.sqrt(12 * noise.size)
    assert noise.min() < K * 1e-5 < K * (1 - 1e-5) < noise.max()
    low_bits = np.bincount(noise % 8, minlength=8) / noise.size - 1 / 8
    assert np.abs(low_bits).max() < SIGMAS * math.sqrt(7 / 64 / noise.size)


def test_the_threshold_at_a_million_categories_is_not_that_of_a_float32_uniform():
    keep = threshold(RandomizedResponse(BIG, 1.0))
    # A multiple of K may take off K²/2^64.
    assert float(delivered(BIG, keep)) == pytest.approx(1.0, abs=20 * ULP + 2e-7)
    coarse = math.ceil(keep / 2**41) * 2**41  # u < d for u on the grid of 2^-23
    assert float(delivered(BIG, coarse)) > 1.04


def test_estimates_of_every_category_are_unbiased(randomizer):
    K, num_users, epsilon = 50, 200_000, 1.0
    theta = np.full(K, 1 / K)
    values = np.tile(np.arange(K), num_users // K)
    counts = rrjax.count(randomizer(values, K, epsilon), K)
    error = np.asarray(rrjax.inv(counts, epsilon)) - theta
    q, d = 1 / (math.e + K - 1), (math.e - 1) / (math.e + K - 1)
    variance = (q * (1 - q) + theta * d * (1 - 2 * q - d)) / (num_users * d**2)
    assert np.abs(error / np.sqrt(variance)).max() < SIGMAS
    total = (K - 1) * (K - 2 + 2 * math.e) / (num_users * (math.e - 1) ** 2)
    # The sum of K squares of nearly independent normals: K ± sqrt(2K).
    assert abs((error**2).sum() / total - 1) < SIGMAS * math.sqrt(2 / K)


@pytest.mark.long
def test_the_stream_does_not_depend_on_64_bit_mode():
    values = np.random.default_rng(0).integers(0, 41_270, 100_000, dtype=np.int32)
    results = []
    for x64 in (False, True):
        with jax.enable_x64(x64):
            mechanism = RandomizedResponse(41_270, 4.0)
            results.append(np.asarray(mechanism.randomize(jax.random.key(7), values)))
            assert results[-1].dtype == np.int32
    # The thresholds differ by 1e-7 of d: one report in some hundred million.
    np.testing.assert_array_equal(*results)


@pytest.mark.long
def test_jit_and_vmap_draw_the_same_reports():
    values = np.arange(12, dtype=np.int32).reshape(3, 4) % 5
    mechanism = RandomizedResponse(5, 1.0)
    expected = mechanism.randomize(jax.random.key(0), values)
    assert expected.shape == (3, 4)
    compiled = jax.jit(lambda m, k, v: m.randomize(k, v))(mechanism, jax.random.key(0), values)
    np.testing.assert_array_equal(compiled, expected)

    epsilons = np.array([0.5, 1.0, 3.0], FLOAT)
    swept = jax.vmap(lambda e: RandomizedResponse(5, e).randomize(jax.random.key(0), jnp.asarray(values)))(epsilons)
    for i, epsilon in enumerate(epsilons):
        alone = RandomizedResponse(5, epsilon).randomize(jax.random.key(0), values)
        np.testing.assert_array_equal(swept[i], alone)


# --- Boundaries of the integer comparison ----------------------------------------------------------------------


@pytest.mark.parametrize("num_categories", [2, 5, 41_270, BIG])
def test_exact_boundaries_of_the_secure_decision(num_categories, monkeypatch):
    keep = secure.base.keep_threshold(num_categories, 1.0)
    draws = {0: 1, keep - 1: 1, keep: 0, keep + 1: 1, keep + num_categories - 1: num_categories - 1}
    draws |= {keep + num_categories: 0, 2**128 - 1: num_categories - 1}
    if num_categories > 2:
        draws[keep + 2] = 2
    bits = np.array([divmod(draw, 2**64) for draw in draws], np.uint64)
    monkeypatch.setattr("os.urandom", lambda size: bits.tobytes()[:size])
    reports = secure.client("randomized-response", num_categories, 1.0).randomize(np.ones(len(draws), int))
    assert reports.tolist() == list(draws.values())


def test_secure_draws_are_chunked_without_a_seam(monkeypatch):
    values = np.random.default_rng(0).integers(0, 5, (10, 33))
    whole = collected(values, 5, 1.0, monkeypatch)
    monkeypatch.setattr("rrjax.secure.base.CHUNK", 32)
    np.testing.assert_array_equal(collected(values, 5, 1.0, monkeypatch), whole)
    assert whole.shape == (10, 33)


def test_secure_randomization_is_not_seeded():
    values = np.zeros(64, int)
    draws = {secure.client("randomized-response", 1000, 0.1).randomize(values).tobytes() for _ in range(3)}
    assert len(draws) == 3


# --- Bad input -------------------------------------------------------------------------------------------------

SHAPES = [[], 2, [[0, 1], [2, 3]], np.array([1, 2], np.uint8), np.array([1, 2], np.int64)]


@pytest.mark.parametrize("values", SHAPES, ids=str)
def test_shapes_are_kept(values, randomizer):
    reports = randomizer(values, 4, 1.0)
    assert reports.shape == np.shape(values)
    assert reports.dtype == np.int32


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_narrow_values_in_a_wide_domain(dtype, randomizer):
    values = np.array([1, 2, 127], dtype)
    np.testing.assert_array_equal(randomizer(values, 1000, 30.0), [1, 2, 127])


@pytest.mark.parametrize("values", [[0, 4], [-1], np.array([2**32], np.int64), [3, 2**40]])
def test_values_outside_the_domain_are_refused_by_position_alone(values, randomizer):
    row = int(np.argmax((np.asarray(values) < 0) | (np.asarray(values) > 3)))
    with refused("values", row=row, value=None) as caught:
        randomizer(values, 4, 1.0)
    # Logs keep messages, and the value is a user's true one.
    assert str(values[row]) not in re.findall(r"-?\d+", str(caught.value).replace(f"position {row}", ""))


@pytest.mark.parametrize("values", [[0.0, 1.0], ["a"], [True, False], [None], [1.5]])
def test_values_that_are_not_integers_are_refused(values, randomizer):
    with refused("values"):
        randomizer(values, 4, 1.0)


@pytest.mark.parametrize("num_categories", [1, 0, -3, 2.0, True, "4", None, 2**31])
def test_bad_domains_are_refused(num_categories):
    for build in (lambda k: RandomizedResponse(k, 1.0), lambda k: secure.base.keep_threshold(k, 1.0)):
        with refused("num_categories"):
            build(num_categories)


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, math.nan, -math.inf, np.float32(0)])
def test_impossible_epsilons_are_refused(epsilon):
    for build in (RandomizedResponse, secure.base.keep_threshold):
        with refused("epsilon"):
            build(4, epsilon)


def test_epsilons_that_random_bits_cannot_deliver_are_refused():
    for epsilon in (40.0, 800.0, math.inf):
        with refused("epsilon", value=epsilon):
            secure.base.keep_threshold(4, epsilon)
    for num_categories, epsilon in ((4, 1e-40), (BIG, 1e-25), (2**31 - 1, 1e-12)):
        with refused("epsilon", value=epsilon):
            secure.base.keep_threshold(num_categories, epsilon)


def test_peers_rounding_of_epsilon_does_not_happen_here():
    # A published client rounds to two decimals on the way to a probability: ε = 12 gave no privacy at all.
    noise = [2**128 - secure.base.keep_threshold(4, e) for e in (12.0, 12.001)]
    assert noise[0] / noise[1] == pytest.approx(math.exp(0.001), rel=1e-4)


@pytest.mark.long
def test_under_tracing_values_outside_the_domain_become_minus_one():
    mechanism = RandomizedResponse(4, 30.0)
    values = np.array([0, -1, 3, 4, 2**31 - 1], np.int32)
    reports = jax.jit(lambda v: mechanism.randomize(jax.random.key(0), v))(values)
    assert reports.tolist() == [0, -1, 3, -1, -1]
    counts = jax.jit(lambda r: rrjax.count(r, 4))(reports)
    assert np.isnan(rrjax.mle_star(counts, 1.0)).all()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_an_impossible_epsilon_under_tracing_reports_nothing(epsilon):
    values = np.arange(4, dtype=INT)
    reports = jax.jit(lambda e: RandomizedResponse(4, e).randomize(jax.random.key(0), values))(FLOAT.type(epsilon))
    assert (np.asarray(reports) == -1).all()
    mechanism = RandomizedResponse(4, jnp.asarray(epsilon, FLOAT))
    for name in ("p", "q", "d", "effective_epsilon"):
        assert np.isnan(getattr(mechanism, name)), name


@pytest.mark.long
def test_the_mechanism_is_a_pytree_with_a_static_domain():
    mechanism = RandomizedResponse(4, 1.5)
    leaves, structure = jax.tree.flatten(mechanism)
    assert leaves == [1.5]
    assert jax.tree.unflatten(structure, leaves) == mechanism
    assert jax.tree.map(lambda e: 2 * e, mechanism) == RandomizedResponse(4, 3.0)
    assert structure != jax.tree.structure(RandomizedResponse(5, 1.5))
    jax.tree.map(lambda _: None, mechanism)  # leaves of any kind pass through
    d = jax.vmap(lambda m: m.d)(RandomizedResponse(4, np.array([0.5, 1.0], FLOAT)))
    np.testing.assert_allclose(d, [RandomizedResponse(4, e).d for e in (0.5, 1.0)], rtol=4 * ULP)
    slope = jax.grad(lambda m: m.d)(RandomizedResponse(4, FLOAT.type(1.0)))
    assert slope.epsilon == pytest.approx(4 * math.e / (math.e + 3) ** 2, rel=20 * ULP)


def test_an_epsilon_too_small_for_64_bits_keeps_nothing():
    for num_categories, epsilon in ((1_423_000, 1e-9), (17_034, 1e-12)):
        mechanism = rrjax.RandomizedResponse(num_categories, epsilon)
        assert mechanism.effective_epsilon == 0
        values = np.full(1000, 7)
        assert (np.asarray(mechanism.randomize(jax.random.key(0), values)) == 7).sum() <= 5


def test_rounding_up_to_a_whole_word_carries():
    # (1 − 2^−40)·2^−32 has a low word of 2^32 − 2^−8, which rounds up to nothing but a carry.
    x = jnp.asarray((1 - 2.0**-40) * 2.0**-32 if X64 else 2.0**-32, FLOAT)
    high, low = _words(x, jnp.ceil)
    assert (int(high), int(low)) == (1, 0)


def test_expected_errors_of_the_inversion_match_a_simulation():
    num_categories, num_users, epsilon, repetitions = 5, 2000, 1.0, 4000
    mechanism = rrjax.RandomizedResponse(num_categories, epsilon)
    counts = np.array([1200, 500, 300, 0, 0])
    rng = np.random.default_rng(0)
    reports = sum(
        rng.multinomial(n, row, size=repetitions)
        for n, row in zip(counts, np.asarray(mechanism.channel(), float), strict=True)
    )
    d, q = float(mechanism.d), float(mechanism.q)
    errors = (reports / num_users - q) / d - counts / num_users
    squared = (errors**2).sum(1)
    standard_error = squared.std() / math.sqrt(repetitions)
    assert abs(squared.mean() - float(mechanism.expected_squared_error(num_users))) <= 4 * standard_error
    # The variance of a sample variance of a nearly normal variable is twice its square over n.
    sd = float(mechanism.standard_error(num_users))
    assert abs((errors[:, 4] ** 2).mean() - sd**2) <= 4 * sd**2 * math.sqrt(2 / repetitions)


@pytest.mark.long
def test_an_epsilon_that_64_bits_cannot_deliver_is_not_simulated():
    """Estimates would take it for the one that was asked for."""
    with refused("epsilon", value=0.1):
        simulated([0, 5], 2**31 - 2, 0.1)
    made = jax.jit(lambda epsilon: RandomizedResponse(2**31 - 2, epsilon).randomize(jax.random.key(0), jnp.arange(3)))
    assert made(0.1).tolist() == [-1, -1, -1]
    assert -1 not in made(30.0).tolist()
    for size, epsilon in ((2, 800.0), (2**31 - 2, 800.0), (2, 1e-6), (1_423_000, 0.1)):
        simulated([0, 1], size, epsilon)
