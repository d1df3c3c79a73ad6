"""Support and bits of both solvers on integer counts, with near-ties built on purpose."""

import math
from fractions import Fraction

import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64, bits, collect, own_odds, true_odds
from hypothesis import example, given
from hypothesis import strategies as st
from reference import big_mle, exact_inv_n, exact_mle, exact_theta, total_variation

import rrjax

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


@pytest.mark.long
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


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", [INT, FLOAT], ids=["integers", "weights"])
def test_many_newton_passes_end_where_sorting_ends(epsilon, kind):
    counts = adversary(33)
    newton, sort = (np.asarray(rrjax.mle_star(np.array(counts, kind), epsilon, solver=s)) for s in ("newton", "sort"))
    exact = exact_theta(counts, exact_mle(counts, true_odds(epsilon)))
    for theta in (newton, sort):
        assert total_variation(theta, exact) <= 4 * ULP * (1 + 33 / math.expm1(epsilon)) ** (kind == FLOAT)


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


@pytest.mark.long
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
