"""Multinomial logistic regression of the values that users hold on covariates, from their randomized reports."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.arguments import as_scalar
from rrjax.arithmetic import accurate_sum
from rrjax.interior import factored, solved
from rrjax.models import solvers
from rrjax.models.bias import bias
from rrjax.models.data import as_clusters, as_data
from rrjax.models.hidden import blocks_of
from rrjax.models.logistic import Data, look, maximum, posteriors
from rrjax.models.loss import MechanismOrEpsilon
from rrjax.pytrees import register

Covariance: TypeAlias = Literal["observed", "sandwich", "none"]
Solver: TypeAlias = Literal["newton", "l-bfgs"]

_LOST = 20.0
"""Standard error, on standardized covariates, beyond which a coefficient is not estimated but runs off."""


@register(
    data_fields=[
        "coefficients", "covariance", "log_likelihood", "gap", "num_iters", "converged", "num_users", "scales"
    ],
    meta_fields=["intercept"],
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class Regression:
    """What `fit` found. A pytree; under `vmap` every leaf has the batch in front.

    Attributes:
        coefficients: `[D, K − 1]`, log-odds of categories 1 … K − 1 to category 0 per unit of each covariate; the first
            row is the intercept, if there is one.
        covariance: `[D·(K − 1), D·(K − 1)]`, of `coefficients.ravel()`; None where it was not wanted.
        log_likelihood: Scalar, nats, of all reports, each by its weight.
        gap: Scalar, nats of all reports that the maximum is above that: half of Newton's decrement. Without covariance
            the solver's own estimate; NaN where it has none.
        num_iters: Scalar.
        converged: Scalar: whether the gap is below the tolerance, at a point with positive information where there is a
            covariance.
        num_users: Scalar, the sum of the weights.
        scales: `[D]`, the standard deviations of the covariates; one for the intercept.
        intercept: Whether there is one. Static.
    """

    coefficients: Float[Array, "D k"]
    covariance: Float[Array, "P P"] | None
    log_likelihood: Float[Array, ""]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]
    num_users: Float[Array, ""]
    scales: Float[Array, " D"]
    intercept: bool

    @property
    def standard_errors(self) -> Float[Array, "D k"]:
        """Of each coefficient, `[D, K − 1]`.

        Raises:
            ValueError: The regression was fitted without covariance.
        """
        return jnp.sqrt(jnp.diagonal(self.known_covariance)).reshape(self.coefficients.shape)

    @property
    def known_covariance(self) -> Float[Array, "P P"]:
        """The covariance.

        Raises:
            ValueError: The regression was fitted without.
        """
        if self.covariance is None:
            raise ValueError('the regression was fitted with covariance="none": fit it with another one')
        return self.covariance

    @property
    def num_parameters(self) -> int:
        """D·(K − 1)."""
        return self.coefficients.size

    @property
    def deviance(self) -> Float[Array, ""]:
        """−2 times the log-likelihood, nats. That of a model within this one is larger by what a test compares."""
        return -2 * self.log_likelihood

    @property
    def aic(self) -> Float[Array, ""]:
        """Akaike's criterion: the deviance, and two for each coefficient."""
        return self.deviance + 2 * self.num_parameters


