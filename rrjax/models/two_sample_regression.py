"""Logistic regression of a sensitive answer from two samples, with the second unknown share of their design.

A respondent has the attribute with probability π(x) and, independently of it given the covariates, a second property
with probability c(z): not to follow the rule, or a yes to the unrelated question.

    log((1 − π)/π) = x·β,    log(c/(1 − c)) = z·δ,    P(yes in sample s) = Σ_ab P(a)·P(b)·m_sab

With k as in `rrjax.mechanisms.TwoSamples`:

    CheatingDetection, SelfProtection, AnchoredCrosswise    k = ((1 − c)π, (1 − c)(1 − π), c)
    StochasticLieDetector                                   k = ((1 − c)π, 1 − π, cπ)
    UnrelatedQuestionTwoSamples                             k = (π, c, 1 − π − c)

So π is the share among those who follow the rule, and for the last two designs among all. Shares are shares for any β
and δ. A logit of the share of all would not do for cheating detection: beside a constant c it leaves π(x) + c ≤ 1.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.nn import sigmoid
from jax.scipy.linalg import block_diag
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_probability, as_scalar, as_values, largest_gap
from rrjax.data.errors import ArgumentError
from rrjax.inference import compliance, unrelated_question
from rrjax.mechanisms import Compliance, StochasticLieDetector, TwoSamples
from rrjax.models.logistic import as_data
from rrjax.models.regression import (
    LARGEST_STANDARD_ERROR,
    MOST_STEPS,
    check_converged,
    check_determined,
    check_enough,
    sandwich,
)
from rrjax.models.results import (
    MOST_ROUNDING,
    FitError,
    Regression,
    as_clusters,
    as_covariates,
    p_value,
    require,
    rounding_of,
    standardized,
)
from rrjax.numerics import solvers
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.pytrees import exportable, pytree
from rrjax.numerics.sharding import refuse_spread
from rrjax.numerics.sums import accurate_sum

_AT_BOUNDARY = 1e-5
"""A constant second share counts as zero below it, and as one above its complement: its log-odds diverge there."""
_NOBODY = -60.0
"""Log-odds of a second share of zero."""
_NOTHING_KNOWN = 0.5
"""Standard error of a second share from which on the answers say nothing about it."""
_LONGEST = 2.0
"""Largest change of the coefficients of standardized covariates by a step, log-odds."""
_CONTRADICTION = 0.01
"""p-value of the test of fit up to which an error names it as the cause."""
_FARTHEST, _HALVINGS = 64.0, 22
"""Where a profile is searched for limits, in half-widths of Wald's interval, and by how many halvings."""


@exportable
class _Data(NamedTuple):
    """Standardized covariates of both shares, the probability of each answer by a and b, and weights."""

    covariates: Float[Array, "N D"]
    nuisance: Float[Array, "N M"]
    chance: Float[Array, "N 2 2"]
    weights: Float[Array, " N"]


