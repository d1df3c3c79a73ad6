"""Mixtures: the likelihood of whole reports, against a convex solver, autodiff, and the closed form."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64, collect
from jax.test_util import check_grads
from mixtures import random_mixture, solved
from refusals import refused

import rrjax
from rrjax import Mixture, RandomizedResponse
from rrjax.data.linear_maps import Dense, Scaling
from rrjax.mechanisms import LocalHashing, OptimizedUnaryEncoding


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("accelerate", ["anderson", "deflated"])
def test_the_maximum_against_a_convex_solver(seed, accelerate):
    weights, base, matrix = random_mixture(seed, 12 + seed, 3 + seed)
    mixture = Mixture(weights, base, Dense(matrix))
    result = rrjax.ibu(mixture, accelerate=accelerate, max_iters=100_000)
    assert bool(result.converged)
    best = solved(weights, base, matrix)
    found = -float(rrjax.nll(result.theta, mixture))
    assert abs(best - found) <= (1e-6 if X64 else 2e-5)
    # The certificate bounds what is missing.
    assert best - found <= float(result.gap) + 1e-9
    assert float(result.gap) <= (1e-10 if X64 else 1e-4)
    assert abs(float(result.theta.sum()) - 1) <= 10 * ULP


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_certificate_bounds_what_any_distribution_is_missing(seed):
    weights, base, matrix = random_mixture(seed, 20, 5)
    mixture, best = Mixture(weights, base, Dense(matrix)), solved(*random_mixture(seed, 20, 5))
    for theta in np.random.default_rng(seed).dirichlet(np.ones(5), 20):
        certificate = rrjax.certificate(theta.astype(FLOAT), mixture)
        assert best + float(rrjax.nll(theta.astype(FLOAT), mixture)) <= float(certificate.gap)
        assert np.isinf(certificate.l1_bound)


@pytest.mark.long
def test_the_score_is_the_derivative():
    weights, base, matrix = random_mixture(3, 15, 4)
    mixture = Mixture(weights, base, Dense(matrix))
    theta = jnp.asarray([0.4, 0.3, 0.2, 0.1], FLOAT)
    slope = -jax.grad(rrjax.nll)(theta, mixture)
    np.testing.assert_allclose(rrjax.score(theta, mixture), slope - theta @ slope, atol=30 * ULP)


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
def test_the_likelihood_has_derivatives_of_every_order():
    weights, base, matrix = random_mixture(3, 15, 4)
    theta = jnp.asarray([0.4, 0.3, 0.2, 0.1])
    matrix = matrix + 0.1  # differences may not make parts of probabilities negative
    check_grads(lambda t, b, m: rrjax.nll(t, Mixture(weights, b, Dense(m))), (theta, base, matrix), order=2)


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 5.0])
def test_randomized_response_is_the_mixture_with_a_closed_form(epsilon):
    counts = collect(0, 30, 5000, epsilon)
    mechanism = RandomizedResponse(30, epsilon)
    mixture = mechanism.mixture(np.repeat(np.arange(30), counts))
    np.testing.assert_array_equal(mixture.weights, counts)
    best = rrjax.mle_star(counts, epsilon)
    # The likelihoods differ by log q.
    for theta in (best, rrjax.inv_n(counts, epsilon), np.full(30, 1 / 30, FLOAT)):
        wanted = rrjax.nll(theta, counts, epsilon) + jnp.log(mechanism.q)
        assert rrjax.nll(theta, mixture) == pytest.approx(float(wanted), abs=20 * ULP)
        np.testing.assert_allclose(rrjax.score(theta, mixture), rrjax.score(theta, counts, epsilon), atol=100 * ULP)
    assert float(rrjax.certificate(best, mixture).gap) <= 80 * ULP
    result = rrjax.ibu(mixture)
    assert bool(result.converged)
    np.testing.assert_allclose(result.theta, best, atol=1e-4 if X64 else 2e-2)
    # A lift is what it does, however it is written.
    dense = Mixture(counts, 1.0, Dense(np.eye(30, dtype=bool), mechanism.rates.truth))
    np.testing.assert_allclose(rrjax.score(best, dense), rrjax.score(best, mixture), atol=20 * ULP)


@pytest.mark.full
def test_products_are_accurate_at_any_size():
    rng = np.random.default_rng(0)
    matrix, theta = rng.random((40, 5000)).astype(FLOAT), rng.dirichlet(np.ones(5000)).astype(FLOAT)
    lift = Dense(jnp.asarray(matrix), 2.0)
    np.testing.assert_allclose(lift(jnp.asarray(theta)), 2 * matrix.astype(float) @ theta, rtol=10 * ULP)
    weights = rng.random(40).astype(FLOAT)
    np.testing.assert_allclose(
        lift.transpose(jnp.asarray(weights)), 2 * matrix.T.astype(float) @ weights, rtol=10 * ULP
    )
    assert lift.shape == (40, 5000)
    assert Scaling(2.0, 7).shape == (7, 7)


@pytest.mark.long
def test_paths_and_batches():
    weights, base, matrix = random_mixture(1, 10, 4)
    mixture = Mixture(jnp.asarray(weights), jnp.asarray(base, FLOAT), Dense(jnp.asarray(matrix, FLOAT)))
    path = rrjax.ibu_path(mixture, num_iters=30, accelerate="none", observe=lambda t: rrjax.nll(t, mixture))
    assert path.shape == (31,)
    assert (np.diff(path) <= 10 * ULP).all()  # EM never descends
    several = jnp.stack([jnp.asarray(weights), jnp.asarray(weights[::-1].copy())])
    batch = jax.vmap(lambda w: rrjax.ibu(Mixture(w, mixture.base, mixture.lift)).theta)(several)
    for row, found in zip(several, batch, strict=True):
        one = rrjax.ibu(Mixture(row, mixture.base, mixture.lift)).theta
        np.testing.assert_allclose(found, one, atol=1e-6 if X64 else 1e-2)


@pytest.mark.long
def test_reports_that_say_nothing_leave_the_uniform():
    mixture = Mixture([3, 0], 1.0, Dense([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    result = rrjax.ibu(mixture)
    np.testing.assert_allclose(result.theta, 1 / 3, rtol=2 * ULP)
    assert bool(result.converged)
    assert np.isfinite(rrjax.ibu_path(mixture, num_iters=3)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mixture([1, 2], 0.0, Dense([[0, 0], [1, 1]])), "weights"),
        (lambda: Mixture([1, 2], 1.0, Dense([[0, 0, 0]])), "weights"),
        (lambda: Mixture([1, 2], [1.0, 1, 1], Dense([[0, 1], [1, 0]])), "weights"),
        (lambda: Mixture([1, -2], 1.0, Dense([[0, 1], [1, 0]])), "weights"),
        (lambda: Mixture([0, 0], 1.0, Dense([[0, 1], [1, 0]])), "weights"),
        (lambda: Mixture([1, np.nan], 1.0, Dense([[0, 1], [1, 0]])), "weights"),
        (lambda: Mixture([1, 2], -1.0, Dense([[0, 1], [1, 0]])), "base"),
        (lambda: Mixture([1, 2], 1.0, Dense([[0, -1], [1, 0]])), "lift"),
        (lambda: Mixture([1, 2], 1.0, Dense([[0, np.nan], [1, 0]])), "lift"),
        (lambda: Mixture([1, 2], 1.0, Dense([[1], [1]])), "lift"),
        (lambda: Mixture(["a", "b"], 1.0, Dense([[1, 0], [1, 0]])), "weights"),
        (lambda: rrjax.nll([0.5, 0.5], RandomizedResponse(2, 1.0).mixture([0, 1]), 1.0), "epsilon"),
        (lambda: rrjax.ibu(RandomizedResponse(2, 1.0).mixture([0, 1]), 1.0), "epsilon"),
        (
            lambda: rrjax.score([0.5, 0.3, 0.2], RandomizedResponse(2, 1.0).mixture([0, 1])),
            "theta",
        ),
        (lambda: rrjax.mle_star(RandomizedResponse(2, 1.0).mixture([0, 1]), 1.0), "counts"),
        (lambda: rrjax.inv(RandomizedResponse(2, 1.0).mixture([0, 1]), 1.0), "counts"),
    ],
)
def test_bad_input_is_named(call, message):
    with refused(message):
        call()


def test_what_makes_no_sense_is_nan_under_tracing():
    @jax.jit
    def everything(weights, theta):
        mixture = Mixture(weights, 1.0, Dense(jnp.eye(2, dtype=FLOAT)))
        return rrjax.nll(theta, mixture), rrjax.certificate(theta, mixture).gap, rrjax.ibu(mixture).theta

    half = jnp.asarray([0.5, 0.5], FLOAT)
    assert np.isfinite(jnp.stack(everything(jnp.asarray([1.0, 2.0], FLOAT), half)[:2])).all()
    for weights in ([-1.0, 2.0], [0.0, 0.0], [np.nan, 1.0]):
        likelihood, gap, theta = everything(jnp.asarray(weights, FLOAT), half)
        assert np.isnan(likelihood)
        assert np.isnan(gap)
        assert np.isnan(theta).all()
    # A negative probability has no likelihood.
    likelihood, gap, _ = everything(jnp.asarray([1.0, 2.0], FLOAT), jnp.asarray([-2.0, 3.0], FLOAT))
    assert np.isnan(likelihood)
    assert np.isnan(gap)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("mechanism", [OptimizedUnaryEncoding(6, 1.5), LocalHashing(6, 1.5, num_buckets=5)])
def test_a_likelihood_and_a_tally_are_exported_for_any_number_of_reports(mechanism):
    def found(reports):
        mixture = mechanism.mixture(reports)
        loss, slopes = jax.value_and_grad(rrjax.nll)(theta, mixture)
        return loss, slopes, rrjax.score(theta, mixture), mechanism.tally(reports).support

    theta = jnp.arange(1, 7, dtype=FLOAT) / 21
    reports = mechanism.randomize(jax.random.key(0), np.arange(1100) % 6)
    shape = (*jax.export.symbolic_shape("n"), *reports.shape[1:])
    exported = jax.export.export(jax.jit(found))(jax.ShapeDtypeStruct(shape, reports.dtype))
    for number in (1, 63, 1024, 1100):
        for one, other in zip(exported.call(reports[:number]), found(reports[:number]), strict=True):
            np.testing.assert_allclose(one, other, rtol=20 * ULP, atol=20 * ULP)
