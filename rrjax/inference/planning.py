"""Plans of a collection: the mechanism, the width of exact intervals, the smallest detectable share, the split of ε.

Plans have derivatives in ε, N, shares, targets and levels, in both modes. A whole number (of users, of significant
reports) has the derivative of the same number before rounding. The result of a bisection has the derivative of the
solution of its equation: F(x, y) = 0 gives dx = −F_y·dy/F_x. Comparisons of mechanisms and of splits are of the host.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import Estimand, as_probability, as_scalar, complement, float_dtype
from rrjax.data.categories import check_epsilon, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.inference.intervals import Simultaneous, log_tail
from rrjax.inference.precision import drawing_error, rates_of, rounded
from rrjax.mechanisms import MECHANISMS, MechanismFactory, RandomizedResponse
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.solvers import bisected, geometric_mean, with_derivative
from rrjax.numerics.special import log_survival, odds_of_tail
from rrjax.numerics.sums import ratio

FEWEST_USERS, MOST_USERS = 1.0, 2.0**50
"""Range of the search for a number of users."""
BISECTION_STEPS, COUNT_STEPS = 80, 64
"""Numbers of halvings for a number of users, and for a count."""
LARGEST_COMPARED_EPSILON = 300
"""Largest ε, nats, so that e^ε stays within a float."""


def expected_width(
    num_categories: int,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    share: ArrayLike = 0.0,
    *,
    level: ArrayLike = 0.95,
    simultaneous: Simultaneous | None = None,
    mechanism: MechanismFactory = RandomizedResponse,
    category: int | None = None,
) -> Float[Array, ""]:
    """Width of the exact interval (`intervals`) of a category whose count equals its expectation.

    If the expected count is not whole, the widths at the two nearest whole counts are interpolated.

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        share: Scalar in [0, 1], the true share of the category. At 0 the width is the upper limit alone.
        level: Scalar in (0, 1).
        simultaneous: As in `intervals`.
        mechanism: As in `expected_rmse`.
        category: From 0 to K − 1, where rates differ by category (survey designs; 0 is yes of two answers); None is the
            one with the largest variance at the share. Static.

    Returns:
        Scalar, probability. NaN if N or ε is not positive, or the share is outside [0, 1]. N is rounded to a whole
        number, but has a derivative.

    Raises:
        ValueError: K < 2, a level outside (0, 1), or an argument that is not one number.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.expected_width(10, 10_000, 2.0, share=0.3):.4f}")
        0.0387
    """
    number = as_scalar(num_users, float_dtype(), "num_users")
    share, tail = _share_and_tail(num_categories, share, level, simultaneous, mechanism)
    width = _width(number, rates_of(num_categories, epsilon, mechanism, share, category), share, tail)
    return jnp.where((number > 0) & (share >= 0) & (share <= 1), width, jnp.nan)


def users_for_width(
    num_categories: int,
    epsilon: ArrayLike,
    width: ArrayLike,
    share: ArrayLike = 0.0,
    *,
    level: ArrayLike = 0.95,
    simultaneous: Simultaneous | None = None,
    mechanism: MechanismFactory = RandomizedResponse,
    category: int | None = None,
) -> Float[Array, ""]:
    """Smallest number of users at which `expected_width` is at most a target.

    Args:
        num_categories: K, at least 2. Static.
        epsilon: Scalar, nats.
        width: Scalar in (0, 1), the target, probability.
        share: Scalar in [0, 1], the true share of the category.
        level: Scalar in (0, 1).
        simultaneous: As in `intervals`.
        mechanism: As in `expected_rmse`.
        category: As in `expected_width`.

    Returns:
        Scalar, a whole number to the dtype's digits; infinite if it would be above 2⁵⁰. NaN if ε is not positive, the
        share outside [0, 1] or the width outside (0, 1). Derivatives are those of the number before it is rounded up,
        NaN if it is infinite.

    Raises:
        ValueError: As `expected_width`.

    Example:
        >>> import rrjax
        >>> number = rrjax.inference.users_for_width(10, 2.0, width=0.02, share=0.3)
        >>> bool(37_200 < number < 37_270)
        True
    """
    width = as_scalar(width, float_dtype(), "width")
    share, tail = _share_and_tail(num_categories, share, level, simultaneous, mechanism)
    rates = rates_of(num_categories, epsilon, mechanism, share, category)
    given = with_sharding_of((rates, share, width, tail))
    number = with_derivative(_tangent_of_users, _users_of_width(*lax.stop_gradient(given)), given)
    return jnp.where((share >= 0) & (share <= 1) & (width > 0) & (width < 1) & (rates.truth > 0), number, jnp.nan)


def _share_and_tail(num_categories, share, level, simultaneous, mechanism):
    check_num_categories(num_categories)
    as_probability(level, "level", 0.95)
    if num_categories == 2 and mechanism(2, 1.0).same_size:
        simultaneous = None  # two shares that add up to one
    return as_scalar(share, float_dtype(), "share"), log_tail(complement(level), simultaneous, num_categories)


@jax.jit
def _width(number, rates, share, log_tail):
    """The width at the expected count, by interpolation between whole counts."""
    reported = ratio(rates.always + rates.truth * share, rates.total)
    number = rounded(number, jnp.maximum(jnp.round(number), 1))
    expected = number * reported
    below = jnp.minimum(jnp.floor(expected), number)
    count = jnp.stack([below, jnp.minimum(below + 1, number)])
    other = number - count
    low, high = odds_of_tail(jnp.stack([count, other]), jnp.stack([other, count]), log_tail)
    limits = jnp.stack([low / (1 + low), 1 / (1 + high)])
    lower, upper = jnp.clip(rates.share(limits), 0, 1)
    widths = upper - lower
    return widths[0] + (expected - below) * (widths[1] - widths[0])


@jax.jit
def _users_of_width(rates, share, width, log_tail):
    """The number of users at which `_width` is a target, rounded up; infinite if it would be above 2⁵⁰."""

    def is_wide(number):
        return ~(_width(number, rates, share, log_tail) <= width)

    fewest, most = (jnp.full_like(share, end) for end in (FEWEST_USERS, MOST_USERS))
    users = bisected(is_wide, fewest, most, BISECTION_STEPS, geometric_mean)[1]
    return jnp.where(is_wide(most), jnp.inf, jnp.ceil(users))


def _tangent_of_users(users, given, tangents):
    rates, share, _, log_tail = given
    users = jnp.where(jnp.isfinite(users), users, jnp.nan)
    slope = jax.grad(_width)(users, rates, share, log_tail)
    _, change = jax.jvp(
        lambda rates, share, log_tail: _width(users, rates, share, log_tail),
        (rates, share, log_tail),
        (tangents[0], tangents[1], tangents[3]),
    )
    return (tangents[2] - change) / slope


def detectable_share(
    num_categories: int,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    *,
    level: ArrayLike = 0.05,
    power: ArrayLike = 0.8,
    mechanism: MechanismFactory = RandomizedResponse,
    category: int | None = None,
) -> Float[Array, ""]:
    """Smallest share of users that `p_values` detects at a level with a given power: exact, from binomial tails.

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        level: Scalar in (0, 1), of the p-value; level/K for simultaneous tests of all K categories.
        power: Scalar in [0.5, 1), the probability of detection.
        mechanism: As in `expected_rmse`.
        category: As in `expected_width`; None is the one with the largest variance at a share of zero.

    Returns:
        Scalar, probability; above one if even a share of one would be missed. NaN if N or ε is not positive. The
        smallest significant count is a whole number, so the share is a sawtooth function of N and ε, with teeth of one
        report. Derivatives are those of the trend, with a count that need not be whole.

    Raises:
        ValueError: K < 2, a level or a power out of range.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.detectable_share(100, 100_000, 2.0):.4f}")
        0.0129
    """
    check_num_categories(num_categories)
    level, power = as_probability(level, "level", 0.05), as_probability(power, "power", 0.8)
    if not isinstance(power, Tracer) and power < 0.5:
        raise ArgumentError(f"power must be at least 0.5, got {float(power):g}", argument="power", value=power)
    number = as_scalar(num_users, float_dtype(), "num_users")
    number = rounded(number, jnp.floor(number))
    rates = rates_of(num_categories, epsilon, mechanism, category=category)
    given = with_sharding_of((jnp.where(number > 0, number, 1), rates, jnp.log(level), jnp.log1p(-power)))
    share = with_derivative(_tangent_of_share, _detectable_share(*lax.stop_gradient(given)), given)
    usable = (number > 0) & (level > 0) & (level < 1) & (power >= 0.5) & (power < 1)
    return jnp.where(usable, jnp.maximum(share, 0), jnp.nan)


def _detectable_share(number, rates, log_level, log_miss):
    """The smallest detectable share, infinite if no count is significant."""
    critical = _critical_count(number, rates, log_level)
    share = _share_at(critical, number, rates, log_miss)
    return jnp.where(critical > number, jnp.inf, jnp.where(rates.truth > 0, share, jnp.nan))


@jax.jit
def _critical_count(number, rates, log_level):
    """The smallest significant count."""
    # From a count of zero, which is never significant, to N + 1, which is impossible.
    return bisected(
        lambda count: ~(_log_p_value(count, number, rates) <= log_level),
        jnp.zeros_like(number),
        number + 1,
        COUNT_STEPS,
        lambda low, high: jnp.floor((low + high) / 2),
    )[1]


def _log_p_value(critical, number, rates):
    """Logarithm of the probability that an empty category has this count or a larger one."""
    q = jnp.maximum(rates.q, jnp.finfo(rates.q.dtype).tiny)  # one report is proof where chance makes none
    return log_survival(critical, number - critical, critical - number * q, q)


def _share_at(critical, number, rates, log_miss):
    """The share whose count is below the critical count with probability 1 − power."""
    # P(X ≥ c) = power: N − c + 1 or more reports do not name it with probability 1 − power.
    odds = odds_of_tail(number - critical + 1, critical - 1, log_miss)
    return rates.share(1 / (1 + odds))


def _tangent_of_share(_, given, tangents):
    return _share_and_tangent(given, tangents)[1]


@jax.jit
def _share_and_tangent(given, tangents):
    """Both in one program: compiled alone, the tangent rounds otherwise."""
    number, rates, log_level, log_miss = given
    critical = _critical_count(number, rates, log_level)
    # One Newton step from the whole critical count to the count that meets the level exactly.
    slope = jax.grad(_log_p_value)(critical, number, rates)
    exact = critical - (_log_p_value(critical, number, rates) - log_level) / slope
    slope = jax.grad(_log_p_value)(exact, number, rates)
    _, change = jax.jvp(lambda *given: _log_p_value(exact, *given), (number, rates), tangents[:2])
    moved = (tangents[2] - change) / slope
    _, tangent = jax.jvp(_share_at, (exact, number, rates, log_miss), (moved, *tangents[:2], tangents[3]))
    return _detectable_share(*given), jnp.where(critical > number, jnp.nan, tangent)


class MechanismErrors(NamedTuple):
    """The expected error and the costs of one mechanism of local differential privacy.

    Attributes:
        name: Name of the mechanism.
        expected_rmse: Root mean squared error of the unbiased estimate of a share, over the categories.
        bits: Smallest size of a report, bits.
        note: The value of its parameter, if it has one.
        operations: Rough number of operations of the server to count the reports: `PureMechanism.server_operations`.
    """

    name: str
    expected_rmse: float
    bits: float
    note: str
    operations: float


def compare_mechanisms(
    num_categories: int, num_users: int, epsilon: float, *, estimand: Estimand = "distribution"
) -> list[MechanismErrors]:
    """Expected errors of the unbiased estimates of all mechanisms for K, N and ε, the smallest first.

    A report supports the user's own value with probability p* and any other category with q*. The expected squared
    error, summed over the categories, is (p*(1−p*) + (K−1)·q*(1−q*))/(N·(p*−q*)²). Errors from the distribution that
    users are drawn from are larger by at most (1 − 1/K)/N (see `expected_rmse`). It computes on the host, in plain
    floats.

    Args:
        num_categories: K, an integer, at least 2.
        num_users: N, at least 1.
        epsilon: Nats, positive.
        estimand: As in `expected_rmse`.

    Returns:
        A list of `MechanismErrors`, one for each of `rrjax.mechanisms`.

    Raises:
        ValueError: An argument out of range, or an unknown estimand.

    Example:
        >>> import rrjax
        >>> [m.name for m in rrjax.inference.compare_mechanisms(24, 10_000, 2.0)][:3]
        ['subset selection', 'projective geometry response', 'optimized local hashing']

    References:
        Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation", 2017; Ye and
        Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", 2018.
    """
    check_num_categories(num_categories)
    if not num_users >= 1:
        raise ArgumentError(f"num_users must be at least 1, got {num_users}", argument="num_users", value=num_users)
    if not epsilon > 0:
        raise ArgumentError.about("epsilon", f"must be a positive number of nats, got {epsilon}", value=epsilon)
    epsilon, drawn = min(epsilon, LARGEST_COMPARED_EPSILON), drawing_error(num_categories, estimand)
    rows = []
    for kind in MECHANISMS.values():
        try:
            mechanism = kind(num_categories, epsilon)
        except ArgumentError:  # more categories than it can decode
            continue
        variance = mechanism.rates_by(math.expm1).total_variance(num_categories) + drawn
        error = math.sqrt(variance / num_users / num_categories)
        name, operations = kind.name.replace("-", " "), float(mechanism.server_operations(num_users))
        rows.append(MechanismErrors(name, error, mechanism.bits, mechanism.note, operations))
    # Subset selection with subsets of one is randomized response. The two errors differ by rounding only; rounding them
    # keeps the order.
    return sorted(rows, key=lambda row: float(f"{row.expected_rmse:.9e}"))


class SplitErrors(NamedTuple):
    """Expected errors of one way to spend ε on several columns.

    Attributes:
        name: The way: "all", "sampled", or "among fakes".
        number: How many columns a user reports.
        epsilon: ε of each reported column, nats.
        share: Root mean squared error of a share in a column, over categories and columns.
        cell: The same of a cell in the table of two columns, over cells and pairs; infinite where nothing is known of
            pairs.
    """

    name: str
    number: int
    epsilon: float
    share: float
    cell: float


def compare_splits(num_categories: Sequence[int], num_users: int, epsilon: float) -> list[SplitErrors]:
    """Expected errors of the ways to spend ε on several columns, by randomized response, the smallest of shares first.

    A user reports g of d columns, each at ε/g: all of them, or a few, drawn at random. A column is then estimated from
    N·g/d users, and a table of two columns from N·g·(g − 1)/(d·(d − 1)). Or one column is reported, with fake answers
    in the others (`rrjax.mechanisms.SampledWithFakes`). Errors are those of the unbiased estimates, of the population
    that the users are drawn from, where all shares are equal and columns are independent. So the error of drawing the
    users, and those of them who report a column, is a part. It computes on the host.

    Args:
        num_categories: `[d]`, K of each column, at least two columns.
        num_users: N, at least 1.
        epsilon: Of everything that a user reports, nats.

    Returns:
        A `SplitErrors` for each g, and one for fake answers.

    Raises:
        ValueError: Fewer than two columns, or an argument out of range.

    Example:
        >>> import rrjax
        >>> rows = rrjax.inference.compare_splits([4, 10, 16], 50_000, 2.0)
        >>> [(row.name, row.number, f"{row.share:.4f}", f"{row.cell:.4f}") for row in rows]
        [('sampled', 1, '0.0060', 'inf'), ('among fakes', 1, '0.0104', 'inf'), ('sampled', 2, '0.0112', '0.0311'), \
('all', 3, '0.0155', '0.0506')]

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, "Random sampling plus fake data", 2021: arXiv:2109.07269, which compares
        them at another ε (see `rrjax.mechanisms.SampledWithFakes`).
    """
    sizes = list(num_categories)
    for size in sizes:
        check_num_categories(size)
    if len(sizes) < 2:
        raise ArgumentError(f"num_categories must be of two columns or more, got {sizes}", argument="num_categories")
    if not num_users >= 1:
        raise ArgumentError(f"num_users must be at least 1, got {num_users}", argument="num_users", value=num_users)
    check_epsilon(epsilon)
    epsilon, d = min(float(epsilon), LARGEST_COMPARED_EPSILON), len(sizes)
    rows = []
    for g in range(1, d + 1):
        own = epsilon / g
        noise = [_variance(size, own) for size in sizes]
        pairs = num_users * g * (g - 1) / (d * (d - 1))
        # The square of a product of independent numbers is expected to be the product of their squares.
        squares = [(variance + 1 / size**2, size) for variance, size in zip(noise, sizes, strict=True)]
        cells = [a * b - 1 / (k * m) ** 2 for (a, k), (b, m) in itertools.combinations(squares, 2)]
        share = math.sqrt(math.fsum(noise) / d / (num_users * g / d))
        cell = math.sqrt(math.fsum(cells) / len(cells) / pairs) if pairs else math.inf
        rows.append(SplitErrors("all" if g == d else "sampled", g, own, share, cell))
    odds = math.expm1(epsilon)
    noise = [_variance(size, math.log1p(odds / (d + (d - 1) / size * odds))) for size in sizes]
    rows.append(SplitErrors("among fakes", 1, epsilon, math.sqrt(math.fsum(noise) / d / num_users), math.inf))
    return sorted(rows, key=lambda row: row.share)


def _variance(size: int, epsilon: float) -> float:
    """The variance of the unbiased estimate of a share of 1/K from the report of one user, who is drawn at random."""
    rates = RandomizedResponse(size, epsilon).rates_by(math.expm1)
    return float(rates.variance(1 / size)) + (1 - 1 / size) / size
