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

from rrjax.arguments import as_scalar, float_dtype
from rrjax.arithmetic import accurate_sum
from rrjax.interior import factored, solved
from rrjax.mechanisms.rows import LogRows
from rrjax.models.logistic import Data, maximum, posteriors
from rrjax.models.loss import MechanismOrEpsilon, rows_of
from rrjax.pytrees import register

Covariance: TypeAlias = Literal["observed", "sandwich"]

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
        covariance: `[D·(K − 1), D·(K − 1)]`, of `coefficients.ravel()`.
        log_likelihood: Scalar, nats, of all reports, each by its weight.
        gap: Scalar, nats of all reports that the maximum is above that: half of Newton's decrement.
        num_iters: Scalar.
        converged: Scalar: whether the gap came below the tolerance at a point with positive information.
        num_users: Scalar, the sum of the weights.
        scales: `[D]`, the standard deviations of the covariates; one for the intercept.
        intercept: Whether there is one. Static.
    """

    coefficients: Float[Array, "D k"]
    covariance: Float[Array, "P P"]
    log_likelihood: Float[Array, ""]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]
    num_users: Float[Array, ""]
    scales: Float[Array, " D"]
    intercept: bool

    @property
    def standard_errors(self) -> Float[Array, "D k"]:
        """Of each coefficient, `[D, K − 1]`."""
        return jnp.sqrt(jnp.diagonal(self.covariance)).reshape(self.coefficients.shape)

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
            wrong too. None is "observed".
        ridge: Scalar, precision of a normal prior with mean zero on the standardized coefficients, the intercept among
            them: for data whose likelihood has no maximum.
        tol: Nats of all reports that may be missing. None is 1e-10 with x64, and 1e-6 in float32.
        max_iters: Most Newton steps.

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
        "Design and analysis of the randomized response technique", 2015 (two categories).
    """
    data, shift, scales, number = _data(covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept)
    dtype = data.weights.dtype
    tol = (1e-10 if dtype == jnp.float64 else 1e-6) if tol is None else tol
    groups, count = (None, 0) if clusters is None else _groups(clusters, number)
    kind = _kind(covariance, groups)
    ridge = as_scalar(ridge, dtype, "ridge")
    settings = _Settings(kind, count, max_iters, intercept)
    result, errors = _fitted(data, (shift, scales), ridge, jnp.asarray(tol, dtype), groups, settings)
    if not isinstance(result.converged, Tracer):
        _verdict(result, np.asarray(errors), number)
    return result


class _Settings(NamedTuple):
    """What is static."""

    kind: Covariance
    num_clusters: int
    max_iters: int
    intercept: bool


@partial(jax.jit, static_argnums=5)
def _fitted(data, standard, ridge, tol, groups, settings):
    intercept = settings.intercept
    state = maximum(data, ridge, tol, settings.max_iters)
    size = state.coefficients.size
    factor = factored(state.view.observed)
    inverse = solved(factor, jnp.eye(size, dtype=factor.dtype))
    if settings.kind != "observed":
        inverse = _robust(inverse, state.coefficients, data, groups, settings.num_clusters)
    # Back to the units of the covariates: a coefficient over its scale, and the intercept gives up what the means had.
    shift, scales = standard
    back = jnp.diag(1 / scales)
    if intercept:
        back = back.at[0, 1:].set(-shift[1:] / scales[1:])
    whole = jnp.kron(back, jnp.eye(state.coefficients.shape[1], dtype=back.dtype))
    result = Regression(
        coefficients=back @ state.coefficients,
        covariance=whole @ inverse @ whole.T,
        log_likelihood=accurate_sum(data.weights * state.view.log_probabilities[: data.weights.shape[0]]),
        gap=state.gap,
        num_iters=state.num_iters,
        converged=state.converged,
        num_users=jnp.sum(data.weights),
        scales=scales,
        intercept=intercept,
    )
    return result, jnp.sqrt(jnp.diagonal(inverse)).reshape(state.coefficients.shape)


def _robust(inverse, coefficients, data, groups, count):
    """The sandwich, of users or of clusters of them."""
    _, moved, _ = posteriors(coefficients, data)
    scores = data.weights[:, None, None] * data.covariates[:, :, None] * moved[:, None, 1:]
    scores = scores.reshape(scores.shape[0], -1)
    factor = 1.0
    if groups is not None:
        scores = jax.ops.segment_sum(scores, groups, num_segments=count)
        factor = count / (count - 1)
    half = scores @ inverse
    return factor * (half.T @ half)


def _data(covariates, reports, given, num_categories, weights, intercept):
    covariates = as_covariates(covariates)
    number = covariates.shape[0]
    dtype = covariates.dtype
    rows = rows_of(reports, given, num_categories, number)
    rows = LogRows(*(leaf.astype(dtype) for leaf in rows))
    weights = _weights(weights, number, dtype)
    shift = jnp.mean(covariates, axis=0) if intercept else jnp.zeros(covariates.shape[1], dtype)
    scales = jnp.sqrt(jnp.mean((covariates - shift) ** 2, axis=0))
    standard = (covariates - shift) / scales
    if intercept:
        one = jnp.ones((1,), dtype)
        standard = jnp.concatenate([jnp.ones((number, 1), dtype), standard], axis=1)
        shift, scales = jnp.concatenate([0 * one, shift]), jnp.concatenate([one, scales])
    if not isinstance(standard, Tracer):
        _check_rank(np.asarray(standard, np.float64), intercept)
    return Data(standard, rows, weights), shift, scales, number


