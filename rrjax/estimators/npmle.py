"""A smoothed maximum likelihood estimate of a mixing distribution on atoms, by an interior point.

The weights g maximize Σ_b w_b·log (L·g)_b + Σ_m b_m·log g_m over Σ g = 1 and Σ g·t = 0, for a positive smoothing b. It
is strictly concave, so the weights are unique; the interior point whose slacks end at b is the solution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.numerics.newton import LARGEST_STEP, factored, length_within, raised, solved
from rrjax.numerics.products import matmul
from rrjax.numerics.sharding import aligned

LAST_STEP = 0.01
"""Largest squared length of the last step, in nats of all counts."""
LARGEST_GAP = 0.1
"""Largest distance from the maximum at the end, beside rounding, in nats of all counts."""
SMALLEST_TARGET = 0.1
"""Smallest target of a slack, as a part of the slack or of where it ends."""
GAP_EPSILONS = 32
"""The gap that rounding may leave, in machine epsilons, nats per count."""


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


def posteriors(table: Float[Array, "B M"], weights: Float[Array, " M"]) -> Float[Array, "B M"]:
    """The probability of each atom, given a count."""
    joint = table * weights
    return joint / jnp.sum(joint, axis=1, keepdims=True)


def information(known: Float[Array, "B M"], w: Float[Array, " B"]) -> Float[Array, "M M"]:
    """The negative second derivatives of the log-likelihood in the logarithms of the weights, without their sums."""
    return matmul(known.T, known * w[:, None])


def npmle(
    table: Float[Array, "B M"],
    weight: Float[Array, " B"],
    smoothing: Float[Array, " M"],
    constraint: Constraint,
    start: Mixing,
    max_iters: int,
) -> Mixing:
    """The weights from a start; `constraint` gives the t of each step, which may depend on the weights.

    Args:
        table: The likelihood of a count at each atom.
        weight: How many counts there are of each kind; w are their parts.
        smoothing: b.
        constraint: See `Constraint`.
        start: See `start_of`.
        max_iters: Largest number of steps in all.

    References:
        Koenker and Mizera, "Convex Optimization, Shape Constraints, Compound Decisions, and Empirical Bayes Rules",
        JASA 109, 2014: the mixture as a program for interior points.
    """
    num_counts = jnp.sum(weight)
    largest_gap = LARGEST_GAP + GAP_EPSILONS * jnp.finfo(table.dtype).eps * num_counts
    w = weight / num_counts

    def body(state):
        g, slack = state.weights, state.slack
        known = posteriors(table, g)
        t = constraint(g, known)
        matrix = raised(information(known, w), slack)
        n = matmul(w, known)
        # A common part of all slopes has no effect, but would cost their differences digits.
        towards = _newton(n - g, factored(matrix), g, t)
        new, slack, tilt, dual = _step(g, slack, towards, smoothing)
        y = new / g - 1
        tilt = state.tilt + dual * (tilt - state.tilt)
        found = Mixing(new, slack, tilt, state.done, state.num_iters + 1)
        near = num_counts * matmul(y, matmul(matrix, y)) < LAST_STEP
        gap = num_counts * gap_of(table, w, smoothing, t, found)
        found = found._replace(done=near & (gap < largest_gap))
        usable = jnp.all(jnp.isfinite(new)) & jnp.all(new > 0) & jnp.all(slack > 0)
        last = state._replace(done=jnp.asarray(True), num_iters=found.num_iters)  # rounding allows no more
        return jax.tree.map(lambda one, other: jnp.where(usable, one, other), found, last)

    start = start._replace(done=jnp.asarray(False))
    return lax.while_loop(
        lambda state: ~state.done & (state.num_iters < max_iters), body, aligned(start, (table, w, smoothing))
    )


def _step(g, slack, towards, goal):
    """A predictor and a corrector step, as in `rrjax.numerics.newton`, but to the slacks of the goal, not to zero."""
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


def gap_of(table, w, smoothing, t, found: Mixing) -> Float[Array, ""]:
    """An upper bound of the distance of the smoothed log-likelihood from its maximum with this t, per count.

    By Jensen's inequality, for weights h with Σ h·t = 0, Σ w·log (Lh/Lg) + Σ b·log (h/g) ≤ S·log (Σ h·D/S), with
    S = 1 + Σ b and D = Lᵀ(w/Lg) + b/g − tilt·t.
    """
    g = found.weights
    total = 1 + jnp.sum(smoothing)
    slopes = matmul(w / matmul(table, g), table) + smoothing / g - found.tilt * t
    return total * jnp.log(jnp.max(slopes) / total)


def _newton(slopes, factor, g, t):
    """Solves Newton's system by its Cholesky factor, with the two constraints eliminated."""
    sides = jnp.stack([g, g * t], axis=1)
    found = solved(factor, jnp.concatenate([slopes[:, None], sides], axis=1))
    plain, answers = found[:, 0], found[:, 1:]
    missing = jnp.stack([1 - jnp.sum(g), -matmul(g, t)])

    def towards(barrier):
        """The relative change of the weights, and the multiplier of the mean."""
        change = plain + solved(factor, barrier[:, None])[:, 0]
        (a, b), (_, c) = matmul(sides.T, answers)
        r, s = matmul(sides.T, change) - missing
        level, tilt = jnp.stack([c * r - b * s, a * s - b * r]) / (a * c - b * b)
        return change - matmul(answers, jnp.stack([level, tilt])), tilt

    return towards
