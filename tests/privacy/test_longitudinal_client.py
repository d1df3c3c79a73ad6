"""Clients of longitudinal protocols: the law of memo and reports, and their ε in exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from laws import check_frequencies
from refusals import refused

from rrjax.mechanisms import PROTOCOLS
from rrjax.privacy.clients.longitudinal import LongitudinalClient

pytestmark = pytest.mark.once
NUM_USERS, LAST, FIRST = 40_000, 3.0, 1.0


def made(name, values, rounds=2):
    client = LongitudinalClient(name, 4, LAST, FIRST)
    seeds = client.seeds(len(values))
    answers = client.memoize(client.keys(seeds, values))
    return PROTOCOLS[name](**client.parameters), [client.report(seeds, answers) for _ in range(rounds)]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_round_has_the_law_of_its_mechanism(name):
    protocol, (first, _) = made(name, np.full(NUM_USERS, 2))
    mechanism = protocol.single_round
    supported = np.asarray(mechanism.supports(first)).sum(axis=0)
    p, q = float(mechanism.rates.p), float(mechanism.rates.q)
    for category, number in enumerate(supported.tolist()):
        share = p if category == 2 else q
        check_frequencies([number, NUM_USERS - number], [share, 1 - share])


@pytest.mark.parametrize("name", PROTOCOLS)
def test_two_rounds_share_their_permanent_answer(name):
    protocol, rounds = made(name, np.full(NUM_USERS, 2))
    both = np.logical_and(*(np.asarray(protocol.single_round.supports(each))[:, 2] for each in rounds)).sum()
    # Given the memo rounds are independent: P(both) = Σ_m P(m)·P(support | m)².
    p1, p2, q2 = (float(x) for x in (protocol.permanent.p, protocol.instantaneous.p, protocol.instantaneous.q))
    share = p1 * p2**2 + (1 - p1) * q2**2
    check_frequencies([int(both), NUM_USERS - int(both)], [share, 1 - share])


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_more_than_the_epsilons_asked_for(name):
    client = LongitudinalClient(name, 4, LAST, FIRST)
    assert LAST * (1 - 1e-8) < client.effective_epsilon <= LAST
    own, second = client._permanent.likelihood_ratio, client._instant.likelihood_ratio
    if name.endswith("unary-encoding"):
        return  # one bit of two: the law above
    size = client._num_answers
    # e^ε of two randomized responses in a row, in exact fractions.
    p1, p2 = own / (own + size - 1), second / (second + size - 1)
    q1, q2 = (1 - p1) / (size - 1), (1 - p2) / (size - 1)
    first = (p1 * p2 + (size - 1) * q1 * q2) / (p1 * q2 + q1 * p2 + (size - 2) * q1 * q2)
    assert isinstance(first, Fraction)
    assert FIRST * (1 - 1e-8) < math.log(first) <= FIRST * (1 + 1e-15)


def test_impossible_protocols_are_refused():
    with refused("name"):
        LongitudinalClient("randomized-response", 4, LAST, FIRST)
    with refused("first_epsilon"):
        LongitudinalClient("longitudinal-randomized-response", 4, FIRST, LAST)
