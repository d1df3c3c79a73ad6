r"""Special functions without cancellation, and exact binomial tails with their inverses, elementwise.

Binomial probabilities in their saddle-point form: for whole n, k and p = k/n, log pmf = −½·log(2πnp(1−p)) + a sum of
`stirling_error` − n·(`deviance` or `log1p_minus`).

Tails, with p̂ = c/n, and p a distance w below it in log odds, p/(1−p) = e^−w · p̂/(1−p̂):

    P(X ≥ c) = pmf(c) · c · ∫₀^∞ exp(g(v)) dv,
    g(v) = −c·v + (n−c)·log(1 + o·(1 − e^−v)),    o = p/(1−p),

from the beta integral by t = p·e^−v. For w > 0 the integrand falls from one and its logarithm is concave. Newton steps
find a point beyond which the integral is negligible; so a Gauss–Legendre rule of fixed size is exact to the dtype. In
terms of w neither −log pmf nor g has a difference of large numbers.

Counts may be as large as an integer of the dtype, and probabilities as small as e^−(largest float).

Hypergeometric tails are a saddle-point form of the probability of the count itself, times a sum of ratios.
"""

from __future__ import annotations

import decimal
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from rrjax.numerics.sharding import take_at, with_sharding_of
from rrjax.numerics.sums import ratio

SERIES_BELOW = 0.4
"""Largest |x| for the series. Beyond it, the plain difference loses at most one digit."""
HALLEY_STEPS = 4
"""Number of steps to an inverse tail. Each triples the digits of the start, which are few in float32 at 10⁹ trials."""


