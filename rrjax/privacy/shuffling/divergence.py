r"""How far apart two neighbouring collections are after shuffling, bounded from either side.

Of N users one has the law P or Q, which is all that the neighbours differ in. Every other one may be taken to report a
draw from one law that all of them have in common, with the same probability; the rest of their reports is given away.
With ω that law times that probability, the divergence is (Balle et al., Lemma 5.3)

    δ(ε_c) = E(Z_1 + … + Z_N)₊ / N,    Z = (P − e^ε_c·Q)(y)/ω(y) at a report y drawn from ω, else 0.

Here a report is of one of two kinds that tell P from Q, or of kinds that do not. So S = Σ Z is linear in the counts, A
and B of the telling kinds and C of each silent one. Given the total T = A + B and C, A is binomial, and S is a number
times A less a threshold. T and C are cut into cells, tails included, in which S is made larger (or, for the bound from
below, smaller):

* A binomial count less its mean is the smaller in the convex order, the fewer the trials: A has the cell's most.
* C is stochastically the smaller, the larger T is, and S falls in it: in a cell it has the law of the cell's most T.
* In what is left S is linear, so its positive part is convex, in T and in C: the cell's mass is moved to its two ends,
  its mean kept. From below, the fewest instead of the most, and the mass is moved to the mean.

So nothing is cut off, and no tail has to be added.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rrjax.privacy.shuffling.tails import Cells, Numbers, cells, excess

_CELLS = {0: (512,), 1: (96, 24), 2: (40, 12, 6)}
"""Of T and of each C, by how many silent kinds there are. With fewer users than any of them nothing is rounded."""


class Pair(NamedTuple):
    """Two laws of a report, P and Q, and what all other users have in common."""

    gain: float
    """P − Q of the first telling kind, Q − P of the second one: the total variation between P and Q."""
    least: tuple[float, float]
    """Q of either telling kind."""
    common: tuple[float, float]
    """ω of either telling kind."""
    silent: tuple[tuple[float, float], ...]
    """P = Q of every silent kind, and ω there; those with P = 0 or ω = 0 left out."""
    rest: float
    """What ω leaves for all but the telling kinds. Given, because 1 less these cancels where it is small."""


def divergence(num_users: int, pair: Pair, central_epsilon: float, *, upper: bool) -> float:
    """The hockey-stick divergence of order e^ε_c, from above or from below."""
    margin = 1e-9 + 1e-13 * math.sqrt(num_users)
    e1 = math.expm1(central_epsilon)
    for_p = (pair.gain - pair.least[0] * e1) / pair.common[0]
    if for_p <= 0:
        return 0.0
    height = for_p + (pair.gain + pair.least[1] * e1) / pair.common[1]
    telling = sum(pair.common)
    share = pair.common[0] / telling
    numbers = _CELLS[len(pair.silent)]

    value, bound, mass = _nodes(np.array(float(num_users)), telling, pair.rest, numbers[0], upper)
    # S is `height` times what A exceeds the trials less `room` by. Where e^ε_c is large, one report of the second kind
    # undoes more than all of the first kind can do, and the room is less than a rounding of the trials.
    trials, room = bound, bound * for_p + (bound - value) * (sum(pair.least) * e1 / telling)
    left, rest = np.maximum(num_users - bound, 0), pair.rest
    for (probability, common), number in zip(pair.silent, numbers[1:], strict=True):
        value, bound, of_kind = _nodes(left, common, rest - common, number, upper)
        room = room[..., None] - probability * e1 / common * value
        left, rest = np.maximum(left[..., None] - bound, 0), max(rest - common, 0.0)
        mass, trials = mass[..., None] * of_kind, trials[..., None]

    used = mass > 0
    trials, room = np.broadcast_to(trials, mass.shape)[used], room[used] / height
    fewest = np.floor(trials * share) + 1  # more than the mean, which the threshold may be
    k = np.maximum(trials - np.floor(room), fewest)
    expected = float(height * np.sum(mass[used] * excess(k, trials, share, room - (trials - k))) / num_users)
    if not upper:  # shuffling adds nothing to what one report tells alone
        return max(min(expected * (1 - margin), pair.gain - pair.least[0] * e1), 0.0)
    # Without shuffling it is at most the total variation, and shuffling adds nothing.
    return min(expected * (1 + margin), pair.gain)


def _nodes(trials: Numbers, weight: float, other: float, number: int, upper: bool) -> tuple[Numbers, Numbers, Numbers]:
    """A binomial count made to take fewer values."""
    whole = weight + max(other, 0.0)
    if weight <= other:
        found = cells(trials, weight / whole, number)
    else:  # by what is not counted, of which nothing is to be lost where it is rare
        found, all_of_them = cells(trials, max(other, 0.0) / whole, number), trials[..., None]
        found = Cells(all_of_them - found.most, all_of_them - found.least, found.mass, all_of_them - found.mean)
    if not upper:
        return found.mean, found.least, found.mass
    width = found.most - found.least
    far = found.mass * np.where(width > 0, (found.mean - found.least) / np.where(width > 0, width, 1), 0)
    ends = np.concatenate((found.least, found.most), axis=-1)
    return ends, np.concatenate((found.most, found.most), axis=-1), np.concatenate((found.mass - far, far), axis=-1)
