"""Iterative estimators: the steps, their path, where they end, and what they cost; Newton's method on mixtures."""

import math
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64, collect, true_odds
from jax.test_util import check_grads
from mixtures import random_mixture, solved
from reference import big_mle
from refusals import refused

import rrjax
from rrjax import Mixture
from rrjax.data.linear_maps import Decay, Dense
from rrjax.estimators import em
from rrjax.estimators.em import acceleration_for

K = 7
ACCELERATIONS = ["anderson", "deflated", "none"]
every_acceleration = pytest.mark.parametrize("accelerate", ACCELERATIONS)


@every_acceleration
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_all_converge_to_the_maximum(accelerate, epsilon):
    for seed in (0, 1):
        counts = collect(seed, K, 2000, epsilon)
        result = rrjax.ibu(counts, epsilon, accelerate=accelerate, max_iters=2_000_000)
        assert result.converged
        assert result.theta.dtype == result.gap.dtype == FLOAT
        certificate = rrjax.certificate(result.theta, counts, epsilon)
        # The same formula, but compiled inside the loop: its fusions may round once or twice otherwise.
        np.testing.assert_allclose(result.gap, certificate.gap, rtol=4 * ULP)
        if X64:
            assert result.gap <= 1e-10
        else:  # 48 machine epsilons of the steepest slope, which is below 1 + d·K
            assert result.gap <= 48 * ULP * (1 + K)
        _, best = big_mle(counts, true_odds(epsilon))
        assert np.abs(np.asarray(result.theta) - best).sum() <= float(certificate.l1_bound)
        assert abs(np.asarray(result.theta).sum() - 1) <= 4 * ULP


@pytest.mark.long
def test_acceleration_gives_up_no_category_for_good():
    # An extrapolated step to zero would be final: EM multiplies. 63 of these 200 never converged in float32.
    size, epsilon = 30, 2.0
    counts = np.stack([collect(seed, size, 3000, epsilon) for seed in range(200)]).astype(np.int32)
    results = jax.vmap(lambda c: rrjax.ibu(c, epsilon, accelerate="anderson"))(counts)
    assert results.converged.all()


@pytest.mark.skipif(not X64, reason="float32 cannot certify 1e-10")
@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_steps_certify_where_plain_ibu_takes_half_a_million(seed):
    counts = collect(seed, 500, 10_000, 0.5)
    result = rrjax.ibu(counts, 0.5, tol=1e-10)
    assert result.converged
    assert result.gap <= 1e-10
    assert result.num_iters <= 100


@pytest.mark.long
@every_acceleration
def test_the_likelihood_never_falls_along_the_path(accelerate):
    for seed in (0, 1, 2):
        counts = collect(seed, K, 1000, 1.0)
        path = rrjax.ibu_path(counts, 1.0, 200, accelerate=accelerate, observe=lambda t, c=counts: rrjax.nll(t, c, 1.0))
        # Equal values differ by the rounding of each: four ulps of a number below 2·log K.
        assert np.diff(path).max() <= 16 * ULP
        assert path[0] - path[-1] > 1e-3


def dense(epsilon):
    """The channel, in double precision."""
    e1 = math.expm1(epsilon)
    return (np.ones((K, K)) + e1 * np.eye(K)) / (e1 + K)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 3.0])
def test_a_step_is_that_of_the_literature_with_a_dense_channel(epsilon):
    counts = collect(0, K, 1000, epsilon)
    channel, phi = dense(float(FLOAT.type(epsilon))), counts / counts.sum()
    for name, noise in (("none", 0), ("deflated", channel.min(axis=0))):
        path = np.asarray(rrjax.ibu_path(counts, epsilon, 10, accelerate=name))
        np.testing.assert_allclose(path[0], np.full(K, 1 / K), rtol=ULP)
        for before, after in pairwise(path):
            theta = before.astype(float)
            step = theta * ((channel - noise) @ (phi / (theta @ channel)))
            # Ten roundings of a factor of about one.
            np.testing.assert_allclose(after, step / step.sum(), rtol=10 * ULP)


