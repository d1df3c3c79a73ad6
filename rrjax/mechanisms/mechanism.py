"""What a mechanism is to the rest of rrjax: a report *supports* some categories, and that is nearly all there is to it.

A pure mechanism is a pair of probabilities and a way to make reports. A user's own category is supported with
probability p, any other one with q; that is enough for the inversion and all that is said about single categories.
Given a report, a category that it supports is e^ε times as likely as one that it does not: that is the likelihood.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_counts, as_scalar, check_key, float_dtype, int_dtype, survey
from rrjax.data.categories import check_epsilon, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Dense, incidence
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.rows import LogRows, log_gain
from rrjax.numerics.sharding import aligned, repeat
from rrjax.numerics.sums import expm1_epsilon

Dependence: TypeAlias = Literal["negative", "any"]

CELLS = 1 << 24
"""Supports, of a user for a category, that are looked at a time."""


@dataclasses.dataclass(frozen=True)
class Mechanism(abc.ABC):
    """A pure mechanism of local differential privacy: a frozen dataclass of K and ε that is a pytree, K static.

    To add one: a subclass with `weights`, `bits`, `randomize`, `supports`, `is_report` and `log_probability`,
    registered with JAX, and an entry in `rrjax.mechanisms.MECHANISMS`. What is here for all of them takes O(N·K); a
    mechanism that knows a faster way, or the law of its collections, has its own.
    """

    name: ClassVar[str]
    """In files and on the command line, such as "randomized-response"."""

    num_categories: int
    epsilon: ArrayLike

    dependence: ClassVar[Dependence] = "negative"
    """Of support counts on each other, for `inference.discoveries`: "negative" where they are independent too."""

    def __post_init__(self) -> None:
        """Checks what can be checked of K and ε."""
        check_num_categories(self.num_categories)
        object.__setattr__(self, "num_categories", int(self.num_categories))  # NumPy's own would overflow, and JSON
        check_epsilon(self.epsilon)

    @abc.abstractmethod
    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
        """The rates, by the given expm1: `math.expm1` makes plain numbers."""

    @property
    @abc.abstractmethod
    def bits(self) -> float:
        """Of a report, at the least."""

    @abc.abstractmethod
    def randomize(self, key: Array, values: ArrayLike) -> Array:
        """Randomizes values, category numbers of any shape, to a report each, for a simulation."""

    @abc.abstractmethod
    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        """Which categories each report supports; no matter which under tracing, where `is_report` is false."""

    @abc.abstractmethod
    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        """Which of these can be reports of this mechanism: the others are refused, or under tracing made unusable.

        Args:
            reports: Of a shape and dtype that `supports` takes.

        Returns:
            A boolean for each report.
        """

    def _sound(self, reports: ArrayLike) -> Any:
        """`is_report` where tracing hides the reports; true where `supports` has refused what is none."""
        return self.is_report(reports) if isinstance(reports, Tracer) else np.True_

    @property
    def rates(self) -> Rates:
        """How often a report supports a category, as scalars of JAX; NaN where a traced ε is not positive."""
        dtype = float_dtype()
        return self.weights(lambda x: expm1_epsilon(as_scalar(x, dtype))).astype(dtype)

    @property
    def note(self) -> str:
        """What its parameter is, where it has one, in words."""
        return ""

    def server_operations(self, num_users: float) -> float:
        """Roughly how many elementary operations it takes to count N reports: additions, looked-up numbers, hashes.

        A count, not a time: one of a hash takes longer than an addition, and what lies in memory in order takes less
        than what does not. N·K here, where every report is looked at for every category.

        Args:
            num_users: N.

        Returns:
            A number of operations.

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
        """Standard error of the unbiased estimate (`inv`) of a category that nobody holds: sqrt(q(1−q)/N)/d.

        Args:
            num_users: Scalar, N.

        Returns:
            Scalar, probability.

        Example:
            >>> import rrjax
            >>> print(f"{rrjax.RandomizedResponse(10, 1.0).standard_error(10_000):.4f}")
            0.0191
        """
        rates = self.rates
        return jnp.sqrt(rates.q * rates.not_q / as_scalar(num_users, float_dtype(), "num_users")) / rates.d

    def expected_squared_error(self, num_users: ArrayLike) -> Float[Array, ""]:
        """Expected squared error of the unbiased estimate (`inv`), summed over the categories.

        [p(1−p) + (K−1)·q(1−q)]/(N·d²), whatever the distribution of the users, whose own one it is measured against.

        Args:
            num_users: Scalar, N.

        Returns:
            Scalar, squared probability.

        Example:
            >>> import rrjax
            >>> print(f"{rrjax.RandomizedResponse(10, 1.0).expected_squared_error(10_000):.4f}")
            0.0041
        """
        num_users = as_scalar(num_users, float_dtype(), "num_users")
        return self.rates.total_variance(self.num_categories) / num_users

    @abc.abstractmethod
    def log_probability(self, reports: Array) -> Float[Array, "*s"]:
        """Log-probability of each report for a user whose category it supports; ε less for one whose it does not.

        Finite at every ε. What is drawn in public, such as the seed of a hash, is taken as given.

        Args:
            reports: Of this mechanism, as `supports` takes them.

        Returns:
            The shape of the reports, or a scalar where all are alike; nats.
        """

    def log_rows(self, reports: ArrayLike) -> LogRows:
        """The likelihood of each report on its own, in logarithms and with nothing left out; `mixture` merges them.

        Args:
            reports: Of this mechanism.

        Returns:
            `LogRows`. Under tracing, NaN for what is no report.

        Raises:
            ValueError: As `supports`.
        """
        supported = self.supports(reports)
        epsilon = as_scalar(self.epsilon, float_dtype())
        shape = supported.shape[:-1]
        scale = jnp.broadcast_to(self.log_probability(jnp.asarray(reports)), shape)
        lift = jnp.where(supported, log_gain(epsilon), -jnp.inf)
        rows = LogRows(scale, jnp.broadcast_to(-epsilon, shape), lift)
        return rows.where(self._sound(reports), jnp.nan)

    def simulated(self, key: Array, values: Int[Array, " N"]) -> Bool[Array, "N K"]:
        """Which categories the reports of users support who are made up; `collect` adds them up."""
        return self.supports(self.randomize(key, values))

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        """Turns single reports into unbiased vectors: (1 − q)/d where a category is supported, −q/d where it is not.

        Their mean over a collection is `inv` of its tally; a single one has the expectation of its user's indicator
        vector, so it can stand for it in whatever is linear.

        Args:
            reports: Of this mechanism.

        Returns:
            A vector for each report, its entries not probabilities: they may be negative or above one. Under tracing,
            NaN for what is no report.

        Raises:
            ValueError: As `tally`.
        """
        rates = self.rates
        supported = self.supports(reports)
        vectors = jnp.where(supported, 1 + rates.never / rates.truth, -rates.always / rates.truth)
        return jnp.where(jnp.asarray(self._sound(reports))[..., None], vectors, jnp.nan)

    def tally(self, reports: ArrayLike) -> Tally:
        """Counts reports.

        Args:
            reports: Of this mechanism.

        Returns:
            `Tally`. Tallies of parts add up. Under tracing, where what is no report cannot be refused, one makes all
            counts −1, which every estimator turns into NaN.

        Raises:
            ValueError: A wrong shape or dtype, or (not under tracing) what is no report.
        """
        supported = self.supports(reports)
        support = jnp.sum(supported.reshape(-1, self.num_categories), axis=0, dtype=int_dtype())
        number = jnp.asarray(supported.size // self.num_categories, int_dtype())
        return tally_if(self._sound(reports), support, number, self.rates)

    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of reports: a = 1, and B = e^ε − 1 where a category is supported.

        Args:
            reports: Of this mechanism.

        Returns:
            `Mixture`, a row for every set of categories that is different (under tracing, for every report, and
            unusable where one is none); up to a factor that θ does not change.

        Raises:
            ValueError: As `tally`, or no reports.
        """
        supported = self.supports(reports).reshape(-1, self.num_categories)
        return mixture_of_supports(supported, self.expm1_epsilon, self._sound(reports))

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """Draws what a collection from given users brings, by its exact law.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            true_counts: `[K]`, integers, how many users hold each category; below 2³¹ in all.

        Returns:
            `Tally`; NaN comes of it for counts or an ε that make no sense.

        Raises:
            ValueError: Other than K categories, or counts that are not integers.
        """
        check_key(key)
        true_counts = as_true_counts(true_counts, self.num_categories)
        return _collect(self, key, true_counts)

    @property
    def expm1_epsilon(self) -> Float[Array, ""]:
        """e^ε − 1, by which a supported category is more likely than another. Scalar; NaN where ε is not positive."""
        return expm1_epsilon(as_scalar(self.epsilon, float_dtype()))


Design: TypeAlias = Callable[[int, ArrayLike], Mechanism]
"""A mechanism before K and ε are settled: its class, or a function of the two."""


def tally_if(sound: Bool[ArrayLike, "*s"], support: Array, number: Array, rates: Rates) -> Tally:
    """The tally of reports that are all sound; all counts are −1 where one is not, so that it is unusable."""
    sound = jnp.all(jnp.asarray(sound))
    return Tally(jnp.where(sound, support, -1), jnp.where(sound, number, -1), rates=rates)


def numbers_if(sound: Bool[ArrayLike, "*s"], numbers: Shaped[Array, " U"]) -> Shaped[Array, " U"]:
    """How many reports there are of each kind, the weights of a mixture; −1 where one is not sound."""
    sound = jnp.all(jnp.asarray(sound))
    return jnp.where(sound, aligned(numbers, sound), -1)


def mixture_of_supports(
    supported: Bool[ArrayLike, "N K"], expm1_epsilon: Float[Array, ""], sound: Bool[ArrayLike, "*s"] = np.True_
) -> Mixture:
    """The likelihood of reports by what they support: a = 1, B = e^ε − 1 there, a row for each different set."""
    if isinstance(supported, Tracer):
        return Mixture(
            numbers_if(sound, jnp.ones(supported.shape[0], int_dtype())), 1.0, Dense(supported, expm1_epsilon)
        )
    size = np.shape(supported)[1]
    packed, weights = np.unique(np.packbits(np.asarray(supported), axis=1), axis=0, return_counts=True)
    different = np.unpackbits(packed, axis=1, count=size).astype(bool)
    return Mixture(jnp.asarray(weights, int_dtype()), 1.0, incidence(different, expm1_epsilon))


def known_epsilon(epsilon: Any) -> float | None:
    """ε as a number that parameters can be chosen by, where it is known: a positive scalar, and not traced."""
    if isinstance(epsilon, int | float | np.number | np.ndarray | jax.Array) and not isinstance(epsilon, Tracer):
        value = float(np.asarray(epsilon)) if np.ndim(epsilon) == 0 else 0.0
        return min(value, 300.0) if value > 0 else None
    return None


def settled(parameter: int | None, name: str) -> int:
    """A parameter that is chosen by ε, where its choice is needed.

    Raises:
        ValueError: ε is not known as a positive scalar, and nobody chose.
    """
    if parameter is None:
        raise ValueError(
            f"epsilon is traced, or no positive scalar, and {name} is to be chosen by it: give {name}, a static integer"
        )
    return parameter


def as_true_counts(true_counts: ArrayLike, num_categories: int) -> Int[Array, " K"]:
    """Checks how many users hold each category.

    Raises:
        ValueError: A wrong shape, or counts that are not integers.
    """
    true_counts = true_counts if isinstance(true_counts, jax.Array) else np.asarray(true_counts)
    if true_counts.shape != (num_categories,):
        raise ArgumentError(
            f"true_counts must have shape [{num_categories}], one a category; got {true_counts.shape}",
            argument="true_counts",
        )
    return as_counts(true_counts, "true_counts", whole=True)


def gathered(
    add: Callable[[Array, Array, Array, Array], Array], key: Array, true_counts: Array, size: int, zeros: Array
) -> tuple[Array, Array, Bool[Array, ""]]:
    """Adds up what users bring who are simulated `size` at a time, in the order of their categories."""
    seen = survey(true_counts)
    number = jnp.where(seen.drawable, seen.total, 0).astype(jnp.int32)
    ends = jnp.cumsum(jnp.where(seen.drawable, true_counts, 0).astype(jnp.int32))
    place = jnp.arange(size, dtype=jnp.int32)

    def draw(part, total):
        value = jnp.searchsorted(ends, part * size + place, side="right", method="scan").astype(jnp.int32)
        here = place < number - part * size
        return add(total, jax.random.fold_in(key, part), jnp.minimum(value, true_counts.shape[0] - 1), here)

    parts = number // size + jnp.minimum(number % size, 1)
    return repeat(parts, draw, zeros), number, seen.drawable


@jax.jit
def _collect(mechanism, key, true_counts):
    number_of = mechanism.num_categories

    def add(total, key, values, here):
        supported = mechanism.simulated(key, values) & here[:, None]
        return total + jnp.sum(supported, axis=0, dtype=total.dtype)

    size = max(1, min(1 << 12, CELLS // number_of))
    support, number, usable = gathered(add, key, true_counts, size, jnp.zeros(number_of, true_counts.dtype))
    usable = usable & (mechanism.rates.truth > 0)
    return Tally(
        jnp.where(usable, support, -1),
        jnp.where(usable, number.astype(true_counts.dtype), -1),
        rates=mechanism.rates,
    )
