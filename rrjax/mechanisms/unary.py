"""Unary encodings: a report is K bits, one for each category, and supports the categories whose bits are set.

The bit of a user's own category is set with probability p, any other bit with q, independently. Let S be the set bits
of a report. The likelihood of the report is proportional to 1 + (e^ε − 1)·θ(S), with ε = log[p(1−q)/(q(1−p))].
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
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_scalar, as_true_counts, as_values, check_key, count_summary, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.draws import below, rounded_down, rounded_up
from rrjax.mechanisms.mechanism import CELLS, LogRows, PureMechanism, tally_if
from rrjax.numerics.pytrees import pytree
from rrjax.simulate.sampling import Stream, binomial


@dataclasses.dataclass(frozen=True)
class UnaryEncoding(PureMechanism):
    """A mechanism whose reports are K independent bits, set with the probabilities of its `rates_by`."""

    independent: ClassVar[bool] = True

    @property
    def bits(self) -> float:
        return self.num_categories

    def randomize(self, key: Array, values: ArrayLike) -> Bool[Array, "*s K"]:
        """As `PureMechanism.randomize`: booleans, a last axis of K.

        One 64-bit draw for each bit is compared with p·2⁶⁴ rounded down or q·2⁶⁴ rounded up. Rounding weakens ε by no
        more than the rounding of the dtype. Every row of bits is a report, so no row can mark an error under tracing:
        all bits are set for a value outside the domain, none at an impossible ε. Check values before they are traced.
        """
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        return _randomize(key, values, self.rates, self.num_categories)

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        return as_bits(reports, self.num_categories)

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        return jnp.all(are_bits(reports), axis=-1)

    @property
    def log_rates(self) -> tuple[Float[Array, ""], ...]:
        """Log p, log(1 − p), log q and log(1 − q), nats; subclasses compute them from ε, finite at every ε."""
        return tuple(jnp.log(rate) for rate in (self.rates.p, self.rates.not_p, self.rates.q, self.rates.not_q))

    def log_probability(self, reports: Array) -> Float[Array, "*s"]:
        log_p, _, log_q, log_not_q = self.log_rates
        # A report without set bits supports no category: its value is arbitrary.
        others = jnp.maximum(jnp.sum(reports, axis=-1, dtype=jnp.int32) - 1, 0).astype(log_p.dtype)
        return log_p + jnp.where(others > 0, others * log_q, 0) + (self.num_categories - 1 - others) * log_not_q

    def log_rows(self, reports: ArrayLike) -> LogRows:
        rows = super().log_rows(reports)
        _, log_not_p, _, log_not_q = self.log_rates
        # A report without set bits is equally likely for every value.
        none = ~jnp.any(self.supports(reports), axis=-1)
        unset = log_not_p + (self.num_categories - 1) * log_not_q
        return LogRows(jnp.where(none, unset, rows.scale), jnp.where(none, 0, rows.base), rows.lift)

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        check_key(key)  # the law of support counts is known: O(K)
        return independent(key, as_true_counts(true_counts, self.num_categories), self.rates)


@pytree("num_categories")
class SymmetricUnaryEncoding(UnaryEncoding):
    """Symmetric unary encoding (SUE): p = e^{ε/2}/(e^{ε/2}+1), q = 1 − p. A pytree; `num_categories` is static.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.SymmetricUnaryEncoding(num_categories=3, epsilon=2.0)
        >>> print(f"{mechanism.rates.p:.3f} {mechanism.rates.q:.3f}")
        0.731 0.269
        >>> reports = mechanism.randomize(jax.random.key(0), [0, 0, 1, 2])
        >>> reports.shape, int(mechanism.tally(reports).num_users)
        ((4, 3), 4)

    References:
        Erlingsson, Pihur and Korolova, "RAPPOR", 2014; Wang, Blocki, Li and Jha, "Locally differentially private
        protocols for frequency estimation", 2017, §4.2.
    """

    name: ClassVar[str] = "symmetric-unary-encoding"

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        return Rates(1, 1, expm1(self.epsilon / 2))  # pyright: ignore[reportOperatorIssue]

    @property
    def log_rates(self) -> tuple[Float[Array, ""], ...]:
        half = as_scalar(self.epsilon, float_dtype()) / 2
        log_p, log_q = jax.nn.log_sigmoid(half), jax.nn.log_sigmoid(-half)
        return log_p, log_q, log_q, log_p


@pytree("num_categories")
class OptimizedUnaryEncoding(UnaryEncoding):
    """Optimized unary encoding (OUE): p = ½, q = 1/(e^ε+1). A pytree; `num_categories` is static.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(num_categories=3, epsilon=2.0)
        >>> print(f"{mechanism.rates.p:.3f} {mechanism.rates.q:.3f}")
        0.500 0.119
        >>> tally = mechanism.collect(jax.random.key(0), [60_000, 30_000, 10_000])
        >>> [round(t, 2) for t in rrjax.inv_p(tally).tolist()]
        [0.6, 0.3, 0.1]

    References:
        Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation", 2017, §4.3.
    """

    name: ClassVar[str] = "optimized-unary-encoding"

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        e1 = expm1(self.epsilon)
        return Rates(2, e1 + 2, e1)

    @property
    def log_rates(self) -> tuple[Float[Array, ""], ...]:
        epsilon = as_scalar(self.epsilon, float_dtype())
        half = jnp.full_like(epsilon, -math.log(2))
        return half, half, jax.nn.log_sigmoid(-epsilon), jax.nn.log_sigmoid(epsilon)


def as_bits(bits: ArrayLike, num_bits: int, name: str = "reports") -> Bool[Array, "*s K"]:
    """An array of bits; refuses another shape or dtype, or (not under tracing) numbers other than 0 and 1."""
    bits = bits if isinstance(bits, jax.Array) else np.asarray(bits)
    if bits.shape[-1:] != (num_bits,):
        raise ArgumentError.about(name, f"must have shape [N, {num_bits}], a row of bits each; got {bits.shape}")
    if bits.dtype.kind not in "biu":
        raise ArgumentError(f"{name} must be booleans, or integers 0 and 1, got dtype {bits.dtype}", argument=name)
    if bits.dtype.kind != "b" and not isinstance(bits, Tracer) and bits.size:
        low, high = int(np.asarray(bits).min()), int(np.asarray(bits).max())
        if low < 0 or high > 1:
            raise ArgumentError(f"{name} must be 0 and 1, got values from {low} to {high}", argument=name)
    return jnp.asarray(bits).astype(bool)


def are_bits(bits: Shaped[Array, "*s"]) -> Bool[Array, "*s"]:
    """Whether each entry is zero or one, or a boolean."""
    return bits == bits.astype(bool).astype(bits.dtype)


@jax.jit
def independent(key: Array, true_counts: Array, rates: Rates) -> Tally:
    """The tally of a collection with independent support counts: Binomial(n_i, p) + Binomial(N − n_i, q) each."""
    seen = count_summary(true_counts)
    usable = seen.drawable & (rates.truth > 0)
    held, number = (jnp.where(usable, x, 0).astype(jnp.int32) for x in (true_counts, seen.total))
    support = sum_of_bits(key, held, number, rates, usable)
    return tally_if(usable, support.astype(true_counts.dtype), number.astype(true_counts.dtype), rates)


def sum_of_bits(
    key: Array, held: Int[Array, " K"], number: Int[Array, ""], rates: Rates, usable: Bool[Array, ""]
) -> Int[Array, " K"]:
    """Draws Binomial(n_i, p) + Binomial(N − n_i, q) for each n_i, int32; p = q = ½ at unusable rates."""
    key_of_holders, key_of_others = jax.random.split(key)
    # A float holds the smaller one of p and 1 − p more precisely.
    smaller = jnp.where(usable, jnp.minimum(rates.p, rates.not_p), 0.5)
    drawn = binomial(Stream.of(key_of_holders), 0, held, smaller)
    kept = jnp.where(rates.p < rates.not_p, drawn, held - drawn)
    return kept + binomial(Stream.of(key_of_others), 0, number - held, jnp.where(usable, rates.q, 0.5))


def _randomize(key, values, rates, num_categories):
    own, other = rounded_down(rates.p), rounded_up(rates.q)
    usable = rates.truth > 0
    size = max(1, CELLS // num_categories)
    flat = values.ravel()
    parts = [
        _bits(jax.random.fold_in(key, start // size), flat[start : start + size], own, other, usable, num_categories)
        for start in range(0, max(flat.shape[0], 1), size)
    ]
    reports = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
    return reports.reshape(*values.shape, num_categories)


@partial(jax.jit, static_argnums=5)
def _bits(key, values, own, other, usable, num_categories):
    users = jnp.arange(values.shape[0], dtype=jnp.uint32)[:, None]
    # Words from a counter fuse with the comparison; `jax.random.bits` takes ten times as long.
    words = Stream.of(key).pair(users, jnp.arange(num_categories, dtype=jnp.uint32))
    holds = values[:, None] == jnp.arange(num_categories, dtype=values.dtype)
    bound = jnp.where(holds, own[0], other[0]), jnp.where(holds, own[1], other[1])
    set_ = below(words, bound)
    inside = ((values >= 0) & (values < num_categories))[:, None]
    return jnp.where(usable, set_ | ~inside, False)
