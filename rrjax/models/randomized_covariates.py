"""Regression of a randomized outcome on covariates of which some are randomized, too.

A user has known covariates x, beginning with a one, and randomized covariates. Their values are one cell c of a joint
table; z_c are its dummies. The model has two parts:

    log P(c | x) = a_c + Σ_{j>0} x_j·(G z_c)_j + constant,        log(P(y = k | x, c)/P(y = 0 | x, c)) = (x, z_c)·β_k.

The reports of a user are independent given (c, y). Their likelihood is the sum over all cells and outcomes of the two
probabilities and of the likelihood of each report.

With q the posterior of (c, y), g_ck = q_ck − q_c·π_ck is the slope in the logits of the outcome, and m_c = q_c −
P(c | x) that in the logits of the cells. The observed information is the complete one less the covariance of the
complete scores under q (Louis). All of it is sums of products of g, m, x and z: no user has a matrix of all parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_array, as_scalar, float_dtype, largest_gap
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.models.logistic import NO_DERIVATIVES
from rrjax.models.loss import MechanismOrEpsilon, rows_of
from rrjax.models.regression import (
    LARGEST_STANDARD_ERROR,
    Covariance,
    check_converged,
    check_determined,
    check_enough,
    sandwich,
)
from rrjax.models.results import (
    FitError,
    Regression,
    Units,
    as_clusters,
    as_covariates,
    as_list,
    as_weights,
    covariates_dtype,
    require,
    rounding_of,
    standardized,
)
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.sharding import refuse_spread, unsharded
from rrjax.numerics.solvers import (
    USERS_IN_BLOCK,
    View,
    added_up,
    ascended,
    blocks_of,
    cholesky_factor,
    cholesky_solve,
    without_derivative,
)
from rrjax.numerics.sums import accurate_sum, log_sum

MOST_STEPS = 200
MOST_CELLS = 512
"""Largest number of cells of the joint table of randomized covariates: Newton's method has a matrix of them."""
_NUMBERS_IN_BLOCK = 1 << 22
"""Largest number of numbers of the information of a block of users."""


