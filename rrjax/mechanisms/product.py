"""Several columns, each randomized apart by a mechanism of its own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_values, check_key, float_dtype, int_dtype
from rrjax.data.errors import ArgumentError
from rrjax.data.kronecker import Factor, Kronecker, RowProduct, merged
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.channel import Channel
from rrjax.mechanisms.columns import ColumnResponse
from rrjax.mechanisms.discrete_square_wave import DiscreteSquareWave
from rrjax.mechanisms.mechanism import Mechanism, numbers_if
from rrjax.mechanisms.ordered import Geometric
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.rows import LogRows
from rrjax.mechanisms.surveys.design import Design
from rrjax.numerics.pytrees import register

MOST_CELLS = 1 << 27
"""Largest number of cells of a joint table: 512 MiB in float32."""


@register(data_fields=["columns"])
@dataclasses.dataclass(frozen=True)
class Product(Mechanism):
    """Columns that are randomized apart: each by its own mechanism, with its own randomness. A pytree.

    A user's values are one cell of the joint table of ∏K_j cells; `cells` numbers them, the first column slowest.
    Reports are a tuple of the columns' own reports. The ε of all columns together is the sum of theirs.

    `mixture` is the joint likelihood. If the reports of each column are of few kinds (randomized response, survey
    designs, channels, Hadamard and projective geometry response), its lift is a Kronecker product of O(d·∏K)
    operations. With other mechanisms each user is a row of ∏K numbers.

    Args:
        columns: The mechanisms of the columns, at least one.

    Raises:
        ValueError: No columns, or other objects than mechanisms.

    Example:
        >>> import jax, rrjax
        >>> product = rrjax.mechanisms.Product([rrjax.RandomizedResponse(2, 1.0), rrjax.RandomizedResponse(3, 2.0)])
        >>> product.num_categories, float(product.epsilon)
        (6, 3.0)
        >>> reports = product.randomize(jax.random.key(0), ([0] * 3000 + [1] * 1000, [2] * 4000))
        >>> result = rrjax.ibu(product.mixture(reports), accelerate="newton")
        >>> [[round(t, 1) for t in row] for row in result.theta.reshape(product.shape).tolist()]
        [[0.0, 0.0, 0.8], [0.0, 0.0, 0.2]]

    References:
        Ren, Yu, Yang, Lin and others, "LoPub: High-dimensional crowdsourced data publication with local
        differential privacy", 2018: arXiv:1612.04350; Arcolezi, Couchot, Al Bouna and Xiao, "Random sampling plus fake
        data", 2021: arXiv:2109.07269 (SPL).
    """

    columns: tuple[Mechanism, ...]
    name: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns or not all(isinstance(each, Mechanism) for each in self.columns):
            raise ArgumentError("columns must be mechanisms, at least one", argument="columns")

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of categories of the columns."""
        return tuple(each.num_categories for each in self.columns)

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of cells, ∏K_j."""
        return math.prod(self.shape)

    @property
    def epsilon(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The ε of all columns together, nats: the sum of theirs."""
        return jnp.sum(jnp.stack([jnp.asarray(each.epsilon).astype(float_dtype()) for each in self.columns]))

    @property
    def note(self) -> str:
        return ", ".join(each.name for each in self.columns)

    def cells(self, values: Sequence[ArrayLike]) -> Int[Array, "*s"]:
        """The number of the cell of each user's values.

        Args:
            values: For each column integers in 0 … K_j − 1, all of one shape.

        Raises:
            ValueError: Another number of columns or shape, or values that are not integers or outside the domain.
        """
        return jnp.ravel_multi_index(self._as_values(values), self.shape, mode="wrap")

    def values(self, cells: ArrayLike) -> tuple[Int[Array, "*s"], ...]:
        """The values of each column, from the numbers of cells."""
        return tuple(jnp.unravel_index(as_values(cells, self.num_categories, "cells"), self.shape))

    def randomize(self, key: Array, values: Sequence[ArrayLike]) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Randomized reports of users, for simulations.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: For each column integers in 0 … K_j − 1, all of one shape.

        Returns:
            For each column the reports of its mechanism.

        Raises:
            ValueError: As `cells`, and as the mechanisms' own.
        """
        check_key(key)
        values = self._as_values(values)
        keys = jax.random.split(key, len(self.columns))
        return tuple(each.randomize(own, value) for each, own, value in zip(self.columns, keys, values, strict=True))

    @property
    def num_kinds(self) -> tuple[int, ...] | None:
        """The number of kinds of reports of each column; None if a column has too many to count them."""
        found = [num_kinds_of(each) for each in self.columns]
        return None if None in found else tuple(each for each in found if each is not None)

    def count(self, reports: Sequence[ArrayLike]) -> Int[Array, "*U"]:
        """The number of users with each combination of reports, `[U_1, …, U_d]`.

        Args:
            reports: For each column the reports of its mechanism, `[N]` integers.

        Raises:
            ValueError: A column whose reports are no single numbers, a joint table that is too large, another number of
                columns or shape, or (not under tracing) reports outside.
        """
        kinds = self._known_kinds()
        reports = _as_columns(reports, kinds, "reports")
        cell = jnp.ravel_multi_index(reports, kinds, mode="wrap").ravel()
        inside = jnp.all(jnp.stack([(each >= 0) & (each < size) for each, size in zip(reports, kinds, strict=True)]))
        counts = jnp.bincount(cell, length=math.prod(kinds)).astype(int_dtype())
        return numbers_if(inside, counts).reshape(kinds)

    def mixture(self, reports: Sequence[ArrayLike]) -> Mixture:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.num_kinds is not None:
            return self.mixture_of_counts(self.count(reports))
        rows = tuple(_rows(each, own) for each, own in zip(self.columns, self._checked(reports), strict=True))
        return Mixture(jnp.ones(rows[0].shape[0], int_dtype()), 0.0, RowProduct(rows))

    def mixture_of_counts(self, counts: ArrayLike) -> Mixture:
        """The joint likelihood of counted reports.

        Args:
            counts: `[U_1, …, U_d]`, integers or floats, the users with each combination of reports.

        Returns:
            `Mixture`, a row for every combination, with a `Kronecker` lift.

        Raises:
            ValueError: Another shape.
        """
        kinds = self._known_kinds()
        counts = counts if isinstance(counts, jax.Array) else np.asarray(counts)
        if counts.shape != kinds:
            raise ArgumentError(
                f"counts must have shape {list(kinds)}, an axis for each column; got {list(counts.shape)}",
                argument="counts",
            )
        lift = Kronecker(merged([factor_of(each) for each in self.columns]))
        return Mixture(counts.ravel(), lift.base, lift)

    def log_rows(self, reports: Sequence[ArrayLike]) -> LogRows:  # pyright: ignore[reportIncompatibleMethodOverride]
        own = [each.log_rows(one) for each, one in zip(self.columns, self._checked(reports), strict=True)]
        scale, base = (jnp.sum(jnp.stack(part), axis=0) for part in zip(*((e.scale, e.base) for e in own), strict=True))
        full = jnp.zeros((*own[0].scale.shape, 1), own[0].scale.dtype)
        for each in own:
            row = jnp.logaddexp(each.base[..., None], each.lift)
            full = (full[..., :, None] + row[..., None, :]).reshape(*row.shape[:-1], -1)
        # The part above the base; log1p(−1) is −∞ where no column tells the value.
        return LogRows(scale, base, full + jnp.log1p(-jnp.exp(jnp.minimum(base[..., None] - full, 0))))

    def inv(self, counts: ArrayLike) -> Float[Array, " K"]:
        """The unbiased estimate of the joint shares, `[∏K]`, which may be negative.

        It sums to one if all columns are of randomized response, survey designs or channels.

        Args:
            counts: As `mixture_of_counts`, integers or floats.

        Raises:
            ValueError: Another shape, or a channel that has no inverse.
        """
        return self._unbiased(counts, square=False)

    def inv_variances(self, counts: ArrayLike) -> Float[Array, " K"]:
        """Variances of `inv` about the distribution that the users are drawn from, `[∏K]`: estimated without bias."""
        total = jnp.sum(jnp.asarray(counts)).astype(float_dtype())
        theta = self._unbiased(counts, square=False)
        return jnp.maximum(self._unbiased(counts, square=True) - theta**2, 0) / (total - 1)

    def debias(self, reports: Sequence[ArrayLike]) -> Float[Array, "*s K"]:
        """Unbiased vectors of joint shares from single users: products of the columns' own."""
        found = jnp.ones((1,), float_dtype())
        for each, own in zip(self.columns, self._checked(reports), strict=True):
            vectors = _debiased(each, own)
            found = (found[..., :, None] * vectors[..., None, :]).reshape(*vectors.shape[:-1], -1)
        return found

    def marginal(self, theta: ArrayLike, columns: Sequence[int]) -> Float[Array, "*K"]:
        """The table of some columns, from the joint shares `[∏K]`: its axes are those columns, in their order here."""
        table = jnp.asarray(theta).reshape(self.shape)
        others = [place for place in range(len(self.shape)) if place not in columns]
        table = jnp.sum(table, axis=tuple(others)) if others else table
        kept = [place for place in range(len(self.shape)) if place in columns]
        return jnp.transpose(table, [kept.index(place) for place in columns])

    def part(self, columns: Sequence[int]) -> Product:
        """The product of some columns alone."""
        return Product(tuple(self.columns[place] for place in columns))

    def _unbiased(self, counts, *, square):
        kinds = self._known_kinds()
        table = jnp.asarray(counts).astype(float_dtype())
        if table.shape != kinds:
            raise ArgumentError(
                f"counts must have shape {list(kinds)}, an axis for each column; got {list(table.shape)}",
                argument="counts",
            )
        vectors = [_vectors(each, size, square) for each, size in zip(self.columns, kinds, strict=True)]
        return _inverted(table, vectors)

    def _known_kinds(self):
        kinds = self.num_kinds
        if kinds is None:
            names = ", ".join(each.name for each in self.columns if num_kinds_of(each) is None)
            raise ArgumentError(
                f"reports of {names} are of too many kinds to be counted: give the reports to `mixture`",
                argument="columns",
            )
        if max(math.prod(kinds), self.num_categories) > MOST_CELLS:
            raise ArgumentError(
                f"the joint table has {math.prod(kinds):,} cells, more than {MOST_CELLS:,}: estimate fewer columns "
                "together",
                argument="columns",
            )
        return kinds

    def _as_values(self, values):
        return _as_columns(values, self.shape, "values")

    def _checked(self, reports):
        reports = list(reports)
        if len(reports) != len(self.columns):
            raise ArgumentError(
                f"reports must be one array for each of {len(self.columns)} columns, got {len(reports)}",
                argument="reports",
            )
        return reports


