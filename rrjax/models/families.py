"""Parametric families of distributions, fitted to a collection by the likelihood of its reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax import simulate
from rrjax.data.arguments import (
    as_array,
    as_counts_and_epsilon,
    as_scalar,
    check_key,
    check_positive,
    float_dtype,
    is_real,
    largest_gap,
    unscaled,
)
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture, as_mixture
from rrjax.estimators.em import reports_of
from rrjax.inference.distribution_tests import likelihood_ratio
from rrjax.inference.monte_carlo import HypothesisTest, Null, check_draws, monte_carlo_test, simulable
from rrjax.models.results import require
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.solvers import ascend, cholesky_factor, cholesky_solve
from rrjax.numerics.sums import accurate_sum, log_sum

_TEST_TOLERANCE = 1e-3
"""Largest gap of a fit in a test, nats of all reports: statistics of collections differ by tenths. With 10⁵ users
float32 cannot always resolve a smaller gap, and no fit would converge."""


@pytree()
class FamilyFit:
    """A fit by `fit_family`. A pytree; under `vmap` every leaf has the batch in front.

    Attributes:
        parameters: The parameters, in the structure of `start`.
        covariance: `[P, P]`, of the parameters in one vector: the inverse of the observed information.
        log_likelihood: Scalar, nats of all reports; for a mixture without the terms that do not depend on θ.
        shares: `[K]`, the distribution.
        gap: Scalar, the distance from the maximum, nats of all reports: half of Newton's decrement.
        num_iters: Scalar.
        converged: Scalar: whether the gap is below the tolerance, and the information positive.
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
        """Standard errors of the parameters, in the structure of `start`."""

        def one(parameters, covariance):
            _, back = ravel_pytree(parameters)
            return back(jnp.sqrt(jnp.diagonal(covariance)))

        for _ in range(self.covariance.ndim - 2):  # a batch
            one = jax.vmap(one)
        return one(self.parameters, self.covariance)

    @property
    def aic(self) -> Float[Array, ""]:
        """Akaike's criterion: −2 times the log-likelihood, plus two for each parameter."""
        return 2 * self.covariance.shape[-1] - 2 * self.log_likelihood