def fit_randomized_covariates(
    covariates: ArrayLike | None,
    randomized: Sequence[tuple[ArrayLike, Mechanism]],
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    num_categories: int | None = None,
    left_out: Sequence[int] = (),
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    covariance: Covariance | None = None,
    ridge: ArrayLike = 0.0,
    prior: ArrayLike = 1.0,
) -> Regression:
    """Fits a multinomial logistic regression of the users' values on covariates that are randomized, too.

    A regression on the reports of a covariate gives too small coefficients, because a report is often not the value.
    Here the values of randomized covariates are latent variables. Their joint distribution is estimated with the
    coefficients: a free share for each combination of values, of which each column may depend on the known covariates
    (multinomial logistic, without interactions). The likelihood of all reports together is maximized by steps of EM
    and, near the maximum, of Newton's method.

    Args:
        covariates: `[N, D]`, known covariates as in `fit`; None if there are none. There is an intercept.
        randomized: For each randomized covariate its N reports and its mechanism. Its ε is its own.
        reports: N reports of the outcome. Reports that are numbers, here and in `randomized`, may be −1: missing. That
            a report is missing must not depend on values.
        mechanism_or_epsilon: As in `fit`, of the outcome.
        num_categories: As in `fit`.
        left_out: Coefficients that are zero for all categories: columns from 0, first the known covariates, then the
            dummies of the randomized ones. They remain in the distribution of the randomized covariates. This is the
            smaller model of `likelihood_ratio_test`.
        weights: As in `fit`.
        clusters: As in `fit`.
        covariance: "observed" or "sandwich", as in `fit`.
        ridge: As in `fit`, on the coefficients of the outcome.
        prior: Scalar, the weight of a prior on the distribution of the randomized covariates, in users: a Dirichlet
            prior on the cells at the mean of the known covariates, and a normal one with this precision on their
            slopes. Zero is maximum likelihood, which has no maximum if a cell is estimated as empty.

    Returns:
        `Regression`. Its covariates are the known ones, then for each randomized one the dummies of its categories but
        the first. `gain` is measured from the model in which no coefficient differs from zero, at its own maximum:
        twice the difference of gains is the likelihood-ratio statistic. `log_likelihood` is of the reports of all
        columns: compare it, and `aic`, with models that differ in `left_out` alone. The likelihood of latent variables
        may have several maxima. The search starts where the outcome does not depend on the covariates.

    Raises:
        ValueError: As `fit`; no randomized covariate, or more than 512 combinations of their values; a column without
            any report, or that nobody reports together with the outcome.
        FitError: As `fit`. Many categories at a small ε tell too little of the coefficients.
        NotImplementedError: `jax.vmap` spreads it over a mesh with explicit axes; `jax.shard_map` can. A derivative.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, fit_randomized_covariates
        >>> rng = np.random.default_rng(0)
        >>> drinks = (rng.random(20_000) < 0.4).astype(int)
        >>> smokes = (rng.random(20_000) < 1 / (1 + np.exp(1 - 1.5 * drinks))).astype(int)
        >>> mechanism = rrjax.RandomizedResponse(2, 1.5)
        >>> first, second = (mechanism.randomize(jax.random.key(k), v) for k, v in enumerate((drinks, smokes)))
        >>> as_if_true, fitted = (
        ...     fit(first, second, mechanism),
        ...     fit_randomized_covariates(None, [(first, mechanism)], second, mechanism),
        ... )
        >>> [f"{each.coefficients[1, 0]:.2f} ± {each.standard_errors[1, 0]:.2f}" for each in (as_if_true, fitted)]
        ['0.91 ± 0.05', '1.50 ± 0.08']

    References:
        van den Hout and Kooi, "Estimating the linear regression model with categorical covariates subject to randomized
        response", 2006; Louis, "Finding the observed information matrix when using the EM algorithm", 1982.
    """
    if covariance not in (None, "observed", "sandwich") or (clusters is not None and covariance == "observed"):
        expected = '"sandwich" with clusters' if clusters is not None else '"observed" or "sandwich"'
        raise ArgumentError.about("covariance", f"must be {expected}, got {covariance!r}", value=covariance)
    reports = refuse_spread(unsharded(reports), "fit_randomized_covariates")
    if covariates is None:
        covariates = np.zeros((as_array(reports, "reports").shape[0], 0), float_dtype())
    given = unsharded(as_covariates(covariates))
    dtype, number = covariates_dtype(given), given.shape[0]
    columns = _as_randomized(randomized)
    outcome, scale, answered = _rows(reports, mechanism_or_epsilon, num_categories, number, dtype, "reports")
    parts = [_rows(own, each, None, number, dtype, f"randomized[{place}]") for place, (own, each) in enumerate(columns)]
    known = [each[2] for each in parts]
    for place, each in enumerate(known):
        both = answered & each
        if not isinstance(both, Tracer) and not both.any():
            raise ArgumentError(
                f"nobody reports both the outcome and randomized[{place}]: no report tells how they go together",
                argument="randomized",
                value=place,
            )
    weights = as_weights(weights, number, dtype)
    weights = jnp.where(jnp.any(jnp.stack([answered, *known]), axis=0), weights, 0)
    standard, units = standardized(given, intercept=True)
    sizes = tuple(each.num_categories for _, each in columns)
    kept = _kept(left_out, standard.shape[1] - 1, sum(sizes) - len(sizes))
    num_clusters = None
    if clusters is not None:
        clusters, num_clusters = as_clusters(
            clusters, number, None if isinstance(weights, Tracer) else np.asarray(weights)
        )
    robust = clusters is not None or covariance == "sandwich"
    data = without_derivative(Data(standard, outcome, tuple(each[0] for each in parts), weights), NO_DERIVATIVES)
    scale = accurate_sum(weights * (scale + sum(each[1] for each in parts)))
    data = data if robust else _merged(data)
    ridge, prior = as_scalar(ridge, dtype, "ridge"), as_scalar(prior, dtype, "prior")
    for name, value in (("ridge", ridge), ("prior", prior)):
        if not isinstance(value, Tracer) and not 0 <= value < np.inf:
            raise ArgumentError(
                f"{name} must be a finite number, not negative; got {float(value):g}", argument=name, value=float(value)
            )
    if robust:
        known_weights = None if isinstance(weights, Tracer) else np.asarray(weights, np.float64)
        check_enough(len(kept) * (outcome.shape[1] - 1), num_clusters, known_weights)
    # Gains are sums of rows with many users, rounded with them; the last step goes much nearer than the goal.
    rounding = 4 * jnp.finfo(dtype).eps * jnp.sqrt(jnp.sum(data.weights**2))
    goal = jnp.maximum(largest_gap(jnp.sum(weights)), rounding)
    values = np.indices(sizes).reshape(len(sizes), -1)
    dummies = [own[:, None] == np.arange(1, size) for own, size in zip(values, sizes, strict=True)]
    dummies = jnp.asarray(np.concatenate(dummies, axis=1), dtype)
    given = data, scale, units, ridge, prior, clusters, dummies
    result, errors = _fitted(given, goal, kept, robust, num_clusters)
    if not isinstance(result.converged, Tracer):
        if np.isnan(errors).any() and int(result.num_iters) == MOST_STEPS:
            raise FitError(
                f"no maximum was found in {MOST_STEPS} steps. The reports may say next to nothing at this epsilon, or "
                "hardly anybody may have a category: merge categories, leave covariates out, or give a prior, such as "
                "ridge=0.1",
                reason="steps",
                number=MOST_STEPS,
            )
        check_determined(result, np.asarray(errors))
        check_converged(result)
    return result


