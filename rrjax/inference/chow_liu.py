"""Chow–Liu trees: one distribution of many columns, from tables of two columns, without the joint table of all.

A tree joins all columns by d − 1 edges. Its distribution has the tables of these pairs, and columns that no edge joins
depend on each other only through those between them:

    P(x) = P(x_r)·∏_(u, v) P(x_v | x_u)

for a root r. Of all trees, that with the largest sum of mutual informations of its edges is the likeliest. All of it
takes O(Σ K_i·K_j) cells, never ∏K.

The test of its fit uses the pairs of columns that no edge joins: the tree says what their tables are. With P the shares
of the reports of a pair, A and B the channels of its columns, and θ(t) the table that follows from the tables t of the
edges,

    R = P − A·(θ(t) + θ'(t)·(u − t))·Bᵀ

with the unbiased tables u of the edges from the same reports. To first order R does not depend on the error of t, as in
Neyman's optimal tests, so no simulated collection needs a fit of its own. Margins are taken out of R. The statistic of
a pair is N·Σ R²/(A·θ·Bᵀ), and its law is simulated: values from the tree, reports from the mechanisms, missing where
the reports of the users are missing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import block_diag
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import check_key, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.estimators.maximum_likelihood import mle
from rrjax.inference.association import mutual_information
from rrjax.inference.two_columns import as_table, channel_of, read_reports
from rrjax.mechanisms.product import MOST_CELLS, Product, as_columns
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.pytrees import exportable, pytree

MOST_FITTING_STEPS = 1000
"""Limit of the steps of iterative proportional fitting; tables without rare categories need some ten."""


@pytree("edges")
class ChowLiuTree:
    """A distribution of d columns whose dependences are a tree. A pytree, as from `chow_liu_tree`.

    Args:
        margins: For each column `[K_j]`, its distribution.
        tables: For each edge `[K_u, K_v]`, the joint shares of its columns, with their margins.
        edges: d − 1 pairs (u, v) of columns. The first begins with the root; each of the others joins a column v to a
            column u of the edges before. Static.

    Raises:
        ValueError: Edges that are no such tree.

    Example:
        >>> import jax, rrjax
        >>> tree = rrjax.inference.ChowLiuTree(
        ...     margins=([0.5, 0.5], [0.5, 0.5], [0.5, 0.5]),
        ...     tables=([[0.4, 0.1], [0.1, 0.4]], [[0.4, 0.1], [0.1, 0.4]]),
        ...     edges=((0, 1), (1, 2)),
        ... )
        >>> [[round(share, 2) for share in row] for row in tree.table([0, 2]).tolist()]
        [[0.34, 0.16], [0.16, 0.34]]
        >>> print(f"{tree.probability((0, 1, 1)):.2f}")
        0.08
        >>> [values.shape for values in tree.draw(jax.random.key(0), 1000)]
        [(1000,), (1000,), (1000,)]
    """

    margins: tuple[ArrayLike, ...]
    tables: tuple[ArrayLike, ...]
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        """Makes arrays of the tables, and checks that they and the edges are a tree."""
        for name in ("margins", "tables"):
            object.__setattr__(self, name, tuple(jnp.asarray(each) for each in getattr(self, name)))
        object.__setattr__(self, "edges", tuple((int(u), int(v)) for u, v in self.edges))
        reached = {u for u, _ in self.edges[:1]}
        for place, (u, v) in enumerate(self.edges):
            if u not in reached or v in reached or not {u, v} <= set(range(len(self.margins))):
                raise ArgumentError(
                    f"edges must join one new column each to a column before, got {(u, v)} at position {place}",
                    argument="edges",
                    row=place,
                )
            reached.add(v)
        wanted = [(self.shape[u], self.shape[v]) for u, v in self.edges]
        if len(reached) != len(self.margins) or [jnp.shape(each) for each in self.tables] != wanted:
            raise ArgumentError(
                f"tables and edges must be of a tree of all {len(self.margins)} columns, with tables of {wanted} cells",
                argument="tables",
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of categories of the columns."""
        return tuple(jnp.shape(each)[0] for each in self.margins)

    @property
    def information(self) -> Float[Array, " E"]:
        """The mutual information of each edge, nats."""
        return jnp.stack([mutual_information(each) for each in self.tables])

    @property
    def margin_error(self) -> Float[Array, ""]:
        """The largest difference between a margin and that of a table of an edge."""
        errors = [
            jnp.max(jnp.abs(jnp.sum(jnp.asarray(table), axis=1 - axis) - jnp.asarray(self.margins[edge[axis]])))
            for table, edge in zip(self.tables, self.edges, strict=True)
            for axis in (0, 1)
        ]
        return jnp.max(jnp.stack(errors))

    def conditionals(self) -> list[Float[Array, "K L"]]:
        """For each edge P(x_v | x_u), `[K_u, K_v]`; zero where x_u has no share."""
        return [_given_first(jnp.asarray(table)) for table in self.tables]

    def table(self, columns: Sequence[int]) -> Float[Array, "*K"]:
        """The joint shares of some columns: an axis for each, in the order given.

        Args:
            columns: Numbers of columns, all different. Static.

        Raises:
            ValueError: No such columns, one twice, or too many cells for the memory.
        """
        kept = [as_integer(each, "columns", 0, len(self.margins) - 1) for each in columns]
        if not kept or len(set(kept)) < len(kept):
            raise ArgumentError(f"columns must be different columns, at least one; got {kept}", argument="columns")
        cells = math.prod(self.shape[each] for each in kept)
        # On the way a table has one more axis.
        if cells * max(self.shape) > MOST_CELLS:
            raise ArgumentError(
                f"the joint table of {len(kept)} columns has {cells:,} cells, and would take "
                f"{cells * max(self.shape):,} numbers, more than {MOST_CELLS:,}: take fewer columns, or `draw` from "
                "the tree",
                argument="columns",
            )
        # Of each column: P(the columns kept below it | its value), its own axis last.
        below = {place: ([], jnp.ones_like(jnp.asarray(each))) for place, each in enumerate(self.margins)}

        def with_own(place):
            axes, product = below[place]
            if place not in kept:
                return axes, product
            return [*axes, place], product[..., None, :] * jnp.eye(self.shape[place], dtype=product.dtype)

        for (u, v), given in reversed(list(zip(self.edges, self.conditionals(), strict=True))):
            axes, product = with_own(v)
            product = einsum("...v,uv->...u", product, given)
            others, other = below[u]
            spread = other.reshape(*other.shape[:-1], *(1,) * len(axes), other.shape[-1])
            below[u] = [*others, *axes], spread * product
        root = self.edges[0][0]
        axes, product = with_own(root)
        product = einsum("...u,u->...", product, jnp.asarray(self.margins[root]))
        return jnp.transpose(product, [axes.index(each) for each in kept])

    def probability(self, values: Sequence[ArrayLike]) -> Float[Array, "*s"]:
        """The share of users with these values.

        Args:
            values: For each column integers in 0 … K_j − 1, all of one shape.

        Returns:
            `[*s]`; NaN for values outside, under tracing.

        Raises:
            ValueError: Another number of columns or shape, or values that are not integers or outside the domain.
        """
        own = as_columns(tuple(values), self.shape, "values")
        root = self.edges[0][0]
        product = jnp.asarray(self.margins[root])[own[root]]
        for (u, v), given in zip(self.edges, self.conditionals(), strict=True):
            product = product * given[own[u], own[v]]
        inside = [(each >= 0) & (each < size) for each, size in zip(own, self.shape, strict=True)]
        return jnp.where(jnp.all(jnp.stack(inside), axis=0), product, jnp.nan)

    def draw(self, key: Array, num_users: int) -> tuple[Int[Array, " N"], ...]:
        """The values of synthetic users, drawn from the tree.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            num_users: N. Static.

        Returns:
            For each column `[N]`, integers in 0 … K_j − 1. `jit`, `vmap`.

        Raises:
            ValueError: No users, or another key.
        """
        check_key(key)
        num_users = as_integer(num_users, "num_users", 1)
        keys = jax.random.split(key, len(self.margins))
        root = self.edges[0][0]
        columns = {root: _drawn(keys[root], jnp.cumsum(jnp.asarray(self.margins[root])), num_users)}
        for (u, v), given in zip(self.edges, self.conditionals(), strict=True):
            columns[v] = _drawn(keys[v], jnp.cumsum(given, axis=1)[columns[u]], num_users)
        return tuple(columns[place] for place in range(len(self.margins)))


