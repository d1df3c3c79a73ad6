"""Regression of an outcome that is not randomized on covariates and a randomized answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike

from rrjax.data.arguments import largest_gap
from rrjax.data.errors import ArgumentError
from rrjax.models.logistic import Data, as_data, curvatures, newton, on_coefficients, posteriors
from rrjax.models.loss import MechanismOrEpsilon
from rrjax.models.regression import LARGEST_STANDARD_ERROR
from rrjax.models.results import Family, FitError, OutcomeRegression, as_column
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.sharding import refuse_spread
from rrjax.numerics.solvers import View, added_up, ascended, blocks_of, cholesky_factor, cholesky_solve
from rrjax.numerics.sums import accurate_sum, log_sum

MOST_STEPS = 500


def fit_outcome(
    outcome: ArrayLike,
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    family: Family = "normal",
    num_categories: int | None = None,
    weights: ArrayLike | None = None,
    intercept: bool = True,
) -> OutcomeRegression:
    """Fits a regression of an outcome on covariates and on an answer that is known only by its randomized report.

    Plain regression on the reports would give too small effects, because a report is often not the answer. Here the
    answer is a hidden variable. Its model is the multinomial regression of `fit` on the same covariates; the model of
    the outcome is linear in covariates and answer. The likelihood of reports and outcomes together is maximized over
    both, by steps of EM and, near the maximum, of Newton's method. The outcome also gives information on the answer.

    Args:
        outcome: `[N]`, numbers; zero or one for "binary", whole and not negative for "counts".
        covariates: `[N, D]`, as in `fit`.
        reports: As in `fit`.
        mechanism_or_epsilon: As in `fit`.
        family: "normal", with the identity link and a common standard deviation; "binary", with the logistic link; or
            "counts", Poisson with the logarithmic link.
        num_categories: As in `fit`.
        weights: `[N]`, the number of users of each row.
        intercept: Whether both models have an intercept.

    Returns:
        `OutcomeRegression`. The likelihood of a hidden variable may have several maxima. The search starts at the point
        where the outcome does not depend on the answer.

    Raises:
        ValueError: As `fit`; outcomes outside the family's domain, with the row.
        NotImplementedError: `jax.vmap` spreads it over a mesh with explicit axes; `jax.shard_map` can. A derivative.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit_outcome
        >>> rng = np.random.default_rng(0)
        >>> age = rng.normal(size=20_000)
        >>> holds = (rng.random(20_000) < 1 / (1 + np.exp(-age))).astype(int)
        >>> income = 2 + 0.5 * age - 1.0 * holds + rng.normal(size=20_000)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), holds)
        >>> fitted = fit_outcome(income, age, reports, 1.0, num_categories=2)
        >>> away = (fitted.coefficients - np.array([2, 0.5, -1.0])) / fitted.standard_errors
        >>> bool(abs(away).max() < 3), bool(fitted.standard_errors[2] < 0.05)
        (True, True)

    References:
        Blair, Imai and Zhou, "Design and analysis of the randomized response technique", 2015, section 3.3 (two
        categories); Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", 1977.
    """
    if family not in get_args(Family):
        raise ArgumentError(
            f"family must be one of {', '.join(get_args(Family))}; got {family!r}", argument="family", value=family
        )
    reports = refuse_spread(reports, "fit_outcome")
    data, units = as_data(covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept)
    outcome = _as_outcome(outcome, data.weights.shape[0], family)
    given = (*_standardized(outcome, data.weights, family == "normal", intercept), data, units)
    result, errors = _fitted(given, largest_gap(jnp.sum(data.weights)), family, intercept)
    if not isinstance(result.converged, Tracer) and not result.converged:
        largest = np.max(np.asarray(errors))
        is_finite = np.isfinite(largest)
        error = f"a standard error is {largest:.3g} on standardized covariates" if is_finite else "no information"
        raise FitError(
            f"no maximum was found in {int(result.num_iters)} steps ({error}). The reports may say next to nothing at "
            "this epsilon, no report may name a category, or a covariate separates the outcomes: merge categories "
            "or leave covariates out",
            reason="steps" if is_finite and largest < LARGEST_STANDARD_ERROR else "unbounded",
            number=int(result.num_iters),
        )
    return result


def _as_outcome(outcome, number, family) -> Any:
    outcome = as_column(outcome, number, "outcome")
    if not isinstance(outcome, Tracer):
        known = np.asarray(outcome, np.float64)
        whole = np.isfinite(known) & (known >= 0) & (known == np.floor(known))
        right, domain = {
            "normal": (np.isfinite(known), "a number"),
            "binary": (np.isin(known, (0, 1)), "0 or 1"),
            "counts": (whole, "a whole number, not negative"),
        }[family]
        wrong = np.flatnonzero(~right)
        if wrong.size:
            raise ArgumentError(
                f"row {wrong[0]} of outcome is {known[wrong[0]]:g}: one of the family {family!r} is {domain}",
                argument="outcome",
                row=int(wrong[0]),
                value=float(known[wrong[0]]),
            )
        if (known == known[0]).all():
            raise ArgumentError(
                f"outcome is {known[0]:g} for everybody, so it depends on nothing: give an outcome that varies",
                argument="outcome",
                value=float(known[0]),
            )
    return outcome


def _standardized(outcome, weights, scaled, intercept):
    """The outcome, standardized if `scaled` (in double precision if it is known); its centre and scale."""
    dtype = weights.dtype
    known = not isinstance(outcome, Tracer) and not isinstance(weights, Tracer)
    library = np if known else jnp
    outcome = np.asarray(outcome, np.float64) if known else jnp.asarray(outcome).astype(dtype)
    weights = np.asarray(weights, np.float64) if known else weights
    centre, spread = library.zeros((), outcome.dtype), library.ones((), outcome.dtype)
    if scaled:
        number = library.sum(weights)
        centre = library.sum(weights * outcome) / number if intercept else centre
        spread = library.sqrt(library.sum(weights * (outcome - centre) ** 2) / number)
    return tuple(jnp.asarray(each, dtype) for each in ((outcome - centre) / spread, centre, spread))


class _Family(NamedTuple):
    """Functions of a family: log-density and information at a linear predictor, and the link."""

    log_density: Callable[[Array, Array, Array], Array]
    information: Callable[[Array, Array], Array]
    link: Callable[[Array], Array]


_FAMILIES: dict[str, _Family] = {
    "normal": _Family(
        lambda y, eta, log_scale: (
            -0.5 * ((y - eta) * jnp.exp(-log_scale)) ** 2 - log_scale - 0.5 * jnp.log(jnp.asarray(2 * jnp.pi, y.dtype))
        ),
        lambda eta, log_scale: jnp.exp(-2 * log_scale) * jnp.ones_like(eta),
        lambda mean: mean,
    ),
    "binary": _Family(
        lambda y, eta, _: y * eta - jnp.logaddexp(eta, 0),
        lambda eta, _: jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta),
        lambda mean: jnp.log(mean / (1 - mean)),
    ),
    "counts": _Family(lambda y, eta, _: y * eta - jnp.exp(eta) - gammaln(y + 1), lambda eta, _: jnp.exp(eta), jnp.log),
}


class _Parameters(NamedTuple):
    """Parameters of both models: `[D]` and `[k]` of the outcome, its scale, and `[D, k]` of the answer."""

    linear: Array
    answers: Array
    log_scale: Array
    coefficients: Array


def _predictors(parameters: _Parameters, data: Data) -> Array:
    """The linear predictor of the outcome for every user and answer, `[N, K]`."""
    return matmul(data.covariates, parameters.linear)[:, None] + jnp.concatenate(
        [jnp.zeros_like(parameters.answers[:1]), parameters.answers]
    )


def _log_terms(parameters: _Parameters, outcome, data: Data, family: _Family):
    """Log-probability of outcome, report and each answer, `[N, K]`, without the report's scale."""
    log_shares = posteriors(parameters.coefficients, data.covariates, data.rows).log_shares
    densities = family.log_density(outcome[:, None], _predictors(parameters, data), parameters.log_scale)
    return log_shares + densities + jnp.logaddexp(data.rows.base[:, None], data.rows.lift)