@pytest.mark.long
@every_acceleration
def test_the_path_is_what_the_solver_walks(accelerate):
    counts = collect(1, K, 1000, 1.0)
    path = np.asarray(rrjax.ibu_path(counts, 1.0, 6, accelerate=accelerate))
    assert path.shape == (7, K)
    for steps in (1, 2, 6):
        result = rrjax.ibu(counts, 1.0, accelerate=accelerate, max_iters=steps, tol=1e-30)
        assert result.num_iters == steps
        assert not result.converged
        # One is compiled as a scan, the other as a loop, so that each step may round otherwise. Anderson solves a
        # system of differences that shrink with every step, which magnifies that.
        magnified = 5000 if accelerate == "anderson" and steps > 2 else 8 * steps
        np.testing.assert_allclose(result.theta, path[steps], rtol=0, atol=magnified * ULP)


def test_what_is_observed_may_be_a_tree():
    path = rrjax.ibu_path([6, 3, 1], 1.0, 4, observe=lambda t: {"first": t[0], "all": t})
    assert path["first"].shape == (5,)
    np.testing.assert_array_equal(path["all"][:, 0], path["first"])


def test_a_start_that_is_the_maximum_takes_no_step():
    result = rrjax.ibu([5] * K, 1.0)
    assert result.num_iters == 0
    assert result.converged


def test_tolerance_is_obeyed():
    counts = collect(0, K, 1000, 1.0)
    loose, tight = (rrjax.ibu(counts, 1.0, accelerate="none", tol=t) for t in (1e-2, 1e-4))
    assert (
        loose.gap <= 1e-2 < rrjax.ibu(counts, 1.0, accelerate="none", tol=1e-2, max_iters=int(loose.num_iters) - 1).gap
    )
    assert tight.gap <= 1e-4
    assert 0 < loose.num_iters < tight.num_iters


@pytest.mark.long
@every_acceleration
def test_vmap_changes_nothing_that_matters(accelerate):
    counts = np.stack([collect(seed, K, 1000, 1.0) for seed in range(3)])
    mapped = jax.vmap(lambda c: rrjax.ibu(c, 1.0, accelerate=accelerate, tol=1e-5))(counts)
    assert len(set(mapped.num_iters.tolist())) > 1
    for i, row in enumerate(counts):
        # A problem that is done waits for the others without moving: among others like itself, to the bit the same.
        alike = jax.vmap(lambda c: rrjax.ibu(c, 1.0, accelerate=accelerate, tol=1e-5))(np.stack([row] * len(counts)))
        assert mapped.converged[i]
        assert mapped.num_iters[i] == alike.num_iters[i]
        np.testing.assert_array_equal(mapped.theta[i], alike.theta[i])
        assert rrjax.ibu(row, 1.0, accelerate=accelerate, tol=1e-5).converged
        certificate = rrjax.certificate(mapped.theta[i], row, 1.0)
        np.testing.assert_allclose(mapped.gap[i], certificate.gap, rtol=0.01, atol=12 * K * ULP)
        assert mapped.gap[i] <= 1e-5


@pytest.mark.long
@every_acceleration
def test_derivatives_are_those_of_the_closed_form(accelerate):
    counts = collect(0, K, 1000, 2.0).astype(FLOAT)

    def iterated(c, e):
        return rrjax.ibu(c, e, accelerate=accelerate, max_iters=2_000_000).theta

    for jacobian in (jax.jacrev, jax.jacfwd):
        got = jacobian(iterated, argnums=(0, 1))(counts, FLOAT.type(2.0))
        exact = jacobian(rrjax.mle_star, argnums=(0, 1))(counts, FLOAT.type(2.0))
        assert np.abs(exact[1]).max() > 1e-4
        jax.tree.map(np.testing.assert_array_equal, got, exact)
    by_integers = jax.jacrev(lambda e: iterated(counts.astype(int), e))(FLOAT.type(2.0))
    np.testing.assert_allclose(by_integers, exact[1], rtol=0, atol=8 * ULP)


