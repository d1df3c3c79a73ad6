"""The samplers against exact laws: bit by bit where their arithmetic can be turned around, else by chi-square."""

import math
from functools import partial

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from laws import (
    SIGMAS,
    binomial_masses,
    check_covariance,
    check_frequencies,
    check_joint,
    check_moments,
    check_sample,
    joint_law,
    poisson_masses,
)

from rrjax.numerics.special import deviance, stirling_error, stirling_error_of_whole
from rrjax.numerics.threefry import scaled_word, threefry
from rrjax.simulate.sampling import Stream, binomial, multinomial, poisson
from rrjax.simulate.sampling.multinomials import (
    FEW_CATEGORIES,
    edges,
    find_cells,
    multinomial_by_halving,
    multinomial_in_rounds,
)
from rrjax.simulate.sampling.streams import (
    EIGHTHS,
    ONES,
    ROUNDS,
    SIXTEENS,
    TERMS,
    _binomial_by_inversion,
    alias_tables,
    count_tails,
    unit,
)

DRAWS = 1 << 17
LARGEST = 2**31 - 1
# Sums of some twenty terms, each rounded, of a power rounded in the exponent.
ROUNDING = 1e-12 if X64 else 5e-6

draw_poisson = jax.jit(lambda stream, rate: poisson(stream, 0, rate))
draw_binomial = jax.jit(lambda stream, trials, probability: binomial(stream, 0, trials, probability))


def stream(seed=0):
    return Stream.of(jax.random.key(seed))


# --- words


@pytest.mark.parametrize(
    ("rounds", "answers"),
    # Random123's known answers for threefry2x32. Clients of real collections take 20 rounds, simulations fewer.
    [
        (20, [(0x6B200159, 0x99BA4EFE), (0x1CB996FC, 0xBB002BE7), (0xC4923A9C, 0x483DF7A0)]),
        (ROUNDS, [(0x9D1C5EC6, 0x8BD50731), (0xFD36D048, 0x2D17272C), (0xBA3E4725, 0xF27D669E)]),
    ],
)
def test_words_of_the_published_test_vectors(rounds, answers):
    keys = (0, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0x13198A2E, 0x03707344)
    counters = (0, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0x243F6A88, 0x85A308D3)
    for key, counter, answer in zip(keys, counters, answers, strict=True):
        words = threefry(*(jnp.uint32(word) for word in (*key, *counter)), rounds=rounds)
        assert tuple(int(word) for word in words) == answer
        if rounds == ROUNDS:
            pair = Stream(*(jnp.uint32(word) for word in key)).pair(*(np.uint32(word) for word in counter))
            assert tuple(int(word) for word in pair) == answer


def test_keys_of_other_kinds_have_streams_too():
    streams = [Stream.of(jax.random.key(seed, impl="rbg")) for seed in (0, 0, 1)]
    first, again, other = (np.concatenate(each.pair(np.arange(100, dtype=np.uint32), 3)) for each in streams)
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    assert abs(np.mean(first / 2.0**32) - 0.5) < SIGMAS / math.sqrt(12 * first.size)


def test_words_differ_and_every_bit_is_fair():
    places = np.arange(1 << 12, dtype=np.uint32)
    words = np.concatenate([np.concatenate(stream().pair(places, np.uint32(site))) for site in range(8)])
    assert len(np.unique(words)) > words.size - 20  # 0.5 pairs are expected to agree
    ones = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert np.abs(ones.mean(0) - 0.5).max() < SIGMAS * 0.5 / math.sqrt(words.size)


def test_units_are_inside_and_small_ones_keep_their_digits():
    words = np.array([0, 1, 1000, 2**23, 2**31, 2**32 - 1], np.uint32)
    exact = (words.astype(np.float64) + 0.5) / 2**32
    units = np.asarray(unit(words, FLOAT))
    assert units.dtype == FLOAT
    assert units.min() > 0
    assert units.max() <= 1
    np.testing.assert_allclose(units, exact, rtol=np.finfo(FLOAT).eps)


# --- inversion: the law that is drawn, exactly, since the number drawn falls with the word


