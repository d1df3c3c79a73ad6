"""Populations, and exact draws of the counts of collections from them, without simulating single users."""

from rrjax.simulate.populations import collect, counts, randomized, true_counts, values, zipf

__all__ = ["collect", "counts", "randomized", "true_counts", "values", "zipf"]