def fit(
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    num_categories: int | None = None,
    weights: ArrayLike | None = None,
    intercept: bool = True,
    clusters: ArrayLike | None = None,
    covariance: Covariance | None = None,
    ridge: ArrayLike = 0.0,
    reduce_bias: bool = False,
    solver: Solver = "newton",
    tol: float | None = None,
    max_iters: int = 200,
) -> Regression:
    """Fits a multinomial logistic regression of the users' values on covariates, by the likelihood of their reports.

    Args:
        covariates: `[N, D]`, floats or integers; a vector `[N]` is one covariate. In any units: they are standardized
            on the way.
        reports: Of the mechanism, N of them.
        mechanism_or_epsilon: As in `rr_loss`: a mechanism, or ε of k-ary randomized response, for all or `[N]`.
        num_categories: K. Wanted where ε is given; a mechanism has its own.
        weights: `[N]`, not negative: how many users each row stands for, or survey weights (then with
            `covariance="sandwich"`). None is one for each.
        intercept: Whether to put a column of ones in front.
        clusters: `[N]`, integers: users of one cluster may depend on each other; the covariance is that of Liang and
            Zeger, times c/(c − 1) for c clusters.
        covariance: "observed", the inverse of the observed information, or "sandwich", which holds where the model is
            wrong too; "none" spares making a matrix of (D·(K − 1))² numbers, and all that needs it. None is "observed".
        ridge: Scalar, precision of a normal prior with mean zero on the standardized coefficients, the intercept among
            them: for data whose likelihood has no maximum.
        reduce_bias: Whether to take from the coefficients what the likeliest ones are expected to be off by, to the
            order of 1/N: they lie too far out, by some per cent of their standard errors where reports are few or
            noisy. The log-likelihood stays that of the maximum. Needs a covariance.
        solver: "newton", or "l-bfgs" (by optax), which needs no matrix either: for some thousands of coefficients.
        tol: Nats of all reports that may be missing. None is 1e-10 with x64, and 1e-6 in float32.
        max_iters: Most steps of the solver.

    Returns:
        `Regression`. Under tracing its `converged` says whether there is a maximum.

    Raises:
        ValueError: Shapes that do not fit, or (not under tracing) covariates, weights or reports that are none, with
            the row; covariates that depend on each other linearly; a likelihood without maximum, as of data that a
            covariate separates, or of a category that no report speaks for.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit
        >>> age = np.random.default_rng(0).uniform(20, 60, 20_000)
        >>> holds = np.random.default_rng(1).random(20_000) < 1 / (1 + np.exp(2 - 0.05 * age))
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), holds.astype(int))
        >>> result = fit(age, reports, 1.0, num_categories=2)
        >>> [f"{b:.3f} ± {s:.3f}" for b, s in zip(result.coefficients[:, 0], result.standard_errors[:, 0])]
        ['-1.910 ± 0.125', '0.047 ± 0.003']

    References:
        Louis, "Finding the observed information matrix when using the EM algorithm", 1982; Blair, Imai and Zhou,
        "Design and analysis of the randomized response technique", 2015 (two categories); Cox and Snell, "A general
        definition of residuals", 1968 (the bias).
    """
    kind, groups, count = _kind(covariance, clusters, reduce_bias)
    data, standard = as_data(covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept)
    if solver not in ("newton", "l-bfgs"):
        raise ValueError(f'solver must be "newton" or "l-bfgs", got {solver!r}')
    dtype = data.weights.dtype
    tol = (1e-10 if dtype == jnp.float64 else 1e-6) if tol is None else tol
    goal, ridge = jnp.asarray(tol, dtype), as_scalar(ridge, dtype, "ridge")
    if solver == "newton":
        state = maximum(data, ridge, goal, max_iters)
        shape = data.covariates.shape[1], data.rows.lift.shape[1] - 1
        arrival = solvers.Arrival(state.parameters.reshape(shape), state.gap, state.num_iters)
    else:
        arrival = solvers.lbfgs(data, ridge, goal, max_iters)
    settings = _Settings(kind, count, reduce_bias, intercept)
    result, errors = _described(data, standard, arrival, ridge, goal, groups, settings)
    if not isinstance(result.converged, Tracer):
        check_ran_off(result, errors)
        _check_converged(result)
    return result


def fit_in_batches(
    key: Array,
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    num_categories: int | None = None,
    weights: ArrayLike | None = None,
    intercept: bool = True,
    clusters: ArrayLike | None = None,
    covariance: Covariance | None = None,
    ridge: ArrayLike = 0.0,
    batch_size: int = 1024,
    num_epochs: int = 20,
    learning_rate: ArrayLike = 0.02,
    tol: float = 0.01,
) -> Regression:
    """Fits the regression of `fit` by Adam, on one batch of users after another.

    For data of many users, of which a few thousand say where to go. The rate falls to nothing, and the end lies some
    hundredths of a nat below the maximum; `gap` says how many, if a covariance is wanted.

    Args:
        key: A typed key, for the order in which users are seen.
        covariates: As in `fit`.
        reports: As in `fit`.
        mechanism_or_epsilon: As in `fit`.
        num_categories: As in `fit`.
        weights: As in `fit`.
        intercept: As in `fit`.
        clusters: As in `fit`.
        covariance: As in `fit`.
        ridge: As in `fit`.
        batch_size: Users in a batch; N, if that is less.
        num_epochs: How often each user is seen.
        learning_rate: Scalar, of the first steps, on standardized covariates.
        tol: Nats of all reports below which the gap counts as converged: a hundredth is a seventh of a standard error.

    Returns:
        `Regression`, converged or not: more epochs bring it nearer.

    Raises:
        ValueError: As `fit`, but for the gap; fewer than one user in a batch, or than one epoch.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, fit_in_batches
        >>> x = np.random.default_rng(0).normal(size=20_000)
        >>> values = (np.random.default_rng(1).random(20_000) < 1 / (1 + np.exp(-x))).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), values)
        >>> whole = fit(x, reports, 1.0, num_categories=2)
        >>> found = fit_in_batches(jax.random.key(1), x, reports, 1.0, num_categories=2)
        >>> bool(abs(found.coefficients - whole.coefficients).max() < 0.2 * whole.standard_errors.min())
        True

    References:
        Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015: arXiv:1412.6980.
    """
    if batch_size < 1 or num_epochs < 1:
        raise ValueError(f"batch_size and num_epochs must be at least 1, got {batch_size} and {num_epochs}")
    kind, groups, count = _kind(covariance, clusters, False)
    data, standard = as_data(covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept)
    dtype = data.weights.dtype
    ridge, rate = as_scalar(ridge, dtype, "ridge"), as_scalar(learning_rate, dtype, "learning_rate")
    batch_size = min(batch_size, data.weights.shape[0])
    arrival = solvers.adam(key, data, ridge, rate, batch_size, num_epochs)
    settings = _Settings(kind, count, False, intercept)
    result, errors = _described(data, standard, arrival, ridge, jnp.asarray(tol, dtype), groups, settings)
    if not isinstance(result.converged, Tracer):
        check_ran_off(result, errors)
    return result


