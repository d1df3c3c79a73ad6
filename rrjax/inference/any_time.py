r"""Limits of a binomial probability, and of a mean, that hold at every number of trials at once.

A count c of n trials at probability μ is seen again and again while n grows. For any mixture of other probabilities the
ratio of the mixed likelihood to that of μ is a martingale of mean one if μ is the true one. So it ever reaches 1/error
with probability `error` at most (Ville): the set of all μ with a smaller ratio covers at all n at once.

The mixture for μ is a beta law with mean μ and concentration a, parameters aμ and a(1 − μ). With p̃ = (c + aμ)/(n + a),
D the Kullback–Leibler divergence, and δ the remainder of Stirling's formula for the logarithm of the gamma function,

    log ratio = (n + a)·D(p̃ ‖ μ) − ½·log[p̃(1 − p̃)/(μ(1 − μ))·(n + a)/a]
                + δ(c + aμ) + δ(n − c + a(1 − μ)) − δ(n + a) − δ(aμ) − δ(a(1 − μ)) + δ(a),

in which no large numbers cancel. Of large counts, with r = n/a and L = 2·log(1/error), the limits are z standard errors
from c/n, z² = (1 + 1/r)·(L + log(1 + r)). That is least where r = L + log(1 + r), which sets a at the number of trials
to which the limits are tuned: there z² = 1 + r, and z is 1.55 times the 1.96 of a single look at the error 5 %.

A mean m of users' values from 0 to 1, whose reports have the sum T: with M(λ, m) the generating function of a report of
users whose values are 0 or 1, which is the largest (`rrjax.inference.bounded_means`), exp(λT − n·log M(λ, m)) has at
most the mean one for every λ > 0. So has a mixture over λ, and it falls with m: all m are refused below the one where
it is 1/(error/2). The mixture has a λ in each octave, most weight on the one that is best at `tuned_to`.

References:
    Ville, "Étude critique de la notion de collectif", 1939; Robbins, "Statistical methods related to the law of the
    iterated logarithm", 1970; Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic
    confidence sequences", 2021.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from rrjax.data.tally import SupportData
from rrjax.inference.bounded_means import Spread, mirrored
from rrjax.numerics.products import matmul
from rrjax.numerics.solvers import bisected, with_derivative_of_root
from rrjax.numerics.special import deviance, exp_minus, stirling_error

SERIES_FROM = 12.0
"""Smallest x for the series of δ; below, it is a difference of small numbers."""
FIXED_POINTS = 30
LEAST_LOG_PART = -64 * math.log(2.0)
OCTAVES = np.arange(-10, 5)
"""Those of λ, from the best one at the number of users to which limits of means are tuned."""


def any_time_limits(
    data: SupportData, log_tail: Float[Array, ""], tuned_to: Float[Array, ""]
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Limits of every share at all numbers of users at once, not cut to [0, 1]; the error is twice the tail."""
    low, high = _limits(data.support, data.others, log_tail, tuned_to)
    return data.rates.share(low), data.rates.share(high)


@jax.jit
def _limits(count, other, log_tail, tuned_to):
    log_bound = -(log_tail + math.log(2.0)).astype(count.dtype)
    # The fixed point of a function with a slope below ½.
    ratio = lax.fori_loop(0, FIXED_POINTS, lambda _, r: 2 * log_bound + jnp.log1p(r), 2 * log_bound)
    concentration = tuned_to.astype(count.dtype) / ratio
    below = _below(jnp.stack([count, other]), jnp.stack([other, count]), concentration, log_bound)
    share, rest = count / (count + other), other / (count + other)
    # The upper limit is one minus the lower limit of all other trials, without its rounding.
    return share * (1 - below[0]), share + rest * below[1]


def _below(count, other, concentration, log_bound):
    """The largest part of count/n below it at which the ratio, which falls towards count/n, is below the bound."""
    some = count > 0
    given = jnp.where(some, count, 1), other, concentration, log_bound

    def excess(log_part, given):
        count, other, concentration, log_bound = given
        return log_ratio(count, other, jnp.exp(log_part), concentration) - log_bound

    # In logarithms, because next to a small share it is small: that of large counts of n = 2⁶⁴ is above 2⁻⁶⁴.
    least = jnp.full_like(count, LEAST_LOG_PART)
    fixed = lax.stop_gradient(given)
    _, far = bisected(
        lambda log_part: excess(log_part, fixed) < 0, least, jnp.zeros_like(count), jnp.finfo(count.dtype).nmant + 9
    )
    inside = some & (jnp.exp(far) < 1)  # one report may be of any share, however small
    root = with_derivative_of_root(excess, jnp.where(inside, far, -1), given)
    return jnp.where(inside, jnp.exp(root), 1)


