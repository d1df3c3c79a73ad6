"""d-bit flipping with permanent memoization (dBitFlipPM): each user reports on the same d categories in all rounds."""

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
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates
from rrjax.mechanisms.longitudinal.protocol import (
    Protocol,
    check_rounds,
    drawn_bits,
    for_each_user,
    kinds,
    mixture_of_rows,
)
from rrjax.mechanisms.mechanism import LogRows, PureMechanism, log_gain, numbers_if
from rrjax.mechanisms.unary import SymmetricUnaryEncoding
from rrjax.numerics.pytrees import pytree


@pytree("num_categories", "num_bits")
class BitFlipping(PureMechanism):
    """One round of d-bit flipping: one bit for each of d random categories, by symmetric unary encoding.

    A report supports the categories whose bits are set. Reports are int8, a last axis of K: 0 or 1, and −1 for
    categories outside the d; under tracing, all 2 for a value outside the domain. `debias` is the published estimator,
    K/d times the vectors of the d bits and zero elsewhere. Its error is down to half that of `inv` of the tally.
    """

    name: ClassVar[str] = "bit-flipping"
    num_bits: int = dataclasses.field(kw_only=True)

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        e1, share = expm1(self.epsilon / 2), self.num_bits / self.num_categories  # pyright: ignore[reportOperatorIssue]
        return Rates(share, 1 + (e1 + 1) * (1 - share), share * e1)

    @property
    def encoding(self) -> SymmetricUnaryEncoding:
        """The encoding that draws the bits."""
        return SymmetricUnaryEncoding(self.num_categories, self.epsilon)

    @property
    def bits(self) -> float:
        return self.num_bits * (1 + math.log2(self.num_categories))

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s K"]:
        check_key(key)
        return _randomize(self, key, as_values(values, self.num_categories, "values"))

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        return self.checked(reports) == 1

    def is_report(self, reports: Any) -> Any:
        return ((reports >= -1) & (reports <= 1)).all(axis=-1) & ((reports >= 0).sum(axis=-1) == self.num_bits)

    def log_probability(self, reports: Array) -> Float[Array, "*s"]:
        log_p, _, log_q, log_not_q = self.encoding.log_rates
        others = jnp.maximum(jnp.sum(reports == 1, axis=-1, dtype=jnp.int32) - 1, 0).astype(log_p.dtype)
        choices = math.lgamma(self.num_categories + 1) - math.lgamma(self.num_bits + 1)
        choices -= math.lgamma(self.num_categories - self.num_bits + 1)
        return log_p + others * log_q + (self.num_bits - 1 - others) * log_not_q - choices

    def log_rows(self, reports: ArrayLike) -> LogRows:
        sound, reports = self._sound(reports), self.checked(reports)
        epsilon = as_scalar(self.epsilon, float_dtype())
        # Relative to a set bit; if there is none, to a category without a bit, e^{ε/2} less.
        above = jnp.where(jnp.any(reports == 1, axis=-1), 0, epsilon / 2)
        not_asked = jnp.where(reports < 0, log_gain(epsilon / 2) - epsilon / 2, -jnp.inf)
        lift = jnp.where(reports == 1, log_gain(epsilon), not_asked)
        rows = LogRows(self.log_probability(reports), above - epsilon, above[..., None] + lift)
        return rows.where(sound, jnp.nan)

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        rates, scale = self.encoding.rates, self.num_categories / self.num_bits
        sound, reports = jnp.asarray(self._sound(reports)), self.checked(reports)
        bits = jnp.where(reports == 1, 1 + rates.never / rates.truth, -rates.always / rates.truth)
        return jnp.where(sound[..., None], jnp.where(reports < 0, 0, scale * bits), jnp.nan)

    def mixture(self, reports: ArrayLike) -> Mixture:
        rows, numbers = kinds(self.checked(reports).reshape(-1, self.num_categories))
        numbers = numbers_if(self._sound(rows), numbers)
        epsilon = as_scalar(self.epsilon, float_dtype())
        # 1, e^−ε and e^{−ε/2} for set, unset and absent bits, minus the one of unset bits, which is the noise.
        absent = jnp.where(rows == 0, -jnp.inf, log_gain(epsilon / 2) - epsilon / 2)
        return mixture_of_rows(numbers, jnp.where(rows == 1, log_gain(epsilon), absent), -epsilon)

    def checked(self, reports: ArrayLike) -> Int[Array, "*s K"]:
        """The reports as an array; `ValueError` for another shape or dtype or (not under tracing) what is no report."""
        reports = reports if isinstance(reports, jax.Array) else np.asarray(reports)
        if reports.ndim < 2 or reports.shape[-1] != self.num_categories or reports.dtype.kind != "i":
            raise ArgumentError(
                f"reports must be integers of shape [N, {self.num_categories}], a bit a category or −1; got "
                f"{reports.dtype.name} of shape {tuple(reports.shape)}",
                argument="reports",
            )
        if not isinstance(reports, Tracer) and not np.all(self.is_report(np.asarray(reports))):
            raise ArgumentError(
                f"each report must have {self.num_bits} bits, 0 or 1, and −1 for the other categories",
                argument="reports",
            )
        return jnp.asarray(reports)


