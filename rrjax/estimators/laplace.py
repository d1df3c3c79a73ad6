"""Distributions averaged over Gaussian priors of log θ, by the evidence of whole reports for each (Laplace's method).

log θ = curves·c + constant, with coefficients c that are independent normal of variance one. The most probable c is
found by Newton's method on the likelihood of whole reports. The probability of the reports under the prior is then that
of a normal distribution around it (Laplace's approximation). The estimate is the average of the most probable θ over a
grid of priors, weighted by these probabilities.

`smooth_bayes`, for ordered values, whose smoothness the reports choose:

    log θ = polynomial of degree d − 1 + a·(d-fold integral of white noise) + s·(white noise) + constant

for d = 1, 2, 3; the first and the last value may stand out, because they often hold all numbers beyond. The grid is of
(d, s, a), with ends that stand out or not.

`joint_bayes`, for the joint distribution of several columns, whose interactions the reports choose:

    log θ = main effects of the columns + interactions of two + interactions of three … + constant

Interactions of m columns have the standard deviation a·r^(m − 2), averaged over the cells, for every (a, r) of a grid.
A small a is independence; a large a lets all cells stand alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache, partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import matrix_of
from rrjax.data.mixture import Mixture, NormalizedMixture, as_mixture
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.solvers import cholesky_factor, cholesky_solve, regularized, without_derivative
from rrjax.numerics.sums import accurate_sum

MAX_CATEGORIES = 1024
"""Largest K, or number of cells: curves are found on the host and Newton's method on any device, in O(K³)."""
MAX_STEPS = 40
LEAST_GAIN = 1e-3
"""Nats of all reports; a smaller gain ends Newton's method."""
STEP_LENGTHS = (1.0, 0.5, 0.25, 0.0625, 0.0078125)
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
MOST_CURVES = 64
"""Largest number of curves of log θ; the others have about 1 % of its variance."""
MAIN_DEVIATION = 3.0
"""Standard deviation of the main effects of a column on log θ."""
INTERACTIONS = np.geomspace(0.03, 8.0, 9)
"""Standard deviations a of the interactions of two columns."""
RATIOS = (1.0, 0.3, 0.05)
"""Ratios r of the standard deviations of interactions of one more column; with two columns there are none."""


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
    return _smooth(*_given(mixture, "smooth_bayes", "categories", "merge neighbours"))


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
def _smooth(start, reports: NormalizedMixture, total) -> SmoothBayes:
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
    return SmoothBayes(*_averaged(of_kind, kinds, AMPLITUDES, start, reports, total))


@exportable
class JointBayes(NamedTuple):
    """The result of `joint_bayes`.

    Attributes:
        theta: `[∏K]`, the joint shares, on the simplex.
        beliefs: `[3, 9]`, with sum one: the posterior probability of each prior (`RATIOS`, `INTERACTIONS`); of two
            columns `[1, 9]`.
    """

    theta: Float[Array, " K"]
    beliefs: Float[Array, "R A"]


