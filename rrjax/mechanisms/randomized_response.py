"""K-ary randomized response: probabilities, channel, and the randomizer for simulations.

Each user holds one of K categories and reports it with probability p = e^ε/(e^ε+K−1), any other one with
q = 1/(e^ε+K−1) each. Equivalently: with probability d = p − q the value is kept, otherwise a category is drawn
uniformly from all K, the true one included. The randomizer takes the second reading.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax import simulate
from rrjax.data.arguments import as_scalar, as_values, check_key
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Scaling
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally, count
from rrjax.mechanisms.mechanism import Mechanism, as_true_counts
from rrjax.mechanisms.rows import log_probability_of_block
from rrjax.numerics.pytrees import register

_MANY = 2**24
"""Categories up to which two billion reports do not tell what 64 bits deliver from what was asked for."""


@register(data_fields=["epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """K-ary randomized response: p = e^ε/(e^ε+K−1), q = 1/(e^ε+K−1). A pytree; `num_categories` is static.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats; a float or a traced array.

    Raises:
        ValueError: K < 2, or ε a number that is not positive.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.RandomizedResponse(num_categories=4, epsilon=1.0)
        >>> print(f"{mechanism.p:.3f} {mechanism.q:.3f}")
        0.475 0.175
        >>> mechanism.randomize(jax.random.key(0), [0, 1, 2, 3, 3]).shape
        (5,)

    References:
        Warner, "Randomized response: a survey technique for eliminating evasive answer bias", 1965 (K = 2);
        Kairouz, Oh and Viswanath, "Extremal mechanisms for local differential privacy", 2016 (any K).
    """

    name: ClassVar[str] = "randomized-response"

    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
        """The rates 1, K − 1 and e^ε − 1, by the given expm1: `math.expm1` makes plain numbers."""
        return Rates(1, self.num_categories - 1, expm1(self.epsilon))

    @property
    def bits(self) -> float:
        """Of a report, at the least."""
        return math.log2(self.num_categories)

    def server_operations(self, num_users: float) -> float:
        """As `Mechanism`; N + K."""
        return num_users + self.num_categories

    @property
    def p(self) -> Float[Array, ""]:
        """Probability that a report equals the value, e^ε/(e^ε+K−1). Scalar."""
        return self.rates.p

    @property
    def q(self) -> Float[Array, ""]:
        """Probability that a report equals any one other category, 1/(e^ε+K−1). Scalar."""
        return self.rates.q

    @property
    def d(self) -> Float[Array, ""]:
        """The probability p − q that the value is kept rather than drawn uniformly. Scalar, without cancellation."""
        return self.rates.d

    @property
    def effective_epsilon(self) -> Float[Array, ""]:
        """The ε that the integer threshold of `randomize` delivers, nats: never more than `epsilon`, up to rounding.

        Less by a few machine epsilons, because the probability of keeping a value is rounded down; by more where ε is
        below some 100·K²·2⁻⁶⁴: up to 2²⁴ categories two billion reports do not tell the difference, above them
        `randomize` refuses such an ε. `rrjax.secure` states the exact one for a real collection.
        """
        high, low = self._keep()
        rest_high, rest_low = _negate(high, low)
        dtype = self.expm1_epsilon.dtype

        def number(high, low):
            return high.astype(dtype) * dtype.type(2.0**32) + low.astype(dtype)

        keeps = (high > 0) | (low > 0)  # else 2⁶⁴ − T is no pair of words
        ratio = jnp.where(keeps, number(high, low) / number(rest_high, rest_low), 0)
        delivered = jnp.log1p(ratio * self.num_categories)
        return jnp.where(self.expm1_epsilon > 0, delivered, jnp.nan)

    def channel(self) -> Float[Array, "K K"]:
        """The matrix of report probabilities, for small K and for checks; nothing in rrjax needs it.

        Returns:
            `[K, K]`, row = true category, column = report: p on the diagonal, q elsewhere. Rows sum to one.

        Example:
            >>> import rrjax
            >>> [[f"{p:.2f}" for p in row] for row in rrjax.RandomizedResponse(2, 1.0).channel()]
            [['0.73', '0.27'], ['0.27', '0.73']]
        """
        return jnp.where(jnp.eye(self.num_categories, dtype=bool), self.p, self.q)

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        """Randomizes values for a simulation: the decision of `rrjax.secure` from JAX's random bits.

        One 64-bit draw u a value: kept if u < T, else (u − T) mod K, which is exactly uniform because T leaves a
        multiple of K. T is d·2⁶⁴ rounded down, so rounding never weakens ε; at K = 1,423,000 and ε = 1 a
        comparison of float32 uniforms would deliver 1.05.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: Integers in 0 … K − 1, any shape.

        Returns:
            Reports, int32, the shape of `values`. Under tracing, a value outside the domain, or any value at
            an ε that is impossible or too small for 64 bits, is −1, which `count` and the estimators turn into NaN.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain; above 2²⁴ categories an
                ε of which 64 bits would deliver less than 99 %.
        """
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        reports = _randomize(key, values, self._keep(), self.num_categories)
        return jnp.where(self._delivers(), reports, -1)

    def _delivers(self) -> Bool[Array, ""]:
        """Whether estimates may take `epsilon` for what 64 random bits deliver; refuses where they may not."""
        if self.num_categories <= _MANY:
            return self.expm1_epsilon > 0
        # However large ε is, 64 bits deliver at most 44.
        delivers = self.effective_epsilon >= 0.99 * jnp.minimum(as_scalar(self.epsilon, self.expm1_epsilon.dtype), 40)
        if not isinstance(delivers, Tracer) and self.expm1_epsilon > 0 and not delivers:
            raise ArgumentError(
                f"epsilon = {float(np.asarray(self.epsilon)):g} is too small for a simulation with "
                f"{self.num_categories:,} categories: 64 random bits deliver {float(self.effective_epsilon):.3g}; "
                "rrjax.secure has 128",
                argument="epsilon",
                value=self.epsilon,
            )
        return delivers

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        """Which categories each report supports: the one that it names.

        Args:
            reports: Integers in 0 … K − 1, any shape.

        Returns:
            Booleans, the shape of `reports` and a last axis of K.

        Raises:
            ValueError: As `rrjax.count`.
        """
        reports = as_values(reports, self.num_categories, "reports")
        return reports[..., None] == jnp.arange(self.num_categories, dtype=reports.dtype)

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        """As `Mechanism`; those from 0 to K − 1."""
        return (reports >= 0) & (reports < self.num_categories)

    def log_probability(self, reports: Array) -> Float[Array, ""]:
        """As `Mechanism`; log p for all."""
        del reports
        return log_probability_of_block(self.epsilon, self.num_categories, 0)

    def tally(self, reports: ArrayLike) -> Tally:
        """Counts reports: each supports the category that it names.

        Args:
            reports: Integers in 0 … K − 1, any shape.

        Returns:
            `Tally`, its support that of `rrjax.count`.

        Raises:
            ValueError: As `rrjax.count`.
        """
        counts = count(reports, self.num_categories)
        return Tally(counts, jnp.sum(counts), rates=self.rates)

    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of reports: a = 1 and B = (e^ε − 1)·I, one row a category. `mle_star` is its maximum.

        Args:
            reports: Integers in 0 … K − 1, any shape.

        Returns:
            `Mixture`.

        Raises:
            ValueError: As `rrjax.count`.
        """
        return Mixture(count(reports, self.num_categories), 1.0, Scaling(self.expm1_epsilon, self.num_categories))

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """Draws what a collection from given users brings, by its exact law, in O(K).

        Args:
            key: A typed key, `jax.random.key(seed)`.
            true_counts: `[K]`, integers, how many users hold each category; below 2³¹ in all.

        Returns:
            `Tally`; NaN comes of it where `simulate.randomized` draws nothing.

        Raises:
            ValueError: As `simulate.randomized`, or other than K categories.
        """
        counts = simulate.randomized(key, as_true_counts(true_counts, self.num_categories), self.epsilon)
        return Tally(counts, jnp.sum(counts), rates=self.rates)

    def _keep(self):
        return _keep_threshold(self.expm1_epsilon, self.num_categories)


