"""Covariates, reports and weights of regressions: checked, and on a scale on which they can be computed with."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.rows import LogRows
from rrjax.models.logistic import Data
from rrjax.models.loss import MechanismOrEpsilon, rows_of
from rrjax.models.refusals import INTERCEPT, FitError
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import together


@exportable
class Units(NamedTuple):
    """The units that covariates are computed with in: `[D]` each.

    Attributes:
        shift: The means, zero for the intercept; all zero without one.
        scales: The standard deviations, one for the intercept; root mean squares without one.
    """

    shift: Float[Array, " D"]
    scales: Float[Array, " D"]


class Standard(NamedTuple):
    """Covariates in units of their own; the first one, if wanted, is one for everybody.

    Attributes:
        covariates: `[N, D]`.
        units: Theirs.
    """

    covariates: Float[Array, "N D"]
    units: Units


def standardized(covariates: Any, intercept: bool) -> Standard:
    """Standardizes checked covariates: in double precision, where they are known.

    Raises:
        ValueError: (Not under tracing) one that is the same for everybody, or that others determine.
    """
    dtype = covariates_dtype(covariates)
    known = not isinstance(covariates, Tracer)
    given = np.asarray(covariates, np.float64) if known else jnp.asarray(covariates).astype(dtype)
    if known:
        _check_scale(np.asarray(given), dtype)
    library: Any = np if known else jnp
    shift = library.mean(given, axis=0) if intercept else library.zeros_like(given[0])
    shift = shift.astype(dtype).astype(given.dtype)  # as they are kept, so that predictions are made in the same units
    centred = given - shift
    largest = library.max(library.abs(centred), axis=0)  # whose square may be no number
    if known and intercept:  # of what is the same for everybody rounding leaves something
        largest = np.where(largest > 1e-13 * np.abs(given).max(axis=0), largest, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = (largest * library.sqrt(library.mean((centred / largest) ** 2, axis=0))).astype(dtype)
        standard = centred / scales.astype(given.dtype)
    if intercept:
        standard = library.concatenate([library.ones_like(given[:, :1]), standard], axis=1)
        shift, scales = library.append(0 * shift[:1], shift), library.append(1 + 0 * scales[:1], scales)
    if known:
        _check_rank(standard, intercept)
    return Standard(jnp.asarray(standard, dtype), Units(jnp.asarray(shift, dtype), jnp.asarray(scales, dtype)))


def _check_scale(given: np.ndarray, dtype: Any) -> None:
    """Refuses units in which sums of values or coefficients are zero or infinite."""
    least, most = 1e4 * float(np.finfo(dtype).tiny), 1e-6 * float(np.finfo(dtype).max)
    largest = np.abs(given).max(axis=0, initial=0)
    wrong = np.flatnonzero((largest > most) | ((largest > 0) & (largest < least)))
    if wrong.size:
        raise FitError(
            f"covariate {wrong[0]} has values up to {largest[wrong[0]]:.3g}, at the end of all floats: give it in "
            f"another unit, between {least:.0e} and {most:.0e}",
            reason="scale",
            argument="covariates",
            columns=(int(wrong[0]),),
            number=float(largest[wrong[0]]),
        )


def as_data(
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    num_categories: int | None,
    weights: ArrayLike | None,
    intercept: bool,
) -> tuple[Data, Units]:
    """What `fit` is given, checked and standardized.

    Raises:
        ValueError: As `fit`.
    """
    given = together(as_covariates(covariates))
    dtype, number = covariates_dtype(given), given.shape[0]
    rows = rows_of(reports, mechanism_or_epsilon, num_categories, number)
    rows = LogRows(*(together(leaf.astype(dtype)) for leaf in rows))
    weights = together(as_weights(weights, number, dtype))
    standard, units = standardized(given, intercept)
    return _without_derivative(Data(standard, rows, weights)), units


@jax.custom_jvp
def _without_derivative(data):
    """The same data: the loops that fit them have no derivative, and JAX would not say so in words."""
    return data


@_without_derivative.defjvp
def _refuse_derivative(primals, tangents):
    raise NotImplementedError(
        "models.fit and models.fit_outcome have no derivatives: take differences of two fits, or "
        "models.fit_family where there are no covariates"
    )


def covariates_dtype(covariates: Any) -> np.dtype:
    """What they are computed with in: their own floats, at least float32, and at most what JAX has."""
    floats = jnp.issubdtype(covariates.dtype, jnp.floating)
    dtype = np.promote_types(np.float32, covariates.dtype) if floats else float_dtype()
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def as_covariates(covariates: ArrayLike) -> Any:
    """Checks covariates `[N, D]`, or `[N]` of one: of NumPy or JAX, as they came.

    Raises:
        ValueError: Another shape, what are no numbers, or (not under tracing) a missing one, with its row.
    """
    covariates = covariates if isinstance(covariates, jax.Array) else np.asarray(covariates)
    if covariates.ndim == 1:
        covariates = covariates[:, None]
    if covariates.ndim != 2 or not (is_real(covariates) or covariates.dtype == bool):
        raise ArgumentError(
            f"covariates must be numbers of shape [N, D], got {covariates.dtype} of shape {tuple(covariates.shape)}: "
            "code categories as columns of zeros and ones",
            argument="covariates",
        )
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


def as_weights(weights: ArrayLike | None, number: int, dtype: np.dtype) -> Float[Array, " N"]:
    """Checks weights `[N]`; None is one for each.

    Raises:
        ValueError: Another shape, or (not under tracing) one that is negative or missing, or none above zero.
    """
    if weights is None:
        return jnp.ones(number, dtype)
    weights = weights if isinstance(weights, jax.Array) else np.asarray(weights)
    if weights.shape != (number,) or not (is_real(weights) or weights.dtype == bool):
        raise ArgumentError(
            f"weights must be numbers of shape [{number}], got {weights.dtype} of {tuple(weights.shape)}",
            argument="weights",
        )
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
    """Numbers the clusters from 0, and counts them; of known weights those in which there is one above zero.

    Raises:
        ValueError: Another shape than `[N]`, a missing one, or traced ones.
    """
    if isinstance(clusters, Tracer):
        raise ArgumentError(
            "clusters are traced here, and must be known: how many there are decides shapes", argument="clusters"
        )
    clusters = np.asarray(clusters)
    if clusters.shape != (number,):
        raise ArgumentError(
            f"clusters must have shape [{number}], one for each row; got {clusters.shape}", argument="clusters"
        )
    missing = np.flatnonzero(clusters != clusters) if clusters.dtype.kind in "fO" else np.zeros(0, int)
    missing = np.union1d(missing, np.flatnonzero([each is None for each in clusters])).astype(int)
    if missing.size:
        raise ArgumentError(
            f"row {missing[0]} of clusters is missing: fill it in, or drop the row ({missing.size} rows)",
            argument="clusters",
            row=int(missing[0]),
        )
    names = clusters.astype(str) if clusters.dtype == object else clusters
    used = np.unique(names if weights is None else names[weights > 0])
    # Who has no weight adds nothing, in whatever cluster.
    numbers = np.minimum(np.searchsorted(used, names), len(used) - 1)
    return jnp.asarray(numbers, jnp.int32), len(used)


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
    if standard.shape[0] < standard.shape[1]:
        raise FitError(
            f"there are {standard.shape[1] - intercept} covariates{' and an intercept' * intercept} for "
            f"{standard.shape[0]} users: no more than users can be told apart",
            reason="users",
            argument="covariates",
            number=standard.shape[0],
            needed=standard.shape[1],
        )
    # Of the moments, which are small whatever the number of users: eigenvalues are squares of singular values.
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
