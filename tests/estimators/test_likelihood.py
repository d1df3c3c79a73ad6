"""The likelihood against long doubles, its score against autodiff, the certificate against the true gap."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, ULP, X64, collect, elsewhere, true_odds
from jax.test_util import check_grads
from reference import big_mle
from refusals import refused

import rrjax
from rrjax.estimators import likelihood

LD = np.longdouble
K = 7


def accelerated(function):
    """As a GPU computes it: in one pass over counts and distribution, divided by their number in the end."""
    forced = jax.jit(elsewhere(lambda *given: function.__wrapped__(*likelihood._checked(*given))))
    return lambda *given: forced(*map(jnp.asarray, given))


WAYS = {
    "cpu": (rrjax.nll, rrjax.certificate),
    "accelerator": (accelerated(likelihood._nll), accelerated(likelihood._certificate)),
}
every_way = pytest.mark.parametrize(("nll", "certificate"), WAYS.values(), ids=WAYS)


def exact_nll(theta, counts, epsilon):
    """In long doubles, at the ε that the dtype holds, and in the form that neither end of ε troubles."""
    epsilon = LD(FLOAT.type(epsilon))
    theta, counts = np.asarray(theta).astype(LD), np.asarray(counts).astype(LD)
    noise = np.exp(-epsilon)
    mu = (noise + -np.expm1(-epsilon) * theta) / (1 + (len(theta) - 1) * noise)
    reported = counts > 0
    return -(counts[reported] / counts.sum() * np.log(mu[reported])).sum()


def exact_score(theta, counts, epsilon):
    e1 = np.expm1(LD(FLOAT.type(epsilon)))
    theta, phi = np.asarray(theta).astype(LD), np.asarray(counts).astype(LD) / LD(np.sum(counts))
    slope = phi * e1 / (1 + e1 * theta)
    return slope - (theta * slope).sum(), slope.max()


def exact_missing(theta, best, counts, epsilon):
    """L* − L(θ) term by term, so that it is right however small."""
    e1 = np.expm1(LD(FLOAT.type(epsilon)))
    theta, phi = np.asarray(theta).astype(LD), np.asarray(counts).astype(LD) / LD(np.sum(counts))
    return (phi * np.log1p(e1 * (best - theta) / (1 + e1 * theta))).sum()


def dirichlet(seed, num_categories, concentration=1.0):
    theta = np.random.default_rng(seed).dirichlet(np.full(num_categories, concentration))
    return theta.astype(FLOAT)


@every_way
@pytest.mark.parametrize("epsilon", [1e-30, 1e-8, 0.5, 4.0, 30.0])
@pytest.mark.parametrize("num_categories", [K, 10_000])
def test_nll_is_accurate_at_any_number_of_categories(nll, certificate, num_categories, epsilon):
    # A plain float32 sum was off by 1.8e-4 at K = 10,000: more than what separates two estimators.
    for seed in range(3):
        counts = collect(seed, num_categories, 1_000_000, epsilon)
        for theta in (dirichlet(seed, num_categories), rrjax.mle_star(counts, epsilon)):
            exact = exact_nll(theta, counts, epsilon)
            # log q and the mean gain are each as large as this, and rounded a few times.
            size = max(1, math.log(num_categories) + epsilon)
            assert abs(float(nll(theta, counts, epsilon)) - exact) <= 4 * ULP * size


@pytest.mark.parametrize(
    "epsilon",
    [
        88.5,
        800.0,
        math.inf,
    ],
)
def test_nll_at_huge_epsilon_is_that_of_unrandomized_data(epsilon):
    counts, theta = np.array([5, 3, 0, 2]), np.array([0.4, 0.3, 0.2, 0.1], FLOAT)
    exact = -(counts / 10 * np.log(theta.astype(float)))[[0, 1, 3]].sum()
    assert rrjax.nll(theta, counts, epsilon) == pytest.approx(exact, abs=8 * ULP)


def test_nll_at_huge_epsilon_keeps_the_accuracy_of_the_dtype():
    counts, theta = np.array([5, 3, 0, 2]), np.array([0.4, 0.3, 0.2, 0.1], FLOAT)
    exact = exact_nll(theta, counts, 800.0)
    assert abs(float(rrjax.nll(theta, counts, 800.0)) - exact) <= 8 * ULP


def test_nll_at_its_edges():
    assert rrjax.nll(np.eye(3)[0], [0, 5, 0], 800.0) > 80  # probability e^−800, not none at all
    assert rrjax.nll(np.eye(3)[0], [5, 0, 0], 800.0) == 0
    negative = np.array([1.5, -0.5, 0.0])  # μ_1 < 0
    assert np.isnan(rrjax.nll(negative, [1, 1, 1], 5.0))
    assert np.isfinite(rrjax.nll(negative, [1, 0, 1], 5.0))
    # 1 + e1·θ_1 is exactly zero at e1 = 1.
    assert rrjax.nll([2.0, -1.0], [1, 1], math.log(2)) == np.inf


def test_nll_takes_any_float_and_gives_the_wider_one():
    counts = np.array([60, 20, 10, 10])
    for dtype in ("float16", "float32", "float64"):
        value = rrjax.nll(np.array([0.5, 0.25, 0.125, 0.125], dtype), counts.astype("float32"), 1.0)
        assert value.dtype == (FLOAT if dtype == "float64" else np.float32)
        assert value == pytest.approx(1.2612, abs=1e-3)
    assert rrjax.nll([1, 0, 0, 0], counts, 1.0).dtype == FLOAT


@pytest.mark.parametrize("function", [rrjax.nll, rrjax.score, rrjax.certificate])
def test_bad_distributions_are_refused(function):
    for theta in (np.full(3, 1 / 3), np.full((1, 4), 0.25), 0.25, [0.5, 0.5]):
        with refused("theta"):
            function(theta, [1, 2, 3, 4], 1.0)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_score_is_the_derivative_towards_each_category(epsilon):
    counts, theta = collect(1, K, 5000, epsilon), dirichlet(1, K)
    gradient = -np.asarray(jax.grad(rrjax.nll)(theta, counts, epsilon))
    towards = gradient - gradient @ theta
    scores = np.asarray(rrjax.score(theta, counts, epsilon))
    exact, steepest = exact_score(theta, counts, epsilon)
    # The roundings that the certificate allows for.
    np.testing.assert_allclose(scores, exact.astype(FLOAT), rtol=0, atol=12 * ULP * steepest)
    np.testing.assert_allclose(towards, scores, rtol=0, atol=24 * ULP * steepest)
    assert abs(scores @ theta) <= 12 * ULP * steepest


def test_the_derivative_is_finite_where_neither_counts_nor_distribution_are():
    # xlogy's derivative at (0, 0) is NaN.
    counts, theta = np.array([3, 2, 0, 0], FLOAT), np.array([1, 0, 0, 0], FLOAT)
    for epsilon in (1e-8, 1.0, 80.0):
        derivatives = jax.grad(rrjax.nll, argnums=(0, 1, 2))(theta, counts, FLOAT.type(epsilon))
        assert all(np.isfinite(part).all() for part in derivatives), epsilon
    exact, _ = exact_score(theta, counts, 1.0)
    np.testing.assert_allclose(rrjax.score(theta, counts, 1.0), exact.astype(FLOAT), atol=8 * ULP)


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
@pytest.mark.parametrize("num_zeros", [0, 2])
def test_derivatives_match_finite_differences(num_zeros):
    counts = np.array([60.5, 20.0, 7.0, 3.0, 0, 0])[: 6 - 2 + num_zeros]
    theta = np.full(len(counts), 1 / len(counts))
    check_grads(lambda t, e: rrjax.nll(t, counts, e), (theta, 1.3), order=2)
    check_grads(lambda c: rrjax.nll(theta[:4], c, 1.3), (counts[:4],), order=2)
    check_grads(lambda t, e: rrjax.score(t, counts, e), (theta, 1.3), order=2)


@pytest.mark.long
def test_jit_and_vmap_change_nothing():
    counts = np.stack([collect(seed, K, 1000, 1.0) for seed in range(4)])
    theta = np.stack([dirichlet(seed, K) for seed in range(4)])
    epsilon = np.array([0.1, 1.0, 3.0, 800.0], FLOAT)
    for function in (rrjax.nll, rrjax.score, lambda *a: rrjax.certificate(*a)._asdict()):
        loop = [function(*row) for row in zip(theta, counts, epsilon, strict=True)]
        jitted = [jax.jit(function)(*row) for row in zip(theta, counts, epsilon, strict=True)]
        mapped = jax.vmap(function)(theta, counts, epsilon)
        jax.tree.map(np.testing.assert_array_equal, loop, jitted)
        for i, row in enumerate(loop):
            # Sums in another order. What nearly cancels is judged by the size of its terms: for the score and the
            # certificate the largest slope, which is below two in the first three problems.
            size = 2 if i < 3 else np.max(np.abs(jax.tree.leaves(row)[0]))
            jax.tree.map(
                lambda a, b, i=i, size=size: np.testing.assert_allclose(a, b[i], rtol=16 * ULP, atol=16 * ULP * size),
                row,
                mapped,
            )


# --- The certificate -------------------------------------------------------------------------------------------


def candidates(counts, epsilon):
    """Distributions of every quality, the maximum itself included."""
    num_categories = len(counts)
    best = np.asarray(rrjax.mle_star(counts, epsilon))
    yield "maximum", best
    yield "uniform", np.full(num_categories, 1 / num_categories, FLOAT)
    yield "clipped", np.asarray(rrjax.inv_n(counts, epsilon))
    yield "projected", np.asarray(rrjax.inv_p(counts, epsilon))
    yield "vertex", np.eye(num_categories, dtype=FLOAT)[0]
    for seed in range(5):
        yield f"random {seed}", dirichlet(seed, num_categories, 0.3)
        near = best + FLOAT.type(10.0 ** -(seed + 2)) * dirichlet(seed, num_categories)
        yield f"near {seed}", (near / near.sum()).astype(FLOAT)


@pytest.mark.long
@every_way
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 2.0, 6.0, 30.0])
@pytest.mark.parametrize("num_categories", [K, 1000])
def test_the_gap_bounds_what_is_missing(nll, certificate, num_categories, epsilon):
    counts = collect(2, num_categories, 100_000, epsilon)
    _, best = big_mle(counts, true_odds(epsilon))
    for name, theta in candidates(counts, epsilon):
        found = certificate(theta, counts, epsilon)
        missing = exact_missing(theta, best, counts, epsilon)
        assert missing >= -2 * ULP, name  # a sum that rounds to above one gains as much
        assert float(found.gap) >= missing, name
        assert float(found.l1_bound) >= np.abs(np.asarray(theta) - best).sum(), name
        # Not a bound by being loose: at the maximum it is rounding alone.
        if name == "maximum":
            allowance = 24 * ULP * float(exact_score(theta, counts, epsilon)[1])
            assert found.gap <= allowance
            assert found.stationarity <= allowance
            assert found.dual_infeasibility <= allowance
            assert found.simplex_violation <= 4 * ULP
        elif epsilon < 10 and not name.startswith("near"):
            assert found.gap <= math.log1p(1 + num_categories * math.expm1(epsilon))


@every_way
@pytest.mark.parametrize("epsilon", [0.1, 2.0, 6.0])
def test_the_distance_is_bounded_next_to_the_simplex(nll, certificate, epsilon):
    counts = collect(2, K, 1_000, epsilon)
    _, best = big_mle(counts, true_odds(epsilon))
    d = math.expm1(epsilon) / (math.expm1(epsilon) + K)
    small = FLOAT.type(math.sqrt(ULP) / 30)
    for name, theta in candidates(counts, epsilon):
        on = certificate(theta, counts, epsilon)
        # What Pinsker's inequality says, and little for rounding: beside the least gap there is, of 16 ULP.
        assert float(on.l1_bound) <= 1.2 * math.sqrt(2 * float(on.gap)) / d, name
        below, least = theta.copy(), np.argmin(best)
        below[[least, (least + 1) % K]] += np.array([-1, 1], FLOAT) * (theta[least] + small)
        for off in (theta * (1 + small), theta * (1 - small), below):
            bound = float(certificate(off, counts, epsilon).l1_bound)
            assert np.abs(off - best).sum() <= bound < math.inf, name


@every_way
def test_nothing_bounds_the_distance_of_what_is_no_distribution(nll, certificate):
    counts = np.array([60, 20, 20, 0])
    assert math.isinf(certificate([0.6, 0.2, 0.1, 0.0], counts, 1.0).l1_bound)
    small = math.sqrt(ULP) / 30
    assert math.isfinite(certificate([0.6, 0.2, 0.2, -small], counts, 1.0).l1_bound)
    # With shares that make the probability of a report negative there is no divergence.
    assert math.isinf(certificate([0.6, 0.2, 0.2, -small], counts, 50.0).l1_bound)
    assert math.isinf(certificate([0.6, 0.2, 0.2, -small], counts, math.inf).l1_bound)


@every_way
@pytest.mark.parametrize("num_categories", [2, 5, 20])
def test_the_gap_is_rounded_up(nll, certificate, num_categories):
    # At large ε it is tens of nats, of which a unit in the last place is more than the rounding of the score.
    rng, number = np.random.default_rng(5), 3000
    theta = rng.dirichlet(np.full(num_categories, 0.3), size=number).astype(FLOAT)
    theta[rng.random(theta.shape) < 0.2] = 0
    counts = rng.integers(0, 1000, size=theta.shape).astype(INT)
    counts[:, 0] += 1
    epsilon = rng.uniform(1, 88, size=number).astype(FLOAT)
    found = jax.jit(jax.vmap(lambda t, c, e: certificate(t, c, e).gap))(theta, counts, epsilon)
    scores = [exact_score(*problem)[0].max() for problem in zip(theta, counts, epsilon, strict=True)]
    assert (np.asarray(found).astype(LD) >= np.log1p(np.maximum(np.array(scores), 0))).all()


@every_way
def test_the_parts_of_the_certificate_say_what_is_wrong(nll, certificate):
    counts = np.array([60, 20, 10, 10])
    too_much = certificate([0.8, 0.4, 0.0, -0.1], counts, 1.0)
    assert too_much.simplex_violation == pytest.approx(0.1, abs=4 * ULP)
    not_one = certificate([0.8, 0.5, 0.0, 0.0], counts, 1.0)
    assert not_one.simplex_violation == pytest.approx(0.3, abs=4 * ULP)
    # The second category has mass that pulls away from it.
    exact, _ = exact_score(np.array([0.5, 0.5, 0, 0], FLOAT), counts, 1.0)
    moved = certificate([0.5, 0.5, 0.0, 0.0], counts, 1.0)
    assert moved.stationarity == pytest.approx(float(abs(exact[:2]).max()), rel=1e-5)
    assert moved.dual_infeasibility == pytest.approx(float(exact.max()), rel=1e-5)


@pytest.mark.long
@every_way
@pytest.mark.parametrize("epsilon", [1e-30, 1e-8, 800.0, math.inf])
def test_the_certificate_is_finite_at_extreme_epsilon(nll, certificate, epsilon):
    counts = np.array([60, 20, 10, 10, 0])
    theta = rrjax.mle_star(counts, epsilon)
    found = certificate(theta, counts, epsilon)
    assert found.gap <= 24 * ULP
    assert found.dual_infeasibility <= 12 * ULP
    if epsilon > 1:
        assert found.l1_bound <= math.sqrt(2 * 32 * ULP)
    assert np.isfinite(certificate([0.5, 0.5, 0, 0, 0], counts, epsilon).gap)


@every_way
@pytest.mark.parametrize("size", [3, 10_000])  # of more numbers than 4,000, XLA's maximum drops those that are none
def test_of_what_is_no_number_nothing_is_certified(nll, certificate, size):
    uniform, counts = np.full(size, 1 / size, FLOAT), np.arange(size)
    one = np.append(uniform[:-1], np.nan).astype(FLOAT)
    for theta, given in ((one, counts), (one * np.nan, counts)):
        assert np.isnan(nll(theta, given, 1.0))
        assert all(np.isnan(value) for value in certificate(theta, given, 1.0))
    unusable = counts - 2 * (counts == 1)
    assert all(np.isnan(value) for value in certificate(uniform, unusable, 1.0))


@pytest.mark.long
def test_derivatives_are_the_same_on_accelerators():
    counts, theta = np.array([60, 20, 10, 10, 0]), np.array([0.7, 0.2, 0.1, 0, 0], FLOAT)
    for here, there in zip(*WAYS.values(), strict=True):
        found, expected = (
            jax.jacfwd(lambda e, f=f: jax.tree.leaves(f(theta, counts, e)))(FLOAT.type(1.0)) for f in (there, here)
        )
        np.testing.assert_allclose(found, expected, rtol=16 * ULP, atol=16 * ULP)
    found, expected = (
        jax.hessian(lambda t, f=f: f(t, counts, 1.0))(theta + FLOAT.type(0.01))
        for f in (WAYS["accelerator"][0], rrjax.nll)
    )
    np.testing.assert_allclose(found, expected, rtol=16 * ULP, atol=16 * ULP)
