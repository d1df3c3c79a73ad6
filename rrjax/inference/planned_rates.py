"""The rates of a mechanism that is planned, and its largest error over all distributions."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import Estimand, as_scalar, check_estimand, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.mechanism_parameters import Rates
from rrjax.mechanisms import Design, MechanismFactory


def squared_error_of_one(
    num_categories: int, epsilon: ArrayLike, mechanism: MechanismFactory, estimand: Estimand = "users"
) -> Float[Array, ""]:
    """Largest expected squared error of `inv` of any shares θ, summed over the categories, times the number of users.

    If rates differ by category, the error is Σ_j (b_j + w_j·θ_j), with the variances b_j of an empty category and
    b_j + w_j of one that all users have. It is largest if all have one. Drawing the users adds 1 − Σθ_j²; then the
    largest sum is at the projection of w/2 onto the simplex.
    """
    drawn = drawing_error(num_categories, estimand)
    rates = _planned(num_categories, epsilon, mechanism)
    if not rates.truth.ndim:
        return rates.total_variance(num_categories) + drawn
    empty = rates.variance(0.0)
    more = rates.variance(1.0) - empty
    if estimand == "users":
        return jnp.sum(empty) + jnp.max(more)
    worst = lax.stop_gradient(_projected(more / 2))  # at a maximum its derivative has no effect
    return jnp.sum(rates.variance(worst)) + 1 - jnp.sum(worst**2)


def _projected(values):
    """The point of the simplex that is nearest to a vector `[K]`."""
    falling = jnp.sort(values, descending=True)
    levels = (jnp.cumsum(falling) - 1) / jnp.arange(1, values.shape[0] + 1, dtype=values.dtype)
    return jnp.maximum(values - jnp.max(levels), 0)


def rates_of(
    num_categories: int,
    epsilon: ArrayLike,
    mechanism: MechanismFactory,
    share: ArrayLike = 0.0,
    category: int | None = None,
) -> Rates:
    """The rates of a planned mechanism, NaN at an unusable ε.

    If they differ by category, those of `category`; of the one with the most noise at a share if it is None.

    Raises:
        ValueError: A category outside 0 … K − 1.
    """
    rates = _planned(num_categories, epsilon, mechanism)
    if category is not None:
        as_integer(category, "category", 0, num_categories - 1)
    if not rates.truth.ndim:
        return rates
    place = jnp.argmax(rates.variance(share)) if category is None else category
    return Rates(*(weight[place] for weight in rates))


def noisiest(mechanism: Design, share: float) -> int | None:
    """The category with the largest variance at a share; None if all are alike."""
    rates = mechanism.rates.astype(float_dtype())
    variances = rates.variance(share)
    return int(jnp.argmax(variances)) if rates.truth.ndim and jnp.ptp(variances) > 1e-6 * jnp.max(variances) else None


def _planned(num_categories, epsilon, mechanism):
    # As a scalar of JAX, because a mechanism refuses an unusable number of Python.
    return mechanism(num_categories, as_scalar(epsilon, float_dtype())).rates


def drawing_error(num_categories: int, estimand: Estimand) -> float:
    """The largest expected squared error, times N, that drawing the users adds: 1 − Σθ² of equal shares, or zero."""
    check_estimand(estimand)
    return 1 - 1 / num_categories if estimand == "distribution" else 0.0
