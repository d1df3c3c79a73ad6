"""Lifts: matrices of numbers that are not negative, known by their two products, which `Mixture` is made of.

Nothing is subtracted in a product, and its sums are compensated: it is accurate to some ten machine epsilons at any
size, in every entry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_scalar
from rrjax.data.errors import ArgumentError
from rrjax.numerics.pytrees import register
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum, filled_up, two_sum

_RUN = 16
"""Terms that are added up plainly, by a matrix product, before the sums are compensated."""
_ROWS = 512
"""Rows of a matrix that are converted to floats at a time."""
_BRANCH = 8
"""Numbers that a sum over a list takes together at a time."""
FEW = 16
"""Categories for each one that a report supports, from which on lists of these take less than a matrix."""


class Lift(Protocol):
    """A matrix B `[U, K]` of numbers that are not negative, known by what it does. A pytree."""

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


@register(data_fields=["scale"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class Scaling:
    """The lift `scale`·I of reports that name one category each.

    Attributes:
        scale: Scalar, not negative.
        num_categories: K. Static.
    """

    scale: ArrayLike
    num_categories: int

    @property
    def shape(self) -> tuple[int, int]:
        """K and K."""
        return self.num_categories, self.num_categories

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " K"]:
        """B·θ."""
        return jnp.asarray(self.scale, theta.dtype) * theta

    def transpose(self, weights: Float[Array, " K"]) -> Float[Array, " K"]:
        """Bᵀ·w."""
        return jnp.asarray(self.scale, weights.dtype) * weights


@register(data_fields=["matrix", "scale"])
@dataclasses.dataclass(frozen=True)
class Dense:
    """The lift `scale`·matrix. Its products are accurate to some ten machine epsilons at any size.

    16 terms are added up plainly, and the rounding of all further sums is carried along. The matrix stays in its dtype:
    a product converts 512 rows of it at a time. Derivatives are plain products.

    Attributes:
        matrix: `[U, K]`, booleans, or numbers that are not negative.
        scale: Scalar, not negative.
    """

    matrix: Shaped[Array, "U K"]
    scale: ArrayLike = 1.0

    def __post_init__(self) -> None:
        """Takes lists too."""
        if isinstance(self.matrix, list | tuple):
            object.__setattr__(self, "matrix", np.asarray(self.matrix))

    @property
    def shape(self) -> tuple[int, int]:
        """U and K."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        """B·θ."""
        return jnp.asarray(self.scale, theta.dtype) * _times(jnp.asarray(self.matrix), theta)

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        """Bᵀ·w."""
        return jnp.asarray(self.scale, weights.dtype) * _transposed_times(jnp.asarray(self.matrix), weights)


@jax.custom_jvp
def _times(matrix, vector):
    """Matrix times vector."""

    def of(rows):
        rows = rows.astype(vector.dtype)
        return _run_by_run(
            rows.shape[1], lambda at, run: _dot(_part(rows, at, run, 1), _part(vector, at, run)), (rows, vector)
        )

    if not isinstance(matrix.shape[0], int):  # a symbol of `jax.export`
        return of(matrix)
    number = matrix.shape[0] // _ROWS
    rest = of(matrix[number * _ROWS :])
    if number == 0:
        return rest
    most = lax.map(lambda block: of(_part(matrix, block * _ROWS, _ROWS)), aligned(jnp.arange(number), (matrix, vector)))
    return jnp.concatenate([most.reshape(-1), rest])


@jax.custom_jvp
def _transposed_times(matrix, vector):
    """The transpose of a matrix times a vector."""
    if not isinstance(matrix.shape[0], int):  # a symbol of `jax.export`
        matrix, vector = filled_up(matrix, _RUN), filled_up(vector, _RUN)
    return _run_by_run(
        matrix.shape[0],
        lambda at, run: _dot(_part(vector, at, run), _part(matrix, at, run).astype(vector.dtype)),
        (matrix, vector),
    )


def _dot(one, other):
    return jnp.matmul(one, other, precision="highest")


def _part(array, at, run, axis=0):
    return lax.dynamic_slice_in_dim(array, at, run, axis)


def _run_by_run(size, product, others):
    """The compensated sum of products of `_RUN` terms each, at 0, 16, 32, …; the last one may have fewer."""
    number, rest = divmod(size, _RUN)
    last = product(number * _RUN, rest)  # zero, where nothing is left
    if number == 0:
        return last
    total, error = lax.fori_loop(
        0,
        number,
        lambda turn, sums: two_sum(sums, (product(turn * _RUN, _RUN), jnp.zeros_like(last))),
        aligned((last, jnp.zeros_like(last)), others),
    )
    return jnp.where(jnp.isfinite(error), total + error, total)  # among infinite terms the errors are inf − inf


@_times.defjvp
def _times_jvp(primals, tangents):
    return _times(*primals), _change(lambda matrix, vector: _dot(matrix, vector), primals, tangents)


@_transposed_times.defjvp
def _transposed_times_jvp(primals, tangents):
    change = _change(lambda matrix, vector: _dot(vector, matrix), primals, tangents)
    return _transposed_times(*primals), change


def _change(product, primals, tangents):
    (matrix, vector), (of_matrix, of_vector) = primals, tangents
    change = product(matrix.astype(vector.dtype), aligned(of_vector, vector))
    if not jnp.issubdtype(matrix.dtype, jnp.floating):
        return change
    return change + product(aligned(of_matrix, matrix).astype(vector.dtype), vector)


@register(data_fields=["rows", "columns", "scale"])
@dataclasses.dataclass(frozen=True)
class Sparse:
    """The lift `scale`·[report u supports category i], by the lists of what is supported: O(nnz) a product.

    Made by `Sparse.of`. Sums are made eight numbers at a time: a table of places for each level of the tree.

    Attributes:
        rows: Tables `[n, 8]` of places: of a report in the categories, then in the sums before.
        columns: The same, of a category in the reports.
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
        """Makes it of the categories that each report supports.

        Args:
            supports: U lists of categories, 0 … K − 1, in any order, each once; or an array of them `[U, w]`.
            num_categories: K.
            scale: Scalar, not negative.

        Returns:
            `Sparse`.

        Raises:
            ValueError: A category outside the domain, or twice in a list.
        """
        lists = [np.asarray(support, int).ravel() for support in supports]
        lengths = np.asarray([len(one) for one in lists], int)
        members = np.concatenate([*lists, np.zeros(0, int)])
        reports = np.repeat(np.arange(len(lengths)), lengths)
        outside = np.flatnonzero((members < 0) | (members >= num_categories))
        if outside.size:
            raise ArgumentError(
                f"report {reports[outside[0]]} supports category {members[outside[0]]}; categories go from 0 to "
                f"{num_categories - 1}",
                argument="supports",
            )
        order = np.lexsort((reports, members))  # by category
        twice = np.flatnonzero((np.diff(members[order]) == 0) & (np.diff(reports[order]) == 0))
        if twice.size:
            at = order[twice[0]]
            raise ArgumentError(f"report {reports[at]} names category {members[at]} twice", argument="supports")
        holders = np.bincount(members, minlength=num_categories)
        return cls(_tree(members, lengths, num_categories), _tree(reports[order], holders, len(lengths)), scale)

    @property
    def shape(self) -> tuple[int, int]:
        """U and K."""
        return self.rows[-1].shape[0], self.columns[-1].shape[0]

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        """B·θ."""
        return jnp.asarray(self.scale, theta.dtype) * _added(theta, self.rows)

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        """Bᵀ·w."""
        return jnp.asarray(self.scale, weights.dtype) * _added(weights, self.columns)


