"""A sensitive answer, seen through its randomized report, as a covariate of another outcome that is seen as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_tolerance, is_real
from rrjax.data.checks import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.models.data import as_data
from rrjax.models.fitted import back_of
from rrjax.models.logistic import Data, curvatures, maximum, on_coefficients, posteriors
from rrjax.models.loss import MechanismOrEpsilon
from rrjax.models.refusals import FitError
from rrjax.models.regression import LOST
from rrjax.numerics.newton import View, added_up, ascended, blocks_of, factored, solved
from rrjax.numerics.pytrees import register
from rrjax.numerics.sharding import refuse_spread
from rrjax.numerics.sums import accurate_sum, log_sum

Family: TypeAlias = Literal["normal", "binary", "counts"]


@register(
    data_fields=[
        "coefficients", "answer_coefficients", "scale", "covariance", "log_likelihood", "gap", "num_iters", "converged",
        "num_users",
    ],
    meta_fields=["family", "intercept"],
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class OutcomeRegression:
    """What `fit_outcome` found. A pytree; under `vmap` every leaf has the batch in front.

    Attributes:
        coefficients: `[D + K − 1]`, of the outcome's linear predictor: the intercept, if there is one, the covariates,
            and last what categories 1 … K − 1 of the answer add to category 0.
        answer_coefficients: `[D, K − 1]`, of the answer on the covariates, as in `Regression`.
        scale: Scalar, standard deviation of a normal outcome about its mean; one for other families.
        covariance: `[D + K − 1, D + K − 1]`, of `coefficients`, the rest being estimated too.
        log_likelihood: Scalar, nats, of outcomes and reports together.
        gap: Scalar, nats of all users that the maximum is above that, near it.
        num_iters: Scalar.
        converged: Scalar.
        num_users: Scalar, the sum of the weights.
        family: Of the outcome. Static.
        intercept: Whether there is one. Static.
    """

    coefficients: Float[Array, " C"]
    answer_coefficients: Float[Array, "D k"]
    scale: Float[Array, ""]
    covariance: Float[Array, "C C"]
    log_likelihood: Float[Array, ""]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]
    num_users: Float[Array, ""]
    family: Family
    intercept: bool

    @property
    def standard_errors(self) -> Float[Array, " C"]:
        """Of each coefficient, `[D + K − 1]`."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))


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
    tol: float | None = None,
    max_iters: int = 500,
) -> OutcomeRegression:
    """Fits a regression of an outcome on covariates and on an answer that is known by its randomized report alone.

    Plain regression on the reports would find too little: a report is often not the answer. Here the answer is a hidden
    variable. Its model is the multinomial regression of `fit` on the same covariates, the outcome's is linear in
    covariates and answer, and the likelihood of reports and outcomes together is maximized over both, by the steps of
    EM and, near the maximum, Newton's. What the outcome says about the answer counts, too.

    Args:
        outcome: `[N]`, numbers; zero or one for "binary", whole and not negative for "counts".
        covariates: `[N, D]`, as in `fit`.
        reports: As in `fit`.
        mechanism_or_epsilon: As in `fit`.
        family: "normal", with the identity link and a common standard deviation; "binary", with the logistic one; or
            "counts", Poisson with the logarithm.
        num_categories: As in `fit`.
        weights: `[N]`, how many users each row stands for.
        intercept: Whether there is one, in both models.
        tol: As in `fit`.
        max_iters: Most steps.

    Returns:
        `OutcomeRegression`. The likelihood of a hidden variable may have several maxima: this is one near that at which
        the answer tells nothing of the outcome.

    Raises:
        ValueError: As `fit`; outcomes that are none of the family, with the row.
        NotImplementedError: `jax.vmap` spreads it over a mesh with explicit axes; `jax.shard_map` can. A derivative.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit_outcome
        >>> rng = np.random.default_rng(0)
        >>> age = rng.normal(size=20_000)
        >>> holds = (rng.random(20_000) < 1 / (1 + np.exp(-age))).astype(int)
        >>> income = 2 + 0.5 * age - 1.0 * holds + rng.normal(size=20_000)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), holds)
        >>> found = fit_outcome(income, age, reports, 1.0, num_categories=2)
        >>> away = (found.coefficients - np.array([2, 0.5, -1.0])) / found.standard_errors
        >>> bool(abs(away).max() < 3), bool(found.standard_errors[2] < 0.05)
        (True, True)

    References:
        Blair, Imai and Zhou, "Design and analysis of the randomized response technique", 2015, section 3.3 (two
        categories); Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", 1977.
    """
    if family not in get_args(Family):
        raise ArgumentError(
            f"family must be one of {', '.join(get_args(Family))}; got {family!r}", argument="family", value=family
        )
    max_iters = as_integer(max_iters, "max_iters", 1)
    reports = refuse_spread(reports, "fit_outcome")
    data, units = as_data(covariates, reports, mechanism_or_epsilon, num_categories, weights, intercept)
    outcome = _as_outcome(outcome, data.weights.shape[0], family)
    outcome, centre, spread = _standardized(outcome, data.weights, family == "normal", intercept)
    goal = as_tolerance(tol, jnp.sum(data.weights))
    result, errors = _fitted(outcome, centre, spread, data, units, goal, max_iters, (family, intercept))
    if not isinstance(result.converged, Tracer):
        _check(result, np.asarray(errors))
    return result


