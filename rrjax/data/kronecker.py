"""Linear maps of several columns that were randomized apart: products of the channels of the columns.

With the channel C_j = a_j·1ᵀ + B_j of each column (a_j the part of a report's probability that does not depend on the
value), the probabilities of the joint reports are (C_1 ⊗ … ⊗ C_d)·θ. The part that depends on no column is
a_1 ⊗ … ⊗ a_d, the base of the mixture; the rest is the lift. It is computed without a difference: with f the product of
the channels before column j, and n that of their bases, C_j·f − a_j·n = C_j·(f − n) + B_j·n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Dense, LinearMap, matrix_of
from rrjax.numerics.products import matmul, tensordot
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sums import accurate_sum

SHORT_SUM = 64
"""Largest number of positive terms that are added plainly: the sum is off by less than half a machine epsilon each.
So long are the rows of matrices that stand for the channels of columns of few categories, for they are fastest."""
CELLS_AT_A_TIME = 1 << 22
"""Numbers of a block of reports × cells of a product by rows."""


@pytree()
class Factor:
    """The channel of one column, from values to reports: C·x = a·Σx + B·x.

    Attributes:
        base: Scalar or `[U]`, a.
        lift: B, `[U, K]`.
    """

    base: ArrayLike
    lift: LinearMap

    @property
    def is_matrix(self) -> bool:
        """Whether the lift is a small matrix."""
        return isinstance(self.lift, Dense) and max(self.lift.shape) <= SHORT_SUM

    def forward(self, tensor: Array) -> tuple[Array, Array]:
        """B·x and a·Σx along the first axis, which becomes the last; a·Σx has the length one there if a is a scalar."""
        base = jnp.asarray(self.base, tensor.dtype) * _sums(tensor)[..., None]
        return self._lifted(tensor, 0, transposed=False), base

    def whole(self, tensor: Array, *, transposed: bool) -> Array:
        """C·x, or Cᵀ·w, along the first axis, which becomes the last."""
        if self.is_matrix:
            base = jnp.asarray(self.base, tensor.dtype)
            return self._lifted(tensor, base[:, None] if base.ndim else base, transposed=transposed)
        lifted, base = self.backward(tensor) if transposed else self.forward(tensor)
        return lifted + base

    def backward(self, tensor: Array) -> tuple[Array, Array]:
        """Bᵀ·w and 1·(a·w) along the first axis, which becomes the last."""
        base = jnp.asarray(self.base, tensor.dtype)
        total = _sums(base.reshape(-1, *(1,) * (tensor.ndim - 1)) * tensor)[..., None]
        return self._lifted(tensor, 0, transposed=True), total

    def _lifted(self, tensor, more, *, transposed):
        """(B + more)·x, or its transpose times w."""
        if not self.is_matrix:
            return _along(self.lift.transpose if transposed else self.lift, jnp.moveaxis(tensor, 0, -1))
        assert isinstance(self.lift, Dense)
        matrix = (jnp.asarray(self.lift.scale) * self.lift.matrix).astype(tensor.dtype) + more
        return tensordot(tensor, matrix, ((0,), (0 if transposed else 1,)))


def with_missing(factor: Factor) -> Factor:
    """The channel with one more kind of report, the missing one, which says nothing: all values have it alike."""
    rows, size = factor.lift.shape
    dtype = float_dtype()
    matrix = matrix_of(factor.lift, dtype)
    base = jnp.broadcast_to(jnp.asarray(factor.base, dtype), rows)
    return Factor(jnp.append(base, 1), Dense(jnp.concatenate([matrix, jnp.zeros((1, size), dtype)])))


def _along(product, rows):
    flat = rows.reshape(-1, rows.shape[-1])
    done = jax.vmap(product)(flat)
    return done.reshape(*rows.shape[:-1], done.shape[-1])


def merged(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """The same channels in fewer factors, neighbours of few categories as one small matrix.

    A product with a matrix is much faster than sums along an axis, and each factor reads the whole table.
    """
    blocks: list[Factor] = []
    group: list[Factor] = []
    for factor in factors:
        longer = Kronecker((*group, factor))
        if max(longer.shape) <= SHORT_SUM:
            group.append(factor)
            continue
        blocks.extend(_as_matrix(group))
        group = [factor]
        if max(factor.lift.shape) > SHORT_SUM:
            blocks.append(factor)
            group = []
    return (*blocks, *_as_matrix(group))


def _as_matrix(group):
    if not group:
        return []
    whole = Kronecker(tuple(group))
    return [Factor(whole.base, Dense(matrix_of(whole, float_dtype())))]


def _sums(rows):
    """Sums along the first axis."""
    if rows.shape[0] <= SHORT_SUM:
        return jnp.sum(rows, axis=0)
    flat = rows.reshape(rows.shape[0], -1)
    return jax.vmap(accurate_sum, in_axes=1)(flat).reshape(rows.shape[1:])


@pytree()
class Kronecker(LinearMap):
    """The lift of the joint reports of all columns, `[∏U, ∏K]`: the product of the channels without that of the bases.

    A product takes O(d·∏K) operations for columns whose own lifts take O(K), never ∏U·∏K.

    Attributes:
        factors: The channels of the columns; a cell counts the first column slowest.
    """

    factors: tuple[Factor, ...]

    @property
    def shape(self) -> tuple[int, int]:
        sizes = [factor.lift.shape for factor in self.factors]
        return math.prod(rows for rows, _ in sizes), math.prod(columns for _, columns in sizes)

    @property
    def base(self) -> Array:
        """The product of the bases, a scalar or `[∏U]`."""
        bases = [jnp.asarray(factor.base) for factor in self.factors]
        if all(base.ndim == 0 for base in bases):
            return jnp.prod(jnp.stack(bases))
        rows = [jnp.broadcast_to(b, f.lift.shape[0]) for b, f in zip(bases, self.factors, strict=True)]
        return _outer(rows).ravel()

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        sizes = [factor.lift.shape[1] for factor in self.factors]
        return _through(theta.reshape(sizes), self.factors, transposed=False)

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        sizes = [factor.lift.shape[0] for factor in self.factors]
        return _through(weights.reshape(sizes), self.factors, transposed=True)


def _through(tensor, factors, *, transposed):
    """The product with all channels, an axis each, without the part that depends on no column."""
    # Each factor takes the first axis and puts its result last, so that in the end the axes have their order again.
    product = Factor.backward if transposed else Factor.forward
    rest, noise = product(factors[0], tensor)
    for factor in factors[1:]:
        of_noise, noise = product(factor, noise)
        rest = factor.whole(rest, transposed=transposed) + of_noise
    return rest.ravel()


def _outer(vectors):
    product = vectors[0]
    for vector in vectors[1:]:
        product = product[..., None] * vector
    return product


@pytree()
class RowProduct(LinearMap):
    """The lift of joint reports that are too many to count: each row is the product of the columns' own rows.

    A product takes N·∏K operations, in blocks of reports.

    Attributes:
        rows: For each column `[N, K_j]`, the probabilities of each report under the values, up to a factor.
    """

    rows: tuple[Float[Array, "N K"], ...]

    def __post_init__(self) -> None:
        """Checks that all columns have as many reports."""
        if len({each.shape[0] for each in self.rows}) > 1:
            numbers = ", ".join(str(each.shape[0]) for each in self.rows)
            raise ArgumentError(f"columns have different numbers of reports: {numbers}", argument="rows")

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows[0].shape[0], math.prod(each.shape[1] for each in self.rows)

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        tensor = theta.reshape([each.shape[1] for each in self.rows])

        def of_report(rows):
            likelihood = tensor
            for row in rows:
                likelihood = tensordot(row.astype(theta.dtype), likelihood, 1)
            return likelihood

        return lax.map(of_report, self.rows, batch_size=self._block)

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        size, number = self.shape[1], self.shape[0]
        block = min(self._block, number)
        blocks = -(-number // block)

        def filled(x):
            x = jnp.pad(x, ((0, blocks * block - number), *((0, 0),) * (x.ndim - 1)))
            return x.reshape(blocks, block, *x.shape[1:])

        def of_block(given):
            own, *rows = given
            left, last = rows[0].astype(own.dtype) * own[:, None], rows[-1].astype(own.dtype)
            for row in rows[1:-1]:
                left = (left[:, :, None] * row.astype(own.dtype)[:, None, :]).reshape(block, -1)
            return matmul(left.T, last).ravel() if len(rows) > 1 else jnp.sum(left, axis=0)

        sums = lax.map(of_block, (filled(weights), *map(filled, self.rows)))
        return jax.vmap(accurate_sum, in_axes=1)(sums) if blocks > 1 else sums.reshape(size)

    @property
    def _block(self) -> int:
        return max(1, CELLS_AT_A_TIME // self.shape[1])


@pytree("sizes")
class SumOfColumns(LinearMap):
    """The lift of reports of which one column, nobody knows which, is about the value: (Bθ)_u = Σ_j s_j·θ_j[u_j].

    θ_j is the distribution of column j, in which the report u has the category u_j.

    Attributes:
        scales: `[d]`, s.
        sizes: The numbers of categories of the columns. Static.
    """

    scales: Float[Array, " d"]
    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(self.sizes), math.prod(self.sizes)

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        table = theta.reshape(self.sizes)
        total = jnp.zeros(self.sizes, theta.dtype)
        for place, scale in enumerate(self.scales.astype(theta.dtype)):
            others = tuple(each for each in range(len(self.sizes)) if each != place)
            total = total + scale * jnp.sum(table, axis=others, keepdims=True)
        return total.ravel()

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        return self(weights)  # symmetric
