"""Random words by counter: any word of a stream at any time, without keys being split.

Threefry-2x32 with 20 rounds, the function behind JAX's own keys, written out so that it fuses with what consumes the
words; `jax.random.bits` keeps a rolled loop on a CPU, uses half of the words, and compiles several times slower.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, UInt

from rrjax.words import threefry


class Stream(NamedTuple):
    """A stream of words, addressed by a place (a cell) and a site (what the word is for)."""

    first: UInt[Array, ""]
    second: UInt[Array, ""]

    @classmethod
    def of(cls, key: Array) -> Stream:
        """The stream of a typed key of any implementation."""
        words = jax.random.key_data(key)
        if words.shape != (2,):
            words = jax.random.bits(key, (2,), jnp.uint32)
        return cls(words[0], words[1])

    def pair(self, place: ArrayLike, site: ArrayLike) -> tuple[UInt[Array, "*s"], UInt[Array, "*s"]]:
        """Two independent words for every place, at one site."""
        x, y = (jnp.asarray(each).astype(jnp.uint32) for each in (place, site))
        return threefry(self.first, self.second, x, y)


def unit(words: UInt[Array, "*s"], dtype) -> Array:
    """Words to the middle of their interval of (0, 1); small ones keep all their digits."""
    return (words.astype(dtype) + 0.5) * 2.0**-32
