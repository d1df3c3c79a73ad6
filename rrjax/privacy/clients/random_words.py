"""The operating system's cryptographic random numbers, in words of 64 bits."""

from __future__ import annotations

import os

import numpy as np

MOST = np.uint64(2**64 - 1)


def words(rows: int, columns: int) -> np.ndarray:
    """Draws `[rows, columns]` words, uint64; not to be written to."""
    return np.frombuffer(os.urandom(8 * rows * columns), np.uint64).reshape(rows, columns)


def below(draws: np.ndarray, threshold: int) -> np.ndarray:
    """Whether numbers of 128 bits, uniform, are below a threshold."""
    high, low = (np.uint64(word) for word in divmod(threshold, 2**64))
    found = draws < high
    tied = draws == high
    if tied.any():
        found[tied] = words(int(tied.sum()), 1)[:, 0] < low
    return found


def numbers_below(draws: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Numbers from 0 to bound − 1, exactly uniform: what is left beyond the last whole multiple is drawn again."""
    draws = draws.copy()
    last = MOST - (MOST % bounds + np.uint64(1)) % bounds  # 2⁶⁴ modulo the bound, without 2⁶⁴
    while (again := draws > last).any():
        draws[again] = words(int(again.sum()), 1)[:, 0]
    return draws % bounds
