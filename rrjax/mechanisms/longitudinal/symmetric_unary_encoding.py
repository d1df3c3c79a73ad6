"""Longitudinal symmetric unary encoding: basic RAPPOR."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxtyping import Array, Float

from rrjax.mechanisms.longitudinal.protocol import second_odds
from rrjax.mechanisms.longitudinal.unary import SymmetricAgain
from rrjax.mechanisms.symmetric_unary_encoding import SymmetricUnaryEncoding
from rrjax.mechanisms.unary import UnaryEncoding
from rrjax.numerics.pytrees import register


@register(data_fields=["epsilon", "first_epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class LongitudinalSymmetricUnaryEncoding(SymmetricAgain):
    """Longitudinal symmetric unary encoding (L-SUE; basic RAPPOR). A pytree; `num_categories` is static.

    The memo is made by symmetric unary encoding at ε∞; each bit is then turned with probability q2, so that both in a
    row are symmetric unary encoding at ε₁.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, of any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, of a single report; less than ε∞.

    Raises:
        ValueError: K < 2, an ε that is a number and not positive, or ε₁ too large.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalSymmetricUnaryEncoding(3, 2.0, first_epsilon=1.0)
        >>> print(f"{protocol.instantaneous.p:.3f} {protocol.instantaneous.q:.3f}")
        0.765 0.235
        >>> reports = protocol.report(jax.random.key(1), protocol.memoize(jax.random.key(0), [0, 0, 1, 2]))
        >>> reports.shape, int(protocol.tally(reports).num_users)
        ((4, 3), 4)

    References:
        Erlingsson, Pihur and Korolova, "RAPPOR: Randomized aggregatable privacy-preserving ordinal response", 2014.
    """

    first_stage: ClassVar[type[UnaryEncoding]] = SymmetricUnaryEncoding

    @property
    def single_round(self) -> SymmetricUnaryEncoding:
        """Symmetric unary encoding at ε₁."""
        return SymmetricUnaryEncoding(self.num_categories, self._first)

    @property
    def _second_odds(self) -> Float[Array, ""]:
        return second_odds(2, self.epsilon / 2, self.first_epsilon / 2)  # pyright: ignore[reportOperatorIssue]
