"""Channels: what they deliver and confuse, their law, likelihood and inverse, against NumPy and pure mechanisms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64, collect
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax import RandomizedResponse
from rrjax.mechanisms import Channel, Geometric, HadamardResponse

MATRIX = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.6, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]])
COUNTS = np.array([300, 500, 250, 70])


def test_it_knows_its_sizes_and_its_epsilon():
    channel = Channel(MATRIX)
    assert (channel.num_categories, channel.num_reports) == (3, 4)
    assert np.isinf(channel.epsilon)
    mechanism = RandomizedResponse(7, 1.3)
    assert float(Channel(mechanism.channel()).epsilon) == pytest.approx(1.3, rel=20 * ULP)
    assert Channel(mechanism.channel()).condition == pytest.approx(1 / float(mechanism.d), rel=100 * ULP)


@pytest.mark.long
def test_reports_follow_the_rows():
    values = np.repeat(np.arange(3), 20_000)
    reports = np.asarray(Channel(MATRIX).randomize(jax.random.key(0), values))
    for value, row in enumerate(MATRIX):
        check_frequencies(np.bincount(reports[values == value], minlength=4), row)
    table = np.eye(5)[[3, 0, 4, 1, 2]]  # reports that are certain, an impossible last one among them
    sure = Channel(table).randomize(jax.random.key(1), np.arange(5).repeat(200))
    np.testing.assert_array_equal(sure, np.array([3, 0, 4, 1, 2]).repeat(200))


@pytest.mark.long
def test_its_likelihood_is_that_of_its_probabilities():
    mixture = Channel(MATRIX).mixture_of_counts(COUNTS)
    np.testing.assert_allclose(mixture.base, MATRIX.min(axis=0), rtol=ULP)
    theta = np.array([0.2, 0.5, 0.3])
    wanted = -COUNTS / COUNTS.sum() @ np.log(theta @ MATRIX)
    assert float(rrjax.nll(theta.astype(FLOAT), mixture)) == pytest.approx(wanted, abs=10 * ULP)
    reports = np.repeat(np.arange(4), COUNTS)
    np.testing.assert_array_equal(Channel(MATRIX).mixture(reports).weights, COUNTS)
    # The deflated step leaves out what every value reports alike, and climbs faster.
    steps = [rrjax.ibu(mixture, accelerate=how, tol=1e-4).num_iters for how in ("none", "deflated")]
    assert steps[1] < steps[0]


@pytest.mark.long
def test_randomized_response_is_one():
    counts = collect(0, 12, 3000, 1.0)
    channel = Channel(RandomizedResponse(12, 1.0).channel())
    np.testing.assert_allclose(channel.inv(counts), rrjax.inv(counts, 1.0), atol=1e-13 if X64 else 1e-5)
    result = rrjax.ibu(channel.mixture_of_counts(counts), accelerate="newton")
    np.testing.assert_allclose(result.theta, rrjax.mle_star(counts, 1.0), atol=1e-6 if X64 else 5e-3)


@pytest.mark.long
def test_the_inverse_of_a_design_is_the_inversion_of_its_tally():
    # More reports than values: the weights are what makes least squares that of the mechanism.
    mechanism = HadamardResponse(6, 1.5)
    there = np.asarray(mechanism.supports(np.arange(mechanism.num_columns))).T
    matrix = np.where(there, mechanism.rates.p, 1 - mechanism.rates.p).astype(float) / (mechanism.num_columns / 2)
    reports = mechanism.randomize(jax.random.key(0), np.arange(600) % 6)
    channel = Channel(matrix / matrix.sum(axis=1, keepdims=True))
    estimate = channel.inv(channel.count(reports))
    inverted = np.asarray(rrjax.inv(mechanism.tally(reports)))  # which sums to one in expectation only
    np.testing.assert_allclose(estimate, inverted + (1 - inverted.sum()) / 6, atol=1e-12 if X64 else 2e-5)
    np.testing.assert_allclose(channel.debias(reports).mean(axis=0), estimate, atol=1e-12 if X64 else 2e-5)


def test_the_inverse_is_unbiased_and_sums_to_one():
    channel = Channel(MATRIX)
    np.testing.assert_allclose(MATRIX @ np.asarray(channel.debias(np.arange(4))), np.eye(3), atol=20 * ULP)
    assert float(jax.jit(channel.inv)(COUNTS).sum()) == pytest.approx(1, abs=20 * ULP)
    assert np.isnan(jax.jit(channel.inv)(np.zeros(4, int))).all()


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize(
    ("matrix", "confused", "message"),
    [
        ([[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0.5, 0.5, 0]], (0, 2), "values 0, 2 apart (rows 0 and 2 are equal)"),
        ([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]], (0, 1, 2), "(2 kinds of reports for 3 values)"),
        (
            [[0.6, 0.2, 0.2, 0], [0.2, 0.2, 0.6, 0], [0.4, 0.2, 0.4, 0], [0.1, 0, 0, 0.9]],
            (0, 1, 2),
            "(a mixture of some of their rows equals one of the others)",
        ),
    ],
)
def test_values_that_reports_confuse_are_named(matrix, confused, message):
    channel = Channel(matrix)
    assert channel.confused == confused
    assert channel.condition == float("inf")
    with pytest.raises(ValueError, match="do not tell values") as raised:
        channel.inv(np.ones(channel.num_reports, int))
    assert message in str(raised.value)
    # The likelihood has a maximum all the same.
    assert rrjax.ibu(channel.mixture_of_counts(np.arange(channel.num_reports) + 5), accelerate="newton").converged


@pytest.mark.long  # programs that compile for seconds
@pytest.mark.once
def test_values_that_are_hard_to_tell_apart_are_told_apart():
    channel = Geometric(300, 3.0).channel()
    assert channel.condition == pytest.approx(163_136, rel=1e-3)
    assert channel.confused == ()
    assert Channel(channel.matrix.astype(np.float32)).condition == pytest.approx(channel.condition, rel=1e-3)
    # Rows that rounding alone tells apart are not.
    rows = np.random.default_rng(0).dirichlet(np.ones(60), 49).astype(np.float32)
    assert Channel(np.vstack([rows, rows.mean(axis=0)])).confused == tuple(range(50))
    wide = np.full((2, 50_000), 1 / 50_000)  # the square of that is no matrix
    wide[0, 0], wide[0, 1] = 2 / 50_000, 0
    assert Channel(wide).confused == ()


@pytest.mark.once
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Channel([0.5, 0.5]), "matrix"),
        (lambda: Channel([[1.0]]), "matrix"),
        (lambda: Channel([["a", "b"], ["c", "d"]]), "matrix"),
        (lambda: Channel([[0.5, 0.5], [1.1, -0.1]]), "matrix"),
        (lambda: Channel([[0.5, 0.5], [np.nan, 1.0]]), "matrix"),
        (lambda: Channel([[0.5, 0.5], [0.5, 0.4]]), "matrix"),
        (lambda: Channel([[0.5, 0.2], [0.5, 0.8]]), "matrix"),
        (lambda: Channel([[0.5, 0, 0.5], [0.4, 0, 0.6]]), "matrix"),
        (lambda: Channel(MATRIX).mixture_of_counts([1, 2, 3]), "counts"),
        (lambda: Channel(MATRIX).mixture_of_counts([0, 0, 0, 0]), "weights"),
        (lambda: Channel(MATRIX).count([4]), "reports"),
        (lambda: Channel(MATRIX).randomize(jax.random.key(0), [3]), "values"),
        (lambda: jax.jit(lambda m: Channel(m).inv(COUNTS))(MATRIX.astype(FLOAT)), "matrix"),
    ],
)
def test_bad_input_is_named(call, message):
    with refused(message):
        call()


def test_it_is_a_pytree():
    counts, channel = jnp.asarray(COUNTS), Channel(jnp.asarray(MATRIX, FLOAT))

    def loss(channel):
        return rrjax.nll(jnp.asarray([0.2, 0.5, 0.3], FLOAT), channel.mixture_of_counts(counts))

    slope = jax.jit(jax.grad(loss))(channel).matrix
    theta, phi = np.array([0.2, 0.5, 0.3]), COUNTS / COUNTS.sum()
    np.testing.assert_allclose(slope, -np.outer(theta, phi / (theta @ MATRIX)), atol=20 * ULP)
    reports = jax.jit(lambda c, v: c.randomize(jax.random.key(0), v))(channel, np.array([0, 2, 7]))
    assert int(reports[2]) == -1
