"""What longitudinal unary encodings share: the memo is K bits, and so is a report, each made of its bit of the memo.

A bit of the memo is set with probability p1 for the user's own category and q1 for others, that of a report with p2
where the memo has it set and q2 where not. Given T reports, let w be the probability that a bit of the memo is set,
for a category that the user does not hold: then the user has the likelihood 1 + (e^ε∞ − 1)·Σ_i w_i·θ_i, up to a factor.
"""

from __future__ import annotations

import abc
import dataclasses
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_scalar, as_values, check_key, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates
from rrjax.mechanisms.draws import below, rounded_down, rounded_up
from rrjax.mechanisms.longitudinal import histories
from rrjax.mechanisms.longitudinal.protocol import (
    TwoStages,
    as_positive,
    check_rounds,
    for_each_user,
    kinds,
    mixture_of_rows,
)
from rrjax.mechanisms.mechanism import numbers_if
from rrjax.mechanisms.unary import UnaryEncoding, as_bits
from rrjax.numerics.pytrees import register
from rrjax.numerics.sums import expm1_epsilon


@dataclasses.dataclass(frozen=True)
class LongitudinalUnaryEncoding(TwoStages):
    """A protocol whose memo and reports are K bits."""

    first_stage: ClassVar[type[UnaryEncoding]]
    """What makes the memo, at ε∞."""

    @property
    def permanent(self) -> Rates:
        """The first randomization of each bit: p1 and q1."""
        return self.first_stage(self.num_categories, self.epsilon).rates

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        """The ε of so many reports of one value: log of the odds ratio of two bits of the memo, as T reports show them.

        Args:
            num_reports: T, at least 1.

        Returns:
            Scalar, nats: ε₁ of one, and towards ε∞; NaN where a traced ε makes no sense.

        Raises:
            ValueError: T not a positive integer.
        """
        number, e_last = as_positive(num_reports, "num_reports"), expm1_epsilon(as_scalar(self.epsilon, float_dtype()))
        return epsilon_of_bits(self.permanent, self.instantaneous, e_last, number)

    def _loss(self, history, other):
        # A bit a value of the histories, and one that stands for each of the others.
        values, places = np.unique(np.concatenate([history, other]), return_inverse=True)
        one, two = np.split(places, 2)
        rest = self.num_categories - values.size
        held = np.concatenate([np.eye(values.size, dtype=bool), np.zeros((values.size, rest), bool)], axis=1)
        return histories.loss_of_bits(one, two, self.permanent, self.instantaneous, held)

    def memoize(self, key: Array, values: ArrayLike) -> Bool[Array, "*s K"]:
        """The memo of each user for the value that the user has now: `Protocol.memoize`.

        Args:
            key: A typed key; the same in all rounds.
            values: Integers in 0 … K − 1, any shape: one a user, in the same order in all rounds.

        Returns:
            Booleans, the shape of `values` and a last axis of K. Under tracing, a value outside the domain has all bits
            set.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        check_key(key)
        return _memoize(self, key, as_values(values, self.num_categories, "values"))

    def report(self, key: Array, memo: ArrayLike) -> Bool[Array, "*s K"]:
        """Makes the reports of one round.

        Args:
            key: A typed key, another one in every round.
            memo: `[*s, K]`, from `memoize`.

        Returns:
            Reports, booleans, the shape of `memo`.

        Raises:
            ValueError: Another shape, or not of bits.
        """
        check_key(key)
        return again(key, as_bits(memo, self.num_categories), self.instantaneous)

    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of all reports of each user together, whose value was the same in all rounds.

        Args:
            reports: `[N, T, K]`, T reports of each of N users.

        Returns:
            `Mixture`, a row for every kind of user that is different (under tracing, for every user, and unusable where
            a bit is none).

        Raises:
            ValueError: Another shape or dtype, no users, or (not under tracing) what is no report.
        """
        sound, reports = self.single_round._sound(reports), as_bits(reports, self.num_categories)
        check_rounds(reports, f"[N, T, {self.num_categories}]", 3)
        ones, numbers = kinds(jnp.sum(reports, axis=1, dtype=jnp.int32))
        return _likelihood(self, ones, numbers_if(sound, numbers), reports.shape[1])


def posteriors(permanent: Rates, instantaneous: Rates, ones: Any, zeros: Any) -> Float[Array, "*s"]:
    """How likely a bit of the memo is set, of a category not held, of which reports show these ones and zeros: w."""
    for_one, for_zero = _evidence(instantaneous)
    dtype = for_one.dtype
    return jax.nn.sigmoid(
        jnp.asarray(ones, dtype) * for_one - jnp.asarray(zeros, dtype) * for_zero + _before(permanent)
    )


def _evidence(instantaneous):
    """How much a one speaks for a bit of the memo that is set, log p2/q2, and a zero against it."""
    return jnp.log1p(instantaneous.truth / instantaneous.always), jnp.log1p(instantaneous.truth / instantaneous.never)


def _before(permanent):
    """What speaks for a bit of the memo that is set, of a category not held, before any report."""
    return jnp.log(permanent.always) - jnp.log(permanent.never + permanent.truth)


def odds_ratio(rates: Rates) -> Float[Array, ""]:
    """p(1 − q)/(q(1 − p)) − 1, without cancellation: e^ε − 1 of a unary encoding."""
    return rates.truth / rates.always * (rates.total / rates.never)


