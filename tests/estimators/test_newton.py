"""Newton's method on mixtures: against a convex solver, a closed form, its own certificate, and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64, collect
from jax.test_util import check_grads
from mixtures import random_mixture, solved

import rrjax
from rrjax import Mixture
from rrjax.data.linear_maps import Decay, Dense

solve = jax.jit(lambda mixture: rrjax.ibu(mixture, accelerate="newton"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_the_maximum_against_a_convex_solver(seed):
    weights, base, matrix = random_mixture(seed, 14, 6)
    mixture = Mixture(weights, base * (seed % 2), Dense(matrix.astype(FLOAT)))
    result = solve(mixture)
    assert bool(result.converged)
    assert int(result.num_iters) <= 20
    best = solved(weights, base * (seed % 2), matrix)
    found = -float(rrjax.nll(result.theta, mixture))
    assert abs(best - found) <= (1e-9 if X64 else 2e-5)
    assert best - found <= float(result.gap) + 1e-12
    assert float(result.theta.min()) >= 0
    assert abs(float(result.theta.sum()) - 1) <= 4 * ULP


def channel_of(kind, size, rng):
    places = np.arange(size)
    if kind == "distance":
        return np.exp(-0.05 * np.abs(places[:, None] - places))
    if kind == "random":
        return rng.dirichlet(np.ones(size), size)
    return np.where(rng.random((size, size)) < 0.2, rng.random((size, size)), 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["distance", "random", "holes"])
def test_twenty_steps_whatever_the_channel(kind):
    size, rng = 60, np.random.default_rng(0)
    matrix = channel_of(kind, size, rng)
    law = rng.dirichlet(np.full(size, 0.1)) @ matrix
    counts = np.stack([rng.multinomial(n, law / law.sum()) for n in (30, 1000, 100_000, 10**8)])
    lift = Dense(jnp.asarray(matrix.T, FLOAT))
    results = jax.jit(jax.vmap(lambda w: rrjax.ibu(Mixture(w, 0.0, lift), accelerate="newton")))(jnp.asarray(counts))
    assert results.converged.all()
    assert results.num_iters.max() <= 20
    if X64:
        assert results.gap.max() <= 1e-10


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0, 800.0])
def test_counts_have_a_closed_form(epsilon):
    counts = collect(0, 40, 5000, epsilon)
    result = rrjax.ibu(counts, epsilon, accelerate="newton")
    assert bool(result.converged)
    distance = np.abs(result.theta - rrjax.mle_star(counts, epsilon)).sum()
    assert distance <= float(rrjax.certificate(result.theta, counts, epsilon).l1_bound)
    if epsilon >= 1:  # below, much of θ says little about the likelihood
        assert distance <= (1e-7 if X64 else 1e-3)


@pytest.mark.long
def test_reports_that_say_nothing_leave_the_uniform():
    mixture = Mixture([3, 0], 1.0, Dense(np.array([[0, 0, 0], [1, 0, 0]], FLOAT)))
    path = rrjax.ibu_path(mixture, num_iters=3, accelerate="newton")
    np.testing.assert_allclose(path, 1 / 3, rtol=4 * ULP)


def test_what_makes_no_sense_is_nan():
    result = jax.jit(lambda w: solve(Mixture(w, 1.0, Dense(jnp.eye(2, dtype=FLOAT)))))(np.array([-1, 2], FLOAT))
    assert np.isnan(result.theta).all()
    assert not result.converged
    assert np.isnan(rrjax.ibu([5, -1, 3], 1.0, accelerate="newton").theta).all()


def test_a_gap_beyond_rounding_is_not_waited_for():
    mixture = Mixture(*random_mixture(0, 14, 6)[:2], Dense(random_mixture(0, 14, 6)[2].astype(FLOAT)))
    result = rrjax.ibu(mixture, accelerate="newton", tol=1e-30)
    assert not result.converged
    assert int(result.num_iters) == 200
    assert float(rrjax.nll(result.theta, mixture)) == pytest.approx(
        float(rrjax.nll(solve(mixture).theta, mixture)), abs=1e-9 if X64 else 2e-5
    )


def problem(weights, base, matrix, scale):
    return rrjax.ibu(Mixture(weights, base, Dense(matrix, scale)), accelerate="newton").theta


def arguments():
    rng = np.random.default_rng(1)
    weights, base, matrix = rng.integers(1, 40, 12), rng.random(12) * 0.2 + 0.01, rng.random((12, 5)) ** 4 + 0.02
    return tuple(jnp.asarray(x, FLOAT) for x in (weights, base, matrix, 1.5))


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
@pytest.mark.long
def test_derivatives_against_differences():
    # One category is without a share, and stays so.
    given = arguments()
    assert float(problem(*given).min()) < 1e-9
    check_grads(problem, given, order=1, eps=1e-5)
    check_grads(lambda weights, base: problem(weights, base, *given[2:]), given[:2], order=2, eps=1e-4)


@pytest.mark.long
def test_both_modes_and_every_method_agree():
    given = arguments()
    forth, back = (jax.jit(mode(problem, argnums=(0, 1, 2, 3)))(*given) for mode in (jax.jacfwd, jax.jacrev))
    for one, other in zip(forth, back, strict=True):
        assert np.abs(one).max() > 1e-4
        np.testing.assert_allclose(one, other, atol=1e-12 if X64 else 1e-4)

    def by_steps(weights):
        return rrjax.ibu(Mixture(weights, given[1], Dense(given[2], given[3])), accelerate="anderson").theta

    np.testing.assert_allclose(jax.jit(jax.jacrev(by_steps))(given[0]), forth[0], atol=1e-5 if X64 else 2e-3)


def test_what_nothing_supports_does_not_move():
    # EM takes a category that no report supports to zero at once.
    matrix = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], FLOAT)

    def theta(weights):
        return rrjax.ibu(Mixture(weights, 0.5, Dense(matrix)), accelerate="deflated", max_iters=300).theta

    weights = np.array([5, 4, 3], FLOAT)
    moved = jax.jit(jax.jacfwd(theta))(weights)
    # θ_i = c_i/N·(1 + 3·½) − ½, by hand.
    wanted = 2.5 * (np.eye(3) / 12 - np.outer(weights, np.ones(3)) / 144)
    np.testing.assert_allclose(moved, np.vstack([wanted, np.zeros(3)]), atol=1e-6 if X64 else 1e-4)


@pytest.mark.long
def test_a_rate_has_a_derivative_too():
    weights = jnp.asarray(np.random.default_rng(0).integers(10, 30, 6), FLOAT)

    def mean(rate):
        theta = rrjax.ibu(Mixture(weights, 0.0, Decay(rate, 6)), accelerate="newton").theta
        return theta @ jnp.arange(6, dtype=FLOAT) ** 2

    rate, step = FLOAT.type(1.2), 1e-4 if X64 else 3e-2
    slope = jax.jit(jax.grad(mean))(rate)
    difference = float(mean(FLOAT.type(rate + step))) - float(mean(FLOAT.type(rate - step)))
    assert abs(slope) > 0.01
    np.testing.assert_allclose(slope, difference / (2 * step), rtol=1e-5 if X64 else 0.05)
