"""Empirical Bayes: posterior means of the shares under a prior that is estimated from the same counts.

counts → cells and a grid of shares (`prior`) → a base prior, averaged over parametric families (`base_prior`)
       → the maximum likelihood prior, smoothed towards the base prior (`npmle`), with about the right sum of shares
       → posterior means and variances of the cells, in the order of the counts, interpolated between them

**The sum of the shares.** Under a prior of mean 1/K the posterior means sum to 1 + E. The error of the prior has a part
in E (the sum has a variance H from it), and so have the errors of the shares (variance V). The prior is moved, as far
as the counts allow it, until the excess is E·V/(V + H). The shares take the rest, each in proportion to its variance.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import Estimand, check_estimand
from rrjax.data.categories import as_integer
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Evidence, Tally, evidence
from rrjax.estimators.base_prior import base_prior
from rrjax.estimators.npmle import Mixing, gap_of, information, npmle, posteriors, start_of
from rrjax.estimators.prior import Noise, atoms_of, cells_of, largest_of, log_likelihoods, read_cells, within_atoms
from rrjax.estimators.whole_reports import check_whole, equivalent
from rrjax.numerics.implicit import without_derivative
from rrjax.numerics.newton import factored, raised, solved
from rrjax.numerics.products import matmul
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned, looked_up
from rrjax.numerics.sums import accurate_sum

NUM_CELLS = 192
NUM_ATOMS = 128
MAX_ITERS = 40
"""Largest number of steps of the interior point; it needs some ten."""
BASE_COUNTS = 20.0
"""The weight of the base prior beside the counts of all categories."""
LARGEST_FALL = 0.6
"""Largest part of the mass at no share that one step takes from the sum of the shares."""
LARGEST_RISE = 0.3
"""Largest change of the sum of the shares by a step upwards, or by twice that mass."""
MIXING_COUNTS = 0.5
"""Added to the base prior's counts for the uncertainty of the prior, evenly over the atoms."""
NUM_TURNS = 2
"""Number of priors: the first with mean 1/K, the others with posterior means that sum to the aim of the one before."""
LARGEST_VARIANCE = 0.25
"""The largest variance of anything in [0, 1]."""
LEAST_VARIANCE = 0.05
"""Smallest variance of a share under all conditions, as a part of its variance under the prior alone."""
NO_DERIVATIVES = (
    "empirical_bayes and ordered_bayes have no derivatives: take differences of two estimates, or the derivative of "
    "mle_star or inv_p"
)
MAX_SIMPLEX_STEPS = 50
"""Largest number of steps to shares that sum to one."""
SMALLEST_SHARE = 1e-6
"""Smallest share, as a part of equal shares; it exceeds the rounding of a tiny posterior mean."""


@exportable
class EmpiricalBayes(NamedTuple):
    """The result of `empirical_bayes`.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        variances: `[K]`, posterior variances of the shares. They include the error of the prior, and the condition that
            the shares sum to one. If `undetermined`, they are wide: what each count alone says of its share.
        atoms: `[M]`, shares in rising order, from zero; one is the equal share, 1/K.
        weights: `[M]`, the prior: the part of the categories with about such a share.
        gap: Scalar, nats, to rounding: an upper bound of the distance of the smoothed maximum likelihood prior of mean
            1/K, used or not, from the largest smoothed log-likelihood of all counts.
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
    num_cells: int = NUM_CELLS,
    num_atoms: int = NUM_ATOMS,
    max_iters: int = MAX_ITERS,
) -> EmpiricalBayes:
    """Estimates each share by its posterior mean; the prior is estimated from the same counts.

    The prior is a distribution of shares with mean 1/K: how many categories are empty, how many have a large share. The
    average of several parametric families, weighted by how well they predict the counts, is the base prior. The prior
    maximizes the likelihood of all counts, smoothed by the base prior, which counts as much as 20 categories. Posterior
    means have a small expected squared error. They sum to one: their prior is moved so far towards that as its own
    uncertainty suggests, and they take the rest. A category with a larger count never has a smaller share
    (unless rates differ by category, as of a survey design).

    If the counts hardly determine the prior (its log-likelihood is less than ¾·log(K/8) nats above that of equal
    shares), the prior is the base prior, and `.undetermined` is true.

    Args:
        counts: `[K]`, integers, the reports per category. Or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        mixture: The likelihood of the whole reports of the tally, for K up to 512: the estimate then uses which
            categories come together in a report, and is closer.
        estimand: `"users"` for the shares among these users, or `"distribution"` for the shares in the distribution
            that the users were drawn from. They differ if the noise of the mechanism is small.
        num_cells: Cells of the histogram, if there are more categories, at least 128; the 64 largest counts have cells
            of their own. The prior sees only the mean of the counts of a cell.
        num_atoms: Number of shares in the prior, M, at least 128.
        max_iters: Largest number of solver steps for a prior; some ten are needed.

    Returns:
        An `EmpiricalBayes`. Its `theta` is on the simplex, for any usable counts; all NaN if `mle_star` is. Memory O(K
        + B·M + M·R), time O(K + B·M² + M·B·R) with B = min(K, num_cells) and R = O(log K), some hundred to thousand
        parametric priors. `jit`, `vmap`; no derivatives. The squared errors of float32 and float64 differ by less than
        a hundredth.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers (a posterior needs whole reports), an ε with a
            tally, an unknown estimand, too few cells or atoms, a mixture of other reports or of more categories.
        NotImplementedError: A derivative is taken: that of `mle_star` or `inv_p` exists, and differences of two
            estimates do.

    Example:
        >>> import rrjax
        >>> found = rrjax.empirical_bayes([5540, 4510, 3490, 3480, 2980], epsilon=1.0)
        >>> [round(share, 2) for share in found.theta.tolist()]
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
    num_cells, num_atoms = as_integer(num_cells, "num_cells", 128), as_integer(num_atoms, "num_atoms", 128)
    max_iters = as_integer(max_iters, "max_iters", 1)
    options = estimand, num_cells, num_atoms, max_iters
    return of_evidence(evidence_of(counts, epsilon, mixture, *options), *options)


