"""What a longitudinal protocol is: a permanent answer, the memo, and every report a randomization of the memo.

A user who is asked T times and randomizes afresh each time has spent T·ε: the reports average out to the value. So the
value is randomized once, at ε∞, and what came of it is kept; what is reported is the memo, randomized again. A single
report then delivers ε₁ < ε∞, and no number of reports of one value more than ε∞, because all of them are made of the
memo. A value that the user did not have before gets a memo of its own, and ε∞ is spent anew.

Two histories have the same pattern where any two rounds share a memo in the one exactly if they share a memo in the
other: the memo changes at the same times, to a new one and back to the same old one alike. Histories with the same
pattern are apart by at most ε∞ for each memo in them. The pattern itself is not hidden, and no number of memos bounds
it: histories that differ in n rounds are apart by at most n·ε₂, ε₂ that of the second randomization between any two
memos. So whoever collects many reports learns that a memo has changed, when, and whether it has changed back.
`Protocol.history_loss` is the exact loss of any two histories.

The memo of a user is drawn from a key of the user and the value: a function of both, and the same whenever it is asked
for. That is a table of one answer a value, of which nothing but the key need be stored. Keys of JAX are for simulation;
a device that reports for somebody uses `rrjax.secure.Memo`, which draws from the operating system.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Shaped

from rrjax.data.arguments import as_scalar, float_dtype, int_dtype
from rrjax.data.categories import check_epsilon, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Dense
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.longitudinal import histories
from rrjax.mechanisms.mechanism import CELLS, Mechanism
from rrjax.numerics.sums import expm1_epsilon

_NUMBERS = (int, float, np.number)
"""What is known of a parameter where nothing is traced."""


@dataclasses.dataclass(frozen=True)
class Protocol(abc.ABC):
    """A longitudinal protocol over K categories: a frozen dataclass that is a pytree, K static."""

    num_categories: int
    epsilon: ArrayLike

    def __post_init__(self) -> None:
        """Checks what can be checked of K and ε∞."""
        check_num_categories(self.num_categories)
        check_epsilon(self.epsilon)

    @property
    @abc.abstractmethod
    def single_round(self) -> Mechanism:
        """What one round is to those who see no other: a mechanism of ε₁, with all that mechanisms have."""

    @property
    def num_memos(self) -> int:
        """The largest number of memos of one user: so many ε∞ bound the loss where they have the same pattern."""
        return self.num_categories

    @abc.abstractmethod
    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        """The ε of so many reports of one value: ε₁ of one, and towards ε∞.

        Args:
            num_reports: T, at least 1.

        Returns:
            Scalar, nats; NaN where a traced ε makes no sense.
        """

    @abc.abstractmethod
    def memoize(self, key: Array, values: ArrayLike) -> Shaped[Array, "*s"]:
        """The memo of each user for the value that the user has now.

        User number u has the secret `fold_in(key, u)`. The same key and value give the same memo, also after the user
        has had others in between; so for every round call it again with one key and the values of that round.

        Args:
            key: A typed key, `jax.random.key(seed)`; the same in all rounds. For simulation: who knows it can undo the
                randomization.
            values: Integers in 0 … K − 1, any shape: one a user, in the same order in all rounds.

        Returns:
            The memo, which never leaves the user.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """

    @abc.abstractmethod
    def report(self, key: Array, memo: ArrayLike) -> Shaped[Array, "*s"]:
        """Makes the reports of one round.

        Args:
            key: A typed key, another one in every round.
            memo: From `memoize`.

        Returns:
            Reports.

        Raises:
            ValueError: What is no memo.
        """

    @abc.abstractmethod
    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of all reports of each user together, whose value was the same in all rounds.

        Args:
            reports: `[N, T, …]`, T reports of each of N users.

        Returns:
            `Mixture`, a row for every kind of user that is different (under tracing, for every user); up to a factor
            that θ does not change.

        Raises:
            ValueError: Another shape or dtype, no users, or (not under tracing) what is no report.
        """

    def history_loss(self, history: ArrayLike, other: ArrayLike) -> float:
        """The privacy loss of two histories: the largest |log P(reports | history) − log P(reports | other)|.

        Over all outputs of all rounds, and over whatever the user drew for ever (the hash function, the categories
        that are asked). It is found by enumeration in float64 from `permanent` and `instantaneous`, whose precision is
        that of the dtype. Not for traced ε.

        Args:
            history: `[T]`, integers in 0 … K − 1, the value of the user in each round.
            other: `[T]`, those of the other history.

        Returns:
            Nats; `inf` where an output of the one is impossible under the other. At most `num_memos`·ε∞ for histories
            whose memos have the same pattern, which can be far below the loss of others.

        Raises:
            ArgumentError: Histories that are not integers of the domain or not of one length, or with more outputs
                than can be gone through: some 15 rounds with few changes, fewer with many. An ε whose exponential is
                beyond the dtype, from 86 in float32.

        Example:
            >>> import rrjax
            >>> protocol = rrjax.longitudinal.LongitudinalRandomizedResponse(3, epsilon=1.0, first_epsilon=0.5)
            >>> f"{protocol.history_loss([0, 1, 0], [1, 0, 1]):.2f}"  # the same pattern: at most 2
            '1.33'
            >>> f"{protocol.history_loss([0, 1, 0], [0, 1, 2]):.2f}"  # it comes back, or does not
            '0.77'
        """
        one, two = histories.checked(history, other, self.num_categories)
        return self._loss(np.asarray(one, np.int64), np.asarray(two, np.int64)).either

    @abc.abstractmethod
    def _loss(self, history: np.ndarray, other: np.ndarray) -> histories.Loss:
        """The loss of two histories `[T]`."""

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        """Which categories each report supports.

        Args:
            reports: Of this protocol.

        Returns:
            Booleans, with a last axis of K.

        Raises:
            ValueError: As `tally`.
        """
        return self.single_round.supports(reports)

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        """Turns single reports into unbiased vectors, as those of a mechanism.

        Args:
            reports: Of this protocol.

        Returns:
            A vector for each report, whose mean is `inv` of the tally of a round. Of `LongitudinalBitFlipping` it is
            zero for each category that the user is not asked about, K/d times as large for the others, and its mean
            another unbiased estimate than `inv`.

        Raises:
            ValueError: As `tally`.
        """
        return self.single_round.debias(reports)

    def tally(self, reports: ArrayLike) -> Tally:
        """Counts the reports of one round, one a user.

        The rounds of the same users share their memos, so their tallies are not independent: a sum of them promises
        more than there is. For several rounds of one value there is `mixture`.

        Args:
            reports: Of this protocol.

        Returns:
            `Tally`. Tallies of different users add up.

        Raises:
            ValueError: A wrong shape or dtype, or (not under tracing) what is no report.
        """
        return self.single_round.tally(reports)