def _merged(data: Data) -> Data:
    """Users with equal covariates and reports as one row; many are equal if no covariate is continuous."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(data)):
        return data
    table = np.concatenate([np.asarray(each) for each in (data.covariates, data.outcome, *data.randomized)], axis=1)
    _, first, place = np.unique(table, axis=0, return_index=True, return_inverse=True)
    if 2 * len(first) > len(table):
        return data
    weights = np.bincount(place.ravel(), weights=np.asarray(data.weights), minlength=len(first))
    rows = jax.tree.map(lambda leaf: leaf[first], data)
    return rows._replace(weights=jnp.asarray(weights, data.weights.dtype))


def _as_randomized(randomized: Any) -> list[tuple[Any, Mechanism]]:
    pairs = [tuple(as_list(each)) for each in as_list(randomized)]
    if not pairs or any(len(each) != 2 or not isinstance(each[1], Mechanism) for each in pairs):
        raise ArgumentError.about(
            "randomized",
            "must be a list of (reports, mechanism), one for each randomized covariate; without one use fit",
        )
    cells = int(np.prod([each.num_categories for _, each in pairs], dtype=float))
    if cells > MOST_CELLS:
        sizes = " × ".join(f"{each.num_categories:,}" for _, each in pairs)
        raise ArgumentError(
            f"the randomized covariates have {sizes} = {cells:,} combinations of values, more than {MOST_CELLS}: leave "
            "columns out, or merge categories before they are randomized",
            argument="randomized",
            value=cells,
        )
    return pairs


def _rows(reports, mechanism, num_categories, number, dtype, name):
    """The log-likelihood of each report, `[N, K]`, its scale `[N]`, and which reports are not missing `[N]`."""
    reports = as_array(reports, name)
    require(reports.shape[:1] == (number,), name, f"{number} reports, one for each user", reports)
    present = jnp.ones(number, bool)
    if reports.ndim == 1 and jnp.issubdtype(reports.dtype, jnp.signedinteger):
        # Of a column whose reports are numbers; those of other mechanisms are arrays.
        present = jnp.asarray(reports != -1)
        reports = (jnp if isinstance(reports, jax.Array) else np).where(reports == -1, 0, reports)
    if not isinstance(present, Tracer) and not present.any():
        raise ArgumentError(f"all reports of {name} are missing: leave the column out", argument=name)
    rows = rows_of(reports, mechanism, num_categories, number, dtype)
    likelihood = jnp.where(present[:, None], jnp.logaddexp(rows.base[:, None], rows.lift), 0)
    return likelihood, jnp.where(present, rows.scale, 0), present


def _kept(left_out: Sequence[int], num_known: int, num_randomized: int) -> tuple[int, ...]:
    """The columns of (x, z) with a coefficient; the intercept is the first."""
    number = num_known + num_randomized
    columns = [int(each) for each in np.atleast_1d(np.asarray(left_out, int))]
    if not all(0 <= each < number for each in columns):
        raise ArgumentError.about("left_out", f"must be columns from 0 to {number - 1}, got {left_out}", value=left_out)
    return tuple(place for place in range(number + 1) if place - 1 not in columns)


@partial(jax.jit, static_argnums=(2, 3, 4))
def _fitted(given, tol, kept, robust: bool, num_clusters: int | None):
    """The regression, and its standard errors; `scale` is the part of the log-likelihood common to all values."""
    data, scale, units, ridge, prior, clusters, dummies = given
    dtype, num_known, width = data.weights.dtype, data.covariates.shape[1], data.outcome.shape[1] - 1
    columns = (
        [place for place in kept if place < num_known],
        [place - num_known for place in kept if place >= num_known],
    )
    design = Design(dummies, *(np.asarray(each, int) for each in columns))
    num_cells, num_dummies = design.dummies.shape
    start = Parameters(
        jnp.zeros((len(kept), width), dtype), jnp.zeros(num_cells - 1, dtype),
        jnp.zeros((num_known - 1, num_dummies), dtype),
    )  # fmt: skip
    flat, unravel = ravel_pytree(start)
    most = max(1, min(USERS_IN_BLOCK, _NUMBERS_IN_BLOCK // (num_cells * (width + 1) ** 2)))

    def maximum(start, data, ridge):
        def log_prior(flat):
            coefficients, cells, slopes = unravel(flat)
            shares = jnp.concatenate([jnp.zeros(1, dtype), cells])
            of_cells = jnp.mean(shares) - log_sum(shares) - jnp.sum(slopes**2) / 2
            return prior * of_cells - ridge / 2 * jnp.sum(coefficients**2)

        blocks = blocks_of(data, most)
        look = partial(evaluated, unravel=unravel, blocks=blocks, design=design, log_prior=log_prior)
        return ascended(look, start, tol, MOST_STEPS)

    # First the randomized covariates alone: where the outcome tells nothing, a prior keeps its coefficients at zero.
    alone = maximum(flat, data._replace(outcome=jnp.zeros_like(data.outcome)), jnp.ones((), dtype))
    state = maximum(alone.parameters, data, ridge)
    coefficients = unravel(state.parameters).coefficients
    inverse = cholesky_solve(cholesky_factor(state.view.observed), jnp.eye(flat.size, dtype=dtype))
    gap = matmul(state.view.slope, inverse, state.view.slope) / 2
    gap = jnp.where(jnp.isnan(gap), state.gap, gap)  # the information is not positive: no maximum is near
    if robust:
        scores = jnp.concatenate(scores_of(posteriors(unravel(state.parameters), data, design), data, design), axis=1)
        scores = data.weights[:, None] * scores
        inverse = sandwich(scores, inverse, data.weights, clusters, num_clusters)
    covariance = inverse[: coefficients.size, : coefficients.size]
    errors = jnp.sqrt(jnp.diagonal(covariance)).reshape(coefficients.shape)
    number = data.weights.shape[0]
    each = state.view.log_probabilities[:number]
    log_likelihood = accurate_sum(each) + scale
    at_equal = data.weights * (log_sum(data.outcome) - jnp.log(jnp.asarray(width + 1, dtype)))
    gain = accurate_sum(each - alone.view.log_probabilities[:number] - at_equal)
    # The prior of the cells counts, that of the coefficients does not, as in `fit`.
    gain += state.view.log_prior - alone.view.log_prior + ridge / 2 * jnp.sum(coefficients**2)
    usable = jnp.isfinite(log_likelihood) & (jnp.min(data.weights) >= 0) & (ridge >= 0) & (prior >= 0)
    shift, scales = (
        jnp.concatenate([own, jnp.full(num_dummies, fill, dtype)])[np.asarray(kept)]
        for own, fill in zip(units, (0, 1), strict=True)
    )
    result = Regression(
        standard_coefficients=jnp.where(usable, coefficients, jnp.nan),
        standard_covariance=jnp.where(usable, covariance, jnp.nan),
        units=Units(shift, scales),
        log_likelihood=log_likelihood,
        gain=gain,
        gap=gap,
        num_iters=state.num_iters,
        converged=state.converged & (gap <= tol) & usable & jnp.all(errors < LARGEST_STANDARD_ERROR),
        num_users=jnp.sum(data.weights),
        intercept=True,
        robust=robust,
        num_clusters=num_clusters,
        rounding=rounding_of(each, data.weights),
    )
    return result, errors


class Data(NamedTuple):
    """Standardized covariates `[N, D]`, log-likelihoods `[N, K]` of outcome and randomized ones, and weights `[N]`."""

    covariates: Float[Array, "N D"]
    outcome: Float[Array, "N K"]
    randomized: tuple[Float[Array, "N K_j"], ...]
    weights: Float[Array, " N"]


class Parameters(NamedTuple):
    """Coefficients of the outcome, `[D + E, k]`; logits of the cells but the first, `[H − 1]`, and slopes, `[D, E]`."""

    coefficients: Float[Array, "M k"]
    cells: Float[Array, " h"]
    slopes: Float[Array, "d E"]


class Design(NamedTuple):
    """Dummies of each cell `[H, E]`, and the columns of x and of z with a coefficient."""

    dummies: Float[Array, "H E"]
    of_known: np.ndarray
    of_randomized: np.ndarray


class Posteriors(NamedTuple):
    """Shares of outcomes π `[N, H, K]` and cells `[N, H]`, slopes in their logits, and the log-likelihood of a user."""

    shares: Float[Array, "N H K"]
    of_cells: Float[Array, "N H"]
    slope: Float[Array, "N H k"]
    slope_of_cells: Float[Array, "N H"]
    log_probabilities: Float[Array, " N"]


def posteriors(parameters: Parameters, data: Data, design: Design) -> Posteriors:
    """The distribution of each user's cell and outcome, before and after the reports."""
    x, z = data.covariates, design.dummies
    by_known, by_randomized = jnp.split(parameters.coefficients, [len(design.of_known)])
    logits = matmul(x[:, design.of_known], by_known)[:, None] + matmul(z[:, design.of_randomized], by_randomized)
    logits = jnp.concatenate([jnp.zeros_like(logits[..., :1]), logits], axis=-1)
    log_shares = logits - log_sum(logits)[..., None]
    cells = jnp.concatenate([jnp.zeros_like(parameters.cells[:1]), parameters.cells])
    cells = cells + matmul(x[:, 1:], parameters.slopes, z.T)
    log_cells = cells - log_sum(cells)[:, None]
    of_reports = jnp.zeros_like(x[:, :1])
    for rows in data.randomized:
        of_reports = (of_reports[:, :, None] + rows[:, None, :]).reshape(x.shape[0], -1)
    terms = (log_cells + of_reports)[:, :, None] + log_shares + data.outcome[:, None, :]
    total = log_sum(terms.reshape(x.shape[0], -1))
    posterior = jnp.exp(terms - total[:, None, None])
    shares, of_cells, whole = jnp.exp(log_shares), jnp.exp(log_cells), jnp.sum(posterior, axis=2)
    slope = (posterior - whole[..., None] * shares)[..., 1:]
    return Posteriors(shares, of_cells, slope, whole - of_cells, total)