def chow_liu_tree(reports: Sequence[ArrayLike], mechanism: Product) -> ChowLiuTree:
    """Estimates the distribution of columns that were randomized apart as a Chow–Liu tree, without their joint table.

    The table of each pair is its maximum likelihood estimate, shrunk to independence: noise makes every table look more
    dependent than it is, and large tables most. The part that stays is that of James and Stein, 1 − n/χ², with the χ²
    of the unbiased table and its mean n under independence; one user more is counted as independent. The tree has the
    pairs with the largest sum of mutual informations. Then iterative proportional fitting gives the tables of the edges
    the maximum likelihood estimates of their margins, each from all reports of its column.

    Args:
        reports: For each column `[N]`, the integers of its mechanism; −1 is missing.
        mechanism: The `Product` of the columns, or a `Sampled` with two columns for each user or more. Pairs are
            estimated from users who report both, their margins from all.

    Returns:
        `ChowLiuTree`, its strongest edge first. Pairs that nobody reports count as independent. Memory O(Σ K_i·K_j),
        a compilation for each pair of sizes. `tree_fit_test` tests whether a tree describes the columns. Not under
        `jit` or `vmap`: the tree decides shapes. No derivatives.

    Raises:
        ValueError: No product of two columns or more whose reports can be counted, a column without reports, a channel
            that has no inverse, or reports of another number, shape, dtype or range.

    Example:
        >>> import jax, rrjax
        >>> product = rrjax.mechanisms.Product([rrjax.RandomizedResponse(2, 3.0)] * 3)
        >>> first = jax.random.bernoulli(jax.random.key(0), 0.5, (20_000,))
        >>> second = first ^ jax.random.bernoulli(jax.random.key(1), 0.1, (20_000,))
        >>> third = second ^ jax.random.bernoulli(jax.random.key(2), 0.2, (20_000,))
        >>> values = [each.astype(int) for each in (first, second, third)]
        >>> tree = rrjax.inference.chow_liu_tree(product.randomize(jax.random.key(3), values), product)
        >>> tree.edges, [[round(share, 1) for share in row] for row in tree.table([0, 2]).tolist()]
        (((0, 1), (1, 2)), [[0.4, 0.1], [0.1, 0.4]])

    Note:
        `validation/trees.py` compares it with trees of the maxima alone, and of `joint_bayes`, which is about as close.

    References:
        Chow and Liu, "Approximating discrete probability distributions with dependence trees", 1968; James and Stein,
        "Estimation with quadratic loss", 1961; Deming and Stephan, "On a least squares adjustment of a sampled
        frequency table when the expected marginal totals are known", 1940.
    """
    own, sizes = as_reports(reports, mechanism), mechanism.shape
    tables, information = {}, np.zeros((len(own), len(own)))
    for pair in itertools.combinations(range(len(own)), 2):
        # The smaller column first: fewer shapes to compile.
        i, j = sorted(pair, key=lambda place: (sizes[place], place))
        part = mechanism.part((i, j))
        table = _table_of_pair(part, part.count([own[i], own[j]]))
        tables[i, j], tables[j, i] = table, table.T
        information[i, j] = information[j, i] = float(mutual_information(table))
    edges = strongest_tree(information)
    margins = tuple(mle(each.mixture(known[known >= 0])) for each, known in zip(mechanism.columns, own, strict=True))
    fitted = tuple(_fitted_to_margins(tables[u, v], margins[u], margins[v]) for u, v in edges)
    return ChowLiuTree(margins, fitted, edges)


