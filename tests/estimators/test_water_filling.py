"""Support and bits of both solvers on integer counts, with near-ties built on purpose; and the way of accelerators."""

import functools
import math
from fractions import Fraction

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64, bits, collect, elsewhere, own_odds, true_odds
from hypothesis import example, given
from hypothesis import strategies as st
from reference import big_mle, exact_inv_n, exact_mle, exact_theta, total_variation

import rrjax
from rrjax.estimators import closed_form, water_filling
from rrjax.estimators.water_filling import MANY_CATEGORIES
from rrjax.numerics.sums import expm1_epsilon

SIZES = [2, 7, 33]  # few shapes: each compiles once

epsilons = st.one_of(
    st.floats(2**-30, 60, width=32),
    # e^ε − 1 is 1 and 2 exactly, so that ties are exact ones.
    st.sampled_from([math.log(2), math.log(3), 2.0**-20, 1e-30, 100.0, 800.0]),
).map(FLOAT.type)


@st.composite
def near_ties(draw):
    """Survivors of the sum S, and others within one of the thresholds that survivors and others make."""
    epsilon = draw(epsilons)
    num_categories = draw(st.sampled_from(SIZES))
    e1 = own_odds(epsilon)
    size = draw(st.integers(1, int(math.log2(LARGEST)))) if draw(st.booleans()) else 10
    limit = min(2**size, LARGEST) // num_categories
    number = draw(st.integers(1, num_categories - 1))
    counts = draw(st.lists(st.integers(0, limit), min_size=number, max_size=number))
    while len(counts) < num_categories:
        tau = math.floor(Fraction(sum(counts)) / (e1 + len(counts)))
        counts.append(min(max(tau + draw(st.integers(-1, 1)), 0), limit))
    if sum(counts) == 0:
        counts[0] = 1
    return counts, epsilon


