"""The prior of empirical Bayes: the distribution of the shares of all categories, estimated from their counts.

`Prior.of` a `Histogram` is the one entry: a base prior (`base_prior`) → maximum likelihood priors, smoothed towards it
with several strengths (`npmle`) → those moved towards posterior means that sum to one → the one that predicts best.

**The base prior** averages three groups of Gamma distributions by their likelihoods: one Gamma; empty categories and
one Gamma; two Gammas of different means. The groups have equal weights, and all members the mean 1/K. Members and
weights were chosen by simulation (`validation/accuracy.py`).

**The maximum likelihood prior** (NPMLE) has the weights g that maximize Σ_b w_b·log (L·g)_b + Σ_m b_m·log g_m over
Σ g = 1 and Σ g·t = 0, for a positive smoothing b. This is strictly concave, so the weights are unique; the interior
point whose slacks end at b is the solution.

**The sum of the shares.** Under a prior of mean 1/K the posterior means sum to 1 + E. The error of the prior has a part
in E (the sum has a variance H from it), and so have the errors of the shares (variance V). The prior is moved, as far
as the counts allow it, until the excess is E·V/(V + H).

**The strength.** With many users and smooth shares a weak base prior leaves the prior so free that it follows noise;
where few categories hold all, a strong one does not know how many. Each moved prior is scored by the log-likelihood of
the counts less k/(1 − k/K), with k the sum of their leverages, its degrees of freedom: what a count adds to its own
likelihood, with the mean leverage in the denominator, as in generalized cross-validation (Golub, Heath and Wahba,
Technometrics 21, 1979). The strengths, and the preference for the weak, were chosen by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.estimators.histogram import Histogram, posteriors
from rrjax.numerics.products import matmul
from rrjax.numerics.sharding import take_at, with_sharding_of
from rrjax.numerics.solvers import LARGEST_STEP, cholesky_factor, cholesky_solve, half_solve, length_within, regularized

NUM_KNOTS = 512
"""Number of knots of the table of each Gamma distribution."""
LARGEST_LOGIT = 80.0
"""Limit of the logits of distribution functions; beyond it masses are zero."""
SHAPES = tuple(2.0**power for power in (*range(-6, 9), 10, 12, 16, 20))
"""Shapes of the Gamma distributions. The coefficient of variation is the inverse root of the shape."""
SHAPES_BESIDE_EMPTY = (0.5, 2.0, 8.0, 32.0, 256.0, 2.0**20)
LEVELS = (0.1, 0.25, 0.5)
"""Parts of all users in the lower of two groups of categories."""
HOLDERS_STEP = 1.6
"""Factor from one number of categories with large shares to the next."""
LEAST_MASS = 1e-9
"""Mass of the prior that is spread evenly over the atoms."""
LAST_STEP = 0.01
"""Largest squared length of the last step, in nats of all counts."""
LARGEST_GAP = 0.1
"""Largest distance from the maximum at the end, beside rounding, in nats of all counts."""
SMALLEST_TARGET = 0.1
"""Smallest target of a slack, as a part of the slack or of where it ends."""
GAP_EPSILONS = 32
"""The gap that rounding may leave, in machine epsilons, nats per count."""
MAX_ITERS = 40
"""Largest number of steps of the interior point; it needs some ten."""
MAX_MOVES = 6
"""Largest number of steps of a prior towards the sum; one or two are enough if the base prior allows it."""
STRENGTHS = (1e4, 80.0, 20.0)
"""Weights that the base prior may have beside the counts of all categories."""
WEAKEST = STRENGTHS[-1]
MAX_CATEGORIES_OF_STRENGTHS = 2000
"""The largest K with a choice of strengths: a hundred atoms have too few degrees of freedom to follow more counts."""
NATS_PER_STRENGTH = 0.25
"""What a score must gain for a base prior that is e times as strong: where scores tie, a weak one errs less."""
LARGEST_LEVERAGE = 0.95
"""Largest leverage of a count on the prior; beyond it the first order says too much."""
LARGEST_FALL = 0.6
"""Largest part of the mass at no share that one step takes from the sum of the shares."""
LARGEST_RISE = 0.3
"""Largest change of the sum of the shares by a step upwards, or by twice that mass."""
MIXING_COUNTS = 0.5
"""Added to the base prior's counts for the uncertainty of the prior, evenly over the atoms."""
LEAST_VARIANCE = 0.05
"""Smallest variance of a share under all conditions, as a part of its variance under the prior alone."""


