"""Parametric families of distributions, fitted to a collection by the likelihood of its reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax import simulate
from rrjax.data.arguments import (
    as_scalar,
    as_survey,
    as_tolerance,
    check_key,
    check_positive,
    float_dtype,
    is_real,
    unscaled,
)
from rrjax.data.checks import as_integer, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture, as_mixture
from rrjax.estimators.em import reports_of
from rrjax.inference.likelihood_ratio import ratio
from rrjax.inference.monte_carlo import HypothesisTest, check_draws, compared, simulable
from rrjax.numerics.newton import ascend, factored, solved
from rrjax.numerics.pytrees import register
from rrjax.numerics.sums import accurate_sum, log_sum

_ENOUGH = 1e-3
"""Nats of all reports that a fit of a test may be missing: statistics of collections differ by tenths. float32 cannot
always show less of 10⁵ users, and would take a fit that is there for none."""


@register(
    data_fields=["parameters", "covariance", "log_likelihood", "shares", "gap", "num_iters", "converged", "num_users"]
)
@dataclasses.dataclass(frozen=True)
class FamilyFit:
    """What `fit_family` found. A pytree; under `vmap` every leaf has the batch in front.

    Attributes:
        parameters: As `start`.
        covariance: `[P, P]`, of the parameters in one row: the inverse of the observed information.
        log_likelihood: Scalar, nats of all reports; of a mixture without what θ does not change.
        shares: `[K]`, the distribution.
        gap: Scalar, nats of all reports that the maximum is above that: half of Newton's decrement.
        num_iters: Scalar.
        converged: Scalar: whether the gap came below the tolerance at a point with positive information.
        num_users: Scalar, N.
    """

    parameters: Any
    covariance: Float[Array, "P P"]
    log_likelihood: Float[Array, ""]
    shares: Float[Array, " K"]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]
    num_users: Float[Array, ""]

    @property
    def standard_errors(self) -> Any:
        """Of each parameter, as `start`."""

        def one(parameters, covariance):
            _, back = ravel_pytree(parameters)
            return back(jnp.sqrt(jnp.diagonal(covariance)))

        for _ in range(self.covariance.ndim - 2):  # a batch
            one = jax.vmap(one)
        return one(self.parameters, self.covariance)

    @property
    def aic(self) -> Float[Array, ""]:
        """Akaike's criterion: −2 times the log-likelihood, and two for each parameter."""
        return 2 * self.covariance.shape[-1] - 2 * self.log_likelihood


def fit_family(
    log_shares: Callable[[Any], Array],
    start: Any,
    counts: ArrayLike | Mixture,
    epsilon: ArrayLike | None = None,
    *,
    tol: float | None = None,
    max_iters: int = 100,
) -> FamilyFit:
    """Fits a family of distributions to randomized reports: the parameters of the largest likelihood.

    The reports are as likely as under θ = softmax(log_shares(parameters)), which has P parameters in place of K − 1
    shares: where the family is right its shares are closer than any estimate without it. `family_test` asks whether it
    is.

    Args:
        log_shares: Parameters → `[K]`, logarithms of shares up to a constant; a differentiable function of JAX. Under
            `jit` it is compiled once for each function object: make it once.
        start: Where to begin: a number, or a pytree of floating arrays.
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not beside a mixture.
        tol: Nats of all reports that may be missing. None is 1e-10 in float64, and 1e-6 in float32.
        max_iters: Most Newton steps. Static.

    Returns:
        `FamilyFit`. Its parameters have first derivatives in float counts, ε and the numbers of a mixture. Under
        tracing `converged` says whether there is a maximum, and unusable counts or ε give NaN.

    Raises:
        ValueError: Shapes or dtypes that do not fit, or (not under tracing) a likelihood without a maximum near the
            start.

    Example:
        >>> import jax, rrjax
        >>> from functools import partial
        >>> from rrjax.models import fit_family, zipf_logits
        >>> counts = rrjax.simulate.counts(jax.random.key(0), rrjax.simulate.zipf(100, 1.3), 20_000, 2.0)
        >>> found = fit_family(partial(zipf_logits, num_categories=100), 1.0, counts, 2.0)
        >>> print(f"{found.parameters:.3f} ± {found.standard_errors:.3f}")
        1.297 ± 0.041

    References:
        Louis, "Finding the observed information matrix when using the EM algorithm", 1982.
    """
    if isinstance(counts, Mixture):
        theta, reports = as_mixture(counts, epsilon)
        dtype, size = theta.dtype, counts.num_categories
        number = accurate_sum(jnp.asarray(counts.weights).astype(dtype))
    else:
        raw = counts
        counts, epsilon = as_survey(counts, epsilon)
        check_positive(epsilon)
        dtype, size = epsilon.dtype, counts.shape[0]
        reports = reports_of(counts, epsilon)
        number = accurate_sum(unscaled(raw, counts).astype(dtype))
    max_iters = as_integer(max_iters, "max_iters", 1)
    start, family = _as_start(log_shares, start, size, dtype)
    least = as_tolerance(tol, number)
    state = ascend(family, start, (reports, number), least, max_iters)
    point = jnp.where(reports.usable, state.point, jnp.nan)
    theta = family.shares(point)
    result = FamilyFit(
        parameters=family.back(point),
        covariance=_inverse(state.curvature),
        log_likelihood=number * reports.log_likelihood(theta),
        shares=theta,
        gap=state.gap,
        num_iters=state.num_iters,
        converged=state.converged,
        num_users=number,
    )
    if not isinstance(state.converged, Tracer) and not state.converged:
        raise ArgumentError(
            f"no maximum found in {int(state.num_iters)} steps (gap {float(state.gap):.3g} nats, at parameters "
            f"{result.parameters}): either the likelihood has none, because a parameter runs off or the reports say "
            "nothing of it, or the start is too far: give another start, or a larger max_iters",
            argument="start",
        )
    return result


