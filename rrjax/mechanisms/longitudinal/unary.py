"""Longitudinal unary encodings: memo and report are K bits each; a bit of the report randomizes its bit of the memo.

A bit of the memo is set with probability p1 for the user's own category and q1 for others. A bit of a report is set
with probability p2 if it is set in the memo, else with q2. Given T reports, let w_i be the probability that bit i of
the memo is set, for a category that the user does not hold. The likelihood of the user is 1 + (e^ε∞ − 1)·Σ_i w_i·θ_i,
up to a factor.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_scalar, as_values, check_key, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates
from rrjax.mechanisms.draws import below, rounded_down, rounded_up
from rrjax.mechanisms.longitudinal import collected, histories
from rrjax.mechanisms.longitudinal.protocol import (
    TwoStages,
    check_rounds,
    for_each_user,
    kinds,
    mixture_of_rows,
    second_odds,
)
from rrjax.mechanisms.mechanism import numbers_if
from rrjax.mechanisms.unary import OptimizedUnaryEncoding, SymmetricUnaryEncoding, UnaryEncoding, as_bits
from rrjax.numerics.pytrees import register
from rrjax.numerics.sums import expm1_epsilon

Encoding: TypeAlias = Literal["symmetric", "optimized"]

_KINDS = {"symmetric": SymmetricUnaryEncoding, "optimized": OptimizedUnaryEncoding}


@register(
    data_fields=["epsilon", "first_epsilon"],
    meta_fields=["num_categories", "permanent_encoding", "instantaneous_encoding"],
)
@dataclasses.dataclass(frozen=True)
class LongitudinalUnaryEncoding(TwoStages):
    """Longitudinal unary encoding: L-SUE (basic RAPPOR), L-OUE, L-OSUE and L-SOUE. A pytree, ε∞ and ε₁ its leaves.

    The memo is made by unary encoding at ε∞, `permanent_encoding`. Each report randomizes the bits of the memo again,
    `instantaneous_encoding`: "symmetric" flips each bit with probability q2; "optimized" reports half of the bits that
    are set, and a share q2 of the others. One round delivers ε₁. Memo and reports are booleans, a last axis of K;
    under tracing, the memo of a value outside the domain has all bits set.

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
        >>> reports = protocol.report(jax.random.key(1), protocol.memoize(jax.random.key(0), [0, 0, 1, 2]))
        >>> reports.shape, int(protocol.tally(reports).num_users)
        ((4, 3), 4)
        >>> rappor = rrjax.longitudinal.LongitudinalUnaryEncoding(3, 2.0, 1.0, permanent_encoding="symmetric")
        >>> print(f"{rappor.instantaneous.p:.3f} {rappor.instantaneous.q:.3f}")
        0.765 0.235

    References:
        Erlingsson, Pihur and Korolova, "RAPPOR: Randomized aggregatable privacy-preserving ordinal response", 2014;
        Arcolezi, Couchot, Al Bouna and Xiao, "Improving the utility of locally differentially private protocols for
        longitudinal and multidimensional frequency estimates", 2022: arXiv:2111.04636.
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
        limit = float(jnp.log1p(_largest_first(self.permanent)))
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
        """The unary encoding at ε∞ that makes the memo."""
        return _KINDS[self.permanent_encoding](self.num_categories, self.epsilon)

    @property
    def permanent(self) -> Rates:
        return self.memo_mechanism.rates

    @property
    def instantaneous(self) -> Rates:
        if self.instantaneous_encoding == "optimized":
            return _optimized(self.permanent, expm1_epsilon(as_scalar(self._first, float_dtype())))
        if self.permanent_encoding == "symmetric":
            odds = second_odds(2, self.epsilon / 2, self.first_epsilon / 2)  # pyright: ignore[reportOperatorIssue]
        else:
            odds = second_odds(2, self.epsilon, self.first_epsilon)
        return Rates(1, 1, odds).astype(float_dtype())

    @property
    def single_round(self) -> UnaryEncoding:
        """A unary encoding at ε₁ with the rates of both randomizations."""
        if self.instantaneous_encoding == "optimized":
            rates = chained(self.permanent, self.instantaneous)
            return ChainedUnaryEncoding(self.num_categories, self._first, rates_of_bits=rates)
        return _KINDS[self.permanent_encoding](self.num_categories, self._first)

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        number = as_integer(num_reports, "num_reports", 1)
        ratio = expm1_epsilon(as_scalar(self.epsilon, float_dtype()))
        return epsilon_of_bits(self.permanent, self.instantaneous, ratio, number)

    def _loss(self, history, other):
        # One bit for each value of the histories, and one for every other value.
        values, places = np.unique(np.concatenate([history, other]), return_inverse=True)
        one, two = np.split(places, 2)
        num_others = self.num_categories - values.size
        held = np.concatenate([np.eye(values.size, dtype=bool), np.zeros((values.size, num_others), bool)], axis=1)
        return histories.loss_of_bits(one, two, self.permanent, self.instantaneous, held)

    def _collect(self, key: Array, true_counts: Array, num_rounds: int) -> tuple[Array, Array]:
        return collected.of_bits(key, true_counts, self.memo_mechanism, self.instantaneous, num_rounds)

    def memoize(self, key: Array, values: ArrayLike) -> Bool[Array, "*s K"]:
        check_key(key)
        return _memoize(self, key, as_values(values, self.num_categories, "values"))

    def report(self, key: Array, memo: ArrayLike) -> Bool[Array, "*s K"]:
        check_key(key)
        return again(key, as_bits(memo, self.num_categories), self.instantaneous)

    def mixture(self, reports: ArrayLike) -> Mixture:
        sound, reports = self.single_round._sound(reports), as_bits(reports, self.num_categories)
        check_rounds(reports, f"[N, T, {self.num_categories}]", 3)
        ones, numbers = kinds(jnp.sum(reports, axis=1, dtype=jnp.int32))
        return _likelihood(self, ones, numbers_if(sound, numbers), reports.shape[1])