@dataclasses.dataclass(frozen=True)
class TwoStages(Protocol):
    """A protocol that randomizes twice, so that one report says less than all of them: ε₁ below ε∞."""

    first_epsilon: ArrayLike

    def __post_init__(self) -> None:
        """Checks what can be checked of K, ε∞ and ε₁."""
        super().__post_init__()
        check_epsilon(self.first_epsilon, "first_epsilon")
        if isinstance(self.epsilon, _NUMBERS) and isinstance(self.first_epsilon, _NUMBERS):
            self._check_first(float(self.epsilon), float(self.first_epsilon))

    def _check_first(self, epsilon: float, first_epsilon: float) -> None:
        if not first_epsilon < epsilon:
            raise ArgumentError(
                f"first_epsilon, of one report, must be below epsilon, of all of them; got {first_epsilon:g} and "
                f"{epsilon:g}: a report is made of the memo, and says less than the memo does",
                argument="first_epsilon",
                value=first_epsilon,
            )

    @property
    @abc.abstractmethod
    def permanent(self) -> Rates:
        """The first randomization: p1 and q1."""

    @property
    @abc.abstractmethod
    def instantaneous(self) -> Rates:
        """The second one, of the memo: p2 and q2."""

    @property
    def _first(self) -> ArrayLike:
        """ε₁, or NaN where it is traced and not below ε∞."""
        if isinstance(self.first_epsilon, _NUMBERS) and isinstance(self.epsilon, _NUMBERS):
            return self.first_epsilon
        first, last = (as_scalar(each, float_dtype()) for each in (self.first_epsilon, self.epsilon))
        return jnp.where(first < last, first, jnp.nan)


