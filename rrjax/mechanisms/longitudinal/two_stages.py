"""The longitudinal protocols of two mechanisms in a row: one of g answers, randomized twice, or K bits."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped, UInt

from rrjax import simulate
from rrjax.data.arguments import as_scalar, as_values, check_key, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates
from rrjax.mechanisms.local_hashing import LocalHashing
from rrjax.mechanisms.longitudinal import histories
from rrjax.mechanisms.longitudinal.protocol import Protocol, TwoStages, again, check_rounds, second_odds
from rrjax.mechanisms.mechanism import log_gain, settled
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.unary import OptimizedUnaryEncoding, SymmetricUnaryEncoding, UnaryEncoding, as_bits, sum_of_bits
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import repeat, with_sharding_of
from rrjax.numerics.sums import odds_of_rates, ratio
from rrjax.numerics.threefry import buckets_of

Encoding: TypeAlias = Literal["symmetric", "optimized"]

_KINDS = {"symmetric": SymmetricUnaryEncoding, "optimized": OptimizedUnaryEncoding}


@dataclasses.dataclass(frozen=True)
class Answers(TwoStages):
    """A protocol whose memo and report are each one of g answers, both by randomized response."""

    @property
    def num_answers(self) -> int:
        """The number of answers, g: K, or the number of buckets."""
        return self.num_categories

    @property
    def num_memos(self) -> int:
        return self.num_answers

    @property
    def memo_mechanism(self) -> RandomizedResponse:
        return RandomizedResponse(self.num_answers, self.epsilon)

    @property
    def instantaneous(self) -> Rates:
        odds = second_odds(self.num_answers, self.epsilon, self.first_epsilon)
        return Rates(1, self.num_answers - 1, odds).astype(float_dtype())

    @property
    def _second(self) -> RandomizedResponse:
        return RandomizedResponse(self.num_answers, jnp.log1p(self.instantaneous.truth))

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        # log(1 + (e^ε∞ − 1)(R − 1)/(R + g − 2 + e^ε∞)) with R = e^{T·ε₂}, for T reports of one answer.
        repeated = as_integer(num_reports, "num_reports", 1) * self._second.epsilon  # log R
        e_last = odds_of_rates(as_scalar(self.epsilon, float_dtype()))
        noise = 1 + (self.num_answers - 1 + e_last) * jnp.exp(-repeated)
        return jnp.log1p(ratio(e_last * -jnp.expm1(-repeated), noise))

    def _counts_again(self, key, held, number, usable):
        counts = simulate.randomized(key, held, self._second.epsilon)
        return counts, jnp.sum(counts)

    def _log_powers(self, supported: Int[Array, "U K"], named: Int[Array, "U T"]) -> tuple[Array, Array]:
        """Logarithms of R^{n_i} and Σ_z R^{n_z}/(e^ε∞ − 1), R = e^ε₂, up to a number.

        n_z reports of a user name z, and n_i support i. R^T would overflow.
        """
        second, largest = jnp.asarray(self._second.epsilon), named[:, -1:]

        def power(times):
            return jnp.exp((times - largest).astype(second.dtype) * second)

        # Each of the n_z reports that name z adds (R^{n_z} − 1)/n_z; each of the g answers adds 1.
        parts = power(named) * -jnp.expm1(-named.astype(second.dtype) * second) / named.astype(second.dtype)
        all_answers = self.num_answers * power(jnp.zeros_like(largest)) + jnp.sum(parts, axis=1, keepdims=True)
        epsilon = as_scalar(self.epsilon, second.dtype)
        noise = jnp.log(all_answers) - epsilon - log_gain(epsilon)
        return (supported - largest).astype(second.dtype) * second, noise


@pytree("num_categories")
class LongitudinalRandomizedResponse(Answers):
    """Longitudinal randomized response (L-GRR, L-RR). A pytree; `num_categories` is static.

    Memo and report are categories: int32, with −1 under tracing for a value outside the domain. Both randomized
    responses in a row are one at ε₁ for any K, with q = p1·q2 + q1·p2 + (K − 2)·q1·q2. Protocols published without the
    last term deliver another ε than stated, with biased estimates for K > 2.

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
    def single_round(self) -> RandomizedResponse:
        return RandomizedResponse(self.num_categories, self._first)

    def _loss(self, history, other, num_values):
        return histories.loss_of_answers(history, other, self.permanent, self.instantaneous, self.num_categories)

    def report(self, key: Array, memo: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        return self._second.randomize(key, as_values(memo, self.num_categories, "memo"))

    def mixture(self, reports: ArrayLike) -> Mixture:
        reports = as_values(reports, self.num_categories, "reports")
        check_rounds(reports, "[N, T]")
        # Sorted, so that each kind of user, not each user, needs K numbers.
        rows = jnp.sort(reports.astype(jnp.int32), axis=1)
        return self._mixture(rows, self.single_round._sound(reports), reports.shape[1])

    def _log_rows(self, seen, num_reports):
        return self._log_powers(times_supported(self, seen), times_named(seen))


@pytree("num_categories", "num_buckets")
class LongitudinalLocalHashing(Answers):
    """Longitudinal local hashing: LOLOHA; BiLOLOHA with two buckets. A pytree, ε∞ and ε₁ its leaves.

    A user draws a hash function once, and keeps a memo for each of its g buckets, made by randomized response at ε∞. A
    report is the memo of the bucket of the value, randomized again; one round is local hashing at ε₁. All reports come
    from g memos, and a change within one bucket is invisible. Two histories differ by at most g·ε∞ if their buckets
    have the same pattern (`Protocol`). Values can have the same pattern while their buckets do not, because a hash
    function may map two of them to one bucket. Then many reports can lose more than g·ε∞; `history_loss` is the exact
    loss over all hash functions.

    Memo and reports are uint32, a last axis of two: the user's seed and a bucket. Under tracing, the bucket of a value
    outside the domain is 2³² − 1. `mixture` refuses a user with two seeds.

    A single round has its smallest error at g = round(e^ε₁) + 1 for every ε∞. (The published optimum differs, because
    it uses the law of g = 2 for all g.) For many reports of one value, g = round(e^ε∞) + 1 is best; fewer buckets spend
    less.

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

    def _loss(self, history, other, num_values):
        # Every assignment of the values to buckets; for many values some have no seed.
        rates = self.permanent, self.instantaneous
        return [
            histories.loss_of_answers(np.take(buckets, history), np.take(buckets, other), *rates, self.num_answers)
            for buckets in histories.groupings(num_values, self.num_answers)
        ]

    def _own_memo(self, key: Array, value: Int[Array, ""]) -> UInt[Array, 2]:
        of_seed, of_memos = jax.random.split(key)
        seed = jax.random.bits(of_seed, (), jnp.uint32)
        bucket = buckets_of(seed, value.astype(jnp.uint32), jnp.uint32(self.num_answers), jnp).astype(jnp.int32)
        inside = (value >= 0) & (value < self.num_categories)
        kept = super()._own_memo(of_memos, jnp.where(inside, bucket, -1))
        return jnp.stack([seed, kept.astype(jnp.uint32)])

    def report(self, key: Array, memo: ArrayLike) -> UInt[Array, "*s 2"]:
        check_key(key)
        memo = self.single_round._checked(memo)
        bucket = self._second.randomize(key, memo[..., 1].astype(jnp.int32))
        return jnp.stack([memo[..., 0], bucket.astype(jnp.uint32)], axis=-1)

    def mixture(self, reports: ArrayLike) -> Mixture:
        reports = self.single_round._checked(reports)
        check_rounds(reports, "[N, T, 2]")
        if not isinstance(reports, Tracer):
            seeds = np.asarray(reports)[..., 0]
            several = (seeds != seeds[:, :1]).any(axis=1)
            if several.any():
                problem = f"of user {int(np.argmax(several))} have different seeds, but a user keeps one seed"
                raise ArgumentError.about("reports", problem)
        buckets = jnp.where(reports[..., 0] == reports[:, :1, 0], reports[..., 1].astype(jnp.int32), -1)
        seen = jnp.concatenate([times_supported(self, reports), times_named(buckets)], axis=1)
        return self._mixture(seen, (buckets >= 0) & (buckets < self.num_answers), reports.shape[1])

    def _log_rows(self, seen, num_reports):
        return self._log_powers(seen[:, : self.num_categories], seen[:, self.num_categories :])

    def _collect(self, key: Array, true_counts: Array, num_rounds: int) -> tuple[Array, Array]:
        return Protocol._collect(self, key, true_counts, num_rounds)  # a user's hash function is the same in all rounds


@jax.jit
def times_supported(protocol: Answers, reports: Shaped[Array, "N T *s"]) -> Int[Array, "N K"]:
    """The number of reports of each user that support each category."""

    def add(turn, counts):
        return counts + protocol.supports(reports[:, turn]).astype(jnp.int32)

    zeros = jnp.zeros((reports.shape[0], protocol.num_categories), jnp.int32)
    return repeat(jnp.int32(reports.shape[1]), add, with_sharding_of(zeros, reports))


@jax.jit
def times_named(answers: Int[Array, "N T"]) -> Int[Array, "N T"]:
    """For each report, the number of the user's reports with the same answer; in ascending order."""
    return jnp.sort(jnp.sum(answers[:, :, None] == answers[:, None, :], axis=2, dtype=jnp.int32), axis=1)


@pytree("num_categories", "permanent_encoding", "instantaneous_encoding")
class LongitudinalUnaryEncoding(TwoStages):
    """Longitudinal unary encoding: L-SUE (basic RAPPOR), L-OUE, L-OSUE and L-SOUE. A pytree, ε∞ and ε₁ its leaves.

    The memo is made by unary encoding at ε∞, `permanent_encoding`. Each report randomizes its bits again,
    `instantaneous_encoding`: "symmetric" flips each bit with probability q2; "optimized" reports half of the set bits,
    and a share q2 of the others. Memo and reports are booleans, a last axis of K; under tracing, the memo of a value
    outside the domain has all bits set.

    * optimized, then symmetric (L-OSUE, the default): one round is optimized unary encoding at ε₁ < ε∞, with the
      smallest error of a round.
    * symmetric, then symmetric (L-SUE): one round is symmetric unary encoding at ε₁ < ε∞.
    * optimized, then optimized (L-OUE): ε₁ < log((2e^ε∞ + 1)/3).
    * symmetric, then optimized (L-SOUE): ε₁ < log(s(2s + 1)/(s + 2)), s = e^{ε∞/2}.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, for any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, for a single report; below the limit above.
        permanent_encoding: "symmetric" or "optimized", the unary encoding of the memo. Static.
        instantaneous_encoding: "symmetric" or "optimized", the randomization of the memo in each report. Static.

    Raises:
        ValueError: K < 2, an ε that is a number and not positive, ε₁ too large, or another encoding.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalUnaryEncoding(3, 2.0, first_epsilon=1.0)
        >>> print(f"{protocol.instantaneous.p:.3f} {protocol.instantaneous.q:.3f}")
        0.803 0.197
        >>> protocol.report(jax.random.key(1), protocol.memoize(jax.random.key(0), [0, 0, 1, 2])).shape
        (4, 3)
        >>> rappor = rrjax.longitudinal.LongitudinalUnaryEncoding(3, 2.0, 1.0, permanent_encoding="symmetric")
        >>> print(f"{rappor.instantaneous.p:.3f} {rappor.instantaneous.q:.3f}")
        0.765 0.235

    References:
        Erlingsson, Pihur and Korolova, "RAPPOR: Randomized aggregatable privacy-preserving ordinal response", 2014;
        Arcolezi, Couchot, Al Bouna and Xiao, 2022: arXiv:2111.04636.
    """

    name: ClassVar[str] = "longitudinal-unary-encoding"
    permanent_encoding: Encoding = dataclasses.field(default="optimized", kw_only=True)
    instantaneous_encoding: Encoding = dataclasses.field(default="symmetric", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("permanent_encoding", "instantaneous_encoding"):
            if getattr(self, name) not in _KINDS:
                raise ArgumentError.about(name, f"must be 'symmetric' or 'optimized', got {getattr(self, name)!r}")
        super().__post_init__()

    def _check_first(self, epsilon: float, first_epsilon: float) -> None:
        super()._check_first(epsilon, first_epsilon)
        if self.instantaneous_encoding == "symmetric":
            return
        # e^ε₁ − 1 at q2 = 0: (p1 − q1)/(q1·(1 − p1/2)).
        rates = self.permanent
        limit = float(jnp.log1p(rates.d / (rates.q * (1 - rates.p / 2))))
        if not first_epsilon < limit:
            raise ArgumentError(
                f"first_epsilon must be below {limit:.4g} at epsilon = {epsilon:g}, got {first_epsilon:g}: with "
                "instantaneous_encoding = 'optimized', half of the set bits of the memo are not reported, and at this "
                "limit no other bit is (q2 = 0)",
                argument="first_epsilon",
                value=first_epsilon,
            )

    @property
    def memo_mechanism(self) -> UnaryEncoding:
        return _KINDS[self.permanent_encoding](self.num_categories, self.epsilon)

    @property
    def instantaneous(self) -> Rates:
        if self.instantaneous_encoding == "optimized":
            return _optimized(self.permanent, odds_of_rates(as_scalar(self._first, float_dtype())))
        share = 2 if self.permanent_encoding == "symmetric" else 1  # of ε, by each of the two bits that a value changes
        odds = second_odds(2, self.epsilon / share, self.first_epsilon / share)  # pyright: ignore[reportOperatorIssue]
        return Rates(1, 1, odds).astype(float_dtype())

    @property
    def _memo_cells(self) -> int:
        return self.num_categories

    @property
    def _bits(self) -> BitsTwice:
        return BitsTwice(self.permanent, self.instantaneous)

    @property
    def single_round(self) -> UnaryEncoding:
        """A unary encoding at ε₁ with the rates of both randomizations."""
        if self.instantaneous_encoding == "optimized":
            return ChainedUnaryEncoding(self.num_categories, self._first, rates_of_bits=self._bits.rates)
        return _KINDS[self.permanent_encoding](self.num_categories, self._first)

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        number = as_integer(num_reports, "num_reports", 1)
        return self._bits.epsilon_after(number)

    def _loss(self, history, other, num_values):
        # One bit for each value of the histories, and one for every other value.
        return histories.loss_of_bits(history, other, *self._bits, np.eye(num_values, self.num_categories, dtype=bool))

    def report(self, key: Array, memo: ArrayLike) -> Bool[Array, "*s K"]:
        check_key(key)
        return again(key, as_bits(memo, self.num_categories, "memo"), self.instantaneous)

    def mixture(self, reports: ArrayLike) -> Mixture:
        sound, reports = self.single_round._sound(reports), as_bits(reports, self.num_categories)
        check_rounds(reports, "[N, T, K]")
        return self._mixture(jnp.sum(reports, axis=1, dtype=jnp.int32), sound, reports.shape[1])

    def _log_rows(self, seen, num_reports):
        return self._bits.log_lift(seen, num_reports - seen)

    def _counts_again(self, key, held, number, usable):
        return sum_of_bits(key, held, number, self.instantaneous, usable), number


@pytree("num_categories", "permanent_encoding", "instantaneous_encoding")
class LongitudinalSymmetricUnaryEncoding(LongitudinalUnaryEncoding):
    """L-SUE, basic RAPPOR: `LongitudinalUnaryEncoding` with both encodings symmetric, under a name for files.

    One round is symmetric unary encoding at ε₁. Of RAPPOR's parameters, f/2 is the probability that a bit of the memo
    is flipped, and q and p of its reports are 1 − q2 and q2. The arguments are K, ε∞ and ε₁ < ε∞, as there.

    Example:
        >>> import rrjax
        >>> rappor = rrjax.longitudinal.LongitudinalSymmetricUnaryEncoding(3, 2.0, first_epsilon=1.0)
        >>> print(f"f = {2 * rappor.permanent.q:.3f}, q = {rappor.instantaneous.p:.3f}, {rappor.single_round.name}")
        f = 0.538, q = 0.765, symmetric-unary-encoding

    References:
        Erlingsson, Pihur and Korolova, "RAPPOR", 2014, §3.
    """

    name: ClassVar[str] = "longitudinal-symmetric-unary-encoding"
    permanent_encoding: Encoding = dataclasses.field(default="symmetric", init=False)
    instantaneous_encoding: Encoding = dataclasses.field(default="symmetric", init=False)


class BitsTwice(NamedTuple):
    """Bits that are randomized for the memo by the first rates, and for each report by the second ones."""

    first: Rates
    second: Rates

    @property
    def rates(self) -> Rates:
        """The rates of both randomizations in a row, without cancellation."""
        first, second = self
        return Rates(
            first.q * second.p + first.not_q * second.q,
            first.p * second.not_p + first.not_p * second.not_q,
            first.d * second.d,
        )

    @property
    def _evidence(self):
        """Log-likelihood ratios: for a set bit by a reported one, log p2/q2, and against it by a reported zero."""
        d, q, not_p = self.second.truth, self.second.always, self.second.never
        return jnp.log1p(ratio(d, q)), jnp.log1p(ratio(d, not_p))

    @property
    def _prior(self):
        """The prior log-odds of a set bit of the memo, of a category not held."""
        return jnp.log(self.first.always) - jnp.log(self.first.never + self.first.truth)

    def _with_noise(self) -> tuple[Bool[Array, ""], BitsTwice]:
        """Whether the first randomization changes bits; and with its rates, or any others where it does not."""
        noisy = ~(self.first.always == 0)  # also where it is NaN
        return noisy, self._replace(first=Rates(*(jnp.where(noisy, weight, 1) for weight in self.first)))

    def log_lift(self, ones: Any, zeros: Any) -> tuple[Float[Array, "*s"], Float[Array, ""]]:
        """Logarithms of a·(e^ε − 1)·w and of a, with e^ε the odds ratio of the first randomization, and any a.

        w is the probability that a bit of the memo is set, of a category not held, given its ones and zeros.
        """
        for_one, for_zero = self._evidence
        ones, zeros = (jnp.asarray(each, for_one.dtype) for each in (ones, zeros))
        shown, against = ones * for_one - zeros * for_zero, -self._prior
        # (e^ε − 1)·w = (d/(1 − p))·(1/(1 − q))·s/(1 + s·q/(1 − q)): large logarithms are in `a` only.
        lift = jnp.minimum(shown, against) - jnp.log1p(jnp.exp(-jnp.abs(shown - against)))
        _, not_p, d = self.first
        return lift, jnp.log(not_p + d) - jnp.log(self.first.total) + jnp.log(not_p) - jnp.log(d)

    def log_ratios(self, ones: Any, zeros: Any) -> Float[Array, "*s"]:
        """The log-ratio of the probabilities of these ones and zeros, for a user's own bit over another bit."""
        noisy, law = self._with_noise()
        lift, noise = law.log_lift(ones, zeros)
        shown = jax.nn.softplus(lift - noise)
        _, not_p, d = law.first
        shown = shown - jnp.log1p(ratio(d, not_p))  # log (1 − p1)/(1 − q1), if certainly not set
        for_one, for_zero = self._evidence
        ones, zeros = (jnp.asarray(each, for_one.dtype) for each in (ones, zeros))
        return jnp.where(noisy, shown, ones * for_one - zeros * for_zero)

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        """The ε of T reports of two bits, the first set for one value and the second for another.

        The largest ratio has only ones in the first bit and only zeros in the second: the difference of their
        `log_ratios`, without cancellation. Without a permanent randomization reports are independent, and their ε adds
        up.
        """
        noisy, law = self._with_noise()
        prior = law._prior
        for_one, for_zero = (num_reports * each for each in self._evidence)
        one, other, unlike = prior + for_one, for_zero - prior, -jnp.expm1(-(for_one + for_zero))
        log_base = jnp.logaddexp(-log_odds(law.first), jax.nn.log_sigmoid(-other))
        log_apart = jax.nn.log_sigmoid(one) + jax.nn.log_sigmoid(other) + jnp.log(unlike)
        vanishing = log_base < -60  # logarithms where the numbers may be beyond the dtype: they have fewer digits
        base = jnp.where(vanishing, 1, inverse_odds(law.first) + jax.nn.sigmoid(-other))
        memo = jnp.log1p(ratio(jax.nn.sigmoid(one) * jax.nn.sigmoid(other) * unlike, base))
        memo = jnp.where(vanishing, jax.nn.softplus(log_apart - log_base), memo)
        return jnp.where(noisy, memo, for_one + for_zero)


def inverse_odds(rates: Rates) -> Float[Array, ""]:
    """1/(e^ε − 1) of a unary encoding, e^ε = p(1 − q)/(q(1 − p)), without cancellation."""
    return ratio(rates.always, rates.truth) * ratio(rates.never, rates.total)


def log_odds(rates: Rates) -> Float[Array, ""]:
    """The logarithm of e^ε − 1 of a unary encoding; e^ε may be beyond the dtype."""
    q, not_p = jnp.log(rates.always) - jnp.log(rates.truth), jnp.log(rates.never) - jnp.log(rates.total)
    return -(q + not_p)


def epsilon_of_bits(rates: Rates) -> Float[Array, ""]:
    """ε of a unary encoding; e^ε may be beyond the dtype."""
    inverse = inverse_odds(rates)
    return jnp.where(inverse < 1e-3, jnp.log1p(inverse) + log_odds(rates), jnp.log1p(1 / jnp.maximum(inverse, 1e-3)))


@pytree("num_categories")
class ChainedUnaryEncoding(UnaryEncoding):
    """One round of two randomizations in a row: a unary encoding with the p and q of both.

    Attributes:
        rates_of_bits: p = p1·p2 + (1 − p1)·q2 and q = q1·p2 + (1 − q1)·q2.
    """

    name: ClassVar[str] = "chained-unary-encoding"
    rates_of_bits: Rates = dataclasses.field(kw_only=True)

    def rates_by(self, expm1: Any) -> Rates:
        return self.rates_of_bits


def _optimized(permanent, e_first):
    """P2 = ½ and q2 = ½ − y, so that p(1 − q) = e^ε₁·q(1 − p) of both in a row: a quadratic equation in y."""
    p, q, d, e, b = permanent.p, permanent.q, permanent.d, permanent.not_q, permanent.not_p
    # E₁·e·b·y² + d(1 + E₁/2)·y = E₁/4 in y, and E₁·e·b·q2² − B·q2 + C = 0; both divided by E₁, which may be near the
    # limit of the dtype. Each quantity is the root of its own equation, without cancellation.
    over = 1 / e_first  # XLA would divide by the product of two denominators, which may be beyond the dtype
    half = d * (over + 0.5)
    root = jnp.sqrt(half**2 + e * b)
    c = d * over / 2 - q / 2 * (1 - p / 2)
    linear = d * over + e * (1 - p / 2) - b * q / 2
    possible = c > 0
    return Rates(
        jnp.where(possible, 2 * c / (linear + root), jnp.nan),
        jnp.asarray(0.5, d.dtype),
        jnp.where(possible, 0.5 / (half + root), jnp.nan),
    )
