"""Several columns: each randomized apart by a mechanism of its own, or some of them, drawn at random for each user.

With some of d columns a report is made at a larger ε, from fewer users. Where the columns are named (`Sampled`), the
others are missing reports. Where they are not (`SampledWithFakes`), the others are fake answers, drawn uniformly.
Hiding which column was drawn does not lessen the loss of a whole record if all columns have one ε: another record can
differ in all columns, and then every draw tells the two apart equally well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_values, check_key, float_dtype, int_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.kronecker import Factor, Kronecker, RowProduct, SumOfColumns, merged, with_missing
from rrjax.data.linear_maps import Scaling
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.columns import Columns
from rrjax.mechanisms.mechanism import LogRows, Mechanism, numbers_if
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.numerics.products import einsum
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import unsharded
from rrjax.numerics.sums import expm1_epsilon, scaled_odds

MOST_CELLS = 1 << 27
"""Largest number of cells of a joint table: 512 MiB in float32."""
ROUNDING = 64
"""Rounding of a variance, in units of the dtype's accuracy of the mean square."""


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
        """The number of the cell of each user's values: for each column integers in 0 … K_j − 1, all of one shape.

        Raises:
            ValueError: Another number of columns or shape, or values that are not integers or outside the domain.
        """
        return jnp.ravel_multi_index(as_columns(values, self.shape, "values"), self.shape, mode="wrap")

    def values(self, cells: ArrayLike) -> tuple[Int[Array, "*s"], ...]:
        """The values of each column, from the numbers of cells."""
        return tuple(jnp.unravel_index(as_values(cells, self.num_categories, "cells"), self.shape))

    def randomize(self, key: Array, values: Sequence[ArrayLike]) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Randomized reports for simulations, for each column those of its mechanism; values as in `cells`."""
        check_key(key)
        values = as_columns(values, self.shape, "values")
        keys = jax.random.split(key, len(self.columns))
        return tuple(each.randomize(own, value) for each, own, value in zip(self.columns, keys, values, strict=True))

    @property
    def num_kinds(self) -> tuple[int, ...] | None:
        """The number of kinds of reports of each column; None if a column has too many to count them."""
        kinds = tuple(each.num_kinds for each in self.columns if isinstance(each.num_kinds, int))
        return kinds if len(kinds) == len(self.columns) else None

    def count(self, reports: Sequence[ArrayLike]) -> Int[Array, "*U"]:
        """The number of users with each combination of reports, `[U_1, …, U_d]`, integers.

        Args:
            reports: For each column the reports of its mechanism, `[N]` integers; −1 is missing (not under tracing),
                which is one more kind, the last one.

        Raises:
            ValueError: A column whose reports are no single numbers, a joint table that is too large, another number of
                columns or shape, or (not under tracing) reports outside.
        """
        reports, kinds = _with_missing(reports, self._known_kinds())
        reports = tuple(unsharded(each) for each in as_columns(reports, kinds, "reports"))
        _check_size(math.prod(kinds))
        cell = jnp.ravel_multi_index(reports, kinds, mode="wrap").ravel()
        inside = jnp.all(jnp.stack([(each >= 0) & (each < size) for each, size in zip(reports, kinds, strict=True)]))
        counts = jnp.bincount(cell, length=math.prod(kinds)).astype(int_dtype())
        return numbers_if(inside, counts).reshape(kinds)

    def marginal(self, theta: ArrayLike, columns: Sequence[int]) -> Float[Array, "*K"]:
        """The table of some columns, from the joint shares `[∏K]`: its axes are those columns, in their order here."""
        table = jnp.asarray(theta).reshape(self.shape)
        kept, others = ([each for each in range(table.ndim) if (each in columns) is one] for one in (True, False))
        table = jnp.sum(table, axis=tuple(others)) if others else table
        return jnp.transpose(table, [kept.index(place) for place in columns])

    def _epsilons(self):
        return jnp.stack([jnp.asarray(each.epsilon).astype(float_dtype()) for each in self.columns])

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
            names = ", ".join(each.name for each in self.columns if each.num_kinds is None)
            raise ArgumentError(
                f"reports of {names} are of too many kinds to be counted: give the reports to `mixture`",
                argument="columns",
            )
        _check_size(max(math.prod(kinds), self.num_categories))
        return kinds

    def _checked(self, reports):
        reports = list(reports)
        if len(reports) != len(self.columns):
            raise ArgumentError.about(
                "reports", f"must be one array for each of {len(self.columns)} columns, got {len(reports)}"
            )
        return reports


@pytree()
class Product(Record):
    """Columns that are randomized apart, each by its own mechanism. A pytree.

    A user's values are one cell of the joint table of ∏K_j cells; `cells` numbers them, the first column slowest.
    Reports are a tuple of the columns' own reports. The ε of all columns together is the sum of theirs. A report of −1
    is missing: its user counts by the other columns. That it is missing must not depend on the value.

    `mixture` is the joint likelihood. If the reports of each column are of few kinds (randomized response, survey
    designs, channels, Hadamard and projective geometry response), its lift is a Kronecker product of O(d·∏K)
    operations. With other mechanisms each user is a row of ∏K numbers.

    Args:
        columns: The mechanisms of the columns, at least one; others raise `ValueError`.

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
        return jnp.sum(self._epsilons())

    def mixture(self, reports: Sequence[ArrayLike]) -> Mixture:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.num_kinds is not None:
            return self.mixture_of_counts(self.count(reports))
        rows = tuple(_rows(each, own) for each, own in zip(self.columns, self._checked(reports), strict=True))
        return Mixture(jnp.ones(rows[0].shape[0], int_dtype()), 0.0, RowProduct(rows))

    def mixture_of_counts(self, counts: ArrayLike) -> Mixture:
        """The joint likelihood of counted reports: a row for every combination, with a `Kronecker` lift.

        Args:
            counts: `[U_1, …, U_d]`, integers or floats, the users with each combination of reports; as from `count`, a
                column may have one more kind, of missing reports.

        Raises:
            ValueError: Another shape.
        """
        counts = counts if isinstance(counts, jax.Array) else np.asarray(counts)
        more = self._missing_kinds(counts.shape)
        factors = [_factor(each, one) for each, one in zip(self.columns, more, strict=True)]
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
        """The unbiased estimate of the joint shares, `[∏K]`, which may be negative; counts as of `mixture_of_counts`.

        It sums to one if all columns are of randomized response, survey designs or channels. It leaves out users with
        a missing report. Raises `ValueError` for a channel that has no inverse.
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
        product = jnp.ones((1,), float_dtype())
        for each, own in zip(self.columns, self._checked(reports), strict=True):
            vectors = cast("Any", each).debias(own)
            product = (product[..., :, None] * vectors[..., None, :]).reshape(*vectors.shape[:-1], -1)
        return product

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


@pytree("number")
class Sampled(Product):
    """Columns of which each user reports a few, drawn at random: the others are missing (−1). A pytree.

    With `number` 1 this is SMP: each user spends the whole ε on one column. Single columns are estimated from fewer
    users with better reports (`rrjax.inference.compare_splits` compares the errors). Reports of g columns tell the
    joint tables of g columns.

    Args:
        columns: The mechanisms of the columns, each with its ε where it is reported; their reports must be numbers.
        number: How many columns a user reports, from 1 to d. Static.

    Example:
        >>> import jax, rrjax
        >>> columns = [rrjax.RandomizedResponse(2, 1.0), rrjax.RandomizedResponse(3, 1.0)]
        >>> product = rrjax.mechanisms.Sampled(columns)
        >>> float(product.epsilon)
        1.0
        >>> first, second = product.randomize(jax.random.key(0), ([0] * 4000, [2] * 4000))
        >>> int((first >= 0).sum() + (second >= 0).sum())
        4000

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, "Random sampling plus fake data", 2021: arXiv:2109.07269 (SMP); Nguyên et
        al., "Collecting and analyzing data from smart device users with local differential privacy", 2016.
    """

    number: int = 1
    name: ClassVar[str] = "sampled"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "number", as_integer(self.number, "number", 1))
        if self.number > len(self.columns):
            raise ArgumentError.about(
                "number", f"must be at most the {len(self.columns)} columns, got {self.number}", value=self.number
            )
        odd = next((each.name for each in self.columns if each.num_kinds is None), None)
        if odd is not None:
            raise ArgumentError(f"reports of {odd} are no numbers, of which one can be missing", argument="columns")

    @property
    def epsilon(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The ε of what a user reports, nats: of the `number` columns with the largest ε."""
        return jnp.sum(jnp.sort(self._epsilons())[len(self.columns) - self.number :])

    @property
    def note(self) -> str:
        return f"{self.number} of {super().note}"

    def randomize(self, key: Array, values: Sequence[ArrayLike]) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        check_key(key)
        key_of_columns, own = jax.random.split(key)
        reports = super().randomize(own, values)
        kept = drawn_columns(key_of_columns, reports[0].shape, len(self.columns), self.number)
        return tuple(jnp.where(kept[..., place], each, -1) for place, each in enumerate(reports))

    def _complete(self, counts):
        if self.number < len(self.columns):
            raise ArgumentError(
                f"nobody reports all {len(self.columns)} columns, but {self.number} of them: take `part` of so many",
                argument="columns",
            )
        return super()._complete(counts)