def fit_family(
    log_shares: Callable[[Any], Array],
    start: Any,
    counts: ArrayLike | Mixture,
    epsilon: ArrayLike | None = None,
) -> FamilyFit:
    """Fits a family of distributions to randomized reports by maximum likelihood.

    The distribution is θ = softmax(log_shares(parameters)), with P parameters in place of K − 1 shares. If the family
    is right, its shares are closer to the truth than estimates without it. `family_test` tests whether it is right.

    Args:
        log_shares: Parameters → `[K]`, logarithms of shares up to a constant; a function of JAX, differentiable. It is
            compiled once for each function object, so define it once.
        start: Parameters to start from: a number, or a pytree of floating arrays.
        counts: `[K]`, integers or floats, the reports per category; or a `Mixture`.
        epsilon: Scalar, nats; not with a mixture.

    Returns:
        `FamilyFit`, at most 1e-10 nats of all reports below the maximum (in float32 1e-6, or 1e-12 for each report).
        Its parameters have first derivatives in float counts, ε and the numbers of a mixture. Under tracing `converged`
        is whether there is a maximum, and unusable counts or ε give NaN.

    Raises:
        ValueError: Shapes or dtypes that do not fit, or (not under tracing) a likelihood without a maximum near the
            start.

    Example:
        >>> import jax, rrjax
        >>> from functools import partial
        >>> from rrjax.models import fit_family, zipf_logits
        >>> counts = rrjax.simulate.counts(jax.random.key(0), rrjax.simulate.zipf(100, 1.3), 20_000, 2.0)
        >>> zipf = fit_family(partial(zipf_logits, num_categories=100), 1.0, counts, 2.0)
        >>> print(f"{zipf.parameters:.3f} ± {zipf.standard_errors:.3f}")
        1.323 ± 0.042

    References:
        Louis, "Finding the observed information matrix when using the EM algorithm", 1982.
    """
    if isinstance(counts, Mixture):
        theta, reports = as_mixture(counts, epsilon)
        dtype, size = theta.dtype, counts.num_categories
        number = accurate_sum(jnp.asarray(counts.weights).astype(dtype))
    else:
        raw = counts
        counts, epsilon = as_counts_and_epsilon(counts, epsilon)
        check_positive(epsilon)
        dtype, size = epsilon.dtype, counts.shape[0]
        reports = reports_of(counts, epsilon)
        number = accurate_sum(unscaled(raw, counts).astype(dtype))
    start, family = _as_start(log_shares, start, size, dtype)
    state = ascend(family, start, (reports, number), largest_gap(number), 100)
    point = jnp.where(reports.usable, state.point, jnp.nan)
    theta = family.shares(point)
    result = FamilyFit(
        parameters=family.back(point),
        covariance=cholesky_solve(cholesky_factor(state.curvature), jnp.eye(point.size, dtype=dtype)),
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
            f"{result.parameters}). The likelihood has none if a parameter diverges or the reports do not depend on "
            "it; or the start is too far: give another start",
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

    The statistic is twice the log-likelihood of MLE* less that of the family's best fit. It is compared with the
    statistics of simulated collections of as many users, drawn from the best fit and fitted again. The χ² law does not
    hold, because MLE* lies at the boundary.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        log_shares: As in `fit_family`.
        start: As in `fit_family`.
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.
        num_draws: Number of simulated collections, each fitted. Static.
        level: The level of the test, to check that the draws are enough for it. Static.

    Returns:
        `HypothesisTest`. All NaN for unusable counts or ε, and if there is no fit. A simulated collection without a fit
        counts as at least as extreme.

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
    counts, epsilon = as_counts_and_epsilon(counts, epsilon, whole=True)
    start, family = _as_start(log_shares, start, counts.shape[0], epsilon.dtype)
    # Outside of the jitted rest, because `fit_family` has compiled it before.
    observed = _likelihood_ratio(family, start, counts, epsilon)
    return _bootstrapped(key, family, observed, counts, epsilon, num_draws)


def _likelihood_ratio(family, start, counts, epsilon):
    """The best parameters, their shares, and the statistic of the test."""
    reports = reports_of(counts, epsilon), accurate_sum(counts.astype(epsilon.dtype))
    state = ascend(family, start, reports, jnp.asarray(_TEST_TOLERANCE, epsilon.dtype), 100)
    theta = family.shares(state.point)
    return state.point, theta, jnp.where(state.converged, likelihood_ratio(counts, epsilon, theta), jnp.nan)


@partial(jax.jit, static_argnums=(1, 5))
def _bootstrapped(key, family, observed, counts, epsilon, num_draws):
    best, theta, statistic = observed
    number, usable = simulable(counts)

    def simulated(key):
        drawn = simulate.counts(key, theta, number, epsilon).astype(counts.dtype)
        return _likelihood_ratio(family, best, drawn, epsilon)[2]

    statistic = jnp.where(usable, statistic, jnp.nan)
    null = Null(simulated, num_draws, 8 * counts.shape[0], "likelihood ratio, bootstrap of a family")
    return monte_carlo_test(key, statistic, null)


def zipf_logits(exponent: ArrayLike, num_categories: int) -> Float[Array, " K"]:
    """Log shares of Zipf's law: shares proportional to rank^−s, for categories ordered from the most frequent.

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
    """Log shares of a geometric law, truncated to K categories: each has e^−rate times the share of the one before.

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
    """Log shares of Poisson's law, truncated to the numbers 0 … K − 1.

    Args:
        log_mean: Scalar, the logarithm of the mean before truncation.
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
    """The log-likelihood of a family as a function of a vector; equal for equal functions, to compile once."""

    log_shares: Callable[[Any], Array]
    structure: Any
    # A new function each time, determined by the structure.
    back: Callable[[Array], Any] = dataclasses.field(compare=False)

    def shares(self, point):
        logits = self.log_shares(self.back(point))
        return jnp.exp(logits - log_sum(logits))

    def value(self, point, given):
        """Nats of all reports."""
        reports, number = given
        return number * reports.log_likelihood(self.shares(point))

    def gain(self, new, old, given):
        """The gain as a sum of differences of terms: the difference of two sums loses digits."""
        reports, number = given
        new, old = self.shares(new), self.shares(old)
        return number * accurate_sum(reports.shares * jnp.log1p(reports.lift(new - old) / reports.probabilities(old)))


def _as_start(log_shares, start, size, dtype):
    """The start as a vector, and the family as a function of vectors."""

    def as_floating(leaf):
        array = as_array(leaf, "start")
        require(is_real(array), "start", "real numbers", array)
        return jnp.asarray(array, dtype)

    start = jax.tree.map(as_floating, start)
    flat, back = ravel_pytree(start)
    leaves, structure = jax.tree.flatten(start)
    family = _Family(log_shares, (structure, tuple(leaf.shape for leaf in leaves), dtype), back)
    if not flat.size:
        raise ArgumentError("start has no numbers: there is nothing to fit", argument="start")
    logits = jax.eval_shape(log_shares, start)
    is_right = logits.shape == (size,) and jnp.issubdtype(logits.dtype, jnp.floating)
    require(is_right, "log_shares", f"a function that returns {size} floats, one for each category", logits)
    return lax.stop_gradient(flat), family
