"""Tests by simulation: what they return, and the p-value of a statistic among simulated ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_distribution, as_probability, float_dtype, survey
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.numerics.pytrees import register
from rrjax.numerics.sums import accurate_sum

_CELLS = 2**18
"""Draws × categories at a time."""
_TIE = 64
"""Machine epsilons by which a simulated statistic may fall short and count as equal: they round differently."""
_OFF = 1e-4
"""So far from one may a distribution sum, because of rounding."""


@register(data_fields=["statistic", "p_value", "standard_error"], meta_fields=["method"])
@dataclasses.dataclass(frozen=True)
class HypothesisTest:
    """The result of a test. A pytree; `method` is static.

    Attributes:
        statistic: Scalar.
        p_value: Scalar: how often, under the hypothesis, the statistic is at least as far out.
        standard_error: Scalar: of the p-value, from the finite number of draws.
        method: What was compared with what.
    """

    statistic: Float[Array, ""]
    p_value: Float[Array, ""]
    standard_error: Float[Array, ""]
    method: str


def check_draws(num_draws: int, level: float) -> None:
    """Refuses a number of draws with which no p-value could be as small as the level.

    Raises:
        ValueError: That, a number that is no integer, or a level outside (0, 1).
    """
    as_probability(level, "level", 0.05)
    num_draws = as_integer(num_draws, "num_draws", 1)
    if (num_draws + 1) * level < 1:
        raise ArgumentError(
            f"num_draws = {num_draws} is too few for the level {level:g}: the least p-value would be "
            f"{1 / (num_draws + 1):.2g}; take at least {int(np.ceil(1 / level)) - 1}",
            argument="num_draws",
        )


def as_hypothesis(theta: ArrayLike, num_categories: int) -> Float[Array, " K"]:
    """Checks that θ₀ is a distribution, as far as it is known.

    Raises:
        ValueError: A wrong shape, or (not under tracing) off the simplex.
    """
    theta = as_distribution(theta, num_categories)
    if not isinstance(theta, Tracer):
        known = np.asarray(theta, np.float64)
        total, least = known.sum(), known.min()
        if not (least >= 0 and abs(total - 1) <= _OFF):
            raise ArgumentError(
                f"theta must be a distribution; it sums to {total:.6g}, and its least entry is {least:.3g}",
                argument="theta",
            )
    return theta.astype(float_dtype())


def is_on_simplex(theta: Float[Array, " K"]) -> Bool[Array, ""]:
    """Whether θ₀ is a distribution, for what could not be refused under tracing."""
    return (jnp.min(theta) >= 0) & (jnp.abs(accurate_sum(theta) - 1) <= _OFF)


def simulable(counts: Int[Array, "*s"]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """How many reports there are, and whether collections of so many can be simulated."""
    seen = survey(counts.ravel())
    return jnp.where(seen.simulable, seen.total, 0), seen.simulable


def rounding_of_pearson(statistic: Float[Array, ""], number: Float[Array, ""] | Int[Array, ""]) -> Float[Array, ""]:
    """How much Σ (c − m)²/m may be off: differences of counts have errors of some machine epsilons of the counts."""
    eps = jnp.finfo(statistic.dtype).eps
    return 8 * eps * jnp.sqrt(jnp.maximum(jnp.abs(statistic), 1)) * jnp.sqrt(number.astype(statistic.dtype))


def compared(
    key: Array,
    statistic: Float[Array, ""],
    draw: Callable[[Array], Float[Array, ""]],
    num_draws: int,
    width: int,
    method: str,
    *,
    rounding: Float[Array, ""] | float = 0.0,
) -> HypothesisTest:
    """A Monte Carlo test: p = (1 + #{simulated at least as large}) / (1 + num_draws).

    Its size is at most its level for any number of draws, because under the hypothesis all ranks are equally likely.

    References:
        Dwass, "Modified randomization tests for nonparametric hypotheses", 1957.
    """
    size = max(1, min(num_draws, _CELLS // width))
    chunks = -(-num_draws // size)
    slack = _TIE * jnp.finfo(statistic.dtype).eps * jnp.maximum(jnp.abs(statistic), 1) + rounding
    bound = jnp.where(jnp.isfinite(statistic), statistic - slack, statistic)

    def as_large(start):
        numbers = start + jnp.arange(size, dtype=jnp.uint32)
        null = jax.vmap(lambda number: draw(jax.random.fold_in(key, number)))(numbers)
        # What cannot be compared counts as at least as large.
        return jnp.sum(~(null < bound) & (numbers < num_draws), dtype=jnp.int32)

    found = jnp.sum(lax.map(as_large, jnp.arange(chunks, dtype=jnp.uint32) * size)).astype(statistic.dtype)
    p_value = (1 + found) / (1 + num_draws)
    error = jnp.sqrt(p_value * (1 - p_value) / num_draws)
    statistic, p_value, error = (
        jnp.where(jnp.isnan(statistic), jnp.nan, value) for value in (statistic, p_value, error)
    )
    return HypothesisTest(statistic, p_value, error, method)