def _evaluated(flat: Array, unravel: Callable[[Array], _Parameters], blocks, family: _Family, scaled: bool) -> View:
    """The log-likelihood and its derivatives at some parameters."""
    parameters = unravel(flat)

    def log_probabilities(flat, outcome, data):
        return data.weights * (data.rows.scale + log_sum(_log_terms(unravel(flat), outcome, data, family)))

    def total(flat, outcome, data):
        return jnp.sum(log_probabilities(flat, outcome, data))

    def part(block):
        outcome, data = block
        sums = jax.grad(total)(flat, outcome, data), -jax.hessian(total)(flat, outcome, data)
        complete = _complete(parameters, outcome, data, family)
        return (*sums, complete), log_probabilities(flat, outcome, data)

    (slope, observed, complete), each = added_up(part, blocks, flat)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    # A family without a scale gets one unit of information on it, so that the matrix is regular and the scale constant.
    unit = zeros if scaled else zeros._replace(log_scale=jnp.ones_like(parameters.log_scale))
    fixed = jnp.diag(ravel_pytree(unit)[0])
    return View(each, zeros.log_scale, slope, observed + fixed, complete + fixed)


def _complete(parameters: _Parameters, outcome, data: Data, family: _Family) -> Array:
    """The information if the answers were known, averaged over their posteriors."""
    terms = _log_terms(parameters, outcome, data, family)
    weight = data.weights[:, None] * jnp.exp(terms - log_sum(terms)[:, None])
    weight = weight * family.information(_predictors(parameters, data), parameters.log_scale)
    x = data.covariates
    whole = einsum("nk,nd,ne->de", weight, x, x)
    cross = einsum("nk,nd->dk", weight[:, 1:], x)
    first = jnp.block([[whole, cross], [cross.T, jnp.diag(jnp.sum(weight[:, 1:], axis=0))]])
    last = on_coefficients(curvatures(posteriors(parameters.coefficients, x, data.rows))[1], data)
    scale = 2 * jnp.sum(data.weights)[None, None]
    return jax.scipy.linalg.block_diag(first, scale, last)


