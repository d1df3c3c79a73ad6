"""The closest estimate: posterior means under the spread of shares that the reports themselves show.

counts → cells and atoms (`rrjax.estimators.prior`) → weights of the atoms (`rrjax.estimators.npmle`), or equal shares
       → posterior mean and variance of each cell, and how they change within it → shares that sum to one
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import Estimand, check_estimand
from rrjax.data.categories import as_integer
from rrjax.data.tally import Evidence, Tally, evidence
from rrjax.estimators.npmle import mixing
from rrjax.estimators.prior import atoms_of, cells_of, largest_of, log_likelihoods, posterior_of, read_cells
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum

NUM_CELLS = 256
NUM_ATOMS = 160
MAX_ITERS = 40
"""Of the interior point, which needs some ten."""
_PASSES = 50
_LEAST = 1e-6
"""The smallest share, in those of equal shares: more than rounding leaves of a tiny posterior mean."""


@exportable
class EmpiricalBayes(NamedTuple):
    """What `empirical_bayes` returns.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        variances: `[K]`, posterior variances of the shares. They take the spread as known, and leave out that the
            shares sum to one.
        atoms: `[M]`, shares. The last is that of equal shares.
        weights: `[M]`, the prior: what part of the categories has about such a share. The likeliest spread on these
            atoms; where `uniform`, all on the last.
        gap: Scalar, nats, to rounding: what the log-likelihood of all counts under that likeliest spread, used or not,
            is missing at most of what any weights of these atoms reach.
        gain: Scalar, nats: how far it lies above the log-likelihood under equal shares.
        uniform: Scalar boolean: whether that was too little to go by, so that equal shares were the prior.
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
    """Estimates every share by its posterior mean, with a prior that the reports themselves show.

    The estimate with the least squared error to be expected, as far as anyone can say who does not know the answer. A
    count alone is share and noise; the histogram of all counts tells how shares are spread over the categories: many
    that nobody holds, a few large ones, all about equal. That spread is a distribution of shares with mean 1/K. It is
    estimated by maximum likelihood from the same counts, without any assumption on its form, and is the prior with
    which each count is read. The posterior means are moved by posterior variance until they sum to one.

    Where the counts say next to nothing about the spread (log-likelihood less than ¾·log(K/8) nats above that of equal
    shares), the prior is equal shares. `.uniform` tells.

    Args:
        counts: `[K]`, integers, the reports per category. Or a `Tally`.
        epsilon: Scalar, nats; not beside a tally.
        estimand: What is estimated: `"users"`, the shares among these very users, or `"distribution"`, those in the
            distribution that the users were drawn from. They differ where the noise of the mechanism is small.
        num_cells: Cells that counts are gathered in where there are more categories; the 64 largest counts have cells
            of their own, and nothing is lost but how counts within one cell differ in what they say of the spread.
        num_atoms: Shares that the spread consists of, M: from 128.
        max_iters: Steps of the solver at most, some ten are needed.

    Returns:
        An `EmpiricalBayes`. Its `theta` is on the simplex, for any usable counts; all NaN where `mle_star` is.
        Memory O(K + B·M), time O(K + B·M²) with B = min(K, num_cells). `jit`, `vmap`; derivatives are those with the
        spread held fixed. The squared errors of float32 and float64 differ by less than a hundredth: the barrier of the
        solver ends where rounding does, which in float32 shows from some thousand categories on.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers (a posterior needs whole reports), an ε beside a
            tally, an unknown estimand, too few cells or atoms.

    Example:
        >>> import rrjax
        >>> found = rrjax.empirical_bayes([620, 130, 120, 125, 128], epsilon=1.0)
        >>> [round(share, 2) for share in found.theta.tolist()]
        [1.0, 0.0, 0.0, 0.0, 0.0]

    Note:
        How close it comes is measured in `validation/results/accuracy-cpu.md`, beside all other estimators and the
        oracle that knows the shares but not whose they are. For the likelihood of an estimate, and its certificate, see
        `mle_star`; for what can be said with confidence, `rrjax.inference.intervals`.

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
    """`empirical_bayes`, of what is checked."""
    size = data.support.shape[0]
    fixed = lax.stop_gradient(data)  # loops that run as long as they must have no derivative in reverse
    largest = largest_of(fixed)
    cells = cells_of(fixed, largest, num_cells)
    atoms = atoms_of(fixed, largest, num_atoms)
    likelihoods = log_likelihoods(fixed, cells.middle, atoms)
    fit = mixing(likelihoods, cells.weight, atoms.share * size - 1, max_iters)
    gain = fit.log_likelihood - cells.weight @ likelihoods[:, -1]
    uniform = gain < least_gain(size)
    equal = (jnp.arange(num_atoms) == num_atoms - 1).astype(gain.dtype)
    weights = jnp.where(uniform, equal, fit.weights)

    theta, variances = read_cells(data, cells, lambda excess: posterior_of(data, excess, atoms, weights, estimand))
    theta = moved_to_simplex(theta, variances)
    found = EmpiricalBayes(theta, variances, atoms.share, weights, fit.gap, gain, uniform & data.usable)
    return jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else jnp.where(data.usable, leaf, jnp.nan), found)


def least_gain(num_categories: int) -> float:
    """Nats above equal shares below which the spread is not believed.

    The largest of K counts stands out by chance, and its likelihood with it, by an amount that grows like log K; and
    the more categories, the worse an estimate that mistakes it for a share. The factors are measured: few categories
    lose more by a guard than they gain.
    """
    return 0.75 * math.log(num_categories / 8)


def moved_to_simplex(theta: Float[Array, " K"], variances: Float[Array, " K"]) -> Float[Array, " K"]:
    """Moves shares, each in proportion to its variance, until they sum to one and none is below the least.

    The mean of a posterior with mass above zero is never zero, nor its divergence from the truth infinite.
    """
    least = _LEAST / theta.shape[0]
    # A little for all, so that something can move where nothing is uncertain.
    ease = variances + jnp.mean(variances) / 100 + jnp.finfo(theta.dtype).eps / theta.shape[0]
    fixed, ease = lax.stop_gradient((theta, ease))
    ease = ease / jnp.sum(ease)

    # Σ max(θ + level·ease, least) − 1 is convex and grows with the level: from above, Newton never overshoots.
    def improve(state):
        level, _, number = state
        moved = fixed + level * ease
        over = accurate_sum(jnp.maximum(moved, least)) - 1
        # What is at the least moves too, if only upwards; where all are below it, the largest does.
        free = moved >= jnp.minimum(least, jnp.max(moved))
        step = over / jnp.sum(jnp.where(free, ease, 0))
        return level - step, jnp.abs(over) > 8 * jnp.finfo(fixed.dtype).eps, number + 1

    state = aligned((jnp.zeros((), fixed.dtype), jnp.asarray(True), jnp.int32(0)), fixed)
    level, _, _ = lax.while_loop(lambda state: state[1] & (state[2] < _PASSES), improve, state)
    theta = jnp.maximum(theta + level * ease, least)
    return theta / accurate_sum(theta)