class Members(NamedTuple):
    """Mixtures of two Gamma distributions of one shape; an empty category is a Gamma of mean zero. Arrays `[R]`."""

    shape: np.ndarray  # the place in `SHAPES`
    upper: np.ndarray  # mass of the upper Gamma
    log_mean: np.ndarray  # of the upper Gamma
    log_mean_below: np.ndarray  # of the lower Gamma; −∞ if it is at zero
    log_prior: np.ndarray


@cache
def members_of(num_categories: int) -> Members:
    """The members for K categories."""
    size = num_categories
    holders = [1]
    while holders[-1] < size / 8:
        holders.append(max(holders[-1] + 1, round(holders[-1] * HOLDERS_STEP)))
    parts = [part for part in (0.5, 0.25, 0.125) if part > 0.5 / size]
    parts += [number / size for number in holders if number < size / 8]
    spread = 2 + math.log2(max(1, size / 16))
    one = [(shape, 1.0, 0.0, -((math.log2(shape) / spread) ** 2) / 2) for shape in SHAPES]
    spiked = [(shape, part, 0.0, 0.0) for part in parts for shape in SHAPES_BESIDE_EMPTY]
    two = [
        (shape, part, low, 0.0)
        for part in parts
        for shape in SHAPES_BESIDE_EMPTY[1:]
        for low in LEVELS
        if low / (1 - part) < 0.7 * (1 - low) / part
    ]
    rows = []
    for group in (one, spiked, two):
        total = np.logaddexp.reduce([row[3] for row in group])
        rows += [(*row[:3], row[3] - total) for row in group]
    shape, part, low, log_prior = (np.array(column) for column in zip(*rows, strict=True))
    equal = 0.5 * max(0.0, 1 - 16 / size)
    if equal:  # more weight of equal shares
        place = len(SHAPES) - 1
        log_prior[place] = -np.inf
        log_prior[place] = math.log(equal / (1 - equal)) + np.logaddexp.reduce(log_prior)
    with np.errstate(divide="ignore"):
        log_mean = np.log((1 - low) / (size * part))
        log_mean_below = np.log(low / (size * np.maximum(1 - part, 1e-300)))
    return Members(np.searchsorted(SHAPES, shape), part, log_mean, log_mean_below, log_prior)


