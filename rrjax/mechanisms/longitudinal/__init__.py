"""Protocols for users who report again and again: what they say is randomized once for ever, then once a report."""

from rrjax.mechanisms.longitudinal.attack import Attack, averaging_attack
from rrjax.mechanisms.longitudinal.bit_flipping import LongitudinalBitFlipping
from rrjax.mechanisms.longitudinal.bloom import bloom_filters
from rrjax.mechanisms.longitudinal.local_hashing import LongitudinalLocalHashing
from rrjax.mechanisms.longitudinal.optimized_symmetric_unary_encoding import LongitudinalOptimizedSymmetricUnaryEncoding
from rrjax.mechanisms.longitudinal.optimized_unary_encoding import LongitudinalOptimizedUnaryEncoding
from rrjax.mechanisms.longitudinal.protocol import Protocol
from rrjax.mechanisms.longitudinal.randomized_response import LongitudinalRandomizedResponse
from rrjax.mechanisms.longitudinal.rappor import CohortBits, Rappor
from rrjax.mechanisms.longitudinal.symmetric_optimized_unary_encoding import LongitudinalSymmetricOptimizedUnaryEncoding
from rrjax.mechanisms.longitudinal.symmetric_unary_encoding import LongitudinalSymmetricUnaryEncoding
from rrjax.numerics.least_squares import Regression

__all__ = [
    "Attack",
    "CohortBits",
    "LongitudinalBitFlipping",
    "LongitudinalLocalHashing",
    "LongitudinalOptimizedSymmetricUnaryEncoding",
    "LongitudinalOptimizedUnaryEncoding",
    "LongitudinalRandomizedResponse",
    "LongitudinalSymmetricOptimizedUnaryEncoding",
    "LongitudinalSymmetricUnaryEncoding",
    "Protocol",
    "Rappor",
    "Regression",
    "averaging_attack",
    "bloom_filters",
]