def family_test(
    key: Array,
    log_shares: Callable[[Any], Array],
    start: Any,
    counts: ArrayLike,
    epsilon: ArrayLike,
    *,
    num_draws: int = 199,
    level: float = 0.05,
) -> HypothesisTest:
    """Tests whether the users are drawn from a distribution of a family: a parametric bootstrap.

    The statistic is twice the log-likelihood that MLE* has more than the family's best. It is compared with those of
    collections of as many users, drawn from that best one and fitted anew: χ² would not do, because MLE* lies at the
    boundary.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        log_shares: As in `fit_family`.
        start: As in `fit_family`.
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.
        num_draws: Simulated collections, each fitted. Static.
        level: The level that the p-value will be compared with. Static.

    Returns:
        `HypothesisTest`. All NaN for unusable counts or ε, and where there is no fit; a simulated collection without
        one counts as at least as far out.

    Raises:
        ValueError: As `fit_family`, or too few draws for the level.

    Example:
        >>> import jax, rrjax
        >>> from functools import partial
        >>> from rrjax.models import family_test, geometric_logits
        >>> counts = rrjax.simulate.counts(jax.random.key(0), rrjax.simulate.zipf(20, 1.3), 100_000, 2.0)
        >>> geometric = partial(geometric_logits, num_categories=20)
        >>> float(family_test(jax.random.key(1), geometric, 1.0, counts, 2.0).p_value) < 0.01
        True
    """
    check_key(key)
    check_draws(num_draws, level)
    counts, epsilon = as_survey(counts, epsilon, whole=True)
    start, family = _as_start(log_shares, start, counts.shape[0], epsilon.dtype)
    # Beside the rest, because `fit_family` has compiled it before.
    best, theta, statistic = _judged(family, start, counts, epsilon)
    return _tested(key, family, (best, theta, statistic), counts, epsilon, num_draws)


def _judged(family, start, counts, epsilon):
    """The best parameters, their shares, and twice the log-likelihood that MLE* has more."""
    reports = reports_of(counts, epsilon), accurate_sum(counts.astype(epsilon.dtype))
    state = ascend(family, start, reports, jnp.asarray(_ENOUGH, epsilon.dtype), 100)
    theta = family.shares(state.point)
    return state.point, theta, jnp.where(state.converged, ratio(counts, epsilon, theta), jnp.nan)


@partial(jax.jit, static_argnums=(1, 5))
def _tested(key, family, found, counts, epsilon, num_draws):
    best, theta, statistic = found
    number, usable = simulable(counts)

    def simulated(key):
        drawn = simulate.counts(key, theta, number, epsilon).astype(counts.dtype)
        return _judged(family, best, drawn, epsilon)[2]

    statistic = jnp.where(usable, statistic, jnp.nan)
    return compared(
        key, statistic, simulated, num_draws, 8 * counts.shape[0], "likelihood ratio, bootstrap of a family"
    )