@pytree("num_categories", "num_bits")
class LongitudinalBitFlipping(Protocol):
    """d-bit flipping with permanent memoization (dBitFlipPM). A pytree, ε∞ its leaf.

    A user draws d of the K categories once. The memo is a bit for each of them by symmetric unary encoding at ε∞, and
    every report is the memo: ε₁ = ε∞. Reports are int8 with a last axis of K, −1 for categories outside the d. All
    values outside the d share one memo. Two histories differ by at most min(d + 1, K)·ε∞ if their memos have the same
    pattern (`Protocol`). Others have no bound: reports show at once a change to another memo and a return to an old
    one. Values can have the same pattern while their memos do not: for example (0, 1) and (0, 2), for a user whose only
    bit is for category 2.

    Args:
        num_categories: K, an integer, at least 2; bucket numeric values first.
        epsilon: ε∞, scalar, nats, for any number of reports of one value.
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

    name: ClassVar[str] = "longitudinal-bit-flipping"
    num_bits: int

    def __post_init__(self) -> None:
        super().__post_init__()
        number = as_integer(self.num_bits, "num_bits", 1, self.num_categories, "num_categories = ")
        object.__setattr__(self, "num_bits", number)

    @property
    def first_epsilon(self) -> ArrayLike:
        """ε₁, equal to ε∞."""
        return self.epsilon

    @property
    def num_memos(self) -> int:
        return min(self.num_bits + 1, self.num_categories)

    @property
    def single_round(self) -> BitFlipping:
        return BitFlipping(self.num_categories, self.epsilon, num_bits=self.num_bits)

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        as_integer(num_reports, "num_reports", 1)
        return as_scalar(self.epsilon, float_dtype())

    def _loss(self, history, other, num_values):
        # Every choice of values with a bit; the rest of the d are other categories.
        fewest = max(0, self.num_bits - (self.num_categories - num_values))
        chosen = (
            np.isin(np.arange(num_values), asked)
            for size in range(fewest, min(self.num_bits, num_values) + 1)
            for asked in itertools.combinations(range(num_values), size)
        )
        return max(_units_apart(asked, history, other) for asked in chosen) * float(np.asarray(self.epsilon)) / 2

    def memoize(self, key: Array, values: ArrayLike) -> Int[Array, "*s K"]:
        return self.single_round.randomize(key, values)

    def report(self, key: Array, memo: ArrayLike) -> Int[Array, "*s K"]:
        del key
        return self.single_round.checked(memo)

    def mixture(self, reports: ArrayLike) -> Mixture:
        reports = self.single_round.checked(reports)
        check_rounds(reports, f"[N, T, {self.num_categories}]")
        if isinstance(reports, Tracer):
            alike = jnp.all(reports == reports[:, :1], axis=(1, 2))
            return self.single_round.mixture(jnp.where(alike[:, None], reports[:, 0], -1))  # −1 everywhere is no report
        known = np.asarray(reports)
        differ = (known != known[:, :1]).any(axis=(1, 2))
        if differ.any():
            raise ArgumentError.about(
                "reports", f"of user {int(np.argmax(differ))} differ, so the value was not always the same"
            )
        return self.single_round.mixture(reports[:, 0])


def _units_apart(asked, history, other):
    """The loss of two histories in units of ε/2, for a user with bits for the values `asked`."""
    one, two = (np.where(asked[each], each, -1) for each in (history, other))  # the memos
    pairs = set(zip(one.tolist(), two.tolist(), strict=True))
    if len(pairs) > min(np.unique(one).size, np.unique(two).size):
        return math.inf  # some rounds share a memo in one history but not in the other
    return sum((first >= 0) + (second >= 0) for first, second in pairs if first != second)


@jax.jit
def _randomize(mechanism, key, values):
    rates, size = mechanism.encoding.rates, mechanism.num_categories

    def answer(key, value):
        of_categories, of_memos = jax.random.split(key)
        asked = jax.random.permutation(of_categories, jnp.arange(size, dtype=jnp.int32))[: mechanism.num_bits]
        own = asked == value.astype(jnp.int32)
        which = jnp.where(jnp.any(own), jnp.argmax(own), mechanism.num_bits)
        bits = drawn_bits(jax.random.fold_in(of_memos, which), own, rates)
        inside = (value >= 0) & (value < size)
        return jnp.where(inside, jnp.full(size, -1, jnp.int8).at[asked].set(bits.astype(jnp.int8)), jnp.int8(2))

    return for_each_user(answer, key, (values.ravel(),), size).reshape(*values.shape, size)
