"""How shares are spread over the categories: what the histogram of all counts says about each of them.

Support counts are Binomial(N, q + d·θ). On the scale x = 2·√N·arcsin √μ each has a standard deviation of about one;
so counts are gathered in cells, and the spread has its atoms, at distances of a part of that where counts are dense:
around those of categories that nobody holds, and of equal shares. Farther out they lie farther apart; but the largest
counts keep cells and atoms of their own, so that nothing pulls at a category that stands alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import Estimand
from rrjax.data.tally import Evidence
from rrjax.numerics.sharding import aligned, looked_up
from rrjax.numerics.special import deviance

OWN = 64
"""Largest counts with cells and atoms of their own."""
_MANY = 2**16
"""Categories from which on they are not all sorted for the largest."""
BEND = 8.0
"""Standard deviations around the two centres within which the scale is nearly even."""
FINEST = 0.25
REACH = 3.0
"""Standard deviations beyond the counts, as far as atoms go."""


class Cells(NamedTuple):
    """A histogram of the support counts.

    Attributes:
        low: `[B]`, the smallest count in a cell, less N·q.
        high: `[B]`, the largest.
        weight: `[B]`, how many there are.
        place: `[K]`, the cell of each category.
    """

    low: Float[Array, " B"]
    high: Float[Array, " B"]
    weight: Float[Array, " B"]
    place: Int[Array, " K"]

    @property
    def middle(self) -> Float[Array, " B"]:
        """What stands for the counts in a cell."""
        return self.low + (self.high - self.low) / 2


class Atoms(NamedTuple):
    """Where the spread may have mass. The last two stand for categories that nobody holds, and for equal shares.

    Attributes:
        share: `[M]`, θ.
        place: `[M]`, x.
        smear: `[M]`, the variance of x around an atom that stands for shares that lie farther apart than counts do.
        alone: `[M]`, the same for an atom at a count of its own: it blurs what is known, not what is likely.
    """

    share: Float[Array, " M"]
    place: Float[Array, " M"]
    smear: Float[Array, " M"]
    alone: Float[Array, " M"]


class Largest(NamedTuple):
    """The largest counts, which stay by themselves.

    Attributes:
        excess: `[L]`, falling.
        who: `[L]`, their categories.
    """

    excess: Float[Array, " L"]
    who: Int[Array, " L"]


def largest_of(data: Evidence) -> Largest:
    """Picks the 64 largest counts, or all where there are fewer."""
    excess, who = _top(data.excess, min(OWN, data.support.shape[0]))
    # Together with what becomes of its results, XLA would sort all categories for them. One barrier each: over both
    # together it does not compile for many devices.
    return Largest(lax.optimization_barrier(excess), lax.optimization_barrier(who))


def _top(values, number):
    """As `lax.top_k`, but for which ones of equal values: it takes most of the time of an estimate of millions."""
    size = values.shape[0]
    if size < _MANY or AxisType.Explicit in jax.typeof(values).sharding.mesh.axis_types:
        return lax.top_k(values, number)
    width = 1 << (size.bit_length() // 2)
    rest = aligned(jnp.full(-size % width, -jnp.inf, values.dtype), values)
    rows = jnp.concatenate([values, rest]).reshape(-1, width)
    # So many rows hold a value that is not below any value of the other rows.
    _, best = lax.top_k(jnp.max(rows, axis=1), number)
    best = jnp.sort(best)  # so that of equal values the first go first, within these rows
    found, place = lax.top_k(rows[best].ravel(), number)
    return found, best[place // width] * width + place % width


def place_of_excess(data: Evidence, excess: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """X of counts, from what they exceed N·q by."""
    number = data.num_users
    share = (excess + number * data.q) / number
    tiny = jnp.finfo(share.dtype).tiny  # a root has no slope at zero
    roots = jnp.sqrt(jnp.clip(share, tiny, 1)), jnp.sqrt(jnp.clip(1 - share, tiny, 1))
    return 2 * jnp.sqrt(number) * jnp.arctan2(*roots)


def place_of_share(data: Evidence, share: ArrayLike) -> Float[Array, "*s"]:
    """X of the count that users with this share of all are expected to get."""
    chance, rest = data.q + data.rates.d * share, data.rates.not_p + data.rates.d * (1 - share)
    return 2 * jnp.sqrt(data.num_users) * jnp.arctan2(jnp.sqrt(chance), jnp.sqrt(rest))


def share_at(data: Evidence, place: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The share whose users are expected to give a count at x, within [0, 1]."""
    angle = jnp.clip(place / (2 * jnp.sqrt(data.num_users)), 0, jnp.pi / 2)  # beyond, no count is
    chance = jnp.sin(angle) ** 2
    return jnp.clip((chance - data.q) / data.rates.d, 0, 1)


