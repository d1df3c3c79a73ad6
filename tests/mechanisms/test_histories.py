"""What the reports of a changing value tell of its history, by enumeration of all outputs."""

import itertools
import math

import numpy as np
import pytest
from cases import X64
from protocols import TWO_STAGES, UNARY, channels, make, matrix, two_stages
from refusals import refused

from rrjax.mechanisms.longitudinal import (
    LongitudinalBitFlipping,
    LongitudinalLocalHashing,
    LongitudinalRandomizedResponse,
)
from rrjax.privacy.clients.longitudinal import second_epsilon

TIGHT = 1e-12 if X64 else 1e-5


def every_history(size, rounds):
    return list(itertools.product(range(size), repeat=rounds))


def log_laws(first, again, histories):
    """`[H, outputs]`: every round is reported from the memo that the history has then; a memo's states are summed."""
    rounds = len(histories[0])
    outputs = np.array(list(itertools.product(range(again.shape[1]), repeat=rounds)))
    table = []
    for history in histories:
        law = np.ones(len(outputs))
        for memo in set(history):
            turns = [turn for turn, held in enumerate(history) if held == memo]
            law *= first[memo] @ again[:, outputs[:, turns]].prod(2)
        table.append(law)
    return np.log(table)


def losses(logs):
    return np.abs(logs[:, None] - logs[None]).max(2)


@pytest.mark.once
def test_what_memos_hide_of_a_history_and_what_they_do_not():
    """Of all pairs of four values: ε∞ a memo where they change at the same times, else no more than n·ε₂."""
    size, epsilon, rounds = 3, 1.0, 4
    between = second_epsilon(size, epsilon, first_epsilon=0.9)
    histories = every_history(size, rounds)
    first, second = (matrix(size, math.exp(each), 1.0) / (math.exp(each) + size - 1) for each in (epsilon, between))
    laws_of = log_laws(first, second, histories)
    np.testing.assert_allclose(np.exp(laws_of).sum(1), 1)
    apart = losses(laws_of)
    pattern = [tuple(history.index(value) for value in history) for history in histories]
    alike = np.array([[one == other for other in pattern] for one in pattern])
    memos = np.array([len(set(history)) for history in histories])[:, None]
    differ = (np.array(histories)[:, None] != np.array(histories)[None]).sum(2)
    assert (apart <= np.where(alike, memos * epsilon, np.inf) + 1e-12).all()
    assert (apart <= differ * between + 1e-12).all()
    constant, changed = histories.index((0, 0, 0, 0)), histories.index((0, 0, 1, 1))
    assert apart[constant, changed] > 2 * epsilon  # as many as there are memos in both


@pytest.mark.long
@pytest.mark.once
@two_stages
def test_the_loss_of_two_histories_is_that_of_all_outputs(kind):
    size, rounds = (2, 3) if kind in UNARY else (3, 4)
    protocol = make(kind, size, 1.0, 0.6)
    histories = every_history(size, rounds)
    if kind is LongitudinalLocalHashing:  # of the hash functions, the one by which they are the furthest apart
        first, again, _ = channels(protocol, np.arange(3))
        hashed = [[tuple(buckets[each] for each in held) for held in histories] for buckets in every_history(3, 3)]
        wanted = np.max([losses(log_laws(first, again, each)) for each in hashed], axis=0)
    else:
        wanted = losses(log_laws(*channels(protocol)[:2], histories))
    pairs = np.random.default_rng(0).integers(0, len(histories), (40, 2)).tolist()
    found = [protocol.history_loss(histories[one], histories[other]) for one, other in pairs]
    np.testing.assert_allclose(found, [wanted[one, other] for one, other in pairs], rtol=1e-5, atol=1e-6)


@pytest.mark.once
def test_the_loss_of_bit_flipping_is_that_of_all_outputs():
    size, num_bits, rounds = 4, 2, 3
    s = math.exp(0.75)
    own, other = s / (s + 1), 1 / (s + 1)
    protocol, histories = LongitudinalBitFlipping(size, 1.5, num_bits), every_history(size, rounds)
    states = np.array(list(itertools.product([0, 1], repeat=num_bits)))
    worst = np.zeros((len(histories), len(histories)))
    for asked in itertools.combinations(range(size), num_bits):
        memo = [asked.index(value) if value in asked else num_bits for value in range(size)]
        chance = np.where(np.arange(num_bits) == np.arange(num_bits + 1)[:, None], own, other)
        first = np.where(states, chance[:, None], 1 - chance[:, None]).prod(-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = log_laws(first, np.eye(4), [tuple(memo[value] for value in history) for history in histories])
            apart = np.abs(logs[:, None] - logs[None])
        worst = np.maximum(worst, np.nanmax(apart, axis=2))  # NaN: an output that neither can have
    found = [[protocol.history_loss(one, two) for two in histories] for one in histories[::7]]
    np.testing.assert_allclose(found, worst[::7], rtol=1e-6, atol=1e-12)


@pytest.mark.once
def test_a_history_that_comes_back_is_told_from_one_that_does_not():
    """Of three buckets, at ε∞ = 0.5 no pattern is promised: only what has the same one is within 1.5."""
    protocol = LongitudinalLocalHashing(3, 0.5, 0.499999999 if X64 else 0.49999, 3)
    same, different = protocol.history_loss([0, 1, 0], [1, 2, 1]), protocol.history_loss([0, 1, 0], [0, 1, 2])
    assert different > 1.5
    assert protocol.history_loss([0, 0], [1, 1]) <= 0.5 + 1e-6
    # A hash function that has 0 and 1 in one bucket makes another pattern of it.
    assert same > 1.5
    assert LongitudinalRandomizedResponse(3, 0.5, 0.4).history_loss([0, 1, 0], [1, 2, 1]) <= 1.5
    flipping = LongitudinalBitFlipping(3, 0.5, 2)
    assert flipping.history_loss([0, 1, 0], [0, 1, 2]) == math.inf
    assert flipping.history_loss([0, 0, 0], [1, 1, 1]) == 0.5


@pytest.mark.once
def test_histories_of_one_pattern_are_apart_by_no_more_than_their_memos():
    """Also long ones: as much as `epsilon_after` says of each memo."""
    for kind in TWO_STAGES:
        if kind is not LongitudinalLocalHashing:
            protocol = make(kind, 50, 2.0, 1.0)
            found = protocol.history_loss([0] * 7 + [1] * 20, [1] * 7 + [3] * 20)
            assert found <= 4 + TIGHT
            once = protocol.history_loss([0] * 7, [3] * 7)
            assert once == pytest.approx(float(protocol.epsilon_after(7)), rel=1e-5)


@pytest.mark.once
def test_histories_that_have_no_loss(monkeypatch):
    protocol = make(LongitudinalRandomizedResponse, 3)
    for history, other, argument in (
        ([0, 3], [0, 0], "history"),
        ([0, 1], [0, -1], "other"),
        ([], [], "history"),
        ([[0]], [0], "history"),
        ([0.5], [0], "history"),
        ([0], [0, 1], "other"),
    ):
        with refused(argument):
            protocol.history_loss(history, other)
    for epsilon, first in ((800.0, 750.0), (math.inf, 800.0)):
        with refused("epsilon"):
            LongitudinalRandomizedResponse(3, epsilon, first).history_loss([0], [1])
    monkeypatch.setattr("rrjax.longitudinal.histories.MOST_OUTPUTS", 1000)
    with refused("history"):
        protocol.history_loss(list(range(3)) * 8, [0, 1] * 12)