def _of_cells(numbers: Float[Array, "N H"], data: Data, design: Design) -> Float[Array, "N A"]:
    """Σ_c numbers_c times the features of the cells' logits: one for each cell but the first, and x ⊗ z_c."""
    slopes = data.covariates[:, 1:, None] * matmul(numbers, design.dummies)[:, None, :]
    return jnp.concatenate([numbers[:, 1:], slopes.reshape(slopes.shape[0], -1)], axis=1)


def scores_of(posterior: Posteriors, data: Data, design: Design) -> tuple[Float[Array, "N B"], Float[Array, "N A"]]:
    """Each user's slope in the coefficients, and in the parameters of the cells; without weights."""
    number = data.weights.shape[0]
    known = data.covariates[:, design.of_known, None] * jnp.sum(posterior.slope, axis=1)[:, None, :]
    randomized = einsum("nck,ce->nek", posterior.slope, design.dummies[:, design.of_randomized])
    of_outcome = jnp.concatenate([known, randomized], axis=1).reshape(number, -1)
    return of_outcome, _of_cells(posterior.slope_of_cells, data, design)


def _of_outcome(each: Float[Array, "N H k k"], data: Data, design: Design) -> Float[Array, "B B"]:
    """Information on the logits of the outcome, as information on the coefficients."""
    x, z = data.covariates[:, design.of_known], design.dummies[:, design.of_randomized]
    each = data.weights[:, None, None, None] * each
    first = einsum("nij,nd,ne->diej", jnp.sum(each, axis=1), x, x)
    cross = einsum("neij,nd->diej", einsum("ncij,ce->neij", each, z), x)
    last = einsum("cij,cd,ce->diej", jnp.sum(each, axis=0), z, z)
    upper = jnp.concatenate([first, cross], axis=2)
    lower = jnp.concatenate([cross.transpose(2, 3, 0, 1), last], axis=2)
    whole = jnp.concatenate([upper, lower])
    return whole.reshape(whole.shape[0] * whole.shape[1], -1)


