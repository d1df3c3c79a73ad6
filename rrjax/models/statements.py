"""What a regression says: tests of its coefficients, shares that it predicts, and its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.errors import ArgumentError
from rrjax.models.data import as_covariates
from rrjax.models.fitted import Regression, check_plain
from rrjax.models.outcome import OutcomeRegression
from rrjax.models.tails import p_value_of, reach, tail
from rrjax.numerics.newton import factored, solved
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sums import log_sum


@exportable
class ChiSquareTest(NamedTuple):
    """A test whose statistic has a χ² law in large samples.

    Attributes:
        statistic: Scalar.
        degrees: Of freedom, a static integer.
        p_value: Scalar.
    """

    statistic: Float[Array, ""]
    degrees: int
    p_value: Float[Array, ""]


@exportable
class FTest(NamedTuple):
    """A test of a regression with clusters, whose statistic has about the law of F.

    Attributes:
        statistic: Scalar, Wald's statistic over its degrees of freedom.
        degrees: Of freedom, of the numerator; a static integer.
        denominator: Those of the denominator, the number of clusters less one; a static integer.
        p_value: Scalar.
    """

    statistic: Float[Array, ""]
    degrees: int
    denominator: int
    p_value: Float[Array, ""]


def wald_test(result: Regression, covariates: int | Sequence[int]) -> ChiSquareTest | FTest:
    """Tests that the values do not depend on some covariates: all of their coefficients are zero.

    Args:
        result: Of `fit`, with whatever covariance it has.
        covariates: Columns of `covariates`, from 0; the intercept does not count.

    Returns:
        `ChiSquareTest`, with K − 1 degrees of freedom for each covariate; of a regression with clusters `FTest`.

    Raises:
        ValueError: A column that there is not, or twice; (not under tracing) a singular covariance.

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
        raise ArgumentError(
            f"covariates must be different columns from 0 to {number - 1}, got {covariates}",
            argument="covariates",
            value=covariates,
        )
    rows = np.asarray(columns) + result.intercept
    places = (rows[:, None] * width + np.arange(width)).ravel()
    tested = result.standard_coefficients.ravel()[places]
    covariance = result.known_covariance[jnp.ix_(places, places)]
    if not isinstance(covariance, Tracer):
        _check_full(np.asarray(covariance), places.size)
    statistic = tested @ solved(factored(covariance), tested[:, None])[:, 0]
    if result.num_clusters is None:
        return chi_square(statistic, places.size)
    p_value = tail(statistic, places.size, result.num_clusters)
    return FTest(statistic / places.size, places.size, result.num_clusters - 1, p_value)


def _check_full(covariance: np.ndarray, number: int) -> None:
    """Refuses a covariance that leaves some direction out, as the scores of few users do."""
    scale = np.sqrt(np.diagonal(covariance).astype(float))
    least = np.linalg.eigvalsh(covariance / scale / scale[:, None])[0]
    if not least > 20 * number * np.finfo(covariance.dtype).eps:
        raise ArgumentError(
            f"the covariance of the {number} coefficients is singular: they cannot be tested together",
            argument="covariates",
        )


