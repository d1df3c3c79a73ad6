r"""Differences of the shares of single categories between two collections, also where counts are small.

Of independent users the support count of a category is S_g ~ Binomial(N_g, q_g + d_g·θ) in each part g of a collection.
The estimate of the difference δ = θ₁ − θ₂ is D = Σ_g a_g·S_g less a constant, with a_g = ± w_g/(N_g·d_g). Its own
standard error is useless where a count is small: of 0 reports it is 0. So each δ is tested at the θ that is likeliest
given δ (Farrington and Manning 1990; Miettinen and Nurminen 1985), with the tail of D there by its cumulants K:

    r* = r + log(u/r)/r,  r = sign(s)·√(2·(s·x − K(s))),  u = s·√K₂(s),  K₁(s) = x,

with K₁ and K₂ the derivatives of K. It is normal to third order (Barndorff-Nielsen 1986), also far out and for skewed
counts. For x, D is moved by half of its largest step towards the mean (Yates), so that discrete counts keep their
level, too; beyond the ends of D, r* is infinite.

The shares that the parts of one collection have in common have limits by the same tail, at the share itself.

References:
    Miettinen and Nurminen, "Comparative analysis of two rates", Statistics in Medicine 4, 1985; Farrington and Manning,
    "Test statistics and sample size formulae for comparative binomial trials", Statistics in Medicine 9, 1990;
    Barndorff-Nielsen, "Inference on full or partial parameters based on the standardized signed log likelihood ratio",
    Biometrika 73, 1986; Lloyd, "Exact p-values for discrete models obtained by estimation and maximization", Australian
    & New Zealand Journal of Statistics 50, 2008, for p-values at the likeliest nuisance parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

MAX_ITERS = 100
ROUNDING = 1e-9
"""Relative size of the last steps."""
SMALLEST_SPREAD = 1e-12
"""Smallest standard deviation by which a step of a search is divided."""
NEAR_START = 1e-4
"""Least distance of the start of a search from ±1 and from zero, where the slope tells nothing of the way."""
NEAR_END = 1e-8
"""Distance from ±1 below which a limit is there: some last steps."""
LARGEST = 38.0
"""Largest r*; beyond it the tail is zero in float64."""
CERTAIN = 1e-6
"""Expected number of reports below which a count counts as certain: none, or all. Tails below it may be zero."""
SMALLEST = 1e-4
"""Smallest r with a correction, which is a difference of nearly equal numbers there, and far below one."""


class PartCounts(NamedTuple):
    """Reports of one mechanism in one of the two collections; arrays `[K]` or scalars, in float64."""

    support: np.ndarray
    num_users: float | np.ndarray
    q: np.ndarray
    d: np.ndarray
    weight: float | np.ndarray
    """The weight of its estimate in that of its collection; they add up to one."""


class DifferenceTest(NamedTuple):
    """Limits and p-values of the differences, `[K]` each.

    Limits are NaN where no pair of shares explains the counts.
    """

    lower: np.ndarray
    upper: np.ndarray
    p_value: np.ndarray


def share_differences(
    first: Sequence[PartCounts], second: Sequence[PartCounts], level: float, num_tests: int
) -> DifferenceTest:
    """The intervals of the differences and the p-values of none, simultaneous for `num_tests` categories (Bonferroni).

    In float64 by NumPy, for parts on the host; time O(G·K) times some thousand, seconds for K = 20,000.

    Args:
        first: The G₁ parts of the first collection, of K categories each.
        second: Those of the second one, of the same categories; its shares are taken from those of the first.
        level: Confidence level of all `num_tests` intervals together, in (0, 1).
        num_tests: The number of different questions: K, or one of two categories whose shares add up to one.

    Returns:
        `DifferenceTest`, `[K]` each: limits in [−1, 1], and p-values times `num_tests`, at most one.

    Example:
        >>> import numpy as np
        >>> from rrjax.inference.share_differences import PartCounts, share_differences
        >>> one, other = (PartCounts(np.array([count]), 10.0, np.zeros(1), np.ones(1), 1.0) for count in (9, 1))
        >>> results = share_differences([one], [other], level=0.95, num_tests=1)
        >>> [round(float(each[0]), 3) for each in results]
        [0.36, 0.978, 0.0]
    """
    law = _Law.of(first, second)
    r = special.ndtri((1 + level) / 2 + (1 - level) / 2 * (1 - 1 / num_tests))
    upper_tail, lower_tail = law.moved(-1), law.moved(1)
    none = np.zeros(law.estimate.shape)
    tails = special.ndtr(-law.r_star(none, upper_tail)[0]), special.ndtr(law.r_star(none, lower_tail)[0])
    lower, upper = law.limits((upper_tail, lower_tail), r, r, -1)
    return DifferenceTest(lower, upper, np.minimum(2 * num_tests * np.minimum(*tails), 1))


def share_limits(
    parts: Sequence[PartCounts], level: float, num_tests: int, *, simultaneous: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of the shares that the parts of one collection have in common, by the same tail of Σ_g a_g·S_g.

    Args:
        parts: Of K categories each.
        level: Confidence level of each interval or, if they are `simultaneous`, of all of them together, in (0, 1).
        num_tests: As of `share_differences`.
        simultaneous: Whether all hold together (Bonferroni).

    Returns:
        The limits, `[K]` each, in [0, 1]; NaN where no share explains the counts, as a test of all categories says.

    Example:
        >>> import numpy as np
        >>> from rrjax.inference.share_differences import PartCounts, share_limits
        >>> part = PartCounts(np.array([0, 4]), 10.0, np.zeros(2), np.ones(2), 1.0)
        >>> [each.round(3).tolist() for each in share_limits([part], 0.95, 2, simultaneous=False)]
        [[0.0, 0.118], [0.32, 0.742]]
    """
    law = _LawOfOne.of(parts, [])
    miss = 1 - level
    every = special.ndtri(1 - miss / 2 / num_tests)
    r = every if simultaneous else special.ndtri(1 - miss / 2)
    return law.limits((law.moved(-1), law.moved(1)), r, every, 0)


