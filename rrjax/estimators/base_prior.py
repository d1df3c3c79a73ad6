"""The prior that empirical Bayes starts from: an average of Gamma distributions of shares, by their likelihoods.

Three groups of equal weight: one Gamma; empty categories and one Gamma; two Gammas of different means. All have the
mean 1/K. The members and their weights were chosen by simulation (`validation/accuracy.py`).
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rrjax.numerics.products import matmul
from rrjax.numerics.sharding import looked_up

NUM_KNOTS = 512
"""Number of knots of the table of each Gamma distribution."""
LARGEST_LOGIT = 80.0
"""Limit of the logits of distribution functions; beyond it masses are zero."""
SHAPES = tuple(2.0**power for power in (*range(-6, 9), 10, 12, 16, 20))
"""Shapes of the Gamma distributions. The coefficient of variation is the inverse root of the shape."""
SHAPES_BESIDE_EMPTY = (0.5, 2.0, 8.0, 32.0, 256.0, 2.0**20)
LEVELS = (0.1, 0.25, 0.5)
"""Parts of all users in the lower of two groups of categories."""
HOLDERS_STEP = 1.6
"""Factor from one number of categories with large shares to the next."""
LEAST_MASS = 1e-9
"""Mass of the prior that is spread evenly over the atoms."""


class Members(NamedTuple):
    """Mixtures of two Gamma distributions of one shape; an empty category is a Gamma of mean zero. Arrays `[R]`."""

    shape: np.ndarray  # the place in `SHAPES`
    upper: np.ndarray  # mass of the upper Gamma
    log_mean: np.ndarray  # of the upper Gamma
    log_mean_below: np.ndarray  # of the lower Gamma; −∞ if it is at zero
    log_prior: np.ndarray


@cache
def members_of(num_categories: int) -> Members:
    """The members for K categories."""
    size = num_categories
    holders = [1]
    while holders[-1] < size / 8:
        holders.append(max(holders[-1] + 1, round(holders[-1] * HOLDERS_STEP)))
    parts = [part for part in (0.5, 0.25, 0.125) if part > 0.5 / size]
    parts += [number / size for number in holders if number < size / 8]
    spread = 2 + math.log2(max(1, size / 16))
    one = [(shape, 1.0, 0.0, -((math.log2(shape) / spread) ** 2) / 2) for shape in SHAPES]
    spiked = [(shape, part, 0.0, 0.0) for part in parts for shape in SHAPES_BESIDE_EMPTY]
    two = [
        (shape, part, low, 0.0)
        for part in parts
        for shape in SHAPES_BESIDE_EMPTY[1:]
        for low in LEVELS
        if low / (1 - part) < 0.7 * (1 - low) / part
    ]
    rows = []
    for group in (one, spiked, two):
        total = np.logaddexp.reduce([row[3] for row in group])
        rows += [(*row[:3], row[3] - total) for row in group]
    shape, part, low, log_prior = (np.array(column) for column in zip(*rows, strict=True))
    equal = 0.5 * max(0.0, 1 - 16 / size)
    if equal:  # more weight of equal shares
        place = len(SHAPES) - 1
        log_prior[place] = -np.inf
        log_prior[place] = math.log(equal / (1 - equal)) + np.logaddexp.reduce(log_prior)
    with np.errstate(divide="ignore"):
        log_mean = np.log((1 - low) / (size * part))
        log_mean_below = np.log(low / (size * np.maximum(1 - part, 1e-300)))
    return Members(np.searchsorted(SHAPES, shape), part, log_mean, log_mean_below, log_prior)


@cache
def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of the distribution function of each Gamma of mean one, at even places of log x; first place and step.

    Before the first place, e⁻¹² or less, they are extrapolated linearly, which is rough for the smallest shapes.
    """
    logits, starts, steps = [], [], []
    for shape in SHAPES:
        low, high = max(-12.0, -13 / math.sqrt(shape)), math.log1p(13 / math.sqrt(shape) + 85 / shape)
        fine = np.linspace(low, high, 16 * (NUM_KNOTS - 1) + 1)
        x = np.exp(fine)
        log_density = shape * (fine - np.expm1(fine))  # of log x, up to a constant
        density = np.exp(log_density)
        area = np.diff(fine) * (density[1:] + density[:-1]) / 2
        # Mills' ratios beyond both ends.
        below = np.cumsum(np.append(density[0] / (shape * (1 - x[0])), area))
        above = np.cumsum(np.append(density[-1] / (shape * (x[-1] - 1)), area[::-1]))[::-1]
        logits.append((np.log(below) - np.log(above))[::16])
        starts.append(low)
        steps.append((high - low) / (NUM_KNOTS - 1))
    return np.array(logits), np.array(starts), np.array(steps)


def masses(log_edges: Float[Array, " n"], shape: np.ndarray, log_mean: np.ndarray) -> Float[Array, "R n+1"]:
    """The mass of Gamma distributions between edges of shares, and beyond the first and the last.

    `shape` `[R]` has their places in `SHAPES`, `log_mean` `[R]` the logarithms of their means.
    """
    tables, starts, steps = _tables()
    dtype = log_edges.dtype
    place = (log_edges - (log_mean + starts[shape])[:, None].astype(dtype)) / steps[shape][:, None].astype(dtype)
    knot = jnp.clip(place.astype(jnp.int32), 0, NUM_KNOTS - 2)
    table = jnp.asarray(tables, dtype).ravel()
    index = knot + (NUM_KNOTS * shape)[:, None].astype(np.int32)
    left, right = looked_up(table, index), looked_up(table, index + 1)
    logit = jnp.clip(left + (right - left) * (place - knot.astype(dtype)), -LARGEST_LOGIT, LARGEST_LOGIT)
    # The difference of two numbers below one half keeps the digits of both tails.
    down, up = jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)
    upper = logit[:, :-1] > 0
    inner = jnp.where(upper, up[:, :-1] - up[:, 1:], down[:, 1:] - down[:, :-1])
    return jnp.concatenate([down[:, :1], inner, up[:, -1:]], axis=1)


def base_prior(
    table: Float[Array, "B M"], weight: Float[Array, " B"], log_edges: Float[Array, " M-1"], num_categories: int
) -> Float[Array, " M"]:
    """The masses of the atoms, averaged over all members; `table` has the likelihood of a count at an atom."""
    members = members_of(num_categories)
    upper = jnp.asarray(members.upper, table.dtype)
    mass = upper[:, None] * masses(log_edges, members.shape, members.log_mean)
    spiked = np.isneginf(members.log_mean_below)
    two = np.flatnonzero(~spiked)
    below = masses(log_edges, members.shape[two], members.log_mean_below[two])
    rest = jnp.asarray(1 - members.upper, table.dtype)
    mass = mass.at[:, 0].add(jnp.where(spiked, rest, 0))
    mass = mass.at[two].add(rest[two][:, None] * below)
    tiny = jnp.finfo(table.dtype).tiny
    likelihood = matmul(weight, jnp.log(jnp.maximum(matmul(table, mass.T), tiny)))
    posterior = jax.nn.softmax(likelihood + members.log_prior.astype(table.dtype))
    return (1 - LEAST_MASS) * matmul(posterior, mass) + LEAST_MASS / table.shape[1]
