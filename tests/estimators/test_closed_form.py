"""The estimators against exact rational arithmetic, their invariants, transformations and bad input."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import (
    ESTIMATORS,
    FLOAT,
    FUNCTIONS,
    INT,
    LARGEST,
    NAMES,
    ULP,
    X64,
    bits,
    collect,
    own_odds,
    true_odds,
)
from jax.test_util import check_grads
from reference import exact_theta, total_variation
from refusals import refused

import rrjax
from rrjax.data.linear_maps import Scaling
from rrjax.mechanisms import SquareWave

K = 7
every_estimator = pytest.mark.parametrize("row", ESTIMATORS, ids=NAMES)

HISTOGRAMS = {
    "one report": [0, 0, 1, 0, 0, 0, 0],
    "point mass": [0, 0, 0, 123_456_789, 0, 0, 0],
    "all equal": [1000] * K,
    "all equal but one": [1000, 1000, 1001, 1000, 1000, 1000, 1000],
    "ones and zeros": [1, 0, 1, 0, 1, 0, 0],
    "small": [60, 20, 10, 10, 5, 0, 0],
    "steep": [1_000_000, 10_000, 100, 10, 1, 0, 0],
    "collected": collect(0, K, 1_000_000, 1.0).tolist(),
    "full": [LARGEST - 6, 1, 1, 1, 1, 1, 1],
    "full and level": [LARGEST // K] * K,
    "two giants": [LARGEST // 2, LARGEST // 2 - 5, 1, 0, 2, 2, 0],
}
EPSILONS = [1e-30, 1e-12, 1e-8, 1e-3, 0.5, 1.0, 4.0, 8.3, 30.0, 88.5, 800.0, math.inf]


@pytest.mark.long
@every_estimator
@pytest.mark.parametrize("counts", HISTOGRAMS.values(), ids=HISTOGRAMS)
def test_integer_counts_match_exact_arithmetic(row, counts):
    for epsilon in EPSILONS:
        theta = np.asarray(row.function(np.array(counts, INT), epsilon))
        assert theta.dtype == FLOAT
        exact = exact_theta(counts, row.exact(counts, true_odds(epsilon)))
        assert total_variation(theta, exact) <= row.bound, epsilon
        if row.exact_support:
            active, _, _ = row.exact(counts, own_odds(epsilon))
            assert np.flatnonzero(theta).tolist() == sorted(active), epsilon


@pytest.mark.long
@every_estimator
@pytest.mark.parametrize("num_categories", [7, 40])
def test_random_histograms_match_exact_arithmetic(row, num_categories):
    rng = np.random.default_rng(1)
    for trial in range(40):
        epsilon = FLOAT.type(10 ** rng.uniform(-8, 1.8))
        num_users = int(10 ** rng.uniform(0, 9.3))
        counts = collect(trial, num_categories, num_users, epsilon, rng.uniform(0, 3)).tolist()
        exact = exact_theta(counts, row.exact(counts, true_odds(epsilon)))
        theta = row.function(np.array(counts), epsilon)
        assert total_variation(theta, exact) <= row.bound
        # As weights: a few roundings of shares, counts beyond 2^24 in float32 included, all over d.
        weighted = np.asarray(row.function(np.array(counts, FLOAT), epsilon))
        spread = 1 + num_categories / math.expm1(float(epsilon))
        assert np.abs(weighted - np.asarray(theta)).sum() / 2 <= 4 * ULP * spread


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 4.0, 30.0, 800.0])
def test_inversion_matches_exact_arithmetic(epsilon):
    for counts in HISTOGRAMS.values():
        e1 = true_odds(epsilon)
        size, q, d = sum(counts), 1 / (e1 + K), e1 / (e1 + K)
        exact = np.array([float((c - size * q) / (size * d)) for c in counts])
        theta = np.asarray(rrjax.inv(np.array(counts, INT), epsilon))
        # Six roundings of c/N, of K·c/N − 1 ≤ K and of e1, over d.
        assert np.abs(theta - exact).max() <= 6 * ULP * max(1.0, float(1 / d))
        assert theta.sum() == pytest.approx(1, abs=6 * K * ULP * max(1.0, float(1 / d)))


@every_estimator
@pytest.mark.parametrize("kind", ["integers", "weights"])
def test_estimates_lie_on_the_simplex(row, kind):
    for seed, epsilon in enumerate([1e-8, 0.1, 1.0, 3.0, 10.0, 800.0]):
        counts = collect(seed, 40, 1000 * 10**seed, epsilon)
        theta = np.asarray(row.function(counts if kind == "integers" else counts / 7, epsilon))
        assert theta.min() >= 0
        # Each entry is rounded to half an ulp of itself, their height to an ulp or two.
        assert abs(theta.astype(np.longdouble).sum() - 1) <= 4 * ULP


@pytest.mark.parametrize("name", FUNCTIONS)
def test_relabelling_the_categories_relabels_the_estimate(name):
    counts = collect(3, K, 10_000, 1.0)
    order = np.random.default_rng(0).permutation(K)
    result, relabelled = (np.asarray(FUNCTIONS[name](c, 1.0)) for c in (counts, counts[order]))
    expected = result[order] if result.ndim else result
    if name in NAMES:
        assert (bits(relabelled) == bits(expected)).all()
    else:
        # Sums in another order: a few ulps of terms of size one, for IBU amplified by its contraction,
        # for Anderson's extrapolation by the condition of its system as well.
        bound = max(200 * ULP, 1e-9) if name.startswith("ibu") else 16 * ULP
        np.testing.assert_allclose(relabelled, expected, rtol=0, atol=bound)


@pytest.mark.long
def test_inv_p_is_the_projection_of_optax():
    for seed, epsilon in enumerate([0.5, 1.0, 4.0]):
        counts = collect(seed, 1000, 100_000, epsilon)
        with jax.numpy_dtype_promotion("standard"):  # optax's own
            projected = optax.projections.projection_simplex(rrjax.inv(counts, FLOAT.type(epsilon)))
        # optax works on the inversion, whose largest entries are rounded, and sums a thousand of them in order.
        size = np.abs(np.asarray(rrjax.inv(counts, epsilon))).sum()
        distance = np.abs(np.asarray(rrjax.inv_p(counts, epsilon)) - np.asarray(projected)).sum()
        assert distance <= 16 * ULP * size


def test_more_categories_than_an_overflow_check_covers_are_refused():
    if X64:
        pytest.skip("with int64 that takes 2^56 categories")
    with refused("counts"):
        jax.eval_shape(lambda c: rrjax.mle_star(c, 1.0), jax.ShapeDtypeStruct((2**24,), np.int32))


@pytest.mark.full
@pytest.mark.parametrize("scale", [1e-30, 1e-300, 1e37, 1e300])
def test_the_scale_of_weights_does_not_matter(scale):
    if not float(np.finfo(FLOAT).tiny) < scale < float(np.finfo(FLOAT).max):
        pytest.skip("float32 ends before")
    weights = np.array([5, 3, 1, 1], FLOAT) / 5
    large = (weights * FLOAT.type(scale)).astype(FLOAT)
    for name, function in FUNCTIONS.items():
        # The scaled weights are rounded once more, and IBU stops within its own tolerance.
        bound = 1e-4 if name.startswith("ibu") else 32 * ULP
        np.testing.assert_allclose(function(large, 1.0), function(weights, 1.0), rtol=0, atol=bound, err_msg=name)


@pytest.mark.long
def test_all_estimators_at_more_than_a_million_categories():
    num_categories, epsilon = 1_423_000, FLOAT.type(4)
    counts = collect(0, num_categories, 1_000_000, 4.0).astype(np.int64)
    e1 = np.longdouble(math.expm1(4))
    for function, tau in (
        (rrjax.inv_n, counts.sum() / (e1 + num_categories)),
        (rrjax.inv_p, None),
    ):
        if tau is None:
            kept = counts.sum() * e1 / (e1 + num_categories)
            ordered = np.sort(counts)[::-1]
            taus = (np.cumsum(ordered) - kept) / np.arange(1, num_categories + 1)
            tau = taus[np.flatnonzero(ordered > taus)[-1]]
        above = np.maximum(counts - tau, 0)
        error = np.abs(np.asarray(function(counts, epsilon)).astype(np.longdouble) - above / above.sum()).sum() / 2
        assert error <= (1e-14 if X64 else 1e-7)


@every_estimator
def test_only_the_shares_of_the_counts_matter(row):
    for seed, epsilon in enumerate([0.1, 1.0, 4.0]):
        counts = collect(seed, K, 12_345, epsilon)
        theta = np.asarray(row.function(counts, epsilon))
        # Doubling floats is exact at every step.
        weights = counts.astype(FLOAT)
        once, twice = (np.asarray(row.function(f * weights, epsilon)) for f in (1, 2))
        assert (bits(once) == bits(twice)).all()
        for factor in (2, 1000):
            scaled = np.asarray(row.function(factor * counts, epsilon))
            # Both lie within the bound of the same exact estimate.
            assert np.abs(scaled - theta).sum() / 2 <= 2 * row.bound


def test_supports_nest_and_equal_supports_are_collinear():
    collinear = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        epsilon = rng.uniform(0.2, 5)
        counts = collect(seed, K, int(10 ** rng.uniform(1, 7)), epsilon, rng.uniform(0.2, 2))
        n, m, p = (np.asarray(f(counts, epsilon)) for f in (rrjax.inv_n, rrjax.mle_star, rrjax.inv_p))
        # A count that equals InvP's threshold but for the rounding of N·d is in by that rounding alone.
        assert (m[p > 4 * ULP] > 0).all()
        assert (n[m > 0] > 0).all()
        if ((p > 0) == (n > 0)).all() and np.abs(p - n).max() > 1e-3:
            collinear += 1
            between = ((m - p) @ (n - p)) / ((n - p) @ (n - p))
            assert -100 * ULP <= between <= 1 + 1000 * ULP
            np.testing.assert_allclose(m, p + between * (n - p), rtol=0, atol=4 * ULP)
    assert collinear >= 5


def test_the_maximum_likelihood_lies_at_or_above_every_other_estimate():
    for seed in range(10):
        counts = collect(seed, K, 5000, 1.0)
        best = rrjax.nll(rrjax.mle_star(counts, 1.0), counts, 1.0)
        for other in (rrjax.inv_n, rrjax.inv_p):
            assert best <= rrjax.nll(other(counts, 1.0), counts, 1.0) + 4 * ULP


@pytest.mark.parametrize("solver", ["newton", "sort"])
def test_kkt_conditions_hold_through_autodiff_of_the_likelihood(solver):
    gradient = jax.grad(rrjax.nll)
    for seed, epsilon in enumerate([0.05, 0.5, 1.0, 3.0, 6.0]):
        counts = collect(seed, K, 20_000, epsilon)
        theta = rrjax.mle_star(counts, epsilon, solver=solver)
        slope = -np.asarray(gradient(theta, counts, epsilon))
        multiplier = slope @ np.asarray(theta)
        # The slopes φ·d/μ are as large as 1 + d·K or so and carry some ten roundings each.
        tolerance = 20 * ULP * max(1, np.abs(slope).max())
        assert np.abs(slope - multiplier)[np.asarray(theta) > 0].max() <= tolerance
        assert (slope - multiplier).max() <= tolerance


@pytest.mark.full
@pytest.mark.parametrize("name", ["inv", *NAMES])
@pytest.mark.parametrize("kind", [INT, FLOAT], ids=["integers", "weights"])
def test_jit_and_vmap_change_nothing(name, kind):
    function = FUNCTIONS[name]
    counts = np.stack([collect(seed, K, 10**seed, 1.0) for seed in range(1, 6)]).astype(kind)
    epsilons = np.array([1e-8, 0.5, 1.0, 4.0, 800.0], FLOAT)
    loop = np.stack([np.asarray(function(c, e)) for c, e in zip(counts, epsilons, strict=True)])
    compiled = jax.jit(function)
    jitted = np.stack([np.asarray(compiled(c, e)) for c, e in zip(counts, epsilons, strict=True)])
    mapped = np.asarray(jax.vmap(function)(counts, epsilons))
    assert (bits(loop) == bits(jitted)).all()
    if kind == INT and name != "inv":
        assert (bits(loop) == bits(mapped)).all()
    else:  # XLA may contract and reorder floating sums by shape.
        tolerance = 4 * ULP * max(1.0, np.abs(loop).max())
        np.testing.assert_allclose(mapped, loop, rtol=0, atol=tolerance)


@every_estimator
def test_an_epsilon_sweep_compiles_once(row, compilations):
    counts = collect(0, K, 1000, 1.0)
    row.function(counts, 0.123)
    del compilations[:]
    for epsilon in np.linspace(0.1, 9, 100).tolist():
        row.function(counts, epsilon)
    assert not compilations
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def traced(epsilon):
        return row.function(counts, epsilon)

    for epsilon in (0.1, 1.0, 2.5, 800.0):
        traced(epsilon)


# --- Derivatives -----------------------------------------------------------------------------------------------

WEIGHTS = np.array([60.5, 50.25, 38.0, 9.5, 2.0, 0.75, 0.0])


def closed_form(name, c, epsilon, active):
    """θ's Jacobian in c, and its first derivative in ε: math written out, in double precision."""
    r, e1 = math.exp(epsilon), math.expm1(epsilon)
    n, number = c.sum(), active.sum()
    q, d = 1 / (r + K - 1), e1 / (r + K - 1)
    dq, dd = -r * q**2, r * K * q**2
    share, both = c / n, np.outer(active, active)
    if name == "inv":
        jacobian = (np.eye(K) - share[:, None]) / (n * d)
        return jacobian, -(K * share - 1) * r / e1**2
    if name == "inv_n":
        s = c[active].sum()
        height = s - number * n * q
        theta = np.where(active, (c - n * q) / height, 0)
        jacobian = np.eye(K) * active - q * active[:, None]
        jacobian = (jacobian - np.outer(theta, active - number * q)) / height
        return jacobian, np.where(active, (-n * dq + theta * number * n * dq) / height, 0)
    s = c[active].sum()
    if name.startswith("mle_star"):
        a = (e1 + number) / (e1 * s)
        jacobian = a * (np.eye(K) * active - c[:, None] / s * both)
        return jacobian, np.where(active, r * (1 - number * c / s) / e1**2, 0)
    centred = np.where(active, c - s / number, 0)
    jacobian = (np.eye(K) * active - both / number) / (n * d) - centred[:, None] / (n**2 * d)
    return jacobian, -centred / n * dd / d**2