def _squares(numbers: Float[Array, "N H"], data: Data, design: Design) -> Float[Array, "A A"]:
    """Σ_n w Σ_c numbers_nc times the outer product of the features of cell c."""
    x, z, numbers = data.covariates[:, 1:], design.dummies, data.weights[:, None] * numbers
    size = x.shape[1] * z.shape[1]
    cross = einsum("cd,ce->cde", matmul(numbers.T, x), z).reshape(z.shape[0], size)[1:]
    pairs = einsum("nc,ce,cg->neg", numbers, z, z)
    last = einsum("nd,nf,neg->defg", x, x, pairs).reshape(size, size)
    return jnp.block([[jnp.diag(jnp.sum(numbers, axis=0)[1:]), cross], [cross.T, last]])


def _products(posterior: Posteriors, data: Data, design: Design) -> Float[Array, "B A"]:
    """Σ_n w Σ_c (x, z_c) ⊗ g_c ⊗ the features of cell c."""
    x, rest = data.covariates[:, design.of_known], data.covariates[:, 1:]
    z, kept = design.dummies, design.dummies[:, design.of_randomized]
    slope = data.weights[:, None, None] * posterior.slope
    width = z.shape[1] * rest.shape[1]
    with_cells = jnp.concatenate([
        einsum("nck,nd->dkc", slope, x), einsum("ck,ce->ekc", jnp.sum(slope, axis=0), kept)
    ])  # fmt: skip
    on_known = einsum("nkh,nd,nf->dkfh", einsum("nck,ch->nkh", slope, z), x, rest)
    on_randomized = einsum("nekh,nf->ekfh", einsum("nck,ce,ch->nekh", slope, kept, z), rest)
    with_slopes = jnp.concatenate([on_known, on_randomized]).reshape(*with_cells.shape[:2], width)
    whole = jnp.concatenate([with_cells[..., 1:], with_slopes], axis=2)
    return whole.reshape(-1, whole.shape[2])