def _as_outcome(outcome, number, family) -> Any:
    outcome = outcome if isinstance(outcome, jax.Array) else np.asarray(outcome)
    if outcome.shape != (number,) or not (is_real(outcome) or outcome.dtype == bool):
        raise ArgumentError(
            f"outcome must be numbers of shape [{number}], got {outcome.dtype} of {tuple(outcome.shape)}",
            argument="outcome",
        )
    if not isinstance(outcome, Tracer):
        known = np.asarray(outcome, np.float64)
        right = {
            "normal": np.isfinite(known),
            "binary": np.isin(known, (0, 1)),
            "counts": np.isfinite(known) & (known >= 0) & (known == np.floor(known)),
        }[family]
        what = {"normal": "a number", "binary": "0 or 1", "counts": "a whole number, not negative"}[family]
        wrong = np.flatnonzero(~right)
        if wrong.size:
            raise ArgumentError(
                f"row {wrong[0]} of outcome is {known[wrong[0]]:g}: one of the family {family!r} is {what}",
                argument="outcome",
                row=int(wrong[0]),
                value=float(known[wrong[0]]),
            )
        if (known == known[0]).all():
            raise ArgumentError(
                f"outcome is {known[0]:g} for everybody: nothing can be told about what it depends on",
                argument="outcome",
                value=float(known[0]),
            )
    return outcome


def _standardized(outcome, weights, scaled, intercept):
    """A normal outcome in units of its own, in double precision where it is known; and its centre and scale."""
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
    """Of a family, at a linear predictor: the log-density of an outcome, its information, and the link's inverse."""

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
    """Of both models: `[D]`, `[k]`, scalar, `[D, k]`."""

    linear: Array
    answers: Array
    log_scale: Array
    coefficients: Array

    @property
    def flat(self) -> Array:
        """All, one after another."""
        return jnp.concatenate([jnp.ravel(leaf) for leaf in self])

    def like(self, flat: Array) -> _Parameters:
        """The same from one vector."""
        ends = np.cumsum([leaf.size for leaf in self])[:-1]
        return _Parameters(*(part.reshape(leaf.shape) for part, leaf in zip(jnp.split(flat, ends), self, strict=True)))


def _predictors(at: _Parameters, data: Data) -> Array:
    """Of every user and answer, `[N, K]`."""
    return (data.covariates @ at.linear)[:, None] + jnp.concatenate([jnp.zeros_like(at.answers[:1]), at.answers])


def _log_terms(at: _Parameters, outcome, data: Data, family: _Family):
    """Log-probability of outcome, report and each answer, `[N, K]`, but for the report's scale."""
    log_shares = posteriors(at.coefficients, data.covariates, data.rows).log_shares
    densities = family.log_density(outcome[:, None], _predictors(at, data), at.log_scale)
    return log_shares + densities + jnp.logaddexp(data.rows.base[:, None], data.rows.lift)


def _look(at: _Parameters, blocks, family: _Family, scaled: bool) -> View:
    flat = at.flat

    def log_probabilities(flat, outcome, data):
        return data.weights * (data.rows.scale + log_sum(_log_terms(at.like(flat), outcome, data, family)))

    def total(flat, outcome, data):
        return jnp.sum(log_probabilities(flat, outcome, data))

    def part(block):
        outcome, data = block
        sums = jax.grad(total)(flat, outcome, data), -jax.hessian(total)(flat, outcome, data)
        complete = _complete(at, outcome, data, family)
        return (*sums, complete), log_probabilities(flat, outcome, data)

    (slope, observed, complete), seen = added_up(part, blocks, flat)
    # Without a scale of its own, one unit of information holds it where it is.
    held = jnp.zeros_like(observed) if scaled else jnp.diag(_Parameters(*(0 * leaf for leaf in at))._replace(
        log_scale=jnp.ones_like(at.log_scale)
    ).flat)  # fmt: skip
    return View(seen, jnp.zeros_like(at.log_scale), slope, observed + held, complete + held)


