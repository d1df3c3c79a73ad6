"""The averaging attack: what somebody learns of a user by collecting the user's reports."""

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
    """How often the value of a user is guessed from the reports.

    Attributes:
        with_memo: `[T]`, from the first t reports, all made of one memo: never more than `bound` on average.
        without_memo: `[T]`, if every report is randomized from the value anew: towards one.
        bound: Scalar, e^ε∞/(e^ε∞ + K − 1): of any guess from whatever ε∞ is spent on, at uniform values.
    """

    with_memo: Float[Array, " T"]
    without_memo: Float[Array, " T"]
    bound: Float[Array, ""]


def averaging_attack(key: Array, protocol: Protocol, num_reports: int, num_users: int = 1000) -> Attack:
    """Guesses the values of simulated users from their reports, with and without the memo.

    Values are uniform, and the guess is the category with the largest sum of unbiased vectors (`debias`). It is the
    likeliest one, than which no attack does better: it is supported by most reports. Of `LongitudinalBitFlipping` that
    holds with the memo only. Without it every report asks about other categories, and the likeliest value, which counts
    bits that are set and bits that are not alike, is guessed right a little more often than said here.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        protocol: Any one of K categories.
        num_reports: T, how many reports are collected of each user. Static.
        num_users: How many users are simulated: a share s has the standard error sqrt(s(1−s)/num_users). Static.

    Returns:
        An `Attack`, shares of right guesses; NaN where a traced ε makes no sense.

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
    of_values, of_memo, of_rounds = jax.random.split(key, 3)
    values = jax.random.randint(of_values, (num_users,), 0, protocol.num_categories, jnp.int32)
    memo = protocol.memoize(of_memo, values)

    def turn(scores, key):
        kept, fresh, first, second = *scores, *jax.random.split(key)
        renewed, last = jax.random.split(second)
        kept = kept + protocol.debias(protocol.report(first, memo))
        fresh = fresh + protocol.debias(protocol.report(last, protocol.memoize(renewed, values)))
        return (kept, fresh), (success(kept), success(fresh))

    def success(scores):
        right = jnp.mean((jnp.argmax(scores, axis=1).astype(values.dtype) == values).astype(scores.dtype))
        return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, right)

    bound = RandomizedResponse(protocol.num_categories, protocol.epsilon).p
    zeros = jnp.zeros((num_users, protocol.num_categories), bound.dtype)
    _, (with_memo, without) = lax.scan(turn, aligned((zeros, zeros), key), jax.random.split(of_rounds, num_reports))
    return Attack(with_memo, without, bound)
