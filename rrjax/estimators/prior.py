"""The prior of empirical Bayes: a distribution of shares on atoms, and the posterior of a share given its count.

Support counts are Binomial(N, q + d·θ). On the arcsine scale x = 2·√N·arcsin √μ each count has a standard deviation of
about one. So counts are gathered in cells, and the prior has its atoms, less than one standard deviation apart where
counts are dense: around the counts of empty categories and of equal shares. Farther out the atoms lie farther apart.
The largest counts have cells and atoms of their own, so that the prior does not shrink an outstanding share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import Estimand
from rrjax.data.tally import Evidence
from rrjax.numerics.bisection import bisected
from rrjax.numerics.sharding import aligned, looked_up
from rrjax.numerics.special import deviance

NUM_LARGEST = 64
"""Number of largest counts with cells and atoms of their own."""
SORTED_IN_ROWS_FROM = 2**16
"""Number of categories from which on the largest counts are found without sorting all."""
EVEN_WITHIN = 8.0
"""Standard deviations around a centre within which the warped scale is nearly even."""
NARROWEST_CELL = 0.25
"""Smallest width of a cell on the warped scale."""
MARGIN = 3.0
"""Distance of the outermost atoms beyond the counts, in standard deviations."""


class Cells(NamedTuple):
    """A histogram of the support counts, less N·q."""

    low: Float[Array, " B"]  # the smallest count in a cell
    high: Float[Array, " B"]  # the largest count in a cell
    weight: Float[Array, " B"]  # the number of counts
    cell: Int[Array, " K"]  # the cell of each category

    @property
    def middle(self) -> Float[Array, " B"]:
        """The count that stands for a cell."""
        return self.low + (self.high - self.low) / 2


class Atoms(NamedTuple):
    """The support of the prior. Its last two atoms are an empty category and equal shares."""

    share: Float[Array, " M"]  # θ
    x: Float[Array, " M"]  # on the arcsine scale
    variance: Float[Array, " M"]  # of x around an atom, if its interval is wider than the noise of a count; else zero
    gap_variance: Float[Array, " M"]  # the same around a single count: part of the posterior, not of the likelihood


class Largest(NamedTuple):
    """The largest counts less N·q `[L]`, falling, and their categories `[L]`."""

    excess: Float[Array, " L"]
    category: Int[Array, " L"]


def largest_of(data: Evidence) -> Largest:
    """The 64 largest counts, or all if there are fewer."""
    excess, category = _top(data.excess, min(NUM_LARGEST, data.support.shape[0]))
    # Fused with the uses of its results, XLA would sort all categories. One barrier each: a barrier over both does not
    # compile for many devices.
    return Largest(lax.optimization_barrier(excess), lax.optimization_barrier(category))


def _top(values, number):
    """As `lax.top_k`, but may choose others among equal values. `top_k` is slow for millions of categories."""
    size = values.shape[0]
    if size < SORTED_IN_ROWS_FROM or AxisType.Explicit in jax.typeof(values).sharding.mesh.axis_types:
        return lax.top_k(values, number)
    width = 1 << (size.bit_length() // 2)
    padding = aligned(jnp.full(-size % width, -jnp.inf, values.dtype), values)
    rows = jnp.concatenate([values, padding]).reshape(-1, width)
    # The rows with the largest maxima hold the largest values.
    _, best = lax.top_k(jnp.max(rows, axis=1), number)
    best = jnp.sort(best)  # so that equal values stay in order within these rows
    found, place = lax.top_k(rows[best].ravel(), number)
    return found, best[place // width] * width + place % width


def arcsine_of_excess(data: Evidence, excess: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The x of a count, from count − N·q."""
    number = data.num_users
    share = (excess + number * data.q) / number
    tiny = jnp.finfo(share.dtype).tiny  # a root has no slope at zero
    roots = jnp.sqrt(jnp.clip(share, tiny, 1)), jnp.sqrt(jnp.clip(1 - share, tiny, 1))
    return 2 * jnp.sqrt(number) * jnp.arctan2(*roots)


def arcsine_of_share(data: Evidence, share: ArrayLike) -> Float[Array, "*s"]:
    """The x of the expected count of a share."""
    chance, complement = data.q + data.rates.d * share, data.rates.not_p + data.rates.d * (1 - share)
    return 2 * jnp.sqrt(data.num_users) * jnp.arctan2(jnp.sqrt(chance), jnp.sqrt(complement))