class _Settings(NamedTuple):
    """What is static."""

    kind: Covariance
    num_clusters: int
    reduce_bias: bool
    intercept: bool


@partial(jax.jit, static_argnums=6)
def _described(data, standard, arrival, ridge, tol, groups, settings):
    """The regression at some standardized coefficients, and their standard errors."""
    coefficients, gap, _ = arrival
    back = standard._replace(intercept=settings.intercept).back
    if settings.kind == "none":
        seen = posteriors(coefficients, data.covariates, data.rows).log_probabilities * data.weights
        covariance = errors = None
        converged = gap <= tol
    else:
        view = look(coefficients, blocks_of(data), ridge)
        seen = view.log_probabilities
        inverse = _inverted(view.observed)
        gap = view.slope @ inverse @ view.slope / 2
        converged = gap <= tol  # NaN where the information is not positive
        if settings.reduce_bias:
            coefficients = coefficients - bias(coefficients, data, inverse)
        if settings.kind == "sandwich":
            inverse = _robust(inverse, arrival.coefficients, data, groups, settings.num_clusters)
        errors = jnp.sqrt(jnp.diagonal(inverse)).reshape(coefficients.shape)
        whole = jnp.kron(back, jnp.eye(coefficients.shape[1], dtype=back.dtype))
        covariance = whole @ inverse @ whole.T
    result = Regression(
        coefficients=back @ coefficients,
        covariance=covariance,
        log_likelihood=accurate_sum(seen),
        gap=gap,
        num_iters=arrival.num_iters,
        converged=converged,
        num_users=jnp.sum(data.weights),
        scales=standard.scales,
        intercept=settings.intercept,
    )
    return result, errors


def _inverted(matrix):
    return solved(factored(matrix), jnp.eye(matrix.shape[0], dtype=matrix.dtype))


def _robust(inverse, coefficients, data: Data, groups, count):
    """The sandwich, of users or of clusters of them."""
    moved = posteriors(coefficients, data.covariates, data.rows).moved
    scores = data.weights[:, None, None] * data.covariates[:, :, None] * moved[:, None, 1:]
    scores = scores.reshape(scores.shape[0], -1)
    factor = 1.0
    if groups is not None:
        scores = jax.ops.segment_sum(scores, groups, num_segments=count)
        factor = count / (count - 1)
    half = scores @ inverse
    return factor * (half.T @ half)


def _kind(covariance, clusters, reduce_bias):
    if covariance not in (None, "observed", "sandwich", "none"):
        raise ValueError(f'covariance must be "observed", "sandwich" or "none", got {covariance!r}')
    if covariance == "none" and reduce_bias:
        raise ValueError('reduce_bias needs a covariance, got covariance="none"')
    if clusters is None:
        return covariance or "observed", None, 0
    if covariance not in (None, "sandwich"):
        raise ValueError(f'clusters are for the covariance "sandwich", got {covariance!r}')
    return "sandwich", *as_clusters(clusters, np.shape(clusters)[0])


def check_ran_off(result: Regression, errors: Float[ArrayLike, "D k"] | None) -> None:
    """Refuses coefficients that nothing holds.

    Args:
        result: What was found.
        errors: Standard errors on standardized covariates, if they are known.

    Raises:
        ValueError: One of them is too large.
    """
    if errors is None:
        return
    errors = np.asarray(errors)
    lost = np.argwhere(~(errors < _LOST))
    if lost.size:
        row, column = lost[0]
        size = errors[row, column]
        known = f"standard error {size:.3g} on standardized covariates"
        error = known if np.isfinite(size) else "there is no information on it"
        what = "intercept" if result.intercept and row == 0 else f"covariate {row - result.intercept}"
        raise ValueError(
            f"the {what} of category {column + 1} runs off or is hardly determined ({error}). Either the likelihood "
            "has no maximum, as where a covariate separates the reports or none speaks for a category, or "
            f"{float(result.num_users):,.10g} reports say next to nothing at this epsilon: merge categories, leave the "
            "covariate out, or give a prior, such as ridge=0.1"
        )


def _check_converged(result):
    if not bool(result.converged):
        raise ValueError(
            f"not converged after {int(result.num_iters)} steps, {float(result.gap):.3g} nats from the maximum: give a "
            "larger max_iters, or a prior, such as ridge=0.1"
        )
