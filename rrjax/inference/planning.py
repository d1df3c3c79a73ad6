"""Before a collection: how many users, which ε, how wide the intervals, what will be found.

Plans have derivatives in ε, N, shares, targets and levels, in both modes. Where a plan counts in whole numbers (users,
reports that are significant) they are those of the same plan without the rounding: of the trend, not of the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import Estimand, as_probability, as_scalar, check_estimand, check_key, complement, float_dtype
from rrjax.data.categories import as_integer, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.inference.intervals import Simultaneous, log_tail
from rrjax.inference.monte_carlo import HypothesisTest
from rrjax.inference.plans import (
    detectable,
    epsilon_of_error,
    rates_of,
    rounded,
    squared_error_of_one,
    users_of_width,
    width_of,
)
from rrjax.mechanisms import MechanismFactory, RandomizedResponse
from rrjax.numerics.pytrees import exportable


def expected_rmse(
    num_categories: int,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    *,
    estimand: Estimand = "distribution",
    mechanism: MechanismFactory = RandomizedResponse,
) -> Float[Array, ""]:
    """Root mean squared error of the unbiased estimate (`inv`) of a share: over the categories, as expected.

    Of the users' own shares it is sqrt(V/(K·N)) with V = [p(1−p) + (K−1)·q(1−q)]/(p−q)², for randomized response
    (K−1)(K−2+2e^ε)/(e^ε−1)², whatever they hold. Of the distribution θ that users are drawn from, drawing them adds
    1 − Σθ² to V, 1 − 1/K at most; that most is what is added here, so that no distribution has a larger error. The
    widths of `expected_width` are of that distribution, too. Estimators on the simplex do better; by how much depends
    on the truth (`rrjax.study` simulates it).

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        estimand: "distribution" or "users": what the error is from.
        mechanism: Its class, or a function of K and ε. Static.

    Returns:
        Scalar, probability. NaN where N or ε is not positive.

    Raises:
        ValueError: K < 2, what is not one number, or an unknown estimand.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.expected_rmse(100, 380_000, epsilon=1.0):.4f}")
        0.0096
        >>> both = [rrjax.inference.expected_rmse(3, 100, 8.0, estimand=each) for each in ("distribution", "users")]
        >>> [f"{each:.4f}" for each in both]  # at a large ε chance is in the drawing of the users
        ['0.0472', '0.0021']
    """
    num_users = as_scalar(num_users, float_dtype(), "num_users")
    total = squared_error_of_one(num_categories, epsilon, mechanism) + drawing_error(num_categories, estimand)
    return jnp.sqrt(total / jnp.where(num_users > 0, num_users, jnp.nan) / num_categories)


def drawing_error(num_categories: int, estimand: Estimand) -> float:
    """The largest expected squared error, times N, that drawing the users adds: 1 − Σθ² of equal shares, or nothing."""
    check_estimand(estimand)
    return 1 - 1 / num_categories if estimand == "distribution" else 0.0


def users_for_error(
    num_categories: int,
    epsilon: ArrayLike,
    rmse: ArrayLike,
    *,
    estimand: Estimand = "distribution",
    mechanism: MechanismFactory = RandomizedResponse,
) -> Float[Array, ""]:
    """How many users bring `expected_rmse` down to a target.

    Args:
        num_categories: K, at least 2. Static.
        epsilon: Scalar, nats.
        rmse: Scalar, the target, probability.
        estimand: As in `expected_rmse`.
        mechanism: As in `expected_rmse`.

    Returns:
        Scalar, a whole number to the dtype's digits. NaN where ε or the target is not positive. Derivatives are those
        of the number before it is rounded up.

    Raises:
        ValueError: K < 2, what is not one number, or an unknown estimand.

    Example:
        >>> import rrjax
        >>> int(rrjax.inference.users_for_error(100, epsilon=1.0, rmse=0.01))
        346933
    """
    rmse = as_scalar(rmse, float_dtype(), "rmse")
    rmse = jnp.where(rmse > 0, rmse, jnp.nan)
    total = squared_error_of_one(num_categories, epsilon, mechanism) + drawing_error(num_categories, estimand)
    number = total / num_categories / rmse**2
    return rounded(number, jnp.ceil(number))


def epsilon_for_error(
    num_categories: int,
    num_users: ArrayLike,
    rmse: ArrayLike,
    *,
    estimand: Estimand = "distribution",
    mechanism: MechanismFactory = RandomizedResponse,
) -> Float[Array, ""]:
    """The smallest ε at which `expected_rmse` reaches a target with so many users.

    Of randomized response, with M = K·N·rmse² less what drawing the users adds, e^ε − 1 is the positive root of
    M·x² = (K−1)·(2x + K); of other mechanisms ε is found by bisection.

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        rmse: Scalar, the target, probability.
        estimand: As in `expected_rmse`.
        mechanism: As in `expected_rmse`.

    Returns:
        Scalar, nats; infinite where no ε (of other mechanisms: none up to 80) reaches it, with derivatives of NaN. NaN
        where N or the target is not positive.

    Raises:
        ValueError: K < 2, what is not one number, or an unknown estimand.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.epsilon_for_error(100, 346_933, rmse=0.01):.4f}")
        1.0000
    """
    check_num_categories(num_categories)
    num_users = as_scalar(num_users, float_dtype(), "num_users")
    rmse = as_scalar(rmse, float_dtype(), "rmse")
    left = rmse**2 * num_users * num_categories - drawing_error(num_categories, estimand)
    if mechanism is not RandomizedResponse:
        found = epsilon_of_error(left, num_categories, mechanism)
        return jnp.where((num_users > 0) & (rmse > 0), found, jnp.nan)
    load = (num_categories - 1) / jnp.where(left > 0, left, jnp.nan)
    found = jnp.log1p(load + jnp.sqrt(load**2 + load * num_categories))
    found = rounded(found, jnp.where(left > 0, found, jnp.inf))
    return jnp.where((num_users > 0) & (rmse > 0), found, jnp.nan)


def expected_width(
    num_categories: int,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    share: ArrayLike = 0.0,
    *,
    level: ArrayLike = 0.95,
    simultaneous: Simultaneous | None = None,
    mechanism: MechanismFactory = RandomizedResponse,
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
        mechanism: As in `expected_rmse`.

    Returns:
        Scalar, probability. NaN where N or ε is not positive, or the share is none. N is rounded to a whole number, but
        has a derivative.

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
    width = width_of(number, rates_of(num_categories, epsilon, mechanism), share, tail)
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
) -> Float[Array, ""]:
    """How many users bring `expected_width` down to a target.

    Args:
        num_categories: K, at least 2. Static.
        epsilon: Scalar, nats.
        width: Scalar in (0, 1), the target, probability.
        share: Scalar in [0, 1], the true share of the category.
        level: Scalar in (0, 1).
        simultaneous: As in `intervals`.
        mechanism: As in `expected_rmse`.

    Returns:
        Scalar, a whole number to the dtype's digits; infinite where it would be above 2⁵⁰. NaN where ε is not
        positive, or the share or the width is none. Derivatives are those of the number before it is rounded up, NaN
        where it is infinite.

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
    rates = rates_of(num_categories, epsilon, mechanism)
    number = users_of_width(rates, share, width, tail)
    return jnp.where((share >= 0) & (share <= 1) & (width > 0) & (width < 1) & (rates.truth > 0), number, jnp.nan)


