"""Statements about single categories, made once for each count that there is: a million categories have some hundreds.

What is said of a category depends on its count, N and the rates; so categories with one count share one computation.
Only where all is known, and in the memory of the host: under a transformation of JAX every category has its own.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, Int

FEWEST = 1024
"""Categories below which it is not worth the trouble."""
_REPEATED = 4
"""Categories to a count, from which on it is."""
_SMALLEST = 256

T = TypeVar("T")


class Distinct(NamedTuple):
    """The counts that there are.

    Attributes:
        example: `[D]`, a category with each of them; the first one again until D is a power of two, so that few
            programs are compiled whatever the data.
        times: `[D]`, how many categories have it; none where it is there again.
        place: `[K]`, which one each category has.
    """

    example: np.ndarray
    times: np.ndarray
    place: np.ndarray

    def pick(self, tree: T) -> T:
        """Of arrays `[K]` what stands for each count, `[D]`; all else as it is."""
        return jax.tree.map(self._picked, tree)

    def spread(self, tree: T) -> T:
        """Of arrays `[D]` what is true of each category, `[K]`."""
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[self.place], leaf.sharding), tree)

    def _picked(self, leaf):
        if np.shape(leaf) != self.place.shape:
            return leaf
        return jax.device_put(np.asarray(leaf)[self.example], leaf.sharding)


def distinct_counts(counts: Int[Array, " K"], *others: object) -> Distinct | None:
    """Finds the different counts, in time that grows like K."""
    size = counts.shape[0]
    if size < FEWEST or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((counts, others))):
        return None
    if not isinstance(counts.sharding, SingleDeviceSharding) or next(iter(counts.devices())).platform != "cpu":
        return None
    known = np.asarray(counts)
    above = known - known.min()  # from zero, as those of many reports are far from it
    near = np.flatnonzero((above >= 0) & (above < 2 * size))  # below, where unusable counts wrapped
    seen = np.zeros(2 * size, bool)
    seen[above[near]] = True
    of_seen = np.cumsum(seen, dtype=np.int32) - 1
    far = np.ones(size, bool)
    far[near] = False
    rest, of_rest = np.unique(above[far], return_inverse=True)
    number = int(of_seen[-1]) + 1 + len(rest)
    if number * _REPEATED > size:
        return None
    place = np.empty(size, np.int32)
    place[near] = of_seen[above[near]]
    place[far] = of_rest + of_seen[-1] + 1
    padded = max(_SMALLEST, 1 << (number - 1).bit_length())
    example = np.empty(padded, np.int64)
    example[place] = np.arange(size)
    example[number:] = example[0]
    return Distinct(example, np.bincount(place, minlength=padded).astype(np.int32), place)
