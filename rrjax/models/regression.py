"""Multinomial logistic regression of the values that users hold on covariates, from their randomized reports."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_scalar, as_tolerance, check_key
from rrjax.data.checks import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.models import solvers
from rrjax.models.bias import bias
from rrjax.models.data import as_clusters, as_data
from rrjax.models.fitted import Regression
from rrjax.models.logistic import Data, look, maximum, posteriors
from rrjax.models.loss import MechanismOrEpsilon
from rrjax.models.refusals import INTERCEPT, MOST_RIDGE, FitError
from rrjax.numerics.newton import blocks_of, factored, solved
from rrjax.numerics.sharding import refuse_spread
from rrjax.numerics.sums import accurate_sum

Covariance: TypeAlias = Literal["observed", "sandwich", "none"]
Solver: TypeAlias = Literal["newton", "l-bfgs"]

LOST = 20.0
"""Standard error, on standardized covariates, beyond which a coefficient is not estimated but runs off."""
_FAR = 30.0
"""Standardized coefficient beyond which it has run off, where there is no standard error to tell."""


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
        clusters: `[N]`, numbers or texts, not traced: users of one cluster may depend on each other; the covariance is
            that of Liang and Zeger, times c/(c − 1)·(N − 1)/(N − P) for c clusters and P = D·(K − 1) coefficients.
            There must be more clusters than coefficients: the covariance has rank c − 1 at most, and with fewer some
            standard errors are zero but for rounding. p-values and intervals are those of Student's t, and Wald's tests
            those of F, with c − 1 degrees of freedom. For a covariate that is the same within each cluster they are
            still too small where few clusters have one of its values, however many there are: a test at 5 % rejects
            12 % of the time if it splits ten clusters in halves, 7 % with thirty, but 15 % if 4 of 100 clusters have
            the rarer value.
        covariance: "observed", the inverse of the observed information, for weights that are numbers of users; or
            "sandwich", for survey weights, and where the model is wrong. "none" makes no covariance, and with "l-bfgs"
            no matrix of (D·(K − 1))² numbers at all. None is "observed".
        ridge: Scalar, precision of a normal prior with mean zero on the standardized coefficients, the intercept among
            them: for data whose likelihood has no maximum.
        reduce_bias: Whether to take from the coefficients what the likeliest ones are expected to be off by, to the
            order of 1/N: they lie too far out, by some per cent of their standard errors where reports are few or
            noisy. The log-likelihood stays that of the maximum. Needs a covariance; not with a prior, whose own bias it
            does not know. Weights are numbers of users.
        solver: "newton", or "l-bfgs" (by optax), which needs no matrix either: for some thousands of coefficients.
        tol: Nats of all reports that may be missing. None is 1e-10 with x64, and in float32 1e-6, or 1e-12 for each
            user.
        max_iters: Most steps of the solver.

    Returns:
        `Regression`. Under tracing its `converged` says whether there is a maximum, but for runaway coefficients
        without a covariance, and all is NaN for a report, an ε, a weight or a ridge that is none.

    Raises:
        ValueError: Shapes that do not fit, or (not under tracing) covariates, weights or reports that are none, with
            the row; covariates that depend on each other linearly; a likelihood without maximum, as of data that a
            covariate separates, or of a category that no report speaks for; clusters that are no more than
            coefficients, or survey weights of which no more than that have a say. What cannot be fitted is a
            `FitError`, whose attributes say which columns and which category it is about.
        NotImplementedError: A derivative, in ε or in anything else: take differences of two fits.

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
        definition of residuals", 1968 (the bias); Cameron and Miller, "A practitioner's guide to cluster-robust
        inference", 2015 (the factor and the degrees of freedom).
    """
    kind = _kind(covariance, clusters is not None, reduce_bias)
    if solver not in ("newton", "l-bfgs"):
        raise ArgumentError(f'solver must be "newton" or "l-bfgs", got {solver!r}', argument="solver", value=solver)
    max_iters = as_integer(max_iters, "max_iters", 1)
    data, units = as_data(covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept)
    dtype = data.weights.dtype
    goal = as_tolerance(tol, jnp.sum(data.weights))
    prior = _as_ridge(ridge, dtype)
    if reduce_bias and not isinstance(prior, Tracer) and prior != 0:
        raise ArgumentError(
            "reduce_bias does not know the bias of a prior: leave out one of reduce_bias and ridge",
            argument="reduce_bias",
        )
    if solver == "newton":
        state = maximum(data, prior, goal, max_iters)
        shape = data.covariates.shape[1], data.rows.lift.shape[1] - 1
        arrival = solvers.Arrival(state.parameters.reshape(shape), state.gap, state.num_iters)
    else:
        arrival = solvers.lbfgs(data, prior, goal, max_iters)
    result, errors = _described(
        data, units, arrival, prior, goal, *_groups(clusters, data, kind), kind, reduce_bias, intercept
    )
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
        num_epochs: How often users are seen; those who fill no last batch wait for the next time.
        learning_rate: Scalar, of the first steps, on standardized covariates.
        tol: Nats of all reports below which the gap counts as converged: a hundredth is a seventh of a standard error.

    Returns:
        `Regression`, converged or not: more epochs bring it nearer.

    Raises:
        ValueError: As `fit`, but for the gap; fewer than one user in a batch, or than one epoch.
        NotImplementedError: `jax.vmap` spreads it over a mesh with explicit axes; `jax.shard_map` can.

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
    check_key(key)
    batch_size, num_epochs = as_integer(batch_size, "batch_size", 1), as_integer(num_epochs, "num_epochs", 1)
    key = refuse_spread(key, "fit_in_batches")
    kind = _kind(covariance, clusters is not None, False)
    data, units = as_data(covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept)
    dtype = data.weights.dtype
    prior, rate = _as_ridge(ridge, dtype), as_scalar(learning_rate, dtype, "learning_rate")
    arrival = solvers.adam(key, data, prior, rate, min(batch_size, data.weights.shape[0]), num_epochs)
    goal = as_scalar(tol, dtype, "tol")
    result, errors = _described(
        data, units, arrival, prior, goal, *_groups(clusters, data, kind), kind, False, intercept
    )
    if not isinstance(result.converged, Tracer):
        check_ran_off(result, errors)
    return result