@pytree("intercept", "robust", "num_clusters", kw_only=True)
class TwoSampleRegression(Regression):
    """A regression by `fit` from two samples. A pytree. `coefficients` are log-odds of a no, as of any `Regression`.

    Attributes:
        naive: `[D, 1]`, the coefficients if everybody followed the rule; NaN for the unrelated question.
        nuisance: Scalar, the mean of the second share: of respondents who do not follow the rule; of those with the
            attribute who say no (stochastic lie detector); or of a yes to the unrelated question.
        nuisance_error: Scalar, its standard error; NaN where it is estimated as zero or one.
        nuisance_coefficients: `[M]`, coefficients of its log-odds, the intercept first.
        nuisance_standard_errors: `[M]`, their standard errors.
        statistic: Scalar, twice the log-likelihood with a constant second share less that without it. With a sandwich
            divided by how many times as large the variance of its score is as without weights and clusters. NaN where
            rounding moves it by more than 0.5: in float32, with weights that are counts of some hundred thousand.
        p_value: Scalar, of the hypothesis that everybody follows the rule; with clusters by F. NaN for the unrelated
            question. It leaves the prior out, so that a strong one (`ridge`) changes its size.
        state: For profiles: the standardized coefficients of both shares, the matrix that turns them into those on the
            covariates as given, the precision of their prior, and the data.
    """

    naive: Float[Array, "D 1"]
    nuisance: Float[Array, ""]
    nuisance_error: Float[Array, ""]
    nuisance_coefficients: Float[Array, " M"]
    nuisance_standard_errors: Float[Array, " M"]
    statistic: Float[Array, ""]
    p_value: Float[Array, ""]
    state: tuple[Array, Array, Array, _Data]

    @property
    def num_parameters(self) -> int:
        """The number of coefficients of both shares, P."""
        return self.state[0].shape[-1]

    def profile_intervals(self, level: ArrayLike = 0.95) -> Float[Array, "P 2"]:
        """Profile likelihood intervals of `coefficients` and then of `nuisance_coefficients`.

        Args:
            level: Scalar in (0, 1).

        Returns:
            `[P, 2]`; infinite on a side where no value is less likely by as much.

        Raises:
            ArgumentError: A sandwich or a prior: there is no likelihood with a χ² law.
        """
        point, _, prior, _ = self.state
        if self.robust or (not isinstance(prior, Tracer) and np.any(np.asarray(prior))):
            raise ArgumentError.about("level", "is of a likelihood, which has no χ² law with a sandwich or a prior")
        return _profile(self, ndtri((1 + as_probability(level, "level", 0.95)) / 2).astype(point.dtype))


def fit_two_samples(covariates: ArrayLike, answers: ArrayLike, design: Any, **how: Any) -> TwoSampleRegression:
    """See `fit`; `how` are its other arguments."""
    sample, nuisance, clusters, covariance = (how[name] for name in ("sample", "nuisance", "clusters", "covariance"))
    intercept, robust = how["intercept"], clusters is not None or covariance == "sandwich"
    if not isinstance(design, TwoSamples):
        raise ArgumentError.about("sample", f"is of a design of two samples, such as CheatingDetection; got {design!r}")
    if sample is None:
        raise ArgumentError.about("sample", f"is missing: {design.name} has two samples, 0 or 1 for each row")
    if covariance not in (None, "sandwich") and (robust or covariance != "observed"):
        raise ArgumentError.about(
            "covariance", f'must be "observed", or "sandwich" (with clusters); got {covariance!r}'
        )
    # The answers are checked as those of a mechanism.
    plain, units = as_data(covariates, refuse_spread(answers, "fit"), 1.0, 2, how["weights"], intercept)
    weights, number, dtype = plain.weights, len(plain.weights), plain.weights.dtype
    second = np.zeros((number, 0), dtype) if nuisance is None else as_covariates(nuisance)
    sample, answers = (jnp.asarray(each, jnp.int32) for each in (as_values(sample, 2, "sample"), answers))
    for name, each in (("sample", sample), ("nuisance", second)):
        require(each.shape[:1] == (number,), name, f"{number} rows, those of covariates", each)
    known = None if isinstance(weights, Tracer) else np.asarray(weights, np.float64)
    if known is not None and not isinstance(sample, Tracer):
        empty = next((each for each in (0, 1) if not known[np.asarray(sample) == each].any()), None)
        if empty is not None:
            raise ArgumentError.about("sample", f"has nobody in sample {empty}: only both tell the two shares apart")
    others, other_units = standardized(second, intercept=True)
    size, width, num_clusters = plain.covariates.shape[1], others.shape[1], None
    if clusters is not None:
        clusters, num_clusters = as_clusters(clusters, number, known)
    if robust:
        check_enough(size + width, num_clusters, known)
    table, kinds = _table(design).astype(dtype), 2 * sample + answers
    data = _Data(plain.covariates, others.astype(dtype), table[kinds], weights)
    back = block_diag(units.back_transform(intercept), other_units.back_transform(True).astype(dtype))
    prior = jnp.where(jnp.arange(size + width) < size, as_scalar(how["ridge"], dtype, "ridge"), 0)
    counts = jax.ops.segment_sum(weights, kinds, num_segments=4).reshape(2, 2)
    static = isinstance(design, Compliance), intercept, robust, num_clusters
    result, errors = _fitted((back, prior, data), units, counts, table, clusters, static)
    if not isinstance(result.converged, Tracer) and not result.converged:
        _explain(result, np.asarray(errors), design, np.bincount(np.asarray(kinds), minlength=4).reshape(2, 2))
    return result


