"""The likelihood of randomized reports, its score, and a certificate of how close an estimate is to the maximum.

For k-ary randomized response, given by counts and ε, or for any mechanism, given by a `Mixture`. A report of randomized
response names category j with probability μ_j = q + d·θ_j, d = p − q. Per report, in nats,

    L(θ) = Σ_j φ_j log μ_j,    φ = c/N,

is concave on the simplex. Its derivative from θ towards category i is

    s_i = d·(φ_i/μ_i − Σ_j θ_j φ_j/μ_j),

and by Jensen's inequality L* − L(θ) ≤ log(1 + max_i s_i), an upper bound of the distance of θ from the maximum. All is
computed from e1 = expm1(ε) by d/μ_i = e1/(1 + e1·θ_i). For a mixture, Bᵀ(φ/μ) with μ = a + Bθ takes the place of d·φ/μ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Shaped

from rrjax.data.arguments import as_counts, as_distribution, as_scalar, count_summary
from rrjax.data.mixture import Mixture, NormalizedMixture, as_mixture
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import by_platform, with_sharding_of
from rrjax.numerics.sums import accurate_sum, corrected, expm1_epsilon, ratio, two_sum


@exportable
class Certificate(NamedTuple):
    """Upper bounds of the distance from the maximum of the likelihood, and violations of its conditions.

    Attributes:
        gap: Scalar, nats per report: at least max L − L(θ), the rounding of its own computation included.
        l1_bound: Scalar: at least ‖θ − θ*‖₁, with θ* the maximum likelihood estimate; infinite for θ off the simplex by
            more than rounding, and for mixtures, which have no such bound.
        stationarity: Scalar, nats per report: largest |s_i| over the support. Zero at the maximum.
        dual_infeasibility: Scalar, nats per report: largest s_i over all categories, or zero. Zero at the maximum.
        simplex_violation: Scalar: the larger one of |Σ θ − 1| and the size of the most negative entry.
    """

    gap: Float[Array, ""]
    l1_bound: Float[Array, ""]
    stationarity: Float[Array, ""]
    dual_infeasibility: Float[Array, ""]
    simplex_violation: Float[Array, ""]


def nll(theta: ArrayLike, counts: ArrayLike | Mixture, epsilon: ArrayLike | None = None) -> Float[Array, ""]:
    """Mean negative log-likelihood per report, −Σ_j φ_j log(q + d·θ_j).

    Args:
        theta: `[K]`, the distribution of the true values. Its sum is not checked.
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not with a mixture.

    Returns:
        Scalar, nats per report (for a mixture −Σ φ_u log(a_u + (Bθ)_u), without terms that are constant in θ, which may
        depend on ε); accurate to the dtype at any K (compensated sum over the support). Infinite if a reported category
        has probability zero; NaN if one has a negative probability, or for unusable counts or ε. Derivatives of every
        order wherever it is finite.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a mixture.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.nll([0.7, 0.2, 0.1, 0.0], [60, 20, 10, 10], epsilon=1.0):.3f}")
        1.195
    """
    if isinstance(counts, Mixture):
        return _nll_of(*as_mixture(counts, epsilon, theta))
    return _nll(*_checked(theta, counts, epsilon))


def score(theta: ArrayLike, counts: ArrayLike | Mixture, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Derivative of the log-likelihood per report from θ towards each category.

    s_i = d·(φ_i/μ_i − Σ_j θ_j φ_j/μ_j) is the derivative of L as mass moves from θ to category i. By the
    Karush–Kuhn–Tucker conditions θ maximizes the likelihood if and only if no s_i is positive; on the support of
    the maximum all are zero.

    Args:
        theta: `[K]`, the distribution of the true values.
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not with a mixture.

    Returns:
        `[K]`, nats per report; absolute error a few units in the last place of the largest d·φ_i/μ_i.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a mixture.

    Example:
        >>> import rrjax
        >>> counts = [50, 30, 10, 10]
        >>> [round(s, 3) for s in rrjax.score([0.7, 0.3, 0.0, 0.0], counts, 1.0).tolist()]
        [0.015, -0.035, -0.203, -0.203]
    """
    if isinstance(counts, Mixture):
        return _score_of(*as_mixture(counts, epsilon, theta))
    return _score(*_checked(theta, counts, epsilon))


