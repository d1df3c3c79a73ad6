"""Random words by counter, and uniform, normal and integer variables by inversion of single words.

Any word of a stream is available at any time, without splitting keys. Threefry-2x32 is the function behind JAX's own
keys, written out so that it fuses with the use of the words; `jax.random.bits` keeps a rolled loop on a CPU, uses half
of the words, and compiles several times slower. Simulations take 13 of its rounds, the clients of real collections all.

References:
    Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int, UInt

from rrjax.numerics.threefry import threefry

ROUNDS = 13
"""Rounds of Threefry: the fewest for which Salmon et al. found no failure in TestU01's BigCrush, a third less work than
the 20 with a margin."""
_threefry = jax.jit(partial(threefry, rounds=ROUNDS))  # traced once for all arrays of a shape

TERMS = ((1 / 8, 6), (1.0, 13), (16.0, 48))
"""Largest expectation, and number of terms beyond which a Poisson or binomial law has less than 2⁻³³."""


class Stream(NamedTuple):
    """A stream of words, addressed by a place (a cell) and a site (the use of the word)."""

    first: UInt[Array, ""]
    second: UInt[Array, ""]

    @classmethod
    def of(cls, key: Array) -> Stream:
        """The stream of a typed key of any implementation."""
        words = jax.random.key_data(key)
        if words.shape != (2,):
            words = jax.random.bits(key, (2,), jnp.uint32)
        return cls(words[0], words[1])

    @property
    def zero(self) -> Int[Array, ""]:
        """A zero, int32, that is a batch if the stream is one, for the first state of a loop.

        Under `vmap` JAX traces the body of a loop anew for every part of the state that turns out to be a batch, and
        the bodies of loops within as often again.
        """
        return (self.first & jnp.uint32(0)).astype(jnp.int32)

    def pair(self, place: ArrayLike, site: ArrayLike) -> tuple[UInt[Array, "*s"], UInt[Array, "*s"]]:
        """Two independent words for every place, at one site."""
        x, y = (jnp.asarray(each).astype(jnp.uint32) for each in (place, site))
        return _threefry(self.first, self.second, x, y)


def unit(words: UInt[Array, "*s"], dtype) -> Array:
    """Uniform variables, the middles of the words' intervals of (0, 1); small ones keep all their digits."""
    return (words.astype(dtype) + 0.5) * 2.0**-32


# Giles' polynomials for the inverse error function in float32, highest degree first, in w − 2.5 and in √w − 3 for
# w = −log(1 − x²) below 5 and above.
_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503)
_CENTRE += (-0.00417768164, 0.246640727, 1.50140941)
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613)
_TAIL += (0.00943887047, 1.00167406, 2.83297682)


def normal(words: UInt[Array, "*s"], dtype) -> Array:
    """Standard normal variables of words; the lowest bit is the sign, so that tails keep their digits.

    They are off by less than 1e-6, in float32 beyond 5.6 by at most 0.005, which rejection allows.

    References:
        Giles, "Approximating the erfinv function", 2010.
    """
    both_tails = unit(words & ~jnp.uint32(1), dtype)
    if dtype == jnp.float32:
        w = -jnp.log(both_tails * (2 - both_tails))  # 1 − x² keeps its digits
        is_central = w < 5
        u = jnp.where(is_central, w - 2.5, jnp.sqrt(w) - 3)
        series = jnp.zeros_like(u)
        for centre, tail in zip(_CENTRE, _TAIL, strict=True):
            series = series * u + jnp.where(is_central, jnp.float32(centre), jnp.float32(tail))
        size = math.sqrt(2) * series * (1 - both_tails)
    else:
        size = math.sqrt(2) * lax.erf_inv(1 - both_tails)
    return jnp.where((words & 1) == 1, size, -size)


def count_tails(
    words: UInt[Array, " n"], terms: int, at_zero: Float[Array, " n"], ratio: Callable[[int], Float[Array, " n"]]
) -> Int[Array, " n"]:
    """Integers `[n]`, int32, of laws with small expectations: the number of upper tails above the uniform variable.

    Tails P(X ≥ k) are summed from their small ends, so that rare values keep their relative precision. `terms` is the
    largest value (see `TERMS`), `at_zero` is P(X = 0), `ratio(k)` is P(X = k)/P(X = k − 1).
    """
    uniform = unit(words, at_zero.dtype)
    mass = [at_zero]
    for k in range(1, terms + 1):
        mass.append(mass[-1] * ratio(k))
    drawn = jnp.zeros_like(words, jnp.int32)
    tail = jnp.zeros_like(uniform)
    for k in range(terms, 0, -1):
        tail = tail + mass[k]
        drawn = drawn + (uniform < tail).astype(jnp.int32)
    return drawn