@pytest.mark.parametrize(
    "epsilon",
    [
        1e-8,
        1e-3,
        30.0,
        800.0,
        math.inf,
    ],
)
def test_extreme_epsilon(epsilon):
    counts = np.array([600, 250, 150, 0, 0, 0, 0])
    for accelerate in ("anderson", "deflated"):
        result = rrjax.ibu(counts, epsilon, accelerate=accelerate)
        assert result.converged
        assert (
            abs(
                rrjax.nll(result.theta, counts, min(epsilon, 80))
                - rrjax.nll(rrjax.mle_star(counts, epsilon), counts, min(epsilon, 80))
            )
            <= result.gap + 100 * ULP
        )


def test_bad_options_are_refused():
    for options, message in (
        ({"accelerate": "accelerate"}, "accelerate"),
        ({"tol": 0.0}, "tol"),
        ({"tol": -1.0}, "tol"),
        ({"tol": math.nan}, "tol"),
        ({"max_iters": 0}, "max_iters"),
    ):
        with refused(message):
            rrjax.ibu([3, 2, 1], 1.0, **options)
    with refused("accelerate"):
        rrjax.ibu_path([3, 2, 1], 1.0, 5, accelerate="accelerate")
    with refused("counts"):
        rrjax.ibu_path([[3, 2, 1]], 1.0, 5)


@pytest.mark.long
def test_unusable_counts_stop_at_once():
    for counts, epsilon in (([0] * K, 1.0), ([5, -1] + [0] * 5, 1.0), ([5] * K, -1.0)):
        result = rrjax.ibu(counts, epsilon)
        assert np.isnan(result.theta).all()
        assert np.isnan(result.gap)
        assert not result.converged
        assert result.num_iters <= 1
        assert np.isnan(rrjax.ibu_path(counts, epsilon, 3)).all()


def test_an_epsilon_sweep_compiles_once(compilations):
    counts = collect(0, K, 1000, 1.0)
    rrjax.ibu(counts, 0.9)
    del compilations[:]
    for epsilon in (0.5, 1.0, 2.0):
        rrjax.ibu(counts, epsilon)
    assert not compilations


@pytest.mark.long
def test_a_category_at_the_edge_of_the_support_does_not_hold_up_the_others():
    """Four counts of 18 where 17.9999 is the threshold: EM moves them by a millionth of themselves a step."""
    names = [97, 28, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 8]
    counts = np.repeat(names, [1, 1, 2, 1, 1, 2, 5, 4, 5, 3, 7, 8, 5, 7, 4, 2, 2])
    likeliest = np.asarray(rrjax.mle_star(counts, 2.0))
    result = rrjax.ibu(counts, 2.0)
    assert result.converged
    assert result.num_iters < 200
    kept = math.expm1(2.0) / (math.expm1(2.0) + len(counts))
    assert np.abs(np.asarray(result.theta) - likeliest).sum() <= 2 * math.sqrt(2 * float(result.gap)) / kept


@pytest.mark.full
@pytest.mark.once
def test_small_problems_are_done_in_time():
    """A thousand of sixty categories each, of which some have counts at the threshold."""
    shares = 1 / np.arange(1.0, 61) ** 2.5
    truth = (shares / shares.sum()).astype(FLOAT)
    solve = jax.jit(jax.vmap(lambda counts, epsilon: rrjax.ibu(counts, epsilon)[1:4], in_axes=(0, None)))
    for users, epsilon in ((1000, 2.0), (10_000, 0.5), (10_000, 4.0), (1_000_000, 2.0)):
        keys = jax.random.split(jax.random.key(7), 250)
        draw = jax.vmap(lambda k, n=users, e=epsilon: rrjax.simulate.counts(k, truth, n, e))
        _, steps, converged = solve(draw(keys), epsilon)
        assert np.asarray(converged).all()
        assert np.quantile(np.asarray(steps), 0.99) < 1500  # one of the thousand takes some 6,000


# --- Newton's method: against a convex solver, a closed form, its own certificate, and differences -----------------

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


@pytest.mark.full
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


