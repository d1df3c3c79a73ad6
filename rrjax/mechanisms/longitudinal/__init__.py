"""Protocols for users who report repeatedly: a permanent randomization of the value, then one for each report."""

from rrjax.mechanisms.longitudinal.bit_flipping import LongitudinalBitFlipping
from rrjax.mechanisms.longitudinal.protocol import Protocol, averaging_attack
from rrjax.mechanisms.longitudinal.rappor import CohortBits, Rappor, bloom_filters
from rrjax.mechanisms.longitudinal.two_stages import (
    LongitudinalLocalHashing,
    LongitudinalRandomizedResponse,
    LongitudinalSymmetricUnaryEncoding,
    LongitudinalUnaryEncoding,
)

__all__ = [
    "CohortBits",
    "LongitudinalBitFlipping",
    "LongitudinalLocalHashing",
    "LongitudinalRandomizedResponse",
    "LongitudinalSymmetricUnaryEncoding",
    "LongitudinalUnaryEncoding",
    "Protocol",
    "Rappor",
    "averaging_attack",
    "bloom_filters",
]
