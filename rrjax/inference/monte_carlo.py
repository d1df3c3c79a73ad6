"""Tests by simulation: their result, the p-value of a statistic among simulated ones, and their power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.data.arguments import as_probability, check_key, count_summary, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.numerics.pytrees import exportable, pytree
from rrjax.numerics.solvers import without_derivative

NO_DERIVATIVES = "a simulated test has no derivatives, because its p-value counts draws: take differences of two tests"
CELLS_AT_A_TIME = 2**18
"""Largest number of draws × categories in one batch."""
EPSILONS_OF_A_TIE = 64
"""Machine epsilons by which a simulated statistic may be smaller and count as equal: the two round differently."""


@pytree("method")
class HypothesisTest:
    """The result of a test. A pytree; `method` is static.

    Attributes:
        statistic: Scalar.
        p_value: Scalar: the probability, under the hypothesis, of a statistic at least as extreme.
        standard_error: Scalar: standard error of the p-value, from the finite number of draws.
        method: The statistic and the null distribution that it is compared with.
    """

    statistic: Float[Array, ""]
    p_value: Float[Array, ""]
    standard_error: Float[Array, ""]
    method: str


class Null(NamedTuple):
    """The simulation of a statistic under the hypothesis: a function of a key; a draw has about `num_cells` numbers."""

    draw: Callable[[Array], Float[Array, ""]]
    num_draws: int
    num_cells: int
    method: str


def monte_carlo_test(
    key: Array, statistic: Float[Array, ""], null: Null, *, rounding: Float[Array, ""] | float = 0.0
) -> HypothesisTest:
    """The result of a Monte Carlo test: p = (1 + #{simulated at least as large}) / (1 + num_draws).

    Its size is at most its level for any number of draws, because under the hypothesis all ranks are equally likely. It
    has no derivatives, because that of a number of draws would be zero everywhere.

    References:
        Dwass, "Modified randomization tests for nonparametric hypotheses", 1957.
    """
    num_draws, statistic = null.num_draws, without_derivative(statistic, NO_DERIVATIVES)
    size = max(1, min(num_draws, CELLS_AT_A_TIME // null.num_cells))
    chunks = -(-num_draws // size)
    slack = EPSILONS_OF_A_TIE * jnp.finfo(statistic.dtype).eps * jnp.maximum(jnp.abs(statistic), 1) + rounding
    bound = jnp.where(jnp.isfinite(statistic), statistic - slack, statistic)

    def count_as_large(start):
        numbers = start + jnp.arange(size, dtype=jnp.uint32)
        simulated = jax.vmap(lambda number: null.draw(jax.random.fold_in(key, number)))(numbers)
        # NaN counts as at least as large.
        return jnp.sum(~(simulated < bound) & (numbers < num_draws), dtype=jnp.int32)

    starts = jnp.arange(chunks, dtype=jnp.uint32) * size
    as_large = jnp.sum(lax.map(count_as_large, starts)).astype(statistic.dtype)
    p_value = (1 + as_large) / (1 + num_draws)
    test = HypothesisTest(statistic, p_value, jnp.sqrt(p_value * (1 - p_value) / num_draws), null.method)
    return jax.tree.map(lambda leaf: jnp.where(jnp.isnan(statistic), jnp.nan, leaf), test)


def check_draws(num_draws: int, level: float, num_tests: int = 1) -> None:
    """Raises `ValueError` if no p-value from `num_draws` can be as small as the level, or if either is invalid.

    The p-value of each of several tests is multiplied by their number.
    """
    as_probability(level, "level", 0.05)
    num_draws = as_integer(num_draws, "num_draws", 1)
    if (num_draws + 1) * level < num_tests:
        each = "" if num_tests == 1 else f" and {num_tests:,} categories"
        raise ArgumentError(
            f"num_draws = {num_draws} is too few for the level {level:g}{each}: the least p-value would be "
            f"{num_tests / (num_draws + 1):.2g}; take at least {int(np.ceil(num_tests / level)) - 1}",
            argument="num_draws",
        )


def simulable(counts: Int[Array, "*s"]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The number of reports, and whether collections of this size can be simulated."""
    seen = count_summary(counts.ravel())
    return jnp.where(seen.simulable, seen.total, 0), seen.simulable


def pearson_rounding(statistic: Float[Array, ""], number: Float[Array, ""] | Int[Array, ""]) -> Float[Array, ""]:
    """The rounding error of Σ (c − m)²/m: differences of counts have errors of some machine epsilons of the counts."""
    eps = jnp.finfo(statistic.dtype).eps
    return 8 * eps * jnp.sqrt(jnp.maximum(jnp.abs(statistic), 1)) * jnp.sqrt(number.astype(statistic.dtype))


@exportable
class Power(NamedTuple):
    """The power of a test, estimated by simulation.

    Attributes:
        power: Scalar, the share of the simulated collections in which the test rejects.
        standard_error: Scalar, standard error of the power.
    """

    power: Float[Array, ""]
    standard_error: Float[Array, ""]


def power(
    key: Array,
    draw: Callable[[Array], Any],
    test: Callable[[Array, Any], HypothesisTest],
    *,
    level: float = 0.05,
    num_collections: int = 1000,
) -> Power:
    """Estimates the power of a test at a level over simulated collections, in one compiled loop.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        draw: A key → the data of one collection, such as counts from `simulate.counts`.
        test: A key and those data → `HypothesisTest`. Few draws of its null make it slightly weaker, not invalid: 99
            draws cost a hundredth of the default.
        level: In (0, 1).
        num_collections: Number of simulated collections. Static.

    Returns:
        `Power`; NaN if a test is NaN.

    Raises:
        ValueError: A level outside (0, 1), or fewer than one collection.

    Example:
        >>> import jax, rrjax
        >>> from rrjax.inference import equality_test, power
        >>> def two(key, shares=([0.5, 0.3, 0.2], [0.4, 0.4, 0.2])):
        ...     keys = jax.random.split(key)
        ...     return [rrjax.simulate.counts(k, jax.numpy.array(s), 1000, 2.0) for k, s in zip(keys, shares)]
        >>> estimate = power(
        ...     jax.random.key(0), two, lambda k, c: equality_test(k, c, 2.0, num_draws=99), num_collections=200
        ... )
        >>> bool(0.8 < estimate.power < 0.95)
        True
    """
    check_key(key)
    as_probability(level, "level", 0.05)
    num_collections = as_integer(num_collections, "num_collections", 1)

    def rejects(key: Array) -> Float[Array, ""]:
        of_data, of_test = jax.random.split(key)
        p_value = test(of_test, draw(of_data)).p_value
        # The least p-value of 19 draws is 0.05 up to rounding.
        rejected = (p_value <= level * (1 + 1e-6)).astype(float_dtype())
        return jnp.where(jnp.isnan(p_value), jnp.nan, rejected)

    # In sequence: the draws of a null are a batch already.
    rejected = jax.jit(lambda keys: lax.map(rejects, keys))(jax.random.split(key, num_collections))
    share = jnp.mean(rejected)
    return Power(share, jnp.sqrt(share * (1 - share) / num_collections))
