"""Tests of regressions: Wald, likelihood ratio, score, and goodness of fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import Channel, RandomizedResponse
from rrjax.models.logistic import Data, on_coefficients, posteriors, slope_of
from rrjax.models.loss import Law, MechanismOrEpsilon, rows_of
from rrjax.models.results import (
    MOST_ROUNDING,
    FitError,
    Regression,
    Units,
    as_covariates,
    as_weights,
    covariates_dtype,
    p_value,
    predict,
    standardized,
)
from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import refuse_spread, unsharded, with_sharding_of
from rrjax.numerics.solvers import cholesky_factor, cholesky_solve

NUM_GROUPS = 10
_NUM_DRAWS = 8
"""Number of reports drawn for each user, for mechanisms with too many possible reports to sum over."""


@exportable
class CoefficientTest(NamedTuple):
    """The result of a test that some coefficients of a regression are zero; by χ², or with clusters by F.

    Attributes:
        statistic: Scalar; for F, Wald's statistic divided by its degrees of freedom.
        degrees: Degrees of freedom, for F those of the numerator; a static integer.
        denominator: Degrees of freedom of the denominator of F, the number of clusters less one, a static integer; None
            for χ².
        p_value: Scalar, valid in large samples.
    """

    statistic: Float[Array, ""]
    degrees: int
    denominator: int | None
    p_value: Float[Array, ""]


def wald_test(result: Regression, covariates: int | Sequence[int]) -> CoefficientTest:
    """Tests that the values do not depend on some covariates: all of their coefficients are zero.

    Args:
        result: Result of `fit`, with any covariance.
        covariates: Columns of `covariates`, from 0; the intercept does not count.

    Returns:
        `CoefficientTest`, with K − 1 degrees of freedom for each covariate: χ², or with clusters F.

    Raises:
        ValueError: A column that does not exist or comes twice, or (not under tracing) a singular covariance.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, wald_test
        >>> x = np.random.default_rng(0).normal(size=(5000, 2))
        >>> values = (np.random.default_rng(1).random(5000) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), values)
        >>> result = fit(x, reports, 1.0, num_categories=2)
        >>> [float(wald_test(result, column).p_value) < 0.05 for column in (0, 1)]
        [True, False]
    """
    number, width = result.standard_coefficients.shape[0] - result.intercept, result.standard_coefficients.shape[1]
    columns = [int(column) for column in np.atleast_1d(np.asarray(covariates, int))]
    if not columns or len(set(columns)) < len(columns) or not all(0 <= column < number for column in columns):
        raise ArgumentError.about(
            "covariates", f"must be different columns from 0 to {number - 1}, got {covariates}", value=covariates
        )
    rows = np.asarray(columns) + result.intercept
    places = (rows[:, None] * width + np.arange(width)).ravel()
    tested = result.standard_coefficients.ravel()[places]
    covariance = result.known_covariance[jnp.ix_(places, places)]
    if not isinstance(covariance, Tracer):  # singular, as from the scores of few users
        known = np.asarray(covariance)
        scale = np.sqrt(np.diagonal(known).astype(float))
        least = np.linalg.eigvalsh(known / scale / scale[:, None])[0]
        if not least > 20 * places.size * np.finfo(known.dtype).eps:
            raise ArgumentError(
                f"the covariance of the {places.size} coefficients is singular: they cannot be tested together",
                argument="covariates",
            )
    statistic = matmul(tested, cholesky_solve(cholesky_factor(covariance), tested[:, None])[:, 0])
    return _test(statistic, places.size, result.num_clusters)


def likelihood_ratio_test(result: Regression, within: Regression) -> CoefficientTest:
    """Tests a regression against a smaller one, on the same reports and some of the covariates.

    Args:
        result: Result of `fit`.
        within: Result of `fit`, for the same reports on fewer covariates.

    Returns:
        `CoefficientTest`, with a degree of freedom for each coefficient missing in `within`.

    Raises:
        ValueError: Regressions of different numbers of users or categories, or the second one not smaller; or weights
            so large that rounding moves the statistic by about 0.5 or more (traced, NaN): in float32 if a weight times
            the square root of the number of such rows is above some 700,000.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, likelihood_ratio_test
        >>> x = np.random.default_rng(0).normal(size=(5000, 2))
        >>> values = (np.random.default_rng(1).random(5000) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), values)
        >>> both, first = (fit(columns, reports, 1.0, num_categories=2) for columns in (x, x[:, :1]))
        >>> likelihood_ratio_test(both, first).degrees, float(likelihood_ratio_test(both, first).p_value) > 0.05
        (1, True)
    """
    degrees = result.num_parameters - within.num_parameters
    shapes = result.standard_coefficients.shape, within.standard_coefficients.shape
    if shapes[0][1] != shapes[1][1] or degrees <= 0:
        raise ArgumentError(
            f"the second regression must have the same categories and fewer covariates, got coefficients of shapes "
            f"{shapes[0]} and {shapes[1]}",
            argument="within",
        )
    for name, each in (("result", result), ("within", within)):
        _check_not_robust(each, "a likelihood ratio", name)
    one, other = result.num_users, within.num_users
    # The gains are sums of differences, user by user: the difference of the two log-likelihoods would lose digits.
    statistic = 2 * (result.gain - within.gain)
    rounding = 2 * sum(jnp.zeros(()) if each.rounding is None else each.rounding for each in (result, within))
    if not isinstance(statistic, Tracer):
        if not np.allclose(one, other):
            raise ArgumentError(
                f"the regressions are of {one:g} and {other:g} users: give the same reports to both", argument="within"
            )
        if rounding > MOST_ROUNDING:
            raise ArgumentError(
                f"in this precision rounding moves the ratio of the likelihoods of {one:g} users by about "
                f"{float(rounding):.2g}: use wald_test or score_test, or enable 64-bit mode (JAX_ENABLE_X64=1)",
                argument="result",
            )
        if statistic < -0.1:
            raise ArgumentError(
                f"the second regression has the larger likelihood, by {-float(statistic) / 2:.3g} nats: it is not "
                "within the first, or not of the same reports",
                argument="within",
            )
    return _test(jnp.where(rounding > MOST_ROUNDING, jnp.nan, jnp.maximum(statistic, 0)), degrees)


def _test(statistic: Float[Array, ""], degrees: int, clusters: int | None = None) -> CoefficientTest:
    p = p_value(statistic, degrees, clusters)
    if clusters is None:
        return CoefficientTest(statistic, degrees, None, p)
    return CoefficientTest(statistic / degrees, degrees, clusters - 1, p)


def _check_not_robust(result: Regression, test: str, argument: str = "result") -> None:
    """Refuses a regression whose covariance is a sandwich: its likelihood has no χ² law."""
    if result.robust:
        raise ArgumentError(
            f"{test} has no χ² law with survey weights, clusters or a sandwich: use wald_test", argument=argument
        )


def score_test(
    result: Regression,
    covariates: ArrayLike,
    added: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    weights: ArrayLike | None = None,
) -> CoefficientTest:
    """Tests whether the values depend on further covariates, without fitting the larger model.

    The statistic is the squared slope of the likelihood where the further coefficients are zero, over the expected
    information. The expectation is over all reports of randomized response and channels, and over a few drawn reports
    of each user of other mechanisms. The observed information is not used: it need not be positive there.

    Args:
        result: Result of `fit`, without the added covariates.
        covariates: `[N, D]`, the covariates of the fit.
        added: `[N, A]`, or `[N]` for one: the covariates to test.
        reports: The reports of the fit.
        mechanism_or_epsilon: As for the fit.
        weights: Numbers of users, as for the fit. With survey weights or clusters use `wald_test` of a larger fit.

    Returns:
        `CoefficientTest`, with A·(K − 1) degrees of freedom.

    Raises:
        ValueError: Other covariates than in the fit, (not under tracing) added covariates that these determine, or a
            fit with clusters or a sandwich.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, score_test
        >>> x = np.random.default_rng(0).normal(size=(20_000, 2))
        >>> values = (np.random.default_rng(1).random(20_000) < 1 / (1 + np.exp(-x[:, 0] * x[:, 1]))).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), values)
        >>> result = fit(x, reports, 1.0, num_categories=2)
        >>> test = score_test(result, x, x[:, 0] * x[:, 1], reports, 1.0)
        >>> test.degrees, float(test.p_value) < 1e-6
        (1, True)

    References:
        Rao, "Large sample tests of statistical hypotheses concerning several parameters", 1948.
    """
    _check_not_robust(result, "a score test")
    own, more = (refuse_spread(unsharded(as_covariates(each)), "score_test") for each in (covariates, added))
    size, width = result.standard_coefficients.shape
    is_own = own.shape[1] == size - result.intercept
    if not is_own or more.shape[0] != own.shape[0]:
        raise ArgumentError(
            f"covariates must be the {size - result.intercept} of the fit, and the added ones of as many users; got "
            f"shapes {own.shape} and {more.shape}",
            argument="added" if is_own else "covariates",
        )
    library = jnp if isinstance(own, jax.Array) or isinstance(more, jax.Array) else np
    wide = np.promote_types(covariates_dtype(own), covariates_dtype(more))
    both, units = standardized(library.concatenate([own, more], axis=1, dtype=wide), result.intercept)
    dtype, number = result.standard_coefficients.dtype, own.shape[0]
    rows = rows_of(reports, mechanism_or_epsilon, width + 1, number, dtype)
    data = Data(both.astype(dtype), rows, as_weights(weights, number, dtype))
    coefficients = jnp.concatenate([_in_units(result, units, size), jnp.zeros((more.shape[1], width), dtype)])
    each = _expected_information(jax.random.key(0), matmul(data.covariates, coefficients), mechanism_or_epsilon)
    return _test(_statistic(coefficients, data, each, size * width), more.shape[1] * width)


def _in_units(result: Regression, units: Units, size: int) -> Float[Array, "D k"]:
    """The coefficients of a fit in slightly different units of the same covariates."""
    shift, scales = (each[:size].astype(result.units.scales.dtype) for each in units)
    slopes = result.standard_coefficients * (scales / result.units.scales)[:, None]
    if not result.intercept:
        return slopes
    moved = matmul(((shift - result.units.shift) / result.units.scales)[1:], result.standard_coefficients[1:])
    return slopes.at[0].set(result.standard_coefficients[0] + moved)


def _expected_information(key, logits, given) -> Float[Array, "N k k"]:
    """The expected information of each user's report on the logits: the mean square of the slope under the model."""
    number, width = logits.shape
    # The logits themselves count as covariates, with coefficients of one.
    one = jnp.eye(width, dtype=logits.dtype)
    is_drawn = isinstance(given, Law) and not isinstance(given, RandomizedResponse | Channel)

    def add(total, item):
        if is_drawn:
            of_values, of_reports = jax.random.split(item)
            whole = jnp.concatenate([jnp.zeros((number, 1), logits.dtype), logits], axis=1)
            reports = given.randomize(of_reports, jax.random.categorical(of_values, whole))
        else:
            reports = jnp.full(number, item, jnp.int32)
        posterior = posteriors(one, logits, rows_of(reports, given, width + 1, number, logits.dtype))
        share = jnp.full(number, 1 / _NUM_DRAWS, logits.dtype) if is_drawn else jnp.exp(posterior.log_probabilities)
        slope = posterior.moved[:, 1:]
        return total + share[:, None, None] * slope[:, :, None] * slope[:, None, :], None

    if is_drawn:
        items = jax.random.split(key, _NUM_DRAWS)
    else:
        items = jnp.arange(given.matrix.shape[1] if isinstance(given, Channel) else width + 1, dtype=jnp.int32)
    return jax.lax.scan(add, with_sharding_of(jnp.zeros((number, width, width), logits.dtype), logits), items)[0]


