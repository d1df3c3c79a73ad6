"""The base class of survey designs, and the checks that designs share."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax import simulate
from rrjax.data.arguments import as_array, as_distribution, as_values, check_key, float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.draws import below, threshold
from rrjax.numerics.pytrees import exportable

SUM_TOLERANCE = 1e-6
"""Allowed distance of the sum of known probabilities from one."""


@exportable
class Affine(NamedTuple):
    """The law of a report: it names category j with probability always_j + truth·θ_j.

    Attributes:
        always: `[K]`, the part that does not depend on the user.
        truth: Scalar, d; negative if reports name other categories than the user's more often. NaN for an impossible
            traced design.
    """

    always: Any
    truth: Any

    def astype(self, dtype: Any) -> Affine:
        """The law as JAX arrays of a floating dtype."""
        return Affine(jnp.asarray(self.always).astype(dtype), jnp.asarray(self.truth).astype(dtype))

    def noise(self, dtype: Any) -> tuple[Float[Array, " K"], Float[Array, ""]]:
        """The noise always/|truth| `[K]`, and the sign of truth."""
        size = abs(self.truth)
        return jnp.asarray(self.always / size).astype(dtype), jnp.asarray(self.truth / size).astype(dtype)


class Design(abc.ABC):
    """A survey design: a frozen dataclass of probabilities that is a pytree. A subclass defines K and `affine`."""

    denies: ClassVar[bool] = False
    """Whether a report may be less likely from a user with the category that it names."""

    num_categories: int

    @property
    @abc.abstractmethod
    def affine(self) -> Affine:
        """The law of a report, in double precision on the host if the probabilities are known there."""

    @property
    def epsilon(self) -> Float[Array, ""]:
        """The ε delivered, nats: the largest log-ratio of the probabilities of any one report.

        log(1 + d/min a), or −log(1 − |d|/min a) for negative d. Infinite if an answer can reveal a user.
        """
        always, truth = self.affine
        library = jnp if isinstance(truth, jax.Array) else np
        with np.errstate(divide="ignore"):
            delivered = library.sign(truth) * library.log1p(truth / library.min(always))
        return jnp.asarray(delivered).astype(float_dtype())

    def probabilities(self, theta: ArrayLike) -> Float[Array, " K"]:
        """The probabilities of the reports of a user drawn from θ: a_j + d·θ_j.

        Args:
            theta: `[K]`, a distribution.

        Returns:
            `[K]`.

        Raises:
            ValueError: A wrong shape.
        """
        theta = as_distribution(theta, self.num_categories)
        always, truth = self.affine.astype(theta.dtype)
        return always + truth * theta

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        """Randomized answers of respondents, for simulations.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: Integers in 0 … K − 1, any shape.

        Returns:
            Reports, int32, the shape of `values`. Under tracing, −1 for a value outside the domain or an impossible
            design.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        law = self.affine
        for_keeping, for_others = jax.random.split(key)
        drawn = simulate.values(for_others, law.always, values.size).reshape(values.shape)
        kept = with_probability(for_keeping, law.truth, values.shape)
        return within(jnp.where(kept, values.astype(jnp.int32), drawn), values, self)


def together(*values: Any) -> tuple[Any, ...]:
    """Numbers ready for arithmetic: NumPy float64 if all are known on the host, else JAX arrays."""
    if any(isinstance(value, jax.Array) for value in values):
        return tuple(jnp.asarray(value).astype(float_dtype()) for value in values)
    return tuple(np.asarray(value, np.float64) for value in values)


def is_known(value: Any) -> bool:
    """Whether a value is on the host. A JAX array may be traced; impossible values in it give NaN."""
    return isinstance(value, int | float | np.number | np.ndarray)


def check_real(value: Any, name: str) -> None:
    """Raises `ValueError` unless a value is a real number, or an array of them (a batch, for `jax.vmap`)."""
    if not (is_known(value) or isinstance(value, jax.Array)) or not is_real(as_array(value, name)):
        raise ArgumentError(f"{name} must be a real number, or an array of them, got {value!r}", argument=name)


def check_probability(value: Any, name: str, example: float) -> None:
    """Raises `ValueError` unless a value is a real number, strictly between 0 and 1 if it is known."""
    check_real(value, name)
    if not is_known(value) or np.ndim(value) > 0:  # a batch, for jax.vmap
        return
    if not 0 < float(value) < 1:
        raise ArgumentError(
            f"{name} must lie between 0 and 1, such as {example:g}, got {float(value):g}", argument=name
        )


def check_scalar(value: Any, name: str) -> None:
    """Raises `ValueError` for several numbers."""
    if np.ndim(value) != 0:
        raise ArgumentError(
            f"{name} must be a scalar (use jax.vmap for several designs), got shape {np.shape(value)}", argument=name
        )


def as_known_distribution(value: Any, name: str) -> Any:
    """A distribution over the categories, checked as far as its values are known.

    Raises:
        ValueError: A wrong shape, or no distribution.
    """
    if isinstance(value, list | tuple):
        value = as_array(value, name)
    if not isinstance(value, np.ndarray | jax.Array):
        raise ArgumentError(f"{name} must have shape [K], one probability a category, got {value!r}", argument=name)
    if np.ndim(value) == 0 or (np.ndim(value) == 1 and len(value) < 2):
        raise ArgumentError(
            f"{name} must have shape [K] with K >= 2, one probability a category, got {np.shape(value)}", argument=name
        )
    if not is_real(value):
        raise ArgumentError(f"{name} must be probabilities, got dtype {value.dtype}", argument=name)
    if is_known(value) and value.ndim == 1:
        entries = np.asarray(value, np.float64)
        if not (entries >= 0).all():
            raise ArgumentError(
                f"{name} must be probabilities, none negative or NaN, got {entries.min():g}", argument=name
            )
        if not abs(entries.sum() - 1) <= SUM_TOLERANCE:
            raise ArgumentError(
                f"{name} must be probabilities that sum to one, got a sum of {entries.sum():.6g}: give the "
                "distribution of the answers that are not truthful",
                argument=name,
            )
    return value


def mixed(truth: Any, otherwise: Any, names: tuple[str, str]) -> Affine:
    """The law of a report: the value with probability `truth`, else a draw from a known distribution.

    Raises:
        ValueError: The probability is not a scalar, or the distribution has another shape than `[K]`.
    """
    check_scalar(truth, names[0])
    if np.ndim(otherwise) != 1:
        raise ArgumentError(
            f"{names[1]} must have shape [K] (use jax.vmap for several designs), got shape {np.shape(otherwise)}",
            argument=names[1],
        )
    truth, otherwise = together(truth, otherwise)
    always = (1 - truth) * otherwise
    if isinstance(truth, jax.Array):
        sound = (truth > 0) & (truth < 1) & (jnp.min(otherwise) >= 0) & (jnp.abs(jnp.sum(otherwise) - 1) < 1e-4)
        truth = jnp.where(sound, truth, jnp.nan)
    return Affine(always, truth)


def with_probability(key: Array, probability: Any, shape: tuple[int, ...]) -> Bool[Array, "*s"]:
    """Events of a probability, by 64 random bits each."""
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
    return below((high, low), threshold(jnp.asarray(probability).astype(float_dtype()), 0.0))


def within(reports: Array, values: Array, design: Design) -> Int[Array, "*s"]:
    """The reports; −1 for a value outside the domain or an impossible design."""
    inside = (values >= 0) & (values < design.num_categories)
    return jnp.where(inside & ~jnp.isnan(jnp.asarray(design.affine.truth)), reports, -1)