def as_positive(value: int, name: str) -> int:
    """The value as an integer.

    Raises:
        ValueError: It is none, or not positive.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, got {value!r}", argument=name, value=value)
    return int(value)


def second_odds(size: ArrayLike, epsilon: ArrayLike, first_epsilon: ArrayLike) -> Float[Array, ""]:
    """e^ε₂ − 1 of randomized response, which makes ε₁ of ε∞ when it follows randomized response.

    Two randomized responses over g answers in a row are one, whose d is the product of theirs. With E = e^ε − 1 and
    d = E/(E + g), the second has E₂ = E₁(E∞ + g)/(E∞ − E₁).
    """
    dtype = float_dtype()
    last, first = as_scalar(epsilon, dtype), as_scalar(first_epsilon, dtype)
    e_last, e_first, e_between = expm1_epsilon(last), expm1_epsilon(first), expm1_epsilon(last - first)
    # (E∞ − E₁)/E∞ = (1 − e^{ε₁ − ε∞})(1 + 1/E∞)
    apart = e_between / (e_between + 1) * (1 + 1 / e_last)
    return e_first * (1 + jnp.asarray(size, dtype) / e_last) / apart


def for_each_user(function: Callable[..., Any], key: Array, users: tuple[Array, ...], cells: int) -> Any:
    """Applies a function to the key of each user and what the user has, so many at a time that they fit."""
    number = users[0].shape[0]
    keys = jax.vmap(lambda user: jax.random.fold_in(key, user))(jnp.arange(number, dtype=jnp.uint32))
    if not isinstance(number, int):  # a symbol of `jax.export`: there is no saying how many times so many
        return jax.vmap(function)(keys, *users)
    size = max(1, min(number, CELLS // cells))
    return lax.map(lambda given: function(*given), (keys, *users), batch_size=size)


def check_rounds(reports: Shaped[Array, "N T *s"], shape: str, num_axes: int) -> None:
    """Raises `ValueError` unless reports have so many axes, and there are users and rounds."""
    if reports.ndim != num_axes or 0 in reports.shape[:2]:
        raise ArgumentError(
            f"reports must have shape {shape}, T of each of N users, both at least 1; got {reports.shape}",
            argument="reports",
            value=reports.shape,
        )


def kinds(rows: Shaped[Array, "N M"]) -> tuple[Shaped[Array, "U M"], Shaped[Array, " U"]]:
    """The rows that are different, and how many there are of each; under tracing all of them."""
    if isinstance(rows, Tracer):
        return rows, jnp.ones(rows.shape[0], int_dtype())
    different, numbers = np.unique(np.asarray(rows), axis=0, return_counts=True)
    return jnp.asarray(different), jnp.asarray(numbers, int_dtype())


def mixture_of_rows(numbers: Shaped[Array, " U"], noise: Float[Array, "*U"], rows: Float[Array, "U K"]) -> Mixture:
    """The likelihood noise_u + Σ_i rows_ui·θ_i, its rows scaled to a base of one."""
    least = jnp.min(rows, axis=1, keepdims=True)
    # A product fused into the difference would make the least one less than itself.
    return Mixture(numbers, 1.0, Dense(jnp.maximum(rows - least, 0) / (noise[:, None] + least)))