@partial(jax.jit, static_argnums=3)
def _statistic(coefficients, data, each, num_fitted):
    slope = slope_of(posteriors(coefficients, data.covariates, data.rows), data)
    information = on_coefficients(each, data)

    def explained(size):
        part = slope[:size, None]
        return jnp.sum(part * cholesky_solve(cholesky_factor(information[:size, :size]), part))

    # The slope in the fitted coefficients is zero, but for a prior.
    return explained(slope.shape[0]) - explained(num_fitted)


def goodness_of_fit_test(
    result: Regression,
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    groups: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> CoefficientTest:
    """Tests whether groups of users differ from the model's predictions: goodness of fit.

    It is the score test of a constant for each group. Unlike Pearson's statistic, which Hosmer and Lemeshow's test
    uses, it accounts for the mechanism, and its law is χ² for every mechanism.

    Args:
        result: Result of `fit`.
        covariates: As for the fit.
        reports: As for the fit.
        mechanism_or_epsilon: As for the fit.
        groups: `[N]`, groups such as regions, or waves of a survey. None is ten groups of about equal weight, ordered
            by the predicted share of all categories but the first; users of equal predictions are in one group.
        weights: Numbers of users, as for the fit; not survey weights.

    Returns:
        `CoefficientTest`, with K − 1 degrees of freedom for each group but the first. Groups that the covariates and
        earlier groups determine do not count; under tracing they make the test NaN.

    Raises:
        ValueError: As `score_test`; fewer than two groups, or all determined by the covariates.
        NotImplementedError: `jax.vmap` spreads it over a mesh with explicit axes; `jax.shard_map` can.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, goodness_of_fit_test
        >>> x = np.random.default_rng(0).normal(size=20_000)
        >>> chance = 1 / (1 + np.exp(1 - x**2))
        >>> values = (np.random.default_rng(1).random(20_000) < chance).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 2.0).randomize(jax.random.key(0), values)
        >>> straight, bent = x, np.stack([x, x**2], axis=1)
        >>> for model in (straight, bent):
        ...     result = fit(model, reports, 2.0, num_categories=2)
        ...     print(float(goodness_of_fit_test(result, model, reports, 2.0).p_value) < 0.05)
        True
        False

    References:
        Tsiatis, "A note on a goodness-of-fit test for the logistic regression model", 1980; Fagerland, Hosmer and
        Bofin, "Multinomial goodness-of-fit tests for logistic regression models", 2008 (the groups).
    """
    reports = refuse_spread(unsharded(reports), "goodness_of_fit_test")
    if groups is None:
        predicted = 1 - predict(result, covariates).shares[:, 0]
        weight = as_weights(weights, predicted.shape[0], predicted.dtype)
        codes, count = _groups_of_equal_weight(predicted, weight, NUM_GROUPS), NUM_GROUPS
    else:
        names, codes = np.unique(np.asarray(groups), return_inverse=True)
        codes, count = jnp.asarray(codes.ravel(), jnp.int32), len(names)
        if count < 2:
            raise ArgumentError("groups must be two or more", argument="groups")
    dummies = codes[:, None] == jnp.arange(1, count, dtype=jnp.int32)
    if not isinstance(dummies, Tracer) and not isinstance(covariates, Tracer):
        dummies = _independent(as_covariates(covariates), np.asarray(dummies), result.intercept)
        if not dummies.shape[1]:
            raise FitError(
                f"the covariates determine the {count} groups, so the model fits them in any case: give other groups",
                reason="groups",
                argument="groups",
                number=count,
            )
    dummies = dummies.astype(result.standard_coefficients.dtype)
    return score_test(result, covariates, dummies, reports, mechanism_or_epsilon, weights=weights)


def _groups_of_equal_weight(values: Float[Array, " N"], weights: Float[Array, " N"], count: int) -> Int[Array, " N"]:
    """Groups of about equal weight, in the order of the values; equal values are in one group."""
    order = jnp.argsort(values)
    ranked, weight = values[order], weights[order]
    before = (jnp.cumsum(weight) - weight) / jnp.sum(weight)
    first = before[jnp.searchsorted(ranked, values)]
    return jnp.minimum((count * first).astype(jnp.int32), count - 1)


def _independent(covariates: np.ndarray, dummies: np.ndarray, intercept: bool) -> np.ndarray:
    """The columns that covariates and earlier columns do not determine linearly."""
    known = np.asarray(covariates, np.float64)
    known = (known - known.mean(0) * intercept) / np.maximum(known.std(0), 1e-300)
    ones = np.ones((len(known), int(intercept)))
    left = np.abs(np.diagonal(np.linalg.qr(np.concatenate([ones, known, dummies], axis=1), mode="r")))
    return dummies[:, left[known.shape[1] + intercept :] > 1e-6 * np.sqrt(len(known))]
