"""Standard errors of an estimate, expected errors before a collection, and the users or the ε that reach a target."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import (
    Estimand,
    as_counts_and_epsilon,
    as_distribution,
    as_scalar,
    check_estimand,
    float_dtype,
)
from rrjax.data.categories import as_integer, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import Rates
from rrjax.data.mixture import Mixture, as_mixture
from rrjax.estimators.closed_form import mle_star
from rrjax.estimators.em import ibu
from rrjax.estimators.maximum_likelihood import maximum, naming_law, slope_on_support
from rrjax.estimators.whole_reports import MAX_CATEGORIES, errors_of_whole_reports
from rrjax.mechanisms import Design, MechanismFactory, RandomizedResponse
from rrjax.numerics.products import matmul
from rrjax.numerics.solvers import bisected, geometric_mean, with_derivative
from rrjax.numerics.sums import expm1_epsilon

ROUNDING_OF_SHARES = 1e-6
"""Allowed distance of shares of reports from [0, 1], for rounding."""
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-9, 80.0
"""Range of the search for ε, nats."""
BISECTION_STEPS = 80


def covariance(
    theta: ArrayLike, num_users: ArrayLike, epsilon: ArrayLike, *, estimand: Estimand = "distribution"
) -> Float[Array, "K K"]:
    r"""Covariance of the unbiased estimate (`inv`) of k-ary randomized response, exactly.

    A user who holds v reports i with probability q + d·[i = v]. Summed over given users, with e1 = e^ε − 1,

        N·Cov_ii = (1 + (K−1)/e1 + (K−2)·θ_i) / e1,    N·Cov_ij = −(1/e1 + θ_i + θ_j) / e1,

    which is [q(1−q) + θ_i·d·(1−2q−d)]/d² on the diagonal. The histogram of users drawn from θ varies too; for the
    estimand "distribution" its covariance diag(θ) − θθᵀ is added. (The published formula divides by d instead of d²: at
    K = 500, ε = 0.5 and N = 10,000 its total is 0.077 instead of 59.4.)

    Args:
        theta: `[K]`, the estimand: the distribution that users are drawn from, or the shares that the users hold.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        estimand: "distribution" or "users": the true shares for the errors.

    Returns:
        `[K, K]`, squared probability; rows sum to zero. Derivatives in all arguments. All NaN if ε or N is not
        positive, or if theta implies shares of reports outside [0, 1].

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
    `RandomizedResponse.expected_squared_error` for every θ.

    Args:
        theta: `[K]`, as in `covariance`.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        estimand: "distribution" or "users": the true shares for the errors.
        mechanism: Class of the mechanism, or a function of K and ε. Static.

    Returns:
        `[K]`, squared probability. All NaN as in `covariance`.

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


def _checked(theta, num_users, epsilon, estimand, mechanism):
    check_estimand(estimand)
    theta = as_distribution(theta)
    num_users = as_scalar(num_users, theta.dtype, "num_users")
    # A traced ε, because an unusable ε gives NaN here.
    rates = mechanism(theta.shape[0], as_scalar(epsilon, theta.dtype)).rates.astype(theta.dtype)
    # An unbiased estimate may be negative; shares of reports may not.
    reported = rates.q + rates.d * theta
    inside = (jnp.min(reported) >= -ROUNDING_OF_SHARES) & (jnp.max(reported) <= 1 + ROUNDING_OF_SHARES)
    theta = jnp.where(inside, theta, jnp.nan)
    return theta, jnp.where(num_users > 0, num_users, jnp.nan), rates


