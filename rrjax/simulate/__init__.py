"""Populations, and exact draws of what a collection from them brings, without a user ever being simulated."""

from rrjax.simulate.populations import collect, counts, randomized, true_counts, values, zipf

__all__ = ["collect", "counts", "randomized", "true_counts", "values", "zipf"]
