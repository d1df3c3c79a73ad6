r"""Exact binomial tails and their inverses, in logarithms, for vectors, without a loop over anything.

With p̂ = c/n, and p a distance w below it in log odds, p/(1−p) = e^−w · p̂/(1−p̂):

    P(X ≥ c) = pmf(c) · c · ∫₀^∞ exp(g(v)) dv,
    g(v) = −c·v + (n−c)·log(1 + o·(1 − e^−v)),    o = p/(1−p),

from the beta integral by t = p·e^−v. For w > 0 the integrand falls from one, its logarithm is concave, and the point
beyond which nothing is left is found by Newton steps that end on its far side; so a Gauss–Legendre rule of fixed size
is exact to the dtype. In terms of w neither −log pmf nor g has a difference of large numbers.

Counts may be as large as an integer of the dtype, and probabilities as small as e^−(largest float).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from rrjax.numerics.special import exp_minus, log1p_minus, stirling_error_of_whole

_STEPS = 4
"""Halley steps to an inverse. Each triples the digits of the start, which float32 has few of at 10⁹ trials."""


class Tail(NamedTuple):
    """An upper tail and how it falls with the distance."""

    log_probability: Float[Array, "*s"]
    slope: Float[Array, "*s"]
    """−d log P / dw, positive."""
    rest: Float[Array, "*s"]
    """1 − p."""


def upper_tail(count: Float[Array, "*s"], other: Float[Array, "*s"], distance: Float[Array, "*s"]) -> Tail:
    """P(X ≥ count) of a binomial law with count + other trials."""
    trials = count + other
    share = count / trials
    # 1 − p = (n − c) / (n + c·expm1(−w)), and o = (c / (n − c))·e^−w.
    fall = -jnp.expm1(-distance)
    rest = other / (trials - count * fall)
    odds = count / other * jnp.exp(-distance)
    length = _integral(count, other, odds, count * fall)
    # The deviance with respect to whichever of success and failure is rarer, so that nothing cancels.
    rare = share < 0.5
    part, way = jnp.where(rare, share, other / trials), jnp.where(rare, -distance, distance)
    shift = part * jnp.expm1(jnp.clip(way, -1, 1))
    near = log1p_minus(shift) + part * exp_minus(way)
    far = jnp.logaddexp(jnp.log1p(-part), jnp.log(part) + way) - part * way
    divergence = trials * jnp.where(jnp.abs(way) < 1, near, far)
    at_share = 0.5 * jnp.log(count / other * (trials / (2 * math.pi)))
    of_trials, of_count, of_other = (stirling_error_of_whole(whole) for whole in (trials, count, other))
    at_share = at_share + (of_trials - of_count - of_other)
    return Tail(at_share + jnp.log(length) - divergence, rest / length, rest)


def log_survival(
    count: Float[Array, "*s"],
    other: Float[Array, "*s"],
    excess: Float[Array, "*s"],
    probability: Float[Array, ""],
) -> Float[Array, "*s"]:
    """Logarithm of P(X ≥ count) for X binomial with count + other trials."""
    # Where the count is below the mean, the complement: other + 1 failures or more.
    up = excess > 0
    high, low = jnp.where(up, count, other + 1), jnp.where(up, other, count - 1)
    chance = jnp.where(up, probability, 1 - probability)
    above = jnp.where(up, excess, 1 - excess)
    inner = (high > 0) & (low > 0)
    safe_low = jnp.where(inner, low, 1)
    ratio = jnp.where(inner, above, 1) / safe_low
    # log(1 + ratio/chance), where the quotient may be beyond the dtype.
    distance = jnp.where(ratio < chance, jnp.log1p(ratio / chance), jnp.log(ratio + chance) - jnp.log(chance))
    tail = upper_tail(jnp.where(inner, high, 1), safe_low, distance)
    all_of_them = high * jnp.where(up, jnp.log(probability), jnp.log1p(-probability))
    log_high = jnp.where(inner, tail.log_probability, all_of_them)
    return jnp.where(count <= 0, 0, jnp.where(up, log_high, log_complement(log_high)))


def log_complement(log_probability: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(1 − P)."""
    small = log_probability < -math.log(2)
    near_zero = jnp.log(-jnp.expm1(jnp.where(small, -1, jnp.minimum(log_probability, 0))))
    return jnp.where(small, jnp.log1p(-jnp.exp(jnp.where(small, log_probability, -1))), near_zero)


