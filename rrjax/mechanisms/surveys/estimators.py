"""Estimators of the true distribution from the answers to a survey design."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped

from rrjax.data.arguments import float_of, survey
from rrjax.data.linear_maps import Dense, Scaling
from rrjax.data.mixture import Mixture
from rrjax.estimators.affine_mle import maximum
from rrjax.mechanisms.mechanism import as_counts_of
from rrjax.mechanisms.surveys.design import Design
from rrjax.numerics.sharding import aligned
from rrjax.numerics.sums import accurate_sum


def mle(counts: ArrayLike, design: Design) -> Float[Array, " K"]:
    """Maximum likelihood estimate from the answers to a survey design, exact and in closed form.

    A report names category j with probability μ_j = a_j + d·θ_j. For d > 0 the maximum keeps the categories with the
    largest c_j/a_j, for d < 0 the smallest; with S and A the sums of counts and of a on these,

        θ_j = (c_j/τ − a_j)/d,    τ = S/(d + A).

    A sort and cumulative sums find the support; rounding at its border is corrected.

    Args:
        counts: `[K]`, integers or floats, the reports per category.
        design: Such as `ForcedResponse`.

    Returns:
        `[K]` on the simplex. Within 1e-7 (float32) or 1e-14 (float64) of exact arithmetic in total variation, given the
        a_j/|d| in the dtype; the rounding of a_j/|d| moves it by 1/d times as much. If d < 0 and exactly one category
        has no reports, its share is one; if several have none, the maximum is not unique, and they get equal shares.
        All NaN for unusable counts, for an impossible traced design, and for a d so small that the dtype has no digits
        left. Derivatives in floats and in the design's probabilities, of every order; if some c_j/a_j equals τ, the
        one-sided ones with that category absent.

    Raises:
        ValueError: A wrong shape or dtype, or other than the design's K categories.

    Example:
        >>> import rrjax
        >>> design = rrjax.surveys.ForcedResponse(truth=0.6, forced=[0.5, 0.3, 0.2])
        >>> [round(t, 2) for t in rrjax.surveys.mle([500, 430, 70], design).tolist()]
        [0.49, 0.51, 0.0]

    References:
        Warner, 1965; Chaudhuri and Mukerjee, "Randomized Response", 1988, for a maximum inside the simplex.
    """
    counts, dtype = checked(counts, design)
    weights, sign = design.affine.noise(dtype)
    return maximum(*aligned((counts, weights, sign)))


def inv(counts: ArrayLike, design: Design) -> Float[Array, " K"]:
    """Estimates the shares by inverting the randomization: unbiased, often negative.

    θ_j = (c_j/N − a_j)/d, which sums to one.

    Args:
        counts: `[K]`, integers or floats, the reports per category.
        design: Such as `ForcedResponse`.

    Returns:
        `[K]`, not confined to [0, 1]. Accurate to a few units in the last place of max(c_j/N, a_j)/|d|.
        All NaN for unusable counts and for an impossible traced design. Derivatives in floats and in the
        design's probabilities.

    Raises:
        ValueError: A wrong shape or dtype, or other than the design's K categories.

    Example:
        >>> import rrjax
        >>> design = rrjax.surveys.UnrelatedQuestion(truth=0.7, unrelated=[0.25, 0.75])
        >>> [round(t, 3) for t in rrjax.surveys.inv([50, 950], design).tolist()]
        [-0.036, 1.036]
    """
    counts, dtype = checked(counts, design)
    law = design.affine
    weights, sign = law.noise(dtype)
    return _inverted(*aligned((counts, weights, sign, law.astype(dtype).truth)))


def mixture(counts: ArrayLike, design: Design) -> Mixture:
    """The likelihood of the answers to a survey design, for `nll`, `score`, `certificate` and `ibu`.

    Args:
        counts: `[K]`, integers or floats, the reports per category.
        design: Such as `ForcedResponse`.

    Returns:
        `Mixture`, one row for each category: a and d·I; for d < 0, a − |d| and |d| for every other category, a K×K
        matrix.

    Raises:
        ValueError: A wrong shape or dtype, other than the design's K categories, or (not under tracing) unusable
            counts.

    Example:
        >>> import rrjax
        >>> design = rrjax.surveys.ForcedResponse(truth=0.6, forced=[0.5, 0.3, 0.2])
        >>> likelihood = rrjax.surveys.mixture([500, 430, 70], design)
        >>> theta = rrjax.surveys.mle([500, 430, 70], design)
        >>> bool(rrjax.certificate(theta, likelihood).gap < 1e-4)
        True
    """
    counts, dtype = checked(counts, design)
    number, law = design.num_categories, design.affine
    always, truth = law.astype(dtype)
    least = jnp.maximum(jnp.asarray(law.always + law.truth).astype(dtype), 0)
    counts, always, least, truth = aligned((counts, always, least, truth))
    if not design.denies:
        return Mixture(counts, always, Scaling(truth, number))
    own = aligned(jnp.eye(number, dtype=dtype), counts)
    positive = truth > 0  # a design that may have d < 0, with parameters for d > 0
    return Mixture(counts, jnp.where(positive, always, least), Dense(jnp.where(positive, own, 1 - own), jnp.abs(truth)))


def checked(counts: ArrayLike, design: Design, *, whole: bool = False) -> tuple[Shaped[Array, " K"], np.dtype]:
    """The counts of a design, checked, and the dtype of results.

    Raises:
        ValueError: A wrong shape or dtype, or other than the design's K categories.
    """
    counts = as_counts_of(counts, design.num_categories, "category of the design", whole=whole)
    return counts, float_of(counts)


@jax.jit
def _inverted(counts: Shaped[Array, " K"], weights, sign, truth):
    total = survey(counts).total if jnp.issubdtype(counts.dtype, jnp.integer) else accurate_sum(counts)
    share = counts.astype(weights.dtype) / total.astype(weights.dtype)
    return jnp.where(survey(counts).usable, share / truth - sign * weights, jnp.nan)
