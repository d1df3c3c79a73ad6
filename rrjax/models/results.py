"""Arguments and results of regressions: standardized covariates; coefficients in their units, predictions, a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import betainc, gammaincc
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_array, float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.pytrees import exportable, pytree
from rrjax.numerics.sharding import refuse_spread, unsharded
from rrjax.numerics.sums import log_sum

Family: TypeAlias = Literal["normal", "binary", "counts"]

MOST_ROUNDING = 0.5
"""Largest rounding of a likelihood ratio statistic that is tested."""
_MOST_CLUSTERS = 10_000
"""Degrees of freedom beyond which χ² replaces F: p-values of 1e-6 and more differ by less than 2 %."""


@pytree("intercept", "robust", "num_clusters")
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
        rounding: Scalar, nats, about how far the dtype may move `gain`; None if that is not known.
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
    rounding: Float[Array, ""] | None = None

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


def rounding_of(terms: Float[Array, " N"], weights: Float[Array, " N"]) -> Float[Array, ""]:
    """About how far the dtype moves the difference of two sums of log-likelihoods, each by its weight, like these."""
    size = jnp.abs(terms) + weights
    return jnp.finfo(terms.dtype).eps * jnp.sqrt(jnp.sum(jnp.square(size)))


@pytree("family", "intercept")
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


def normal_interval(share: Any, standard_error: Any, level: float, clusters: int | None = None) -> tuple[Any, Any]:
    """Intervals of shares by the normal law, or Student's t with clusters, in [0, 1]; NaN where a standard error is."""
    half = critical_value(level, clusters) * standard_error
    return np.maximum(share - half, 0), np.minimum(share + half, 1)


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
        >>> shares = predict(fit(x, reports, 1.0, num_categories=2), [0.0, 1.0])
        >>> [bool(low < share < high) for low, share, high in zip(shares.lower[:, 1], (0.5, 0.73), shares.upper[:, 1])]
        [True, True]
    """
    given = refuse_spread(unsharded(as_covariates(covariates)), "predict")
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
    names = [str(each) for each in as_list(given)]
    if len(names) != number:
        kind = "covariate" if name == "names" else "category"
        raise ArgumentError(f"{name} must be {number} texts, one for each {kind}; got {given!r}", argument=name)
    return names


def _lines(names, estimates, errors, clusters=None):
    scores = estimates / errors
    p_values = two_sided_p_values(scores, clusters)
    label = max(len(name) for name in names) + 2
    lines = [f"  {'':{label}}{'Estimate':>10}{'Std. error':>12}{'z' if clusters is None else 't':>9}{'p':>10}"]
    for name, estimate, error, score, p in zip(names, estimates, errors, scores, p_values, strict=True):
        written = "< 1e-4" if p < 1e-4 else f"{p:.4f}"
        lines.append(f"  {name:{label}}{estimate:>10.4f}{error:>12.4f}{score:>9.2f}{written:>10}")
    return lines


Reason: TypeAlias = Literal[
    "missing", "constant", "scale", "dependent", "users", "weights", "clusters", "unbounded", "steps", "groups", ""
]
INTERCEPT = -1
"""The number of the intercept among the columns of covariates."""


class FitError(ArgumentError):
    """The error of a regression that cannot be fitted. The attributes are for programs, the message for people.

    Attributes:
        reason: "missing": a covariate is not a finite number (`row`, `columns`). "constant": a covariate is the same
            for all users. "scale": its unit is at the limits of floats. "dependent": covariates depend on each other
            linearly (`columns`). "users": there are fewer users than coefficients. "weights": a weight is negative or
            not finite (`row`), or too few users carry the weight. "clusters": there are no more clusters than
            coefficients. "unbounded": a coefficient diverges or is hardly determined (`columns` and `category`, if
            known). "steps": no maximum was found in as many steps as are allowed. "groups": the covariates determine
            the groups.
        row: Row of the array, from 0.
        columns: Columns of the covariates, from 0; −1 is the intercept.
        category: Category of the coefficient, or None.
        number: The number that is too small or too large, or the number of such rows; or None.
        needed: The smallest sufficient number, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        reason: Reason = "",
        columns: tuple[int, ...] = (),
        category: int | None = None,
        number: float | None = None,
        needed: float | None = None,
        **where: Any,
    ) -> None:
        """Keeps the message as the only positional argument, so that the error can be pickled."""
        super().__init__(message, **where)
        self.reason = reason
        self.columns = columns
        self.category = category
        self.number = number
        self.needed = needed


