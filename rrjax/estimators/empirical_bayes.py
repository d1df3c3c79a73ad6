"""Empirical Bayes: posterior means of the shares under a prior that is estimated from the same counts.

counts → cells and atoms (`rrjax.estimators.prior`) → weights of the atoms by maximum likelihood, or equal shares
       → posterior mean and variance at both ends of each cell, interpolated within it → shares that sum to one

The weights (`npmle`) maximize Σ_b w_b·log (L·g)_b over g ≥ 0 with Σ g = 1 and Σ g·t = 0, by an interior point: some ten
solves of an M × M system. EM, with the step n = g∘Lᵀ(w/Lg), needs thousands of passes. The barrier ends above zero,
half a nat of the whole sample below the maximum: there the weights are unique, and rounding hardly moves them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import Estimand, check_estimand
from rrjax.data.categories import as_integer
from rrjax.data.tally import Evidence, Tally, evidence
from rrjax.estimators.prior import atoms_of, cells_of, largest_of, log_likelihoods, posterior_of, read_cells
from rrjax.numerics.newton import factored, interior_step, solved
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum

NUM_CELLS = 256
NUM_ATOMS = 160
MAX_ITERS = 40
"""Largest number of steps of the interior point; it needs some ten."""
MISSING_NATS = 0.5
"""Largest distance of the interior point from the largest log-likelihood of the whole sample, nats."""
MAX_SIMPLEX_STEPS = 50
"""Largest number of steps to shares that sum to one."""
SMALLEST_SHARE = 1e-6
"""Smallest share, as a part of equal shares; it exceeds the rounding of a tiny posterior mean."""


@exportable
class EmpiricalBayes(NamedTuple):
    """The result of `empirical_bayes`.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        variances: `[K]`, posterior variances of the shares, with the prior taken as known and without the condition
            that the shares sum to one.
        atoms: `[M]`, shares. The last is the equal share, 1/K.
        weights: `[M]`, the prior: the part of the categories with about such a share. The maximum likelihood weights,
            or, if `uniform`, all weight on the last.
        gap: Scalar, nats, to rounding: an upper bound of the distance of the maximum likelihood weights, used or not,
            from the largest log-likelihood of all counts.
        gain: Scalar, nats: the log-likelihood of these weights less that of equal shares.
        uniform: Scalar boolean: whether the gain was too small, so that the prior is equal shares.
    """

    theta: Float[Array, " K"]
    variances: Float[Array, " K"]
    atoms: Float[Array, " M"]
    weights: Float[Array, " M"]
    gap: Float[Array, ""]
    gain: Float[Array, ""]
    uniform: Bool[Array, ""]


def empirical_bayes(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    *,
    estimand: Estimand = "users",
    num_cells: int = NUM_CELLS,
    num_atoms: int = NUM_ATOMS,
    max_iters: int = MAX_ITERS,
) -> EmpiricalBayes:
    """Estimates each share by its posterior mean; the prior is estimated from the same counts.

    The prior is a distribution of shares with mean 1/K: how many categories are empty, how many have a large share. It
    is estimated by maximum likelihood from the histogram of all counts, without an assumption on its form. Posterior
    means have a small expected squared error. They are moved in proportion to their variances until they sum to one.

    If the counts hardly determine the prior (its log-likelihood is less than ¾·log(K/8) nats above that of equal
    shares), the prior is equal shares, and `.uniform` is true.

    Args:
        counts: `[K]`, integers, the reports per category. Or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        estimand: `"users"` for the shares among these users, or `"distribution"` for the shares in the distribution
            that the users were drawn from. They differ if the noise of the mechanism is small.
        num_cells: Cells of the histogram, if there are more categories; the 64 largest counts have cells of their own.
            A cell has one count for the prior.
        num_atoms: Number of shares in the prior, M, at least 128.
        max_iters: Largest number of solver steps; some ten are needed.

    Returns:
        An `EmpiricalBayes`. Its `theta` is on the simplex, for any usable counts; all NaN if `mle_star` is. Memory O(K
        + B·M), time O(K + B·M²) with B = min(K, num_cells). `jit`, `vmap`; derivatives hold the prior fixed. The
        squared errors of float32 and float64 differ by less than a hundredth: the barrier of the solver ends at the
        rounding, which matters in float32 from some thousand categories on.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers (a posterior needs whole reports), an ε with a
            tally, an unknown estimand, too few cells or atoms.

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
    return of_evidence(evidence(counts, epsilon), estimand, num_cells, num_atoms, max_iters)


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def of_evidence(
    data: Evidence,
    estimand: Estimand,
    num_cells: int = NUM_CELLS,
    num_atoms: int = NUM_ATOMS,
    max_iters: int = MAX_ITERS,
) -> EmpiricalBayes:
    """`empirical_bayes`, of checked arguments."""
    size = data.support.shape[0]
    fixed = lax.stop_gradient(data)  # a `while_loop` has no derivative in reverse mode
    largest = largest_of(fixed)
    cells = cells_of(fixed, largest, num_cells)
    atoms = atoms_of(fixed, largest, num_atoms)
    likelihoods = log_likelihoods(fixed, cells.middle, atoms)
    fit = npmle(likelihoods, cells.weight, atoms.share * size - 1, max_iters)
    gain = fit.log_likelihood - cells.weight @ likelihoods[:, -1]
    uniform = gain < least_gain(size)
    equal = (jnp.arange(num_atoms) == num_atoms - 1).astype(gain.dtype)
    weights = jnp.where(uniform, equal, fit.weights)

    theta, variances = read_cells(data, cells, lambda excess: posterior_of(data, excess, atoms, weights, estimand))
    theta = moved_to_simplex(theta, variances)
    found = EmpiricalBayes(theta, variances, atoms.share, weights, fit.gap, gain, uniform & data.usable)
    return jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else jnp.where(data.usable, leaf, jnp.nan), found)


