"""Base classes of mechanisms, the likelihood of single reports, and a mechanism with its categories in another order.

A pure mechanism has two probabilities. A report supports the user's own category with probability p, and any other
category with probability q. The closed forms, intervals and tests of single categories need only these. The likelihood
of a report is e^ε times as large for a category that it supports as for another category.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_scalar, as_true_counts, as_values, check_key, float_dtype, int_dtype
from rrjax.data.categories import check_epsilon, check_num_categories
from rrjax.data.linear_maps import Dense, LinearMap, incidence
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.draws import summed_in_parts
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable, pytree
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.sums import expm1_epsilon, log_sum, odds_of_rates, scaled_odds

Dependence: TypeAlias = Literal["negative", "any"]

CELLS = 1 << 24
"""Largest number of cells (users × categories) in one step of a loop."""


@exportable
class LogRows(NamedTuple):
    """The likelihood of each report: P(report | θ) = exp(scale)·(exp(base) + Σ_i exp(lift_i)·θ_i).

    It has all factors, for losses, and overflows at no ε. `base` is the part common to all values, as in `Mixture`. The
    scale is separate because it may be a sum of 10⁵ terms, and its rounding would exceed the other parts.

    Attributes:
        scale: `[*s]`, nats.
        base: `[*s]`, nats, at most about zero.
        lift: `[*s, K]`, nats, −∞ for values whose likelihood is the base.
    """

    scale: Float[Array, "*s"]
    base: Float[Array, "*s"]
    lift: Float[Array, "*s K"]

    def log_probability(self, log_theta: Float[Array, "*s K"]) -> Float[Array, "*s"]:
        """Log P(report | θ) of each report, nats; each report has its own log θ."""
        dtype = log_theta.dtype
        lifted = log_sum(self.lift.astype(dtype) + log_theta)
        return self.scale.astype(dtype) + jnp.logaddexp(self.base.astype(dtype), lifted)

    def where(self, kept: Bool[ArrayLike, "*s"], otherwise: float) -> LogRows:
        """The rows, with the others than `kept` filled with one number; NaN makes their derivatives NaN too."""
        kept = jnp.asarray(kept)
        scale, base = (jnp.where(kept, part, otherwise) for part in (self.scale, self.base))
        return LogRows(scale, base, jnp.where(kept[..., None], self.lift, otherwise))


def log_gain(epsilon: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Log(1 − e^−ε): the lift of a supported category relative to its own likelihood."""
    return jnp.log(-jnp.expm1(-epsilon))


def log_probability_of_block(epsilon: ArrayLike, ratio: float, log_holding: float) -> Float[Array, ""]:
    """Log-probability of a report, a block of a block design, for a user whose category is in the block."""
    epsilon = jnp.asarray(epsilon).astype(float_dtype())
    return -log_holding - jnp.log1p((ratio - 1) * jnp.exp(-epsilon))


