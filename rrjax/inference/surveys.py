"""How sure estimates from a survey design are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_probability, complement
from rrjax.data.counts import survey
from rrjax.estimators.affine_mle import maximum, slope_on_support
from rrjax.inference.intervals import Intervals, Simultaneous, log_tail
from rrjax.mechanisms.surveys.design import Design
from rrjax.mechanisms.surveys.estimators import checked
from rrjax.numerics.sharding import aligned
from rrjax.numerics.special import odds_of_tail


def survey_intervals(
    counts: ArrayLike, design: Design, level: ArrayLike = 0.95, *, simultaneous: Simultaneous | None = None
) -> Intervals:
    """Confidence intervals for every θ_j, exact (Clopper–Pearson), valid at the boundary.

    The count of a category is Binomial(N, a_j + d·θ_j) whatever the other categories do. So an interval for that
    probability, mapped by (· − a_j)/d and cut to [0, 1], is one for θ_j: its share in the distribution that the
    respondents are independent draws of.

    Args:
        counts: `[K]`, integers, the reports per category.
        design: Such as `ForcedResponse`.
        level: Scalar in (0, 1): the probability, at least, that the interval of a category covers its θ_j; with
            `simultaneous`, that all intervals cover at once.
        simultaneous: As in `rrjax.inference.intervals`.

    Returns:
        `Intervals`, each `[K]`, as accurate as those of `rrjax.inference.intervals`. Where even the upper limit lies
        below zero, both are zero; where the lower one lies above one, both are one. All NaN for unusable counts, for a
        traced design that is none, or (under tracing) a level outside (0, 1).

    Raises:
        ValueError: A wrong shape or dtype, other than the design's K categories, or a level outside (0, 1).

    Example:
        >>> import rrjax
        >>> lower, upper = rrjax.inference.survey_intervals(
        ...     [300, 700], rrjax.surveys.ForcedResponse(4 / 6, [1 / 2, 1 / 2])
        ... )
        >>> [f"{a:.3f} to {b:.3f}" for a, b in zip(lower.tolist(), upper.tolist())]
        ['0.158 to 0.244', '0.756 to 0.842']

    References:
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934.
    """
    as_probability(level, "level", 0.95)
    miss = complement(level)
    counts, dtype = checked(counts, design, whole=True)
    tail = log_tail(miss, simultaneous, counts.shape[0])
    given = aligned((counts, tail, *design.affine.noise(dtype), design.affine.astype(dtype).truth))
    sound = (miss > 0) & (miss < 1)
    return Intervals(*(jnp.where(sound, limit, jnp.nan) for limit in _limits(*given)))


def survey_standard_errors(counts: ArrayLike, design: Design) -> Float[Array, " K"]:
    """Standard errors of `mle` inside the simplex, by the delta method.

    On the categories of its support, f their shares of the S reports that name one of them, θ_j is affine in f_j with
    slope 1 + Σa/d, so the error is that times sqrt(f(1−f)/S). It takes the support as given: a category that the
    estimate leaves out, or barely keeps, has no normal error; for those use `intervals`. With all categories in, they
    are the errors of `inv`.

    Args:
        counts: `[K]`, integers, the reports per category.
        design: Such as `ForcedResponse`.

    Returns:
        `[K]`, probability; NaN off the support of the estimate, and for a point mass. All NaN for unusable counts.

    Raises:
        ValueError: A wrong shape or dtype, or other than the design's K categories.

    Example:
        >>> import rrjax
        >>> errors = rrjax.inference.survey_standard_errors(
        ...     [300, 700], rrjax.surveys.ForcedResponse(4 / 6, [1 / 2, 1 / 2])
        ... )
        >>> [f"{error:.4f}" for error in errors.tolist()]
        ['0.0217', '0.0217']
    """
    counts, dtype = checked(counts, design, whole=True)
    return _errors(*aligned((counts, *design.affine.noise(dtype))))


@jax.jit
def _limits(counts, log_tail, weights, sign, truth):
    seen = survey(counts)
    usable = seen.usable & ~jnp.isnan(truth)
    count = jnp.where(usable, counts, 1).astype(weights.dtype)
    other = jnp.where(usable, seen.total - counts, 1).astype(weights.dtype)
    # The upper limit is the lower one of all that is not the category.
    low, high = odds_of_tail(jnp.stack([count, other]), jnp.stack([other, count]), log_tail)
    ends = low / (1 + low) / truth - sign * weights, 1 / (1 + high) / truth - sign * weights
    limits = jnp.minimum(*ends), jnp.maximum(*ends)
    return tuple(jnp.where(usable, jnp.clip(limit, 0, 1), jnp.nan) for limit in limits)


@jax.jit
def _errors(counts, weights, sign):
    active = maximum(counts, weights, sign) > 0
    kept = jnp.where(active, counts, 0)
    total = jnp.sum(kept).astype(weights.dtype)
    share = kept.astype(weights.dtype) / jnp.where(total > 0, total, 1)
    inner = active & (jnp.sum(active, dtype=jnp.int32) > 1) & (total > 0)
    return jnp.where(inner, slope_on_support(weights, sign, active) * jnp.sqrt(share * (1 - share) / total), jnp.nan)
