"""The table that fits reports best among all that have a given association.

Noise hides rare categories, and these may carry most of an association. So the search is over all tables of the
simplex. It minimizes the misfit, a weighted sum of squares of the shares of reports, subject to one equation: the table
has a given Cramér's V, or a given mutual information. The equation is not convex, so the search begins at several
tables.

A step is Newton's in x = √θ, with the equation linearized (sequential quadratic programming). The sphere Σ x² = 1
replaces the simplex. A cell at zero has the curvature of its slack, as in an interior point method.

References:
    Nocedal and Wright, "Numerical Optimization", 2006, chapters 18 and 19.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.solvers import bisected, cholesky_factor, cholesky_solve, regularized

MOST_SEARCHED_CELLS = 144
"""Limit of the number of cells of a table that is searched for: a step solves a linear system of so many equations."""
NUM_PAIRS = 3
"""Number of tables in which a row and a column occur only together, with which a search begins."""
MOST_STEPS = 20
"""Limit of the number of steps of a search."""
LONGEST_STEP, SHORTEST_STEP = 0.25, 1e-4
"""Limits of the length of a step, in x; a shorter one is the last."""
NEAR = 1e-4
"""By how much the length of a table may be off, which is that of the intervals; one that is further off is none."""
OFF = 1e18
"""What a table whose length is off by one counts as: more than any misfit, of which that of a cell has the weight N."""
LEAST_KEPT = 0.2
"""Part of the x of a cell that a step leaves at least: beyond zero x² would grow again."""
LARGEST_WAVE = 0.1
"""Limit of the relative differences from a start."""
TINY = 1e-12
"""Smallest share of a cell; one of zero would never move."""
LEAST_EXPECTED = 1e-18
"""Smallest product of two margins, the square of which float32 holds: a derivative divides by it."""


class Misfit(NamedTuple):
    """The misfit of tables to shares of reports, Σ_uw w_uw·(P_uw(θ) − r_uw)².

    The weights are 1/P_uw at the likeliest table, which is then its minimum. Times the number of users it is about
    twice the log-likelihood that a table lacks.
    """

    reports: Float[Array, "U W"]
    weights: Float[Array, "U W"]
    channels: tuple[Float[Array, "U K"], Float[Array, "W L"]]
    curvature: Float[Array, "M M"]
    """Its second derivatives in the cells."""

    def value(self, table: Float[Array, "K L"]) -> Float[Array, ""]:
        """The misfit of a table."""
        return jnp.sum(self.weights * self._residuals(table) ** 2)

    def slope(self, table: Float[Array, "K L"]) -> Float[Array, "K L"]:
        """Its derivative in the cells."""
        first, second = self.channels
        return 2 * through(self.weights * self._residuals(table), first.T, second.T)

    def _residuals(self, table):
        return through(table, *self.channels) - self.reports


def misfit_about(
    table: Float[Array, "K L"],
    reports: Float[Array, "U W"],
    channels: tuple[Float[Array, "U K"], Float[Array, "W L"]],
    users: Float[Array, ""],
) -> Misfit:
    """The misfit to shares of reports whose likeliest table is given."""
    first, second = channels
    weights = 1 / jnp.maximum(through(table, first, second), 0.5 / users)
    both = (first[:, None, :, None] * second[:, None, :]).reshape(reports.size, table.size)
    curvature = 2 * einsum("un,u,um->nm", both, weights.ravel(), both)
    return Misfit(reports, weights, channels, curvature)


def through(table: Float[Array, "K L"], first: Float[Array, "U K"], second: Float[Array, "W L"]) -> Array:
    """The shares of reports of a table, `[U, W]`."""
    return einsum("uk,kl,wl->uw", first, table, second)


def lengths(table: Float[Array, "K L"]) -> Float[Array, " 2"]:
    """V and the root of the mutual information; near independence both grow in proportion to the deviation from it."""
    expected = jnp.maximum(jnp.sum(table, axis=1)[:, None] * jnp.sum(table, axis=0), LEAST_EXPECTED)
    squares = jnp.sum((table - expected) ** 2 / expected) / (min(table.shape) - 1)
    nats = jnp.sum(table * jnp.log(jnp.maximum(table, TINY**2) / expected))
    # A root has no derivative at zero.
    return jnp.sqrt(jnp.maximum(jnp.stack([squares, nats]), 0) + TINY)


def beginnings(table: Float[Array, "K L"], errors: Float[Array, "K L"]) -> Float[Array, "B 2 K L"]:
    """Pairs of tables, with less and with more association, between which a search begins.

    With more: the likeliest table, which is given with its standard errors, tables like it in which a row and a column
    occur only together, and one in which one of the columns determines the other. With less: the products of their
    margins, and for the last the likeliest table.
    """
    more = jnp.concatenate([table[None], _only_together(table, errors)])
    less = jax.vmap(lambda table: jnp.sum(table, axis=1)[:, None] * jnp.sum(table, axis=0))(more)
    wide = table.shape[0] <= table.shape[1]
    determined = _determined(table, errors) if wide else _determined(table.T, errors.T).T
    return jnp.concatenate([jnp.stack([less, more], axis=1), jnp.stack([table, determined])[None]])


def _only_together(table, errors):
    """Tables in which one row and column occur only together, `[NUM_PAIRS, K, L]`, or fewer.

    The pairs are those with the smallest distance of θ_ij from √(a_i·b_j), its largest value, in standard errors.
    """
    rows, columns = jnp.sum(table, axis=1), jnp.sum(table, axis=0)
    distance = (jnp.sqrt(rows[:, None] * columns) - table) / errors
    _, cells = lax.top_k(-distance.ravel(), min(NUM_PAIRS, table.size))

    def only_together(cell):
        i, j = cell // table.shape[1], cell % table.shape[1]
        share = jnp.clip(table[i, j], jnp.minimum(0.2 * errors[i, j], 0.5), 0.5)
        others = table.at[i].set(0).at[:, j].set(0) + TINY
        return ((1 - share) * others / jnp.sum(others)).at[i, j].set(share)

    return jax.vmap(only_together)(cells)


def _determined(table, errors):
    """Each column has the row that holds most of it for the size of the row; rows with a column have equal shares.

    So V is one, and the information the largest, unless a row has no column.
    """
    in_rows = (table + 1e-3 * errors) / jnp.sum(table + 1e-3 * errors, axis=1, keepdims=True)
    shares = jnp.sum(table, axis=0) + 0.2 * jnp.min(errors)
    cells = jax.nn.one_hot(jnp.argmax(in_rows, axis=0), table.shape[0], axis=0, dtype=table.dtype) * shares
    rows = jnp.sum(cells, axis=1, keepdims=True)
    cells = cells / jnp.where(rows > 0, rows, 1)
    return cells / jnp.sum(cells)


def nearest(
    misfit: Misfit, starts: Float[Array, "B 2 K L"], measure: Int[Array, ""], length: Float[Array, ""]
) -> tuple[Float[Array, "K L"], Float[Array, ""]]:
    """The table of the smallest misfit whose `lengths[measure]` is a given one, and its misfit, as far as found.

    Where no table of this length is found it is the one whose length is nearest.
    """

    def search(tables):
        less, more = tables

        def mixed(part):
            return jnp.maximum(part * more + (1 - part) * less, TINY)

        ends = with_sharding_of((jnp.zeros_like(length), jnp.ones_like(length)), more)
        low, part = bisected(lambda part: lengths(mixed(part))[measure] < length, *ends, 20)
        # Not the end itself: an empty cell would hardly move, and an empty row or column has no curvature.
        begun = mixed(0.998 * part)
        # Where a row and a column occur only together V has no slope in the others: V² grows with dependence squared.
        lacking = jnp.sqrt(jnp.maximum(length**2 - lengths(begun)[measure] ** 2, 0))
        wave = jnp.cos(jnp.arange(1, more.size + 1, dtype=more.dtype) ** 2).reshape(more.shape)
        begun = jnp.maximum(begun * (1 + jnp.minimum(lacking, LARGEST_WAVE) * wave), TINY)
        return _searched(misfit, begun / jnp.sum(begun), mixed((low + part) / 2), measure, length)

    tables, merits = lax.map(search, starts)
    best = tables[jnp.argmin(merits)]
    return best, misfit.value(best)


def _searched(misfit, start, known, measure, length):
    """The best table of a search and a known one, and its misfit; more than `OFF` · `NEAR` if none has the length."""

    def merit(table):
        off = jnp.abs(lengths(table)[measure] - length)
        return jnp.where(off <= NEAR, misfit.value(table), OFF * off)

    bends = jnp.asarray([1 / (min(start.shape) - 1), 0.5], start.dtype)

    def step(state):
        number, _, multipliers, table, best, least = state
        x = jnp.sqrt(table).ravel()
        gradient = misfit.slope(table).ravel()
        reached, pull = jax.value_and_grad(lambda table: lengths(table)[measure])(table)
        pull = pull.ravel()
        slack = jnp.maximum(gradient - multipliers[0] * pull - multipliers[1], 0)
        # Towards independence the curvature of the equation matters: that of a length is about θ/(a·b) over it.
        product = (jnp.sum(table, axis=1)[:, None] * jnp.sum(table, axis=0)).ravel()
        bend = 4 * jnp.maximum(-multipliers[0], 0) * bends[measure] / reached * table.ravel() / product
        system = 4 * x[:, None] * misfit.curvature * x
        size = jnp.diagonal(system)
        factor = cholesky_factor(regularized(system, 2 * slack + bend + 1e-3 * size + 1e-5 * jnp.mean(size)))
        right = 2 * x * jnp.stack([gradient, pull, jnp.ones_like(x)])
        solutions = cholesky_solve(factor, right.T)
        # The multipliers of the length and of the sum, by elimination.
        aims = jnp.stack([length - reached, jnp.zeros_like(length)]) + matmul(right[1:], solutions[:, 0])
        (a, b), (_, d) = matmul(right[1:], solutions[:, 1:])
        of_length = (aims[0] - b / d * aims[1]) / jnp.maximum(a - b**2 / d, 1e-6 * a + TINY**2)
        multipliers = jnp.stack([of_length, (aims[1] - b * of_length) / d])
        change = matmul(solutions[:, 1:], multipliers) - solutions[:, 0]
        change = change * jnp.minimum(1, LONGEST_STEP / jnp.maximum(jnp.linalg.norm(change), TINY))
        new = jnp.maximum(jnp.maximum(x + change, LEAST_KEPT * x) ** 2, TINY).reshape(table.shape)
        new = new / jnp.sum(new)
        now = merit(new)
        best = jnp.where(now < least, new, best)
        return number + 1, jnp.linalg.norm(change), multipliers, new, best, jnp.where(now < least, now, least)

    def goes_on(state):
        return (state[0] < MOST_STEPS) & (state[1] > SHORTEST_STEP)

    begun = jnp.int32(0), jnp.ones_like(length), jnp.zeros_like(start, shape=2), start, known, merit(known)
    *_, best, least = lax.while_loop(goes_on, step, with_sharding_of(begun, start, length))
    return best, least