def least_gain(num_categories: int) -> float:
    """The gain over equal shares, nats, below which the prior is equal shares.

    By chance the largest of K counts stands out, which raises the likelihood by an amount that grows like log K. The
    error of an estimate that takes this for a share grows with K. The factors are measured: with few categories this
    bound costs more than it gains.
    """
    return 0.75 * math.log(num_categories / 8)


def moved_to_simplex(theta: Float[Array, " K"], variances: Float[Array, " K"]) -> Float[Array, " K"]:
    """Moves shares, each in proportion to its variance, until they sum to one and none is below the smallest share.

    A posterior mean is never zero, so no divergence of the truth from the estimate is infinite.
    """
    smallest = SMALLEST_SHARE / theta.shape[0]
    # A small positive scale for each, so that the sum can change even if all variances are zero.
    scale = variances + jnp.mean(variances) / 100 + jnp.finfo(theta.dtype).eps / theta.shape[0]
    fixed, scale = lax.stop_gradient((theta, scale))
    scale = scale / jnp.sum(scale)

    # Σ max(θ + level·scale, smallest) − 1 is convex and grows with the level: from above, Newton never overshoots.
    def improve(state):
        level, _, number = state
        moved = fixed + level * scale
        excess = accurate_sum(jnp.maximum(moved, smallest)) - 1
        # A share at the bound can move upwards; if all are below it, the largest moves.
        free = moved >= jnp.minimum(smallest, jnp.max(moved))
        step = excess / jnp.sum(jnp.where(free, scale, 0))
        return level - step, jnp.abs(excess) > 8 * jnp.finfo(fixed.dtype).eps, number + 1

    state = aligned((jnp.zeros((), fixed.dtype), jnp.asarray(True), jnp.int32(0)), fixed)
    level, _, _ = lax.while_loop(lambda state: state[1] & (state[2] < MAX_SIMPLEX_STEPS), improve, state)
    theta = jnp.maximum(theta + level * scale, smallest)
    return theta / accurate_sum(theta)


class Mixing(NamedTuple):
    """Weights `[M]` of a mixing distribution, their log-likelihood, and a bound of its gap, nats."""

    weights: Float[Array, " M"]
    log_likelihood: Float[Array, ""]
    gap: Float[Array, ""]