@register(
    data_fields=["epsilon", "first_epsilon"],
    meta_fields=["num_categories", "permanent_encoding", "instantaneous_encoding"],
)
@dataclasses.dataclass(frozen=True)
class LongitudinalSymmetricUnaryEncoding(LongitudinalUnaryEncoding):
    """L-SUE, basic RAPPOR: `LongitudinalUnaryEncoding` with both encodings symmetric, under a name for files.

    One round is symmetric unary encoding at ε₁. Of RAPPOR's parameters, f/2 is the probability that a bit of the memo
    is flipped, and q and p of its reports are 1 − q2 and q2.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, for any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, for a single report; less than ε∞.

    Raises:
        ValueError: K < 2, an ε that is a number and not positive, or ε₁ not below ε∞.

    Example:
        >>> import rrjax
        >>> rappor = rrjax.longitudinal.LongitudinalSymmetricUnaryEncoding(3, 2.0, first_epsilon=1.0)
        >>> print(f"f = {2 * rappor.permanent.q:.3f}, q = {rappor.instantaneous.p:.3f}, {rappor.single_round.name}")
        f = 0.538, q = 0.765, symmetric-unary-encoding

    References:
        Erlingsson, Pihur and Korolova, "RAPPOR: Randomized aggregatable privacy-preserving ordinal response", 2014, §3.
    """

    name: ClassVar[str] = "longitudinal-symmetric-unary-encoding"
    permanent_encoding: Encoding = dataclasses.field(default="symmetric", init=False)
    instantaneous_encoding: Encoding = dataclasses.field(default="symmetric", init=False)


def posteriors(permanent: Rates, instantaneous: Rates, ones: Any, zeros: Any) -> Float[Array, "*s"]:
    """The probability w that a bit of the memo is set, of a category not held, given its ones and zeros."""
    for_one, for_zero = _evidence(instantaneous)
    dtype = for_one.dtype
    return jax.nn.sigmoid(jnp.asarray(ones, dtype) * for_one - jnp.asarray(zeros, dtype) * for_zero + _prior(permanent))


def _evidence(instantaneous):
    """Log-likelihood ratios: for a set bit by a reported one, log p2/q2, and against it by a reported zero."""
    return jnp.log1p(instantaneous.truth / instantaneous.always), jnp.log1p(instantaneous.truth / instantaneous.never)


def _prior(permanent):
    """The prior log-odds of a set bit of the memo, of a category not held."""
    return jnp.log(permanent.always) - jnp.log(permanent.never + permanent.truth)


def odds_ratio(rates: Rates) -> Float[Array, ""]:
    """p(1 − q)/(q(1 − p)) − 1, without cancellation: e^ε − 1 of a unary encoding."""
    return rates.truth / rates.always * (rates.total / rates.never)


def log_ratios(permanent: Rates, instantaneous: Rates, ones: Any, zeros: Any) -> Float[Array, "*s"]:
    """The log-ratio of the probabilities of these ones and zeros, for a user's own bit over another bit."""
    noisy, permanent = _noise(permanent)
    shown = jnp.log1p(odds_ratio(permanent) * posteriors(permanent, instantaneous, ones, zeros))
    shown = shown - jnp.log1p(permanent.truth / permanent.never)  # log (1 − p1)/(1 − q1), for a bit certainly not set
    for_one, for_zero = _evidence(instantaneous)
    ones, zeros = (jnp.asarray(each, for_one.dtype) for each in (ones, zeros))
    return jnp.where(noisy, shown, ones * for_one - zeros * for_zero)


def _noise(permanent: Rates) -> tuple[Bool[Array, ""], Rates]:
    """Whether the first randomization changes bits; and its rates, or any others where it does not."""
    noisy = ~(permanent.always == 0)  # also where it is NaN
    return noisy, Rates(*(jnp.where(noisy, weight, 1) for weight in permanent))


