"""Parameters of mechanisms beside K and ε: which are possible, and which are chosen by default.

Mechanisms and clients for real collection both ask here, so that they choose alike; JAX is not imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from rrjax.data.checks import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.rates import Rates
from rrjax.numerics.projective_geometry import PRIMES, design_of, num_cells

MOST_CELLS = 1 << 27
"""Numbers in the table that reports on planes are decoded in, where nobody says over which field."""

MOST_BUCKETS = 1 << 30
"""Of local hashing, at the most: from ε = 20 on nobody needs to be hidden among more."""


def _odds(epsilon):
    """e^ε − 1, whose square and its inverse are floats; the best parameter is the same beyond."""
    return math.expm1(min(max(epsilon, 1e-100), 300.0))


def best_subset_size(num_categories: int, e1: Any, xp: ModuleType = np) -> Any:
    """K/(e^ε+1), rounded down or up to what has the smaller error, at least one."""

    def error(size):
        return subset_rates(num_categories, size, e1).total_variance(num_categories)

    size = xp.maximum(num_categories / (e1 + 2) // 1, 1)
    above = xp.minimum(size + 1, num_categories - 1)
    return xp.where(error(above) < error(size), above, size)


def subset_rates(num_categories: int, size: Any, e1: Any) -> Rates:
    """Those of the design of all sets of ω."""
    return Rates.of_design(e1, num_categories / size, (size - 1) / (num_categories - 1))


def subset_size_of(given: int | None, num_categories: int, epsilon: float | None) -> Any:
    """The ω of subset selection: the given one, or the best for a known ε; else None.

    Raises:
        ValueError: ω out of range.
    """
    if given is None:
        return None if epsilon is None else int(best_subset_size(num_categories, _odds(epsilon)))
    return as_integer(given, "subset_size", 1, num_categories - 1, "K - 1 = ")


def best_num_buckets(e1: Any, smallest: Callable[[Any, int], Any] = min) -> Any:
    """round(e^ε) + 1, of optimized local hashing."""
    return smallest((e1 + 1.5) // 1 + 1, MOST_BUCKETS)


def num_buckets_of(given: int | None, epsilon: float | None) -> Any:
    """The g of optimized local hashing: the given one, or the best for a known ε; else None.

    Raises:
        ValueError: g out of range.
    """
    if given is None:
        return None if epsilon is None else int(best_num_buckets(_odds(epsilon)))
    return as_integer(given, "num_buckets", 2, MOST_BUCKETS)


def two_buckets(given: int | None) -> int:
    """The g of binary local hashing.

    Raises:
        ValueError: Another one was given.
    """
    if given not in (None, 2):
        raise ArgumentError(f"binary local hashing has num_buckets = 2, got {given!r}", argument="num_buckets")
    return 2


def field_designs(num_categories: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the planes over each field: how many for each one through a point, and the share of these through another.

    Fields whose planes could not be decoded in memory have NaN.
    """
    sizes, pairs = zip(*(design_of(num_categories, order) for order in PRIMES), strict=True)
    cells = np.asarray([num_cells(num_categories, order) for order in PRIMES])
    fits = cells <= max(MOST_CELLS, min(cells))
    return np.where(fits, sizes, np.nan), np.where(fits, pairs, np.nan)


def field_order_of(given: int | None, num_categories: int, epsilon: float | None) -> Any:
    """The s of projective geometry response: the given one, or that of least error for a known ε; else None.

    Raises:
        ValueError: s is not a prime below 1000.
    """
    if given is None:
        if epsilon is None:
            return None
        designs = Rates.of_design(_odds(epsilon), *field_designs(num_categories))
        given = PRIMES[int(np.nanargmin(designs.total_variance(num_categories)))]
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given not in PRIMES:
        raise ArgumentError(f"field_order must be a prime number below 1000, got {given!r}", argument="field_order")
    cells = num_cells(num_categories, int(given))
    if cells > 8 * MOST_CELLS:
        raise ArgumentError(
            f"num_categories = {num_categories} over a field of {given} elements takes a table of {cells:.1e} numbers "
            "to decode, more than fits: give a smaller field_order, or use another mechanism",
            argument="num_categories",
            value=num_categories,
        )
    return int(given)
