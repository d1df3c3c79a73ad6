"""Published repairs of an inversion that has negative shares, or does not sum to one.

================  ==================================  ====  ============
published name    here and in `rrjax.catalogue`       ≥ 0   sums to one
================  ==================================  ====  ============
Base-Pos          `base_pos`                          yes   no
Post-Pos          `base_pos`, of single categories    yes   no
Base-Cut          `base_cut`                          yes   no
Norm              `norm`                              no    yes
Norm-Mul          `rrjax.inv_n`                       yes   yes
Norm-Sub          `rrjax.inv_p`                       yes   yes
Norm-Cut          `norm_cut`                          yes   at most
Power             `power`                             yes   no
PowerNS           `power_ns`                          yes   yes
MR, of Ye et al.  `mixture_reduction`                 yes   yes
================  ==================================  ====  ============

Base-Pos and Post-Pos differ in queries of several categories, where Post-Pos repairs the sum; a vector of shares is K
queries of one category. Norm-Sub is the δ with Σ max(θ + δ, 0) = 1, the Euclidean projection. Published loops subtract
repeatedly from the positive shares and end there too, unless these sum to less than one: a category once set to zero
stays zero.

The functions have the signature and the contract of the closed forms. They take counts and ε, or a `Tally`; all raise
`ValueError` for a wrong shape or dtype, K < 2, or an ε with a tally.

References:
    Wang, Lopuhaä-Zwakenberg, Li, Skoric and Li, "Locally Differentially Private Frequency Estimation with Consistency",
    NDSS 2020, arXiv:1905.08320, §IV.
    Ye, Wang, Zhang and Feng, "Revisiting EM-based Estimation for Locally Differentially Private Protocols", NDSS 2025.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_counts_and_epsilon, as_scalar
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Rates, Tally, as_tally
from rrjax.estimators.closed_form import inv, mle_star, projected_shares
from rrjax.estimators.maximum_likelihood import maximum
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.solvers import bisected
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

__all__ = ["base_cut", "base_pos", "mixture_reduction", "norm", "norm_cut", "power", "power_ns"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
INTEGRATED_STANDARD_ERRORS = 8
"""Standard errors on either side of an estimate within which the posterior is integrated."""
LARGEST_LOWER_END = 0.1
"""Upper bound of the lower end of the power law, in equal shares: for more categories than users."""


def base_pos(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares by inversion, with negative shares set to zero (Base-Pos).

    No share is farther from the truth than that of `inv`, but the sum is too large, because positive errors stay. For
    single categories Post-Pos is the same.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]`, not negative, not normalized. Derivatives of `inv` where it is positive, else zero.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.base_pos([50, 30, 10, 10], epsilon=1.0).tolist()]
        [1.08, 0.42, 0.0, 0.0]
    """
    return _positive(inv(counts, epsilon))


def base_cut(
    counts: ArrayLike | Tally, epsilon: ArrayLike | None = None, *, alpha: ArrayLike = 0.05
) -> Float[Array, " K"]:
    """Estimates the shares by inversion, and sets those not significantly above zero to zero (Base-Cut).

    The threshold is F⁻¹(1 − alpha/K)·√(q(1−q)/N)/d, with F the normal distribution: a quantile times the standard error
    of an empty category. At most about `alpha` empty categories are kept on average.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`. Floats are numbers of reports: the
            noise depends on their sum.
        epsilon: Scalar, nats; not with a tally.
        alpha: Scalar: the number of empty categories that may be kept on average, at most K/2. The default is that of a
            Bonferroni test. The authors' code has none; other code has 2, which keeps more.

    Returns:
        `[K]`, not negative, not normalized. Derivatives of `inv` where a share is kept, else zero.

    Raises:
        ValueError: An alpha outside (0, K/2].

    Example:
        >>> import rrjax
        >>> counts = [500, 300, 100, 100]
        >>> [round(t, 2) for t in rrjax.postprocessing.base_cut(counts, epsilon=1.0).tolist()]
        [1.08, 0.42, 0.0, 0.0]
    """
    seen = _noisy(counts, epsilon)
    size = seen.shares.shape[0]
    alpha = as_scalar(alpha, seen.shares.dtype, "alpha")
    if not isinstance(alpha, Tracer) and not 0 < float(alpha) <= size / 2:
        raise ArgumentError(
            f"alpha must be a number of categories above 0 and at most K/2 = {size / 2:g}, got {alpha:g}",
            argument="alpha",
            value=alpha,
        )
    return _cut(seen, alpha)