@cache
def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of the distribution function of each Gamma of mean one, at even places of log x; first place and step.

    Before the first place, e⁻¹² or less, they are extrapolated linearly, which is rough for the smallest shapes.
    """
    logits, starts, steps = [], [], []
    for shape in SHAPES:
        low, high = max(-12.0, -13 / math.sqrt(shape)), math.log1p(13 / math.sqrt(shape) + 85 / shape)
        fine = np.linspace(low, high, 16 * (NUM_KNOTS - 1) + 1)
        x = np.exp(fine)
        log_density = shape * (fine - np.expm1(fine))  # of log x, up to a constant
        density = np.exp(log_density)
        area = np.diff(fine) * (density[1:] + density[:-1]) / 2
        # Mills' ratios beyond both ends.
        below = np.cumsum(np.append(density[0] / (shape * (1 - x[0])), area))
        above = np.cumsum(np.append(density[-1] / (shape * (x[-1] - 1)), area[::-1]))[::-1]
        logits.append((np.log(below) - np.log(above))[::16])
        starts.append(low)
        steps.append((high - low) / (NUM_KNOTS - 1))
    return np.array(logits), np.array(starts), np.array(steps)


def masses(log_edges: Float[Array, " n"], shape: np.ndarray, log_mean: np.ndarray) -> Float[Array, "R n+1"]:
    """The mass of Gamma distributions between edges of shares, and beyond the first and the last.

    `shape` `[R]` has their places in `SHAPES`, `log_mean` `[R]` the logarithms of their means.
    """
    tables, starts, steps = _tables()
    dtype = log_edges.dtype
    place = (log_edges - (log_mean + starts[shape])[:, None].astype(dtype)) / steps[shape][:, None].astype(dtype)
    knot = jnp.clip(place.astype(jnp.int32), 0, NUM_KNOTS - 2)
    table = jnp.asarray(tables, dtype).ravel()
    index = knot + (NUM_KNOTS * shape)[:, None].astype(np.int32)
    left, right = take_at(table, index), take_at(table, index + 1)
    logit = jnp.clip(left + (right - left) * (place - knot.astype(dtype)), -LARGEST_LOGIT, LARGEST_LOGIT)
    # The difference of two numbers below one half keeps the digits of both tails.
    down, up = jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)
    upper = logit[:, :-1] > 0
    inner = jnp.where(upper, up[:, :-1] - up[:, 1:], down[:, 1:] - down[:, :-1])
    return jnp.concatenate([down[:, :1], inner, up[:, -1:]], axis=1)


def base_prior(
    table: Float[Array, "B M"], weight: Float[Array, " B"], log_edges: Float[Array, " M-1"], num_categories: int
) -> Float[Array, " M"]:
    """The masses of the atoms, averaged over all members; `table` has the likelihood of a count at an atom."""
    members = members_of(num_categories)
    upper = jnp.asarray(members.upper, table.dtype)
    mass = upper[:, None] * masses(log_edges, members.shape, members.log_mean)
    spiked = np.isneginf(members.log_mean_below)
    two = np.flatnonzero(~spiked)
    below = masses(log_edges, members.shape[two], members.log_mean_below[two])
    rest = jnp.asarray(1 - members.upper, table.dtype)
    mass = mass.at[:, 0].add(jnp.where(spiked, rest, 0))
    mass = mass.at[two].add(rest[two][:, None] * below)
    tiny = jnp.finfo(table.dtype).tiny
    likelihood = matmul(weight, jnp.log(jnp.maximum(matmul(table, mass.T), tiny)))
    posterior = jax.nn.softmax(likelihood + members.log_prior.astype(table.dtype))
    return (1 - LEAST_MASS) * matmul(posterior, mass) + LEAST_MASS / table.shape[1]


class Mixing(NamedTuple):
    """Weights of a mixing distribution `[M]`, and the state of the interior point."""

    weights: Float[Array, " M"]
    slack: Float[Array, " M"]  # g·s
    tilt: Float[Array, ""]  # the multiplier of Σ g·t = 0
    done: Bool[Array, ""]
    num_iters: Int[Array, ""]


Constraint = Callable[[Float[Array, " M"], Float[Array, "B M"]], Float[Array, " M"]]
"""The t of weights g and of the posteriors of all atoms, (L·g)-normalized rows of L∘g."""


def start_of(t: Float[Array, " M"]) -> Mixing:
    """Weights with Σ weights·t = 0, most of them where t is near zero."""
    weights = 1 / (jnp.abs(t) + 1)
    below = jnp.where(t < 0, weights, 0)
    above = weights - below
    below, above = below / jnp.sum(below), above / jnp.sum(above)
    low, high = matmul(below, t), matmul(above, t)
    weights = (high * below - low * above) / (high - low)
    return Mixing(weights, weights, jnp.zeros_like(low), jnp.asarray(False), jnp.int32(0))


def information(known: Float[Array, "B M"], w: Float[Array, " B"]) -> Float[Array, "M M"]:
    """The negative second derivatives of the log-likelihood in the logarithms of the weights, without their sums."""
    return matmul(known.T, known * w[:, None])


def npmle(
    table: Float[Array, "B M"],
    weight: Float[Array, " B"],
    smoothing: Float[Array, " M"],
    constraint: Constraint,
    start: Mixing,
    max_iters: int = MAX_ITERS,
    coarseness: float | Float[Array, ""] = 1.0,
) -> Mixing:
    """The weights, from the likelihoods of counts at atoms, the numbers of counts, b, and the t of each step.

    `coarseness` multiplies the largest last step and the largest gap.

    Koenker and Mizera, "Convex Optimization, Shape Constraints, Compound Decisions, and Empirical Bayes Rules", JASA
    109, 2014: the mixture as a program for interior points.
    """
    num_counts = jnp.sum(weight)
    largest_gap = LARGEST_GAP * coarseness + GAP_EPSILONS * jnp.finfo(table.dtype).eps * num_counts
    w = weight / num_counts

    def body(state):
        g, slack = state.weights, state.slack
        known = posteriors(table, g)
        t = constraint(g, known)
        matrix = regularized(information(known, w), slack)
        n = matmul(w, known)
        # A common part of all slopes has no effect, but would cost their differences digits.
        towards = _newton(n - g, cholesky_factor(matrix), g, t)
        new, slack, tilt, dual = _step(g, slack, towards, smoothing)
        y = new / g - 1
        tilt = state.tilt + dual * (tilt - state.tilt)
        after = Mixing(new, slack, tilt, state.done, state.num_iters + 1)
        near = num_counts * matmul(y, matmul(matrix, y)) < LAST_STEP * coarseness
        gap = num_counts * gap_of(table, w, smoothing, t, after)
        after = after._replace(done=near & (gap < largest_gap))
        usable = jnp.all(jnp.isfinite(new)) & jnp.all(new > 0) & jnp.all(slack > 0)
        last = state._replace(done=jnp.asarray(True), num_iters=after.num_iters)  # rounding allows no more
        return jax.tree.map(lambda one, other: jnp.where(usable, one, other), after, last)

    start = start._replace(done=jnp.asarray(False), num_iters=jnp.int32(0))
    return lax.while_loop(
        lambda state: ~state.done & (state.num_iters < max_iters), body, with_sharding_of(start, (table, w, smoothing))
    )


def _step(g, slack, towards, goal):
    """A predictor and a corrector step, as in `rrjax.numerics.solvers`, but to the slacks of the goal, not to zero."""
    y, _ = towards(goal)
    change = goal - slack - slack * y
    primal, dual = length_within(y), length_within(change / slack)
    distance = jnp.mean(jnp.abs(slack - goal))
    predicted = jnp.mean(jnp.abs((1 + primal * y) * (slack + dual * change) - goal))
    part = jnp.where(distance > 0, jnp.minimum((predicted / jnp.where(distance > 0, distance, 1)) ** 3, 1), 0)
    target = goal + part * distance - primal * dual * y * change
    target = jnp.maximum(target, SMALLEST_TARGET * jnp.minimum(goal, slack))
    y, multiplier = towards(target)
    change = target - slack - slack * y
    primal, dual = (jnp.minimum(1, LARGEST_STEP * length) for length in map(length_within, (y, change / slack)))
    return g * (1 + primal * y), (slack + dual * change) * (1 + primal * y), multiplier, dual


def gap_of(table, w, smoothing, t, mixing: Mixing) -> Float[Array, ""]:
    """An upper bound of the distance of the smoothed log-likelihood from its maximum with this t, per count.

    By Jensen's inequality, for weights h with Σ h·t = 0, Σ w·log (Lh/Lg) + Σ b·log (h/g) ≤ S·log (Σ h·D/S), with
    S = 1 + Σ b and D = Lᵀ(w/Lg) + b/g − tilt·t.
    """
    g = mixing.weights
    total = 1 + jnp.sum(smoothing)
    slopes = matmul(w / matmul(table, g), table) + smoothing / g - mixing.tilt * t
    return total * jnp.log(jnp.max(slopes) / total)


def _newton(slopes, factor, g, t):
    """Solves Newton's system by its Cholesky factor, with the two constraints eliminated."""
    sides = jnp.stack([g, g * t], axis=1)
    solutions = cholesky_solve(factor, jnp.concatenate([slopes[:, None], sides], axis=1))
    plain, answers = solutions[:, 0], solutions[:, 1:]
    missing = jnp.stack([1 - jnp.sum(g), -matmul(g, t)])

    def towards(barrier):
        """The relative change of the weights, and the multiplier of the mean."""
        change = plain + cholesky_solve(factor, barrier[:, None])[:, 0]
        (a, b), (_, c) = matmul(sides.T, answers)
        r, s = matmul(sides.T, change) - missing
        level, tilt = jnp.stack([c * r - b * s, a * s - b * r]) / (a * c - b * b)
        return change - matmul(answers, jnp.stack([level, tilt])), tilt

    return towards


