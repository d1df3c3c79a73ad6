r"""Limits for a weighted sum of means of independent collections that hold for every number of users.

D = Σ_s W_s·m_s, m_s = x·θ_s with x from 0 to 1, is estimated by D̂ = Σ_s W_s·m̂_s without bias. With
λ_s = λ·W_s/(N_s·d_s) and M_s(m) the generating function at λ_s of a report's x, less its expectation under m̂_s,
Markov's inequality says

    log P(D̂ ≥ what came) ≤ max over m with Σ W_s·m_s = D of Σ_s N_s·log M_s(m_s),

where, as in `superquantile`, the users' x are taken to be 0 or 1, which makes M_s largest and linear in m_s. The
maximum is that of a concave function, so with any multiplier κ it is at most

    Σ_s max over m of [N_s·log M_s(m) − κ·W_s·(m − m̂_s)] + κ·(D − D̂).

Each maximum has a closed form, and the bound is linear in D: with F its sum, all D below D̂ − (F − log p)/κ are refused.
The best λ and κ are searched for; any would do. For given users log M_s is averaged over them, which is no more.

The maximum is taken over those m_s alone that intervals of their own do not exclude, of a high level: without, rare
values would be taken to be as spread as frequent ones, since D says nothing of where the m_s lie (Berger and Boos).

References:
    Hoeffding, "Probability inequalities for sums of bounded random variables", 1963; Berger and Boos, "P values
    maximized over a confidence set for the nuisance parameter", 1994.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.inference.superquantile import Spread, mirrored
from rrjax.numerics.special import exp_minus, log1p_minus

_PLACES, _PASSES = 4, 8
"""Of a search: at so many places a time, so many times."""


class Collections(NamedTuple):
    """Independent collections of the same values.

    Attributes:
        estimates: `[S]`, m̂, any numbers.
        num_users: `[S]`, N.
        kept: `[S]`, d.
        weights: `[S]`, W, of either sign.
        lower: `[S]`, from 0 to 1: what m is not below.
        upper: `[S]`, what it is not above.
    """

    estimates: Float[Array, " S"]
    num_users: Float[Array, " S"]
    kept: Float[Array, " S"]
    weights: Float[Array, " S"]
    lower: Float[Array, " S"]
    upper: Float[Array, " S"]

    def mirrored(self) -> Collections:
        """Those of 1 − x."""
        return self._replace(estimates=1 - self.estimates, lower=1 - self.upper, upper=1 - self.lower)


@jax.jit
def combined_limits(
    spread: Spread, data: Collections, log_tail: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The D such that all below are refused, and all above; not cut to the range of D."""
    sides = (spread, data), (mirrored(spread), data.mirrored())
    spreads, both = jax.tree.map(lambda *each: jnp.stack(each), *sides)
    limits = jax.vmap(_lower_limit, (0, 0, None))(spreads, both, log_tail)
    return limits[0], jnp.sum(data.weights) - limits[1]


def _lower_limit(spread, data, log_tail):
    estimates, number, kept, weights = data[:4]
    each = weights / (number * kept)
    variance = spread.of_reports(jnp.clip(estimates, 0, 1), kept)
    # Where one user more or less is all that matters, λ_s is of the order of one.
    scale = jnp.sqrt(-2 * log_tail / (jnp.sum(each**2 * number * variance) + jnp.max(jnp.abs(each)) ** 2))

    def at(tilt):
        """How far the limit is below the estimate, with the best multiplier for this λ."""
        s = tilt * each  # λ_s
        means = kept * estimates + (1 - kept) * spread.mean
        noise = jnp.sum(spread.mass * exp_minus(s[:, None] * (spread.points - means[:, None])), axis=1)
        low, high = (
            (1 - kept) * noise + kept * exp_minus(s * (end - means)) for end in (jnp.zeros_like(s), jnp.ones_like(s))
        )
        # M − 1 = s·d·(m − m̂) + low + m·(high − low)
        rise = s * kept
        still = rise == 0
        safe = jnp.where(still, 1, rise)
        bend = (high - low) / safe

        def of_multiplier(log_ratio):
            excess = jnp.expm1(log_ratio)  # κ = λ·(1 + excess)
            best = (1 + bend) / (1 + excess) - 1
            moved = (best - (low + estimates * (high - low))) / (1 + bend)
            share = jnp.clip(estimates + moved / safe, data.lower, data.upper)
            first = rise * (share - estimates)
            second = low + share * (high - low)
            value = number * (log1p_minus(first + second) + second - excess * first)
            return (jnp.sum(jnp.where(still, 0, value)) - log_tail) / (tilt * (1 + excess))

        reach = 2 * jnp.minimum(jnp.max(jnp.abs(s)), 1)
        return _least(of_multiplier, -reach, reach)

    distance = _least(lambda log_tilt: at(jnp.exp(log_tilt)), jnp.log(scale) - 4, jnp.log(scale) + 1)
    return jnp.sum(weights * estimates) - distance


def _least(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The least value that a search meets, of a function that falls and then rises."""
    inner = jnp.arange(1, _PLACES + 1, dtype=low.dtype) / (_PLACES + 1)

    def narrow(_, state):
        low, high, least = state
        found = jax.vmap(function)(low + (high - low) * inner)
        best, step = jnp.argmin(found), (high - low) / (_PLACES + 1)
        return (
            low + best.astype(low.dtype) * step,
            low + (best + 2).astype(low.dtype) * step,
            jnp.fmin(least, found[best]),
        )

    state = (low, high, jnp.full_like(low, jnp.inf))
    return lax.fori_loop(0, _PASSES, narrow, state)[-1]
