"""Longitudinal optimized unary encoding, for the memo and for the reports."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from rrjax.mechanisms.longitudinal.unary import OptimizedAgain
from rrjax.mechanisms.optimized_unary_encoding import OptimizedUnaryEncoding
from rrjax.mechanisms.unary import UnaryEncoding
from rrjax.numerics.pytrees import register


@register(data_fields=["epsilon", "first_epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class LongitudinalOptimizedUnaryEncoding(OptimizedAgain):
    """Longitudinal optimized unary encoding (L-OUE). A pytree; `num_categories` is static.

    The memo is made by optimized unary encoding at ε∞; of the bits that are set in it half are reported, and of the
    others a share q2. ε₁ is at most log((2e^ε∞ + 1)/3).

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, of any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, of a single report; less than what is possible.

    Raises:
        ValueError: K < 2, an ε that is a number and not positive, or ε₁ too large.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalOptimizedUnaryEncoding(3, 2.0, first_epsilon=1.0)
        >>> print(f"{protocol.instantaneous.p:.3f} {protocol.instantaneous.q:.3f}")
        0.500 0.081
        >>> reports = protocol.report(jax.random.key(1), protocol.memoize(jax.random.key(0), [0, 0, 1, 2]))
        >>> reports.shape, int(protocol.tally(reports).num_users)
        ((4, 3), 4)

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, "Improving the utility of locally differentially private protocols for
        longitudinal and multidimensional frequency estimates", 2022: arXiv:2111.04636.
    """

    first_stage: ClassVar[type[UnaryEncoding]] = OptimizedUnaryEncoding
