"""Users with different ε: against solvers, against one group, and by simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64
from jax.test_util import check_grads
from refusals import refused
from scipy import optimize

import rrjax
from rrjax import surveys
from rrjax.mechanisms.surveys.groups import Stacked

EPSILONS = np.array([0.5, 2.0, 4.0], FLOAT)  # one shape for most tests: each compiles once
SIZE = 5


def rates(epsilons, size=SIZE):
    e1 = np.expm1(np.asarray(epsilons, float))
    return e1 / (e1 + size), 1 / (e1 + size)


def draw(seed, numbers=(300, 200, 100), spread=0.5, epsilons=EPSILONS):
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.full(SIZE, spread))
    kept, noise = rates(epsilons)
    return np.stack([rng.multinomial(n, q + d * theta) for n, d, q in zip(numbers, kept, noise, strict=True)])


def loss(theta, counts, epsilons=EPSILONS):
    kept, noise = rates(epsilons, len(theta))
    return -(counts * np.log(noise[:, None] + kept[:, None] * theta)).sum() / counts.sum()


CASES = [
    draw(0),
    draw(1, (50_000, 20_000, 10_000)),
    draw(2, (0, 30, 9)),
    draw(3, (5, 3, 1), 0.1),
    np.array([[10, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]),
    np.array([[0, 50, 0, 0, 0], [50, 0, 0, 0, 0], [0, 0, 3, 0, 0]]),
]


@pytest.mark.long
@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_maximum_is_that_of_solvers(case):
    counts = CASES[case]
    found = surveys.groups.mle(counts, EPSILONS)
    theta = np.asarray(found.theta, float)
    assert found.converged
    assert int(found.num_iters) < 15
    assert theta.min() >= 0
    assert theta.sum() == pytest.approx(1, abs=4 * ULP)
    likelihood = surveys.groups.mixture(counts, EPSILONS)
    assert float(rrjax.nll(found.theta, likelihood)) == pytest.approx(loss(theta, counts), abs=20 * ULP)
    assert float(found.gap) == pytest.approx(float(rrjax.certificate(found.theta, likelihood).gap), abs=20 * ULP)
    other = rrjax.ibu(likelihood)
    assert -8 * ULP <= loss(np.asarray(other.theta, float), counts) - loss(theta, counts) <= float(other.gap) + 8 * ULP
    simplex = {"type": "eq", "fun": lambda theta: theta.sum() - 1}
    solved = optimize.minimize(
        loss, np.full(SIZE, 1 / SIZE), (counts,), "SLSQP", bounds=[(0, 1)] * SIZE, constraints=simplex, tol=1e-12
    )
    assert loss(theta, counts) == pytest.approx(solved.fun, abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-30, 0.01, 1.0, 5.0, 800.0])
def test_one_group_is_randomized_response(epsilon):
    for seed in range(3):
        counts = np.random.default_rng(seed).multinomial(2000, np.random.default_rng(seed).dirichlet(np.ones(30)))
        found = surveys.groups.mle(counts[None], [epsilon])
        # Rounding of q + d·θ: K·q/d in all.
        bound = min(2, 8 * ULP * (1 + 30 / np.expm1(min(epsilon, 80))))
        assert float(jnp.abs(found.theta - rrjax.mle_star(counts, epsilon)).sum()) <= bound
        assert found.converged
        estimate = surveys.groups.inv(counts[None], [epsilon])
        np.testing.assert_allclose(estimate, rrjax.inv(counts, epsilon), rtol=1e-4, atol=20 * bound)


def test_extreme_privacy_beside_none():
    counts = np.array([[500, 400, 300, 0, 0], [100, 200, 300, 50, 1]])
    for epsilons in ([1e-30, np.inf], [1e-3, 800.0]):
        found = surveys.groups.mle(counts, np.array(epsilons, FLOAT))
        assert found.converged
        # The second group alone, but for what the first adds to its 651 users: some 1e-3 nats in all.
        np.testing.assert_allclose(found.theta, counts[1] / 651, atol=3e-3)
    found = surveys.groups.mle(counts, np.array([1.0, np.inf], FLOAT))
    assert found.converged
    assert (found.theta > 0).all()  # whoever reported without noise is there


@pytest.mark.long
def test_many_categories_and_groups_are_certified():
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.full(3000, 0.2))
    epsilons = np.array([0.1, 0.5, 1, 2, 4, 8], FLOAT)
    kept, noise = rates(epsilons, 3000)
    counts = np.stack([rng.multinomial(20_000, q + d * theta) for d, q in zip(kept, noise, strict=True)])
    found = surveys.groups.mle(counts, epsilons)
    assert found.converged
    assert found.gap < (1e-13 if X64 else 1e-5)
    assert int(found.num_iters) < 20


def smooth():
    """Weights whose estimate has all categories but one in, which is far from entering."""
    kept, noise = rates(EPSILONS)
    theta = np.array([0.4, 0.3, 0.2, 0.1, -0.2])
    return np.array([300, 200, 100])[:, None] * np.maximum(noise[:, None] + kept[:, None] * theta, 1e-3)


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
def test_derivatives_match_finite_differences():
    assert (np.asarray(surveys.groups.mle(smooth(), EPSILONS).theta) > 0).tolist() == [True] * 4 + [False]
    check_grads(lambda c, e: surveys.groups.mle(c, e).theta, (smooth(), EPSILONS), order=2, modes=("fwd", "rev"))
    check_grads(surveys.groups.inv, (smooth(), EPSILONS), order=1)


@pytest.mark.long
def test_derivatives_of_one_group_are_those_of_randomized_response():
    counts = np.array([[60, 25, 10, 5, 0]], FLOAT)
    both = [
        jax.grad(lambda c, e, f=f: f(c, e)[0], argnums=(0, 1))(counts, np.array([1.3], FLOAT))
        for f in (lambda c, e: surveys.groups.mle(c, e).theta, lambda c, e: rrjax.mle_star(c[0], e[0]))
    ]
    for found, wanted in zip(*both, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.long  # programs that compile for seconds
def test_the_weighted_inversion_is_unbiased_and_best_where_shares_are_even():
    numbers, kept, noise = np.array([60_000, 30_000, 10_000]), *rates(EPSILONS)
    theta = np.array([0.6, 0.3, 0.1, 0, 0])
    counts = np.stack(
        [rrjax.simulate.counts(jax.random.key(g), theta.astype(FLOAT), int(numbers[g]), EPSILONS[g]) for g in range(3)]
    )
    estimate = np.asarray(surveys.groups.inv(counts, EPSILONS), float)
    assert estimate.sum() == pytest.approx(1, abs=40 * ULP)
    law = noise[:, None] + kept[:, None] * theta
    weights = numbers * kept**2
    spread = np.sqrt((numbers[:, None] * (kept[:, None] ** 2) * law * (1 - law)).sum(0)) / weights.sum()
    assert (np.abs(estimate - theta) < 4 * spread + 20 * ULP).all()
    # Each group's own inversion, weighted by hand.
    own = (counts / numbers[:, None] - noise[:, None]) / kept[:, None]
    np.testing.assert_allclose(estimate, weights @ own / weights.sum(), atol=40 * ULP)
    even = 4 / 5 / weights  # K·(1/K)(1 − 1/K)/(N·d²)
    np.testing.assert_allclose(weights / weights.sum(), (1 / even) / (1 / even).sum())


def test_the_lift_is_its_matrix():
    scales, rng = np.array([0.5, 2.0, 3.0], FLOAT), np.random.default_rng(0)
    lift = Stacked(jnp.asarray(scales), SIZE)
    matrix = np.concatenate([scale * np.eye(SIZE) for scale in scales])
    theta, weights = rng.uniform(size=SIZE).astype(FLOAT), rng.uniform(size=3 * SIZE).astype(FLOAT)
    assert lift.shape == matrix.shape
    np.testing.assert_allclose(lift(jnp.asarray(theta)), matrix @ theta, rtol=4 * ULP)
    np.testing.assert_allclose(lift.transpose(jnp.asarray(weights)), matrix.T @ weights, rtol=8 * ULP)


@pytest.mark.long
def test_a_batch_is_a_loop():
    counts = np.stack(CASES[:4]).astype(INT)
    together = jax.vmap(lambda c: surveys.groups.mle(c, EPSILONS))(counts)
    for row, theta, converged in zip(counts, together.theta, together.converged, strict=True):
        assert converged
        np.testing.assert_allclose(theta, surveys.groups.mle(row, EPSILONS).theta, atol=20 * ULP)


@pytest.mark.long
def test_what_cannot_be_used_gives_nan():
    good = draw(0).astype(INT)
    negative, none, wrapped = good.copy(), np.zeros_like(good), good.copy()
    negative[1, 2], wrapped[0] = -1, LARGEST
    for counts in (negative, none, wrapped):
        found = surveys.groups.mle(jnp.asarray(counts), EPSILONS)
        assert np.isnan(found.theta).all()
        assert np.isnan(found.gap)
        assert not found.converged
        assert np.isnan(surveys.groups.inv(jnp.asarray(counts), EPSILONS)).all()
    for epsilons in ([0.0, 1, 1], [-1, 1, 1], [np.nan, 1, 1]):
        assert np.isnan(surveys.groups.mle(good, np.array(epsilons, FLOAT)).theta).all()
        assert np.isnan(surveys.groups.inv(good, np.array(epsilons, FLOAT))).all()


DICE = [
    rrjax.mechanisms.ForcedResponse(0.6, [0.5, 0.3, 0.2]),
    rrjax.mechanisms.ForcedResponse(0.85, [0.2, 0.2, 0.6]),
    rrjax.mechanisms.NegativeQuestion(3, 0.1),
    rrjax.RandomizedResponse(3, 1.5),
]
SHARES = np.array([0.15, 0.8, 0.05])


def answered(number, seed=0):
    """Answers of each group, `[surveys, K]`."""
    rng = np.random.default_rng(seed)
    channels = [np.asarray(design.channel(), float) for design in DICE]
    return [rng.multinomial(600 + 300 * g, SHARES @ each, number) for g, each in enumerate(channels)]


@pytest.mark.long
def test_groups_of_several_designs_have_the_maximum_of_a_solver():
    counts = [each[0] for each in answered(1)]
    parts = [design.mixture_of_counts(each) for design, each in zip(DICE, counts, strict=True)]
    found = surveys.groups.mle(parts)
    assert found.converged
    stacked = surveys.groups.mixture(parts)
    assert float(rrjax.certificate(found.theta, stacked).gap) <= max(1e-9, 1e4 * ULP)
    channels = [np.asarray(design.channel(), float) for design in DICE]

    def lost(theta):
        return -sum(c @ np.log(np.maximum(theta @ m, 1e-300)) for c, m in zip(counts, channels, strict=True))

    simplex = {"type": "eq", "fun": lambda theta: theta.sum() - 1}
    solved = optimize.minimize(lost, SHARES, method="SLSQP", bounds=[(0, 1)] * 3, constraints=simplex, tol=1e-13)
    np.testing.assert_allclose(found.theta, solved.x, atol=1e-4 if X64 else 1e-3)
    theta = np.asarray(found.theta, float)
    assert lost(theta) <= solved.fun + (1e-6 if X64 else 1e-2)


@pytest.mark.long
def test_mixtures_of_randomized_response_have_the_maximum_of_their_counts():
    counts = jnp.asarray(draw(0), INT)
    groups = [(rrjax.RandomizedResponse(SIZE, float(e)), row) for e, row in zip(EPSILONS, counts, strict=True)]
    found = surveys.groups.mle([mechanism.mixture_of_counts(row) for mechanism, row in groups])
    assert found.converged
    np.testing.assert_allclose(found.theta, surveys.groups.mle(counts, EPSILONS).theta, atol=1e-5 if X64 else 2e-3)
    tallies = [mechanism.tally_of_counts(row) for mechanism, row in groups]
    np.testing.assert_allclose(
        surveys.groups.inv(tallies), surveys.groups.inv(counts, EPSILONS), atol=1e-5 if not X64 else 1e-12
    )


@pytest.mark.long
@pytest.mark.once
def test_inversions_of_several_designs_are_unbiased_together():
    counts = answered(2000, 5)[:3]
    found = jax.jit(
        jax.vmap(
            lambda *rows: surveys.groups.inv(
                [design.tally_of_counts(row) for design, row in zip(DICE[:3], rows, strict=True)]
            )
        )
    )(*counts)
    each = jax.jit(jax.vmap(lambda row: rrjax.inv(DICE[1].tally_of_counts(row))))(counts[1])
    error = np.asarray(found, float) - SHARES
    assert (np.abs(error.mean(0)) < 4 * error.std(0) / np.sqrt(2000)).all()
    assert error.std(0).sum() < np.asarray(each, float).std(0).sum()  # than the best group alone


@pytest.mark.long
@pytest.mark.once
def test_bad_input_is_named():
    first, other = DICE[0].mixture_of_counts([5, 6, 7]), rrjax.mechanisms.Warner(0.7).mixture_of_counts([5, 6])
    tallies = [rrjax.Tally([5, 6], 11, p=0.7, q=0.3, domain=labels) for labels in (["a", "b"], ["b", "a"])]
    for call, argument in (
        (lambda: surveys.groups.mle([5, 3], [1.0]), "counts"),
        (lambda: surveys.groups.mle([[5], [3]], [1.0, 1.0]), "counts"),
        (lambda: surveys.groups.inv([[5, 3]], [1.0, 2.0]), "epsilons"),
        (lambda: surveys.groups.inv([[5, 3]], ["a"]), "epsilons"),
        (lambda: surveys.groups.mle([[5, 3]], [1.0], tol=0), "tol"),
        (lambda: surveys.groups.mixture([[0, 0]], [1.0]), "weights"),
        (lambda: surveys.groups.mle([first, other]), "counts"),
        (lambda: surveys.groups.mle([first, first], [1.0, 2.0]), "epsilons"),
        (lambda: surveys.groups.mle([[5, 6, 7]]), "epsilons"),
        (lambda: surveys.groups.inv(tallies), "counts"),
    ):
        with refused(argument):
            call()
