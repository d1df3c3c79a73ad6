"""The client of survey designs: its law, its ε in exact fractions, and what it refuses."""

import math
from fractions import Fraction

import numpy as np
import pytest
from laws import check_frequencies
from refusals import refused

from rrjax.mechanisms import ForcedResponse, Kuk, Mangat, NegativeQuestion, UnrelatedQuestion, Warner
from rrjax.privacy.audit import audit_mechanism
from rrjax.privacy.clients.table import Answers

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("urandom")]  # its laws are tested by statistics
DESIGNS = [
    Warner(0.3),
    ForcedResponse(2 / 3, [0.5, 0.5]),
    UnrelatedQuestion(0.7, [0.2, 0.3, 0.5]),
    Kuk(0.8, 0.2),
    Mangat(0.7),
    NegativeQuestion(4, 0),
]


def client_of(design):
    return Answers(design.name, np.asarray(design.channel(), np.float64), {})


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_answers_have_the_law_of_the_design(design):
    client, channel = client_of(design), np.asarray(design.channel(), np.float64)
    for value, law in enumerate(channel):
        counts = np.bincount(client.randomize(np.full(30_000, value)), minlength=len(law))
        assert not counts[law == 0].any()
        check_frequencies(counts[law > 0], law[law > 0] / law.sum())
    delivered, claimed = client.effective_epsilon, float(design.epsilon)
    assert delivered == claimed if math.isinf(claimed) else abs(delivered - claimed) < 1e-6 * claimed


def test_its_epsilon_is_exact():
    client = Answers("x", np.array([[0.75, 0.25], [0.25, 0.75]]), {})
    assert client.likelihood_ratio == Fraction(3)
    assert client.effective_epsilon <= math.log(3)
    found = audit_mechanism(client, 100_000)
    assert not found.violated
    assert found.lower > 1.05


def test_matrices_that_are_no_channel():
    for wrong in (np.ones(2), np.full((2, 3), 1 / 3), np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[2, -1], [0, 1]])):
        with refused("channel"):
            Answers("x", wrong, {})
