r"""Binomial laws on the host in double precision, for plans: their mass on cells, and what is above a threshold.

With k above the mean nθ, and w > 0 the log odds of k/n less those of θ, as in `rrjax.numerics.special`:

    P(X ≥ k) = pmf(k) · k · ∫₀^∞ exp(g(v)) dv,    g(v) = −k·v + (n−k)·log(1 + o·(1 − e^−v)),    o = θ/(1−θ),
    E[(X − nθ)·1{X ≥ k}] = pmf(k) · k · (1 − θ),

so both are a density times what has no small number in it, and what is to be told of rare events is not lost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_REACH = 40.0
"""The integrand is followed until it has fallen to e^−40."""
_X, _W = np.polynomial.legendre.leggauss(32)
_NODES, _WEIGHTS = ((_X + 1) / 2) ** 2, _W * (_X + 1) / 2  # on (0, 1), denser towards zero
_SMALL = np.array([0.0] + [math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n for n in range(1, 32)])
_SMALL[1:] -= math.log(2 * math.pi) / 2


def excess(k: Numbers, trials: Numbers, chance: Numbers | float, gap: Numbers) -> Numbers:
    """E(X − κ)₊ for a binomial X and a threshold κ of at least nθ: E(X − k)₊ + (k − κ)·P(X ≥ k)."""
    inside = k <= trials
    k, trials = np.where(inside, k, 1.0), np.where(inside, trials, 1.0)
    length = _integral(k, trials - k, chance)
    # What cancels here leaves one part in the squared number of standard deviations.
    more = np.where(k < trials, np.maximum((1 - chance) - (k - trials * chance) * length, 0), 0)
    return np.where(inside, _pmf(k, trials, chance) * k * (more + gap * length), 0)


def upper_tail(k: Numbers, trials: Numbers, chance: Numbers | float) -> Numbers:
    """P(X ≥ k) for k above the mean, at least one; zero where k is more than all."""
    inside = k <= trials
    k, trials, chance = np.where(inside, k, 1.0), np.where(inside, trials, 1.0), np.where(inside, chance, 0.5)
    tail = _pmf(k, trials, chance) * k * _integral(k, trials - k, chance)
    return np.where(inside, np.minimum(tail, 1), 0)


class Cells(NamedTuple):
    """Cells of 0 … n, `[*s, number]` each. A cell may be empty: then it has no mass, and its ends say nothing."""

    least: Numbers
    """The smallest value."""
    most: Numbers
    """The largest value."""
    mass: Numbers
    """From whichever tail is nearer."""
    mean: Numbers
    """Of the values in the cell."""


def cells(trials: Numbers, chance: float, number: int) -> Cells:
    """Cuts 0 … n into cells, narrow where the mass is."""
    trials = trials[..., None]
    if chance in (0, 1):
        sure = trials * chance
        return Cells(sure, sure, np.ones_like(sure), sure)
    mean, deviation = trials * chance, np.sqrt(trials * (chance * (1 - chance)))
    around = np.ceil(mean + deviation * 2 * np.sinh(np.linspace(-2.1, 2.1, number + 1)))
    around[..., 0] = 0
    few = (trials < number) | (mean + 8 * deviation < number)
    edges = np.where(few, np.arange(number + 1.0), np.maximum(around, 0))
    edges[..., -1] = np.inf
    edges = np.minimum(edges, trials + 1)
    low = edges <= mean
    # P(X < edge) by failures where the edge is at most the mean, else P(X ≥ edge).
    passed = np.where(low, trials - edges + 1, edges)
    tail = upper_tail(passed, trials, np.where(low, 1 - chance, chance))
    left, right = tail[..., :-1], tail[..., 1:]
    mass = np.where(low[..., 1:], right - left, np.where(low[..., :-1], 1 - left - right, left - right))
    inner = (edges >= 1) & (edges <= trials)
    moment = _pmf(np.where(inner, edges, 1), np.maximum(trials, 1), chance) * np.where(inner, edges, 0) * (1 - chance)
    least, most = edges[..., :-1], edges[..., 1:] - 1
    mass = np.where(most < least, 0, np.maximum(mass, 0))
    shift = -np.diff(moment, axis=-1) / np.where(mass > 0, mass, 1)
    most = np.maximum(most, least)
    return Cells(least, most, mass, np.clip(mean + shift, least, most))


def _pmf(k: Numbers, trials: Numbers, chance: Numbers | float) -> Numbers:
    """For k ≥ 1, by the saddle point: nothing in the exponent is larger than it must be."""
    rest = trials - k
    away = k - trials * chance
    some = np.where(rest > 0, rest, 1.0)
    up, down = away / (trials * chance), -away / (trials * (1 - chance))
    of_k, of_rest = np.log1p(up), np.log1p(np.where(rest > 0, down, 0))
    # n·KL(k/n‖θ); near the mean from the squared distance and what log(1 + x) is short of x.
    near = away * (up - down) + k * (of_k - up) + rest * (of_rest - down)
    lost = np.where(up < 1, near, k * of_k + rest * of_rest)
    shape = np.sqrt(trials / (2 * math.pi * k * some))
    inner = shape * np.exp(_stirling(trials) - _stirling(k) - _stirling(some) - lost)
    return np.where(rest > 0, inner, np.exp(k * np.log(chance)))


def _stirling(whole: Numbers) -> Numbers:
    """Log n! less that of Stirling's formula, for whole n ≥ 1."""
    square = 1 / (whole * whole)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / whole
    return np.where(whole < 32, _SMALL[np.minimum(whole, 31).astype(int)], series)


def _integral(k: Numbers, rest: Numbers, chance: Numbers | float) -> Numbers:
    odds = chance / (1 - chance)
    slope = k - rest * odds
    curvature = rest * odds * (1 + odds)
    end = 2 * _REACH / (slope + np.sqrt(slope**2 + 2 * curvature * _REACH))

    def g(v: Numbers) -> Numbers:
        rise = odds * -np.expm1(-v)
        return -slope * v + rest * (np.log1p(rise) - rise - odds * (np.expm1(-v) + v))

    # The exponent is concave, so a Newton step ends where it has fallen further.
    for _ in range(3):
        fallen = np.exp(-end)
        end = end - (g(end) + _REACH) / (-k + rest * odds * fallen / (1 + odds * (1 - fallen)))
    total = np.zeros_like(end)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * np.exp(g(end * node))
    return end * total