def share_of_arcsine(data: Evidence, x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The share in [0, 1] whose expected count has this x."""
    angle = jnp.clip(x / (2 * jnp.sqrt(data.num_users)), 0, jnp.pi / 2)  # x of counts from 0 to N
    chance = jnp.sin(angle) ** 2
    return jnp.clip((chance - data.q) / data.rates.d, 0, 1)


def warped(*distances: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The scale on which cells and atoms are even, from the distances to its centres; logarithmic far from them."""
    return EVEN_WITHIN * reduce(jnp.add, [jnp.arcsinh(distance / EVEN_WITHIN) for distance in distances])


def cell_of(scale: Float[Array, " K"], start: Array, end: Array, number: int) -> Int[Array, " K"]:
    """The cell of each warped value, of `number` equal cells from start to end."""
    width = jnp.maximum(NARROWEST_CELL, (end - start) / (number - 1) * (1 + 1e-5))
    return jnp.clip(((scale - start) / width).astype(jnp.int32), 0, number - 1)


def _warped(data: Evidence, x):
    """The scale around the x of an empty category and of equal shares."""
    return warped(*(x - arcsine_of_share(data, share) for share in (0.0, 1 / data.support.shape[0])))


def cells_of(data: Evidence, largest: Largest, number: int) -> Cells:
    """Gathers the counts in cells: one for each count if there are enough cells, else for each of the largest."""
    size = data.support.shape[0]
    dtype = data.excess.dtype
    if size <= number:
        return Cells(data.excess, data.excess, jnp.ones_like(data.excess), jnp.arange(size, dtype=jnp.int32))
    shared = number - largest.category.shape[0]
    scale = _warped(data, arcsine_of_excess(data, data.excess))
    end = _warped(data, arcsine_of_excess(data, largest.excess[-1]))
    index = cell_of(scale, jnp.min(scale), end, shared)
    index = index.at[largest.category].set(jnp.arange(shared, number, dtype=jnp.int32))
    empty = jnp.full(number, jnp.inf, dtype)
    low = empty.at[index].min(data.excess)
    high = (-empty).at[index].max(data.excess)
    weight = jnp.zeros(number, dtype).at[index].add(1)
    return Cells(jnp.where(weight > 0, low, 0), jnp.where(weight > 0, high, 0), weight, index)


def atoms_of(data: Evidence, largest: Largest, number: int) -> Atoms:
    """The atoms: an even grid on the warped scale, the largest counts themselves, no share, and equal shares."""
    size, num_largest = data.support.shape[0], largest.category.shape[0]
    least, most, middle = (arcsine_of_share(data, share) for share in (0.0, 1.0, 1 / size))
    # The grid ends where counts have atoms of their own.
    low = jnp.clip(arcsine_of_excess(data, jnp.min(data.excess)) - MARGIN, least, middle)
    high = arcsine_of_excess(data, largest.excess[min(num_largest, size // 2) - 1]) + MARGIN
    high = jnp.clip(high, jnp.minimum(middle + MARGIN, most), most)
    grid = _grid(data, low, high, number - num_largest - 2)
    single = arcsine_of_excess(data, largest.excess)
    special = jnp.stack([least, middle])
    single_share = jnp.clip(largest.excess / (data.num_users * data.rates.d), 0, 1)
    share = _joined(share_of_arcsine(data, grid), single_share, jnp.asarray([0, 1 / size], special.dtype))
    x = _joined(grid, jnp.clip(single, least, most), special)
    return Atoms(share, x, *variances_of(grid, single, special))


def _joined(*parts):
    return jnp.concatenate(aligned(parts))


def variances_of(
    grid: Float[Array, " m"], single: Float[Array, " L"], special: Float[Array, " s"]
) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """Variances and gap variances of atoms: of a rising grid, of falling single counts, and of points (both zero).

    An atom of the grid stands for all shares up to halfway to its neighbours. The last single count has the end of the
    grid as its neighbour.
    """

    def uniform(width):
        return jnp.where(width > 1, width**2 / 12, 0)  # zero if atoms are closer than the noise of counts

    step = jnp.diff(grid)
    within = uniform((jnp.append(step, step[-1]) + jnp.append(step[0], step)) / 2)
    beside = jnp.concatenate([single[:1] + 2 * MARGIN, single, grid[-1:]])
    gap = uniform(jnp.abs(beside[:-2] - beside[2:]) / 2)
    none = jnp.zeros_like(special)
    return _joined(within, jnp.zeros_like(single), none), _joined(jnp.zeros_like(grid), gap, none)


def _grid(data: Evidence, low, high, number: int):
    """The x of a grid that is even on the warped scale, by bisection."""
    ends = _warped(data, low), _warped(data, high)
    wanted = ends[0] + (ends[1] - ends[0]) * jnp.asarray(np.linspace(0, 1, number), low.dtype)
    span = aligned((jnp.full_like(wanted, low), jnp.full_like(wanted, high)), wanted)
    below, above = bisected(lambda x: _warped(data, x) < wanted, *span, jnp.finfo(low.dtype).nmant + 1)
    return below + (above - below) / 2


def widened(negative_square: Float[Array, "*s"], variance: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The log-likelihood of unit noise around an atom with a variance, from minus the squared distance."""
    return negative_square / (2 * (1 + variance)) - jnp.log1p(variance) / 2


def reliability(variance: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The part of a deviation that is signal, with this variance and noise of variance one."""
    return variance / (1 + variance)


def _chances(data: Evidence, d, share):
    """The probabilities that a report supports a category of this share, and that it does not (positive)."""
    return data.q + d * share, jnp.maximum(data.rates.not_p + d * (1 - share), jnp.finfo(d.dtype).tiny)


def log_likelihoods(data: Evidence, excess: Float[Array, " B"], atoms: Atoms) -> Float[Array, "B M"]:
    """Log-likelihood of a count at an atom, less the largest at any share: never a difference of large numbers.

    With θ̂ the likeliest share, N·q + N·d·θ̂ is the count unless θ̂ is 0 or 1. The difference is a deviance between the
    expectations under θ̂ and under θ, and the rest of the count times a difference of logits.
    """
    number, d = data.num_users, data.rates.d
    excess = excess[:, None]
    likeliest = jnp.clip(excess / (number * d), 0, 1)
    remainder = excess - number * d * likeliest
    (named, other), (named_best, other_best) = _chances(data, d, atoms.share), _chances(data, d, likeliest)
    difference = d * (likeliest - atoms.share)
    least = -1 + jnp.finfo(d.dtype).eps  # not −1, which rounding may miss on either side

    def lost(mean, difference):
        return mean * deviance(jnp.maximum(difference / mean, least))

    named_logit = jnp.log1p(jnp.maximum(-difference / named_best, least))
    logits = named_logit - jnp.log1p(jnp.maximum(difference / other_best, least))
    exact = remainder * logits - number * (lost(named, difference) + lost(other, -difference))
    x = arcsine_of_excess(data, excess)
    nearest = jnp.clip(x, *(arcsine_of_share(data, share) for share in (0.0, 1.0)))
    wide = widened((x - nearest) ** 2 - (x - atoms.x) ** 2, atoms.variance)
    return jnp.where(atoms.variance > 0, wide, exact)


def among(
    data: Evidence,
    estimand: Estimand,
    excess: Float[Array, "*#s"],
    share: Float[Array, "*#s"],
    variance: Float[Array, "*#s"],
) -> tuple[Float[Array, "*s"], Float[Array, "*s"]]:
    """Mean and variance of the estimand, from the mean and variance of the share in the users' distribution.

    The share among these users counts the holders among the reports that support the category, and among the others.
    """
    if estimand == "distribution":
        return share, variance
    number = data.num_users
    chance, complement = _chances(data, data.rates.d, share)
    supporting = (excess + number * data.q) / number
    of_these = jnp.minimum(share * (data.rates.p / chance), 1)
    of_others = jnp.minimum(share * (data.rates.not_p / complement), 1)
    slope = supporting * (data.q / chance) * (data.rates.p / chance)
    slope = slope + (1 - supporting) * (data.rates.not_p / complement) * (data.rates.not_q / complement)
    drawn = supporting * of_these * (1 - of_these) + (1 - supporting) * of_others * (1 - of_others)
    return supporting * of_these + (1 - supporting) * of_others, slope**2 * variance + drawn / number


def posterior_of(
    data: Evidence, excess: Float[Array, " B"], atoms: Atoms, weights: Float[Array, " M"], estimand: Estimand
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Posterior mean `[B]` and variance `[B]` of the share of a category, given its count."""
    number, d = data.num_users, data.rates.d
    joint = log_likelihoods(data, excess, atoms) + jnp.log(jnp.maximum(weights, jnp.finfo(d.dtype).tiny))
    posterior = jnp.exp(joint - lax.stop_gradient(jnp.max(joint, axis=1, keepdims=True)))
    posterior = posterior / jnp.sum(posterior, axis=1, keepdims=True)
    # Within the interval of an atom, the count itself determines the share.
    x = atoms.x + reliability(atoms.variance) * (arcsine_of_excess(data, excess)[:, None] - atoms.x)
    share = jnp.where(atoms.variance > 0, share_of_arcsine(data, x), atoms.share)
    chance, complement = _chances(data, d, share)
    # A variable in [0, 1] has a variance of at most a quarter.
    part = reliability(atoms.variance + atoms.gap_variance)
    variance = jnp.minimum(part * (chance / d) * (complement / d) / number, 0.25)
    share, variance = among(data, estimand, excess[:, None], share, variance)
    mean = jnp.sum(posterior * share, axis=1)
    return mean, jnp.sum(posterior * (variance + (share - mean[:, None]) ** 2), axis=1)


def read_cells(
    data: Evidence,
    cells: Cells,
    posterior: Callable[[Float[Array, " n"]], tuple[Float[Array, " n"], Float[Array, " n"]]],
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Posterior means and variances of all categories, interpolated between the ends of their cells."""
    if cells.low.shape == data.excess.shape:  # each has its own
        return posterior(data.excess)
    number = cells.low.shape[0]
    mean, variance = posterior(jnp.concatenate([cells.low, cells.high]))
    low, high = looked_up(cells.low, cells.cell), looked_up(cells.high, cells.cell)
    part = jnp.where(high > low, (data.excess - low) / jnp.where(high > low, high - low, 1), 0)

    def between(values):
        return looked_up(values[:number], cells.cell) * (1 - part) + looked_up(values[number:], cells.cell) * part

    return between(mean), between(variance)