def log_ratios(permanent: Rates, instantaneous: Rates, ones: Any, zeros: Any) -> Float[Array, "*s"]:
    """How much likelier a user's own bit is to show these ones and zeros than another one is, as a logarithm."""
    shown = jnp.log1p(odds_ratio(permanent) * posteriors(permanent, instantaneous, ones, zeros))
    return shown - jnp.log1p(permanent.truth / permanent.never)  # log (1 − p1)/(1 − q1), of a bit certainly not set


def epsilon_of_bits(
    permanent: Rates, instantaneous: Rates, ratio: Float[Array, ""], num_reports: int
) -> Float[Array, ""]:
    """The ε of so many reports of two bits, of which one is set for one value and the other one for another.

    The first has shown ones alone and the second zeros: how far their `log_ratios` are apart, without cancellation.
    """
    for_one, for_zero = (num_reports * each for each in _evidence(instantaneous))
    before = _before(permanent)
    apart = jax.nn.sigmoid(before + for_one) * jax.nn.sigmoid(for_zero - before) * -jnp.expm1(-(for_one + for_zero))
    return jnp.log1p(ratio * apart / (1 + ratio * jax.nn.sigmoid(before - for_zero)))


@jax.jit
def again(key: Array, memo: Bool[Array, "*s M"], rates: Rates) -> Bool[Array, "*s M"]:
    """Draws bits anew: set with p where they are in the memo, and with q where not; never at rates that are none."""
    size = memo.shape[-1]
    drawn = for_each_user(lambda key, bits: drawn_bits(key, bits, rates), key, (memo.reshape(-1, size),), size)
    return drawn.reshape(memo.shape)


def drawn_bits(key: Array, holds: Bool[Array, " M"], rates: Rates) -> Bool[Array, " M"]:
    """Bits of one user, set with p where the user holds them, with q elsewhere, by one 64-bit draw each."""
    own, other = rounded_down(rates.p), rounded_up(rates.q)
    high, low = jax.random.bits(key, (2, holds.shape[0]), jnp.uint32)
    set_ = below((high, low), (jnp.where(holds, own[0], other[0]), jnp.where(holds, own[1], other[1])))
    return set_ & (rates.truth > 0)


@jax.jit
def _memoize(protocol, key, values):
    mechanism = protocol.first_stage(protocol.num_categories, protocol.epsilon)

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
    """What one round of two randomizations in a row is: a unary encoding with the p and q of both.

    Attributes:
        rates_of_bits: p = p1·p2 + (1 − p1)·q2 and q = q1·p2 + (1 − q1)·q2.
    """

    name: ClassVar[str] = "chained-unary-encoding"
    rates_of_bits: Rates = dataclasses.field(kw_only=True)

    def weights(self, expm1: Any) -> Rates:
        """Those of both in a row, whatever the expm1."""
        return self.rates_of_bits


def chained(permanent: Rates, instantaneous: Rates) -> Rates:
    """The rates of both randomizations in a row; nothing cancels in them."""
    return Rates(
        permanent.q * instantaneous.p + permanent.not_q * instantaneous.q,
        permanent.p * instantaneous.not_p + permanent.not_p * instantaneous.not_q,
        permanent.d * instantaneous.d,
    )


@dataclasses.dataclass(frozen=True)
class SymmetricAgain(LongitudinalUnaryEncoding):
    """With a second randomization that exchanges zeros and ones alike: q2 = 1 − p2."""

    @property
    @abc.abstractmethod
    def _second_odds(self) -> Float[Array, ""]:
        """p2/q2 − 1."""

    @property
    def instantaneous(self) -> Rates:
        """The second randomization of each bit: p2 and q2 = 1 − p2."""
        return Rates(1, 1, self._second_odds).astype(float_dtype())


@dataclasses.dataclass(frozen=True)
class OptimizedAgain(LongitudinalUnaryEncoding):
    """With a second randomization that reports half of the bits that are set: p2 = ½.

    Then q2 = ½ − y solves p(1 − q) = e^ε₁·q(1 − p), a quadratic equation in y, and q2 = 0 at the largest ε₁ there is.
    """

    def _check_first(self, epsilon: float, first_epsilon: float) -> None:
        super()._check_first(epsilon, first_epsilon)
        most = float(jnp.log1p(_most(self.permanent)))
        if not first_epsilon < most:
            raise ArgumentError(
                f"first_epsilon must be below {most:.4g} at epsilon = {epsilon:g}, got {first_epsilon:g}: half of the "
                "bits of the memo are not reported, and with q2 = 0 nothing else is hidden",
                argument="first_epsilon",
                value=first_epsilon,
            )

    @property
    def instantaneous(self) -> Rates:
        """The second randomization of each bit: p2 = ½ and q2."""
        return _optimized(self.permanent, expm1_epsilon(as_scalar(self._first, float_dtype())))

    @property
    def single_round(self) -> ChainedUnaryEncoding:
        """A unary encoding at ε₁ with the rates of both randomizations."""
        rates = chained(self.permanent, self.instantaneous)
        return ChainedUnaryEncoding(self.num_categories, self._first, rates_of_bits=rates)


def _most(permanent):
    """e^ε₁ − 1 at q2 = 0: (p1 − q1)/(q1·(1 − p1/2))."""
    return permanent.d / (permanent.q * (1 - permanent.p / 2))


def _optimized(permanent, e_first):
    p, q, d, e, b = permanent.p, permanent.q, permanent.d, permanent.not_q, permanent.not_p
    # E₁·e·b·y² + d(1 + E₁/2)·y = E₁/4 in y = ½ − q2, and E₁·e·b·q2² − B·q2 + C = 0; both divided by E₁, which may be
    # near the end of the dtype. Of either equation the root that loses nothing.
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