@pytree()
class SampledWithFakes(Record):
    """RS+FD: each user reports one column, drawn at random, and in the others uniform fake answers. A pytree.

    Alone, a column is one of randomized response at a lower ε, that of `column(place)`: every estimator and interval
    takes its reports as such. The reports tell the distribution of each column, and nothing of how columns go together.

    If all columns have one ε, it is also the ε of a record, `epsilon`; else that lies between theirs. The literature
    draws a column at a larger one, log(d·(e^ε − 1) + 1), by the amplification of sampling, and states ε. That holds for
    two records that differ in one column only.

    Args:
        columns: `RandomizedResponse` of each column, at the ε where it is drawn.

    Example:
        >>> import jax, rrjax
        >>> columns = [rrjax.RandomizedResponse(4, 2.0)] * 3
        >>> product = rrjax.mechanisms.SampledWithFakes(columns)
        >>> print(f"{product.epsilon:.3f} {product.column(0).epsilon:.3f}")
        2.000 0.709
        >>> print(f"{product.column_epsilon(0):.3f}")  # records that differ in this column alone
        1.141

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, "Random sampling plus fake data", 2021: arXiv:2109.07269 (RS+FD[GRR]).
        The ε of a record is computed here.
    """

    name: ClassVar[str] = "sampled-with-fakes"

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = next((each.name for each in self.columns if not isinstance(each, RandomizedResponse)), None)
        if odd is not None:
            raise ArgumentError(f"columns must be of randomized response, got {odd}", argument="columns")

    @property
    def epsilon(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The ε of a record, nats: for records that differ in all columns."""
        odds, noise = self._odds_and_noise()
        return jnp.log1p(jnp.sum(noise * odds) / jnp.sum(noise))

    def column_epsilon(self, place: int) -> Float[Array, ""]:
        """The ε of one column, nats: the largest loss between two records that differ in this column alone."""
        odds, noise = self._odds_and_noise()
        return jnp.log1p(noise[place] * odds[place] / jnp.sum(noise))

    def column(self, place: int) -> RandomizedResponse:
        """What a column is alone: randomized response, with the fake answers in its noise."""
        own, number = self.columns[place], len(self.columns)
        odds = expm1_epsilon(jnp.asarray(own.epsilon).astype(float_dtype()))
        noise = (number - 1) / own.num_categories
        return RandomizedResponse(own.num_categories, jnp.log1p(odds / (number + noise * odds)))

    def randomize(self, key: Array, values: Sequence[ArrayLike]) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        check_key(key)
        key_of_columns, key_of_fakes, own = jax.random.split(key, 3)
        reports = super().randomize(own, values)
        kept = drawn_columns(key_of_columns, reports[0].shape, len(self.columns), 1)
        keys = jax.random.split(key_of_fakes, len(self.columns))
        return tuple(
            jnp.where(kept[..., place], each, jax.random.randint(keys[place], each.shape, 0, size, each.dtype))
            for place, (each, size) in enumerate(zip(reports, self.shape, strict=True))
        )

    def log_rows(self, reports: Sequence[ArrayLike]) -> LogRows:  # pyright: ignore[reportIncompatibleMethodOverride]
        odds, noise = self._odds_and_noise()
        given = as_columns(reports, self.shape, "reports")
        lifts = jnp.zeros((*given[0].shape, 1), noise.dtype)
        for each, size, part in zip(given, self.shape, noise * odds, strict=True):
            own = part * jax.nn.one_hot(each, size, dtype=noise.dtype)
            lifts = (lifts[..., :, None] + own[..., None, :]).reshape(*given[0].shape, -1)
        scale = jnp.full(given[0].shape, -math.log(self.num_categories * len(self.columns)), noise.dtype)
        return LogRows(scale, jnp.full_like(scale, jnp.log(jnp.sum(noise))), jnp.log(lifts))

    def mixture(self, reports: Sequence[ArrayLike]) -> Mixture:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.mixture_of_counts(self.count(reports))

    def mixture_of_counts(self, counts: ArrayLike) -> Mixture:
        """The likelihood of counted reports; its maximum is unique in the columns, not in the joint table.

        Args:
            counts: `[K_1, …, K_d]`, integers or floats, the users with each combination of reports.

        Raises:
            ValueError: Another shape.
        """
        counts = counts if isinstance(counts, jax.Array) else np.asarray(counts)
        if any(self._missing_kinds(counts.shape)):
            raise ArgumentError("reports among fake answers cannot be missing", argument="counts")
        odds, noise = self._odds_and_noise()
        return Mixture(counts.ravel(), jnp.sum(noise), SumOfColumns(noise * odds, self.shape))

    def _odds_and_noise(self):
        """E and K·q of each column, `[d]`: a record has the probability of fakes alone times the mean of K·C."""
        own = self._epsilons()
        sizes = jnp.asarray(self.shape, own.dtype)
        odds = jax.vmap(expm1_epsilon)(own)
        return odds, sizes / (odds + sizes)


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
    extended, sizes = [], []
    for each, size in zip(reports, kinds, strict=False):
        known = each if isinstance(each, Tracer) else np.asarray(each)
        missing = isinstance(known, np.ndarray) and known.dtype.kind == "i" and bool((known == -1).any())
        missing = missing and int(known.max()) < size  # else there are reports outside, which are refused
        extended.append(np.where(known == -1, size, known) if missing else each)
        sizes.append(size + missing)
    whole = isinstance(reports, list | tuple) and len(reports) == len(kinds)
    return (extended, tuple(sizes)) if whole else (reports, kinds)


def _factor(mechanism, missing):
    """The channel of a column: a row for each kind of report, and one of missing reports."""
    mixture = mechanism.mixture(np.arange(mechanism.num_kinds, dtype=np.int32))
    factor = Factor(mixture.base, mixture.lift)
    if isinstance(mixture.lift, Scaling | Columns):  # others hold probabilities
        one, odds = scaled_odds(jnp.asarray(mixture.lift.scale), largest=0)
        factor = Factor(mixture.base * one, dataclasses.replace(mixture.lift, scale=odds))
    return with_missing(factor) if missing else factor


def _log_rows(mechanism, reports):
    """The likelihood of each report; a missing one has the probability one."""
    known = reports if isinstance(reports, Tracer) else np.asarray(reports)
    if mechanism.num_kinds is None or isinstance(known, Tracer) or not (known == -1).any():
        return mechanism.log_rows(reports)
    rows, missing = mechanism.log_rows(np.where(known == -1, 0, known)), jnp.asarray(known == -1)
    scale, base = (jnp.where(missing, 0, part) for part in (rows.scale, rows.base))
    return LogRows(scale, base, jnp.where(missing[..., None], -jnp.inf, rows.lift))


def _rows(mechanism, reports):
    """The probabilities of each report under all values, over the largest: `[N, K]`."""
    rows = _log_rows(mechanism, reports)
    row = jnp.logaddexp(rows.base[..., None], rows.lift)
    return jnp.exp(row - jnp.max(row, axis=-1, keepdims=True))


def _vectors(mechanism, number, square):
    """Unbiased vectors of all kinds of reports, `[U, K]`; of randomized response its weights, for O(K)."""
    if isinstance(mechanism, RandomizedResponse):
        rates = mechanism.rates
        own, other = 1 + rates.never / rates.truth, -rates.always / rates.truth
        own, other = (own**2, other**2) if square else (own, other)
        return own - other, other
    vectors = mechanism.debias(jnp.arange(number, dtype=jnp.int32))
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


def drawn_columns(key: Array, shape: tuple[int, ...], num_columns: int, number: int) -> Array:
    """For each user which columns are drawn, `[*shape, d]`, `number` each."""
    order = jnp.argsort(jax.random.uniform(key, (*shape, num_columns)), axis=-1)
    return jnp.argsort(order, axis=-1) < number