def tails_drawn(draw, most):
    """P(X ≥ k) for k = 1 … most over all 2³² words, by halving: `draw(words)` must fall with the word."""
    wanted = np.arange(1, most + 1)
    low, high = np.zeros(most, np.int64), np.full(most, 2**32, np.int64)  # the first word with less than k
    while (low < high).any():
        middle = (low + high) // 2
        enough = (np.asarray(draw(middle.astype(np.uint32))) >= wanted) & (low < high)
        low, high = np.where(enough, middle + 1, low), np.where(enough, high, middle)
    return low / 2**32


def check_tails(drawn, first, masses):
    law = np.zeros(len(drawn) + 1)
    law[first : first + len(masses)] = masses[: len(law) - first]
    exact = np.cumsum(law[::-1])[::-1][1:]
    # A unit is rounded where it is near one.
    np.testing.assert_allclose(drawn, exact, rtol=ROUNDING, atol=2.0**-32)


@partial(jax.jit, static_argnums=2)
def poisson_by_inversion(words, rate, terms):
    return count_tails(words, terms, jnp.full(words.shape, jnp.exp(-rate)), lambda k: rate * (1 / k))


RATES = [1e-10, 1e-7, 1e-5, 1e-3, 0.02, 0.1249, 0.125, 0.7, 0.999, 1, 2.5, 3.999, 4, 7.3, 12.5, 15.999]


@pytest.mark.parametrize("rate", RATES)
def test_small_poissons_have_their_law_word_by_word(rate):
    rate = FLOAT.type(rate)
    terms = next(terms for most, terms in TERMS if rate <= most)
    drawn = tails_drawn(lambda words: poisson_by_inversion(words, rate, terms), 60)
    check_tails(drawn, 0, np.append(poisson_masses(float(rate))[1], np.zeros(61)))


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("rate", [1e-7, 1e-5, 1e-3])
def test_small_poissons_are_drawn_by_that_law(rate):
    # The same of the sampler as a whole, with many draws.
    size, number = 1 << 20, 16
    rates = np.full(size, rate, FLOAT)
    drawn = sum(int(jnp.sum(draw_poisson(stream(seed), rates))) for seed in range(number))
    expected = rate * size * number
    assert abs(drawn - expected) <= SIGMAS * math.sqrt(expected) + 3


@pytest.mark.parametrize(
    ("trials", "probability"),
    [
        (1, 0.5),
        (2, 0.5),
        (1, 1e-9),
        (3, 0.3),
        (31, 0.5),
        (20, 0.4999),
        (40, 0.3),
        (1000, 0.0159),
        (1000, 1e-6),
        (10**6, 1e-5),
        (LARGEST, 5e-9),
        (LARGEST, 1e-15),
    ],
)
def test_small_binomials_have_their_law_word_by_word(trials, probability):
    probability = FLOAT.type(probability)
    law = jax.jit(lambda words: _binomial_by_inversion(words, jnp.full(words.shape, trials, jnp.int32), probability))
    drawn = tails_drawn(law, 60)
    assert not drawn[trials:].any()
    first, masses = binomial_masses(trials, float(probability))
    check_tails(drawn, first, np.append(masses, np.zeros(61)))


@pytest.mark.parametrize("tables", [EIGHTHS, ONES, SIXTEENS])
def test_the_tables_hold_their_law(tables):
    cells = 2**tables.bits
    entries, first = (table.reshape(tables.number, -1) for table in alias_tables(tables))
    thresholds, alias = entries >> tables.bits, first + (entries & (cells - 1)).astype(int)
    for j in range(1, tables.number):
        rate = j * tables.step
        own = thresholds[j] / 2 ** (32 - tables.bits) / cells
        low = int(first[j, 0])
        drawn = np.zeros(low + cells)
        np.add.at(drawn, low + np.arange(cells), own)
        np.add.at(drawn, alias[j], 1 / cells - own)
        start, masses = poisson_masses(rate)
        exact = np.zeros(max(low + cells, start + len(masses)))
        exact[start : start + len(masses)] = masses
        assert exact[:low].sum() + exact[low + cells :].sum() < 2.0**-33
        error = drawn - exact[: low + cells]
        assert np.abs(error).max() < 40 * 2.0**-33  # a value fills up many others
        assert abs(error @ np.arange(low + cells)) < 1e-6 * math.sqrt(rate)  # the mean, in standard deviations


