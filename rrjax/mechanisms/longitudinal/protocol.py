"""Longitudinal protocols: a permanent randomized answer (the memo), which each report randomizes again.

A user who reports T times and randomizes anew each time spends T·ε: the average of the reports reveals the value. So
the value is randomized once, at ε∞, and the result is kept; each report is the memo, randomized again. A single report
delivers ε₁ < ε∞, and any number of reports of one value at most ε∞, because all are made from the memo. A new value
gets a new memo, which spends ε∞ again.

Two histories have the same pattern if the memo changes at the same times, to a new memo or back to the same old one:
two rounds share a memo in one history if and only if they do in the other. Histories with the same pattern differ by at
most ε∞ for each memo. The pattern itself is not protected, and no number of memos bounds it: histories that differ in n
rounds differ by at most n·ε₂, the ε of the second randomization between two memos. Many reports show that a memo has
changed, when, and whether it has changed back. `Protocol.history_loss` is the exact loss of any two histories.

The memo of a user is drawn from a key of the user and the value, so the same value always gives the same memo, and only
the key needs to be stored. JAX keys are for simulation. A device that reports for a person uses `rrjax.secure.Memo`,
which draws from the operating system.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_scalar, as_true_counts, as_values, check_key, float_dtype, int_dtype
from rrjax.data.categories import as_integer, check_epsilon, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Dense
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.draws import below, rounded_down, rounded_up, summed_in_parts
from rrjax.mechanisms.longitudinal import histories
from rrjax.mechanisms.mechanism import CELLS, PureMechanism, numbers_if
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import refuse_spread, unsharded, with_sharding_of
from rrjax.numerics.sums import odds_of_rates, ratio

MOST_REPORTS = 2**31 - 1
"""Largest number of reports of all rounds together, N·T."""


_NUMBERS = (int, float, np.number)
"""Types of parameters that are certainly not traced."""


@dataclasses.dataclass(frozen=True)
class Protocol(abc.ABC):
    """A longitudinal protocol over K categories: a frozen dataclass that is a pytree, K static."""

    name: ClassVar[str]
    """Name in files and on the command line, such as "longitudinal-randomized-response"."""

    num_categories: int
    epsilon: ArrayLike

    def __post_init__(self) -> None:
        check_num_categories(self.num_categories)
        object.__setattr__(self, "num_categories", int(self.num_categories))
        check_epsilon(self.epsilon)

    @property
    @abc.abstractmethod
    def single_round(self) -> PureMechanism:
        """One round as a mechanism at ε₁, with all methods of mechanisms."""

    @property
    def num_memos(self) -> int:
        """The largest number of memos of a user. num_memos·ε∞ bounds the loss of histories with the same pattern."""
        return self.num_categories

    @abc.abstractmethod
    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        """The ε of T reports of one value: ε₁ for one report, ε∞ in the limit.

        Args:
            num_reports: T, at least 1.

        Returns:
            Scalar, nats; NaN for an impossible traced ε. At most 85.2 in float32, or 706.3 in float64, where the memo
            is optimized unary encoding or an answer: a larger ε has these rates.

        Raises:
            ValueError: T not a positive integer.
        """

    @abc.abstractmethod
    def memoize(self, key: Array, values: ArrayLike) -> Shaped[Array, "*s"]:
        """The memo of each user for the current value.

        User number u has the secret `fold_in(key, u)`. The same key and value give the same memo, even after other
        values in between; so call it in every round with one key and the values of that round.

        Args:
            key: A typed key, `jax.random.key(seed)`; the same in all rounds. For simulation: anyone with the key can
                undo the randomization.
            values: Integers in 0 … K − 1, any shape: one for each user, in the same order in all rounds.

        Returns:
            The memo, which never leaves the user.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """

    @abc.abstractmethod
    def report(self, key: Array, memo: ArrayLike) -> Shaped[Array, "*s"]:
        """The reports of one round.

        Args:
            key: A typed key, a new one for every round.
            memo: From `memoize`.

        Returns:
            Reports, of the shape and dtype of the memo; under tracing, no report for an entry that is no memo.

        Raises:
            ValueError: Another shape or dtype, or (not under tracing) an entry that is no memo.
        """

    @abc.abstractmethod
    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of all reports of each user together, for users whose value was the same in all rounds.

        Args:
            reports: `[N, T, …]`, T reports of each of N users.

        Returns:
            `Mixture`, one row for every different kind of user, up to a factor that θ does not change. Under tracing,
            one row for every user, and unusable if an entry is no report.

        Raises:
            ValueError: Another shape or dtype, no users, or (not under tracing) an entry that is no report.
        """

    def history_loss(self, history: ArrayLike, other: ArrayLike) -> float:
        """The privacy loss of two histories: the largest |log P(reports | history) − log P(reports | other)|.

        The maximum is over all outputs of all rounds, and over the permanent draws of the user (the hash function, the
        categories with a bit). It is found by enumeration in float64, from the `permanent` and `instantaneous` rates in
        their dtype. Not for a traced ε.

        Args:
            history: `[T]`, integers in 0 … K − 1, the value of the user in each round.
            other: `[T]`, the other history.

        Returns:
            Nats; `inf` if an output of one history is impossible under the other. At most `num_memos`·ε∞ for histories
            whose memos have the same pattern; other histories can have a far larger loss.

        Raises:
            ArgumentError: Histories that are not integers of the domain or not of one length, or with too many outputs
                to enumerate: some 15 rounds with few changes, fewer with many. An ε whose exponential is beyond the
                dtype, from 85.2 in float32.

        Example:
            >>> import rrjax
            >>> protocol = rrjax.longitudinal.LongitudinalRandomizedResponse(3, epsilon=1.0, first_epsilon=0.5)
            >>> f"{protocol.history_loss([0, 1, 0], [1, 0, 1]):.2f}"  # the same pattern: at most 2
            '1.33'
            >>> f"{protocol.history_loss([0, 1, 0], [0, 1, 2]):.2f}"  # the value comes back, or does not
            '0.77'
        """
        one, two, values = histories.numbered(history, other, self.num_categories)
        return float(np.max(self._loss(one, two, values.size)))

    @abc.abstractmethod
    def _loss(self, history: np.ndarray, other: np.ndarray, num_values: int) -> Any:
        """The losses of two histories `[T]`, whose values are numbered from 0 to `num_values` − 1."""

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        """As `PureMechanism.supports` of `single_round`."""
        return self.single_round.supports(reports)

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        """As `PureMechanism.debias` of `single_round`: unbiased vectors whose mean is `inv` of the tally of a round.

        For `LongitudinalBitFlipping` the vector is zero for categories without a bit, and K/d times as large for the
        others; its mean is unbiased, but not `inv`.
        """
        return self.single_round.debias(reports)

    def tally(self, reports: ArrayLike) -> Tally:
        """The tally of the reports of one round, one for each user, as `PureMechanism.tally` of `single_round`.

        Tallies of different users add up. Rounds of the same users share their memos, so their tallies are not
        independent, and their sum overstates the information; for several rounds of one value use `mixture`.
        """
        return self.single_round.tally(reports)

    def collect(self, key: Array, true_counts: ArrayLike, num_rounds: int = 1) -> Tally:
        """Draws the tally of T rounds of the same users, whose values do not change, by its exact law.

        `inv` of it is unbiased. Reports of one user in two rounds depend on each other, so that every estimate has a
        larger error than from N·T users, for which `empirical_bayes` and others take them.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            true_counts: `[K]`, integers, the number of users with each category.
            num_rounds: T. N·T is below 2³¹.

        Returns:
            `Tally` of N·T reports; estimates of it are NaN for unusable counts or an impossible ε.

        Raises:
            ValueError: Other than K categories, counts that are not integers, T not a positive integer, or (not under
                tracing) too many reports.

        Example:
            >>> import jax, rrjax
            >>> protocol = rrjax.longitudinal.LongitudinalRandomizedResponse(3, epsilon=3.0, first_epsilon=1.0)
            >>> tally = protocol.collect(jax.random.key(0), [60_000, 30_000, 10_000], num_rounds=7)
            >>> int(tally.num_users), [round(t, 2) for t in rrjax.inv_p(tally).tolist()]
            (700000, [0.6, 0.3, 0.1])
        """
        check_key(key)
        true_counts = as_true_counts(true_counts, self.num_categories)
        number = as_integer(num_rounds, "num_rounds", 1, MOST_REPORTS)
        if not isinstance(true_counts, Tracer) and np.asarray(true_counts).sum(dtype=np.float64) * number >= 2**31:
            raise ArgumentError("true_counts times num_rounds must be below 2³¹", argument="num_rounds", value=number)
        return Tally(*self._collect(key, true_counts, number), rates=self.single_round.rates)

    def _collect(self, key: Array, true_counts: Array, num_rounds: int) -> tuple[Array, Array]:
        """Support counts of all rounds, and the number of reports, of simulated users; −1 if they cannot be drawn."""
        return _collect(self, key, true_counts, num_rounds)


