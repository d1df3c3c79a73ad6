"""Points and hyperplanes of a projective space by number, for JAX's simulations and for the clients of collections.

Over the field of s elements (s prime) the projective space of dimension t − 1 has (sᵗ − 1)/(s − 1) points and as many
hyperplanes. Each has a canonical vector of t coordinates, whose first nonzero coordinate is one. Read as numbers in
base s, these vectors give the order; number 0 is the zero vector, neither point nor plane. A point lies on a plane if
the product of their vectors is zero.

Functions of arrays take `xp`, which is `numpy` or `jax.numpy`. JAX is not imported.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

PRIMES = [number for number in range(2, 1000) if all(number % small for small in range(2, math.isqrt(number) + 1))]
"""Orders of fields: the primes below 1000."""


def num_points(order: int, number: int) -> int:
    """The number of points, (sᵗ − 1)/(s − 1); zero for t = 0."""
    return (order**number - 1) // (order - 1)


def dimension_of(num_categories: int, order: int) -> int:
    """The least t ≥ 2 with enough points."""
    number = 2
    while num_points(order, number) < num_categories:
        number += 1
    return number


def design_of(num_categories: int, order: int) -> tuple[float, float]:
    """All planes over planes through a given point; and the share of the latter that contain another given point."""
    number = dimension_of(num_categories, order)
    through_one, through_two = num_points(order, number - 1), num_points(order, number - 2)
    return num_points(order, number) / through_one, through_two / through_one


def num_cells(num_categories: int, order: int) -> int:
    """The numbers needed to decode reports on planes: planes times elements."""
    return num_points(order, dimension_of(num_categories, order)) * order


def digits_of(numbers: Any, order: int, number: int, xp: ModuleType) -> Any:
    """The last `number` digits in base s, on a last axis."""
    powers = xp.asarray([order**place for place in reversed(range(number))], xp.int32)
    return numbers[..., None] // powers % order


def _firsts(order, number):
    """The canonical number of the first vector of each length, after the zero vector: 1 + (s^l − 1)/(s − 1)."""
    return [1 + num_points(order, length) for length in range(number + 1)]


def vectors_of(numbers: Any, order: int, number: int, xp: ModuleType) -> Any:
    """The canonical vectors of points or planes, which are numbered from one."""
    firsts = xp.asarray(_firsts(order, number)[:number], xp.int32)
    length = xp.sum(numbers[..., None] >= firsts, axis=-1, dtype=xp.int32) - 1
    powers = xp.asarray([order**place for place in range(number)], xp.int32)
    # One before its suffix of `length` coordinates.
    return digits_of(numbers - firsts[length] + powers[length], order, number, xp)


def product_of(one: Any, other: Any, order: int, xp: ModuleType) -> Any:
    """The product of vectors on a last axis: zero if the point lies on the plane."""
    return xp.sum(one * other % order, axis=-1, dtype=xp.int32) % order


def numbers_of(vectors: Any, order: int, xp: ModuleType) -> Any:
    """The numbers of the canonical multiples of nonzero vectors; the inverse of `vectors_of`."""
    number = vectors.shape[-1]
    lead = xp.argmax(vectors != 0, axis=-1)
    inverses = xp.asarray([0, *(pow(value, -1, order) for value in range(1, order))], xp.int32)
    factor = inverses[xp.take_along_axis(vectors, lead[..., None], axis=-1)]
    powers = [order**place for place in range(number)]
    whole = xp.sum(vectors * factor % order * xp.asarray(powers[::-1], xp.int32), axis=-1, dtype=xp.int32)
    length = number - 1 - lead
    return whole - xp.asarray(powers, xp.int32)[length] + xp.asarray(_firsts(order, number)[:number], xp.int32)[length]


def plane_of(points: Any, through: Any, free: Any, order: int, number: int, xp: ModuleType) -> Any:
    """A plane for each point, through it or not: coordinates from `free`, except one for a product of 0 or 1."""
    point = vectors_of(points, order, number, xp)
    lead = xp.argmax(point != 0, axis=-1).astype(xp.int32)
    digits = digits_of(free, order, number - 1, xp)
    where = xp.arange(number, dtype=xp.int32)
    before = xp.concatenate([digits, digits[..., -1:]], axis=-1)
    after = xp.concatenate([digits[..., :1], digits], axis=-1)
    plane = xp.where(where < lead[:, None], before, after)
    plane = xp.where(where == lead[:, None], 0, plane)
    # The missing coordinate's factor, the first nonzero one of the point, is one.
    missing = (xp.where(through, np.int32(0), np.int32(1)) - product_of(plane, point, order, xp)) % order
    plane = xp.where(where == lead[:, None], missing[:, None], plane)
    return numbers_of(plane, order, xp)
