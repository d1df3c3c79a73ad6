"""What unary encodings share: a report is K bits, one a category, each supporting its category or not.

The bit of a user's own category is set with probability p, any other one with q, independently. Given that a user holds
category i rather than none, a report with set S of bits is e^ε times as likely if i is in S: its likelihood is
proportional to 1 + (e^ε − 1)·θ(S), with ε = log[p(1−q)/(q(1−p))].
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Shaped

from rrjax.data.arguments import as_values, check_key, survey
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.draws import below, rounded_down, rounded_up
from rrjax.mechanisms.mechanism import CELLS, Mechanism, as_true_counts
from rrjax.mechanisms.rows import LogRows
from rrjax.simulate.sampling import Stream, binomial


@dataclasses.dataclass(frozen=True)
class UnaryEncoding(Mechanism):
    """A mechanism whose reports are K bits; its `weights` say how often they are set."""

    @property
    def bits(self) -> float:
        """Of a report."""
        return self.num_categories

    def randomize(self, key: Array, values: ArrayLike) -> Bool[Array, "*s K"]:
        """Randomizes values for a simulation.

        One 64-bit draw a bit, compared with p·2⁶⁴ rounded down or q·2⁶⁴ rounded up: rounding never weakens ε by more
        than that of the dtype.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: Integers in 0 … K − 1, any shape.

        Returns:
            Reports, booleans, the shape of `values` and a last axis of K. Every row of bits is a report, so none can
            mark a value that cannot be refused under tracing: one outside the domain has all bits set, one at an
            impossible ε none. Check values before they are traced.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        return _randomize(key, values, self.rates, self.num_categories)

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        """Which categories each report supports: those whose bits are set.

        Args:
            reports: `[*s, K]`, booleans, or integers 0 and 1.

        Returns:
            The same as booleans.

        Raises:
            ValueError: Another shape or dtype, or (not under tracing) numbers that are no bits.
        """
        return as_bits(reports, self.num_categories)

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        """As `Mechanism`; those of zeros and ones."""
        return jnp.all(are_bits(reports), axis=-1)

    @property
    def log_rates(self) -> tuple[Float[Array, ""], ...]:
        """Log p, log(1 − p), log q and log(1 − q), nats; finite at every ε where a subclass makes them of it."""
        return tuple(jnp.log(rate) for rate in (self.rates.p, self.rates.not_p, self.rates.q, self.rates.not_q))

    def log_probability(self, reports: Array) -> Float[Array, "*s"]:
        """As `Mechanism`; by how many bits are set. One without any supports nothing, and what it gets is no matter."""
        log_p, _, log_q, log_not_q = self.log_rates
        others = jnp.maximum(jnp.sum(reports, axis=-1, dtype=jnp.int32) - 1, 0).astype(log_p.dtype)
        return log_p + jnp.where(others > 0, others * log_q, 0) + (self.num_categories - 1 - others) * log_not_q

    def log_rows(self, reports: ArrayLike) -> LogRows:
        """As `Mechanism`; a report without a bit is as likely whatever the value."""
        rows = super().log_rows(reports)
        _, log_not_p, _, log_not_q = self.log_rates
        none = ~jnp.any(self.supports(reports), axis=-1)
        unset = log_not_p + (self.num_categories - 1) * log_not_q
        return LogRows(jnp.where(none, unset, rows.scale), jnp.where(none, 0, rows.base), rows.lift)

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """Draws what a collection from given users brings, by its exact law, in O(K).

        Support counts are independent: Binomial(n_i, p) + Binomial(N − n_i, q).

        Args:
            key: A typed key, `jax.random.key(seed)`.
            true_counts: `[K]`, integers, how many users hold each category; below 2³¹ in all.

        Returns:
            `Tally`; NaN comes of it for counts or an ε that make no sense.

        Raises:
            ValueError: Other than K categories, or counts that are not integers.
        """
        check_key(key)
        return independent(key, as_true_counts(true_counts, self.num_categories), self.rates)


def as_bits(reports: ArrayLike, num_categories: int) -> Bool[Array, "*s K"]:
    """Checks reports of K bits.

    Raises:
        ValueError: Another shape or dtype, or (not under tracing) numbers that are no bits.
    """
    reports = reports if isinstance(reports, jax.Array) else np.asarray(reports)
    if reports.shape[-1:] != (num_categories,):
        raise ArgumentError(
            f"reports must have shape [N, {num_categories}], a bit a category; got {reports.shape}", argument="reports"
        )
    if reports.dtype.kind not in "biu":
        raise ArgumentError(
            f"reports must be booleans, or integers 0 and 1, got dtype {reports.dtype}", argument="reports"
        )
    if reports.dtype.kind != "b" and not isinstance(reports, Tracer) and reports.size:
        low, high = int(np.asarray(reports).min()), int(np.asarray(reports).max())
        if low < 0 or high > 1:
            raise ArgumentError(
                f"reports must be 0 and 1, a bit a category; got values from {low} to {high}", argument="reports"
            )
    return jnp.asarray(reports).astype(bool)


def are_bits(bits: Shaped[Array, "*s"]) -> Bool[Array, "*s"]:
    """Which of these are zero or one, or booleans."""
    return bits == bits.astype(bool).astype(bits.dtype)


@jax.jit
def independent(key: Array, true_counts: Array, rates: Rates) -> Tally:
    """Draws a collection whose support counts are independent: Binomial(n_i, p) + Binomial(N − n_i, q) each."""
    seen = survey(true_counts)
    usable = seen.drawable & (rates.truth > 0)
    held = jnp.where(usable, true_counts, 0).astype(jnp.int32)
    number = jnp.where(usable, seen.total, 0).astype(jnp.int32)
    of_holders, of_others = jax.random.split(key)
    # Whichever of p and 1 − p is small is the one that a float holds well.
    rare = jnp.where(usable, jnp.minimum(rates.p, rates.not_p), 0.5)
    drawn = binomial(Stream.of(of_holders), 0, held, rare)
    kept = jnp.where(rates.p < rates.not_p, drawn, held - drawn)
    others = binomial(Stream.of(of_others), 0, number - held, jnp.where(usable, rates.q, 0.5))
    support = jnp.where(usable, kept + others, -1).astype(true_counts.dtype)
    return Tally(support, jnp.where(usable, number, -1).astype(true_counts.dtype), rates=rates)


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


def _bits(key, values, own, other, usable, num_categories):
    users = jnp.arange(values.shape[0], dtype=jnp.uint32)[:, None]
    # Words by counter, because they fuse with the comparison; `jax.random.bits` takes ten times as long.
    words = Stream.of(key).pair(users, jnp.arange(num_categories, dtype=jnp.uint32))
    holds = values[:, None] == jnp.arange(num_categories, dtype=values.dtype)
    bound = jnp.where(holds, own[0], other[0]), jnp.where(holds, own[1], other[1])
    set_ = below(words, bound)
    inside = ((values >= 0) & (values < num_categories))[:, None]
    return jnp.where(usable, set_ | ~inside, False)


_bits = jax.jit(_bits, static_argnums=5)
