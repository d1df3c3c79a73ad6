"""A mechanism whose categories are counted in another order."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_values
from rrjax.data.linear_maps import Lift
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.mechanisms.rows import LogRows
from rrjax.numerics.pytrees import register


@register(data_fields=["lift"], meta_fields=["order"])
@dataclasses.dataclass(frozen=True)
class _ReorderedLift(Lift):
    """A lift whose category i is category `order[i]` of another one."""

    lift: Lift
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.lift.shape

    def __call__(self, theta: Float[Array, " K"]) -> Float[Array, " U"]:
        return self.lift(jnp.zeros_like(theta).at[jnp.asarray(self.order)].set(theta))

    def transpose(self, weights: Float[Array, " U"]) -> Float[Array, " K"]:
        return self.lift.transpose(weights)[jnp.asarray(self.order)]


@register(data_fields=["mechanism"], meta_fields=["order"])
@dataclasses.dataclass(frozen=True)
class Reordered(Mechanism):
    """A mechanism with category `order[i]` as its category i, such as that which others are compared with as 0.

    Attributes:
        mechanism: Any mechanism; the reports are its own.
        order: K different categories. Static.
    """

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