def _table(design: TwoSamples) -> Float[Array, "4 2 2"]:
    """The probability of an answer by 2·sample + answer (0 is yes), by a (0 has the attribute) and b."""
    first, second, third = design.yes.T
    cells = [[first, third], [second, third]]
    if isinstance(design, StochasticLieDetector):
        cells = [[first, third], [second, second]]
    elif not isinstance(design, Compliance):
        cells = [[first, first + second], [third, second]]
    yes = jnp.moveaxis(jnp.asarray(cells), -1, 0)
    return jnp.stack([yes, 1 - yes], axis=1).reshape(4, 2, 2)


def _logits(point, data: _Data) -> Float[Array, "N 2"]:
    size = data.covariates.shape[1]
    return jnp.stack([matmul(data.covariates, point[:size]), matmul(data.nuisance, point[size:])], axis=1)


@jax.custom_jvp
def _share(logit):
    """The logistic function, whose derivatives have all digits near one as well, where 1 − share would have few."""
    return sigmoid(logit)


@_share.defjvp
def _share_jvp(primals, tangents):
    (logit,), (tangent,) = primals, tangents
    return _share(logit), _share(logit) * _share(-logit) * tangent


def _log_chance(logits, chance):
    """The log-probability of an answer."""
    a, b = jnp.stack([_share(-logits), _share(logits)], axis=-1)
    return jnp.log(matmul(a, matmul(chance, b)))


def _view(point, data: _Data, prior) -> solvers.View:
    """The log-likelihood of all, less the prior, and its derivatives."""

    def of_block(block):
        logits, sides, weights = _logits(point, block), (block.covariates, block.nuisance), block.weights
        # Rows that fill up a block have no probabilities.
        given = logits, jnp.where(weights[:, None, None] > 0, block.chance, 1)
        logs, slopes, seconds = (
            jax.vmap(f)(*given) for f in (_log_chance, jax.grad(_log_chance), jax.hessian(_log_chance))
        )
        variances = sigmoid(logits) * sigmoid(-logits)

        def summed(values, i, j):
            return einsum("n,nd,ne->de", weights * values, sides[i], sides[j])

        slope = jnp.concatenate([matmul(sides[i].T, weights * slopes[:, i]) for i in (0, 1)])
        observed = jnp.block([[-summed(seconds[:, i, j], i, j) for j in (0, 1)] for i in (0, 1)])
        complete = block_diag(*(summed(variances[:, i], i, i) for i in (0, 1)))
        return (slope, observed, complete), weights * logs

    (slope, observed, complete), each = solvers.added_up(of_block, solvers.blocks_of(data), point)
    log_prior, ridge = -jnp.sum(prior * point**2) / 2, jnp.diag(prior)
    return solvers.View(each, log_prior, slope - prior * point, observed + ridge, complete + ridge)


def _tolerance(weights):
    """The largest gap of a maximum: steps that gain less than rounding cannot be told from steps that lose."""
    return jnp.maximum(largest_gap(jnp.sum(weights)), jnp.finfo(weights.dtype).eps * jnp.sqrt(jnp.sum(weights**2)))


def _maximum(frame, offset, start, given, tol):
    """The maximum over offset + frame·φ, its view in φ, and the number of steps; `given` is prior and data."""
    # A column of zeros is that of a coefficient that is held; and a share that underflows has no curvature.
    (prior, data), nothing = given, jnp.finfo(frame.dtype).tiny ** 0.5
    held = jnp.diag(jnp.where(jnp.all(frame == 0, axis=0), 1, nothing).astype(frame.dtype))

    def look(part):
        view = _view(offset + matmul(frame, part), data, prior)
        observed, complete = (matmul(frame.T, each, frame) + held for each in (view.observed, view.complete))
        return view._replace(slope=matmul(frame.T, view.slope), observed=observed, complete=complete)

    state = solvers.ascended(look, start, tol, MOST_STEPS["newton"], _LONGEST)
    logs = state.view.log_probabilities[: len(data.weights)]
    view = state.view._replace(log_probabilities=logs)
    return offset + matmul(frame, state.parameters), view, state.num_iters, state.converged


