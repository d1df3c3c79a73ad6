"""Results of single categories, computed once for each distinct count: a million categories have some hundreds.

The result of a category depends on its count, N and the rates alone, so categories with equal counts have equal
results. This needs known counts in the memory of the host; under a transformation of JAX every category is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, Int

FEWEST_CATEGORIES = 1024
"""Number of categories below which every category is computed: it is as fast."""
FEWEST_CATEGORIES_A_COUNT = 4
"""Mean number of categories per count below which every category is computed."""
SMALLEST_BATCH = 256
"""Smallest number of distinct counts in a batch, so that few programs are compiled."""

Result = TypeVar("Result")


class DistinctCounts(NamedTuple):
    """The distinct counts of a collection.

    Attributes:
        example: `[D]`, a category with each of them; the first one repeated until D is a power of two, so that few
            programs are compiled for any data.
        times: `[D]`, number of categories with it; zero for the repetitions.
        place: `[K]`, the place of each category's count.
    """

    example: np.ndarray
    times: np.ndarray
    place: np.ndarray

    def pick(self, leaf: Any) -> Any:
        """The entries `[D]` of the examples in an array `[K]`; anything else unchanged."""
        if np.shape(leaf) != self.place.shape:
            return leaf
        return jax.device_put(np.asarray(leaf)[self.example], leaf.sharding)

    def spread(self, leaf: Array) -> Array:
        """The results `[K]` of all categories, from results `[D]`."""
        return jax.device_put(np.asarray(leaf)[self.place], leaf.sharding)


def once_per_count(
    function: Callable[[Any, np.ndarray | None], Result], counts: Int[Array, " K"], given: Any, *others: Any
) -> Result:
    """Calls a function of `given`, a pytree with arrays `[K]`, on one category of each distinct count.

    The function's second argument is the number of categories with each count, or None if every category is computed.
    `others` are its further inputs: if one is traced, every category is computed.
    """
    distinct = distinct_counts(counts, given, *others)
    if distinct is None:
        return function(given, None)
    return jax.tree.map(distinct.spread, function(jax.tree.map(distinct.pick, given), distinct.times))


def distinct_counts(counts: Int[Array, " K"], *others: object) -> DistinctCounts | None:
    """The distinct counts, in time O(K); None if they are traced, not on the host, few or not repeated."""
    size = counts.shape[0]
    if size < FEWEST_CATEGORIES or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((counts, others))):
        return None
    if not isinstance(counts.sharding, SingleDeviceSharding) or next(iter(counts.devices())).platform != "cpu":
        return None
    known = np.asarray(counts)
    above = known - known.min()  # counts of many reports are far from zero
    small = np.flatnonzero((above >= 0) & (above < 2 * size))  # a table serves these; unusable counts wrapped below 0
    seen = np.zeros(2 * size, bool)
    seen[above[small]] = True
    place_of_small = np.cumsum(seen, dtype=np.int32) - 1
    large = np.ones(size, bool)
    large[small] = False
    values, place_of_large = np.unique(above[large], return_inverse=True)
    number = int(place_of_small[-1]) + 1 + len(values)
    if number * FEWEST_CATEGORIES_A_COUNT > size:
        return None
    place = np.empty(size, np.int32)
    place[small] = place_of_small[above[small]]
    place[large] = place_of_large + place_of_small[-1] + 1
    padded = max(SMALLEST_BATCH, 1 << (number - 1).bit_length())
    example = np.empty(padded, np.int64)
    example[place] = np.arange(size)
    example[number:] = example[0]
    return DistinctCounts(example, np.bincount(place, minlength=padded).astype(np.int32), place)
