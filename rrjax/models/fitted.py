"""What a regression found, in the units that it was computed with and in those of its covariates."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rrjax.data.errors import ArgumentError
from rrjax.models.data import Units
from rrjax.numerics.pytrees import register


@register(
    data_fields=[
        "standard_coefficients", "standard_covariance", "units", "log_likelihood", "gain", "gap", "num_iters",
        "converged", "num_users",
    ],
    meta_fields=["intercept", "robust", "num_clusters"],
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class Regression:
    """What `fit` found. A pytree; under `vmap` every leaf, and every property, has the batch in front.

    Attributes:
        standard_coefficients: `[D, K − 1]`, of the covariates in the units that they are computed with in.
        standard_covariance: `[D·(K − 1), D·(K − 1)]`, of those; None where it was not wanted.
        units: Means and standard deviations of the covariates, `[D]` each.
        log_likelihood: Scalar, nats, of all reports, each by its weight.
        gain: Scalar, nats, by how much that is above the likelihood of coefficients that are all zero.
        gap: Scalar, nats of all reports that the maximum is above that: half of Newton's decrement. Without covariance
            the solver's own estimate; NaN where it has none.
        num_iters: Scalar.
        converged: Scalar: whether the gap is below the tolerance, at a point where nothing runs off.
        num_users: Scalar, the sum of the weights.
        intercept: Whether there is one. Static.
        robust: Whether the covariance is a sandwich. Static.
        num_clusters: Of how many clusters the covariance is, or None. With c of them statements about coefficients are
            made by Student's t and F with c − 1 degrees of freedom, not by the normal law and χ². Static.
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
        """Log-odds of categories 1 … K − 1 to category 0 per unit of each covariate; the intercept's first.

        `[D, K − 1]`.
        """
        return back_of(self.units, self.intercept) @ self.standard_coefficients

    @property
    def covariance(self) -> Float[Array, "P P"]:
        """Of `coefficients.ravel()`, `[D·(K − 1), D·(K − 1)]`.

        Raises:
            ValueError: The regression was fitted without.
        """
        known = self.known_covariance
        back, (size, width) = back_of(self.units, self.intercept), self.standard_coefficients.shape[-2:]
        split = known.reshape(*known.shape[:-2], size, width, size, width)
        return jnp.einsum("...ab,...bicj,...dc->...aidj", back, split, back).reshape(known.shape)

    @property
    def known_covariance(self) -> Float[Array, "P P"]:
        """That of the standardized coefficients.

        Raises:
            ValueError: The regression was fitted without.
        """
        if self.standard_covariance is None:
            raise ValueError('the regression was fitted with covariance="none": fit it with another one')
        return self.standard_covariance

    @property
    def standard_errors(self) -> Float[Array, "D k"]:
        """Of each coefficient, `[D, K − 1]`.

        Raises:
            ValueError: The regression was fitted without covariance.
        """
        known = self.known_covariance
        back, (size, width) = back_of(self.units, self.intercept), self.standard_coefficients.shape[-2:]
        own = jnp.einsum("...bkck->...kbc", known.reshape(*known.shape[:-2], size, width, size, width))
        # Variances may be no floats in units in which standard errors are.
        largest = jnp.max(jnp.abs(back), axis=-1, keepdims=True)
        rows = back / largest
        return largest * jnp.sqrt(jnp.einsum("...ab,...kbc,...ac->...ak", rows, own, rows))

    @property
    def num_parameters(self) -> int:
        """D·(K − 1)."""
        return self.standard_coefficients.shape[-2] * self.standard_coefficients.shape[-1]

    @property
    def deviance(self) -> Float[Array, ""]:
        """−2 times the log-likelihood, nats. That of a model within this one is larger by what a test compares."""
        return -2 * self.log_likelihood

    @property
    def aic(self) -> Float[Array, ""]:
        """Akaike's criterion: the deviance, and two for each coefficient."""
        return self.deviance + 2 * self.num_parameters


def back_of(units: Units, intercept: bool) -> Float[Array, "D D"]:
    """What standardized coefficients are multiplied with for those on the covariates as given."""
    matrix = jnp.eye(units.scales.shape[-1], dtype=units.scales.dtype) / units.scales[..., None, :]
    # A coefficient over its scale, and the intercept gives up what the means had.
    return matrix.at[..., 0, 1:].set(-(units.shift / units.scales)[..., 1:]) if intercept else matrix


def check_plain(result: Regression, what: str, argument: str = "result") -> None:
    """Refuses a regression whose covariance is a sandwich: its likelihood has no χ² law.

    Raises:
        ArgumentError: It has survey weights, clusters or `covariance="sandwich"`.
    """
    if result.robust:
        raise ArgumentError(
            f"{what} has no χ² law with survey weights, clusters or a sandwich: use wald_test", argument=argument
        )
