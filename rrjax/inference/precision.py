"""Covariances and standard errors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import Estimand, as_distribution, as_scalar, as_survey, check_estimand
from rrjax.estimators.closed_form import mle_star
from rrjax.mechanisms import MechanismFactory, RandomizedResponse
from rrjax.numerics.sums import expm1_epsilon

_ROUNDING = 1e-6
"""By how much rounding may take the share of reports off [0, 1]."""


def covariance(
    theta: ArrayLike, num_users: ArrayLike, epsilon: ArrayLike, *, estimand: Estimand = "distribution"
) -> Float[Array, "K K"]:
    r"""Covariance of the unbiased estimate (`inv`) of k-ary randomized response, exactly.

    A user who holds v reports i with probability q + d·[i = v]. Summed over given users, with e1 = e^ε − 1,

        N·Cov_ii = (1 + (K−1)/e1 + (K−2)·θ_i) / e1,    N·Cov_ij = −(1/e1 + θ_i + θ_j) / e1,

    which is [q(1−q) + θ_i·d·(1−2q−d)]/d² on the diagonal. About the distribution θ that users are drawn from, their own
    histogram varies too, by diag(θ) − θθᵀ. (The published formula divides by d where d² is meant: at K = 500, ε = 0.5
    and N = 10,000 its total is 0.077 instead of 59.4.)

    Args:
        theta: `[K]`, the estimand: the distribution that users are drawn from, or the shares that the users hold.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        estimand: "distribution" or "users": what the error is from.

    Returns:
        `[K, K]`, squared probability; rows sum to zero. Derivatives in all arguments. All NaN where ε or N is not
        positive, or theta one that no reports have: shares of reports outside [0, 1].

    Raises:
        ValueError: A wrong shape, or an unknown estimand.

    Example:
        >>> import rrjax
        >>> matrix = rrjax.inference.covariance([0.7, 0.2, 0.1], 10_000, epsilon=1.0)
        >>> [f"{value:.2e}" for value in matrix[0].tolist()]
        ['1.88e-04', '-1.00e-04', '-8.74e-05']

    References:
        Pinzón et al., arXiv:2601.08603, Eq. 8, corrected.
    """
    theta, num_users, rates = _checked(theta, num_users, epsilon, estimand, RandomizedResponse)
    e1 = rates.truth
    off = -(1 / e1 + theta[:, None] + theta[None, :]) / e1
    fixed = jnp.where(jnp.eye(theta.shape[0], dtype=bool), jnp.diag(rates.variance(theta)), off)
    drawn = jnp.diag(theta) - jnp.outer(theta, theta) if estimand == "distribution" else jnp.zeros_like(off)
    return (fixed + drawn) / num_users


def variances(
    theta: ArrayLike,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    *,
    estimand: Estimand = "distribution",
    mechanism: MechanismFactory = RandomizedResponse,
) -> Float[Array, " K"]:
    """Variances of the unbiased estimate (`inv`), exactly: the diagonal of `covariance`, in O(K), of any mechanism.

    N times [q(1−q) + θ_i·(p(1−p) − q(1−q))]/d² for given users; for the estimand "users" it sums to
    `RandomizedResponse.expected_squared_error`, whatever θ.

    Args:
        theta: `[K]`.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        estimand: "distribution" or "users": what the error is from.
        mechanism: Its class, or a function of K and ε. Static.

    Returns:
        `[K]`, squared probability. All NaN where ε or N is not positive, or theta one that no reports have.

    Raises:
        ValueError: A wrong shape, or an unknown estimand.

    Example:
        >>> import rrjax
        >>> error = rrjax.inference.variances([0.7, 0.2, 0.1], 10_000, epsilon=1.0, estimand="users").sum()
        >>> bool(abs(error / rrjax.RandomizedResponse(3, 1.0).expected_squared_error(10_000) - 1) < 1e-6)
        True
    """
    theta, num_users, rates = _checked(theta, num_users, epsilon, estimand, mechanism)
    drawn = theta * (1 - theta) if estimand == "distribution" else jnp.zeros_like(theta)
    return (rates.variance(theta) + drawn) / num_users


def standard_errors(counts: ArrayLike, epsilon: ArrayLike) -> Float[Array, " K"]:
    """Standard errors of `mle_star` inside the simplex, by the delta method.

    On the m categories of its support, with f their shares of the S reports that name one of them,
    θ = f + (m·f − 1)/e1, so the error is (1 + m/e1)·sqrt(f(1−f)/S). It takes the support as given. A category that the
    estimate leaves out, or barely keeps, has no normal error: for those use `intervals`.

    Args:
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.

    Returns:
        `[K]`, probability; NaN off the support of the estimate, and for a point mass. All NaN for unusable counts or ε.

    Raises:
        ValueError: A wrong shape or dtype, or K < 2.

    Example:
        >>> import rrjax
        >>> errors = rrjax.inference.standard_errors([5_200, 2_900, 1_000, 900], epsilon=2.0)
        >>> [f"{error:.4f}" for error in errors.tolist()]
        ['0.0076', '0.0072', '0.0048', 'nan']
    """
    return _standard_errors(*as_survey(counts, epsilon, whole=True))


@jax.jit
def _standard_errors(counts, epsilon):
    active = mle_star(counts, epsilon) > 0
    kept = jnp.where(active, counts, 0)
    total = jnp.sum(kept).astype(epsilon.dtype)
    share = kept.astype(epsilon.dtype) / total
    scale = 1 + jnp.sum(active, dtype=epsilon.dtype) / expm1_epsilon(epsilon)
    inner = active & (jnp.sum(active, dtype=jnp.int32) > 1)
    return jnp.where(inner, scale * jnp.sqrt(share * (1 - share) / total), jnp.nan)


def _checked(theta, num_users, epsilon, estimand, mechanism):
    check_estimand(estimand)
    theta = as_distribution(theta)
    num_users = as_scalar(num_users, theta.dtype, "num_users")
    # A traced ε, because one that makes no sense gives NaN here.
    rates = mechanism(theta.shape[0], as_scalar(epsilon, theta.dtype)).rates.astype(theta.dtype)
    # An unbiased estimate may be negative, and its variance is not: reports have shares of zero and more.
    reported = rates.q + rates.d * theta
    inside = (jnp.min(reported) >= -_ROUNDING) & (jnp.max(reported) <= 1 + _ROUNDING)
    theta = jnp.where(inside, theta, jnp.nan)
    return theta, jnp.where(num_users > 0, num_users, jnp.nan), rates
