"""The field's ways to repair an inversion that is negative in places, or does not sum to one.

Wang et al. compare them under names of their own. Each has an entry of that name in `rrjax.catalogue`; those that are
an estimator already are that very function:

================  ==================================  ====  ============
their name        here                                ≥ 0   sums to one
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

Base-Pos and Post-Pos differ in queries of several categories, which Post-Pos answers by the unrepaired sum, and repairs
only then; a vector of shares is K queries of one category. Norm-Sub is the δ with Σ max(θ + δ, 0) = 1, which is the
Euclidean projection; published loops that subtract again and again from what is still positive end there too, unless
the positive shares sum to less than one, when they cannot revive a category that they have set to zero.

The functions have the signature and the contract of the closed forms. They take counts and ε, or a `Tally`.

References:
    Wang, Lopuhaä-Zwakenberg, Li, Skoric and Li, "Locally Differentially Private Frequency Estimation with Consistency",
    NDSS 2020, arXiv:1905.08320.
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

from rrjax.data.arguments import as_scalar, as_survey
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Rates, Tally, as_tally
from rrjax.estimators.affine_mle import maximum
from rrjax.estimators.closed_form import inv, mle_star, projected_shares
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

__all__ = ["base_cut", "base_pos", "mixture_reduction", "norm", "norm_cut", "power", "power_ns"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
_WIDTH = 8
"""Standard errors on either side of an estimate within which a share is looked for."""
_LEAST = 0.1
"""The smallest share of the power law at most, in equal shares: where there are more categories than users."""


def base_pos(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Inverts, and sets negative shares to zero (Base-Pos).

    Closer than `inv` in every category, and too large in sum: the positive errors stay. Of single categories Post-Pos
    is the same.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not beside a tally.

    Returns:
        `[K]`, not negative, not normalized. Derivatives of `inv` where it is positive, else zero.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε beside a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.base_pos([50, 30, 10, 10], epsilon=1.0).tolist()]
        [1.08, 0.42, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
    """
    return _positive(inv(counts, epsilon))


def base_cut(
    counts: ArrayLike | Tally, epsilon: ArrayLike | None = None, *, alpha: ArrayLike = 0.05
) -> Float[Array, " K"]:
    """Inverts, and sets to zero what cannot be told from nothing (Base-Cut).

    The threshold is F⁻¹(1 − alpha/K)·√(q(1−q)/N)/d, with F the normal distribution: a quantile, times the standard
    error of a category that nobody holds. Of such categories about `alpha` are kept on average, at most.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`. Floats are on the scale of numbers of
            reports: what noise there is depends on their sum.
        epsilon: Scalar, nats; not beside a tally.
        alpha: Scalar, categories: how many that nobody holds may be kept on average; at most K/2. The authors' code has
            no default. That here is a Bonferroni test's; some code sets 2, which keeps more.

    Returns:
        `[K]`, not negative, not normalized. Derivatives of `inv` where a share is kept, else zero.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an ε beside a tally, or an alpha that is no such number.

    Example:
        >>> import rrjax
        >>> counts = [500, 300, 100, 100]
        >>> [round(t, 2) for t in rrjax.postprocessing.base_cut(counts, epsilon=1.0).tolist()]
        [1.08, 0.42, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
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
    """Inverts, and adds the same to every share so that they sum to one (Norm).

    The inversion of k-ary randomized response does already: of counts this is `inv`. That of other mechanisms does not.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not beside a tally.

    Returns:
        `[K]`, summing to one, often negative. Derivatives: smooth in floats, in epsilon and in rates.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε beside a tally.

    Example:
        >>> import rrjax
        >>> tally = rrjax.Tally([60, 35, 30], num_users=100, p=0.5, q=0.25)
        >>> [round(t, 2) for t in rrjax.postprocessing.norm(tally).tolist()]
        [1.07, 0.07, -0.13]

    References:
        Wang et al., NDSS 2020, §IV.
    """
    shares = inv(counts, epsilon)
    if not isinstance(counts, Tally):
        return shares
    return shares + (1 - accurate_sum(shares)) / shares.shape[0]


def norm_cut(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Inverts, and keeps the largest positive shares as they are, as many as sum to at most one (Norm-Cut).

    The threshold is the smallest for which Σ_{θ_i ≥ t} θ_i ≤ 1, so that equal shares are kept or dropped together. What
    is kept is not scaled up, as some published code does. A share above one is dropped with all others.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not beside a tally.

    Returns:
        `[K]`, not negative, with a sum of at most one to rounding; zero everywhere where the largest share is above
        one. Derivatives of `inv` where a share is kept, else zero.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε beside a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.norm_cut([40, 25, 23, 12], epsilon=1.0).tolist()]
        [0.75, 0.25, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
    """
    return _largest(inv(counts, epsilon))