def joint_bayes(mixture: Mixture, shape: Sequence[int]) -> JointBayes:
    """Estimates a joint distribution of several columns from the reports of any mechanism, such as `Product`.

    The maximum of the likelihood has as many free shares as cells, and the noise of all of them. Most columns interact
    little, or few of them do. How much they do is estimated, from independent columns to free cells.

    Args:
        mixture: The likelihood of the cells, the first column slowest; up to 1,024 cells.
        shape: The numbers of categories of the columns, at least two.

    Returns:
        A `JointBayes`, without standard errors: those of the inversion (`Product.inv_variances`) hold for the unbiased
        shares alone. NaN for an unusable mixture. Time O(A·∏K³) for A = 27 priors, of two columns 9.
        `jit`, `vmap`; no derivatives.

    Raises:
        ValueError: A shape that is not the mixture's, or more than 1,024 cells.
        NotImplementedError: A derivative is taken.

    Example:
        >>> import jax, rrjax
        >>> product = rrjax.mechanisms.Product([rrjax.RandomizedResponse(2, 1.0), rrjax.RandomizedResponse(3, 1.0)])
        >>> values = [0] * 6000 + [1] * 2000, ([0] * 3000 + [2] * 1000) * 2
        >>> estimate = rrjax.joint_bayes(product.mixture(product.randomize(jax.random.key(0), values)), product.shape)
        >>> [[round(t, 1) for t in row] for row in estimate.theta.reshape(product.shape).tolist()]
        [[0.6, 0.0, 0.1], [0.1, 0.0, 0.1]]

    Note:
        `validation/results/joint-cpu.md` has its errors beside those of the maximum and of the projected inversion.

    References:
        Laird, "Empirical Bayes methods for two-way contingency tables", Biometrika 65, 1978: normal interactions of
        tables that were observed.
    """
    sizes = tuple(as_integer(size, "shape", 2) for size in shape)
    if len(sizes) < 2 or math.prod(sizes) != mixture.num_categories:
        raise ArgumentError.about(
            "shape", f"must be of two columns or more with {mixture.num_categories:,} cells together, got {sizes}"
        )
    return _joint(*_given(mixture, "joint_bayes", "cells", "take fewer columns together"), sizes)


