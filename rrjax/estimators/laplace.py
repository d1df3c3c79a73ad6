"""The most probable distribution under a Gaussian prior of log θ, and the evidence for the prior, by Laplace's method.

log θ = curves·c + constant, with coefficients c that are independent normal of variance one. The most probable c is
found by Newton's method on the likelihood of whole reports. The probability of the reports under the prior is then that
of a normal distribution around it (Laplace's approximation).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.data.mixture import Mixture, Reports, as_mixture
from rrjax.estimators.accelerations import matrix_of
from rrjax.numerics.implicit import without_derivative
from rrjax.numerics.newton import factored, raised, solved
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum

MAX_STEPS = 40
LEAST_GAIN = 1e-3
"""Nats of all reports; a smaller gain ends Newton's method."""
STEP_LENGTHS = (1.0, 0.5, 0.25, 0.0625, 0.0078125)


def given_of(mixture: Mixture, name: str) -> tuple[Float[Array, " K"], Reports, Float[Array, ""]]:
    """The uniform distribution `[K]`, the reports and their number, of which the function `name` has no derivatives."""
    total = accurate_sum(jnp.asarray(mixture.weights).astype(jnp.result_type(float)))
    start, reports = as_mixture(mixture, None)
    return without_derivative((start, reports, total.astype(start.dtype)), f"{name} has no derivatives")


def averaged(of_prior, priors, amplitudes, start, reports: Reports, total):
    """θ `[K]` averaged over R priors and A amplitudes by their evidence, and the weights `[R, A]`; NaN if unusable.

    `of_prior` returns the curves of a prior `[K, D]`, and the function that makes of an amplitude their scales `[D]`.
    """
    matrix, amplitudes = matrix_of(reports.lift, start.dtype), jnp.asarray(amplitudes, start.dtype)
    pairs = jnp.concatenate([amplitudes[:1], amplitudes[:-1]]), amplitudes

    def of_all(prior):
        curves, scale = of_prior(prior)

        def of_amplitude(point, pair):
            # Each amplitude begins with the θ of the one before, from the smallest to the largest.
            before, now = map(scale, pair)
            point, theta, evidence = most_probable(curves * now, point * before / now, start, matrix, reports, total)
            return point, (theta, evidence)

        first = aligned(jnp.zeros(curves.shape[1], start.dtype), (matrix, reports, total))
        return lax.scan(of_amplitude, first, pairs)[1]

    thetas, evidences = lax.map(of_all, priors)
    beliefs = jax.nn.softmax(evidences.ravel()).reshape(evidences.shape)
    theta = einsum("ra,rak->k", beliefs, thetas)
    theta = jnp.where(reports.usable, theta / accurate_sum(theta), jnp.nan)
    return theta, jnp.where(reports.usable, beliefs, jnp.nan)


def most_probable(
    curves: Float[Array, "K D"],
    point: Float[Array, " D"],
    uniform: Float[Array, " K"],
    matrix: Float[Array, "U K"],
    reports: Reports,
    total: Float[Array, ""],
) -> tuple[Float[Array, " D"], Float[Array, " K"], Float[Array, ""]]:
    """The most probable coefficients, their θ, and the log-probability of all reports, against that of `uniform`.

    Args:
        curves: Curves of log θ, each for a coefficient of variance one.
        point: The coefficients to begin with.
        uniform: The uniform distribution.
        matrix: That of the lift of the reports.
        reports: The reports.
        total: Their number.
    """

    def look(point):
        theta = jax.nn.softmax(matmul(curves, point))
        return theta, reports.probabilities(theta)

    def gained(new, old):
        terms = reports.shares * jnp.log1p((new - old) / old)
        return total * accurate_sum(terms)

    def system(theta, probabilities):
        """The matrix of Newton's method, with expected second derivatives of log θ, so that it is positive."""
        rows = matrix * (jnp.sqrt(reports.shares) / probabilities)[:, None] * theta
        rows = matmul(rows - jnp.sum(rows, axis=1, keepdims=True) * theta, curves)
        return total * einsum("ui,uj->ij", rows, rows) + jnp.eye(len(point), dtype=point.dtype)

    def factor_of(theta, probabilities):
        return factored(raised(system(theta, probabilities), jnp.zeros_like(point)))

    lengths = jnp.asarray(STEP_LENGTHS, point.dtype)

    def step(carry):
        point, _, number = carry
        theta, probabilities = look(point)
        slope = reports.slopes(theta)
        gradient = total * matmul(curves.T, theta * (slope - matmul(theta, slope))) - point
        change = solved(factor_of(theta, probabilities), gradient[:, None])[:, 0]

        def gain(length):
            new = point + length * change
            return gained(look(new)[1], probabilities) - (matmul(new, new) - matmul(point, point)) / 2

        gains = jax.vmap(gain)(lengths)
        gains = jnp.where(jnp.isfinite(gains), gains, -jnp.inf)
        best = jnp.max(gains)
        length = jnp.where(best > 0, jnp.max(jnp.where(gains == best, lengths, 0)), 0)
        return point + jnp.where(length > 0, length * change, 0), jnp.maximum(best, 0), number + 1

    def unfinished(carry):
        _, gain, number = carry
        return (gain > LEAST_GAIN) & (number < MAX_STEPS)

    first = aligned((point, jnp.asarray(jnp.inf, point.dtype), jnp.int32(0)), (curves, reports))
    point = lax.while_loop(unfinished, step, first)[0]
    theta, probabilities = look(point)
    volume = jnp.sum(jnp.log(jnp.diagonal(factor_of(theta, probabilities))))
    evidence = gained(probabilities, reports.probabilities(uniform)) - matmul(point, point) / 2 - volume
    return point, theta, jnp.where(jnp.isfinite(evidence), evidence, -jnp.inf)
