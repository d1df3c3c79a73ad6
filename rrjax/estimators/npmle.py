"""The likeliest mixing distribution on given atoms, with a given mean: a concave program, solved by an interior point.

Maximizes Σ_b w_b·log (L·g)_b over weights g ≥ 0 with Σ g = 1 and Σ g·t = 0. Newton steps on the conditions that are
perturbed by a barrier (n = g∘Lᵀ(w/Lg) is the step of EM; Mehrotra's predictor and corrector choose the barrier) need
some ten solves of an M × M system, where EM needs thousands of passes. The barrier is not taken to zero, but to where
the whole sample misses half a nat: there the weights are unique, and rounding hardly moves them.

References:
    Koenker and Mizera, "Convex Optimization, Shape Constraints, Compound Decisions, and Empirical Bayes Rules", JASA
    109, 2014: the mixture as a program for interior points.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.numerics.interior_point import factored, interior_step, solved
from rrjax.numerics.sharding import aligned

_MISSING = 0.5
"""Nats of the whole sample that may be missing."""


class Mixing(NamedTuple):
    """Weights of a mixing distribution.

    Attributes:
        weights: `[M]`, positive, with sum one.
        log_likelihood: Scalar, nats, of the whole sample.
        gap: Scalar, nats: by how much any weights can exceed that.
    """

    weights: Float[Array, " M"]
    log_likelihood: Float[Array, ""]
    gap: Float[Array, ""]


class _State(NamedTuple):
    """Of the iteration.

    Attributes:
        weights: `[M]`, g.
        slack: `[M]`, g·s, with s ≥ 0 how far each atom is from being wanted.
        tilt: Scalar, the multiplier of the mean.
        gap: Scalar, nats per observation.
        done: Whether that is small enough, or all that rounding leaves.
        number: Of steps.
    """

    weights: Float[Array, " M"]
    slack: Float[Array, " M"]
    tilt: Float[Array, ""]
    gap: Float[Array, ""]
    done: Bool[Array, ""]
    number: Int[Array, ""]


def mixing(
    log_likelihoods: Float[Array, "B M"], weight: Float[Array, " B"], t: Float[Array, " M"], max_iters: int
) -> Mixing:
    """Finds the weights."""
    dtype = t.dtype
    total = jnp.sum(weight)
    w = weight / total
    top = jnp.max(log_likelihoods, axis=1)
    table = jnp.exp(log_likelihoods - top[:, None])
    rounding = jnp.finfo(dtype).eps
    goal = jnp.maximum(_MISSING / (total * t.shape[0]), 4 * rounding)
    enough = 1.1 * t.shape[0] * goal

    def missing(g, tilt):
        return jnp.log(jnp.max((w / (table @ g)) @ table - tilt * t))

    def body(state):
        g, slack = state.weights, state.slack
        known = table * g
        known = known / jnp.sum(known, axis=1, keepdims=True)
        steps = _Steps.of(w @ known, known.T @ (known * w[:, None]) + jnp.diag(slack + 8 * rounding), g, t)
        g, slack, tilt, near = interior_step(g, slack, steps.towards, goal)
        tilt = state.tilt + near * (tilt - state.tilt)
        gap = missing(g, tilt)
        done = (gap < enough) & (jnp.mean(slack) < 1.1 * goal)
        new = _State(g, slack, tilt, gap, done, state.number + 1)
        fine = jnp.isfinite(gap) & jnp.all(g > 0) & jnp.all(slack > 0)
        last = state._replace(done=jnp.ones_like(done), number=new.number)  # all that rounding allows
        return jax.tree.map(lambda one, other: jnp.where(fine, one, other), new, last)

    start = _start(t)
    zero = jnp.zeros((), dtype)
    state = _State(start, start, zero, zero + jnp.inf, jnp.asarray(False), jnp.int32(0))
    state = lax.while_loop(lambda state: ~state.done & (state.number < max_iters), body, aligned(state, (table, w)))
    g = state.weights / jnp.sum(state.weights)
    likelihood = total * (w @ (jnp.log(table @ g) + top))
    return Mixing(g, likelihood, jnp.maximum(total * missing(g, state.tilt), 0))


def _start(t):
    """Weights with mean zero, most of them on atoms near zero."""
    near = 1 / (jnp.abs(t) + 1)
    below = jnp.where(t < 0, near, 0)
    above = near - below
    below, above = below / jnp.sum(below), above / jnp.sum(above)
    low, high = below @ t, above @ t
    return (high * below - low * above) / (high - low)


class _Steps(NamedTuple):
    """Newton's system, factored, with its two constraints eliminated."""

    factor: Float[Array, "M M"]
    plain: Float[Array, " M"]
    sides: Float[Array, "M 2"]
    answers: Float[Array, "M 2"]
    lack: Float[Array, " 2"]

    @classmethod
    def of(cls, n, matrix, g, t):
        factor = factored(matrix)
        sides = jnp.stack([g, g * t], axis=1)
        found = solved(factor, jnp.concatenate([n[:, None], sides], axis=1))
        lack = jnp.stack([1 - jnp.sum(g), -(g @ t)])
        return cls(factor, found[:, 0], sides, found[:, 1:], lack)

    def towards(self, bend):
        """The relative change of the weights, and the multiplier of the mean."""
        change = self.plain + solved(self.factor, bend[:, None])[:, 0]
        (a, b), (_, c) = self.sides.T @ self.answers
        r, s = self.sides.T @ change - self.lack
        level, tilt = jnp.stack([c * r - b * s, a * s - b * r]) / (a * c - b * b)
        return change - self.answers @ jnp.stack([level, tilt]), tilt
