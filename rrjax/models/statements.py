"""What a regression says: tests of its coefficients, shares that it predicts, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import gammaincc, ndtr, ndtri
from jaxtyping import Array, ArrayLike, Float

from rrjax.arithmetic import log_sum
from rrjax.interior import factored, solved
from rrjax.models.data import as_covariates
from rrjax.models.outcome import OutcomeRegression
from rrjax.models.regression import Regression


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


def wald_test(result: Regression, covariates: int | Sequence[int]) -> ChiSquareTest:
    """Tests that the values do not depend on some covariates: all of their coefficients are zero.

    Args:
        result: Of `fit`, with whatever covariance it has.
        covariates: Columns of `covariates`, from 0; the intercept does not count.

    Returns:
        `ChiSquareTest`, with K − 1 degrees of freedom for each covariate.

    Raises:
        ValueError: A column that there is not, or twice.

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
    number = result.coefficients.shape[0] - result.intercept
    columns = [covariates] if isinstance(covariates, int) else list(covariates)
    if not columns or len(set(columns)) < len(columns) or not all(0 <= column < number for column in columns):
        raise ValueError(f"covariates must be different columns from 0 to {number - 1}, got {covariates}")
    width = result.coefficients.shape[1]
    rows = np.asarray(columns) + result.intercept
    places = (rows[:, None] * width + np.arange(width)).ravel()
    tested = result.coefficients.ravel()[places]
    inverse = solved(factored(result.known_covariance[jnp.ix_(places, places)]), tested[:, None])[:, 0]
    return _chi_square(tested @ inverse, places.size)


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
    if result.coefficients.shape[1] != within.coefficients.shape[1] or degrees <= 0:
        raise ValueError(
            f"the second regression must have the same categories and fewer covariates, got coefficients of shapes "
            f"{result.coefficients.shape} and {within.coefficients.shape}"
        )
    one, other = result.num_users, within.num_users
    if not isinstance(one, Tracer) and not isinstance(other, Tracer) and not np.allclose(one, other):
        raise ValueError(f"the regressions are of {one:g} and {other:g} users: give the same reports to both")
    return _chi_square(jnp.maximum(within.deviance - result.deviance, 0), degrees)


def _chi_square(statistic, degrees):
    half = jnp.asarray(degrees / 2, statistic.dtype)
    return ChiSquareTest(statistic, degrees, gammaincc(half, statistic / 2))


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
        `Prediction`; the intervals are of the delta method in the log-odds of each share.

    Raises:
        ValueError: Other covariates than were fitted.

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
    covariates = as_covariates(covariates).astype(result.coefficients.dtype)
    if result.intercept:
        covariates = jnp.concatenate([jnp.ones_like(covariates[:, :1]), covariates], axis=1)
    if covariates.shape[1] != result.coefficients.shape[0]:
        raise ValueError(
            f"covariates must have {result.coefficients.shape[0] - result.intercept} columns, those of the fit; got "
            f"{covariates.shape[1] - result.intercept}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    factor = ndtri(jnp.asarray(0.5 + confidence / 2, covariates.dtype))

    def log_odds(coefficients, row):
        logits = jnp.concatenate([jnp.zeros((1,), row.dtype), row @ coefficients])
        log_shares = logits - log_sum(logits)
        others = jnp.where(jnp.eye(logits.shape[0], dtype=bool), -jnp.inf, log_shares)
        return log_shares - log_sum(others)

    def one(row):
        slopes = jax.jacobian(log_odds)(result.coefficients, row)
        slopes = slopes.reshape(slopes.shape[0], -1)
        middle, error = (
            log_odds(result.coefficients, row),
            jnp.sqrt(jnp.sum(slopes @ result.known_covariance * slopes, axis=1)),
        )
        share = jax.nn.sigmoid(middle)
        width = factor * error
        return Prediction(
            share, share * (1 - share) * error, jax.nn.sigmoid(middle - width), jax.nn.sigmoid(middle + width)
        )

    return jax.vmap(one)(covariates)


def summary(
    result: Regression | OutcomeRegression,
    names: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
) -> str:
    """The table of a regression, as R prints it: estimate, standard error, z, and the p-value of each being zero.

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
    names = [f"x{place}" for place in range(number)] if names is None else list(names)
    categories = [str(place) for place in range(width + 1)] if categories is None else list(categories)
    if len(names) != number or len(categories) != width + 1:
        raise ValueError(
            f"there are {number} covariates and {width + 1} categories, got {len(names)} names and {len(categories)}"
        )
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
        lines += _lines(names, estimates[:, place], errors[:, place])
    fits = f"deviance {float(result.deviance):,.2f}, AIC {float(result.aic):,.2f}, {int(result.num_iters)} steps"
    return "\n".join([*lines, f"{users}, {fits}"])


def _lines(names, estimates, errors):
    scores = estimates / errors
    chances = p_value_of(scores)
    label = max(len(name) for name in names) + 2
    lines = [f"  {'':{label}}{'Estimate':>10}{'Std. error':>12}{'z':>9}{'p':>10}"]
    for name, estimate, error, score, chance in zip(names, estimates, errors, scores, chances, strict=True):
        written = "< 1e-4" if chance < 1e-4 else f"{chance:.4f}"
        lines.append(f"  {name:{label}}{estimate:>10.4f}{error:>12.4f}{score:>9.2f}{written:>10}")
    return lines


def p_value_of(scores: ArrayLike) -> np.ndarray:
    """How often a normal variable is farther from zero, on the host."""
    return np.asarray(2 * ndtr(-jnp.abs(jnp.asarray(scores))), float)