class Prior(NamedTuple):
    """A prior of the shares, estimated from a histogram of counts."""

    base: Float[Array, " M"]  # the weights of the base prior
    weights: Float[Array, " M"]  # those of the maximum likelihood prior, moved towards the sum of the shares
    variances: Float[Array, " B"]  # of the shares under it, its own error and their sum included
    gap: Float[Array, ""]  # nats: of the weakest strength and mean 1/K, the distance from the largest log-likelihood
    gain: Float[Array, ""]  # nats: its log-likelihood less that of equal shares
    strength: Float[Array, ""]  # the weight of the base prior beside the counts

    @classmethod
    def of(cls, histogram: Histogram) -> Prior:
        """The base prior, and of the maximum likelihood priors that are moved towards the sum the best."""
        table, weight, size = histogram.table, histogram.weight, histogram.cell.shape[0]
        noise, atoms = histogram.noise.typical, histogram.atoms
        borders = noise.share_of_x((atoms.x[1:] + atoms.x[:-1]) / 2)
        base = base_prior(table, weight, jnp.log(borders), size)
        departure = atoms.share * size - 1
        strengths = STRENGTHS if size <= MAX_CATEGORIES_OF_STRENGTHS else (WEAKEST,)
        fits = _by_strength(histogram, base, departure, strengths)
        weakest = jax.tree.map(lambda leaf: leaf[-1], fits)
        gap = jnp.maximum(size * gap_of(table, weight / size, WEAKEST / size * base, departure, weakest), 0)
        at_equal = jnp.arange(departure.shape[0]) == jnp.argmin(jnp.abs(departure))
        log_of_equal = jnp.sum(jnp.where(at_equal, histogram.log_likelihood, 0), axis=1)
        gain = matmul(weight, jnp.log(matmul(table, weakest.weights)) - log_of_equal)
        moved, scores = _moved(histogram, base, strengths, fits, weakest)
        scores = scores - NATS_PER_STRENGTH * np.log(strengths).astype(base.dtype)
        chosen = jnp.argmax(jnp.where(jnp.isfinite(scores), scores, -jnp.inf)) if len(strengths) > 1 else jnp.int32(0)
        strength, weights = take_at(jnp.asarray(strengths, base.dtype), chosen), take_at(moved, chosen)
        _, _, variances = _consequences(histogram, strength / size * base, weights)
        return cls(base, weights, variances, gap, gain, strength)