def _complete(at: _Parameters, outcome, data: Data, family: _Family) -> Array:
    """Information were the answers known, as their posteriors have it."""
    terms = _log_terms(at, outcome, data, family)
    weight = data.weights[:, None] * jnp.exp(terms - log_sum(terms)[:, None])
    weight = weight * family.information(_predictors(at, data), at.log_scale)
    x = data.covariates
    whole = jnp.einsum("nk,nd,ne->de", weight, x, x)
    cross = jnp.einsum("nk,nd->dk", weight[:, 1:], x)
    first = jnp.block([[whole, cross], [cross.T, jnp.diag(jnp.sum(weight[:, 1:], axis=0))]])
    last = on_coefficients(curvatures(posteriors(at.coefficients, x, data.rows))[1], data)
    scale = 2 * jnp.sum(data.weights)[None, None]
    return jax.scipy.linalg.block_diag(first, scale, last)


@partial(jax.jit, static_argnums=(6, 7))
def _fitted(outcome, centre, spread, data: Data, units, tol, max_iters, settings: tuple[Family, bool]):
    name, intercept = settings
    family, scaled = _FAMILIES[name], name == "normal"
    dtype, number = data.weights.dtype, jnp.sum(data.weights)
    blocks = blocks_of((outcome, data))
    size, width = data.covariates.shape[1], data.rows.lift.shape[1] - 1
    linear = jnp.zeros(size, dtype)
    if intercept and not scaled:
        linear = linear.at[0].set(family.link(jnp.sum(data.weights * outcome) / number))
    answers = maximum(data, jnp.asarray(1e-3, dtype), tol, 50).parameters  # a prior, lest the start runs off
    start = _Parameters(linear, jnp.zeros(width, dtype), jnp.zeros((), dtype), answers.reshape(size, width))
    state = ascended(lambda flat: _look(start.like(flat), blocks, family, scaled), start.flat, tol, max_iters)
    at = start.like(state.parameters)
    inverse = solved(factored(state.view.observed), jnp.eye(start.flat.size, dtype=dtype))
    back = back_of(units, intercept)
    whole = jax.scipy.linalg.block_diag(back, jnp.eye(width, dtype=dtype)) * spread
    here = size + width
    coefficients = whole @ jnp.concatenate([at.linear, at.answers])
    log_likelihood = accurate_sum(state.view.log_probabilities) - number * jnp.log(spread)
    errors = jnp.sqrt(jnp.diagonal(inverse))
    # No report that cannot be, and no ε: with them only the sum is NaN, and the iteration never moved.
    usable = jnp.isfinite(log_likelihood) & (jnp.min(data.weights) >= 0)
    nothing = jnp.where(usable, jnp.zeros((), dtype), jnp.nan)
    result = OutcomeRegression(
        coefficients=nothing + (coefficients.at[0].add(centre) if intercept else coefficients),
        answer_coefficients=nothing + back @ at.coefficients,
        scale=jnp.exp(at.log_scale) * spread,
        covariance=nothing + whole @ inverse[:here, :here] @ whole.T,
        log_likelihood=log_likelihood,
        gap=state.gap,
        num_iters=state.num_iters,
        converged=state.converged & usable & jnp.all(errors < LOST),
        num_users=number,
        family=name,
        intercept=intercept,
    )
    return result, errors


def _check(result: OutcomeRegression, errors: Any) -> None:
    """Raises where there is no maximum."""
    size = np.max(errors)
    if bool(result.converged):
        return
    error = f"a standard error is {size:.3g} on standardized covariates" if np.isfinite(size) else "no information"
    raise FitError(
        f"no maximum was found in {int(result.num_iters)} steps ({error}). The reports may say next to nothing at this "
        "epsilon, none may speak for a category, or a covariate separates the outcomes: merge categories, leave "
        "covariates out, or give a larger max_iters",
        reason="steps" if np.isfinite(size) and size < LOST else "unbounded",
        number=int(result.num_iters),
    )