def norm(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares by inversion, plus the same amount for every share so that they sum to one (Norm).

    The inversion of k-ary randomized response sums to one: for counts this is `inv`. The inversion of other mechanisms
    does not.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]`, summing to one, often negative. Derivatives: smooth in floats, in epsilon and in rates.

    Example:
        >>> import rrjax
        >>> tally = rrjax.Tally([60, 35, 30], num_users=100, p=0.5, q=0.25)
        >>> [round(t, 2) for t in rrjax.postprocessing.norm(tally).tolist()]
        [1.07, 0.07, -0.13]
    """
    shares = inv(counts, epsilon)
    if not isinstance(counts, Tally):
        return shares
    return shares + (1 - accurate_sum(shares)) / shares.shape[0]


def norm_cut(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares by inversion, and keeps the largest, as many as sum to at most one (Norm-Cut).

    The threshold t is the smallest with Σ_{θ_i ≥ t} θ_i ≤ 1, so equal shares are kept or dropped together. Kept shares
    are not scaled up, as they are in some published code. If a share is above one, all are dropped.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]`, not negative, with a sum of at most one to rounding; all zero if the largest share is above one.
        Derivatives of `inv` where a share is kept, else zero.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.norm_cut([40, 25, 23, 12], epsilon=1.0).tolist()]
        [0.75, 0.25, 0.0, 0.0]
    """
    return _largest(inv(counts, epsilon))


def power(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates each share by its posterior mean under a power law, given the inversion (Power).

    θ_i = ∫ x·p(x)·f(y_i | x) dx / ∫ p(x)·f(y_i | x) dx, with y the inversion, f its normal error, whose variance
    [q(1−q) + x(p(1−p) − q(1−q))]/(N·d²) is the mechanism's at the share x, and p(x) ∝ x^−s on [a, 1].

    The paper leaves the fit of the law open. Here a is one user, 1/N (or a tenth of equal shares, if that is less), and
    s makes the mean of the law 1/K, the mean of the shares.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`. Floats are numbers of reports: the
            noise depends on their sum.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]`, in [a, 1], not normalized, each category by itself. An empty category gets about a, because the law has
        no zero. Derivatives hold the law fixed. Memory O(K), in reverse mode O(128·K).

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.power([500, 300, 100, 100], epsilon=1.0).tolist()]
        [0.98, 0.41, 0.0, 0.0]

    References:
        Jia and Gong, "Calibrate: Frequency Estimation and Heavy Hitter Identification with Local Differential Privacy
        via Incorporating Prior Knowledge", INFOCOM 2019, arXiv:1812.02055.
    """
    return _calibrated(_noisy(counts, epsilon))


