"""Inversion for small expectations, as vectors: how many upper tails exceed one random word."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt

from rrjax.sampling.words import unit

# (largest expectation, terms): beyond so many terms a Poisson law has less than 2⁻³³, a binomial one less still.
_TIERS = ((0.125, 7), (1.0, 13), (4.0, 22), (16.0, 48))


def count_tails(
    bits: UInt[Array, " n"],
    most: Float[Array, ""],
    at_zero: Float[Array, " n"],
    ratio: Callable[[int], Float[Array, " n"]],
) -> Int[Array, " n"]:
    """Draws from laws on 0, 1, 2, … given by the mass at zero and the ratios of successive masses.

    The tails P(X ≥ k) are summed from their small ends, so that rare values keep their relative precision.

    Args:
        bits: `[n]`, one random word each.
        most: The largest expectation, at most 16: it decides how many terms are needed.
        at_zero: `[n]`, P(X = 0).
        ratio: k ≥ 1 → P(X = k) / P(X = k − 1), `[n]`.

    Returns:
        `[n]`, int32.
    """

    def counted(terms):
        def count():
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

        return count

    tier = sum((most >= bound).astype(jnp.int32) for bound, _ in _TIERS[:-1])
    return lax.switch(tier, [counted(terms) for _, terms in _TIERS])
