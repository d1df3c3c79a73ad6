"""The searches behind the plans, with the derivatives of what they find.

A bisection has no derivative, and a whole number has none that is of use. What is found solves an equation, and that
equation moves its solution: F(x, y) = 0 gives dx = −F_y·dy/F_x. A whole number moves as it would before its rounding.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_scalar, float_dtype
from rrjax.data.rates import Rates
from rrjax.mechanisms import Design
from rrjax.numerics.special import log_survival, odds_of_tail

_FEWEST, _MOST = 1.0, 2.0**50
_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-9, 80.0
_STEPS = 80


@jax.custom_jvp
def rounded(number: Float[Array, ""], whole: Float[Array, ""]) -> Float[Array, ""]:
    """The whole number that stands for a number, with the derivative of the number itself."""
    del number
    return whole


rounded.defjvp(lambda primals, tangents: (rounded(*primals), tangents[0]))


def rates_of(num_categories: int, epsilon: ArrayLike, mechanism: Design) -> Rates:
    """The rates of a mechanism to be, NaN at an ε that makes no sense."""
    # As a scalar of JAX, because such an ε would be refused.
    return mechanism(num_categories, as_scalar(epsilon, float_dtype())).rates


def squared_error_of_one(num_categories: int, epsilon: ArrayLike, mechanism: Design) -> Float[Array, ""]:
    """Expected squared error of `inv` summed over the categories, times the number of users."""
    return rates_of(num_categories, epsilon, mechanism).total_variance(num_categories)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
@partial(jax.jit, static_argnums=(1, 2))
def epsilon_of_error(target: Float[Array, ""], num_categories: int, mechanism: Design) -> Float[Array, ""]:
    """The ε at which `squared_error_of_one` is a target; infinite where it would be above 80."""

    def halve(_, span):
        low, high = span
        middle = jnp.sqrt(low * high)
        reached = squared_error_of_one(num_categories, middle, mechanism) <= target
        return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

    most = jnp.asarray(_LARGEST_EPSILON, target.dtype)
    found = lax.fori_loop(0, _STEPS, halve, (jnp.asarray(_SMALLEST_EPSILON, target.dtype), most))[1]
    return jnp.where(squared_error_of_one(num_categories, most, mechanism) <= target, found, jnp.inf)


@epsilon_of_error.defjvp
def _epsilon_of_error_jvp(num_categories, mechanism, primals, tangents):
    found = epsilon_of_error(*primals, num_categories, mechanism)
    near = jnp.where(jnp.isfinite(found), found, jnp.nan)
    return found, tangents[0] / jax.grad(squared_error_of_one, argnums=1)(num_categories, near, mechanism)


@jax.jit
def width_of(
    number: Float[Array, ""], rates: Rates, share: Float[Array, ""], log_tail: Float[Array, ""]
) -> Float[Array, ""]:
    """The width of the exact interval of a category whose count is as expected."""
    reported = (rates.always + rates.truth * share) / rates.total
    # Binomial laws are of whole counts: the widths of the two next to the expected one, in proportion.
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


@jax.custom_jvp
@jax.jit
def users_of_width(
    rates: Rates, share: Float[Array, ""], width: Float[Array, ""], log_tail: Float[Array, ""]
) -> Float[Array, ""]:
    """The number of users at which `width_of` is a target, rounded up; infinite where it would be above 2⁵⁰."""

    def halve(_, span):
        low, high = span
        middle = jnp.sqrt(low * high)
        narrow = width_of(middle, rates, share, log_tail) <= width
        return jnp.where(narrow, low, middle), jnp.where(narrow, middle, high)

    most = jnp.asarray(_MOST, share.dtype)
    found = lax.fori_loop(0, _STEPS, halve, (jnp.asarray(_FEWEST, share.dtype), most))[1]
    return jnp.where(width_of(most, rates, share, log_tail) <= width, jnp.ceil(found), jnp.inf)


@users_of_width.defjvp
def _users_of_width_jvp(primals, tangents):
    rates, share, _, log_tail = primals
    found = users_of_width(*primals)
    near = jnp.where(jnp.isfinite(found), found, jnp.nan)
    slope = jax.grad(width_of)(near, rates, share, log_tail)
    _, change = jax.jvp(
        lambda rates, share, log_tail: width_of(near, rates, share, log_tail),
        (rates, share, log_tail),
        (tangents[0], tangents[1], tangents[3]),
    )
    return found, (tangents[2] - change) / slope


def _log_chance(critical, number, rates):
    """Logarithm of the probability that so many reports or more name a category that nobody holds."""
    return log_survival(critical, number - critical, critical - number * rates.q, rates.q)


def _share_at(critical, number, rates, log_miss):
    """The share that brings so many reports, but for a probability to miss them."""
    # P(X ≥ c) = power: of the reports that do not name it, N − c + 1 or more with probability 1 − power.
    rest = odds_of_tail(number - critical + 1, critical - 1, log_miss)
    return rates.share(1 / (1 + rest))


@jax.jit
def _critical(number, rates, log_level):
    def halve(_, span):
        low, high = span
        middle = jnp.floor((low + high) / 2)
        up = _log_chance(middle, number, rates) <= log_level
        return jnp.where(up, low, middle), jnp.where(up, middle, high)

    # From no count at all, which never is significant, to more than there can be.
    return lax.fori_loop(0, 64, halve, (jnp.zeros_like(number), number + 1))[1]


@jax.custom_jvp
def detectable(
    number: Float[Array, ""], rates: Rates, log_level: Float[Array, ""], log_miss: Float[Array, ""]
) -> Float[Array, ""]:
    """The smallest share that is significant at a level, but for a probability to miss it; infinite where none is."""
    critical = _critical(number, rates, log_level)
    share = _share_at(critical, number, rates, log_miss)
    return jnp.where(critical > number, jnp.inf, jnp.where(rates.truth > 0, share, jnp.nan))


@detectable.defjvp
@jax.jit
def _detectable_jvp(primals, tangents):
    number, rates, log_level, log_miss = primals
    critical = _critical(number, rates, log_level)
    # To where the level is met exactly: one step of Newton's from the whole number next to it.
    slope = jax.grad(_log_chance)(critical, number, rates)
    between = critical - (_log_chance(critical, number, rates) - log_level) / slope
    slope = jax.grad(_log_chance)(between, number, rates)
    _, change = jax.jvp(lambda *given: _log_chance(between, *given), (number, rates), tangents[:2])
    moved = (tangents[2] - change) / slope
    _, tangent = jax.jvp(_share_at, (between, number, rates, log_miss), (moved, *tangents[:2], tangents[3]))
    return detectable(*primals), jnp.where(critical > number, jnp.nan, tangent)
