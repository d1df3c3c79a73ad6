"""Non-empty categories: p-values, and discoveries with a bounded false discovery rate."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_probability
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Tally, evidence
from rrjax.inference.distinct_counts import once_per_count
from rrjax.inference.intervals import whole_support
from rrjax.mechanisms.mechanism import Dependence
from rrjax.numerics.programs import program
from rrjax.numerics.sharding import aligned
from rrjax.numerics.special import log_survival


def p_values(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None, *, log: bool = False) -> Float[Array, " K"]:
    """Exact p-values of the hypotheses that a category is empty, θ_i = 0 against θ_i > 0.

    P(Binomial(N, q) ≥ c_i): the probability that an empty category has this count or a larger one.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        log: Whether to return natural logarithms, which do not underflow.

    Returns:
        `[K]`, in [0, 1]. Logarithms are accurate to 2e-6 (float32; 1e-14 in float64) of the larger of one and
        themselves, at any N and however far the tail. Each distinct count is computed once. All NaN for unusable counts
        or ε.

    Raises:
        ValueError: A wrong shape or dtype, or K < 2.

    Example:
        >>> import rrjax
        >>> [f"{p:.2g}" for p in rrjax.inference.p_values([40, 22, 15, 13], epsilon=2.0).tolist()]
        ['9.5e-18', '3.4e-05', '0.025', '0.09']
    """
    data = evidence(counts, epsilon)
    return once_per_count(lambda data, _: _p_values(data, log), whole_support(counts, epsilon), data)


def discoveries(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    fdr: ArrayLike = 0.05,
    *,
    dependence: Dependence = "negative",
) -> Bool[Array, " K"]:
    """Marks categories that are significantly above zero, at a false discovery rate.

    Among the sorted exact `p_values`, the largest p_(k) ≤ k·fdr/K and all below are significant (Benjamini and
    Hochberg). The support of `mle_star` does not bound the false discovery rate: most of it may be empty categories,
    because about half of the empty categories whose counts are above their expectation have a positive estimate.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        fdr: Scalar in (0, 1): the false discovery rate, a bound on the expected share of empty categories among the
            marked ones.
        dependence: "negative": the method unchanged. Counts of one collection of randomized response are negatively
            associated; for them the bound is proven up to a constant factor, and holds without it in simulations.
            Counts of unary encoding are independent for given users, and the bound is proven. "any": the method of
            Benjamini and Yekutieli, which divides fdr by 1 + 1/2 + … + 1/K and is proven for any dependence.

    Returns:
        `[K]`, booleans. All false for unusable counts or ε.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an fdr outside (0, 1), or an unknown dependence.

    Example:
        >>> import rrjax
        >>> rrjax.inference.discoveries([5_200, 2_900, 1_000, 900], epsilon=2.0).tolist()
        [True, True, False, False]

    References:
        Benjamini and Hochberg, "Controlling the false discovery rate", 1995; Benjamini and Yekutieli, "The control of
        the false discovery rate in multiple testing under dependency", 2001, Theorem 1.3; Chi, Ramdas and Wang,
        "Multiple testing under negative dependence", arXiv:2212.09706.
    """
    if dependence not in ("negative", "any"):
        raise ArgumentError(f"dependence must be 'negative' or 'any', got {dependence!r}", argument="dependence")
    bound = as_probability(fdr, "fdr", 0.05)
    data = evidence(counts, epsilon)
    size = data.support.shape[0]
    divisor = float(np.sum(1 / np.arange(1, size + 1))) if dependence == "any" else 1.0
    return once_per_count(
        lambda data, times: _step_up(data, times, size, bound, divisor), whole_support(counts, epsilon), data, bound
    )


def _log_p_values(data):
    value = log_survival(data.support, data.others, data.excess, data.q)
    return jnp.where(data.usable, value, jnp.nan)


@partial(jax.jit, static_argnames="log")
def _p_values(data, log):
    value = _log_p_values(data)
    return value if log else jnp.exp(value)


@program
def _step_up(data, times, size, bound, divisor):
    log_p_value = _log_p_values(data)
    bound = jnp.where((bound > 0) & (bound < 1), bound, jnp.nan)  # under tracing; no p-value is below NaN
    log_unit = jnp.log(bound / divisor / size)
    each = 1 if times is None else times

    def count(k):
        return jnp.sum(jnp.where(log_p_value <= log_unit + jnp.log(k.astype(log_unit.dtype)), each, 0), dtype=jnp.int32)

    # The largest k with k p-values at most k·unit: from k = K down, every count of them is the next k.
    start = aligned(jnp.asarray(size, jnp.int32), log_p_value, log_unit)
    _, number = lax.while_loop(lambda s: s[1] < s[0], lambda s: (s[1], count(s[1])), (start + 1, start))
    return log_p_value <= log_unit + jnp.log(number.astype(log_unit.dtype))
