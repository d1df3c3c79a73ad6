"""Joint distributions of several columns from whole reports; how much they interact is estimated from the reports.

    log θ = main effects of the columns + interactions of two + interactions of three … + constant

Every (a, r) of a grid is a Gaussian prior of log θ: interactions of m columns have the standard deviation a·r^(m − 2),
averaged over the cells. A small a is independence; a large a lets all cells stand alone. The most probable θ of each is
found by Newton's method, and the estimate is their average, weighted by the probability of the reports under each prior
(Laplace's approximation).
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
from jaxtyping import Array, Float

from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture, Reports
from rrjax.estimators.laplace import averaged, given_of
from rrjax.numerics.pytrees import exportable

MAIN_DEVIATION = 3.0
"""Standard deviation of the main effects of a column on log θ."""
AMPLITUDES = np.geomspace(0.03, 8.0, 9)
"""Standard deviations a of the interactions of two columns."""
RATIOS = (1.0, 0.3, 0.05)
"""Ratios r of the standard deviations of interactions of one more column; with two columns there are none."""
MAX_CELLS = 1024
"""Largest number of cells: an estimate takes O(K³)."""


@exportable
class JointBayes(NamedTuple):
    """The result of `joint_bayes`.

    Attributes:
        theta: `[∏K]`, the joint shares, on the simplex.
        beliefs: `[3, 9]`, with sum one: the posterior probability of each prior (`RATIOS`, `AMPLITUDES`); of two
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
        >>> found = rrjax.joint_bayes(product.mixture(product.randomize(jax.random.key(0), values)), product.shape)
        >>> [[round(t, 1) for t in row] for row in found.theta.reshape(product.shape).tolist()]
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
    if mixture.num_categories > MAX_CELLS:
        raise ArgumentError(
            f"joint_bayes takes up to {MAX_CELLS:,} cells, got {mixture.num_categories:,}: take fewer columns together",
            argument="mixture",
        )
    return _estimated(*given_of(mixture, "joint_bayes"), sizes)


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
def _estimated(start, reports: Reports, total, sizes) -> JointBayes:
    curves, numbers = (jnp.asarray(each, start.dtype) for each in _curves(sizes))

    def of_ratio(ratio):
        return curves, lambda amplitude: jnp.where(numbers == 1, MAIN_DEVIATION, amplitude * ratio ** (numbers - 2))

    ratios = jnp.asarray(RATIOS if len(sizes) > 2 else RATIOS[:1], start.dtype)
    return JointBayes(*averaged(of_ratio, ratios, AMPLITUDES, start, reports, total))
