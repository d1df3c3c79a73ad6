"""The averaging attack: guesses a user's value from many reports of the user."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.data.arguments import check_key
from rrjax.mechanisms.longitudinal.protocol import Protocol, as_positive
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned


@exportable
class Attack(NamedTuple):
    """How often the attack guesses the value of a user.

    Attributes:
        with_memo: `[T]`, from the first t reports, all made of one memo: at most `bound` on average.
        without_memo: `[T]`, if every report randomizes the value anew: towards one.
        bound: Scalar, e^ε∞/(e^ε∞ + K − 1): no guess from reports that spend ε∞ is better, at uniform values.
    """

    with_memo: Float[Array, " T"]
    without_memo: Float[Array, " T"]
    bound: Float[Array, ""]


def averaging_attack(key: Array, protocol: Protocol, num_reports: int, num_users: int = 1000) -> Attack:
    """Guesses the values of simulated users from their reports, with and without the memo.

    Values are uniform. The guess is the category with the largest sum of unbiased vectors (`debias`), the one that most
    reports support. It is the likeliest value, so no attack does better. For `LongitudinalBitFlipping` this holds with
    the memo only: without it every report asks about other categories, and the likeliest value, which also counts unset
    bits, is right a little more often than stated here.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        protocol: Any one of K categories.
        num_reports: T, the reports collected from each user. Static.
        num_users: The number of simulated users: a share s has the standard error sqrt(s(1−s)/num_users). Static.

    Returns:
        An `Attack`, shares of right guesses; NaN for an impossible traced ε.

    Raises:
        ValueError: `num_reports` or `num_users` not a positive integer.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalRandomizedResponse(4, epsilon=2.0, first_epsilon=1.0)
        >>> attack = rrjax.longitudinal.averaging_attack(jax.random.key(0), protocol, 50, num_users=10_000)
        >>> print(f"{attack.without_memo[-1]:.2f} {attack.with_memo[-1]:.2f} {attack.bound:.2f}")
        0.99 0.72 0.71

    References:
        Ding, Kulkarni and Yekhanin, "Collecting telemetry data privately", 2017, §1.
    """
    check_key(key)
    return _attack(key, protocol, as_positive(num_reports, "num_reports"), as_positive(num_users, "num_users"))


@partial(jax.jit, static_argnums=(2, 3))
def _attack(key, protocol, num_reports, num_users):
    key_of_values, key_of_memo, key_of_rounds = jax.random.split(key, 3)
    values = jax.random.randint(key_of_values, (num_users,), 0, protocol.num_categories, jnp.int32)
    memo = protocol.memoize(key_of_memo, values)

    def add_round(scores, key):
        with_memo, without, first, second = *scores, *jax.random.split(key)
        key_of_new_memo, last = jax.random.split(second)
        with_memo = with_memo + protocol.debias(protocol.report(first, memo))
        without = without + protocol.debias(protocol.report(last, protocol.memoize(key_of_new_memo, values)))
        return (with_memo, without), (success(with_memo), success(without))

    def success(scores):
        right = jnp.mean((jnp.argmax(scores, axis=1).astype(values.dtype) == values).astype(scores.dtype))
        return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, right)

    bound = RandomizedResponse(protocol.num_categories, protocol.epsilon).p
    zeros = jnp.zeros((num_users, protocol.num_categories), bound.dtype)
    _, (with_memo, without) = lax.scan(
        add_round, aligned((zeros, zeros), key), jax.random.split(key_of_rounds, num_reports)
    )
    return Attack(with_memo, without, bound)
