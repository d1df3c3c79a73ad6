"""Mechanisms of local differential privacy: how reports are made, counted, and what they say."""

from rrjax.mechanisms.channel import Channel
from rrjax.mechanisms.geometric import Geometric
from rrjax.mechanisms.hadamard_response import HadamardResponse
from rrjax.mechanisms.local_hashing import BinaryLocalHashing, LocalHashing
from rrjax.mechanisms.mechanism import Design, Mechanism
from rrjax.mechanisms.optimized_unary_encoding import OptimizedUnaryEncoding
from rrjax.mechanisms.projective_geometry_response import ProjectiveGeometry
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.square_wave import SquareWave
from rrjax.mechanisms.subset_selection import SubsetSelection
from rrjax.mechanisms.symmetric_unary_encoding import SymmetricUnaryEncoding
from rrjax.mechanisms.warner import Warner

MECHANISMS: dict[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (
        RandomizedResponse,
        SymmetricUnaryEncoding,
        OptimizedUnaryEncoding,
        BinaryLocalHashing,
        LocalHashing,
        SubsetSelection,
        HadamardResponse,
        ProjectiveGeometry,
    )
}
"""All pure ones, by the names that files and the command line use."""

__all__ = [
    "MECHANISMS",
    "BinaryLocalHashing",
    "Channel",
    "Design",
    "Geometric",
    "HadamardResponse",
    "LocalHashing",
    "Mechanism",
    "OptimizedUnaryEncoding",
    "ProjectiveGeometry",
    "RandomizedResponse",
    "SquareWave",
    "SubsetSelection",
    "SymmetricUnaryEncoding",
    "Warner",
]