def standard_errors(counts: ArrayLike | Mixture, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Standard errors of the maximum likelihood estimate (`mle_star`, `mle`) inside the simplex, by the delta method.

    On the m categories of the estimate's support, with f their shares of the S reports that name one of them, θ is
    affine in f. Its slope is 1 + m/e1 for randomized response, 1 + Σa/d for a survey design; the standard error is the
    slope times sqrt(f(1−f)/S). It takes the support as given. A category with an estimate of zero or near it has no
    normal error: for those use `intervals`. If a survey's estimate keeps all categories, its errors are also those of
    `inv`. For other mixtures (channels, groups of users, whole reports) the errors are those of the observed
    information on the support; of surveys they are the same.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Mixture`, with K up to 512 unless it is of a survey
            design.
        epsilon: Scalar, nats; not with a mixture.

    Returns:
        `[K]`, probability; NaN off the support of the estimate, and for a point mass. All NaN for unusable counts or ε.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an ε with a mixture, or a mixture of too many categories or
            with weights that are no integers.

    Example:
        >>> import rrjax
        >>> errors = rrjax.inference.standard_errors([5_200, 2_900, 1_000, 900], epsilon=2.0)
        >>> [f"{error:.4f}" for error in errors.tolist()]
        ['0.0076', '0.0072', '0.0048', 'nan']
        >>> mixture = rrjax.mechanisms.ForcedResponse(4 / 6, [1 / 2, 1 / 2]).mixture_of_counts([300, 700])
        >>> [f"{error:.4f}" for error in rrjax.inference.standard_errors(mixture).tolist()]
        ['0.0217', '0.0217']
        >>> groups = rrjax.surveys.groups.mixture([mixture, mixture])
        >>> [f"{error:.4f}" for error in rrjax.inference.standard_errors(groups).tolist()]
        ['0.0154', '0.0154']
    """
    if not isinstance(counts, Mixture):
        return _standard_errors(*as_counts_and_epsilon(counts, epsilon, whole=True))
    if epsilon is not None:
        message = f"a mixture has its own probabilities: leave epsilon out (got {epsilon})"
        raise ArgumentError(message, argument="epsilon")
    if not jnp.issubdtype(jnp.asarray(counts.weights).dtype, jnp.integer):
        raise ArgumentError(
            "standard errors depend on the number of reports, and weights that are floats do not have it: give counts "
            "as integers",
            argument="counts",
        )
    if (law := naming_law(counts)) is not None:
        return _survey_errors(*law)
    if counts.num_categories > MAX_CATEGORIES:
        raise ArgumentError(
            f"the information of these reports has K×K numbers, for K up to {MAX_CATEGORIES}; got K = "
            f"{counts.num_categories:,}: `intervals` of their tally have no such limit",
            argument="counts",
        )
    return _errors_by_information(counts)


@jax.jit
def _standard_errors(counts, epsilon):
    active = mle_star(counts, epsilon) > 0
    kept, total = _kept_reports(counts, active, epsilon.dtype)
    slope = 1 + jnp.sum(active, dtype=epsilon.dtype) / expm1_epsilon(epsilon)
    return _delta_method(active, kept / total, total, slope)


@jax.jit
def _survey_errors(counts, weights, sign):
    active = maximum(counts, weights, sign) > 0
    kept, total = _kept_reports(counts, active, weights.dtype)
    share = kept / jnp.where(total > 0, total, 1)
    return _delta_method(active & (total > 0), share, total, slope_on_support(weights, sign, active))


@jax.jit
def _errors_by_information(mixture):
    theta, reports = as_mixture(mixture, None, ibu(mixture, accelerate="newton").theta)
    # At the maximum either the share or the slope's distance from that of the support is zero, but for rounding.
    slope = reports.slopes(theta)
    active = theta > 1 - slope / matmul(theta, slope)
    held = jnp.where(active, theta, 0)
    errors = errors_of_whole_reports(held / jnp.sum(held), mixture)
    return jnp.where(active & (jnp.sum(active, dtype=jnp.int32) > 1), errors, jnp.nan)


def _kept_reports(counts, active, dtype):
    kept = jnp.where(active, counts, 0)
    return kept.astype(dtype), jnp.sum(kept).astype(dtype)


def _delta_method(active, share, total, slope):
    inner = active & (jnp.sum(active, dtype=jnp.int32) > 1)
    return jnp.where(inner, slope * jnp.sqrt(share * (1 - share) / total), jnp.nan)


def expected_rmse(
    num_categories: int,
    num_users: ArrayLike,
    epsilon: ArrayLike,
    *,
    estimand: Estimand = "distribution",
    mechanism: MechanismFactory = RandomizedResponse,
) -> Float[Array, ""]:
    """Expected root mean squared error of the unbiased estimate (`inv`) of a share, over the categories.

    For the users' own shares it is sqrt(V/(K·N)) with V = [p(1−p) + (K−1)·q(1−q)]/(p−q)², for randomized response
    (K−1)(K−2+2e^ε)/(e^ε−1)², for any values. For the distribution θ of the users, drawing them adds 1 − Σθ² to V, at
    most 1 − 1/K. That maximum is added here. If the rates differ by category (survey designs), V depends on θ, and the
    largest sum of both is taken. So no distribution has a larger error. The widths of `expected_width` are for the
    distribution, too. Estimators on the simplex have smaller errors, which depend on the truth
    (`rrjax.study` simulates them).

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        epsilon: Scalar, nats.
        estimand: "distribution" or "users": the true shares for the errors.
        mechanism: Class of the mechanism, or a function of K and ε. Static.

    Returns:
        Scalar, probability. NaN if N or ε is not positive.

    Raises:
        ValueError: K < 2, an argument that is not one number, or an unknown estimand.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.expected_rmse(100, 380_000, epsilon=1.0):.4f}")
        0.0096
        >>> both = [rrjax.inference.expected_rmse(3, 100, 8.0, estimand=each) for each in ("distribution", "users")]
        >>> [f"{each:.4f}" for each in both]  # at a large ε the error is mostly from drawing the users
        ['0.0472', '0.0021']
    """
    num_users = as_scalar(num_users, float_dtype(), "num_users")
    total = squared_error_of_one(num_categories, epsilon, mechanism, estimand)
    return jnp.sqrt(total / jnp.where(num_users > 0, num_users, jnp.nan) / num_categories)


def rounded(number: Float[Array, ""], whole: Float[Array, ""]) -> Float[Array, ""]:
    """The whole number `whole`, with the derivative of `number`."""
    return with_derivative(_unrounded_tangent, whole, number)


def _unrounded_tangent(whole, number, tangent):
    del whole, number
    return tangent


def users_for_error(
    num_categories: int,
    epsilon: ArrayLike,
    rmse: ArrayLike,
    *,
    estimand: Estimand = "distribution",
    mechanism: MechanismFactory = RandomizedResponse,
) -> Float[Array, ""]:
    """Smallest number of users at which `expected_rmse` is at most a target.

    Args:
        num_categories: K, at least 2. Static.
        epsilon: Scalar, nats.
        rmse: Scalar, the target, probability.
        estimand: As in `expected_rmse`.
        mechanism: As in `expected_rmse`.

    Returns:
        Scalar, a whole number to the dtype's digits. NaN if ε or the target is not positive. Derivatives are those of
        the number before it is rounded up.

    Raises:
        ValueError: As `expected_rmse`.

    Example:
        >>> import rrjax
        >>> int(rrjax.inference.users_for_error(100, epsilon=1.0, rmse=0.01))
        346933
    """
    rmse = as_scalar(rmse, float_dtype(), "rmse")
    rmse = jnp.where(rmse > 0, rmse, jnp.nan)
    total = squared_error_of_one(num_categories, epsilon, mechanism, estimand)
    number = total / num_categories / rmse**2
    return rounded(number, jnp.ceil(number))


def epsilon_for_error(
    num_categories: int,
    num_users: ArrayLike,
    rmse: ArrayLike,
    *,
    estimand: Estimand = "distribution",
    mechanism: MechanismFactory = RandomizedResponse,
) -> Float[Array, ""]:
    """Smallest ε at which `expected_rmse` is at most a target with a given number of users.

    For randomized response, with M = K·N·rmse² less the error of drawing the users, e^ε − 1 is the positive root of
    M·x² = (K−1)·(2x + K); for other mechanisms ε is found by bisection.

    Args:
        num_categories: K, at least 2. Static.
        num_users: Scalar, N.
        rmse: Scalar, the target, probability.
        estimand: As in `expected_rmse`.
        mechanism: As in `expected_rmse`.

    Returns:
        Scalar, nats; infinite if no ε (for other mechanisms: none up to 80) reaches it, with derivatives of NaN. NaN if
        N or the target is not positive.

    Raises:
        ValueError: As `expected_rmse`.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.inference.epsilon_for_error(100, 346_933, rmse=0.01):.4f}")
        1.0000
    """
    check_num_categories(num_categories)
    num_users = as_scalar(num_users, float_dtype(), "num_users")
    rmse = as_scalar(rmse, float_dtype(), "rmse")
    total = rmse**2 * num_users * num_categories
    left = total - drawing_error(num_categories, estimand)
    if mechanism is RandomizedResponse:
        load = (num_categories - 1) / jnp.where(left > 0, left, jnp.nan)
        epsilon = jnp.log1p(load + jnp.sqrt(load**2 + load * num_categories))
        epsilon = rounded(epsilon, jnp.where(left > 0, epsilon, jnp.inf))
    else:
        epsilon = _epsilon_of_error(total, num_categories, mechanism, estimand)
    return jnp.where((num_users > 0) & (rmse > 0), epsilon, jnp.nan)


def _epsilon_of_error(target, num_categories, mechanism, estimand):
    """The ε at which `squared_error_of_one` equals a target; infinite if it would be above 80."""

    def tangent_of(epsilon, target, tangent):
        del target
        epsilon = jnp.where(jnp.isfinite(epsilon), epsilon, jnp.nan)
        return tangent / jax.grad(squared_error_of_one, argnums=1)(num_categories, epsilon, mechanism, estimand)

    epsilon = _bisected_epsilon(lax.stop_gradient(target), num_categories, mechanism, estimand)
    return with_derivative(tangent_of, epsilon, target)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _bisected_epsilon(target, num_categories, mechanism, estimand):
    def misses(epsilon):
        return ~(squared_error_of_one(num_categories, epsilon, mechanism, estimand) <= target)

    low, high = (jnp.full_like(target, end) for end in (SMALLEST_EPSILON, LARGEST_EPSILON))
    crossing = bisected(misses, low, high, BISECTION_STEPS, geometric_mean)[1]
    return jnp.where(misses(high), jnp.inf, crossing)


def squared_error_of_one(
    num_categories: int, epsilon: ArrayLike, mechanism: MechanismFactory, estimand: Estimand = "users"
) -> Float[Array, ""]:
    """Largest expected squared error of `inv` of any shares θ, summed over the categories, times the number of users.

    If rates differ by category, the error is Σ_j (b_j + w_j·θ_j), with the variances b_j of an empty category and
    b_j + w_j of one that all users have. It is largest if all have one. Drawing the users adds 1 − Σθ_j²; then the
    largest sum is at the projection of w/2 onto the simplex.
    """
    drawn = drawing_error(num_categories, estimand)
    rates = _planned(num_categories, epsilon, mechanism)
    if not rates.truth.ndim:
        return rates.total_variance(num_categories) + drawn
    empty = rates.variance(0.0)
    more = rates.variance(1.0) - empty
    if estimand == "users":
        return jnp.sum(empty) + jnp.max(more)
    worst = lax.stop_gradient(_projected(more / 2))  # at a maximum its derivative has no effect
    return jnp.sum(rates.variance(worst)) + 1 - jnp.sum(worst**2)


def _projected(values):
    """The point of the simplex that is nearest to a vector `[K]`."""
    falling = jnp.sort(values, descending=True)
    levels = (jnp.cumsum(falling) - 1) / jnp.arange(1, values.shape[0] + 1, dtype=values.dtype)
    return jnp.maximum(values - jnp.max(levels), 0)


def rates_of(
    num_categories: int,
    epsilon: ArrayLike,
    mechanism: MechanismFactory,
    share: ArrayLike = 0.0,
    category: int | None = None,
) -> Rates:
    """The rates of a planned mechanism, NaN at an unusable ε; of `category`, or of that with most noise at a share."""
    rates = _planned(num_categories, epsilon, mechanism)
    if category is not None:
        as_integer(category, "category", 0, num_categories - 1)
    if not rates.truth.ndim:
        return rates
    place = jnp.argmax(rates.variance(share)) if category is None else category
    return Rates(*(weight[place] for weight in rates))


def noisiest(mechanism: Design, share: float) -> int | None:
    """The category with the largest variance at a share; None if all are alike."""
    rates = mechanism.rates.astype(float_dtype())
    variances = rates.variance(share)
    return int(jnp.argmax(variances)) if rates.truth.ndim and jnp.ptp(variances) > 1e-6 * jnp.max(variances) else None


def _planned(num_categories, epsilon, mechanism):
    # As a scalar of JAX, because a mechanism refuses an unusable number of Python.
    return mechanism(num_categories, as_scalar(epsilon, float_dtype())).rates


def drawing_error(num_categories: int, estimand: Estimand) -> float:
    """The largest expected squared error, times N, that drawing the users adds: 1 − Σθ² of equal shares, or zero."""
    check_estimand(estimand)
    return 1 - 1 / num_categories if estimand == "distribution" else 0.0
