"""The geometric mechanism: its law by enumeration, what it delivers, and its likelihood without a matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax.mechanisms import Geometric


def law(size, epsilon):
    """By adding up the noise that falls on each place or off its end."""
    r = np.exp(-epsilon / (size - 1))
    noise = np.arange(-6000, 6001)
    mass = (1 - r) / (1 + r) * r ** np.abs(noise)
    table = np.zeros((size, size))
    for value, row in enumerate(table):
        np.add.at(row, np.clip(value + noise, 0, size - 1), mass)
    return table


@pytest.mark.long
@pytest.mark.parametrize(("size", "epsilon"), [(2, 1.0), (9, 4.0), (40, 20.0)])
def test_the_channel_is_noise_that_ends_at_the_ends(size, epsilon):
    channel = Geometric(size, epsilon).channel()
    np.testing.assert_allclose(channel.matrix, law(size, epsilon), rtol=30 * ULP, atol=ULP / size)
    assert float(channel.epsilon) == pytest.approx(epsilon, rel=30 * ULP)


def test_reports_follow_it():
    mechanism, values = Geometric(9, 4.0), np.repeat([0, 3, 8], 30_000)
    reports = np.asarray(mechanism.randomize(jax.random.key(0), values))
    for value in (0, 3, 8):
        check_frequencies(np.bincount(reports[values == value], minlength=9), law(9, 4.0)[value])
    extremes = [Geometric(9, epsilon).randomize(jax.random.key(0), values) for epsilon in (1e-9, 900.0)]
    assert set(np.unique(extremes[0])) == {0, 8}
    np.testing.assert_array_equal(extremes[1], values)


@pytest.mark.long
def test_its_likelihood_is_that_of_the_channel_up_to_a_factor():
    mechanism = Geometric(9, 4.0)
    reports = mechanism.randomize(jax.random.key(1), np.arange(900) % 4 + 2)
    fast, whole = mechanism.mixture(reports), mechanism.channel().mixture(reports)
    thetas = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(9), 4), FLOAT)
    losses = np.array([[rrjax.nll(theta, mixture) for theta in thetas] for mixture in (fast, whole)])
    np.testing.assert_allclose(np.diff(losses[0]), np.diff(losses[1]), atol=30 * ULP)
    np.testing.assert_array_equal(mechanism.count(reports), fast.weights)
    results = [rrjax.ibu(mixture, accelerate="newton") for mixture in (fast, whole)]
    assert all(result.converged for result in results)
    np.testing.assert_allclose(results[0].theta, results[1].theta, atol=1e-4 if X64 else 0.05)


@pytest.mark.skipif(not X64, reason="float32 cannot certify 1e-10")
def test_five_hundred_places_in_some_ten_steps():
    mechanism = Geometric(500, 50.0)
    values = np.clip(np.random.default_rng(0).normal(200, 60, 20_000), 0, 499).astype(int)
    result = rrjax.ibu(mechanism.mixture(mechanism.randomize(jax.random.key(0), values)), accelerate="newton")
    assert float(result.gap) <= 1e-10
    assert int(result.num_iters) <= 25


def test_what_makes_no_sense():
    for arguments in ((1, 1.0), (5, -1.0), (5, 0.0)):
        with pytest.raises(ValueError, match=r"num_categories|epsilon"):
            Geometric(*arguments)
    with refused("values"):
        Geometric(5, 1.0).randomize(jax.random.key(0), [5])
    with refused("reports"):
        Geometric(5, 1.0).count([-1])

    @jax.jit
    def everything(epsilon, value):
        mechanism = Geometric(5, epsilon)
        theta = jnp.full(5, 0.2, FLOAT)
        return mechanism.randomize(jax.random.key(0), value), rrjax.nll(theta, mechanism.mixture(np.array([0, 1])))

    reports, loss = everything(FLOAT.type(-1.0), np.array([0, 9]))
    assert reports.tolist() == [-1, -1]
    assert np.isnan(loss)
    reports, loss = everything(FLOAT.type(1.0), np.array([0, 9]))
    assert int(reports[0]) >= 0 > int(reports[1])
    assert np.isfinite(loss)