def as_reports(reports: Sequence[ArrayLike], mechanism: Product, least: int = 2) -> list[np.ndarray]:
    """The reports of at least some columns on the host, −1 where one is missing; refuses others."""
    together = getattr(mechanism, "number", None)
    if not isinstance(mechanism, Product) or len(mechanism.columns) < least or together == 1:
        raise ArgumentError.about(
            "mechanism", f"must be a Product of {least} columns or more, of which each user reports two or more"
        )
    kinds = mechanism.num_kinds
    if kinds is None:
        raise ArgumentError("mechanism must have columns whose reports can be counted", argument="mechanism")
    given = [np.asarray(each) for each in reports]
    filled = [np.where(each == -1, 0, each) if each.dtype.kind == "i" else each for each in given]
    if any(each.ndim != 1 for each in as_columns(filled, kinds, "reports")):
        raise ArgumentError("reports must be of shape [N] for each column", argument="reports")
    for place, each in enumerate(given):
        if not (each >= 0).any():
            raise ArgumentError(f"reports of column {place} are all missing: leave the column out", argument="reports")
    return given


def strongest_tree(weights: np.ndarray) -> tuple[tuple[int, int], ...]:
    """The edges of the tree with the largest sum of weights `[d, d]`, in the order in which Prim's method adds them."""
    number = len(weights)
    above = np.triu(np.ones_like(weights, bool), 1)
    u, v = np.unravel_index(int(np.argmax(np.where(above, weights, -np.inf))), weights.shape)
    edges = [(int(u), int(v))]
    while len(edges) < number - 1:
        inside = sorted({place for edge in edges for place in edge})
        outside = [place for place in range(number) if place not in inside]
        u, v = max(itertools.product(inside, outside), key=lambda edge: weights[edge])
        edges.append((u, v))
    return tuple(edges)


