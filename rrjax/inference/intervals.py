"""Confidence intervals for the share of users that hold each category."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Float

from rrjax.inference.arguments import as_probability, complement
from rrjax.inference.binomial import odds_of_tail
from rrjax.inference.excess import reports

Method: TypeAlias = Literal["clopper-pearson", "wilson"]
Simultaneous: TypeAlias = Literal["bonferroni", "sidak"]


class Intervals(NamedTuple):
    """Confidence limits.

    Attributes:
        lower: `[K]`, in [0, 1].
        upper: `[K]`, in [0, 1], not below `lower`.
    """

    lower: Float[Array, " K"]
    upper: Float[Array, " K"]


def intervals(
    counts: ArrayLike,
    epsilon: ArrayLike,
    level: ArrayLike = 0.95,
    *,
    method: Method = "clopper-pearson",
    simultaneous: Simultaneous | None = None,
) -> Intervals:
    r"""Confidence intervals for every θ_i, valid at the boundary, where those of asymptotic theory are not.

    The count of a category is Binomial(N, q + d·θ_i) whatever the other categories do. So an interval for that
    probability, mapped by (· − q)/d and cut to [0, 1], is one for θ_i:

    * "clopper-pearson": exact: it covers with at least its level, whatever N, K, ε and θ. The default.
    * "wilson": from the normal approximation of the count at the limit itself. Shorter; covers with its level on
      average over θ, and less at some.

    Users of a fixed population are covered too: their count is a sum of independent Bernoulli variables of two
    probabilities, which is less spread than the binomial one of the same mean.

    Args:
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.
        level: Scalar in (0, 1): the probability that the interval of a category covers its θ_i; with `simultaneous`,
            that all intervals cover at once.
        method: As above.
        simultaneous: "bonferroni" divides 1 − level by K and needs nothing else. "sidak" takes the K-th root of the
            level; it is a little shorter, and holds for normal variables, so only for counts that are large.

    Returns:
        `Intervals`, each `[K]`. Limits are accurate to 1e-5 of their distance from the estimate, or to the rounding of
        q + d·θ, whichever is more, for N up to the largest integer. Where even the upper limit lies below zero, both
        are zero. All NaN for unusable counts or ε, or (under tracing) a level outside (0, 1).

    Raises:
        ValueError: A wrong shape or dtype, K < 2, a level outside (0, 1), or an unknown method.

    Example:
        >>> import rrjax
        >>> lower, upper = rrjax.inference.intervals([5_200, 2_900, 1_000, 900], epsilon=2.0)
        >>> [f"{a:.3f} to {b:.3f}" for a, b in zip(lower.tolist(), upper.tolist())]
        ['0.673 to 0.705', '0.301 to 0.330', '0.000 to 0.016', '0.000 to 0.000']

    References:
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934; Wilson, "Probable inference, the law of
        succession, and statistical inference", 1927; Hoeffding, "On the distribution of the number of successes in
        independent trials", 1956, for a fixed population.
    """
    if method not in ("clopper-pearson", "wilson"):
        raise ValueError(f"method must be 'clopper-pearson' or 'wilson', got {method!r}")
    if simultaneous not in (None, "bonferroni", "sidak"):
        raise ValueError(f"simultaneous must be None, 'bonferroni' or 'sidak', got {simultaneous!r}")
    as_probability(level, "level", 0.95)
    miss = complement(level)
    data = reports(counts, epsilon)
    log_tail = _log_tail(miss, simultaneous, data.counts.shape[0])
    find = _clopper_pearson if method == "clopper-pearson" else _wilson
    lower, upper = (data.share(p) for p in find(data.counts, data.others, log_tail))
    usable = data.usable & (miss > 0) & (miss < 1)
    return Intervals(*(jnp.where(usable, jnp.clip(limit, 0, 1), jnp.nan) for limit in (lower, upper)))


def _log_tail(miss, simultaneous, number):
    """Logarithm of the probability of either tail."""
    if simultaneous == "bonferroni":
        miss = miss / number
    elif simultaneous == "sidak":
        miss = -jnp.expm1(jnp.log1p(-miss) / number)
    return jnp.log(miss / 2)


@jax.jit
def _clopper_pearson(count, other, log_tail):
    # The upper limit is the lower one of all that is not the category.
    low, high = odds_of_tail(jnp.stack([count, other]), jnp.stack([other, count]), log_tail)
    return low / (1 + low), 1 / (1 + high)


@jax.jit
def _wilson(count, other, log_tail):
    z2 = ndtri(jnp.exp(log_tail)) ** 2
    total = count + other
    half = jnp.sqrt(z2 * (count * (other / total) + z2 / 4))
    # The small end by the product of the roots, so that it keeps its digits.
    upper = (count + z2 / 2 + half) / (total + z2)
    lower = count * (count / total) / (count + z2 / 2 + half)
    return lower, upper
