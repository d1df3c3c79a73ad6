"""Before a collection: how many users, which ε, how wide the intervals, what will be found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.checks import check_num_categories
from rrjax.inference.arguments import as_probability, complement
from rrjax.inference.binomial import log_survival, odds_of_tail
from rrjax.inference.intervals import Simultaneous, log_tail
from rrjax.inference.monte_carlo import HypothesisTest
from rrjax.mechanism import RandomizedResponse
from rrjax.numerics import as_scalar, float_dtype, odds

_FEWEST, _MOST = 1.0, 2.0**50
_STEPS = 80


def expected_rmse(num_categories: int, num_users: ArrayLike, epsilon: ArrayLike) -> Float[Array, ""]:
    """Root mean squared error of the unbiased estimate (`inv`) of a share: over the categories, as expected.

    sqrt((K−1)(K−2+2e^ε)/(K·N·(e^ε−1)²)), whatever the distribution of the users, whose own one it is measured against.
    Estimators on the simplex do better; by how much depends on the truth (`rrjax.study` simulates it).

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        epsilon: Scalar, nats.

    Returns:
        Scalar, probability. NaN where N or ε is not positive.

    Raises:
        ValueError: K < 2, or what is not one number.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.expected_rmse(100, 380_000, epsilon=1.0):.4f}")
        0.0096
    """
    num_users = as_scalar(num_users, float_dtype(), "num_users")
    total = _squared_error_of_one(num_categories, epsilon)
    return jnp.sqrt(total / jnp.where(num_users > 0, num_users, jnp.nan) / num_categories)


def users_for_error(num_categories: int, epsilon: ArrayLike, rmse: ArrayLike) -> Float[Array, ""]:
    """How many users bring `expected_rmse` down to a target: (K−1)(K−2+2e^ε)/(K·(e^ε−1)²·rmse²).

    Args:
        num_categories: K, at least 2. Static.
        epsilon: Scalar, nats.
        rmse: Scalar, the target, probability.

    Returns:
        Scalar, a whole number to the dtype's digits. NaN where ε or the target is not positive.

    Raises:
        ValueError: K < 2, or what is not one number.

    Example:
        >>> import rrjax
        >>> int(rrjax.inference.users_for_error(100, epsilon=1.0, rmse=0.01))
        346834
    """
    rmse = as_scalar(rmse, float_dtype(), "rmse")
    rmse = jnp.where(rmse > 0, rmse, jnp.nan)
    return jnp.ceil(_squared_error_of_one(num_categories, epsilon) / num_categories / rmse**2)


def epsilon_for_error(num_categories: int, num_users: ArrayLike, rmse: ArrayLike) -> Float[Array, ""]:
    """The smallest ε at which `expected_rmse` reaches a target with so many users.

    With M = K·N·rmse², e^ε − 1 is the positive root of M·x² = (K−1)·(2x + K).

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        rmse: Scalar, the target, probability.

    Returns:
        Scalar, nats. NaN where N or the target is not positive.

    Raises:
        ValueError: K < 2, or what is not one number.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.epsilon_for_error(100, 346_834, rmse=0.01):.4f}")
        1.0000
    """
    check_num_categories(num_categories)
    num_users = as_scalar(num_users, float_dtype(), "num_users")
    rmse = as_scalar(rmse, float_dtype(), "rmse")
    load = (num_categories - 1) / (num_categories * num_users * rmse**2)
    root = load + jnp.sqrt(load**2 + load * num_categories)
    return jnp.where((num_users > 0) & (rmse > 0), jnp.log1p(root), jnp.nan)


def expected_width(
    num_categories: int,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    share: ArrayLike = 0.0,
    *,
    level: ArrayLike = 0.95,
    simultaneous: Simultaneous | None = None,
) -> Float[Array, ""]:
    """The width of the exact interval (`intervals`) of a category whose count is as expected.

    Of a count that is not whole, the widths at the two nearest whole ones are interpolated.

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        share: Scalar in [0, 1], the true share of the category. At 0 the width is the upper limit alone.
        level: Scalar in (0, 1).
        simultaneous: As in `intervals`.

    Returns:
        Scalar, probability. NaN where N or ε is not positive, or the share is none.

    Raises:
        ValueError: K < 2, a level outside (0, 1), or what is not one number.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.expected_width(10, 10_000, 2.0, share=0.3):.4f}")
        0.0387
    """
    check_num_categories(num_categories)
    as_probability(level, "level", 0.95)
    share = as_scalar(share, float_dtype(), "share")
    number = as_scalar(num_users, float_dtype(), "num_users")
    tail = log_tail(complement(level), simultaneous, num_categories)
    width = _width(number, odds(as_scalar(epsilon, float_dtype())), share, tail, num_categories)
    return jnp.where((number > 0) & (share >= 0) & (share <= 1), width, jnp.nan)


def users_for_width(
    num_categories: int,
    epsilon: ArrayLike,
    width: ArrayLike,
    share: ArrayLike = 0.0,
    *,
    level: ArrayLike = 0.95,
    simultaneous: Simultaneous | None = None,
) -> Float[Array, ""]:
    """How many users bring `expected_width` down to a target.

    Args:
        num_categories: K, at least 2. Static.
        epsilon: Scalar, nats.
        width: Scalar in (0, 1), the target, probability.
        share: Scalar in [0, 1], the true share of the category.
        level: Scalar in (0, 1).
        simultaneous: As in `intervals`.

    Returns:
        Scalar, a whole number to the dtype's digits; infinite where it would be above 2⁵⁰. NaN where ε is not
        positive, or the share or the width is none.

    Raises:
        ValueError: K < 2, a level outside (0, 1), or what is not one number.

    Example:
        >>> import rrjax
        >>> number = rrjax.inference.users_for_width(10, 2.0, width=0.02, share=0.3)
        >>> bool(37_200 < number < 37_270)
        True
    """
    check_num_categories(num_categories)
    as_probability(level, "level", 0.95)
    share, width = as_scalar(share, float_dtype(), "share"), as_scalar(width, float_dtype(), "width")
    tail = log_tail(complement(level), simultaneous, num_categories)
    e1 = odds(as_scalar(epsilon, float_dtype()))
    number = _users_for_width(e1, share, width, tail, num_categories)
    return jnp.where((share >= 0) & (share <= 1) & (width > 0) & (width < 1) & (e1 > 0), number, jnp.nan)


def detectable_share(
    num_categories: int,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    *,
    level: ArrayLike = 0.05,
    power: ArrayLike = 0.8,
) -> Float[Array, ""]:
    """The smallest share of users that `p_values` finds at a level with a given power: exact, from binomial tails.

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        level: Scalar in (0, 1), of the p-value; level/K to allow for all K categories at once.
        power: Scalar in [0.5, 1), the probability to find it.

    Returns:
        Scalar, probability; above one where even a category that everybody holds would be missed. NaN where N or ε is
        not positive.

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
        raise ValueError(f"power must be at least 0.5, got {float(power):g}")
    number = jnp.floor(as_scalar(num_users, float_dtype(), "num_users"))
    e1 = odds(as_scalar(epsilon, float_dtype()))
    share = _detectable(jnp.where(number > 0, number, 1), e1, jnp.log(level), jnp.log1p(-power), num_categories)
    usable = (number > 0) & (level > 0) & (level < 1) & (power >= 0.5) & (power < 1)
    return jnp.where(usable, jnp.maximum(share, 0), jnp.nan)