@jax.jit
def _table_of_pair(part, counts):
    """The likeliest table of a pair, shrunk to independence."""
    likeliest = mle(part.mixture_of_counts(counts)).reshape(part.shape)
    dtype = likeliest.dtype
    both, first, second = as_table(counts, part)
    users = jnp.sum(both).astype(dtype)
    some = jnp.maximum(users, 1)
    reports = jnp.where(users > 0, both.astype(dtype) / some, 1 / both.size)
    seen = read_reports(reports, first.astype(dtype), second.astype(dtype), some)
    statistic = jnp.sum(seen.deviation**2 * seen.weights)
    noise = jnp.asarray(1, dtype) / some
    for axis, (vectors, margin) in enumerate(((first, seen.rows), (second, seen.columns))):
        shares, own = jnp.sum(reports, axis=1 - axis), vectors.astype(dtype)
        variances = jnp.maximum(einsum("u,uk->k", shares, own**2) - einsum("u,uk->k", shares, own) ** 2, 0)
        noise = noise * jnp.sum(variances / margin)
    kept = jnp.where(statistic > noise, 1 - noise / jnp.where(statistic > noise, statistic, 1), 0)
    kept = kept * users / (users + 1)
    independent = jnp.sum(likeliest, axis=1)[:, None] * jnp.sum(likeliest, axis=0)
    return kept * likeliest + (1 - kept) * independent


@jax.jit
def _fitted_to_margins(table, rows, columns):
    """Iterative proportional fitting, to rounding: the columns last, so that they are exact."""
    tolerance = 8 * jnp.finfo(table.dtype).eps

    def scaled(wanted, have):
        return jnp.where(have > 0, wanted / jnp.where(have > 0, have, 1), 0)

    def step(state):
        table, _, number = state
        table = table * scaled(rows, jnp.sum(table, axis=1))[:, None]
        table = table * scaled(columns, jnp.sum(table, axis=0))
        return table, jnp.max(jnp.abs(jnp.sum(table, axis=1) - rows)), number + 1

    def unfinished(state):
        return (state[1] > tolerance) & (state[2] < MOST_FITTING_STEPS)

    start = table, jnp.asarray(jnp.inf, table.dtype), jnp.int32(0)
    return lax.while_loop(unfinished, step, start)[0]


def _drawn(key, bounds, number):
    """Categories by their cumulative shares `[K]` or `[N, K]`."""
    place = jax.random.uniform(key, (number,), bounds.dtype) * bounds[..., -1]
    return jnp.sum(bounds[..., :-1] <= place[:, None], axis=-1, dtype=jnp.int32)


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
    statistics = np.asarray(_statistics(key, parts, tree, mechanism.columns, num_draws))
    outside = np.triu(np.ones((number, number), bool), 1)
    for u, v in tree.edges:
        outside[min(u, v), max(u, v)] = False
    mean = statistics.mean(axis=0)
    outside &= mean > 0  # else nobody reports both
    ratios = statistics / np.where(mean > 0, mean, 1)
    freedom = np.outer(np.asarray(kinds) - 1, np.asarray(kinds) - 1)
    sums = (freedom * ratios)[:, outside].sum(axis=1)

    def of_pairs(values):
        upper = np.where(outside, values, np.nan)
        return np.where(np.isnan(upper), upper.T, upper)

    results = sums[0], _p_values(sums), of_pairs(ratios[0]), of_pairs(_p_values(statistics))
    return TreeFit(*(jnp.asarray(each, float_dtype()) for each in results))


def _p_values(statistics):
    """The share of the statistics that are as large as the first one, itself included; up to rounding."""
    return (statistics >= statistics[0] * (1 - 1e-5)).mean(axis=0)


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


def _given_first(table):
    """P(x_v | x_u) of a table; zero where x_u has no share."""
    rows = jnp.sum(table, axis=1, keepdims=True)
    return jnp.where(rows > 0, table / jnp.where(rows > 0, rows, 1), 0)


def pairs_of(
    edges: Sequence[tuple[int, int]], shape: Sequence[int], tables: Sequence[ArrayLike]
) -> Float[Array, "T T"]:
    """The tables of all pairs of columns, as blocks of one matrix of ΣK rows; margins on the diagonal.

    A table follows from those of the edges along its path: P(x_w, x_v) = Σ P(x_w, x_u)·P(x_v | x_u).
    """
    arrays, order = [jnp.asarray(each) for each in tables], [edges[0][0]]
    block = jnp.diag(jnp.sum(arrays[0], axis=1))
    for (u, v), table in zip(edges, arrays, strict=True):
        start = sum(shape[place] for place in order[: order.index(u)])
        beside = matmul(block[:, start : start + shape[u]], _given_first(table))
        own = jnp.diag(jnp.sum(beside[start : start + shape[u]], axis=0))
        block = jnp.block([[block, beside], [beside.T, own]])
        order.append(v)
    starts = np.cumsum([0, *(shape[place] for place in order)])
    rows = np.concatenate([starts[order.index(place)] + np.arange(size) for place, size in enumerate(shape)])
    return block[rows][:, rows]