class Mechanism(abc.ABC):
    """The base class of all that randomizes: its reports and their likelihood. A pytree with K static.

    A mechanism whose reports support categories also has `rates`, `tally` and `collect`, and so every estimator,
    interval, test, model and study: pure mechanisms, and survey designs, whose rates differ by category.

    What takes reports raises `ValueError` for a wrong shape or dtype and, not under tracing, for an entry that is no
    report. Under tracing such an entry makes NaN of its own row, or of every estimate.
    """

    name: ClassVar[str]
    """Name in files and on the command line, such as "randomized-response"."""

    num_categories: int
    epsilon: Any
    """The ε delivered, nats; infinite if a report can give its user's value away."""

    dependence: ClassVar[Dependence] = "negative"
    """Dependence between support counts, for `inference.discoveries`; "negative" includes independence."""
    independent: ClassVar[bool] = False
    """Whether the supports of different categories are independent, for given users."""
    same_size: ClassVar[bool] = False
    """Whether all reports support the same number of categories."""

    names_one: ClassVar[bool] = False
    """Whether each report names exactly one category, which it supports; or which it denies, supporting all others."""
    denies: ClassVar[bool] = False
    """Whether a report may be less likely from a user with the category that it names."""

    @property
    def num_kinds(self) -> int | tuple[int, ...] | None:
        """The number of kinds of reports if these are numbers from 0, such as categories; None for other reports."""
        return self.num_categories if self.names_one else None

    @property
    def note(self) -> str:
        """The parameters besides K and ε, in words; empty for a mechanism without any."""
        return ""

    @abc.abstractmethod
    def randomize(self, key: Array, values: ArrayLike) -> Array:
        """Randomized reports of values, for simulations.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: Integers in 0 … K − 1, any shape.

        Returns:
            A report for each value. Under tracing, an invalid entry, if the format has one, for a value outside the
            domain and for an impossible ε.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain; a missing parameter
                that depends on a traced ε.
        """

    @abc.abstractmethod
    def log_rows(self, reports: ArrayLike) -> LogRows:
        """The likelihood of each report on its own, in logarithms, with all factors; `mixture` merges them."""

    @abc.abstractmethod
    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of reports; of a pure mechanism a = 1, and B = e^ε − 1 for each supported category.

        One row for every different kind of report (under tracing, for every report), up to a factor independent of θ.
        Raises `ValueError` if there are no reports.
        """


class SupportMechanism(Mechanism):
    """A mechanism whose reports support categories: it has tallies, and so all estimators and tests of categories."""

    @abc.abstractmethod
    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        """The rates, computed with the given expm1; `math.expm1` makes plain numbers."""

    @property
    def rates(self) -> Rates:
        """The rates p and q of support, as JAX scalars; NaN for a traced ε that is not positive.

        An ε above 85.2 in float32, or 706.3 in float64, has the rates of these.
        """
        dtype = float_dtype()
        return self.rates_by(lambda x: _odds_of_rates(as_scalar(x, dtype))).astype(dtype)

    @abc.abstractmethod
    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        """The categories that each report supports; arbitrary under tracing for an entry that is no report."""

    @abc.abstractmethod
    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        """Unbiased vectors from single reports: (1 − q)/d for a supported category, −q/d for any other.

        Their mean over a collection is `inv` of its tally. The expectation of each is its user's indicator vector, so
        it can replace that vector in any linear expression. Entries may be negative or above one.
        """

    @abc.abstractmethod
    def tally(self, reports: ArrayLike) -> Tally:
        """The tally of reports: support counts, number of users, and rates. Tallies of parts add up.

        Under tracing, an entry that is no report makes all counts −1.
        """

    @abc.abstractmethod
    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """Draws the tally of a collection from given users, by its exact law.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            true_counts: `[K]`, integers, the number of users with each category; below 2³¹ in all.

        Returns:
            `Tally`; estimates of it are NaN for unusable counts or an impossible ε.

        Raises:
            ValueError: Other than K categories, or counts that are not integers.
        """


@dataclasses.dataclass(frozen=True)
class OfEpsilon(Mechanism):
    """A mechanism of K and ε. Parameters out of their range raise `ValueError`; a traced ε that is none gives NaN."""

    num_categories: int
    epsilon: ArrayLike

    def __post_init__(self) -> None:
        check_num_categories(self.num_categories)
        object.__setattr__(self, "num_categories", int(self.num_categories))  # a NumPy integer overflows
        check_epsilon(self.epsilon)


@dataclasses.dataclass(frozen=True)
class PureMechanism(OfEpsilon, SupportMechanism):
    """A pure mechanism of local differential privacy: a frozen dataclass of K and ε that is a pytree, K static.

    A new mechanism is a subclass with `rates_by`, `bits`, `randomize`, `supports`, `is_report` and `log_probability`,
    registered with JAX, and an entry in `rrjax/mechanisms/table.py`. The methods here take O(N·K). A mechanism with a
    faster count, or with a known law of its collections, overrides them.
    """

    @property
    @abc.abstractmethod
    def bits(self) -> float:
        """The smallest number of bits of a report."""

    @abc.abstractmethod
    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        """Whether each entry, of a shape and dtype that `supports` takes, is a report of this mechanism."""

    def _sound(self, reports: ArrayLike) -> Any:
        """`is_report` under tracing; else true, because `supports` has refused other entries."""
        return self.is_report(reports) if isinstance(reports, Tracer) else np.True_

    @property
    def expm1_epsilon(self) -> Float[Array, ""]:
        """e^ε − 1. Scalar; NaN for an ε that is not positive."""
        return _expm1_epsilon(as_scalar(self.epsilon, float_dtype()))

    def server_operations(self, num_users: float) -> float:
        """Rough number of elementary operations to count N reports; by default N·K, one for every report and category.

        A count, not a time: a hash takes longer than an addition.

        Example:
            >>> import rrjax
            >>> mechanisms = rrjax.mechanisms.MECHANISMS
            >>> for name in ("randomized-response", "hadamard-response", "optimized-unary-encoding"):
            ...     print(f"{mechanisms[name](1000, 1.0).server_operations(1_000_000):,.0f}")
            1,001,000
            1,020,480
            1,000,000,000
        """
        return num_users * self.num_categories

    def standard_error(self, num_users: ArrayLike) -> Float[Array, ""]:
        """Standard error of the unbiased estimate (`inv`) of an empty category, of N users: sqrt(q(1−q)/N)/d. Scalar.

        Example:
            >>> import rrjax
            >>> print(f"{rrjax.RandomizedResponse(10, 1.0).standard_error(10_000):.4f}")
            0.0191
        """
        rates = self.rates
        return jnp.sqrt(rates.q * rates.not_q / as_scalar(num_users, float_dtype(), "num_users")) / rates.d

    def expected_squared_error(self, num_users: ArrayLike) -> Float[Array, ""]:
        """Expected squared error of the unbiased estimate (`inv`) of N users, summed over the categories. Scalar.

        [p(1−p) + (K−1)·q(1−q)]/(N·d²), measured against the shares among these users, for any shares.

        Example:
            >>> import rrjax
            >>> print(f"{rrjax.RandomizedResponse(10, 1.0).expected_squared_error(10_000):.4f}")
            0.0041
        """
        num_users = as_scalar(num_users, float_dtype(), "num_users")
        return self.rates.total_variance(self.num_categories) / num_users

    @abc.abstractmethod
    def log_probability(self, reports: Array) -> Float[Array, "*s"]:
        """Log-probability of each report for a user whose category it supports; for any other user it is ε less.

        Nats, finite at every ε; a scalar if all are equal. Public randomness, such as the seed of a hash, is taken as
        given.
        """

    def log_rows(self, reports: ArrayLike) -> LogRows:
        supported = self.supports(reports)
        epsilon = as_scalar(self.epsilon, float_dtype())
        shape = supported.shape[:-1]
        scale = jnp.broadcast_to(self.log_probability(jnp.asarray(reports)), shape)
        lift = jnp.where(supported, log_gain(epsilon), -jnp.inf)
        rows = LogRows(scale, jnp.broadcast_to(-epsilon, shape), lift)
        return rows.where(self._sound(reports), jnp.nan)

    def simulated(self, key: Array, values: Int[Array, " N"]) -> Bool[Array, "N K"]:
        """The categories that reports of simulated users support; `collect` adds them up."""
        return self.supports(self.randomize(key, values))

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        rates = self.rates
        supported = self.supports(reports)
        vectors = jnp.where(supported, 1 + rates.never / rates.truth, -rates.always / rates.truth)
        return jnp.where(jnp.asarray(self._sound(reports))[..., None], vectors, jnp.nan)

    def tally(self, reports: ArrayLike) -> Tally:
        supported = self.supports(reports)
        support = jnp.sum(supported.reshape(-1, self.num_categories), axis=0, dtype=int_dtype())
        number = jnp.asarray(supported.size // self.num_categories, int_dtype())
        return tally_if(self._sound(reports), support, number, self.rates)

    def mixture(self, reports: ArrayLike) -> Mixture:
        supported = self.supports(reports).reshape(-1, self.num_categories)
        return mixture_of_supports(supported, self.expm1_epsilon, self._sound(reports))

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        check_key(key)
        true_counts = as_true_counts(true_counts, self.num_categories)
        return _collect(self, key, true_counts)


MechanismFactory: TypeAlias = Callable[[int, ArrayLike], SupportMechanism]
"""A function of K and ε that returns a mechanism, such as its class."""


def tally_if(sound: Bool[ArrayLike, "*s"], support: Array, number: Array, rates: Rates) -> Tally:
    """The tally of reports; all counts are −1 if one of the reports is unsound."""
    sound = jnp.all(jnp.asarray(sound))
    return Tally(jnp.where(sound, support, -1), jnp.where(sound, number, -1), rates=rates)


def numbers_if(sound: Bool[ArrayLike, "*s"], numbers: Shaped[Array, " U"]) -> Shaped[Array, " U"]:
    """The numbers of reports of each kind, weights of a mixture; −1 if one of the reports is unsound."""
    sound = jnp.all(jnp.asarray(sound))
    return jnp.where(sound, with_sharding_of(numbers, sound), -1)


def mixture_of_supports(
    supported: Bool[ArrayLike, "N K"], expm1_epsilon: Float[Array, ""], sound: Bool[ArrayLike, "*s"] = np.True_
) -> Mixture:
    """The likelihood of reports by their supports: a = 1, B = e^ε − 1 (see `scaled_odds`); a row for each support."""
    one, odds = scaled_odds(expm1_epsilon)
    if isinstance(supported, Tracer):
        return Mixture(numbers_if(sound, jnp.ones(supported.shape[0], int_dtype())), one, Dense(supported, odds))
    size = np.shape(supported)[1]
    packed, weights = np.unique(np.packbits(np.asarray(supported), axis=1), axis=0, return_counts=True)
    different = np.unpackbits(packed, axis=1, count=size).astype(bool)
    return Mixture(jnp.asarray(weights, int_dtype()), one, incidence(different, odds))


def known_epsilon(epsilon: Any) -> float | None:
    """ε as a number, for the choice of parameters; None for a traced, batched or non-positive ε."""
    if isinstance(epsilon, int | float | np.number | np.ndarray | jax.Array) and not isinstance(epsilon, Tracer):
        value = float(np.asarray(epsilon)) if np.ndim(epsilon) == 0 else 0.0
        return min(value, 300.0) if value > 0 else None
    return None


def settled(parameter: int | None, name: str) -> int:
    """The value of a parameter that may depend on ε; raises `ValueError` if it is not given, and ε is not known."""
    if parameter is None:
        raise ValueError(
            f"epsilon is traced, or no positive scalar, so it cannot choose {name}: give {name}, a static integer"
        )
    return parameter


@pytree("order")
class _ReorderedLift(LinearMap):
    """A lift whose category i is category `order[i]` of another one."""

    lift: LinearMap
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.lift.shape

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        return self.lift(jnp.zeros_like(theta).at[jnp.asarray(self.order)].set(theta))

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        return self.lift.transpose(weights)[jnp.asarray(self.order)]


@pytree("order")
class Reordered(Mechanism):
    """A mechanism, whose reports these are, with category `order[i]` as its category i; `order` is static."""

    mechanism: Any
    order: tuple[int, ...]

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K."""
        return len(self.order)

    @property
    def epsilon(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the mechanism."""
        return self.mechanism.epsilon

    def randomize(self, key: Array, values: ArrayLike) -> Array:
        values = as_values(values, self.num_categories, "values")
        return self.mechanism.randomize(key, jnp.asarray(self.order)[values])

    def mixture(self, reports: ArrayLike) -> Mixture:
        mixture = self.mechanism.mixture(reports)
        return Mixture(mixture.weights, mixture.base, _ReorderedLift(mixture.lift, self.order))

    def log_rows(self, reports: ArrayLike) -> LogRows:
        rows = self.mechanism.log_rows(reports)
        return rows._replace(lift=rows.lift[..., jnp.asarray(self.order)])


_expm1_epsilon, _odds_of_rates = program(expm1_epsilon), program(odds_of_rates)


@jax.jit
def _collect(mechanism, key, true_counts):
    num_categories = mechanism.num_categories

    def add(total, key, values, exists):
        supported = mechanism.simulated(key, values) & exists[:, None]
        return total + jnp.sum(supported, axis=0, dtype=total.dtype)

    size = max(1, min(1 << 12, CELLS // num_categories))
    support, number, usable = summed_in_parts(add, key, true_counts, size, jnp.zeros(num_categories, true_counts.dtype))
    usable = usable & (mechanism.rates.truth > 0)
    return tally_if(usable, support, number.astype(true_counts.dtype), mechanism.rates)
