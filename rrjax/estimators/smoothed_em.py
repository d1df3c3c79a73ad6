"""EM that is smoothed after every step (EMS): for values in order, where the likeliest distribution is spiky."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture, as_mixture
from rrjax.estimators.em import EMResult
from rrjax.estimators.likelihood import certificate_of
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum


def ems(mixture: Mixture, *, tol: float = 1e-3, max_iters: int = 10_000) -> EMResult:
    """Smoothed expectation maximization: a step of EM, then an average of each category with its two neighbours.

    The weights are (1, 2, 1)/4, and (2, 1)/3 at the ends. What it ends at is **not** the maximum of the likelihood, nor
    of any other known function: smoother than it, and with a gap that stays. It is here beside `ibu`, which is.

    Args:
        mixture: The likelihood; its categories are in order.
        tol: Stop where a step changes the log-likelihood of all reports by less, nats; the authors' code has 1e-3. In
            float32 the change of more than some ten thousand reports drowns in rounding.
        max_iters: Most steps.

    Returns:
        An `EMResult`: `gap` is the certificate of how much likelihood was given up, nats per report, and `converged`
        that the change was below `tol`. NaN for a mixture that makes no sense. No derivatives.

    Raises:
        ValueError: `tol` or `max_iters` not positive.

    Example:
        >>> import jax, rrjax
        >>> from rrjax.estimators.smoothed_em import ems
        >>> mechanism = rrjax.mechanisms.SquareWave(num_categories=32, epsilon=1.0)
        >>> values = jax.random.beta(jax.random.key(0), 2.0, 5.0, (5_000,))
        >>> mixture = mechanism.mixture(mechanism.randomize(jax.random.key(1), values))
        >>> likeliest, smooth = rrjax.ibu(mixture, accelerate="newton"), ems(mixture)
        >>> int((likeliest.theta > 1e-3).sum()), int((smooth.theta > 1e-3).sum())
        (12, 32)

    References:
        Silverman, Jones, Wilson and Nychka, "A smoothed EM approach to indirect estimation problems", JRSS B 52, 1990;
        Li et al., "Estimating numerical distributions under local differential privacy", 2020, §5.5.
    """
    if not tol > 0:
        raise ArgumentError(f"tol must be positive, got {tol}", argument="tol", value=tol)
    max_iters = as_integer(max_iters, "max_iters", 1)
    total = jnp.sum(jnp.asarray(mixture.weights))
    start, reports = lax.stop_gradient(as_mixture(mixture, None))
    return _solve(start, reports, total.astype(start.dtype), tol, max_iters)


def _averaged(theta: Float[Array, " K"]) -> Float[Array, " K"]:
    """Averages each category with its neighbours, by (1, 2, 1)/4, at the ends by (2, 1)/3; the sum stays one."""
    inner = (theta[:-2] + 2 * theta[1:-1] + theta[2:]) / 4
    first, last = (2 * theta[0] + theta[1]) / 3, (2 * theta[-1] + theta[-2]) / 3
    smooth = jnp.concatenate([first[None], inner, last[None]])
    return smooth / accurate_sum(smooth)


@jax.jit
def _solve(start, reports, total, tol, max_iters):
    def body(carry):
        theta, mixed, _, number = carry
        over = reports.shares / mixed
        step = theta * (accurate_sum(reports.base * over) + reports.lift.transpose(over))
        theta = _averaged(step)
        new = reports.probabilities(theta)
        # Of the terms' differences, which is more than the difference of two sums would say.
        change = accurate_sum(reports.shares * jnp.log1p((new - mixed) / mixed)) * total
        return theta, new, change, number + 1

    def unfinished(carry):
        _, _, change, number = carry
        return (jnp.abs(change) >= tol) & (number < max_iters)

    begun = start, reports.probabilities(start), jnp.asarray(jnp.inf, start.dtype), jnp.int32(0)
    theta, _, change, number = lax.while_loop(unfinished, body, aligned(begun, (reports, total)))
    theta = jnp.where(reports.usable, theta, jnp.nan)
    return EMResult(theta, certificate_of(theta, reports).gap, number, jnp.abs(change) < tol)