def power(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Inverts, and replaces every share by its posterior mean under a power law (Power).

    θ_i = ∫ x·p(x)·f(y_i | x) dx / ∫ p(x)·f(y_i | x) dx, with y the inversion, f its normal error, whose variance
    [q(1−q) + x(p(1−p) − q(1−q))]/(N·d²) is the mechanism's at the share x, and p(x) ∝ x^−s on [a, 1].

    How the law is fitted is a choice of ours, as are its ends: a is one user, 1/N (or a tenth of equal shares, where
    that is less), and s that for which the mean of the law is 1/K, as the mean of shares is.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`. Floats are on the scale of numbers of
            reports: what noise there is depends on their sum.
        epsilon: Scalar, nats; not beside a tally.

    Returns:
        `[K]`, in [a, 1], not normalized: each category is read alone. A category that surely nobody holds gets about a,
        as the law knows no zero. Derivatives are those with the law held fixed. Memory O(K), in reverse mode O(128·K).

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε beside a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.power([500, 300, 100, 100], epsilon=1.0).tolist()]
        [0.98, 0.41, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
        Jia and Gong, "Calibrate: Frequency Estimation and Heavy Hitter Identification with Local Differential Privacy
        via Incorporating Prior Knowledge", INFOCOM 2019, arXiv:1812.02055.
    """
    return _calibrated(_noisy(counts, epsilon))


def power_ns(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """`power`, then projected on the simplex as Norm-Sub does (PowerNS).

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`. Floats as in `power`.
        epsilon: Scalar, nats; not beside a tally.

    Returns:
        `[K]` on the simplex. Derivatives of `power` and of the projection, where no share is at its threshold.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε beside a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.power_ns([500, 300, 100, 100], epsilon=1.0).tolist()]
        [0.78, 0.22, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
    """
    return projected_shares["newton"](power(counts, epsilon))


def mixture_reduction(
    counts: ArrayLike, epsilon: ArrayLike | None = None, *, cut: ArrayLike | None = None
) -> Float[Array, " K"]:
    """Maximizes the likelihood, merges small categories, and maximizes it again (mixture reduction, MR).

    Categories whose estimates are below `cut` standard errors, the least named first and a quarter of K at most (equal
    counts go together), become one; the likelihood is maximized with it in their place; this is done once more with
    those that are left, which become another; and a merged category shares out evenly what it has. So the result is the
    maximum of the likelihood among the distributions that are even within each of the two groups, and `certificate`
    says how much likelihood that gave up.

    The rule is that of the code published with it for k-ary randomized response. What differs: its EM stops where a
    step gains less than e^ε/1000 nats, here each maximum is exact; and it never merges the first ten categories, the
    largest in its data, here any may be. Exact maxima are zero where EM that was stopped is small, so less is left to
    merge: the squared error is that of `mle_star` within some 6 %, on either side of it.

    Args:
        counts: `[K]`, integers or floats, the reports per category. Floats are on the scale of numbers of reports: what
            noise there is depends on their sum.
        epsilon: Scalar, nats.
        cut: Scalar, standard errors of the inversion of a category that nobody holds; not negative. None is 1 where
            e^ε is below 5, and 2 elsewhere.

    Returns:
        `[K]` on the simplex. Derivatives with the groups held fixed.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, a tally, or a cut that is negative.

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
    weights, epsilon = as_survey(counts, epsilon)
    dtype = seen.shares.dtype
    cut = jnp.where(expm1_epsilon(epsilon) < 4, 1, 2).astype(dtype) if cut is None else as_scalar(cut, dtype, "cut")
    if not isinstance(cut, Tracer) and not float(cut) >= 0:
        raise ArgumentError(
            f"cut must be a number of standard errors, not negative, got {float(cut):g}", argument="cut"
        )
    return _merged(seen, weights, epsilon, cut)


class _Noisy(NamedTuple):
    """An inversion, and what makes its noise.

    Attributes:
        shares: `[K]`.
        num_users: Scalar, a float, N; one where it is not usable.
        rates: The mechanism's, harmless where they are not usable.
        usable: Scalar.
    """

    shares: Float[Array, " K"]
    num_users: Float[Array, ""]
    rates: Rates
    usable: Bool[Array, ""]


def _noisy(counts, epsilon):
    shares = inv(counts, epsilon)
    if isinstance(counts, Tally):
        tally = as_tally(counts, epsilon)
        return _of_rates(shares, tally.num_users, tally.rates)
    weights, epsilon = as_survey(counts, epsilon)
    if jnp.issubdtype(weights.dtype, jnp.floating):
        # They were scaled, and have forgotten how many reports they are.
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


def _positive(shares):
    # Not the other way round, because NaN must stay, and not jnp.maximum, which halves the derivative at zero.
    return jnp.where(shares <= 0, 0, shares)


@jax.jit
def _largest(shares):
    shares = _positive(shares)
    fixed = lax.stop_gradient(shares)
    ordered = -jnp.sort(-fixed)
    # Shares that sum to one exactly must not lose the smallest to rounding.
    fits = jnp.cumsum(ordered) <= 1 + 64 * jnp.finfo(shares.dtype).eps
    left_out = jnp.max(jnp.where(fits, 0, ordered))
    return jnp.where((fixed > left_out) | jnp.isnan(fixed), shares, 0)


def _reported_variance(rates, share):
    """N·d²·`Rates.variance`: that of the reports, which is finite at any ε."""
    return rates.q * rates.not_q * (1 - share) + rates.p * rates.not_p * share


@jax.jit
def _cut(seen, alpha):
    size, dtype = seen.shares.shape[0], seen.shares.dtype
    deviation = jnp.sqrt(_reported_variance(seen.rates, jnp.zeros((), dtype)) / seen.num_users)
    threshold = -jax.scipy.special.ndtri(alpha / size) * deviation
    kept = lax.stop_gradient(seen.rates.d * seen.shares) >= lax.stop_gradient(threshold)
    sensible = (alpha > 0) & (alpha <= size / 2) & seen.usable
    return jnp.where(sensible, jnp.where(kept, seen.shares, 0), jnp.nan)


@jax.jit
def _merged(seen, counts, epsilon, cut):
    size, dtype = counts.shape[0], seen.shares.dtype
    noise = (1 / expm1_epsilon(epsilon)).astype(dtype)
    deviation = jnp.sqrt(_reported_variance(seen.rates, jnp.zeros((), dtype)) / seen.num_users) / seen.rates.d
    theta = mle_star(counts, epsilon)
    place = jnp.arange(size)
    # A merged category is at the place of its first member, with as many parts of the noise as it has members.
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
    """128 nodes on [0, 1] and the logarithms of their weights, of Gauss and Legendre."""
    return jnp.asarray((1 + _NODES) / 2, dtype), jnp.asarray(np.log(_WEIGHTS / 2), dtype)


def _exponent(least, mean):
    """The s for which x^−s on [least, 1] has this mean; it lies in [0, 3] if least < mean/5 and mean ≤ ½."""
    nodes, log_weights = _nodes(mean.dtype)
    place = nodes * jnp.log(least)

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        # In log x the density is x^(1−s).
        above = jnp.sum(jax.nn.softmax(log_weights + (1 - middle) * place) * jnp.exp(place)) > mean
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    start = aligned((jnp.zeros_like(mean), jnp.full_like(mean, 3)), least)
    return lax.fori_loop(0, jnp.finfo(mean.dtype).nmant + 2, halve, start)[0]


@jax.jit
def _calibrated(seen):
    shares, number, rates, usable = seen
    dtype, size = shares.dtype, shares.shape[0]
    mean = jnp.asarray(1 / size, dtype)
    least = lax.stop_gradient(jnp.minimum(1 / number, _LEAST * mean))
    exponent = _exponent(least, mean)
    nodes, log_weights = _nodes(dtype)
    reported = rates.d * shares

    # (x·d − y)² = 8²·variance(x)/N, where the law is not left: no quadrature spends nodes on what cannot be.
    fixed, fixed_rates, fixed_number = lax.stop_gradient((reported, rates, number))
    half, slope = _WIDTH**2 / fixed_number / 2, fixed_rates.not_p - fixed_rates.q
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
        place = low + nodes[node] * (high - low)
        share = jnp.exp(place)
        variance = _reported_variance(rates, share) / number + rounding
        variance = jnp.maximum(variance, jnp.finfo(dtype).tiny)
        # Finite, or all nodes of an estimate without noise would be impossible.
        far = jnp.minimum((share * rates.d - reported) ** 2 / variance, 1e30)
        term = log_weights[node] + (1 - exponent) * place - (far + jnp.log(variance)) / 2
        top = jnp.maximum(largest, lax.stop_gradient(term))
        scale, mass = jnp.exp(largest - top), jnp.exp(term - top)
        return top, total * scale + mass, moment * scale + mass * share

    start = jnp.full_like(shares, -jnp.inf), jnp.zeros_like(shares), jnp.zeros_like(shares)
    _, total, moment = lax.fori_loop(0, nodes.shape[0], add, aligned(start, seen))
    return jnp.where(usable, moment / total, jnp.nan)