# --- rejection, and how the parts are put together


BY_TABLE = [0.01, 0.5, 3.3, 15.99, 16, 16.01, 17.5, 31.99, 32, 100.7, 500.25, 1007.99, 1008, 1023.9]
BY_REJECTION = [1024, 1024.5, 1500.99, 12_345.6, 1e5, 1e6]


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("rate", [*BY_TABLE, *BY_REJECTION])
def test_poissons_by_chi_square(rate):
    rate = float(FLOAT.type(rate))
    drawn = draw_poisson(stream(1), np.full(DRAWS, rate, FLOAT))
    assert drawn.dtype == np.int32
    check_sample(drawn, *poisson_masses(rate))
    check_moments(drawn, rate, rate)


@pytest.mark.long
@pytest.mark.parametrize("rate", [2.0**24, 1e9, 2.0**31 - 2**19])
def test_large_poissons_by_their_moments(rate):
    # Rates that float32 holds; the mean of 10⁶ draws would show an error of 10⁻⁷ of a rate.
    assert float(np.float32(rate)) == rate
    drawn = np.concatenate([draw_poisson(stream(seed), np.full(DRAWS, rate, FLOAT)) for seed in range(8)])
    check_moments(drawn, rate, rate)
    # The shape, in standard deviations: shares beyond 1, 2, 3 on each side.
    score = (drawn.astype(np.float64) - rate) / math.sqrt(rate)
    cuts = np.array([-3, -2, -1, 0, 1, 2, 3])
    cumulative = np.array([0, *(math.erfc(-cut / math.sqrt(2)) / 2 for cut in cuts), 1])
    skew = np.array([0, *((1 - cut**2) * math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi) for cut in cuts), 0])
    check_frequencies(
        np.bincount(np.searchsorted(cuts, score), minlength=8), np.diff(cumulative + skew / 6 / math.sqrt(rate))
    )


