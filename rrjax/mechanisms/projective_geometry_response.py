"""Projective geometry response: categories are points, columns are hyperplanes, and a report is a plane.

`rrjax.numerics.projective_geometry` numbers points and planes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Shaped

from rrjax.data.mechanism_parameters import field_designs, field_order_of
from rrjax.data.tally import Rates
from rrjax.mechanisms.columns import ColumnResponse
from rrjax.mechanisms.draws import Words, below, number_below
from rrjax.mechanisms.mechanism import known_epsilon, settled
from rrjax.numerics.projective_geometry import design_of, dimension_of, num_points, plane_of, product_of, vectors_of
from rrjax.numerics.pytrees import register


@register(data_fields=["epsilon"], meta_fields=["num_categories", "field_order"])
@dataclasses.dataclass(frozen=True)
class ProjectiveGeometry(ColumnResponse):
    """Projective geometry response (PGR): p = re^ε/(re^ε+M−r), q = (λe^ε+r−λ)/(re^ε+M−r). A pytree, ε its leaf.

    There are M planes, of which r contain a given point and λ contain two given points. For e^ε well below K, the error
    is about that of subset selection, with log₂ M bits, M from K to about s·K. For larger e^ε no field order gives a
    small error. Reports are counted by dynamic programming over the coordinates, in time O(N + M·s·log M) with a table
    of M·s numbers.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats; a float or a traced array.
        field_order: s, a prime below 1000. None chooses the prime of least error, near e^ε + 1, among those whose table
            fits in memory. For a traced ε, rates work with None, but reports need s.

    Raises:
        ValueError: K < 2, ε a number that is not positive, or s not such a prime.

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

    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
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
            scaled = digits * inverses[lead] % order @ order ** np.arange(short)[::-1]
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
    table = jnp.concatenate([jnp.zeros(1, values.dtype), values])[:, None, None]
    table = jnp.concatenate([table, jnp.zeros((table.shape[0], order - 1, 1), values.dtype)], axis=1)
    part = jnp.arange(order, dtype=jnp.int32)
    for length in range(dimension):
        canonical, inverse = (jnp.asarray(each, jnp.int32) for each in _scalings(order, length))
        # A zero beginning continues with 0 or, to be canonical, with 1; any other beginning with all s numbers.
        first, rest = table[:2], table[2:].reshape(-1, order, *table.shape[1:])

        def shifted(tables, digit, canonical=canonical, inverse=inverse):
            """Sums for points with a 1 here: at z − digit, both divided by the factor that makes the end canonical."""
            return tables[:, (part[:, None] - digit) * inverse % order, canonical]

        def add(digit, totals, rest=rest, shifted=shifted):
            one, other = totals
            return _added(one, rest[:, digit]), _added(other, shifted(rest[:, digit], digit))

        zero = jnp.sum(first, axis=0, keepdims=True), shifted(first[:1], 0) + shifted(first[1:], 1)
        nothing = rest[:, 0] * 0, shifted(rest[:, 0], 0) * 0
        totals = jax.lax.fori_loop(0, order, add, tuple((each, each) for each in nothing))
        more = (total + lost for total, lost in totals)
        table = jnp.concatenate([jnp.concatenate(zero, axis=2), jnp.concatenate([*more], axis=2)])
    return table[0, 0, 1:]
