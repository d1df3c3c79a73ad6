"""Survey weights of a file."""

from __future__ import annotations

import numpy as np

from rrjax import io


def read_weights(source: io.Source) -> io.Covariate:
    """Reads a column of survey weights, row by row; missing ones are NaN.

    Raises:
        DataError: Weights that are no numbers, or negative, with the row.
    """
    weights = io.read_covariate(source, most_levels=None)
    place = f"{source.files()[0]}, column {weights.name!r}"
    if weights.levels is not None:
        raise io.DataError(f"{place}: weights are numbers, and {weights.levels[0]!r} is none")
    wrong = np.flatnonzero(weights.values < 0)
    if wrong.size:
        where = f", row {wrong[0] + 1:,}" if len(source.files()) == 1 else ""
        raise io.DataError(f"{place}{where}: {weights.values[wrong[0]]:g} is negative, and a weight is not")
    return weights
