"""Mechanisms whose report is one of M columns, each of which supports a set of categories.

Hadamard response; and projective geometry response, whose categories are points and whose columns are hyperplanes, as
`rrjax.numerics.projective_geometry` numbers them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_true_counts, as_values, check_key, int_dtype
from rrjax.data.mechanism_parameters import field_designs, field_order_of
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally, count
from rrjax.mechanisms.draws import Words, below, number_below, rounded_down, summed_in_parts
from rrjax.mechanisms.mechanism import (
    Dependence,
    PureMechanism,
    known_epsilon,
    log_probability_of_block,
    settled,
    tally_if,
)
from rrjax.numerics.projective_geometry import design_of, dimension_of, num_points, plane_of, product_of, vectors_of
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import refuse_spread, unsharded
from rrjax.numerics.sums import scaled_odds

USERS_A_STEP = 1 << 12
"""Number of users simulated in one step."""


@dataclasses.dataclass(frozen=True)
class ColumnResponse(PureMechanism):
    """A mechanism whose report is a column, which supports the user's category with probability p.

    A subclass defines the columns by `drawn`, `incident` and the two sums, which a transform makes fast.
    """

    dependence: ClassVar[Dependence] = "any"

    @property
    @abc.abstractmethod
    def num_columns(self) -> int:
        """The number of columns, M."""

    @property
    def num_kinds(self) -> int:
        return self.num_columns

    @property
    def bits(self) -> float:
        return float(np.log2(self.num_columns))

    @property
    @abc.abstractmethod
    def num_holding(self) -> int:
        """The number of columns that support a category, the same for each category."""

    @abc.abstractmethod
    def drawn(self, key: Array, values: Int[Array, " N"], bound: tuple[Array, Array]) -> Int[Array, " N"]:
        """A column for each value: a supporting one if a 64-bit draw is below the bound, else another one."""

    @abc.abstractmethod
    def sums_of_columns(self, columns: Shaped[Array, " M"]) -> Shaped[Array, " K"]:
        """For each category, the sum over the columns that support it, without subtractions."""

    @abc.abstractmethod
    def sums_of_categories(self, values: Shaped[Array, " K"]) -> Shaped[Array, " M"]:
        """For each column, the sum over the categories that it supports, without subtractions."""

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        """As `PureMechanism.randomize`: int32 in 0 … M − 1; −1 under tracing for what is no value and an impossible ε.

        The column is drawn uniformly from the columns that support the value if a 64-bit draw is below p·2⁶⁴ rounded
        down, else from the other columns. Rounding weakens ε by no more than the rounding of the dtype.
        """
        check_key(key)
        return _randomize(self, *self._on_one_device(key, as_values(values, self.num_categories, "values")))

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        (reports,) = self._on_one_device(as_values(reports, self.num_columns, "reports").astype(jnp.int32))
        return self.incident(reports[..., None], jnp.arange(self.num_categories, dtype=jnp.int32))

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        return (reports >= 0) & (reports < self.num_columns)

    @abc.abstractmethod
    def incident(self, columns: Int[Array, "*s"], values: Int[Array, "*s"]) -> Bool[Array, "*s"]:
        """Whether the column supports the category, for arrays that broadcast."""

    def log_probability(self, reports: Array) -> Float[Array, ""]:
        del reports
        holding = self.num_holding
        return log_probability_of_block(self.epsilon, self.num_columns / holding, math.log(holding))

    def tally(self, reports: ArrayLike) -> Tally:
        return self.tally_of_counts(*self._on_one_device(count(reports, self.num_columns)))

    def tally_of_counts(self, columns: Int[Array, " M"]) -> Tally:
        """The tally of reports, given the number of each column; unusable if a number is negative."""
        return _tally(self, columns)

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.mixture_of_counts(*self._on_one_device(count(reports, self.num_columns)))

    def mixture_of_counts(self, columns: Int[ArrayLike, " M"]) -> Mixture:
        """The likelihood of reports, given the number of each column: one row a column, products by the transform."""
        one, odds = scaled_odds(self.expm1_epsilon)
        return Mixture(columns if isinstance(columns, Tracer) else np.asarray(columns), one, Columns(self, odds))

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        check_key(key)  # support counts depend on each other through the columns, so users are drawn one by one: O(N)
        true_counts = as_true_counts(true_counts, self.num_categories)
        return _collect(self, *self._on_one_device(key, true_counts))

    def _on_one_device(self, *arrays: Array) -> tuple[Array, ...]:
        return refuse_spread(tuple(map(unsharded, arrays)), type(self).__name__)


@pytree("num_categories")
class HadamardResponse(ColumnResponse):
    """Hadamard response with p = e^ε/(e^ε+1), q = ½. A pytree; `num_categories` is static.

    M is the least power of two above K. Column z supports category i if z and i + 1 have an even number of bits in
    common: half of the columns support a category, a quarter support any two. A report is a column, drawn uniformly
    from those that support the user's category with probability p, else from the others.

    At small ε the error is as small as that of any mechanism, with log₂ M bits and a fast transform. q = ½ for every ε,
    so the squared error is 1.3 times that of optimized unary encoding at ε = 1, and 2.4 times at ε = 2. The supports of
    three categories may be positively associated: `inference.discoveries` is proved for such tallies with
    `dependence="any"`.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.HadamardResponse(num_categories=3, epsilon=2.0)
        >>> mechanism.num_columns, f"{mechanism.rates.p:.3f} {mechanism.rates.q:.3f}"
        (4, '0.881 0.500')
        >>> tally = mechanism.collect(jax.random.key(0), [60_000, 30_000, 10_000])
        >>> [round(t, 2) for t in rrjax.inv_p(tally).tolist()]
        [0.6, 0.3, 0.1]

    References:
        Acharya, Sun and Zhang, "Hadamard Response: Estimating Distributions Privately, Efficiently, and with Little
        Communication", AISTATS 2019: arXiv:1802.04705.
    """

    name: ClassVar[str] = "hadamard-response"

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        # Half of the columns support a category, and half of these support another given category.
        return Rates.of_design(expm1(self.epsilon), 2, 0.5)

    @property
    def num_columns(self) -> int:
        return 1 << self.num_categories.bit_length()

    @property
    def num_holding(self) -> int:
        return self.num_columns // 2

    def server_operations(self, num_users: float) -> float:
        # N and the transform.
        return num_users + 2 * self.num_columns * math.log2(self.num_columns)

    def drawn(self, key: Array, values: Int[Array, " N"], bound: Words) -> Int[Array, " N"]:
        high, low, column = jax.random.bits(key, (3, values.shape[0]), jnp.uint32)
        column = (column & jnp.uint32(self.num_columns - 1)).astype(jnp.int32)
        own = values + 1
        right = below((high, low), bound) == self.incident(column, values)
        return jnp.where(right, column, column ^ (own & -own))  # flips the lowest set bit of the category

    def incident(self, columns: Int[Array, "*s"], values: Int[Array, "*s"]) -> Bool[Array, "*s"]:
        common = columns.astype(jnp.uint32) & (values + 1).astype(jnp.uint32)
        return lax.population_count(common) % 2 == 0

    def sums_of_columns(self, columns: Shaped[Array, " M"]) -> Shaped[Array, " K"]:
        return even_sums(columns)[1 : self.num_categories + 1]

    def sums_of_categories(self, values: Shaped[Array, " K"]) -> Shaped[Array, " M"]:
        return even_sums(jnp.pad(values, (1, self.num_columns - self.num_categories - 1)))


@pytree("num_categories", "field_order")
class ProjectiveGeometry(ColumnResponse):
    """Projective geometry response (PGR): p = re^ε/(re^ε+M−r), q = (λe^ε+r−λ)/(re^ε+M−r). A pytree, ε its leaf.

    There are M planes, of which r contain a given point and λ contain two given points. For e^ε well below K, the error
    is about that of subset selection, with log₂ M bits, M from K to about s·K. For larger e^ε no field order gives a
    small error. Reports are counted by dynamic programming over the coordinates, in time O(N + M·s·log M) with a table
    of M·s numbers.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.
        field_order: s, a prime below 1000. None chooses the prime of least error, near e^ε + 1, among those whose table
            fits in memory. For a traced ε, rates work with None, but reports need s.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.ProjectiveGeometry(num_categories=100, epsilon=1.0)
        >>> mechanism.field_order, mechanism.num_columns
        (3, 121)
        >>> tally = mechanism.collect(jax.random.key(0), [60_000, 30_000, 10_000] + [0] * 97)
        >>> [round(t, 1) for t in rrjax.empirical_bayes(tally).theta[:3].tolist()]
        [0.6, 0.3, 0.1]

    References:
        Feldman, Nelson, Nguyen and Talwar, "Private frequency estimation via projective geometry", 2022:
        arXiv:2203.00194.
    """

    name: ClassVar[str] = "projective-geometry-response"
    field_order: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        order = field_order_of(self.field_order, self.num_categories, known_epsilon(self.epsilon))
        object.__setattr__(self, "field_order", order)

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        e1 = expm1(self.epsilon)
        if self.field_order is not None:
            return Rates.of_design(e1, *design_of(self.num_categories, self.field_order))
        designs = field_designs(self.num_categories)
        if isinstance(e1, jax.Array):
            designs = (jnp.asarray(each.astype(e1.dtype)) for each in designs)
        designs = Rates.of_design(e1, *designs)
        best = jnp.nanargmin(designs.total_variance(self.num_categories))
        return Rates(designs.always[best], designs.never[best], designs.truth[best])

    @property
    def num_columns(self) -> int:
        return num_points(self._order, self._dimension)

    @property
    def num_holding(self) -> int:
        return num_points(self._order, self._dimension - 1)

    @property
    def note(self) -> str:
        return f"planes over {self._order:,} elements"

    @property
    def _order(self) -> int:
        return settled(self.field_order, "field_order")

    @property
    def _dimension(self) -> int:
        """The number of coordinates of a point."""
        return dimension_of(self.num_categories, self._order)

    def server_operations(self, num_users: float) -> float:
        # N and the table.
        return num_users + 2 * self.num_columns * self._order * self._dimension

    def drawn(self, key: Array, values: Int[Array, " N"], bound: Words) -> Int[Array, " N"]:
        order, number = self._order, self._dimension
        high, low, place, other_place = jax.random.bits(key, (4, values.shape[0]), jnp.uint32)
        through = below((high, low), bound)
        # The zero vector is no plane; if the product is one, the other coordinates may all be zero.
        least = through.astype(jnp.uint32)
        free = number_below((place, other_place), jnp.uint32(order ** (number - 1)) - least) + least
        return plane_of(values + 1, through, free.astype(jnp.int32), order, number, jnp) - 1

    def incident(self, columns: Int[Array, "*s"], values: Int[Array, "*s"]) -> Bool[Array, "*s"]:
        plane, point = (vectors_of(each + 1, self._order, self._dimension, jnp) for each in (columns, values))
        return product_of(plane, point, self._order, jnp) == 0

    def sums_of_columns(self, columns: Shaped[Array, " M"]) -> Shaped[Array, " K"]:
        return incident_sums(columns, self._order, self._dimension)[: self.num_categories]

    def sums_of_categories(self, values: Shaped[Array, " K"]) -> Shaped[Array, " M"]:
        padded = jnp.pad(values, (0, self.num_columns - self.num_categories))
        return incident_sums(padded, self._order, self._dimension)


@pytree()
class Columns:
    """The linear map `scale`·[column supports category], with products by the mechanism's own transform."""

    mechanism: ColumnResponse
    scale: ArrayLike

    @property
    def shape(self) -> tuple[int, int]:
        """M and K."""
        return self.mechanism.num_columns, self.mechanism.num_categories

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " M"]:
        return jnp.asarray(self.scale, theta.dtype) * self.mechanism.sums_of_categories(theta)

    def transpose(self, weights: Float[Array, " M"]) -> Float[Array, " K"]:
        return jnp.asarray(self.scale, weights.dtype) * self.mechanism.sums_of_columns(weights)