def zipf_logits(exponent: ArrayLike, num_categories: int) -> Float[Array, " K"]:
    """Zipf's law: shares as rank^−s, of categories in order of rank, the most frequent one first.

    Args:
        exponent: Scalar, s.
        num_categories: K. Static.

    Returns:
        `[K]`, logarithms of shares up to a constant.

    Example:
        >>> import jax
        >>> from rrjax.models import zipf_logits
        >>> [round(share, 2) for share in jax.nn.softmax(zipf_logits(1.0, 4)).tolist()]
        [0.48, 0.24, 0.16, 0.12]
    """
    exponent, place = _parameter(exponent, num_categories, "exponent")
    return -exponent * jnp.log1p(place)


def geometric_logits(rate: ArrayLike, num_categories: int) -> Float[Array, " K"]:
    """A geometric law, cut off after K: each category has e^−rate times the share of the one before.

    Args:
        rate: Scalar.
        num_categories: K. Static.

    Returns:
        `[K]`, logarithms of shares up to a constant.

    Example:
        >>> import jax
        >>> from rrjax.models import geometric_logits
        >>> [round(share, 2) for share in jax.nn.softmax(geometric_logits(0.7, 4)).tolist()]
        [0.54, 0.27, 0.13, 0.07]
    """
    rate, place = _parameter(rate, num_categories, "rate")
    return -rate * place


def poisson_logits(log_mean: ArrayLike, num_categories: int) -> Float[Array, " K"]:
    """Poisson's law of the numbers 0 … K − 1, cut off there.

    Args:
        log_mean: Scalar, the logarithm of its mean before it is cut off.
        num_categories: K. Static.

    Returns:
        `[K]`, logarithms of shares up to a constant.

    Example:
        >>> import jax
        >>> from rrjax.models import poisson_logits
        >>> [round(share, 1) for share in jax.nn.softmax(poisson_logits(0.0, 4)).tolist()]
        [0.4, 0.4, 0.2, 0.1]
    """
    log_mean, place = _parameter(log_mean, num_categories, "log_mean")
    return log_mean * place - gammaln(place + 1)


def _parameter(value, num_categories, name):
    check_num_categories(num_categories)
    value = as_scalar(value, value.dtype if isinstance(value, jax.Array) else float_dtype(), name)
    return value, jnp.arange(num_categories, dtype=value.dtype)


@dataclasses.dataclass(frozen=True)
class _Family:
    """The likelihood of a family, its parameters a vector; equal where the functions are, so that it compiles once."""

    log_shares: Callable[[Any], Array]
    structure: Any
    # Made anew each time, and known by the structure.
    back: Callable[[Array], Any] = dataclasses.field(compare=False)

    def logits(self, point):
        return self.log_shares(self.back(point))

    def shares(self, point):
        logits = self.logits(point)
        return jnp.exp(logits - log_sum(logits))

    def value(self, point, given):
        """Nats of all reports."""
        reports, number = given
        return number * reports.log_likelihood(self.shares(point))

    def gain(self, new, old, given):
        """From the differences of the terms, of which rounding leaves more than of that of the sums."""
        reports, number = given
        new, old = self.shares(new), self.shares(old)
        return number * accurate_sum(reports.shares * jnp.log1p(reports.lift(new - old) / reports.probabilities(old)))


def _inverse(curvature):
    return solved(factored(curvature), jnp.eye(curvature.shape[0], dtype=curvature.dtype))


def _as_floating(leaf, dtype):
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if not is_real(array):
        raise ArgumentError(f"start must hold real numbers, got dtype {array.dtype}", argument="start")
    return jnp.asarray(array, dtype)


def _as_start(log_shares, start, size, dtype):
    """The start as a vector, and the family of vectors."""
    start = jax.tree.map(lambda leaf: _as_floating(leaf, dtype), start)
    flat, back = ravel_pytree(start)
    leaves, structure = jax.tree.flatten(start)
    family = _Family(log_shares, (structure, tuple(leaf.shape for leaf in leaves), dtype), back)
    if not flat.size:
        raise ArgumentError("start has no numbers: there is nothing to fit", argument="start")
    found = jax.eval_shape(family.logits, flat)
    if found.shape != (size,) or not jnp.issubdtype(found.dtype, jnp.floating):
        raise ArgumentError(
            f"log_shares must return [{size}] floats, one a category of the counts; got {found.dtype} of shape "
            f"{found.shape}",
            argument="log_shares",
        )
    return lax.stop_gradient(flat), family