def log_ratio(
    count: Float[Array, "*s"], other: Float[Array, "*s"], below: Float[Array, "*s"], concentration: Float[Array, ""]
) -> Float[Array, "*s"]:
    """The logarithm of the ratio of likelihoods at μ = count/n·(1 − below)."""
    number = count + other
    share = count / number
    law, rest = share * (1 - below), other / number + share * below
    tiny = jnp.finfo(count.dtype).tiny
    law, rest = jnp.maximum(law, tiny), jnp.maximum(rest, tiny)
    total = number + concentration
    moved = count * below / total  # p̃ − μ
    divergence = total * (law * deviance(moved / law) + rest * deviance(-moved / rest))
    spread = jnp.log1p(moved / law) + jnp.log1p(-moved / rest) + jnp.log1p(number / concentration)
    parts = ((count + concentration * law, 1), (other + concentration * rest, 1), (total, -1))
    parts += ((concentration * law, -1), (concentration * rest, -1), (concentration, 1))
    return divergence - spread / 2 + sum(sign * _remainder(x) for x, sign in parts)


@jax.jit
def any_time_mean_limits(
    spread: Spread,
    estimate: Float[Array, ""],
    num_users: Float[Array, ""],
    kept: Float[Array, ""],
    log_tail: Float[Array, ""],
    tuned_to: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Limits of m at all numbers of users at once, as those of `bounded_means.conservative_limits` for one number."""
    dtype = estimate.dtype
    log_tail, tuned_to = log_tail.astype(dtype), tuned_to.astype(dtype)
    means = jnp.linspace(0, 1, 65, dtype=dtype)
    # The derivative of a maximum compares bits, and programs may round it and its terms in two ways: 0/0.
    variance = spread.of_reports(means[jnp.argmax(spread.of_reports(means, kept))], kept)
    tilts = jnp.sqrt(-2 * log_tail / (tuned_to * variance)) * jnp.asarray(2.0**OCTAVES, dtype)  # λ
    weights = 1 / (1 + np.abs(OCTAVES)) ** 2
    log_weights = np.log(weights / weights.sum()).astype(dtype)

    def excess(distance, given):
        spread, estimate, num_users, kept, tilts, log_tail = given
        m = jnp.clip(estimate - distance, 0, 1)
        mean = kept * m + (1 - kept) * spread.mean
        noise = matmul(exp_minus(tilts[:, None] * (spread.points - mean)), spread.mass)
        users = m * exp_minus(tilts * (1 - mean)) + (1 - m) * exp_minus(-tilts * mean)
        second = (1 - kept) * noise + kept * users  # M/e^(λ·mean) − 1
        return logsumexp(log_weights + num_users * (tilts * kept * distance - jnp.log1p(second))) + log_tail

    def lower(spread, estimate):
        given = spread, estimate, num_users, kept, tilts, log_tail
        fixed = lax.stop_gradient(given)
        least, most = jnp.maximum(fixed[1] - 1, 0), jnp.maximum(fixed[1], 0)
        _, found = bisected(lambda distance: excess(distance, fixed) < 0, least, most, jnp.finfo(dtype).nmant + 3)
        # Elsewhere the limit is an end of the range, and derivatives are taken at a harmless place.
        inside = excess(most, fixed) >= 0
        given = spread, jnp.where(inside, estimate, 0.5), num_users, kept, tilts, log_tail
        far = with_derivative_of_root(excess, jnp.where(inside, found, 0.25), given)
        limit = jnp.where(inside, jnp.clip(estimate - far, 0, 1), 0)
        return jnp.where((least > 0) & (excess(least, fixed) >= 0), 2, limit)

    return lower(spread, estimate), 1 - lower(mirrored(spread), 1 - estimate)


def _remainder(x):
    """Log Γ(x) − [½·log(2π/x) + x·log x − x], for x > 0."""
    small = jnp.clip(x, jnp.finfo(x.dtype).tiny, SERIES_FROM)
    direct = lax.lgamma(small) - ((small - 0.5) * jnp.log(small) - small + 0.5 * math.log(2 * math.pi))
    return jnp.where(x < SERIES_FROM, direct, stirling_error(jnp.maximum(x, SERIES_FROM)))
