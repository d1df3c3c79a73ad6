"""The maximum of the likelihood of any mechanism; in closed form if each report probability is affine in one share.

A report names category j with probability μ_j = a_j + d·θ_j, the a_j and d known. With w_j = a_j/|d|, the sign s of d,
and A the categories that the maximum keeps, S and W the sums of the counts and of w over A,

    μ_j = c_j·|d|/t on A,    t = S/(W + s),    θ_j = s·(c_j/t − w_j),

and j is kept if and only if s·(c_j − w_j·t) > 0: for d > 0 the largest c_j/w_j, for d < 0 the smallest. k-ary
randomized response has w_j = 1/e1, and its t is e1 times the threshold of `rrjax.estimators.water_filling`. Integers do
not help if the w_j differ.

The best set of categories makes t an extremum. So the error of t is the square of the error of the set, which has the
rounding of cumulative sums. The support is determined anew from this t. The differences c_j − w_j·t cancel if d is
small. They are formed from exact products, so that only the rounding of the w_j costs digits.
"""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Shaped

from rrjax.data.arguments import as_counts, count_summary, float_of
from rrjax.data.linear_maps import Scaling
from rrjax.data.mixture import Mixture
from rrjax.estimators.closed_form import differentiable, mle_star
from rrjax.estimators.em import acceleration_for, ibu
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.sums import accurate_sum


