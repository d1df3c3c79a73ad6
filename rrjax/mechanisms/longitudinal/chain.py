"""Longitudinal protocols of two randomized responses in a row, over the K categories or the g buckets of a hash."""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, Shaped, UInt

from rrjax.data.arguments import as_scalar, as_values, check_key, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates
from rrjax.mechanisms.local_hashing import LocalHashing
from rrjax.mechanisms.longitudinal import collected, histories
from rrjax.mechanisms.longitudinal.protocol import (
    TwoStages,
    check_rounds,
    for_each_user,
    kinds,
    mixture_of_rows,
    second_odds,
)
from rrjax.mechanisms.mechanism import numbers_if, settled
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.numerics.pytrees import register
from rrjax.numerics.sharding import aligned, repeat
from rrjax.numerics.sums import expm1_epsilon
from rrjax.numerics.threefry import buckets_of


@dataclasses.dataclass(frozen=True)
class Chain(TwoStages):
    """A protocol whose memo and report are each one of g answers, both by randomized response."""

    @property
    @abc.abstractmethod
    def num_answers(self) -> int:
        """The number of answers, g."""

    @property
    def num_memos(self) -> int:
        return self.num_answers

    @property
    def permanent(self) -> Rates:
        return RandomizedResponse(self.num_answers, self.epsilon).rates

    @property
    def instantaneous(self) -> Rates:
        weights = Rates(1, self.num_answers - 1, self._second_odds)
        return weights.astype(float_dtype())

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        # log(1 + (e^ε∞ − 1)(R − 1)/(R + g − 2 + e^ε∞)) with R = e^{T·ε₂}, for T reports of one answer.
        number = as_integer(num_reports, "num_reports", 1)
        e_last = expm1_epsilon(as_scalar(self.epsilon, float_dtype()))
        repeated = number * jnp.log1p(self._second_odds)  # log R
        return jnp.log1p(e_last * -jnp.expm1(-repeated) / (1 + (self.num_answers - 1 + e_last) * jnp.exp(-repeated)))

    @property
    def _second_odds(self) -> Float[Array, ""]:
        return second_odds(self.num_answers, self.epsilon, self.first_epsilon)

    def _permanent_answer(self, key: Array, answer: Int[Array, ""]) -> Int[Array, ""]:
        """The memo of a user with this secret for one answer; always the same."""
        own = jax.random.fold_in(key, answer.astype(jnp.uint32))
        return RandomizedResponse(self.num_answers, self.epsilon).randomize(own, answer)

    def _randomized_again(self, key: Array, memo: Int[Array, "*s"]) -> Int[Array, "*s"]:
        return RandomizedResponse(self.num_answers, jnp.log1p(self._second_odds)).randomize(key, memo)

    def _mixture(
        self,
        answers: Int[Array, "N T"],
        supported: Int[Array, "U K"],
        named: Int[Array, "U T"],
        numbers: Int[Array, " U"],
    ) -> Mixture:
        """Σ_z R^{n_z} + (e^ε∞ − 1)·Σ_i R^{n_i}·θ_i, R = e^ε₂, for n_z reports that name z and n_i that support i.

        `supported` and `named` have a row for each kind of user, `times_supported` and `times_named`; `numbers` counts
        users of each kind. In log space, because R^T overflows.
        """
        if isinstance(answers, Tracer):
            numbers = numbers_if((answers >= 0) & (answers < self.num_answers), numbers)
        return _likelihood(self, supported, named, numbers)