class Power(NamedTuple):
    """How often a test rejects.

    Attributes:
        power: Scalar, the share of the simulated collections in which it does.
        standard_error: Scalar, of it.
    """

    power: Float[Array, ""]
    standard_error: Float[Array, ""]


def power(
    key: Array,
    draw: Callable[[Array], Any],
    test: Callable[[Array, Any], HypothesisTest],
    *,
    level: float = 0.05,
    num_collections: int = 1000,
) -> Power:
    """How often a test rejects at a level, over simulated collections: all of them in one compiled batch.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        draw: A key → the data of one collection, such as counts from `simulate.counts`.
        test: A key and those data → `HypothesisTest`. Few draws of its null make it a little weaker, not invalid: 99
            cost a hundredth of the default.
        level: In (0, 1).
        num_collections: How many to simulate. Static.

    Returns:
        `Power`; NaN where a test is.

    Raises:
        ValueError: A level outside (0, 1), or fewer than one collection.

    Example:
        >>> import jax, rrjax
        >>> from rrjax.inference import equality_test, power
        >>> def two(key, shares=([0.5, 0.3, 0.2], [0.4, 0.4, 0.2])):
        ...     keys = jax.random.split(key)
        ...     return [rrjax.simulate.counts(k, jax.numpy.array(s), 1000, 2.0) for k, s in zip(keys, shares)]
        >>> found = power(
        ...     jax.random.key(0), two, lambda k, c: equality_test(k, c, 2.0, num_draws=99), num_collections=200
        ... )
        >>> bool(0.8 < found.power < 0.95)
        True
    """
    as_probability(level, "level", 0.05)
    if num_collections < 1:
        raise ValueError(f"num_collections must be at least 1, got {num_collections}")

    def rejects(key: Array) -> Float[Array, ""]:
        of_data, of_test = jax.random.split(key)
        p_value = test(of_test, draw(of_data)).p_value
        # The least p-value of 19 draws is 0.05 itself, but for rounding.
        rejected = (p_value <= level * (1 + 1e-6)).astype(float_dtype())
        return jnp.where(jnp.isnan(p_value), jnp.nan, rejected)

    # One after another: the draws of a null are a batch already.
    rejected = jax.jit(lambda keys: lax.map(rejects, keys))(jax.random.split(key, num_collections))
    share = jnp.mean(rejected)
    return Power(share, jnp.sqrt(share * (1 - share) / num_collections))