def _warped(data: Evidence, place):
    """The even scale of cells and atoms: dense around what an empty category and an equal share get."""
    low, middle = place_of_share(data, 0.0), place_of_share(data, 1 / data.support.shape[0])
    return BEND * (jnp.arcsinh((place - low) / BEND) + jnp.arcsinh((place - middle) / BEND))


def cells_of(data: Evidence, largest: Largest, number: int) -> Cells:
    """Gathers the counts in cells: each in one of its own where there are so many; else the largest ones."""
    size = data.support.shape[0]
    dtype = data.excess.dtype
    if size <= number:
        return Cells(data.excess, data.excess, jnp.ones_like(data.excess), jnp.arange(size, dtype=jnp.int32))
    shared = number - largest.who.shape[0]
    scale = _warped(data, place_of_excess(data, data.excess))
    start, end = jnp.min(scale), _warped(data, place_of_excess(data, largest.excess[-1]))
    width = jnp.maximum(FINEST, (end - start) / (shared - 1) * (1 + 1e-5))
    place = jnp.clip(((scale - start) / width).astype(jnp.int32), 0, shared - 1)
    place = place.at[largest.who].set(jnp.arange(shared, number, dtype=jnp.int32))
    empty = jnp.full(number, jnp.inf, dtype)
    low = empty.at[place].min(data.excess)
    high = (-empty).at[place].max(data.excess)
    weight = jnp.zeros(number, dtype).at[place].add(1)
    return Cells(jnp.where(weight > 0, low, 0), jnp.where(weight > 0, high, 0), weight, place)


