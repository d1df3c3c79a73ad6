"""The compiled parts of `rrjax.postprocessing`, from an inversion and its noise."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from rrjax.data.arguments import as_survey
from rrjax.data.tally import Rates, Tally, as_tally
from rrjax.estimators.affine_mle import maximum
from rrjax.estimators.closed_form import inv, mle_star
from rrjax.numerics.bisection import bisected
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
INTEGRATED_STANDARD_ERRORS = 8
"""Standard errors on either side of an estimate within which the posterior is integrated."""
LARGEST_LOWER_END = 0.1
"""Upper bound of the lower end of the power law, in equal shares: for more categories than users."""


class _Noisy(NamedTuple):
    """An inversion, and N (a float) and the rates, which determine its noise; valid placeholders if unusable."""

    shares: Float[Array, " K"]
    num_users: Float[Array, ""]
    rates: Rates
    usable: Bool[Array, ""]


def noisy(counts, epsilon):
    """The unbiased shares and their noise, from counts and ε or from a tally."""
    shares = inv(counts, epsilon)
    if isinstance(counts, Tally):
        tally = as_tally(counts, epsilon)
        return _of_rates(shares, tally.num_users, tally.rates)
    weights, epsilon = as_survey(counts, epsilon)
    if jnp.issubdtype(weights.dtype, jnp.floating):
        # The given counts: `as_survey` has scaled them, but the noise depends on their sum.
        weights = aligned(jnp.asarray(counts, weights.dtype), weights)
    return _of_counts(shares, weights, epsilon)


@jax.jit
def _of_counts(shares, weights, epsilon):
    number = accurate_sum(weights) if jnp.issubdtype(weights.dtype, jnp.floating) else jnp.sum(weights)
    e1 = expm1_epsilon(epsilon)
    return _of_rates(shares, number, Rates(jnp.ones_like(e1), jnp.full_like(e1, shares.shape[0] - 1), e1))


@jax.jit
def _of_rates(shares, number, rates):
    usable = ~jnp.isnan(shares[0])
    rates = Rates(*(jnp.where(usable, weight, 1) for weight in rates))
    number = jnp.where(usable, number.astype(shares.dtype), 1)
    return _Noisy(jnp.where(usable, shares, 0), number, rates, usable)


def positive(shares):
    """Shares with zero in place of negative ones."""
    # Not `shares > 0`, because NaN must stay, and not jnp.maximum, which halves the derivative at zero.
    return jnp.where(shares <= 0, 0, shares)


@jax.jit
def largest(shares):
    """The largest positive shares that sum to at most one; the rest is zero."""
    shares = positive(shares)
    fixed = lax.stop_gradient(shares)
    ordered = -jnp.sort(-fixed)
    # If shares sum to one exactly, rounding must not drop the smallest.
    fits = jnp.cumsum(ordered) <= 1 + 64 * jnp.finfo(shares.dtype).eps
    left_out = jnp.max(jnp.where(fits, 0, ordered))
    return jnp.where((fixed > left_out) | jnp.isnan(fixed), shares, 0)


def _reported_variance(rates, share):
    """N·d²·`Rates.variance`, the variance of one report, which is finite at any ε."""
    return rates.q * rates.not_q * (1 - share) + rates.p * rates.not_p * share


@jax.jit
def cut(seen, alpha):
    """Shares, with zero in place of shares that are not significantly above zero."""
    size, dtype = seen.shares.shape[0], seen.shares.dtype
    deviation = jnp.sqrt(_reported_variance(seen.rates, jnp.zeros((), dtype)) / seen.num_users)
    threshold = -jax.scipy.special.ndtri(alpha / size) * deviation
    kept = lax.stop_gradient(seen.rates.d * seen.shares) >= lax.stop_gradient(threshold)
    sensible = (alpha > 0) & (alpha <= size / 2) & seen.usable
    return jnp.where(sensible, jnp.where(kept, seen.shares, 0), jnp.nan)


@jax.jit
def merged(seen, counts, epsilon, cut):
    """The maximum likelihood estimate with small categories merged (mixture reduction)."""
    size, dtype = counts.shape[0], seen.shares.dtype
    noise = (1 / expm1_epsilon(epsilon)).astype(dtype)
    deviation = jnp.sqrt(_reported_variance(seen.rates, jnp.zeros((), dtype)) / seen.num_users) / seen.rates.d
    theta = mle_star(counts, epsilon)
    place = jnp.arange(size)
    # A merged category is at the place of its first member, with the noise of all members.
    group, members, free = place, jnp.ones(size, dtype), jnp.ones(size, bool)
    for _ in range(2):
        small = lax.stop_gradient(free & (theta < cut * deviation))
        number = jnp.minimum(jnp.sum(small), size // 4)
        largest = jnp.iinfo(counts.dtype).max if jnp.issubdtype(counts.dtype, jnp.integer) else jnp.inf
        least = jnp.sort(jnp.where(small, lax.stop_gradient(counts), largest))[jnp.maximum(number - 1, 0)]
        joined = small & (counts <= least) & (number > 0)
        first = jnp.argmax(joined)
        group = jnp.where(joined, first, group)
        members = jnp.where(joined, jnp.sum(joined).astype(dtype), members)
        free = free & ~joined
        together = jnp.zeros_like(counts).at[group].add(counts)
        alone = maximum(*aligned((together, noise * members, jnp.ones((), dtype))))
        theta = alone[group] / members
    return jnp.where(seen.usable & (cut >= 0), theta, jnp.nan)


def _nodes(dtype):
    """The nodes of Gauss and Legendre on [0, 1], and the logarithms of their weights."""
    return jnp.asarray((1 + _NODES) / 2, dtype), jnp.asarray(np.log(_WEIGHTS / 2), dtype)


def _exponent(least, mean):
    """The s for which x^−s on [least, 1] has this mean; it lies in [0, 3] if least < mean/5 and mean ≤ ½."""
    nodes, log_weights = _nodes(mean.dtype)
    log_share = nodes * jnp.log(least)

    def is_too_low(s):
        # In log x the density is x^(1−s).
        return jnp.sum(jax.nn.softmax(log_weights + (1 - s) * log_share) * jnp.exp(log_share)) > mean

    interval = aligned((jnp.zeros_like(mean), jnp.full_like(mean, 3)), least)
    return bisected(is_too_low, *interval, jnp.finfo(mean.dtype).nmant + 2)[0]


@jax.jit
def calibrated(seen):
    """Posterior means of the shares under the power law that fits them."""
    shares, number, rates, usable = seen
    dtype, size = shares.dtype, shares.shape[0]
    mean = jnp.asarray(1 / size, dtype)
    least = lax.stop_gradient(jnp.minimum(1 / number, LARGEST_LOWER_END * mean))
    exponent = _exponent(least, mean)
    nodes, log_weights = _nodes(dtype)
    reported = rates.d * shares

    # The ends solve (x·d − y)² = 8²·variance(x)/N, within the power law: nodes elsewhere would be wasted.
    fixed, fixed_rates, fixed_number = lax.stop_gradient((reported, rates, number))
    half, slope = INTEGRATED_STANDARD_ERRORS**2 / fixed_number / 2, fixed_rates.not_p - fixed_rates.q
    none = _reported_variance(fixed_rates, jnp.zeros((), dtype))

    def ends(y):
        reach = jnp.sqrt(jnp.maximum(half * (half * slope**2 + 2 * (none + slope * y)), 0))
        return y + half * slope - reach, y + half * slope + reach

    low, _ = ends(jnp.minimum(fixed, fixed_rates.d))
    _, high = ends(jnp.maximum(fixed, least * fixed_rates.d))
    low, high = (jnp.log(jnp.clip(end / fixed_rates.d, least, 1)) for end in (low, high))
    rounding = (jnp.finfo(dtype).eps * fixed) ** 2

    def add(node, state):
        largest, total, moment = state
        log_share = low + nodes[node] * (high - low)
        share = jnp.exp(log_share)
        variance = _reported_variance(rates, share) / number + rounding
        variance = jnp.maximum(variance, jnp.finfo(dtype).tiny)
        # Finite, because without noise every node is infinitely unlikely.
        square = jnp.minimum((share * rates.d - reported) ** 2 / variance, 1e30)
        term = log_weights[node] + (1 - exponent) * log_share - (square + jnp.log(variance)) / 2
        new_largest = jnp.maximum(largest, lax.stop_gradient(term))
        scale, mass = jnp.exp(largest - new_largest), jnp.exp(term - new_largest)
        return new_largest, total * scale + mass, moment * scale + mass * share

    start = jnp.full_like(shares, -jnp.inf), jnp.zeros_like(shares), jnp.zeros_like(shares)
    _, total, moment = lax.fori_loop(0, nodes.shape[0], add, aligned(start, seen))
    return jnp.where(usable, moment / total, jnp.nan)
