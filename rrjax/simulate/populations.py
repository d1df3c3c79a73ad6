"""Populations, and exact draws of the counts of collections from them, without simulating single users.

`true_counts`, `counts`, `collect` and `randomized` take O(K) time and memory, for any N below 2³¹ (the first three to
2⁵³ with x64), and batch through `jax.vmap` over keys. Their laws are the laws for N users who each draw a value and
randomize it, up to the rounding of probabilities to the dtype and of random words to 2⁻³². The same key gives different
draws in float64 and in float32.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_counts, as_distribution, as_scalar, check_key, count_summary, float_dtype
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.numerics.sharding import is_explicit, searched, with_sharding_of
from rrjax.numerics.sums import accurate_sum, expm1_epsilon
from rrjax.simulate.sampling import Stream, binomial, multinomial


def zipf(num_categories: int, exponent: ArrayLike) -> Float[Array, " K"]:
    """The Zipf distribution over K categories, θ_i ∝ (i + 1)^−s, the paper's synthetic population.

    Args:
        num_categories: K, at least 2. Static.
        exponent: Scalar s ≥ 0; 0 is uniform, infinity the point mass on category 0.

    Returns:
        `[K]`, decreasing, sums to one; differentiable in the exponent. All NaN for a negative exponent.

    Raises:
        ValueError: K < 2, or an exponent that is not one real number.

    Example:
        >>> import rrjax
        >>> print(rrjax.simulate.zipf(4, 1.0).round(2))
        [0.48 0.24 0.16 0.12]
    """
    check_num_categories(num_categories)
    return _zipf(num_categories, as_scalar(exponent, float_dtype(), "exponent"))


@partial(jax.jit, static_argnums=0)
def _zipf(num_categories, exponent):
    rank = jnp.arange(1, num_categories + 1, dtype=exponent.dtype)
    # The first rank is exactly one for every exponent, even if the product would be 0 · ∞.
    log_rank = jnp.where(rank == 1, 0, jnp.log(rank))
    weights = jnp.where(rank == 1, 1, jnp.exp(-exponent * log_rank))
    return jnp.where(exponent >= 0, weights / accurate_sum(weights), jnp.nan)


def values(key: Array, theta: ArrayLike, num_users: int) -> Int[Array, " N"]:
    """Draws the true values of independent users.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        theta: `[K]`, the distribution to draw from.
        num_users: N. Static.

    Returns:
        `[N]`, int32, category numbers. By inversion of the cumulative sums: probabilities are exact to the rounding of
        these. All −1 if theta has a negative entry, NaN, or no mass: estimates from them are NaN.

    Raises:
        ValueError: A wrong shape, K < 2, or a number of users that is not in range.

    Example:
        >>> import jax, rrjax
        >>> rrjax.simulate.values(jax.random.key(0), [0.5, 0.5], 1000).shape
        (1000,)
    """
    check_key(key)
    _as_users(num_users)  # an array under tracing, but the length of the result must be a number
    num_users, theta = int(num_users), as_distribution(theta)
    # `searched` must see whether a mesh has them.
    spread = is_explicit(key) or is_explicit(theta)
    return (_values if spread else _compiled_values)(key, theta, num_users)


def _values(key, theta, num_users):
    edges = jnp.cumsum(theta)
    uniform = jax.random.uniform(key, (num_users,), theta.dtype) * edges[-1]
    drawn = jnp.minimum(searched(edges, uniform), theta.shape[0] - 1)
    usable = (jnp.min(theta) >= 0) & (edges[-1] > 0) & jnp.isfinite(edges[-1])
    return jnp.where(usable, drawn, -1).astype(jnp.int32)


_compiled_values = jax.jit(_values, static_argnums=2)


def true_counts(key: Array, theta: ArrayLike, num_users: ArrayLike) -> Int[Array, " K"]:
    """Draws the numbers of users in each category; their values are independent draws from θ.

    n ~ Multinomial(N, θ), for the `collect` of a mechanism.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        theta: `[K]`, the distribution of the true values; scaled to sum to one.
        num_users: Scalar N, an integer from 0 to 2³¹ − 1, with x64 and not traced to 2⁵³.

    Returns:
        `[K]`, int32 (int64 if N is 2³¹ or more), with the sum N exactly. All −1 if those of `counts` are.

    Raises:
        ValueError: As `counts`.

    Example:
        >>> import jax, rrjax
        >>> users = rrjax.simulate.true_counts(jax.random.key(0), [0.5, 0.3, 0.2], 10_000)
        >>> mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(3, epsilon=1.0)
        >>> int(users.sum()), int(mechanism.collect(jax.random.key(1), users).num_users)
        (10000, 10000)
    """
    check_key(key)
    theta, num_users, _ = _population(theta, num_users, 1.0)
    return _true_counts(key, theta, num_users)


def counts(key: Array, theta: ArrayLike, num_users: ArrayLike, epsilon: ArrayLike) -> Int[Array, " K"]:
    """Draws the counts of the reports of N users whose values are independent draws from θ.

    c ~ Multinomial(N, q + d·θ).

    Args:
        key: A typed key, `jax.random.key(seed)`.
        theta: `[K]`, the distribution of the true values; scaled to sum to one.
        num_users: Scalar N, an integer from 0 to 2³¹ − 1, with x64 and not traced to 2⁵³. A traced N compiles once for
            a sweep.
        epsilon: Scalar, nats.

    Returns:
        `[K]`, int32 (int64 if N is 2³¹ or more), with the sum N exactly. All −1 if theta has a negative entry, NaN, no
        mass, or a mass beyond the dtype, if ε is not positive, or if N is out of range under tracing: estimates from
        them are NaN.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or a number of users that is not in range (not under tracing).

    Example:
        >>> import jax, rrjax
        >>> theta = rrjax.simulate.zipf(1000, 1.3)
        >>> int(rrjax.simulate.counts(jax.random.key(0), theta, 1_000_000, epsilon=2.0).sum())
        1000000
    """
    check_key(key)
    return _counts(key, *_population(theta, num_users, epsilon))


def collect(
    key: Array, theta: ArrayLike, num_users: ArrayLike, epsilon: ArrayLike
) -> tuple[Int[Array, " K"], Int[Array, " K"]]:
    """Draws the true counts of N users from θ, and the counts of their reports.

    A user keeps the value with probability d and else reports any category, 1/K each. So users fall into 2K cells
    (values × kept or not), and users who did not keep their value add a uniform multinomial to the reports.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        theta: `[K]`, the distribution of the true values; scaled to sum to one.
        num_users: Scalar N, an integer from 0 to 2³¹ − 1, with x64 and not traced to 2⁵³.
        epsilon: Scalar, nats.

    Returns:
        `(true_counts, counts)`, `[K]` each, int32 (int64 if N is 2³¹ or more), both with the sum N exactly; all −1 if
        those of `counts` are.

    Raises:
        ValueError: As `counts`.

    Example:
        >>> import jax, rrjax
        >>> true_counts, counts = rrjax.simulate.collect(jax.random.key(0), [0.5, 0.3, 0.2], 10_000, epsilon=1.0)
        >>> int(true_counts.sum()), int(counts.sum())
        (10000, 10000)
    """
    check_key(key)
    return _collect(key, *_population(theta, num_users, epsilon))


def randomized(key: Array, true_counts: ArrayLike, epsilon: ArrayLike) -> Int[Array, " K"]:
    """Draws the counts of the reports of a given population: only the randomization is random.

    k_i ~ Binomial(n_i, d) users keep their value; the others are spread over all K categories.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        true_counts: `[K]`, integers, the number of users in each category; below 2³¹ in all.
        epsilon: Scalar, nats.

    Returns:
        `[K]`, int32, with the sum of `true_counts` exactly. All −1 if a count is negative, ε is not positive, or the
        total is beyond 2³¹ − 1 under tracing: estimates from them are NaN.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers, or a total beyond 2³¹ − 1 (not under tracing).

    Example:
        >>> import jax, rrjax
        >>> int(rrjax.simulate.randomized(jax.random.key(0), [700, 200, 100], epsilon=1.0).sum())
        1000
    """
    check_key(key)
    true_counts = as_counts(true_counts, "true_counts", whole=True)
    if not isinstance(true_counts, Tracer):
        total = np.asarray(true_counts).sum(dtype=np.float64)  # exact up to 2⁵³, and never wraps
        if total >= 2**31:
            raise ArgumentError(f"true_counts must sum to at most 2147483647, got {total:.0f}", argument="true_counts")
    return _randomized(key, *with_sharding_of((true_counts, as_scalar(epsilon, float_dtype()))))


def _population(theta, num_users, epsilon):
    theta = as_distribution(theta)
    return with_sharding_of((theta, _as_users(num_users), as_scalar(epsilon, theta.dtype)))


def _as_users(num_users):
    if isinstance(num_users, int) and not isinstance(num_users, bool):
        _check_users(num_users)
    number = num_users if isinstance(num_users, jax.Array) else np.asarray(num_users)
    if number.ndim != 0 or not jnp.issubdtype(number.dtype, jnp.integer):
        raise ArgumentError.about(
            "num_users",
            f"must be one integer (use jax.vmap for several), got {number.dtype.name} of shape {number.shape}",
        )
    if not isinstance(number, Tracer):
        _check_users(int(number))
        return jnp.asarray(number, jnp.int32 if int(number) < 2**31 else jnp.int64)
    # A wider integer must not wrap to a plausible number.
    narrow = number.astype(jnp.int32)
    return jnp.where(narrow.astype(number.dtype) == number, narrow, -1)


def _check_users(number):
    largest = 2**53 if float_dtype() == jnp.float64 else 2**31 - 1
    if not 0 <= number <= largest:
        advice = "; more than 2147483647 need jax_enable_x64" if 2**31 <= number <= 2**53 else ""
        raise ArgumentError(f"num_users must be from 0 to {largest}, got {number}{advice}", argument="num_users")


def _usable(theta, num_users, epsilon):
    """θ scaled to sum to one, N, e^ε − 1, and whether they are valid; valid placeholders if not."""
    e1 = expm1_epsilon(epsilon)
    mass = accurate_sum(theta)
    # The reciprocal of a larger mass would be flushed to zero.
    usable = (jnp.min(theta) >= 0) & (mass > 0) & (mass < float(jnp.finfo(mass.dtype).max) / 4)
    usable = usable & (num_users >= 0) & (e1 > 0)
    theta = jnp.where(usable, theta / jnp.where(usable, mass, 1), 1 / theta.shape[0])
    return theta, jnp.where(usable, num_users, 0), jnp.where(usable, e1, 1), usable


def _kept_share(e1, num_categories):
    """d, the probability of keeping the value, and 1 − d."""
    return e1 / (e1 + num_categories), num_categories / (e1 + num_categories)


@jax.jit
def _true_counts(key, theta, num_users):
    theta, num_users, _, usable = _usable(theta, num_users, jnp.ones_like(theta[0]))
    return jnp.where(usable, multinomial(Stream.of(key), num_users, theta[None])[0], -1)


@jax.jit
def _counts(key, theta, num_users, epsilon):
    theta, num_users, e1, usable = _usable(theta, num_users, epsilon)
    # Not (1 + e1·θ)/(e1 + K): XLA multiplies a vector by the reciprocal, which is flushed to zero at the largest ε.
    law = 1 / (e1 + theta.shape[0]) + e1 / (e1 + theta.shape[0]) * theta
    return jnp.where(usable, multinomial(Stream.of(key), num_users, law[None])[0], -1)


@jax.jit
def _collect(key, theta, num_users, epsilon):
    theta, num_users, e1, usable = _usable(theta, num_users, epsilon)
    keep, drop = _kept_share(e1, theta.shape[0])
    law = jnp.stack([keep * theta, drop * theta])
    kept, dropped, others = multinomial(Stream.of(key), num_users, law, followed=True)
    return jnp.where(usable, kept + dropped, -1), jnp.where(usable, kept + others, -1)


@jax.jit
def _randomized(key, true_counts, epsilon):
    e1 = expm1_epsilon(epsilon)
    seen = count_summary(true_counts)
    usable = seen.drawable & (e1 > 0)
    true_counts = jnp.where(usable, true_counts, 0).astype(jnp.int32)
    num_users = jnp.where(usable, seen.total, 0).astype(jnp.int32)
    num_categories = true_counts.shape[0]
    keep, drop = _kept_share(jnp.where(usable, e1, 1), num_categories)
    keep_key, report_key = jax.random.split(key)
    # The smaller of d and 1 − d has all its digits, the larger may round to one.
    drawn = binomial(Stream.of(keep_key), 0, true_counts, jnp.minimum(keep, drop))
    kept = jnp.where(keep < drop, drawn, true_counts - drawn)
    uniform = jnp.full((1, num_categories), 1 / num_categories, drop.dtype)
    num_dropped = num_users - jnp.sum(kept, dtype=jnp.int32)
    expected = num_users.astype(drop.dtype) * drop
    (others,) = multinomial(Stream.of(report_key), num_dropped, uniform, expected=expected)
    return jnp.where(usable, kept + others, -1)
