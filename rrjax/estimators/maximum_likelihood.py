"""The maximum likelihood estimate from the reports of any mechanism."""

from __future__ import annotations

from typing import cast

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_counts, float_of
from rrjax.data.linear_maps import Naming, Scaling
from rrjax.data.mixture import Mixture
from rrjax.estimators.affine_mle import maximum
from rrjax.estimators.closed_form import mle_star
from rrjax.estimators.em import ibu
from rrjax.numerics.sharding import aligned


def mle(counts: ArrayLike | Mixture, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Maximum likelihood estimate from the reports of any mechanism: in closed form, or by a certified iteration.

    If each report names one category, with probability a_j + d·θ_j, the maximum keeps for d > 0 the categories with the
    largest c_j/a_j, for d < 0 the smallest. With S and A the sums of counts and of a on these,

        θ_j = (c_j/τ − a_j)/d,    τ = S/(d + A).

    This serves survey designs. Equal a_j are randomized response: `mle_star`. For mixtures of other mechanisms it is
    the limit of `ibu`, whose result has the certificate.

    Args:
        counts: A `Mixture`; or `[K]`, integers or floats, the reports of randomized response per category.
        epsilon: Scalar, nats; not with a mixture.

    Returns:
        `[K]` on the simplex. The closed form is within 1e-7 (float32) or 1e-14 (float64) of exact arithmetic in total
        variation, given the a_j/|d| in the dtype; the rounding of a_j/|d| moves it by 1/d times as much. If d < 0 and
        exactly one category has no reports, its share is one; if several have none, the maximum is not unique, and they
        get equal shares. All NaN for unusable counts, for an impossible traced mechanism, and for a d so small that the
        dtype has no digits left. Derivatives of the closed form in floats and in the mechanism's probabilities, of
        every order; if some c_j/a_j equals τ, the one-sided ones with that category absent. Others as of `ibu`.

    Raises:
        ValueError: A wrong shape or dtype, or an ε with a mixture.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.ForcedResponse(truth=0.6, forced=[0.5, 0.3, 0.2])
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([500, 430, 70])).tolist()]
        [0.49, 0.51, 0.0]

    References:
        Warner, 1965; Chaudhuri and Mukerjee, "Randomized Response", 1988, for a maximum inside the simplex.
    """
    if not isinstance(counts, Mixture):
        return mle_star(counts, cast("ArrayLike", epsilon))  # a missing ε is refused there
    law = naming_law(counts)
    if law is None or epsilon is not None:
        return ibu(counts, epsilon).theta
    return maximum(*law)


def naming_law(
    mixture: Mixture,
) -> tuple[Float[Array, " K"], Float[Array, " K"], Float[Array, ""]] | None:
    """Counts, a/|d| and the sign of d, if each report names one category; None for other mixtures."""
    lift = mixture.lift
    if not isinstance(lift, Scaling | Naming):
        return None
    counts = as_counts(mixture.weights, "weights")
    dtype, size = float_of(counts), lift.num_categories
    noise = jnp.asarray(mixture.base).astype(dtype) / jnp.asarray(lift.scale).astype(dtype)
    sign = jnp.where(lift.others if isinstance(lift, Naming) else False, -1, 1).astype(dtype)
    noise = jnp.broadcast_to(noise + jnp.maximum(-sign, 0), (size,))
    return aligned((counts, noise, sign))