def require(condition: bool, name: str, expected: str, array: Any) -> None:
    """Refuses an array of a wrong dtype or shape; the message has both."""
    if not condition:
        raise ArgumentError.about(name, f"must be {expected}; got {array.dtype} of shape {tuple(array.shape)}")


def as_list(given: Any) -> list[Any]:
    """The items of a sequence or an array; none of a text or a scalar."""
    # Arrays of no dimension are iterable by their type alone.
    is_several = isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "ndim", 1)
    return list(given) if is_several else []


@exportable
class Units(NamedTuple):
    """The units of the standardized covariates, `[D]` each.

    Attributes:
        shift: The means, zero for the intercept; all zero without one.
        scales: The standard deviations, one for the intercept; root mean squares without one.
    """

    shift: Float[Array, " D"]
    scales: Float[Array, " D"]

    def back_transform(self, intercept: bool) -> Float[Array, "D D"]:
        """The matrix that turns standardized coefficients into those on the covariates as given."""
        matrix = jnp.eye(self.scales.shape[-1], dtype=self.scales.dtype) / self.scales[..., None, :]
        # Slopes are divided by their scale; the contribution of the means is subtracted from the intercept.
        return matrix.at[..., 0, 1:].set(-(self.shift / self.scales)[..., 1:]) if intercept else matrix


