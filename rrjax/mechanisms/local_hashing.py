"""Local hashing: a user draws a hash function, and reports the randomized hash of the value.

The hash is Threefry-2x32 with 20 rounds, which JAX uses for random numbers: published with test vectors, and the same
on every platform. Its key is the seed of the report. The two output words of counter i are for categories 2i and 2i +
1. A word w becomes the bucket ⌊w·g/2³²⌋.
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
from jaxtyping import Array, ArrayLike, Bool, Float, UInt

from rrjax.data.arguments import as_true_counts, as_values, check_key, int_dtype
from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import best_num_buckets, num_buckets_of, two_buckets
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.draws import below, number_below, rounded_down
from rrjax.mechanisms.mechanism import PureMechanism, known_epsilon, log_probability_of_block, settled, tally_if
from rrjax.mechanisms.unary import independent
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import repeat, with_sharding_of
from rrjax.numerics.threefry import buckets_of, threefry

_PART = 64
"""Number of reports that are hashed at a time."""
_LARGEST_NUMBER = (2**16 - 1) // _PART
"""Largest number of equal reports that are counted as one: the counts of a part have 16 bits."""
_MANY_CATEGORIES = 1024
"""Number of categories from which on the search for equal reports takes less than a tenth of the counting."""


@pytree("num_categories", "num_buckets")
class LocalHashing(PureMechanism):
    """Optimized local hashing (OLH): p = e^ε/(e^ε+g−1), q = 1/g, with g = round(e^ε) + 1 buckets. A pytree, ε its leaf.

    The error is that of optimized unary encoding; reports take some 40 bits for any K. Counting takes O(N·K) hashes;
    from K = 1024 on, equal reports are counted together.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.
        num_buckets: g, from 2 to 2³⁰. None chooses by ε; for a traced ε, reports need g.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.LocalHashing(num_categories=3, epsilon=2.0)
        >>> mechanism.num_buckets, f"{mechanism.rates.p:.3f} {mechanism.rates.q:.3f}"
        (8, '0.514 0.125')
        >>> reports = mechanism.randomize(jax.random.key(0), [0, 0, 1, 2])
        >>> reports.shape, int(mechanism.tally(reports).num_users)
        ((4, 2), 4)

    References:
        Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation", 2017, §4.4.
    """

    name: ClassVar[str] = "optimized-local-hashing"
    independent: ClassVar[bool] = True
    num_buckets: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_buckets", num_buckets_of(self.num_buckets, known_epsilon(self.epsilon)))

    @property
    def _number(self) -> int:
        return settled(self.num_buckets, "num_buckets")

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        e1 = expm1(self.epsilon)
        number = self.num_buckets
        if number is None:
            number = best_num_buckets(e1, jnp.minimum if isinstance(e1, jax.Array) else min)
        return Rates.of_design(e1, number, 1 / number)

    @property
    def bits(self) -> float:
        return 32 + math.log2(self._number)

    @property
    def note(self) -> str:
        return f"{self._number:,} buckets"

    def randomize(self, key: Array, values: ArrayLike) -> UInt[Array, "*s 2"]:
        """As `PureMechanism.randomize`: uint32, a last axis of seed and bucket.

        The bucket of the value is reported by randomized response over g: one 64-bit draw is compared with p·2⁶⁴
        rounded down, so rounding weakens ε by no more than the rounding of the dtype. Under tracing, the bucket of a
        value outside the domain, and of any value at an impossible ε, is 2³² − 1, which is no hash.
        """
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        return _randomize(self, key, values, self._number)

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        return _supports(self._checked(reports), self._number, self.num_categories)

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        return self._checked(reports)[..., 1] < self._number

    def log_probability(self, reports: Array) -> Float[Array, ""]:
        del reports
        return log_probability_of_block(self.epsilon, self._number, 0)

    def tally(self, reports: ArrayLike) -> Tally:
        reports = self._checked(reports).reshape(-1, 2)
        support = _counted(*_different(reports, self.num_categories), self._number, self.num_categories)
        users = jnp.asarray(reports.shape[0], int_dtype())
        return tally_if(reports[:, 1] < self._number, support, users, self.rates)

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """As `PureMechanism.collect`, by the law under ideal hashing, in O(K).

        Over all functions from categories to buckets, support counts are independent: Binomial(n_i, p) +
        Binomial(N − n_i, 1/g).
        """
        check_key(key)
        return independent(key, as_true_counts(true_counts, self.num_categories), self.rates)

    def _checked(self, reports) -> UInt[Array, "*s 2"]:
        """The reports; under tracing, an entry that is no report gets the bucket 2³² − 1, which is no hash."""
        reports = reports if isinstance(reports, jax.Array) else np.asarray(reports)
        if reports.ndim == 0 or reports.shape[-1] != 2 or reports.dtype.kind not in "iu":
            raise ArgumentError(
                "reports must be integers of shape [N, 2], a seed and a bucket each; got "
                f"{reports.dtype.name} of shape {tuple(reports.shape)}",
                argument="reports",
            )
        limits = (("seeds", 1 << 32), ("buckets", self._number))
        if isinstance(reports, Tracer):
            # A limit beyond the dtype holds for every entry; the comparison would overflow.
            ends = [min(end - 1, jnp.iinfo(reports.dtype).max) for _, end in limits]
            inside = jnp.all((reports >= 0) & (reports <= jnp.asarray(ends, reports.dtype)), axis=-1)
            bucket = jnp.where(inside, reports[..., 1].astype(jnp.uint32), jnp.uint32(2**32 - 1))
            return jnp.stack([reports[..., 0].astype(jnp.uint32), bucket], axis=-1)
        for column, (name, end) in enumerate(limits) if reports.size else ():
            with jax.ensure_compile_time_eval():  # known reports inside a traced function
                low, high = int(reports[..., column].min()), int(reports[..., column].max())
            if low < 0 or high >= end:
                raise ArgumentError(f"{name} must be from 0 to {end - 1}, got {low} to {high}", argument=name)
        return jnp.asarray(reports.astype(np.uint32))


@pytree("num_categories", "num_buckets")
class BinaryLocalHashing(LocalHashing):
    """Binary local hashing (BLH): p = e^ε/(e^ε+1), q = ½, of two buckets. A pytree, ε its leaf.

    A report is a seed and a bit. At small ε the error is as small as that of any mechanism; from ε = 1 the error of
    optimized local hashing is smaller.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.
        num_buckets: 2.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.BinaryLocalHashing(num_categories=3, epsilon=2.0)
        >>> print(f"{mechanism.rates.p:.3f} {mechanism.rates.q:.3f}")
        0.881 0.500
        >>> reports = mechanism.randomize(jax.random.key(0), [0, 0, 1, 2])
        >>> reports.shape, int(mechanism.tally(reports).num_users)
        ((4, 2), 4)

    References:
        Bassily and Smith, "Local, private, efficient protocols for succinct histograms", 2015; Wang, Blocki, Li and
        Jha, "Locally differentially private protocols for frequency estimation", 2017, §4.4.
    """

    name: ClassVar[str] = "binary-local-hashing"
    num_buckets: int | None = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_buckets", two_buckets(self.num_buckets))
        super().__post_init__()


@partial(jax.jit, static_argnums=3)
def _randomize(mechanism, key, values, number):
    flat = values.ravel()
    inside = (flat >= 0) & (flat < mechanism.num_categories)
    seeds, high, low, other_high, other_low = jax.random.bits(key, (5, flat.shape[0]), jnp.uint32)
    own = buckets_of(seeds, flat.astype(jnp.uint32), jnp.uint32(number), jnp)
    kept = below((high, low), rounded_down(mechanism.rates.p))
    other = number_below((other_high, other_low), jnp.uint32(number - 1))
    bucket = jnp.where(kept, own, other + (other >= own).astype(jnp.uint32))
    usable = inside & (mechanism.rates.truth > 0)
    return jnp.stack([seeds, jnp.where(usable, bucket, jnp.uint32(2**32 - 1))], axis=-1).reshape(*values.shape, 2)


def _seeds_and_words(reports, number):
    """The seed of each report, and the first and the number of the words that are its bucket, in a last axis of three.

    A word is in the bucket if its distance from the first one is less: two instructions in place of a long product.
    """
    bucket = reports[..., 1]
    first = _first_word(bucket, number)
    length = jnp.where(bucket < number, _first_word(bucket + 1, number) - first, 0)
    return jnp.stack([reports[..., 0], first, length], axis=-1)


def _first_word(bucket, number):
    """The smallest word w with ⌊w·g/2³²⌋ = b, which is ⌈b·2³²/g⌉, by long division; 2³² is zero."""
    quotient, remainder = jnp.zeros_like(bucket), bucket
    bits = 32 - number.bit_length()  # of a digit: the remainder with one more digit is less than 2³²
    for place in range(0, 32, bits):
        digit = min(bits, 32 - place)
        remainder = remainder << digit
        quotient = (quotient << digit) + remainder // jnp.uint32(number)
        remainder = remainder % jnp.uint32(number)
    return quotient + (remainder > 0).astype(jnp.uint32)


def _supported_pairs(seeds_and_words, size):
    """The even and the odd categories that each report supports; they use the first and the second word of a hash."""
    seeds, first, length = (seeds_and_words[..., column, None] for column in range(3))
    pairs = jnp.arange((size + 1) // 2, dtype=jnp.uint32)
    words = threefry(seeds, jnp.zeros_like(seeds), pairs, jnp.uint32(0))
    return [word - first < length for word in words]


def _interleaved(even, odd, size):
    return jnp.stack([even, odd], axis=-1).reshape(*even.shape[:-1], 2 * even.shape[-1])[..., :size]


@partial(jax.jit, static_argnums=(1, 2))
def _supports(reports, number, size):
    even, odd = _supported_pairs(_seeds_and_words(reports, number), size)
    return _interleaved(even, odd, size)


def _different(reports, size):
    """The different reports and the number of each, if they are half as many at most; or all reports, one each."""
    users = reports.shape[0]
    if size < _MANY_CATEGORIES or isinstance(reports, Tracer) or len(reports.sharding.device_set) > 1:
        return reports, jnp.ones(users, jnp.uint32)
    seeds, buckets = np.asarray(reports).astype(np.uint64).T
    codes, numbers = np.unique(seeds << 32 | buckets, return_counts=True)
    rows = -(-numbers // _LARGEST_NUMBER)
    length = 1 << int(rows.sum()).bit_length()  # few lengths, for few programs
    if length > users:
        return reports, jnp.ones(users, jnp.uint32)
    weights = np.zeros(length, np.uint32)
    weights[: rows.sum()] = _LARGEST_NUMBER
    weights[np.cumsum(rows) - 1] = numbers - (rows - 1) * _LARGEST_NUMBER
    codes = np.repeat(codes, rows)
    pairs = np.zeros((length, 2), np.uint32)
    pairs[: len(codes)] = np.stack([codes >> 32, codes & (2**32 - 1)], axis=1)
    return jnp.asarray(pairs), jnp.asarray(weights)


@partial(jax.jit, static_argnums=(2, 3))
def _counted(reports, weights, number, size):
    users = reports.shape[0]
    if users == 0:  # nothing to take a part of
        return jnp.zeros(size, int_dtype())
    part = min(users, _PART) if isinstance(users, int) else _PART  # a symbol of `jax.export` has no size yet
    # Padding has no words. Each part has users from all devices, because a loop cannot go through the devices of a mesh
    # with explicit axes.
    turns = (users + part - 1) // part
    filled = jnp.pad(_seeds_and_words(reports, number), ((0, turns * part - users), (0, 0)))
    padded = filled.reshape(part, turns, 3)
    weights = jnp.pad(weights, (0, turns * part - users)).reshape(part, turns, 1)

    def add(turn, counts):
        # The sum before the interleaving keeps the hashes out of memory. Both counts are halves of one word, because
        # XLA computes each hash twice for two sums.
        even, odd = _supported_pairs(padded[:, turn], size)
        here = weights[:, turn]
        total = jnp.sum(jnp.where(even, here, 0) + jnp.where(odd, here << 16, 0), axis=0, dtype=jnp.uint32)
        return counts[0] + (total & 0xFFFF).astype(int_dtype()), counts[1] + (total >> 16).astype(int_dtype())

    zeros = jnp.zeros((size + 1) // 2, int_dtype())
    even, odd = repeat(jnp.int32(turns), add, with_sharding_of((zeros, zeros), reports))
    return _interleaved(even, odd, size)
