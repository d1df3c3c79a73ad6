"""Empirical Bayes for categories in order whose neighbours have similar shares: ages, incomes, hours.

counts → x = 2·√N·arcsin √(count/N), with noise of about one → a smooth curve (`rrjax.numerics.smoothing_spline`)
       → departures of each x from the prediction by its neighbours, and their prior (`rrjax.estimators.npmle`)
       → three posterior means: by the prior of `empirical_bayes`, by the curve, by the curve and the departures
       → their average, weighted by how well each predicts the counts
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import Estimand, check_estimand
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Evidence, Tally
from rrjax.estimators.empirical_bayes import (
    MAX_ITERS,
    NO_DERIVATIVES,
    NUM_ATOMS,
    NUM_CELLS,
    evidence_of,
    least_gain,
    moved_to_simplex,
    of_evidence,
)
from rrjax.estimators.npmle import npmle, start_of
from rrjax.estimators.prior import (
    EVEN_WITHIN,
    MARGIN,
    Noise,
    among,
    cell_of,
    reliability,
    variances_of,
    warped,
    widened,
)
from rrjax.numerics.implicit import without_derivative
from rrjax.numerics.products import matmul
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import looked_up
from rrjax.numerics.smoothing_spline import smoothed
from rrjax.numerics.sums import accurate_sum

MEAN_ROOT_SHIFT = 0.25
"""Offset of a count before its root: it removes most of the bias of the root, which a curve would keep."""
CATEGORIES_IN_BLOCK = 4096
"""Number of categories whose posteriors are computed at once."""
MISSING_NATS = 0.5
"""Smoothing of the prior of departures, evenly over its atoms, in nats of the whole sample."""
PRIOR_LOG_ODDS = (0.0, 0.0, -2.5)
"""Logarithms of the prior weights of the three models: the prior of all shares, the curve, curve and departures."""


@exportable
class OrderedBayes(NamedTuple):
    """The result of `ordered_bayes`.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        variances: `[K]`, posterior variances of the shares, with the curve's smoothness and the priors taken as known
            and without the condition that the shares sum to one.
        beliefs: `[3]`, with sum one, the posterior probabilities of the three models: the one of `empirical_bayes`,
            which ignores the order; a smooth curve; a smooth curve with single categories that depart from it.
    """

    theta: Float[Array, " K"]
    variances: Float[Array, " K"]
    beliefs: Float[Array, " 3"]


def ordered_bayes(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    *,
    mixture: Mixture | None = None,
    estimand: Estimand = "users",
) -> OrderedBayes:
    """Estimates the shares of categories in order whose neighbours have similar shares, such as ages or hours.

    If a single count is mostly noise, the neighbouring counts determine its share better than the histogram of all
    counts, which `empirical_bayes` uses. The counts determine the smoothness of a curve through them; large departures
    from it mark categories that stand out (a round number, a legal limit). Neighbours are weighted by how well they
    predict each count; if they predict badly, the estimate is nearly that of `empirical_bayes`. An order without
    meaning costs little if shares differ. If all are equal, which `empirical_bayes` may find exactly, it costs the
    error of a curve.

    Args:
        counts: `[K]`, integers, the reports per category, in their order. Or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        mixture: The likelihood of the whole reports of the tally, as in `empirical_bayes`.
        estimand: `"users"` for the shares among these users, or `"distribution"` for the shares in the distribution
            that the users were drawn from.

    Returns:
        An `OrderedBayes`. Its `theta` is on the simplex, for any usable counts; all NaN if `mle_star` is. Time O(K·log
        K + K·M + B·M²) with M = 128 and B = min(K, 192), memory O(K + 4096·M). `jit`, `vmap`; no derivatives. The
        estimates of float32 and float64 differ by a few hundredths of the largest posterior standard deviation, by
        where the solver ends.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers, an ε with a tally, an unknown estimand, a
            mixture of other reports or of more than 512 categories.
        NotImplementedError: A derivative is taken: that of `mle_star` or `inv_p` exists, and differences of two
            estimates do.

    Example:
        >>> import rrjax
        >>> found = rrjax.ordered_bayes([150, 172, 190, 215, 221, 208, 195, 170, 155, 148], epsilon=1.0)
        >>> [round(share, 2) for share in found.theta.tolist()]
        [0.01, 0.05, 0.13, 0.19, 0.22, 0.19, 0.13, 0.06, 0.01, 0.0]

    Note:
        `validation/results/ordered-cpu.md` has its squared errors.

    References:
        Wahba, "A Comparison of GCV and GML for Choosing the Smoothing Parameter in the Generalized Spline Smoothing
        Problem", Annals of Statistics 13, 1985.
        Ignatiadis and Wager, "Covariate-Powered Empirical Bayes Estimation", NeurIPS 2019: arXiv:1906.01611.
    """
    check_estimand(estimand)
    data = evidence_of(counts, epsilon, mixture, estimand)
    data.rates.check_equal("ordered_bayes")
    return _estimated(data, estimand)


@partial(program, static_argnums=(1,))
def _estimated(data: Evidence, estimand: Estimand) -> OrderedBayes:
    size = data.excess.shape[0]
    data = without_derivative(data, NO_DERIVATIVES)
    unordered = of_evidence(data, estimand)
    noise = Noise.of(data)
    x = noise.x_of_excess(data.excess + MEAN_ROOT_SHIFT)
    most, middle = noise.x_of_share(1.0), noise.x_of_share(1 / size)

    from_middle = _departures(noise, x, jnp.full_like(x, middle))
    curve = smoothed(x)
    share = noise.share_of_x(curve.level)
    by_curve = among(noise, estimand, data.excess, share, curve.leverage * noise.variance(share))
    predicted = jnp.clip(curve.left_out, 0, most)
    departures = _departures(noise, x, predicted)
    by_both = _by_departures(noise, x, predicted, departures, estimand)

    # A fitted prior predicts the counts too well, by the gain that chance alone gives.
    chance_gain = max(least_gain(size), 0.0)
    fitted = jnp.where(unordered.undetermined, from_middle.none, from_middle.log_likelihood - chance_gain)
    evidences = jnp.stack([fitted, curve.log_likelihood, departures.log_likelihood - chance_gain])
    beliefs = jax.nn.softmax(evidences + jnp.asarray(PRIOR_LOG_ODDS, x.dtype))
    each = [(unordered.theta, unordered.variances)]
    each += [(_on_simplex(*found), found[1]) for found in (by_curve, by_both)]
    thetas, variances = (jnp.stack(parts) for parts in zip(*each, strict=True))
    theta = matmul(beliefs, thetas)
    theta = theta / jnp.sum(theta)
    found = OrderedBayes(theta, matmul(beliefs, variances + (thetas - theta) ** 2), beliefs)
    return jax.tree.map(lambda leaf: jnp.where(data.usable, leaf, jnp.nan), found)


def _on_simplex(theta, variances):
    theta = moved_to_simplex(theta, variances, jnp.ones_like(theta))
    return theta / accurate_sum(theta)


class _Departures(NamedTuple):
    """The prior of the departures of x from its prediction, with variances as in `Atoms`."""

    atoms: Float[Array, " M"]
    variance: Float[Array, " M"]
    weights: Float[Array, " M"]
    log_likelihood: Float[Array, ""]
    none: Float[Array, ""]  # the log-likelihood without departures


def _departures(noise: Noise, x, predicted) -> _Departures:
    """The maximum likelihood prior of departures with which the shares are expected to sum to one."""
    departure = x - predicted
    low, high = jnp.minimum(jnp.min(departure), -1) - MARGIN, jnp.maximum(jnp.max(departure), 1) + MARGIN
    ends = warped(low), warped(high)
    grid = ends[0] + (ends[1] - ends[0]) * jnp.asarray(np.linspace(0, 1, NUM_ATOMS - 1), x.dtype)
    atoms = jnp.sort(jnp.concatenate([EVEN_WITHIN * jnp.sinh(grid / EVEN_WITHIN), jnp.zeros_like(grid[:1])]))
    variance = variances_of(atoms)

    cells, weight, lost = _cells(departure)
    likelihoods = widened(-((cells[:, None] - atoms) ** 2), variance)
    top = jnp.max(likelihoods, axis=1)
    table = jnp.exp(likelihoods - top[:, None])
    excess = _total(lambda predicted: noise.share_of_x(predicted + atoms), predicted) - 1
    # If no departures make the shares of a curve sum to one, the curve is too far off to be used.
    possible = (jnp.min(excess) < 0) & (jnp.max(excess) > 0)
    t = jnp.where(possible, excess, atoms)
    smoothing = jnp.full_like(atoms, MISSING_NATS / (x.shape[0] * NUM_ATOMS))
    fit = npmle(table, weight, smoothing, lambda *_: t, start_of(t), MAX_ITERS)
    likelihood = matmul(weight, jnp.log(matmul(table, fit.weights)) + top) - lost
    likelihood = jnp.where(possible, likelihood, -jnp.inf)
    return _Departures(atoms, variance, fit.weights, likelihood, -jnp.sum(departure**2) / 2)


def _cells(departure):
    """The mean departure of each cell, its number of categories, and the log-likelihood within cells."""
    if departure.shape[0] <= NUM_CELLS:
        return departure, jnp.ones_like(departure), 0.0
    scale = warped(departure)
    index = cell_of(scale, jnp.min(scale), jnp.max(scale), NUM_CELLS)
    empty = jnp.zeros(NUM_CELLS, departure.dtype)
    weight = empty.at[index].add(1)
    mean = empty.at[index].add(departure) / jnp.maximum(weight, 1)
    return mean, weight, jnp.sum((departure - looked_up(mean, index)) ** 2) / 2


def _by_departures(noise: Noise, x, predicted, prior: _Departures, estimand):
    """Posterior means and variances of shares that depart from their predictions."""
    within = reliability(prior.variance)
    # Of an atom that stands for few categories, these alone determine the place.
    part = within + (1 - within) / jnp.maximum(prior.weights * x.shape[0], 1)
    log_weights = jnp.log(jnp.maximum(prior.weights, jnp.finfo(x.dtype).tiny))

    def moments(category):
        excess, x, predicted = category
        departure = x - predicted
        posterior = jax.nn.softmax(widened(-((departure - prior.atoms) ** 2), prior.variance) + log_weights)
        share = noise.share_of_x(predicted + prior.atoms + within * (departure - prior.atoms))
        share, variance = among(noise, estimand, excess, share, part * noise.variance(share))
        mean = matmul(posterior, share)
        return mean, matmul(posterior, variance + (share - mean) ** 2)

    return _mapped(moments, (noise.data.excess, x, predicted))


def _mapped(function, categories):
    """The values of the function for all categories, computed in blocks if they are many."""
    if jax.tree.leaves(categories)[0].shape[0] <= CATEGORIES_IN_BLOCK:
        return jax.vmap(function)(categories)
    return lax.map(function, categories, batch_size=CATEGORIES_IN_BLOCK)


def _total(function, categories):
    """The sum of the function over the categories, by blocks if they are many."""
    size = categories.shape[0]
    if size <= CATEGORIES_IN_BLOCK:
        return jnp.sum(jax.vmap(function)(categories), axis=0)
    blocks = [
        jnp.pad(each, (0, -size % CATEGORIES_IN_BLOCK)).reshape(-1, CATEGORIES_IN_BLOCK)
        for each in (categories, jnp.ones_like(categories))
    ]
    return jnp.sum(lax.map(lambda block: matmul(block[1], jax.vmap(function)(block[0])), tuple(blocks)), axis=0)
