"""Multinomial logistic regression of the users' values on covariates, from their randomized reports."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_scalar, check_key, largest_gap
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import TwoSamples
from rrjax.models.logistic import Data, Solution, adam, as_data, bias, evaluated, lbfgs, newton, posteriors
from rrjax.models.loss import MechanismOrEpsilon
from rrjax.models.results import INTERCEPT, FitError, Regression, Units, as_clusters, rounding_of
from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import refuse_spread
from rrjax.numerics.solvers import blocks_of, cholesky_factor, cholesky_solve
from rrjax.numerics.sums import accurate_sum

Covariance: TypeAlias = Literal["observed", "sandwich", "none"]
Solver: TypeAlias = Literal["newton", "l-bfgs"]

MOST_STEPS = {"newton": 200, "l-bfgs": 1000}
MOST_RIDGE = 1e12
"""Largest precision of the prior, on standardized coefficients: beyond it the reports have no influence."""
LARGEST_STANDARD_ERROR = 20.0
"""Standard error, on standardized covariates, beyond which a coefficient counts as diverging."""
_LARGEST_COEFFICIENT = 30.0
"""Standardized coefficient beyond which it counts as diverging, if there is no standard error."""


@pytree("num_clusters", "covariance", "intercept", "reduce_bias")
class _CheckedRegression:
    """A regression to be fitted: checked data, and the results to compute besides the coefficients."""

    data: Data
    units: Units
    ridge: Float[Array, ""]
    clusters: Int[Array, " N"] | None
    num_clusters: int | None
    covariance: Covariance
    intercept: bool
    reduce_bias: bool


def fit(
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon | TwoSamples,
    *,
    sample: ArrayLike | None = None,
    nuisance: ArrayLike | None = None,
    num_categories: int | None = None,
    weights: ArrayLike | None = None,
    intercept: bool = True,
    clusters: ArrayLike | None = None,
    covariance: Covariance | None = None,
    ridge: ArrayLike = 0.0,
    reduce_bias: bool = False,
    solver: Solver = "newton",
) -> Regression:
    """Fits a multinomial logistic regression of the users' values on covariates, by the likelihood of their reports.

    Args:
        covariates: `[N, D]`, floats or integers, in any units; a vector `[N]` is one covariate, and `[N, 0]` none: then
            the intercept is the only coefficient.
        reports: N reports of the mechanism.
        mechanism_or_epsilon: As in `rr_loss`: a mechanism, or ε of k-ary randomized response, for all or `[N]`. Or a
            design of two samples, with `sample`; then reports are 0 for yes and 1 for no, and its second unknown share
            (of those who do not follow the rule, or of yes to the unrelated question) is estimated with the
            coefficients. These are of the share among those who follow the rule, and of the stochastic lie detector
            and the unrelated question of the share among all. The likelihood may have several maxima; the search
            starts at the two shares without covariates.
        sample: `[N]`, 0 for the sample with the first parameter, 1 for the other one. Where the same people are in
            both, give them as `clusters`.
        nuisance: `[N, M]` or `[N]`, covariates of the log-odds of the second share; None is one share for all. That of
            the stochastic lie detector is of those with the attribute, that of other designs of all.
        num_categories: K, if ε is given; a mechanism has its own.
        weights: `[N]`, not negative: the number of users of each row, or survey weights (then with
            `covariance="sandwich"`). None is one for each.
        intercept: Whether to add a column of ones in front.
        clusters: `[N]`, numbers or texts, not traced. Users of one cluster may depend on each other. The covariance is
            Liang and Zeger's, times c/(c − 1)·(N − 1)/(N − P) for c clusters and P = D·(K − 1) coefficients. Its rank
            is at most c − 1, so there must be more clusters than coefficients. p-values and intervals are by Student's
            t, Wald's tests by F, with c − 1 degrees of freedom. For a covariate that is the same within each cluster,
            standard errors are too small if few clusters have one of its values: a test at 5 % rejects 12 % of the time
            if the covariate splits ten clusters in halves, 7 % with thirty, and 15 % if 4 of 100 clusters have the
            rarer value.
        covariance: "observed", the inverse of the observed information, for weights that are numbers of users;
            "sandwich", for survey weights, and if the model may be wrong; or "none", which with "l-bfgs" avoids every
            matrix of (D·(K − 1))² numbers. None is "observed".
        ridge: Scalar, precision of a normal prior with mean zero on the intercept and the standardized coefficients,
            for data whose likelihood has no maximum.
        reduce_bias: Whether to subtract the expected error of the maximum-likelihood coefficients, to the order of 1/N.
            They are too far from zero, by some per cent of their standard errors if reports are few or noisy. The
            log-likelihood remains that of the maximum. It needs a covariance and no prior, and weights count users.
        solver: "newton", or "l-bfgs" (by optax), which makes no such matrix: for thousands of coefficients.

    Returns:
        `Regression`; of two samples a `TwoSampleRegression`. The gap to the maximum is at most 1e-10 nats of all
        reports (in float32 1e-6, or 1e-12 for each user). Under tracing, `converged` is whether there is a maximum;
        without a covariance it may miss a diverging coefficient. An invalid report, ε, weight or ridge makes all NaN
        there.

    Raises:
        ValueError: Shapes that do not fit, or (not under tracing) invalid covariates, weights or reports, with the row.
        FitError: A `ValueError` with the columns and the category: covariates that depend on each other linearly; a
            likelihood without maximum, for example if a covariate separates the data or no report names a category; no
            more clusters, or users with a considerable weight, than coefficients; two samples that contradict their
            design.
        NotImplementedError: A derivative is taken: use differences of two fits.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit
        >>> age = np.random.default_rng(0).uniform(20, 60, 20_000)
        >>> holds = np.random.default_rng(1).random(20_000) < 1 / (1 + np.exp(2 - 0.05 * age))
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), holds.astype(int))
        >>> result = fit(age, reports, 1.0, num_categories=2)
        >>> [f"{b:.3f} ± {s:.3f}" for b, s in zip(result.coefficients[:, 0], result.standard_errors[:, 0])]
        ['-1.910 ± 0.125', '0.047 ± 0.003']
        >>> detector = rrjax.mechanisms.StochasticLieDetector(truth=[1 / 6, 5 / 6])  # a survey on minarets
        >>> said, sample = np.repeat([0, 1, 0, 1], [373, 191, 398, 294]), np.repeat([0, 1], [564, 692])
        >>> result = fit(np.zeros((1256, 0)), said, detector, sample=sample)
        >>> f"{1 / (1 + np.exp(result.coefficients[0, 0])):.3f}, {result.nuisance:.3f} ± {result.nuisance_error:.3f}"
        '0.871, 0.364 ± 0.017'

    References:
        Louis, "Finding the observed information matrix when using the EM algorithm", 1982; Blair, Imai and Zhou,
        "Design and analysis of the randomized response technique", 2015 (two categories); Cox and Snell, "A general
        definition of residuals", 1968 (the bias); Cameron and Miller, "A practitioner's guide to cluster-robust
        inference", 2015 (the factor and the degrees of freedom).
    """
    if solver not in get_args(Solver):
        raise ArgumentError(f'solver must be "newton" or "l-bfgs", got {solver!r}', argument="solver", value=solver)
    if sample is not None or isinstance(mechanism_or_epsilon, TwoSamples):
        from rrjax.models.two_sample_regression import fit_two_samples

        odd = {"num_categories": num_categories is not None, "solver": solver != "newton", "reduce_bias": reduce_bias}
        if (name := next((name for name, given in odd.items() if given), None)) is not None:
            raise ArgumentError.about(name, "does not apply to two samples: leave it out")
        how: Any = {"sample": sample, "nuisance": nuisance, "weights": weights, "intercept": intercept, "ridge": ridge}
        how |= {"clusters": clusters, "covariance": covariance}
        return fit_two_samples(covariates, reports, mechanism_or_epsilon, **how)
    if nuisance is not None:
        raise ArgumentError.about("nuisance", "are covariates of the second share of a design of two samples")
    observed = covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept
    problem = _checked(observed, clusters, covariance, ridge, reduce_bias)
    goal = largest_gap(jnp.sum(problem.data.weights))
    solve = newton if solver == "newton" else lbfgs
    result = _described(problem, solve(problem.data, problem.ridge, goal, MOST_STEPS[solver]), goal)
    if not isinstance(result.converged, Tracer):
        check_converged(result)
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
) -> Regression:
    """Fits the regression of `fit` by Adam, on batches of users, for large data.

    The learning rate falls to zero. The log-likelihood ends some hundredths of a nat below the maximum, by `gap` if
    there is a covariance.

    Args:
        key: A typed key, for the order of the users.
        covariates: As in `fit`.
        reports: As in `fit`.
        mechanism_or_epsilon: As in `fit`.
        num_categories: As in `fit`.
        weights: As in `fit`.
        intercept: As in `fit`.
        clusters: As in `fit`.
        covariance: As in `fit`.
        ridge: As in `fit`.
        batch_size: Number of users in a batch, at most N.
        num_epochs: Number of passes through the users; a pass omits users who do not fill a last batch.

    Returns:
        `Regression`. It counts as converged where the gap is at most 0.01 nats of all reports, a seventh of a standard
        error; more epochs bring it nearer to the maximum.

    Raises:
        ValueError: As `fit`, but not for a large gap; a batch of less than one user, or less than one epoch.
        NotImplementedError: `jax.vmap` spreads it over a mesh with explicit axes; `jax.shard_map` can.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, fit_in_batches
        >>> x = np.random.default_rng(0).normal(size=20_000)
        >>> values = (np.random.default_rng(1).random(20_000) < 1 / (1 + np.exp(-x))).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), values)
        >>> whole = fit(x, reports, 1.0, num_categories=2)
        >>> result = fit_in_batches(jax.random.key(1), x, reports, 1.0, num_categories=2)
        >>> bool(abs(result.coefficients - whole.coefficients).max() < 0.2 * whole.standard_errors.min())
        True

    References:
        Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015: arXiv:1412.6980.
    """
    check_key(key)
    batch_size, num_epochs = as_integer(batch_size, "batch_size", 1), as_integer(num_epochs, "num_epochs", 1)
    key = refuse_spread(key, "fit_in_batches")
    observed = covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept
    problem = _checked(observed, clusters, covariance, ridge)
    weights = problem.data.weights
    solution = adam(key, problem.data, problem.ridge, min(batch_size, weights.shape[0]), num_epochs)
    return _described(problem, solution, jnp.asarray(0.01, weights.dtype))


def _checked(observed: tuple[Any, ...], clusters, covariance, ridge, reduce_bias=False) -> _CheckedRegression:
    """The arguments of `fit`, checked; `observed` are those of `as_data`, in its order."""
    if covariance not in (None, *get_args(Covariance)):
        raise ArgumentError(
            f'covariance must be "observed", "sandwich" or "none", got {covariance!r}',
            argument="covariance",
            value=covariance,
        )
    if covariance == "none" and reduce_bias:
        raise ArgumentError('reduce_bias needs a covariance, got covariance="none"', argument="reduce_bias")
    if clusters is not None and covariance not in (None, "sandwich"):
        raise ArgumentError(
            f'clusters are for the covariance "sandwich", got {covariance!r}', argument="covariance", value=covariance
        )
    covariance = "sandwich" if clusters is not None else covariance or "observed"
    data, units = as_data(*observed)
    ridge = as_scalar(ridge, data.weights.dtype, "ridge")
    if not isinstance(ridge, Tracer):
        if not 0 <= ridge <= MOST_RIDGE:
            raise ArgumentError.about(
                "ridge", f"must be a number from 0 to {MOST_RIDGE:g}, got {float(ridge):g}", value=float(ridge)
            )
        if reduce_bias and ridge != 0:
            raise ArgumentError.about(
                "reduce_bias", "does not know the bias of a prior: leave out one of reduce_bias and ridge"
            )
    num_clusters = None
    known = None if isinstance(data.weights, Tracer) else np.asarray(data.weights, np.float64)
    if clusters is not None:
        clusters, num_clusters = as_clusters(clusters, data.weights.shape[0], known)
    if covariance == "sandwich":
        check_enough(data.shape[0] * data.shape[1], num_clusters, known)
    return _CheckedRegression(data, units, ridge, clusters, num_clusters, covariance, observed[-1], reduce_bias)


def check_enough(size: int, num_clusters: int | None, weights: np.ndarray | None) -> None:
    """Refuses fewer clusters, or users with a considerable weight, than a covariance of `size` coefficients needs."""
    if num_clusters is not None and num_clusters <= size:
        raise FitError(
            f"{num_clusters} clusters are too few for {size} coefficients: there must be more clusters than "
            "coefficients, or some standard errors would be zero; drop covariates, merge categories, or take smaller "
            "clusters",
            reason="clusters",
            argument="clusters",
            number=num_clusters,
            needed=size + 1,
        )
    if num_clusters is None and weights is not None:
        relative = weights / np.max(weights)  # squares of small weights underflow to zero
        effective = np.sum(relative) ** 2 / np.sum(relative**2)
        if not effective > size:
            raise FitError(
                f"so few of the weights are large that they count as {effective:.3g} users of equal weight, too few "
                f"for {size} coefficients: trim the weights, drop covariates, or merge categories",
                reason="weights",
                argument="weights",
                number=float(effective),
                needed=size + 1,
            )


def _described(problem: _CheckedRegression, solution: Solution, tol: Float[Array, ""]) -> Regression:
    """The regression at the solution of a solver; refuses coefficients that are not determined."""
    result, errors = _evaluated(problem, solution, tol)
    if errors is not None and not isinstance(errors, Tracer):
        check_determined(result, np.asarray(errors))
    return result


@jax.jit
def _evaluated(problem: _CheckedRegression, solution: Solution, tol):
    """The regression, and the standard errors of the standardized coefficients."""
    data, ridge = problem.data, problem.ridge
    coefficients, gap, num_iters = solution
    log_probabilities = posteriors(coefficients, data.covariates, data.rows).log_probabilities
    at_zero = posteriors(0 * coefficients, data.covariates, data.rows).log_probabilities
    covariance = errors = None
    if problem.covariance == "none":
        converged = (gap <= tol) & (jnp.max(jnp.abs(coefficients)) < _LARGEST_COEFFICIENT)
    else:
        view = evaluated(coefficients, blocks_of(data), ridge)
        size = coefficients.size
        covariance = cholesky_solve(cholesky_factor(view.observed), jnp.eye(size, dtype=view.observed.dtype))
        gap = matmul(view.slope, covariance, view.slope) / 2
        if problem.reduce_bias:
            coefficients = coefficients - bias(coefficients, data, covariance)
        if problem.covariance == "sandwich":
            moved = posteriors(solution.coefficients, data.covariates, data.rows).moved
            scores = data.weights[:, None, None] * data.covariates[:, :, None] * moved[:, None, 1:]
            scores = scores.reshape(scores.shape[0], -1)
            covariance = sandwich(scores, covariance, data.weights, problem.clusters, problem.num_clusters)
        errors = jnp.sqrt(jnp.diagonal(covariance)).reshape(coefficients.shape)
        # False for NaN, if the information is not positive.
        converged = (gap <= tol) & jnp.all(errors < LARGEST_STANDARD_ERROR)
    log_likelihood = accurate_sum(data.weights * log_probabilities)
    # An impossible report or an unusable ε makes only the sum NaN: the iteration made no step.
    usable = jnp.isfinite(log_likelihood) & (jnp.min(data.weights) >= 0) & (ridge >= 0)
    coefficients, covariance = jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), (coefficients, covariance))
    result = Regression(
        standard_coefficients=coefficients,
        standard_covariance=covariance,
        units=problem.units,
        log_likelihood=log_likelihood,
        gain=accurate_sum(data.weights * (log_probabilities - at_zero)),
        gap=gap,
        num_iters=num_iters,
        converged=converged & usable,
        num_users=jnp.sum(data.weights),
        intercept=problem.intercept,
        robust=problem.covariance == "sandwich",
        num_clusters=problem.num_clusters,
        rounding=rounding_of(data.weights * log_probabilities, data.weights),
    )
    return result, errors


def sandwich(scores, inverse, weights, clusters, count: int | None):
    """The sandwich covariance of scores `[N, P]`, by users or by clusters."""
    factor = 1.0
    if clusters is not None and count is not None:
        scores = jax.ops.segment_sum(scores, clusters, num_segments=count)
        number, size = jnp.sum(weights > 0, dtype=scores.dtype), scores.shape[1]
        factor = count / (count - 1) * (number - 1) / (number - size)
    half = matmul(scores, inverse)
    return factor * matmul(half.T, half)


def check_determined(result: Regression, errors: np.ndarray) -> None:
    """Raises `FitError` for a standard error of a standardized coefficient that is too large or undefined."""
    wrong = np.argwhere(~(errors < LARGEST_STANDARD_ERROR))
    if wrong.size:
        row, place = wrong[0]
        size = errors[row, place]
        known = f"standard error {size:.3g} on standardized covariates"
        error = known if np.isfinite(size) else "there is no information on it"
        column = int(row) - result.intercept
        name = "intercept" if column == INTERCEPT else f"covariate {column}"
        raise FitError(
            f"the {name} of category {place + 1} diverges or is hardly determined ({error}). Either the likelihood "
            "has no maximum, as where a covariate separates the reports or no report names a category, or "
            f"{float(result.num_users):,.10g} reports say next to nothing at this epsilon: merge categories, leave the "
            "covariate out, or give a prior, such as ridge=0.1",
            reason="unbounded",
            columns=(column,),
            category=int(place) + 1,
            number=float(result.num_users),
        )


def check_converged(result: Regression) -> None:
    """Raises `FitError` for a regression that has not converged."""
    if bool(result.converged):
        return
    largest = float(jnp.max(jnp.abs(result.standard_coefficients)))
    if result.standard_covariance is None and largest >= _LARGEST_COEFFICIENT:
        raise FitError(
            f"a coefficient diverges: {largest:.3g} on standardized covariates. A covariate may separate the reports, "
            "or no report names a category: merge categories, or give a prior, such as ridge=0.1",
            reason="unbounded",
            number=float(result.num_users),
        )
    raise FitError(
        f"not converged after {int(result.num_iters)} steps, {float(result.gap):.3g} nats from the maximum: give a "
        "prior, such as ridge=0.1",
        reason="steps",
        number=int(result.num_iters),
    )
