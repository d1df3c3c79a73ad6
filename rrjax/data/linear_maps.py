"""Matrices of non-negative numbers as linear maps, given by their two products; the `lift` of a `Mixture` is one.

A product subtracts nothing, and its sums are pairwise or compensated: every entry is accurate to some ten machine
epsilons at any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_scalar
from rrjax.data.errors import ArgumentError
from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.sums import ROW, accurate_sum, corrected, filled_up, two_sum

_PARTS = 16
"""Least number of slices that a long sum of a matrix product adds at a time; less than twice as many at most."""
_SHORT_SUM = 64
"""Largest number of terms of a matrix product that are slices of their own."""
_TERMS_PER_NODE = 8
"""Number of terms that a sum over a list adds at a time."""
SPARSE_RATIO = 16
"""Categories per supported category from which on lists take less memory than a matrix."""


@runtime_checkable
class LinearMap(Protocol):
    """A matrix B `[U, K]` of non-negative numbers, given by its two products. A pytree."""

    @property
    def shape(self) -> tuple[int, int]:
        """U and K."""
        ...

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        """B·θ."""
        ...

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        """Bᵀ·w."""
        ...


class Symmetric(LinearMap):
    """A lift `[K, K]` of reports that are categories, likely from each other alike."""

    num_categories: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_categories, self.num_categories

    def transpose(self, weights: Float[Array, " K"]) -> Float[Array, " K"]:
        return self(weights)


@pytree("num_categories")
class Scaling(Symmetric):
    """Linear map of reports that name one category each: `scale`·I or, if others than its users do, `scale`·(11ᵀ − I).

    Attributes:
        scale: Scalar, not negative.
        num_categories: K. Static.
        others: Scalar boolean: whether they are likelier from all others; None is never, and the lift is diagonal.
    """

    scale: ArrayLike
    num_categories: int
    others: ArrayLike | None = None

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " K"]:
        scale = jnp.asarray(self.scale, theta.dtype)
        if self.others is None:
            return scale * theta
        # The sum of the others, without a difference of nearly equal numbers.
        before = jnp.append(jnp.zeros_like(theta[:1]), jnp.cumsum(theta[:-1]))
        after = jnp.append(jnp.cumsum(theta[:0:-1])[::-1], jnp.zeros_like(theta[:1]))
        return scale * jnp.where(self.others, before + after, theta)


@pytree()
class Dense(LinearMap):
    """Linear map `scale`·matrix.

    A product adds n terms pairwise: an entry is accurate to 1 + ⌈log2 n⌉/2 machine epsilons. The matrix stays in its
    dtype. A product stores a float for 16 of its cells, for 4 in short sums. Derivatives are plain products.

    Attributes:
        matrix: `[U, K]`, booleans, or non-negative numbers.
        scale: Scalar, not negative.
    """

    matrix: Shaped[Array, "U K"]
    scale: ArrayLike = 1.0

    def __post_init__(self) -> None:
        """Converts lists to arrays."""
        if isinstance(self.matrix, list | tuple):
            object.__setattr__(self, "matrix", np.asarray(self.matrix))

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        return jnp.asarray(self.scale, theta.dtype) * _times(jnp.asarray(self.matrix), theta)

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        return jnp.asarray(self.scale, weights.dtype) * _transposed_times(jnp.asarray(self.matrix), weights)


@jax.custom_jvp
def _times(matrix, vector):
    return _summed(matrix, vector, 1)


@jax.custom_jvp
def _transposed_times(matrix, vector):
    if isinstance(matrix.shape[0], int):
        return _summed(matrix, vector, 0)
    # A symbol of `jax.export`: the compensated sum of blocks of known size.
    rows = filled_up(matrix, ROW).reshape(-1, ROW, matrix.shape[1])
    weights = filled_up(vector, ROW).reshape(-1, ROW)
    zeros = jnp.zeros(matrix.shape[1], vector.dtype)

    def add(turn, sums):
        return two_sum(sums, (_summed(rows[turn], weights[turn], 0), zeros))

    total, error = lax.fori_loop(0, rows.shape[0], add, with_sharding_of((zeros, zeros), (matrix, vector)))
    return corrected(total, error)


def _summed(matrix, vector, axis):
    """The pairwise sums of matrix·vector along an axis.

    It adds slices of many neighbours, which a CPU does in vector registers, and stores no products. Adding neighbours
    to each other takes three times as long.
    """
    size = matrix.shape[axis]
    if size == 0:
        return jnp.sum(matrix, axis=axis, dtype=vector.dtype)
    length = 1 if size <= _SHORT_SUM else max(_PARTS, 1 << (size // _PARTS).bit_length() - 1)

    def product(start):
        end = min(start + length, size)
        # The last part begins earlier, with weights of zero.
        part = lax.slice_in_dim(matrix, end - length, end, axis=axis)
        weights = jnp.expand_dims(jnp.pad(vector[start:end], (start + length - end, 0)), 1 - axis)
        return part.astype(weights.dtype) * weights

    total = _pairwise([product(start) for start in range(0, size, length)])
    while length > 1:
        parts = min(_PARTS, length)
        length //= parts
        total = _pairwise([lax.slice_in_dim(total, at * length, (at + 1) * length, axis=axis) for at in range(parts)])
    return lax.squeeze(total, (axis,))


def _pairwise(terms):
    while len(terms) > 1:
        pairs = [one + other for one, other in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(terms) // 2 * 2 :]
    return terms[0]


@_times.defjvp
def _times_jvp(primals, tangents):
    return _times(*primals), _change(matmul, primals, tangents)


@_transposed_times.defjvp
def _transposed_times_jvp(primals, tangents):
    change = _change(lambda matrix, vector: matmul(vector, matrix), primals, tangents)
    return _transposed_times(*primals), change


def _change(product, primals, tangents):
    (matrix, vector), (of_matrix, of_vector) = primals, tangents
    change = product(matrix.astype(vector.dtype), with_sharding_of(of_vector, vector))
    if not jnp.issubdtype(matrix.dtype, jnp.floating):
        return change
    return change + product(with_sharding_of(of_matrix, matrix).astype(vector.dtype), vector)


@pytree()
class Sparse(LinearMap):
    """Linear map `scale`·[report u supports category i], from lists of supported categories; a product takes O(nnz).

    Use `Sparse.of`. A sum is a tree whose nodes add eight numbers, with a table of places for each level.

    Attributes:
        rows: Tables `[n, 8]` for the sum of each report: places of categories, then places in the level before.
        columns: The same for the sum of each category, with places of reports.
        scale: Scalar, not negative.

    Example:
        >>> import rrjax
        >>> from rrjax.data.linear_maps import Sparse
        >>> mixture = rrjax.Mixture([50, 30, 20], base=1.0, lift=Sparse.of([[0, 2], [1], [0, 1]], num_categories=3))
        >>> [round(t, 1) for t in rrjax.ibu(mixture).theta.tolist()]
        [0.9, 0.1, 0.0]
    """

    rows: tuple[Int[Array, "n w"], ...]
    columns: tuple[Int[Array, "n w"], ...]
    scale: ArrayLike = 1.0

    @classmethod
    def of(cls, supports: Sequence[ArrayLike] | np.ndarray, num_categories: int, scale: ArrayLike = 1.0) -> Sparse:
        """The lift, from U lists of categories, 0 … K − 1, in any order, each once; or an array of them `[U, w]`."""
        lists = [np.asarray(support, int).ravel() for support in supports]
        lengths = np.asarray([len(one) for one in lists], int)
        members = np.concatenate([*lists, np.zeros(0, int)])
        reports = np.repeat(np.arange(len(lengths)), lengths)
        outside = np.flatnonzero((members < 0) | (members >= num_categories))
        if outside.size:
            problem = f"report {reports[outside[0]]} supports category {members[outside[0]]}"
            raise ArgumentError(f"{problem}; categories go from 0 to {num_categories - 1}", argument="supports")
        order = np.lexsort((reports, members))  # by category
        twice = np.flatnonzero((np.diff(members[order]) == 0) & (np.diff(reports[order]) == 0))
        if twice.size:
            at = order[twice[0]]
            raise ArgumentError(f"report {reports[at]} names category {members[at]} twice", argument="supports")
        holders = np.bincount(members, minlength=num_categories)
        return cls(_tree(members, lengths, num_categories), _tree(reports[order], holders, len(lengths)), scale)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows[-1].shape[0], self.columns[-1].shape[0]

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        return jnp.asarray(self.scale, theta.dtype) * _added(theta, self.rows)

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        return jnp.asarray(self.scale, weights.dtype) * _added(weights, self.columns)


def _tree(places, lengths, size):
    """The tables for sums over lists of these lengths, concatenated; the place `size` is a zero."""
    tables = []
    while not tables or tables[-1].shape[0] > len(lengths):
        blocks = np.maximum(-(-lengths // _TERMS_PER_NODE), 1)
        table = np.full(blocks.sum() * _TERMS_PER_NODE, size, np.int32)
        within = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        table[np.repeat((np.cumsum(blocks) - blocks) * _TERMS_PER_NODE, lengths) + within] = places
        tables.append(table.reshape(-1, _TERMS_PER_NODE))
        places, lengths, size = np.arange(blocks.sum()), blocks, int(blocks.sum())
    return tuple(tables)


def _added(x, tables):
    for table in tables:
        x = jax.vmap(accurate_sum)(jnp.append(x, jnp.zeros_like(x[:1]))[jnp.asarray(table)])
    return x


@pytree()
class Concatenated(LinearMap):
    """Linear map of several linear maps over the same categories, on top of each other.

    Attributes:
        parts: The linear maps, in the order of their rows.
    """

    parts: tuple[LinearMap, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        return jnp.concatenate([part(theta) for part in self.parts])

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        pieces = jnp.split(weights, np.cumsum([part.shape[0] for part in self.parts[:-1]]))
        products = [part.transpose(piece) for part, piece in zip(self.parts, pieces, strict=True)]
        return jax.vmap(accurate_sum, in_axes=1)(jnp.stack(products))


def matrix_of(lift: LinearMap, dtype: jax.typing.DTypeLike) -> Float[Array, "U K"]:
    """The matrix of a lift."""
    if isinstance(lift, Dense):
        return jnp.asarray(lift.scale, dtype) * lift.matrix.astype(dtype)
    return jax.vmap(lift, out_axes=1)(jnp.eye(lift.shape[1], dtype=dtype))


def incidence(supported: Bool[np.ndarray, "U K"], scale: ArrayLike) -> Sparse | Dense:
    """The lift `scale`·supported, by lists if few entries are set."""
    if SPARSE_RATIO * supported.sum() >= supported.size:
        return Dense(jnp.asarray(supported), scale)
    lengths = supported.sum(axis=1)
    return Sparse.of(np.split(np.nonzero(supported)[1], np.cumsum(lengths)[:-1]), supported.shape[1], scale)


@pytree("num_categories")
class Decay(Symmetric):
    """Linear map exp(−rate·|u − i|), for reports whose probability falls with the distance from the value.

    A product is the sum of the recurrence f_u = θ_u + e^−rate·f_(u−1) from below and the same from above, each by
    doubling: O(K·log K).

    Attributes:
        rate: Scalar, not negative.
        num_categories: K. Static.
    """

    rate: ArrayLike
    num_categories: int

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " K"]:
        rate = as_scalar(self.rate, theta.dtype, "rate")
        below, above = _decaying(theta, rate), _decaying(theta[::-1], rate)[::-1]
        return below + jnp.exp(-rate) * jnp.append(above[1:], jnp.zeros_like(above[:1]))


def _decaying(x, rate):
    """Σ_(k≤i) x_k·exp(−rate·(i − k)), by doubling over the last 1, 2, 4, … values."""
    reach = 1
    while reach < x.shape[0]:
        x = x + jnp.exp(-rate * reach) * jnp.append(jnp.zeros_like(x[:reach]), x[:-reach])
        reach *= 2
    return x