@lru_cache(maxsize=8)
def _curves(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Curves of log θ `[K, K − 1]`, and how many columns interact in each.

    The curves of each set of columns have together the variance one, averaged over the cells.
    """
    contrasts = []
    for size in sizes:
        first = np.concatenate([np.ones((size, 1)), np.eye(size)[:, : size - 1]], axis=1)
        contrasts.append(np.linalg.qr(first)[0][:, 1:] * math.sqrt(size))
    curves, numbers = [], []
    for chosen in itertools.product((False, True), repeat=len(sizes)):
        parts = zip(sizes, contrasts, chosen, strict=True)
        block = reduce(np.kron, [own if taken else np.ones((size, 1)) for size, own, taken in parts])
        if any(chosen):
            curves.append(block / math.sqrt(block.shape[1]))
            numbers += [sum(chosen)] * block.shape[1]
    return np.concatenate(curves, axis=1), np.asarray(numbers)


@partial(jax.jit, static_argnums=3)
def _joint(start, reports: NormalizedMixture, total, sizes) -> JointBayes:
    curves, numbers = (jnp.asarray(each, start.dtype) for each in _curves(sizes))

    def of_ratio(ratio):
        return curves, lambda amplitude: jnp.where(numbers == 1, MAIN_DEVIATION, amplitude * ratio ** (numbers - 2))

    ratios = jnp.asarray(RATIOS if len(sizes) > 2 else RATIOS[:1], start.dtype)
    return JointBayes(*_averaged(of_ratio, ratios, INTERACTIONS, start, reports, total))


def _given(mixture, name, unit, advice) -> tuple[Float[Array, " K"], NormalizedMixture, Float[Array, ""]]:
    """The uniform distribution `[K]`, the reports and their number, for a function without derivatives."""
    size = mixture.num_categories
    if size > MAX_CATEGORIES:
        raise ArgumentError(f"{name} takes up to {MAX_CATEGORIES:,} {unit}, got {size:,}: {advice}", argument="mixture")
    total = accurate_sum(jnp.asarray(mixture.weights).astype(jnp.result_type(float)))
    start, reports = as_mixture(mixture, None)
    return without_derivative((start, reports, total.astype(start.dtype)), f"{name} has no derivatives")


def _averaged(of_prior, priors, amplitudes, start, reports: NormalizedMixture, total):
    """θ `[K]` averaged over R priors and A amplitudes by their evidence, and the weights `[R, A]`; NaN if unusable.

    `of_prior` returns the curves of a prior `[K, D]`, and the function that makes of an amplitude their scales `[D]`.
    """
    matrix, amplitudes = matrix_of(reports.lift, start.dtype), jnp.asarray(amplitudes, start.dtype)
    pairs = jnp.concatenate([amplitudes[:1], amplitudes[:-1]]), amplitudes

    def of_all(prior):
        curves, scale = of_prior(prior)

        def of_amplitude(point, pair):
            # Each amplitude begins with the θ of the one before, from the smallest to the largest.
            before, now = map(scale, pair)
            point, theta, evidence = _most_probable(curves * now, point * before / now, start, matrix, reports, total)
            return point, (theta, evidence)

        first = with_sharding_of(jnp.zeros(curves.shape[1], start.dtype), (matrix, reports, total))
        return lax.scan(of_amplitude, first, pairs)[1]

    thetas, evidences = lax.map(of_all, priors)
    beliefs = jax.nn.softmax(evidences.ravel()).reshape(evidences.shape)
    theta = einsum("ra,rak->k", beliefs, thetas)
    theta = jnp.where(reports.usable, theta / accurate_sum(theta), jnp.nan)
    return theta, jnp.where(reports.usable, beliefs, jnp.nan)


def _most_probable(
    curves: Float[Array, "K D"],
    point: Float[Array, " D"],
    uniform: Float[Array, " K"],
    matrix: Float[Array, "U K"],
    reports: NormalizedMixture,
    total: Float[Array, ""],
) -> tuple[Float[Array, " D"], Float[Array, " K"], Float[Array, ""]]:
    """The most probable coefficients, from a first `point`; their θ, and the evidence against the uniform θ."""

    def look(point):
        theta = jax.nn.softmax(matmul(curves, point))
        return theta, reports.probabilities(theta)

    def gained(new, old):
        terms = reports.shares * jnp.log1p((new - old) / old)
        return total * accurate_sum(terms)

    def system(theta, probabilities):
        """The matrix of Newton's method, with expected second derivatives of log θ, so that it is positive."""
        rows = matrix * (jnp.sqrt(reports.shares) / probabilities)[:, None] * theta
        rows = matmul(rows - jnp.sum(rows, axis=1, keepdims=True) * theta, curves)
        return total * einsum("ui,uj->ij", rows, rows) + jnp.eye(len(point), dtype=point.dtype)

    def factor_of(theta, probabilities):
        return cholesky_factor(regularized(system(theta, probabilities), jnp.zeros_like(point)))

    lengths = jnp.asarray(STEP_LENGTHS, point.dtype)

    def step(carry):
        point, _, number = carry
        theta, probabilities = look(point)
        slope = reports.slopes(theta)
        gradient = total * matmul(curves.T, theta * (slope - matmul(theta, slope))) - point
        change = cholesky_solve(factor_of(theta, probabilities), gradient[:, None])[:, 0]

        def gain(length):
            new = point + length * change
            return gained(look(new)[1], probabilities) - (matmul(new, new) - matmul(point, point)) / 2

        gains = jax.vmap(gain)(lengths)
        gains = jnp.where(jnp.isfinite(gains), gains, -jnp.inf)
        best = jnp.max(gains)
        length = jnp.where(best > 0, jnp.max(jnp.where(gains == best, lengths, 0)), 0)
        return point + jnp.where(length > 0, length * change, 0), jnp.maximum(best, 0), number + 1

    def unfinished(carry):
        _, gain, number = carry
        return (gain > LEAST_GAIN) & (number < MAX_STEPS)

    first = with_sharding_of((point, jnp.asarray(jnp.inf, point.dtype), jnp.int32(0)), (curves, reports))
    point = lax.while_loop(unfinished, step, first)[0]
    theta, probabilities = look(point)
    volume = jnp.sum(jnp.log(jnp.diagonal(factor_of(theta, probabilities))))
    evidence = gained(probabilities, reports.probabilities(uniform)) - matmul(point, point) / 2 - volume
    return point, theta, jnp.where(jnp.isfinite(evidence), evidence, -jnp.inf)
