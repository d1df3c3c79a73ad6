"""Mechanisms of local differential privacy: how reports are made, counted, and what they say."""

from rrjax.mechanisms.hadamard_response import HadamardResponse
from rrjax.mechanisms.optimized_unary_encoding import OptimizedUnaryEncoding
from rrjax.mechanisms.protocol import Design, Mechanism
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.symmetric_unary_encoding import SymmetricUnaryEncoding

MECHANISMS: dict[str, Design] = {
    kind.name: kind for kind in (RandomizedResponse, SymmetricUnaryEncoding, OptimizedUnaryEncoding, HadamardResponse)
}
"""All of them, by the names that files and the command line use."""

__all__ = [
    "MECHANISMS",
    "Design",
    "HadamardResponse",
    "Mechanism",
    "OptimizedUnaryEncoding",
    "RandomizedResponse",
    "SymmetricUnaryEncoding",
]
