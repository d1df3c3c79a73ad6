"""Tails of binomial counts, and means beyond a threshold, that keep their digits: they bound what shuffling leaks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rrjax.numerics.special import quadrature_rule, stirling_series

Numbers = NDArray[np.float64]
Chances = tuple[Numbers | float, Numbers | float]
"""θ and 1 − θ, of which the smaller one keeps its digits."""

LOG_CUT = 40.0
"""The integral ends where the integrand has fallen to e^−40."""

_NODES, _WEIGHTS = quadrature_rule(32)
_STIRLING_ERRORS = np.array([0.0] + [math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n for n in range(1, 32)])
_STIRLING_ERRORS[1:] -= math.log(2 * math.pi) / 2


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
    chances = np.where(below, 1 - chance, chance), np.where(below, chance, 1 - chance)
    tail = upper_tail(np.where(below, trials - edges + 1, edges), trials, chances)
    left, right = tail[..., :-1], tail[..., 1:]
    mass = np.where(below[..., 1:], right - left, np.where(below[..., :-1], 1 - left - right, left - right))
    inside = (edges >= 1) & (edges <= trials)
    moment = _pmf(np.where(inside, edges, 1), np.maximum(trials, 1), (chance, 1 - chance))
    moment = moment * np.where(inside, edges, 0) * (1 - chance)
    low, high = edges[..., :-1], edges[..., 1:] - 1
    mass = np.where(high < low, 0, np.maximum(mass, 0))
    shift = -np.diff(moment, axis=-1) / np.where(mass > 0, mass, 1)
    high = np.maximum(high, low)
    return low, high, mass, np.clip(mean + shift, low, high)


def excess(k: Numbers, trials: Numbers, chances: Chances, gap: Numbers) -> Numbers:
    """E(X − κ)₊ for a binomial X and a threshold κ of at least nθ: E(X − k)₊ + (k − κ)·P(X ≥ k)."""
    inside = k <= trials
    k, trials = np.where(inside, k, 1.0), np.where(inside, trials, 1.0)
    length = _integral(k, trials - k, chances)
    # Cancellation leaves one part in the squared number of standard deviations.
    excess_of_k = np.where(k < trials, np.maximum(chances[1] - _distance(k, trials, chances) * length, 0), 0)
    return np.where(inside, _pmf(k, trials, chances) * k * (excess_of_k + gap * length), 0)


def upper_tail(k: Numbers, trials: Numbers, chances: Chances) -> Numbers:
    """P(X ≥ k) for k above the mean, at least one; zero for k > n."""
    inside = k <= trials
    k, trials = np.where(inside, k, 1.0), np.where(inside, trials, 1.0)
    chances = np.where(inside, chances[0], 0.5), np.where(inside, chances[1], 0.5)
    tail = _pmf(k, trials, chances) * k * _integral(k, trials - k, chances)
    return np.where(inside, np.minimum(tail, 1), 0)


def _distance(k: Numbers, trials: Numbers, chances: Chances) -> Numbers:
    """The distance k − nθ, by the smaller one of θ and 1 − θ."""
    return np.where(chances[0] < 0.5, k - trials * chances[0], trials * chances[1] - (trials - k))


def _pmf(k: Numbers, trials: Numbers, chances: Chances) -> Numbers:
    """P(X = k) for k ≥ 1, by the saddle point: the terms of the exponent do not cancel."""
    failures, (chance, rest) = trials - k, chances
    distance = _distance(k, trials, chances)
    some = np.where(failures > 0, failures, 1.0)
    up, down = distance / (trials * chance), -distance / (trials * rest)
    log_up, log_down = np.log1p(up), np.log1p(np.where(failures > 0, down, 0))
    # n·KL(k/n‖θ); near the mean from the squared distance and log(1 + x) − x.
    near_mean = distance * (up - down) + k * (log_up - up) + failures * (log_down - down)
    divergence = np.where(up < 1, near_mean, k * log_up + failures * log_down)
    shape = np.sqrt(trials / (2 * math.pi * k * some))
    inside = shape * np.exp(_stirling_error(trials) - _stirling_error(k) - _stirling_error(some) - divergence)
    log_chance = np.where(rest < 0.5, np.log1p(-np.minimum(rest, 0.5)), np.log(chance))
    return np.where(failures > 0, inside, np.exp(k * log_chance))


def _stirling_error(whole: Numbers) -> Numbers:
    series = stirling_series(1 / (whole * whole)) / whole
    return np.where(whole < 32, _STIRLING_ERRORS[np.minimum(whole, 31).astype(int)], series)


def _integral(k: Numbers, failures: Numbers, chances: Chances) -> Numbers:
    """∫ exp(g) over v > 0."""
    odds = chances[0] / chances[1]
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
