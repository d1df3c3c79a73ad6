"""Smooth distributions of ordered values from whole reports of any mechanism; the reports choose the smoothness.

    log θ = polynomial of degree d − 1 + a·(d-fold integral of white noise) + s·(white noise) + constant

for d = 1, 2, 3, and the first and the last value may stand out, because they often hold all numbers beyond. Every
(d, s, a) of a grid, with ends that stand out or not, is a Gaussian prior of log θ. The most probable θ of each is
found by Newton's method. The estimate is their average, weighted by the probability of the reports under each prior
(Laplace's approximation).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture, Reports
from rrjax.estimators.laplace import averaged, given_of
from rrjax.numerics.pytrees import exportable

ORDERS = (1, 2, 3)
"""Numbers of integrals of white noise, d: a rough curve, a cubic spline, a smoother one."""
KINDS = (
    (1, 0.0, 0.0),
    (2, 0.0, 0.0),
    (2, 0.1, 0.0),
    (3, 0.0, 0.0),
    (3, 0.1, 0.0),
    (2, 0.0, 2.0),
    (3, 0.0, 2.0),
    (3, 0.1, 2.0),
)
"""d, and standard deviations around the curve, in log θ: s of all values, and that of the two ends."""
AMPLITUDES = np.geomspace(0.01, 300.0, 16)
"""Standard deviations a of log θ around the polynomial, on average over the values."""
POLYNOMIAL_DEVIATION = 4.0
"""Standard deviation of each term of the polynomial of log θ."""
MAX_CATEGORIES = 1024
"""Largest K: the curves are found on the host, in O(K³)."""
MOST_CURVES = 64
"""Largest number of curves of log θ; the others have about 1 % of its variance."""


@exportable
class SmoothBayes(NamedTuple):
    """The result of `smooth_bayes`.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        beliefs: `[8, 16]`, with sum one: the posterior probability of each prior (`KINDS`, `AMPLITUDES`).
    """

    theta: Float[Array, " K"]
    beliefs: Float[Array, "8 16"]


def smooth_bayes(mixture: Mixture) -> SmoothBayes:
    """Estimates the shares of ordered values whose neighbours have similar shares, from reports of any mechanism.

    For numbers in bins, for which the maximum of the likelihood consists of isolated spikes. `ems` smooths by a fixed
    window, so its result depends on the width of the bins; here the reports choose the smoothness. `ordered_bayes` is
    for tallies.

    Args:
        mixture: The likelihood; its categories are in order, up to 1,024.

    Returns:
        A `SmoothBayes`; NaN for an unusable mixture. Time O(A·D²·(D + M)) for D = min(K − 1, 64) curves, M kinds of
        reports and A = 128 priors.
        `jit`, `vmap`; no derivatives.

    Raises:
        ValueError: More than 1,024 categories.
        NotImplementedError: A derivative is taken.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.DiscreteSquareWave(num_categories=8, epsilon=2.0)
        >>> values = jax.random.binomial(jax.random.key(0), 7, 0.4, (20_000,)).astype(int)
        >>> mixture = mechanism.mixture(mechanism.randomize(jax.random.key(1), values))
        >>> [round(share, 2) for share in rrjax.smooth_bayes(mixture).theta.tolist()]
        [0.04, 0.13, 0.26, 0.3, 0.19, 0.07, 0.01, 0.0]

    Note:
        `validation/results/square_wave-cpu.md` has its Wasserstein distances beside those of `ems`.

    References:
        Silverman, "On the estimation of a probability density function by the maximum penalized likelihood method",
        Annals of Statistics 10, 1982; Wood, "Fast stable restricted maximum likelihood and marginal likelihood
        estimation of semiparametric generalized linear models", JRSS B 73, 2011.
    """
    size = mixture.num_categories
    if size > MAX_CATEGORIES:
        raise ArgumentError(
            f"smooth_bayes takes up to {MAX_CATEGORIES:,} categories, got {size:,}: merge neighbours",
            argument="mixture",
        )
    return _estimated(*given_of(mixture, "smooth_bayes"))


@lru_cache(maxsize=8)
def _bases(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each order the curves of log θ, `[3, K, D]`, one a coefficient of variance one.

    Beside them which curves grow with a, and the factors that make them curves of size one, `[3, D]` each.
    """
    number = min(size - 1, MOST_CURVES)
    bases, rough, factors = [], [], []
    for order in ORDERS:
        degree = min(order, size) - 1
        polynomials = np.polynomial.legendre.legvander(np.linspace(-1, 1, size), degree)[:, 1:]
        # Curves whose differences are white noise, the smoothest first.
        _, sizes, curves = np.linalg.svd(np.diff(np.eye(size), n=degree + 1, axis=0), full_matrices=False)
        noise = (curves / sizes[:, None])[::-1][: number - degree].T
        noise = noise / np.sqrt((noise**2).sum(axis=1).mean())
        factors.append(np.append(np.zeros(degree), 1 / np.linalg.norm(noise, axis=0)))
        bases.append(np.concatenate([POLYNOMIAL_DEVIATION * polynomials, noise], axis=1))
        rough.append(np.arange(number) >= degree)
    return np.stack(bases), np.stack(rough), np.stack(factors)


@jax.jit
def _estimated(start, reports: Reports, total) -> SmoothBayes:
    bases, rough, factors = (jnp.asarray(each) for each in _bases(start.shape[0]))
    dtype = start.dtype

    def of_kind(kind):
        order, departure, ends = kind
        edges = jnp.zeros((start.shape[0], 2), dtype).at[(0, -1), (0, 1)].set(ends)
        basis = jnp.concatenate([bases[order].astype(dtype), edges], axis=1)
        grows, factor = jnp.pad(rough[order], (0, 2)), jnp.pad(factors[order], (0, 2)).astype(dtype)
        single = departure * factor
        return basis, lambda amplitude: jnp.where(grows, jnp.hypot(amplitude, single), 1)

    orders, departures, ends = zip(*KINDS, strict=True)
    places = jnp.asarray([ORDERS.index(order) for order in orders])
    kinds = places, jnp.asarray(departures, dtype), jnp.asarray(ends, dtype)
    return SmoothBayes(*averaged(of_kind, kinds, AMPLITUDES, start, reports, total))
