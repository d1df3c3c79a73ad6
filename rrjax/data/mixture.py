"""What joint statements need of a collection: the likelihood of whole reports, as a mixture over the categories.

A report u of a user who holds category i has a probability proportional to a_u + B_ui, the first part whatever the user
holds. So θ has the log-likelihood Σ_u w_u·log(a_u + (Bθ)_u), with w_u reports of each kind. k-ary randomized response
is a = 1, B = e1·I with e1 = e^ε − 1; unary encoding is a = 1 and e1 for every bit that is set. B is known as a linear
function with its transpose, a *lift*: what it takes is not U×K numbers but the two products.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_distribution, float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Lift
from rrjax.numerics.pytrees import register
from rrjax.numerics.sharding import aligned, gathered
from rrjax.numerics.sums import accurate_sum


@register(data_fields=["weights", "base", "lift"])
@dataclasses.dataclass(frozen=True)
class Mixture:
    """The likelihood of a collection: Σ_u w_u·log(a_u + (Bθ)_u). A pytree; a mechanism makes it of its reports.

    Args:
        weights: `[U]`, w: how many reports of each kind there are, integers or floats.
        base: Scalar or `[U]`, a, not negative: what the probability of a report holds whatever the value.
        lift: B, such as `Scaling`, `Dense` or `Sparse` of `rrjax.data.linear_maps`.

    Raises:
        ValueError: Shapes that do not fit, or (not under tracing) numbers that are negative or NaN, no reports at all,
            or a report that no distribution could have brought about.

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
    lift: Lift

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
        raise ArgumentError(
            f"weights and base must be real numbers, got dtypes {weights.dtype} and {base.dtype}", argument="weights"
        )
    number, size = mixture.lift.shape
    if weights.shape != (number,) or base.shape not in ((), (number,)):
        raise ArgumentError(
            f"weights must have shape [{number}] and base shape [] or [{number}], as the lift has {number} rows; got "
            f"{weights.shape} and {base.shape}",
            argument="weights",
        )
    if size < 2:
        raise ArgumentError(f"the lift must have K >= 2 columns, one a category, got {size}", argument="lift")
    if not (weights >= 0).all() or not np.isfinite(weights).all() or not weights.any():
        raise ArgumentError(
            "weights must be numbers of reports: finite, not negative, and not all zero", argument="weights"
        )
    if not (base >= 0).all() or not np.isfinite(base).all():
        raise ArgumentError("base must be finite and not negative: it is a part of a probability", argument="base")
    entries = [np.asarray(leaf) for leaf in jax.tree.leaves(mixture.lift)]
    if not all(np.isfinite(leaf).all() and (leaf >= 0).all() for leaf in entries):
        raise ArgumentError(
            "the lift must hold finite numbers, none negative: they are parts of probabilities", argument="lift"
        )
    with jax.ensure_compile_time_eval():  # known values may be met while something else is traced
        reach = np.asarray(mixture.lift(jnp.ones(size, float_dtype()))) + base
    lost = np.flatnonzero((reach <= 0) & (weights > 0))
    if lost.size:
        raise ArgumentError(
            f"row {lost[0]} has {weights[lost[0]]} reports that no distribution can have brought about: base and lift "
            "are zero there",
            argument="weights",
        )


class Reports(NamedTuple):
    """A mixture ready to be evaluated.

    Attributes:
        shares: `[U]`, the shares of the reports of each kind.
        base: Scalar or `[U]`.
        lift: B.
        usable: Scalar: whether the weights make sense.
    """

    shares: Float[Array, " U"]
    base: Float[Array, "*U"]
    lift: Lift
    usable: Bool[Array, ""]

    def probabilities(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        """A + Bθ; one where there are no reports, and NaN for negative ones."""
        mixed = jnp.where(self.shares > 0, self.base + self.lift(theta), 1)
        return jnp.where((mixed >= 0) & self.usable, mixed, jnp.nan)

    def slopes(self, theta: Float[Array, " K"]) -> Float[Array, " K"]:
        """Bᵀ(φ/μ), the derivative of the log-likelihood per report in θ, without that of what a adds."""
        return self.lift.transpose(self.shares / self.probabilities(theta))

    def log_likelihood(self, theta: Float[Array, " K"]) -> Float[Array, ""]:
        """Σ φ·log μ, nats per report; −∞ where a report has probability zero."""
        mixed = self.probabilities(theta)
        terms = jnp.where(self.shares > 0, self.shares * jnp.log(mixed), 0)
        plain = jnp.sum(terms)
        return jnp.where(jnp.isfinite(plain), accurate_sum(terms), plain)


def as_mixture(mixture: Mixture, epsilon: ArrayLike | None, theta: ArrayLike | None = None) -> tuple[Array, Reports]:
    """Settles the dtypes of a mixture that a function was given, and of the distribution beside it.

    Raises:
        ValueError: An ε beside it, or a θ of another length.
    """
    if epsilon is not None:
        raise ArgumentError(
            f"a mixture has its own probabilities: leave epsilon out (got {epsilon})", argument="epsilon"
        )
    size = mixture.num_categories
    weights = gathered(jnp.asarray(mixture.weights))
    theta = as_distribution(np.full(size, 1 / size, float_dtype()) if theta is None else theta, size)
    dtype = theta.dtype
    if jnp.issubdtype(weights.dtype, jnp.floating):
        dtype = np.promote_types(dtype, weights.dtype)
    theta, base = theta.astype(dtype), jnp.asarray(mixture.base).astype(dtype)
    weights = weights.astype(dtype)
    total = accurate_sum(weights)
    usable = (jnp.min(weights) >= 0) & (total > 0) & jnp.isfinite(total)
    lift = jax.tree.map(jnp.asarray, mixture.lift)
    return aligned((theta, Reports(weights / jnp.where(total > 0, total, 1), base, lift, usable)))
