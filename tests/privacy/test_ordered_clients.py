"""Clients for numbers: the ε of their integers, and the law of their reports."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax import secure
from rrjax.mechanisms import ORDERED

pytestmark = pytest.mark.once
every = pytest.mark.parametrize("name", ORDERED)


def law(client):
    """The exact law `[K][M]` of reports given each value, from the integers of a small client."""
    size, whole = client.num_categories, 2**128
    if client.name == "square-wave":
        window, right = 2 * client.half_width + 1, Fraction(client._threshold, whole)
        return [
            [
                right / window if 0 <= report - value < window else (1 - right) / (size - 1)
                for report in range(size + window - 1)
            ]
            for value in range(size)
        ]
    tails = [Fraction(1), *(Fraction(tail, whole) for tail in client._tails), Fraction(0)]

    def beyond(steps):
        """P(noise ≥ steps)."""
        return tails[steps] if steps > 0 else 1 - tails[1 - steps]

    rows = []
    for value in range(size):
        inner = [beyond(report - value) - beyond(report - value + 1) for report in range(1, size - 1)]
        rows.append([beyond(value), *inner, beyond(size - 1 - value)])
    # The ends hold all noise beyond: P(noise ≤ −v) = P(noise ≥ v) of v ≥ 1; of no steps it is 1 − t_1.
    for row, value in zip(rows, range(size), strict=True):
        row[0] = tails[value] if value else 1 - tails[1]
        row[-1] = tails[size - 1 - value] if value < size - 1 else 1 - tails[1]
    return rows


@every
@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 4.0, 10.0, 30.0])
def test_the_epsilon_of_the_integers_is_never_more_than_asked(name, size, epsilon):
    client = secure.client(name, size, epsilon)
    table = law(client)
    assert all(sum(row) == 1 for row in table)
    ratio = max(max(column) / min(column) for column in zip(*table, strict=True))
    assert ratio == client.likelihood_ratio
    with mpmath.workdps(50):
        delivered = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert delivered <= mpmath.mpf(epsilon)
        assert (epsilon - delivered) / epsilon < 1e-9
        stated = client.effective_epsilon
        assert mpmath.mpf(stated) <= delivered <= mpmath.mpf(math.nextafter(stated, math.inf))
    np.testing.assert_allclose(
        np.asarray(table, float), np.asarray(ORDERED[name](**client.parameters).channel().matrix), rtol=3e-7
    )


@every
def test_epsilons_and_sizes_that_no_client_delivers(name):
    for epsilon in (80.0, math.inf, 1e-40, 0, -1.0, math.nan):
        with refused("epsilon"):
            secure.client(name, 4, epsilon)
    with refused("values"):
        secure.client(name, 4, 1.0).randomize([4])
    with refused("epsilon"):  # there are too few bits for the steps between so many integers
        secure.client("geometric", 1000, 1e-25)
    with refused("num_categories"):
        secure.client("geometric", (1 << 20) + 1, 1.0)
    with refused("half_width"):
        secure.client("geometric", 4, 1.0, half_width=1)
    for size in (5, 100, 1423):
        for epsilon in (1e-9, 1e-3, 1.0, 20.0):
            client = secure.client(name, size, epsilon)
            assert (1 - 2**-30) * epsilon <= client.effective_epsilon <= epsilon
            assert secure.client(name, **client.parameters).parameters == client.parameters


@every
def test_reports_have_the_law(name, monkeypatch):
    monkeypatch.setattr("os.urandom", np.random.default_rng(0).bytes)
    client, users = secure.client(name, 5, 1.2), 40_000
    reports = client.randomize(np.repeat(np.arange(5), users).reshape(5, -1))
    table = np.asarray(law(client), float)
    mechanism = ORDERED[name](**client.parameters)
    for value in range(5):
        check_frequencies(np.asarray(mechanism.count(reports[value])), table[value])
    supported = client.supports(np.arange(table.shape[1]), 2)
    wanted = np.arange(5) == 2 if name == "geometric" else np.isclose(table[2], table[2].max())
    np.testing.assert_array_equal(supported, wanted)


@every
def test_an_audit_finds_most_of_epsilon(name, monkeypatch):
    monkeypatch.setattr("os.urandom", np.random.default_rng(0).bytes)
    found = rrjax.audit.audit_mechanism(secure.client(name, 8, 1.0), num_draws=200_000)
    assert 0.9 < found.lower <= found.claimed
    assert not found.violated
