r"""The hockey-stick divergence of two neighbouring collections after shuffling, bounded from either side.

One of the N users has the law P or Q, the only difference between the neighbours. Every other user may be taken to
report, with the same probability, a draw from a law that all of them have in common; the rest of their reports is
revealed. With ω that law times that probability, the divergence is (Balle et al., Lemma 5.3)

    δ(ε_c) = E(Z_1 + … + Z_N)₊ / N,    Z = (P − e^ε_c·Q)(y)/ω(y) at a report y drawn from ω, else 0.

A report is of one of two kinds that differ between P and Q ("telling"), or of a kind that does not ("silent"). So S = Σ
Z is linear in the counts, A and B of the telling kinds and C of each silent one. Given T = A + B and C, A is binomial,
and S is a number times A less a threshold. T and C are divided into cells, tails included, in which S is made larger
(or, for the bound from below, smaller):

* A binomial count less its mean is the smaller in the convex order, the fewer the trials: A has the cell's most.
* C is stochastically the smaller, the larger T is, and S falls in it: in a cell it has the law of the cell's most T.
* S is then linear in T and in C, so its positive part is convex: the cell's mass is moved to its two ends, its mean
  kept. For the bound from below, the fewest trials instead of the most, and the mass is moved to the mean.

So no mass is cut off, and no tail bound is needed.

Binomial tails above the mean are as in `rrjax.numerics.special`, with k successes of n trials of chance θ:

    P(X ≥ k) = pmf(k) · k · ∫₀^∞ exp(g(v)) dv,    g(v) = −k·v + (n−k)·log(1 + o·(1 − e^−v)),    o = θ/(1−θ),
    E[(X − nθ)·1{X ≥ k}] = pmf(k) · k · (1 − θ),

so the probabilities of rare events keep their digits. Here they are computed by NumPy in float64, because JAX may be
in float32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rrjax.numerics.special import quadrature_rule, stirling_series

Numbers = NDArray[np.float64]

NUM_CELLS = {0: (512,), 1: (96, 24), 2: (40, 12, 6)}
"""Numbers of cells of T and of each C, by the number of silent kinds. With fewer users nothing is rounded."""

LOG_CUT = 40.0
"""The integral ends where the integrand has fallen to e^−40."""

_NODES, _WEIGHTS = quadrature_rule(32)
_STIRLING_ERRORS = np.array([0.0] + [math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n for n in range(1, 32)])
_STIRLING_ERRORS[1:] -= math.log(2 * math.pi) / 2


class Pair(NamedTuple):
    """Two laws of a report, P and Q, and the common law ω of all other users."""

    gain: float
    """P − Q of the first telling kind, Q − P of the second one: the total variation between P and Q."""
    q: tuple[float, float]
    """Q of either telling kind."""
    common: tuple[float, float]
    """ω of either telling kind."""
    silent: tuple[tuple[float, float], ...]
    """P = Q and ω of every silent kind with P > 0 and ω > 0."""
    remainder: float
    """1 − ω of the telling kinds, given because the difference loses digits if it is small."""


def divergence(num_users: int, pair: Pair, central_epsilon: float, *, upper: bool) -> float:
    """The hockey-stick divergence of order e^ε_c, from above or from below."""
    margin = 1e-9 + 1e-13 * math.sqrt(num_users)
    e1 = math.expm1(central_epsilon)
    first_z = (pair.gain - pair.q[0] * e1) / pair.common[0]
    if first_z <= 0:
        return 0.0
    slope = first_z + (pair.gain + pair.q[1] * e1) / pair.common[1]
    telling = sum(pair.common)
    share = pair.common[0] / telling
    num_cells = NUM_CELLS[len(pair.silent)]

    value, bound, mass = _count_nodes(np.array(float(num_users)), telling, pair.remainder, num_cells[0], upper)
    # S = slope·(A − trials) + slack. If e^ε_c is large, one report of the second kind outweighs all of the first kind,
    # and slack/slope is less than a rounding of the trials.
    trials, slack = bound, bound * first_z + (bound - value) * (sum(pair.q) * e1 / telling)
    left, remainder = np.maximum(num_users - bound, 0), pair.remainder
    for (probability, common), number in zip(pair.silent, num_cells[1:], strict=True):
        value, bound, mass_of_kind = _count_nodes(left, common, remainder - common, number, upper)
        slack = slack[..., None] - probability * e1 / common * value
        left, remainder = np.maximum(left[..., None] - bound, 0), max(remainder - common, 0.0)
        mass, trials = mass[..., None] * mass_of_kind, trials[..., None]

    used = mass > 0
    trials, slack = np.broadcast_to(trials, mass.shape)[used], slack[used] / slope
    above_mean = np.floor(trials * share) + 1  # the threshold may be the mean itself
    k = np.maximum(trials - np.floor(slack), above_mean)
    expected = float(slope * np.sum(mass[used] * excess(k, trials, share, slack - (trials - k))) / num_users)
    if not upper:  # at least the divergence of one report alone
        return max(min(expected * (1 - margin), pair.gain - pair.q[0] * e1), 0.0)
    return min(expected * (1 + margin), pair.gain)  # at most the total variation


def _count_nodes(trials, weight, other, number, upper):
    """A few values in place of all of a binomial count: values, the counts of their cells, and masses."""
    whole = weight + max(other, 0.0)
    if weight <= other:
        low, high, mass, mean = cells(trials, weight / whole, number)
    else:  # by the complement, which keeps its digits if it is rare
        fewest, most, mass, mean_other = cells(trials, max(other, 0.0) / whole, number)
        low, high, mean = (trials[..., None] - each for each in (most, fewest, mean_other))
    if not upper:
        return mean, low, mass
    width = high - low
    at_high = mass * np.where(width > 0, (mean - low) / np.where(width > 0, width, 1), 0)
    return tuple(np.concatenate(each, axis=-1) for each in ((low, high), (high, high), (mass - at_high, at_high)))


def cells(trials: Numbers, chance: float, number: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Cells of 0 … n, narrow around the mass: their smallest and largest values, masses, and mean values.

    Shapes are `[*s, number]`. A mass is from the nearer tail. The ends of an empty cell have no meaning.
    """
    trials = trials[..., None]
    if chance in (0, 1):
        sure = trials * chance
        return sure, sure, np.ones_like(sure), sure
    mean, deviation = trials * chance, np.sqrt(trials * (chance * (1 - chance)))
    around_mean = np.ceil(mean + deviation * 2 * np.sinh(np.linspace(-2.1, 2.1, number + 1)))
    around_mean[..., 0] = 0
    few = (trials < number) | (mean + 8 * deviation < number)
    edges = np.where(few, np.arange(number + 1.0), np.maximum(around_mean, 0))
    edges[..., -1] = np.inf
    edges = np.minimum(edges, trials + 1)
    # P(X < edge), as a tail of failures, where the edge is at most the mean, else P(X ≥ edge).
    below = edges <= mean
    tail = upper_tail(np.where(below, trials - edges + 1, edges), trials, np.where(below, 1 - chance, chance))
    left, right = tail[..., :-1], tail[..., 1:]
    mass = np.where(below[..., 1:], right - left, np.where(below[..., :-1], 1 - left - right, left - right))
    inside = (edges >= 1) & (edges <= trials)
    moment = _pmf(np.where(inside, edges, 1), np.maximum(trials, 1), chance) * np.where(inside, edges, 0) * (1 - chance)
    low, high = edges[..., :-1], edges[..., 1:] - 1
    mass = np.where(high < low, 0, np.maximum(mass, 0))
    shift = -np.diff(moment, axis=-1) / np.where(mass > 0, mass, 1)
    high = np.maximum(high, low)
    return low, high, mass, np.clip(mean + shift, low, high)


