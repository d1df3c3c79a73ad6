"""Longitudinal local hashing (LOLOHA): a user keeps one hash function for ever, and a memo for each bucket."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, UInt

from rrjax.data.arguments import check_key
from rrjax.data.counts import as_values
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.local_hashing import LocalHashing
from rrjax.mechanisms.longitudinal import histories
from rrjax.mechanisms.longitudinal.protocol import check_rounds, for_each_user, kinds
from rrjax.mechanisms.longitudinal.randomized_response import Chain, times_named, times_supported
from rrjax.mechanisms.mechanism import settled
from rrjax.numerics.pytrees import register
from rrjax.numerics.threefry import buckets_of


@register(data_fields=["epsilon", "first_epsilon"], meta_fields=["num_categories", "num_buckets"])
@dataclasses.dataclass(frozen=True)
class LongitudinalLocalHashing(Chain):
    """Longitudinal local hashing: LOLOHA; BiLOLOHA with two buckets. A pytree, ε∞ and ε₁ its leaves.

    A user draws a hash function once, and keeps a memo for each of its g buckets, made by randomized response at ε∞. A
    report is the memo of the bucket of the value, randomized again; one round is local hashing at ε₁. However often the
    value changes, all reports are made of g memos, and a change within one bucket is invisible. Two histories differ by
    at most g·ε∞ if their buckets have the same pattern (`Protocol`). Values can have the same pattern while their
    buckets do not, because a hash function may map two values of one history to one bucket. Then many reports can show
    more than g·ε∞, as with any memo; `history_loss` is the exact loss over all hash functions.

    A single round has its smallest error at g = round(e^ε₁) + 1, whatever ε∞: the chain over g answers is exact, so a
    round does not depend on ε∞. (The published optimum differs, because its chain is that of g = 2.) For many reports
    of one value, g = round(e^ε∞) + 1 is best, the number of the memos; fewer buckets spend less.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, of any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, of a single report; less than ε∞.
        num_buckets: g, from 2 to 2³⁰. None is the best of a single round; required for a traced ε₁.

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
        """The memo of each user for the current value: `Protocol.memoize`.

        Args:
            key: A typed key; the same in all rounds.
            values: Integers in 0 … K − 1, any shape: one a user, in the same order in all rounds.

        Returns:
            Uint32, the shape of `values` and a last axis of two: the user's seed, and the memo of the bucket of the
            value. Under tracing, the bucket of a value outside the domain is 2³² − 1.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        check_key(key)
        return _memoize(self, key, as_values(values, self.num_categories, "values"))

    def report(self, key: Array, memo: ArrayLike) -> UInt[Array, "*s 2"]:
        check_key(key)
        memo = self.single_round._checked(memo)
        bucket = self._randomized_again(key, memo[..., 1].astype(jnp.int32))
        return jnp.stack([memo[..., 0], bucket.astype(jnp.uint32)], axis=-1)

    def mixture(self, reports: ArrayLike) -> Mixture:
        """As `Protocol.mixture`: that of `LongitudinalRandomizedResponse` over the g buckets.

        Args:
            reports: `[N, T, 2]`, T reports of each of N users, with one seed a user.

        Returns:
            `Mixture`, a row for every different kind of user (under tracing, for every user).

        Raises:
            ValueError: Another shape or dtype, no users, numbers out of range, or (not under tracing) a user with two
                seeds.
        """
        reports = self.single_round._checked(reports)
        check_rounds(reports, "[N, T, 2]", 3)
        if not isinstance(reports, Tracer):
            seeds = np.asarray(reports)[..., 0]
            if (seeds != seeds[:, :1]).any():
                user = int(np.argmax((seeds != seeds[:, :1]).any(axis=1)))
                raise ArgumentError(
                    f"reports of user {user} have different seeds, but a user keeps one seed", argument="reports"
                )
        buckets = jnp.where(reports[..., 0] == reports[:, :1, 0], reports[..., 1].astype(jnp.int32), -1)
        supported, size = times_supported(self, reports), self.num_categories
        rows, numbers = kinds(jnp.concatenate([supported, times_named(buckets)], axis=1))
        return self._mixture(buckets, rows[:, :size], rows[:, size:], numbers)


@jax.jit
def _memoize(protocol, key, values):
    number = protocol.num_answers

    def answer(key, value):
        of_seed, of_memos = jax.random.split(key)
        seed = jax.random.bits(of_seed, (), jnp.uint32)
        inside = (value >= 0) & (value < protocol.num_categories)
        bucket = buckets_of(seed, value.astype(jnp.uint32), jnp.uint32(number), jnp).astype(jnp.int32)
        kept = protocol._permanent_answer(of_memos, jnp.where(inside, bucket, -1))
        return jnp.stack([seed, kept.astype(jnp.uint32)])

    return for_each_user(answer, key, (values.ravel(),), 1).reshape(*values.shape, 2)