def log1p_minus(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(1 + x) − x without cancellation, for x > −1."""
    s = x / (2 + x)
    square = s * s
    # log(1 + x) = 2·artanh(s), of which −x takes the first term to −x·s exactly.
    tail = jnp.zeros_like(x)
    for degree in range(13 if x.dtype == jnp.float32 else 27, 1, -2):
        tail = (tail + 1 / degree) * square
    series = 2 * s * tail - x * s
    # Not log1p, which XLA vectorizes with an error of a hundred units in the last place.
    return jnp.where(jnp.abs(x) < SERIES_BELOW, series, jnp.log(jnp.maximum(1 + x, 0)) - x)


def exp_minus(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """e^x − 1 − x without cancellation."""
    series = jnp.zeros_like(x)
    for degree in range(9 if x.dtype == jnp.float32 else 17, 1, -1):
        series = (series + 1 / math.factorial(degree)) * x
    return jnp.where(jnp.abs(x) < 0.5, series * x, jnp.expm1(x) - x)


def deviance(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """(1 + x)·log(1 + x) − x without cancellation, for x > −1. It is one at −1, and infinite below."""
    s = x / (2 + x)
    square = s * s
    # log(1 + x) = 2·artanh(s); the first term of its series combines with −x to x·s exactly.
    tail = square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square * (1 / 9 + square * (1 / 11 + square / 13)))))
    series = x * s + 2 * (1 + x) * s * tail
    direct = (1 + x) * jnp.log1p(jnp.maximum(x, -1)) - x
    return jnp.where(jnp.abs(x) < SERIES_BELOW, series, jnp.where(x > -1, direct, jnp.where(x == -1, 1, jnp.inf)))


def stirling_error(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The rest log x! − [½ log(2πx) + x log x − x], for whole x ≥ 1."""
    inverse = 1 / x
    return inverse * stirling_series(inverse * inverse)


def stirling_series(inverse_square: Any) -> Any:
    """The product x · `stirling_error(x)` by its series in 1/x², for arrays of NumPy or JAX."""
    return 1 / 12 - inverse_square * (1 / 360 - inverse_square * (1 / 1260 - inverse_square / 1680))


def _stirling_errors(number: int) -> list[float]:
    """Zero, then the errors of 1 … number − 1; in decimals, because lgamma in doubles loses a digit."""
    pi = decimal.Decimal("3.14159265358979323846264338327950288419717")
    with decimal.localcontext() as context:
        context.prec = 40
        errors = [0.0]
        for n in map(decimal.Decimal, range(1, number)):
            shape = (2 * pi * n).ln() / 2 + n * n.ln() - n
            errors.append(float(decimal.Decimal(math.factorial(int(n))).ln() - shape))
    return errors


_STIRLING_ERRORS = np.array(_stirling_errors(32))


def stirling_error_of_whole(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """`stirling_error` of whole x ≥ 0, to the dtype: from a table below 32."""
    table = jnp.asarray(_STIRLING_ERRORS, x.dtype)
    series = stirling_error(jnp.maximum(x, 1))
    small = take_at(table, jnp.clip(x, 0, 31).astype(jnp.int32)) + (series - lax.stop_gradient(series))
    return jnp.where(x < 32, small, series)


class Tail(NamedTuple):
    """An upper tail P at p, with its slope in the distance w."""

    log_probability: Float[Array, "*s"]
    slope: Float[Array, "*s"]  # −d log P / dw, positive
    failure: Float[Array, "*s"]  # 1 − p


def upper_tail(count: Float[Array, "*s"], other: Float[Array, "*s"], distance: Float[Array, "*s"]) -> Tail:
    """P(X ≥ count) of a binomial law with count + other trials, its log odds `distance` below those of count/trials."""
    trials = count + other
    share = count / trials
    # 1 − p = (n − c) / (n + c·expm1(−w)), and o = (c / (n − c))·e^−w.
    fall = -jnp.expm1(-distance)
    failure = other / (trials - count * fall)
    odds = count / other * jnp.exp(-distance)
    integral = _integral(count, other, odds, count * fall)
    # The deviance by the rarer of success and failure, so that no terms cancel.
    rare = share < 0.5
    rarer, log_odds = jnp.where(rare, share, other / trials), jnp.where(rare, -distance, distance)
    shift = rarer * jnp.expm1(jnp.clip(log_odds, -1, 1))
    series = log1p_minus(shift) + rarer * exp_minus(log_odds)
    direct = jnp.logaddexp(jnp.log1p(-rarer), jnp.log(rarer) + log_odds) - rarer * log_odds
    divergence = trials * jnp.where(jnp.abs(log_odds) < 1, series, direct)
    at_share = 0.5 * jnp.log(count / other * (trials / (2 * math.pi)))
    of_trials, of_count, of_other = (stirling_error_of_whole(whole) for whole in (trials, count, other))
    at_share = at_share + (of_trials - of_count - of_other)
    return Tail(at_share + jnp.log(integral) - divergence, failure / integral, failure)


APART_FROM_MEAN = 0.3
"""Excess of a count over its mean from which its tail is computed directly. Both ways are right for excesses in (0, 1).

Not 0: XLA may compute an excess twice and round it twice. Where a count is its mean, the two would go two ways.
"""


def log_survival(
    count: Float[Array, "*s"],
    other: Float[Array, "*s"],
    excess: Float[Array, "*s"],
    probability: Float[Array, ""],
) -> Float[Array, "*s"]:
    """Logarithm of P(X ≥ count) for X binomial with count + other trials; `excess` is count − its mean."""
    # Below the mean, the complement: at least other + 1 failures.
    up = excess > APART_FROM_MEAN
    high, low = jnp.where(up, count, other + 1), jnp.where(up, other, count - 1)
    chance = jnp.where(up, probability, 1 - probability)
    above = jnp.where(up, excess, 1 - excess)
    inner = (high > 0) & (low > 0)
    safe_low = jnp.where(inner, low, 1)
    step = jnp.where(inner, above, 1) / safe_low
    # log(1 + step/chance), where the quotient may be beyond the dtype.
    near = step < chance
    of_near = jnp.log1p(ratio(jnp.where(near, step, 0), chance))
    distance = jnp.where(near, of_near, jnp.log(step + chance) - jnp.log(chance))
    tail = upper_tail(jnp.where(inner, high, 1), safe_low, distance)
    without_failures = high * jnp.where(up, jnp.log(probability), jnp.log1p(-probability))
    log_high = jnp.where(inner, tail.log_probability, without_failures)
    certain = (count <= 0) | ~(up | (chance > 0))  # also where 1 − probability rounds to zero
    return jnp.where(certain, 0, jnp.where(up, log_high, log_complement(log_high)))


def log_complement(log_probability: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(1 − P)."""
    small = log_probability < -math.log(2)
    near_zero = jnp.log(-jnp.expm1(jnp.where(small, -1, jnp.minimum(log_probability, 0))))
    return jnp.where(small, jnp.log1p(-jnp.exp(jnp.where(small, log_probability, -1))), near_zero)


class Cells(NamedTuple):
    """A table of two rows and two columns: the items of one kind, and all others, among those drawn and those left."""

    drawn: Float[Array, "*s"]
    drawn_others: Float[Array, "*s"]
    left: Float[Array, "*s"]
    left_others: Float[Array, "*s"]

    @property
    def margins(self) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """The numbers drawn and left, and the numbers of both kinds."""
        a, b, c, d = self
        return (a + b, c + d), (a + c, b + d)

    @property
    def turned(self) -> Cells:
        """The table with the two kinds exchanged."""
        return Cells(self.drawn_others, self.drawn, self.left_others, self.left)


def log_hypergeometric_survival(cells: Cells, determinant: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Logarithm of P(X ≥ drawn) for tables with these margins; the count drawn is its mean or larger.

    The determinant of the table, its total times the distance of the count from its mean, is an argument because
    floats lose it. The sum of ratios has as many terms as about six standard deviations of the count.

    References:
        Loader, "Fast and accurate computation of binomial probabilities", 2000, for the saddle-point form.
    """
    (taken, rest), (marked, others) = cells.margins
    varies = jnp.minimum(jnp.minimum(taken, rest), jnp.minimum(marked, others)) > 0
    cells = Cells(*(jnp.where(varies, cell, 1) for cell in cells))
    (taken, rest), (marked, others) = cells.margins
    total = taken + rest
    excess = jnp.where(varies, determinant, 0) / total
    expected = [row / total * column for row in (taken, rest) for column in (marked, others)]
    # Distances of the four cells from their expectations differ in sign only; all deviances are positive.
    divergence = sum(
        mean * deviance(jnp.maximum(sign * excess / mean, -1))
        for mean, sign in zip(expected, (1, -1, -1, 1), strict=True)
    )

    def rest_of_factorial(x):
        inside = jnp.maximum(x, 1)
        return jnp.where(x > 0, 0.5 * jnp.log(2 * math.pi * inside) + stirling_error_of_whole(inside), 0)

    ways = sum(map(rest_of_factorial, (taken, rest, marked, others))) - rest_of_factorial(total)
    log_mass = ways - sum(map(rest_of_factorial, cells)) - divergence

    def unfinished(state):
        _, term, series = state
        return jnp.any(term > jnp.finfo(term.dtype).eps * series)

    def add(state):
        step, term, series = state
        a, b, c, d = cells.drawn + step, cells.drawn_others - step, cells.left - step, cells.left_others + step
        # One less the ratio of two masses, in which no products of counts cancel.
        fall = (total * (excess + step) + (a + d + 1)) / (a + 1) / (d + 1)
        term = term * jnp.where(jnp.minimum(b, c) > 0, jnp.clip(1 - fall, 0, 1), 0)
        return step + 1, term, series + term

    start = with_sharding_of(
        (jnp.zeros((), log_mass.dtype), jnp.ones_like(log_mass), jnp.ones_like(log_mass)), log_mass
    )
    _, _, series = lax.while_loop(unfinished, add, start)
    return jnp.where(varies, jnp.minimum(log_mass + jnp.log(series), 0), 0)


def odds_of_tail(
    count: Float[Array, "*s"], other: Float[Array, "*s"], log_level: Float[Array, ""]
) -> Float[Array, "*s"]:
    """The lower Clopper–Pearson limit as odds p/(1 − p), at which P(X ≥ count) is the small level.

    References:
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934.
    """
    inner = (count > 0) & (other > 0)
    successes, failures = jnp.where(inner, count, 1), jnp.where(inner, other, 1)

    def improve(_, distance):
        tail = upper_tail(successes, failures, distance)
        # Halley's step on log P, whose second derivative is known: P' is a power of p times one of 1 − p.
        error = tail.log_probability - log_level
        power = tail.failure * successes * (-jnp.expm1(-distance) - jnp.exp(-distance) / failures)
        step = error / (tail.slope - error * (power - tail.slope) / 2)
        return jnp.maximum(distance + step, distance / 8)

    distance = lax.fori_loop(0, HALLEY_STEPS, improve, _start(successes, failures, log_level))
    without_failures = 1 / jnp.expm1(-log_level / jnp.maximum(count, 1))
    return jnp.where(count <= 0, 0, jnp.where(other <= 0, without_failures, successes / failures * jnp.exp(-distance)))


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