def certificate(theta: ArrayLike, counts: ArrayLike | Mixture, epsilon: ArrayLike | None = None) -> Certificate:
    """Bounds the distance of an estimate from the largest log-likelihood, and measures violations of KKT conditions.

    Args:
        theta: `[K]`, the distribution of the true values, from any estimator.
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not with a mixture.

    Returns:
        A `Certificate` of scalars. `gap` is an upper bound in exact arithmetic: an allowance of sixteen machine
        epsilons (for a mixture sixty-four) of the largest d·φ_i/μ_i covers rounding. At the maximum that slope is at
        most one, so the gap there is below 2e-6 in float32 and 4e-15 in float64, and far below for a large K or a small
        ε. All NaN for unusable counts or ε, or if a reported category has a negative probability.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a mixture.

    Example:
        >>> import rrjax
        >>> counts = [60, 20, 10, 10]
        >>> bool(rrjax.certificate(rrjax.mle_star(counts, 1.0), counts, 1.0).gap < 2e-6)
        True

    References:
        The gap is the duality gap of EM for mixtures with known components (Lindsay, "The geometry of mixture
        likelihoods", 1983, §5). `l1_bound` = sqrt(2·gap)/d, with an allowance for θ off the simplex, follows from
        Pinsker's inequality between μ* and μ: at the maximum φ/μ* is largest, and at least one, on the support.
    """
    if isinstance(counts, Mixture):
        return certificate_of(*as_mixture(counts, epsilon, theta))
    return _certificate(*_checked(theta, counts, epsilon))


def _checked(theta, counts, epsilon):
    counts = as_counts(counts)
    theta = as_distribution(theta, counts.shape[0])
    dtype = theta.dtype
    if jnp.issubdtype(counts.dtype, jnp.floating):
        dtype = np.promote_types(dtype, counts.dtype)
    return with_sharding_of((theta.astype(dtype), counts, as_scalar(epsilon, dtype)))


@jax.jit
def shares(counts: Shaped[Array, " K"], epsilon: Float[Array, ""]) -> tuple[Float[Array, " K"], Bool[Array, ""]]:
    """The shares φ = c/N in the dtype of epsilon, and whether counts and epsilon are usable."""
    weights, total, usable = _weighed(counts, epsilon)
    return weights / total, usable


def _weighed(counts, epsilon):
    """The counts and their sum in the dtype of epsilon, and whether counts and epsilon are usable."""
    weights, seen = counts.astype(epsilon.dtype), count_summary(counts)
    # `as_counts_and_epsilon` sums integers exactly.
    exact = jnp.issubdtype(counts.dtype, jnp.integer)
    total = seen.total.astype(epsilon.dtype) if exact else accurate_sum(weights)
    return weights, jnp.where(total > 0, total, 1), seen.usable & (epsilon > 0)


@program
def _nll(theta, counts, epsilon):
    weights, total, usable = _weighed(counts, epsilon)

    def of_shares():
        return _sum_of_separate(terms_of_nll(theta, weights / total, epsilon))

    def of_counts():
        # Divided last, so that the sum need not be known before.
        return accurate_sum(terms_of_nll(theta, weights, epsilon)) / total

    mean = by_platform(cpu=of_shares, elsewhere=of_counts)
    return jnp.where(usable, jnp.log1p((counts.shape[0] - 1) * jnp.exp(-epsilon)) - mean, jnp.nan)


def _sum_of_separate(terms):
    """The accurate sum of terms whose logarithms are computed in a pass of their own, because they are used twice.

    Inside the compensated sum they would be scalar on a CPU, at six times the cost. A GPU would write and read it.
    """
    plain = jnp.sum(terms)
    return jnp.where(jnp.isfinite(plain), accurate_sum(terms), plain)


def terms_of_nll(
    theta: Float[Array, "*s"],
    phi: Float[Array, "*s"],
    epsilon: Float[Array, "*#s"],
    when: Callable[[Bool[Array, "*#s"], Callable[[], Array]], Array] = lambda needed, compute: compute(),
) -> Float[Array, "*s"]:
    """The terms φ_j·log(μ_j·(1 + (K − 1)·u)) with u = e^−ε, for shares φ of the reports.

    `when(needed, compute)` may omit what is needed nowhere.
    """
    # μ = (u + (1 − u)·θ) / (1 + (K − 1)·u); near u = 1 the logarithm is taken of the complement.
    u, one_minus_u = jnp.exp(-epsilon), -jnp.expm1(-epsilon)
    far = epsilon > 1
    share = jnp.where((phi > 0) | jnp.isnan(theta), theta, 1)

    def of_mixture():
        mixture = u + one_minus_u * share
        # If u underflows, its logarithm is still −ε.
        vanished = (mixture == 0) & (share == 0)
        return jnp.where(vanished, -epsilon, jnp.log(jnp.where(vanished, 1, mixture)))

    def of_complement():
        return jnp.log1p(-jnp.where(far, 0, one_minus_u * (1 - share)))

    return phi * jnp.where(far, when(far, of_mixture), when(~far, of_complement))