def excess(k: Numbers, trials: Numbers, chance: Numbers | float, gap: Numbers) -> Numbers:
    """E(X − κ)₊ for a binomial X and a threshold κ of at least nθ: E(X − k)₊ + (k − κ)·P(X ≥ k)."""
    inside = k <= trials
    k, trials = np.where(inside, k, 1.0), np.where(inside, trials, 1.0)
    length = _integral(k, trials - k, chance)
    # Cancellation leaves one part in the squared number of standard deviations.
    excess_of_k = np.where(k < trials, np.maximum((1 - chance) - (k - trials * chance) * length, 0), 0)
    return np.where(inside, _pmf(k, trials, chance) * k * (excess_of_k + gap * length), 0)


def upper_tail(k: Numbers, trials: Numbers, chance: Numbers | float) -> Numbers:
    """P(X ≥ k) for k above the mean, at least one; zero for k > n."""
    inside = k <= trials
    k, trials, chance = np.where(inside, k, 1.0), np.where(inside, trials, 1.0), np.where(inside, chance, 0.5)
    tail = _pmf(k, trials, chance) * k * _integral(k, trials - k, chance)
    return np.where(inside, np.minimum(tail, 1), 0)


def _pmf(k: Numbers, trials: Numbers, chance: Numbers | float) -> Numbers:
    """P(X = k) for k ≥ 1, by the saddle point: the terms of the exponent do not cancel."""
    failures = trials - k
    distance = k - trials * chance
    some = np.where(failures > 0, failures, 1.0)
    up, down = distance / (trials * chance), -distance / (trials * (1 - chance))
    log_up, log_down = np.log1p(up), np.log1p(np.where(failures > 0, down, 0))
    # n·KL(k/n‖θ); near the mean from the squared distance and log(1 + x) − x.
    near_mean = distance * (up - down) + k * (log_up - up) + failures * (log_down - down)
    divergence = np.where(up < 1, near_mean, k * log_up + failures * log_down)
    shape = np.sqrt(trials / (2 * math.pi * k * some))
    inside = shape * np.exp(_stirling_error(trials) - _stirling_error(k) - _stirling_error(some) - divergence)
    return np.where(failures > 0, inside, np.exp(k * np.log(chance)))


def _stirling_error(whole: Numbers) -> Numbers:
    series = stirling_series(1 / (whole * whole)) / whole
    return np.where(whole < 32, _STIRLING_ERRORS[np.minimum(whole, 31).astype(int)], series)


def _integral(k: Numbers, failures: Numbers, chance: Numbers | float) -> Numbers:
    """∫ exp(g) over v > 0."""
    odds = chance / (1 - chance)
    slope = k - failures * odds
    curvature = failures * odds * (1 + odds)
    end = 2 * LOG_CUT / (slope + np.sqrt(slope**2 + 2 * curvature * LOG_CUT))

    def g(v: Numbers) -> Numbers:
        rise = odds * -np.expm1(-v)
        return -slope * v + failures * (np.log1p(rise) - rise - odds * (np.expm1(-v) + v))

    # g is concave, so a Newton step ends beyond the solution of g = −LOG_CUT.
    for _ in range(3):
        decay = np.exp(-end)
        end = end - (g(end) + LOG_CUT) / (-k + failures * odds * decay / (1 + odds * (1 - decay)))
    total = np.zeros_like(end)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * np.exp(g(end * node))
    return end * total
