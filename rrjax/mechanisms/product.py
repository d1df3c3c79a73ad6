"""Several columns, each randomized apart by a mechanism of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import float_dtype, int_dtype
from rrjax.data.kronecker import Factor, Kronecker, RowProduct, merged, with_missing
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.discrete_square_wave import DiscreteSquareWave
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.mechanisms.ordered import Geometric
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.record import Record, num_kinds_of
from rrjax.mechanisms.rows import LogRows
from rrjax.numerics.products import einsum
from rrjax.numerics.pytrees import register

ROUNDING = 64
"""Rounding of a variance, in units of the dtype's accuracy of the mean square."""


@register(data_fields=["columns"])
@dataclasses.dataclass(frozen=True)
class Product(Record):
    """Columns that are randomized apart: each by its own mechanism, with its own randomness. A pytree.

    A user's values are one cell of the joint table of ∏K_j cells; `cells` numbers them, the first column slowest.
    Reports are a tuple of the columns' own reports. The ε of all columns together is the sum of theirs. A report of −1
    is missing: its user counts by the other columns. That it is missing must not depend on the value.

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

    name: ClassVar[str] = "product"

    @property
    def epsilon(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The ε of all columns together, nats: the sum of theirs."""
        return jnp.sum(jnp.stack([jnp.asarray(each.epsilon).astype(float_dtype()) for each in self.columns]))

    def mixture(self, reports: Sequence[ArrayLike]) -> Mixture:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.num_kinds is not None:
            return self.mixture_of_counts(self.count(reports))
        rows = tuple(_rows(each, own) for each, own in zip(self.columns, self._checked(reports), strict=True))
        return Mixture(jnp.ones(rows[0].shape[0], int_dtype()), 0.0, RowProduct(rows))

    def mixture_of_counts(self, counts: ArrayLike) -> Mixture:
        """The joint likelihood of counted reports.

        Args:
            counts: `[U_1, …, U_d]`, integers or floats, the users with each combination of reports; as from `count`, a
                column may have one more kind, of missing reports.

        Returns:
            `Mixture`, a row for every combination, with a `Kronecker` lift.

        Raises:
            ValueError: Another shape.
        """
        counts = counts if isinstance(counts, jax.Array) else np.asarray(counts)
        more = self._missing_kinds(counts.shape)
        factors = [
            with_missing(factor_of(e)) if one else factor_of(e) for e, one in zip(self.columns, more, strict=True)
        ]
        lift = Kronecker(merged(factors))
        return Mixture(counts.ravel(), lift.base, lift)

    def log_rows(self, reports: Sequence[ArrayLike]) -> LogRows:  # pyright: ignore[reportIncompatibleMethodOverride]
        own = [_log_rows(each, one) for each, one in zip(self.columns, self._checked(reports), strict=True)]
        scale, base = (jnp.sum(jnp.stack(part), axis=0) for part in zip(*((e.scale, e.base) for e in own), strict=True))
        full = jnp.zeros((*own[0].scale.shape, 1), own[0].scale.dtype)
        for each in own:
            row = jnp.logaddexp(each.base[..., None], each.lift)
            full = (full[..., :, None] + row[..., None, :]).reshape(*row.shape[:-1], -1)
        # The part above the base; log1p(−1) is −∞ where no column tells the value.
        return LogRows(scale, base, full + jnp.log1p(-jnp.exp(jnp.minimum(base[..., None] - full, 0))))

    def inv(self, counts: ArrayLike) -> Float[Array, " K"]:
        """The unbiased estimate of the joint shares, `[∏K]`, which may be negative.

        It sums to one if all columns are of randomized response, survey designs or channels. It leaves out users with
        a missing report.

        Args:
            counts: As `mixture_of_counts`, integers or floats.

        Raises:
            ValueError: Another shape, or a channel that has no inverse.
        """
        return self._unbiased(counts, square=False)

    def inv_variances(self, counts: ArrayLike) -> Float[Array, " K"]:
        """Variances of `inv` about the distribution that the users are drawn from, `[∏K]`: estimated without bias.

        NaN where all reports say the same of a cell, but for rounding: they do not tell how they vary.
        """
        total = jnp.sum(self._complete(counts))
        theta, square = (self._unbiased(counts, square=each) for each in (False, True))
        spread = square - theta**2
        known = spread > ROUNDING * jnp.finfo(spread.dtype).eps * square
        return jnp.where(known, spread, jnp.nan) / (total - 1)

    def debias(self, reports: Sequence[ArrayLike]) -> Float[Array, "*s K"]:
        """Unbiased vectors of joint shares from single users: products of the columns' own."""
        found = jnp.ones((1,), float_dtype())
        for each, own in zip(self.columns, self._checked(reports), strict=True):
            vectors = _debiased(each, own)
            found = (found[..., :, None] * vectors[..., None, :]).reshape(*vectors.shape[:-1], -1)
        return found

    def part(self, columns: Sequence[int]) -> Product:
        """The product of some columns alone."""
        return Product(tuple(self.columns[place] for place in columns))

    def _unbiased(self, counts, *, square):
        table = self._complete(counts)
        vectors = [_vectors(each, size, square) for each, size in zip(self.columns, table.shape, strict=True)]
        return _inverted(table, vectors)

    def _complete(self, counts):
        """The counts of users without a missing report, as floats."""
        table = jnp.asarray(counts).astype(float_dtype())
        more = self._missing_kinds(table.shape)
        return table[tuple(slice(size - one) for size, one in zip(table.shape, more, strict=True))]


def factor_of(mechanism: Mechanism) -> Factor:
    """The channel of a column, a row for each kind of report."""
    number = num_kinds_of(mechanism)
    assert number is not None
    found = mechanism.mixture(np.arange(number, dtype=np.int32))
    return Factor(found.base, found.lift)


def _log_rows(mechanism, reports):
    """The likelihood of each report; a missing one has the probability one."""
    known = reports if isinstance(reports, Tracer) else np.asarray(reports)
    if num_kinds_of(mechanism) is None or isinstance(known, Tracer) or not (known == -1).any():
        return mechanism.log_rows(reports)
    rows, missing = mechanism.log_rows(np.where(known == -1, 0, known)), jnp.asarray(known == -1)
    scale, base = (jnp.where(missing, 0, part) for part in (rows.scale, rows.base))
    return LogRows(scale, base, jnp.where(missing[..., None], -jnp.inf, rows.lift))


def _rows(mechanism, reports):
    """The probabilities of each report under all values, over the largest: `[N, K]`."""
    rows = _log_rows(mechanism, reports)
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
    # Each column's axis goes last, so that in the end the axes have their order again.
    for vector in vectors:
        rows = jnp.moveaxis(table, 0, -1)
        if isinstance(vector, tuple):
            scale, shift = vector
            rows = scale * rows + shift * jnp.sum(rows, axis=-1, keepdims=True)
        else:
            rows = einsum("...u,uk->...k", rows, vector)
        table = rows
    return table.ravel()