def standardized(covariates: Any, intercept: bool) -> tuple[Float[Array, "N D"], Units]:
    """Standardized covariates, in double precision if they are known; refuses constant and dependent ones.

    The first column is one for all users if there is an intercept.
    """
    dtype = covariates_dtype(covariates)
    if not covariates.shape[1]:
        if not intercept:
            message = "there are no covariates and no intercept, so nothing to fit: give one of them"
            raise ArgumentError(message, argument="covariates")
        return jnp.ones((covariates.shape[0], 1), dtype), Units(jnp.zeros(1, dtype), jnp.ones(1, dtype))
    known = not isinstance(covariates, Tracer)
    given = np.asarray(covariates, np.float64) if known else jnp.asarray(covariates).astype(dtype)
    if known:
        _check_scale(np.asarray(given), dtype)
    library: Any = np if known else jnp
    shift = library.mean(given, axis=0) if intercept else library.zeros_like(given[0])
    shift = shift.astype(dtype).astype(given.dtype)  # rounded as stored, so that predictions use the same units
    centred = given - shift
    largest = library.max(library.abs(centred), axis=0)  # divided out first, because its square may overflow
    if known and intercept:  # rounding leaves a remainder of a constant column
        largest = np.where(largest > 1e-13 * np.abs(given).max(axis=0), largest, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = (largest * library.sqrt(library.mean((centred / largest) ** 2, axis=0))).astype(dtype)
        standard = centred / scales.astype(given.dtype)
    if intercept:
        standard = library.concatenate([library.ones_like(given[:, :1]), standard], axis=1)
        shift, scales = library.append(0 * shift[:1], shift), library.append(1 + 0 * scales[:1], scales)
    if known:
        _check_rank(standard, intercept)
    return jnp.asarray(standard, dtype), Units(jnp.asarray(shift, dtype), jnp.asarray(scales, dtype))


def _check_scale(given: np.ndarray, dtype: Any) -> None:
    """Refuses units in which sums of values or coefficients underflow or overflow."""
    least, most = 1e4 * float(np.finfo(dtype).tiny), 1e-6 * float(np.finfo(dtype).max)
    largest = np.abs(given).max(axis=0, initial=0)
    wrong = np.flatnonzero((largest > most) | ((largest > 0) & (largest < least)))
    if wrong.size:
        raise FitError(
            f"covariate {wrong[0]} has values up to {largest[wrong[0]]:.3g}, at the limits of floats: give it in "
            f"another unit, between {least:.0e} and {most:.0e}",
            reason="scale",
            argument="covariates",
            columns=(int(wrong[0]),),
            number=float(largest[wrong[0]]),
        )


def _check_rank(standard, intercept):
    constant = np.flatnonzero(~np.isfinite(standard).all(axis=0))
    if constant.size:
        column = int(constant[0]) - intercept
        raise FitError(
            f"column {column} of covariates is the same for everybody: drop it"
            + (" (there is an intercept)" if intercept else ""),
            reason="constant",
            argument="covariates",
            columns=(column,),
        )
    number, size = standard.shape
    if number < size:
        raise FitError(
            f"there are {size - intercept} covariates{' and an intercept' * intercept} for {number} users: give at "
            f"least {size} users, or fewer covariates",
            reason="users",
            argument="covariates",
            number=number,
            needed=size,
        )
    # From the moments, a small matrix for any number of users: eigenvalues are squares of singular values.
    sizes, right = np.linalg.eigh(standard.T @ standard)
    if sizes[0] <= 1e-12 * sizes[-1]:
        columns = tuple(int(place) - intercept for place in np.flatnonzero(np.abs(right[:, 0]) > 1e-3))
        named = ", ".join("the intercept" if column == INTERCEPT else str(column) for column in columns)
        raise FitError(
            f"covariates depend on each other linearly (columns {named}): drop one of them",
            reason="dependent",
            argument="covariates",
            columns=columns,
        )


def covariates_dtype(covariates: Any) -> np.dtype:
    """The dtype of computations: that of floating covariates, at least float32 and at most what JAX has enabled."""
    floats = jnp.issubdtype(covariates.dtype, jnp.floating)
    dtype = np.promote_types(np.float32, covariates.dtype) if floats else float_dtype()
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def as_covariates(covariates: ArrayLike) -> Any:
    """Covariates `[N, D]`, checked, from `[N, D]` or `[N]` of NumPy or JAX."""
    covariates = as_array(covariates, "covariates")
    if covariates.ndim == 1:
        covariates = covariates[:, None]
    expected = "numbers of shape [N, D], with categories coded as columns of zeros and ones"
    require(covariates.ndim == 2 and _is_numeric(covariates), "covariates", expected, covariates)
    if not isinstance(covariates, Tracer):
        wrong = np.argwhere(~np.isfinite(np.asarray(covariates, np.float64)))
        if wrong.size:
            row, column = wrong[0]
            number = len(np.unique(wrong[:, 0]))
            raise FitError(
                f"row {row}, column {column} of covariates is {covariates[row, column]}: fill it in or drop the row "
                f"({number} rows have missing values)",
                reason="missing",
                argument="covariates",
                row=int(row),
                columns=(int(column),),
                number=number,
            )
    return covariates


def _is_numeric(array):
    return is_real(array) or array.dtype == bool


def as_column(given: ArrayLike, number: int, name: str) -> Any:
    """A column `[number]` of numbers or booleans, checked."""
    array = as_array(given, name)
    require(array.shape == (number,) and _is_numeric(array), name, f"numbers of shape [{number}]", array)
    return array


def as_weights(weights: ArrayLike | None, number: int, dtype: np.dtype) -> Float[Array, " N"]:
    """Weights `[N]`, checked; None is one for each."""
    if weights is None:
        return jnp.ones(number, dtype)
    weights = as_column(weights, number, "weights")
    if not isinstance(weights, Tracer):
        known = np.asarray(weights, np.float64)
        wrong = np.flatnonzero(~(np.isfinite(known) & (known >= 0)))
        if wrong.size:
            raise FitError(
                f"row {wrong[0]} of weights is {known[wrong[0]]:g}: weights are finite and not negative",
                reason="weights",
                argument="weights",
                row=int(wrong[0]),
                value=float(known[wrong[0]]),
            )
        if not known.any():
            raise FitError(
                "all weights are zero: there is nobody to estimate from", reason="weights", argument="weights", number=0
            )
    return jnp.asarray(weights, dtype)


def as_clusters(clusters: ArrayLike, number: int, weights: np.ndarray | None = None) -> tuple[Int[Array, " N"], int]:
    """Clusters `[N]`, numbered from 0, and their number; with known weights only clusters with a positive weight."""
    if isinstance(clusters, Tracer):
        raise ArgumentError.about("clusters", "are traced here, and must be known: their number decides shapes")
    clusters = np.asarray(clusters)
    require(clusters.shape == (number,), "clusters", f"one for each of {number} rows", clusters)
    missing = np.flatnonzero([each is None or each != each for each in clusters.tolist()])
    if missing.size:
        raise ArgumentError(
            f"row {missing[0]} of clusters is missing: fill it in, or drop the row ({missing.size} rows)",
            argument="clusters",
            row=int(missing[0]),
        )
    names = clusters.astype(str) if clusters.dtype == object else clusters
    used = np.unique(names if weights is None else names[weights > 0])
    # A user without weight adds nothing, in any cluster.
    numbers = np.minimum(np.searchsorted(used, names), len(used) - 1)
    return jnp.asarray(numbers, jnp.int32), len(used)
