"""The likelihood of single reports in logarithms, for losses: nothing is left out, and nothing overflows at any ε."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import float_dtype
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sums import log_sum


@exportable
class LogRows(NamedTuple):
    """What each report says: P(report | θ) = exp(scale)·(exp(base) + Σ_i exp(lift_i)·θ_i).

    The part `base` has whatever the value, as in `Mixture`. The scale is apart because it may be a sum of 10⁵ terms,
    beside which the rest would be rounded away.

    Attributes:
        scale: `[*s]`, nats.
        base: `[*s]`, nats, at most about zero.
        lift: `[*s, K]`, nats, −∞ for values that add nothing to the base.
    """

    scale: Float[Array, "*s"]
    base: Float[Array, "*s"]
    lift: Float[Array, "*s K"]

    def log_probability(self, log_theta: Float[Array, "*s K"]) -> Float[Array, "*s"]:
        """Log P(report | θ) of each report, nats, under a distribution of its own each, given in logarithms."""
        dtype = log_theta.dtype
        lifted = log_sum(self.lift.astype(dtype) + log_theta)
        return self.scale.astype(dtype) + jnp.logaddexp(self.base.astype(dtype), lifted)

    def where(self, kept: Bool[ArrayLike, "*s"], otherwise: float) -> LogRows:
        """The rows that are kept, and one number in place of the others: NaN makes their derivatives NaN too."""
        kept = jnp.asarray(kept)
        scale, base = (jnp.where(kept, part, otherwise) for part in (self.scale, self.base))
        return LogRows(scale, base, jnp.where(kept[..., None], self.lift, otherwise))


def log_gain(epsilon: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Log(1 − e^−ε), by which a supported category is above another one, relative to itself."""
    return jnp.log(-jnp.expm1(-epsilon))


def log_probability_of_block(epsilon: ArrayLike, ratio: float, log_holding: float) -> Float[Array, ""]:
    """Log-probability of a report that is a block of a design, for a user whose category it holds."""
    epsilon = jnp.asarray(epsilon).astype(float_dtype())
    return -log_holding - jnp.log1p((ratio - 1) * jnp.exp(-epsilon))