def _tree(places, lengths, size):
    """Tables of places for sums over lists of these lengths, laid end to end; the place `size` is that of a zero."""
    tables = []
    while not tables or tables[-1].shape[0] > len(lengths):
        blocks = np.maximum(-(-lengths // _BRANCH), 1)
        table = np.full(blocks.sum() * _BRANCH, size, np.int32)
        within = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        table[np.repeat((np.cumsum(blocks) - blocks) * _BRANCH, lengths) + within] = places
        tables.append(table.reshape(-1, _BRANCH))
        places, lengths, size = np.arange(blocks.sum()), blocks, int(blocks.sum())
    return tuple(tables)


def _added(x, tables):
    for table in tables:
        x = jax.vmap(accurate_sum)(jnp.append(x, jnp.zeros_like(x[:1]))[jnp.asarray(table)])
    return x


def incidence(supported: Bool[np.ndarray, "U K"], scale: ArrayLike) -> Sparse | Dense:
    """The lift `scale`·supported, by lists where few are set."""
    if FEW * supported.sum() >= supported.size:
        return Dense(jnp.asarray(supported), scale)
    lengths = supported.sum(axis=1)
    return Sparse.of(np.split(np.nonzero(supported)[1], np.cumsum(lengths)[:-1]), supported.shape[1], scale)


@register(data_fields=["rate"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class Decay:
    """The lift exp(−rate·|u − i|) of reports that are the less likely the further they are from the value.

    A sum of what comes from below and of what comes from above, each a recurrence f_u = θ_u + e^−rate·f_(u−1), made
    by doubling: O(K·log K) a product.

    Attributes:
        rate: Scalar, not negative.
        num_categories: K. Static.
    """

    rate: ArrayLike
    num_categories: int

    @property
    def shape(self) -> tuple[int, int]:
        """K and K."""
        return self.num_categories, self.num_categories

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " K"]:
        """B·θ."""
        rate = as_scalar(self.rate, theta.dtype, "rate")
        below, above = _decaying(theta, rate), _decaying(theta[::-1], rate)[::-1]
        return below + jnp.exp(-rate) * jnp.append(above[1:], jnp.zeros_like(above[:1]))

    def transpose(self, weights: Float[Array, " K"]) -> Float[Array, " K"]:
        """Bᵀ·w, the same."""
        return self(weights)


def _decaying(x, rate):
    """Σ_(k≤i) x_k·exp(−rate·(i − k)): of the last 1, 2, 4, … values."""
    reach = 1
    while reach < x.shape[0]:
        x = x + jnp.exp(-rate * reach) * jnp.append(jnp.zeros_like(x[:reach]), x[:-reach])
        reach *= 2
    return x