class _State(NamedTuple):
    """Weights g `[M]`, g·s with the slack s, the multiplier of the mean, a bound of the gap, nats per report."""

    weights: Float[Array, " M"]
    slack: Float[Array, " M"]
    tilt: Float[Array, ""]
    gap: Float[Array, ""]
    done: Bool[Array, ""]
    num_iters: Int[Array, ""]


def npmle(
    log_likelihoods: Float[Array, "B M"], weight: Float[Array, " B"], t: Float[Array, " M"], max_iters: int
) -> Mixing:
    """The nonparametric maximum likelihood estimate of a mixing distribution on atoms, with Σ weights·t = 0.

    References:
        Koenker and Mizera, "Convex Optimization, Shape Constraints, Compound Decisions, and Empirical Bayes Rules",
        JASA 109, 2014: the mixture as a program for interior points.
    """
    dtype = t.dtype
    total = jnp.sum(weight)
    w = weight / total
    top = jnp.max(log_likelihoods, axis=1)
    table = jnp.exp(log_likelihoods - top[:, None])
    rounding = jnp.finfo(dtype).eps
    goal = jnp.maximum(MISSING_NATS / (total * t.shape[0]), 4 * rounding)
    gap_goal = 1.1 * t.shape[0] * goal

    def missing(g, tilt):
        return jnp.log(jnp.max((w / (table @ g)) @ table - tilt * t))

    def body(state):
        g, slack = state.weights, state.slack
        posterior = table * g
        posterior = posterior / jnp.sum(posterior, axis=1, keepdims=True)
        matrix = posterior.T @ (posterior * w[:, None]) + jnp.diag(slack + 8 * rounding)
        g, slack, tilt, length = interior_step(g, slack, _newton(w @ posterior, matrix, g, t), goal)
        tilt = state.tilt + length * (tilt - state.tilt)
        gap = missing(g, tilt)
        done = (gap < gap_goal) & (jnp.mean(slack) < 1.1 * goal)
        new = _State(g, slack, tilt, gap, done, state.num_iters + 1)
        usable = jnp.isfinite(gap) & jnp.all(g > 0) & jnp.all(slack > 0)
        last = state._replace(done=jnp.ones_like(done), num_iters=new.num_iters)  # rounding allows no more
        return jax.tree.map(lambda one, other: jnp.where(usable, one, other), new, last)

    start = _weights_with_mean_zero(t)
    zero = jnp.zeros((), dtype)
    state = _State(start, start, zero, zero + jnp.inf, jnp.asarray(False), jnp.int32(0))
    state = lax.while_loop(lambda state: ~state.done & (state.num_iters < max_iters), body, aligned(state, (table, w)))
    g = state.weights / jnp.sum(state.weights)
    likelihood = total * (w @ (jnp.log(table @ g) + top))
    return Mixing(g, likelihood, jnp.maximum(total * missing(g, state.tilt), 0))


def _weights_with_mean_zero(t):
    """Weights with Σ weights·t = 0, most of them where t is near zero."""
    weights = 1 / (jnp.abs(t) + 1)
    below = jnp.where(t < 0, weights, 0)
    above = weights - below
    below, above = below / jnp.sum(below), above / jnp.sum(above)
    low, high = below @ t, above @ t
    return (high * below - low * above) / (high - low)


def _newton(n, matrix, g, t):
    """Solves Newton's system by its Cholesky factor, with the two constraints eliminated."""
    factor = factored(matrix)
    sides = jnp.stack([g, g * t], axis=1)
    found = solved(factor, jnp.concatenate([n[:, None], sides], axis=1))
    plain, answers = found[:, 0], found[:, 1:]
    missing = jnp.stack([1 - jnp.sum(g), -(g @ t)])

    def towards(barrier):
        """The relative change of the weights, and the multiplier of the mean."""
        change = plain + solved(factor, barrier[:, None])[:, 0]
        (a, b), (_, c) = sides.T @ answers
        r, s = sides.T @ change - missing
        level, tilt = jnp.stack([c * r - b * s, a * s - b * r]) / (a * c - b * b)
        return change - answers @ jnp.stack([level, tilt]), tilt

    return towards
