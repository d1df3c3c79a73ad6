"""The estimators in closed form and their metrics, for many collections of any number of categories at once.

The collections of one K lie in `Rows`, whose shape does not depend on K: so one compiled program serves a whole study.
The arithmetic is that of `rrjax.estimators.closed_form` for integer counts, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rrjax.estimators.likelihood import terms_of_nll
from rrjax.estimators.water_filling import Likelihood, Projection, fixed_point, from_below
from rrjax.numerics.rows import Rows
from rrjax.numerics.sharding import if_needed
from rrjax.numerics.sums import expm1_epsilon


class Collections(NamedTuple):
    """Collections of one number of categories."""

    rows: Rows
    counts: Int[Array, "R W"]
    """The counts of the reports; zero in cells that are not used."""
    num_users: Int[Array, " R"]
    """Of each collection, their sum; positive also where there is no collection."""
    epsilon: Float[Array, " R"]
    """Of each collection, positive."""

    @classmethod
    def of(
        cls, rows: Rows, counts: Int[Array, "R W"], num_users: Int[Array, " R"], epsilon: Float[Array, " R"]
    ) -> Collections:
        """The collections; integers get the width of the floats, which exact products need."""
        whole = jnp.int32 if epsilon.dtype == jnp.float32 else jnp.int64
        return cls(rows, counts.astype(whole), num_users.astype(whole), epsilon)

    @property
    def num_categories(self) -> Float[Array, ""]:
        """K, as a float."""
        return self.rows.length.astype(self.epsilon.dtype)

    @property
    def shares(self) -> Float[Array, "R W"]:
        """The shares of the reports."""
        # Not a division of the rows: XLA would multiply them by the reciprocal in some programs, and not in others.
        return self.counts.astype(self.epsilon.dtype) * self.rows.spread(1 / self.num_users.astype(self.epsilon.dtype))

    @property
    def e1(self) -> Float[Array, " R"]:
        """e^ε − 1 of each collection."""
        return expm1_epsilon(self.epsilon)


def _filled(given, level, total, number):
    """The estimates at thresholds, as `water_filling` fills one vector."""
    rows, dtype = given.rows, level.rise.dtype
    height = (total - number * level.level).astype(dtype) + number.astype(dtype) * level.rise
    lowest, rise, factor = map(rows.spread, (level.level, level.rise, 1 / jnp.where(rows.there, height, 1)))
    above = (given.counts - lowest).astype(dtype) + rise
    return jnp.where((given.counts >= lowest) & rows.used, above * factor, 0)


def _active(given, level):
    """Sum and number of each collection's counts that reach its level."""
    reach = (given.counts >= given.rows.spread(level)) & given.rows.used
    total, number = given.rows.count(jnp.where(reach, given.counts, 0), reach.astype(given.counts.dtype))
    return total, jnp.maximum(number, 1)  # it is zero only where there is no collection


def inv_n(given):
    number = jnp.full_like(given.num_users, given.rows.length)
    level = given.rows.each(jax.vmap(Likelihood.exact), Likelihood(given.e1), given.num_users, number)
    return _filled(given, level, *_active(given, level.level))


def _solved(given, rule):
    each, exact, below = given.rows.each, jax.vmap(type(rule).exact), jax.vmap(type(rule).below)
    total, number = given.num_users, jnp.full_like(given.num_users, given.rows.length)
    # Any subset of the categories bounds the threshold from below: all, or the largest alone.
    (largest,) = given.rows.max(given.counts)
    start = jnp.maximum(each(below, rule, total, number), each(below, rule, largest, jnp.ones_like(total)))
    state = from_below(start, jnp.zeros_like(given.epsilon), jnp.zeros_like(total))
    return _filled(given, *fixed_point(partial(_active, given), partial(each, exact, rule), state))


def mle_star(given):
    return _solved(given, Likelihood(given.e1))


def inv_p(given):
    of_each = jax.vmap(Projection.of, (0, None, 0))
    return _solved(given, of_each(given.num_users, given.num_categories, given.e1))


def inv(given):
    share = given.shares
    return jnp.where(given.rows.used, share + (given.num_categories * share - 1) * given.rows.spread(1 / given.e1), 0)


def own_in_rows(function: Callable[..., Any]) -> Callable[[Collections], Array] | None:
    """What an estimator that is not of this module says it is in rows: its attribute `in_rows`, if it has one.

    That function returns the estimates `[R, W]` of collections, those that the estimator has for each; it may return
    anything in cells that are not used. Its operations are elementwise, `given.rows.spread`, and `sum`, `count` and
    `max` of `given.rows`, for arrays that are zero in cells that are not used.
    """
    own = getattr(function, "in_rows", None)
    inner: Any = getattr(function, "__wrapped__", None)
    if own is None or getattr(inner, "in_rows", None) is not own:
        return own
    # `functools.wraps` has copied it to a function that computes something else; `jax.jit` computes the same.
    return own_in_rows(inner) if isinstance(function, jax.stages.Wrapped) else None


class Errors(NamedTuple):
    """Estimates, and what they are to be."""

    given: Collections
    estimates: Float[Array, "R W"]
    truth: Float[Array, "R W"]

    @property
    def difference(self) -> Float[Array, "R W"]:
        """Estimate minus truth; zero in cells that are not used."""
        return self.estimates - self.truth


def squared_error(errors):
    (total,) = errors.given.rows.sum(errors.difference**2)
    return total


def total_variation(errors):
    (total,) = errors.given.rows.sum(jnp.abs(errors.difference))
    return total / 2


def max_error(errors):
    return errors.given.rows.max(jnp.abs(errors.difference))[0]


def nll(errors):
    given = errors.given
    phi = given.shares

    def when(needed, compute):
        # The logarithms take most of the time, and one of the two is often needed nowhere.
        return if_needed(jnp.any(needed), compute)

    (total,) = given.rows.sum(terms_of_nll(errors.estimates, phi, given.rows.spread(given.epsilon), when))
    return jnp.log1p((given.num_categories - 1) * jnp.exp(-given.epsilon)) - total
