"""A test of whether the dependences of columns are a given tree, from pairs of columns that no edge joins.

A tree says what the table of every pair is. With P the shares of the reports of a pair, A and B the channels of its
columns, and θ(t) the table that follows from the tables t of the edges,

    R = P − A·(θ(t) + θ'(t)·(u − t))·Bᵀ

with the unbiased tables u of the edges from the same reports. To first order R does not depend on the error of t, as in
Neyman's optimal tests, so no simulated collection needs a fit of its own. Margins are taken out of R. The statistic of
a pair is N·Σ R²/(A·θ·Bᵀ), and its law is simulated: values from the tree, reports from the mechanisms, missing where
the reports of the users are missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import block_diag
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import check_key, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.inference.chow_liu import ChowLiuTree, as_reports
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.mechanisms.product import Product
from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import exportable

REPORTS_AT_A_TIME = 1 << 20
"""Numbers of a block of users × kinds of reports; below 2²⁴, up to which float32 counts."""


@exportable
class TreeFit(NamedTuple):
    """The result of `tree_fit_test`.

    Attributes:
        statistic: Scalar, the sum over the pairs that no edge joins; its mean under the tree is the sum of their
            degrees of freedom, (U_i − 1)·(U_j − 1).
        p_value: Scalar: the probability, under the tree, of a statistic as large.
        pair_statistics: `[d, d]`, those of the pairs over their mean under the tree: about one, or more where a pair
            depends otherwise than the tree says. NaN on the diagonal, for edges, and for pairs that nobody reports.
        pair_p_values: `[d, d]`, the p-values of single pairs, not corrected for their number; NaN likewise.
    """

    statistic: Float[Array, ""]
    p_value: Float[Array, ""]
    pair_statistics: Float[Array, "d d"]
    pair_p_values: Float[Array, "d d"]


def tree_fit_test(
    key: Array, reports: Sequence[ArrayLike], tree: ChowLiuTree, mechanism: Product, *, num_draws: int = 499
) -> TreeFit:
    """Tests whether columns that were randomized apart depend on each other by a tree alone.

    It compares the reports of pairs that no edge joins with the tree. What three columns have together, but no two of
    them, it cannot see.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        reports: As in `chow_liu_tree`.
        tree: A `ChowLiuTree` of the columns, such as estimated from the same reports.
        mechanism: The `Product` of the columns, three or more.
        num_draws: Simulated collections. Static.

    Returns:
        `TreeFit`. The p-value is a parametric bootstrap, not exact: about uniform for reports of a tree with these
        edges, larger where they were chosen from the same reports among pairs that are about as strong. In the four
        settings of `validation/trees.py` 1 to 6 % of 200 trees had p ≤ 0.05. Time O(num_draws·N·(ΣU)²), for ΣU kinds of
        reports of all columns; memory O((ΣU)²).

    Raises:
        ValueError: As `chow_liu_tree`, fewer than three columns, a tree of other columns, or fewer than 19 draws.

    Example:
        >>> import jax, rrjax
        >>> product = rrjax.mechanisms.Product([rrjax.RandomizedResponse(2, 3.0)] * 3)
        >>> first, second = jax.random.bernoulli(jax.random.key(0), 0.5, (2, 5000)).astype(int)
        >>> reports = product.randomize(jax.random.key(1), (first, second, first | second))
        >>> tree = rrjax.inference.chow_liu_tree(reports, product)
        >>> fit = rrjax.inference.tree_fit_test(jax.random.key(2), reports, tree, product, num_draws=99)
        >>> float(fit.p_value) <= 0.05
        True

    References:
        Neyman, "Optimal asymptotic tests of composite statistical hypotheses", 1959; Dwass, "Modified randomization
        tests for nonparametric hypotheses", 1957.
    """
    check_key(key)
    num_draws = as_integer(num_draws, "num_draws", 19)
    given = as_reports(reports, mechanism, 3)
    if tree.shape != mechanism.shape:
        raise ArgumentError.about("tree", f"must be of columns with {mechanism.shape} categories, got {tree.shape}")
    number, kinds = len(given), mechanism.num_kinds
    assert kinds is not None
    size = min(len(given[0]), max(1, REPORTS_AT_A_TIME // sum(kinds)))
    blocks = -(-len(given[0]) // size)
    table = np.full((number, blocks * size), -1, np.int32)
    table[:, : len(given[0])] = given
    parts = table.reshape(number, blocks, size).swapaxes(0, 1)
    found = np.asarray(_statistics(key, parts, tree, mechanism.columns, num_draws))
    outside = np.triu(np.ones((number, number), bool), 1)
    for u, v in tree.edges:
        outside[min(u, v), max(u, v)] = False
    mean = found.mean(axis=0)
    outside &= mean > 0  # else nobody reports both
    ratios = found / np.where(mean > 0, mean, 1)
    freedom = np.outer(np.asarray(kinds) - 1, np.asarray(kinds) - 1)
    sums = (freedom * ratios)[:, outside].sum(axis=1)

    def of_pairs(values):
        upper = np.where(outside, values, np.nan)
        return np.where(np.isnan(upper), upper.T, upper)

    dtype = float_dtype()
    return TreeFit(
        *(
            jnp.asarray(each, dtype)
            for each in (sums[0], _p_values(sums), of_pairs(ratios[0]), of_pairs(_p_values(found)))
        )
    )


def _p_values(found):
    """The share of the statistics that are as large as the first one, itself included; up to rounding."""
    return (found >= found[0] * (1 - 1e-5)).mean(axis=0)


def channel_of(mechanism: Mechanism, kinds: int) -> Float[Array, "U K"]:
    """The probability of each kind of report under each value."""
    rows = mechanism.log_rows(jnp.arange(kinds, dtype=jnp.int32))
    return jnp.exp(rows.scale[:, None] + jnp.logaddexp(rows.base[:, None], rows.lift)).astype(float_dtype())


@partial(jax.jit, static_argnums=4)
def _statistics(key, blocks, tree, columns, num_draws):
    """The statistics of all pairs: of the reports, `[blocks, d, N]`, and of simulated ones; `[1 + num_draws, d, d]`."""
    dtype = float_dtype()
    product = Product(columns)
    kinds = product.num_kinds
    assert kinds is not None
    starts = np.concatenate([[0], np.cumsum(kinds)])
    within = [slice(start, end) for start, end in itertools.pairwise(starts)]
    of_column = np.repeat(np.eye(len(kinds)), kinds, axis=0).astype(dtype)
    channel = block_diag(*(channel_of(each, size) for each, size in zip(columns, kinds, strict=True)))
    vectors = [
        product.part([place]).debias((jnp.arange(size, dtype=jnp.int32),)).astype(dtype)
        for place, size in enumerate(kinds)
    ]
    users = jnp.sum(jnp.any(blocks >= 0, axis=1)).astype(dtype)
    # One user more, of any category alike: what a category without a share would imply is not known.
    centre = tuple((users * table.astype(dtype) + 1 / table.size) / (users + 1) for table in tree.tables)

    def implied(tables):
        return pairs_of(tree.edges, tree.shape, tables)

    def sums(values):
        """Sums over each pair of columns, `[d, d]`."""
        return matmul(of_column.T, values, of_column)

    def spread(values):
        return matmul(of_column, values, of_column.T)

    law = matmul(channel, implied(centre), channel.T)
    margin = matmul(channel, jnp.diagonal(implied(centre)))

    def of_counts(counts):
        number = sums(counts)
        shares = counts / spread(jnp.maximum(number, 1))
        changes = tuple(
            matmul(vectors[u].T, shares[within[u], within[v]], vectors[v]) - own
            for (u, v), own in zip(tree.edges, centre, strict=True)
        )
        theta, change = jax.jvp(implied, (centre,), (changes,))
        rest = shares - matmul(channel, theta + change, channel.T)
        rows = matmul(rest, of_column, of_column.T) * margin
        rest = rest - rows - margin[:, None] * matmul(of_column, matmul(of_column.T, rest))
        rest = rest + spread(sums(rest)) * margin[:, None] * margin
        return sums(rest**2 / jnp.maximum(law, 1e-3 / users)) * number

    def counted(reports):
        """The users with each pair of reports, of a block."""
        kind = [jax.nn.one_hot(each, size, dtype=jnp.float32) for each, size in zip(reports, kinds, strict=True)]
        kind = jnp.concatenate(kind, axis=1)
        return matmul(kind.T, kind).astype(jnp.int32)

    def simulated(key):
        def of_block(given):
            place, reports = given
            of_values, of_reports = jax.random.split(jax.random.fold_in(key, place))
            drawn = product.randomize(of_reports, tree.draw(of_values, reports.shape[1]))
            return counted([jnp.where(own >= 0, each, -1) for own, each in zip(reports, drawn, strict=True)])

        return total(of_block, (jnp.arange(len(blocks), dtype=jnp.uint32), blocks))

    def total(function, given):
        start = jnp.zeros((channel.shape[0],) * 2, jnp.int32)
        counts = lax.scan(lambda before, each: (before + function(each), None), start, given)[0]
        return of_counts(counts.astype(dtype))

    seen = total(counted, blocks)
    numbers = jnp.arange(num_draws, dtype=jnp.uint32)
    others = lax.map(lambda number: simulated(jax.random.fold_in(key, number)), numbers)
    return jnp.concatenate([seen[None], others])


def pairs_of(
    edges: Sequence[tuple[int, int]], shape: Sequence[int], tables: Sequence[ArrayLike]
) -> Float[Array, "T T"]:
    """The tables of all pairs of columns, as blocks of one matrix of ΣK rows; margins on the diagonal.

    A table follows from those of the edges along its path: P(x_w, x_v) = Σ P(x_w, x_u)·P(x_v | x_u).
    """
    arrays, order = [jnp.asarray(each) for each in tables], [edges[0][0]]
    found = jnp.diag(jnp.sum(arrays[0], axis=1))
    for (u, v), table in zip(edges, arrays, strict=True):
        rows = jnp.sum(table, axis=1, keepdims=True)
        given = jnp.where(rows > 0, table / jnp.where(rows > 0, rows, 1), 0)
        start = sum(shape[place] for place in order[: order.index(u)])
        beside = matmul(found[:, start : start + shape[u]], given)
        own = jnp.diag(jnp.sum(beside[start : start + shape[u]], axis=0))
        found = jnp.block([[found, beside], [beside.T, own]])
        order.append(v)
    starts = np.cumsum([0, *(shape[place] for place in order)])
    rows = np.concatenate([starts[order.index(place)] + np.arange(size) for place, size in enumerate(shape)])
    return found[rows][:, rows]
