"""Bounds of the mutual information of large tables, which hold whatever the table is.

Noise of the size of the cells of a table looks like information, and how much it adds depends on the cells: no
statistic has one law for all tables with some information. But for every positive table c, and distributions ã and b̃,

    Σ θ·log(c/(ã·b̃)) − log Σ a·b·c/(ã·b̃)  ≤  I(θ)  ≤  Σ θ·log(c/(ã·b̃)) + Σ θ²/c − 1,

with a and b the margins of θ; both are equal where c = θ, ã = a and b̃ = b. The first is the Donsker-Varadhan bound. The
second is log(θ/c) ≤ θ/c − 1, and that no other ã than a has a smaller −Σ a·log ã. So one half of the reports proposes
tables c, and the other half has nearly unbiased estimates of both sides, with normal errors.

References:
    Donsker and Varadhan, "Asymptotic evaluation of certain Markov process expectations for large time IV",
    Communications on Pure and Applied Mathematics 36, 1983.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from rrjax.inference.monte_carlo import CELLS_AT_A_TIME
from rrjax.inference.two_columns import between, least_chances, read_reports
from rrjax.numerics.products import einsum
from rrjax.simulate.sampling.streams import Stream, binomial

MIXTURES = (0.0, 0.4, 0.75, 0.95)
"""Parts of the proposing half's table in the tables c; the rest is the product of its margins."""
NUM_DRAWS = 200
"""Number of simulated collections, for the standard errors."""


def information_bounds(
    key: Array,
    counts: Int[Array, "U W"],
    vectors: tuple[Float[Array, "U K"], Float[Array, "W L"]],
    miss: Float[Array, ""],
) -> Float[Array, " 3"]:
    """An estimate of the mutual information, and its limits at 1 − `miss`, nats; no counts may be negative.

    The limits are the best of all tables c, each with its part of `miss`. The estimate is the middle of both sides,
    each of its best table. With fewer than two reports in a half the limits are those of all tables.
    """
    drawn = binomial(Stream.of(key), 0, counts.ravel(), jnp.asarray(0.5, miss.dtype)).reshape(counts.shape)
    halves = [half.astype(miss.dtype) for half in (drawn, counts - drawn)]
    enough = jnp.minimum(*map(jnp.sum, halves)) >= 2
    proposing, judging = (jnp.where(enough, half, 1) for half in halves)

    users = jnp.sum(proposing)
    seen = read_reports(proposing / users, *vectors, users)
    product = seen.rows[:, None] * seen.columns
    table = jnp.maximum(product + seen.deviation, 0)
    parts = jnp.asarray(MIXTURES, miss.dtype)[:, None, None]
    ratios = 1 - parts + parts * table / jnp.sum(table) / product
    logs, inverse = jnp.log(ratios), 1 / (ratios * product)

    users = jnp.sum(judging)
    reports = judging / users
    unbiased = between(reports, *vectors)
    squares = between(reports, *(each**2 for each in vectors))

    def sides(table):
        along = einsum("kl,mkl->m", table, logs)
        of_product = einsum("k,l,mkl->m", jnp.sum(table, axis=1), jnp.sum(table, axis=0), ratios)
        of_squares = einsum("kl,mkl->m", (table**2 - squares / users) * (users / (users - 1)), inverse)
        return along - jnp.log(jnp.maximum(of_product, jnp.finfo(table.dtype).eps)), along + of_squares - 1

    chances = jnp.maximum(reports, least_chances(judging))

    def simulated(number):
        normal = jax.random.normal(jax.random.fold_in(key, number), reports.shape, miss.dtype)
        spread = jnp.sqrt(chances) * normal
        return sides(unbiased + between(spread - chances * jnp.sum(spread), *vectors) / jnp.sqrt(users))

    batch = max(1, CELLS_AT_A_TIME // (len(MIXTURES) * counts.size))
    errors = [jnp.std(each, axis=0) for each in lax.map(simulated, jnp.arange(NUM_DRAWS), batch_size=batch)]
    below, above = sides(unbiased)
    quantile = -ndtri(miss / 2 / len(MIXTURES))
    largest = jnp.log(jnp.asarray(min(product.shape), miss.dtype))
    lower = jnp.clip(jnp.max(below - quantile * errors[0]), 0, largest)
    upper = jnp.clip(jnp.min(above + quantile * errors[1]), lower, largest)
    value = jnp.clip((jnp.max(below) + jnp.min(above)) / 2, lower, upper)
    return jnp.where(enough, jnp.stack([value, lower, upper]), jnp.stack([0 * largest, 0 * largest, largest]))