def slopes(theta: Float[Array, " K"], counts: Shaped[Array, " K"], epsilon: Float[Array, ""]) -> Float[Array, " K"]:
    """The slopes d·φ_i/μ_i, or all NaN for unusable counts or epsilon."""
    phi, usable = shares(counts, epsilon)
    e1 = expm1_epsilon(epsilon)
    return _slopes(theta, phi, e1, e1, usable)


def _slopes(theta, phi, e1, factor, usable):
    # A category without reports has no slope, for any probability.
    reported = phi > 0
    odds = jnp.where(reported, 1 + e1 * theta, 1)  # μ/q; NaN for a report of negative probability
    return jnp.where(usable & (odds >= 0), jnp.where(reported, ratio(phi * factor, odds), 0), jnp.nan)


@jax.jit
def _score(theta, counts, epsilon):
    return _centred(theta, slopes(theta, counts, epsilon))


def _centred(theta, slope):
    return slope - accurate_sum(theta * slope)


@jax.jit
def rounding_of_score(
    theta: Float[Array, " K"], counts: Shaped[Array, " K"], epsilon: Float[Array, ""]
) -> Float[Array, ""]:
    """An upper bound of the rounding error of the score.

    In halves of a machine epsilon, a slope carries 4 from φ, 3 from e1 and one from each of four operations; the
    weighted mean of the slopes carries one from a product and two from the sum more. With the last difference that is
    26 at most; 32 are allowed.
    """
    return 16 * jnp.finfo(theta.dtype).eps * jnp.max(slopes(theta, counts, epsilon))


class Readings(NamedTuple):
    """What a certificate reads, scalars: of θ, of slopes that may lack a factor, of the terms of `_lost`."""

    mean: Float[Array, ""]
    """Σ θ·slope."""
    total: Float[Array, ""]
    """Σ θ."""
    lost: Float[Array, ""]
    """The sum of the terms."""
    steepest: Float[Array, ""]
    """The largest slope; the next two are the largest and the least on the support."""
    highest: Float[Array, ""]
    lowest: Float[Array, ""]
    least: Float[Array, ""]
    """The least θ."""

    def times(self, factor: Float[Array, ""]) -> Readings:
        """With slopes times a positive factor."""
        slopes = {name: getattr(self, name) * factor for name in ("mean", "steepest", "highest", "lowest")}
        return self._replace(**slopes)


def _apart(theta, slope, lost):
    supported = theta > 0
    extremes = jnp.max(jnp.where(supported, slope, -jnp.inf)), jnp.min(jnp.where(supported, slope, jnp.inf))
    sums = accurate_sum(theta * slope), accurate_sum(theta), jnp.sum(lost)
    return Readings(*sums, jnp.max(slope), *extremes, jnp.min(theta))


@jax.custom_jvp
def _at_once(theta, slope, lost):
    """The same in one reduction: a GPU reads the arguments once, and computes what they are made of on the way."""
    # No `where`: with three of them XLA's GPU backend writes the slopes, and reads them again.
    cap = (jnp.sign(theta) - 0.5) * jnp.inf  # infinite on the support, −∞ elsewhere
    zeros = jnp.zeros_like(theta)
    sums = theta * slope, zeros, theta, zeros, lost
    most = slope, jnp.minimum(slope, cap), jnp.minimum(-slope, cap), -theta
    zero, bottom = jnp.zeros((), theta.dtype), jnp.asarray(-jnp.inf, theta.dtype)
    initial = (zero,) * len(sums) + (bottom,) * len(most)
    mean, missed, total, left, lost, steepest, highest, lowest, least = lax.reduce(
        (*sums, *most), initial, _sums_and_extremes, (0,)
    )
    return Readings(corrected(mean, missed), corrected(total, left), lost, steepest, highest, -lowest, -least)


def _sums_and_extremes(a, b):
    most = (jnp.maximum(x, y) for x, y in zip(a[5:], b[5:], strict=True))
    return *two_sum(a[:2], b[:2]), *two_sum(a[2:4], b[2:4]), a[4] + b[4], *most


@_at_once.defjvp
def _at_once_jvp(primals, tangents):
    return jax.jvp(_apart, primals, tangents)