def atoms_of(data: Evidence, largest: Largest, number: int) -> Atoms:
    """An even grid on the warped scale, the largest counts themselves, no share at all, and equal shares."""
    size = data.support.shape[0]
    own = largest.who.shape[0]
    least, most, middle = (place_of_share(data, share) for share in (0.0, 1.0, 1 / size))
    # The grid ends where counts have atoms of their own.
    low = jnp.clip(place_of_excess(data, jnp.min(data.excess)) - REACH, least, middle)
    high = place_of_excess(data, largest.excess[min(own, size // 2) - 1]) + REACH
    high = jnp.clip(high, jnp.minimum(middle + REACH, most), most)
    even = _grid(data, low, high, number - own - 2)
    grid = Atoms(share_at(data, even), even, smear_of(even), jnp.zeros_like(even))
    sized = place_of_excess(data, largest.excess)
    share = jnp.clip(largest.excess / (data.num_users * data.rates.d), 0, 1)
    alone = Atoms(share, jnp.clip(sized, least, most), jnp.zeros_like(sized), alone_of(sized, even[-1:]))
    place = jnp.stack([least, middle])
    special = Atoms(jnp.asarray([0, 1 / size], place.dtype), place, jnp.zeros_like(place), jnp.zeros_like(place))
    return jax.tree.map(lambda *parts: jnp.concatenate(aligned(parts)), grid, alone, special)


def smear_of(grid: Float[Array, " m"]) -> Float[Array, " m"]:
    """The variance `[m]` around each place of a rising grid, which stands for those half of the way to its neighbours.

    Zero where places are closer than counts scatter.
    """
    step = jnp.diff(grid)
    return _blur((jnp.append(step, step[-1]) + jnp.append(step[0], step)) / 2)


def alone_of(places: Float[Array, " L"], below: Float[Array, 1]) -> Float[Array, " L"]:
    """The same `[L]` around falling places of single counts, the last of which has `below` as its neighbour."""
    beside = jnp.concatenate([places[:1] + 2 * REACH, places, below])
    return _blur(jnp.abs(beside[:-2] - beside[2:]) / 2)


def _blur(apart):
    return jnp.where(apart > 1, apart**2 / 12, 0)


def _grid(data: Evidence, low, high, number: int):
    """Places that are even on the warped scale, by bisection."""
    ends = _warped(data, low), _warped(data, high)
    wanted = ends[0] + (ends[1] - ends[0]) * jnp.asarray(np.linspace(0, 1, number), low.dtype)

    def halve(_, span):
        below, above = span
        half = (below + above) / 2
        up = _warped(data, half) < wanted
        return jnp.where(up, half, below), jnp.where(up, above, half)

    span = aligned((jnp.full_like(wanted, low), jnp.full_like(wanted, high)), wanted)
    below, above = lax.fori_loop(0, jnp.finfo(low.dtype).nmant + 1, halve, span)
    return below + (above - below) / 2


def log_likelihoods(data: Evidence, excess: Float[Array, " B"], atoms: Atoms) -> Float[Array, "B M"]:
    """Log-likelihood of a count at an atom, less the largest that any share gives it: never a difference of large ones.

    With θ̂ that likeliest share, N·q + N·d·θ̂ is the count unless θ̂ is 0 or 1. The rest is a deviance, of what θ̂ expects
    from what θ does, and what the count is beyond that, times a difference of logits.
    """
    number, d = data.num_users, data.rates.d
    excess = excess[:, None]
    tiny = jnp.finfo(d.dtype).tiny
    likeliest = jnp.clip(excess / (number * d), 0, 1)
    beyond = excess - number * d * likeliest

    def expected(share):
        return data.q + d * share, jnp.maximum(data.rates.not_p + d * (1 - share), tiny)

    (named, other), (named_best, other_best) = expected(atoms.share), expected(likeliest)
    apart = d * (likeliest - atoms.share)
    least = -1 + jnp.finfo(d.dtype).eps  # not −1, which rounding may miss on either side

    def lost(mean, difference):
        return mean * deviance(jnp.maximum(difference / mean, least))

    logits = jnp.log1p(jnp.maximum(-apart / named_best, least)) - jnp.log1p(jnp.maximum(apart / other_best, least))
    exact = beyond * logits - number * (lost(named, apart) + lost(other, -apart))
    place = place_of_excess(data, excess)
    inside = jnp.clip(place, *(place_of_share(data, share) for share in (0.0, 1.0)))
    far = (place - inside) ** 2 - (place - atoms.place) ** 2
    wide = far / (2 * (1 + atoms.smear)) - jnp.log1p(atoms.smear) / 2
    return jnp.where(atoms.smear > 0, wide, exact)


def among_users(
    data: Evidence, excess: Float[Array, "*#s"], share: Float[Array, "*#s"], variance: Float[Array, "*#s"]
) -> tuple[Float[Array, "*s"], Float[Array, "*s"]]:
    """Mean and variance of the share of these very users, where that of their distribution has those, given a count.

    Of the reports that support a category, so many are of users who hold it; of the others, so many.
    """
    number, d = data.num_users, data.rates.d
    chance = data.q + d * share
    rest = jnp.maximum(data.rates.not_p + d * (1 - share), jnp.finfo(d.dtype).tiny)
    with_it = (excess + number * data.q) / number
    of_these = jnp.minimum(share * (data.rates.p / chance), 1)
    of_others = jnp.minimum(share * (data.rates.not_p / rest), 1)
    slope = with_it * (data.q / chance) * (data.rates.p / chance)
    slope = slope + (1 - with_it) * (data.rates.not_p / rest) * (data.rates.not_q / rest)
    drawn = with_it * of_these * (1 - of_these) + (1 - with_it) * of_others * (1 - of_others)
    return with_it * of_these + (1 - with_it) * of_others, slope**2 * variance + drawn / number


def posterior_of(
    data: Evidence, excess: Float[Array, " B"], atoms: Atoms, weights: Float[Array, " M"], estimand: Estimand
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Mean `[B]` and variance `[B]` of the share of a category with such a count, under a prior."""
    number, d = data.num_users, data.rates.d
    likely = log_likelihoods(data, excess, atoms) + jnp.log(jnp.maximum(weights, jnp.finfo(d.dtype).tiny))
    known = jnp.exp(likely - lax.stop_gradient(jnp.max(likely, axis=1, keepdims=True)))
    known = known / jnp.sum(known, axis=1, keepdims=True)
    # Around an atom that stands for a stretch of shares, the count itself says which.
    kept = atoms.smear / (1 + atoms.smear)
    near = atoms.place + kept * (place_of_excess(data, excess)[:, None] - atoms.place)
    share = jnp.where(atoms.smear > 0, share_at(data, near), atoms.share)
    chance = data.q + d * share
    rest = jnp.maximum(data.rates.not_p + d * (1 - share), jnp.finfo(d.dtype).tiny)
    blurred = atoms.smear + atoms.alone
    # Of θ around an atom; of nothing in [0, 1] more than a quarter.
    spread = jnp.minimum(blurred / (1 + blurred) * (chance / d) * (rest / d) / number, 0.25)
    value = share
    if estimand == "users":
        value, spread = among_users(data, excess[:, None], share, spread)
    mean = jnp.sum(known * value, axis=1)
    return mean, jnp.sum(known * (spread + (value - mean[:, None]) ** 2), axis=1)


def read_cells(
    data: Evidence,
    cells: Cells,
    posterior: Callable[[Float[Array, " n"]], tuple[Float[Array, " n"], Float[Array, " n"]]],
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Posterior means and variances of all categories, from those at both ends of their cells."""
    if cells.low.shape == data.excess.shape:  # each has its own
        return posterior(data.excess)
    number = cells.low.shape[0]
    mean, variance = posterior(jnp.concatenate([cells.low, cells.high]))
    low, high = looked_up(cells.low, cells.place), looked_up(cells.high, cells.place)
    part = jnp.where(high > low, (data.excess - low) / jnp.where(high > low, high - low, 1), 0)

    def between(values):
        return looked_up(values[:number], cells.place) * (1 - part) + looked_up(values[number:], cells.place) * part

    return between(mean), between(variance)
