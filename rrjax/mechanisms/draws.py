"""Draws in integers: events of a probability by 64 bits, numbers below a bound, collections of users."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt

from rrjax.data.arguments import count_summary
from rrjax.numerics.sharding import repeat, searched, with_sharding_of
from rrjax.numerics.threefry import product

Words = tuple[Array, Array]
"""A number of 64 bits: its high and its low word, each uint32."""


@jax.jit
def threshold(probability: Float[Array, "*s"], margin: Float[Array, ""] | float) -> Words:
    """`probability`·2⁶⁴·(1 + margin) as two words; 2⁶⁴ − 1 if the product is 2⁶⁴ or more."""
    scaled = probability * (1 + margin) * 2.0**32
    high = jnp.floor(scaled)
    low = jnp.floor((scaled - high) * 2.0**32)
    too_large = scaled >= 2.0**32
    word = jnp.uint32(2**32 - 1)
    return jnp.where(too_large, word, high.astype(jnp.uint32)), jnp.where(too_large, word, low.astype(jnp.uint32))


def rounded_down(probability: Float[Array, "*s"]) -> Words:
    """The threshold of a user's own category: at most `probability`, for any rounding."""
    return threshold(probability, -2 * jnp.finfo(probability.dtype).eps)


def rounded_up(probability: Float[Array, "*s"]) -> Words:
    """The threshold of any other category: at least `probability`, for any rounding."""
    return threshold(probability, 2 * jnp.finfo(probability.dtype).eps)


def below(words: Words, bound: Words) -> Bool[Array, "*s"]:
    """Whether the number `words` is below `bound`."""
    return (words[0] < bound[0]) | ((words[0] == bound[0]) & (words[1] < bound[1]))


def number_below(words: Words, bound: UInt[Array, "*s"]) -> UInt[Array, "*s"]:
    """A number from 0 to bound − 1, uniform up to bound/2⁶⁴: the integer part of u·bound/2⁶⁴."""
    bound = jnp.asarray(bound, jnp.uint32)
    high, middle = product(words[0], bound)
    carried, _ = product(words[1], bound)
    return high + (middle + carried < middle).astype(jnp.uint32)


def summed_in_parts(
    add: Callable[[Array, Array, Array, Array], Array], key: Array, true_counts: Array, size: int, zeros: Array
) -> tuple[Array, Array, Bool[Array, ""]]:
    """Sum of the reports of users who are simulated `size` at a time, in the order of their categories.

    Returns also the number of users, and whether the counts could be drawn.
    """
    seen = count_summary(true_counts)
    number = jnp.where(seen.drawable, seen.total, 0).astype(jnp.int32)
    ends = jnp.cumsum(jnp.where(seen.drawable, true_counts, 0).astype(jnp.int32))
    place = jnp.arange(size, dtype=jnp.int32)

    def draw(part, total):
        value = searched(ends, part * size + place).astype(jnp.int32)
        exists = place < number - part * size
        return add(total, jax.random.fold_in(key, part), jnp.minimum(value, true_counts.shape[0] - 1), exists)

    parts = number // size + jnp.minimum(number % size, 1)
    return repeat(parts, draw, with_sharding_of(zeros, key, true_counts)), number, seen.drawable