def evaluated(flat, unravel, blocks: Data, design: Design, log_prior) -> View:
    """The log-likelihood and its derivatives at some parameters."""
    parameters = unravel(flat)

    def of_block(data):
        posterior = posteriors(parameters, data, design)
        weights = data.weights[:, None]
        pi, g, p, m = posterior.shares[..., 1:], posterior.slope, posterior.of_cells, posterior.slope_of_cells
        diagonal = jnp.eye(pi.shape[2], dtype=pi.dtype)
        cross = g[..., :, None] * pi[..., None, :]
        missing = cross + cross.swapaxes(2, 3) - g[..., :, None] * diagonal
        complete = (p + m)[..., None, None] * (pi[..., :, None] * diagonal - pi[..., :, None] * pi[..., None, :])
        score, score_of_cells = scores_of(posterior, data, design)
        expected = _of_cells(p, data, design)
        first = _of_outcome(missing, data, design) + matmul(score.T, weights * score)
        corner = matmul(score.T, weights * (expected + score_of_cells)) - _products(posterior, data, design)
        mixed = matmul(expected.T, weights * score_of_cells)
        last = mixed + mixed.T + matmul(score_of_cells.T, weights * score_of_cells) - _squares(m, data, design)
        known = _squares(p, data, design) - matmul(expected.T, weights * expected)
        sums = (
            jnp.sum(weights * jnp.concatenate([score, score_of_cells], axis=1), axis=0),
            jnp.block([[first, corner], [corner.T, last]]),
            jax.scipy.linalg.block_diag(_of_outcome(complete, data, design), known),
        )
        return sums, data.weights * posterior.log_probabilities

    (slope, observed, complete), each = added_up(of_block, blocks, flat)
    more = -jax.hessian(log_prior)(flat)
    return View(each, log_prior(flat), slope + jax.grad(log_prior)(flat), observed + more, complete + more)