def num_kinds_of(mechanism: Mechanism) -> int | None:
    """The number of kinds of reports of a mechanism whose reports are numbers; None for others."""
    if isinstance(mechanism, RandomizedResponse | Design | Geometric):
        return mechanism.num_categories
    if isinstance(mechanism, Channel | DiscreteSquareWave):
        return mechanism.num_reports
    return mechanism.num_columns if isinstance(mechanism, ColumnResponse) else None


def factor_of(mechanism: Mechanism) -> Factor:
    """The channel of a column, a row for each kind of report."""
    number = num_kinds_of(mechanism)
    assert number is not None
    found = mechanism.mixture(np.arange(number, dtype=np.int32))
    return Factor(found.base, found.lift)


def _as_columns(given, sizes, name):
    given = list(given) if isinstance(given, list | tuple) else given
    if not isinstance(given, list) or len(given) != len(sizes):
        number = len(given) if isinstance(given, list) else "one array"
        raise ArgumentError(f"{name} must be one array for each of {len(sizes)} columns, got {number}", argument=name)
    arrays = [
        as_values(each, size, f"{name} of column {place}")
        for place, (each, size) in enumerate(zip(given, sizes, strict=True))
    ]
    if len({each.shape for each in arrays}) > 1:
        shapes = ", ".join(str(tuple(each.shape)) for each in arrays)
        raise ArgumentError(f"{name} of all columns must have one shape, got {shapes}", argument=name)
    return tuple(jnp.asarray(each) for each in arrays)