@partial(jax.jit, static_argnums=(6, 7, 8, 9))
def _described(data, units, arrival, ridge, tol, groups, count, kind, reduce_bias, intercept):
    """The regression at some standardized coefficients, and their standard errors."""
    coefficients, gap, _ = arrival
    found = posteriors(coefficients, data.covariates, data.rows).log_probabilities
    before = posteriors(0 * coefficients, data.covariates, data.rows).log_probabilities
    covariance = errors = None
    if kind == "none":
        converged = (gap <= tol) & (jnp.max(jnp.abs(coefficients)) < _FAR)
    else:
        view = look(coefficients, blocks_of(data), ridge)
        covariance = _inverted(view.observed)
        gap = view.slope @ covariance @ view.slope / 2
        if reduce_bias:
            coefficients = coefficients - bias(coefficients, data, covariance)
        if kind == "sandwich":
            covariance = _robust(covariance, arrival.coefficients, data, groups, count)
        errors = jnp.sqrt(jnp.diagonal(covariance)).reshape(coefficients.shape)
        converged = (gap <= tol) & jnp.all(errors < LOST)  # false for NaN, where the information is not positive
    log_likelihood = accurate_sum(data.weights * found)
    # No report that cannot be, and no ε: with them only the sum is NaN, and the iteration never moved.
    usable = jnp.isfinite(log_likelihood) & (jnp.min(data.weights) >= 0) & (ridge >= 0)
    coefficients, covariance = jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), (coefficients, covariance))
    result = Regression(
        standard_coefficients=coefficients,
        standard_covariance=covariance,
        units=units,
        log_likelihood=log_likelihood,
        gain=accurate_sum(data.weights * (found - before)),
        gap=gap,
        num_iters=arrival.num_iters,
        converged=converged & usable,
        num_users=jnp.sum(data.weights),
        intercept=intercept,
        robust=kind == "sandwich",
        num_clusters=None if groups is None else count,
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
        number, size = jnp.sum(data.weights > 0, dtype=scores.dtype), scores.shape[1]
        factor = count / (count - 1) * (number - 1) / (number - size)
    half = scores @ inverse
    return factor * (half.T @ half)


def _kind(covariance, clustered, reduce_bias) -> Covariance:
    if covariance not in (None, "observed", "sandwich", "none"):
        raise ArgumentError(
            f'covariance must be "observed", "sandwich" or "none", got {covariance!r}',
            argument="covariance",
            value=covariance,
        )
    if covariance == "none" and reduce_bias:
        raise ArgumentError('reduce_bias needs a covariance, got covariance="none"', argument="reduce_bias")
    if clustered and covariance not in (None, "sandwich"):
        raise ArgumentError(
            f'clusters are for the covariance "sandwich", got {covariance!r}', argument="covariance", value=covariance
        )
    return "sandwich" if clustered else covariance or "observed"


def _groups(clusters, data: Data, kind: Covariance):
    """Clusters from 0, and how many there are; refuses fewer than a covariance of all coefficients takes."""
    size = data.covariates.shape[1] * (data.rows.lift.shape[1] - 1)
    known = None if isinstance(data.weights, Tracer) else np.asarray(data.weights, np.float64)
    if clusters is not None:
        groups, count = as_clusters(clusters, data.weights.shape[0], known)
        if count <= size:
            raise FitError(
                f"{count} clusters are too few for {size} coefficients: there must be more clusters than coefficients, "
                "or some standard errors would be zero; drop covariates, merge categories, or take smaller clusters",
                reason="clusters",
                argument="clusters",
                number=count,
                needed=size + 1,
            )
        return groups, count
    if kind == "sandwich" and known is not None:
        relative = known / np.max(known)  # squares of small weights are zero
        effective = np.sum(relative) ** 2 / np.sum(relative**2)
        if not effective > size:
            raise FitError(
                f"of the weights so few are large that they say as much as {effective:.3g} users of equal weight, too "
                f"few for {size} coefficients: trim the weights, drop covariates, or merge categories",
                reason="weights",
                argument="weights",
                number=float(effective),
                needed=size + 1,
            )
    return None, 0


def _as_ridge(ridge, dtype):
    ridge = as_scalar(ridge, dtype, "ridge")
    if not isinstance(ridge, Tracer) and not 0 <= ridge <= MOST_RIDGE:
        raise ArgumentError(
            f"ridge must be a number from 0 to {MOST_RIDGE:g}, got {float(ridge):g}",
            argument="ridge",
            value=float(ridge),
        )
    return ridge


def check_ran_off(result: Regression, errors: Float[ArrayLike, "D k"] | None) -> None:
    """Refuses coefficients that nothing holds.

    Raises:
        FitError: One of them is too large.
    """
    if errors is None:
        return
    errors = np.asarray(errors)
    lost = np.argwhere(~(errors < LOST))
    if lost.size:
        row, place = lost[0]
        size = errors[row, place]
        known = f"standard error {size:.3g} on standardized covariates"
        error = known if np.isfinite(size) else "there is no information on it"
        column = int(row) - result.intercept
        what = "intercept" if column == INTERCEPT else f"covariate {column}"
        raise FitError(
            f"the {what} of category {place + 1} runs off or is hardly determined ({error}). Either the likelihood "
            "has no maximum, as where a covariate separates the reports or none speaks for a category, or "
            f"{float(result.num_users):,.10g} reports say next to nothing at this epsilon: merge categories, leave the "
            "covariate out, or give a prior, such as ridge=0.1",
            reason="unbounded",
            columns=(column,),
            category=int(place) + 1,
            number=float(result.num_users),
        )


def _check_converged(result):
    if not bool(result.converged):
        farthest = float(jnp.max(jnp.abs(result.standard_coefficients)))
        if result.standard_covariance is None and farthest >= _FAR:
            raise FitError(
                f"a coefficient runs off: {farthest:.3g} on standardized covariates. A covariate may separate the "
                "reports, or none speaks for a category: merge categories, or give a prior, such as ridge=0.1",
                reason="unbounded",
                number=float(result.num_users),
            )
        raise FitError(
            f"not converged after {int(result.num_iters)} steps, {float(result.gap):.3g} nats from the maximum: give a "
            "larger max_iters, or a prior, such as ridge=0.1",
            reason="steps",
            argument="max_iters",
            number=int(result.num_iters),
        )
