"""What a mechanism is to the rest of rrjax, and the checks that mechanisms share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Int

from rrjax.arguments import as_counts, as_scalar, float_dtype
from rrjax.arithmetic import odds
from rrjax.mixture import Mixture
from rrjax.tally import Rates, Tally


class Mechanism(Protocol):
    """A mechanism of local differential privacy: a frozen dataclass of K and ε that is a pytree, K static.

    A report says one thing about every category, to *support* it or not: that is its `tally`, enough for the inversion
    and all that is said about single categories. What a whole report says is its `mixture`, from which the likelihood
    is made. `collect` draws the tally of given users without drawing their reports.
    """

    name: ClassVar[str]
    """In files and on the command line, such as "randomized-response"."""

    @property
    def num_categories(self) -> int:
        """K."""
        ...

    @property
    def epsilon(self) -> ArrayLike:
        """The privacy parameter, nats."""
        ...

    @property
    def bits(self) -> float:
        """Of a report, at the least."""
        ...

    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
        """The rates, by the given expm1: `math.expm1` makes plain numbers."""
        ...

    @property
    def rates(self) -> Rates:
        """How often a report supports a category, as scalars of JAX."""
        ...

    def randomize(self, key: Array, values: ArrayLike) -> Array:
        """Values, category numbers of any shape, to a report each, for a simulation."""
        ...

    def tally(self, reports: ArrayLike) -> Tally:
        """Reports to support counts."""
        ...

    def mixture(self, reports: ArrayLike) -> Mixture:
        """Reports to their likelihood."""
        ...

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """The tally of users of whom so many hold each category, drawn by its exact law."""
        ...


Design: TypeAlias = Callable[[int, ArrayLike], Mechanism]
"""A mechanism before K and ε are settled: its class, or a function of the two."""


def check_epsilon(epsilon: Any) -> None:
    """Raises `ValueError` for a number that is not positive; a leaf of a tree in transformation passes."""
    if isinstance(epsilon, int | float | np.number) and not epsilon > 0:
        raise ValueError(f"epsilon must be a positive number of nats, got {epsilon}")


def rates_of(mechanism: Mechanism) -> Rates:
    """The rates of a mechanism as scalars of JAX; NaN where a traced ε is not positive."""
    dtype = float_dtype()
    return mechanism.weights(lambda x: odds(as_scalar(x, dtype))).astype(dtype)


def as_true_counts(true_counts: ArrayLike, num_categories: int) -> Int[Array, " K"]:
    """Checks how many users hold each category.

    Raises:
        ValueError: A wrong shape, or counts that are not integers.
    """
    true_counts = true_counts if isinstance(true_counts, jax.Array) else np.asarray(true_counts)
    if true_counts.shape != (num_categories,):
        raise ValueError(f"true_counts must have shape [{num_categories}], one a category; got {true_counts.shape}")
    return as_counts(true_counts, "true_counts", whole=True)
