"""Lifts of several columns that were randomized apart: products of the channels of the columns.

With the channel C_j = a_j·1ᵀ + B_j of each column (a_j the part of a report's probability that does not depend on the
value), the probabilities of the joint reports are (C_1 ⊗ … ⊗ C_d)·θ. The part that depends on no column is
a_1 ⊗ … ⊗ a_d, the base of the mixture; the rest is the lift. It is computed without a difference: with f the product of
the channels before column j, and n that of their bases, C_j·f − a_j·n = C_j·(f − n) + B_j·n.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Lift
from rrjax.numerics.pytrees import register
from rrjax.numerics.sums import accurate_sum

SHORT_SUM = 64
"""Largest number of positive terms that are added plainly: the sum is off by less than half a machine epsilon each."""
CELLS_AT_A_TIME = 1 << 22
"""Numbers of a block of reports × cells of a product by rows."""


@register(data_fields=["base", "lift"])
@dataclasses.dataclass(frozen=True)
class Factor:
    """The channel of one column, from values to reports: C·x = a·Σx + B·x.

    Attributes:
        base: Scalar or `[U]`, a.
        lift: B, `[U, K]`.
    """

    base: ArrayLike
    lift: Lift

    def forward(self, tensor: Array, axis: int) -> tuple[Array, Array]:
        """B·x and a·Σx along an axis; a·Σx has the length one there if a is a scalar."""
        rows = jnp.moveaxis(tensor, axis, -1)
        total = _sums(rows)
        base = jnp.asarray(self.base, tensor.dtype)
        lifted = _along(self.lift, rows)
        return jnp.moveaxis(lifted, -1, axis), jnp.moveaxis(base * total[..., None], -1, axis)

    def backward(self, tensor: Array, axis: int) -> tuple[Array, Array]:
        """Bᵀ·w and 1·(a·w) along an axis."""
        rows = jnp.moveaxis(tensor, axis, -1)
        total = _sums(jnp.asarray(self.base, tensor.dtype) * rows)
        return jnp.moveaxis(_along(self.lift.transpose, rows), -1, axis), jnp.moveaxis(total[..., None], -1, axis)


def _along(product, rows):
    flat = rows.reshape(-1, rows.shape[-1])
    done = jax.vmap(product)(flat)
    return done.reshape(*rows.shape[:-1], done.shape[-1])


def _sums(rows):
    if rows.shape[-1] <= SHORT_SUM:
        return jnp.sum(rows, axis=-1)
    flat = rows.reshape(-1, rows.shape[-1])
    return jax.vmap(accurate_sum)(flat).reshape(rows.shape[:-1])


@register(data_fields=["factors"])
@dataclasses.dataclass(frozen=True)
class Kronecker(Lift):
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
        return _through(theta.reshape(sizes), self.factors, Factor.forward)

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        return _through(
            weights.reshape([factor.lift.shape[0] for factor in self.factors]), self.factors, Factor.backward
        )


def _through(tensor, factors, product):
    """The product with all channels, an axis each, without the part that depends on no column."""
    rest, noise = product(factors[0], tensor, 0)
    for axis, factor in enumerate(factors[1:], 1):
        of_rest, flat_rest = product(factor, rest, axis)
        of_noise, noise = product(factor, noise, axis)
        rest = of_rest + flat_rest + of_noise
    return rest.ravel()


def _outer(vectors):
    found = vectors[0]
    for vector in vectors[1:]:
        found = found[..., None] * vector
    return found


@register(data_fields=["rows"])
@dataclasses.dataclass(frozen=True)
class RowProduct(Lift):
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
            found = tensor
            for row in rows:
                found = jnp.tensordot(row.astype(theta.dtype), found, 1, precision="highest")
            return found

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
            return (left.T @ last).ravel() if len(rows) > 1 else jnp.sum(left, axis=0)

        sums = lax.map(of_block, (filled(weights), *map(filled, self.rows)))
        return jax.vmap(accurate_sum, in_axes=1)(sums) if blocks > 1 else sums.reshape(size)

    @property
    def _block(self) -> int:
        return max(1, CELLS_AT_A_TIME // self.shape[1])