@register(data_fields=["epsilon", "first_epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class LongitudinalRandomizedResponse(Chain):
    """Longitudinal randomized response (L-GRR, L-RR). A pytree; `num_categories` is static.

    The memo is a category, drawn by randomized response at ε∞; a report is a category, drawn from the memo by another
    randomized response. Both are int32, with −1 under tracing for a value outside the domain. Both in a row are
    randomized response at ε₁ for any K, with q = p1·q2 + q1·p2 + (K − 2)·q1·q2. Protocols published without the last
    term deliver another ε than stated, with biased estimates for K > 2.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, for any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, for a single report; less than ε∞.

    Raises:
        ValueError: K < 2, an ε that is a number and not positive, or ε₁ not below ε∞.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalRandomizedResponse(3, epsilon=3.0, first_epsilon=1.0)
        >>> print(f"{protocol.permanent.p:.3f} {protocol.instantaneous.p:.3f} {protocol.single_round.p:.3f}")
        0.909 0.614 0.576
        >>> memo = protocol.memoize(jax.random.key(0), [0, 0, 1, 2])
        >>> monday, tuesday = (protocol.report(jax.random.key(day), memo) for day in (1, 2))
        >>> int(protocol.tally(monday).num_users)
        4
        >>> print(f"{protocol.epsilon_after(2):.3f} {protocol.epsilon_after(100):.3f}")
        1.885 3.000

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, "Improving the utility of locally differentially private protocols for
        longitudinal and multidimensional frequency estimates", 2022: arXiv:2111.04636.
    """

    name: ClassVar[str] = "longitudinal-randomized-response"

    @property
    def num_answers(self) -> int:
        return self.num_categories

    @property
    def single_round(self) -> RandomizedResponse:
        return RandomizedResponse(self.num_categories, self._first)

    def _loss(self, history, other):
        return histories.loss_of_answers(history, other, self.permanent, self.instantaneous, self.num_categories)

    def _collect(self, key: Array, true_counts: Array, num_rounds: int) -> tuple[Array, Array]:
        return collected.of_answers(key, true_counts, self.epsilon, jnp.log1p(self._second_odds), num_rounds)

    def memoize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        return _memoize(self, key, as_values(values, self.num_categories, "values"))

    def report(self, key: Array, memo: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        return self._randomized_again(key, as_values(memo, self.num_categories, "memo"))

    def mixture(self, reports: ArrayLike) -> Mixture:
        reports = as_values(reports, self.num_categories, "reports")
        check_rounds(reports, "[N, T]", 2)
        # Sorted, so that each kind of user, not each user, needs K numbers.
        rows, numbers = kinds(jnp.sort(reports.astype(jnp.int32), axis=1))
        return self._mixture(rows, times_supported(self, rows), times_named(rows), numbers)


@register(data_fields=["epsilon", "first_epsilon"], meta_fields=["num_categories", "num_buckets"])
@dataclasses.dataclass(frozen=True)
class LongitudinalLocalHashing(Chain):
    """Longitudinal local hashing: LOLOHA; BiLOLOHA with two buckets. A pytree, ε∞ and ε₁ its leaves.

    A user draws a hash function once, and keeps a memo for each of its g buckets, made by randomized response at ε∞. A
    report is the memo of the bucket of the value, randomized again; one round is local hashing at ε₁. For any number of
    changes of the value, all reports come from g memos, and a change within one bucket is invisible. Two histories
    differ by at most g·ε∞ if their buckets have the same pattern (`Protocol`). Values can have the same pattern while
    their buckets do not, because a hash function may map two values of one history to one bucket. Then many reports can
    lose more than g·ε∞, as with any memo; `history_loss` is the exact loss over all hash functions.

    Memo and reports are uint32, a last axis of two: the user's seed and a bucket. Under tracing, the bucket of a value
    outside the domain is 2³² − 1. `mixture` is that of `LongitudinalRandomizedResponse` over the g buckets, and refuses
    a user with two seeds.

    A single round has its smallest error at g = round(e^ε₁) + 1 for every ε∞: the chain over g answers is exact, so a
    round does not depend on ε∞. (The published optimum differs, because it uses the chain of g = 2.) For many reports
    of one value, g = round(e^ε∞) + 1 is best, the number of the memos; fewer buckets spend less.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, for any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, for a single report; less than ε∞.
        num_buckets: g, from 2 to 2³⁰. None is the best g for a single round; required for a traced ε₁.

    Raises:
        ValueError: K < 2, an ε that is a number and not positive, ε₁ not below ε∞, or g out of range.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalLocalHashing(100, epsilon=2.0, first_epsilon=1.0, num_buckets=2)
        >>> protocol.num_memos, f"{protocol.permanent.p:.3f} {protocol.instantaneous.p:.3f}"
        (2, '0.881 0.803')
        >>> memo = protocol.memoize(jax.random.key(0), [0, 0, 1, 99])
        >>> reports = protocol.report(jax.random.key(1), memo)
        >>> reports.shape, int(protocol.tally(reports).num_users)
        ((4, 2), 4)

    References:
        Arcolezi, Pinzón, Palamidessi and Gambs, "Frequency estimation of evolving data under local differential
        privacy", 2023: arXiv:2210.00262.
    """

    name: ClassVar[str] = "longitudinal-local-hashing"
    num_buckets: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = LocalHashing(self.num_categories, self.first_epsilon, self.num_buckets).num_buckets
        object.__setattr__(self, "num_buckets", chosen)

    @property
    def num_answers(self) -> int:
        return settled(self.num_buckets, "num_buckets")

    @property
    def single_round(self) -> LocalHashing:
        return LocalHashing(self.num_categories, self._first, self.num_answers)

    def _loss(self, history, other):
        # Every assignment of the values to buckets; for many values some have no seed.
        values, places = np.unique(np.concatenate([history, other]), return_inverse=True)
        one, two = np.split(places, 2)
        rates = self.permanent, self.instantaneous
        losses = (
            histories.loss_of_answers(np.take(buckets, one), np.take(buckets, two), *rates, self.num_answers)
            for buckets in histories.groupings(values.size, self.num_answers)
        )
        return max(losses, key=lambda loss: loss.either)

    def memoize(self, key: Array, values: ArrayLike) -> UInt[Array, "*s 2"]:
        check_key(key)
        return _memoize_bucket(self, key, as_values(values, self.num_categories, "values"))

    def report(self, key: Array, memo: ArrayLike) -> UInt[Array, "*s 2"]:
        check_key(key)
        memo = self.single_round._checked(memo)
        bucket = self._randomized_again(key, memo[..., 1].astype(jnp.int32))
        return jnp.stack([memo[..., 0], bucket.astype(jnp.uint32)], axis=-1)

    def mixture(self, reports: ArrayLike) -> Mixture:
        reports = self.single_round._checked(reports)
        check_rounds(reports, "[N, T, 2]", 3)
        if not isinstance(reports, Tracer):
            seeds = np.asarray(reports)[..., 0]
            if (seeds != seeds[:, :1]).any():
                user = int(np.argmax((seeds != seeds[:, :1]).any(axis=1)))
                raise ArgumentError.about("reports", f"of user {user} have different seeds, but a user keeps one seed")
        buckets = jnp.where(reports[..., 0] == reports[:, :1, 0], reports[..., 1].astype(jnp.int32), -1)
        supported, size = times_supported(self, reports), self.num_categories
        rows, numbers = kinds(jnp.concatenate([supported, times_named(buckets)], axis=1))
        return self._mixture(buckets, rows[:, :size], rows[:, size:], numbers)


@jax.jit
def times_supported(protocol: Chain, reports: Shaped[Array, "N T *s"]) -> Int[Array, "N K"]:
    """The number of reports of each user that support each category."""

    def add(turn, counts):
        return counts + protocol.supports(reports[:, turn]).astype(jnp.int32)

    zeros = jnp.zeros((reports.shape[0], protocol.num_categories), jnp.int32)
    return repeat(jnp.int32(reports.shape[1]), add, aligned(zeros, reports))


@jax.jit
def times_named(answers: Int[Array, "N T"]) -> Int[Array, "N T"]:
    """For each report, the number of the user's reports with the same answer; in ascending order."""
    return jnp.sort(jnp.sum(answers[:, :, None] == answers[:, None, :], axis=2, dtype=jnp.int32), axis=1)


@jax.jit
def _likelihood(chain, supported, named, numbers):
    second = jnp.log1p(second_odds(chain.num_answers, chain.epsilon, chain.first_epsilon))
    e_last = expm1_epsilon(as_scalar(chain.epsilon, float_dtype()))
    largest = named[:, -1:]

    def power(times):
        return jnp.exp((times - largest).astype(second.dtype) * second)

    # Each of the n_z reports that name z adds (R^{n_z} − 1)/n_z; each of the g answers adds 1.
    parts = power(named) * -jnp.expm1(-named.astype(second.dtype) * second) / named.astype(second.dtype)
    noise = chain.num_answers * power(jnp.zeros_like(largest))[:, 0] + jnp.sum(parts, axis=1)
    return mixture_of_rows(numbers, noise, e_last * power(supported))


@jax.jit
def _memoize(protocol, key, values):
    memo = for_each_user(protocol._permanent_answer, key, (values.ravel(),), 1)
    return memo.reshape(values.shape)


@jax.jit
def _memoize_bucket(protocol, key, values):
    number = protocol.num_answers

    def answer(key, value):
        of_seed, of_memos = jax.random.split(key)
        seed = jax.random.bits(of_seed, (), jnp.uint32)
        inside = (value >= 0) & (value < protocol.num_categories)
        bucket = buckets_of(seed, value.astype(jnp.uint32), jnp.uint32(number), jnp).astype(jnp.int32)
        kept = protocol._permanent_answer(of_memos, jnp.where(inside, bucket, -1))
        return jnp.stack([seed, kept.astype(jnp.uint32)])

    return for_each_user(answer, key, (values.ravel(),), 1).reshape(*values.shape, 2)
