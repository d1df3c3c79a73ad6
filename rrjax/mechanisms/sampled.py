"""Several columns of which each user reports some, drawn at random: by saying which, or among fake answers.

With some of d columns a report is made at a larger ε, from fewer users. Where the columns are named (`Sampled`), the
others are missing reports. Where they are not (`SampledWithFakes`), the others are fake answers, drawn uniformly.
Hiding which column was drawn does not lessen the loss of a whole record if all columns have one ε: another record can
differ in all columns, and then every draw tells the two apart equally well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import check_key, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.kronecker import SumOfColumns
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.product import Product
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.record import Record, as_columns, num_kinds_of
from rrjax.mechanisms.rows import LogRows
from rrjax.numerics.pytrees import register
from rrjax.numerics.sums import expm1_epsilon


@register(data_fields=["columns"], meta_fields=["number"])
@dataclasses.dataclass(frozen=True)
class Sampled(Product):
    """Columns of which each user reports a few, drawn at random: the others are missing (−1). A pytree.

    With `number` 1 this is SMP: each user spends the whole ε on one column. Single columns are estimated from fewer
    users with better reports (`rrjax.inference.compare_splits` compares the errors). Reports of one column tell nothing
    of how columns go together; reports of g columns tell the joint tables of g columns.

    Args:
        columns: The mechanisms of the columns, each with its ε where it is reported; their reports must be numbers.
        number: How many columns a user reports, from 1 to d. Static.

    Raises:
        ValueError: As `Product`, columns whose reports are no numbers, or another `number`.

    Example:
        >>> import jax, rrjax
        >>> columns = [rrjax.RandomizedResponse(2, 1.0), rrjax.RandomizedResponse(3, 1.0)]
        >>> product = rrjax.mechanisms.Sampled(columns)
        >>> float(product.epsilon)
        1.0
        >>> first, second = product.randomize(jax.random.key(0), ([0] * 4000, [2] * 4000))
        >>> int((first >= 0).sum() + (second >= 0).sum())
        4000
        >>> alone = rrjax.mle_star(product.columns[0].tally(first[first >= 0]).support, 1.0)
        >>> [round(t, 2) for t in alone.tolist()]
        [1.0, 0.0]

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
        odd = next((each.name for each in self.columns if num_kinds_of(each) is None), None)
        if odd is not None:
            raise ArgumentError(f"reports of {odd} are no numbers, of which one can be missing", argument="columns")

    @property
    def epsilon(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The ε of what a user reports, nats: of the `number` columns with the largest ε."""
        own = jnp.stack([jnp.asarray(each.epsilon).astype(float_dtype()) for each in self.columns])
        return jnp.sum(jnp.sort(own)[len(self.columns) - self.number :])

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


@register(data_fields=["columns"])
@dataclasses.dataclass(frozen=True)
class SampledWithFakes(Record):
    """RS+FD: each user reports one column, drawn at random, and in the others fake answers. A pytree.

    Fake answers are uniform. Nobody sees which column was drawn. Alone, a column is one of randomized response at a
    lower ε, that of `column(place)`: every estimator and interval takes its reports as such. The reports tell the
    distribution of each column, and nothing of how columns go together.

    If all columns have one ε, it is also the ε of a record, `epsilon`; else that lies between theirs. The literature
    draws a column at a larger one, log(d·(e^ε − 1) + 1), by the amplification of sampling, and states ε. That holds for
    two records that differ in one column, and not for others: where all columns differ, whichever was drawn tells the
    records apart.

    Args:
        columns: `RandomizedResponse` of each column, at the ε where it is drawn.

    Raises:
        ValueError: As `Product`, or other mechanisms.

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

        Returns:
            `Mixture`, a row for every combination.

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
        own = jnp.stack([jnp.asarray(each.epsilon).astype(float_dtype()) for each in self.columns])
        sizes = jnp.asarray(self.shape, own.dtype)
        odds = jax.vmap(expm1_epsilon)(own)
        return odds, sizes / (odds + sizes)


def drawn_columns(key: Array, shape: tuple[int, ...], num_columns: int, number: int) -> Array:
    """For each user which columns are drawn, `[*shape, d]`, `number` each."""
    order = jnp.argsort(jax.random.uniform(key, (*shape, num_columns)), axis=-1)
    return jnp.argsort(order, axis=-1) < number