def power_ns(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares by the projection of `power` on the simplex, as in Norm-Sub (PowerNS).

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`. Floats as in `power`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]` on the simplex. Derivatives of `power` and of the projection, where no share is at its threshold.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.power_ns([500, 300, 100, 100], epsilon=1.0).tolist()]
        [0.78, 0.22, 0.0, 0.0]
    """
    return projected_shares["newton"](power(counts, epsilon))


def mixture_reduction(
    counts: ArrayLike, epsilon: ArrayLike | None = None, *, cut: ArrayLike | None = None
) -> Float[Array, " K"]:
    """Maximum likelihood estimate with small categories merged (mixture reduction, MR).

    Categories whose estimates are below `cut` standard errors, at most a quarter of K, the smallest counts first (equal
    counts together), become one category, and the likelihood is maximized again. A second round merges small ones of
    the rest. A merged category divides its share evenly among its members. So the result maximizes the likelihood among
    the distributions that are even within each of the two groups, and `certificate` bounds the loss of likelihood.

    The rule is that of the code published with the method for k-ary randomized response, with two differences. The EM
    of that code stops if a step gains less than e^ε/1000 nats; here each maximum is exact. That code never merges the
    first ten categories, the largest in its data; here any may be merged. Exact maxima are zero for categories where a
    stopped EM is small, so fewer remain to merge: the squared error is that of `mle_star` within some 6 %, on either
    side of it.

    Args:
        counts: `[K]`, integers or floats, the reports per category. Floats are numbers of reports: the noise depends on
            their sum.
        epsilon: Scalar, nats.
        cut: Scalar, standard errors of the inversion of an empty category; not negative. None is 1 if e^ε is below 5,
            else 2.

    Returns:
        `[K]` on the simplex. Derivatives with the groups held fixed.

    Raises:
        ValueError: A tally, or a cut that is negative.

    Example:
        >>> import rrjax
        >>> counts = [500, 300, 104, 96, 92, 88, 80, 100]
        >>> [round(t, 2) for t in rrjax.postprocessing.mixture_reduction(counts, epsilon=1.0).tolist()]
        [0.77, 0.23, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]

    References:
        Ye, Wang, Zhang and Feng, NDSS 2025, and the code published with it (`LDP-EM-MR`).
    """
    if isinstance(counts, Tally):
        raise ValueError("mixture_reduction takes the counts of k-ary randomized response: give counts and epsilon")
    seen = _noisy(counts, epsilon)
    weights, epsilon = as_counts_and_epsilon(counts, epsilon)
    dtype = seen.shares.dtype
    cut = jnp.where(expm1_epsilon(epsilon) < 4, 1, 2).astype(dtype) if cut is None else as_scalar(cut, dtype, "cut")
    if not isinstance(cut, Tracer) and not float(cut) >= 0:
        raise ArgumentError.about("cut", f"must be a number of standard errors, not negative, got {float(cut):g}")
    return _merged(seen, weights, epsilon, cut)


class _Noisy(NamedTuple):
    """An inversion, and N (a float) and the rates, which determine its noise; valid placeholders if unusable."""

    shares: Float[Array, " K"]
    num_users: Float[Array, ""]
    rates: Rates
    usable: Bool[Array, ""]


def _noisy(counts, epsilon):
    """The unbiased shares and their noise, from counts and ε or from a tally."""
    shares = inv(counts, epsilon)
    if isinstance(counts, Tally):
        tally = as_tally(counts, epsilon)
        return _of_rates(shares, tally.num_users, tally.rates)
    weights, epsilon = as_counts_and_epsilon(counts, epsilon)
    if jnp.issubdtype(weights.dtype, jnp.floating):
        # The given counts: `as_counts_and_epsilon` has scaled them, but the noise depends on their sum.
        weights = with_sharding_of(jnp.asarray(counts, weights.dtype), weights)
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


def _positive(shares):
    """Shares with zero in place of negative ones."""
    # Not `shares > 0`, because NaN must stay, and not jnp.maximum, which halves the derivative at zero.
    return jnp.where(shares <= 0, 0, shares)


@jax.jit
def _largest(shares):
    """The largest positive shares that sum to at most one; the rest is zero."""
    shares = _positive(shares)
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
def _cut(seen, alpha):
    """Shares, with zero in place of shares that are not significantly above zero."""
    size, dtype = seen.shares.shape[0], seen.shares.dtype
    deviation = jnp.sqrt(_reported_variance(seen.rates, jnp.zeros((), dtype)) / seen.num_users)
    threshold = -jax.scipy.special.ndtri(alpha / size) * deviation
    kept = lax.stop_gradient(seen.rates.d * seen.shares) >= lax.stop_gradient(threshold)
    sensible = (alpha > 0) & (alpha <= size / 2) & seen.usable
    return jnp.where(sensible, jnp.where(kept, seen.shares, 0), jnp.nan)


@jax.jit
def _merged(seen, counts, epsilon, cut):
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
        alone = maximum(*with_sharding_of((together, noise * members, jnp.ones((), dtype))))
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

    interval = with_sharding_of((jnp.zeros_like(mean), jnp.full_like(mean, 3)), least)
    return bisected(is_too_low, *interval, jnp.finfo(mean.dtype).nmant + 2)[0]


@jax.jit
def _calibrated(seen):
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
    _, total, moment = lax.fori_loop(0, nodes.shape[0], add, with_sharding_of(start, seen))
    return jnp.where(usable, moment / total, jnp.nan)
