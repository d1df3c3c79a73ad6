"""What clients draw, in integers: events with a probability of 64 bits, and numbers below a bound."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt

from rrjax.numerics.threefry import product

Words = tuple[Array, Array]
"""A number of 64 bits: its high and its low word, each uint32."""


@jax.jit
def threshold(probability: Float[Array, "*s"], margin: Float[Array, ""] | float) -> Words:
    """`probability`·2⁶⁴, moved by `margin` of itself; the largest number where it is one."""
    scaled = probability * (1 + margin) * 2.0**32
    high = jnp.floor(scaled)
    low = jnp.floor((scaled - high) * 2.0**32)
    most = scaled >= 2.0**32
    word = jnp.uint32(2**32 - 1)
    return jnp.where(most, word, high.astype(jnp.uint32)), jnp.where(most, word, low.astype(jnp.uint32))


def rounded_down(probability: Float[Array, "*s"]) -> Words:
    """The threshold of a user's own category: no more than `probability` by all that rounding may have added."""
    return threshold(probability, -2 * jnp.finfo(probability.dtype).eps)


def rounded_up(probability: Float[Array, "*s"]) -> Words:
    """The threshold of any other category: no less than `probability`."""
    return threshold(probability, 2 * jnp.finfo(probability.dtype).eps)


def below(words: Words, bound: Words) -> Bool[Array, "*s"]:
    """Whether one number is below the other."""
    return (words[0] < bound[0]) | ((words[0] == bound[0]) & (words[1] < bound[1]))


def number_below(words: Words, bound: UInt[Array, "*s"]) -> UInt[Array, "*s"]:
    """A number from 0 to bound − 1, uniform to bound/2⁶⁴: the integer part of u·bound/2⁶⁴."""
    bound = jnp.asarray(bound, jnp.uint32)
    high, middle = product(words[0], bound)
    carried, _ = product(words[1], bound)
    return high + (middle + carried < middle).astype(jnp.uint32)
