"""The information of whole reports, for estimators of single categories.

A report of a mechanism with supports says more than which categories it supports: they come together in it. With g the
gradient of the log-likelihood of whole reports and H its negative Hessian, both at an estimate θ,

    x = θ + C·g,    C = H⁻¹ − H⁻¹ 1 1ᵀ H⁻¹ / (1ᵀ H⁻¹ 1)

is one step of Newton's method in the plane Σ θ = 1, and C its covariance: as efficient as the maximum, but a sum of
contributions of the reports, so its errors are nearly normal, with a share of zero too. The tally of r·N users of the
same mechanism has the same variances if r is the variance of the shares by support counts over that of x.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Scaling
from rrjax.data.mixture import Mixture, NormalizedMixture, as_mixture
from rrjax.data.tally import SupportData
from rrjax.estimators.em import curvature_of, numbers_of
from rrjax.numerics.products import matmul
from rrjax.numerics.solvers import cholesky_factor, cholesky_solve, regularized

MAX_CATEGORIES = 512
"""The largest K for the information of whole reports, K×K numbers in O(U·K²) for U different reports."""


def check_whole(data: SupportData, mixture: Mixture) -> NormalizedMixture:
    """The whole reports of a tally, in their final dtypes; `ValueError` if they cannot be those of the tally."""
    size = data.support.shape[0]
    if mixture.num_categories != size:
        raise ArgumentError(
            f"the mixture has {mixture.num_categories} categories and the tally {size}: they must be of the same "
            "reports",
            argument="mixture",
        )
    if size > MAX_CATEGORIES:
        raise ArgumentError(
            f"the information of whole reports has K×K numbers, for K up to {MAX_CATEGORIES}; got K = {size:,}: leave "
            "the mixture out",
            argument="mixture",
        )
    if not isinstance(mixture.weights, Tracer) and not isinstance(data.support, Tracer):
        ours, theirs = float(data.num_users), float(jnp.sum(jnp.asarray(mixture.weights)))
        if bool(data.usable) and ours != theirs:
            raise ArgumentError(
                f"the mixture has {theirs:,.0f} reports and the tally {ours:,.0f}: they must be of the same reports",
                argument="mixture",
            )
    return as_mixture(mixture, None)[1]


@jax.jit
def equivalent(data: SupportData, theta: Float[Array, " K"], reports: NormalizedMixture) -> SupportData:
    """The evidence of whole reports on each category, as support counts of more users, by one step from `theta`.

    `theta` is positive, and near the truth: an estimate from the support counts. Where reports are too few for their
    information, or do not say more, it is the evidence of the support counts.
    """
    if isinstance(reports.lift, Scaling):  # a report names one category: its count is all
        return data
    number, rates = data.num_users, data.rates
    x, spread = _step(theta, reports)
    spread = spread / number
    drawn = theta * (1 - theta)
    gain = jnp.mean(rates.variance(theta) + drawn) / (number * jnp.mean(spread))
    better = jnp.isfinite(gain) & jnp.all(jnp.isfinite(x)) & (gain > 1) & reports.usable
    users = jnp.where(better, number * gain, number)
    part = jnp.where(better, jnp.clip(rates.d * x, -rates.q, rates.not_q), data.excess / number)
    support = users * (rates.q + part)
    return SupportData(support, users - support, users * part, rates, data.usable)


@jax.jit
def errors_of_whole_reports(theta: Float[Array, " K"], mixture: Mixture) -> Float[Array, " K"]:
    """Standard errors of shares estimated from whole reports, from their information at θ, near the truth.

    Shares of zero are taken as given, with an error of zero.
    """
    number = jnp.sum(jnp.asarray(mixture.weights)).astype(theta.dtype)
    return jnp.sqrt(_step(theta, as_mixture(mixture, None)[1])[1] / number)


def _step(theta: Float[Array, " K"], reports: NormalizedMixture) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """One step of Newton's method from θ, and N times its variances.

    In relative changes, as in `em`: their system keeps its scale where shares are tiny. Zeros stay.
    """
    slope = reports.slopes(theta)
    curvature = curvature_of(theta, reports, numbers_of(reports.lift, theta.dtype))
    factor = cholesky_factor(regularized(curvature, jnp.where(theta > 0, 0, 1).astype(theta.dtype)))
    change, inverse = theta * (slope - matmul(theta, slope)), jnp.eye(theta.shape[0], dtype=theta.dtype)
    solution = cholesky_solve(factor, jnp.concatenate([change[:, None], theta[:, None], inverse], axis=1))
    change, answer, inverse = solution[:, 0], solution[:, 1], solution[:, 2:]
    total = matmul(theta, answer)
    change = change - answer * (matmul(theta, change) / total)
    return theta * (1 + change), theta**2 * (jnp.diagonal(inverse) - answer * (answer / total))