def _by_strength(histogram: Histogram, base, departure, strengths) -> Mixing:
    """The priors of mean 1/K for all strengths, `[A, M]`; `departure` is K·θ − 1 for each atom."""
    table, weight = histogram.table, histogram.weight

    def fitted(last, strength):
        smoothing = strength / jnp.sum(weight) * base
        # In nats, steps and gap grow with the strength: of the same relative precision of the weights.
        prior = npmle(table, weight, smoothing, lambda *_: departure, last, coarseness=strength / WEAKEST)
        return prior, prior

    # From the strongest, which is near the base prior, to the weakest: two to four steps each.
    begin = start_of(departure)
    if len(strengths) > 1:
        begin = begin._replace(weights=base, slack=strengths[0] / jnp.sum(weight) * base)
    strengths = jnp.asarray(strengths, base.dtype)
    return lax.scan(fitted, with_sharding_of(begin, (table, weight, base)), with_sharding_of(strengths, table))[1]


def _moved(histogram: Histogram, base, strengths, fits: Mixing, weakest: Mixing):
    """The priors `[A, M]` moved towards the sum, and how well each predicts counts that it did not see, `[A]`.

    A score is the log-likelihood of all counts, less what each gains as one of those that the prior is fitted to: its
    leverage h to first order, h/(1 − h) beyond, here with the mean of all leverages in the denominator: of a count far
    from all others, h near one says too much. Scores have a common origin.
    """
    table, weight = histogram.table, histogram.weight
    size = jnp.sum(weight)
    # The weakest base prior tells how uncertain a prior is: a strong one is estimated, too.
    _, part, _ = _consequences(histogram, WEAKEST / size * base, weakest.weights)

    def excess_of(g):
        return matmul(weight, histogram.means(posteriors(table, g))) - 1

    def moved(_, given):
        first, strength = given
        smoothing, excess = strength / size * base, excess_of(first.weights)
        aim = excess * part

        def constraint(g, known):
            """The excess less the aim, to first order in the weights."""
            mean = histogram.means(known)
            slope = matmul(weight, known * (histogram.value - mean[:, None])) / g
            lack, most = matmul(weight, mean) - 1 - aim, -slope[0]
            fall, rise = LARGEST_FALL * jnp.maximum(most, 0), jnp.maximum(LARGEST_RISE, 2 * most)
            return slope + jnp.clip(lack, -rise, fall)

        new = npmle(table, weight, smoothing, constraint, first, MAX_MOVES, strength / WEAKEST)
        g = jnp.where(jnp.abs(excess_of(new.weights) - aim) < jnp.abs(excess - aim), new.weights, first.weights)
        leverage = jnp.clip(leverages(posteriors(table, g), weight, smoothing, g), 0, LARGEST_LEVERAGE)
        # A strong base prior that resists is none for these counts.
        return None, (g, jnp.log(matmul(table, g)), matmul(weight, leverage), new.done | (strength == WEAKEST))

    strengths = with_sharding_of(jnp.asarray(strengths, base.dtype), table)
    _, (weights, logs, freedom, usable) = lax.scan(moved, None, (fits, strengths))
    scores = matmul(logs - logs[-1], weight) - freedom / (1 - freedom / size)
    return weights, jnp.where(usable, scores, -jnp.inf)