@pytest.mark.full
@given(near_ties())
@example(([1, 3], FLOAT.type(math.log(3))))
@example(([3, 3, 2, 0, 0, 0, 0], FLOAT.type(math.log(2))))
@example(([LARGEST - 6, 1, 1, 1, 1, 1, 1], FLOAT.type(1e-30)))
@example(([LARGEST // 2, LARGEST // 2 + 1], FLOAT.type(1e-12)))
def test_near_ties_are_settled_as_exact_arithmetic_does(case):
    counts, epsilon = case
    array = np.array(counts, INT)
    newton, sort = (rrjax.mle_star(array, epsilon, solver=s) for s in ("newton", "sort"))
    assert (bits(newton) == bits(sort)).all()
    solution = exact_mle(counts, own_odds(epsilon))
    assert np.flatnonzero(newton).tolist() == sorted(solution[0])
    # With the dtype's own e^ε − 1 the error is that of one division and its two roundings.
    assert total_variation(newton, exact_theta(counts, solution)) <= 2 * ULP

    clipped = rrjax.inv_n(array, epsilon)
    active, _, _ = exact_inv_n(counts, own_odds(epsilon))
    assert np.flatnonzero(clipped).tolist() == sorted(active)

    newton, sort = (rrjax.inv_p(array, epsilon, solver=s) for s in ("newton", "sort"))
    assert (bits(newton) == bits(sort)).all()


@pytest.mark.long
@given(
    st.sampled_from(SIZES).flatmap(lambda k: st.lists(st.integers(0, LARGEST // k), min_size=k, max_size=k)),
    epsilons,
)
def test_any_counts_give_the_exact_support_and_the_same_bits(counts, epsilon):
    if sum(counts) == 0:
        counts[-1] = 1
    array = np.array(counts, INT)
    newton, sort = (rrjax.mle_star(array, epsilon, solver=s) for s in ("newton", "sort"))
    assert (bits(newton) == bits(sort)).all()
    assert np.flatnonzero(newton).tolist() == sorted(exact_mle(counts, own_odds(epsilon))[0])


def adversary(num_categories):
    """Counts that double, after which a plain Newton start drops one category a pass."""
    return [min(2**i, LARGEST // num_categories) for i in range(num_categories)]


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", [INT, FLOAT], ids=["integers", "weights"])
def test_many_newton_passes_end_where_sorting_ends(epsilon, kind):
    counts = adversary(33)
    newton, sort = (np.asarray(rrjax.mle_star(np.array(counts, kind), epsilon, solver=s)) for s in ("newton", "sort"))
    exact = exact_theta(counts, exact_mle(counts, true_odds(epsilon)))
    for theta in (newton, sort):
        assert total_variation(theta, exact) <= 4 * ULP * (1 + 33 / math.expm1(epsilon)) ** (kind == FLOAT)


@pytest.mark.long
def test_solvers_agree_on_weights():
    for seed in range(30):
        epsilon = 10 ** np.random.default_rng(seed).uniform(-1, 1)
        weights = collect(seed, 33, 1000, epsilon) / 3
        for function in (rrjax.mle_star, rrjax.inv_p):
            newton, sort = (np.asarray(function(weights, epsilon, solver=s)) for s in ("newton", "sort"))
            np.testing.assert_allclose(newton, sort, rtol=0, atol=4 * ULP * (1 + 33 / math.expm1(epsilon)))


BIG = 1_423_000
CASES = [(10**6, 0.5), (10**6, 4.0), (10**8, 1.0), (2**31 - 1, 8.0)]
CASES += [(2**53 + 1, 1.0), (2**62, 4.0)] if X64 else []


@pytest.mark.full
def test_more_than_a_million_categories():
    # Published float64 code is off by 1.8e-10 here; shares in float32 got 37 categories wrong.
    for num_users, epsilon in CASES:
        epsilon = FLOAT.type(epsilon)
        counts = collect(0, BIG, num_users, epsilon)
        newton, sort = (np.asarray(rrjax.mle_star(counts, epsilon, solver=s)) for s in ("newton", "sort"))
        assert (bits(newton) == bits(sort)).all()
        support, _ = big_mle(counts, own_odds(epsilon))
        assert ((newton > 0) == support).all()
        _, exact = big_mle(counts, true_odds(epsilon))
        assert np.abs(newton - exact).sum() / 2 <= (1e-14 if X64 else 1e-7)
        if num_users <= 10**8:
            weighted = np.asarray(rrjax.mle_star(counts.astype(FLOAT), epsilon))
            # Counts up to 2^24 are exact floats; S, τ and c − τ round, and errors of S/m grow by K/e1.
            spread = 1 + float(np.count_nonzero(support) / own_odds(epsilon))
            assert np.abs(weighted - exact).sum() / 2 <= 4 * ULP * spread


# --- The way of GPUs and TPUs, taken on the platform at hand --------------------------------------------------------

SOLVES = {"mle_star": closed_form._solve_mle, "inv_p": closed_form._solve_projected}
every_solve = pytest.mark.parametrize("name", SOLVES)


def solved(name):
    return elsewhere(functools.partial(SOLVES[name], solver="newton"))


def solved_as_many(name):
    """The same; few categories are searched as many are."""

    def of_many(counts, epsilon):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(water_filling, "MANY_CATEGORIES", 1)
            return solved(name)(counts, epsilon)

    return of_many


ACCELERATED = {name: jax.jit(solved_as_many(name)) for name in SOLVES}


def rules(counts, epsilon):
    counts = jnp.asarray(counts)
    e1 = expm1_epsilon(jnp.asarray(epsilon, FLOAT))
    return water_filling.Likelihood(e1), water_filling.Projection.of(jnp.sum(counts), counts.shape[0], e1)


def check_the_other_way(counts, epsilon):
    counts, epsilon = np.array(counts, INT), FLOAT.type(epsilon)
    for name, forced in ACCELERATED.items():
        assert (bits(forced(counts, epsilon)) == bits(getattr(rrjax, name)(counts, epsilon))).all()


@pytest.mark.long
@every_solve
def test_accelerators_look_at_many_counts_twice_more(name):
    """A CPU has the program of both, of which it takes the one that it is, so that it can be exported."""

    def passes(function, size):
        given = jnp.ones(size, INT), jnp.asarray(1, FLOAT)
        return str(jax.make_jaxpr(function)(*given)).count(" reduce[")

    here, there = functools.partial(SOLVES[name], solver="newton"), solved(name)
    few = passes(here, MANY_CATEGORIES - 1)
    assert passes(there, MANY_CATEGORIES - 1) == few
    # Two looks before the loop and one in it, in place of a turn; here a turn, too.
    assert passes(there, MANY_CATEGORIES) == few + 2
    assert passes(here, MANY_CATEGORIES) == few + 3


@pytest.mark.full
@given(near_ties())
@example(([1, 3], FLOAT.type(math.log(3))))
@example(([3, 3, 2, 0, 0, 0, 0], FLOAT.type(math.log(2))))
@example(([LARGEST - 6, 1, 1, 1, 1, 1, 1], FLOAT.type(1e-30)))
@example(([LARGEST // 2, LARGEST // 2 + 1], FLOAT.type(1e-12)))
@example(([LARGEST, 0], FLOAT.type(800)))
@example(([0, 1], FLOAT.type(1e-37)))
@example(([5] * 33, FLOAT.type(0.1)))
@example(([1, 0, 1, 0, 1, 0, 0], FLOAT.type(4)))
def test_the_way_of_accelerators_gives_the_same_bits(case):
    check_the_other_way(*case)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 10.0])
def test_so_it_does_where_a_pass_drops_one_category(epsilon):
    check_the_other_way(adversary(33), epsilon)


@pytest.mark.long
@pytest.mark.parametrize("num_categories", [10_000, 100_000])
def test_so_it_does_for_many_categories(num_categories):
    for seed, (num_users, epsilon, exponent) in enumerate(
        [(10**3, 0.1, 1.3), (10**6, 4.0, 1.3), (10**8, 0.5, 0.01), (LARGEST, 0.1, 0.5), (LARGEST, 8.0, 2.0)]
    ):
        check_the_other_way(collect(seed, num_categories, num_users, epsilon, exponent), epsilon)


@pytest.mark.full
@every_solve
def test_so_it_does_in_a_batch_on_a_mesh_and_for_nonsense(name):
    good = np.stack([collect(seed, 33, 10**seed, 1.0) for seed in range(1, 6)])
    nonsense = np.zeros((3, 33), INT)
    nonsense[0, 4], nonsense[1, 3:5] = -1, LARGEST
    counts, epsilons = np.concatenate([good, nonsense]), np.geomspace(1e-3, 20, 8).astype(FLOAT)
    expected = jax.vmap(getattr(rrjax, name))(counts, epsilons)
    assert np.isnan(expected).any(axis=1).tolist() == [False] * 5 + [True] * 3
    batched = jax.vmap(solved_as_many(name))
    np.testing.assert_array_equal(bits(jax.jit(batched)(counts, epsilons)), bits(expected))
    for kind in (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit):
        mesh = jax.make_mesh((1,), ("x",), axis_types=(kind,))
        every = jax.sharding.PartitionSpec("x")
        spread = jax.device_put((counts, epsilons), jax.sharding.NamedSharding(mesh, every))
        sharded = jax.shard_map(batched, mesh=mesh, in_specs=every, out_specs=every, check_vma=True)
        np.testing.assert_array_equal(bits(jax.jit(sharded)(*spread)), bits(expected))
        np.testing.assert_array_equal(bits(jax.jit(batched)(*spread)), bits(expected))


@pytest.mark.long
def test_it_has_the_same_derivatives():
    counts = collect(0, 33, 10_000, 1.0)
    forced = closed_form.differentiable(solved_as_many("mle_star"), closed_form.mle_on_support)
    found, expected = (
        jax.grad(lambda e, f=f: jnp.sum(f(jnp.asarray(counts), e) ** 2))(FLOAT.type(1.0))
        for f in (forced, rrjax.mle_star)
    )
    assert found == expected != 0


@pytest.mark.full
@pytest.mark.parametrize("num_categories", [100, 10_000])
def test_looking_ahead_ends_at_the_threshold_and_never_above(num_categories):
    raised, ahead = jax.jit(water_filling._raised), jax.jit(water_filling._ahead)
    searched = jax.jit(water_filling._newton_integers)
    looks = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        num_users, epsilon = int(10 ** rng.uniform(3, 8)), FLOAT.type(10 ** rng.uniform(-1, 1.08))
        counts = jnp.asarray(collect(seed, num_categories, num_users, epsilon, rng.uniform(0, 2)))
        for rule in rules(counts, epsilon):
            start = rule.below(jnp.sum(counts), jnp.asarray(num_categories, INT))
            level, threshold = raised(counts, rule, start), searched(counts, rule, start)[0].level
            assert start <= level <= threshold
            state = water_filling.from_below(level, jnp.zeros((), FLOAT), jnp.zeros((), INT))
            looks.append(0)
            while state[1].level > state[0]:
                least, state = state[1].level, ahead(counts, rule, state)
                assert least <= state[0] <= state[1].level <= threshold
                looks[-1] += 1
            assert state[0] == threshold
    # Nine of ten need one look, and all but one in a hundred two at most, less five standard errors of 400 problems.
    assert np.mean(np.array(looks) == 1) >= 0.825
    assert np.mean(np.array(looks) <= 2) >= 0.965


@pytest.mark.long
@every_solve
@pytest.mark.parametrize("num_categories", [MANY_CATEGORIES - 1, MANY_CATEGORIES, 10_000])
def test_weights_have_the_same_estimate_on_accelerators(name, num_categories):
    forced = jax.jit(jax.vmap(solved(name)))
    rng = np.random.default_rng(0)
    settings = [(10**3, 0.1, 1.3), (10**6, 4.0, 1.3), (10**8, 0.5, 0.01), (10**7, 8.0, 2.0)]
    counts = np.stack([collect(seed, num_categories, *setting) for seed, setting in enumerate(settings)])
    weights = (counts * rng.uniform(0.5, 1.5, counts.shape)).astype(FLOAT)
    epsilons = np.array([epsilon for _, epsilon, _ in settings], FLOAT)
    bad = weights[1].copy()
    bad[3] = np.nan
    given = np.stack([*weights / weights.max(axis=1, keepdims=True), bad, 0 * weights[0], 0 * weights[0] - 1])
    found = np.asarray(forced(given, np.append(epsilons, np.ones(3, FLOAT))))
    assert np.isnan(found).all(axis=1).tolist() == [False] * 4 + [True] * 3
    for theta, row, epsilon in zip(found, weights, epsilons, strict=False):
        expected = np.asarray(getattr(rrjax, name)(row, epsilon))
        spread = 1 + float(np.count_nonzero(expected) / own_odds(epsilon))
        assert np.abs(theta - expected).sum() / 2 <= 8 * ULP * spread


@every_solve
@pytest.mark.parametrize("num_categories", [7, MANY_CATEGORIES])
def test_weights_are_kept_on_accelerators_where_the_rise_is_lost_in_the_level(name, num_categories):
    # Without it no weight was above the threshold, and the estimate was NaN.
    forced = jax.jit(solved(name))
    rng = np.random.default_rng(1)
    equal, drawn = np.ones(num_categories), rng.uniform(0.25, 0.75, num_categories)
    ordered = np.arange(num_categories) / num_categories
    for weights in (equal, drawn, ordered):
        for epsilon in (1e-30, 1e-12, 1e-9, 1e-7, 1e-6):
            given = weights.astype(FLOAT), FLOAT.type(epsilon)
            found, expected = forced(*given), getattr(rrjax, name)(*given)
            assert np.flatnonzero(found).tolist() == np.flatnonzero(expected).tolist()
            assert abs(float(jnp.sum(found)) - 1) <= num_categories * ULP


@pytest.mark.long
@every_solve
def test_weights_of_a_symbolic_number_of_categories_can_be_exported(name):
    (size,) = jax.export.symbolic_shape("k", constraints=["k >= 2"])
    exported = jax.export.export(jax.jit(lambda weights: getattr(rrjax, name)(weights, FLOAT.type(1.0))))
    program = exported(jax.ShapeDtypeStruct((size,), FLOAT))
    weights = np.arange(1, 10).astype(FLOAT)
    np.testing.assert_allclose(program.call(weights), getattr(rrjax, name)(weights, 1.0), atol=4 * ULP)


@pytest.mark.long
def test_a_program_that_is_exported_for_a_gpu_is_that_of_the_gpu():
    """On a host without one: the steps ahead of the loop, which a CPU does not take, are in the program."""

    def programs(number):
        counts = np.zeros(number, np.int32)
        return str(jax.make_jaxpr(lambda counts: rrjax.mle_star(counts, 1.0))(counts))

    assert "platform_index" in programs(MANY_CATEGORIES)
    assert "platform_index" not in programs(MANY_CATEGORIES - 1)
    counts = np.arange(MANY_CATEGORIES, dtype=np.int32)
    exported = jax.export.export(jax.jit(lambda counts: rrjax.mle_star(counts, 1.0)), platforms=["cpu", "cuda"])(counts)
    np.testing.assert_array_equal(exported.call(counts), rrjax.mle_star(counts, 1.0))