def _rows(mechanism, reports):
    """The probabilities of each report under all values, over the largest: `[N, K]`."""
    rows = mechanism.log_rows(reports)
    row = jnp.logaddexp(rows.base[..., None], rows.lift)
    return jnp.exp(row - jnp.max(row, axis=-1, keepdims=True))


def _debiased(mechanism: Any, reports: ArrayLike) -> Float[Array, "*s K"]:
    numbers = isinstance(mechanism, Geometric | DiscreteSquareWave)
    return (mechanism.channel() if numbers else mechanism).debias(reports)


def _vectors(mechanism, number, square):
    """Unbiased vectors of all kinds of reports, `[U, K]`; of randomized response its weights, for O(K)."""
    if isinstance(mechanism, RandomizedResponse):
        rates = mechanism.rates
        own, other = 1 + rates.never / rates.truth, -rates.always / rates.truth
        own, other = (own**2, other**2) if square else (own, other)
        return own - other, other
    vectors = _debiased(mechanism, jnp.arange(number, dtype=jnp.int32))
    return vectors**2 if square else vectors


@jax.jit
def _inverted(table, vectors):
    table = table / jnp.sum(table)
    for axis, vector in enumerate(vectors):
        rows = jnp.moveaxis(table, axis, -1)
        if isinstance(vector, tuple):
            scale, shift = vector
            rows = scale * rows + shift * jnp.sum(rows, axis=-1, keepdims=True)
        else:
            rows = jnp.einsum("...u,uk->...k", rows, vector, precision="highest")
        table = jnp.moveaxis(rows, -1, axis)
    return table.ravel()