@program
def _certificate(theta, counts, epsilon):
    e1 = expm1_epsilon(epsilon)
    weights, total, usable = _weighed(counts, epsilon)
    lost = _lost(theta, e1)

    def of_shares():
        return _apart(theta, _slopes(theta, weights / total, e1, e1, usable), lost)

    def of_counts():
        # Divided last, so that the sum need not be known before. A count times e1 may be beyond the largest float.
        whole = jnp.issubdtype(counts.dtype, jnp.integer)
        scale = jnp.where(whole & (e1 > 1), 2.0 ** (1 - jnp.finfo(theta.dtype).bits), 1).astype(theta.dtype)
        return _at_once(theta, _slopes(theta, weights, e1, e1 * scale, True), lost).times(1 / (total * scale))

    read = by_platform(cpu=of_shares, elsewhere=of_counts)
    judged = _judged(read, 16 * jnp.finfo(theta.dtype).eps * read.steepest)
    on_simplex = judged.simplex_violation <= jnp.sqrt(jnp.finfo(theta.dtype).eps)
    distance = jnp.where(on_simplex, _distance(read, judged.gap, e1, theta.shape[0]), judged.l1_bound)
    return jax.tree.map(lambda each: jnp.where(usable, each, jnp.nan), judged._replace(l1_bound=distance))


def _lost(theta, e1):
    """Σ of these, q·x/(1 − x) with x = n·(e^ε − 1) for negative entries −n, is what they add to the distance."""
    x = jnp.where(theta < 0, -e1 * theta, 0)
    return jnp.where(x < 1, ratio(x, (theta.shape[0] + e1) * (1 - x)), jnp.inf)


def _distance(read, gap, e1, num_categories):
    """An upper bound of ‖θ − θ*‖₁ for θ next to the simplex.

    For a sum 1 + s and negative entries −n_j, it is sqrt(2·(gap + d·|s| + Σ q·x_j/(1 − x_j)))/d + |s| with
    x_j = n_j·(e^ε − 1), in place of sqrt(2·gap)/d.
    """
    eps = jnp.finfo(gap.dtype).eps
    reach = 1 + ratio(jnp.full_like(e1, num_categories), e1)  # 1/d
    excess = jnp.abs(read.total - 1) + 2 * eps  # the rounding of the sum
    inside = gap + excess / reach + read.lost
    return (jnp.sqrt(2 * inside) * reach + excess) * (1 + 16 * eps)


def _judged(read, rounding):
    """The certificate of what was read, without `l1_bound`."""
    # Extremes of the score slope − mean, because rounding keeps an order. The score would be written and read.
    steepest = jnp.maximum(read.steepest - read.mean, 0)
    # Rounded up, because a logarithm that XLA vectorizes is off by up to a hundred units in the last place.
    gap = jnp.log1p(steepest + rounding) * (1 + 128 * jnp.finfo(rounding.dtype).eps)
    violation = jnp.maximum(jnp.abs(read.total - 1), -read.least)
    stationarity = jnp.maximum(jnp.maximum(read.highest - read.mean, read.mean - read.lowest), 0)
    judged = Certificate(gap, jnp.full_like(gap, jnp.inf), stationarity, steepest, violation)
    # XLA's maximum may drop NaN; see `largest`.
    return jax.tree.map(lambda each: jnp.where(jnp.isnan(read.mean), read.mean, each), judged)


@program
def _nll_of(theta, reports):
    return jnp.where(reports.usable & ~jnp.any(jnp.isnan(theta)), -reports.log_likelihood(theta), jnp.nan)


@jax.jit
def _score_of(theta, reports):
    return _centred(theta, reports.slopes(theta))


@program
def certificate_of(theta: Float[Array, " K"], reports: NormalizedMixture) -> Certificate:
    """The certificate for a mixture."""
    return certificate_of_slopes(theta, reports.slopes(theta))


def certificate_of_slopes(theta: Float[Array, " K"], slope: Float[Array, " K"]) -> Certificate:
    """The certificate of θ, from the slopes of a mixture at θ."""
    return _judged(_apart(theta, slope, jnp.zeros_like(theta)), rounding_of_slopes(slope))


def rounding_of_slopes(slope: Float[Array, " K"]) -> Float[Array, ""]:
    """An upper bound of the rounding error of the score of a mixture.

    In halves of a machine epsilon, the two products carry 4 and the logarithm of their number of cells to the base 2,
    44 at most, together; a slope 4 from φ, 3 from the lift and 5 from single operations, and the mean 3 more. With the
    last difference that is 127 at most; 128 are allowed.
    """
    return 64 * jnp.finfo(slope.dtype).eps * jnp.max(slope)
