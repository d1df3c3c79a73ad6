"""Exact laws of small integer vectors, and how far a sample may be from them."""

from __future__ import annotations

import math

import mpmath
import numpy as np

SIGMAS = 5


def poisson_masses(rate: float) -> tuple[int, np.ndarray]:
    """The first value and the masses from there on, all that matter."""
    first, last = _range(rate, math.sqrt(rate))
    return first, np.array([math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(first, last + 1)])


def binomial_masses(trials: int, probability: float) -> tuple[int, np.ndarray]:
    """The first value and the masses from there on, all that matter."""
    if probability in (0, 1) or trials == 0:
        return int(trials * probability), np.ones(1)
    mean = trials * probability
    first, last = _range(mean, math.sqrt(mean * (1 - probability)))
    last = min(last, trials)
    k = np.arange(first + 1, last + 1, dtype=float)
    ratios = np.log((trials - k + 1) / k) + (math.log(probability) - math.log1p(-probability))
    return first, np.exp(_log_binomial_mass(trials, probability, first) + np.append(0.0, np.cumsum(ratios)))


def _log_binomial_mass(trials, probability, k):
    with mpmath.workdps(40):  # at 2³¹ trials, lgamma of a double is off by 1e-6
        n, p = mpmath.mpf(trials), mpmath.mpf(probability)
        choose = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
        return float(choose + k * mpmath.log(p) + (n - k) * mpmath.log1p(-p))


def _range(mean, deviation):
    # A Poisson law has a long tail above, a binomial one of a probability near one has it below.
    return max(0, int(mean - 12 * deviation - 40)), int(mean + 12 * deviation + 40)


def report_law(theta, epsilon) -> np.ndarray:
    """`[K, K]`, the probability that a user holds i and reports j."""
    theta = np.asarray(theta, float)
    e1 = math.expm1(min(float(epsilon), 700))
    number = len(theta)
    return theta[:, None] * (1 + e1 * np.eye(number)) / (e1 + number)


def joint_law(users: list[dict[tuple[int, ...], float]]) -> dict[tuple[int, ...], float]:
    """The law of a sum of independent integer vectors, each given by its own law."""
    total = {(0,) * len(next(iter(users[0]))): 1.0}
    for user in users:
        added = {}
        for so_far, mass in total.items():
            for step, probability in user.items():
                place = tuple(a + b for a, b in zip(so_far, step, strict=True))
                added[place] = added.get(place, 0.0) + mass * probability
        total = added
    return total


def chi_square_bound(freedom: int) -> float:
    """The quantile of chi-square at `SIGMAS`, by Wilson and Hilferty."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + SIGMAS * math.sqrt(part)) ** 3


def check_frequencies(observed, masses, least: float = 10):
    """Chi-square of observed frequencies; what is expected fewer than `least` times is pooled.

    Masses may leave something out; then the frequencies must leave out accordingly little.
    """
    observed, masses = np.asarray(observed, float), np.asarray(masses, float)
    number = observed.sum()
    expected = masses / masses.sum() * number
    assert not observed[masses == 0].any(), "an impossible value was drawn"
    rare = expected < least
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        if expected[-1] < least:  # a Poisson count, beside the square
            bound = expected[-1] + SIGMAS * math.sqrt(expected[-1]) + SIGMAS
            assert observed[-1] <= bound, f"{observed[-1]} rare values, expected {expected[-1]:.3g}"
            observed, expected = observed[:-1], expected[:-1]
    if len(observed) > 1:
        square = float(((observed - expected) ** 2 / expected).sum())
        bound = chi_square_bound(len(observed) - 1)
        assert square <= bound, f"chi-square {square:.1f} with {len(observed) - 1} degrees, at most {bound:.1f}"


def check_sample(sample, first: int, masses: np.ndarray):
    """A sample of integers against its law: every value by itself, then some 30 ranges of values."""
    sample = np.asarray(sample).astype(np.int64) - first
    inside = (sample >= 0) & (sample < len(masses))
    assert inside.all(), f"{sample[~inside][:5] + first} have no chance at all"
    observed = np.bincount(sample, minlength=len(masses))
    check_frequencies(observed, masses)
    group = np.minimum(np.cumsum(masses) * 30, 29.5).astype(int)
    check_frequencies(np.bincount(group, observed), np.bincount(group, masses))


def check_joint(sample, law: dict[tuple[int, ...], float]):
    """A sample of integer vectors `[m, n]` against their joint law."""
    values, numbers = np.unique(np.asarray(sample), axis=0, return_counts=True)
    observed = {tuple(value): number for value, number in zip(values.tolist(), numbers.tolist(), strict=True)}
    assert set(observed) <= set(law), f"impossible: {sorted(set(observed) - set(law))[:3]}"
    check_frequencies([observed.get(value, 0) for value in law], list(law.values()))


def check_moments(sample, mean: float, variance: float, slack: float = 0.0):
    """Mean and variance of a nearly normal law, within `SIGMAS` standard errors; `slack` is for a rounded mean."""
    sample = np.asarray(sample).astype(np.float64) - mean
    error = math.sqrt(variance / sample.size)
    assert abs(sample.mean()) <= SIGMAS * error + slack, f"mean is {sample.mean() / error:.1f} standard errors off"
    spread = (sample**2).mean() / variance - 1
    # The fourth central moment of a Poisson law is 3·variance² + variance; of a binomial one less.
    error = math.sqrt((2 + 1 / variance) / sample.size)
    assert abs(spread) <= SIGMAS * error, f"variance is {spread / error:.1f} standard errors off"


def check_covariance(sample, mean, covariance):
    """Means and covariances of vectors `[m, n]` that are nearly normal, entry by entry and all together."""
    sample = np.asarray(sample).astype(np.float64) - mean
    number = len(sample)
    variance = np.diag(covariance)
    moving = variance > 0
    assert not sample[:, ~moving].any()
    sample, covariance, variance = sample[:, moving], covariance[np.ix_(moving, moving)], variance[moving]
    assert (np.abs(sample.mean(0)) <= SIGMAS * np.sqrt(variance / number)).all()
    found = sample.T @ sample / number
    # Of small counts, the fourth moments are larger than a normal's, by the mean.
    error = np.sqrt((np.outer(variance, variance) + covariance**2 + np.minimum.outer(variance, variance)) / number)
    score = (found - covariance) / error
    assert np.abs(score).max() <= SIGMAS, f"a covariance is {np.abs(score).max():.1f} standard errors off"
    # All together, as if only so many were independent: small deviations that agree would show.
    bound = chi_square_bound(len(variance)) / len(variance)
    assert np.mean(score**2) < bound
