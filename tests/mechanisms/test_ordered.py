"""Values in order: the square wave by integration and on bins, smoothed EM; the geometric mechanism by enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax.estimators.em import ems
from rrjax.mechanisms import ORDERED, DiscreteSquareWave, Geometric, SquareWave


def window(epsilon):
    """B and the two densities, by the published formulas in long doubles."""
    e = np.exp(np.longdouble(epsilon))
    b = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))
    return b, e / (2 * b * e + 1), 1 / (2 * b * e + 1)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0])
def test_the_window_is_the_published_one(epsilon):
    mechanism = SquareWave(4, epsilon)
    b, p, _ = window(float(FLOAT.type(epsilon)))
    np.testing.assert_allclose(mechanism.reach, float(b), rtol=max(20 * ULP, 1e-15))
    np.testing.assert_allclose(mechanism.truth, float(2 * b * p), rtol=max(20 * ULP, 1e-15))


@pytest.mark.once
def test_the_window_at_the_ends_of_privacy():
    assert float(SquareWave(4, 1e-6).reach) == pytest.approx(0.5, abs=1e-5)
    assert float(SquareWave(4, 800.0).reach) == pytest.approx(0, abs=1e-30)
    assert float(SquareWave(4, 800.0).truth) == pytest.approx(799 / 800)
    np.testing.assert_allclose(SquareWave(4, np.inf).channel().matrix, np.eye(4), atol=1e-3)


@pytest.mark.parametrize(("epsilon", "size", "number"), [(1.0, 5, 7), (3.0, 8, 8), (6.0, 3, 40)])
def test_the_channel_by_integration(epsilon, size, number):
    mechanism = SquareWave(size, epsilon, number)
    matrix = np.asarray(mechanism.channel().matrix)
    b, p, q = (float(x) for x in window(float(FLOAT.type(epsilon))))
    # Many values in each bin, each with the exact masses of its reports.
    edges = np.linspace(-b, 1 + b, number + 1)
    values = (np.arange(size * 4000) + 0.5) / (size * 4000)
    below = q * (edges + b) + (p - q) * np.clip(edges - (values[:, None] - b), 0, 2 * b)
    wanted = np.diff(below, axis=1).reshape(size, 4000, number).mean(axis=1)
    np.testing.assert_allclose(matrix, wanted, atol=2e-6)
    assert float(mechanism.channel().epsilon) <= epsilon * (1 + 1e-5)
    traced = jax.jit(lambda e: SquareWave(size, e, number).channel().matrix)(FLOAT.type(epsilon))
    np.testing.assert_allclose(traced, matrix, atol=50 * ULP)


def test_reports_follow_the_density():
    mechanism, value = SquareWave(8, 2.0, 50), 0.21
    reports = np.asarray(mechanism.randomize(jax.random.key(0), np.full(60_000, value)))
    b, p, q = (float(x) for x in window(2.0))
    edges = np.linspace(-b, 1 + b, 51)
    mass = np.diff(q * (edges + b) + (p - q) * np.clip(edges - (value - b), 0, 2 * b))
    check_frequencies(np.histogram(reports, edges + np.where(np.arange(51) == 50, 1e-6, -1e-6))[0], mass)
    counts = mechanism.count(reports)
    assert int(counts.sum()) == 60_000
    check_frequencies(counts, mass)


def test_reports_of_bins_follow_the_channel():
    mechanism = SquareWave(4, 2.0, 30)
    values = (2 + np.random.default_rng(0).random(60_000)) / 4  # anywhere in the third bin
    counts = mechanism.count(mechanism.randomize(jax.random.key(0), values))
    check_frequencies(counts, np.asarray(mechanism.channel().matrix)[2])


def numpy_ems(matrix, counts, tol):
    size = len(matrix)
    smoother = (np.eye(size, k=-1) + 2 * np.eye(size) + np.eye(size, k=1)) / 4
    smoother[0, :2] = smoother[-1, :-3:-1] = 2 / 3, 1 / 3
    theta, loss, steps = np.full(size, 1 / size), -np.inf, 0
    before = counts @ np.log(theta @ matrix)
    while abs(loss - before) >= tol or steps == 0:
        before = loss if steps else before
        theta = theta * (matrix @ (counts / (theta @ matrix)))
        theta = smoother @ (theta / theta.sum())
        theta /= theta.sum()
        loss, steps = counts @ np.log(theta @ matrix), steps + 1
    return theta, steps


@pytest.mark.full
def test_smoothed_em_against_numpy():
    mechanism = SquareWave(16, 1.0)
    values = np.random.default_rng(0).beta(2, 5, 3000)
    counts = np.asarray(mechanism.count(mechanism.randomize(jax.random.key(0), values)))
    mixture = mechanism.channel().mixture_of_counts(counts)
    matrix = np.asarray(mechanism.channel().matrix, float)
    for tol in (1.0, 1e-2):
        result = ems(mixture, tol=tol)
        theta, steps = numpy_ems(matrix, counts, tol)
        assert bool(result.converged)
        assert abs(int(result.num_iters) - steps) <= (0 if X64 else 2)
        np.testing.assert_allclose(result.theta, theta, atol=1e-10 if X64 else 2e-3)
    # It is not the maximum, and its certificate says so.
    best = rrjax.ibu(mixture, accelerate="newton")
    lost = float(rrjax.nll(result.theta, mixture) - rrjax.nll(best.theta, mixture))
    assert 1e-5 < lost <= float(result.gap)
    assert int((np.asarray(best.theta) > 1e-3).sum()) < 16 == int((np.asarray(result.theta) > 1e-3).sum())
    assert not ems(mixture, tol=1e-2, max_iters=2).converged


def test_values_that_rounding_put_outside_are_at_the_end():
    beyond = np.array([-ULP, 0, 1, 1 + 2 * ULP], FLOAT)
    reports = np.asarray(SquareWave(4, 2.0).randomize(jax.random.key(0), np.tile(beyond, 50)))
    inside = SquareWave(4, 2.0).randomize(jax.random.key(0), np.tile(np.clip(beyond, 0, 1), 50))
    np.testing.assert_array_equal(reports, inside)
    assert np.isfinite(reports).all()


@pytest.mark.long
def test_what_the_square_wave_refuses():
    for arguments in ((1, 1.0), (5, -1.0), (5, 1.0, 1), (5, 1.0, 2.5)):
        with pytest.raises(ValueError, match=r"num_categories|epsilon|num_reports"):
            SquareWave(*arguments)
    mechanism = SquareWave(5, 1.0)
    with refused("values", row=1, value=None):
        mechanism.randomize(jax.random.key(0), [0.5, -0.1])
    with refused("reports", row=0, value=7.0):
        mechanism.count([7.0])
    with refused("reports"):
        mechanism.count(["a"])
    with refused("tol"):
        ems(mechanism.mixture([0.5]), tol=0.0)
    with refused("max_iters"):
        ems(mechanism.mixture([0.5]), max_iters=0)

    @jax.jit
    def everything(epsilon, value, report):
        mechanism = SquareWave(5, epsilon)
        mixture = mechanism.mixture(report)
        return mechanism.randomize(jax.random.key(0), value), mechanism.count(report), ems(mixture).theta

    reports, counts, theta = everything(FLOAT.type(1.0), np.array([0.5, 2], FLOAT), np.array([0.5, 0.2], FLOAT))
    assert np.isnan(reports).tolist() == [False, True]
    assert int(counts.sum()) == 2
    assert np.isfinite(theta).all()
    reports, counts, theta = everything(FLOAT.type(-1.0), np.array([0.5, 2], FLOAT), np.array([0.5, 9], FLOAT))
    assert np.isnan(reports).all()
    assert (np.asarray(counts) == -1).all()
    assert np.isnan(theta).all()
    assert isinstance(theta, jnp.ndarray)


def test_the_law_on_bins_is_its_definition():
    mechanism = DiscreteSquareWave(5, 1.2, half_width=1)
    matrix, ratio = np.asarray(mechanism.channel().matrix), np.exp(1.2)
    for value in range(5):
        for report in range(7):
            near = value <= report <= value + 2
            assert matrix[value, report] == pytest.approx((ratio if near else 1) / (3 * ratio + 4))
    assert float(mechanism.channel().epsilon) == pytest.approx(1.2, rel=1e-5)
    assert mechanism.note == "half-width 1"
    traced = jax.jit(lambda epsilon: DiscreteSquareWave(5, epsilon, half_width=1).channel().matrix)(1.2)
    np.testing.assert_allclose(traced, matrix, rtol=1e-5)


@pytest.mark.long
def test_reports_on_bins_have_the_law():
    mechanism = DiscreteSquareWave(4, 1.0)
    reports = mechanism.randomize(jax.random.key(0), np.repeat(np.arange(4), 20_000)).reshape(4, -1)
    for value in range(4):
        check_frequencies(np.asarray(mechanism.count(reports[value])), np.asarray(mechanism.channel().matrix)[value])
    mixture = mechanism.mixture(reports.ravel())
    np.testing.assert_allclose(rrjax.ibu(mixture, accelerate="newton").theta, 0.25, atol=0.03)


@pytest.mark.parametrize("epsilon", [1e-6, 0.0099, 0.0101, 0.5, 1.0, 3.0, 8.0])
def test_the_half_width_is_that_of_the_continuous_mechanism(epsilon):
    wanted = np.floor(float(SquareWave(4, epsilon).reach) * 1000)
    assert abs(DiscreteSquareWave(1000, epsilon).half_width - wanted) <= 1  # float32 may round over an integer


def test_what_the_square_wave_on_bins_refuses():
    for wrong in (-1, 0.5, 2**31):
        with refused("half_width"):
            DiscreteSquareWave(4, 1.0, half_width=wrong)
    with pytest.raises(ValueError, match="half_width"):
        jax.jit(lambda epsilon: DiscreteSquareWave(4, epsilon).channel().matrix)(1.0)
    assert set(ORDERED) == {"square-wave", "geometric"}


def geometric_law(size, epsilon):
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
    np.testing.assert_allclose(channel.matrix, geometric_law(size, epsilon), rtol=30 * ULP, atol=ULP / size)
    assert float(channel.epsilon) == pytest.approx(epsilon, rel=30 * ULP)


def test_reports_follow_the_channel():
    mechanism, values = Geometric(9, 4.0), np.repeat([0, 3, 8], 30_000)
    reports = np.asarray(mechanism.randomize(jax.random.key(0), values))
    for value in (0, 3, 8):
        check_frequencies(np.bincount(reports[values == value], minlength=9), geometric_law(9, 4.0)[value])
    extremes = [Geometric(9, epsilon).randomize(jax.random.key(0), values) for epsilon in (1e-9, 900.0)]
    assert set(np.unique(extremes[0])) == {0, 8}
    np.testing.assert_array_equal(extremes[1], values)


@pytest.mark.full
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


def test_what_the_geometric_mechanism_refuses():
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
