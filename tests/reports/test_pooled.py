"""Intervals of all groups, and of all rounds, together hold the true shares, far from the others too."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import rrjax
from rrjax import longitudinal
from rrjax.mechanisms import RandomizedResponse
from rrjax.reports.pooled import Unbiased, of_groups, of_rounds

pytestmark = pytest.mark.once  # reports compute in float64, whatever the setting
LEVEL = 0.95


def group(rng, theta, epsilon, number):
    """The counts of a group, as its reports have them."""
    mechanism = RandomizedResponse(len(theta), epsilon)
    rates = mechanism.rates_by(np.expm1)
    counts = rng.multinomial(number, rates.q + rates.d * theta)
    return SimpleNamespace(support_arguments=(counts, epsilon), rates=rates, num_reports=number)


def covered(collections, theta):
    """The proportion of collections whose intervals hold each share; the errors of these are at most .016."""
    held = []
    for each in collections:
        lower, upper = each.limits(LEVEL)
        assert (lower <= upper).all()
        held.append((lower <= theta) & (theta <= upper))
    return np.mean(held, axis=0)


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


def test_score_intervals_of_counts():
    """Of one group without noise they are those of Wilson."""
    count, number, quantile = np.array([0, 3, 40]), 40, 1.959964
    interval = Unbiased(count / number, np.array([[0.0], [1.0], [-1.0]]) / number + np.zeros(3))
    lower, upper = interval.limits(LEVEL)
    middle = (count + quantile**2 / 2) / (number + quantile**2)
    half = quantile / (number + quantile**2) * np.sqrt(count * (number - count) / number + quantile**2 / 4)
    np.testing.assert_allclose([lower, upper], np.clip([middle - half, middle + half], 0, 1), atol=1e-6)


def test_weights_are_those_of_the_precisions():
    rng, theta = np.random.default_rng(2), np.array([0.6, 0.3, 0.1])
    with jax.enable_x64(True):
        parts = [group(rng, theta, *each) for each in ((1.0, 500), (3.0, 200))]
        one, two = [of_groups([part], theta) for part in parts]
        both = of_groups(parts, theta)
        errors = np.stack([each.standard_error(theta) for each in (one, two)])
        np.testing.assert_allclose(both.standard_error(theta) ** -2, (errors**-2.0).sum(axis=0), rtol=1e-9)
        np.testing.assert_allclose(one.shares, rrjax.inv(*parts[0].support_arguments), rtol=1e-9)


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
        rounds = [*map(np.asarray, drawn(jax.random.key(seed), rng.choice(5, number, p=theta).astype(np.int32)))]
        own = [
            rounds[0][most:][:, None],
            np.stack([each[half:most] for each in rounds[:2]], axis=1),
            np.stack([each[:half] for each in rounds], axis=1),
        ]
        present = [rounds[0], rounds[1][:most], rounds[2][:half], rounds[3][:half]]
        with jax.enable_x64(True):
            parts = [SimpleNamespace(support_arguments=(protocol.tally(x), None), num_reports=len(x)) for x in present]
            made.append(of_rounds(parts, protocol, own, np.maximum(theta, 1e-3)))
    proportions = covered(made, theta)
    assert (proportions > 0.9).all()
    assert 0.93 < proportions.mean() < 0.985