class _Law(NamedTuple):
    """The law of D, whose parts are the rows of `[G, K]`."""

    support: np.ndarray
    number: np.ndarray
    q: np.ndarray
    d: np.ndarray
    step: np.ndarray  # a
    of_first: np.ndarray

    @classmethod
    def of(cls, first: Sequence[PartCounts], second: Sequence[PartCounts]) -> _Law:
        parts = [*first, *second]
        size = np.broadcast_shapes(*(np.shape(each.support) for each in parts))

        def rows(name):
            return np.stack([np.broadcast_to(np.asarray(getattr(each, name), np.float64), size) for each in parts])

        of_first = np.arange(len(parts))[:, None] < len(first)
        number, d = rows("num_users"), rows("d")
        step = np.where(of_first, 1, -1) * rows("weight") / number / d
        return cls(rows("support"), number, rows("q"), d, step, of_first)

    @property
    def estimate(self) -> np.ndarray:
        """The unbiased estimate of δ."""
        return np.sum(self.step * (self.support - self.number * self.q), axis=0)

    def moved(self, side: int) -> np.ndarray:
        """The sum of a·S, `[K]`, moved by half of the largest step: down with side −1, up with 1."""
        return np.sum(self.step * self.support, axis=0) + side * np.max(np.abs(self.step), axis=0) / 2

    def limits(
        self, tails: tuple[np.ndarray, np.ndarray], r: float, impossible: float, least: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where r* of the upper tail and −r* of the lower one are r, from `least` to 1; `[K]` each.

        NaN where r* at an end is beyond `impossible`: with the largest even so many supports, or with the smallest so
        few, are too unlikely.
        """
        start = np.clip(self.estimate, least + NEAR_START, 1 - NEAR_START)
        low, high = np.full_like(start, least), np.ones_like(start)

        def limit(x, aim):
            def distance(value):  # rises with the mean
                found, spread = self.r_star(value, x)
                return aim - found, 1 / np.maximum(spread, SMALLEST_SPREAD)

            return _root(distance, low, high, start)

        lower, upper = limit(tails[0], r), limit(tails[1], -r)
        lower, upper = np.where(lower < least + NEAR_END, least, lower), np.where(upper > 1 - NEAR_END, 1, upper)
        odd = (self.r_star(high, tails[0])[0] > impossible) | (self.r_star(low, tails[1])[0] < -impossible)
        return np.where(odd, np.nan, lower), np.where(odd, np.nan, upper)

    def chances(self, delta: np.ndarray) -> np.ndarray:
        """The probabilities of support at the likeliest shares that differ by δ, `[G, K]`."""
        low, high = np.maximum(0, -delta), np.minimum(1, 1 - delta)

        def of(share):
            mu = self.q + self.d * np.where(self.of_first, share + delta, share)
            return np.clip(mu, 1e-150, 1 - 1e-16)  # squares, and one less the chance, stay positive

        def slope(share):
            mu = of(share)
            first = self.d * (self.number - self.support) / (1 - mu), self.d * self.support / mu
            with np.errstate(over="ignore"):
                second = self.d * self.d * ((self.number - self.support) / (1 - mu) ** 2 + self.support / mu**2)
            return np.sum(first[0] - first[1], axis=0), np.sum(second, axis=0)

        return of(_root(slope, low, high, (low + high) / 2))

    def r_star(self, delta: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The normal deviate with the upper tail that a sum of a·S has above x; its standard deviation."""
        mu, a = self.chances(delta), self.step
        mean = np.sum(self.number * a * mu, axis=0)
        spread = np.sqrt(np.sum(self.number * a**2 * mu * (1 - mu), axis=0))
        usable = spread > 1e-150
        scale, beyond = np.where(usable, spread, 1), x - mean
        logit = special.logit(mu)

        def slope(s):
            tilted = special.expit(logit + a * (s / scale))
            first = np.sum(self.number * a * (tilted - mu), axis=0) - beyond
            return first / scale, np.sum(self.number * a**2 * tilted * (1 - tilted), axis=0) / scale**2

        # There each tilted probability is at its end, but for e⁻⁴⁰ of its complement.
        most = (np.max(np.abs(logit), axis=0) + 40 + np.log(np.max(self.number, axis=0))) * scale
        most = most / np.min(np.abs(a), axis=0)
        side = np.where(beyond < 0, -1.0, 1.0)
        s = _root(slope, np.where(side < 0, -most, 0), np.where(side < 0, 0, most), beyond / scale)
        part = a * (s / scale)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            small = np.log1p(mu * np.expm1(part)) - part * mu
            large = np.logaddexp(np.log1p(-mu), np.log(mu) + part) - part * mu
            cumulant = np.sum(self.number * np.where(np.abs(part) < 1, small, large), axis=0)
            r = side * np.sqrt(np.maximum(2 * (s / scale * beyond - cumulant), 0))
            u = s * np.sqrt(slope(s)[1])
            corrected = np.where(np.abs(r) > SMALLEST, r + np.log(u / r) / r, r)
        roots = np.where(np.isfinite(corrected), corrected, side * LARGEST)
        roots = np.where(usable, roots, np.where(beyond > 0, LARGEST, -LARGEST))
        # Beyond the smallest and the largest sum there is no s, and r and u are of no use. A certain count cannot move.
        certain, whole = self.number * np.minimum(mu, 1 - mu) < CERTAIN, a * self.number
        smallest, largest = (
            np.sum(np.where(certain, whole * np.round(mu), end(whole, 0)), axis=0) for end in (np.minimum, np.maximum)
        )
        margin = ROUNDING * (largest - smallest)
        roots = np.where(x <= smallest + margin, -LARGEST, np.where(x >= largest - margin, LARGEST, roots))
        return np.clip(roots, -LARGEST, LARGEST), spread


class _LawOfOne(_Law):
    """The law of Σ a·S of one collection, at a share."""

    def chances(self, delta: np.ndarray) -> np.ndarray:
        return np.clip(self.q + self.d * delta, 1e-150, 1 - 1e-16)


def _root(
    function: Callable[[np.ndarray], tuple[Any, Any]], low: np.ndarray, high: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Where rising functions, given with their slopes, are zero, or the end beyond which that is: Newton's method.

    A step that leaves the bracket is replaced by its middle.
    """
    low, high = np.array(low, float), np.array(high, float)
    x = np.clip(start, low, high)
    for _ in range(MAX_ITERS):
        value, slope = function(x)
        low, high = np.where(value < 0, x, low), np.where(value < 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = x - value / slope
        new = np.where((step > low) & (step < high), step, (low + high) / 2)
        if np.all(np.abs(new - x) <= ROUNDING * np.maximum(np.abs(x), 1e-3)):
            return new
        x = new
    return x