def epsilon_of_bits(
    permanent: Rates, instantaneous: Rates, ratio: Float[Array, ""], num_reports: int
) -> Float[Array, ""]:
    """The ε of T reports of two bits, the first set for one value and the second for another.

    The largest ratio has only ones in the first bit and only zeros in the second: the difference of their `log_ratios`,
    without cancellation. Without a permanent randomization reports are independent, and their ε adds up.
    """
    noisy, permanent = _noise(permanent)
    ratio = jnp.where(noisy, ratio, 1)
    for_one, for_zero = (num_reports * each for each in _evidence(instantaneous))
    prior = _prior(permanent)
    apart = jax.nn.sigmoid(prior + for_one) * jax.nn.sigmoid(for_zero - prior) * -jnp.expm1(-(for_one + for_zero))
    return jnp.where(
        noisy, jnp.log1p(ratio * apart / (1 + ratio * jax.nn.sigmoid(prior - for_zero))), for_one + for_zero
    )


@jax.jit
def again(key: Array, memo: Bool[Array, "*s M"], rates: Rates) -> Bool[Array, "*s M"]:
    """The bits of reports: set with p if set in the memo, else with q; none at impossible rates."""
    size = memo.shape[-1]
    drawn = for_each_user(lambda key, bits: drawn_bits(key, bits, rates), key, (memo.reshape(-1, size),), size)
    return drawn.reshape(memo.shape)


def drawn_bits(key: Array, holds: Bool[Array, " M"], rates: Rates) -> Bool[Array, " M"]:
    """The bits of one user: set with p if the user holds them, else with q, by one 64-bit draw each."""
    own, other = rounded_down(rates.p), rounded_up(rates.q)
    high, low = jax.random.bits(key, (2, holds.shape[0]), jnp.uint32)
    set_ = below((high, low), (jnp.where(holds, own[0], other[0]), jnp.where(holds, own[1], other[1])))
    return set_ & (rates.truth > 0)


@jax.jit
def _memoize(protocol, key, values):
    mechanism = protocol.memo_mechanism

    def answer(key, value):
        return mechanism.randomize(jax.random.fold_in(key, value.astype(jnp.uint32)), value)

    memo = for_each_user(answer, key, (values.ravel(),), protocol.num_categories)
    return memo.reshape(*values.shape, protocol.num_categories)


@partial(jax.jit, static_argnums=3)
def _likelihood(protocol, ones, numbers, num_reports):
    e_last = expm1_epsilon(as_scalar(protocol.epsilon, float_dtype()))
    rows = e_last * posteriors(protocol.permanent, protocol.instantaneous, ones, num_reports - ones)
    return mixture_of_rows(numbers, jnp.ones_like(rows[:, 0]), rows)


@register(data_fields=["epsilon", "rates_of_bits"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class ChainedUnaryEncoding(UnaryEncoding):
    """One round of two randomizations in a row: a unary encoding with the p and q of both.

    Attributes:
        rates_of_bits: p = p1·p2 + (1 − p1)·q2 and q = q1·p2 + (1 − q1)·q2.
    """

    name: ClassVar[str] = "chained-unary-encoding"
    rates_of_bits: Rates = dataclasses.field(kw_only=True)

    def weights(self, expm1: Any) -> Rates:
        return self.rates_of_bits


def chained(permanent: Rates, instantaneous: Rates) -> Rates:
    """The rates of both randomizations in a row, without cancellation."""
    return Rates(
        permanent.q * instantaneous.p + permanent.not_q * instantaneous.q,
        permanent.p * instantaneous.not_p + permanent.not_p * instantaneous.not_q,
        permanent.d * instantaneous.d,
    )


def _largest_first(permanent):
    """e^ε₁ − 1 at q2 = 0: (p1 − q1)/(q1·(1 − p1/2))."""
    return permanent.d / (permanent.q * (1 - permanent.p / 2))


def _optimized(permanent, e_first):
    """P2 = ½ and q2 = ½ − y, so that p(1 − q) = e^ε₁·q(1 − p) of both in a row: a quadratic equation in y."""
    p, q, d, e, b = permanent.p, permanent.q, permanent.d, permanent.not_q, permanent.not_p
    # E₁·e·b·y² + d(1 + E₁/2)·y = E₁/4 in y, and E₁·e·b·q2² − B·q2 + C = 0; both divided by E₁, which may be near the
    # limit of the dtype. Each quantity is the root of its own equation, without cancellation.
    half = d * (1 / e_first + 0.5)
    root = jnp.sqrt(half**2 + e * b)
    c = d / (2 * e_first) - q / 2 * (1 - p / 2)
    linear = d / e_first + e * (1 - p / 2) - b * q / 2
    possible = c > 0
    return Rates(
        jnp.where(possible, 2 * c / (linear + root), jnp.nan),
        jnp.asarray(0.5, d.dtype),
        jnp.where(possible, 0.5 / (half + root), jnp.nan),
    )