def _negate(high, low):
    """2⁶⁴ − x in two words."""
    return ~high + (low == 0).astype(jnp.uint32), ~low + jnp.uint32(1)


def _remainder(high, low, divisor):
    """Returns x mod divisor, for a divisor below 2³¹, in steps that fit one word."""
    step = 32 - divisor.bit_length()
    rest = jnp.zeros_like(high)
    for word in (high, low):
        left = 32
        while left:
            take = min(step, left)
            left -= take
            digits = (word >> left) & jnp.uint32((1 << take) - 1)
            rest = ((rest << take) | digits) % jnp.uint32(divisor)
    return rest


def _words(x, rounding):
    """Returns x·2⁶⁴ for x in [0, 0.6) as two words; exact but for a part below one, which is rounded as told."""
    scaled = x * 2.0**32
    high = jnp.floor(scaled)
    low = rounding((scaled - high) * 2.0**32)
    carry = low >= 2.0**32  # rounded up to a whole word
    low = jnp.where(carry, 0, low)
    return high.astype(jnp.uint32) + carry.astype(jnp.uint32), low.astype(jnp.uint32)


@partial(jax.jit, static_argnums=1)
def _keep_threshold(e1, num_categories):
    """T in two words: 2⁶⁴ − T is a multiple of K, T at most d·2⁶⁴."""
    margin = 4 * jnp.finfo(e1.dtype).eps
    kept, noise = e1 / (e1 + num_categories), num_categories / (e1 + num_categories)
    # Whichever of d and 1 − d is small is the one that a float holds well.
    by_kept = _negate(*_words(jnp.minimum(kept, 0.5) * (1 - margin), jnp.floor))
    by_noise = _words(jnp.minimum(noise, 0.5) * (1 + margin), jnp.ceil)
    high, low = (jnp.where(kept < 0.5, a, b) for a, b in zip(by_kept, by_noise, strict=True))
    short = (num_categories - _remainder(high, low, num_categories)) % jnp.uint32(num_categories)
    rounded = low + short
    high = high + (rounded < low).astype(jnp.uint32)
    # Past 2⁶⁴ (ε below about K²·2⁻⁶⁴) the sum wraps, and nothing is left to keep.
    nothing = (rounded < low) & (high == 0)
    keep_high, keep_low = _negate(high, rounded)
    return jnp.where(nothing, 0, keep_high), jnp.where(nothing, 0, keep_low)


@partial(jax.jit, static_argnums=3)
def _randomize(key, values, keep, num_categories):
    high, low = jax.random.bits(key, (2, *values.shape), jnp.uint32)
    keep_high, keep_low = keep
    kept = (high < keep_high) | ((high == keep_high) & (low < keep_low))
    above = high - keep_high - (low < keep_low).astype(jnp.uint32), low - keep_low
    uniform = _remainder(*above, num_categories).astype(jnp.int32)
    inside = (values >= 0) & (values < num_categories)
    return jnp.where(inside, jnp.where(kept, values.astype(jnp.int32), uniform), -1)
