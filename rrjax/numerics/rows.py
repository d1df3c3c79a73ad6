"""Many vectors of one length, which is traced, in one array of a static shape.

A vector takes as many rows of `WIDTH` cells as it needs, so one compiled program serves vectors of every length. Row
r·C + c holds part r of vector c: neighbouring rows hold the same part of different vectors, which treats alike what is
likely to be alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from rrjax.numerics.products import matmul
from rrjax.numerics.sharding import by_platform, repeat, take_at

WIDTH = 128
"""Cells of a row: few are empty at K = 100, and a vector unit has work for some cycles."""

VECTORS = 64
"""Vectors whose own values are computed together on a CPU."""
MOST_AT_ONCE = 128
"""Parts whose results are looked up together, elsewhere than on a CPU; more take a turn for each of their bits."""
T = TypeVar("T")


def num_parts(length):
    """Number of rows of a vector; for integers and arrays."""
    return (length + WIDTH - 1) // WIDTH


@dataclasses.dataclass(frozen=True)
class Rows:
    """How `number` vectors of `length` lie in an array `[height, WIDTH]`.

    Values of the vectors themselves are arrays `[height]`, of which the first `number` count; the others are zero in
    all results.
    """

    height: int
    length: Int[Array, ""]
    number: Int[Array, ""]
    most_parts: int = 0
    """Rows of a vector at most, where it is known: of use elsewhere than on a CPU."""
    parts: Int[Array, ""] = dataclasses.field(init=False)
    """Rows of a vector."""
    vector: Int[Array, " R"] = dataclasses.field(init=False)
    """The vector of each row; of rows that are not used, any."""
    part: Int[Array, " R"] = dataclasses.field(init=False)
    """The part of its vector that a row holds; of rows that are not used, at least `parts`."""
    places: Int[Array, "R W"] = dataclasses.field(init=False)
    """The place of each cell in its vector, which ends before `length`."""
    used: Bool[Array, "R W"] = dataclasses.field(init=False)
    """Whether a cell holds a number of a vector."""

    def __post_init__(self) -> None:
        """Derives the other fields, once, outside of the loops that use them."""
        row = jnp.arange(self.height, dtype=jnp.int32)
        part = row // self.number
        places = part[:, None] * WIDTH + jnp.arange(WIDTH, dtype=jnp.int32)
        derived = {"parts": num_parts(self.length), "vector": row % self.number, "part": part}
        for name, value in (derived | {"places": places, "used": places < self.length}).items():
            object.__setattr__(self, name, value)

    def spread(self, values: Shaped[Array, " R"]) -> Shaped[Array, "R 1"]:
        """Values of the vectors, for each row."""
        return take_at(values, self.vector)[:, None]

    def cell(self, vector: Int[Array, "*s"], place: Int[Array, "*s"]) -> Int[Array, "*s"]:
        """The index, in the flattened array, of a place in a vector."""
        return (place // WIDTH * self.number + vector) * WIDTH + place % WIDTH

    @property
    def there(self) -> Bool[Array, " R"]:
        """Which values of vectors are of a vector."""
        return jnp.arange(self.height, dtype=jnp.int32) < self.number

    def each(self, function: Callable[..., T], *values: Any) -> T:
        """A function, elementwise along its first axis, of values `[R]` of the vectors."""
        size = min(VECTORS, self.height)

        def some(index, results):
            def part(all_):
                return lax.dynamic_slice_in_dim(all_, index * size, size)

            def put(all_, new):
                return lax.dynamic_update_slice_in_dim(all_, new, index * size, 0)

            return jax.tree.map(put, results, function(*jax.tree.map(part, values)))

        def in_use():
            empty = jax.tree.map(lambda kind: jnp.zeros(kind.shape, kind.dtype), jax.eval_shape(function, *values))
            return repeat((self.number + size - 1) // size, some, empty)

        def all_at_once():
            return jax.tree.map(lambda result: jnp.where(self.there, result, 0), function(*values))

        return by_platform(cpu=in_use, elsewhere=all_at_once)

    def count(self, *terms: Int[Array, "R W"]) -> list[Int[Array, " R"]]:
        """The sum of each vector, for several arrays of integers in one pass; unused cells are zero."""
        zeros = [jnp.zeros((), each.dtype) for each in terms]
        rows = lax.reduce(list(terms), zeros, lambda a, b: [x + y for x, y in zip(a, b, strict=True)], (1,))
        return list(self._folded(lax.add, jnp.stack(rows)))

    def sum(self, *terms: Float[Array, "R W"]) -> list[Float[Array, " R"]]:
        """The sum of each vector, for several arrays of floats; unused cells are zero.

        By pairs of ever longer sums: accurate to some units in the last place of the sum of magnitudes.
        """
        ones = jnp.ones(WIDTH, terms[0].dtype)
        # A product: XLA keeps the order of the additions of a sum, which is then not vectorized on a CPU.
        rows = jnp.stack([matmul(each, ones) for each in terms])
        return list(self._folded(lax.add, rows))

    def max(self, *terms: Shaped[Array, "R W"]) -> list[Shaped[Array, " R"]]:
        """The largest number of each vector, for several arrays; unused cells are zero, and so is the least result."""
        return list(self._folded(lax.max, jnp.stack([jnp.max(each, axis=1) for each in terms])))

    def _folded(self, combine, rows):
        """Results `[n, R]` of vectors from those of rows, in pairs or all at once."""
        steps = jnp.sum(self.parts > 1 << jnp.arange(self.height.bit_length(), dtype=jnp.int32), dtype=jnp.int32)

        def by_halves(rows):
            def fold(step, rows):
                half = 1 << (steps - 1 - step)
                beyond = jnp.concatenate([rows, jnp.zeros_like(rows)], axis=1)
                return combine(rows, lax.dynamic_slice_in_dim(beyond, half * self.number, self.height, axis=1))

            return repeat(steps, fold, rows)

        most = self.most_parts or self.height

        def in_fixed_turns(rows):
            # The host would wait for a number of turns that is data.
            def fold(step, rows):
                half = 1 << (most.bit_length() - 1 - step)
                beyond = jnp.concatenate([rows, jnp.zeros_like(rows)], axis=1)
                beyond = lax.dynamic_slice_in_dim(beyond, half * self.number, self.height, axis=1)
                # Sums of what is beyond the parts, but for other vectors, are not used.
                return jnp.where(half < self.parts, combine(rows, beyond), rows)

            return lax.fori_loop(0, most.bit_length(), fold, rows)

        def at_once(rows):
            if most > MOST_AT_ONCE:
                return in_fixed_turns(rows)
            part = jnp.arange(most, dtype=jnp.int32)[:, None]
            place = jnp.minimum(part * self.number + jnp.arange(self.height, dtype=jnp.int32), self.height - 1)
            parts = jnp.where(part < self.parts, rows.at[:, place].get(mode="promise_in_bounds"), 0)
            return lax.reduce(parts, jnp.zeros((), rows.dtype), combine, (1,))

        folded = by_platform(rows, cpu=by_halves, elsewhere=at_once)
        return jnp.where(self.there, folded, 0)

    def separate(self, array: Shaped[Array, "R W"], number: int, length: int) -> Shaped[Array, "n K"]:
        """The vectors themselves, where their number and length are known."""
        parts = num_parts(length)
        split = array[: parts * number].reshape(parts, number, WIDTH)
        return jnp.moveaxis(split, 0, 1).reshape(number, parts * WIDTH)[:, :length]
