"""Longitudinal unary encoding, optimized for the memo and symmetric for the reports."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxtyping import Array, Float

from rrjax.mechanisms.longitudinal.protocol import second_odds
from rrjax.mechanisms.longitudinal.unary import SymmetricAgain
from rrjax.mechanisms.optimized_unary_encoding import OptimizedUnaryEncoding
from rrjax.mechanisms.unary import UnaryEncoding
from rrjax.numerics.pytrees import register


@register(data_fields=["epsilon", "first_epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class LongitudinalOptimizedSymmetricUnaryEncoding(SymmetricAgain):
    """Longitudinal optimized, then symmetric unary encoding (L-OSUE). A pytree; `num_categories` is static.

    The memo is made by optimized unary encoding at ε∞; each bit is then turned with probability q2, so that both in a
    row are optimized unary encoding at ε₁. Of one round, the closest of the unary ones.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, of any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, of a single report; less than ε∞.

    Raises:
        ValueError: K < 2, an ε that is a number and not positive, or ε₁ too large.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalOptimizedSymmetricUnaryEncoding(3, 2.0, first_epsilon=1.0)
        >>> print(f"{protocol.instantaneous.p:.3f} {protocol.instantaneous.q:.3f}")
        0.803 0.197
        >>> reports = protocol.report(jax.random.key(1), protocol.memoize(jax.random.key(0), [0, 0, 1, 2]))
        >>> reports.shape, int(protocol.tally(reports).num_users)
        ((4, 3), 4)

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, "Improving the utility of locally differentially private protocols for
        longitudinal and multidimensional frequency estimates", 2022: arXiv:2111.04636.
    """

    first_stage: ClassVar[type[UnaryEncoding]] = OptimizedUnaryEncoding

    @property
    def single_round(self) -> OptimizedUnaryEncoding:
        """Optimized unary encoding at ε₁."""
        return OptimizedUnaryEncoding(self.num_categories, self._first)

    @property
    def _second_odds(self) -> Float[Array, ""]:
        return second_odds(2, self.epsilon, self.first_epsilon)
