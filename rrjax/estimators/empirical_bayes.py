"""Empirical Bayes: posterior means of the shares under a prior that is estimated from the same counts.

`empirical_bayes`:

counts → cells, a grid of shares, and what each count says of them (`histogram`) → the prior (`prior`)
       → posterior means and variances of the cells, in the order of the counts, interpolated between them

The posterior means sum to about one; the shares take the rest, each in proportion to its variance.

`ordered_bayes`, for categories in order whose neighbours have similar shares:

counts → x = 2·√N·arcsin √(count/N), with noise of about one → a smooth curve (`rrjax.numerics.smoothing_spline`)
       → departures of each x from the prediction by its neighbours, and their prior (`npmle`)
       → three posterior means: by the prior of `empirical_bayes`, by the curve, by the curve and the departures
       → their average, weighted by how well each predicts the counts
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import Estimand, check_estimand
from rrjax.data.mixture import Mixture
from rrjax.data.tally import SupportData, Tally, support_data
from rrjax.estimators.histogram import (
    EVEN_WITHIN,
    MARGIN,
    NUM_ATOMS,
    NUM_CELLS,
    Histogram,
    Noise,
    among,
    cell_of,
    reliability,
    variances_of,
    warped,
    widened_normal_loglik,
)
from rrjax.estimators.prior import LEAST_VARIANCE, Prior, npmle, start_of
from rrjax.estimators.whole_reports import check_whole, equivalent
from rrjax.numerics.products import matmul
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import take_at, with_sharding_of
from rrjax.numerics.smoothing_spline import smoothed
from rrjax.numerics.solvers import without_derivative
from rrjax.numerics.sums import accurate_sum

LARGEST_VARIANCE = 0.25
"""The largest variance of anything in [0, 1]."""
NO_DERIVATIVES = (
    "empirical_bayes and ordered_bayes have no derivatives: take differences of two estimates, or the derivative of "
    "mle_star or inv_p"
)
MAX_SIMPLEX_STEPS = 50
"""Largest number of steps to shares that sum to one."""
SMALLEST_SHARE = 1e-6
"""Smallest share, as a part of equal shares; it exceeds the rounding of a tiny posterior mean."""
MEAN_ROOT_SHIFT = 0.25
"""Offset of a count before its root: it removes most of the bias of the root, which a curve would keep."""
CATEGORIES_IN_BLOCK = 4096
"""Number of categories whose posteriors are computed at once."""
MISSING_NATS = 0.5
"""Smoothing of the prior of departures, evenly over its atoms, in nats of the whole sample."""
PRIOR_LOG_ODDS = (0.0, 0.0, -2.5)
"""Logarithms of the prior weights of the three models: the prior of all shares, the curve, curve and departures."""


@exportable
class EmpiricalBayes(NamedTuple):
    """The result of `empirical_bayes`.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        variances: `[K]`, posterior variances of the shares. They include the error of the prior, and the condition that
            the shares sum to one. If `undetermined`, they are wide: mean squares of the shares around the estimate, by
            what each count alone says. They average over all categories: of a few present ones among many that are
            empty, 1.96 deviations cover four in five. `rrjax.inference.intervals` covers each.
        atoms: `[M]`, shares in rising order, from zero; one is the equal share, 1/K.
        weights: `[M]`, the prior: the part of the categories with about such a share.
        gap: Scalar, nats, to rounding: an upper bound of the distance of the least smoothed maximum likelihood prior of
            mean 1/K, used or not, from the largest smoothed log-likelihood of all counts.
        gain: Scalar, nats: the log-likelihood of that prior less that of equal shares.
        undetermined: Scalar boolean: whether the gain was too small, so that the prior is the base prior.
    """

    theta: Float[Array, " K"]
    variances: Float[Array, " K"]
    atoms: Float[Array, " M"]
    weights: Float[Array, " M"]
    gap: Float[Array, ""]
    gain: Float[Array, ""]
    undetermined: Bool[Array, ""]


def empirical_bayes(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    *,
    mixture: Mixture | None = None,
    estimand: Estimand = "users",
) -> EmpiricalBayes:
    """Estimates each share by its posterior mean; the prior is estimated from the same counts.

    The prior is a distribution of shares with mean 1/K: how many categories are empty, how many have a large share. The
    average of several parametric families, weighted by how well they predict the counts, is the base prior. The prior
    maximizes the likelihood of all counts, smoothed by the base prior, which counts as much as 20, 80 or 10⁴
    categories: whichever predicts counts best that it has not seen (by cross-validation, nearly; 20 if K > 2,000).
    Posterior means have a small expected squared error. They sum to one: their prior is moved so far towards that as
    its own uncertainty suggests, and they take the rest. A category with a larger count never has a smaller share
    (unless rates differ by category, as of a survey design).

    Fewer than eight categories determine no prior: a part of (8 − K)/6 of the estimate is by each count alone then.
    If the counts hardly determine the prior (its log-likelihood is less than ¾·log(K/8) nats above that of equal
    shares), the prior is the base prior, and `.undetermined` is true.

    Args:
        counts: `[K]`, integers, the reports per category. Or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        mixture: The likelihood of the whole reports of the tally, for K up to 512: the estimate then uses which
            categories come together in a report, and is closer.
        estimand: `"users"` for the shares among these users, or `"distribution"` for the shares in the distribution
            that the users were drawn from. They differ if the noise of the mechanism is small.

    Returns:
        An `EmpiricalBayes`. Its `theta` is on the simplex, for any usable counts; all NaN if `mle_star` is. Memory O(K
        + B·M + M·R), time O(K + B·M² + M·B·R) with B = min(K, 192) cells of counts (the prior sees their means; the 64
        largest counts have cells of their own), M = 128 atoms and R = O(log K), some hundred to thousand parametric
        priors. `jit`, `vmap`; no derivatives. The squared errors of float32 and float64 differ by less than a
        hundredth.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers (a posterior needs whole reports), an ε with a
            tally, an unknown estimand, a mixture of other reports or of more categories.
        NotImplementedError: A derivative is taken: that of `mle_star` or `inv_p` exists, and differences of two
            estimates do.

    Example:
        >>> import rrjax
        >>> estimate = rrjax.empirical_bayes([5540, 4510, 3490, 3480, 2980], epsilon=1.0)
        >>> [round(share, 2) for share in estimate.theta.tolist()]
        [0.5, 0.3, 0.1, 0.1, 0.0]

    Note:
        `validation/results/accuracy-cpu.md` has its squared errors, with those of all other estimators, and of an
        oracle whose prior is the true shares. `mle_star` maximizes the likelihood; `rrjax.inference.intervals` has
        confidence intervals.

    References:
        Robbins, "An Empirical Bayes Approach to Statistics", Berkeley Symposium, 1956.
        Kiefer and Wolfowitz, "Consistency of the Maximum Likelihood Estimator in the Presence of Infinitely Many
        Incidental Parameters", Annals of Mathematical Statistics 27, 1956.
        Brown, Greenshtein and Ritov, "The Poisson Compound Decision Problem Revisited", arXiv:1006.4582.
        Koenker and Mizera, "Convex Optimization, Shape Constraints, Compound Decisions, and Empirical Bayes Rules",
        JASA 109, 2014.
    """
    check_estimand(estimand)
    return of_evidence(evidence_of(counts, epsilon, mixture, estimand), estimand)


def evidence_of(
    counts: ArrayLike | Tally, epsilon: ArrayLike | None, mixture: Mixture | None, estimand: Estimand
) -> SupportData:
    """The evidence of support counts or, with a mixture, of whole reports."""
    data = support_data(counts, epsilon)
    if mixture is None:
        return data
    reports = check_whole(data, mixture)
    return equivalent(data, of_evidence(data, estimand).theta, reports)


@partial(program, static_argnums=(1,))
def of_evidence(data: SupportData, estimand: Estimand) -> EmpiricalBayes:
    """`empirical_bayes`, of checked arguments."""
    size = data.support.shape[0]
    data = without_derivative(data, NO_DERIVATIVES)
    histogram = Histogram.of(data, estimand)
    noise, mean, weight = histogram.noise, histogram.mean, histogram.weight
    prior = Prior.of(histogram)
    undetermined = prior.gain < least_gain(size)
    weights = jnp.where(undetermined, prior.base, prior.weights)
    theta = moved_to_simplex(*histogram.posterior(weights), weight)

    # What each count says alone.
    plain = mean / (noise.number * noise.d)
    inside = jnp.clip(plain, 0, 1)
    by_mechanism = data.rates.variance(inside) / noise.number
    noisy = noise.variance(inside) if estimand == "distribution" else by_mechanism
    by_mechanism = jnp.minimum(by_mechanism, LARGEST_VARIANCE)
    wide = jnp.where(noise.known, by_mechanism, given_sum(by_mechanism, weight))
    if estimand == "distribution":  # users who are drawn add up to all of them, as reports do whose sum is known
        wide = wide + noise.variance_of_draws(inside)
    part = part_without_prior(size)
    if part > 0:
        theta = part * moved_to_simplex(plain, noisy, weight) + (1 - part) * theta
    shrunk = jnp.minimum(wide + (inside - theta) ** 2, LARGEST_VARIANCE)  # the mean square around the estimate
    variance = jnp.where(undetermined, shrunk, part * wide + (1 - part) * prior.variances)
    if not noise.varies:
        theta = isotonic(mean, theta, weight)
    theta, variances = histogram.read(theta, variance)
    theta = jnp.maximum(theta, SMALLEST_SHARE / size)
    theta = theta / accurate_sum(theta)
    undetermined = undetermined & data.usable
    estimate = EmpiricalBayes(theta, variances, histogram.atoms.share, weights, prior.gap, prior.gain, undetermined)
    return jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else jnp.where(data.usable, leaf, jnp.nan), estimate)


def given_sum(variances: Float[Array, " B"], weight: Float[Array, " B"]) -> Float[Array, " B"]:
    """The variances of independent shares, given their sum; `weight` is the number of categories with each."""
    total = matmul(weight, variances)
    return jnp.maximum(variances - variances * (variances / jnp.where(total > 0, total, 1)), LEAST_VARIANCE * variances)


def least_gain(num_categories: int) -> float:
    """The gain over equal shares, nats, below which the prior is the base prior.

    By chance the largest of K counts stands out, which raises the likelihood by an amount that grows like log K. The
    error of an estimate that takes this for a share grows with K. The factors are measured: with few categories this
    bound costs more than it gains.
    """
    return 0.75 * math.log(num_categories / 8)


def part_without_prior(num_categories: int) -> float:
    """The part of an estimate by each count alone in that for few categories, from which no prior can be estimated.

    One for two categories, zero from eight on. It is measured: more loses where shares are equal or zero, less where a
    share is at the limit of what the counts show.
    """
    return max(0.0, (8 - num_categories) / 6)


def moved_to_simplex(
    theta: Float[Array, " B"], variances: Float[Array, " B"], weight: Float[Array, " B"]
) -> Float[Array, " B"]:
    """Moves shares, each in proportion to its variance, until they sum to one and none is below the smallest share.

    `weight` is the number of categories with each. A posterior mean is never zero, so no divergence of the truth from
    the estimate is infinite.
    """
    size = jnp.sum(weight)
    smallest = SMALLEST_SHARE / size
    # A small positive scale for each, so that the sum can change even if all variances are zero.
    scale = variances + matmul(weight, variances) / size / 100 + jnp.finfo(theta.dtype).eps / size
    scale = scale / matmul(weight, scale)

    # Σ max(θ + level·scale, smallest) − 1 is convex and grows with the level: from above, Newton never overshoots.
    def improve(state):
        level, _, number = state
        moved = theta + level * scale
        excess = accurate_sum(weight * jnp.maximum(moved, smallest)) - 1
        # A share at the bound can move upwards; if all are below it, the largest moves.
        free = moved >= jnp.minimum(smallest, jnp.max(moved))
        step = excess / jnp.sum(jnp.where(free, weight * scale, 0))
        return level - step, jnp.abs(excess) > 8 * jnp.finfo(theta.dtype).eps, number + 1

    state = with_sharding_of((jnp.zeros((), theta.dtype), jnp.asarray(True), jnp.int32(0)), theta)
    level, _, _ = lax.while_loop(lambda state: state[1] & (state[2] < MAX_SIMPLEX_STEPS), improve, state)
    return jnp.maximum(theta + level * scale, smallest)


def isotonic(places: Float[Array, " B"], values: Float[Array, " B"], weight: Float[Array, " B"]) -> Float[Array, " B"]:
    """The values nearest in weighted squares that do not fall where places rise.

    At each place the largest, over starts before it, of the smallest mean from there to an end after it.
    """
    places = jnp.where(weight > 0, places, jnp.inf)
    order = jnp.argsort(places)
    places, values, weight = (take_at(each, order) for each in (places, values, weight))
    later = jnp.arange(values.shape[0]) >= jnp.arange(values.shape[0])[:, None]
    mass = jnp.cumsum(jnp.where(later, weight, 0), axis=1)
    mean = jnp.cumsum(jnp.where(later, weight * values, 0), axis=1) / jnp.where(mass > 0, mass, 1)
    least = lax.cummin(jnp.where(later & (mass > 0), mean, jnp.inf), axis=1, reverse=True)
    fitted = jnp.where(weight > 0, jnp.max(jnp.where(later, least, -jnp.inf), axis=0), 0)
    # Equal places have the value of the first, whatever rounding made of them.
    new = places > jnp.append(places[:1], places[:-1])
    first = lax.cummax(jnp.where(new, jnp.arange(places.shape[0]), 0))
    return jnp.zeros_like(values).at[order].set(take_at(fitted, first))


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
        >>> estimate = rrjax.ordered_bayes([150, 172, 190, 215, 221, 208, 195, 170, 155, 148], epsilon=1.0)
        >>> [round(share, 2) for share in estimate.theta.tolist()]
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
    return _ordered(data, estimand)


@partial(program, static_argnums=(1,))
def _ordered(data: SupportData, estimand: Estimand) -> OrderedBayes:
    size = data.excess.shape[0]
    data = without_derivative(data, NO_DERIVATIVES)
    unordered = of_evidence(data, estimand)
    noise = Noise.of(data)
    x = noise.x_of_excess(data.excess + MEAN_ROOT_SHIFT)
    most, middle = noise.x_of_share(1.0), noise.x_of_share(1 / size)

    from_middle = _departures(noise, x, jnp.full_like(x, middle))
    curve = smoothed(x)
    share = noise.share_of_x(curve.level)
    by_curve = among(noise, estimand, data.excess, share, curve.leverage * noise.variance(share))[:2]
    predicted = jnp.clip(curve.left_out, 0, most)
    departures = _departures(noise, x, predicted)
    by_both = _by_departures(noise, x, predicted, departures, estimand)

    # A fitted prior predicts the counts too well, by the gain that chance alone gives.
    chance_gain = max(least_gain(size), 0.0)
    fitted = jnp.where(unordered.undetermined, from_middle.none, from_middle.log_likelihood - chance_gain)
    evidences = jnp.stack([fitted, curve.log_likelihood, departures.log_likelihood - chance_gain])
    beliefs = jax.nn.softmax(evidences + jnp.asarray(PRIOR_LOG_ODDS, x.dtype))
    # Departures from a curve that follows every count are as small as the curve makes them: they are no evidence.
    beliefs = jnp.where(curve.interpolates, jnp.asarray([1, 0, 0], beliefs.dtype), beliefs)
    each = [(unordered.theta, unordered.variances)]
    each += [(_on_simplex(*estimate), estimate[1]) for estimate in (by_curve, by_both)]
    thetas, variances = (jnp.stack(parts) for parts in zip(*each, strict=True))
    theta = matmul(beliefs, thetas)
    theta = theta / jnp.sum(theta)
    estimate = OrderedBayes(theta, matmul(beliefs, variances + (thetas - theta) ** 2), beliefs)
    return jax.tree.map(lambda leaf: jnp.where(data.usable, leaf, jnp.nan), estimate)


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
    likelihoods = widened_normal_loglik(-((cells[:, None] - atoms) ** 2), variance)
    top = jnp.max(likelihoods, axis=1)
    table = jnp.exp(likelihoods - top[:, None])
    excess = _total(lambda predicted: noise.share_of_x(predicted + atoms), predicted) - 1
    # If no departures make the shares of a curve sum to one, the curve is too far off to be used.
    possible = (jnp.min(excess) < 0) & (jnp.max(excess) > 0)
    t = jnp.where(possible, excess, atoms)
    smoothing = jnp.full_like(atoms, MISSING_NATS / (x.shape[0] * NUM_ATOMS))
    fit = npmle(table, weight, smoothing, lambda *_: t, start_of(t))
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
    return mean, weight, jnp.sum((departure - take_at(mean, index)) ** 2) / 2


def _by_departures(noise: Noise, x, predicted, prior: _Departures, estimand):
    """Posterior means and variances of shares that depart from their predictions."""
    within = reliability(prior.variance)
    # Of an atom that stands for few categories, these alone determine the place.
    part = within + (1 - within) / jnp.maximum(prior.weights * x.shape[0], 1)
    log_weights = jnp.log(jnp.maximum(prior.weights, jnp.finfo(x.dtype).tiny))

    def moments(category):
        excess, x, predicted = category
        departure = x - predicted
        posterior = jax.nn.softmax(
            widened_normal_loglik(-((departure - prior.atoms) ** 2), prior.variance) + log_weights
        )
        share = noise.share_of_x(predicted + prior.atoms + within * (departure - prior.atoms))
        share, variance = among(noise, estimand, excess, share, part * noise.variance(share))[:2]
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
