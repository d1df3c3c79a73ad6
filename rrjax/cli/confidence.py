"""What is known of every share of a collection, whatever the estimator."""

from __future__ import annotations

import dataclasses

import numpy as np

from rrjax import inference
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.work import Collection


@dataclasses.dataclass(frozen=True)
class Confidence:
    """Exact intervals and discoveries."""

    level: float
    at_once: bool
    lower: np.ndarray
    upper: np.ndarray
    found: np.ndarray
    """Which categories are there, at the false discovery rate."""
    fdr: float

    def misses(self, theta: np.ndarray) -> np.ndarray:
        """Which shares of an estimate lie outside their intervals, by more than rounding."""
        slack = 1e-9
        return (theta < self.lower - slack) | (theta > self.upper + slack)


@ending_at_once()
def find(collection: Collection, level: float, at_once: bool, fdr: float) -> Confidence:
    """Exact intervals for all shares, and the categories that are there; warns where no share explains the reports."""
    counts, epsilon = collection.counted.counts, collection.epsilon
    limits = inference.intervals(counts, epsilon, level, simultaneous="bonferroni" if at_once else None)
    found = inference.discoveries(counts, epsilon, fdr)
    # Named so rarely that no share explains it, by a test of all categories at level 0.01 (or less).
    missed = np.asarray(inference.intervals(counts, epsilon, 0.98, simultaneous="bonferroni").upper) == 0
    if missed.any():
        collection.warnings.append(
            f"{int(missed.sum()):,} categories are named less often than chance alone names them at this ε, whatever "
            "the users hold. Is ε right, are reports missing, was it another mechanism? See `rrjax test fit`."
        )
    return Confidence(level, at_once, np.asarray(limits.lower), np.asarray(limits.upper), np.asarray(found), fdr)