def odds_of_tail(
    count: Float[Array, "*s"], other: Float[Array, "*s"], log_level: Float[Array, ""]
) -> Float[Array, "*s"]:
    """The odds p/(1 − p) at which P(X ≥ count) is a small level: the lower Clopper–Pearson limit.

    References:
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934.
    """
    inner = (count > 0) & (other > 0)
    c, rest = jnp.where(inner, count, 1), jnp.where(inner, other, 1)

    def improve(_, distance):
        tail = upper_tail(c, rest, distance)
        # Halley's step on log P, whose second derivative is known: P' is a power of p times one of 1 − p.
        error = tail.log_probability - log_level
        power = tail.rest * c * (-jnp.expm1(-distance) - jnp.exp(-distance) / rest)
        step = error / (tail.slope - error * (power - tail.slope) / 2)
        return jnp.maximum(distance + step, distance / 8)

    distance = lax.fori_loop(0, _STEPS, improve, _start(c, rest, log_level))
    all_of_them = 1 / jnp.expm1(-log_level / jnp.maximum(count, 1))
    return jnp.where(count <= 0, 0, jnp.where(other <= 0, all_of_them, c / rest * jnp.exp(-distance)))


def _start(count, other, log_level):
    """The distance from the Wilson–Hilferty approximation of the beta law."""
    z = -ndtri(jnp.exp(log_level))
    # The cube root x of the F quantile solves ((1 − a)·x − (1 − b)) / sqrt(a·x² + b) = z.
    a, b = 1 / (9 * count), 1 / (9 * (other + 1))
    z = jnp.minimum(z, 0.9 * (1 - a) / jnp.sqrt(a))
    lead = (1 - a) ** 2 - z**2 * a
    middle = (1 - a) * (1 - b)
    x = (middle + jnp.sqrt(jnp.maximum(middle**2 - lead * ((1 - b) ** 2 - z**2 * b), 0))) / lead
    # p/(1 − p) = c / ((n − c + 1)·F), so w = log(F·(n − c + 1)/(n − c)).
    distance = 3 * jnp.log(x) + jnp.log1p(1 / other)
    return jnp.maximum(distance, 1e-3 * jnp.sqrt(1 / count + 1 / other))


def _integral(count, other, odds, slope):
    """∫ exp(g) over v > 0, where g'(0) = −slope."""
    dtype = count.dtype
    reach = {"float32": 17.0, "float64": 37.0}[dtype.name]

    def g(v):
        rise = -jnp.expm1(-v)
        return -slope * v + other * (log1p_minus(odds * rise) - odds * exp_minus(-v))

    def g_slope(v):
        fallen = jnp.exp(-v)
        return -count + other * odds * fallen / (1 + odds * -jnp.expm1(-v))

    curvature = other * odds * (1 + odds)
    end = 2 * reach / (slope + jnp.sqrt(slope**2 + 2 * curvature * reach))
    for _ in range(3):
        end = end - (g(end) + reach) / g_slope(end)
    rule = quadrature_rule({"float32": 16, "float64": 32}[dtype.name])
    nodes, weights = (jnp.asarray(each, dtype) for each in rule)

    def add(index, total):
        return total + weights[index] * jnp.exp(g(end * nodes[index]))

    return end * lax.fori_loop(0, len(nodes), add, jnp.zeros_like(end))


def quadrature_rule(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss–Legendre quadrature on (0, 1), denser towards zero."""
    x, weights = np.polynomial.legendre.leggauss(number)
    x = (x + 1) / 2
    return x**2, weights * x
