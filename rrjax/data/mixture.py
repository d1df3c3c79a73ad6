"""Mixtures: the likelihood of whole reports, for inference on all categories jointly.

A report u of a user with category i has a probability proportional to a_u + B_ui, where a_u does not depend on i. So
θ has the log-likelihood Σ_u w_u·log(a_u + (Bθ)_u), with w_u reports of each kind. k-ary randomized response has a = 1
and B = e1·I with e1 = e^ε − 1; unary encoding has a = 1 and e1 for every bit that is set; both are over a power of two
where they would leave the range of the dtype (`rrjax.numerics.sums.scaled_odds`). B is given as a linear map, a
*lift*: by its products with B and its transpose, not by U×K numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_distribution, float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import LinearMap
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import with_sharding_of, with_whole_axis
from rrjax.numerics.sums import accurate_sum


@pytree()
class Mixture:
    """The likelihood of a collection, Σ_u w_u·log(a_u + (Bθ)_u). A pytree; made by `mixture` of a mechanism.

    Args:
        weights: `[U]`, w: the numbers of reports of each kind, integers or floats.
        base: Scalar or `[U]`, a, not negative: the part of a report's probability that does not depend on the value.
        lift: B, such as `Scaling`, `Dense` or `Sparse` of `rrjax.data.linear_maps`.

    Raises:
        ValueError: Shapes that do not fit, or (not under tracing) numbers that are negative or NaN, no reports at all,
            or a report that has probability zero under every distribution.

    Example:
        >>> import rrjax
        >>> from rrjax.data.linear_maps import Dense
        >>> mixture = rrjax.Mixture(
        ...     [50, 30, 20], base=0.1, lift=Dense([[0.7, 0.1, 0.1], [0.1, 0.7, 0.1], [0.1, 0.1, 0.7]])
        ... )
        >>> [round(t, 2) for t in rrjax.ibu(mixture).theta.tolist()]
        [0.67, 0.27, 0.07]
    """

    weights: ArrayLike
    base: ArrayLike
    lift: LinearMap

    def __post_init__(self) -> None:
        """Checks shapes and numbers, unless one is traced."""
        if isinstance(self.weights, list | tuple):
            object.__setattr__(self, "weights", np.asarray(self.weights))
        if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self)):
            _check(self)

    @property
    def num_categories(self) -> int:
        """K."""
        return self.lift.shape[1]


def _check(mixture):
    weights, base = np.asarray(mixture.weights), np.asarray(mixture.base)
    if not (is_real(weights) and is_real(base)):
        dtypes = f"{weights.dtype} and {base.dtype}"
        raise ArgumentError.about("weights", f"and base must be real numbers, got dtypes {dtypes}")
    number, size = mixture.lift.shape
    if weights.shape != (number,) or base.shape not in ((), (number,)):
        raise ArgumentError.about(
            "weights",
            f"must have shape [{number}] and base shape [] or [{number}], as the lift has {number} rows; got "
            f"{weights.shape} and {base.shape}",
        )
    if size < 2:
        raise ArgumentError(f"the lift must have K >= 2 columns, one a category, got {size}", argument="lift")
    if not (weights >= 0).all() or not np.isfinite(weights).all() or not weights.any():
        raise ArgumentError.about("weights", "must be numbers of reports: finite, not negative, and not all zero")
    if not (base >= 0).all() or not np.isfinite(base).all():
        raise ArgumentError.about("base", "must be finite and not negative: it is a part of a probability")
    entries = [np.asarray(leaf) for leaf in jax.tree.leaves(mixture.lift)]
    if not all(np.isfinite(leaf).all() and (leaf >= 0).all() for leaf in entries):
        message = "the lift must hold finite numbers, none negative: they are parts of probabilities"
        raise ArgumentError(message, argument="lift")
    with jax.ensure_compile_time_eval():  # known values may occur while other values are traced
        reach = np.asarray(mixture.lift(jnp.ones(size, float_dtype()))) + base
    impossible = np.flatnonzero((reach <= 0) & (weights > 0))
    if impossible.size:
        row = impossible[0]
        raise ArgumentError(
            f"row {row} has {weights[row]} reports of probability zero under every distribution: base and lift are "
            "zero there",
            argument="weights",
        )


class NormalizedMixture(NamedTuple):
    """Mixture with settled dtypes and normalized weights.

    Attributes:
        shares: `[U]`, the shares of the reports of each kind.
        base: Scalar or `[U]`.
        lift: B.
        usable: Scalar: whether the weights are valid.
    """

    shares: Float[Array, " U"]
    base: Float[Array, "*U"]
    lift: LinearMap
    usable: Bool[Array, ""]

    def probabilities(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        """μ = a + Bθ; one for kinds without reports, NaN for negative numbers."""
        mixed = jnp.where(self.shares > 0, self.base + self.lift(theta), 1)
        return jnp.where((mixed >= 0) & self.usable, mixed, jnp.nan)

    def slopes(self, theta: Float[Array, " K"]) -> Float[Array, " K"]:
        """Bᵀ(φ/μ), the derivative in θ of the log-likelihood per report."""
        return self.lift.transpose(self.shares / self.probabilities(theta))

    def log_likelihood(self, theta: Float[Array, " K"]) -> Float[Array, ""]:
        """Σ φ·log μ in nats per report; −∞ if a report has probability zero."""
        mixed = self.probabilities(theta)
        terms = jnp.where(self.shares > 0, self.shares * jnp.log(mixed), 0)
        plain = jnp.sum(terms)
        return jnp.where(jnp.isfinite(plain), accurate_sum(terms), plain)


def as_mixture(
    mixture: Mixture, epsilon: ArrayLike | None, theta: ArrayLike | None = None
) -> tuple[Array, NormalizedMixture]:
    """A distribution (None is the uniform one) and a mixture in their final dtypes; `ValueError` for an ε with it."""
    if epsilon is not None:
        message = f"a mixture has its own probabilities: leave epsilon out (got {epsilon})"
        raise ArgumentError(message, argument="epsilon")
    size = mixture.num_categories
    weights = with_whole_axis(jnp.asarray(mixture.weights))
    theta = as_distribution(np.full(size, 1 / size, float_dtype()) if theta is None else theta, size)
    dtype = theta.dtype
    if jnp.issubdtype(weights.dtype, jnp.floating):
        dtype = np.promote_types(dtype, weights.dtype)
    theta, base = theta.astype(dtype), jnp.asarray(mixture.base).astype(dtype)
    weights = weights.astype(dtype)
    total = accurate_sum(weights)
    usable = (jnp.min(weights) >= 0) & (total > 0) & jnp.isfinite(total)
    lift = jax.tree.map(jnp.asarray, mixture.lift)
    return with_sharding_of((theta, NormalizedMixture(weights / jnp.where(total > 0, total, 1), base, lift, usable)))
