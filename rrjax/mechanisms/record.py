"""The base class of mechanisms of several columns: the cells of their joint table, and counted reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_values, check_key, int_dtype
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.channel import Channel
from rrjax.mechanisms.columns import ColumnResponse
from rrjax.mechanisms.discrete_square_wave import DiscreteSquareWave
from rrjax.mechanisms.mechanism import Mechanism, numbers_if
from rrjax.mechanisms.ordered import Geometric
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.surveys.design import Design
from rrjax.numerics.sharding import together

MOST_CELLS = 1 << 27
"""Largest number of cells of a joint table: 512 MiB in float32."""


@dataclasses.dataclass(frozen=True)
class Record(Mechanism):
    """A mechanism of several columns, whose value is one cell of their joint table. A pytree."""

    columns: tuple[Mechanism, ...]

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
            reports: For each column the reports of its mechanism, `[N]` integers; −1 is missing (not under tracing).

        Returns:
            Integers. A column with missing reports has one more kind, the last one.

        Raises:
            ValueError: A column whose reports are no single numbers, a joint table that is too large, another number of
                columns or shape, or (not under tracing) reports outside.
        """
        reports, kinds = _with_missing(reports, self._known_kinds())
        reports = tuple(together(each) for each in as_columns(reports, kinds, "reports"))
        _check_size(math.prod(kinds))
        cell = jnp.ravel_multi_index(reports, kinds, mode="wrap").ravel()
        inside = jnp.all(jnp.stack([(each >= 0) & (each < size) for each, size in zip(reports, kinds, strict=True)]))
        counts = jnp.bincount(cell, length=math.prod(kinds)).astype(int_dtype())
        return numbers_if(inside, counts).reshape(kinds)

    def marginal(self, theta: ArrayLike, columns: Sequence[int]) -> Float[Array, "*K"]:
        """The table of some columns, from the joint shares `[∏K]`: its axes are those columns, in their order here."""
        table = jnp.asarray(theta).reshape(self.shape)
        others = [place for place in range(len(self.shape)) if place not in columns]
        table = jnp.sum(table, axis=tuple(others)) if others else table
        kept = [place for place in range(len(self.shape)) if place in columns]
        return jnp.transpose(table, [kept.index(place) for place in columns])

    def _missing_kinds(self, shape):
        """For each column whether counts of a shape have a kind for missing reports."""
        kinds = self._known_kinds()
        more = [have - size for have, size in zip(shape, kinds, strict=False)]
        if len(shape) != len(kinds) or not all(each in (0, 1) for each in more):
            raise ArgumentError(
                f"counts must have shape {list(kinds)}, an axis for each column, or one more for missing reports; got "
                f"{list(shape)}",
                argument="counts",
            )
        return more

    def _known_kinds(self):
        kinds = self.num_kinds
        if kinds is None:
            names = ", ".join(each.name for each in self.columns if num_kinds_of(each) is None)
            raise ArgumentError(
                f"reports of {names} are of too many kinds to be counted: give the reports to `mixture`",
                argument="columns",
            )
        _check_size(max(math.prod(kinds), self.num_categories))
        return kinds

    def _as_values(self, values):
        return as_columns(values, self.shape, "values")

    def _checked(self, reports):
        reports = list(reports)
        if len(reports) != len(self.columns):
            raise ArgumentError.about(
                "reports", f"must be one array for each of {len(self.columns)} columns, got {len(reports)}"
            )
        return reports


def num_kinds_of(mechanism: Mechanism) -> int | None:
    """The number of kinds of reports of a mechanism whose reports are numbers; None for others."""
    if isinstance(mechanism, RandomizedResponse | Design | Geometric):
        return mechanism.num_categories
    if isinstance(mechanism, Channel | DiscreteSquareWave):
        return mechanism.num_reports
    return mechanism.num_columns if isinstance(mechanism, ColumnResponse) else None


def as_columns(given: Sequence[ArrayLike], sizes: Sequence[int], name: str) -> tuple[Array, ...]:
    """One array of integers for each column, all of one shape; refuses others."""
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


def _check_size(number):
    if number > MOST_CELLS:
        raise ArgumentError(
            f"the joint table has {number:,} cells, more than {MOST_CELLS:,}: estimate fewer columns together",
            argument="columns",
        )


def _with_missing(reports, kinds):
    """Reports in which a missing one is of the kind after the last, and the numbers of kinds."""
    found, sizes = [], []
    for each, size in zip(reports, kinds, strict=False):
        known = each if isinstance(each, Tracer) else np.asarray(each)
        missing = isinstance(known, np.ndarray) and known.dtype.kind == "i" and bool((known == -1).any())
        missing = missing and int(known.max()) < size  # else there are reports outside, which are refused
        found.append(np.where(known == -1, size, known) if missing else each)
        sizes.append(size + missing)
    whole = isinstance(reports, list | tuple) and len(reports) == len(kinds)
    return (found, tuple(sizes)) if whole else (reports, kinds)
