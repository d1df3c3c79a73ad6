"""Vectors in rows, by NumPy."""

import numpy as np

from rrjax.numerics.rows import WIDTH, num_parts


def laid(height: int, vectors: np.ndarray) -> np.ndarray:
    """Vectors `[n, K]` in rows `[height, WIDTH]`, as `Rows` has them."""
    number, length = vectors.shape
    parts = num_parts(length)
    padded = np.pad(vectors, ((0, 0), (0, parts * WIDTH - length))).reshape(number, parts, WIDTH)
    rows = np.swapaxes(padded, 0, 1).reshape(-1, WIDTH)
    return np.pad(rows, ((0, height - len(rows)), (0, 0)))