@partial(jax.jit, static_argnums=(2, 3))
def _fitted(given, tol, name: Family, intercept: bool):
    outcome, centre, spread, data, units = given
    family, scaled = _FAMILIES[name], name == "normal"
    dtype, number = data.weights.dtype, jnp.sum(data.weights)
    blocks = blocks_of((outcome, data))
    size, width = data.shape
    linear = jnp.zeros(size, dtype)
    if intercept and not scaled:
        linear = linear.at[0].set(family.link(jnp.sum(data.weights * outcome) / number))
    answers = newton(data, jnp.asarray(1e-3, dtype), tol, 50).coefficients  # the prior prevents divergence
    start = _Parameters(linear, jnp.zeros(width, dtype), jnp.zeros((), dtype), answers)
    flat, unravel = ravel_pytree(start)
    state = ascended(lambda flat: _evaluated(flat, unravel, blocks, family, scaled), flat, tol, MOST_STEPS)
    parameters = unravel(state.parameters)
    inverse = cholesky_solve(cholesky_factor(state.view.observed), jnp.eye(flat.size, dtype=dtype))
    back = units.back_transform(intercept)
    whole = jax.scipy.linalg.block_diag(back, jnp.eye(width, dtype=dtype)) * spread
    num_coefficients = size + width
    coefficients = matmul(whole, jnp.concatenate([parameters.linear, parameters.answers]))
    log_likelihood = accurate_sum(state.view.log_probabilities) - number * jnp.log(spread)
    errors = jnp.sqrt(jnp.diagonal(inverse))
    # An impossible report or an unusable ε makes only the sum NaN: the iteration made no step.
    usable = jnp.isfinite(log_likelihood) & (jnp.min(data.weights) >= 0)
    zero = jnp.where(usable, jnp.zeros((), dtype), jnp.nan)
    result = OutcomeRegression(
        coefficients=zero + (coefficients.at[0].add(centre) if intercept else coefficients),
        answer_coefficients=zero + matmul(back, parameters.coefficients),
        scale=jnp.exp(parameters.log_scale) * spread,
        covariance=zero + matmul(whole, inverse[:num_coefficients, :num_coefficients], whole.T),
        log_likelihood=log_likelihood,
        gap=state.gap,
        num_iters=state.num_iters,
        converged=state.converged & usable & jnp.all(errors < LARGEST_STANDARD_ERROR),
        num_users=number,
        family=name,
        intercept=intercept,
    )
    return result, errors