def detectable_share(
    num_categories: int,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    *,
    level: ArrayLike = 0.05,
    power: ArrayLike = 0.8,
    mechanism: MechanismFactory = RandomizedResponse,
) -> Float[Array, ""]:
    """The smallest share of users that `p_values` finds at a level with a given power: exact, from binomial tails.

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        level: Scalar in (0, 1), of the p-value; level/K to allow for all K categories at once.
        power: Scalar in [0.5, 1), the probability to find it.
        mechanism: As in `expected_rmse`.

    Returns:
        Scalar, probability; above one where even a category that everybody holds would be missed. NaN where N or ε is
        not positive. As the least significant count is a whole number, the share goes in saw teeth, as high as one
        report is worth; derivatives are those of the trend, of a count that need not be whole.

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
    rates = rates_of(num_categories, epsilon, mechanism)
    share = detectable(jnp.where(number > 0, number, 1), rates, jnp.log(level), jnp.log1p(-power))
    usable = (number > 0) & (level > 0) & (level < 1) & (power >= 0.5) & (power < 1)
    return jnp.where(usable, jnp.maximum(share, 0), jnp.nan)


@exportable
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
    check_key(key)
    as_probability(level, "level", 0.05)
    num_collections = as_integer(num_collections, "num_collections", 1)

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
