"""Results of regressions: coefficients in the units of the covariates, predicted shares, and a table as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import betainc, gammaincc
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.errors import ArgumentError
from rrjax.models.inputs import Units, as_covariates, as_list
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.pytrees import exportable, register
from rrjax.numerics.sharding import refuse_spread, together
from rrjax.numerics.sums import log_sum

Family: TypeAlias = Literal["normal", "binary", "counts"]

_MOST_CLUSTERS = 10_000
"""Degrees of freedom beyond which χ² replaces F: p-values of 1e-6 and more differ by less than 2 %."""


@register(
    data_fields=[
        "standard_coefficients", "standard_covariance", "units", "log_likelihood", "gain", "gap", "num_iters",
        "converged", "num_users",
    ],
    meta_fields=["intercept", "robust", "num_clusters"],
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class Regression:
    """A regression by `fit` or `fit_in_batches`. A pytree; under `vmap` leaves and properties have the batch in front.

    Attributes:
        standard_coefficients: `[D, K − 1]`, coefficients of the standardized covariates.
        standard_covariance: `[D·(K − 1), D·(K − 1)]`, their covariance; None if not computed.
        units: Means and standard deviations of the covariates, `[D]` each.
        log_likelihood: Scalar, nats, of all reports, each by its weight.
        gain: Scalar, nats, the log-likelihood less that with all coefficients zero.
        gap: Scalar, the distance from the maximum, nats of all reports: half of Newton's decrement. Without covariance
            the solver's own estimate; NaN if it has none.
        num_iters: Scalar.
        converged: Scalar: whether the gap is below the tolerance and no coefficient diverges.
        num_users: Scalar, the sum of the weights.
        intercept: Whether there is an intercept. Static.
        robust: Whether the covariance is a sandwich. Static.
        num_clusters: Number of clusters of the covariance, or None. With c clusters, tests and intervals of
            coefficients are by Student's t and F with c − 1 degrees of freedom, not by the normal law and χ². Static.
    """

    standard_coefficients: Float[Array, "D k"]
    standard_covariance: Float[Array, "P P"] | None
    units: Units
    log_likelihood: Float[Array, ""]
    gain: Float[Array, ""]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]
    num_users: Float[Array, ""]
    intercept: bool
    robust: bool
    num_clusters: int | None = None

    @property
    def coefficients(self) -> Float[Array, "D k"]:
        """`[D, K − 1]`, log-odds of categories 1 … K − 1 to category 0 per unit of each covariate, intercept first."""
        return matmul(self.units.back_transform(self.intercept), self.standard_coefficients)

    @property
    def covariance(self) -> Float[Array, "P P"]:
        """`[D·(K − 1), D·(K − 1)]`, covariance of `coefficients.ravel()`; `ValueError` if it was not computed."""
        back, blocks = self.units.back_transform(self.intercept), self._covariance_blocks()
        covariance = einsum("...ab,...bicj,...dc->...aidj", back, blocks, back)
        return covariance.reshape(self.known_covariance.shape)

    @property
    def known_covariance(self) -> Float[Array, "P P"]:
        """The covariance of the standardized coefficients; `ValueError` if it was not computed."""
        if self.standard_covariance is None:
            raise ValueError('the regression was fitted with covariance="none": fit it with another one')
        return self.standard_covariance

    @property
    def standard_errors(self) -> Float[Array, "D k"]:
        """`[D, K − 1]`, standard errors of the coefficients; `ValueError` without covariance."""
        own = einsum("...bkck->...kbc", self._covariance_blocks())
        back = self.units.back_transform(self.intercept)
        # The largest factor is taken out: variances may overflow even if standard errors do not.
        largest = jnp.max(jnp.abs(back), axis=-1, keepdims=True)
        rows = back / largest
        return largest * jnp.sqrt(einsum("...ab,...kbc,...ac->...ak", rows, own, rows))

    def _covariance_blocks(self):
        known, shape = self.known_covariance, self.standard_coefficients.shape[-2:]
        return known.reshape(*known.shape[:-2], *shape, *shape)

    @property
    def num_parameters(self) -> int:
        """The number of coefficients, D·(K − 1)."""
        return self.standard_coefficients.shape[-2] * self.standard_coefficients.shape[-1]

    @property
    def deviance(self) -> Float[Array, ""]:
        """−2 times the log-likelihood, nats. Deviances of nested models differ by the likelihood-ratio statistic."""
        return -2 * self.log_likelihood

    @property
    def aic(self) -> Float[Array, ""]:
        """Akaike's criterion: the deviance plus two for each coefficient."""
        return self.deviance + 2 * self.num_parameters


