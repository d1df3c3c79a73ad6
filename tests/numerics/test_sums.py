"""Odds, accurate sums and exact products."""

import math
import random
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64
from jax.test_util import check_grads

from rrjax.numerics.sums import _sum_at_once, accurate_sum, expm1_epsilon, odds_of_rates, ratio, split_product

LARGEST_EXPONENT = 709 if jax.config.jax_enable_x64 else 88  # e to this is still a float


def test_odds_are_within_an_ulp_or_so():
    rng = np.random.default_rng(0)
    epsilon = np.concatenate(
        [10 ** rng.uniform(-30, 1.9, 3000), np.log(np.arange(2, 60)), [1e-37, 88.0, 0.34657359]]
    ).astype(FLOAT)
    computed = np.asarray(jax.jit(jax.vmap(expm1_epsilon))(epsilon))
    with mpmath.workdps(40):
        for e, value in zip(epsilon.tolist(), computed.tolist(), strict=True):
            exact = mpmath.expm1(e)
            # Half an ulp of the result, and the parts that were rounded before the last addition.
            assert abs(value - exact) <= 1.5 * ULP * exact, e


@pytest.mark.long
def test_odds_are_capped_and_poisoned():
    cap = LARGEST_EXPONENT
    top = float(expm1_epsilon(jnp.asarray(cap, FLOAT)))
    assert np.isfinite(top)
    largest = odds_of_rates(jnp.asarray([cap + 1, np.inf], FLOAT))
    assert (1 / (8 * largest) > np.finfo(FLOAT).tiny).all()
    assert jnp.isnan(odds_of_rates(jnp.asarray([0.0, np.nan], FLOAT))).all()
    for epsilon in (cap + 1, 800.0, np.inf):
        assert float(expm1_epsilon(jnp.asarray(epsilon, FLOAT))) == top
    for epsilon in (0.0, -1.0, -np.inf, np.nan):
        assert np.isnan(expm1_epsilon(jnp.asarray(epsilon, FLOAT)))


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-3, 0.7, 3.0])
def test_odds_have_the_derivative_of_the_exponential(epsilon):
    epsilon = FLOAT.type(epsilon)
    for derivative in (jax.grad(expm1_epsilon), jax.jacfwd(jax.jacrev(expm1_epsilon))):
        assert derivative(epsilon) == pytest.approx(np.exp(float(epsilon)), rel=3 * ULP)


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 257, pytest.param(100_000, marks=pytest.mark.long)])
def test_sums_are_accurate_at_any_length(size):
    rng = np.random.default_rng(size)
    for x in (rng.random(size), rng.standard_normal(size), 10 ** rng.uniform(-8, 3, size)):
        x = x.astype(FLOAT)
        exact = sum(map(Fraction, x.tolist()))
        bound = ULP * float(sum(abs(Fraction(v)) for v in x.tolist()))
        for way in (accurate_sum, _sum_at_once):  # the second is that of accelerators
            assert abs(Fraction(float(way(jnp.asarray(x)))) - exact) <= bound


def test_sums_cancel_exactly():
    big = 1 / ULP
    x = np.array([big, 1.0, -big, 1.0] * 40, FLOAT)
    assert float(accurate_sum(jnp.asarray(x))) == 80


def test_sums_of_infinities_and_nans():
    for value in (np.inf, -np.inf, np.nan):
        x = np.ones(40, FLOAT)
        x[17] = value
        np.testing.assert_equal(float(accurate_sum(jnp.asarray(x))), value)


def test_sums_have_the_derivatives_of_a_sum():
    x = np.random.default_rng(0).standard_normal(33).astype(FLOAT)
    np.testing.assert_array_equal(jax.grad(accurate_sum)(x), np.ones(33))
    np.testing.assert_array_equal(jax.hessian(accurate_sum)(x), np.zeros((33, 33)))
    if X64:
        check_grads(lambda x: accurate_sum(x**3), (x,), order=2)


def test_sums_are_the_same_in_a_batch():
    x = np.random.default_rng(0).standard_normal((5, 1000)).astype(FLOAT)
    loop = np.stack([accurate_sum(jnp.asarray(row)) for row in x])
    np.testing.assert_array_equal(jax.vmap(accurate_sum)(x), loop)


def test_products_are_split_exactly():
    rng = random.Random(0)
    bits = 62 if X64 else 31
    integers, factors = [0, 1, LARGEST, LARGEST, 3], [1.0, 1.0, 1.0, 2.0**-40, 0.5]
    factors = [float(FLOAT.type(f)) for f in factors]
    for _ in range(2000):
        integers.append(min(rng.randrange(2 ** rng.randint(0, bits)), LARGEST))
        exponent = rng.uniform(-85, 87) if rng.random() < 0.5 else rng.uniform(-15, 15)
        factors.append(float(FLOAT.type(np.exp(exponent))))
    split = jax.jit(jax.vmap(split_product))
    wholes, fractions, saturated = split(np.array(integers, INT), np.array(factors, FLOAT))
    word = 2 ** (64 if X64 else 32) - 1
    for integer, factor, whole, fraction, over in zip(
        integers, factors, wholes.tolist(), fractions.tolist(), saturated.tolist(), strict=True
    ):
        exact = Fraction(integer) * Fraction(factor)
        floor = exact.numerator // exact.denominator
        assert over == (floor > word)
        assert whole == min(floor, word)
        if not over:
            rest = exact - floor
            assert (fraction > 0) == (rest > 0)
            assert abs(Fraction(fraction) - rest) <= rest * Fraction(ULP)


@pytest.mark.long
@pytest.mark.parametrize("size", [8000, 16_384, 16_385, 1_423_000])
@pytest.mark.parametrize("share", [0.001, 0.3, 0.9])
def test_many_small_terms_beside_a_large_one(size, share):
    # Every addition to the large term leaves an error of the same sign.
    for place in (0, size // 2, size - 1):
        x = np.full(size, share / size, FLOAT)
        x[place] = 1 - share
        assert abs(float(accurate_sum(jnp.asarray(x))) - math.fsum(x.tolist())) <= ULP


def test_ratios_have_derivatives_where_the_square_is_beyond_the_dtype():
    """JAX's quotient rule lost one of two terms that cancel."""
    large = FLOAT.type(LARGEST_EXPONENT * 0.9)
    for first in (lambda x: ratio(jnp.exp(x), jnp.exp(x) + 3), jax.grad(lambda x: ratio(jnp.exp(x), jnp.exp(x) + 3))):
        assert abs(jax.grad(first)(large)) < 4 * ULP
    check_grads(lambda x, y: ratio(x, y), (FLOAT.type(1.5), FLOAT.type(0.7)), order=2, atol=0.01, rtol=0.01)