def evidence_of(
    counts: ArrayLike | Tally, epsilon: ArrayLike | None, mixture: Mixture | None, *options: Any
) -> Evidence:
    """The evidence of support counts or, with a mixture, of whole reports; options are those of `of_evidence`."""
    data = evidence(counts, epsilon)
    if mixture is None:
        return data
    reports = check_whole(data, mixture)
    return equivalent(data, of_evidence(data, *options).theta, reports)


@partial(program, static_argnums=(1, 2, 3, 4))
def of_evidence(
    data: Evidence,
    estimand: Estimand,
    num_cells: int = NUM_CELLS,
    num_atoms: int = NUM_ATOMS,
    max_iters: int = MAX_ITERS,
) -> EmpiricalBayes:
    """`empirical_bayes`, of checked arguments."""
    size = data.support.shape[0]
    data = without_derivative(data, NO_DERIVATIVES)
    noise, largest = Noise.of(data), largest_of(data)
    cells = cells_of(noise, largest, num_cells)
    atoms = atoms_of(noise.typical, largest.excess[0], num_atoms)
    likelihoods = log_likelihoods(noise, cells.mean, atoms)
    table = jnp.exp(likelihoods)
    borders = noise.typical.share_of_x((atoms.x[1:] + atoms.x[:-1]) / 2)
    base = base_prior(table, cells.weight, jnp.log(borders), size)
    histogram = Histogram(table, cells.weight, *within_atoms(noise, estimand, cells.mean, atoms))
    departure = atoms.share * size - 1
    first, fit = fitted(histogram, base, departure, max_iters)

    gap = jnp.maximum(size * gap_of(table, cells.weight / size, BASE_COUNTS / size * base, departure, first), 0)
    at_equal = jnp.arange(num_atoms) == jnp.argmin(jnp.abs(departure))
    log_of_equal = jnp.sum(jnp.where(at_equal, likelihoods, 0), axis=1)
    gain = matmul(cells.weight, jnp.log(matmul(table, first.weights)) - log_of_equal)
    undetermined = gain < least_gain(size)
    weights = jnp.where(undetermined, base, fit.prior.weights)
    theta = moved_to_simplex(*histogram.moments(posteriors(table, weights)), cells.weight)

    # What each count says alone.
    plain = cells.mean / (noise.number * noise.d)
    inside = jnp.clip(plain, 0, 1)
    noisy = noise.variance(inside) if estimand == "distribution" else data.rates.variance(inside) / noise.number
    wide = given_sum(jnp.minimum(noisy, LARGEST_VARIANCE), cells.weight)
    part = part_without_prior(size)
    if part > 0:
        theta = part * moved_to_simplex(plain, noisy, cells.weight) + (1 - part) * theta
    variance = jnp.where(undetermined, wide, part * wide + (1 - part) * fit.variances)
    if not noise.varies:
        theta = isotonic(cells.mean, theta, cells.weight)
    theta, variances = read_cells(data, cells, theta, variance)
    theta = jnp.maximum(theta, SMALLEST_SHARE / size)
    theta = theta / accurate_sum(theta)
    found = EmpiricalBayes(theta, variances, atoms.share, weights, gap, gain, undetermined & data.usable)
    return jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else jnp.where(data.usable, leaf, jnp.nan), found)


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


class Histogram(NamedTuple):
    """The counts in cells, and what they say of shares on atoms."""

    table: Float[Array, "B M"]  # the likelihood of a count at an atom
    weight: Float[Array, " B"]  # the number of categories in a cell
    value: Float[Array, "B M"]  # the mean of a share, given its count and atom
    variance: Float[Array, "B M"]  # its variance

    def means(self, known: Float[Array, "B M"]) -> Float[Array, " B"]:
        """Posterior means of the shares, from the probability of each atom."""
        return jnp.sum(known * self.value, axis=1)

    def moments(self, known: Float[Array, "B M"]) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        """Posterior means and variances of the shares."""
        mean = self.means(known)
        return mean, jnp.sum(known * (self.variance + (self.value - mean[:, None]) ** 2), axis=1)