@pytest.mark.long
def test_poissons_of_all_sizes_side_by_side():
    # A block of rejections is filled up with the first cell, whose envelope may never accept.
    for first in (0.0, 1e-6, 0.5, 0.95, 2.0):
        rates = np.tile(np.array([first, 2000, 20, 3, 1024, 1e6, 0, 1e9], FLOAT), DRAWS // 8)
        drawn = np.asarray(draw_poisson(stream(2), rates)).reshape(-1, 8)
        assert (drawn >= 0).all()
        assert not drawn[:, rates[:8] == 0].any()
        check_covariance(drawn, rates[:8].astype(float), np.diag(rates[:8].astype(float)))


@pytest.mark.long
@pytest.mark.once
def test_poissons_batch_and_compile_like_a_loop():
    rates = np.array([[0.5, 0, 3, 20], [0.5, 2000, 3, 20], [0, 0, 0, 1e6], [0.2, 0.1, 0.01, 0.05]], FLOAT)
    one = jax.jit(lambda key, rate: poisson(Stream.of(key), 0, rate))
    keys = jax.random.split(jax.random.key(0), 4)
    batch = jax.jit(jax.vmap(lambda key, rate: poisson(Stream.of(key), 0, rate)))(keys, rates)
    np.testing.assert_array_equal(batch, np.stack([one(key, rate) for key, rate in zip(keys, rates, strict=True)]))


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("probability", [0.0, 1e-9, 1e-4, 0.0159, 0.3, 0.5, 0.7, 0.9999, 1.0])
def test_binomials_by_chi_square(probability):
    probability = float(FLOAT.type(probability))
    for trials in (0, 1, 2, 30, 33, 54, 1000, 30_000, 10**6, 10**9, LARGEST):
        drawn = draw_binomial(stream(3), np.full(DRAWS // 4, trials, np.int32), FLOAT.type(probability))
        assert drawn.dtype == np.int32
        assert int(drawn.min()) >= 0
        assert int(drawn.max()) <= trials
        variance = trials * probability * (1 - probability)
        if variance < 1e6:
            check_sample(drawn, *binomial_masses(trials, probability))
        if variance > 5:
            # The mean is rounded once to the dtype.
            slack = trials * probability * np.finfo(FLOAT).eps
            check_moments(drawn, trials * probability, variance, slack)
        if probability in (0, 1):
            assert (np.asarray(drawn) == trials * probability).all()


@pytest.mark.long
def test_binomials_of_all_sizes_side_by_side():
    for first in (0, 1, 2, 3, 5):
        trials = np.tile(np.array([first, 10_000, 50, 7, 0, 10**6, 10**8, LARGEST], np.int32), DRAWS // 32)
        probability = float(FLOAT.type(0.25))
        drawn = np.asarray(draw_binomial(stream(4), trials, FLOAT.type(probability))).reshape(-1, 8)
        assert ((drawn >= 0) & (drawn <= trials[:8])).all()
        size = trials[:8].astype(float)
        check_covariance(drawn, size * probability, np.diag(size * probability * (1 - probability)))


@pytest.mark.full
@pytest.mark.work
@pytest.mark.once
@pytest.mark.parametrize("mean", [16, 16.5, 40.3, 1024, 1030.7])
def test_rejection_by_many_draws(mean):
    draws = 1 << 22
    if mean >= 1024:
        rate = float(FLOAT.type(mean))
        check_sample(draw_poisson(stream(5), np.full(draws, rate, FLOAT)), *poisson_masses(rate))
    for trials in (33, 100, 10_000, 10**8):
        probability = float(FLOAT.type(mean / trials))
        if probability <= 0.5:
            drawn = draw_binomial(stream(6), np.full(draws, trials, np.int32), FLOAT.type(probability))
            check_sample(drawn, *binomial_masses(trials, probability))


@pytest.mark.long
def test_deviance_and_the_stirling_error():
    import mpmath

    with mpmath.workdps(40):
        x = np.array([-1, -0.999, -0.5, -0.4, -0.39, -0.01, -1e-5, 0, 1e-7, 1e-3, 0.1, 0.39, 0.4, 0.41, 3, 100], FLOAT)
        exact = [1 if v == -1 else float((1 + v) * mpmath.log1p(v) - v) for v in map(mpmath.mpf, x.tolist())]
        np.testing.assert_allclose(deviance(x), exact, rtol=1e-8 if X64 else 2e-6, atol=1e-37)
        assert np.isinf(deviance(FLOAT.type(-1.5)))
        x = np.array([1, 2, 5, 10, 100, 1e6], FLOAT)
        exact = [
            float(mpmath.loggamma(v + 1) - (mpmath.log(2 * mpmath.pi * v) / 2 + v * mpmath.log(v) - v))
            for v in map(mpmath.mpf, x.tolist())
        ]
        error = np.abs(np.asarray(stirling_error(x)) - exact)
        assert (error <= np.array([4e-4, 2e-6, 1e-9, 1e-12, 1e-12, 1e-12]) + np.finfo(FLOAT).eps).all()
        x = np.array([1, 2, 5, 10, 31, 32, 33, 100, 1e6], FLOAT)
        exact = [
            float(mpmath.loggamma(v + 1) - (mpmath.log(2 * mpmath.pi * v) / 2 + v * mpmath.log(v) - v))
            for v in map(mpmath.mpf, x.tolist())
        ]
        np.testing.assert_allclose(stirling_error_of_whole(x), exact, rtol=4 * np.finfo(FLOAT).eps, atol=2e-16)


# --- one by one


@pytest.mark.full
@pytest.mark.parametrize("size", [1, 2, 3, 50, 1000, 4097, 1_423_000])
def test_cells_are_found_as_by_searching(size):
    random = np.random.default_rng(0)
    prepare, search = jax.jit(edges), jax.jit(find_cells)
    rank = np.arange(1.0, size + 1)
    laws = {
        "uniform": np.ones(size),
        "zipf": rank**-1.5,
        "zipf from the end": rank[::-1] ** -1.5,
        "point": rank == size // 2 + 1,
        "first": rank == 1,
        "last": rank == size,
        "every third": rank % 3 == 1,
        "crowded": np.where(rank == 1, 1.0, 1e-8),
        "half": np.where(rank == 1, 1.0, 1 / size),
    }
    for name, law in laws.items():
        law = (law / law.sum()).astype(FLOAT)
        upper = np.asarray(prepare(law))
        shares = np.diff(upper.astype(np.int64), prepend=0)
        assert (shares >= 0).all(), f"{name}: wrapped"
        assert upper[-1] / 2**32 > 0.998, f"{name}: much is given away"
        assert not shares[law == 0].any()
        np.testing.assert_allclose(shares / 2**32, law, atol=2.0**-33, rtol=1e-6 + (3 * size + 2.0**14) / 2**32)
        words = random.integers(0, 2**32, 1000, dtype=np.uint32)
        near = random.choice(upper, min(size, 1000))
        words = np.concatenate([words, near, near - np.uint32(1), near + np.uint32(1), np.uint32([0, 2**32 - 1])])
        cells = search(upper, words)
        assert cells.dtype == np.int32
        np.testing.assert_array_equal(cells, np.searchsorted(upper, words, side="right"), err_msg=name)


def test_words_are_scaled_exactly():
    words = np.random.default_rng(1).integers(0, 2**32, 1000, dtype=np.uint32)
    words = np.concatenate([words, np.uint32([0, 1, 2**31, 2**32 - 1])])
    for number in (1, 2, 3, 50, 65_535, 65_536, 65_537, 1_423_000, LARGEST):
        np.testing.assert_array_equal(scaled_word(words, np.uint32(number)), (words.astype(object) * number) >> 32)


# --- multinomial vectors

LAW = np.array([[0.25, 0.25], [0.3, 0.2]], FLOAT)
BATCH = 50_000


@partial(jax.jit, static_argnums=3)
def vectors(seed, trials, expected, way):
    keys = jax.random.split(jax.random.key(seed), BATCH)
    if way == "halves":
        return jax.vmap(lambda key: multinomial_by_halving(Stream.of(key), trials, LAW, followed=True))(keys)
    return jax.vmap(lambda key: multinomial_in_rounds(Stream.of(key), trials, LAW, expected=expected, followed=True))(
        keys
    )


def steps():
    """One trial: what it adds to the cells, and to those that follow the last two."""

    def unit(*places):
        return tuple(int(i in places) for i in range(6))

    (first, second), (third, fourth) = LAW.astype(float)
    law = {unit(0): first, unit(1): second}
    return law | {unit(i, j): p / 2 for i, p in ((2, third), (3, fourth)) for j in (4, 5)}


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("way", ["halves", "rounds"])
@pytest.mark.parametrize("trials", [0, 1, 2, 5])
def test_few_trials_have_their_joint_law(trials, way):
    drawn = np.asarray(vectors(0, np.int32(trials), FLOAT.type(trials), way)).reshape(BATCH, 6)
    law = joint_law([steps()] * trials) if trials else {(0,) * 6: 1.0}
    check_joint(drawn, law)


def covariance_of_steps():
    """The mean and covariance matrix of what one trial adds."""
    values, masses = np.array(list(steps())), np.array(list(steps().values()))
    mean = masses @ values
    return mean, (values * masses[:, None]).T @ values - np.outer(mean, mean)


@pytest.mark.work
@pytest.mark.once
@pytest.mark.parametrize(
    ("trials", "expected", "way"),
    # As told; then what no binomial number would do, where rounds are dropped or too small, and the law is the same.
    # In float32, one of these keys has a first round of followers that does not fit: it would be one by one for hours.
    [
        *((*each, "rounds") for each in ((60, 60), (1000, 1000), (10**6, 10**6), (LARGEST, LARGEST))),
        *((*each, "rounds") for each in ((60, 90), (50, 1000), (1000, 50), (1000, 0))),
        *((trials, trials, "halves") for trials in (60, 1000, 10**6, LARGEST)),
    ],
)
def test_many_trials_whatever_was_expected(trials, expected, way):
    drawn = np.asarray(vectors(1, np.int32(trials), FLOAT.type(expected), way)).reshape(BATCH, 6)
    assert (drawn[:, :4].sum(1, dtype=np.int64) == trials).all()
    assert (drawn[:, 4:].sum(1, dtype=np.int64) == drawn[:, 2:4].sum(1, dtype=np.int64)).all()
    assert drawn.min() >= 0
    mean, covariance = covariance_of_steps()
    check_covariance(drawn, trials * mean, trials * covariance)
    if trials <= 1000:
        for i, probability in enumerate([*LAW.ravel().astype(float), 0.25, 0.25]):
            check_sample(drawn[:, i], *binomial_masses(trials, probability))


def law_of(size):
    """Zipf from the end, with empty cells: halves that are empty, alone, or have nearly all."""
    law = 1 / np.arange(size, 0, -1.0) ** 2 * (np.arange(size) % 3 != 1)
    return (law / law.sum()).astype(FLOAT)


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 3, 64])
def test_every_cell_of_a_halved_vector_has_its_law(size):
    law = law_of(size)
    keys = jax.random.split(jax.random.key(size), 1 << 12)
    draw = jax.jit(jax.vmap(lambda key, trials: multinomial(Stream.of(key), trials, law[None])[0], (0, None)))
    for trials in (3, 40, 100_000):
        drawn = np.asarray(draw(keys, jnp.int32(trials)))
        assert (drawn.sum(1) == trials).all()
        assert drawn.min() >= 0
        assert not drawn[:, law == 0].any()
        for cell in np.flatnonzero(law)[-3:]:
            check_sample(drawn[:, cell], *binomial_masses(trials, float(law[cell])))
        exact = law[law > 0].astype(float)
        if exact.size > 1:
            check_covariance(drawn[:, law > 0], trials * exact, trials * (np.diag(exact) - np.outer(exact, exact)))


@pytest.mark.long  # eight programs are compiled
@pytest.mark.parametrize("size", [2, 5, 77])
def test_halved_vectors_of_other_sizes_have_their_law(size):
    test_every_cell_of_a_halved_vector_has_its_law(size)


@pytest.mark.full  # programs for a vector and for batches of batches
def test_halved_vectors_do_not_depend_on_their_batch():
    laws = np.array([[0.5, 0.2, 0.3], [0.1, 0.0, 0.9]], FLOAT)
    keys = jax.random.split(jax.random.key(3), 6).reshape(2, 3)
    trials = np.array([[0, 10, 10**6], [10**9, 77, 1000]], np.int32)

    def draw(key, number, law):
        return multinomial(Stream.of(key), number, law[None], followed=True)

    alone = jax.jit(draw)
    batches = jax.vmap(jax.vmap(draw, (0, 0, None)))(keys, trials, laws)
    same_law = jax.vmap(jax.vmap(draw, (0, 0, None)), (0, 0, None))(keys, trials, laws[1])
    crossed = jax.vmap(jax.vmap(draw, (None, 0, 0)), (0, None, None))(keys[:, 2], trials[:, 2], laws)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(batches[i, j], alone(keys[i, j], trials[i, j], laws[i]))
        np.testing.assert_array_equal(same_law[i, j], alone(keys[i, j], trials[i, j], laws[1]))
    for i, j in np.ndindex(2, 2):
        np.testing.assert_array_equal(crossed[i, j], alone(keys[i, 2], trials[j, 2], laws[j]))


@pytest.mark.full  # four programs are compiled
@pytest.mark.parametrize("size", [FEW_CATEGORIES, FEW_CATEGORIES + 1])
def test_both_sides_of_the_seam_have_their_law(size):
    keys = jax.random.split(jax.random.key(8), 1 << 13)
    law = np.full((1, size), 1 / size, FLOAT)
    law[0, :2] = [1.5 / size, 0.5 / size]
    draw = jax.jit(jax.vmap(lambda key, trials: multinomial(Stream.of(key), trials, law)[0], (0, None)))
    for trials in (2 * size, 1000 * size):
        drawn = np.asarray(draw(keys, jnp.int32(trials)))
        assert (drawn.sum(1) == trials).all()
        for cell in (0, 1, size - 1):
            check_sample(drawn[:, cell], *binomial_masses(trials, float(law[0, cell])))
