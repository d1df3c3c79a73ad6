r"""Exact tails of a sum of two binomial variables: the count of a category in a fixed population.

Of N users n hold the category; X = Binomial(n, a) + Binomial(N − n, b). With the generating function G,

    P(X ≥ c) = 1/(2π) ∫ G(z)·z^−c / (1 − 1/z) dφ,    z = e^(λ + iφ), any λ > 0.

At the λ where the integrand is least on the real axis it falls off like a normal density along φ, so the trapezoidal
rule of a fixed number of points is exact to the dtype: no convolution, no loop over anything. Everything is computed
relative to that point and to the mean of X, so that no large numbers are subtracted.

References:
    Trefethen and Weideman, "The exponentially convergent trapezoidal rule", 2014; Daniels, "Tail probability
    approximations", 1987, for the contour.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.special import exp_minus, log1p_minus

_POINTS = {"float32": 24, "float64": 64}
_REACH = {"float32": 5.5, "float64": 8.6}
"""Standard deviations of φ beyond which nothing is left."""
_LEAST, _MOST = 1e-30, 45.0
"""Bounds of λ; e^λ is at most the largest count over the smallest probability."""
_NEWTON = 12
_SECANT = 14


class Mixture(NamedTuple):
    """Users of two kinds, and how often one of each is counted.

    Attributes:
        excess: `[K]`, c − N·b, accurate to the dtype.
        total: Scalar, N.
        high: Scalar, a: of a user who holds the category; the larger or the smaller one.
        low: Scalar, b: of one who does not.
        step: Scalar, a − b.
    """

    excess: Float[Array, " K"]
    total: Float[Array, ""]
    high: Float[Array, ""]
    low: Float[Array, ""]
    step: Float[Array, ""]


def log_upper_tail(count: Float[Array, " K"], holders: Float[Array, " K"], law: Mixture) -> Float[Array, " K"]:
    """Logarithm of P(X ≥ count) where `holders` of all users hold the category.

    Args:
        count: `[K]`, from 1 to N − 1.
        holders: `[K]`, from 0 to N; need not be whole.
        law: The others.

    Returns:
        `[K]`; a tail from one half down to 1e-8 to 5e-3 of itself (float32), one down to 1e-30 to 1e-8 (float64), at
        common levels a hundred times better. Above one half it loses digits, but stays above it.
    """
    dtype = count.dtype
    others = law.total - holders
    above = law.excess - holders * law.step  # c − E X

    def tilted(level):
        rise = jnp.expm1(level)
        return tuple(p * (1 + rise) / (1 + p * rise) for p in (law.high, law.low))

    def slopes(level):
        """First and second derivative of the logarithm of the integrand, in λ."""
        first, second = tilted(level)
        pole = 1 / jnp.expm1(level)
        slope = holders * (first - law.high) + others * (second - law.low) - above - pole
        spread = holders * first * (1 - first) + others * second * (1 - second)
        return slope, spread, spread + pole * (1 + pole)

    variance = holders * law.high * (1 - law.high) + others * law.low * (1 - law.low)
    # Where the normal approximation has it: λ·variance − above − 1/λ = 0.
    start = (above + jnp.sqrt(above**2 + 4 * variance)) / (2 * variance)
    start = jnp.where(above < 0, 2 / (jnp.sqrt(above**2 + 4 * variance) - above), start)

    def improve(_, level):
        slope, _, curvature = slopes(level)
        # In log λ, at most a factor of e a step.
        return jnp.clip(level * jnp.exp(jnp.clip(-slope / (curvature * level), -1, 1)), _LEAST, _MOST)

    level = lax.fori_loop(0, _NEWTON, improve, jnp.clip(start, _LEAST, _MOST))
    _, spread, _ = slopes(level)
    rise = jnp.expm1(level)
    peak = holders * log1p_minus(law.high * rise) + others * log1p_minus(law.low * rise)
    # K(λ) − c·λ = Σ n·(log(1 + p·x) − p·x) + (E X − c)·x + c·(x − λ), x = e^λ − 1.
    peak = peak - above * rise + count * exp_minus(level)
    first, second = tilted(level)
    points = _POINTS[dtype.name]
    width = jnp.minimum(_REACH[dtype.name] / jnp.sqrt(spread), math.pi) / points

    def add(index, total):
        angle = width * index.astype(dtype)
        size = jnp.zeros_like(angle)
        turn = (holders * first + others * second - count) * angle
        sine, half = jnp.sin(angle), jnp.sin(angle / 2) ** 2
        for number, p in ((holders, first), (others, second)):
            # log(1 + p·(e^iφ − 1)) − i·p·φ
            size = size + number * jnp.log1p(-4 * p * (1 - p) * half) / 2
            turn = turn + number * (jnp.arctan2(p * sine, 1 - 2 * p * half) - p * angle)
        # 1/(1 − 1/z), z = e^λ·e^iφ
        fall = jnp.exp(-level)
        real, imaginary = -jnp.expm1(-level) + 2 * fall * half, fall * sine
        pole = (real * jnp.cos(turn) + imaginary * jnp.sin(turn)) / (real**2 + imaginary**2)
        # Ends of the period count half: they are the same point.
        weight = jnp.where((index == 0) | (index == points), 0.5, 1.0).astype(dtype)
        return total + weight * jnp.exp(size) * pole

    total = lax.fori_loop(0, points + 1, add, jnp.zeros_like(level))
    return peak + jnp.log(jnp.maximum(total, jnp.finfo(dtype).tiny) * width / math.pi)


def fewest_holders(count: Float[Array, " K"], law: Mixture, log_level: Float[Array, ""]) -> Float[Array, " K"]:
    """The smallest whole number of holders with which P(X ≥ count) exceeds a small level: an exact lower limit.

    Args:
        count: `[K]`, 0, 1, … N.
        law: With a > b.
        log_level: Logarithm of the level, below log ½.

    Returns:
        `[K]`, whole, from 0 to N. Rounding of the tail may make it one too small where the tail is at the level within
        that rounding: towards the wider side.
    """
    total = law.total
    inner = (count > 0) & (count < total)
    c = jnp.where(inner, count, jnp.minimum(1.0, total / 2))
    safe = law._replace(excess=jnp.where(inner, law.excess, c - total * law.low))

    def error(holders):
        tail = log_upper_tail(c, holders, safe)
        # In normal deviates the tail is nearly straight; the signed root of its logarithm is near enough.
        return jnp.sqrt(jnp.maximum(-log_level, 0)) - jnp.sqrt(jnp.maximum(-tail, 0))

    # The mean of X at the upper end is the count: half of the tail, above any level.
    bottom, top = jnp.zeros_like(c), jnp.clip(safe.excess / law.step, 0, total)
    at_bottom, at_top = error(bottom), jnp.maximum(error(top), 1e-3)

    def narrow(_, state):
        low, high, at_low, at_high, last = state
        span = at_high - at_low
        part = jnp.where(span > 0, -at_low / jnp.where(span > 0, span, 1), 0.5)
        middle = low + (high - low) * jnp.clip(part, 0.01, 0.99)
        value = error(middle)
        up = value > 0
        # The Illinois rule: an end that stays twice in a row counts half.
        at_low = jnp.where(up, jnp.where(last > 0, at_low / 2, at_low), value)
        at_high = jnp.where(up, value, jnp.where(last < 0, at_high / 2, at_high))
        return (
            jnp.where(up, low, middle),
            jnp.where(up, middle, high),
            at_low,
            at_high,
            jnp.where(up, 1, -1).astype(last.dtype),
        )

    zero = jnp.zeros(c.shape, jnp.int32)
    low, high, *_ = lax.fori_loop(0, _SECANT, narrow, (bottom, top, at_bottom, at_top, zero))
    found = jnp.where(at_bottom > 0, 0, jnp.ceil(low - 1e-3 * jnp.maximum(high - low, 1)))
    # All reports name it: a^n·b^(N−n).
    everyone = jnp.ceil((log_level - total * jnp.log(law.low)) / (jnp.log(law.high) - jnp.log(law.low)) - 1e-3)
    found = jnp.where(count <= 0, 0, jnp.where(count >= total, everyone, found))
    return jnp.clip(found, 0, total)
