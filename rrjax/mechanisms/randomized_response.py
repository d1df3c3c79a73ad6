"""K-ary randomized response.

Each user holds one of K categories, and reports it with probability p = e^ε/(e^ε+K−1), any other one with probability
q = 1/(e^ε+K−1) each. Equivalently, the value is kept with probability d = p − q; otherwise the report is drawn
uniformly from all K categories, the true one included. The randomizer uses the second form.
"""

from __future__ import annotations

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
from rrjax.data.arguments import as_scalar, as_true_counts, as_values, check_key
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Scaling
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally, count
from rrjax.mechanisms.draws import below
from rrjax.mechanisms.mechanism import PureMechanism, log_probability_of_block
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sums import scaled_odds

EXACT_CATEGORIES = 2**24
"""Largest K at which two billion reports cannot show the difference between ε and the ε of 64 bits."""


@pytree("num_categories")
class RandomizedResponse(PureMechanism):
    """K-ary randomized response: p = e^ε/(e^ε+K−1), q = 1/(e^ε+K−1). A pytree; `num_categories` is static.

    Reports are int32 in 0 … K − 1. Under tracing, −1 marks a value outside the domain, and any value at an ε that is
    impossible or too small for 64 bits; −1 leads to NaN in `count` and the estimators. `mixture` has a = 1 and B = (e^ε
    − 1)·I, one row a category; `mle_star` is its maximum.

    `randomize` takes one 64-bit draw u for each value, as `rrjax.secure` with more bits: the value is kept if u < T,
    else the report is (u − T) mod K, which is exactly uniform because T leaves a multiple of K. T is d·2⁶⁴ rounded
    down, so rounding never weakens ε. (A comparison of float32 uniforms would deliver 1.05 at K = 1,423,000 and ε = 1.)
    Above 2²⁴ categories it refuses an ε if 64 bits would deliver less than 99 % of it (`ValueError`).

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.

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
    names_one: ClassVar[bool] = True
    same_size: ClassVar[bool] = True

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        return Rates(1, self.num_categories - 1, expm1(self.epsilon))

    @property
    def bits(self) -> float:
        return math.log2(self.num_categories)

    def server_operations(self, num_users: float) -> float:
        return num_users + self.num_categories

    @property
    def p(self) -> Float[Array, ""]:
        """Probability that a report equals the value, e^ε/(e^ε+K−1). Scalar."""
        return self.rates.p

    @property
    def q(self) -> Float[Array, ""]:
        """Probability that a report equals a given other category, 1/(e^ε+K−1). Scalar."""
        return self.rates.q

    @property
    def d(self) -> Float[Array, ""]:
        """The probability p − q that the value is kept and not drawn uniformly. Scalar, without cancellation."""
        return self.rates.d

    @property
    def effective_epsilon(self) -> Float[Array, ""]:
        """The ε delivered by the integer threshold of `randomize`, nats: at most `epsilon`, up to rounding.

        It is less by a few machine epsilons, because the probability of keeping a value is rounded down. For ε below
        some 100·K²·2⁻⁶⁴ it is less by more: up to 2²⁴ categories two billion reports cannot show the difference; above,
        `randomize` refuses such an ε. `rrjax.secure` states the exact ε of a real collection.
        """
        return _delivered(self.expm1_epsilon, self.num_categories)

    def channel(self) -> Float[Array, "K K"]:
        """The matrix of report probabilities, for checks and small K: row = true category, column = report.

        Example:
            >>> import rrjax
            >>> [[f"{p:.2f}" for p in row] for row in rrjax.RandomizedResponse(2, 1.0).channel()]
            [['0.73', '0.27'], ['0.27', '0.73']]
        """
        return jnp.where(jnp.eye(self.num_categories, dtype=bool), self.p, self.q)

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        reports = _randomize(key, values, _keep_threshold(self.expm1_epsilon, self.num_categories), self.num_categories)
        return jnp.where(self._delivers(), reports, -1)

    def _delivers(self) -> Bool[Array, ""]:
        """Whether 64 random bits deliver `epsilon` accurately enough for estimates; raises `ValueError` if not."""
        if self.num_categories <= EXACT_CATEGORIES:
            return self.expm1_epsilon > 0
        # 64 bits deliver at most 44 nats.
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
        reports = as_values(reports, self.num_categories, "reports")
        return reports[..., None] == jnp.arange(self.num_categories, dtype=reports.dtype)

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        return (reports >= 0) & (reports < self.num_categories)

    def log_probability(self, reports: Array) -> Float[Array, ""]:
        del reports
        return log_probability_of_block(self.epsilon, self.num_categories, 0)

    def tally(self, reports: ArrayLike) -> Tally:
        return self.tally_of_counts(count(reports, self.num_categories))

    def tally_of_counts(self, counts: Int[Array, " K"]) -> Tally:
        """The tally of counted reports."""
        return Tally(counts, jnp.sum(counts), rates=self.rates)

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.mixture_of_counts(count(reports, self.num_categories))

    def mixture_of_counts(self, counts: ArrayLike) -> Mixture:
        """The likelihood of counted reports, `[K]` integers or floats."""
        one, odds = scaled_odds(self.expm1_epsilon)
        return Mixture(counts, one, Scaling(odds, self.num_categories))

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        true_counts = as_true_counts(true_counts, self.num_categories)
        return self.tally_of_counts(simulate.randomized(key, true_counts, self.epsilon))


def _negate(high, low):
    """2⁶⁴ − x in two words."""
    return ~high + (low == 0).astype(jnp.uint32), ~low + jnp.uint32(1)


def _remainder(high, low, divisor):
    """X mod divisor, for a divisor below 2³¹, in steps that fit one word."""
    step = 32 - divisor.bit_length()
    remainder = jnp.zeros_like(high)
    for word in (high, low):
        bits_left = 32
        while bits_left:
            taken = min(step, bits_left)
            bits_left -= taken
            digits = (word >> bits_left) & jnp.uint32((1 << taken) - 1)
            remainder = ((remainder << taken) | digits) % jnp.uint32(divisor)
    return remainder


def _words(x, rounding):
    """x·2⁶⁴ for x in [0, 0.6) as two words; exact but for a part below one, which `rounding` makes an integer."""
    scaled = x * 2.0**32
    high = jnp.floor(scaled)
    low = rounding((scaled - high) * 2.0**32)
    carry = low >= 2.0**32  # rounded up to a whole word
    low = jnp.where(carry, 0, low)
    return high.astype(jnp.uint32) + carry.astype(jnp.uint32), low.astype(jnp.uint32)


@partial(program, static_argnums=(1,))
def _delivered(e1, num_categories):
    high, low = _keep_threshold(e1, num_categories)
    noise_high, noise_low = _negate(high, low)

    def number(high, low):
        return high.astype(e1.dtype) * e1.dtype.type(2.0**32) + low.astype(e1.dtype)

    keeps = (high > 0) | (low > 0)  # else 2⁶⁴ − T does not fit two words
    ratio = jnp.where(keeps, number(high, low) / number(noise_high, noise_low), 0)
    return jnp.where(e1 > 0, jnp.log1p(ratio * num_categories), jnp.nan)


@partial(program, static_argnums=(1,))
def _keep_threshold(e1, num_categories):
    """T in two words: 2⁶⁴ − T is a multiple of K, T at most d·2⁶⁴."""
    margin = 4 * jnp.finfo(e1.dtype).eps
    kept, noise = e1 / (e1 + num_categories), num_categories / (e1 + num_categories)
    # A float holds the smaller one of d and 1 − d more precisely.
    by_kept = _negate(*_words(jnp.minimum(kept, 0.5) * (1 - margin), jnp.floor))
    by_noise = _words(jnp.minimum(noise, 0.5) * (1 + margin), jnp.ceil)
    high, low = (jnp.where(kept < 0.5, a, b) for a, b in zip(by_kept, by_noise, strict=True))
    missing = (num_categories - _remainder(high, low, num_categories)) % jnp.uint32(num_categories)
    rounded = low + missing
    high = high + (rounded < low).astype(jnp.uint32)
    # Beyond 2⁶⁴ (ε below about K²·2⁻⁶⁴) the sum wraps: T is zero.
    wraps = (rounded < low) & (high == 0)
    keep_high, keep_low = _negate(high, rounded)
    return jnp.where(wraps, 0, keep_high), jnp.where(wraps, 0, keep_low)


@partial(jax.jit, static_argnums=3)
def _randomize(key, values, keep, num_categories):
    high, low = jax.random.bits(key, (2, *values.shape), jnp.uint32)
    keep_high, keep_low = keep
    kept = below((high, low), keep)
    above = high - keep_high - (low < keep_low).astype(jnp.uint32), low - keep_low
    uniform = _remainder(*above, num_categories).astype(jnp.int32)
    inside = (values >= 0) & (values < num_categories)
    return jnp.where(inside, jnp.where(kept, values.astype(jnp.int32), uniform), -1)
