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

The functions have the signature and the contract of the closed forms. They take counts and ε, or a `Tally`.

References:
    Wang, Lopuhaä-Zwakenberg, Li, Skoric and Li, "Locally Differentially Private Frequency Estimation with Consistency",
    NDSS 2020, arXiv:1905.08320.
    Ye, Wang, Zhang and Feng, "Revisiting EM-based Estimation for Locally Differentially Private Protocols", NDSS 2025.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_scalar, as_survey
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Tally
from rrjax.estimators.closed_form import inv, projected_shares
from rrjax.estimators.repairs import calibrated, cut, largest, merged, noisy, positive
from rrjax.numerics.sums import accurate_sum, expm1_epsilon

__all__ = ["base_cut", "base_pos", "mixture_reduction", "norm", "norm_cut", "power", "power_ns"]


def base_pos(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares by inversion, with negative shares set to zero (Base-Pos).

    No share is farther from the truth than that of `inv`, but the sum is too large, because positive errors stay. For
    single categories Post-Pos is the same.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]`, not negative, not normalized. Derivatives of `inv` where it is positive, else zero.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.base_pos([50, 30, 10, 10], epsilon=1.0).tolist()]
        [1.08, 0.42, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
    """
    return positive(inv(counts, epsilon))


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
        ValueError: A wrong shape or dtype, K < 2, an ε with a tally, or an alpha outside (0, K/2].

    Example:
        >>> import rrjax
        >>> counts = [500, 300, 100, 100]
        >>> [round(t, 2) for t in rrjax.postprocessing.base_cut(counts, epsilon=1.0).tolist()]
        [1.08, 0.42, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
    """
    seen = noisy(counts, epsilon)
    size = seen.shares.shape[0]
    alpha = as_scalar(alpha, seen.shares.dtype, "alpha")
    if not isinstance(alpha, Tracer) and not 0 < float(alpha) <= size / 2:
        raise ArgumentError(
            f"alpha must be a number of categories above 0 and at most K/2 = {size / 2:g}, got {alpha:g}",
            argument="alpha",
            value=alpha,
        )
    return cut(seen, alpha)


def norm(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares by inversion, plus the same amount for every share so that they sum to one (Norm).

    The inversion of k-ary randomized response sums to one: for counts this is `inv`. The inversion of other mechanisms
    does not.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]`, summing to one, often negative. Derivatives: smooth in floats, in epsilon and in rates.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a tally.

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
    """Estimates the shares by inversion, and keeps the largest, as many as sum to at most one (Norm-Cut).

    The threshold t is the smallest with Σ_{θ_i ≥ t} θ_i ≤ 1, so equal shares are kept or dropped together. Kept shares
    are not scaled up, as they are in some published code. If a share is above one, all are dropped.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]`, not negative, with a sum of at most one to rounding; all zero if the largest share is above one.
        Derivatives of `inv` where a share is kept, else zero.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.norm_cut([40, 25, 23, 12], epsilon=1.0).tolist()]
        [0.75, 0.25, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
    """
    return largest(inv(counts, epsilon))


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

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.postprocessing.power([500, 300, 100, 100], epsilon=1.0).tolist()]
        [0.98, 0.41, 0.0, 0.0]

    References:
        Wang et al., NDSS 2020, §IV.
        Jia and Gong, "Calibrate: Frequency Estimation and Heavy Hitter Identification with Local Differential Privacy
        via Incorporating Prior Knowledge", INFOCOM 2019, arXiv:1812.02055.
    """
    return calibrated(noisy(counts, epsilon))


def power_ns(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares by the projection of `power` on the simplex, as in Norm-Sub (PowerNS).

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`. Floats as in `power`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]` on the simplex. Derivatives of `power` and of the projection, where no share is at its threshold.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a tally.

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
    seen = noisy(counts, epsilon)
    weights, epsilon = as_survey(counts, epsilon)
    dtype = seen.shares.dtype
    cut = jnp.where(expm1_epsilon(epsilon) < 4, 1, 2).astype(dtype) if cut is None else as_scalar(cut, dtype, "cut")
    if not isinstance(cut, Tracer) and not float(cut) >= 0:
        raise ArgumentError.about("cut", f"must be a number of standard errors, not negative, got {float(cut):g}")
    return merged(seen, weights, epsilon, cut)