@jax.jit
def _collect(protocol, key, true_counts, num_rounds):
    single, size = protocol.single_round, protocol.num_categories
    key, true_counts = refuse_spread((key, true_counts), f"{type(protocol).__name__}.collect")

    def add(total, key, values, exists):
        of_memo, of_rounds = jax.random.split(key)
        memo = protocol.memoize(of_memo, values)

        def add_round(number, total):
            supported = single.supports(protocol.report(jax.random.fold_in(of_rounds, number), memo))
            return total + jnp.sum(supported & exists[:, None], axis=0, dtype=total.dtype)

        return lax.fori_loop(0, num_rounds, add_round, total)

    users = max(1, min(1 << 12, CELLS // size))
    support, number, usable = summed_in_parts(add, key, true_counts, users, jnp.zeros(size, jnp.int32))
    usable = usable & can_be_drawn(support, number, num_rounds) & (single.rates.truth > 0)
    return jnp.where(usable, support, -1), jnp.where(usable, number * num_rounds, -1)


@dataclasses.dataclass(frozen=True)
class TwoStages(Protocol):
    """A protocol of two mechanisms in a row: the memo is made at ε∞, and each report randomizes it, with ε₁ < ε∞.

    The memo supports the user's category with probability p1 and any other one with q1; a report supports what the memo
    supports with p2, and anything else with q2. Given all reports of a user, let w_i be the probability that the memo
    supports category i, for a user who does not hold it. The likelihood of the user is 1 + (e^ε∞ − 1)·Σ_i w_i·θ_i, up
    to a factor.
    """

    first_epsilon: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.first_epsilon, "first_epsilon")
        if isinstance(self.epsilon, _NUMBERS) and isinstance(self.first_epsilon, _NUMBERS):
            self._check_first(float(self.epsilon), float(self.first_epsilon))

    def _check_first(self, epsilon: float, first_epsilon: float) -> None:
        if not first_epsilon < epsilon:
            raise ArgumentError(
                f"first_epsilon, of one report, must be below epsilon, of all reports; got {first_epsilon:g} and "
                f"{epsilon:g}: a report is made of the memo, and carries less information",
                argument="first_epsilon",
                value=first_epsilon,
            )

    @property
    @abc.abstractmethod
    def memo_mechanism(self) -> PureMechanism:
        """The mechanism at ε∞ that makes the memo of a category or, with local hashing, of its bucket."""

    @property
    def permanent(self) -> Rates:
        """The first randomization: p1 and q1."""
        return self.memo_mechanism.rates

    @property
    @abc.abstractmethod
    def instantaneous(self) -> Rates:
        """The second randomization, of the memo: p2 and q2."""

    @property
    def _first(self) -> ArrayLike:
        """ε₁; NaN if it is traced and not below ε∞."""
        if isinstance(self.first_epsilon, _NUMBERS) and isinstance(self.epsilon, _NUMBERS):
            return self.first_epsilon
        first, last = (as_scalar(each, float_dtype()) for each in (self.first_epsilon, self.epsilon))
        return jnp.where(first < last, first, jnp.nan)

    def memoize(self, key: Array, values: ArrayLike) -> Shaped[Array, "*s"]:
        check_key(key)
        return _memoize(self, key, as_values(values, self.num_categories, "values"))

    @property
    def _memo_cells(self) -> int:
        """The number of entries of a memo."""
        return 1

    def _own_memo(self, key: Array, value: Int[Array, ""]) -> Array:
        """The memo of a user with this secret for one value; always the same."""
        return self.memo_mechanism.randomize(jax.random.fold_in(key, value.astype(jnp.uint32)), value)

    def _mixture(self, seen: Int[Array, "N M"], sound: Bool[ArrayLike, "*s"], num_reports: int) -> Mixture:
        """The likelihood, by what it depends on of each user's reports, and by whether these are sound."""
        rows, numbers = kinds(seen)
        return mixture_of_rows(numbers_if(sound, numbers), *_likelihood(self, rows, num_reports))

    @abc.abstractmethod
    def _log_rows(self, seen: Int[Array, "U M"], num_reports: int) -> tuple[Float[Array, "U K"], ArrayLike]:
        """Logarithms of a·(e^ε∞ − 1)·w_i and of a, with any a for each user."""

    def _collect(self, key: Array, true_counts: Array, num_rounds: int) -> tuple[Array, Array]:
        # Given the memos, the reports are independent: T rounds are one round of T users with each memo. O(K).
        of_memos, of_reports = jax.random.split(key)
        memos = self.memo_mechanism.collect(of_memos, true_counts)
        usable = can_be_drawn(memos.support, memos.num_users, num_rounds) & (self.instantaneous.truth > 0)
        held, number = (
            jnp.where(usable, each, 0).astype(jnp.int32) * num_rounds for each in (memos.support, memos.num_users)
        )
        support, number = self._counts_again(of_reports, held, number, usable)
        return jnp.where(usable, support, -1), jnp.where(usable, number, -1)

    @abc.abstractmethod
    def _counts_again(
        self, key: Array, held: Int[Array, " K"], number: Int[Array, ""], usable: Bool[Array, ""]
    ) -> tuple[Int[Array, " K"], Int[Array, ""]]:
        """Draws the support counts of reports of so many memos, of which `held` support each category; and N."""


def second_odds(size: ArrayLike, epsilon: ArrayLike, first_epsilon: ArrayLike) -> Float[Array, ""]:
    """e^ε₂ − 1 of the second randomized response over `size` answers, so that both in a row deliver ε₁.

    Two randomized responses over g answers in a row are one randomized response, whose d is the product of their d.
    With E = e^ε − 1 and d = E/(E + g), the second has E₂ = E₁(E∞ + g)/(E∞ − E₁).
    """
    dtype = float_dtype()
    last, first = as_scalar(epsilon, dtype), as_scalar(first_epsilon, dtype)
    expm1_last, expm1_first, expm1_between = (odds_of_rates(each) for each in (last, first, last - first))
    # (E∞ − E₁)/E∞ = (1 − e^{ε₁ − ε∞})(1 + 1/E∞)
    apart = ratio(expm1_between, expm1_between + 1) * (1 + 1 / expm1_last)
    more = ratio(1 + ratio(jnp.asarray(size, dtype), expm1_last), apart)
    most = odds_of_rates(jnp.asarray(jnp.inf, dtype))
    return jnp.where(expm1_first > most / more, most, expm1_first * more)


@jax.jit
def _memoize(protocol, key, values):
    memo = for_each_user(protocol._own_memo, key, (values.ravel(),), protocol._memo_cells)
    return memo.reshape(*values.shape, *memo.shape[1:])


@partial(jax.jit, static_argnums=2)
def _likelihood(protocol, rows, num_reports):
    return protocol._log_rows(rows, num_reports)


def can_be_drawn(support: Int[Array, " K"], number: Int[Array, ""], num_rounds: int | Array) -> Bool[Array, ""]:
    """Whether so many rounds of a collection with these counts can be drawn."""
    return jnp.all(support >= 0) & (number >= 0) & (number <= MOST_REPORTS // num_rounds)


def for_each_user(function: Callable[..., Any], key: Array, users: tuple[Array, ...], cells: int) -> Any:
    """Applies a function to the key and the data of each user, in batches of a bounded number of cells."""
    num_users, users = users[0].shape[0], tuple(map(unsharded, users))
    keys = jax.vmap(lambda user: jax.random.fold_in(key, user))(jnp.arange(num_users, dtype=jnp.uint32))
    if not isinstance(num_users, int):  # a symbol of `jax.export`, which has no batches
        return jax.vmap(function)(keys, *users)
    size = max(1, min(num_users, CELLS // cells))
    return lax.map(lambda user: function(*user), (keys, *users), batch_size=size)


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


def check_rounds(reports: Shaped[Array, "N T *s"], shape: str) -> None:
    """Raises `ValueError` unless reports have the axes of `shape`, and there are users and rounds."""
    if reports.ndim != shape.count(",") + 1 or 0 in reports.shape[:2]:
        raise ArgumentError(
            f"reports must have shape {shape}, T of each of N users, both at least 1; got {reports.shape}",
            argument="reports",
            value=reports.shape,
        )


def kinds(rows: Shaped[Array, "N M"]) -> tuple[Shaped[Array, "U M"], Shaped[Array, " U"]]:
    """The different rows and their numbers; under tracing all rows."""
    if isinstance(rows, Tracer):
        return rows, jnp.ones(rows.shape[0], int_dtype())
    different, numbers = np.unique(np.asarray(rows), axis=0, return_counts=True)
    return jnp.asarray(different), jnp.asarray(numbers, int_dtype())


def mixture_of_rows(numbers: Shaped[Array, " U"], log_rows: Float[Array, "U K"], log_noise: ArrayLike) -> Mixture:
    """The likelihood noise_u + Σ_i rows_ui·θ_i by its logarithms: the numbers may be beyond the dtype.

    Each row is over its base, or if that is tiny over its largest number.
    """
    return Mixture(numbers, *_scaled_rows(log_rows, log_noise))


@jax.jit
def _scaled_rows(log_rows, log_noise):
    highest = lax.stop_gradient(jnp.maximum(jnp.max(log_rows, axis=1, keepdims=True), log_noise))
    rows, noise = jnp.exp(log_rows - highest), jnp.exp(log_noise - highest)
    least = jnp.min(rows, axis=1, keepdims=True)
    # The maximum with zero: a product fused into the difference makes the smallest entry slightly negative.
    lift, base = jnp.maximum(rows - least, 0), noise + least
    largest = jnp.max(lift, axis=1, keepdims=True)
    scale = jnp.where(largest > base * 2.0**62, largest, base)  # ratios would leave the range of the dtype
    return (base / scale)[:, 0], Dense(lift / scale)


@exportable
class Attack(NamedTuple):
    """Success rates of the attack on the values of users.

    Attributes:
        with_memo: `[T]`, from the first t reports, all made from one memo: at most `bound` on average.
        without_memo: `[T]`, if every report randomizes the value anew: tends to one.
        bound: Scalar, e^ε∞/(e^ε∞ + K − 1): for uniform values, no guess from reports that spend ε∞ is better.
    """

    with_memo: Float[Array, " T"]
    without_memo: Float[Array, " T"]
    bound: Float[Array, ""]


def averaging_attack(key: Array, protocol: Protocol, num_reports: int, num_users: int = 1000) -> Attack:
    """Success rates of guesses of simulated users' values from their reports, with and without the memo.

    Values are uniform. The guess is the category with the largest sum of unbiased vectors (`debias`). It is the
    likeliest value, so no attack does better; for `LongitudinalBitFlipping` with the memo only, because without it the
    likeliest value also uses unset bits, and is right a little more often.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        protocol: Any protocol.
        num_reports: T, the reports collected from each user. Static.
        num_users: Number of simulated users: a share s has the standard error sqrt(s(1−s)/num_users). Static.

    Returns:
        An `Attack`, shares of right guesses; NaN for an impossible traced ε.

    Raises:
        ValueError: `num_reports` or `num_users` not a positive integer.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalRandomizedResponse(4, epsilon=2.0, first_epsilon=1.0)
        >>> attack = rrjax.longitudinal.averaging_attack(jax.random.key(0), protocol, 50, num_users=10_000)
        >>> print(f"{attack.without_memo[-1]:.2f} {attack.with_memo[-1]:.2f} {attack.bound:.2f}")
        0.99 0.72 0.71

    References:
        Ding, Kulkarni and Yekhanin, "Collecting telemetry data privately", 2017, §1.
    """
    check_key(key)
    return _attack(key, protocol, as_integer(num_reports, "num_reports", 1), as_integer(num_users, "num_users", 1))


@partial(jax.jit, static_argnums=(2, 3))
def _attack(key, protocol, num_reports, num_users):
    key_of_values, key_of_memo, key_of_rounds = jax.random.split(key, 3)
    values = jax.random.randint(key_of_values, (num_users,), 0, protocol.num_categories, jnp.int32)
    memo = protocol.memoize(key_of_memo, values)

    def add_round(scores, key):
        with_memo, without, first, second = *scores, *jax.random.split(key)
        key_of_new_memo, last = jax.random.split(second)
        with_memo = with_memo + protocol.debias(protocol.report(first, memo))
        without = without + protocol.debias(protocol.report(last, protocol.memoize(key_of_new_memo, values)))
        return (with_memo, without), (success(with_memo), success(without))

    def success(scores):
        right = jnp.mean((jnp.argmax(scores, axis=1).astype(values.dtype) == values).astype(scores.dtype))
        return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, right)

    bound = RandomizedResponse(protocol.num_categories, protocol.epsilon).p
    zeros = jnp.zeros((num_users, protocol.num_categories), bound.dtype)
    _, (with_memo, without) = lax.scan(
        add_round, with_sharding_of((zeros, zeros), key), jax.random.split(key_of_rounds, num_reports)
    )
    return Attack(with_memo, without, bound)