def leverages(known: Float[Array, "B M"], weight: Float[Array, " B"], smoothing, g) -> Float[Array, " B"]:
    """The derivative of the log-likelihood of each count in its own weight, which moves the prior towards it."""
    half = half_solve(_curvature_factor(known, weight, smoothing), jnp.concatenate([g[:, None], known.T], axis=1))
    along, half = half[:, 0], half[:, 1:]  # the weights sum to one
    return jnp.sum(half**2, axis=0) - matmul(along, half) ** 2 / matmul(along, along)


def _curvature_factor(known, weight, smoothing):
    """The Cholesky factor of the information of the weights' logarithms, by the counts and the base prior."""
    prior = jnp.sum(weight) * smoothing + MIXING_COUNTS / smoothing.shape[0]
    return cholesky_factor(regularized(information(known, weight), prior))


def _consequences(histogram, smoothing, g):
    """What follows from a prior: its weights have the covariance of their posterior, by their information.

    The variances are those of the shares, given the prior, and of their means by the prior, given the sum of all.
    """
    weight = histogram.weight
    known = posteriors(histogram.table, g)
    mean, variance = histogram.moments(known)
    away = known * (histogram.value - mean[:, None])  # the derivative of the means in the logarithms of the weights
    factor = _curvature_factor(known, weight, smoothing)
    pull = matmul(weight, away)
    solution = cholesky_solve(factor, jnp.concatenate([pull[:, None], g[:, None], away.T], axis=1))
    # The weights sum to one.
    solution = solution - solution[:, 1:2] * (matmul(g, solution) / matmul(g, solution[:, 1]))
    move, moves = solution[:, 0], solution[:, 2:]
    of_shares, of_prior = matmul(weight, variance), jnp.maximum(matmul(pull, move), 0)
    total = of_shares + of_prior
    total = jnp.where(total > 0, total, 1)
    adding = histogram.of_sum(known, mean, variance)
    of_sum = matmul(weight, adding) + of_prior
    with_sum = adding + matmul(away, move)
    everything = variance + jnp.sum(away.T * moves, axis=0) - with_sum * (with_sum / jnp.where(of_sum > 0, of_sum, 1))
    excess = matmul(weight, mean) - 1
    return excess, of_shares / total, jnp.maximum(everything, LEAST_VARIANCE * variance)