def likelihood_ratio_test(result: Regression, within: Regression) -> ChiSquareTest:
    """Tests a regression against one within it: the same reports, on some of the covariates.

    Args:
        result: Of `fit`.
        within: Of `fit`, of the same reports on fewer covariates.

    Returns:
        `ChiSquareTest`, with a degree of freedom for each coefficient that `within` does without.

    Raises:
        ValueError: Regressions of other numbers of users or categories, or the second one not smaller.

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
        check_plain(each, "a likelihood ratio", name)
    one, other = result.num_users, within.num_users
    # Of what each gains on no covariates at all, user by user: the difference of two log-likelihoods would be rounded.
    statistic = 2 * (result.gain - within.gain)
    if not isinstance(statistic, Tracer):
        if not np.allclose(one, other):
            raise ArgumentError(
                f"the regressions are of {one:g} and {other:g} users: give the same reports to both", argument="within"
            )
        if statistic < -0.1:
            raise ArgumentError(
                f"the second regression has the larger likelihood, by {-float(statistic) / 2:.3g} nats: it is not "
                "within the first, or not of the same reports",
                argument="within",
            )
    return chi_square(jnp.maximum(statistic, 0), degrees)


def chi_square(statistic: Float[Array, ""], degrees: int) -> ChiSquareTest:
    """The test of a statistic with so many degrees of freedom."""
    return ChiSquareTest(statistic, degrees, tail(statistic, degrees))


@exportable
class Prediction(NamedTuple):
    """Shares of the categories among users with given covariates.

    Attributes:
        shares: `[N, K]`.
        standard_errors: `[N, K]`, of the shares.
        lower: `[N, K]`, of intervals for each share, on the scale of its log-odds.
        upper: `[N, K]`.
    """

    shares: Float[Array, "N K"]
    standard_errors: Float[Array, "N K"]
    lower: Float[Array, "N K"]
    upper: Float[Array, "N K"]


def predict(result: Regression, covariates: ArrayLike, *, confidence: float = 0.95) -> Prediction:
    """Predicts how users with given covariates are spread over the categories.

    Args:
        result: Of `fit`.
        covariates: `[N, D]`, or `[N]` where there is one.
        confidence: Of each interval, between 0 and 1.

    Returns:
        `Prediction`; the intervals are of the delta method in the log-odds of each share, with clusters by Student's t.

    Raises:
        ValueError: Other covariates than were fitted, or a confidence outside (0, 1).

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, predict
        >>> x = np.random.default_rng(0).normal(size=20_000)
        >>> values = (np.random.default_rng(1).random(20_000) < 1 / (1 + np.exp(-x))).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), values)
        >>> found = predict(fit(x, reports, 1.0, num_categories=2), [0.0, 1.0])
        >>> [bool(low < share < high) for low, share, high in zip(found.lower[:, 1], (0.5, 0.73), found.upper[:, 1])]
        [True, True]
    """
    given = as_covariates(covariates)
    size, dtype = result.standard_coefficients.shape[0], result.standard_coefficients.dtype
    if given.shape[1] != size - result.intercept:
        raise ArgumentError(
            f"covariates must have {size - result.intercept} columns, those of the fit; got {given.shape[1]}",
            argument="covariates",
        )
    shift, scales = (each[int(result.intercept) :] for each in result.units)
    if isinstance(given, np.ndarray) and not isinstance(shift, Tracer):  # the difference in double precision
        rows = jnp.asarray((given - np.asarray(shift, np.float64)) / np.asarray(scales, np.float64), dtype)
    else:
        rows = (jnp.asarray(given).astype(dtype) - shift) / scales
    if result.intercept:
        rows = jnp.concatenate([jnp.ones_like(rows[:, :1]), rows], axis=1)
    if not 0 < confidence < 1:
        raise ArgumentError(
            f"confidence must be between 0 and 1, got {confidence}", argument="confidence", value=confidence
        )
    factor = reach(confidence, result.num_clusters)

    def log_odds(coefficients, row):
        logits = jnp.concatenate([jnp.zeros((1,), row.dtype), row @ coefficients])
        log_shares = logits - log_sum(logits)
        others = jnp.where(jnp.eye(logits.shape[0], dtype=bool), -jnp.inf, log_shares)
        return log_shares - log_sum(others)

    def one(row):
        slopes = jax.jacobian(log_odds)(result.standard_coefficients, row)
        slopes = slopes.reshape(slopes.shape[0], -1)
        middle, error = (
            log_odds(result.standard_coefficients, row),
            jnp.sqrt(jnp.sum(slopes @ result.known_covariance * slopes, axis=1)),
        )
        share = jax.nn.sigmoid(middle)
        width = factor * error
        return Prediction(
            share, share * (1 - share) * error, jax.nn.sigmoid(middle - width), jax.nn.sigmoid(middle + width)
        )

    return jax.vmap(one)(rows)


def summary(
    result: Regression | OutcomeRegression,
    names: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
) -> str:
    """The table of a regression, as R prints it: estimate, standard error, z, and the p-value of each being zero.

    With clusters it is t in place of z.

    Args:
        result: Of `fit` or `fit_outcome`, of one regression.
        names: Of the D covariates; None is x0, x1, …
        categories: Of the K categories; None is their numbers. The first is what the others are compared with.

    Returns:
        Lines of text.

    Raises:
        ValueError: Other numbers of names.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, summary
        >>> age = np.random.default_rng(0).uniform(20, 60, 20_000)
        >>> uses = np.random.default_rng(1).random(20_000) < 1 / (1 + np.exp(2 - 0.05 * age))
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), uses.astype(int))
        >>> print(summary(fit(age, reports, 1.0, num_categories=2), ["age"], ["no", "yes"]))
        yes, compared with no:
                         Estimate  Std. error        z         p
          (intercept)     -1.9099      0.1246   -15.33    < 1e-4
          age              0.0473      0.0030    15.77    < 1e-4
        20,000 users, deviance 27,436.08, AIC 27,440.08, 4 steps
    """
    of_outcome = isinstance(result, OutcomeRegression)
    width = (result.answer_coefficients if of_outcome else result.coefficients).shape[1]
    number = result.coefficients.shape[0] - result.intercept - width * of_outcome
    names = [f"x{place}" for place in range(number)] if names is None else _as_names(names, number, "names")
    given = range(width + 1) if categories is None else categories
    categories = _as_names(given, width + 1, "categories")
    names = (["(intercept)"] if result.intercept else []) + names
    estimates, errors = np.asarray(result.coefficients, float), np.asarray(result.standard_errors, float)
    users = f"{float(result.num_users):,.10g} users"
    if isinstance(result, OutcomeRegression):
        names += [f"answer: {category}" for category in categories[1:]]
        lines = [f"the outcome ({result.family}), its answers compared with {categories[0]}:"]
        lines += _lines(names, estimates, errors)
        scale = f", standard deviation {float(result.scale):.4g}" if result.family == "normal" else ""
        last = f"{users}, log-likelihood {float(result.log_likelihood):,.2f}, {int(result.num_iters)} steps{scale}"
        return "\n".join([*lines, last])
    lines = []
    for place, category in enumerate(categories[1:]):
        lines.append(f"{category}, compared with {categories[0]}:")
        lines += _lines(names, estimates[:, place], errors[:, place], result.num_clusters)
    fits = f"deviance {float(result.deviance):,.2f}, AIC {float(result.aic):,.2f}, {int(result.num_iters)} steps"
    clustered = "" if result.num_clusters is None else f" in {result.num_clusters:,} clusters"
    return "\n".join([*lines, f"{users}{clustered}, {fits}"])


def _as_names(given, number, name):
    # Arrays of no dimension are iterable by their type alone.
    several = isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "ndim", 1)
    found = [str(each) for each in given] if several else []
    if len(found) != number:
        kind = "covariate" if name == "names" else "category"
        raise ArgumentError(f"{name} must be {number} texts, one for each {kind}; got {given!r}", argument=name)
    return found


def _lines(names, estimates, errors, clusters=None):
    scores = estimates / errors
    chances = p_value_of(scores, clusters)
    label = max(len(name) for name in names) + 2
    lines = [f"  {'':{label}}{'Estimate':>10}{'Std. error':>12}{'z' if clusters is None else 't':>9}{'p':>10}"]
    for name, estimate, error, score, chance in zip(names, estimates, errors, scores, chances, strict=True):
        written = "< 1e-4" if chance < 1e-4 else f"{chance:.4f}"
        lines.append(f"  {name:{label}}{estimate:>10.4f}{error:>12.4f}{score:>9.2f}{written:>10}")
    return lines
