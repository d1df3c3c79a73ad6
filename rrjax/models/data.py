"""Covariates, reports and weights of regressions: checked, and on a scale on which they can be computed with."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.arguments import float_dtype
from rrjax.mechanisms.rows import LogRows
from rrjax.models.logistic import Data
from rrjax.models.loss import MechanismOrEpsilon, rows_of


class Standard(NamedTuple):
    """Covariates `[N, D]` less their means, in standard deviations; the first one, if wanted, is one for everybody.

    Attributes:
        covariates: `[N, D]`, those.
        shift: `[D]`, the means, zero for the intercept; all zero without one.
        scales: `[D]`, one for the intercept.
        intercept: Whether there is one.
    """

    covariates: Float[Array, "N D"]
    shift: Float[Array, " D"]
    scales: Float[Array, " D"]
    intercept: bool

    @property
    def back(self) -> Float[Array, "D D"]:
        """What coefficients on these are multiplied with for those on the covariates as given."""
        matrix = jnp.diag(1 / self.scales)
        # A coefficient over its scale, and the intercept gives up what the means had.
        return matrix.at[0, 1:].set(-self.shift[1:] / self.scales[1:]) if self.intercept else matrix

    @property
    def forth(self) -> Float[Array, "D D"]:
        """The inverse of `back`."""
        matrix = jnp.diag(self.scales)
        return matrix.at[0, 1:].set(self.shift[1:]) if self.intercept else matrix


def standardized(covariates: Float[Array, "N D"], intercept: bool) -> Standard:
    """Standardizes checked covariates.

    Raises:
        ValueError: (Not under tracing) one that is the same for everybody, or that others determine.
    """
    shift = jnp.mean(covariates, axis=0) if intercept else jnp.zeros(covariates.shape[1], covariates.dtype)
    scales = jnp.sqrt(jnp.mean((covariates - shift) ** 2, axis=0))
    standard = (covariates - shift) / scales
    if intercept:
        one = jnp.ones((1,), covariates.dtype)
        standard = jnp.concatenate([jnp.ones_like(covariates[:, :1]), standard], axis=1)
        shift, scales = jnp.concatenate([0 * one, shift]), jnp.concatenate([one, scales])
    if not isinstance(standard, Tracer):
        _check_rank(np.asarray(standard, np.float64), intercept)
    return Standard(standard, shift, scales, intercept)


def as_data(
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    num_categories: int | None,
    weights: ArrayLike | None,
    intercept: bool,
) -> tuple[Data, Standard]:
    """What `fit` is given, checked and standardized.

    Raises:
        ValueError: As `fit`.
    """
    covariates = as_covariates(covariates)
    dtype = covariates.dtype
    rows = rows_of(reports, mechanism_or_epsilon, num_categories, covariates.shape[0])
    rows = LogRows(*(leaf.astype(dtype) for leaf in rows))
    weights = as_weights(weights, covariates.shape[0], dtype)
    standard = standardized(covariates, intercept)
    return Data(standard.covariates, rows, weights), standard


def as_covariates(covariates: ArrayLike) -> Float[Array, "N D"]:
    """Checks covariates `[N, D]`, or `[N]` of one.

    Raises:
        ValueError: Another shape, what are no numbers, or (not under tracing) a missing one, with its row.
    """
    covariates = covariates if isinstance(covariates, jax.Array) else np.asarray(covariates)
    if covariates.ndim == 1:
        covariates = covariates[:, None]
    if covariates.ndim != 2 or covariates.dtype.kind not in "biuf":
        raise ValueError(
            f"covariates must be numbers of shape [N, D], got {covariates.dtype} of shape {tuple(covariates.shape)}: "
            "code categories as columns of zeros and ones"
        )
    if not isinstance(covariates, Tracer):
        wrong = np.argwhere(~np.isfinite(np.asarray(covariates, np.float64)))
        if wrong.size:
            row, column = wrong[0]
            raise ValueError(
                f"row {row}, column {column} of covariates is {covariates[row, column]}: fill it in or drop the row "
                f"({len(np.unique(wrong[:, 0]))} rows have missing values)"
            )
    dtype = np.promote_types(np.float32, covariates.dtype) if covariates.dtype.kind == "f" else float_dtype()
    return jnp.asarray(covariates, jax.dtypes.canonicalize_dtype(dtype))


def as_weights(weights: ArrayLike | None, number: int, dtype: np.dtype) -> Float[Array, " N"]:
    """Checks weights `[N]`; None is one for each.

    Raises:
        ValueError: Another shape, or (not under tracing) one that is negative or missing, or none above zero.
    """
    if weights is None:
        return jnp.ones(number, dtype)
    weights = weights if isinstance(weights, jax.Array) else np.asarray(weights)
    if weights.shape != (number,) or weights.dtype.kind not in "biuf":
        raise ValueError(f"weights must be numbers of shape [{number}], got {weights.dtype} of {tuple(weights.shape)}")
    if not isinstance(weights, Tracer):
        known = np.asarray(weights, np.float64)
        wrong = np.flatnonzero(~(np.isfinite(known) & (known >= 0)))
        if wrong.size:
            raise ValueError(f"row {wrong[0]} of weights is {known[wrong[0]]:g}: weights are finite and not negative")
        if not known.any():
            raise ValueError("all weights are zero: there is nobody to estimate from")
    return jnp.asarray(weights).astype(dtype)


def as_clusters(clusters: ArrayLike, number: int) -> tuple[Int[Array, " N"], int]:
    """Numbers the clusters from 0, and counts them.

    Raises:
        ValueError: Another shape than `[N]`, or fewer than two.
    """
    clusters = np.asarray(clusters)
    if clusters.shape != (number,):
        raise ValueError(f"clusters must have shape [{number}], got {clusters.shape}")
    known, numbers = np.unique(clusters, return_inverse=True)
    if len(known) < 2:
        raise ValueError("clusters must be two or more")
    return jnp.asarray(numbers.ravel(), jnp.int32), len(known)


def _check_rank(standard, intercept):
    constant = np.flatnonzero(~np.isfinite(standard).all(axis=0))
    if constant.size:
        column = constant[0] - intercept
        raise ValueError(
            f"column {column} of covariates is the same for everybody: drop it"
            + (" (there is an intercept)" if intercept else "")
        )
    if standard.shape[0] < standard.shape[1]:
        raise ValueError(
            f"there are {standard.shape[1] - intercept} covariates{' and an intercept' * intercept} for "
            f"{standard.shape[0]} users: no more than users can be told apart"
        )
    # Of the moments, which are small whatever the number of users: eigenvalues are squares of singular values.
    sizes, right = np.linalg.eigh(standard.T @ standard)
    if sizes[0] <= 1e-12 * sizes[-1]:
        columns = np.flatnonzero(np.abs(right[:, 0]) > 1e-3) - intercept
        named = ", ".join("the intercept" if column < 0 else str(column) for column in columns)
        raise ValueError(f"covariates depend on each other linearly (columns {named}): drop one of them")
