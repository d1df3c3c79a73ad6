"""Arguments of models: standardized covariates, weights and clusters; and the error of regressions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_array, float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.numerics.pytrees import exportable

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
            known). "steps": no maximum was found in `max_iters` steps. "groups": the covariates determine the groups.
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
    """Refuses an array of a wrong dtype or shape; the message has both.

    Raises:
        ArgumentError: The condition is false.
    """
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