def even_sums(values: Shaped[Array, " M"]) -> Shaped[Array, " M"]:
    """For each number z, the sum of the values at the numbers that have an even number of bits in common with z.

    The fast transform, with sums over odd numbers in place of differences, so that nothing is subtracted.
    """
    size = values.shape[0]
    even, odd = values, _zeros_beside(values)
    step = 1
    while step < size:
        (even_0, even_1), (odd_0, odd_1) = (
            (part[:, 0], part[:, 1]) for part in (each.reshape(-1, 2, step) for each in (even, odd))
        )
        even = jnp.stack([even_0 + even_1, even_0 + odd_1], axis=1).reshape(size)
        odd = jnp.stack([odd_0 + odd_1, odd_0 + even_1], axis=1).reshape(size)
        step *= 2
    return even


def _zeros_beside(values: Shaped[Array, "*s"]) -> Shaped[Array, "*s"]:
    """Zeros that `vmap` spreads over a mesh as it does the values, which are joined with them."""
    return jnp.where(False, values, 0)


@functools.cache
def _scalings(order: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """For each vector of a length, numbered in base s: its canonical number, and one over its first coordinate.

    For the zero vector: 0 and 1.
    """
    canonical, inverse = np.zeros(1, np.int32), np.ones(1, np.int32)
    inverses = np.asarray([1, *(pow(value, -1, order) for value in range(1, order))], np.int32)
    for short in range(length):
        suffix = np.arange(order**short)
        digits = suffix[:, None] // order ** np.arange(short)[::-1] % order
        rows = []
        for lead in range(1, order):
            scaled = np.dot(digits * inverses[lead] % order, order ** np.arange(short)[::-1])
            rows.append(1 + num_points(order, short) + scaled)
        canonical = np.concatenate([canonical, *rows]).astype(np.int32)
        inverse = np.concatenate([inverse, np.repeat(inverses[1:], order**short)])
    return canonical, inverse


def _added(total, term):
    """A compensated sum: the sum and its rounding errors, so that rounding does not grow with the terms."""
    sums, lost = total
    result = sums + term
    if jnp.issubdtype(term.dtype, jnp.integer):
        return result, lost
    larger = jnp.abs(sums) >= jnp.abs(term)
    return result, lost + jnp.where(larger, (sums - result) + term, (term - result) + sums)


@partial(jax.jit, static_argnums=(1, 2))
def incident_sums(values: Shaped[Array, " M"], order: int, dimension: int) -> Shaped[Array, " M"]:
    """For each point of a projective space, the sum of the values at the planes through it; or with the two exchanged.

    The recursion goes from the last coordinate to the first. The table has a sum over the ends of planes for each
    beginning of a plane, each part z of the product from the ends, and each end of a point up to a factor. Nothing is
    subtracted.
    """
    # Axes: beginnings (the zero vector first), z, ends (the zero vector first). At first a beginning is a whole plane.
    table = jnp.concatenate([_zeros_beside(values[:1]), values])[:, None, None]
    table = jnp.concatenate([table, *[_zeros_beside(table)] * (order - 1)], axis=1)
    part = jnp.arange(order, dtype=jnp.int32)
    for length in range(dimension):
        canonical, inverse = (jnp.asarray(each, jnp.int32) for each in _scalings(order, length))
        # A zero beginning continues with 0 or, to be canonical, with 1; any other beginning with all s numbers.
        first, rest = table[:2], table[2:]

        def shifted(tables, digit, canonical=canonical, inverse=inverse):
            """Sums for points with a 1 here: at z − digit, both divided by the factor that makes the end canonical."""
            return tables[:, (part[:, None] - digit) * inverse % order, canonical]

        zero = jnp.sum(first, axis=0, keepdims=True), shifted(first[:1], 0) + shifted(first[1:], 1)
        table = jnp.concatenate(zero, axis=2)
        if not rest.shape[0]:  # as in the last turn; a reshape of nothing cannot be spread over a mesh
            continue
        rest = rest.reshape(-1, order, *rest.shape[1:])

        def add(digit, totals, rest=rest, shifted=shifted):
            one, other = totals
            return _added(one, rest[:, digit]), _added(other, shifted(rest[:, digit], digit))

        nothing = rest[:, 0] * 0, shifted(rest[:, 0], 0) * 0
        totals = jax.lax.fori_loop(0, order, add, tuple((each, each) for each in nothing))
        table = jnp.concatenate([table, jnp.concatenate([total + lost for total, lost in totals], axis=2)])
    return table[0, 0, 1:]


@jax.jit
def _tally(mechanism, columns):
    # A histogram of −1 marks unusable reports.
    usable = (jnp.min(columns) >= 0) & (mechanism.rates.truth > 0)
    return tally_if(usable, mechanism.sums_of_columns(columns), jnp.sum(columns), mechanism.rates)


@jax.jit
def _randomize(mechanism, key, values):
    flat = values.ravel()
    inside = (flat >= 0) & (flat < mechanism.num_categories)
    rates = mechanism.rates
    column = mechanism.drawn(key, jnp.where(inside, flat, 0).astype(jnp.int32), rounded_down(rates.p))
    return jnp.where(inside & (rates.truth > 0), column, -1).reshape(values.shape)


@jax.jit
def _collect(mechanism, key, true_counts):
    bound = rounded_down(mechanism.rates.p)

    def add(columns, key, values, exists):
        return columns.at[mechanism.drawn(key, values, bound)].add(exists.astype(columns.dtype))

    zeros = jnp.zeros(mechanism.num_columns, int_dtype())
    columns, _, usable = summed_in_parts(add, key, true_counts, USERS_A_STEP, zeros)
    tally = _tally(mechanism, columns)
    support, number = (x.astype(true_counts.dtype) for x in (tally.support, tally.num_users))
    return tally_if(usable, support, number, tally.rates)
