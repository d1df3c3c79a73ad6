"""What unary encodings share: a report is K bits, one a category, each supporting its category or not.

The bit of a user's own category is set with probability p, any other one with q, independently. Given that a user holds
category i rather than none, a report with set S of bits is e^ε times as likely if i is in S: its likelihood is
proportional to 1 + (e^ε − 1)·θ(S), with ε = log[p(1−q)/(q(1−p))].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool

from rrjax.arguments import as_scalar, float_dtype, int_dtype
from rrjax.arithmetic import odds
from rrjax.counts import as_values, survey
from rrjax.mechanisms.protocol import Mechanism, as_true_counts
from rrjax.mixture import Dense, Mixture
from rrjax.sampling import Stream, binomial
from rrjax.tally import Tally

_WORDS = 1 << 24
"""Bits of reports that are drawn at a time, eight bytes each."""


def randomize(self: Mechanism, key: Array, values: ArrayLike) -> Bool[Array, "*s K"]:
    """Randomizes values for a simulation.

    One 64-bit draw a bit, compared with p·2⁶⁴ rounded down or q·2⁶⁴ rounded up: rounding never weakens ε by more than
    that of the dtype.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        values: Integers in 0 … K − 1, any shape.

    Returns:
        Reports, booleans, the shape of `values` and a last axis of K. Under tracing, a value outside the domain has all
        bits set and one at an impossible ε has none, which no collection brings.

    Raises:
        ValueError: Values that are not integers, or (not under tracing) outside the domain.
    """
    values = as_values(values, self.num_categories, "values")
    return _randomize(key, values, self.rates, self.num_categories)


def tally(self: Mechanism, reports: ArrayLike) -> Tally:
    """Counts reports: each supports the categories whose bits are set.

    Args:
        reports: `[N, K]`, booleans, or integers 0 and 1.

    Returns:
        `Tally`. Tallies of parts add up.

    Raises:
        ValueError: Another shape or dtype, or (not under tracing) numbers that are no bits.
    """
    reports = as_bits(reports, self.num_categories)
    support = jnp.sum(reports, axis=0, dtype=int_dtype())
    return Tally(support, jnp.asarray(reports.shape[0], int_dtype()), rates=self.rates)


def mixture(self: Mechanism, reports: ArrayLike) -> Mixture:
    """The likelihood of reports: a = 1, and B = e^ε − 1 for every bit that is set.

    Args:
        reports: `[N, K]`, booleans, or integers 0 and 1.

    Returns:
        `Mixture`, a row for every report that is different (under tracing, for every report); up to a factor that θ
        does not change.

    Raises:
        ValueError: As `tally`, or no reports.
    """
    reports = as_bits(reports, self.num_categories)
    weights = np.ones(reports.shape[0], int)
    if not isinstance(reports, Tracer):
        packed, weights = np.unique(np.packbits(np.asarray(reports), axis=1), axis=0, return_counts=True)
        reports = jnp.asarray(np.unpackbits(packed, axis=1, count=self.num_categories).astype(bool))
    e1 = odds(as_scalar(self.epsilon, float_dtype()))
    return Mixture(jnp.asarray(weights, int_dtype()), 1.0, Dense(reports, e1))


def collect(self: Mechanism, key: Array, true_counts: ArrayLike) -> Tally:
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
    return _collect(key, as_true_counts(true_counts, self.num_categories), self.rates)


def as_bits(reports: ArrayLike, num_categories: int) -> Bool[Array, "N K"]:
    """Checks reports of K bits.

    Raises:
        ValueError: Another shape or dtype, or (not under tracing) numbers that are no bits.
    """
    reports = reports if isinstance(reports, jax.Array) else np.asarray(reports)
    if reports.ndim != 2 or reports.shape[1] != num_categories:
        raise ValueError(f"reports must have shape [N, {num_categories}], a bit a category; got {reports.shape}")
    if reports.dtype.kind not in "biu":
        raise ValueError(f"reports must be booleans, or integers 0 and 1, got dtype {reports.dtype}")
    if reports.dtype.kind != "b" and not isinstance(reports, Tracer) and reports.size:
        low, high = int(np.asarray(reports).min()), int(np.asarray(reports).max())
        if low < 0 or high > 1:
            raise ValueError(f"reports must be 0 and 1, a bit a category; got values from {low} to {high}")
    return jnp.asarray(reports).astype(bool)


@jax.jit
def _collect(key, true_counts, rates):
    seen = survey(true_counts)
    usable = (seen.simulable | (seen.valid & (seen.total == 0))) & (rates.truth > 0)
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


@jax.jit
def threshold(probability, margin):
    """`probability`·2⁶⁴ in two words, moved by `margin` of itself; the largest where it is one."""
    scaled = probability * (1 + margin) * 2.0**32
    high = jnp.floor(scaled)
    low = jnp.floor((scaled - high) * 2.0**32)
    most = scaled >= 2.0**32
    word = jnp.uint32(2**32 - 1)
    return jnp.where(most, word, high.astype(jnp.uint32)), jnp.where(most, word, low.astype(jnp.uint32))


def _randomize(key, values, rates, num_categories):
    eps = jnp.finfo(rates.truth.dtype).eps
    own, other = threshold(rates.p, -2 * eps), threshold(rates.q, 2 * eps)
    usable = rates.truth > 0
    size = max(1, _WORDS // num_categories)
    flat = values.ravel()
    parts = [
        _bits(jax.random.fold_in(key, start // size), flat[start : start + size], own, other, usable, num_categories)
        for start in range(0, max(flat.shape[0], 1), size)
    ]
    reports = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
    return reports.reshape(*values.shape, num_categories)


def _bits(key, values, own, other, usable, num_categories):
    high, low = jax.random.bits(key, (2, values.shape[0], num_categories), jnp.uint32)
    holds = values[:, None] == jnp.arange(num_categories, dtype=values.dtype)
    bound_high, bound_low = (jnp.where(holds, a, b) for a, b in zip(own, other, strict=True))
    set_ = (high < bound_high) | ((high == bound_high) & (low < bound_low))
    inside = ((values >= 0) & (values < num_categories))[:, None]
    return jnp.where(usable, set_ | ~inside, False)


_bits = jax.jit(_bits, static_argnums=5)