@register(
    data_fields=[
        "coefficients", "answer_coefficients", "scale", "covariance", "log_likelihood", "gap", "num_iters", "converged",
        "num_users",
    ],
    meta_fields=["family", "intercept"],
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class OutcomeRegression:
    """A regression by `fit_outcome`. A pytree; under `vmap` every leaf has the batch in front.

    Attributes:
        coefficients: `[D + K − 1]`, coefficients of the outcome's linear predictor: the intercept, if there is one, the
            covariates, and last the effects of categories 1 … K − 1 of the answer, compared with category 0.
        answer_coefficients: `[D, K − 1]`, coefficients of the answer on the covariates, as in `Regression`.
        scale: Scalar, standard deviation of a normal outcome about its mean; one for other families.
        covariance: `[D + K − 1, D + K − 1]`, covariance of `coefficients`, with the other parameters estimated too.
        log_likelihood: Scalar, nats, of outcomes and reports together.
        gap: Scalar, the distance from the nearby maximum, nats of all users.
        num_iters: Scalar.
        converged: Scalar.
        num_users: Scalar, the sum of the weights.
        family: Family of the outcome. Static.
        intercept: Whether there is an intercept. Static.
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
        """Standard errors of the coefficients, `[D + K − 1]`."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))


def p_value(statistic: ArrayLike, degrees: int, clusters: int | None = None) -> Float[Array, "*s"]:
    """The probability of a larger Wald statistic: by χ², or with clusters by F."""
    statistic = jnp.asarray(statistic)
    half = jnp.asarray(degrees / 2, statistic.dtype)
    if clusters is None or clusters - 1 > _MOST_CLUSTERS:
        return gammaincc(half, statistic / 2)
    half_denominator = jnp.asarray((clusters - 1) / 2, statistic.dtype)
    return betainc(half_denominator, half, 1 / (1 + statistic / (clusters - 1)))


def two_sided_p_values(scores: ArrayLike, clusters: int | None = None) -> np.ndarray:
    """The probabilities that a normal variable, or with clusters Student's t, is farther from zero, on the host."""
    return np.asarray(p_value(jnp.square(jnp.asarray(scores)), 1, clusters), float)


def critical_value(level: float, clusters: int | None = None) -> float:
    """The half-width of an interval in standard errors: a quantile of the normal law, or with clusters Student's t."""
    if clusters is None:
        return NormalDist().inv_cdf((1 + level) / 2)
    low, high = 0.0, 40.0
    with jax.ensure_compile_time_eval():  # also if a prediction is traced
        while high < 1e12 and float(p_value(high * high, 1, clusters)) > 1 - level:
            low, high = high, high**2
        for _ in range(64):
            middle = (low + high) / 2 if high < 100 else math.sqrt(max(low, 1.0) * high)
            too_low = float(p_value(middle * middle, 1, clusters)) > 1 - level
            low, high = (middle, high) if too_low else (low, middle)
    return high


@exportable
class Prediction(NamedTuple):
    """Shares of the categories among users with given covariates.

    Attributes:
        shares: `[N, K]`.
        standard_errors: `[N, K]`, of the shares.
        lower: `[N, K]`, lower limit of an interval for each share, symmetric in its log-odds.
        upper: `[N, K]`, upper limit.
    """

    shares: Float[Array, "N K"]
    standard_errors: Float[Array, "N K"]
    lower: Float[Array, "N K"]
    upper: Float[Array, "N K"]


def predict(result: Regression, covariates: ArrayLike, *, confidence: float = 0.95) -> Prediction:
    """Predicts the shares of the categories among users with given covariates.

    Args:
        result: Result of `fit`.
        covariates: `[N, D]`, or `[N]` if there is one.
        confidence: Confidence level of each interval, between 0 and 1.

    Returns:
        `Prediction`. Intervals are by the delta method in the log-odds of each share, with clusters by Student's t.

    Raises:
        ValueError: Another number of covariates than fitted, or a confidence outside (0, 1).

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
    given = refuse_spread(together(as_covariates(covariates)), "predict")
    size, dtype = result.standard_coefficients.shape[0], result.standard_coefficients.dtype
    if given.shape[1] != size - result.intercept:
        raise ArgumentError.about(
            "covariates", f"must have {size - result.intercept} columns, those of the fit; got {given.shape[1]}"
        )
    shift, scales = (each[int(result.intercept) :] for each in result.units)
    if isinstance(given, np.ndarray) and not isinstance(shift, Tracer):  # the difference in double precision
        rows = jnp.asarray((given - np.asarray(shift, np.float64)) / np.asarray(scales, np.float64), dtype)
    else:
        rows = (jnp.asarray(given).astype(dtype) - shift) / scales
    if result.intercept:
        ones = jnp.ones_like(rows[:, :1]) if rows.shape[1] else jnp.ones((rows.shape[0], 1), dtype)
        rows = jnp.concatenate([ones, rows], axis=1)
    if not 0 < confidence < 1:
        raise ArgumentError.about("confidence", f"must be between 0 and 1, got {confidence}", value=confidence)
    factor = critical_value(confidence, result.num_clusters)

    def log_odds(coefficients, row):
        logits = jnp.concatenate([jnp.zeros((1,), row.dtype), matmul(row, coefficients)])
        log_shares = logits - log_sum(logits)
        others = jnp.where(jnp.eye(logits.shape[0], dtype=bool), -jnp.inf, log_shares)
        return log_shares - log_sum(others)

    def one(row):
        slopes = jax.jacobian(log_odds)(result.standard_coefficients, row)
        slopes = slopes.reshape(slopes.shape[0], -1)
        middle = log_odds(result.standard_coefficients, row)
        error = jnp.sqrt(jnp.sum(matmul(slopes, result.known_covariance) * slopes, axis=1))
        share, lower, upper = map(jax.nn.sigmoid, (middle, middle - factor * error, middle + factor * error))
        return Prediction(share, share * (1 - share) * error, lower, upper)

    return jax.vmap(one)(rows)


def summary(
    result: Regression | OutcomeRegression,
    names: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
) -> str:
    """The table of a regression as text, as in R: estimate, standard error, z, and the p-value of zero.

    With clusters, t replaces z.

    Args:
        result: Result of `fit` or `fit_outcome`, for one regression.
        names: Names of the D covariates; None is x0, x1, …
        categories: Names of the K categories; None is their numbers. Each is compared with the first.

    Returns:
        Lines of text.

    Raises:
        ValueError: Another number of names.

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
    names = _as_names([f"x{place}" for place in range(number)] if names is None else names, number, "names")
    names = ["(intercept)"] * result.intercept + names
    reference, *others = _as_names(range(width + 1) if categories is None else categories, width + 1, "categories")
    estimates, errors = np.asarray(result.coefficients, float), np.asarray(result.standard_errors, float)
    users, steps = f"{float(result.num_users):,.10g} users", f"{int(result.num_iters)} steps"
    if isinstance(result, OutcomeRegression):
        names += [f"answer: {category}" for category in others]
        lines = [f"the outcome ({result.family}), its answers compared with {reference}:"]
        lines += _lines(names, estimates, errors)
        scale = f", standard deviation {float(result.scale):.4g}" if result.family == "normal" else ""
        return "\n".join([*lines, f"{users}, log-likelihood {float(result.log_likelihood):,.2f}, {steps}{scale}"])
    lines = []
    for place, category in enumerate(others):
        lines.append(f"{category}, compared with {reference}:")
        lines += _lines(names, estimates[:, place], errors[:, place], result.num_clusters)
    clustered = "" if result.num_clusters is None else f" in {result.num_clusters:,} clusters"
    fits = f"deviance {float(result.deviance):,.2f}, AIC {float(result.aic):,.2f}"
    return "\n".join([*lines, f"{users}{clustered}, {fits}, {steps}"])


def _as_names(given, number, name):
    found = [str(each) for each in as_list(given)]
    if len(found) != number:
        kind = "covariate" if name == "names" else "category"
        raise ArgumentError(f"{name} must be {number} texts, one for each {kind}; got {given!r}", argument=name)
    return found


def _lines(names, estimates, errors, clusters=None):
    scores = estimates / errors
    p_values = two_sided_p_values(scores, clusters)
    label = max(len(name) for name in names) + 2
    lines = [f"  {'':{label}}{'Estimate':>10}{'Std. error':>12}{'z' if clusters is None else 't':>9}{'p':>10}"]
    for name, estimate, error, score, p in zip(names, estimates, errors, scores, p_values, strict=True):
        written = "< 1e-4" if p < 1e-4 else f"{p:.4f}"
        lines.append(f"  {name:{label}}{estimate:>10.4f}{error:>12.4f}{score:>9.2f}{written:>10}")
    return lines
