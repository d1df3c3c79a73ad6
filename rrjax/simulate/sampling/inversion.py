"""Inversion for small expectations, as vectors: how many upper tails exceed one random word."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt

from rrjax.simulate.sampling.streams import unit

TERMS = ((1.0, 13), (16.0, 48))
"""Largest expectation, and the terms beyond which a Poisson law has less than 2⁻³³, a binomial one less still."""


def count_tails(
    bits: UInt[Array, " n"], terms: int, at_zero: Float[Array, " n"], ratio: Callable[[int], Float[Array, " n"]]
) -> Int[Array, " n"]:
    """Draws from laws on 0, 1, 2, … given by the mass at zero and the ratios of successive masses.

    The tails P(X ≥ k) are summed from their small ends, so that rare values keep their relative precision.

    Args:
        bits: `[n]`, one random word each.
        terms: Static. The largest value that is looked at; see `TERMS`.
        at_zero: `[n]`, P(X = 0).
        ratio: k ≥ 1 → P(X = k) / P(X = k − 1), `[n]`.

    Returns:
        `[n]`, int32.
    """
    uniform = unit(bits, at_zero.dtype)
    mass = [at_zero]
    for k in range(1, terms + 1):
        mass.append(mass[-1] * ratio(k))
    drawn = jnp.zeros_like(bits, jnp.int32)
    tail = jnp.zeros_like(uniform)
    for k in range(terms, 0, -1):
        tail = tail + mass[k]
        drawn = drawn + (uniform < tail).astype(jnp.int32)
    return drawn