@pytest.mark.long
@pytest.mark.parametrize("name", ["inv", *NAMES])
@pytest.mark.parametrize(
    "jacobian", [pytest.param(jax.jacfwd, marks=pytest.mark.long), jax.jacrev], ids=["forward", "reverse"]
)
def test_derivatives_match_their_closed_forms(name, jacobian):
    function = FUNCTIONS[name]
    for epsilon in (1.3, 2.0):
        theta = np.asarray(function(WEIGHTS.astype(FLOAT), epsilon))
        active = np.full(K, True) if name == "inv" else theta > 0
        if name != "inv":
            assert 1 < active.sum() < K
        by_counts, by_epsilon = jacobian(function, argnums=(0, 1))(WEIGHTS.astype(FLOAT), FLOAT.type(epsilon))
        expected = closed_form(name, WEIGHTS, float(FLOAT.type(epsilon)), active)
        for actual, exact in zip((by_counts, by_epsilon), expected, strict=True):
            # Some twenty roundings, of terms as large as the largest entry.
            np.testing.assert_allclose(actual, exact, rtol=0, atol=20 * ULP * np.abs(exact).max())


@pytest.mark.long
@pytest.mark.parametrize("name", ["mle_star-newton", "mle_star-sort"])
def test_second_derivative_in_epsilon_matches_its_closed_form(name):
    epsilon = FLOAT.type(1.3)
    theta, function = np.asarray(FUNCTIONS[name](WEIGHTS, epsilon)), FUNCTIONS[name]
    active = theta > 0
    r, e1 = math.exp(float(epsilon)), math.expm1(float(epsilon))
    share = WEIGHTS / WEIGHTS[active].sum()
    exact = np.where(active, (active.sum() * share - 1) * r * (r + 1) / e1**3, 0)
    second = jax.jacfwd(jax.jacrev(lambda e: function(WEIGHTS.astype(FLOAT), e)))(epsilon)
    np.testing.assert_allclose(second, exact, rtol=0, atol=40 * ULP * np.abs(exact).max())


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
@pytest.mark.parametrize("name", ["inv", *NAMES])
def test_derivatives_of_second_order_match_finite_differences(name):
    # check_grads steps by 1e-6 and compares to 1e-5; the next kink is 0.1 away in counts.
    weights = np.maximum(WEIGHTS, 0.25)  # a step below zero would be unusable
    check_grads(FUNCTIONS[name], (weights, 1.3), order=2, modes=("fwd", "rev"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["inv", *NAMES])
def test_integer_counts_have_the_derivatives_of_weights_in_epsilon(name):
    counts = np.array([600, 500, 380, 95, 20, 7, 0])
    function = FUNCTIONS[name]
    by_integers, by_weights = (
        np.asarray(jax.jacrev(lambda e, c=c: function(c, e))(1.3)) for c in (counts, counts.astype(FLOAT))
    )
    assert np.abs(by_weights).max() > 0.02
    np.testing.assert_allclose(by_integers, by_weights, rtol=0, atol=20 * ULP)


@pytest.mark.long
@every_estimator
@pytest.mark.parametrize("kind", [INT, FLOAT], ids=["integers", "weights"])
def test_at_a_kink_the_derivative_is_that_of_the_absent_category(row, kind):
    # At ε = log 3 and K = 2: q = 1/4, so the first category stands exactly at the threshold.
    epsilon = FLOAT.type(math.log(3))
    assert own_odds(epsilon) == 2
    counts = np.array([1, 3], kind)
    np.testing.assert_array_equal(row.function(counts, epsilon), [0, 1])
    np.testing.assert_array_equal(jax.jacrev(lambda e: row.function(counts, e))(epsilon), [0, 0])
    if kind == FLOAT:
        # 1/S − c/S² of the single survivor, in floats.
        jacobian = jax.jacfwd(row.function)(counts, epsilon)
        np.testing.assert_allclose(jacobian, np.zeros((2, 2)), rtol=0, atol=ULP)


@pytest.mark.long
@every_estimator
def test_derivatives_are_finite_for_small_epsilon_and_few_reports(row):
    for counts in ([0, 0, 5, 0, 0, 0, 0], [1] * K, [9, 9, 0, 0, 0, 0, 0]):
        for epsilon in (1e-8, 1.0, 80.0):
            jacobian = jax.jacrev(row.function, argnums=(0, 1))(np.array(counts, FLOAT), FLOAT.type(epsilon))
            assert all(np.isfinite(part).all() for part in jacobian), (counts, epsilon)


# --- Bad input -------------------------------------------------------------------------------------------------

GOOD = [5, 3, 0, 1, 2, 0, 1]
UNUSABLE = {
    "negative count": ([5, -1, 0, 1, 2, 0, 1], 1.0),
    "all negative": ([-1] * K, 1.0),
    "no reports": ([0] * K, 1.0),
    "no weight": (np.zeros(K, FLOAT), 1.0),
    "negative weight": (np.array([5, -1e-3, 0, 1, 2, 0, 1], FLOAT), 1.0),
    "weight NaN": (np.array([5, np.nan, 0, 1, 2, 0, 1], FLOAT), 1.0),
    "weight infinite": (np.array([5, np.inf, 0, 1, 2, 0, 1], FLOAT), 1.0),
    "epsilon zero": (GOOD, 0.0),
    "epsilon negative": (GOOD, -1.0),
    "epsilon minus infinity": (GOOD, -math.inf),
    "epsilon NaN": (GOOD, math.nan),
    "epsilon NaN, weights": (np.array(GOOD, FLOAT), math.nan),
}
OVERFLOWS = {
    "once": [LARGEST, 1, 0, 0, 0, 0, 0],
    "to zero": [LARGEST, LARGEST, 2, 0, 0, 0, 0],
    "to one": [LARGEST, LARGEST, 3, 0, 0, 0, 0],
    "to a plausible total": [LARGEST, LARGEST, 1_000_000, 0, 0, 0, 0],
    "twice": [LARGEST, LARGEST, LARGEST, LARGEST, 8, 0, 0],
    "all full": [LARGEST] * K,
}


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_cannot_be_checked_under_tracing_gives_nan(name):
    for case, (counts, epsilon) in UNUSABLE.items():
        for function in (FUNCTIONS[name], jax.jit(FUNCTIONS[name])):
            result = np.asarray(function(np.asarray(counts), epsilon))
            assert np.isnan(result).all(), (case, result)
    assert np.isfinite(FUNCTIONS[name](np.array(GOOD), 1.0)).all()


@pytest.mark.parametrize("name", ["inv", *NAMES])
@pytest.mark.parametrize("counts", OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_total_beyond_the_integer_dtype_gives_nan(name, counts):
    # On a device nobody looks; on the host it is refused.
    assert np.isnan(FUNCTIONS[name](jnp.array(counts, INT), 1.0)).all()
    for given in (np.array(counts, INT), counts):
        with pytest.raises(ValueError, match=r"counts (hold|add up to) \d+, more than int(32|64) can"):
            FUNCTIONS[name](given, 1.0)


@pytest.mark.long
@pytest.mark.skipif(X64, reason="the same in int64 takes a total of 2^72")
def test_a_total_that_wraps_many_times_gives_nan():
    # 2^40 + 5 reports: the int32 sum is 5, and the sum of the counts' high 23 bits is exactly 2^32.
    counts = np.array([(2**23 - 1) * 256] * 512 + [512 * 256 + 5], INT)
    assert int(counts.astype(np.int64).sum()) == 2**40 + 5
    assert np.isnan(rrjax.mle_star(jnp.asarray(counts), 1.0)).all()


BAD = {
    "a batch": (np.ones((2, K), int), 1.0, "shape"),
    "a scalar": (3, 1.0, "shape"),
    "one category": ([3], 1.0, "K >= 2"),
    "no category": (np.zeros(0, int), 1.0, "K >= 2"),
    "epsilon per category": ([1] * K, np.ones(K), "epsilon must be a scalar"),
    "booleans": ([True] * K, 1.0, "bool"),
    "complex": (np.ones(K, complex), 1.0, "complex"),
    "text": (["1"] * K, 1.0, "dtype"),
    "objects": ([2**70] * K, 1.0, "dtype"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("counts", "epsilon", "message"), BAD.values(), ids=BAD)
def test_bad_shapes_and_dtypes_are_refused(name, counts, epsilon, message):
    with pytest.raises(ValueError, match=message):
        FUNCTIONS[name](counts, epsilon)


def test_bad_shapes_are_refused_under_tracing_too():
    with refused("counts"):
        jax.jit(rrjax.mle_star)(np.ones((2, 3), INT), 1.0)
    with refused("epsilon"):
        jax.jit(rrjax.mle_star)(np.ones(3, INT), np.ones(3, FLOAT))


@pytest.mark.parametrize("function", [rrjax.mle_star, rrjax.inv_p])
def test_an_unknown_solver_is_refused(function):
    with refused("solver"):
        function([1, 2], 1.0, solver="bisection")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32"])
def test_integers_that_the_default_dtype_cannot_hold_are_refused(name, dtype):
    top = int(np.iinfo(dtype).max)
    if top <= LARGEST:
        pytest.skip("all of them fit")
    with pytest.raises(ValueError, match=f"hold {top}.*JAX_ENABLE_X64"):
        FUNCTIONS[name](np.array([1, top, 2], dtype), 1.0)
    for fits in (LARGEST, 5):
        result = rrjax.mle_star(np.array([0, fits, 0], dtype), 1.0)
        np.testing.assert_allclose(result, [0, 1, 0], rtol=ULP, atol=0)


@pytest.mark.skipif(X64, reason="NumPy has no integer wider than int64")
def test_a_negative_count_below_the_default_dtype_is_never_made_plausible():
    # Cast to int32, −2^32 + 5 would be 5.
    with pytest.raises(ValueError, match="hold -4294967291"):
        rrjax.mle_star(np.array([-(2**32) + 5, 3, 1], np.int64), 1.0)


# --- Dtypes and special cases ----------------------------------------------------------------------------------

FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize("name", ["inv", *NAMES])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", *FLOATS])
def test_result_dtypes(name, dtype):
    counts = np.array(GOOD, dtype)
    theta = FUNCTIONS[name](counts, 1.0)
    expected = FLOAT
    if dtype in FLOATS:
        expected = np.dtype(np.float64 if dtype == "float64" and X64 else np.float32)
    assert theta.dtype == expected
    assert theta.shape == (K,)
    tolerance = 8 * float(np.finfo(expected).eps)
    np.testing.assert_allclose(theta, FUNCTIONS[name](GOOD, 1.0), rtol=0, atol=tolerance)


def test_jax_arrays_of_other_dtypes_are_taken_as_they_are():
    expected = np.asarray(rrjax.mle_star(GOOD, 1.0))
    for dtype in (jnp.int8, jnp.uint8, jnp.uint32, jnp.bfloat16, jnp.float16):
        theta = rrjax.mle_star(jnp.array(GOOD, dtype), jnp.float32(1.0))
        np.testing.assert_allclose(theta, expected, rtol=0, atol=1e-6)


def test_lists_of_python_numbers_and_numpy_scalars_are_welcome():
    expected = np.asarray(rrjax.mle_star(np.array(GOOD), 1.0))
    for epsilon in (1, 1.0, np.float32(1), np.float64(1), np.int64(1), np.array(1.0)):
        assert (bits(rrjax.mle_star(GOOD, epsilon)) == bits(expected)).all()
    np.testing.assert_allclose(rrjax.mle_star([float(c) for c in GOOD], 1.0), expected, rtol=0, atol=4 * ULP)


@every_estimator
def test_two_categories_are_warners_case(row):
    for first in (0, 1, 250, 400, 500, 731, 999, 1000):
        for epsilon in (0.1, 1.0, 3.0):
            counts = np.array([first, 1000 - first])
            exact = np.clip((first / 1000 - 0.5) / math.tanh(epsilon / 2) + 0.5, 0, 1)
            theta = row.function(counts, epsilon)
            np.testing.assert_allclose(theta, [exact, 1 - exact], rtol=0, atol=20 * ULP / epsilon)


@every_estimator
def test_peers_overflow_of_e_to_the_epsilon_does_not_happen_here(row):
    # NaN at 800 and a lost support at 1e-12 in published packages.
    counts = np.array([600, 250, 150, 0, 0, 0, 0])
    np.testing.assert_allclose(row.function(counts, 800.0), counts / 1000, rtol=4 * ULP)
    tiny = np.asarray(row.function(counts, 1e-12))
    assert tiny[0] > 0
    assert np.isfinite(tiny).all()


@pytest.mark.long
@every_estimator
def test_parts_add_up_whatever_the_number_of_chunks(row):
    # A published aggregator gives categories that a chunk lacks zero instead of −q/(p − q).
    reports = np.repeat(np.arange(K), [50, 20, 10, 5, 3, 1, 0])
    whole = rrjax.count(reports, K)
    parts = sum(rrjax.count(part, K) for part in np.array_split(reports, 13))
    assert (bits(row.function(whole, 1.0)) == bits(row.function(parts, 1.0))).all()


HALVES, QUARTERS, ONES = [0.5, 0.5], [[0.75, 0.25], [0.25, 0.75]], [1.0, 1.0, 1.0]
STRATA = [[5, 5], [9, 3]]
NUMBERS = {
    "epsilons of examples": (lambda x: rrjax.models.rr_loss(jnp.zeros((2, 3)), [0, 1], x), HALVES),
    "a tally": (lambda x: rrjax.inv_p(rrjax.Tally(x, jnp.asarray(3, x.dtype), p=0.6, q=0.4)), ONES),
    "square wave": (lambda x: SquareWave(4, 1.0).mixture(x).weights, HALVES),
    "weights": (lambda x: rrjax.inference.survey_estimate([0, 1, 1], 1.0, values=[0, 1], weights=x), ONES),
    "values": (lambda x: rrjax.inference.linear_functional([5, 5, 9], 2.0, values=x).value, [0.0, 1.0, 2.0]),
    "shares": (lambda x: rrjax.inference.stratified(STRATA, 2.0, shares=x, values=[0, 1]).value, HALVES),
    "a budget": (lambda x: rrjax.models.split_budget(3.0, [2, 3], num_users=1000, weights=x).epsilons, HALVES),
    "a mixture": (lambda x: rrjax.Mixture(x, x[0], Scaling(0.5, 2)).weights, HALVES),
    "groups": (lambda x: rrjax.surveys.groups.inv([[10, 20], [30, 40]], x), HALVES),
    "a channel": (lambda x: rrjax.mechanisms.Channel(x).debias([0, 1]), QUARTERS),
}


@pytest.mark.full
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_bfloat16_are_taken(name):
    function, numbers = NUMBERS[name]
    found, wanted = (function(jnp.asarray(numbers, dtype)) for dtype in (jnp.bfloat16, jnp.float32))
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(wanted, float), rtol=1e-6)
