"""Reports of two columns that were randomized apart: their table, what it says of the values, and its noise."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_counts, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.mechanisms.product import Product
from rrjax.numerics.products import einsum
from rrjax.numerics.sharding import refuse_spread

LEAST = 0.5
"""Reports that a kind without any counts as, where errors are simulated."""


def as_table(
    counts: ArrayLike, mechanism: Product
) -> tuple[Int[Array, "U W"], Float[Array, "U K"], Float[Array, "W L"]]:
    """The counts of users with both reports, and the unbiased vectors of the reports of each column."""
    if not isinstance(mechanism, Product) or len(mechanism.columns) != 2:
        raise ArgumentError("mechanism must be a Product of two columns", argument="mechanism")
    kinds = mechanism.num_kinds
    if kinds is None:
        raise ArgumentError("mechanism must have columns whose reports can be counted", argument="mechanism")
    counts = counts if isinstance(counts, jax.Array) else np.asarray(counts)
    if counts.ndim != 2 or not all(have - size in (0, 1) for have, size in zip(counts.shape, kinds, strict=True)):
        raise ArgumentError(
            f"counts must have shape {list(kinds)}, an axis for each column, or one more kind of missing reports; got "
            f"{list(counts.shape)}",
            argument="counts",
        )
    counts = refuse_spread(counts[: kinds[0], : kinds[1]], "a table of two columns")
    table = as_counts(counts.ravel(), whole=True).reshape(kinds)
    return table, _vectors(mechanism, 0, kinds[0]), _vectors(mechanism, 1, kinds[1])


def _vectors(mechanism, column, size):
    return mechanism.part([column]).debias((jnp.arange(size, dtype=jnp.int32),))


class Reading(NamedTuple):
    """What one table of reports says about the values: their deviation from independence, and weights."""

    deviation: Float[Array, "K L"]
    rows: Float[Array, " K"]
    columns: Float[Array, " L"]

    @property
    def weights(self) -> Float[Array, "K L"]:
        """The inverses of the products of the margins."""
        return 1 / (self.rows[:, None] * self.columns)


def read_reports(
    reports: Float[Array, "U W"], first: Float[Array, "U K"], second: Float[Array, "W L"], users: Float[Array, ""]
) -> Reading:
    """Reads shares of reports `[U, W]`, whose noise may have made some negative."""
    p, q = jnp.sum(reports, axis=1), jnp.sum(reports, axis=0)
    p, q = p / jnp.sum(p), q / jnp.sum(q)
    deviation = between(reports - p[:, None] * q, first, second)
    return Reading(deviation, _margin(p, first, users), _margin(q, second, users))


def between(reports: Float[Array, "U W"], first: Float[Array, "U K"], second: Float[Array, "W L"]) -> Array:
    """The unbiased table `[K, L]` of shares of reports."""
    return einsum("uk,uw,wl->kl", first, reports, second)


def _margin(shares, vectors, users):
    """The unbiased shares of a margin, none below its standard error; their sum is one."""
    plain = einsum("u,uk->k", shares, vectors)
    floored = jnp.maximum(plain, standard_errors(shares, vectors, users))
    return floored / jnp.sum(floored)


def error_of(
    normal: Float[Array, "U W"],
    chances: Float[Array, "U W"],
    vectors: tuple[Float[Array, "U K"], Float[Array, "W L"]],
    users: Float[Array, ""],
) -> Float[Array, "K L"]:
    """The error of the unbiased table of one collection, from standard normal numbers; counts are about normal."""
    spread = jnp.sqrt(chances) * normal
    return between(spread - chances * jnp.sum(spread), *vectors) / jnp.sqrt(users)


def standard_errors(
    shares: Float[Array, " U"], vectors: Float[Array, "U K"], users: Float[Array, ""]
) -> Float[Array, " K"]:
    """The standard errors of the unbiased shares of a margin, none zero: no kind of report is known to be empty."""
    shares = jnp.maximum(shares, LEAST / users)
    plain = einsum("u,uk->k", shares, vectors)
    square = einsum("u,uk->k", shares, vectors**2)
    # A share of zero is certain only if the mechanism tells it.
    return jnp.sqrt(jnp.maximum(square - plain**2, jnp.finfo(plain.dtype).tiny ** 0.5) / users)


def usable_counts(
    counts: Array, miss: Array, least: int
) -> tuple[Float[Array, "U W"], Float[Array, ""], Bool[Array, ""]]:
    """Counts as floats and the number of users, ones if unusable; and whether they are usable, with 1 − level."""
    counts = counts.astype(miss.dtype)
    users = jnp.sum(counts)
    usable = (users >= least) & (jnp.min(counts) >= 0) & (miss > 0) & (miss < 1)
    return jnp.where(usable, counts, 1), jnp.where(usable, users, counts.size), usable


def channel_of(mechanism: Mechanism, kinds: int) -> Float[Array, "U K"]:
    """The chance of each kind of report under each value."""
    rows = mechanism.log_rows(jnp.arange(kinds, dtype=jnp.int32))
    return jnp.exp(rows.scale[:, None] + jnp.logaddexp(rows.base[:, None], rows.lift)).astype(float_dtype())


def least_chances(counts: Float[Array, "U W"]) -> Float[Array, "U W"]:
    """The least chance of each cell of reports, `[U, W]`: none is known to be empty.

    But all rows without reports have that of one cell together, as have columns, and their common cells its square:
    with more, their noise would be more association than the reports show.
    """
    least = LEAST / jnp.sum(counts)
    rows, columns = (jnp.sum(counts, axis=axis, keepdims=True) == 0 for axis in (1, 0))
    of_rows, of_columns = (least / jnp.maximum(jnp.sum(each, dtype=counts.dtype), 1) for each in (rows, columns))
    alone = jnp.where(rows, of_rows / counts.shape[1], jnp.where(columns, of_columns / counts.shape[0], least))
    return jnp.where(rows & columns, of_rows * of_columns, alone)
