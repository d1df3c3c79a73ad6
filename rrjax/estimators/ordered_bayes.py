"""The closest estimate where neighbours are alike: ages, incomes, hours.

counts → x = 2·√N·arcsin √(count/N), with noise of about one → a smooth curve through them (`numerics.smoothing_spline`)
       → what is left of each beside what its neighbours say, and the spread of that (`rrjax.estimators.npmle`)
       → three posterior means: by the spread of all shares, by the curve, by both → their average, by predictions
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
from rrjax.data.tally import Evidence, Tally, evidence
from rrjax.estimators.empirical_bayes import MAX_ITERS, NUM_ATOMS, NUM_CELLS, least_gain, moved_to_simplex, of_evidence
from rrjax.estimators.npmle import mixing
from rrjax.estimators.prior import (
    BEND,
    FINEST,
    OWN,
    REACH,
    alone_of,
    among_users,
    place_of_excess,
    place_of_share,
    share_at,
    smear_of,
)
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import looked_up
from rrjax.numerics.smoothing_spline import smoothed

_UNBIASED = 0.25
"""What a count needs so that the mean of its root is the root of its mean: a curve is a mean of many."""
_BLOCK = 4096
"""Categories that are read at once."""
_BELIEF = (0.0, 0.0, -2.5)
"""Log odds beforehand: of the spread of all shares, of the curve, of both."""


@exportable
class OrderedBayes(NamedTuple):
    """What `ordered_bayes` returns.

    Attributes:
        theta: `[K]`, the estimate, on the simplex.
        variances: `[K]`, posterior variances of the shares. They take the curve's smoothness and the spreads as known,
            and leave out that the shares sum to one.
        beliefs: `[3]`, with sum one: how far the estimate is that of `empirical_bayes`, which knows no order; that of a
            smooth curve; that of a smooth curve from which single categories stand out.
    """

    theta: Float[Array, " K"]
    variances: Float[Array, " K"]
    beliefs: Float[Array, " 3"]


def ordered_bayes(
    counts: ArrayLike | Tally, epsilon: ArrayLike | None = None, *, estimand: Estimand = "users"
) -> OrderedBayes:
    """Estimates the shares of categories in order, such as ages or hours, whose neighbours are alike.

    Where a single count is mostly noise, those beside it say more than the histogram of all counts does, which is all
    that `empirical_bayes` goes by. A curve is drawn through the counts, as smooth as they themselves say; categories
    that stand out (a round number, a legal limit) are recognized by the spread of what is left. Whether neighbours are
    alike at all is judged by how well they predict each count, and where they are not, the estimate is nearly that of
    `empirical_bayes`. An order that means nothing costs little where shares differ; where all are equal, which
    `empirical_bayes` may find out exactly, it costs the error of a curve.

    Args:
        counts: `[K]`, integers, the reports per category, in their order. Or a `Tally`.
        epsilon: Scalar, nats; not beside a tally.
        estimand: What is estimated: `"users"`, the shares among these very users, or `"distribution"`, those in the
            distribution that the users were drawn from.

    Returns:
        An `OrderedBayes`. Its `theta` is on the simplex, for any usable counts; all NaN where `mle_star` is. Time
        O(K·log K + K·M + B·M²) with M = 160 and B = min(K, 256), memory O(K + 4096·M). `jit`, `vmap`; derivatives are
        those with the curve's smoothness, the spreads and the beliefs held fixed. What the solver leaves open differs
        between float32 and float64 by a few hundredths of the largest posterior standard deviation.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers, an ε beside a tally, an unknown estimand.

    Example:
        >>> import rrjax
        >>> found = rrjax.ordered_bayes([150, 172, 190, 215, 221, 208, 195, 170, 155, 148], epsilon=1.0)
        >>> [round(share, 2) for share in found.theta.tolist()]
        [0.01, 0.05, 0.13, 0.19, 0.22, 0.19, 0.13, 0.06, 0.01, 0.0]

    Note:
        How close it comes is measured in `validation/results/ordered-cpu.md`.

    References:
        Wahba, "A Comparison of GCV and GML for Choosing the Smoothing Parameter in the Generalized Spline Smoothing
        Problem", Annals of Statistics 13, 1985.
        Ignatiadis and Wager, "Covariate-Powered Empirical Bayes Estimation", NeurIPS 2019: arXiv:1906.01611.
    """
    check_estimand(estimand)
    return _estimated(evidence(counts, epsilon), estimand)


@partial(jax.jit, static_argnums=1)
def _estimated(data: Evidence, estimand: Estimand) -> OrderedBayes:
    size = data.excess.shape[0]
    alone = of_evidence(data, estimand)
    x = place_of_excess(data, data.excess + _UNBIASED)
    least, most, middle = (place_of_share(data, share) for share in (0.0, 1.0, 1 / size))

    unordered = _departures(data, x, jnp.full_like(x, middle))
    curve = smoothed(x)
    by_curve = _by_curve(data, curve.level, curve.own, estimand)
    around = jnp.clip(curve.without, least, most)
    departing = _departures(data, x, around)
    by_both = _by_departures(data, x, around, departing, estimand)

    # A spread that is fitted predicts better than it should, by what chance can gain.
    gained = max(least_gain(size), 0.0)
    fitted = jnp.where(alone.uniform, unordered.of_none, unordered.log_likelihood - gained)
    evidences = jnp.stack([fitted, curve.log_likelihood, departing.log_likelihood - gained])
    beliefs = lax.stop_gradient(jax.nn.softmax(evidences + jnp.asarray(_BELIEF, x.dtype)))
    each = [(alone.theta, alone.variances)] + [(moved_to_simplex(*found), found[1]) for found in (by_curve, by_both)]
    thetas, variances = (jnp.stack(parts) for parts in zip(*each, strict=True))
    theta = beliefs @ thetas
    theta = theta / jnp.sum(theta)
    found = OrderedBayes(theta, beliefs @ (variances + (thetas - theta) ** 2), beliefs)
    return jax.tree.map(lambda leaf: jnp.where(data.usable, leaf, jnp.nan), found)


def _by_curve(data: Evidence, level, own, estimand):
    """Posterior means and variances where shares lie on the curve."""
    share = share_at(data, level)
    chance = data.q + data.rates.d * share
    variance = own * chance * (1 - chance) / data.num_users / data.rates.d**2
    return among_users(data, data.excess, share, variance) if estimand == "users" else (share, variance)


class _Departures(NamedTuple):
    """How far categories stand out from what is expected of them, on the scale of x.

    Attributes:
        atoms: `[M]`; the last is zero.
        smear: `[M]`, the variance around an atom that stands for a stretch of them.
        alone: `[M]`, the same for an atom at a departure of its own: it blurs what is known, not what is likely.
        weights: `[M]`.
        log_likelihood: Scalar, nats.
        of_none: Scalar, nats: the same where none stands out.
    """

    atoms: Float[Array, " M"]
    smear: Float[Array, " M"]
    alone: Float[Array, " M"]
    weights: Float[Array, " M"]
    log_likelihood: Float[Array, ""]
    of_none: Float[Array, ""]


def _departures(data: Evidence, x, around) -> _Departures:
    """The likeliest spread of departures with which all shares are expected to sum to one."""
    data, x, around = lax.stop_gradient((data, x, around))
    rest = x - around
    largest = lax.top_k(rest, min(OWN, x.shape[0]))[0]
    own = largest.shape[0]
    low = jnp.minimum(jnp.min(rest), -1) - REACH
    high = jnp.maximum(largest[min(own, x.shape[0] // 2) - 1], 1) + REACH
    ends = _warped(low), _warped(high)
    even = ends[0] + (ends[1] - ends[0]) * jnp.asarray(np.linspace(0, 1, NUM_ATOMS - own - 1), x.dtype)
    even = BEND * jnp.sinh(even / BEND)
    none = jnp.zeros_like(even[:1])
    atoms = jnp.concatenate([even, largest, none])
    smear = jnp.concatenate([smear_of(even), jnp.zeros_like(largest), none])
    alone = jnp.concatenate([jnp.zeros_like(even), alone_of(largest, even[-1:]), none])

    cells, weight, lost = _gathered(rest)
    likelihoods = _log_likelihoods(cells, atoms, smear)
    excess = _total(lambda place: share_at(data, place + atoms), around) - 1
    # Where the curve is so far off that no departures make its shares sum to one, it says nothing.
    possible = (jnp.min(excess) < 0) & (jnp.max(excess) > 0)
    fit = mixing(likelihoods, weight, jnp.where(possible, excess, atoms), MAX_ITERS)
    likelihood = jnp.where(possible, fit.log_likelihood - lost, -jnp.inf)
    return _Departures(atoms, smear, alone, fit.weights, likelihood, -jnp.sum(rest**2) / 2)


def _warped(rest):
    return BEND * jnp.arcsinh(rest / BEND)


def _gathered(rest):
    """What stands for departures that are alike, how many they are, and what log-likelihood that leaves out."""
    if rest.shape[0] <= NUM_CELLS:
        return rest, jnp.ones_like(rest), 0.0
    scale = _warped(rest)
    start, end = jnp.min(scale), jnp.max(scale)
    width = jnp.maximum(FINEST, (end - start) / (NUM_CELLS - 1) * (1 + 1e-5))
    place = jnp.clip(((scale - start) / width).astype(jnp.int32), 0, NUM_CELLS - 1)
    empty = jnp.zeros(NUM_CELLS, rest.dtype)
    weight = empty.at[place].add(1)
    mean = empty.at[place].add(rest) / jnp.maximum(weight, 1)
    return mean, weight, jnp.sum((rest - looked_up(mean, place)) ** 2) / 2


def _log_likelihoods(rest, atoms, smear):
    return -((rest[:, None] - atoms) ** 2) / (2 * (1 + smear)) - jnp.log1p(smear) / 2


def _by_departures(data: Evidence, x, around, spread: _Departures, estimand):
    """Posterior means and variances where shares depart from what is expected of them."""
    kept = spread.smear / (1 + spread.smear)
    blurred = spread.smear + spread.alone
    unsure = blurred / (1 + blurred)
    chances = jnp.log(jnp.maximum(spread.weights, jnp.finfo(x.dtype).tiny))

    def read(category):
        excess, place, expected = category
        rest = place - expected
        known = jax.nn.softmax(_log_likelihoods(rest[None], spread.atoms, spread.smear)[0] + chances)
        share = share_at(data, expected + spread.atoms + kept * (rest - spread.atoms))
        chance = data.q + data.rates.d * share
        variance = unsure * chance * (1 - chance) / data.num_users / data.rates.d**2
        if estimand == "users":
            share, variance = among_users(data, excess, share, variance)
        mean = known @ share
        return mean, known @ (variance + (share - mean) ** 2)

    return _mapped(read, (data.excess, x, around))


def _mapped(function, categories):
    """Of each category, in blocks where they are many."""
    if jax.tree.leaves(categories)[0].shape[0] <= _BLOCK:
        return jax.vmap(function)(categories)
    return lax.map(function, categories, batch_size=_BLOCK)


def _total(function, categories):
    """The sum over the categories, without a table of all of them where they are many."""
    size = categories.shape[0]
    if size <= _BLOCK:
        return jnp.sum(jax.vmap(function)(categories), axis=0)
    padded = jnp.pad(categories, (0, -size % _BLOCK)).reshape(-1, _BLOCK)
    there = jnp.pad(jnp.ones_like(categories), (0, -size % _BLOCK)).reshape(-1, _BLOCK)
    return jnp.sum(lax.map(lambda block: block[1] @ jax.vmap(function)(block[0]), (padded, there)), axis=0)
