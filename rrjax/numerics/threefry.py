"""Random words of 32 bits, products and hashes of words, for JAX's simulations and for the clients of collections.

It uses operators only, so that the same code works for NumPy and JAX. JAX is not imported.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(first: Any, second: Any, x: Any, y: Any, *, rounds: int = 20) -> tuple[Any, Any]:
    """Two random words, by Threefry-2x32, from two words of a key and two of a counter.

    References:
        Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    schedule = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x, y = x + schedule[0], y + schedule[1]
    for turn in range(rounds):
        group, place = divmod(turn, 4)
        rotation = _ROTATIONS[group % 2][place]
        x = x + y
        y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        if place == 3:
            x = x + schedule[(group + 1) % 3]
            y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def product(one: Any, other: Any) -> tuple[Any, Any]:
    """The high and the low word of the product of two words of 32 bits."""
    mask = np.uint32(0xFFFF)
    low, first, second, high = (a * b for a in (one & mask, one >> 16) for b in (other & mask, other >> 16))
    first = first + (low >> 16)  # no carry: (2¹⁶ − 1)² + 2¹⁶ − 1 < 2³²
    second = second + (first & mask)
    return high + (first >> 16) + (second >> 16), one * other


def scaled_word(word: Any, bound: Any) -> Any:
    """The integer part of w·bound/2³², for one word w: uniform to bound/2³²."""
    return product(word, bound)[0]


def buckets_of(seeds: Any, categories: Any, num_buckets: Any, xp: ModuleType) -> Any:
    """The bucket of each category under each seed, the hash of local hashing; the arrays broadcast.

    Threefry's key is the seed. Its counter i gives the words of categories 2i and 2i + 1, and a word w becomes the
    bucket ⌊w·g/2³²⌋.
    """
    zeros = xp.zeros_like(seeds)
    one, other = threefry(seeds, zeros, categories >> 1, zeros)
    return scaled_word(xp.where(categories & 1 == 0, one, other), num_buckets)
