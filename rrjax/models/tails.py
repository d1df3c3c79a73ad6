"""The laws of Wald's statistics: χ² and normal in large samples, F and Student's t where clusters are few."""

from __future__ import annotations

import math
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaincc
from jaxtyping import Array, ArrayLike, Float

_MANY = 10_000
"""Degrees of freedom beyond which F's law is taken for χ²'s: p-values of 1e-6 and more differ by less than 2 %."""


def tail(statistic: ArrayLike, degrees: int, clusters: int | None = None) -> Float[Array, "*s"]:
    """How often a Wald statistic is larger."""
    statistic = jnp.asarray(statistic)
    half = jnp.asarray(degrees / 2, statistic.dtype)
    if clusters is None or clusters - 1 > _MANY:
        return gammaincc(half, statistic / 2)
    rest = jnp.asarray((clusters - 1) / 2, statistic.dtype)
    return betainc(rest, half, 1 / (1 + statistic / (clusters - 1)))


def p_value_of(scores: ArrayLike, clusters: int | None = None) -> np.ndarray:
    """How often a normal variable, or with clusters Student's t, is farther from zero, on the host."""
    return np.asarray(tail(jnp.square(jnp.asarray(scores)), 1, clusters), float)


def reach(level: float, clusters: int | None = None) -> float:
    """How many standard errors an interval reaches to either side: a quantile of the normal law or Student's t."""
    if clusters is None:
        return NormalDist().inv_cdf((1 + level) / 2)
    low, high = 0.0, 40.0
    with jax.ensure_compile_time_eval():  # where a prediction is traced, too
        while high < 1e12 and float(tail(high * high, 1, clusters)) > 1 - level:
            low, high = high, high**2
        for _ in range(64):
            middle = (low + high) / 2 if high < 100 else math.sqrt(max(low, 1.0) * high)
            farther = float(tail(middle * middle, 1, clusters)) > 1 - level
            low, high = (middle, high) if farther else (low, middle)
    return high