def as_covariates(covariates: ArrayLike) -> Float[Array, "N D"]:
    """Checks covariates `[N, D]`, or `[N]` of one.

    Raises:
        ValueError: Another shape, what are no numbers, or (not under tracing) a missing one, with its row.
    """
    covariates = covariates if isinstance(covariates, jax.Array) else np.asarray(covariates)
    if covariates.ndim == 1:
        covariates = covariates[:, None]
    if covariates.ndim != 2 or covariates.dtype.kind not in "biuf":
        raise ValueError(
            f"covariates must be numbers of shape [N, D], got {covariates.dtype} of shape {tuple(covariates.shape)}: "
            "code categories as columns of zeros and ones"
        )
    if not isinstance(covariates, Tracer):
        wrong = np.argwhere(~np.isfinite(np.asarray(covariates, np.float64)))
        if wrong.size:
            row, column = wrong[0]
            raise ValueError(
                f"row {row}, column {column} of covariates is {covariates[row, column]}: fill it in or drop the row "
                f"({len(np.unique(wrong[:, 0]))} rows have missing values)"
            )
    dtype = np.promote_types(np.float32, covariates.dtype) if covariates.dtype.kind == "f" else float_dtype()
    return jnp.asarray(covariates, jax.dtypes.canonicalize_dtype(dtype))


def _weights(weights, number, dtype):
    if weights is None:
        return jnp.ones(number, dtype)
    weights = weights if isinstance(weights, jax.Array) else np.asarray(weights)
    if weights.shape != (number,) or weights.dtype.kind not in "biuf":
        raise ValueError(f"weights must be numbers of shape [{number}], got {weights.dtype} of {tuple(weights.shape)}")
    if not isinstance(weights, Tracer):
        known = np.asarray(weights, np.float64)
        wrong = np.flatnonzero(~(np.isfinite(known) & (known >= 0)))
        if wrong.size:
            raise ValueError(f"row {wrong[0]} of weights is {known[wrong[0]]:g}: weights are finite and not negative")
        if not known.any():
            raise ValueError("all weights are zero: there is nobody to estimate from")
    return jnp.asarray(weights).astype(dtype)


def _check_rank(standard, intercept):
    constant = np.flatnonzero(~np.isfinite(standard).all(axis=0))
    if constant.size:
        column = constant[0] - intercept
        raise ValueError(
            f"column {column} of covariates is the same for everybody: drop it"
            + (" (there is an intercept)" if intercept else "")
        )
    _, sizes, right = np.linalg.svd(standard, full_matrices=False)
    if standard.shape[0] < standard.shape[1] or sizes[-1] <= 1e-6 * sizes[0]:
        columns = np.flatnonzero(np.abs(right[-1]) > 1e-3) - intercept
        named = ", ".join("the intercept" if column < 0 else str(column) for column in columns)
        raise ValueError(f"covariates depend on each other linearly (columns {named}): drop one of them")


def _groups(clusters, number):
    clusters = np.asarray(clusters)
    if clusters.shape != (number,):
        raise ValueError(f"clusters must have shape [{number}], got {clusters.shape}")
    known, numbers = np.unique(clusters, return_inverse=True)
    if len(known) < 2:
        raise ValueError("clusters must be two or more")
    return jnp.asarray(numbers.ravel(), jnp.int32), len(known)


def _kind(covariance, groups):
    if covariance not in (None, "observed", "sandwich"):
        raise ValueError(f'covariance must be "observed" or "sandwich", got {covariance!r}')
    if groups is not None and covariance == "observed":
        raise ValueError('clusters are for the covariance "sandwich"')
    return "sandwich" if groups is not None else covariance or "observed"


def _verdict(result, errors, number):
    """Raises where there is no maximum, with what runs off."""
    converged = np.asarray(result.converged)
    lost = np.argwhere(~(errors < _LOST))
    if converged.all() and not lost.size:
        return
    if lost.size:
        row, column = lost[0]
        size = errors[row, column]
        known = f"standard error {size:.3g} on standardized covariates"
        error = known if np.isfinite(size) else "there is no information on it"
        what = "intercept" if result.intercept and row == 0 else f"covariate {row - result.intercept}"
        raise ValueError(
            f"the {what} of category {column + 1} runs off or is hardly determined ({error}). Either the likelihood "
            "has no maximum, as where a covariate separates the reports or none speaks for a category, or "
            f"{number} reports say next to nothing at this epsilon: merge categories, leave the covariate out, or give "
            "a prior, such as ridge=0.1"
        )
    raise ValueError(
        f"not converged after {int(result.num_iters)} steps, {float(result.gap):.3g} nats from the maximum: give a "
        "larger max_iters, or a prior, such as ridge=0.1"
    )
