"""Protocols for users who report again and again: what they say is randomized once for ever, then once a report."""

from rrjax.longitudinal.attack import Attack, averaging_attack
from rrjax.longitudinal.bit_flipping import LongitudinalBitFlipping
from rrjax.longitudinal.bloom import bloom_filters
from rrjax.longitudinal.local_hashing import LongitudinalLocalHashing
from rrjax.longitudinal.optimized_symmetric_unary_encoding import LongitudinalOptimizedSymmetricUnaryEncoding
from rrjax.longitudinal.optimized_unary_encoding import LongitudinalOptimizedUnaryEncoding
from rrjax.longitudinal.protocol import Protocol
from rrjax.longitudinal.randomized_response import LongitudinalRandomizedResponse
from rrjax.longitudinal.rappor import CohortBits, Rappor
from rrjax.longitudinal.regression import Regression
from rrjax.longitudinal.symmetric_optimized_unary_encoding import LongitudinalSymmetricOptimizedUnaryEncoding
from rrjax.longitudinal.symmetric_unary_encoding import LongitudinalSymmetricUnaryEncoding
from rrjax.memo import Memo

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
    "Memo",
    "Protocol",
    "Rappor",
    "Regression",
    "averaging_attack",
    "bloom_filters",
]