class Fit(NamedTuple):
    """A prior, and what follows from it."""

    prior: Mixing
    excess: Float[Array, ""]  # the sum of the posterior means, less one
    aim: Float[Array, ""]  # the part of the excess that is due to the errors of the shares
    variances: Float[Array, " B"]  # of the shares


def fitted(
    histogram: Histogram, base: Float[Array, " M"], departure: Float[Array, " M"], max_iters: int
) -> tuple[Mixing, Fit]:
    """The smoothed maximum likelihood prior of mean 1/K, and that moved towards the sum of the shares.

    `departure` is K·θ − 1 for each atom.
    """
    table, weight = histogram.table, histogram.weight
    smoothing = BASE_COUNTS / jnp.sum(weight) * base

    def turn(last, first):
        def constraint(g, known):
            """As `departure`, but the excess is to reach the aim, to first order in the weights."""
            mean = histogram.means(known)
            slope = matmul(weight, known * (histogram.value - mean[:, None])) / g
            lack, most = matmul(weight, mean) - 1 - last.aim, -slope[0]
            fall, rise = LARGEST_FALL * jnp.maximum(most, 0), jnp.maximum(LARGEST_RISE, 2 * most)
            return jnp.where(first, departure, slope + jnp.clip(lack, -rise, fall))

        prior = npmle(table, weight, smoothing, constraint, last.prior._replace(num_iters=jnp.int32(0)), max_iters)
        new = _consequences(histogram, smoothing, prior)
        better = first | (jnp.abs(new.excess - last.aim) < jnp.abs(last.excess - last.aim))
        return jax.tree.map(lambda new, old: jnp.where(better, new, old), new, last), prior

    zero = jnp.zeros_like(weight[0])
    begin = aligned(Fit(start_of(departure), zero, zero, jnp.zeros_like(weight)), (table, weight, smoothing))
    fit, priors = lax.scan(turn, begin, aligned(jnp.arange(NUM_TURNS) == 0, table))
    return jax.tree.map(lambda leaf: leaf[0], priors), fit


def _consequences(histogram, smoothing, prior):
    """What follows from a prior: its weights have the covariance of their posterior, by their information.

    The variances are those of the shares, given the prior, and of their means by the prior, given the sum of all.
    """
    weight, g = histogram.weight, prior.weights
    known = posteriors(histogram.table, g)
    mean, variance = histogram.moments(known)
    away = known * (histogram.value - mean[:, None])  # the derivative of the means in the logarithms of the weights
    curvature = information(known, weight)
    factor = factored(raised(curvature, jnp.sum(weight) * smoothing + MIXING_COUNTS / g.shape[0]))
    pull = matmul(weight, away)
    solution = solved(factor, jnp.concatenate([pull[:, None], g[:, None], away.T], axis=1))
    # The weights sum to one.
    solution = solution - solution[:, 1:2] * (matmul(g, solution) / matmul(g, solution[:, 1]))
    move, moves = solution[:, 0], solution[:, 2:]
    of_shares, of_prior = matmul(weight, variance), jnp.maximum(matmul(pull, move), 0)
    with_sum = variance + matmul(away, move)
    total = of_shares + of_prior
    total = jnp.where(total > 0, total, 1)
    everything = variance + jnp.sum(away.T * moves, axis=0) - with_sum * (with_sum / total)
    excess = matmul(weight, mean) - 1
    aim = excess * (of_shares / total)
    return Fit(prior, excess, aim, jnp.maximum(everything, LEAST_VARIANCE * variance))


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

    state = aligned((jnp.zeros((), theta.dtype), jnp.asarray(True), jnp.int32(0)), theta)
    level, _, _ = lax.while_loop(lambda state: state[1] & (state[2] < MAX_SIMPLEX_STEPS), improve, state)
    return jnp.maximum(theta + level * scale, smallest)


def isotonic(places: Float[Array, " B"], values: Float[Array, " B"], weight: Float[Array, " B"]) -> Float[Array, " B"]:
    """The values nearest in weighted squares that do not fall where places rise.

    At each place the largest, over starts before it, of the smallest mean from there to an end after it.
    """
    places = jnp.where(weight > 0, places, jnp.inf)
    order = jnp.argsort(places)
    places, values, weight = (looked_up(each, order) for each in (places, values, weight))
    later = jnp.arange(values.shape[0]) >= jnp.arange(values.shape[0])[:, None]
    mass = jnp.cumsum(jnp.where(later, weight, 0), axis=1)
    mean = jnp.cumsum(jnp.where(later, weight * values, 0), axis=1) / jnp.where(mass > 0, mass, 1)
    least = lax.cummin(jnp.where(later & (mass > 0), mean, jnp.inf), axis=1, reverse=True)
    found = jnp.where(weight > 0, jnp.max(jnp.where(later, least, -jnp.inf), axis=0), 0)
    # Equal places have the value of the first, whatever rounding made of them.
    new = places > jnp.append(places[:1], places[:-1])
    first = lax.cummax(jnp.where(new, jnp.arange(places.shape[0]), 0))
    return jnp.zeros_like(values).at[order].set(looked_up(found, first))
