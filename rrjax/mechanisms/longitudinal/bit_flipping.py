"""d-bit flipping with permanent memoization (dBitFlipPM): a user answers for ever about the same few categories."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_scalar, as_values, check_key, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates
from rrjax.mechanisms.longitudinal.histories import Loss
from rrjax.mechanisms.longitudinal.protocol import (
    Protocol,
    as_positive,
    check_rounds,
    for_each_user,
    kinds,
    mixture_of_rows,
)
from rrjax.mechanisms.longitudinal.unary import drawn_bits
from rrjax.mechanisms.mechanism import Mechanism, numbers_if
from rrjax.mechanisms.rows import LogRows, log_gain
from rrjax.mechanisms.symmetric_unary_encoding import SymmetricUnaryEncoding
from rrjax.numerics.pytrees import register
from rrjax.numerics.sums import expm1_epsilon


@register(data_fields=["epsilon"], meta_fields=["num_categories", "num_bits"])
@dataclasses.dataclass(frozen=True)
class BitFlipping(Mechanism):
    """One round of d-bit flipping: of d categories drawn at random, a bit each, by symmetric unary encoding.

    A report supports a category that is among its d and has its bit set.
    """

    name: ClassVar[str] = "bit-flipping"
    num_bits: int = dataclasses.field(kw_only=True)

    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
        """Those of symmetric unary encoding, p and q times d/K."""
        e1, share = expm1(self.epsilon / 2), self.num_bits / self.num_categories  # pyright: ignore[reportOperatorIssue]
        return Rates(share, 1 + (e1 + 1) * (1 - share), share * e1)

    @property
    def bits(self) -> float:
        """Of a report: its categories, once, and their bits."""
        return self.num_bits * (1 + float(np.log2(self.num_categories)))

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s K"]:
        """Randomizes values: a function of the user's key and of which of the user's bits is the own one.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: Integers in 0 … K − 1, any shape.

        Returns:
            Reports, int8, the shape of `values` and a last axis of K: 0 or 1, and −1 for what was not asked. Under
            tracing, all 2 for a value outside the domain, which is no report.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        check_key(key)
        return _randomize(self, key, as_values(values, self.num_categories, "values"))

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        """Which categories each report supports: those with a bit that is set.

        Args:
            reports: `[*s, K]`, integers −1, 0 or 1.

        Returns:
            Booleans.

        Raises:
            ValueError: Another shape or dtype, or (not under tracing) other numbers, or other than d bits.
        """
        return self.checked(reports) == 1

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        """As `Mechanism`; those of d bits, and −1 elsewhere."""
        bits = jnp.sum(reports >= 0, axis=-1, dtype=jnp.int32)
        return jnp.all((reports >= -1) & (reports <= 1), axis=-1) & (bits == self.num_bits)

    def log_probability(self, reports: Array) -> Float[Array, "*s"]:
        """As `Mechanism`; of which categories are asked, and of d bits, one of them the own one and set."""
        log_p, _, log_q, log_not_q = SymmetricUnaryEncoding(self.num_categories, self.epsilon).log_rates
        others = jnp.maximum(jnp.sum(reports == 1, axis=-1, dtype=jnp.int32) - 1, 0).astype(log_p.dtype)
        choices = math.lgamma(self.num_categories + 1) - math.lgamma(self.num_bits + 1)
        choices -= math.lgamma(self.num_categories - self.num_bits + 1)
        return log_p + others * log_q + (self.num_bits - 1 - others) * log_not_q - choices

    def log_rows(self, reports: ArrayLike) -> LogRows:
        """As `Mechanism`; a bit that is not set speaks against its category, one that was not asked for neither."""
        sound, reports = self._sound(reports), self.checked(reports)
        epsilon = as_scalar(self.epsilon, float_dtype())
        # Relative to a bit that is set; where none is, to one that was not asked: e^{ε/2} less.
        above = jnp.where(jnp.any(reports == 1, axis=-1), 0, epsilon / 2)
        unasked = jnp.where(reports < 0, log_gain(epsilon / 2) - epsilon / 2, -jnp.inf)
        lift = jnp.where(reports == 1, log_gain(epsilon), unasked)
        rows = LogRows(self.log_probability(reports), above - epsilon, above[..., None] + lift)
        return rows.where(sound, jnp.nan)

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        """Turns single reports into unbiased vectors: K/d times those of the d bits, and zero for what was not asked.

        Their mean is the published estimator: up to twice as close as `inv` of the tally, which cannot know how many
        users were asked about a category.

        Args:
            reports: `[*s, K]`, integers −1, 0 or 1.

        Returns:
            A vector for each report. Under tracing, NaN for what is no report.

        Raises:
            ValueError: As `supports`.
        """
        rates = SymmetricUnaryEncoding(self.num_categories, self.epsilon).rates
        scale = self.num_categories / self.num_bits
        sound, reports = jnp.asarray(self._sound(reports)), self.checked(reports)
        bits = jnp.where(reports == 1, 1 + rates.never / rates.truth, -rates.always / rates.truth)
        return jnp.where(sound[..., None], jnp.where(reports < 0, 0, scale * bits), jnp.nan)

    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of reports: e^{ε/2} for a set bit, e^{−ε/2} for one that is not, 1 for what was not asked.

        Args:
            reports: `[*s, K]`, integers −1, 0 or 1.

        Returns:
            `Mixture`, a row for every report that is different (under tracing, for every report, and unusable where one
            is none).

        Raises:
            ValueError: As `supports`.
        """
        rows, numbers = kinds(self.checked(reports).reshape(-1, self.num_categories))
        numbers = numbers_if(self._sound(rows), numbers)
        half = expm1_epsilon(as_scalar(self.epsilon, float_dtype()) / 2)
        # Less the likelihood of a bit that is not set, and over it.
        lift = jnp.where(rows == 1, half * (half + 2), jnp.where(rows == 0, 0, half))
        return mixture_of_rows(numbers, jnp.ones(rows.shape[0], half.dtype), lift)

    def checked(self, reports: ArrayLike) -> Int[Array, "*s K"]:
        """The reports as an array.

        Raises:
            ValueError: Another shape or dtype, or (not under tracing) other numbers, or other than d bits.
        """
        reports = reports if isinstance(reports, jax.Array) else np.asarray(reports)
        if reports.ndim < 2 or reports.shape[-1] != self.num_categories or reports.dtype.kind != "i":
            raise ArgumentError(
                f"reports must be integers of shape [N, {self.num_categories}], a bit a category or −1; got "
                f"{reports.dtype.name} of shape {tuple(reports.shape)}",
                argument="reports",
            )
        if not isinstance(reports, Tracer) and reports.size:
            known = np.asarray(reports)
            if known.min() < -1 or known.max() > 1:
                raise ArgumentError(
                    f"reports must be −1, 0 or 1, got values from {known.min()} to {known.max()}", argument="reports"
                )
            if ((known >= 0).sum(-1) != self.num_bits).any():
                raise ArgumentError(
                    f"each report must have {self.num_bits} bits, and −1 for the other categories", argument="reports"
                )
        return jnp.asarray(reports)


@register(data_fields=["epsilon"], meta_fields=["num_categories", "num_bits"])
@dataclasses.dataclass(frozen=True)
class LongitudinalBitFlipping(Protocol):
    """d-bit flipping with permanent memoization (dBitFlipPM). A pytree, ε∞ its leaf.

    A user draws d of the K categories for ever. The memo is a bit for each of them, by symmetric unary encoding at ε∞,
    and is reported as it is: ε₁ = ε∞. The memo of all values that are not among the d is one. Two histories are apart
    by at most min(d + 1, K)·ε∞ where their memos have the same pattern: the memo changes at the same times, to a new
    one and back to the same old one alike. For histories with different patterns there is no bound at all: a change
    from one memo to another that differs is seen at once, and so is a memo that comes back. Histories of values can
    have the same pattern while their memos have not, as (0, 1) and (0, 2) of a user who is asked about 2 alone.
    `history_loss` is the loss of any two.

    Args:
        num_categories: K, an integer, at least 2; numbers are put into so many buckets first.
        epsilon: ε∞, scalar, nats, of any number of reports of one value.
        num_bits: d, from 1 to K. Static.

    Raises:
        ValueError: K < 2, ε a number that is not positive, or d out of range.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalBitFlipping(5, epsilon=2.0, num_bits=2)
        >>> reports = protocol.report(jax.random.key(1), protocol.memoize(jax.random.key(0), [0, 0, 1, 4]))
        >>> reports.shape, (reports >= 0).sum(axis=1).tolist(), int(protocol.tally(reports).num_users)
        ((4, 5), [2, 2, 2, 2], 4)

    References:
        Ding, Kulkarni and Yekhanin, "Collecting telemetry data privately", 2017: arXiv:1712.01524.
    """

    num_bits: int

    def __post_init__(self) -> None:
        """Checks what can be checked."""
        super().__post_init__()
        if isinstance(self.num_bits, bool) or not isinstance(self.num_bits, int):
            raise ArgumentError(
                f"num_bits must be an integer, got {self.num_bits!r}", argument="num_bits", value=self.num_bits
            )
        if not 1 <= self.num_bits <= self.num_categories:
            raise ArgumentError(
                f"num_bits must be from 1 to num_categories = {self.num_categories}, got {self.num_bits}",
                argument="num_bits",
                value=self.num_bits,
            )

    @property
    def first_epsilon(self) -> ArrayLike:
        """ε₁, which is ε∞."""
        return self.epsilon

    @property
    def num_memos(self) -> int:
        """The largest number of memos of one user, min(d + 1, K): bounds histories with the same pattern of memos."""
        return min(self.num_bits + 1, self.num_categories)

    @property
    def single_round(self) -> BitFlipping:
        """Bit flipping at ε∞."""
        return BitFlipping(self.num_categories, self.epsilon, num_bits=self.num_bits)

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        """ε∞, from the first report on.

        Args:
            num_reports: T, at least 1.

        Returns:
            Scalar, nats.

        Raises:
            ValueError: T not a positive integer.
        """
        as_positive(num_reports, "num_reports")
        return as_scalar(self.epsilon, float_dtype())

    def _loss(self, history, other):
        values, places = np.unique(np.concatenate([history, other]), return_inverse=True)
        one, two = np.split(places, 2)
        # Every choice of those of the values that are asked about; the rest of the d are other categories.
        fewest = max(0, self.num_bits - (self.num_categories - values.size))
        chosen = (
            np.isin(np.arange(values.size), asked)
            for size in range(fewest, min(self.num_bits, values.size) + 1)
            for asked in itertools.combinations(range(values.size), size)
        )
        most = max(_units_apart(asked, one, two) for asked in chosen)
        loss = most * float(np.asarray(self.epsilon)) / 2
        return Loss(loss, loss)

    def memoize(self, key: Array, values: ArrayLike) -> Int[Array, "*s K"]:
        """The memo of each user for the value that the user has now: `Protocol.memoize`.

        Args:
            key: A typed key; the same in all rounds.
            values: Integers in 0 … K − 1, any shape: one a user, in the same order in all rounds.

        Returns:
            Int8, the shape of `values` and a last axis of K: 0 or 1, and −1 for what is never asked.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        return self.single_round.randomize(key, values)

    def report(self, key: Array, memo: ArrayLike) -> Int[Array, "*s K"]:
        """The reports of one round: the memo.

        Args:
            key: Not used.
            memo: From `memoize`.

        Returns:
            `memo`.

        Raises:
            ValueError: Another shape or dtype, or (not under tracing) other numbers, or other than d bits.
        """
        del key
        return self.single_round.checked(memo)

    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of the reports of each user, which say no more than the first.

        Args:
            reports: `[N, T, K]`, T reports of each of N users.

        Returns:
            `Mixture`, a row for every report that is different (under tracing, for every user, and unusable where the
            reports of one differ).

        Raises:
            ValueError: Another shape or dtype, no users, what is no report, or (not under tracing) a user whose
                reports differ: the value was not the same in all rounds.
        """
        reports = self.single_round.checked(reports)
        check_rounds(reports, f"[N, T, {self.num_categories}]", 3)
        if isinstance(reports, Tracer):
            alike = jnp.all(reports == reports[:, :1], axis=(1, 2))
            return self.single_round.mixture(jnp.where(alike[:, None], reports[:, 0], -1))  # of no bits
        known = np.asarray(reports)
        differ = (known != known[:, :1]).any(axis=(1, 2))
        if differ.any():
            raise ArgumentError(
                f"reports of user {int(np.argmax(differ))} differ: the value was not always the same",
                argument="reports",
            )
        return self.single_round.mixture(reports[:, 0])


def _units_apart(asked, history, other):
    """How many times ε/2 two histories are apart, for a user who is asked about these of the values."""
    one, two = (np.where(asked[each], each, -1) for each in (history, other))  # the memos
    pairs = set(zip(one.tolist(), two.tolist(), strict=True))
    if len(pairs) > min(np.unique(one).size, np.unique(two).size):
        return math.inf  # rounds that share a memo in the one history and not in the other
    return sum((first >= 0) + (second >= 0) for first, second in pairs if first != second)


@jax.jit
def _randomize(mechanism, key, values):
    rates = SymmetricUnaryEncoding(mechanism.num_categories, mechanism.epsilon).rates
    size = mechanism.num_categories

    def answer(key, value):
        of_categories, of_memos = jax.random.split(key)
        asked = jax.random.permutation(of_categories, jnp.arange(size, dtype=jnp.int32))[: mechanism.num_bits]
        own = asked == value.astype(jnp.int32)
        which = jnp.where(jnp.any(own), jnp.argmax(own), mechanism.num_bits)
        bits = drawn_bits(jax.random.fold_in(of_memos, which), own, rates)
        inside = (value >= 0) & (value < size)
        return jnp.where(inside, jnp.full(size, -1, jnp.int8).at[asked].set(bits.astype(jnp.int8)), jnp.int8(2))

    return for_each_user(answer, key, (values.ravel(),), size).reshape(*values.shape, size)
