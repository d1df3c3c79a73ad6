"""Symmetric unary encoding: basic RAPPOR, one bit a category, each flipped with the same probability."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
from jaxtyping import Array, Float

from rrjax.data.arguments import as_scalar, float_dtype
from rrjax.data.tally import Rates
from rrjax.mechanisms.unary import UnaryEncoding
from rrjax.numerics.pytrees import register


@register(data_fields=["epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class SymmetricUnaryEncoding(UnaryEncoding):
    """Symmetric unary encoding (SUE): p = e^{ε/2}/(e^{ε/2}+1), q = 1 − p. A pytree; `num_categories` is static.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats; a float or a traced array.

    Raises:
        ValueError: K < 2, or ε a number that is not positive.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.SymmetricUnaryEncoding(num_categories=3, epsilon=2.0)
        >>> print(f"{mechanism.rates.p:.3f} {mechanism.rates.q:.3f}")
        0.731 0.269
        >>> reports = mechanism.randomize(jax.random.key(0), [0, 0, 1, 2])
        >>> reports.shape, int(mechanism.tally(reports).num_users)
        ((4, 3), 4)
        >>> tally = mechanism.collect(jax.random.key(0), [60_000, 30_000, 10_000])
        >>> [round(t, 2) for t in rrjax.inv_p(tally).tolist()]
        [0.6, 0.3, 0.1]

    References:
        Erlingsson, Pihur and Korolova, "RAPPOR", 2014; Wang, Blocki, Li and Jha, "Locally differentially private
        protocols for frequency estimation", 2017, §4.2.
    """

    name: ClassVar[str] = "symmetric-unary-encoding"

    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
        """The rates 1, 1 and e^{ε/2} − 1, by the given expm1: `math.expm1` makes plain numbers."""
        return Rates(1, 1, expm1(self.epsilon / 2))  # pyright: ignore[reportOperatorIssue]

    @property
    def log_rates(self) -> tuple[Float[Array, ""], ...]:
        """As `UnaryEncoding`; finite at every ε."""
        half = as_scalar(self.epsilon, float_dtype()) / 2
        often, seldom = jax.nn.log_sigmoid(half), jax.nn.log_sigmoid(-half)
        return often, seldom, seldom, often