def _squared_error_of_one(num_categories, epsilon):
    return RandomizedResponse(num_categories, as_scalar(epsilon, float_dtype())).expected_squared_error(1)


@partial(jax.jit, static_argnums=4)
def _width(number, e1, share, log_tail, num_categories):
    reported = (1 + e1 * share) / (e1 + num_categories)
    # Binomial laws are of whole counts: the widths of the two next to the expected one, in proportion.
    number = jnp.maximum(jnp.round(number), 1)
    expected = number * reported
    below = jnp.minimum(jnp.floor(expected), number)
    count = jnp.stack([below, jnp.minimum(below + 1, number)])
    other = number - count
    low, high = odds_of_tail(jnp.stack([count, other]), jnp.stack([other, count]), log_tail)
    limits = jnp.stack([low / (1 + low), 1 / (1 + high)])
    lower, upper = jnp.clip(limits + (num_categories * limits - 1) / e1, 0, 1)
    widths = upper - lower
    return widths[0] + (expected - below) * (widths[1] - widths[0])


@partial(jax.jit, static_argnums=4)
def _users_for_width(e1, share, width, log_tail, num_categories):
    def halve(_, span):
        low, high = span
        middle = jnp.sqrt(low * high)
        narrow = _width(middle, e1, share, log_tail, num_categories) <= width
        return jnp.where(narrow, low, middle), jnp.where(narrow, middle, high)

    most = jnp.asarray(_MOST, e1.dtype)
    found = lax.fori_loop(0, _STEPS, halve, (jnp.asarray(_FEWEST, e1.dtype), most))[1]
    return jnp.where(_width(most, e1, share, log_tail, num_categories) <= width, jnp.ceil(found), jnp.inf)


@partial(jax.jit, static_argnums=4)
def _detectable(number, e1, log_level, log_miss, num_categories):
    q = 1 / (e1 + num_categories)

    def significant(count):
        return log_survival(count, number - count, count - number * q, q) <= log_level

    def halve(_, span):
        low, high = span
        middle = jnp.floor((low + high) / 2)
        up = significant(middle)
        return jnp.where(up, low, middle), jnp.where(up, middle, high)

    # From no count at all, which never is significant, to more than there can be.
    _, critical = lax.fori_loop(0, 64, halve, (jnp.zeros_like(number), number + 1))
    # P(X ≥ c) = power: of the reports that do not name it, N − c + 1 or more with probability 1 − power.
    rest = odds_of_tail(number - critical + 1, critical - 1, log_miss)
    reported = 1 / (1 + rest)
    share = reported + (num_categories * reported - 1) / e1
    return jnp.where(critical > number, jnp.inf, jnp.where(e1 > 0, share, jnp.nan))
