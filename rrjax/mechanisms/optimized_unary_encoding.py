"""Optimized unary encoding: one bit a category, that of the own one set half of the time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rrjax.data.arguments import as_scalar, float_dtype
from rrjax.data.tally import Rates
from rrjax.mechanisms.unary import UnaryEncoding
from rrjax.numerics.pytrees import register


@register(data_fields=["epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class OptimizedUnaryEncoding(UnaryEncoding):
    """Optimized unary encoding (OUE): p = ½, q = 1/(e^ε+1). A pytree; `num_categories` is static.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats; a float or a traced array.

    Raises:
        ValueError: K < 2, or ε a number that is not positive.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(num_categories=3, epsilon=2.0)
        >>> print(f"{mechanism.rates.p:.3f} {mechanism.rates.q:.3f}")
        0.500 0.119
        >>> reports = mechanism.randomize(jax.random.key(0), [0, 0, 1, 2])
        >>> reports.shape, int(mechanism.tally(reports).num_users)
        ((4, 3), 4)
        >>> tally = mechanism.collect(jax.random.key(0), [60_000, 30_000, 10_000])
        >>> [round(t, 2) for t in rrjax.inv_p(tally).tolist()]
        [0.6, 0.3, 0.1]

    References:
        Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation", 2017, §4.3.
    """

    name: ClassVar[str] = "optimized-unary-encoding"

    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
        """The rates 2, e^ε + 1 and e^ε − 1, by the given expm1: `math.expm1` makes plain numbers."""
        e1 = expm1(self.epsilon)
        return Rates(2, e1 + 2, e1)

    @property
    def log_rates(self) -> tuple[Float[Array, ""], ...]:
        """As `UnaryEncoding`; finite at every ε."""
        epsilon = as_scalar(self.epsilon, float_dtype())
        half = jnp.full_like(epsilon, -math.log(2))
        return half, half, jax.nn.log_sigmoid(-epsilon), jax.nn.log_sigmoid(epsilon)
