"""Bounds of the mutual information of large tables, which hold whatever the table is.

Noise of the size of the cells of a table looks like information, and how much it adds depends on the cells: no
statistic has one law for all tables with some information. But for every positive table c, and distributions ã and b̃,

    Σ θ·log r − Σ a·b·(r − 1)  ≤  I(θ)  ≤  Σ θ·log r + Σ θ·(θ − c)/c,   r = c/(ã·b̃),

with a and b the margins of θ; both are equal where c = θ, ã = a and b̃ = b. The first is log x ≤ x − 1 for x = r·a·b/θ.
The second is it for x = θ/c, and that no other ã than a has a smaller −Σ a·log ã. So one half of the reports proposes
tables c, and the other half has nearly unbiased estimates of both sides, whose errors are about normal.
What the first side misses is Σ (θ − a·b·r)²/(2·a·b·r) to second order, which has an estimate, too.

References:
    Nguyen, Wainwright and Jordan, "Estimating divergence functionals and the likelihood ratio by convex risk
    minimization", IEEE Transactions on Information Theory 56, 2010, for the first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from rrjax.data.arguments import float_dtype
from rrjax.inference.monte_carlo import CELLS_AT_A_TIME
from rrjax.inference.two_columns import between, error_of, least_chances, read_reports

MIXTURES = (0.0, 0.4, 0.75, 0.95)
"""Parts of the proposing half's table in the tables c; the rest is the product of its margins."""
NUM_DRAWS = 200
"""Number of simulated collections, for the standard errors."""
WORDS = 8
"""Words of random bits, one bit for each user of a cell, to which half they belong; beyond, the number is normal."""


def information_bounds(
    key: Array,
    counts: Int[Array, "U W"],
    vectors: tuple[Float[Array, "U K"], Float[Array, "W L"]],
    miss: Float[Array, ""],
) -> Float[Array, " 3"]:
    """An estimate of the mutual information, and its limits at 1 − `miss`, nats; no counts may be negative.

    Each half proposes for the other, and both sides are means over these two ways. The limits are the best of all
    tables c, each with its part of `miss`. The estimate is the best first side with what it misses, between both sides.
    With fewer than two reports in a half the limits are those of all tables.
    """
    of_halves, key = jax.random.split(key)
    drawn = _half_of(of_halves, counts)
    halves = jnp.stack([drawn, counts - drawn]).astype(miss.dtype)
    enough = jnp.min(jnp.sum(halves, axis=(1, 2))) >= 2
    halves = jnp.where(enough, halves, 1)

    def sides(given):
        own_key, proposing, judging = given
        return _sides(own_key, proposing, judging, vectors)

    found = lax.map(sides, (jax.random.split(key), halves, halves[::-1]))
    # The errors of both ways are the same number near independence and unrelated far from it: the mean of their
    # standard errors holds for both.
    below, above, middle, of_below, of_above = (jnp.mean(each, axis=0) for each in found)
    quantile = -ndtri(miss / 2 / len(MIXTURES))
    largest = jnp.log(jnp.asarray(min(vectors[0].shape[1], vectors[1].shape[1]), miss.dtype))
    lowest, highest = below - quantile * of_below, above + quantile * of_above
    lower = jnp.clip(jnp.max(lowest), 0, largest)
    upper = jnp.clip(jnp.min(highest), lower, largest)
    best = jnp.argmax(lowest)
    value = jnp.clip(jnp.clip(middle[best], below[best], above[jnp.argmin(highest)]), lower, upper)
    return jnp.where(enough, jnp.stack([value, lower, upper]), jnp.stack([0 * largest, 0 * largest, largest]))


def _sides(key: Array, proposing: Array, judging: Array, vectors: tuple[Array, Array]) -> tuple[Array, ...]:
    """For each table of one half, what the other says: both sides, the information, and the errors of the sides."""
    users = jnp.sum(proposing)
    seen = read_reports(proposing / users, *vectors, users)
    product = seen.rows[:, None] * seen.columns
    excess = jnp.maximum(seen.deviation, -product)
    parts = jnp.asarray(MIXTURES, product.dtype)[:, None, None]
    # The rest of a ratio beyond one, with all its digits; so are the sums below.
    beyond = parts * (excess - product * jnp.sum(excess)) / (product * (1 + jnp.sum(excess)))
    logs, tables = jnp.log1p(beyond), product * (1 + beyond)

    users = jnp.sum(judging)
    reports = judging / users
    unbiased = between(reports, *vectors)
    squares = between(reports, *(each**2 for each in vectors))

    def sides(table):
        of_margins = jnp.sum(table, axis=1)[:, None] * jnp.sum(table, axis=0)
        # A square has its noise in it.
        of_squares = (table * (table - tables) + (table**2 - squares) / (users - 1)) / tables
        below, above = table * logs - of_margins * beyond, table * logs + of_squares
        missed = (table - of_margins * (1 + beyond)) ** 2 / (2 * tables)
        return [jnp.sum(each, axis=(1, 2)) for each in (below, above, missed)]

    chances = jnp.maximum(reports, least_chances(judging))

    def simulated(number):
        normal = jax.random.normal(jax.random.fold_in(key, number), reports.shape, product.dtype)
        return sides(unbiased + error_of(normal, chances, vectors, users))

    batch = max(1, CELLS_AT_A_TIME // (len(MIXTURES) * judging.size))
    drawn = lax.map(simulated, jnp.arange(NUM_DRAWS), batch_size=batch)
    below, above, missed = sides(unbiased)
    # The draws have the noise of this square twice.
    middle = below + 2 * missed - jnp.mean(drawn[2], axis=0)
    return below, above, middle, jnp.std(drawn[0], axis=0), jnp.std(drawn[1], axis=0)


def _half_of(key, counts):
    """How many users of each cell are in one half, to which each belongs by chance: binomial numbers."""
    of_bits, of_normals = jax.random.split(key)
    words = jax.random.bits(of_bits, (WORDS, *counts.shape), jnp.uint32)
    used = jnp.clip(counts - 32 * jnp.arange(WORDS, dtype=counts.dtype)[:, None, None], 0, 32).astype(jnp.uint32)
    masks = jnp.where(used < 32, (jnp.uint32(1) << (used & 31)) - 1, jnp.uint32(0xFFFFFFFF))
    few = jnp.sum(lax.population_count(words & masks), axis=0).astype(counts.dtype)
    many = jnp.round(jnp.sqrt(counts.astype(float_dtype())) / 2 * jax.random.normal(of_normals, counts.shape))
    return jnp.where(counts <= 32 * WORDS, few, jnp.clip(counts // 2 + many.astype(counts.dtype), 0, counts))