def mle(counts: ArrayLike | Mixture, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Maximum likelihood estimate from the reports of any mechanism: in closed form, or by a certified iteration.

    If each report names one category, with probability a_j + d·θ_j, the maximum keeps for d > 0 the categories with the
    largest c_j/a_j, for d < 0 the smallest. With S and A the sums of counts and of a on these,

        θ_j = (c_j/τ − a_j)/d,    τ = S/(d + A).

    This serves survey designs. Equal a_j are randomized response: `mle_star`. For mixtures of other mechanisms it is
    the limit of `ibu`, whose result has the certificate, in nats per report: by Newton's method up to 256 categories
    and 2¹⁶ kinds of reports × categories. Beyond, in float32 with more than 10⁶ reports, it may be farther from the
    maximum than a standard error; `ibu(…, accelerate="newton")`, or 64-bit mode, is nearer.

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
        return ibu(counts, epsilon, accelerate=acceleration_for(counts)).theta
    return maximum(*law)


def naming_law(
    mixture: Mixture,
) -> tuple[Float[Array, " K"], Float[Array, " K"], Float[Array, ""]] | None:
    """Counts, a/|d| and the sign of d, if each report names one category; None for other mixtures."""
    lift = mixture.lift
    if not isinstance(lift, Scaling):
        return None
    counts = as_counts(mixture.weights, "weights")
    dtype, size = float_of(counts), lift.num_categories
    noise = jnp.asarray(mixture.base).astype(dtype) / jnp.asarray(lift.scale).astype(dtype)
    sign = jnp.where(False if lift.others is None else lift.others, -1, 1).astype(dtype)
    noise = jnp.broadcast_to(noise + jnp.maximum(-sign, 0), (size,))
    return with_sharding_of((counts, noise, sign))


def _solve(counts, weights, sign):
    seen = count_summary(counts)
    usable = seen.usable & (jnp.min(weights) >= 0) & jnp.all(jnp.isfinite(weights)) & (jnp.abs(sign) == 1)
    counts = jnp.where(usable, counts, 1)
    weights, sign = jnp.where(usable, weights, 2), jnp.where(usable, sign, 1)
    level = _sorted_level(counts, weights, sign)
    above = jnp.maximum(sign * _minus_product(_halves(counts, weights.dtype), weights, level), 0)
    # With d < 0 a report denies a category: a category without reports explains them all.
    unnamed = (counts == 0) & (sign < 0)
    above = jnp.where(jnp.any(unnamed), unnamed.astype(above.dtype), above)
    total = accurate_sum(above)
    return jnp.where(usable & (total > 0), above / jnp.where(total > 0, total, 1), jnp.nan)


@jax.jit
def _closed_form(counts, weights, sign, active):
    sign = lax.stop_gradient(sign)
    kept = jnp.where(active, counts.astype(weights.dtype), 0)
    total = accurate_sum(kept)
    share = kept / jnp.where(total > 0, total, 1)
    divisor = accurate_sum(jnp.where(active, weights, 0)) + sign
    # If no report denied any category of the support, the derivatives are zero.
    return jnp.where(active & (total > 0), sign * (divisor * share - weights), 0)


maximum = differentiable(_solve, _closed_form)
"""`maximum(counts, weights, sign)`: θ `[K]` of counts `[K]`, w `[K]` and s = ±1; all NaN for unusable ones."""


def slope_on_support(
    weights: Float[Array, " K"], sign: Float[Array, ""], active: Bool[Array, " K"]
) -> Float[Array, ""]:
    """|dθ_j/df_j| = |W + s| on the support, f the shares among the reports that name it."""
    return accurate_sum(jnp.where(active, weights, 0)) + sign


def _sorted_level(counts, weights, sign):
    """The t of the set of categories from a sort and cumulative sums, in plain floating point."""
    floats = counts.astype(weights.dtype)
    ratio = jnp.where(counts > 0, floats / weights, 0)  # infinite if all reports are true
    _, counts, weights = lax.sort((sign * ratio, counts, weights), num_keys=1)
    sums = (jnp.cumsum(counts[::-1])[::-1]).astype(weights.dtype)
    divisors = jnp.cumsum(weights[::-1])[::-1] + sign
    keeps = sign * (counts.astype(weights.dtype) * divisors - weights * sums) > 0
    dropped = jnp.minimum(jnp.sum(~keeps, dtype=jnp.int32), counts.shape[0] - 1)
    return _level(counts, weights, sign, jnp.arange(counts.shape[0], dtype=jnp.int32) >= dropped)


def _level(counts, weights, sign, active):
    """The t of a set of categories, as a sum of two floats."""
    dtype = weights.dtype
    divisor = _sum(jnp.append(jnp.where(active, weights, 0), sign))
    kept = jnp.where(active, counts, 0)
    total = _sum(kept) if jnp.issubdtype(counts.dtype, jnp.floating) else _halves(jnp.sum(kept), dtype)
    first = (total[0] + total[1]) / divisor[0]
    return first, _minus_product(total, first, divisor) / divisor[0]


def _sum(terms):
    """A sum as two floats: rounded, and its rounding error."""
    total = accurate_sum(terms)
    return total, accurate_sum(jnp.append(terms, -total))


def _halves(counts: Shaped[Array, "*s"], dtype) -> tuple[Array, Array]:
    """Counts as a sum of two floats, exactly."""
    if jnp.issubdtype(counts.dtype, jnp.floating):
        return counts, jnp.zeros_like(counts)
    cut = np.array(jnp.iinfo(counts.dtype).bits // 2 - 4, counts.dtype)
    high = (counts >> cut) << cut
    return high.astype(dtype), (counts - high).astype(dtype)


def _cut(x):
    """A float as a sum of two floats with half of its digits each, so that products of such halves are exact."""
    info = jnp.finfo(x.dtype)
    word = jnp.dtype(f"uint{info.bits}")
    low_digits = word.type((1 << (info.nmant // 2 + 1)) - 1)
    high = lax.bitcast_convert_type(lax.bitcast_convert_type(x, word) & ~low_digits, x.dtype)
    return high, x - high


def _minus_product(number, factor, other):
    """The difference number − factor·other, to the square of the machine epsilon; both are sums of two floats.

    Every product but the last, a small one, is exact, so XLA may fuse any of them with a sum.
    """
    (a, b), (c, d) = _cut(factor), _cut(-other[0])
    total, left = number[0] + 0 * factor, 0 * factor
    for term in (a * c, number[1], a * d, b * c, b * d, -factor * other[1]):
        after = total + term
        virtual = after - total
        left = left + ((total - (after - virtual)) + (term - virtual))
        total = after
    return total + left