def nats_below_maximum(theta, counts, matrix):
    """Half of Newton's decrement on the support of `theta`, for all reports; `matrix` `[U, K]`."""
    share = np.asarray(theta, float)
    slopes = matrix.T @ (counts / (matrix @ (share / share.sum()))) - counts.sum()
    information = (matrix.T * (counts / (matrix @ share) ** 2)) @ matrix
    kept = np.flatnonzero(share > 1e-7)
    contrasts = np.eye(len(share))[kept[1:]] - np.eye(len(share))[kept[0]]
    error = np.linalg.solve(contrasts @ information @ contrasts.T, contrasts @ slopes)
    return error @ (contrasts @ slopes) / 2


@pytest.mark.long
@pytest.mark.parametrize("solve", [rrjax.mle, lambda mixture: rrjax.ibu(mixture, accelerate="newton").theta])
@pytest.mark.parametrize("theta", [[0.6, 0.25, 0.1, 0.045, 0.005], [0.6, 0.25, 0.1, 0.05, 0]])
def test_the_maximum_of_many_reports_is_near_for_all_of_them(theta, solve):
    """In float32 its gap is some 1e-5 nats of each report: it stopped 12 and 48 nats below the maximum of all."""
    channel = rrjax.mechanisms.Geometric(num_categories=5, epsilon=1.0).channel()
    matrix = np.asarray(channel.matrix, float).T
    counts = np.random.default_rng(1).multinomial(10**8, matrix @ theta / (matrix @ theta).sum())
    result = solve(channel.mixture_of_counts(counts))
    assert nats_below_maximum(result, counts, matrix) < 0.05


@pytest.mark.long
def test_the_maximum_of_a_small_mixture_is_by_newton(monkeypatch):
    """Iterations with this gap stopped 13 nats below the maximum."""
    mechanism = rrjax.mechanisms.HadamardResponse(num_categories=64, epsilon=1.0)
    ones = mechanism.mixture_of_counts(np.ones(mechanism.num_kinds, int))
    columns = jax.vmap(lambda unit: ones.base + ones.lift(unit))(jnp.eye(64))
    matrix = np.asarray(columns, float).T
    law = matrix @ np.random.default_rng(0).dirichlet(np.full(64, 0.3))
    counts = np.random.default_rng(1).multinomial(10**8, law / law.sum(), size=2).astype(np.int32)
    found = jax.vmap(lambda row: rrjax.mle(mechanism.mixture_of_counts(row)))(counts)
    for row, theta in zip(counts, found, strict=True):
        assert nats_below_maximum(theta, row, matrix) < 0.05
    monkeypatch.setattr(em, "MOST_NUMBERS", matrix.size - 1)  # the other side of the threshold
    assert acceleration_for(ones) == "anderson"
    beyond = rrjax.mle(mechanism.mixture_of_counts(counts[0]))
    assert rrjax.certificate(beyond, mechanism.mixture_of_counts(counts[0])).gap <= 1e-4
    monkeypatch.setattr(em, "MOST_NUMBERS", matrix.size)
    assert acceleration_for(ones) == "newton"


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "size", "method"), [(256, 256, "newton"), (2, 257, "anderson"), (257, 256, "anderson")]
)
def test_few_kinds_of_reports_of_many_categories_make_no_large_matrix(kinds, size, method):
    """With 12 reports of 5,000 categories a factor of 5,000 × 5,000 took minutes."""
    assert acceleration_for(Mixture(np.ones(kinds), 0.1, Dense(np.ones((kinds, size))))) == method


@pytest.mark.long
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


@pytest.mark.long
def test_what_makes_no_sense_is_nan():
    result = jax.jit(lambda w: solve(Mixture(w, 1.0, Dense(jnp.eye(2, dtype=FLOAT)))))(np.array([-1, 2], FLOAT))
    assert np.isnan(result.theta).all()
    assert not result.converged
    assert np.isnan(rrjax.ibu([5, -1, 3], 1.0, accelerate="newton").theta).all()


@pytest.mark.long
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


@pytest.mark.long
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
