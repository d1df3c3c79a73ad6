"""Intervals of all groups, and of all rounds, together hold the true shares, far from the others too."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy import stats

import rrjax
from rrjax import longitudinal
from rrjax.data.tally import Tally
from rrjax.inference.share_differences import PartCounts, share_limits
from rrjax.mechanisms import RandomizedResponse, SymmetricUnaryEncoding
from rrjax.reports.pooled import of_groups, of_users, support_of_users

pytestmark = pytest.mark.once  # reports compute in float64, whatever the setting
LEVEL = 0.95


def group(rng, theta, epsilon, number, kind=RandomizedResponse):
    """The counts of a group, as its reports have them."""
    mechanism = kind(len(theta), epsilon)
    rates = mechanism.rates_by(np.expm1)
    if kind is RandomizedResponse:
        counts = rng.multinomial(number, rates.q + rates.d * theta)
    else:
        counts = rng.binomial(number, rates.q + rates.d * theta)
        support = Tally(counts, number, rates=mechanism.rates)
        return SimpleNamespace(support_arguments=(support, None), rates=rates, num_reports=number)
    return SimpleNamespace(support_arguments=(counts, epsilon), rates=rates, num_reports=number)


def of_rounds(protocol, own, theta):
    support, least = support_of_users(protocol, own)
    return of_users(support, protocol.single_round.rates, least, theta)


def held_in(collections, theta, *, simultaneous=False):
    """Which shares the intervals of which collections hold, `[R, K]`: those of all collections at once are faster."""
    size, every = len(theta), zip(*(each.parts for each in collections), strict=True)
    fields = [zip(*((np.broadcast_to(field, size) for field in one) for one in part), strict=True) for part in every]
    parts = [PartCounts(*map(np.concatenate, of_part)) for of_part in fields]
    every = share_limits(parts, LEVEL, collections[0].num_tests, simultaneous=simultaneous)
    lower, upper = (ends.reshape(-1, size) for ends in every)
    assert ((lower <= upper) | np.isnan(lower)).all()
    first = collections[0].limits(LEVEL, simultaneous=simultaneous)
    np.testing.assert_allclose((lower[0], upper[0]), first, atol=1e-7)
    return (lower <= theta) & (theta <= upper)


def covered(collections, theta):
    """The proportion of collections whose intervals hold each share; the errors of these are at most .016."""
    return held_in(collections, theta).mean(axis=0)


@pytest.mark.full
@pytest.mark.parametrize("far", [0.0326, 0.0551])
def test_a_share_that_is_far_from_the_others_is_held(far):
    """Around posterior means, 95 % intervals of it covered .10 to .49."""
    theta, rng = np.append(np.full(99, (1 - far) / 99), far), np.random.default_rng(0)
    with jax.enable_x64(True):
        made = [
            of_groups([group(rng, theta, epsilon, 20_000) for epsilon in (1.0, 2.0)], np.full(100, 0.01))
            for _ in range(400)
        ]
    proportions = covered(made, theta)
    assert proportions[-1] > LEVEL - 4 * np.sqrt(LEVEL * (1 - LEVEL) / 400)
    assert abs(proportions.mean() - LEVEL) < 0.01
    errors = [(each.shares[-1] - far) / each.standard_error(theta)[-1] for each in made]
    assert abs(np.mean(errors)) < 4 / 20
    assert abs(np.std(errors) - 1) < 4 / np.sqrt(800)


@pytest.mark.full
def test_rare_categories_without_noise_are_held():
    theta, rng = np.array([0.97, 0.02, 0.007, 0.003]), np.random.default_rng(1)
    with jax.enable_x64(True):
        made = [of_groups([group(rng, theta, each, 300) for each in (4.0, 8.0)], theta) for _ in range(800)]
    assert (covered(made, theta) > 0.925).all()


def test_intervals_of_counts_without_noise_are_between_those_of_binomial_tails():
    """Of all counts of 40 answers: nearly those of Clopper and Pearson, whose tails are not less than 2.5 %."""
    counts, number = np.arange(41), 40
    lower, upper = share_limits(
        [PartCounts(counts, number, np.zeros(41), np.ones(41), 1.0)], LEVEL, 1, simultaneous=False
    )
    theta = np.linspace(0.0005, 0.9995, 400)
    held = (lower[:, None] <= theta) & (theta <= upper[:, None])
    assert (held * stats.binom.pmf(counts[:, None], number, theta)).sum(axis=0).min() > LEVEL - 0.005
    exact = stats.beta.ppf(0.975, counts[:-1] + 1, number - counts[:-1])
    assert np.abs(upper[:-1] - exact).max() < 0.02
    assert (lower[0], upper[-1]) == (0, 1)


@pytest.mark.full
@pytest.mark.parametrize("epsilons", [(9.0, 9.001), (9.0, 1.0)])
def test_simultaneous_intervals_hold_all_shares_where_counts_are_small(epsilons):
    """Fifteen of twenty categories are empty, and hardly a report is false. Score intervals held all in .28 to .57."""
    theta, rng = np.zeros(20), np.random.default_rng(4)
    theta[:5] = [0.4, 0.3, 0.15, 0.1, 0.05]
    with jax.enable_x64(True):
        made = [
            of_groups([group(rng, theta, each, 365) for each in epsilons], np.maximum(theta, 1e-3)) for _ in range(300)
        ]
    held = held_in(made, theta, simultaneous=True).all(axis=1)
    assert np.mean(held) > LEVEL - 4 * np.sqrt(LEVEL * (1 - LEVEL) / 300)


@pytest.mark.full
def test_two_support_counts_that_are_separate_data_are_two_tests():
    """Those of unary encoding; as one test, the intervals held both in .90 of 4,000 collections."""
    theta, rng = np.array([0.7, 0.3]), np.random.default_rng(7)
    with jax.enable_x64(True):
        made = [
            of_groups([group(rng, theta, each, 1000, SymmetricUnaryEncoding) for each in (1.0, 2.0)], theta)
            for _ in range(1000)
        ]
        assert of_groups([group(rng, theta, each, 1000) for each in (1.0, 2.0)], theta).num_tests == 1
    held = held_in(made, theta, simultaneous=True).all(axis=1)
    assert np.mean(held) > LEVEL - 4 * np.sqrt(LEVEL * (1 - LEVEL) / 1000)


@pytest.mark.long
@pytest.mark.parametrize(("name", "tests"), [("RandomizedResponse", 1), ("UnaryEncoding", 2), ("LocalHashing", 2)])
def test_rounds_of_two_categories(name, tests):
    protocol = getattr(longitudinal, f"Longitudinal{name}")(2, 3.0, 1.0)
    memo = protocol.memoize(jax.random.key(0), np.arange(300, dtype=np.int32) % 2)
    reports = np.stack([np.asarray(protocol.report(jax.random.key(turn), memo)) for turn in (1, 2)], axis=1)
    with jax.enable_x64(True):
        assert of_rounds(protocol, [reports], np.full(2, 0.5)).num_tests == tests


def test_weights_are_those_of_the_precisions():
    rng, theta = np.random.default_rng(2), np.array([0.6, 0.3, 0.1])
    with jax.enable_x64(True):
        parts = [group(rng, theta, *each) for each in ((1.0, 500), (3.0, 200))]
        one, two = [of_groups([part], theta) for part in parts]
        both = of_groups(parts, theta)
        errors = np.stack([each.standard_error(theta) for each in (one, two)])
        np.testing.assert_allclose(both.standard_error(theta) ** -2, (errors**-2.0).sum(axis=0), rtol=1e-9)
        np.testing.assert_allclose(one.shares, rrjax.inv(*parts[0].support_arguments), rtol=1e-9)


@pytest.mark.parametrize("users", [1, 20])
def test_users_whose_reports_are_all_alike_tell_no_more_than_they_are(users):
    """The sums of their squares are zero."""
    protocol = longitudinal.LongitudinalRandomizedResponse(3, 9.0, 6.0)
    reports = np.ones((users, 2), int)
    with jax.enable_x64(True):
        lower, upper = of_rounds(protocol, [reports], np.full(3, 1 / 3)).limits(LEVEL)
    assert (upper - lower > 1 / (2 * users + 4)).all()


@pytest.mark.long
@pytest.mark.parametrize(("users", "rounds"), [(5, 8), (20, 8)])
def test_few_users_with_many_rounds(users, rounds):
    """Nearly all reports of a user are alike; as independent ones they covered .45 to .9."""
    theta, protocol, rng = (
        np.array([0.9, 0.1]),
        longitudinal.LongitudinalRandomizedResponse(2, 9.0, 6.0),
        np.random.default_rng(5),
    )
    kept, made = 1 / (1 + np.exp(-9.0)), []
    flipped = 1 - (float(protocol.single_round.rates.p) + kept - 1) / (2 * kept - 1)
    for _ in range(300):
        memo = (rng.random(users) < 0.1) ^ (rng.random(users) > kept)
        reports = (memo[:, None] ^ (rng.random((users, rounds)) < flipped)).astype(int)
        with jax.enable_x64(True):
            made.append(of_rounds(protocol, [reports], theta))
    assert (covered(made, theta) > LEVEL - 4 * np.sqrt(LEVEL * (1 - LEVEL) / 300)).all()


@pytest.mark.parametrize(("number", "q", "d"), [(1, 1.0, -1.0), (1, 0.5, -0.5), (2, 0.5, -0.5), (200_000, 0.0, 1.0)])
def test_limits_of_counts_at_their_ends(number, q, d):
    """The search began at an end, from where nothing tells the way. Exact: all n alike at μ have the probability μⁿ."""
    count = 0.0 if d < 0 else float(number)
    lower, upper = share_limits([PartCounts(np.full(1, count), number, q, d, 1.0)], LEVEL, 1, simultaneous=False)
    chance = q + d * float(lower[0])
    chance = chance if d > 0 else 1 - chance
    assert float(upper[0]) == 1
    assert chance**number > 0.009
    assert lower[0] == 0 or chance**number < 0.04


PROTOCOLS = {
    "randomized response": longitudinal.LongitudinalRandomizedResponse(5, 3.0, 1.5),
    "local hashing": longitudinal.LongitudinalLocalHashing(5, 3.0, 1.5),
    "unary encoding": longitudinal.LongitudinalUnaryEncoding(5, 3.0, 1.5),
    "bit flipping": longitudinal.LongitudinalBitFlipping(5, 3.0, num_bits=2),
}


@pytest.mark.full
@pytest.mark.parametrize("name", PROTOCOLS)
def test_reports_of_users_in_several_rounds_depend_on_each_other(name):
    """Half of the users report four times, a quarter twice, and a quarter once."""
    theta, number, protocol, rng = np.array([0.6, 0.25, 0.1, 0.05, 0]), 2000, PROTOCOLS[name], np.random.default_rng(3)
    half, most = number // 2, 3 * number // 4

    @jax.jit
    def drawn(key, values):
        memo = protocol.memoize(key, values)
        return [protocol.report(jax.random.fold_in(key, turn), memo) for turn in range(4)]

    made = []
    for seed in range(300):
        rounds = [*map(np.asarray, drawn(jax.random.key(1000 + seed), rng.choice(5, number, p=theta).astype(np.int32)))]
        own = [
            rounds[0][most:][:, None],
            np.stack([each[half:most] for each in rounds[:2]], axis=1),
            np.stack([each[:half] for each in rounds], axis=1),
        ]
        with jax.enable_x64(True):
            made.append(of_rounds(protocol, own, np.maximum(theta, 1e-3)))
    proportions = covered(made, theta)
    assert (proportions > LEVEL - 4 * np.sqrt(LEVEL * (1 - LEVEL) / 300)).all()
    assert 0.93 < proportions.mean() < 0.985


@pytest.mark.full
def test_users_who_report_more_often_count_once():
    """Those with the first value report five times, the others once. Weighted by reports its share is 5/6."""
    protocol = longitudinal.LongitudinalRandomizedResponse(3, 6.0, 4.0)
    values, made = np.repeat(np.arange(2, dtype=np.int32), 500), []
    for seed in range(100):
        memo = protocol.memoize(jax.random.key(seed), values)
        rounds = [np.asarray(protocol.report(jax.random.key(1000 * seed + turn), memo)) for turn in range(1, 6)]
        own = [np.stack(rounds, axis=1)[:500], rounds[0][500:, None]]
        with jax.enable_x64(True):
            made.append(of_rounds(protocol, own, np.array([0.5, 0.5, 1e-3])))
    assert (covered(made, np.array([0.5, 0.5, 0])) > LEVEL - 4 * np.sqrt(LEVEL * (1 - LEVEL) / 100)).all()
    shares = np.stack([each.shares for each in made])
    assert (abs(shares.mean(axis=0) - [0.5, 0.5, 0]) < 4 * shares.std(axis=0) / np.sqrt(100)).all()