def _start(counts, table):
    """Log-odds of both shares: the best point of a grid, because the equations may have their solution outside."""
    grid = (jnp.arange(25, dtype=counts.dtype) + 0.5) / 25
    sides = jnp.stack([grid, 1 - grid], axis=1)
    chance = einsum("kab,ia,jb->ijk", table, sides, sides[:, ::-1])
    place = jnp.argmax(jnp.sum(counts.ravel() * jnp.log(chance), axis=-1))
    first, second = grid[place // 25], grid[place % 25]
    return jnp.log((1 - first) / first), jnp.log(second / (1 - second))


@partial(jax.jit, static_argnums=5)
def _fitted(given, units, counts, table, clusters, static):
    """The regression, and standard errors `[P]` of the coefficients of standardized covariates."""
    (follows, intercept, robust, num_clusters), (back, prior, data) = static, given
    count, size, number, tol = len(back), data.covariates.shape[1], jnp.sum(data.weights), _tolerance(data.weights)
    unit, nowhere = jnp.eye(count, dtype=back.dtype), jnp.zeros(count, back.dtype)
    first, second = _start(counts, table)
    start = nowhere.at[0].set(first * int(intercept)).at[size].set(second)
    # All coefficients; a constant second share; none. A second share of covariates has no direction where it is zero,
    # so that the test compares the other two.
    frames = jnp.stack([jnp.where(jnp.arange(count) < most, unit, 0) for most in (count, size + 1, size)])
    offsets = jnp.stack([nowhere, nowhere, nowhere.at[size].set(_NOBODY)])
    points, views, num_iters, found = lax.map(
        lambda each: _maximum(each[0], each[1], start, (prior, data), tol), (frames, offsets)
    )
    point, view, logits = points[0], jax.tree.map(lambda leaf: leaf[0], views), _logits(points[0], data)
    logs = views.log_probabilities

    def mean(shares):
        return jnp.sum(data.weights * shares) / number

    share = mean(sigmoid(logits[:, 1]))
    # At its boundary a constant second share has diverging log-odds: it is held there, and has no error.
    held = (count == size + 1) & (jnp.minimum(share, 1 - share) < _AT_BOUNDARY)
    free = jnp.where(held & (jnp.arange(count) >= size), 0, jnp.ones_like(point))
    both = free[:, None] * free
    covariance = solvers.cholesky_solve(solvers.cholesky_factor(view.observed * both + jnp.diag(1 - free)), unit)
    gap = matmul(view.slope * free, covariance, view.slope * free) / 2
    gap = gap + jnp.where(held, _gap_at_boundary(point, data, share), 0)
    if robust:
        slopes = data.weights[:, None] * jax.vmap(jax.grad(_log_chance))(logits, data.chance)
        scores = jnp.concatenate([slopes[:, :1] * data.covariates, slopes[:, 1:] * data.nuisance], axis=1) * free
        covariance = sandwich(scores, covariance, data.weights, clusters, num_clusters)
    errors, log_likelihood = jnp.sqrt(jnp.diagonal(covariance)), accurate_sum(logs[0])
    usable = jnp.isfinite(log_likelihood) & (jnp.min(data.weights) >= 0) & (jnp.min(prior) >= 0)
    zero = jnp.where(usable, jnp.zeros((), back.dtype), jnp.nan)
    own, own_back = zero + jnp.where(held, jnp.nan, covariance[size:, size:]), back[size:, size:]
    slope = jax.vmap(mean, 1)(data.nuisance * (sigmoid(logits[:, 1]) * sigmoid(-logits[:, 1]))[:, None])
    error = jnp.sqrt(matmul(slope, own, slope))
    # The log-odds of a constant second share near zero may have any error: that of the share itself is small.
    is_determined = held | (error < _NOTHING_KNOWN) if count == size + 1 else errors[size:] < LARGEST_STANDARD_ERROR
    statistic, tested = jnp.maximum(2 * accurate_sum(logs[1] - logs[2]), 0), zero if follows else jnp.nan
    inflation = _inflation(points[2], data, prior, clusters, num_clusters) if robust else zero + 1
    rounding = rounding_of(logs[0], data.weights)
    is_tested = (rounding / inflation <= MOST_ROUNDING) & found[1] & found[2]
    statistic = jnp.where(is_tested, statistic / inflation, jnp.nan)
    nobody = sigmoid(points[1, size]) < _AT_BOUNDARY
    without = mean(sigmoid(-_logits(points[2], data)[:, 0]))
    result = TwoSampleRegression(
        standard_coefficients=zero + point[:size, None],
        standard_covariance=zero + covariance[:size, :size],
        units=units,
        log_likelihood=log_likelihood,
        gain=accurate_sum(logs[0] - data.weights * jax.vmap(_log_chance)(0 * logits, data.chance)),
        gap=gap,
        num_iters=num_iters[0],
        converged=(gap <= tol) & jnp.all(errors[:size] < LARGEST_STANDARD_ERROR) & jnp.all(is_determined) & usable,
        num_users=number,
        intercept=intercept,
        robust=robust,
        num_clusters=num_clusters,
        rounding=rounding,
        naive=tested + matmul(back[:size, :size], points[2, :size, None]),
        nuisance=zero + share,
        nuisance_error=error,
        nuisance_coefficients=zero + matmul(own_back, point[size:]),
        nuisance_standard_errors=jnp.sqrt(jnp.diagonal(matmul(own_back, own, own_back.T))),
        statistic=tested + statistic,
        p_value=tested
        + jnp.where(
            nobody & is_tested,
            1,
            _all_comply(statistic, without, jnp.sum(counts, axis=1) / inflation, table[::2], num_clusters),
        ),
        state=(zero + point, back, prior, data),
    )
    return result, errors


def _slopes(point, data: _Data, share):
    """The derivatives of the log-probabilities `[N, 2]` in the first log-odds, and in a constant second share."""

    def log_chance(pair, chance):
        logit, share = pair
        return jnp.log(
            matmul(jnp.stack([_share(-logit), _share(logit)]), matmul(chance, jnp.stack([1 - share, share])))
        )

    logits = matmul(data.covariates, point[: data.covariates.shape[1]])
    return jax.vmap(jax.grad(log_chance))(jnp.stack([logits, jnp.full_like(logits, share)], axis=1), data.chance)


def _gap_at_boundary(point, data, share):
    """About what the log-likelihood gains where a second share near zero, or one, moves inside; zero at a maximum."""
    slopes = _slopes(point, data, share)[:, 1]
    inwards = accurate_sum(data.weights * slopes) * jnp.where(share < 0.5, 1, -1)
    return jnp.maximum(inwards, 0) ** 2 / (2 * jnp.sum(data.weights * slopes**2))


def _inflation(point, data: _Data, prior, clusters, num_clusters):
    """The variance of the score of the second share at zero, relative to that of a likelihood: by users or by clusters.

    Divided by it, the likelihood ratio has the law of χ²₁ in samples with weights and clusters (Rao and Scott, "On
    chi-squared tests for multiway contingency tables with cell proportions estimated from survey data", 1984).
    """
    size, slopes = data.covariates.shape[1], _slopes(point, data, 0.0)
    each = jnp.concatenate([slopes[:, :1] * data.covariates, slopes[:, 1:]], axis=1)
    scores, precision = data.weights[:, None] * each, jnp.append(prior[:size], 0)
    factor = solvers.cholesky_factor(solvers.regularized(matmul(scores.T, each), precision))
    inverse = solvers.cholesky_solve(factor, jnp.eye(size + 1, dtype=point.dtype))
    return sandwich(scores, inverse, data.weights, clusters, num_clusters)[-1, -1] / inverse[-1, -1]


def _all_comply(statistic, mean, numbers, yes, num_clusters):
    """The p-value that the second share is zero: half of χ²₁, and more where the first one may be zero, too.

    There the law depends on an angle, as in `rrjax.inference.compliance`. Its part is added where the mean of the first
    share, if all comply, is below two standard errors of a share of zero.
    """
    variance = yes[:, 1, 0] * (1 - yes[:, 1, 0]) / numbers
    along, away = yes[:, 0, 0] - yes[:, 1, 0], yes[:, 0, 1] - yes[:, 1, 0]
    told = jnp.sum(along**2 / variance)
    cosine = jnp.sum(along * away / variance) / jnp.sqrt(told * jnp.sum(away**2 / variance))
    beyond = jnp.where(mean < 2 / jnp.sqrt(told), jnp.arcsin(jnp.clip(-cosine, 0, 1)), 0)
    return p_value(statistic, 1, num_clusters) / 2 + beyond / jnp.pi * p_value(statistic, 2, num_clusters)


@jax.jit
def _profile(result: TwoSampleRegression, quantile):
    point, back, prior, data = result.state
    best = data.weights * jax.vmap(_log_chance)(_logits(point, data), data.chance)
    errors = jnp.concatenate([result.standard_errors[:, 0], result.nuisance_standard_errors])
    errors, unit = jnp.where(jnp.isfinite(errors), errors, 1), jnp.eye(len(point), dtype=point.dtype)

    def limit(which):
        place, side = which
        row = back[place]
        # The coefficient as given is held, by the standardized one of its own covariate.
        frame = (unit - unit[:, place][:, None] * row / row[place]) * (1 - unit[place])
        centre, step = matmul(row, point), side * quantile * errors[place]

        def is_within(distance):
            offset = unit[:, place] * ((centre + step * distance) / row[place])
            _, view, *_ = _maximum(frame, offset, point, (prior, data), _tolerance(data.weights))
            return 2 * accurate_sum(best - view.log_probabilities) < quantile**2

        most = jnp.asarray(_FARTHEST, point.dtype)
        low, high = solvers.bisected(is_within, 1 / most, most, _HALVINGS, solvers.geometric_mean)
        return jnp.where(high < most, centre + step * low, side * jnp.inf)

    places, sides = jnp.repeat(jnp.arange(len(point)), 2), jnp.tile(jnp.asarray([-1, 1], point.dtype), len(point))
    return lax.map(limit, (places, sides)).reshape(-1, 2)


def _explain(result: TwoSampleRegression, errors: np.ndarray, design: TwoSamples, counts: np.ndarray) -> None:
    """Raises `FitError` with the reason why there is no maximum."""
    test: Any = compliance if isinstance(design, Compliance) else unrelated_question
    fits, swapped = (float(getattr(test(counts, design), name)) for name in ("fit_p_value", "swapped_p_value"))
    size, problem = result.standard_coefficients.shape[0], None
    if fits <= _CONTRADICTION:
        said = ", and in the other sample ".join(f"{yes:,} yes and {no:,} no" for yes, no in counts.tolist())
        order = ", and their order: with the samples exchanged they fit" * (swapped > _CONTRADICTION)
        problem = (
            f"the samples contradict {design.name}: no shares explain {said} (p = {fits:.2g}). Check which answer "
        )
        problem += f"is yes, and the parameters{order}"
    elif isinstance(design, Compliance) and result.nuisance > 1 - _AT_BOUNDARY:
        problem = "by these answers nobody follows the rule, so they say nothing of those who do"
    elif (
        errors.size > size + 1
        and (errors[:size] < LARGEST_STANDARD_ERROR).all()
        and not (errors[size:] < LARGEST_STANDARD_ERROR).all()
    ):
        problem = "the second share is zero, one or hardly determined at some of its covariates: leave them out"
    if problem is not None:
        raise FitError(problem, argument="sample", value=fits)
    check_determined(result, errors[:size, None])
    check_converged(result)
