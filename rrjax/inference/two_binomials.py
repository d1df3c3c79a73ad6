r"""Exact tails of a sum of two binomial variables: the count of a category in a fixed population.

Of N users n hold the category; X = Binomial(n, a) + Binomial(N − n, b). With the generating function G,

    P(X ≥ c) = 1/(2π) ∫ G(z)·z^−c / (1 − 1/z) dφ,    z = e^(λ + iφ), any λ > 0.

At the λ where the integrand is least on the real axis it falls off like a normal density along φ, so the trapezoidal
rule of a fixed number of points is exact to the dtype, without a convolution. Everything is computed relative to that
point and to the mean of X, whose distance from c is formed in integers. Subtracting large numbers as floats would lose
digits: at 10⁹ users a float32 is off by up to a tenth of a percent of the standard deviation of such a sum.

References:
    Trefethen and Weideman, "The exponentially convergent trapezoidal rule", 2014; Daniels, "Tail probability
    approximations", 1987, for the contour.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.special import exp_minus, log1p_minus
from rrjax.numerics.sums import split_product

NUM_POINTS = {"float32": 24, "float64": 64}
LARGEST_ANGLE = {"float32": 5.5, "float64": 8.6}
"""Half-width of the contour in standard deviations of φ; beyond it the integrand is below the rounding."""
SMALLEST_TILT = 1e-30
"""Smallest λ."""
NEWTON_STEPS = 32
ROUNDING_OF_TAIL = {"float32": 2e-4, "float64": 1e-8}
"""Relative tolerance: a tail that is below its level by less counts as above."""


class TwoKinds(NamedTuple):
    """Counts of users of two kinds, and the probabilities that a user of each is counted.

    Attributes:
        whole: `[K]`, integers: `whole` + `part` is c − N·b.
        part: Scalar, from −1 to 1.
        total: Scalar, N, an integer.
        high: Scalar, a: for a user with the category.
        low: Scalar, b: for a user without it; smaller, and positive.
        not_high: Scalar, 1 − a, positive, without cancellation.
        not_low: Scalar, 1 − b.
        step: Scalar, a − b.
    """

    whole: Int[Array, " K"]
    part: Float[Array, ""]
    total: Int[Array, ""]
    high: Float[Array, ""]
    low: Float[Array, ""]
    not_high: Float[Array, ""]
    not_low: Float[Array, ""]
    step: Float[Array, ""]

    def above(self, holders: Int[Array, " K"]) -> Float[Array, " K"]:
        """The distance c − E X, to the dtype, for a number of holders."""
        whole, part = beyond(holders, holders, self.step, self.not_high + self.low)
        # c − N·b − n·(a − b), and n − n·(a − b) is what was computed.
        whole = self.whole - (holders - whole).astype(self.whole.dtype)
        return whole.astype(part.dtype) + (self.part + part)


def beyond(
    count: Int[Array, "*s"], total: Int[Array, "*s"], chance: Float[Array, ""], rest: Float[Array, ""]
) -> tuple[Int[Array, "*s"], Float[Array, "*s"]]:
    """Count − total·chance, as an integer and a part from −1 to 1; `rest` is one minus the chance.

    A chance near one is known to its rounding alone, which a large total makes many users; its rest is known better.
    """
    small = chance <= 0.5
    whole, part, _ = split_product(total, jnp.where(small, chance, rest))
    whole = whole.astype(count.dtype)
    return jnp.where(small, count - whole, count - total + whole), jnp.where(small, -part, part)


def log_upper_tail(count: Int[Array, " K"], holders: Int[Array, " K"], law: TwoKinds) -> Float[Array, " K"]:
    """Logarithm of P(X ≥ count) if `holders` of all users hold the category."""
    dtype = law.step.dtype
    above = law.above(holders)
    sure = jnp.where(law.high > 0.5, holders, 0) + jnp.where(law.low > 0.5, law.total - holders, 0)
    sure = (sure - count).astype(dtype)  # reports of the likelier answer of each kind of user, less the count
    count, uncounted = count.astype(dtype), (law.total - count).astype(dtype)
    holders, others = holders.astype(dtype), (law.total - holders).astype(dtype)

    def tilted(level):
        """The probabilities under the tilted law, and their complements."""
        rise = jnp.expm1(level)
        high, low = 1 + law.high * rise, 1 + law.low * rise
        chances = law.high * (1 + rise) / high, law.low * (1 + rise) / low
        return chances, (law.not_high / high, law.not_low / low)

    def drift(level):
        """The mean of the tilted law minus c."""
        rise = jnp.expm1(level)
        first = law.high * law.not_high * rise / (1 + law.high * rise)
        second = law.low * law.not_low * rise / (1 + law.low * rise)
        return holders * first + others * second - above

    def slopes(level):
        """First and second derivative of the logarithm of the integrand, in λ."""
        (first, second), (not_first, not_second) = tilted(level)
        pole = 1 / jnp.expm1(level)
        spread = holders * first * not_first + others * second * not_second
        return drift(level) - pole, spread, spread + pole * (1 + pole)

    variance = holders * law.high * law.not_high + others * law.low * law.not_low
    # Newton starts at the λ of a Poisson law of this variance (the normal one where λ is small): with x = e^λ − 1, the
    # root of variance·x − above − 1/x = 0. From there each step reduces λ by one at least.
    start = (above + jnp.sqrt(above**2 + 4 * variance)) / (2 * variance)
    start = jnp.log1p(jnp.where(above < 0, 2 / (jnp.sqrt(above**2 + 4 * variance) - above), start))
    # At most the λ that moves the mean of N users of the rarer kind to the count.
    most = jnp.maximum(jnp.log(count / uncounted) + jnp.log(law.not_low / law.low), 0) + 2
    start = jnp.clip(start, SMALLEST_TILT, most)

    def improve(_, state):
        level, low, high = state
        slope, _, curvature = slopes(level)
        low, high = jnp.where(slope < 0, level, low), jnp.where(slope < 0, high, level)
        # Newton's step in log λ, and halving if it leaves the bracket: a tilted probability is a sigmoid.
        step = level * jnp.exp(jnp.clip(-slope / (curvature * level), -2, 2))
        return jnp.where((step > low) & (step < high), step, (low + high) / 2), low, high

    level, _, _ = lax.fori_loop(0, NEWTON_STEPS, improve, (start, jnp.full_like(start, SMALLEST_TILT), most))
    _, spread, _ = slopes(level)
    # K(λ) − c·λ = (E X − c)·λ + Σ n·[log(1 + p·x) − p·x + p·(x − λ)], x = e^λ − 1. With y = 1 − e^−λ, which is −x for
    # the other answer at −λ, log(1 + p·x) is λ + log(1 − (1 − p)·y), in which nothing cancels if p is near one.
    peak, plain = -above * level, sure * level
    for number, p, not_p in ((holders, law.high, law.not_high), (others, law.low, law.not_low)):
        sign = jnp.where(p > 0.5, -1, 1).astype(dtype)
        rarer, rise = jnp.minimum(p, not_p), sign * jnp.expm1(sign * level)
        peak = peak + number * (log1p_minus(sign * rarer * rise) + rarer * exp_minus(sign * level))
        plain = plain + number * jnp.log1p(sign * rarer * rise)
    # If e^λ is large, the terms of the first are large and cancel; those of the second are small.
    peak = jnp.where(level > 1, plain, peak)
    (first, second), (not_first, not_second) = tilted(level)
    points, eps = NUM_POINTS[dtype.name], jnp.finfo(dtype).eps
    distance = drift(level)
    width = jnp.minimum(LARGEST_ANGLE[dtype.name] / jnp.sqrt(spread), math.pi) / points

    def add(index, total):
        angle = width * index.astype(dtype)
        log_modulus = jnp.zeros_like(angle)
        phase = distance * angle
        sine, half = jnp.sin(angle), jnp.sin(angle / 2) ** 2
        for number, p, not_p in ((holders, first, not_first), (others, second, not_second)):
            # log(1 + p·(e^iφ − 1)) − i·p·φ; the modulus may be zero at φ = π.
            log_modulus = log_modulus + number * jnp.log1p(jnp.maximum(-4 * p * not_p * half, -1 + eps)) / 2
            sign, rarer = jnp.where(p > 0.5, -1, 1).astype(dtype), jnp.minimum(p, not_p)
            phase = phase + sign * number * (jnp.arctan2(rarer * sine, 1 - 2 * rarer * half) - rarer * angle)
        # 1/(1 − 1/z), z = e^λ·e^iφ
        inverse = jnp.exp(-level)
        real, imaginary = -jnp.expm1(-level) + 2 * inverse * half, inverse * sine
        pole = (real * jnp.cos(phase) + imaginary * jnp.sin(phase)) / (real**2 + imaginary**2)
        # Ends of the period count half: they are the same point.
        weight = jnp.where((index == 0) | (index == points), 0.5, 1.0).astype(dtype)
        return total + weight * jnp.exp(log_modulus) * pole

    total = lax.fori_loop(0, points + 1, add, jnp.zeros_like(level))
    return peak + jnp.log(jnp.maximum(total, jnp.finfo(dtype).tiny) * width / math.pi)


def fewest_holders(count: Int[Array, " K"], law: TwoKinds, log_level: Float[Array, ""]) -> Int[Array, " K"]:
    """The smallest whole number of holders with which P(X ≥ count) exceeds a small level: an exact lower limit."""
    total = law.total
    dtype = law.step.dtype
    size = total.astype(dtype)
    inner = (count > 0) & (count < total)
    c = jnp.where(inner, count, jnp.minimum(1, total // 2))
    safe = law._replace(whole=law.whole + (c - count))
    excess = safe.whole.astype(dtype) + law.part
    # With a mean of c or more the median is at least c, and the tail one half or more.
    most = excess / law.step
    # By Bernstein's inequality the tail is below the level if the mean is below c by this distance.
    most_of_variance = size * jnp.maximum(law.low * law.not_low, law.high * law.not_high)
    bernstein = -log_level / 3 + jnp.sqrt((log_level / 3) ** 2 - 2 * log_level * most_of_variance)
    margin = 1 + 8 * jnp.finfo(dtype).eps * (jnp.abs(most) + size)  # for the rounding of both
    top = _number(most + margin, total)
    bottom = jnp.minimum(_number((excess - bernstein) / law.step - margin, total), top) - 1

    def middle(low, high):
        return (low & high) + ((low ^ high) >> 1)  # for a sum that may wrap around

    def unfinished(span):
        low, high = span
        return jnp.any(middle(low, high) > low)

    def halve(span):
        low, high = span
        half = middle(low, high)
        tail = log_upper_tail(c, jnp.maximum(half, 0), safe)
        # A tail within rounding of the level counts as above: the wider side.
        above = ~(tail < log_level - ROUNDING_OF_TAIL[dtype.name])
        inside = half > low
        return jnp.where(inside & ~above, half, low), jnp.where(inside & above, half, high)

    _, fewest = lax.while_loop(unfinished, halve, with_sharding_of((bottom, top), law, log_level))
    # If all reports name the category, the tail is a^n·b^(N−n).
    everyone = jnp.ceil((log_level - size * jnp.log(law.low)) / (jnp.log(law.high) - jnp.log(law.low)) - 1e-3)
    fewest = jnp.where(count <= 0, 0, jnp.where(count >= total, _number(everyone, total), fewest))
    # If even one report that differs from its value is less likely than the level, the count is the limit.
    slips = jnp.log(size * jnp.maximum(law.not_high, law.low))
    return jnp.where(slips <= log_level, count, fewest)


def _number(x, total):
    """Rounds down to an integer from 0 to the total; any float is allowed."""
    size = total.astype(x.dtype)
    return jnp.where(x >= size, total, jnp.clip(x, 0, size * (1 - jnp.finfo(x.dtype).eps)).astype(total.dtype))
