"""The log-likelihood of single reports, for losses: with all factors, without overflow at any ε."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import float_dtype
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sums import log_sum


@exportable
class LogRows(NamedTuple):
    """The likelihood of each report: P(report | θ) = exp(scale)·(exp(base) + Σ_i exp(lift_i)·θ_i).

    `base` is the part common to all values, as in `Mixture`. The scale is separate because it may be a sum of 10⁵
    terms, and its rounding would exceed the other parts.

    Attributes:
        scale: `[*s]`, nats.
        base: `[*s]`, nats, at most about zero.
        lift: `[*s, K]`, nats, −∞ for values whose likelihood is the base.
    """

    scale: Float[Array, "*s"]
    base: Float[Array, "*s"]
    lift: Float[Array, "*s K"]

    def log_probability(self, log_theta: Float[Array, "*s K"]) -> Float[Array, "*s"]:
        """Log P(report | θ) of each report, nats; each report has its own log θ."""
        dtype = log_theta.dtype
        lifted = log_sum(self.lift.astype(dtype) + log_theta)
        return self.scale.astype(dtype) + jnp.logaddexp(self.base.astype(dtype), lifted)

    def where(self, kept: Bool[ArrayLike, "*s"], otherwise: float) -> LogRows:
        """The rows, with the others than `kept` filled with one number; NaN makes their derivatives NaN too."""
        kept = jnp.asarray(kept)
        scale, base = (jnp.where(kept, part, otherwise) for part in (self.scale, self.base))
        return LogRows(scale, base, jnp.where(kept[..., None], self.lift, otherwise))


def log_gain(epsilon: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Log(1 − e^−ε): the lift of a supported category relative to its own likelihood."""
    return jnp.log(-jnp.expm1(-epsilon))


def log_probability_of_block(epsilon: ArrayLike, ratio: float, log_holding: float) -> Float[Array, ""]:
    """Log-probability of a report, a block of a block design, for a user whose category is in the block."""
    epsilon = jnp.asarray(epsilon).astype(float_dtype())
    return -log_holding - jnp.log1p((ratio - 1) * jnp.exp(-epsilon))
