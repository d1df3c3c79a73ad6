"""Means and groups from tallies whose reports name one category each: as of counts, and by exact laws of designs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, X64
from refusals import refused
from scipy import stats

from rrjax.inference import difference, linear_functional, stratified
from rrjax.mechanisms import ForcedResponse, NegativeQuestion, OptimizedUnaryEncoding, RandomizedResponse

COUNTS, LATER = np.asarray([520, 290, 100, 190, 150], INT), np.asarray([220, 290, 200, 190, 450], INT)
NUMBERS = np.asarray([0, 1, 2, 3, 5], FLOAT)
MEMBERS = np.asarray([True, True, False, False, True])
EPSILON = 2.0
LIKE = ForcedResponse(float(RandomizedResponse(5, EPSILON).rates.d), [0.2] * 5)
"""A design with the law of randomized response."""
UNEVEN = ForcedResponse(0.4, [0.5, 0.3, 0.2])
LEVEL = 0.8


def same(found, expected):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-9 if X64 else 2e-5)


@pytest.mark.full
@pytest.mark.parametrize("estimand", ["distribution", "users"])
@pytest.mark.parametrize("method", ["conservative", "normal"])
def test_a_design_with_the_law_of_randomized_response_has_its_intervals(method, estimand):
    first, second = LIKE.tally_of_counts(COUNTS), LIKE.tally_of_counts(LATER)
    options = {"values": NUMBERS, "method": method, "estimand": estimand}
    same(linear_functional(first, mechanism=LIKE, **options), linear_functional(COUNTS, EPSILON, **options))
    same(
        difference(first, second, mechanism=LIKE, **options),
        difference(COUNTS, LATER, EPSILON, **options),
    )
    both, shares = np.stack([COUNTS, LATER]), [0.3, 0.7]
    same(
        stratified([first, second], shares=shares, mechanism=[LIKE, LIKE], **options),
        stratified(both, EPSILON, shares=shares, **options),
    )
    if method == "normal":
        options["method"] = "exact"
        same(
            linear_functional(first, values=MEMBERS, mechanism=LIKE, estimand=estimand),
            linear_functional(COUNTS, EPSILON, values=MEMBERS, estimand=estimand),
        )


@pytest.mark.full
def test_a_tally_alone_does_not_tell():
    tally = LIKE.tally_of_counts(COUNTS)
    alone = linear_functional(tally, values=NUMBERS)
    known = linear_functional(tally, values=NUMBERS, mechanism=LIKE)
    assert np.isnan(alone.standard_error)
    assert float(known.upper - known.lower) < 0.75 * float(alone.upper - alone.lower)
    # Unary encoding supports several categories: its mechanism changes nothing.
    unary = OptimizedUnaryEncoding(5, EPSILON)
    supports = unary.collect(jax.random.key(0), COUNTS)
    np.testing.assert_array_equal(
        np.asarray(linear_functional(supports, values=NUMBERS, mechanism=unary)),
        np.asarray(linear_functional(supports, values=NUMBERS)),
    )
    with refused("mechanism"):
        linear_functional(tally, values=NUMBERS, mechanism=UNEVEN)
    with refused("mechanism"):
        difference(tally, tally, values=NUMBERS, mechanism=[LIKE])


def laws(design, users, number):
    """All counts of `number` answers, and their probabilities for users drawn from θ, or of given ones."""
    channel = np.asarray(design.channel(), float)
    every = [each for each in itertools.product(range(number + 1), repeat=3) if sum(each) == number]
    if users is None:
        return every, lambda theta: stats.multinomial.pmf(every, number, theta @ channel)
    law = {(0, 0, 0): 1.0}
    for held in np.repeat(np.arange(3), users):
        after = {}
        for counts, chance in law.items():
            for named in range(3):
                new = tuple(np.asarray(counts) + (np.arange(3) == named))
                after[new] = after.get(new, 0.0) + chance * channel[held, named]
        law = after
    return every, np.asarray([law.get(counts, 0.0) for counts in every])


def variances(weights, scores):
    """The variances of scores under weights `[…, K]`, which need not sum to one."""
    total = weights.sum(-1)
    return (weights @ scores**2 - (weights @ scores) ** 2 / total) / total


def least_of(mean, channel, scores, numbers):
    """The smallest variance of the score of an answer, of all distributions of this mean; two values reach it."""
    mean = np.clip(mean, numbers[0], numbers[-1])
    found = np.full(len(mean), np.inf)
    for low, high in itertools.combinations(range(3), 2):
        part = (mean - numbers[low]) / (numbers[high] - numbers[low])
        square = (1 - part) * (channel[low] @ scores**2) + part * (channel[high] @ scores**2)
        found = np.where((part >= 0) & (part <= 1), np.minimum(found, square - mean**2), found)
    return found


@pytest.mark.full
@pytest.mark.parametrize("design", [UNEVEN, NegativeQuestion(3, 0.1)], ids=["forced-response", "negative-question"])
def test_intervals_and_errors_of_designs_by_exact_laws(design):
    """Coverage at every corner, and the expected square of the standard error."""
    number, numbers = 12, np.asarray([0.0, 0.4, 1.0], FLOAT)
    every, chances_of = laws(design, None, number)
    counts = np.asarray(every, INT)
    group = np.asarray([True, False, True])
    tallies = jax.vmap(design.tally_of_counts)(jnp.asarray(counts))

    def of(function, **options):
        return jax.jit(jax.vmap(lambda tally: function(tally, mechanism=design, level=LEVEL, **options)))(tallies)

    mean, share = of(linear_functional, values=numbers), of(linear_functional, values=group)
    normal = of(linear_functional, values=numbers, method="normal")
    ours = of(linear_functional, values=numbers, method="normal", estimand="users")
    exact = of(linear_functional, values=group, estimand="users")
    # Each answer stands for an unbiased number.
    channel = np.asarray(design.channel(), float)
    scores = np.linalg.solve(channel, numbers.astype(float))
    value, plain = counts @ scores / number, variances(counts, scores) / (number - 1)
    np.testing.assert_allclose(mean.value, value, atol=1e-5)
    error, between = np.asarray(normal.standard_error, float) ** 2, 1 + 1e-4
    assert (error >= plain / between - 1e-6).all()
    assert (error <= between * np.maximum(plain, least_of(value, channel, scores, numbers) / number) + 1e-6).all()
    shares = counts @ np.linalg.inv(channel) / number
    of_users = shares @ variances(channel, scores) / number
    certain = (shares > 0).all(1)  # others are cut to their range
    assert certain.sum() >= 10
    np.testing.assert_allclose(np.asarray(ours.standard_error, float)[certain] ** 2, of_users[certain], rtol=1e-3)
    for theta in ([1, 0, 0], [0, 1, 0], [0, 0, 1], [1 / 3] * 3, [0.5, 0.25, 0.25]):
        theta = np.asarray(theta)
        chances = chances_of(theta)
        for found, true in ((mean, theta @ numbers), (share, theta @ group)):
            covered = (np.asarray(found.lower) <= true + 1e-6) & (true - 1e-6 <= np.asarray(found.upper))
            assert chances[covered].sum() >= LEVEL - 1e-5
        assert chances @ plain == pytest.approx(chances @ (value - theta @ numbers) ** 2, rel=1e-5)  # unbiased
        users = np.round(number * theta).astype(int)
        given = laws(design, users, number)[1]
        covered = (np.asarray(exact.lower) <= users @ group / number + 1e-6) & (
            users @ group / number - 1e-6 <= np.asarray(exact.upper)
        )
        assert given[covered].sum() >= LEVEL - 1e-5
        assert given @ of_users == pytest.approx(given @ (value - users @ numbers / number) ** 2, rel=1e-5)  # unbiased


@pytest.mark.full
def test_differences_of_two_designs_cover():
    """Of designs with other laws each; simulated, with a bound in standard errors."""
    other, draws, rng = ForcedResponse(0.6, [0.2, 0.2, 0.6]), 2000, np.random.default_rng(0)
    numbers = np.asarray([0.0, 0.4, 1.0], FLOAT)
    for thetas in (([1, 0, 0], [0, 0, 1]), ([0.2, 0.3, 0.5], [0.5, 0.3, 0.2]), ([0, 0, 1], [0, 0, 1])):
        counts = [
            rng.multinomial(number, np.asarray(theta) @ np.asarray(design.channel(), float), draws).astype(INT)
            for design, theta, number in zip((UNEVEN, other), thetas, (40, 90), strict=True)
        ]
        found = jax.jit(
            jax.vmap(
                lambda a, b: difference(
                    UNEVEN.tally_of_counts(a),
                    other.tally_of_counts(b),
                    values=numbers,
                    level=LEVEL,
                    mechanism=(UNEVEN, other),
                )
            )
        )(*counts)
        true = (np.asarray(thetas[0]) - np.asarray(thetas[1])) @ numbers
        covered = ((np.asarray(found.lower) <= true + 1e-6) & (true - 1e-6 <= np.asarray(found.upper))).mean()
        assert covered >= LEVEL - 3 * np.sqrt(LEVEL * (1 - LEVEL) / draws)
        error = float(np.asarray(found.standard_error).mean()) * np.sqrt(1 / draws)
        assert float(np.asarray(found.value).mean()) == pytest.approx(true, abs=4 * error)
