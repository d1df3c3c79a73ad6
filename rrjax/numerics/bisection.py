"""Bisection of real intervals and of sorted places, in a fixed number of steps, for `jit` and `vmap`."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Int


def arithmetic_mean(low: Array, high: Array) -> Array:
    """The middle of an interval."""
    return (low + high) / 2


def geometric_mean(low: Array, high: Array) -> Array:
    """The middle of an interval on a logarithmic scale."""
    return jnp.sqrt(low * high)


def bisected(
    is_too_low: Callable[[Array], Bool[Array, "*s"]],
    low: Array,
    high: Array,
    num_steps: int,
    middle: Callable[[Array, Array], Array] = arithmetic_mean,
) -> tuple[Array, Array]:
    """Both ends of intervals `[low, high]`, halved repeatedly around the point where `is_too_low` becomes false."""

    def halve(_, interval):
        low, high = interval
        point = middle(low, high)
        too_low = is_too_low(point)
        return jnp.where(too_low, point, low), jnp.where(too_low, high, point)

    return lax.fori_loop(0, num_steps, halve, (low, high))


def first_place(is_before: Callable[[Array], Bool[Array, "*s"]], start: Int[Array, "*s"], size: int) -> Array:
    """The first of the places `start, …, size` for which `is_before` is false; it must be true before and false after.

    After the end of the search `is_before` is also called with `size`, and its result is not used.
    """

    def halve(_, span):
        low, high = span
        middle = (low + high) >> 1
        before = (low < high) & is_before(middle)
        return jnp.where(before, middle + 1, low), jnp.where(before, high, middle)

    return lax.fori_loop(0, size.bit_length(), halve, (start, jnp.full_like(start, size)))[0]
